#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/cgroup.h"
#include "launcher/disk.h"
#include "launcher/ids.h"
#include "launcher/record.h"
#include "wire/launch.h"

enum {
    LAUNCHER_CLIENT_FD = 3
}; /* the client's end of the SOCK_SEQPACKET pair, placed by who started the launcher */

/* The launcher's configuration: its argument list, fixed at its start. */
struct launcher {
    bool is_root;
    int state_fd;     /* directory of the records */
    int templates_fd; /* directory of formatted disks; -1 when there is none */
    int agent_fd; /* the agent's program, O_RDONLY (O_PATH cannot be executed through a later pivot on old kernels) */
    uint64_t started_us;
};

/* What the child in the making tells the launcher through a shared page: it may die at any point. */
struct sandbox_report {
    int32_t error;
    uint32_t step;
    char detail[108];
    uint32_t n_steps;
    uint64_t last_us;
    struct launch_step_time steps[LAUNCH_N_STEPS];
};

struct sandbox {
    const struct launcher *launcher;
    struct launch_request request;
    char id[RECORD_ID_MAX + 1];
    struct record record;
    struct id_slot ids;
    struct cgroup cgroup;
    struct disk disk;
    pid_t pid;
    int pidfd;
    int sync;      /* the launcher's end; closed at exec of the agent */
    int agent;     /* the client's end of the agent's connection */
    int workspace; /* directory descriptor of /workspace for the client */
    uint64_t tmp_bytes;
    struct sandbox_report *report;
    struct sandbox_report own; /* the launcher's side of the steps */
};

/* Begins a sandbox as `request` says and fills in `reply`. On success 0: sandbox->agent and ->workspace are to be sent, the child is at
 * its last steps. On failure -errno: reply->step and ->detail name what failed, and sandbox_destroy() has been done. */
int sandbox_begin(struct sandbox *sandbox, const struct launcher *launcher,
                  const struct launch_request *request, struct launch_reply *reply);

/* Waits until the agent runs; `reply` gets the steps. Failures as above. */
int sandbox_finish(struct sandbox *sandbox, struct launch_reply *reply);

/* Completes the record on disk with the sandbox's process. Done after the answer: nobody waits for it. */
void sandbox_complete_record(struct sandbox *sandbox);

/* Kills every process of the sandbox and waits, at most 10 s, until they are gone; 0 or -ETIMEDOUT. */
int sandbox_kill(struct sandbox *sandbox);

/* Kills, and removes everything that is left on the host. Accepts half-made and zeroed-by-init sandboxes. */
void sandbox_destroy(struct sandbox *sandbox);
void sandbox_init(struct sandbox *sandbox);

/* Marks a step as done: remembers what it took and fires the test hook. */
void sandbox_step(struct sandbox *sandbox, struct sandbox_report *report, enum launch_step step);

/* Kills the process that request->fault names, when `step` is the one. */
void sandbox_fault(const struct launch_request *request, enum launch_step step);
