#pragma once

#include <glib.h>

#include "backend/backend.h"

/* The steps of one run of hutch and what they took, for --timing; and the place where a test can
 * have hutch killed. One run per process, so the record is the process's. */

/* Starts the clock. `fault`: NULL, or "hutch@STEP": the process kills itself with SIGKILL when that
 * step is done. */
void steps_begin(const char *fault);

/* The step `name` (a literal of one word) has just ended; the next one begins. */
void step_done(const char *name);

/* Prints the table on standard error: hutch's steps, those of the sandbox where "create" was, and
 * the sum. */
void steps_print(const SandboxStep *sandbox_steps, gsize n_sandbox_steps);
