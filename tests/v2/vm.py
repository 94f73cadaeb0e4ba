"""Boots the guest and runs jobs in it. A guest lives for one call of run().

Host side of the protocol that guest-jobs.sh describes: three virtio-serial ports, each one end of a
socketpair. The guest's kernel log goes to a file, and is shown only when the guest itself fails.
"""

import ctypes
import os
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
USERS = ("root", "delegated", "plain")
SCRATCH_BYTES = 3 << 30     # sparse
SWAP_BYTES = 256 << 20      # exists so that "no swap" is a statement
QEMU = "qemu-system-x86_64"
BUSYBOX = ("/bin/busybox", "/usr/bin/busybox")


class GuestError(Exception):
    """The guest did not do what was asked; the text says what it did."""


class Job:
    """One command in the guest. `who` is one of USERS."""

    def __init__(self, argv, who="root", env=None):
        if who not in USERS:
            raise ValueError(f"no user {who}")
        self.argv, self.who, self.env = argv, who, env or {}

    def script(self):
        # Everything on the way execs, so that the command is alone in its cgroup.
        words = ["/usr/bin/env"] + [f"{name}={value}" for name, value in self.env.items()]
        return "exec " + " ".join(shlex.quote(w) for w in words + self.argv) + "\n"


class Cpio:
    """Writes an initramfs ("newc", Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self):
        self.parts, self.inode = [], 0

    def add(self, name, data=b"", mode=0o100644):
        self.inode += 1
        path = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self.parts += [self._padded(header + path), self._padded(data)]

    def add_dir(self, name):
        self.add(name, mode=0o040755)

    def bytes(self):
        self.add("TRAILER!!!", mode=0)
        return b"".join(self.parts)

    @staticmethod
    def _padded(data):
        return data + b"\0" * (-len(data) % 4)


def _read(path):
    with open(path, "rb") as f:
        return f.read()


def _initramfs(kernel, jobs, binds):
    busybox = next((path for path in BUSYBOX if os.path.exists(path)), None)
    if busybox is None:
        raise GuestError("busybox is not installed; install the package busybox-static")
    image = Cpio()
    for folder in ("bin", "modules", "jobs"):
        image.add_dir(folder)
    image.add("bin/busybox", _read(busybox), 0o100755)
    image.add("init", _read(os.path.join(HERE, "guest-init.sh")), 0o100755)
    image.add("guest-jobs.sh", _read(os.path.join(HERE, "guest-jobs.sh")))
    names = []
    for module in kernel.modules:
        names.append(os.path.basename(module))
        image.add("modules/" + names[-1], _read(module))
    image.add("order", "".join(name + "\n" for name in names).encode())
    image.add("jobs/binds", "".join(
        f"mkdir -p {shlex.quote(to)}; mount --bind {shlex.quote(of)} {shlex.quote(to)}\n"
        for of, to in binds).encode())
    for number, job in enumerate(jobs):
        image.add(f"jobs/{number}", job.script().encode())
        image.add(f"jobs/{number}.who", job.who.encode())
    return image.bytes()


def _sparse(path, size):
    with open(path, "wb") as f:
        f.truncate(size)


def _command(kernel, work, ports):
    append = ("console=ttyS0 quiet loglevel=3 panic=-1 nokaslr mitigations=off "
              "random.trust_cpu=on cgroup_no_v1=all")
    argv = [QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2G",
            "-kernel", kernel.image, "-initrd", f"{work}/initramfs", "-append", append,
            "-serial", f"file:{work}/console",
            "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=root,mount_tag=hostroot",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
    for disk in ("scratch", "swap"):
        argv += ["-drive", f"file={work}/{disk},if=virtio,format=raw,cache=unsafe,discard=unmap"]
    for name, sock in ports.items():
        argv += ["-chardev", f"socket,id={name},fd={sock.fileno()}",
                 "-device", f"virtserialport,chardev={name},name={name}"]
    return argv


PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def _die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Result:
    """statuses: one exit status per job. stdout: all that the jobs wrote there, as bytes."""

    def __init__(self):
        self.statuses, self.stdout, self.boot_s, self.seconds = [], bytearray(), None, None


def _follow(process, ports, deadline, result, verbose):
    """Relays until the guest says `done`. Raises GuestError when it will not."""
    sinks = {"out": sys.stdout.buffer, "err": sys.stderr.buffer}
    control, done, started = b"", False, time.monotonic()
    with selectors.DefaultSelector() as selector:
        for name, sock in ports.items():
            selector.register(sock, selectors.EVENT_READ, name)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0 and not done:
                raise GuestError("the guest took too long")
            for key, _ in selector.select(max(left, 0) if not done else None):
                data = key.fileobj.recv(1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.data == "ctl":
                    control += data
                    *lines, control = control.split(b"\n")
                    for line in lines:
                        word, *rest = line.decode().split()
                        if word == "ready":
                            result.boot_s = time.monotonic() - started
                        elif word == "end":
                            result.statuses.append(int(rest[1]))
                        elif word == "done":
                            # All was written before; ending the machine ends the streams.
                            done = True
                            process.terminate()
                        if verbose:
                            print(f"guest: {line.decode()}", file=sys.stderr, flush=True)
                else:
                    if key.data == "out":
                        result.stdout += data
                    sinks[key.data].write(data)
                    sinks[key.data].flush()
    if not done:
        raise GuestError("the guest ended by itself")
    result.seconds = time.monotonic() - started


def run(kernel, jobs, binds=(), timeout_s=900, verbose=False, work_parent=None):
    """Boots, runs the jobs one after the other, ends. Their output is relayed as it comes.

    binds: pairs of a folder of the host and where the guest shows it. timeout_s bounds the whole.
    """
    if shutil.which(QEMU) is None:
        raise GuestError(f"{QEMU} is not installed; install the package qemu-system-x86")
    with tempfile.TemporaryDirectory(prefix="hutch-v2-", dir=work_parent) as work:
        with open(f"{work}/initramfs", "wb") as f:
            f.write(_initramfs(kernel, jobs, binds))
        _sparse(f"{work}/swap", SWAP_BYTES)
        _sparse(f"{work}/scratch", SCRATCH_BYTES)
        subprocess.run(["/sbin/mkfs.ext4", "-q", "-O", "^has_journal", f"{work}/scratch"], check=True)

        ours, theirs = {}, {}
        for name in ("ctl", "out", "err"):
            ours[name], theirs[name] = socket.socketpair()
        result, deadline = Result(), time.monotonic() + timeout_s
        with open(f"{work}/qemu", "wb") as log:
            process = subprocess.Popen(_command(kernel, work, theirs), stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, preexec_fn=_die_with_parent,
                                       pass_fds=[s.fileno() for s in theirs.values()])
        for sock in theirs.values():
            sock.close()
        try:
            _follow(process, ours, deadline, result, verbose)
        except GuestError as e:
            tail = (_read(f"{work}/qemu") + _read(f"{work}/console"))[-4000:]
            raise GuestError(f"{e}. The end of its log:\n{tail.decode(errors='replace')}") from None
        finally:
            process.kill()
            process.wait()
            for sock in ours.values():
                sock.close()
        return result
