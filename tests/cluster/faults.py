#!/usr/bin/python3
"""faults - a live cluster under load, with everything that can go wrong going wrong.

    tests/cluster/faults.py SERVER [--long] [--nodes N] [--seconds S] [--netns] [--proxied]
                            [--seed N] [--clients N] [--lease MS] [--only KIND,...]
                            [--keep FILE]

Clients, each a process, take, extend, release, steal and read a few keys through all nodes,
and change the node when one does not answer. They write down what they asked and what they
were told. Meanwhile a *nemesis* cuts the net, stops, kills and restarts nodes and clients, sets
clocks, holds messages back and changes the membership; then it makes all whole again and
waits until each key is granted to somebody. At the end checker.py reads the history. It has
the definitions: what a belief is, and what may not happen.

Before that we look whether it would be seen. One client is stopped in its critical section
until another has held the lock: what has no fence loses an update, and what has one does not.
Then clocks run faster than is allowed, and two hold a lock at once.

The short form (3 nodes on loopback, half a minute) is for `make test`; --long is 10 minutes on
3 and on 5 nodes, each in a namespace (root). A seed decides which faults come in which order;
how clients and faults meet is left to the machine. A history with a violation is kept, and
its path is told. Prints TAP. The kinds of faults are KINDS in nemesis.py.
"""
import argparse
import os
import random
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checker  # noqa: E402
from crowd import Book, again, die_with_parent, now, state_of  # noqa: E402
from load import EARLY, Client, Load, Lockers, finals, gather, write_history  # noqa: E402
from nemesis import Nemesis, kinds_for  # noqa: E402
from net import missing as no_namespaces  # noqa: E402
from nodes import Cluster, Refused, until  # noqa: E402
from report import Report  # noqa: E402

# Keys, and between what their leases are, in ms.
KEYS = {"quick": (300, 400), "calm": (300, 600), "usual": (400, 1000), "slow": (600, 2000),
        EARLY: (400, 800)}
ORDER = "fence not above", "fence not in order", "fence used twice", "fence changed"
COMMANDS = "ACQUIRE", "EXTEND", "RELEASE", "CHECK", "READ"
# What may be answered. Other errors would be mistakes of ours, or of theirs.
WORDS = ("ok", "nil", "no", "unknown", "LOST", "ASKED", "NOQUORUM", "RECOVERING", "SHUTDOWN")


# --- The holder that is stopped ---------------------------------------------------------


def until_granted(client, key, lease_ms):
    return until(lambda: client.acquire(key, lease_ms, wait_ms=1000), "it is granted")


def first_holder(client, key, lease_ms):
    """Reads, looks at the clock, is stopped, and writes."""
    grant = until_granted(client, key, lease_ms)
    halves = [client.look(grant, fenced) for fenced in (True, False)]
    if now() >= grant.end:
        return 2  # the machine stalled: that is not what we want to see
    os.kill(os.getpid(), signal.SIGSTOP)
    for half in halves:
        client.change(grant, *half)
    return 0


def stopped_holder(cluster, directory):
    """One reads under the lock and is stopped; when its lease is over another reads and
    writes; then the first one goes on. False: it was not as it should be."""
    key, lease_ms = "guarded", 500  # not longer than others: the silence goes by the longest
    nodes = {n.id: n.address for n in cluster}
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent()
            first = Client("first", nodes, cluster.password, directory, 1)
            status = first_holder(first, key, lease_ms)
        except BaseException as e:
            os.write(2, ("# first: %r\n" % e).encode())
        finally:
            os._exit(status)
    until(lambda: state_of(pid) in "TZ", "the first one is stopped")
    second = Client("second", nodes, cluster.password, directory, 2)
    grant = until_granted(second, key, lease_ms)
    for fenced in (True, False):
        second.change(grant, *second.look(grant, fenced))
    os.kill(pid, signal.SIGCONT)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    second.release(grant)
    finals(Book(directory, "run"), second, [key])
    return status == 0


def fast_clocks(cluster, directory):
    """The clocks of all nodes run a third faster than that of their clients, which is more
    than is allowed."""
    nodes = {n.id: n.address for n in cluster}
    for node in cluster:
        cluster.clock(node.id, rate=1.33)
    first, second = (Client(name, nodes, cluster.password, directory, 1)
                     for name in ("first", "second"))
    until_granted(first, "timed", 900)
    until_granted(second, "timed", 900)
    for node in cluster:
        cluster.clock(node.id, rate=1.0)
    return True


# --- A run ------------------------------------------------------------------------------


LONGER_MAX = 20  # this many times half as long, until enough has happened


