#!/usr/bin/python3
"""kills - transactions by many clients, while they and the server are killed and stopped.

    tests/tx/kills.py SERVER [--long] [--kills N] [--clients N] [--seed N] [--keep FILE]

Clients, each a process, append to lists, move money between accounts, read and scan, and now
and then give up, send a command that fails right before the commit, hang up in the middle, or hang
up when they have asked for a commit. What is to be done has a REQUEST: it is done again, from its
beginning, after RESTART, AGE and a failure, after a lost answer if TX.OUTCOME does not know it, and
by the next client if the one that began it was killed. Every attempt writes values of its own, so
that it is seen which of them was committed. They write down what they asked and what they were told.

Meanwhile the server and clients are killed with SIGKILL, and stopped with SIGSTOP for a while;
a server that was killed is started again, with the same directory and the same port. After each
kill there must be commits; after the last all clients must get on. Then all is read, and
checker.py, which has the definitions, reads the history.

The run is done in rounds of ROUND kills, each with its own tables; at the end the tables of
all rounds are read once more. The short form (20 kills) is for `make test`; --long is 500
kills. A seed decides who is killed and stopped, and what is done; how that meets is left to the
machine. A history with an anomaly is kept, and its path is told. Prints TAP.
"""
import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../server/lib"), os.path.join(HERE, "../lib")]
import checker  # noqa: E402
import live  # noqa: E402
from crowd import Book, Crowd, again, die_with_parent, lines_of, now  # noqa: E402
from report import Report  # noqa: E402
from waiting import until  # noqa: E402

LONGER_MAX = 200  # rounds, until enough has happened
ROUND = 25           # kills
DEADLINE_S = 60      # for anything that is waited for
TX_AGE_MS = 1000     # some stop longer than that
ACCOUNTS, BALANCE = 8, 100
LISTS, LENGTH_MAX = 5, 40  # of a table; then the next table is used
TROUBLE = (OSError, live.Closed, live.Failure)


# --- A client ------------------------------------------------------------------------------


class Over(Exception):
    """The attempt is over: its word."""


class HangUp(Exception):
    """On purpose."""


def tags_of(value):
    return value.decode().split() if value else []


def row_of(value):
    """An account: [balance, tag]."""
    if value is None:
        return None
    balance, tag = value.decode().split()
    return [int(balance), tag]


def rows(reply, read):
    """A table in RESP2."""
    return {k.decode(): read(v) for k, v in zip(reply[::2], reply[1::2])}


class Attempt:
    """What one attempt does on the connection: its commands, and its steps for the history."""

    def __init__(self, link, name):
        self.link, self.name, self.steps, self.slot = link, name, [], 0

    def __call__(self, *words):
        got = self.link(*words)
        if isinstance(got, live.Error):
            raise Over(got.word)
        return got

    def tag(self):
        self.slot += 1
        return "%s#%d" % (self.name, self.slot)

    # Lists.

    def read_list(self, table, key):
        tags = tags_of(self("TX.GET", table, key))
        self.steps.append(["list", table, key, tags])
        return tags

    def append(self, table, key):
        tags, tag = self.read_list(table, key), self.tag()
        self("TX.PUT", table, key, " ".join(tags + [tag]))
        self.steps.append(["append", table, key, tag])
        return len(tags)

    def scan_lists(self, table):
        self.steps.append(["lists", table, rows(self("TX.SCAN", table), tags_of)])

    # Accounts.

    def get(self, table, key):
        row = row_of(self("TX.GET", table, key))
        self.steps.append(["get", table, key, row])
        return row[0] if row else 0

    def put(self, table, key, balance):
        tag = self.tag()
        self("TX.PUT", table, key, "%d %s" % (balance, tag))
        self.steps.append(["put", table, key, balance, tag])

    def scan(self, table):
        self.steps.append(["scan", table, rows(self("TX.SCAN", table), row_of)])

    # Both: `plan` is a list of words, so that another client can do it.

    def work(self, plan):
        """Returns the length of the longest list it met."""
        longest = 0
        for what, *words in plan:
            if what == "lock":
                self("TX.LOCK", *words)
            elif what == "list":
                longest = max(longest, len(self.read_list(*words)))
            elif what == "append":
                longest = max(longest, self.append(*words))
            elif what == "lists":
                self.scan_lists(*words)
            elif what == "scan":
                self.scan(*words)
            elif what == "think":
                time.sleep(words[0])
            else:
                self.transfer(what, *words)
        return longest

    def transfer(self, how, table, source, target, amount):
        one, other = self.get(table, source), self.get(table, target)
        if how == "roundabout":  # what is seen of this is not finished
            self.put(table, source, -1000000)
            self("TX.DEL", table, target)
        self.put(table, source, one - amount)
        self.put(table, target, other + amount)


