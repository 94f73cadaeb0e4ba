#include "agent/connection.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/execution.h"
#include "base/fd.h"

/* A handler returns 0, or -EPROTO with *rule (a literal): what the client broke. That ends the
 * connection. */
typedef int handler(struct connection *connection, const struct frame *frame, const char **rule);

static size_t out_size(const struct connection *connection)
{
    return connection->out_end - connection->out_begin;
}

static bool has_reserve(const struct connection *connection)
{
    return sizeof(connection->out) - out_size(connection) >= CONNECTION_RESERVE / 2;
}

static void end(struct connection *connection)
{
    loop_watch(connection->loop, &connection->source, 0);
    fd_clear(&connection->source.fd);
    connection->ended = true;
    connection->in_size = 0;
    connection->out_begin = connection->out_end = 0;
}

/* Space at the end of `out`, which is moved to the front when it has to be. NULL: there is none,
 * which only a mistake of ours can bring about. */
static uint8_t *out_space(struct connection *connection, size_t size)
{
    if (sizeof(connection->out) - connection->out_end < size && connection->out_begin > 0) {
        memmove(connection->out, connection->out + connection->out_begin, out_size(connection));
        connection->out_end -= connection->out_begin;
        connection->out_begin = 0;
    }
    return sizeof(connection->out) - connection->out_end < size
               ? NULL
               : connection->out + connection->out_end;
}

void connection_send(struct connection *connection, enum frame_type type,
                     const struct field_writer *writer)
{
    size_t size = FRAME_HEADER_BYTES + writer->size;
    if (connection->ended)
        return;
    uint8_t *out = writer->failed ? NULL : out_space(connection, size);
    if (!out) {
        end(connection);
        return;
    }
    frame_encode_header(out, type, writer->size);
    memcpy(out + FRAME_HEADER_BYTES, writer->buffer, writer->size);
    connection->out_end += size;
}

void connection_send_error(struct connection *connection, const char *code, const char *step,
                           int error, const char *sentence)
{
    uint8_t buffer[CONNECTION_CONTROL_MAX];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_text(&writer, "code", code);
    field_put_text(&writer, "step", step);
    field_put_u64(&writer, "errno", (uint64_t)error);
    field_put_text(&writer, "message", sentence);
    connection_send(connection, FRAME_ERROR, &writer);
}

enum { DATA_HEADER_BYTES = FRAME_HEADER_BYTES + 8 };

size_t connection_room(const struct connection *connection)
{
    size_t used = out_size(connection) + DATA_HEADER_BYTES + CONNECTION_RESERVE;
    if (connection->ended || used + CONNECTION_DATA_MAX > sizeof(connection->out))
        return 0;
    return CONNECTION_DATA_MAX;
}

void *connection_data(struct connection *connection)
{
    return out_space(connection, DATA_HEADER_BYTES + CONNECTION_DATA_MAX) + DATA_HEADER_BYTES;
}

void connection_send_data(struct connection *connection, enum frame_type type, uint64_t number,
                          size_t size)
{
    uint8_t *out = connection->out + connection->out_end;
    frame_encode_header(out, type, 8 + size);
    frame_put_u64(out + FRAME_HEADER_BYTES, number);
    connection->out_end += DATA_HEADER_BYTES + size;
}

bool connection_is_flushed(const struct connection *connection)
{
    return out_size(connection) == 0;
}

static int on_hello(struct connection *connection, const struct frame *frame, const char **rule)
{
    struct field_reader reader;
    struct field field;
    uint64_t version = 0;
    int more;
    if (connection->greeted) {
        *rule = "HELLO came twice";
        return -EPROTO;
    }
    field_reader_init(&reader, frame->payload, frame->size);
    /* Other fields are features of a newer client. */
    while ((more = field_next(&reader, &field)) > 0) {
        if (field_is(&field, "version") && field_u64(&field, &version) < 0)
            more = -EPROTO;
    }
    if (more < 0 || version == 0) {
        *rule = "HELLO has no version";
        return -EPROTO;
    }
    connection->greeted = true;
    uint8_t buffer[64];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_u64(&writer, "version", WIRE_VERSION);
    connection_send(connection, FRAME_HELLO, &writer);
    return 0;
}

static int on_start(struct connection *connection, const struct frame *frame, const char **rule)
{
    (void)rule;
    execution_start(connection->execution, frame->payload, frame->size);
    return 0;
}

static int on_script(struct connection *connection, const struct frame *frame, const char **rule)
{
    *rule = "SCRIPT has more bytes than START said";
    return execution_script(connection->execution, frame->payload, frame->size);
}

