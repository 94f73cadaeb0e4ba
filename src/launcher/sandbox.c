#include "launcher/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "launcher/inside.h"

enum { KILL_WAIT_MS = 10000, CREATE_WAIT_MS = 60000 };

void sandbox_init(struct sandbox *sandbox)
{
    *sandbox = (struct sandbox){
        .pidfd = -1, .sync = -1, .agent = -1, .workspace = -1, .ids = {.lock_fd = -1}};
    record_init(&sandbox->record);
    cgroup_init(&sandbox->cgroup);
    disk_init(&sandbox->disk);
}

void sandbox_fault(const struct launch_request *request, enum launch_step step)
{
    if (request->fault == LAUNCH_FAULT_NONE || request->fault_step != step)
        return;
    (void)kill(request->fault == LAUNCH_FAULT_HUTCH ? getppid() : getpid(), SIGKILL);
}

void sandbox_step(struct sandbox *sandbox, struct sandbox_report *report, enum launch_step step)
{
    uint64_t now = clock_monotonic_us();
    if (report->n_steps < LAUNCH_N_STEPS) {
        uint32_t us = (uint32_t)(now - (report->last_us ? report->last_us : now));
        report->steps[report->n_steps++] = (struct launch_step_time){.step = step, .us = us};
    }
    report->last_us = now;
    if (report == &sandbox->own)
        sandbox_fault(&sandbox->request, step);
}

/* One row per step of the launcher's side. */

static int step_record(struct sandbox *sandbox, char *detail)
{
    (void)detail;
    int r = record_make_id(sandbox->id);
    if (r < 0)
        return r;
    cgroup_plan(&sandbox->cgroup, sandbox->id);
    char text[(CGROUP_N_CONTROLLERS + 1) * (CGROUP_PATH_MAX + 8)] = "";
    for (unsigned i = 0; i < sandbox->cgroup.n_dirs; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "cgroup %s\n", sandbox->cgroup.dirs[i].path);
    }
    return record_create(&sandbox->record, sandbox->launcher->state_fd, sandbox->id, text);
}

static int step_ids(struct sandbox *sandbox, char *detail)
{
    (void)detail;
    if (sandbox->launcher->is_root)
        return ids_take(&sandbox->ids);
    ids_of_user(&sandbox->ids);
    return 0;
}

static int step_cgroup(struct sandbox *sandbox, char *detail)
{
    uid_t owner = sandbox->launcher->is_root ? sandbox->ids.base : (uid_t)-1;
    return cgroup_create(&sandbox->cgroup, sandbox->request.limits, owner, detail);
}

/* As root the user namespaces belong to an unprivileged id of Hutch's own, so that the processes which later join sandboxes need no
 * privilege: the owner is the effective uid at clone3(2). The launcher's securebits keep its capabilities meanwhile. */
static int step_namespaces(struct sandbox *sandbox, char *detail)
{
    int sync[2], connection[2];
    snprintf(detail, 108, "socketpair");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync) < 0)
        return -errno;
    sandbox->sync = sync[0];
    autofd child_sync = sync[1];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, connection) < 0)
        return -errno;
    sandbox->agent = connection[0];
    autofd child_connection = connection[1];
    sandbox->report = mmap(NULL, sizeof(*sandbox->report), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sandbox->report == MAP_FAILED) {
        sandbox->report = NULL;
        return -errno;
    }

    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC |
                 CLONE_NEWUTS | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
        .exit_signal = SIGCHLD,
        .pidfd = (uintptr_t)&sandbox->pidfd,
    };
    if (cgroup_needs_clone_into(&sandbox->cgroup)) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)sandbox->cgroup.agent_group;
    }
    snprintf(detail, 108, "clone3");
    if (sandbox->launcher->is_root && setresuid((uid_t)-1, IDS_OWNER, (uid_t)-1) < 0)
        return -errno;
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        inside_run(sandbox, child_sync, child_connection);
    if (sandbox->launcher->is_root && setresuid((uid_t)-1, 0, (uid_t)-1) < 0)
        _exit(
            125); /* cannot happen: the real id is root's. Going on with half the rights is no option */
    if (pid < 0)
        return pid;
    sandbox->pid = pid;
    detail[0] = '\0';
    return 0;
}

