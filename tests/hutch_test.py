"""What every outside test of Hutch shares: starting the real program, and looking for what it left.

A test program is a file with unittest cases that inherit from `HutchTest` and ends with `hutch_test.main()`.
It prints a plain last line, `N passed, N failed, N skipped`, and exits 1 when anything failed.

    HUTCH_BIN        the program under test (default: build/hutch of this checkout)
    HUTCH_TEST_SLOWNESS  what waiting times are multiplied with (default 1; 3 for a build with sanitizers)
    HUTCH_TEST_USER  started by root: the whole test program becomes that user first (setpriv), with that
                     user's HOME and XDG_STATE_HOME, so that the tests see what an ordinary user sees
    CI=true          a skip for a missing part counts as a failure, see `HutchTest.missing`

Tests never sleep: they wait for a condition with a deadline (`wait_until`).
"""
import atexit
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

TESTS = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(TESTS)
HUTCH = os.path.abspath(os.environ.get("HUTCH_BIN") or os.path.join(REPO, "build", "hutch"))
PROGRAMS = ("hutch", "hutch-launcher", "hutch-agent")
IS_ROOT = os.geteuid() == 0
PYTHON = "/usr/bin/python3"

# Emulated machines and sanitizers are slower: what a test is ready to wait is multiplied, what must be exact is not.
SANITIZED = False
try:
    with open(HUTCH, "rb") as _f:
        SANITIZED = b"__asan_init" in _f.read()
except OSError:
    pass
# Whoever started the tests may have had signals ignored (nohup); hutch would rightly leave them so.
for _number, _handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)

SLOWNESS = float(os.environ.get("HUTCH_TEST_SLOWNESS", "3" if SANITIZED else "1"))

# How long a destroyed sandbox may take to vanish. The answer may come before the tidying has ended.
TIDY_S = 3.0


class Gone(Exception):
    """A program that had to answer did not, or a condition was not met in time."""


def wait_until(condition, seconds, what="the condition"):
    """Returns the first true value of condition(); raises Gone after `seconds`."""
    seconds *= SLOWNESS
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Gone("waited %.1f s for %s" % (seconds, what))
        time.sleep(0.01)


