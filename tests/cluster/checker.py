#!/usr/bin/python3
"""checker - looks for mistakes in a history of what clients of a cluster were told.

    tests/cluster/checker.py HISTORY...

A history is a file of JSON lines, one record each. All times are nanoseconds of one clock,
CLOCK_MONOTONIC of one machine. A client may be killed at any moment, so it writes a line
before it asks and another when it was answered; lines with the same `client` and `n` are one
record.

    client, n      who, and a number that it uses once
    op, key, inv   what it asked, of what, and when: before it sent the request
    ret            when it had the answer; missing: it never had one (`unknown`)
    result         ok, nil, no (a 0), or the word of an error
    ...            what else belongs to the op:

    ACQUIRE   asked_ms, value, early: it may enter next to a holder (as asked);
              lease_ms, waited_ms, fence, overlapping (as answered)
    EXTEND    fence, asked_ms (as asked), lease_ms (as answered)
    RELEASE   fence
    CHECK     fence                 result ok: 1, no: 0
    READ      majority, fence, value (as answered)
    UPDATE    resource, fence, item, after: a write to what the lock guards
    FINAL     resource, log: [[fence, item, after], ...], all that the resource took, in order
    DIED      the process `who` was killed; inv: not before
    FAULT     something was broken from inv on
    HEAL      all was whole again at ret; bound_ms, keys: what is expected of each key
    END       the history ends

What is *definite* is what a client was told; what is *possible* is what it was not told but
may have happened. Nothing that is only possible is held against anybody.

A **belief** is a time in which a client may act as the holder: from the answer to the first of:
its release was sent; sent + 0.998 x (waited + lease); it was told LOST; its process died. An
EXTEND of its own that is answered within it makes it longer; one that is answered later begins
another, of the same grant.

Exit status: 0 clean, 1 a violation, 2 not a history.
"""
import bisect
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import history  # noqa: E402
from history import Broken, parse  # noqa: E402,F401

GAMMA = 0.998   # clocks differ in speed by 1 in 1000 at most, on both sides
MS = 1_000_000  # nanoseconds

INFINITE = float("inf")


class Violation:
    def __init__(self, kind, key, text, *records):
        self.kind, self.key, self.text, self.records = kind, key, text, records


def by_key(records):
    keys = collections.defaultdict(list)
    for r in records:
        if r.key is not None:
            keys[r.key].append(r)
    return keys


# --- Beliefs ------------------------------------------------------------------


class Belief:
    """A grant, or a part of one, as its holder sees it: [start, end)."""

    def __init__(self, grant, start, end, extends=()):
        self.grant, self.start, self.end = grant, start, end
        self.extends = list(extends)

    def records(self):
        """What it rests on."""
        return [self.grant] + self.extends[-1:]


def counted(op, waited_ms=0):
    """Until when a lease may be acted on."""
    return op.inv + int(GAMMA * (waited_ms + op.lease_ms) * MS)


def by_fence(ops, what):
    """Operations that name a fence, by fence."""
    found = collections.defaultdict(list)
    for r in ops:
        if r.op == what and r.fence is not None:
            found[r.fence].append(r)
    return found


def grants_of(ops):
    return [r for r in ops if r.op == "ACQUIRE" and r.result == "ok"]


def beliefs_of(ops, deaths=None):
    """The beliefs in a key, in order of their start."""
    deaths = deaths or {}
    extends, releases = by_fence(ops, "EXTEND"), by_fence(ops, "RELEASE")
    found = []
    for g in grants_of(ops):
        parts = [Belief(g, g.ret, counted(g, g.waited_ms))]
        own = (e for e in extends[g.fence] if e.known and e.client == g.client)
        for e in sorted(own, key=lambda e: e.ret):
            now = parts[-1]
            if e.result == "LOST":
                now.end = min(now.end, e.ret)
            elif e.result == "ok" and e.ret <= now.end:
                now.end = max(now.end, counted(e))
                now.extends.append(e)
            elif e.result == "ok":
                parts.append(Belief(g, e.ret, counted(e), [e]))
        stop = min([r.inv for r in releases[g.fence]] + [deaths.get(g.client, INFINITE)])
        for part in parts:
            part.end = min(part.end, stop)
        found += parts
    return sorted((b for b in found if b.start < b.end), key=lambda b: b.start)


