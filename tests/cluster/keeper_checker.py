#!/usr/bin/python3
"""keeper_checker - looks for mistakes in what clients of a cluster with a keeper were told.

    tests/cluster/keeper_checker.py HISTORY...

A history is as checker.py has it, and what is said there of *beliefs* holds here, too. Besides:

    ACQUIRE   capacity, units: as asked; without them it is 1 of 1. shared: it is one that shares;
              its key is only asked for with `shared`, true or false. asked_ms is null: without a
              lease. wait_asked_ms: it may wait in the queue
    CLOSED    fence: the connection of a grant without a lease has ended, as its client saw it
    SETTING   volatile_ms: the setting lease-volatile of the nodes; 10 s, if there is no such record

A lease is *long* if it was granted or extended for more than lease-volatile. It is in etcd, so a
failure does not excuse its loss. But after a failover it may last longer than its holder knows: until
its expiry in etcd, which is rounded up, 0.2 % longer with each change of the keeper, and for as long
as there was no keeper.

A grant without a lease is believed in from its answer to its release, the end of its connection
or of its client. It is not held against anybody once something was broken meanwhile: what bounds
it then is its fence alone. With a lease it always is.

What may not happen, besides what checker.py finds of keys that have a lease and a capacity of one:

    over capacity   more units are believed in at once than the capacity that any of their holders
                    declared; or a grant that never fitted while its request was under way
    full too early  a nil, and at no moment of its request were so many units possibly held, nor
                    did anybody possibly wait
    before its end  LOST, or a CHECK of 0, though nothing was broken since it was granted, or though
                    its lease is long; a RELEASE of 0 of a long lease that nobody has released before
    kept            at the end, when all leases are over and all clients are gone, a key is still
                    held (LEFT: holders, as the keeper shows them)
    term            a commit of a term after one of a later term: by revision, or by the clock

Transactions are looked at by tests/tx/checker.py. There terms rise with each start; here one
who was deposed may still answer TX.BEGIN with its own, and only what it commits is wrong. There
each commit has a revision of its own; here those that are written together share one.

Exit status: 0 clean, 1 a violation, 2 not a history.
"""
import bisect
import collections
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import checker  # noqa: E402
from checker import GAMMA, INFINITE, MS, Belief, Violation  # noqa: E402

SHARED_CAPACITY = 1 << 40  # an exclusive holder takes all of it
VOLATILE_MS = 10000  # the default of lease-volatile in a cluster on etcd
SLACK_MS = 1000   # until what is over is free, on a machine that stalls
LINGER_MS = 1000  # the setting of these tests, for connections that were lost
CHANGES_MAX = 2   # of the keeper, after a FAULT
DRIFTS = 2        # how often a change of the keeper lengthens a long lease by the drift of the clocks
END_MS = 1000     # until other nodes or etcd know that a grant has ended
LATE_MS = 4000    # after all was whole again, what was not answered has been done, or never is


