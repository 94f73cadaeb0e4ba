#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/loop.h"
#include "wire/field.h"
#include "wire/frame.h"

struct execution;

/* The client's end of the wire: frames in, frames out, both through bounded buffers, never
 * blocking. What the client asks is handed to the execution (the table of frame types in
 * connection.c).
 *
 * Output stops when the client does not read: data frames are made only as far as connection_room()
 * says; control frames have a reserve of their own, and while that is in use no further frame of
 * the client is looked at. */

enum {
    CONNECTION_DATA_MAX = 64 * 1024, /* bytes of output in one frame */
    CONNECTION_CONTROL_MAX = 1024,   /* payload of a control frame */
    CONNECTION_RESERVE = 8 * 1024,
    CONNECTION_OUT_BYTES = 3 * CONNECTION_DATA_MAX + CONNECTION_RESERVE,
};

struct connection {
    struct loop *loop;
    struct loop_source source;
    struct execution *execution;
    bool greeted;
    bool closing; /* after a broken rule: nothing more is read; ends when `out` is sent */
    bool ended;
    size_t in_size;
    size_t out_begin, out_end;
    uint8_t in[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX];
    uint8_t out[CONNECTION_OUT_BYTES];
};

/* Takes the connected stream socket `fd`. */
void connection_init(struct connection *connection, struct loop *loop, int fd,
                     struct execution *execution);

/* Sends a control frame. Once the connection has ended this does nothing. */
void connection_send(struct connection *connection, enum frame_type type,
                     const struct field_writer *writer);

/* Sends ERROR: `step` and `sentence` as wire/protocol.h says, `error` an errno or 0. */
void connection_send_error(struct connection *connection, const char *code, const char *step,
                           int error, const char *sentence);

/* How many bytes of output a data frame may carry now; 0: none, wait. Where they go; and the frame,
 * once they are there. */
size_t connection_room(const struct connection *connection);
void *connection_data(struct connection *connection);
void connection_send_data(struct connection *connection, enum frame_type type, uint64_t number,
                          size_t size);

/* Sends what the socket takes now. */
void connection_transmit(struct connection *connection);

/* The same, then looks at frames of the client that had to wait. Once in each round of the loop. */
void connection_flush(struct connection *connection);

/* Everything was sent. */
bool connection_is_flushed(const struct connection *connection);
