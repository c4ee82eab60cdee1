"""report.py - TAP for a test program that is one script, and that does not need cli/tap.py,
which runs each test in a process of its own.

    report = Report(sys.argv[1:])
    report.test(1 + 1 == 2, "numbers add up")
    sys.exit(report.end())
"""
import fnmatch


class Report:
    """Counts tests and prints a line for each. patterns: names of the tests to run; without
    them all run."""

    def __init__(self, patterns=()):
        self.patterns = patterns
        self.number = self.failed = 0

    def chosen(self, name):
        return not self.patterns or any(fnmatch.fnmatch(name, p) for p in self.patterns)

    @staticmethod
    def say(text):
        print("# " + text, flush=True)

    def test(self, ok, sentence, lines=()):
        """lines: printed below the result, passed or failed."""
        self.number += 1
        self.failed += not ok
        print("%s %d - %s" % ("ok" if ok else "not ok", self.number, sentence))
        for line in lines:
            print("#   " + line)
        print(end="", flush=True)

    def end(self):
        """Print the plan; returns the exit status. A program that ran no test has failed."""
        print("1..%d" % self.number)
        return 1 if self.failed or not self.number else 0