def shorten(value, limit=400):
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= limit:
        return text
    return "%s … %s (%d characters)" % (text[:limit * 2 // 3], text[-limit // 3:], len(text))


# ---- processes ------------------------------------------------------------------------------------------

def _read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def proc_status(pid):
    """The fields of /proc/PID/status, {} when the process is gone."""
    fields = {}
    for line in _read("/proc/%d/status" % pid).decode("utf8", "replace").splitlines():
        key, _, value = line.partition(":")
        fields[key] = value.strip()
    return fields


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def program_inodes():
    """(device, inode) → name of the programs under test, as /proc/PID/exe shows them."""
    found = {}
    for name in PROGRAMS:
        try:
            st = os.stat(os.path.join(os.path.dirname(HUTCH), name))
            found[(st.st_dev, st.st_ino)] = name
        except OSError:
            pass
    return found


def our_processes():
    """{pid: what} of everything that belongs to the programs under test.

    A process is ours when its executable is one of our three, or when it lives in the pid namespace of
    one of our agents. An ordinary user may not read the executable of what runs in a namespace: there every
    process of our uid that is in a nested pid namespace is ours (the user of a test has no other).
    Zombies whose parent is the host's init are init's to reap, not ours.
    """
    inodes = program_inodes()
    uid = os.getuid()
    ours, spaces, nested = {}, set(), []
    for pid in all_pids():
        status = proc_status(pid)
        if not status or (status.get("State", "").startswith("Z") and status.get("PPid") in ("0", "1")):
            continue
        try:
            st = os.stat("/proc/%d/exe" % pid)
            name = inodes.get((st.st_dev, st.st_ino))
        except OSError:
            name = None
        space = status.get("NSpid", "").split()
        if name:
            ours[pid] = name
            if name == "hutch-agent" and len(space) > 1:
                try:
                    spaces.add(os.readlink("/proc/%d/ns/pid" % pid))
                except OSError:
                    pass
        elif len(space) > 1:
            nested.append((pid, status))
    for pid, status in nested:
        if uid != 0:
            if status.get("Uid", "").split()[:1] == [str(uid)]:
                ours[pid] = "in a sandbox: " + status.get("Name", "?")
            continue
        try:
            if os.readlink("/proc/%d/ns/pid" % pid) in spaces:
                ours[pid] = "in a sandbox: " + status.get("Name", "?")
        except OSError:
            pass
    return ours


def children(pid):
    return [p for p in all_pids() if proc_status(p).get("PPid") == str(pid)]


def descendants(pid):
    parents = {p: proc_status(p).get("PPid") for p in all_pids()}
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        kids = [p for p, parent in parents.items() if parent == str(one)]
        found += kids
        todo += kids
    return found


def program_of(pid):
    """The name of ours that pid executes, or None. A fork that has not exec'd yet counts as its parent."""
    try:
        st = os.stat("/proc/%d/exe" % pid)
    except OSError:
        return None
    return program_inodes().get((st.st_dev, st.st_ino))


def launcher_of(hutch_pid):
    for pid in children(hutch_pid):
        if program_of(pid) == "hutch-launcher":
            return pid
    return None


# ---- what the host shows ------------------------------------------------------------------------------------

def state_dir():
    """Where `hutch run`, started by these tests, keeps its records."""
    if os.environ.get("HUTCH_STATE_DIR"):
        return os.environ["HUTCH_STATE_DIR"]
    if IS_ROOT:
        return "/var/lib/hutch/run"
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "hutch", "run")


def state_files(top=None):
    """Everything in the state directory but what is meant to stay: disk templates and locks."""
    found = set()
    top = top or state_dir()
    for path, dirs, files in os.walk(top):
        dirs[:] = [d for d in dirs if d not in ("templates", "ids")]
        for name in files + [d for d in dirs if path != top]:
            if name not in ("lock", "ids"):
                found.add(os.path.join(path, name))
    return found


def mounts():
    """Every mount of this namespace, without the ids that change with each remount."""
    found = set()
    for line in _read("/proc/self/mountinfo").decode("utf8", "replace").splitlines():
        found.add(" ".join(line.split()[2:]))
    return found


def _runs_of_others():
    """Names of cgroups of sandboxes that somebody else runs on this host now: their records are in the default place."""
    default = "/var/lib/hutch/run"
    if os.path.realpath(state_dir()) == default or not os.path.isdir(default):
        return set()
    try:
        return {"hutch-" + name[:-len(".run")] for name in os.listdir(default) if name.endswith(".run")}
    except PermissionError:
        return set()    # only root makes cgroups that these tests could take for their own


def cgroups():
    """Directories named hutch-* in every hierarchy, whatever their parent is."""
    found, others, ours = set(), _runs_of_others(), {str(pid) for pid in our_processes()}
    for line in _read("/proc/self/mountinfo").decode("utf8", "replace").splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[:1] not in (["cgroup"], ["cgroup2"]):
            continue
        top = left.split()[4].replace("\\040", " ")
        for path, dirs, _files in os.walk(top):
            found.update(os.path.join(path, d) for d in dirs if d.startswith("hutch-"))
            dirs[:] = [d for d in dirs if not d.startswith("hutch-")]
            if path[len(top):].count("/") > 6:
                dirs[:] = []
    others |= _runs_of_others()
    for path in found:
        inside = set(_read(path + "/cgroup.procs").decode().split())
        if inside and not inside & ours:
            others.add(os.path.basename(path))
    return {path for path in found if os.path.basename(path) not in others}


def loop_devices():
    """Loop devices whose file is one of our state directory's, present or deleted."""
    found, top = set(), os.path.realpath(state_dir()) + "/"
    try:
        names = os.listdir("/sys/block")
    except OSError:
        return found
    for name in names:
        if name.startswith("loop"):
            behind = _read("/sys/block/%s/loop/backing_file" % name).decode("utf8", "replace").strip()
            if behind.startswith(top):
                found.add("%s: %s" % (name, behind))
    return found


def temporary_files():
    found = set()
    for top in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
        try:
            found.update(os.path.join(top, n) for n in os.listdir(top)
                         if n.startswith(("hutch", "run-")) and not n.startswith(("hutch-test", "hutch-v2")))
        except OSError:
            pass
    return found - {"/run/hutch"}


class Snapshot:
    """What is on the host now, and, later, what came since and stayed."""

    LOOKS = (("process", our_processes), ("mount", mounts), ("cgroup", cgroups),
             ("loop device", loop_devices), ("file in the state directory", state_files),
             ("temporary file", temporary_files))

    def __init__(self):
        self.before = {name: set(look()) for name, look in self.LOOKS}

    def left(self):
        """Sentences, one per thing that was not there before."""
        found = []
        for name, look in self.LOOKS:
            now = look()
            for one in sorted(set(now) - self.before[name]):
                more = " (%s)" % now[one] if isinstance(now, dict) else ""
                found.append("%s left: %s%s" % (name, one, more))
        return found

    def wait_clean(self, seconds=TIDY_S):
        """Returns [] as soon as nothing is left, else what was there all the time for `seconds`.

        What comes later than the first look belongs to somebody else's run on this host: ours had ended before it.
        """
        stayed = set(self.left())

        def gone():
            stayed.intersection_update(self.left())
            return not stayed

        try:
            wait_until(gone, seconds)
        except Gone:
            pass
        return sorted(stayed)


# ---- running hutch --------------------------------------------------------------------------------------------

class Result:
    """One ended `hutch`: exit code (negative: killed by that signal), bytes of both streams, seconds."""

    def __init__(self, argv, code, out, err, seconds):
        self.argv, self.code, self.out, self.err, self.seconds = argv, code, out, err, seconds

    @property
    def stdout(self):
        return self.out.decode("utf8", "replace")

    @property
    def stderr(self):
        return self.err.decode("utf8", "replace")

    @property
    def own_lines(self):
        """What hutch itself said on stderr."""
        return [line for line in self.stderr.splitlines() if line.startswith("hutch: ")]

    @property
    def json(self):
        """The execution object of --json; strict: one object, nothing else, valid UTF-8."""
        try:
            value = json.loads(self.out.decode("utf8", "strict"))
        except ValueError as e:
            raise AssertionError("--json did not print one JSON object (%s)\n%s" % (e, self))
        if not isinstance(value, dict):
            raise AssertionError("--json printed no object\n%s" % self)
        return value

    def __str__(self):
        return "%s\n  exit code %s after %.2f s\n  stdout: %s\n  stderr: %s" % (
            " ".join(shorten(a, 120) for a in self.argv), self.code, self.seconds,
            shorten(self.stdout), shorten(self.stderr, 900))


def environment(extra=None):
    env = dict(os.environ)
    env.update(extra or {})
    return env


def start(args, **kw):
    """Popen of hutch with pipes; the caller owns it. Used where a test speaks with a running program."""
    kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.PIPE)
    kw["env"] = environment(kw.pop("env", None))
    return subprocess.Popen([HUTCH] + list(args), **kw)


