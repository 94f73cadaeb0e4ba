#include "launcher/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/fd.h"

/* Theory of operation.
 *
 * The hierarchies are where every init system and container engine mounts them: v2 at /sys/fs/cgroup, or v1 below it by the names of the
 * controllers with v2 at `unified`. (Reading mountinfo would find others, and takes longer than all the rest.) For a v1 controller our
 * group is made at the top of its hierarchy. On v2 a group with processes cannot give controllers to children, so the candidates
 * are the top of the hierarchy (which is exempt) and then the ancestors of our own group: the nearest one we may write to that
 * hands out the controllers. That finds `app.slice` of a user whose systemd delegated it, as well as a plain root.
 *
 * v2 wants two groups below hutch-ID because limits must not hold for the agent, and because the agent, which is no
 * root of the host, may only clone into a group when it may write to the common ancestor (cgroups(7), delegation). Moving a process
 * afterwards costs 10 ms of waiting for the kernel; being born in the group (CLONE_INTO_CGROUP) or writing "0" to a v1 `tasks` file costs
 * microseconds. */

static const char *const controller_names[CGROUP_N_CONTROLLERS] = {
    [CGROUP_MEMORY] = "memory",
    [CGROUP_PIDS] = "pids",
    [CGROUP_CPU] = "cpu",
};

void cgroup_init(struct cgroup *cgroup)
{
    *cgroup = (struct cgroup){.agent_group = -1, .dir_of = {-1, -1, -1}};
    for (unsigned i = 0; i < sizeof(cgroup->dirs) / sizeof(cgroup->dirs[0]); i++)
        cgroup->dirs[i].fd = -1;
}

static bool has_word(const char *list, const char *word, const char *separators)
{
    size_t size = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += size) {
        bool begins = at == list || strchr(separators, at[-1]);
        bool ends = at[size] == '\0' || strchr(separators, at[size]);
        if (begins && ends)
            return true;
    }
    return false;
}

static bool is_mounted(const char *path, unsigned long magic)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && (unsigned long)fs.f_type == magic;
}

/* Where v2 is: alone, or beside v1 hierarchies on a hybrid host. NULL: nowhere. */
static const char *v2_mount(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (is_mounted(places[i], CGROUP2_SUPER_MAGIC))
            return places[i];
    }
    return NULL;
}

/* Our own group's path in v2: the line "0::/PATH" of /proc/self/cgroup. */
static int read_own_group(char own[CGROUP_PATH_MAX])
{
    char text[8192];
    ssize_t n = fd_read_file_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));
    if (n < 0)
        return (int)n;
    char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return -ENOENT;
    line = strchr(line, '/');
    size_t size = line ? strcspn(line, "\n") : 0;
    if (size == 0 || size >= CGROUP_PATH_MAX)
        return -EPROTO;
    memcpy(own, line, size);
    own[size] = '\0';
    return 0;
}

/* The controllers that `parent` can hand to its children, as a mask; enables what is not enabled yet. */
static unsigned v2_controllers(const char *parent)
{
    autofd fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    char available[256], enabled[256];
    if (fd_read_file_at(fd, "cgroup.controllers", available, sizeof(available)) < 0 ||
        fd_read_file_at(fd, "cgroup.subtree_control", enabled, sizeof(enabled)) < 0)
        return 0;
    unsigned mask = 0;
    for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
        const char *name = controller_names[i];
        bool on = has_word(enabled, name, " \n");
        if (!on && has_word(available, name, " \n")) {
            char text[16];
            snprintf(text, sizeof(text), "+%s", name);
            on = fd_write_file_at(fd, "cgroup.subtree_control", text) == 0;
        }
        if (on)
            mask |= 1u << i;
    }
    return mask;
}

static bool may_make_groups(const char *parent)
{
    char file[CGROUP_PATH_MAX + 16];
    snprintf(file, sizeof(file), "%s/cgroup.procs", parent);
    return faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0 &&
           faccessat(AT_FDCWD, file, W_OK, AT_EACCESS) == 0;
}

