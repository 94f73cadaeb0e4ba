"""The language of the case files: what may stand in them, and whether a reply is what was expected.

A reply is a dict with the words of `expect`: status, reason, exit_code, signal, stdout, stderr, elapsed_s, ….
`judge(expect, replies)` returns sentences, one for each thing that differs; an empty list is a pass.
"""
import base64
import hashlib
import json
import re

FIELDS = {"id", "kind", "title", "source", "language", "steps", "expect", "why", "checked", "needs"}
KINDS = {"run", "session", "workspace", "artifact", "tool", "process"}
NEEDS = {"network namespaces", "matplotlib", "package index", "libfaketime or a time namespace around the server"}

OPS = set("""
    run open_session exec exec_stream interrupt close_session shell parallel sleep write_file read_file download
    edit_file apply_patch list glob search move delete upload_archive download_archive as_user http create_tool
    update_tool tool_schema call_tool start_process process_status process_logs process_logs_follow process_write
    process_signal stop_process list_processes list_artifacts download_artifact server_kill server_start set_clock
""".split())

STATUSES = {"ok", "error", "timeout", "killed", "crashed", "interrupted", "rejected", "not_found"}

# Words of the case files → words of the interface.
REASONS = {"memory_limit": "memory", "output_limit": "output", "time_limit": "timeout", "timeout": "timeout",
           "memory": "memory", "output": "output", "expired": "expired", "closed": "closed"}


class CaseError(Exception):
    """The case file itself is wrong: an op or a word that does not exist."""


def value_of(value):
    """{"$py": "..."} stands for the value of that expression, at any depth."""
    if isinstance(value, dict):
        if set(value) == {"$py"}:
            return eval(value["$py"], {"base64": base64, "hashlib": hashlib, "json": json})
        return {k: value_of(v) for k, v in value.items()}
    if isinstance(value, list):
        return [value_of(v) for v in value]
    return value


