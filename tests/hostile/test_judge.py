#!/usr/bin/python3
"""Tests of the judges of the hostile programs: they say no to wrong answers. Needs no hutch."""
import contextlib
import io
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))
import hutch_test  # noqa: E402
import run_hostile  # noqa: E402


def row(name, level, verdict):
    return {"name": name, "level": level, "verdict": verdict, "what": "said"}


class Probes(unittest.TestCase):
    def judge(self, rows, table=None):
        tally, out = run_hostile.Tally(False), io.StringIO()
        with contextlib.redirect_stdout(out):
            run_hostile.judge_probes(rows, table or {}, tally)
        return (tally.passed, tally.failed, tally.skipped), out.getvalue()

    def test_held(self):
        self.assertEqual(self.judge([row("a", "must", "HELD"), row("b", "should", "HELD")])[0], (2, 0, 0))

    def test_broken_must_fails_whatever_the_table_says(self):
        for verdict in ("BROKEN", "ERROR"):
            self.assertEqual(self.judge([row("a", "must", verdict)], {"a": "a reason that is long enough"})[0], (0, 1, 0))

    def test_broken_should_needs_a_reason(self):
        self.assertEqual(self.judge([row("a", "should", "BROKEN")])[0], (0, 1, 0))
        self.assertEqual(self.judge([row("a", "should", "BROKEN")], {"a": "a reason that is long enough"})[0], (1, 0, 0))
        self.assertEqual(self.judge([row("a", "should", "ERROR")], {"a": "a reason that is long enough"})[0], (0, 1, 0))

    def test_an_accepted_one_that_holds_is_reported(self):
        counts, out = self.judge([row("a", "should", "HELD")], {"a": "a reason that is long enough"})
        self.assertEqual(counts, (1, 0, 0))
        self.assertIn("take it out", out)

    def test_skip_is_a_skip(self):
        self.assertEqual(self.judge([row("a", "must", "SKIP")])[0], (0, 0, 1))

    def test_accepted_table_is_well_formed_and_names_probes(self):
        names = {n.rsplit(".", 1)[0] for n in os.listdir(os.path.join(HERE, "probes"))}
        self.assertEqual(set(run_hostile.accepted()) - names, set())


class Verdicts(unittest.TestCase):
    def test_exactly_one_line(self):
        self.assertEqual(run_hostile.verdict("HELD a\n", "a"), ("HELD", ""))
        self.assertEqual(run_hostile.verdict("BROKEN a: why\n", "a"), ("BROKEN", "why"))
        for text in ("", "HELD a", "HELD b\n", "HELD a\nHELD a\n", "x\nHELD a\n", "Traceback\n", "HELDa\n"):
            self.assertEqual(run_hostile.verdict(text, "a")[0], "ERROR", text)


class Tables(unittest.TestCase):
    def test_every_program_has_a_row(self):
        self.assertEqual(set(os.listdir(os.path.join(HERE, "exhaust"))), set(run_hostile.EXHAUST))
        self.assertEqual(set(os.listdir(os.path.join(HERE, "copyout"))), set(run_hostile.COPYOUT))
        for name in run_hostile.CROWD:
            self.assertTrue(os.path.exists(os.path.join(HERE, "probes", name)), name)

    def test_the_rows_agree_with_the_first_lines(self):
        for name, (_, _, outcomes, _) in run_hostile.EXHAUST.items():
            with open(os.path.join(HERE, "exhaust", name)) as f:
                first = f.readline()
            self.assertEqual("EXPECT timeout" in first, outcomes == {run_hostile.TIMEOUT}, name)
            self.assertEqual("EXPECT HELD" in first, run_hostile.HELD in outcomes and run_hostile.CUT not in outcomes, name)

    def test_collected_tells_links_from_files(self):
        top = os.path.join(hutch_test.scratch(), "c")
        os.makedirs(top + "/d")
        os.symlink("/etc", top + "/e")
        os.symlink("/etc/passwd", top + "/p")
        with open(top + "/d/f", "w") as f:
            f.write("x")
        self.assertEqual(run_hostile.collected(top), {b"e": None, b"p": None, b"d/f": b"x"})


class Counting(unittest.TestCase):
    def test_exceptions_are_failures(self):
        tally = run_hostile.Tally(False)
        with contextlib.redirect_stdout(io.StringIO()):
            for kind in (run_hostile.Wrong, hutch_test.Gone, AssertionError):
                tally.check("x", lambda kind=kind: (_ for _ in ()).throw(kind("no")))
            tally.check("y", lambda: None)
        self.assertEqual((tally.passed, tally.failed), (1, 3))

    def test_expect(self):
        run_hostile.expect(True, "never")
        with self.assertRaises(run_hostile.Wrong):
            run_hostile.expect(False, "said", 3)


if __name__ == "__main__":
    hutch_test.main(needs_program=False)
