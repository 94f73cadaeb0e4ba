#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/launch.h"

/* The limits of memory, processes and processor time. v2 where its controllers are to be had, the v1 hierarchy of a controller
 * otherwise; both at once on hybrid hosts. Only code is in these groups: the agent stays outside (v1: where the launcher is;
 * v2: hutch-ID/agent), so that it answers under a fork bomb and outlives memory running out. */

enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_N_CONTROLLERS };

enum {
    CGROUP_MAX_V1 = CGROUP_N_CONTROLLERS,
    CGROUP_PATH_MAX = 512,
};

/* One directory of ours in one hierarchy. */
struct cgroup_dir {
    int version; /* 1 or 2 */
    char parent[CGROUP_PATH_MAX];
    char path[CGROUP_PATH_MAX]; /* absolute; "hutch-ID" below the parent */
    int fd;                     /* the group of the code: v1 the directory itself, v2 its `code` */
};

struct cgroup {
    struct cgroup_dir dirs[CGROUP_N_CONTROLLERS + 1];
    unsigned n_dirs;
    int dir_of[CGROUP_N_CONTROLLERS];  /* index into dirs, -1: not to be had */
    uint8_t why[CGROUP_N_CONTROLLERS]; /* enum launch_why, when it is not */
    bool swap_uncounted;
    int agent_group; /* v2: directory of `agent`, for CLONE_INTO_CGROUP; else -1 */
};

/* Finds where groups can be made and names them after `id`; makes nothing yet, so that the record can be written first. */
void cgroup_plan(struct cgroup *cgroup, const char *id);

/* Makes the groups and sets the limits. `owner` is the host uid and gid of the sandbox's root, which may clone into the group of the
 * code (v2); (uid_t)-1 for an ordinary user. A controller that turns out not to be had gets its `why`, that is no error. */
int cgroup_create(struct cgroup *cgroup, const uint64_t limits[LAUNCH_N_LIMITS], uid_t owner,
                  char detail[108]);

bool cgroup_needs_clone_into(const struct cgroup *cgroup);

/* The descriptors the agent gets, opened with the launcher's rights: appended to fds as KEY=FD rows. Returns their number. */
struct cgroup_handle {
    const char *key; /* of wire/protocol.h; "tasks" may repeat */
    int fd;          /* owned by the caller */
};
enum { CGROUP_MAX_HANDLES = 8 };
int cgroup_open_handles(const struct cgroup *cgroup,
                        struct cgroup_handle handles[CGROUP_MAX_HANDLES]);

/* Lifts the processor limit: what is being killed needs time to die. */
void cgroup_unthrottle(const struct cgroup *cgroup);

/* Removes the groups. The processes in them are dead or dying: waits up to 2 s for the last. -EBUSY when one stays. */
int cgroup_remove(struct cgroup *cgroup);
void cgroup_clear(struct cgroup *cgroup);
void cgroup_init(struct cgroup *cgroup);

/* Kills whatever is in the group at `path` (of a record) and removes it with what is below. For sweeping. */
int cgroup_sweep(const char *path);
