#include "kernels/languages.h"

#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/javascript.h"

static void test_table(void)
{
    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);

    for (const Language *const *at = languages_all(); *at; at++) {
        const Language *language = *at;
        guint scripts = 0;

        g_test_message("%s", language->name);
        g_assert_true(g_hash_table_add(names, (gpointer)language->name));
        for (const char *const *alias = language->aliases; *alias; alias++) {
            g_assert_true(g_hash_table_add(names, (gpointer)*alias));
            g_assert_true(language_by_name(*alias) == language);
        }
        g_assert_nonnull(language->extensions[0]);
        g_assert_nonnull(language->program);
        g_assert_nonnull(language->package);
        g_assert_nonnull(language->version[0]);
        for (const char *const *word = language->run; *word; word++) {
            scripts += strcmp(*word, "{script}") == 0;
        }
        g_assert_cmpuint(scripts, ==, 1);
        for (const char *const *variable = language->env; variable && *variable; variable++) {
            g_assert_nonnull(strchr(*variable, '='));
        }
        if (strcmp(language->program, "sh") != 0) { /* .sh is bash's */
            g_autofree char *file = g_strdup_printf("dir/x.%s", language->extensions[0]);

            g_assert_true(language_by_file(file, NULL, 0) == language);
        }
    }
}

static void test_by_name(void)
{
    g_assert_cmpstr(language_by_name("Python")->name, ==, "python");
    g_assert_cmpstr(language_by_name("C++")->name, ==, "c++");
    g_assert_cmpstr(language_by_name("NODE")->name, ==, "javascript");
    g_assert_null(language_by_name("cobol"));
    g_assert_null(language_by_name(""));
}

