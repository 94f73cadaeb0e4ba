/* hutch, the command line. HUTCH_VERSION comes from the build.
 *
 *   main.c                 the table of commands, --help, errors
 *   options.c, values.c    the table of options; sizes, durations
 *   run.c                  one execution, from the options to the exit status
 *   program.c              what is run: script, language, environment
 *   streams.c              where output goes: live, or kept for JSON
 *   result.c               how it came out, as JSON and as lines
 *   steps.c                --timing, and the faults of tests
 *   doctor.c, host.c       what this host can enforce: the table of checks, how each is found out
 *   languages-command.c    what can run here
 *   text.c                 bytes of strangers made fit for JSON and terminals */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/steps.h"
#include "cli/text.h"

enum { EXIT_USAGE = 2 };

static const struct {
    const char *name;
    CommandBit bit;
    const char *usage;
    const char *summary;
    const char *more; /* of its --help */
    int (*run)(const Options *options, GError **error);
} commands[] = {
    {"run", COMMAND_RUN,
     "hutch run [OPTIONS] SCRIPT [ARGS...] | - [ARGS...] | -c CODE [ARGS...] | -- COMMAND...",
     "run a script, code or a command in a fresh sandbox",
     "  SCRIPT                 a file; what follows it are its arguments\n"
     "  -                      the code comes from standard input\n"
     "  -c CODE                the code itself\n"
     "  -- COMMAND...          a command, without an interpreter of ours\n\n",
     command_run},
    {"doctor", COMMAND_DOCTOR, "hutch doctor [OPTIONS]",
     "what this host can and cannot enforce, and what mends it", "", command_doctor},
    {"languages", COMMAND_LANGUAGES, "hutch languages [OPTIONS]",
     "what can run here, with versions", "", command_languages},
};

static const char exit_codes_help[] =
    "\nExit status: the program's own (1: its source was rejected); 128+N: signal N ended it, or hutch got it;\n"
    "124: timeout; 137 and a line that names the limit: killed by it; 126, 127: the command cannot be\n"
    "executed, is not found; 141: the reader of the output left; 125: hutch failed; 2: wrong usage.\n";

static void print_help(FILE *out)
{
    fputs("hutch runs code that nobody vouches for in a sandbox of its own.\n\n", out);
    for (gsize i = 0; i < G_N_ELEMENTS(commands); i++)
        fprintf(out, "  hutch %-16s %s\n", commands[i].name, commands[i].summary);
    fputs("\n  hutch COMMAND --help   the options of a command\n"
          "  hutch --version        the version\n\n"
          "  hutch run -c 'print(6 * 7)'\n"
          "  hutch run --input data.csv --out results report.py inputs/data.csv\n",
          out);
}

static void print_command_help(gsize index)
{
    printf("%s\n\n%s.\n\n%s", commands[index].usage, commands[index].summary, commands[index].more);
    options_print_help(stdout, commands[index].bit);
    if (commands[index].bit == COMMAND_RUN)
        fputs(exit_codes_help, stdout);
}

static int report(const GError *error)
{
    say("%s", error->message);
    return hutch_error_exit_status(error);
}

static int run_command(gsize index, const char *const *argv)
{
    g_auto(Options) options;
    g_autoptr(GError) error = NULL;
    options_init(&options);
    const char *state_dir = g_getenv("HUTCH_STATE_DIR");
    if (state_dir && *state_dir)
        options.sandbox.state_dir = state_dir;
    if (!options_parse(&options, commands[index].bit, argv, &error))
        return report(error);
    if (options.help) {
        print_command_help(index);
        return 0;
    }
    steps_begin(options.sandbox.fault);
    step_done("parse");
    int status = commands[index].run(&options, &error);
    return error ? report(error) : status;
}

static int run_word(const char *const *argv)
{
    const char *word = argv[0];
    for (gsize i = 0; word && i < G_N_ELEMENTS(commands); i++) {
        if (g_str_equal(word, commands[i].name))
            return run_command(i, argv);
    }
    if (!word) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (g_str_equal(word, "--help") || g_str_equal(word, "-h") || g_str_equal(word, "help")) {
        print_help(stdout);
        return 0;
    }
    if (g_str_equal(word, "--version")) {
        puts("hutch " HUTCH_VERSION);
        return 0;
    }
    say("unknown %s \"%s\"; hutch --help lists the commands", word[0] == '-' ? "option" : "command",
        word);
    return EXIT_USAGE;
}

/* A descriptor 0, 1 or 2 that is closed would be the next file that is opened. */
static void open_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", O_RDWR);
    }
}

int main(int argc, char **argv)
{
    open_standard_descriptors();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit of the caller's is an error like any other */
    int status = run_word((const char *const *)argv + MIN(argc, 1));
    /* What --help and the lists print goes through stdio: a full disk must not pass for success. */
    if (fflush(stdout) != 0 && status == 0) {
        if (errno == EPIPE)
            return EXIT_SIGNAL_BASE + SIGPIPE; /* the reader has what it wanted */
        say("cannot write to standard output");
        return hutch_error_exit_status(NULL);
    }
    return status;
}
