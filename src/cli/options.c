#include "cli/options.h"

#include <string.h>

#include "cli/values.h"

#define FIELD(member) offsetof(Options, member)
#define LIMIT(kind)   FIELD(sandbox.limits[kind].value), FIELD(sandbox.limits[kind].asked)

enum {
    NO_FIELD = 0,
    ALL_COMMANDS = COMMAND_RUN | COMMAND_DOCTOR | COMMAND_LANGUAGES,
};

#define KIB ((guint64)1 << 10)
#define MIB ((guint64)1 << 20)

typedef struct {
    const char *name;
    const char *argument; /* NULL: a flag */
    ValueType type;
    guint commands;
    const char *help; /* NULL: not shown */
    guint64 minimum, maximum;
    guint64 fallback; /* 0: the limits' defaults are the backend's */
    gsize field;
    gsize asked; /* a gboolean that says that the option was given, or NO_FIELD */
} OptionRow;

/* clang-format off */
/* Every option of every command. Bounds are there against slips of the keyboard; those of limits are the backend's. */
static const OptionRow rows[] = {
    {"language", "NAME", VALUE_TEXT, COMMAND_RUN,
     "python, javascript, bash, c, …; else by file name or #! line; -c and -: python",
     0, 0, 0, FIELD(language), NO_FIELD},
    {"timeout", "SECONDS", VALUE_SECONDS, COMMAND_RUN,
     "wall-clock time; then TERM, and KILL two seconds later",
     1, 86400 * (guint64)1000, 60 * 1000, FIELD(timeout_ms), NO_FIELD},
    {"memory", "SIZE", VALUE_SIZE, COMMAND_RUN,
     "memory; there is no swap",
     0, 0, 0, LIMIT(LIMIT_MEMORY)},
    {"pids", "NUMBER", VALUE_COUNT, COMMAND_RUN,
     "processes and threads",
     0, 0, 0, LIMIT(LIMIT_PIDS)},
    {"cpus", "NUMBER", VALUE_CPUS, COMMAND_RUN,
     "processors; fractions are fine",
     0, 0, 0, LIMIT(LIMIT_CPU)},
    {"disk", "SIZE", VALUE_SIZE, COMMAND_RUN,
     "space in /workspace",
     0, 0, 0, LIMIT(LIMIT_DISK)},
    {"max-output", "SIZE", VALUE_SIZE, COMMAND_RUN,
     "output kept: first and last half; at 16 times of it the program is killed",
     KIB, 64 * MIB, 8 * MIB, FIELD(output_bytes), NO_FIELD},
    {"env", "NAME=VALUE", VALUE_ENV, COMMAND_RUN,
     "a variable of the program; several times",
     0, 0, 0, FIELD(env), NO_FIELD},
    {"input", "PATH", VALUE_LIST, COMMAND_RUN,
     "a file or folder to put under inputs/; several times",
     0, 0, 0, FIELD(inputs), NO_FIELD},
    {"out", "DIR", VALUE_TEXT, COMMAND_RUN,
     "copy what the program made in /workspace to DIR",
     0, 0, 0, FIELD(out), NO_FIELD},
    {"keep", "GLOB", VALUE_LIST, COMMAND_RUN,
     "collect also caches, dot files and tmp/ of this name; several times",
     0, 0, 0, FIELD(keep), NO_FIELD},
    {"max-files", "NUMBER", VALUE_COUNT, COMMAND_RUN,
     "files copied at most; the first ones by name",
     1, 100000, 64, FIELD(max_files), FIELD(max_files_asked)},
    {"json", NULL, VALUE_FLAG, ALL_COMMANDS,
     "print one JSON object instead",
     0, 0, 0, FIELD(json), NO_FIELD},
    {"best-effort", NULL, VALUE_FLAG, COMMAND_RUN,
     "run also when an asked limit cannot be enforced, and say so",
     0, 0, 0, FIELD(sandbox.best_effort), NO_FIELD},
    {"timing", NULL, VALUE_FLAG, COMMAND_RUN,
     "say on standard error where the time went",
     0, 0, 0, FIELD(sandbox.timing), NO_FIELD},
    {"state-dir", "DIR", VALUE_TEXT, ALL_COMMANDS,
     "where records of running sandboxes are kept",
     0, 0, 0, FIELD(sandbox.state_dir), NO_FIELD},
    {"fault", "WHO@STEP", VALUE_TEXT, COMMAND_RUN,
     NULL,
     0, 0, 0, FIELD(sandbox.fault), NO_FIELD},
    {"help", NULL, VALUE_FLAG, ALL_COMMANDS,
     "this text",
     0, 0, 0, FIELD(help), NO_FIELD},
};
/* clang-format on */

