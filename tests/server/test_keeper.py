#!/usr/bin/python3
"""test_keeper.py - a cluster on an etcd, live on loopback: any node takes any command, and what
clients see when the keeper, another node or etcd dies, stops, or cannot be reached.

    tests/server/test_keeper.py SERVER [--jobs N] [PATTERN...]

Tests that break nothing share one cluster, which a process of its own holds.
"""
import contextlib
import fnmatch
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.path.insert(1, os.path.join(HERE, "../cluster/lib"))
from live import (Client, Closed, Error, Failure, Server, Skip, check, check_error, check_that,  # noqa: E402
                  fence_of, main, pairs, tap, test, test_of, threads)
from tx import begin, ok  # noqa: E402
import etcd as etcds  # noqa: E402
from nodes import Cluster  # noqa: E402
from processes import until  # noqa: E402

FOREVER = 10 ** 8
AUTHORITY_S = 2.0
SHARED = "SLUICE_TEST_KEEPER"  # in the environment: the directory of the cluster that tests share
PASSING = ("NOKEEPER", "RECOVERING", "STALE", "RESTART", "CLOSED", "NOTX")


# --- What they share ---------------------------------------------------------------------------


class Live:
    """A cluster, as clients see it."""

    def __init__(self, t, cluster):
        self.t, self.c = t, cluster

    def __getitem__(self, i):
        return self.c[i]

    @property
    def ids(self):
        return [n.id for n in self.c.running]

    def client(self, i, protocol=2):
        return Client(self.c[i].address, protocol)

    def clients(self, *ids):
        return [self.client(i) for i in ids]

    def info(self, i, client=None):
        """INFO keeper of a node; {} if it does not answer."""
        try:
            c = client or self.client(i)
            text = c("INFO", "keeper").decode()
            if client is None:
                c.close()
        except (OSError, Closed):
            return {}
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def number(self, i, name):
        return int(self.info(i)[name])

    def seen(self, ids=None):
        """(keeper, term) that all these nodes have a way to; or None."""
        said = [self.info(i) for i in ids or self.ids]
        if not said or not all(x.get("keeper_reachable") == "1" for x in said):
            return None
        pairs_ = {(int(x["keeper_node"]), int(x["term"])) for x in said}
        return pairs_.pop() if len(pairs_) == 1 else None

    def keeper(self, *ids):
        """Its number, once these nodes, or all that run, agree."""
        return until(lambda: self.seen(ids or None), "there is a keeper for all")[0]

    def term(self, *ids):
        return until(lambda: self.seen(ids or None), "there is a keeper for all")[1]

    def roles(self):
        """The keeper, and the others."""
        keeper = self.keeper()
        return [keeper] + [i for i in self.ids if i != keeper]

    def ready(self):
        """Locks are granted, so nobody waits for an old keeper any more."""
        self.keeper()
        c = self.client(self.ids[0])
        until_done(lambda: c("ACQUIRE", "ready"), "locks are granted")
        c("QUIT")
        c.close()
        return self

    def settles(self, i):
        """A node that has just started has had the same link to the keeper for a second. Before, both
        may have called, and one of the two links is closed: then a RELEASE is sent again, and the
        second one finds nothing to release."""
        ways, since = None, time.monotonic()

        def same():
            nonlocal ways, since
            info = self.info(i)
            now = info.get("keeper_changes") if info.get("keeper_reachable") == "1" else None
            if now is None or now != ways:
                ways, since = now, time.monotonic()
            return time.monotonic() - since > 1
        until(same, "node %d keeps its link to the keeper" % i)

    def waits(self, i, client, command, key, *words, count=1):
        """A client sends a command about a key; node i knows this many that wait for it."""
        client.send(command, key, *words)
        self.until_waiting(i, key, count)

    def until_waiting(self, i, key, count=1):
        c = self.client(i)
        until(lambda: pairs(c("EXPLAIN", key))["waiters_count"] == count,
              "%d wait for %s" % (count, key))
        c.close()


@contextlib.contextmanager
def cluster(t, nodes=3, etcd=1, ready=True, password=None, **more):
    """One of a test's own. After a failure its logs are told."""
    if etcds.missing():
        raise Skip(etcds.missing())
    c = Cluster(nodes, server=tap.program, etcd=etcd, **more)
    c.password = password
    with c:
        try:
            live = Live(t, c)
            yield live.ready() if ready else live
        except BaseException:
            logs = told(c)
            t.transcripts.append(lambda: logs)
            raise


@contextlib.contextmanager
def trio(t, **more):
    """A cluster of three, its keeper, and the two others: with trio(t) as (live, keeper, one, two)"""
    with cluster(t, **more) as live:
        yield [live] + live.roles()


def told(c):
    """The last of what nodes and members have said."""
    return "\n".join("%s| %s" % (p, line[:300]) for p in c.parts for line in p.log.splitlines()[-40:])


def shared(t):
    """The cluster that all share: nothing of it may be broken, and keys are the test's own."""
    if etcds.missing():
        raise Skip(etcds.missing())
    c = Cluster.open(os.environ[SHARED])
    t.transcripts.append(lambda: told(c))
    return Live(t, c)


def hold(program):
    """In a process of its own: that cluster, until standard input ends."""
    with Cluster(3, server=program, etcd=1, options={"linger": "1500ms"}) as c:
        Live(None, c).ready()
        print(c.dir, flush=True)
        sys.stdin.read()


def until_done(f, what, seconds=20):
    """Ask again while the reply is an error that passes."""
    def once():
        got = f()
        if isinstance(got, Error) and got.word not in PASSING:
            raise Failure("%s: %r" % (what, got))
        if isinstance(got, Error):
            time.sleep(0.01)
            return None
        return (got,)
    return until(once, what, seconds)[0]


def put(c, table, key, value, *request):
    """One transaction; its revision, or the error with which it ended."""
    for words in (("TX.BEGIN", *request), ("TX.PUT", table, key, value)):
        got = c(*words)
        if isinstance(got, Error):
            c("TX.ABORT")
            return got
    return c("TX.COMMIT")


def put_at_last(c, *words):
    return until_done(lambda: put(c, *words), "it is committed")


def get(c, table, key):
    begin(c)
    got = c("TX.GET", table, key)
    c("TX.COMMIT")
    return got


def get_at_last(c, *words):
    def once():
        begun = c("TX.BEGIN")
        if isinstance(begun, Error):
            return begun
        got = c("TX.GET", *words)
        c("TX.ABORT")
        return got
    return until_done(once, "it is read")


def parts(f):
    """A test at the keeper, and one at another node."""
    test_of(f.__name__ + "_at_the_keeper", f, 0)
    test_of(f.__name__ + "_at_another_node", f, 1)
    return f


# --- The same as on one server -------------------------------------------------------------------

LONG = "k" * 1025
OTHER = 10 ** 15 + 5  # a fence that nobody has


def script(k, t):
    """Commands of three connections: a, b, and x, which looks. Words that are lists: [n] is the
    n-th fence that was granted, from 0."""
    return [
        ("a", "ACQUIRE", k + "1", "NOTE", "n", "VALUE", "v"), ("b", "ACQUIRE", k + "1"),
        ("a", "ACQUIRE", k + "1", "WAIT", 100), ("x", "READ", k + "1"), ("x", "CHECK", k + "1", [0]),
        ("x", "CHECK", k + "1", OTHER), ("x", "EXTEND", k + "1", [0], 1000),
        ("x", "EXTEND", k + "1", OTHER, 1000), ("b", "RELEASE", k + "1"),
        ("x", "EXPLAIN", k + "1"), ("x", "AWAIT", k + "1", "FREE", 0), ("x", "AWAIT", k + "1", "HELD", 0),
        ("x", "LOCKS", "MATCH", k + "*"), ("a", "RELEASE", k + "1"), ("a", "RELEASE", k + "1", [0]),
        ("b", "ACQUIRE", k + "2", "LEASE", 40000, "SHARED"), ("a", "ACQUIRE", k + "2", "SHARED"),
        ("x", "ACQUIRE", k + "2"), ("x", "EXTEND", k + "2", [1], 50000, "VALUE", "w"), ("x", "READ", k + "2"),
        ("x", "EXTEND", k + "2", [1], 50000, "NOTE", "w"), ("x", "RELEASE", k + "2", [1]),
        ("a", "RELEASE", k + "2", [2]),
        ("a", "ACQUIRE", k + "3", "PER", 2, "BUCKETS", 2, "UNITS", 3), ("b", "ACQUIRE", k + "3", "PER", 4),
        ("b", "ACQUIRE", k + "3", "PER", 4, "UNITS", 2), ("x", "EXPLAIN", k + "3"),
        ("x", "BREAK", k + "3", [3]), ("x", "BREAK", k + "3", OTHER), ("x", "BREAK", k + "3", [4], "NOW"),
        ("x", "ACQUIRE", k + "3", "PER", 9, "UNITS", 10), ("x", "ACQUIRE", k + "3", "PER", 4294967295, "BUCKETS", 9),
        ("x", "DRAIN", k + "d*", "ON"), ("x", "DRAIN"), ("a", "ACQUIRE", k + "dx"),
        ("a", "ACQUIRE", k + "dx", "WAIT", 10), ("x", "DRAIN", k + "d*", "OFF"), ("x", "DRAIN", k + "d*", "OFF"),
        ("x", "DRAIN", "p" * 200, "ON"), ("x", "DRAIN", k + "d*", "MAYBE"),
        # Wrong words, and limits.
        ("a", "ACQUIRE"), ("a", "ACQUIRE", ""), ("a", "ACQUIRE", LONG), ("a", "ACQUIRE", k, "WAIT"),
        ("a", "ACQUIRE", k, "WAIT", -1), ("a", "ACQUIRE", k, "LEASE", 0), ("a", "ACQUIRE", k, "LEASE", 10 ** 9),
        ("a", "ACQUIRE", k, "WAIT", 1, "WAIT", 1), ("a", "ACQUIRE", k, "SHARED", "UNITS", 2),
        ("a", "ACQUIRE", k, "BUCKETS", 2), ("a", "ACQUIRE", k, "PRIORITY", "x"), ("a", "ACQUIRE", k, "HOLD"),
        ("a", "ACQUIRE", k, "NOTE", "n" * 5000), ("a", "RELEASE", k, 0), ("a", "RELEASE", k, "x"),
        ("a", "RELEASE", ""), ("a", "EXTEND", k, 1), ("a", "EXTEND", k, 1, 10 ** 12), ("a", "CHECK", k, "x"),
        ("a", "CHECK", LONG, 1), ("a", "READ", k), ("a", "READ", k, "TWICE"), ("a", "READ", ""),
        ("a", "AWAIT", k, "GONE", 1), ("a", "AWAIT", k, "FREE", -1), ("a", "AWAIT", k, "HELD", 10),
        ("a", "EXPLAIN", ""), ("a", "EXPLAIN", k), ("a", "LOCKS", "COUNT", 0), ("a", "LOCKS", "MATCH"),
        ("a", "LOCKS", "CURSOR", "x"), ("a", "BREAK", k, 1, "LATER"), ("a", "BREAK", k, "x"),
        # Transactions.
        ("a", "TX.GET", t, "x"), ("a", "TX.COMMIT"), ("a", "TX.ABORT"), ("a", "TX.BEGIN", "REQUEST"),
        ("a", "TX.BEGIN", "NAME", "x"), ("a", "TX.BEGIN"), ("a", "TX.BEGIN"), ("a", "TX.ABORT"), ("a", "TX.BEGIN"),
        ("a", "TX.GET", t, "x"), ("a", "TX.PUT", t, "x", "1"), ("a", "TX.PUT", t, "y", b"\0\r\n\xff"),
        ("a", "TX.GET", t, "x"), ("a", "TX.SCAN", t), ("a", "TX.DEL", t, "y"), ("a", "TX.LOCK", "WRITE", t, "z"),
        ("x", "EXPLAIN", "TX", t), ("x", "EXPLAIN", "TX", t, "x"), ("x", "LOCKS", "TX", "MATCH", t + "*"),
        ("a", "TX.COMMIT"), ("b", "TX.BEGIN", "REQUEST", k + "r"), ("b", "TX.GET", t, "x"),
        ("b", "TX.PUT", t, "x", "2"), ("b", "TX.COMMIT"), ("x", "TX.OUTCOME", k + "r"), ("x", "TX.OUTCOME", k + "s"),
        ("b", "TX.BEGIN", "REQUEST", k + "r"), ("b", "TX.PUT", t, "x", "3"), ("b", "TX.COMMIT"),
        ("a", "TX.BEGIN"), ("a", "TX.GET", t, "x"), ("a", "TX.COMMIT"),
        ("a", "TX.BEGIN"), ("a", "TX.PUT", t), ("a", "TX.COMMIT"), ("a", "TX.BEGIN"), ("a", "TX.NEVER"),
        ("a", "TX.COMMIT"), ("a", "TX.BEGIN"), ("a", "MULTI"), ("a", "TX.PUT", t, "m", "1"), ("a", "EXEC"),
        ("a", "TX.PUT", t, "n", "1"), ("a", "TX.COMMIT"), ("a", "TX.BEGIN"), ("a", "TX.PUT", t, "n", "2"), ("a", "TX.COMMIT"),
        ("a", "TX.GET", t, "n" * 600), ("a", "TX.GET", "", "n"), ("a", "TX.SCAN", ""),
        ("a", "TX.LOCK", "HOLD", t), ("a", "TX.OUTCOME", ""), ("a", "TX.OUTCOME", "r" * 1000),
        ("a", "EXPLAIN", "TX"), ("a", "EXPLAIN", "TX", t), ("a", "EXPLAIN", "RX", t),
        # And what has nothing to do with a keeper.
        ("a", "PING"), ("a", "ECHO", "e"), ("a", "MULTI"), ("a", "ACQUIRE", k), ("a", "EXEC"), ("a", "NOSUCH"),
        ("a", "SELECT", 0), ("a", "PUBSUB", "NUMSUB", "lock:" + k), ("a", "CLIENT", "GETNAME"),
        ("a", "COMMAND", "COUNT"), ("a", "COMMAND"), ("a", "PING", "last"),
    ]


# Of these the numbers are others each time.
VAGUE = ("client", "address", "held_ms", "waited_ms", "left_ms", "lease_left_ms", "age_ms", "since_ms", "transaction",
         "holder", "waits_for", "cursor")


def plain(value, fences):
    """A reply without what differs from run to run: fences by their order, no times, no ids."""
    if isinstance(value, (dict, list)) and not isinstance(value, dict):
        flat = [plain(v, fences) for v in value]
        for i in range(len(flat) - 1):
            if value[i] in [name.encode() for name in VAGUE]:
                flat[i + 1] = "_"
        return flat
    if isinstance(value, dict):
        return {k: "_" if k.decode() in VAGUE else plain(v, fences) for k, v in value.items()}
    if isinstance(value, int) and value > 10 ** 12 and value != OTHER:
        return "fence %d" % fences.index(value) if value in fences else "a fence"
    if isinstance(value, (bytes, str)):
        text = value.decode("latin1") if isinstance(value, bytes) else value
        for i, f in enumerate(fences):
            text = text.replace(str(f), "fence %d" % i)
        text = re.sub(r"127\.[0-9.]+:\d+( via node \d+)?|node \d+", "ADDRESS", text)
        text = re.sub(r"(client|transaction|connection) \d+", r"\1 _", text)
        text = re.sub(r"\d+ (ms|s|min)\b", "_ ms", text)
        return type(value)(text) if isinstance(value, str) else text
    return value


