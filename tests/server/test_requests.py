#!/usr/bin/python3
"""test_requests.py - ACQUIRE ... REQUEST and CANCEL on a live server: lost replies, repeated commands,
connections that end while they wait, restarts.

    tests/server/test_requests.py SERVER [--jobs N] [PATTERN...]
"""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import (check, check_error, check_that, fence_of, main, start, stop, test)  # noqa: E402

FOREVER = 10 ** 8  # ms
ID = "0123456789abcdef"
OTHER = "fedcba9876543210"


@test
def a_repeated_request_gets_its_own_grant(t):
    s, a, b = t.server().with_clients(2)
    got = a("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID)
    check((got[1:3], got[4:]), ([1, 60000], [0, 0]))
    a.reset()  # as if the reply had been lost
    again = b("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID)
    check((again[0], again[1], again[4:]), (got[0], 1, [0, 1]), "the same grant")
    check_that(0 < again[2] <= 60000, "the time left")
    check_error(b("ACQUIRE", "k", "LEASE", "61s", "REQUEST", ID), "MISMATCH", "id")
    for option in (("SHARED",), ("PRIORITY", 1), ("VALUE", "v"), ("NOTE", "n"), ("PER", 2), ("STEAL",),
                   ("STEAL", "0.5"), ("STEAL", "AUTO")):
        check_error(b("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID, *option), "MISMATCH")
    check(b("ACQUIRE", "k", "REQUEST", ID, "WAIT", 5, "LEASE", "60s")[0], got[0], "WAIT may differ")
    check(b("ACQUIRE", "k", "LEASE", "60s", "REQUEST", OTHER), None, "another id")
    check(b("RELEASE", "k", got[0]), 1)
    check_error(b("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID), "ENDED", "new id")
    check_error(b("ACQUIRE", "k", "LEASE", "60s", "REQUEST", OTHER), "ENDED")


@test
def a_grant_with_an_id_is_counted_and_published_once(t):
    s, a, b = t.server().with_clients(2)
    sub = s.client()
    sub.subscribe("lock:k")
    a("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID)
    b("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID)
    check(b("CANCEL", "k", ID), 2)
    check([m[1].split()[0] for m in sub.messages(2)], ["granted", "released"])
    check_that(sub.quiet(), "there are no more events")
    check(s.number("grants", a), 1)


@test
def connections_that_wait_for_one_id_get_one_grant(t):
    s, holder, a, b = t.server().with_clients(3)
    fence = holder.acquire("k")
    s.waits(a, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    b.send("ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    s.until_number("blocked_clients", 2)
    check(s.waiters("k"), 1, "they have one position in the queue")
    holder("RELEASE", "k", fence)
    one, two = a.reply(), b.reply()
    check(one[0], two[0], "the same fence")
    check(sorted((one[5], two[5])), [0, 1], "one of them is a replay")


@test
def a_connection_that_ends_while_it_waits_keeps_its_position(t):
    s, holder, a, other = t.server("--linger", "1h").with_clients(3)
    fence = holder.acquire("k")
    for end in ("close", "reset"):
        s.waits(a, "ACQUIRE", "k", "LEASE", 50, "WAIT", FOREVER, "REQUEST", ID + end)
        s.waits(other, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, count=2)
        getattr(a, end)()
        s.until_waiting("k", 1)
        b = s.client()
        s.waits(b, "ACQUIRE", "k", "LEASE", 50, "WAIT", FOREVER, "REQUEST", ID + end, count=2)
        holder("RELEASE", "k", fence)
        mine = b.reply()
        theirs = other.reply()
        check_that(mine[0] < theirs[0], "the position was kept after %s" % end)
        holder, fence, a, other = other, theirs[0], b, holder


@test
def an_absent_request_blocks_nobody_and_ends(t):
    s, holder, a, other = t.server("--linger", "100ms").with_clients(3)
    fence = holder.acquire("k")
    s.waits(a, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID)
    a.reset()
    s.until_waiting("k", 0)
    holder("RELEASE", "k", fence)
    taken = other.acquire("k", "LEASE", "60s")
    other.acquire("clock", "LEASE", 200)
    check(other("AWAIT", "clock", "FREE", FOREVER), 1, "more time than linger has passed")
    check_error(holder("ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", ID), "ENDED")
    check(other("CHECK", "k", taken), 1)


@test
def a_request_gets_the_lock_of_a_holder_that_has_just_left(t):
    """As without an id: no reply says that a key is held after its holder has closed its connection."""
    s, b = t.server().with_clients(1)
    for i in range(100):
        a = s.client()
        a.acquire("k%d" % i)
        stops = i % 2 == 0  # Then the server finds the request and the end of the connection at the same time.
        if stops:
            stop(t, s.pid)
            b.send("ACQUIRE", "k%d" % i, "LEASE", "60s", "REQUEST", ID)
        a.close()
        if stops:
            s.signal(signal.SIGCONT)
            got = b.reply()
        else:
            got = b("ACQUIRE", "k%d" % i, "LEASE", "60s", "REQUEST", ID)
        check_that(isinstance(got, list), "round %d: %r" % (i, got))


@test
def a_grant_without_a_lease_moves_to_the_last_connection(t):
    s, a, b, c = t.server("--linger", "1h").with_clients(3)
    fence = fence_of(a("ACQUIRE", "k", "REQUEST", ID))
    check(fence_of(b("ACQUIRE", "k", "REQUEST", ID)), fence)
    a.close()
    check(c("CHECK", "k", fence), 1)
    check(b("RELEASE", "k"), 1, "it belongs to b")


@test
def cancel_leaves_nothing_behind(t):
    s, a, b, c = t.server().with_clients(3)
    check(a("CANCEL", "k", ID), 0)
    check_error(a("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID), "ENDED")
    fence = a.acquire("k", "LEASE", "60s")
    s.waits(b, "ACQUIRE", "k", "LEASE", "60s", "WAIT", FOREVER, "REQUEST", OTHER)
    check(c("CANCEL", "k", OTHER), 1)
    check_error(b.reply(), "ENDED")
    check(c("CANCEL", "k", OTHER), 0)
    check(a("RELEASE", "k", fence), 1)
    check(s.holders("k"), 0, "nothing is held")
    check(b("PING"), "PONG")


@test
def bad_ids_are_rejected(t):
    s, a = t.server().with_clients(1)
    for n in (0, 15, 129):
        check_error(a("ACQUIRE", "k", "REQUEST", "x" * n), "ERR", "16 to 128", "%d" % n)
        check_error(a("CANCEL", "k", "x" * n), "ERR", "16 to 128")
    for n in (16, 128):
        check(a("ACQUIRE", "k%d" % n, "REQUEST", b"\0" * n)[5], 0, "any bytes are allowed")
    check_error(a("ACQUIRE", "k", "REQUEST"), "ERR", "REQUEST needs a value")
    check_error(a("ACQUIRE", "k", "REQUEST", ID, "REQUEST", ID), "ERR", "duplicate")
    check_error(a("CANCEL", "k"), "ERR")
    check_error(a("CANCEL", "", ID), "ERR", "empty")


@test
def the_number_of_ids_is_limited(t):
    s, a, b = t.server("--requests-max", "3").with_clients(2)
    for i in range(4):
        check(a("CANCEL", "k", ID + str(i)), 0)
    check(s.number("request_ids"), 3)
    check_error(a("ACQUIRE", "k", "LEASE", 50, "REQUEST", ID + "1"), "ENDED")
    def acquire(client, key, id_):
        check_that(isinstance(client("ACQUIRE", key, "LEASE", "1h", "REQUEST", id_), list), "it is granted")
    acquire(a, "k", ID + "0")  # The server has forgotten the first id.
    acquire(a, "0", ID)
    acquire(a, "1", ID)
    # Ids of grants are not forgotten.
    check_error(b("ACQUIRE", "other", "LEASE", 50, "REQUEST", ID), "REQUESTS", "requests-max")
    check_error(b("CANCEL", "other", ID), "REQUESTS")
    b.acquire("other", "LEASE", 50)
    a("RELEASE", "0")
    acquire(b, "third", ID)


@test
def an_id_survives_the_death_of_the_server(t):
    s = start(t)
    a = s.client()
    got = a("ACQUIRE", "k", "LEASE", "60s", "VALUE", "v", "REQUEST", ID)
    long = a("ACQUIRE", "long", "LEASE", "1h", "REQUEST", ID)
    s.kill()
    s, a = start(t).with_clients(1)
    for key, lease, was, options in (("k", "60s", got, ("VALUE", "v")), ("long", "1h", long, ())):
        again = a("ACQUIRE", key, "LEASE", lease, "REQUEST", ID, *options)
        check((again[0], again[5]), (was[0], 1), "the grant of " + key)
    check_error(a("ACQUIRE", "k", "LEASE", "60s", "REQUEST", ID), "MISMATCH")
    check(a("CANCEL", "long", ID), 2)


@test
def a_long_lease_is_replayed_only_when_it_is_durable(t):
    """Both replies wait for the same sync."""
    s = start(t, "--lease-volatile", "1s")
    a, b = s.clients(2)
    for i in range(20):
        a.send("ACQUIRE", "k", "LEASE", "1h", "REQUEST", ID + str(i))
        b.send("ACQUIRE", "k", "LEASE", "1h", "REQUEST", ID + str(i))
        one, two = a.reply(), b.reply()
        check((one[0], one[5] + two[5]), (two[0], 1), "one grant")
        check(a("RELEASE", "k", one[0]), 1)


main(__doc__)
