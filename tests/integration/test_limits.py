#!/usr/bin/python3
"""Limits: each is there, each is told, none harms the host. An ordinary user gets the honest error where it takes a cgroup."""
import math
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import HutchTest, IS_ROOT, run  # noqa: E402

M = 1 << 20
HAS_CGROUP = IS_ROOT or hutch_test.memory_cgroup_for_user()


class Memory(HutchTest):
    def setUp(self):
        super().setUp()
        if not HAS_CGROUP:
            self.cannot_exist("a memory limit without a cgroup (see Honesty)")

    def test_killed_and_named(self):
        result = run("--memory", "64M", "-c", "print('before', flush=True)\nx = b'm' * (300 << 20)\nprint('after')\n")
        self.assertEqual((result.code, result.stdout), (137, "before\n"), "\n%s" % result)
        self.assertTrue(any("memory" in line for line in result.own_lines), "\n%s" % result)

    def test_json(self):
        result = run("--json", "--memory", "64M", "-c", "x = b'm' * (300 << 20)")
        got = result.json
        self.assertEqual((result.code, got["status"], got["reason"], got["exit_code"]), (137, "killed", "memory", None))
        self.assertIn("memory", got["limits_hit"])
        self.assertLessEqual(got["usage"]["peak_memory_bytes"], 64 * M)

    def test_below_the_limit_is_fine(self):
        self.assertEqual(self.py("x = b'm' * (40 << 20); print(len(x))", "--memory", "96M"), "%d\n" % (40 << 20))

    def test_no_swap(self):
        begun = time.monotonic()
        self.assertEqual(run("--memory", "64M", "-c", "x = [b'm' * (1 << 20) + bytes([i % 256]) for i in range(2000)]").code, 137)
        self.assertLess(time.monotonic() - begun, 10 * hutch_test.SLOWNESS)

    def test_a_child_that_takes_too_much_is_told(self):
        got = run("--json", "--memory", "64M", "-c", "import subprocess, sys\nr = subprocess.run([sys.executable, '-c', \"x = b'm' * (300 << 20)\"])\nprint(r.returncode)").json
        self.assertIn("memory", got["limits_hit"])
        if got["status"] == "ok":
            self.assertEqual(got["stdout"], "-9\n")
        else:
            self.assertEqual((got["status"], got["reason"]), ("killed", "memory"))

    def test_many_processes_together(self):
        code = ("import os, time\nfor i in range(8):\n    if os.fork() == 0:\n        x = b'm' * (20 << 20)\n        time.sleep(2)\n        os._exit(0)\n"
                "for i in range(8): os.wait()\n")
        result = run("--json", "--memory", "64M", "--timeout", "30", "-c", code)
        self.assertIn("memory", result.json["limits_hit"])
        self.returned_within(result, 30)

    def test_files_in_memory_count(self):
        code = ("import os\nf = os.memfd_create('x')\nfor i in range(300): os.write(f, b'm' * (1 << 20))\nprint('wrote all')\n")
        got = run("--json", "--memory", "64M", "-c", code).json
        self.assertEqual((got["status"], got["reason"], got["stdout"]), ("killed", "memory", ""))

    def test_temporary_file_systems_are_small_enough(self):
        """What fits into them together stays below the memory limit, so filling them does not kill."""
        code = ("import os\nn = 0\nfor d in ('/tmp', '/home/user', '/dev/shm'):\n    try:\n        with open(d + '/fill', 'wb', 0) as f:\n"
                "            while True: n += f.write(b'm' * (1 << 18))\n    except OSError as e:\n        assert e.errno == 28, e\nprint(n)\n")
        total = int(self.py(code, "--memory", "128M"))
        self.assertLessEqual(total, 128 * M * 2 // 5 + 3 * 4096)    # each of the three in whole pages
        self.assertGreater(total, 16 * M)

    def test_others_are_not_touched(self):
        """A run beside one that runs out of memory is not touched."""
        greedy = self.start("--memory", "64M", "--timeout", "20", "-c", "x = []\nwhile True: x.append(b'm' * (1 << 20))")
        for _ in range(5):
            self.assertEqual(self.py("x = b'm' * (30 << 20); print('fine')", "--memory", "96M"), "fine\n")
        greedy.communicate(timeout=20 * hutch_test.SLOWNESS)
        self.assertEqual(greedy.returncode, 137)


class Processes(HutchTest):
    COUNT = ("import os, sys, time\nn = 0\ntry:\n    while n < 2000:\n        if os.fork() == 0:\n            time.sleep(30); os._exit(0)\n        n += 1\n"
             "except OSError as e:\n    print(n, e.errno); sys.stdout.flush()\nos._exit(0)\n")

    def test_forks_stop_with_eagain(self):
        result = self.run_ok("--pids", "32", "-c", self.COUNT)
        count, errno = map(int, result.stdout.split())
        self.assertEqual(errno, 11)
        self.assertLessEqual(count, 32)
        self.assertGreaterEqual(count, 24)
        self.returned_within(result, 5)

    def test_it_never_kills_and_is_told(self):
        got = self.run_ok("--json", "--pids", "32", "-c", self.COUNT).json
        self.assertEqual((got["status"], got["reason"]), ("ok", None))
        if IS_ROOT:
            self.assertIn("pids", got["limits_hit"])

    def test_threads_count(self):
        code = ("import threading, time\nn = 0\ntry:\n    while n < 500:\n        threading.Thread(target=time.sleep, args=(20,), daemon=True).start(); n += 1\n"
                "except RuntimeError: pass\nprint(n, flush=True)\nimport os; os._exit(0)\n")
        self.assertLessEqual(int(self.py(code, "--pids", "32")), 32)

    def test_default(self):
        count, errno = map(int, self.py(self.COUNT).split())
        self.assertEqual(errno, 11)
        self.assertTrue(240 <= count <= 256, count)

    def test_sandboxes_do_not_share_the_count(self):
        fill = self.COUNT.replace("sys.stdout.flush()", "sys.stdout.flush(); sys.stdin.read()")
        full = self.start("--pids", "32", "--timeout", "20", "-c", fill, stdin=subprocess.PIPE)
        self.assertIn(b"11", full.stdout.readline())
        count, _ = map(int, self.py(self.COUNT, "--pids", "32").split())
        self.assertGreaterEqual(count, 24)
        full.stdin.close()
        full.wait(10 * hutch_test.SLOWNESS)

    def test_fork_bomb_ends_at_the_time_limit(self):
        result = run("--json", "--pids", "64", "--timeout", "2", "--language", "bash", "-c", "b() { b | b & b; }; b 2>/dev/null; wait; sleep 30")
        self.assertIn(result.json["status"], ("timeout", "error", "ok"))
        self.returned_within(result, 5)


class Disk(HutchTest):
    FILL = ("import os\nn = 0\ntry:\n    with open('fill', 'wb', 0) as f:\n        while n < (1 << 30): n += f.write(b'x' * (1 << 18))\n"
            "except OSError as e:\n    print(n, e.errno)\n")

    def test_no_space_left(self):
        result = self.run_ok("--json", "--disk", "32M", "-c", self.FILL)
        count, errno = map(int, result.json["stdout"].split())
        self.assertEqual(errno, 28)
        self.assertLessEqual(count, 32 * M)
        self.assertGreaterEqual(count, 24 * M)
        self.assertIn("disk", result.json["limits_hit"])
        self.assertEqual(result.json["status"], "ok")

    def test_the_hosts_disk_is_as_before(self):
        def free():
            st = os.statvfs(hutch_test.state_dir())
            return st.f_bavail * st.f_frsize
        self.run_ok("--", "true")
        before = free()
        self.run_ok("--disk", "256M", "-c", self.FILL)
        hutch_test.wait_until(lambda: before - free() < 64 * M, 10, "the host's free space to be as before")

    def test_what_df_says(self):
        total = int(self.py("import os; s = os.statvfs('/workspace'); print(s.f_blocks * s.f_frsize)", "--disk", "64M"))
        self.assertTrue(32 * M <= total <= 64 * M, total)

    def test_many_small_files_are_bounded(self):
        code = ("import os\nn = 0\ntry:\n    while n < 300000:\n        os.close(os.open('f%d' % n, os.O_CREAT | os.O_WRONLY)); n += 1\nexcept OSError as e:\n    print(n, e.errno)\n")
        out = self.py(code, "--disk", "32M", "--timeout", "50")
        self.assertEqual(out.split()[1:], ["28"], out)

    def test_space_that_is_freed_can_be_used_again(self):
        code = "for i in range(8):\n    with open('f', 'wb') as f: f.write(b'x' * (20 << 20))\n    import os; os.unlink('f')\nprint('fine')\n"
        self.assertEqual(self.py(code, "--disk", "32M"), "fine\n")

    def test_files_larger_than_the_disk(self):
        """The limit on the disk never kills: what cannot be is an error that the program sees, no SIGXFSZ."""
        code = "truncate -s 64G big; echo $?\nfallocate -l 1G full; echo $?\ndd if=/dev/zero of=plain bs=1M count=40; echo $?\n"
        got = self.run_ok("--json", "--disk", "32M", "--language", "bash", "-c", code).json
        self.assertIn(got["stdout"].split(), (["0", "1", "1"], ["1", "1", "1"]), got["stderr"])


class Files(HutchTest):
    def test_open_files(self):
        out = self.py("import os\nn = 0\ntry:\n    while n < 100000: os.open('/dev/null', 0); n += 1\nexcept OSError as e: print(n, e.errno)")
        count, errno = map(int, out.split())
        self.assertEqual(errno, 24)
        self.assertTrue(1000 <= count <= 1021, count)

    def test_the_limit_cannot_be_raised(self):
        self.assertEqual(self.py("import resource\ntry:\n    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); print('raised')\nexcept (ValueError, OSError): print('refused')"),
                         "refused\n")


class Processor(HutchTest):
    BUSY = "import os, time\nend = time.time() + 2\nfor i in range(1):\n    if os.fork() == 0:\n        while time.time() < end: pass\n        os._exit(0)\nwhile time.time() < end: pass\nos.wait()\n"

    def test_half_a_processor(self):
        if not HAS_CGROUP:
            self.cannot_exist("a cpu quota without a cgroup (see Honesty)")
        usage = self.run_ok("--json", "--cpus", "0.5", "-c", self.BUSY).json["usage"]
        self.assertLessEqual(usage["cpu_ms"] / usage["wall_ms"], 0.7, usage)
        self.assertGreaterEqual(usage["cpu_ms"] / usage["wall_ms"], 0.3, usage)

    def test_one_processor_by_default(self):
        usage = self.run_ok("--json", "-c", self.BUSY).json["usage"]
        self.assertLessEqual(usage["cpu_ms"] / usage["wall_ms"], 1.2, usage)

    def test_nproc_agrees(self):
        options = [] if HAS_CGROUP else ["--best-effort"]
        host = len(os.sched_getaffinity(0))
        for cpus in ("0.5", "1", "1.5", "2"):
            want = min(math.ceil(float(cpus)), host)
            with self.subTest(cpus=cpus):
                self.assertEqual(self.run_ok("--cpus", cpus, *options, "--", "nproc").stdout, "%d\n" % want)
                self.assertEqual(self.py("import os; print(len(os.sched_getaffinity(0)))", "--cpus", cpus, *options), "%d\n" % want)

    def test_nproc_by_default(self):
        self.assertEqual(self.run_ok("--", "nproc").stdout, "1\n")


class Honesty(HutchTest):
    """A limit that was asked for and cannot be enforced is an error, unless --best-effort."""

    def setUp(self):
        super().setUp()
        if HAS_CGROUP:
            self.cannot_exist("everything can be enforced here; this is about an ordinary user without a cgroup")

    def test_memory(self):
        self.honest_refusal(run("--memory", "256M", "-c", "print('ran')"), "--memory", "cgroup")

    def test_cpus(self):
        self.honest_refusal(run("--cpus", "0.5", "-c", "print('ran')"), "--cpus", "cgroup")

    def test_nothing_has_run(self):
        result = run("--memory", "256M", "-c", "print('ran')")
        self.assertEqual((result.code, result.out), (125, b""))

    def test_best_effort_runs_and_says_so(self):
        result = self.run_ok("--json", "--best-effort", "--memory", "256M", "--cpus", "1", "-c", "print('ran')")
        self.assertEqual(result.json["stdout"], "ran\n")
        for name in ("memory", "cpu"):
            self.assertIs(result.json["sandbox"]["limits"][name]["enforced"], False)
            self.assertTrue(result.json["sandbox"]["limits"][name]["note"])

    def test_the_others_are_enforced_without_it(self):
        self.run_ok("--pids", "64", "--disk", "64M", "--timeout", "10", "--max-output", "1M", "-c", "pass")


if __name__ == "__main__":
    hutch_test.main()