static int step_id_maps(struct sandbox *sandbox, char *detail)
{
    (void)detail;
    int r = ids_write_maps(&sandbox->ids, sandbox->pid);
    if (r < 0)
        return r;
    char message = INSIDE_MAPS;
    return fd_send_message(sandbox->sync, &message, 1, NULL, 0);
}

static int idmap_disk(struct sandbox *sandbox)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)sandbox->pid);
    autofd userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        return -errno;
    return disk_idmap(&sandbox->disk, userns);
}

static void note_limit(struct launch_reply *reply, enum launch_limit limit, bool enforced,
                       enum launch_how how, enum launch_why why)
{
    reply->enforced[limit] = enforced;
    reply->how[limit] = (uint8_t)how;
    reply->why[limit] = (uint8_t)why;
}

/* An image under root; a tmpfs, with the reason, where that is not to be had. Then everything that the child waits for. */
static int make_disk(struct sandbox *sandbox, struct launch_reply *reply, char *detail)
{
    const struct launcher *launcher = sandbox->launcher;
    enum launch_why why = LAUNCH_WHY_USER_TMPFS;
    if (launcher->is_root) {
        int r = disk_create(&sandbox->disk, launcher->templates_fd, launcher->state_fd,
                            sandbox->request.limits[LAUNCH_DISK], detail);
        if (r == 0)
            r = idmap_disk(sandbox);
        if (r < 0)
            return r;
        why = (enum launch_why)r;
    }
    bool image = sandbox->disk.mount_fd >= 0;
    note_limit(reply, LAUNCH_DISK, true, image ? LAUNCH_HOW_IMAGE : LAUNCH_HOW_TMPFS, why);
    reply->workspace_owner = launcher->is_root ? (int32_t)sandbox->ids.base + IDS_CODE : -1;
    return 0;
}

static int send_resources(struct sandbox *sandbox)
{
    struct inside_resources resources = {.message = INSIDE_RESOURCES};
    struct cgroup_handle handles[CGROUP_MAX_HANDLES];
    int n = cgroup_open_handles(&sandbox->cgroup, handles);
    if (n < 0)
        return n;
    int fds[FD_MESSAGE_MAX];
    size_t n_fds = 0;
    for (int i = 0; i < n; i++) {
        snprintf(resources.keys[i], sizeof(resources.keys[i]), "%s", handles[i].key);
        fds[n_fds++] = handles[i].fd;
    }
    resources.n_handles = (char)n;
    if (sandbox->disk.mount_fd >= 0) {
        fds[n_fds++] = sandbox->disk.mount_fd;
        resources.has_mount = 1;
    }
    int r = fd_send_message(sandbox->sync, &resources, sizeof(resources), fds, n_fds);
    for (int i = 0; i < n; i++)
        close(handles[i].fd);
    fd_clear(&sandbox->disk.mount_fd);
    return r;
}

