#include "launcher/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "launcher/net.h"
#include "launcher/root.h"

/* Theory of operation.
 *
 * This is the child of clone3(2): PID 1 of the new namespaces, a copy of the launcher, with every capability over its own user
 * namespace and none over the host. It does the steps of inside_run() in order; each names itself in the shared report, so
 * that the launcher can say what failed even when the child is gone. It ends by becoming hutch-agent; the launcher sees that
 * as the end of file on `sync`. While the child builds the root the launcher makes the disk and the cgroups on another processor,
 * and hands them over just before they are needed. */

struct inside {
    struct sandbox *sandbox;
    int sync;
    int connection;
    struct cgroup_handle handles[CGROUP_MAX_HANDLES];
    int n_handles;
    int workspace_mount; /* detached; -1: mount a tmpfs */
    char *detail;
};

static bool is_single_id(const struct inside *inside)
{
    return inside->sandbox->ids.lock_fd < 0;
}

static int wait_for_maps(struct inside *inside)
{
    char message;
    size_t n_fds = 0;
    ssize_t n = fd_receive_message(inside->sync, &message, 1, NULL, &n_fds);
    if (n == 0)
        _exit(1); /* the launcher is gone */
    if (n < 0)
        return (int)n;
    return message == INSIDE_MAPS ? 0 : -EPROTO;
}

/* Root of the user namespace, without the launcher's groups. With one id only there is nothing to become: the child has all
 * capabilities until exec, and writing gid_map took away setgroups(2). */
