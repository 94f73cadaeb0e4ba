#include "cli/result.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/text.h"
#include "cli/values.h"

enum {
    EXIT_TIMEOUT = 124,
    EXIT_KILLED = 137,
    LEFT_OUT_LINES_MAX = 20,
};

/* What each end that the agent made means; the first row is an end of the program's own making. */
static const struct {
    ResultStatus status;
    int exit_status;            /* 0: not from here */
    const char *before, *after; /* of the figure, in the line for a person; NULL: nothing to say */
} reasons[] = {
    [AGENT_REASON_NONE] = {RESULT_OK, 0, NULL, NULL},
    [AGENT_REASON_TIMEOUT] = {RESULT_TIMEOUT, EXIT_TIMEOUT, "ended: timeout, after ",
                              " s (--timeout)"},
    [AGENT_REASON_MEMORY] = {RESULT_KILLED, EXIT_KILLED, "killed: memory, it needed more than ",
                             " (--memory)"},
    [AGENT_REASON_OUTPUT] = {RESULT_KILLED, EXIT_KILLED,
                             "killed: output, it wrote more than 16 times ", " (--max-output)"},
    [AGENT_REASON_CANCELLED] = {RESULT_INTERRUPTED, 0, NULL, NULL},
};

/* Limits in the receipt: what their numbers are. */
static const struct {
    ValueType type;
    const char *unit;
    guint64 per_unit;
} limit_units[N_LIMITS] = {
    [LIMIT_MEMORY] = {VALUE_SIZE, "bytes", 1},      [LIMIT_PIDS] = {VALUE_COUNT, "processes", 1},
    [LIMIT_CPU] = {VALUE_CPUS, "processors", 1000}, [LIMIT_DISK] = {VALUE_SIZE, "bytes", 1},
    [LIMIT_OPEN_FILES] = {VALUE_COUNT, "files", 1}, [LIMIT_TMP] = {VALUE_SIZE, "bytes", 1},
};

ResultStatus result_status(const Result *result)
{
    const AgentOutcome *outcome = result->outcome;
    if (outcome->reason != AGENT_REASON_NONE)
        return reasons[outcome->reason].status;
    if (!outcome->exited)
        return RESULT_CRASHED;
    return outcome->exit_code == 0 ? RESULT_OK : RESULT_ERROR;
}

const char *result_status_word(ResultStatus status)
{
    static const char *const words[] = {
#define X(name, word) [RESULT_##name] = word,
        RESULT_STATUSES(X)
#undef X
    };
    return words[status];
}

int result_exit_status(const Result *result)
{
    const AgentOutcome *outcome = result->outcome;
    if (result->interrupt_exit_status)
        return result->interrupt_exit_status;
    if (reasons[outcome->reason].exit_status)
        return reasons[outcome->reason].exit_status;
    return outcome->exited ? outcome->exit_code : EXIT_SIGNAL_BASE + outcome->signal;
}

char *result_signal_name(int signal)
{
    const char *name = sigabbrev_np(signal);
    return name ? g_strconcat("SIG", name, NULL) : g_strdup_printf("SIG%d", signal);
}

/* ---- JSON */

static json_t *text_json(const GString *text)
{
    return json_stringn_nocheck(text->str, text->len);
}

json_t *result_text(const char *text)
{
    if (!text)
        return json_null();
    g_autoptr(GString) clean = g_string_new(NULL);
    text_append_utf8(clean, text, strlen(text));
    return text_json(clean);
}

static void put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new_nocheck(object, key, value);
}

static json_t *number(guint64 value)
{
    return json_integer((json_int_t)MIN(value, (guint64)G_MAXINT64));
}

/* A path; where it is not UTF-8 its bytes as well, so that it can still be told from others. */
static json_t *path_object(const char *path)
{
    json_t *object = json_object();
    put(object, "path", result_text(path));
    if (!g_utf8_validate(path, -1, NULL)) {
        g_autofree char *base64 = g_base64_encode((const guchar *)path, strlen(path));
        put(object, "path_base64", json_string_nocheck(base64));
    }
    return object;
}