static void *field_of(const Options *options, gsize offset)
{
    return (char *)options + offset;
}

void options_init(Options *options)
{
    *options = (Options){.program = PROGRAM_NONE};
    sandbox_spec_init(&options->sandbox);
    options->env = g_ptr_array_new();
    options->inputs = g_ptr_array_new();
    options->keep = g_ptr_array_new();
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        if (rows[i].fallback)
            *(guint64 *)field_of(options, rows[i].field) = rows[i].fallback;
    }
}

void options_clear(Options *options)
{
    g_clear_pointer(&options->env, g_ptr_array_unref);
    g_clear_pointer(&options->inputs, g_ptr_array_unref);
    g_clear_pointer(&options->keep, g_ptr_array_unref);
}

static gboolean usage_error(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static gboolean usage_error(GError **error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, HUTCH_ERROR, HUTCH_ERROR_USAGE, text);
    return FALSE;
}

/* How many letters have to be changed, added or taken away to make `b` of `a` (Levenshtein). */
static guint edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    gsize size = strlen(b);
    guint row[LONGEST + 1];
    if (size > LONGEST || strlen(a) > LONGEST)
        return LONGEST;
    for (guint i = 0; i <= size; i++)
        row[i] = i;
    for (guint line = 1; *a; a++, line++) {
        guint diagonal = row[0];
        row[0] = line;
        for (guint i = 1; i <= size; i++) {
            guint changed = diagonal + (*a != b[i - 1]);
            diagonal = row[i];
            row[i] = MIN(changed, MIN(row[i], row[i - 1]) + 1);
        }
    }
    return row[size];
}

static gboolean unknown_option(const char *name, gsize size, CommandBit command, GError **error)
{
    enum { CLOSE = 2 };
    g_autofree char *given = g_strndup(name, size);
    const OptionRow *nearest = NULL;
    guint best = CLOSE + 1;
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        guint distance = edit_distance(given, rows[i].name);
        if (rows[i].help && (rows[i].commands & command) && distance < best) {
            nearest = &rows[i];
            best = distance;
        }
    }
    if (nearest)
        return usage_error(error, "unknown option --%s; did you mean --%s?", given, nearest->name);
    return usage_error(error, "unknown option --%s; --help lists the options", given);
}

static const OptionRow *find_row(const char *name, gsize size, CommandBit command)
{
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        if ((rows[i].commands & command) && strlen(rows[i].name) == size &&
            memcmp(rows[i].name, name, size) == 0)
            return &rows[i];
    }
    return NULL;
}

static LimitKind limit_of(const OptionRow *row)
{
    return (LimitKind)((row->field - FIELD(sandbox.limits[0].value)) / sizeof(Limit));
}

static gboolean set_number(Options *options, const OptionRow *row, const char *value,
                           GError **error)
{
    guint64 number;
    if (!value_parse(row->type, value, &number))
        return usage_error(error, "--%s: \"%s\" is not right; write %s", row->name, value,
                           value_example(row->type));
    guint64 least = row->minimum, most = row->maximum;
    if (most == 0) /* a limit: the bounds are the backend's */
        limit_bounds(limit_of(row), &least, &most);
    if (number < least || number > most) {
        g_autofree char *minimum = value_format(row->type, least);
        g_autofree char *maximum = value_format(row->type, most);
        return usage_error(error, "--%s: %s is too %s; it can be from %s to %s", row->name, value,
                           number < least ? "small" : "large", minimum, maximum);
    }
    *(guint64 *)field_of(options, row->field) = number;
    return TRUE;
}

static gboolean set_option(Options *options, const OptionRow *row, const char *value,
                           GError **error)
{
    void *field = field_of(options, row->field);
    switch (row->type) {
    case VALUE_FLAG: *(gboolean *)field = TRUE; break;
    case VALUE_ENV:
        if (!value_is_env(value)) /* the value may be a secret: not repeated */
            return usage_error(error, "--%s: write %s", row->name, value_example(row->type));
        g_ptr_array_add(*(GPtrArray **)field, (void *)value);
        break;
    case VALUE_LIST:
    case VALUE_TEXT:
        if (*value == '\0')
            return usage_error(error, "--%s: %s is missing", row->name, row->argument);
        if (row->type == VALUE_LIST)
            g_ptr_array_add(*(GPtrArray **)field, (void *)value);
        else
            *(const char **)field = value;
        break;
    default:
        if (!set_number(options, row, value, error))
            return FALSE;
    }
    if (row->asked != NO_FIELD)
        *(gboolean *)field_of(options, row->asked) = TRUE;
    return TRUE;
}

