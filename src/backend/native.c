#include "backend/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/process.h"
#include "wire/launch.h"

/* The native backend: a launcher of its own per sandbox, started with one end of a socketpair as descriptor
 * 3 and an empty environment. All that is privileged or clever happens there. */

G_STATIC_ASSERT((int)N_LIMITS == (int)LAUNCH_N_LIMITS);
G_STATIC_ASSERT((int)LIMIT_TMP == (int)LAUNCH_TMP && (int)LIMIT_CPU == (int)LAUNCH_CPU);

enum {
    LAUNCHER_FD = 3,
    REPLY_WAIT_MS = 70000, /* longer than the launcher waits for its child */
};

struct Sandbox {
    int launcher;
    int agent;
    int workspace;
    int workspace_owner;
    gboolean confirmed;
    struct launch_request request;
    SandboxReceipt receipt;
    SandboxStep steps[LAUNCH_N_STEPS];
    gsize n_steps;
};

static const struct {
    const char *name;
    const char *option;
    uint64_t value;
} limit_rows[N_LIMITS] = {
    [LIMIT_MEMORY] = {"memory", "--memory", 1ull << 30},
    [LIMIT_PIDS] = {"pids", "--pids", 256},
    [LIMIT_CPU] = {"cpu", "--cpus", 1000},
    [LIMIT_DISK] = {"disk", "--disk", 1ull << 30},
    [LIMIT_OPEN_FILES] = {"open_files", "--open-files", 1024},
    [LIMIT_TMP] = {"tmp", "--tmp", 448ull << 20},
};

static const struct {
    const char *name, *who, *doing, *mend;
} step_rows[LAUNCH_N_STEPS] = {
#define X(name, word, who, doing, mend) {word, who, doing, mend},
    LAUNCH_STEPS(X)
#undef X
};

static const char *const how_words[] = {
#define X(name, word) word,
    LAUNCH_HOWS(X)
#undef X
};

static const struct {
    const char *why, *mend;
} why_rows[] = {
#define X(name, why, mend) {why, mend},
    LAUNCH_WHYS(X)
#undef X
};

static const struct {
    uint64_t least, most;
} bounds_rows[N_LIMITS] = {
#define X(name, least, most) [LAUNCH_##name] = {least, most},
    LAUNCH_BOUNDS(X)
#undef X
};

static const char *const namespaces[] = {"user", "pid", "mount",  "network",
                                         "ipc",  "uts", "cgroup", NULL};

void limit_bounds(LimitKind kind, uint64_t *least, uint64_t *most)
{
    *least = bounds_rows[kind].least;
    *most = bounds_rows[kind].most;
}

const char *limit_name(LimitKind kind)
{
    return limit_rows[kind].name;
}

void sandbox_spec_init(SandboxSpec *spec)
{
    *spec = (SandboxSpec){0};
    for (int i = 0; i < N_LIMITS; i++)
        spec->limits[i].value = limit_rows[i].value;
}

/* Beside this program, as in a build directory; else where it was installed to. */
static char *find_program(const char *name, GError **error)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = '\0';
        g_autofree char *directory = g_path_get_dirname(self);
        g_autofree char *path = g_build_filename(directory, name, NULL);
        if (access(path, X_OK) == 0)
            return g_steal_pointer(&path);
    }
    g_autofree char *path = g_build_filename(HUTCH_LIBEXECDIR, name, NULL);
    if (access(path, X_OK) == 0)
        return g_steal_pointer(&path);
    g_set_error(
        error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
        "%s is missing: it belongs beside hutch or at %s; build all of hutch (make) or install it again",
        name, path);
    return NULL;
}

char *sandbox_state_dir(const char *asked, GError **error)
{
    if (asked)
        return g_canonicalize_filename(asked, NULL);
    if (geteuid() == 0)
        return g_strdup("/var/lib/hutch");
    const char *state = g_getenv("XDG_STATE_HOME");
    if (state && state[0] == '/')
        return g_build_filename(state, "hutch", NULL);
    const char *home = g_getenv("HOME");
    if (home && home[0] == '/')
        return g_build_filename(home, ".local", "state", "hutch", NULL);
    g_set_error_literal(
        error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
        "there is no place for the state of runs: set HOME or XDG_STATE_HOME, or give --state-dir");
    return NULL;
}

static gboolean start_launcher(Sandbox *sandbox, const char *launcher, const char *agent,
                               const char *state_dir, GError **error)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
                    "starting the launcher: socketpair: %s", g_strerror(errno));
        return FALSE;
    }
    sandbox->launcher = pair[0];
    autofd child = pair[1];
    char *argv[] = {"hutch-launcher", (char *)agent, (char *)state_dir, NULL};
    char *envp[] = {NULL};
    pid_t pid = process_spawn(launcher, argv, envp, child, LAUNCHER_FD);
    if (pid < 0) {
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX, "starting %s: %s", launcher,
                    g_strerror(-pid));
        return FALSE;
    }
    return TRUE;
}

