#pragma once

#include <glib.h>

/* Bytes that came from a program nobody vouches for, made fit for JSON and for a terminal; and
 * hutch's own lines. */

/* Appends `bytes` as valid UTF-8: every byte that belongs to no character becomes U+FFFD, NUL is
 * kept. */
void text_append_utf8(GString *out, const char *bytes, gsize size);

/* Where text was cut in the middle of a character: the size without an incomplete last one, and how
 * many bytes at the start are the rest of one. What no cut can explain (bytes that are not UTF-8 at
 * all) is left alone. */
gsize text_whole_end(const char *bytes, gsize size);
gsize text_whole_start(const char *bytes, gsize size);

/* `text` for a terminal: control characters, characters that reorder a line, and bytes that are not
 * UTF-8 are written as \n, \t, \x1b, \u202e, so that a file name can neither move the cursor nor
 * pretend. The caller owns the result. */
char *text_escape(const char *text);

/* Tells say() how what a program wrote on standard error (or on the same terminal) ended, so that hutch's lines begin lines. Standard
 * error is the process's, and so is this. */
void say_note_output(const char *data, gsize size);

/* Writes one line "hutch: …" to standard error, escaped as above, in one write(2). */
void say(const char *format, ...) G_GNUC_PRINTF(1, 2);
