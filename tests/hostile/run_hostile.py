#!/usr/bin/python3
"""The hostile programs against `hutch run`: see README.md beside this file.

    run_hostile.py [probes|crowd|exhaust|copyout|swap …] [--only REGEX] [--verbose]
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import hutch_test  # noqa: E402
from hutch_test import IS_ROOT, Gone, wait_until  # noqa: E402

TOKEN = b"hostile-canary-token"
CARELESS = {"HOSTILE_CANARY_ENV": "hostile-canary-token-7f3a41", "AWS_SECRET_ACCESS_KEY": "hostile-canary-token-aws"}
M = 1 << 20
SWAP_ROUNDS = 30
MUST_MEMORY = 8 * M         # VmHWM of launcher and agent
CLIENT_MEMORY = 48 * M      # VmHWM of hutch: it holds the kept output of --json


class Wrong(Exception):
    """What a program did that it must not."""


def expect(truth, *text):
    if not truth:
        raise Wrong(" ".join(str(t) for t in text))


class Tally:
    def __init__(self, verbose):
        self.passed = self.failed = self.skipped = 0
        self.verbose = verbose

    def ok(self, name, said=""):
        self.passed += 1
        if self.verbose:
            print("ok    %s %s" % (name, said), flush=True)

    def fail(self, name, said):
        self.failed += 1
        print("FAIL  %s: %s" % (name, said), flush=True)

    def skip(self, name, why, can_be_mended=True):
        if can_be_mended and os.environ.get("CI") == "true":
            return self.fail(name, "CI has to bring what is missing: " + why)
        self.skipped += 1
        print("skip  %s: %s" % (name, why), flush=True)

    def check(self, name, function, *args):
        """Counts function(*args): a returned sentence is for people, an exception a failure."""
        try:
            self.ok(name, function(*args) or "")
        except (Wrong, Gone, AssertionError) as e:
            self.fail(name, e)
        except Exception as e:    # a broken judge is a failure too, and the next program still gets its turn
            self.fail(name, "the judge failed: %r" % e)


# ---- hutch, started the careless way -------------------------------------------------------------------------

def careless_fds():
    """A directory and a file of the host, at 9 and 900, open across exec in this process from now on."""
    for wanted, path in ((9, "/"), (900, "/etc/passwd")):
        fd = os.open(path, os.O_RDONLY)
        os.dup2(fd, wanted, inheritable=True)
        if fd != wanted:
            os.close(fd)
    return (9, 900)


class Ran(hutch_test.Result):
    """An ended run of a hostile program with what it cost: `peak` of our programs' memory."""

    peak = {}


def run(argv, timeout):
    proc = hutch_test.start(["run"] + argv, env=CARELESS, pass_fds=FDS)
    peak, begun = hutch_test.Peak(proc.pid), time.monotonic()
    try:
        out, err = proc.communicate(timeout=timeout * hutch_test.SLOWNESS)
    except subprocess.TimeoutExpired:
        proc.kill()
        raise Gone("no answer after %d s" % timeout)
    finally:
        high = peak.stop()
    ran = Ran(["hutch", "run"] + argv, proc.returncode, out, err, time.monotonic() - begun)
    ran.peak = high
    return ran


def command(path):
    """How a program of the corpus is given to `hutch run`: options, and what follows them."""
    name, kind = os.path.basename(path), path.rsplit(".", 1)[1]
    if kind == "py":
        return [], [path]
    if kind == "sh":
        return ["--input", path], ["--", "sh", "inputs/" + name]
    exe = compiled(path)
    return ["--input", exe], ["--", "./inputs/" + os.path.basename(exe)]


def bins():
    """Where compiled programs are kept: shared by both passes when tests/run.py says where."""
    where = os.environ.get("HOSTILE_BIN") or os.path.join(hutch_test.scratch(), "bin")
    os.makedirs(where, exist_ok=True)
    return where