def load_module(name, path):
    """Two files are called checker.py."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


tx_checker = load_module("tx_checker", os.path.join(HERE, "../tx/checker.py"))


# --- When something was broken -----------------------------------------------------------


class Faults:
    """Times from a FAULT to the next HEAL."""

    def __init__(self, records):
        self.starts, self.ends = [], []
        self.all = [r.inv for r in records if r.op == "FAULT"]
        for r in records:
            if r.op == "FAULT" and len(self.starts) == len(self.ends):
                self.starts.append(r.inv)
            elif r.op == "HEAL" and len(self.starts) > len(self.ends):
                self.ends.append(r.ret)
        self.ends += [INFINITE] * (len(self.starts) - len(self.ends))

    def first(self, start, end):
        """The first moment in [start, end) at which something was broken; None."""
        i = bisect.bisect_right(self.ends, start)
        if i < len(self.starts) and self.starts[i] < end:
            return max(self.starts[i], start)
        return None

    def healed(self, time):
        """When all was whole again, after a time at which something was broken."""
        i = bisect.bisect_right(self.ends, time)
        if i < len(self.starts) and self.starts[i] <= time:
            return self.ends[i]
        return time


# --- Long leases ---------------------------------------------------------------------------------


class Leases:
    """Which leases are long, and how long they may last after a failover."""

    def __init__(self, records, faults):
        self.volatile_ms = max((r.volatile_ms for r in records if r.op == "SETTING"),
                               default=VOLATILE_MS)
        self.faults = faults
        self.asked = collections.defaultdict(int)  # of a fence: the longest lease
        for r in records:
            if r.op in ("ACQUIRE", "EXTEND") and r.fence is not None:
                self.asked[r.fence] = max(self.asked[r.fence], r.asked_ms or 0)

    def is_long(self, fence):
        return self.asked[fence] > self.volatile_ms

    def more_ms(self, asked_ms, start, end):
        """How much longer a long lease may last than its holder knows, if it was granted at start:
        its expiry in etcd is rounded up, clocks differ, and it stands still without a keeper."""
        broken = [(max(s, start), min(e, end)) for s, e in zip(self.faults.starts, self.faults.ends)
                  if s < end and e > start]
        if not broken:
            return 0
        changes = CHANGES_MAX * sum(f < end and self.faults.healed(f) > start for f in self.faults.all)
        drift_ms = changes * DRIFTS * asked_ms * (1 / GAMMA - 1)
        return self.volatile_ms + drift_ms + sum((e - s) / MS + LATE_MS + SLACK_MS for s, e in broken)


def is_restored(v, leases, grants):
    """Whether an EXTEND was told that a long lease lasts longer than it asked, after a failover."""
    if v.kind != "lease too long":
        return False
    r = v.records[-1]
    asked_ms = leases.asked[r.fence]
    return (leases.is_long(r.fence) and r.fence in grants
            and r.lease_ms <= asked_ms + leases.more_ms(asked_ms, grants[r.fence].inv, r.ret))


def lost_long(key, ops, holds, leases):
    """A RELEASE of a long lease that is held says 1, whatever was broken."""
    bad, sent = [], {}
    for r in ops:
        if r.op == "RELEASE":
            sent.setdefault(r.fence, r)
    for b in holds:
        r = sent.get(b.grant.fence)
        if r and r.result == "no" and leases.is_long(r.fence) and b.end == r.inv:
            if r.ret < max(map(checker.counted, [b.grant] + b.extends)):
                bad.append(Violation("RELEASE before its end", key, "%d is over, it says" % r.fence,
                                     *b.records(), r))
    return bad


# --- Units, definite and possible -----------------------------------------------------------


def size(r):
    """(units, capacity) of an ACQUIRE."""
    if r.shared is not None:
        return (1 if r.shared else SHARED_CAPACITY), SHARED_CAPACITY
    return r.units or 1, r.capacity or 1


def holds_of(ops, deaths, faults):
    """Beliefs in a key that count: with a lease, and without."""
    leased = [r for r in ops if not (r.op == "ACQUIRE" and r.asked_ms is None)]
    found = checker.beliefs_of(leased, deaths)
    ends = collections.defaultdict(list)
    for r in ops:
        if r.op in ("RELEASE", "CLOSED"):
            ends[r.fence].append(r.inv)
    for g in checker.grants_of(ops):
        if g.asked_ms is None:
            end = min(ends[g.fence] + [deaths.get(g.client, INFINITE)])
            broken = faults.first(g.inv, end)
            end = end if broken is None else min(end, broken)
            if g.ret < end:
                found.append(Belief(g, g.ret, end))
    return sorted(found, key=lambda b: b.start)


class Steps:
    """A number that changes with time: the sum of intervals with weights."""

    def __init__(self, intervals):
        """[(start, end, weight)]; each counts in [start, end)."""
        changes = collections.Counter()
        for start, end, weight in intervals:
            if start < end:
                changes[start] += weight
                changes[end] -= weight
        self.times = sorted(changes)
        self.values, now = [], 0
        for time in self.times:
            now += changes[time]
            self.values.append(now)

    def within(self, start, end):
        """All values that it has in [start, end]."""
        i = bisect.bisect_right(self.times, start) - 1
        j = bisect.bisect_right(self.times, end)
        return ([0] if i < 0 else []) + self.values[max(i, 0):j]


def over_capacity(key, ops, holds):
    """Each grant fitted at some moment of its request, and the sum of all beliefs fits at each."""
    bad = []
    definite = Steps((b.start, b.end, size(b.grant)[0]) for b in holds)
    for g in checker.grants_of(ops):
        units, capacity = size(g)
        if min(definite.within(g.inv, g.ret - 1)) + units > capacity and not g.overlapping:
            bad.append(Violation("over capacity", key, "%d more of %d, and that never fitted"
                                 % (units, capacity), g, *others(holds, g)))
    acting = []
    for b in holds:
        acting = [a for a in acting if a.end > b.start] + [b]
        taken = sum(size(a.grant)[0] for a in acting)
        # Of one grant there is one belief at a time.
        if taken > max(size(a.grant)[1] for a in acting) and not any(
                a.grant.overlapping for a in acting):
            bad.append(Violation("over capacity", key, "%d of %d are held at once" % (
                taken, max(size(a.grant)[1] for a in acting)),
                *[r for a in acting for r in a.records()]))
    return bad


def others(holds, grant):
    return [b.grant for b in holds if b.grant is not grant
            and b.start <= grant.ret and b.end > grant.inv][:6]


def possible_of(ops, deaths, faults, leases):
    """[(start, end, units)]: what may have been held."""
    found = []
    ended = collections.defaultdict(lambda: INFINITE)  # of a fence: for certain
    for r in ops:
        if r.op == "RELEASE" and r.known and r.result in ("ok", "no"):
            if not may_be_forgotten(r, faults):
                ended[r.fence] = min(ended[r.fence], r.ret)
        elif r.op == "EXTEND" and r.result == "LOST":
            if not may_be_forgotten(r, faults):  # The keeper may have ended the grant because of a RELEASE.
                ended[r.fence] = min(ended[r.fence], r.ret)
        elif r.op == "CLOSED":
            ended[r.fence] = min(ended[r.fence], late(r.inv, faults, LINGER_MS))
    ends = collections.defaultdict(int)  # of a fence: the latest end
    for r in ops:
        if r.op == "EXTEND" and r.result in ("ok", None):
            until = late(r.ret or r.inv, faults, r.asked_ms / GAMMA + SLACK_MS, r.known)
            ends[r.fence] = max(ends[r.fence], until)
    for g in ops:
        if g.op != "ACQUIRE" or g.result not in ("ok", None):
            continue
        at, dead = g.ret or g.inv, deaths.get(g.client, INFINITE)
        if g.asked_ms is not None:
            end = late(at, faults, (g.wait_asked_ms or 0) * (not g.known)
                       + g.asked_ms / GAMMA + SLACK_MS, g.known)
        elif g.known:
            end = late(dead, faults, LINGER_MS + SLACK_MS) if dead < INFINITE else INFINITE
        else:
            end = late(at, faults, (g.wait_asked_ms or 0) + LINGER_MS + SLACK_MS, False)
        end = max(end, ends[g.fence])
        longest_ms = leases.asked[g.fence] if g.known else g.asked_ms or 0
        if end < INFINITE and longest_ms > leases.volatile_ms:
            end += int(leases.more_ms(longest_ms, g.inv, end) * MS)
        end = min(end, ended[g.fence] if g.known else INFINITE)
        found.append((g.inv, end, size(g)[0]))
    return found


def late(time, faults, ms, known=True):
    """So much later; if nobody has answered, or something was broken, after that was whole."""
    healed = faults.healed(time)
    extra = LATE_MS if not known or healed != time else 0
    return healed + int((ms + extra) * MS) if healed < INFINITE else INFINITE


def full_too_early(key, ops, deaths, faults, leases):
    """A request that was told nil at once must have met enough others."""
    bad = []
    possible = Steps(possible_of(ops, deaths, faults, leases))
    waiting = Steps((r.inv, r.ret + int(SLACK_MS * MS) if r.known else
                     late(r.inv, faults, r.wait_asked_ms, False), 1)
                    for r in ops if r.op == "ACQUIRE" and r.wait_asked_ms)
    for r in ops:
        if r.op != "ACQUIRE" or r.result != "nil" or r.wait_asked_ms:
            continue
        units, capacity = size(r)
        if max(possible.within(r.inv, r.ret)) + units <= capacity \
                and max(waiting.within(r.inv, r.ret)) == 0:
            bad.append(Violation("full too early", key, "%d of %d, and at most %d were held"
                                 % (units, capacity, max(possible.within(r.inv, r.ret))), r))
    return bad


def before_its_end(key, ops, holds, faults, leases):
    """As checker.before_its_end, of grants that nothing has happened to, and of long leases."""
    return [v for v in checker.before_its_end(key, ops, holds)
            if leases.is_long(v.records[0].fence)
            or faults.first(v.records[0].inv, v.records[-1].ret) is None]


def may_be_forgotten(release, faults):
    """Whether a keeper may have failed before another node, or etcd, knew of this RELEASE; or whether a
    keeper may have replied that was replaced while it was cut off, and did not know that yet. Then
    the next keeper treats the grant as held until its lease expires (docs/cluster.md)."""
    return faults.first(release.inv - int(SLACK_MS * MS),
                        release.ret + int(END_MS * MS)) is not None


def is_held_again(v, faults):
    """Whether a CHECK or an EXTEND saw a grant whose RELEASE the keeper's failure has undone."""
    return (v.kind in ("CHECK after its end", "EXTEND after its end")
            and v.records[0].op == "RELEASE" and may_be_forgotten(v.records[0], faults))


