/* Theory of operation
 *
 * agent_connection.c moves frames, agent_outcome.c reads the two that end an execution, this file
 * does what the protocol is about. Output goes to the sink from the receive buffer itself, and
 * while the sink has not taken all of it (`pending`) nothing is read from the agent, which spools:
 * a slow reader of ours slows nobody.
 *
 * One poll(2) waits for everything. A descriptor is in its set only while something could be done
 * with it: one that has hung up is reported whether it was asked for or not, and would make the
 * loop spin. */
#include "backend/agent_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "backend/agent_connection.h"
#include "backend/agent_outcome.h"
#include "base/clock.h"
#include "wire/field.h"
#include "wire/frame.h"
#include "wire/protocol.h"

enum {
    ANSWER_MS = 30 * 1000, /* how long the agent may be silent when it has something to do */
    STDIN_PIECE = 64 * 1024,
    OUTPUT_NUMBER_BYTES = 8,
    BACKGROUND_PAUSE_MS = 500, /* between looks whether our terminal is ours again */
};

struct AgentClient {
    AgentConnection connection;

    /* The execution */
    char id[PROTOCOL_ID_MAX + 1];
    gboolean has_stdin;
    guint64 stdin_credit;
    guint64 output_left; /* more output than this is against the rules */
    guint64 end_ms;      /* when it must have ended; G_MAXUINT64: never */
    guint64 grace_ms;
};

/* What of a decoded output frame the sink has not taken. */
typedef struct {
    AgentStream stream;
    const char *data;
    gsize size;
    int wait_fd;
} Pending;

typedef struct {
    AgentClient *client;
    const AgentRelay *relay;
    int stdin_fd; /* -1: ended */
    guint64 stdin_pause_end_ms;
    Pending pending;
    gboolean cancelled, discards, passed_gap;
    gboolean hurries; /* our own side wants an end: a reader that takes nothing is waited for no
                         longer than the grace */
    gboolean ended;
    AgentOutcome *outcome;
} Relay;

static int poll_timeout_ms(guint64 until_ms)
{
    guint64 now_ms = clock_monotonic_ms();
    if (until_ms == G_MAXUINT64)
        return -1;
    return until_ms <= now_ms ? 0 : (int)MIN(until_ms - now_ms + 1, G_MAXINT32);
}

static gboolean poll_failed(GError **error)
{
    g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_AGENT,
                "cannot wait for the sandbox's agent: poll: %s", g_strerror(errno));
    return FALSE;
}

/* ---- start */

static void put_hello(AgentClient *client)
{
    guint8 buffer[64];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof buffer);
    field_put_u64(&writer, "version", WIRE_VERSION);
    agent_put_frame(&client->connection, FRAME_HELLO, buffer, writer.size);
}

AgentClient *agent_client_new(int fd)
{
    AgentClient *client = g_new0(AgentClient, 1);
    agent_connection_init(&client->connection, fd);
    put_hello(
        client); /* goes out with the first START: the agent's own is looked at when it comes */
    return client;
}

void agent_client_free(AgentClient *client)
{
    if (!client)
        return;
    agent_connection_clear(&client->connection);
    g_free(client);
}

static void put_cancel(AgentClient *client)
{
    guint8 buffer[FIELD_KEY_MAX + PROTOCOL_ID_MAX + 16];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof buffer);
    field_put_text(&writer, "id", client->id);
    agent_put_frame(&client->connection, FRAME_CANCEL, buffer, writer.size);
}

static void put_list(struct field_writer *writer, const char *key, const char *const *list)
{
    for (; *list; list++)
        field_put_text(writer, key, *list);
}

