#include "launcher/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/sys.h"
#include "wire/launch.h"

/* Theory of operation.
 *
 * mkfs.ext4 takes milliseconds, copying a formatted empty file system takes a tenth of one, because only its few blocks with data are
 * copied. So the first use of a size formats a template, and each sandbox gets a copy in an unnamed file, on a loop device that
 * clears itself with its last user, as a detached mount. No step leaves a name behind. The copy is made after the device is configured:
 * that call syncs its file (Linux 6.15), and an empty one is soonest on the disk. */

enum {
    COPY_BYTES = 64 * 1024,
    LOOP_TRIES = 64,
    TEMPLATES_MAX = 16,
    FREE_FLOOR_BYTES = 256 * 1024 * 1024,
};

void disk_init(struct disk *disk)
{
    *disk = (struct disk){.mount_fd = -1, .directory_fd = -1};
}

static int run_mkfs(int image_fd)
{
    static const char *const programs[] = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"};
    enum { IMAGE_FD = 3 };
    char target[] = "/proc/self/fd/3";
    char *const argv[] = {"mkfs.ext4",
                          "-q",
                          "-F",
                          "-b",
                          "4096",
                          "-i",
                          "16384",
                          "-m",
                          "0",
                          "-O",
                          "^has_journal,^resize_inode,uninit_bg",
                          "-E",
                          "nodiscard,lazy_itable_init=1,root_owner=1000:1000",
                          target,
                          NULL};
    char *const envp[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    pid_t pid = -ENOENT;
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]) && pid == -ENOENT; i++)
        pid = process_spawn(programs[i], argv, envp, image_fd, IMAGE_FD);
    if (pid < 0)
        return pid == -ENOENT ? (int)LAUNCH_WHY_NO_MKFS : pid;
    int status = process_wait(pid);
    return status < 0 ? status : status == 0 ? 0 : -EIO;
}

/* Attaches the image to a free loop device. Two launchers may be told the same number: the loser tries the next one. */
static int attach_loop(int image_fd, char device[32])
{
    autofd control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return errno == ENOENT || errno == EPERM || errno == EACCES || errno == ENXIO ? -ENODEV
                                                                                      : -errno;
    struct loop_config config = {
        .fd = (uint32_t)image_fd,
        .block_size = 4096,
        .info = {.lo_flags = LO_FLAGS_AUTOCLEAR},
    };
    for (int i = 0; i < LOOP_TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return errno == EPERM || errno == EACCES ? -ENODEV : -errno;
        snprintf(device, 32, "/dev/loop%d", number);
        autofd loop = open(device, O_RDWR | O_CLOEXEC);
        if (loop < 0)
            return errno == ENOENT || errno == EPERM || errno == EACCES || errno == ENXIO ? -ENODEV
                                                                                          : -errno;
        if (ioctl(loop, LOOP_CONFIGURE, &config) == 0)
            return fd_steal(&loop);
        if (errno != EBUSY)
            return -errno;
    }
    return -EBUSY;
}