def is_not_withdrawn_yet(v, faults):
    """Whether a READ saw a grant for a request that was answered by its node, because the node did
    not reach the keeper, or was stopped. The node withdraws the grant when it reaches a keeper, or
    the grant expires. Before a keeper answers the request, it has received the withdrawal."""
    if v.kind != "READ of what was refused":
        return False
    asked, read = v.records
    return (asked.result in ("NOKEEPER", "SHUTDOWN")
            and faults.first(asked.inv, asked.ret) is not None
            and read.inv <= asked.ret + (asked.asked_ms + SLACK_MS) * MS)


def left(records):
    return [Violation("kept", r.key, "%d holders" % r.holders, r)
            for r in records if r.op == "LEFT" and r.holders]


# --- Locks ----------------------------------------------------------------------------------


class Verdict(checker.Verdict):
    """What was found of locks: `violations`, none if all is well."""

    def __init__(self, records):
        faults, deaths = Faults(records), checker.deaths_of(records)
        mutex = {key for key, ops in checker.by_key(records).items() if all(
            r.capacity is None and r.shared is None and r.asked_ms is not None
            for r in ops if r.op == "ACQUIRE")}
        super().__init__([r for r in records if r.key is None or r.key in mutex])
        self.records = records
        leases, grants = Leases(records, faults), {g.fence: g for g in checker.grants_of(records)}
        self.violations = [v for v in self.violations if not v.kind.endswith("before its end")
                           and not is_not_withdrawn_yet(v, faults)
                           and not is_restored(v, leases, grants)
                           and not is_held_again(v, faults)]
        for key, ops in sorted(checker.by_key(records).items()):
            holds = holds_of(ops, deaths, faults)
            self.violations += (before_its_end(key, ops, holds, faults, leases)
                                + lost_long(key, ops, holds, leases)
                                + full_too_early(key, ops, deaths, faults, leases))
            if key not in mutex:
                self.beliefs += len(holds)
                self.violations += (over_capacity(key, ops, holds) + checker.fences(key, ops, [])
                                    + [v for v in checker.after_its_end(key, ops)
                                       if not is_held_again(v, faults)])
        self.violations += left(records)
        self.ops = collections.Counter(r.op for r in records)
        self.results = collections.Counter(
            (r.op, "unknown" if not r.known else r.result) for r in records)
        self.grants = len(checker.grants_of(records))
        self.kinds = collections.Counter(v.kind for v in self.violations)
        self.gap = longest_gap(records, [g.ret for g in checker.grants_of(records)])
        self.long_leases = sum(1 for fence in grants if leases.is_long(fence))
        self.long_extends = sum(
            1 for r in records if r.op == "EXTEND" and r.result == "ok" and r.fence in grants
            and leases.is_long(r.fence) and faults.first(grants[r.fence].ret, r.inv) is not None)


