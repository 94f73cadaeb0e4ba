#!/usr/bin/python3
"""The end of a run: time limits, what is left of process trees, the caller's own signals."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import HutchTest, run, wait_until  # noqa: E402


class Timeout(HutchTest):
    def test_sleeping(self):
        result = run("--json", "--timeout", "1", "-c", "import time\nprint('step 1')\ntime.sleep(60)\nprint('never')\n")
        got = result.json
        self.assertEqual((result.code, got["status"], got["reason"], got["stdout"], got["exit_code"]), (124, "timeout", "timeout", "step 1\n", None))
        self.assertGreaterEqual(result.seconds, 0.95)
        self.returned_within(result, 2.5)

    def test_it_is_said(self):
        result = run("--timeout", "0.5", "-c", "import time; time.sleep(60)")
        self.assertEqual(result.code, 124)
        self.assertTrue(any("time" in line for line in result.own_lines), "\n%s" % result)

    def test_fractions(self):
        result = run("--timeout", "0.25", "--", "sleep", "60")
        self.assertEqual(result.code, 124)
        self.assertGreaterEqual(result.seconds, 0.25)
        self.returned_within(result, 1.5)

    def test_busy(self):
        result = run("--timeout", "1", "-c", "while True: pass")
        self.assertEqual(result.code, 124)
        self.returned_within(result, 2.5)

    def test_the_limit_asked_for_is_the_one_that_holds(self):
        self.assertEqual(self.py("import time\nt = time.time()\nwhile time.time() - t < 1: pass\nprint('one second passed')", "--timeout", "10"), "one second passed\n")

    def test_term_first(self):
        code = "trap 'echo bye; exit 0' TERM\necho ready\nwhile :; do sleep 0.1; done\n"
        result = run("--json", "--timeout", "1", "--language", "bash", "-c", code)
        self.assertEqual((result.code, result.json["status"], result.json["stdout"]), (124, "timeout", "ready\nbye\n"), "\n%s" % result)
        self.returned_within(result, 2.5)

    def test_term_in_python(self):
        code = ("import signal, sys, time\ndef bye(*_):\n    print('bye')\n    open('saved', 'w').write('state')\n    sys.exit(5)\nsignal.signal(signal.SIGTERM, bye)\ntime.sleep(60)\n")
        result = run("--json", "--timeout", "1", "--out", self.path("out"), "-c", code)
        self.assertEqual((result.json["status"], result.json["stdout"]), ("timeout", "bye\n"))
        with open(self.path("out/saved")) as f:
            self.assertEqual(f.read(), "state")

    def test_term_ignored(self):
        result = run("--json", "--timeout", "1", "--language", "bash", "-c", "trap '' TERM INT HUP\nwhile :; do sleep 0.2; done\n")
        self.assertEqual((result.code, result.json["status"]), (124, "timeout"))
        self.returned_within(result, 1 + 2 + 1)

    def test_a_stopped_program(self):
        result = run("--timeout", "1", "-c", "import os; os.kill(os.getpid(), 19)")
        self.assertEqual(result.code, 124)
        self.returned_within(result, 1 + 2 + 1)

    def test_a_tree_that_ignores_term(self):
        code = ("import os, signal, time\nfor s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
                "for i in range(4):\n    if os.fork() == 0:\n        os.setsid()\n        os.fork()\n        time.sleep(60)\ntime.sleep(60)\n")
        result = run("--timeout", "1", "-c", code)
        self.assertEqual(result.code, 124)
        self.returned_within(result, 1 + 2 + 1)

    def test_no_descendant_writes_on(self):
        result = run("--json", "--timeout", "0.5", "--out", self.path("out"), "--language", "bash", "-c", "(sleep 0.7; echo late > late.txt) &\nwait\n")
        self.assertEqual(result.json["status"], "timeout")
        self.assertEqual(os.listdir(self.path("out")) if os.path.isdir(self.path("out")) else [], [])

    def test_output_that_nobody_reads_does_not_stop_the_clock(self):
        proc = self.start("--timeout", "1", "--max-output", "64M", "-c", "while True: print('x' * 1000)")
        begun = time.monotonic()
        wait_until(lambda: not [p for p in hutch_test.descendants(proc.pid) if "python" in hutch_test.proc_status(p).get("Name", "")]
                   and time.monotonic() - begun > 0.5, 6, "the program to be killed")
        proc.stdout.close()
        proc.stderr.close()
        proc.wait(5 * hutch_test.SLOWNESS)

    def test_the_first_steps_of_the_cases_that_come_later(self):
        """run-main-guard, run-ignores-sigterm, run-timeout-kills-tree, as far as one run goes."""
        self.assertEqual(self.py("def go():\n    print('main ran')\nif __name__ == '__main__':\n    go()\n"), "main ran\n")
        result = run("--json", "--timeout", "2", "--language", "bash", "-c", "trap '' TERM INT\nwhile :; do date +%N > beat; sleep 0.2; done\n")
        self.assertEqual(result.json["status"], "timeout")
        self.returned_within(result, 8)
        result = run("--json", "--timeout", "1", "--language", "bash", "-c", "(sleep 3; echo late > late.txt) &\nwait\n")
        self.assertEqual((result.json["status"], result.json["artifacts"]), ("timeout", []))
        self.returned_within(result, 4)


class Leftovers(HutchTest):
    """The base class looks for what survived; these also look at the time the answer took."""

    def test_a_background_child_that_holds_stdout(self):
        result = run("--json", "--timeout", "20", "--language", "bash", "-c", "sleep 30 &\necho started\n")
        self.assertEqual((result.code, result.json["stdout"]), (0, "started\n"))
        self.returned_within(result, 2)

    def test_a_python_child_left_running(self):
        result = self.run_ok("--timeout", "20", "-c", "import subprocess\np = subprocess.Popen(['sleep', '40'])\nprint('pid ok', p.pid > 0)\n")
        self.assertEqual(result.stdout, "pid ok True\n")
        self.returned_within(result, 2)

    def test_a_daemon(self):
        code = ("import os, signal, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        for s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\n"
                "        time.sleep(60)\n    os._exit(0)\nos.wait()\nprint('parent done')\n")
        result = self.run_ok("--timeout", "20", "-c", code)
        self.assertEqual(result.stdout, "parent done\n")
        self.returned_within(result, 2)

    def test_children_that_write_on_do_not_flood_the_answer(self):
        result = self.run_ok("--json", "--timeout", "20", "--language", "bash", "-c", "(trap '' TERM; while :; do echo y; done) &\nsleep 0.1\necho end >&2\n")
        self.assertEqual(result.json["stderr"], "end\n")
        self.returned_within(result, 3)

    def test_everything_a_program_and_its_waited_children_wrote_is_there(self):
        self.assertEqual(self.run_ok("--language", "bash", "-c", "for i in 1 2 3; do (echo $i); done; echo 4 | cat").stdout, "1\n2\n3\n4\n")

    def test_orphans_are_reaped(self):
        code = ("import os, time\nfor i in range(50):\n    if os.fork() == 0:\n        if os.fork() == 0:\n            os._exit(0)\n        os._exit(0)\n    os.wait()\n"
                "def zombies():\n    n = 0\n    for p in os.listdir('/proc'):\n        if p.isdigit():\n            try: n += ' Z ' in open('/proc/%s/stat' % p).read()\n            except OSError: pass\n    return n\n"
                "end = time.time() + 5\nwhile zombies() and time.time() < end: pass\nprint(zombies())\n")
        self.assertEqual(self.py(code), "0\n")

    def test_exit_in_a_thread_storm(self):
        self.assertEqual(run("-c", "import threading, os, time\nfor i in range(50): threading.Thread(target=time.sleep, args=(30,)).start()\nos._exit(9)").code, 9)

    def test_killing_everything_from_inside(self):
        result = run("--json", "-c", "import os; os.kill(-1, 9)")
        self.assertIn(result.json["status"], ("crashed", "ok", "error"))
        self.returned_within(result, 3)

    def test_the_first_process_cannot_be_killed_from_inside(self):
        code = ("import os, signal\nfor s in range(1, 65):\n    try: os.kill(1, s)\n    except (PermissionError, OSError): pass\nos.kill(os.getpid(), 0)\nprint('alive')\n")
        self.assertEqual(self.py(code), "alive\n")


class CallersSignals(HutchTest):
    def interrupted(self, number):
        proc = self.start("--timeout", "30", "-c", "import time\nprint('ready', flush=True)\ntime.sleep(60)")
        self.assertEqual(proc.stdout.readline(), b"ready\n")
        begun = time.monotonic()
        proc.send_signal(number)
        proc.wait(10 * hutch_test.SLOWNESS)
        self.assertLess(time.monotonic() - begun, 4 * hutch_test.SLOWNESS)
        self.assertIn(proc.returncode, (128 + number, -number))

    def test_interrupt(self):
        self.interrupted(signal.SIGINT)

    def test_terminate(self):
        self.interrupted(signal.SIGTERM)

    def test_hangup(self):
        self.interrupted(signal.SIGHUP)

    def test_ignored_signals_of_the_caller_are_not_inherited(self):
        done = subprocess.run(["bash", "-c", "trap '' PIPE TERM INT CHLD; exec \"$1\" run -c \"import signal; print([signal.getsignal(s) == signal.SIG_IGN for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)])\"",
                               "bash", hutch_test.HUTCH], capture_output=True, stdin=subprocess.DEVNULL, timeout=20 * hutch_test.SLOWNESS)
        self.assertEqual((done.returncode, done.stdout), (0, b"[False, False, False]\n"), done)

    def test_tight_limits_of_the_caller(self):
        done = subprocess.run(["bash", "-c", "ulimit -n 64; ulimit -c unlimited 2>/dev/null; \"$1\" run -c \"print('ran')\"", "bash", hutch_test.HUTCH],
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=20 * hutch_test.SLOWNESS)
        self.assertEqual((done.returncode, done.stdout), (0, b"ran\n"), done)


if __name__ == "__main__":
    hutch_test.main()
