#!/usr/bin/python3
"""checker - looks for anomalies in a history of transactions.

    tests/tx/checker.py HISTORY...

A history is a file of JSON lines. All times are nanoseconds of one clock, CLOCK_MONOTONIC of
one machine. A client may be killed at any moment, so it writes lines as it goes: lines with the
same `client` and `n` are one record.

    TX        an attempt. request: what is to be done, once; attempt: its number among those;
              inv: before TX.BEGIN was sent; term: as it was answered; asked: before TX.COMMIT
              was sent, with steps: what it read and wrote until then; ret, result, revision:
              the answer. result: ok, or the word of an error, or ABORT if it gave up
    OUTCOME   request, inv, ret, revision (or null); final: null is no longer too early
    BANK      table, sum, accounts: what every scan of a table must find
    UP        term: the server has been started, and leads

A step is one of

    list TABLE KEY [TAG...]     append TABLE KEY TAG       lists TABLE {KEY: [TAG...]}
    get TABLE KEY [N, TAG]      put TABLE KEY N TAG        scan TABLE {KEY: [N, TAG]}

A TAG is written once: it names the version. It begins with REQUEST/ATTEMPT# of its writer. Of a
list the order of versions is what the longest read of it shows. An account has its last tag alone;
its order is found from what each writer had read before. A key that is not there is [] or null.

An attempt that never asked for its commit, or was told an error of ABORTED, is *aborted*; one
that was told nothing is *open*. Open ones are committed if a committed transaction has read
what they wrote. Of the attempts of a request one is committed at most; an answer to a later one
may be about an earlier.

What may not happen:

    G0, G1c, G-single, G2   a cycle of ww edges; of ww and wr; with one rw; with more
    real-time               a cycle with an edge from who had its answer to who began later
    G1a, G1b                what was aborted was read; what its writer had not finished
    lost update             two read the same version, and both wrote the next
    lost write              what was answered is not there later
    applied twice           two attempts of a request, or a tag twice in a list
    incompatible            two reads of a list, neither the beginning of the other
    internal                a transaction does not see what it wrote or read itself
    invented                a tag that nobody wrote
    sum                     a scan of a bank with another sum, or without an account
    outcome                 TX.OUTCOME that contradicts an answer, or itself
    revision                one for two, or against the order of versions or of the clock
    term                    the same or a lower one after a start

Exit status: 0 clean, 1 an anomaly, 2 not a history.
"""
import bisect
import collections
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import history  # noqa: E402
from history import Broken, parse  # noqa: E402,F401

# Answers that say that nothing was committed. RESTART and AGE are told to any command.
ABORTED = ("ABORT", "RESTART", "AGE", "STALE", "BARRED", "NOSPACE", "IO", "NOMEM", "NOKEEPER",
           "NOTX", "LOCKS", "WRITES", "TOOBIG", "TRANSACTIONS", "SHUTDOWN")
SHOWN_MAX = 5    # anomalies of a kind that are printed
RECORDS_MAX = 5  # of an anomaly
STEPS_MAX = 240  # characters of the steps of a record
TRIED_MAX = 64   # edges of a component from which a short cycle is looked for

INFINITE = float("inf")


class Anomaly:
    def __init__(self, kind, text, *records):
        self.kind, self.text, self.records = kind, text, records


# --- An attempt ------------------------------------------------------------------------


