"""history_tests.py - tests of a checker: a table of short histories, each with the findings
that the checker must report.

    a_name_of_a_test: kind of a finding, another kind
        op argument argument name=value; op argument: text
    another_test
        op argument

An op is a method of the History that writes the lines. A word is a number, None, True or
False; with a comma a list; or a string. What follows a colon is one string, which comes behind
the first argument. Lines that begin with # are comments. A test that names no kind is a history
in which the checker must find nothing.
"""
import contextlib
import io
import json
import re
import tempfile

from report import Report

WORDS = {"None": None, "True": True, "False": False}


def value_of(word):
    if "," in word:
        return [value_of(w) for w in word.split(",") if w]
    if word in WORDS:
        return WORDS[word]
    for number in int, float:
        with contextlib.suppress(ValueError):
            return number(word)
    return word


def call(h, step):
    """Call the method of a History that a step names."""
    head, colon, text = re.fullmatch(r"([^:]*)(:?)(.*)", step).groups()
    op, *words = head.split()
    args = [value_of(w) for w in words if "=" not in w]
    if colon:
        args.insert(1, text.strip())
    named = (w.split("=", 1) for w in words if "=" in w)
    getattr(h, op)(*args, **{name: value_of(value) for name, value in named})


def table(text):
    """[(name, sorted kinds, steps)] of a table."""
    tests = []
    for line in text.splitlines():
        if line.startswith("    "):
            tests[-1][2].append(line.strip())
        elif line and not line.startswith("#"):
            name, _, kinds = line.partition(": ")
            tests.append((name, sorted(kinds.split(", ")) if kinds else [], []))
    return [(name, kinds, re.split(r";\s+", " ".join(steps))) for name, kinds, steps in tests]


class Lines:
    """The lines of a history, and a number for each record."""

    def __init__(self, steps=()):
        self.lines, self.n = [], 0
        for step in steps:
            call(self, step)

    def record(self, **fields):
        self.n += 1
        self.lines.append(json.dumps(dict(n=self.n, **fields)) + "\n")


class Tests(Report):
    """Runs a table. history: the class that writes lines. checker: the module with main().
    kinds(h): the sorted findings in what was written; explain(h): lines about them."""

    def __init__(self, patterns, text, history, checker, kinds, explain=None):
        super().__init__(patterns)
        self.history, self.checker = history, checker
        self.steps, self.kinds = {}, set()
        for name, wanted, steps in table(text):
            self.steps[name] = steps
            self.kinds.update(wanted)
            self.check(name, lambda: kinds(history(steps)) == wanted, lambda: [
                "found %r, wanted %r" % (kinds(history(steps)), wanted),
                *(explain(history(steps)) if explain else [])])

    def check(self, name, condition, why=lambda: ()):
        """A test by itself: a condition that is called, and lines that say why it failed."""
        if self.chosen(name):
            ok = condition()
            self.test(ok, name, () if ok else why())

    def program(self, lines):
        """(exit status, output) of the checker as a program."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.writelines(lines)
            f.flush()
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                status = self.checker.main([f.name])
        return status, out.getvalue()

    def check_program(self, name, of, wanted, *parts):
        """The program, given the history of a test, exits so and prints these parts."""
        def condition():
            status, out = self.program(self.history(self.steps[of]).lines)
            return status == wanted and all(part in out for part in parts)
        self.check(name, condition)

    def check_refusals(self, name, *bad):
        """The program exits with 2 if a line is not one of a history."""
        def condition():
            with contextlib.redirect_stderr(io.StringIO()):
                return [self.program([line])[0] for line in bad] == [2] * len(bad)
        self.check(name, condition)