def hutch(*args, stdin=None, timeout=30, env=None, **kw):
    """Runs hutch to its end. stdin: bytes, or None for /dev/null. Raises Gone when it does not come back."""
    argv = list(args)
    begun = time.monotonic()
    proc = start(argv, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE, env=env, **kw)
    try:
        out, err = proc.communicate(stdin, timeout=timeout * SLOWNESS)
    except subprocess.TimeoutExpired:
        proc.kill()
        try:
            out, err = proc.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            out, err = b"", b"(and something still holds its pipes)"
        raise Gone("no answer after %d s: %s" % (timeout, Result(["hutch"] + argv, None, out or b"", err or b"", timeout)))
    return Result(["hutch"] + argv, proc.returncode, out, err, time.monotonic() - begun)


def run(*args, **kw):
    """`hutch run ARGS`."""
    return hutch("run", *args, **kw)


class Peak(threading.Thread):
    """Follows a running hutch and remembers the largest VmHWM of each of its programs, in bytes."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak, self.ended = pid, {}, threading.Event()
        self.start()

    def look(self):
        for pid in [self.pid] + descendants(self.pid):
            name = program_of(pid)
            high = proc_status(pid).get("VmHWM", "").split()
            if name and high:
                self.peak[name] = max(self.peak.get(name, 0), int(high[0]) * 1024)

    def run(self):
        while not self.ended.wait(0.03):
            self.look()

    def stop(self):
        self.ended.set()
        self.join()
        return self.peak


def memory_cgroup_for_user():
    """True when this ordinary user can limit memory: a v2 group with the memory controller delegated to it."""
    if IS_ROOT:
        return True
    tops = [line.split()[4] for line in _read("/proc/self/mountinfo").decode().splitlines()
            if " - cgroup2 " in line]
    mine = [line[3:] for line in _read("/proc/self/cgroup").decode().splitlines() if line.startswith("0::")]
    for top in tops:
        for path in mine:
            here = top + path.rstrip("/")
            if b"memory" in _read(here + "/cgroup.controllers") and os.access(here, os.W_OK):
                return True
    return False


# ---- unittest ---------------------------------------------------------------------------------------------------

class HutchTest(unittest.TestCase):
    """A test that leaves nothing behind, or fails."""

    longMessage = True
    maxDiff = 2000

    def setUp(self):
        self.host = Snapshot()
        self.dir = tempfile.mkdtemp(prefix="hutch-test-", dir=scratch())
        self.addCleanup(shutil.rmtree, self.dir, True)

    def tearDown(self):
        left = self.host.wait_clean()
        if left:
            self.fail("after the test:\n  " + "\n  ".join(left))

    def missing(self, what):
        """A part that could be here is not: a skip, and a failure in CI."""
        if os.environ.get("CI") == "true":
            self.fail("CI has to bring what is missing: " + what)
        self.skipTest("missing: " + what)

    def cannot_exist(self, why):
        """The part cannot exist here (an ordinary user without cgroups, say): always a skip that says so."""
        self.skipTest("cannot exist here: " + why)

    def root_only(self, why):
        if not IS_ROOT:
            self.cannot_exist("%s needs root" % why)

    def need_program(self, name):
        if not shutil.which(name, path="/usr/local/bin:/usr/bin:/bin"):
            self.missing("program " + name)

    # small helpers ---------------------------------------------------------------------------------------

    def path(self, name, content=None, mode=None):
        """A path in this test's own folder; written when content is given."""
        full = os.path.join(self.dir, name)
        if content is not None:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as f:
                f.write(content if isinstance(content, bytes) else content.encode())
            if mode is not None:
                os.chmod(full, mode)
        return full

    def start(self, *args, **kw):
        """`hutch run ARGS` that goes on; killed by pid at the end of the test when it still lives."""
        proc = start(["run"] + list(args), **kw)
        self.addCleanup(end, proc)
        return proc

    def ok(self, result, code=0):
        self.assertEqual(result.code, code, "\n%s" % result)
        return result

    def run_ok(self, *args, **kw):
        return self.ok(run(*args, **kw))

    def py(self, code, *options, **kw):
        """Python code in a sandbox, exit 0 wanted; its standard output as text."""
        return self.run_ok(*options, "-c", code, **kw).stdout

    def usage_error(self, *args, naming, **kw):
        result = run(*args, **kw)
        self.assertEqual(result.code, 2, "\n%s" % result)
        self.assertEqual(result.out, b"", "\n%s" % result)
        self.assertTrue(result.own_lines, "nothing was said by hutch\n%s" % result)
        self.assertIn(naming, result.stderr, "\n%s" % result)
        return result

    def returned_within(self, result, seconds):
        """The answer came in time, with room for a loaded machine."""
        self.assertLessEqual(result.seconds, seconds * SLOWNESS, "\n%s" % result)

    def honest_refusal(self, result, *words):
        """Exit 125, with a sentence that names each of `words` and the way out, --best-effort."""
        self.assertEqual(result.code, 125, "\n%s" % result)
        said = " ".join(result.own_lines)
        for word in words + ("--best-effort",):
            self.assertIn(word, said, "\n%s" % result)
        return result


