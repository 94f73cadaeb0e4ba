#!/usr/bin/python3
"""Runs the outside tests: integration, cases, hostile programs. Ends with `N passed, N failed, N skipped`.

    run.py [--hutch build/hutch] [--only REGEX] [--as root|user]

As root the suite runs twice, at the same time: as root, and as a fresh unprivileged user that is made for it and removed
afterwards. As an ordinary user it runs once. Both ways work on copies of the programs, so that what one leaves is told from
what the other is doing. A part is a program that ends with such a line of its own; one that does not, or that outlives its
time, counts as a failure.
"""
import argparse
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
TESTS = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(TESTS)
PYTHON = sys.executable or "/usr/bin/python3"
COUNT = re.compile(r"(?m)^(\d+) passed, (\d+) failed, (\d+) skipped$")
PART_SECONDS = 300

# program below tests/, arguments. Both ways run all of them but those marked once: they do not run hutch.
ONCE = [("test_library.py", []), ("cases/test_runner.py", []), ("hostile/test_judge.py", [])]
PARTS = [
    ("integration/test_forms.py", []),
    ("integration/test_streams.py", []),
    ("integration/test_files.py", []),
    ("integration/test_json.py", []),
    ("integration/test_limits.py", []),
    ("integration/test_time.py", []),
    ("integration/test_isolation.py", []),
    ("integration/test_parallel.py", []),
    ("integration/test_crash.py", []),
    ("cases/run_cases.py", []),
    ("hostile/run_hostile.py", []),
]

say_lock = threading.Lock()
host_marks = threading.Lock()    # the canary's ports and files exist once on a host


class Sum:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, counts):
        self.passed, self.failed, self.skipped = (a + b for a, b in zip((self.passed, self.failed, self.skipped), counts))


def run_part(way, tests, program, arguments, env, total, seconds):
    """Runs one part, prints what it said that is not plain success, and adds up its counts."""
    begun = time.monotonic()
    proc = subprocess.Popen([PYTHON, os.path.join(tests, program)] + arguments, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True)
    note = ""
    try:
        out, _ = proc.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(proc.pid, signal.SIGKILL)
        out, _ = proc.communicate()
        note = "took longer than %d s" % seconds
    text = out.decode("utf8", "replace")
    found = COUNT.findall(text)
    counts = tuple(map(int, found[-1])) if found else (0, 0, 0)
    if not note and not found:
        note = "printed no count, exit status %d" % proc.returncode
    elif not note and (proc.returncode != 0) != (counts[1] > 0):
        note = "exit status %d with %d failed" % (proc.returncode, counts[1])
    if note:
        counts = (counts[0], counts[1] + 1, counts[2])
    with say_lock:
        total.add(counts)
        lines = [line for line in text.splitlines() if not COUNT.match(line)]
        print("%-4s %-32s %s  %d passed, %d failed, %d skipped (%.1f s)%s" % (
            way, program, "FAIL" if counts[1] else "ok  ", *counts, time.monotonic() - begun, "  " + note if note else ""))
        for line in lines:
            print("       " + line)
        sys.stdout.flush()


def lane(way, tests, parts, env, total, seconds, only):
    for program, arguments in parts:
        if not re.search(only, program):
            continue
        if program.startswith("hostile/run"):
            with host_marks:
                run_part(way, tests, program, arguments, env, total, seconds)
        else:
            run_part(way, tests, program, arguments, env, total, seconds)


def copy_programs(hutch, folder):
    """The program under test with all that it needs beside it, in a folder that everybody may enter."""
    os.makedirs(folder)
    for name in os.listdir(os.path.dirname(hutch)):
        source = os.path.join(os.path.dirname(hutch), name)
        if name.startswith("hutch") and os.path.isfile(source) and os.access(source, os.X_OK):
            shutil.copy2(source, folder)
            os.chmod(os.path.join(folder, name), 0o755)
    return os.path.join(folder, os.path.basename(hutch))