def deaths_of(records):
    return {r.who: r.inv for r in records if r.op == "DIED"}


# --- What may not happen --------------------------------------------------------


def overlaps(key, beliefs):
    """Two believe at once, and neither was told that it may not be alone."""
    bad, acting = [], []
    for b in beliefs:
        acting = [a for a in acting if a.end > b.start]
        for a in acting:
            later = max(a.grant, b.grant, key=lambda g: g.fence)
            if not later.overlapping:
                bad.append(Violation(
                    "overlap", key, "two held it for %.3f ms"
                    % ((min(a.end, b.end) - b.start) / MS), *a.records(), *b.records()))
        acting.append(b)
    return bad


class Highest:
    """The highest fence that was granted, as far as anybody knew at a time."""

    def __init__(self, grants):
        self.times, self.grants = [], []
        for g in sorted(grants, key=lambda g: g.ret):
            if not self.grants or g.fence > self.grants[-1].fence:
                self.times.append(g.ret)
                self.grants.append(g)

    def before(self, time):
        at = bisect.bisect_left(self.times, time)
        return self.grants[at - 1] if at else None


def fences(key, ops, beliefs):
    """They rise, with real time and with beliefs, and no two grants have the same."""
    bad, seen = [], {}
    grants = grants_of(ops)
    for g in grants:
        if g.fence in seen:
            bad.append(Violation("fence used twice", key, "%d" % g.fence, seen[g.fence], g))
        seen[g.fence] = g
    highest = Highest(grants)
    for g in grants:
        h = highest.before(g.inv)
        if h and h.fence > g.fence:
            bad.append(Violation("fence not above", key, "%d was answered before %d was asked for"
                                 % (h.fence, g.fence), h, g))
    last = None
    for b in beliefs:
        if last and b.grant.fence < last.grant.fence and b.start >= last.end:
            bad.append(Violation("fence not in order", key, "%d was held before %d"
                                 % (last.grant.fence, b.grant.fence), *last.records(),
                                 *b.records()))
        if not b.grant.overlapping and (not last or b.grant.fence > last.grant.fence):
            last = b
    return bad


def later_than_another(key, ops):
    """Nobody is told that a grant is held which another, later one was seen to follow. (READ
    MAJORITY may say so, when not all nodes answer: it shows what may be held.)"""
    bad = []
    highest = Highest(g for g in grants_of(ops) if not g.overlapping)
    for r in ops:
        said = r.op in ("EXTEND", "CHECK") and r.result == "ok"
        h = said and highest.before(r.inv)
        if h and h.fence > r.fence:
            bad.append(Violation("%s of the past" % r.op, key,
                                 "%d is held, it says, but %d was granted before it was asked"
                                 % (r.fence, h.fence), h, r))
    return bad


def after_its_end(key, ops):
    """Nobody is told that a grant is held after it was told that it is over. (CHECK says 1 of
    one that a thief entered next to, which can be extended no more: LOST.)"""
    bad, over, entered = [], {}, first_early(ops)
    for r in ops:
        if r.known and ((r.op == "RELEASE" and r.result == "ok")
                        or (r.op == "EXTEND" and r.result == "LOST")):
            if r.fence not in over or r.ret < over[r.fence].ret:
                over[r.fence] = r
    for r in ops:
        o = over.get(r.fence)
        if o and r.op == "CHECK" and o.op == "EXTEND" and o.ret > entered:
            continue
        if o and r.op in ("EXTEND", "CHECK") and r.result == "ok" and o.ret < r.inv:
            bad.append(Violation("%s after its end" % r.op, key,
                                 "%d was over: %s" % (r.fence, o.op), o, r))
    return bad


def first_early(ops):
    """When somebody first tried to enter next to a holder."""
    return min((r.inv for r in ops if r.op == "ACQUIRE" and r.early is not None),
               default=INFINITE)


