#include "outputs/outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "outputs/copy.h"
#include "outputs/left-out.h"
#include "outputs/scratch.h"
#include "outputs/target.h"
#include "outputs/text.h"
#include "outputs/walk.h"

/* Theory of operation.
 *
 * A second walk gives the workspace as it is now; both walks are sorted by path, so one pass
 * beside `before` finds what was added, changed and deleted. What changed is judged in that
 * order: the scratch rules, what it is, its size, the counts; and what is left is copied.
 * Between walk and copy nothing is believed: the file that opens must be the very one that was
 * listed, and it must be so still when its last byte has been read. */

typedef struct {
    int workspace_fd;
    const OutputRules *rules;
    OutputTarget target;
    gboolean copies;
    LeftOut left_out;
    OutputSet *set;
    uint64_t total_bytes;
} Collect;

void output_rules_init(OutputRules *rules)
{
    *rules = (OutputRules){
        .max_files = 64,
        .max_file_bytes = 50ull << 20,
        .max_total_bytes = 512ull << 20,
    };
}

static void output_file_free(gpointer data)
{
    OutputFile *file = data;

    g_free(file->path);
    g_free(file);
}

void output_set_free(OutputSet *set)
{
    if (!set) {
        return;
    }
    g_clear_pointer(&set->files, g_ptr_array_unref);
    g_clear_pointer(&set->deleted, g_ptr_array_unref);
    g_clear_pointer(&set->left_out, g_ptr_array_unref);
    g_free(set);
}

