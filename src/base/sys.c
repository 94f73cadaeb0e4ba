#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static long result(long value)
{
    return value < 0 ? -errno : value;
}

pid_t sys_clone3(struct clone_args *args)
{
    return (pid_t)result(syscall(SYS_clone3, args, sizeof(*args)));
}

int sys_pidfd_open(pid_t pid)
{
    return (int)result(syscall(SYS_pidfd_open, pid, 0));
}

int sys_pidfd_send_signal(int pidfd, int signal)
{
    return (int)result(syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0));
}

int sys_openat2(int dirfd, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve};
    return (int)result(syscall(SYS_openat2, dirfd, path, &how, sizeof(how)));
}

int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)result(syscall(SYS_close_range, first, last, flags));
}

int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
    return (int)result(syscall(SYS_open_tree, dirfd, path, flags));
}

int sys_move_mount(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
    return (int)result(syscall(SYS_move_mount, from_dirfd, from, to_dirfd, to, flags));
}

int sys_mount_setattr(int dirfd, const char *path, unsigned flags, struct mount_attr *attr)
{
    enum { MOUNT_ATTR_BYTES = 32 }; /* MOUNT_ATTR_SIZE_VER0 */
    return (int)result(
        syscall(SYS_mount_setattr, dirfd, path, flags, attr, (size_t)MOUNT_ATTR_BYTES));
}

int sys_fsopen(const char *type, unsigned flags)
{
    return (int)result(syscall(SYS_fsopen, type, flags));
}

int sys_fsconfig(int fd, unsigned command, const char *key, const char *value, int aux)
{
    return (int)result(syscall(SYS_fsconfig, fd, command, key, value, aux));
}

int sys_fsmount(int fd, unsigned flags, unsigned attributes)
{
    return (int)result(syscall(SYS_fsmount, fd, flags, attributes));
}

int sys_mount(const char *source, const char *target, const char *type, unsigned long flags,
              const char *data)
{
    return (int)result(syscall(SYS_mount, source, target, type, flags, data));
}

int sys_umount2(const char *target, int flags)
{
    return (int)result(syscall(SYS_umount2, target, flags));
}

int sys_pivot_root(const char *new_root, const char *put_old)
{
    return (int)result(syscall(SYS_pivot_root, new_root, put_old));
}

int sys_execveat_fd(int fd, char *const argv[], char *const envp[])
{
    return (int)result(syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH));
}

int sys_capset(uint64_t effective, uint64_t permitted, uint64_t inheritable)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    for (int i = 0; i < 2; i++) {
        data[i].effective = (uint32_t)(effective >> (32 * i));
        data[i].permitted = (uint32_t)(permitted >> (32 * i));
        data[i].inheritable = (uint32_t)(inheritable >> (32 * i));
    }
    return (int)result(syscall(SYS_capset, &header, data));
}

int sys_join_session_keyring(void)
{
    return (int)result(syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0));
}

int sys_empty_bounding_set(void)
{
    /* -EINVAL from a kernel without ambient capabilities (before 4.3) means that there are none. */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return -errno;
    bool may_drop = true;
    for (int capability = 0; capability < 64; capability++) {
        if (may_drop && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0)
            continue;
        if (errno != EPERM && may_drop)
            return errno == EINVAL ? 0 : -errno; /* past the last one this kernel has */
        may_drop = false; /* no CAP_SETPCAP: fine when the set is empty already */
        int present = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
        if (present != 0)
            return present > 0 ? -EPERM : errno == EINVAL ? 0 : -errno;
    }
    return 0;
}

void sys_default_signals(void)
{
    enum { SIGNALS = 64, SET_BYTES = 8 };
    /* The kernel's struct sigaction, whose order of fields differs between machines: all of them zero is SIG_DFL everywhere. */
    const unsigned long action[8] = {0};
    for (int number = 1; number <= SIGNALS; number++)
        (void)syscall(SYS_rt_sigaction, number, action, NULL,
                      (size_t)SET_BYTES); /* KILL and STOP are refused */
}
