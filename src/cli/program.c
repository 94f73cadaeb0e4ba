#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

static const char *const base_environment[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/home/user",
    "USER=user",
    "LANG=C.UTF-8",
    "TMPDIR=/tmp",
};

#define DEFAULT_LANGUAGE "python"

static gboolean bad_input(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static gboolean bad_input(GError **error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, HUTCH_ERROR, HUTCH_ERROR_BAD_INPUT, text);
    return FALSE;
}

/* Reads `fd` to its end into program->source. `name` is for errors. */
static gboolean read_source(Program *program, int fd, const char *name, gsize expected_size,
                            GError **error)
{
    enum { FIRST = 64 * 1024 };
    gsize capacity = expected_size ? expected_size + 1 : FIRST;
    program->source = g_malloc(capacity);
    for (;;) {
        ssize_t n = fd_read_full(fd, program->source + program->source_size,
                                 capacity - program->source_size);
        if (n < 0)
            return bad_input(error, "cannot read %s: %s", name, g_strerror((int)-n));
        program->source_size += (gsize)n;
        if (program->source_size > PROGRAM_SOURCE_MAX)
            return bad_input(
                error,
                "%s is larger than 16 MiB, the most a script may have; put data into a file (--input)",
                name);
        if (program->source_size < capacity)
            return TRUE;
        capacity *= 2;
        program->source = g_realloc(program->source, capacity);
    }
}

static gboolean read_script_file(Program *program, const char *path, GError **error)
{
    /* Non-blocking, because a fifo would hold us here before we could see what it is. */
    autofd fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return bad_input(error, "cannot open the script \"%s\": %s", path, g_strerror(errno));
    struct stat st;
    if (fstat(fd, &st) < 0)
        return bad_input(error, "cannot look at the script \"%s\": %s", path, g_strerror(errno));
    if (!S_ISREG(st.st_mode))
        return bad_input(
            error,
            "the script \"%s\" is no regular file; to give code through a pipe, write - and use standard input",
            path);
    gsize size = (gsize)CLAMP(st.st_size, 0, PROGRAM_SOURCE_MAX + 1);
    g_autofree char *name = g_strdup_printf("the script \"%s\"", path);
    return read_source(program, fd, name, size, error);
}

static gboolean read_program(Program *program, const Options *options, GError **error)
{
    switch (options->program) {
    case PROGRAM_SCRIPT: return read_script_file(program, options->text, error);
    case PROGRAM_STDIN:
        return read_source(program, STDIN_FILENO, "the code on standard input", 0, error);
    default:
        program->source_size = strlen(options->text);
        program->source = g_strdup(options->text);
        return TRUE;
    }
}

static gboolean find_language(Program *program, const Options *options, GError **error)
{
    if (options->language) {
        program->language = language_by_name(options->language);
        if (!program->language)
            g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_USAGE,
                        "--language: \"%s\" is not known; `hutch languages` lists those that are",
                        options->language);
        return program->language != NULL;
    }
    const char *name = options->program == PROGRAM_SCRIPT ? options->text : "";
    program->language = language_by_file(name, program->source, program->source_size);
    if (!program->language && options->program != PROGRAM_SCRIPT)
        program->language = language_by_name(DEFAULT_LANGUAGE);
    if (!program->language)
        g_set_error(
            error, HUTCH_ERROR, HUTCH_ERROR_USAGE,
            "cannot tell the language of \"%s\" by its name or its #! line; say it with --language NAME "
            "(`hutch languages` lists them)",
            options->text);
    return program->language != NULL;
}

static gboolean check_toolchain(const Language *language, GError **error)
{
    g_autofree char *path = language_find(language);
    if (!path)
        g_set_error(error, HUTCH_ERROR, HUTCH_ERROR_SANDBOX,
                    "%s cannot run here: %s is not installed; install the package %s",
                    language->name, language->program, language->package);
    return path != NULL;
}

static gboolean load_script(Program *program, const Options *options, GError **error)
{
    if (!read_program(program, options, error) || !find_language(program, options, error) ||
        !check_toolchain(program->language, error))
        return FALSE;
    g_autofree char *raw = g_steal_pointer(&program->source);
    g_autoptr(GError) failed = NULL;
    program->source = language_prepare_source(program->language, raw, program->source_size,
                                              &program->source_size, &failed);
    if (!program->source) {
        program->rejected = g_strdup(failed->message);
        return TRUE;
    }
    const char *file_name = options->program == PROGRAM_SCRIPT ? options->text : NULL;
    program->script_name =
        language_script_name(program->language, file_name, program->source, program->source_size);
    for (const char *const *word = program->language->run; *word; word++)
        g_ptr_array_add(program->argv, (void *)*word);
    return TRUE;
}

static void put_variable(GPtrArray *env, const char *variable)
{
    gsize name_size = strcspn(variable, "=") + 1;
    for (guint i = 0; i < env->len; i++) {
        if (strncmp(env->pdata[i], variable, name_size) == 0) {
            g_free(env->pdata[i]);
            env->pdata[i] = g_strdup(variable);
            return;
        }
    }
    g_ptr_array_add(env, g_strdup(variable));
}

GPtrArray *program_environment(const Language *language, const GPtrArray *added)
{
    GPtrArray *env = g_ptr_array_new_with_free_func(g_free);
    for (gsize i = 0; i < G_N_ELEMENTS(base_environment); i++)
        put_variable(env, base_environment[i]);
    for (const char *const *variable = language ? language->env : NULL; variable && *variable;
         variable++)
        put_variable(env, *variable);
    for (guint i = 0; added && i < added->len; i++)
        put_variable(env, added->pdata[i]);
    g_ptr_array_add(env, NULL);
    return env;
}

gboolean program_load(Program *program, const Options *options, GError **error)
{
    *program = (Program){.argv = g_ptr_array_new()};
    if (options->program != PROGRAM_COMMAND && !load_script(program, options, error))
        return FALSE;
    for (const char *const *word = options->arguments; *word; word++)
        g_ptr_array_add(program->argv, (void *)*word);
    g_ptr_array_add(program->argv, NULL);
    program->env = program_environment(program->language, options->env);
    return TRUE;
}

void program_clear(Program *program)
{
    g_clear_pointer(&program->script_name, g_free);
    g_clear_pointer(&program->source, g_free);
    g_clear_pointer(&program->rejected, g_free);
    g_clear_pointer(&program->argv, g_ptr_array_unref);
    g_clear_pointer(&program->env, g_ptr_array_unref);
}

char *program_new_id(void)
{
    enum { RANDOM_BYTES = 12 };
    guint8 random[RANDOM_BYTES];
    /* Never short below 256 bytes once the kernel's pool is ready, which it waits for
     * (getrandom(2)). */
    while (getrandom(random, sizeof random, 0) != sizeof random)
        continue;
    GString *id = g_string_new("exe_");
    for (gsize i = 0; i < sizeof random; i++)
        g_string_append_printf(id, "%02x", random[i]);
    return g_string_free(id, FALSE);
}
