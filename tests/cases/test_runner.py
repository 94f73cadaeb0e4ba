#!/usr/bin/python3
"""Tests of the judge: it says yes to right replies, and no to wrong ones. Needs no hutch."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))
import engine  # noqa: E402
import hutch_test  # noqa: E402
import run_cases  # noqa: E402
import vocabulary  # noqa: E402

# word of expect → (value, a reply that must pass, a reply that must fail). Every word has at least one row.
ROWS = [
    ("status", "ok", {"status": "ok"}, {"status": "error"}),
    ("status", ["killed", "timeout"], {"status": "timeout"}, {"status": "ok"}),
    ("status", "ok", {"status": "ok"}, {}),
    ("reason", "memory_limit", {"reason": "memory"}, {"reason": "output"}),
    ("reason", "memory_limit", {"reason": "memory_limit"}, {"reason": None}),
    ("reason", "output_limit or timeout, named in the reply", {"reason": "timeout"}, {"reason": "memory"}),
    ("truncated", True, {"truncated": {"stdout": True, "stderr": False}}, {"truncated": {"stdout": False, "stderr": False}}),
    ("truncated", False, {"truncated": {"stdout": False, "stderr": False}}, {"truncated": {"stdout": False, "stderr": True}}),
    ("truncated", True, {"truncated": True}, {}),
    ("error_name", "ValueError", {"error": {"name": "ValueError"}}, {"error": None}),
    ("error_name", ["A", "B"], {"error": {"name": "B"}}, {"error": {"name": "C"}}),
    ("stdout", "a\n", {"stdout": "a\n"}, {"stdout": "a"}),
    ("stdout", "", {"stdout": ""}, {}),
    ("stderr", "", {"stderr": ""}, {"stderr": " "}),
    ("result", 1, {"result": 1}, {"result": True}),
    ("result", [1, None], {"result": [1, None]}, {"result": [1]}),
    ("content", "x", {"content": "x"}, {"content": "y"}),
    ("output", "x", {"output": "x"}, {"output": "xx"}),
    ("traceback", "x", {"traceback": "x"}, {"traceback": ""}),
    ("exit_code", 0, {"exit_code": 0}, {"exit_code": 1}),
    ("exit_code", None, {"exit_code": None}, {"exit_code": 139}),
    ("exit_code", [1, 2], {"exit_code": 2}, {"exit_code": 0}),
    ("signal", "SIGSEGV", {"signal": "SIGSEGV"}, {"signal": None}),
    ("images", [0, 1], {"images": 1}, {"images": 2}),
    ("http_status", [400, 404], {"http_status": 404}, {"http_status": 200}),
    ("state_lost", False, {"state_lost": False}, {"state_lost": True}),
    ("running", True, {"running": True}, {"running": False}),
    ("count", 5, {"count": 5}, {"count": 4}),
    ("size", 272, {"size": 272}, {"size": 0}),
    ("total_lines", 500, {"total_lines": 500}, {"total_lines": 499}),
    ("sha256", {"$py": "hashlib.sha256(b'').hexdigest()"},
     {"sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}, {"sha256": "e3"}),
    ("content_b64", {"$py": "base64.b64encode(b'a').decode()"}, {"content_b64": "YQ=="}, {"content_b64": "YQ"}),
    ("versions", 2, {"versions": 2}, {"versions": 1}),
    ("tool_ran", True, {"tool_ran": True}, {"tool_ran": False}),
    ("leftover_processes", 0, {"leftover_processes": 0}, {"leftover_processes": 1}),
    ("leftover_processes", 0, {"leftover_processes": 0}, {}),
    ("elapsed_max_s", 4, {"elapsed_s": 3.9}, {"elapsed_s": 4.1}),
    ("elapsed_min_s", 1.8, {"elapsed_s": 2}, {"elapsed_s": 1.7}),
    ("elapsed_max_s", 4, {"elapsed_s": 0}, {}),
    ("resident_max_mb", 200, {"resident_mb": 10}, {"resident_mb": 201}),
    ("disk_max_mb", 200, {"disk_mb": 10}, {"disk_mb": 201}),
    ("artifacts", {"added": ["a"], "absent": ["b"]}, {"artifacts": {"added": ["a"], "modified": []}},
     {"artifacts": {"added": ["a", "c"], "modified": []}}),
    ("artifacts", {"modified": []}, {"artifacts": {"modified": []}}, {"artifacts": {"modified": ["a"]}}),
    ("artifacts", {"deleted": ["a"]}, {"artifacts": {"deleted": ["a"]}}, {"artifacts": {}}),
    ("artifacts", {"added_includes": ["a"]}, {"artifacts": {"added": ["b", "a"]}}, {"artifacts": {"added": ["b"]}}),
    ("artifacts", {"absent": ["b"]}, {"artifacts": {"added": ["a"]}}, {"artifacts": {"modified": ["b"]}}),
    ("artifacts", {"absent": ["b"]}, {"artifacts": {}}, {}),
    ("artifact_flags", {"d": "too large, its size 10737418240"},
     {"left_out": [{"path": "d", "size_bytes": 10737418240}]}, {"left_out": [{"path": "d", "size_bytes": 1}]}),
    ("artifact_flags", {"d": "said"}, {"left_out": [{"path": "d"}]}, {"left_out": []}),
    ("includes", [{"id": "a", "running": True}], {"items": [{"id": "a", "running": True, "x": 1}]},
     {"items": [{"id": "a", "running": False}]}),
    ("matches", [{"path": "a", "line": 2}], {"matches": [{"path": "a", "line": 2, "text": "t"}]},
     {"matches": [{"path": "a", "line": 2}, {"path": "b", "line": 1}]}),
    ("matches", [], {"matches": []}, {"matches": [{"path": "a", "line": 2}]}),
    ("paths", ["a", "b"], {"paths": ["b", "a"]}, {"paths": ["a"]}),
    ("paths", [], {"paths": []}, {"paths": ["late.txt"]}),
    ("entries", {"includes": ["r"], "excludes": ["p"]}, {"entries": ["r"]}, {"entries": ["r", "p"]}),
    ("entries", ["a"], {"entries": ["a"]}, {"entries": []}),
    ("schema", {"required": ["w"], "properties.h.default": 40},
     {"schema": {"required": ["w"], "properties": {"h": {"default": 40}}}},
     {"schema": {"required": ["w", "h"], "properties": {"h": {"default": 40}}}}),
    ("chunk", [{"n": 0, "contains": "p0", "at_most_s": 0.4}], {"chunks": [(0.1, "p0\n")]}, {"chunks": [(0.5, "p0\n")]}),
    ("chunk", [{"n": 1, "at_least_s": 1}], {"chunks": [(0, ""), (1.5, "")]}, {"chunks": [(0, "")]}),
    ("results", [{"status": "ok"}, {"status": "timeout"}], {"results": [{"status": "ok"}, {"status": "timeout"}]},
     {"results": [{"status": "timeout"}, {"status": "ok"}]}),
    ("results", [{"status": "ok"}], {"results": [{"status": "ok"}]}, {"results": []}),
    ("any_of", [{"status": "rejected"}, {"status": "error", "stdout": ""}], {"status": "error", "stdout": ""},
     {"status": "error", "stdout": "one\n"}),
    ("stdout_contains", ["a", "b"], {"stdout": "xaxb"}, {"stdout": "xa"}),
    ("stdout_contains", "a", {"stdout": "a"}, {}),
    ("stdout_not_contains", ["\ufffd"], {"stdout": "a"}, {"stdout": "a\ufffd"}),
    ("stdout_starts", "a", {"stdout": "ab"}, {"stdout": "ba"}),
    ("stdout_ends", "a", {"stdout": "ba"}, {"stdout": "ab"}),
    ("stdout_regex", "^a$", {"stdout": "a"}, {"stdout": "ab"}),
    ("stdout_min_bytes", 6, {"stdout": "字字"}, {"stdout": "字"}),
    ("stdout_max_bytes", 5, {"stdout": "字"}, {"stdout": "字字"}),
    ("stdout_sha256", {"$py": "hashlib.sha256(b'a').hexdigest()"}, {"stdout": "a"}, {"stdout": "b"}),
    ("result_min_bytes", 4, {"result": [1, 2]}, {"result": 1}),
    ("traceback_max_bytes", 2, {"traceback": "ab"}, {"traceback": "abc"}),
    ("error_contains", ["null byte"], {"stderr": "no null bytes"}, {"stderr": "fine", "stdout": "null byte"}),
    ("error_contains", "x", {"error": {"message": "x"}}, {"error": {"message": "y"}}),
    ("error_not_contains", ["s3cr3t"], {"stderr": "", "error": {"message": "m"}}, {"error": {"traceback": "s3cr3t"}}),
    ("body_not_contains", ["root:"], {"body": "404"}, {"body": "root:x:0"}),
]


class Judge(unittest.TestCase):
    def test_every_row(self):
        for word, want, right, wrong in ROWS:
            with self.subTest(word=word, want=want):
                self.assertEqual(vocabulary.judge([{"step": 0, word: want}], [right]), [])
                self.assertNotEqual(vocabulary.judge([{"step": 0, word: want}], [wrong]), [])

    def test_every_word_has_a_row(self):
        self.assertEqual(set(vocabulary.WORDS) - {w for w, *_ in ROWS}, {"step", "note"})
        self.assertEqual({w.partition("_")[2] for w, *_ in ROWS if w not in vocabulary.WORDS},
                         set(vocabulary.TEXT_TESTS))

    def test_an_empty_reply_passes_nothing(self):
        for word, want, _right, _wrong in ROWS:
            if word in ("error_not_contains", "error_contains"):
                continue
            with self.subTest(word=word):
                self.assertNotEqual(vocabulary.judge_one({word: want}, {}), [])

    def test_says_step_expected_and_got_shortened(self):
        found = vocabulary.judge([{"step": 1, "stdout": "a" * 5000}], [{}, {"stdout": "b" * 5000}])
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("step 1: stdout: expected 'aaa"), found)
        self.assertIn("got 'bbb", found[0])
        self.assertLess(len(found[0]), 500)

    def test_all_differences_are_told(self):
        found = vocabulary.judge([{"step": 0, "status": "ok", "stdout": "x", "exit_code": 0}],
                                 [{"status": "error", "stdout": "y", "exit_code": 1}])
        self.assertEqual(len(found), 3)

    def test_py_values_at_any_depth(self):
        self.assertEqual(vocabulary.value_of({"a": [{"$py": "'x' * 3"}], "b": {"$py": "1 + 1"}}), {"a": ["xxx"], "b": 2})


CASE = {"id": "t", "kind": "run", "title": "", "steps": [{"op": "run", "args": {}}], "expect": [{"step": 0, "status": "ok"}]}


class WellFormed(unittest.TestCase):
    def bad(self, naming, **changes):
        with self.assertRaises(vocabulary.CaseError) as e:
            vocabulary.check_case(dict(CASE, **changes))
        self.assertIn(naming, str(e.exception))

    def test_right_one(self):
        vocabulary.check_case(CASE)

    def test_unknown_is_an_error(self):
        self.bad("teleport", steps=[{"op": "teleport"}])
        self.bad("teleport", steps=[{"op": "parallel", "args": {"steps": [{"op": "teleport"}]}}])
        self.bad("stdoot", expect=[{"step": 0, "stdoot": ""}])
        self.bad("stdout_like", expect=[{"step": 0, "stdout_like": ""}])
        self.bad("stdoot", expect=[{"step": 0, "any_of": [{"stdoot": ""}]}])
        self.bad("stdoot", expect=[{"step": 0, "results": [{"stdoot": ""}]}])
        self.bad("unheard", kind="unheard")
        self.bad("a unicorn", needs=["a unicorn"])
        self.bad("extra", extra=1)
        self.bad("step that does not exist", expect=[{"step": 1, "status": "ok"}])
        self.bad("expects nothing", expect=[])
        self.bad("says nothing", expect=[{"step": 0, "note": "only words"}])

    def test_unknown_words_inside_values(self):
        for word, want in (("status", "fine"), ("reason", "because"), ("artifacts", {"new": []}),
                           ("entries", {"has": []}), ("chunk", [{"n": 0, "like": ""}])):
            with self.subTest(word=word), self.assertRaises(vocabulary.CaseError):
                vocabulary.judge_one({word: want}, {"status": "fine", "reason": "because", "artifacts": {},
                                                    "entries": [], "chunks": [(0, "")]})

    def test_the_handed_cases_are_of_this_vocabulary(self):
        self.assertEqual(len(run_cases.load([os.path.join(HERE, "handed.jsonl")])), 163)


class Scripted(engine.Engine):
    """An engine that gives prepared replies."""

    def __init__(self, *replies):
        super().__init__()
        self.replies = list(replies)
        self.ops["run"] = lambda args: dict(self.replies.pop(0))

    def unmet(self, need):
        return "no " + need


class Runner(unittest.TestCase):
    def main(self, cases, player, *argv):
        """Exit status and output of run_cases.main over these cases with this engine."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.write("\n".join(c if isinstance(c, str) else json.dumps(c) for c in cases))
            f.flush()
            out, keep = io.StringIO(), (engine.ENGINES, hutch_test.prepare)
            engine.ENGINES, hutch_test.prepare = {"scripted": lambda: player, "hutch-run": None}, lambda: None
            try:
                with contextlib.redirect_stdout(out), self.assertRaises(SystemExit) as e:
                    run_cases.main(["--engine", "scripted", f.name] + list(argv))
            finally:
                engine.ENGINES, hutch_test.prepare = keep
        return e.exception.code, out.getvalue()

    def test_pass(self):
        code, out = self.main([CASE], Scripted({"status": "ok"}))
        self.assertEqual((code, out.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))

    def test_fail_names_case_and_difference(self):
        code, out = self.main([CASE, dict(CASE, id="u")], Scripted({"status": "error"}, {"status": "ok"}))
        self.assertEqual((code, out.splitlines()[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertRegex(out, r"FAIL +t\b")
        self.assertIn("step 0: status: expected 'ok', got 'error'", out)

    def test_not_yet_is_not_passed(self):
        case = dict(CASE, id="s", kind="session", steps=[{"op": "open_session"}])
        code, out = self.main([case, CASE], Scripted({"status": "ok"}))
        self.assertEqual((code, out.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))
        self.assertIn("1 not yet", out)
        self.assertIn("open_session 1", out)
        self.assertIn("session 1", out)

    def test_unmet_need_is_skipped_and_said(self):
        code, out = self.main([dict(CASE, needs=["matplotlib"])], Scripted())
        self.assertEqual((code, out.splitlines()[-1]), (0, "0 passed, 0 failed, 1 skipped"))
        self.assertIn("no matplotlib", out)

    def test_broken_files_are_failures(self):
        for lines in (["{"], [CASE, CASE], [dict(CASE, steps=[{"op": "x"}])]):
            code, out = self.main(lines, Scripted())
            self.assertEqual((code, out.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_leftovers_fail_a_case(self):
        _, out = self.main([CASE], Scripted({"status": "ok", "left": ["process left: 12"]}))
        self.assertIn("process left: 12", out)
        self.assertTrue(out.endswith("0 passed, 1 failed, 0 skipped\n"))

    def test_no_answer_is_a_failure(self):
        player = Scripted()
        player.ops["run"] = lambda args: (_ for _ in ()).throw(hutch_test.Gone("no answer after 3 s"))
        _, out = self.main([CASE], player)
        self.assertIn("no answer after 3 s", out)
        self.assertTrue(out.endswith("0 passed, 1 failed, 0 skipped\n"))

    def test_refusals_are_judged(self):
        player = Scripted()
        player.refusal = lambda step: ["exit code 0, 125 expected"]
        _, out = self.main([CASE], player)
        self.assertTrue(out.endswith("0 passed, 1 failed, 0 skipped\n"), out)
        player.refusal = lambda step: []
        _, out = self.main([CASE], player)
        self.assertTrue(out.endswith("1 passed, 0 failed, 0 skipped\n"), out)

    def test_only(self):
        _, out = self.main([CASE, dict(CASE, id="u")], Scripted({"status": "ok"}), "--only", "^u$")
        self.assertTrue(out.endswith("1 passed, 0 failed, 0 skipped\n"), out)

    def test_parallel_keeps_the_order_of_replies(self):
        player = engine.Engine()
        player.ops["sleep"] = lambda args: {"status": "ok", "id": args["id"]}
        reply = player.play({"op": "parallel", "args": {"steps": [{"op": "sleep", "args": {"id": i}} for i in range(5)]}})
        self.assertEqual([r["id"] for r in reply["results"]], list(range(5)))


class Replies(unittest.TestCase):
    """From what `hutch run --json` printed to the words of the cases."""

    def reply(self, code=0, **fields):
        execution = dict({"status": "ok", "exit_code": 0, "stdout": "", "stderr": "", "artifacts": []}, **fields)
        return engine.reply_of(hutch_test.Result(["hutch"], code, json.dumps(execution).encode(), b"", 0.5))

    def test_words(self):
        got = self.reply(137, status="killed", reason="memory", exit_code=None)
        self.assertEqual((got["status"], got["reason"], got["elapsed_s"]), ("killed", "memory", 0.5))

    def test_artifacts(self):
        got = self.reply(artifacts=[{"path": "a", "change": "added"}, {"path": "b", "change": "changed"}])
        self.assertEqual(got["artifacts"], {"added": ["a"], "modified": ["b"], "deleted": []})

    def test_the_exit_code_must_agree(self):
        for code, fields in ((0, {}), (3, {"status": "error", "exit_code": 3}), (124, {"status": "timeout"}),
                             (137, {"status": "killed"}), (139, {"status": "crashed", "signal": "SIGSEGV"})):
            self.assertNotIn("exit code", self.reply(code, **fields)["status"])
            self.assertIn("exit code", self.reply(code + 1, **fields)["status"])

    def test_hutch_failed(self):
        got = engine.reply_of(hutch_test.Result(["hutch"], 125, b"", b"hutch: mounting: EPERM\n", 0))
        self.assertNotIn(got["status"], vocabulary.STATUSES)
        got = engine.reply_of(hutch_test.Result(["hutch"], 2, b"", b"hutch: --language: no cobol\n", 0))
        self.assertEqual(got["status"], "rejected")

    def test_no_json_is_no_answer(self):
        for out in (b"{", b"[]", b"{} {}", b"\xff"):
            with self.assertRaises(AssertionError):
                engine.reply_of(hutch_test.Result(["hutch"], 0, out, b"", 0))

    def test_one_shot_engine_knows_its_limits(self):
        player = engine.HutchRun()
        steps = lambda *ops: dict(CASE, steps=[{"op": op, "args": {}} for op in ops])
        self.assertIsNone(player.not_yet(steps("run", "run")))
        self.assertIsNone(player.not_yet(steps("shell")))
        self.assertIn("shell", player.not_yet(steps("run", "shell")))
        self.assertIn("sleep", player.not_yet(steps("run", "sleep")))
        self.assertIn("http", player.not_yet(steps("http", "run")))

    def test_limits_become_options(self):
        got = engine.HutchRun().argv({"language": "python", "code": "", "timeout_s": 2, "env": {"A": "b c"},
                                      "limits": {"memory_mb": 256, "processes": 64, "output_bytes": 65536}})
        self.assertEqual(got, ["--json", "--language", "python", "--memory", "256M", "--pids", "64", "--max-output",
                               "65536", "--env", "A=b c", "--timeout", "2"])
        with self.assertRaises(vocabulary.CaseError):
            engine.HutchRun().argv({"language": "python", "code": "", "limits": {"luck": 1}})
        with self.assertRaises(vocabulary.CaseError):
            engine.HutchRun().argv({"language": "python", "code": "", "mood": 1})


if __name__ == "__main__":
    hutch_test.main(needs_program=False)