/* One long option at *argv ("--name", "--name=value"), and its value where that is a word of its
 * own. Moves *argv to the last word it took. */
static gboolean parse_long(Options *options, CommandBit command, const char *const **argv,
                           GError **error)
{
    const char *name = **argv + strlen("--");
    gsize size = strcspn(name, "=");
    const char *value = name[size] == '=' ? name + size + 1 : NULL;
    const OptionRow *row = find_row(name, size, command);
    if (!row)
        return unknown_option(name, size, command, error);
    if (row->type == VALUE_FLAG && value)
        return usage_error(error, "--%s takes no value", row->name);
    if (row->type != VALUE_FLAG && !value) {
        value = *++*argv;
        if (!value)
            return usage_error(error, "--%s: %s is missing; write %s", row->name, row->argument,
                               value_example(row->type));
    }
    return set_option(options, row, value, error);
}

static void set_program(Options *options, ProgramKind kind, const char *text,
                        const char *const *arguments)
{
    options->program = kind;
    options->text = text;
    options->arguments = arguments;
}

static gboolean parse_program(Options *options, const char *const *argv, GError **error)
{
    if (g_str_equal(argv[0], "-c")) {
        if (!argv[1])
            return usage_error(error, "-c: CODE is missing; write -c 'print(1)'");
        set_program(options, PROGRAM_CODE, argv[1], argv + 2);
    } else if (g_str_equal(argv[0], "--")) {
        if (!argv[1] || !argv[1][0])
            return usage_error(error, "--: COMMAND is missing; write -- ls -la /");
        set_program(options, PROGRAM_COMMAND, NULL, argv + 1);
    } else if (g_str_equal(argv[0], "-")) {
        set_program(options, PROGRAM_STDIN, NULL, argv + 1);
    } else {
        set_program(options, PROGRAM_SCRIPT, argv[0], argv + 1);
    }
    return TRUE;
}

/* What only makes sense together. */
static gboolean check_run(const Options *options, GError **error)
{
    if (options->help)
        return TRUE;
    if (options->program == PROGRAM_NONE)
        return usage_error(
            error,
            "nothing to run; give a script, -c CODE, - for code on standard input, or -- COMMAND");
    if (options->program == PROGRAM_COMMAND && options->language)
        return usage_error(error,
                           "--language says how to run a script; a command (after --) needs none");
    if (options->keep->len > 0 && !options->out && !options->json)
        return usage_error(error, "--keep says what to collect, which needs --out DIR or --json");
    if (options->max_files_asked && !options->out && !options->json)
        return usage_error(error,
                           "--max-files bounds what is collected, which needs --out DIR or --json");
    return TRUE;
}

gboolean options_parse(Options *options, CommandBit command, const char *const *argv,
                       GError **error)
{
    for (argv++; *argv; argv++) {
        const char *word = *argv;
        if (g_str_equal(word, "-h")) {
            options->help = TRUE;
        } else if (word[0] == '-' && word[1] == '-' && word[2] != '\0') {
            if (!parse_long(options, command, &argv, error))
                return FALSE;
        } else if (command != COMMAND_RUN) {
            return usage_error(error, "\"%s\" is not understood here; --help lists the options",
                               word);
        } else if (word[0] == '-' && word[1] != '\0' && word[1] != '-' &&
                   !g_str_equal(word, "-c")) {
            return usage_error(error, "unknown option %s; options are written --name, and -c CODE",
                               word);
        } else {
            if (!parse_program(options, argv, error))
                return FALSE;
            break;
        }
    }
    return command != COMMAND_RUN || check_run(options, error);
}

void options_print_help(FILE *out, CommandBit command)
{
    g_auto(Options) defaults;
    options_init(&defaults);
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        const OptionRow *row = &rows[i];
        if (!row->help || !(row->commands & command))
            continue;
        g_autofree char *left =
            g_strdup_printf("--%s %s", row->name, row->argument ? row->argument : "");
        fprintf(out, "  %-22s %s", left, row->help);
        if (row->maximum || row->asked != NO_FIELD) {
            g_autofree char *text =
                value_format(row->type, *(guint64 *)field_of(&defaults, row->field));
            fprintf(out, " (default %s)", text);
        }
        fputc('\n', out);
    }
}