def end(proc):
    if proc.poll() is None:
        proc.kill()
    for pipe in (proc.stdin, proc.stdout, proc.stderr):
        if pipe:
            try:
                pipe.close()
            except OSError:
                pass
    proc.wait()


_scratch = None


def scratch():
    """A folder of this test program, outside every place that the leak checks look at; removed at exit."""
    global _scratch
    if not _scratch:
        _scratch = tempfile.mkdtemp(prefix="hutch-test-")
        os.chmod(_scratch, 0o755)
        atexit.register(shutil.rmtree, _scratch, True)
    return _scratch


def enter_user():
    """Becomes HUTCH_TEST_USER when root asks for it: the program starts again under setpriv."""
    name = os.environ.get("HUTCH_TEST_USER")
    if not name or not IS_ROOT:
        return
    user = pwd.getpwnam(name)
    env = {k: v for k, v in os.environ.items() if k not in ("HUTCH_STATE_DIR", "XDG_RUNTIME_DIR")}
    env.update(HOME=user.pw_dir, USER=name, LOGNAME=name,
               XDG_STATE_HOME=os.path.join(user.pw_dir, ".local", "state"))
    env.pop("HUTCH_TEST_USER")
    os.chdir("/")
    os.execvpe("setpriv", ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups",
                           "--inh-caps=-all", sys.executable, os.path.abspath(sys.argv[0])] + sys.argv[1:], env)