static json_t *artifacts_json(const OutputSet *outputs)
{
    json_t *list = json_array();
    for (guint i = 0; outputs && i < outputs->files->len; i++) {
        const OutputFile *file = outputs->files->pdata[i];
        json_t *object = path_object(file->path);
        put(object, "change", json_string_nocheck(file->change));
        put(object, "size_bytes", number(file->size_bytes));
        if (file->sha256[0])
            put(object, "sha256", json_string_nocheck(file->sha256));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *deleted_json(const OutputSet *outputs)
{
    json_t *list = json_array();
    for (guint i = 0; outputs && i < outputs->deleted->len; i++)
        json_array_append_new(list, result_text(outputs->deleted->pdata[i]));
    return list;
}

static json_t *left_out_json(const OutputSet *outputs)
{
    json_t *list = json_array();
    for (guint i = 0; outputs && i < outputs->left_out->len; i++) {
        const OutputLeftOut *left_out = outputs->left_out->pdata[i];
        json_t *object = path_object(left_out->path);
        put(object, "reason", json_string_nocheck(output_reason_word(left_out->reason)));
        put(object, "detail", result_text(left_out->detail));
        json_array_append_new(list, object);
    }
    return list;
}

json_t *result_receipt_to_json(const SandboxReceipt *receipt, const SandboxSpec *spec)
{
    if (!receipt)
        return json_null();
    json_t *limits = json_object();
    for (guint i = 0; i < N_LIMITS; i++) {
        const LimitReceipt *limit = &receipt->limits[i];
        json_t *object = json_object();
        if (limit_units[i].per_unit == 1)
            put(object, "value", number(limit->value));
        else
            put(object, "value", json_real((double)limit->value / (double)limit_units[i].per_unit));
        put(object, "unit", json_string_nocheck(limit_units[i].unit));
        if (spec)
            put(object, "asked", json_boolean(spec->limits[i].asked));
        put(object, "enforced", json_boolean(limit->enforced));
        put(object, "how", result_text(limit->how));
        put(object, "note", result_text(limit->note));
        put(limits, limit_name(i), object);
    }
    json_t *notes = json_array();
    for (guint i = 0; receipt->notes && i < receipt->notes->len; i++)
        json_array_append_new(notes, result_text(receipt->notes->pdata[i]));

    json_t *object = json_object();
    put(object, "backend", result_text(receipt->backend));
    put(object, "root", result_text(receipt->root));
    json_t *namespaces = json_array();
    for (guint i = 0; receipt->namespaces[i]; i++)
        json_array_append_new(namespaces, result_text(receipt->namespaces[i]));
    put(object, "namespaces", namespaces);
    put(object, "filter", result_text(receipt->filter));
    put(object, "cgroup", result_text(receipt->cgroup));
    put(object, "agent_shares_uid", json_boolean(receipt->agent_shares_uid));
    put(object, "limits", limits);
    put(object, "notes", notes);
    return object;
}

static void put_streams(json_t *object, const Result *result)
{
    static const char *const names[N_AGENT_STREAMS] = {
        [AGENT_STDOUT] = "stdout", [AGENT_STDERR] = "stderr"};
    json_t *truncated = json_object();
    for (guint i = 0; i < N_AGENT_STREAMS; i++) {
        g_autoptr(GString) text = kept_streams_text(result->streams, i);
        put(object, names[i], text_json(text));
        gboolean cut =
            result->outcome->dropped_bytes[i] > 0 || result->streams->streams[i].dropped_bytes > 0;
        put(truncated, names[i], json_boolean(cut));
    }
    put(object, "truncated", truncated);
}

static json_t *hits_json(const AgentOutcome *outcome)
{
    json_t *list = json_array();
    for (guint bit = 1; bit && bit <= outcome->hits; bit <<= 1) {
        if (outcome->hits & bit)
            json_array_append_new(list, json_string_nocheck(agent_hit_word(bit)));
    }
    return list;
}

static json_t *usage_json(const AgentOutcome *outcome)
{
    json_t *object = json_object();
    put(object, "wall_ms", number(outcome->wall_ms));
    put(object, "cpu_ms", number(outcome->cpu_ms));
    put(object, "peak_memory_bytes",
        outcome->has_peak_memory ? number(outcome->peak_memory_bytes) : json_null());
    return object;
}

static json_t *error_json(const Result *result)
{
    if (!result->not_started)
        return json_null();
    json_t *object = json_object();
    put(object, "name", json_string_nocheck("NotStarted"));
    put(object, "message", result_text(result->not_started));
    put(object, "traceback", json_null());
    return object;
}

static json_t *fresh_state_json(void)
{
    json_t *object = json_object();
    put(object, "kernel", json_string_nocheck("fresh"));
    put(object, "kept", json_false());
    put(object, "lost_because", json_null());
    return object;
}

json_t *result_to_json(const Result *result)
{
    const AgentOutcome *outcome = result->outcome;
    const char *reason =
        outcome->reason == AGENT_REASON_CANCELLED ? NULL : agent_reason_word(outcome->reason);
    g_autofree char *signal = outcome->exited ? NULL : result_signal_name(outcome->signal);

    json_t *object = json_object();
    put(object, "id", json_string_nocheck(result->id));
    put(object, "session", json_null());
    put(object, "kernel", json_null());
    put(object, "language", result_text(result->language));
    put(object, "number", json_integer(1));
    put(object, "status", json_string_nocheck(result_status_word(result_status(result))));
    put(object, "reason", result_text(reason));
    put(object, "exit_code", outcome->exited ? json_integer(outcome->exit_code) : json_null());
    put(object, "signal", result_text(signal));
    put(object, "limits_hit", hits_json(outcome));
    put_streams(object, result);
    put(object, "result", json_null());
    put(object, "displays", json_array());
    put(object, "error", error_json(result));
    put(object, "state", fresh_state_json());
    put(object, "artifacts", artifacts_json(result->outputs));
    put(object, "deleted", deleted_json(result->outputs));
    put(object, "left_out", left_out_json(result->outputs));
    put(object, "usage", usage_json(outcome));
    put(object, "sandbox", result_receipt_to_json(result->receipt, &result->options->sandbox));
    return object;
}

gboolean result_print_json(const json_t *object, gboolean *gone, GError **error)
{
    char *text = json_dumps(object, JSON_REAL_PRECISION(6));
    int result = -ENOMEM;
    *gone = FALSE;
    if (text) {
        gsize size = strlen(text);
        text[size] = '\n'; /* in place of the NUL: the text may be large, and is written whole */
        result = fd_write_full(STDOUT_FILENO, text, size + 1);
    }
    free(text);
    *gone = result == -EPIPE;
    if (result < 0 && !*gone)
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_IO,
                    "cannot write the result to standard output: %s", g_strerror(-result));
    return result == 0 || *gone;
}

/* ---- lines for a person */

/* The figure that a reason's sentence names. */
static char *reason_figure(const Result *result)
{
    switch (result->outcome->reason) {
    case AGENT_REASON_TIMEOUT: return value_format(VALUE_SECONDS, result->options->timeout_ms);
    case AGENT_REASON_MEMORY:
        return value_format(VALUE_SIZE, result->receipt->limits[LIMIT_MEMORY].value);
    default: return value_format(VALUE_SIZE, result->options->output_bytes);
    }
}

static void say_end(const Result *result)
{
    const AgentOutcome *outcome = result->outcome;
    if (result->not_started) {
        say("%s", result->not_started);
    } else if (reasons[outcome->reason].before) {
        g_autofree char *figure = reason_figure(result);
        say("%s%s%s", reasons[outcome->reason].before, figure, reasons[outcome->reason].after);
    } else if (outcome->reason == AGENT_REASON_NONE && !outcome->exited) {
        g_autofree char *name = result_signal_name(outcome->signal);
        const char *description = sigdescr_np(outcome->signal);
        say("the program was ended by %s (%s)", name, description ? description : "a signal");
    }
}

/* Limits that do not end a program: it may have gone on without a word. */
static const struct {
    AgentHit hit;
    LimitKind limit;
    const char *option;
} quiet_limits[] = {
    {AGENT_HIT_MEMORY, LIMIT_MEMORY, "memory"},
    {AGENT_HIT_PIDS, LIMIT_PIDS, "pids"},
    {AGENT_HIT_DISK, LIMIT_DISK, "disk"},
};

static void say_hits(const Result *result)
{
    for (gsize i = 0; i < G_N_ELEMENTS(quiet_limits); i++) {
        LimitKind kind = quiet_limits[i].limit;
        gboolean said = quiet_limits[i].hit == AGENT_HIT_MEMORY &&
                        result->outcome->reason == AGENT_REASON_MEMORY;
        if (!(result->outcome->hits & quiet_limits[i].hit) || said)
            continue;
        g_autofree char *figure =
            value_format(limit_units[kind].type, result->receipt->limits[kind].value);
        say("limit reached: %s %s (--%s)", limit_name(kind), figure, quiet_limits[i].option);
    }
}

static void say_unenforced(const Result *result)
{
    for (guint i = 0; i < N_LIMITS; i++) {
        const LimitReceipt *limit = &result->receipt->limits[i];
        if (result->options->sandbox.limits[i].asked && !limit->enforced)
            say("the limit on %s was not enforced: %s", limit_name(i),
                limit->note ? limit->note : "this host cannot");
    }
}

void result_say(const Result *result)
{
    say_end(result);
    if (result->outcome->left_running)
        say("a process of the program took more than two seconds to die; it is gone now");
    if (result->receipt) {
        say_hits(result);
        say_unenforced(result);
    }
}

void result_say_collected(const OutputSet *outputs, const char *directory)
{
    const GPtrArray *left_out = outputs->left_out;
    for (guint i = 0; i < left_out->len && i < LEFT_OUT_LINES_MAX; i++) {
        const OutputLeftOut *one = left_out->pdata[i];
        say("left out: %s (%s%s%s)", one->path, output_reason_word(one->reason),
            one->detail ? ": " : "", one->detail ? one->detail : "");
    }
    if (left_out->len > LEFT_OUT_LINES_MAX)
        say("left out: %u more; --json lists them all", left_out->len - LEFT_OUT_LINES_MAX);
    say("%u file%s collected in %s", outputs->files->len, outputs->files->len == 1 ? "" : "s",
        directory);
}