class Attempt:
    """What an attempt read of others (`reads`: a list of tags, or one tag) and wrote
    (`writes`: tags, in order), by key."""

    def __init__(self, record, keys):
        self.record, self.request = record, record.request
        self.inv, self.asked = record.inv, record.asked
        self.ok = record.result == "ok"
        self.aborted = self.asked is None or record.result in ABORTED
        self.ret, self.revision = INFINITE, None  # when the request was known to be committed
        self.reads, self.writes, self.lists = {}, {}, set()
        self.bad = []
        for step in record.steps or ():
            self.take(step, keys)

    def __repr__(self):
        return "%s/%s" % (self.request, self.record.attempt)

    def take(self, step, keys):
        what, table = step[:2]
        if what == "append":
            self.write(table + "/" + step[2], step[3])
        elif what == "put":
            self.write(table + "/" + step[2], step[4])
        elif what == "list":
            self.read(table + "/" + step[2], tuple(step[3] or ()))
        elif what == "get":
            self.read(table + "/" + step[2], step[3][1] if step[3] else None)
        elif what in ("lists", "scan"):
            for key in keys[table] | set(step[2]):
                got = step[2].get(key)
                if what == "lists":
                    self.read(table + "/" + key, tuple(got or ()))
                else:
                    self.read(table + "/" + key, got[1] if got else None)
        else:
            raise Broken("line %d: a step %r" % (self.record.line, what))

    def write(self, key, tag):
        self.writes.setdefault(key, []).append(tag)

    def read(self, key, version):
        """Takes away what it wrote itself."""
        own = self.writes.get(key, [])
        if isinstance(version, tuple):
            self.lists.add(key)
            if own:
                mine, version = list(version[-len(own):]), version[:-len(own)]
                if mine != own:
                    self.odd(key, "it wrote %s" % " ".join(own))
                    return
        elif own:
            if version != own[-1]:
                self.odd(key, "it wrote %s" % own[-1])
            return
        if key in self.reads and self.reads[key] != version:
            self.odd(key, "it read something else before")
        self.reads.setdefault(key, version)

    def odd(self, key, text):
        self.bad.append(Anomaly("internal", "%s: %s" % (key, text), self.record))


def last(version):
    """The tag of a version that was read; None is the beginning."""
    if isinstance(version, tuple):
        return version[-1] if version else None
    return version


def keys_of(records):
    """All keys of each table that the history knows."""
    keys = collections.defaultdict(set)
    for r in records:
        for step in r.steps or ():
            if step[0] in ("lists", "scan"):
                keys[step[1]] |= set(step[2])
            else:
                keys[step[1]].add(step[2])
    return keys


# --- What was committed --------------------------------------------------------------------


