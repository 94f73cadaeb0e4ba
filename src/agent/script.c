#include "agent/script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

void script_init(struct script *script)
{
    *script = (struct script){.dir_fd = -1, .fd = -1};
}

int script_create(struct script *script, const char *id, const char *name, uint64_t bytes)
{
    script_init(script);
    script->missing_bytes = bytes;
    int dir_size = snprintf(script->path, sizeof(script->path), "/tmp/run-%s", id);
    if (mkdir(script->path, 0700) < 0)
        return -errno;
    script->dir_size = (size_t)dir_size;
    script->dir_fd = open(script->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (script->dir_fd < 0)
        return -errno;
    int size =
        snprintf(script->path + dir_size, sizeof(script->path) - script->dir_size, "/%s", name);
    if ((size_t)size >= sizeof(script->path) - script->dir_size)
        return -ENAMETOOLONG;
    script->fd =
        openat(script->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    return script->fd < 0 ? -errno : 0;
}

int script_write(struct script *script, const void *data, size_t size)
{
    if (size > script->missing_bytes)
        return -EPROTO;
    script->missing_bytes -= size;
    return fd_write_full(script->fd, data, size);
}

int script_finish(struct script *script, int owner)
{
    if (owner >= 0) {
        if (fchown(script->fd, (uid_t)owner, (gid_t)owner) < 0 ||
            fchown(script->dir_fd, (uid_t)owner, (gid_t)owner) < 0)
            return -errno;
    }
    /* A file that is still open for writing cannot be executed (ETXTBSY). */
    fd_clear(&script->fd);
    return 0;
}

void script_remove(struct script *script)
{
    fd_clear(&script->fd);
    if (script->dir_size == 0)
        return;
    if (script->dir_fd >= 0) {
        unlinkat(script->dir_fd, script->path + script->dir_size + 1, 0);
        fd_clear(&script->dir_fd);
    }
    script->path[script->dir_size] = '\0';
    rmdir(script->path);
    script_init(script);
}
