#include "cli/text.h"

#include <string.h>
#include <unistd.h>

#include "base/fd.h"

void text_append_utf8(GString *out, const char *bytes, gsize size)
{
    while (size > 0) {
        const char *end;
        g_utf8_validate_len(bytes, size, &end);
        gsize valid = (gsize)(end - bytes);
        g_string_append_len(out, bytes, (gssize)valid);
        if (valid == size)
            return;
        if (*end == '\0')
            g_string_append_c(out, '\0');
        else
            g_string_append(out, "\uFFFD");
        bytes += valid + 1;
        size -= valid + 1;
    }
}

static gboolean is_continuation(char byte)
{
    return ((guchar)byte & 0xC0) == 0x80;
}

enum { CHARACTER_BYTES_MAX = 4, NOT_COMPLETE = -2 };

gsize text_whole_end(const char *bytes, gsize size)
{
    for (gsize back = 1; back < CHARACTER_BYTES_MAX && back <= size; back++) {
        const char *at = bytes + size - back;
        if (is_continuation(*at))
            continue;
        /* A NUL would be called incomplete as well. */
        gboolean cut =
            *at != '\0' && g_utf8_get_char_validated(at, (gssize)back) == (gunichar)NOT_COMPLETE;
        return cut ? size - back : size;
    }
    return size;
}

gsize text_whole_start(const char *bytes, gsize size)
{
    gsize n = 0;
    while (n < size && n < CHARACTER_BYTES_MAX && is_continuation(bytes[n]))
        n++;
    return n < CHARACTER_BYTES_MAX ? n : 0;
}

static void append_code(GString *out, gunichar c)
{
    if (c == '\n')
        g_string_append(out, "\\n");
    else if (c == '\t')
        g_string_append(out, "\\t");
    else if (c < 0x100)
        g_string_append_printf(out, "\\x%02x", c);
    else
        g_string_append_printf(out, "\\u{%x}", c);
}

char *text_escape(const char *text)
{
    GString *out = g_string_new(NULL);
    gsize size = strlen(text);
    while (size > 0) {
        gunichar c = g_utf8_get_char_validated(text, (gssize)size);
        gsize width = 1;
        if (c >= (gunichar)NOT_COMPLETE) { /* -1 or -2: no character */
            append_code(out, (guchar)*text);
        } else {
            width = (gsize)(g_utf8_next_char(text) - text);
            if (!g_unichar_isprint(
                    c)) /* controls, marks that turn the direction, what takes no room */
                append_code(out, c);
            else
                g_string_append_len(out, text, (gssize)width);
        }
        text += width;
        size -= width;
    }
    return g_string_free(out, FALSE);
}

static gboolean line_is_open;

void say_note_output(const char *data, gsize size)
{
    if (size > 0)
        line_is_open = data[size - 1] != '\n';
}

void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_autofree char *escaped = text_escape(text);
    g_autofree char *line = g_strconcat(line_is_open ? "\n" : "", "hutch: ", escaped, "\n", NULL);
    line_is_open = FALSE;
    /* Where standard error is gone there is nobody left to tell. */
    (void)fd_write_full(STDERR_FILENO, line, strlen(line));
}
