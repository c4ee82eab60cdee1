"""history.py - a history: JSON lines about what clients asked and what they were told. The
checkers (cluster/checker.py, cluster/keeper_checker.py, tx/checker.py) read it with this file."""
import collections
import json
import sys

SHOWN_MAX = 8  # findings of a kind that are printed


class Record:
    """A record of a history: its fields are attributes, those that it lacks are None."""

    def __init__(self, fields, line=0):
        self.__dict__.update(fields)
        self.line = line

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    @property
    def known(self):
        """Did an answer come?"""
        return self.ret is not None

    def fields(self):
        return {k: v for k, v in self.__dict__.items() if k != "line"}


class Broken(Exception):
    """It is not a history."""


def parse(lines):
    """The records of JSON lines, by the time of their asking."""
    records = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            name = fields["client"], fields["n"]
        except (ValueError, KeyError, TypeError) as e:
            if isinstance(e, ValueError) and not line.endswith("\n"):
                continue  # its writer was killed
            raise Broken("line %d: %r" % (number, line[:100]))
        if name in records:
            records[name].__dict__.update(fields)
        else:
            records[name] = Record(fields, number)
    for r in records.values():
        if r.inv is None or r.op is None:
            raise Broken("line %d: an answer to what was not asked" % r.line)
        if r.known and r.ret < r.inv:
            raise Broken("line %d: answered before it was asked" % r.line)
    return sorted(records.values(), key=lambda r: (r.inv, r.line))


def span(r, zero):
    """When a record was asked and answered, in seconds since the history began."""
    return "line %d  %.6f .. %s" % (
        r.line, (r.inv - zero) / 1e9, "%.6f" % ((r.ret - zero) / 1e9) if r.known else "?")


def explain(records, findings, title, show, shown_max=SHOWN_MAX, records_max=None):
    """Findings for people: of each kind the first few, with the records they are about.
    title(finding) is its first line, show(record, zero) the line of a record."""
    zero = min((r.inv for r in records), default=0)
    said, shown = [], collections.Counter()
    for f in findings:
        shown[f.kind] += 1
        if shown[f.kind] <= shown_max:
            said.append(title(f))
            said += ["    " + show(r, zero) for r in f.records[:records_max]]
    return said + ["%s: %d more" % (kind, count - shown_max)
                   for kind, count in shown.items() if count > shown_max]


def check_files(doc, paths, examine):
    """The program of a checker: read the files, examine their lines, print what was found.
    examine(lines) returns (findings, lines to print). Returns the exit status."""
    program, usage = doc.split()[0], doc.split("\n\n")[1]
    if not paths:
        print(usage, file=sys.stderr)
        return 2
    lines = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            lines += f.readlines()
    try:
        findings, said = examine(lines)
    except Broken as e:
        print("%s: %s" % (program, e), file=sys.stderr)
        return 2
    print("\n".join(said))
    return 1 if findings else 0
