"""What plays the steps of a case. An engine is a table from op to function: function(args) → reply.

`HutchRun` plays one-shot code through `hutch run --json`. It keeps nothing between steps, so a case that looks
at its workspace in a second step is not for it.
"""
import os
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
import vocabulary  # noqa: E402


class Engine:
    """Base of engines: a table of ops, and what only the engine knows of its abilities."""

    name = "none"

    def __init__(self):
        self.ops = {"parallel": self.parallel}

    def begin(self, case):
        """A new case: one user, one empty workspace."""

    def end(self):
        """The case is over."""

    def not_yet(self, case):
        """Why this engine cannot play the case yet, or None."""
        lacking = sorted({op for op in vocabulary.ops_of(case["steps"]) if op not in self.ops})
        return "op " + ", ".join(lacking) if lacking else None

    def unmet(self, need):
        """Why a need of a case is not met here, or None."""
        raise NotImplementedError

    def play(self, step):
        args = vocabulary.value_of(step.get("args", {}))
        begun = time.monotonic()
        reply = self.ops[step["op"]](args)
        reply.setdefault("elapsed_s", time.monotonic() - begun)
        return reply

    def refusal(self, step):
        """What differs from an honest refusal, [] when it is one; None when the step has to be played."""
        return None

    def parallel(self, args):
        """All steps at the same time, started in order some 20 ms apart."""
        steps, replies = args["steps"], [None] * len(args["steps"])

        def one(i):
            replies[i] = self.play(steps[i])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(steps))]
        for thread in threads:
            thread.start()
            thread.join(0.02)
        for thread in threads:
            thread.join()
        return {"status": "ok", "results": replies}


class HutchRun(Engine):
    """`hutch run --json`, each step in a sandbox of its own."""

    name = "hutch run"
    FILE_NAMES = {"python": "main.py", "bash": "main.sh", "javascript": "main.js", "c": "main.c", "c++": "main.cpp"}
    LIMITS = {"memory_mb": ("--memory", "%dM"), "processes": ("--pids", "%d"), "output_bytes": ("--max-output", "%d")}
    RUN_ARGS = {"language", "code", "stdin", "env", "timeout_s", "limits"}

    def __init__(self, form="file"):
        super().__init__()
        self.form = form
        self.ops.update(run=self.run, shell=self.shell)

    def begin(self, case):
        self.dir = tempfile.mkdtemp(prefix="case-", dir=hutch_test.scratch())
        self.count = 0

    def end(self):
        shutil.rmtree(self.dir, True)

    def not_yet(self, case):
        why = super().not_yet(case)
        if not why and len(case["steps"]) > 1 and "shell" in set(vocabulary.ops_of(case["steps"])):
            why = "op shell in a workspace that another step used"
        return why

    def unmet(self, need):
        if need == "network namespaces":
            return None       # every sandbox has one of its own
        return "%s is nothing that one-shot runs offer" % need

    def argv(self, args):
        unknown = set(args) - self.RUN_ARGS
        if unknown:
            raise vocabulary.CaseError("unknown argument of run: %s" % sorted(unknown))
        argv = ["--json", "--language", args["language"]]
        for name, value in args.get("limits", {}).items():
            if name not in self.LIMITS:
                raise vocabulary.CaseError("unknown limit %s" % name)
            option, form = self.LIMITS[name]
            argv += [option, form % value]
        for name, value in args.get("env", {}).items():
            argv += ["--env", "%s=%s" % (name, value)]
        if "timeout_s" in args:
            argv += ["--timeout", str(args["timeout_s"])]
        return argv

    def run(self, args):
        argv, code = self.argv(args), args["code"]
        stdin = args["stdin"].encode() if "stdin" in args else None
        # As a file, the only form that carries every code: an argument ends at NUL and at 128 KiB.
        if self.form == "c" and "\0" not in code and len(code.encode()) < 100000:
            argv += ["-c", code]
        elif self.form == "-" and stdin is None:
            argv, stdin = argv + ["-"], code.encode()
        else:
            self.count += 1
            folder = os.path.join(self.dir, "%d-%d" % (self.count, threading.get_ident()))
            os.mkdir(folder)
            script = os.path.join(folder, self.FILE_NAMES[args["language"]])
            with open(script, "wb") as f:
                f.write(code.encode())
            argv.append(script)
        return self.call(argv, stdin, args.get("timeout_s", 60))

    def shell(self, args):
        """A shell command in an empty workspace."""
        unknown = set(args) - {"command", "timeout_s"}
        if unknown:
            raise vocabulary.CaseError("unknown argument of shell: %s" % sorted(unknown))
        argv = ["--json"]
        if "timeout_s" in args:
            argv += ["--timeout", str(args["timeout_s"])]
        return self.call(argv + ["--", "bash", "-c", args["command"]], None, args.get("timeout_s", 60))

    def call(self, argv, stdin, timeout_s):
        before = hutch_test.Snapshot() if threading.current_thread() is threading.main_thread() else None
        result = hutch_test.run(*argv, stdin=stdin, timeout=timeout_s + 20)
        reply = reply_of(result)
        if before:
            left = before.wait_clean()
            reply["leftover_processes"] = sum("process left" in text for text in left)
            reply["left"] = left
        return reply

    def refusal(self, step):
        """An ordinary user's asked memory limit without a cgroup: exit code 125 and the honest sentence."""
        args = step.get("args", {})
        if "memory_mb" not in args.get("limits", {}) or hutch_test.memory_cgroup_for_user():
            return None
        argv = self.argv(vocabulary.value_of(args)) + ["-c", "pass"]
        result = hutch_test.run(*argv)
        found = []
        if result.code != 125:
            found.append("exit code %s, 125 expected: the memory limit cannot be enforced here" % result.code)
        for word in ("--memory", "--best-effort"):
            if word not in " ".join(result.own_lines):
                found.append("hutch does not name %s on stderr: %s" % (word, vocabulary.show(result.stderr)))
        return found


def reply_of(result):
    """The reply of a case from an ended `hutch run --json`."""
    if not result.out and result.code == 2:
        return {"status": "rejected", "stderr": result.stderr, "elapsed_s": result.seconds}
    if not result.out:
        return {"status": "no answer: exit code %s" % result.code, "stderr": result.stderr,
                "elapsed_s": result.seconds}
    got = result.json
    reply = {name: got.get(name) for name in
             ("status", "reason", "exit_code", "signal", "stdout", "stderr", "truncated", "error", "left_out")}
    reply["elapsed_s"] = result.seconds
    value = got.get("result")
    if value is not None:
        reply["result"] = value.get("text")
    if reply["error"] and reply["error"].get("traceback") is not None:
        reply["traceback"] = reply["error"]["traceback"]
    reply["artifacts"] = {"added": [], "modified": [], "deleted": got.get("deleted") or []}
    for one in got.get("artifacts") or []:
        reply["artifacts"]["added" if one["change"] == "added" else "modified"].append(one["path"])
    expected = exit_code_of(got)
    if expected is not None and result.code != expected:
        reply["status"] = "exit code %d with status %s (exit code %s, signal %s), %d expected" % (
            result.code, got["status"], got.get("exit_code"), got.get("signal"), expected)
    return reply


def exit_code_of(execution):
    """The exit code of `hutch run` that belongs to an execution."""
    status = execution.get("status")
    if status == "ok":
        return 0
    if status == "error":
        return execution.get("exit_code")
    if status == "timeout":
        return 124
    if status == "killed":
        return 137
    if status == "crashed":
        return 128 + getattr(signal, execution.get("signal") or "", 0)
    return None


ENGINES = {"hutch-run": HutchRun}
