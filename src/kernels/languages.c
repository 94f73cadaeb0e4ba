#include "kernels/languages.h"

/* The rows. Each was run with its samples (test-languages.c) in Debian 12. A recipe has the
 * script's path in "$0" and the arguments in "$@"; it ends in exec, so that signals and the exit
 * status are the program's own. */

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define COMPILED(compile, libraries)                                                               \
    LIST("sh", "-c", compile " -o \"$0.out\" \"$0\" " libraries "&& exec \"$0.out\" \"$@\"",       \
         "{script}")

/* Modules that code or its inputs bring are found in the workspace, although the script itself
 * is not in it. */
static const Language python = {
    .name = "python",
    .aliases = LIST("py", "python3"),
    .extensions = LIST("py", "pyw"),
    .program = "python3",
    .package = "python3",
    .version = LIST("python3", "--version"),
    .run = LIST("python3", "{script}"),
    .env = LIST("PYTHONPATH=/workspace", "PYTHONUNBUFFERED=1", "PYTHONUTF8=1"),
};

static const Language javascript = {
    .name = "javascript",
    .aliases = LIST("js", "node", "nodejs", "ecmascript"),
    .extensions = LIST("js", "mjs", "cjs"),
    .module_extension = "mjs",
    .program = "node",
    .package = "nodejs",
    .version = LIST("node", "--version"),
    .run = LIST("node", "{script}"),
    .env = LIST("NODE_PATH=/workspace/node_modules:/workspace:/usr/local/lib/node_modules:"
                "/usr/lib/node_modules:/usr/share/nodejs"),
};

static const Language bash = {
    .name = "bash",
    .aliases = LIST("shell"),
    .extensions = LIST("sh", "bash"), /* what is called .sh is seldom free of bash's own */
    .program = "bash",
    .package = "bash",
    .version = LIST("bash", "--version"),
    .run = LIST("bash", "{script}"),
    .crlf_to_lf = TRUE,
};

static const Language sh = {
    .name = "sh",
    .aliases = LIST("dash", "ash"),
    .extensions = LIST("sh"),
    .program = "sh",
    .package = "dash",
    /* dash tells none; which shell it is says more */
    .version = LIST("sh", "-c", "readlink -f \"$(command -v sh)\""),
    .run = LIST("sh", "{script}"),
    .crlf_to_lf = TRUE,
};

static const Language c = {
    .name = "c",
    .aliases = LIST("gcc"),
    .extensions = LIST("c"),
    .program = "gcc",
    .package = "gcc libc6-dev",
    .version = LIST("gcc", "--version"),
    .run = COMPILED("gcc -O2 -pthread -I.", "-lm "),
};

static const Language cpp = {
    .name = "c++",
    .aliases = LIST("cpp", "cxx", "g++"),
    .extensions = LIST("cpp", "cc", "cxx", "c++"),
    .program = "g++",
    .package = "g++",
    .version = LIST("g++", "--version"),
    .run = COMPILED("g++ -std=gnu++20 -O2 -pthread -I.", ""),
};

static const Language rust = {
    .name = "rust",
    .aliases = LIST("rs"),
    .extensions = LIST("rs"),
    .program = "rustc",
    .package = "rustc",
    .version = LIST("rustc", "--version"),
    .run = COMPILED("rustc --edition 2021 --crate-name program -O", ""),
};

static const Language go = {
    .name = "go",
    .aliases = LIST("golang"),
    .extensions = LIST("go"),
    .program = "go",
    .package = "golang-go",
    .version = LIST("go", "version"),
    .run = COMPILED("go build", ""),
    /* No network: what would be fetched is an error at once. */
    .env = LIST("GOPROXY=off", "GOTOOLCHAIN=local", "GOTELEMETRY=off"),
};

