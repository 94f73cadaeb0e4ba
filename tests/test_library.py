#!/usr/bin/python3
"""Tests of the shared library: the leak checks see what is left. Needs no hutch."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hutch_test  # noqa: E402


class Leaks(unittest.TestCase):
    def setUp(self):
        self.bin = os.path.join(hutch_test.scratch(), "bin-" + self._testMethodName)
        os.mkdir(self.bin)
        self.keep = hutch_test.HUTCH, os.environ.get("HUTCH_STATE_DIR")
        hutch_test.HUTCH = os.path.join(self.bin, "hutch")
        os.environ["HUTCH_STATE_DIR"] = os.path.join(self.bin, "state")
        self.before = hutch_test.Snapshot()

    def tearDown(self):
        hutch_test.HUTCH = self.keep[0]
        if self.keep[1] is None:
            del os.environ["HUTCH_STATE_DIR"]
        else:
            os.environ["HUTCH_STATE_DIR"] = self.keep[1]

    def sees(self, text):
        left = self.before.wait_clean(0.1)
        self.assertEqual(len(left), 1, left)
        self.assertIn(text, left[0])

    def test_nothing(self):
        self.assertEqual(self.before.wait_clean(0.1), [])

    def test_a_process_of_each_program(self):
        for name in hutch_test.PROGRAMS:
            shutil.copy("/bin/sleep", os.path.join(self.bin, name))
            with subprocess.Popen([os.path.join(self.bin, name), "30"]) as proc:
                try:
                    hutch_test.wait_until(lambda: hutch_test.program_of(proc.pid) == name, 5)
                    self.sees("process left: %d (%s)" % (proc.pid, name))
                finally:
                    proc.kill()

    def test_what_an_agent_has_in_its_namespace(self):
        if os.geteuid() != 0 or not shutil.which("unshare"):
            self.skipTest("cannot exist here: a pid namespace needs root and unshare")
        agent = os.path.join(self.bin, "hutch-agent")
        shutil.copy("/bin/bash", agent)
        with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "--", agent, "-c", "sleep 30; :"]) as proc:
            try:
                wanted = ["hutch-agent", "in a sandbox: sleep"]    # after its fork the second is an agent, too, for a moment
                hutch_test.wait_until(lambda: sorted(hutch_test.our_processes().values()) == wanted, 5)
            finally:
                proc.kill()
        hutch_test.wait_until(lambda: not hutch_test.our_processes(), 5)

    def test_a_record(self):
        os.makedirs(os.path.join(self.bin, "state", "templates"))
        open(os.path.join(self.bin, "state", "templates", "1G"), "w").close()
        open(os.path.join(self.bin, "state", "lock"), "w").close()
        self.assertEqual(self.before.wait_clean(0.1), [])
        open(os.path.join(self.bin, "state", "abc.run"), "w").close()
        self.sees("abc.run")

    def test_a_temporary_file(self):
        path = "/tmp/hutch-leak-%d" % os.getpid()
        open(path, "w").close()
        try:
            self.sees(path)
        finally:
            os.unlink(path)

    def test_a_cgroup(self):
        for place in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
            path = os.path.join(place, "hutch-leak-%d" % os.getpid())
            try:
                os.mkdir(path)
            except OSError:
                continue
            try:
                if path in hutch_test.cgroups():
                    self.sees(path)
                    return
            finally:
                os.rmdir(path)
        self.skipTest("cannot exist here: no cgroup can be made")

    def test_a_condition_that_is_never_met(self):
        with self.assertRaises(hutch_test.Gone):
            hutch_test.wait_until(lambda: False, 0.05, "nothing")


if __name__ == "__main__":
    hutch_test.main(needs_program=False)
