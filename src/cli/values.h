#pragma once

#include <glib.h>

/* Numbers as people write them on a command line: sizes, durations, processors, counts. */

typedef enum {
    VALUE_FLAG,    /* no argument */
    VALUE_SIZE,    /* bytes: "1048576", "256M", "1.5G"; K, M, G, T are powers of 1024 */
    VALUE_SECONDS, /* kept in milliseconds: "5", "0.25" */
    VALUE_CPUS,    /* kept in thousandths: "1", "0.5" */
    VALUE_COUNT,
    VALUE_TEXT,
    VALUE_LIST, /* text; the option may be given several times */
    VALUE_ENV,  /* NAME=VALUE; several times, the last of a name wins */
} ValueType;

/* Reads a number of the first kinds, exactly (no floating point); what is finer than the kept unit
 * is cut off. FALSE when `text` is none: signs, spaces, exponents and what does not fit 63 bits are
 * refused. */
gboolean value_parse(ValueType type, const char *text, guint64 *value);

/* The shortest way to write a number, which value_parse() reads back: "1G", "0.5". The caller owns
 * it. */
char *value_format(ValueType type, guint64 value);

/* What such a value looks like, for an error: "a size, such as 256M or 1G (K, M, G, T are powers of
 * 1024)". */
const char *value_example(ValueType type);

/* Whether `text` begins with NAME= where NAME is a variable's name, [A-Za-z_][A-Za-z0-9_]*. */
gboolean value_is_env(const char *text);
