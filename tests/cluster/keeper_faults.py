#!/usr/bin/python3
"""keeper_faults - a live cluster on etcd under load, with everything that can go wrong going wrong.

    tests/cluster/keeper_faults.py SERVER [--long MINUTES] [--nodes N] [--members N]
                                   [--seconds S] [--loopback] [--seed N] [--lockers N]
                                   [--tellers N] [--only KIND,...] [--race N] [--keep DIRECTORY]

Clients, each a process, use any node and change it when one does not answer. Lockers take, extend,
release, steal and read locks of every kind: for one, counted, shared, with a lease and without.
They also hold some locks over several faults, with leases from a second to an hour.
Tellers append to lists and move money between accounts in transactions that have a REQUEST: what
was not answered is asked for with TX.OUTCOME, and done again. All write down what they asked and
what they were told. Meanwhile a *nemesis* kills, stops and cuts off keepers, nodes, members of
etcd and clients, several at once, but never most members of etcd for long; then it makes all
whole again, and waits until something is committed and each key is granted. At the end
keeper_checker.py reads the history; it has the definitions.

First, five nodes race for keeper and the winner dies, five times over, under the same load.

The short form (five nodes, then three, about a minute in all) is for `make test`. --long runs so
many minutes, in chapters of a minute, on three and on five nodes: three with the usual lease-volatile
of 10 s, five with 2 s. A fault lasts up to 15 s then. Nodes and members are in
namespaces of their own; on loopback, behind a proxy, if that is asked for or we are not root. A
seed decides which faults come in which order; how clients and faults meet is left to the machine.
A history with a violation is kept, and its path is told. Prints TAP. The kinds of faults are KINDS
in keeper_nemesis.py.
"""
import argparse
import collections
import os
import random
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load  # noqa: E402
from crowd import again, now  # noqa: E402
from keeper_checker import TxVerdict, Verdict, checker, tx_checker  # noqa: E402
from keeper_load import FAR, KEYS, MUTEX, Locker, Single, Teller, kills, take_all  # noqa: E402
from keeper_nemesis import KeeperNemesis, keeper_of, kinds_for  # noqa: E402
from load import MS  # noqa: E402
from net import missing as no_namespaces  # noqa: E402
from nodes import Cluster, Refused, etcds, until  # noqa: E402
from report import Report  # noqa: E402

CHAPTER_S = 60
RACES = 5
OPTIONS = {"tx-age": "3s", "linger": "1s", "keeper-wait": "2s", "lease-max": "1h"}
# The setting lease-volatile; by the number of nodes, if the run is long. It is not shorter than the
# leases of those keys that must be granted again soon after each fault.
VOLATILE_MS, LONG_VOLATILE_MS, LONG_FAULT_MS = 2000, {3: 10000}, 15000
TABLES = "lists%d", "bank%d"
ONE = "overlap", "over capacity"
ORDER = "fence not above", "fence not in order", "fence used twice", "fence changed"
STUCK = "no progress", "kept"
COMMANDS = "ACQUIRE", "EXTEND", "RELEASE", "CHECK", "READ"
# What may be answered. Other errors would be mistakes of ours, or of theirs.
WORDS = ("ok", "nil", "no", "unknown", "LOST", "ASKED", "RECOVERING", "SHUTDOWN", "NOKEEPER")
TX_WORDS = ("ok", "open", "killed", "ABORT", "RESTART", "AGE", "STALE", "BARRED", "NOTX",
            "NOKEEPER", "SHUTDOWN", "CLOSED", "TOOBIG", "IO")


LONGER_MAX = 20  # chapters, until enough has happened


