"""keeper_load.py - clients of a cluster with a keeper: locks of every kind, and transactions,
through any node. For keeper_faults.py; keeper_checker.py has the format of what they write.
"""
import math
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import load  # noqa: E402
from keeper_checker import checker, load_module, tx_checker  # noqa: E402
from load import MS, Grant, now  # noqa: E402

# The file with the transactions imports `checker`, and means its own.
sys.modules["checker"] = tx_checker
kills = load_module("tx_kills", os.path.join(HERE, "../tx/kills.py"))
sys.modules["checker"] = checker

PATIENCE_S = 4.0  # of a client with a transaction, for an answer
# Keys, by what is asked of them. Leases are between two times, in ms.
MUTEX = {"quick": (300, 600), "usual": (500, 1500)}
CAPACITIES = {"pool": (3, 1), "wide": (3, 2)}  # PER, BUCKETS
SHARED = "table"
OPEN = {"door": None, "gate": (3, 1)}  # without a lease: for one, and with a larger capacity
LEASE_MS = 300, 1500
FAR, FAR_MS = 6, (1000, 3600000)  # keys that clients hold over several faults, and their leases
KEYS = sorted([*MUTEX, *CAPACITIES, SHARED, *OPEN])
# Nobody leads now, or this node cannot say: another may know more.
ELSEWHERE = (None, "NOKEEPER", "RECOVERING", "SHUTDOWN", "STALE")


# --- Locks ------------------------------------------------------------------------------