static const Language java = {
    .name = "java",
    .aliases = LIST("jdk"),
    .extensions = LIST("java"),
    /* `java Main.java` compiles in memory, which a runtime without compiler cannot. */
    .program = "javac",
    .package = "default-jdk-headless",
    .version = LIST("java", "--version"),
    .run = LIST("java", "-XX:+UseSerialGC", "{script}"),
    .env = LIST("CLASSPATH=/workspace"),
};

static const Language fortran = {
    .name = "fortran",
    .aliases = LIST("f90", "gfortran"),
    .extensions = LIST("f90", "f95", "f03", "f08", "f"),
    .program = "gfortran",
    .package = "gfortran",
    .version = LIST("gfortran", "--version"),
    .run = COMPILED("gfortran -O2 -J \"${0%/*}\"", ""),
};

static const Language perl = {
    .name = "perl",
    .aliases = LIST("pl"),
    .extensions = LIST("pl", "pm"),
    .program = "perl",
    .package = "perl",
    .version = LIST("perl", "-e", "print \"perl $^V\\n\""),
    .run = LIST("perl", "{script}"),
    .env = LIST("PERL5LIB=/workspace"),
};

static const Language ruby = {
    .name = "ruby",
    .aliases = LIST("rb"),
    .extensions = LIST("rb"),
    .program = "ruby",
    .package = "ruby",
    .version = LIST("ruby", "--version"),
    .run = LIST("ruby", "{script}"),
    .env = LIST("RUBYLIB=/workspace"),
};

static const Language php = {
    .name = "php",
    .aliases = LIST("php8"),
    .extensions = LIST("php"),
    .program = "php",
    .package = "php-cli",
    .version = LIST("php", "--version"),
    .run = LIST("php", "{script}"),
};

static const Language r = {
    .name = "r",
    .aliases = LIST("rscript"),
    .extensions = LIST("r"),
    .program = "Rscript",
    .package = "r-base-core",
    .version = LIST("Rscript", "--version"),
    .run = LIST("Rscript", "{script}"),
    .crlf_to_lf = TRUE,
};

static const Language lua = {
    .name = "lua",
    .aliases = LIST("lua5.4"),
    .extensions = LIST("lua"),
    .program = "lua",
    .package = "lua5.4",
    .version = LIST("lua", "-v"),
    .run = LIST("lua", "{script}"),
    .env = LIST("LUA_PATH=/workspace/?.lua;/workspace/?/init.lua;;"),
};

static const Language awk = {
    .name = "awk",
    .aliases = LIST("gawk", "mawk", "nawk"),
    .extensions = LIST("awk"),
    .program = "awk",
    .package = "mawk",
    .version = LIST("awk", "-W", "version"),
    .run = LIST("awk", "-f", "{script}", "--"),
    .crlf_to_lf = TRUE,
};

static const Language tcl = {
    .name = "tcl",
    .aliases = LIST("tclsh"),
    .extensions = LIST("tcl"),
    .program = "tclsh",
    .package = "tcl",
    .version = LIST("sh", "-c", "echo 'puts \"Tcl [info patchlevel]\"' | tclsh"),
    .run = LIST("tclsh", "{script}"),
};

static const Language ocaml = {
    .name = "ocaml",
    .aliases = LIST("ml"),
    .extensions = LIST("ml"),
    .program = "ocaml",
    .package = "ocaml-nox",
    .version = LIST("ocaml", "-version"),
    .run = LIST("ocaml", "{script}"),
};

static const Language scheme = {
    .name = "scheme",
    .aliases = LIST("guile"),
    .extensions = LIST("scm"),
    .program = "guile",
    .package = "guile-3.0",
    .version = LIST("guile", "--version"),
    .run = LIST("guile", "--no-auto-compile", "-s", "{script}"),
    .env = LIST("GUILE_LOAD_PATH=/workspace"),
};

const Language *const *languages_all(void)
{
    static const Language *const all[] = {
        &python, &javascript, &bash, &sh,   &c,   &cpp, &perl,    &ruby,  &php,    &r,
        &lua,    &go,         &java, &rust, &awk, &tcl, &fortran, &ocaml, &scheme, NULL,
    };

    return all;
}
