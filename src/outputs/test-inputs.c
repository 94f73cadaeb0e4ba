#include "outputs/outputs.h"

#include <linux/mount.h>
#include <signal.h>
#include <sys/fsuid.h>

#include "base/sys.h"
#include "outputs/test-tree.h"

typedef struct {
    Tree workspace, host;
    int owner;
} Fixture;

static Fixture *fixture_new(void)
{
    Fixture *fixture = g_new0(Fixture, 1);

    fixture->workspace = tree_make(NULL);
    fixture->host = tree_make(NULL);
    fixture->owner = -1;
    if (tree_is_root()) { /* as a sandbox's: the workspace is the code's */
        fixture->owner = 1234567;
        g_assert_cmpint(fchown(fixture->workspace.fd, 1234567, 1234567), ==, 0);
    }
    return fixture;
}

static void fixture_free(Fixture *fixture)
{
    tree_clear(&fixture->workspace);
    tree_clear(&fixture->host);
    g_free(fixture);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Fixture, fixture_free)

static char *host_path(Fixture *fixture, const char *name)
{
    return g_build_filename(fixture->host.path, name, NULL);
}

static void place(Fixture *fixture, const char *name)
{
    g_autofree char *path = host_path(fixture, name);
    g_autoptr(GError) error = NULL;

    output_place_input(fixture->workspace.fd, path, fixture->owner, &error);
    g_assert_no_error(error);
}

/* The end of the error's message, after the name of what could not be taken. */
static char *refusal(Fixture *fixture, const char *name, HutchError code)
{
    g_autofree char *path = host_path(fixture, name);
    g_autoptr(GError) error = NULL;

    g_assert_false(output_place_input(fixture->workspace.fd, path, fixture->owner, &error));
    g_assert_error(error, HUTCH_ERROR, (int)code);
    return g_strdup(error->message);
}

#define assert_text(tree, path, wanted)                                                            \
    do {                                                                                           \
        g_autofree char *text_ = tree_read(tree, path);                                            \
        g_assert_cmpstr(text_, ==, wanted);                                                        \
    } while (0)

static void assert_owned(Fixture *fixture, const char *path, mode_t mode)
{
    struct stat status = tree_stat(&fixture->workspace, path);

    g_assert_cmpuint(status.st_mode, ==, mode);
    g_assert_cmpuint(status.st_uid, ==, fixture->owner < 0 ? geteuid() : (uid_t)fixture->owner);
    g_assert_cmpuint(status.st_gid, ==, fixture->owner < 0 ? getegid() : (gid_t)fixture->owner);
}

static void test_file(void)
{
    g_autoptr(Fixture) fixture = fixture_new();

    umask(077);
    tree_write(&fixture->host, "data.csv", "1,2\n");
    tree_write(&fixture->host, "tool", "#!");
    tree_write(&fixture->host, "empty", "");
    g_assert_cmpint(fchmodat(fixture->host.fd, "data.csv", 0400, 0), ==, 0);
    g_assert_cmpint(fchmodat(fixture->host.fd, "tool", 04700, 0), ==, 0);
    place(fixture, "data.csv");
    place(fixture, "tool");
    place(fixture, "empty");
    umask(022);
    assert_text(&fixture->workspace, "inputs/data.csv", "1,2\n");
    assert_text(&fixture->workspace, "inputs/empty", "");
    assert_owned(fixture, "inputs", S_IFDIR | 0755);
    assert_owned(fixture, "inputs/data.csv", S_IFREG | 0644);
    assert_owned(fixture, "inputs/tool", S_IFREG | 0755);
    g_assert_cmpuint((uid_t)setfsuid((uid_t)-1), ==, geteuid()); /* nothing of the switch is left */
}

static void test_file_without_size(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autofree char *text = NULL;

    g_assert_true(output_place_input(fixture->workspace.fd, "/proc/version", fixture->owner, NULL));
    text = tree_read(&fixture->workspace, "inputs/version");
    g_assert_nonnull(text);
    g_assert_true(g_str_has_prefix(text, "Linux version"));
}