class Commits:
    """Which attempts are `committed`, and when that was known."""

    def __init__(self, records):
        keys = keys_of(records)
        self.attempts = [Attempt(r, keys) for r in records if r.op == "TX"]
        self.bad = []
        self.requests = collections.defaultdict(list)
        self.writers = {}  # tag: (attempt, key)
        self.named = {repr(a): a for a in self.attempts}
        for a in self.attempts:
            self.requests[a.request].append(a)
            for key, tags in a.writes.items():
                self.writers.update((tag, (a, key)) for tag in tags)
        self.acks = collections.defaultdict(list)  # request: [(ret, revision, record)]
        self.outcomes([r for r in records if r.op == "OUTCOME" and r.ret is not None])
        for a in self.attempts:
            if a.ok and a.writes:
                self.acks[a.request].append((a.record.ret, a.record.revision, a.record))
        self.committed, self.read_aborted = [], set()
        self.settle()
        self.date()

    def outcomes(self, outcomes):
        for o in outcomes:
            for a in self.requests[o.request] if o.revision is None else ():
                if a.ok and a.writes and a.record.ret < o.inv:
                    self.bad.append(Anomaly("outcome", "%s was committed before" % a, a.record, o))
                elif o.final and a.asked is not None and a.asked < o.inv and not a.ok:
                    a.aborted = True
            if o.revision is not None:
                self.acks[o.request].append((o.ret, o.revision, o))
        for request, acks in self.acks.items():
            if all(a.aborted for a in self.requests[request]):
                self.bad.append(Anomaly("outcome", "%s was never committed" % request,
                                        *[a.record for a in self.requests[request]], acks[0][2]))

    def settle(self):
        """From what is known to be committed to what that has read, and so on."""
        todo, seen = [], set()

        def add(a):
            if id(a) not in seen:
                seen.add(id(a))
                todo.append(a)

        for request, attempts in self.requests.items():
            acks = self.acks.get(request)
            for a in attempts:
                if a.ok and not a.writes:
                    add(a)
            may = [a for a in attempts if not a.aborted and a.writes]
            if acks:
                first = min(acks, key=lambda ack: ack[0])
                may = [a for a in may if a.asked <= first[0]]
                if len(may) == 1:
                    add(may[0])
        while todo:
            a = todo.pop()
            self.committed.append(a)
            for key, version in a.reads.items():
                for tag in version if isinstance(version, tuple) else [version]:
                    if tag is not None:
                        self.look_at(a, key, tag, add)

    def look_at(self, reader, key, tag, add):
        writer, where = self.writers.get(tag, (None, None))
        if writer is None:  # who was killed has not written down what it wrote
            writer, where = self.named.get(tag.partition("#")[0]), key
        if writer is None or where != key or not (writer.aborted or tag in self.writers):
            self.bad.append(Anomaly("invented", "%s: %s" % (key, tag), reader.record))
        elif writer.aborted:
            if (id(reader), id(writer)) not in self.read_aborted:
                self.read_aborted.add((id(reader), id(writer)))
                self.bad.append(Anomaly("G1a", "%s: %s was aborted, and read" % (key, tag),
                                        writer.record, reader.record))
        else:
            add(writer)

    def date(self):
        twice = collections.defaultdict(list)
        for a in self.committed:
            acks = self.acks.get(a.request, ()) if a.writes else ()
            if a.writes:
                twice[a.request].append(a)
            else:
                a.ret, a.revision = a.record.ret, a.record.revision
            for ret, revision, _ in acks:
                if a.asked <= ret < a.ret:
                    a.ret, a.revision = ret, revision
        for request, attempts in twice.items():
            if len(attempts) > 1:
                self.bad.append(Anomaly("applied twice", request,
                                        *[a.record for a in attempts]))
        for request, acks in self.acks.items():
            if len({revision for _, revision, _ in acks}) > 1:
                self.bad.append(Anomaly("outcome", "%s has two revisions" % request,
                                        *[r for _, _, r in acks]))
        self.committed.sort(key=lambda a: (a.inv, a.record.line))


# --- The order of versions --------------------------------------------------------------------


def orders_of(commits):
    """(the tags of each key in order, anomalies)"""
    bad, reads, parents = [], collections.defaultdict(list), collections.defaultdict(dict)
    for a in commits.committed:
        for key, version in a.reads.items():
            if isinstance(version, tuple):
                reads[key].append((version, a))
        for key, tags in a.writes.items():
            before = last(a.reads.get(key))
            for tag in tags:
                parents[key][tag] = before
                before = tag
    orders = {}
    for key, versions in reads.items():
        orders[key], more = longest(key, versions)
        bad += more
    for key in parents:
        if key not in reads:
            orders[key] = chain(parents[key])
    return orders, bad


def longest(key, versions):
    bad = []
    most, who = max(versions, key=lambda v: len(v[0]))
    for version, a in versions:
        if version != most[:len(version)]:
            bad.append(Anomaly("incompatible", key, a.record, who.record))
    if len(set(most)) != len(most):
        tag = next(t for t in most if most.count(t) > 1)
        bad.append(Anomaly("applied twice", "%s: %s" % (key, tag), who.record))
        most = tuple(dict.fromkeys(most))
    return most, bad


def chain(parents):
    """The longest sequence of versions, each written by a transaction that had read the previous one."""
    children = collections.defaultdict(list)
    for tag, parent in parents.items():
        children[parent].append(tag)
    best, far = None, -1
    todo = [(tag, 0) for tag in children[None]]
    while todo:  # nobody has two parents: it is a tree
        tag, depth = todo.pop()
        if depth > far:
            best, far = tag, depth
        todo += [(child, depth + 1) for child in children[tag]]
    line = []
    while best is not None:
        line.append(best)
        best = parents[best]
    return tuple(reversed(line))