class Locker(load.Load):
    """A client that takes, extends, releases, steals and reads, forever."""

    elsewhere = ELSEWHERE

    def __init__(self, *args, far):
        super().__init__(*args, keys=MUTEX)
        self.far = far
        self.kept = []  # grants of these keys

    def round(self):
        if self.rng.random() < 0.25:
            self.keep() if self.kept and self.rng.random() < 0.8 else self.take_far()
        what = self.rng.random()
        if what < 0.45:
            super().round()
        elif what < 0.65:
            self.units()
        elif what < 0.8:
            self.share()
        else:
            self.open()

    def look_around(self):
        key = self.rng.choice(KEYS)
        what = self.rng.random()
        if what < 0.4 and key in MUTEX:
            self.read(key, node=self.rng.choice(sorted(self.nodes)))
        elif what < 0.7 and self.past:
            grant = self.rng.choice(self.past)
            self.check(grant.key, grant.fence, node=self.other())
        else:  # what has no place in a history, but might end a node
            self.poke(*self.rng.choice((
                ("EXPLAIN", key), ("LOCKS",), ("NODES",), ("INFO",), ("INFO", "keeper"),
                ("EXPLAIN", "TX"), ("LOCKS", "TX"), ("AWAIT", key, "FREE", 30))))

    # Units, and sharing: with a lease.

    def take(self, key, words, lease_ms, **more):
        """A grant, or None. lease_ms is None: it ends with its connection."""
        wait_ms = self.rng.choice((0, 0, self.rng.randint(50, 1500)))
        words = words + (["LEASE", lease_ms] if lease_ms else [])
        words += ["WAIT", wait_ms] if wait_ms else []
        got = self.ask("ACQUIRE", key, *words, wait_ms=wait_ms, asked_ms=lease_ms,
                       wait_asked_ms=wait_ms, **more)
        if got.get("result") != "ok":
            return None
        self.granted(key)
        end = (got["inv"] + int(checker.GAMMA * (got["waited_ms"] + got["lease_ms"]) * MS)
               if lease_ms else float("inf"))
        return Grant(key, got["fence"], end, lease_ms)

    def sized(self, per, buckets):
        capacity = per * buckets
        units = self.rng.choice((1, 1, 1, 2, capacity))
        return (["PER", per, "BUCKETS", buckets, "UNITS", units],
                dict(capacity=capacity, units=units))

    def units(self):
        key = self.rng.choice(sorted(CAPACITIES))
        words, more = self.sized(*CAPACITIES[key])
        self.spend(self.take(key, words, self.rng.randint(*LEASE_MS), **more))

    def share(self):
        shared = self.rng.random() < 0.75
        self.spend(self.take(SHARED, ["SHARED"] if shared else [],
                             self.rng.randint(*LEASE_MS), shared=shared))

    def spend(self, grant):
        """Hold it for a while, and release it, or not."""
        if grant is None:
            return
        rng = self.rng
        style = rng.choices(("brief", "extend", "abandon"), (6, 3, 0.5))[0]
        if style == "extend":
            for _ in range(rng.randint(1, 4)):
                time.sleep(grant.lease_ms / 1000 * rng.uniform(0.1, 0.6))
                if self.extend(grant, node=rng.choice((None, self.other()))) == "LOST":
                    self.remember(grant)
                    return
                if rng.random() < 0.3:
                    self.check(grant.key, grant.fence, node=self.other())
        else:
            time.sleep(rng.uniform(0, 0.05))
        if style != "abandon":
            self.release(grant, node=rng.choice((self.node, self.node, self.other())))
        self.remember(grant)

    # With any lease, up to an hour. It is held while other things are done, and extended and released
    # through any node.

    def take_far(self):
        key = self.rng.choice(self.far)
        if any(g.key == key for g in self.kept):
            return
        low, high = map(math.log, FAR_MS)
        grant = self.acquire(key, int(math.exp(self.rng.uniform(low, high))),
                             self.rng.choice((0, 0, 300)))
        if grant is not None:
            self.kept.append(grant)
        elif self.rng.random() < 0.5:
            self.free(key)

    def keep(self):
        """Do something with the grant whose lease ends first, or with any."""
        rng = self.rng
        grant = rng.choice((min(self.kept, key=lambda g: g.end), rng.choice(self.kept)))
        what, node = rng.random(), rng.choice(sorted(self.nodes))
        if now() >= grant.end and what < 0.5 or what < 0.75:
            over = self.extend(grant, node=node) == "LOST"
        elif what < 0.85:
            self.check(grant.key, grant.fence, node=node)
            over = False
        else:
            over = self.release(grant, node=node) is not None
        if over or now() >= grant.end:
            self.kept.remove(grant)
            self.remember(grant)
            if rng.random() < 0.2:
                self.look_again(grant)

    def free(self, key):
        """Release a grant that no client knows of, as docs/cluster.md asks: the reply was lost, or the
        keeper failed just after the RELEASE, or its holder is dead."""
        got = self.ask("READ", key, majority=False)
        if got.get("result") != "ok":
            return
        owner = got["value"].rpartition("/")[0]
        if self.is_dead(owner) or owner == self.name and all(
                g.fence != got["fence"] for g in self.kept):
            self.ask("RELEASE", key, got["fence"], fence=got["fence"])

    def is_dead(self, owner):
        """Clients are called c1.1, c1.2, ...: when one is killed, the next one starts."""
        number, _, life = owner.rpartition(".")
        return os.path.exists(os.path.join(self.directory, "%s.%d.jsonl" % (number, int(life) + 1)))

    # Without a lease: it is the connection's.

    def open(self):
        rng, key = self.rng, self.rng.choice(sorted(OPEN))
        words, more = self.sized(*OPEN[key]) if OPEN[key] else ([], {})
        node = self.node
        grant = self.take(key, words, None, **more)
        if grant is None:
            return
        link = self.links.get(node)
        for _ in range(rng.randint(1, 4)):
            time.sleep(rng.uniform(0, 0.1))
            if rng.random() < 0.3:
                self.check(key, grant.fence, node=node)
            if self.links.get(node) is not link:
                break
        if self.links.get(node) is link and rng.random() < 0.8:
            if self.release(grant, node=node) is not None:
                return
        # Its connection has ended, or ends now, without a message.
        self.book.note("CLOSED", key=key, fence=grant.fence)
        self.drop(node)