def longest_gap(records, times):
    """The longest time without any of these answers, in ms; up to END, if that is there."""
    end = [r.inv for r in records if r.op == "END"]
    times = sorted(t for t in times if not end or t <= end[0]) + end[:1]
    return max(((b - a) / MS for a, b in zip(times, times[1:])), default=0.0)


# --- Transactions ---------------------------------------------------------------------------


def terms(committed):
    """Nothing of a term is committed after something of a later one."""
    bad = []
    told = [a for a in committed if a.record.keeper_term is not None]
    by_revision = sorted((a for a in told if a.writes and a.revision is not None),
                         key=lambda a: a.revision)
    for one, other in zip(by_revision, by_revision[1:]):
        if other.record.keeper_term < one.record.keeper_term:
            bad.append(tx_checker.Anomaly("term", "revision %d of term %d came after %d of %d" % (
                other.revision, other.record.keeper_term, one.revision, one.record.keeper_term),
                one.record, other.record))
    ended = sorted((a for a in told if a.ret < INFINITE), key=lambda a: a.ret)
    at, highest = 0, None
    for a in sorted(ended, key=lambda a: a.inv):
        while at < len(ended) and ended[at].ret < a.inv:
            if highest is None or ended[at].record.keeper_term > highest.record.keeper_term:
                highest = ended[at]
            at += 1
        if highest and a.record.keeper_term < highest.record.keeper_term:
            bad.append(tx_checker.Anomaly("term", "begun in %d when one of %d was answered" % (
                a.record.keeper_term, highest.record.keeper_term), highest.record, a.record))
    return bad