/* Two controllers of one hierarchy are two names of one directory. */
static bool is_same_directory(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static bool add_dir(struct cgroup *cgroup, int version, const char *parent, const char *id,
                    unsigned *index)
{
    for (unsigned i = 0; i < cgroup->n_dirs; i++) {
        if (is_same_directory(cgroup->dirs[i].parent, parent)) {
            *index = i;
            return true;
        }
    }
    struct cgroup_dir *dir = &cgroup->dirs[cgroup->n_dirs];
    if (snprintf(dir->parent, sizeof(dir->parent), "%s", parent) >= (int)sizeof(dir->parent) ||
        snprintf(dir->path, sizeof(dir->path), "%s/hutch-%s", parent, id) >= (int)sizeof(dir->path))
        return false;
    dir->version = version;
    *index = cgroup->n_dirs++;
    return true;
}

/* Chooses the v2 parent; `wanted` are the controllers that v1 does not have. Returns what it can hand out. */
static unsigned v2_choose_parent(const char *mount, unsigned wanted, char parent[CGROUP_PATH_MAX])
{
    unsigned best = 0;
    char path[2 * CGROUP_PATH_MAX], own[CGROUP_PATH_MAX];
    if (read_own_group(own) < 0)
        own[0] = '\0';
    /* The top first, then from our own group's parent upwards. */
    snprintf(path, sizeof(path), "%s", mount);
    while (best != wanted) {
        if (may_make_groups(path)) {
            unsigned mask = v2_controllers(path) & wanted;
            if (__builtin_popcount(mask) > __builtin_popcount(best) &&
                strlen(path) < CGROUP_PATH_MAX) {
                best = mask;
                strcpy(parent, path);
            }
        }
        char *slash = strrchr(own, '/');
        if (!slash || slash == own)
            break;
        *slash = '\0';
        snprintf(path, sizeof(path), "%s%s", mount, own);
    }
    return best;
}

/* The v1 hierarchy of a controller: a directory, or a link to one that it shares with others. */
static bool plan_v1(struct cgroup *cgroup, int controller, const char *id)
{
    char parent[64];
    unsigned index;
    snprintf(parent, sizeof(parent), "/sys/fs/cgroup/%s", controller_names[controller]);
    if (!is_mounted(parent, CGROUP_SUPER_MAGIC))
        return false;
    if (!may_make_groups(parent))
        cgroup->why[controller] = LAUNCH_WHY_NO_RIGHT;
    else if (add_dir(cgroup, 1, parent, id, &index))
        cgroup->dir_of[controller] = (int)index;
    return true;
}

void cgroup_plan(struct cgroup *cgroup, const char *id)
{
    const char *mount = v2_mount();
    unsigned wanted = 0;
    for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
        cgroup->dir_of[i] = -1;
        if (plan_v1(cgroup, i, id))
            continue;
        wanted |= 1u << i;
        cgroup->why[i] = mount ? LAUNCH_WHY_NO_RIGHT : LAUNCH_WHY_NOT_MOUNTED;
    }
    char parent[CGROUP_PATH_MAX];
    unsigned index, mask = wanted && mount ? v2_choose_parent(mount, wanted, parent) : 0;
    if (!mask || !add_dir(cgroup, 2, parent, id, &index))
        return;
    for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
        if (mask & (1u << i)) {
            cgroup->dir_of[i] = (int)index;
            cgroup->why[i] = LAUNCH_WHY_NONE;
        } else if (wanted & (1u << i)) {
            cgroup->why[i] = LAUNCH_WHY_NOT_ENABLED;
        }
    }
}

static bool host_has_swap(void)
{
    char text[4096];
    ssize_t n = fd_read_file_at(AT_FDCWD, "/proc/swaps", text, sizeof(text));
    char *line = n > 0 ? strchr(text, '\n') : NULL;
    return n == -E2BIG || (line && line[1] != '\0');
}

