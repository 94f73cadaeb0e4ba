#pragma once

#include <stddef.h>
#include <stdint.h>

/* The last drop of rights before code that nobody vouches for runs. Linked into everything that
 * starts such code. */

struct confine {
    int uid; /* id inside the sandbox; -1: the only id there is, nothing to change */
    int gid;
    uint64_t nofile; /* rlimits: hard = soft; 0 leaves it as it is */
    uint64_t nproc;
    uint64_t fsize_bytes;
    uint64_t data_bytes;
    int *
        listener; /* receives the descriptor on which the filter asks (seccomp_unotify(2)), close-on-exec, or -1 where another
                      filter above has one: then what it would ask for is ENOSYS. NULL: nobody answers */
};

/* In this order: a new session keyring, rlimits, ambient and bounding set emptied, groups, gid, uid
 * (checked), all capabilities dropped (capset(2)), no_new_privs, the seccomp filter. The caller has
 * done setsid, cgroups, the cgroup namespace and the descriptors, which need rights. Returns 0, or
 * -errno with *step naming what failed (a literal of a-z and '_'). After a failure the process must
 * exit: it has lost some of its rights. Async-signal-safe: raw calls only.
 *
 * A process that is to exec next stays undumpable until then (execve(2) makes it dumpable again):
 * other code of the same uid may already run, and must not reach the memory it has of its parent.
 * One that goes on without exec sets PR_SET_DUMPABLE 1 itself, last, or /proc/self is not its own.
 *
 * A bounding set that is not empty takes CAP_SETPCAP to empty; without it the answer is -EPERM. A
 * limit above the hard limit that is in force is cut to that. */
int confine_drop(const struct confine *confine, const char **step);

/* Installs the seccomp filter alone (needs no_new_privs or CAP_SYS_ADMIN). `listener` as above. 0 or -errno. */
int confine_install_filter(int *listener);
