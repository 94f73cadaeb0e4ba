#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What an execution printed, bounded: the first half of its cap from the beginning (head), the last
 * half from the end (tail), and how much fell out between. Kept in a file (a memfd, or an unlinked
 * one), not in memory.
 *
 * A half is a ring of bytes and a ring of record lengths. A record is a run of one stream; its
 * length is a varint, whose lowest bit names the stream. A varint is never longer than its run, so
 * a ring of lengths as large as the ring of bytes cannot overflow before that one does, and the
 * file stays below twice the cap whatever the program does; also when it changes the stream with
 * every byte. The run that is being appended to has its length in memory (`open`) until another
 * begins; the run that is being taken from has what is left of it in memory (`front`). */

enum spool_stream { SPOOL_STDOUT, SPOOL_STDERR, SPOOL_STREAMS };

struct spool_record {
    enum spool_stream stream;
    uint64_t size;
};

struct spool_half {
    off_t bytes_at; /* where the rings are in the file; both are `capacity` long */
    off_t lengths_at;
    uint64_t capacity;
    uint64_t begin,
        end; /* of the bytes held: counts since the start, modulo capacity their place */
    uint64_t lengths_begin, lengths_end;
    struct spool_record front, open;
};

struct spool {
    int fd; /* borrowed */
    struct spool_half head, tail;
    uint64_t head_left; /* bytes the head still accepts: never grows */
    uint64_t
        number; /* of the next byte taken: all bytes of output before it, dropped ones included */
    uint64_t written[SPOOL_STREAMS]; /* by the program */
    uint64_t dropped[SPOOL_STREAMS];
};

/* Begins anew with a cap of `output_bytes` (at least 1; the head gets the odd byte). */
void spool_init(struct spool *spool, int fd, uint64_t output_bytes);

/* Appends what the program wrote. 0 or -errno of the file (-ENOSPC, -ENOMEM ...), after which the
 * spool is of no use. */
int spool_append(struct spool *spool, enum spool_stream stream, const void *data, size_t size);

/* Takes up to `size` bytes of one stream, in order: from the head at any time, from the tail only
 * when no more will be appended and the head is empty. Returns their count, 0 when there are none,
 * -errno. */
ssize_t spool_take_head(struct spool *spool, enum spool_stream *stream, void *data, size_t size);
ssize_t spool_take_tail(struct spool *spool, enum spool_stream *stream, void *data, size_t size);

/* Moves `number` over the bytes that were dropped; true when there are any. Once, between head and
 * tail. */
bool spool_pass_gap(struct spool *spool);

bool spool_head_is_empty(const struct spool *spool);
uint64_t spool_total(const struct spool *spool);

/* Gives the space of the file back. */
void spool_clear(struct spool *spool);
