#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The framed protocol between hutch, hutchd and the agent.
 *
 * A frame is a header of eight bytes (u32 payload length, u8 type, three reserved bytes that must be zero; integers are
 * little-endian) and a payload of at most FRAME_PAYLOAD_MAX bytes. The payload of a control frame is a field list
 * (wire/field.h), that of a data frame raw bytes. Each side treats what the other sends as hostile: a frame that breaks
 * a rule of this page ends the connection.
 *
 * A connection begins with HELLO in both directions. Then, for the one execution that the connection is attached to:
 *
 *   client                                       agent
 *   START (fields), SCRIPT data... ------------> STARTED, or ERROR (nothing runs)
 *   STDIN data, within its credit -------------> STDIN_CREDIT (fields) as the program takes it
 *   STDIN_END ---------------------------------> closes the program's standard input
 *   CANCEL (fields) ---------------------------> TERM, after `grace_ms` KILL
 *                                  <------------ STDOUT, STDERR data, numbered; GAP (fields) where the middle was dropped
 *                                  <------------ ENDED (fields): the outcome; all output went before it
 */

enum {
    FRAME_HEADER_BYTES = 8,
    FRAME_PAYLOAD_MAX = 256 * 1024,
    WIRE_VERSION = 1,
};

enum frame_type {
    FRAME_HELLO = 1,        /* fields: version (u64) */
    FRAME_START = 2,        /* fields: see wire/protocol.h */
    FRAME_SCRIPT = 3,       /* raw bytes of the script, in order, `script_bytes` in all */
    FRAME_STARTED = 4,      /* fields: id */
    FRAME_STDIN = 5,        /* raw */
    FRAME_STDIN_END = 6,    /* empty */
    FRAME_STDIN_CREDIT = 7, /* fields: bytes (u64): how many more the client may send */
    FRAME_STDOUT =
        8, /* u64 number, then raw bytes; the number is the count of bytes of output before these */
    FRAME_STDERR = 9,  /* the same */
    FRAME_GAP = 10,    /* fields: stdout_bytes, stderr_bytes (u64) that were dropped here */
    FRAME_CANCEL = 11, /* fields: id */
    FRAME_ENDED = 12,  /* fields: see wire/protocol.h */
    FRAME_ERROR = 13,  /* fields: code, message; the request before it was refused */
    FRAME_TYPE_MAX = FRAME_ERROR,
};

struct frame {
    enum frame_type type;
    const uint8_t *payload; /* borrowed from the buffer that was decoded */
    size_t size;
};

/* Writes the header of a frame with `size` bytes of payload into `out`. `size` must be within FRAME_PAYLOAD_MAX. */
void frame_encode_header(uint8_t out[FRAME_HEADER_BYTES], enum frame_type type, size_t size);

/* Decodes the first frame in `data`. Returns the bytes it takes, 0 when more are needed, -EPROTO when this is no frame:
 * unknown type, reserved bytes not zero, payload too long. Nothing is copied. */
ssize_t frame_decode(const uint8_t *data, size_t size, struct frame *frame);

void frame_put_u64(uint8_t out[8], uint64_t value);
uint64_t frame_get_u64(const uint8_t in[8]);
