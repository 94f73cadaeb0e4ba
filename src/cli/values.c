#include "cli/values.h"

#include <string.h>

static const struct {
    const char *example;
    guint64 scale;     /* kept units in one written unit */
    gboolean fraction; /* may have a decimal point */
} kinds[] = {
    [VALUE_SIZE] = {"a size, such as 256M or 1G (K, M, G, T are powers of 1024)", 1, FALSE},
    [VALUE_SECONDS] = {"a number of seconds, such as 5 or 0.5", 1000, TRUE},
    [VALUE_CPUS] = {"a number of processors, such as 1 or 0.5", 1000, TRUE},
    [VALUE_COUNT] = {"a whole number", 1, FALSE},
    [VALUE_TEXT] = {"text", 0, FALSE},
    [VALUE_LIST] = {"text", 0, FALSE},
    [VALUE_ENV] = {"NAME=VALUE, where NAME has letters, digits and _ and begins with no digit", 0,
                   FALSE},
};

static const char size_letters[] = "KMGT";

const char *value_example(ValueType type)
{
    return kinds[type].example;
}

/* Reads "12" or "12.34" and moves *text behind it; the fraction is kept as fraction / divisor. */
static gboolean read_decimal(const char **text, guint64 *whole, guint64 *fraction, guint64 *divisor)
{
    const char *at = *text;
    *whole = *fraction = 0;
    *divisor = 1;
    if (!g_ascii_isdigit(*at))
        return FALSE;
    for (; g_ascii_isdigit(*at); at++) {
        guint64 digit = (guint64)(*at - '0');
        if (__builtin_mul_overflow(*whole, 10, whole) ||
            __builtin_add_overflow(*whole, digit, whole))
            return FALSE;
    }
    if (*at == '.') {
        at++;
        if (!g_ascii_isdigit(*at))
            return FALSE;
        for (; g_ascii_isdigit(*at); at++) {
            /* Six digits are finer than any unit but the terabyte needs; more could overflow below.
             */
            if (*divisor < 1000 * 1000) {
                *fraction = *fraction * 10 + (guint64)(*at - '0');
                *divisor *= 10;
            }
        }
    }
    *text = at;
    return TRUE;
}

gboolean value_parse(ValueType type, const char *text, guint64 *value)
{
    guint64 whole, fraction, divisor;
    if (kinds[type].scale == 0 || !read_decimal(&text, &whole, &fraction, &divisor))
        return FALSE;

    guint64 scale = kinds[type].scale;
    gboolean may_have_fraction = kinds[type].fraction;
    if (type == VALUE_SIZE && *text != '\0') {
        const char *letter = strchr(size_letters, g_ascii_toupper(*text));
        if (!letter)
            return FALSE;
        scale = (guint64)1 << (10 * (letter - size_letters + 1));
        may_have_fraction = TRUE;
        text++;
    }
    if (*text != '\0' || (divisor > 1 && !may_have_fraction))
        return FALSE;

    guint64 product;
    if (__builtin_mul_overflow(whole, scale, &product) || product > G_MAXINT64 - scale)
        return FALSE;
    *value = product + fraction * scale / divisor;
    return TRUE;
}

char *value_format(ValueType type, guint64 value)
{
    if (type == VALUE_SIZE) {
        guint power = 0;
        while (power < strlen(size_letters) && value > 0 && value % 1024 == 0) {
            value /= 1024;
            power++;
        }
        return power ? g_strdup_printf("%" G_GUINT64_FORMAT "%c", value, size_letters[power - 1])
                     : g_strdup_printf("%" G_GUINT64_FORMAT, value);
    }
    guint64 scale = kinds[type].scale;
    if (scale <= 1 || value % scale == 0)
        return g_strdup_printf("%" G_GUINT64_FORMAT, scale ? value / scale : value);
    char *text =
        g_strdup_printf("%" G_GUINT64_FORMAT ".%03u", value / scale, (guint)(value % scale));
    for (gsize end = strlen(text); text[end - 1] == '0'; end--)
        text[end - 1] = '\0';
    return text;
}

gboolean value_is_env(const char *text)
{
    if (!g_ascii_isalpha(*text) && *text != '_')
        return FALSE;
    while (g_ascii_isalnum(*text) || *text == '_')
        text++;
    return *text == '=';
}
