#!/usr/bin/python3
"""test_commands.py - every command of the server and its replies, in RESP2 and RESP3.

    tests/server/test_commands.py SERVER [--jobs N] [PATTERN...]
"""
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import (Closed, Error, Push, both_protocols, check, check_error, check_that, encode,
                  main, pairs, test, test_of)

MAX_53 = (1 << 53) - 1
ALL_BYTES = bytes(range(256))


# --- ACQUIRE and RELEASE --------------------------------------------------------


@both_protocols
def a_grant_is_five_integers(t, protocol):
    c = t.server().client(protocol)
    before = time.time()
    got = c("ACQUIRE", "k")
    check([type(n) for n in got], [int] * 5, "the types")
    check(got[1:], [1, -1, 0, 0], "held, lease_ms, waited_ms, overlapping")
    # A1: microseconds of the wall clock, below 2^53.
    check_that(0 < got[0] <= MAX_53, "the fence is below 2^53")
    check_that(abs(got[0] / 1e6 - before) < 86400, "the fence is the time in microseconds")
    check(c("RELEASE", "k"), 1)


@test
def taken_is_a_null_array_in_RESP2_and_a_null_in_RESP3(t):
    s, s_holder = t.server().with_clients(1)
    s_holder.acquire("k")
    for protocol, wire in ((2, b"*-1\r\n"), (3, b"_\r\n")):
        c = s.client(protocol)
        c.send("ACQUIRE", "k")
        check(c.exactly(len(wire)), wire, "the bytes")
        c.send("ACQUIRE", "k", "WAIT", 20)
        check(c.exactly(len(wire)), wire, "the bytes of a wait that timed out")
        c.send("READ", "nobody has this")
        check(c.exactly(len(wire)), wire, "the bytes of READ of nothing")
        check(c("PING"), "PONG")


@both_protocols
def a_wait_in_vain_ends_after_its_time_and_not_before(t, protocol):
    s, s_holder = t.server().with_clients(1)
    s_holder.acquire("k")
    c = s.client(protocol)
    start = time.monotonic()
    check(c("ACQUIRE", "k", "WAIT", 200), None)
    check_that(time.monotonic() - start >= 0.2, "it waited for 200 ms")


@both_protocols
def units_add_up_in_held(t, protocol):
    c = t.server().client(protocol)
    check(c("ACQUIRE", "k", "PER", 5, "BUCKETS", 2, "UNITS", 3)[1], 3)
    check(c("ACQUIRE", "k", "PER", 5, "BUCKETS", 2, "UNITS", 7)[1], 10)
    check(c("ACQUIRE", "k", "PER", 5, "BUCKETS", 2), None)
    check(c("RELEASE", "k"), 1)
    check(c("ACQUIRE", "k", "PER", 5, "BUCKETS", 2, "UNITS", 8), None)
    check(c("ACQUIRE", "k", "PER", 11, "UNITS", 8)[1], 11)


@test
def units_that_never_fit_are_rejected_at_once(t):
    c = t.server().client()
    for options in (("UNITS", 2), ("PER", 3, "UNITS", 4), ("PER", 3, "BUCKETS", 2, "UNITS", 7)):
        got = c("ACQUIRE", "k", *options, "WAIT", 60000)
        check_that(isinstance(got, Error), "%r is an error, not %r" % (options, got))


@both_protocols
def shared_requests_share_among_themselves_only(t, protocol):
    s = t.server()
    a, b, c = s.clients(3, protocol)
    fences = [a.acquire("k", "SHARED"), b.acquire("k", "SHARED"), a.acquire("k", "SHARED")]
    check(sorted(set(fences)), fences, "fences that rise")
    check(c("ACQUIRE", "k"), None)
    check(c("ACQUIRE", "k", "PER", 100), None)
    check(s.explain("k")["shared"] in (1, True), True, "shared")
    for holder in (a, b, a):
        check(c("ACQUIRE", "k"), None)
        check(holder("RELEASE", "k"), 1)
    c.acquire("k")
    check(a("ACQUIRE", "k", "SHARED"), None)


@both_protocols
def release_without_a_fence_gives_back_the_newest_of_this_connection(t, protocol):
    s = t.server()
    c, other = s.clients(2, protocol)
    first = c.acquire("k", "PER", 3)
    second = c.acquire("k", "PER", 3)
    third = other.acquire("k", "PER", 3)
    check(c("RELEASE", "k"), 1)
    check([c("CHECK", "k", f) for f in (first, second, third)], [1, 0, 1])
    check(c("RELEASE", "k"), 1)
    check(c("RELEASE", "k"), 0, "a release of nothing")
    check(c("CHECK", "k", third), 1, "another's")


@both_protocols
def release_by_fence_is_of_that_grant_only(t, protocol):
    s = t.server()
    c, other = s.clients(2, protocol)
    first = c.acquire("k", "PER", 3)
    second = c.acquire("k", "PER", 3)
    check(c("RELEASE", "k", first), 1)
    check(c("RELEASE", "k", first), 0, "the second time")
    check(other("RELEASE", "k", second), 0, "another's, without a lease")
    check(c("RELEASE", "j", second), 0, "another key")
    check(c("RELEASE", "k", second + 1), 0, "a fence that nobody has")
    check(c("CHECK", "k", second), 1)
    leased = c.acquire("k", "PER", 3, "LEASE", 60000)
    check(other("RELEASE", "k"), 0, "a bare release of another's, leased")
    check(other("RELEASE", "k", leased), 1, "another's, leased, by its fence")


@test
def a_session_that_would_wait_for_itself_gets_an_error_DEADLOCK(t):
    s, c = t.server().with_clients(1)
    c.acquire("k")
    check_error(c("ACQUIRE", "k", "WAIT", 60000), "DEADLOCK")
    check(c("ACQUIRE", "k"), None, "without WAIT")
    check(c("RELEASE", "k"), 1)


@test
def every_option_of_ACQUIRE_works_in_any_order_and_in_any_case(t):
    s, c = t.server().with_clients(1)
    sets = (("PER", 7), ("buckets", 3), ("Units", 2), ("WAIT", 100), ("lease", 60000),
            ("Priority", -5), ("VALUE", "v"), ("nOtE", "n"))
    for i in range(len(sets)):
        words = [w for pair in sets[i:] + sets[:i] for w in pair]
        got = c("acquire", "k%d" % i, *words)
        check(got[1:], [2, 60000, 0, 0], "ACQUIRE %r" % (words,))
        h = pairs(s.explain("k%d" % i)["holders"][0])
        check({n: h[n] for n in ("units", "per", "buckets", "priority", "value", "note")},
              dict(units=2, per=7, buckets=3, priority=-5, value=b"v", note=b"n"))
        check(h["fence"], got[0])


@test
def wrong_options_of_ACQUIRE_are_refused_and_change_nothing(t):
    s, c = t.server().with_clients(1)
    for words in (["PER"], ["UNITS"], ["WAIT"], ["LEASE"], ["PRIORITY"], ["VALUE"], ["NOTE"],
                  ["BOGUS"], ["BOGUS", "1"], [""], ["PER", "2", "SHARED"], ["SHARED", "PER", "2"],
                  ["WAIT", "1", "WAIT", "2"], ["SHARED", "SHARED"], ["VALUE", "a", "VALUE", "b"],
                  ["SHARED", "UNITS", "2"], ["PER", "2", "BUCKETS"], ["LEASE", "5", "x"]):
        got = c("ACQUIRE", "k", *words)
        check_error(got, "ERR")
    check(s.info(c)["keys"], "0", "keys")
    check(s.info(c)["grants"], "0", "grants")


# Numbers: what is not plain decimal digits is no number.
NO_NUMBERS = ("", "-1", "1e3", "0x10", "1.5", " 1", "1 ", "+1", "--1", "-", "abc", "1\0",
              "9" * 20, "9" * 400, "18446744073709551617", "１", "1_000", "inf", "nan")


def check_number(t, option, good, bad):
    s, c = t.server().with_clients(1)
    before = {"BUCKETS": ["PER", 1], "UNITS": ["PER", 1 << 30]}.get(option, [])
    for n in NO_NUMBERS + bad:
        got = c("ACQUIRE", "k", *before, option, n)
        check_that(isinstance(got, Error), "%s %r is refused, not answered %r" % (option, n, got))
    check(c("READ", "k"), None, "nothing was granted")
    for n in good:
        got = c("ACQUIRE", "k", *before, option, n)
        check_that(isinstance(got, list), "%s %s is granted, not answered %r" % (option, n, got))
        check(c("RELEASE", "k", got[0]), 1)


for args in (("PER", (1, 2, 1000000, (1 << 30) - 1), (1 << 53, 1 << 63)),
             ("BUCKETS", (1, 2, 1000000), (1 << 53, 1 << 63)),
             ("UNITS", (1, 1000000), (0, 1 << 53, 1 << 63)),
             ("WAIT", (0, 1, 86400000), (1 << 63,)),
             ("LEASE", (1000, 86400000), (0, 86400001, 1 << 53, 1 << 63)),
             ("PRIORITY", (0, -1, -(1 << 31), (1 << 31) - 1), (1 << 31, -(1 << 31) - 1, 1 << 63))):
    if args[0] == "PRIORITY":
        continue  # below: it may be negative
    test_of("numbers_of_%s" % args[0], check_number, *args)