static gboolean put_start(AgentClient *client, const AgentRequest *request, GError **error)
{
    g_autofree guint8 *buffer = g_malloc(FRAME_PAYLOAD_MAX);
    struct field_writer writer;
    field_writer_init(&writer, buffer, FRAME_PAYLOAD_MAX);
    field_put_text(&writer, "id", request->id);
    put_list(&writer, "argv", request->argv);
    put_list(&writer, "env", request->env);
    field_put_text(&writer, "cwd", request->cwd);
    field_put_u64(&writer, "timeout_ms", request->timeout_ms);
    field_put_u64(&writer, "grace_ms", request->grace_ms);
    field_put_u64(&writer, "output_bytes", request->output_bytes);
    field_put_u64(&writer, "stdin", request->has_stdin ? 1 : 0);
    field_put_u64(&writer, "sole", request->sole ? 1 : 0);
    if (request->script_name) {
        field_put_text(&writer, "script_name", request->script_name);
        field_put_u64(&writer, "script_bytes", request->script_size);
    }
    gboolean too_many = g_strv_length((char **)request->argv) > PROTOCOL_ARGV_MAX ||
                        g_strv_length((char **)request->env) > PROTOCOL_ARGV_MAX;
    if (writer.failed || too_many) {
        g_set_error(
            error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT,
            "the arguments and the environment do not fit: at most %d of each and %d KiB together; "
            "put large data into a file (--input)",
            PROTOCOL_ARGV_MAX, FRAME_PAYLOAD_MAX / 1024 - 1);
        return FALSE;
    }
    agent_put_frame(&client->connection, FRAME_START, buffer, writer.size);
    for (gsize at = 0; at < request->script_size; at += FRAME_PAYLOAD_MAX)
        agent_put_frame(&client->connection, FRAME_SCRIPT, request->script + at,
                        MIN(request->script_size - at, FRAME_PAYLOAD_MAX));
    return TRUE;
}

static gboolean refused(const struct frame *frame, AgentRefusal *refusal, GError **error)
{
    if (agent_refusal_read(frame, refusal) < 0) {
        memset(refusal, 0, sizeof *refusal);
        return agent_broke_rule(error);
    }
    g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_AGENT,
                "the sandbox's agent could not start the program: %s",
                refusal->message[0] ? refusal->message : g_strerror(refusal->error_number));
    return FALSE;
}

static void begin_execution(AgentClient *client, const AgentRequest *request)
{
    guint64 now_ms = clock_monotonic_ms();
    g_strlcpy(client->id, request->id, sizeof client->id);
    client->has_stdin = request->has_stdin;
    client->stdin_credit = PROTOCOL_STDIN_WINDOW;
    client->output_left = request->output_bytes + FRAME_PAYLOAD_MAX;
    client->grace_ms = request->grace_ms;
    client->end_ms =
        request->timeout_ms ? now_ms + request->timeout_ms + request->grace_ms : G_MAXUINT64;
    client->connection.heard_ms = now_ms;
}

gboolean agent_client_start(AgentClient *client, const AgentRequest *request, AgentRefusal *refusal,
                            GError **error)
{
    memset(refusal, 0, sizeof *refusal);
    if (!put_start(client, request, error))
        return FALSE;
    begin_execution(client, request);
    agent_send_some(&client->connection);
    for (;;) {
        struct frame frame;
        GError *failed = NULL;
        while (agent_next_frame(&client->connection, &frame, &failed)) {
            if (frame.type == FRAME_STARTED)
                return TRUE;
            if (frame.type == FRAME_ERROR)
                return refused(&frame, refusal, error);
            if (frame.type != FRAME_STDIN_CREDIT) /* may be left from the execution before */
                return agent_broke_rule(error);
        }
        if (failed) {
            g_propagate_error(error, failed);
            return FALSE;
        }
        struct pollfd polled = agent_socket_pollfd(&client->connection, TRUE);
        int n = poll(&polled, 1, poll_timeout_ms(client->connection.heard_ms + ANSWER_MS));
        if (n < 0 && errno != EINTR)
            return poll_failed(error);
        if (n == 0)
            return agent_error(error, "did not start the program within 30 s");
        if (n > 0 && !agent_socket_ready(&client->connection, &polled, error))
            return FALSE;
    }
}