class Chapter:
    """A part of a leg with a history of its own: one load, one nemesis."""

    def __init__(self, leg, cluster, number):
        self.leg, self.c, self.number = leg, cluster, number
        self.o, self.report = leg.options, leg.report
        self.directory = os.path.join(cluster.dir, "chapter%d" % number)
        self.locks, self.txs = (os.path.join(self.directory, name) for name in ("locks", "tx"))
        for path in (self.directory, self.locks, self.txs):
            os.mkdir(path)
        self.tables = tuple(name % number for name in TABLES)
        self.seed = "%s/%d" % (self.o.seed, number)
        self.addresses = {n.id: n.address for n in cluster}
        self.book = load.Book(self.locks, "nemesis")
        self.run_client = Single("run", number, self.txs, self.seed, self.addresses,
                                 cluster.password, self.tables, None)
        self.failures, self.sum = [], None
        self.killed = []  # of a race: (when, the term before)
        # Of this chapter alone: what was held in another one is not in its history.
        self.far = ["far%d.%d" % (number, i) for i in range(FAR)]

    def locker(self, name):
        return Locker(name, self.addresses, self.c.password, self.locks, self.seed, far=self.far)

    def teller(self, name, committed):
        return Teller(name, self.number, self.txs, self.seed, self.addresses, self.c.password,
                      self.tables, committed)

    # What happens.

    def play(self, work):
        """work(nemesis) breaks things. Afterwards all is whole, and is read."""
        self.open_bank()
        self.book.note("SETTING", volatile_ms=self.leg.volatile_ms)
        lockers = load.Lockers(self.o.lockers, self.locker, KEYS)
        tellers = kills.Tellers(self.o.tellers, self.teller)
        self.nemesis = KeeperNemesis(self.c, lockers, tellers, self.book, self.seed,
                                     self.leg.volatile_ms, self.leg.kinds, self.report.say,
                                     LONG_FAULT_MS if self.o.long else 0)
        try:
            self.nemesis.heal()  # that all begins well is looked at, too
            work(self)
            tellers.everybody()
            if lockers.alive() < self.o.lockers or tellers.ended():
                self.failures.append("clients ended by themselves")
        except (TimeoutError, kills.live.Failure) as e:
            self.failures.append(str(e))
        finally:
            self.book.note("END")
            for name in lockers.names.values():
                self.book.note("DIED", who=name)
            lockers.end()
            tellers.end()
        if not self.failures:
            self.last_look()

    def open_bank(self):
        self.run_client.until_done("open-%d" % self.number, kills.bank_of(
            self.run_client.book, self.tables[1]))

    def last_look(self):
        """All tables in one transaction; all units of each key at once."""
        got = self.run_client.until_done("read-%d" % self.number, kills.reading(
            self.tables, kills.lines_of(self.txs)))
        self.sum = sum(row[0] for row in got[self.tables[1]].values())
        client = self.locker("end")
        for key in KEYS + self.far:
            got = None
            for _ in range(4):
                got = got or take_all(client, key, 4000)
            self.book.note("LEFT", key=key, holders=int(got is None))
        load.finals(self.book, client, MUTEX)

    # What goes wrong.

    def rounds(self, seconds):
        def work(_):
            end = time.monotonic() + seconds
            while time.monotonic() < end or self.too_few():
                self.nemesis.round()
                self.leg.rounds += 1
        return work

    def too_few(self):
        return sum(self.nemesis.count.values()) < 4 and self.leg.rounds < 12

    def race(self, times):
        """All nodes are up, and lose their keeper; the winner dies as soon as something was
        committed under it."""
        def work(_):
            nemesis, c = self.nemesis, self.c
            for _ in range(times):
                c.wait_ready()
                term, number = until(lambda: (lambda k: k if k[1] else None)(keeper_of(c)),
                                     "somebody is the keeper")
                nemesis.terms.add(term)
                nemesis.count_reclaimed()
                before = nemesis.tellers.all_commits()
                nemesis.count["race"] += 1
                self.killed.append((now(), term))
                self.book.note("FAULT", kind="race", what=str(number))
                nemesis.ended.add(number)
                c[number].kill()
                until(lambda: keeper_of(c)[0] > term
                      and nemesis.tellers.all_commits() > before + self.o.tellers,
                      "another keeper is there, and something is committed")
                nemesis.bring_back(c[number])
            nemesis.heal()
            until(self.agreed, "all nodes name the same keeper")
        return work

    def agreed(self):
        said = [n.keeper() for n in self.c]
        return len({(s["keeper_node"], s["term"]) for s in said}) == 1


# --- A leg ------------------------------------------------------------------------------


