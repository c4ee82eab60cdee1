"""clients.py - clients of a cluster whose nodes fail: holders that extend, takers of free keys, and
contenders for the same keys. For bench/failover and bench/restart.

All of them run in one process, with asyncio. Each client uses one node, and switches to the next one
when that node does not answer, or replies that it cannot serve the request. Every request and its
reply are recorded, and Run.judge() gives the record to a checker of tests/cluster, which finds two
holders of a key, and replies that contradict each other.
"""
import asyncio
import collections
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(ROOT, "tests/cluster"), os.path.join(ROOT, "tests/cluster/lib"),
                os.path.join(ROOT, "tests/server/lib"), os.path.join(ROOT, "tests/lib")]
sys.dont_write_bytecode = True
from history import Record  # noqa: E402
import checker  # noqa: E402
from links import TROUBLE, ErrorReply, Links  # noqa: E402
from live import encode  # noqa: E402
from load import now, result_of, write_history  # noqa: E402

S = 1_000_000_000  # nanoseconds
PATIENCE_S = 1.0   # for a reply, in addition to WAIT
HOUR_MS = 3600000
SHORT_MS = 5000
HOT = ["hot%d" % i for i in range(4)]  # the keys of contenders
HOT_MS = 500, 1000, 3000, 8000         # their leases
BATCH = 1000                           # commands in one pipeline


def pipeline(c, commands):
    """Send commands in batches. Returns the replies."""
    replies = []
    for i in range(0, len(commands), BATCH):
        part = commands[i:i + BATCH]
        c.send_raw(b"".join(encode(words) for words in part))
        replies += [c.reply() for _ in part]
    return replies


class Run:
    """A cluster, its clients, and the record of their requests and replies."""

    def __init__(self, cluster, verdict, elsewhere, seed=1):
        """verdict: the class of a checker. elsewhere: replies after which a client goes to another
        node; None stands for no reply."""
        self.cluster, self.verdict, self.elsewhere = cluster, verdict, elsewhere
        self.addresses = {n.id: n.address for n in cluster}
        self.chance = random.Random(seed)
        self.records, self.over, self.stall_s = [], False, 0.0
        self.clients, self.tasks = [], []
        self.errors = collections.Counter()
        self.failures = []  # of the run itself, as lines

    # The clients.

    def start(self, *clients):
        self.clients += clients
        self.tasks += [asyncio.create_task(c.work()) for c in clients]

    async def watch_the_machine(self):
        """Measure the longest time for which this process did not run."""
        while not self.over:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self.stall_s = max(self.stall_s, time.monotonic() - before - 0.01)

    async def play(self, script):
        """Run a script, an async function, while the clients work."""
        watch = asyncio.create_task(self.watch_the_machine())
        try:
            await script()
        finally:
            self.over = True
            await asyncio.gather(watch, *self.tasks)
            for c in self.clients:
                c.links.close_all()

    # The record.

    def begin(self, **fields):
        r = Record(dict(inv=now(), n=len(self.records), **fields), len(self.records))
        self.records.append(r)
        return r

    def note(self, op, **fields):
        r = self.begin(client="run", op=op, **fields)
        r.ret = r.inv
        return r

    def judge(self):
        """The violations, by kind, and lines that describe them."""
        v = self.verdict(sorted(self.records, key=lambda r: (r.inv, r.line)))
        lines = v.explain()
        if v.violations:
            path = "/tmp/sluice-failover.%d.jsonl" % os.getpid()
            write_history(v.records, path)
            lines.append("the history is in " + path)
        return v, lines

    def told_errors(self):
        return ", ".join("%s %d" % e for e in sorted(self.errors.items())) or "none"


class Client:
    """One client. work() repeats step() until the run is over."""

    def __init__(self, run, name, home=None):
        self.run, self.name = run, name
        self.node = home or run.chance.choice(sorted(run.addresses))
        self.links = Links(run.addresses, run.cluster.password)

    async def work(self):
        while not self.run.over:
            await self.step()

    def next_node(self):
        numbers = sorted(self.run.addresses)
        self.node = numbers[(numbers.index(self.node) + 1) % len(numbers)]

    def draw_node(self):
        self.node = self.run.chance.choice(sorted(self.run.addresses))

    async def once(self, op, key, *words, wait_ms=0, **more):
        """One request to the current node. Returns its record."""
        r = self.run.begin(client=self.name, op=op, key=key, node=self.node, **more)
        try:
            reply = await asyncio.wait_for(self.links.call(self.node, op, key, *words),
                                           PATIENCE_S + wait_ms / 1000)
            r.__dict__.update(result_of(op, reply), ret=now())
        except ErrorReply as e:
            r.__dict__.update(result=e.code, text=str(e), ret=now())
        except TROUBLE as e:
            self.run.errors["timeout" if isinstance(e, asyncio.TimeoutError) else "closed"] += 1
            self.links.close(self.node)
        if r.known and r.result not in ("ok", "nil", "no"):
            self.run.errors[r.result] += 1
        if r.result in self.run.elsewhere:
            self.next_node()
        return r

    async def acquire(self, key, lease_ms, wait_ms=0):
        words = ["WAIT", wait_ms] if wait_ms else []
        return await self.once("ACQUIRE", key, "LEASE", lease_ms, *words, wait_ms=wait_ms,
                               asked_ms=lease_ms, wait_asked_ms=wait_ms)

    async def extend(self, key, fence, ms):
        return await self.once("EXTEND", key, fence, ms, fence=fence, asked_ms=ms)

    async def release(self, key, fence):
        return await self.once("RELEASE", key, fence, fence=fence)


