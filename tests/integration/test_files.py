#!/usr/bin/python3
"""--input and --out: what gets in, what is collected, what is left out and why."""
import hashlib
import os
import stat
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import HutchTest, run  # noqa: E402

SECRET = "secret-of-the-host-5c1e"


def tree(top):
    """{relative path as bytes: content, or what it is when it is no regular file}."""
    found = {}
    top = os.fsencode(top)
    for path, dirs, files in os.walk(top):
        for name in files + [d for d in dirs if os.path.islink(os.path.join(path, d))]:
            full = os.path.join(path, name)
            mode = os.lstat(full).st_mode
            if stat.S_ISREG(mode):
                with open(full, "rb") as f:
                    found[os.path.relpath(full, top)] = f.read()
            else:
                found[os.path.relpath(full, top)] = "not a regular file: %o" % mode
    return found


class Input(HutchTest):
    def test_a_file(self):
        self.path("data.csv", "a,b\n1,2\n")
        self.assertEqual(self.py("import os; print(os.listdir('.'), os.listdir('inputs'), open('inputs/data.csv').read(), end='')",
                                 "--input", self.path("data.csv")), "['inputs'] ['data.csv'] a,b\n1,2\n")

    def test_a_folder(self):
        self.path("folder/one.txt", "1")
        self.path("folder/deep/er/two.bin", b"\0\xff")
        os.mkdir(self.path("folder/empty"))
        code = ("import os\nfor p, d, f in sorted(os.walk('inputs')):\n    print(p, sorted(d), sorted(f))\n"
                "print(open('inputs/folder/deep/er/two.bin', 'rb').read())")
        for argument in ("folder", "./folder", "folder/"):
            with self.subTest(argument=argument):
                self.assertEqual(self.run_ok("--input", argument, "-c", code, cwd=self.dir).stdout,
                                 "inputs ['folder'] []\ninputs/folder ['deep', 'empty'] ['one.txt']\n"
                                 "inputs/folder/deep ['er'] []\ninputs/folder/deep/er [] ['two.bin']\n"
                                 "inputs/folder/empty [] []\nb'\\x00\\xff'\n")

    def test_several(self):
        a, b = self.path("a.txt", "A"), self.path("b/b.txt", "B")
        self.assertEqual(self.py("import os; print(sorted(os.listdir('inputs')))", "--input", a, "--input", b, "--input", self.path("b")),
                         "['a.txt', 'b', 'b.txt']\n")

    def test_two_of_one_name_are_both_there(self):
        a, b = self.path("x/same.txt", "from x"), self.path("y/same.txt", "from y")
        self.assertEqual(self.py("import os; print(sorted((n, open('inputs/' + n).read()) for n in os.listdir('inputs')))",
                                 "--input", a, "--input", b), "[('same-2.txt', 'from y'), ('same.txt', 'from x')]\n")

    def test_odd_names(self):
        names = [b"a b", b"q'\"$x.txt", b"line\nend", b"-rf", b"caf\xc3\xa9", b"\xff\xfe.bin", b"..hidden", b"x" * 255, b"*?[", b"\\"]
        for name in names:
            with open(os.path.join(os.fsencode(self.path("odd")), name) if os.path.isdir(self.path("odd")) else
                      self._first(name), "wb") as f:
                f.write(b"inside")
        out = self.py("import os; print(sorted(os.listdir(b'inputs/odd'))); print({open(b'inputs/odd/' + n).read() for n in os.listdir(b'inputs/odd')})",
                      "--input", self.path("odd"))
        self.assertEqual(out, "%r\n{'inside'}\n" % sorted(names))

    def _first(self, name):
        os.mkdir(self.path("odd"))
        return os.path.join(os.fsencode(self.path("odd")), name)

    def test_a_link_inside_the_folder_stays_one(self):
        self.path("folder/real.txt", "real")
        os.makedirs(self.path("folder/sub"))
        os.symlink("../real.txt", self.path("folder/sub/link.txt"))
        os.symlink("sub", self.path("folder/dirlink"))
        self.assertEqual(self.py("import os; print(open('inputs/folder/sub/link.txt').read(), os.path.islink('inputs/folder/sub/link.txt'), os.listdir('inputs/folder/dirlink'))",
                                 "--input", self.path("folder")), "real True ['link.txt']\n")

    def test_a_link_that_leaves_the_folder_is_refused_by_name(self):
        self.path("secret.txt", SECRET)
        for target in (self.path("secret.txt"), "../secret.txt", "sub/../../secret.txt", "/proc/self/environ"):
            with self.subTest(target=target):
                folder = "folder-%d" % len(target)
                os.makedirs(self.path(folder + "/sub"))
                os.symlink(target, self.path(folder + "/evil-link"))
                result = run("--input", self.path(folder), "-c", "print(open('inputs/%s/evil-link').read())" % folder)
                self.assertEqual(result.code, 2, "\n%s" % result)
                self.assertIn("evil-link", result.stderr)
                self.assertNotIn(SECRET, result.stdout)

    def test_a_link_given_by_the_caller_is_followed(self):
        os.symlink(self.path("data.txt", "data"), self.path("by-link.txt"))
        self.assertEqual(self.py("import os; print(open('inputs/by-link.txt').read(), os.path.islink('inputs/by-link.txt'))",
                                 "--input", self.path("by-link.txt")), "data False\n")

    def test_special_files_are_refused_by_name(self):
        os.makedirs(self.path("folder"))
        os.mkfifo(self.path("folder/pipe-in-it"))
        self.usage_error("--input", self.path("folder/pipe-in-it"), "-c", "pass", naming="pipe-in-it", timeout=5)
        self.usage_error("--input", self.path("folder"), "-c", "pass", naming="pipe-in-it", timeout=5)

    def test_an_unreadable_file_is_refused_by_name(self):
        if hutch_test.IS_ROOT:
            self.cannot_exist("root reads every file")
        self.path("locked.txt", "x", 0)
        result = run("--input", self.path("locked.txt"), "-c", "pass")
        self.assertIn(result.code, (2, 125))
        self.assertIn("locked.txt", result.stderr)

    def test_the_code_may_change_its_copy_only(self):
        data = self.path("data.txt", "before")
        self.assertEqual(self.py("open('inputs/data.txt', 'a').write(' after'); print(open('inputs/data.txt').read())", "--input", data),
                         "before after\n")
        with open(data) as f:
            self.assertEqual(f.read(), "before")

    def test_programs_stay_executable(self):
        tool = self.path("tool", "#!/bin/sh\necho tool ran\n", 0o755)
        self.assertEqual(self.run_ok("--input", tool, "--", "inputs/tool").stdout, "tool ran\n")

    def test_no_set_id_bits(self):
        tool = self.path("tool", "x", 0o6755)
        self.assertEqual(self.py("import os; print(oct(os.stat('inputs/tool').st_mode & 0o7000))", "--input", tool), "0o0\n")

    def test_forty_megabytes(self):
        data = os.urandom(1 << 20) * 40
        self.path("big.bin", data)
        self.assertEqual(self.py("import hashlib; print(hashlib.sha256(open('inputs/big.bin', 'rb').read()).hexdigest())",
                                 "--input", self.path("big.bin")), hashlib.sha256(data).hexdigest() + "\n")

    def test_more_than_the_disk_holds(self):
        self.path("big.bin", b"x" * (40 << 20))
        result = run("--disk", "16M", "--input", self.path("big.bin"), "-c", "print('ran')")
        self.assertIn(result.code, (2, 125), "\n%s" % result)
        self.assertNotIn("ran", result.stdout)
        self.assertIn("big.bin", result.stderr)


