#pragma once

#include <stdint.h>

/* The mount tree, built by the child in its own mount namespace. All return 0 or -errno, and name in `detail` (at least
 * ROOT_DETAIL_BYTES) what they were at. The working directory is the new root from root_begin() on. */

enum { ROOT_DETAIL_BYTES = 108 };

/* Makes every mount private and the working directory an empty tmpfs, with the skeleton of directories and links, and the
 * host's /usr. */
int root_begin(char *detail);

/* The short list of the host's /etc, and the files that are written anew. */
int root_etc(char *detail);

/* A fresh procfs, masked and partly read-only; `cpus` and `memory_bytes` are shown as the machine's where that is cheap. */
int root_proc(char *detail);
int root_sys(unsigned cpus, char *detail);

/* null zero full random urandom, each checked to be that device; links; pts. */
int root_dev(char *detail);

/* The whole tree read-only, nosuid; nodev but for /dev. Done before anything writable is mounted. */
int root_read_only(char *detail);

/* The writable places: sizes in bytes. */
int root_writable(uint64_t tmp_bytes, char *detail);

/* /workspace: the given detached mount, or a tmpfs of `bytes` owned by uid and gid 1000 when `mount_fd` is -1. */
int root_workspace(int mount_fd, uint64_t bytes, char *detail);

/* pivot_root(2) to the working directory; checks that nothing lies above. */
int root_pivot(char *detail);
