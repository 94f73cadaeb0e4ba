# MUST HOLD: netlink sockets, whose buffers are charged to nobody, are bounded below 512 in the sandbox.
import os, sys
NAME = "res_netlink_bounded"
def held(): print("HELD " + NAME, flush=True); os._exit(0)
def broken(what): print("BROKEN %s: %s" % (NAME, " ".join(str(what).split())[:300]), flush=True); os._exit(1)
def skip(why): print("SKIP %s: %s" % (NAME, " ".join(str(why).split())[:300]), flush=True); os._exit(77)
import socket
kept = []
try:
    for _ in range(512):
        kept.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
except OSError as e:
    held() if kept or e.errno in (1, 38, 97) else broken("refused, but not for their number: %r" % e)
broken("%d netlink sockets" % len(kept))
