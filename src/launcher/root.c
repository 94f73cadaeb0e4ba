#include "launcher/root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"

/* Theory of operation.
 *
 * The child works in its own mount namespace, whose mounts it inherited from the host. It makes a small tmpfs over /tmp (any directory
 * does; nobody else sees it), stands in it, and builds everything by relative paths. The host's paths stay
 * readable until root_pivot(). Nothing hostile runs before that. The devices come before /proc, whose masks are our checked null
 * device, and the root becomes read-only before anything writable is mounted on it. */

#define TMPFS "tmpfs"
#ifndef MNT_DETACH
#define MNT_DETACH 2 /* umount2(2); of sys/mount.h, which cannot be included beside linux/mount.h */
#endif
#define STAGE "/tmp"

static int name_it(char *detail, const char *what, int r)
{
    if (r < 0)
        snprintf(detail, ROOT_DETAIL_BYTES, "%.107s", what);
    return r;
}

static int make_dir(const char *path)
{
    return mkdir(path, 0755) < 0 ? -errno : 0;
}

static int make_file(const char *path, const char *text)
{
    autofd fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    return fd_write_full(fd, text, strlen(text));
}

/* Clones the mount at `source` (with AT_RECURSIVE: and those below it), adds `attributes` to it and puts it at `target`. Clearing
 * flags is never needed, and the kernel would refuse it to this user namespace. Links are followed: sources are the host's or our own. */
static int bind_tree(const char *source, const char *target, unsigned recursive,
                     uint64_t attributes)
{
    autofd tree = sys_open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | recursive);
    if (tree < 0)
        return tree;
    struct mount_attr attr = {.attr_set = attributes};
    int r = sys_mount_setattr(tree, "", AT_EMPTY_PATH | recursive, &attr);
    if (r < 0)
        return r;
    return sys_move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

#define SYSTEM_FILES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define CLOSED       (SYSTEM_FILES | MOUNT_ATTR_NOEXEC)

static int mount_tmpfs(const char *target, unsigned long flags, uint64_t bytes, uint64_t inodes,
                       const char *more)
{
    char options[128];
    snprintf(options, sizeof(options), "size=%llu,nr_inodes=%llu,%s", (unsigned long long)bytes,
             (unsigned long long)inodes, more);
    return sys_mount(TMPFS, target, TMPFS, flags, options);
}

static const char *const skeleton_dirs[] = {
    "usr",
    "etc",
    "proc",
    "dev",
    "tmp",
    "home",
    "home/user",
    "workspace",
    "var",
    "run",
    "mnt",
    "dev/pts",
    "dev/shm",
    "sys",
    "sys/devices",
    "sys/devices/system",
    "sys/devices/system/cpu",
};

