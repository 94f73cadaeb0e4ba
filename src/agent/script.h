#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The script of an execution: /tmp/run-<id>/<name>, a directory (0700) and file (0644) that belong
 * to the code once they are complete. Until then both are the agent's, so that other code cannot
 * put anything in the way. */

enum { SCRIPT_PATH_MAX = 320 };

struct script {
    int dir_fd; /* -1: there is none */
    int fd;     /* open while bytes are missing */
    uint64_t missing_bytes;
    char path[SCRIPT_PATH_MAX];
    size_t dir_size; /* of `path`: the directory's part */
};

void script_init(struct script *script);

/* Makes directory and file for `bytes` bytes. 0, or -errno: -EEXIST when code that ran here before
 * took the name. */
int script_create(struct script *script, const char *id, const char *name, uint64_t bytes);

/* Appends. -EPROTO when it is more than was announced; -ENOSPC when /tmp is full. */
int script_write(struct script *script, const void *data, size_t size);

/* Once no byte is missing: gives directory and file to `owner` (uid and gid; -1: they have the
 * right one) and closes the file. */
int script_finish(struct script *script, int owner);

/* Removes file and directory as far as that is possible without following anything, and forgets
 * them. */
void script_remove(struct script *script);