class Holder(Client):
    """Takes one lease, and extends it until the run is over or the lease is lost."""

    def __init__(self, run, name, lease_ms, every_s, home=None):
        super().__init__(run, name, home)
        self.key, self.lease_ms, self.every_s = "held-" + name, lease_ms, every_s
        self.fence, self.deadline, self.lost = None, 0, None
        self.delays = []  # (when it began, how long an extension took), in ns

    async def take(self):
        """False: not granted within a minute."""
        end = now() + 60 * S
        while now() < end:
            r = await self.acquire(self.key, self.lease_ms)
            if r.result == "ok":
                self.fence, self.deadline = r.fence, checker.counted(r, r.waited_ms)
                return True
            await asyncio.sleep(0.05)
        return False

    async def keep(self):
        """Extend it once, through any node. False: it is lost."""
        began = now()
        while not self.run.over:
            r = await self.extend(self.key, self.fence, self.lease_ms)
            if r.result == "ok":
                self.deadline = max(self.deadline, checker.counted(r))
                break
            if r.result == "LOST" or now() > self.deadline:
                self.lost = "%s: %s, %.3f s %s its deadline" % (
                    self.key, r.text or "no reply", abs(self.deadline - now()) / S,
                    "before" if now() < self.deadline else "after")
                break
            await asyncio.sleep(0.02)
        self.delays.append((began, now() - began))
        return self.lost is None

    async def work(self):
        await asyncio.sleep(self.run.chance.uniform(0, self.every_s))
        while not self.run.over and self.lost is None:
            self.draw_node()
            await self.keep()
            await asyncio.sleep(self.every_s)


async def take_all(run, holders, start=True):
    """All of them take their leases, 20 at a time, and begin to extend them."""
    for i in range(0, len(holders), 20):
        some = holders[i:i + 20]
        if not all(await asyncio.gather(*(h.take() for h in some))):
            raise TimeoutError("the leases of the holders were not granted")
        if start:
            run.start(*some)


class Taker(Client):
    """Takes free keys, one after the other: each request has a key of its own."""

    def __init__(self, run, name, home=None, wait_ms=0):
        super().__init__(run, name, home)
        self.wait_ms, self.tries = wait_ms, 0
        self.grants = []  # (when it was first asked for, when the request was sent, when granted)

    async def step(self):
        began = now()
        while not self.run.over:
            self.tries += 1
            r = await self.acquire("free-%s-%d" % (self.name, self.tries), SHORT_MS, self.wait_ms)
            if r.result == "ok":
                self.grants.append((began, r.inv, r.ret))
                await self.release(r.key, r.fence)
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)


class Contender(Client):
    """Takes keys that others want too, and sometimes extends or releases them, through any node."""

    async def step(self):
        chance = self.run.chance
        if chance.random() < 0.2:
            self.draw_node()
        ms = chance.choice(HOT_MS)
        r = await self.acquire(chance.choice(HOT), ms, chance.choice((0, 500, 1500)))
        if r.result != "ok":
            await asyncio.sleep(0.03)
            return
        key, fence, end = r.key, r.fence, checker.counted(r, r.waited_ms)
        for _ in range(chance.choice((0, 0, 1, 3))):
            await asyncio.sleep(chance.uniform(0.05, 0.5) * min(ms, 2000) / 1000)
            if chance.random() < 0.5:
                self.draw_node()
            r = await self.extend(key, fence, ms)
            if r.result == "LOST" or now() > end:
                return
            if r.result == "ok":
                end = max(end, checker.counted(r))
        if chance.random() < 0.9:
            await self.release(key, fence)


class Thief(Client):
    """Asks for keys that are held. A grant of one is an overlap, which the checker finds."""

    def __init__(self, run, name, holders):
        super().__init__(run, name)
        self.holders = holders

    async def step(self):
        self.draw_node()
        h = self.run.chance.choice(self.holders)
        if h.lost is None:
            r = await self.acquire(h.key, 1000)
            if r.result == "ok":
                await self.release(h.key, r.fence)
        await asyncio.sleep(0.05)


def distribution(values):
    """Texts: minimum, median and maximum, and each value in the order of the runs."""
    if not values:
        return "none"
    ordered = sorted(values)
    half = len(ordered) // 2
    median = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return "min %.2f, median %.2f, max %.2f s: %s" % (
        ordered[0], median, ordered[-1], " ".join("%.2f" % v for v in values))
