#pragma once

#include <linux/filter.h>

/* The seccomp filter of sandboxed code (seccomp(2)): instructions that gen-filter.c makes at build
 * time, which is also where the lists of calls are. */
extern const unsigned short filter_size;
extern const struct sock_filter filter_program[];
