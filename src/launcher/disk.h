#pragma once

#include <stdint.h>
#include <sys/types.h>

/* The hard limit on /workspace under root: a sparse ext4 image without a journal, on a loop device, mounted idmapped. The image never
 * has a name (O_TMPFILE), the loop device clears itself: nothing is left when everybody is killed. */

struct disk {
    int mount_fd;     /* detached: for the sandbox, once it is idmapped */
    int directory_fd; /* its root, for the client; ids are those of the host that the sandbox has */
};

void disk_init(struct disk *disk);

/* `templates_fd`: directory where formatted images are kept. `state_fd`: on the file system that holds the images.
 * Returns 0, -errno, or LAUNCH_WHY_NO_LOOP / _NO_MKFS (positive): this host cannot, use a tmpfs. -ENOSPC: the host has less free space
 * than `bytes` and a floor. */
int disk_create(struct disk *disk, int templates_fd, int state_fd, uint64_t bytes,
                char detail[108]);

/* Maps ids on disk to those of the user namespace `userns_fd` (mount_setattr(2), MOUNT_ATTR_IDMAP, Linux 5.12). */
int disk_idmap(struct disk *disk, int userns_fd);

/* Lets go of it. What was written and not yet on the host's disk is thrown away (EXT4_IOC_SHUTDOWN) instead of written for nobody. */
void disk_discard(struct disk *disk);
