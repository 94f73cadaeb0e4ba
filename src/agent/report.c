#include "agent/report.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const char *const reason_names[] = {[REASON_TIMEOUT] = "timeout",
                                           [REASON_MEMORY] = "memory",
                                           [REASON_OUTPUT] = "output",
                                           [REASON_CANCELLED] = "cancelled"};

void report_refusal(struct execution *execution, const char *field, const char *rule)
{
    char sentence[256];
    if (field[0] != '\0')
        snprintf(sentence, sizeof(sentence), "START: field '%s' %s", field, rule);
    else
        snprintf(sentence, sizeof(sentence), "START: %s", rule);
    connection_send_error(execution->connection, "bad_request", field[0] != '\0' ? field : "frame",
                          0, sentence);
}

void report_failure(struct execution *execution)
{
    char sentence[256];
    snprintf(sentence, sizeof(sentence), "%s: %s", execution->failure.step,
             strerror(execution->failure.error));
    connection_send_error(execution->connection, "failed", execution->failure.step,
                          execution->failure.error, sentence);
}

void report_started(struct execution *execution)
{
    uint8_t buffer[64];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_text(&writer, "id", execution->request.id);
    connection_send(execution->connection, FRAME_STARTED, &writer);
}

void report_credit(struct execution *execution, size_t bytes)
{
    uint8_t buffer[64];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_u64(&writer, "bytes", bytes);
    connection_send(execution->connection, FRAME_STDIN_CREDIT, &writer);
}

void report_gap(struct execution *execution)
{
    uint8_t buffer[128];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_u64(&writer, "stdout_bytes", execution->spool.dropped[SPOOL_STDOUT]);
    field_put_u64(&writer, "stderr_bytes", execution->spool.dropped[SPOOL_STDERR]);
    connection_send(execution->connection, FRAME_GAP, &writer);
}

static void put_limits_hit(const struct execution *execution, struct field_writer *writer)
{
    const struct {
        const char *name;
        bool hit;
    } limits[] = {
        {"memory", execution_lost_memory(execution)},
        {"pids", execution->events_after.pids_refused > execution->events_before.pids_refused},
        {"disk", usage_disk_is_full()},
        {"output",
         execution->spool.dropped[SPOOL_STDOUT] + execution->spool.dropped[SPOOL_STDERR] > 0},
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (limits[i].hit)
            field_put_text(writer, "limits_hit", limits[i].name);
    }
}

void report_ended(struct execution *execution)
{
    uint8_t buffer[CONNECTION_CONTROL_MAX];
    struct field_writer writer;
    field_writer_init(&writer, buffer, sizeof(buffer));
    field_put_text(&writer, "id", execution->request.id);
    if (execution->has_status && WIFEXITED(execution->status))
        field_put_u64(&writer, "exit_code", (uint64_t)WEXITSTATUS(execution->status));
    if (execution->has_status && WIFSIGNALED(execution->status))
        field_put_u64(&writer, "signal", (uint64_t)WTERMSIG(execution->status));
    if (execution->reason != REASON_NONE)
        field_put_text(&writer, "reason", reason_names[execution->reason]);
    put_limits_hit(execution, &writer);
    field_put_u64(&writer, "stdout_bytes", execution->spool.written[SPOOL_STDOUT]);
    field_put_u64(&writer, "stderr_bytes", execution->spool.written[SPOOL_STDERR]);
    field_put_u64(&writer, "stdout_dropped_bytes", execution->spool.dropped[SPOOL_STDOUT]);
    field_put_u64(&writer, "stderr_dropped_bytes", execution->spool.dropped[SPOOL_STDERR]);
    field_put_u64(&writer, "wall_ms", (execution->ended_us - execution->begun_us) / 1000);
    field_put_u64(&writer, "cpu_ms", execution->cpu_us / 1000);
    uint64_t peak_bytes;
    if (usage_read_peak(execution->settings, &peak_bytes))
        field_put_u64(&writer, "peak_memory_bytes", peak_bytes);
    if (execution->left_running)
        field_put_u64(&writer, "left_running", 1);
    connection_send(execution->connection, FRAME_ENDED, &writer);
}
