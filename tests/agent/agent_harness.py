"""Runs the real hutch-agent as PID 1 of namespaces of its own, without launcher and hutch, and speaks frames with it.

    with Agent() as agent:
        outcome = agent.run(["sh", "-c", "echo hi"])

As root the agent has two ids (0 and 1000 of a map of 65536, as the launcher makes it), as an ordinary user one. Where the
program is: AGENT_BIN, or hutch-agent beside HUTCH_BIN.
"""
import ctypes
import os
import select
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
import hutch_test  # noqa: E402

AGENT = os.environ.get("AGENT_BIN") or os.path.join(os.path.dirname(hutch_test.HUTCH), "hutch-agent")
WINDOW = 256 * 1024
PAYLOAD_MAX = 256 * 1024
FIRST_ID = 1879048192 - 65536 * 2    # below the ids that sandboxes get

FRAMES = ("HELLO START SCRIPT STARTED STDIN STDIN_END STDIN_CREDIT STDOUT STDERR GAP CANCEL ENDED ERROR").split()
NUMBER_OF = {name: at + 1 for at, name in enumerate(FRAMES)}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWIPC = 0x20000, 0x10000000, 0x20000000, 0x08000000
MS_REC_PRIVATE = 0x4000 | 0x40000
PR_SET_PDEATHSIG = 1


def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        error = ctypes.get_errno()
        raise OSError(error, "%s: %s" % (name, os.strerror(error)))


# ---- frames and fields --------------------------------------------------------------------------------------

def field(key, value):
    """One field: numbers become eight bytes, text UTF-8."""
    if isinstance(value, bool) or isinstance(value, int):
        value = struct.pack("<Q", value)
    elif isinstance(value, str):
        value = value.encode("utf8", "surrogateescape")
    key = key.encode()
    return bytes([len(key)]) + key + struct.pack("<I", len(value)) + value


def fields(**values):
    """A list; a Python list repeats its key, None leaves it out."""
    out = b""
    for key, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                out += field(key, one)
    return out


TEXT_FIELDS = {"id", "reason", "limits_hit", "code", "step", "message"}


def parse_fields(data):
    found, at = {}, 0
    while at < len(data):
        size = data[at]
        key = data[at + 1:at + 1 + size].decode()
        at += 1 + size
        (size,) = struct.unpack_from("<I", data, at)
        value = data[at + 4:at + 4 + size]
        assert len(value) == size, "a field is cut"
        at += 4 + size
        value = value.decode() if key in TEXT_FIELDS else struct.unpack("<Q", value)[0]
        if key == "limits_hit":
            found.setdefault(key, []).append(value)
        else:
            assert key not in found, "field %s twice" % key
            found[key] = value
    return found


def frame(kind, payload=b""):
    return struct.pack("<II", len(payload), NUMBER_OF.get(kind, kind)) + payload


# ---- the process ----------------------------------------------------------------------------------------------

def hide_clone3():
    """A seccomp filter that answers ENOSYS to clone3 (435 on every architecture), as docker's profile does."""
    program = b"".join(struct.pack("<HBBI", *instruction) for instruction in
                       ((0x20, 0, 0, 0), (0x15, 0, 1, 435), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7fff0000)))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    call("prctl", 38, 1, 0, 0, 0)    # no_new_privs
    call("prctl", 22, 2, header, 0, 0)    # seccomp


