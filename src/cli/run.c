/* One execution: read what is to be run, make a sandbox, put files in, start, relay, and hand back
 * what it made. The order of run_in_sandbox() is the life of one run; each line of it is a step of
 * --timing. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend/agent_client.h"
#include "backend/backend.h"
#include "base/fd.h"
#include "cli/commands.h"
#include "cli/program.h"
#include "cli/result.h"
#include "cli/steps.h"
#include "cli/streams.h"
#include "cli/text.h"
#include "cli/values.h"
#include "outputs/outputs.h"

enum {
    GRACE_MS = 2000,
    EXIT_REJECTED = 1, /* what an interpreter exits with on a syntax error */
    EXIT_CANNOT_EXECUTE = 126,
    EXIT_NOT_FOUND = 127,
    OUT_DIRECTORY_MODE = 0777,
};

/* All that lives from the start of the program to the exit status. The sink's struct comes first:
 * it is the `user` of the relay. */
typedef struct {
    union {
        LiveStreams live;
        KeptStreams kept;
    } streams;
    int signal_fd;
    int caught; /* the first signal that asked hutch to stop */
    const Options *options;
    const Program *program;
    char *id;
    AgentOutcome outcome;
    char *not_started;
} Run;

/* ---- signals: while the program runs they cancel it instead of ending hutch */

