#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"

/* A stream of frames: whatever is decoded stays inside the input, and encodes to the same bytes
 * again. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t at = 0;
    for (;;) {
        struct frame frame;
        ssize_t n = frame_decode(data + at, size - at, &frame);
        if (n <= 0)
            return 0;
        check((size_t)n <= size - at && (size_t)n == FRAME_HEADER_BYTES + frame.size);
        check(frame.payload == data + at + FRAME_HEADER_BYTES && frame.size <= FRAME_PAYLOAD_MAX);
        check(frame.type >= 1 && frame.type <= FRAME_TYPE_MAX);
        uint8_t header[FRAME_HEADER_BYTES];
        frame_encode_header(header, frame.type, frame.size);
        check(memcmp(header, data + at, sizeof(header)) == 0);
        at += (size_t)n;
    }
}
