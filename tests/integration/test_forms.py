#!/usr/bin/python3
"""How code is given to `hutch run`: forms, languages, exit codes, usage errors, and the two verbs that only tell."""
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import HutchTest, hutch, run  # noqa: E402

C_HELLO = '#include <stdio.h>\nint main(int n, char **a) { printf("c %d %s\\n", n, a[n - 1]); return 5; }\n'
CPP_HELLO = ('#include <iostream>\n#include <vector>\nint main(int n, char **a) { std::vector<int> v{1, 2};\n'
             'std::cout << "c++ " << v.size() << " " << a[n - 1] << std::endl; return 6; }\n')
HELLO = {
    "python": ("py", "import sys\nprint('python', sys.argv[1:])\nsys.exit(3)\n", "python ['x y']\n", 3, "python3"),
    "javascript": ("js", "console.log('js', process.argv.slice(2)); process.exit(4)\n", "js [ 'x y' ]\n", 4, "node"),
    "bash": ("sh", "echo \"bash $# $1\"\nexit 2\n", "bash 1 x y\n", 2, "bash"),
    "c": ("c", C_HELLO, "c 2 x y\n", 5, "gcc"),
    "c++": ("cpp", CPP_HELLO, "c++ 2 x y\n", 6, "g++"),
}


class Forms(HutchTest):
    def test_script_with_arguments(self):
        script = self.path("report.py", "import sys\nprint(sys.argv[1:])\n")
        self.assertEqual(self.run_ok(script, "--n", "5", "--json", "-c", "").stdout,
                         "['--n', '5', '--json', '-c', '']\n")

    def test_options_end_at_the_script(self):
        script = self.path("a.py", "import sys\nprint(sys.argv[1:])\n")
        self.assertEqual(self.run_ok("--timeout", "20", script, "--timeout", "nonsense").stdout,
                         "['--timeout', 'nonsense']\n")

    def test_the_script_keeps_its_name_and_stays_out_of_the_workspace(self):
        script = self.path("my report.py", "import os, sys\nprint(os.path.basename(sys.argv[0]), os.getcwd(), os.listdir('.'))\n")
        self.assertEqual(self.run_ok(script).stdout, "my report.py /workspace []\n")

    def test_code(self):
        self.assertEqual(self.run_ok("-c", "import sys; print(6 * 7, sys.argv[1:])", "a", "-b", "--json").stdout,
                         "42 ['a', '-b', '--json']\n")

    def test_code_and_name(self):
        self.assertEqual(self.run_ok("-c", "print(__name__)").stdout, "__main__\n")

    def test_standard_input_as_script(self):
        self.assertEqual(self.run_ok("-", "a", "b", stdin=b"import sys\nprint('from stdin', sys.argv[1:])\n").stdout,
                         "from stdin ['a', 'b']\n")

    def test_standard_input_as_script_in_another_language(self):
        self.assertEqual(self.run_ok("--language", "bash", "-", stdin=b"echo $((6 * 7))\n").stdout, "42\n")

    def test_command(self):
        self.assertEqual(self.run_ok("--", "printf", "%s|", "a b", "", "--json").stdout, "a b||--json|")

    def test_command_of_the_issue(self):
        out = self.run_ok("--", "ls", "-la", "/").stdout
        self.assertIn("workspace", out)
        self.assertNotIn("oldroot", out)

    def test_command_that_is_not_there(self):
        result = run("--", "no-such-program-here")
        self.assertNotEqual(result.code, 0)
        self.assertIn("no-such-program-here", result.stderr)

    def test_code_longer_than_an_argument_may_be(self):
        script = self.path("long.py", "x = '%s'\nprint(len(x))\n" % ("a" * 300000))
        self.assertEqual(self.run_ok(script).stdout, "300000\n")

    def test_empty_code_in_every_form(self):
        for argv, stdin in ((["-c", ""], None), (["-"], b""), ([self.path("e.py", "")], None)):
            with self.subTest(argv=argv):
                result = self.run_ok(*argv, stdin=stdin)
                self.assertEqual((result.out, result.err), (b"", b""))

    def test_windows_line_ends_in_every_form(self):
        code = "echo first\r\n\r\nif true; then\r\n  echo second\r\nfi\r\n"
        for argv, stdin in ((["-c", code], None), (["-"], code.encode()), ([self.path("w.sh", code)], None)):
            with self.subTest(argv=argv):
                result = self.run_ok("--language", "bash", *argv, stdin=stdin)
                self.assertEqual((result.stdout, result.stderr), ("first\nsecond\n", ""))

    def test_byte_order_mark_in_every_form(self):
        code = "\ufeffprint('bom ok')\n"
        for argv, stdin in ((["-c", code], None), (["-"], code.encode()), ([self.path("b.py", code)], None)):
            with self.subTest(argv=argv):
                self.assertEqual(self.run_ok(*argv, stdin=stdin).stdout, "bom ok\n")

    def test_code_can_import_what_the_workspace_holds(self):
        self.path("lib/helper.py", "def answer():\n    return 42\n")
        self.assertEqual(self.run_ok("--input", self.path("lib"), "-c",
                                     "import inputs.lib.helper as h; print(h.answer())").stdout, "42\n")

    def test_works_from_any_folder_and_by_a_relative_name(self):
        self.path("here/s.py", "print('relative')\n")
        self.assertEqual(self.run_ok("here/s.py", cwd=self.dir).stdout, "relative\n")

    def test_a_script_whose_name_begins_with_a_dash(self):
        self.path("-odd.py", "print('odd')\n")
        self.assertEqual(self.run_ok("./-odd.py", cwd=self.dir).stdout, "odd\n")

    def test_runs_through_a_link_to_the_program(self):
        os.symlink(hutch_test.HUTCH, self.path("hutch-by-link"))
        done = subprocess.run([self.path("hutch-by-link"), "run", "-c", "print('by link')"], capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=30 * hutch_test.SLOWNESS)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"by link\n", b""))