/* One limit is a row: controller, version, file, how its number is written. */
struct limit_row {
    enum cgroup_controller controller;
    int version;
    const char *file;
    enum launch_limit limit;
    enum { NUMBER, ZERO, QUOTA_V1, PERIOD_V1, QUOTA_V2, SOCKETS } form;
    enum {
        NEEDED,
        SWAP,     /* may be missing: then swap is not counted */
        OPTIONAL, /* may be missing: then the kernel counts it as memory, or not at all */
    } presence;
};

enum { CPU_PERIOD_US = 100000 };
#define SOCKETS_MOST (64ull << 20)

// clang-format off
static const struct limit_row limit_rows[] = {
    {CGROUP_MEMORY, 1, "memory.limit_in_bytes", LAUNCH_MEMORY, NUMBER, NEEDED},
    {CGROUP_MEMORY, 1, "memory.memsw.limit_in_bytes", LAUNCH_MEMORY, NUMBER, SWAP}, /* after the one above: never below it */
    {CGROUP_MEMORY, 1, "memory.kmem.tcp.limit_in_bytes", LAUNCH_MEMORY, SOCKETS, OPTIONAL}, /* v2 counts them as memory */
    {CGROUP_PIDS, 1, "pids.max", LAUNCH_PIDS, NUMBER, NEEDED},
    {CGROUP_CPU, 1, "cpu.cfs_period_us", LAUNCH_CPU, PERIOD_V1, NEEDED},
    {CGROUP_CPU, 1, "cpu.cfs_quota_us", LAUNCH_CPU, QUOTA_V1, NEEDED},
    {CGROUP_MEMORY, 2, "memory.max", LAUNCH_MEMORY, NUMBER, NEEDED},
    {CGROUP_MEMORY, 2, "memory.swap.max", LAUNCH_MEMORY, ZERO, SWAP},
    {CGROUP_PIDS, 2, "pids.max", LAUNCH_PIDS, NUMBER, NEEDED},
    {CGROUP_CPU, 2, "cpu.max", LAUNCH_CPU, QUOTA_V2, NEEDED},
};
// clang-format on

static void format_limit(const struct limit_row *row, uint64_t value, char text[64])
{
    unsigned long long number = value;
    switch (row->form) {
    case NUMBER: snprintf(text, 64, "%llu", number); break;
    case ZERO: snprintf(text, 64, "0"); break;
    case SOCKETS: /* buffers of TCP and UDP, which v1 counts apart: a quarter, at most 64 MiB */
        snprintf(text, 64, "%llu", number / 4 < SOCKETS_MOST ? number / 4 : SOCKETS_MOST);
        break;
    case PERIOD_V1: snprintf(text, 64, "%d", CPU_PERIOD_US); break;
    case QUOTA_V1: snprintf(text, 64, "%llu", number * CPU_PERIOD_US / 1000); break;
    case QUOTA_V2:
        snprintf(text, 64, "%llu %d", number * CPU_PERIOD_US / 1000, CPU_PERIOD_US);
        break;
    }
}

static int set_limits(struct cgroup *cgroup, const uint64_t limits[LAUNCH_N_LIMITS],
                      char detail[108])
{
    for (size_t i = 0; i < sizeof(limit_rows) / sizeof(limit_rows[0]); i++) {
        const struct limit_row *row = &limit_rows[i];
        int index = cgroup->dir_of[row->controller];
        if (index < 0 || cgroup->dirs[index].version != row->version)
            continue;
        char text[64];
        format_limit(row, limits[row->limit], text);
        int r = fd_write_file_at(cgroup->dirs[index].fd, row->file, text);
        if (r == -ENOENT && row->presence != NEEDED) {
            cgroup->swap_uncounted |= row->presence == SWAP && host_has_swap();
        } else if (r < 0) {
            snprintf(detail, 108, "%.80s: %s", cgroup->dirs[index].path, row->file);
            return r;
        }
    }
    return 0;
}

