#!/usr/bin/env python3
"""Checks that the guest is what the suite takes it for. Runs in the guest, as one of its users, whose
word is the argument (root, delegated, plain). Also a list of what the kernel allows to whom on pure
v2 as systemd sets it up, that is with `nsdelegate`: the launcher and the agent lean on these.
"""

import ctypes
import errno
import os
import signal
import struct
import subprocess
import sys

CG = "/sys/fs/cgroup"
USER = f"{CG}/user.slice/user-1001.slice/user@1001.service"
PLAIN = f"{CG}/user.slice/user-1002.slice/user@1002.service"

libc = ctypes.CDLL(None, use_errno=True)
SYS_CLONE3, SYS_OPEN_TREE, SYS_MOUNT_SETATTR = 435, 428, 442
CLONE_INTO_CGROUP, CLONE_NEWUSER, CLONE_NEWCGROUP = 0x200000000, 0x10000000, 0x02000000
AT_FDCWD, AT_EMPTY_PATH, OPEN_TREE_CLONE, MOUNT_ATTR_IDMAP = -100, 0x1000, 1, 0x100000


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def error_of(function, *args):
    """The name of the errno with which function fails, or None when it does not."""
    try:
        function(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def syscall(*args):
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def own_cgroup():
    return read("/proc/self/cgroup")


def born_in(folder, child, flags=0):
    """Clones into the cgroup; the child's return value is its exit status."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    args = struct.pack("11Q", flags | CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, fd)
    try:
        pid = syscall(SYS_CLONE3, ctypes.c_char_p(args), len(args))
        if pid == 0:
            status = 99
            try:
                status = child()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(fd)


def in_child(function):
    """Runs function in a forked child; its return value (< 99) comes back."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = function()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def errno_of(function, *args):
    try:
        function(*args)
    except OSError as e:
        return e.errno
    return 0


def run(*argv, **kwargs):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)


# ---- for everybody

def check_only_v2():
    assert own_cgroup().count("\n") == 1, own_cgroup()
    line = next(l for l in read("/proc/mounts").splitlines() if l.split()[1] == CG)
    assert line.split()[2] == "cgroup2" and "nsdelegate" in line, line
    controllers = read(f"{CG}/cgroup.subtree_control").split()
    assert {"cpu", "memory", "pids", "io"} <= set(controllers), controllers


def check_user_namespace():
    for argv in (["unshare", "-Ur", "true"],
                 ["unshare", "-Urpfm", "--mount-proc", "true"],
                 ["unshare", "-Urmn", "mount", "-t", "tmpfs", "none", "/mnt"],
                 ["unshare", "-UrmnipuC", "-f", "true"]):
        done = run(*argv)
        assert done.returncode == 0, (argv, done.stdout)


def check_streams_can_be_opened_again():
    for name in ("/dev/stdout", "/dev/stderr"):
        with open(name, "w", encoding="utf-8"):
            pass


def check_owners():
    assert os.stat("/usr").st_uid == 0 and os.stat("/etc/passwd").st_uid == 0


def check_swap():
    assert len(read("/proc/swaps").splitlines()) == 2


# ---- as root

def root_loop_image():
    image, folder = "/var/lib/self-test.img", "/var/lib/self-test"
    os.makedirs(folder, exist_ok=True)
    with open(image, "wb") as f:
        f.truncate(16 << 20)
    for argv in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, folder]):
        done = run(*argv)
        assert done.returncode == 0, (argv, done.stdout)
    with open(f"{folder}/file", "w", encoding="utf-8"):
        pass
    # Idmapped: what uid 0 owns on the disk belongs to 1879048192 through the mount.
    holder = subprocess.Popen(["unshare", "-U", "sleep", "1000"])
    try:
        while os.readlink(f"/proc/{holder.pid}/ns/user") == os.readlink("/proc/self/ns/user"):
            pass
        for name in ("uid_map", "gid_map"):
            write(f"/proc/{holder.pid}/{name}", "0 1879048192 65536")
        users = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY)
        tree = syscall(SYS_OPEN_TREE, AT_FDCWD, ctypes.c_char_p(folder.encode()), OPEN_TREE_CLONE)
        attributes = struct.pack("4Q", MOUNT_ATTR_IDMAP, 0, 0, users)
        syscall(SYS_MOUNT_SETATTR, tree, ctypes.c_char_p(b""), AT_EMPTY_PATH,
                ctypes.c_char_p(attributes), len(attributes))
        assert os.stat("file", dir_fd=tree).st_uid == 1879048192
        os.close(tree)
    finally:
        holder.kill()
        holder.wait()
    done = run("umount", folder)
    assert done.returncode == 0, done.stdout
    os.unlink(image)
    assert "/dev/loop" not in run("losetup", "-a").stdout


