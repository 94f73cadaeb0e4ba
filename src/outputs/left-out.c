#include "outputs/left-out.h"

#include <string.h>

#include "outputs/text.h"

static const char *const reason_words[] = {
#define X(name, word) [OUTPUT_##name] = word,
    OUTPUT_REASONS(X)
#undef X
};

const char *output_reason_word(OutputReason reason)
{
    return reason_words[reason];
}

static void output_left_out_free(gpointer data)
{
    OutputLeftOut *item = data;

    g_free(item->path);
    g_free(item->detail);
    g_free(item);
}

void left_out_init(LeftOut *left_out)
{
    *left_out = (LeftOut){.list = g_ptr_array_new_with_free_func(output_left_out_free)};
}

void left_out_clear(LeftOut *left_out)
{
    g_clear_pointer(&left_out->list, g_ptr_array_unref);
    g_clear_pointer(&left_out->scratch, g_free);
}

static void append(LeftOut *left_out, const char *path, OutputReason reason, char *detail)
{
    OutputLeftOut *item = g_new0(OutputLeftOut, 1);

    item->path = g_strdup(path);
    item->reason = reason;
    item->detail = detail;
    g_ptr_array_add(left_out->list, item);
}

void left_out_add(LeftOut *left_out, const char *path, OutputReason reason, char *detail)
{
    if (left_out->list->len >= LEFT_OUT_MAX) {
        left_out->more[reason]++;
        g_free(detail);
        return;
    }
    append(left_out, path, reason, detail);
}

static void finish_scratch(LeftOut *left_out)
{
    g_autofree char *path = g_steal_pointer(&left_out->scratch);
    g_autofree char *size = NULL;

    if (!path) {
        return;
    }
    size = text_of_size(left_out->scratch_bytes);
    left_out_add(left_out, path, OUTPUT_SCRATCH,
                 g_strdup_printf("%s: %u file%s, %s", left_out->scratch_what,
                                 left_out->scratch_files, left_out->scratch_files == 1 ? "" : "s",
                                 size));
}

void left_out_add_scratch(LeftOut *left_out, const char *path, gsize length, const char *what,
                          uint64_t size_bytes)
{
    gboolean same = left_out->scratch && strlen(left_out->scratch) == length &&
                    memcmp(left_out->scratch, path, length) == 0;

    if (!same) {
        finish_scratch(left_out);
        left_out->scratch = g_strndup(path, length);
        left_out->scratch_what = what;
        left_out->scratch_files = 0;
        left_out->scratch_bytes = 0;
    }
    left_out->scratch_files++;
    /* Sizes are hostile (a sparse file says 2^63): the sum saturates. */
    left_out->scratch_bytes += MIN(size_bytes, UINT64_MAX - left_out->scratch_bytes);
}

static gint compare_items(gconstpointer a, gconstpointer b)
{
    return strcmp((*(const OutputLeftOut *const *)a)->path,
                  (*(const OutputLeftOut *const *)b)->path);
}

/* "12 more: 10 link, 2 over_count", or NULL. */
static char *describe_more(const LeftOut *left_out)
{
    g_autoptr(GString) reasons = g_string_new(NULL);
    guint total = 0;

    for (guint i = 0; i < N_OUTPUT_REASONS; i++) {
        if (left_out->more[i]) {
            g_string_append_printf(reasons, "%s%u %s", total ? ", " : "", left_out->more[i],
                                   reason_words[i]);
            total += left_out->more[i];
        }
    }
    return total ? g_strdup_printf("%u more are left out and not listed: %s", total, reasons->str)
                 : NULL;
}

GPtrArray *left_out_finish(LeftOut *left_out)
{
    char *more;

    finish_scratch(left_out);
    g_ptr_array_sort(left_out->list, compare_items);
    more = describe_more(left_out);
    if (more) {
        append(left_out, ".", OUTPUT_OVER_COUNT, more);
    }
    return g_steal_pointer(&left_out->list);
}
