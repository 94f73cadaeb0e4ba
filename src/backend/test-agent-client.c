/* The client against an agent that is a thread with a script: what it says, in order, and what it
 * wants to hear. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/agent_client.h"
#include "base/fd.h"
#include "wire/field.h"
#include "wire/frame.h"
#include "wire/protocol.h"

typedef struct {
    int fd;
    GByteArray *heard; /* raw bytes of all frames of the client, when the script is over */
    void (*play)(int fd);
} Agent;

typedef struct {
    AgentClient *client;
    Agent agent;
    GThread *thread;
    int fd;
} Fixture;

static void say_frame(int fd, enum frame_type type, const void *payload, gsize size)
{
    guint8 header[FRAME_HEADER_BYTES];
    frame_encode_header(header, type, size);
    (void)fd_write_full(fd, header, sizeof header);
    (void)fd_write_full(fd, payload, size);
}

static void say_numbers(int fd, enum frame_type type, const char *first_key, guint64 first,
                        const char *key, guint64 value)
{
    guint8 buffer[256];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof buffer);
    field_put_u64(&writer, first_key, first);
    if (key)
        field_put_u64(&writer, key, value);
    say_frame(fd, type, buffer, writer.size);
}

static void say_text(int fd, enum frame_type type, const char *key, const char *text,
                     const char *number_key, guint64 number)
{
    guint8 buffer[1024];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof buffer);
    field_put_text(&writer, key, text);
    field_put_u64(&writer, number_key, number);
    say_frame(fd, type, buffer, writer.size);
}

static void say_output(int fd, enum frame_type type, const char *text)
{
    g_autofree guint8 *payload = g_malloc0(8 + strlen(text));
    memcpy(payload + 8, text, strlen(text));
    say_frame(fd, type, payload, 8 + strlen(text));
}

static void say_hello_and_started(int fd)
{
    say_numbers(fd, FRAME_HELLO, "version", WIRE_VERSION, NULL, 0);
    say_numbers(fd, FRAME_STARTED, "x", 1, NULL, 0);
}

static gpointer agent_main(gpointer data)
{
    Agent *agent = data;
    agent->play(agent->fd);
    shutdown(agent->fd, SHUT_WR);
    guint8 buffer[4096];
    ssize_t n;
    while ((n = read(agent->fd, buffer, sizeof buffer)) > 0)
        g_byte_array_append(agent->heard, buffer, (guint)n);
    return NULL;
}

static void begin(Fixture *fixture, void (*play)(int fd))
{
    int pair[2];
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
    fixture->fd = pair[0];
    fixture->agent = (Agent){pair[1], g_byte_array_new(), play};
    fixture->client = agent_client_new(fixture->fd);
    fixture->thread = g_thread_new("agent", agent_main, &fixture->agent);
}

static void end(Fixture *fixture)
{
    agent_client_free(fixture->client);
    close(fixture->fd);
    g_thread_join(fixture->thread);
    close(fixture->agent.fd);
    g_byte_array_unref(fixture->agent.heard);
}

static gboolean heard(const Fixture *fixture, enum frame_type type)
{
    struct frame frame;
    gsize at = 0;
    ssize_t n;
    while ((n = frame_decode(fixture->agent.heard->data + at, fixture->agent.heard->len - at,
                             &frame)) > 0) {
        if (frame.type == type)
            return TRUE;
        at += (gsize)n;
    }
    return FALSE;
}

static gboolean start(Fixture *fixture, gboolean has_stdin, AgentRefusal *refusal, GError **error)
{
    static const char *const argv[] = {"cat", NULL}, *const env[] = {"A=1", NULL};
    AgentRequest request = {.id = "exe_1",
                            .argv = argv,
                            .env = env,
                            .cwd = "/",
                            .timeout_ms = 1000,
                            .output_bytes = 4096,
                            .has_stdin = has_stdin};
    return agent_client_start(fixture->client, &request, refusal, error);
}

/* A sink that takes three bytes at a time and then wants to wait. */
typedef struct {
    GString *out, *err;
    guint64 dropped;
    int wait_fd;
    gboolean refuses;
    guint calls;
} Sink;

