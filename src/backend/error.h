#pragma once

#include <glib.h>

/* The one error domain above the libc-only rooms. Each code is a row: name, the word users and clients see, exit status. */
#define HUTCH_ERRORS(X)                                                                            \
    X(USAGE, "bad_usage", 2)                                                                       \
    X(BAD_INPUT, "bad_input", 2)                                                                   \
    X(UNENFORCEABLE, "unenforceable", 125)                                                         \
    X(SANDBOX, "sandbox_failed", 125)                                                              \
    X(AGENT, "agent_failed", 125)                                                                  \
    X(IO, "io_failed", 125)

typedef enum {
#define X(name, word, exit_status) HUTCH_ERROR_##name,
    HUTCH_ERRORS(X)
#undef X
} HutchError;

#define HUTCH_ERROR (hutch_error_quark())
GQuark hutch_error_quark(void);

/* The stable word and the exit status of an error of this domain; any other error counts as IO. */
const char *hutch_error_word(const GError *error);
int hutch_error_exit_status(const GError *error);
