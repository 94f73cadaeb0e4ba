#pragma once

#include <dirent.h>
#include <stddef.h>

/* Reading a directory through a descriptor without allocating (getdents64(2)). "." and ".." are passed over. The
 * descriptor is borrowed and its offset is used: it must be freshly opened. */
struct dir_reader {
    int fd;
    size_t size, at;
    char buffer[4096] __attribute__((aligned(8)));
};

struct dir_entry {
    const char *name;   /* valid until the next call */
    unsigned char type; /* DT_DIR, DT_REG, ...; DT_UNKNOWN where the file system does not tell */
};

void dir_reader_init(struct dir_reader *reader, int fd);

/* 1 with an entry, 0 at the end, -errno. */
int dir_reader_next(struct dir_reader *reader, struct dir_entry *entry);