class Out(HutchTest):
    def collect(self, code, *options, expect=0, **kw):
        """(files in the out folder, the execution object) of a run of Python code."""
        out = self.path("out")
        result = run("--json", "--out", out, *options, "-c", code, **kw)
        self.assertEqual(result.code, expect, "\n%s" % result)
        return tree(out), result.json

    def left_out(self, execution):
        return {one["path"]: one["reason"] for one in execution["left_out"]}

    def test_files_with_their_relative_paths(self):
        files, got = self.collect("import os\nos.makedirs('out/deep')\nopen('report.csv', 'w').write('a,b\\n')\n"
                                  "open('out/deep/x.bin', 'wb').write(bytes(range(256)))\nopen('empty', 'w')\nos.mkdir('empty-folder')\n")
        self.assertEqual(files, {b"report.csv": b"a,b\n", b"out/deep/x.bin": bytes(range(256)), b"empty": b""})
        self.assertEqual([(a["path"], a["size_bytes"], a["change"]) for a in got["artifacts"]],
                         [("empty", 0, "added"), ("out/deep/x.bin", 256, "added"), ("report.csv", 4, "added")])
        for one in got["artifacts"]:
            self.assertEqual(one["sha256"], hashlib.sha256(files[one["path"].encode()]).hexdigest())
        self.assertEqual(got["left_out"], [])

    def test_without_json(self):
        out = self.path("results")
        result = self.run_ok("--out", out, "-c", "open('a.txt', 'w').write('A'); print('printed')")
        self.assertEqual((result.stdout, tree(out)), ("printed\n", {b"a.txt": b"A"}))

    def test_without_out_the_files_are_named_only(self):
        got = self.run_ok("--json", "-c", "open('a.txt', 'w').write('A')").json
        self.assertEqual([(a["path"], a["size_bytes"], a["change"]) for a in got["artifacts"]], [("a.txt", 1, "added")])

    def test_the_folder_may_exist_and_keeps_its_files(self):
        self.path("out/mine.txt", "mine")
        self.path("out/a.txt", "older and longer")
        files, _ = self.collect("open('a.txt', 'w').write('new')")
        self.assertEqual(files, {b"mine.txt": b"mine", b"a.txt": b"new"})

    def test_the_folder_is_made(self):
        out = self.path("not/yet/there")
        self.run_ok("--out", out, "-c", "open('a', 'w').write('A')")
        self.assertEqual(tree(out), {b"a": b"A"})

    def test_files_belong_to_the_caller(self):
        out = self.path("out")
        self.run_ok("--out", out, "-c", "import os\nos.umask(0)\nopen('a', 'w')\nopen('x', 'w')\nos.chmod('x', 0o4755)\nos.mkdir('d', 0o777)\nopen('d/b', 'w')")
        for name, mode in (("a", 0o644), ("x", 0o755), ("d/b", 0o644), ("d", 0o755)):
            st = os.stat(os.path.join(out, name))
            self.assertEqual((name, st.st_uid, st.st_gid, oct(st.st_mode & 0o7777)), (name, os.getuid(), os.getgid(), oct(mode)))

    def test_collected_after_every_kind_of_end(self):
        for code, options, expect in (
                ("raise SystemExit(3)", [], 3), ("raise ValueError", [], 1),
                ("import os; os.kill(os.getpid(), 11)", [], 139), ("import time; time.sleep(30)", ["--timeout", "1"], 124),
                ("while True: print('x' * 1000)", ["--max-output", "16K"], 137)):
            with self.subTest(code=code):
                files, got = self.collect("open('partial.csv', 'w').write('kept')\n" + code, *options, expect=expect)
                self.assertEqual(files, {b"partial.csv": b"kept"})
                self.assertEqual([a["path"] for a in got["artifacts"]], ["partial.csv"])
                os.unlink(self.path("out/partial.csv"))

    SCRATCH = ("import os\nfor p in ('wanted.txt', '.hidden', '__pycache__/m.pyc', 'tmp/t', 'sub/__pycache__/n.pyc', 'sub/.cache/c', 'sub/tmpfile'):\n"
               "    os.makedirs(os.path.dirname(p) or '.', exist_ok=True)\n    open(p, 'w').write(p)\n")

    def test_scratch_is_left_out(self):
        files, got = self.collect(self.SCRATCH)
        self.assertEqual(sorted(files), [b"sub/tmpfile", b"wanted.txt"])
        self.assertEqual(set(self.left_out(got).values()) - {"scratch"}, set())

    def test_keep_brings_it(self):
        for glob, path in ((".hidden", b".hidden"), ("tmp/*", b"tmp/t"), ("*.pyc", b"__pycache__/m.pyc"),
                           ("__pycache__/*", b"__pycache__/m.pyc"), ("sub/.cache/*", b"sub/.cache/c")):
            with self.subTest(glob=glob):
                files, _ = self.collect(self.SCRATCH, "--keep", glob)
                self.assertIn(path, files)
                self.assertEqual(files[path], path)
                os.unlink(os.path.join(os.fsencode(self.path("out")), path))

    def test_keep_is_repeatable_and_brings_nothing_else(self):
        files, _ = self.collect(self.SCRATCH, "--keep", ".hidden", "--keep", "tmp/*")
        self.assertEqual(sorted(files), [b".hidden", b"sub/tmpfile", b"tmp/t", b"wanted.txt"])

    def test_inputs_are_left_out_unless_kept(self):
        data = self.path("data.txt", "before")
        code = "open('inputs/data.txt', 'a').write(' after'); open('inputs/new.txt', 'w').write('new'); open('a', 'w')"
        files, _ = self.collect(code, "--input", data)
        self.assertEqual(sorted(files), [b"a"])
        files, got = self.collect(code, "--input", data, "--keep", "inputs/*")
        self.assertEqual(files, {b"a": b"", b"inputs/data.txt": b"before after", b"inputs/new.txt": b"new"})
        self.assertEqual({a["path"]: a["change"] for a in got["artifacts"]},
                         {"a": "added", "inputs/data.txt": "changed", "inputs/new.txt": "added"})

    def test_special_files_are_said(self):
        files, got = self.collect("import os, socket\nos.mkfifo('pipe')\nsocket.socket(socket.AF_UNIX).bind('sock')\n"
                                  "os.symlink('a', 'link')\nos.symlink('/etc/passwd', 'out-link')\nos.symlink('nowhere', 'dead')\nos.symlink('.', 'loop')\nopen('a', 'w').write('A')\n")
        self.assertEqual(files, {b"a": b"A"})
        self.assertEqual(self.left_out(got), {"pipe": "special_file", "sock": "special_file", "link": "link", "out-link": "link",
                                              "dead": "link", "loop": "link"})

    def test_too_large_is_said(self):
        files, got = self.collect("open('big', 'wb').truncate(51 << 20)\nopen('fits', 'wb').truncate(50 << 20)\nopen('a', 'w')")
        self.assertEqual({n: len(c) for n, c in files.items()}, {b"fits": 50 << 20, b"a": 0})
        self.assertEqual(self.left_out(got), {"big": "too_large"})
        # what was sparse inside is sparse outside
        self.assertLess(os.stat(self.path("out/fits")).st_blocks * 512, 1 << 20)

    def test_over_the_count_is_said(self):
        files, got = self.collect("for i in range(70): open('f%02d' % i, 'w').write(str(i))")
        self.assertEqual((len(files), len(got["artifacts"])), (64, 64))
        self.assertEqual(sorted(self.left_out(got).values()), ["over_count"] * 6)
        self.assertEqual(sorted(list(self.left_out(got)) + [a["path"] for a in got["artifacts"]]), ["f%02d" % i for i in range(70)])

    def test_left_out_is_said_without_json(self):
        result = self.run_ok("--out", self.path("out"), "-c", "import os; os.mkfifo('pipe-x'); open('big-x', 'wb').truncate(51 << 20)")
        said = " ".join(result.own_lines)
        self.assertIn("pipe-x", said)
        self.assertIn("big-x", said)

    def test_a_file_with_two_names(self):
        files, got = self.collect("import os\nopen('a', 'w').write('A')\nos.link('a', 'b')\n")
        for name in ("a", "b"):
            self.assertTrue(files.get(name.encode()) == b"A" or self.left_out(got).get(name) == "link", (files, got["left_out"]))

    def test_odd_names(self):
        names = [b"a b", b"q'\".txt", b"line\nend", b"-rf", b"caf\xc3\xa9", b"cafe\xcc\x81", b"x" * 255, b"%2e%2e", b"a;b|c$(id)", b"\xe2\x80\xaegnp", b"nul\x01l"]
        files, got = self.collect("for n in %r: open(n, 'wb').write(n)" % names)
        self.assertEqual(files, {n: n for n in names})
        self.assertEqual(sorted(a["path"] for a in got["artifacts"]), sorted(n.decode() for n in names))

    def test_a_name_that_is_no_text(self):
        files, got = self.collect("open(b'\\xff\\xfe.bin', 'w').write('inside'); open('a', 'w')")
        self.assertEqual(files.get(b"a"), b"")
        if b"\xff\xfe.bin" in files:
            self.assertEqual((files[b"\xff\xfe.bin"], len(got["artifacts"])), (b"inside", 2))
        else:
            self.assertEqual([one["reason"] for one in got["left_out"]], ["bad_name"])

    def test_a_very_deep_tree(self):
        code = ("import os\nfor i in range(2000):\n    os.mkdir('d'); os.chdir('d')\nopen('bottom', 'w').write('x')\nos.chdir('/workspace')\nopen('a', 'w')\n")
        files, got = self.collect(code)
        self.assertIn(b"a", files)
        self.assertTrue("too_deep" in self.left_out(got).values() or any(n.endswith(b"/bottom") for n in files), got["left_out"])

    def test_a_closed_folder(self):
        files, got = self.collect("import os\nos.mkdir('closed')\nopen('closed/x', 'w').write('X')\nos.chmod('closed', 0)\nopen('a', 'w')\n")
        self.assertIn(b"a", files)
        self.assertTrue(files.get(b"closed/x") == b"X" or "unreadable" in self.left_out(got).values(), got)

    def test_a_workspace_that_is_closed(self):
        out = self.path("out")
        result = run("--json", "--out", out, "-c", "import os\nopen('a', 'w').write('A')\nos.chmod('.', 0)\n")
        self.assertEqual(result.code, 0, "\n%s" % result)
        self.assertTrue(tree(out).get(b"a") == b"A" or result.json["left_out"], "\n%s" % result)

    def test_many_files_take_no_age(self):
        result = run("--json", "--out", self.path("out"), "--timeout", "30", "-c", "import os\nfor i in range(20000): os.close(os.open('f%d' % i, os.O_CREAT | os.O_WRONLY))\n")
        self.assertEqual(result.code, 0, "\n%s" % result)
        self.assertEqual(len(tree(self.path("out"))), 64)
        self.returned_within(result, 15)

    def test_writes_stop_with_the_program(self):
        """What a background child writes after the end is not there, and what is collected is whole."""
        files, _ = self.collect("import subprocess\nsubprocess.Popen(['bash', '-c', 'while :; do date > late.txt; done'])\nopen('a', 'w').write('A')")
        self.assertEqual(files[b"a"], b"A")

    def test_a_target_that_is_full_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.missing("/dev/full")
        result = run("--out", "/dev/full", "-c", "open('a', 'w').write('A')")
        self.assertIn(result.code, (2, 125))
        self.assertIn("/dev/full", result.stderr)

    def test_nothing_is_written_through_links_in_the_target(self):
        self.path("elsewhere/a.txt", "untouched")
        os.makedirs(self.path("out"))
        os.symlink(self.path("elsewhere/a.txt"), self.path("out/a.txt"))
        os.symlink(self.path("elsewhere"), self.path("out/d"))
        run("--out", self.path("out"), "-c", "import os\nopen('a.txt', 'w').write('new')\nos.mkdir('d')\nopen('d/a.txt', 'w').write('through')\n")
        self.assertEqual(tree(self.path("elsewhere")), {b"a.txt": b"untouched"})


if __name__ == "__main__":
    hutch_test.main()
