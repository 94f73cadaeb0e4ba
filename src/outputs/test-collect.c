#include "outputs/outputs.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "outputs/scratch.h"
#include "outputs/test-tree.h"
#include "outputs/text.h"
#include "outputs/walk.h"

typedef struct {
    Tree workspace, target;
    OutputRules rules;
    OutputManifest *before;
} Fixture;

static Fixture *fixture_new(void)
{
    Fixture *fixture = g_new0(Fixture, 1);

    fixture->workspace = tree_make(NULL);
    fixture->target = tree_make(NULL);
    output_rules_init(&fixture->rules);
    return fixture;
}

/* With a workspace in memory, where a hundred thousand files are made in no time. */
static Fixture *fixture_new_fast(void)
{
    Fixture *fixture = fixture_new();

    tree_clear(&fixture->workspace);
    fixture->workspace = tree_make("/dev/shm");
    return fixture;
}

static void fixture_free(Fixture *fixture)
{
    tree_clear(&fixture->workspace);
    tree_clear(&fixture->target);
    g_clear_pointer(&fixture->before, output_manifest_free);
    g_free(fixture);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Fixture, fixture_free)

static void fixture_snapshot(Fixture *fixture)
{
    g_autoptr(GError) error = NULL;

    g_clear_pointer(&fixture->before, output_manifest_free);
    fixture->before = output_manifest_walk(fixture->workspace.fd, &error);
    g_assert_no_error(error);
}

static OutputSet *fixture_collect(Fixture *fixture)
{
    g_autoptr(GError) error = NULL;
    OutputSet *set = output_collect(fixture->workspace.fd, fixture->before, &fixture->rules,
                                    fixture->target.fd, &error);

    g_assert_no_error(error);
    g_assert_nonnull(set);
    return set;
}

/* "a.txt:added b/c:changed" */
static char *files_of(const OutputSet *set)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < set->files->len; i++) {
        const OutputFile *file = g_ptr_array_index(set->files, i);

        g_string_append_printf(text, "%s%s:%s", i ? " " : "", file->path, file->change);
    }
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static char *left_out_of(const OutputSet *set)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < set->left_out->len; i++) {
        const OutputLeftOut *item = g_ptr_array_index(set->left_out, i);

        g_string_append_printf(text, "%s%s:%s", i ? " " : "", item->path,
                               output_reason_word(item->reason));
    }
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static char *deleted_of(const OutputSet *set)
{
    g_autofree const char **names = g_new0(const char *, set->deleted->len + 1);

    for (guint i = 0; i < set->deleted->len; i++) {
        names[i] = g_ptr_array_index(set->deleted, i);
    }
    return g_strjoinv(" ", (char **)names);
}

#define assert_files(set, wanted)                                                                  \
    do {                                                                                           \
        g_autofree char *files_ = files_of(set);                                                   \
        g_assert_cmpstr(files_, ==, wanted);                                                       \
    } while (0)
#define assert_left_out(set, wanted)                                                               \
    do {                                                                                           \
        g_autofree char *left_out_ = left_out_of(set);                                             \
        g_assert_cmpstr(left_out_, ==, wanted);                                                    \
    } while (0)
#define assert_deleted(set, wanted)                                                                \
    do {                                                                                           \
        g_autofree char *deleted_ = deleted_of(set);                                               \
        g_assert_cmpstr(deleted_, ==, wanted);                                                     \
    } while (0)
#define assert_text(tree, path, wanted)                                                            \
    do {                                                                                           \
        g_autofree char *text_ = tree_read(tree, path);                                            \
        g_assert_cmpstr(text_, ==, wanted);                                                        \
    } while (0)

static const char *detail_of(const OutputSet *set, const char *path)
{
    for (guint i = 0; i < set->left_out->len; i++) {
        const OutputLeftOut *item = g_ptr_array_index(set->left_out, i);

        if (strcmp(item->path, path) == 0) {
            return item->detail;
        }
    }
    return NULL;
}

static guint names_in(const Tree *tree)
{
    g_autoptr(GDir) dir = g_dir_open(tree->path, 0, NULL);
    guint count = 0;

    while (g_dir_read_name(dir)) {
        count++;
    }
    return count;
}

