#include "agent/group.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* The loop only has to wake: whoever is waiting looks again. */
static void on_event(void *owner, short events)
{
    (void)events;
    group_is_empty(owner);
}

void group_init(struct group *group, struct loop *loop)
{
    *group = (struct group){.parent_fd = -1, .fd = -1, .loop = loop};
    group->events = (struct loop_source){.fd = -1, .ready = on_event, .owner = group};
}

int group_create(struct group *group, int parent_fd, const char *id)
{
    snprintf(group->name, sizeof(group->name), "e-%s", id);
    if (mkdirat(parent_fd, group->name, 0755) < 0)
        return -errno;
    group->parent_fd = parent_fd;
    group->fd = openat(parent_fd, group->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (group->fd < 0)
        return -errno;
    group->events.fd = openat(group->fd, "cgroup.events", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (group->events.fd < 0)
        return -errno;
    loop_watch(group->loop, &group->events, POLLPRI);
    return 0;
}

void group_signal(const struct group *group, int signal)
{
    autofd fd = openat(group->fd, "cgroup.procs", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    /* A pid may be cut at the end of a read: digits are put together one by one. */
    char text[4096];
    long pid = 0;
    ssize_t n;
    while ((n = read(fd, text, sizeof(text))) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                pid = pid * 10 + (text[i] - '0');
                continue;
            }
            if (pid > 1)
                kill((pid_t)pid, signal);
            pid = 0;
        }
    }
}

int group_kill(const struct group *group)
{
    return fd_write_file_at(group->fd, "cgroup.kill", "1");
}

bool group_is_empty(const struct group *group)
{
    char text[256];
    ssize_t n = pread(group->events.fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return true;
    text[n] = '\0';
    return strstr(text, "populated 1") == NULL;
}

void group_clear(struct group *group)
{
    if (group->events.fd >= 0)
        loop_watch(group->loop, &group->events, 0);
    fd_clear(&group->events.fd);
    fd_clear(&group->fd);
    if (group->parent_fd >= 0)
        unlinkat(group->parent_fd, group->name, AT_REMOVEDIR);
    group_init(group, group->loop);
}
