#pragma once

/* Hostile trees for the unit tests of this room. */

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <grp.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

enum { TREE_USER = 65534 };

/* "--as-user" as the first argument: the rest of the program is an ordinary user's. */
static inline void tree_init(int *argc, char ***argv)
{
    if (*argc > 1 && strcmp((*argv)[1], "--as-user") == 0) {
        if (geteuid() == 0) {
            g_assert_cmpint(setgroups(0, NULL), ==, 0);
            g_assert_cmpint(setresgid(TREE_USER, TREE_USER, TREE_USER), ==, 0);
            g_assert_cmpint(setresuid(TREE_USER, TREE_USER, TREE_USER), ==, 0);
            /* Changing ids took it; without it /proc/self belongs to root. */
            g_assert_cmpint(prctl(PR_SET_DUMPABLE, 1), ==, 0);
        }
        (*argv)[1] = (*argv)[0];
        (*argv)++;
        (*argc)--;
    }
    umask(022);
    g_test_init(argc, argv, NULL);
}

static inline gboolean tree_is_root(void)
{
    return geteuid() == 0;
}

typedef struct {
    char *path;
    int fd;
} Tree;

/* An empty folder, in `where` if that can be written. */
static inline Tree tree_make(const char *where)
{
    g_autofree char *template = g_strdup_printf("%s/hutch-test-XXXXXX", where ? where : "");
    Tree tree = {.path = where && g_mkdtemp(template) ? g_steal_pointer(&template)
                                                      : g_dir_make_tmp("hutch-test-XXXXXX", NULL)};

    g_assert_nonnull(tree.path);
    tree.fd = open(tree.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_assert_cmpint(tree.fd, >=, 0);
    return tree;
}

static inline void tree_clear(Tree *tree)
{
    const char *open_up[] = {"chmod", "-R", "u+rwX", "--", tree->path, NULL};
    const char *remove[] = {"rm", "-rf", "--", tree->path, NULL};
    int status = -1;

    fd_clear(&tree->fd);
    if (!tree_is_root()) {
        g_spawn_sync(NULL, (char **)open_up, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDERR_TO_DEV_NULL,
                     NULL, NULL, NULL, NULL, NULL, NULL);
    }
    g_assert_true(g_spawn_sync(NULL, (char **)remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL,
                               NULL, &status, NULL));
    g_assert_cmpint(status, ==, 0);
    g_clear_pointer(&tree->path, g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Tree, tree_clear)

/* Makes the folders above `path`. */
static inline void tree_folders(const Tree *tree, const char *path)
{
    g_autofree char *part = g_strdup(path);

    for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdirat(tree->fd, part, 0755) < 0) {
            g_assert_cmpint(errno, ==, EEXIST);
        }
        *slash = '/';
    }
}

static inline void tree_write(const Tree *tree, const char *path, const char *text)
{
    autofd fd = -1;

    tree_folders(tree, path);
    fd = openat(tree->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(fd_write_full(fd, text, strlen(text)), ==, 0);
}

/* The file's text, or NULL. */
static inline char *tree_read(const Tree *tree, const char *path)
{
    g_autofree char *buffer = g_malloc0(1 << 20);
    ssize_t size = fd_read_file_at(tree->fd, path, buffer, 1 << 20);

    return size < 0 ? NULL : g_steal_pointer(&buffer);
}

static inline struct stat tree_stat(const Tree *tree, const char *path)
{
    struct stat status = {0};

    if (fstatat(tree->fd, path, &status, AT_SYMLINK_NOFOLLOW) < 0) {
        status.st_mode = 0;
    }
    return status;
}

/* Maps one id to itself. */
static inline gboolean tree_map(const char *path, unsigned id)
{
    char text[64];

    g_snprintf(text, sizeof(text), "%u %u 1", id, id);
    return fd_write_file_at(AT_FDCWD, path, text) == 0;
}

/* A mount namespace of its own; for an ordinary user in a user namespace where he keeps his id. */
static inline gboolean tree_unshare(void)
{
    unsigned uid = geteuid();
    unsigned gid = getegid();

    if (tree_is_root()) {
        return unshare(CLONE_NEWNS) == 0;
    }
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
           fd_write_file_at(AT_FDCWD, "/proc/self/setgroups", "deny") == 0 &&
           tree_map("/proc/self/uid_map", uid) && tree_map("/proc/self/gid_map", gid);
}

/* Runs `body` in a child with a tmpfs of `size` at `tree`; FALSE (with the reason as a skip)
 * where that may not be done. */
static inline gboolean tree_with_tmpfs(const Tree *tree, const char *options, void (*body)(void))
{
    enum { SKIP = 77 };
    int status;
    pid_t child = fork();

    g_assert_cmpint(child, >=, 0);
    if (child == 0) {
        if (!tree_unshare() || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", tree->path, "tmpfs", 0, options) < 0) {
            _exit(SKIP);
        }
        body();
        _exit(0);
    }
    g_assert_cmpint(waitpid(child, &status, 0), ==, child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP) {
        g_test_skip("a tmpfs cannot be mounted here");
        return FALSE;
    }
    g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return TRUE;
}
