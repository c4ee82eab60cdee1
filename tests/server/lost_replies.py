#!/usr/bin/python3
"""lost_replies.py - clients behind a proxy that drops replies and closes connections: with REQUEST, no
client is locked out by its own grant, and nothing stays held.

    tests/server/lost_replies.py SERVER [--acquires N] [--majority | --address HOST:PORT]...

For each n from 2 to 20, the proxy drops every n-th reply, and closes or resets that connection. Eight clients
acquire, check and release three locks with leases of a minute. If a client loses its connection, it repeats the
command with the same id; one time in ten it gives up and sends CANCEL instead. --majority starts a majority cluster
of three nodes; each connection is to one of them. --address uses a running server, or several nodes of a cluster.
"""
import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from reply_proxy import Proxy  # noqa: E402

KEYS, CLIENTS = ("a", "b", "c"), 8
LEASE_MS, WAIT_MS = 60000, 20000
RETRY = ("RECOVERING", "NOKEEPER", "NOQUORUM", "SHUTDOWN", "IO")


class Dropped(Exception):
    pass


class Reply(Exception):
    """An error reply."""


async def read_reply(reader):
    line = await reader.readline()
    if not line.endswith(b"\r\n"):
        raise Dropped
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        return Reply(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"+":
        return rest.decode()
    if kind == b"*":
        return None if rest == b"-1" else [await read_reply(reader) for _ in range(int(rest))]
    if rest == b"-1":
        return None
    return (await reader.readexactly(int(rest) + 2))[:-2]


def encode(words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Client:
    def __init__(self, world, number):
        self.world, self.number = world, number
        self.rng = random.Random(world.rng.random())
        self.writer = None

    async def call(self, *words):
        """One attempt."""
        try:
            if self.writer is None:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.world.port)
            self.writer.write(encode(words))
            return await read_reply(self.reader)
        except (OSError, Dropped, asyncio.IncompleteReadError):
            if self.writer is not None:
                self.writer.close()
            self.writer = None
            raise Dropped

    async def repeat(self, *words):
        while True:
            try:
                got = await self.call(*words)
            except Dropped:
                self.world.repeated += 1
                continue
            if isinstance(got, Reply) and str(got).split()[0] in RETRY:
                await asyncio.sleep(0.05)
                continue
            return got

    async def acquire(self, key):
        """Returns the fence; None: gave up."""
        id_, returned = b"%032x" % self.rng.getrandbits(128), self.world.returned
        words = ("ACQUIRE", key, "LEASE", LEASE_MS, "WAIT", WAIT_MS, "REQUEST", id_)
        while True:
            try:
                got = await self.call(*words)
            except Dropped:
                self.world.repeated += 1
                if self.rng.random() < 0.1:
                    got = await self.repeat("CANCEL", key, id_)
                    if got not in (0, 1, 2):
                        self.world.wrong.append("CANCEL replies %r" % (got,))
                    self.world.cancelled += 1
                    self.world.over[key].append(("CANCEL", key, id_))
                    return None
                continue
            if isinstance(got, list):
                self.world.replayed += got[5]
                return got[0]
            if isinstance(got, Reply) and str(got).split()[0] in RETRY:
                await asyncio.sleep(0.05)
                continue
            if isinstance(got, Reply) and str(got).startswith("ENDED"):
                self.world.ended += 1  # the reply nil, or the grant of a lost connection, has ended
                return None
            if got is not None or not (await self.repeat_ends(key) or self.world.returned > returned):
                self.world.wrong.append("client %d is locked out of %s: %r" % (self.number, key, got))
            return None

    async def repeat_ends(self, key):
        """If the keeper fails within a second after a RELEASE or CANCEL, the next one may hold the lock until the lease
        expires, and the command must be repeated (docs/cluster.md). Returns whether that has ended a grant."""
        if len(self.world.addresses) == 1:
            return False
        ended = [await self.repeat(*words) for words in self.world.over[key][-100:]]
        self.world.returned += any(n in (1, 2) for n in ended)
        return any(n in (1, 2) for n in ended)

    async def run(self):
        w = self.world
        while w.left > 0 and not w.wrong:
            w.left -= 1
            key = self.rng.choice(KEYS)
            fence = await self.acquire(key)
            if fence is None:
                continue
            if w.holder.get(key) is not None:
                w.wrong.append("clients %d and %d hold %s" % (w.holder[key], self.number, key))
            if fence <= w.fence.get(key, 0):
                w.wrong.append("the fence of %s does not rise" % key)
            w.holder[key], w.fence[key] = self.number, fence
            held = await self.repeat("CHECK", key, fence)
            if held != 1:
                w.wrong.append("client %d has lost %s: %r" % (self.number, key, held))
            w.holder[key] = None
            w.granted += 1
            await self.repeat("RELEASE", key, fence)
            w.over[key].append(("RELEASE", key, fence))
        if self.writer is not None:
            self.writer.close()


class World:
    def __init__(self, addresses, acquires, n, seed):
        self.addresses = addresses
        self.over = {key: [] for key in KEYS}  # the commands that ended a grant
        self.rng = random.Random(seed * 100 + n)
        self.left = acquires
        self.granted = self.repeated = self.replayed = self.cancelled = self.ended = self.returned = 0
        self.holder, self.fence, self.wrong = {}, {}, []


async def play(addresses, n, acquires, seed):
    w = World(addresses, acquires, n, seed)
    proxy = Proxy(addresses, n, w.rng)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    w.port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*(Client(w, i).run() for i in range(CLIENTS)))
    proxy.n = 10 ** 9  # From now on, it drops nothing.
    last = Client(w, CLIENTS)
    for key in KEYS:  # The server may still be noticing that a connection has ended.
        free = await last.repeat("AWAIT", key, "FREE", 10000) == 1
        if not free and await last.repeat_ends(key):
            free = await last.repeat("AWAIT", key, "FREE", 10000) == 1
        if not free:
            w.wrong.append("%s is still held" % key)
    server.close()
    return w, proxy