@test
def a_capacity_of_zero_is_full(t):
    """As in canal lock: a caller may declare that nothing is left."""
    c = t.server().client()
    check(c("ACQUIRE", "k", "PER", 0), None)
    check(c("ACQUIRE", "k", "PER", 5, "BUCKETS", 0), None)
    check(c("ACQUIRE", "k", "PER", 0, "WAIT", 20), None)
    c.acquire("k")


@test
def numbers_of_PRIORITY(t):
    c = t.server().client()
    for n in ("", "1e3", "1.5", "+1", "abc", "--1", "-", 1 << 31, -(1 << 31) - 1, 1 << 63, "9" * 30):
        check_error(c("ACQUIRE", "k", "PRIORITY", n), "ERR")
    for n in (0, -1, -(1 << 31), (1 << 31) - 1):
        c.acquire("k", "PRIORITY", n)
        check(c("RELEASE", "k"), 1)


@test
def a_capacity_of_per_times_buckets_does_not_overflow(t):
    s, c = t.server().with_clients(1)
    for per, buckets in ((1 << 16, 1 << 16), (1 << 31, 2), ((1 << 32) - 1, (1 << 32) - 1)):
        key = "%d-%d" % (per, buckets)
        got = c("ACQUIRE", key, "PER", per, "BUCKETS", buckets)
        if isinstance(got, Error):
            continue  # refused, with words: as good
        check(got[1], 1, "held")
        check(c("ACQUIRE", key, "PER", per, "BUCKETS", buckets)[1], 2, "a second unit")
    s.still_well()


@test
def numbers_of_fences(t):
    s, c = t.server().with_clients(1)
    fence = c.acquire("k", "LEASE", 60000)
    for f in ("0", "-1", "1e3", "", "abc", "1.0", " %d" % fence, "+%d" % fence, "9" * 30,
              str(1 << 64), str((1 << 64) + fence), "-%d" % fence):
        for command in (("CHECK", "k", f), ("RELEASE", "k", f), ("EXTEND", "k", f, "1000"),
                        ("BREAK", "k", f)):
            got = c(*command)
            check_that(got == 0 or isinstance(got, Error), "%r is refused, got %r" % (command, got))
    for f in (1 << 53, (1 << 63) - 1, 1 << 63):  # no fence is so large
        check_error(c("CHECK", "k", f), "ERR", "9007199254740991")
    for f in (1, (1 << 53) - 1, fence + 1, fence - 1):
        check(c("CHECK", "k", f), 0, "CHECK k %d" % f)
        check(c("RELEASE", "k", f), 0, "RELEASE k %d" % f)
        check(c("BREAK", "k", f), 0, "BREAK k %d" % f)
        check_error(c("EXTEND", "k", f, 1000), "LOST")
    check(c("CHECK", "k", fence), 1)


@test
def leading_zeros_are_decimal_or_rejected(t):
    c = t.server().client()
    got = c("ACQUIRE", "k", "PER", "010", "UNITS", "9")
    check_that(isinstance(got, (Error, list)), "010 is ten or an error, not %r" % (got,))
    if isinstance(got, list):
        check(c("ACQUIRE", "k", "PER", "010", "UNITS", "2"), None, "ten, not more")
        check(c("ACQUIRE", "k", "PER", "010", "UNITS", "1")[1], 10)


@test
def an_empty_key_is_accepted_or_rejected_alike_everywhere(t):
    c = t.server().client()
    got = c("ACQUIRE", "")
    if isinstance(got, Error):
        check_error(c("RELEASE", ""), got.word)
    else:
        check(c("RELEASE", ""), 1)


@both_protocols
def keys_values_and_notes_are_any_bytes(t, protocol):
    s = t.server("--value-bytes-max", "4096")
    c = s.client(protocol)
    fence = c.acquire(ALL_BYTES, "VALUE", ALL_BYTES[::-1], "NOTE", ALL_BYTES, "LEASE", 60000)
    check(c("READ", ALL_BYTES)[:2], [ALL_BYTES[::-1], fence])
    told = pairs(c("EXPLAIN", ALL_BYTES))
    check(told["key"], ALL_BYTES)
    check(pairs(told["holders"][0])["note"], ALL_BYTES)
    check(c("CHECK", ALL_BYTES, fence), 1)
    check([pairs(m)["key"] for m in c("LOCKS")[1]], [ALL_BYTES])
    for b in range(256):  # each one a key of its own
        c.acquire(b"b" + bytes([b]), "VALUE", bytes([b]))
    for b in range(256):
        check(c("READ", b"b" + bytes([b]))[0], bytes([b]))
    check(c("EXTEND", ALL_BYTES, fence, 60000, "VALUE", b"\r\n\0"), 60000)
    check(c("READ", ALL_BYTES)[0], b"\r\n\0")
    check(c("RELEASE", ALL_BYTES, fence), 1)


@test
def bytes_in_events_are_as_they_are(t):
    s = t.server()
    sub, c = s.client(), s.client()
    sub.subscribe(b"lock:" + ALL_BYTES)
    f = c.acquire(ALL_BYTES)
    check(sub.reply(), [b"message", b"lock:" + ALL_BYTES,
                        b"granted %d held=1 lease_ms=-1 waited_ms=0" % f])


# --- Leases ----------------------------------------------------------------------


@both_protocols
def a_lease_is_told_extended_and_ends(t, protocol):
    c = t.server().client(protocol)
    fence, held, lease, waited, overlapping = c("ACQUIRE", "long", "LEASE", 60000)
    check([held, lease, waited, overlapping], [1, 60000, 0, 0])
    check(c("EXTEND", "long", fence, 70000), 70000, "what is left after an extend")
    start = time.monotonic()
    fence = c.acquire("k", "LEASE", 500)
    t.until(lambda: c("CHECK", "k", fence) == 0, "the lease expires")
    check_that(time.monotonic() - start >= 0.5, "it ended not before its end")
    check_error(c("EXTEND", "k", fence, 1000), "LOST")
    check(c("RELEASE", "k", fence), 0)
    check(c("READ", "k"), None)
    check_that(c.acquire("k") > fence, "the next fence is larger")


@both_protocols
def an_extend_never_moves_the_end_forward(t, protocol):
    c = t.server().client(protocol)
    fence = c.acquire("k", "LEASE", 3600000)
    check_that(c("EXTEND", "k", fence, 10) > 3500000, "the old end stays")
    check_that(c("READ", "k")[2] > 3500000, "the old end stays")
    check(c("EXTEND", "k", fence, 7200000), 7200000)


@both_protocols
def EXTEND_of_what_cannot_be_extended(t, protocol):
    s = t.server()
    c, other = s.clients(2, protocol)
    bare = c.acquire("bare")
    check_error(c("EXTEND", "bare", bare, 1000), "NOLEASE")
    check(c("CHECK", "bare", bare), 1, "it is still held")
    fence = c.acquire("k", "LEASE", 60000, "VALUE", "old")
    check_error(c("EXTEND", "k", fence + 1, 1000), "LOST")
    check_error(c("EXTEND", "j", fence, 1000), "LOST")
    for ms in ("0", "-5", "x", "1e3", str(1 << 63)):
        got = c("EXTEND", "k", fence, ms)
        check_that(isinstance(got, Error), "EXTEND by %s is refused, got %r" % (ms, got))
    check_error(c("EXTEND", "k", fence), "ERR")
    check_error(c("EXTEND", "k", fence, 1000, "VALUE"), "ERR")
    check_error(c("EXTEND", "k", fence, 1000, "BOGUS", "x"), "ERR")
    check(c("READ", "k")[0], b"old")
    check(other("EXTEND", "k", fence, 60000, "VALUE", "new"), 60000, "from another connection")
    check(c("READ", "k")[0], b"new")


NOT_DURATIONS = ("", "-5s", "-5", "5 s", " 5s", "5S", "5MS", "1e3", "1e3s", "1.5", "1.5ms", "s", "5d", "5m30s", "0x10",
                 "5s\0", "99999999999999999999s", "9223372036854775807h")


@both_protocols
def a_duration_may_have_a_unit(t, protocol):
    s, other = t.server("--lease-max", "48h").with_clients(1)
    c = s.client(protocol)
    for text, ms in (("1500", 1500), ("1500ms", 1500), ("30s", 30000), ("1.5m", 90000), ("5m", 300000), ("1h", 3600000),
                     ("48h", 172800000)):
        fence, _, lease, _, _ = c("ACQUIRE", "k" + text, "LEASE", text, "WAIT", text)
        check(lease, ms, "LEASE %s" % text)
    check(c("EXTEND", "k48h", c("READ", "k48h")[1], "48h"), 172800000)
    other.acquire("taken")
    for command in (("ACQUIRE", "taken", "WAIT", "200ms"), ("ACQUIRE", "taken", "WAIT", "0.2s"),
                    ("AWAIT", "taken", "FREE", "0.2s")):
        start = time.monotonic()
        check(c(*command), None if command[0] == "ACQUIRE" else 0)
        check_that(0.2 <= time.monotonic() - start, "%r waits for 200 ms" % (command,))
    check(c("AWAIT", "taken", "HELD", "1h") != 0, True)