/* ---- relay */

static void cancel(Relay *relay)
{
    if (!relay->cancelled) {
        relay->cancelled = TRUE;
        put_cancel(relay->client);
        relay->client->end_ms =
            MIN(relay->client->end_ms, clock_monotonic_ms() + relay->client->grace_ms);
    }
}

/* Offers pending output to the sink once. */
static void hand_over(Relay *relay)
{
    Pending *pending = &relay->pending;
    while (pending->size > 0) {
        pending->wait_fd = -1;
        gssize taken = relay->relay->sink->output(relay->relay->user, pending->stream,
                                                  pending->data, pending->size, &pending->wait_fd);
        if (taken < 0) {
            cancel(relay);
            relay->discards = TRUE;
            relay->stdin_fd = -1;
            pending->size = 0;
            return;
        }
        if (taken > 0)
            relay->client->connection.heard_ms = clock_monotonic_ms();
        pending->data += taken;
        pending->size -= (gsize)taken;
        if (pending->wait_fd >= 0)
            return;
    }
}

static gboolean take_output(Relay *relay, AgentStream stream, const struct frame *frame,
                            GError **error)
{
    if (frame->size <= OUTPUT_NUMBER_BYTES ||
        frame->size - OUTPUT_NUMBER_BYTES > relay->client->output_left)
        return agent_broke_rule(error);
    gsize size = frame->size - OUTPUT_NUMBER_BYTES;
    relay->client->output_left -= size;
    if (!relay->discards) {
        relay->pending =
            (Pending){stream, (const char *)frame->payload + OUTPUT_NUMBER_BYTES, size, -1};
        hand_over(relay);
    }
    return TRUE;
}

static gboolean take_stdout(Relay *relay, const struct frame *frame, GError **error)
{
    return take_output(relay, AGENT_STDOUT, frame, error);
}

static gboolean take_stderr(Relay *relay, const struct frame *frame, GError **error)
{
    return take_output(relay, AGENT_STDERR, frame, error);
}

static gboolean take_gap(Relay *relay, const struct frame *frame, GError **error)
{
    struct field_reader reader;
    struct field field;
    guint64 dropped[N_AGENT_STREAMS] = {0};
    int result, bad = 0;
    field_reader_init(&reader, frame->payload, frame->size);
    while ((result = field_next(&reader, &field)) > 0) {
        if (field_is(&field, "stdout_bytes"))
            bad |= field_u64(&field, &dropped[AGENT_STDOUT]);
        else if (field_is(&field, "stderr_bytes"))
            bad |= field_u64(&field, &dropped[AGENT_STDERR]);
    }
    if (result < 0 || bad < 0 || relay->passed_gap)
        return agent_broke_rule(error);
    relay->passed_gap = TRUE;
    if (!relay->discards)
        relay->relay->sink->gap(relay->relay->user, dropped);
    return TRUE;
}

static gboolean take_credit(Relay *relay, const struct frame *frame, GError **error)
{
    struct field_reader reader;
    struct field field;
    guint64 bytes = 0;
    int result, bad = 0;
    field_reader_init(&reader, frame->payload, frame->size);
    while ((result = field_next(&reader, &field)) > 0) {
        if (field_is(&field, "bytes"))
            bad |= field_u64(&field, &bytes);
    }
    /* It can only give back what was sent, so this cannot go on for ever either. */
    if (result < 0 || bad < 0 || bytes == 0 ||
        bytes > PROTOCOL_STDIN_WINDOW - relay->client->stdin_credit)
        return agent_broke_rule(error);
    relay->client->stdin_credit += bytes;
    return TRUE;
}

