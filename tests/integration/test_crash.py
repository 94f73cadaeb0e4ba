#!/usr/bin/python3
"""Crash safety: hutch, its launcher, or both are killed with -9 at every step and at random moments.

When hutch dies and the launcher lives to see it, nothing is left at all. When the launcher dies, nothing is left once the next
`hutch run -- true` has finished. Steps are those that --timing lists; --fault PROGRAM@STEP, which --help does not name, kills
that program there.
"""
import os
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import Gone, HutchTest, run, wait_until  # noqa: E402

ROUNDS = int(os.environ.get("HUTCH_TEST_CRASHES", "100"))
SEED = int(os.environ.get("HUTCH_TEST_SEED", "20240229"))


def steps():
    """The names of the steps, as --timing lists them: a table on stderr, program, step, microseconds."""
    result = run("--timing", "-c", "pass")
    found = []
    for line in result.stderr.splitlines():
        match = re.match(r"(?:hutch: )?\s*(hutch|launcher|sandbox|agent)\s+(\S+)\s+[\d.,]+", line)
        if match and match[2] != "total":
            found.append((match[1], match[2]))
    return found, result


class CrashTest(HutchTest):
    def nothing_left(self, what):
        """Fails when something is left; what it was is ended, so that the next step is judged by itself."""
        left = self.host.wait_clean()
        for line in left:
            if line.startswith("process left: "):
                try:
                    os.kill(int(line.split()[2]), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if left:
            run("--", "true")
            self.host.wait_clean()
            self.host = hutch_test.Snapshot()
        self.assertEqual(left, [], what)


class Timing(HutchTest):
    def test_lists_the_steps_of_the_programs(self):
        found, result = steps()
        self.assertEqual(result.code, 0)
        self.assertGreaterEqual(len(found), 10, "\n%s" % result)
        self.assertEqual(len(found), len(set(found)), "a step is listed twice: %s" % found)
        self.assertTrue({"hutch", "launcher"} <= {who for who, _ in found}, found)

    def test_does_not_touch_the_programs_output(self):
        result = run("--timing", "-c", "print('mine')")
        self.assertEqual(result.stdout, "mine\n")


class Faults(CrashTest):
    def steps(self):
        found, result = steps()
        self.assertTrue(found, "\n%s" % result)
        return found

    def sweep_is_clean(self, what):
        """After the launcher's death: the next run removes what is left."""
        result = run("--", "true")
        self.assertEqual((result.code, result.stderr), (0, ""), "the next run after %s\n%s" % (what, result))
        self.nothing_left("after %s and the next run" % what)

    def test_hutch_at_every_step(self):
        for who, step in self.steps():
            with self.subTest(step=step):
                result = run("--fault", "hutch@" + step, "-c", "print('x' * 1000)", timeout=20)
                self.assertIn(result.code, (-signal.SIGKILL,) if who == "hutch" else (-signal.SIGKILL, 0), "\n%s" % result)
                self.nothing_left("hutch killed at %s, its launcher lives" % step)

    def test_launcher_at_every_step(self):
        killed = 0
        for _who, step in self.steps():
            with self.subTest(step=step):
                try:
                    result = run("--fault", "launcher@" + step, "-c", "print('x' * 1000)", timeout=8)
                except Gone:
                    self.nothing_left("hutch does not end when its launcher is killed at " + step)
                    raise
                # The launcher tidies after the answer: killed then, the run itself has ended well.
                self.assertIn(result.code, (125, 0), "hutch has to say that its launcher died\n%s" % result)
                if result.code == 125:
                    killed += 1
                    self.assertTrue(result.own_lines, "\n%s" % result)
                self.sweep_is_clean("launcher killed at " + step)
        self.assertGreater(killed, 3, "no fault was seen to kill the launcher")


class Random(CrashTest):
    CODE = "import time\nopen('x', 'w').write('y' * 100000)\nprint('up', flush=True)\ntime.sleep(20)\n"

    def one(self, rng, whom, number):
        proc = subprocess.Popen([hutch_test.HUTCH, "run", "--timeout", "30", "-c", self.CODE], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            try:
                proc.wait(rng.uniform(0, 0.08) * hutch_test.SLOWNESS)
                self.fail("round %d: hutch ended by itself with %s" % (number, proc.returncode))
            except subprocess.TimeoutExpired:
                pass
            launcher = hutch_test.launcher_of(proc.pid)
            victims = {"hutch": [proc.pid], "launcher": [launcher], "both": [launcher, proc.pid],
                       "both, hutch first": [proc.pid, launcher]}[whom]
            for pid in victims:
                if pid:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            # Whoever was killed: hutch itself does not stay longer than its launcher.
            if launcher or whom != "launcher":
                proc.wait(5 * hutch_test.SLOWNESS)
            return launcher is not None
        finally:
            if proc.poll() is None:
                proc.kill()
            proc.wait()

    def test_random_moments(self):
        rng = random.Random(SEED)
        begun, done, with_launcher = time.monotonic(), 0, 0
        for number in range(ROUNDS):
            whom = rng.choice(("hutch", "launcher", "both", "both, hutch first"))
            with self.subTest(seed=SEED, round=number, killed=whom):
                with_launcher += self.one(rng, whom, number)
                if whom != "hutch":
                    result = run("--", "true")
                    self.assertEqual((result.code, result.stderr), (0, ""), "\n%s" % result)
                self.nothing_left("%s killed" % whom)
            done += 1
            if time.monotonic() - begun > 90 * hutch_test.SLOWNESS:
                break
        self.assertGreaterEqual(done, ROUNDS * 3 // 4, "too slow: only %d of %d rounds" % (done, ROUNDS))
        self.assertGreater(with_launcher, done // 3, "the moments were too early: no launcher yet")

    def test_the_sandbox_dies_at_once_with_both(self):
        proc = self.start("--timeout", "30", "-c", self.CODE)
        self.assertEqual(proc.stdout.readline(), b"up\n")
        launcher = wait_until(lambda: hutch_test.launcher_of(proc.pid), 2, "the launcher")
        inside = [p for p in hutch_test.descendants(launcher) if p != launcher]
        self.assertTrue(inside)
        os.kill(launcher, signal.SIGKILL)
        os.kill(proc.pid, signal.SIGKILL)
        wait_until(lambda: not [p for p in inside if hutch_test.proc_status(p).get("State", "Z")[0] != "Z"], 3,
                   "everything inside to die")
        run("--", "true")

    def test_hutch_says_that_its_launcher_died(self):
        proc = self.start("--timeout", "30", "-c", self.CODE)
        self.assertEqual(proc.stdout.readline(), b"up\n")
        os.kill(wait_until(lambda: hutch_test.launcher_of(proc.pid), 2, "the launcher"), signal.SIGKILL)
        _, err = proc.communicate(timeout=5 * hutch_test.SLOWNESS)
        self.assertEqual(proc.returncode, 125, err)
        self.assertIn(b"hutch: ", err)
        run("--", "true")

    def test_the_agent_killed_from_outside_is_an_honest_end(self):
        proc = self.start("--json", "--timeout", "30", "-c", self.CODE)
        launcher = wait_until(lambda: hutch_test.launcher_of(proc.pid), 2, "the launcher")
        agent = wait_until(lambda: [p for p in hutch_test.descendants(launcher) if hutch_test.proc_status(p).get("NSpid", "").split()[-1:] == ["1"]
                                    and hutch_test.proc_status(p).get("Name", "").startswith("hutch-agent")], 3, "the agent")
        os.kill(agent[0], signal.SIGKILL)
        out, err = proc.communicate(timeout=5 * hutch_test.SLOWNESS)
        self.assertIn(proc.returncode, (125, 137), (out, err))
        self.assertTrue(out or b"hutch: " in err)

    def test_hutch_frozen_and_killed(self):
        """A stopped hutch that is killed later leaves nothing either."""
        proc = self.start("--timeout", "1", "-c", self.CODE)
        self.assertEqual(proc.stdout.readline(), b"up\n")
        proc.send_signal(signal.SIGSTOP)
        launcher = hutch_test.launcher_of(proc.pid)
        self.assertTrue(launcher)
        try:
            wait_until(lambda: not [p for p in hutch_test.descendants(launcher) if hutch_test.proc_status(p).get("Name", "").startswith("python")],
                       6, "the time limit to hold without hutch")
        finally:
            proc.kill()
            proc.wait()


if __name__ == "__main__":
    hutch_test.main()