def perform(address, protocol, steps):
    """The replies, plain."""
    conns = {name: Client(address, protocol) for name in "abx"}
    fences, said = [], []
    for who, *words in steps:
        words = [fences[w[0]] if isinstance(w, list) else w for w in words]
        got = conns[who](*words)
        if words[0] == "ACQUIRE" and isinstance(got, list):
            fences.append(got[0])
            got[3] = "_"
        if words[0] in ("READ", "EXTEND") and isinstance(got, (list, int)):
            got = got[:2] if isinstance(got, list) else round(got, -4)
        if words == ["DRAIN"]:
            got = [glob for glob in got if glob.startswith(steps[0][2][:-1].encode())]
        if words[0] == "LOCKS" and isinstance(got, list):
            cursor, got = got  # there are others' keys in the shared cluster: so it may go on
            while int(cursor) != 0:
                cursor, more = conns[who](*words, "CURSOR", cursor)
                got += more
            got.sort(key=repr)
        if words[0] == "TX.BEGIN" and isinstance(got, list):
            got = "begun"
        if words[0] in ("TX.COMMIT", "TX.OUTCOME") and isinstance(got, int):
            got = "a revision"
        said.append(plain(got, fences))
    check(fences, sorted(fences), "fences rise")
    for c in conns.values():
        c("QUIT")
        c.close()
    return said


def every_node_replies_as_a_single_server(t, protocol):
    live = shared(t)
    single = t.server("--data", t.path("data"))
    name = "as%dn0" % protocol
    wanted = perform(single.address, protocol, script(name, name + "t"))
    for i in live.roles():
        k = name[:-1] + str(i)
        steps = script(k, k + "t")
        for step, got, want in zip(steps, perform(live[i].address, protocol, steps), wanted):
            check(repr(got).replace(k, name), repr(want), "at node %d, %r" % (i, step))


for protocol in (2, 3):
    test_of("every_node_replies_as_a_single_server_RESP%d" % protocol, every_node_replies_as_a_single_server, protocol)


@parts
def holders_are_told(t, at):
    live = shared(t)
    where = live.roles()[at]
    k = "told%d" % at
    victim, thief, x = live.client(where, 3), live.client(live.roles()[at - 2], 3), live.client(where)
    fence = victim.acquire(k, "LEASE", 60000, "NOTE", "the victim")
    thief.send("ACQUIRE", k, "LEASE", 50000, "WAIT", FOREVER, "PRIORITY", 7, "STEAL")
    check(victim.push(), [b"lock", k.encode(), b"asked", fence])
    waits = thief.push()
    check([waits[:4], waits[5]], [[b"lock", k.encode(), b"waits", fence], b"the victim"])
    check_error(victim("EXTEND", k, fence, 60000), "ASKED")
    check(victim("RELEASE", k), 1)
    stolen = fence_of(thief.reply())
    check_that(stolen > fence, "fences rise")
    check(x("BREAK", k, stolen, "NOW"), 2)
    check(thief.push(), [b"lock", k.encode(), b"broken", stolen])
    short = victim.acquire(k + "s", "LEASE", 60)
    check(victim.push(), [b"lock", (k + "s").encode(), b"expired", short])
    first = victim.acquire(k + "o", "LEASE", 60000)
    got = thief("ACQUIRE", k + "o", "LEASE", 60000, "WAIT", 20000, "PRIORITY", 7, "STEAL", "0.001")
    check([got[0] > first, got[4]], [True, 1])
    check([victim.push()[2], victim.push()[2]], [b"asked", b"stolen"])
    check(thief.push()[2], b"waits")


@test
def a_repeated_request_gets_its_grant_through_another_node(t):
    live = shared(t)
    id_ = b"an id of 16 byte"
    nodes = live.roles()
    for n, (first, second, third) in enumerate((nodes, nodes[1:] + nodes[:1], nodes[2:] + nodes[:2])):
        a, b, c = live.clients(first, second, third)
        key, other = "repeat%d" % n, "repeats%d" % n
        fence = fence_of(a("ACQUIRE", key, "LEASE", 60000, "REQUEST", id_))
        again = b("ACQUIRE", key, "LEASE", 60000, "REQUEST", id_)
        check((again[0], again[5]), (fence, 1), "through another node")
        check_error(c("ACQUIRE", key, "LEASE", 50000, "REQUEST", id_), "MISMATCH")
        fence = c.acquire(other, "LEASE", 60000)
        live.waits(third, a, "ACQUIRE", other, "LEASE", 60000, "WAIT", FOREVER, "REQUEST", id_)
        b.send("ACQUIRE", other, "LEASE", 60000, "WAIT", FOREVER, "REQUEST", id_)
        a.reset()
        check(c("RELEASE", other, fence), 1)
        fence = fence_of(b.reply())
        check(c("CANCEL", other, id_), 2)
        check(b("CHECK", other, fence), 0)
        check_error(b("ACQUIRE", other, "LEASE", 60000, "REQUEST", id_), "ENDED")
        check(c("CANCEL", key, id_), 2)


def a_lease_that_is_taken_away_is_not_forgotten(t, how):
    """The keeper fails before etcd has the record. Nothing was acknowledged, so the lease is held until it expires."""
    with trio(t, etcd=1) as (live, keeper, one, two):
        a, b = live.clients(one, two)
        until(lambda: all(live.info(i).get("handover_complete") == "1" for i in (keeper, one, two)),
              "the next keeper need not wait for short leases")
        sent = time.monotonic()
        fence = a.acquire("k", "LEASE", 9900)
        live.c.etcd[1].pause()
        if how == "steal":
            b.send("ACQUIRE", "k", "LEASE", 60000, "PRIORITY", 10, "STEAL", 0, "WAIT", 5000)
        else:
            b.send("BREAK", "k", fence, *(("NOW",) if how == "now" else ()))
        # The keeper executes a later command of the same node, so it has executed this one.
        until(lambda: live.client(two)("READ", "other") is None, "the keeper has executed it")
        live[keeper].kill()
        live.c.etcd[1].resume()
        b.close()
        c = live.client(one)
        got = until(lambda: [x for x in [c("ACQUIRE", "k", "WAIT", 20000)] if not isinstance(x, Error)], "it is granted")
        took = time.monotonic() - sent
        check_that(took > 9.8 or got[0][4] == 1, "granted after %.3f s: %r" % (took, got[0]))


for how in ("break", "now", "steal"):
    test_of("a_lease_that_is_taken_away_is_not_forgotten_%s" % how, a_lease_that_is_taken_away_is_not_forgotten, how)


@test
def a_cancelled_lock_without_a_lease_is_not_held_by_the_next_keeper(t):
    """The client's node would report the lock, and the connection that acquired it stays open."""
    with trio(t) as (live, keeper, one, two):
        id_ = b"an id of 16 byte"
        holder, other, b = live.clients(one, one, two)
        fence_of(holder("ACQUIRE", "k", "REQUEST", id_))
        check(other("CANCEL", "k", id_), 2)
        live[keeper].kill()
        until(lambda: not isinstance(b("ACQUIRE", "k", "WAIT", 20000, "LEASE", 1000), (Error, type(None))),
              "it is granted", 30)
        check(holder("PING"), "PONG")


@test
def a_repeated_request_gets_its_grant_from_the_next_keeper(t):
    with trio(t) as (live, keeper, one, two):
        id_ = b"an id of 16 byte"
        a, b = live.clients(one, two)
        leases = {"short": 8000, "long": 600000}
        fences = {key: fence_of(a("ACQUIRE", key, "LEASE", ms, "REQUEST", id_)) for key, ms in leases.items()}
        live[keeper].kill()
        for key, ms in leases.items():
            got = until(lambda: [x for x in [b("ACQUIRE", key, "LEASE", ms, "WAIT", 1, "REQUEST", id_)]
                                 if not isinstance(x, Error) or x.word not in PASSING], "there is a keeper")[0]
            check((fence_of(got), got[5]), (fences[key], 1), "the grant of " + key)
        check_error(b("ACQUIRE", "long", "LEASE", 1000, "REQUEST", id_), "MISMATCH")


@test
def a_repeated_request_learns_the_expiry_that_the_journal_has(t):
    """The node of the client does not know that the lease was extended through the keeper."""
    with trio(t) as (live, keeper, one, two):
        id_ = b"an id of 16 byte"
        own, a, b = live.clients(keeper, one, two)
        fence = fence_of(a("ACQUIRE", "k", "LEASE", 60000, "REQUEST", id_))
        check(own("EXTEND", "k", fence, 3600000), 3600000)
        live[keeper].pause()
        for c in (a, b):  # The next keeper has these requests from the beginning.
            c.send("ACQUIRE", "k", "LEASE", 60000, "WAIT", 30000, "REQUEST", id_)
        for i in (one, two):
            until(lambda: live.number(i, "forwarded_waiting") == 1, "it waits")
        live[keeper].kill()
        for c in (a, b):
            got = c.reply()
            check((fence_of(got), got[5]), (fence, 1))
            check_that(got[2] > 3500000, "the lease lasts for another %d ms" % got[2])


def outcome(c, key, id_):
    got = c.push()
    check(got[:4], [b"lock", key.encode(), b"outcome", id_])
    return got[4]


@test
def requests_with_notify_wait_through_every_node(t):
    live = shared(t)
    for n, node in enumerate(live.roles()):
        a, holder = live.client(node, 3), live.client(live.roles()[(n + 1) % 3])
        keys = ["notify%d.%d" % (n, i) for i in range(4)]
        ids = {key: b"the id of %-16s" % key.encode() for key in keys}
        fences = {key: holder.acquire(key, "LEASE", 60000) for key in keys}
        for key in keys:
            check(a("ACQUIRE", key, "LEASE", 60000, "WAIT", FOREVER, "REQUEST", ids[key], "NOTIFY"), "QUEUED")
        check_error(a("ACQUIRE", keys[0], "LEASE", 60000, "WAIT", 1, "REQUEST", ids[keys[0]], "NOTIFY"), "ERR", "already")
        check(a("CANCEL", keys[3], ids[keys[3]]), 1)
        for key in reversed(keys):
            check(holder("RELEASE", key, fences[key]), 1)
        for key in reversed(keys[:3]):
            got = outcome(a, key, ids[key])
            check((len(got), got[2], got[5]), (6, 60000, 0))
            fences[key] = got[0]
        check(a("CHECK", keys[3], fences[keys[3]]), 0)
        # Events of the grant are sent to the connection that has acquired it.
        holder.send("ACQUIRE", keys[0], "LEASE", 60000, "WAIT", FOREVER, "PRIORITY", 1, "STEAL")
        check(a.push(), [b"lock", keys[0].encode(), b"asked", fences[keys[0]]])
        for key in keys[:3]:
            check(a("RELEASE", key, fences[key]), 1)
        fence = fence_of(holder.reply())
        check(a("ACQUIRE", keys[0], "LEASE", 60000, "WAIT", 10, "REQUEST", b"another id 16 by", "NOTIFY"), "QUEUED")
        check(outcome(a, keys[0], b"another id 16 by"), None)
        holder("RELEASE", keys[0], fence)
        check_that(a.quiet(), "each wait has one outcome")


def notified_by_the_next_keeper(t, resigns):
    with trio(t) as (live, keeper, one, two):
        clients = [live.client(i, 3) for i in ((keeper, one, two) if resigns else (one, two))]
        holder = live.client(one)
        keys = ["k%d" % i for i in range(20)]
        fences = {key: holder.acquire(key, "LEASE", 60000) for key in keys}
        ids = {(c, key): b"client %d waits for %s" % (c, key.encode()) for c in range(len(clients)) for key in keys}
        for key in keys:
            for c, client in enumerate(clients):
                check(client("ACQUIRE", key, "LEASE", 60000, "WAIT", FOREVER, "REQUEST", ids[c, key], "NOTIFY"),
                      "QUEUED")
        if resigns:
            check_that(clients[0]("NODES", "RESIGN") > 0, "it replies with its term")
        else:
            live[keeper].kill()
        for key in keys:
            until(lambda: holder("RELEASE", key, fences[key]) == 1, "there is a keeper")
        waits = set(ids.values())
        while waits:
            client = until(lambda: next((c for c in clients if c.pushes or c.ready()), None), "the next outcome")
            _, key, what, id_, grant = client.push()
            check((what, id_ in waits, len(grant)), (b"outcome", True, 6))
            waits.remove(id_)
            check(client("RELEASE", key, grant[0]), 1)
        check_that(all(c.quiet() for c in clients), "each wait has one outcome")


@test
def an_outcome_comes_after_queued(t):
    """The keeper reads ACQUIRE and the RELEASE that lets it grant the lock at once, because it was paused."""
    with trio(t) as (live, keeper, one, _two):
        a, holder = live.client(one, 3), live.client(one)
        for n in range(10):
            key, id_ = "k%d" % n, b"the id of %-16d" % n
            fence = holder.acquire(key, "LEASE", 8000)
            live[keeper].pause()
            a.send("ACQUIRE", key, "LEASE", 8000, "WAIT", FOREVER, "REQUEST", id_, "NOTIFY")
            time.sleep(0.02)
            holder.send("RELEASE", key, fence)
            time.sleep(0.02)
            live[keeper].resume()
            check(holder.reply(), 1)
            check(a.reply(), "QUEUED")
            check(len(outcome(a, key, id_)), 6)


@test
def an_outcome_is_not_in_the_middle_of_a_reply(t):
    """A node does not read for a while, so it has received only a part of a large reply when the keeper grants a
    lock to the same client."""
    with trio(t, options={"value-bytes-max": "32k", "argument-bytes-max": "64k"}) as (live, keeper, one, two):
        holder = live.client(two)
        for _ in range(100):
            fence_of(holder("ACQUIRE", "large", "SHARED", "VALUE", "v" * 32000, "NOTE", "n" * 32000))

        def tried(n):
            a, key, id_ = live.client(one, 3), "k%d" % n, b"the id of %-16d" % n
            fence = holder.acquire(key, "LEASE", 8000)
            check(a("ACQUIRE", key, "LEASE", 8000, "WAIT", FOREVER, "REQUEST", id_, "NOTIFY"), "QUEUED")
            live[keeper].pause()
            a.send("EXPLAIN", "large")
            time.sleep(0.02)
            live[one].pause()
            live[keeper].resume()
            time.sleep(0.05)
            check(holder("RELEASE", key, fence), 1)
            live[one].resume()
            check(len(a.reply()[b"holders"]), 100)
            check(len(outcome(a, key, id_)), 6)

        for n in range(20):
            try:
                return tried(n)
            except Closed:  # The node was paused for too long, and the keeper has closed the link.
                pass
        raise Failure("the node was always paused for too long")


@test
def requests_with_notify_keep_waiting_when_the_keeper_dies(t):
    notified_by_the_next_keeper(t, False)


@test
def many_requests_with_notify_keep_their_positions(t):
    """The next keeper receives more requests of one client than it runs at once. Each keeps its own arrival."""
    with trio(t) as (live, keeper, one, two):
        holder, nodes = live.client(keeper), (one, two)  # Either may be the next keeper.
        clients = {node: (live.client(node, 3), live.client(node, 3)) for node in nodes}

        def wait(client, key, ids):
            for id_ in ids:
                client.send("ACQUIRE", key, "WAIT", FOREVER, "REQUEST", b"the id of %-16d" % id_, "NOTIFY")
            for _ in ids:
                check(client.reply(), "QUEUED")
        # Of many pairs of requests, some arrive within a millisecond, so that only their numbers differ.
        pairs_of = {node: [("k-%d-%d" % (node, i), 2000 + 2 * i) for i in range(24)] for node in nodes}
        fences = {}
        for node, (a, b) in clients.items():
            many = "many-%d" % node
            holder.acquire(many, "LEASE", 60000)
            for k, _ in pairs_of[node]:
                fences[k] = holder.acquire(k, "LEASE", 60000)
            wait(a, many, range(2000))
            for k, id_ in pairs_of[node]:
                wait(a, k, [id_])
                wait(b, k, [id_ + 1])
            wait(a, many, range(3000, 3500))
        live[keeper].kill()
        for node, (a, _b) in clients.items():
            for k, id_ in pairs_of[node]:
                until(lambda: live.client(one)("RELEASE", k, fences[k]) == 1, "there is a keeper")
                check(len(outcome(a, k, b"the id of %-16d" % id_)), 6)


