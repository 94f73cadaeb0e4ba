#include "agent/execution.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/report.h"
#include "base/clock.h"
#include "base/fd.h"

/* Theory of operation.
 *
 *   START -> SCRIPT -(all bytes there)-> RUNNING -(main process reaped)-> ENDING
 *         -(nothing of it lives)-> FLUSHING -(all sent)-> IDLE
 *
 * The outcome is the main process's. Whatever else the program started ends with it: `sole`
 * executions by kill(-1), which is atomic against fork, the others by their cgroup. A program that
 * hands its output pipe to a daemon therefore delays nothing: when no process is left, what is in
 * the pipes is all there will ever be, and they are read until they are empty.
 *
 * Three things come in any order: the end of the exec error pipe, SIGCHLD, and output. None of them
 * moves the state alone: output goes only to the spool, STARTED is sent when the error pipe has
 * ended, and ENDED is sent from FLUSHING, after the spool is empty. So ENDED cannot overtake
 * output.
 *
 * The client's slowness never reaches the program: the pipes are read into the spool whether the
 * client takes it or not. */

enum {
    LEFT_RUNNING_MS = 2000, /* a process that outlives SIGKILL by this hangs in the kernel */
    OUTPUT_FACTOR = 16,
};

static const enum frame_type stream_frames[SPOOL_STREAMS] = {
    [SPOOL_STDOUT] = FRAME_STDOUT, [SPOOL_STDERR] = FRAME_STDERR};

static bool is_idle(const struct execution *execution)
{
    return execution->state == EXECUTION_IDLE;
}

/* ---- killing ---- */

static void signal_all(struct execution *execution, int signal)
{
    if (execution->request.sole)
        kill(-1, signal);
    else if (signal != SIGKILL || group_kill(&execution->group) < 0)
        group_signal(&execution->group, signal);
}

static void kill_all(struct execution *execution)
{
    execution->kill_sent = true;
    signal_all(execution, SIGKILL);
    execution->deadline_ms = clock_monotonic_ms() + LEFT_RUNNING_MS;
}

/* The first reason counts. */
static void stop(struct execution *execution, enum execution_reason reason)
{
    if (execution->state != EXECUTION_RUNNING || execution->reason != REASON_NONE)
        return;
    execution->reason = reason;
    if (execution->request.grace_ms == 0) {
        kill_all(execution);
        return;
    }
    signal_all(execution, SIGTERM);
    execution->deadline_ms = clock_monotonic_ms() + execution->request.grace_ms;
}

static void fail_running(struct execution *execution, const char *step, int error)
{
    if (execution->failure.error == 0) {
        execution->failure.error = error;
        snprintf(execution->failure.step, sizeof(execution->failure.step), "%s", step);
    }
    if (execution->state == EXECUTION_RUNNING && !execution->kill_sent)
        kill_all(execution);
}

/* ---- output ---- */

static void close_source(struct execution *execution, struct loop_source *source)
{
    if (source->fd < 0)
        return;
    loop_watch(execution->loop, source, 0);
    fd_clear(&source->fd);
}

static void stop_flood(struct execution *execution)
{
    if (execution->state != EXECUTION_RUNNING || execution->kill_sent)
        return;
    if (execution->reason == REASON_NONE)
        execution->reason = REASON_OUTPUT;
    kill_all(execution);
}

/* One read. False: nothing is there now, or never again. */
static bool read_stream(struct execution *execution, enum spool_stream stream)
{
    struct loop_source *source = &execution->streams[stream];
    if (source->fd < 0)
        return false;
    ssize_t n = read(source->fd, execution->buffer, sizeof(execution->buffer));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        close_source(execution, source);
        return false;
    }
    if (execution->failure.error != 0)
        return true; /* the spool is of no use; the program must not hang while it dies */
    int result = spool_append(&execution->spool, stream, execution->buffer, (size_t)n);
    if (result < 0)
        fail_running(execution, "spool", -result);
    if (spool_total(&execution->spool) > OUTPUT_FACTOR * execution->request.output_bytes)
        stop_flood(execution);
    return true;
}

static void on_stdout(void *owner, short events)
{
    (void)events;
    read_stream(owner, SPOOL_STDOUT);
}

static void on_stderr(void *owner, short events)
{
    (void)events;
    read_stream(owner, SPOOL_STDERR);
}

/* Reads what is left in the pipes once no process of the execution lives, and closes them. What is
 * there is bounded by the size of the pipes; a process that did not die may still write, so it is
 * counted. */
