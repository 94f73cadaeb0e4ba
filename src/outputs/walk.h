#pragma once

#include <glib.h>
#include <stdint.h>
#include <sys/stat.h>

#include "outputs/outputs.h"

/* What one walk of a workspace found, in the order of the paths. */

enum {
    WALK_MAX_DEPTH = 64,            /* folders below one another */
    WALK_MAX_ENTRIES = 200 * 1000,  /* names looked at, folders counted too */
    WALK_MAX_PATH_BYTES = 64 << 20, /* of all paths together */
};

typedef struct {
    const char *path; /* the manifest's */
    uint64_t inode, size_bytes;
    int64_t mtime_ns, ctime_ns;
    uint32_t mode, links; /* st_mode, st_nlink */
    OutputReason problem; /* of a folder that was not walked to its end; else N_OUTPUT_REASONS */
    const char *detail;   /* of the problem, or NULL; static or the manifest's */
} WalkEntry;

struct OutputManifest {
    GStringChunk *texts;
    /* Of WalkEntry: files, links, special files; folders only where there is a problem. */
    GArray *entries;
};

/* The entry number `index`. */
const WalkEntry *manifest_entry(const OutputManifest *manifest, guint index);

/* openat2(2) of `path` below `dirfd` as this room opens everything in a workspace: beneath, no
 * link, no other file system, never blocking, close-on-exec. Returns the descriptor or -errno. */
int walk_open_beneath(int dirfd, const char *path, int flags);

/* Fills in what stat(2) says; the path stays, there is no problem. */
void walk_entry_fill(WalkEntry *entry, const struct stat *status);

/* Whether the two are one file that was not touched in between. */
gboolean walk_entry_same(const WalkEntry *a, const WalkEntry *b);
