#pragma once

#include <glib.h>
#include <jansson.h>

#include "backend/agent_client.h"
#include "backend/backend.h"
#include "cli/options.h"
#include "cli/streams.h"
#include "outputs/outputs.h"

/* How an execution came out: its status, its exit status, its JSON, its lines for a person. */

/* The words of `status`. */
#define RESULT_STATUSES(X)                                                                         \
    X(OK, "ok")                                                                                    \
    X(ERROR, "error")                                                                              \
    X(TIMEOUT, "timeout")                                                                          \
    X(KILLED, "killed")                                                                            \
    X(CRASHED, "crashed")                                                                          \
    X(INTERRUPTED, "interrupted")

typedef enum {
#define X(name, word) RESULT_##name,
    RESULT_STATUSES(X)
#undef X
} ResultStatus;

/* Everything is borrowed. */
typedef struct {
    const char *id;
    const char *language; /* NULL: a command */
    const AgentOutcome *outcome;
    int interrupt_exit_status; /* 128 + the signal that told hutch to end; 0: none did */
    const char *not_started; /* NULL, or why nothing ran; `outcome` then has what a shell would exit
                                with: 126, 127, 1 */
    const KeptStreams *streams;
    const OutputSet *outputs;      /* NULL: not looked at */
    const SandboxReceipt *receipt; /* NULL: no sandbox was made */
    const Options *options;
} Result;

ResultStatus result_status(const Result *result);
const char *result_status_word(ResultStatus status);

/* What `hutch run` exits with: the program's own code, 124, 137, 128+N. */
int result_exit_status(const Result *result);

/* "SIGSEGV"; the caller owns it. */
char *result_signal_name(int signal);

/* The execution as one object, as the HTTP interface has it. */
json_t *result_to_json(const Result *result);

/* The receipt of a sandbox (NULL gives null); `spec` (may be NULL) tells which limits were asked
 * for. */
json_t *result_receipt_to_json(const SandboxReceipt *receipt, const SandboxSpec *spec);

/* Bytes as a JSON string (invalid UTF-8 becomes U+FFFD); NULL gives null. */
json_t *result_text(const char *text);

/* Prints the object and a line's end on standard output. HUTCH_ERROR_IO, unless the reader is gone:
 * then TRUE and *gone. */
gboolean result_print_json(const json_t *object, gboolean *gone, GError **error);

/* Lines on standard error, only where there is something to say. */
void result_say(const Result *result);
void result_say_collected(const OutputSet *outputs, const char *directory);
