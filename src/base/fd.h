#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Descriptors: closing, whole reads and writes, and handing them to another process.
 * Every function returns -errno on failure and leaves errno unspecified. */

/* Closes *fd unless it is negative, and sets it to -1. */
void fd_clear(int *fd);

/* Takes the descriptor out of *fd, which becomes -1. */
int fd_steal(int *fd);

#define autofd __attribute__((cleanup(fd_clear))) int

/* Reads until `size` bytes or end of file; returns the bytes read. */
ssize_t fd_read_full(int fd, void *buffer, size_t size);

/* Writes all `size` bytes; 0 or -errno. */
int fd_write_full(int fd, const void *buffer, size_t size);

/* Writes the whole file `path` below the directory `dirfd` in one write(2) (kernel files want that).
 * O_NOFOLLOW, never creates. */
int fd_write_file_at(int dirfd, const char *path, const char *text);

/* Reads a small file whole into `buffer` and ends it with NUL; -E2BIG when it does not fit. */
ssize_t fd_read_file_at(int dirfd, const char *path, char *buffer, size_t size);

/* Sends one message with up to FD_MESSAGE_MAX descriptors (unix(7), SCM_RIGHTS); the caller keeps its
 * descriptors. Sending zero bytes with descriptors is refused (-EINVAL). Never raises SIGPIPE. */
enum { FD_MESSAGE_MAX = 16 };
int fd_send_message(int socket, const void *data, size_t size, const int *fds, size_t n_fds);

/* Receives one message. Returns the bytes read, 0 at end of stream. The descriptors (close-on-exec) are the
 * caller's; *n_fds holds the room on entry and the count on return. A message whose data or descriptors were cut
 * is -EMSGSIZE and whatever came with it is closed. */
ssize_t fd_receive_message(int socket, void *data, size_t size, int *fds, size_t *n_fds);

/* Makes descriptors 0 to 2 the null device; 0 or -errno. */
int fd_null_standard_streams(void);

/* Switches O_NONBLOCK on or off. */
int fd_set_nonblocking(int fd, bool on);
