#include "outputs/outputs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "outputs/copy.h"
#include "outputs/walk.h"

/* Theory of operation.
 *
 * The source is the user's own and is trusted to be what it is; the workspace is opened beneath
 * as everywhere. A folder is copied with a list of its sub-folders still to do, each a path
 * below the two roots, so that a deep tree costs neither stack nor descriptors.
 *
 * Files are created under the code's uid and gid, not given to it afterwards: on an idmapped
 * mount the host's root has no id, and creating a file is EOVERFLOW for it. The file-system uid
 * (setfsuid(2)) is switched for each creation only, since the user's own files are read with the
 * user's own rights. */

typedef struct {
    const char *source; /* as the user named it */
    int owner;
    int from_root, to_root; /* of a folder */
    GQueue folders;         /* of char*: paths below both, to do */
    GError **error;
} Place;

/* What the code may do with its copy: all of it. */
static mode_t input_mode(mode_t mode)
{
    return (mode & 0111) || S_ISDIR(mode) ? 0755 : 0644;
}

static void place_clear(Place *place)
{
    fd_clear(&place->from_root);
    fd_clear(&place->to_root);
    g_queue_clear_full(&place->folders, g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Place, place_clear)

typedef struct {
    gboolean switched;
    uid_t uid;
    gid_t gid;
} FileIds;

/* For the time of a creation. */
static FileIds ids_enter(int owner)
{
    FileIds old = {.switched = owner >= 0};

    if (old.switched) {
        old.gid = (gid_t)setfsgid((gid_t)owner);
        old.uid = (uid_t)setfsuid((uid_t)owner);
    }
    return old;
}

static void ids_leave(FileIds *old)
{
    int kept = errno;

    if (old->switched) {
        setfsuid(old->uid);
        setfsgid(old->gid);
    }
    errno = kept;
}
/* Whether the process may create files under these ids: setfsuid(2) itself does not say. */
static gboolean ids_work(int owner)
{
    FileIds ids = ids_enter(owner);
    gboolean works = owner < 0 || (setfsuid((uid_t)-1) == owner && setfsgid((gid_t)-1) == owner);

    ids_leave(&ids);
    return works;
}

#define under_ids __attribute__((cleanup(ids_leave), unused)) FileIds

/* "project" or "project/lib/x.c", for people. */
static char *name_of(const Place *place, const char *below)
{
    g_autofree char *path = below && strcmp(below, ".") != 0
                                ? g_build_filename(place->source, below, NULL)
                                : g_strdup(place->source);

    return output_path_text(path);
}

static gboolean fail_source(const Place *place, const char *below, const char *problem)
{
    g_autofree char *name = name_of(place, below);

    g_set_error(place->error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT, "cannot take the input '%s': %s",
                name, problem);
    return FALSE;
}

static gboolean fail_workspace(const Place *place, const char *below, int error_number)
{
    g_autofree char *name = name_of(place, below);
    gboolean full = error_number == ENOSPC || error_number == EDQUOT;

    g_set_error(
        place->error, HUTCH_ERROR, HUTCH_ERROR_IO,
        "cannot copy the input '%s' into the workspace: %s%s", name, g_strerror(error_number),
        full ? "; the workspace's disk limit is too small for the inputs, raise it with --disk"
             : "");
    return FALSE;
}

static int make_folder(const Place *place, int parent, const char *name)
{
    under_ids ids = ids_enter(place->owner);

    if (mkdirat(parent, name, 0755) < 0) {
        return -errno;
    }
    /* Whatever the user's umask is. The folder is new and nobody else is here yet. */
    return fchmodat(parent, name, 0755, 0) < 0 ? -errno : 0;
}

static int make_link(const Place *place, int parent, const char *name, const char *target)
{
    under_ids ids = ids_enter(place->owner);

    return symlinkat(target, parent, name) < 0 ? -errno : 0;
}

static int make_file(const Place *place, int parent, const char *name, mode_t mode)
{
    under_ids ids = ids_enter(place->owner);
    autofd fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

    if (fd < 0) {
        return -errno;
    }
    return fchmod(fd, mode) < 0 ? -errno : fd_steal(&fd);
}

/* The one time that matters: a store of the code sets it to now, even within the clock tick of
 * the first walk. */
static int keep_mtime(const Place *place, int fd, const struct stat *status)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, status->st_mtim};
    under_ids ids = ids_enter(place->owner);

    return futimens(fd, times) < 0 ? -errno : 0;
}

