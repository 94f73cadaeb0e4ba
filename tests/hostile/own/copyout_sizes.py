# TRAP: sparse and growing files near the bound: too large is left out, what fits is whole.
import os
for name, size in (("too-large.bin", 51 << 20), ("fits.bin", 20 << 20)):
    with open(name, "wb") as f:
        f.write(b"start")
        f.truncate(size)
if os.fork() == 0:
    with open("grows.txt", "wb", 0) as f:
        while True:
            f.write(b"inside\n" * 100)
print("SKIP copyout_sizes: the trap is set")