static int mount_detached(const char *device)
{
    autofd context = sys_fsopen("ext4", FSOPEN_CLOEXEC);
    if (context < 0)
        return context;
    int r = sys_fsconfig(context, FSCONFIG_SET_STRING, "source", device, 0);
    /* Nobody will ever want these bytes after a loss of power, and each barrier would wait for the host's disk. The inode tables are holes,
     * which read as zeros: a thread that zeroes them would only fill the image. */
    static const char *const flags[] = {"nobarrier", "noinit_itable"};
    for (size_t i = 0; r == 0 && i < sizeof(flags) / sizeof(flags[0]); i++)
        r = sys_fsconfig(context, FSCONFIG_SET_FLAG, flags[i], NULL, 0);
    if (r == 0)
        r = sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
    if (r < 0)
        return r;
    return sys_fsmount(context, FSMOUNT_CLOEXEC,
                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
}

/* A fresh /workspace is empty. The last close of the mount writes it back to the image. */
static int remove_lost_and_found(int image_fd)
{
    char device[32];
    autofd loop = attach_loop(image_fd, device);
    if (loop < 0)
        return loop == -ENODEV ? LAUNCH_WHY_NO_LOOP : loop;
    autofd mount_fd = mount_detached(device);
    if (mount_fd < 0)
        return mount_fd;
    return unlinkat(mount_fd, "lost+found", AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int count_entries(int dirfd)
{
    autofd fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct dir_reader reader;
    dir_reader_init(&reader, fd);
    struct dir_entry entry;
    int n = 0, r;
    while ((r = dir_reader_next(&reader, &entry)) > 0)
        n++;
    return r < 0 ? r : n;
}

/* A formatted file of `bytes`: the kept one, or a new one, which is kept while there are few. */
static int open_template(int templates_fd, uint64_t bytes, int *template_fd)
{
    char name[64];
    snprintf(name, sizeof(name), "ext4-%llu", (unsigned long long)bytes);
    *template_fd = openat(templates_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (*template_fd >= 0 || errno != ENOENT)
        return *template_fd >= 0 ? 0 : -errno;

    autofd fd = openat(templates_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return -errno;
    int r = run_mkfs(fd);
    if (r == 0)
        r = remove_lost_and_found(fd);
    if (r != 0)
        return r;
    if (count_entries(templates_fd) < TEMPLATES_MAX) {
        char self[32];
        snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        if (fsync(fd) < 0)
            return -errno;
        if (linkat(AT_FDCWD, self, templates_fd, name, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)
            return -errno;
    }
    *template_fd = fd_steal(&fd);
    return 0;
}

/* Copies the parts with data; the rest stay holes. */
static int copy_data(int from, int to)
{
    static char buffer[COPY_BYTES];
    off_t at = 0;
    for (;;) {
        at = lseek(from, at, SEEK_DATA);
        if (at < 0)
            return errno == ENXIO ? 0 : -errno;
        off_t end = lseek(from, at, SEEK_HOLE);
        if (end < 0)
            return -errno;
        while (at < end) {
            size_t size = end - at < COPY_BYTES ? (size_t)(end - at) : (size_t)COPY_BYTES;
            ssize_t n = pread(from, buffer, size, at);
            if (n <= 0)
                return n < 0 ? -errno : -EIO;
            ssize_t written = pwrite(to, buffer, (size_t)n, at);
            if (written != n)
                return written < 0 ? -errno : -EIO;
            at += n;
        }
    }
}

int disk_create(struct disk *disk, int templates_fd, int state_fd, uint64_t bytes, char detail[108])
{
    snprintf(detail, 108, "free space of the state directory");
    struct statvfs fs;
    if (fstatvfs(state_fd, &fs) < 0)
        return -errno;
    if ((uint64_t)fs.f_bavail * fs.f_frsize < bytes + FREE_FLOOR_BYTES)
        return -ENOSPC;

    snprintf(detail, 108, "mkfs.ext4");
    bytes &= ~(uint64_t)4095;
    autofd template_fd = -1;
    int r = open_template(templates_fd, bytes, &template_fd);
    if (r != 0)
        return r;
    snprintf(detail, 108, "disk image");
    autofd image = openat(state_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (image < 0)
        return -errno;
    if (ftruncate(image, (off_t)bytes) < 0)
        return -errno;
    char device[32];
    snprintf(detail, 108, "loop device");
    autofd loop = attach_loop(image, device);
    if (loop == -ENODEV)
        return LAUNCH_WHY_NO_LOOP;
    if (loop < 0)
        return loop;
    snprintf(detail, 108, "disk image");
    r = copy_data(template_fd, image);
    if (r < 0)
        return r;
    /* Whoever watches new block devices may have read, and the kernel kept, what was there before the copy. */
    if (ioctl(loop, BLKFLSBUF) < 0)
        return -errno;
    snprintf(detail, 108, "mounting %.31s", device);
    disk->mount_fd = mount_detached(device);
    if (disk->mount_fd < 0)
        return disk->mount_fd;
    disk->directory_fd = openat(disk->mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (disk->directory_fd < 0)
        return -errno;
    detail[0] = '\0';
    return 0;
}

int disk_idmap(struct disk *disk, int userns_fd)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns_fd};
    return sys_mount_setattr(disk->mount_fd, "", AT_EMPTY_PATH, &attr);
}

void disk_discard(struct disk *disk)
{
    if (disk->directory_fd >= 0) {
        enum {
            NO_LOG_FLUSH = 2
        }; /* EXT4_GOING_FLAGS_NOLOGFLUSH; the kernel exports no header with it */
        uint32_t how = NO_LOG_FLUSH;
        /* Failing only means that the pages are written first. musl's request is an int. */
        (void)ioctl(disk->directory_fd, (int)_IOR('X', 125, uint32_t), &how);
    }
    fd_clear(&disk->mount_fd);
    fd_clear(&disk->directory_fd);
}