static int block_signals(void)
{
    static const int asking[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (gsize i = 0; i < G_N_ELEMENTS(asking); i++) {
        struct sigaction action;
        /* What our parent had us ignore (nohup, a background job of sh) stays ignored: a signalfd
         * would bring it back. */
        if (sigaction(asking[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&set, asking[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static AgentWish obey_signal(void *user)
{
    Run *run = user;
    struct signalfd_siginfo info;
    if (read(run->signal_fd, &info, sizeof info) != sizeof info)
        return AGENT_GO_ON;
    if (run->caught)
        return AGENT_GIVE_UP; /* asked twice: no more patience */
    run->caught = (int)info.ssi_signo;
    return AGENT_CANCEL;
}

/* ---- start and relay */

static gboolean is_null_device(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

/* A command that could not be executed is the command's failure, with the exit status that a shell
 * gives it. */
static gboolean command_not_executed(Run *run, const AgentRefusal *refusal)
{
    const char *name = run->program->argv->pdata[0];
    if (run->program->language || !g_str_equal(refusal->step, "exec") || refusal->error_number == 0)
        return FALSE;
    run->outcome.exited = TRUE;
    if (refusal->error_number == ENOENT) {
        run->outcome.exit_code = EXIT_NOT_FOUND;
        const char *why = strchr(name, '/') ? "there is no such file in the sandbox"
                                            : "not found in the sandbox's PATH";
        run->not_started = g_strdup_printf("cannot run \"%s\": %s", name, why);
    } else {
        run->outcome.exit_code = EXIT_CANNOT_EXECUTE;
        run->not_started =
            g_strdup_printf("cannot run \"%s\": %s", name, g_strerror(refusal->error_number));
    }
    return TRUE;
}

/* The program of a language that was found is looked for in the PATH that the caller may have changed. */
static gboolean path_lacks_language(const Run *run, const AgentRefusal *refusal)
{
    return run->program->language && g_str_equal(refusal->step, "exec") &&
           refusal->error_number == ENOENT;
}

static gboolean start_program(Run *run, Sandbox *sandbox, AgentClient *client, gboolean has_stdin,
                              GError **error)
{
    const Program *program = run->program;
    AgentRequest request = {
        .id = run->id,
        .argv = (const char *const *)program->argv->pdata,
        .env = (const char *const *)program->env->pdata,
        .cwd = "/workspace",
        .timeout_ms = run->options->timeout_ms,
        .grace_ms = GRACE_MS,
        .output_bytes = run->options->output_bytes,
        .has_stdin = has_stdin,
        .script_name = program->script_name,
        .script = program->source,
        .script_size = program->source_size,
        .sole = TRUE,
    };
    AgentRefusal refusal;
    GError *failed = NULL;
    if (agent_client_start(client, &request, &refusal, &failed))
        return TRUE;
    /* An agent that never came to be is explained by who made it. */
    if (command_not_executed(run, &refusal) || !sandbox_confirm(sandbox, error)) {
        g_error_free(failed);
    } else if (path_lacks_language(run, &refusal)) {
        g_error_free(failed);
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT,
                    "%s is not in the PATH that --env gives the program",
                    run->program->language->program);
    } else {
        g_propagate_error(error, failed);
    }
    return FALSE;
}

static gboolean relay_program(Run *run, AgentClient *client, GError **error)
{
    /* For good: who asks while the answer is being put together gets that answer, and no half-copied file. */
    autofd signal_fd = run->signal_fd = block_signals();
    AgentRelay relay = {
        .sink = run->options->json ? &kept_sink : &live_sink,
        .stdin_fd = STDIN_FILENO,
        .wish_fd = signal_fd,
        .wish = obey_signal,
        .user = run,
    };
    GError *failed = NULL;
    gboolean relayed = agent_client_relay(client, &relay, &run->outcome, &failed);
    /* Asked twice, or the end came in a way of its own: the answer is the same. */
    if (!relayed && run->caught) {
        g_clear_error(&failed);
        run->outcome = (AgentOutcome){.reason = AGENT_REASON_CANCELLED, .signal = SIGKILL};
        return TRUE;
    }
    if (!relayed)
        g_propagate_error(error, failed);
    return relayed;
}

/* Starts the program and follows it to its end. TRUE with run->outcome, also when the command could
 * not be executed. */
static gboolean execute(Run *run, Sandbox *sandbox, GError **error)
{
    g_autoptr(AgentClient) client = agent_client_new(sandbox_agent_fd(sandbox));
    gboolean code_is_stdin = run->options->program == PROGRAM_STDIN;
    gboolean has_stdin = !code_is_stdin && !is_null_device(STDIN_FILENO);
    if (!start_program(run, sandbox, client, has_stdin, error))
        return run->not_started != NULL;
    step_done("start");
    gboolean relayed = relay_program(run, client, error);
    step_done("run");
    return relayed;
}

/* ---- files */

/* Opens the directory of --out, which is made with its parents when it is not there. -1 when there
 * is none to be had. */
static int open_out_directory(const char *path, GError **error)
{
    if (g_mkdir_with_parents(path, OUT_DIRECTORY_MODE) < 0) {
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT,
                    "--out: cannot make the folder \"%s\": %s", path, g_strerror(errno));
        return -1;
    }
    autofd fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Asked now: after the run it would be too late. */
    if (fd >= 0 && faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0)
        return fd_steal(&fd);
    g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT, "--out: cannot %s the folder \"%s\": %s",
                fd < 0 ? "open" : "write into", path, g_strerror(errno));
    return -1;
}

static gboolean place_inputs(const Options *options, const Sandbox *sandbox, GError **error)
{
    int workspace_fd = sandbox_workspace_fd(sandbox), owner = sandbox_workspace_owner(sandbox);
    for (guint i = 0; i < options->inputs->len; i++) {
        if (!output_place_input(workspace_fd, options->inputs->pdata[i], owner, error)) {
            g_prefix_error(error, "--input: ");
            return FALSE;
        }
    }
    return TRUE;
}

static OutputSet *collect(const Options *options, Sandbox *sandbox, const OutputManifest *before,
                          int out_fd, GError **error)
{
    if (!sandbox_kill(sandbox, error))
        return NULL;
    step_done("kill");
    OutputRules rules;
    output_rules_init(&rules);
    rules.max_files = (guint)options->max_files;
    g_autoptr(GPtrArray) keep = g_ptr_array_new();
    for (guint i = 0; i < options->keep->len; i++)
        g_ptr_array_add(keep, options->keep->pdata[i]);
    g_ptr_array_add(keep, NULL);
    rules.keep = (const char *const *)keep->pdata;
    OutputSet *outputs =
        output_collect(sandbox_workspace_fd(sandbox), before, &rules, out_fd, error);
    if (!outputs && out_fd >= 0)
        g_prefix_error(error, "--out %s: ", options->out);
    step_done("collect");
    return outputs;
}

/* ---- the answer */

static int print_result(Run *run, const SandboxReceipt *receipt, const OutputSet *outputs,
                        GError **error)
{
    Result result = {
        .id = run->id,
        .language = run->program->language ? run->program->language->name : NULL,
        .outcome = &run->outcome,
        .interrupt_exit_status = run->caught ? EXIT_SIGNAL_BASE + run->caught : 0,
        .not_started = run->not_started,
        .outputs = outputs,
        .receipt = receipt,
        .options = run->options,
    };
    if (!run->options->json) {
        if (run->streams.live.error_number == EPIPE)
            return EXIT_SIGNAL_BASE + SIGPIPE;
        if (run->streams.live.error_number) {
            g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_IO,
                        "cannot write the program's output to standard %s: %s",
                        run->streams.live.failed == AGENT_STDOUT ? "output" : "error",
                        g_strerror(run->streams.live.error_number));
            return 0;
        }
        result_say(&result);
        if (outputs && run->options->out)
            result_say_collected(outputs, run->options->out);
        return result_exit_status(&result);
    }
    result.streams = &run->streams.kept;
    json_t *object = result_to_json(&result);
    gboolean gone;
    gboolean printed = result_print_json(object, &gone, error);
    json_decref(object);
    if (printed && gone)
        return EXIT_SIGNAL_BASE + SIGPIPE;
    return result_exit_status(&result);
}

/* The life of one run between the making of the sandbox and its end. */
static int run_in_sandbox(Run *run, Sandbox *sandbox, int out_fd, GError **error)
{
    const Options *options = run->options;
    gboolean collects = options->out || options->json;
    g_autoptr(OutputManifest) before = NULL;
    g_autoptr(OutputSet) outputs = NULL;

    if (!place_inputs(options, sandbox, error))
        return 0;
    step_done("inputs");
    if (collects && !(before = output_manifest_walk(sandbox_workspace_fd(sandbox), error)))
        return 0;
    step_done("manifest");
    if (!execute(run, sandbox, error))
        return 0;
    if (collects && !(outputs = collect(options, sandbox, before, out_fd, error)))
        return 0;
    if (!collects && run->outcome.left_running && !sandbox_kill(sandbox, error))
        return 0;
    int status = print_result(run, sandbox_receipt(sandbox), outputs, error);
    step_done("print");
    return status;
}

static void run_begin(Run *run, const Options *options, const Program *program, const char *cap)
{
    *run = (Run){.signal_fd = -1, .options = options, .program = program, .id = program_new_id()};
    if (options->json)
        kept_streams_init(&run->streams.kept);
    else
        live_streams_init(&run->streams.live, cap);
}

static void run_clear(Run *run)
{
    if (run->options->json)
        kept_streams_clear(&run->streams.kept);
    g_free(run->id);
    g_free(run->not_started);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Run, run_clear)

static int run_rejected(Run *run, GError **error)
{
    run->outcome = (AgentOutcome){.exited = TRUE, .exit_code = EXIT_REJECTED};
    run->not_started = g_strdup(run->program->rejected);
    return print_result(run, NULL, NULL, error);
}

static int run_program(Run *run, GError **error)
{
    const Options *options = run->options;
    autofd out_fd = -1;
    if (options->out && (out_fd = open_out_directory(options->out, error)) < 0)
        return 0;
    Sandbox *sandbox = sandbox_create(&options->sandbox, error);
    if (!sandbox)
        return 0;
    step_done("create");
    int status = run_in_sandbox(run, sandbox, out_fd, error);

    /* The table is printed when all is done, and the steps are the sandbox's. */
    if (options->sandbox.timing && !(error && *error) && !sandbox_confirm(sandbox, error))
        status = 0;
    gsize n_steps;
    const SandboxStep *borrowed = sandbox_steps(sandbox, &n_steps);
    g_autofree SandboxStep *steps =
        n_steps ? g_memdup2(borrowed, n_steps * sizeof *borrowed) : NULL;
    sandbox_free(sandbox);
    step_done("free");
    if (options->sandbox.timing)
        steps_print(steps, n_steps);
    return status;
}

int command_run(const Options *options, GError **error)
{
    g_auto(Program) program = {0};
    if (!program_load(&program, options, error))
        return 0;
    step_done("script");
    g_autofree char *cap = value_format(VALUE_SIZE, options->output_bytes);
    g_auto(Run) run;
    run_begin(&run, options, &program, cap);
    return program.rejected ? run_rejected(&run, error) : run_program(&run, error);
}
