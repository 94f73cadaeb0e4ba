#include "agent/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"

/* Netlink sockets in this network namespace, bound or not: the third column of their line in /proc/net/protocols. GATE_OPEN_MAX when
 * they cannot be counted. (/proc/net/netlink has only bound ones.) */
static unsigned count_open(void)
{
    static char text[32 * 1024];
    unsigned open_sockets;
    ssize_t n = fd_read_file_at(AT_FDCWD, "/proc/self/net/protocols", text, sizeof(text));
    const char *line = n > 0 ? strstr(text, "\nNETLINK ") : NULL;
    return line && sscanf(line, " NETLINK %*s %u", &open_sockets) == 1 ? open_sockets
                                                                       : GATE_OPEN_MAX;
}

static void on_question(void *owner, short events)
{
    struct gate *gate = owner;
    /* Larger than the structs of this build, for kernels whose structs are larger; all zero, as the kernel wants it. */
    union {
        struct seccomp_notif question;
        struct seccomp_notif_resp answer;
        uint64_t room[64];
    } in = {0}, out = {0};
    if (!(events & POLLIN) || gate->n_asked >= GATE_GRANTS_MAX) {
        gate_clear(gate); /* nobody is left to ask, or this one asks for ever */
        return;
    }
    if (ioctl(gate->source.fd, (int)SECCOMP_IOCTL_NOTIF_RECV, &in) < 0)
        return; /* who asked has been killed meanwhile */
    gate->n_asked++;
    out.answer.id = in.question.id;
    if (count_open() < GATE_OPEN_MAX)
        out.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else
        out.answer.error = -ENOBUFS;
    (void)ioctl(gate->source.fd, (int)SECCOMP_IOCTL_NOTIF_SEND,
                &out); /* killed meanwhile: ENOENT */
}

void gate_init(struct gate *gate, struct loop *loop)
{
    *gate = (struct gate){.loop = loop};
    gate->source = (struct loop_source){.fd = -1, .ready = on_question, .owner = gate};
}

void gate_open(struct gate *gate, int listener)
{
    gate_clear(gate);
    gate->n_asked = 0;
    gate->source.fd = listener;
    loop_watch(gate->loop, &gate->source, POLLIN);
}

void gate_clear(struct gate *gate)
{
    if (gate->source.fd < 0)
        return;
    loop_watch(gate->loop, &gate->source, 0);
    fd_clear(&gate->source.fd);
}