static int on_stdin(struct connection *connection, const struct frame *frame, const char **rule)
{
    *rule = "STDIN exceeds its credit, or came after its end, or START asked for none";
    return execution_input(connection->execution, frame->payload, frame->size);
}

static int on_stdin_end(struct connection *connection, const struct frame *frame, const char **rule)
{
    *rule = "STDIN_END carries bytes";
    if (frame->size > 0)
        return -EPROTO;
    execution_input_end(connection->execution);
    return 0;
}

static int on_cancel(struct connection *connection, const struct frame *frame, const char **rule)
{
    char id[PROTOCOL_ID_MAX + 1];
    struct field_reader reader;
    struct field field;
    field_reader_init(&reader, frame->payload, frame->size);
    *rule = "CANCEL needs one field, id";
    if (field_next(&reader, &field) != 1 || !field_is(&field, "id") ||
        field_copy_text(&field, id, sizeof(id)) < 0 || field_next(&reader, &field) != 0)
        return -EPROTO;
    execution_cancel(connection->execution, id);
    return 0;
}

/* What a client may send. */
static handler *const handlers[FRAME_TYPE_MAX + 1] = {
    [FRAME_HELLO] = on_hello, [FRAME_START] = on_start,         [FRAME_SCRIPT] = on_script,
    [FRAME_STDIN] = on_stdin, [FRAME_STDIN_END] = on_stdin_end, [FRAME_CANCEL] = on_cancel,
};

static void refuse(struct connection *connection, const char *rule)
{
    connection_send_error(connection, "bad_request", "frame", 0, rule);
    connection->closing = true;
    connection->in_size = 0;
}

static void dispatch(struct connection *connection, const struct frame *frame)
{
    const char *rule = "this type of frame is not for the agent";
    if (!connection->greeted && frame->type != FRAME_HELLO)
        refuse(connection, "the first frame must be HELLO");
    else if (!handlers[frame->type] || handlers[frame->type](connection, frame, &rule) < 0)
        refuse(connection, rule);
}

/* Looks at whole frames as long as their answers have room. */
static void take_frames(struct connection *connection)
{
    size_t at = 0;
    while (at < connection->in_size && has_reserve(connection)) {
        struct frame frame;
        ssize_t n = frame_decode(connection->in + at, connection->in_size - at, &frame);
        if (n == 0)
            break;
        if (n < 0) {
            refuse(connection, "this is no frame");
            return;
        }
        dispatch(connection, &frame);
        if (connection->closing || connection->ended)
            return;
        at += (size_t)n;
    }
    if (at == 0)
        return;
    connection->in_size -= at;
    memmove(connection->in, connection->in + at, connection->in_size);
}

static void receive(struct connection *connection)
{
    size_t room = sizeof(connection->in) - connection->in_size;
    if (room == 0 || connection->closing)
        return;
    ssize_t n =
        recv(connection->source.fd, connection->in + connection->in_size, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        end(connection);
        return;
    }
    connection->in_size += (size_t)n;
    take_frames(connection);
}

void connection_transmit(struct connection *connection)
{
    if (connection->ended)
        return;
    while (out_size(connection) > 0) {
        ssize_t n = send(connection->source.fd, connection->out + connection->out_begin,
                         out_size(connection), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) {
            end(connection);
            return;
        }
        connection->out_begin += (size_t)n;
    }
    connection->out_begin = connection->out_end = 0;
    if (connection->closing)
        end(connection);
}

static void on_ready(void *owner, short events)
{
    struct connection *connection = owner;
    if (events & POLLIN)
        receive(connection);
    /* The client is gone. What it sent before is read to its end above; what waits for it is sent
     * to learn that in vain. */
    if (events & (POLLHUP | POLLERR) && !connection->ended && out_size(connection) > 0)
        connection_transmit(connection);
}

void connection_flush(struct connection *connection)
{
    if (connection->ended)
        return;
    bool was_held = !has_reserve(connection);
    connection_transmit(connection);
    if (!connection->ended && was_held)
        take_frames(connection);
    if (connection->ended)
        return;
    bool reads = !connection->closing && has_reserve(connection) &&
                 connection->in_size < sizeof(connection->in);
    loop_watch(connection->loop, &connection->source,
               (reads ? POLLIN : 0) | (out_size(connection) > 0 ? POLLOUT : 0));
}

void connection_init(struct connection *connection, struct loop *loop, int fd,
                     struct execution *execution)
{
    connection->loop = loop;
    connection->execution = execution;
    connection->source = (struct loop_source){.fd = fd, .ready = on_ready, .owner = connection};
    loop_watch(loop, &connection->source, POLLIN);
}
