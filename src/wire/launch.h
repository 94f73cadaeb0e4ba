#pragma once

#include <stdint.h>

/* What the launcher is asked and answers: fixed structs, one per SOCK_SEQPACKET message, native byte order (both ends come from
 * one build, `size` and `version` are checked). Everything else is refused. End of file on the socket ends the sandbox. */

enum { LAUNCH_VERSION = 1 };

enum launch_request_type {
    /* Makes the sandbox of this connection. Answered twice: with its descriptors as soon as the agent can be written to, and with
     * the outcome and the steps when the agent runs. An error is the only answer. */
    LAUNCH_CREATE = 1,
    LAUNCH_KILL = 2, /* kills everything in it; answered when all of it is gone */
};

enum launch_limit {
    LAUNCH_MEMORY, /* bytes */
    LAUNCH_PIDS,
    LAUNCH_CPU,  /* thousandths of a processor */
    LAUNCH_DISK, /* bytes of /workspace */
    LAUNCH_OPEN_FILES,
    LAUNCH_TMP, /* bytes of /tmp, /home/user and /dev/shm together */
    LAUNCH_N_LIMITS,
};

/* Who is killed with -9 at a step: the test hook for crash safety. */
enum launch_fault { LAUNCH_FAULT_NONE, LAUNCH_FAULT_HUTCH, LAUNCH_FAULT_LAUNCHER };

/* The steps of making a sandbox, in the order of --timing: name, who does it, what an error there means and what to do. */
#define LAUNCH_STEPS(X)                                                                                  \
    X(START, "start", "launcher", "starting the launcher", "see dmesg")                                  \
    X(RECORD, "record", "launcher", "writing the record of the run into the state directory",            \
      "make the state directory writable, or name another one with --state-dir")                         \
    X(IDS, "ids", "launcher", "taking a range of user ids",                                              \
      "check /run/hutch/ids; end sandboxes that are left over")                                          \
    X(CGROUP, "cgroup", "launcher", "making the cgroups", "run `hutch doctor`")                          \
    X(NAMESPACES, "namespaces", "launcher", "making the namespaces",                                     \
      "allow user namespaces (`hutch doctor` names the setting of this host)")                           \
    X(ID_MAPS, "id_maps", "launcher", "writing the id maps", "run `hutch doctor`")                       \
    X(DISK, "disk", "launcher", "making the disk of /workspace",                                         \
      "free space in the state directory, lower --disk, or install e2fsprogs")                           \
    X(IDENTITY, "identity", "sandbox", "becoming root of the user namespace",                            \
      "run `hutch doctor`")                                                                              \
    X(NETWORK, "network", "sandbox", "bringing up the loopback", "run `hutch doctor`")                   \
    X(ROOT, "root", "sandbox", "building the root file system", "run `hutch doctor`")                    \
    X(ETC, "etc", "sandbox", "building /etc", "run `hutch doctor`")                                      \
    X(DEV, "dev", "sandbox", "building /dev", "run `hutch doctor`")                                      \
    X(PROC, "proc", "sandbox", "mounting /proc",                                                         \
      "in a container, start it with an unmasked /proc (docker: --security-opt systempaths=unconfined)") \
    X(READ_ONLY, "read_only", "sandbox", "making the root read-only", "use Linux 5.12 or newer")         \
    X(WRITABLE, "writable", "sandbox", "mounting /tmp, /home/user and /dev/shm",                         \
      "run `hutch doctor`")                                                                              \
    X(WORKSPACE, "workspace", "sandbox", "mounting /workspace", "run `hutch doctor`")                    \
    X(PIVOT, "pivot", "sandbox", "changing the root",                                                    \
      "hutch must not run in a chroot; use pivot_root or switch_root for its surroundings")              \
    X(DESCRIPTORS, "descriptors", "sandbox", "placing the agent's descriptors",                          \
      "raise the limit of open files")                                                                   \
    X(AGENT, "agent", "launcher", "starting hutch-agent",                                                \
      "reinstall hutch: hutch-agent must be readable and executable")                                    \
    X(KILL, "kill", "launcher", "killing the sandbox", "see dmesg: a process hangs in the kernel")

enum launch_step {
#define X(name, word, who, doing, mend) LAUNCH_STEP_##name,
    LAUNCH_STEPS(X)
#undef X
        LAUNCH_N_STEPS,
};

