#pragma once

#include <glib.h>
#include <stdio.h>

#include "backend/backend.h"

/* The options of all commands: one table in options.c, from which parsing, bounds, errors and help
 * come. */

/* Commands, as bits of an option's row. */
typedef enum {
    COMMAND_RUN = 1 << 0,
    COMMAND_DOCTOR = 1 << 1,
    COMMAND_LANGUAGES = 1 << 2,
} CommandBit;

/* What `hutch run` is to run. */
typedef enum {
    PROGRAM_NONE,
    PROGRAM_SCRIPT,  /* SCRIPT: `text` is its path */
    PROGRAM_CODE,    /* -c CODE: `text` is the code */
    PROGRAM_STDIN,   /* -: the code comes from standard input */
    PROGRAM_COMMAND, /* -- COMMAND...: all is in `arguments` */
} ProgramKind;

/* All text is borrowed from argv. */
typedef struct {
    SandboxSpec sandbox; /* limits, best_effort, state_dir, fault, timing */
    guint64 timeout_ms;
    guint64 output_bytes;
    guint64 max_files;
    gboolean max_files_asked;
    const char *language, *out;
    GPtrArray *env, *inputs, *keep; /* of const char* */
    gboolean json, help;

    ProgramKind program;
    const char *text;
    const char *const *arguments; /* what follows; NULL-ended */
} Options;

void options_init(Options *options);
void options_clear(Options *options);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Options, options_clear)

/* Reads argv[1..] (argv[0] is the command's name). Options end where the program begins: what
 * follows SCRIPT, "-c CODE" or "--" is its own. `--name value` and `--name=value` are the same. On
 * failure HUTCH_ERROR_USAGE: the line names the option and says what is right. Values of --env
 * never appear in it. */
gboolean options_parse(Options *options, CommandBit command, const char *const *argv,
                       GError **error);

/* The options of one command for --help: what they take, what they do, their defaults. */
void options_print_help(FILE *out, CommandBit command);
