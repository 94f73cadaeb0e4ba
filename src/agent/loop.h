#pragma once

#include <poll.h>
#include <stddef.h>

/* The descriptors the agent waits for, by poll(2). Not epoll(7): its watches are counted per user (fs.epoll.max_user_watches), and
 * where code and agent share a user, code can use them all up. */

/* The signals, the connection, an execution's standard input, output and error, its exec error, its cgroup's events and its gate; and room. */
enum { LOOP_SOURCES_MAX = 16 };

/* A watched descriptor. It belongs to its owner, who keeps it at one address while it is watched
 * and removes it (events 0) before closing `fd`. `ready` may be called without need and must not
 * block. */
struct loop_source {
    int fd;
    short events; /* POLLIN and the like; 0: not in the loop. POLLERR and POLLHUP are always told */
    void (*ready)(void *owner, short events);
    void *owner;
};

/* All zero: an empty loop. */
struct loop {
    struct loop_source *sources[LOOP_SOURCES_MAX];
    size_t n_sources;
    size_t next; /* where the search for the next ready one begins */
};

/* Watches for `events`; 0 takes it out. Does nothing when that is so already. */
void loop_watch(struct loop *loop, struct loop_source *source, short events);

/* Waits up to `timeout_ms` (-1: for ever) and calls the one source that is ready. One at a time:
 * what it does may remove others. */
void loop_run_once(struct loop *loop, int timeout_ms);
