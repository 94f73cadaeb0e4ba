#pragma once

#include "agent/loop.h"

/* The one question that the seccomp filter asks (seccomp_unotify(2), Linux 5.5): may there be another netlink socket?
 *
 * Programs that list interfaces need one. But what waits in a netlink socket's buffer is charged to no cgroup, so thousands of
 * them would hold gigabytes of the host. Arguments are registers here, so that what was checked is what runs (the kernel goes on with the
 * call itself). */

enum {
    GATE_OPEN_MAX = 64, /* at the same time in the sandbox */
    GATE_GRANTS_MAX =
        1000, /* in one execution; then the gate shuts, and asking costs the agent nothing more (ENOSYS) */
};

struct gate {
    struct loop *loop;
    struct loop_source source; /* fd -1: shut */
    unsigned n_asked;
};

void gate_init(struct gate *gate, struct loop *loop);

/* Takes `listener`. */
void gate_open(struct gate *gate, int listener);
void gate_clear(struct gate *gate);