def prepare(needs_program=True):
    """To be called first by every test program: user, state directory, program present."""
    enter_user()
    os.umask(0o022)
    if IS_ROOT:
        os.environ.setdefault("HUTCH_STATE_DIR", os.path.join(scratch(), "state"))
    else:
        os.environ.setdefault("XDG_STATE_HOME", os.path.join(scratch(), "xdg-state"))
    if needs_program and not os.access(HUTCH, os.X_OK):
        print("no program to test at %s: build it first (make)" % HUTCH)
        print("0 passed, 1 failed, 0 skipped")
        sys.exit(1)


class _Outcome(unittest.TestResult):
    def __init__(self, verbose):
        super().__init__()
        self.verbose, self.passed, self.durations = verbose, 0, []

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.durations.append((time.monotonic() - self.begun, test.id()))

    def addSuccess(self, test):
        self.passed += 1
        if self.verbose:
            print("ok    %s (%.2f s)" % (test.id(), time.monotonic() - self.begun), flush=True)

    def _bad(self, test, err):
        kind, value, trace = err
        text = self._exc_info_to_string(err, test)
        print("FAIL  %s\n%s" % (test.id(), re.sub(r"(?m)^", "      ", text.rstrip())), flush=True)

    def addError(self, test, err):
        super().addError(test, err)
        self._bad(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._bad(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._bad(subtest, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print("skip  %s: %s" % (test.id(), reason), flush=True)


def finish(passed, failed, skipped):
    """The plain last line that tests/run.py adds up, and the exit status."""
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped), flush=True)
    sys.exit(1 if failed else 0)


def main(needs_program=True):
    """Runs the unittest cases of the calling program. Arguments: -v, --slowest, and regexes of test names."""
    prepare(needs_program)
    words = [a for a in sys.argv[1:] if not a.startswith("-")]
    loader = unittest.TestLoader()
    outcome = _Outcome("-v" in sys.argv)

    def each(suite):
        for item in suite:
            if isinstance(item, unittest.TestSuite):
                yield from each(item)
            elif not words or any(re.search(w, item.id()) for w in words):
                yield item

    chosen = list(each(loader.loadTestsFromModule(sys.modules["__main__"])))
    unittest.TestSuite(chosen).run(outcome)
    if "--slowest" in sys.argv:
        for seconds, name in sorted(outcome.durations, reverse=True)[:15]:
            print("%6.2f s  %s" % (seconds, name))
    bad = len({str(t) for t, _ in outcome.failures + outcome.errors})
    finish(outcome.passed, bad, len(outcome.skipped))
