#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/loop.h"
#include "wire/protocol.h"

/* Standard input of an execution: bytes from the client, in a bounded buffer, to a pipe, with
 * credit back to the client as the program takes them. A program that has closed its input loses
 * nothing but what it did not want: the rest is discarded, and the client gets its credit all the
 * same, so that it never hangs. */

struct input {
    struct loop *loop;
    struct loop_source source; /* the pipe's writing end */
    size_t begin, size;        /* what waits in `buffer` (a ring) */
    size_t owed; /* bytes taken or discarded for which the client has no credit back yet */
    enum input_phase {
        INPUT_WAITING, /* for its pipe */
        INPUT_OPEN,
        INPUT_CLOSED, /* nobody reads: what comes is discarded */
    } phase;
    bool ended; /* the client sends no more */
    uint8_t buffer[PROTOCOL_STDIN_WINDOW];
};

/* Begins an input without its pipe yet: bytes wait in the buffer. */
void input_init(struct input *input, struct loop *loop);

/* Takes `fd` (non-blocking) as the pipe and writes what waits. */
void input_connect(struct input *input, int fd);

/* Bytes of the client. 0, or -EPROTO when they exceed its credit or come after the end. */
int input_push(struct input *input, const void *data, size_t size);

/* The client's end of input: the pipe is closed once the buffer is empty. */
void input_end(struct input *input);

/* Credit that is worth a frame to the client, in bytes; 0 when it is not yet. The caller sends
 * it. */
size_t input_take_credit(struct input *input);

/* Closes the pipe and forgets what waits. */
void input_clear(struct input *input);