class Languages(HutchTest):
    def check(self, language, argv, want):
        _ext, _code, out, code, program = HELLO[language]
        self.need_program(program)
        result = run(*argv)
        self.assertEqual((result.code, result.stdout, result.stderr), (code, out, ""), "\n%s" % result)

    def test_by_name_with_code(self):
        for language, (_, code, out, _, _) in HELLO.items():
            with self.subTest(language=language):
                self.check(language, ["--language", language, "-c", code, "x y"], out)

    def test_by_file_name(self):
        for language, (ext, code, out, _, _) in HELLO.items():
            with self.subTest(language=language):
                self.check(language, [self.path("hello." + ext, code), "x y"], out)

    def test_json_names_the_language(self):
        for language, (ext, code, _, exit_code, program) in HELLO.items():
            with self.subTest(language=language):
                self.need_program(program)
                got = run("--json", self.path("hello." + ext, code), "x").json
                self.assertEqual((got["language"], got["status"], got["exit_code"]), (language, "error", exit_code))

    def test_by_the_first_line(self):
        script = self.path("tool", "#!/bin/bash\necho bash ${BASH_VERSION:+yes}\n", 0o755)
        self.assertEqual(self.run_ok(script).stdout, "bash yes\n")

    def test_the_option_wins_over_the_name(self):
        script = self.path("not-python.py", "echo bash ${BASH_VERSION:+yes}\n")
        self.assertEqual(self.run_ok("--language", "bash", script).stdout, "bash yes\n")

    def test_compile_errors_come_back(self):
        for language, program in (("c", "gcc"), ("c++", "g++")):
            with self.subTest(language=language):
                self.need_program(program)
                got = run("--json", "--language", language, "-c", "int main() { return undeclared_thing; }").json
                self.assertEqual(got["status"], "error")
                self.assertNotEqual(got["exit_code"], 0)
                self.assertIn("undeclared_thing", got["stderr"])

    def test_standard_input_of_a_compiled_program(self):
        self.need_program("gcc")
        code = '#include <stdio.h>\nint main(void) { int a, b; if (scanf("%d %d", &a, &b) != 2) return 1; printf("%d\\n", a + b); }\n'
        self.assertEqual(self.run_ok("--language", "c", "-c", code, stdin=b"20 22").stdout, "42\n")

    def test_nothing_of_the_compilation_is_collected(self):
        self.need_program("gcc")
        got = run("--json", "--out", self.path("out"), self.path("hello.c", C_HELLO)).json
        self.assertEqual(got["artifacts"], [])

    def test_unknown_language(self):
        self.usage_error("--language", "cobol-74", "-c", "x", naming="cobol-74")

    def test_unknown_extension(self):
        result = run(self.path("data.xyz", "hello\n"))
        self.assertEqual(result.code, 2, "\n%s" % result)
        self.assertIn("--language", result.stderr)


class ExitCodes(HutchTest):
    def test_own_codes(self):
        for code in (0, 1, 3, 77, 255):
            with self.subTest(code=code):
                self.assertEqual(run("-c", "import sys; sys.exit(%d)" % code).code, code)

    def test_codes_that_hutch_uses_itself_are_told_apart(self):
        for code in (2, 124, 125, 137):
            with self.subTest(code=code):
                result = run("-c", "import sys; sys.exit(%d)" % code)
                self.assertEqual((result.code, result.err), (code, b""))
                got = run("--json", "-c", "import sys; sys.exit(%d)" % code)
                self.assertEqual((got.code, got.json["status"], got.json["exit_code"]), (code, "error", code))

    def test_signals(self):
        for name in ("SIGSEGV", "SIGABRT", "SIGTERM", "SIGKILL", "SIGUSR1"):
            number = getattr(signal, name)
            with self.subTest(signal=name):
                code = "import os; os.kill(os.getpid(), %d)" % number
                self.assertEqual(run("-c", code).code, 128 + number)
                result = run("--json", "-c", code)
                got = result.json
                self.assertEqual((result.code, got["status"], got["signal"], got["exit_code"], got["reason"]),
                                 (128 + number, "crashed", name, None, None))

    def test_exception(self):
        result = run("-c", "raise ValueError('odd value')")
        self.assertEqual(result.code, 1)
        self.assertIn("ValueError: odd value", result.stderr)
        self.assertEqual(result.own_lines, [])

    def test_timeout_is_124(self):
        result = run("--timeout", "0.5", "-c", "import time; time.sleep(30)")
        self.assertEqual(result.code, 124, "\n%s" % result)

    def test_json_has_the_same_codes(self):
        self.assertEqual(run("--json", "-c", "import sys; sys.exit(3)").code, 3)
        self.assertEqual(run("--json", "--timeout", "0.5", "-c", "import time; time.sleep(30)").code, 124)
        self.assertEqual(run("--json", "-c", "pass").code, 0)