def _become_agent(program, arguments, fds, two_ids, ready, go, prepare):
    """In the child: namespaces, then PID 1. `ready` says that the maps can be written, `go` that they are."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    call("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC)
    os.write(ready, b"r")
    if os.read(go, 1) != b"g":
        os._exit(1)
    if two_ids:
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        os.setgroups([])
    pid = os.fork()
    if pid != 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.close(ready)
        for fd in fds:
            os.close(fd)
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xff)
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    call("mount", None, b"/", None, MS_REC_PRIVATE, None)
    call("mount", b"proc", b"/proc", b"proc", 0, None)
    call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, b"mode=1777,size=64m")
    os.chdir("/")
    for cap in range(64) if not two_ids else ():    # as the launcher does; an agent of one id has no right to
        libc.prctl(24, cap, 0, 0, 0)
    for fd in fds:
        os.set_inheritable(fd, True)
    os.set_inheritable(program, False)
    if prepare:
        prepare()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)    # the agent must not pass this on
    os.execve(program, ["hutch-agent"] + arguments, {"SECRET": "of the launcher"})


class Gone(Exception):
    pass


class Agent:
    def __init__(self, hello=True, tied=1, program=None, extra_fds=(), prepare=None, **settings):
        self.two_ids = hutch_test.IS_ROOT
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(20)
        self.spool = os.memfd_create("spool")
        values = {"connection": theirs.fileno(), "spool": self.spool, "agent_uid": 0 if self.two_ids else 1000,
                  "code_uid": 1000, "tied": tied, "nofile": 1024}
        values.update(settings)
        arguments = ["%s=%s" % item for item in values.items() if item[1] is not None]
        fds = [theirs.fileno(), self.spool, *extra_fds]
        binary = os.open(program or AGENT, os.O_RDONLY)
        ready_read, ready = os.pipe()
        go, go_write = os.pipe()
        self.keeper = os.fork()
        if self.keeper == 0:
            self.sock.close()    # or the agent would never see its client go
            try:
                _become_agent(binary, arguments, fds, self.two_ids, ready, go, prepare)
            except BaseException as error:    # noqa: B036 - a fork must not return into the test
                os.write(2, ("cannot become the agent: %s\n" % error).encode())
            os._exit(99)
        theirs.close()
        os.close(binary)
        os.close(ready)
        os.close(go)
        try:
            if os.read(ready_read, 1) != b"r":
                raise Gone("no user namespace can be made here")
            self._write_maps()
            os.write(go_write, b"g")
        finally:
            os.close(ready_read)
            os.close(go_write)
        self.status = None
        self.buffer = bytearray()
        self.next = 0
        if hello:
            self.send("HELLO", fields(version=1))
            self.expect("HELLO")

    def _write_maps(self):
        proc = "/proc/%d/" % self.keeper
        if self.two_ids:
            line = "0 %d 65536" % FIRST_ID
            group = line
        else:
            line, group = "1000 %d 1" % os.getuid(), "1000 %d 1" % os.getgid()
            with open(proc + "setgroups", "w") as f:
                f.write("deny")
        with open(proc + "uid_map", "w") as f:
            f.write(line)
        with open(proc + "gid_map", "w") as f:
            f.write(group)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """The client goes; the agent must end by itself (tied), else it is killed and that is an error."""
        self.sock.close()
        os.close(self.spool)
        if self.status is None and self.wait(10) is None:
            os.kill(self.keeper, signal.SIGKILL)
            os.waitpid(self.keeper, 0)
            raise Gone("the agent did not end with its client")

    def wait(self, seconds):
        """The agent's exit status, or None when it lives on."""
        deadline = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.keeper, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                return None
            else:
                time.sleep(0.002)
        return self.status

    def pid(self):
        """The agent's pid out here."""
        return hutch_test.children(self.keeper)[0]

    # ---- talking ----

    def send(self, kind, payload=b""):
        self.sock.sendall(frame(kind, payload))

    def receive(self):
        """(kind, payload), or None at the end of the stream."""
        while True:
            if len(self.buffer) >= 8:
                size, kind = struct.unpack_from("<II", self.buffer)
                if len(self.buffer) >= 8 + size:
                    payload = bytes(self.buffer[8:8 + size])
                    del self.buffer[:8 + size]
                    return FRAMES[kind - 1], payload
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            except socket.timeout:
                raise Gone("the agent says nothing")
            if not data:
                if self.buffer:
                    raise Gone("the stream ends inside a frame")
                return None
            self.buffer += data

    def readable(self, seconds):
        return bool(self.buffer) or bool(select.select([self.sock], [], [], seconds)[0])

    def expect(self, kind):
        got = self.receive()
        if got is None or got[0] != kind:
            raise Gone("wanted %s, got %r" % (kind, got if got is None or len(got[1]) < 500 else got[0]))
        return parse_fields(got[1]) if kind in ("HELLO", "STARTED", "GAP", "ENDED", "ERROR", "STDIN_CREDIT") else got[1]

    def start(self, argv, script=None, env=(), **values):
        self.next += 1
        request = dict(id="x%d" % self.next, argv=list(argv), env=["PATH=" + PATH, "LANG=C.UTF-8", *env], cwd="/",
                       timeout_ms=20000, grace_ms=500, output_bytes=8 << 20, sole=1)
        if script is not None:
            request.update(script_name="script", script_bytes=len(script))
        request.update(values)
        self.send("START", fields(**request))
        if script:
            for at in range(0, len(script), PAYLOAD_MAX):
                self.send("SCRIPT", script[at:at + PAYLOAD_MAX])
        return request["id"]

    def finish(self, on_output=None):
        """Reads to the end of the execution. Checks the numbers of the frames on the way."""
        outcome = Outcome()
        while True:
            got = self.receive()
            if got is None:
                raise Gone("the connection ended before the execution did; %d bytes of output" % len(outcome.out))
            kind, payload = got
            if kind in ("STDOUT", "STDERR"):
                number, data = struct.unpack_from("<Q", payload)[0], payload[8:]
                assert number == outcome.number, "numbered %d, wanted %d" % (number, outcome.number)
                assert data, "an empty frame of output"
                outcome.add(kind, data)
                if on_output:
                    on_output(kind, data)
            elif kind == "GAP":
                outcome.take_gap(parse_fields(payload))
            elif kind == "STDIN_CREDIT":
                outcome.credit += parse_fields(payload)["bytes"]
            elif kind == "STARTED":
                assert not outcome.started and not outcome.pieces, "STARTED late"
                outcome.started = True
            elif kind == "ENDED":
                outcome.ended = parse_fields(payload)
                return outcome
            elif kind == "ERROR":
                outcome.error = parse_fields(payload)
                return outcome
            else:
                raise AssertionError("the agent sent " + kind)

    def run(self, argv, **values):
        self.start(argv, **values)
        return self.finish()


class Outcome:
    """All that one execution said. `pieces` keeps the order between the streams."""

    def __init__(self):
        self.pieces, self.number, self.gap, self.credit = [], 0, None, 0
        self.started, self.ended, self.error = False, None, None

    def add(self, kind, data):
        self.pieces.append((kind, data))
        self.number += len(data)

    def take_gap(self, gap):
        assert self.gap is None, "GAP twice"
        self.gap = gap
        self.head_bytes = self.number
        self.pieces.append(("GAP", b""))
        self.number += gap["stdout_bytes"] + gap["stderr_bytes"]

    @property
    def out(self):
        return b"".join(data for kind, data in self.pieces if kind == "STDOUT")

    @property
    def err(self):
        return b"".join(data for kind, data in self.pieces if kind == "STDERR")

    @property
    def merged(self):
        """(stream, byte) of everything in order."""
        return [(kind, byte) for kind, data in self.pieces for byte in data]

    def __getattr__(self, name):
        """A field of ENDED, None when it is absent."""
        if name.startswith("__") or self.__dict__.get("ended") is None:
            raise AttributeError(name)
        return self.ended.get(name)
