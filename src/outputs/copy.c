#include "outputs/copy.h"

#include <errno.h>
#include <unistd.h>

#include "base/fd.h"

enum { BUFFER_BYTES = 256 * 1024 };

typedef struct {
    int from, to;
    GChecksum *checksum;
    char *buffer;
    gsize buffer_bytes;
    int *error_number;
} Copy;

static CopyOutcome fail(Copy *copy, CopyOutcome outcome, int error_number)
{
    *copy->error_number = error_number;
    return outcome;
}

static int write_at(int fd, const char *bytes, gsize size, uint64_t offset)
{
    while (size > 0) {
        ssize_t wrote = pwrite(fd, bytes, size, (off_t)offset);

        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return wrote < 0 ? errno : EIO;
        }
        bytes += wrote;
        offset += (uint64_t)wrote;
        size -= (gsize)wrote;
    }
    return 0;
}

static CopyOutcome copy_data(Copy *copy, uint64_t offset, uint64_t end)
{
    while (offset < end) {
        ssize_t got = pread(copy->from, copy->buffer, (gsize)MIN(end - offset, copy->buffer_bytes),
                            (off_t)offset);
        int error_number;

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail(copy, COPY_SOURCE_FAILED, errno);
        }
        if (got == 0) {
            return COPY_SOURCE_SHRANK;
        }
        error_number = write_at(copy->to, copy->buffer, (gsize)got, offset);
        if (error_number) {
            return fail(copy, COPY_TARGET_FAILED, error_number);
        }
        if (copy->checksum) {
            g_checksum_update(copy->checksum, (const guchar *)copy->buffer, got);
        }
        offset += (uint64_t)got;
    }
    return COPY_DONE;
}

static void count_hole(const Copy *copy, uint64_t size)
{
    static const guchar zeros[16 * 1024];

    while (copy->checksum && size > 0) {
        gsize part = (gsize)MIN(size, sizeof(zeros));

        g_checksum_update(copy->checksum, zeros, (gssize)part);
        size -= part;
    }
}

/* Where the next data and the hole behind it begin. A file system without SEEK_DATA (EINVAL) has
 * data everywhere. */
static void next_extent(int fd, uint64_t offset, uint64_t size, uint64_t *data, uint64_t *hole)
{
    off_t at = lseek(fd, (off_t)offset, SEEK_DATA);

    if (at < 0) {
        *data = errno == ENXIO ? size : offset;
        *hole = size;
        return;
    }
    *data = MIN((uint64_t)at, size);
    at = lseek(fd, at, SEEK_HOLE);
    *hole = at < 0 ? size : MIN((uint64_t)at, size);
    if (*hole <= *data) {
        *hole = size; /* changed between the two calls: read on, so that every round gets further */
    }
}

CopyOutcome copy_file(int from, int to, uint64_t size, GChecksum *checksum, int *error_number)
{
    gsize buffer_bytes = (gsize)CLAMP(size, 1, BUFFER_BYTES);
    g_autofree char *buffer = g_malloc(buffer_bytes);
    Copy copy = {from, to, checksum, buffer, buffer_bytes, error_number};
    uint64_t offset = 0;
    uint64_t written = 0;

    while (offset < size) {
        uint64_t data;
        uint64_t hole;
        CopyOutcome outcome;

        next_extent(from, offset, size, &data, &hole);
        count_hole(&copy, data - offset);
        outcome = copy_data(&copy, data, hole);
        if (outcome != COPY_DONE) {
            return outcome;
        }
        if (hole > data) {
            written = hole;
        }
        offset = hole;
    }
    if (written < size && ftruncate(to, (off_t)size) < 0) {
        return fail(&copy, COPY_TARGET_FAILED, errno);
    }
    return COPY_DONE;
}

CopyOutcome copy_stream(int from, int to, int *error_number)
{
    g_autofree char *buffer = g_malloc(BUFFER_BYTES);
    Copy copy = {from, to, NULL, buffer, BUFFER_BYTES, error_number};

    for (;;) {
        ssize_t got = read(from, buffer, BUFFER_BYTES);
        int written;

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail(&copy, COPY_SOURCE_FAILED, errno);
        }
        if (got == 0) {
            return COPY_DONE;
        }
        written = fd_write_full(to, buffer, (size_t)got);
        if (written < 0) {
            return fail(&copy, COPY_TARGET_FAILED, -written);
        }
    }
}
