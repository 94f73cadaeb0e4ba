#pragma once

#include <glib.h>
#include <stdint.h>

#include "backend/error.h"

/* What makes sandboxes. A backend turns a SandboxSpec into a running sandbox whose agent answers on a stream socket
 * (wire/frame.h). Today there is one, the native one. */

/* The limits a sandbox has, as rows: name (option, JSON), field. */
typedef enum {
    LIMIT_MEMORY,
    LIMIT_PIDS,
    LIMIT_CPU,
    LIMIT_DISK,
    LIMIT_OPEN_FILES,
    LIMIT_TMP, /* /tmp, /home/user and /dev/shm together */
    N_LIMITS,
} LimitKind;

typedef struct {
    uint64_t value; /* bytes; count; thousandths of a processor for LIMIT_CPU */
    gboolean
        asked; /* the user asked for it: not enforceable is then an error, unless best_effort */
} Limit;

typedef struct {
    Limit limits[N_LIMITS];
    gboolean best_effort;
    const char *state_dir; /* NULL: the default of this user */
    const char *
        fault; /* test hook "hutch@STEP" | "launcher@STEP": the named process is killed with -9 there; else NULL */
    gboolean timing; /* collect the steps' times */
} SandboxSpec;

/* Fills in the defaults of the product (design page api.md), none of them asked. */
void sandbox_spec_init(SandboxSpec *spec);
const char *limit_name(LimitKind kind); /* "memory", "pids", "cpu", "disk", "open_files", "tmp" */
/* What can be asked for at all; what a host can give is its own matter. */
void limit_bounds(LimitKind kind, uint64_t *least, uint64_t *most);

/* Where the records of runs are kept: `asked`, or this user's default when it is NULL. The caller owns it. */
char *sandbox_state_dir(const char *asked, GError **error);

/* How one limit came out. */
typedef struct {
    uint64_t
        value; /* what is in force; may be lower than asked for LIMIT_TMP (scaled to the memory) */
    gboolean enforced;
    const char *how; /* "cgroup v1", "cgroup v2", "rlimit", "tmpfs", "ext4 image", ... static */
    char *
        note; /* why it is not enforced or was changed, and what to do; NULL when there is nothing to say */
} LimitReceipt;

/* The receipt of a sandbox: what surrounds the code, and what does not. */
typedef struct {
    const char *backend;           /* "native" */
    const char *root;              /* "host" : the host's /usr, read-only */
    const char *cgroup;            /* "v1", "v2", "v1+v2", "none" */
    const char *const *namespaces; /* of its own; NULL-ended */
    const char *filter;            /* "seccomp" */
    gboolean agent_shares_uid;
    LimitReceipt limits[N_LIMITS];
    GPtrArray *notes; /* of char*: other things a user should know */
} SandboxReceipt;

/* One step of the making of a sandbox and what it took, in order. */
typedef struct {
    const char *who;  /* "hutch", "launcher", "sandbox" */
    const char *name; /* static */
    uint64_t us;
} SandboxStep;

typedef struct Sandbox Sandbox;

/* Makes a sandbox. On failure NULL, and the error names the step, its errno text and what to do.
 * SIGPIPE must be ignored by the program. It returns as soon as the agent's socket can be written to, before the agent runs: what is
 * sent meanwhile waits for it. When the agent does not answer, sandbox_confirm() tells why. */
Sandbox *sandbox_create(const SandboxSpec *spec, GError **error);

/* Waits until the sandbox is complete. FALSE when one of its last steps failed, as for sandbox_create(). May be called again. */
gboolean sandbox_confirm(Sandbox *sandbox, GError **error);

/* Borrowed: the connected socket to the agent (nothing sent yet), and a directory descriptor of /workspace. The latter works
 * until sandbox_free(), also after sandbox_kill(). */
int sandbox_agent_fd(const Sandbox *sandbox);
int sandbox_workspace_fd(const Sandbox *sandbox);

/* Ids that files put into /workspace must get (fchown) so that the code owns them; -1 when nothing has to be done. */
int sandbox_workspace_owner(const Sandbox *sandbox);

const SandboxReceipt *sandbox_receipt(const Sandbox *sandbox);
/* None before sandbox_confirm(). */
const SandboxStep *sandbox_steps(const Sandbox *sandbox, gsize *n_steps);

/* Kills everything in the sandbox and waits until all of its processes are gone: after it /workspace changes no more. */
gboolean sandbox_kill(Sandbox *sandbox, GError **error);

/* Ends the sandbox if it still lives, and forgets it. The launcher removes what is left of it on the host, after this returns. */
void sandbox_free(Sandbox *sandbox);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Sandbox, sandbox_free)