def start(server, directory, *options):
    os.makedirs(directory, exist_ok=True)
    return subprocess.Popen(
        [server, "--port", "auto", "--data", os.path.join(directory, "data"), "--data-volatile", "--log-level", "info",
         *options], stderr=subprocess.PIPE, text=True)


def port_of(process):
    """Waits until a server is ready. Returns its port."""
    port = None
    for line in process.stderr:
        if "listening on 127.0.0.1:" in line:
            port = int(line.split("127.0.0.1:")[1].split()[0])
        if " ready: " in line:
            return port
    sys.exit("a server did not start")


def start_majority(server, directory):
    """Starts three nodes, each with its own address for other nodes."""
    net = "127.%d.%d" % (1 + os.getpid() // 256 % 250, os.getpid() % 256)
    peers = ",".join("%d=%s.%d:5627" % (i, net, i) for i in (1, 2, 3))
    nodes = [start(server, os.path.join(directory, "node%d" % i), "--node", str(i), "--peers", peers, "--bootstrap",
                   "--node-bind", "%s.%d" % (net, i), "--secret", "a secret of this test, and of no other")
             for i in (1, 2, 3)]
    return nodes


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("server")
    parser.add_argument("--acquires", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(10 ** 6))
    parser.add_argument("--address", action="append", default=[])
    parser.add_argument("--majority", action="store_true")
    args = parser.parse_args()
    addresses = [(a.rsplit(":", 1)[0], int(a.rsplit(":", 1)[1])) for a in args.address]
    processes = []
    directory = tempfile.TemporaryDirectory(prefix="sluice-test.")
    if args.majority:
        processes = start_majority(args.server, directory.name)
    elif not addresses:
        processes = [start(args.server, directory.name)]
    addresses = addresses or [("127.0.0.1", port_of(p)) for p in processes]
    print("# --seed %d --acquires %d" % (args.seed, args.acquires))
    numbers, failed = range(2, 21), 0
    try:
        for i, n in enumerate(numbers):
            w, proxy = asyncio.run(play(addresses, n, args.acquires // len(numbers) + 1, args.seed))
            failed += bool(w.wrong)
            print("%sok %d - every reply number %d is dropped: %d grants, %d replies dropped, %d commands repeated, "
                  "%d replays, %d cancelled, %d ended, %d held again" % (
                      "not " if w.wrong else "", i + 1, n, w.granted, proxy.dropped, w.repeated, w.replayed, w.cancelled,
                      w.ended, w.returned))
            for text in w.wrong[:3]:
                print("# " + text)
            sys.stdout.flush()
    finally:
        for process in processes:
            process.kill()
    print("1..%d" % len(numbers))
    sys.exit(1 if failed else 0)


main()
