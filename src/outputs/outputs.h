#pragma once

#include <glib.h>
#include <stdint.h>

#include "backend/error.h"

/* What code made: the comparison of two walks of a workspace, what is left out and why, and
 * copies to and from the host. All paths are relative to the workspace, bytes as the file system
 * has them, without "." or "..". The workspace is hostile: names, types, sizes, links, modes.
 * Nothing here follows a link, crosses a mount (openat2(2), Linux 5.6, RESOLVE_BENEATH |
 * RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV), blocks on a special file, or reads what it did not
 * check after opening it. Walks are iterative and bounded: 64 folders below one another, 200,000
 * names, 64 MiB of paths, and no path longer than 4,095 bytes; each bound that is hit is said in
 * `left_out`. */

/* A manifest: the regular files, links and special files below a workspace, by path, with what
 * tells whether they changed: inode, type, size, mtime, ctime. What changes none of these is not
 * seen: on tmpfs, a store through a shared mapping. */
typedef struct OutputManifest OutputManifest;
/* Fails only when the host runs out of descriptors or memory, or the workspace is none. */
OutputManifest *output_manifest_walk(int workspace_fd, GError **error);
void output_manifest_free(OutputManifest *manifest);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(OutputManifest, output_manifest_free)
guint output_manifest_size(const OutputManifest *manifest);

/* Left out: a path and one of these words. */
#define OUTPUT_REASONS(X)                                                                          \
    X(TOO_LARGE, "too_large")   /* over the size of one file */                                    \
    X(OVER_TOTAL, "over_total") /* over the bytes of all */                                        \
    X(OVER_COUNT, "over_count") /* over the number of files, or of names in the workspace */       \
    X(SPECIAL, "special_file")  /* fifo, socket, device, mount */                                  \
    X(LINK, "link")             /* symbolic link, or a file of several names */                    \
    X(SCRATCH, "scratch") /* scratch.c's table: caches, hidden, tmp/, inputs/; `keep` brings it */ \
    X(UNREADABLE, "unreadable")                                                                    \
    X(TOO_DEEP, "too_deep")                                                                        \
    X(BAD_NAME, "bad_name") /* a path that the target cannot hold */                               \
    X(CHANGED, "changed_while_read")

typedef enum {
#define X(name, word) OUTPUT_##name,
    OUTPUT_REASONS(X)
#undef X
        N_OUTPUT_REASONS,
} OutputReason;
const char *output_reason_word(OutputReason reason);

typedef struct {
    char *path;
    const char *change; /* "added" | "changed"; static */
    uint64_t size_bytes;
    char sha256[65]; /* hex, of the bytes that were copied; empty when nothing was copied */
} OutputFile;

typedef struct {
    char *path; /* a folder's when all below it is left out for one reason; "." is the workspace */
    OutputReason reason;
    /* A clause with the figures: "64 GiB, over the limit of 50 MiB for one file". */
    char *detail;
} OutputLeftOut;

typedef struct {
    guint max_files;          /* default 64 */
    uint64_t max_file_bytes;  /* default 50 MiB */
    uint64_t max_total_bytes; /* default 512 MiB */
    /* Borrowed, NULL-ended globs (or NULL) of what the scratch rules would leave out: fnmatch(3)
     * on the whole path, or on the base name when without '/'; '*' matches '/' too. One that
     * names a folder ("tmp", ".cache/") brings all below it. */
    const char *const *keep;
} OutputRules;
void output_rules_init(OutputRules *rules);

typedef struct {
    GPtrArray *files;   /* of OutputFile*, sorted by path */
    GPtrArray *deleted; /* of char*, sorted: in `before`, no longer there; inputs and scratch too */
    /* Of OutputLeftOut*, sorted by path; at most 1,000, then one for "." whose detail counts the
     * rest. */
    GPtrArray *left_out;
} OutputSet;
void output_set_free(OutputSet *set);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(OutputSet, output_set_free)

/* What changed against `before` (NULL: an empty workspace), without copying when `target_fd` is
 * -1 (no sha256 then, and what only an open would show is not seen), else copied below the
 * directory `target_fd` with its relative path kept: each file through a temporary name
 * (".hutch-….part" beside it) and rename, mode 0666 or 0777 & ~umask (execute bit kept, never
 * set-id), sparse files stay sparse, folders made as needed and never through a link. Of more
 * than max_files the first by path are taken. A file under inputs/ counts as scratch, named one
 * by one; unchanged ones are silent. Fails only when the target fails (full, read-only, not
 * writable) or as the walk does; what the workspace does to a file leaves that file out. */
OutputSet *output_collect(int workspace_fd, const OutputManifest *before, const OutputRules *rules,
                          int target_fd, GError **error);

/* Copies the host's file or folder `source` (the user's own: links in the given path are
 * followed, links inside a folder are copied as links only when they stay beneath it or lead
 * into /usr, else refused by name) to inputs/<base name> of the workspace; two of one name
 * become name-2.ext. Times of change are kept, so that a store of the code into an input shows.
 * Modes become 0644 or 0755. `owner`: as sandbox_workspace_owner(); everything is then created
 * under that id as file-system uid and gid (setfsuid(2), this thread), which an idmapped mount
 * needs too: the host's root has no id on it. A special file, or a name that is not there, is an error that names it (BAD_INPUT);
 * a workspace that is full is an error that says so (IO). What was copied until then stays. */
gboolean output_place_input(int workspace_fd, const char *source, int owner, GError **error);

/* A path for people: valid UTF-8 on one line; control characters, what does not print, and
 * invalid bytes as escapes. File names are hostile, a terminal obeys control characters. The
 * caller owns it. */
char *output_path_text(const char *path);