static void test_same_names(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autofree char *xs = g_strnfill(251, 'x');
    g_autofree char *longest = g_strconcat("d/", xs, ".csv", NULL);
    g_autofree char *cut = g_strdup_printf("inputs/%.249s-2.csv", xs);
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"a/d.csv", "inputs/d.csv"},         {"b/d.csv", "inputs/d-2.csv"},
        {"c/d.csv", "inputs/d-3.csv"},       {"a/noext", "inputs/noext"},
        {"b/noext", "inputs/noext-2"},       {"a/.env", "inputs/.env"},
        {"b/.env", "inputs/.env-2"},         {"a/x.tar.gz", "inputs/x.tar.gz"},
        {"b/x.tar.gz", "inputs/x-2.tar.gz"}, {"a/v1.2/f", "inputs/f"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        tree_write(&fixture->host, rows[i].from, rows[i].from);
        place(fixture, rows[i].from);
    }
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        assert_text(&fixture->workspace, rows[i].to, rows[i].from);
    }
    tree_write(&fixture->host, "e/v1.2/f", "second");
    place(fixture, "a/v1.2");
    place(fixture, "e/v1.2/");
    assert_text(&fixture->workspace, "inputs/v1.2/f", "a/v1.2/f");
    assert_text(&fixture->workspace, "inputs/v1.2-2/f", "second");
    tree_write(&fixture->host, longest, "1");
    place(fixture, longest);
    place(fixture, longest);
    assert_text(&fixture->workspace, cut, "1");
}

static void test_folder(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autofree char *here = NULL;
    g_autoptr(GError) error = NULL;
    char target[64] = "";

    tree_write(&fixture->host, "project/a/b/c.txt", "c");
    tree_write(&fixture->host, "project/.git/config", "x");
    tree_write(&fixture->host, "project/tool", "x");
    g_assert_cmpint(fchmodat(fixture->host.fd, "project/tool", 0755, 0), ==, 0);
    g_assert_cmpint(mkdirat(fixture->host.fd, "project/empty", 0700), ==, 0);
    g_assert_cmpint(symlinkat("a/b/c.txt", fixture->host.fd, "project/good"), ==, 0);
    g_assert_cmpint(symlinkat("../tool", fixture->host.fd, "project/a/up"), ==, 0);
    g_assert_cmpint(symlinkat("missing", fixture->host.fd, "project/dangling"), ==, 0);
    g_assert_cmpint(symlinkat("/usr/bin/python3", fixture->host.fd, "project/python"), ==, 0);
    g_assert_cmpint(symlinkat("project", fixture->host.fd, "alias"), ==, 0);
    place(fixture, "project");
    assert_text(&fixture->workspace, "inputs/project/a/b/c.txt", "c");
    assert_text(&fixture->workspace, "inputs/project/.git/config", "x");
    assert_owned(fixture, "inputs/project", S_IFDIR | 0755);
    assert_owned(fixture, "inputs/project/a/b", S_IFDIR | 0755);
    assert_owned(fixture, "inputs/project/empty", S_IFDIR | 0755);
    assert_owned(fixture, "inputs/project/a/b/c.txt", S_IFREG | 0644);
    assert_owned(fixture, "inputs/project/tool", S_IFREG | 0755);
    assert_owned(fixture, "inputs/project/good", S_IFLNK | 0777);
    g_assert_cmpint(
        readlinkat(fixture->workspace.fd, "inputs/project/a/up", target, sizeof(target) - 1), ==,
        7);
    g_assert_cmpstr(target, ==, "../tool");
    g_assert_true(S_ISLNK(tree_stat(&fixture->workspace, "inputs/project/dangling").st_mode));
    g_assert_true(S_ISLNK(tree_stat(&fixture->workspace, "inputs/project/python").st_mode));
    /* A link that the user names is followed, and gives its own name. */
    place(fixture, "alias");
    assert_text(&fixture->workspace, "inputs/alias/a/b/c.txt", "c");
    /* "." has the name of where it is. */
    here = host_path(fixture, "project/a/b");
    g_assert_cmpint(chdir(here), ==, 0);
    output_place_input(fixture->workspace.fd, ".", fixture->owner, &error);
    g_assert_no_error(error);
    g_assert_cmpint(chdir("/"), ==, 0);
    assert_text(&fixture->workspace, "inputs/b/c.txt", "c");
}

static void test_links_out(void)
{
    static const char *const targets[] = {"/etc/passwd", "../../x", "..", "/usr/../etc/passwd",
                                          "a/../../x"};
    g_autoptr(Fixture) fixture = fixture_new();

    tree_write(&fixture->host, "x", "outside");
    tree_write(&fixture->host, "p/a/f", "f");
    for (guint i = 0; i < G_N_ELEMENTS(targets); i++) {
        g_autofree char *message = NULL;

        g_assert_cmpint(symlinkat(targets[i], fixture->host.fd, "p/out"), ==, 0);
        message = refusal(fixture, "p", HUTCH_ERROR_BAD_INPUT);
        g_assert_nonnull(
            strstr(message, "/p/out': it is a link that leads out of the folder (to '"));
        g_assert_nonnull(strstr(message, targets[i]));
        g_assert_cmpint(unlinkat(fixture->host.fd, "p/out", 0), ==, 0);
    }
    place(fixture, "p");
}

