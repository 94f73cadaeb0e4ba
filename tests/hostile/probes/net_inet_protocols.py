# MUST HOLD: on inet sockets tcp, udp and icmp are the only protocols: no mptcp, sctp, dccp, udp-lite, l2tp.
import os, sys
NAME = "net_inet_protocols"
def held(): print("HELD " + NAME, flush=True); os._exit(0)
def broken(what): print("BROKEN %s: %s" % (NAME, " ".join(str(what).split())[:300]), flush=True); os._exit(1)
def skip(why): print("SKIP %s: %s" % (NAME, " ".join(str(why).split())[:300]), flush=True); os._exit(77)
import socket
had = []
for name, kind, number in (("mptcp", 1, 262), ("sctp", 1, 132), ("dccp", 6, 33), ("udplite", 2, 136), ("l2tp", 2, 115), ("smc", 1, 256)):
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.socket(family, kind, number)
            had.append(name)
        except OSError:
            pass
broken(" ".join(had)) if had else held()