def bank_of(book, table):
    """Notes that there is a bank; returns what opens its accounts in a transaction."""
    def work(tx):
        for i in range(ACCOUNTS):
            tx.get(table, str(i))
            tx.put(table, str(i), BALANCE)

    book.begin("BANK", table=table, sum=ACCOUNTS * BALANCE, accounts=ACCOUNTS)
    return work


def reading(tables, lines):
    """What reads the bank, and all tables of lists that a history names, in a transaction; it
    returns {table: rows}."""
    names = set(re.findall(r'"(%s\.\d+)"' % tables[0], "".join(lines)))

    def work(tx):
        for table in sorted(names):
            tx.scan_lists(table)
        tx.scan(tables[1])
        return {step[1]: step[2] for step in tx.steps}

    return work


class Client:
    def __init__(self, name, round_, directory, seed, address, tables, committed):
        self.name, self.round, self.directory, self.address = name, round_, directory, address
        self.tables, self.committed = tables, committed
        self.rng = random.Random("%s %s %s" % (seed, round_, name))
        self.book = Book(directory, name)
        self.link, self.generation, self.done = None, 0, 0

    def connect(self):
        """Waits until there is a server."""
        while self.link is None:
            try:
                self.link = live.Client(self.address)
            except OSError:
                time.sleep(0.01)
        return self.link

    def drop(self):
        if self.link:
            self.link.close()
        self.link = None

    # What is to be done.

    def plan(self):
        return self.plan_lists() if self.rng.random() < 0.6 else self.plan_bank()

    def plan_lists(self):
        rng, table = self.rng, "%s.%d" % (self.tables[0], self.generation)
        plan = []
        if rng.random() < 0.03:
            plan.append(["lock", rng.choice(("READ", "WRITE")), table])
        for _ in range(rng.randint(1, 4)):
            key = str(rng.randrange(LISTS))
            if rng.random() < 0.55:
                if rng.random() < 0.6:
                    plan.append(["lock", "WRITE", table, key])
                plan.append(["append", table, key])
            else:
                plan.append(["list", table, key])
        if rng.random() < 0.08:
            plan.insert(rng.randrange(len(plan) + 1), ["lists", table])
        return self.thinking(plan)

    def plan_bank(self):
        rng, table = self.rng, self.tables[1]
        if rng.random() < 0.25:
            return self.thinking([["scan", table]])
        one, other = rng.sample(range(ACCOUNTS), 2)
        plan = []
        if rng.random() < 0.7:
            plan = [["lock", "WRITE", table, str(key)] for key in sorted((one, other))]
        plan.append([rng.choice(("straight", "straight", "roundabout")), table, str(one),
                     str(other), rng.randint(1, 20)])
        if rng.random() < 0.1:
            plan.append(["scan", table])
        return self.thinking(plan)

    def thinking(self, plan):
        if self.rng.random() < 0.15:
            plan.insert(self.rng.randrange(len(plan) + 1),
                        ["think", self.rng.uniform(0, 0.01)])
        return plan

    # Doing it.

    def run(self):
        self.take_over()
        while True:
            self.done += 1
            # The server remembers the requests of all rounds.
            self.perform("%d:%s-%d" % (self.round, self.name, self.done), self.plan())

    def take_over(self):
        """What the one before had begun and not ended."""
        who, life = self.name.split(".")
        open_ = {}
        for line in lines_of(self.directory, "%s.%d.jsonl" % (who, int(life) - 1)):
            try:
                r = json.loads(line)
            except ValueError:
                continue  # it was killed then
            if r.get("op") == "TX":
                open_ = dict(r)
            elif r["n"] == open_.get("n"):
                open_.update(r)
        if open_ and open_.get("result") not in ("ok", "ABORT"):
            self.perform(open_["request"], open_["plan"], open_["attempt"], open_.get("term"),
                         "asked" in open_)

    def perform(self, request, plan, attempt=0, term=None, asked=False):
        """Until it is committed, or given up."""
        writes = any(step[0] not in ("list", "lists", "scan", "lock", "think") for step in plan)
        while True:
            if asked and writes and self.rng.random() < 0.6:  # else it is just done again
                known, final = self.outcome(request, term)
                if known or (final and self.rng.random() < 0.3):
                    return
            attempt += 1
            word, term, asked_now = self.attempt(request, attempt, plan)
            if word in ("ok", "ABORT"):
                return
            asked = word is None and (asked_now or asked)
            if word is None and not asked and self.rng.random() < 0.5:
                return

    def outcome(self, request, term):
        """(it is committed, it will never be)"""
        while True:
            try:
                link = self.connect()
                final = False
                if self.rng.random() < 0.5:  # else nobody knows whether it is another term
                    got = link("TX.BEGIN")
                    final = isinstance(got, list) and term is not None and got[0] > term
                    link("TX.ABORT")
                inv = now()
                n = self.book.begin("OUTCOME", inv=inv, request=request)
                got = link("TX.OUTCOME", request)
                if isinstance(got, live.Error):
                    self.drop()
                    continue
                self.book.add(n, ret=now(), revision=got, final=final)
                return got is not None, final
            except TROUBLE:
                self.drop()

    def attempt(self, request, number, plan):
        """(result or None, term, whether it asked for the commit)"""
        rng, term, asked = self.rng, None, False
        fate = rng.choices(("commit", "abort", "leave", "lose", "fail"), (87, 3, 3, 4, 3))[0]
        link = self.connect()
        n = self.book.begin("TX", inv=now(), request=request, attempt=number, plan=plan)
        tx = Attempt(link, "%s/%d" % (request, number))
        try:
            term = tx("TX.BEGIN", "REQUEST", request)[0]
            self.book.add(n, term=term, known_at=now())
            if tx.work(plan) >= LENGTH_MAX:
                self.generation += 1
            if fate == "leave":
                raise HangUp
            if fate == "abort":
                tx("TX.ABORT")
                raise Over("ABORT")
            if fate == "fail":  # sent with the commit, and before it: then that does nothing
                link.send("TX.PUT", "too long", "k" * 600, "v")
            self.book.add(n, asked=now(), steps=tx.steps)
            asked = True
            link.send("TX.COMMIT")
            if fate == "fail":
                error = link.reply()
                link.reply()
                raise Over(error.word)
            if fate == "lose":
                raise HangUp
            revision = link.reply()
            if isinstance(revision, live.Error):
                raise Over(revision.word)
            self.book.add(n, ret=now(), result="ok", revision=revision)
            self.committed()
            return "ok", term, True
        except Over as e:
            word = str(e)
            # Even so it is kept what it wrote: nobody may read that.
            self.book.add(n, ret=now(), result=word, steps=tx.steps)
            if word not in ("ABORT", "RESTART", "AGE"):
                self.drop()
                time.sleep(0.01)
            return word, term, asked
        except (HangUp,) + TROUBLE:
            self.drop()
            if not asked:
                self.book.add(n, steps=tx.steps)
            return None, term, asked


