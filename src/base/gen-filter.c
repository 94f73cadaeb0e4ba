/* Prints the seccomp filter of sandboxed code as C source, at build time.
 *
 * Theory of operation. The filter has two halves, laid end to end:
 *
 *   1. Arguments, ours: for the few calls that are harmless or not by their arguments, a block each
 *      that returns an errno or falls through. libseccomp cannot say these: it compares 64 bits
 *      where the kernel looks at 32 (a request of ioctl(2) with garbage above would slip past),
 *      and takes one condition per argument.
 *   2. Numbers, libseccomp's: an allow list as a binary tree. Another architecture's calls (int
 *      0x80, x32) and everything that neither list names answer ENOSYS, so that the C library falls
 *      back and the calls of the next kernel are closed; what is refused knowingly answers EPERM.
 *      Nothing kills: a killed program tells its user nothing.
 *
 * The first half only ever refuses, so a call of a foreign architecture that happens to match it is
 * refused all the same. The kernel proves most numbers "always allowed" when the filter is
 * installed (Linux 5.11) and does not run it for them.
 *
 * Sources: seccomp(2), seccomp_rule_add(3), the system call tables of the kernel. */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Calls younger than the libseccomp that Debian 12 has may be unknown to it by name. From 424 on
 * the number is the same on every architecture we build for, so it is given here; any other unknown
 * name fails the build. */
static const struct {
    const char *name;
    int number;
} newer_calls[] = {
    {"futex_waitv", 449}, {"set_mempolicy_home_node", 450}, {"cachestat", 451},
    {"fchmodat2", 452},   {"map_shadow_stack", 453},        {"futex_wake", 454},
    {"futex_wait", 455},  {"futex_requeue", 456},           {"mseal", 462},
};

/* clang-format off: the lists are read by group, not one name a line */
static const char *const allowed[] = {
    /* files: open, read, write, seek */
    "access",
    "close",
    "close_range",
    "copy_file_range",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fcntl",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "ioctl",
    "lseek",
    "open",
    "openat",
    "openat2",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readv",
    "sendfile",
    "splice",
    "sync",
    "sync_file_range",
    "syncfs",
    "tee",
    "truncate",
    "vmsplice",
    "write",
    "writev",
    "cachestat",
    /* files: names, modes, attributes */
    "chdir",
    "chmod",
    "chown",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "fgetxattr",
    "flistxattr",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fstatfs",
    "futimesat",
    "getcwd",
    "getdents",
    "getdents64",
    "getxattr",
    "lchown",
    "lgetxattr",
    "link",
    "linkat",
    "listxattr",
    "llistxattr",
    "lremovexattr",
    "lsetxattr",
    "lstat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "newfstatat",
    "readlink",
    "readlinkat",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "setxattr",
    "stat",
    "statfs",
    "statx",
    "symlink",
    "symlinkat",
    "umask",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimes",
    /* waiting and watching */
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd",
    "eventfd2",
    "inotify_add_watch",
    "inotify_init",
    "inotify_init1",
    "inotify_rm_watch",
    "pause",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "pselect6",
    "select",
    "signalfd",
    "signalfd4",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    /* memory */
    "brk",
    "madvise",
    "map_shadow_stack",
    "membarrier",
    "memfd_create",
    "mincore",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "mprotect",
    "mremap",
    "mseal",
    "msync",
    "munlock",
    "munlockall",
    "munmap",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "process_mrelease",
    "remap_file_pages",
    /* processes and threads */
    "arch_prctl",
    "clone",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "fork",
    "futex",
    "futex_requeue",
    "futex_wait",
    "futex_waitv",
    "futex_wake",
    "get_robust_list",
    "getcpu",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getsid",
    "gettid",
    "pidfd_open",
    "pidfd_send_signal",
    "prctl",
    "restart_syscall",
    "rseq",
    "set_robust_list",
    "set_tid_address",
    "setpgid",
    "setsid",
    "vfork",
    "wait4",
    "waitid",
    /* scheduling and limits */
    "getpriority",
    "getrlimit",
    "getrusage",
    "ioprio_get",
    "prlimit64",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "sched_yield",
    "setpriority",
    "setrlimit",
    "sysinfo",
    "times",
    "uname",
    /* ids: without capabilities they only do what is harmless */
    "capget",
    "capset",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getresgid",
    "getresuid",
    "getuid",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setuid",
    /* signals */
    "kill",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sigaltstack",
    "tgkill",
    "tkill",
    /* time; the adjtimex pair reads, setting needs a capability */
    "adjtimex",
    "alarm",
    "clock_adjtime",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "getitimer",
    "gettimeofday",
    "nanosleep",
    "setitimer",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    /* sockets */
    "accept",
    "accept4",
    "bind",
    "connect",
    "getpeername",
    "getsockname",
    "getsockopt",
    "listen",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "socket",
    "socketpair",
    /* System V and POSIX ipc, of the sandbox's own ipc namespace */
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    /* randomness, and the means of a program to confine itself further */
    "getrandom",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "personality",
    "seccomp",
};

