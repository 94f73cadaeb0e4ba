"""hutch-agent alone: the real program as PID 1 of namespaces that the harness makes, spoken to in frames.

Runs as root (two ids) and as an ordinary user (one id); see agent_harness.py. Each test has an agent of its own.
"""
import os
import random
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_harness  # noqa: E402
import hutch_test  # noqa: E402
from agent_harness import AGENT, Agent, Gone, PAYLOAD_MAX, WINDOW, field, fields, frame, parse_fields  # noqa: E402

PYTHON = "/usr/bin/python3"
SLOWNESS = hutch_test.SLOWNESS
IS_SANITIZED = b"__asan_init" in open(AGENT, "rb").read() if os.path.exists(AGENT) else False


def python(code):
    return [PYTHON, "-I", "-c", code]


def shell(code):
    return ["sh", "-c", code]


class AgentTest(unittest.TestCase):
    def agent(self, **kw):
        agent = Agent(**kw)
        self.addCleanup(agent.close)
        return agent

    def ok(self, outcome, code=0):
        self.assertIsNone(outcome.error)
        self.assertTrue(outcome.started)
        self.assertEqual((outcome.exit_code, outcome.signal), (code, None), outcome.err)
        return outcome

    def refused(self, outcome, code, step, errno=0):
        self.assertIsNotNone(outcome.error, outcome.ended)
        error = outcome.error
        self.assertEqual((error["code"], error["step"], error["errno"]), (code, step, errno), error["message"])
        self.assertEqual(outcome.pieces, [])
        return error["message"]

    def counts_agree(self, outcome):
        """ENDED's numbers are those of what came."""
        gap = outcome.gap or {"stdout_bytes": 0, "stderr_bytes": 0}
        self.assertEqual(outcome.stdout_dropped_bytes, gap["stdout_bytes"])
        self.assertEqual(outcome.stderr_dropped_bytes, gap["stderr_bytes"])
        self.assertEqual(outcome.stdout_bytes, len(outcome.out) + gap["stdout_bytes"])
        self.assertEqual(outcome.stderr_bytes, len(outcome.err) + gap["stderr_bytes"])
        self.assertEqual("output" in (outcome.limits_hit or []), outcome.gap is not None)


