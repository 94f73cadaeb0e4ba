#!/usr/bin/python3
"""`make bench`: what a sandbox costs, hutch beside its neighbours, in one run and interleaved.

Each round starts every contestant once, in an order of its own: a slow minute of the machine hits all of them alike, and none
always comes after the one whose namespaces and cgroups the kernel is still taking down.
Two ways: "tight" (back to back) and "idle" (20 to 50 ms of rest before each start): waiting for the kernel's RCU
grace periods, the dearest thing a sandbox can do, does not show in a tight loop. Starting is posix_spawn, ending is
wait4, so the harness itself costs what the first line (true) shows, for everybody.

It prints what is wanted and what was measured, and never fails because of a time; it fails when hutch cannot run.
"""
import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PYTHON = "/usr/bin/python3"
MS = 1_000_000
WANTED_RUNS_PER_S = 250
WANTED_PEAK_BYTES = 4 << 20

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS = 0x00020000


# --- starting and waiting

class Spawner:
    """Starts programs with /dev/null for input and output, and a file that keeps their last complaint."""

    def __init__(self, folder):
        self.complaints = os.path.join(folder, "stderr")
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.errors = os.open(self.complaints, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.actions = [(os.POSIX_SPAWN_DUP2, self.null, 0), (os.POSIX_SPAWN_DUP2, self.null, 1),
                        (os.POSIX_SPAWN_DUP2, self.errors, 2)]

    def start(self, argv):
        return os.posix_spawn(argv[0], argv, os.environ, file_actions=self.actions)

    def run_ns(self, argv):
        """Nanoseconds from start to end, and the wait status."""
        before = time.perf_counter_ns()
        pid = self.start(argv)
        _, status, _ = os.wait4(pid, 0)
        return time.perf_counter_ns() - before, status

    def forget_complaint(self):
        os.ftruncate(self.errors, 0)
        os.lseek(self.errors, 0, os.SEEK_SET)

    def complaint(self):
        with open(self.complaints, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else "no message"


class OtherMounts:
    """A mount namespace to start a contestant from; entering and leaving it is outside of the measured time."""

    def __init__(self, preparation):
        self.holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                                        preparation + " && echo ready && exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise OSError("cannot prepare a mount namespace")
        self.home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self.there = os.open(f"/proc/{self.holder.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self.cwd = os.getcwd()

    def switch(self, fd):
        if LIBC.setns(fd, CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def __enter__(self):
        self.switch(self.there)

    def __exit__(self, *_):
        self.switch(self.home)
        os.chdir(self.cwd)

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()
        os.close(self.home)
        os.close(self.there)


# --- contestants

def bwrap_command(*program):
    links = [word for name in ("lib", "lib64", "bin", "sbin") if os.path.exists("/" + name)
             for word in ("--symlink", "usr/" + name, "/" + name)]
    return [shutil.which("bwrap"), "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", *links,
            "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *program]


def crun_bundle(folder, program):
    """An OCI bundle whose root is the host's /usr, read-only, with no network."""
    root = os.path.join(folder, "rootfs")
    for name in ("usr", "proc", "dev", "tmp", "sys"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    for name in ("lib", "lib64", "bin", "sbin"):
        if os.path.exists("/" + name) and not os.path.lexists(os.path.join(root, name)):
            os.symlink("usr/" + name, os.path.join(root, name))
    config = {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": list(program), "cwd": "/",
                    "env": ["PATH=/usr/bin:/bin"], "noNewPrivileges": True},
        "root": {"path": "rootfs", "readonly": True}, "hostname": "sandbox",
        "mounts": [
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network", "cgroup")]},
    }
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


class Contestant:
    def __init__(self, name, argv, mounts=None):
        self.name, self.argv, self.mounts = name, argv, mounts
        self.samples = {"tight": [], "idle": []}
        self.absent = ""

    def run_ns(self, spawner):
        with self.mounts or contextlib.nullcontext():
            return spawner.run_ns(self.argv)

    def check(self, spawner):
        """Runs once; a contestant that cannot run here says why and leaves the race."""
        if self.absent:
            return
        spawner.forget_complaint()
        _, status = self.run_ns(spawner)
        if status != 0:
            self.absent = f"exit {os.waitstatus_to_exitcode(status)}: {spawner.complaint()}"


def absent(name, why):
    contestant = Contestant(name, [])
    contestant.absent = why
    return contestant


def crun_contestant(folder):
    name = "crun run"
    if not shutil.which("crun"):
        return absent(name, "crun is not installed")
    if os.geteuid() != 0:
        return absent(name, "the bundle is for root")
    crun_bundle(folder, [PYTHON, "-c", "pass"])
    mounts = None
    # crun 1.8 refuses hybrid hosts that have controllers in both hierarchies; without the empty v2 mount it takes v1.
    if os.path.ismount("/sys/fs/cgroup/unified"):
        mounts = OtherMounts("umount /sys/fs/cgroup/unified")
    argv = [shutil.which("crun"), "--cgroup-manager=cgroupfs", "run", "--bundle", folder, f"hutch-bench-{os.getpid()}"]
    return Contestant(name, argv, mounts)


def docker_contestant(image):
    name = "docker run"
    docker = shutil.which("docker")
    if not docker:
        return absent(name, "docker is not installed")
    try:
        asked = subprocess.run([docker, "image", "inspect", image], stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return absent(name, "the engine does not answer")
    if asked.returncode != 0:
        return absent(name, (asked.stderr.strip().splitlines() or ["no engine answers"])[-1])
    return Contestant(name, [docker, "run", "--rm", "--pull", "never", "--network", "none", image, "python3", "-c", "pass"])


def contestants(hutch, folder, image):
    bwrap = Contestant("bwrap + python3", bwrap_command(PYTHON, "-c", "pass")) if shutil.which("bwrap") \
        else absent("bwrap + python3", "bubblewrap is not installed")
    return [
        Contestant("true (harness)", ["/usr/bin/true"]),
        Contestant("bare python3", [PYTHON, "-c", "pass"]),
        bwrap,
        crun_contestant(os.path.join(folder, "bundle")),
        docker_contestant(image),
        Contestant("hutch run -c pass", [hutch, "run", "-c", "pass"]),
    ]


# --- measuring

def percentile(samples, part):
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]


def race(racers, spawner, rounds, way, pause):
    order = list(racers)
    for _ in range(rounds):
        random.shuffle(order)
        for racer in order:
            if pause:
                time.sleep(random.uniform(0.020, 0.050))
            elapsed, status = racer.run_ns(spawner)
            if status != 0:
                raise SystemExit(f"bench: {racer.name} failed in the middle: {spawner.complaint()}")
            racer.samples[way].append(elapsed)


def print_latency(racers, way, reference):
    base = percentile(reference.samples[way], 0.5) if reference and reference.samples[way] else None
    print(f"\n{way}: {'back to back' if way == 'tight' else '20 to 50 ms between starts'}")
    print(f"    {'':20} {'median ms':>10} {'p95 ms':>8} {'to bwrap':>9}")
    for racer in racers:
        if racer.absent:
            print(f"    {racer.name:20} {'-':>10} {'-':>8} {'-':>9}  {racer.absent}")
            continue
        median, p95 = (percentile(racer.samples[way], part) for part in (0.5, 0.95))
        ratio = f"{median / base:9.2f}" if base else f"{'-':>9}"
        print(f"    {racer.name:20} {median / MS:10.2f} {p95 / MS:8.2f} {ratio}")


def runs_per_s(spawner, argv, at_a_time, seconds):
    """Keeps `at_a_time` of them running for some seconds; counts those that ended well."""
    started = time.perf_counter()
    running, ended = {spawner.start(argv) for _ in range(at_a_time)}, 0
    while running:
        pid, status = os.wait()
        if pid not in running:
            continue
        running.discard(pid)
        if status != 0:
            for other in running:
                os.waitpid(other, 0)
            raise RuntimeError(f"exit {os.waitstatus_to_exitcode(status)}: {spawner.complaint()}")
        ended += 1
        if time.perf_counter() - started < seconds:
            running.add(spawner.start(argv))
    return ended / (time.perf_counter() - started)


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def family(pid):
    """pid and everything below it."""
    parents = {int(name): parent_of(name) for name in os.listdir("/proc") if name.isdigit()}
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def program_of(pid):
    """Which of our programs a process is, by its executable; a descriptor's path may lack its folders."""
    with contextlib.suppress(OSError):
        exe = os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
        for name in ("hutch-launcher", "hutch-agent", "hutch"):
            if exe == name or exe.endswith(":" + name):
                return name
    return None


def status_bytes(pid, key):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            if match := re.search(rf"^{key}:\s+(\d+) kB", file.read(), re.M):
                return int(match[1]) << 10
    return 0


def peak_memory(spawner, hutch):
    """VmHWM of hutch and its launcher and agent while code sleeps: {name: [bytes of each process]}."""
    pid = spawner.start([hutch, "run", "-c", "import time; time.sleep(1)"])
    peaks = {}
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        for member in family(pid):
            if name := program_of(member):
                key = (name, member)
                peaks[key] = max(peaks.get(key, 0), status_bytes(member, "VmHWM"))
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    table = {}
    for (name, _), peak in sorted(peaks.items()):
        table.setdefault(name, []).append(peak)
    return table


STEP = re.compile(r"^(?:hutch: )?\s*(?P<name>\S.*?)\s+(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>us|µs|ms)?\s*$")


def steps(hutch, rounds):
    """Medians of the rows that `hutch run --timing` prints, in its order: [(name, microseconds)]."""
    order, table = [], {}
    for _ in range(rounds):
        ran = subprocess.run([hutch, "run", "--timing", "--", "true"], stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, check=False)
        for line in ran.stderr.splitlines():
            if not (match := STEP.match(line)):
                continue
            name = " ".join(f"{word:9}" for word in match["name"].split())
            if name not in table:
                order.append(name)
            table.setdefault(name, []).append(float(match["number"]) * (1000 if match["unit"] == "ms" else 1))
        time.sleep(0.03)
    return [(name, percentile(table[name], 0.5)) for name in order]


# --- the report

def report_latency(racers, rounds):
    names = {racer.name: racer for racer in racers}
    reference = names["bwrap + python3"]
    for way in ("tight", "idle"):
        print_latency(racers, way, None if reference.absent else reference)
    print(f"\n    {rounds} rounds of each, interleaved")
    return names["hutch run -c pass"], None if reference.absent else reference


def report_throughput(spawner, hutch, seconds):
    rows = [("bwrap true", bwrap_command("/usr/bin/true") if shutil.which("bwrap") else None),
            ("hutch run -- true", [hutch, "run", "--", "true"])]
    print(f"\nthroughput: two at a time, {seconds:g} s each, {len(os.sched_getaffinity(0))} cores")
    rates = {}
    for name, argv in rows:
        try:
            if not argv:
                raise RuntimeError("not installed")
            rates[name] = runs_per_s(spawner, argv, 2, seconds)
            print(f"    {name:20} {rates[name]:10.0f} a second")
        except RuntimeError as error:
            print(f"    {name:20} {'-':>10}  {error}")
    return rates.get("hutch run -- true")


def report_memory(spawner, hutch):
    table = peak_memory(spawner, hutch)
    print("\nmemory: VmHWM while the code sleeps")
    for name, peaks in table.items():
        print(f"    {name:20} {sum(peaks) / 1024:10.0f} KiB" + (f"  ({len(peaks)} processes)" if len(peaks) > 1 else ""))
    ours = [sum(table.get(name, [])) for name in ("hutch-launcher", "hutch-agent")]
    return sum(ours) if all(ours) else None


def report_steps(hutch, rounds):
    rows = steps(hutch, rounds)
    print(f"\nwhere the time goes: hutch run --timing -- true, medians of {rounds}, idle")
    for name, micros in rows:
        print(f"    {name:40} {micros:10.0f} us")
    if not rows:
        print("    (hutch printed no steps)")


def verdict(what, wanted, measured, holds):
    word = "-" if holds is None else ("yes" if holds else "NO")
    print(f"    {what:44} {wanted:>16} {measured:>16}  {word}")


def report_wanted(hutch, bwrap, rate, peak_bytes):
    print(f"\n    {'':44} {'wanted':>16} {'measured':>16}  holds")
    for way in ("tight", "idle"):
        mine = percentile(hutch.samples[way], 0.5)
        theirs = percentile(bwrap.samples[way], 0.5) if bwrap else None
        verdict(f"hutch run -c pass, {way}, at most bwrap + python3", f"{theirs / MS:.2f} ms" if theirs else "-",
                f"{mine / MS:.2f} ms", mine <= theirs if theirs else None)
    verdict("hutch run -- true, two at a time", f">= {WANTED_RUNS_PER_S}/s", f"{rate:.0f}/s" if rate else "-",
            rate >= WANTED_RUNS_PER_S if rate else None)
    verdict("launcher + agent, VmHWM", f"<= {WANTED_PEAK_BYTES >> 10} KiB", f"{peak_bytes / 1024:.0f} KiB" if peak_bytes else "-",
            peak_bytes <= WANTED_PEAK_BYTES if peak_bytes else None)


def main():
    parser = argparse.ArgumentParser(description="Time hutch beside bare Python, bubblewrap, crun and docker.")
    parser.add_argument("--hutch", default="build/hutch")
    parser.add_argument("--rounds", type=int, default=60, help="starts of each contestant, each way (60)")
    parser.add_argument("--seconds", type=float, default=5, help="length of each throughput run (5)")
    parser.add_argument("--docker-image", default="python:3-slim", help="an image with python3 that is here already")
    options = parser.parse_args()
    hutch = os.path.abspath(options.hutch)
    if not os.access(hutch, os.X_OK):
        raise SystemExit(f"bench: {options.hutch} is not there; run make first")

    with tempfile.TemporaryDirectory(prefix="hutch-bench-") as folder:
        spawner = Spawner(folder)
        os.makedirs(os.path.join(folder, "bundle"))
        racers = contestants(hutch, folder, options.docker_image)
        for racer in racers:
            racer.check(spawner)
        mine = racers[-1]
        if mine.absent:
            raise SystemExit(f"bench: {mine.name}: {mine.absent}")
        running = [racer for racer in racers if not racer.absent]
        print(f"{os.uname().sysname} {os.uname().release}, {len(os.sched_getaffinity(0))} cores, "
              f"{'root' if os.geteuid() == 0 else 'ordinary user'}")
        for way in ("tight", "idle"):
            race(running, spawner, options.rounds, way, way == "idle")
        hutch_racer, bwrap_racer = report_latency(racers, options.rounds)
        rate = report_throughput(spawner, hutch, options.seconds)
        peak_bytes = report_memory(spawner, hutch)
        report_steps(hutch, 20)
        report_wanted(hutch_racer, bwrap_racer, rate, peak_bytes)
        for racer in racers:
            if racer.mounts:
                racer.mounts.close()


if __name__ == "__main__":
    main()
