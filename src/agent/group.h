#pragma once

#include <stdbool.h>

#include "agent/loop.h"

/* The sub-group of one execution, below the group of the code on cgroup v2 (also the v2 hierarchy
 * of a hybrid host, which has no controllers): all that the execution started is in it, whatever it
 * did to its session and parents, and dies with it. cgroup.kill is Linux 5.14. On v1 alone there is
 * no such group. */

struct group {
    int parent_fd; /* borrowed */
    int fd;        /* directory; -1: no group */
    char name[40];
    struct loop *loop;
    struct loop_source events; /* cgroup.events: wakes the loop when the group becomes empty */
};

void group_init(struct group *group, struct loop *loop);

/* Makes e-<id>. 0 or -errno. */
int group_create(struct group *group, int parent_fd, const char *id);

/* Sends `signal` to every process in it, once; what is born meanwhile may be missed. */
void group_signal(const struct group *group, int signal);

/* Kills everything in it, at once and atomically. 0 or -errno. */
int group_kill(const struct group *group);

/* No live process is in it. */
bool group_is_empty(const struct group *group);

/* Removes it (left where it is when a process in it does not die) and closes. No group is fine. */
void group_clear(struct group *group);
