/* hutch-launcher: makes native sandboxes for its client.
 *
 *   main.c     arguments, the loop over requests          ids.c     slots of host ids, id maps
 *   sandbox.c  the launcher's side of making one           cgroup.c  limits of memory, processes, processors
 *   inside.c   the child's side: the steps in order        disk.c    /workspace with a hard limit
 *   root.c     its mount tree                              record.c  what to remove should this process be killed
 *   net.c      its loopback
 *
 * Theory of operation: one thread, no allocation worth the name. It is started with one end of a SOCK_SEQPACKET pair and
 * makes the sandbox of that connection (wire/launch.h). While code runs it sweeps what dead launchers left. End of file, SIGTERM or the
 * end of the sandbox lead to the same place: kill, remove, leave. */

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "launcher/sandbox.h"

static volatile sig_atomic_t asked_to_end;

static void on_term(int signal_number)
{
    (void)signal_number;
    asked_to_end = 1;
}

static void die(const char *what, int error)
{
    dprintf(STDERR_FILENO, "hutch-launcher: %s: %s\n", what, strerror(-error));
    _exit(125);
}

/* Makes the directories above the last part of `path` that are missing. */
static int make_parents(char *path)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        int r = mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
        *at = '/';
        if (r < 0)
            return r;
    }
    return 0;
}

/* Opens the directory at `path` below `dirfd`, which is made when it is missing, for nobody but this user. One that others may write to,
 * or that is another's, is refused. */
static int open_private_directory(int dirfd, const char *path)
{
    autofd fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        if (mkdirat(dirfd, path, 0700) < 0 && errno != EEXIST)
            return -errno;
        fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0)
        return -errno;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || (st.st_mode & 022))
        return -EPERM;
    return fd_steal(&fd);
}

/* Opens what the argument list names; `reply` says what could not be. */
static void open_configuration(struct launcher *launcher, char **argv, struct launch_reply *reply)
{
    char *state_dir = argv[2];
    snprintf(reply->detail, sizeof(reply->detail), "%.107s", state_dir);
    autofd state = open_private_directory(AT_FDCWD, state_dir);
    if (state == -ENOENT) {
        reply->error = make_parents(state_dir);
        state = reply->error < 0 ? -1 : open_private_directory(AT_FDCWD, state_dir);
    }
    if (reply->error == 0 && state < 0)
        reply->error = state;
    if (reply->error < 0)
        return;
    launcher->state_fd = open_private_directory(state, "run");
    launcher->templates_fd = launcher->is_root ? open_private_directory(state, "templates") : -1;
    reply->error = launcher->state_fd < 0                            ? launcher->state_fd
                   : launcher->is_root && launcher->templates_fd < 0 ? launcher->templates_fd
                                                                     : 0;
    if (reply->error < 0)
        return;
    launcher->agent_fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (launcher->agent_fd >= 0)
        return;
    reply->error = -errno;
    reply->step = LAUNCH_STEP_AGENT;
    snprintf(reply->detail, sizeof(reply->detail), "%.107s", argv[1]);
}

static void send_reply(struct sandbox *sandbox, const struct launch_reply *reply, bool with_fds)
{
    int fds[LAUNCH_N_FDS] = {
        [LAUNCH_FD_AGENT] = sandbox->agent, [LAUNCH_FD_WORKSPACE] = sandbox->workspace};
    /* A client that is gone is seen by the next read. */
    (void)fd_send_message(LAUNCHER_CLIENT_FD, reply, sizeof(*reply), fds,
                          with_fds ? LAUNCH_N_FDS : 0);
}

static bool request_is_valid(const struct launch_request *request, struct launch_reply *reply)
{
    static const struct {
        uint64_t least, most;
    } bounds[LAUNCH_N_LIMITS] = {
#define X(name, least, most) [LAUNCH_##name] = {least, most},
        LAUNCH_BOUNDS(X)
#undef X
    };
    reply->error = -EINVAL;
    snprintf(reply->detail, sizeof(reply->detail), "request");
    if (request->size != sizeof(*request) || request->version != LAUNCH_VERSION ||
        request->reserved != 0 || request->fault > LAUNCH_FAULT_LAUNCHER)
        return false;
    for (int i = 0; i < LAUNCH_N_LIMITS && request->type == LAUNCH_CREATE; i++) {
        snprintf(reply->detail, sizeof(reply->detail), "limit %d", i);
        if (request->limits[i] < bounds[i].least || request->limits[i] > bounds[i].most)
            return false;
    }
    reply->error = 0;
    reply->detail[0] = '\0';
    return true;
}

