#!/usr/bin/python3
"""lost_replies.py - the C client behind a proxy that drops replies and closes connections: no client is locked out
by its own grant, no lock has two holders, and nothing stays held.

    tests/client/lost_replies.py SERVER LOCKERS [--acquires N] [--cluster majority|etcd [--kill SECONDS]]

For each n from 2 to 20, the proxy drops every n-th message of the server, and closes or resets that connection. Eight
threads share one service. They acquire, check and release three locks with leases of a minute; one time in ten,
another thread cancels the acquisition. With --cluster, each connection of the proxy is to a node that it draws. With
--kill, a node is killed every so many seconds (on etcd: the keeper), and started again. Then leases are 8 s long: if a
keeper is killed within a second after the release of a longer lease, the lock is held again until the lease expires, as
docs/cluster.md says.
"""
import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "../cluster/lib")]
from nodes import Cluster  # noqa: E402
from reply_proxy import Proxy  # noqa: E402

KEYS, CLIENTS, PATIENCE = ("a", "b", "c"), 8, 120


async def command(address, *words):
    """Send a command without the proxy, and return the first line of the reply."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
    line = await reader.readline()
    writer.close()
    return line.decode().strip()


async def free(addresses, key):
    """Wait until a key is free; a node may be down, or may not know the keeper yet."""
    for attempt in range(100):
        try:
            got = await command(addresses[attempt % len(addresses)], "AWAIT", key, "FREE", "10000")
        except OSError as e:
            got = str(e)
        if got.startswith(":"):
            break
        await asyncio.sleep(0.2)
    return got


class Killer:
    """Kills nodes and starts them again, in a thread."""

    def __init__(self, cluster, seconds, on_etcd):
        self.cluster, self.seconds, self.on_etcd, self.kills = cluster, seconds, on_etcd, 0
        self.stops = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        nodes = list(self.cluster)
        while not self.stops.wait(self.seconds):
            node = random.choice(nodes)
            if self.on_etcd:
                node = self.cluster[int(node.keeper()["keeper_node"]) or 1]
            node.kill()
            self.kills += 1
            time.sleep(1)
            node.start()

    def end(self):
        self.stops.set()
        self.thread.join()


async def play(lockers, addresses, n, acquires, seed, lease_ms):
    proxy = Proxy(addresses, n, random.Random(seed * 100 + n))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        lockers, "lost", "127.0.0.1:%d" % port, str(CLIENTS), str(acquires), str(lease_ms), stdout=subprocess.PIPE)
    wrong = []
    try:
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        lines = out.decode().splitlines()
    except asyncio.TimeoutError:
        process.kill()
        lines = ["did not end"]
    if process.returncode != 0 or not lines[-1].startswith("done") or "failed=0 wrong=0" not in lines[-1]:
        wrong += lines[-4:]
    for key in KEYS:
        got = await free(addresses, key)
        if got != ":1":
            wrong.append("%s is still held: %s" % (key, got))
    server.close()
    granted = re.search(r"granted=(\d+) cancelled=(\d+)", lines[-1])
    return wrong, granted.groups() if granted else ("?", "?"), proxy


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("server")
    parser.add_argument("lockers")
    parser.add_argument("--acquires", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(10 ** 6))
    parser.add_argument("--cluster", choices=("majority", "etcd"))
    parser.add_argument("--kill", type=float)
    args = parser.parse_args()
    process = cluster = killer = None
    if args.cluster:
        cluster = Cluster(3, args.server, etcd=1 if args.cluster == "etcd" else 0)
        cluster.__enter__()
        addresses = [(n.host, n.port) for n in cluster]
        if args.kill:
            killer = Killer(cluster, args.kill, args.cluster == "etcd")
    else:
        directory = tempfile.TemporaryDirectory(prefix="sluice-test.")
        process = subprocess.Popen(
            [args.server, "--port", "auto", "--data", os.path.join(directory.name, "data"), "--data-volatile",
             "--log-level", "info"], stderr=subprocess.PIPE, text=True)
        port = None
        for line in process.stderr:
            if "listening on 127.0.0.1:" in line:
                port = int(line.split("127.0.0.1:")[1].split()[0])
            if " ready: " in line:
                break
        addresses = [("127.0.0.1", port)]
    print("# --seed %d --acquires %d" % (args.seed, args.acquires))
    numbers, failed = range(2, 21), 0
    try:
        for i, n in enumerate(numbers):
            wrong, counts, proxy = asyncio.run(
                play(args.lockers, addresses, n, args.acquires // len(numbers) + 1, args.seed,
                     8000 if args.kill else 60000))
            failed += bool(wrong)
            print("%sok %d - every message number %d is dropped: %s grants, %s cancelled, %d messages dropped" % (
                "not " if wrong else "", i + 1, n, counts[0], counts[1], proxy.dropped))
            for text in wrong[:4]:
                print("# " + text)
            sys.stdout.flush()
    finally:
        if killer is not None:
            killer.end()
            print("# %d nodes were killed" % killer.kills)
        if cluster is not None:
            cluster.__exit__(None, None, None)
        if process is not None:
            process.kill()
    print("1..%d" % len(numbers))
    sys.exit(1 if failed else 0)


main()
