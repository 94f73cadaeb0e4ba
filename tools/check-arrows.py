#!/usr/bin/python3
"""Holds the includes in src/ against the arrows between rooms (docs/architecture.md).

    tools/check-arrows.py [SRC]        one line per wrong include, then `N passed, N failed` counted in files
    tools/check-arrows.py --self-test  proves on small bad trees that each rule fails where it should

Rules: an include of ours spells its room ("wire/frame.h", also from inside that room); its room is the file's own or
one that ARROWS allows; the rooms that stay free of libraries include none, except in their unit tests.
"""
import os
import re
import sys
import tempfile

# room: the rooms it may include. Every room may include itself; nothing follows from A -> B -> C.
ARROWS = {
    "base": "",
    "wire": "base",
    "agent": "base wire",
    "launcher": "base wire",
    "kernels": "base",
    "backend": "base wire",
    "store": "base",
    "outputs": "base wire",
    "session": "base backend store",
    "artifact": "base session outputs store",
    "tool": "base session store",
    "api": "base session artifact tool",
    "cli": "base backend outputs kernels",
    "daemon": "base wire backend store outputs session artifact tool api kernels",  # wiring: knows every room
}

# Single headers that go further than their room: the one error domain of all rooms above the libc-only ones.
SHARED_HEADERS = {"backend/error.h": "kernels outputs"}

# These rooms run with privilege or beside hostile code: libc alone.
LIBC_ONLY = {"base", "wire", "agent", "launcher"}
LIBRARY_HEADERS = re.compile(r"^(glib|gio|gmodule|glib-unix|jansson|curl/|sqlite3|libpq|openssl/|archive|seccomp|microhttpd)")
# A unit test is a program of its own (GTest), and a generator runs at build time only.
NOT_IN_THE_PROGRAM = re.compile(r"^(test-|gen-|generate-)")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def sources(src):
    for folder, _, files in sorted(os.walk(src)):
        for name in sorted(files):
            if name.endswith((".c", ".h")):
                yield os.path.join(folder, name)


def check_include(room, name, quote, header):
    """The sentence that says what is wrong with one include, or None."""
    target = header.split("/")[0]
    if quote == "<":
        if target in ARROWS and "/" in header:
            return f'<{header}> is ours: write "{header}"'
        if room in LIBC_ONLY and LIBRARY_HEADERS.match(header) and not NOT_IN_THE_PROGRAM.match(name):
            return f"<{header}>: {room} uses libc alone"
        return None
    if "/" not in header or target not in ARROWS or ".." in header.split("/"):
        return f'"{header}" does not spell its room (rooms: {" ".join(ARROWS)})'
    if target != room and target not in ARROWS[room].split() and room not in SHARED_HEADERS.get(header, "").split():
        return f'"{header}": {room} may include {ARROWS[room] or "no other room"}, not {target}'
    return None


def check_file(src, path):
    shown = os.path.relpath(path, os.path.dirname(os.path.abspath(src)))
    room = os.path.relpath(path, src).split(os.sep)[0]
    if room not in ARROWS:
        return [f"{shown}:1: '{room}' is no room of the list in tools/check-arrows.py"]
    errors = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            problem = match and check_include(room, os.path.basename(path), match[1], match[2])
            if problem:
                errors.append(f"{shown}:{number}: {problem}")
    return errors


def check_tree(src):
    """(number of files, list of errors, number of files with errors)"""
    errors_by_file = [check_file(src, path) for path in sources(src)]
    errors = [error for errors in errors_by_file for error in errors]
    return len(errors_by_file), errors, sum(1 for errors in errors_by_file if errors)


# what it shows, file, its text, part of the error that must come (None: no error)
SELF_TESTS = [
    ("an allowed arrow", "wire/frame.c", '#include "wire/frame.h"\n#include "base/fd.h"\n', None),
    ("an arrow against the list", "base/fd.c", '\n#include "wire/frame.h"\n', "src/base/fd.c:2: \"wire/frame.h\": base"),
    ("arrows are not transitive", "cli/run.c", '#include "launcher/box.h"\n', "src/cli/run.c:1:"),
    ("a shared header", "outputs/walk.c", '#include "backend/error.h"\n', None),
    ("the rest of its room is not shared", "outputs/walk.c", '#include "backend/backend.h"\n', "src/outputs/walk.c:1:"),
    ("nor shared with every room", "wire/frame.c", '#include "backend/error.h"\n', "src/wire/frame.c:1:"),
    ("an include without its room", "wire/frame.c", '#include "frame.h"\n', "does not spell its room"),
    ("a room that is not known", "wire/frame.c", '#include "util/x.h"\n', "does not spell its room"),
    ("a way round by ..", "agent/loop.c", '#include "wire/../launcher/x.h"\n', "does not spell its room"),
    ("ours in angle brackets", "agent/loop.c", "#include <base/fd.h>\n", "is ours"),
    ("spaces round the sharp", "agent/loop.c", '  #  include "cli/x.h"\n', "src/agent/loop.c:1:"),
    ("a library in a libc-only room", "agent/loop.c", "#include <glib.h>\n", "libc alone"),
    ("its unit test may", "agent/test-loop.c", "#include <glib.h>\n", None),
    ("a library above", "cli/run.c", "#include <glib.h>\n", None),
    ("a folder that is no room", "junk/a.c", "int a;\n", "is no room"),
    ("system headers with folders", "launcher/ids.c", "#include <sys/mount.h>\n", None),
]


def self_test():
    failed = 0
    for title, name, text, wanted in SELF_TESTS:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "src", name)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            _, errors, _ = check_tree(os.path.join(folder, "src"))
        good = not errors if wanted is None else len(errors) == 1 and wanted in errors[0]
        if not good:
            failed += 1
            print(f"FAIL {title}: wanted {wanted!r}, got {errors}")
    print(f"{len(SELF_TESTS) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    src = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src")
    src = os.path.abspath(src)
    files, errors, bad = check_tree(src)
    if not files:
        print(f"no sources in {src}")
        return 1
    for error in errors:
        print(error)
    print(f"{files - bad} passed, {bad} failed")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
