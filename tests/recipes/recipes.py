"""recipes.py - what the tests of docs/recipes/ share: the statements of a page, shells of
databases, and TAP.

A statement of a page is a ```sql block that begins with `-- NAME` or `-- NAME: ...`. Tests run
them as they stand there, and one test is that none was left out.
"""
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
import traceback

DEADLINE_S = 60
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Failure(Exception):
    """What a test expected is not so."""


def check(got, wanted, what="it"):
    if got != wanted:
        raise Failure(f"{what}: got {got!r}, wanted {wanted!r}")


def check_that(condition, what):
    if not condition:
        raise Failure("it is not so that " + what)


class Page:
    """The statements of a page, by name."""

    def __init__(self, name):
        self.used = set()
        with open(os.path.join(ROOT, "docs/recipes", name), encoding="utf-8") as file:
            blocks = re.findall(r"^```sql\n-- (\w+)[^\n]*\n(.*?)^```$", file.read(),
                                re.M | re.S)
            file.seek(0)
            count = file.read().count("```sql\n")
        self.blocks = dict(blocks)
        check(len(self.blocks), count, "statements with a name of their own")

    def __getitem__(self, name):
        self.used.add(name)
        return self.blocks[name].strip()

    def all_were_run(self):
        check(sorted(self.used), sorted(self.blocks), "the statements that were run")


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Shell:
    """A database's command line, fed through a pipe. say() sends lines, hear() waits until
    all before it was answered and returns what was printed."""

    def __init__(self, args, echo, **more):
        self.process = subprocess.Popen(
            args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=die_with_parent, **more)
        self.echo, self.marks = echo, 0

    def say(self, *lines):
        self.process.stdin.write(("\n".join(lines) + "\n").encode())
        self.process.stdin.flush()
        return self

    def ask(self):
        """From here on hear() returns what is printed."""
        self.marks += 1
        return self.say(self.echo % f"mark {self.marks}")

    def hear(self):
        mark, came = f"mark {self.marks}\n".encode(), b""
        end = time.monotonic() + DEADLINE_S
        while not came.endswith(mark):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failure(f"no answer in time; so far: {came!r}")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise Failure(f"the shell ended: {came!r}")
            came += data
        return came[:-len(mark)].decode().split("\n")[:-1]

    def __call__(self, *lines):
        return self.say(*lines).ask().hear()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


def until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"after {DEADLINE_S} s it is still not so that {what}")
        time.sleep(0.01)


def inversions(pairs):
    """How often a fence was replaced by a lower one, of (old, new)."""
    return sum(new < old for old, new in pairs)


def run(tests):
    """Run functions of no arguments, each a test with a sentence for a name; TAP."""
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, f in enumerate(tests, 1):
        began, error = time.monotonic(), None
        try:
            f()
        except Exception as e:  # All are failures of this test alone.
            error = e
        failed += error is not None
        print(f"{'not ok' if error else 'ok'} {number} - {f.__name__}"
              f"  # {time.monotonic() - began:.1f} s", flush=True)
        if error:
            text = "" if isinstance(error, Failure) else traceback.format_exc()
            for line in f"{error}\n{text}".splitlines():
                print("#   " + line, flush=True)
    sys.exit(1 if failed else 0)
