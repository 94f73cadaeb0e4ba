#pragma once

#include <stdint.h>
#include <sys/types.h>

/* One file per living sandbox in the state directory: what has to be removed should its launcher be killed. Text, one
 * "key value" per line: `cgroup PATH` (repeated), `pid PID START_TIME`. The launcher holds a lock (flock(2)) on it from before it has a name
 * until after everything is removed: a record that can be locked is stale. */

enum { RECORD_ID_MAX = 31 };

struct record {
    int fd;     /* locked; -1: none */
    int dir_fd; /* borrowed: the state directory */
    char name[RECORD_ID_MAX + 8];
};

void record_init(struct record *record);

/* Makes an id that no other sandbox of this host has. */
int record_make_id(char id[RECORD_ID_MAX + 1]);

/* Creates the record with `text`; it has its name only when it is locked and complete. */
int record_create(struct record *record, int state_fd, const char *id, const char *text);
int record_append(struct record *record, const char *text);

/* Removes it. */
void record_remove(struct record *record);

/* Ends and removes what launchers that are dead have left behind. Returns how many were found. */
int record_sweep(int state_fd);

/* Start time of a process (proc(5), field 22 of stat), or -errno. */
int record_start_time(pid_t pid, uint64_t *start_time);
