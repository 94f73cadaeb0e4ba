#pragma once

#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mount_attr; /* linux/mount.h, which cannot be included beside glibc's sys/mount.h */

/* System calls that musl or glibc 2.36 have no wrapper for. Each returns the call's value or -errno. */

/* clone3(2), Linux 5.3. As fork(2): returns 0 in the child, which runs on a copy of the stack; atfork handlers do not run. */
pid_t sys_clone3(struct clone_args *args);

/* pidfd_open(2) 5.3, pidfd_send_signal(2) 5.1. */
int sys_pidfd_open(pid_t pid);
int sys_pidfd_send_signal(int pidfd, int signal);

/* openat2(2), Linux 5.6; `resolve` are its RESOLVE_ flags. */
int sys_openat2(int dirfd, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve);

/* close_range(2), Linux 5.9. */
int sys_close_range(unsigned first, unsigned last, unsigned flags);

/* The new mount API (5.2; mount_setattr 5.12) and the old one. */
int sys_open_tree(int dirfd, const char *path, unsigned flags);
int sys_move_mount(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags);
int sys_mount_setattr(int dirfd, const char *path, unsigned flags, struct mount_attr *attr);
int sys_fsopen(const char *type, unsigned flags);
int sys_fsconfig(int fd, unsigned command, const char *key, const char *value, int aux);
int sys_fsmount(int fd, unsigned flags, unsigned attributes);
int sys_mount(const char *source, const char *target, const char *type, unsigned long flags,
              const char *data);
int sys_umount2(const char *target, int flags);
int sys_pivot_root(const char *new_root, const char *put_old);

/* execveat(2) of the descriptor itself (AT_EMPTY_PATH); returns only on failure. */
int sys_execveat_fd(int fd, char *const argv[], char *const envp[]);

/* capset(2) with the same 64-bit sets for the calling thread. */
int sys_capset(uint64_t effective, uint64_t permitted, uint64_t inheritable);

/* Every signal to its default, also the three that musl keeps for itself (32 to 34, whose signal(2) it refuses): a caller may have
 * had them ignored, as glibc's posix_spawn(3) does. */
void sys_default_signals(void);

/* keyctl(KEYCTL_JOIN_SESSION_KEYRING, NULL): an empty session keyring of its own. -ENOSYS where the kernel has no keys. */
int sys_join_session_keyring(void);

/* Empties the ambient and the bounding set of the calling thread: what it execs gains nothing. 0 or -errno; costs one
 * call per capability when the bounding set is empty already. */
int sys_empty_bounding_set(void);