static int make_v2(struct cgroup *cgroup, struct cgroup_dir *dir, int group, uid_t owner)
{
    char enable[64] = "";
    for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
        if (cgroup->dir_of[i] >= 0 && &cgroup->dirs[cgroup->dir_of[i]] == dir) {
            strcat(enable, enable[0] ? " +" : "+");
            strcat(enable, controller_names[i]);
        }
    }
    int r = fd_write_file_at(group, "cgroup.subtree_control", enable);
    if (r < 0)
        return r;
    if (mkdirat(group, "agent", 0755) < 0 || mkdirat(group, "code", 0755) < 0)
        return -errno;
    cgroup->agent_group = openat(group, "agent", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir->fd = openat(group, "code", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroup->agent_group < 0 || dir->fd < 0)
        return -errno;
    /* The agent may clone into `code`, and make groups of its own below it. */
    if (owner != (uid_t)-1 && (fchownat(group, "cgroup.procs", owner, owner, 0) < 0 ||
                               fchownat(dir->fd, "cgroup.procs", owner, owner, 0) < 0 ||
                               fchown(dir->fd, owner, owner) < 0))
        return -errno;
    return 0;
}

int cgroup_create(struct cgroup *cgroup, const uint64_t limits[LAUNCH_N_LIMITS], uid_t owner,
                  char detail[108])
{
    for (unsigned i = 0; i < cgroup->n_dirs; i++) {
        struct cgroup_dir *dir = &cgroup->dirs[i];
        snprintf(detail, 108, "%.107s", dir->path);
        if (mkdir(dir->path, 0755) < 0)
            return -errno;
        int group = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (group < 0)
            return -errno;
        if (dir->version == 1) {
            dir->fd = group;
            continue;
        }
        int r = make_v2(cgroup, dir, group, owner);
        close(group);
        if (r < 0)
            return r;
    }
    int r = set_limits(cgroup, limits, detail);
    if (r < 0)
        return r;
    detail[0] = '\0';
    return 0;
}

bool cgroup_needs_clone_into(const struct cgroup *cgroup)
{
    for (unsigned i = 0; i < cgroup->n_dirs; i++) {
        if (cgroup->dirs[i].version == 2)
            return true;
    }
    return false;
}

struct handle_row {
    const char *key;
    enum cgroup_controller controller;
    const char *file[3]; /* by version */
    int flags;
};

static const struct handle_row handle_rows[] = {
    {"memory_events", CGROUP_MEMORY, {NULL, "memory.oom_control", "memory.events"}, O_RDONLY},
    {"memory_peak", CGROUP_MEMORY, {NULL, "memory.max_usage_in_bytes", "memory.peak"}, O_RDONLY},
    {"pids_events", CGROUP_PIDS, {NULL, "pids.events", "pids.events"}, O_RDONLY},
};