/* Waits for the child's next message, or its end of file: it has become the agent, or has ended. The message 0 stands for that. */
static int wait_for_child(struct sandbox *sandbox, char *message)
{
    struct pollfd poll_fd = {.fd = sandbox->sync, .events = POLLIN};
    int ready;
    do {
        ready = poll(&poll_fd, 1, CREATE_WAIT_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        return ready < 0 ? -errno : -ETIMEDOUT;
    int fds[1];
    size_t n_fds = 1;
    ssize_t n = fd_receive_message(sandbox->sync, message, 1, fds, &n_fds);
    if (n < 0)
        return (int)n;
    if (n == 0)
        *message = 0;
    else if (*message == INSIDE_WORKSPACE && n_fds == 1)
        sandbox->workspace = fds[0];
    else if (*message == INSIDE_FAULT && n_fds == 0)
        sandbox_fault(&sandbox->request, (enum launch_step)sandbox->request.fault_step);
    else
        return -EPROTO;
    return *message == INSIDE_FAULT ? -ECANCELED : 0;
}

/* The client reaches the disk through the launcher's descriptor, a tmpfs through one that the child sends. */
static int get_workspace(struct sandbox *sandbox)
{
    if (sandbox->disk.directory_fd >= 0) {
        sandbox->workspace = fcntl(sandbox->disk.directory_fd, F_DUPFD_CLOEXEC, 3);
        return sandbox->workspace < 0 ? -errno : 0;
    }
    char message;
    int r = wait_for_child(sandbox, &message);
    return r < 0 ? r : message == INSIDE_WORKSPACE ? 0 : -ECHILD;
}

static int step_disk(struct sandbox *sandbox, struct launch_reply *reply, char *detail)
{
    int r = make_disk(sandbox, reply, detail);
    if (r == 0)
        r = send_resources(sandbox);
    return r < 0 ? r : get_workspace(sandbox);
}

static int step_agent(struct sandbox *sandbox)
{
    char message;
    int r = wait_for_child(sandbox, &message);
    if (r == 0 && message != 0)
        r = -EPROTO;
    return r < 0 ? r : sandbox->report->error;
}

static void describe_limits(const struct sandbox *sandbox, struct launch_reply *reply)
{
    static const enum launch_limit limit_of[CGROUP_N_CONTROLLERS] = {
        [CGROUP_MEMORY] = LAUNCH_MEMORY,
        [CGROUP_PIDS] = LAUNCH_PIDS,
        [CGROUP_CPU] = LAUNCH_CPU,
    };
    for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
        int index = sandbox->cgroup.dir_of[i];
        bool enforced = index >= 0;
        enum launch_how how = !enforced                                  ? LAUNCH_HOW_NOTHING
                              : sandbox->cgroup.dirs[index].version == 1 ? LAUNCH_HOW_CGROUP1
                                                                         : LAUNCH_HOW_CGROUP2;
        note_limit(reply, limit_of[i], enforced, how, (enum launch_why)sandbox->cgroup.why[i]);
    }
    if (reply->enforced[LAUNCH_MEMORY] && sandbox->cgroup.swap_uncounted)
        note_limit(reply, LAUNCH_MEMORY, false, (enum launch_how)reply->how[LAUNCH_MEMORY],
                   LAUNCH_WHY_SWAP);
    else if (!reply->enforced[LAUNCH_MEMORY])
        reply->how[LAUNCH_MEMORY] = LAUNCH_HOW_RLIMIT_EACH;
    /* Counted per user namespace and uid since Linux 5.14, so it is the sandbox's own. */
    if (!reply->enforced[LAUNCH_PIDS])
        note_limit(reply, LAUNCH_PIDS, true, LAUNCH_HOW_RLIMIT, LAUNCH_WHY_NONE);
    if (!reply->enforced[LAUNCH_CPU])
        reply->how[LAUNCH_CPU] = LAUNCH_HOW_AFFINITY;
    note_limit(reply, LAUNCH_OPEN_FILES, true, LAUNCH_HOW_RLIMIT, LAUNCH_WHY_NONE);
    bool scaled = sandbox->tmp_bytes < sandbox->request.limits[LAUNCH_TMP];
    note_limit(reply, LAUNCH_TMP, true, LAUNCH_HOW_TMPFS,
               scaled ? LAUNCH_WHY_SCALED : LAUNCH_WHY_NONE);
    memcpy(reply->values, sandbox->request.limits, sizeof(reply->values));
    reply->values[LAUNCH_TMP] = sandbox->tmp_bytes;
    reply->shares_uid = !sandbox->launcher->is_root;
}

static void copy_steps(const struct sandbox *sandbox, struct launch_reply *reply)
{
    const struct sandbox_report *reports[] = {&sandbox->own, sandbox->report};
    for (int i = 0; i < 2; i++) {
        for (uint32_t j = 0;
             reports[i] && j < reports[i]->n_steps && reply->n_steps < LAUNCH_N_STEPS; j++)
            reply->steps[reply->n_steps++] = reports[i]->steps[j];
    }
}

/* Files on a tmpfs stay charged to the code's memory when their writer is gone: together they stay below two fifths of it. */
static uint64_t scaled_tmp(const uint64_t limits[LAUNCH_N_LIMITS])
{
    uint64_t most = limits[LAUNCH_MEMORY] / 5 * 2;
    return limits[LAUNCH_TMP] < most ? limits[LAUNCH_TMP] : most;
}

static int fail(struct sandbox *sandbox, struct launch_reply *reply, int error)
{
    reply->error = error;
    /* What the child reports comes first: the launcher often only sees that it is gone. */
    if (sandbox->report && sandbox->report->error < 0) {
        reply->error = sandbox->report->error;
        reply->step = sandbox->report->step;
        memcpy(reply->detail, sandbox->report->detail, sizeof(reply->detail));
        reply->detail[sizeof(reply->detail) - 1] = '\0';
    }
    sandbox_destroy(sandbox);
    return reply->error;
}

int sandbox_begin(struct sandbox *sandbox, const struct launcher *launcher,
                  const struct launch_request *request, struct launch_reply *reply)
{
    sandbox->launcher = launcher;
    sandbox->request = *request;
    sandbox->tmp_bytes = scaled_tmp(request->limits);
    sandbox->own.last_us = launcher->started_us;
    sandbox_step(sandbox, &sandbox->own, LAUNCH_STEP_START);

    static const struct {
        enum launch_step step;
        int (*run)(struct sandbox *sandbox, char *detail);
    } steps[] = {
        {LAUNCH_STEP_RECORD, step_record},   {LAUNCH_STEP_IDS, step_ids},
        {LAUNCH_STEP_CGROUP, step_cgroup},   {LAUNCH_STEP_NAMESPACES, step_namespaces},
        {LAUNCH_STEP_ID_MAPS, step_id_maps},
    };
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        reply->step = steps[i].step;
        int r = steps[i].run(sandbox, reply->detail);
        if (r < 0)
            return fail(sandbox, reply, r);
        sandbox_step(sandbox, &sandbox->own, steps[i].step);
    }
    reply->step = LAUNCH_STEP_DISK;
    int r = step_disk(sandbox, reply, reply->detail);
    if (r < 0)
        return fail(sandbox, reply, r);
    sandbox_step(sandbox, &sandbox->own, LAUNCH_STEP_DISK);
    describe_limits(sandbox, reply);
    return 0;
}

