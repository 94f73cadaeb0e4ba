#pragma once

#include <stdint.h>

/* One epoll instance (epoll(7), level-triggered) and the descriptors it watches. */

struct loop {
    int epoll_fd;
};

/* A watched descriptor. It belongs to its owner, who keeps it at one address while it is watched
 * and removes it (events 0) before closing `fd`. `ready` may be called without need and must not
 * block. */
struct loop_source {
    int fd;
    uint32_t events; /* what is being watched for; 0: not in the loop */
    void (*ready)(void *owner, uint32_t events);
    void *owner;
};

/* 0 or -errno. */
int loop_init(struct loop *loop);

/* Watches for `events`; 0 takes it out. Does nothing when that is so already. Aborts the process
 * when the kernel refuses (out of memory): an agent that no longer hears is worse than none, and
 * its end is the sandbox's. */
void loop_watch(struct loop *loop, struct loop_source *source, uint32_t events);

/* Waits up to `timeout_ms` (-1: for ever) and calls the one source that is ready. One at a time:
 * what it does may remove others. */
void loop_run_once(struct loop *loop, int timeout_ms);