def lost_updates(commits):
    """(anomalies, the writes that they explain)"""
    bad, known, followers = [], set(), collections.defaultdict(list)
    for a in commits.committed:
        for key in a.writes:
            if key in a.reads:
                followers[key, last(a.reads[key])].append(a)
    for (key, tag), attempts in followers.items():
        if len({a.request for a in attempts}) > 1:
            bad.append(Anomaly("lost update", "%s: after %s" % (key, tag or "nothing"),
                               *[a.record for a in attempts]))
            known |= {(id(a), key) for a in attempts}
    return bad, known


def lost_writes(commits, orders, known):
    """What was answered, and is not in what was read later."""
    bad, read = [], {}
    for a in commits.committed:
        for key in a.reads:
            if key not in read or a.inv > read[key].inv:
                read[key] = a
    committed = {id(a) for a in commits.committed}
    for request, acks in commits.acks.items():
        first = min(ret for ret, _, _ in acks)
        attempts = [a for a in commits.requests[request] if not a.aborted and a.writes]
        there = [a for a in attempts if id(a) in committed]
        for a in there or attempts[:1]:
            for key, tags in a.writes.items():
                later = read.get(key)
                if (later and later.inv > first and (id(a), key) not in known
                        and (not there or tags[-1] not in orders.get(key, ()))):
                    bad.append(Anomaly("lost write", "%s: %s" % (key, tags[-1]), a.record,
                                       later.record))
                    break
    return bad


def halves(commits):
    """G1b: what its writer overwrote before it was done."""
    bad = []
    for a in commits.committed:
        for key, version in a.reads.items():
            writer, where = commits.writers.get(last(version), (None, None))
            if writer and writer is not a and where == key \
                    and writer.writes[key][-1] != last(version):
                bad.append(Anomaly("G1b", "%s: %s" % (key, last(version)), writer.record, a.record))
    return bad


# --- Cycles -------------------------------------------------------------------------------


