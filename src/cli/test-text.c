#include <string.h>

#include "cli/streams.h"
#include "cli/text.h"

static void assert_clean(const char *bytes, gsize size, const char *wanted, gsize wanted_size)
{
    g_autoptr(GString) text = g_string_new(NULL);
    text_append_utf8(text, bytes, size);
    g_assert_cmpmem(text->str, text->len, wanted, wanted_size);
}

#define CLEAN(bytes, wanted) assert_clean(bytes, sizeof(bytes) - 1, wanted, sizeof(wanted) - 1)

static void test_utf8(void)
{
    CLEAN("", "");
    CLEAN("plain\n", "plain\n");
    CLEAN("gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f");
    CLEAN("head \xff\xfe tail\n", "head \xef\xbf\xbd\xef\xbf\xbd tail\n");
    CLEAN("a\0b\0", "a\0b\0");
    CLEAN("\xff\0\xff", "\xef\xbf\xbd\0\xef\xbf\xbd");
    CLEAN("\xe5\xad", "\xef\xbf\xbd\xef\xbf\xbd");                 /* cut */
    CLEAN("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
    CLEAN("\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd");                 /* overlong */
    CLEAN("\xf4\x90\x80\x80",
          "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* beyond U+10FFFF */
    CLEAN("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80");
}

static void test_whole(void)
{
    static const char word[] = "x\xe5\xad\x97y"; /* one byte, three, one */
    g_assert_cmpuint(text_whole_end(word, 1), ==, 1);
    g_assert_cmpuint(text_whole_end(word, 2), ==, 1);
    g_assert_cmpuint(text_whole_end(word, 3), ==, 1);
    g_assert_cmpuint(text_whole_end(word, 4), ==, 4);
    g_assert_cmpuint(text_whole_end(word, 5), ==, 5);
    g_assert_cmpuint(text_whole_end("", 0), ==, 0);
    g_assert_cmpuint(text_whole_end("a\0", 2), ==, 2);
    g_assert_cmpuint(text_whole_end("a\xff", 2), ==,
                     2); /* no character that a cut could have broken */
    g_assert_cmpuint(text_whole_end("\x80\x80\x80\x80", 4), ==, 4);
    g_assert_cmpuint(text_whole_start("\xad\x97y", 3), ==, 2);
    g_assert_cmpuint(text_whole_start("y\x97", 2), ==, 0);
    g_assert_cmpuint(text_whole_start("\x97", 1), ==, 1);
    g_assert_cmpuint(text_whole_start("\x80\x80\x80\x80", 4), ==, 0);
}

static void test_escape(void)
{
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"plain name.txt", "plain name.txt"},
        {"\xc3\xbc", "\xc3\xbc"},
        {"a\x1b[2J", "a\\x1b[2J"},
        {"a\nhutch: b\t", "a\\nhutch: b\\t"},
        {"\x7f\xc2\x9b", "\\x7f\\x9b"},
        {"a\xff", "a\\xff"},
        {"\xe2\x80\xaegpj", "\\u{202e}gpj"},
        {"\xe5\xad", "\\xe5\\xad"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *escaped = text_escape(rows[i].text);
        g_assert_cmpstr(escaped, ==, rows[i].wanted);
    }
}

static void put(KeptStreams *kept, const char *text)
{
    int wait_fd;
    g_assert_cmpint(kept_sink.output(kept, AGENT_STDOUT, text, strlen(text), &wait_fd), ==,
                    strlen(text));
}

/* Head and tail, each cut inside of a character: the pieces count as dropped. */
static void test_gap(void)
{
    KeptStreams kept;
    kept_streams_init(&kept);
    put(&kept, "\xe5\xad\x97\xe5");
    kept_sink.gap(&kept, (guint64[]){100, 0});
    put(&kept, "\x97\xe5\xad\x97");
    g_autoptr(GString) text = kept_streams_text(&kept, AGENT_STDOUT);
    g_assert_cmpstr(text->str, ==, "\xe5\xad\x97\n… 102 bytes dropped …\n\xe5\xad\x97");
    g_autoptr(GString) other = kept_streams_text(&kept, AGENT_STDERR);
    g_assert_cmpstr(other->str, ==, "");
    kept_streams_clear(&kept);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/text/utf8", test_utf8);
    g_test_add_func("/text/whole", test_whole);
    g_test_add_func("/text/escape", test_escape);
    g_test_add_func("/text/gap", test_gap);
    return g_test_run();
}