@test
def a_wrong_duration_is_rejected_with_its_value_and_its_limits(t):
    c = t.server("--lease-max", "90m").client()
    fence = c.acquire("k", "LEASE", "1m")
    for text in NOT_DURATIONS:
        shown = text.replace("\0", "")
        for name, limits, command in (
                ("LEASE", "1ms to 90m (lease-max)", ("ACQUIRE", "j", "LEASE", text)),
                ("the lease", "1ms to 90m (lease-max)", ("EXTEND", "k", fence, text)),
                ("WAIT", "0 to 142808 years", ("ACQUIRE", "j", "WAIT", text)),
                ("the timeout", "0 to 142808 years", ("AWAIT", "k", "FREE", text))):
            got = c(*command)
            check(got, Error("ERR %s must be a duration from %s, such as 500ms, 30s, 5m or 1h, or a number of "
                             'milliseconds (got "%s")' % (name, limits, shown)))
    for text in ("91m", "2h", "5400001"):
        check(c("ACQUIRE", "j", "LEASE", text),
              Error("TOOBIG LEASE must be a duration from 1ms to 90m (lease-max), such as 500ms, 30s, 5m or 1h, or a number of "
                    'milliseconds (got "%s")' % text))
    check_error(c("ACQUIRE", "j", "LEASE", "0s"), "ERR", 'got "0s"')
    check_error(c("ACQUIRE", "j", "LEASE"), "ERR", 'LEASE needs a value; usage: ACQUIRE key')
    check_error(c("ACQUIRE", "j", "LEASE", "x" * 1000), "ERR", 'got "%s...")' % ("x" * 40))
    check(c("READ", "j"), None, "no command was executed")


@both_protocols
def READ_tells_of_the_newest_grant(t, protocol):
    c = t.server().client(protocol)
    check(c("READ", "k"), None)
    first = c.acquire("k", "PER", 3, "VALUE", "one")
    check(c("READ", "k"), [b"one", first, -1])
    second = c.acquire("k", "PER", 3, "VALUE", "two", "LEASE", 60000)
    value, fence, left = c("READ", "k")
    check([value, fence], [b"two", second])
    check_that(0 < left <= 60000, "what is left of the lease")
    check(c("READ", "k", "MAJORITY")[:2], [b"two", second])
    check(c("RELEASE", "k", second), 1)
    check(c("READ", "k"), [b"one", first, -1])
    check_error(c("READ", "k", "BOGUS"), "ERR")
    c.acquire("plain")
    check_that(c("READ", "plain")[0] in (b"", None), "no value was given")


@test
def CHECK_knows_a_grant_from_any_connection(t):
    s, a, b = t.server().with_clients(2)
    fence = a.acquire("k")
    check([a("CHECK", "k", fence), b("CHECK", "k", fence), b("CHECK", "j", fence)], [1, 1, 0])
    check(a("RELEASE", "k"), 1)
    check([a("CHECK", "k", fence), b("CHECK", "k", fence)], [0, 0])


@test
def fences_rise_over_all_keys(t):
    c = t.server().client()
    last = 0
    for i in range(500):
        fence = c.acquire("k%d" % (i % 7), "PER", 1000)
        check_that(fence > last, "%d is above %d" % (fence, last))
        last = fence


# --- Looking ----------------------------------------------------------------------


HOLDER = {"fence", "client", "name", "address", "connected", "units", "shared", "per", "buckets", "priority",
          "lease_ms", "held_ms", "broken", "asked", "overlapping", "value", "note"}
WAITER = {"client", "name", "address", "connected", "units", "shared", "per", "buckets", "priority", "waited_ms",
          "left_ms", "steals", "note", "reason"}


@both_protocols
def EXPLAIN_tells_who_holds_who_waits_and_why(t, protocol):
    s = t.server()
    c, holder, waiter = s.clients(3, protocol)
    ids = holder.id, waiter.id
    address = "%s:%d" % holder.socket.getsockname()
    fence = holder.acquire("k", "VALUE", "v", "NOTE", "backup")
    leased = c.acquire("k", "PER", 9, "LEASE", 60000, "UNITS", 2)
    s.waits(waiter, "ACQUIRE", "k", "PER", 3, "WAIT", 100000, "PRIORITY", 7, "NOTE", "me too")
    got = c("EXPLAIN", "k")
    check(type(got), dict if protocol == 3 else list, "the reply")
    got = pairs(got)
    check(set(got), {"key", "held", "shared", "holders", "waiters", "holders_count",
                     "waiters_count", "drained", "summary"}, "the names")
    check([got["key"], got["held"], got["holders_count"], got["waiters_count"]],
          [b"k", 3, 2, 1])
    check_that(got["shared"] in (0, False) and got["drained"] in (0, False), "neither is so")
    first, second = [pairs(h) for h in got["holders"]]
    check(set(first), HOLDER, "the names of a holder")
    check([first["fence"], first["client"], first["address"].decode(), first["units"]],
          [fence, ids[0], address, 1])
    check([first["value"], first["note"], first["lease_ms"]], [b"v", b"backup", -1])
    check([second["fence"], second["units"], second["per"]], [leased, 2, 9])
    check_that(0 < second["lease_ms"] <= 60000, "what is left of the lease")
    w = pairs(got["waiters"][0])
    check(set(w), WAITER, "the names of a waiter")
    check([w["client"], w["per"], w["priority"], w["note"]], [ids[1], 3, 7, b"me too"])
    check_that(w["waited_ms"] >= 0 and 0 < w["left_ms"] <= 100000, "times of the waiter")
    check(w["reason"], b"full: 3 of 3 units held, 1 requested")
    check_that(got["summary"] and all(isinstance(x, bytes) and x for x in got["summary"]),
               "there are sentences")


@both_protocols
def EXPLAIN_of_a_key_that_nobody_has(t, protocol):
    got = pairs(t.server().client(protocol)("EXPLAIN", "k"))
    check([got["key"], got["held"], got["holders"], got["waiters"], got["holders_count"],
           got["waiters_count"]], [b"k", 0, [], [], 0, 0])
    check(got["summary"], [b"free: no client holds it or waits for it"])


def address_of(client):
    return b"%s:%d" % (client.socket.getsockname()[0].encode(), client.socket.getsockname()[1])


@both_protocols
def EXPLAIN_begins_with_the_holder_and_the_next_waiter(t, protocol):
    s = t.server()
    c, holder, first, second = s.clients(4, protocol)
    number = first.id
    check(holder("CLIENT", "SETNAME", "backup-7"), "OK")
    fence = holder.acquire("k", "LEASE", 60000)
    sentence = rb"backup-7 \(%s\) has held it for \d+ m?s, fence %d; " % (re.escape(address_of(holder)), fence)
    for client, count, last in ((None, 0, b"no client waits"),
                                (first, 1, rb"next: client %d \(%s\), waiting for \d+ m?s"),
                                (second, 2, rb"next: client %d \(%s\), waiting for \d+ m?s; 1 more waits")):
        if client is not None:
            s.waits(client, "ACQUIRE", "k", "WAIT", 100000, count=count)
            last %= (number, re.escape(address_of(first)))
        got = c("EXPLAIN", "k")
        check(list(got)[0] in ("summary", b"summary"), True, "the first field")
        got = pairs(got)["summary"][0]
        check_that(re.fullmatch(sentence + last, got), "%r" % got)


@test
def EXPLAIN_says_how_many_hold_and_why_each_waits(t):
    s = t.server()
    a, b, c, *waiters = s.clients(6)
    for client in (a, b):
        client.acquire("shared", "SHARED")
        client.acquire("several", "PER", 5, "UNITS", 2)
    c.acquire("mutex", "LEASE", 60000)
    s.waits(waiters[0], "ACQUIRE", "shared", "WAIT", 100000)
    s.waits(waiters[1], "ACQUIRE", "mutex", "SHARED", "WAIT", 100000)
    s.waits(waiters[2], "ACQUIRE", "several", "PER", 5, "UNITS", 3, "WAIT", 100000, "PRIORITY", 7)
    last = s.client()
    s.waits(last, "ACQUIRE", "several", "PER", 5, "WAIT", 100000, count=2)
    got = {key: s.explain(key) for key in ("shared", "several", "mutex")}
    check_that(re.match(rb"2 holders share it; the oldest: client \d+ \(.*\) for \d+ m?s, fence \d+; next: client ",
                        got["shared"]["summary"][0]), got["shared"]["summary"])
    check_that(re.match(rb"2 grants hold 4 units; the oldest: client \d+ \(.*\) for \d+ m?s, fence \d+; next: client ",
                        got["several"]["summary"][0]), got["several"]["summary"])
    reasons = {key: [pairs(w)["reason"] for w in got[key]["waiters"]] for key in got}
    check(reasons, {"shared": [b"shared by 2 holders"], "mutex": [b"held exclusively: 1 unit held"],
                    "several": [b"full: 4 of 5 units held, 3 requested",
                                b"queued behind a waiter with priority 7"]})