def before_its_end(key, ops, beliefs):
    """Nobody is told that a grant is over while it is held; unless another tried to enter
    next to it."""
    bad, entered = [], first_early(ops)
    held = collections.defaultdict(list)
    for b in beliefs:
        held[b.grant.fence].append(b)
    for r in ops:
        if (r.op, r.result) not in (("EXTEND", "LOST"), ("CHECK", "no")) or r.ret > entered:
            continue
        for b in held[r.fence]:
            if b.start <= r.inv and r.ret <= b.end:
                bad.append(Violation("%s before its end" % r.op, key,
                                     "%d is over, it says" % r.fence, *b.records(), r))
    return bad


def times(key, ops):
    """No grant says that it waited longer than it took, lasts longer than was asked, or may
    overlap where nobody asked for that."""
    bad = []
    early = first_early(ops)
    for g in grants_of(ops):
        if g.overlapping and g.ret < early:
            bad.append(Violation("overlapping unasked", key, "nobody wanted to enter early", g))
        took_ms = (g.ret - g.inv) / MS
        if g.waited_ms > took_ms / GAMMA + 1:
            bad.append(Violation("waited too long", key, "waited_ms=%d, and it took %.1f ms"
                                 % (g.waited_ms, took_ms), g))
    longest = {}  # that was asked for, of a fence
    for r in ops:
        if r.op in ("ACQUIRE", "EXTEND") and r.result == "ok" and r.asked_ms is not None:
            asked_ms = max(longest.get(r.fence, 0), r.asked_ms)
            longest[r.fence] = asked_ms
            if r.lease_ms > asked_ms:
                bad.append(Violation("lease too long", key, "lease_ms=%d, and %d were asked for"
                                     % (r.lease_ms, asked_ms), r))
    return bad


def reads(key, ops, beliefs):
    """What is read was granted, with that fence; and a majority does not overlook a holder."""
    bad = []
    asked = {r.value: r for r in ops if r.op == "ACQUIRE" and r.value is not None}
    starts = [b.start for b in beliefs]
    for r in (r for r in ops if r.op == "READ" and r.known):
        if r.result == "ok":
            a = asked.get(r.value)
            if a is None or a.inv > r.ret:
                bad.append(Violation("READ of nothing", key, "nobody had asked with %r"
                                     % r.value, r))
            elif a.result == "ok" and a.fence != r.fence and not (r.majority and r.inv < a.ret):
                # (Until it is answered, a majority may have voted for an attempt of it that
                # came to nothing, under another fence.)
                bad.append(Violation("fence changed", key, "granted as %d, read as %d"
                                     % (a.fence, r.fence), a, r))
            elif a.known and a.result != "ok" and not r.majority and a.ret < r.inv:
                bad.append(Violation("READ of what was refused", key, "%r was told %s"
                                     % (r.value, a.result), a, r))
        if r.majority and r.result in ("ok", "nil"):
            at = bisect.bisect_right(starts, r.inv)
            for b in beliefs[max(at - 1, 0):at]:
                if b.end > r.ret and (r.result == "nil" or r.fence < b.grant.fence):
                    bad.append(Violation("READ overlooks", key, "a majority did not know that "
                                         "%d was held, all the time" % b.grant.fence,
                                         *b.records(), r))
    return bad


def updates(records, resource):
    """Of a kind of resource: nothing that it took was lost, nothing was invented, and, if it
    looks at fences, none was below the one before."""
    bad = []
    for final in (r for r in records if r.op == "FINAL" and r.resource == resource):
        asked = {r.item: r for r in records
                 if r.op == "UPDATE" and r.resource == resource and r.key == final.key}
        bad += taken(final, asked)
        bad += lost(final, asked)
    return bad


def taken(final, asked):
    bad, last = [], None
    for fence, item, _ in final.log:
        r = asked.get(item)
        if r is None or r.result not in (None, "ok"):
            bad.append(Violation("update invented", final.key, "%r is there" % item,
                                 *([r] if r else []), final))
        if final.resource == "fenced" and last is not None and fence < last[0]:
            bad.append(Violation("old fence taken", final.key, "%d came after %d"
                                 % (fence, last[0]), *filter(None, (asked.get(last[1]), r))))
        last = fence, item
    return bad


