#include "agent/spool.h"

#include <errno.h>
#include <unistd.h>

enum { VARINT_MAX = 10 };

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Reads or writes at position `at` of a ring, in two pieces where it wraps. */
static int ring_read(int fd, off_t ring, uint64_t capacity, uint64_t at, void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        uint64_t place = (at + done) % capacity;
        size_t piece = (size_t)min_u64(size - done, capacity - place);
        ssize_t n = pread(fd, (char *)data + done, piece, ring + (off_t)place);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return 0;
}

static int ring_write(int fd, off_t ring, uint64_t capacity, uint64_t at, const void *data,
                      size_t size)
{
    size_t done = 0;
    while (done < size) {
        uint64_t place = (at + done) % capacity;
        size_t piece = (size_t)min_u64(size - done, capacity - place);
        ssize_t n = pwrite(fd, (const char *)data + done, piece, ring + (off_t)place);
        if (n < 0)
            return -errno;
        done += (size_t)n;
    }
    return 0;
}

/* Moves the open record's length into the file. */
static int half_close_record(struct spool_half *half, int fd)
{
    if (half->open.size == 0)
        return 0;
    uint8_t bytes[VARINT_MAX];
    size_t size = 0;
    uint64_t value = half->open.size << 1 | half->open.stream;
    do {
        bytes[size++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
    int result = ring_write(fd, half->lengths_at, half->capacity, half->lengths_end, bytes, size);
    if (result < 0)
        return result;
    half->lengths_end += size;
    half->open.size = 0;
    return 0;
}

/* Fills `front` from the next record. The half is not empty. */
static int half_next_record(struct spool_half *half, int fd)
{
    if (half->front.size > 0)
        return 0;
    if (half->lengths_begin == half->lengths_end) {
        half->front = half->open;
        half->open.size = 0;
        return half->front.size > 0 ? 0 : -EIO;
    }
    uint8_t bytes[VARINT_MAX];
    size_t size = (size_t)min_u64(sizeof(bytes), half->lengths_end - half->lengths_begin);
    int result = ring_read(fd, half->lengths_at, half->capacity, half->lengths_begin, bytes, size);
    if (result < 0)
        return result;
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)(bytes[i] & 0x7f) << (7 * i);
        if (bytes[i] & 0x80)
            continue;
        half->lengths_begin += i + 1;
        half->front = (struct spool_record){.stream = value & 1, .size = value >> 1};
        return half->front.size > 0 ? 0 : -EIO;
    }
    return -EIO;
}

/* `size` fits into what is free. */
static int half_append(struct spool_half *half, int fd, enum spool_stream stream, const void *data,
                       size_t size)
{
    if (size == 0)
        return 0;
    if (half->open.size > 0 && half->open.stream != stream) {
        int closed = half_close_record(half, fd);
        if (closed < 0)
            return closed;
    }
    int result = ring_write(fd, half->bytes_at, half->capacity, half->end, data, size);
    if (result < 0)
        return result;
    half->end += size;
    half->open.stream = stream;
    half->open.size += size;
    return 0;
}

static ssize_t half_take(struct spool_half *half, int fd, enum spool_stream *stream, void *data,
                         size_t size)
{
    if (half->begin == half->end || size == 0)
        return 0;
    int result = half_next_record(half, fd);
    if (result < 0)
        return result;
    size = (size_t)min_u64(size, half->front.size);
    result = ring_read(fd, half->bytes_at, half->capacity, half->begin, data, size);
    if (result < 0)
        return result;
    half->begin += size;
    half->front.size -= size;
    *stream = half->front.stream;
    return (ssize_t)size;
}

/* Drops `size` bytes from the front, fewer when there are not so many. */
static int half_drop(struct spool_half *half, int fd, uint64_t size,
                     uint64_t dropped[SPOOL_STREAMS])
{
    size = min_u64(size, half->end - half->begin);
    while (size > 0) {
        int result = half_next_record(half, fd);
        if (result < 0)
            return result;
        uint64_t piece = min_u64(size, half->front.size);
        half->begin += piece;
        half->front.size -= piece;
        dropped[half->front.stream] += piece;
        size -= piece;
    }
    return 0;
}

void spool_init(struct spool *spool, int fd, uint64_t output_bytes)
{
    uint64_t tail = output_bytes / 2;
    uint64_t head = output_bytes - tail;
    *spool = (struct spool){
        .fd = fd,
        .head = {.bytes_at = 0, .lengths_at = (off_t)head, .capacity = head},
        .tail = {.bytes_at = (off_t)(2 * head),
                 .lengths_at = (off_t)(2 * head + tail),
                 .capacity = tail},
        .head_left = head,
    };
}

int spool_append(struct spool *spool, enum spool_stream stream, const void *data, size_t size)
{
    const char *at = data;
    spool->written[stream] += size;

    size_t to_head = (size_t)min_u64(size, spool->head_left);
    int result = half_append(&spool->head, spool->fd, stream, at, to_head);
    if (result < 0)
        return result;
    spool->head_left -= to_head;
    at += to_head;
    size -= to_head;
    if (size == 0)
        return 0;

    struct spool_half *tail = &spool->tail;
    uint64_t needed = tail->end - tail->begin + size;
    if (needed > tail->capacity) {
        result = half_drop(tail, spool->fd, needed - tail->capacity, spool->dropped);
        if (result < 0)
            return result;
    }
    if (size > tail->capacity) {
        size_t lost = size - (size_t)tail->capacity;
        spool->dropped[stream] += lost;
        at += lost;
        size -= lost;
    }
    return half_append(tail, spool->fd, stream, at, size);
}

ssize_t spool_take_head(struct spool *spool, enum spool_stream *stream, void *data, size_t size)
{
    ssize_t n = half_take(&spool->head, spool->fd, stream, data, size);
    if (n > 0)
        spool->number += (uint64_t)n;
    return n;
}

ssize_t spool_take_tail(struct spool *spool, enum spool_stream *stream, void *data, size_t size)
{
    ssize_t n = half_take(&spool->tail, spool->fd, stream, data, size);
    if (n > 0)
        spool->number += (uint64_t)n;
    return n;
}

bool spool_pass_gap(struct spool *spool)
{
    uint64_t dropped = spool->dropped[SPOOL_STDOUT] + spool->dropped[SPOOL_STDERR];
    spool->number += dropped;
    return dropped > 0;
}

bool spool_head_is_empty(const struct spool *spool)
{
    return spool->head.begin == spool->head.end;
}

uint64_t spool_total(const struct spool *spool)
{
    return spool->written[SPOOL_STDOUT] + spool->written[SPOOL_STDERR];
}

void spool_clear(struct spool *spool)
{
    /* An error leaves the file longer than it need be, no more. */
    if (spool_total(spool) > 0 && ftruncate(spool->fd, 0) < 0)
        return;
}
