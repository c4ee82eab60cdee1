"""nemesis.py - what goes wrong in a cluster: faults, by a seed, and making all whole again.
For faults.py.
"""
import collections
import json
import os
import random
import signal
import threading
import time

from load import MS, now
from nodes import Refused, until
from redis.exceptions import RedisError, ResponseError

CHANGE_S = 10  # for an answer to NODES ADD and REMOVE


class Change(threading.Thread):
    """A membership change in progress."""

    def __init__(self, helpers, words):
        super().__init__(daemon=True)
        self.helpers, self.words = helpers, words
        self.result, self.sure = "unknown", False
        self.start()

    def run(self):
        """At one after the other: who has just been started may have to refuse what others
        can do."""
        try:
            for helper in self.helpers:
                try:
                    helper.call("NODES", *self.words, timeout=CHANGE_S)
                    self.result = "done"
                    break
                except ResponseError as e:
                    self.result = str(e)
            self.sure = True
        except (RedisError, OSError):
            self.result = "unknown"


class Nemesis:
    """Breaks things, and makes them whole. A fault is a method: it breaks, and returns what
    makes it whole again."""

    def __init__(self, cluster, crowd, book, seed, lease_ms, kinds, say):
        self.c, self.crowd, self.book, self.say = cluster, crowd, book, say
        self.rng = random.Random("nemesis %s" % seed)
        self.lease_ms = lease_ms
        self.silence_ms = lease_ms * 1.004 + 10
        self.kinds, self.deck = kinds, []
        self.count = collections.Counter()
        self.extra = len(cluster) + 1  # the node that comes and goes
        self.change, self.changes = None, collections.Counter()
        self.ended = set()  # nodes that we ended, and have not started
        self.died = []      # those that ended by themselves, as lines

    @property
    def bound_ms(self):
        return 2 * (self.lease_ms + self.silence_ms)

    def draw(self):
        """A kind of fault: each once, in an order of chance, and again."""
        if not self.deck:
            self.deck = list(self.kinds)
            self.rng.shuffle(self.deck)
        return self.deck.pop()

    # One round.

    def round(self):
        """Break one to three things for a while; then heal, and wait for progress."""
        kinds = {self.draw() for _ in range(self.rng.choice((1, 2, 2, 3)))}
        undo = []
        for kind in sorted(kinds, key=lambda k: (k != "members", k.startswith("kill"), k)):
            undo += self.one(kind)
        time.sleep(self.how_long_ms() / 1000)
        self.rng.shuffle(undo)
        for f in undo:
            f()
        self.heal()

    def one(self, kind):
        n = self.book.begin("FAULT", kind=kind)
        try:
            undo, what = self.methods[kind](self)
        except (Refused, OSError, RedisError) as e:
            self.book.add(n, ret=now(), result="refused", what=str(e))
            self.say("%s: %s" % (kind, e))
            return []
        self.count[kind] += 1
        self.book.add(n, ret=now(), result="ok", what=what)
        return undo

    def how_long_ms(self):
        """Around the length of leases and of the silence after a restart."""
        return (self.rng.choice((0.5, 0.99, 1.01, 1.01, 3))
                * self.rng.choice((self.lease_ms, self.lease_ms / 2, self.silence_ms)))

    def heal(self):
        """All nodes run, all links are whole, all clients run: since when, and until when is
        each key granted?"""
        self.c.heal()
        for node in self.c:
            if node.state == "paused":
                node.resume()
        for node in self.c:
            if node.state == "dead":
                if node.id not in self.ended:
                    self.died += ["node %d died by itself; it said:" % node.id]
                    self.died += node.since_start().splitlines()[-20:]
                self.start(node.id)
        for node in self.c:
            node.wait_ready()
        for i in self.crowd.pids:
            self.crowd.signal(i, signal.SIGCONT)
        self.book.note("HEAL", bound_ms=self.bound_ms, keys=self.crowd.keys)
        healed = now()
        while (any(self.crowd.last(key) < healed for key in self.crowd.keys)
               and now() - healed < 1.1 * self.bound_ms * MS):
            time.sleep(0.01)
        self.finish_change()
        time.sleep(self.rng.uniform(0, 0.4))

    def start(self, i):
        self.ended.discard(i)
        self.c[i].start(wait=False)

    # Which ones.

    def some(self, count):
        ids = sorted(self.c.nodes)
        return sorted(self.rng.sample(ids, min(count, len(ids))))

    @property
    def minority(self):
        return self.rng.randint(1, max(1, (len(self.c) - 1) // 2))

    # The net.

    def cut_halves(self):
        small = self.some(self.minority)
        rest = [n.id for n in self.c if n.id not in small]
        self.c.partition(small, rest)
        return [self.c.heal], "%s | %s" % (small, rest)

    def cut_one(self):
        node, = self.some(1)
        reset = self.rng.random() < 0.3
        self.c.isolate(node, reset=reset)
        return [self.c.heal], "%d%s" % (node, " reset" if reset else "")

    def cut_all(self):
        self.c.partition()
        return [self.c.heal], "each alone"

    def cut_one_way(self):
        node, = self.some(1)
        deaf = self.rng.random() < 0.5
        for other in self.c:
            if other.id != node:
                a, b = (other.id, node) if deaf else (node, other.id)
                self.c.cut(a, b, one_way=True)
        return [self.c.heal], "%d is %s" % (node, "deaf" if deaf else "mute")

    def cut_ring(self):
        self.c.ring()
        return [self.c.heal], ""

    def cut_clients(self):
        """One node and the others go on; clients do not reach it."""
        node, = self.some(1)
        self.c.cut(0, node, one_way=self.rng.random() < 0.5)
        return [self.c.heal], "%d" % node

    def lose(self):
        chance = self.rng.choice((0.02, 0.1, 0.3))
        for a in self.c:
            for b in self.c:
                if a is not b:
                    self.c.lose(a.id, b.id, chance)
        return [self.c.heal], "%g" % chance

    def slow(self):
        how = self.rng.choice((
            dict(delay_ms=5, jitter_ms=20),
            dict(delay_ms=50, jitter_ms=100),
            dict(hold=0.05, hold_ms=int(self.lease_ms * 0.7)),
            dict(hold=0.02, hold_ms=int(self.lease_ms * 1.3)),
            dict(chop=0.3, jitter_ms=3)))
        self.c.slow(**how)
        return [self.c.heal], json.dumps(how)

    def hang_up(self):
        self.c.hang_up(reset=self.rng.random() < 0.5)
        return [], ""

    # Processes.

    def pause(self, ids):
        ids = [i for i in ids if self.c[i].state == "up"]
        for i in ids:
            self.c[i].pause()

        def resume():
            for i in ids:
                if i in self.c.nodes and self.c[i].state == "paused":
                    self.c[i].resume()
        return [resume], str(ids)

    def pause_minority(self):
        return self.pause(self.some(self.minority))

    def pause_majority(self):
        return self.pause(self.some(self.rng.randint(self.c.majority, len(self.c))))

    def kill(self, ids):
        """All at the same moment; they restart one by one, some of them at once."""
        ids = [i for i in ids if self.c[i].pid is not None]
        for i in ids:
            self.ended.add(i)
            os.kill(self.c[i].pid, signal.SIGKILL)
        for i in ids:
            until(lambda: self.c[i].pid is None, "node %d is dead" % i)

        def back(i):
            def start():
                if i in self.c.nodes and self.c[i].pid is None:
                    self.start(i)
            return start
        undo = [back(i) for i in ids]
        if undo and self.rng.random() < 0.4:
            undo.pop()()
        return undo, str(ids)

    def kill_minority(self):
        return self.kill(self.some(self.minority))

    def kill_majority(self):
        return self.kill(self.some(self.rng.randint(self.c.majority, len(self.c) - 1)))

    def kill_all(self):
        return self.kill(self.some(len(self.c)))

    def restart(self):
        """So many that nobody would remember, and back before any lease is over."""
        ids = self.some(self.rng.randint(self.c.majority, len(self.c)))
        undo, what = self.kill(ids)
        for start in undo:
            start()
        return [], what

    def stop_politely(self):
        """SIGTERM, and a new start."""
        ids = [i for i in self.some(self.minority) if self.c[i].state == "up"]
        for i in ids:
            self.ended.add(i)
            self.c[i].stop()
        return [], str(ids)  # heal() starts them

    def pause_clients(self):
        chosen = self.rng.sample(sorted(self.crowd.pids), self.rng.randint(1, 4))
        for i in chosen:
            self.crowd.signal(i, signal.SIGSTOP)
        return [lambda: [self.crowd.signal(i, signal.SIGCONT) for i in chosen]], str(chosen)

    def kill_clients(self):
        chosen = self.rng.sample(sorted(self.crowd.pids), self.rng.randint(1, 3))
        for i in chosen:
            at = now()
            self.crowd.kill(i)
            self.book.note("DIED", at, who=self.crowd.names[i])
            self.crowd.start(i)
        return [], str(chosen)

    # Clocks.

    def clock_step(self):
        node, = self.some(1)
        offset = self.rng.choice((-3600, -60, -1, 1, 60, 3600))
        self.c.clock(node, offset=offset)
        return [lambda: node in self.c.nodes and self.c.clock(node, offset=-offset)], \
            "node %d by %d s" % (node, offset)

    def clock_rate(self):
        """They go on so: all that is asked of clocks is that they differ by no more."""
        rates = {n.id: self.rng.choice((0.9995, 1.0, 1.0005)) for n in self.c}
        for node, rate in rates.items():
            self.c.clock(node, rate=rate)
        return [], json.dumps(rates)

    # Who belongs to it.

    def members(self):
        """Add a node; or remove it, if it is there: it comes again with an empty disk. Other
        things may happen meanwhile."""
        helpers = [n for n in self.c.running if n.id != self.extra]
        if not helpers:
            raise Refused("no node runs")
        if self.extra in self.c.nodes:
            words = "REMOVE", self.extra
        else:
            node = self.c.new_node(self.extra)
            self.c.save()
            self.c.make_place(node)
            node.start()
            words = "ADD", self.extra, node.peer
        self.change = Change(helpers, words)
        if self.rng.random() < 0.4:
            self.change.join()
        return [], " ".join(map(str, words))

    def finish_change(self):
        """What became of it. If nobody is sure, the next round asks again."""
        if self.change is None:
            return
        self.change.join()
        self.changes[self.change.result] += 1
        self.book.note("CHANGED", words=self.change.words, result=self.change.result)
        if self.change.sure and self.extra in self.c.nodes and not self.is_member(self.extra):
            self.c.discard(self.c[self.extra])
        self.change = None

    def is_member(self, number):
        """By the latest list that a node knows."""
        lists = []
        for node in self.c.running:
            flat = node.call("NODES")
            fields = dict(zip(flat[::2], flat[1::2]))
            ids = [dict(zip(n[::2], n[1::2]))[b"id"] for n in fields[b"nodes"]]
            lists.append((fields[b"version"], ids))
        return number in max(lists)[1]


KINDS = {
    "cut halves": Nemesis.cut_halves,
    "cut one": Nemesis.cut_one,
    "cut all": Nemesis.cut_all,
    "cut one way": Nemesis.cut_one_way,
    "cut ring": Nemesis.cut_ring,
    "cut clients": Nemesis.cut_clients,
    "lose": Nemesis.lose,
    "slow": Nemesis.slow,
    "hang up": Nemesis.hang_up,
    "pause minority": Nemesis.pause_minority,
    "pause majority": Nemesis.pause_majority,
    "pause clients": Nemesis.pause_clients,
    "kill minority": Nemesis.kill_minority,
    "kill majority": Nemesis.kill_majority,
    "kill all": Nemesis.kill_all,
    "restart": Nemesis.restart,
    "kill clients": Nemesis.kill_clients,
    "stop": Nemesis.stop_politely,
    "clock step": Nemesis.clock_step,
    "clock rate": Nemesis.clock_rate,
    "members": Nemesis.members,
}
Nemesis.methods = KINDS
NEEDS_NETNS = {"cut clients", "lose"}
NEEDS_PROXY = {"slow", "hang up"}
NEEDS_CUTS = {"cut halves", "cut one", "cut all", "cut one way", "cut ring"}


def kinds_for(netns, proxied):
    """Those that can be made there."""
    return [k for k in KINDS
            if not (k in NEEDS_NETNS and not netns) and not (k in NEEDS_PROXY and not proxied)
            and not (k == "lose" and proxied)
            and not (k in NEEDS_CUTS and not (netns or proxied))]