class TxVerdict(tx_checker.Verdict):
    """What was found of transactions: `anomalies`, none if all is well."""

    def __init__(self, records):
        self.terms = {r.term for r in records if r.term is not None}
        for r in records:
            r.keeper_term, r.term = r.term, None
        super().__init__(records)
        # Commits that are written together have one revision; what is said of its order holds.
        self.anomalies = [a for a in self.anomalies
                          if not (a.kind == "revision" and a.text.endswith(" twice"))]
        self.anomalies += terms(self.committed)
        self.kinds = collections.Counter(a.kind for a in self.anomalies)
        self.gap = longest_gap(records, [r.ret for r in records
                                         if r.op == "TX" and r.result == "ok"])


def examine(lines):
    records = checker.parse(lines)
    tx = TxVerdict(tx_checker.parse(lines)) if any(r.op == "TX" for r in records) else None
    locks = Verdict([r for r in records if r.op not in ("TX", "OUTCOME", "BANK")])
    bad = locks.violations + (tx.anomalies if tx else [])
    return bad, locks.explain() + (tx.explain() if tx else []) + [
        "%d records, %d grants, %d beliefs, %d commits, %d violations" % (
            len(records), locks.grants, locks.beliefs, tx.commits if tx else 0, len(bad))]


def main(paths):
    return checker.history.check_files(__doc__, paths, examine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