@test
def EXPLAIN_explains_a_request_for_all_units_without_their_number(t):
    s = t.server()
    c, holder, *waiters = s.clients(5)
    every = "PER", 2 ** 30 - 1, "UNITS", 2 ** 30 - 1

    def reasons(key):
        return [pairs(w)["reason"] for w in s.explain(key)["waiters"]]
    holder.acquire("a", *every)
    s.waits(waiters[0], "ACQUIRE", "a", "SHARED", "WAIT", 100000)
    s.waits(waiters[1], "ACQUIRE", "a", *every, "WAIT", 100000, "PRIORITY", 1, count=2)
    check(reasons("a"), [b"full: the holder has all units that a lock can have", b"held exclusively"])
    c.acquire("b", "PER", 2)
    s.waits(waiters[2], "ACQUIRE", "b", *every, "WAIT", 100000)
    check(reasons("b"), [b"full: 1 unit held, all requested"])


@both_protocols
def EXPLAIN_and_LOCKS_name_a_holder_that_has_left(t, protocol):
    """A lease outlives its connection, and the grant remembers whose it is."""
    s = t.server()
    c, left, stays, renamed = s.clients(4, protocol)
    left("CLIENT", "SETNAME", "left")
    for key, options in (("inline", ()), ("entry", ("PER", 3)), ("shared", ("SHARED",))):
        left.acquire(key, "LEASE", 60000, *options)
    where = address_of(left)
    renamed("CLIENT", "SETNAME", "before")
    renamed.acquire("one", "LEASE", 60000)
    renamed("CLIENT", "SETNAME", "after")
    renamed.acquire("two")
    stays.acquire("entry", "PER", 3)
    left.close()
    t.until(lambda: pairs(s.explain("inline")["holders"][0])["connected"] == 0, "the connection has closed")
    for key in ("inline", "entry", "shared"):
        h = pairs(s.explain(key)["holders"][0])
        check([h["name"], h["address"], h["connected"]], [b"left", where, 0], key)
    listed = {pairs(m)["key"]: pairs(pairs(m)["holder"]) for m in c("LOCKS", "COUNT", 100)[1]}
    check({key: h["name"] for key, h in listed.items()},
          {b"inline": b"left", b"entry": b"left", b"shared": b"left", b"one": b"before", b"two": b"after"})
    check([listed[b"inline"]["address"], listed[b"inline"]["connected"], listed[b"two"]["connected"]], [where, 0, 1])
    check_that(listed[b"inline"]["held_ms"] >= 0, "how long it has held the lock")
    for key, h in listed.items():  # LOCKS and EXPLAIN agree.
        held = pairs(s.explain(key.decode())["holders"][0])
        check([h[x] for x in ("per", "buckets")], [held[x] for x in ("per", "buckets")], key)
        check(h["lease_ms"] < 0, held["lease_ms"] < 0, "%s has no lease" % key)


@both_protocols
def LOCKS_WAITED_lists_the_longest_wait_first(t, protocol):
    s = t.server()
    c, holder, *waiters = s.clients(8, protocol)
    for key in ("a", "b", "c", "free"):
        holder.acquire(key, "PER", 2)
    check(c("LOCKS", "WAITED"), [b"0", []])
    for i, (key, options) in enumerate((("b", ()), ("a", ()), ("c", ()), ("b", ("PRIORITY", 5)), ("a", ()))):
        s.waits(waiters[i], "ACQUIRE", key, "WAIT", 100000, *options, count=1 + (i > 2))
        time.sleep(0.005)  # no two waits begin in one millisecond

    def keys(*options):
        cursor, maps = c("LOCKS", "WAITED", *options)
        return cursor, [pairs(m)["key"].decode() for m in maps]

    check(keys(), (b"0", ["b", "a", "c"]))
    check(keys("MATCH", "[ac]"), (b"0", ["a", "c"]))
    found, cursor = [], b"0"
    while True:
        cursor, page = keys("COUNT", 1, "CURSOR", cursor)
        found += page
        if cursor == b"0":
            break
    check(found, ["b", "a", "c"], "a page at a time")
    first = pairs(c("LOCKS", "WAITED", "COUNT", 1)[1][0])
    check([first["waiters"], pairs(first["holder"])["client"]], [2, holder.id])
    check_that(first["waited_ms"] >= 15, "the oldest wait: %r" % first)
    waiters[0].close()  # the oldest waiter of b; the next one came after those of a and c
    s.until_waiting("b", 1)
    check(keys(), (b"0", ["a", "c", "b"]))
    for w in waiters:
        w.close()
    t.until(lambda: keys() == (b"0", []), "no lock is waited for")
    check_error(c("LOCKS", "TX", "WAITED"), "ERR", "EXPLAIN TX")
    check(c("LOCKS", "COUNT", 1, "WAITED"), [b"0", []], "WAITED may come last")


@test
def EXPLAIN_shows_the_first_hundred_and_counts_all(t):
    s, c = t.server().with_clients(1)
    for _ in range(150):
        c.acquire("k", "PER", 1000)
    waiting = s.clients(120)
    for w in waiting:
        w.send("ACQUIRE", "k", "WAIT", 100000)
    s.until_waiting("k", 120)
    got = s.explain("k")
    check([len(got["holders"]), len(got["waiters"]), got["holders_count"], got["waiters_count"]],
          [100, 100, 150, 120])


@both_protocols
def LOCKS_lists_all_keys_by_cursor(t, protocol):
    c = t.server().client(protocol)
    check(c("LOCKS"), [b"0", []])
    for i in range(100):
        c.acquire("key:%d" % i)
    seen, cursor, calls = [], b"0", 0
    while True:
        cursor, maps = c("LOCKS", "CURSOR", cursor, "COUNT", 7)
        check_that(len(maps) <= 100, "a page is a page")
        seen += [pairs(m)["key"].decode() for m in maps]
        calls += 1
        check_that(calls < 1000, "the cursor comes to an end")
        if cursor == b"0":
            break
    check(sorted(set(seen)), sorted("key:%d" % i for i in range(100)))
    m = pairs(c("LOCKS", "COUNT", 1)[1][0])
    check(set(m), {"key", "held", "holders", "waiters", "waited_ms", "shared", "drained", "holder"}, "the names")
    check([m["held"], m["holders"], m["waiters"], m["waited_ms"]], [1, 1, 0, -1])


@test
def LOCKS_CLIENT_lists_what_one_client_uses(t):
    s, a, b = t.server().with_clients(2)

    def keys(*words):
        cursor, found = b"0", []
        while True:
            cursor, page = b("LOCKS", *words, "CURSOR", cursor)
            found += [dict(zip(x[::2], x[1::2]))[b"key"].decode() for x in page]
            if cursor == b"0":
                return sorted(found)

    a.acquire("inline", "LEASE", "60s")
    a.acquire("plain")
    b.acquire("shared", "SHARED")
    a.acquire("shared", "SHARED")
    for i in range(40):
        b.acquire("other%d" % i)
    s.waits(a, "ACQUIRE", "other7", "WAIT", 10 ** 8, by=b)
    id_ = [x for x in b("CLIENT", "LIST").decode().splitlines() if " flags=b " in x][0].split()[0][3:]
    check(keys("CLIENT", id_), ["inline", "other7", "plain", "shared"])
    check(keys("CLIENT", id_, "MATCH", "*n*", "COUNT", 3), ["inline", "plain"])
    check(keys("WAITED", "CLIENT", id_), ["other7"])
    check(keys("CLIENT", 10 ** 9), [])
    a.close()
    t.until(lambda: keys("CLIENT", id_) == ["inline"], "a lease outlives its client")
    check_error(b("LOCKS", "CLIENT"), "ERR", "CLIENT")
    check_error(b("LOCKS", "CLIENT", 0), "ERR", "CLIENT must be")
    check_error(b("LOCKS", "TX", "CLIENT", 1), "ERR", "cannot be combined")


@test
def LOCKS_takes_MATCH_COUNT_and_CURSOR(t):
    c = t.server().client()
    for i in range(20):
        c.acquire("a:%d" % i)
        c.acquire("b:%d" % i)

    def all_of(*options):
        seen, cursor = set(), b"0"
        while True:
            cursor, maps = c("LOCKS", *options, "CURSOR", cursor)
            seen |= {pairs(m)["key"] for m in maps}
            if cursor == b"0":
                return seen

    check(len(all_of("MATCH", "a:*")), 20)
    check(len(all_of("MATCH", "?:1?", "COUNT", 1000)), 20)
    check(all_of("match", "b:[37]"), {b"b:3", b"b:7"})
    check(all_of("MATCH", "nothing*"), set())
    check(len(all_of()), 40)
    for words in (("COUNT", "0"), ("COUNT", "-1"), ("COUNT", "x"), ("COUNT",), ("MATCH",),
                  ("CURSOR", "x"), ("CURSOR", "-1"), ("BOGUS",)):
        check_error(c("LOCKS", *words), "ERR")
    got = c("LOCKS", "COUNT", "1000000")
    check_that(isinstance(got, Error) or len(got[1]) <= 1000, "at most 1000 at once")
    got = c("LOCKS", "CURSOR", str((1 << 64) - 1))
    check_that(isinstance(got, (Error, list)), "a cursor of nobody does no harm")


