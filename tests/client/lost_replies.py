#!/usr/bin/python3
"""lost_replies.py - the C client behind a proxy that drops replies and closes connections: no client is locked out
by its own grant, no lock has two holders, and nothing stays held.

    tests/client/lost_replies.py SERVER LOCKERS [--acquires N] [--address HOST:PORT]...

For each n from 2 to 20, the proxy drops every n-th message of the server, and closes or resets that connection. Eight
threads share one service. They acquire, check and release three locks with leases of a minute; one time in ten,
another thread cancels the acquisition. --address uses a running server, or several nodes of a cluster.
"""
import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from reply_proxy import Proxy  # noqa: E402

KEYS, CLIENTS, PATIENCE = ("a", "b", "c"), 8, 120


async def command(address, *words):
    """Send a command without the proxy, and return the first line of the reply."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
    line = await reader.readline()
    writer.close()
    return line.decode().strip()


async def play(lockers, addresses, n, acquires, seed):
    proxy = Proxy(addresses, n, random.Random(seed * 100 + n))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        lockers, "lost", "127.0.0.1:%d" % port, str(CLIENTS), str(acquires), stdout=subprocess.PIPE)
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
        for address in addresses:
            got = await command(address, "AWAIT", key, "FREE", "10000")
            if not got.startswith("-"):
                break
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
    parser.add_argument("--address", action="append", default=[])
    args = parser.parse_args()
    addresses = [(a.rsplit(":", 1)[0], int(a.rsplit(":", 1)[1])) for a in args.address]
    process = None
    if not addresses:
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
                play(args.lockers, addresses, n, args.acquires // len(numbers) + 1, args.seed))
            failed += bool(wrong)
            print("%sok %d - every message number %d is dropped: %s grants, %s cancelled, %d messages dropped" % (
                "not " if wrong else "", i + 1, n, counts[0], counts[1], proxy.dropped))
            for text in wrong[:4]:
                print("# " + text)
            sys.stdout.flush()
    finally:
        if process is not None:
            process.kill()
    print("1..%d" % len(numbers))
    sys.exit(1 if failed else 0)


main()