class Graph:
    """Who must come before whom: edges by type, each with a word about why."""

    def __init__(self, commits, orders):
        self.nodes = commits.committed
        self.out = {t: [{} for _ in self.nodes] for t in ("ww", "wr", "rw")}
        number = {id(a): i for i, a in enumerate(self.nodes)}
        self.writer = {}
        for tag, (a, key) in commits.writers.items():
            if id(a) in number:
                self.writer[tag] = number[id(a)]
        follows = {}
        for key, order in orders.items():
            for tag, after in zip((None,) + order, order):
                follows[key, tag] = after
                self.edge("ww", self.writer.get(tag), self.writer.get(after), key, after)
        for i, a in enumerate(self.nodes):
            for key, version in a.reads.items():
                tag = last(version)
                self.edge("wr", self.writer.get(tag), i, key, tag)
                after = follows.get((key, tag))
                while after is not None and self.writer.get(after) == i:
                    after = follows.get((key, after))  # its own does not come before it
                self.edge("rw", i, self.writer.get(after), key, after)
        self.times()

    def edge(self, kind, one, other, key, tag):
        if one is not None and other is not None and one != other:
            self.out[kind][one].setdefault(other, "%s %s" % (key, tag))

    def times(self):
        """Nodes for moments, one for each answer, keep the edges few."""
        n = len(self.nodes)
        ended = sorted((a.ret, i) for i, a in enumerate(self.nodes) if a.ret < INFINITE)
        rets = [ret for ret, _ in ended]
        self.out["rt"] = [{} for _ in range(n + len(ended))]
        for j, (_, i) in enumerate(ended):
            self.out["rt"][i][n + j] = ""
            if j + 1 < len(ended):
                self.out["rt"][n + j][n + j + 1] = ""
        for i, a in enumerate(self.nodes):
            j = bisect.bisect_left(rets, a.inv)
            if j:
                self.out["rt"][n + j - 1][i] = ""
        self.total = n + len(ended)

    def next(self, i, kinds):
        for kind in kinds:
            if i < len(self.out[kind]):
                yield from self.out[kind][i]

    def components(self, kinds):
        """Those with more than one node (Tarjan, without recursion)."""
        index, low, on, stack, found = {}, {}, set(), [], []
        for root in range(self.total if "rt" in kinds else len(self.nodes)):
            if root in index:
                continue
            work = [(root, self.next(root, kinds))]
            index[root] = low[root] = len(index)
            stack.append(root)
            on.add(root)
            while work:
                i, rest = work[-1]
                for j in rest:
                    if j not in index:
                        index[j] = low[j] = len(index)
                        stack.append(j)
                        on.add(j)
                        work.append((j, self.next(j, kinds)))
                        break
                    if j in on:
                        low[i] = min(low[i], index[j])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[i])
                    if low[i] == index[i]:
                        part = []
                        while not part or part[-1] != i:
                            part.append(stack.pop())
                        on.difference_update(part)
                        if len(part) > 1:
                            found.append(set(part))
        return found

    def path(self, start, end, kinds, part):
        """The shortest from start to end, or None."""
        before, todo = {start: None}, collections.deque([start])
        while todo:
            i = todo.popleft()
            if i == end:
                line = []
                while i is not None:
                    line.append(i)
                    i = before[i]
                return line[::-1]
            for j in self.next(i, kinds):
                if j in part and j not in before:
                    before[j] = i
                    todo.append(j)
        return None

    def cycle(self, first, rest, part):
        """The shortest one that begins with an edge of this kind, of those that are tried."""
        best, tried = None, 0
        for i in sorted(part):
            for j in self.next(i, (first,)):
                if j not in part:
                    continue
                path = self.path(j, i, rest, part)
                if path and (best is None or len(path) < len(best)):
                    best = path
                tried += path is not None
                if tried >= TRIED_MAX:
                    return best
        return best

    def anomalies(self):
        bad = []

        def tell(kind, cycle, kinds):
            bad.append(self.anomaly(kind, cycle, kinds))

        for part in self.components(("ww",)):
            tell("G0", self.cycle("ww", ("ww",), part), ("ww",))
        for part in self.components(("ww", "wr")):
            found = self.cycle("wr", ("ww", "wr"), part)
            if found:
                tell("G1c", found, ("ww", "wr"))
        every = ("ww", "wr", "rw")
        for part in self.components(every):
            found = self.cycle("rw", ("ww", "wr"), part)
            if found:
                tell("G-single", found, every)
                continue
            found = self.cycle("rw", every, part)
            if found:
                tell("G2", found, every)
        for part in self.components(every + ("rt",)):
            found = self.cycle("rt", every + ("rt",), part) if any(
                i >= len(self.nodes) for i in part) else None
            if found:
                tell("real-time", found, every + ("rt",))
        return bad

    def anomaly(self, kind, cycle, kinds):
        """Moments are left out."""
        steps, records = [], []
        names = [i for i in cycle if i < len(self.nodes)]
        for i in names:
            a = self.nodes[i]
            j = names[(names.index(i) + 1) % len(names)]
            why = next(("%s %s" % (k, self.out[k][i][j]) for k in kinds
                        if k != "rt" and j in self.out[k][i]), "rt")
            steps.append("%r -(%s)->" % (a, why))
            records.append(a.record)
        return Anomaly(kind, " ".join(steps + [repr(self.nodes[names[0]])]), *records)


# --- The rest --------------------------------------------------------------------------------


def sums(records, committed):
    bad = []
    banks = {r.table: r for r in records if r.op == "BANK"}
    for a in committed:
        for step in a.record.steps or ():
            bank = banks.get(step[1]) if step[0] == "scan" else None
            if bank is None:
                continue
            got = sum(row[0] for row in step[2].values())
            if got != bank.sum or len(step[2]) != bank.accounts:
                bad.append(Anomaly("sum", "%s: %d accounts, together %d" % (
                    step[1], len(step[2]), got), a.record))
    return bad


