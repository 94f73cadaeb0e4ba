#include "cli/values.h"

static void test_sizes(void)
{
    static const struct {
        const char *text;
        guint64 bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"1048576", 1 << 20},
        {"256M", 256 << 20},
        {"256m", 256 << 20},
        {"1K", 1024},
        {"1.5G", (guint64)3 << 29},
        {"0.5K", 512},
        {"2T", (guint64)2 << 40},
        {"0.000001T", 1099511},
        {"8388606T", (guint64)8388606 << 40},
    };
    static const char *const bad[] = {
        "",
        " 1",
        "1 ",
        "-1",
        "+1",
        "1.5",
        ".5G",
        "1.G",
        "1e3",
        "0x10",
        "1GB",
        "1Ki",
        "G",
        "1P",
        "8388607T",
        "18446744073709551616",
        "99999999999999999999999",
        "1G1",
        "٣",
    };
    guint64 value;
    for (gsize i = 0; i < G_N_ELEMENTS(good); i++) {
        g_test_message("%s", good[i].text);
        g_assert_true(value_parse(VALUE_SIZE, good[i].text, &value));
        g_assert_cmpuint(value, ==, good[i].bytes);
    }
    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_test_message("%s", bad[i]);
        g_assert_false(value_parse(VALUE_SIZE, bad[i], &value));
    }
}

static void test_fractions(void)
{
    guint64 value;
    g_assert_true(value_parse(VALUE_SECONDS, "0.25", &value));
    g_assert_cmpuint(value, ==, 250);
    g_assert_true(value_parse(VALUE_SECONDS, "60", &value));
    g_assert_cmpuint(value, ==, 60000);
    g_assert_true(value_parse(VALUE_SECONDS, "0.0004", &value));
    g_assert_cmpuint(value, ==, 0);
    g_assert_true(value_parse(VALUE_SECONDS, "1.99999999999999999999", &value));
    g_assert_cmpuint(value, ==, 1999);
    g_assert_true(value_parse(VALUE_CPUS, "1.5", &value));
    g_assert_cmpuint(value, ==, 1500);
    g_assert_false(value_parse(VALUE_COUNT, "1.5", &value));
    g_assert_false(value_parse(VALUE_COUNT, "1K", &value));
    g_assert_false(value_parse(VALUE_SECONDS, "1s", &value));
    g_assert_false(value_parse(VALUE_SECONDS, "inf", &value));
    g_assert_false(value_parse(VALUE_TEXT, "1", &value));
}

static void assert_format(ValueType type, guint64 value, const char *wanted)
{
    g_autofree char *text = value_format(type, value);
    guint64 back;
    g_assert_cmpstr(text, ==, wanted);
    g_assert_true(value_parse(type, text, &back));
    g_assert_cmpuint(back, ==, value);
}

static void test_format(void)
{
    assert_format(VALUE_SIZE, 0, "0");
    assert_format(VALUE_SIZE, 1023, "1023");
    assert_format(VALUE_SIZE, 1024, "1K");
    assert_format(VALUE_SIZE, (guint64)1 << 30, "1G");
    assert_format(VALUE_SIZE, (guint64)3 << 29, "1536M");
    assert_format(VALUE_SIZE, (guint64)5 << 40, "5T");
    assert_format(VALUE_SIZE, (guint64)5 << 50, "5120T");
    assert_format(VALUE_SECONDS, 500, "0.5");
    assert_format(VALUE_SECONDS, 1001, "1.001");
    assert_format(VALUE_SECONDS, 60000, "60");
    assert_format(VALUE_CPUS, 10, "0.01");
    assert_format(VALUE_COUNT, 256, "256");
}

static void test_env(void)
{
    g_assert_true(value_is_env("A=1"));
    g_assert_true(value_is_env("_a9="));
    g_assert_true(value_is_env("A=B=C"));
    g_assert_false(value_is_env(""));
    g_assert_false(value_is_env("A"));
    g_assert_false(value_is_env("=1"));
    g_assert_false(value_is_env("9A=1"));
    g_assert_false(value_is_env("A B=1"));
    g_assert_false(value_is_env("Ä=1"));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/values/sizes", test_sizes);
    g_test_add_func("/values/fractions", test_fractions);
    g_test_add_func("/values/format", test_format);
    g_test_add_func("/values/env", test_env);
    return g_test_run();
}