int cgroup_open_handles(const struct cgroup *cgroup,
                        struct cgroup_handle handles[CGROUP_MAX_HANDLES])
{
    int n = 0;
    for (unsigned i = 0; i < cgroup->n_dirs; i++) {
        const struct cgroup_dir *dir = &cgroup->dirs[i];
        int fd = dir->version == 2 ? fcntl(dir->fd, F_DUPFD_CLOEXEC, 3)
                                   : openat(dir->fd, "tasks", O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        handles[n++] = (struct cgroup_handle){dir->version == 2 ? "code_group" : "tasks", fd};
    }
    for (size_t i = 0; i < sizeof(handle_rows) / sizeof(handle_rows[0]); i++) {
        const struct handle_row *row = &handle_rows[i];
        int index = cgroup->dir_of[row->controller];
        if (index < 0)
            continue;
        int fd = openat(cgroup->dirs[index].fd, row->file[cgroup->dirs[index].version],
                        row->flags | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            continue; /* memory.peak came with 5.19; the agent then does not report a peak */
        if (fd < 0)
            return -errno;
        handles[n++] = (struct cgroup_handle){row->key, fd};
    }
    return n;
}

void cgroup_unthrottle(const struct cgroup *cgroup)
{
    int index = cgroup->dir_of[CGROUP_CPU];
    if (index < 0 || cgroup->dirs[index].fd < 0)
        return;
    /* Failure only makes the kill slower. */
    if (cgroup->dirs[index].version == 1)
        (void)fd_write_file_at(cgroup->dirs[index].fd, "cpu.cfs_quota_us", "-1");
    else
        (void)fd_write_file_at(cgroup->dirs[index].fd, "cpu.max", "max");
}

enum { REMOVE_WAIT_MS = 2000 };

/* rmdir(2) of a group is EBUSY until its last task is gone, which is soon: they are all killed. No event tells of it on
 * v1, so this looks again every millisecond. */
static int remove_group(int dirfd, const char *name, uint64_t deadline_ms)
{
    while (unlinkat(dirfd, name, AT_REMOVEDIR) < 0) {
        if (errno == ENOENT)
            return 0;
        if (errno != EBUSY || clock_monotonic_ms() >= deadline_ms)
            return -errno;
        poll(NULL, 0, 1);
    }
    return 0;
}

/* Removes a group and all below it, deepest first. The tree below `code` is made by the agent and by nobody else, but its depth is
 * bounded all the same. */
static int remove_tree(int dirfd, const char *name, uint64_t deadline_ms, int depth)
{
    autofd fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    struct dir_reader reader;
    dir_reader_init(&reader, fd);
    struct dir_entry entry;
    int r;
    while ((r = dir_reader_next(&reader, &entry)) > 0) {
        if (entry.type == DT_DIR && depth > 0) {
            r = remove_tree(fd, entry.name, deadline_ms, depth - 1);
            if (r < 0)
                return r;
        }
    }
    if (r < 0)
        return r;
    return remove_group(dirfd, name, deadline_ms);
}

int cgroup_remove(struct cgroup *cgroup)
{
    uint64_t deadline_ms = clock_monotonic_ms() + REMOVE_WAIT_MS;
    int result = 0;
    for (unsigned i = 0; i < cgroup->n_dirs; i++) {
        struct cgroup_dir *dir = &cgroup->dirs[i];
        fd_clear(&dir->fd);
        int r = dir->version == 1 ? remove_group(AT_FDCWD, dir->path, deadline_ms)
                                  : remove_tree(AT_FDCWD, dir->path, deadline_ms, 4);
        if (r < 0)
            result = r;
    }
    return result;
}

void cgroup_clear(struct cgroup *cgroup)
{
    for (unsigned i = 0; i < cgroup->n_dirs; i++)
        fd_clear(&cgroup->dirs[i].fd);
    fd_clear(&cgroup->agent_group);
}

/* Kills what is in one group, not in those below. */
static int kill_group(int group)
{
    FILE *file;
    int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    file = fdopen(fd, "r");
    if (!file) {
        close(fd);
        return -ENOMEM;
    }
    long pid;
    int n = 0;
    while (fscanf(file, "%ld", &pid) == 1) {
        if (pid > 1 && pid != getpid()) {
            (void)kill((pid_t)pid, SIGKILL); /* may just have ended */
            n++;
        }
    }
    fclose(file);
    return n;
}

static int kill_tree(int dirfd, const char *name, int depth)
{
    autofd fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    int n = kill_group(fd);
    struct dir_reader reader;
    dir_reader_init(&reader, fd);
    struct dir_entry entry;
    while (n >= 0 && depth > 0 && dir_reader_next(&reader, &entry) > 0) {
        if (entry.type == DT_DIR) {
            int below = kill_tree(fd, entry.name, depth - 1);
            n = below < 0 ? below : n + below;
        }
    }
    return n;
}

int cgroup_sweep(const char *path)
{
    uint64_t deadline_ms = clock_monotonic_ms() + REMOVE_WAIT_MS;
    int n;
    do {
        n = kill_tree(AT_FDCWD, path, 4);
        if (n > 0)
            poll(NULL, 0, 1);
    } while (n > 0 && clock_monotonic_ms() < deadline_ms);
    if (n < 0)
        return n;
    return remove_tree(AT_FDCWD, path, deadline_ms, 4);
}
