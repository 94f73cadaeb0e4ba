# MUST HOLD: no process that is seen shows a cgroup path of the host.
import os, sys
NAME = "info_cgroup_of_others"
def held(): print("HELD " + NAME, flush=True); os._exit(0)
def broken(what): print("BROKEN %s: %s" % (NAME, " ".join(str(what).split())[:300]), flush=True); os._exit(1)
def skip(why): print("SKIP %s: %s" % (NAME, " ".join(str(why).split())[:300]), flush=True); os._exit(77)
shown = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("/proc/%s/cgroup" % pid, "/proc/%s/task/%s/cgroup" % (pid, pid)):
        try:
            paths = [line.split(":", 2)[2].strip() for line in open(name)]
        except OSError:
            continue
        shown += [path for path in paths if path.strip("/.") and path not in ("/../agent",)]
broken(" ".join(sorted(set(shown)))) if shown else held()
