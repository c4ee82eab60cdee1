"""recipes.py - shared by the tests of docs/recipes/: the statements of a page, shells of
databases, the tests that every database has to pass, and TAP.

A statement of a page is a ```sql block that begins with `-- NAME` or `-- NAME: ...`. Tests run
them unchanged, and one test checks that every statement was run.
"""
import os
import re
import select
import subprocess
import sys
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests/cli"), os.path.join(ROOT, "tests/lib")]
from crowd import die_with_parent  # noqa: E402
from report import Report  # noqa: E402
from tap import Failure, check, check_that  # noqa: E402
from waiting import until  # noqa: E402,F401

DEADLINE_S = 60
tests = []


def test(f):
    """Register a test of a page: a function of no arguments whose name is a sentence."""
    tests.append(f)
    return f


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


class Shell:
    """A database's command line, fed through a pipe. say() sends lines; ask() marks the end of
    a request; hear() waits for the replies up to that mark and returns them."""

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
        """Mark the end of a request."""
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


def inversions(pairs):
    """How often a fence was replaced by a lower one, of (old, new)."""
    return sum(new < old for old, new in pairs)


class Database:
    """Tests that hold for every database with a table `report` as the page has it. A subclass has

        shell()                     a new session
        fresh(text, fence)          one with the tables of the page, and row 7
        attempt(statement, values)  lines that run a statement, and print one line about it
        rejected(line)              whether that line says that nothing was written
    """

    WRITERS = 4
    WRITES = 100
    audit = None      # statements that make a table `log` (n, before, after) of changes
    condition = None  # the part of `write` that rejects a lower fence

    def __init__(self, page):
        self.page = page

    def do(self, s, name, **values):
        """Run a statement of the page: what it printed, and at last how many rows it changed."""
        *printed, last = s(*self.attempt(self.page[name], values))
        return [*printed, last.split()[-1]]

    @staticmethod
    def row(s):
        return s("SELECT text, fence FROM report WHERE id = 7;")

    # One after the other.

    def a_lower_fence_is_rejected_and_an_equal_or_higher_one_is_not(self):
        s = self.fresh()
        for text, fence, number, changed, what in (
                ("a", 100, 7, "1", "the first"), ("b", 99, 7, "0", "a lower fence"),
                ("c", 100, 7, "1", "the same grant again"),
                ("d", 1794755902103977, 7, "1", "a real one"),
                ("e", 101, 7, "0", "a lower one"), ("f", 5, 8, "0", "no such row")):
            before = self.row(s)
            check(self.do(s, "write", text=text, fence=fence, id=number), [changed], what)
            check(self.row(s), [f"{text}|{fence}"] if changed == "1" else before, what)
        s.close()

    def put_inserts_the_row_and_then_works_as_write(self):
        s = self.fresh()
        s("DELETE FROM report;")
        for text, fence, changed, row, what in (
                ("a", 100, "1", "a|100", "a new row"), ("b", 99, "0", "a|100", "a lower fence"),
                ("c", 100, "1", "c|100", "equal"), ("d", 101, "1", "d|101", "higher")):
            check(self.do(s, "put", text=text, fence=fence, id=7), [changed], what)
            check(self.row(s), [row], what)
        s.close()

    def after_a_read_an_older_holder_cannot_write(self):
        s = self.fresh("seen")
        check(self.do(s, "read", fence=200, id=7), ["seen", "1"])
        check(self.do(s, "write", text="late", fence=199, id=7), ["0"])
        check(self.do(s, "read", fence=199, id=7), ["0"], "an older holder reads nothing")
        check(self.do(s, "write", text="what follows", fence=200, id=7), ["1"])
        s.close()

    # Many at once.

    def crowd(self, statement, *first):
        """Writers with rising fences, which overtake each other. Returns the changes in order,
        [(old, new)]; the number of rejected writes; and the session that read them. first:
        statements that each writer runs first."""
        reader = self.fresh()
        reader(self.audit)
        shells = [self.shell() for _ in range(self.WRITERS)]
        for number, s in enumerate(shells):
            s(*first)
            for i in range(self.WRITES):
                fence = 1 + i * self.WRITERS + number
                s.say(*self.attempt(statement, dict(text=str(number), fence=fence, id=7)))
            s.ask()
        lines = [line for s in shells for line in s.hear()]
        for s in shells:
            s.close()
        changes = [tuple(map(int, line.split("|")))
                   for line in reader("SELECT before, after FROM log ORDER BY n;")]
        check(len(lines), self.WRITERS * self.WRITES, "answers, and no errors")
        rejected = sum(map(self.rejected, lines))
        check(rejected + len(changes), len(lines), "each was written or rejected")
        return changes, rejected, reader

    def never_falls(self, statement, *first):
        changes, rejected, reader = self.crowd(statement, *first)
        check(inversions(changes), 0, "falls of the fence")
        check_that(rejected > 0, "some writes were rejected")
        check(self.row(reader)[0].split("|")[1], str(max(new for _, new in changes)),
              "the last fence")
        reader.close()

    def many_writers_never_lower_the_fence(self):
        self.never_falls(self.page["write"])

    def many_that_put_never_lower_the_fence(self):
        self.never_falls(self.page["put"])

    def without_the_condition_the_fence_falls(self):
        """So the previous tests can fail."""
        changes, _, reader = self.crowd(self.page["write"].replace(self.condition, ""))
        check_that(inversions(changes) > 0, "the fence fell")
        reader.close()

    def every_statement_of_the_page_was_run(self):
        self.page.all_were_run()

    def run(self):
        """All these tests, and those of the page."""
        run([self.a_lower_fence_is_rejected_and_an_equal_or_higher_one_is_not,
             self.put_inserts_the_row_and_then_works_as_write,
             self.after_a_read_an_older_holder_cannot_write,
             self.many_writers_never_lower_the_fence,
             self.many_that_put_never_lower_the_fence,
             self.without_the_condition_the_fence_falls,
             *tests, self.every_statement_of_the_page_was_run])


def run(functions=None):
    """Run functions of no arguments, by default those that were registered; TAP."""
    report = Report()
    for f in functions or tests:
        began, lines = time.monotonic(), ()
        try:
            f()
        except Exception as e:  # All are failures of this test alone.
            text = "" if isinstance(e, Failure) else traceback.format_exc()
            lines = f"{e}\n{text}".splitlines()
        report.test(not lines, f"{f.__name__}  # {time.monotonic() - began:.1f} s", lines)
    sys.exit(report.end())