static void drain_streams(struct execution *execution)
{
    enum { READS_MAX = 64 };
    bool more = true;
    for (int i = 0; i < READS_MAX && more; i++) {
        more = read_stream(execution, SPOOL_STDOUT);
        more = read_stream(execution, SPOOL_STDERR) || more;
    }
    close_source(execution, &execution->streams[SPOOL_STDOUT]);
    close_source(execution, &execution->streams[SPOOL_STDERR]);
}

/* ---- begin ---- */

/* Forgets the execution. */
static void clear(struct execution *execution)
{
    close_source(execution, &execution->streams[SPOOL_STDOUT]);
    close_source(execution, &execution->streams[SPOOL_STDERR]);
    close_source(execution, &execution->exec_error);
    gate_clear(&execution->gate);
    input_clear(&execution->input);
    spool_clear(&execution->spool);
    script_remove(&execution->script);
    group_clear(&execution->group);
    request_clear(&execution->request);
    execution->state = EXECUTION_IDLE;
    execution->deadline_ms = 0;
}

/* It could not be begun: nothing runs. */
static void fail_start(struct execution *execution, const char *step, int error)
{
    execution->failure.error = error;
    snprintf(execution->failure.step, sizeof(execution->failure.step), "%s", step);
    report_failure(execution);
    clear(execution);
}

static bool is_known_id(const struct execution *execution, const char *id)
{
    for (size_t i = 0; i < EXECUTION_IDS_KEPT; i++) {
        if (strcmp(execution->ids[i], id) == 0)
            return true;
    }
    return false;
}

static void remember_id(struct execution *execution, const char *id)
{
    snprintf(execution->ids[execution->next_id], sizeof(execution->ids[0]), "%s", id);
    execution->next_id = (execution->next_id + 1) % EXECUTION_IDS_KEPT;
}

static void watch(struct execution *execution, struct loop_source *source, int fd)
{
    source->fd = fd;
    loop_watch(execution->loop, source, POLLIN);
}

static void run(struct execution *execution)
{
    const struct request *request = &execution->request;
    const char *step = "group";
    if (!request->sole) {
        int result = group_create(&execution->group, execution->settings->code_group, request->id);
        if (result < 0) {
            fail_start(execution, step, -result);
            return;
        }
    }
    usage_read_events(execution->settings, &execution->events_before);
    struct spawn_plan plan = {.settings = execution->settings,
                              .argv = request->argv.items,
                              .env = request->env.items,
                              .cwd = request->cwd,
                              .group_fd = request->sole ? execution->settings->code_group
                                                        : execution->group.fd,
                              .use_stdin = request->use_stdin};
    struct spawned spawned;
    execution->begun_us = clock_monotonic_us();
    int result = spawn_start(&plan, &spawned, &step);
    if (result < 0) {
        fail_start(execution, step, -result);
        return;
    }
    execution->state = EXECUTION_RUNNING;
    execution->pid = spawned.pid;
    execution->deadline_ms =
        request->timeout_ms > 0 ? execution->begun_us / 1000 + request->timeout_ms : 0;
    watch(execution, &execution->exec_error, spawned.error_fd);
    watch(execution, &execution->streams[SPOOL_STDOUT], spawned.stdout_fd);
    watch(execution, &execution->streams[SPOOL_STDERR], spawned.stderr_fd);
    if (request->use_stdin)
        input_connect(&execution->input, spawned.stdin_fd);
}

/* Once no byte of the script is missing. */
static void finish_script(struct execution *execution)
{
    const struct settings *settings = execution->settings;
    int result = script_finish(&execution->script,
                               settings_share_uid(settings) ? -1 : (int)settings->code_uid);
    if (result < 0) {
        fail_start(execution, "script", -result);
        return;
    }
    request_set_script_path(&execution->request, execution->script.path);
    run(execution);
}

/* All that is one execution's; what stays is the ids, the connection and the like. */
static void begin_anew(struct execution *execution)
{
    uint64_t output_bytes = execution->request.output_bytes;
    spool_init(&execution->spool, execution->settings->spool, output_bytes > 0 ? output_bytes : 1);
    input_init(&execution->input, execution->loop);
    script_init(&execution->script);
    group_init(&execution->group, execution->loop);
    execution->pid = 0;
    execution->status = 0;
    execution->has_status = execution->started = execution->passed_gap = false;
    execution->left_running = execution->kill_sent = false;
    execution->reason = REASON_NONE;
    execution->failure = (struct spawn_error){0};
    execution->begun_us = execution->ended_us = execution->cpu_us = 0;
    execution->events_before = execution->events_after = (struct usage_events){0};
}