def revisions(committed, orders, writers):
    """They number commits that wrote something, in an order that agrees with all others."""
    bad, seen = [], {}
    for a in committed:
        if a.writes and a.revision is not None:
            if a.revision in seen and seen[a.revision].request != a.request:
                bad.append(Anomaly("revision", "%d twice" % a.revision,
                                   seen[a.revision].record, a.record))
            seen[a.revision] = a
    for key, order in orders.items():
        before = None
        for a in (writers[tag][0] for tag in order if tag in writers):
            if a.revision is None:
                continue
            if before and before.request != a.request and before.revision >= a.revision:
                bad.append(Anomaly("revision", "%s: against the order of versions" % key,
                                   before.record, a.record))
            before = a
    ended = sorted((a for a in committed if a.revision is not None), key=lambda a: a.ret)
    at, highest = 0, None
    for a in sorted(ended, key=lambda a: a.inv):
        while at < len(ended) and ended[at].ret < a.inv:
            if highest is None or ended[at].revision > highest.revision:
                highest = ended[at]
            at += 1
        if highest and a.revision < highest.revision + bool(a.writes):
            bad.append(Anomaly("revision", "%d was answered before %d was begun" % (
                highest.revision, a.revision), highest.record, a.record))
    return bad


def terms(records):
    """They rise with each start, and never fall."""
    bad, highest = [], None
    told = sorted((r for r in records if r.term is not None and r.known_at is not None),
                  key=lambda r: r.known_at)
    at = 0
    for r in (r for r in records if r.term is not None):
        while at < len(told) and told[at].known_at < r.inv:
            if highest is None or told[at].term > highest.term:
                highest = told[at]
            at += 1
        if highest and r.term < highest.term + (r.op == "UP"):
            bad.append(Anomaly("term", "%d came after %d" % (r.term, highest.term), highest, r))
    return bad


# --- All of it -------------------------------------------------------------------------------


class Verdict:
    """What was found: `anomalies`, none if all is well."""

    def __init__(self, records):
        self.records = records
        commits = Commits(records)
        self.committed = commits.committed
        self.attempts = commits.attempts
        orders, bad = orders_of(commits)
        lost, known = lost_updates(commits)
        for a in self.committed:
            bad += a.bad
        bad += commits.bad + lost + lost_writes(commits, orders, known) + halves(commits)
        self.graph = Graph(commits, orders)
        bad += self.graph.anomalies()
        bad += sums(records, self.committed)
        bad += revisions(self.committed, orders, commits.writers) + terms(records)
        self.anomalies = bad
        self.kinds = collections.Counter(a.kind for a in bad)
        self.results = collections.Counter(
            r.result or ("open" if r.asked else "killed") for r in records if r.op == "TX")
        self.edges = {kind: sum(map(len, out)) for kind, out in self.graph.out.items()}
        self.commits = len(self.committed)
        self.writers = sum(1 for a in self.committed if a.writes)

    def explain(self):
        """The anomalies, with the records that they are about."""
        return history.explain(self.records, self.anomalies, "{0.kind}: {0.text}".format, show,
                               SHOWN_MAX, RECORDS_MAX)


def show(r, zero=0):
    """A record for people: seconds since the history began, and what is in it."""
    steps = json.dumps(r.steps) if r.steps else ""
    steps = steps if len(steps) < STEPS_MAX else steps[:STEPS_MAX] + "..."
    return "%s  %s %s%s%s term %s revision %s -> %s" % (
        history.span(r, zero), r.op, r.request or r.client,
        "/%s " % r.attempt if r.attempt else " ", steps, r.term, r.revision, r.result)


def examine(lines):
    verdict = Verdict(parse(lines))
    return verdict.anomalies, verdict.explain() + [
        "%d attempts, %d committed, %d of them wrote, %d anomalies" % (
            len(verdict.attempts), verdict.commits, verdict.writers, len(verdict.anomalies))]


def main(paths):
    return history.check_files(__doc__, paths, examine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