static void collect_clear(Collect *collect)
{
    target_clear(&collect->target);
    left_out_clear(&collect->left_out);
    g_clear_pointer(&collect->set, output_set_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Collect, collect_clear)

static const char *special_kind(uint32_t mode)
{
    static const struct {
        uint32_t type;
        const char *name;
    } kinds[] = {
        {S_IFIFO, "a fifo"},
        {S_IFSOCK, "a socket"},
        {S_IFCHR, "a device"},
        {S_IFBLK, "a device"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
        if (kinds[i].type == (mode & S_IFMT)) {
            return kinds[i].name;
        }
    }
    return "not a regular file";
}

/* Leaves out what is no plain file. */
static gboolean leave_out_kind(Collect *collect, const WalkEntry *entry)
{
    if (S_ISLNK(entry->mode)) {
        left_out_add(&collect->left_out, entry->path, OUTPUT_LINK, g_strdup("a symbolic link"));
        return TRUE;
    }
    if (!S_ISREG(entry->mode)) {
        left_out_add(&collect->left_out, entry->path, OUTPUT_SPECIAL,
                     g_strdup(special_kind(entry->mode)));
        return TRUE;
    }
    if (entry->links > 1) {
        left_out_add(&collect->left_out, entry->path, OUTPUT_LINK,
                     g_strdup_printf("one file under %u names", entry->links));
        return TRUE;
    }
    return FALSE;
}

/* Leaves out what is over a limit. */
static gboolean leave_out_amount(Collect *collect, const WalkEntry *entry)
{
    const OutputRules *rules = collect->rules;
    g_autofree char *size = NULL;
    g_autofree char *limit = NULL;

    if (entry->size_bytes > rules->max_file_bytes) {
        size = text_of_size(entry->size_bytes);
        limit = text_of_size(rules->max_file_bytes);
        left_out_add(&collect->left_out, entry->path, OUTPUT_TOO_LARGE,
                     g_strdup_printf("%s, over the limit of %s for one file", size, limit));
        return TRUE;
    }
    if (collect->set->files->len >= rules->max_files) {
        left_out_add(&collect->left_out, entry->path, OUTPUT_OVER_COUNT,
                     g_strdup_printf("over the limit of %u files", rules->max_files));
        return TRUE;
    }
    if (entry->size_bytes > rules->max_total_bytes - collect->total_bytes) {
        size = text_of_size(entry->size_bytes);
        limit = text_of_size(rules->max_total_bytes);
        left_out_add(
            &collect->left_out, entry->path, OUTPUT_OVER_TOTAL,
            g_strdup_printf("%s more are over the limit of %s for all files", size, limit));
        return TRUE;
    }
    return FALSE;
}

/* Whether what `fd` is open on is the file that was listed, untouched. */
static gboolean is_listed(int fd, const WalkEntry *entry)
{
    struct stat status;
    WalkEntry now;

    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_nlink != 1) {
        return FALSE;
    }
    walk_entry_fill(&now, &status);
    return walk_entry_same(&now, entry);
}

typedef struct {
    int error_number;
    OutputReason reason;
    const char *detail;
} SourceFailure;

static const SourceFailure source_failures[] = {
    {EACCES, OUTPUT_UNREADABLE, "the file's permissions forbid reading it"},
    {EPERM, OUTPUT_UNREADABLE, "the file's permissions forbid reading it"},
    {ENOENT, OUTPUT_CHANGED, "gone since it was listed"},
    {ENOTDIR, OUTPUT_CHANGED, "a folder of its path became a file"},
    {ELOOP, OUTPUT_CHANGED, "it or a folder of its path became a link"},
    {ENXIO, OUTPUT_CHANGED, "it became a special file"},
    {EXDEV, OUTPUT_SPECIAL, "another file system is mounted there"},
};

static void leave_out_failed(Collect *collect, const char *path, int error_number)
{
    for (guint i = 0; i < G_N_ELEMENTS(source_failures); i++) {
        if (source_failures[i].error_number == error_number) {
            left_out_add(&collect->left_out, path, source_failures[i].reason,
                         g_strdup(source_failures[i].detail));
            return;
        }
    }
    left_out_add(&collect->left_out, path, OUTPUT_UNREADABLE, g_strdup(g_strerror(error_number)));
}

static void leave_out_changed(Collect *collect, const char *path)
{
    left_out_add(&collect->left_out, path, OUTPUT_CHANGED,
                 g_strdup("it was changed while it was read"));
}

/* FALSE with `error` when the target fails; TRUE with the reason said when it refuses this path. */
static gboolean leave_out_refused(Collect *collect, const char *path, TargetOutcome outcome,
                                  const char *why)
{
    if (outcome == TARGET_FAILED) {
        return FALSE;
    }
    left_out_add(&collect->left_out, path, OUTPUT_BAD_NAME, g_strdup(why));
    return TRUE;
}

static void add_file(Collect *collect, const WalkEntry *entry, const char *change,
                     const char *sha256)
{
    OutputFile *file = g_new0(OutputFile, 1);

    file->path = g_strdup(entry->path);
    file->change = change;
    file->size_bytes = entry->size_bytes;
    g_strlcpy(file->sha256, sha256, sizeof(file->sha256));
    g_ptr_array_add(collect->set->files, file);
    collect->total_bytes += entry->size_bytes;
}

/* Copies one file. TRUE also when it had to be left out; FALSE when the target failed. */
static gboolean copy_entry(Collect *collect, const WalkEntry *entry, const char *change,
                           GError **error)
{
    /* GLib's own SHA-256: libcrypto's is faster, but loading it costs 3 ms of every start. */
    g_autoptr(GChecksum) checksum = g_checksum_new(G_CHECKSUM_SHA256);
    g_auto(TargetFile) file = {.fd = -1};
    autofd fd = walk_open_beneath(collect->workspace_fd, entry->path, O_RDONLY);
    gboolean executable = (entry->mode & 0111) != 0;
    const char *why = NULL;
    int error_number = 0;
    TargetOutcome outcome;
    CopyOutcome copied;

    if (fd < 0) {
        leave_out_failed(collect, entry->path, -fd);
        return TRUE;
    }
    if (!is_listed(fd, entry)) {
        leave_out_changed(collect, entry->path);
        return TRUE;
    }
    outcome = target_begin(&collect->target, entry->path, executable, &file, &why, error);
    if (outcome != TARGET_OK) {
        return leave_out_refused(collect, entry->path, outcome, why);
    }
    copied = copy_file(fd, file.fd, entry->size_bytes, checksum, &error_number);
    if (copied == COPY_TARGET_FAILED) {
        outcome = target_failure(entry->path, error_number, &why, error);
        return leave_out_refused(collect, entry->path, outcome, why);
    }
    if (copied == COPY_SOURCE_FAILED) {
        leave_out_failed(collect, entry->path, error_number);
        return TRUE;
    }
    if (copied == COPY_SOURCE_SHRANK || !is_listed(fd, entry)) {
        leave_out_changed(collect, entry->path);
        return TRUE;
    }
    outcome = target_keep(&file, entry->path, &why, error);
    if (outcome != TARGET_OK) {
        return leave_out_refused(collect, entry->path, outcome, why);
    }
    add_file(collect, entry, change, g_checksum_get_string(checksum));
    return TRUE;
}

/* Judges one entry that was added or changed. */
static gboolean take_entry(Collect *collect, const WalkEntry *entry, const char *change,
                           GError **error)
{
    gboolean is_folder = entry->problem != N_OUTPUT_REASONS;
    ScratchMatch match;

    if (scratch_match(entry->path, is_folder, &match) &&
        !scratch_is_kept(collect->rules->keep, entry->path)) {
        left_out_add_scratch(&collect->left_out, entry->path, match.length, match.what,
                             entry->size_bytes);
        return TRUE;
    }
    if (is_folder) {
        left_out_add(&collect->left_out, entry->path, entry->problem, g_strdup(entry->detail));
        return TRUE;
    }
    if (leave_out_kind(collect, entry) || leave_out_amount(collect, entry)) {
        return TRUE;
    }
    if (collect->copies) {
        return copy_entry(collect, entry, change, error);
    }
    add_file(collect, entry, change, "");
    return TRUE;
}

/* A path of `before` that the second walk did not see: deleted, or only not reached. */
static void take_missing(Collect *collect, const WalkEntry *entry)
{
    struct stat status;
    autofd fd = -1;

    if (entry->problem != N_OUTPUT_REASONS) {
        return; /* a folder */
    }
    fd = walk_open_beneath(collect->workspace_fd, entry->path, O_PATH);
    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ||
        (fd >= 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode))) {
        g_ptr_array_add(collect->set->deleted, g_strdup(entry->path));
    }
}