static void serve_create(struct sandbox *sandbox, const struct launcher *launcher,
                         const struct launch_request *request, struct launch_reply *reply)
{
    if (sandbox->pidfd >= 0) {
        reply->error = -EBUSY;
        send_reply(sandbox, reply, false);
        return;
    }
    int r = sandbox_begin(sandbox, launcher, request, reply);
    send_reply(sandbox, reply, r == 0);
    fd_clear(&sandbox->agent);
    if (r == 0) {
        struct launch_reply outcome = {.size = sizeof(outcome), .workspace_owner = -1};
        r = sandbox_finish(sandbox, &outcome);
        send_reply(sandbox, &outcome, false);
    }
    if (r == 0)
        sandbox_complete_record(sandbox);
    /* The client waits for nothing now. What cannot be swept stays recorded for the next one; `hutch doctor` shows it. */
    (void)record_sweep(launcher->state_fd);
}

static void serve_kill(struct sandbox *sandbox, const struct launch_request *request,
                       struct launch_reply *reply)
{
    reply->step = LAUNCH_STEP_KILL;
    reply->error = sandbox_kill(sandbox);
    sandbox_fault(request, LAUNCH_STEP_KILL);
    send_reply(sandbox, reply, false);
}

/* False when the client is gone or breaks the rules. */
static bool serve_request(struct sandbox *sandbox, const struct launcher *launcher)
{
    struct launch_request request;
    size_t n_fds = 0;
    ssize_t n = fd_receive_message(LAUNCHER_CLIENT_FD, &request, sizeof(request), NULL, &n_fds);
    if (n != sizeof(request))
        return false;
    struct launch_reply reply = {.size = sizeof(reply), .workspace_owner = -1};
    if (!request_is_valid(&request, &reply)) {
        send_reply(sandbox, &reply, false);
        return false;
    }
    switch (request.type) {
    case LAUNCH_CREATE: serve_create(sandbox, launcher, &request, &reply); return true;
    case LAUNCH_KILL: serve_kill(sandbox, &request, &reply); return true;
    default: return false;
    }
}

static void loop(struct sandbox *sandbox, const struct launcher *launcher)
{
    while (!asked_to_end) {
        struct pollfd poll_fd = {.fd = LAUNCHER_CLIENT_FD, .events = POLLIN};
        if (poll(&poll_fd, 1, -1) < 0) {
            if (errno != EINTR)
                return;
        } else if (!serve_request(sandbox, launcher)) {
            return;
        }
    }
}

/* Away from the caller's terminal, signals, streams and descriptors; what is not ours to hold is closed, or a caller who waits for the end of
 * its pipe would wait for us. */
static int detach(void)
{
    int r = fd_null_standard_streams();
    if (r == 0)
        r = sys_close_range(LAUNCHER_CLIENT_FD + 1, ~0u, 0);
    if (r < 0)
        return r;
    if (fcntl(LAUNCHER_CLIENT_FD, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    /* A group of its own: ^C in the terminal is for the client. Not setsid(2), which makes a scheduling group too and takes half a
     * millisecond where that is dear; each execution gets a session of its own from the agent. */
    if (setpgid(0, 0) < 0)
        return -errno;
    struct sigaction action = {.sa_handler = on_term};
    sigset_t none;
    sigemptyset(&none);
    if (sigaction(SIGTERM, &action, NULL) < 0 || sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        return -errno;
    signal(SIGPIPE, SIG_IGN);
    /* The caller's limit on files is not for the disk, which has its own. Who may not lift it gets EFBIG from step disk. */
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    (void)setrlimit(RLIMIT_FSIZE, &unlimited);
    signal(SIGCHLD, SIG_DFL);
    umask(022);
    return 0;
}

/* `hutch-launcher AGENT STATE_DIR`: the client's socket is descriptor 3. */
int main(int argc, char **argv)
{
    uint64_t started_us = clock_monotonic_us();
    struct stat st;
    if (argc != 3 || argv[2][0] != '/' || fstat(LAUNCHER_CLIENT_FD, &st) < 0 ||
        !S_ISSOCK(st.st_mode)) {
        dprintf(STDERR_FILENO, "hutch-launcher is started by hutch, not by hand. See hutch(1).\n");
        return 2;
    }
    struct launcher launcher = {
        .is_root = geteuid() == 0, .templates_fd = -1, .started_us = started_us};
    int r = detach();
    if (r < 0)
        die("starting", r);
    /* Changing the effective uid for clone3 must not cost the capabilities (see sandbox.c). An ordinary user's launcher stays dumpable: the
     * child inherits that, and with it the right of this user to write its id maps. */
    if (launcher.is_root &&
        (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0))
        die("securebits", -errno);

    struct launch_reply reply = {
        .size = sizeof(reply), .step = LAUNCH_STEP_RECORD, .workspace_owner = -1};
    struct sandbox sandbox;
    sandbox_init(&sandbox);
    open_configuration(&launcher, argv, &reply);
    if (reply.error < 0) {
        /* Read first: to leave with the request unread would reset the connection, and the answer with it. */
        struct launch_request request;
        size_t n_fds = 0;
        (void)fd_receive_message(LAUNCHER_CLIENT_FD, &request, sizeof(request), NULL, &n_fds);
        send_reply(&sandbox, &reply, false);
        return 125;
    }
    loop(&sandbox, &launcher);
    sandbox_destroy(&sandbox);
    return 0;
}