class FreshUser:
    """An unprivileged user of our own for as long as the block runs."""

    def __enter__(self):
        self.name = "hutch-test-%d" % os.getpid()
        # A number that nobody else on this host happens to use: what runs under it is taken for ours.
        taken = {user.pw_uid for user in pwd.getpwall()}
        uid = random.choice([number for number in range(30000, 60000) if number not in taken])
        done = subprocess.run(["useradd", "--create-home", "--uid", str(uid), "--shell", "/bin/sh", self.name], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError("useradd: " + done.stderr.strip())
        self.uid = pwd.getpwnam(self.name).pw_uid
        return self

    def processes(self):
        """{pid: its name and command line}: living ones; a zombie whose parent is the host's init is for that one to reap."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/status" % pid) as f:
                    status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
                if str(self.uid) not in status["Uid"].split() or status["State"].startswith("Z"):
                    continue
                with open("/proc/%s/cmdline" % pid, "rb") as f:
                    found[int(pid)] = "%s: %s" % (status["Name"], f.read().replace(b"\0", b" ").decode("utf8", "replace")[:200])
            except OSError:
                pass
        return found

    def __exit__(self, *_):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        subprocess.run(["userdel", "--remove", self.name], capture_output=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--hutch", default=os.path.join(REPO, "build", "hutch"))
    ap.add_argument("--only", default="", help="parts whose name matches")
    ap.add_argument("--as", dest="ways", choices=("root", "user"), help="one way only")
    o = ap.parse_args()
    hutch = os.path.abspath(o.hutch)
    total, begun = Sum(), time.monotonic()
    if not os.access(hutch, os.X_OK):
        print("no program to test at %s: build it first (make)" % hutch)
        print("0 passed, 1 failed, 0 skipped")
        return 1
    with open(hutch, "rb") as f:
        seconds = PART_SECONDS * (3 if b"__asan_init" in f.read() else 1)
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    env.pop("HUTCH_TEST_USER", None)
    env.pop("HUTCH_STATE_DIR", None)
    me = "root" if os.geteuid() == 0 else "user"
    lane(me, TESTS, ONCE, env, total, seconds, o.only)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))    # so that the user is removed then too

    top = tempfile.mkdtemp(prefix="hutch-test-")
    os.chmod(top, 0o755)
    try:
        bins = os.path.join(top, "bin")
        os.mkdir(bins)
        os.chmod(bins, 0o1777)
        env["HOSTILE_BIN"] = bins
        lanes = []
        if me == "root" and o.ways != "user" or me == "user":
            own = dict(env, HUTCH_BIN=copy_programs(hutch, os.path.join(top, me)))
            # The lane that begins with the hostile programs has their lock first.
            lanes.append(threading.Thread(daemon=True, target=lane, args=(me, TESTS, PARTS[::-1], own, total, seconds, o.only)))
        if me == "root" and o.ways != "root":
            try:
                with FreshUser() as user:
                    copy = os.path.join(top, "tests")
                    shutil.copytree(TESTS, copy, ignore=shutil.ignore_patterns("__pycache__"))
                    own = dict(env, HUTCH_BIN=copy_programs(hutch, os.path.join(top, "as-user")), HUTCH_TEST_USER=user.name)
                    lanes.append(threading.Thread(daemon=True, target=lane, args=("user", copy, PARTS, own, total, seconds, o.only)))
                    for one in lanes:
                        one.start()
                    for one in lanes:
                        one.join()
                    left = user.processes()
                    if left:
                        total.add((0, 1, 0))
                        print("user FAIL  processes of the user left: %s" % left)
            except RuntimeError as e:
                in_ci = os.environ.get("CI") == "true"
                total.add((0, 1, 0) if in_ci else (0, 0, 1))
                print("user %s  no fresh user: %s" % ("FAIL" if in_ci else "skip", e))
                lanes = [one for one in lanes if not one.ident]
        if lanes and not lanes[0].ident:
            for one in lanes:
                one.start()
            for one in lanes:
                one.join()
    finally:
        shutil.rmtree(top, True)
    print("%.0f seconds" % (time.monotonic() - begun))
    print("%d passed, %d failed, %d skipped" % (total.passed, total.failed, total.skipped))
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
