#!/usr/bin/python3
"""What surrounds the code, as it sees it: environment, network, descriptors, names. The hostile corpus says the rest."""
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import HutchTest, IS_ROOT, run  # noqa: E402

SECRET = "secret-of-the-host-9d4b"
ALLOWED = {"PATH", "HOME", "LANG", "TMPDIR", "PWD", "USER", "LOGNAME", "SHELL", "TERM", "HOSTNAME", "SHLVL", "_",
           "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONUTF8", "LC_CTYPE"}


class Environment(HutchTest):
    def test_small_and_known(self):
        out = self.py("import os; print(sorted(os.environ.items()))", env={"HUTCH_SECRET": SECRET, "LD_LIBRARY_PATH": "/x", "PYTHONPATH": "/evil"})
        got = dict(eval(out))
        self.assertEqual(set(got) - ALLOWED, set())
        self.assertEqual({k: got.get(k) for k in ("HOME", "LANG", "TMPDIR", "PATH", "PYTHONPATH")},
                         {"HOME": "/home/user", "LANG": "C.UTF-8", "TMPDIR": "/tmp", "PYTHONPATH": "/workspace",
                          "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})

    def test_no_secret_anywhere(self):
        code = ("import glob\nfor p in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n    try:\n"
                "        if b'" + SECRET[:10] + "' b'" + SECRET[10:] + "' in open(p, 'rb').read(): print('found in', p)\n    except OSError: pass\nprint('looked')\n")
        self.assertEqual(self.py(code, env={"HUTCH_SECRET": SECRET}), "looked\n")

    def test_env(self):
        out = self.py("import os; print([os.environ[k] for k in ('A', 'EMPTY', 'EQ', 'UNI', 'NL', 'TWICE')])",
                      "--env", "A=b c", "--env", "EMPTY=", "--env", "EQ=x=y=z", "--env", "UNI=é", "--env", "NL=a\nb", "--env", "TWICE=1", "--env", "TWICE=2")
        self.assertEqual(out, "['b c', '', 'x=y=z', 'é', 'a\\nb', '2']\n")

    def test_env_replaces_a_default_once(self):
        self.assertEqual(self.run_ok("--env", "HOME=/tmp", "--env", "LANG=C", "--", "sh", "-c", "env | grep -c '^HOME='; echo $HOME $LANG").stdout, "1\n/tmp C\n")

    def test_env_does_not_reach_the_helpers(self):
        out = run("--env", "LD_PRELOAD=/workspace/evil.so", "--", "sh", "-c", "cat /proc/1/environ 2>/dev/null | grep -c evil.so; true")
        self.assertEqual(out.stdout.strip(), "0")

    def test_big_env(self):
        value = "v" * 100000
        self.assertEqual(self.py("import os; print(len(os.environ['BIG']))", "--env", "BIG=" + value), "100000\n")


class Surroundings(HutchTest):
    def test_who_and_where(self):
        out = self.py("import os, socket; print(os.getuid(), os.getgid(), os.getcwd(), socket.gethostname(), os.path.expanduser('~'), os.getgroups())")
        uid, gid, cwd, host, home = out.split()[:5]
        self.assertEqual((uid, gid, cwd, host, home), ("1000", "1000", "/workspace", "sandbox", "/home/user"))

    def test_name_of_the_user(self):
        self.assertEqual(self.py("import pwd, grp, os; print(pwd.getpwuid(os.getuid()).pw_dir, grp.getgrgid(os.getgid()).gr_gid)"), "/home/user 1000\n")

    def test_descriptors(self):
        fd = os.open("/etc/passwd", os.O_RDONLY)
        os.set_inheritable(fd, True)
        try:
            self.assertEqual(self.run_ok("--", "ls", "/proc/self/fd", pass_fds=(fd,)).stdout.split()[:3], ["0", "1", "2"])
            self.assertEqual(len(self.run_ok("--", "ls", "/proc/self/fd", pass_fds=(fd,)).stdout.split()), 4)
        finally:
            os.close(fd)

    def test_writable_places(self):
        code = ("import os\nfor p in ('/workspace', '/tmp', '/home/user', '/dev/shm', '/', '/usr', '/etc', '/var', '/usr/bin', '/proc/sys/kernel', '/dev', '/run', '/root', '/home'):\n"
                "    try:\n        open(p + '/w', 'w').close(); print(p)\n    except OSError: pass\n")
        self.assertEqual(self.py(code).split(), ["/workspace", "/tmp", "/home/user", "/dev/shm"])

    def test_programs_can_be_made_and_run(self):
        self.assertEqual(self.run_ok("--", "sh", "-c", "cp /bin/echo mine && ./mine ran && cp mine /tmp/m && /tmp/m too").stdout, "ran\ntoo\n")

    def test_tools_of_everyday(self):
        code = ("import sqlite3, ssl, multiprocessing, tempfile, asyncio, subprocess, threading, zoneinfo, lzma, ctypes\n"
                "c = sqlite3.connect('x.db'); c.execute('create table t(a)'); c.execute('insert into t values(1)'); c.commit()\n"
                "def f(x): return x * x\n"
                "if __name__ == '__main__':\n"
                "    with multiprocessing.Pool(2) as p: print(sum(p.map(f, range(10))))\n"
                "    print(asyncio.run(asyncio.sleep(0, 'async')), len(ssl.create_default_context().get_ca_certs()) >= 0)\n"
                "    print(subprocess.run('echo a | cat; cat <(echo b)', shell=True, executable='/bin/bash', capture_output=True).stdout)\n")
        self.assertEqual(self.py(code), "285\nasync True\nb'a\\nb\\n'\n")

    def test_nothing_is_carried_over(self):
        self.run_ok("-c", "for p in ('/workspace', '/tmp', '/home/user', '/dev/shm'): open(p + '/mark', 'w').write('x')")
        self.assertEqual(self.py("import os; print([p for p in ('/workspace', '/tmp', '/home/user', '/dev/shm') if os.path.exists(p + '/mark')])"), "[]\n")

    def test_the_hosts_processes_are_not_seen(self):
        self.assertLess(int(self.py("import os; print(max(int(p) for p in os.listdir('/proc') if p.isdigit()))")), 64)


class Network(HutchTest):
    def test_loopback_only(self):
        self.assertEqual(self.py("import socket; print([n for _, n in socket.if_nameindex()])"), "['lo']\n")

    def test_no_way_out(self):
        code = ("import socket, time\nt = time.time()\nfor a in ('1.1.1.1', '169.254.169.254', '10.0.0.1'):\n    try:\n        socket.create_connection((a, 80), 3); print('connected', a)\n"
                "    except OSError as e: print(e.errno)\ntry:\n    socket.getaddrinfo('example.com', 80); print('resolved')\nexcept OSError: print('no name')\nprint(time.time() - t < 2)\n")
        self.assertEqual(self.py(code), "101\n101\n101\nno name\nTrue\n")

    def test_own_loopback_works(self):
        code = ("import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname())\nc.send(b'hi')\nprint(s.accept()[0].recv(2), socket.gethostbyname('localhost'))\n")
        self.assertEqual(self.py(code), "b'hi' 127.0.0.1\n")

    def test_the_hosts_loopback_is_another(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.assertEqual(self.py("import socket\ntry:\n    socket.create_connection(('127.0.0.1', %d), 3); print('connected')\nexcept OSError as e: print(e.errno)" % port), "111\n")


class State(HutchTest):
    def waiting(self, *options):
        proc = self.start(*options, "-c", "import sys; print('up', flush=True); sys.stdin.read()", stdin=subprocess.PIPE)
        self.assertEqual(proc.stdout.readline(), b"up\n")
        return proc

    def test_state_dir(self):
        state = self.path("state")
        proc = self.waiting("--state-dir", state)
        self.assertTrue(hutch_test.state_files(state), "no record of the running sandbox in --state-dir")
        self.assertEqual(hutch_test.state_files() - self.host.before["file in the state directory"], set())
        proc.stdin.close()
        self.assertEqual(proc.wait(5 * hutch_test.SLOWNESS), 0)
        hutch_test.wait_until(lambda: not hutch_test.state_files(state), 3, "the record to go")

    def test_environment_variable(self):
        state = self.path("state-by-env")
        self.run_ok("-c", "pass", env={"HUTCH_STATE_DIR": state})
        self.assertTrue(os.path.isdir(state))

    def test_not_for_others(self):
        state = self.path("state")
        self.run_ok("--state-dir", state, "-c", "pass")
        self.assertEqual(os.stat(state).st_mode & 0o077, 0)

    def test_a_state_dir_that_cannot_be(self):
        result = run("--state-dir", self.path("file", "x"), "-c", "print('ran')")
        self.assertEqual((result.code, result.out), (125, b""), "\n%s" % result)
        self.assertIn(self.path("file"), result.stderr)

    def test_other_records_are_left_alone_while_their_run_lives(self):
        one = self.waiting()
        for _ in range(3):
            self.assertEqual(self.py("print('other')"), "other\n")
        self.assertIsNone(one.poll())
        out, _ = one.communicate(b"", timeout=5 * hutch_test.SLOWNESS)
        self.assertEqual(one.returncode, 0)

    def test_a_home_that_does_not_exist_yet(self):
        if IS_ROOT:
            self.cannot_exist("root keeps its state in /var/lib")
        self.run_ok("-c", "pass", env={"XDG_STATE_HOME": self.path("not/there")})


if __name__ == "__main__":
    hutch_test.main()
