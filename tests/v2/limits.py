#!/usr/bin/env python3
"""Conformance of the limits: drives a real `hutch run --json` and asserts what comes out.

  limits.py --hutch build/hutch [--cgroup yes|no] [--only WORD] [-v]

The same file runs everywhere: on a v2, v1 or hybrid host, as root, as an ordinary user with a delegated
cgroup, and as one without. `--cgroup` says whether memory and processors can be limited for this user,
and is found out where it is not said. Where they can, the limits have to bite; where they cannot, an
asked one has to be refused honestly. All other limits have to bite for everybody.

    HUTCH_TEST_SLOWNESS   how much slower than usual this machine is (1). Stretches what is waited for,
                          never what is asserted.
    HUTCH_TEST_USER       started by root: becomes that user first
"""

import argparse
import os
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hutch", required=True, metavar="PATH")
    parser.add_argument("--cgroup", choices=("yes", "no"))
    parser.add_argument("--only", metavar="WORD", action="append", default=[])
    parser.add_argument("-v", dest="verbose", action="store_true")
    return parser.parse_args()


ARGS = _arguments()
os.environ["HUTCH_BIN"] = os.path.abspath(ARGS.hutch)

import hutch_test
from hutch_test import wait_until

hutch_test.enter_user()

SLOWNESS = float(os.environ.get("HUTCH_TEST_SLOWNESS", "1"))
CGROUP = ARGS.cgroup == "yes" if ARGS.cgroup else hutch_test.memory_cgroup_for_user()
MIB = 1 << 20
# How long after its limit a run may answer: the grace from TERM to KILL, and the way back.
GRACE_S = 2

with_cgroup = unittest.skipUnless(CGROUP, "cannot exist here: no cgroup of this user's limits memory or cpu")
without_cgroup = unittest.skipIf(CGROUP, "cannot exist here: this user has cgroups, nothing has to be refused")

# As a plain command and without the site module: the interpreter's start is most of a test's time where
# processors are emulated, and what it takes to run a script is the business of other tests.
INTERPRETER = ["--", hutch_test.PYTHON, "-I", "-S", "-c"]

# Pieces of the programs that run inside. `take` touches every page: only touched memory counts.
TAKE = """
def take(mib):
    block = bytearray(mib << 20)
    for at in range(0, len(block), 4096): block[at] = 1
    return block
"""
FILL = """
import errno
def fill(path, most_mib):
    # Bytes written until the place is full, and the errno that said so.
    done, block = 0, bytes(1 << 20)
    with open(path, "wb", buffering=0) as f:
        try:
            while done < most_mib << 20: done += f.write(block)
        except OSError as e:
            return done, errno.errorcode[e.errno]
    return done, None
"""
# A daemon in a session of its own that ignores what can be ignored and holds stdout.
DAEMON = """
import os, signal, sys, time
def daemon():
    ready, up = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
        os.write(up, b"x")
        while True: time.sleep(1000)
    os.wait()
    os.read(ready, 1)
"""


# ---- the cgroups, seen from outside -----------------------------------------------------------------------

def cgroup_of(pid, controller):
    """(folder, True when v2) of the process in the hierarchy that has the controller, or (None, False)."""
    with open("/proc/%d/cgroup" % pid, encoding="utf-8") as f:
        lines = [line.rstrip("\n").split(":", 2) for line in f]
    v1 = next((path for _, names, path in lines if controller in names.split(",")), None)
    path = v1 if v1 is not None else next((p for number, _, p in lines if number == "0"), None)
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        for line in f:
            left, right = line.rstrip("\n").split(" - ")
            kind, _, options = right.split(" ", 2)
            if kind == ("cgroup2" if v1 is None else "cgroup") and \
               (v1 is None or controller in options.split(",")) and path is not None:
                # In a container the mount may show a part of the hierarchy only.
                shown, at = left.split()[3].rstrip("/"), left.split()[4]
                path = path[len(shown):] if path.startswith(shown + "/") else path
                return at + path.rstrip("/"), v1 is None
    return None, False


def effective(folder, name):
    """The tightest value of the file from the folder upwards: what holds for a process in it."""
    found = []
    while folder not in ("/", "/sys/fs/cgroup"):
        try:
            with open(os.path.join(folder, name), encoding="ascii") as f:
                text = f.read().strip()
        except OSError:
            text = "max"
        if text not in ("max", "-1"):
            found.append(int(text))
        folder = os.path.dirname(folder)
    return min(found, default=None)


