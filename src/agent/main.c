/* hutch-agent: PID 1 of a sandbox. One thread, one loop, nothing in it blocks; libc only.
 *
 *   main.c        arguments, what the process gives up, the loop
 *   settings.c    the arguments' table
 *   loop.c        poll
 *   connection.c  frames from and to the client, the table of frame types
 *   request.c     START, parsed and checked
 *   execution.c   the life of an execution: the picture is at its top
 *   report.c      the control frames that it sends: STARTED, GAP, ENDED, ERROR
 *   spawn.c       between fork and exec: the ordered list of steps (rights go in base/confine.c)
 *   script.c      the script's file
 *   input.c       standard input, with credit
 *   spool.c       output: head, tail and order
 *   group.c       cgroup v2 of one execution
 *   gate.c        what the seccomp filter asks: another netlink socket?
 *   usage.c       what the cgroups count */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/connection.h"
#include "agent/execution.h"
#include "agent/loop.h"
#include "agent/settings.h"
#include "base/confine.h"
#include "base/fd.h"
#include "base/sys.h"

enum { EXIT_FAILED = 125 };

struct agent {
    struct settings settings;
    struct loop loop;
    struct loop_source signals;
    struct connection connection;
    struct execution execution;
};

/* Names what was being done; the launcher reads it if it kept our stderr. */
static int complain(const char *doing, int error)
{
    fprintf(stderr, "hutch-agent: %s: %s\n", doing, strerror(error));
    return EXIT_FAILED;
}

/* What stands in /proc/1/cmdline and environ is nobody's business. The strings lie one after
 * another (execve(2)). */
static void wipe(char *const strings[])
{
    for (size_t i = 0; strings[i]; i++)
        memset(strings[i], 0, strlen(strings[i]));
}

/* What the agent needs: to signal and become the code (KILL, SETUID, SETGID), to give it files and
 * pipes (CHOWN), to write in /tmp whoever owns what (DAC_OVERRIDE, FOWNER), to unshare a cgroup
 * namespace (SYS_ADMIN). In a map of one id it has none. */
static int keep_few_capabilities(void)
{
    static const int kept[] = {CAP_KILL,         CAP_SETUID, CAP_SETGID,   CAP_CHOWN,
                               CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_ADMIN};
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    uint64_t permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
    uint64_t wanted = 0;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        wanted |= UINT64_C(1) << kept[i];
    wanted &= permitted;
    return sys_capset(wanted, wanted, 0);
}

static int give_up_rights(void)
{
    /* Closes /proc/1 and ptrace to the code, also under its own uid. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    /* The bounding set is the children's: emptied once, here, while CAP_SETPCAP is still there. */
    int result = sys_empty_bounding_set();
    return result < 0 ? result : keep_few_capabilities();
}

/* Dispositions are inherited through exec when they are "ignore": nothing the launcher's caller
 * ignored reaches the code. SIGPIPE is blocked, not ignored, for the same reason. */
static int set_up_signals(struct agent *agent)
{
    sigset_t blocked;
    sys_default_signals();
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigaddset(&blocked, SIGPIPE);
    if (sigprocmask(SIG_SETMASK, &blocked, NULL) < 0)
        return -errno;
    sigdelset(&blocked, SIGPIPE);
    agent->signals.fd = signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    return agent->signals.fd < 0 ? -errno : 0;
}

static void on_signal(void *owner, short events)
{
    struct agent *agent = owner;
    struct signalfd_siginfo info;
    (void)events;
    if (read(agent->signals.fd, &info, sizeof(info)) > 0)
        execution_reap(&agent->execution);
}

/* A tied agent ends with its client; any other when nobody can ask it anything more. The end of PID
 * 1 is the end of every process in the sandbox. */
static bool is_over(const struct agent *agent)
{
    return agent->connection.ended &&
           (agent->settings.tied || agent->execution.state == EXECUTION_IDLE ||
            agent->execution.state == EXECUTION_SCRIPT);
}

static void serve(struct agent *agent)
{
    while (!is_over(agent)) {
        loop_run_once(&agent->loop, execution_timeout_ms(&agent->execution));
        bool more;
        do {
            more = execution_advance(&agent->execution);
            connection_flush(&agent->connection);
        } while (more && connection_is_flushed(&agent->connection) && !is_over(agent));
    }
}

int main(int argc, char *argv[], char *env[])
{
    static struct agent agent; /* too large for a stack */
    const char *wrong = NULL;
    (void)argc;

    /* kill(-1) is how it ends executions: anywhere else than as PID 1 that would be the user's
     * whole session. */
    if (getpid() != 1)
        return complain("this program is the first process of a sandbox; use `hutch run`", EPERM);
    if (settings_parse(&agent.settings, argv + (argv[0] != NULL), &wrong) < 0)
        return complain(wrong, EINVAL);
    wipe(argv);
    wipe(env);
    /* Also of what is passed for its locks alone, which stays open. */
    int result = sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    if (result < 0)
        return complain("close_range", -result);
    if (prctl(PR_SET_NAME, "hutch-agent", 0, 0, 0) < 0)
        return complain("PR_SET_NAME", errno);
    if ((result = give_up_rights()) < 0)
        return complain("giving up rights", -result);
    umask(022);
    if ((result = set_up_signals(&agent)) < 0)
        return complain("signals", -result);
    /* An inherited stdout would keep the caller's pipe open for the life of the sandbox. */
    if ((result = fd_null_standard_streams()) < 0)
        return complain("/dev/null", -result);

    agent.signals.ready = on_signal;
    agent.signals.owner = &agent;
    loop_watch(&agent.loop, &agent.signals, POLLIN);
    execution_init(&agent.execution, &agent.settings, &agent.loop, &agent.connection);
    connection_init(&agent.connection, &agent.loop, agent.settings.connection, &agent.execution);
    serve(&agent);
    return 0;
}