static gssize sink_output(void *user, AgentStream stream, const char *data, gsize size,
                          int *wait_fd)
{
    Sink *sink = user;
    if (sink->refuses)
        return -EPIPE;
    if (sink->calls++ % 2) {
        *wait_fd = sink->wait_fd;
        return 0;
    }
    g_string_append_len(stream == AGENT_STDOUT ? sink->out : sink->err, data, (gssize)MIN(size, 3));
    return (gssize)MIN(size, 3);
}

static void sink_gap(void *user, const guint64 dropped_bytes[N_AGENT_STREAMS])
{
    ((Sink *)user)->dropped = dropped_bytes[AGENT_STDOUT] * 1000 + dropped_bytes[AGENT_STDERR];
}

static const AgentSink sink_calls = {sink_output, sink_gap};

static gboolean relay(Fixture *fixture, Sink *sink, int stdin_fd, AgentOutcome *outcome,
                      GError **error)
{
    AgentRelay relay = {.sink = &sink_calls, .stdin_fd = stdin_fd, .wish_fd = -1, .user = sink};
    return agent_client_relay(fixture->client, &relay, outcome, error);
}

static void play_whole(int fd)
{
    say_hello_and_started(fd);
    say_output(fd, FRAME_STDOUT, "hello ");
    say_output(fd, FRAME_STDERR, "oops");
    say_numbers(fd, FRAME_GAP, "stdout_bytes", 7, "stderr_bytes", 5);
    say_output(fd, FRAME_STDOUT, "world");
    say_numbers(fd, FRAME_ENDED, "exit_code", 3, "wall_ms", 12);
}

static void test_whole(void)
{
    Fixture fixture;
    AgentRefusal refusal;
    AgentOutcome outcome;
    g_autoptr(GError) error = NULL;
    int pair[2];
    begin(&fixture, play_whole);
    g_assert_true(start(&fixture, TRUE, &refusal, &error));
    g_assert_cmpint(pipe(pair), ==, 0);
    g_assert_cmpint(write(pair[1], "input", 5), ==, 5);
    close(pair[1]);
    Sink sink = {.out = g_string_new(NULL), .err = g_string_new(NULL), .wait_fd = fixture.fd};
    g_assert_true(relay(&fixture, &sink, pair[0], &outcome, &error));
    g_assert_no_error(error);
    g_assert_cmpstr(sink.out->str, ==, "hello world");
    g_assert_cmpstr(sink.err->str, ==, "oops");
    g_assert_cmpuint(sink.dropped, ==, 7005);
    g_assert_true(outcome.exited);
    g_assert_cmpint(outcome.exit_code, ==, 3);
    g_assert_cmpuint(outcome.wall_ms, ==, 12);
    g_assert_false(outcome.has_peak_memory);
    g_string_free(sink.out, TRUE);
    g_string_free(sink.err, TRUE);
    close(pair[0]);
    end(&fixture);
}

static void play_refusal(int fd)
{
    say_numbers(fd, FRAME_HELLO, "version", WIRE_VERSION, NULL, 0);
    say_text(fd, FRAME_ERROR, "step", "exec", "errno", ENOENT);
}

static void test_refusal(void)
{
    Fixture fixture;
    AgentRefusal refusal;
    g_autoptr(GError) error = NULL;
    begin(&fixture, play_refusal);
    g_assert_false(start(&fixture, FALSE, &refusal, &error));
    g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_AGENT);
    g_assert_cmpstr(refusal.step, ==, "exec");
    g_assert_cmpint(refusal.error_number, ==, ENOENT);
    end(&fixture);
}

static void play_killed(int fd)
{
    guint8 buffer[256];
    struct field_writer writer;
    say_hello_and_started(fd);
    field_writer_init(&writer, buffer, sizeof buffer);
    field_put_u64(&writer, "signal", 9);
    field_put_text(&writer, "reason", "memory");
    field_put_text(&writer, "limits_hit", "memory");
    field_put_text(&writer, "limits_hit", "pids");
    field_put_text(&writer, "limits_hit", "something of a later version");
    field_put_u64(&writer, "peak_memory_bytes", 4096);
    say_frame(fd, FRAME_ENDED, buffer, writer.size);
}

