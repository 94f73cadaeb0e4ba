# MUST HOLD: the host-wide counter of asynchronous io (fs.aio-max-nr) can not be used up.
import os, sys
NAME = "res_aio_bounded"
def held(): print("HELD " + NAME, flush=True); os._exit(0)
def broken(what): print("BROKEN %s: %s" % (NAME, " ".join(str(what).split())[:300]), flush=True); os._exit(1)
def skip(why): print("SKIP %s: %s" % (NAME, " ".join(str(why).split())[:300]), flush=True); os._exit(77)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
IO_SETUP = {"x86_64": 206, "aarch64": 0}.get(os.uname().machine)
if IO_SETUP is None:
    skip("the number of io_setup on this machine is not known here")
context = ctypes.c_ulong(0)
if libc.syscall(IO_SETUP, 64, ctypes.byref(context)) == 0:
    broken("io_setup succeeds")
held()
