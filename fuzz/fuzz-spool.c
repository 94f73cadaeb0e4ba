#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/spool.h"

/* The spool under any sequence of writes and reads, held against a plain model: every byte is
 * either given out once, in its place and stream, or counted as dropped. Input: the cap (two
 * bytes), then operations of two bytes: what (bit 7: take from the head, bit 0: the stream), how
 * much. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOTAL_MAX = 1 << 20, BIG = 37 };

static uint8_t streams[TOTAL_MAX];
static size_t total;

static void check(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static uint8_t byte_at(uint64_t at)
{
    return (uint8_t)(at * 131 + (at >> 8));
}

static void check_taken(uint64_t at, enum spool_stream stream, const uint8_t *bytes, ssize_t n)
{
    check(n >= 0 && at + (uint64_t)n <= total);
    for (ssize_t i = 0; i < n; i++)
        check(bytes[i] == byte_at(at + (uint64_t)i) && streams[at + (uint64_t)i] == stream);
}

static void append(struct spool *spool, enum spool_stream stream, size_t size)
{
    static uint8_t bytes[256 * BIG];
    if (total + size > TOTAL_MAX)
        return;
    for (size_t i = 0; i < size; i++)
        bytes[i] = byte_at(total + i);
    memset(streams + total, (int)stream, size);
    total += size;
    check(spool_append(spool, stream, bytes, size) == 0);
}

static ssize_t take(struct spool *spool, bool tail, size_t size)
{
    uint8_t bytes[256];
    enum spool_stream stream = SPOOL_STDOUT;
    uint64_t at = spool->number;
    ssize_t n = tail ? spool_take_tail(spool, &stream, bytes, size)
                     : spool_take_head(spool, &stream, bytes, size);
    check_taken(at, stream, bytes, n);
    check(spool->number == at + (uint64_t)n);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    uint64_t cap = 1 + (data[0] | (uint64_t)data[1] << 8);
    int fd = memfd_create("spool", MFD_CLOEXEC);
    check(fd >= 0);
    struct spool spool;
    spool_init(&spool, fd, cap);
    total = 0;
    for (size_t i = 2; i + 1 < size; i += 2) {
        if (data[i] & 0x80)
            take(&spool, false, data[i + 1]);
        else
            append(&spool, data[i] & 1, (size_t)data[i + 1] * (data[i] & 2 ? BIG : 1));
    }
    while (take(&spool, false, 255) > 0)
        ;
    uint64_t dropped = spool.dropped[0] + spool.dropped[1];
    check(dropped == (total > cap ? total - cap : 0));
    check(spool_pass_gap(&spool) == (dropped > 0));
    while (take(&spool, true, 255) > 0)
        ;
    check(spool.number == total && spool_total(&spool) == total);
    check(lseek(fd, 0, SEEK_END) <= (off_t)(2 * cap));
    close(fd);
    return 0;
}
