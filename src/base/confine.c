#include "base/confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/filter.h"
#include "base/sys.h"

/* The set*id calls are made raw: those of the C library synchronise threads, which is not
 * async-signal-safe, and there is one thread. */
static int raw(long value)
{
    return value < 0 ? -errno : 0;
}

static int join_keyring(const struct confine *confine)
{
    (void)confine;
    int result = sys_join_session_keyring();
    /* No keys in this kernel, or an outer sandbox refuses keyctl: then there is no keyring to
     * share, and the filter refuses the calls in any case. Success is the keyring's serial
     * number. */
    if (result >= 0 || result == -ENOSYS || result == -EPERM)
        return 0;
    return result;
}

static int set_limit(int resource, uint64_t soft, uint64_t hard)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) < 0)
        return -errno;
    if (hard < limit.rlim_max)
        limit.rlim_max = hard;
    limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
    return setrlimit(resource, &limit) < 0 ? -errno : 0;
}

static int set_limits(const struct confine *confine)
{
    enum { MIB = 1024 * 1024 };
    const struct {
        int resource;
        bool wanted;
        uint64_t soft, hard;
    } limits[] = {
        {RLIMIT_CORE, true, 0, 0},
        {RLIMIT_NOFILE, confine->nofile > 0, confine->nofile, confine->nofile},
        {RLIMIT_NPROC, confine->nproc > 0, confine->nproc, confine->nproc},
        {RLIMIT_FSIZE, confine->fsize_bytes > 0, confine->fsize_bytes, confine->fsize_bytes},
        {RLIMIT_DATA, confine->data_bytes > 0, confine->data_bytes, confine->data_bytes},
        {RLIMIT_STACK, true, 8 * MIB, 64 * MIB},
        {RLIMIT_MEMLOCK, true, 64 * 1024, 64 * 1024},
        {RLIMIT_MSGQUEUE, true, 819200, 819200},
        {RLIMIT_SIGPENDING, true, 1024, 1024},
        {RLIMIT_RTPRIO, true, 0, 0},
        {RLIMIT_NICE, true, 0, 0},
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (!limits[i].wanted)
            continue;
        int result = set_limit(limits[i].resource, limits[i].soft, limits[i].hard);
        if (result < 0)
            return result;
    }
    return 0;
}

static int empty_bounding_set(const struct confine *confine)
{
    (void)confine;
    return sys_empty_bounding_set();
}

static int set_groups(const struct confine *confine)
{
    return confine->uid < 0 ? 0 : raw(syscall(SYS_setgroups, 0, NULL));
}

static int set_gid(const struct confine *confine)
{
    if (confine->uid < 0)
        return 0;
    return raw(syscall(SYS_setresgid, confine->gid, confine->gid, confine->gid));
}

static int set_uid(const struct confine *confine)
{
    if (confine->uid < 0)
        return 0;
    return raw(syscall(SYS_setresuid, confine->uid, confine->uid, confine->uid));
}

static int check_ids(const struct confine *confine)
{
    if (confine->uid < 0)
        return 0;
    uid_t uid[3];
    gid_t gid[3];
    if (syscall(SYS_getresuid, &uid[0], &uid[1], &uid[2]) < 0 ||
        syscall(SYS_getresgid, &gid[0], &gid[1], &gid[2]) < 0)
        return -errno;
    for (int i = 0; i < 3; i++) {
        if (uid[i] != (uid_t)confine->uid || gid[i] != (gid_t)confine->gid)
            return -EPERM;
    }
    return 0;
}

/* setresuid(2) from an unmapped uid, as after setns(2), keeps the capabilities: hence always an
 * explicit capset. */
static int drop_capabilities(const struct confine *confine)
{
    (void)confine;
    return sys_capset(0, 0, 0);
}

static int set_no_new_privs(const struct confine *confine)
{
    (void)confine;
    return raw(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

int confine_install_filter(int *listener)
{
    struct sock_fprog program = {.len = filter_size,
                                 .filter = (struct sock_filter *)filter_program};
    if (listener) {
        long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                          &program);
        *listener = fd < 0 ? -1 : (int)fd;
        if (fd >= 0 || errno != EBUSY)
            return raw(fd);
    }
    return raw(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static int install_filter(const struct confine *confine)
{
    return confine_install_filter(confine->listener);
}

int confine_drop(const struct confine *confine, const char **step)
{
    static const struct {
        const char *name;
        int (*run)(const struct confine *confine);
    } steps[] = {
        {"keyring", join_keyring},
        {"rlimits", set_limits},
        {"bounding_set", empty_bounding_set},
        {"groups", set_groups},
        {"gid", set_gid},
        {"uid", set_uid},
        {"ids", check_ids},
        {"capabilities", drop_capabilities},
        {"no_new_privs", set_no_new_privs},
        {"seccomp", install_filter},
    };
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        int result = steps[i].run(confine);
        if (result < 0) {
            *step = steps[i].name;
            return result;
        }
    }
    return 0;
}