static void test_by_file(void)
{
    static const struct {
        const char *file, *source, *language;
    } rows[] = {
        {"a.py", NULL, "python"},
        {"dir.js/a.PY", "", "python"},
        {"a.mjs", NULL, "javascript"},
        {"a.sh", "#!/bin/sh\n", "bash"},
        {"a.R", NULL, "r"},
        {"a.txt", NULL, NULL},
        {"a.txt", "#!/usr/bin/perl -w\n", "perl"},
        {".py", NULL, NULL},
        {"a.", NULL, NULL},
        {"", NULL, NULL},
        {"py", NULL, NULL},
        {"tool", "#!/usr/bin/env python3\nprint()", "python"},
        {"tool", "#!/usr/bin/python3.11 -u\r\n", "python"},
        {"tool", "\xef\xbb\xbf#!/bin/bash", "bash"},
        {"tool", "#! /bin/dash\n", "sh"},
        {"tool", "#!/usr/bin/env -S -i node --trace-warnings\n", "javascript"},
        {"tool", "#!/usr/bin/env -Sruby\n", "ruby"},
        {"tool", "#!/usr/bin/env -u HOME LANG=C lua5.4\n", "lua"},
        {"tool", "#!/usr/bin/env\n", NULL},
        {"tool", "#!/usr/bin/env -u\n", NULL},
        {"tool", "#!", NULL},
        {"tool", "#! \t\n", NULL},
        {"tool", "#!/3.11\n", NULL},
        {"tool", "#!/usr/bin/unknown\n", NULL},
        {"tool", "print()", NULL},
        {"", "#!/usr/bin/python3", "python"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        const char *source = rows[i].source;
        const Language *language =
            language_by_file(rows[i].file, source, source ? strlen(source) : 0);

        g_test_message("%u: %s", i, rows[i].file);
        g_assert_cmpstr(language ? language->name : NULL, ==, rows[i].language);
    }
}

static void test_prepare(void)
{
    static const struct {
        const char *language, *source;
        gsize size;
        const char *prepared, *error;
    } rows[] = {
        {"python", "", 0, "", NULL},
        {"python", "\xef\xbb\xbfprint()\r\n", 12, "print()\r\n", NULL},
        {"bash", "echo first\r\n\r\necho\rsecond\r", 26, "echo first\n\necho\rsecond\r", NULL},
        {"bash", "\r\n", 2, "\n", NULL},
        {"python", "\xef\xbb\xbf", 3, "", NULL},
        {"python", "print('a')\n# \0 \nprint('b')\n", 27, NULL,
         "source code cannot contain null bytes (line 2)"},
        {"bash", "echo one; \0 echo two\n", 21, NULL,
         "source code cannot contain null bytes (line 1)"},
        {"python", "\0", 1, NULL, "source code cannot contain null bytes (line 1)"},
        {"python", "\xff\xfep\0", 4, NULL,
         "source code cannot contain null bytes: this is UTF-16, save it as UTF-8"},
        {"python", "\xff\xfe\0\0p\0\0\0", 8, NULL,
         "source code cannot contain null bytes: this is UTF-32, save it as UTF-8"},
        {"python", "print('\xe9')", 10, "print('\xe9')", NULL},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        gsize size = 99;
        g_autofree char *prepared = language_prepare_source(
            language_by_name(rows[i].language), rows[i].source, rows[i].size, &size, &error);

        g_test_message("%u", i);
        g_assert_cmpstr(prepared, ==, rows[i].prepared);
        g_assert_cmpstr(error ? error->message : NULL, ==, rows[i].error);
        if (error) {
            g_assert_error(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT);
            g_assert_cmpint(hutch_error_exit_status(error), ==, 2);
        } else {
            g_assert_cmpuint(size, ==, strlen(prepared));
        }
    }
}

static void test_script_name(void)
{
    static const struct {
        const char *language, *file, *source, *name;
    } rows[] = {
        {"python", NULL, "", "main.py"},
        {"python", "", "", "main.py"},
        {"python", "dir/report.py", "", "report.py"},
        {"python", "report.PYW", "", "report.PYW"},
        {"python", "report", "", "report.py"},
        {"python", "notes.txt", "", "notes.txt.py"},
        {"python", ".py", "", ".py.py"},
        {"c++", "a.cc", "", "a.cc"},
        {"javascript", NULL, "require('fs')", "main.js"},
        {"javascript", NULL, "import fs from 'fs'", "main.mjs"},
        {"javascript", "app.js", "export const a = 1", "app.mjs"},
        {"javascript", "app.cjs", "export const a = 1", "app.cjs"},
        {"javascript", "app.mjs", "1", "app.mjs"},
        {"javascript", "app", "import 'x'", "app.mjs"},
        {"python", NULL, "import fs", "main.py"},
    };
    g_autofree char *longest = g_strnfill(300, 'x');
    g_autofree char *cut = language_script_name(language_by_name("c"), longest, "", 0);

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *name =
            language_script_name(language_by_name(rows[i].language), rows[i].file, rows[i].source,
                                 strlen(rows[i].source));

        g_assert_cmpstr(name, ==, rows[i].name);
    }
    g_assert_cmpuint(strlen(cut), ==, 255);
    g_assert_true(g_str_has_suffix(cut, "x.c"));
}

