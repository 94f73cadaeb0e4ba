#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/request.h"

/* The agent's START: what is accepted is within every bound that wire/protocol.h promises, what is
 * refused leaves nothing. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static void check_list(const struct request_list *list)
{
    check(list->n <= PROTOCOL_ARGV_MAX && list->items[list->n] == NULL);
    for (size_t i = 0; i < list->n; i++)
        check(strlen(list->items[i]) < 1 << 20);
}

static void check_request(struct request *request)
{
    static char path[] = "/tmp/run-x/script";
    check(strlen(request->id) >= 1 && strlen(request->id) <= PROTOCOL_ID_MAX);
    check(!strpbrk(request->id, "/.") && request->cwd[0] == '/');
    check(request->argv.n >= 1 && request->argv.items[0][0] != '\0');
    check_list(&request->argv);
    check_list(&request->env);
    for (size_t i = 0; i < request->env.n; i++)
        check(strchr(request->env.items[i], '=') > request->env.items[i]);
    check(!request->script_name ||
          (!strchr(request->script_name, '/') && strcmp(request->script_name, "..") != 0));
    check(request->script_bytes <= PROTOCOL_SCRIPT_MAX &&
          request->timeout_ms <= PROTOCOL_TIME_MAX_MS);
    check(request->output_bytes >= 1 && request->output_bytes <= PROTOCOL_OUTPUT_MAX);
    check(request->use_stdin <= 1 && request->sole <= 1);
    request_set_script_path(request, path);
    check_list(&request->argv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request request;
    struct request_problem problem = {.rule = NULL};
    int result = request_parse(&request, data, size, &problem);
    if (result == 0)
        check_request(&request);
    else
        check(result == -EPROTO && problem.rule && strlen(problem.field) <= FIELD_KEY_MAX &&
              !request.memory);
    request_clear(&request);
    return 0;
}