void execution_start(struct execution *execution, const void *payload, size_t size)
{
    if (!is_idle(execution)) {
        report_refusal(execution, "", "another execution is running");
        return;
    }
    struct request_problem problem;
    struct request *request = &execution->request;
    int result = request_parse(request, payload, size, &problem);
    if (result == -EPROTO) {
        report_refusal(execution, problem.field, problem.rule);
        return;
    }
    begin_anew(execution);
    if (result < 0) {
        fail_start(execution, "memory", -result);
        return;
    }
    if (is_known_id(execution, request->id)) {
        report_refusal(execution, "id", "was used before");
        request_clear(request);
        return;
    }
    if (!request->sole && execution->settings->code_group < 0) {
        report_refusal(execution, "sole",
                       "must be 1: this sandbox has no cgroup v2 to tell executions apart");
        request_clear(request);
        return;
    }
    remember_id(execution, request->id);
    if (!request->script_name) {
        run(execution);
        return;
    }
    result =
        script_create(&execution->script, request->id, request->script_name, request->script_bytes);
    if (result < 0) {
        fail_start(execution, "script", -result);
        return;
    }
    execution->state = EXECUTION_SCRIPT;
    if (execution->script.missing_bytes == 0)
        finish_script(execution);
}

int execution_script(struct execution *execution, const void *data, size_t size)
{
    if (is_idle(execution))
        return 0;
    if (execution->state != EXECUTION_SCRIPT)
        return size == 0 ? 0 : -EPROTO;
    int result = script_write(&execution->script, data, size);
    if (result == -EPROTO)
        return result;
    if (result < 0)
        fail_start(execution, "script", -result);
    else if (execution->script.missing_bytes == 0)
        finish_script(execution);
    return 0;
}

int execution_input(struct execution *execution, const void *data, size_t size)
{
    if (is_idle(execution))
        return 0;
    return execution->request.use_stdin ? input_push(&execution->input, data, size) : -EPROTO;
}

void execution_input_end(struct execution *execution)
{
    if (!is_idle(execution))
        input_end(&execution->input);
}

/* ---- end ---- */

bool execution_lost_memory(const struct execution *execution)
{
    return execution->events_after.oom_kills > execution->events_before.oom_kills;
}

void execution_cancel(struct execution *execution, const char *id)
{
    if (is_idle(execution) || strcmp(id, execution->request.id) != 0)
        return;
    if (execution->state == EXECUTION_SCRIPT) {
        execution->reason = REASON_CANCELLED;
        report_ended(execution);
        clear(execution);
        return;
    }
    stop(execution, REASON_CANCELLED);
}

static uint64_t cpu_us(const struct rusage *usage)
{
    return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

/* The result of the exec, if it is known. */
static void take_exec_error(struct execution *execution)
{
    struct spawn_error error;
    if (execution->exec_error.fd < 0)
        return;
    int listener = -1;
    int result = spawn_read_error(execution->exec_error.fd, &error, &listener);
    if (listener >= 0)
        gate_open(&execution->gate, listener);
    if (result < 0)
        return;
    close_source(execution, &execution->exec_error);
    if (result == 1) {
        execution->failure = error;
        return;
    }
    execution->started = true;
    report_started(execution);
}

static void on_exec_error(void *owner, short events)
{
    (void)events;
    take_exec_error(owner);
}

/* The main process has ended, or never will: the rest goes too. */
static void begin_ending(struct execution *execution)
{
    take_exec_error(execution);
    execution->ended_us = clock_monotonic_us();
    execution->state = EXECUTION_ENDING;
    signal_all(execution, SIGKILL);
    execution->deadline_ms = clock_monotonic_ms() + LEFT_RUNNING_MS;
}

void execution_reap(struct execution *execution)
{
    struct rusage usage;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        if (is_idle(execution))
            continue;
        execution->cpu_us += cpu_us(&usage);
        if (pid == execution->pid) {
            execution->pid = 0;
            execution->status = status;
            execution->has_status = true;
        }
    }
}