class Life(AgentTest):
    def test_outcome(self):
        agent = self.agent()
        done = self.ok(agent.run(shell("printf out; printf err >&2; exit 7")), 7)
        self.assertEqual((done.out, done.err, done.reason), (b"out", b"err", None))
        self.counts_agree(done)
        self.assertEqual(done.id, "x1")
        done = agent.run(shell("kill -SEGV $$"))
        self.assertEqual((done.exit_code, done.signal, done.reason), (None, signal.SIGSEGV, None))

    def test_surroundings(self):
        """What the program finds: ids, rights, descriptors, signals, and nothing of the agent."""
        done = self.ok(self.agent().run(python(r"""
import os, signal, resource
print("ids", os.getuid(), os.getgid(), os.getppid(), os.getsid(0) == os.getpid(), os.getcwd(), oct(os.umask(0)))
print("env", sorted(os.environ))
for fd in range(4096):
    try: print("fd", fd, os.fstat(fd).st_uid, oct(os.fstat(fd).st_mode & 0o170000))
    except OSError: pass
for line in open("/proc/self/status"):
    if line.startswith(("Cap", "Sig", "NoNew", "Seccomp:", "Groups")): print(line.strip())
print("own", os.stat("/proc/self/status").st_uid)
for name in "environ maps mem fd cwd root exe".split():
    try: os.stat("/proc/1/" + name); os.listdir("/proc/1/fd") if name == "fd" else open("/proc/1/" + name).read(1); print("open", name)
    except OSError: pass
print("cmdline", open("/proc/1/cmdline", "rb").read().strip(b"\0"), open("/proc/1/comm").read().strip())
for name in "CORE NOFILE STACK MEMLOCK RTPRIO".split(): print(name, resource.getrlimit(getattr(resource, "RLIMIT_" + name)))
for path in "/dev/stdout", "/dev/stderr", "/proc/self/fd/1": open(path, "w").close()
"""), cwd="/usr", stdin=1))
        text = done.out.decode()
        self.assertIn("ids 1000 1000 1 True /usr 0o22\n", text)
        self.assertIn("env ['LANG', 'PATH']\n", text)
        self.assertEqual(re.findall(r"fd .*", text), ["fd %d 1000 0o10000" % fd for fd in range(3)])
        for line in re.findall(r"Cap.*|Sig(?:Pnd|Blk|Ign).*", text):
            self.assertIn("0" * 16, line.replace("SigIgn:\t0000000001001000", "SigIgn: " + "0" * 16), line)    # Python ignores two
        self.assertIn("NoNewPrivs:\t1\n", text)
        self.assertIn("Seccomp:\t2\n", text)
        self.assertIn("own 1000\n", text)
        self.assertNotIn("open", text)
        self.assertIn("cmdline b'' hutch-agent\n", text)
        self.assertIn("CORE (0, 0)", text)
        self.assertIn("NOFILE (1024, 1024)", text)
        self.assertIn("MEMLOCK (65536, 65536)", text)
        self.assertIn("RTPRIO (0, 0)", text)

    def test_ignored_signals_do_not_pass(self):
        """The harness starts the agent with SIGPIPE ignored, as a careless caller would."""
        done = self.agent().run(shell("grep SigIgn /proc/self/status"))
        self.assertEqual(done.out.split()[1], b"0" * 16)

    def test_pid_1_is_out_of_reach(self):
        agent = self.agent()
        done = self.ok(agent.run(python("""
import os, signal, resource
for number in list(range(1, signal.NSIG)):
    for how in (os.kill, lambda pid, n: signal.pidfd_send_signal(os.pidfd_open(pid), n)):
        try: how(1, number)
        except OSError: pass
for what in (lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (4, 4)), lambda: os.sched_setaffinity(1, {0}),
             lambda: os.setpriority(os.PRIO_PROCESS, 1, 19)):
    try: what(); print("reached PID 1")
    except PermissionError: pass
for i in range(2000):
    try: os.kill(1, signal.SIGCHLD)
    except OSError: pass
""")))
        self.assertEqual(done.out, b"")
        self.ok(agent.run(["true"]))

    def test_orphans_are_reaped_and_counted(self):
        done = self.ok(self.agent().run(python("""
import os, time
for i in range(50):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
for i in range(50): os.wait()
if os.fork() == 0:
    if os.fork() == 0:
        end = time.process_time() + 0.5
        while time.process_time() < end: pass
        os._exit(0)
    os._exit(0)
os.wait()
deadline = time.monotonic() + 30
def others(): return [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())]
while others() and time.monotonic() < deadline: time.sleep(0.01)
print(others())
"""), timeout_ms=60000))
        self.assertEqual(done.out, b"[]\n")
        self.assertGreaterEqual(done.cpu_ms, 450)

    def test_many_executions_leave_nothing(self):
        agent = self.agent()
        pid = agent.pid()

        def open_fds():
            self.refused(agent.run(["true"], unknown=1), "bad_request", "unknown")    # the tidying after ENDED is done
            return sorted(os.listdir("/proc/%d/fd" % pid)) if hutch_test.IS_ROOT else []

        def memory_kib():
            return int(hutch_test.proc_status(pid)["VmRSS"].split()[0])
        for _ in range(20):
            self.ok(agent.run(["true"], script=b"x" * 5000, stdin=1))
        fds, memory = open_fds(), memory_kib()
        for turn in range(600 if not IS_SANITIZED else 200):
            if turn % 10 == 0:
                self.refused(agent.run(["there-is-no-such-program"]), "failed", "exec", 2)
            elif turn % 10 == 1:
                self.refused(agent.run(["true"], unknown=1), "bad_request", "unknown")
            else:
                self.ok(agent.run(["true"], script=b"x" * 5000, stdin=turn % 2))
        self.assertEqual(open_fds(), fds)
        if not IS_SANITIZED:    # its allocator keeps what is freed for a while
            self.assertLessEqual(memory_kib(), memory + 100)
        done = self.ok(agent.run(shell("ls -A /tmp; ls /proc | grep -c '^[0-9]'")))
        self.assertRegex(done.out, rb"^[34]\n$")    # PID 1, sh, ls or grep; no script's folder
        if not IS_SANITIZED:
            high = int(hutch_test.proc_status(pid)["VmHWM"].split()[0])
            self.assertLess(high, 1024, "KiB at most")

    def test_ids_and_turns(self):
        agent = self.agent()
        self.ok(agent.run(["true"], id="one"))
        self.assertIn("used before", self.refused(agent.run(["true"], id="one"), "bad_request", "id"))
        agent.start(["sleep", "1"], id="two")
        agent.expect("STARTED")
        agent.start(["true"], id="three")
        self.assertIn("another", agent.expect("ERROR")["message"])
        self.assertEqual(agent.finish().ended["id"], "two")
        self.ok(agent.run(["true"], id="three"))

    def test_without_clone3(self):
        """An outer sandbox may hide it."""
        agent = self.agent(prepare=agent_harness.hide_clone3)
        self.ok(agent.run(shell("exit 3")), 3)
        self.assertEqual(agent.run(shell("grep SigIgn /proc/self/status")).out.split()[1], b"0" * 16)
        self.refused(agent.run(["no-such-program"]), "failed", "exec", 2)

    def test_client_that_leaves_ends_a_tied_agent(self):
        agent = self.agent()
        agent.start(shell("trap '' TERM; setsid sleep 1000 & sleep 1000"))
        agent.expect("STARTED")
        agent.sock.close()
        self.assertEqual(agent.wait(10 * SLOWNESS), 0)

    def test_client_that_leaves_ends_nothing_else(self):
        agent = self.agent(tied=0)
        agent.start(shell("head -c 3000000 /dev/zero; sleep 0.7"))
        agent.expect("STARTED")
        begun = time.monotonic()
        agent.sock.close()
        self.assertEqual(agent.wait(10 * SLOWNESS), 0)
        self.assertGreater(time.monotonic() - begun, 0.6)

    def test_only_as_pid_1_and_with_all_settings(self):
        done = subprocess.run([AGENT], capture_output=True)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"hutch run", done.stderr)
        for wrong in ({"spool": None}, {"spool": 999}, {"code_uid": "x"}, {"nonsense": 1}, {"tied": 2}):
            with self.subTest(wrong):
                agent = Agent(hello=False, **{"tied": 1, **wrong})
                self.assertEqual(agent.wait(10 * SLOWNESS), 125)
                agent.close()


