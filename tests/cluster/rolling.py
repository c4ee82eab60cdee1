#!/usr/bin/python3
"""rolling - a rolling restart of a live cluster must not cost a holder its lease.

    tests/cluster/rolling.py SERVER [--long] [--lease MS] [--at SHARE] [--runs N]
                             [--holders N] [--restarts N] [--seed N] [--apart S] [--kill]

Holders take one lease each. Each one extends its lease when the given share of it has passed,
through a node that it draws, and goes on at the next node when one does not answer or cannot,
as docs/leases.md asks. Meanwhile nodes are restarted one after the other as that page
recommends: SIGTERM, start, wait until silent_ms of INFO is 0, and at once the next one. A
lease is lost if an EXTEND is answered with LOST, or its deadline passes.

With --apart, nodes are restarted S seconds after each other, whatever INFO shows; with --kill, by
SIGKILL. Then one client holds a lease of an hour, which must be held to the end, and others
take free keys; the longest time until one was granted is printed.

The short form restarts two of three nodes as recommended, and all three a second apart: by SIGTERM,
and by SIGKILL. --long runs leases of 2 s and 10 s, extended at
1/3, 0.4 and 0.5, four times each, with 200 holders, and restarts all three nodes.

A holder that receives LOST before its deadline always counts: that does not depend on the speed of
the machine. A deadline that passes in a run in which this process itself was stopped for long
proves nothing: the run is repeated. Prints TAP.
"""
import argparse
import asyncio
import os
import random
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, "../lib")]
from links import TROUBLE, ErrorReply, Links  # noqa: E402
from nodes import Cluster, Refused  # noqa: E402
from report import Report  # noqa: E402

LONG = [(lease, at) for lease in (2000, 10000) for at in (1 / 3, 0.4, 0.5)]
TRIES = 4  # of a run during which the machine stalled
PATIENCE_S = 60


class Holder:
    """Takes a lease, and keeps it until the run is over or it is lost."""

    def __init__(self, run, number):
        self.run, self.key = run, "held%d" % number
        self.links = Links(run.addresses)
        self.lost = None  # why
        self.extends = self.again = 0
        self.said = []  # answers since the last extension that succeeded

    async def ask(self, node, *words):
        """The reply, or None. Each try has a sixth of the lease."""
        try:
            return await asyncio.wait_for(self.links.call(node, *words), self.run.lease_s / 6)
        except ErrorReply as e:
            self.said.append("%d: %s" % (node, e))
            if e.code == "LOST":
                self.lost = "LOST" if time.monotonic() < self.deadline else "deadline"
        except TROUBLE as e:
            self.said.append("%d: %s" % (node, type(e).__name__))
        return None

    async def take(self):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            node, sent = self.run.draw_node(), time.monotonic()
            got = await self.ask(node, "ACQUIRE", self.key, "LEASE", self.run.lease_ms)
            if got is not None:
                self.fence, self.sent = got[0], sent
                self.deadline = sent + 0.998 * (got[2] + got[3]) / 1000
                return
            await asyncio.sleep(0.05)
        raise Refused("%s was not granted: %s" % (self.key, self.said[-3:]))

    async def extend(self):
        """Through a node that is drawn; then through the others, until one can."""
        node = self.run.draw_node()
        while self.lost is None:
            sent = time.monotonic()
            if sent >= self.deadline:
                self.lost = "deadline"
                return
            got = await self.ask(node, "EXTEND", self.key, self.fence, self.run.lease_ms)
            if got is not None:
                self.sent, self.deadline = sent, max(self.deadline, sent + 0.998 * got / 1000)
                self.extends += 1
                self.said = []
                return
            self.again += 1
            node = node % len(self.run.addresses) + 1
            await asyncio.sleep(0.02)

    async def hold(self):
        while self.lost is None and not self.run.over:
            await asyncio.sleep(max(0, self.sent + self.run.share * self.run.lease_s -
                                    time.monotonic()))
            await self.extend()
        self.links.close_all()


class Taker:
    """Takes free keys, one after the other, each through a node that is drawn."""

    def __init__(self, run, number):
        self.run, self.number = run, number
        self.links = Links(run.addresses)
        self.delay_s, self.grants, self.failed = 0.0, 0, 0

    async def ask(self, *words):
        """The reply of the first node that gives one, after how many failures it may be."""
        node = self.run.draw_node()
        while True:
            try:
                return await asyncio.wait_for(self.links.call(node, *words), 1)
            except (ErrorReply, *TROUBLE):
                self.failed += 1
            node = node % len(self.run.addresses) + 1
            await asyncio.sleep(0.005)

    async def take(self):
        while not self.run.over:
            key, began = "free%d.%d" % (self.number, self.grants), time.monotonic()
            got = None
            while not isinstance(got, list):  # nil: an attempt that failed may still have votes
                got = await self.ask("ACQUIRE", key, "LEASE", 5000)
            self.delay_s = max(self.delay_s, time.monotonic() - began)
            self.grants += 1
            await self.ask("RELEASE", key, got[0])
            if await self.ask("ACQUIRE", "hour", "LEASE", 1000) is not None:
                self.run.overlaps += 1
            await asyncio.sleep(0.02)
        self.links.close_all()