def show(value, limit=160):
    text = repr(value)
    if len(text) > limit:
        text = "%s…%s (%d characters)" % (text[:limit * 2 // 3], text[-limit // 3:], len(text))
    return text


def differs(what, want, got):
    return "%s: expected %s, got %s" % (what, show(want), show(got))


def as_list(value):
    return value if isinstance(value, list) else [value]


def text_bytes(value):
    """Bytes of a text or of a value (a tool's result is JSON)."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False).encode()


def as_text(value):
    return value if isinstance(value, str) else text_bytes(value).decode("utf8", "replace")


# ---- X_<test>, for X in the texts of a reply ------------------------------------------------------------------

TEXTS = {"stdout", "stderr", "result", "content", "output", "traceback", "error", "body"}

TEXT_TESTS = {
    "contains": lambda want, got: [] if all(w in got for w in as_list(want)) else
        ["no " + show(w) for w in as_list(want) if w not in got],
    "not_contains": lambda want, got: ["there is " + show(w) for w in as_list(want) if w in got],
    "starts": lambda want, got: [] if got.startswith(want) else ["does not start with " + show(want)],
    "ends": lambda want, got: [] if got.endswith(want) else ["does not end with " + show(want)],
    "regex": lambda want, got: [] if re.search(want, got) else ["does not match " + show(want)],
    "min_bytes": lambda want, got: [] if len(text_bytes(got)) >= want else
        ["%d bytes, at least %d wanted" % (len(text_bytes(got)), want)],
    "max_bytes": lambda want, got: [] if len(text_bytes(got)) <= want else
        ["%d bytes, at most %d wanted" % (len(text_bytes(got)), want)],
    "sha256": lambda want, got: [] if hashlib.sha256(text_bytes(got)).hexdigest() == want else
        ["SHA-256 is not " + want],
}


def text_of(name, reply):
    """The text that X_… speaks of. `error` is message, traceback and stderr together."""
    if name == "error":
        error = reply.get("error") or {}
        parts = [error.get("message"), error.get("traceback"), reply.get("traceback"), reply.get("stderr"),
                 reply.get("detail")]
        return "\n".join(p for p in parts if p)
    return reply.get(name)


def judge_text(name, test, want, reply):
    got = text_of(name, reply)
    if got is None:
        return ["%s_%s: the reply has no %s" % (name, test, name)]
    got = as_text(got)
    found = TEXT_TESTS[test](want, got)
    return ["%s: %s, got %s" % (name, f, show(got)) for f in found]


# ---- words with a meaning of their own -------------------------------------------------------------------------

def has(name, reply):
    if name not in reply:
        return ["the reply has no " + name]
    return []


def exact(name):
    def judge(want, reply):
        if name not in reply:
            return ["the reply has no %s, %s expected" % (name, show(want))]
        return [] if reply[name] == want and isinstance(reply[name], bool) == isinstance(want, bool) \
            else [differs(name, want, reply[name])]
    return judge


def one_of(name):
    """One value, or a list of allowed ones."""
    def judge(want, reply):
        if name not in reply:
            return ["the reply has no %s, %s expected" % (name, show(want))]
        return [] if reply[name] in as_list(want) else [differs(name, want, reply[name])]
    return judge


def status(want, reply):
    unknown = set(as_list(want)) - STATUSES
    if unknown:
        raise CaseError("unknown status %s" % sorted(unknown))
    return one_of("status")(want, reply)


def reason(want, reply):
    """`memory_limit`, or prose that names the allowed words ("output_limit or timeout, named in the reply")."""
    allowed = {REASONS[w] for w in re.findall(r"[a-z_]+", want) if w in REASONS}
    if not allowed:
        raise CaseError("reason %r names no known reason" % want)
    got = reply.get("reason")
    return [] if REASONS.get(got, got) in allowed else [differs("reason", sorted(allowed), got)]


def truncated(want, reply):
    got = reply.get("truncated")
    if isinstance(got, dict):
        got = any(got.values())
    return [] if got is want else [differs("truncated", want, reply.get("truncated"))]


def error_name(want, reply):
    got = (reply.get("error") or {}).get("name")
    return [] if got in as_list(want) else [differs("error_name", want, got)]


def at_most(name):
    return lambda want, reply: has(name, reply) or (
        [] if reply[name] <= want else ["%s: %s, at most %s wanted" % (name, reply[name], want)])


def at_least(name):
    return lambda want, reply: has(name, reply) or (
        [] if reply[name] >= want else ["%s: %s, at least %s wanted" % (name, reply[name], want)])


def artifacts(want, reply):
    unknown = set(want) - {"added", "modified", "deleted", "added_includes", "absent"}
    if unknown:
        raise CaseError("unknown word in artifacts: %s" % sorted(unknown))
    got, found = reply.get("artifacts"), []
    if got is None:
        return ["the reply has no artifacts"]
    for word in ("added", "modified", "deleted"):
        if word in want and sorted(got.get(word, [])) != sorted(want[word]):
            found.append(differs("artifacts." + word, sorted(want[word]), sorted(got.get(word, []))))
    for path in want.get("added_includes", []):
        if path not in got.get("added", []):
            found.append("artifacts.added lacks %s, got %s" % (show(path), show(got.get("added", []))))
    for path in want.get("absent", []):
        for word in ("added", "modified"):
            if path in got.get(word, []):
                found.append("artifacts.%s has %s, which must be absent" % (word, show(path)))
    return found


def artifact_flags(want, reply):
    """{path: what must be said of it}: named among what was left out, with every size that the text gives."""
    found = []
    for path, text in want.items():
        said = [one for one in reply.get("left_out", []) if one.get("path") == path]
        if not said:
            found.append("left_out does not name %s" % show(path))
            continue
        for number in re.findall(r"\d{4,}", text):
            if number not in json.dumps(said[0]):
                found.append("left_out of %s does not say %s: %s" % (path, number, show(said[0])))
    return found


def includes(want, reply):
    """Each wanted object is among the reply's items, with at least these fields."""
    items = reply.get("items")
    if items is None:
        return ["the reply has no items"]
    return ["no item like %s in %s" % (show(one), show(items)) for one in want
            if not any(all(item.get(k) == v for k, v in one.items()) for item in items)]


def matches(want, reply):
    """Search results, in any order, by the fields that the case names."""
    if "matches" not in reply:
        return ["the reply has no matches"]
    fields = sorted({k for one in want for k in one})
    key = lambda one: json.dumps([one.get(k) for k in fields])
    got = sorted(({k: one.get(k) for k in fields} for one in reply["matches"]), key=key)
    return [] if got == sorted(want, key=key) and len(got) == len(want) else [differs("matches", want, reply["matches"])]


def paths(want, reply):
    if "paths" not in reply:
        return ["the reply has no paths"]
    return [] if sorted(reply["paths"]) == sorted(want) else [differs("paths", sorted(want), sorted(reply["paths"]))]


def entries(want, reply):
    """Names in an archive: a list, or {"includes": …, "excludes": …}."""
    if "entries" not in reply:
        return ["the reply has no entries"]
    got = reply["entries"]
    if isinstance(want, list):
        return [] if sorted(got) == sorted(want) else [differs("entries", sorted(want), sorted(got))]
    if set(want) - {"includes", "excludes"}:
        raise CaseError("unknown word in entries: %s" % sorted(want))
    return ["entries lack %s" % show(n) for n in want.get("includes", []) if n not in got] + \
           ["entries have %s" % show(n) for n in want.get("excludes", []) if n in got]


def schema(want, reply):
    """{"dotted.path": value} below the reply's schema (`properties` may be left out on the way: no guessing)."""
    found = []
    for path, value in want.items():
        here = reply.get("schema")
        for part in path.split("."):
            here = here.get(part) if isinstance(here, dict) else None
        if here != value:
            found.append(differs("schema " + path, value, here))
    return found


def chunk(want, reply):
    """The n-th non-empty chunk of a stream: what it holds, and when it came."""
    found, got = [], reply.get("chunks")
    if got is None:
        return ["the reply has no chunks"]
    for one in as_list(want):
        unknown = set(one) - {"n", "contains", "at_most_s", "at_least_s"}
        if unknown:
            raise CaseError("unknown word in chunk: %s" % sorted(unknown))
        if one["n"] >= len(got):
            found.append("chunk %d did not come, only %d did" % (one["n"], len(got)))
            continue
        at, text = got[one["n"]]
        if one.get("contains", "") not in text:
            found.append(differs("chunk %d" % one["n"], one["contains"], text))
        if at > one.get("at_most_s", at):
            found.append("chunk %d came after %.2f s, at most %s wanted" % (one["n"], at, one["at_most_s"]))
        if at < one.get("at_least_s", at):
            found.append("chunk %d came after %.2f s, at least %s wanted" % (one["n"], at, one["at_least_s"]))
    return found


def results(want, reply):
    got = reply.get("results")
    if got is None:
        return ["the reply has no results"]
    if len(got) != len(want):
        return ["%d results, %d expected" % (len(got), len(want))]
    return ["result %d: %s" % (i, text) for i, (w, g) in enumerate(zip(want, got)) for text in judge_one(w, g)]


def any_of(want, reply):
    tried = []
    for one in want:
        found = judge_one(one, reply)
        if not found:
            return []
        tried.append("(%s)" % "; ".join(found))
    return ["none of any_of held: " + " ".join(tried)]


def nothing(_want, _reply):
    return []


WORDS = {
    "step": nothing, "note": nothing,
    "status": status, "reason": reason, "truncated": truncated, "error_name": error_name,
    "stdout": exact("stdout"), "stderr": exact("stderr"), "result": exact("result"), "content": exact("content"),
    "output": exact("output"), "traceback": exact("traceback"),
    "exit_code": one_of("exit_code"), "signal": one_of("signal"), "images": one_of("images"),
    "http_status": one_of("http_status"),
    "state_lost": exact("state_lost"), "running": exact("running"), "count": exact("count"), "size": exact("size"),
    "total_lines": exact("total_lines"), "sha256": exact("sha256"), "content_b64": exact("content_b64"),
    "versions": exact("versions"), "tool_ran": exact("tool_ran"), "leftover_processes": exact("leftover_processes"),
    "elapsed_max_s": at_most("elapsed_s"), "elapsed_min_s": at_least("elapsed_s"),
    "resident_max_mb": at_most("resident_mb"), "disk_max_mb": at_most("disk_mb"),
    "artifacts": artifacts, "artifact_flags": artifact_flags, "includes": includes, "matches": matches,
    "paths": paths, "entries": entries, "schema": schema, "chunk": chunk, "results": results, "any_of": any_of,
}


def judge_word(word, want, reply):
    if word in WORDS:
        return WORDS[word](want, reply)
    name, _, test = word.partition("_")
    if name in TEXTS and test in TEXT_TESTS:
        return judge_text(name, test, want, reply)
    raise CaseError("unknown word in expect: %s" % word)


def judge_one(expect, reply):
    """What differs between one entry of `expect` and one reply."""
    return [text for word, want in value_of(expect).items() for text in judge_word(word, want, reply)]


def judge(expect, replies):
    """All differences of a case; each sentence says which step it speaks of."""
    return ["step %d: %s" % (entry["step"], text) for entry in expect
            for text in judge_one(entry, replies[entry["step"]])]


# ---- is the case itself well-formed? ------------------------------------------------------------------------

def ops_of(steps):
    """Every op below steps, those inside `parallel` and `as_user` included."""
    for step in steps:
        yield step["op"]
        inner = step.get("args", {}).get("steps", [])
        yield from ops_of(inner)


def check_case(case):
    """Raises CaseError for anything that a runner would otherwise silently not do."""
    where = case.get("id", "a case without id")
    unknown = set(case) - FIELDS
    if unknown:
        raise CaseError("%s: unknown field %s" % (where, sorted(unknown)))
    for field in ("id", "kind", "steps", "expect"):
        if field not in case:
            raise CaseError("%s: no %s" % (where, field))
    if case["kind"] not in KINDS:
        raise CaseError("%s: unknown kind %s" % (where, case["kind"]))
    for need in case.get("needs", []):
        if need not in NEEDS:
            raise CaseError("%s: unknown need %r" % (where, need))
    for op in ops_of(case["steps"]):
        if op not in OPS:
            raise CaseError("%s: unknown op %s" % (where, op))
    for entry in case["expect"]:
        if not isinstance(entry.get("step"), int) or not 0 <= entry["step"] < len(case["steps"]):
            raise CaseError("%s: expect of a step that does not exist: %s" % (where, entry.get("step")))
        _check_words(where, entry)
    if not case["expect"]:
        raise CaseError("%s: expects nothing" % where)


def _check_words(where, entry):
    asserted = False
    for word in entry:
        name, _, test = word.partition("_")
        if word not in WORDS and not (name in TEXTS and test in TEXT_TESTS):
            raise CaseError("%s: unknown word in expect: %s" % (where, word))
        asserted = asserted or word not in ("step", "note")
    for inner in entry.get("any_of", []) + entry.get("results", []):
        _check_words(where, inner)
    if not asserted:
        raise CaseError("%s: an entry of expect says nothing: %s" % (where, entry))