def take_all(client, key, wait_ms):
    """At the end: all units of a key at once, for a moment; None if it is not to be had. All clients are
    dead. What they held of keys with long leases is released."""
    words, more = [], {}
    if key in client.far:
        got = client.ask("READ", key, majority=False)
        if got.get("result") == "ok":
            client.ask("RELEASE", key, got["fence"], fence=got["fence"])
    if key == SHARED:
        more = dict(shared=False)
    elif key in CAPACITIES or OPEN.get(key):
        per, buckets = CAPACITIES.get(key) or OPEN[key]
        words = ["PER", per, "BUCKETS", buckets, "UNITS", per * buckets]
        more = dict(capacity=per * buckets, units=per * buckets)
    words += ["LEASE", 1000, "WAIT", wait_ms]
    got = client.ask("ACQUIRE", key, *words, wait_ms=wait_ms, asked_ms=1000,
                     wait_asked_ms=wait_ms, value="end" if key in MUTEX else None, **more)
    if got.get("result") != "ok":
        return None
    return client.ask("RELEASE", key, got["fence"], fence=got["fence"]).get("result")


# --- Transactions -------------------------------------------------------------------------


class Link(load.live.Client):
    error = ""  # the last of this process: what it said

    def reply(self, seconds=None):
        got = super().reply(seconds)
        if isinstance(got, load.live.Error):
            Link.error = str(got)
        return got


class Teller(kills.Client):
    """A client with transactions; its requests are done until it knows how they ended."""

    def __init__(self, name, chapter, directory, seed, nodes, password, tables, committed):
        super().__init__(name, chapter, directory, seed, None, tables, committed)
        self.nodes, self.password = nodes, password
        self.node = self.rng.choice(sorted(nodes))

    def connect(self):
        """To any node that lets it."""
        while self.link is None:
            try:
                self.link = Link(self.nodes[self.node], connect_s=load.CONNECT_S,
                                 patience_s=PATIENCE_S, password=self.password)
            except kills.TROUBLE:
                self.change_node()
                time.sleep(0.02)
        return self.link

    def change_node(self):
        self.node = self.rng.choice([n for n in sorted(self.nodes) if n != self.node]
                                    or [self.node])

    def drop(self):
        super().drop()
        self.change_node()

    def perform(self, *args):
        if self.rng.random() < 0.1:
            self.drop()
        super().perform(*args)

    def attempt(self, request, number, plan):
        """That nobody knows is as if there had been no answer."""
        word, term, asked = super().attempt(request, number, plan)
        if word not in ("ok", "ABORT", "RESTART", None):
            self.book.add(self.book.n, text=Link.error)
        if word in ("NOKEEPER", "RECOVERING"):
            time.sleep(self.rng.uniform(0, 0.05))
        return (None if word == "CLOSED" else word), term, asked


class Single(Teller):
    """One that does what the run itself needs, until it is done."""

    def __init__(self, *args):
        super().__init__(*args)
        self.rng = random.Random(1)
        self.seen = None

    def until_done(self, request, work):
        """A transaction, again until it is committed; what it did last is returned."""
        end, number = time.monotonic() + kills.DEADLINE_S, 0
        while time.monotonic() < end:
            number += 1
            word, got = self.try_once(request, number, work)
            if word == "ok":
                return got
            self.drop()
            time.sleep(0.05)
        raise kills.live.Failure("%s is not committed: %s" % (request, word))

    def try_once(self, request, number, work):
        link = self.connect()
        n = self.book.begin("TX", inv=now(), request=request, attempt=number)
        tx, word = kills.Attempt(link, "%s/%d" % (request, number)), None
        try:
            term = tx("TX.BEGIN", "REQUEST", request)[0]
            self.book.add(n, term=term, known_at=now())
            got = work(tx)
            self.book.add(n, asked=now(), steps=tx.steps)
            revision = tx("TX.COMMIT")
            self.book.add(n, ret=now(), result="ok", revision=revision)
            return "ok", got
        except kills.Over as e:
            word = str(e)
            self.book.add(n, ret=now(), result=word, steps=tx.steps)
        except kills.TROUBLE as e:
            word = repr(e)
            self.book.add(n, steps=tx.steps)
        return word, None