static void test_refused(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autofree char *missing = refusal(fixture, "no\nfile", HUTCH_ERROR_BAD_INPUT);
    g_autofree char *fifo = NULL;
    g_autofree char *inner = NULL;
    g_autoptr(GError) error = NULL;

    g_assert_true(g_str_has_suffix(missing, "/no\\x0afile': No such file or directory"));
    g_assert_cmpint(mkfifoat(fixture->host.fd, "fifo", 0600), ==, 0);
    fifo = refusal(fixture, "fifo", HUTCH_ERROR_BAD_INPUT);
    g_assert_true(g_str_has_suffix(fifo, "/fifo': it is neither a regular file nor a folder"));
    tree_write(&fixture->host, "p/a/f", "f");
    g_assert_cmpint(mkfifoat(fixture->host.fd, "p/a/fifo", 0600), ==, 0);
    inner = refusal(fixture, "p", HUTCH_ERROR_BAD_INPUT);
    g_assert_true(
        g_str_has_suffix(inner, "/p/a/fifo': it is a special file (fifo, socket or device)"));
    g_assert_false(output_place_input(fixture->workspace.fd, "/", fixture->owner, &error));
    g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT);
    g_clear_error(&error);
    g_assert_false(output_place_input(fixture->workspace.fd, "/dev/null", fixture->owner, &error));
    g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT);
    if (!tree_is_root()) {
        g_autofree char *closed = NULL;

        tree_write(&fixture->host, "closed", "x");
        g_assert_cmpint(fchmodat(fixture->host.fd, "closed", 0, 0), ==, 0);
        closed = refusal(fixture, "closed", HUTCH_ERROR_BAD_INPUT);
        g_assert_true(g_str_has_suffix(closed, "/closed': Permission denied"));
    }
}

static void test_planted_inputs(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_auto(Tree) outside = tree_make(NULL);
    g_autofree char *message = NULL;

    tree_write(&fixture->host, "f", "f");
    g_assert_cmpint(symlinkat(outside.path, fixture->workspace.fd, "inputs"), ==, 0);
    message = refusal(fixture, "f", HUTCH_ERROR_IO);
    g_assert_true(tree_stat(&outside, "f").st_mode == 0);
}

static void test_sparse(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    autofd fd = openat(fixture->host.fd, "disk.img", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    struct stat status;

    g_assert_cmpint(pwrite(fd, "data", 4, 8ll << 30), ==, 4);
    place(fixture, "disk.img");
    status = tree_stat(&fixture->workspace, "inputs/disk.img");
    g_assert_cmpint(status.st_size, ==, (8ll << 30) + 4);
    g_assert_cmpint(status.st_blocks * 512, <=, 64 * 1024);
}

/* A store into an input shows although it comes within the tick of the clock in which the input
 * was made. */
static void test_change_at_once(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 5}};
    OutputRules rules;

    output_rules_init(&rules);
    rules.keep = (const char *const[]){"inputs/*", NULL};
    tree_write(&fixture->host, "d.csv", "AAAA");
    g_assert_cmpint(utimensat(fixture->host.fd, "d.csv", times, 0), ==, 0);
    for (guint i = 0; i < 20; i++) {
        g_autoptr(OutputManifest) before = NULL;
        g_autoptr(OutputSet) set = NULL;

        place(fixture, "d.csv");
        before = output_manifest_walk(fixture->workspace.fd, NULL);
        tree_write(&fixture->workspace, "inputs/d.csv", "BBBB");
        set = output_collect(fixture->workspace.fd, before, &rules, -1, NULL);
        g_assert_cmpuint(set->files->len, ==, 1);
        g_assert_cmpstr(((const OutputFile *)g_ptr_array_index(set->files, 0))->path, ==,
                        "inputs/d.csv");
        g_assert_cmpint(unlinkat(fixture->workspace.fd, "inputs/d.csv", 0), ==, 0);
    }
}

static Fixture *shared;

static void place_into_small(void)
{
    autofd workspace = open(shared->workspace.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree char *path = host_path(shared, "p");
    g_autoptr(GError) error = NULL;

    g_assert_false(output_place_input(workspace, path, -1, &error));
    g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_IO);
    g_assert_nonnull(strstr(
        error->message,
        "/p/big' into the workspace: No space left on device; the workspace's disk limit is too "
        "small for the inputs, raise it with --disk"));
}

static void test_full(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autofree char *big = g_strnfill(2 << 20, 'b');

    tree_write(&fixture->host, "p/big", big);
    shared = fixture;
    tree_with_tmpfs(&fixture->workspace, "size=1m", place_into_small);
}