@test
def requests_with_notify_keep_waiting_when_the_keeper_resigns(t):
    notified_by_the_next_keeper(t, True)


@test
def a_grant_that_was_repeated_is_not_withdrawn(t):
    """A node that was paused learns late that its clients have left. They have their grants through another node."""
    with trio(t) as (live, keeper, one, two):
        id_ = b"an id of 16 byte"
        keys = ["k%d" % i for i in range(8)]
        holder, b = live.clients(keeper, two)
        left = {key: live.client(one) for key in keys}
        fences = {key: holder.acquire(key, "LEASE", 60000) for key in keys}
        for key in keys:
            live.waits(keeper, left[key], "ACQUIRE", key, "LEASE", 60000, "WAIT", FOREVER, "REQUEST", id_)
        live[one].pause()
        for key in keys:
            left[key].reset()
            holder("RELEASE", key, fences[key])
        for key in keys:
            fences[key] = fence_of(b("ACQUIRE", key, "LEASE", 60000, "WAIT", 5000, "REQUEST", id_))
        live[one].resume()
        until(lambda: live.info(one).get("forwarded_waiting") == "0", "it has noticed")
        live.client(one)("READ", "k0")  # All that it sent before has arrived at the keeper.
        for key in keys:
            check(b("CHECK", key, fences[key]), 1, key)


@test
def a_grant_that_was_repeated_is_not_taken_back(t):
    """The first reply waits for a node that is paused. The client repeats the request through the third node, and then
    closes its first connection."""
    with trio(t) as (live, keeper, one, two):
        id_ = b"an id of 16 byte"
        until(lambda: all(live.info(i).get("handover_complete") == "1" for i in (keeper, one, two)),
              "both nodes can be the witness")
        for n, (witness, other) in enumerate(3 * ((one, two), (two, one))):
            key = "k%d" % n
            a, b = live.clients(keeper, other)
            live[witness].pause()
            a.send("ACQUIRE", key, "LEASE", 9000, "REQUEST", id_)
            # If this node is the witness, the keeper waits for half a second before it chooses the other one.
            until(lambda: b("READ", key) is not None, "the keeper has granted it")
            fence = fence_of(b("ACQUIRE", key, "LEASE", 9000, "REQUEST", id_))
            a.reset()
            check(live.client(other)("ACQUIRE", key, "LEASE", 100, "WAIT", 100), None)
            check(b("CHECK", key, fence), 1)
            live[witness].resume()
            until(lambda: live.info(keeper).get("handover_complete") == "1", "it is ready again")


@test
def a_grant_that_was_repeated_survives_a_resignation(t):
    """The keeper resigns before it has replied to the first attempt of its own client."""
    with trio(t) as (live, keeper, one, two):
        id_ = b"an id of 16 byte"
        until(lambda: all(live.info(i).get("handover_complete") == "1" for i in (keeper, one, two)),
              "both nodes can be the witness")
        a, b, operator = live.clients(keeper, two, keeper)
        live[one].pause()  # The witness is the node with the lowest number.
        a.send("ACQUIRE", "k", "LEASE", 9900, "REQUEST", id_)
        until(lambda: b("READ", "k") is not None, "the keeper has granted it")
        fence = fence_of(b("ACQUIRE", "k", "LEASE", 9900, "REQUEST", id_))
        operator.send("NODES", "RESIGN")
        until(lambda: live.info(two).get("keeper_node") != str(keeper), "there is another keeper")
        live[one].resume()

        def tried():
            b("EXTEND", "k", fence, 9900)
            return [x for x in [live.client(two)("ACQUIRE", "k", "LEASE", 100)] if not isinstance(x, Error)]
        got = until(tried, "the new keeper grants")
        check(got, [None], "the lock is held")
        check(b("CHECK", "k", fence), 1)


@test
def a_grant_without_a_lease_moves_to_the_connection_that_repeats_it(t):
    for same in (True, False):
        with trio(t) as (live, keeper, one, two):
            id_ = b"an id of 16 byte"
            a, b = live.clients(one, one if same else two)
            fence = fence_of(a("ACQUIRE", "k", "REQUEST", id_))
            got = b("ACQUIRE", "k", "REQUEST", id_)
            check((got[0], got[5]), (fence, 1))
            until(lambda: [live.info(i)["handover_grants"] for i in ((one,) if same else (one, two))] ==
                  (["1"] if same else ["0", "1"]), "only its node has the record")
            a.close()
            live[keeper].kill()
            other = live.client(one)
            until(lambda: not isinstance(other("ACQUIRE", "free"), Error), "there is a keeper that grants")
            check(other("ACQUIRE", "k"), None, "it is still held")
            check(b("RELEASE", "k", fence), 1)
            until(lambda: [live.info(i)["handover_grants"] for i in (one, two)].count("0") >= 1, "the record is gone")


@test
def a_grant_without_a_lease_moves_although_both_attempts_waited_for_etcd(t):
    """The end of an earlier lease is not in etcd yet. So both attempts wait, and then the later one has the grant."""
    for other in (1, 2):  # Repeat the request at the keeper, or through the third node.
        with trio(t) as (live, keeper, one, two):
            id_ = b"an id of 16 byte"
            b_node = (keeper, two)[other - 1]

            def try_it():
                """Return the replies, or None if the keeper has lost its authority meanwhile."""
                holder, a, b = live.clients(keeper, one, b_node)
                key = "k%d" % len(tried)
                tried.append(key)
                held = holder.acquire(key, "LEASE", 60000)
                live.c.etcd[1].pause()
                check(holder("RELEASE", key, held), 1)
                a.send("ACQUIRE", key, "REQUEST", id_)
                live.client(one)("READ", "other")  # The keeper has received what the node sent before.
                b.send("ACQUIRE", key, "REQUEST", id_, "WAIT", 60000)
                live.client(b_node)("READ", "other")
                live.c.etcd[1].resume()
                got = a.reply(), b.reply()
                if not any(isinstance(x, Error) for x in got):
                    return key, a, b, got
                for x in a, b:
                    x.close()
                return None
            tried = []
            key, a, b, got = until(try_it, "the keeper has authority all the time")
            check((got[1][0], got[0][5], got[1][5]), (got[0][0], 0, 1))
            until(lambda: live.info(one)["handover_grants"] == "0", "the first node has no record of it")
            if b_node == two:
                until(lambda: live.info(two)["handover_grants"] == "1", "the other node has the record")
                a.close()
                live[keeper].kill()
                c = live.client(one)
                until(lambda: not isinstance(c("ACQUIRE", "free"), Error), "there is a keeper that grants")
                check(c("ACQUIRE", key), None, "it is still held")
            check(b("RELEASE", key, got[1][0]), 1)


@test
def subscribers_at_every_node_receive_all_events(t):
    live = shared(t)
    listeners = [live.client(i, protocol) for i in live.roles() for protocol in (2, 3)]
    for i, x in enumerate(listeners):
        if i % 2:
            x.subscribe("lock:heard*", command="PSUBSCRIBE")
        else:
            x.subscribe("lock:heard1", "lock:heard2")
    probe = live.client(1)
    for x in listeners:  # that it listens is told to the keeper a moment later
        def hears():
            probe("RELEASE", "heard2", probe.acquire("heard2"))
            return x.ready()
        until(hears, "it is told")
    last = probe.acquire("heard2", "NOTE", "the last")
    for x in listeners:
        while not x.message()[1].startswith("granted %d " % last):
            pass
    for i in live.ids:
        a, b = live.client(i), live.client(i % 3 + 1)
        fence = a.acquire("heard1", "LEASE", 60000)
        check(b("EXTEND", "heard1", fence, 70000), 70000)
        check(b("RELEASE", "heard1", fence), 1)
        for x in listeners:
            got = x.messages(3)
            check_that(got[0][1].startswith("granted %d held=1 lease_ms=60000 " % fence), repr(got))
            check(got[1:], [("lock:heard1", "extended %d lease_ms=70000" % fence),
                            ("lock:heard1", "released %d" % fence)])
    c = live.client(2)
    fence = c.acquire("heard1")
    c.close()
    for x in listeners:
        check_that(x.message()[1].startswith("granted %d " % fence), "it is told")
        check(x.message()[1], "released %d why=disconnect" % fence)


@test
def subscribers_learn_that_the_keeper_has_changed(t):
    """After the event, they hear all events of the new keeper."""
    with trio(t) as (live, keeper, one, two):
        term = live.term()
        listeners = [live.client(i, 3) for i in (one, two)]
        for x in listeners:
            x.subscribe("lock:k", "other")
            x.subscribe("lock:k?", "lock:z", command="PSUBSCRIBE")
        c = live.client(one)
        for x in listeners:
            def hears():
                c("RELEASE", "k", c.acquire("k"))
                return x.ready()
            until(hears, "the keeper knows of it")
        live[keeper].kill()
        live.ready()
        new = live.keeper()
        fence = c.acquire("k", "LEASE", 60000)
        wanted = "keeper-changed %d node=%d" % (live.term(), new)
        check_that(live.term() > term, "it is a new term")
        for x in listeners:
            got = [x.message()]
            while not got[-1][1].startswith("granted %d " % fence):
                got.append(x.message())
            changes = [m for m in got if m[1].startswith("keeper-changed")]
            check_that(changes.count(("lock:k", wanted)) >= 1, repr(changes))
            check_that(changes.count(("lock:", wanted)) >= 2, repr(changes))
            check(set(changes) - {("lock:k", wanted), ("lock:", wanted)}, set())


@parts
def a_pipeline_keeps_its_order(t, at):
    live = shared(t)
    c = live.client(live.roles()[at], 3)
    k = "pipe%d-" % at
    for i in range(300):
        c.send("PING", i).send("ACQUIRE", k + str(i)).send("ECHO", i).send("TX.OUTCOME", "never")
        c.send("RELEASE", k + str(i)).send("NOSUCH")
    c.socket.shutdown(1)
    last = 0
    for i in range(300):
        check(c.reply(), b"%d" % i)
        fence = fence_of(c.reply())
        check_that(fence > last, "fences rise")
        last = fence
        check([c.reply(), c.reply(), c.reply()], [b"%d" % i, None, 1])
        check_error(c.reply(), "ERR")
    check(c.until_closed(), b"", "and then it is closed")


@parts
def who_ends_its_stream_while_it_waits_has_gone(t, at):
    live = shared(t)
    holder, c, last = live.clients(live.roles()[at - 2], live.roles()[at], live.roles()[0])
    k = "half%d" % at
    holder.acquire(k)
    c.send("PING").send("ACQUIRE", k, "WAIT", FOREVER)
    c.socket.shutdown(1)
    check(c.until_closed(), b"+PONG\r\n", "what it was told")
    until(lambda: pairs(last("EXPLAIN", k))["waiters_count"] == 0, "it waits no more")


@parts
def a_duration_may_have_a_unit(t, at):
    live = shared(t)
    a, b = live.clients(live.roles()[0], live.roles()[at])
    k = "unit%d" % at
    fence, _, lease, _, _ = b("ACQUIRE", k, "LEASE", "1.5m", "WAIT", "5s")
    check(lease, 90000)
    check(b("EXTEND", k, fence, "5m"), 300000)
    for command, wanted in (("ACQUIRE %s WAIT 300ms", None), ("AWAIT %s FREE 0.3s", 0)):
        start = time.monotonic()
        check(b(*(command % k).split()), wanted)
        check_that(time.monotonic() - start >= 0.3, "it waited for 300 ms")
    check_error(b("ACQUIRE", k, "LEASE", "30S"), "ERR", 'got "30S"')
    check_error(b("ACQUIRE", k, "LEASE", "25h"), "TOOBIG", "24h (lease-max)")
    begin(a), begin(b)
    ok(a, "TX.LOCK", "WRITE", k, "x")
    check(b("TX.LOCK", "WRITE", k, "x", "WAIT", "20ms"), None)


@parts
def a_bounded_wait_of_a_transaction(t, at):
    live = shared(t)
    a, b = live.clients(live.roles()[0], live.roles()[at])
    k = "bounded%d" % at
    begin(a), begin(b)
    ok(a, "TX.LOCK", "WRITE", k, "x")
    for words in (("x", "WAIT", 0), ("WAIT", 0), ("x", "WAIT", 50)):
        check(b("TX.LOCK", "WRITE", k, *words), None)
    ok(b, "TX.LOCK", "WRITE", k, "y", "WAIT", 0)
    b.send("TX.LOCK", "WRITE", k, "x", "WAIT", FOREVER)
    ok(a, "TX.ABORT")
    check(b.reply(), "OK")
    ok(b, "TX.PUT", k, "x", 1)
    check_that(isinstance(b("TX.COMMIT"), int), "nil is no error")
    check(get(a, k, "x"), b"1")


@parts
def a_restarted_transaction_takes_its_write_locks_again(t, at):
    live = shared(t)
    a, b, look = live.clients(live.roles()[at], live.roles()[at - 1], live.roles()[0])
    k = "again%d" % at
    waits = lambda key: pairs(look("EXPLAIN", "TX", k, key))["waiters_count"]  # noqa: E731
    begin(a), begin(b)
    ok(a, "TX.PUT", k, "x", "a")
    ok(b, "TX.PUT", k, "y", "b")
    a.send("TX.PUT", k, "y", "a")
    until(lambda: waits("y") == 1, "one waits")
    check_error(b("TX.GET", k, "x"), "RESTART")
    check(a.reply(), "OK")
    begin(b)
    b.send("TX.GET", k, "z")
    until(lambda: waits("x") == 1, "it waits for what it had")
    a("TX.COMMIT")
    check(b.reply(), None)
    check(look("TX.BEGIN")[0], live.seen()[1])
    for key in ("x", "y"):
        check(look("TX.LOCK", "READ", k, key, "WAIT", 0), None)
    look("TX.ABORT"), b("TX.COMMIT")


@parts
def large_things_pass(t, at):
    live = shared(t)
    c = live.client(live.roles()[at])
    value = os.urandom(16000)
    rows = {b"%04d" % i: value[i:] for i in range(400)}
    begin(c)
    for k, v in rows.items():
        c.send("TX.PUT", "large%d" % at, k, v)
    check([c.reply() for _ in rows], ["OK"] * len(rows))
    check_error(c("TX.COMMIT"), "WRITES", "etcd-request-bytes-max")
    for i in range(0, 400, 50):
        begin(c)
        for k in sorted(rows)[i:i + 50]:
            ok(c, "TX.PUT", "large%d" % at, k, rows[k])
        check_that(isinstance(c("TX.COMMIT"), int), "it is committed")
    other = live.client(live.roles()[at - 2])
    begin(other)
    got = other("TX.SCAN", "large%d" % at)
    check_that(isinstance(got, list), "6 MB arrive: %s" % repr(got)[:200])
    check(dict(zip(got[::2], got[1::2])) == rows, True, "they are those, of %d" % len(got))
    other("TX.COMMIT")
    note = "n" * 4096
    fence = c.acquire("large%d" % at, "NOTE", note, "VALUE", "v" * 4096)
    check(other("READ", "large%d" % at)[:2], [b"v" * 4096, fence])
    holder = pairs(pairs(other("EXPLAIN", "large%d" % at))["holders"][0])
    check(holder["note"], note.encode())
    for i in range(1500):
        c.send("ACQUIRE", "many%d-%04d" % (at, i), "NOTE", "n" * 500)
    for i in range(1500):
        fence_of(c.reply())
    cursor, found = 0, set()
    while True:
        cursor, some = other("LOCKS", "MATCH", "many%d-*" % at, "CURSOR", cursor, "COUNT", 400)
        found |= {pairs(x)["key"] for x in some}
        if int(cursor) == 0:
            break
    check(len(found), 1500, "locks that are listed")
    check(c("RESET"), "RESET")
    until(lambda: other("LOCKS", "MATCH", "many%d-*" % at)[1] == [], "all is released")


