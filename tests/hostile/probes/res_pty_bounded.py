# MUST HOLD: pseudo terminals, of which the host has one pool, are bounded below 128 in the sandbox.
import os, sys
NAME = "res_pty_bounded"
def held(): print("HELD " + NAME, flush=True); os._exit(0)
def broken(what): print("BROKEN %s: %s" % (NAME, " ".join(str(what).split())[:300]), flush=True); os._exit(1)
def skip(why): print("SKIP %s: %s" % (NAME, " ".join(str(why).split())[:300]), flush=True); os._exit(77)
import pty
kept = []
try:
    for _ in range(128):
        kept.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError:
    held()
broken("%d pseudo terminals" % len(kept))