def lost(final, asked):
    """An update names the one that it read (`after`). Those that the last one follows are the
    set; whatever else was taken was overwritten by one that had not read it."""
    follows = {item: after for _, item, after in final.log}
    item, there = (final.log[-1][1] if final.log else None), set()
    while item is not None and item not in there:
        there.add(item)
        item = follows.get(item)
    bad = []
    for r in asked.values():
        if r.result == "ok" and r.item not in there:
            by = next((asked[i] for _, i, after in final.log
                       if after == r.after and i in there and i in asked), None)
            bad.append(Violation("update lost", final.key, "%r (%s)" % (r.item, final.resource),
                                 r, *([by] if by else [])))
    return bad


def progress(records):
    """(violations, [(ms, key)]): how long after each heal a key was first granted."""
    bad, took = [], []
    answered = {key: sorted((g.ret, g.line, g) for g in grants_of(ops))
                for key, ops in by_key(records).items()}
    breaks = [r.inv for r in records if r.op in ("FAULT", "END")]
    for heal in (r for r in records if r.op == "HEAL"):
        at = bisect.bisect_left(breaks, heal.ret)
        until = breaks[at] if at < len(breaks) else heal.ret
        for key in heal.keys:
            got = answered.get(key, [])
            i = bisect.bisect_left(got, (heal.ret,))
            first = got[i][0] if i < len(got) else INFINITE
            if first < until:
                took.append(((first - heal.ret) / MS, key))
            if min(first, until) - heal.ret > heal.bound_ms * MS:
                bad.append(Violation("no progress", key, "%.0f ms after all was whole"
                                     % ((min(first, until) - heal.ret) / MS), heal,
                                     *([got[i][2]] if first < INFINITE else [])))
    return bad, took


# --- All of it -------------------------------------------------------------------


class Verdict:
    """What was found: `violations`, none if all is well. `unfenced` has those of resources
    that do not look at fences: a lease alone cannot prevent them (docs/fencing.md)."""

    def __init__(self, records):
        self.records = records
        self.violations = []
        deaths = deaths_of(records)
        self.beliefs = self.too_late = 0
        for key, ops in sorted(by_key(records).items()):
            beliefs = beliefs_of(ops, deaths)
            self.beliefs += len(beliefs)
            # That is allowed, but should be rare.
            self.too_late += sum(1 for g in grants_of(ops)
                                 if g.ret >= counted(g, g.waited_ms))
            self.violations += (overlaps(key, beliefs) + fences(key, ops, beliefs)
                                + later_than_another(key, ops) + after_its_end(key, ops)
                                + before_its_end(key, ops, beliefs)
                                + times(key, ops) + reads(key, ops, beliefs))
        self.violations += updates(records, "fenced")
        self.unfenced = updates(records, "plain")
        stuck, self.progress = progress(records)
        self.violations += stuck
        self.ops = collections.Counter(r.op for r in records)
        self.results = collections.Counter(
            (r.op, "unknown" if not r.known else r.result) for r in records)
        self.grants = len(grants_of(records))
        self.kinds = collections.Counter(v.kind for v in self.violations)

    def explain(self, kinds=None):
        """The violations, or those of some kinds, with the lines that they are about."""
        return history.explain(
            self.records, [v for v in self.violations if kinds is None or v.kind in kinds],
            "{0.kind}: key {0.key}: {0.text}".format, show)


def show(r, zero=0):
    """A record for people: seconds since the history began, and what is in it."""
    more = ["%s=%s" % (k, v if len(str(v)) < 60 else "...") for k, v in r.fields().items()
            if k not in ("client", "n", "op", "key", "inv", "ret", "result") and v is not None]
    return "%s  %s  %s %s %s-> %s" % (
        history.span(r, zero), r.client, r.op, r.key or "", "".join(m + " " for m in more),
        r.result if r.known else "unknown")


def examine(lines):
    verdict = Verdict(parse(lines))
    return verdict.violations, verdict.explain() + [
        "%d records, %d grants, %d beliefs, %d overlaps, %d violations" % (
            len(verdict.records), verdict.grants, verdict.beliefs, verdict.kinds["overlap"],
            len(verdict.violations))]


def main(paths):
    return history.check_files(__doc__, paths, examine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