@test
def a_large_scan_does_not_stop_the_keeper(t):
    with trio(t) as (live, keeper, one, two):
        c, k = live.clients(one, keeper)
        value = os.urandom(15000)
        for i in range(0, 400, 50):
            begin(c)
            for n in range(i, i + 50):
                c.send("TX.PUT", "t", n, value)
            check([c.reply() for _ in range(50)], ["OK"] * 50)
            check_that(isinstance(c("TX.COMMIT"), int), "it is committed")
        begin(c)
        check(len(c("TX.SCAN", "t")), 800)
        said = re.search(r"loop_cpu_us_max:(\d+)", k("INFO", "latency").decode())
        check_that(int(said.group(1)) < 60000, "the longest turn took %s us" % said.group(1))


@parts
def reset_quit_and_kill_give_back(t, at):
    live = shared(t)
    where, away = live.roles()[at], live.client(live.roles()[at - 2])
    k = "gone%d" % at
    c = live.client(where)
    c.acquire(k)
    begin(c)
    ok(c, "TX.PUT", k, "x", "1")
    check(c("RESET"), "RESET")
    until(lambda: isinstance(away("ACQUIRE", k), list), "RESET releases")
    check_error(c("TX.COMMIT"), "NOTX")
    away("RELEASE", k)
    until_done(lambda: put(away, k, "x", "2"), "and the lock of its transaction")
    c.acquire(k)
    check(c("QUIT"), "OK")
    began = time.monotonic()
    until(lambda: isinstance(away("ACQUIRE", k), list), "QUIT releases")
    check_that(time.monotonic() - began < 1.2, "and at once")
    away("RELEASE", k)
    c = live.client(where)
    c.acquire(k)
    number, killer, began = c("CLIENT", "ID"), live.client(where), time.monotonic()
    check(killer("CLIENT", "KILL", "ID", number), 1)
    c.until_closed()
    until(lambda: isinstance(away("ACQUIRE", k), list), "after a while it is released")
    took = time.monotonic() - began
    check_that(1.4 < took < 8, "that was after linger: %.3f s" % took)


@parts
def who_hangs_up_gives_back(t, at):
    live = shared(t)
    where, away = live.roles()[at], live.client(live.roles()[at - 2])
    k = "bye%d" % at
    for how in ("close", "reset"):
        holder, waiter, leaser = live.clients(where, where, where)
        fence = holder.acquire(k)
        lease = leaser.acquire(k + "l", "LEASE", 30000)
        live.waits(where, waiter, "ACQUIRE", k, "WAIT", FOREVER)
        began = time.monotonic()
        for c in (waiter, leaser, holder):
            getattr(c, how)()
        until(lambda: pairs(away("EXPLAIN", k))["waiters_count"] == 0, "it waits no more")
        got = until(lambda: away("ACQUIRE", k), "it is released")
        took = time.monotonic() - began
        check_that(fence_of(got) > fence, "fences rise")
        check_that(took < 1.4 if how == "close" else 1.4 < took < 8, "%s: after %.3f s" % (how, took))
        check(away("CHECK", k + "l", lease), 1, "a lease goes on")
        check(away("EXTEND", k + "l", lease, 31000), 31000)
        check(away("RELEASE", k + "l", lease), 1)
        away("RELEASE", k)


@test
def a_holder_without_a_lease_may_be_idle(t):
    """idle-time is for clients that hold nothing."""
    with cluster(t, options={"idle-time": "2s"}) as live:
        for i in live.ids:
            c, idle = live.clients(i, i)
            fence = c.acquire("idle")
            check(idle("ACQUIRE", "idle"), None)
            check(idle.until_closed(), b"", "a client without grants is disconnected")
            time.sleep(1.1)
            check(c("CHECK", "idle", fence), 1)
            check(c("RELEASE", "idle"), 1)


@test
def a_password_is_asked_for_by_each_node(t):
    with cluster(t, 2, password="open sesame", ready=False) as live:
        for i in live.ids:
            c = live.client(i)
            check_error(c("ACQUIRE", "k"), "NOAUTH")
            check_error(c("AUTH", "wrong"), "WRONGPASS")
            check_error(c("TX.BEGIN"), "NOAUTH")
            check(c("AUTH", "open sesame"), "OK")
            fence = fence_of(until_done(lambda: c("ACQUIRE", "k"), "it is granted"))
            check(c("RELEASE", "k", fence), 1)
            check(c("RESET"), "RESET")
            check_error(c("ACQUIRE", "k"), "NOAUTH")


@test
def a_client_of_another_node_can_be_disconnected(t):
    with trio(t, options={"linger": "300ms"}) as (live, keeper, one, _):
        c, k = live.clients(one, keeper)
        c.acquire("k")
        seen = [line for line in k("CLIENT", "LIST").decode().splitlines() if "addr=node %d" % one in line]
        check(len(seen), 1, "CLIENT LIST at the keeper")
        check(k("CLIENT", "KILL", "ID", re.match(r"id=(\d+) ", seen[0]).group(1)), 1)
        check(c.until_closed(), b"")
        check_that(fence_of(k("ACQUIRE", "k", "WAIT", 20000)), "what it held is released")


# --- Nodes that die ------------------------------------------------------------------------------


@test
def a_node_dies_and_its_leases_continue(t):
    with trio(t, options={"linger": "500ms"}) as (live, keeper, node, third):
        a, b = live.clients(node, third)
        plain_, lease = a.acquire("plain"), a.acquire("lease", "LEASE", 60000)
        counted = a.acquire("count", "PER", 2)
        b.acquire("count", "PER", 2)
        begin(a)
        ok(a, "TX.PUT", "t", "x", "of the dead")
        waiter = live.client(node)
        live.waits(third, waiter, "ACQUIRE", "lease", "WAIT", FOREVER)
        live[node].kill()
        got = fence_of(b("ACQUIRE", "plain", "WAIT", 20000))
        check_that(got > plain_, "fences rise")
        check_that(fence_of(b("ACQUIRE", "count", "PER", 2, "WAIT", 20000)) > counted, "fences rise")
        until(lambda: pairs(b("EXPLAIN", "lease"))["waiters_count"] == 0, "its waiters are gone")
        check(b("CHECK", "lease", lease), 1)
        check(b("EXTEND", "lease", lease, 70000), 70000)
        put_at_last(b, "t", "x", "1")
        check(live.keeper(), keeper, "the keeper")
        live[node].start()
        live.settles(node)
        c = live.client(node)
        check(c("RELEASE", "lease", lease), 1)
        check_that(c.acquire("lease") > lease, "fences rise")


@test
def the_keeper_is_killed_again_and_again(t):
    """Twenty times: the next commit is there soon; what was under way is applied once."""
    longest, restarts = 0.0, 0
    with cluster(t, etcd=3, options={"linger": "500ms"}) as live:
        last_revision = 0
        for round_ in range(20):
            keeper, one, two = live.roles()
            a, b = live.clients(one, two)
            begin(a, "REQUEST", "r%d" % round_)
            value = int(a("TX.GET", "t", "count") or 0)
            check(value, round_, "what was counted so far")
            ok(a, "TX.PUT", "t", "count", value + 1)
            a.send("TX.COMMIT")
            if round_ % 2:  # some are answered before, some not
                time.sleep(0.001 * round_)
            began = time.monotonic()
            live[keeper].kill()
            put_at_last(b, "t", "b", round_)
            took = time.monotonic() - began
            longest = max(longest, took)
            got = a.reply()
            while isinstance(got, Error):
                restarts += 1
                check_that(got.word in ("STALE", "NOKEEPER", "CLOSED"), "the commit: %r" % got)
                got = a("TX.OUTCOME", "r%d" % round_)
                if got is None:  # it is done again
                    begin(a, "REQUEST", "r%d" % round_)
                    value = int(a("TX.GET", "t", "count") or 0)
                    ok(a, "TX.PUT", "t", "count", value + 1)
                    got = a("TX.COMMIT")
            check_that(got > last_revision, "revisions rise: %r after %d" % (got, last_revision))
            check(b("TX.OUTCOME", "r%d" % round_), got, "the outcome, elsewhere")
            last_revision = got
            live[keeper].start(wait=False)
            live[keeper].wait_ready()
            until(lambda: live.seen(), "all have a way")
        check(get(b, "t", "count"), b"20")
        check_that(live.term() >= 21, "terms rise")
    print("# next commit after kill -9: %.0f ms at most; %d done again" % (longest * 1000, restarts), flush=True)
    check_that(longest < 2, "the longest was %.3f s" % longest)


@test
def a_request_is_applied_once_over_three_keepers(t):
    with trio(t) as (live, keeper, one, two):
        c = live.client(one)
        put(c, "t", "x", "0")
        first = put(c, "t", "x", "1", "REQUEST", "once")
        put(c, "t", "x", "2")
        for _ in range(3):
            keeper = live.keeper()
            live[keeper].kill()
            for i in live.ids:
                x = live.client(i)
                check(put_at_last(x, "t", "x", "again", "REQUEST", "once"), first, "its revision")
                check(x("TX.OUTCOME", "once"), first)
            live[keeper].start()
        check(get(live.client(live.keeper()), "t", "x"), b"2", "the value")


# --- Locks when the keeper dies ------------------------------------------------------------------


@test
def a_new_keeper_reclaims_the_grants_of_other_nodes(t):
    """Under the old fence; nobody else is granted more than the capacity; later fences are higher."""
    with trio(t) as (live, keeper, one, two):
        a, b, x = live.clients(one, two, two)
        held = {"mutex": a.acquire("mutex", "NOTE", "n", "VALUE", "v"),
                "lease": a.acquire("lease", "LEASE", 3000),
                "shared": a.acquire("shared", "SHARED"),
                "count": a.acquire("count", "PER", 3, "UNITS", 2)}
        b.acquire("shared", "SHARED")
        other = b.acquire("count", "PER", 3, "LEASE", 3000)
        a.acquire("released")
        check(a("RELEASE", "released"), 1)
        extended = a.acquire("extended", "LEASE", 900)
        check(b("EXTEND", "extended", extended, 9000), 9000, "through another node")
        old = live.term()
        live[keeper].kill()
        for key, fence in list(held.items()) + [("count", other), ("extended", extended)]:
            check(x("CHECK", key, fence), 1, "%s is held" % key)
        check(live.term() > old, True, "another keeper")
        check(x("READ", "mutex")[:2], [b"v", held["mutex"]])
        check(9000 <= x("EXTEND", "extended", extended, 9000) < 11000, True)
        check_error(a("EXTEND", "mutex", held["mutex"], 1000), "NOLEASE")
        for key, words in (("mutex", ()), ("lease", ()), ("shared", ()), ("count", ("PER", 3)),
                           ("released", ())):
            got = x("ACQUIRE", key, *words)
            if not isinstance(got, Error):
                check(got, None, "%s, for somebody else" % key)
            else:
                check_error(got, "RECOVERING")
        began = time.monotonic()
        later = fence_of(x("ACQUIRE", "released", "WAIT", 20000))
        check_that(later > max(held.values()), "fences rise")
        for key in ("mutex", "shared", "count"):
            check(a("CHECK", key, held[key]), 1, "%s is held after the wait" % key)
        check(b("ACQUIRE", "mutex"), None)
        check(a("RELEASE", "count"), 1)
        check_that(fence_of(b("ACQUIRE", "count", "PER", 3, "UNITS", 2)) > later, "fences rise")
        check(b("ACQUIRE", "count", "PER", 3, "UNITS", 2), None, "more than the capacity")
        check(a("RELEASE", "mutex"), 1)
        check_that(fence_of(b("ACQUIRE", "mutex")) > later, "fences rise")
        a.close()
        until(lambda: isinstance(x("ACQUIRE", "lease", "WAIT", 20000), list), "the lease expires")
        check(sum(live.number(i, "reclaims_rejected") for i in live.ids), 0)


def where(client, node):
    """The address of a client, as all nodes show it."""
    host, port = client.socket.getsockname()[:2]
    return b"%s:%d via node %d" % (host.encode(), port, node)


def holder_of(client, key):
    """Its name, its address, and whether it is connected, as EXPLAIN shows them."""
    h = pairs(pairs(client("EXPLAIN", key))["holders"][0])
    return [h["name"], h["address"], h["connected"]]


@test
def every_node_names_the_holders_also_after_a_failover(t):
    """A client of each node holds a lease, closes its connection, and the keeper fails."""
    with trio(t) as (live, keeper, one, two):
        x = live.client(two)
        clients = {i: live.client(i) for i in (keeper, one, two)}
        expected = {}
        for i, c in clients.items():
            check(c("CLIENT", "SETNAME", "of-%d" % i), "OK")
            c.acquire("left-%d" % i, "LEASE", 600000)
            c.acquire("several-%d" % i, "LEASE", 600000, "PER", 2)
            expected[i] = [b"of-%d" % i, where(c, i)]
        stay = {i: live.client(i) for i in (one, two)}
        for i, c in stay.items():
            c("CLIENT", "SETNAME", "stays")
            c.acquire("stays-%d" % i)
            c("CLIENT", "SETNAME", "renamed")
            c.acquire("renamed-%d" % i, "LEASE", 600000)
        for c in clients.values():
            c.close()
        for i in clients:
            for key in ("left-%d" % i, "several-%d" % i):
                until(lambda: holder_of(x, key) == expected[i] + [0], "%s: %r" % (key, expected[i]))
        for i, c in stay.items():
            check(holder_of(x, "stays-%d" % i), [b"stays", where(c, i), 1])
            check(holder_of(x, "renamed-%d" % i), [b"renamed", where(c, i), 1])
        listed = {pairs(m)["key"]: pairs(pairs(m)["holder"]) for m in x("LOCKS", "COUNT", 100)[1]}
        check([listed[b"left-%d" % keeper]["name"], listed[b"stays-%d" % one]["name"]], [expected[keeper][0], b"stays"])
        k = live.client(keeper)
        fences = {key: pairs(pairs(k("EXPLAIN", key))["holders"][0])["fence"]
                  for key in ("left-%d" % keeper, "several-%d" % keeper, "left-%d" % one)}

        def are_recorded():
            """A node that has just started may miss the first report of the keeper's own leases."""
            for key in ("left-%d" % keeper, "several-%d" % keeper):
                check(k("EXTEND", key, fences[key], 600000), 600000)
            # The other nodes have no record of the two long leases, which are in etcd.
            return sum(live.number(i, "handover_grants") for i in (one, two)) == 8
        until(are_recorded, "the other nodes know all grants")
        check(x("EXTEND", "left-%d" % one, fences["left-%d" % one], 700000), 700000, "through another node")
        live[keeper].kill()
        live.keeper(one, two)
        for i in clients:
            for key in ("left-%d" % i, "several-%d" % i):
                until(lambda: pairs(x("EXPLAIN", key))["holders_count"] == 1, "%s is reclaimed" % key)
                check(holder_of(x, key)[:2], expected[i], key)
        for i, c in stay.items():
            check(holder_of(x, "stays-%d" % i)[1:], [where(c, i), 1])
            check(holder_of(x, "renamed-%d" % i), [b"renamed", where(c, i), 1])