/* Copies the open regular file `from` to the new file `to`. */
static gboolean fill_file(const Place *place, const char *below, int from, int to,
                          const struct stat *status)
{
    struct stat now;
    int error_number = 0;
    CopyOutcome outcome = status->st_size > 0
                              ? copy_file(from, to, (uint64_t)status->st_size, NULL, &error_number)
                              : copy_stream(from, to, &error_number);

    switch (outcome) {
    case COPY_TARGET_FAILED: return fail_workspace(place, below, error_number);
    case COPY_SOURCE_FAILED: return fail_source(place, below, g_strerror(error_number));
    case COPY_SOURCE_SHRANK:
        return fail_source(place, below, "it became shorter while it was read");
    case COPY_DONE: break;
    }
    if (fstat(from, &now) < 0 || now.st_size < status->st_size) {
        return fail_source(place, below, "it became shorter while it was read");
    }
    error_number = -keep_mtime(place, to, status);
    return error_number ? fail_workspace(place, below, error_number) : TRUE;
}

/* The `number`th name to try: "name.ext", "name-2.ext", "name-3.ext". */
static char *numbered_name(const char *name, gboolean folder, guint number)
{
    const char *dot = folder ? NULL : strrchr(name, '.');
    const char *end = name + strlen(name);
    g_autofree char *middle = g_strdup_printf("-%u", number);
    gsize stem;
    gsize room;

    if (number == 1) {
        return g_strdup(name);
    }
    if (dot && dot - name > 4 && memcmp(dot - 4, ".tar", 4) == 0) {
        dot -= 4; /* archive-2.tar.gz */
    }
    if (!dot || dot == name || end - dot > 32) {
        dot = end;
    }
    stem = (gsize)(dot - name);
    room = NAME_MAX - strlen(middle) - strlen(dot);
    return g_strdup_printf("%.*s%s%s", (int)MIN(stem, room), name, middle, dot);
}

enum { MAX_SAME_NAME = 10000 };

/* Calls `make` for one name after the other until one is free: what it returned, and the name. */
typedef int (*MakeNamed)(const Place *place, int parent, const char *name, mode_t mode);

static int make_folder_named(const Place *place, int parent, const char *name, mode_t mode)
{
    (void)mode;
    return make_folder(place, parent, name);
}

static int make_free_name(const Place *place, int inputs, const char *name, mode_t mode,
                          MakeNamed make, char **made)
{
    int result = -EEXIST;

    for (guint number = 1; result == -EEXIST && number <= MAX_SAME_NAME; number++) {
        g_free(*made);
        *made = numbered_name(name, S_ISDIR(mode), number);
        result = make(place, inputs, *made, input_mode(mode));
    }
    return result;
}

/* Whether a link in the source leads nowhere but beneath its folder, or to what is in the
 * sandbox too: its /usr is the host's. */
static gboolean link_stays(const Place *place, const char *below, const char *target)
{
    autofd fd = -1;

    if (g_str_has_prefix(target, "/usr/") && !strstr(target, "/..")) {
        return TRUE;
    }
    /* The kernel walks it: EXDEV is the way out, whatever else it says (nothing there, a loop)
     * happens beneath. */
    fd = sys_openat2(place->from_root, below, O_PATH | O_CLOEXEC, 0,
                     RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
    return fd >= 0 || fd == -ENOENT || fd == -ELOOP || fd == -ENOTDIR || fd == -EACCES;
}

static gboolean place_link(const Place *place, const char *below, int from, int to,
                           const char *name)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(from, name, target, sizeof(target) - 1);
    int failed;

    if (size < 0) {
        return fail_source(place, below, g_strerror(errno));
    }
    target[size] = '\0';
    if (!link_stays(place, below, target)) {
        g_autofree char *shown = output_path_text(target);
        g_autofree char *problem = g_strdup_printf(
            "it is a link that leads out of the folder (to '%s'); give what it leads to as an input of its own, "
            "or a folder without it",
            shown);

        return fail_source(place, below, problem);
    }
    failed = -make_link(place, to, name, target);
    return failed ? fail_workspace(place, below, failed) : TRUE;
}

