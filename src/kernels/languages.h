#pragma once

#include <glib.h>

#include "backend/error.h"

/* The table of one-shot languages: how to find one, how its file is called, how it is run. A
 * language is a row of data. */

/* Lists end with NULL. */
typedef struct {
    const char *name; /* "python" */
    /* Other names that a caller may use ("py", "python3"), and those of "#!" interpreters. */
    const char *const *aliases;
    /* Of file names, without the dot; the first one is the script's. */
    const char *const *extensions;
    /* Of a script that is an ES module, when the interpreter goes by the name; else NULL. */
    const char *module_extension;
    const char *program;        /* what has to exist in the sandbox's PATH, e.g. "python3" */
    const char *package;        /* Debian package (or packages, with spaces) that brings it */
    const char *const *version; /* argv that prints its version on its first line */
    /* argv; "{script}" as a whole argument stands for the script's path; the caller's arguments
     * follow. Compiled languages: sh -c 'cc … && exec …' {script}: the binary is put beside the
     * script, and a compilation that fails is the run's exit status, its messages on stderr. */
    const char *const *run;
    const char *const *env; /* NAME=VALUE that this language needs, or NULL; the caller's win */
    gboolean crlf_to_lf;    /* the interpreter cannot take CR LF */
} Language;

const Language *const *languages_all(void); /* NULL-ended */

/* By name or alias (case-insensitive), or NULL. */
const Language *language_by_name(const char *name);
/* By the extension of a file name, or by the interpreter named in its "#!" line (`source` may be
 * NULL), or NULL. */
const Language *language_by_file(const char *file_name, const char *source, gsize source_size);

/* The file name that a script gets in the sandbox: `file_name` (the user's own, its last part;
 * NULL: "main") with an extension that the language takes. A JavaScript file of another name
 * than .mjs and .cjs that is an ES module (import or export declarations, await at the top
 * level) becomes .mjs: node before 20.19, Debian 12's 18 among them, goes by the name alone. At
 * most 255 bytes. The caller owns it. */
char *language_script_name(const Language *language, const char *file_name, const char *source,
                           gsize size);

/* The source as the recipe wants it: byte order mark stripped, CR LF turned where `crlf_to_lf`.
 * Ends with a NUL that is not counted. A NUL byte in it is BAD_INPUT: "source code cannot
 * contain null bytes (line 2)". No interpreter can be left to say so: Debian's python 3.11.2
 * runs the part before it and succeeds, bash drops it. The caller owns the result. */
char *language_prepare_source(const Language *language, const char *source, gsize size,
                              gsize *prepared_size, GError **error);

/* The full path of `program` in the PATH that code sees, or NULL. It has to be below /usr when
 * all links are followed: the host's /usr is the sandbox's, its /opt or /root are not. The
 * caller owns it. */
char *language_find(const Language *language);
