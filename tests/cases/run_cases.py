#!/usr/bin/python3
"""Plays case files against an engine and says which case failed and how.

    run_cases.py [FILE.jsonl …] [--only REGEX] [--list] [--engine hutch-run] [--form file|c|-] [--verbose]

Without FILE: handed.jsonl beside this program. A case with an op that the engine lacks is counted as `not yet`, by the
op, never as passed. Unknown ops, unknown words of expect and unknown needs are errors (exit code 1, before anything runs).
"""
import argparse
import collections
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))
import engine  # noqa: E402
import hutch_test  # noqa: E402
import vocabulary  # noqa: E402


def load(paths):
    """The cases of all files; raises CaseError where one is not of the vocabulary."""
    cases, seen = [], set()
    for path in paths:
        with open(path, encoding="utf8") as f:
            for number, line in enumerate(f, 1):
                if not line.strip():
                    continue
                try:
                    case = json.loads(line)
                except ValueError as e:
                    raise vocabulary.CaseError("%s:%d: no JSON: %s" % (path, number, e))
                vocabulary.check_case(case)
                if case["id"] in seen:
                    raise vocabulary.CaseError("%s:%d: a second case %s" % (path, number, case["id"]))
                seen.add(case["id"])
                cases.append(case)
    return cases


def play(case, player):
    """Sentences that say what went wrong in the case; [] when all is as expected."""
    player.begin(case)
    try:
        replies, wrong, refused = [], [], set()
        for number, step in enumerate(case["steps"]):
            found = player.refusal(step)
            if found is not None:
                refused.add(number)
                wrong += ["step %d: %s" % (number, text) for text in found]
                replies.append({})
                continue
            try:
                reply = player.play(step)
            except hutch_test.Gone as e:
                return wrong + ["step %d: %s" % (number, e)]
            except AssertionError as e:
                return wrong + ["step %d: %s" % (number, e)]
            wrong += ["step %d: %s" % (number, text) for text in reply.get("left", [])]
            replies.append(reply)
        expect = [entry for entry in case["expect"] if entry["step"] not in refused]
        return wrong + vocabulary.judge(expect, replies)
    finally:
        player.end()


def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("files", nargs="*", default=[os.path.join(HERE, "handed.jsonl")])
    ap.add_argument("--only", default="", help="cases whose id matches")
    ap.add_argument("--list", action="store_true", help="say what would run; run nothing")
    ap.add_argument("--engine", choices=sorted(engine.ENGINES), default="hutch-run")
    ap.add_argument("--form", choices=("file", "c", "-"), default="file", help="how `hutch run` is given the code")
    ap.add_argument("--verbose", action="store_true", help="a line for every case")
    o = ap.parse_args(argv)
    if not o.list:
        hutch_test.prepare()
    try:
        cases = [c for c in load(o.files) if re.search(o.only, c["id"])]
    except vocabulary.CaseError as e:
        print("error in the cases: %s" % e)
        hutch_test.finish(0, 1, 0)
    player = engine.ENGINES[o.engine](**({"form": o.form} if o.engine == "hutch-run" else {}))
    passed, failed, skipped = [], [], []
    later = collections.defaultdict(list)
    for case in cases:
        why = player.not_yet(case)
        if why:
            later[why].append(case)
            if o.list:
                print("not yet  %-32s %s" % (case["id"], why))
            continue
        unmet = [u for u in map(player.unmet, case.get("needs", [])) if u]
        if unmet:
            skipped.append(case)
            print("skip     %-32s %s" % (case["id"], "; ".join(unmet)), flush=True)
            continue
        if o.list:
            print("runs     %-32s %s" % (case["id"], case["title"]))
            continue
        wrong = play(case, player)
        (failed if wrong else passed).append(case)
        if wrong:
            print("FAIL     %-32s %s" % (case["id"], case["title"]))
            for text in wrong:
                print("         " + text)
        elif o.verbose:
            print("ok       %-32s %s" % (case["id"], case["title"]))
        sys.stdout.flush()
    if later and not o.only:
        kinds = collections.Counter(c["kind"] for cs in later.values() for c in cs)
        ops = collections.Counter(op for why, cs in later.items() for op in why[3:].split(", ") for _ in cs)
        print("not yet  %d cases (%s); lacking: %s" % (
            sum(kinds.values()), ", ".join("%s %d" % k for k in sorted(kinds.items())),
            ", ".join("%s %d" % k for k in ops.most_common())))
    if o.list:
        return
    print("%d not yet" % sum(map(len, later.values())))
    hutch_test.finish(len(passed), len(failed), len(skipped))


if __name__ == "__main__":
    main()
