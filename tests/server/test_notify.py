#!/usr/bin/python3
"""test_notify.py - ACQUIRE ... REQUEST id NOTIFY on a live server: many waits on one connection.

    tests/server/test_notify.py SERVER [--jobs N] [PATTERN...]
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import (check, check_error, check_that, main, start, test)  # noqa: E402

FOREVER = 10 ** 8  # ms
ID = "0123456789abcdef"
OTHER = "fedcba9876543210"


def id_of(n):
    return "%032d" % n


def notify(c, key, id_, *options):
    return c("ACQUIRE", key, *options, "WAIT", FOREVER, "REQUEST", id_, "NOTIFY")


def outcome(c, key, id_):
    """The last element of the push message."""
    got = c.push()
    check(got[:4], [b"lock", key.encode(), b"outcome", id_.encode()])
    check(len(got), 5)
    return got[4]


@test
def a_lock_that_is_free_is_granted_at_once(t):
    s, a = t.server().with_clients(1, 3)
    got = notify(a, "k", ID, "LEASE", "60s")
    check((len(got), got[2], got[5]), (6, 60000, 0))
    check(a.pushes, [])
    check(notify(a, "k", ID, "LEASE", "60s")[0], got[0], "a replay")
    check_that(a.quiet(), "no outcome follows")


@test
def a_connection_that_waits_runs_other_commands(t):
    s, a, holder = t.server().with_clients(2, 3)
    fences = [holder.acquire("k%d" % i) for i in range(3)]
    for i in range(3):
        check(notify(a, "k%d" % i, id_of(i), "LEASE", "60s"), "QUEUED")
    check(a("PING"), "PONG")
    check(s.number("blocked_clients", a), 0)
    check(a.acquire("other") > 0, True)
    for i in (1, 0, 2):
        check(holder("RELEASE", "k%d" % i, fences[i]), 1)
        got = outcome(a, "k%d" % i, id_of(i))
        check((len(got), got[2], got[4:]), (6, 60000, [0, 0]))
        check(a("RELEASE", "k%d" % i, got[0]), 1)


@test
def queued_comes_before_its_outcome(t):
    s, a, holder = t.server().with_clients(2, 3)
    fence = holder.acquire("k")
    a.send("ACQUIRE", "k", "WAIT", FOREVER, "REQUEST", ID, "NOTIFY")
    a.send("PING")
    check(a.reply(), "QUEUED")
    check(a.reply(), "PONG")
    check(a.pushes, [])
    holder("RELEASE", "k", fence)
    check(outcome(a, "k", ID)[2], -1, "a grant without a lease")
    check(s.holders("k", holder), 1)
    a.close()
    s.client()("AWAIT", "k", "FREE", FOREVER)


@test
def the_outcome_is_nil_or_an_error(t):
    s, a, holder = t.server().with_clients(2, 3)
    holder.acquire("k")
    check(a("ACQUIRE", "k", "WAIT", 20, "REQUEST", ID, "NOTIFY"), "QUEUED")
    check(outcome(a, "k", ID), None)
    check(a("ACQUIRE", "k", "REQUEST", OTHER, "NOTIFY"), None, "without WAIT, nil is known at once")
    check(notify(a, "k", id_of(1)), "QUEUED")
    check(holder("DRAIN", "k", "ON"), 1)
    check_error(outcome(a, "k", id_of(1)), "DRAINED")
    check_error(notify(a, "k", id_of(2)), "DRAINED")
    holder("DRAIN", "k", "OFF")
    check_error(notify(a, "k", ID), "ENDED")


@test
def after_cancel_no_outcome_follows(t):
    s, a, b, holder = t.server().with_clients(3, 3)
    fence = holder.acquire("k")
    check(notify(a, "k", ID, "LEASE", "60s"), "QUEUED")
    check(notify(b, "k", ID, "LEASE", "60s"), "QUEUED", "another connection joins")
    check(a("CANCEL", "k", ID), 1)
    check_error(outcome(b, "k", ID), "ENDED")
    check_that(a.quiet(), "the reply to CANCEL was the outcome")
    check(s.waiters("k", holder), 0)
    check(notify(a, "k", OTHER, "LEASE", "60s"), "QUEUED")
    a.send("CANCEL", "k", OTHER)
    holder("RELEASE", "k", fence)
    check(a.reply() in (1, 2), True)
    check(b("ACQUIRE", "k", "LEASE", "60s")[1], 1)
    check_that(len(a.pushes) <= 1 and a.quiet(), "at most one outcome, before the reply")


@test
def a_wait_continues_on_another_connection(t):
    s, a, first, holder = t.server("--linger", "60s").with_clients(3, 3)
    fence = holder.acquire("k")
    check(notify(a, "k", ID, "LEASE", "60s"), "QUEUED")
    check(notify(first, "k", OTHER, "LEASE", "60s"), "QUEUED")
    a.reset()
    s.until_waiting("k", 1)
    b = s.client(3)
    check(notify(b, "k", ID, "LEASE", "60s"), "QUEUED")
    holder("RELEASE", "k", fence)
    check(outcome(b, "k", ID)[5], 0, "it kept its position")
    check_that(first.quiet(), "the other one waits")


@test
def a_connection_can_wait_for_its_own_lock(t):
    s, a = t.server().with_clients(1, 3)
    fence = a.acquire("k")
    check_error(a("ACQUIRE", "k", "WAIT", 100), "DEADLOCK")
    check(notify(a, "k", ID), "QUEUED")
    check(a("RELEASE", "k", fence), 1)
    check(outcome(a, "k", ID)[0] > fence, True)


@test
def a_request_can_steal_from_its_own_connection(t):
    s, a = t.server().with_clients(1, 3)
    fence = a.acquire("k", "LEASE", "60s")
    check(notify(a, "k", ID, "LEASE", "60s", "PRIORITY", 1, "STEAL"), "QUEUED")
    pushed = [a.push(), a.push()]
    check(sorted(p[2] for p in pushed), [b"asked", b"waits"])
    check(a("RELEASE", "k", fence), 1)
    check(outcome(a, "k", ID)[0] > fence, True)


@test
def the_options_of_notify_are_checked(t):
    s, a = t.server("--notify-max", "2").with_clients(1)
    check_error(a("ACQUIRE", "k", "REQUEST", ID, "NOTIFY"), "ERR", "HELLO 3")
    a = s.client(3)
    check_error(a("ACQUIRE", "k", "NOTIFY"), "ERR", "needs REQUEST")
    check_error(a("ACQUIRE", "k", "REQUEST", ID, "NOTIFY", "NOTIFY"), "ERR", "duplicate")
    s.client().acquire("k", "LEASE", "60s")
    check(notify(a, "k", ID), "QUEUED")
    check_error(notify(a, "k", ID), "ERR", "already waits")
    check_error(a("ACQUIRE", "k", "REQUEST", ID), "ERR", "already waits")
    check_error(a("HELLO", 2), "ERR", "CANCEL")
    check(notify(a, "k", OTHER), "QUEUED")
    check_error(notify(a, "k", id_of(1)), "LIMIT", "notify-max")
    check(a("CANCEL", "k", OTHER), 1)
    check(notify(a, "k", id_of(1)), "QUEUED")
    check(s.client(3)("ACQUIRE", "k", "WAIT", 1, "REQUEST", id_of(2), "NOTIFY"), "QUEUED", "another connection")
    check(a("RESET"), "RESET")
    check(s.waiters("k"), 0)
    check(s.number("notify_waits"), 0)
    check_that(a.quiet(), "RESET ends its waits")


@test
def waits_end_with_the_server(t):
    s, a, holder = t.server().with_clients(2, 3)
    holder.acquire("k")
    for id_ in (ID, OTHER):
        check(notify(a, "k", id_), "QUEUED")
    s.signal(15)
    for id_ in (ID, OTHER):
        check_error(outcome(a, "k", id_), "SHUTDOWN")
    a.until_closed()
    check(s.status, 0)


@test
def a_long_lease_is_pushed_when_it_is_durable(t):
    s = start(t, "--lease-volatile", "1s")
    a, holder = s.client(3), s.client()
    fence = holder.acquire("k", "LEASE", "60s")
    check(notify(a, "k", ID, "LEASE", "60s"), "QUEUED")
    holder("RELEASE", "k", fence)
    granted = outcome(a, "k", ID)[0]
    got = notify(a, "free", OTHER, "LEASE", "60s")
    if got == "QUEUED":  # It waits for the journal.
        got = outcome(a, "free", OTHER)
    s = s.crash()
    a = s.client(3)
    check(notify(a, "k", ID, "LEASE", "60s")[0], granted)
    check(notify(a, "free", OTHER, "LEASE", "60s")[0], got[0])


@test
def thousands_of_waits_share_one_connection(t):
    s, a, holder = t.server().with_clients(2, 3)
    keys, waits = 200, 40
    fences = {}
    for k in range(keys):
        fences[k] = holder.acquire("k%d" % k, "LEASE", "60s")
    for k in range(keys):
        a.pipeline(*(("ACQUIRE", "k%d" % k, "LEASE", "60s", "WAIT", FOREVER, "REQUEST", id_of(k * waits + w),
                      "NOTIFY") for w in range(waits)))
    check(s.number("notify_waits", holder), keys * waits)
    for k in range(keys):
        holder("RELEASE", "k%d" % k, fences[k])
    turn = {k: 0 for k in range(keys)}
    for _ in range(keys * waits):
        got = a.push()
        k = int(got[1][1:])
        check(got[3], id_of(k * waits + turn[k]).encode(), "in the order of arrival")
        turn[k] += 1
        a.send("RELEASE", "k%d" % k, got[4][0])
        check(a.reply(), 1)
    check_that(a.quiet(), "every wait had one outcome")
    check(s.number("notify_waits", holder), 0)


@test
def a_connection_that_closes_ends_its_waits(t):
    s, a, holder = t.server("--linger", "0").with_clients(2, 3)
    fence = holder.acquire("k", "LEASE", "60s")
    for i in range(100):
        check(notify(a, "k", id_of(i), "LEASE", "60s"), "QUEUED")
    a.reset()
    s.until_waiting("k", 0)
    check(s.number("notify_waits", holder), 0)
    holder("RELEASE", "k", fence)
    check(s.holders("k", holder), 0)


main(__doc__)
