#include "backend/agent_connection.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "wire/field.h"

enum { IN_CAPACITY = FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX };

void agent_connection_init(AgentConnection *connection, int fd)
{
    *connection =
        (AgentConnection){.fd = fd, .out = g_byte_array_new(), .in = g_malloc(IN_CAPACITY)};
}

void agent_connection_clear(AgentConnection *connection)
{
    g_clear_pointer(&connection->out, g_byte_array_unref);
    g_clear_pointer(&connection->in, g_free);
}

gboolean agent_error(GError **error, const char *sentence)
{
    g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_AGENT, "the sandbox's agent %s", sentence);
    return FALSE;
}

gboolean agent_broke_rule(GError **error)
{
    return agent_error(error,
                       "sent something that is against the protocol; the sandbox was given up");
}

/* ---- sending */

void agent_put_frame(AgentConnection *connection, enum frame_type type, const void *payload,
                     gsize size)
{
    guint8 header[FRAME_HEADER_BYTES];
    frame_encode_header(header, type, size);
    g_byte_array_append(connection->out, header, sizeof header);
    if (size > 0)
        g_byte_array_append(connection->out, payload, (guint)size);
}

gboolean agent_wants_to_send(const AgentConnection *connection)
{
    return connection->out_sent < connection->out->len;
}

/* Sends what the socket takes now. A broken connection is no error here: the agent may have said
 * why before. */
void agent_send_some(AgentConnection *connection)
{
    while (agent_wants_to_send(connection)) {
        ssize_t n = send(connection->fd, connection->out->data + connection->out_sent,
                         connection->out->len - connection->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < 0) {
            connection->out_broken = TRUE;
            break;
        }
        connection->out_sent += (gsize)n;
    }
    g_byte_array_set_size(connection->out, 0);
    connection->out_sent = 0;
}

/* ---- receiving */

static gboolean has_room(const AgentConnection *connection)
{
    return !connection->in_ended && connection->in_end - connection->in_start < IN_CAPACITY;
}

static gboolean receive_some(AgentConnection *connection, GError **error)
{
    if (connection->in_start > 0) {
        memmove(connection->in, connection->in + connection->in_start,
                connection->in_end - connection->in_start);
        connection->in_end -= connection->in_start;
        connection->in_start = 0;
    }
    ssize_t n = recv(connection->fd, connection->in + connection->in_end,
                     IN_CAPACITY - connection->in_end, MSG_DONTWAIT);
    if (n > 0) {
        connection->in_end += (gsize)n;
        connection->heard_ms = clock_monotonic_ms();
    } else if (n == 0 || errno == ECONNRESET) {
        connection->in_ended = TRUE;
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_AGENT,
                    "cannot read from the sandbox's agent: %s", g_strerror(errno));
        return FALSE;
    }
    return TRUE;
}

static gboolean check_hello(const struct frame *frame, GError **error)
{
    struct field_reader reader;
    struct field field;
    guint64 version = 0;
    int result;
    field_reader_init(&reader, frame->payload, frame->size);
    while ((result = field_next(&reader, &field)) > 0) {
        if (field_is(&field, "version") && field_u64(&field, &version) < 0)
            return agent_broke_rule(error);
    }
    if (frame->type != FRAME_HELLO || result < 0)
        return agent_broke_rule(error);
    if (version < WIRE_VERSION)
        return agent_error(error, "is older than this hutch; install all programs of one version");
    return TRUE;
}

/* The next whole frame behind HELLO. FALSE without an error: more has to come first. */
gboolean agent_next_frame(AgentConnection *connection, struct frame *frame, GError **error)
{
    for (;;) {
        ssize_t n = frame_decode(connection->in + connection->in_start,
                                 connection->in_end - connection->in_start, frame);
        if (n < 0)
            return agent_broke_rule(error);
        if (n == 0) {
            if (connection->in_ended)
                agent_error(
                    error,
                    "ended without an answer; it may have been killed from outside, or the host is out of memory");
            return FALSE;
        }
        connection->in_start += (gsize)n;
        if (connection->greeted)
            return TRUE;
        if (!check_hello(frame, error))
            return FALSE;
        connection->greeted = TRUE;
    }
}

struct pollfd agent_socket_pollfd(const AgentConnection *connection, gboolean receive)
{
    short events = (short)((receive && has_room(connection) ? POLLIN : 0) |
                           (agent_wants_to_send(connection) ? POLLOUT : 0));
    return (struct pollfd){.fd = events ? connection->fd : -1, .events = events};
}

gboolean agent_socket_ready(AgentConnection *connection, const struct pollfd *polled,
                            GError **error)
{
    if (polled->revents & ~POLLIN)
        agent_send_some(connection);
    if ((polled->events & POLLIN) && (polled->revents & ~POLLOUT))
        return receive_some(connection, error);
    return TRUE;
}
