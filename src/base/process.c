#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t process_spawn(const char *path, char *const argv[], char *const envp[], int fd, int as_fd)
{
    volatile int error = 0; /* shared with the child until it executes or exits */
    pid_t pid = vfork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        int r = fd == as_fd ? fcntl(fd, F_SETFD, 0) : dup2(fd, as_fd);
        if (r >= 0)
            execve(path, argv, envp);
        error = errno;
        _exit(127);
    }
    if (error == 0)
        return pid;
    (void)waitpid(pid, NULL, 0);
    return -error;
}

int process_wait(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
