#pragma once

#include <glib.h>

#include "cli/options.h"

/* What doctor finds out about the host: one function per check, none of which changes anything. */

typedef enum {
    FINDING_YES,
    FINDING_LIMITED, /* works, with a drawback */
    FINDING_NO,
} FindingState;

typedef struct {
    FindingState state;
    char *found; /* what there is, with figures; owned */
    char *mend;  /* the one command or line that mends it; NULL: nothing to do, or nothing can be
                    done; owned */
} Finding;

typedef struct Host Host;
Host *host_new(const Options *options);
void host_free(Host *host);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Host, host_free)

void host_kernel(const Host *host, Finding *finding);
void host_user_namespaces(const Host *host, Finding *finding);
void host_root_directory(const Host *host, Finding *finding); /* a chroot */
void host_proc(const Host *host, Finding *finding);
void host_mount_api(const Host *host, Finding *finding);
void host_idmapped_mounts(const Host *host, Finding *finding);
void host_seccomp(const Host *host, Finding *finding);
void host_cgroups(const Host *host, Finding *finding);
void host_disk_images(const Host *host, Finding *finding);
void host_state_space(const Host *host, Finding *finding);
void host_inotify(const Host *host, Finding *finding);
void host_core_pattern(const Host *host, Finding *finding);
void host_languages(const Host *host, Finding *finding);
