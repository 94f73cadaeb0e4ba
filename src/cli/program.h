#pragma once

#include <glib.h>

#include "cli/options.h"
#include "kernels/languages.h"

/* What is to be run, made ready: a script in its language, or a command. */
typedef struct {
    const Language *language; /* NULL: a command */
    char *script_name;        /* its file name in the sandbox; NULL: a command */
    char *source;
    gsize source_size;
    char *rejected;  /* why the language cannot take this source (a NUL byte, UTF-16, ...); NULL: it
                        can */
    GPtrArray *argv; /* of const char*, NULL-ended */
    GPtrArray *env;  /* of char*, NAME=VALUE, NULL-ended: the whole environment, nothing of it is
                        hutch's own */
} Program;

enum { PROGRAM_SOURCE_MAX = 16 * 1024 * 1024 };

/* Reads the script, finds its language, checks that its toolchain is there. Source that its
 * language cannot take is the code's own failure, as a syntax error would be: TRUE, with
 * program->rejected. Errors: HUTCH_ERROR_USAGE (no such language, none to tell),
 * HUTCH_ERROR_BAD_INPUT (a script that cannot be read), HUTCH_ERROR_SANDBOX (toolchain absent;
 * names the package). */
gboolean program_load(Program *program, const Options *options, GError **error);

/* The environment of `language` (NULL: of a command) with the caller's NAME=VALUE added, later ones
 * winning. */
GPtrArray *program_environment(const Language *language, const GPtrArray *added);

void program_clear(Program *program);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Program, program_clear)

/* "exe_" and 24 random hex digits. The caller owns it. */
char *program_new_id(void);