static void test_javascript_modules(void)
{
    static const char *const modules[] = {
        "import fs from 'fs'",
        "#!/usr/bin/env node\nimport fs from 'fs'",
        "import{a}from'b'",
        "import * as x from 'y';",
        "'use strict'\nimport \"x\"",
        "/* a */ import /* b */ x, { y } from 'z'",
        "export default 1",
        "export { a }",
        "export * from 'x'",
        "export async function f() {}",
        "const a = 1\nexport const b = a",
        "const dir = import.meta.url",
        "f(import.meta.url)",
        "await 1",
        "const x = await fetch('y')",
        "for await (const x of y) {}",
        "if (a) {}\nawait f()",
        "const f = async () => g()\nawait f()",
        "const s = `a ${b + `c ${d}`} e`; import x from 'y'",
        "const r = /[`/]'/; import x from 'y'",
        "const r = a / b / c; import x from 'y'",
        "const r = s.replace(/\"/g, '`'); export { r }",
        "return_ = 1; await f`x`",
        "console.log(await f())",
        "try { await f() } catch (e) { }",
        "if (a) { await f() }",
        "for (const x of y) { await x }",
        "for await (const x of y) { f(x) }; while (a) { await b }",
        "const o = { a: await b }",
        "function f() { return 1 }\nawait f()",
        "const f = async () => { await 1 }; await f()",
        "g(async x => await x, await y)",
        "const s = `${await f()}`",
    };
    static const char *const scripts[] = {
        "",
        "// nothing",
        "const fs = require('fs')",
        "import('x').then(f)",
        "const x = import('y')",
        "async function f() { await 1 }",
        "const f = async () => await g()",
        "const f = async x =>\n  await g(x)",
        "(async () => { await 1 })()",
        "(async () => { if (a) { await 1 } })()",
        "const o = { async f() { await 1 }, g: async () => await 1 }",
        "class A { async f() { await 1 } async g(a) { for (const x of a) { await x } } }",
        "f(async x => await x)",
        "f(async x => { await x }, async () => { await y })",
        "async function f({ a, b }, c = {}) { try { await a } finally { await b } }",
        "const f = async () => [\n  await a,\n  await b,\n]",
        "}}}})))]]]",
        "const s = `\nimport x from 'y'\n`",
        "const s = 'import x'\n// import x from 'y'\n/*\nimport x from 'y'\n*/",
        "const s = `${`\nexport default 1\n`}\nawait 1`",
        "a.import = 1; a\n.export\n.await",
        "exports.a = 1; module.exports = {}",
        "const { a } = require('x')\nawait a()", /* neither: node says it best */
        "const o = {\nimport: 1,\nexport: 2 }",
        "var await = 1; f(await)",
        "`",
        "`${",
        "'",
        "/*",
        "/",
        "\\",
        "export",
        "import",
        "await",
    };

    for (guint i = 0; i < G_N_ELEMENTS(modules); i++) {
        g_test_message("module: %s", modules[i]);
        g_assert_true(javascript_is_module(modules[i], strlen(modules[i])));
    }
    for (guint i = 0; i < G_N_ELEMENTS(scripts); i++) {
        g_test_message("script: %s", scripts[i]);
        g_assert_false(javascript_is_module(scripts[i], strlen(scripts[i])));
    }
}

/* Each sample prints "hello ARGUMENT" and fails with 3, from a file with either line end. */
typedef struct {
    const char *language, *source;
} Sample;

static const Sample samples[] = {
    {"python", "import sys\nif True:\n    print('hello', sys.argv[1])\nsys.exit(3)\n"},
    {"javascript",
     "const process = require('process')\nconsole.log('hello', process.argv[2])\nprocess.exit(3)\n"},
    {"javascript",
     "import process from 'process'\nconsole.log('hello', await process.argv[2])\nprocess.exit(3)\n"},
    {"javascript",
     "console.log('hello', await Promise.resolve(process.argv[2]))\nprocess.exit(3)\n"},
    {"bash", "if [[ $1 ]]; then\n    cat <<EOF\nhello $1\nEOF\nfi\nexit 3\n"},
    {"sh", "if [ \"$1\" ]; then\n    cat <<EOF\nhello $1\nEOF\nfi\nexit 3\n"},
    {"c",
     "#include <math.h>\n#include <stdio.h>\n#define TWO 1 + \\\n    1\nint main(int argc, char **argv)\n{\n"
     "    printf(\"hello %s\\n\", argv[1]);\n    return TWO + (int)sqrt(argc / 2);\n}\n"},
    {"c++", "#include <iostream>\n#include <string>\nint main(int, char **argv)\n{\n"
            "    std::cout << \"hello \" + std::string(argv[1]) << \"\\n\";\n    return 3;\n}\n"},
    {"perl", "use strict;\nprint <<EOF;\nhello $ARGV[0]\nEOF\nexit 3;\n"},
    {"ruby", "print <<EOF\nhello #{ARGV[0]}\nEOF\nexit 3\n"},
    {"php", "<?php\nif (true)\n    echo \"hello $argv[1]\\n\";\nexit(3);\n"},
    {"r",
     "arguments <- commandArgs(trailingOnly = TRUE)\nif (TRUE) {\n    cat('hello', arguments[1])\n    cat('\\n')\n}\nquit(status = 3)\n"},
    {"lua", "if true then\n    print('hello ' .. arg[1])\nend\nos.exit(3)\n"},
    {"go",
     "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() {\n\tfmt.Println(\"hello\", os.Args[1])\n\tos.Exit(3)\n}\n"},
    {"java",
     "public class Hello {\n    public static void main(String[] arguments) {\n"
     "        System.out.println(\"hello \" + arguments[0]);\n        System.exit(3);\n    }\n}\n"},
    {"rust",
     "fn main() {\n    let name = std::env::args().nth(1).unwrap();\n    println!(\"hello {name}\");\n"
     "    std::process::exit(3);\n}\n"},
    {"awk", "BEGIN {\n    if (ARGV[1])\n        print \"hello \" ARGV[1]\n    exit 3\n}\n"},
    {"tcl", "if {[llength $argv]} {\n    puts \"hello [lindex $argv 0]\"\n}\nexit 3\n"},
    {"fortran",
     "program hello\n    character(len=32) :: name\n    call get_command_argument(1, name)\n"
     "    print '(A)', 'hello ' // trim(name)\n    stop 3\nend program\n"},
    {"ocaml", "let () =\n  print_endline (\"hello \" ^ Sys.argv.(1));\n  exit 3\n"},
    {"scheme", "(display \"hello \")\n(display (cadr (command-line)))\n(newline)\n(exit 3)\n"},
};