@test
def LOCKS_WAITED_through_another_node(t):
    live = shared(t)
    keeper, one, two = live.roles()
    holder, first, second, x = live.clients(one, two, keeper, one)
    number = "%s-%d" % (t.name, os.getpid())
    keys = ["waited:%s:%d" % (number, i) for i in range(3)]
    holder("CLIENT", "SETNAME", "holder")
    for key in keys:
        holder.acquire(key)
    live.waits(one, first, "ACQUIRE", keys[2], "WAIT", FOREVER)
    time.sleep(0.005)
    live.waits(one, second, "ACQUIRE", keys[1], "WAIT", FOREVER)
    for i in (keeper, one, two):
        cursor, maps = live.client(i)("LOCKS", "WAITED", "MATCH", "waited:%s:*" % number, "COUNT", 1000)
        check(cursor, b"0")
        maps = [pairs(m) for m in maps]
        check([m["key"].decode() for m in maps], [keys[2], keys[1]], "at node %d" % i)
        check([pairs(m["holder"])["name"] for m in maps], [b"holder", b"holder"])
        check(pairs(maps[0]["holder"])["address"], where(holder, one))
    waiter = pairs(pairs(x("EXPLAIN", keys[2]))["waiters"][0])
    check([waiter["address"], waiter["connected"]], [where(first, two), 1])


@test
def released_and_stolen_grants_are_not_reclaimed(t):
    with trio(t) as (live, keeper, one, two):
        a, b, at_keeper = live.clients(one, two, keeper)
        # Extended through another node, then released by the client that acquired it; then another client has it.
        f = a.acquire("extended", "LEASE", 60000)
        check(b("EXTEND", "extended", f, 60000), 60000)
        check(a("RELEASE", "extended", f), 1)
        now = {"extended": a.acquire("extended")}
        # Released by others.
        f = a.acquire("by another", "LEASE", 60000)
        check(b("RELEASE", "by another", f), 1)
        now["by another"] = b.acquire("by another")
        f = a.acquire("at the keeper", "LEASE", 60000)
        check(at_keeper("RELEASE", "at the keeper", f), 1)
        now["at the keeper"] = b.acquire("at the keeper")
        f = at_keeper.acquire("of the keeper", "LEASE", 60000)
        check(b("EXTEND", "of the keeper", f, 60000), 60000)
        check(at_keeper("RELEASE", "of the keeper", f), 1)
        now["of the keeper"] = a.acquire("of the keeper")
        f = a.acquire("broken", "LEASE", 60000)
        check(b("BREAK", "broken", f, "NOW"), 2)
        now["broken"] = fence_of(b("ACQUIRE", "broken"))
        f = a.acquire("stolen", "LEASE", 60000)
        got = b("ACQUIRE", "stolen", "WAIT", 20000, "PRIORITY", 7, "STEAL", "0.0001")
        check(got[4], 1, "it entered next to the victim")
        now["stolen"] = got[0]
        # Node `one` also keeps the lease of the victim, until it expires.
        until(lambda: live.number(one, "handover_grants") == 3 and live.number(two, "handover_grants") == 4,
              "nodes know what is over", 10)
        holders = {key: pairs(a("EXPLAIN", key))["holders_count"] for key in now}
        check(holders, dict(dict.fromkeys(now, 1), stolen=2))
        time.sleep(1.5)  # The ends of the leases are in the journal.
        live[keeper].kill()
        for key, fence in now.items():
            for x in (a, b):
                check(x("CHECK", key, fence), 1, "%r is held" % key)
        for key in now:
            check(pairs(a("EXPLAIN", key))["holders_count"], holders[key], "%r: how many hold it" % key)
        check(sum(live.number(i, "reclaims_rejected") for i in live.ids), 0)


def are_complete(live, ids):
    """Whether the next keeper need not wait for short leases."""
    return all(live.number(i, "handover_complete") for i in ids)


@test
def a_new_keeper_does_not_wait_for_short_leases_that_all_nodes_have_reported(t):
    """A node was restarted before: it knows the leases again, also those of its former clients."""
    with trio(t, options={"lease-volatile": "5m"}) as (live, keeper, one, two):
        c, a, b = live.clients(keeper, one, two)
        until(lambda: are_complete(live, live.ids), "all leases are known twice")
        fences = {key: x.acquire(key, "LEASE", 250000) for x, key in ((c, "own"), (a, "a"), (b, "b"))}
        live[one].kill()
        live[one].start()
        until(lambda: are_complete(live, live.ids), "all leases are known twice again")
        live[keeper].kill()
        check_that(fence_of(b("ACQUIRE", "free", "LEASE", 1000, "WAIT", 100000)) > max(fences.values()), "fences rise")
        a = live.client(one)
        for key, fence in fences.items():
            check([b("CHECK", key, fence), b("ACQUIRE", key, "LEASE", 1000)], [1, None], key)
            left = a("EXTEND", key, fence, 250000)
            check_that(left >= 250000, "%s: %r ms are left" % (key, left))
        waited = [waited_ms(live, n) for n in (one, two)]
        check_that(any(ms is not None and ms <= 2010 for ms in waited), "only for the authority: %r" % waited)


@test
def a_lease_whose_client_is_lost_before_the_witness_has_confirmed_it_ends(t):
    """The witness is the other node with the lower number. Its messages to the keeper are slow."""
    with trio(t, proxied=True, options={"lease-volatile": "60s"}) as (live, keeper, one, two):
        witness = min(one, two)
        recorded = functools.partial(live.number, witness, "handover_grants")
        live.c.slow(witness, keeper, delay_ms=200)

        def is_lost_in_time():
            c = live.client(keeper)
            c.send("ACQUIRE", "k", "LEASE", 60000)
            until(lambda: recorded() == 1, "the witness has recorded the lease")
            in_time = not c.ready()
            if not in_time:
                fence = fence_of(c.reply())
                check(c("RELEASE", "k", fence), 1)
            c.reset()
            until(lambda: recorded() == 0, "the witness knows that the lease has ended")
            return in_time
        until(is_lost_in_time, "a client is lost before its lease is acknowledged")
        live.client(keeper).acquire("k")


@test
def a_keeper_without_other_nodes_grants_and_its_leases_are_waited_for(t):
    with trio(t, options={"lease-volatile": "5s"}) as (live, keeper, one, two):
        until(lambda: live.number(keeper, "handover_complete"), "etcd knows that the other nodes know all leases")
        c = live.client(keeper)
        for i in (one, two):
            live[i].kill()
        sent = time.monotonic()
        lease = c.acquire("lease", "LEASE", 4000)
        until(lambda: not live.number(keeper, "handover_complete"), "etcd knows that no node knows the lease")
        live[keeper].kill()
        for i in (one, two):
            live[i].start()
        live.keeper(one, two)
        a = live.client(one)
        check_that(fence_of(until_done(lambda: a("ACQUIRE", "lease", "LEASE", 1000, "WAIT", 60000), "granted")) > lease,
                   "fences rise")
        check_that(time.monotonic() - sent > 4, "not before the lease has expired")


@test
def leases_of_a_dead_keepers_clients_are_waited_for(t):
    with trio(t) as (live, keeper, one, two):
        c, a, b = live.clients(keeper, one, two)
        sent = time.monotonic()
        lease = c.acquire("lease", "LEASE", 3000)
        mutex = c.acquire("mutex")
        live[keeper].kill()
        check_error(a("ACQUIRE", "lease", "LEASE", 1000), "RECOVERING", "retry")
        check_error(b("ACQUIRE", "mutex"), "RECOVERING")
        for c in (a, b):
            words = b" ".join(pairs(c("EXPLAIN", "mutex"))["summary"])
            check_that(b"the keeper is new" in words and b"crash" not in words, "EXPLAIN says %r" % words)
        # Another node may know the lease; then it is held. Else nobody can say that it is not.
        got = a("CHECK", "lease", lease)
        if got != 1:
            check_error(got, "RECOVERING")
            check_error(a("RELEASE", "lease", lease), "RECOVERING")
            check_error(a("EXTEND", "lease", lease, 1000), "RECOVERING")
        for words in (("CHECK", "mutex", mutex), ("RELEASE", "mutex", mutex), ("EXTEND", "mutex", mutex, 1000)):
            check_error(a(*words), "RECOVERING")
        b.send("ACQUIRE", "mutex", "WAIT", 30000)
        got = a("ACQUIRE", "lease", "WAIT", 30000)
        check_that(fence_of(got) > lease, "fences rise")
        took = time.monotonic() - sent
        check_that(3 <= took < 15, "after %.3f s" % took)
        check_that(fence_of(b.reply()) > mutex, "fences rise")
        check([a("CHECK", "lease", lease), a("RELEASE", "lease", lease)], [0, 0])
        check_error(a("EXTEND", "lease", lease, 1000), "LOST")


@test
def leases_that_only_a_dead_keeper_knew_are_waited_for(t):
    """A node was restarted, so it has lost its records of leases; then the keeper is killed."""
    with trio(t) as (live, keeper, one, two):
        clients, began, held = live.clients(keeper, one), time.monotonic(), {}
        for i in range(4):  # Of its clients, and, as the witness, of the keeper's.
            for c in clients:
                held["k%d" % len(held)] = c.acquire("k%d" % len(held), "LEASE", 4500)
        live[one].restart()
        live.keeper()
        live[keeper].kill()
        waiters = live.clients(*[two] * len(held))
        for c, key in zip(waiters, held):
            c.send("ACQUIRE", key, "LEASE", 1000, "WAIT", 30000)
        for c, key in zip(waiters, held):
            check_that(fence_of(c.reply()) > held[key], "fences rise")
            took = time.monotonic() - began
            check_that(took > 0.998 * 4.5, "%s after %.3f s" % (key, took))


@test
def a_long_lease_is_in_etcd_before_its_client_knows_it(t):
    with trio(t) as (live, keeper, one, two):
        c, a, b = live.clients(keeper, one, two)
        # Nobody but the keeper and etcd can know these leases: the keeper is killed at once.
        f = c.acquire("hour", "LEASE", 3600000, "NOTE", "of an hour", "VALUE", "v")
        g = c.acquire("minute", "LEASE", 60000)
        check(c("EXTEND", "minute", g, 90000), 90000)
        h = c.acquire("over", "LEASE", 60000)
        check(c("RELEASE", "over", h), 1)
        check(fence_of(c("ACQUIRE", "over", "LEASE", 2000)) > h, True, "another client may have it")
        check(c("DRAIN", "d*", "ON"), 1)
        k = c.acquire("broken", "LEASE", 60000)
        check(c("BREAK", "broken", k), 1)
        live[keeper].kill()
        for x in (a, b):
            check(until_done(lambda: x("CHECK", "hour", f), "it is held"), 1)
        holder = pairs(pairs(a("EXPLAIN", "hour"))["holders"][0])
        check(holder["note"], b"of an hour")
        left = a("EXTEND", "minute", g, 60000)
        check_that(60000 <= left <= 120000, "%d ms are left" % left)
        check_error(b("EXTEND", "broken", k, 60000), "LOST")
        got = a("ACQUIRE", "free", "WAIT", 60000)
        check_that(fence_of(got) > k, "fences rise")
        check([b("CHECK", "over", h), b("RELEASE", "over", h)], [0, 0], "it was released")
        check_error(b("ACQUIRE", "door"), "DRAINED")
        check(b("ACQUIRE", "hour"), None, "it is held")
        check(b("EXTEND", "hour", f, 7200000), 7200000)
        # The next keeper knows what this one has restored, and what it has changed.
        second = live.keeper()
        b = live.client(one if second == two else two)
        live[second].kill()
        live[keeper].start()
        check(until_done(lambda: b("CHECK", "hour", f), "it is held"), 1)
        check(b("RELEASE", "hour", f), 1)


@test
def a_lease_of_lease_volatile_is_not_written_to_etcd(t):
    with trio(t, options={"lease-volatile": "5s"}) as (live, keeper, one, two):
        def entries():
            first, last = b"sluice/journal/g", b"sluice/journal/h"
            said = live.c.etcd[1].call("kv/range", key=etcds.text_of(first), range_end=etcds.text_of(last))
            return int(said.get("count", 0))
        clients = live.clients(keeper, one, two)
        for i, c in enumerate(clients * 10):
            c.acquire("short%d" % i, "LEASE", 5000)
        check(entries(), 0)
        for i, c in enumerate(clients):
            c.acquire("long%d" % i, "LEASE", 5002)
        check(entries(), 3)


@test
def long_leases_are_held_after_all_nodes_were_killed(t):
    with trio(t) as (live, keeper, one, two):
        clients = live.clients(keeper, one, two)
        fences = {"k%d" % i: clients[i % 3].acquire("k%d" % i, "LEASE", 3600000) for i in range(30)}
        for n in (keeper, one, two):
            live[n].kill()
        for n in (keeper, one, two):
            live[n].start()
        live.keeper()
        b = live.client(one)
        for key, fence in fences.items():
            left = until_done(lambda: b("EXTEND", key, fence, 3600000), "it is held")
            check_that(3600000 <= left <= 3620000, "%d ms are left" % left)
        fence_of(until_done(lambda: b("ACQUIRE", "free", "WAIT", 60000), "it is granted"))


def reclaim_too_late(t):
    """False: the third node closed b's connection, because it found no keeper in time, before it
    became the keeper itself."""
    with trio(t) as (live, keeper, node, third):
        a, l, w, b = live.clients(node, node, node, third)
        mutex, lease = a.acquire("mutex"), l.acquire("lease", "LEASE", 1000)
        b.acquire("wanted")
        live.waits(third, w, "ACQUIRE", "wanted", "WAIT", FOREVER)
        live[node].pause()
        live[keeper].kill()
        try:
            got = until_done(lambda: b("ACQUIRE", "mutex", "WAIT", 20000), "it is granted at last")
        except Closed:
            return False
        check_that(fence_of(got) > mutex, "fences rise")
        check_that(fence_of(b("ACQUIRE", "lease")) > lease, "fences rise")
        live[node].resume()
        check(a.until_closed(), b"", "who held it without a lease is disconnected")
        check(b("CHECK", "mutex", got[0]), 1, "it is the other's")
        check_error(until(lambda: l("EXTEND", "lease", lease, 1000), "it is told"), "LOST")
        check(b("RELEASE", "wanted"), 1)
        check_that(fence_of(w.reply()) > got[0], "who waited waits on")
        check_that(sum(live.number(i, "reclaims_rejected") for i in live.ids) >= 1, "it is counted")
        return True


@test
def a_late_reclaim_is_rejected(t):
    """Its node is stopped until the wait is over, and somebody else has what it held."""
    until(lambda: reclaim_too_late(t), "the third node becomes the keeper in time")


@test
def a_waiter_is_queued_again(t):
    with trio(t) as (live, keeper, one, two):
        holder, w1, w2, awaits, short = live.clients(one, two, one, two, two)
        holder.acquire("k")
        sent = time.monotonic()
        w1.send("ACQUIRE", "k", "WAIT", FOREVER)
        awaits.send("AWAIT", "k", "FREE", FOREVER)
        live.until_waiting(one, "k", 1)
        second = time.monotonic()
        live.waits(one, w2, "ACQUIRE", "k", "WAIT", FOREVER, "PRIORITY", 5, count=2)
        short.send("ACQUIRE", "k", "WAIT", 4000)
        time.sleep(0.7)  # what has to be known to the next keeper
        live[keeper].kill()
        live.until_waiting(one, "k", 3)
        check(short.reply(), None, "it has waited as long as it wished to")
        check_that(3.9 < time.monotonic() - sent < 12, "and not longer")
        time.sleep(0.2)
        released = time.monotonic()
        check(holder("RELEASE", "k"), 1)
        for c, began in ((w2, second), (w1, sent)):  # the one with more priority first
            got = c.reply()
            fence_of(got)
            waited = (time.monotonic() - began) * 1000
            check_that((released - began) * 1000 - 200 < got[3] <= waited + 50,
                       "it has waited %d ms, of %.0f" % (got[3], waited))
            check(c("RELEASE", "k"), 1)
        got = awaits.reply()
        if isinstance(got, Error):
            check_error(got, "RECOVERING")
        else:
            check(got, 1)


