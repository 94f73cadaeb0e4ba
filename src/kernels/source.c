#include "kernels/languages.h"

#include <limits.h>
#include <string.h>

#include "kernels/javascript.h"

typedef struct {
    const char *mark;
    gsize size;
    const char *encoding; /* NULL: UTF-8, which is what all take */
} ByteOrderMark;

static const ByteOrderMark marks[] = {
    {"\xef\xbb\xbf", 3, NULL}, {"\xff\xfe\0\0", 4, "UTF-32"}, {"\0\0\xfe\xff", 4, "UTF-32"},
    {"\xff\xfe", 2, "UTF-16"}, {"\xfe\xff", 2, "UTF-16"},
};

static const ByteOrderMark *find_mark(const char *source, gsize size)
{
    for (guint i = 0; i < G_N_ELEMENTS(marks); i++) {
        if (size >= marks[i].size && memcmp(source, marks[i].mark, marks[i].size) == 0) {
            return &marks[i];
        }
    }
    return NULL;
}

static gboolean check_nul(const char *source, gsize size, GError **error)
{
    const char *nul = size ? memchr(source, '\0', size) : NULL;
    gsize line = 1;

    if (!nul) {
        return TRUE;
    }
    for (const char *at = source; at < nul; at++) {
        line += *at == '\n';
    }
    g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT,
                "source code cannot contain null bytes (line %" G_GSIZE_FORMAT ")", line);
    return FALSE;
}

/* CR LF becomes LF in place; a CR alone stays. Returns the new size. */
static gsize turn_line_ends(char *text, gsize size)
{
    gsize to = 0;

    for (gsize from = 0; from < size; from++) {
        if (text[from] != '\r' || from + 1 == size || text[from + 1] != '\n') {
            text[to++] = text[from];
        }
    }
    return to;
}

char *language_prepare_source(const Language *language, const char *source, gsize size,
                              gsize *prepared_size, GError **error)
{
    const ByteOrderMark *mark = find_mark(source, size);
    char *prepared;

    if (mark && mark->encoding) {
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT,
                    "source code cannot contain null bytes: this is %s, save it as UTF-8",
                    mark->encoding);
        return NULL;
    }
    if (mark) {
        source += mark->size;
        size -= mark->size;
    }
    if (!check_nul(source, size, error)) {
        return NULL;
    }
    prepared = g_malloc(size + 1);
    if (size) {
        memcpy(prepared, source, size);
    }
    if (language->crlf_to_lf) {
        size = turn_line_ends(prepared, size);
    }
    prepared[size] = '\0';
    *prepared_size = size;
    return prepared;
}

static gboolean has_extension(const Language *language, const char *extension)
{
    for (const char *const *one = language->extensions; *one; one++) {
        if (g_ascii_strcasecmp(*one, extension) == 0) {
            return TRUE;
        }
    }
    return FALSE;
}

/* Only the first extension says nothing about the kind: ".mjs" and ".cjs" do. */
static gboolean is_module(const Language *language, const char *extension, const char *source,
                          gsize size)
{
    gboolean open = !extension || !has_extension(language, extension) ||
                    g_ascii_strcasecmp(extension, language->extensions[0]) == 0;

    return language->module_extension && open && javascript_is_module(source, size);
}

char *language_script_name(const Language *language, const char *file_name, const char *source,
                           gsize size)
{
    const char *slash = file_name ? strrchr(file_name, '/') : NULL;
    const char *name = slash ? slash + 1 : file_name;
    const char *dot = name ? strrchr(name, '.') : NULL;
    gboolean known;
    gsize stem;
    const char *extension;

    if (!name || !*name) {
        name = "main";
        dot = NULL;
    }
    known = dot && dot != name && has_extension(language, dot + 1);
    extension = is_module(language, dot ? dot + 1 : NULL, source, size) ? language->module_extension
                : known                                                 ? dot + 1
                                                                        : language->extensions[0];
    stem = known ? (gsize)(dot - name) : strlen(name);
    stem = MIN(stem, NAME_MAX - 1 - strlen(extension));
    return g_strdup_printf("%.*s.%s", (int)stem, name, extension);
}
