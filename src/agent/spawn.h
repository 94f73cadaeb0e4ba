#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "agent/settings.h"

/* Starting code: the only place where the agent forks, and one function that is the ordered list of
 * what happens between the fork and the program (spawn.c). */

struct spawn_plan {
    const struct settings *settings;
    char *const *argv;
    char *const *env;
    const char *cwd;
    int group_fd; /* cgroup v2 directory to be born in; -1: none */
    bool use_stdin;
};

/* What the agent keeps: its ends of the pipes, non-blocking and close-on-exec. The caller's. */
struct spawned {
    pid_t pid;
    int stdin_fd; /* -1 when the plan has none: /dev/null */
    int stdout_fd;
    int stderr_fd;
    int error_fd; /* a socket: the filter's listener, then a struct spawn_error if the program could not be started; else end of file */
};

struct spawn_error {
    int error;     /* errno */
    char step[28]; /* a-z and '_', NUL-ended */
};

/* Returns 0, or -errno with *step (a literal) naming what failed in the agent; then nothing runs
 * and nothing is open. The pid is without a pidfd: the agent reaps all its children itself, in one
 * thread, so a pid is valid until it has seen its end. */
int spawn_start(const struct spawn_plan *plan, struct spawned *spawned, const char **step);

/* Reads error_fd. 1 and *error: the program could not be started. 0: it was. -EAGAIN: not known
 * yet. When the filter's listener came, *listener is set and the caller's. */
int spawn_read_error(int error_fd, struct spawn_error *error, int *listener);