@test
def waiters_keep_their_order_when_the_keeper_changes(t):
    """They wait at two nodes, which send them to the next keeper in any order. It does not know how
    long a message was on its way, so they arrive a second apart."""
    with trio(t) as (live, keeper, one, two):
        holder = live.client(one)
        fence = holder.acquire("k")
        waiters = live.clients(two, one, two)
        for i, c in enumerate(waiters):
            time.sleep(1)
            live.waits(one, c, "ACQUIRE", "k", "WAIT", FOREVER, count=i + 1)
        live[keeper].kill()
        live.until_waiting(one, "k", len(waiters))
        check(holder("RELEASE", "k", fence), 1)
        last = fence
        for c in waiters:
            got = fence_of(c.reply())
            check_that(got > last, "they are granted in the order of their arrival")
            last = got
            check(c("RELEASE", "k", got), 1)


@test
def READY_says_for_what_the_keeper_waits(t):
    """At every node, until the new keeper grants locks."""
    with trio(t) as (live, keeper, one, two):
        clients = live.clients(one, two)
        for c in clients:
            until(lambda: c("READY") == "READY", "it is ready")
        clients[0].acquire("k", "LEASE", 8000)  # shorter than lease-volatile
        live[keeper].kill()
        new = live.keeper(one, two)
        for c in clients:
            until(lambda: "NOTREADY recovering: node %d is the keeper; new grants wait another " % new
                  in str(c("READY")), "it says for what the keeper waits")
        for c in clients:
            until(lambda: c("READY") == "READY", "it is ready")
        check_that(fence_of(clients[1]("ACQUIRE", "other")), "locks are granted")


@test
def many_grants_are_reclaimed(t):
    with trio(t) as (live, keeper, one, two):
        a, l = live.clients(one, two)
        # Each long lease is recorded in etcd, one after the other.
        for c, count, words in ((a, 15000, ()), (l, 1500, ("LEASE", 20000))):
            for i in range(count):
                c.send("ACQUIRE", "%s-%d" % ("l" if words else "a", i), "NOTE", "n" * 100, *words)
            fences = [fence_of(c.reply()) for _ in range(count)]
        live[keeper].kill()
        x = live.client(one)
        until(lambda: sum(live.number(i, "reclaimed") for i in live.ids) >= 16500, "all are reclaimed")
        check(x("CHECK", "l-1499", fences[-1]), 1)
        check(sum(live.number(i, "reclaims_rejected") for i in live.ids), 0)
        for i in range(15000):
            a.send("RELEASE", "a-%d" % i)
        check(sum(a.reply() for _ in range(15000)), 15000)


# --- Transactions, when the keeper dies --------------------------------------------------------------


def past_no_keeper(c, *words):
    """The reply, when there is a keeper: there is none for a while if etcd answers too slowly."""
    def once():
        got = c(*words)
        return None if isinstance(got, Error) and got.word == "NOKEEPER" else (got,)
    return until(once, "there is a keeper", 60)[0]


@test
def open_transactions_are_stale(t):
    with trio(t) as (live, keeper, one, two):
        a, b, w, idle, aborts, piped = live.clients(one, two, one, one, two, two)
        put_at_last(b, "t", "x", "0")
        for c in (a, w, idle, aborts):
            check(len(past_no_keeper(c, "TX.BEGIN")), 2, "the number of the transaction")
        ok(a, "TX.PUT", "t", "x", "1")
        check(idle("TX.GET", "t", "y"), None)
        ok(aborts, "TX.PUT", "t", "z", "1")
        w.send("TX.GET", "t", "x")  # it waits for a
        until(lambda: live.number(keeper, "transactions_waiting") == 1, "it waits")
        live[keeper].kill()
        check_error(w.reply(), "STALE", "retry from TX.BEGIN")
        check_error(past_no_keeper(w, "TX.COMMIT"), "NOTX")
        check_error(past_no_keeper(a, "TX.PUT", "t", "y", "1"), "STALE", "retry from TX.BEGIN")
        check_error(past_no_keeper(a, "TX.COMMIT"), "NOTX")
        check_error(past_no_keeper(idle, "TX.COMMIT"), "STALE")
        check_error(past_no_keeper(idle, "TX.COMMIT"), "NOTX")
        aborts("TX.ABORT")

        def whole():
            for words in (("TX.BEGIN",), ("TX.PUT", "t", "x", "2"), ("TX.COMMIT",)):
                piped.send(*words)
            got = [piped.reply() for _ in range(3)]
            no_keeper = any(isinstance(g, Error) and g.word == "NOKEEPER" for g in got)
            check_that(no_keeper or isinstance(got[2], int), "a whole one goes through: %r" % got)
            return not no_keeper

        until(whole, "there is a keeper", 60)
        for c in (a, w, idle, aborts):
            put_at_last(c, "t", "x", "3")
        check(get_at_last(b, "t", "x"), b"3")
        check(get_at_last(b, "t", "z"), None)


# --- A keeper that is deposed --------------------------------------------------------------------------


@test
def a_deposed_keeper_hands_over(t):
    """It is stopped until another claims, and goes on then."""
    with trio(t, options={"linger": "60s"}) as (live, keeper, one, two):
        own, lease, tx, waiter = live.clients(keeper, keeper, keeper, keeper)
        far, x, begun = live.clients(one, two, keeper)
        mutex = own.acquire("mutex", "NOTE", "n")
        leased = lease.acquire("lease", "LEASE", 6000)
        elsewhere = far.acquire("wanted")
        sent = time.monotonic()
        live.waits(keeper, waiter, "ACQUIRE", "wanted", "WAIT", FOREVER)
        begin(tx)
        ok(tx, "TX.PUT", "t", "x", "of the old one")
        begin(begun)
        old = live.term()
        check(lease("EXTEND", "lease", leased, 6000), 6000)
        live[keeper].pause()
        put_at_last(x, "t", "x", "of the new one")
        tx.send("TX.COMMIT")
        live[keeper].resume()
        check_error(tx.reply(), "STALE", "retry from TX.BEGIN")
        check_error(begun("TX.PUT", "t", "x", "late"), "STALE")
        check_that(live.term() > old, "another term")
        check_that(live.keeper() != keeper, "another keeper")
        check(get(x, "t", "x"), b"of the new one")
        # Without a lease, it is reclaimed only if the old keeper returns before the new one grants.
        until(lambda: x("CHECK", "mutex", mutex) in (0, 1), "the new keeper knows what was reported")
        kept = x("CHECK", "mutex", mutex)
        until(lambda: x("CHECK", "lease", leased) == 1, "the lease is held")
        check(far("CHECK", "wanted", elsewhere), 1)
        check(x("EXTEND", "lease", leased, 6000), 6000)
        live.until_waiting(two, "wanted")
        check(far("RELEASE", "wanted"), 1)
        got = waiter.reply()
        check_that(fence_of(got) > elsewhere, "who waited there goes on")
        check_that(abs((time.monotonic() - sent) * 1000 - got[3]) < 1000, "it has waited %d ms" % got[3])
        if kept:
            check(own("RELEASE", "mutex"), 1)
        put_at_last(tx, "t", "x", "again")
        check(get(x, "t", "x"), b"again")
        check(sum(live.number(i, "reclaims_rejected") for i in live.ids) == 0, bool(kept))


@test
def a_keeper_is_deposed_while_requests_wait_for_etcd(t):
    """The next keeper answers the requests. What waits with them (here: an event) ends nothing."""
    os.environ["MALLOC_PERTURB_"] = "85"  # Memory that is used before it is set is not 0.
    with trio(t, proxied=True) as (live, keeper, one, two):
        own, far, broken, x = live.clients(keeper, one, keeper, two)
        held, other = own.acquire("held", "LEASE", 60000), own.acquire("other", "LEASE", 60000)
        live.c.cut(keeper, "etcd1")
        own.send("EXTEND", "held", held, 120000)
        far.send("ACQUIRE", "far", "LEASE", 60000)
        broken.send("BREAK", "other", other)
        until(lambda: live.keeper(one, two) != keeper, "another node is the keeper")
        live.c.heal()
        check_that(own.reply() >= 120000, "it is extended")
        check_error(far.reply(), "RECOVERING")
        check(broken.reply(), 1, "BREAK")
        check_error(x("EXTEND", "other", other, 60000), "LOST")
        check_that(live.keeper() != keeper, "the old keeper is a node")


@test
def fences_rise_while_keepers_are_killed_suspended_and_stopped(t):
    """Keepers are killed, stopped and told to stop, while one key is taken again and again."""
    with cluster(t, options={"linger": "100ms"}) as live:
        over, last, wrong, count = threading.Event(), [0], [], [0]
        lock = threading.Lock()

        def work(i):
            c = None
            while not over.is_set():
                try:
                    c = c or live.client(1 + i % 3)
                    got = c("ACQUIRE", "k", "LEASE", 100, "WAIT", 200)
                    if isinstance(got, list):
                        with lock:
                            # One whose lease ended may be told late: only its own order counts.
                            if got[0] <= mine[i] or got[0] in seen:
                                wrong.append((mine[i], got))
                            mine[i] = got[0]
                            seen.add(got[0])
                            count[0] += 1
                        c("RELEASE", "k", got[0])
                    elif isinstance(got, Error) and got.word not in PASSING + ("SHUTDOWN",):
                        wrong.append(got)
                except (OSError, Closed, Failure):
                    c = None
                    time.sleep(0.02)

        mine, seen = [0] * 6, set()
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(6)]
        for x in threads:
            x.start()
        top = 0
        for how in ("kill", "pause", "stop", "kill"):
            before = count[0]
            until(lambda: count[0] > before + 5 or wrong, "locks are taken")
            keeper = live.keeper()
            others = [i for i in live.ids if i != keeper]
            getattr(live[keeper], how)()
            until(lambda: live.seen(others), "another keeper")
            with lock:
                low = max(seen)
            check_that(low > top, "fences rise")
            top = low
            if how == "pause":
                live[keeper].resume()
            else:
                live[keeper].start()
            until(lambda: live.seen(), "all have a way")
            x = live.client(others[0])
            got = until_done(lambda: x("ACQUIRE", "k", "WAIT", 10000), "it is granted")
            check_that(fence_of(got) > top, "fence %d after %d" % (got[0], top))
            x("QUIT")
        over.set()
        for x in threads:
            x.join()
        check(wrong, [])
        check_that(count[0] > 20, "it was taken %d times" % count[0])


@test
def a_keeper_that_is_stopped_hands_over(t):
    with trio(t) as (live, keeper, one, two):
        a, w, x, tx, mine = live.clients(one, two, two, one, keeper)
        mutex, lease = a.acquire("mutex"), mine.acquire("lease", "LEASE", 2000)
        live.waits(one, w, "ACQUIRE", "mutex", "WAIT", FOREVER)
        began = time.monotonic()
        live[keeper].kill(signal.SIGTERM)
        put_at_last(tx, "t", "x", "1")
        took = time.monotonic() - began
        print("# next commit after SIGTERM: %.0f ms" % (took * 1000), flush=True)
        check_that(took < 2, "after %.3f s" % took)
        check(x("CHECK", "mutex", mutex), 1)
        got = x("CHECK", "lease", lease)
        check_that(got == 1 or got.word == "RECOVERING", "nobody says that the lease is over: %r" % got)
        check(a("RELEASE", "mutex"), 1)
        check_that(fence_of(w.reply()) > mutex, "a waiter notices nothing")
        live[keeper].start()
        c = live.client(keeper)
        put_at_last(c, "t", "x", "2")


def waited_ms(live, node):
    """How long this new keeper still waits when all have reported, says its log; None: it does not say that."""
    said = re.findall(r"all other nodes have reported.*?locks_wait_ms\D*(\d+)", live[node].log)
    return int(said[-1]) if said else None


def hands_over(t, resign):
    """All leases are held under the next keeper, which does not wait for any."""
    with trio(t, options={"lease-volatile": "10s"}) as (live, keeper, one, two):
        mine, a, b, loose, own = live.clients(keeper, one, two, one, keeper)
        leases = [(mine, "hour", 3600000), (mine, "own", 9000), (a, "a", 9000), (b, "b", 8000), (b, "day", 86400000)]
        fences = {key: c.acquire(key, "LEASE", ms) for c, key, ms in leases}
        mutex, gone = loose.acquire("mutex"), own.acquire("gone")
        began = time.monotonic()
        resign(live, keeper)
        got = until_done(lambda: b("ACQUIRE", "free", "LEASE", 5000, "WAIT", 30000), "it is granted")
        print("# a free key after %.0f ms" % ((time.monotonic() - began) * 1000), flush=True)
        check_that(fence_of(got) > gone, "fences rise")
        check_that(fence_of(a("ACQUIRE", "gone", "WAIT", 30000)) > gone, "its holder was disconnected")
        check_that(live.keeper(one, two) != keeper, "another node is the keeper")
        until(lambda: [n for n in (one, two) if waited_ms(live, n) == 0], "the new keeper does not wait")
        for key, fence in fences.items():
            check(b("CHECK", key, fence), 1, key)
            left = a("EXTEND", key, fence, 9000)
            check_that(left >= 9000, "%s: %r ms are left" % (key, left))
        check([loose("CHECK", "mutex", mutex), b("ACQUIRE", "mutex")], [1, None])
        return live[keeper].log, live


def waits_end_with_a_node(t, role):
    """Several requests of one connection wait as its node stops."""
    with trio(t) as (live, keeper, one, two):
        node = keeper if role == "keeper" else one
        holder, c = live.client(two), live.client(node, 3)
        fence = holder.acquire("k", "LEASE", 60000)
        ids = [b"the id of %-16d" % n for n in range(3)]
        for id_ in ids:
            check(c("ACQUIRE", "k", "WAIT", FOREVER, "REQUEST", id_, "NOTIFY"), "QUEUED")
        live[node].kill(signal.SIGTERM)
        if role == "follower":
            for id_ in ids:
                check_error(outcome(c, "k", id_), "SHUTDOWN")
        check_that("Assertion" not in live[node].log, live[node].log)
        live[node].start()
        check(until_done(lambda: holder("RELEASE", "k", fence), "there is a keeper"), 1)


for role in ("keeper", "follower"):
    test_of("waits_with_notify_end_when_their_%s_stops" % role, waits_end_with_a_node, role)


@test
def a_keeper_that_receives_SIGTERM_resigns(t):
    log, _ = hands_over(t, lambda live, keeper: live[keeper].kill(signal.SIGTERM))
    check_that("resigning as the keeper" in log, log)


@test
def NODES_RESIGN(t):
    def resign(live, keeper):
        other = live.client([i for i in live.ids if i != keeper][0])
        check_error(other("NODES", "RESIGN"), "NODES", "send NODES RESIGN to node %d" % keeper)
        check_error(other("NODES", "RESIGN", "x"), "ERR")
        check_that(live.client(keeper)("NODES", "RESIGN") > 0, "it replies with its term")
    log, _ = hands_over(t, resign)
    check_that("resigning as the keeper" in log, log)


