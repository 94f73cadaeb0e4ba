#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/spool.h"

/* A spool beside a plain model of it: all bytes ever written, each with its stream. */
struct world {
    struct spool spool;
    int fd;
    uint64_t cap;
    GByteArray *bytes;
    GByteArray *streams;
    uint64_t taken; /* from the head so far */
};

static void world_init(struct world *world, uint64_t cap)
{
    *world = (struct world){.fd = memfd_create("spool", MFD_CLOEXEC), .cap = cap};
    g_assert_cmpint(world->fd, >=, 0);
    world->bytes = g_byte_array_new();
    world->streams = g_byte_array_new();
    spool_init(&world->spool, world->fd, cap);
}

static void world_clear(struct world *world)
{
    struct stat file;
    g_assert_cmpint(fstat(world->fd, &file), ==, 0);
    g_assert_cmpuint((uint64_t)file.st_size, <=, 2 * world->cap); /* whatever was written */
    close(world->fd);
    g_byte_array_unref(world->bytes);
    g_byte_array_unref(world->streams);
}

static void write_bytes(struct world *world, enum spool_stream stream, size_t size)
{
    g_autofree uint8_t *data = g_malloc(size + 1);
    g_autofree uint8_t *marks = g_malloc(size + 1);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)g_random_int();
    memset(marks, (int)stream, size);
    g_byte_array_append(world->bytes, data, (guint)size);
    g_byte_array_append(world->streams, marks, (guint)size);
    g_assert_cmpint(spool_append(&world->spool, stream, data, size), ==, 0);
}

/* What came is the model's bytes at `at`, all of one stream. */
static void check_piece(const struct world *world, uint64_t at, enum spool_stream stream,
                        const uint8_t *data, size_t size)
{
    g_assert_cmpuint(at + size, <=, world->bytes->len);
    g_assert_cmpmem(data, size, world->bytes->data + at, size);
    for (size_t i = 0; i < size; i++)
        g_assert_cmpuint(world->streams->data[at + i], ==, stream);
}

static bool take_head(struct world *world, size_t most)
{
    uint8_t data[4096];
    enum spool_stream stream;
    ssize_t n = spool_take_head(&world->spool, &stream, data, MIN(most, sizeof(data)));
    g_assert_cmpint(n, >=, 0);
    if (n == 0)
        return false;
    check_piece(world, world->taken, stream, data, (size_t)n);
    world->taken += (uint64_t)n;
    g_assert_cmpuint(world->spool.number, ==, world->taken);
    return true;
}

/* Takes all the rest and holds it against what must be kept: the first half of the cap and the last
 * one. */
static void check_end(struct world *world)
{
    uint64_t total = world->bytes->len;
    uint64_t tail = MIN(world->cap / 2, total - MIN(total, world->cap - world->cap / 2));
    uint64_t head = MIN(total, world->cap - world->cap / 2);
    while (take_head(world, 4096))
        ;
    g_assert_cmpuint(world->taken, ==, head);
    g_assert_true(spool_head_is_empty(&world->spool));

    uint64_t dropped[SPOOL_STREAMS] = {0};
    for (uint64_t i = head; i < total - tail; i++)
        dropped[world->streams->data[i]]++;
    g_assert_cmpuint(world->spool.dropped[SPOOL_STDOUT], ==, dropped[SPOOL_STDOUT]);
    g_assert_cmpuint(world->spool.dropped[SPOOL_STDERR], ==, dropped[SPOOL_STDERR]);
    g_assert_cmpint(spool_pass_gap(&world->spool), ==, total > world->cap);

    uint64_t at = total - tail;
    for (;;) {
        uint8_t data[1000];
        enum spool_stream stream;
        g_assert_cmpuint(world->spool.number, ==, at);
        ssize_t n = spool_take_tail(&world->spool, &stream, data, sizeof(data));
        g_assert_cmpint(n, >=, 0);
        if (n == 0)
            break;
        check_piece(world, at, stream, data, (size_t)n);
        at += (uint64_t)n;
    }
    g_assert_cmpuint(at, ==, total);
    g_assert_cmpuint(spool_total(&world->spool), ==, total);
}

/* Around the cap nothing is lost a byte too early and nothing kept a byte too long. */
static void test_edges(void)
{
    for (uint64_t cap = 1; cap <= 9; cap++) {
        for (size_t total = 0; total <= 40; total++) {
            for (size_t piece = 1; piece <= 12; piece += 3) {
                struct world world;
                world_init(&world, cap);
                for (size_t done = 0, turn = 0; done < total; done += piece, turn++)
                    write_bytes(&world, turn % 3 == 0 ? SPOOL_STDERR : SPOOL_STDOUT,
                                MIN(piece, total - done));
                check_end(&world);
                world_clear(&world);
            }
        }
    }
}

static void test_random(void)
{
    for (int round = 0; round < 200; round++) {
        struct world world;
        world_init(&world, (uint64_t)g_random_int_range(1, 5000));
        int pieces = g_random_int_range(0, 60);
        for (int i = 0; i < pieces; i++) {
            write_bytes(&world, g_random_boolean(), (size_t)g_random_int_range(0, 700));
            if (g_random_boolean())
                take_head(&world, (size_t)g_random_int_range(1, 900));
        }
        check_end(&world);
        world_clear(&world);
    }
}

/* The stream changes with every byte: the file stays below twice the cap (world_clear), order is
 * kept. */
static void test_alternation(void)
{
    struct world world;
    world_init(&world, 20000);
    for (size_t i = 0; i < 100000; i++)
        write_bytes(&world, i % 2, 1);
    check_end(&world);
    world_clear(&world);
}

/* A reader between the bytes of one run must not make two runs of it that look like a change of
 * order. */
static void test_follow_every_byte(void)
{
    struct world world;
    world_init(&world, 1000);
    for (size_t i = 0; i < 1500; i++) {
        write_bytes(&world, i / 7 % 2, 1);
        take_head(&world, 1);
    }
    check_end(&world);
    world_clear(&world);
}

static void test_clear_gives_space_back(void)
{
    struct world world;
    struct stat file;
    world_init(&world, 1 << 20);
    write_bytes(&world, SPOOL_STDOUT, 1 << 20);
    spool_clear(&world.spool);
    g_assert_cmpint(fstat(world.fd, &file), ==, 0);
    g_assert_cmpint(file.st_size, ==, 0);
    world_clear(&world);
}

static void test_full_file(void)
{
    struct spool spool;
    int fd = memfd_create("spool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    g_assert_cmpint(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), ==, 0);
    spool_init(&spool, fd, 100);
    g_assert_cmpint(spool_append(&spool, SPOOL_STDOUT, "x", 1), <, 0);
    close(fd);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/spool/edges", test_edges);
    g_test_add_func("/spool/random", test_random);
    g_test_add_func("/spool/alternation", test_alternation);
    g_test_add_func("/spool/follow-every-byte", test_follow_every_byte);
    g_test_add_func("/spool/clear", test_clear_gives_space_back);
    g_test_add_func("/spool/full-file", test_full_file);
    return g_test_run();
}
