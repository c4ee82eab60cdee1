#!/usr/bin/python3
"""leader.py - of several programs one leads, as long as a majority of nodes is there.

    leader.py KEY HOST:PORT...        one server, or nodes of a cluster in any order

Start it several times. One says `lead`. Kill it, stop it with SIGSTOP, kill the node it talks
to, and watch. Lines begin with the time, in milliseconds of CLOCK_BOOTTIME. `act` stands for
what only the leader may do. Needs redis-py.

What makes it right (docs/leases.md): it counts its lease from before it asked, looks at the
clock before every step, and takes the fence along.
"""
import os
import signal
import socket
import sys
import time

import redis

LEASE_MS = 3000
WAIT_MS = LEASE_MS     # in line, before it asks again
TRY_MS = LEASE_MS / 6  # for a node to answer EXTEND: leaves time for others
PAUSE_MS = 200         # after one that did not answer, before the next
STEP_MS = 50           # of the work
DRIFT = 0.998          # two clocks that are right within 0.1 %
ME = f"{socket.gethostname()}:{os.getpid()}"  # whom READ KEY tells of


def now_ms():
    """By a clock that goes on while the machine sleeps, and is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


def say(at_ms, text):
    print(f"{at_ms:.3f} {text}", flush=True)


class NoAnswer(Exception):
    """Whether it was done is not known; another node may know more."""


class Nodes:
    """Commands to one node; after a failure, to the next."""

    def __init__(self, addresses, patience_ms):
        self.addresses, self.at = addresses, 0
        self.nodes = []
        for address in addresses:
            host, port = address.rsplit(":", 1)
            self.nodes.append(redis.Redis(host, int(port),
                                          socket_connect_timeout=TRY_MS / 1000,
                                          socket_timeout=patience_ms / 1000))

    def ask(self, *words):
        try:
            return self.nodes[self.at].execute_command(*words)
        except redis.RedisError as error:
            if str(error).startswith(("LOST", "ASKED")):
                raise  # these two are answers
            self.at = (self.at + 1) % len(self.nodes)
            raise NoAnswer(error) from error


def act(at_ms, fence):
    """What only the leader may do. What it writes to is told the fence, and refuses one that
    is lower than it has seen: we may be stopped between the look at the clock and here."""
    say(at_ms, f"act {fence}")


def follow(nodes, key):
    """Wait until we lead. Returns the fence, and until when by our own clock."""
    while True:
        sent = now_ms()
        try:
            grant = nodes.ask("ACQUIRE", key, "LEASE", LEASE_MS, "WAIT", WAIT_MS, "VALUE", ME)
        except NoAnswer as error:
            say(now_ms(), f"follow, {error}")
            time.sleep(PAUSE_MS / 1000)
            continue
        if grant is not None:  # None: another leads
            fence, _, lease_ms, waited_ms, _ = grant
            return fence, sent + DRIFT * (waited_ms + lease_ms)


def lead(nodes, key, fence, end):
    """Act until our time is over. Returns why it is."""
    extend_at = end - LEASE_MS * 2 / 3
    while (now := now_ms()) < end:
        if now < extend_at:
            act(now, fence)
            time.sleep(STEP_MS / 1000)
            continue
        try:
            left_ms = nodes.ask("EXTEND", key, fence, LEASE_MS)
            end = max(end, now + DRIFT * left_ms)
            extend_at = end - LEASE_MS * 2 / 3
        except NoAnswer as error:  # the end is what it was: try again soon
            say(now_ms(), f"still {fence}, {error}")
            extend_at = now_ms() + PAUSE_MS
        except redis.RedisError as error:
            return error  # LOST; or ASKED, by one of more priority
    return "my lease is over"


def main(key, addresses):
    waiting = Nodes(addresses, WAIT_MS + 1000)
    leading = Nodes(addresses, TRY_MS)
    say(now_ms(), "follow")
    while True:
        fence, end = follow(waiting, key)
        leading.at = waiting.at
        say(now_ms(), f"lead {fence} until {end:.3f}, {addresses[leading.at]}")
        try:
            why = lead(leading, key, fence, end)
            say(now_ms(), f"follow {fence}, {why}")
        finally:  # now that we have stopped; also if we were told to exit
            try:
                leading.ask("RELEASE", key, fence)
            except (NoAnswer, redis.RedisError):
                pass  # it ends by itself


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: leader.py KEY HOST:PORT...")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(sys.argv[1], sys.argv[2:])