static char **argv_of(const Language *language, const char *script, const char *argument)
{
    g_autoptr(GStrvBuilder) builder = g_strv_builder_new();

    for (const char *const *word = language->run; *word; word++) {
        g_strv_builder_add(builder, strcmp(*word, "{script}") == 0 ? script : *word);
    }
    g_strv_builder_add(builder, argument);
    return g_strv_builder_end(builder);
}

/* The sandbox's: nothing of the caller's. */
static char **environment_of(const Language *language, const char *home)
{
    char **env = g_environ_setenv(
        NULL, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", TRUE);

    env = g_environ_setenv(env, "HOME", home, TRUE);
    env = g_environ_setenv(env, "LANG", "C.UTF-8", TRUE);
    for (const char *const *variable = language->env; variable && *variable; variable++) {
        g_auto(GStrv) parts = g_strsplit(*variable, "=", 2);

        env = g_environ_setenv(env, parts[0], parts[1], TRUE);
    }
    return env;
}

static void remove_tree(const char *path)
{
    const char *command[] = {"chmod", "-R", "u+w", path, NULL}; /* go's module cache is read-only */

    g_spawn_sync(NULL, (char **)command, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL,
                 NULL);
    command[0] = "rm";
    command[1] = "-rf";
    command[2] = path;
    command[3] = NULL;
    g_assert_true(g_spawn_sync(NULL, (char **)command, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL,
                               NULL, NULL, NULL));
}

static void run_sample(const Language *language, const char *source)
{
    g_autofree char *folder = g_dir_make_tmp("hutch-test-XXXXXX", NULL);
    g_autofree char *name = language_script_name(language, NULL, source, strlen(source));
    g_autofree char *script = g_build_filename(folder, name, NULL);
    g_auto(GStrv) argv = argv_of(language, script, "world");
    g_auto(GStrv) env = environment_of(language, folder);
    g_autoptr(GError) error = NULL;
    g_autofree char *prepared = NULL;
    g_autofree char *out = NULL;
    g_autofree char *err = NULL;
    gsize size;
    int status;

    prepared = language_prepare_source(language, source, strlen(source), &size, &error);
    g_assert_no_error(error);
    g_assert_true(g_file_set_contents(script, prepared, (gssize)size, NULL));
    g_spawn_sync(folder, argv, env, G_SPAWN_SEARCH_PATH_FROM_ENVP, NULL, NULL, &out, &err, &status,
                 &error);
    g_assert_no_error(error);
    g_test_message("%s: %s%s", language->name, out, err);
    g_assert_cmpstr(out, ==, "hello world\n");
    if (strcmp(language->name, "fortran") == 0) {
        g_assert_cmpstr(err, ==, "STOP 3\n");
    } else {
        g_assert_cmpstr(err, ==, "");
    }
    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, 3);
    remove_tree(folder);
}

