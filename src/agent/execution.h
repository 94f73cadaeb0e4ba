#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/connection.h"
#include "agent/gate.h"
#include "agent/group.h"
#include "agent/input.h"
#include "agent/loop.h"
#include "agent/request.h"
#include "agent/script.h"
#include "agent/settings.h"
#include "agent/spawn.h"
#include "agent/spool.h"
#include "agent/usage.h"

/* The life of one execution at a time: IDLE, SCRIPT (its bytes are coming), RUNNING (its main
 * process lives), ENDING (that has ended, the rest is being killed), FLUSHING (what it printed is
 * on its way to the client), IDLE. execution.c has the picture. Nothing here blocks;
 * execution_advance() moves it on as far as it goes. */

enum execution_state {
    EXECUTION_IDLE,
    EXECUTION_SCRIPT,
    EXECUTION_RUNNING,
    EXECUTION_ENDING,
    EXECUTION_FLUSHING
};

enum execution_reason {
    REASON_NONE,
    REASON_TIMEOUT,
    REASON_MEMORY,
    REASON_OUTPUT,
    REASON_CANCELLED
};

enum { EXECUTION_IDS_KEPT = 128 };

struct execution {
    const struct settings *settings;
    struct loop *loop;
    struct connection *connection;

    enum execution_state state;
    struct request request;
    struct script script;
    struct input input;
    struct spool spool;
    struct group group;
    struct loop_source streams[SPOOL_STREAMS];
    struct loop_source exec_error;
    struct gate gate;

    pid_t pid;  /* the main process; 0: reaped */
    int status; /* of wait4(2), once it is reaped */
    bool has_status;
    bool started; /* the program runs: exec was successful */
    bool passed_gap;
    bool left_running; /* a process did not die */
    enum execution_reason reason;
    bool kill_sent;             /* SIGKILL by us, before the main process ended */
    struct spawn_error failure; /* error != 0: it could not be run; answered by ERROR */

    uint64_t begun_us, ended_us; /* the main process's time, CLOCK_MONOTONIC */
    uint64_t deadline_ms;        /* of the state it is in: 0 = none */
    uint64_t cpu_us;             /* of everything reaped since it began */
    struct usage_events events_before;
    struct usage_events events_after;

    char ids[EXECUTION_IDS_KEPT][PROTOCOL_ID_MAX + 1]; /* the last ones, a ring */
    size_t next_id;
    uint8_t buffer[64 * 1024]; /* between a pipe and the spool */
};

void execution_init(struct execution *execution, const struct settings *settings, struct loop *loop,
                    struct connection *connection);

/* What the client asks. execution_start() answers by itself, with STARTED later or ERROR; script
 * and input return -EPROTO when the client broke a rule. Frames for an execution that was refused
 * or has ended are no mistake: they are ignored. */
void execution_start(struct execution *execution, const void *payload, size_t size);
int execution_script(struct execution *execution, const void *data, size_t size);
int execution_input(struct execution *execution, const void *data, size_t size);
void execution_input_end(struct execution *execution);
void execution_cancel(struct execution *execution, const char *id);

/* Reaps every child that has ended: the main process, and all that PID 1 inherits. After
 * SIGCHLD. */
void execution_reap(struct execution *execution);

/* Does what is due: deadlines, the next state, output and credit to the client as far as they have
 * room. True: there is more for the client than went into its buffer. */
bool execution_advance(struct execution *execution);

/* The kernel killed a process for memory since it began; known from FLUSHING on. */
bool execution_lost_memory(const struct execution *execution);

/* Milliseconds until execution_advance() has something to do without an event; -1: never. */
int execution_timeout_ms(const struct execution *execution);