@both_protocols
def AWAIT_answers_when_it_is_so(t, protocol):
    s = t.server()
    c, holder = s.clients(2, protocol)
    check(c("AWAIT", "k", "FREE", 0), 1)
    check(c("AWAIT", "k", "HELD", 0), 0)
    check(c("AWAIT", "k", "held", 30), 0, "not in time")
    c.send("AWAIT", "k", "HELD", 60000)
    time.sleep(0.05)
    holder.acquire("k")
    check(c.reply(), 1)
    check(c("AWAIT", "k", "HELD", 0), 1)
    check(c("AWAIT", "k", "FREE", 0), 0)
    c.send("AWAIT", "k", "FREE", 60000)
    time.sleep(0.05)
    check(holder("RELEASE", "k"), 1)
    check(c.reply(), 1)
    for words in (("k",), ("k", "FREE"), ("k", "MAYBE", 1), ("k", "FREE", "x"),
                  ("k", "FREE", "-1"), ("k", "FREE", 1, 2)):
        check_error(c("AWAIT", *words), "ERR")


@both_protocols
def BREAK_answers_2_1_or_0(t, protocol):
    s = t.server()
    c, holder = s.clients(2, protocol)
    check(c("BREAK", "k", 5), 0, "no such grant")
    fence = holder.acquire("k")
    check(c("BREAK", "k", fence + 1), 0, "another fence")
    check(c("BREAK", "k", fence), 2, "without a lease")
    check(c("CHECK", "k", fence), 0)
    check(c("ACQUIRE", "k")[4], 1, "A12: the next grant is marked as overlapping")
    check(c("RELEASE", "k"), 1)
    check(c("ACQUIRE", "k", "LEASE", 60000)[4], 0, "the one after it is not")
    fence = c("READ", "k")[1]
    check(c("BREAK", "k", fence), 1, "with a lease")
    check(c("CHECK", "k", fence), 1, "it runs to its end")
    check_error(c("EXTEND", "k", fence, 60000), "LOST")
    check(pairs(s.explain("k")["holders"][0])["broken"] in (1, True), True, "broken")
    check(c("BREAK", "k", fence, "now"), 2, "at once")
    check(c("ACQUIRE", "k")[4], 1)
    check_error(c("BREAK", "k", fence, "LATER"), "ERR")


@test
def a_broken_lease_still_expires_at_its_time(t):
    s, c, waiter = t.server().with_clients(2)
    for lease in (400, 2000, 10000):  # the longer ones, if the machine stalls
        start = time.monotonic()
        fence = c.acquire("k", "LEASE", lease)
        if c("BREAK", "k", fence) == 1:
            break
    got = waiter("ACQUIRE", "k", "WAIT", 60000)
    check_that(time.monotonic() - start >= lease / 1000, "not before the lease has expired")
    check(got[4], 0, "nothing overlaps")


@both_protocols
def DRAIN_stops_grants_until_it_is_off(t, protocol):
    s = t.server()
    c, holder, waiter = s.clients(3, protocol)
    check(c("DRAIN"), [])
    fence = holder.acquire("db:1")
    s.waits(waiter, "ACQUIRE", "db:1", "WAIT", 60000)
    check(c("DRAIN", "db:*", "ON"), 1)
    check(c("DRAIN", "db:*", "on"), 0, "it was so already")
    check(c("DRAIN"), [b"db:*"])
    check_error(waiter.reply(), "DRAINED")
    check_error(c("ACQUIRE", "db:2"), "DRAINED")
    check_error(c("ACQUIRE", "db:2", "WAIT", 60000), "DRAINED")
    c.acquire("other")
    check(c("CHECK", "db:1", fence), 1, "who holds, holds")
    check(pairs(c("EXPLAIN", "db:2"))["drained"] in (1, True), True, "drained")
    check(holder("RELEASE", "db:1"), 1)
    check(c("DRAIN", "db:*", "OFF"), 1)
    check(c("DRAIN", "db:*", "OFF"), 0)
    c.acquire("db:2")
    for words in (("db:*",), ("db:*", "MAYBE"), ("a", "ON", "b")):
        check_error(c("DRAIN", *words), "ERR")


@test
def a_leased_grant_of_a_drained_key_can_be_extended_and_released(t):
    c = t.server().client()
    fence = c.acquire("k", "LEASE", 60000)
    check(c("DRAIN", "*", "ON"), 1)
    check(c("EXTEND", "k", fence, 120000), 120000)
    check(c("RELEASE", "k", fence), 1)


# --- Subscriptions -----------------------------------------------------------------


@both_protocols
def subscriptions_are_counted_as_in_Redis(t, protocol):
    s = t.server()
    c, ask = s.client(protocol), s.client()

    def got():
        return c.push() if protocol == 3 else c.reply()

    c.send("SUBSCRIBE", "a", "b", "a")
    check([got() for _ in range(3)], [[b"subscribe", b"a", 1], [b"subscribe", b"b", 2],
                                      [b"subscribe", b"a", 2]])
    c.send("PSUBSCRIBE", "lock:*")
    check(got(), [b"psubscribe", b"lock:*", 3])
    check(sorted(ask("PUBSUB", "CHANNELS")), [b"a", b"b"])
    check(ask("PUBSUB", "CHANNELS", "b*"), [b"b"])
    numbers = ask("PUBSUB", "NUMSUB", "a", "x")
    check(numbers, [b"a", 1, b"x", 0])
    check(ask("PUBSUB", "NUMPAT"), 1)
    c.send("UNSUBSCRIBE", "a")
    check(got(), [b"unsubscribe", b"a", 2])
    c.send("UNSUBSCRIBE", "never")
    check(got(), [b"unsubscribe", b"never", 2])
    c.send("UNSUBSCRIBE")
    check(got(), [b"unsubscribe", b"b", 1])
    c.send("PUNSUBSCRIBE")
    check(got(), [b"punsubscribe", b"lock:*", 0])
    c.send("UNSUBSCRIBE")
    check(got(), [b"unsubscribe", None, 0])
    c.send("PUNSUBSCRIBE")
    check(got(), [b"punsubscribe", None, 0])
    check(ask("PUBSUB", "NUMPAT"), 0)
    check(c("PING"), "PONG")
    for words in (("SUBSCRIBE",), ("PSUBSCRIBE",), ("PUBSUB",), ("PUBSUB", "BOGUS")):
        check_error(ask(*words), "ERR")


@test
def in_RESP2_a_subscriber_may_only_subscribe_ping_and_leave(t):
    s = t.server()
    c = s.client().subscribe("lock:k")
    for words in (("ACQUIRE", "k"), ("RELEASE", "k"), ("INFO",), ("CLIENT", "ID")):
        check_error(c(*words), "ERR")
    check(c("PING"), [b"pong", b""])
    check(c("PING", "x"), [b"pong", b"x"])
    check(c("UNSUBSCRIBE", "lock:k"), [b"unsubscribe", b"lock:k", 0])
    check(c("PING"), "PONG")
    c.acquire("k")


@test
def in_RESP3_a_subscriber_may_do_everything(t):
    s = t.server()
    c = s.client(3).subscribe("lock:k")
    fence = c.acquire("k")
    check(c("PING"), "PONG")
    check(c.pushes, [[b"message", b"lock:k",
                      b"granted %d held=1 lease_ms=-1 waited_ms=0" % fence]])


@test
def a_listener_may_change_its_protocol(t):
    s = t.server()
    c = s.client().subscribe("lock:k")
    check(c("HELLO", 3)[b"proto"], 3)
    c.protocol = 3
    fence = c.acquire("k")
    check(c("PING"), "PONG")
    check([p[2] for p in c.pushes], [b"granted %d held=1 lease_ms=-1 waited_ms=0" % fence])
    check(pairs(c("HELLO", 2))["proto"], 2)
    check(c("PING"), [b"pong", b""])
    check_error(c("RELEASE", "k"), "ERR")


@both_protocols
def events_of_one_key_in_the_order_in_which_they_happen(t, protocol):
    s = t.server()
    sub, by_pattern, c, w = s.clients(4, protocol)
    sub.subscribe("lock:k")
    by_pattern.subscribe("lock:?", command="PSUBSCRIBE")
    a = c.acquire("k", "LEASE", 60000)
    check(c("EXTEND", "k", a, 90000), 90000)
    s.waits(w, "ACQUIRE", "k", "WAIT", 60000, "PER", 1)
    check(c("RELEASE", "k", a), 1)
    b, _, _, waited, _ = w.reply()
    c.acquire("unrelated")
    wanted = ["granted %d held=1 lease_ms=60000 waited_ms=0" % a,
              "extended %d lease_ms=90000" % a, "released %d" % a,
              "granted %d held=1 lease_ms=-1 waited_ms=%d" % (b, waited)]
    for who in (sub, by_pattern):
        check([who.message() for _ in wanted], [("lock:k", text) for text in wanted])


@test
def an_overlapping_grant_is_marked_in_its_event(t):
    s, sub, c = t.server().with_clients(2)
    sub.subscribe("lock:k")
    a = c.acquire("k")
    check(c("BREAK", "k", a), 2)
    b = c.acquire("k")
    check([sub.message()[1] for _ in range(3)],
          ["granted %d held=1 lease_ms=-1 waited_ms=0" % a, "broken %d" % a,
           "granted %d held=1 lease_ms=-1 waited_ms=0 overlapping=1" % b])


