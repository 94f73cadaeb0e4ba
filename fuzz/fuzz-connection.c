#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/connection.h"
#include "agent/execution.h"
#include "base/fd.h"

/* The agent's side of a connection, fed any bytes in any pieces, with an execution that only
 * counts: it never calls it after it has ended, its buffers stay within bounds, and a broken rule
 * is answered by ERROR and the end. Input: the size of the pieces (one byte), then what the client
 * sends. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct connection connection;
static struct execution execution;

static void check(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static void check_asked(void)
{
    check(connection.greeted && !connection.closing && !connection.ended);
}

void execution_start(struct execution *e, const void *payload, size_t size)
{
    (void)e;
    check_asked();
    check(size <= FRAME_PAYLOAD_MAX && (size == 0 || payload));
    connection_send_error(&connection, "bad_request", "id", 0, "no");
}

int execution_script(struct execution *e, const void *data, size_t size)
{
    (void)e;
    check_asked();
    return size > 0 && *(const uint8_t *)data == 0xff ? -EPROTO : 0;
}

int execution_input(struct execution *e, const void *data, size_t size)
{
    check_asked();
    return execution_script(e, data, size);
}

void execution_input_end(struct execution *e)
{
    (void)e;
    check_asked();
}

void execution_cancel(struct execution *e, const char *id)
{
    (void)e;
    check_asked();
    check(strlen(id) <= PROTOCOL_ID_MAX);
}

/* Reads what the agent said: whole frames only. */
static void check_answers(int client)
{
    static uint8_t bytes[1 << 20];
    size_t size = 0;
    ssize_t n;
    while ((n = recv(client, bytes + size, sizeof(bytes) - size, MSG_DONTWAIT)) > 0)
        size += (size_t)n;
    for (size_t at = 0; at < size;) {
        struct frame frame;
        n = frame_decode(bytes + at, size - at, &frame);
        check(n > 0 && (frame.type == FRAME_HELLO || frame.type == FRAME_ERROR));
        at += (size_t)n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct loop loop = {0};
    int sockets[2];
    if (size < 1)
        return 0;
    size_t piece = 1 + (size_t)data[0] * 16;
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    connection.greeted = connection.closing = connection.ended = false;
    connection.in_size = connection.out_begin = connection.out_end = 0;
    connection_init(&connection, &loop, sockets[0], &execution);
    for (size_t at = 1; at < size && !connection.ended; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (send(sockets[1], data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            break;
        loop_run_once(&loop, 0);
        connection_flush(&connection);
        check(connection.in_size <= sizeof(connection.in) &&
              connection.out_end <= sizeof(connection.out));
        check(connection.out_begin <= connection.out_end);
    }
    check_answers(sockets[1]);
    close(sockets[1]);
    for (int i = 0; i < 10 && !connection.ended; i++) {
        loop_run_once(&loop, 0);
        connection_flush(&connection);
    }
    check(connection.ended);
    return 0;
}
