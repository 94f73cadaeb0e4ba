#include "cli/host.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "cli/values.h"
#include "kernels/languages.h"

/* One line of /proc/self/mountinfo (proc(5)). */
typedef struct {
    char *point, *options, *type, *super_options;
} Mount;

struct Host {
    gboolean is_root;
    const char *state_dir; /* of --state-dir, or NULL */
    GPtrArray *mounts;
};

static void mount_free(gpointer data)
{
    Mount *mount = data;
    g_free(mount->point);
    g_free(mount->options);
    g_free(mount->type);
    g_free(mount->super_options);
    g_free(mount);
}

static Mount *mount_parse(const char *line)
{
    enum { POINT = 4, OPTIONS = 5, TYPE = 0, SUPER_OPTIONS = 2 };
    const char *dash = strstr(line, " - ");
    if (!dash)
        return NULL;
    g_autofree char *left_text = g_strndup(line, (gsize)(dash - line));
    g_auto(GStrv) left = g_strsplit(left_text, " ", -1);
    g_auto(GStrv) right = g_strsplit(dash + strlen(" - "), " ", -1);
    if (g_strv_length(left) <= OPTIONS || g_strv_length(right) <= SUPER_OPTIONS)
        return NULL;
    Mount *mount = g_new0(Mount, 1);
    mount->point = g_strcompress(left[POINT]); /* \040 for a space */
    mount->options = g_strdup(left[OPTIONS]);
    mount->type = g_strdup(right[TYPE]);
    mount->super_options = g_strdup(right[SUPER_OPTIONS]);
    return mount;
}

Host *host_new(const Options *options)
{
    Host *host = g_new0(Host, 1);
    host->is_root = geteuid() == 0;
    host->state_dir = options->sandbox.state_dir;
    host->mounts = g_ptr_array_new_with_free_func(mount_free);
    g_autofree char *text = NULL;
    if (g_file_get_contents("/proc/self/mountinfo", &text, NULL, NULL)) {
        g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
        for (char **line = lines; *line; line++) {
            Mount *mount = mount_parse(*line);
            if (mount)
                g_ptr_array_add(host->mounts, mount);
        }
    }
    return host;
}

void host_free(Host *host)
{
    if (!host)
        return;
    g_ptr_array_unref(host->mounts);
    g_free(host);
}

static void find(Finding *finding, FindingState state, const char *mend, const char *format, ...)
    G_GNUC_PRINTF(4, 5);

static void find(Finding *finding, FindingState state, const char *mend, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    finding->state = state;
    finding->found = g_strdup_vprintf(format, arguments);
    finding->mend = g_strdup(mend);
    va_end(arguments);
}

/* A number in a file of /proc, or -1. */
static gint64 read_number(const char *path)
{
    char text[64];
    ssize_t n = fd_read_file_at(AT_FDCWD, path, text, sizeof text);
    return n > 0 && g_ascii_isdigit(text[0]) ? g_ascii_strtoll(text, NULL, 10) : -1;
}

void host_kernel(G_GNUC_UNUSED const Host *host, Finding *finding)
{
    struct utsname name;
    guint major = 0, minor = 0;
    uname(&name);
    (void)sscanf(name.release, "%u.%u", &major, &minor);
    guint version = major * 1000 + minor;
    FindingState state = version >= 5014   ? FINDING_YES
                         : version >= 5012 ? FINDING_LIMITED
                                           : FINDING_NO;
    find(finding, state,
         state == FINDING_YES
             ? NULL
             : "boot a kernel of 5.14 or newer (Debian 12: apt-get install linux-image-amd64)",
         "Linux %s", name.release);
}

/* Makes the namespaces of a sandbox in a child and tells the errno of what failed: a rule of
 * AppArmor shows only at the second. */