/* The entry of `before` at `path`, if there is one; what comes before it in order has no
 * partner: it is missing. */
static const WalkEntry *advance(Collect *collect, const OutputManifest *before, guint *at,
                                const char *path)
{
    while (before && *at < output_manifest_size(before)) {
        const WalkEntry *entry = manifest_entry(before, *at);
        int order = path ? strcmp(entry->path, path) : -1;

        if (order > 0) {
            return NULL;
        }
        (*at)++;
        if (order == 0) {
            return entry;
        }
        take_missing(collect, entry);
    }
    return NULL;
}

OutputSet *output_collect(int workspace_fd, const OutputManifest *before, const OutputRules *rules,
                          int target_fd, GError **error)
{
    g_autoptr(OutputManifest) after = output_manifest_walk(workspace_fd, error);
    g_auto(Collect) collect = {
        .workspace_fd = workspace_fd,
        .rules = rules,
        .target = OUTPUT_TARGET_INIT(target_fd),
        .copies = target_fd >= 0,
        .set = g_new0(OutputSet, 1),
    };
    guint at = 0;

    left_out_init(&collect.left_out);
    if (!after) {
        return NULL;
    }
    collect.set->files = g_ptr_array_new_with_free_func(output_file_free);
    collect.set->deleted = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < output_manifest_size(after); i++) {
        const WalkEntry *entry = manifest_entry(after, i);
        const WalkEntry *old = advance(&collect, before, &at, entry->path);
        gboolean unchanged =
            old && entry->problem == N_OUTPUT_REASONS && walk_entry_same(old, entry);

        if (!unchanged && !take_entry(&collect, entry, old ? "changed" : "added", error)) {
            return NULL;
        }
    }
    advance(&collect, before, &at, NULL);
    collect.set->left_out = left_out_finish(&collect.left_out);
    return g_steal_pointer(&collect.set);
}
