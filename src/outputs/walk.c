#include "outputs/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/sys.h"
#include "outputs/scratch.h"

/* Theory of operation.
 *
 * The tree is hostile and may change while it is walked. One stack of open folders, at most
 * WALK_MAX_DEPTH of them, is all the state there is: a folder is opened by its one name below
 * its open parent (openat2 beneath, no links, no other file system), so the length of a path and
 * the depth of a tree cost nothing, and a name that was swapped for a link does not open.
 *
 * A folder's own files are noted before its sub-folders are entered, and scratch folders
 * (scratch.h) are entered last of all: when a bound is hit, what a user wants most has been
 * seen. Each bound that is hit, and each folder that cannot be read, becomes an entry with a
 * `problem`, so that what was not looked at is said. */

typedef struct {
    int fd;
    gsize path_length;  /* of this folder in Walk.path */
    GPtrArray *folders; /* names of its sub-folders, sorted, owned */
    guint next;
} Level;

typedef struct {
    OutputManifest *manifest;
    GPtrArray *scratch;  /* paths (the manifest's) of scratch folders, for later */
    gboolean in_scratch; /* the later has come */
    Level levels[WALK_MAX_DEPTH + 1];
    guint depth; /* levels in use */
    guint seen;
    gsize path_bytes;
    gboolean full; /* a bound of the whole walk was hit */
    char path[PATH_MAX];
    GError *error;
} Walk;

void output_manifest_free(OutputManifest *manifest)
{
    if (!manifest) {
        return;
    }
    g_clear_pointer(&manifest->texts, g_string_chunk_free);
    g_clear_pointer(&manifest->entries, g_array_unref);
    g_free(manifest);
}

guint output_manifest_size(const OutputManifest *manifest)
{
    return manifest->entries->len;
}

const WalkEntry *manifest_entry(const OutputManifest *manifest, guint index)
{
    return &g_array_index(manifest->entries, WalkEntry, index);
}

int walk_open_beneath(int dirfd, const char *path, int flags)
{
    uint64_t more = O_NOFOLLOW | O_CLOEXEC;

    if (!(flags & O_PATH)) { /* openat2(2) takes nothing beside O_PATH that it would ignore */
        more |= O_NONBLOCK | O_NOCTTY;
    }
    return sys_openat2(dirfd, path, (uint64_t)flags | more, 0,
                       RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
                           RESOLVE_NO_XDEV);
}

gboolean walk_entry_same(const WalkEntry *a, const WalkEntry *b)
{
    return a->inode == b->inode && a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns && (a->mode & S_IFMT) == (b->mode & S_IFMT);
}

