#include <errno.h>
#include <glib.h>
#include <string.h>

#include "agent/request.h"
#include "wire/frame.h"

static uint8_t payload[FRAME_PAYLOAD_MAX];
static struct field_writer writer;

static void begin(void)
{
    field_writer_init(&writer, payload, sizeof(payload));
}

static void put_minimum(void)
{
    begin();
    field_put_text(&writer, "id", "x_1");
    field_put_text(&writer, "argv", "true");
    field_put_text(&writer, "cwd", "/workspace");
    field_put_u64(&writer, "output_bytes", 1000);
}

static int parse(struct request *request, struct request_problem *problem)
{
    g_assert_false(writer.failed);
    g_autofree uint8_t *copy =
        g_memdup2(payload, writer.size); /* so that a sanitizer sees a byte too many */
    return request_parse(request, copy, writer.size, problem);
}

static void assert_refused(const char *field, const char *words)
{
    struct request request;
    struct request_problem problem;
    g_assert_cmpint(parse(&request, &problem), ==, -EPROTO);
    g_assert_cmpstr(problem.field, ==, field);
    g_test_message("%s %s", problem.field, problem.rule);
    g_assert_nonnull(strstr(problem.rule, words));
    g_assert_null(request.memory);
    request_clear(&request);
}

static void test_minimum(void)
{
    struct request request;
    struct request_problem problem;
    put_minimum();
    g_assert_cmpint(parse(&request, &problem), ==, 0);
    g_assert_cmpstr(request.id, ==, "x_1");
    g_assert_cmpstr(request.cwd, ==, "/workspace");
    g_assert_cmpuint(request.argv.n, ==, 1);
    g_assert_null(request.argv.items[1]);
    g_assert_cmpuint(request.env.n, ==, 0);
    g_assert_null(request.env.items[0]);
    g_assert_null(request.script_name);
    g_assert_cmpuint(request.timeout_ms, ==, 0);
    request_clear(&request);
    request_clear(&request);
}

static void test_everything(void)
{
    static char path[] = "/tmp/run-x_1/main.py";
    struct request request;
    struct request_problem problem;
    put_minimum();
    field_put_text(&writer, "argv", "{script}");
    field_put_text(&writer, "env", "A=1");
    field_put_text(&writer, "argv", "x{script}");
    field_put_text(&writer, "argv", "");
    field_put_text(&writer, "argv", "{script}");
    field_put_text(&writer, "env", "B=");
    field_put_u64(&writer, "timeout_ms", PROTOCOL_TIME_MAX_MS);
    field_put_u64(&writer, "grace_ms", 5);
    field_put_u64(&writer, "stdin", 1);
    field_put_u64(&writer, "sole", 1);
    field_put_text(&writer, "script_name", "main.py");
    field_put_u64(&writer, "script_bytes", PROTOCOL_SCRIPT_MAX);
    g_assert_cmpint(parse(&request, &problem), ==, 0);
    request_set_script_path(&request, path);
    const char *const argv[] = {"true", path, "x{script}", "", "{script}"};
    g_assert_cmpuint(request.argv.n, ==, G_N_ELEMENTS(argv));
    for (size_t i = 0; i < G_N_ELEMENTS(argv); i++)
        g_assert_cmpstr(request.argv.items[i], ==, argv[i]);
    g_assert_cmpstr(request.env.items[0], ==, "A=1");
    g_assert_cmpstr(request.env.items[1], ==, "B=");
    g_assert_null(request.env.items[2]);
    g_assert_cmpstr(request.script_name, ==, "main.py");
    g_assert_cmpuint(request.use_stdin, ==, 1);
    request_clear(&request);
}

