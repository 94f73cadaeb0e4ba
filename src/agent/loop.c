#include "agent/loop.h"

#include <stdbool.h>
#include <stdlib.h>

static void add(struct loop *loop, struct loop_source *source)
{
    if (loop->n_sources == LOOP_SOURCES_MAX)
        abort(); /* the agent's own descriptors are counted in loop.h; code has no part in them */
    loop->sources[loop->n_sources++] = source;
}

static void take_out(struct loop *loop, const struct loop_source *source)
{
    for (size_t i = 0; i < loop->n_sources; i++) {
        if (loop->sources[i] == source)
            loop->sources[i] = loop->sources[--loop->n_sources];
    }
}

void loop_watch(struct loop *loop, struct loop_source *source, short events)
{
    if (source->events == 0 && events != 0)
        add(loop, source);
    else if (source->events != 0 && events == 0)
        take_out(loop, source);
    source->events = events;
}

void loop_run_once(struct loop *loop, int timeout_ms)
{
    struct pollfd polled[LOOP_SOURCES_MAX];
    size_t n = loop->n_sources;
    for (size_t i = 0; i < n; i++)
        polled[i] = (struct pollfd){.fd = loop->sources[i]->fd, .events = loop->sources[i]->events};
    if (poll(polled, n, timeout_ms) < 1)
        return;
    /* In turn, so that a descriptor which is always ready does not hide the others. */
    for (size_t i = 0; i < n; i++) {
        size_t index = (loop->next + i) % n;
        if (polled[index].revents == 0)
            continue;
        loop->next = index + 1;
        struct loop_source *source = loop->sources[index];
        source->ready(source->owner, polled[index].revents);
        return;
    }
}
