#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fd_clear(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
    }
    *fd = -1;
}

int fd_steal(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

ssize_t fd_read_full(int fd, void *buffer, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, (char *)buffer + done, size - done);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int fd_write_full(int fd, const void *buffer, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(fd, (const char *)buffer + done, size - done);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        done += (size_t)n;
    }
    return 0;
}

int fd_write_file_at(int dirfd, const char *path, const char *text)
{
    autofd fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    size_t size = strlen(text);
    ssize_t n = write(fd, text, size);
    if (n < 0)
        return -errno;
    return (size_t)n == size ? 0 : -EIO;
}

ssize_t fd_read_file_at(int dirfd, const char *path, char *buffer, size_t size)
{
    autofd fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    ssize_t n = fd_read_full(fd, buffer, size);
    if (n < 0)
        return n;
    if ((size_t)n == size)
        return -E2BIG;
    buffer[n] = '\0';
    return n;
}

int fd_send_message(int socket, const void *data, size_t size, const int *fds, size_t n_fds)
{
    if (size == 0 || n_fds > FD_MESSAGE_MAX)
        return -EINVAL;
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FD_MESSAGE_MAX)];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)data, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
    }
    ssize_t n;
    do {
        n = sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return (size_t)n == size ? 0 : -EIO;
}

ssize_t fd_receive_message(int socket, void *data, size_t size, int *fds, size_t *n_fds)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FD_MESSAGE_MAX)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t n;
    do {
        n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;

    int received[FD_MESSAGE_MAX];
    size_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n_here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n_here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            if (count < FD_MESSAGE_MAX)
                received[count++] = fd;
            else
                close(fd);
        }
    }
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || count > *n_fds) {
        for (size_t i = 0; i < count; i++)
            close(received[i]);
        *n_fds = 0;
        return -EMSGSIZE;
    }
    if (count > 0)
        memcpy(fds, received, sizeof(int) * count);
    *n_fds = count;
    return n;
}

int fd_set_nonblocking(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -errno;
    flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int fd_null_standard_streams(void)
{
    autofd null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return -errno;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (dup2(null, fd) < 0)
            return -errno;
    }
    if (null <=
        STDERR_FILENO) /* one of them was closed: it is that one now, and stays across exec */
        return fcntl(fd_steal(&null), F_SETFD, 0) < 0 ? -errno : 0;
    return 0;
}
