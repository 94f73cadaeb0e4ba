#!/usr/bin/python3
"""Holds the documents against what exists; `N passed, N failed` counts single facts.

* docs/isolation.md names only probes that exist, and every probe, exhausting program and copy-out trap is named;
* every file that the documents name in back quotes with a folder of the repository exists;
* the options of `hutch run --help` are the options of README.md and of docs/hutch.1, both ways.
"""
import argparse
import fnmatch
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "examples/README.md", "docs/architecture.md", "docs/isolation.md"]
HOSTILE = ["probes", "exhaust", "copyout"]
PATH = re.compile(r"`((?:src|docs|examples|tools|tests|fuzz|bench|packaging)/[A-Za-z0-9_./*-]+)`")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def corpus():
    files = [path for folder in HOSTILE for path in glob.glob(os.path.join(ROOT, "tests/hostile", folder, "*.*"))]
    return {os.path.splitext(os.path.basename(path))[0] for path in files}


def check_probes():
    names = corpus()
    kinds = {name.split("_")[0] for name in names}
    cited = {word for word in re.findall(r"`([a-z]+_[a-z0-9_*]+)`", read("docs/isolation.md"))
             if word.split("_")[0] in kinds}
    for word in sorted(cited):
        yield f"docs/isolation.md: `{word}` is in tests/hostile", bool(fnmatch.filter(names, word))
    for name in sorted(names):
        yield f"docs/isolation.md: names {name}", any(fnmatch.fnmatch(name, word) for word in cited)


def check_paths():
    for document in DOCUMENTS:
        for path in sorted(set(PATH.findall(read(document)))):
            yield f"{document}: `{path}` exists", bool(glob.glob(os.path.join(ROOT, path)))


def check_options(hutch):
    told = subprocess.run([hutch, "run", "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    real = set(OPTION.findall(told.stdout)) - {"help"}
    yield "hutch run --help lists options", told.returncode == 0 and bool(real)
    readme = read("README.md")
    table = readme[readme.index("## Options"):readme.index("## What it does not promise")]
    pages = {
        "README.md": set(re.findall(r"^\| `--([a-z-]+)", table, re.M)),
        "docs/hutch.1": set(re.findall(r"^\.It Fl -([a-z][a-z-]+)", read("docs/hutch.1"), re.M)),
    }
    for page, said in pages.items():
        for name in sorted(real | said):
            yield f"{page}: --{name} is " + ("told" if name in real else "an option of hutch"), name in real and name in said


def main():
    parser = argparse.ArgumentParser(description="Hold the documents against what exists.")
    parser.add_argument("--hutch", help="compare the options with this program's")
    options = parser.parse_args()
    facts = [*check_probes(), *check_paths()]
    if options.hutch:
        facts += check_options(options.hutch)
    for what, holds in facts:
        if not holds:
            print(f"FAIL {what}")
    failed = sum(1 for _, holds in facts if not holds)
    print(f"{len(facts) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