def compiled(path):
    exe = os.path.join(bins(), os.path.basename(path)[:-2])
    if not os.path.exists(exe):
        subprocess.run(["gcc", "-O1", "-static", "-w", "-o", "%s.%d" % (exe, os.getpid()), path, "-lrt", "-lpthread"], check=True)
        os.rename("%s.%d" % (exe, os.getpid()), exe)
    return exe


def verdict(text, name):
    match = re.fullmatch(r"(HELD|BROKEN|SKIP) (\S+?)(?:: (.*))?\n", text)
    if match and match[2] == name:
        return match[1], match[3] or ""
    return "ERROR", hutch_test.shorten(text, 200)


class Canary:
    """The host's marks, while the block runs."""

    def __enter__(self):
        ready = os.path.join(hutch_test.scratch(), "canary-ready")
        if os.path.exists(ready):
            os.unlink(ready)
        self.proc = subprocess.Popen([sys.executable, os.path.join(HERE, "tools", "canary.py"), "--ready", ready])
        wait_until(lambda: os.path.exists(ready), 10, "canary.py")
        return self

    def __exit__(self, *_):
        self.proc.terminate()
        self.proc.wait()


# ---- probes ---------------------------------------------------------------------------------------------------

def accepted():
    with open(os.path.join(HERE, "accepted.json")) as f:
        table = json.load(f)
    for name, why in table.items():
        if not isinstance(why, str) or len(why) < 20:
            raise SystemExit("accepted.json: %s wants a written reason" % name)
    return table


def judge_probes(results, table, tally):
    """Counts the rows of run_probes.py by their level, and holds the table of accepted ones against them."""
    for row in results:
        name, what = "probe " + row["name"], row["verdict"]
        if what == "HELD":
            tally.ok(name)
            if row["name"] in table:
                print("note  %s is accepted as broken but holds: take it out of accepted.json" % name)
        elif what == "SKIP":
            # The probe itself says that this kernel has no such thing: nothing that CI could bring.
            tally.skip(name, row["what"], can_be_mended=False)
        elif row["level"] == "should" and what == "BROKEN" and row["name"] in table:
            tally.ok(name)
            print("note  %s is broken and accepted: %s" % (name, table[row["name"]]))
        else:
            tally.fail(name, "%s (%s HOLD): %s" % (what, row["level"].upper(), row["what"]))


