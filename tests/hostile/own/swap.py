# TRAP: regular files and links, folders and links to folders, are swapped without a pause while the run ends and its files are
# collected. Whatever is collected must be the sandbox's own ("inside"), never the host's (token hostile-canary-token).
import ctypes
import os

RENAME_EXCHANGE = 2
AT_FDCWD = -100
libc = ctypes.CDLL(None, use_errno=True)


def exchange(a, b):
    libc.renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE)


for n in range(4):
    with open("f%d.txt" % n, "w") as f:
        f.write("inside\n")
    os.symlink("/tmp/hostile-canary/host.txt", "l%d.txt" % n)
for n in range(2):
    os.mkdir("d%d" % n)
    with open("d%d/host.txt" % n, "w") as f:
        f.write("inside\n")
    os.symlink("/tmp/hostile-canary", "e%d" % n)
os.mkdir("p")
with open("p/environ", "w") as f:
    f.write("inside\n")
os.symlink("/proc/self", "q")
print("swapping", flush=True)
for _ in range(2):
    os.fork()
while True:
    for n in range(4):
        exchange(b"f%d.txt" % n, b"l%d.txt" % n)
    for n in range(2):
        exchange(b"d%d" % n, b"e%d" % n)
    exchange(b"p", b"q")
