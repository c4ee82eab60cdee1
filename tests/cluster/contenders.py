#!/usr/bin/python3
"""contenders.py - clients that ask for one free key at the same moment, at different nodes.

    tests/cluster/contenders.py SERVER [--long] [--tries N] [--seed N]

Votes can be split between requests that arrive together, above all when one node of three is
dead and both others must agree. Each try uses a new key and sends all requests at once.

    without WAIT   exactly one request is granted, and all others receive nil
    with WAIT      somebody is granted the key, and nobody receives nil before the time that it
                   gave has passed on the client's clock. Each holder releases at once, before
                   the next reply is read: two holders at once are looked for by faults.py

A request that receives NOQUORUM because the machine stalled, so that votes came too late, is
counted and shows nothing; few tries may have one.

Prints TAP, and for each case the time from the first request to the first grant. --long:
1,000 tries for each case.
"""
import argparse
import os
import random
import select
import signal
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, "../lib"),
                os.path.join(HERE, "../server/lib")]
from live import encode  # noqa: E402
from nodes import Cluster  # noqa: E402
from report import Report  # noqa: E402

LEASE_MS = 20000
PATIENCE_S = 60  # for a reply; only a server that hangs needs so long
SOON_MS = 2      # requests of one try are sent within this


def wait_clock():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Connection:
    """One client: a request, then its reply."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def fileno(self):
        return self.socket.fileno()

    def send(self, words):
        self.sent_ns = wait_clock()
        self.socket.sendall(words)

    def reply(self):
        """Read what has come: None if the reply is not complete, else ("ok", fence), ("nil", 0),
        or ("error", text)."""
        self.buffer += self.socket.recv(65536)
        line, end, _ = self.buffer.partition(b"\r\n")
        if not end:
            return None
        if line[:1] == b"*" and line not in (b"*-1", b"*0"):
            parts = self.buffer.split(b"\r\n")
            if len(parts) < int(line[1:]) + 2:
                return None
            found = "ok", int(parts[1][1:])
        elif line in (b"*-1", b"$-1", b"_", b"*0"):
            found = "nil", 0
        elif line[:1] == b":":
            found = "ok", int(line[1:])
        else:
            found = "error", line.decode("utf-8", "replace")
        self.buffer = b""
        return found

    def ask(self, *words):
        self.send(encode(words))
        while True:
            ready, _, _ = select.select([self], [], [], PATIENCE_S)
            if not ready:
                raise TimeoutError("no reply to %s" % words[0])
            found = self.reply()
            if found:
                return found


class Try:
    """Requests for one key, and what became of them."""

    def __init__(self, connections, key, wait_ms, chance):
        self.connections, self.key, self.wait_ms, self.chance = connections, key, wait_ms, chance
        self.grants, self.nils, self.late, self.wrong = 0, 0, 0, []
        self.first_ms = None
        self.holder = None

    def run(self):
        words = ["ACQUIRE", self.key, "LEASE", LEASE_MS]
        if self.wait_ms:
            words += ["WAIT", self.wait_ms]
        request = encode(words)
        order = self.connections[:]
        self.chance.shuffle(order)
        pause_s = self.chance.choice((0, 0, self.chance.random() * SOON_MS / 1000 / len(order)))
        began = wait_clock()
        for c in order:
            c.send(request)
            if pause_s:
                time.sleep(pause_s)
        waiting = set(order)
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], PATIENCE_S)
            if not ready:
                self.wrong.append("%d requests have no reply" % len(waiting))
                return
            for c in ready:
                found = c.reply()
                if found:
                    self.take(c, found, began)
                    waiting.discard(c)
        if self.holder:
            self.release(self.holder)
        if not self.grants and not self.late:
            self.wrong.append("nobody was granted the key")

    def take(self, c, found, began):
        kind, value = found
        now = wait_clock()
        if kind == "ok":
            self.grants += 1
            if self.first_ms is None:
                self.first_ms = (now - began) / 1e6
            if self.holder:
                self.wrong.append("two hold the key at once")
            self.holder = (c, value)
            if self.wait_ms:
                self.release(self.holder)
        elif kind == "nil":
            self.nils += 1
            passed_ms = (now - c.sent_ns) / 1e6
            if passed_ms < self.wait_ms:
                self.wrong.append("nil after %.3f ms of WAIT %d" % (passed_ms, self.wait_ms))
        elif " nodes answered in time" in value and not value.startswith("-NOQUORUM 0 of"):
            self.late += 1  # it asked, but the machine stalled: this shows nothing
        else:
            self.wrong.append(value)

    def release(self, holder):
        c, fence = holder
        self.holder = None
        if c.ask("RELEASE", self.key, fence) != ("ok", 1):
            self.wrong.append("a release was not accepted")


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def run_case(report, nodes, clients, wait_ms, tries, chance, name):
    connections = [Connection(nodes[i % len(nodes)].address) for i in range(clients)]
    times, bad, granted, late = [], [], 0, 0
    for i in range(tries):
        one = Try(connections, "key-%s-%d-%d" % (name.replace(" ", "-"), wait_ms, i), wait_ms,
                  chance)
        one.run()
        granted += one.grants
        late += one.late > 0
        if one.first_ms is not None:
            times.append(one.first_ms)
        if one.wrong:
            bad.append("try %d: %s" % (i, "; ".join(one.wrong)))
    for c in connections:
        c.socket.close()
    what = "WAIT %d" % wait_ms if wait_ms else "without WAIT"
    expect = "somebody gets the key" if wait_ms else "exactly one is granted"
    if late > 2 + tries / 20:
        bad.append("too many votes came late")
    report.test(not bad, "%s, %d clients, %s: %s, %d tries" % (name, clients, what, expect, tries),
                ["first grant: p50 %.2f ms, p99 %.2f ms, at most %.2f ms; %d grants, %d tries failed, "
                 "%d with late votes" % (
                     percentile(times, .5), percentile(times, .99), max(times, default=0), granted,
                     len(bad), late)] + bad[:10])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("server")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--tries", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    o = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report, chance = Report(), random.Random(o.seed)
    print("# seed %d" % o.seed)
    short = {(2, 0): 60, (2, 100): 20, (8, 0): 20}
    with Cluster(3, server=o.server) as cluster:
        cluster.wait_granting()
        for name in ("all nodes up", "one node of three dead"):
            if name != "all nodes up":
                cluster[3].kill()
            nodes = cluster.running
            for clients in (2, 4, 8):
                for wait_ms in (0, 100, 1500):
                    tries = o.tries or (1000 if o.long else short.get((clients, wait_ms), 0))
                    if tries:
                        run_case(report, nodes, clients, wait_ms, tries, chance, name)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
