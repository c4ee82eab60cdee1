#!/usr/bin/python3
"""leader.py - elect a leader among several programs, with one server or a cluster.

    leader.py KEY HOST:PORT...        one server, or the nodes of a cluster in any order

Start it several times. One program prints `lead`. Kill it, stop it with SIGSTOP, or kill the
node that it is connected to, and watch. Each line begins with the time, in milliseconds of
CLOCK_BOOTTIME. `act` stands for the work that only the leader may do. Needs redis-py.

Three rules make it safe (docs/leases.md): it counts its lease from before it sends the request,
it checks the clock before every step, and it passes the fence to the resource.
"""
import os
import signal
import socket
import sys
import time

import redis

LEASE_MS = 3000
WAIT_MS = LEASE_MS     # how long one ACQUIRE waits in the queue
TRY_MS = LEASE_MS / 6  # timeout of EXTEND: leaves time to try two other nodes
PAUSE_MS = 200         # between a failure and the next try
STEP_MS = 50           # the longest time that one step of the work takes
DRIFT = 0.998          # allows two clocks that are each wrong by 0.1 %
ME = f"{socket.gethostname()}:{os.getpid()}"  # READ KEY returns this


def now_ms():
    """A clock that counts while the machine sleeps, and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


def say(at_ms, text):
    print(f"{at_ms:.3f} {text}", flush=True)


class NoAnswer(Exception):
    """The node may or may not have executed the command. Try the next node."""


class Nodes:
    """Sends commands to one node, and switches to the next one after a failure."""

    def __init__(self, addresses, timeout_ms):
        self.addresses, self.at = addresses, 0
        self.nodes = []
        for address in addresses:
            host, port = address.rsplit(":", 1)
            self.nodes.append(redis.Redis(host, int(port),
                                          socket_connect_timeout=TRY_MS / 1000,
                                          socket_timeout=timeout_ms / 1000))

    def call(self, *command):
        try:
            return self.nodes[self.at].execute_command(*command)
        except redis.RedisError as error:
            if str(error).startswith(("LOST", "ASKED")):
                raise  # the cluster has decided; another node would say the same
            self.at = (self.at + 1) % len(self.nodes)
            raise NoAnswer(error) from error


def act(at_ms, fence):
    """The work that only the leader may do. It passes the fence to the resource, which rejects
    a fence lower than the highest one it has seen: this process may have been stopped after it
    checked the clock."""
    say(at_ms, f"act {fence}")


def follow(nodes, key):
    """Wait until this program leads. Returns the fence, and the expiry of the lease by this
    program's own clock."""
    while True:
        sent = now_ms()
        try:
            grant = nodes.call("ACQUIRE", key, "LEASE", LEASE_MS, "WAIT", WAIT_MS, "VALUE", ME)
        except NoAnswer as error:
            say(now_ms(), f"follow, {error}")
            time.sleep(PAUSE_MS / 1000)
            continue
        if grant is not None:  # None: another program leads
            fence, _, lease_ms, waited_ms, _ = grant
            return fence, sent + DRIFT * (waited_ms + lease_ms)


def lead(nodes, key, fence, end):
    """Act until the lease expires or is lost. Returns the reason."""
    extend_at = end - LEASE_MS * 2 / 3
    while (now := now_ms()) + STEP_MS < end:  # a step must end before the lease does
        if now < extend_at:
            act(now, fence)
            time.sleep(STEP_MS / 1000)
            continue
        try:
            left_ms = nodes.call("EXTEND", key, fence, LEASE_MS)
            end = max(end, now + DRIFT * left_ms)
            extend_at = end - LEASE_MS * 2 / 3
        except NoAnswer as error:  # the lease expires when it did before: try again soon
            say(now_ms(), f"still {fence}, {error}")
            extend_at = now_ms() + PAUSE_MS
        except redis.RedisError as error:
            return error  # LOST; or ASKED, because a higher priority waits
    return "the lease has expired"


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
        finally:  # the work has stopped; also on SIGTERM
            try:
                leading.call("RELEASE", key, fence)
            except (NoAnswer, redis.RedisError):
                pass  # the lease expires


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: leader.py KEY HOST:PORT...")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(sys.argv[1], sys.argv[2:])
