#include "agent/usage.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Kernel files give their whole text anew to a read at offset 0. Returns the length, 0 on any
 * failure. */
static size_t read_text(int fd, char *text, size_t size)
{
    ssize_t n = fd < 0 ? 0 : pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* The number after `key` in a text of lines "key number". */
static uint64_t read_count(int fd, const char *key)
{
    char text[1024];
    size_t key_size = strlen(key);
    if (read_text(fd, text, sizeof(text)) == 0)
        return 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, key_size) == 0 && line[key_size] == ' ')
            return strtoull(line + key_size, NULL, 10);
    }
    return 0;
}

void usage_read_events(const struct settings *settings, struct usage_events *events)
{
    events->oom_kills = read_count(settings->memory_events, "oom_kill");
    events->pids_refused = read_count(settings->pids_events, "max");
}

bool usage_read_peak(const struct settings *settings, uint64_t *bytes)
{
    char text[64];
    if (read_text(settings->memory_peak, text, sizeof(text)) == 0)
        return false;
    *bytes = strtoull(text, NULL, 10);
    return true;
}

bool usage_disk_is_full(void)
{
    /* A write may fail while some blocks are free: ext4 keeps a few back and takes large writes whole or not at all. */
    enum { NEARLY_FULL = 50 };
    struct statvfs disk;
    if (statvfs("/workspace", &disk) < 0)
        return false;
    return (disk.f_blocks > 0 && disk.f_bavail <= disk.f_blocks / NEARLY_FULL) ||
           (disk.f_files > 0 && disk.f_favail == 0);
}