def cpu_share(folder, v2):
    """Processors that the folder and those above it leave, or None for all."""
    found = []
    while folder not in ("/", "/sys/fs/cgroup"):
        try:
            if v2:
                with open(os.path.join(folder, "cpu.max"), encoding="ascii") as f:
                    quota, period = f.read().split()
            else:
                quota, period = [open(os.path.join(folder, "cpu.cfs_%s_us" % n), encoding="ascii").read().strip()
                                 for n in ("quota", "period")]
            if quota not in ("max", "-1"):
                found.append(int(quota) / int(period))
        except OSError:
            pass
        folder = os.path.dirname(folder)
    return min(found, default=None)


def marked(mark):
    """Pids of the processes that carry the mark as an argument, hutch's own programs left out."""
    found = []
    for pid in hutch_test.all_pids():
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words and b"run" not in words:
            found.append(pid)
    return found


class LimitTest(hutch_test.HutchTest):

    def tearDown(self):
        left = self.host.wait_clean(hutch_test.TIDY_S * SLOWNESS)
        if left:
            self.fail("after the test:\n  " + "\n  ".join(left))

    def outcome(self, *options, code, status, **kw):
        """Runs Python code; the execution object, after checking status and exit code against it."""
        result = hutch_test.run("--json", *options, *INTERPRETER, code, timeout=30 * SLOWNESS, **kw)
        if not result.out:
            self.fail("hutch itself failed\n%s" % result)
        execution = result.json
        self.assertEqual(execution["status"], status, "\n%s" % result)
        wanted = {"ok": 0, "timeout": 124, "killed": 137}.get(status, execution["exit_code"])
        self.assertEqual(result.code, wanted, "\n%s" % result)
        return execution

    def receipt(self, execution, name):
        limits = execution["sandbox"]["limits"]
        self.assertIn(name, limits, "the receipt is silent about it")
        return limits[name]

    def assert_killed(self, execution, reason):
        self.assertEqual(execution["reason"], reason, execution)
        self.assertIsNone(execution["exit_code"], execution)

    def live(self, *options, code="input()", mark):
        """Starts a run that waits on its standard input; (hutch, pid of the code on this host)."""
        proc = self.start("--json", *options, *INTERPRETER, code, mark, stdin=subprocess.PIPE)

        def up():
            if proc.poll() is not None:
                self.fail("hutch ended with %d: %r" % (proc.returncode, proc.stderr.read()[:500]))
            return marked(mark)
        return proc, wait_until(up, 20 * SLOWNESS, "the code to start")[0]


# ---- memory -----------------------------------------------------------------------------------------------