static const char *const refused[] = {
    /* mounts and roots: the masks of /proc hang on them */
    "chroot",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "pivot_root",
    "umount2",
    /* namespaces: each opens kernel code that asks only for capabilities of one's own namespace */
    "setns",
    "unshare",
    /* other processes */
    "kcmp",
    "pidfd_getfd",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    /* keyrings have no namespace */
    "add_key",
    "keyctl",
    "request_key",
    /* a long history of holes, and io_uring goes round every filter */
    "bpf",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "perf_event_open",
    "userfaultfd",
    /* the machine */
    "_sysctl",
    "acct",
    "clock_settime",
    "delete_module",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "setdomainname",
    "sethostname",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "vhangup",
    /* files of the host by handle, and watching them */
    "fanotify_init",
    "fanotify_mark",
    "lookup_dcookie",
    "name_to_handle_at",
    "open_by_handle_at",
    /* where memory and io go */
    "get_mempolicy",
    "ioprio_set",
    "mbind",
    "memfd_secret",
    "migrate_pages",
    "move_pages",
    "set_mempolicy",
    "set_mempolicy_home_node",
    /* dead code */
    "modify_ldt",
    "nfsservctl",
    "sysfs",
    "uselib",
    "ustat",
};
/* clang-format on */

enum check {
    ONLY_VALUES, /* refused unless the argument is one of `values` */
    NOT_VALUES,  /* refused when the argument is one of `values` */
    NO_BITS,     /* refused when a bit of values[0] is set */
    ASK,         /* when the argument is values[0] the agent is asked (SECCOMP_RET_USER_NOTIF) */
};

enum { VALUES_MAX = 4, NO_GUARD = -1 };

#define NAMESPACE_FLAGS                                                                            \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |     \
     CLONE_NEWCGROUP)

/* Every argument here is one of which the kernel takes the low 32 bits. A row with a guard looks
 * only at calls whose argument `guard` is `guard_value`. */
static const struct argument_rule {
    const char *name;
    int guard;
    uint32_t guard_value;
    int argument;
    enum check check;
    int error;
    size_t n_values;
    uint32_t values[VALUES_MAX];
} argument_rules[] = {
    /* New namespaces by the old clone; clone3, whose flags no filter sees, is on no list and
     * answers ENOSYS. */
    {"clone", NO_GUARD, 0, 0, NO_BITS, EPERM, 1, {NAMESPACE_FLAGS}},
    /* unix, inet, inet6, netlink: the rest (vsock, packet, alg, bluetooth ...) is no business of a sandbox */
    {"socket", NO_GUARD, 0, 0, ONLY_VALUES, EAFNOSUPPORT, 4, {1, 2, 10, 16}},
    /* netlink: route alone, and not without end: what waits in its buffers is charged to nobody, so the agent counts them (agent/gate.h) */
    {"socket", 0, 16, 2, ONLY_VALUES, EPROTONOSUPPORT, 1, {0}},
    {"socket", NO_GUARD, 0, 0, ASK, 0, 1, {16}},
    /* inet: the default, icmp, tcp, udp, icmpv6; not mptcp, sctp, dccp and whatever a module would bring */
    {"socket", 0, 2, 2, ONLY_VALUES, EPROTONOSUPPORT, 4, {0, 1, 6, 17}},
    {"socket", 0, 10, 2, ONLY_VALUES, EPROTONOSUPPORT, 4, {0, 6, 17, 58}},
    {"socketpair", NO_GUARD, 0, 0, ONLY_VALUES, EPERM, 1, {1}},
    /* typing into the terminal of another, and selecting on the console */
    {"ioctl", NO_GUARD, 0, 1, NOT_VALUES, EPERM, 2, {TIOCSTI, TIOCLINUX}},
    /* the default, and asking for it; address randomisation stays on */
    {"personality", NO_GUARD, 0, 0, ONLY_VALUES, EPERM, 2, {0, 0xffffffff}},
    /* Limits of one's own. Where the agent shares the code's uid, code could starve it of
     * descriptors. */
    {"prlimit64", NO_GUARD, 0, 0, ONLY_VALUES, EPERM, 1, {0}},
    /* For the same reason nobody moves PID 1 to another processor or scheduling class. */
    {"sched_setaffinity", NO_GUARD, 0, 0, NOT_VALUES, EPERM, 1, {1}},
    {"sched_setattr", NO_GUARD, 0, 0, NOT_VALUES, EPERM, 1, {1}},
    {"sched_setparam", NO_GUARD, 0, 0, NOT_VALUES, EPERM, 1, {1}},
    {"sched_setscheduler", NO_GUARD, 0, 0, NOT_VALUES, EPERM, 1, {1}},
    {"setpriority", 0, 0, 1, NOT_VALUES, EPERM, 1, {1}},
    {"setpriority", NO_GUARD, 0, 0, NOT_VALUES, EPERM, 1, {2}}, /* all processes of a user: PRIO_USER */
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { PROGRAM_MAX = 2048, ABSENT = -2 };

struct program {
    struct sock_filter instructions[PROGRAM_MAX];
    size_t size;
};

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("gen-filter: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* The call's number on the architecture we build on, or ABSENT when it has no such call (arm64 has
 * no open(2)). */
static int call_number(const char *name)
{
    for (size_t i = 0; i < COUNT(newer_calls); i++) {
        if (strcmp(newer_calls[i].name, name) == 0)
            return newer_calls[i].number;
    }
    int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR)
        fail("libseccomp does not know the call '%s'", name);
    return number < 0 ? ABSENT : number;
}