static gboolean place_regular(const Place *place, const char *below, int from, int to,
                              const char *name)
{
    autofd in = sys_openat2(from, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC,
                            0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
    autofd out = -1;
    struct stat status;

    if (in < 0) {
        return fail_source(place, below, g_strerror(-in));
    }
    if (fstat(in, &status) < 0 || !S_ISREG(status.st_mode)) {
        return fail_source(place, below, "it was replaced while the folder was read");
    }
    out = make_file(place, to, name, input_mode(status.st_mode));
    if (out < 0) {
        return fail_workspace(place, below, -out);
    }
    return fill_file(place, below, in, out, &status);
}

/* One name of a folder. */
static gboolean place_entry(Place *place, const char *folder, int from, int to, const char *name)
{
    g_autofree char *below =
        strcmp(folder, ".") == 0 ? g_strdup(name) : g_strconcat(folder, "/", name, NULL);
    struct stat status;
    int failed;

    if (fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
        return fail_source(place, below, g_strerror(errno));
    }
    if (S_ISREG(status.st_mode)) {
        return place_regular(place, below, from, to, name);
    }
    if (S_ISLNK(status.st_mode)) {
        return place_link(place, below, from, to, name);
    }
    if (!S_ISDIR(status.st_mode)) {
        return fail_source(place, below, "it is a special file (fifo, socket or device)");
    }
    failed = -make_folder(place, to, name);
    if (failed) {
        return fail_workspace(place, below, failed);
    }
    g_queue_push_tail(&place->folders, g_steal_pointer(&below));
    return TRUE;
}

/* One folder of the source, without its sub-folders' contents. */
static gboolean place_folder(Place *place, const char *folder)
{
    int from = sys_openat2(place->from_root, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0,
                           RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
    autofd to = walk_open_beneath(place->to_root, folder, O_PATH | O_DIRECTORY);
    gboolean placed = TRUE;
    struct dirent *item;
    DIR *items;

    if (from < 0) {
        return fail_source(place, folder, g_strerror(-from));
    }
    items = fdopendir(from);
    if (!items) {
        fd_clear(&from);
        return fail_source(place, folder, g_strerror(errno));
    }
    if (to < 0) {
        placed = fail_workspace(place, folder, -to);
    }
    while (placed && (errno = 0, item = readdir(items))) {
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
            placed = place_entry(place, folder, from, to, item->d_name);
        }
    }
    if (placed && errno) {
        placed = fail_source(place, folder, g_strerror(errno));
    }
    closedir(items);
    return placed;
}

static gboolean place_tree(Place *place)
{
    g_queue_push_tail(&place->folders, g_strdup("."));
    while (!g_queue_is_empty(&place->folders)) {
        g_autofree char *folder = g_queue_pop_head(&place->folders);

        if (!place_folder(place, folder)) {
            return FALSE;
        }
    }
    return TRUE;
}

/* The name under inputs/: the last part of the path, of "." and ".." that of the folder they
 * are. NULL for "/". */
static char *base_name(const char *source)
{
    g_autofree char *name = g_path_get_basename(source);
    char real[PATH_MAX];

    if ((strcmp(name, ".") == 0 || strcmp(name, "..") == 0) && realpath(source, real)) {
        g_free(name);
        name = g_path_get_basename(real);
    }
    return strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0
               ? NULL
               : g_steal_pointer(&name);
}

/* Opens the source for reading, without waiting for a fifo's other end and without touching a
 * device. */
static int open_source(const Place *place, struct stat *status)
{
    autofd fd = -1;

    if (stat(place->source, status) < 0) {
        fail_source(place, NULL, g_strerror(errno));
        return -1;
    }
    if (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode)) {
        fd = open(place->source, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, status) < 0) {
            fail_source(place, NULL, g_strerror(errno));
            return -1;
        }
    }
    if (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode)) {
        fail_source(place, NULL, "it is neither a regular file nor a folder");
        return -1;
    }
    return fd_steal(&fd);
}

/* Opens inputs/, made when it is not there; -1 with the error set. */
static int open_inputs(const Place *place, int workspace_fd)
{
    int failed = -make_folder(place, workspace_fd, "inputs");
    int fd = -1;

    if (!failed || failed == EEXIST) {
        fd = walk_open_beneath(workspace_fd, "inputs", O_PATH | O_DIRECTORY);
        failed = fd < 0 ? -fd : 0;
    }
    if (failed) {
        fail_workspace(place, NULL, failed);
        return -1;
    }
    return fd;
}

gboolean output_place_input(int workspace_fd, const char *source, int owner, GError **error)
{
    g_auto(Place)
        place = {.source = source, .owner = owner, .from_root = -1, .to_root = -1, .error = error};
    g_autofree char *name = base_name(source);
    g_autofree char *made = NULL;
    autofd inputs = -1;
    struct stat status;
    int result;

    g_queue_init(&place.folders);
    place.from_root = open_source(&place, &status);
    if (place.from_root < 0) {
        return FALSE;
    }
    if (!name) {
        return fail_source(&place, NULL, "it has no name of its own");
    }
    if (!ids_work(owner)) {
        return fail_workspace(&place, NULL, EPERM);
    }
    inputs = open_inputs(&place, workspace_fd);
    if (inputs < 0) {
        return FALSE;
    }
    if (S_ISREG(status.st_mode)) {
        result = make_free_name(&place, inputs, name, status.st_mode, make_file, &made);
        place.to_root = MAX(result, -1);
        return result < 0 ? fail_workspace(&place, NULL, -result)
                          : fill_file(&place, NULL, place.from_root, place.to_root, &status);
    }
    result = make_free_name(&place, inputs, name, status.st_mode, make_folder_named, &made);
    if (result == 0) {
        result = walk_open_beneath(inputs, made, O_PATH | O_DIRECTORY);
        place.to_root = MAX(result, -1);
    }
    return result < 0 ? fail_workspace(&place, NULL, -result) : place_tree(&place);
}