/* "hutch@STEP" or "launcher@STEP", where STEP is one of the launcher's; hutch's own are honoured by the command line. */
static void parse_fault(const char *fault, struct launch_request *request)
{
    const char *at = fault ? strchr(fault, '@') : NULL;
    for (int i = 0; at && i < LAUNCH_N_STEPS; i++) {
        if (strcmp(at + 1, step_rows[i].name) == 0) {
            request->fault =
                g_str_has_prefix(fault, "launcher@") ? LAUNCH_FAULT_LAUNCHER : LAUNCH_FAULT_HUTCH;
            request->fault_step = (uint32_t)i;
        }
    }
}

/* What lacks everywhere is not the step's fault. */
static const char *mend_of(guint step, int error)
{
    if (error == -EMFILE || error == -ENFILE)
        return "raise the limit of open files (ulimit -n)";
    if (error == -EFBIG)
        return "raise the limit on file sizes (ulimit -f)";
    return step_rows[step].mend;
}

/* Waits for the launcher's next answer; the descriptors that come with it are stored in `fds`. */
static gboolean receive_reply(Sandbox *sandbox, struct launch_reply *reply, int *fds, size_t *n_fds,
                              GError **error)
{
    struct pollfd poll_fd = {.fd = sandbox->launcher, .events = POLLIN};
    int ready;
    do {
        ready = poll(&poll_fd, 1, REPLY_WAIT_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) {
        g_set_error_literal(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
                            "the launcher does not answer; see dmesg");
        return FALSE;
    }
    ssize_t n = fd_receive_message(sandbox->launcher, reply, sizeof(*reply), fds, n_fds);
    if (n != (ssize_t)sizeof(*reply) || reply->size != sizeof(*reply)) {
        for (size_t i = 0; n > 0 && i < *n_fds; i++)
            close(fds[i]);
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
                    "the launcher died before it answered%s%s; what it left is removed by "
                    "the next run",
                    n < 0 ? ": " : "", n < 0 ? g_strerror((int)-n) : "");
        return FALSE;
    }
    reply->detail[sizeof(reply->detail) - 1] = '\0';
    if (reply->error < 0) {
        guint step = MIN(reply->step, (guint)LAUNCH_N_STEPS - 1);
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
                    "%s failed (step %s%s%s): %s; to mend it: %s", step_rows[step].doing,
                    step_rows[step].name, reply->detail[0] ? ", " : "", reply->detail,
                    g_strerror(-reply->error), mend_of(step, reply->error));
        return FALSE;
    }
    return TRUE;
}

static gboolean send_request(Sandbox *sandbox, uint32_t type, GError **error)
{
    sandbox->request.type = type;
    int r =
        fd_send_message(sandbox->launcher, &sandbox->request, sizeof(sandbox->request), NULL, 0);
    /* A launcher that could not even begin has answered already and is gone (EPIPE): its answer is still there to read. */
    if (r == 0 || r == -EPIPE)
        return TRUE;
    g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX, "talking to the launcher: %s",
                g_strerror(-r));
    return FALSE;
}

static void fill_receipt(Sandbox *sandbox, const struct launch_reply *reply)
{
    SandboxReceipt *receipt = &sandbox->receipt;
    receipt->backend = "native";
    receipt->root = "host";
    receipt->namespaces = namespaces;
    receipt->filter = "seccomp";
    receipt->agent_shares_uid = reply->shares_uid;
    receipt->notes = g_ptr_array_new_with_free_func(g_free);
    gboolean v1 = FALSE, v2 = FALSE;
    for (int i = 0; i < N_LIMITS; i++) {
        guint how =
            reply->how[i] < G_N_ELEMENTS(how_words) ? reply->how[i] : (guint)LAUNCH_HOW_NOTHING;
        guint why = reply->why[i] < G_N_ELEMENTS(why_rows) ? reply->why[i] : (guint)LAUNCH_WHY_NONE;
        v1 |= how == LAUNCH_HOW_CGROUP1;
        v2 |= how == LAUNCH_HOW_CGROUP2;
        LimitReceipt *limit = &receipt->limits[i];
        limit->value = reply->values[i];
        limit->enforced = reply->enforced[i];
        limit->how = how_words[how];
        if (why != LAUNCH_WHY_NONE)
            limit->note = g_strdup_printf("%s; %s", why_rows[why].why, why_rows[why].mend);
    }
    receipt->cgroup = v1 && v2 ? "v1+v2" : v2 ? "v2" : v1 ? "v1" : "none";
    if (receipt->agent_shares_uid)
        g_ptr_array_add(receipt->notes,
                        g_strdup("agent_shares_uid: one user id serves the agent and the code"));
}