static void test_killed(void)
{
    Fixture fixture;
    AgentRefusal refusal;
    AgentOutcome outcome;
    g_autoptr(GError) error = NULL;
    begin(&fixture, play_killed);
    g_assert_true(start(&fixture, FALSE, &refusal, &error));
    Sink sink = {0};
    g_assert_true(relay(&fixture, &sink, -1, &outcome, &error));
    g_assert_false(outcome.exited);
    g_assert_cmpint(outcome.signal, ==, 9);
    g_assert_cmpint(outcome.reason, ==, AGENT_REASON_MEMORY);
    g_assert_cmpstr(agent_reason_word(outcome.reason), ==, "memory");
    g_assert_cmpuint(outcome.hits, ==, AGENT_HIT_MEMORY | AGENT_HIT_PIDS);
    g_assert_true(outcome.has_peak_memory);
    end(&fixture);
    g_assert_false(heard(&fixture, FRAME_STDIN_END));
}

static void play_until_cancelled(int fd)
{
    guint8 byte;
    say_hello_and_started(fd);
    say_output(fd, FRAME_STDOUT, "more than is wanted");
    /* Reads up to CANCEL, byte by byte: its type is the fifth byte of its header. */
    GByteArray *bytes = g_byte_array_new();
    gboolean cancelled = FALSE;
    while (!cancelled && read(fd, &byte, 1) == 1) {
        struct frame frame;
        g_byte_array_append(bytes, &byte, 1);
        ssize_t n = frame_decode(bytes->data, bytes->len, &frame);
        cancelled = n > 0 && frame.type == FRAME_CANCEL;
        if (n > 0)
            g_byte_array_set_size(bytes, 0);
    }
    g_byte_array_unref(bytes);
    say_output(fd, FRAME_STDOUT, "to be thrown away");
    say_text(fd, FRAME_ENDED, "reason", "cancelled", "signal", 15);
}

static void test_sink_refuses(void)
{
    Fixture fixture;
    AgentRefusal refusal;
    AgentOutcome outcome;
    g_autoptr(GError) error = NULL;
    begin(&fixture, play_until_cancelled);
    g_assert_true(start(&fixture, FALSE, &refusal, &error));
    Sink sink = {.refuses = TRUE};
    g_assert_true(relay(&fixture, &sink, -1, &outcome, &error));
    g_assert_cmpint(outcome.reason, ==, AGENT_REASON_CANCELLED);
    end(&fixture);
}

static void play_nothing(G_GNUC_UNUSED int fd)
{
}

static void play_old(int fd)
{
    say_numbers(fd, FRAME_HELLO, "version", 0, NULL, 0);
}

static void play_no_hello(int fd)
{
    say_numbers(fd, FRAME_STARTED, "x", 1, NULL, 0);
}

static void play_garbage(int fd)
{
    (void)fd_write_full(fd, "HTTP/1.1 200 OK\r\n\r\n", 19);
}

static void test_bad_starts(void)
{
    static void (*const plays[])(int fd) = {play_nothing, play_old, play_no_hello, play_garbage};
    for (gsize i = 0; i < G_N_ELEMENTS(plays); i++) {
        Fixture fixture;
        AgentRefusal refusal;
        g_autoptr(GError) error = NULL;
        begin(&fixture, plays[i]);
        g_assert_false(start(&fixture, FALSE, &refusal, &error));
        g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_AGENT);
        g_assert_cmpstr(refusal.step, ==, "");
        end(&fixture);
    }
}

static void play_half(int fd)
{
    say_hello_and_started(fd);
    say_output(fd, FRAME_STDOUT, "half");
}

static void play_too_much(int fd)
{
    static char text[200 * 1024];
    memset(text, 'x', sizeof text - 1);
    say_hello_and_started(fd);
    for (int i = 0; i < 3; i++)
        say_output(fd, FRAME_STDERR, text);
}

static void play_short_output(int fd)
{
    say_hello_and_started(fd);
    say_frame(fd, FRAME_STDOUT, "1234567", 7);
}