class Leg:
    """One cluster, in one or more chapters."""

    def __init__(self, report, options, nodes, netns):
        self.report, self.options, self.nodes, self.netns = report, options, nodes, netns
        self.rounds = 0
        self.volatile_ms = (LONG_VOLATILE_MS.get(nodes, VOLATILE_MS) if options.long
                            else VOLATILE_MS)
        self.kinds = [k for k in kinds_for(netns) if not options.only or k in options.only]
        self.name = "%d nodes on %d members of etcd" % (nodes, options.members)
        self.total, self.results, self.answers = (collections.Counter() for _ in range(3))
        self.faults, self.bad, self.lines = collections.Counter(), collections.Counter(), []
        self.failures, self.died, self.terms, self.gaps = [], [], set(), [0.0]
        self.grant_gaps, self.to_commit, self.to_grant, self.takeovers = [0.0], [], [], []

    def run(self, chapters, race=0):
        """chapters: how many seconds each has. race: how often the keeper dies first."""
        o = self.options
        self.report.say("seed %d: %s %s, %d lockers, %d tellers, %s" % (
            o.seed, self.name, "in namespaces" if self.netns else "on loopback", o.lockers,
            o.tellers, "%d races" % race if race else "%d s" % sum(chapters)))
        try:
            with Cluster(self.nodes, o.server, netns=self.netns, proxied=not self.netns,
                         seed=o.seed, etcd=o.members, options={
                             **OPTIONS, "lease-volatile": self.volatile_ms}) as cluster:
                self.chapters(cluster, ([0] if race else []) + chapters, race)
        except (Refused, OSError, TimeoutError) as e:  # it does not even start, or end
            self.failures.append(str(e))
        self.tell(race)

    def chapters(self, cluster, lengths, race):
        try:
            for i, seconds in enumerate(lengths, 1):
                if self.failures or self.bad:
                    break
                chapter = Chapter(self, cluster, i)
                chapter.play(chapter.rounds(seconds) if seconds else chapter.race(race))
                self.judge(chapter)
            # Until enough has happened, however long that takes on a slow machine.
            while not (self.failures or self.bad or self.enough(race)[0]) and i < LONGER_MAX:
                i += 1
                chapter = Chapter(self, cluster, i)
                chapter.play(chapter.rounds(15))
                self.judge(chapter)
        except (Refused, OSError, TimeoutError, kills.live.Failure) as e:
            self.failures += str(e).splitlines()[:1] + str(e).splitlines()[1:][-60:]
        if self.failures:
            path = os.path.join(self.kept_directory(), "%d.log" % self.nodes)
            self.keep_logs(cluster, path)
            self.report.say("what was said is in %s" % path)
            self.report.say(again(self.options))

    # What it found.

    def judge(self, chapter):
        records = load.gather(chapter.locks)
        tx_lines = kills.lines_of(chapter.txs)
        v, tx = Verdict(records), TxVerdict(tx_checker.parse(tx_lines))
        n = chapter.nemesis
        self.faults += n.count
        self.failures += chapter.failures + n.no_commits
        self.died += n.died
        self.terms |= n.terms | tx.terms
        self.gaps.append(tx.gap)
        self.grant_gaps.append(v.gap)
        self.to_commit += n.to_commit
        self.to_grant += [ms for ms, _ in v.progress]
        self.bad += v.kinds + collections.Counter(
            {"tx " + kind: count for kind, count in tx.kinds.items()})
        self.lines += v.explain() + tx.explain()
        self.results += collections.Counter(
            {key: count for key, count in v.results.items() if key[0] in COMMANDS})
        self.answers += tx.results
        for name, value in (
                ("operations", sum(len(r.steps or ()) for r in tx.records)),
                ("commits", tx.commits), ("writers", tx.writers), ("grants", v.grants),
                ("beliefs", v.beliefs), ("too late", v.too_late), ("reclaimed", n.reclaimed),
                ("long", v.long_leases), ("long extends", v.long_extends),
                ("outcomes", sum(1 for r in tx.records if r.op == "OUTCOME")),
                ("second", kills.second_answers(tx)),
                ("unanswered", sum(1 for a in tx.committed if a.record.result is None))):
            self.total[name] += value
        self.total["sum"] = chapter.sum or 0
        for at, term in chapter.killed:
            after = [r.ret for r in tx.records if r.op == "TX" and r.result == "ok"
                     and (r.keeper_term or 0) > term and r.ret > at]
            if after:
                self.takeovers.append((min(after) - at) / MS)
        odd = [r for r in records if r.op in COMMANDS and r.known and r.result not in WORDS]
        odd_tx = [r for r in tx.records if r.op == "TX" and (
            r.result not in TX_WORDS + (None,)
            or r.result == "ok" and not isinstance(r.revision, int))]
        self.bad["odd answer"] += len(odd) + len(odd_tx)
        self.bad += collections.Counter()  # only what is there
        self.lines += [checker.show(r, records[0].inv) for r in odd[:8]]
        self.lines += ["%s: %s" % (tx_checker.show(r, records[0].inv)[:200], r.text)
                       for r in odd_tx[:8]]
        if self.bad or self.failures or self.options.keep:
            self.keep(chapter, records, tx_lines)
        shutil.rmtree(chapter.directory)

    def kept_directory(self):
        o = self.options
        directory = o.keep or "/tmp/sluice-keeper-faults.%d.%d" % (o.seed, os.getpid())
        os.makedirs(directory, exist_ok=True)
        return directory

    @staticmethod
    def keep_logs(cluster, path):
        with open(path, "w") as f:
            f.writelines(line + "\n" for line in cluster.logs())

    def keep(self, chapter, records, tx_lines):
        """The histories, and what nodes and members said."""
        path = os.path.join(self.kept_directory(), "%d-%d" % (self.nodes, chapter.number))
        load.write_history(records, path + ".locks.jsonl")
        with open(path + ".tx.jsonl", "w") as f:
            f.writelines(tx_lines)
        self.keep_logs(chapter.c, path + ".log")
        self.report.say("the histories, and what was said, are in %s.*" % path)
        self.report.say(again(self.options))

    def tell(self, race):
        say, t = self.report.say, self.total
        say("%d operations on locks: %s" % (sum(self.results.values()), ", ".join(
            "%s %s %d" % (*key, n) for key, n in sorted(self.results.items(), key=str))))
        say("%d operations in %d transactions: %s" % (
            t["operations"], sum(self.answers.values()), ", ".join(
                "%s %d" % a for a in self.answers.most_common())))
        say("%d commits, %d of them wrote, %d were not answered; %d times TX.OUTCOME; %d "
            "duplicates" % (t["commits"], t["writers"], t["unanswered"],
                                               t["outcomes"], t["second"]))
        say("%d faults in %d rounds: %s" % (sum(self.faults.values()), self.rounds, ", ".join(
            "%s %d" % f for f in self.faults.most_common())))
        terms = sorted(self.terms - {0})
        say("%d terms, %s" % (len(terms), "from %d to %d" % (terms[0], terms[-1]) if terms
                              else "none"))
        if self.takeovers:
            say("from the death of a keeper to the next commit: %s ms" % ", ".join(
                "%.0f" % ms for ms in self.takeovers))
        if self.to_commit and self.to_grant:
            say("from heal to a commit %.0f ms at most, to a grant of each key %.0f ms" % (
                max(self.to_commit), max(self.to_grant)))
        say("longest time without any commit %.0f ms, without any grant %.0f ms" % (
            max(self.gaps), max(self.grant_gaps)))
        say("%d grants, %d reclaimed, %d beliefs, %d came too late; %d overlaps, %d anomalies; the "
            "sum of the bank is %d of %d" % (
                t["grants"], t["reclaimed"], t["beliefs"], t["too late"], sum(self.bad[k] for k in ONE),
                sum(n for k, n in self.bad.items() if k.startswith("tx ")), t["sum"],
                kills.ACCOUNTS * kills.BALANCE))
        say("%d leases longer than %d s; they were extended %d times after a fault" % (
            t["long"], self.volatile_ms / 1000, t["long extends"]))
        self.tests(race)

    def tests(self, race):
        def test(ok, sentence, lines=()):
            self.report.test(ok, "%s: %s" % (self.name, sentence), lines)

        bad, lines = self.bad, [line[:600] for line in self.lines[:120]]
        twice = "tx applied twice", "tx outcome"
        known = set(ONE + ORDER + STUCK + twice + ("tx sum",))
        rest = [k for k in bad if k not in known]
        if race:
            test(len(self.takeovers) == race,
                 "they race for keeper and the winner dies, %d times over" % race)
        test(not any(bad[k] for k in ONE), "never more units than the capacity", lines)
        test(not any(bad[k] for k in ORDER), "fences in order")
        test(not any(k.startswith("tx ") for k in rest), "no anomaly in transactions")
        test(not any(bad[k] for k in twice), "nothing is applied twice")
        test(not bad["tx sum"] and (t_ok(self.total["sum"]) or self.failures),
             "the sum of the bank is constant")
        test(not any(not k.startswith("tx ") for k in rest), "what was said is true", rest)
        test(not any(bad[k] for k in STUCK) and not self.failures,
             "progress after each heal", [line[:600] for line in self.failures])
        test(not self.died, "nothing died by itself", self.died)
        test(*self.enough(race))

    def enough(self, race):
        """A run in which nothing happened shows nothing."""
        few, t = [], self.total
        for what, least in (("commits", 200), ("grants", 50), ("outcomes", 1),
                            ("unanswered", 1), ("long extends", 1)):
            if t[what] < least:
                few.append("%s: %d" % (what, t[what]))
        if sum(self.faults.values()) < (race or 4):
            few.append("%d faults" % sum(self.faults.values()))
        if len(self.terms - {0}) < 2 and not self.options.only:
            few.append("the keeper was always the same")
        return not few or bool(self.failures), "enough happened", few


def t_ok(total):
    return total == kills.ACCOUNTS * kills.BALANCE


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("server", type=os.path.abspath)
    parser.add_argument("--long", type=float)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--loopback", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--lockers", type=int, default=10)
    parser.add_argument("--tellers", type=int, default=6)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--race", type=int, default=RACES)
    parser.add_argument("--keep")
    o = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report, netns = Report(), not o.loopback and no_namespaces() is None
    if etcds.missing():
        report.test(False, "a cluster on etcd: " + etcds.missing())
        return report.end()
    if o.race:
        Leg(report, o, o.nodes or 5, netns).run([], race=o.race)
    if o.long:
        chapters = max(1, int(o.long * 60 / CHAPTER_S))
        for nodes in [o.nodes] if o.nodes else (3, 5):
            share = chapters if o.nodes else (chapters + (nodes == 3)) // 2
            if share:
                Leg(report, o, nodes, netns).run([CHAPTER_S] * share)
    elif o.seconds:
        Leg(report, o, o.nodes or 3, netns).run([o.seconds])
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