@test
def there_is_no_PUBLISH(t):
    c = t.server().client()
    check_error(c("PUBLISH", "lock:k", "granted 1"), "ERR", "unknown command")


# --- What Redis users expect ----------------------------------------------------------


@test
def HELLO_tells_of_the_server_and_changes_the_protocol(t):
    s, c = t.server().with_clients(1)
    flat = c("HELLO")
    check_that(isinstance(flat, list), "HELLO is a flat array in RESP2")
    check(pairs(flat)["proto"], 2)
    three = c("HELLO", "3")
    check_that(isinstance(three, dict), "HELLO 3 answers with a map")
    for name in (b"server", b"version", b"proto", b"id", b"mode", b"role", b"modules"):
        check_that(name in three, "%r is among the names" % name)
    check(three[b"proto"], 3)
    check(three[b"id"], c("CLIENT", "ID"))
    check_that(isinstance(c("HELLO"), dict), "HELLO alone changes nothing")
    check_that(isinstance(c("HELLO", "2"), list), "back in RESP2")
    check(c("HELLO", "3", "SETNAME", "me")[b"proto"], 3)
    check(c("CLIENT", "GETNAME"), b"me")
    for version in ("1", "4", "x", "-3", "3.0", ""):
        check_that(c("HELLO", version).word in ("NOPROTO", "ERR"), "HELLO %r is refused" % version)
    check_error(c("HELLO", "4"), "NOPROTO")
    for words in (("3", "SETNAME"), ("3", "AUTH", "x"), ("3", "BOGUS"), ("3", "SETNAME", "a b")):
        check_error(c("HELLO", *words), "ERR")
    check_that(isinstance(c("HELLO"), dict), "still in RESP3")


@test
def AUTH_without_a_password_set_is_refused(t):
    c = t.server().client()
    got = c("AUTH", "x")
    check_that(isinstance(got, Error), "AUTH is refused, not answered %r" % (got,))
    check_error(c("AUTH"), "ERR")
    check_error(c("AUTH", "a", "b", "c"), "ERR")
    check(c("PING"), "PONG")


@both_protocols
def PING_ECHO_and_SELECT(t, protocol):
    c = t.server().client(protocol)
    check(c("PING"), "PONG")
    check(c("ping", ALL_BYTES), ALL_BYTES)
    check(c("ECHO", ALL_BYTES), ALL_BYTES)
    check(c("ECHO", ""), b"")
    check(c("SELECT", "0"), "OK")
    for words in (("SELECT", "1"), ("SELECT", "x"), ("SELECT",), ("SELECT", "-1"), ("ECHO",),
                  ("ECHO", "a", "b"), ("PING", "a", "b")):
        check_error(c(*words), "ERR")


@test
def QUIT_answers_and_hangs_up(t):
    s, c = t.server().with_clients(1)
    c.send("QUIT")
    check(c.until_closed(), b"+OK\r\n")
    c = s.client()
    c.send("PING").send("QUIT").send("PING")
    check(c.until_closed(), b"+PONG\r\n+OK\r\n", "what stands behind QUIT is not done")


@test
def RESET_goes_back_to_the_beginning(t):
    s = t.server("--linger", "1h")
    c, other = s.client(3), s.client()
    c.subscribe("lock:x")
    check(c("CLIENT", "SETNAME", "me"), "OK")
    c.acquire("k")
    leased = c.acquire("l", "LEASE", 60000)
    check(c("RESET"), "RESET")
    check_that(isinstance(c("HELLO"), list), "RESP2 again")
    check(other("PUBSUB", "NUMSUB", "lock:x"), [b"lock:x", 0])
    other.acquire("k")
    check(other("CHECK", "l", leased), 1, "what is leased stays")
    check_that(c("CLIENT", "GETNAME") in (b"", None), "no name")
    c.acquire("j")
    check(c("PING"), "PONG")


@both_protocols
def CLIENT_and_what_it_can(t, protocol):
    s = t.server()
    c, other = s.clients(2, protocol)
    me, you = c.id, other.id
    check_that(isinstance(me, int) and me > 0 and you > me, "ids rise")
    check_that(c("CLIENT", "GETNAME") in (b"", None), "no name yet")
    check(c("CLIENT", "SETNAME", "worker-1"), "OK")
    check(c("CLIENT", "GETNAME"), b"worker-1")
    for name in ("a b", "a\nb", "\0"):
        check_error(c("CLIENT", "SETNAME", name), "ERR")
    check(c("CLIENT", "GETNAME"), b"worker-1")
    check(c("CLIENT", "SETNAME", ""), "OK")
    check(c("CLIENT", "SETNAME", "w"), "OK")
    check(c("CLIENT", "SETINFO", "LIB-NAME", "lib"), "OK")
    check(c("client", "setinfo", "lib-ver", "1.2"), "OK")
    check_error(c("CLIENT", "SETINFO", "BOGUS", "x"), "ERR")
    check(c("CLIENT", "NO-EVICT", "on"), "OK")
    check(c("CLIENT", "NO-TOUCH", "off"), "OK")
    line = c("CLIENT", "INFO").decode()
    fields = dict(f.partition("=")[::2] for f in line.split())
    check(int(fields["id"]), me)
    check(fields["name"], "w")
    check(fields["addr"], "%s:%d" % c.socket.getsockname())
    lines = c("CLIENT", "LIST").decode().strip().split("\n")
    check(len(lines), 2, "connections")
    check({int(x.split("id=")[1].split()[0]) for x in lines}, {me, you})
    for words in (("CLIENT",), ("CLIENT", "BOGUS"), ("CLIENT", "SETNAME"), ("CLIENT", "ID", "x"),
                  ("CLIENT", "KILL"), ("CLIENT", "KILL", "ID", "x")):
        check_error(c(*words), "ERR")


@both_protocols
def CLIENT_KILL_in_its_three_forms(t, protocol):
    s = t.server()
    c = s.client(protocol)
    a, b, d = s.clients(3, protocol)
    check(c("CLIENT", "KILL", "ID", a.id), 1)
    a.until_closed()
    check(c("CLIENT", "KILL", "ADDR", "%s:%d" % b.socket.getsockname()), 1)
    b.until_closed()
    check(c("CLIENT", "KILL", "%s:%d" % d.socket.getsockname()), "OK")
    d.until_closed()
    check(c("CLIENT", "KILL", "ID", 1 << 40), 0)
    check(c("CLIENT", "KILL", "ADDR", "127.0.0.1:1"), 0)
    check_error(c("CLIENT", "KILL", "127.0.0.1:1"), "ERR")
    check(c("PING"), "PONG")


@test
def a_connection_may_kill_itself(t):
    s, c = t.server().with_clients(1)
    c.send("CLIENT", "KILL", "ID", c.id)
    c.until_closed()
    s.still_well()


@both_protocols
def COMMAND_lists_what_is_there_and_nothing_else(t, protocol):
    s = t.server()
    c = s.client(protocol)
    names = c("COMMAND", "LIST")
    check(c("COMMAND", "COUNT"), len(names))
    rows = c("COMMAND")
    check({r[0] for r in rows}, set(names), "the names")
    for name in ("acquire release extend check read explain locks await break drain subscribe "
                 "psubscribe unsubscribe punsubscribe pubsub hello auth ping echo quit reset select "
                 "client command info config shutdown").split():
        check_that(name.encode() in names, "%s is listed" % name)
    check_that(b"publish" not in names and b"steal" not in names, "what is not there is not listed")
    for row in rows:
        check_that(isinstance(row[1], int) and row[1] != 0, "%r has an arity" % row[0])
        check_that(len(row) >= 6, "%r has its flags and keys" % row[0])
    for name in names:
        if name.lower() == b"shutdown":
            continue
        d = s.client(protocol)
        got = d(name) if name.lower() not in (b"unsubscribe", b"punsubscribe") else None
        check_that(not (isinstance(got, Error) and "unknown command" in got.lower()),
                   "%r is known: %r" % (name, got))
        d.close()
    info = c("COMMAND", "INFO", "acquire", "nosuch", "PING")
    check([r and r[0] for r in info], [b"acquire", None, b"ping"])
    check_error(c("COMMAND", "BOGUS"), "ERR")


@both_protocols
def the_arity_of_COMMAND_is_true(t, protocol):
    s = t.server()
    c = s.client(protocol)
    for row in c("COMMAND"):
        name, arity = row[0], row[1]
        if name in (b"quit", b"shutdown", b"reset"):
            continue
        least = abs(arity)
        for count in {least - 1, least + 1 if arity > 0 else least - 1} - {0}:
            d = s.client(protocol)
            got = d(name, *["1"] * (count - 1))
            check_that(isinstance(got, Error) and "wrong number of arguments" in got,
                       "%r with %d words is a wrong number: %r" % (name, count, got))
            d.close()


@both_protocols
def COMMAND_DOCS_has_a_summary_for_each(t, protocol):
    c = t.server().client(protocol)
    docs = c("COMMAND", "DOCS")
    check(type(docs), dict if protocol == 3 else list)
    docs = pairs(docs)
    check(set(docs), {n.decode() for n in c("COMMAND", "LIST")})
    for name, doc in docs.items():
        doc = pairs(doc)
        check_that(doc.get("summary"), "%s has a summary" % name)
    check(set(pairs(c("COMMAND", "DOCS", "acquire", "nosuch"))), {"acquire"})


