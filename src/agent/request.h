#pragma once

#include <stddef.h>
#include <stdint.h>

#include "wire/field.h"
#include "wire/protocol.h"

/* START, parsed and checked (wire/protocol.h has the fields). The bytes come from outside:
 * everything is bounded before it is allocated, and what is unknown, missing, given twice or out of
 * range is refused by name. */

struct request_list {
    char **items; /* NULL-ended */
    size_t n;
};

struct request {
    const char *id;
    struct request_list argv;
    struct request_list env;
    const char *cwd;
    const char *script_name; /* NULL: no script */
    uint64_t script_bytes;
    uint64_t timeout_ms;
    uint64_t grace_ms;
    uint64_t output_bytes;
    uint64_t use_stdin;
    uint64_t sole;
    void *memory; /* owns all of the above */
};

struct request_problem {
    char field[FIELD_KEY_MAX + 1]; /* the field that is wrong; empty: the list as a whole */
    const char *rule; /* what it broke, a literal that follows the field's name in a sentence */
};

/* Fills `request` from the payload of START, of which it keeps nothing. 0; -EPROTO with *problem
 * filled in; -ENOMEM. After a failure there is nothing to clear. */
int request_parse(struct request *request, const void *payload, size_t size,
                  struct request_problem *problem);

/* Puts `path` in the place of the first argument that is "{script}". `path` must live as long as the
 * request. */
void request_set_script_path(struct request *request, char *path);

/* Frees; an empty or cleared request is fine. */
void request_clear(struct request *request);