/* A user namespace whose id 1000 is the host's 1234567: its descriptor, or -1. */
static int mapped_namespace(void)
{
    int pipes[2];
    pid_t child;
    char path[64];
    char byte;
    int fd;

    g_assert_cmpint(pipe2(pipes, O_CLOEXEC), ==, 0);
    child = fork();
    if (child == 0) {
        gboolean is_new = unshare(CLONE_NEWUSER) == 0;

        if (write(pipes[1], is_new ? "y" : "n", 1) == 1) {
            pause();
        }
        _exit(0);
    }
    g_assert_cmpint(read(pipes[0], &byte, 1), ==, 1);
    g_snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
    g_assert_cmpint(fd_write_file_at(AT_FDCWD, path, "1000 1234567 1"), ==, 0);
    g_snprintf(path, sizeof(path), "/proc/%d/gid_map", child);
    g_assert_cmpint(fd_write_file_at(AT_FDCWD, path, "1000 1234567 1"), ==, 0);
    g_snprintf(path, sizeof(path), "/proc/%d/ns/user", child);
    fd = byte == 'y' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    kill(child, SIGKILL);
    g_assert_cmpint(waitpid(child, NULL, 0), ==, child);
    close(pipes[0]);
    close(pipes[1]);
    return fd;
}

/* The workspace of a sandbox that root makes: its files are uid 1000 on disk and the sandbox's own on the mount. */
static void place_idmapped(void)
{
    enum { SKIP = 77 };
    autofd namespace = mapped_namespace();
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP,
                                    .userns_fd = (uint64_t) namespace};
    autofd plain = open(shared->workspace.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    autofd mapped = sys_open_tree(AT_FDCWD, shared->workspace.path, OPEN_TREE_CLONE | O_CLOEXEC);
    g_autofree char *path = host_path(shared, "p");
    g_autoptr(GError) error = NULL;
    struct stat status;

    g_assert_cmpint(fchown(plain, 1000, 1000), ==, 0);
    if (namespace < 0 || mapped < 0 ||
        sys_mount_setattr(mapped, "", AT_EMPTY_PATH, &attributes) < 0) {
        _exit(SKIP); /* tmpfs: Linux 6.3 */
    }
    g_assert_cmpint(mkdirat(mapped, "roots", 0755), ==, -1);
    g_assert_cmpint(errno, ==, EOVERFLOW);
    output_place_input(mapped, path, 1234567, &error);
    g_assert_no_error(error);
    g_assert_cmpint(fstatat(plain, "inputs/p/a/f", &status, 0), ==, 0);
    g_assert_cmpuint(status.st_uid, ==, 1000);
    g_assert_cmpuint(status.st_gid, ==, 1000);
    g_assert_cmpint(fstatat(plain, "inputs/p/link", &status, AT_SYMLINK_NOFOLLOW), ==, 0);
    g_assert_cmpuint(status.st_uid, ==, 1000);
    g_assert_cmpint(fstatat(mapped, "inputs", &status, 0), ==, 0);
    g_assert_cmpuint(status.st_uid, ==, 1234567);
}

static void test_idmapped(void)
{
    g_autoptr(Fixture) fixture = NULL;

    if (!tree_is_root()) {
        g_test_skip("only root makes idmapped mounts");
        return;
    }
    fixture = fixture_new();
    tree_write(&fixture->host, "p/a/f", "f");
    g_assert_cmpint(symlinkat("a/f", fixture->host.fd, "p/link"), ==, 0);
    shared = fixture;
    tree_with_tmpfs(&fixture->workspace, NULL, place_idmapped);
}

static void test_deep_folder(void)
{
    g_autoptr(Fixture) fixture = fixture_new();
    g_autoptr(GString) path = g_string_new("p");

    for (guint i = 0; i < 500; i++) {
        g_string_append(path, "/d");
    }
    g_string_append(path, "/f");
    tree_write(&fixture->host, path->str, "deep");
    place(fixture, "p");
    g_string_prepend(path, "inputs/");
    assert_text(&fixture->workspace, path->str, "deep");
}

int main(int argc, char **argv)
{
    tree_init(&argc, &argv);
    g_test_add_func("/inputs/file", test_file);
    g_test_add_func("/inputs/file-without-size", test_file_without_size);
    g_test_add_func("/inputs/same-names", test_same_names);
    g_test_add_func("/inputs/folder", test_folder);
    g_test_add_func("/inputs/deep-folder", test_deep_folder);
    g_test_add_func("/inputs/links-out", test_links_out);
    g_test_add_func("/inputs/refused", test_refused);
    g_test_add_func("/inputs/planted", test_planted_inputs);
    g_test_add_func("/inputs/sparse", test_sparse);
    g_test_add_func("/inputs/change-at-once", test_change_at_once);
    g_test_add_func("/inputs/full", test_full);
    g_test_add_func("/inputs/idmapped", test_idmapped);
    return g_test_run();
}
