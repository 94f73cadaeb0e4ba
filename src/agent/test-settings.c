#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <unistd.h>

#include "agent/settings.h"

static int parse(struct settings *settings, const char *line, char **wrong)
{
    g_auto(GStrv) arguments = g_strsplit(line, " ", 0);
    const char *named = NULL;
    int result = settings_parse(settings, arguments, &named);
    *wrong = result < 0 ? g_strdup(named) : NULL;
    return result;
}

/* Descriptors are checked to be open: 10, 11 and 12 are. */
static void open_descriptors(void)
{
    for (int fd = 10; fd <= 12; fd++)
        g_assert_cmpint(dup2(0, fd), ==, fd);
}

static void test_good(void)
{
    struct settings settings;
    g_autofree char *wrong = NULL;
    g_assert_cmpint(parse(&settings, "connection=10 spool=11 agent_uid=0 code_uid=1000", &wrong),
                    ==, 0);
    g_assert_cmpint(settings.connection, ==, 10);
    g_assert_cmpint(settings.code_group, ==, -1);
    g_assert_cmpint(settings.memory_peak, ==, -1);
    g_assert_false(settings.has_cgroup);
    g_assert_false(settings_share_uid(&settings));

    g_autofree char *wrong_too = NULL;
    const char *all =
        "cgroup=v1 connection=10 spool=11 agent_uid=1000 code_uid=1000 tasks=10,11,12 "
        "code_group=12 memory_events=10 memory_peak=11 pids_events=12 nofile=1024 "
        "nproc=18446744073709551615 fsize_bytes=5 data_bytes=6 cpus=2 first_cpu=7 tied=1";
    g_assert_cmpint(parse(&settings, all, &wrong_too), ==, 0);
    g_assert_true(settings.has_cgroup);
    g_assert_cmpuint(settings.n_tasks, ==, 3);
    g_assert_cmpint(settings.tasks[2], ==, 12);
    g_assert_cmpuint(settings.nproc, ==, G_MAXUINT64);
    g_assert_true(settings_share_uid(&settings));
}

static void test_refused(void)
{
    const struct {
        const char *line;
        const char *wrong;
    } rows[] = {
        {"spool=11 agent_uid=0 code_uid=0", "connection"},
        {"connection=10 spool=11 agent_uid=0", "code_uid"},
        {"connection=2", "connection=2"},
        {"connection=999", "connection=999"},
        {"connection=", "connection="},
        {"connection=-1", "connection=-1"},
        {"connection=10x", "connection=10x"},
        {"connection", "connection"},
        {"connection=10 connection=11", "connection=11"},
        {"unknown=1", "unknown=1"},
        {"=1", "=1"},
        {"code_uid=4294967295", "code_uid=4294967295"},
        {"nofile=18446744073709551616", "nofile=18446744073709551616"},
        {"tied=2", "tied=2"},
        {"cgroup=v3", "cgroup=v3"},
        {"cgroup=v12", "cgroup=v12"},
        {"tasks=10,", "tasks=10,"},
        {"tasks=,10", "tasks=,10"},
        {"tasks=10,10,10,10,10,10,10,10,10", "tasks=10,10,10,10,10,10,10,10,10"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        struct settings settings;
        g_autofree char *wrong = NULL;
        g_assert_cmpint(parse(&settings, rows[i].line, &wrong), ==, -EINVAL);
        g_assert_cmpstr(wrong, ==, rows[i].wrong);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    open_descriptors();
    g_test_add_func("/settings/good", test_good);
    g_test_add_func("/settings/refused", test_refused);
    return g_test_run();
}
