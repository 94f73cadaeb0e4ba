#include "agent/request.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, NUMBER, LIST };

enum { DAY_MS = 24 * 3600 * 1000, SCRIPT_NAME_MAX = 255, CWD_MAX = 4095 };

static bool is_id(const char *text)
{
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return size >= 1 && size <= PROTOCOL_ID_MAX && text[size] == '\0';
}

static bool is_absolute(const char *text)
{
    return text[0] == '/' && strlen(text) <= CWD_MAX;
}

static bool is_file_name(const char *text)
{
    return text[0] != '\0' && strlen(text) <= SCRIPT_NAME_MAX && !strchr(text, '/') &&
           strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

static bool is_assignment(const char *text)
{
    return text[0] != '=' && strchr(text, '=');
}

static bool is_anything(const char *text)
{
    (void)text;
    return true;
}

static const struct row {
    const char *key;
    enum kind kind;
    bool required;
    size_t offset;
    uint64_t min, max; /* of a number; of a list's entries */
    bool (*is_good)(const char *text);
    const char *rule;
} rows[] = {
    {"id", TEXT, true, offsetof(struct request, id), 0, 0, is_id,
     "must be 1 to 32 of a-z, 0-9 and '_'"},
    {"argv", LIST, true, offsetof(struct request, argv), 1, PROTOCOL_ARGV_MAX, is_anything,
     "must have 1 to 4096 entries"},
    {"env", LIST, false, offsetof(struct request, env), 0, PROTOCOL_ARGV_MAX, is_assignment,
     "must be at most 4096 entries of the form NAME=VALUE"},
    {"cwd", TEXT, true, offsetof(struct request, cwd), 0, 0, is_absolute,
     "must be an absolute path below 4096 bytes"},
    {"timeout_ms", NUMBER, false, offsetof(struct request, timeout_ms), 0, PROTOCOL_TIME_MAX_MS,
     NULL, "must be at most 366 days"},
    {"grace_ms", NUMBER, false, offsetof(struct request, grace_ms), 0, DAY_MS, NULL,
     "must be at most a day"},
    {"output_bytes", NUMBER, true, offsetof(struct request, output_bytes), 1, PROTOCOL_OUTPUT_MAX,
     NULL, "must be between 1 and 1073741824"},
    {"stdin", NUMBER, false, offsetof(struct request, use_stdin), 0, 1, NULL, "must be 0 or 1"},
    {"script_name", TEXT, false, offsetof(struct request, script_name), 0, 0, is_file_name,
     "must be a file name of at most 255 bytes, without '/'"},
    {"script_bytes", NUMBER, false, offsetof(struct request, script_bytes), 0, PROTOCOL_SCRIPT_MAX,
     NULL, "must be at most 16777216"},
    {"sole", NUMBER, false, offsetof(struct request, sole), 0, 1, NULL, "must be 0 or 1"},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* The first walk counts, so that the second can fill one block of memory. */
struct counts {
    size_t seen[N_ROWS];
    size_t text_bytes;
    size_t pointers;
};

static int refuse(struct request_problem *problem, const char *field, const char *rule)
{
    memcpy(problem->field, field, strlen(field) + 1);
    problem->rule = rule;
    return -EPROTO;
}

static const struct row *find_row(const char *key)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strcmp(rows[i].key, key) == 0)
            return &rows[i];
    }
    return NULL;
}

static int count_fields(const void *payload, size_t size, struct counts *counts,
                        struct request_problem *problem)
{
    struct field_reader reader;
    struct field field;
    int more;
    field_reader_init(&reader, payload, size);
    while ((more = field_next(&reader, &field)) > 0) {
        const struct row *row = find_row(field.key);
        if (!row)
            return refuse(problem, field.key, "is not known");
        size_t seen = ++counts->seen[row - rows];
        if (row->kind != LIST && seen > 1)
            return refuse(problem, field.key, "is given twice");
        if (row->kind == LIST && seen > row->max)
            return refuse(problem, field.key, row->rule);
        if (row->kind != NUMBER)
            counts->text_bytes += field.size + 1;
    }
    if (more < 0)
        return refuse(problem, "", "the payload is not a list of fields");
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].required && counts->seen[i] == 0)
            return refuse(problem, rows[i].key, "is missing");
        if (rows[i].kind == LIST)
            counts->pointers += counts->seen[i] + 1;
    }
    return 0;
}

/* Copies a text to *at, which moves past it. There is room: count_fields() saw the same fields. */
static char *take_text(const struct field *field, char **at)
{
    char *text = *at;
    if (field_copy_text(field, text, field->size + 1) < 0)
        return NULL;
    *at += field->size + 1;
    return text;
}

static int take_field(struct request *request, const struct field *field, char **at,
                      struct request_problem *problem)
{
    const struct row *row = find_row(field->key);
    void *place = (char *)request + row->offset;
    if (row->kind == NUMBER) {
        uint64_t *number = place;
        if (field_u64(field, number) < 0)
            return refuse(problem, field->key, "must be a number of eight bytes");
        return *number < row->min || *number > row->max ? refuse(problem, field->key, row->rule)
                                                        : 0;
    }
    char *text = take_text(field, at);
    if (!text)
        return refuse(problem, field->key, "must not contain a NUL byte");
    if (!row->is_good(text))
        return refuse(problem, field->key, row->rule);
    if (row->kind == TEXT) {
        *(const char **)place = text;
    } else {
        struct request_list *list = place;
        list->items[list->n++] = text;
    }
    return 0;
}

static int fill(struct request *request, const void *payload, size_t size,
                const struct counts *counts, struct request_problem *problem)
{
    char **pointers = request->memory;
    char *text = (char *)(pointers + counts->pointers);
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].kind != LIST)
            continue;
        struct request_list *list = (struct request_list *)((char *)request + rows[i].offset);
        list->items = pointers;
        pointers += counts->seen[i] + 1;
    }
    struct field_reader reader;
    struct field field;
    field_reader_init(&reader, payload, size);
    while (field_next(&reader, &field) > 0) {
        int result = take_field(request, &field, &text, problem);
        if (result < 0)
            return result;
    }
    if (request->argv.items[0][0] == '\0')
        return refuse(problem, "argv", "must begin with the name of a program");
    if (!request->script_name && request->script_bytes > 0)
        return refuse(problem, "script_bytes", "needs script_name");
    return 0;
}

int request_parse(struct request *request, const void *payload, size_t size,
                  struct request_problem *problem)
{
    struct counts counts = {0};
    *request = (struct request){0};
    int result = count_fields(payload, size, &counts, problem);
    if (result < 0)
        return result;
    request->memory = calloc(1, counts.pointers * sizeof(char *) + counts.text_bytes);
    if (!request->memory)
        return -ENOMEM;
    result = fill(request, payload, size, &counts, problem);
    if (result < 0)
        request_clear(request);
    return result;
}

void request_set_script_path(struct request *request, char *path)
{
    for (size_t i = 0; i < request->argv.n; i++) {
        if (strcmp(request->argv.items[i], "{script}") == 0) {
            request->argv.items[i] = path;
            return; /* what follows are the caller's own arguments, to the letter */
        }
    }
}

void request_clear(struct request *request)
{
    free(request->memory);
    *request = (struct request){0};
}