class Run:
    """One rolling restart under load."""

    def __init__(self, options, lease_ms, share, seed):
        self.o, self.lease_ms, self.share = options, lease_ms, share
        self.lease_s = lease_ms / 1000
        self.chance = random.Random(seed)
        self.over, self.stall_s = False, 0.0
        self.overlaps, self.takers, self.hour_lost = 0, [], False

    def draw_node(self):
        return self.chance.choice(sorted(self.addresses))

    async def watch_the_machine(self):
        """How long this process was kept from running, at most."""
        while not self.over:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self.stall_s = max(self.stall_s, time.monotonic() - before - 0.01)

    async def silent_ms(self, node):
        links = Links(self.addresses)
        try:
            text = await asyncio.wait_for(links.call(node, "INFO", "cluster"), 5)
            lines = dict(line.split(":", 1) for line in text.decode().split() if ":" in line)
            return int(lines["silent_ms"])
        except TROUBLE:
            return -1
        finally:
            links.close_all()

    async def restart(self, node):
        if self.o.kill:
            await asyncio.to_thread(node.kill)
        else:
            await asyncio.to_thread(node.stop)
        await asyncio.to_thread(node.start)
        if self.o.apart:
            await asyncio.sleep(self.o.apart)
            return
        end = time.monotonic() + PATIENCE_S
        while await self.silent_ms(node.id) != 0:
            if time.monotonic() > end:
                raise Refused("node %d does not vote" % node.id)
            await asyncio.sleep(0.02)

    async def roll(self, cluster):
        self.addresses = {n.id: n.address for n in cluster}
        holders = [Holder(self, i) for i in range(self.o.holders)]
        for i in range(0, len(holders), 20):
            await asyncio.gather(*(h.take() for h in holders[i:i + 20]))
        watch = asyncio.create_task(self.watch_the_machine())
        tasks = [asyncio.create_task(h.hold()) for h in holders]
        if self.o.apart:
            asker = Taker(self, 0)
            hour = await asker.ask("ACQUIRE", "hour", "LEASE", 3600000)
            self.takers = [Taker(self, i) for i in range(1, 5)]
            tasks += [asyncio.create_task(t.take()) for t in self.takers]
        # Extensions are spread over the interval, and each node has had some.
        await asyncio.sleep(self.lease_s * self.share * 1.5)
        order = self.chance.sample(sorted(self.addresses), len(self.addresses))
        for number in order[:self.o.restarts]:
            await self.restart(cluster[number])
        # Each lease is extended once more.
        await asyncio.sleep(self.lease_s * self.share)
        self.over = True
        await asyncio.gather(watch, *tasks)
        if self.o.apart:
            self.hour_lost = await asker.ask("EXTEND", "hour", hour[0], 3600000) != 3600000
            asker.links.close_all()
        return holders

    def play(self):
        """Returns the holders."""
        began = time.monotonic()
        with Cluster(3, self.o.server, options={"lease-max": "2h"}) as cluster:
            holders = asyncio.run(self.roll(cluster))
        self.took_s = time.monotonic() - began
        return holders


def one(options, lease_ms, share, seed):
    """A run that counts. Returns whether nothing was lost, a sentence, and further lines."""
    for i in range(TRIES):
        run = Run(options, lease_ms, share, seed + i)
        holders = run.play()
        lost = [h for h in holders if h.lost is not None]
        sentence = "lease %d ms, extended at %.2f: %d of %d leases lost" % (
            lease_ms, share, len(lost), len(holders))
        if options.apart:
            sentence += ", %s, %g s apart" % ("SIGKILL" if options.kill else "SIGTERM", options.apart)
        lines = ["%d extensions, %d tries at another node, this process stalled for %d ms at "
                 "most; %.1f s, seed %d" % (
                     sum(h.extends for h in holders), sum(h.again for h in holders),
                     run.stall_s * 1000, run.took_s, seed + i)]
        if options.apart:
            lines += ["free keys: %d grants, the longest after %d ms, %d tries failed; the lease of an "
                      "hour was%s lost, and granted again %d times" % (
                          sum(t.grants for t in run.takers),
                          max(t.delay_s for t in run.takers) * 1000,
                          sum(t.failed for t in run.takers), "" if run.hour_lost else " not",
                          run.overlaps)]
        if run.hour_lost or run.overlaps:
            return False, sentence, lines
        lines += ["%s: %s, after %s" % (h.key, h.lost, h.said[-6:]) for h in lost[:5]]
        in_time = any(h.lost == "LOST" for h in lost)
        if not lost or in_time or run.stall_s < run.lease_s / 8:
            return not lost, sentence, lines
        for line in [sentence + ", but the machine stalled"] + lines:
            print("# " + line, flush=True)
    return True, sentence + " # SKIP the machine stalled in %d runs" % TRIES, lines


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("server")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--lease", type=int)
    parser.add_argument("--at", type=float)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--holders", type=int)
    parser.add_argument("--restarts", type=int)
    parser.add_argument("--apart", type=float, default=0)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    o = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    o.holders = o.holders or (200 if o.long else 60)
    o.restarts = o.restarts or (3 if o.long else 2)
    loads = [load for load in LONG if o.lease in (None, load[0])] if o.long \
        else [(o.lease or 2000, o.at or 0.4)]
    report = Report()
    for lease_ms, share in loads:
        for _ in range(o.runs or (4 if o.long else 1)):
            report.test(*one(o, lease_ms, share, o.seed + 100 * (report.number + 1)))
    if not o.apart:
        o.apart, o.restarts = 1, 3
        for o.kill in (False, True):
            report.test(*one(o, o.lease or 10000, o.at or 1 / 3, o.seed + 100 * (report.number + 1)))
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
