#!/usr/bin/python3
"""test_cluster.py - nodes of a cluster, live on loopback: what clients see when nodes die,
start, come and go; which requests fail, and with which message.

    tests/server/test_cluster.py SERVER [--long] [--seed N] [--jobs N] [PATTERN...]

--long: more rounds of killing and of changing the list.
"""
import errno
import os
import random
import re
import shutil
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import long  # noqa: E402

LONG, SEED = long.take(deadline_s=600)
from live import (Error, Failure, check, check_error, check_that, encode, fence_of,  # noqa: E402
                  main, pairs, test, test_of, threads)
from shims import Shims  # noqa: E402

SECRET = "a secret of this test, and of no other"
FOREVER = 10 ** 8
LEASE = 1500


# --- What they share ---------------------------------------------------------------------------


class Cluster:
    """Nodes of one test. Each has an address of its own, so all have the same port."""

    def __init__(self, t, count=3, *options, start=True, env=None, warm=60000):
        """env: of the last node, or of each. warm: a lease so long was granted and released, so that
        the disks have fences for some time, and no node is slower than others."""
        self.t = t
        self.options = options
        self.net = "127.%d.%d" % (1 + os.getpid() // 256 % 250, os.getpid() % 256)
        self.members = list(range(1, count + 1))
        self.servers = {}
        if not start:
            return
        envs = env if env and count in env else {count: env}
        for i in self.members:
            self.start(i, "--bootstrap", wait=False, env=envs.get(i))
        for i in self.members:
            self[i].until_ready()
        self.until_linked()
        if warm:
            self.warm_up(warm)

    def address(self, i):
        return "%s.%d:5627" % (self.net, i)

    @property
    def peers(self):
        return ",".join("%d=%s" % (i, self.address(i)) for i in self.members)

    def directory(self, i):
        return self.t.path("node%d" % i)

    def start(self, i, *options, peers=None, **more):
        if i not in self.members:
            self.members.append(i)
        self.servers[i] = self.t.server(
            "--node", str(i), "--peers", self.peers if peers is None else peers,
            "--node-bind", "%s.%d" % (self.net, i), "--secret", SECRET, "--data", self.directory(i),
            *self.options, *options, **more)
        return self.servers[i]

    def __getitem__(self, i):
        return self.servers[i]

    def client(self, i, protocol=2):
        return self[i].client(protocol)

    def clients(self, protocol=2):
        return [self.client(i, protocol) for i in sorted(self.servers)]

    def kill(self, i):
        self[i].kill()
        del self.servers[i]

    def nodes(self, i):
        """NODES at a node: version, and {id: state}."""
        got = pairs(self.client(i)("NODES"))
        return got["version"], {pairs(n)["id"]: pairs(n)["state"].decode() for n in got["nodes"]}

    def until_linked(self, *ids):
        """All that run see each other."""
        ids = ids or sorted(self.servers)

        def linked():
            return all(self.nodes(i)[1].get(k) in ("up", "self") for i in ids for k in ids)

        self.t.until(linked, "nodes %r are linked" % (ids,))

    def warm_up(self, lease):
        for i in self.members:  # A node that grants has fences on its own disk; two votes suffice for that.
            c = self.client(i)
            fence = c.acquire("warm", "LEASE", lease, "WAIT", FOREVER)
            check(c("RELEASE", "warm", fence), 1)
            c.close()

    def until_votes(self, i, client=None):
        self.t.until(lambda: self[i].number("silent_ms", client) == 0, "node %d votes" % i)


def until_granted(t, client, key, lease=LEASE, seconds=20):
    """Ask again until it is granted; only what may pass is borne with."""
    def once():
        got = client("ACQUIRE", key, "LEASE", lease)
        if isinstance(got, Error) and got.word not in ("NOQUORUM", "RECOVERING"):
            raise Failure("ACQUIRE %s: %r" % (key, got))
        return got[0] if isinstance(got, list) else None
    return t.until(once, "%s is granted" % key, seconds)


def waited(event):
    """The event without how long it has waited: the first one waits for disks."""
    return re.sub(r"waited_ms=\d+", "waited_ms=_", event)


# --- Locks, while all is well ---------------------------------------------------------------------


@test
def what_is_taken_at_one_node_is_seen_at_all(t):
    c = Cluster(t)
    one, two, three = c.clients()
    got = one("ACQUIRE", "k", "LEASE", 30000, "VALUE", "host:1", "NOTE", "a note")
    fence = fence_of(got)
    check([got[1:3], got[4]], [[1, 30000], 0])
    check_that(got[3] < 1000, "it has hardly waited: %d ms" % got[3])
    for x in (one, two, three):
        t.until(lambda: x("READ", "k"), "every node has it")
        value, read, left = x("READ", "k")
        check([value, read], [b"host:1", fence])
        check_that(0 < left <= 30000, "its lease: %d" % left)
        check(x("READ", "k", "MAJORITY")[:2], [b"host:1", fence])
        check([x("CHECK", "k", fence), x("CHECK", "k", fence + 1)], [1, 0])
        check(x("ACQUIRE", "k", "LEASE", 30000), None, "it is taken")
        check(x("AWAIT", "k", "HELD", 0), 1)
        listed = pairs(x("LOCKS")[1][0])
        check(pairs(listed.pop("holder"))["fence"], fence)
        check(listed, {"key": b"k", "held": 1, "holders": 1, "waiters": 0, "waited_ms": -1, "shared": 0, "drained": 0})
    check(three("EXTEND", "k", fence, 40000, "VALUE", "host:2"), 40000)
    check(two("READ", "k", "MAJORITY")[0], b"host:2", "the value that a majority has")
    t.until(lambda: one("READ", "k")[0] == b"host:2", "the new value is everywhere")
    two.send("AWAIT", "k", "FREE", 20000)
    check(three("RELEASE", "k", fence), 1)
    check(two.reply(), 1)
    for x in (one, two, three):
        check(x("READ", "k", "MAJORITY"), None)
        t.until(lambda: x("READ", "k") is None, "it is gone everywhere")
    check([one("RELEASE", "k", fence), one("CHECK", "k", fence)], [0, 0])
    check_error(one("EXTEND", "k", fence, 1000), "LOST")
    check_that(fence_of(two("ACQUIRE", "k", "LEASE", 1000)) > fence, "fences rise")


def where(client, node):
    """The address of a client, as all nodes show it."""
    host, port = client.socket.getsockname()[:2]
    return b"%s:%d via node %d" % (host.encode(), port, node)


@test
def every_node_names_the_holder_after_its_node_has_died(t):
    c = Cluster(t)
    one = c.client(1)
    one("CLIENT", "SETNAME", "backup-7")
    fence = one.acquire("k", "LEASE", 600000)
    for i in (2, 3):
        check(c.client(i)("AWAIT", "k", "HELD", 20000), 1)
    expected = [fence, b"backup-7", where(one, 1)]
    one.close()
    c.kill(1)
    c.start(1)  # it is silent, and has no lease; EXPLAIN asks the others
    for i in (2, 3, 1):
        t.until(lambda: c[i].explain("k")["holders_count"] == 1, "node %d knows the lease" % i)
        holder = pairs(c[i].explain("k")["holders"][0])
        check([holder["fence"], holder["name"], holder["address"]], expected, "EXPLAIN at node %d" % i)
        check_that(c[i].explain("k")["summary"][0].startswith(b"backup-7 (%s) has held it for " % expected[2]),
                   c[i].explain("k")["summary"])
        if i == 1:
            continue
        holder = pairs(pairs(c.client(i)("LOCKS")[1][0])["holder"])
        check([holder["fence"], holder["name"], holder["address"]], expected, "LOCKS at node %d" % i)
    check(c.client(2)("EXTEND", "k", fence, 700000), 700000, "through another node")
    check(pairs(c[3].explain("k")["holders"][0])["name"], b"backup-7", "after an extension")


@test
def LOCKS_WAITED_lists_the_waiters_of_the_node(t):
    c = Cluster(t)
    one, two, three, x = *c.clients(), c.client(2)
    for key in ("a", "b", "free"):
        one.acquire(key, "LEASE", 600000)
    two.send("ACQUIRE", "b", "LEASE", 1000, "WAIT", FOREVER)
    c[2].until_waiting("b", 1)
    time.sleep(0.005)
    other = c.client(2)
    other.send("ACQUIRE", "a", "LEASE", 1000, "WAIT", FOREVER)
    c[2].until_waiting("a", 1)
    three.send("ACQUIRE", "a", "LEASE", 1000, "WAIT", FOREVER)
    c[3].until_waiting("a", 1)
    cursor, maps = x("LOCKS", "WAITED")
    maps = [pairs(m) for m in maps]
    check((cursor, [m["key"] for m in maps]), (b"0", [b"b", b"a"]))
    check([(m["waiters"], pairs(m["holder"])["address"]) for m in maps], [(1, where(one, 1))] * 2)
    check_that(maps[0]["waited_ms"] >= maps[1]["waited_ms"] >= 0, "how long they have waited")
    check(x("LOCKS", "WAITED", "COUNT", 1)[0] != b"0", True, "there is another page")
    check([pairs(m)["key"] for m in c.client(3)("LOCKS", "WAITED")[1]], [b"a"], "at node 3")
    check(c.client(1)("LOCKS", "WAITED"), [b"0", []])
    two.close()
    t.until(lambda: [pairs(m)["key"] for m in x("LOCKS", "WAITED")[1]] == [b"a"], "one has left")


@test
def a_waiter_is_granted_when_another_node_releases(t):
    c = Cluster(t)
    one, two, three = c.clients()
    fence = one.acquire("k", "LEASE", 60000)
    two.send("ACQUIRE", "k", "LEASE", 60000, "WAIT", FOREVER, "NOTE", "waits")
    c[2].until_waiting("k", 1)
    # Two votes suffice, so one node may learn of the lease later.
    t.until(lambda: [(pairs(n)["node"], pairs(n)["says"], pairs(n).get("fence")) for n in c[2].explain("k")["nodes"]] ==
            [(i, b"held", fence) for i in (1, 2, 3)], "all nodes say that it is held")
    why = c[2].explain("k")
    check([pairs(w)["note"] for w in why["waiters"]], [b"waits"])
    check([pairs(h)["fence"] for h in why["holders"]], [fence])
    check_that(b" has held it for " in why["summary"][0] and b"; next at this node: " in why["summary"][0],
               why["summary"])
    check(pairs(c.client(2)("LOCKS")[1][0])["waiters"], 1)
    time.sleep(0.05)  # waited_ms is rounded down: on a fast machine it would be 0
    began = time.monotonic()
    check(one("RELEASE", "k", fence), 1)
    got = two.reply()
    took = time.monotonic() - began
    check_that(fence_of(got) > fence and got[3] > 0, "granted: %r" % got)
    check_that(took < 30, "long before the lease would have expired: %.3f s" % took)
    check(three("ACQUIRE", "k", "LEASE", 1000, "WAIT", 300), None, "the wait timed out")


@test
def a_lease_expires_without_any_command(t):
    c = Cluster(t)
    one, two, _ = c.clients()
    sent = time.monotonic()
    fence = one.acquire("k", "LEASE", 700)
    two.send("ACQUIRE", "k", "LEASE", 700, "WAIT", 20000)
    got = two.reply()
    check_that(fence_of(got) > fence, "fences rise")
    check_that(time.monotonic() - sent >= 0.7, "not before the first has ended")
    check_error(one("EXTEND", "k", fence, 700), "LOST")


def every_node_publishes_each_event_once(t, count):
    """Each step is everywhere before the next: messages of several nodes may cross."""
    c = Cluster(t, count)
    eyes, listeners = c.clients(), c.clients()
    for x in listeners:
        x.subscribe("lock:k", "lock:end")

    def everywhere(what, condition):
        t.until(lambda: all(condition(x("READ", "k")) for x in eyes), "it is %s everywhere" % what)

    fence = eyes[0].acquire("k", "LEASE", 60000)
    everywhere("granted", lambda got: got is not None)
    check(eyes[1]("EXTEND", "k", fence, 70000), 70000)
    everywhere("extended", lambda got: got[2] > 60000)
    check(eyes[-1]("RELEASE", "k", fence), 1)
    everywhere("released", lambda got: got is None)
    short = eyes[1].acquire("k", "LEASE", 900)
    wanted = [r"granted %d held=1 lease_ms=60000 waited_ms=\d+" % fence,
              r"extended %d lease_ms=70000" % fence,
              r"released %d" % fence,
              r"granted %d held=1 lease_ms=\d+ waited_ms=\d+" % short,
              r"expired %d" % short]
    for x in listeners:
        got = [m for _, m in x.messages(5)]
        check_that(all(map(re.fullmatch, wanted, got)), "these are the events: %r" % got)
    last = eyes[0].acquire("end", "LEASE", 60000)
    for x in listeners:
        check_that(x.message()[1].startswith("granted %d " % last), "nothing else came before")
    time.sleep(0.3)  # what would come twice comes late
    check([x.quiet() for x in listeners], [True] * count)


for count in (3, 5):
    test_of("every_node_publishes_each_event_once_%d" % count, every_node_publishes_each_event_once, count)


@test
def no_wait_ends_before_its_time(t):
    """As a client measures it: the server's clock counts whole milliseconds."""
    c = Cluster(t)
    c.client(1).acquire("k", "LEASE", 60000)
    for x in c.clients():
        t.until(lambda: x("READ", "k"), "every node has it")
        for words in (("ACQUIRE", "k", "LEASE", 1000, "WAIT", 10), ("AWAIT", "k", "FREE", 10)):
            for _ in range(12):
                time.sleep(random.random() / 1000)  # begin anywhere in a millisecond
                sent = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                got = x(*words)
                passed = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - sent
                check_that(not got, "%s: %r" % (words[0], got))
                check_that(passed >= 10000000, "%s ended after %d us of 10000" % (
                    words[0], passed // 1000))


@test
def bare_RELEASE_gives_back_what_this_connection_took(t):
    c = Cluster(t)
    one, other = c.client(1), c.client(1)
    fence = one.acquire("k", "LEASE", 60000)
    check(other("RELEASE", "k"), 0, "another connection")
    check(c.client(2)("RELEASE", "k"), 0, "another node")
    check(one("CHECK", "k", fence), 1)
    check(one("RELEASE", "k"), 1)
    check([one("CHECK", "k", fence), one("RELEASE", "k")], [0, 0])


@test
def a_repeated_request_waits_for_its_own_lease(t):
    """As on one server: a lease expires, so there is no deadlock."""
    c = Cluster(t)
    one = c.client(1)
    sent = time.monotonic()
    fence = one.acquire("k", "LEASE", 700)
    check(one("ACQUIRE", "k", "LEASE", 700), None, "without waiting it is just taken")
    check_that(one.acquire("k", "LEASE", 700, "WAIT", 20000) > fence, "fences rise")
    check_that(time.monotonic() - sent >= 0.7, "not before the first has ended")


@test
def commands_may_be_sent_ahead(t):
    """A pipeline is done in order, also if its client ends its stream behind it. It is so long that
    the server reads that end before it has done all commands."""
    c = Cluster(t)
    one = c.client(1)
    for i in range(200):
        one.send("ACQUIRE", "k%d" % i, "LEASE", 60000)
    fences = [fence_of(one.reply()) for _ in range(200)]
    check(sorted(fences), fences, "in the order of their fences")
    for i, fence in enumerate(fences):
        one.send("RELEASE", "k%d" % i, fence)
    one.socket.shutdown(1)
    check([one.reply() for _ in fences], [1] * 200)
    check(one.until_closed(), b"")
    check(c.client(2)("ACQUIRE", "k199", "LEASE", 1000)[1], 1)


@test
def a_duration_may_have_a_unit(t):
    c = Cluster(t)
    one, two = c.client(1), c.client(2)
    fence, _, lease, _, _ = one("ACQUIRE", "k", "LEASE", "1.5m", "WAIT", "5s")
    check(lease, 90000)
    check(two("EXTEND", "k", fence, "5m"), 300000)
    start = time.monotonic()
    check(two("ACQUIRE", "k", "LEASE", "30s", "WAIT", "300ms"), None)
    check_that(time.monotonic() - start >= 0.3, "it waited for 300 ms")
    check_error(two("ACQUIRE", "k", "LEASE", "30S"), "ERR", 'got "30S"')
    check_error(two("ACQUIRE", "k", "LEASE", "25h"), "TOOBIG", "24h (lease-max)")


# --- Stealing ---------------------------------------------------------------------------------------


@test
def a_thief_at_another_node_asks_and_the_victim_releases(t):
    c = Cluster(t)
    victim, thief, listener = c.client(1, 3), c.client(2, 3), c.client(3)
    listener.subscribe("lock:k")
    fence = victim.acquire("k", "LEASE", 60000, "NOTE", "the victim")
    thief.send("ACQUIRE", "k", "LEASE", 50000, "WAIT", FOREVER, "PRIORITY", 7, "STEAL")
    asked = victim.push()
    check(asked, [b"lock", b"k", b"asked", fence])
    waits = thief.push()
    check(waits[:4], [b"lock", b"k", b"waits", fence])
    check_that(0 < waits[4] <= 60000, "what is left: %r" % waits)
    check(waits[5], b"the victim")
    told = [waited(m) for _, m in listener.messages(2)]  # Node 3 may learn of it later.
    check_error(c.client(3)("EXTEND", "k", fence, 60000), "ASKED")
    check(victim("CHECK", "k", fence), 1, "it still has it")
    check(c[3].explain("k")["summary"].count(
        b"reserved for a waiter with STEAL: the nodes have asked the holder to release"), 1)
    check(victim("RELEASE", "k", fence), 1)
    got = thief.reply()
    check([got[1], got[2], got[4]], [1, 50000, 0])
    check_that(got[0] > fence, "fences rise")
    told += [waited(m) for _, m in listener.messages(3)]
    check_that(re.fullmatch(r"asked %d priority=7 left_ms=\d+" % fence, told[1]), told)
    check(told[:1] + told[2:4], ["granted %d held=1 lease_ms=60000 waited_ms=_" % fence,
                                 "released %d" % fence, "stolen %d" % fence])
    check(told[4], "granted %d held=1 lease_ms=50000 waited_ms=_" % got[0])
    t.until(lambda: "count=1," in c[1].info()["steal_answer_ms"], "the answer was counted")


@test
def a_victim_that_does_not_listen_is_waited_for(t):
    c = Cluster(t)
    victim, thief, listener = c.client(1, 3), c.client(2), c.client(3)
    listener.subscribe("lock:k")
    sent = time.monotonic()
    fence = victim.acquire("k", "LEASE", 1200)
    thief.send("ACQUIRE", "k", "LEASE", 50000, "WAIT", FOREVER, "PRIORITY", 7, "STEAL")
    got = thief.reply()
    check_that(time.monotonic() - sent >= 1.2, "not before the lease has ended")
    check([got[0] > fence, got[4]], [True, 0])
    told = [m.split()[0] for _, m in listener.messages(5)]
    check(told, ["granted", "asked", "expired", "stolen", "granted"])
    check([victim.push()[2], victim.push()[2]], [b"asked", b"expired"])
    check_error(victim("EXTEND", "k", fence, 1000), "LOST")


@test
def a_holder_whose_own_node_is_slow_is_asked_as_well(t):
    """The others have agreed before its own node could vote."""
    shims = Shims(t)
    c = Cluster(t, env=shims.env, warm=LEASE)
    shims.disk(-1)
    victim, thief = c.client(3, 3), c.client(2)
    fence = victim.acquire("k", "LEASE", 60000)
    thief.send("ACQUIRE", "k", "LEASE", 50000, "WAIT", FOREVER, "PRIORITY", 7, "STEAL")
    c[2].until_waiting("k", 1)
    shims.disk(0)
    check(victim.push(), [b"lock", b"k", b"asked", fence])
    check(victim("RELEASE", "k"), 1, "what this connection took")
    check_that(fence_of(thief.reply()) > fence, "fences rise")


@test
def a_thief_that_enters_is_marked(t):
    c = Cluster(t)
    victim, thief, listener = c.client(1, 3), c.client(2), c.client(3)
    listener.subscribe("lock:k")
    fence = victim.acquire("k", "LEASE", 60000)
    got = thief("ACQUIRE", "k", "LEASE", 50000, "WAIT", 20000, "PRIORITY", 7, "STEAL", "0.01")
    check([got[0] > fence, got[4]], [True, 1])
    pushed = [victim.push()[2], victim.push()[2]]
    check(pushed, [b"asked", b"stolen"])
    told = [m for _, m in listener.messages(4)]
    check([m.split()[0] for m in told], ["granted", "asked", "stolen", "granted"])
    check(told[2], "stolen %d overlapping=1" % fence)
    check_that(told[3].endswith(" overlapping=1"), told)
    check(thief("CHECK", "k", got[0]), 1)


@test
def a_thief_that_hangs_up_is_forgotten(t):
    c = Cluster(t)
    victim, thief = c.client(1, 3), c.client(2)
    fence = victim.acquire("k", "LEASE", 60000)
    thief.send("ACQUIRE", "k", "LEASE", 50000, "WAIT", FOREVER, "PRIORITY", 7, "STEAL")
    check(victim.push(), [b"lock", b"k", b"asked", fence])
    thief.close()
    check(victim.push(), [b"lock", b"k", b"withdrawn", fence])
    check(victim("EXTEND", "k", fence, 70000), 70000)
    check(c[2].number("requests"), 0)


def a_waiter_that_hangs_up_is_forgotten(t, how):
    c = Cluster(t)
    holder, waiter = c.client(1), c.client(2)
    fence = holder.acquire("k", "LEASE", 60000)
    waiter.send("ACQUIRE", "k", "LEASE", 60000, "WAIT", FOREVER)
    c[2].until_waiting("k", 1)
    if how == "close":
        waiter.close()
    else:
        waiter.reset()
    t.until(lambda: c[2].number("requests") == 0, "it has left the line")
    check(holder("RELEASE", "k", fence), 1)
    check(holder("READ", "k", "MAJORITY"), None)
    holder.acquire("k", "LEASE", 1000)


for how in ("close", "reset"):
    test_of("a_waiter_that_hangs_up_by_%s_is_forgotten" % how,
            a_waiter_that_hangs_up_is_forgotten, how)


@test
def a_client_that_disconnects_before_its_grant_does_not_hold(t):
    """Its node is stopped when it hangs up and the lock is released: it has both to read."""
    c = Cluster(t)
    holder, waiter = c.client(1), c.client(2)
    fence = holder.acquire("k", "LEASE", 60000)
    waiter.send("ACQUIRE", "k", "LEASE", 60000, "WAIT", FOREVER)
    waiter.send("PING", "x" * 60000).send("PING", "x" * 10000)  # more than is read while it waits
    c[2].until_waiting("k", 1)
    waiter.socket.shutdown(1)
    check(holder("RELEASE", "k", fence), 1)
    t.until(lambda: c[2].number("requests") == 0, "it is over")
    t.until(lambda: holder("READ", "k", "MAJORITY") is None, "nobody has it")
    holder.acquire("k", "LEASE", 1000)


# --- REQUEST, CANCEL, NOTIFY ---------------------------------------------------------------------------

ID, OTHER = "0123456789abcdef", "fedcba9876543210"


@test
def a_repeated_request_gets_its_own_grant_through_any_node(t):
    c = Cluster(t)
    one, two, three = c.clients()
    got = one("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID)
    check((got[1:3], got[4:]), ([1, 60000], [0, 0]))
    one.reset()  # as if the reply had been lost
    for client in (c.client(1), two, three):
        again = client("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID)
        check((again[0], again[1], again[4:]), (got[0], 1, [0, 1]), "the same grant")
        check_that(0 < again[2] <= 60000, "the time left")
    check_error(two("ACQUIRE", "k", "LEASE", "61s", "REQUEST", ID), "MISMATCH", "id")
    check_error(two("ACQUIRE", "k", "LEASE", "60s", "PRIORITY", 1, "REQUEST", ID), "MISMATCH")
    check(two("ACQUIRE", "k", "WAIT", 5, "LEASE", "60s", "REQUEST", ID)[0], got[0], "WAIT may differ")
    check(three("ACQUIRE", "k", "LEASE", "60s", "REQUEST", OTHER), None, "another id")
    check(three("RELEASE", "k", got[0]), 1)
    check_error(two("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID), "ENDED", "new id")
    check(c[1].number("grants") + c[2].number("grants") + c[3].number("grants"), 4, "three warmed up")


@test
def the_grant_of_a_request_survives_its_node(t):
    c = Cluster(t)
    got = c.client(1)("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID)
    c.kill(1)
    again = c.client(2)("ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    check((again[0], again[5]), (got[0], 1))
    c.kill(2)
    c.start(2)
    c.until_linked(2, 3)
    check(c.client(2)("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID)[0], got[0], "after a restart")
    check(c.client(2)("CANCEL", "k", ID), 2)


@test
def CANCEL_works_through_any_node(t):
    c = Cluster(t)
    one, two, three = c.clients()
    sub = c.client(3)
    sub.subscribe("lock:k")
    fence = fence_of(one("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID))
    c[2].waits(two, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", OTHER)
    check(c.client(2)("CANCEL", "k", OTHER), 1)
    check_error(two.reply(), "ENDED")
    check(three("CANCEL", "k", ID), 2)
    check([m[1].split()[:2] for m in sub.messages(2)],
          [["granted", str(fence)], ["released", str(fence)]])
    check(three("CANCEL", "k", ID), 0)
    check_error(two("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID), "ENDED")
    check(one("CANCEL", "k", "an id of no request"), 0)
    check_error(two("ACQUIRE", "k", "LEASE", "60s", "REQUEST", "an id of no request"), "ENDED")
    check_error(one("CANCEL", "k", "short"), "ERR", "16 to 128 bytes")


@test
def a_wait_with_an_id_continues_through_another_node(t):
    c = Cluster(t)
    one, two, three = c.clients()
    fence = one.acquire("k", "LEASE", "60s")
    c[2].waits(two, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    c[3].waits(three, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    check(one("RELEASE", "k", fence), 1)
    got, again = two.reply(), three.reply()
    check(got[0], again[0], "both get one grant")
    check(sorted((got[5], again[5])), [0, 1])


@test
def a_waiter_with_an_id_keeps_its_position_for_linger(t):
    c = Cluster(t, 1)
    fence = c.client(1).acquire("k", "LEASE", "60s")
    first, second = c.client(1), c.client(1)
    c[1].waits(first, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    second.send("ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER)
    t.until(lambda: c[1].waiters("k") == 2, "both wait")
    first.reset()
    t.until(lambda: c[1].waiters("k") == 1, "the node notices")
    again = c.client(1)
    again.send("ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    t.until(lambda: c[1].waiters("k") == 2, "it waits again")
    check(c.client(1)("RELEASE", "k", fence), 1)
    got = again.reply()
    check(got[5], 0)
    check(c.client(1)("CANCEL", "k", ID), 2)
    check_that(second.reply()[0] > got[0], "the other one follows")


@test
def a_grant_with_an_id_that_nobody_received_is_released_after_linger(t):
    c = Cluster(t, 3, "--linger", "1s")
    one, two, _ = c.clients()
    fence = two.acquire("k", "LEASE", "60s")
    c[1].waits(one, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    one.send("PING", "x" * 60000).send("PING", "x" * 10000)  # more than is read while it waits
    one.socket.shutdown(1)
    check(two("RELEASE", "k", fence), 1)
    t.until(lambda: c[1].number("requests") == 1, "only the release after linger is left")
    check(two("AWAIT", "k", "FREE", FOREVER), 1)
    check_that(two.acquire("k", "LEASE", "60s", "WAIT", FOREVER) > fence, "another client gets it")


@test
def NOTIFY_waits_in_a_majority_cluster(t):
    c = Cluster(t, 3, "--notify-max", "2")
    one, two = c.client(1), c.client(2, protocol=3)
    fence = one.acquire("k", "LEASE", "60s")
    check(two("ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID, "NOTIFY"), "QUEUED")
    check(two("ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", OTHER, "NOTIFY"), "QUEUED")
    check_error(two("ACQUIRE", "k", "LEASE", "60s", "REQUEST", "a third id, too many", "NOTIFY"), "LIMIT")
    check(two("PING"), "PONG")
    check(two("CANCEL", "k", OTHER), 1, "the reply is the outcome")
    check(one("RELEASE", "k", fence), 1)
    push = two.push()
    check(push[:4], [b"lock", b"k", b"outcome", ID.encode()])
    check((push[4][1], push[4][2], push[4][5]), (1, 60000, 0))
    check(two("RELEASE", "k", push[4][0]), 1)
    check(two("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID, "NOTIFY"), "QUEUED", "nodes must vote first")
    check_error(two.push()[4], "ENDED")


# --- LOCKS ---------------------------------------------------------------------------------------------


@test
def LOCKS_CLIENT_lists_the_locks_of_a_client_of_this_node(t):
    c = Cluster(t)
    one, two, other = c.client(1), c.client(1), c.client(1)
    fence = one.acquire("a", "LEASE", "60s")
    c.client(2).acquire("b", "LEASE", "60s")
    c[1].waits(two, "ACQUIRE", "a", "LEASE", "60s", "WAIT", FOREVER)
    mine = one("CLIENT", "ID")

    def keys(client):
        return [pairs(lock)["key"] for lock in other("LOCKS", "CLIENT", client, "COUNT", 100)[1]]

    check(keys(mine), [b"a"], "the holder")
    check(keys(mine + 1), [b"a"], "the waiter")
    check(keys(mine + 2), [], "another client")
    check(pairs(pairs(other("LOCKS", "MATCH", "a")[1][0])["holder"])["client"], mine)
    check(other("DRAIN", "a", "ON"), 1)
    check(pairs(other("LOCKS", "MATCH", "a")[1][0])["drained"] in (1, True), True)
    check_error(two.reply(), "DRAINED")
    check(one("RELEASE", "a", fence), 1)


# --- DRAIN ---------------------------------------------------------------------------------------------


@test
def DRAIN_works_through_any_node(t):
    c = Cluster(t, 3, "--drains-max", "2")
    one, two, three = c.clients()
    fence = one.acquire("k", "LEASE", "60s")
    c[2].waits(two, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER)
    check(one("DRAIN", "k*", "ON"), 1)
    check_error(two.reply(), "DRAINED")
    check(two("DRAIN", "k*", "ON"), 0)
    check(three("DRAIN"), [b"k*"])
    check_error(three("ACQUIRE", "key", "LEASE", "60s", "WAIT", FOREVER), "DRAINED")
    check(two("EXTEND", "k", fence, "60s"), 60000)
    check(two("RELEASE", "k", fence), 1)
    check(two("DRAIN", "a", "ON"), 1)
    check_error(three("DRAIN", "b", "ON"), "LIMIT", "drains-max")
    c.kill(3)
    c.start(3)
    c.until_linked()
    check(sorted(c.client(3)("DRAIN")), [b"a", b"k*"], "after a restart")
    check(two("DRAIN", "k*", "OFF"), 1)
    check(c.client(3)("DRAIN", "k*", "OFF"), 0)
    one.acquire("k", "LEASE", "1s", "WAIT", FOREVER)


# --- BREAK ---------------------------------------------------------------------------------------------


@test
def BREAK_works_through_any_node(t):
    c = Cluster(t)
    holder, two, three = c.client(1, protocol=3), c.client(2), c.client(3)
    sub = c.client(3)
    sub.subscribe("lock:k")
    fence = holder.acquire("k", "LEASE", "60s")
    events = sub.messages(1)  # Node 3 publishes no event of the lease before it has learned of the grant.
    check(two("BREAK", "k", fence + 16), 0, "another fence")
    check(two("BREAK", "k", fence), 1)
    check(holder.push()[:3], [b"lock", b"k", b"broken"])
    check_error(holder("EXTEND", "k", fence, "60s"), "LOST")
    check(pairs(c[3].explain("k")["holders"][0])["broken"] in (1, True), True, "EXPLAIN shows it")
    check(three("CHECK", "k", fence), 1, "until the lease expires")
    check(three("BREAK", "k", fence, "NOW"), 2)
    events += sub.messages(2)
    check([waited(m[1]).split(" held")[0] for m in events],
          ["granted %d" % fence, "broken %d why=last-lease" % fence, "released %d why=break" % fence])
    got = two("ACQUIRE", "k", "LEASE", "60s")
    check_that(got[0] > fence and got[4] == 1, "the next grant overlaps")
    check(two("BREAK", "k", got[0], "NOW"), 2)
    check(sub.messages(2)[1][1], "broken %d" % got[0])
    check(c[2].number("breaks") + c[3].number("breaks"), 3)


# --- What a majority cannot do -----------------------------------------------------------------------


@test
def options_that_a_majority_lacks_are_rejected_with_a_message(t):
    c = Cluster(t, 1)
    one = c.client(1)
    for words, part in ((("k",), "add LEASE"),
                        (("k", "WAIT", 100), "add LEASE"),
                        (("k", "SHARED", "LEASE", 1000), "SHARED needs a single server"),
                        (("k", "PER", 2, "LEASE", 1000), "PER, BUCKETS and UNITS need a single server"),
                        (("k", "PER", 1, "BUCKETS", 3, "LEASE", 1000), "BUCKETS"),
                        (("k", "UNITS", 2, "LEASE", 1000), "UNITS")):
        check_error(one("ACQUIRE", *words), "MAJORITY", part)
    fence = one.acquire("k", "PER", 1, "BUCKETS", 1, "UNITS", 1, "LEASE", 1000)
    check_error(one("ACQUIRE", "k", "LEASE", 49), "ERR", "50ms (lease-min)")
    check_error(one("EXTEND", "k", fence, 49), "ERR", "50ms (lease-min)")
    check_error(one("ACQUIRE", "k", "LEASE", 24 * 3600 * 1000 + 1), "TOOBIG", "lease-max")
    check_error(one("ACQUIRE", "", "LEASE", 1000), "ERR")
    check_error(one("ACQUIRE", "k" * 1025, "LEASE", 1000), "TOOBIG", "key-bytes-max")
    check_error(one("ACQUIRE", "k", "LEASE", 1000, "VALUE", "v" * 4097), "TOOBIG")
    check_error(one("NODES", "ADD", 0, "a:1"), "ERR")
    check_error(one("NODES", "ADD", 2, "nonsense"), "NODES", "host:port")
    check_error(one("NODES", "ADD", 2), "ERR", "NODES [ADD id address | REMOVE id | RESIGN]")
    check_error(one("NODES", "REMOVE", 9), "NODES", "not a member")
    check_error(one("NODES", "REMOVE", 1), "NODES", "last node")
    hello = pairs(one("HELLO", 2))
    check(hello["mode"], b"standalone", "what makes clients of Redis follow its own clusters")


@test
def one_server_is_no_cluster(t):
    s = t.server()
    check_error(s.client()("NODES"), "NODES", "not a node of a cluster")
    check(s.info()["node"], "0")


@test
def limits_are_those_of_the_settings(t):
    c = Cluster(t, 3, "--keys-max", "4", "--waiters-max", "2", "--lease-min", "200ms",
                "--lease-max", "10s", warm=10000)
    one = c.client(1)
    check_error(one("ACQUIRE", "a", "LEASE", 199), "ERR", "200ms (lease-min)")
    check_error(one("ACQUIRE", "a", "LEASE", 10001), "TOOBIG", "10s (lease-max)")
    fence = one.acquire("a", "LEASE", 10000)
    waiters = [c.client(1) for _ in range(3)]
    for x in waiters[:2]:
        x.send("ACQUIRE", "a", "LEASE", 1000, "WAIT", FOREVER)
    c[1].until_waiting("a", 2)
    check_error(waiters[2]("ACQUIRE", "a", "LEASE", 1000, "WAIT", 1000), "WAITERS", "waiters-max")
    one.acquire("b", "LEASE", 10000)
    one.acquire("c", "LEASE", 10000)
    check_error(one("ACQUIRE", "d", "LEASE", 10000), "NOKEYS", "keys-max")
    check(one("EXTEND", "a", fence, 10000), 10000)


@test
def memory_max_of_leases(t):
    """Exact, whatever the leases before were like: here most have no value."""
    limit, each = 8 << 20, 2 * 4000
    c = Cluster(t, 3, "--memory-max", str(limit))
    one, two = c.client(1), c.client(2)
    text = "v" * (each // 2)

    def acquire(keys, *options):
        one.send_raw(b"".join(encode(["ACQUIRE", k, "LEASE", 600000, *options]) for k in keys))
        return [one.reply() for _ in keys]

    for batch in range(20):
        got = acquire(["small%d-%d" % (batch, i) for i in range(100)])
        check_that(all(isinstance(r, list) for r in got), "granted")
    before = {i: c[i].rss_bytes() for i in c.members}
    fences = {}
    errors = []
    for at in range(3000):
        key = "large%d" % at
        got = acquire([key], "VALUE", text, "NOTE", text)[0]
        if not isinstance(got, list):
            errors.append(got)
            break
        fences[key] = got[0]
    check_that(errors, "%d MB of values and notes were granted" % (len(fences) * each >> 20))
    check_error(errors[0], "LIMIT", "%d bytes" % limit, "(memory-max)")
    check_that(limit // 2 < len(fences) * each < limit, "%d leases were granted" % len(fences))
    for i in c.members:
        grown = c[i].rss_bytes() - before[i]
        check_that(grown < 3 * limit, "node %d has grown by %d MB" % (i, grown >> 20))
        used = [c[i].number("client_bytes") for _ in range(5)]
        check_that(limit * 7 // 8 < min(used) and max(used) < limit * 17 // 16,
                   "node %d: client_bytes is %r" % (i, used))
    for key in list(fences)[:50]:
        check(two("RELEASE", key, fences[key]), 1)
    t.until(lambda: isinstance(acquire(["more"], "VALUE", text)[0], list),
            "what was released can be used again")


# --- Nodes die ------------------------------------------------------------------------------------------


def any_one_node_may_die(t, dead, count):
    c = Cluster(t, count)
    others = [i for i in c.members if i != dead]
    fence = c.client(dead).acquire("mine", "LEASE", 60000, "VALUE", "v")
    other = c.client(others[0]).acquire("other", "LEASE", 60000)
    # Two nodes have voted for each lease. The third one may have its vote still to come.
    t.until(lambda: all(c.client(i)("READ", key) for i in others for key in ("mine", "other")), "all nodes know the leases")
    c.kill(dead)
    for i in others:
        x = c.client(i)
        check(x("EXTEND", "mine", fence, 60000), 60000)
        check(x("EXTEND", "other", other, 60000), 60000)
        check([x("CHECK", "mine", fence), x("READ", "mine", "MAJORITY")[0]], [1, b"v"])
        check(x("ACQUIRE", "mine", "LEASE", 60000), None, "it is still held")
    x = c.client(others[-1])
    check(x("RELEASE", "mine", fence), 1)
    check_that(c.client(others[0]).acquire("mine", "LEASE", 60000) > fence, "fences rise")
    t.until(lambda: c.nodes(others[0])[1][dead] == "down", "it is seen to be down")


for count in (3, 5):
    for dead in range(1, count + 1):
        if count == 3 or dead in (1, 5) or LONG:
            test_of("any_one_of_%d_may_die_%d" % (count, dead), any_one_node_may_die, dead, count)


@test
def without_a_majority_nothing_is_granted_and_reads_are_local(t):
    c = Cluster(t)
    one = c.client(1)
    fence = one.acquire("k", "LEASE", 60000, "VALUE", "v")
    check(one("READY"), "READY")
    c.kill(2)
    t.until(lambda: c[1].number("nodes_up", one) == 1, "node 2 is gone")
    check(one("READY"), "READY", "two of three are enough")
    c.kill(3)
    t.until(lambda: c[1].number("nodes_up", one) == 0, "node 3 is gone")
    check_error(one("READY"), "NOTREADY", "no quorum: 1 of 3 nodes are reachable")
    check(one("READ", "k")[:2], [b"v", fence])
    check(one("AWAIT", "k", "HELD", 0), 1)
    check(pairs(one("LOCKS")[1][0])["key"], b"k")
    check_error(one("ACQUIRE", "new", "LEASE", 1000), "NOQUORUM", "1 of 3", "2 are needed")
    check_error(one("ACQUIRE", "new", "LEASE", 1000, "WAIT", 400), "NOQUORUM")
    check_error(one("EXTEND", "k", fence, 60000), "NOQUORUM")
    check_error(one("CHECK", "k", fence), "NOQUORUM")
    check_error(one("READ", "k", "MAJORITY"), "NOQUORUM")
    check_error(one("NODES", "REMOVE", 3), "NODES")
    why = c[1].explain("k")
    check([pairs(n)["says"] for n in why["nodes"]], [b"held", b"no answer", b"no answer"])
    check(why["summary"][0], b"the holder is not known: 1 of 3 nodes answered, 2 needed")
    check(one("READ", "new"), None)


@test
def after_NOQUORUM_the_nodes_that_were_reached_have_executed_it(t):
    """As docs/leases.md says: so a client must not conclude that nothing has changed."""
    c = Cluster(t)
    one = c.client(1)
    fence = one.acquire("k", "LEASE", 60000)
    c.kill(2)
    c.kill(3)

    def here():
        return pairs(c[1].explain("k")["nodes"][0])

    check_error(one("EXTEND", "k", fence, 120000), "NOQUORUM")
    check_that(here()["left_ms"] > 60000, "node 1 has extended it: %r" % here())
    check_error(one("RELEASE", "k", fence), "NOQUORUM")
    check(here()["says"], b"free")


@test
def two_of_five_may_die(t):
    c = Cluster(t, 5)
    fence = c.client(1).acquire("k", "LEASE", 60000)
    c.kill(1)
    c.kill(4)
    x = c.client(5)
    check([x("EXTEND", "k", fence, 60000), x("RELEASE", "k", fence)], [60000, 1])
    check_that(c.client(2).acquire("k", "LEASE", 60000) > fence, "fences rise")


@test
def a_node_that_was_killed_votes_at_once_and_knows_its_leases(t):
    c = Cluster(t)
    one = c.client(1)
    fence = one.acquire("k", "LEASE", 3600000)
    short = one.acquire("short", "LEASE", 30000)
    for i in c.members:
        t.until(lambda: c.client(i)("READ", "short") is not None, "node %d knows the leases" % i)
    for i in (3, 2, 1):
        c.kill(i)
        c.start(i)
        check(c[i].number("recovering_ms"), 0)
        check(c.client(i)("READ", "k")[1], fence, "it knows the lease")
        c.until_linked()
    c.kill(3)
    two = c.client(2)
    check(two("EXTEND", "k", fence, 3600000), 3600000)
    check(two("EXTEND", "short", short, 30000), 30000)
    check(two("ACQUIRE", "k", "LEASE", LEASE), None)
    check_that(two.acquire("other", "LEASE", LEASE) > fence, "fences rise")


@test
def in_another_life_a_node_is_silent_for_lease_volatile(t):
    """A copy of the directory, made after the node was killed, is complete. But the node cannot know
    that, so it forgets its short leases."""
    volatile = ("--lease-volatile", "%dms" % LEASE)
    c = Cluster(t, start=False)
    for i in c.members:
        c.start(i, "--bootstrap", *volatile, wait=False)
    for i in c.members:
        c[i].until_ready()
    c.until_linked()
    one = c.client(1)
    one.acquire("short", "LEASE", LEASE)
    long = one.acquire("long", "LEASE", 60000)
    t.until(lambda: c.client(3)("READ", "long") is not None, "node 3 knows the lease")
    c.kill(3)
    os.rename(c.directory(3), t.path("before"))
    shutil.copytree(t.path("before"), c.directory(3))
    restarted = time.monotonic()
    c.start(3, *volatile)
    ready, silent = c.client(3)("READY"), c[3].number("silent_ms")
    check_that(silent > 500 or time.monotonic() - restarted > 1, "it is silent: %d" % silent)
    if silent > 0:
        check_error(ready, "NOTREADY")  # It may not be linked to the others yet.
    check(c.client(3)("READ", "short"), None, "it has forgotten short leases")
    check(c.client(3)("READ", "long")[1], long, "but not long ones")
    check(c.nodes(3)[0], 1, "nor the list")
    c.until_linked()
    ready, silent = c.client(3)("READY"), c[3].number("silent_ms")
    if silent > 0:  # The others can grant, so this is the only reason.
        check_error(ready, "NOTREADY", "recovering: this node does not vote for another")
    c.kill(2)
    until_granted(t, one, "other")
    check_that(time.monotonic() - restarted >= LEASE / 1000, "it has voted too early")
    check(c[3].number("recovering_ms"), 0)
    check(one("EXTEND", "long", long, 60000), 60000)


def start_silent(c, i):
    """Start a node that was killed with a copy of its directory, so that it does not vote at first."""
    c.kill(i)
    os.rename(c.directory(i), c.directory(i) + ".before")
    shutil.copytree(c.directory(i) + ".before", c.directory(i))
    c.start(i)
    c.until_linked()


@test
def a_node_is_not_ready_while_too_few_of_the_others_vote(t):
    c = Cluster(t)
    one = c.client(1)
    start_silent(c, 3)
    check(one("READY"), "READY", "two of three vote")
    start_silent(c, 2)
    said = re.compile(r"at most 1 of 3 nodes can vote now, and 2 are needed; 2 started or joined "
                      r"recently and cannot vote for (\d+) ms; retry then, or use WAIT$")
    for reply, code in ((one("ACQUIRE", "k", "LEASE", LEASE), "RECOVERING "),
                        (one("READY"), "NOTREADY recovering: ")):
        check_that(str(reply).startswith(code), repr(reply))
        match = said.match(str(reply)[len(code):])
        check_that(match and 0 < int(match[1]) <= 62000, repr(reply))
    t.until(lambda: "NOTREADY recovering: at most 1 of 3" in str(c.client(2)("READY")),
            "a silent node says how many nodes vote")
    c.kill(3)
    t.until(lambda: c.nodes(1)[1][3] != "up", "node 3 is lost")
    check_error(one("READY"), "NOTREADY", "recovering: at most 1 of 3 nodes can vote now")
    c.kill(2)
    t.until(lambda: c.nodes(1)[1][2] != "up", "node 2 is lost")
    check_error(one("READY"), "NOTREADY", "no quorum: 1 of 3 nodes are reachable")


@test
def the_others_reject_a_node_with_an_old_copy_of_its_directory(t):
    c = Cluster(t)
    c.kill(3)
    shutil.copytree(c.directory(3), t.path("old"))
    c.start(3)
    c.until_linked()
    one = c.client(1)
    fence = one.acquire("k", "LEASE", 3600000)
    t.until(lambda: c.client(3)("READ", "k") is not None, "node 3 knows the lease")
    time.sleep(1)  # some heartbeats
    c.kill(3)
    shutil.rmtree(c.directory(3))
    os.rename(t.path("old"), c.directory(3))
    s = c.start(3)
    s.until_log("is an old copy")
    c[1].until_log("is an old copy")
    c.kill(2)
    check_error(one("EXTEND", "k", fence, 3600000), "NOQUORUM")


@test
def with_one_node_dead_and_one_added_the_error_says_which_votes_are_missing(t):
    """Of four members, two vote, one is dead, and one cannot vote yet. The reply is the same
    whichever vote arrives first: a busy node 2 votes after the silent node 4."""
    c = Cluster(t, warm=60000)
    one = c.client(1)
    one.acquire("held", "LEASE", 60000)
    c.kill(3)
    c.start(4)
    check(change(t, one, "ADD", 4, c.address(4)), 2)
    c.until_linked()
    check_that(c[4].number("silent_ms") > 30000, "node 4 is silent")
    said = re.compile(r"RECOVERING at most 2 of 4 nodes can vote now, and 3 are needed; 1 started or "
                      r"joined recently and cannot vote for (\d+) ms; retry then, or use WAIT$")

    def check_said(got):
        match = said.match(str(got))
        check_that(match and 0 < int(match[1]) <= 61000, repr(got))

    for i in range(20):
        check_said(one("ACQUIRE", "k%d" % i, "LEASE", 1000))
    check_said(one("ACQUIRE", "k", "LEASE", 1000, "WAIT", 300))
    c[2].signal(signal.SIGSTOP)
    got = one("ACQUIRE", "k", "LEASE", 1000)
    if c.nodes(1)[1][2] == "up":  # node 1 has not given node 2 up, however slow the machine is
        check_said(got)
    c[2].signal(signal.SIGCONT)
    c.until_linked()
    waiter = c.client(1)
    waiter.send("ACQUIRE", "k", "LEASE", 1000, "WAIT", FOREVER)
    c[1].until_waiting("k", 1)
    t.until(lambda: "of 4" in str(one("ACQUIRE", "k", "LEASE", 1000)), "the first waiter has tried")
    check_said(one("ACQUIRE", "k", "LEASE", 1000))


@test
def all_nodes_may_be_started_again(t):
    c = Cluster(t, warm=LEASE)
    fences = [c.client(i).acquire("k%d" % i, "LEASE", 30000) for i in c.members]
    for i in c.members:
        c.kill(i)
    for i in c.members:
        c.start(i)
    c.until_linked()
    one = c.client(1)
    check(one("ACQUIRE", "k1", "LEASE", LEASE), None)
    check(one("EXTEND", "k1", fences[0], 30000), 30000)
    check(c.client(2)("RELEASE", "k2", fences[1]), 1)
    check_that(until_granted(t, one, "k2") > max(fences), "fences rise")
    check(c.nodes(1), (1, {1: "self", 2: "up", 3: "up"}))


@test
def a_clean_stop_notifies_waiters(t):
    c = Cluster(t)
    holder, waiter = c.client(1), c.client(2)
    fence = holder.acquire("k", "LEASE", 60000)
    waiter.send("ACQUIRE", "k", "LEASE", 60000, "WAIT", FOREVER)
    c[2].until_waiting("k", 1)
    c[2].signal(signal.SIGTERM)
    check_error(waiter.reply(), "SHUTDOWN")
    check(c[2].status, 0, "the exit status")
    check(holder("EXTEND", "k", fence, 60000), 60000)


@test
def fences_rise_over_kills_and_restarts(t):
    random.seed(SEED)
    print("# kills: --seed %d" % SEED, flush=True)
    c = Cluster(t, warm=LEASE)
    last = 0
    for round_ in range(12 if LONG else 3):
        dead = random.choice(c.members)
        alive = [i for i in c.members if i != dead]
        c.kill(dead)
        for i in random.sample(alive, 2):
            x = c.client(i)
            fence = until_granted(t, x, "k", 300)
            check_that(fence > last, "fence %d after %d" % (fence, last))
            last = fence
            if random.random() < 0.5:
                x("RELEASE", "k", fence)
        c.start(dead)
        c.until_linked()
        c.until_votes(dead)


# --- Directories ----------------------------------------------------------------------------------------------


@test
def a_first_start_without_bootstrap_waits_to_be_added(t):
    c = Cluster(t, 3, start=False)
    s = c.start(1)
    s.until_log("this node is not a member of a cluster yet; to add it, send NODES ADD 1 %s to a member" % c.address(1))
    check_that(re.search(r"ready: sluice \S+; waiting to be added to a cluster with NODES ADD$", s.log, re.M), s.log)
    x = s.client()
    check_error(x("ACQUIRE", "k", "LEASE", 1000), "NOQUORUM", "not a member of a cluster")
    check_error(x("READY"), "NOTREADY", "no quorum: this node is not a member of a cluster")
    check(pairs(x("NODES"))["version"], 0)
    check(x("READ", "k"), None)
    check_that("waiting to be added" not in c.start(2, "--bootstrap").log, "a member does not wait to be added")


def directory_is_refused(t, c, i, *parts, options=()):
    p = t.failing("--node", str(i), "--node-bind", "%s.%d" % (c.net, i), "--secret", SECRET,
                  *(options if "--peers" in options else ("--peers", c.peers) + options))
    check_that(p.status in (1, 2), "the exit status: %d" % p.status)
    for part in parts:
        check_that(part in p.err, "the log says %r: %s" % (part, p.err))


@test
def unusable_directories_are_rejected_with_a_message(t):
    c = Cluster(t, 1, warm=LEASE)
    c[1].signal(signal.SIGTERM)
    check(c[1].status, 0)
    data = ("--data", c.directory(1))
    alone = t.failing(*data)
    check(alone.status, 1)
    check_that("belongs to a node of a cluster; start the server with --node" in alone.err, alone.err)
    directory_is_refused(t, c, 1, "requires a data directory", options=("--data", "none"))
    directory_is_refused(t, c, 1, "peers must contain this node, 1", options=(
        "--data", t.path("other"), "--bootstrap", "--peers", "2=127.0.0.1:1"))
    path = c.directory(1) + "/node"
    with open(path, "rb") as f:
        good = f.read()
    for raw, part in ((good[:-20], "the end of the file"), (b"", "the end of the file"),
                      (good.replace(b"lease_longest_ms ", b"lease_longest_ms 1"), "damaged"),
                      (b"hello, world, I am no such file\n" + good, "not written by Sluice"),
                      (good.replace(b"sluice node 2", b"sluice node 9"), "another version")):
        with open(path, "wb") as f:
            f.write(raw)
        directory_is_refused(t, c, 1, part, options=data)
    with open(path, "wb") as f:
        f.write(good)
    os.rename(c.directory(1) + "/journal", t.path("journal"))
    directory_is_refused(t, c, 1, 'the file "journal" of this node is missing', "NODES REMOVE", options=data)
    os.rename(t.path("journal"), c.directory(1) + "/journal")
    os.unlink(path)
    directory_is_refused(t, c, 1, "was used before, but its file", "NODES REMOVE", options=data)
    with open(c.directory(1) + "/lock", "w") as f:  # as version 0.1 marked the directory of a node
        f.write("This folder is a node's of Sluice. What it has to know after a restart is in the file node.\n")
    directory_is_refused(t, c, 1, "was used before, but its file", "NODES REMOVE", options=data)
    with open(path, "wb") as f:
        f.write(good)
    s = c.start(1)
    until_granted(t, s.client(), "k")
    two = t.failing("--node", "1", "--peers", c.peers, "--node-bind", c.net + ".2", "--secret",
                    SECRET, *data)
    check_that("another server uses this directory" in two.err, two.err)


@test
def the_list_that_was_agreed_on_wins_over_the_config_file(t):
    c = Cluster(t, warm=LEASE)
    c.kill(1)
    s = c.start(1, "--bootstrap", peers="1=%s,7=127.0.0.1:7" % c.address(1))
    s.until_log("peers: ignored, because the cluster has agreed on another membership", c.address(3))
    s.until_log("bootstrap: ignored")
    c.until_linked()
    check(c.nodes(1)[1], {1: "self", 2: "up", 3: "up"})


@test
def a_node_that_lost_its_directory_is_rejected_until_it_is_added_again(t):
    c = Cluster(t, warm=LEASE)
    fence = c.client(1).acquire("k", "LEASE", LEASE)
    c.kill(3)
    shutil.rmtree(c.directory(3))
    c.start(3, "--bootstrap")
    one = c.client(1)
    c[1].until_log("has lost its data directory")
    check(c.nodes(1)[1][3], "down")
    check(c.nodes(2)[1][3], "down")
    check_error(c.client(3)("ACQUIRE", "x", "LEASE", 1000), "NOQUORUM")
    check(one("EXTEND", "k", fence, LEASE), LEASE)
    check(change(t, one, "REMOVE", 3), 2)
    c.kill(3)
    shutil.rmtree(c.directory(3))
    c.start(3)
    check(change(t, one, "ADD", 3, c.address(3)), 3)
    c.until_linked()
    c.until_votes(3)
    c.kill(2)
    until_granted(t, one, "new")


@test
def fences_rise_and_leases_last_when_one_server_becomes_a_cluster(t):
    """Its clock was an hour ahead, so that its fences are."""
    shims = Shims(t)
    shims.clock(3600)
    s = t.server("--data", t.path("old"), "--lease-volatile", "2s", env=shims.env)
    old = s.client().acquire("k", "LEASE", 2000)
    granted = time.monotonic()
    s.signal(signal.SIGKILL)
    s.status
    check_that(old / 1e6 > time.time() + 3000, "its clock is ahead")
    c = Cluster(t, 3, start=False)
    for i in c.members:
        os.mkdir(c.directory(i))
        shutil.copy(t.path("old/journal"), c.directory(i))
    for i in c.members:
        c.start(i, "--bootstrap", wait=False)
    for i in c.members:
        c[i].until_ready()
        c[i].until_log("the directory of a single server is now the directory of this node")
    c.until_linked()
    got = c.client(1)("ACQUIRE", "k", "LEASE", 2000)
    if time.monotonic() - granted < 1.9:
        check_error(got, "RECOVERING")
    fence = until_granted(t, c.client(1), "k")
    check_that(time.monotonic() - granted >= 2, "the lease of before has ended")
    check_that(fence > old, "fence %d after %d" % (fence, old))
    for i in c.members:
        c.kill(i)
    for i in c.members:
        c.start(i)
    c.until_linked()
    check_that(until_granted(t, c.client(2), "k") > fence, "fences rise")


@test
def a_node_with_a_full_disk_does_not_vote_and_the_others_continue(t):
    shims = Shims(t)
    c = Cluster(t, env=shims.env, warm=LEASE)
    one = c.client(1)
    shims.write(errno.ENOSPC)
    fence = one.acquire("long", "LEASE", 120000)
    c[3].until_log("cannot write the journal; this node does not vote", "No space left")
    check_that("rejects LEASE" not in c[3].log, "it says what a node does")
    check_error(c.client(3)("READY"), "NOTREADY", "cannot write the file " + c.directory(3),
                "No space left", "free some space")
    check(one("READY"), "READY", "the other nodes are ready")
    check(c.client(3)("EXTEND", "long", fence, 120000), 120000, "others vote through it")
    c.kill(2)
    check_error(one("ACQUIRE", "more", "LEASE", 60000), "NOQUORUM", "1 of 3")
    shims.write(0)
    c[3].until_log("the journal works again")
    until_granted(t, one, "more", 60000)
    check(c.client(3)("READY"), "READY")


@test
def a_node_that_cannot_write_its_file_is_not_ready(t):
    shims = Shims(t)
    c = Cluster(t, env=shims.env, warm=0)
    three = c.client(3)
    check(three("READY"), "READY")
    shims.disk(errno.ENOSPC)
    check_error(three("ACQUIRE", "k", "LEASE", LEASE), "IO", "the data directory of this node")
    check_error(three("READY"), "NOTREADY", "cannot write the file %s/node (" % c.directory(3),
                "No space left", "free some space")
    check(c.client(1)("READY"), "READY", "the other nodes are ready")
    shims.disk(0)
    t.until(lambda: three("READY") == "READY", "it is ready again")
    until_granted(t, three, "k")


@test
def a_node_that_cannot_write_the_mark_of_a_clean_stop_exits_with_1(t):
    shims = Shims(t)
    c = Cluster(t, env=shims.env, warm=LEASE)
    shims.sync(errno.EIO)
    c[3].signal(signal.SIGTERM)
    check(c[3].status, 1, "the exit status")
    check_that("as after a crash" in c[3].log, "it says what follows")
    c[2].signal(signal.SIGTERM)
    check(c[2].status, 0, "the exit status of a node that can write it")


@test
def a_node_whose_disk_does_not_answer_is_not_waited_for(t):
    shims = Shims(t)
    c = Cluster(t, env=shims.env, warm=LEASE)
    shims.sync(-1)
    one = c.client(1)
    fence = one.acquire("long", "LEASE", 120000)
    check(c.client(2)("READ", "long", "MAJORITY")[1], fence, "the others answer")
    check(one("RELEASE", "long", fence), 1)
    shims.sync(0)
    check_that(c.client(3).acquire("long", "LEASE", 60000) > fence, "fences rise")


@test
def settings_that_differ_are_named_in_the_log(t):
    c = Cluster(t, 3, start=False)
    c.start(1, "--bootstrap", "--lease-max", "1h")
    c.start(2, "--bootstrap", "--lease-max", "2h", "--key-bytes-max", "100")
    c.start(3, "--bootstrap", "--lease-max", "1h")
    c[1].until_log("lease-max", "key-bytes-max")
    c[2].until_log("lease-max", "key-bytes-max")


# --- Membership --------------------------------------------------------------------------------------------


def change(t, client, *words, seconds=25):
    """NODES ADD or REMOVE, again while an older change is too fresh; the version."""
    def once():
        got = client("NODES", *words)
        if isinstance(got, int):
            return got
        check_error(got, "NODES")
        if not re.search("recently|retry|another", got):
            raise Failure("NODES %r: %r" % (words, got))
        time.sleep(0.1)
        return None
    return t.until(once, "NODES %r is done" % (words,), seconds)


class Holder(threading.Thread):
    """Holds a lease, and extends it, through one node after the other."""

    def __init__(self, c, key):
        super().__init__(daemon=True)
        self.c, self.key, self.extended, self.wrong = c, key, 0, None
        self.clients = [c.client(i) for i in (1, 2)]
        self.fence = self.clients[0].acquire(key, "LEASE", LEASE)
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(LEASE / 5000):
            got = self.clients[self.extended % 2]("EXTEND", self.key, self.fence, LEASE)
            if isinstance(got, Error) and got.word == "NOQUORUM":
                continue
            if got != LEASE:
                self.wrong = got
                return
            self.extended += 1

    def end(self):
        self.over.set()
        self.join()
        if self.wrong is not None:
            raise Failure("EXTEND: %r" % (self.wrong,))
        check_that(self.extended > 2, "it was extended, %d times" % self.extended)
        return self.fence


def begin_anew(c, i):
    """Start a node with an empty directory."""
    if i in c.servers:
        c.kill(i)
        shutil.rmtree(c.directory(i))
    c.start(i)


@test
def nodes_come_and_go_while_a_lease_is_held(t):
    """3, 4, 5, 4; in the long form and back to 3, again and again."""
    c = Cluster(t, warm=LEASE)
    holder = Holder(c, "held")
    version, last = 1, c.client(1).acquire("other", "LEASE", 300)
    for round_ in range(4 if LONG else 1):
        for i in (4, 5):
            begin_anew(c, i)
            version += 1
            check(change(t, c.client(1 + i % 2), "ADD", i, c.address(i)), version)
            c.until_linked()
            fence = until_granted(t, c.client(i), "other", 300)
            check_that(fence > last, "fence %d after %d" % (fence, last))
            last = fence
            t.until(lambda: c.client(i)("READ", "held"), "the new node has learnt the leases")
        check(c.nodes(5), (version, {1: "up", 2: "up", 3: "up", 4: "up", 5: "self"}))
        version += 1
        check(change(t, c.client(5), "REMOVE", 3), version)
        fence = until_granted(t, c.client(4), "other", 300)
        check_that(fence > last, "fence %d after %d" % (fence, last))
        last = fence
        t.until(lambda: c.nodes(3)[0] == version, "who was removed knows it")
        check_error(c.client(3)("ACQUIRE", "x", "LEASE", 1000), "NOQUORUM")
        for i in (1, 2, 4, 5):
            t.until(lambda: c.nodes(i)[0] == version, "all know the list")
        if LONG:
            begin_anew(c, 3)
            for words in (("ADD", 3, c.address(3)), ("REMOVE", 4), ("REMOVE", 5)):
                version += 1
                check(change(t, c.client(2), *words), version)
            for i in (4, 5):
                c.kill(i)
                shutil.rmtree(c.directory(i))
    fence = holder.end()
    check(c.client(2)("CHECK", "held", fence), 1)
    check(c.client(1)("ACQUIRE", "held", "LEASE", 1000), None)


@test
def fences_rise_when_all_are_gone_that_saw_them(t):
    """Two nodes have clocks that are an hour ahead. They go, and so does the third: clients that
    are left have clocks of today, and never heard of the key."""
    shims = Shims(t)
    shims.clock(3600)
    c = Cluster(t, 3, env={1: shims.env, 2: shims.env, 3: None}, warm=LEASE)
    one = c.client(1)
    old = one.acquire("k", "LEASE", 300)
    check_that(old / 1e6 > time.time() + 3000, "this clock is ahead")
    t.until(lambda: one("READ", "k", "MAJORITY") is None, "it has ended")
    for i in (4, 5):
        c.start(i)
        check(change(t, one, "ADD", i, c.address(i)), i - 2)
    for gone, version in ((3, 4), (1, 5)):
        check(change(t, c.client(2), "REMOVE", gone), version)
        c.kill(gone)
    t.until(lambda: c.nodes(4)[0] == c.nodes(5)[0] == 5, "all know the list")
    c.until_votes(4)
    c.until_votes(5)
    c.kill(2)
    fence = until_granted(t, c.client(5), "k")
    check_that(fence > old, "fence %d after %d" % (fence, old))


@test
def two_concurrent_membership_changes_are_applied_one_by_one(t):
    """Each change is whole: one is first, and the other follows it or is refused."""
    c = Cluster(t, warm=LEASE)
    for i in (4, 5):
        c.start(i)
    results = {}
    holder = Holder(c, "held")

    def operate(node, new):
        x = c.client(node)
        results[new] = x("NODES", "ADD", new, c.address(new))

    with threads(lambda x: operate(*x), ((1, 4), (2, 5))):
        pass
    done = [new for new, got in results.items() if isinstance(got, int)]
    check_that(done, "one of them is done: %r" % results)
    for new, got in results.items():
        if new not in done:
            check_error(got, "NODES")
            check_that(len(str(got)) > 20, "the reason: %r" % got)
    for new in (4, 5):
        if new not in done:
            change(t, c.client(1), "ADD", new, c.address(new))
    t.until(lambda: all(c.nodes(i)[0] == 3 for i in (1, 2, 3, 4, 5)), "all go by one list")
    check_error(c.client(1)("NODES", "ADD", 4, c.address(4)), "NODES", "already")
    c.until_linked()
    fence = holder.end()
    check(c.client(5)("RELEASE", "held", fence), 1)


@test
def the_membership_survives_a_restart_of_all_nodes(t):
    c = Cluster(t, warm=LEASE)
    c.start(4)
    check(change(t, c.client(1), "ADD", 4, c.address(4)), 2)
    c.until_linked()
    for i in (1, 2, 3, 4):
        c.kill(i)
    for i in (1, 2, 3, 4):
        c.start(i)
    c.until_linked()
    check([c.nodes(i)[0] for i in (1, 2, 3, 4)], [2] * 4)
    c.kill(1)
    until_granted(t, c.client(4), "k")
    c.kill(2)
    check_error(c.client(4)("ACQUIRE", "k2", "LEASE", 1000), "NOQUORUM", "of 4", "3 are needed")


if __name__ == "__main__":
    main(__doc__)