# --- The processes -------------------------------------------------------------------------


class Tellers(Crowd):
    """The clients. Each counts its commits."""

    def __init__(self, count, make):
        self.make = make
        super().__init__(count)

    def work(self, i, name):
        self.make(name, lambda: self.set(i, self.commits(i) + 1)).run()

    def commits(self, i):
        return self.get(i)

    def all_commits(self):
        return sum(self.commits(i) for i in range(self.count))

    def everybody(self):
        """At the end all get on."""
        wanted = [self.commits(i) + 3 for i in range(self.count)]
        until(lambda: self.ended() or all(self.commits(i) >= n for i, n in enumerate(wanted)),
              "all clients with transactions get on", DEADLINE_S)


class Server:
    """On one port, in one directory, again and again."""

    def __init__(self, program, directory):
        self.program, self.directory = program, directory
        self.log = os.path.join(directory, "log")
        self.port, self.process, self.starts, self.term = "auto", None, 0, 0

    def start(self):
        """Waits until it leads; returns its term, and when that was known."""
        at = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--port", str(self.port), "--data",
                 os.path.join(self.directory, "data"), "--tx-age", "%dms" % TX_AGE_MS],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent)
        self.starts += 1
        until(lambda: "ready: sluice" in self.said(at) or self.process.poll() is not None,
              "the server is ready", DEADLINE_S)
        if self.process.poll() is not None:
            raise live.Failure("the server ended: " + self.said(at)[-300:])
        if self.port == "auto":
            self.port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)\b",
                                      self.said(at)).group(1))
        link = live.Client(self.address)
        got = link("TX.BEGIN")
        link.close()
        if not isinstance(got, list):
            raise live.Failure("TX.BEGIN: %r" % got)
        self.term = got[0]
        return self.term

    @property
    def address(self):
        return "127.0.0.1", self.port

    def said(self, at=0):
        with open(self.log, errors="backslashreplace") as f:
            f.seek(at)
            return f.read()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Nemesis:
    """Kills and stops, one thing after the other."""

    # What is done, and how often: of one client, of several, of the server, of both.
    KINDS = {"kill client": 30, "kill clients": 8, "kill server": 28, "kill both": 8,
             "stop client": 12, "stop server": 8, "stop and kill client": 8,
             "stop and kill server": 6}

    def __init__(self, server, crowd, book, rng):
        self.server, self.crowd, self.book, self.rng = server, crowd, book, rng
        self.count = collections.Counter()
        self.kills = self.server_kills = 0

    def act(self):
        rng, crowd = self.rng, self.crowd
        kind = rng.choices(list(self.KINDS), self.KINDS.values())[0]
        self.count[kind] += 1
        victims = rng.sample(range(crowd.count), rng.randint(2, 4) if "clients" in kind else 1)
        on_server, pause_s = "server" in kind or kind == "kill both", rng.random() ** 2 * 1.5
        if "stop" in kind:
            self.signal(on_server, victims, signal.SIGSTOP)
            time.sleep(pause_s)
        if "kill" in kind:
            if kind == "kill both" or not on_server:
                self.kill_clients(victims)
            if on_server:
                self.kill_server()
        else:
            self.signal(on_server, victims, signal.SIGCONT)
        self.progress()
        time.sleep(rng.random() ** 2 * 0.4)

    def signal(self, on_server, victims, number):
        if on_server:
            self.server.signal(number)
        else:
            for i in victims:
                os.kill(self.crowd.pids[i], number)

    def kill_clients(self, victims):
        for i in victims:
            self.crowd.kill(i)
            self.kills += 1
        for i in victims:
            self.crowd.start(i)

    def kill_server(self):
        self.server.kill()
        self.kills += 1
        self.server_kills += 1
        time.sleep(self.rng.random() ** 3 * 0.2)
        inv = now()
        term, at = self.server.start(), now()
        self.book.begin("UP", inv=inv, ret=at, known_at=at, term=term)

    def progress(self):
        """Somebody commits; more often than who was about to be told."""
        wanted = self.crowd.all_commits() + self.rng.randint(1, 3 * self.crowd.count)
        until(lambda: self.crowd.all_commits() >= wanted or self.crowd.ended(),
              "transactions are committed after a kill", DEADLINE_S)


