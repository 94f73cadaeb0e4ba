#include "launcher/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

int ids_take(struct id_slot *slot)
{
    if (mkdir("/run/hutch", 0755) < 0 && errno != EEXIST)
        return -errno;
    autofd fd = open(IDS_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    for (unsigned i = 0; i < IDS_N_SLOTS; i++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};
        if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
            *slot = (struct id_slot){
                .lock_fd = fd_steal(&fd),
                .slot = i,
                .base = (uid_t)IDS_FIRST + IDS_SLOT_SIZE + (uid_t)i * IDS_SLOT_SIZE,
            };
            return 0;
        }
        if (errno != EAGAIN && errno != EACCES)
            return -errno;
    }
    return -EUSERS;
}

void ids_of_user(struct id_slot *slot)
{
    *slot = (struct id_slot){.lock_fd = -1, .slot = (unsigned)getpid(), .base = (uid_t)-1};
}

void ids_release(struct id_slot *slot)
{
    fd_clear(&slot->lock_fd);
}

int ids_write_maps(const struct id_slot *slot, pid_t pid)
{
    char path[64], uid_map[64], gid_map[64];
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    autofd dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    if (slot->lock_fd >= 0) {
        snprintf(uid_map, sizeof(uid_map), "0 %u %u\n", (unsigned)slot->base,
                 (unsigned)IDS_SLOT_SIZE);
        strcpy(gid_map, uid_map);
    } else {
        /* The host's root must never be an id of a sandbox, whatever number it would have inside. */
        if (geteuid() == 0 || getegid() == 0)
            return -EPERM;
        snprintf(uid_map, sizeof(uid_map), "%d %u 1\n", (int)IDS_CODE, (unsigned)geteuid());
        snprintf(gid_map, sizeof(gid_map), "%d %u 1\n", (int)IDS_CODE, (unsigned)getegid());
        int r = fd_write_file_at(
            dir, "setgroups", "deny"); /* user_namespaces(7): before a gid_map without CAP_SETGID */
        if (r < 0)
            return r;
    }
    int r = fd_write_file_at(dir, "uid_map", uid_map);
    return r < 0 ? r : fd_write_file_at(dir, "gid_map", gid_map);
}
