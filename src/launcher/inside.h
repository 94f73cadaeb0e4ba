#pragma once

#include "launcher/sandbox.h"

/* The child's part of making a sandbox: from the first instruction in the new namespaces to the start of the agent. Never
 * returns. `sync` is the child's end of the socketpair to the launcher, `agent_connection` the agent's. */
void inside_run(struct sandbox *sandbox, int sync, int agent_connection) __attribute__((noreturn));

/* Messages on `sync`: one byte, descriptors with it where said. */
enum inside_message {
    INSIDE_MAPS = 'm', /* launcher: the id maps are written */
    INSIDE_RESOURCES =
        'r', /* launcher: cgroup descriptors (cgroup.h order), then the workspace's mount when there is one */
    INSIDE_WORKSPACE = 'w', /* child: with a directory descriptor of the tmpfs at /workspace */
    INSIDE_FAULT = 'f',     /* child: the test hook's step is reached */
};

/* INSIDE_RESOURCES: with the descriptors of the handles, in the order of their keys, and the workspace's mount last. */
struct inside_resources {
    char message;
    char n_handles;
    char has_mount;
    char keys[CGROUP_MAX_HANDLES][16];
};