def probes(o, tally):
    for name in sorted(os.listdir(os.path.join(HERE, "probes"))):
        if name.endswith(".c") and re.search(o.only, name):
            compiled(os.path.join(HERE, "probes", name))
    out = os.path.join(hutch_test.scratch(), "probes.json")
    before = hutch_test.Snapshot()
    with Canary():
        done = subprocess.run([sys.executable, os.path.join(HERE, "tools", "run_probes.py"), "--cmd",
                               os.path.join(HERE, "adapter") + " {kind} {file}", "--only", o.only, "--out", out, "--no-canary"],
                              env=dict(os.environ, HUTCH_BIN=hutch_test.HUTCH, HOSTILE_BIN=bins(), **CARELESS),
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        with open(out) as f:
            results = json.load(f)
    except OSError:
        tally.fail("probes", "run_probes.py made no list: " + done.stderr.decode("utf8", "replace"))
        return
    judge_probes(results, accepted(), tally)
    if not results:
        tally.fail("probes", "none ran")
    left = before.wait_clean()
    if left:
        tally.fail("after the probes", "; ".join(left))


CROWD = ("fs_persist_between_runs.py", "fs_tmp_not_shared.sh", "proc_no_foreign_processes.py", "ipc_sysv_shm.c", "ipc_posix_mq.c",
         "net_loopback_only.py", "net_abstract_unix.py", "ns_pid_private.py", "id_not_host_root.py", "fd_no_extra.py")


def crowd(o, tally):
    """Each of some probes 20 times at once: the same verdict 20 times."""
    names = [n for n in CROWD if re.search(o.only, n)]
    for name in names:
        path = os.path.join(HERE, "probes", name)
        options, what = command(path)

        def one(_):
            return hutch_test.run("--timeout", "50", *options, *what, timeout=60, env=CARELESS, pass_fds=FDS)

        def all_held():
            before = hutch_test.Snapshot()
            with Canary(), concurrent.futures.ThreadPoolExecutor(20) as pool:
                ran = list(pool.map(one, range(20)))
            said = [verdict(r.stdout, name.rsplit(".", 1)[0]) for r in ran]
            bad = [(v, r) for v, r in zip(said, ran) if v[0] != "HELD"]
            expect(not bad, "%d of 20 did not hold: %s" % (len(bad), bad[:1] and "%s %s" % bad[0]))
            left = before.wait_clean()
            expect(not left, "; ".join(left))
        tally.check("20 at once " + name, all_held)


# ---- exhaust --------------------------------------------------------------------------------------------------

HELD, KILLED, TIMEOUT, CUT = "HELD", "killed by the memory limit", "timeout", "killed for its output"

# program → limits, time limit, what may come of it, and the seconds that the answer may take: where none are given, the limit
# and two more; where the program ends at once, its start and two more.
EXHAUST = {
    "exhaust_cpu_children.py": ("pids memory", 3, {TIMEOUT}, None),
    "exhaust_daemon.c": ("pids memory", 10, {HELD}, 3),
    "exhaust_disk_fill.py": ("pids memory disk", 30, {HELD, KILLED}, None),
    "exhaust_fds.py": ("pids memory", 10, {HELD}, None),
    "exhaust_fork_bomb.py": ("pids memory", 12, {HELD}, None),
    "exhaust_hold_stdout.sh": ("pids memory", 10, {HELD}, 3),
    "exhaust_inodes.py": ("pids memory disk", 40, {HELD, KILLED}, None),
    "exhaust_memory.c": ("pids memory!", 15, {HELD, KILLED}, None),
    "exhaust_memory_shm.py": ("pids memory!", 20, {HELD, KILLED}, None),
    "exhaust_output_flood.py": ("pids memory output", 20, {HELD, CUT}, None),
    "exhaust_sleep_forever.sh": ("pids memory", 2, {TIMEOUT}, None),
    "exhaust_threads.c": ("pids memory", 12, {HELD}, None),
    "exhaust_zombies.py": ("pids memory", 12, {HELD}, None),
}
LIMITS = {"pids": ["--pids", "128"], "memory": ["--memory", "256M"], "disk": ["--disk", "128M"], "output": ["--max-output", "1M"]}


def free_bytes():
    st = os.statvfs(hutch_test.state_dir() if os.path.isdir(hutch_test.state_dir()) else "/")
    return st.f_bavail * st.f_frsize


def hostile_processes():
    """Processes that name themselves hostile-*, other than the canary of the host."""
    return [p for p in hutch_test.all_pids()
            if hutch_test.proc_status(p).get("Name", "").startswith("hostile-") and
            hutch_test.proc_status(p).get("Name") != "hostile-canary"]


def exhaust_one(name, path, words, seconds, outcomes, at_most):
    has_memory = IS_ROOT or hutch_test.memory_cgroup_for_user()
    limits = [text for word in words.replace("!", "").split() if word != "memory" or has_memory for text in LIMITS[word]]
    options, what = command(path)
    argv = ["--json", "--timeout", str(seconds)] + limits + ["--cpus", "1"] * has_memory + options + what
    before, free = hutch_test.Snapshot(), free_bytes()
    ran = run(argv, seconds + 20)
    got = ran.json
    said, _ = verdict(got["stdout"], name.rsplit(".", 1)[0])

    outcome = (HELD if said == "HELD" and got["status"] == "ok" else
               KILLED if (got["status"], got["reason"], ran.code) == ("killed", "memory", 137) else
               CUT if (got["status"], got["reason"], ran.code) == ("killed", "output", 137) else
               TIMEOUT if (got["status"], got["reason"], ran.code) == ("timeout", "timeout", 124) else None)
    if "output" in words and outcome is None and got["status"] == "ok" and got["truncated"]["stdout"]:
        outcome = HELD
    expect(outcome in outcomes, "expected %s, got %s\n%s" % (" or ".join(sorted(outcomes)), outcome or "something else", ran))
    if "output" in words:
        expect(got["truncated"]["stdout"], "the answer does not say that output was cut")
        expect(len(got["stdout"].encode()) <= M + 100, "more output was kept than asked for, a note apart")
    limit = at_most if at_most is not None else seconds + 2
    expect(ran.seconds <= limit * hutch_test.SLOWNESS, "the answer took %.1f s, at most %d wanted" % (ran.seconds, limit))

    left = before.wait_clean(1.0)
    expect(not left, "one second later: " + "; ".join(left))
    expect(not hostile_processes(), "one second later: hostile processes", hostile_processes())
    try:
        wait_until(lambda: free - free_bytes() < 48 * M, 5)
    except Gone:
        raise Wrong("the host's disk has %d MiB less than before" % ((free - free_bytes()) // M))
    if not hutch_test.SANITIZED:
        for program, high in ran.peak.items():
            bound = CLIENT_MEMORY if program == "hutch" else MUST_MEMORY
            expect(high <= bound, "%s took %d KiB of memory, at most %d wanted" % (program, high // 1024, bound // 1024))
    again = hutch_test.run("-c", "print('fine')", timeout=20)
    expect((again.code, again.stdout) == (0, "fine\n"), "the next run: %s" % again)
    expect(again.seconds < 3 * hutch_test.SLOWNESS, "the next run took %.1f s" % again.seconds)
    return "%s after %.1f s" % (outcome, ran.seconds)


def refused(path):
    """An ordinary user without a cgroup asks for a memory limit: the honest error, and nothing has run."""
    options, what = command(path)
    ran = run(["--json", "--memory", "256M"] + options + what, 20)
    expect(ran.code == 125, "exit code 125 expected\n%s" % ran)
    said = " ".join(ran.own_lines)
    expect("--memory" in said and "--best-effort" in said, "the error does not name --memory and --best-effort\n%s" % ran)
    expect(b"HELD" not in ran.out and b"BROKEN" not in ran.out, "the program ran all the same\n%s" % ran)
    return "refused honestly"


def exhaust(o, tally):
    names = sorted(os.listdir(os.path.join(HERE, "exhaust")))
    if set(names) != set(EXHAUST):
        tally.fail("exhaust", "the table does not fit the folder: %s" % sorted(set(names) ^ set(EXHAUST)))
    for name in names:
        if not re.search(o.only, name):
            continue
        path = os.path.join(HERE, "exhaust", name)
        words, seconds, outcomes, at_most = EXHAUST[name]
        if "memory!" in words and not IS_ROOT and not hutch_test.memory_cgroup_for_user():
            tally.check(name, refused, path)
        else:
            tally.check(name, exhaust_one, name, path, words, seconds, outcomes, at_most)


# ---- copyout --------------------------------------------------------------------------------------------------

def collected(top):
    """{path as bytes: content, or None when it is no regular file} below the folder that was collected into."""
    found, top = {}, os.fsencode(top)
    for path, dirs, files in os.walk(top):
        for name in files + [d for d in dirs if os.path.islink(os.path.join(path, d))]:
            full = os.path.join(path, name)
            if os.path.islink(full) or not os.path.isfile(full):
                found[os.path.relpath(full, top)] = None
            else:
                with open(full, "rb") as f:
                    found[os.path.relpath(full, top)] = f.read(64 * M)
    return found


def trap(path, *options, seconds=10):
    """Runs a trap with --out; the rules that all of them share. Returns (files, execution, Ran)."""
    folder = tempfile.mkdtemp(dir=hutch_test.scratch())
    try:
        before = hutch_test.Snapshot()
        given, what = command(path)
        ran = run(["--json", "--timeout", str(seconds), "--out", os.path.join(folder, "out")] + list(options) + given + what, seconds + 20)
        got = ran.json
        expect(ran.seconds < 10 * hutch_test.SLOWNESS, "the answer took %.1f s" % ran.seconds)
        expect(os.listdir(folder) in ([], ["out"]), "something beside the out folder: %s" % os.listdir(folder))
        files = collected(os.path.join(folder, "out"))
        used = sum(os.lstat(os.path.join(p, n)).st_blocks * 512 for p, _, ns in os.walk(os.fsencode(folder)) for n in ns)
        expect(used < 100 * M, "%d MiB were collected" % (used // M))
        for name, content in files.items():
            expect(content is not None, "%r was collected and is no regular file" % name)
            expect(TOKEN not in content, "%r holds the host's token" % name)
        expect(TOKEN not in ran.out and TOKEN not in ran.err, "the answer holds the host's token\n%s" % ran)
        for place in (hutch_test.state_dir(), folder):
            for text in json.dumps(got["left_out"]), ran.stderr:
                expect(place not in text, "the answer names a path of the host: %s" % text)
        left = before.wait_clean()
        expect(not left, "; ".join(left))
        return files, got, ran
    finally:
        shutil.rmtree(folder, True)


def reasons(got):
    return {one["path"]: one["reason"] for one in got["left_out"]}


def copyout_fifo(path):
    files, got, ran = trap(path)
    expect(b"out.txt" not in files and reasons(got).get("out.txt") == "special_file", "out.txt is not left out as a special file: %s" % got["left_out"])
    expect(ran.seconds < 5 * hutch_test.SLOWNESS, "it took %.1f s" % ran.seconds)


def copyout_names(path):
    names = {b"a\r\nX-Injected: 1", b'q".txt', b"-rf", b"..hidden", b"\xff\xfe.bin", b"<img src=x>", b"%2e%2e%2fetc", b"a;b|c$(id)",
             b"\xe2\x80\xaegnp.txt", b"nul\x01l", b"x" * 255}
    files, got, ran = trap(path, "--keep", "..hidden")
    expect(set(files) - names == set(), "files that the program did not make: %s" % sorted(set(files) - names))
    lost = names - set(files)
    # A name that is no text may be left out, when that is said: JSON cannot carry it.
    if lost == {b"\xff\xfe.bin"}:
        expect("bad_name" in reasons(got).values(), "%s is neither collected nor said: %s" % (sorted(lost), got["left_out"]))
        lost = set()
    expect(not lost, "not collected: %s, left_out %s" % (sorted(lost), got["left_out"]))
    expect(set(files.values()) == {b"inside\n"}, "a file does not say 'inside': %s" % files)
    expect({a["path"] for a in got["artifacts"]} >= {n.decode() for n in names - {b"\xff\xfe.bin"}}, "names in the answer: %s" % got["artifacts"])
    expect(not re.search(r"(?m)^X-Injected", ran.stderr), "a line of the answer is the file's name\n%s" % ran)


def copyout_link(path):
    files, got, _ = trap(path)
    expect(files == {} and reasons(got) == {"out.txt": "link"}, "collected %s, left out %s" % (files, got["left_out"]))


def copyout_sparse(path):
    files, got, ran = trap(path)
    if "no such file can be made" in got["stdout"]:
        expect(files in ({}, {b"out.txt": b""}), "collected %s" % files)
        return "the sandbox makes no such file"
    expect(files == {} and reasons(got) == {"out.txt": "too_large"}, "collected %s, left out %s" % (sorted(files), got["left_out"]))
    expect(ran.peak.get("hutch", 0) < CLIENT_MEMORY or hutch_test.SANITIZED, "hutch took %d KiB" % (ran.peak.get("hutch", 0) // 1024))


def copyout_unreadable(path):
    files, got, _ = trap(path)
    expect(files == {b"out.txt": b"inside\n"} or (files == {} and reasons(got) == {"out.txt": "unreadable"}),
           "collected %s, left out %s" % (files, got["left_out"]))


def copyout_sizes(path):
    files, got, ran = trap(path)
    expect(reasons(got).get("too-large.bin") == "too_large", "left out: %s" % got["left_out"])
    expect(len(files.get(b"fits.bin", b"")) == 20 * M and files[b"fits.bin"].startswith(b"start"), "fits.bin was not collected whole")
    grown = files.get(b"grows.txt")
    expect(grown is None or set(grown.split(b"\n")) <= {b"inside", b""}, "grows.txt is not what was written")


def copyout_links(path):
    files, got, _ = trap(path)
    expect(files == {b"real.txt": b"inside\n"}, "collected %s" % sorted(files))
    expect(set(reasons(got).values()) == {"link"} and len(reasons(got)) == 10, "left out: %s" % got["left_out"])


COPYOUT = {
    "copyout_fifo.py": copyout_fifo, "copyout_names.py": copyout_names, "copyout_proc_link.py": copyout_link,
    "copyout_sparse.py": copyout_sparse, "copyout_symlink_file.py": copyout_link, "copyout_unreadable.py": copyout_unreadable,
}
OWN = {"copyout_sizes.py": copyout_sizes, "copyout_links.py": copyout_links}


def copyout(o, tally):
    if set(os.listdir(os.path.join(HERE, "copyout"))) != set(COPYOUT):
        tally.fail("copyout", "the table does not fit the folder")
    with Canary():
        for folder, table in (("copyout", COPYOUT), ("own", OWN)):
            for name, judge in sorted(table.items()):
                if re.search(o.only, name):
                    tally.check(name, judge, os.path.join(HERE, folder, name))


def swap(o, tally):
    """Files and links are swapped while the run ends by its time limit: what is collected is the sandbox's own."""
    if not re.search(o.only, "swap"):
        return

    def one(number, seconds):
        files, got, ran = trap(os.path.join(HERE, "own", "swap.py"), seconds=seconds)
        expect(got["status"] == "timeout", "the program ended\n%s" % ran)
        for name, content in files.items():
            # A regular file is made first and written then: before the swapping it may still be empty.
            expect(content == b"inside\n" or not content and not got["stdout"], "round %d: %r holds %r" % (number, name, content[:80]))
        return len(files) if "swapping" in got["stdout"] else None

    def rounds():
        """On a loaded host a round may end before the program swaps: it does not count, and the next ones take longer."""
        seconds, counts = 0.4, []
        for number in range(2 * SWAP_ROUNDS):
            count = one(number, seconds)
            if count is None:
                seconds = min(seconds * 1.5, 5)
                continue
            counts.append(count)
            if len(counts) == SWAP_ROUNDS:
                break
        expect(len(counts) == SWAP_ROUNDS, "only %d rounds of %d came to the swapping" % (len(counts), 2 * SWAP_ROUNDS))
        expect(sum(counts) > SWAP_ROUNDS, "hardly anything was collected: %d files in %d rounds" % (sum(counts), SWAP_ROUNDS))
        return "%d files in %d rounds" % (sum(counts), SWAP_ROUNDS)

    with Canary():
        tally.check("swap in a loop", rounds)


PARTS = {"probes": probes, "crowd": crowd, "exhaust": exhaust, "copyout": copyout, "swap": swap}


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("parts", nargs="*", metavar="part", help="one of: " + ", ".join(PARTS))
    ap.add_argument("--only", default=".")
    ap.add_argument("--verbose", action="store_true")
    o = ap.parse_args()
    if set(o.parts) - set(PARTS):
        ap.error("no part %s" % sorted(set(o.parts) - set(PARTS)))
    hutch_test.prepare()
    tally = Tally(o.verbose)
    if not shutil.which("gcc"):
        tally.skip("programs in C", "missing: gcc")
        hutch_test.finish(tally.passed, tally.failed, tally.skipped)
    global FDS
    FDS = careless_fds()
    for name in o.parts or PARTS:
        PARTS[name](o, tally)
    hutch_test.finish(tally.passed, tally.failed, tally.skipped)


FDS = ()

if __name__ == "__main__":
    main()
