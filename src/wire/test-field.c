#include <errno.h>
#include <glib.h>
#include <string.h>

#include "wire/field.h"
#include "wire/frame.h"

static void test_round_trip(void)
{
    uint8_t buffer[256];
    struct field_writer writer;
    struct field_reader reader;
    struct field field;
    uint64_t number;
    char text[16];

    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_text(&writer, "argv", "python3");
    field_put_text(&writer, "argv", "");
    field_put_u64(&writer, "timeout_ms", UINT64_MAX);
    field_put(&writer, "raw", "a\0b", 3);
    g_assert_false(writer.failed);

    field_reader_init(&reader, buffer, writer.size);
    g_assert_cmpint(field_next(&reader, &field), ==, 1);
    g_assert_true(field_is(&field, "argv"));
    g_assert_cmpint(field_copy_text(&field, text, sizeof(text)), ==, 0);
    g_assert_cmpstr(text, ==, "python3");
    g_assert_cmpint(field_copy_text(&field, text, 7), ==, -E2BIG);
    g_assert_cmpint(field_u64(&field, &number), ==, -EPROTO);
    g_assert_cmpint(field_next(&reader, &field), ==, 1);
    g_assert_cmpint(field_copy_text(&field, text, sizeof(text)), ==, 0);
    g_assert_cmpstr(text, ==, "");
    g_assert_cmpint(field_next(&reader, &field), ==, 1);
    g_assert_cmpint(field_u64(&field, &number), ==, 0);
    g_assert_cmpuint(number, ==, UINT64_MAX);
    g_assert_cmpint(field_next(&reader, &field), ==, 1);
    g_assert_cmpint(field_copy_text(&field, text, sizeof(text)), ==, -EPROTO);
    g_assert_cmpmem(field.value, field.size, "a\0b", 3);
    g_assert_cmpint(field_next(&reader, &field), ==, 0);
    g_assert_cmpint(field_next(&reader, &field), ==, 0);
}

/* A list that is cut anywhere but between two fields is no list. */
static void test_cut(void)
{
    uint8_t buffer[64];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_text(&writer, "id", "abc");
    for (size_t size = 1; size < writer.size; size++) {
        struct field_reader reader;
        struct field field;
        g_autofree uint8_t *copy =
            g_memdup2(buffer, size); /* so that a sanitizer sees a byte too many */
        field_reader_init(&reader, copy, size);
        g_assert_cmpint(field_next(&reader, &field), ==, -EPROTO);
    }
}

static void test_refused(void)
{
    const struct {
        const char *what;
        const char *bytes;
        size_t size;
    } rows[] = {
        {"a key of no length", "\0\0\0\0\0", 5},
        {"a key of 64",
         "\x40"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "\0\0\0\0",
         69},
        {"a capital in the key", "\1A\0\0\0\0", 6},
        {"a NUL in the key", "\2a\0\0\0\0\0", 7},
        {"a value longer than the list", "\1a\1\0\0\0", 6},
        {"the longest length", "\1a\xff\xff\xff\xff", 6},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        struct field_reader reader;
        struct field field;
        g_test_message("%s", rows[i].what);
        field_reader_init(&reader, rows[i].bytes, rows[i].size);
        g_assert_cmpint(field_next(&reader, &field), ==, -EPROTO);
    }
}

static void test_writer_is_bounded(void)
{
    uint8_t buffer[32];
    struct field_writer writer;
    memset(buffer, 0xaa, sizeof(buffer));
    field_writer_init(&writer, buffer, 16);
    field_put_text(&writer, "key", "12345678"); /* 1 + 3 + 4 + 8: just fits */
    g_assert_false(writer.failed);
    g_assert_cmpuint(writer.size, ==, 16);
    field_put(&writer, "k", NULL, 0);
    g_assert_true(writer.failed);
    field_writer_init(&writer, buffer, 15);
    field_put_text(&writer, "key", "12345678");
    g_assert_true(writer.failed);
    g_assert_cmpuint(writer.size, ==, 0);
    field_put_text(&writer, "k", ""); /* would fit, but the list is no longer whole */
    g_assert_cmpuint(writer.size, ==, 0);
    g_assert_cmpuint(buffer[16], ==, 0xaa);
    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_text(&writer, "Bad", "");
    g_assert_true(writer.failed);
    field_writer_init(&writer, buffer, SIZE_MAX); /* a capacity that is no bound: the frame's is */
    field_put(&writer, "key", buffer, FRAME_PAYLOAD_MAX + 1);
    g_assert_true(writer.failed);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/field/round-trip", test_round_trip);
    g_test_add_func("/field/cut", test_cut);
    g_test_add_func("/field/refused", test_refused);
    g_test_add_func("/field/writer-is-bounded", test_writer_is_bounded);
    return g_test_run();
}
