# TRAP: links at every place of a path: absolute, relative upwards, to folders, to /proc, to devices, chains, hard links to one's own.
import os
os.makedirs("deep/er")
for name, target in (("a", "/tmp/hostile-canary/host.txt"), ("b", "../" * 20 + "tmp/hostile-canary/host.txt"), ("deep/c", "/tmp/hostile-canary"),
                     ("d", "/proc/1/root/tmp/hostile-canary/host.txt"), ("e", "/dev/zero"), ("f", "a"), ("deep/er/g", "../../b"),
                     ("h", "/etc/passwd"), ("i", "/"), ("j", ".")):
    os.symlink(target, name)
with open("real.txt", "w") as f:
    f.write("inside\n")
print("SKIP copyout_links: the trap is set")