int sandbox_finish(struct sandbox *sandbox, struct launch_reply *reply)
{
    reply->step = LAUNCH_STEP_AGENT;
    int r = step_agent(sandbox);
    if (r < 0)
        return fail(sandbox, reply, r);
    fd_clear(&sandbox->sync);
    sandbox_step(sandbox, &sandbox->own, LAUNCH_STEP_AGENT);
    copy_steps(sandbox, reply);
    return 0;
}

void sandbox_complete_record(struct sandbox *sandbox)
{
    uint64_t start_time;
    char line[64];
    if (record_start_time(sandbox->pid, &start_time) < 0)
        return; /* it has ended already: there is nothing to find by its number */
    snprintf(line, sizeof(line), "pid %d %llu\n", (int)sandbox->pid,
             (unsigned long long)start_time);
    (void)record_append(&sandbox->record,
                        line); /* a full disk: the groups in the record still find the code */
}

int sandbox_kill(struct sandbox *sandbox)
{
    if (sandbox->pidfd < 0)
        return 0;
    cgroup_unthrottle(&sandbox->cgroup);
    int r = sys_pidfd_send_signal(sandbox->pidfd, SIGKILL);
    if (r < 0 && r != -ESRCH)
        return r;
    struct pollfd poll_fd = {.fd = sandbox->pidfd, .events = POLLIN};
    int ready;
    do {
        ready = poll(&poll_fd, 1, KILL_WAIT_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        return ready < 0 ? -errno : -ETIMEDOUT;
    (void)waitpid(sandbox->pid, NULL, 0);
    fd_clear(&sandbox->pidfd);
    return 0;
}

void sandbox_destroy(struct sandbox *sandbox)
{
    fd_clear(&sandbox->sync);
    fd_clear(&sandbox->agent);
    int killed = sandbox_kill(sandbox);
    fd_clear(&sandbox->workspace);
    disk_discard(&sandbox->disk);
    int removed = cgroup_remove(&sandbox->cgroup);
    cgroup_clear(&sandbox->cgroup);
    ids_release(&sandbox->ids);
    /* A record stays for the next launcher's sweep when something could not be removed now. */
    if (killed == 0 && removed == 0)
        record_remove(&sandbox->record);
    else
        fd_clear(&sandbox->record.fd);
    if (sandbox->report)
        munmap(sandbox->report, sizeof(*sandbox->report));
    sandbox_init(sandbox);
}