/* A limit that was asked for holds, or nothing runs. */
static gboolean check_asked(const Sandbox *sandbox, const SandboxSpec *spec, GError **error)
{
    for (int i = 0; i < N_LIMITS && !spec->best_effort; i++) {
        const LimitReceipt *limit = &sandbox->receipt.limits[i];
        if (!spec->limits[i].asked || limit->enforced)
            continue;
        g_set_error(
            error, HUTCH_ERROR, HUTCH_ERROR_UNENFORCEABLE,
            "%s cannot be enforced here: %s; or run with --best-effort, without the guarantee",
            limit_rows[i].option, limit->note ? limit->note : "nothing on this host can do it");
        return FALSE;
    }
    return TRUE;
}

Sandbox *sandbox_create(const SandboxSpec *spec, GError **error)
{
    g_autofree char *launcher = find_program("hutch-launcher", error);
    g_autofree char *agent = launcher ? find_program("hutch-agent", error) : NULL;
    g_autofree char *state_dir = agent ? sandbox_state_dir(spec->state_dir, error) : NULL;
    if (!state_dir)
        return NULL;
    g_autoptr(Sandbox) sandbox = g_new0(Sandbox, 1);
    sandbox->launcher = sandbox->agent = sandbox->workspace = -1;
    sandbox->request =
        (struct launch_request){.size = sizeof(sandbox->request), .version = LAUNCH_VERSION};
    for (int i = 0; i < N_LIMITS; i++)
        sandbox->request.limits[i] = spec->limits[i].value;
    parse_fault(spec->fault, &sandbox->request);
    if (!start_launcher(sandbox, launcher, agent, state_dir, error))
        return NULL;

    struct launch_reply reply = {0};
    int fds[LAUNCH_N_FDS];
    size_t n_fds = LAUNCH_N_FDS;
    if (!send_request(sandbox, LAUNCH_CREATE, error) ||
        !receive_reply(sandbox, &reply, fds, &n_fds, error))
        return NULL;
    if (n_fds != LAUNCH_N_FDS) {
        g_set_error_literal(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
                            "the launcher answered without its descriptors");
        return NULL;
    }
    sandbox->agent = fds[LAUNCH_FD_AGENT];
    sandbox->workspace = fds[LAUNCH_FD_WORKSPACE];
    sandbox->workspace_owner = reply.workspace_owner;
    fill_receipt(sandbox, &reply);
    if (!check_asked(sandbox, spec, error))
        return NULL;
    return g_steal_pointer(&sandbox);
}

gboolean sandbox_confirm(Sandbox *sandbox, GError **error)
{
    if (sandbox->confirmed)
        return TRUE;
    struct launch_reply reply = {0};
    size_t n_fds = 0;
    if (!receive_reply(sandbox, &reply, NULL, &n_fds, error))
        return FALSE;
    sandbox->confirmed = TRUE;
    for (guint i = 0; i < reply.n_steps && i < LAUNCH_N_STEPS; i++) {
        guint step = MIN(reply.steps[i].step, (guint)LAUNCH_N_STEPS - 1);
        sandbox->steps[sandbox->n_steps++] =
            (SandboxStep){step_rows[step].who, step_rows[step].name, reply.steps[i].us};
    }
    return TRUE;
}

int sandbox_agent_fd(const Sandbox *sandbox)
{
    return sandbox->agent;
}

int sandbox_workspace_fd(const Sandbox *sandbox)
{
    return sandbox->workspace;
}

int sandbox_workspace_owner(const Sandbox *sandbox)
{
    return sandbox->workspace_owner;
}

const SandboxReceipt *sandbox_receipt(const Sandbox *sandbox)
{
    return &sandbox->receipt;
}

const SandboxStep *sandbox_steps(const Sandbox *sandbox, gsize *n_steps)
{
    *n_steps = sandbox->n_steps;
    return sandbox->steps;
}

gboolean sandbox_kill(Sandbox *sandbox, GError **error)
{
    struct launch_reply reply = {0};
    size_t n_fds = 0;
    return sandbox_confirm(sandbox, error) && send_request(sandbox, LAUNCH_KILL, error) &&
           receive_reply(sandbox, &reply, NULL, &n_fds, error);
}

void sandbox_free(Sandbox *sandbox)
{
    if (!sandbox)
        return;
    fd_clear(&sandbox->workspace);
    fd_clear(&sandbox->agent);
    fd_clear(&sandbox->launcher);
    for (int i = 0; i < N_LIMITS; i++)
        g_free(sandbox->receipt.limits[i].note);
    g_clear_pointer(&sandbox->receipt.notes, g_ptr_array_unref);
    g_free(sandbox);
}