# --- A run -----------------------------------------------------------------------------------


class Run:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.report, self.server = Report(), Server(options.server, directory)
        self.rng = random.Random(options.seed)
        self.finals = {}  # table: what was there at the end of its round
        self.total, self.results = collections.Counter(), collections.Counter()
        self.kinds, self.failures, self.anomalies = collections.Counter(), [], collections.Counter()

    def run(self):
        o, left, number = self.options, self.options.kills, 0
        self.report.say("seed %d: %d kills, %d clients, server %s" % (
            o.seed, o.kills, o.clients, o.server))
        began = time.monotonic()
        os.mkdir(os.path.join(self.directory, "data"))
        self.server.start()
        try:
            # More than that, if too little has happened: the machine is slow.
            while (left > 0 or self.few() and number < LONGER_MAX) and not self.failures \
                    and not self.anomalies:
                number += 1
                left -= self.round(number, min(max(left, 5), ROUND))
            if not self.failures:
                self.last_look()
        except TROUBLE as e:
            self.failures.append(str(e))
        finally:
            self.server.kill()
        self.tell(number, time.monotonic() - began)
        return self.report.end()

    def round(self, number, kills):
        """Returns how many were killed."""
        directory = os.path.join(self.directory, "round%d" % number)
        os.mkdir(directory)
        book, tables = Book(directory, "run"), ("lists%d" % number, "bank%d" % number)
        self.open_bank(book, tables[1])
        address, seed = self.server.address, self.options.seed

        def make(name, committed):
            return Client(name, number, directory, seed, address, tables, committed)

        crowd = Tellers(self.options.clients, make)
        nemesis = Nemesis(self.server, crowd, book, self.rng)
        try:
            while nemesis.kills < kills and not crowd.ended():
                nemesis.act()
            crowd.everybody()
            if crowd.ended():
                self.failures.append("clients ended by themselves: %r" % crowd.ended())
        except TROUBLE as e:
            self.failures.append(str(e))
        finally:
            crowd.end()
        if not self.failures:
            self.read_all(book, number, tables, lines_of(directory))
        book.close()
        self.judge(directory, nemesis)
        shutil.rmtree(directory)
        return nemesis.kills

    # By nobody but the run.

    def once(self, book, request, work):
        """A transaction; nobody is in its way."""
        link = live.Client(self.server.address)
        n = book.begin("TX", inv=now(), request=request, attempt=1)
        tx = Attempt(link, request + "/1")
        term = tx("TX.BEGIN", "REQUEST", request)[0]
        book.add(n, term=term, known_at=now())
        got = work(tx)
        book.add(n, asked=now(), steps=tx.steps)
        revision = tx("TX.COMMIT")
        book.add(n, ret=now(), result="ok", revision=revision)
        link.close()
        return got

    def open_bank(self, book, table):
        self.once(book, "open-" + table, bank_of(book, table))

    def read_all(self, book, number, tables, lines):
        """All tables of the round, in one transaction."""
        got = self.once(book, "read-%d" % number, reading(tables, lines))
        self.finals.update(got)
        self.total["sum"] = sum(row[0] for row in got[tables[1]].values())

    def last_look(self):
        """A last kill; then the tables of all rounds are as they were."""
        self.server.kill()
        term = self.server.term
        if self.server.start() <= term:
            self.failures.append("term %d came after %d" % (self.server.term, term))
        link = live.Client(self.server.address)
        link("TX.BEGIN")
        for table, wanted in self.finals.items():
            got = rows(link("TX.SCAN", table), row_of if table.startswith("bank") else tags_of)
            if got != wanted:
                self.failures.append("table %s has changed: %r, and was %r" % (
                    table, got, wanted))
        link("TX.COMMIT")
        link.close()

    # What was found.

    def judge(self, directory, nemesis):
        lines = lines_of(directory)
        v = checker.Verdict(checker.parse(lines))
        self.kinds += nemesis.count
        self.total["kills"] += nemesis.kills
        self.total["server kills"] += nemesis.server_kills
        self.total["commits"] += v.commits
        self.total["writers"] += v.writers
        self.total["operations"] += sum(len(r.steps or ()) for r in v.records)
        self.total["outcomes"] += sum(1 for r in v.records if r.op == "OUTCOME")
        self.total["second answers"] += second_answers(v)
        self.total["unanswered"] += sum(1 for a in v.committed if a.record.result is None)
        self.total["scans"] += sum(1 for a in v.committed for step in a.record.steps
                                   if step[0] == "scan")
        self.results += v.results
        self.anomalies += v.kinds
        for kind, count in v.edges.items():
            self.total[kind] += count
        if v.anomalies or self.failures or self.options.keep:
            self.keep(lines, v)

    def keep(self, lines, verdict):
        o = self.options
        path = o.keep or "/tmp/sluice-tx.%d.%d.jsonl" % (o.seed, os.getpid())
        with open(path, "w") as f:
            f.writelines(lines)
        if not verdict.anomalies and not self.failures:
            return
        shutil.copy(self.server.log, path + ".log")
        for line in verdict.explain():
            self.report.say("  " + line)
        self.report.say("the history is kept in %s, what the server said in %s.log" % (path, path))
        self.report.say(again(o))

    def tell(self, rounds, seconds):
        say, test, t = self.report.say, self.report.test, self.total
        say("%d rounds in %d s: %d operations, %d attempts: %s" % (
            rounds, seconds, t["operations"], sum(self.results.values()),
            ", ".join("%s %d" % r for r in self.results.most_common())))
        say("%d commits, %d of them wrote, %d were not answered; %d times TX.OUTCOME; %d "
            "duplicates" % (
                t["commits"], t["writers"], t["unanswered"], t["outcomes"], t["second answers"]))
        say("%d kills, %d of them of the server, %d starts, term %d: %s" % (
            t["kills"], t["server kills"], self.server.starts, self.server.term,
            ", ".join("%s %d" % k for k in self.kinds.most_common())))
        say("edges: " + ", ".join("%s %d" % (k, t[k]) for k in ("ww", "wr", "rw", "rt")))
        say("%d anomalies%s; %d scans of the bank, its sum is %d of %d" % (
            sum(self.anomalies.values()), "".join(
                ", %s %d" % k for k in self.anomalies.most_common()),
            t["scans"], t["sum"], ACCOUNTS * BALANCE))
        twice = self.anomalies["applied twice"] + self.anomalies["outcome"]
        test(not sum(self.anomalies.values()) - self.anomalies["sum"] - twice, "no anomaly")
        test(not self.anomalies["sum"] and (t["sum"] == ACCOUNTS * BALANCE or self.failures),
             "the sum of the bank is constant")
        test(not twice, "nothing is applied twice")
        test(not self.failures, "all get on, and what was committed is there",
             [line[:2000] for line in self.failures])
        few = self.few()
        test(not few, "enough happened", few)

    def few(self):
        """A run in which nothing happened shows nothing."""
        t, few = self.total, []
        for what, least in (("commits", 5 * t["kills"]), ("unanswered", 1), ("outcomes", 1),
                            ("scans", t["kills"] // 4),
                            ("server kills", t["kills"] // 10),
                            ("second answers", t["kills"] // 100)):
            if t[what] < least:
                few.append("%s: %d" % (what, t[what]))
        for word in ("RESTART", "ABORT", "TOOBIG", "killed"):
            if not self.results[word]:
                few.append("none was %s" % word)
        return few


def second_answers(verdict):
    """Answers to an attempt when an earlier one was committed."""
    committed = {id(a) for a in verdict.committed}
    return sum(1 for a in verdict.attempts if a.ok and id(a) not in committed)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("server", type=os.path.abspath)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--keep")
    o = parser.parse_args()
    o.kills = o.kills or (500 if o.long else 20)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = tempfile.mkdtemp(prefix="sluice-tx.")
    try:
        return Run(o, directory).run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