INFO = {
    "server": "sluice_version redis_version tcp_port uptime_in_seconds process_id",
    "clients": "connected_clients blocked_clients notify_waits maxclients pubsub_clients",
    "memory": "used_memory used_memory_rss",
    "stats": "total_connections_received total_commands_processed grants grants_after_wait refusals "
             "waits waits_timed_out releases expiries disconnect_releases breaks extends "
             "rejected_connections output_limit_closes",
    "locks": "keys entries drains fence_last",
    "latency": "wait_ms hold_ms wait_ms_histogram hold_ms_histogram loop_turns loop_cpu_us_max "
               "loop_cpu_us_total loop_cpu_us_max_10s",
}


@both_protocols
def INFO_has_its_sections_and_lines(t, protocol):
    s = t.server()
    c = s.client(protocol)
    everything = s.info(c)
    for section, names in INFO.items():
        text = c("INFO", section.upper()).decode()
        check(text.lower().splitlines()[0], "# " + section, "the headline")
        check(text.count("# "), 1, "headlines in INFO %s" % section)
        for name in names.split():
            check_that("\r\n%s:" % name in text, "%s is in INFO %s" % (name, section))
            check_that(name in everything, "%s is in INFO" % name)
    check(int(everything["process_id"]), s.pid)
    check(int(everything["tcp_port"]), s.port)
    two = c("INFO", "clients", "locks").decode()
    check_that("# " in two and "connected_clients:" in two and "drains:" in two
               and "used_memory:" not in two, "INFO takes several sections")
    check_that("used_memory:" in c("INFO", "all").decode()
               and "used_memory:" in c("INFO", "everything").decode(), "INFO all")
    check_that(b"used_memory:" not in c("INFO", "nosuch"), "an unknown section is empty")


@test
def INFO_counts_what_happens(t):
    s, c, d, w = t.server("--linger", "0").with_clients(3)
    sub = s.client().subscribe("x")
    a = c.acquire("a")
    check(d("ACQUIRE", "a"), None)
    check(d("ACQUIRE", "a", "WAIT", 10), None)
    s.waits(w, "ACQUIRE", "a", "WAIT", 60000)
    check(s.info()["blocked_clients"], "1")
    check(c("RELEASE", "a"), 1)
    w.reply()
    b = c.acquire("b", "LEASE", 60000)
    c("EXTEND", "b", b, 70000)
    c("BREAK", "b", b, "NOW")
    e = c.acquire("e", "LEASE", 1000)
    t.until(lambda: d("CHECK", "e", e) == 0, "it expires")
    check(c("DRAIN", "x*", "ON"), 1)
    w.close()
    t.until(lambda: s.info(c)["disconnect_releases"] == "1", "the end of w is counted")
    got = s.info(c)
    wanted = dict(grants=4, grants_after_wait=1, waits=2, waits_timed_out=1, releases=1,
                  expiries=1, breaks=1, extends=1, drains=1, pubsub_clients=1, blocked_clients=0,
                  connected_clients=3)
    # b's key may stay to mark its next grant as overlapping.
    check({n: int(got[n]) for n in wanted}, wanted)
    check_that(int(got["refusals"]) >= 1, "refusals are counted")
    check(int(got["fence_last"]), e, "the last fence")
    check_that(a < b < e, "fences rise")
    for name in ("wait_ms", "hold_ms"):
        fields = dict(f.split("=") for f in got[name].split(","))
        check(set(fields), {"count", "sum", "p50", "p99", "max"}, "the fields of " + name)
        buckets = dict(f.split("=") for f in got[name + "_histogram"].split(","))
        check_that(list(buckets)[:4] == ["le_0", "le_1", "le_2", "le_4"]
                   and list(buckets)[-1] == "inf", "the buckets of %s: %r" % (name, buckets))
    sub.close()


@both_protocols
def CONFIG_GET_takes_patterns(t, protocol):
    s = t.server("--linger", "1234", "--keys-max", "777", "--args-max", "99")
    c = s.client(protocol)
    got = c("CONFIG", "GET", "linger")
    check(type(got), dict if protocol == 3 else list)
    check(pairs(got), {"linger": b"1234"})
    check(pairs(c("CONFIG", "GET", "KEYS-*", "args-max")), {"keys-max": b"777", "args-max": b"99"})
    everything = pairs(c("CONFIG", "GET", "*"))
    for name in ("port bind socket data linger idle-time auth-time connections-max key-bytes-max "
                 "value-bytes-max args-max argument-bytes-max command-bytes-max keys-max waiters-max "
                 "output-bytes-max subscriptions-max patterns-max drains-max lease-max log-format "
                 "log-level").split():
        check_that(name in everything, "%s is told" % name)
    check(pairs(c("CONFIG", "GET", "nosuch")), {})
    for words in (("CONFIG",), ("CONFIG", "GET"), ("CONFIG", "BOGUS", "x")):
        check_error(c(*words), "ERR")


@test
def CONFIG_GET_does_not_tell_the_password(t):
    s, c = t.server("--password", "opensesame").with_clients(1)
    check(c("AUTH", "opensesame"), "OK")
    c.send("CONFIG", "GET", "*")
    c.send("PING")
    text = b""
    while not text.endswith(b"+PONG\r\n"):
        text += c.exactly(1)
    check_that(b"opensesame" not in text, "the password is not told")
    check_that("opensesame" not in s.log, "nor logged")


@test
def unknown_commands_are_named_and_do_no_harm(t):
    s, c = t.server().with_clients(1)
    for words in (("NOSUCH",), ("GET", "k"), ("acquirex", "k"), ("ACQ", "k"), ("",), (b"\0",),
                  ("ACQUIRE\0", "k"), ("X" * 1000,), (b"\xff\xfe", "a")):
        check_error(c(*words), "ERR", "unknown command")
    check_that("NOSUCH" in c("NOSUCH"), "it is named")
    got = c("N\r\n+OK", "a\r\nb")
    check_error(got, "ERR")
    check(c("PING"), "PONG", "and the stream is in step")


@test
def a_wrong_number_of_arguments_is_reported(t):
    c = t.server().client()
    for words in (("ACQUIRE",), ("RELEASE",), ("RELEASE", "k", "1", "2"), ("EXTEND", "k", "1"),
                  ("CHECK", "k"), ("CHECK", "k", "1", "2"), ("READ",), ("EXPLAIN",),
                  ("EXPLAIN", "TX", "a", "b", "c"), ("AWAIT", "k"), ("BREAK", "k"), ("ECHO",), ("SELECT",),
                  ("AUTH",)):
        got = c(*words)
        check_error(got, "ERR", "wrong number of arguments for %s; usage: %s" % (words[0], words[0]))


def says(c, command, text):
    """The server rejects the command with exactly this error."""
    check(c(*command.split()), Error("ERR " + text), command)


@test
def a_misspelled_command_gets_a_suggestion(t):
    c = t.server().client()
    for name, meant in (("aquire", "ACQUIRE"), ("RELAESE", "RELEASE"), ("exted", "EXTEND"),
                        ("TX.BEGN", "TX.BEGIN"), ("lock", "ACQUIRE"), ("unlock", "RELEASE"),
                        ("COMMIT", "TX.COMMIT"), ("keys", "LOCKS")):
        says(c, name + " k", 'unknown command "%s"; did you mean %s?' % (name, meant))
    says(c, "FROBNICATE k", 'unknown command "FROBNICATE"; COMMAND LIST lists all commands')


@test
def data_commands_of_Redis_name_ACQUIRE(t):
    c = t.server().client()
    for command in ("SET k v", "get k", "EVAL return 0", "EVALSHA x 0", "DEL k", "SETNX k v", "INCR k",
                    "EXPIRE k 5", "HSET k f v"):
        says(c, command, 'unknown command "%s": Sluice is a lock service, not a data store; use ACQUIRE '
             "key LEASE time to take a lock, and RELEASE key fence to release it" % command.split()[0])


@test
def a_misspelled_option_gets_a_suggestion(t):
    c = t.server().client()
    for command, kind, word, meant in (
            ("ACQUIRE k LAESE 5", "option", "LAESE", "LEASE"),
            ("ACQUIRE k prio 5", "option", "prio", "PRIORITY"),
            ("ACQUIRE k STEAL ATUO", "option", "ATUO", "AUTO"),
            ("EXTEND k 5 1000 VALEU v", "option", "VALEU", "VALUE"),
            ("READ k MAJORTY", "option", "MAJORTY", "MAJORITY"),
            ("AWAIT k FRE 0", "state", "FRE", "FREE"),
            ("BREAK k 5 NWO", "option", "NWO", "NOW"),
            ("LOCKS MTACH *", "option", "MTACH", "MATCH"),
            ("NODES REMVOE 3", "subcommand", "REMVOE", "REMOVE"),
            ("TX.BEGIN REQEUST a", "option", "REQEUST", "REQUEST"),
            ("TX.LOCK WRTIE a b", "mode", "WRTIE", "WRITE"),
            ("CLIENT LSIT", "subcommand", "LSIT", "LIST"),
            ("COMMAND DCOS", "subcommand", "DCOS", "DOCS"),
            ("PUBSUB NUMSBU", "subcommand", "NUMSBU", "NUMSUB"),
            ("SHUTDOWN NOSVAE", "option", "NOSVAE", "NOSAVE")):
        says(c, command, 'unknown %s "%s" for %s; did you mean %s?' % (kind, word, command.split()[0], meant))
    check_error(c("ACQUIRE", "k", "FROBNICATE"), "ERR",
                'unknown option "FROBNICATE" for ACQUIRE; usage: ACQUIRE key [SHARED')
    check_error(c("LOCKS", "WAITED", "TX"), "ERR",
                'option "TX" cannot follow the options before it; usage: LOCKS [TX')
    check(c("PING"), "PONG")