def root_tmpfile():
    os.close(os.open("/var/lib", os.O_TMPFILE | os.O_RDWR))


def root_clone_into_cgroup():
    """Born inside with a user namespace of its own; a cgroup namespace made after shows `/`."""
    folder = f"{CG}/self-test"
    os.mkdir(folder)

    def child():
        ok = own_cgroup() == "0::/self-test\n"
        syscall(272, CLONE_NEWCGROUP)
        return 0 if ok and own_cgroup() == "0::/\n" else 1
    status = born_in(folder, child, CLONE_NEWUSER)
    os.rmdir(folder)
    assert status == 0, status


def root_agent_clones_into_code():
    """The agent's way: it sits in S/agent with a user namespace of its own and holds a descriptor of
    S/code. Which files must be its own, and what a cgroup namespace of its own would spoil."""
    top = f"{CG}/self-test"
    for folder in (top, f"{top}/agent", f"{top}/code"):
        os.mkdir(folder)
    write(f"{top}/cgroup.subtree_control", "+memory +pids +cpu")

    def agent(own, unshare=False):
        """uid 0 of a namespace is played by uid 1001: what counts is who owns the files."""
        def body():
            os.setgid(1001)
            os.setuid(1001)
            if unshare:
                syscall(272, CLONE_NEWUSER | CLONE_NEWCGROUP)
            return errno_of(born_in, f"{top}/code", lambda: 0)
        for name in ("cgroup.procs", "code/cgroup.procs"):
            os.chown(f"{top}/{name}", *(2 * [1001 if name in own else 0]))
        return born_in(f"{top}/agent", body)

    both = ("cgroup.procs", "code/cgroup.procs")
    results = {"nothing owned": agent(()), "only S/code": agent(both[1:]), "only S": agent(both[:1]),
               "both": agent(both), "both, cgroup namespace made in S/agent": agent(both, True)}
    for folder in (f"{top}/code", f"{top}/agent", top):
        os.rmdir(folder)
    expected = {"nothing owned": errno.EACCES, "only S/code": errno.EACCES, "only S": errno.EACCES,
                "both": 0, "both, cgroup namespace made in S/agent": errno.ENOENT}
    assert results == expected, results


def root_other_owner():
    """Root takes the effective uid that is to own the user namespace. Being born in a cgroup is then
    asked of that uid, and refused, for the common ancestor is root's, until the capabilities that went
    with the uid are raised again (permitted ones stay)."""
    top = f"{CG}/self-test"
    os.mkdir(top)
    zygote = 1879048192
    all_capabilities = (1 << (int(read("/proc/sys/kernel/cap_last_cap")) + 1)) - 1

    def clone(raise_again):
        os.setresuid(-1, zygote, -1)
        if raise_again:
            low, high = all_capabilities & 0xffffffff, all_capabilities >> 32
            header = struct.pack("II", 0x20080522, 0)
            data = struct.pack("6I", low, low, 0, high, high, 0)
            syscall(126, ctypes.c_char_p(header), ctypes.c_char_p(data))
        return errno_of(born_in, top, lambda: 0, CLONE_NEWUSER)
    refused, allowed = in_child(lambda: clone(False)), in_child(lambda: clone(True))
    os.rmdir(top)
    assert (refused, allowed) == (errno.EACCES, 0), (refused, allowed)