/* Top-level names that are links into /usr on a merged-usr host; where one is a directory of its own it is bound. */
static const char *const usr_links[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

static int make_usr_link(const char *name)
{
    char host[32], target[64];
    snprintf(host, sizeof(host), "/%s", name);
    ssize_t n = readlink(host, target, sizeof(target) - 1);
    if (n >= 0) {
        target[n] = '\0';
        return symlink(target, name) < 0 ? -errno : 0;
    }
    if (errno == ENOENT)
        return 0;
    if (errno != EINVAL)
        return -errno;
    int r = make_dir(name);
    return r < 0 ? r : bind_tree(host, name, AT_RECURSIVE, SYSTEM_FILES);
}

int root_begin(char *detail)
{
    int r = sys_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (r < 0)
        return name_it(detail, "making mounts private", r);
    r = mount_tmpfs(STAGE, MS_NOSUID | MS_NODEV, 1 << 20, 1024, "mode=0755");
    if (r < 0)
        return name_it(detail, STAGE, r);
    if (chdir(STAGE) < 0)
        return name_it(detail, STAGE, -errno);
    for (size_t i = 0; i < sizeof(skeleton_dirs) / sizeof(skeleton_dirs[0]); i++) {
        r = make_dir(skeleton_dirs[i]);
        if (r < 0)
            return name_it(detail, skeleton_dirs[i], r);
    }
    for (size_t i = 0; i < sizeof(usr_links) / sizeof(usr_links[0]); i++) {
        r = make_usr_link(usr_links[i]);
        if (r < 0)
            return name_it(detail, usr_links[i], r);
    }
    if (symlink("../tmp", "var/tmp") < 0)
        return name_it(detail, "var/tmp", -errno);
    return name_it(detail, "/usr", bind_tree("/usr", "usr", AT_RECURSIVE, SYSTEM_FILES));
}

/* What programs need of the host's /etc: numpy finds its BLAS through alternatives, java its security.properties, matplotlib its
 * matplotlibrc, and so on. Directories and large files are bound, small files copied, so that the mount table stays short. Absent
 * ones are passed over. */
static const char *const etc_entries[] = {
    "alternatives",
    "ld.so.cache",
    "ssl/certs",
    "ssl/openssl.cnf",
    "fonts",
    "java-17-openjdk",
    "java-21-openjdk",
    "matplotlibrc",
    "mime.types",
    "localtime",
    "timezone",
    "python3",
    "python3.11",
    "services",
    "protocols",
    "perl",
    "php",
    "R",
    "terminfo",
    "inputrc",
    "magic",
    "os-release",
    "debian_version",
    "ImageMagick-6",
    "gai.conf",
};

static const struct {
    const char *path, *text;
} etc_files[] = {
    {"etc/passwd",
     "root:x:0:0:root:/root:/usr/sbin/nologin\nuser:x:1000:1000:user:/home/user:/bin/bash\n"
     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"},
    {"etc/hostname", "sandbox\n"},
    {"etc/resolv.conf", ""},
    {"etc/nsswitch.conf",
     "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"},
};

enum { ETC_COPY_MAX = 8 * 1024 };

static int copy_file(const char *source, const char *target)
{
    char buffer[ETC_COPY_MAX];
    autofd from = open(source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0)
        return -errno;
    ssize_t n = fd_read_full(from, buffer, sizeof(buffer));
    if (n < 0)
        return (int)n;
    autofd to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (to < 0)
        return -errno;
    return fd_write_full(to, buffer, (size_t)n);
}

static int take_etc_entry(const char *name)
{
    char host[64], here[64];
    snprintf(host, sizeof(host), "/etc/%s", name);
    snprintf(here, sizeof(here), "etc/%s", name);
    struct stat st;
    if (stat(host, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : -errno;
    char *slash = strchr(here + 4, '/');
    if (slash) {
        *slash = '\0';
        if (mkdir(here, 0755) < 0 && errno != EEXIST)
            return -errno;
        *slash = '/';
    }
    if (S_ISREG(st.st_mode) && st.st_size <= ETC_COPY_MAX)
        return copy_file(host, here);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    int r = S_ISDIR(st.st_mode) ? make_dir(here) : make_file(here, "");
    return r < 0 ? r : bind_tree(host, here, 0, CLOSED);
}

int root_etc(char *detail)
{
    for (size_t i = 0; i < sizeof(etc_entries) / sizeof(etc_entries[0]); i++) {
        int r = take_etc_entry(etc_entries[i]);
        if (r < 0)
            return name_it(detail, etc_entries[i], r);
    }
    for (size_t i = 0; i < sizeof(etc_files) / sizeof(etc_files[0]); i++) {
        int r = make_file(etc_files[i].path, etc_files[i].text);
        if (r < 0)
            return name_it(detail, etc_files[i].path, r);
    }
    return symlink("/proc/self/mounts", "etc/mtab") < 0 ? name_it(detail, "etc/mtab", -errno) : 0;
}

/* Files that the host's root owns with mode 0400 (kcore, kmsg, kpage*, slabinfo ...) are closed already: that root has no id here. */
static const char *const proc_masked_files[] = {
    "proc/keys",
    "proc/key-users",
    "proc/interrupts",
    "proc/kallsyms",
    "proc/config.gz",
    "proc/modules",
    "proc/timer_list",
    "proc/sched_debug",
    "proc/latency_stats",
    /* PID 1 is in a group of the host's, outside that of the code. */
    "proc/1/cgroup",
    "proc/1/task/1/cgroup",
};
static const char *const proc_masked_dirs[] = {"proc/acpi", "proc/scsi", "proc/asound",
                                               "proc/driver", "proc/fs"};
static const char *const proc_read_only[] = {"proc/sys", "proc/bus", "proc/irq", "proc/tty",
                                             "proc/sysrq-trigger"};

/* What this kernel's /proc does not have needs no mask. Looked up first: a clone that finds no place to go is dissolved, which waits
 * for an RCU grace period. */
static int mask(const char *source, const char *target, uint64_t attributes)
{
    if (faccessat(AT_FDCWD, target, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    return bind_tree(source, target, 0, attributes);
}

int root_proc(char *detail)
{
    int r = sys_mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    if (r < 0)
        return name_it(detail, "proc", r);
    struct statfs fs;
    enum { PROC_MAGIC = 0x9fa0 }; /* PROC_SUPER_MAGIC */
    if (statfs("proc", &fs) < 0 || fs.f_type != PROC_MAGIC)
        return name_it(detail, "proc is no procfs", -EINVAL);
    for (size_t i = 0; i < sizeof(proc_read_only) / sizeof(proc_read_only[0]); i++) {
        r = mask(proc_read_only[i], proc_read_only[i], CLOSED);
        if (r < 0)
            return name_it(detail, proc_read_only[i], r);
    }
    for (size_t i = 0; i < sizeof(proc_masked_dirs) / sizeof(proc_masked_dirs[0]); i++) {
        r = mask("mnt", proc_masked_dirs[i], CLOSED);
        if (r < 0)
            return name_it(detail, proc_masked_dirs[i], r);
    }
    for (size_t i = 0; i < sizeof(proc_masked_files) / sizeof(proc_masked_files[0]); i++) {
        r = mask("dev/null", proc_masked_files[i], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
        if (r < 0)
            return name_it(detail, proc_masked_files[i], r);
    }
    return 0;
}

int root_sys(unsigned cpus, char *detail)
{
    static const char *const names[] = {"online", "possible", "present"};
    char text[32];
    if (cpus <= 1)
        snprintf(text, sizeof(text), "0\n");
    else
        snprintf(text, sizeof(text), "0-%u\n", cpus - 1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[64];
        snprintf(path, sizeof(path), "sys/devices/system/cpu/%s", names[i]);
        int r = make_file(path, text);
        if (r < 0)
            return name_it(detail, path, r);
    }
    return 0;
}

static const struct {
    const char *host, *here;
    unsigned major, minor;
} devices[] = {
    {"/dev/null", "dev/null", 1, 3},       {"/dev/zero", "dev/zero", 1, 5},
    {"/dev/full", "dev/full", 1, 7},       {"/dev/random", "dev/random", 1, 8},
    {"/dev/urandom", "dev/urandom", 1, 9},
};

static const struct {
    const char *target, *path;
} dev_links[] = {
    {"/proc/self/fd", "dev/fd"},       {"/proc/self/fd/0", "dev/stdin"},
    {"/proc/self/fd/1", "dev/stdout"}, {"/proc/self/fd/2", "dev/stderr"},
    {"pts/ptmx", "dev/ptmx"},
};

static int take_device(size_t i)
{
    struct stat st;
    int r = make_file(devices[i].here, "");
    if (r == 0)
        r = bind_tree(devices[i].host, devices[i].here, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    if (r < 0)
        return r;
    /* Checked where it ended up: what was bound is what is looked at. */
    if (lstat(devices[i].here, &st) < 0)
        return -errno;
    bool right = S_ISCHR(st.st_mode) && st.st_rdev == makedev(devices[i].major, devices[i].minor);
    return right ? 0 : -ENODEV;
}

int root_dev(char *detail)
{
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        int r = take_device(i);
        if (r < 0)
            return name_it(detail, devices[i].host, r);
    }
    for (size_t i = 0; i < sizeof(dev_links) / sizeof(dev_links[0]); i++) {
        if (symlink(dev_links[i].target, dev_links[i].path) < 0)
            return name_it(detail, dev_links[i].path, -errno);
    }
    return 0;
}

int root_read_only(char *detail)
{
    /* The tmpfs alone: each mount on it got its flags when it was made, and a device node under nodev would be dead. */
    struct mount_attr attr = {.attr_set = SYSTEM_FILES};
    return name_it(detail, "/", sys_mount_setattr(AT_FDCWD, ".", 0, &attr));
}

/* Shares of the writable memory, in 448ths of the whole: 192 MiB, 192 MiB and 64 MiB of the defaults. */
static const struct {
    const char *path;
    unsigned share;
    unsigned long flags;
    const char *options;
} writable[] = {
    {"tmp", 192, MS_NOSUID | MS_NODEV, "mode=1777"},
    {"home/user", 192, MS_NOSUID | MS_NODEV, "mode=0755,uid=1000,gid=1000"},
    {"dev/shm", 64, MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777"},
};

static uint64_t inodes_for(uint64_t bytes)
{
    enum { BYTES_PER_INODE = 8192 };
    uint64_t inodes = bytes / BYTES_PER_INODE;
    return inodes < 256 ? 256 : inodes > 65536 ? 65536 : inodes;
}

int root_writable(uint64_t tmp_bytes, char *detail)
{
    for (size_t i = 0; i < sizeof(writable) / sizeof(writable[0]); i++) {
        uint64_t bytes = tmp_bytes / 448 * writable[i].share;
        int r = mount_tmpfs(writable[i].path, writable[i].flags, bytes, inodes_for(bytes),
                            writable[i].options);
        if (r < 0)
            return name_it(detail, writable[i].path, r);
    }
    int r = sys_mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
                      "newinstance,ptmxmode=0666,mode=0620,max=64");
    return name_it(detail, "dev/pts", r);
}

int root_workspace(int mount_fd, uint64_t bytes, char *detail)
{
    int r = mount_fd >= 0
                ? sys_move_mount(mount_fd, "", AT_FDCWD, "workspace", MOVE_MOUNT_F_EMPTY_PATH)
                : mount_tmpfs("workspace", MS_NOSUID | MS_NODEV, bytes, inodes_for(bytes),
                              "mode=0755,uid=1000,gid=1000");
    return name_it(detail, "workspace", r);
}

int root_pivot(char *detail)
{
    int r = sys_pivot_root(".", ".");
    if (r < 0)
        return name_it(detail, "pivot_root", r);
    r = sys_umount2(".", MNT_DETACH);
    if (r < 0)
        return name_it(detail, "detaching the old root", r);
    if (chdir("/") < 0)
        return name_it(detail, "/", -errno);
    struct stat root, above;
    if (stat("/", &root) < 0 || stat("..", &above) < 0)
        return name_it(detail, "..", -errno);
    if (root.st_ino != above.st_ino || root.st_dev != above.st_dev)
        return name_it(detail, "the host's tree is still above", -EXDEV);
    return 0;
}
