#pragma once

#include <glib.h>
#include <stdint.h>

typedef enum {
    COPY_DONE,
    COPY_SOURCE_FAILED, /* the error number says how */
    COPY_SOURCE_SHRANK, /* it ended before `size` bytes */
    COPY_TARGET_FAILED, /* the error number says how */
} CopyOutcome;

/* Copies the first `size` bytes of the regular file `from` into the new, empty file `to`. Holes
 * stay holes (lseek(2) SEEK_DATA, where the file system knows them): they cost no disk.
 * `checksum` (may be NULL) gets all bytes, holes as zeros. */
CopyOutcome copy_file(int from, int to, uint64_t size, GChecksum *checksum, int *error_number);

/* The same to the end of a file that does not know its size (those of /proc). */
CopyOutcome copy_stream(int from, int to, int *error_number);