static void test_sample(gconstpointer data)
{
    const Sample *sample = data;
    const Language *language = language_by_name(sample->language);
    g_autofree char *program = language_find(language);
    g_auto(GStrv) lines = g_strsplit(sample->source, "\n", -1);
    g_autofree char *crlf = g_strjoinv("\r\n", lines);

    if (!program) {
        g_autofree char *why = g_strdup_printf("%s is not installed", language->package);

        g_test_skip(why);
        return;
    }
    run_sample(language, sample->source);
    run_sample(language, crlf);
}

static void test_version(gconstpointer data)
{
    const Language *language = data;
    g_autofree char *program = language_find(language);
    g_auto(GStrv) env = environment_of(language, "/tmp");
    g_autofree char *out = NULL;
    g_autofree char *err = NULL;
    int status = -1;

    if (!program) {
        g_autofree char *why = g_strdup_printf("%s is not installed", language->package);

        g_test_skip(why);
        return;
    }
    g_assert_true(g_spawn_sync("/", (char **)language->version, env, G_SPAWN_SEARCH_PATH_FROM_ENVP,
                               NULL, NULL, &out, &err, &status, NULL));
    g_test_message("%s: %.60s|%.60s", program, out, err);
    g_assert_cmpint(status, ==, 0);
    g_assert_true(*out || *err);
}

/* A compilation that fails is the exit status, and nothing runs. */
static void test_compile_failure(void)
{
    const Language *language = language_by_name("c");
    g_autofree char *program = language_find(language);
    g_autofree char *folder = NULL;
    g_autofree char *script = NULL;
    g_auto(GStrv) argv = NULL;
    g_autofree char *out = NULL;
    g_autofree char *err = NULL;
    int status;

    if (!program) {
        g_test_skip("gcc is not installed");
        return;
    }
    folder = g_dir_make_tmp("hutch-test-XXXXXX", NULL);
    script = g_build_filename(folder, "main.c", NULL);
    argv = argv_of(language, script, "x");
    g_assert_true(g_file_set_contents(script, "int main(void) { return nothing; }\n", -1, NULL));
    g_assert_true(
        g_spawn_sync("/", argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, &err, &status, NULL));
    g_assert_cmpstr(out, ==, "");
    g_assert_nonnull(strstr(err, "main.c:1:"));
    g_assert_cmpint(WEXITSTATUS(status), ==, 1);
    /* A signal stays a signal. */
    g_clear_pointer(&out, g_free);
    g_clear_pointer(&err, g_free);
    g_assert_true(g_file_set_contents(script, "#include <stdlib.h>\nint main(void) { abort(); }\n",
                                      -1, NULL));
    g_assert_true(
        g_spawn_sync("/", argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, &err, &status, NULL));
    g_assert_true(WIFSIGNALED(status));
    g_assert_cmpint(WTERMSIG(status), ==, SIGABRT);
    remove_tree(folder);
}

static void test_find(void)
{
    static const Language absent = {.program = "no-such-program-of-ours"};
    static const Language folder = {.program = "../../usr/bin"};
    g_autofree char *sh = language_find(language_by_name("sh"));

    g_assert_cmpstr(sh, ==, "/usr/bin/sh");
    g_assert_null(language_find(&absent));
    g_assert_null(language_find(&folder));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/languages/table", test_table);
    g_test_add_func("/languages/by-name", test_by_name);
    g_test_add_func("/languages/by-file", test_by_file);
    g_test_add_func("/languages/prepare", test_prepare);
    g_test_add_func("/languages/script-name", test_script_name);
    g_test_add_func("/languages/find", test_find);
    g_test_add_func("/languages/javascript-modules", test_javascript_modules);
    g_test_add_func("/languages/compile-failure", test_compile_failure);
    for (const Language *const *at = languages_all(); *at; at++) {
        g_autofree char *path = g_strdup_printf("/languages/version/%s", (*at)->name);

        g_test_add_data_func(path, *at, test_version);
    }
    for (guint i = 0; i < G_N_ELEMENTS(samples); i++) {
        g_autofree char *path = g_strdup_printf("/languages/sample/%s-%u", samples[i].language, i);

        g_test_add_data_func(path, &samples[i], test_sample);
    }
    return g_test_run();
}
