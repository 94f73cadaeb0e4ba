#include "launcher/record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/sys.h"
#include "launcher/cgroup.h"

#define RECORD_SUFFIX ".run"
enum { RECORD_BYTES_MAX = 8192, SWEEP_WAIT_MS = 5000 };

void record_init(struct record *record)
{
    *record = (struct record){.fd = -1, .dir_fd = -1};
}

int record_make_id(char id[RECORD_ID_MAX + 1])
{
    unsigned char bytes[8];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return -errno;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

int record_create(struct record *record, int state_fd, const char *id, const char *text)
{
    autofd fd = openat(state_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -errno;
    int r = fd_write_full(fd, text, strlen(text));
    if (r < 0)
        return r;
    char self[64];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    snprintf(record->name, sizeof(record->name), "%s" RECORD_SUFFIX, id);
    if (linkat(AT_FDCWD, self, state_fd, record->name, AT_SYMLINK_FOLLOW) < 0)
        return -errno;
    record->fd = fd_steal(&fd);
    record->dir_fd = state_fd;
    return 0;
}

int record_append(struct record *record, const char *text)
{
    if (record->fd < 0)
        return -EBADF;
    return fd_write_full(record->fd, text, strlen(text));
}

void record_remove(struct record *record)
{
    if (record->fd < 0)
        return;
    (void)unlinkat(record->dir_fd, record->name, 0);
    fd_clear(&record->fd);
}

int record_start_time(pid_t pid, uint64_t *start_time)
{
    char path[64], text[2048];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    ssize_t n = fd_read_file_at(AT_FDCWD, path, text, sizeof(text));
    if (n < 0)
        return (int)n;
    /* The name in parentheses may hold anything; fields are counted from the last ')', which ends field 2. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return -EPROTO;
    *start_time = strtoull(at + 1, NULL, 10);
    return 0;
}

/* Kills the process of a record if it still is that process, and waits for its end. The pidfd comes first: once it is
 * open the number cannot be given to another, so the start time that is compared belongs to it. */
static int sweep_process(pid_t pid, uint64_t start_time)
{
    autofd pidfd = sys_pidfd_open(pid);
    if (pidfd < 0)
        return pidfd == -ESRCH || pidfd == -EINVAL ? 0 : pidfd;
    uint64_t found;
    int r = record_start_time(pid, &found);
    if (r < 0 || found != start_time)
        return 0;
    r = sys_pidfd_send_signal(pidfd, SIGKILL);
    if (r < 0)
        return r == -ESRCH ? 0 : r;
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, SWEEP_WAIT_MS) > 0 ? 0 : -ETIMEDOUT;
}

/* A group's path in a record is only believed when its last part is one of our names. */
static int sweep_group(const char *path)
{
    const char *name = strrchr(path, '/');
    if (!name || strncmp(name, "/hutch-", 7) != 0 || strstr(path, "/../"))
        return -EPROTO;
    return cgroup_sweep(path);
}

static int sweep_line(char *line)
{
    if (strncmp(line, "cgroup ", 7) == 0)
        return sweep_group(line + 7);
    long pid;
    unsigned long long start_time;
    if (sscanf(line, "pid %ld %llu", &pid, &start_time) == 2)
        return sweep_process((pid_t)pid, start_time);
    return -EPROTO;
}

/* Lines are done in reverse: the process first, then the groups it was in. */
static int sweep_text(char *text)
{
    int result = 0;
    size_t size = strlen(text);
    while (size > 0) {
        if (text[size - 1] == '\n') {
            text[--size] = '\0';
            continue;
        }
        char *newline = memrchr(text, '\n', size);
        char *line = newline ? newline + 1 : text;
        int r = sweep_line(line);
        if (r < 0)
            result = r;
        size = (size_t)(line - text);
    }
    return result;
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* 1 when a stale record was removed, 0 when it is alive or gone, -errno. */
static int sweep_record(int state_fd, const char *name)
{
    autofd fd = openat(state_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 0 : -errno;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink == 0)
        return 0;
    char text[RECORD_BYTES_MAX];
    ssize_t n = fd_read_full(fd, text, sizeof(text) - 1);
    if (n < 0)
        return (int)n;
    text[n] = '\0';
    int r = sweep_text(text);
    if (r < 0)
        return r; /* the record stays for the next one to try */
    return unlinkat(state_fd, name, 0) < 0 && errno != ENOENT ? -errno : 1;
}

int record_sweep(int state_fd)
{
    autofd fd = openat(state_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct dir_reader reader;
    dir_reader_init(&reader, fd);
    struct dir_entry entry;
    int n = 0, result = 0, r;
    while ((r = dir_reader_next(&reader, &entry)) > 0) {
        if (!has_suffix(entry.name, RECORD_SUFFIX))
            continue;
        r = sweep_record(state_fd, entry.name);
        if (r < 0)
            result = r;
        else
            n += r;
    }
    return r < 0 ? r : result < 0 ? result : n;
}
