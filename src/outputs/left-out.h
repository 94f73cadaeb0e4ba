#pragma once

#include <glib.h>
#include <stdint.h>

#include "outputs/outputs.h"

/* The list of what is left out while it grows: bounded, since hostile code decides how much
 * there is to say. */

enum { LEFT_OUT_MAX = 1000 };

typedef struct {
    GPtrArray *list; /* of OutputLeftOut* */
    guint more[N_OUTPUT_REASONS];
    /* The scratch folder or file that is being counted. */
    char *scratch;
    const char *scratch_what;
    guint scratch_files;
    uint64_t scratch_bytes;
} LeftOut;

void left_out_init(LeftOut *left_out);
void left_out_clear(LeftOut *left_out);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LeftOut, left_out_clear)

/* `detail` is taken over; may be NULL. */
void left_out_add(LeftOut *left_out, const char *path, OutputReason reason, char *detail);
/* One file of `size_bytes` below the scratch folder (or the file itself) that is the first
 * `length` bytes of `path`. Files of one folder come one after the other. */
void left_out_add_scratch(LeftOut *left_out, const char *path, gsize length, const char *what,
                          uint64_t size_bytes);
/* Sorts, says how many more there are, and hands the list over. */
GPtrArray *left_out_finish(LeftOut *left_out);