static void emit(struct program *program, struct sock_filter instruction)
{
    if (program->size == PROGRAM_MAX)
        fail("the filter is longer than %d instructions", PROGRAM_MAX);
    program->instructions[program->size++] = instruction;
}

static void emit_load_argument(struct program *program, int argument)
{
    uint32_t at =
        (uint32_t)(offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (size_t)argument);
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
        at += 4;
    emit(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at));
}

/* One block: the number, the guard, the check, RET. Conditional jumps are relative and point past
 * the block's RET. */
static void emit_argument_rule(struct program *program, const struct argument_rule *rule)
{
    int number = call_number(rule->name);
    if (number == ABSENT)
        return;
    bool guarded = rule->guard != NO_GUARD;
    uint8_t n = (uint8_t)rule->n_values;
    uint8_t check_size = (uint8_t)(1 + n + 1); /* load, comparisons, RET */

    emit(program,
         (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    emit(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0,
                                               (uint8_t)(check_size + (guarded ? 2 : 0))));
    if (guarded) {
        emit_load_argument(program, rule->guard);
        emit(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->guard_value, 0,
                                                   check_size));
    }
    emit_load_argument(program, rule->argument);
    for (uint8_t i = 0; i < n; i++) {
        uint8_t to_return = (uint8_t)(n - 1 - i);
        uint8_t past = (uint8_t)(to_return + 1);
        bool last = i == n - 1;
        uint16_t code = BPF_JMP | BPF_K | (rule->check == NO_BITS ? BPF_JSET : BPF_JEQ);
        uint8_t match = rule->check == ONLY_VALUES ? past : to_return;
        uint8_t other = rule->check == ONLY_VALUES || !last ? 0 : past;
        emit(program, (struct sock_filter)BPF_JUMP(code, rule->values[i], match, other));
    }
    uint32_t action =
        rule->check == ASK ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ERRNO | (uint32_t)rule->error;
    emit(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static void add_calls(scmp_filter_ctx context, uint32_t action, const char *const *names,
                      size_t n_names)
{
    for (size_t i = 0; i < n_names; i++) {
        int number = call_number(names[i]);
        if (number == ABSENT)
            continue;
        int result = seccomp_rule_add(context, action, number, 0);
        if (result < 0)
            fail("'%s' twice, or not to be added: %s", names[i], strerror(-result));
    }
}

/* Appends libseccomp's half. */
static void emit_number_rules(struct program *program)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!context)
        fail("seccomp_init");
    if (seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)) < 0 ||
        seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0)
        fail("seccomp_attr_set");
    add_calls(context, SCMP_ACT_ALLOW, allowed, COUNT(allowed));
    add_calls(context, SCMP_ACT_ERRNO(EPERM), refused, COUNT(refused));

    int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0 || seccomp_export_bpf(context, fd) < 0)
        fail("seccomp_export_bpf");
    seccomp_release(context);
    struct sock_filter instruction;
    off_t at = 0;
    while (pread(fd, &instruction, sizeof(instruction), at) == (ssize_t)sizeof(instruction)) {
        emit(program, instruction);
        at += (off_t)sizeof(instruction);
    }
    close(fd);
}

static bool is_allowed(const char *name)
{
    for (size_t i = 0; i < COUNT(allowed); i++) {
        if (strcmp(allowed[i], name) == 0)
            return true;
    }
    return false;
}

int main(void)
{
    static struct program program;
    for (size_t i = 0; i < COUNT(argument_rules); i++) {
        if (!is_allowed(argument_rules[i].name))
            fail("'%s' has a rule for its arguments and is not allowed", argument_rules[i].name);
        emit_argument_rule(&program, &argument_rules[i]);
    }
    emit_number_rules(&program);

    printf(
        "/* Made by gen-filter.c; do not edit. */\n#include \"base/filter.h\"\n\n"
        "const unsigned short filter_size = %zu;\nconst struct sock_filter filter_program[] = {\n",
        program.size);
    for (size_t i = 0; i < program.size; i++) {
        const struct sock_filter *at = &program.instructions[i];
        printf("    {0x%02x, %u, %u, 0x%08x},\n", at->code, at->jt, at->jf, at->k);
    }
    puts("};");
    return ferror(stdout) || fflush(stdout) != 0 ? 1 : 0;
}