class Output(AgentTest):
    WRITER = r"""
import os, sys
cap, total, piece, seed = map(int, sys.argv[1:])
import random
rng = random.Random(seed)
data = rng.randbytes(total)
at = turn = 0
while at < total:
    n = rng.randint(1, piece)
    view = data[at:at + n]
    fd = 1 + rng.getrandbits(1)
    while view: view = view[os.write(fd, view):]
    at += n
"""

    @staticmethod
    def written(total, piece, seed):
        """What WRITER writes, as (stream, bytes) pieces."""
        rng = random.Random(seed)
        data = rng.randbytes(total)
        at, pieces = 0, []
        while at < total:
            n = rng.randint(1, piece)
            pieces.append(("STDERR" if rng.getrandbits(1) else "STDOUT", data[at:at + n]))
            at += n
        return data, pieces

    def check(self, agent, cap, total, piece, seed):
        done = self.ok(agent.run(python(self.WRITER) + [str(x) for x in (cap, total, piece, seed)], output_bytes=cap))
        self.counts_agree(done)
        data, pieces = self.written(total, piece, seed)
        streams = {kind: b"".join(d for k, d in pieces if k == kind) for kind in ("STDOUT", "STDERR")}
        self.assertEqual(done.stdout_bytes, len(streams["STDOUT"]))
        self.assertEqual(done.stderr_bytes, len(streams["STDERR"]))
        self.assertEqual(done.gap is not None, total > cap)
        if total <= cap:
            self.assertEqual((done.out, done.err), (streams["STDOUT"], streams["STDERR"]))
            return
        self.assertEqual(done.head_bytes, cap - cap // 2)
        self.assertEqual(len(done.out) + len(done.err), cap)
        # The order between streams is that of the agent's reads; of each stream it has a beginning and an end.
        at = [kind for kind, _ in done.pieces].index("GAP")
        for kind in ("STDOUT", "STDERR"):
            head = b"".join(d for k, d in done.pieces[:at] if k == kind)
            tail = b"".join(d for k, d in done.pieces[at:] if k == kind)
            self.assertTrue(streams[kind].startswith(head))
            self.assertTrue(streams[kind].endswith(tail))

    def test_cap_is_exact(self):
        agent = self.agent()
        for cap in (1, 2, 7, 100000, 100001):
            for total in sorted({0, 1, cap // 2, cap - 1, cap, cap + 1, 3 * cap}):
                with self.subTest(cap=cap, total=total):
                    self.check(agent, cap, total, 5000, total)

    def test_order_of_streams(self):
        """Bytes that are taken one by one keep their order, also beyond the head and in the tail."""
        code = r"""
import fcntl, os, sys, termios, time
count = int(sys.argv[1])
def empty(fd): return fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0") == b"\0\0\0\0"
for i in range(count):
    fd = 1 + i % 2
    os.write(fd, bytes([i % 251]))
    while not empty(fd): os.sched_yield()
"""
        agent = self.agent()
        done = self.ok(agent.run(python(code) + ["3000"], output_bytes=1000, timeout_ms=60000))
        self.counts_agree(done)
        every = [("STDOUT" if i % 2 == 0 else "STDERR", i % 251) for i in range(3000)]
        self.assertEqual(done.merged, every[:500] + every[-500:])
        done = self.ok(agent.run(python(code) + ["3000"], output_bytes=3000, timeout_ms=60000))
        self.assertEqual(done.merged, every)

    def test_alternation_flood(self):
        agent = self.agent()
        spool_before = os.fstat(agent.spool).st_size
        agent.start(python(r"""
import os
for i in range(400000):
    os.write(1, b"o"); os.write(2, b"e")
"""), output_bytes=100000, timeout_ms=120000)
        done = self.ok(agent.finish(lambda *_: self.assertLessEqual(os.fstat(agent.spool).st_size, 200000)))
        self.counts_agree(done)
        self.assertEqual((done.stdout_bytes, done.stderr_bytes), (400000, 400000))
        self.assertEqual(len(done.out) + len(done.err), 100000)
        self.assertEqual(os.fstat(agent.spool).st_size, spool_before)

    def test_slow_client_never_blocks_the_program(self):
        agent = self.agent()
        agent.start(python("""
import os, sys, time
begun = time.monotonic()
for i in range(200): sys.stdout.buffer.write(b"x" * 100000)
sys.stdout.flush()
print(time.monotonic() - begun, file=sys.stderr)
"""), output_bytes=6 << 20)
        time.sleep(1)    # the client does something else: the one thing here that has to take time
        seen = []

        def slowly(_kind, data):
            seen.append(len(data))
            if len(seen) % 16 == 0:
                time.sleep(0.02)
        done = self.ok(agent.finish(slowly))
        self.counts_agree(done)
        self.assertEqual(done.stdout_bytes, 20000000)
        self.assertLess(done.wall_ms, 1000 * SLOWNESS)

    def test_flood_is_killed(self):
        done = self.agent().run(["yes"], output_bytes=100000)
        self.assertEqual((done.signal, done.reason, done.limits_hit), (9, "output", ["output"]))
        self.assertGreater(done.stdout_bytes, 1600000)
        self.assertLess(done.stdout_bytes, 1600000 + (2 << 20))
        self.counts_agree(done)

    def test_closed_outputs(self):
        done = self.ok(self.agent().run(shell("exec >&- 2>&-; sleep 0.2; exit 4")), 4)
        self.assertGreaterEqual(done.wall_ms, 190)

    def test_last_words(self):
        """What is in a large pipe when the program ends is not lost."""
        agent = self.agent()
        for _ in range(20):
            done = self.ok(agent.run(python("""
import fcntl, os, signal
fcntl.fcntl(1, 1031, 1 << 20)
os.write(1, b"y" * 500000); os.write(2, b"z" * 60000)
"""), output_bytes=1 << 20))
            self.assertEqual((len(done.out), len(done.err)), (500000, 60000))

    def test_full_spool(self):
        import fcntl
        agent = Agent(hello=False, spool=None)
        agent.wait(10)
        agent.close()
        spool = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
        fcntl.fcntl(spool, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
        agent = self.agent(spool=spool, extra_fds=(spool,))
        done = agent.run(["yes"])
        self.assertEqual((done.error["code"], done.error["step"]), ("failed", "spool"))
        self.ok(agent.run(["true"]))
        os.close(spool)


class Input(AgentTest):
    def feed(self, agent, data, end=True):
        """Sends within the credit; gives back what came from the agent meanwhile."""
        outcome, credit, at = agent_harness.Outcome(), WINDOW, 0
        ended = False
        while outcome.ended is None:
            writing = at < len(data) and credit > 0
            if at == len(data) and end and not ended:
                agent.send("STDIN_END")
                ended = True
            can_read, can_write, _ = select.select([agent.sock], [agent.sock] if writing else [], [], 0 if agent.buffer else 20)
            if agent.buffer or can_read:
                got = agent.receive()
                if got is None:
                    raise Gone("the agent went")
                kind, payload = got
                if kind == "STDIN_CREDIT":
                    credit += parse_fields(payload)["bytes"]
                    self.assertLessEqual(credit, WINDOW)
                elif kind == "ENDED":
                    outcome.ended = parse_fields(payload)
                elif kind == "STARTED":
                    outcome.started = True
                else:
                    outcome.add(kind, payload[8:])
            elif can_write:
                piece = data[at:at + min(credit, PAYLOAD_MAX, random.randint(1, 100000))]
                agent.send("STDIN", piece)
                at += len(piece)
                credit -= len(piece)
        return outcome, at

    def test_all_bytes_pass(self):
        agent = self.agent()
        data = random.Random(1).randbytes(5 << 20)
        agent.start(["cat"], stdin=1, output_bytes=8 << 20)
        outcome, sent = self.feed(agent, data)
        self.ok(outcome)
        self.assertEqual(sent, len(data))
        self.assertTrue(outcome.out == data)

    def test_before_the_program_runs(self):
        agent = self.agent()
        agent.start(["cat"], stdin=1, script_name="late", script_bytes=3)
        agent.send("STDIN", b"early")
        agent.send("STDIN_END")
        agent.send("SCRIPT", b"abc")
        self.assertEqual(self.ok(agent.finish()).out, b"early")

    def test_program_that_does_not_read(self):
        agent = self.agent()
        agent.start(["sleep", "1"], stdin=1)
        outcome, sent = self.feed(agent, b"x" * (4 << 20))
        self.ok(outcome)
        self.assertLess(sent, 2 * WINDOW)    # the buffer and the pipe

    def test_program_that_closes(self):
        agent = self.agent()
        agent.start(shell("head -c 5; exec <&-; sleep 1; exit 3"), stdin=1)
        outcome, sent = self.feed(agent, b"x" * (4 << 20))
        self.ok(outcome, 3)
        self.assertEqual(outcome.out, b"xxxxx")
        self.assertEqual(sent, 4 << 20)    # discarded, with credit: the client is never stuck

    def test_without(self):
        agent = self.agent()
        self.assertEqual(self.ok(agent.run(shell("cat; readlink /proc/self/fd/0"))).out, b"/dev/null\n")

    def test_empty(self):
        agent = self.agent()
        agent.start(["cat"], stdin=1)
        agent.send("STDIN_END")
        self.assertEqual(self.ok(agent.finish()).out, b"")

    def test_late_frames_are_ignored(self):
        agent = self.agent()
        self.ok(agent.run(["true"], stdin=1))
        agent.send("STDIN", b"too late")
        agent.send("STDIN_END")
        agent.send("SCRIPT", b"too late")
        agent.send("CANCEL", fields(id="x1"))
        self.ok(agent.run(["true"]))


class Time(AgentTest):
    STUBBORN = """
trap '' TERM
(trap '' TERM; setsid sh -c 'trap "" TERM; while :; do sleep 0.1; done' &) &
setsid sh -c 'trap "" TERM; sleep 1000' &
echo ready
while :; do sleep 0.1; done
"""

    def alone(self, agent):
        """Nothing of an earlier execution lives."""
        done = self.ok(agent.run(python("import os; print([p for p in os.listdir('/proc') if p.isdigit()])")))
        self.assertEqual(len(done.out.split()), 2, done.out)

    def test_stubborn_tree(self):
        agent = self.agent()
        begun = time.monotonic()
        done = agent.run(shell(self.STUBBORN), timeout_ms=400, grace_ms=300)
        seconds = time.monotonic() - begun
        self.assertEqual((done.signal, done.reason, done.out), (9, "timeout", b"ready\n"))
        self.assertGreaterEqual(seconds, 0.7)
        self.assertLess(seconds, 0.7 + 2 * SLOWNESS)
        self.alone(agent)

    def test_term_first(self):
        agent = self.agent()
        done = self.ok(agent.run(shell("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"), timeout_ms=500, grace_ms=5000), 5)
        self.assertEqual((done.reason, done.out), ("timeout", b"up\nbye\n"))
        self.assertLess(done.wall_ms, 5000)

    def test_no_grace(self):
        done = self.agent().run(shell("trap '' TERM; while :; do sleep 0.05; done"), timeout_ms=200, grace_ms=0)
        self.assertEqual((done.signal, done.reason), (9, "timeout"))

    def test_stopped(self):
        done = self.agent().run(shell("kill -STOP $$"), timeout_ms=200, grace_ms=200)
        self.assertEqual((done.signal, done.reason), (9, "timeout"))

    def test_none(self):
        self.ok(self.agent().run(["sleep", "0.3"], timeout_ms=0))

    def test_holder_of_output_delays_nothing(self):
        agent = self.agent()
        begun = time.monotonic()
        done = self.ok(agent.run(shell("setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & echo gone")))
        self.assertEqual(done.out, b"gone\n")
        self.assertLess(time.monotonic() - begun, 2 * SLOWNESS)
        self.alone(agent)

    def test_fork_bomb_ends(self):
        agent = self.agent(nproc=200)
        agent.start(python("""
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"go")
while True:
    try: os.fork()
    except OSError: pass
"""), id="bomb", grace_ms=500)
        done = agent.finish(lambda *_: agent.send("CANCEL", fields(id="bomb")))
        self.assertEqual((done.signal, done.reason, done.out), (9, "cancelled", b"go"))
        self.alone(agent)

    def test_cancel(self):
        agent = self.agent()
        agent.start(shell(self.STUBBORN), id="me", grace_ms=300)
        agent.expect("STARTED")
        agent.expect("STDOUT")
        agent.send("CANCEL", fields(id="somebody_else"))
        agent.send("CANCEL", fields(id="me"))
        agent.send("CANCEL", fields(id="me"))
        outcome = agent_harness.Outcome()
        outcome.ended = agent.expect("ENDED")
        self.assertEqual((outcome.signal, outcome.reason), (9, "cancelled"))
        self.alone(agent)

    def test_cancel_before_the_script_is_there(self):
        agent = self.agent()
        agent.start(["true"], id="me", script_name="s", script_bytes=10)
        agent.send("SCRIPT", b"abc")
        agent.send("CANCEL", fields(id="me"))
        agent.send("SCRIPT", b"defghij")
        ended = agent.expect("ENDED")
        self.assertEqual((ended["reason"], ended.get("exit_code"), ended["wall_ms"]), ("cancelled", None, 0))
        self.ok(agent.run(shell("test ! -e /tmp/run-me")))


class Start(AgentTest):
    def test_no_such_program(self):
        agent = self.agent()
        self.assertIn("No such file", self.refused(agent.run(["no-such-program"]), "failed", "exec", 2))
        self.refused(agent.run(["/no/such/program"]), "failed", "exec", 2)
        self.refused(agent.run(["/etc/passwd"]), "failed", "exec", 13)
        self.refused(agent.run(["/etc"]), "failed", "exec", 13)
        self.refused(agent.run(["true", "x" * 200000]), "failed", "exec", 7)
        self.refused(agent.run(["x" * 5000]), "failed", "exec", 2)

    def test_path(self):
        agent = self.agent()
        script = b"#!/bin/sh\necho me \"$@\"\n"
        make = "mkdir /tmp/a /tmp/b /tmp/c; cp {0} /tmp/a/prog; cp {0} /tmp/b/prog; chmod 755 /tmp/b/prog; cp {0} /tmp/c/raw; sed -i 1d /tmp/c/raw; chmod 755 /tmp/c/raw"
        self.ok(agent.run(["sh", "-c", make.format("$1"), "sh", "{script}"], script=script))

        def with_path(path, *argv, cwd="/"):
            agent.next += 1
            agent.send("START", fields(id="p%d" % agent.next, argv=list(argv), env=["PATH=" + path] if path is not None else None,
                                       cwd=cwd, output_bytes=1000, sole=1))
            return agent.finish()
        self.assertEqual(self.ok(with_path("/none:/tmp/a:/tmp/b", "prog", "1")).out, b"me 1\n")    # past what may not be executed
        self.assertEqual(self.ok(with_path(":/usr", "prog", cwd="/tmp/b")).out, b"me\n")
        self.assertEqual(self.ok(with_path("/usr::", "prog", cwd="/tmp/b")).out, b"me\n")
        self.assertEqual(self.ok(with_path("/usr", "./prog", cwd="/tmp/b")).out, b"me\n")
        self.ok(with_path(None, "true"))
        self.refused(with_path("", "true"), "failed", "exec", 2)
        self.refused(with_path("/tmp/a:/etc/passwd:/usr", "prog"), "failed", "exec", 13)
        self.refused(with_path("/tmp/c", "raw"), "failed", "exec", 8)
        self.refused(with_path("/" + "x" * 4090 + ":/none", "prog"), "failed", "exec", 2)

    def test_cwd(self):
        agent = self.agent()
        self.assertEqual(self.ok(agent.run(["pwd"], cwd="/usr/../usr/bin")).out, b"/usr/bin\n")
        self.refused(agent.run(["true"], cwd="/no/such/place"), "failed", "cwd", 2)
        self.refused(agent.run(["true"], cwd="/etc/passwd"), "failed", "cwd", 20)
        # The agent's own descriptors and process are no way to anywhere.
        for path in ["/proc/self/fd/%d" % fd for fd in range(3, 12)] + ["/proc/1/cwd", "/proc/1/root"]:
            with self.subTest(path):
                outcome = agent.run(["true"], cwd=path)
                self.assertIsNotNone(outcome.error, path)
                self.assertEqual(outcome.error["step"], "cwd")
        self.ok(agent.run(shell("mkdir -m 0 /tmp/closed; ln -s /usr /tmp/link")))
        self.refused(agent.run(["true"], cwd="/tmp/closed"), "failed", "cwd", 13)
        self.assertEqual(self.ok(agent.run(["pwd", "-P"], cwd="/tmp/link")).out, b"/usr\n")

    def test_script(self):
        agent = self.agent()
        for size in (0, 1, PAYLOAD_MAX, PAYLOAD_MAX + 1, 5 << 20):
            data = random.Random(size).randbytes(size)
            done = self.ok(agent.run(python("""
import hashlib, os, sys
path = sys.argv[1]
file, folder = os.stat(path), os.stat(os.path.dirname(path))
print(path, oct(file.st_mode), file.st_uid, oct(folder.st_mode), folder.st_uid)
print(hashlib.sha256(open(path, "rb").read()).hexdigest())
open(path, "a").close(); open(os.path.dirname(path) + "/beside", "w").close()
os.remove(os.path.dirname(path) + "/beside")
""") + ["{script}"], script=data, script_name="name with \n blank.py"))
            import hashlib
            wanted = "/tmp/run-x%d/name with \n blank.py 0o100644 1000 0o40700 1000\n%s\n" % (agent.next, hashlib.sha256(data).hexdigest())
            self.assertEqual(done.out.decode(), wanted)
        self.assertEqual(self.ok(agent.run(["ls", "-A", "/tmp"])).out, b"")

    def test_script_in_the_way(self):
        agent = self.agent()
        self.ok(agent.run(shell("mkdir /tmp/run-a; ln -s /tmp /tmp/run-b; : > /tmp/run-c")))
        for name in "abc":
            self.refused(agent.run(["true"], script=b"x", id=name), "failed", "script", 17)
        self.assertEqual(self.ok(agent.run(shell("ls -d /tmp/run-*"))).out, b"/tmp/run-a\n/tmp/run-b\n/tmp/run-c\n")

    def test_script_that_tidies_itself_away(self):
        agent = self.agent()
        self.ok(agent.run(shell("rm -r /tmp/run-x1; mkdir /tmp/keep; touch /tmp/keep/file; ln -s keep /tmp/run-x1"), script=b"x"))
        self.assertEqual(self.ok(agent.run(["ls", "/tmp/keep"])).out, b"file\n")

    def test_no_space_for_the_script(self):
        agent = self.agent()
        agent.run(shell("cat /dev/zero > /tmp/fill"))
        self.refused(agent.run(["true"], script=b"x" * 1000000), "failed", "script", 28)
        self.ok(agent.run(shell("rm /tmp/fill")))
        self.ok(agent.run(["true"], script=b"x" * 1000000))

    def test_refusals_name_the_field(self):
        agent = self.agent()
        bad = [("unknown_thing", dict(unknown_thing="x")), ("id", dict(id="Not Good")), ("argv", dict(argv=[])), ("argv", dict(argv=[""])),
               ("argv", dict(argv=["a"] * 4097)), ("env", dict(env=["novalue"])), ("cwd", dict(cwd="relative")), ("cwd", dict(cwd=None)),
               ("output_bytes", dict(output_bytes=0)), ("output_bytes", dict(output_bytes=1 << 40)), ("timeout_ms", dict(timeout_ms=b"12")),
               ("stdin", dict(stdin=2)), ("script_name", dict(script_name="../x", script_bytes=1)),
               ("script_bytes", dict(script_name="x", script_bytes=1 << 30)), ("grace_ms", dict(grace_ms=1 << 60))]
        for name, values in bad:
            with self.subTest(name, **{k: repr(v)[:40] for k, v in values.items()}):
                request = dict(id="good", argv=["true"], cwd="/", output_bytes=1000, sole=1)
                request.update(values)
                agent.send("START", fields(**request))
                self.assertIn("'%s'" % name, self.refused(agent.finish(), "bad_request", name))
        # What belonged to a refused START is ignored.
        for kind in ("SCRIPT", "STDIN", "STDIN_END"):
            agent.send(kind, b"" if kind == "STDIN_END" else b"x")
        self.ok(agent.run(["true"], id="good"))

    def test_not_sole_needs_a_group(self):
        self.refused(self.agent().run(["true"], sole=0), "bad_request", "sole")

    def test_affinity(self):
        if os.cpu_count() < 2:
            self.skipTest("one processor")
        for first in (0, 1, 5):
            done = self.ok(self.agent(cpus=1, first_cpu=first).run(["nproc"]))
            self.assertEqual(done.out, b"1\n")
        self.assertEqual(self.ok(self.agent(cpus=5000).run(["nproc"])).out, b"%d\n" % len(os.sched_getaffinity(0)))


class Counters(AgentTest):
    """The files that the launcher opens for the agent, played by files of ours."""

    def counter(self, text):
        fd = os.memfd_create("counter")
        self.addCleanup(os.close, fd)
        os.write(fd, text)
        return fd

    def playing(self, events=b"oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", peak=b"123456789\n", pids=b"max 7\n"):
        self.events, self.peak, self.pids = self.counter(events), self.counter(peak), self.counter(pids)
        return self.agent(memory_events=self.events, memory_peak=self.peak, pids_events=self.pids,
                          extra_fds=(self.events, self.peak, self.pids))

    def meanwhile(self, agent, fd, text, argv):
        """Changes a counter while the program waits on its input."""
        agent.start(argv, stdin=1)
        agent.expect("STARTED")
        os.pwrite(fd, text, 0)
        agent.send("STDIN_END")
        outcome = agent_harness.Outcome()
        outcome.started = True
        outcome.ended = agent.expect("ENDED")
        return outcome

    def test_nothing_rose(self):
        done = self.playing().run(shell("kill -KILL $$"))
        self.assertEqual((done.signal, done.reason, done.limits_hit, done.peak_memory_bytes), (9, None, None, 123456789))

    def test_memory_of_the_main_program(self):
        agent = self.playing()
        done = self.meanwhile(agent, self.events, b"oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", shell("cat; kill -KILL $$"))
        self.assertEqual((done.signal, done.reason, done.limits_hit), (9, "memory", ["memory"]))
        self.assertIsNone(agent.run(["true"]).limits_hit)    # each execution is compared with its own beginning

    def test_memory_of_another(self):
        agent = self.playing(events=b"low 0\nhigh 0\nmax 9\noom 3\noom_kill 0\noom_group_kill 0\n")
        done = self.meanwhile(agent, self.events, b"low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n", shell("cat; exit 1"))
        self.assertEqual((done.exit_code, done.reason, done.limits_hit), (1, None, ["memory"]))

    def test_pids(self):
        agent = self.playing()
        done = self.meanwhile(agent, self.pids, b"max 8\n", ["cat"])
        self.assertEqual((done.exit_code, done.limits_hit), (0, ["pids"]))

    def test_absent(self):
        done = self.agent().run(["true"])
        self.assertNotIn("peak_memory_bytes", done.ended)


class Abuse(AgentTest):
    def ends(self, agent, what=""):
        """ERROR bad_request, then the end of connection and agent."""
        while True:
            got = agent.receive()
            if got is None:
                self.fail("no ERROR: %s" % what)
            if got[0] == "ERROR":
                error = parse_fields(got[1])
                break
        self.assertEqual((error["code"], error["step"]), ("bad_request", "frame"), what)
        self.assertIsNone(agent.receive(), what)
        self.assertEqual(agent.wait(10 * SLOWNESS), 0, what)
        return error["message"]

    def test_no_frames(self):
        for name, data in {"type 0": struct.pack("<II", 0, 0), "unknown type": struct.pack("<II", 0, 14), "reserved": struct.pack("<II", 0, 0x0201),
                           "too long": struct.pack("<II", PAYLOAD_MAX + 1, 5), "http": b"GET / HTTP/1.1\r\n\r\n"}.items():
            for greeted in (True, False):
                with self.subTest(name, greeted=greeted):
                    agent = self.agent(hello=greeted)
                    agent.sock.sendall(data)
                    self.ends(agent, name)

    def test_not_for_the_agent(self):
        for kind in ("STARTED", "STDIN_CREDIT", "STDOUT", "STDERR", "GAP", "ENDED", "ERROR"):
            with self.subTest(kind):
                agent = self.agent()
                agent.send(kind)
                self.ends(agent, kind)

    def test_hello(self):
        for name, data in {"none": frame("STDIN_END"), "no version": frame("HELLO"), "version 0": frame("HELLO", fields(version=0)),
                           "text": frame("HELLO", fields(version="one")), "no list": frame("HELLO", b"\1"),
                           "twice": frame("HELLO", fields(version=1)) * 2}.items():
            with self.subTest(name):
                agent = self.agent(hello=False)
                agent.sock.sendall(data)
                self.ends(agent, name)
        agent = self.agent(hello=False)
        agent.send("HELLO", fields(version=99, features="of the future"))
        self.assertEqual(agent.expect("HELLO"), {"version": 1})

    def test_over_credit(self):
        for start, data in ((dict(stdin=1), frame("STDIN", b"x" * PAYLOAD_MAX) + frame("STDIN", b"x" * PAYLOAD_MAX)),
                            (dict(stdin=1), frame("STDIN_END") + frame("STDIN", b"x")),
                            (dict(stdin=0), frame("STDIN", b"x")),
                            (dict(), frame("SCRIPT", b"x")),
                            (dict(), frame("STDIN_END", b"x")),
                            (dict(), frame("CANCEL", b"x")),
                            (dict(), frame("CANCEL", fields(id="x1", more=1))),
                            (dict(), frame("CANCEL", fields(id="x" * 33))),
                            (dict(script_name="s", script_bytes=2), frame("SCRIPT", b"xxx"))):
            with self.subTest(start=start, data=data[:20]):
                agent = self.agent()
                agent.start(shell("trap '' TERM; sleep 1000 & wait"), **start)
                try:
                    agent.sock.sendall(data)
                except OSError:
                    pass
                self.ends(agent)

    def test_cut_anywhere(self):
        """A client that dies in the middle of a frame: the agent ends, whatever it was doing."""
        whole = frame("HELLO", fields(version=1)) + frame("START", fields(id="a", argv=["sleep", "1000"], cwd="/", output_bytes=10, sole=1,
                                                                          stdin=1)) + frame("STDIN", b"x" * 100)
        for cut in range(0, len(whole), 17):
            agent = Agent(hello=False)
            agent.sock.sendall(whole[:cut])
            agent.close()
            self.assertEqual(agent.status, 0)

    def test_byte_by_byte(self):
        agent = self.agent(hello=False)
        for byte in frame("HELLO", fields(version=1)) + frame("START", fields(id="a", argv=["echo", "hi"], cwd="/", output_bytes=10, sole=1,
                                                                              env="PATH=/usr/bin")):
            agent.sock.sendall(bytes([byte]))
        agent.expect("HELLO")
        self.assertEqual(self.ok(agent.finish()).out, b"hi\n")

    def test_many_requests_unread(self):
        """Answers that nobody reads are bounded: the agent stops reading, and goes on when they are read."""
        agent = self.agent()
        bad = frame("START", fields(bad=1))
        agent.sock.setblocking(False)
        sent = 0
        data = b""
        try:
            while sent < 50 << 20:
                data = data or bad * 1000
                n = agent.sock.send(data)
                data = data[n:]
                sent += n
        except BlockingIOError:
            pass
        self.assertLess(sent, 50 << 20)
        agent.sock.settimeout(20 * SLOWNESS)
        for _ in range(sent // len(bad)):
            agent.expect("ERROR")

    def test_garbage(self):
        """Seeded: mutated conversations. The agent answers or ends; it never hangs, and never dies of a signal."""
        rng = random.Random(7)
        good = [frame("HELLO", fields(version=1)),
                frame("START", fields(id="a", argv=["cat"], env=["A=b"], cwd="/", output_bytes=100, stdin=1, sole=1, timeout_ms=300)),
                frame("STDIN", b"hello"), frame("STDIN_END"), frame("CANCEL", fields(id="a")),
                frame("START", fields(id="b", argv=["true"], cwd="/", output_bytes=1, sole=1, script_name="s", script_bytes=4)), frame("SCRIPT", b"abcd")]
        for _ in range(40):
            data = bytearray(b"".join(good[:1] + rng.choices(good, k=rng.randint(1, 8))))
            for _ in range(rng.randint(0, 4)):
                at = rng.randrange(len(data))
                choice = rng.randrange(3)
                if choice == 0:
                    data[at] ^= 1 << rng.randrange(8)
                elif choice == 1:
                    del data[at]
                else:
                    data.insert(at, rng.randrange(256))
            agent = Agent(hello=False)
            try:
                agent.sock.sendall(data)
            except OSError:
                pass
            agent.sock.shutdown(socket.SHUT_WR)
            self.assertEqual(agent.wait(20 * SLOWNESS), 0, bytes(data))
            agent.close()


class Group(AgentTest):
    """Executions that are not alone: a cgroup v2 of their own, below one that the agent may fill."""

    def setUp(self):
        if not hutch_test.IS_ROOT:
            self.skipTest("cannot exist here: making cgroups needs root")
        tops = [line.split()[4] for line in open("/proc/self/mountinfo") if " - cgroup2 " in line]
        if not tops:
            self.skipTest("cannot exist here: no cgroup v2 hierarchy is mounted")
        self.top = os.path.join(tops[0], "hutch-agent-test-%d" % os.getpid())
        os.mkdir(self.top)
        self.addCleanup(self.remove, self.top)
        for name in ("agent", "code"):
            os.mkdir(os.path.join(self.top, name))
        owner = agent_harness.FIRST_ID
        for path in ("cgroup.procs", "code", "code/cgroup.procs"):
            os.chown(os.path.join(self.top, path), owner, owner)
        self.fd = os.open(os.path.join(self.top, "code"), os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, self.fd)
        self.running = self.agent(code_group=self.fd, cgroup="v2", extra_fds=(self.fd,), hello=False)
        with open(os.path.join(self.top, "agent", "cgroup.procs"), "w") as f:
            f.write(str(hutch_test.wait_until(lambda: hutch_test.children(self.running.keeper), 5)[0]))
        self.running.send("HELLO", fields(version=1))
        self.running.expect("HELLO")

    @staticmethod
    def remove(top):
        for path, dirs, _ in os.walk(top, topdown=False):
            for name in dirs:
                os.rmdir(os.path.join(path, name))
        os.rmdir(top)

    def groups(self):
        return [name for name in os.listdir(os.path.join(self.top, "code")) if name.startswith("e-")]

    def test_tree_dies(self):
        done = self.running.run(shell(Time.STUBBORN), sole=0, timeout_ms=400, grace_ms=300)
        self.assertEqual((done.signal, done.reason, done.out), (9, "timeout", b"ready\n"))
        hutch_test.wait_until(lambda: not self.groups(), 5)

    def test_leftovers_die_with_the_main_program(self):
        done = self.ok(self.running.run(shell("setsid sleep 1000 & setsid sleep 1000 & grep 0:: /proc/self/cgroup"), sole=0))
        self.assertEqual(done.out, b"0::/\n")
        self.assertEqual(self.groups(), [])
        done = self.ok(self.running.run(shell("ls /proc | grep -c '^[0-9]'"), sole=0))
        self.assertRegex(done.out, b"^[34]\n")

    def test_cancel(self):
        self.running.start(shell("trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done"), sole=0, id="c")
        cancelled = []

        def cancel(*_):
            if not cancelled:
                cancelled.append(self.running.send("CANCEL", fields(id="c")))
        done = self.ok(self.running.finish(cancel), 9)
        self.assertEqual((done.reason, done.out), ("cancelled", b"up\n"))

    def test_sole_is_born_inside_too(self):
        self.running.start(shell("grep 0:: /proc/self/cgroup; echo up; cat"), stdin=1)
        self.running.expect("STARTED")
        self.assertIn(b"0::/\n", self.running.expect("STDOUT"))

        def members():
            with open(os.path.join(self.top, "code", "cgroup.procs")) as f:
                return len(f.read().split())
        hutch_test.wait_until(lambda: members() == 2, 10, "sh and cat in the code's group")
        self.running.send("STDIN_END")
        while self.running.receive()[0] != "ENDED":
            pass


if __name__ == "__main__":
    hutch_test.main(needs_program=False)