static void play_two_ends(int fd)
{
    say_hello_and_started(fd);
    say_numbers(fd, FRAME_ENDED, "exit_code", 0, "signal", 9);
}

static void play_no_end(int fd)
{
    say_hello_and_started(fd);
    say_numbers(fd, FRAME_ENDED, "wall_ms", 0, NULL, 0);
}

static void play_large_code(int fd)
{
    say_hello_and_started(fd);
    say_numbers(fd, FRAME_ENDED, "exit_code", 256, NULL, 0);
}

static void play_unknown_reason(int fd)
{
    say_hello_and_started(fd);
    say_text(fd, FRAME_ENDED, "reason", "whim", "signal", 9);
}

static void play_credit_overflow(int fd)
{
    say_hello_and_started(fd);
    say_numbers(fd, FRAME_STDIN_CREDIT, "bytes", G_MAXUINT64, NULL, 0);
}

static void play_credit_for_nothing(int fd)
{
    say_hello_and_started(fd);
    say_numbers(fd, FRAME_STDIN_CREDIT, "bytes", 1, NULL, 0);
}

static void play_two_gaps(int fd)
{
    say_hello_and_started(fd);
    say_numbers(fd, FRAME_GAP, "stdout_bytes", 1, "stderr_bytes", 0);
    say_numbers(fd, FRAME_GAP, "stdout_bytes", 1, "stderr_bytes", 0);
}

static void play_empty_output(int fd)
{
    say_hello_and_started(fd);
    say_output(fd, FRAME_STDOUT, "");
}

static void play_client_frame(int fd)
{
    say_hello_and_started(fd);
    say_frame(fd, FRAME_STDIN, "x", 1);
}

/* What a hostile agent could send while an execution runs: each ends it with an error, none hangs
 * or passes. */
static void test_bad_relays(void)
{
    static void (*const plays[])(int fd) = {
        play_half,         play_too_much,           play_short_output,   play_two_ends,
        play_no_end,       play_large_code,         play_unknown_reason, play_credit_overflow,
        play_client_frame, play_credit_for_nothing, play_two_gaps,       play_empty_output};
    for (gsize i = 0; i < G_N_ELEMENTS(plays); i++) {
        Fixture fixture;
        AgentRefusal refusal;
        AgentOutcome outcome;
        g_autoptr(GError) error = NULL;
        g_test_message("%zu", i);
        begin(&fixture, plays[i]);
        g_assert_true(start(&fixture, FALSE, &refusal, &error));
        Sink sink = {.out = g_string_new(NULL), .err = g_string_new(NULL), .wait_fd = fixture.fd};
        g_assert_false(relay(&fixture, &sink, -1, &outcome, &error));
        g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_AGENT);
        g_string_free(sink.out, TRUE);
        g_string_free(sink.err, TRUE);
        end(&fixture);
    }
}

static void test_too_large(void)
{
    Fixture fixture;
    AgentRefusal refusal;
    g_autoptr(GError) error = NULL;
    g_autofree char *large = g_strnfill(300 * 1024, 'x');
    const char *const argv[] = {"cat", large, NULL}, *const env[] = {NULL};
    AgentRequest request = {.id = "exe_1", .argv = argv, .env = env, .cwd = "/"};
    begin(&fixture, play_nothing);
    g_assert_false(agent_client_start(fixture.client, &request, &refusal, &error));
    g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT);
    end(&fixture);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    /* The agent that is played here goes on talking to a client that has left, as a real one would. */
    signal(SIGPIPE, SIG_IGN);
    g_test_add_func("/agent_client/whole", test_whole);
    g_test_add_func("/agent_client/refusal", test_refusal);
    g_test_add_func("/agent_client/killed", test_killed);
    g_test_add_func("/agent_client/sink_refuses", test_sink_refuses);
    g_test_add_func("/agent_client/bad_starts", test_bad_starts);
    g_test_add_func("/agent_client/bad_relays", test_bad_relays);
    g_test_add_func("/agent_client/too_large", test_too_large);
    return g_test_run();
}
