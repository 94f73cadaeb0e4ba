#include <errno.h>
#include <glib.h>
#include <string.h>

#include "wire/frame.h"

static void test_round_trip(void)
{
    static uint8_t bytes[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX];
    const size_t sizes[] = {0, 1, 255, 65536, FRAME_PAYLOAD_MAX};
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        struct frame frame;
        frame_encode_header(bytes, FRAME_STDERR, sizes[i]);
        g_assert_cmpint(frame_decode(bytes, sizeof(bytes), &frame), ==,
                        (gssize)(FRAME_HEADER_BYTES + sizes[i]));
        g_assert_cmpint(frame.type, ==, FRAME_STDERR);
        g_assert_cmpuint(frame.size, ==, sizes[i]);
        g_assert_true(frame.payload == bytes + FRAME_HEADER_BYTES);
    }
}

/* Every cut of a frame asks for more, none is taken for a whole one. */
static void test_cut(void)
{
    uint8_t bytes[FRAME_HEADER_BYTES + 5] = {0};
    struct frame frame;
    frame_encode_header(bytes, FRAME_STDIN, 5);
    for (size_t size = 0; size < sizeof(bytes); size++)
        g_assert_cmpint(frame_decode(bytes, size, &frame), ==, 0);
    g_assert_cmpint(frame_decode(bytes, sizeof(bytes), &frame), ==, sizeof(bytes));
}

static void test_refused(void)
{
    const struct {
        const char *what;
        uint8_t header[FRAME_HEADER_BYTES];
    } rows[] = {
        {"type 0", {0, 0, 0, 0, 0, 0, 0, 0}},
        {"a type past the last", {0, 0, 0, 0, FRAME_TYPE_MAX + 1, 0, 0, 0}},
        {"type 255", {0, 0, 0, 0, 255, 0, 0, 0}},
        {"one byte too long", {1, 0, 4, 0, FRAME_STDIN, 0, 0, 0}},
        {"the longest length", {255, 255, 255, 255, FRAME_STDIN, 0, 0, 0}},
        {"a reserved byte", {0, 0, 0, 0, FRAME_STDIN, 1, 0, 0}},
        {"the last reserved byte", {0, 0, 0, 0, FRAME_STDIN, 0, 0, 128}},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        struct frame frame;
        g_test_message("%s", rows[i].what);
        g_assert_cmpint(frame_decode(rows[i].header, FRAME_HEADER_BYTES, &frame), ==, -EPROTO);
    }
}

static void test_numbers(void)
{
    const uint64_t numbers[] = {0, 1, 0x0123456789abcdef, UINT64_MAX};
    uint8_t bytes[8];
    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++) {
        frame_put_u64(bytes, numbers[i]);
        g_assert_cmpuint(frame_get_u64(bytes), ==, numbers[i]);
    }
    frame_put_u64(bytes, 0x0102030405060708);
    g_assert_cmpuint(bytes[0], ==, 8);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/frame/round-trip", test_round_trip);
    g_test_add_func("/frame/cut", test_cut);
    g_test_add_func("/frame/refused", test_refused);
    g_test_add_func("/frame/numbers", test_numbers);
    return g_test_run();
}
