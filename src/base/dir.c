#include "base/dir.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct linux_dirent64 {
    uint64_t inode;
    int64_t offset;
    unsigned short record_size;
    unsigned char type;
    char name[];
};

void dir_reader_init(struct dir_reader *reader, int fd)
{
    reader->fd = fd;
    reader->size = reader->at = 0;
}

int dir_reader_next(struct dir_reader *reader, struct dir_entry *entry)
{
    for (;;) {
        if (reader->at == reader->size) {
            long n = syscall(SYS_getdents64, reader->fd, reader->buffer, sizeof(reader->buffer));
            if (n <= 0)
                return n < 0 ? -errno : 0;
            reader->size = (size_t)n;
            reader->at = 0;
        }
        const struct linux_dirent64 *raw =
            (const struct linux_dirent64 *)(reader->buffer + reader->at);
        reader->at += raw->record_size;
        if (strcmp(raw->name, ".") == 0 || strcmp(raw->name, "..") == 0)
            continue;
        *entry = (struct dir_entry){.name = raw->name, .type = raw->type};
        return 1;
    }
}