static gboolean take_error(G_GNUC_UNUSED Relay *relay, const struct frame *frame, GError **error)
{
    AgentRefusal refusal = {0};
    if (agent_refusal_read(frame, &refusal) < 0)
        return agent_broke_rule(error);
    g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_AGENT,
                "the sandbox's agent gave the program up: %s: %s", refusal.step, refusal.message);
    return FALSE;
}

static gboolean take_ended(Relay *relay, const struct frame *frame, GError **error)
{
    if (agent_outcome_read(frame, relay->outcome) < 0)
        return agent_broke_rule(error);
    relay->ended = TRUE;
    return TRUE;
}

/* What may come while an execution runs; everything else is against the rules. */
static const struct {
    enum frame_type type;
    gboolean (*take)(Relay *relay, const struct frame *frame, GError **error);
} takers[] = {
    {FRAME_STDOUT, take_stdout}, {FRAME_STDERR, take_stderr},       {FRAME_GAP, take_gap},
    {FRAME_ENDED, take_ended},   {FRAME_STDIN_CREDIT, take_credit}, {FRAME_ERROR, take_error},
};

static gboolean take_frame(Relay *relay, const struct frame *frame, GError **error)
{
    for (gsize i = 0; i < G_N_ELEMENTS(takers); i++) {
        if (takers[i].type == frame->type)
            return takers[i].take(relay, frame, error);
    }
    return agent_broke_rule(error);
}

/* Takes frames until the execution ended, the sink wants to wait, or more has to come. */
static gboolean take_frames(Relay *relay, GError **error)
{
    struct frame frame;
    GError *failed = NULL;
    while (!relay->ended && relay->pending.size == 0 &&
           agent_next_frame(&relay->client->connection, &frame, &failed)) {
        if (!take_frame(relay, &frame, error))
            return FALSE;
    }
    if (failed)
        g_propagate_error(error, failed);
    return failed == NULL;
}

/* Reading a terminal that is another job's would stop us (SIGTTIN): such input waits. */
static gboolean terminal_is_foreign(int fd)
{
    pid_t foreground = tcgetpgrp(fd);
    return foreground >= 0 && foreground != getpgrp();
}

static void read_stdin(Relay *relay)
{
    AgentClient *client = relay->client;
    if (terminal_is_foreign(relay->stdin_fd)) {
        relay->stdin_pause_end_ms = clock_monotonic_ms() + BACKGROUND_PAUSE_MS;
        return;
    }
    gsize room = MIN(client->stdin_credit, STDIN_PIECE);
    g_byte_array_set_size(client->connection.out, (guint)(FRAME_HEADER_BYTES + room));
    ssize_t n = read(relay->stdin_fd, client->connection.out->data + FRAME_HEADER_BYTES, room);
    int failed = n < 0 ? errno : 0;
    g_byte_array_set_size(client->connection.out, 0);
    if (failed == EINTR || failed == EAGAIN || failed == EWOULDBLOCK)
        return;
    if (n > 0) {
        frame_encode_header(client->connection.out->data, FRAME_STDIN, (gsize)n);
        g_byte_array_set_size(client->connection.out, (guint)(FRAME_HEADER_BYTES + n));
        client->stdin_credit -= (guint64)n;
    } else { /* its end; input that cannot be read (a directory, a vanished terminal) has none
                either */
        agent_put_frame(&client->connection, FRAME_STDIN_END, NULL, 0);
        relay->stdin_fd = -1;
    }
}

static gboolean wants_stdin(const Relay *relay)
{
    return relay->stdin_fd >= 0 && relay->client->stdin_credit > 0 &&
           !agent_wants_to_send(&relay->client->connection) &&
           !relay->client->connection.out_broken &&
           clock_monotonic_ms() >= relay->stdin_pause_end_ms;
}

/* Output that nobody takes must not keep a program that was told to end. */
static void drop_when_late(Relay *relay)
{
    if (relay->hurries && relay->pending.size > 0 &&
        clock_monotonic_ms() >= relay->client->end_ms) {
        relay->discards = TRUE;
        relay->pending.size = 0;
    }
}

