#include "outputs/text.h"

#include "outputs/outputs.h"

char *text_of_size(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    guint unit = 0;

    if (bytes < 1024) {
        return g_strdup_printf("%u %s", (guint)bytes, bytes == 1 ? "byte" : "bytes");
    }
    while (value >= 1024 && unit + 1 < G_N_ELEMENTS(units)) {
        value /= 1024;
        unit++;
    }
    /* Whole numbers without ".0": limits are whole, sizes mostly are not. */
    if (value == (double)(uint64_t)value) {
        return g_strdup_printf("%.0f %s", value, units[unit]);
    }
    return g_strdup_printf("%.1f %s", value, units[unit]);
}

char *output_path_text(const char *path)
{
    GString *text = g_string_new(NULL);
    const char *end = path + strlen(path);

    while (path < end) {
        gunichar c = g_utf8_get_char_validated(path, end - path);
        gboolean valid = c != (gunichar)-1 && c != (gunichar)-2;

        if (!valid || c < 0x20 || c == 0x7f || c == '\\') {
            g_string_append_printf(text, "\\x%02x", (guint)(unsigned char)*path++);
        } else if (g_unichar_isprint(c)) {
            g_string_append_unichar(text, c);
            path = g_utf8_next_char(path);
        } else { /* C1 controls, marks that turn the direction of writing, private and unassigned */
            g_string_append_printf(text, "\\u{%x}", c);
            path = g_utf8_next_char(path);
        }
    }
    return g_string_free(text, FALSE);
}
