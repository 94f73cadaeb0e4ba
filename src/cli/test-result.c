#include <signal.h>
#include <string.h>

#include "cli/result.h"

/* Status and exit status of every kind of end. */
static void test_ends(void)
{
    static const struct {
        AgentOutcome outcome;
        int interrupt;
        const char *status;
        int exit_status;
    } rows[] = {
        {{.exited = TRUE, .exit_code = 0}, 0, "ok", 0},
        {{.exited = TRUE, .exit_code = 3}, 0, "error", 3},
        {{.signal = SIGSEGV}, 0, "crashed", 139},
        {{.signal = SIGKILL}, 0, "crashed", 137},
        {{.signal = SIGTERM, .reason = AGENT_REASON_TIMEOUT}, 0, "timeout", 124},
        {{.exited = TRUE, .exit_code = 0, .reason = AGENT_REASON_TIMEOUT}, 0, "timeout", 124},
        {{.signal = SIGKILL, .reason = AGENT_REASON_MEMORY}, 0, "killed", 137},
        {{.signal = SIGKILL, .reason = AGENT_REASON_OUTPUT}, 0, "killed", 137},
        {{.signal = SIGTERM, .reason = AGENT_REASON_CANCELLED}, 130, "interrupted", 130},
        {{.exited = TRUE, .exit_code = 0},
         143,
         "ok",
         143}, /* it had ended when the signal came; its output was not all taken */
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        Result result = {.outcome = &rows[i].outcome, .interrupt_exit_status = rows[i].interrupt};
        g_assert_cmpstr(result_status_word(result_status(&result)), ==, rows[i].status);
        g_assert_cmpint(result_exit_status(&result), ==, rows[i].exit_status);
    }
}

static void test_signals(void)
{
    g_autofree char *segv = result_signal_name(SIGSEGV), *odd = result_signal_name(40);
    g_assert_cmpstr(segv, ==, "SIGSEGV");
    g_assert_cmpstr(odd, ==, "SIG40");
}

/* The object as a client reads it: names that are no UTF-8, a killed program, nothing that was not
 * looked at. */
static void test_json(void)
{
    KeptStreams kept;
    kept_streams_init(&kept);
    int wait_fd;
    kept_sink.output(&kept, AGENT_STDERR, "a\xff\0", 3, &wait_fd);
    kept_sink.gap(&kept, (guint64[]){0, 9});
    OutputFile file = {.path = "caf\xe9", .change = "added", .size_bytes = 5};
    OutputSet outputs = {g_ptr_array_new(), g_ptr_array_new(), g_ptr_array_new()};
    g_ptr_array_add(outputs.files, &file);
    static const char *const namespaces[] = {"user", "pid", NULL};
    SandboxReceipt receipt = {.backend = "native",
                              .root = "host",
                              .cgroup = "none",
                              .namespaces = namespaces,
                              .filter = "seccomp"};
    receipt.limits[LIMIT_CPU].value = 500;
    AgentOutcome outcome = {.signal = SIGKILL,
                            .reason = AGENT_REASON_MEMORY,
                            .hits = AGENT_HIT_MEMORY | AGENT_HIT_DISK};
    g_auto(Options) options;
    options_init(&options);
    Result result = {.id = "exe_1",
                     .outcome = &outcome,
                     .streams = &kept,
                     .outputs = &outputs,
                     .receipt = &receipt,
                     .options = &options};

    json_t *object = result_to_json(&result);
    g_autofree char *text = json_dumps(object, 0);
    g_test_message("%s", text);
    static const char *const parts[] = {
        "\"status\": \"killed\", \"reason\": \"memory\", \"exit_code\": null, \"signal\": \"SIGKILL\", \"limits_hit\": [\"memory\", \"disk\"]",
        "\"stdout\": \"\", \"stderr\": \"a\xef\xbf\xbd\\u0000\\n… 9 bytes dropped …\\n\"",
        "\"truncated\": {\"stdout\": false, \"stderr\": true}",
        "{\"path\": \"caf\xef\xbf\xbd\", \"path_base64\": \"Y2Fm6Q==\", \"change\": \"added\", \"size_bytes\": 5}",
        "\"cpu\": {\"value\": 0.5, \"unit\": \"processors\"",
        "\"peak_memory_bytes\": null",
        "\"language\": null",
        "\"namespaces\": [\"user\", \"pid\"], \"filter\": \"seccomp\"",
    };
    for (gsize i = 0; i < G_N_ELEMENTS(parts); i++)
        g_assert_nonnull(strstr(text, parts[i]));
    json_decref(object);
    g_ptr_array_unref(outputs.files);
    g_ptr_array_unref(outputs.deleted);
    g_ptr_array_unref(outputs.left_out);
    kept_streams_clear(&kept);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/result/ends", test_ends);
    g_test_add_func("/result/signals", test_signals);
    g_test_add_func("/result/json", test_json);
    return g_test_run();
}