@test
def a_keeper_that_has_resigned_goes_on_as_a_node(t):
    with trio(t) as (live, keeper, one, two):
        c, w, a = live.clients(keeper, keeper, one)
        term = live.term()
        f = c.acquire("k", "LEASE", 60000)
        live.waits(keeper, w, "ACQUIRE", "k", "WAIT", FOREVER)
        check(c("NODES", "RESIGN"), term)
        check_that(c("EXTEND", "k", f, 60000) >= 60000, "it is held")
        check_that(live.keeper() != keeper, "another node is the keeper")
        check(live.term(), term + 1)
        check(a("RELEASE", "k", f), 1)
        check_that(fence_of(w.reply()) > f, "a waiter notices nothing")
        for i in range(5):
            until(lambda: not isinstance(live.client(live.keeper())("NODES", "RESIGN"), Error), "it resigns")
            until(lambda: live.term() > term + 1 + i, "the term rises")
        check(c("ACQUIRE", "other", "LEASE", 1000, "WAIT", 30000) is None, False)


# --- Who does not depose a keeper -------------------------------------------------------------------------


def cut_off(t, reset):
    """It hangs up on clients that hold something without LEASE before the keeper gives that to
    others; leases go on."""
    with trio(t, proxied=True, options={"keeper-wait": "1500ms", "linger": "500ms"}) as (live, keeper, one, two):
        a, l, w, b, waiter = live.clients(one, one, one, two, two)
        mutex, lease, term = a.acquire("mutex"), l.acquire("lease", "LEASE", 30000), live.term()
        live.waits(two, waiter, "ACQUIRE", "mutex", "WAIT", FOREVER)
        live.c.cut(keeper, one, reset=reset)
        end = time.monotonic() + 5
        ended = given = refused = None
        while time.monotonic() < end:
            check(live.term(keeper, two), term, "the term")
            check_that(isinstance(put(b, "t", "x", "1"), int), "others get on")
            given = given or (waiter.ready() and time.monotonic())
            ended = ended or (a.ready() and time.monotonic())
            check_that(ended or not given, "the old holder was disconnected before the next grant")
            if time.monotonic() > end - 2.5 and refused is None:
                refused = w("CHECK", "mutex", mutex)
            time.sleep(0.02)
        check_error(refused, "NOKEEPER", "node %d is the keeper, but this node cannot reach it" % keeper)
        check(a.until_closed(), b"")
        check_that(fence_of(waiter.reply()) > mutex, "fences rise")
        check(b("EXTEND", "lease", lease, 30000), 30000, "a lease")
        live.c.heal()
        check(until_done(lambda: l("EXTEND", "lease", lease, 30000), "there is a way again"), 30000)
        check(live.term(), term, "the term")


test_of("a_node_that_is_cut_off_does_not_depose_the_keeper", cut_off, False)
test_of("a_node_that_is_refused_does_not_depose_the_keeper", cut_off, True)


@test
def clients_that_hammer_do_not_depose_the_keeper(t):
    with trio(t) as (live, keeper, one, two):
        term, over = live.term(), threading.Event()

        def hammer(i):
            while not over.is_set():
                try:
                    c = live.client(1 + i % 3)
                    for n in range(200):
                        c.send("ACQUIRE", "h%d" % (n % 7), "LEASE", 50).send("TX.BEGIN").send("TX.PUT", "h", n, "v")
                        c.send("TX.COMMIT").send("NOSUCH")
                    c.reply()
                    (c.reset if i % 2 else c.close)()
                except (OSError, Closed, Failure):
                    pass

        b = live.client(two)
        end = time.monotonic() + 4
        with threads(hammer, range(6)):
            while time.monotonic() < end:
                put_at_last(b, "t", "x", "1")
                check(live.info(keeper)["term"], str(term), "the term")
            over.set()
        check(live.term(), term, "the term")


# --- etcd -------------------------------------------------------------------------------------------------


def pause_all(live):
    for m in live.c.etcd:
        m.pause()


def resume_all(live):
    for m in live.c.etcd:
        m.resume()


@test
def etcd_is_not_there_at_the_start(t):
    with cluster(t, options={"keeper-wait": "1s"}) as live:
        fence = live.client(1).acquire("k")
        revision = put(live.client(1), "t", "x", "1", "REQUEST", "r")
        for i in live.ids:
            live[i].kill()
        live.c.etcd[1].kill()
        for i in (1, 2, 3):
            live[i].start(wait=False)
        for i in (1, 2, 3):
            live[i].wait_ready()
            c = live.client(i)
            check_error(c("ACQUIRE", "k"), "NOKEEPER", "there is no keeper: ", "etcd", "retry")
            check_error(c("TX.BEGIN"), "NOKEEPER", "there is no keeper: ")
            check_error(c("READY"), "NOTREADY", "no keeper: ", "etcd")
            check(c("PING"), "PONG")
            check_that("does not answer" in live[i].log, "the log says it")
        live.c.etcd[1].start()
        c = live.client(2)
        got = until_done(lambda: c("ACQUIRE", "k", "WAIT", 10000), "it is granted")
        check_that(fence_of(got) > fence, "fences rise")
        check(c("TX.OUTCOME", "r"), revision)
        check(get(c, "t", "x"), b"1")


def etcd_is_lost(t, how):
    """Nothing is granted when the keeper's authority has ended; nothing is lost."""
    with trio(t, etcd=3, options={"keeper-wait": "1s"}) as (live, keeper, one, two):
        a, b, k, tx, w = live.clients(one, two, keeper, two, one)
        put(tx, "t", "x", "0")
        mutex = a.acquire("mutex")
        lease = a.acquire("lease", "LEASE", 60000)
        own = k.acquire("own")
        term = live.term()
        begin(tx, "REQUEST", "r")
        ok(tx, "TX.PUT", "t", "x", "1")
        lost = time.monotonic()
        if how == "pause":
            pause_all(live)
        else:
            for m in live.c.etcd:
                m.kill()
        lost_all = time.monotonic()
        tx.send("TX.COMMIT")
        last = time.monotonic()
        end = last + AUTHORITY_S + 0.6
        n = 0
        while time.monotonic() < end:
            before = time.monotonic()
            got = b("ACQUIRE", "n%d" % n)
            n += 1
            if isinstance(got, list):
                last = before
            else:
                check_error(got, "NOKEEPER", "etcd")
            time.sleep(0.02)
        check_that(last - lost_all < AUTHORITY_S + 0.1, "the last was granted after %.3f s" % (last - lost_all))
        check_error(k("ACQUIRE", "n"), "NOKEEPER", "etcd")
        for c in (k, b):
            until(lambda: c("READY") != "READY", "it is not ready")
            check_error(c("READY"), "NOTREADY", "no keeper", "etcd")
        got = b("EXTEND", "lease", lease, 60000)
        check_that(isinstance(got, Error) and got.word in ("NOKEEPER", "IO"), "EXTEND replies %r" % (got,))
        w.send("ACQUIRE", "waits", "WAIT", FOREVER)
        check(a("READ", "mutex")[1], mutex, "the lock is held")
        check_that(b.quiet() and tx.quiet(), "the commit is not answered yet")
        if how == "pause":
            resume_all(live)
        else:
            for m in live.c.etcd:
                m.start(wait=False)
        check_that(isinstance(tx.reply(), int), "it is committed")
        check(live.term(), term, "the term")
        check_that(fence_of(w.reply()) > mutex, "a waiter is granted")
        check([b("CHECK", "mutex", mutex), b("CHECK", "own", own), b("CHECK", "lease", lease)], [1, 1, 1])
        check(b("EXTEND", "lease", lease, 60000), 60000)
        check(get(b, "t", "x"), b"1")
        check(live.client(one)("ACQUIRE", "mutex"), None)
        for c in (k, b):
            until(lambda: c("READY") == "READY", "it is ready")
        check(sum(live.number(i, "reclaims_rejected") for i in live.ids), 0)


test_of("etcd_does_not_answer_for_a_while", etcd_is_lost, "pause")
test_of("etcd_is_killed_and_started_again", etcd_is_lost, "kill")


@contextlib.contextmanager
def bad_etcd(how):
    """The URL of an etcd that misbehaves (lib/bad_etcd)."""
    with subprocess.Popen([os.path.join(HERE, "lib/bad_etcd"), how], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as p:
        try:
            yield "http://127.0.0.1:" + p.stdout.readline().strip()
        finally:
            p.stdin.close()


def stopped_while_bad(t, how):
    """The engine answers what it was asked before it closes, and the node handles that."""
    with bad_etcd(how) as url:
        nodes = [Server(t, ("--node", "1", "--peers", "1=127.0.0.1:5627", "--node-port", "auto",
                            "--secret", "s" * 20, "--data", t.path("data%d" % i), "--etcd", url,
                            "--etcd-time", "500ms")) for i in range(4)]
        for i, s in enumerate(nodes):
            c = s.client()
            c.send("TX.BEGIN")
            c.send("ACQUIRE", "k")
            time.sleep(0.03 * i)  # so that each stops at another moment
            s.signal(signal.SIGTERM)
        for s in nodes:
            check(s.status, 0, "exit status")
            check_that("stopped" in s.log, "the log says that it stopped")


for how_bad in ("400", "500", "garbage", "nonsense", "half", "hangs", "closes"):
    test_of("SIGTERM_stops_a_node_whose_etcd_misbehaves_%s" % how_bad, stopped_while_bad, how_bad)


@test
def SIGTERM_stops_a_keeper_whose_etcd_hangs(t):
    with cluster(t, 1) as live:
        c, tx = live.clients(1, 1)
        begin(tx)
        ok(tx, "TX.PUT", "t", "x", "1")
        live.c.etcd[1].pause()
        tx.send("TX.COMMIT")
        c.send("ACQUIRE", "k", "LEASE", 1000)
        live[1].stop()
        check_that(live[1].log.rstrip().endswith("stopped"), "the log says that it stopped")


@test
def the_cluster_works_without_one_member_of_etcd(t):
    with trio(t, etcd=3) as (live, keeper, one, two):
        a, b = live.clients(one, two)
        mutex, term = a.acquire("mutex"), live.term()
        for how, back in (("pause", "resume"), ("kill", "start")):
            member = live.c.etcd.leader()
            getattr(member, how)()
            for i in range(20):
                put_at_last(b, "t", "x", i)
            # On a slow machine, etcd may confirm the keeper late for a moment.
            held = until(lambda: [x for x in [b("CHECK", "mutex", mutex)] if not isinstance(x, Error)],
                         "etcd confirms the keeper")
            check(held, [1])
            getattr(member, back)()
            live.c.etcd.wait_ready()
        check(live.term(), term, "the term")


@test
def a_compacted_etcd_keeps_working(t):
    with trio(t) as (live, keeper, one, two):
        a = live.client(one)
        for i in range(30):
            put(a, "t", "x", i)
        live.c.etcd.compact()
        live[two].pause()  # its watch stands before what is compacted
        for i in range(30):
            put(a, "t", "y", i)
        live.c.etcd.compact()
        live[two].resume()
        check(get(live.client(two), "t", "x"), b"29")
        live[keeper].kill()
        put_at_last(a, "t", "x", "new")
        check(get(live.client(two), "t", "x"), b"new")
        check(get(live.client(two), "t", "y"), b"29")


@test
def etcd_requires_authentication(t):
    with trio(t, etcd_user=("sluice", "a password"), etcd_tls="tls") as (live, keeper, one, two):
        put(live.client(one), "t", "x", "1")
        for name, value, words in (("etcd-password-file", "wrong", ("sluice",)),
                                   ("etcd-ca", "wrong.pem", ()),
                                   ("etcd-user", "nobody", ())):
            with open(os.path.join(live[two].dir, "wrong"), "w") as f:
                f.write("not this\n")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                            "-nodes", "-days", "2", "-subj", "/CN=other", "-keyout", "wrong.key", "-out",
                            "wrong.pem"], cwd=live[two].dir, check=True, stderr=subprocess.DEVNULL)
            live[two].options = {name: value, "keeper-wait": "500ms"}
            live[two].restart()
            c = live.client(two)
            got = until(lambda: c("TX.BEGIN"), "it answers")
            check_error(got, "NOKEEPER", "there is no keeper: ")
            print("# %s: %s" % (name, got), flush=True)
            check_that(re.search("credential|password|authenti|certificate|user", got), "it says why: %r" % got)
        live[two].options = {}
        live[two].restart()
        check(until_done(lambda: live.client(two)("TX.OUTCOME", "none"), "it goes on"), None)
        check(get(live.client(two), "t", "x"), b"1")


@test
def etcd_asks_for_a_certificate(t):
    with trio(t, etcd_tls="certs", options={"keeper-wait": "500ms"}) as (live, keeper, one, two):
        put_at_last(live.client(two), "t", "x", "1")
        live[two].options = {"etcd-cert": None, "etcd-key": None}
        live[two].restart()
        got = live.client(two)("TX.BEGIN")
        check_error(got, "NOKEEPER", "there is no keeper: etcd: no member answers")
        live[two].options = {}
        live[two].restart()
        put_at_last(live.client(two), "t", "x", "2")


# --- Keys of a majority, and settings -------------------------------------------------------------------


@test
def keys_of_a_majority_need_no_keeper(t):
    with trio(t, options={"majority-keys": "m:*,lease/?", "keeper-wait": "300ms", "linger": "100ms"}) as (live, keeper, one, two):
        a, b, k = live.clients(one, two, keeper)
        for key in ("m:1", "lease/1"):
            check_error(a("ACQUIRE", key), "MAJORITY", "LEASE")
            fence = fence_of(until(lambda: a("ACQUIRE", key, "LEASE", 20000), "it is granted"))
            until(lambda: b("READ", key, "MAJORITY"), "it is known")
            check(b("CHECK", key, fence), 1)
            check(k("ACQUIRE", key, "LEASE", 1000), None)
        plain_ = a.acquire("lease/12", "LEASE", 20000)
        check([x[b"key"] if isinstance(x, dict) else pairs(x)["key"] for x in b("LOCKS", "MATCH", "*")[1]], [b"lease/12"])
        # A node that did not vote for a lease learns of it later.
        until(lambda: sorted(pairs(x)["key"] for x in b("LOCKS", "MAJORITY")[1]) == [b"lease/1", b"m:1"], "it knows both")
        live.c.etcd[1].kill()
        until(lambda: isinstance(b("ACQUIRE", "other", "LEASE", 100), Error), "the keeper has no authority", 10)
        fence = fence_of(b("ACQUIRE", "m:2", "LEASE", 20000))
        check(a("EXTEND", "m:2", fence, 30000), 30000)
        live[keeper].kill()
        check(b("EXTEND", "m:2", fence, 30000), 30000, "without etcd and without a keeper")
        check(a("RELEASE", "m:2", fence), 1)
        check_error(a("TX.BEGIN"), "NOKEEPER")
        check_error(a("ACQUIRE", "other"), "NOKEEPER")
        live.c.etcd[1].start()
        check(until_done(lambda: b("CHECK", "lease/12", plain_), "there is a keeper"), 1)
        check(b("READ", "m:1")[1] > 0, True)


@test
def nodes_that_differ_reject_each_other(t):
    with trio(t, options={"majority-keys": "m:*"}) as (live, keeper, one, two):
        for options, words in (({"majority-keys": "n:*"}, "majority-keys"),
                               ({"etcd-prefix": "other/"}, "etcd-prefix"),
                               ({"engine": "none", "etcd": None, "etcd-prefix": None, "majority-keys": None},
                                "values of engine differ")):
            before = len(live[one].log)
            live[two].options = options
            live[two].restart()
            until(lambda: words in live[one].log[before:] or words in live[two].since_start(),
                  "%s is said" % words)
            check(live.client(one)("NODES") is not None, True)
            nodes = {n["id"]: n["state"] for n in map(pairs, pairs(live.client(one)("NODES"))["nodes"])}
            check_that(nodes[two] != b"up", "node %d is not up: %r" % (two, nodes))
            put_at_last(live.client(one), "t", "x", "1")
        live[two].options = {}
        live[two].restart()
        put_at_last(live.client(two), "t", "x", "2")