class Memory(LimitTest):

    @with_cgroup
    def test_too_much_is_killed_and_the_answer_says_why(self):
        found = self.outcome("--memory", "64M", code=TAKE + "print('begun', flush=True)\ntake(400)\nprint('ended')",
                             status="killed")
        self.assert_killed(found, "memory")
        self.assertEqual(found["stdout"], "begun\n")
        self.assertIn("memory", found["limits_hit"])
        self.assertGreater(found["usage"]["wall_ms"], 0)
        self.assertLessEqual(found["usage"]["peak_memory_bytes"], 64 * MIB)
        self.assertTrue(self.receipt(found, "memory")["enforced"])
        self.assertEqual(self.receipt(found, "memory")["value"], 64 * MIB)

    @with_cgroup
    def test_reason_is_said_on_stderr_without_json(self):
        result = hutch_test.run("--memory", "64M", *INTERPRETER, TAKE + "take(400)", timeout=30 * SLOWNESS)
        self.assertEqual(result.code, 137, "\n%s" % result)
        self.assertIn("memory", " ".join(result.own_lines), "\n%s" % result)

    @with_cgroup
    def test_a_child_may_die_of_it_and_its_parent_go_on(self):
        found = self.outcome("--memory", "64M", status="ok", code=TAKE + """
import os, sys
child = os.fork()
if child == 0:
    take(400)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))""")
        self.assertEqual(found["stdout"], "-9\n")
        self.assertIn("memory", found["limits_hit"])
        self.assertIsNone(found["reason"])

    @with_cgroup
    def test_files_in_memory_count(self):
        """What fits without them does not fit beside them."""
        fill = FILL + """
total = 0
for place in ("/dev/shm/f", "/tmp/f", "/home/user/f"):
    done, why = fill(place, 100)
    total += done
print(total, flush=True)
"""
        take = TAKE + "take(70)\nprint('ended')"
        self.outcome("--memory", "100M", code=take, status="ok")
        found = self.outcome("--memory", "100M", code=fill + take, status="killed")
        self.assert_killed(found, "memory")
        total = int(found["stdout"].split()[0])
        # /tmp, /home/user and /dev/shm together are promised at most 2/5 of the memory.
        # A size is rounded up to a page.
        self.assertLessEqual(total, 100 * MIB * 2 // 5 + 3 * 4096)
        self.assertGreaterEqual(total, 25 * MIB)

    @with_cgroup
    def test_shared_mappings_count(self):
        for what in ("mmap.mmap(-1, 400 << 20)",
                     "mmap.mmap(fd, 400 << 20)"):
            with self.subTest(what=what):
                found = self.outcome("--memory", "64M", status="killed", code="""
import mmap, os
fd = os.memfd_create("m")
os.ftruncate(fd, 400 << 20)
block = %s
for at in range(0, 400 << 20, 4096): block[at] = 1""" % what)
                self.assert_killed(found, "memory")

    @with_cgroup
    def test_written_files_are_no_reason_to_die(self):
        """What waits to be written to the disk can be written; it must not count as memory run out. An
        ordinary user's /workspace is in memory, so there it does count."""
        if not hutch_test.IS_ROOT:
            self.cannot_exist("no disk images without root")
        found = self.outcome("--memory", "64M", "--disk", "512M", status="ok",
                             code=FILL + "print(*fill('/workspace/big', 160))")
        self.assertEqual((found["stdout"], found["limits_hit"]), ("%d None\n" % (160 * MIB), []))

    @with_cgroup
    def test_swap_is_no_way_out(self):
        with open("/proc/swaps", encoding="ascii") as f:
            if len(f.readlines()) < 2:
                self.cannot_exist("this host has no swap")
        found = self.outcome("--memory", "64M", code=TAKE + "a = take(40)\nb = take(60)\nprint('ended')",
                             status="killed")
        self.assert_killed(found, "memory")

    @with_cgroup
    def test_peak_is_plausible(self):
        found = self.outcome("--memory", "256M", code=TAKE + "take(60)", status="ok")
        self.assertGreaterEqual(found["usage"]["peak_memory_bytes"], 60 * MIB)
        self.assertLessEqual(found["usage"]["peak_memory_bytes"], 160 * MIB)
        self.assertEqual(found["limits_hit"], [])

    @with_cgroup
    def test_neighbour_is_not_disturbed(self):
        proc, _ = self.live("--memory", "64M", code="input(); print('fine')", mark="neighbour-1")
        self.assert_killed(self.outcome("--memory", "64M", code=TAKE + "take(400)", status="killed"), "memory")
        out, _ = proc.communicate(b"\n", timeout=20 * SLOWNESS)
        self.assertEqual(proc.returncode, 0, out)
        self.assertIn(b"fine", out)

    @with_cgroup
    def test_the_kernel_holds_what_was_asked(self):
        """The files of the cgroups, read from outside while the code runs; and the agent is not in them."""
        proc, code = self.live("--memory", "64M", "--pids", "30", "--cpus", "0.5", mark="outside-1")
        agent = int(hutch_test.proc_status(code)["PPid"])
        self.assertEqual(hutch_test.proc_status(agent)["NSpid"].split()[-1], "1")

        memory, v2 = cgroup_of(code, "memory")
        if v2:
            self.assertEqual(effective(memory, "memory.max"), 64 * MIB)
            self.assertEqual(effective(memory, "memory.swap.max"), 0)
        else:
            self.assertEqual(effective(memory, "memory.limit_in_bytes"), 64 * MIB)
            if os.path.exists(os.path.join(memory, "memory.memsw.limit_in_bytes")):
                self.assertEqual(effective(memory, "memory.memsw.limit_in_bytes"), 64 * MIB)
        pids, _ = cgroup_of(code, "pids")
        self.assertEqual(effective(pids, "pids.max"), 30)
        self.assertEqual(cpu_share(*cgroup_of(code, "cpu")), 0.5)
        for controller in ("memory", "pids", "cpu"):
            folder, v2 = cgroup_of(agent, controller)
            self.assertNotEqual(folder, cgroup_of(code, controller)[0], controller)
        proc.communicate(b"\n", timeout=20 * SLOWNESS)
        self.assertEqual(proc.returncode, 0)


# ---- processes --------------------------------------------------------------------------------------------

FORKS = """
import errno, os, signal, time
made, why = 0, None
for _ in range(200):
    try:
        if os.fork() == 0:
            signal.pause()
        made += 1
    except OSError as e:
        why = errno.errorcode[e.errno]
        break
print(made, why)
"""


class Pids(LimitTest):

    def test_fork_says_eagain_and_the_run_ends_well(self):
        found = self.outcome("--pids", "20", code=FORKS, status="ok")
        made, why = found["stdout"].split()
        self.assertEqual(why, "EAGAIN")
        # The program itself counts, and nothing else has to.
        self.assertLessEqual(int(made), 19)
        self.assertGreaterEqual(int(made), 16)
        self.assertTrue(self.receipt(found, "pids")["enforced"])
        if CGROUP:  # nobody counts the refusals of an rlimit
            self.assertEqual(found["limits_hit"], ["pids"])

    def test_threads_count(self):
        found = self.outcome("--pids", "20", status="ok", code="""
import threading
stop, made = threading.Event(), 0
try:
    for _ in range(200):
        threading.Thread(target=stop.wait, daemon=True).start()
        made += 1
except RuntimeError as e:
    print(e)
stop.set()
print(made)""")
        said, made = found["stdout"].splitlines()
        self.assertIn("can't start new thread", said)
        self.assertLessEqual(int(made), 19)

    def test_below_the_limit_nothing_is_hit(self):
        found = self.outcome("--pids", "20", status="ok", code="import os\nprint(os.system('true'))")
        self.assertEqual((found["stdout"], found["limits_hit"]), ("0\n", []))

    def test_a_bomb_ends_at_its_timeout(self):
        timeout = 1 + SLOWNESS
        options = ["--cpus", "0.5"] if CGROUP else []
        found = self.outcome("--pids", "64", "--timeout", str(timeout), *options, status="timeout", code="""
import os
print("begun", flush=True)
while True:
    try: os.fork()
    except OSError: pass""")
        self.assertEqual(found["stdout"], "begun\n")
        self.assertLess(found["usage"]["wall_ms"], (timeout + GRACE_S * SLOWNESS + 1) * 1000)


# ---- processors -------------------------------------------------------------------------------------------

class Cpu(LimitTest):

    @with_cgroup
    def test_two_busy_processes_share_half_a_processor(self):
        found = self.outcome("--cpus", "0.5", status="ok", code="""
import os, time
try: os.sched_setaffinity(0, range(os.cpu_count()))
except OSError: pass
end = time.monotonic() + 2
child = os.fork()
while time.monotonic() < end: pass
if child == 0: os._exit(0)
os.wait()""")
        usage = found["usage"]
        share = usage["cpu_ms"] / usage["wall_ms"]
        self.assertLessEqual(share, 0.7, usage)
        self.assertGreaterEqual(share, 0.25, usage)
        self.assertTrue(self.receipt(found, "cpu")["enforced"])

    @with_cgroup
    def test_affinity_agrees(self):
        for cpus, wanted in (("0.5", 1), ("2", min(2, len(os.sched_getaffinity(0))))):
            found = self.outcome("--cpus", cpus, status="ok", code="import os; print(len(os.sched_getaffinity(0)))")
            self.assertEqual(found["stdout"], "%d\n" % wanted, cpus)

    def test_time_used_is_counted(self):
        """Also that of children which nobody waited for."""
        found = self.outcome(status="ok", code="""
import os, time
reading, writing = os.pipe()
if os.fork() == 0:
    end = time.process_time() + 0.5
    while time.process_time() < end: pass
    os.write(writing, b"x")
    time.sleep(1000)
os.read(reading, 1)""")
        if CGROUP:
            self.assertGreaterEqual(found["usage"]["cpu_ms"], 500)
        self.assertLessEqual(found["usage"]["cpu_ms"], found["usage"]["wall_ms"] * 2)


# ---- disk -------------------------------------------------------------------------------------------------

class Disk(LimitTest):

    def test_full_says_enospc_and_the_run_ends_well(self):
        found = self.outcome("--disk", "64M", status="ok", code=FILL + "print(*fill('/workspace/big', 200))")
        done, why = found["stdout"].split()
        self.assertEqual(why, "ENOSPC")
        self.assertLessEqual(int(done), 64 * MIB)
        self.assertGreaterEqual(int(done), 48 * MIB)
        self.assertEqual(found["limits_hit"], ["disk"])
        self.assertTrue(self.receipt(found, "disk")["enforced"])

    def test_room_cannot_be_reserved_beyond_it(self):
        found = self.outcome("--disk", "64M", status="ok", code="""
import errno, os
for name in "ab":
    fd = os.open("/workspace/" + name, os.O_CREAT | os.O_RDWR)
    try:
        os.posix_fallocate(fd, 0, 40 << 20)
        print("fits")
    except OSError as e:
        print(errno.errorcode[e.errno])""")
        self.assertEqual(found["stdout"], "fits\nENOSPC\n")

    def test_below_the_limit_nothing_is_hit(self):
        found = self.outcome("--disk", "64M", status="ok", code=FILL + "print(*fill('/workspace/big', 30))")
        self.assertEqual((found["stdout"], found["limits_hit"]), ("%d None\n" % (30 * MIB), []))


# ---- time -------------------------------------------------------------------------------------------------

class Timeout(LimitTest):

    def test_the_whole_tree_is_killed(self):
        timeout = 1 + SLOWNESS
        found = self.outcome("--timeout", str(timeout), status="timeout", code=DAEMON + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
daemon()
print("ready", flush=True)
while True: time.sleep(1000)""")
        self.assertEqual((found["reason"], found["stdout"]), ("timeout", "ready\n"))
        self.assertGreaterEqual(found["usage"]["wall_ms"], timeout * 1000)
        self.assertLess(found["usage"]["wall_ms"], (timeout + GRACE_S * SLOWNESS + 1) * 1000)

    def test_term_comes_first(self):
        found = self.outcome("--timeout", str(1 + SLOWNESS), status="timeout", code="""
import signal, sys, time
def leave(*_):
    print("told", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, leave)
while True: time.sleep(1000)""")
        self.assertEqual((found["reason"], found["stdout"]), ("timeout", "told\n"))


# ---- output -----------------------------------------------------------------------------------------------

class Output(LimitTest):

    def test_sixteen_times_the_cap_is_the_end(self):
        found = self.outcome("--max-output", "64K", status="killed", code="""
import sys
while True: sys.stdout.write("x" * 65536)""")
        self.assert_killed(found, "output")
        self.assertTrue(found["truncated"]["stdout"])
        self.assertFalse(found["truncated"]["stderr"])

    def test_above_the_cap_head_and_tail_are_kept(self):
        found = self.outcome("--max-output", "64K", status="ok", code="""
print("HEAD" + "x" * 600000 + "TAIL", end="")""")
        self.assertTrue(found["truncated"]["stdout"])
        self.assertTrue(found["stdout"].startswith("HEAD") and found["stdout"].endswith("TAIL"))
        self.assertLessEqual(len(found["stdout"]), 66 * 1024)


# ---- the end of a run -------------------------------------------------------------------------------------

class End(LimitTest):

    def test_a_background_child_neither_lives_on_nor_delays(self):
        found = self.outcome("--timeout", str(20 * SLOWNESS), status="ok", code=DAEMON + "daemon()\nprint('ended')")
        self.assertEqual(found["stdout"], "ended\n")
        self.assertLess(found["usage"]["wall_ms"], 10 * SLOWNESS * 1000)

    def test_own_cgroup_is_the_root(self):
        """In every hierarchy, for the program and for what it starts."""
        found = self.outcome(status="ok", code="""
import subprocess
print(open("/proc/self/cgroup").read(), end="")
print(subprocess.run(["cat", "/proc/self/cgroup"], capture_output=True, text=True).stdout, end="")""")
        lines = found["stdout"].splitlines()
        self.assertTrue(lines)
        for line in lines:
            self.assertTrue(line.endswith(":/"), lines)
        with open("/proc/self/cgroup", encoding="ascii") as f:
            if len(f.readlines()) == 1:
                self.assertEqual(lines, ["0::/", "0::/"])

    def test_cgroups_cannot_be_written_from_inside(self):
        found = self.outcome(status="ok", code="""
import os
print([p for p, d, f in os.walk("/sys/fs/cgroup") if os.access(p, os.W_OK)])""")
        self.assertEqual(found["stdout"], "[]\n")


class Killed(LimitTest):
    """Kill -9 of hutch's own programs. What then stays, the next run takes away."""

    def after(self, mark, *which):
        proc, _ = self.live("--disk", "64M", mark=mark)
        launcher = hutch_test.launcher_of(proc.pid)
        self.assertIsNotNone(launcher)
        for name in which:
            os.kill({"hutch": proc.pid, "launcher": launcher}[name], signal.SIGKILL)
        out, err = proc.communicate(timeout=20 * SLOWNESS)
        wait_until(lambda: not marked(mark), 10 * SLOWNESS, "the code to die")
        return proc.returncode, out, err

    def next_run(self):
        result = hutch_test.run("--", "true", timeout=30 * SLOWNESS)
        self.assertEqual(result.code, 0, "\n%s" % result)
        self.assertEqual(self.host.wait_clean(hutch_test.TIDY_S * SLOWNESS), [])

    def test_hutch_alone_leaves_nothing_even_without_a_next_run(self):
        code, _, _ = self.after("killed-1", "hutch")
        self.assertEqual(code, -signal.SIGKILL)
        self.assertEqual(self.host.wait_clean(hutch_test.TIDY_S * SLOWNESS), [])

    def test_launcher(self):
        code, _, err = self.after("killed-2", "launcher")
        self.assertEqual(code, 125, err)
        self.assertIn(b"hutch: ", err)
        self.next_run()

    def test_both(self):
        self.after("killed-3", "launcher", "hutch")
        self.next_run()

    def test_both_the_other_way(self):
        self.after("killed-4", "hutch", "launcher")
        self.next_run()


# ---- where there is no cgroup ---------------------------------------------------------------------------------

class Refused(LimitTest):

    @without_cgroup
    def test_asked_memory(self):
        self.honest_refusal(hutch_test.run("--memory", "64M", "--", "true"), "memory")

    @without_cgroup
    def test_asked_cpus(self):
        self.honest_refusal(hutch_test.run("--cpus", "0.5", "--", "true"), "cpu")

    @without_cgroup
    def test_best_effort_runs_and_says_so(self):
        found = self.outcome("--best-effort", "--memory", "64M", "--cpus", "0.5", code="print(1)", status="ok")
        for name in ("memory", "cpu"):
            receipt = self.receipt(found, name)
            self.assertFalse(receipt["enforced"], name)
            self.assertTrue(receipt["note"], name)

    @without_cgroup
    def test_defaults_are_reported(self):
        found = self.outcome(code="print(1)", status="ok")
        self.assertFalse(self.receipt(found, "memory")["enforced"])
        for name in ("pids", "disk"):
            self.assertTrue(self.receipt(found, name)["enforced"], name)


# ---- a scope of one's own, as `systemd-run --user --scope -p Delegate=yes` makes it ------------------------------

class Scope(LimitTest):

    def setUp(self):
        super().setUp()
        folder, v2 = cgroup_of(os.getpid(), "memory")
        parent = os.path.dirname(folder or "/")
        if hutch_test.IS_ROOT or not CGROUP or not v2 or not os.access(parent, os.W_OK):
            self.cannot_exist("nobody delegated a v2 cgroup to this user")
        self.scope = os.path.join(parent, "limits-%d.scope" % os.getpid())
        os.mkdir(self.scope)
        self.addCleanup(os.rmdir, self.scope)

    def test_hutch_alone_in_its_scope(self):
        def enter():
            with open(os.path.join(self.scope, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write("0")
        found = self.outcome("--memory", "64M", code=TAKE + "take(400)", status="killed", preexec_fn=enter)
        self.assert_killed(found, "memory")
        # What it made below is gone, and the scope can be removed (cleanup).
        wait_until(lambda: not [e for e in os.scandir(self.scope) if e.is_dir()], 5 * SLOWNESS, "an empty scope")


if __name__ == "__main__":
    sys.argv[1:] = (["-v"] if ARGS.verbose else []) + ARGS.only
    hutch_test.main()
