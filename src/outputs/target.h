#pragma once

#include <glib.h>
#include <stdint.h>

#include "outputs/outputs.h"

/* The host's folder that collected files are written to. It is the user's, but what earlier runs
 * put there is not to be trusted: names are resolved beneath it, never through a link. */

typedef struct {
    int root_fd;   /* borrowed */
    int folder_fd; /* the folder of the last file, or -1 */
    char *folder;  /* its path; NULL when there is none */
} OutputTarget;

#define OUTPUT_TARGET_INIT(fd) ((OutputTarget){.root_fd = (fd), .folder_fd = -1})
void target_clear(OutputTarget *target);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(OutputTarget, target_clear)

/* A file that is being written, under a temporary name in its folder. */
typedef struct {
    int fd;
    const OutputTarget *target; /* borrowed */
    char name[48];              /* empty: there is none */
} TargetFile;

/* Removes the temporary file unless it was kept. */
void target_file_clear(TargetFile *file);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(TargetFile, target_file_clear)

typedef enum {
    TARGET_OK,
    TARGET_REFUSED, /* this path cannot be there: `why` says it */
    TARGET_FAILED,  /* nothing can be there, or nothing more: `error` is set */
} TargetOutcome;

/* Begins the file `path`: makes its folders, opens it for writing with the mode 0666 or 0777
 * that the umask leaves. */
TargetOutcome target_begin(OutputTarget *target, const char *path, gboolean executable,
                           TargetFile *file, const char **why, GError **error);
/* Puts the written file in its place, where it replaces a file or a link. */
TargetOutcome target_keep(TargetFile *file, const char *path, const char **why, GError **error);
/* The outcome of an errno that writing into the file `path` gave. */
TargetOutcome target_failure(const char *path, int error_number, const char **why, GError **error);