@test
def an_invalid_value_is_shown_with_its_limits(t):
    c = t.server().client()
    says(c, "ACQUIRE k PRIORITY high",
         'PRIORITY must be an integer from -2147483648 to 2147483647 (got "high")')
    for value in ("2", "-1", "1.01", "0,5", "+1"):
        says(c, "ACQUIRE k STEAL " + value, 'STEAL must be AUTO or a number from 0 to 1 (got "%s")' % value)
    says(c, "EXTEND k none 5", 'the fence must be an integer from 1 to 9007199254740991 (got "none")')
    says(c, "LOCKS COUNT 0", 'COUNT must be an integer from 1 to 1000 (got "0")')
    says(c, "LOCKS CURSOR x", 'CURSOR must be 0 or the cursor of the last reply (got "x")')
    says(c, "ACQUIRE k LEASE 5 lease 6", 'duplicate option "lease" for ACQUIRE')
    check_error(c("ACQUIRE", "k", "WAIT"), "ERR", "WAIT needs a value; usage: ACQUIRE key")
    check_error(c("ACQUIRE", "k", "NOTE"), "ERR", "NOTE needs a value; usage: ACQUIRE key")
    check(c("ACQUIRE", "k", "PER", 2, "UNITS", 3),
          Error("TOOBIG UNITS must not exceed the capacity, PER times BUCKETS (got 3 units, capacity 2)"))
    says(c, "SELECT 1", 'SELECT accepts only database 0 (got "1")')


@test
def a_wrong_HELLO_does_not_show_the_password(t):
    c = t.server("--password", "opensesame").client()
    got = c("HELLO", "3", "AUHT", "default", "opensesame")
    check_error(got, "ERR", "usage: HELLO")
    check_that("opensesame" not in got, "the password is not in the error")


@both_protocols
def commands_and_options_are_taken_in_any_case(t, protocol):
    c = t.server().client(protocol)
    fence = c("aCqUiRe", "k", "lEaSe", 60000)[0]
    check(c("check", "k", fence), 1)
    check(c("ReLeAsE", "k", fence), 1)
    c.acquire("K")
    check(c("READ", "k"), None, "keys are told apart by case")
    check(c("await", "k", "free", 0), 1)
    check_that(b"keys:" in c("info", "LOCKS"), "INFO LOCKS")


# --- The stream -------------------------------------------------------------------------


@test
def commands_may_be_typed_on_a_line(t):
    s, c = t.server().with_clients(1)
    c.send_raw(b"PING\r\n")
    check(c.reply(), "PONG")
    c.send_raw(b"ping hello\n")
    check(c.reply(), b"hello")
    c.send_raw(b"\r\n\r\n   \r\nPING\r\n")
    check(c.reply(), "PONG")
    c.send_raw(b'ACQUIRE "a key\\x00\\n" VALUE \'it\\\'s\' LEASE 60000\r\n')
    fence = c.reply()[0]
    check(c("READ", b"a key\0\n")[:2], [b"it's", fence])
    c.send_raw(b"RELEASE \"a key\\x00\\n\" %d\r\n" % fence)
    check(c.reply(), 1)
    c.send_raw(b'PING "open\r\n')
    check_error(c.reply(), "ERR", "protocol error")
    c.until_closed()


@test
def empty_commands_are_ignored(t):
    c = t.server().client()
    c.send_raw(b"*0\r\n*-1\r\n\r\n*1\r\n$4\r\nPING\r\n")
    check(c.reply(), "PONG")


@test
def a_stream_may_be_cut_anywhere(t):
    s, c = t.server().with_clients(1)
    stream = (encode(["ACQUIRE", "k", "VALUE", b"\r\n$5\r\n"]) + b"PING x\r\n"
              + encode(["RELEASE", "k"]))
    for b in range(len(stream)):
        c.send_raw(stream[b:b + 1])
    check(c.reply()[1:], [1, -1, 0, 0])
    check(c.reply(), b"x")
    check(c.reply(), 1)


@both_protocols
def ten_thousand_commands_in_one_go(t, protocol):
    s = t.server()
    c = s.client(protocol)
    n = 5000
    c.send_raw(b"".join(encode(["ACQUIRE", "k%d" % (i % 10)]) + encode(["RELEASE", "k%d" % (i % 10)])
                        for i in range(n)))
    last = 0
    for i in range(n):
        fence, held, _, _, _ = c.reply()
        check_that(fence > last and held == 1, "grant %d is in order" % i)
        last = fence
        check(c.reply(), 1)
    check(s.info(c)["keys"], "0")


@test
def a_blocked_connection_does_the_rest_later(t):
    s, c, holder = t.server().with_clients(2)
    holder.acquire("k")
    c.send_raw(encode(["PING"]) + encode(["ACQUIRE", "k", "WAIT", "60000"]) + encode(["PING", "2"])
               + encode(["RELEASE", "k"]))
    check(c.reply(), "PONG")
    s.until_waiting("k", 1)
    check_that(c.quiet(), "a connection that waits answers nothing else")
    holder("RELEASE", "k")
    check(c.reply()[1], 1)
    check([c.reply(), c.reply()], [b"2", 1])


@test
def errors_do_not_end_a_pipeline(t):
    c = t.server().client()
    c.send("NOSUCH").send("ACQUIRE").send("ACQUIRE", "k", "PER", "x").send("PING")
    for _ in range(3):
        check_error(c.reply(), "ERR")
    check(c.reply(), "PONG")


# --- The transcript ------------------------------------------------------------------------


@both_protocols
def the_transcript_of_canal_lock_value_for_value(t, protocol):
    """What canal lock's own description shows, on one connection."""
    c = t.server().client(protocol)

    def acquire(buckets):
        got = c("ACQUIRE", "db", "PER", 3, "BUCKETS", buckets)
        return "full" if got is None else got[1]

    check([acquire(1), acquire(1), acquire(1)], [1, 2, 3])
    check(acquire(1), "full")
    check(acquire(2), 4)
    check(acquire(1), "full")
    check(c("RELEASE", "db"), 1)
    check(acquire(1), "full")
    check(c("RELEASE", "db"), 1)
    check(acquire(1), 3)
    check(acquire(1), "full")


@test
def more_capacity_admits_new_callers_at_once(t):
    """Three held with capacity 3, one waits with capacity 3, the next declares capacity 6."""
    s, holder, waiter, c = t.server().with_clients(3)
    for _ in range(3):
        holder.acquire("db", "PER", 3)
    s.waits(waiter, "ACQUIRE", "db", "PER", 3, "WAIT", 100000)
    check(c("ACQUIRE", "db", "PER", 3), None)
    check(c("ACQUIRE", "db", "PER", 6)[1], 4)
    check(s.waiters("db"), 1)
    check(holder("RELEASE", "db"), 1)
    check(s.waiters("db"), 1, "3 are held: none for the waiter")
    check(holder("RELEASE", "db"), 1)
    check(waiter.reply()[1], 3)


@test
def the_protocol_of_a_push_is_a_push(t):
    """Only type > may come unasked: a client tells it from a reply by nothing else."""
    s = t.server()
    c, other = s.client(3), s.client()
    fence = c.acquire("k")
    check(other("BREAK", "k", fence), 2)
    got = c.push()
    check_that(isinstance(got, Push), "it is a push")
    check(got[:3] + [int(got[3])], [b"lock", b"k", b"broken", fence])


@test
def READY_says_what_is_drained(t):
    s, c = t.server().with_clients(1)
    check(c("READY"), "READY")
    check_error(c("READY", "now"), "ERR")
    check(c("DRAIN", "db:*", "ON"), 1)
    check(c("READY"), "READY", "other keys are granted")
    check(c("DRAIN", "**", "ON"), 1)
    check_error(c("READY"), "NOTREADY", "draining: every key is drained")
    check(c("DRAIN", "**", "OFF"), 1)
    check(c("READY"), "READY")


@test
def SHUTDOWN_takes_its_words(t):
    for word in ((), ("NOSAVE",), ("save",), ("NOW",)):
        s, c = t.server().with_clients(1)
        check_error(c("SHUTDOWN", "BOGUS"), "ERR")
        c.send("SHUTDOWN", *word)
        try:
            got = c.reply()
            check_that(got == "OK" or isinstance(got, Error) and got.word == "SHUTDOWN",
                       "the answer, if there is one: %r" % (got,))
        except Closed:
            pass
        check(s.status, 0, "the status")


main(__doc__)
