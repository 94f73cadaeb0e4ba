/* `hutch doctor`: what this host can and cannot enforce. A table of checks, then the proof: a
 * sandbox is made, `true` runs in it, and its receipt says how each limit came out. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backend/agent_client.h"
#include "backend/backend.h"
#include "cli/commands.h"
#include "cli/host.h"
#include "cli/program.h"
#include "cli/result.h"
#include "cli/streams.h"
#include "cli/text.h"

static const struct {
    const char *what;
    const char *gives;
    void (*check)(const Host *host, Finding *finding);
} checks[] = {
    {"kernel", "clone3, openat2, close_range, idmapped mounts, a process limit per sandbox",
     host_kernel},
    {"user namespaces", "a root of its own for each sandbox that is nobody outside",
     host_user_namespaces},
    {"root directory", "user namespaces", host_root_directory},
    {"/proc", "a /proc of its own in each sandbox", host_proc},
    {"mount api", "mounts without paths of the host", host_mount_api},
    {"idmapped mounts", "a disk whose owner is the same in every sandbox", host_idmapped_mounts},
    {"seccomp", "system calls refused that code has no need of", host_seccomp},
    {"cgroups", "limits on memory, processes and processor time", host_cgroups},
    {"disk images", "a hard limit on /workspace that costs no memory", host_disk_images},
    {"state directory", "room for disks and records of running sandboxes", host_state_space},
    {"inotify", "file watching in many sandboxes at once", host_inotify},
    {"core_pattern", "no way from a crash to a program of the host", host_core_pattern},
    {"languages", "scripts without a package to install", host_languages},
};

static const char *const state_words[] = {
    [FINDING_YES] = "yes", [FINDING_LIMITED] = "limited", [FINDING_NO] = "no"};

/* Where the rows go. */
typedef struct {
    gboolean json;
    json_t *rows;
    gboolean lacks; /* something is missing */
} Report;

/* One row; takes what the finding owns. */
static void report_row(Report *report, const char *what, const char *gives, Finding *finding)
{
    report->lacks |= finding->state == FINDING_NO;
    if (report->json) {
        json_t *object = json_object();
        json_object_set_new(object, "what", result_text(what));
        json_object_set_new(object, "state", result_text(state_words[finding->state]));
        json_object_set_new(object, "found", result_text(finding->found));
        json_object_set_new(object, "gives", result_text(gives));
        json_object_set_new(object, "mend", result_text(finding->mend));
        json_array_append_new(report->rows, object);
    } else {
        g_autofree char *found = text_escape(finding->found);
        printf("%-8s %-16s %s\n", state_words[finding->state], what, found);
        if (finding->state != FINDING_YES)
            printf("%-25s gives: %s\n", "", gives);
        if (finding->mend && finding->state != FINDING_YES)
            printf("%-25s mend:  %s\n", "", finding->mend);
    }
    g_free(finding->found);
    g_free(finding->mend);
}

static gboolean run_true(Sandbox *sandbox, GError **error)
{
    enum { TIMEOUT_MS = 10 * 1000, OUTPUT_BYTES = 4096 };
    static const char *const argv[] = {"true", NULL};
    g_autofree char *id = program_new_id();
    g_autoptr(GPtrArray) env = program_environment(NULL, NULL);
    g_autoptr(AgentClient) client = agent_client_new(sandbox_agent_fd(sandbox));
    AgentRequest request = {
        .id = id,
        .argv = argv,
        .env = (const char *const *)env->pdata,
        .cwd = "/workspace",
        .timeout_ms = TIMEOUT_MS,
        .output_bytes = OUTPUT_BYTES,
        .sole = TRUE,
    };
    AgentRefusal refusal;
    AgentOutcome outcome;
    if (!agent_client_start(client, &request, &refusal, error))
        return FALSE;
    KeptStreams kept;
    kept_streams_init(&kept);
    AgentRelay relay = {.sink = &kept_sink, .stdin_fd = -1, .wish_fd = -1, .user = &kept};
    gboolean ended = agent_client_relay(client, &relay, &outcome, error);
    kept_streams_clear(&kept);
    if (!ended)
        return FALSE;
    if (!outcome.exited || outcome.exit_code != 0)
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
                    "`true` did not end well in the sandbox (%s %d)",
                    outcome.exited ? "exit code" : "signal",
                    outcome.exited ? outcome.exit_code : outcome.signal);
    return outcome.exited && outcome.exit_code == 0;
}

/* A note of a receipt is "why; what to do". */
static void report_limit(Report *report, LimitKind kind, const LimitReceipt *limit)
{
    g_autofree char *what = g_strdup_printf("limit %s", limit_name(kind));
    const char *semicolon = limit->note ? strstr(limit->note, "; ") : NULL;
    g_autofree char *why = semicolon ? g_strndup(limit->note, (gsize)(semicolon - limit->note))
                                     : g_strdup(limit->note);
    Finding finding = {
        /* That /tmp is scaled to the memory is how it is meant, and no lack of the host's. */
        .state = !limit->enforced                   ? FINDING_NO
                 : limit->note && kind != LIMIT_TMP ? FINDING_LIMITED
                                                    : FINDING_YES,
        .found = g_strdup_printf("%s%s%s", limit->enforced ? limit->how : "not enforced",
                                 why ? ": " : "", why ? why : ""),
        .mend = semicolon ? g_strdup(semicolon + strlen("; ")) : NULL,
    };
    report_row(report, what, "this limit of `hutch run`, by default and asked for", &finding);
}

/* The proof. Returns the receipt as JSON, or null. */
static json_t *report_sandbox(Report *report, const Options *options)
{
    g_autoptr(GError) failed = NULL;
    g_autoptr(Sandbox) sandbox = sandbox_create(&options->sandbox, &failed);
    Finding finding = {.state = FINDING_YES};
    if (sandbox && sandbox_confirm(sandbox, &failed) && run_true(sandbox, &failed)) {
        const SandboxReceipt *receipt = sandbox_receipt(sandbox);
        finding.found = g_strdup_printf("made, and `true` ran in it; %s",
                                        receipt->agent_shares_uid
                                            ? "one user id serves the agent and the code"
                                            : "agent and code have user ids of their own");
    } else {
        finding.state = FINDING_NO;
        finding.found = g_strdup(failed->message);
    }
    report_row(report, "sandbox", "everything", &finding);
    if (!sandbox)
        return json_null();
    const SandboxReceipt *receipt = sandbox_receipt(sandbox);
    for (guint i = 0; i < N_LIMITS; i++)
        report_limit(report, i, &receipt->limits[i]);
    return result_receipt_to_json(receipt, NULL);
}

int command_doctor(const Options *options, GError **error)
{
    Report report = {.json = options->json, .rows = json_array()};
    g_autoptr(Host) host = host_new(options);
    for (gsize i = 0; i < G_N_ELEMENTS(checks); i++) {
        Finding finding = {0};
        checks[i].check(host, &finding);
        report_row(&report, checks[i].what, checks[i].gives, &finding);
    }
    json_t *object = json_object();
    json_object_set_new(object, "sandbox", report_sandbox(&report, options));
    json_object_set_new(object, "checks", report.rows);
    json_object_set_new(object, "complete", json_boolean(!report.lacks));
    gboolean gone = FALSE;
    if (options->json)
        result_print_json(object, &gone, error);
    json_decref(object);
    return gone ? EXIT_SIGNAL_BASE + SIGPIPE : report.lacks ? 1 : 0;
}
