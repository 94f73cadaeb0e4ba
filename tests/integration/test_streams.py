#!/usr/bin/python3
"""Standard input, output and error: live, exact, bounded."""
import hashlib
import os
import random
import re
import select
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hutch_test  # noqa: E402
from hutch_test import Gone, HutchTest, run, wait_until  # noqa: E402

K = 1024


def read_until(pipe, wanted, seconds=10):
    """Bytes from a pipe until `wanted` is among them; raises Gone in the end."""
    got, deadline = b"", time.monotonic() + seconds * hutch_test.SLOWNESS
    while wanted not in got:
        ready, _, _ = select.select([pipe], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise Gone("waited %d s for %r, got %r" % (seconds, wanted, got[-200:]))
        piece = os.read(pipe.fileno(), 65536)
        if not piece:
            raise Gone("the stream ended before %r, got %r" % (wanted, got[-200:]))
        got += piece
    return got


def pattern(size):
    """Bytes whose every piece says where it is: numbered lines of 16 bytes."""
    return b"".join(b"%015d\n" % i for i in range(size // 16 + 1))[:size]




def kept(text):
    """The text of --json without the one note in it that says how many bytes were dropped between head and tail."""
    return re.sub(r"\n… \d+ bytes dropped …\n", "", text, count=1)


PATTERN = "import sys\nb = b''.join(b'%%015d\\n' %% i for i in range(%d // 16 + 1))[:%d]\nsys.%s.buffer.write(b)\nsys.%s.flush()\n"


class Input(HutchTest):
    def test_ping_pong_before_the_end_of_input(self):
        proc = self.start("-c", "import sys\nfor line in sys.stdin:\n    print('got', line.strip()[::-1], flush=True)\nprint('end')\n",
                          stdin=subprocess.PIPE)
        for word in (b"hello", b"again", b"x" * 5000):
            proc.stdin.write(word + b"\n")
            proc.stdin.flush()
            self.assertEqual(read_until(proc.stdout, b"\n"), b"got " + word[::-1] + b"\n")
        proc.stdin.close()
        self.assertEqual(read_until(proc.stdout, b"\n"), b"end\n")
        self.assertEqual(proc.wait(10 * hutch_test.SLOWNESS), 0)

    def test_both_ways_at_once(self):
        proc = self.start("--max-output", "64M", "--", "cat", stdin=subprocess.PIPE)
        data = random.Random(3).randbytes(6 * K * K)
        out, err = proc.communicate(data, timeout=60 * hutch_test.SLOWNESS)
        self.assertEqual((proc.returncode, err), (0, b""))
        self.assertEqual(hashlib.sha256(out).hexdigest(), hashlib.sha256(data).hexdigest())

    def test_five_megabytes(self):
        data = random.Random(5).randbytes(5 * K * K)
        out = self.py("import sys, hashlib\nd = sys.stdin.buffer.read()\nprint(len(d), hashlib.sha256(d).hexdigest())\n", stdin=data)
        self.assertEqual(out, "%d %s\n" % (len(data), hashlib.sha256(data).hexdigest()))

    def test_slow_reader_gets_all(self):
        data = pattern(3 * K * K)
        code = ("import sys, time, hashlib\nh = hashlib.sha256()\nn = 0\nwhile True:\n    d = sys.stdin.buffer.read(65536)\n"
                "    if not d: break\n    h.update(d); n += len(d); time.sleep(0.01)\nprint(n, h.hexdigest())\n")
        self.assertEqual(self.py(code, stdin=data), "%d %s\n" % (len(data), hashlib.sha256(data).hexdigest()))

    def test_no_final_newline_is_added(self):
        self.assertEqual(self.py("import sys; print(repr(sys.stdin.read()))", stdin=b"7\n5"), "'7\\n5'\n")

    def test_no_input_is_end_of_file_at_once(self):
        result = run("-c", "input('name? ')")
        self.assertEqual(result.code, 1)
        self.assertIn("EOFError", result.stderr)
        self.returned_within(result, 4)

    def test_a_program_that_does_not_read_its_input_ends(self):
        result = self.run_ok("-c", "print('done')", stdin=pattern(4 * K * K))
        self.assertEqual(result.stdout, "done\n")
        self.returned_within(result, 5)

    def test_an_open_input_that_nobody_writes_does_not_hold_the_end(self):
        proc = self.start("-c", "print('done')", stdin=subprocess.PIPE)
        self.assertEqual(read_until(proc.stdout, b"\n"), b"done\n")
        self.assertEqual(proc.wait(5 * hutch_test.SLOWNESS), 0)

    def test_input_that_the_program_closed(self):
        result = self.run_ok("-c", "import os, sys, time\nos.close(0)\nprint('closed', flush=True)\n", stdin=pattern(2 * K * K))
        self.assertEqual(result.stdout, "closed\n")

    def test_dash_leaves_the_program_without_input(self):
        self.assertEqual(self.run_ok("-", stdin=b"import sys\nprint(repr(sys.stdin.read()))\n").stdout, "''\n")

    def test_input_is_no_terminal(self):
        self.assertEqual(self.py("import os; print([os.isatty(n) for n in range(3)])"), "[False, False, False]\n")


class Output(HutchTest):
    def test_binary_byte_for_byte(self):
        data = random.Random(7).randbytes(3 * K * K)
        result = self.run_ok("-c", "import random, sys; sys.stdout.buffer.write(random.Random(7).randbytes(%d))" % len(data))
        self.assertEqual((len(result.out), hashlib.sha256(result.out).hexdigest()),
                         (len(data), hashlib.sha256(data).hexdigest()))

    def test_every_byte_value_on_both_streams(self):
        result = self.run_ok("-c", "import sys; b = bytes(range(256)); sys.stdout.buffer.write(b); sys.stderr.buffer.write(b[::-1])")
        self.assertEqual((result.out, result.err), (bytes(range(256)), bytes(range(256))[::-1]))

    def test_streams_stay_apart(self):
        result = run("--language", "bash", "-c", "echo to-out; echo to-err >&2; exit 4")
        self.assertEqual((result.code, result.stdout, result.stderr), (4, "to-out\n", "to-err\n"))

    def test_live(self):
        proc = self.start("-c", "import sys\nprint('first', flush=True)\nprint('warn', file=sys.stderr, flush=True)\nsys.stdin.read()\nprint('last')\n",
                          stdin=subprocess.PIPE)
        self.assertEqual(read_until(proc.stdout, b"\n"), b"first\n")
        self.assertEqual(read_until(proc.stderr, b"\n"), b"warn\n")
        self.assertIsNone(proc.poll())
        proc.stdin.close()
        self.assertEqual(read_until(proc.stdout, b"\n"), b"last\n")

    def test_live_without_a_newline_and_without_a_flush(self):
        proc = self.start("-c", "import sys\nsys.stdout.write('name? ')\nsys.stdin.read()\n", stdin=subprocess.PIPE)
        self.assertEqual(read_until(proc.stdout, b"? "), b"name? ")
        proc.stdin.close()

    def test_what_was_written_before_the_end_is_never_lost(self):
        for i in range(20):
            self.assertEqual(len(self.run_ok("-c", "import os\nos.write(1, b'x' * 65000)\nos._exit(0)\n").out), 65000)

    def test_a_reader_that_went_away_ends_the_run(self):
        proc = self.start("--timeout", "30", "-c", "while True: print('flood line')")
        read_until(proc.stdout, b"flood")
        proc.stdout.close()
        begun = time.monotonic()
        proc.wait(5 * hutch_test.SLOWNESS)
        self.assertLess(time.monotonic() - begun, 5 * hutch_test.SLOWNESS)

    def test_closed_streams_of_the_caller(self):
        for close in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            with self.subTest(close=close):
                done = subprocess.run(["bash", "-c", '"$1" run -c "import sys; sys.exit(3)" ' + close, "bash", hutch_test.HUTCH],
                                      stdin=subprocess.DEVNULL, capture_output=True, timeout=20 * hutch_test.SLOWNESS)
                self.assertEqual(done.returncode, 3, done)


class Bounds(HutchTest):
    """Half of the cap from the head, half from the tail; sixteen times the cap kills."""

    def test_head_and_tail_exactly(self):
        size, cap = 1000000, 64 * K
        result = self.run_ok("--max-output", "64K", "-c", PATTERN % (size, size, "stdout", "stdout"))
        data = pattern(size)
        self.assertEqual(len(result.out), cap)
        self.assertEqual(result.out[:cap // 2], data[:cap // 2])
        self.assertEqual(result.out[cap // 2:], data[-cap // 2:])
        said = " ".join(result.own_lines)
        self.assertIn(str(size - cap), re.sub(r"(?<=\d)[ ,_](?=\d)", "", said), "\n%s" % result)

    def test_head_and_tail_of_standard_error(self):
        size, cap = 500000, 64 * K
        result = self.run_ok("--max-output", "64K", "-c", PATTERN % (size, size, "stderr", "stderr"))
        data = pattern(size)
        self.assertEqual(result.out, b"")
        self.assertTrue(result.err.startswith(data[:cap // 2]))
        self.assertIn(data[-cap // 2:], result.err)
        self.assertIn(str(size - cap), " ".join(result.own_lines) + result.stderr.split("hutch: ", 1)[-1])

    def test_the_cap_is_over_both_streams(self):
        half = "import sys\nfor i in range(4000):\n    sys.stdout.write('o' * 100); sys.stdout.flush(); sys.stderr.write('e' * 100); sys.stderr.flush()\n"
        got = self.run_ok("--json", "--max-output", "64K", "-c", half).json
        size = len(kept(got["stdout"])) + len(kept(got["stderr"]))
        self.assertTrue(63 * K <= size <= 64 * K, size)
        self.assertEqual(got["truncated"], {"stdout": True, "stderr": True})

    def test_exactly_the_cap_is_not_cut(self):
        result = self.run_ok("--json", "--max-output", "64K", "-c", PATTERN % (64 * K, 64 * K, "stdout", "stdout"))
        self.assertEqual(result.json["stdout"].encode(), pattern(64 * K))
        self.assertEqual(result.json["truncated"], {"stdout": False, "stderr": False})

    def test_one_byte_more_is_cut(self):
        size = 64 * K + 1
        got = self.run_ok("--json", "--max-output", "64K", "-c", PATTERN % (size, size, "stdout", "stdout")).json
        self.assertEqual(got["truncated"], {"stdout": True, "stderr": False})
        self.assertLessEqual(len(kept(got["stdout"])), 64 * K)

    def test_json_keeps_the_same(self):
        size, cap = 1000000, 64 * K
        got = self.run_ok("--json", "--max-output", "64K", "-c", PATTERN % (size, size, "stdout", "stdout")).json
        data = pattern(size).decode()
        self.assertEqual(kept(got["stdout"]), data[:cap // 2] + data[-cap // 2:])
        self.assertIn(" %d bytes dropped " % (size - cap), got["stdout"])
        self.assertEqual((got["status"], got["reason"]), ("ok", None))
        self.assertIn("output", got["limits_hit"])

    def test_default_cap_lets_eight_megabytes_through(self):
        size = 8 * K * K
        self.assertEqual(hashlib.sha256(self.run_ok("-c", PATTERN % (size, size, "stdout", "stdout")).out).hexdigest(),
                         hashlib.sha256(pattern(size)).hexdigest())

    def test_sixteen_times_the_cap_kills(self):
        result = run("--max-output", "64K", "--timeout", "30", "-c", "while True: print('flood line')")
        self.assertEqual(result.code, 137, "\n%s" % result)
        self.assertTrue(any("output" in line for line in result.own_lines), "\n%s" % result)
        self.assertLessEqual(len(result.out), 64 * K)
        self.assertTrue(result.out.startswith(b"flood line\nflood line\n"))
        self.returned_within(result, 10)

    def test_sixteen_times_the_cap_in_json(self):
        result = run("--json", "--max-output", "64K", "--timeout", "30", "-c", "while True: print('flood line')")
        got = result.json
        self.assertEqual((result.code, got["status"], got["reason"], got["exit_code"]), (137, "killed", "output", None))
        self.assertTrue(got["truncated"]["stdout"])
        self.assertLessEqual(len(kept(got["stdout"])), 64 * K)

    def test_less_than_sixteen_times_does_not(self):
        size = 16 * 64 * K - 1
        got = self.run_ok("--json", "--max-output", "64K", "-c", PATTERN % (size, size, "stdout", "stdout")).json
        self.assertEqual(got["status"], "ok")

    def test_bytes_that_are_no_text_in_json(self):
        got = self.run_ok("--json", "-c", "import sys; sys.stdout.buffer.write(b'head \\xff\\xfe tail\\n\\xe2\\x82')").json
        self.assertEqual(got["stdout"].rstrip("\ufffd"), "head \ufffd\ufffd tail\n")

    def test_odd_text_in_json(self):
        got = self.run_ok("--json", "-c", r"import sys; sys.stdout.buffer.write(b'\0\x01\x1b[31m\"\\\x7f\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80')").json
        self.assertTrue(got["stdout"].startswith("\0\x01\x1b[31m\"\\\x7f\ufffd"), got["stdout"])

    def test_a_wide_character_across_every_border(self):
        got = self.run_ok("--json", "-c", "import sys\nsys.stdout.write('a' * 8191 + '€' * 30000)\n").json
        self.assertEqual(got["stdout"], "a" * 8191 + "€" * 30000)


if __name__ == "__main__":
    hutch_test.main()
