#pragma once

#include <sys/types.h>

/* Starts the program at `path` with `fd` as its descriptor `as_fd`; other descriptors go by their close-on-exec flags. Returns its pid, or
 * -errno when it could not be executed. Signals: dispositions go over as execve(2) says, the mask is the caller's.
 *
 * By vfork(2): posix_spawn(3) of glibc asks for the disposition of each of the 64 signals first, which takes as long as the rest
 * of the call. Not for programs that install signal handlers which touch what the child may share. */
pid_t process_spawn(const char *path, char *const argv[], char *const envp[], int fd, int as_fd);

/* Waits for `pid`; its exit code, 128 + signal when one ended it, or -errno. */
int process_wait(pid_t pid);
