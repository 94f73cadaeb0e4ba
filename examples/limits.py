#!/usr/bin/env python3
# Runs into one limit after the other; only the last one ends it. Run it with
#   hutch run --timeout 3 --disk 16M --pids 32 examples/limits.py; echo "exit code $?"
import errno
import os
import time


def fill_disk():
    written = 0
    try:
        with open("big.bin", "wb", buffering=0) as file:
            while written < 1 << 30:
                written += file.write(b"\0" * (1 << 20))
    except OSError as error:
        return f"{errno.errorcode[error.errno]} after {written >> 20} MiB"
    finally:
        os.unlink("big.bin")
    return "no limit in the first GiB"


def start_processes():
    children = []
    try:
        for _ in range(1000):
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            children.append(pid)
    except OSError as error:
        return f"{errno.errorcode[error.errno]} after {len(children)} processes"
    finally:
        for pid in children:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return "no limit in the first 1000"


def open_files():
    held = []
    try:
        while len(held) < 100_000:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        return f"{errno.errorcode[error.errno]} after {len(held)} files"
    finally:
        for fd in held:
            os.close(fd)
    return "no limit in the first 100,000"


print("disk:     ", fill_disk())
print("processes:", start_processes())
print("files:    ", open_files())
print("time:      waiting for the end ...", flush=True)
while True:
    time.sleep(1)
