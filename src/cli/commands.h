#pragma once

#include <glib.h>

#include "cli/options.h"

enum { EXIT_SIGNAL_BASE = 128 }; /* what a shell adds the number of a signal to */

/* One function per command, in a file of its own. Each returns hutch's exit status; on an error it
 * sets `error` (its exit status is then that of the error), whose message main.c prints. */
int command_run(const Options *options, GError **error);
int command_doctor(const Options *options, GError **error);
int command_languages(const Options *options, GError **error);