static int step_identity(struct inside *inside)
{
    umask(022);
    if (!is_single_id(inside) &&
        (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0))
        return -errno;
    /* After the change of ids, which clears it. The launcher may have died before: then `sync` is at its end, and the next wait
     * on it ends this process. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    return sethostname("sandbox", strlen("sandbox")) < 0 ? -errno : 0;
}

static int step_network(struct inside *inside)
{
    (void)inside;
    return net_loopback_up();
}

static int step_root(struct inside *inside)
{
    return root_begin(inside->detail);
}

static int step_etc(struct inside *inside)
{
    return root_etc(inside->detail);
}

static unsigned cpu_count(const struct inside *inside)
{
    return (unsigned)((inside->sandbox->request.limits[LAUNCH_CPU] + 999) / 1000);
}

static int step_dev(struct inside *inside)
{
    int r = root_sys(cpu_count(inside), inside->detail);
    return r < 0 ? r : root_dev(inside->detail);
}

static int step_proc(struct inside *inside)
{
    return root_proc(inside->detail);
}

static int step_read_only(struct inside *inside)
{
    return root_read_only(inside->detail);
}

static int step_writable(struct inside *inside)
{
    return root_writable(inside->sandbox->tmp_bytes, inside->detail);
}

/* Receives what the launcher made meanwhile. The cgroup handles are in the order of cgroup_open_handles(), whose keys the child
 * learns by their index in the message. */
static int receive_resources(struct inside *inside)
{
    struct inside_resources resources;
    int fds[FD_MESSAGE_MAX];
    size_t n_fds = FD_MESSAGE_MAX;
    ssize_t n = fd_receive_message(inside->sync, &resources, sizeof(resources), fds, &n_fds);
    if (n == 0)
        _exit(1);
    if (n < 0)
        return (int)n;
    if (n != sizeof(resources) || resources.message != INSIDE_RESOURCES ||
        (size_t)resources.n_handles + (size_t)resources.has_mount != n_fds)
        return -EPROTO;
    static char keys[CGROUP_MAX_HANDLES][16];
    memcpy(keys, resources.keys, sizeof(keys));
    for (int i = 0; i < resources.n_handles; i++)
        inside->handles[i] = (struct cgroup_handle){keys[i], fds[i]};
    inside->n_handles = resources.n_handles;
    inside->workspace_mount = resources.has_mount ? fds[n_fds - 1] : -1;
    return 0;
}

static int step_workspace(struct inside *inside)
{
    int r = receive_resources(inside);
    if (r == 0)
        r = root_workspace(inside->workspace_mount, inside->sandbox->request.limits[LAUNCH_DISK],
                           inside->detail);
    if (r < 0 || inside->workspace_mount >= 0)
        return r;
    /* The client reaches a tmpfs through a descriptor of this mount. */
    autofd directory = open("workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    char message = INSIDE_WORKSPACE;
    return fd_send_message(inside->sync, &message, 1, &directory, 1);
}

static int step_pivot(struct inside *inside)
{
    return root_pivot(inside->detail);
}

/* Descriptors are close-on-exec by birth; once more for whatever was inherited, then the agent's are let through. 0-2 become the
 * null device: an inherited stdout would keep the caller's pipe open for the life of the sandbox. */
static int step_descriptors(struct inside *inside)
{
    int r = fd_null_standard_streams();
    if (r == 0)
        r = sys_close_range(3, ~0u, CLOSE_RANGE_CLOEXEC); /* Linux 5.11 */
    if (r < 0)
        return r;
    /* A cgroup namespace of its own belongs to the code (the agent unshares it after joining); where there is no group to join
     * PID 1 takes one, so that no path of the host shows. */
    if (inside->n_handles == 0 && unshare(CLONE_NEWCGROUP) < 0)
        return -errno;
    return 0;
}

static int keep_over_exec(int fd)
{
    return fcntl(fd, F_SETFD, 0) < 0 ? -errno : 0;
}

/* Of an ordinary user's sandbox: the agent will be id 1000 and lose everything at exec, so the bounding set is emptied while there is a
 * right to. Where there are groups to join it keeps one capability over the sandbox's own user namespace, for the code's cgroup
 * namespaces. What becomes inheritable must still be in the bounding set at that moment (capset(2)). */
static int reduce_capabilities(const struct inside *inside)
{
    uint64_t kept = inside->n_handles > 0 ? 1ull << CAP_SYS_ADMIN : 0;
    int r = sys_capset(~0ull, ~0ull, kept);
    if (r == 0)
        r = sys_empty_bounding_set();
    if (r == 0)
        r = sys_capset(kept, kept, kept);
    if (r == 0 && kept && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0) < 0)
        r = -errno;
    return r;
}

static int become_agent(struct inside *inside)
{
    const struct sandbox *sandbox = inside->sandbox;
    const uint64_t *limits = sandbox->request.limits;
    static char text[32][64];
    char *argv[34];
    int n = 0, n_text = 0;
    argv[n++] = "hutch-agent";
#define ARGUMENT(...)                                                                              \
    do {                                                                                           \
        snprintf(text[n_text], sizeof(text[0]), __VA_ARGS__);                                      \
        argv[n++] = text[n_text++];                                                                \
    } while (0)

    int spool = memfd_create("spool", MFD_CLOEXEC);
    if (spool < 0)
        return -errno;
    int keep[] = {spool, inside->connection, sandbox->ids.lock_fd};
    for (size_t i = 0; i < sizeof(keep) / sizeof(keep[0]); i++) {
        int r = keep[i] < 0 ? 0 : keep_over_exec(keep[i]);
        if (r < 0)
            return r;
    }
    ARGUMENT("connection=%d", inside->connection);
    ARGUMENT("spool=%d", spool);
    ARGUMENT("tied=1");
    ARGUMENT("agent_uid=%d", is_single_id(inside) ? IDS_CODE : 0);
    ARGUMENT("code_uid=%d", IDS_CODE);

    char tasks[64] = "";
    for (int i = 0; i < inside->n_handles; i++) {
        const struct cgroup_handle *handle = &inside->handles[i];
        int r = keep_over_exec(handle->fd);
        if (r < 0)
            return r;
        if (strcmp(handle->key, "tasks") == 0)
            snprintf(tasks + strlen(tasks), sizeof(tasks) - strlen(tasks), "%s%d",
                     tasks[0] ? "," : "tasks=", handle->fd);
        else
            ARGUMENT("%s=%d", handle->key, handle->fd);
    }
    if (tasks[0])
        ARGUMENT("%s", tasks);
    ARGUMENT("cgroup=%s", inside->n_handles == 0                      ? "none"
                          : cgroup_needs_clone_into(&sandbox->cgroup) ? "v2"
                                                                      : "v1");

    /* Where the cgroup counts processes the rlimit is only a net behind it. */
    bool pids_counted = sandbox->cgroup.dir_of[CGROUP_PIDS] >= 0;
    ARGUMENT("nproc=%llu", (unsigned long long)(pids_counted ? 2 * limits[LAUNCH_PIDS] + 64
                                                             : limits[LAUNCH_PIDS] + 1));
    ARGUMENT("nofile=%llu", (unsigned long long)limits[LAUNCH_OPEN_FILES]);
    if (sandbox->cgroup.dir_of[CGROUP_MEMORY] < 0)
        ARGUMENT("data_bytes=%llu", (unsigned long long)limits[LAUNCH_MEMORY]);
    ARGUMENT("cpus=%u", cpu_count(inside));
    ARGUMENT("first_cpu=%u", sandbox->ids.slot);
#undef ARGUMENT
    argv[n] = NULL;

    if (is_single_id(inside)) {
        int r = reduce_capabilities(inside);
        if (r < 0)
            return r;
    }
    char *const envp[] = {NULL};
    return sys_execveat_fd(sandbox->launcher->agent_fd, argv, envp);
}

static const struct {
    enum launch_step step;
    int (*run)(struct inside *inside);
} steps[] = {
    {LAUNCH_STEP_IDENTITY, step_identity},
    {LAUNCH_STEP_NETWORK, step_network},
    {LAUNCH_STEP_ROOT, step_root},
    {LAUNCH_STEP_ETC, step_etc},
    {LAUNCH_STEP_DEV, step_dev},
    {LAUNCH_STEP_PROC, step_proc},
    {LAUNCH_STEP_READ_ONLY, step_read_only},
    {LAUNCH_STEP_WRITABLE, step_writable},
    {LAUNCH_STEP_WORKSPACE, step_workspace},
    {LAUNCH_STEP_PIVOT, step_pivot},
    {LAUNCH_STEP_DESCRIPTORS, step_descriptors},
};

static void fail(struct sandbox *sandbox, enum launch_step step, int error)
    __attribute__((noreturn));
static void fail(struct sandbox *sandbox, enum launch_step step, int error)
{
    sandbox->report->step = step;
    sandbox->report->error = error;
    _exit(1);
}

/* The hook for crash tests: this process cannot signal the launcher from its namespaces, so it asks for it and stands still. */
static void stop_at_fault(struct inside *inside, enum launch_step step)
{
    const struct launch_request *request = &inside->sandbox->request;
    if (request->fault == LAUNCH_FAULT_NONE || request->fault_step != step)
        return;
    char message = INSIDE_FAULT;
    (void)fd_send_message(inside->sync, &message, 1, NULL, 0);
    for (;;)
        pause();
}

void inside_run(struct sandbox *sandbox, int sync, int agent_connection)
{
    static struct inside inside;
    inside = (struct inside){
        .sandbox = sandbox, .sync = sync, .connection = agent_connection, .workspace_mount = -1};
    inside.detail = sandbox->report->detail;
    signal(SIGPIPE, SIG_IGN);
    /* The copies of the launcher's own ends: with one of them open, the end of the launcher would never be seen here, nor by its client. */
    fd_clear(&sandbox->sync);
    fd_clear(&sandbox->agent);
    fd_clear(&sandbox->pidfd);
    /* Its lock says that the launcher lives (flock(2) belongs to the open file, which this is a copy of). */
    fd_clear(&sandbox->record.fd);
    close(LAUNCHER_CLIENT_FD);
    int r = wait_for_maps(&inside);
    if (r < 0)
        fail(sandbox, LAUNCH_STEP_ID_MAPS, r);
    sandbox->report->last_us = clock_monotonic_us(); /* this side's first step begins now */
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        r = steps[i].run(&inside);
        if (r < 0)
            fail(sandbox, steps[i].step, r);
        sandbox_step(sandbox, sandbox->report, steps[i].step);
        stop_at_fault(&inside, steps[i].step);
    }
    /* The agent starts with signals as a fresh process has them: the launcher's are not its business. */
    signal(SIGPIPE, SIG_DFL);
    fail(sandbox, LAUNCH_STEP_AGENT, become_agent(&inside));
}
