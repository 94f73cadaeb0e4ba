/* Records of sandboxes: what is believed of them and what is swept. */

#include "launcher/record.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

typedef struct {
    char *path;
    int fd;
} Fixture;

static void set_up(Fixture *fixture, gconstpointer data)
{
    (void)data;
    fixture->path = g_dir_make_tmp("hutch-record-XXXXXX", NULL);
    g_assert_nonnull(fixture->path);
    fixture->fd = open(fixture->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_assert_cmpint(fixture->fd, >=, 0);
}

static void tear_down(Fixture *fixture, gconstpointer data)
{
    (void)data;
    GDir *dir = g_dir_open(fixture->path, 0, NULL);
    const char *name;
    while ((name = g_dir_read_name(dir)))
        unlinkat(fixture->fd, name, 0);
    g_dir_close(dir);
    g_assert_cmpint(g_rmdir(fixture->path), ==, 0);
    close(fixture->fd);
    g_free(fixture->path);
}

static gboolean exists(const Fixture *fixture, const char *name)
{
    return faccessat(fixture->fd, name, F_OK, 0) == 0;
}

static void write_record(const Fixture *fixture, const char *name, const char *text)
{
    autofd fd = openat(fixture->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(fd_write_full(fd, text, strlen(text)), ==, 0);
}

static void test_living_record_stays(Fixture *fixture, gconstpointer data)
{
    (void)data;
    struct record record;
    record_init(&record);
    g_assert_cmpint(record_create(&record, fixture->fd, "0123456789abcdef", ""), ==, 0);
    g_assert_true(exists(fixture, "0123456789abcdef.run"));
    g_assert_cmpint(record_sweep(fixture->fd), ==, 0);
    g_assert_true(exists(fixture, "0123456789abcdef.run"));
    record_remove(&record);
    g_assert_false(exists(fixture, "0123456789abcdef.run"));
}

static void test_same_id_twice_is_refused(Fixture *fixture, gconstpointer data)
{
    (void)data;
    struct record first, second;
    record_init(&first);
    record_init(&second);
    g_assert_cmpint(record_create(&first, fixture->fd, "aa", ""), ==, 0);
    g_assert_cmpint(record_create(&second, fixture->fd, "aa", ""), ==, -EEXIST);
    record_remove(&first);
}

static void test_sweep_kills_the_recorded_process(Fixture *fixture, gconstpointer data)
{
    (void)data;
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    uint64_t start_time;
    g_assert_cmpint(record_start_time(pid, &start_time), ==, 0);
    g_autofree char *text = g_strdup_printf("pid %d %" G_GUINT64_FORMAT "\n", (int)pid, start_time);
    write_record(fixture, "bb.run", text);
    g_assert_cmpint(record_sweep(fixture->fd), ==, 1);
    int status;
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    g_assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    g_assert_false(exists(fixture, "bb.run"));
}

static void test_sweep_spares_a_reused_pid(Fixture *fixture, gconstpointer data)
{
    (void)data;
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    uint64_t start_time;
    g_assert_cmpint(record_start_time(pid, &start_time), ==, 0);
    g_autofree char *text =
        g_strdup_printf("pid %d %" G_GUINT64_FORMAT "\n", (int)pid, start_time - 1);
    write_record(fixture, "cc.run", text);
    g_assert_cmpint(record_sweep(fixture->fd), ==, 1);
    g_assert_cmpint(waitpid(pid, NULL, WNOHANG), ==, 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void test_sweep_believes_no_foreign_path(Fixture *fixture, gconstpointer data)
{
    (void)data;
    static const char *const texts[] = {"cgroup /etc\n", "cgroup /sys/fs/cgroup/hutch-a/../b\n",
                                        "cgroup hutch\n", "rm -rf\n"};
    for (gsize i = 0; i < G_N_ELEMENTS(texts); i++) {
        write_record(fixture, "dd.run", texts[i]);
        g_assert_cmpint(record_sweep(fixture->fd), ==, -EPROTO);
        g_assert_true(exists(fixture, "dd.run"));
        unlinkat(fixture->fd, "dd.run", 0);
    }
}

static void test_sweep_removes_what_names_nothing_left(Fixture *fixture, gconstpointer data)
{
    (void)data;
    write_record(fixture, "ee.run",
                 "cgroup /sys/fs/cgroup/hutch-0000000000000000\npid 4194304000 1\n");
    g_assert_cmpint(record_sweep(fixture->fd), ==, 1);
    g_assert_false(exists(fixture, "ee.run"));
}

static void test_sweep_leaves_other_files(Fixture *fixture, gconstpointer data)
{
    (void)data;
    write_record(fixture, "notes.txt", "cgroup /etc\n");
    write_record(fixture, ".run", "");
    g_assert_cmpint(record_sweep(fixture->fd), ==, 0);
    g_assert_true(exists(fixture, "notes.txt"));
    g_assert_true(exists(fixture, ".run"));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define TEST(name, function) g_test_add("/record/" name, Fixture, NULL, set_up, function, tear_down)
    TEST("living-record-stays", test_living_record_stays);
    TEST("same-id-twice-is-refused", test_same_id_twice_is_refused);
    TEST("sweep-kills-the-recorded-process", test_sweep_kills_the_recorded_process);
    TEST("sweep-spares-a-reused-pid", test_sweep_spares_a_reused_pid);
    TEST("sweep-believes-no-foreign-path", test_sweep_believes_no_foreign_path);
    TEST("sweep-removes-what-names-nothing-left", test_sweep_removes_what_names_nothing_left);
    TEST("sweep-leaves-other-files", test_sweep_leaves_other_files);
    return g_test_run();
}
