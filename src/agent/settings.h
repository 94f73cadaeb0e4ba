#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the launcher tells the agent: its arguments (wire/protocol.h), parsed and checked. */

enum { SETTINGS_TASKS_MAX = 8 };

struct settings {
    int connection; /* descriptors; -1: not there */
    int spool;
    int code_group;
    int memory_events;
    int memory_peak;
    int pids_events;
    int tasks[SETTINGS_TASKS_MAX];
    size_t n_tasks;
    bool has_cgroup;
    uint64_t agent_uid;
    uint64_t code_uid; /* its gid is the same number */
    uint64_t nofile;   /* rlimits of the code, 0: as they are */
    uint64_t nproc;
    uint64_t fsize_bytes;
    uint64_t data_bytes;
    uint64_t cpus;
    uint64_t first_cpu; /* modulo the processors there are */
    uint64_t tied;
};

/* Parses `KEY=VALUE` arguments. 0; or -EINVAL with *wrong (borrowed from `arguments`, or a literal
 * naming what is missing): an unknown key, a key twice, a value that is no number in its range, a
 * descriptor that is not open. */
int settings_parse(struct settings *settings, char *const arguments[], const char **wrong);

/* Only one id exists: agent and code share it, and nothing is changed. */
bool settings_share_uid(const struct settings *settings);