/* How a limit is enforced. */
#define LAUNCH_HOWS(X)                                                                             \
    X(NOTHING, "nothing")                                                                          \
    X(CGROUP1, "cgroup v1")                                                                        \
    X(CGROUP2, "cgroup v2")                                                                        \
    X(RLIMIT, "rlimit")                                                                            \
    X(RLIMIT_EACH, "rlimit of each process")                                                       \
    X(TMPFS, "tmpfs")                                                                              \
    X(IMAGE, "ext4 image")                                                                         \
    X(AFFINITY, "affinity")

/* Why a limit is not enforced, or not as asked, and what to do. */
#define LAUNCH_WHYS(X)                                                                                                   \
    X(NONE, "", "")                                                                                                      \
    X(NOT_MOUNTED, "no cgroup hierarchy with this controller is mounted",                                                \
      "mount cgroup2 at /sys/fs/cgroup")                                                                                 \
    X(NO_RIGHT, "this user may not make cgroups",                                                                        \
      "run as root, or on cgroup v2 inside a delegated scope: systemd-run --user --scope -p Delegate=yes hutch run ...") \
    X(NOT_ENABLED, "the cgroup controller cannot be enabled here",                                                       \
      "enable it for the parent group (cgroup.subtree_control), see `hutch doctor`")                                     \
    X(SWAP, "the host has swap and the kernel does not count it for groups",                                             \
      "boot with swapaccount=1, or switch swap off")                                                                     \
    X(SCALED, "scaled down to two fifths of the memory limit", "raise --memory")                                         \
    X(NO_LOOP, "no loop device can be had here, so /workspace is a tmpfs and counts as memory",                          \
      "load the loop module and let hutch open /dev/loop-control")                                                       \
    X(NO_MKFS, "mkfs.ext4 is missing, so /workspace is a tmpfs and counts as memory",                                    \
      "apt-get install e2fsprogs")                                                                                       \
    X(USER_TMPFS, "for an ordinary user /workspace is a tmpfs and counts as memory of the host",                         \
      "run as root")

#define X(name, ...) LAUNCH_HOW_##name,
enum launch_how { LAUNCH_HOWS(X) };
#undef X
#define X(name, ...) LAUNCH_WHY_##name,
enum launch_why { LAUNCH_WHYS(X) };
#undef X

struct launch_request {
    uint32_t size; /* sizeof(struct launch_request) */
    uint32_t version;
    uint32_t type;  /* enum launch_request_type */
    uint32_t fault; /* enum launch_fault */
    uint32_t fault_step;
    uint32_t reserved; /* 0 */
    uint64_t limits[LAUNCH_N_LIMITS];
};

/* Bounds that the launcher holds every number against; the command line prints the same ones. */
#define LAUNCH_BOUNDS(X)                                                                           \
    X(MEMORY, 16ull << 20, 1ull << 42)                                                             \
    X(PIDS, 1, 1 << 20)                                                                            \
    X(CPU, 10, 1024 * 1000)                                                                        \
    X(DISK, 1ull << 20, 1ull << 42)                                                                \
    X(OPEN_FILES, 16, 1 << 20)                                                                     \
    X(TMP, 1ull << 20, 1ull << 40)

struct launch_step_time {
    uint32_t step;
    uint32_t us;
};

struct launch_reply {
    uint32_t size;
    int32_t error; /* 0, or -errno of `step` */
    uint32_t step;
    char detail[108]; /* what it was about, e.g. a path; may be empty */
    uint64_t values[LAUNCH_N_LIMITS];
    uint8_t enforced[LAUNCH_N_LIMITS];
    uint8_t how[LAUNCH_N_LIMITS];
    uint8_t why[LAUNCH_N_LIMITS];
    uint8_t shares_uid;      /* agent and code have one id */
    int32_t workspace_owner; /* id to give files put into /workspace; -1: nothing to do */
    uint32_t n_steps;
    struct launch_step_time steps[LAUNCH_N_STEPS];
};

/* Descriptors that come with a successful answer to CREATE, in this order. */
enum { LAUNCH_FD_AGENT, LAUNCH_FD_WORKSPACE, LAUNCH_N_FDS };
