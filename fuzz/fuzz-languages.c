#include <stdint.h>
#include <string.h>

#include "kernels/javascript.h"
#include "kernels/languages.h"

/* What hutch reads of a script before it runs: its language, its source, its name.
 * Input: the language's number (one byte), a file name up to the first line end, the source. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(gboolean holds)
{
    if (!holds) {
        __builtin_trap();
    }
}

static void check_source(const Language *language, const char *source, gsize size)
{
    g_autoptr(GError) error = NULL;
    gsize prepared_size = 0;
    g_autofree char *prepared =
        language_prepare_source(language, source, size, &prepared_size, &error);

    check((prepared == NULL) == (error != NULL));
    if (prepared) {
        check(prepared_size <= size && strlen(prepared) == prepared_size);
        check(!language->crlf_to_lf || !strstr(prepared, "\r\n") ||
              memmem(source, size, "\r\r\n", 3));
    }
}

static void check_name(const Language *language, const char *file, const char *source, gsize size)
{
    g_autofree char *name = language_script_name(language, file, source, size);

    check(*name && strlen(name) <= 255 && !strchr(name, '/') && strcmp(name, ".") != 0 &&
          strcmp(name, "..") != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const Language *const *all = languages_all();
    g_autofree char *file = NULL;
    g_autofree char *source = NULL; /* of exactly its size, so that a byte too far shows */
    const uint8_t *line_end;
    guint n_languages = 0;
    gsize source_size;

    while (all[n_languages]) {
        n_languages++;
    }
    line_end = size > 1 ? memchr(data + 1, '\n', size - 1) : NULL;
    if (!line_end) {
        return 0;
    }
    file = g_strndup((const char *)data + 1, (gsize)(line_end - data - 1));
    source_size = size - (gsize)(line_end + 1 - data);
    source = g_memdup2(line_end + 1, source_size);
    language_by_file(file, source, source_size);
    language_by_name(file);
    if (source) {
        javascript_is_module(source, source_size);
        check_source(all[data[0] % n_languages], source, source_size);
    }
    check_name(all[data[0] % n_languages], file, source, source_size);
    return 0;
}
