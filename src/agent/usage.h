#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/settings.h"

/* What the kernel counts for the code's cgroups, through descriptors that the launcher opened.
 * Counters only grow: compare. */

struct usage_events {
    uint64_t oom_kills;    /* memory.events (v2) or memory.oom_control (v1, 4.13): "oom_kill" */
    uint64_t pids_refused; /* pids.events: "max" */
};

/* What has no descriptor counts as 0. */
void usage_read_events(const struct settings *settings, struct usage_events *events);

/* The highest memory use of the group so far (memory.peak is Linux 5.19). False: nobody counts
 * it. */
bool usage_read_peak(const struct settings *settings, uint64_t *bytes);

/* /workspace has no block or no inode left. */
bool usage_disk_is_full(void);
