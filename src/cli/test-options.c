#include <string.h>

#include "cli/options.h"
#include "cli/program.h"

static gboolean parse(Options *options, CommandBit command, const char *line, char ***words,
                      GError **error)
{
    *words = g_strsplit(line, " ", -1);
    options_init(options);
    return options_parse(options, command, (const char *const *)*words, error);
}

static void assert_rest(const Options *options, const char *wanted)
{
    g_autofree char *rest = g_strjoinv(" ", (char **)options->arguments);
    g_assert_cmpstr(rest, ==, wanted);
}

static void test_programs(void)
{
    static const struct {
        const char *line;
        ProgramKind kind;
        const char *text, *rest;
    } rows[] = {
        {"run script.py", PROGRAM_SCRIPT, "script.py", ""},
        {"run script.py --n 5 --json -- x", PROGRAM_SCRIPT, "script.py", "--n 5 --json -- x"},
        {"run --json a -c b", PROGRAM_SCRIPT, "a", "-c b"},
        {"run -c code", PROGRAM_CODE, "code", ""},
        {"run -c code --json -h", PROGRAM_CODE, "code", "--json -h"},
        {"run -c -c", PROGRAM_CODE, "-c", ""},
        {"run -- ls -la /", PROGRAM_COMMAND, NULL, "ls -la /"},
        {"run -- -- x", PROGRAM_COMMAND, NULL, "-- x"},
        {"run -- --json", PROGRAM_COMMAND, NULL, "--json"},
        {"run - a b", PROGRAM_STDIN, NULL, "a b"},
        {"run --timeout 5 - --timeout 6", PROGRAM_STDIN, NULL, "--timeout 6"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_auto(Options) options;
        g_auto(GStrv) words = NULL;
        g_autoptr(GError) error = NULL;
        g_test_message("%s", rows[i].line);
        g_assert_true(parse(&options, COMMAND_RUN, rows[i].line, &words, &error));
        g_assert_no_error(error);
        g_assert_cmpint(options.program, ==, rows[i].kind);
        g_assert_cmpstr(options.text, ==, rows[i].text);
        assert_rest(&options, rows[i].rest);
    }
}

static void test_values(void)
{
    g_auto(Options) options;
    g_auto(GStrv) words = NULL;
    g_autoptr(GError) error = NULL;
    g_assert_true(parse(
        &options, COMMAND_RUN,
        "run --memory=256M --pids 64 --cpus 0.5 --disk 1G --timeout 2.5 --max-output 64K --env A=1 --env B=x=y "
        "--input a --input=b --out o --keep *.pyc --language bash --state-dir s --json --best-effort --timing x",
        &words, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(options.sandbox.limits[LIMIT_MEMORY].value, ==, 256 << 20);
    g_assert_true(options.sandbox.limits[LIMIT_MEMORY].asked);
    g_assert_cmpuint(options.sandbox.limits[LIMIT_PIDS].value, ==, 64);
    g_assert_cmpuint(options.sandbox.limits[LIMIT_CPU].value, ==, 500);
    g_assert_true(options.sandbox.limits[LIMIT_DISK].asked);
    g_assert_false(options.sandbox.limits[LIMIT_OPEN_FILES].asked);
    g_assert_cmpuint(options.timeout_ms, ==, 2500);
    g_assert_cmpuint(options.output_bytes, ==, 65536);
    g_assert_cmpuint(options.env->len, ==, 2);
    g_assert_cmpstr(options.env->pdata[1], ==, "B=x=y");
    g_assert_cmpstr(options.inputs->pdata[1], ==, "b");
    g_assert_cmpstr(options.keep->pdata[0], ==, "*.pyc");
    g_assert_cmpstr(options.out, ==, "o");
    g_assert_cmpstr(options.language, ==, "bash");
    g_assert_cmpstr(options.sandbox.state_dir, ==, "s");
    g_assert_true(options.json && options.sandbox.best_effort && options.sandbox.timing);
}

static void test_defaults(void)
{
    g_auto(Options) options;
    g_auto(GStrv) words = NULL;
    g_assert_true(parse(&options, COMMAND_RUN, "run x", &words, NULL));
    g_assert_cmpuint(options.timeout_ms, ==, 60000);
    g_assert_cmpuint(options.output_bytes, ==, 8 << 20);
    g_assert_cmpuint(options.sandbox.limits[LIMIT_MEMORY].value, ==, 1 << 30);
    for (guint i = 0; i < N_LIMITS; i++)
        g_assert_false(options.sandbox.limits[i].asked);
}

/* Every refusal names the option and says what is right. */
static void test_errors(void)
{
    static const struct {
        CommandBit command;
        const char *line, *names, *says;
    } rows[] = {
        {COMMAND_RUN, "run", "nothing to run", "script"},
        {COMMAND_RUN, "run --memory", "--memory", "256M"},
        {COMMAND_RUN, "run --memory 5X x", "--memory", "256M"},
        {COMMAND_RUN, "run --memory= x", "--memory", "256M"},
        {COMMAND_RUN, "run --memory 1K x", "--memory", "from 16M to 4T"},
        {COMMAND_RUN, "run --memory 5T x", "--memory", "from 16M to 4T"},
        {COMMAND_RUN, "run --timeout 0 x", "--timeout", "from 0.001 to 86400"},
        {COMMAND_RUN, "run --timeout -1 x", "--timeout", "seconds"},
        {COMMAND_RUN, "run --pids 0 x", "--pids", "from 1 to 1048576"},
        {COMMAND_RUN, "run --pids 1.5 x", "--pids", "whole number"},
        {COMMAND_RUN, "run --cpus many x", "--cpus", "processors"},
        {COMMAND_RUN, "run --max-output 1G x", "--max-output", "from 1K to 64M"},
        {COMMAND_RUN, "run --memry 1G x", "--memry", "--memory"},
        {COMMAND_RUN, "run --wonderful x", "--wonderful", "--help"},
        {COMMAND_RUN, "run -x y", "-x", "--name"},
        {COMMAND_RUN, "run --json=1 x", "--json", "no value"},
        {COMMAND_RUN, "run -c", "-c", "CODE"},
        {COMMAND_RUN, "run --", "--", "COMMAND"},
        {COMMAND_RUN, "run --out= x", "--out", "DIR"},
        {COMMAND_RUN, "run --env secret x", "--env", "NAME=VALUE"},
        {COMMAND_RUN, "run --env 9=secret x", "--env", "NAME=VALUE"},
        {COMMAND_RUN, "run --language bash -- ls", "--language", "command"},
        {COMMAND_RUN, "run --keep x y", "--keep", "--out"},
        {COMMAND_DOCTOR, "doctor x", "\"x\"", "--help"},
        {COMMAND_DOCTOR, "doctor --memory 1G", "--memory", "--help"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_auto(Options) options;
        g_auto(GStrv) words = NULL;
        g_autoptr(GError) error = NULL;
        g_test_message("%s", rows[i].line);
        g_assert_false(parse(&options, rows[i].command, rows[i].line, &words, &error));
        g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_USAGE);
        g_assert_nonnull(strstr(error->message, rows[i].names));
        g_assert_nonnull(strstr(error->message, rows[i].says));
        g_assert_null(strstr(error->message, "secret"));
    }
}

static void test_environment(void)
{
    static const char *const variables[] = {"NAME=x", "PATH2=/x", "HOME=/a", "HOME=/b", "EMPTY="};
    g_autoptr(GPtrArray) added = g_ptr_array_new();
    for (gsize i = 0; i < G_N_ELEMENTS(variables); i++)
        g_ptr_array_add(added, (void *)variables[i]);
    g_setenv("HUTCH_TEST_SECRET", "1", TRUE);
    g_autoptr(GPtrArray) env = program_environment(NULL, added);
    const char *const *list = (const char *const *)env->pdata;
    g_assert_true(g_strv_contains(list, "HOME=/b"));
    g_assert_false(g_strv_contains(list, "HOME=/a"));
    g_assert_false(g_strv_contains(list, "HOME=/home/user"));
    g_assert_true(g_strv_contains(list, "LANG=C.UTF-8"));
    g_assert_true(g_strv_contains(list, "EMPTY="));
    g_assert_true(g_strv_contains(list, "PATH2=/x"));
    for (; *list; list++)
        g_assert_false(g_str_has_prefix(*list, "HUTCH_"));
}

static void test_ids(void)
{
    g_autofree char *one = program_new_id();
    g_autofree char *two = program_new_id();
    g_assert_cmpuint(strlen(one), ==, strlen("exe_") + 24);
    g_assert_true(g_str_has_prefix(one, "exe_"));
    g_assert_cmpstr(one, !=, two);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/options/programs", test_programs);
    g_test_add_func("/options/values", test_values);
    g_test_add_func("/options/defaults", test_defaults);
    g_test_add_func("/options/errors", test_errors);
    g_test_add_func("/options/environment", test_environment);
    g_test_add_func("/options/ids", test_ids);
    return g_test_run();
}
