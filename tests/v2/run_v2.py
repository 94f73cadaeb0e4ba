#!/usr/bin/env python3
"""Runs tests on pure cgroup v2, on any x86-64 host: boots Debian's own kernel in an emulated machine
whose root is this host's `/`, read-only.

  run_v2.py --hutch build/hutch            the limits' suite as root, as a user with a delegated
                                           cgroup, and as a user without
  run_v2.py [--as WHO] -- COMMAND ARG...   one command; its output and exit status come back
  run_v2.py --self-test                    whether the guest is what the suite takes it for
  run_v2.py --prepare                      fetches the kernel only

Exit status: 0 all passed; 1 a test failed; with a command, the command's own; 124 the guest took too
long or died; 77 it cannot run here, and the line on standard error says why.
Needs the packages qemu-system-x86, busybox-static, and e2fsprogs and util-linux, which every Debian has.
"""

import argparse
import os
import platform
import re
import signal
import sys

sys.dont_write_bytecode = True

import kernel
import vm

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_CACHE = os.path.join(HERE, "..", "..", "build", "v2-cache")

# Tests multiply by this what they are ready to wait for; emulation is slower than a processor.
SLOWNESS = "3"
BIN = "/run/v2/hutch"
TESTS = "/run/v2/tests"
SUITE = TESTS + "/v2/limits.py"

# What each of the guest's users is: has it cgroups of its own, and where is its state. /tmp is an overlay
# there, so state goes where it would go by default.
USERS = {
    "root": ("yes", {"HUTCH_STATE_DIR": "/var/lib/hutch/run"}),
    "delegated": ("yes", {"XDG_STATE_HOME": "/home/hutch-v2/.local/state"}),
    "plain": ("no", {"XDG_STATE_HOME": "/home/hutch-v2-plain/.local/state"}),
}
CANNOT_RUN, GUEST_FAILED = 77, 124


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hutch", metavar="PATH", help="the program to test")
    parser.add_argument("--as", dest="who", choices=vm.USERS, action="append",
                        help="whom to run as; may be repeated; default: root, for --hutch all")
    parser.add_argument("--only", metavar="WORD", help="of the suite, only tests with WORD in the name")
    parser.add_argument("--prepare", action="store_true", help="fetch the kernel and stop")
    parser.add_argument("--self-test", action="store_true", help="check the guest itself")
    parser.add_argument("--cache", metavar="DIR", default=DEFAULT_CACHE, help="where the kernel is kept")
    parser.add_argument("--timeout", metavar="S", type=float, default=900,
                        help="for the whole; what is usual is two to three minutes")
    parser.add_argument("--verbose", action="store_true", help="say what the guest reports")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    args = parser.parse_args()
    if args.command[:1] == ["--"]:
        args.command = args.command[1:]
    if sum(map(bool, (args.hutch, args.prepare, args.self_test, args.command))) != 1:
        parser.error("one of --hutch, --prepare, --self-test or a command is needed")
    return args


def _jobs(args):
    """(jobs, binds) for what was asked."""
    binds = [(os.path.dirname(HERE), TESTS)]
    if args.hutch:
        path = os.path.realpath(args.hutch)
        binds.append((os.path.dirname(path), BIN))

    def argv(who):
        if args.command:
            return args.command
        if args.self_test:
            return ["/usr/bin/python3", f"{TESTS}/v2/self_test.py", who]
        suite = ["/usr/bin/python3", SUITE, "--hutch", f"{BIN}/{os.path.basename(path)}",
                 "--cgroup", USERS[who][0]]
        return suite + (["--only", args.only] if args.only else []) + (["-v"] if args.verbose else [])

    whom = args.who or (["root"] if args.command else vm.USERS)
    common = {"HUTCH_TEST_SLOWNESS": SLOWNESS, "PYTHONDONTWRITEBYTECODE": "1"}
    common.update((name, os.environ[name]) for name in ("CI",) if name in os.environ)
    return [vm.Job(argv(who), who, {**common, **USERS[who][1]}) for who in whom], binds


def _sum_up(result, jobs):
    """The suites' own last lines, added. A suite that printed none has failed once."""
    counts = re.findall(rb"^(\d+) passed, (\d+) failed", bytes(result.stdout), re.M)
    passed = sum(int(p) for p, _ in counts)
    failed = sum(int(f) for _, f in counts) + len(jobs) - len(counts)
    print(f"cgroup v2: booted in {result.boot_s:.0f} s, {result.seconds:.0f} s in all")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or any(result.statuses) else 0


def main():
    args = _arguments()
    # So that what was made is removed also when this is told to stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if platform.machine() != "x86_64":
        print("v2: the guest is an x86-64 one, and uses this host's programs; not run", file=sys.stderr)
        return CANNOT_RUN
    if args.hutch and not os.access(args.hutch, os.X_OK):
        print(f"v2: {args.hutch} is not a program", file=sys.stderr)
        return 2
    try:
        found = kernel.prepare(os.path.abspath(args.cache))
        if args.prepare:
            print(found.image)
            return 0
        jobs, binds = _jobs(args)
        result = vm.run(found, jobs, binds, args.timeout, args.verbose)
    except kernel.KernelError as e:
        print(f"v2: {e}", file=sys.stderr)
        return CANNOT_RUN
    except vm.GuestError as e:
        print(f"v2: {e}", file=sys.stderr)
        return GUEST_FAILED
    if args.command:
        return next((status for status in result.statuses if status), 0)
    return _sum_up(result, jobs)


if __name__ == "__main__":
    sys.exit(main())
