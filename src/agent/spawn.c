#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/sys.h"

enum { ERROR_FD = 3 };

/* The child's side: pipe ends it will place, and what is left of the plan. */
struct child {
    const struct spawn_plan *plan;
    int stdin_fd;
    int stdout_fd;
    int stderr_fd;
    int error_fd;
    int listener; /* of the filter */
};

static int reset_signals(struct child *child)
{
    (void)child;
    /* Handlers went with CLONE_CLEAR_SIGHAND, and the agent ignores none. */
    sigset_t none;
    sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

static int new_session(struct child *child)
{
    (void)child;
    return setsid() < 0 ? -errno : 0;
}

/* cgroup v1. "0" means the writer, and to `tasks`, not cgroup.procs, the write does not wait for an
 * RCU grace period (8-12 ms). The right to write is the opener's. */
static int join_groups(struct child *child)
{
    const struct settings *settings = child->plan->settings;
    for (size_t i = 0; i < settings->n_tasks; i++) {
        if (write(settings->tasks[i], "0", 1) != 1)
            return -errno;
    }
    return 0;
}

/* After joining, so that the groups joined are the roots of what /proc/self/cgroup shows. */
static int new_cgroup_namespace(struct child *child)
{
    const struct settings *settings = child->plan->settings;
    if (!settings->has_cgroup || unshare(CLONE_NEWCGROUP) == 0)
        return 0;
    /* An agent without an id of its own has no CAP_SYS_ADMIN; the groups' names then show, relative
     * to its own. */
    return errno == EPERM && settings_share_uid(settings) ? 0 : -errno;
}

/* The sources are 3 or more: 0-2 of the agent are /dev/null. After this no other descriptor is
 * open, and the error pipe goes with the exec. */
static int place_descriptors(struct child *child)
{
    if ((child->stdin_fd >= 0 && dup2(child->stdin_fd, 0) < 0) || dup2(child->stdout_fd, 1) < 0 ||
        dup2(child->stderr_fd, 2) < 0)
        return -errno;
    if (child->error_fd != ERROR_FD && dup3(child->error_fd, ERROR_FD, O_CLOEXEC) < 0)
        return -errno;
    child->error_fd = ERROR_FD;
    return sys_close_range(ERROR_FD + 1, ~0U, 0);
}

/* As many processors as the code may use, so that programs count them right. The first one is the
 * launcher's choice, so that sandboxes spread. The quota of the cgroup is what holds. */
static int set_affinity(struct child *child)
{
    const struct settings *settings = child->plan->settings;
    cpu_set_t all, some;
    if (settings->cpus == 0)
        return 0;
    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        return -errno;
    size_t count = (size_t)CPU_COUNT(&all);
    if (settings->cpus >= count)
        return 0;
    CPU_ZERO(&some);
    size_t first = settings->first_cpu % count, index = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        size_t behind_first = (index++ + count - first) % count;
        if (behind_first < settings->cpus)
            CPU_SET(cpu, &some);
    }
    return sched_setaffinity(0, sizeof(some), &some) < 0 ? -errno : 0;
}

/* When the host runs out of memory, code goes first. Without an id of its own the agent may not
 * write this: never mind. */
static int prefer_for_oom(struct child *child)
{
    (void)child;
    fd_write_file_at(AT_FDCWD, "/proc/self/oom_score_adj", "500");
    return 0;
}

/* The agent answers what the filter asks. The child's copy goes with the exec. */
static int hand_over_listener(struct child *child)
{
    if (child->listener < 0)
        return 0;
    char message = 0;
    return fd_send_message(child->error_fd, &message, 1, &child->listener, 1);
}

/* With the code's rights and no descriptor but 0-3 left, a hostile path leads nowhere that the code
 * could not go itself. */
static int enter_cwd(struct child *child)
{
    char path[PATH_MAX];
    if (chdir(child->plan->cwd) < 0)
        return -errno;
    if (!getcwd(path, sizeof(path)))
        return -errno;
    return path[0] == '/' ? 0 : -ENOENT; /* "(unreachable)..." */
}