static bool nothing_lives(const struct execution *execution)
{
    if (execution->pid != 0)
        return false;
    if (!execution->request.sole)
        return group_is_empty(&execution->group);
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

static void begin_flushing(struct execution *execution)
{
    drain_streams(execution);
    usage_read_events(execution->settings, &execution->events_after);
    bool killed = execution->has_status && WIFSIGNALED(execution->status) &&
                  WTERMSIG(execution->status) == SIGKILL;
    if (killed && !execution->kill_sent && execution->reason == REASON_NONE &&
        execution_lost_memory(execution))
        execution->reason = REASON_MEMORY;
    execution->state = EXECUTION_FLUSHING;
    execution->deadline_ms = 0;
}

/* ---- to the client ---- */

static ssize_t take_output(struct execution *execution, enum spool_stream *stream, void *data,
                           size_t size)
{
    if (!execution->passed_gap)
        return spool_take_head(&execution->spool, stream, data, size);
    return spool_take_tail(&execution->spool, stream, data, size);
}

/* One frame of output. False: there is none now. */
static bool send_output(struct execution *execution)
{
    size_t room = connection_room(execution->connection);
    if (room == 0)
        return false;
    enum spool_stream stream;
    uint64_t number = execution->spool.number;
    ssize_t n = take_output(execution, &stream, connection_data(execution->connection), room);
    if (n > 0) {
        connection_send_data(execution->connection, stream_frames[stream], number, (size_t)n);
        return true;
    }
    if (n < 0) {
        fail_running(execution, "spool", (int)-n);
        return false;
    }
    if (execution->state != EXECUTION_FLUSHING || execution->passed_gap)
        return false;
    execution->passed_gap = true;
    if (spool_pass_gap(&execution->spool))
        report_gap(execution);
    return true;
}

/* True: the client's buffer is full and there is more. */
static bool send_to_client(struct execution *execution)
{
    size_t credit_bytes =
        connection_room(execution->connection) > 0 ? input_take_credit(&execution->input) : 0;
    if (credit_bytes > 0)
        report_credit(execution, credit_bytes);
    while (execution->started && execution->failure.error == 0 && send_output(execution))
        ;
    bool full = connection_room(execution->connection) == 0;
    if (execution->connection->ended)
        full = false; /* nobody listens: what is left goes with the spool */
    else if (full)
        return execution->state == EXECUTION_FLUSHING || !spool_head_is_empty(&execution->spool);
    if (execution->state != EXECUTION_FLUSHING)
        return false;
    if (execution->failure.error != 0)
        report_failure(execution);
    else
        report_ended(execution);
    connection_transmit(execution->connection); /* the client need not wait for the tidying */
    clear(execution);
    return false;
}

static void pass_deadline(struct execution *execution)
{
    if (execution->deadline_ms == 0 || clock_monotonic_ms() < execution->deadline_ms)
        return;
    execution->deadline_ms = 0;
    if (execution->state == EXECUTION_RUNNING && execution->reason == REASON_NONE &&
        !execution->kill_sent) {
        stop(execution, REASON_TIMEOUT);
    } else if (execution->state == EXECUTION_RUNNING && !execution->kill_sent) {
        kill_all(execution);
    } else if (execution->state == EXECUTION_RUNNING) {
        begin_ending(execution); /* the main process does not die: nothing is left to wait for */
        execution->left_running = true;
    } else if (execution->state == EXECUTION_ENDING) {
        execution->left_running = true;
    }
}

bool execution_advance(struct execution *execution)
{
    if (is_idle(execution) || execution->state == EXECUTION_SCRIPT)
        return false;
    pass_deadline(execution);
    if (execution->state == EXECUTION_RUNNING && execution->pid == 0)
        begin_ending(execution);
    if (execution->state == EXECUTION_ENDING) {
        execution_reap(execution);
        if (execution->left_running || nothing_lives(execution))
            begin_flushing(execution);
    }
    return send_to_client(execution);
}

int execution_timeout_ms(const struct execution *execution)
{
    if (execution->deadline_ms == 0)
        return -1;
    uint64_t now_ms = clock_monotonic_ms();
    if (now_ms >= execution->deadline_ms)
        return 0;
    uint64_t left_ms = execution->deadline_ms - now_ms;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

void execution_init(struct execution *execution, const struct settings *settings, struct loop *loop,
                    struct connection *connection)
{
    execution->settings = settings;
    execution->loop = loop;
    execution->connection = connection;
    execution->streams[SPOOL_STDOUT] =
        (struct loop_source){.fd = -1, .ready = on_stdout, .owner = execution};
    execution->streams[SPOOL_STDERR] =
        (struct loop_source){.fd = -1, .ready = on_stderr, .owner = execution};
    gate_init(&execution->gate, loop);
    execution->exec_error =
        (struct loop_source){.fd = -1, .ready = on_exec_error, .owner = execution};
    script_init(&execution->script);
    input_init(&execution->input, loop);
    group_init(&execution->group, loop);
}
