#pragma once

#include <glib.h>

#include "backend/error.h"

/* The client's side of wire/frame.h: starting an execution in a sandbox's agent and following it to
 * its end.
 *
 * Straight-line calls for a thread or a program that does one execution at a time. Nothing here
 * blocks but in poll(2), and every wait for the agent has a deadline, because an agent shares its
 * sandbox with hostile code: what it sends is checked, what it keeps sending is bounded, and
 * silence is an error. All errors are HUTCH_ERROR_AGENT unless said. */

typedef enum {
    AGENT_STDOUT,
    AGENT_STDERR,
    N_AGENT_STREAMS,
} AgentStream;

/* Why the agent ended an execution, with the words of the protocol and of the API. */
#define AGENT_REASONS(X)                                                                           \
    X(TIMEOUT, "timeout")                                                                          \
    X(MEMORY, "memory")                                                                            \
    X(OUTPUT, "output")                                                                            \
    X(CANCELLED, "cancelled")

typedef enum {
    AGENT_REASON_NONE,
#define X(name, word) AGENT_REASON_##name,
    AGENT_REASONS(X)
#undef X
} AgentReason;

/* Limits that an execution ran into, as bits. */
#define AGENT_HITS(X)                                                                              \
    X(MEMORY, 1, "memory")                                                                         \
    X(PIDS, 2, "pids")                                                                             \
    X(DISK, 4, "disk")                                                                             \
    X(OUTPUT, 8, "output")

typedef enum {
#define X(name, bit, word) AGENT_HIT_##name = (bit),
    AGENT_HITS(X)
#undef X
} AgentHit;

/* The word of a reason, NULL for none; of one limit's bit. */
const char *agent_reason_word(AgentReason reason);
const char *agent_hit_word(AgentHit hit);

typedef struct {
    const char *id;          /* [a-z0-9_]{1,32}, not used before in this sandbox */
    const char *const *argv; /* "{script}" stands for the script's path; NULL-ended, at least one */
    const char *const *env;  /* NAME=VALUE: the whole environment */
    const char *cwd;
    guint64 timeout_ms, grace_ms; /* timeout 0: none */
    guint64 output_bytes;
    gboolean has_stdin;      /* FALSE: /dev/null */
    const char *script_name; /* NULL: no script */
    const char *script;
    gsize script_size;
    gboolean sole; /* its end is the end of every process in the sandbox */
} AgentRequest;

/* Why nothing runs: the agent's step ("exec", ...), its errno (0: none) and its sentence. */
typedef struct {
    char step[32];
    int error_number;
    char message[512];
} AgentRefusal;

typedef struct {
    gboolean exited; /* exit_code counts; else signal does */
    int exit_code;
    int signal;
    gboolean left_running; /* a process outlived its SIGKILL: it hangs in the kernel */
    AgentReason reason;
    guint hits; /* AgentHit bits */
    guint64 written_bytes[N_AGENT_STREAMS];
    guint64 dropped_bytes[N_AGENT_STREAMS];
    guint64 wall_ms, cpu_ms;
    gboolean has_peak_memory;
    guint64 peak_memory_bytes;
} AgentOutcome;

/* Where output goes. */
typedef struct {
    /* Takes up to `size` bytes and returns how many it took. When it takes fewer it sets *wait_fd:
     * the rest is offered again when that is writable, and nothing more is read from the agent
     * until then. -errno: no more output is wanted, the execution is cancelled. */
    gssize (*output)(void *user, AgentStream stream, const char *data, gsize size, int *wait_fd);
    /* So many bytes were dropped here, between the head and the tail of the output. */
    void (*gap)(void *user, const guint64 dropped_bytes[N_AGENT_STREAMS]);
} AgentSink;

typedef enum {
    AGENT_GO_ON,
    AGENT_CANCEL,  /* TERM, after the grace KILL; the outcome still comes. Output that the sink has
                      not taken by then is dropped */
    AGENT_GIVE_UP, /* return at once with an error */
} AgentWish;

typedef struct {
    const AgentSink *sink;
    int stdin_fd; /* relayed until its end, as the program takes it; -1: the program's input ends at
                     once */
    int wish_fd;  /* when readable wish() is called, which must make it unreadable; -1: none */
    AgentWish (*wish)(void *user);
    void *user; /* of sink and wish */
} AgentRelay;

typedef struct AgentClient AgentClient;

/* `fd` is a connected stream socket to an agent, borrowed; nothing is sent yet. */
AgentClient *agent_client_new(int fd);
void agent_client_free(AgentClient *client);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(AgentClient, agent_client_free)

/* Starts an execution and waits until it runs. FALSE with `refusal` filled when the agent said no
 * (its step is then not empty; the connection can be used again). HUTCH_ERROR_BAD_INPUT when
 * arguments and environment do not fit one frame (256 KiB). */
gboolean agent_client_start(AgentClient *client, const AgentRequest *request, AgentRefusal *refusal,
                            GError **error);

/* Relays input and output until the execution that was started has ended. */
gboolean agent_client_relay(AgentClient *client, const AgentRelay *relay, AgentOutcome *outcome,
                            GError **error);
