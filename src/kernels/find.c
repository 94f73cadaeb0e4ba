#include "kernels/languages.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gboolean list_has(const char *const *list, const char *name)
{
    for (; list && *list; list++) {
        if (g_ascii_strcasecmp(*list, name) == 0) {
            return TRUE;
        }
    }
    return FALSE;
}

const Language *language_by_name(const char *name)
{
    for (const Language *const *language = languages_all(); *language; language++) {
        if (g_ascii_strcasecmp((*language)->name, name) == 0 ||
            list_has((*language)->aliases, name)) {
            return *language;
        }
    }
    return NULL;
}

static const Language *language_by_extension(const char *extension)
{
    for (const Language *const *language = languages_all(); *language; language++) {
        if (list_has((*language)->extensions, extension)) {
            return *language;
        }
    }
    return NULL;
}

/* "python3.11", "lua5.4": the name without its version when no row has it with one. */
static const Language *language_by_interpreter(const char *name)
{
    const Language *language = language_by_name(name);
    g_autofree char *plain = g_strdup(name);
    gsize length = strlen(plain);

    while (length > 0 && (g_ascii_isdigit(plain[length - 1]) || strchr(".-", plain[length - 1]))) {
        length--;
    }
    plain[length] = '\0';
    return language || length == 0 ? language : language_by_name(plain);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* What env(1) is told to run: behind its options and its NAME=VALUE. */
static const char *behind_env(char **words)
{
    for (; *words; words++) {
        const char *word = *words;

        if (g_str_has_prefix(word, "-S") && word[2]) {
            word += 2; /* -Spython3 */
        } else if ((strcmp(word, "-u") == 0 || strcmp(word, "-C") == 0) && words[1]) {
            words++; /* with an argument of its own */
            continue;
        } else if (*word == '-') {
            continue;
        }
        if (*word && !strchr(word, '=')) {
            return word;
        }
    }
    return NULL;
}

static const char BYTE_ORDER_MARK[] = "\xef\xbb\xbf";

static const Language *language_by_first_line(const char *source, gsize size)
{
    enum { LINE_MAX_BYTES = 256 }; /* the kernel's own bound (binfmt_script) */
    g_autofree char *line = g_strndup(source, MIN(size, LINE_MAX_BYTES)); /* ends at a NUL too */
    g_auto(GStrv) words = NULL;
    const char *text = line;
    const char *program;

    if (g_str_has_prefix(text, BYTE_ORDER_MARK)) {
        text += strlen(BYTE_ORDER_MARK);
    }
    if (!g_str_has_prefix(text, "#!")) {
        return NULL;
    }
    line[strcspn(line, "\r\n")] = '\0';
    words = g_strsplit_set(text + 2, " \t", -1);
    for (char **word = words; *word; word++) {
        if (**word) {
            program = base_name(*word);
            if (strcmp(program, "env") == 0) {
                program = behind_env(word + 1);
            }
            return program ? language_by_interpreter(base_name(program)) : NULL;
        }
    }
    return NULL;
}

const Language *language_by_file(const char *file_name, const char *source, gsize source_size)
{
    const char *name = base_name(file_name);
    const char *dot = strrchr(name, '.');
    const Language *language = dot && dot != name ? language_by_extension(dot + 1) : NULL;

    return language || !source ? language : language_by_first_line(source, source_size);
}

/* Whether the file is a program that is in the sandbox too. */
static gboolean is_program(const char *path)
{
    char real[PATH_MAX];
    struct stat status;

    return realpath(path, real) && g_str_has_prefix(real, "/usr/") && stat(real, &status) == 0 &&
           S_ISREG(status.st_mode) && (status.st_mode & 0111) != 0;
}

char *language_find(const Language *language)
{
    /* The sandbox's PATH, in its order; its /bin and /sbin are links into /usr. */
    static const char *const folders[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                          "/usr/bin",        "/sbin",          "/bin"};

    for (guint i = 0; i < G_N_ELEMENTS(folders); i++) {
        g_autofree char *path = g_build_filename(folders[i], language->program, NULL);

        if (is_program(path)) {
            return g_steal_pointer(&path);
        }
    }
    return NULL;
}