/* When poll(2) must return although nothing happened. */
static guint64 next_look_ms(const Relay *relay)
{
    guint64 until = G_MAXUINT64;
    if (relay->hurries && relay->pending.size > 0)
        until = relay->client->end_ms;
    if (relay->stdin_fd >= 0 && relay->stdin_pause_end_ms > clock_monotonic_ms())
        until = MIN(until, relay->stdin_pause_end_ms);
    if (relay->pending.size == 0 && relay->client->end_ms != G_MAXUINT64) {
        guint64 silent = MAX(relay->client->end_ms, relay->client->connection.heard_ms) + ANSWER_MS;
        until = MIN(until, silent);
    }
    return until;
}

static gboolean is_overdue(const Relay *relay)
{
    const AgentClient *client = relay->client;
    return relay->pending.size == 0 && client->end_ms != G_MAXUINT64 &&
           clock_monotonic_ms() > MAX(client->end_ms, client->connection.heard_ms) + ANSWER_MS;
}

static gboolean obey_wish(Relay *relay, GError **error)
{
    switch (relay->relay->wish(relay->relay->user)) {
    case AGENT_CANCEL:
        relay->hurries = TRUE;
        cancel(relay);
        return TRUE;
    case AGENT_GIVE_UP:
        g_set_error_literal(error, HUTCH_ERROR, HUTCH_ERROR_AGENT,
                            "given up before the program had ended");
        return FALSE;
    case AGENT_GO_ON: break;
    }
    return TRUE;
}

static gboolean wait_and_move(Relay *relay, GError **error)
{
    enum { SOCKET, STDIN, WISH, SINK, N_FDS };
    AgentClient *client = relay->client;
    struct pollfd polled[N_FDS] = {
        [SOCKET] = agent_socket_pollfd(&client->connection, relay->pending.size == 0),
        [STDIN] = {.fd = wants_stdin(relay) ? relay->stdin_fd : -1, .events = POLLIN},
        [WISH] = {.fd = relay->relay->wish_fd, .events = POLLIN},
        [SINK] = {.fd = relay->pending.size > 0 ? relay->pending.wait_fd : -1, .events = POLLOUT},
    };
    int n = poll(polled, N_FDS, poll_timeout_ms(next_look_ms(relay)));
    if (n < 0 && errno != EINTR)
        return poll_failed(error);
    drop_when_late(relay);
    if (n <= 0)
        return is_overdue(relay)
                   ? agent_error(error, "has been silent for 30 s after the program had to end")
                   : TRUE;
    if (polled[WISH].revents && !obey_wish(relay, error))
        return FALSE;
    if (polled[SINK].revents)
        hand_over(relay);
    if (polled[STDIN].revents && relay->stdin_fd >= 0 && !agent_wants_to_send(&client->connection))
        read_stdin(relay);
    if (polled[SOCKET].revents && !agent_socket_ready(&client->connection, &polled[SOCKET], error))
        return FALSE;
    if (agent_wants_to_send(&client->connection)) /* what was just put there */
        agent_send_some(&client->connection);
    return TRUE;
}

gboolean agent_client_relay(AgentClient *client, const AgentRelay *relay, AgentOutcome *outcome,
                            GError **error)
{
    memset(outcome, 0, sizeof *outcome);
    Relay state = {.client = client, .relay = relay, .stdin_fd = -1, .outcome = outcome};
    if (client->has_stdin)
        state.stdin_fd = relay->stdin_fd;
    if (client->has_stdin && relay->stdin_fd < 0)
        agent_put_frame(&client->connection, FRAME_STDIN_END, NULL, 0);
    agent_send_some(&client->connection);
    for (;;) {
        if (!take_frames(&state, error))
            return FALSE;
        if (state.ended)
            return TRUE;
        if (!wait_and_move(&state, error))
            return FALSE;
    }
}