class Leg:
    """A part of a run: one cluster, one load, one nemesis."""

    def __init__(self, report, options, nodes, seconds, netns, proxied, lease_ms):
        self.report, self.options = report, options
        self.nodes, self.seconds, self.netns, self.proxied = nodes, seconds, netns, proxied
        self.lease_ms, self.rounds = lease_ms, 0
        self.keys = {key: (low, min(high, lease_ms)) for key, (low, high) in KEYS.items()}
        self.name = "%d nodes %s" % (nodes, "in namespaces" if netns else "on loopback")
        if proxied:
            self.name += ", a proxy between them"
        self.kinds = [k for k in kinds_for(netns, proxied)
                      if not options.only or k in options.only]

    def run(self, bite):
        o = self.options
        self.report.say("seed %d: %s, %d clients, leases up to %d ms, %d s" % (
            o.seed, self.name, o.clients, self.lease_ms, self.seconds))
        with Cluster(self.nodes, o.server, netns=self.netns, proxied=self.proxied, clock=True,
                     seed=o.seed) as cluster:
            try:
                if bite:
                    self.bite(cluster)
                self.load(cluster)
            except (Refused, OSError) as e:  # a node does not start, or does not answer
                self.report.test(False, self.name + ": it runs to its end",
                                 [str(e)] + cluster.logs()[-100:])

    def bite(self, cluster):
        """That faults are seen, if there is nothing that prevents them."""
        verdict, words = self.attempts(stopped_holder, cluster)
        self.report.test([v.kind for v in verdict.unfenced] == ["update lost"],
                         "a holder that was stopped overwrites what has no fence", words)
        self.report.test(any(r.client == "first" and r.resource == "fenced"
                             and r.result == "refused" for r in verdict.records)
                         and not verdict.violations,
                         "and is refused where there is one", words)
        verdict, words = self.attempts(fast_clocks, cluster)
        self.report.test(verdict.kinds["overlap"] == 1,
                         "clocks that run too fast let two hold it at once", words)

    def attempts(self, f, cluster):
        """f's verdict, and the history as lines. A machine that stalls may hide what it is to
        show; so it has some attempts."""
        for i in range(5):
            directory = os.path.join(cluster.dir, "%s.%d" % (f.__name__, i))
            os.mkdir(directory)
            shown = f(cluster, directory)
            verdict = checker.Verdict(gather(directory))
            if shown and (verdict.violations or verdict.unfenced):
                return verdict, []
        return verdict, [checker.show(r) for r in verdict.records]

    def load(self, cluster):
        o = self.options
        directory = os.path.join(cluster.dir, "history")
        os.mkdir(directory)
        addresses = {n.id: n.address for n in cluster}
        book = Book(directory, "nemesis")

        def make(name):
            return Load(name, addresses, cluster.password, directory, o.seed, keys=self.keys)

        crowd = Lockers(o.clients, make, self.keys)
        try:
            nemesis = Nemesis(cluster, crowd, book, o.seed, self.lease_ms, self.kinds,
                              self.report.say)
            end = time.monotonic() + self.seconds
            nemesis.heal()  # that all begins well is looked at, too
            for _ in range(LONGER_MAX):
                while time.monotonic() < end or self.too_few(nemesis):
                    nemesis.round()
                    self.rounds += 1
                if self.enough(checker.Verdict(gather(directory)), nemesis, crowd.alive())[0]:
                    break
                end = time.monotonic() + self.seconds / 2  # the machine is slow
            alive = crowd.alive()
            book.note("END")
        finally:
            crowd.end()
        finals(book, make("end"), self.keys)
        self.judge(gather(directory), nemesis, alive, cluster)

    # What it found.

    def judge(self, records, nemesis, alive, cluster):
        history = os.path.join(cluster.dir, "history.jsonl")
        write_history(records, history)
        v = checker.Verdict(records)
        failed = self.report.failed
        self.tell(v, nemesis)
        rest = set(v.kinds) - {"overlap", "no progress", *ORDER}
        odd = [r for r in records
               if r.op in COMMANDS and r.known and r.result not in WORDS]
        self.report.test(not v.kinds["overlap"], self.name + ": never two at once",
                         v.explain(["overlap"]))
        self.report.test(not any(v.kinds[k] for k in ORDER), self.name + ": fences in order",
                         v.explain(ORDER))
        self.report.test(not rest and not odd, self.name + ": what was said is true",
                         [checker.show(r, records[0].inv) for r in odd[:8]] + v.explain(rest))
        self.report.test(not v.kinds["no progress"], self.name + ": progress after each heal",
                         v.explain(["no progress"]))
        self.report.test(not nemesis.died, self.name + ": no node died by itself",
                         nemesis.died)
        self.report.test(*self.enough(v, nemesis, alive))
        if self.options.keep or self.report.failed > failed:
            self.keep(history, cluster)

    def keep(self, history, cluster):
        """The history, and what nodes said."""
        o = self.options
        path = o.keep or "/tmp/sluice-faults.%d.%d-%d%s%s.jsonl" % (
            os.getpid(), o.seed, self.nodes, "n" * self.netns, "p" * self.proxied)
        shutil.copy(history, path)
        with open(path + ".log", "w") as f:
            f.writelines(line + "\n" for line in cluster.logs())
        self.report.say("the history is in %s, what nodes said in %s.log" % (path, path))
        self.report.say(again(o))

    def too_few(self, nemesis):
        """Not yet half of all kinds of faults: the machine is slow, and it takes longer."""
        return sum(1 for k in self.kinds if nemesis.count[k]) < len(self.kinds) / 2 \
            and self.rounds < 2 * len(self.kinds)

    def enough(self, v, nemesis, alive):
        """A run in which nothing happened shows nothing."""
        few = []
        if v.grants < 2 * self.seconds:
            few.append("%d grants" % v.grants)
        if alive != self.options.clients:
            few.append("%d clients lived to the end" % alive)
        for what in (("EXTEND", "ok"), ("RELEASE", "ok"), ("CHECK", "ok"), ("CHECK", "no"),
                     ("READ", "ok"), ("READ", "nil"), ("UPDATE", "ok"), ("ACQUIRE", "nil")):
            if not v.results[what]:
                few.append("no %s was answered with %s" % what)
        if not elsewhere(v):
            few.append("nothing was extended through another node")
        missing = [k for k in self.kinds if not nemesis.count[k]]
        if len(missing) > len(self.kinds) / 2:
            few.append("faults that were not made: " + ", ".join(missing))
        return not few, self.name + ": enough happened", few

    def tell(self, v, nemesis):
        say = self.report.say
        say("%d operations in %d rounds" % (sum(v.ops[op] for op in COMMANDS), self.rounds))
        for op in COMMANDS + ("UPDATE",):
            say("  %-8s %6d: %s" % (op, v.ops[op], ", ".join(
                "%s %d" % (word, n) for (what, word), n in v.results.most_common()
                if what == op)))
        say("%d faults: %s" % (sum(nemesis.count.values()), ", ".join(
            "%s %d" % (k, nemesis.count[k]) for k in self.kinds)))
        say("membership changes: " + (", ".join(
            "%s %d" % c for c in nemesis.changes.most_common()) or "none"))
        say("%d grants, %d of them to thieves, %d extends through another node; %d beliefs, "
            "%d overlaps, fences %s" % (
            v.grants, sum(1 for g in checker.grants_of(v.records) if g.steal), elsewhere(v),
            v.beliefs, v.kinds["overlap"],
            "in order" if not any("fence" in k for k in v.kinds) else "NOT in order"))
        say("allowed: %d grants came after their end; without a fence %d of %d updates were "
            "lost" % (
                v.too_late, len(v.unfenced),
                sum(1 for r in v.records if r.op == "UPDATE" and r.resource == "plain")))
        if v.progress:
            longest, key = max(v.progress)
            say("from heal to progress: %d ms in the middle, %d ms at most (%s), of %d" % (
                sorted(v.progress)[len(v.progress) // 2][0], longest, key, nemesis.bound_ms))


def elsewhere(verdict):
    """How many were extended through another node than had granted them."""
    grants = {(g.key, g.fence): g.node for g in checker.grants_of(verdict.records)}
    return sum(1 for r in verdict.records if r.op == "EXTEND" and r.result == "ok"
               and r.node != grants.get((r.key, r.fence), r.node))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("server")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--netns", action="store_true")
    parser.add_argument("--proxied", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--lease", type=int)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--keep")
    o = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()

    def leg(*args):
        return Leg(report, o, *args)

    if o.long:
        seconds = (o.seconds or 600) // 4
        legs = [leg(n, seconds, True, proxied, o.lease or 2000)
                for n in ([o.nodes] if o.nodes else [3, 5]) for proxied in (False, True)]
    else:
        legs = [leg(o.nodes or 3, o.seconds or 25, o.netns, o.proxied or not o.netns,
                    o.lease or 1000)]
    if any(one.netns for one in legs) and no_namespaces():
        report.test(True, "real nodes under faults # SKIP " + no_namespaces())
        return report.end()
    for i, one in enumerate(legs):
        one.run(bite=i == 0)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