static int64_t nanoseconds(const struct timespec *time)
{
    /* A hostile time stamp (year 292e9 fits in ext4's and tmpfs' 64 bits) must not overflow: it
     * wraps, as it is only compared. */
    return (int64_t)((uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec);
}

void walk_entry_fill(WalkEntry *entry, const struct stat *status)
{
    entry->inode = status->st_ino;
    entry->size_bytes = status->st_size > 0 ? (uint64_t)status->st_size : 0;
    entry->mtime_ns = nanoseconds(&status->st_mtim);
    entry->ctime_ns = nanoseconds(&status->st_ctim);
    entry->mode = status->st_mode;
    entry->links = (uint32_t)MIN(status->st_nlink, UINT32_MAX);
    entry->problem = N_OUTPUT_REASONS;
}

static const char *keep_path(Walk *walk, const char *path)
{
    gsize size = strlen(path) + 1;

    walk->path_bytes += size;
    return g_string_chunk_insert_len(walk->manifest->texts, path, (gssize)size - 1);
}

static void note_problem(Walk *walk, const char *path, OutputReason problem, const char *detail)
{
    WalkEntry entry = {
        .path = keep_path(walk, path), .mode = S_IFDIR, .problem = problem, .detail = detail};

    g_array_append_val(walk->manifest->entries, entry);
}

/* The path of the folder on top of the stack, which is what Walk.path holds up to its length. */
static const char *current_path(Walk *walk)
{
    walk->path[walk->levels[walk->depth - 1].path_length] = '\0';
    return walk->path;
}

static const char *current_folder(Walk *walk)
{
    const char *path = current_path(walk);

    return *path ? path : ".";
}

static void stop_full(Walk *walk)
{
    static const char detail[] = "the workspace holds more than 200,000 names or 64 MiB of paths: "
                                 "what comes after here was not looked at";

    walk->full = TRUE;
    note_problem(walk, current_folder(walk), OUTPUT_OVER_COUNT, detail);
}

/* Puts `name` behind the current folder's path. FALSE when the whole is longer than the kernel
 * takes. */
static gboolean append_name(Walk *walk, const char *name)
{
    gsize length = walk->levels[walk->depth - 1].path_length;
    gsize size = strlen(name) + 1;
    gsize slash = length ? 1 : 0;

    if (length + slash + size > sizeof(walk->path)) {
        return FALSE;
    }
    if (slash) {
        walk->path[length] = '/';
    }
    memcpy(walk->path + length + slash, name, size);
    return TRUE;
}

/* One name of the folder on top: noted now, or kept for later when it is a folder. */
static void look_at(Walk *walk, Level *level, const char *name, unsigned char type,
                    gboolean *too_long)
{
    struct stat status;

    if (++walk->seen > WALK_MAX_ENTRIES || walk->path_bytes > WALK_MAX_PATH_BYTES) {
        stop_full(walk);
        return;
    }
    if (!append_name(walk, name)) {
        *too_long = TRUE;
        return;
    }
    if (type != DT_DIR) {
        /* Gone since it was listed: nothing to say. */
        if (fstatat(level->fd, name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
            return;
        }
        if (!S_ISDIR(status.st_mode)) {
            WalkEntry entry = {.path = keep_path(walk, walk->path)};

            walk_entry_fill(&entry, &status);
            g_array_append_val(walk->manifest->entries, entry);
            return;
        }
    }
    if (!walk->in_scratch && scratch_is_folder(walk->path)) {
        g_ptr_array_add(walk->scratch, (gpointer)keep_path(walk, walk->path));
    } else {
        walk->path_bytes += strlen(name) + 1;
        g_ptr_array_add(level->folders, g_strdup(name));
    }
}

static gint compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Reads the folder on top of the stack. */
static void read_folder(Walk *walk)
{
    Level *level = &walk->levels[walk->depth - 1];
    gboolean too_long = FALSE;
    union {
        struct dirent64 alignment;
        char bytes[32 * 1024];
    } buffer;
    ssize_t got;

    while (!walk->full && (got = getdents64(level->fd, &buffer, sizeof(buffer))) > 0) {
        for (ssize_t at = 0; at < got && !walk->full;) {
            const struct dirent64 *item =
                (const struct dirent64 *)(const void *)(buffer.bytes + at);

            at += item->d_reclen;
            if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
                look_at(walk, level, item->d_name, item->d_type, &too_long);
            }
        }
    }
    if (!walk->full && got < 0 && errno != ENOENT) {
        note_problem(walk, current_folder(walk), OUTPUT_UNREADABLE, g_strerror(errno));
    }
    if (too_long) {
        note_problem(walk, current_folder(walk), OUTPUT_TOO_DEEP,
                     "paths in it are longer than 4,095 bytes");
    }
    g_ptr_array_sort(level->folders, compare_names);
}

static void push_level(Walk *walk, int fd, gsize path_length)
{
    Level *level = &walk->levels[walk->depth++];

    level->fd = fd;
    level->path_length = path_length;
    level->folders = g_ptr_array_new_with_free_func(g_free);
    level->next = 0;
    read_folder(walk);
}

static void pop_level(Walk *walk)
{
    Level *level = &walk->levels[--walk->depth];

    fd_clear(&level->fd);
    g_clear_pointer(&level->folders, g_ptr_array_unref);
}

typedef struct {
    int error_number;
    OutputReason reason; /* N_OUTPUT_REASONS: nothing is said */
    const char *detail;
} OpenFailure;

static const OpenFailure open_failures[] = {
    {ENOENT, N_OUTPUT_REASONS, NULL}, /* gone since it was listed */
    {ELOOP, OUTPUT_CHANGED, "a folder that became a link"},
    {ENOTDIR, OUTPUT_CHANGED, "a folder that became a file"},
    {EXDEV, OUTPUT_SPECIAL, "another file system is mounted there"},
    {EACCES, OUTPUT_UNREADABLE, "the folder's permissions forbid reading it"},
};

/* Why a folder did not open. Running out of descriptors or memory is our own failure, everything
 * else is that folder's. */
static void note_closed_folder(Walk *walk, const char *path, int error_number)
{
    if (error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM) {
        walk->full = TRUE;
        g_clear_error(&walk->error);
        g_set_error(&walk->error, HUTCH_ERROR, HUTCH_ERROR_IO, "cannot walk the workspace: %s",
                    g_strerror(error_number));
        return;
    }
    for (guint i = 0; i < G_N_ELEMENTS(open_failures); i++) {
        const OpenFailure *failure = &open_failures[i];

        if (failure->error_number == error_number) {
            if (failure->reason != N_OUTPUT_REASONS) {
                note_problem(walk, path, failure->reason, failure->detail);
            }
            return;
        }
    }
    note_problem(walk, path, OUTPUT_UNREADABLE, g_strerror(error_number));
}

/* Enters the next sub-folder of the folder on top. */
static void enter_next(Walk *walk)
{
    Level *level = &walk->levels[walk->depth - 1];
    const char *name = g_ptr_array_index(level->folders, level->next++);
    int fd;

    if (!append_name(walk, name)) {
        return; /* said by read_folder() */
    }
    if (walk->depth > WALK_MAX_DEPTH) {
        note_problem(walk, walk->path, OUTPUT_TOO_DEEP, "more than 64 folders below one another");
        return;
    }
    fd = walk_open_beneath(level->fd, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        note_closed_folder(walk, walk->path, -fd);
        return;
    }
    push_level(walk, fd, strlen(walk->path));
}

/* Walks everything below the folders that are on the stack. */
static void walk_stack(Walk *walk)
{
    while (walk->depth > 0) {
        const Level *level = &walk->levels[walk->depth - 1];

        if (walk->full || level->next == level->folders->len) {
            pop_level(walk);
        } else {
            enter_next(walk);
        }
    }
}

static void walk_scratch(Walk *walk, int workspace_fd)
{
    walk->in_scratch = TRUE;
    for (guint i = 0; i < walk->scratch->len && !walk->full; i++) {
        const char *path = g_ptr_array_index(walk->scratch, i);
        int fd = walk_open_beneath(workspace_fd, path, O_RDONLY | O_DIRECTORY);

        if (fd < 0) {
            note_closed_folder(walk, path, -fd);
            continue;
        }
        g_strlcpy(walk->path, path, sizeof(walk->path));
        push_level(walk, fd, strlen(path));
        walk_stack(walk);
    }
}

static gint compare_entries(gconstpointer a, gconstpointer b)
{
    return strcmp(((const WalkEntry *)a)->path, ((const WalkEntry *)b)->path);
}

static void walk_clear(Walk *walk)
{
    g_clear_pointer(&walk->scratch, g_ptr_array_unref);
    g_clear_pointer(&walk->manifest, output_manifest_free);
    g_clear_error(&walk->error);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Walk, walk_clear)

OutputManifest *output_manifest_walk(int workspace_fd, GError **error)
{
    g_auto(Walk) walk = {.manifest = g_new0(OutputManifest, 1), .scratch = g_ptr_array_new()};
    int fd = walk_open_beneath(workspace_fd, ".", O_RDONLY | O_DIRECTORY);

    walk.manifest->texts = g_string_chunk_new(4096);
    walk.manifest->entries = g_array_new(FALSE, FALSE, sizeof(WalkEntry));
    if (fd == -EACCES) {
        /* Code may close its own workspace: that is no failure of ours. */
        note_closed_folder(&walk, ".", -fd);
    } else if (fd < 0) {
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_IO, "cannot read the workspace: %s",
                    g_strerror(-fd));
        return NULL;
    } else {
        push_level(&walk, fd, 0);
        walk_stack(&walk);
        walk_scratch(&walk, workspace_fd);
    }
    if (walk.error) {
        g_propagate_error(error, g_steal_pointer(&walk.error));
        return NULL;
    }
    g_array_sort(walk.manifest->entries, compare_entries);
    return g_steal_pointer(&walk.manifest);
}