static const char *find_path(char *const *env)
{
    for (; *env; env++) {
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    }
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/* execvp(3) with the PATH of the new environment, and without its fall-back to a shell. */
static int execute(struct child *child)
{
    char *const *argv = child->plan->argv;
    char *const *env = child->plan->env;
    const char *name = argv[0];
    if (strchr(name, '/')) {
        execve(name, argv, env);
        return -errno;
    }
    size_t name_size = strlen(name);
    int result = -ENOENT;
    for (const char *part = find_path(env);; part++) {
        size_t part_size = strcspn(part, ":");
        char path[PATH_MAX];
        if (part_size + 1 + name_size < sizeof(path)) {
            memcpy(path, part, part_size);
            path[part_size] = '/'; /* an empty part is the working directory */
            memcpy(path + part_size + (part_size > 0), name, name_size + 1);
            execve(path, argv, env);
            if (errno == EACCES)
                result = -EACCES; /* reported unless a later part has a program that runs */
            else if (errno != ENOENT && errno != ENOTDIR)
                return -errno;
        }
        part += part_size;
        if (*part == '\0')
            return result;
    }
}

/* Between the fork and the program, in this order: these, then base/confine.c, then those. */
struct step {
    const char *name;
    int (*run)(struct child *child);
};

static const struct step steps_with_rights[] = {
    {"signals", reset_signals},
    {"session", new_session},
    {"cgroup", join_groups},
    {"cgroup_namespace", new_cgroup_namespace},
    {"descriptors", place_descriptors},
    {"affinity", set_affinity},
    {"oom_score", prefer_for_oom},
};

static const struct step steps_as_code[] = {
    {"listener", hand_over_listener},
    {"cwd", enter_cwd},
    {"exec", execute},
};

static int run_steps(struct child *child, const struct step *steps, size_t n_steps,
                     const char **step)
{
    for (size_t i = 0; i < n_steps; i++) {
        *step = steps[i].name;
        int result = steps[i].run(child);
        if (result < 0)
            return result;
    }
    return 0;
}

static int drop_rights(struct child *child, const char **step)
{
    const struct settings *settings = child->plan->settings;
    struct confine confine = {
        .uid = settings_share_uid(settings) ? -1 : (int)settings->code_uid,
        .gid = settings_share_uid(settings) ? -1 : (int)settings->code_uid,
        .nofile = settings->nofile,
        .nproc = settings->nproc,
        .fsize_bytes = settings->fsize_bytes,
        .data_bytes = settings->data_bytes,
        .listener = &child->listener,
    };
    return confine_drop(&confine, step);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Returns only when a step failed. */
static int run_child(struct child *child, const char **step)
{
    int result = run_steps(child, steps_with_rights, COUNT(steps_with_rights), step);
    if (result == 0)
        result = drop_rights(child, step);
    if (result == 0)
        result = run_steps(child, steps_as_code, COUNT(steps_as_code), step);
    return result;
}

__attribute__((noreturn)) static void be_child(struct child *child)
{
    const char *step = "";
    struct spawn_error error = {.error = -run_child(child, &step)};
    strncpy(error.step, step, sizeof(error.step) - 1);
    fd_write_full(child->error_fd, &error, sizeof(error));
    _exit(127);
}

/* A pipe whose ends belong to the code, so that it may open /dev/stdout and the like again (the
 * pipe's inode is 0600). Only our end is non-blocking: the two ends are two open files. */
static int make_pipe(const struct settings *settings, int ours, int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    if (!settings_share_uid(settings) &&
        fchown(fds[0], (uid_t)settings->code_uid, (gid_t)settings->code_uid) < 0)
        return -errno;
    return fd_set_nonblocking(fds[ours], true);
}

static pid_t clone_child(const struct spawn_plan *plan)
{
    struct clone_args args = {.flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    if (plan->group_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)plan->group_fd;
    }
    pid_t pid = sys_clone3(&args);
    if (pid != -ENOSYS || plan->group_fd >= 0)
        return pid;
    /* An outer sandbox hides clone3 (docker's profile does); without a group fork(2) is the same,
     * for the agent has no signal handlers. */
    pid = fork();
    return pid < 0 ? -errno : pid;
}

struct pipes {
    int in[2], out[2], err[2], error[2];
};

static void pipes_close(struct pipes *pipes)
{
    int *fds = pipes->in;
    for (size_t i = 0; i < sizeof(*pipes) / sizeof(int); i++)
        fd_clear(&fds[i]);
}

static int make_pipes(const struct spawn_plan *plan, struct pipes *pipes)
{
    enum { READ, WRITE };
    int result = plan->use_stdin ? make_pipe(plan->settings, WRITE, pipes->in) : 0;
    if (result == 0)
        result = make_pipe(plan->settings, READ, pipes->out);
    if (result == 0)
        result = make_pipe(plan->settings, READ, pipes->err);
    if (result == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pipes->error) < 0)
        result = -errno;
    return result < 0 ? result : fd_set_nonblocking(pipes->error[READ], true);
}

int spawn_start(const struct spawn_plan *plan, struct spawned *spawned, const char **step)
{
    enum { READ, WRITE };
    __attribute__((cleanup(pipes_close))) struct pipes pipes = {
        {-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    *step = "pipes";
    int result = make_pipes(plan, &pipes);
    if (result < 0)
        return result;

    *step = "clone";
    pid_t pid = clone_child(plan);
    if (pid < 0)
        return pid;
    if (pid == 0) {
        struct child child = {.plan = plan,
                              .stdin_fd = pipes.in[READ],
                              .stdout_fd = pipes.out[WRITE],
                              .stderr_fd = pipes.err[WRITE],
                              .error_fd = pipes.error[WRITE],
                              .listener = -1};
        be_child(&child);
    }
    *spawned = (struct spawned){.pid = pid,
                                .stdin_fd = fd_steal(&pipes.in[WRITE]),
                                .stdout_fd = fd_steal(&pipes.out[READ]),
                                .stderr_fd = fd_steal(&pipes.err[READ]),
                                .error_fd = fd_steal(&pipes.error[READ])};
    return 0;
}

int spawn_read_error(int error_fd, struct spawn_error *error, int *listener)
{
    size_t n_fds = 1;
    ssize_t n = fd_receive_message(error_fd, error, sizeof(*error), listener, &n_fds);
    if (n < 0 || n == 1)
        return -EAGAIN;
    if (n != sizeof(*error))
        return 0;
    /* Written by our own code, but in a process of the code's uid: shape is checked, the sentence
     * is not believed further. */
    error->step[sizeof(error->step) - 1] = '\0';
    if (error->step[strspn(error->step, "abcdefghijklmnopqrstuvwxyz_")] != '\0' ||
        error->error <= 0)
        *error = (struct spawn_error){.error = EPROTO, .step = "spawn"};
    return 1;
}
