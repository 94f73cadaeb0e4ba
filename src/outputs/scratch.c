#include "outputs/scratch.h"

#include <fnmatch.h>
#include <limits.h>
#include <string.h>

typedef enum {
    RULE_TOP_FOLDER, /* a folder of that name at the top */
    RULE_FOLDER,     /* a folder of that name anywhere */
    RULE_PREFIX,     /* any part of the path that begins so */
    RULE_SUFFIX,     /* a file that ends so */
} RuleKind;

typedef struct {
    RuleKind kind;
    const char *text;
    gboolean each; /* files in the folder are named one by one */
    const char *what;
} ScratchRule;

static const ScratchRule rules[] = {
    {RULE_TOP_FOLDER, "inputs", TRUE, "below inputs/"},
    {RULE_TOP_FOLDER, "tmp", FALSE, "the folder for temporary files"},
    {RULE_FOLDER, "__pycache__", FALSE, "a cache of Python's"},
    {RULE_FOLDER, "node_modules", FALSE, "installed packages"},
    {RULE_PREFIX, ".", FALSE, "hidden"},
    {RULE_SUFFIX, ".pyc", FALSE, "a cache of Python's"},
    {RULE_SUFFIX, ".pyo", FALSE, "a cache of Python's"},
    {RULE_SUFFIX, ".tmp", FALSE, "a temporary file"},
    {RULE_SUFFIX, ".lock", FALSE, "a lock file"},
};

/* Whether `rule` takes one part of a path, of `size` bytes: the first one (`top`), a folder's or
 * a file's. */
static gboolean rule_takes(const ScratchRule *rule, const char *part, gsize size, gboolean top,
                           gboolean folder)
{
    gsize length = strlen(rule->text);

    if (size < length) {
        return FALSE;
    }
    switch (rule->kind) {
    case RULE_TOP_FOLDER:
        return folder && top && size == length && memcmp(part, rule->text, length) == 0;
    case RULE_FOLDER: return folder && size == length && memcmp(part, rule->text, length) == 0;
    case RULE_PREFIX: /* and more behind it: "." is the workspace itself */
        return size > length && memcmp(part, rule->text, length) == 0;
    case RULE_SUFFIX: return !folder && memcmp(part + size - length, rule->text, length) == 0;
    }
    return FALSE;
}

static const ScratchRule *rule_of_part(const char *part, gsize size, gboolean top, gboolean folder)
{
    for (guint i = 0; i < G_N_ELEMENTS(rules); i++) {
        if (rule_takes(&rules[i], part, size, top, folder)) {
            return &rules[i];
        }
    }
    return NULL;
}

gboolean scratch_match(const char *path, gboolean is_folder, ScratchMatch *match)
{
    const char *part = path;
    const ScratchRule *each = NULL;

    for (;;) {
        gsize size = strcspn(part, "/");
        gboolean last = part[size] == '\0';
        const ScratchRule *rule = rule_of_part(part, size, part == path, !last || is_folder);

        if (rule && !rule->each) {
            *match = (ScratchMatch){.length = (gsize)(part - path) + size, .what = rule->what};
            return TRUE;
        }
        if (rule) {
            each = rule;
        }
        if (last) {
            break;
        }
        part += size + 1;
    }
    if (each) {
        *match = (ScratchMatch){.length = strlen(path), .what = each->what};
    }
    return each != NULL;
}

gboolean scratch_is_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    return rule_of_part(name, strlen(name), name == path, TRUE) != NULL;
}

static gboolean glob_names(const char *glob, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!strchr(glob, '/')) {
        return fnmatch(glob, slash ? slash + 1 : path, 0) == 0;
    }
    return fnmatch(glob, path, 0) == 0 ||
           (g_str_has_prefix(glob, "**/") && glob_names(glob + 3, path));
}

/* Without what only says "folder" or "here": "./out/" is "out". */
static char *plain_glob(const char *glob)
{
    gsize length;

    while (g_str_has_prefix(glob, "./")) {
        glob += 2;
    }
    length = strlen(glob);
    while (length > 1 && glob[length - 1] == '/') {
        length--;
    }
    return g_strndup(glob, length);
}

gboolean scratch_is_kept(const char *const *keep, const char *path)
{
    g_autofree char *part = NULL;

    if (!keep || !*keep) {
        return FALSE;
    }
    part = g_strdup(path);
    for (; *keep; keep++) {
        g_autofree char *glob = plain_glob(*keep);
        gsize end = 0;

        do {
            char after;

            end += strcspn(path + end, "/");
            after = part[end];
            part[end] = '\0';
            if (glob_names(glob, part)) {
                return TRUE;
            }
            part[end] = after;
        } while (path[end++] == '/');
    }
    return FALSE;
}