static int try_namespaces(void)
{
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        if (unshare(CLONE_NEWUSER) < 0 ||
            unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
            _exit(errno & 0xff);
        _exit(0);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

/* Settings that forbid user namespaces: the file, the value that does, and what allows them. */
static const struct {
    const char *path, *name;
    gint64 forbids;
    const char *mend;
} namespace_settings[] = {
    {"/proc/sys/user/max_user_namespaces", "user.max_user_namespaces", 0,
     "sysctl -w user.max_user_namespaces=15000"},
    {"/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone", 0,
     "sysctl -w kernel.unprivileged_userns_clone=1"},
    {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
     "kernel.apparmor_restrict_unprivileged_userns", 1,
     "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
};

void host_user_namespaces(G_GNUC_UNUSED const Host *host, Finding *finding)
{
    int failed = try_namespaces();
    if (failed == 0) {
        find(finding, FINDING_YES, NULL,
             "made for a try: user, pid, mount, network, ipc, host name");
        return;
    }
    for (gsize i = 0; i < G_N_ELEMENTS(namespace_settings); i++) {
        if (read_number(namespace_settings[i].path) == namespace_settings[i].forbids) {
            find(finding, FINDING_NO, namespace_settings[i].mend, "%s is %" G_GINT64_FORMAT,
                 namespace_settings[i].name, namespace_settings[i].forbids);
            return;
        }
    }
    find(
        finding, FINDING_NO,
        failed == EPERM
            ? "in a container: allow clone with CLONE_NEWUSER (docker: --security-opt seccomp=unconfined)"
            : NULL,
        "unshare: %s", g_strerror(failed));
}

void host_root_directory(const Host *host, Finding *finding)
{
    for (guint i = 0; i < host->mounts->len; i++) {
        const Mount *mount = host->mounts->pdata[i];
        if (g_str_equal(mount->point, "/")) {
            find(finding, FINDING_YES, NULL, "no chroot");
            return;
        }
    }
    find(finding, FINDING_NO, "enter this root with pivot_root or switch_root instead of chroot",
         "this process is in a chroot, where Linux makes no user namespaces");
}

/* Directories of /proc that are made to be mounted on; the kernel minds only the others
 * (mount_too_revealing()). */
static const char *const proc_mount_points[] = {"/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd", NULL};

void host_proc(const Host *host, Finding *finding)
{
    static const char mend[] =
        "in a container, leave /proc whole (docker: --security-opt systempaths=unconfined)";
    gboolean mounted = FALSE;
    for (guint i = 0; i < host->mounts->len; i++) {
        const Mount *mount = host->mounts->pdata[i];
        gboolean is_proc = g_str_equal(mount->point, "/proc") && g_str_equal(mount->type, "proc");
        mounted |= is_proc;
        if (is_proc && g_str_has_prefix(mount->options, "ro")) {
            find(finding, FINDING_NO, mend, "/proc is read-only");
            return;
        }
        if (g_str_has_prefix(mount->point, "/proc/") &&
            !g_strv_contains(proc_mount_points, mount->point)) {
            find(finding, FINDING_NO, mend, "%s is mounted over", mount->point);
            return;
        }
    }
    if (mounted)
        find(finding, FINDING_YES, NULL, "whole");
    else
        find(finding, FINDING_NO, "mount -t proc proc /proc", "not mounted");
}

void host_mount_api(G_GNUC_UNUSED const Host *host, Finding *finding)
{
    int result = sys_fsopen("tmpfs", 0);
    autofd fd = MAX(result, -1);
    if (result == -ENOSYS)
        find(finding, FINDING_NO,
             "boot a kernel of 5.12 or newer; in a container, allow fsopen (seccomp)",
             "fsopen is not there");
    else
        find(finding, FINDING_YES, NULL, "fsopen, move_mount");
}

void host_idmapped_mounts(const Host *host, Finding *finding)
{
    /* Nothing can be changed by this call: the descriptor is none. Only a kernel without it answers
     * ENOSYS. */
    int result = sys_mount_setattr(-1, "", AT_EMPTY_PATH, NULL);
    if (result == -ENOSYS)
        find(finding, FINDING_NO, "boot a kernel of 5.12 or newer", "mount_setattr is not there");
    else if (host->is_root)
        find(finding, FINDING_YES, NULL, "mount_setattr");
    else
        find(finding, FINDING_YES, NULL,
             "mount_setattr; not needed by an ordinary user, who has one id");
}

void host_seccomp(G_GNUC_UNUSED const Host *host, Finding *finding)
{
    char actions[256];
    gboolean filters = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 &&
                       fd_read_file_at(AT_FDCWD, "/proc/sys/kernel/seccomp/actions_avail", actions,
                                       sizeof actions) > 0;
    if (filters)
        find(finding, FINDING_YES, NULL, "filters");
    else
        find(finding, FINDING_NO, "boot a kernel with CONFIG_SECCOMP_FILTER", "no filters");
}

/* Whether a comma-separated list has the word. */
static gboolean has_word(const char *list, const char *word)
{
    g_auto(GStrv) words = g_strsplit(list, ",", -1);
    return g_strv_contains((const char *const *)words, word);
}

/* The v1 hierarchy of a controller, or NULL. */
static const char *find_v1(const Host *host, const char *controller)
{
    for (guint i = 0; i < host->mounts->len; i++) {
        const Mount *mount = host->mounts->pdata[i];
        if (g_str_equal(mount->type, "cgroup") && has_word(mount->super_options, controller))
            return mount->point;
    }
    return NULL;
}

static const char *find_v2(const Host *host)
{
    for (guint i = 0; i < host->mounts->len; i++) {
        const Mount *mount = host->mounts->pdata[i];
        if (g_str_equal(mount->type, "cgroup2"))
            return mount->point;
    }
    return NULL;
}

/* The controllers of the v2 hierarchy at `v2` (may be NULL), separated by commas. */
static char *v2_controllers(const char *v2)
{
    g_autofree char *path = v2 ? g_build_filename(v2, "cgroup.controllers", NULL) : NULL;
    char *text = NULL;
    if (!path || !g_file_get_contents(path, &text, NULL, NULL))
        return g_strdup("");
    return g_strdelimit(g_strchomp(text), " ", ',');
}

static const char *const controllers[] = {"memory", "pids", "cpu"};

void host_cgroups(const Host *host, Finding *finding)
{
    const char *v2 = find_v2(host);
    guint n_v1 = 0, n_v2 = 0;
    g_autofree char *available = v2_controllers(v2);
    g_autoptr(GString) text = g_string_new(NULL);
    for (gsize i = 0; i < G_N_ELEMENTS(controllers); i++) {
        const char *v1 = find_v1(host, controllers[i]);
        gboolean in_v2 = has_word(available, controllers[i]);
        n_v1 += v1 != NULL;
        n_v2 += in_v2 && !v1;
        g_string_append_printf(text, "%s%s: %s", i ? ", " : "", controllers[i],
                               v1      ? v1
                               : in_v2 ? v2
                                       : "nowhere");
    }
    const char *kind = n_v1 && v2 ? "hybrid" : n_v1 ? "v1" : v2 ? "v2" : "none";
    if (n_v1 + n_v2 == G_N_ELEMENTS(controllers))
        find(finding, FINDING_YES, NULL, "%s (%s)", kind, text->str);
    else
        find(finding, FINDING_NO,
             v2 || n_v1 ? "boot with the missing controllers enabled (cgroup_enable=memory)"
                        : "mount -t cgroup2 none /sys/fs/cgroup",
             "%s (%s)", kind, text->str);
}

void host_disk_images(const Host *host, Finding *finding)
{
    if (!host->is_root) {
        find(finding, FINDING_YES, NULL,
             "not for an ordinary user: /workspace is a tmpfs of the size of --disk");
        return;
    }
    g_autofree char *in_path = g_find_program_in_path("mkfs.ext4");
    gboolean has_mkfs =
        in_path || access("/sbin/mkfs.ext4", X_OK) == 0 || access("/usr/sbin/mkfs.ext4", X_OK) == 0;
    autofd control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (!has_mkfs)
        find(finding, FINDING_LIMITED, "apt-get install e2fsprogs",
             "mkfs.ext4 is missing: /workspace is a tmpfs, counted as memory");
    else if (control < 0)
        find(finding, FINDING_LIMITED, "modprobe loop",
             "/dev/loop-control: %s: /workspace is a tmpfs, counted as memory", g_strerror(errno));
    else
        find(finding, FINDING_YES, NULL, "loop devices and mkfs.ext4");
}

/* The directory of the state, or the nearest one above it that is there. NULL: there is no place for one. */
static char *nearest_state_dir(const Host *host, GError **error)
{
    g_autofree char *path = sandbox_state_dir(host->state_dir, error);
    if (!path)
        return NULL;
    while (access(path, F_OK) < 0 && !g_str_equal(path, "/") && !g_str_equal(path, ".")) {
        char *parent = g_path_get_dirname(path);
        g_free(path);
        path = parent;
    }
    return g_steal_pointer(&path);
}

void host_state_space(const Host *host, Finding *finding)
{
    static const guint64 comfortable_bytes = (guint64)2 << 30;
    g_autoptr(GError) nowhere = NULL;
    g_autofree char *path = nearest_state_dir(host, &nowhere);
    if (!path) {
        find(finding, FINDING_NO, "name a directory of yours with --state-dir", "%s",
             nowhere->message);
        return;
    }
    struct statvfs space;
    if (statvfs(path, &space) < 0) {
        find(finding, FINDING_NO, NULL, "%s: %s", path, g_strerror(errno));
        return;
    }
    if (access(path, W_OK | X_OK) < 0) {
        find(finding, FINDING_NO, "name a directory of yours with --state-dir", "%s: %s", path,
             g_strerror(errno));
        return;
    }
    guint64 free_bytes = (guint64)space.f_bavail * space.f_frsize;
    gboolean enough = free_bytes >= comfortable_bytes;
    find(finding, enough ? FINDING_YES : FINDING_LIMITED,
         enough ? NULL : "free disk space, or name another disk with --state-dir",
         "%" G_GUINT64_FORMAT " MiB free for %s", free_bytes >> 20, path);
}

void host_inotify(G_GNUC_UNUSED const Host *host, Finding *finding)
{
    enum { COMFORTABLE = 1024 };
    gint64 instances = read_number("/proc/sys/fs/inotify/max_user_instances");
    gboolean enough = instances >= COMFORTABLE;
    find(finding, enough ? FINDING_YES : FINDING_LIMITED,
         enough ? NULL : "sysctl -w fs.inotify.max_user_instances=1024",
         "%" G_GINT64_FORMAT " instances for all sandboxes of one owner together", instances);
}

void host_core_pattern(G_GNUC_UNUSED const Host *host, Finding *finding)
{
    char pattern[256];
    ssize_t n = fd_read_file_at(AT_FDCWD, "/proc/sys/kernel/core_pattern", pattern, sizeof pattern);
    if (n <= 0 || pattern[0] != '|') {
        find(finding, FINDING_YES, NULL, "core dumps start no program of the host");
        return;
    }
    g_strchomp(pattern);
    find(finding, FINDING_LIMITED, "sysctl -w kernel.core_pattern=core",
         "a crash of code starts a program of the host: %s", pattern + 1);
}

void host_languages(G_GNUC_UNUSED const Host *host, Finding *finding)
{
    g_autoptr(GString) absent = g_string_new("apt-get install");
    guint n = 0, present = 0;
    for (const Language *const *language = languages_all(); *language; language++, n++) {
        g_autofree char *path = language_find(*language);
        if (path)
            present++;
        else if (!strstr(absent->str, (*language)->package))
            g_string_append_printf(absent, " %s", (*language)->package);
    }
    FindingState state = present == n ? FINDING_YES : present ? FINDING_LIMITED : FINDING_NO;
    find(finding, state, present < n ? absent->str : NULL,
         "%u of %u have their toolchain (`hutch languages`)", present, n);
}
