#include "agent/input.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* Less credit than this waits for more: a frame for every byte would cost more than it is worth,
 * and while so little is outstanding the client can still send. */
enum { CREDIT_STEP = PROTOCOL_STDIN_WINDOW / 4 };

static void close_pipe(struct input *input)
{
    loop_watch(input->loop, &input->source, 0);
    fd_clear(&input->source.fd);
    input->phase = INPUT_CLOSED;
    input->owed += input->size;
    input->size = 0;
}

/* Writes until the pipe is full or the buffer empty. */
static void drain(struct input *input)
{
    while (input->size > 0) {
        size_t piece = sizeof(input->buffer) - input->begin;
        if (piece > input->size)
            piece = input->size;
        ssize_t n = write(input->source.fd, input->buffer + input->begin, piece);
        if (n < 0 && errno == EAGAIN) {
            loop_watch(input->loop, &input->source, POLLOUT);
            return;
        }
        if (n < 0) { /* EPIPE: nobody reads any more */
            close_pipe(input);
            return;
        }
        input->begin = (input->begin + (size_t)n) % sizeof(input->buffer);
        input->size -= (size_t)n;
        input->owed += (size_t)n;
    }
    loop_watch(input->loop, &input->source, 0);
    if (input->ended)
        close_pipe(input);
}

static void on_ready(void *owner, short events)
{
    (void)events;
    drain(owner);
}

void input_init(struct input *input, struct loop *loop)
{
    input->loop = loop;
    input->source = (struct loop_source){.fd = -1, .ready = on_ready, .owner = input};
    input->begin = input->size = input->owed = 0;
    input->phase = INPUT_WAITING;
    input->ended = false;
}

void input_connect(struct input *input, int fd)
{
    input->source.fd = fd;
    input->phase = INPUT_OPEN;
    drain(input);
}

int input_push(struct input *input, const void *data, size_t size)
{
    if (input->ended || size > sizeof(input->buffer) - input->size - input->owed)
        return -EPROTO;
    if (input->phase == INPUT_CLOSED) {
        input->owed += size;
        return 0;
    }
    size_t end = (input->begin + input->size) % sizeof(input->buffer);
    size_t piece = sizeof(input->buffer) - end;
    if (piece > size)
        piece = size;
    memcpy(input->buffer + end, data, piece);
    memcpy(input->buffer, (const uint8_t *)data + piece, size - piece);
    input->size += size;
    if (input->phase == INPUT_OPEN)
        drain(input);
    return 0;
}

void input_end(struct input *input)
{
    input->ended = true;
    if (input->phase == INPUT_OPEN)
        drain(input);
}

size_t input_take_credit(struct input *input)
{
    if (input->owed < CREDIT_STEP || input->ended)
        return 0;
    size_t owed = input->owed;
    input->owed = 0;
    return owed;
}

void input_clear(struct input *input)
{
    close_pipe(input);
    input->owed = 0;
}
