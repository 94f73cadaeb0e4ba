#!/usr/bin/python3
"""Many runs at once: each gets its own, none sees another, nothing is left."""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import HutchTest, run  # noqa: E402

OWN = ("import os, sys, socket, time\nme = sys.argv[1]\nopen('me', 'w').write(me)\nopen('/tmp/me', 'w').write(me)\ns = socket.create_server(('127.0.0.1', 18123))\n"
       "a = socket.socket(socket.AF_UNIX); a.bind('\\0one-name')\ntime.sleep(0.5)\nprint(me, open('me').read(), open('/tmp/me').read(), len([p for p in os.listdir('/proc') if p.isdigit()]) < 5)\n")


class Parallel(HutchTest):
    def many(self, count, at_once, one):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(one, range(count)))

    def test_two(self):
        out = self.many(2, 2, lambda i: run("-c", OWN, str(i)))
        self.assertEqual([(r.code, r.stdout, r.stderr) for r in out], [(0, "%d %d %d True\n" % (i, i, i), "") for i in range(2)])

    def test_twenty(self):
        out = self.many(20, 20, lambda i: run("--timeout", "60", "-c", OWN, str(i)))
        self.assertEqual([(r.code, r.stdout, r.stderr) for r in out], [(0, "%d %d %d True\n" % (i, i, i), "") for i in range(20)])

    def test_twenty_with_out(self):
        def one(i):
            out = self.path("out-%d" % i)
            result = run("--timeout", "60", "--out", out, "-c", "import sys; open('r', 'w').write(sys.argv[1] * 1000)", str(i))
            with open(os.path.join(out, "r")) as f:
                return result.code, f.read() == str(i) * 1000
        self.assertEqual(self.many(20, 20, one), [(0, True)] * 20)

    def test_two_hundred_short_ones(self):
        out = self.many(200, 4, lambda i: run("--", "true"))
        self.assertEqual({(r.code, r.out, r.err) for r in out}, {(0, b"", b"")})

    def test_the_hosts_resources_are_as_before(self):
        def counts():
            with open("/proc/sys/fs/file-nr") as f:
                return int(f.read().split()[0])
        run("--", "true")
        before = counts()
        self.many(50, 4, lambda i: run("--", "true"))
        hutch_test.wait_until(lambda: counts() - before < 500, 5, "open files of the host to be as before")


if __name__ == "__main__":
    hutch_test.main()
