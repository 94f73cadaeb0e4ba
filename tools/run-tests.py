#!/usr/bin/python3
"""Runs every part of the tests, shows their output as it comes, and ends with one line that sums them up.

A part is a command. It passes when it exits 0, and what it counted is read from its last closing line: its own
`N passed, N failed[, N skipped]`, or the summary of `meson test`. A part that prints no count, exits otherwise than
its count says, or outlives its time counts as one failure, so nothing can fall silent and pass.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = "/usr/bin/python3"

# name, what it is, command, seconds it may take
PARTS = [
    ("arrows", "includes follow the arrows between rooms",
     [PYTHON, "tools/check-arrows.py"], 60),
    ("arrows-self-test", "the arrows check fails on bad trees",
     [PYTHON, "tools/check-arrows.py", "--self-test"], 60),
    ("docs", "documents against probes, files and options",
     [PYTHON, "tools/check-docs.py", "--hutch", "{build}/hutch"], 60),
    ("unit", "unit tests, and the fuzz corpora replayed",
     ["meson", "test", "-C", "{build}", "--print-errorlogs"], 600),
    ("unit-asan", "the same under ASan and UBSan",
     ["meson", "test", "-C", "{asan}", "--print-errorlogs"], 1200),
    ("agent", "the agent as the first process of namespaces of its own",
     [PYTHON, "tests/agent/test_agent.py"], 900),
    ("suite", "integration, cases, hostile programs",
     [PYTHON, "tests/run.py", "--hutch", "{build}/hutch"], 3600),
    ("suite-asan", "the same with programs built with ASan and UBSan",
     [PYTHON, "tests/run.py", "--hutch", "{asan}/hutch"], 3600),
    ("cgroup-v2", "limits on a pure cgroup v2 kernel, in a virtual machine",
     [PYTHON, "tests/v2/run_v2.py", "--hutch", "{build}/hutch"], 1800),
]

COUNT_LINE = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\b")
MESON_LINE = re.compile(r"^(Ok|Expected Fail|Fail|Unexpected Pass|Skipped|Timeout):\s+(\d+)\s*$")
MESON_COLUMN = {"Ok": "passed", "Expected Fail": "passed", "Fail": "failed", "Unexpected Pass": "failed",
                "Timeout": "failed", "Skipped": "skipped"}


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    counted: bool = False
    seconds: float = 0.0
    note: str = ""


def read_counts(stream, outcome):
    """Copies a part's output to ours and keeps its last closing line."""
    meson = {}
    for raw in stream:
        sys.stdout.buffer.write(raw)
        sys.stdout.flush()
        line = re.sub(r"\x1b\[[0-9;]*m", "", raw.decode("utf-8", "replace")).rstrip()
        if match := COUNT_LINE.match(line):
            outcome.passed, outcome.failed = int(match[1]), int(match[2])
            outcome.skipped, outcome.counted = int(match[3] or 0), True
        elif match := MESON_LINE.match(line):
            meson[match[1]] = int(match[2])
    if meson and not outcome.counted:
        for word, number in meson.items():
            column = MESON_COLUMN[word]
            setattr(outcome, column, getattr(outcome, column) + number)
        outcome.counted = outcome.passed + outcome.failed + outcome.skipped > 0


def stop_group(process):
    """Ends the part and whatever it started in its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_part(command, time_limit_s):
    outcome = Outcome()
    started = time.monotonic()
    try:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        outcome.failed, outcome.note = 1, f"cannot start {command[0]}: {error.strerror}"
        return outcome
    timed_out = threading.Event()
    timer = threading.Timer(time_limit_s, lambda: (timed_out.set(), stop_group(process)))
    timer.start()
    try:
        read_counts(process.stdout, outcome)
        status = process.wait()
    except BaseException:
        stop_group(process)
        raise
    finally:
        timer.cancel()
    outcome.seconds = time.monotonic() - started
    if timed_out.is_set():
        outcome.failed, outcome.note = outcome.failed + 1, f"took longer than {time_limit_s} s"
    elif not outcome.counted:
        outcome.failed, outcome.note = outcome.failed + 1, f"printed no count, exit status {status}"
    elif status != 0 and outcome.failed == 0:
        outcome.failed, outcome.note = 1, f"exit status {status} although nothing failed"
    elif status == 0 and outcome.failed > 0:
        outcome.note = "exit status 0 although something failed"
    return outcome


def main():
    names = [name for name, *_ in PARTS]
    parser = argparse.ArgumentParser(description="Run the parts of the tests and sum up their counts.")
    parser.add_argument("--build", default="build")
    parser.add_argument("--asan-build", default="build-asan")
    parser.add_argument("--only", action="append", choices=names, metavar="PART", help=f"one of: {', '.join(names)}")
    parser.add_argument("--list", action="store_true", help="print the parts and stop")
    options = parser.parse_args()
    places = {"build": options.build, "asan": options.asan_build}

    chosen = [part for part in PARTS if not options.only or part[0] in options.only]
    if options.list:
        for name, what, command, _ in chosen:
            print(f"{name:18} {what}\n{'':18} {' '.join(command).format(**places)}")
        return 0

    outcomes = []
    for name, what, command, time_limit_s in chosen:
        print(f"\n=== {name}: {what}", flush=True)
        outcomes.append((name, run_part([word.format(**places) for word in command], time_limit_s)))

    print(f"\n{'part':18} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for name, o in outcomes:
        print(f"{name:18} {o.passed:7} {o.failed:7} {o.skipped:8} {o.seconds:8.1f}  {o.note}".rstrip())
    passed, failed, skipped = (sum(getattr(o, key) for _, o in outcomes) for key in ("passed", "failed", "skipped"))
    print(f"\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
