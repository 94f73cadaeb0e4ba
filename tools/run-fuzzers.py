#!/usr/bin/python3
"""Runs the libFuzzer harnesses of a build folder (meson -Dfuzz=true, clang), one after the other.

    tools/run-fuzzers.py --build build-fuzz --seconds 600

The harness fuzz/fuzz-NAME has its corpus in fuzz/corpus/NAME; one without a corpus fails the replay. New inputs
go to BUILD/corpus/NAME, findings to BUILD/findings/NAME-*; the repository's corpus grows by hand.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREFIX = "fuzz-"
INPUT_SECONDS = 25  # one input may take this long (sanitizers, a loaded machine)


def harnesses(build):
    folder = os.path.join(build, "fuzz")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith(PREFIX) and os.path.isfile(path) and os.access(path, os.X_OK):
            yield name.removeprefix(PREFIX), path


def fuzz(name, path, build, seconds):
    """True when the harness ended without a finding."""
    kept = os.path.join(ROOT, "fuzz", "corpus", name)
    if not os.path.isdir(kept) or not os.listdir(kept):
        print(f"{PREFIX}{name}: no corpus in fuzz/corpus/{name}", flush=True)
        return False
    findings = os.path.join(build, "findings", "")
    os.makedirs(findings, exist_ok=True)
    common = [path, f"-timeout={INPUT_SECONDS}", f"-artifact_prefix={findings}{name}-", "-print_final_stats=1"]
    found = os.path.join(build, "corpus", name)
    os.makedirs(found, exist_ok=True)
    command = common + [f"-max_total_time={seconds}", found, kept]
    print(f"--- {PREFIX}{name}: {len(os.listdir(kept))} inputs kept, {seconds} s", flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", check=False)
    lines = done.stdout.splitlines()
    shown = lines[-60:] if done.returncode else [line for line in lines if line.startswith(("stat::number", "Done "))]
    print("\n".join(shown), flush=True)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description="Run the fuzzers of a build folder.")
    parser.add_argument("--build", default="build-fuzz")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("names", nargs="*", help="only these (frame, not fuzz-frame)")
    options = parser.parse_args()
    build = os.path.abspath(options.build)

    results = [fuzz(name, path, build, options.seconds)
               for name, path in harnesses(build) if not options.names or name in options.names]
    if not results:
        print(f"no fuzzers in {options.build}/fuzz")
        return 1
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
