#include "outputs/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"

/* Other file systems may be mounted in the user's own folder; links may not lead out of it, nor
 * anywhere. */
#define RESOLVE_TARGET (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

typedef struct {
    int error_number;
    const char *why;
} Refusal;

/* What concerns one path alone; every other errno ends the collection. */
static const Refusal refusals[] = {
    {ELOOP, "the output folder has a link where this path needs a folder"},
    {ENOTDIR, "the output folder has a file where this path needs a folder"},
    {EISDIR, "the output folder has a folder of this name"},
    {EEXIST, "the output folder has a folder of this name"},
    {ENOTEMPTY, "the output folder has a folder of this name"},
    {ENAMETOOLONG, "the name is too long for the output folder's file system"},
    {EILSEQ, "the output folder's file system cannot hold this name"},
    {EINVAL, "the output folder's file system cannot hold this name"},
};

TargetOutcome target_failure(const char *path, int error_number, const char **why, GError **error)
{
    g_autofree char *text = NULL;

    for (guint i = 0; i < G_N_ELEMENTS(refusals); i++) {
        if (refusals[i].error_number == error_number) {
            *why = refusals[i].why;
            return TARGET_REFUSED;
        }
    }
    text = output_path_text(path);
    g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_IO, "cannot write '%s' into the output folder: %s",
                text, g_strerror(error_number));
    return TARGET_FAILED;
}

void target_clear(OutputTarget *target)
{
    fd_clear(&target->folder_fd);
    g_clear_pointer(&target->folder, g_free);
}

/* One folder down, made when it is not there: its descriptor or -errno. */
static int open_folder(int parent, const char *name)
{
    int fd = sys_openat2(parent, name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, RESOLVE_TARGET);

    if (fd != -ENOENT) {
        return fd;
    }
    if (mkdirat(parent, name, 0777) < 0 && errno != EEXIST) {
        return -errno;
    }
    return sys_openat2(parent, name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, RESOLVE_TARGET);
}

/* Opens the folder of `path` (empty: the target itself) as target->folder_fd; 0 or -errno. */
static int enter_folder(OutputTarget *target, const char *folder)
{
    g_auto(GStrv) parts = NULL;
    autofd at = -1;

    if (target->folder && strcmp(target->folder, folder) == 0) {
        return 0;
    }
    target_clear(target);
    at = sys_openat2(target->root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0, RESOLVE_TARGET);
    parts = g_strsplit(folder, "/", -1);
    for (char **part = parts; at >= 0 && *part; part++) {
        int below = open_folder(at, *part);

        fd_clear(&at);
        at = below;
    }
    if (at < 0) {
        return at;
    }
    target->folder_fd = fd_steal(&at);
    target->folder = g_strdup(folder);
    return 0;
}

static int make_temporary(TargetFile *file, gboolean executable)
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return -EIO;
    }
    snprintf(file->name, sizeof(file->name), ".hutch-%016" G_GINT64_MODIFIER "x.part",
             (guint64)random);
    file->fd =
        openat(file->target->folder_fd, file->name,
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, executable ? 0777 : 0666);
    if (file->fd < 0) {
        file->name[0] = '\0';
        return -errno;
    }
    return 0;
}

TargetOutcome target_begin(OutputTarget *target, const char *path, gboolean executable,
                           TargetFile *file, const char **why, GError **error)
{
    const char *slash = strrchr(path, '/');
    g_autofree char *folder = slash ? g_strndup(path, (gsize)(slash - path)) : g_strdup("");
    int failed = enter_folder(target, folder);

    *file = (TargetFile){.fd = -1, .target = target};
    if (failed == 0) {
        failed = make_temporary(file, executable);
    }
    return failed ? target_failure(path, -failed, why, error) : TARGET_OK;
}

TargetOutcome target_keep(TargetFile *file, const char *path, const char **why, GError **error)
{
    const char *slash = strrchr(path, '/');
    int folder = file->target->folder_fd;

    /* close(2) is where some network file systems say that the disk is full. */
    if (close(fd_steal(&file->fd)) < 0 && errno != EINTR) {
        return target_failure(path, errno, why, error);
    }
    if (renameat(folder, file->name, folder, slash ? slash + 1 : path) < 0) {
        return target_failure(path, errno, why, error);
    }
    file->name[0] = '\0';
    return TARGET_OK;
}

void target_file_clear(TargetFile *file)
{
    fd_clear(&file->fd);
    if (file->name[0]) {
        unlinkat(file->target->folder_fd, file->name, 0);
        file->name[0] = '\0';
    }
}