class Usage(HutchTest):
    def test_options_are_named(self):
        for argv, naming in (
                (["--bogus", "-c", "pass"], "--bogus"),
                (["--memory", "banana", "-c", "pass"], "--memory"),
                (["--memory", "0", "-c", "pass"], "--memory"),
                (["--memory", "-5M", "-c", "pass"], "--memory"),
                (["--memory", "99999999999999999999G", "-c", "pass"], "--memory"),
                (["--memory", "12Q", "-c", "pass"], "--memory"),
                (["--timeout", "soon", "-c", "pass"], "--timeout"),
                (["--timeout", "-1", "-c", "pass"], "--timeout"),
                (["--timeout", "0", "-c", "pass"], "--timeout"),
                (["--timeout", "nan", "-c", "pass"], "--timeout"),
                (["--timeout", "inf", "-c", "pass"], "--timeout"),
                (["--timeout", "1s5", "-c", "pass"], "--timeout"),
                (["--pids", "0", "-c", "pass"], "--pids"),
                (["--pids", "many", "-c", "pass"], "--pids"),
                (["--pids", "18446744073709551617", "-c", "pass"], "--pids"),
                (["--cpus", "0", "-c", "pass"], "--cpus"),
                (["--cpus", "x", "-c", "pass"], "--cpus"),
                (["--disk", "", "-c", "pass"], "--disk"),
                (["--max-output", "1e6", "-c", "pass"], "--max-output"),
                (["--env", "NOEQUALS", "-c", "pass"], "--env"),
                (["--env", "=x", "-c", "pass"], "--env"),
                (["--env", "A B=x", "-c", "pass"], "--env"),
                (["--input", "/no/such/file", "-c", "pass"], "/no/such/file"),
                (["-c"], "-c"),
                (["--language"], "--language"),
                (["--timeout"], "--timeout"),
        ):
            with self.subTest(argv=argv):
                self.usage_error(*argv, naming=naming)

    def test_nothing_to_run(self):
        self.usage_error(naming="script")
        self.usage_error("--", naming="--")

    def test_a_script_that_is_not_there(self):
        self.usage_error(self.path("absent.py"), naming="absent.py")

    def test_a_folder_as_script(self):
        os.mkdir(self.path("folder.py"))
        self.usage_error(self.path("folder.py"), naming="folder.py")

    def test_a_fifo_as_script_does_not_hang(self):
        os.mkfifo(self.path("pipe.py"))
        self.usage_error(self.path("pipe.py"), naming="pipe.py", timeout=5)

    def test_out_that_is_a_file(self):
        result = run("--out", self.path("taken", "x"), "-c", "open('a', 'w').write('b')")
        self.assertIn(result.code, (2, 125), "\n%s" % result)
        self.assertIn("taken", result.stderr)

    def test_unknown_verb(self):
        result = hutch("fly")
        self.assertEqual(result.code, 2)
        self.assertIn("fly", result.stderr)

    def test_no_verb(self):
        self.assertEqual(hutch().code, 2)

    def test_help(self):
        for argv in (["--help"], ["run", "--help"], ["help"]):
            with self.subTest(argv=argv):
                result = hutch(*argv)
                self.assertEqual((result.code, result.err), (0, b""), "\n%s" % result)
        out = hutch("run", "--help").stdout
        for option in ("--language", "--timeout", "--memory", "--pids", "--cpus", "--disk", "--max-output", "--env",
                       "--input", "--out", "--keep", "--json", "--best-effort", "--timing", "--state-dir"):
            self.assertIn(option, out)
        self.assertNotIn("--fault", out)

    def test_version(self):
        result = hutch("--version")
        self.assertEqual(result.code, 0)
        self.assertRegex(result.stdout, r"\d+\.\d+")


class Telling(HutchTest):
    def test_languages(self):
        out = self.ok(hutch("languages")).stdout
        for language in ("python", "javascript", "bash", "c", "c++"):
            self.assertRegex(out, r"(?m)^\s*%s(?!\S)" % re.escape(language))
        self.assertIn("3.", out)

    def test_doctor(self):
        result = hutch("doctor")
        self.assertIn(result.code, (0, 1), "\n%s" % result)
        for word in ("memory", "pids", "disk", "cgroup", "seccomp"):
            self.assertIn(word, result.stdout.lower())


if __name__ == "__main__":
    hutch_test.main()