def root_init_in_the_eyes_of_code():
    """What code born in S/code, with a cgroup namespace of its own, sees of process 1 in S/agent."""
    top = f"{CG}/self-test"
    for folder in (top, f"{top}/agent", f"{top}/code"):
        os.mkdir(folder)

    def agent():
        def code():
            syscall(272, CLONE_NEWCGROUP)
            return 0 if read(f"/proc/{os.getppid()}/cgroup") == "0::/../agent\n" else 1
        return born_in(f"{top}/code", code)
    status = born_in(f"{top}/agent", agent)
    for folder in (f"{top}/code", f"{top}/agent", top):
        os.rmdir(folder)
    assert status == 0, status


def root_refused_forks_are_counted():
    """pids.events tells of a refused fork, also of one by CLONE_INTO_CGROUP. Where a group below the
    limit has the controller too, it is told there until 6.11, and in the limit's group since."""
    top = f"{CG}/self-test"
    for folder in (top, f"{top}/below"):
        os.mkdir(folder)
    write(f"{top}/cgroup.subtree_control", "+pids")
    write(f"{top}/pids.max", "1")

    def forks():
        return errno_of(lambda: in_child(lambda: 0))
    status = born_in(f"{top}/below", forks)
    events = [read(f"{top}{name}/pids.events").split() for name in ("", "/below")]
    os.rmdir(f"{top}/below")
    write(f"{top}/cgroup.subtree_control", "-pids")
    write(f"{top}/pids.max", "0")
    born = error_of(born_in, top, lambda: 0)
    after = read(f"{top}/pids.events").split()
    os.rmdir(top)
    assert status == errno.EAGAIN and born == "EAGAIN", (status, born)
    assert events in ([["max", "0"], ["max", "1"]], [["max", "1"], ["max", "0"]]), events
    assert after == ["max", "1"], after


def root_busy_rules():
    """Controllers for children and processes of its own exclude each other."""
    top = f"{CG}/self-test"
    os.mkdir(top)
    os.mkdir(f"{top}/child")
    busy = born_in(top, lambda: errno_of(write, f"{top}/cgroup.subtree_control", "+memory"))
    write(f"{top}/cgroup.subtree_control", "+memory")
    into = errno_of(born_in, top, lambda: 0)
    removed = error_of(os.rmdir, top)
    os.rmdir(f"{top}/child")
    os.rmdir(top)
    assert (busy, into, removed) == (errno.EBUSY, errno.EBUSY, "EBUSY"), (busy, into, removed)


# ---- as a user with a delegated subtree

def delegated_place():
    assert own_cgroup() == "0::" + f"{USER}/app.slice/run-1.scope\n"[len(CG):], own_cgroup()
    assert os.stat(f"{USER}/app.slice/memory.max").st_uid == os.getuid()
    assert os.stat(f"{USER}/memory.max").st_uid == 0
    assert set(read(f"{USER}/cgroup.controllers").split()) == {"cpu", "memory", "pids"}


def delegated_sibling():
    """Beside the own scope: made, limited, entered by birth and by moving, removed. But `cpu` is not on
    there as the manager leaves it."""
    top = f"{USER}/app.slice/self-test"
    os.mkdir(top)
    assert set(read(f"{top}/cgroup.controllers").split()) == {"memory", "pids"}
    for name, value in (("memory.max", "64M"), ("memory.swap.max", "0"), ("pids.max", "20")):
        write(f"{top}/{name}", value)
    assert born_in(top, lambda: 0, CLONE_NEWUSER) == 0
    assert in_child(lambda: errno_of(write, f"{top}/cgroup.procs", "0")) == 0
    assert in_child(lambda: errno_of(write, f"{top}/cgroup.kill", "1")) == 0
    os.rmdir(top)