/* Each row replaces or adds one field of a good START. */
static void test_refused(void)
{
    const struct {
        const char *key;
        const char *value;
        const char *words;
    } texts[] = {
        {"id", "second", "twice"},           {"cwd", "/twice", "twice"},
        {"unknown_key", "", "not known"},    {"env", "NOVALUE", "NAME=VALUE"},
        {"env", "=value", "NAME=VALUE"},     {"script_name", "", "file name"},
        {"script_name", "a/b", "file name"}, {"script_name", "..", "file name"},
        {"script_name", ".", "file name"},   {"timeout_ms", "5", "eight bytes"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        put_minimum();
        field_put_text(&writer, texts[i].key, texts[i].value);
        assert_refused(texts[i].key, texts[i].words);
    }
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"timeout_ms", PROTOCOL_TIME_MAX_MS + 1},
        {"timeout_ms", UINT64_MAX},
        {"grace_ms", UINT64_MAX},
        {"stdin", 2},
        {"sole", 2},
        {"script_bytes", PROTOCOL_SCRIPT_MAX + 1},
        {"script_bytes", 1} /* without a name */,
    };
    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++) {
        put_minimum();
        field_put_u64(&writer, numbers[i].key, numbers[i].value);
        assert_refused(numbers[i].key, "");
    }
}

static void test_missing(void)
{
    const char *const keys[] = {"id", "argv", "cwd"};
    for (size_t missing = 0; missing < G_N_ELEMENTS(keys); missing++) {
        begin();
        for (size_t i = 0; i < G_N_ELEMENTS(keys); i++) {
            if (i != missing)
                field_put_text(&writer, keys[i], "/");
        }
        field_put_u64(&writer, "output_bytes", 1);
        assert_refused(keys[missing], "missing");
    }
    begin();
    assert_refused("id", "missing");
}

static void put_bad(const char *key, const char *value, size_t size)
{
    begin();
    field_put(&writer, "id", strcmp(key, "id") == 0 ? value : "a",
              strcmp(key, "id") == 0 ? size : 1);
    field_put(&writer, "argv", strcmp(key, "argv") == 0 ? value : "a",
              strcmp(key, "argv") == 0 ? size : 1);
    field_put(&writer, "cwd", strcmp(key, "cwd") == 0 ? value : "/",
              strcmp(key, "cwd") == 0 ? size : 1);
    field_put_u64(&writer, "output_bytes", strcmp(key, "output_bytes") == 0 ? size : 1);
}

static void test_values(void)
{
    g_autofree char *long_path = g_strnfill(4096, '/');
    const struct {
        const char *key;
        const char *value;
        size_t size;
    } rows[] = {
        {"id", "", 0},
        {"id", "A", 1},
        {"id", "a/b", 3},
        {"id", "..", 2},
        {"id", "a\0b", 3},
        {"id", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 33},
        {"argv", "", 0},
        {"argv", "tr\0ue", 5},
        {"cwd", "", 0},
        {"cwd", "workspace", 9},
        {"cwd", "/\0", 2},
        {"cwd", long_path, 4096},
        {"output_bytes", NULL, 0},
        {"output_bytes", NULL, (size_t)PROTOCOL_OUTPUT_MAX + 1},
        {"output_bytes", NULL, SIZE_MAX},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        put_bad(rows[i].key, rows[i].value, rows[i].size);
        assert_refused(rows[i].key, "");
    }
}

static void test_many(void)
{
    struct request request;
    struct request_problem problem;
    put_minimum();
    for (int i = 1; i < PROTOCOL_ARGV_MAX; i++)
        field_put_text(&writer, "argv", "a");
    for (int i = 0; i < PROTOCOL_ARGV_MAX; i++)
        field_put_text(&writer, "env", "a=");
    g_assert_cmpint(parse(&request, &problem), ==, 0);
    g_assert_cmpuint(request.argv.n, ==, PROTOCOL_ARGV_MAX);
    g_assert_cmpuint(request.env.n, ==, PROTOCOL_ARGV_MAX);
    request_clear(&request);
    struct field_writer before = writer;
    field_put_text(&writer, "argv", "a");
    assert_refused("argv", "4096");
    writer = before;
    field_put_text(&writer, "env", "a=");
    assert_refused("env", "4096");
}

static void test_no_list(void)
{
    put_minimum();
    payload[writer.size++] = 1;
    assert_refused("", "not a list");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/request/minimum", test_minimum);
    g_test_add_func("/request/everything", test_everything);
    g_test_add_func("/request/refused", test_refused);
    g_test_add_func("/request/missing", test_missing);
    g_test_add_func("/request/values", test_values);
    g_test_add_func("/request/many", test_many);
    g_test_add_func("/request/no-list", test_no_list);
    return g_test_run();
}
