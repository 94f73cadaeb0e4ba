#include "agent/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum kind { NUMBER, DESCRIPTOR, DESCRIPTORS, CGROUP };

static const struct row {
    const char *key;
    enum kind kind;
    bool required;
    size_t offset;
    uint64_t max;
} rows[] = {
    {"connection", DESCRIPTOR, true, offsetof(struct settings, connection), 0},
    {"spool", DESCRIPTOR, true, offsetof(struct settings, spool), 0},
    {"agent_uid", NUMBER, true, offsetof(struct settings, agent_uid), INT_MAX},
    {"code_uid", NUMBER, true, offsetof(struct settings, code_uid), INT_MAX},
    {"cgroup", CGROUP, false, 0, 0},
    {"tasks", DESCRIPTORS, false, 0, 0},
    {"code_group", DESCRIPTOR, false, offsetof(struct settings, code_group), 0},
    {"memory_events", DESCRIPTOR, false, offsetof(struct settings, memory_events), 0},
    {"memory_peak", DESCRIPTOR, false, offsetof(struct settings, memory_peak), 0},
    {"pids_events", DESCRIPTOR, false, offsetof(struct settings, pids_events), 0},
    {"nofile", NUMBER, false, offsetof(struct settings, nofile), UINT64_MAX},
    {"nproc", NUMBER, false, offsetof(struct settings, nproc), UINT64_MAX},
    {"fsize_bytes", NUMBER, false, offsetof(struct settings, fsize_bytes), UINT64_MAX},
    {"data_bytes", NUMBER, false, offsetof(struct settings, data_bytes), UINT64_MAX},
    {"cpus", NUMBER, false, offsetof(struct settings, cpus), 1 << 16},
    {"first_cpu", NUMBER, false, offsetof(struct settings, first_cpu), 1 << 30},
    {"tied", NUMBER, false, offsetof(struct settings, tied), 1},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Takes digits from *text, moving it past them. */
static int take_number(const char **text, uint64_t max, uint64_t *value)
{
    const char *at = *text;
    uint64_t number = 0;
    if (*at < '0' || *at > '9')
        return -EINVAL;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *at - '0', &number))
            return -EINVAL;
    }
    *text = at;
    *value = number;
    return number > max ? -EINVAL : 0;
}

static int take_descriptor(const char **text, int *fd)
{
    uint64_t number;
    if (take_number(text, INT_MAX, &number) < 0 || number < 3 || fcntl((int)number, F_GETFD) < 0)
        return -EINVAL;
    *fd = (int)number;
    return 0;
}

static int take_descriptors(const char **text, struct settings *settings)
{
    for (;;) {
        if (settings->n_tasks == SETTINGS_TASKS_MAX)
            return -EINVAL;
        if (take_descriptor(text, &settings->tasks[settings->n_tasks]) < 0)
            return -EINVAL;
        settings->n_tasks++;
        if (**text != ',')
            return 0;
        (*text)++;
    }
}

static int take_cgroup(const char **text, struct settings *settings)
{
    static const char *const words[] = {"none", "v1", "v2"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(*text, words[i]) == 0) {
            settings->has_cgroup = i > 0;
            *text += strlen(words[i]);
            return 0;
        }
    }
    return -EINVAL;
}

static int take_value(const struct row *row, const char *text, struct settings *settings)
{
    void *field = (char *)settings + row->offset;
    int result = -EINVAL;
    if (row->kind == NUMBER)
        result = take_number(&text, row->max, field);
    else if (row->kind == DESCRIPTOR)
        result = take_descriptor(&text, field);
    else if (row->kind == DESCRIPTORS)
        result = take_descriptors(&text, settings);
    else
        result = take_cgroup(&text, settings);
    return result < 0 || *text != '\0' ? -EINVAL : 0;
}

static const struct row *find_row(const char *argument, const char **value)
{
    const char *equals = strchr(argument, '=');
    if (!equals)
        return NULL;
    size_t size = (size_t)(equals - argument);
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strlen(rows[i].key) == size && memcmp(rows[i].key, argument, size) == 0) {
            *value = equals + 1;
            return &rows[i];
        }
    }
    return NULL;
}

int settings_parse(struct settings *settings, char *const arguments[], const char **wrong)
{
    bool seen[N_ROWS] = {false};
    *settings = (struct settings){.connection = -1,
                                  .spool = -1,
                                  .code_group = -1,
                                  .memory_events = -1,
                                  .memory_peak = -1,
                                  .pids_events = -1};
    for (size_t i = 0; arguments[i]; i++) {
        const char *value;
        const struct row *row = find_row(arguments[i], &value);
        *wrong = arguments[i];
        if (!row || seen[row - rows] || take_value(row, value, settings) < 0)
            return -EINVAL;
        seen[row - rows] = true;
    }
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].required && !seen[i]) {
            *wrong = rows[i].key;
            return -EINVAL;
        }
    }
    return 0;
}

bool settings_share_uid(const struct settings *settings)
{
    return settings->agent_uid == settings->code_uid;
}