def delegated_top():
    """Right below the delegated directory, where `cpu` can be turned on with everybody running."""
    top = f"{USER}/self-test"
    assert error_of(write, f"{USER}/app.slice/cgroup.subtree_control", "+cpu") == "ENOENT"
    write(f"{USER}/cgroup.subtree_control", "+cpu")
    for folder in (top, f"{top}/code"):
        os.mkdir(folder)
    write(f"{top}/cgroup.subtree_control", "+cpu +memory +pids")
    write(f"{top}/code/cpu.max", "50000 100000")
    assert born_in(f"{top}/code", lambda: 0, CLONE_NEWUSER) == 0
    # Somebody who uses it below keeps others from turning it off above.
    assert error_of(write, f"{USER}/cgroup.subtree_control", "-cpu") == "EBUSY"
    for folder in (f"{top}/code", top):
        os.rmdir(folder)
    write(f"{USER}/cgroup.subtree_control", "-cpu")


def delegated_below_itself():
    """Below the own scope, with the caller in it: entered, but without controllers."""
    scope = f"{USER}/app.slice/run-1.scope"
    assert error_of(write, f"{scope}/cgroup.subtree_control", "+memory") == "EBUSY"
    os.mkdir(f"{scope}/self-test")
    assert not os.path.exists(f"{scope}/self-test/memory.max")
    assert born_in(f"{scope}/self-test", lambda: 0) == 0
    os.rmdir(f"{scope}/self-test")


def delegated_alone_below_itself():
    """The last process of a scope can move into a child and then turn controllers on; this is what
    `systemd-run --user --scope -p Delegate=yes` makes for a single command."""
    scope = f"{USER}/app.slice/self-test.scope"
    os.mkdir(scope)

    def child():
        os.mkdir(f"{scope}/leaf")
        write(f"{scope}/leaf/cgroup.procs", "0")
        write(f"{scope}/cgroup.subtree_control", "+memory +pids")
        return 0 if os.path.exists(f"{scope}/leaf/memory.max") else 1
    assert born_in(scope, child) == 0
    os.rmdir(f"{scope}/leaf")
    os.rmdir(scope)


def delegated_bounds():
    assert error_of(os.mkdir, f"{CG}/self-test") == "EACCES"
    assert error_of(os.mkdir, f"{CG}/user.slice/user-1001.slice/self-test") == "EACCES"
    assert error_of(write, f"{USER}/memory.max", "64M") == "EACCES"
    assert error_of(write, f"{PLAIN}/app.slice/cgroup.procs", "0") == "EACCES"


def delegated_own_namespace():
    """With a cgroup namespace whose root is one's own leaf, the leaf's limits cannot be written and
    other cgroups cannot be entered, although the files are the user's own."""
    top = f"{USER}/app.slice/self-test"
    os.mkdir(top)
    os.mkdir(f"{USER}/app.slice/self-test-2")

    def child():
        syscall(272, CLONE_NEWUSER | CLONE_NEWCGROUP)
        limit = errno_of(write, f"{top}/memory.max", "64M")
        other = errno_of(born_in, f"{USER}/app.slice/self-test-2", lambda: 0)
        return 0 if (limit, other) == (errno.EPERM, errno.ENOENT) else 1
    assert born_in(top, child) == 0
    os.rmdir(f"{USER}/app.slice/self-test-2")
    os.rmdir(top)


# ---- as a user in a session, with a delegated tree nearby

def plain_place():
    assert own_cgroup() == "0::/user.slice/user-1002.slice/session-2.scope\n", own_cgroup()


def plain_bounds():
    """The own cgroup is root's. The delegated one can be changed, but not entered: the common
    ancestor is root's."""
    assert error_of(os.mkdir, CG + own_cgroup().strip()[3:] + "/self-test") == "EACCES"
    top = f"{PLAIN}/app.slice/self-test"
    os.mkdir(top)
    write(f"{top}/memory.max", "64M")
    assert error_of(write, f"{top}/cgroup.procs", "0") == "EACCES"
    assert error_of(born_in, top, lambda: 0) == "EACCES"
    os.rmdir(top)


def main():
    who = sys.argv[1]
    passed = failed = 0
    for name, check in list(globals().items()):
        if not name.startswith(("check_", who + "_")):
            continue
        try:
            check()
            passed += 1
        except Exception as e:  # a check that cannot run has failed
            failed += 1
            print(f"FAILED {who}: {name}: {type(e).__name__}: {e}", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
