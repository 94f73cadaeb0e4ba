#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/filter.h"

/* What a call answered in a child that has the filter: 0, an errno, or -1 when the child was
 * killed. */
static int call_confined(const long call[7])
{
    pid_t pid = fork();
    g_assert_cmpint(pid, >=, 0);
    if (pid == 0) {
        setpgid(0, 0); /* the priority of a process group is asked about: its own */
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || confine_install_filter(NULL) < 0)
            _exit(250);
        errno = 0;
        long result = syscall(call[0], call[1], call[2], call[3], call[4], call[5], call[6]);
        _exit(result < 0 && result > -4096 ? errno : 0);
    }
    int status;
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define ABOVE           (0x100000000L) /* garbage above the 32 bits that the kernel takes */
#define NEW_FLAGS(flag) (long)(SIGCHLD | (flag))

static void test_answers(void)
{
    const struct {
        const char *what;
        long call[7];
        int error;
    } rows[] = {
        {"getpid", {SYS_getpid}, 0},
        {"a call that does not exist", {1000}, ENOSYS},
        {"the next kernel's calls", {470}, ENOSYS},
        {"clone3", {SYS_clone3, 0, 0}, ENOSYS},
        {"mount", {SYS_mount, 0, 0, 0, 0, 0}, EPERM},
        {"unshare", {SYS_unshare, CLONE_NEWUSER}, EPERM},
        {"setns", {SYS_setns, 0, 0}, EPERM},
        {"ptrace", {SYS_ptrace, 0, 0, 0, 0}, EPERM},
        {"bpf", {SYS_bpf, 0, 0, 0}, EPERM},
        {"io_uring_setup", {SYS_io_uring_setup, 1, 0}, EPERM},
        {"userfaultfd", {SYS_userfaultfd, 1}, EPERM},
        {"keyctl", {SYS_keyctl, 0, 0}, EPERM},
        {"clone into a user namespace", {SYS_clone, NEW_FLAGS(CLONE_NEWUSER), 0, 0, 0, 0}, EPERM},
        {"clone into a mount namespace", {SYS_clone, NEW_FLAGS(CLONE_NEWNS), 0, 0, 0, 0}, EPERM},
        {"clone into a cgroup namespace",
         {SYS_clone, NEW_FLAGS(CLONE_NEWCGROUP), 0, 0, 0, 0},
         EPERM},
        {"clone into a network namespace",
         {SYS_clone, NEW_FLAGS(CLONE_NEWNET) | ABOVE, 0, 0, 0, 0},
         EPERM},
        {"unix socket", {SYS_socket, AF_UNIX, SOCK_STREAM, 0}, 0},
        {"inet6 socket", {SYS_socket, AF_INET6, SOCK_STREAM, 0}, 0},
        {"inet socket with garbage above", {SYS_socket, AF_INET | ABOVE, SOCK_STREAM, 0}, 0},
        {"vsock", {SYS_socket, AF_VSOCK, SOCK_STREAM, 0}, EAFNOSUPPORT},
        {"alg", {SYS_socket, AF_ALG, SOCK_SEQPACKET, 0}, EAFNOSUPPORT},
        {"packet with garbage above", {SYS_socket, AF_PACKET | ABOVE, SOCK_RAW, 0}, EAFNOSUPPORT},
        {"no family", {SYS_socket, 0, SOCK_STREAM, 0}, EAFNOSUPPORT},
        {"netlink route, where nobody counts", {SYS_socket, AF_NETLINK, SOCK_RAW, 0}, ENOSYS},
        {"netlink audit", {SYS_socket, AF_NETLINK, SOCK_RAW, 9}, EPROTONOSUPPORT},
        {"netlink audit with garbage above",
         {SYS_socket, AF_NETLINK | ABOVE, SOCK_RAW, 9 | ABOVE},
         EPROTONOSUPPORT},
        {"inet raw keeps its protocol", {SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_TCP}, 0},
        {"inet udp by its default", {SYS_socket, AF_INET, SOCK_DGRAM, 0}, 0},
        {"mptcp", {SYS_socket, AF_INET, SOCK_STREAM, 262}, EPROTONOSUPPORT},
        {"udp-lite of inet6", {SYS_socket, AF_INET6, SOCK_DGRAM, 136}, EPROTONOSUPPORT},
        {"asynchronous io of the host's counter", {SYS_io_setup, 1, 0}, ENOSYS},
        {"socketpair of inet", {SYS_socketpair, AF_INET, SOCK_STREAM, 0, 0}, EPERM},
        {"TIOCSTI", {SYS_ioctl, 0, TIOCSTI, 0}, EPERM},
        {"TIOCSTI with garbage above", {SYS_ioctl, 0, TIOCSTI | ABOVE, 0}, EPERM},
        {"TIOCLINUX", {SYS_ioctl, 0, TIOCLINUX, 0}, EPERM},
        {"another ioctl reaches its file", {SYS_ioctl, -1, TIOCGWINSZ, 0}, EBADF},
        {"the personality can be asked for", {SYS_personality, 0xffffffff}, 0},
        {"the personality is the default one", {SYS_personality, 0}, 0},
        {"address randomisation cannot be switched off", {SYS_personality, 0x40000}, EPERM},
        {"own limits", {SYS_prlimit64, 0, RLIMIT_NOFILE, 0, 0}, 0},
        {"limits of PID 1", {SYS_prlimit64, 1, RLIMIT_NOFILE, 0, 0}, EPERM},
        {"processors of PID 1", {SYS_sched_setaffinity, 1, 0, 0}, EPERM},
        {"own processors reach the kernel", {SYS_sched_setaffinity, 0, 0, 0}, EINVAL},
        {"priority of PID 1", {SYS_setpriority, PRIO_PROCESS, 1, 19}, EPERM},
        {"priority of all of a user's", {SYS_setpriority, PRIO_USER, 0, 1}, EPERM},
        {"own priority", {SYS_setpriority, PRIO_PROCESS, 0, 1}, 0},
        {"a process group's priority is no pid", {SYS_setpriority, PRIO_PGRP, 0, 1}, 0},
#ifdef __x86_64__
        {"the x32 table", {SYS_getpid | 0x40000000}, ENOSYS},
        {"the x32 table, a call with a rule",
         {SYS_socket | 0x40000000, AF_UNIX, SOCK_STREAM, 0},
         ENOSYS},
#endif
    };
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        int answer = call_confined(rows[i].call);
        if (answer != rows[i].error)
            g_test_message("%s: %d (%s), wanted %d", rows[i].what, answer, g_strerror(answer),
                           rows[i].error);
        g_assert_cmpint(answer, ==, rows[i].error);
    }
}

