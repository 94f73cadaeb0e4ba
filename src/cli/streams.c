#include "cli/streams.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/text.h"

static const int live_fds[N_AGENT_STREAMS] = {
    [AGENT_STDOUT] = STDOUT_FILENO, [AGENT_STDERR] = STDERR_FILENO};

void live_streams_init(LiveStreams *live, const char *cap)
{
    *live = (LiveStreams){.cap = cap};
    struct stat st[N_AGENT_STREAMS] = {0};
    for (guint i = 0; i < N_AGENT_STREAMS; i++)
        live->regular[i] = fstat(live_fds[i], &st[i]) == 0 && S_ISREG(st[i].st_mode);
    live->one_file = st[0].st_dev == st[1].st_dev && st[0].st_ino == st[1].st_ino;
}

/* stdout is shared with other programs, so its O_NONBLOCK is not ours to set. A pipe that poll(2)
 * calls writable takes PIPE_BUF bytes without blocking (pipe(7)). */
static gssize live_output(void *user, AgentStream stream, const char *data, gsize size,
                          int *wait_fd)
{
    LiveStreams *live = user;
    int fd = live_fds[stream];
    if (!live->regular[stream]) {
        struct pollfd polled = {.fd = fd, .events = POLLOUT};
        if (poll(&polled, 1, 0) == 0) {
            *wait_fd = fd;
            return 0;
        }
        size = MIN(size, PIPE_BUF);
    }
    ssize_t n = write(fd, data, size);
    if (n >= 0) {
        if (stream == AGENT_STDERR || live->one_file)
            say_note_output(data, (gsize)n);
        return n;
    }
    if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) {
        *wait_fd = fd;
        return 0;
    }
    live->error_number = errno;
    live->failed = stream;
    return -errno;
}

static void live_gap(void *user, const guint64 dropped_bytes[N_AGENT_STREAMS])
{
    const LiveStreams *live = user;
    say("output cut here: %" G_GUINT64_FORMAT " bytes of stdout and %" G_GUINT64_FORMAT
        " of stderr were dropped; --max-output %s keeps the first and the last half",
        dropped_bytes[AGENT_STDOUT], dropped_bytes[AGENT_STDERR], live->cap);
}

const AgentSink live_sink = {live_output, live_gap};

void kept_streams_init(KeptStreams *kept)
{
    *kept = (KeptStreams){0};
    for (guint i = 0; i < N_AGENT_STREAMS; i++)
        kept->streams[i].bytes = g_byte_array_new();
}

void kept_streams_clear(KeptStreams *kept)
{
    for (guint i = 0; i < N_AGENT_STREAMS; i++)
        g_clear_pointer(&kept->streams[i].bytes, g_byte_array_unref);
}

static gssize kept_output(void *user, AgentStream stream, const char *data, gsize size,
                          G_GNUC_UNUSED int *wait_fd)
{
    KeptStreams *kept = user;
    g_byte_array_append(kept->streams[stream].bytes, (const guint8 *)data, (guint)size);
    return (gssize)size;
}

static void kept_gap(void *user, const guint64 dropped_bytes[N_AGENT_STREAMS])
{
    KeptStreams *kept = user;
    for (guint i = 0; i < N_AGENT_STREAMS; i++) {
        if (dropped_bytes[i] > 0 && kept->streams[i].dropped_bytes == 0) {
            kept->streams[i].gap_at = kept->streams[i].bytes->len;
            kept->streams[i].dropped_bytes = dropped_bytes[i];
        }
    }
}

const AgentSink kept_sink = {kept_output, kept_gap};

GString *kept_streams_text(const KeptStreams *kept, AgentStream stream)
{
    const char *bytes = (const char *)kept->streams[stream].bytes->data;
    gsize size = kept->streams[stream].bytes->len;
    guint64 dropped = kept->streams[stream].dropped_bytes;
    GString *text = g_string_sized_new(size + 1);
    if (dropped > 0) {
        gsize gap_at = kept->streams[stream].gap_at;
        gsize head = text_whole_end(bytes, gap_at);
        gsize skipped = text_whole_start(bytes + gap_at, size - gap_at);
        text_append_utf8(text, bytes, head);
        g_string_append_printf(text, "\n… %" G_GUINT64_FORMAT " bytes dropped …\n",
                               dropped + (gap_at - head) + skipped);
        bytes += gap_at + skipped;
        size -= gap_at + skipped;
    }
    text_append_utf8(text, bytes, size);
    return text;
}