static void test_added_changed_deleted(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;
    const OutputFile *file;

    tree_write(&fixture->workspace, "same.txt", "same");
    tree_write(&fixture->workspace, "table.csv", "a,b\n");
    tree_write(&fixture->workspace, "gone.txt", "x");
    tree_write(&fixture->workspace, "old/gone.txt", "x");
    tree_write(&fixture->workspace, "becomes", "x");
    fixture_snapshot(fixture);
    g_assert_cmpuint(output_manifest_size(fixture->before), ==, 5);

    tree_write(&fixture->workspace, "table.csv", "a,b\n1,2\n");
    tree_write(&fixture->workspace, "out/dir/report.txt", "inside\n");
    tree_write(&fixture->workspace, "empty", "");
    g_assert_cmpint(unlinkat(fixture->workspace.fd, "gone.txt", 0), ==, 0);
    g_assert_cmpint(unlinkat(fixture->workspace.fd, "old/gone.txt", 0), ==, 0);
    g_assert_cmpint(unlinkat(fixture->workspace.fd, "old", AT_REMOVEDIR), ==, 0);
    g_assert_cmpint(symlinkat("/etc", fixture->workspace.fd, "old"), ==, 0);
    g_assert_cmpint(unlinkat(fixture->workspace.fd, "becomes", 0), ==, 0);
    g_assert_cmpint(mkdirat(fixture->workspace.fd, "becomes", 0755), ==, 0);

    set = fixture_collect(fixture);
    assert_files(set, "empty:added out/dir/report.txt:added table.csv:changed");
    assert_deleted(set, "becomes gone.txt old/gone.txt");
    assert_left_out(set, "old:link");
    assert_text(&fixture->target, "table.csv", "a,b\n1,2\n");
    assert_text(&fixture->target, "out/dir/report.txt", "inside\n");
    assert_text(&fixture->target, "empty", "");
    g_assert_cmpuint(names_in(&fixture->target), ==, 3);

    file = g_ptr_array_index(set->files, 0);
    g_assert_cmpstr(file->sha256, ==,
                    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    file = g_ptr_array_index(set->files, 1);
    g_assert_cmpuint(file->size_bytes, ==, 7);
    g_assert_cmpstr(file->sha256, ==,
                    "7b2441693c861bf6969869d8b6f45f098bc8ef07b78ca043a1cb663159aabb10");
}

static void test_same_size_same_mtime(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;
    struct timespec times[2];
    struct stat status;

    tree_write(&fixture->workspace, "v.txt", "AAAA");
    status = tree_stat(&fixture->workspace, "v.txt");
    fixture_snapshot(fixture);
    /* The clock's tick has to pass, else ctime is the same: the kernel's coarse clock says when. */
    for (struct timespec now = status.st_ctim;
         now.tv_sec == status.st_ctim.tv_sec && now.tv_nsec == status.st_ctim.tv_nsec;) {
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
    }
    tree_write(&fixture->workspace, "v.txt", "BBBB");
    times[0] = status.st_atim;
    times[1] = status.st_mtim;
    g_assert_cmpint(utimensat(fixture->workspace.fd, "v.txt", times, 0), ==, 0);
    set = fixture_collect(fixture);
    assert_files(set, "v.txt:changed");
}

static void test_old_and_future_times(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;
    g_autoptr(OutputSet) again = NULL;
    struct timespec times[2] = {{.tv_sec = 978307200}, {.tv_sec = 978307200}};

    fixture_snapshot(fixture);
    tree_write(&fixture->workspace, "report.txt", "new");
    tree_write(&fixture->workspace, "src.bin", "12");
    g_assert_cmpint(utimensat(fixture->workspace.fd, "report.txt", times, 0), ==, 0);
    times[1].tv_sec = 4070908800;
    g_assert_cmpint(utimensat(fixture->workspace.fd, "src.bin", times, 0), ==, 0);
    set = fixture_collect(fixture);
    assert_files(set, "report.txt:added src.bin:added");

    fixture_snapshot(fixture);
    again = fixture_collect(fixture);
    assert_files(again, "");
}

static void test_kinds(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    autofd sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    tree_write(&fixture->workspace, "ok.txt", "ok");
    g_assert_cmpint(mkfifoat(fixture->workspace.fd, "queue", 0666), ==, 0);
    g_snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", fixture->workspace.path);
    g_assert_cmpint(bind(sock, (struct sockaddr *)&address, sizeof(address)), ==, 0);
    g_assert_cmpint(symlinkat("/etc/passwd", fixture->workspace.fd, "report.txt"), ==, 0);
    g_assert_cmpint(symlinkat("/proc/self/environ", fixture->workspace.fd, "environ"), ==, 0);
    g_assert_cmpint(symlinkat("/etc", fixture->workspace.fd, "etc"), ==, 0);
    g_assert_cmpint(symlinkat("loop", fixture->workspace.fd, "loop"), ==, 0);
    tree_write(&fixture->workspace, "one", "1");
    g_assert_cmpint(linkat(fixture->workspace.fd, "one", fixture->workspace.fd, "two", 0), ==, 0);
    if (tree_is_root()) {
        g_assert_cmpint(mknodat(fixture->workspace.fd, "zero", S_IFCHR | 0666, 0x105), ==, 0);
    }

    set = fixture_collect(fixture);
    assert_files(set, "ok.txt:added");
    assert_left_out(
        set, tree_is_root()
                 ? "environ:link etc:link loop:link one:link queue:special_file report.txt:link "
                   "sock:special_file two:link zero:special_file"
                 : "environ:link etc:link loop:link one:link queue:special_file report.txt:link "
                   "sock:special_file two:link");
    g_assert_cmpstr(detail_of(set, "queue"), ==, "a fifo");
    g_assert_cmpstr(detail_of(set, "one"), ==, "one file under 2 names");
    g_assert_cmpuint(names_in(&fixture->target), ==, 1);
}

static void test_modes(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;
    g_autoptr(OutputSet) closed = NULL;

    tree_write(&fixture->workspace, "shut.txt", "inside\n");
    tree_write(&fixture->workspace, "dir/below.txt", "inside\n");
    tree_write(&fixture->workspace, "run", "#!");
    tree_write(&fixture->workspace, "setuid", "#!");
    g_assert_cmpint(fchmodat(fixture->workspace.fd, "shut.txt", 0, 0), ==, 0);
    g_assert_cmpint(fchmodat(fixture->workspace.fd, "dir", 0, 0), ==, 0);
    g_assert_cmpint(fchmodat(fixture->workspace.fd, "run", 0700, 0), ==, 0);
    g_assert_cmpint(fchmodat(fixture->workspace.fd, "setuid", 06755, 0), ==, 0);

    set = fixture_collect(fixture);
    if (tree_is_root()) {
        assert_files(set, "dir/below.txt:added run:added setuid:added shut.txt:added");
        assert_left_out(set, "");
        g_assert_cmpuint(tree_stat(&fixture->target, "shut.txt").st_mode, ==, S_IFREG | 0644);
        g_assert_cmpuint(tree_stat(&fixture->target, "dir").st_mode, ==, S_IFDIR | 0755);
    } else {
        assert_files(set, "run:added setuid:added");
        assert_left_out(set, "dir:unreadable shut.txt:unreadable");
        g_assert_null(strstr(detail_of(set, "shut.txt"), "/"));
    }
    g_assert_cmpuint(tree_stat(&fixture->target, "run").st_mode, ==, S_IFREG | 0755);
    g_assert_cmpuint(tree_stat(&fixture->target, "setuid").st_mode, ==, S_IFREG | 0755);

    g_assert_cmpint(fchmod(fixture->workspace.fd, 0), ==, 0);
    closed = fixture_collect(fixture);
    if (!tree_is_root()) {
        assert_files(closed, "");
        assert_left_out(closed, ".:unreadable");
    }
    g_assert_cmpint(fchmod(fixture->workspace.fd, 0700), ==, 0);
}

static void test_scratch(void)
{
    static const char *const scratch[] = {
        "__pycache__/m.pyc",
        "a/__pycache__/m.pyc",
        ".cache/pip/f",
        ".hidden",
        "a/.git/objects/f",
        "a/.git/x",
        "tmp/f",
        "tmp/g",
        "node_modules/x/f",
        "x.tmp",
        "x.lock",
        "x.pyc",
        "x.pyo",
        "inputs/new.csv",
    };
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;

    tree_write(&fixture->workspace, "inputs/data.csv", "1");
    tree_write(&fixture->workspace, "inputs/p/.git/old", "1");
    fixture_snapshot(fixture);
    for (guint i = 0; i < G_N_ELEMENTS(scratch); i++) {
        tree_write(&fixture->workspace, scratch[i], "x");
    }
    tree_write(&fixture->workspace, "wanted.txt", "w");
    tree_write(&fixture->workspace, "tmpfile.txt", "w");
    tree_write(&fixture->workspace, "a/tmp/kept.txt", "w");
    tree_write(&fixture->workspace, "out/data.csv", "w");
    tree_write(&fixture->workspace, "out/inputs/data.csv", "w");
    g_assert_cmpint(symlinkat("..", fixture->workspace.fd, ".cache/link"), ==, 0);

    set = fixture_collect(fixture);
    assert_files(
        set,
        "a/tmp/kept.txt:added out/data.csv:added out/inputs/data.csv:added tmpfile.txt:added wanted.txt:added");
    assert_left_out(
        set,
        ".cache:scratch .hidden:scratch __pycache__:scratch a/.git:scratch a/__pycache__:scratch "
        "inputs/new.csv:scratch node_modules:scratch tmp:scratch x.lock:scratch x.pyc:scratch x.pyo:scratch "
        "x.tmp:scratch");
    g_assert_cmpstr(detail_of(set, "tmp"), ==, "the folder for temporary files: 2 files, 2 bytes");
    g_assert_cmpstr(detail_of(set, ".hidden"), ==, "hidden: 1 file, 1 byte");
}

static void test_keep(void)
{
    static const char *const keep[] = {"tmp/keep.csv", "*.pyc",     "./.cache/",
                                       "inputs/*",     "**/x.lock", NULL};
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;

    tree_write(&fixture->workspace, "inputs/same.csv", "1");
    tree_write(&fixture->workspace, "inputs/data.csv", "1");
    fixture_snapshot(fixture);
    tree_write(&fixture->workspace, "inputs/data.csv", "12");
    tree_write(&fixture->workspace, "tmp/keep.csv", "k");
    tree_write(&fixture->workspace, "tmp/other.csv", "k");
    tree_write(&fixture->workspace, "tmp/m.pyc", "k");
    tree_write(&fixture->workspace, ".cache/a/b", "k");
    tree_write(&fixture->workspace, "x.lock", "k");
    tree_write(&fixture->workspace, "d/x.lock", "k");
    tree_write(&fixture->workspace, "plain", "k");
    fixture->rules.keep = keep;
    set = fixture_collect(fixture);
    assert_files(
        set,
        ".cache/a/b:added d/x.lock:added inputs/data.csv:changed plain:added tmp/keep.csv:added tmp/m.pyc:added "
        "x.lock:added");
    assert_left_out(set, "tmp:scratch");
    assert_text(&fixture->target, ".cache/a/b", "k");
    assert_text(&fixture->target, "inputs/data.csv", "12");
}

static void test_limits(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;

    for (guint i = 0; i < 8; i++) {
        g_autofree char *name = g_strdup_printf("f%u", i);

        tree_write(&fixture->workspace, name, "12345678");
    }
    tree_write(&fixture->workspace, "big", "0123456789abcdefX");
    fixture->rules.max_files = 5;
    fixture->rules.max_file_bytes = 16;
    fixture->rules.max_total_bytes = 26;
    set = fixture_collect(fixture);
    assert_files(set, "f0:added f1:added f2:added");
    assert_left_out(
        set, "big:too_large f3:over_total f4:over_total f5:over_total f6:over_total f7:over_total");
    g_assert_cmpstr(detail_of(set, "big"), ==, "17 bytes, over the limit of 16 bytes for one file");
    g_assert_cmpstr(detail_of(set, "f3"), ==,
                    "8 bytes more are over the limit of 26 bytes for all files");

    g_clear_pointer(&set, output_set_free);
    fixture->rules.max_total_bytes = 1000;
    set = fixture_collect(fixture);
    assert_files(set, "f0:added f1:added f2:added f3:added f4:added");
    assert_left_out(set, "big:too_large f5:over_count f6:over_count f7:over_count");
}

static void test_sparse(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;
    const OutputFile *file;
    struct stat status;
    autofd huge = openat(fixture->workspace.fd, "huge.img", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    autofd small = openat(fixture->workspace.fd, "small.img", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    g_assert_cmpint(ftruncate(huge, 64ll << 30), ==, 0);
    g_assert_cmpint(pwrite(small, "head", 4, 0), ==, 4);
    g_assert_cmpint(pwrite(small, "middle", 6, 16 << 20), ==, 6);
    g_assert_cmpint(ftruncate(small, 40 << 20), ==, 0);
    set = fixture_collect(fixture);
    assert_files(set, "small.img:added");
    assert_left_out(set, "huge.img:too_large");
    g_assert_cmpstr(detail_of(set, "huge.img"), ==,
                    "64 GiB, over the limit of 50 MiB for one file");
    file = g_ptr_array_index(set->files, 0);
    g_assert_cmpuint(file->size_bytes, ==, 40 << 20);
    g_assert_cmpstr(file->sha256, ==,
                    "f769fe38e0cddd2e037b0179c776ef3a3b89c749b830c6095d18bfdaf24de7db");
    status = tree_stat(&fixture->target, "small.img");
    g_assert_cmpint(status.st_size, ==, 40 << 20);
    g_assert_cmpint(status.st_blocks * 512, <=, 64 * 1024);
}

static void test_names(void)
{
    static const char *const names[] = {
        "a\r\nX-Injected: 1",
        "q\".txt",
        "-rf",
        "\xff\xfe.bin",
        "<img src=x>",
        "%2e%2e%2fetc",
        "a;b|c$(id)",
        "\xe2\x80\xaegnp.txt",
        "nul\x01l",
        "\xc3\xbc/r\xc3\xa9sum\xc3\xa9 1.txt",
        "back\\slash",
    };
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;
    g_autofree char *longest = g_strnfill(255, 'x');

    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        tree_write(&fixture->workspace, names[i], "inside\n");
    }
    tree_write(&fixture->workspace, longest, "inside\n");
    set = fixture_collect(fixture);
    g_assert_cmpuint(set->files->len, ==, G_N_ELEMENTS(names) + 1);
    assert_left_out(set, "");
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_text(&fixture->target, names[i], "inside\n");
    }
    assert_text(&fixture->target, longest, "inside\n");
    g_assert_cmpuint(names_in(&fixture->target), ==, G_N_ELEMENTS(names) + 1);
}

static void test_path_text(void)
{
    static const struct {
        const char *path, *text;
    } rows[] = {
        {"plain.txt", "plain.txt"},
        {"r\xc3\xa9sum\xc3\xa9 1.txt", "r\xc3\xa9sum\xc3\xa9 1.txt"},
        {"a\r\nb", "a\\x0d\\x0ab"},
        {"\x1b[31m", "\\x1b[31m"},
        {"\xff\xfe.bin", "\\xff\\xfe.bin"},
        {"\xe2\x80\xaegnp", "\\u{202e}gnp"},
        {"back\\slash", "back\\x5cslash"},
        {"\xc3", "\\xc3"},
        {"", ""},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = output_path_text(rows[i].path);

        g_assert_cmpstr(text, ==, rows[i].text);
    }
}

/* Folders `depth` below one another, all called `name`; in each a file "f". */
static void make_deep(const Tree *tree, const char *name, guint depth)
{
    autofd at = openat(tree->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (guint i = 0; i < depth; i++) {
        autofd file = -1;
        int below;

        g_assert_cmpint(mkdirat(at, name, 0755), ==, 0);
        below = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        g_assert_cmpint(below, >=, 0);
        fd_clear(&at);
        at = below;
        file = openat(at, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        g_assert_cmpint(file, >=, 0);
    }
}

static void test_deep(void)
{
    g_autoptr(Fixture) fixture = fixture_new_fast();
    g_autoptr(OutputSet) set = NULL;
    const OutputLeftOut *item;

    make_deep(&fixture->workspace, "d", 3000);
    set = fixture_collect(fixture);
    g_assert_cmpuint(set->files->len, ==, 64);
    g_assert_cmpuint(set->left_out->len, ==, 1);
    item = g_ptr_array_index(set->left_out, 0);
    g_assert_cmpint(item->reason, ==, OUTPUT_TOO_DEEP);
    g_assert_cmpuint(strlen(item->path), ==, 64 * 2 + 1);
}

static void test_long_paths(void)
{
    g_autoptr(Fixture) fixture = fixture_new_fast();
    g_autoptr(OutputSet) set = NULL;
    g_autofree char *name = g_strnfill(255, 'n');
    const OutputLeftOut *item;

    make_deep(&fixture->workspace, name, 20); /* 5,120 bytes */
    set = fixture_collect(fixture);
    g_assert_cmpuint(set->files->len, ==, 15);
    g_assert_cmpuint(set->left_out->len, ==, 1);
    item = g_ptr_array_index(set->left_out, 0);
    g_assert_cmpint(item->reason, ==, OUTPUT_TOO_DEEP);
    g_assert_cmpuint(strlen(item->path), <, 4096);
}

static void test_deep_scratch(void)
{
    g_autoptr(Fixture) fixture = fixture_new_fast();
    g_autoptr(OutputSet) set = NULL;

    make_deep(&fixture->workspace, ".d", 3000);
    tree_write(&fixture->workspace, "out.txt", "x");
    set = fixture_collect(fixture);
    assert_files(set, "out.txt:added");
    assert_left_out(set, ".d:scratch");
}

static void test_many_files(void)
{
    g_autoptr(Fixture) fixture = fixture_new_fast();
    g_autoptr(OutputSet) set = NULL;
    const OutputLeftOut *item;
    gint64 start;

    for (guint i = 0; i < 100 * 1000; i++) {
        char name[32];

        g_snprintf(name, sizeof(name), "f%06u", i);
        g_assert_cmpint(mknodat(fixture->workspace.fd, name, S_IFREG | 0644, 0), ==, 0);
    }
    start = g_get_monotonic_time();
    set = fixture_collect(fixture);
    g_test_message("100,000 files: %" G_GINT64_FORMAT " ms",
                   (g_get_monotonic_time() - start) / 1000);
    g_assert_cmpuint(set->files->len, ==, 64);
    item = g_ptr_array_index(set->files, 63);
    g_assert_cmpstr(item->path, ==, "f000063");
    g_assert_cmpuint(set->left_out->len, ==, 1001);
    item = g_ptr_array_index(set->left_out, 999);
    g_assert_cmpstr(item->path, ==, "f001063");
    item = g_ptr_array_index(set->left_out, 1000);
    g_assert_cmpstr(item->path, ==, ".");
    g_assert_cmpstr(item->detail, ==, "98936 more are left out and not listed: 98936 over_count");
}

static void test_too_many_names(void)
{
    g_autoptr(Fixture) fixture = fixture_new_fast();
    g_autoptr(OutputSet) set = NULL;

    tree_write(&fixture->workspace, "out.txt", "x");
    tree_write(&fixture->workspace, "tmp/t", "x");
    tree_write(&fixture->workspace, "a/deep.txt", "x");
    g_assert_cmpint(mkdirat(fixture->workspace.fd, "many", 0755), ==, 0);
    for (guint i = 0; i < WALK_MAX_ENTRIES; i++) {
        char name[32];

        g_snprintf(name, sizeof(name), "many/%06u", i);
        g_assert_cmpint(mknodat(fixture->workspace.fd, name, S_IFREG | 0644, 0), ==, 0);
    }
    set = fixture_collect(fixture);
    /* What is higher up and earlier is there; the scratch folder comes last and was not reached. */
    g_assert_cmpuint(set->files->len, ==, 64);
    g_assert_cmpstr(((const OutputFile *)g_ptr_array_index(set->files, 0))->path, ==, "a/deep.txt");
    g_assert_nonnull(strstr(detail_of(set, "many"), "more than 200,000 names"));
    g_assert_cmpuint(set->left_out->len, ==, 1001);
}

static void test_target_is_hostile(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;
    g_auto(Tree) outside = tree_make(NULL);
    g_autofree char *victim = g_build_filename(outside.path, "victim", NULL);
    autofd blocked = -1;

    tree_write(&outside, "victim", "untouched");
    tree_write(&fixture->workspace, "dir/file", "x");
    tree_write(&fixture->workspace, "file/below", "x");
    tree_write(&fixture->workspace, "folder", "x");
    tree_write(&fixture->workspace, "link.txt", "mine");
    tree_write(&fixture->workspace, "ok", "x");
    g_assert_cmpint(symlinkat(outside.path, fixture->target.fd, "dir"), ==, 0);
    g_assert_cmpint(symlinkat(victim, fixture->target.fd, "link.txt"), ==, 0);
    tree_write(&fixture->target, "file", "old");
    tree_write(&fixture->target, "folder/full", "old");
    set = fixture_collect(fixture);
    assert_files(set, "link.txt:added ok:added");
    assert_left_out(set, "dir/file:bad_name file/below:bad_name folder:bad_name");
    assert_text(&outside, "victim", "untouched");
    g_assert_cmpuint(names_in(&outside), ==, 1);
    g_assert_true(S_ISREG(tree_stat(&fixture->target, "link.txt").st_mode));
    assert_text(&fixture->target, "link.txt", "mine");
    assert_text(&fixture->target, "file", "old");
    g_assert_cmpuint(names_in(&fixture->target), ==, 5); /* no temporary file stays */
}

static Fixture *shared; /* what tree_with_tmpfs()'s bodies work on */

static void collect_into_small(void)
{
    g_autoptr(GError) error = NULL;
    autofd target = open(shared->target.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    OutputSet *set = output_collect(shared->workspace.fd, NULL, &shared->rules, target, &error);

    g_assert_null(set);
    g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_IO);
    g_assert_cmpstr(error->message, ==,
                    "cannot write 'b/big\\x0a' into the output folder: No space left on device");
    g_assert_cmpint(faccessat(target, "a.txt", F_OK, 0), ==, 0);
    g_assert_cmpint(mount(NULL, shared->target.path, NULL, MS_REMOUNT | MS_RDONLY, NULL), ==, 0);
    g_clear_error(&error);
    set = output_collect(shared->workspace.fd, NULL, &shared->rules, target, &error);
    g_assert_null(set);
    g_assert_cmpstr(error->message, ==,
                    "cannot write 'a.txt' into the output folder: Read-only file system");
    g_assert_cmpint(hutch_error_exit_status(error), ==, 125);
}

static void test_target_full(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autofree char *big = g_strnfill(2 << 20, 'b');

    tree_write(&fixture->workspace, "a.txt", "a");
    tree_write(&fixture->workspace, "b/big\n", big);
    shared = fixture;
    tree_with_tmpfs(&fixture->target, "size=1m", collect_into_small);
}

static void collect_with_mount(void)
{
    g_autofree char *mounted = g_build_filename(shared->workspace.path, "mounted", NULL);
    autofd workspace = open(shared->workspace.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autoptr(OutputSet) set = NULL;

    g_assert_cmpint(mkdir(mounted, 0755), ==, 0);
    g_assert_cmpint(mount("tmpfs", mounted, "tmpfs", 0, NULL), ==, 0);
    set = output_collect(workspace, NULL, &shared->rules, -1, NULL);
    assert_files(set, "");
    assert_left_out(set, "mounted:special_file");
}

static void test_other_mount(void)
{
    g_autoptr(Fixture) fixture = fixture_new();

    shared = fixture;
    tree_with_tmpfs(&fixture->workspace, NULL, collect_with_mount);
}

static void test_without_copy(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(OutputSet) set = NULL;

    tree_write(&fixture->workspace, "a", "1");
    set = output_collect(fixture->workspace.fd, NULL, &fixture->rules, -1, NULL);
    assert_files(set, "a:added");
    g_assert_cmpstr(((const OutputFile *)g_ptr_array_index(set->files, 0))->sha256, ==, "");
}

/* The workspace changes all the time: whatever comes out is right or left out, and nothing
 * fails. */
typedef struct {
    const Tree *workspace;
    gint stop;
} Swapper;

static gpointer swap_files(gpointer data)
{
    Swapper *swapper = data;
    int fd = swapper->workspace->fd;

    while (!g_atomic_int_get(&swapper->stop)) {
        autofd file = openat(fd, "new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        g_assert_cmpint(write(file, "inside\n", 7), ==, 7);
        renameat(fd, "new", fd, "x.txt");
        g_assert_cmpint(symlinkat("canary", fd, "link"), ==, 0);
        renameat(fd, "link", fd, "x.txt");
        mkfifoat(fd, "fifo", 0600);
        renameat(fd, "fifo", fd, "x.txt");
        mkdirat(fd, "dir", 0755);
        renameat(fd, "dir", fd, "d");
        g_assert_cmpint(symlinkat("/etc", fd, "etc"), ==, 0);
        unlinkat(fd, "d", AT_REMOVEDIR);
        renameat(fd, "etc", fd, "d");
        unlinkat(fd, "d", 0);
        g_assert_cmpint(ftruncate(file, 3), ==, 0);
    }
    return NULL;
}

static void test_swapped(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    Swapper swapper = {.workspace = &fixture->workspace};
    GThread *thread;
    gint64 end = g_get_monotonic_time() + G_USEC_PER_SEC;
    guint taken = 0;

    g_assert_cmpint(symlinkat("/etc/hostname", fixture->workspace.fd, "canary"), ==, 0);
    tree_write(&fixture->workspace, "stays.txt", "s");
    thread = g_thread_new("swap", swap_files, &swapper);
    while (g_get_monotonic_time() < end) {
        g_autoptr(OutputSet) set = fixture_collect(fixture);
        g_autofree char *files = files_of(set);

        g_assert_nonnull(strstr(files, "stays.txt:added"));
        if (strstr(files, "x.txt:added")) {
            g_autofree char *text = tree_read(&fixture->target, "x.txt");

            g_assert_cmpstr(text, ==, "inside\n");
            taken++;
        }
        g_assert_true(tree_stat(&fixture->target, "d").st_mode == 0);
    }
    g_atomic_int_set(&swapper.stop, 1);
    g_thread_join(thread);
    g_test_message("taken %u times", taken);
}

static void test_scratch_rules(void)
{
    static const struct {
        const char *path;
        gboolean is_folder;
        int length; /* -1: no scratch */
    } rows[] = {
        {"report.pdf", FALSE, -1},
        {"tmpfile.txt", FALSE, -1},
        {"out/data.csv", FALSE, -1},
        {"tmp", FALSE, -1},
        {"tmp", TRUE, 3},
        {"tmp/x", FALSE, 3},
        {"out/tmp/x", FALSE, -1},
        {"..hidden", FALSE, 8},
        {"a/.b/c/d", FALSE, 4},
        {"__pycache__", FALSE, -1},
        {"a/__pycache__/x", FALSE, 13},
        {"x.tmp/y", FALSE, -1},
        {"x.tmp", FALSE, 5},
        {"inputs/a/b", FALSE, 10},
        {"inputs/a/.git/b", FALSE, 13},
        {"inputs", FALSE, -1},
        {"a/inputs/b", FALSE, -1},
        {".", TRUE, -1},
        {"package-lock.json", FALSE, -1},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        ScratchMatch match;
        gboolean is = scratch_match(rows[i].path, rows[i].is_folder, &match);

        g_test_message("%s", rows[i].path);
        g_assert_cmpint(is ? (int)match.length : -1, ==, rows[i].length);
    }
}

static void test_sizes(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 bytes"},    {1, "1 byte"},        {1023, "1023 bytes"},    {1024, "1 KiB"},
        {1536, "1.5 KiB"}, {50 << 20, "50 MiB"}, {64ull << 30, "64 GiB"}, {UINT64_MAX, "16 EiB"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = text_of_size(rows[i].bytes);

        g_assert_cmpstr(text, ==, rows[i].text);
    }
}

int main(int argc, char **argv)
{
    tree_init(&argc, &argv);
    g_test_add_func("/scratch/rules", test_scratch_rules);
    g_test_add_func("/text/sizes", test_sizes);
    g_test_add_func("/text/paths", test_path_text);
    g_test_add_func("/collect/added-changed-deleted", test_added_changed_deleted);
    g_test_add_func("/collect/same-size-same-mtime", test_same_size_same_mtime);
    g_test_add_func("/collect/times", test_old_and_future_times);
    g_test_add_func("/collect/kinds", test_kinds);
    g_test_add_func("/collect/modes", test_modes);
    g_test_add_func("/collect/scratch", test_scratch);
    g_test_add_func("/collect/keep", test_keep);
    g_test_add_func("/collect/limits", test_limits);
    g_test_add_func("/collect/sparse", test_sparse);
    g_test_add_func("/collect/names", test_names);
    g_test_add_func("/collect/deep", test_deep);
    g_test_add_func("/collect/long-paths", test_long_paths);
    g_test_add_func("/collect/deep-scratch", test_deep_scratch);
    g_test_add_func("/collect/many-files", test_many_files);
    g_test_add_func("/collect/too-many-names", test_too_many_names);
    g_test_add_func("/collect/hostile-target", test_target_is_hostile);
    g_test_add_func("/collect/full-target", test_target_full);
    g_test_add_func("/collect/other-mount", test_other_mount);
    g_test_add_func("/collect/without-copy", test_without_copy);
    g_test_add_func("/collect/swapped", test_swapped);
    return g_test_run();
}