#ifdef __x86_64__
/* int 0x80 is a second way to every call; a filter that looked at numbers alone would take 20 for
 * writev. */
static void test_compat(void)
{
    pid_t pid = fork();
    g_assert_cmpint(pid, >=, 0);
    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || confine_install_filter(NULL) < 0)
            _exit(250);
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would make an exit status of it */
        long answer;
        __asm__ volatile("int $0x80"
                         : "=a"(answer)
                         : "a"(20L)
                         : "memory", "r8", "r9", "r10", "r11");
        _exit(answer < 0 ? (int)-answer : 0);
    }
    int status;
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    if (WIFSIGNALED(status)) /* a kernel without the 32-bit entry */
        g_test_skip("this kernel has no int 0x80");
    else
        g_assert_cmpint(WEXITSTATUS(status), ==, ENOSYS);
}
#endif

/* Jumps stay inside, and the last instruction returns: the kernel would refuse it, but only on the
 * architecture of the build. */
static void test_shape(void)
{
    g_assert_cmpuint(filter_size, >, 300);
    g_assert_cmpuint(filter_size, <, BPF_MAXINSNS);
    for (size_t i = 0; i < filter_size; i++) {
        const struct sock_filter *at = &filter_program[i];
        if (BPF_CLASS(at->code) == BPF_JMP && BPF_OP(at->code) != BPF_JA)
            g_assert_cmpuint(i + 1 + MAX(at->jt, at->jf), <, filter_size);
    }
    g_assert_cmpuint(BPF_CLASS(filter_program[filter_size - 1].code), ==, BPF_RET);
}

static uint64_t status_number(const char *key)
{
    g_autofree char *text = NULL;
    g_assert_true(g_file_get_contents("/proc/thread-self/status", &text, NULL, NULL));
    const char *line = strstr(text, key);
    g_assert_nonnull(line);
    return g_ascii_strtoull(line + strlen(key), NULL, 16);
}

/* In a child: everything is given up, and a limit can not be raised again. Root changes its id,
 * anybody else keeps the one he has. */
static void check_dropped(void)
{
    bool root = geteuid() == 0;
    struct confine confine = {.uid = root ? 1000 : -1,
                              .gid = root ? 1000 : -1,
                              .nofile = 64,
                              .nproc = 500,
                              .fsize_bytes = 1 << 20};
    const char *step = NULL;
    int result = confine_drop(&confine, &step);
    if (result < 0)
        g_error("%s: %s", step, g_strerror(-result));
    if (root) {
        g_assert_cmpuint(getuid(), ==, 1000);
        g_assert_cmpuint(getegid(), ==, 1000);
        g_assert_cmpint(getgroups(0, NULL), ==, 0);
    }
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    const char *const sets[] = {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"};
    for (size_t i = 0; i < G_N_ELEMENTS(sets); i++)
        g_assert_cmpuint(status_number(sets[i]), ==, 0);
    g_assert_cmpuint(status_number("NoNewPrivs:"), ==, 1);
    g_assert_cmpuint(status_number("Seccomp:"), ==, 2);
    struct rlimit limit;
    g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    g_assert_cmpuint(limit.rlim_cur, ==, 64);
    g_assert_cmpuint(limit.rlim_max, ==, 64);
    limit.rlim_max = 65;
    g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &limit), ==, -1);
    g_assert_cmpint(getrlimit(RLIMIT_CORE, &limit), ==, 0);
    g_assert_cmpuint(limit.rlim_max, ==, 0);
}

static void test_drop(void)
{
    if (g_test_subprocess()) {
        check_dropped();
        _exit(0); /* without the leak check of a sanitizer, which needs ptrace */
    }
    if (geteuid() != 0) {
        /* Its bounding set is full, and only CAP_SETPCAP empties it: the launcher does, before it
         * starts an agent of one id. */
        g_test_skip("needs root");
        return;
    }
    g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_INHERIT_STDERR);
    g_test_trap_assert_passed();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/confine/shape", test_shape);
    g_test_add_func("/confine/answers", test_answers);
#ifdef __x86_64__
    g_test_add_func("/confine/compat", test_compat);
#endif
    g_test_add_func("/confine/drop", test_drop);
    return g_test_run();
}
