#include "agent/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

int loop_init(struct loop *loop)
{
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return loop->epoll_fd < 0 ? -errno : 0;
}

void loop_watch(struct loop *loop, struct loop_source *source, uint32_t events)
{
    if (source->events == events)
        return;
    int operation = events == 0           ? EPOLL_CTL_DEL
                    : source->events == 0 ? EPOLL_CTL_ADD
                                          : EPOLL_CTL_MOD;
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (epoll_ctl(loop->epoll_fd, operation, source->fd, &event) < 0)
        abort();
    source->events = events;
}

void loop_run_once(struct loop *loop, int timeout_ms)
{
    struct epoll_event event;
    if (epoll_wait(loop->epoll_fd, &event, 1, timeout_ms) < 1)
        return;
    struct loop_source *source = event.data.ptr;
    source->ready(source->owner, event.events);
}
