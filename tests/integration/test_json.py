#!/usr/bin/python3
"""The execution object of --json: every field of the interface, in every kind of end, and the receipt."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import HutchTest, IS_ROOT, run  # noqa: E402

OPTIONAL = (type(None),)
# field → allowed types
FIELDS = {
    "id": (str,), "session": OPTIONAL, "kernel": OPTIONAL, "language": (str,) + OPTIONAL, "number": (int,) + OPTIONAL,
    "status": (str,), "reason": (str,) + OPTIONAL, "exit_code": (int,) + OPTIONAL, "signal": (str,) + OPTIONAL,
    "limits_hit": (list,), "stdout": (str,), "stderr": (str,), "truncated": (dict,), "result": (dict,) + OPTIONAL,
    "displays": (list,), "error": (dict,) + OPTIONAL, "state": (dict,) + OPTIONAL, "artifacts": (list,), "deleted": (list,),
    "left_out": (list,), "usage": (dict,), "sandbox": (dict,),
}
ENDS = [
    # code, options, exit code, status, reason, signal
    ("pass", [], 0, "ok", None, None),
    ("raise SystemExit(3)", [], 3, "error", None, None),
    ("raise ValueError('odd')", [], 1, "error", None, None),
    ("import os; os.kill(os.getpid(), 11)", [], 139, "crashed", None, "SIGSEGV"),
    ("import time; time.sleep(30)", ["--timeout", "0.5"], 124, "timeout", "timeout", None),
    ("while True: print('x' * 100)", ["--max-output", "16K"], 137, "killed", "output", None),
]
if IS_ROOT:
    ENDS.append(("x = b'm' * (300 << 20)", ["--memory", "64M"], 137, "killed", "memory", None))


class Shape(HutchTest):
    def test_every_field_in_every_end(self):
        for code, options, exit_code, status, reason, signal in ENDS:
            with self.subTest(code=code):
                result = run("--json", *options, "-c", code)
                got = result.json
                self.assertEqual((result.code, got["status"], got["reason"]), (exit_code, status, reason), "\n%s" % result)
                if status == "crashed":
                    self.assertEqual(got["signal"], signal)
                self.assertEqual(got["exit_code"], exit_code if status in ("ok", "error") else None)
                for name, types in FIELDS.items():
                    self.assertIn(name, got)
                    self.assertIsInstance(got[name], types, name)
                self.assertEqual(set(got) - set(FIELDS), set(), "fields that the interface does not have")
                self.assertRegex(got["id"], r"^exe_[a-z0-9]+$")
                self.assertEqual(set(got["truncated"]), {"stdout", "stderr"})
                self.assertEqual({type(v) for v in got["truncated"].values()}, {bool})
                self.assertEqual(set(got["usage"]), {"wall_ms", "cpu_ms", "peak_memory_bytes"})
                self.assertIsInstance(got["usage"]["wall_ms"], int)
                self.assertIsInstance(got["usage"]["cpu_ms"], int)
                self.assertEqual((got["deleted"], got["displays"]), ([], []))

    def test_nothing_else_on_standard_output(self):
        result = run("--json", "-c", "print('{')")
        self.assertTrue(result.out.endswith(b"}\n"))
        self.assertEqual((result.json["stdout"], result.err), ("{\n", b""))

    def test_the_programs_streams_do_not_leak_beside_it(self):
        result = run("--json", "-c", "import sys; print('a'); print('b', file=sys.stderr)")
        self.assertEqual((result.json["stdout"], result.json["stderr"], result.err), ("a\n", "b\n", b""))

    def test_ids_are_new(self):
        self.assertEqual(len({run("--json", "-c", "pass").json["id"] for _ in range(5)}), 5)

    def test_language(self):
        self.assertEqual(run("--json", "-c", "pass").json["language"], "python")
        self.assertEqual(run("--json", "--language", "bash", "-c", ":").json["language"], "bash")
        self.assertIsNone(run("--json", "--", "true").json["language"])

    def test_a_refused_call_prints_no_object(self):
        result = run("--json", "--memory", "banana", "-c", "pass")
        self.assertEqual((result.code, result.out), (2, b""))


class Usage(HutchTest):
    def test_wall_time(self):
        wall = run("--json", "-c", "import time; time.sleep(0.6)").json["usage"]["wall_ms"]
        self.assertGreaterEqual(wall, 600)
        self.assertLess(wall, 600 + 1500 * hutch_test.SLOWNESS)

    def test_processor_time_with_children(self):
        code = ("import os, time\ndef burn():\n    end = time.process_time() + 0.3\n    while time.process_time() < end: pass\n"
                "if os.fork() == 0:\n    burn(); os._exit(0)\nburn(); os.wait()\n")
        cpu = run("--json", "-c", code).json["usage"]["cpu_ms"]
        self.assertGreaterEqual(cpu, 590)
        self.assertLess(cpu, 600 + 600 * hutch_test.SLOWNESS)

    def test_processor_time_of_children_that_nobody_waited_for(self):
        self.root_only("counting what no wait() returned")
        code = ("import os, time\nr, w = os.pipe()\nif os.fork() == 0:\n    while time.process_time() < 0.5: pass\n    os.write(w, b'x')\n"
                "    while True: pass\nos.read(r, 1)\n")
        self.assertGreaterEqual(run("--json", "-c", code).json["usage"]["cpu_ms"], 500)

    def test_sleeping_costs_none(self):
        self.assertLess(run("--json", "--", "sleep", "1").json["usage"]["cpu_ms"], 100 * hutch_test.SLOWNESS)

    def test_peak_memory(self):
        peak = run("--json", "-c", "x = b'm' * (60 << 20)").json["usage"]["peak_memory_bytes"]
        if peak is None:
            self.assertFalse(IS_ROOT, "root has a memory cgroup that counts")
            self.cannot_exist("nobody counts memory without a cgroup")
        self.assertGreaterEqual(peak, 60 << 20)
        self.assertLess(peak, 120 << 20)


class Receipt(HutchTest):
    def test_backend_and_limits(self):
        got = run("--json", "-c", "pass").json["sandbox"]
        self.assertEqual(got["backend"], "native")
        limits = got["limits"]
        for name in ("memory", "pids", "cpu", "disk", "open_files", "tmp"):
            self.assertIn(name, limits)
            self.assertIs(type(limits[name]["enforced"]), bool, name)
        for name in ("pids", "disk", "open_files", "tmp"):
            self.assertTrue(limits[name]["enforced"], name)
        for name in ("memory", "cpu"):
            if IS_ROOT or hutch_test.memory_cgroup_for_user():
                self.assertTrue(limits[name]["enforced"], name)
            else:
                self.assertFalse(limits[name]["enforced"], name)
                self.assertTrue(limits[name]["note"], "why it is not enforced has to be said")

    def test_defaults(self):
        limits = run("--json", "-c", "pass").json["sandbox"]["limits"]
        self.assertEqual((limits["memory"]["value"], limits["pids"]["value"], limits["disk"]["value"], limits["open_files"]["value"]),
                         (1 << 30, 256, 1 << 30, 1024))

    def test_asked_values(self):
        limits = run("--json", "--pids", "64", "--disk", "64M", "-c", "pass").json["sandbox"]["limits"]
        self.assertEqual((limits["pids"]["value"], limits["disk"]["value"]), (64, 64 << 20))


if __name__ == "__main__":
    hutch_test.main()