@test
def settings_that_do_not_fit_say_what_to_do(t):
    node = ("--node", "1", "--peers", "1=127.0.0.1:5627", "--node-port", "auto", "--secret", "s" * 20, "--data", t.path("data"))
    for options, words in ((("--engine", "etcd"), "engine etcd requires the setting \"node\""),
                           (("--etcd", "http://127.0.0.1:1"), "engine etcd requires the setting \"node\""),
                           (node + ("--engine", "etcd"), "set \"etcd\" to http://"),
                           (node + ("--engine", "lmdb"), "a cluster requires etcd"),
                           (node + ("--majority-keys", "m*"), "majority-keys"),
                           (node + ("--engine", "none", "--etcd", "http://127.0.0.1:1"), 'etcd requires engine etcd or auto (got "none")'),
                           (node + ("--etcd", "http://127.0.0.1:1", "--majority-keys", "a,,b"), "contains an empty pattern"),
                           (node + ("--etcd", "http://127.0.0.1:1", "--etcd-user", "u"), "etcd-password"),
                           (node + ("--etcd", "http://127.0.0.1:1", "--etcd-cert", "c"), "etcd-key"),
                           (node + ("--etcd", "http://"), "http://"),
                           (node + ("--etcd", "ftp://127.0.0.1:1"), "http"),
                           (node + ("--etcd", "https://127.0.0.1:1", "--etcd-ca", t.path("none.pem")), "none.pem")):
        p = t.failing(*options)
        check_that(p.status in (1, 2), "%r: status %r" % (options[-4:], p.status))
        check_that(words in p.err, "%r: it says %r: %s" % (options[-4:], words, p.err))


# --- Each by itself, and soon: what a mutant forgets --------------------------------------------------


@test
def nothing_is_forgotten_with_a_keeper(t):
    # All leases are short, so they are not in etcd: the nodes report them.
    with trio(t, options={"lease-volatile": "90s"}) as (live, keeper, one, two):
        a, w, k, x, tx = live.clients(one, two, keeper, two, one)
        mutex, dead, begun = a.acquire("mutex"), k.acquire("dead"), begin(tx)
        lease, extended = k.acquire("lease", "LEASE", 60000), a.acquire("extended", "LEASE", 900)
        check(x("EXTEND", "extended", extended, 60000), 60000)
        live.waits(one, w, "ACQUIRE", "mutex", "WAIT", FOREVER)
        since = time.monotonic()
        time.sleep(1)
        live[keeper].kill()
        for key, fence in (("mutex", mutex), ("extended", extended), ("lease", lease)):
            check(x("CHECK", key, fence), 1, "%s is held" % key)
        live.until_waiting(one, "mutex")
        waited = pairs(pairs(x("EXPLAIN", "mutex"))["waiters"][0])["waited_ms"]
        check_that(waited >= 1000, "it has waited %d ms, of %.0f" % (waited, (time.monotonic() - since) * 1000))
        check_error(x("ACQUIRE", "dead"), "RECOVERING")
        check_error(x("CHECK", "dead", dead), "RECOVERING")
        check_error(x("RELEASE", "dead", dead), "RECOVERING")
        check_error(x("BREAK", "dead", dead), "RECOVERING")
        check_error(tx("TX.COMMIT"), "STALE")


@test
def what_the_keeper_did_but_could_not_say_is_done(t):
    """Its node does not hear it any more; then it dies."""
    with trio(t, proxied=True) as (live, keeper, one, two):
        a, tx, b = live.clients(one, one, two)
        fence = a.acquire("k", "LEASE", 60000)
        begin(tx, "REQUEST", "r")
        ok(tx, "TX.PUT", "t", "x", "1")
        live.c.cut(keeper, one, one_way=True)
        a.send("RELEASE", "k", fence)
        tx.send("TX.COMMIT")
        mine = fence_of(b("ACQUIRE", "k", "LEASE", 60000, "WAIT", 20000))
        revision = until(lambda: b("TX.OUTCOME", "r"), "it is committed")
        a.reset()
        live[keeper].kill()
        check(tx.reply(), revision, "TX.COMMIT")
        live.keeper()
        check(b("CHECK", "k", mine), 1)
        check(pairs(b("EXPLAIN", "k"))["holders_count"], 1, "how many hold it")


@contextlib.contextmanager
def replies_lost(live, keeper, node, count):
    """The node sends what the block sends, this many commands, and loses the link to the keeper
    before it hears a reply."""
    live.c.cut(keeper, node, one_way=True)
    yield
    until(lambda: live.number(node, "forwarded_waiting") == count, "%d commands wait" % count)
    live.c.hang_up()
    live.c.heal()


@test
def an_ACQUIRE_whose_reply_was_lost_does_not_find_its_own_grant(t):
    with trio(t, proxied=True) as (live, keeper, one, two):
        a, b = live.clients(one, two)
        known = a.acquire("k", "LEASE", 60000, "PER", 3)
        with replies_lost(live, keeper, one, 1):
            a.send("ACQUIRE", "k", "LEASE", 60000, "PER", 3, "UNITS", 2)
        fence = fence_of(a.reply())
        check([b("CHECK", "k", known), b("CHECK", "k", fence)], [1, 1])
        check(pairs(b("EXPLAIN", "k"))["holders_count"], 2, "how many hold it")


@test
def a_grant_for_a_client_that_left_is_withdrawn(t):
    """The keeper grants a lease, and the client leaves before its node knows that."""
    with trio(t, proxied=True) as (live, keeper, one, two):
        a, b, listener = live.client(one), live.client(two), live.client(keeper)
        listener.subscribe("lock:k")
        live.c.cut(keeper, one, one_way=True)
        a.send("ACQUIRE", "k", "LEASE", 3600000, "WAIT", FOREVER)
        got = until(lambda: b("READ", "k"), "it is granted")
        a.close()
        check_that(fence_of(b("ACQUIRE", "k", "WAIT", FOREVER)), "it is free again")
        live.c.heal()
        listener.message()
        check(listener.message()[1], "released %d why=unanswered" % got[1])


@test
def a_grant_for_a_request_that_failed_is_withdrawn(t):
    """Only the node of the client does not hear the keeper."""
    with trio(t, proxied=True, options={"keeper-wait": "1s"}) as (live, keeper, one, two):
        a, b = live.clients(one, two)
        live.c.cut(keeper, one, one_way=True)
        a.send("ACQUIRE", "k", "LEASE", 3600000)
        fence = until(lambda: b("READ", "k"), "it is granted")[1]
        live.c.cut(keeper, one, reset=True)
        check_error(a.reply(), "NOKEEPER")
        check(live.term(keeper, two) and b("CHECK", "k", fence), 1, "it is still held")
        live.c.heal()
        check_that(fence_of(b("ACQUIRE", "k", "WAIT", FOREVER)) > fence, "it is free again")


@test
def a_commit_after_RESET_is_rejected_when_the_link_is_lost(t):
    """RESET ends the transaction, so the node must not ask for its outcome."""
    with cluster(t, 2, proxied=True) as live:
        keeper, one = live.roles()
        c, again = live.clients(one, one)
        begin(c, "REQUEST", "x")
        check(c("RESET"), "RESET")
        check_that(isinstance(put(again, "t", "k", "1", "REQUEST", "again"), int), "it is committed")
        with replies_lost(live, keeper, one, 2):
            c.send("TX.COMMIT")
            again.send("TX.COMMIT")
        check_error(c.reply(), "NOTX")
        check_error(again.reply(), "NOTX")
        check_that(isinstance(put_at_last(c, "t", "k", "2"), int), "the node still serves")


@test
def a_lost_commit_is_settled_by_the_id_of_its_own_transaction(t):
    """A TX.BEGIN that is rejected does not replace the remembered id."""
    with cluster(t, 2, proxied=True) as live:
        keeper, one = live.roles()
        c, named, waits, aborts = live.clients(one, one, one, one)
        put(c, "t", "y", "1", "REQUEST", "y")
        begin(c, "REQUEST", "x")
        ok(c, "TX.PUT", "t", "x", "1")
        check_error(c("TX.BEGIN", "REQUEST", "y"), "NOTX")
        check_error(named("TX.BEGIN", "REQUEST"), "ERR")
        begin(named, "REQUEST", "z")
        check_error(named("TX.BEGIN"), "NOTX")
        begin(waits)
        begin(aborts)
        held = live.client(keeper)
        held.acquire("k")
        with replies_lost(live, keeper, one, 4):
            c.send("TX.COMMIT")
            named.send("TX.COMMIT")
            waits.send("ACQUIRE", "k", "WAIT", FOREVER)
            aborts.send("TX.ABORT")
        check_error(c.reply(), "STALE", "retry from TX.BEGIN")
        check_error(named.reply(), "STALE", "retry from TX.BEGIN")
        check(aborts.reply(), "OK", "TX.ABORT")
        check(held("RELEASE", "k"), 1)
        fence_of(waits.reply())
        check_error(waits("TX.COMMIT"), "STALE", "retry from TX.BEGIN")
        check(get(c, "t", "x"), None)
        check(c("TX.OUTCOME", "x"), None)


@test
def after_the_half_of_a_reply_nothing_else_follows(t):
    """The link breaks in the middle of a large one: what came next would be taken for its rest."""
    with trio(t, proxied=True) as (live, keeper, one, _):
        c, value = live.client(one), "v" * 15000
        begin(c)
        for i in range(60):
            ok(c, "TX.PUT", "t", "k%d" % i, value)
        check_that(isinstance(c("TX.COMMIT"), int), "it is committed")
        begin(c)
        live.c.slow(keeper, one, bytes_per_s=300000)
        c.send("TX.SCAN", "t")
        until(c.ready, "a part has come")
        live.c.hang_up(keeper, one)
        live.c.heal()
        check_that(b"STALE" not in c.until_closed(), "the connection ends, and no error is told")
        live.keeper()


@test
def leases_that_end_by_themselves_are_forgotten(t):
    live = shared(t)
    keeper, one, _ = live.roles()
    c = live.client(one)
    for _ in range(20):
        for i in range(500):
            c.send("ACQUIRE", "ends%d" % i, "LEASE", 1)
        for i in range(500):
            c.reply()
    check_that(live.number(one, "handover_grants") < 4000, "there are %d" % live.number(one, "handover_grants"))


@test
def a_new_keeper_lets_others_reclaim_first(t):
    """Who asked before it became that is not told that nobody holds it."""
    with trio(t) as (live, keeper, one, two):
        a, b = live.clients(one, two)
        of_a, of_b = a.acquire("a", "LEASE", 60000), b.acquire("b", "LEASE", 60000)
        live[keeper].pause()
        a.send("CHECK", "b", of_b)
        b.send("CHECK", "a", of_a)
        for i in (one, two):
            until(lambda: live.number(i, "forwarded_waiting") == 1, "it waits")
        live[keeper].kill()
        check([a.reply(), b.reply()], [1, 1])


@test
def a_client_that_leaves_another_node_releases(t):
    """At once; or as soon as the keeper hears of it."""
    with trio(t, proxied=True, options={"linger": "60s"}) as (live, keeper, one, two):
        a, c, b = live.clients(one, one, two)
        a.acquire("said")
        c.acquire("unsaid")
        a.close()
        check_that(fence_of(b("ACQUIRE", "said", "WAIT", 5000)), "it was told")
        live.c.cut(keeper, one, reset=True)
        until(lambda: live.info(one).get("keeper_reachable") == "0", "there is no way")
        c.close()
        live.c.heal()
        check_that(fence_of(b("ACQUIRE", "unsaid", "WAIT", 5000)), "it was not named any more")


@test
def a_RELEASE_of_another_key_or_connection_changes_nothing(t):
    with trio(t) as (live, keeper, one, two):
        a, b, c = live.clients(one, one, two)
        held, leased = a.acquire("held"), a.acquire("leased", "LEASE", 60000)
        for key, fence in (("other", held), ("held", held), ("other", leased)):
            check(b("RELEASE", key, fence), 0, "RELEASE %s" % key)
        live[keeper].kill()
        until(lambda: a("CHECK", "held", held) == 1, "the next keeper knows the grant without a lease")
        until(lambda: a("CHECK", "leased", leased) == 1, "and the one with a lease")
        check(b("RELEASE", "leased", leased), 1)
        check(a("RELEASE", "held", held), 1)


@test
def a_note_is_not_an_option(t):
    """A client that does not wait is answered though it has ended its stream."""
    with cluster(t, 2) as live:
        keeper, one = live.roles()
        clients = [(options, live.client(one)) for options in (
            ("NOTE", "WAIT"), ("VALUE", "WAIT", "NOTE", 5), ("NOTE", "WAIT", "STEAL", "AUTO"), ("WAIT", 0))]
        live[keeper].pause()
        for i, (options, c) in enumerate(clients):
            c.send("ACQUIRE", "k%d" % i, *options)
            c.socket.shutdown(1)
        time.sleep(0.2)  # the node reads the end of the streams; the keeper is not given up yet
        live[keeper].resume()
        for options, c in clients:
            check_that(c.until_closed().startswith(b"*5\r\n"), "%r is granted" % (options,))
        c = live.client(one)
        for options in (("NOTE",), ("WAIT", "x"), ("NOTE", "WAIT", "WAIT"), ("STEAL", 2, "WAIT", 1)):
            check_error(c("ACQUIRE", "k", *options), "ERR")


@test
def a_transaction_rejected_by_its_node_is_not_committed(t):
    with cluster(t, 2) as live:
        keeper, one = live.roles()
        c = live.client(one)
        begin(c)
        ok(c, "TX.PUT", "t", "x", "1")
        check_error(c("TX.NEVER"), "ERR")
        check_error(c("TX.COMMIT"), "ERR", "nothing was committed")
        check(get(c, "t", "x"), None)


@test
def without_etcd_nothing_is_granted(t):
    with cluster(t) as live:
        c = live.client(live.keeper())
        fence = c.acquire("held", "LEASE", 60000)
        live.c.etcd[1].pause()
        got = until(lambda: [x for x in [c("ACQUIRE", "k", "SHARED")] if isinstance(x, Error)],
                    "its authority has ended", 6)
        check_error(got[0], "NOKEEPER")
        # The next keeper may have granted it, or released it.
        for command in "CHECK", "RELEASE":
            check_error(c(command, "held", fence + 1), "NOKEEPER")
        check_error(c("CHECK", "held", fence), "NOKEEPER")
        check(c("RELEASE", "held", fence), 1)


@test
def fences_rise_though_the_next_clock_is_behind(t):
    with trio(t, clock=True) as (live, keeper, one, two):
        a, b = live.clients(one, two)
        last = a.acquire("k")
        for i in (one, two):
            live.c.clock(i, offset=-3600)
        live[keeper].kill()
        got = until_done(lambda: b("ACQUIRE", "other", "WAIT", 20000), "it is granted")
        check_that(fence_of(got) > last, "fence %d after %d" % (got[0], last))


def shares(f):
    """Whether a test uses the cluster that they share."""
    return "shared" in f.__code__.co_names or any(
        callable(x.cell_contents) and shares(x.cell_contents) for x in f.__closure__ or ())


def wants_shared(words):
    """Whether one of the tests that these words choose uses it."""
    patterns = [word for before, word in zip([None, *words], words)
                if not word.startswith("-") and before != "--jobs"]
    return any(shares(f) for name, f in tap.tests
               if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hold"]:
        sys.exit(hold(sys.argv[2]))
    if (etcds.missing() or len(sys.argv) < 2 or sys.argv[1].startswith("-") or
            not wants_shared(sys.argv[2:])):
        main(__doc__)
        sys.exit()
    holder = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--hold", sys.argv[1]],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    os.environ[SHARED] = holder.stdout.readline().strip()
    try:
        main(__doc__)
    finally:
        holder.stdin.close()
        holder.wait()
