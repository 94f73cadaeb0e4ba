#pragma once

#include <glib.h>

/* The scratch rules: what programs leave behind that nobody asked for. A path is bytes, relative
 * to the workspace. */

/* The rule that a path falls under. */
typedef struct {
    /* Of the part of the path that is left out as one: a scratch folder, or the whole path. */
    gsize length;
    const char *what; /* why, as a clause: "a cache of Python's"; static */
} ScratchMatch;

/* Whether the path of a file (`is_folder`: of a folder) falls under a rule; the outermost folder
 * decides. */
gboolean scratch_match(const char *path, gboolean is_folder, ScratchMatch *match);

/* Whether the folder itself, whatever is above it, is scratch: then it is walked last. */
gboolean scratch_is_folder(const char *path);

/* Whether one of the globs (NULL-ended, may be NULL) names the path or a folder above it. A glob
 * with a '/' is held against the whole path, one without against the base name; '*' matches '/'
 * too; a leading "**" + "/" also matches nothing. */
gboolean scratch_is_kept(const char *const *keep, const char *path);
