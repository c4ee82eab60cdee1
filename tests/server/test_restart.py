#!/usr/bin/python3
"""test_restart.py - the server stops, is killed, or its machine loses power, and it starts again:
what it keeps, what it waits for, what it refuses; a disk that is full, slow or broken; a
directory that is moved, copied or replaced; pauses and steps of the clock.

    tests/server/test_restart.py SERVER [--long] [--seed N] [--jobs N] [PATTERN...]

--long: a hundred random kills instead of ten.
"""
import errno
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import long  # noqa: E402

LONG, SEED = long.take(deadline_s=1200)
from live import (Closed, Error, Failure, Server, Skip, check, check_error, check_that,  # noqa: E402
                  encode, main, pairs, start, stop, tap, test, test_of)
from shims import Shims, build_program, mount  # noqa: E402

FOREVER = 10 ** 8


# --- What they share ---------------------------------------------------------------------------


def boot_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6


def xxh64(data):
    """As libxxhash's XXH64 with seed 0."""
    mask = (1 << 64) - 1
    p1, p2, p3, p4, p5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                          0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)

    def rotate(x, n):
        return (x << n | x >> (64 - n)) & mask

    def round_(acc, word):
        return rotate((acc + word * p2) & mask, 31) * p1 & mask

    at, n = 0, len(data)
    if n >= 32:
        v = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        while n - at >= 32:
            for i in range(4):
                v[i] = round_(v[i], int.from_bytes(data[at:at + 8], "little"))
                at += 8
        h = sum(rotate(x, r) for x, r in zip(v, (1, 7, 12, 18))) & mask
        for x in v:
            h = ((h ^ round_(0, x)) * p1 + p4) & mask
    else:
        h = p5
    h = (h + n) & mask
    while n - at >= 8:
        h = (rotate(h ^ round_(0, int.from_bytes(data[at:at + 8], "little")), 27) * p1 + p4) & mask
        at += 8
    if n - at >= 4:
        h = (rotate(h ^ int.from_bytes(data[at:at + 4], "little") * p1 & mask, 23) * p2 + p3) & mask
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * p5 & mask, 11) * p1 & mask
    h = (h ^ h >> 33) * p2 & mask
    h = (h ^ h >> 29) * p3 & mask
    return h ^ h >> 32


class State:
    """The file, as text without its checksum."""

    def __init__(self, t, directory="data"):
        self.path = t.path(directory + "/state")

    @property
    def raw(self):
        with open(self.path, "rb") as f:
            return f.read()

    @raw.setter
    def raw(self, data):
        with open(self.path, "wb") as f:
            f.write(data)

    @property
    def text(self):
        raw = self.raw
        text, _, last = raw.rpartition(b"checksum ")
        check(last, b"%016x\n" % xxh64(text), "the checksum")
        return text.decode()

    @text.setter
    def text(self, text):
        data = text.encode()
        self.raw = data + b"checksum %016x\n" % xxh64(data)

    def number(self, name):
        return int(re.search(r"^%s (\d+)$" % name, self.text, re.M).group(1))

    def change(self, **fields):
        text = self.text
        for name, value in fields.items():
            text, n = re.subn(r"^%s .*$" % name, "%s %s" % (name, value), text, flags=re.M)
            check(n, 1, "the lines of " + name)
        self.text = text


# --- First start, stop and start ----------------------------------------------------------------


@test
def a_first_start_waits_for_nothing(t):
    s, c = start(t).with_clients(1)
    fence = c.acquire("k", "LEASE", 60000)
    check(sorted(os.listdir(t.path("data"))), ["journal", "lock", "store", "store-lock"])
    info = s.info(c)
    check([info[x] for x in ("loading", "recovering_ms", "restored_grants", "journal_errors", "journal_failed")],
          ["0", "0", "0", "0", ""])
    check_that(int(info["fence_limit"]) >= fence, "the limit is above the fence")
    check_that(int(info["journal_bytes"]) > 4096, "the journal has the lease")
    check(int(info["journal_volatile_ms"]), 60000)
    check(os.stat(t.path("data")).st_mode & 0o777, 0o700)
    check(os.stat(t.path("data/journal")).st_mode & 0o777, 0o600)


def stop_by(s, how):
    if how == "SHUTDOWN":
        c = s.client()
        c.send("SHUTDOWN")
        check(s.status, 0, "the exit status")
    else:
        s.end(getattr(signal, how))


HELD = ("fence", "units", "shared", "per", "buckets", "priority", "broken", "value", "note")


def leased_grants_are_held(t, how):
    s, c = start(t).with_clients(1)
    leases = [c.acquire("plain", "LEASE", 50000),
              c.acquire("told", "LEASE", 51000, "VALUE", b"\0\r\n\xff host", "NOTE", "a note"),
              c.acquire("shared", "LEASE", 52000, "SHARED"),
              c.acquire("shared", "LEASE", 53000, "SHARED"),
              c.acquire("counted", "LEASE", 54000, "PER", 3, "BUCKETS", 2, "UNITS", 4),
              c.acquire("counted", "LEASE", 55000, "PER", 5, "PRIORITY", -7),
              c.acquire("mixed", "LEASE", 56000),
              c.acquire("mixed", "LEASE", 57000, "PER", 2),
              c.acquire(b"\xff\0 key", "LEASE", 58000),
              c.acquire("day", "LEASE", 86400000),
              c.acquire("broken", "LEASE", 59000)]
    check(c("BREAK", "broken", leases[-1]), 1)
    taken = c.acquire("taken", "LEASE", 3600000)
    check(c("BREAK", "taken", taken, "NOW"), 2)
    check(c("DRAIN", "drained*", "ON"), 1)
    check([c("DRAIN", "gone*", "ON"), c("DRAIN", "gone*", "OFF")], [1, 1])
    bare = [c.acquire("bare"), c.acquire("mixed", "PER", 3)]
    keys = ["plain", "told", "shared", "counted", "mixed", b"\xff\0 key", "day", "broken"]

    def look(server, client):
        return {key: [{name: pairs(h)[name] for name in HELD}
                      for h in server.explain(key, client)["holders"]
                      if pairs(h)["lease_ms"] >= 0] for key in keys}

    before = look(s, c)
    left = {key: c("READ", key)[2] for key in keys}
    if how == "SIGKILL":
        s.kill()
    else:
        stop_by(s, how)
    s, c = start(t).with_clients(1)
    fence = c.acquire("new", "LEASE", 5000)
    check(look(s, c), before)
    check_that(fence > max(leases + bare), "fences rise")
    check(s.number("restored_grants", c), len(leases))
    check(c("CHECK", "bare", bare[0]), 0, "a grant without a lease")
    c.acquire("bare")
    for key in keys:
        check_that(c("READ", key)[2] <= left[key] if key != "mixed" else True,
                   "the lease of %r has not grown" % key)
    check([c("ACQUIRE", "plain"), c("ACQUIRE", "shared"), c("ACQUIRE", "mixed", "PER", 2)],
          [None, None, None])
    check(c("RELEASE", "plain"), 0, "what this connection took of it")
    check(c("EXTEND", "plain", leases[0], 70000), 70000)
    check(c("EXTEND", "told", leases[1], 70000, "VALUE", "another"), 70000)
    check(c("EXTEND", "day", leases[9], 86400000), 86400000)
    check_error(c("EXTEND", "broken", leases[10], 70000), "LOST")
    check(c("RELEASE", "counted", leases[4]), 1)
    check(c("RELEASE", "counted", leases[5]), 1)
    c.acquire("counted")
    check(c("ACQUIRE", "taken", "LEASE", 1000)[4], 1, "it overlaps the broken one")
    check(c("DRAIN"), [b"drained*"])
    check_error(c("ACQUIRE", "drained-1"), "DRAINED")
    c.acquire("gone-1")
    s.end()


for how in ("SIGINT", "SIGTERM", "SHUTDOWN", "SIGKILL"):
    test_of("leased_grants_are_held_after_" + how, leased_grants_are_held, how)


def holders(s):
    """Of all locks: name and address, as LOCKS shows them."""
    listed = [pairs(m) for m in s.client()("LOCKS", "COUNT", 1000)[1]]
    return {m["key"]: (pairs(m["holder"])["name"], pairs(m["holder"])["address"]) for m in listed}


@test
def holders_are_named_after_a_restart(t):
    s = start(t)
    one, two = s.clients(2)
    one("CLIENT", "SETNAME", "backup-7")
    for i in range(3):
        one.acquire("one-%d" % i, "LEASE", 600000)
        two.acquire("two-%d" % i, "LEASE", 600000, "PER", 2)
    before = holders(s)
    check({key: name for key, (name, _) in before.items()},
          {b"%s-%d" % (who, i): name for who, name in ((b"one", b"backup-7"), (b"two", b"")) for i in range(3)})
    check(before[b"one-0"][1].startswith(b"127.0.0.1:"), True)
    for _ in range(2):
        s.end()
        s = start(t)
        check(holders(s), before)
    summary = s.explain("one-0")["summary"][0]
    check_that(summary.startswith(b"backup-7 (%s) has held it for " % before[b"one-0"][1]), summary)
    summary = s.explain("two-0")["summary"][0]
    check_that(summary.startswith(b"a client (%s) has held it for " % before[b"two-0"][1]), summary)


OLD_STATE = """sluice state %(format)d
fence_limit %(limit)d
fence_last %(last)d
lease_longest_ms %(longest)d
clean %(clean)d
quiet_ms 0
boot another
at_ms 1
%(grants)s"""


def write_old_state(t, clean, longest=60000, format=2, grants=()):
    """The file of an earlier version. Grants: (fence, left_ms, key)."""
    os.mkdir(t.path("data"), 0o700)
    t.write("data/lock", "This is the data directory of a Sluice server.")
    now = int(time.time() * 10 ** 6)
    lines = "".join("%sgrant %d %d 0 0 1 1 1 0 0 0 %s - -\n" % (
        "client %s %s\n" % (b"old".hex(), b"10.0.0.1:5".hex()) if format == 2 else "", fence, left, key.encode().hex())
        for fence, left, key in grants)
    State(t).text = OLD_STATE % {"format": format, "limit": now + 10 ** 7, "last": now, "longest": longest,
                                 "clean": clean, "grants": lines + "grants %d\n" % len(grants)}


def the_file_of_an_earlier_version_is_imported(t, format):
    fence = int(time.time() * 10 ** 6) - 1000
    write_old_state(t, 1, format=format, grants=[(fence, 60000, "k")])
    s, c = start(t).with_clients(1)
    check_that("imported the file" in s.log, s.log)
    check(c("CHECK", "k", fence), 1)
    check(holders(s), {b"k": (b"old", b"10.0.0.1:5") if format == 2 else (b"", b"")})
    check_that(c.acquire("new", "LEASE", 1000) > fence, "fences rise")
    check_that("state" not in os.listdir(t.path("data")), "the file was removed")
    s, c = s.crash().with_clients(1)
    check(c("EXTEND", "k", fence, 70000), 70000)


for format in (1, 2):
    test_of("the_file_of_an_earlier_version_is_imported_format_%d" % format,
            the_file_of_an_earlier_version_is_imported, format)


@test
def after_a_crash_of_an_earlier_version_the_longest_lease_counts(t):
    write_old_state(t, 0, longest=1500)
    began = boot_ms()
    s, c = start(t).with_clients(1)
    check_error(c("ACQUIRE", "k"), "RECOVERING")
    check_error(c("CHECK", "k", 5), "RECOVERING")
    s, c = s.crash().with_clients(1)
    check_error(c("ACQUIRE", "k"), "RECOVERING")
    c.acquire("k", "WAIT", FOREVER)
    check_that(boot_ms() - began >= 1500, "not before the longest lease has expired")


@test
def a_stop_notifies_only_holders_without_a_lease(t):
    s = start(t)
    c, sub = s.client(3), s.client()
    bare, leased = c.acquire("bare"), c.acquire("leased", "LEASE", 60000)
    both = c.acquire("both", "PER", 2, "LEASE", 60000), c.acquire("both", "PER", 2)
    sub.subscribe("lock:bare", "lock:leased", "lock:both")
    s.end()
    told = sorted([c.push() for _ in range(2)])
    check(told, [[b"lock", b"bare", b"broken", bare], [b"lock", b"both", b"broken", both[1]]])
    check(sorted([sub.message(), sub.message()]),
          [("lock:bare", "broken %d why=shutdown" % bare),
           ("lock:both", "broken %d why=shutdown" % both[1])])
    check([c.until_closed(), sub.until_closed()], [b"", b""])
    check(start(t).client()("CHECK", "leased", leased), 1)


@test
def a_revoked_holder_may_stay_and_a_robbed_one_may_not(t):
    """The thief that waits is gone after a stop; the one that has entered is not."""
    s = start(t)
    c, w = s.client(), s.client(3)
    asked, robbed = c.acquire("asked", "LEASE", 60000), c.acquire("robbed", "LEASE", 60000)
    thief = s.client()("ACQUIRE", "robbed", "PRIORITY", 1, "WAIT", 1000, "STEAL", 0, "LEASE", 60000)
    check(thief[4], 1, "it overlaps")
    w.send("ACQUIRE", "asked", "PRIORITY", 1, "WAIT", FOREVER, "STEAL")
    check(w.push()[2], b"waits")
    check_error(c("EXTEND", "asked", asked, 60000), "ASKED")
    s, c = s.restart().with_clients(1)
    check(c("EXTEND", "asked", asked, 60000), 60000)
    check_error(c("EXTEND", "robbed", robbed, 60000), "ASKED")
    check(c("EXTEND", "robbed", thief[0], 60000), 60000)
    check([c("CHECK", "robbed", robbed), c("RELEASE", "robbed", robbed)], [1, 1])


@test
def a_stop_without_leases_leaves_nothing_to_wait_for(t):
    s = start(t)
    s.client().acquire("k")
    s = s.restart()
    s.kill()
    start(t).client().acquire("k")


@test
def without_a_directory_a_stop_notifies_all_holders(t):
    s, c = t.server().with_clients(1, 3)
    fence = c.acquire("k", "LEASE", 60000)
    s.end()
    check(c.push(), [b"lock", b"k", b"broken", fence])


@test
def a_lease_keeps_running_while_no_server_runs(t):
    s, c = start(t).with_clients(1)
    began = boot_ms()
    c.acquire("short", "LEASE", 700)
    long = c.acquire("long", "LEASE", 60000)
    left = c("READ", "long")[2]
    asked = boot_ms()
    s.end()
    t.until(lambda: boot_ms() > began + 1500, "the short one is over")
    s, c = start(t).with_clients(1)
    check_that('grants="1"' in s.log, "the short one is not there any more")
    c.acquire("short")
    now = c("READ", "long")[2]
    passed = boot_ms() - asked
    check(c("CHECK", "long", long), 1)
    check_that(left - passed - 20 <= now < left - 700, "of %d ms %d are left" % (left, now))


@test
def a_restored_lease_expires_at_its_original_time(t):
    s, c = start(t).with_clients(1)
    sent = boot_ms()
    fence = c.acquire("k", "LEASE", 1500)
    s, c = s.restart().with_clients(1)
    check(c("CHECK", "k", fence), 1)
    got = c("ACQUIRE", "k", "WAIT", FOREVER)
    check_that(boot_ms() - sent >= 1500, "it was not granted before")
    check_that(got[0] > fence, "the fence rose")


@test
def in_another_boot_what_is_left_counts_from_the_start(t):
    """After a clean stop nothing is lost."""
    shims = Shims(t)
    s, c = start(t, env=shims.env).with_clients(1)
    fence = c.acquire("k", "LEASE", 50000)
    s.end()
    shims.boot("second", "another")
    time.sleep(0.3)
    s, c = start(t, env=shims.env).with_clients(1)
    check(c("CHECK", "k", fence), 1)
    left = c("READ", "k")[2]
    check_that(49000 < left <= 50000, "%d ms are left" % left)
    c.acquire("new", "LEASE", 1000)


@test
def many_grants_are_kept(t):
    count = 20000
    s, c = start(t).with_clients(1)
    c.acquire("first", "LEASE", 600000)
    for at in range(0, count, 1000):
        c.send_raw(b"".join(encode(("ACQUIRE", "key:%d" % i, "LEASE", 60000, "VALUE", "v%d" % i))
                            for i in range(at, at + 1000)))
        fences = [c.reply()[0] for _ in range(1000)]
    s, c = s.crash().with_clients(1)
    check(s.number("restored_grants", c), count + 1)
    check(s.number("keys", c), count + 1)
    for i in random.sample(range(count - 1000, count), 50):
        check(c("READ", "key:%d" % i)[:2], [b"v%d" % i, fences[i - count + 1000]])


@test
def a_start_that_fails_loses_nothing(t):
    """The port is taken: what a clean stop wrote down is still there."""
    s = start(t)
    fence = s.client().acquire("k", "LEASE", 60000)
    s.end()
    other = t.server()
    p = t.failing("--data", t.path("data"), port=str(other.port))
    check(p.status, 1)
    check_that("already in use" in p.err, "it says why")
    check(start(t).client()("CHECK", "k", fence), 1)


@test
def limits_that_shrank_do_not_take_grants_away(t):
    s, c = start(t).with_clients(1)
    fences = [c.acquire("a long key %d" % i, "LEASE", 60000, "VALUE", "v" * 100) for i in range(9)]
    s.end()
    s = start(t, "--keys-max", "2", "--key-bytes-max", "20", "--value-bytes-max", "5",
              "--lease-max", "1s")
    c = s.client()
    check([c("CHECK", "a long key %d" % i, fence) for i, fence in enumerate(fences)], [1] * 9)
    check_error(c("ACQUIRE", "new"), "NOKEYS")


@test
def patterns_are_still_drained_if_limits_shrank(t):
    s, c = start(t).with_clients(1)
    check([c("DRAIN", "one*", "ON"), c("DRAIN", "two*", "ON")], [1, 1])
    s.kill()
    s = start(t, "--drains-max", "1", "--key-bytes-max", "2")
    c = s.client()
    check(c("DRAIN"), [b"one*", b"two*"])
    check_error(c("DRAIN", "x", "ON"), "LIMIT", "drains-max")
    s.kill()
    c = start(t, "--drains-max", "1").client()
    check([c("DRAIN", "one*", "OFF"), c("DRAIN")], [1, [b"two*"]])


@test
def a_journal_above_a_lower_journal_bytes_max_is_written_again(t):
    fences = {}

    def grow(first, last):
        for i in range(first, last):
            fences["k%d" % i] = c.acquire("k%d" % i, "LEASE", 30000000, "VALUE", "v" * 4000)

    s, c = start(t, "--lease-volatile", "10h").with_clients(1)
    grow(0, 2500)
    for _ in range(20):
        c.send_raw(b"".join(encode(("ACQUIRE", "x", "LEASE", 30000, "VALUE", "v" * 4000)) + encode(("RELEASE", "x"))
                            for _ in range(100)))
        for _ in range(200):
            c.reply()
    check_that(s.number("journal_bytes", c) > 16 << 20, "it is too large for 16m")
    s.kill()
    s = start(t, "--lease-volatile", "10h", "--journal-bytes-max", "16m")
    c = s.client()
    check_that(s.number("journal_bytes", c) < 16 << 20, "it is shorter")
    check([c("CHECK", k, f) for k, f in fences.items()], [1] * len(fences))
    check(c("ACQUIRE", "x", "LEASE", 1000)[1], 1)
    s.kill()
    s = start(t, "--lease-volatile", "10h")
    c = s.client()
    grow(2500, 5000)
    s.kill()
    refused(t, "exceed journal-bytes-max", options=("--journal-bytes-max", "16m"))
    c = start(t).client()
    check([c("CHECK", k, f) for k, f in fences.items()], [1] * len(fences))


# --- A crash -------------------------------------------------------------------------------------


@test
def after_kill_9_everything_goes_on(t):
    s, c, w = start(t).with_clients(2)
    old = c.acquire("k", "LEASE", 1800)
    bare = c.acquire("bare")
    s, c, w = s.crash().with_clients(2)
    check_that("restored the leases after a crash" in s.log, "it says so")
    check(c("ACQUIRE", "k"), None, "it is held")
    new = c.acquire("bare", "LEASE", 60000)
    check_that(new > max(old, bare), "the fence rose")
    check([c("CHECK", "k", old), c("CHECK", "bare", bare), c("AWAIT", "k", "FREE", 0)], [1, 0, 0])
    check(c("EXTEND", "k", old, 2000), 2000)
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER, by=c)
    check(c("RELEASE", "k", old), 1)
    check_that(w.reply()[0] > new, "the next one has it")


@test
def a_lease_that_expired_while_no_server_ran_stays_expired(t):
    """Even after a power failure that follows."""
    shims = Shims(t)
    s, c = start(t, env=shims.env).with_clients(1)
    fence = c.acquire("k", "LEASE", 100000)
    s.kill()
    shims.clock(101, 101)
    s, c = start(t, env=shims.env).with_clients(1)
    check(c("CHECK", "k", fence), 0)
    new = c.acquire("k", "LEASE", 100000)
    s.kill()
    shims.boot("second")
    s, c = start(t, env=shims.env).with_clients(1)
    check([c("CHECK", "k", fence), c("CHECK", "k", new)], [0, 1])


def power_failure(t, shims, s, machine="one", **more):
    """The next server, on a machine that has lost power."""
    s.kill()
    shims.boot("boot %d" % time.monotonic_ns(), machine)
    return start(t, *more.pop("options", ()), env=shims.env)


@test
def after_a_power_failure_long_leases_are_held_and_short_ones_are_waited_for(t):
    shims = Shims(t)
    options = ("--lease-volatile", "1500")
    s, c = start(t, *options, env=shims.env).with_clients(1)
    long, short = c.acquire("long", "LEASE", 300000), c.acquire("short", "LEASE", 1500)
    check(c("DRAIN", "d*", "ON"), 1)
    began = boot_ms()
    s = power_failure(t, shims, s, "another", options=options)
    c, w = s.clients(2)
    check_that("restored the long leases" in s.log, s.log)
    check_that(s.number("recovering_ms", c) > 0, "INFO says so")
    check_error(c("ACQUIRE", "free", "LEASE", 1000), "RECOVERING", "power failure")
    check_error(c("ACQUIRE", "free"), "RECOVERING")
    check_error(c("CHECK", "short", short), "RECOVERING")
    check_error(c("READ", "short"), "RECOVERING")
    check_error(c("AWAIT", "short", "FREE", 0), "RECOVERING")
    check_error(c("READY"), "NOTREADY", "recovering")
    check([c("CHECK", "long", long), c("EXTEND", "long", long, 400000)], [1, 400000])
    check_error(c("EXTEND", "short", short, 1000), "LOST")
    check(c("DRAIN"), [b"d*"])
    s.waits(w, "ACQUIRE", "short", "WAIT", FOREVER, by=c)
    w.reply()
    check_that(boot_ms() - began >= 1500, "lease-volatile has passed since the start")
    check(c("READY"), "READY")
    check([c("CHECK", "short", short), c("READ", "free")], [0, None])


@test
def a_second_crash_during_the_wait_neither_forgets_nor_begins_anew(t):
    shims = Shims(t)
    s = start(t, env=shims.env)
    s.client().acquire("k", "LEASE", 30000)
    s = power_failure(t, shims, s, "another")
    first = s.number("recovering_ms")
    time.sleep(0.5)
    s = s.crash()
    second = s.number("recovering_ms")
    check_that(0 < second <= first - 500, "%d ms, and then %d" % (first, second))
    s = s.restart()
    check_that(0 < s.number("recovering_ms") <= second, "after a clean stop as well")


@test
def after_a_boot_of_the_same_machine_the_wait_counts_from_the_boot(t):
    """This machine has run for longer than lease-volatile."""
    if boot_ms() < 5000:
        raise Skip("the machine has just started")
    shims = Shims(t)
    options = ("--lease-volatile", "4s")
    s, c = start(t, *options, env=shims.env).with_clients(1)
    c.acquire("short", "LEASE", 4000)
    s = power_failure(t, shims, s, options=options)
    check(s.number("recovering_ms"), 0)
    s.client().acquire("short")


@test
def the_wait_is_that_of_the_earlier_setting(t):
    shims = Shims(t)
    s, c = start(t, "--lease-volatile", "30s", env=shims.env).with_clients(1)
    short = c.acquire("k", "LEASE", 30000)
    s = power_failure(t, shims, s, "another", options=("--lease-volatile", "1s"))
    check_that(s.number("recovering_ms") > 20000, "it waits for leases of the earlier server")
    s = power_failure(t, shims, s, "third", options=("--lease-volatile", "1s"))
    check_that(s.number("recovering_ms") > 0, "a second power failure during the wait")
    check_error(s.client()("CHECK", "k", short), "RECOVERING")


@test
def settings_may_change_between_starts(t):
    s, c = start(t, "--lease-volatile", "60s").with_clients(1)
    fences = {ms: c.acquire("k%d" % ms, "LEASE", ms) for ms in (20000, 60000, 200000)}
    for volatile in ("0", "10s", "1h", "60s"):
        s.kill()
        s, c = start(t, "--lease-volatile", volatile).with_clients(1)
        for ms, fence in fences.items():
            check(c("EXTEND", "k%d" % ms, fence, ms), ms)


@test
def a_lease_that_was_extended_is_held_after_a_power_failure(t):
    shims = Shims(t)
    s, c = start(t, env=shims.env).with_clients(1)
    fence = c.acquire("k", "LEASE", 1000)
    check(c("EXTEND", "k", fence, 250000), 250000)
    s = power_failure(t, shims, s)
    left = s.client()("EXTEND", "k", fence, 250000)
    check_that(250000 <= left <= 280000, "%d ms are left: at most 30 s more than before" % left)


@test
def a_lease_that_was_waited_for_is_held_after_a_power_failure(t):
    shims = Shims(t)
    s, c, w = start(t, env=shims.env).with_clients(2)
    c.acquire("k")
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER, "LEASE", 250000, by=c)
    check(c("RELEASE", "k"), 1)
    fence = w.reply()[0]
    s = power_failure(t, shims, s)
    check(s.client()("CHECK", "k", fence), 1)


@test
def after_kill_9_without_leases_there_is_nothing_to_wait_for(t):
    s = start(t)
    old = s.client().acquire("k")
    s = s.crash()
    check_that(s.client().acquire("k") > old, "the fence rose")


def fences_rise_over_a_clock_that_was_set_back(t, end):
    shims = Shims(t)
    s, c = start(t, env=shims.env).with_clients(1)
    old = max(c.acquire("k", "PER", 1000) for _ in range(10))
    end(s)
    shims.clock(-10 * 86400)
    s, c = start(t, env=shims.env).with_clients(1)
    new = c.acquire("k", "PER", 1000)
    check_that(new > old, "the fence rose: %d after %d" % (new, old))
    check_that(new > old + 10 ** 6, "it is above all that might have been given")


test_of("after_kill_9_fences_rise_over_a_clock_that_was_set_back",
        fences_rise_over_a_clock_that_was_set_back, Server.kill)
test_of("after_a_stop_fences_rise_over_a_clock_that_was_set_back",
        fences_rise_over_a_clock_that_was_set_back, Server.end)


@test
def a_second_signal_is_a_crash(t):
    """The server is killed while its last sync does not end."""
    shims = Shims(t)
    s = start(t, env=shims.env)
    fence = s.client().acquire("k", "LEASE", 30000)
    shims.sync(-1)
    s.signal(signal.SIGTERM)
    s.until_log("stopping")
    time.sleep(0.2)
    s.signal(signal.SIGTERM)
    check_that(s.status != 0, "it did not stop well")
    shims.sync(0)
    s, c = start(t, env=shims.env).with_clients(1)
    check(c("CHECK", "k", fence), 1)
    c.acquire("new")


# --- The size of the journal ---------------------------------------------------------------------


@test
def the_journal_stays_short(t):
    s, c = start(t).with_clients(1)
    held = c.acquire("held", "LEASE", 3600000)
    c("DRAIN", "d*", "ON")
    for _ in range(60):
        c.send_raw(b"".join(encode(("ACQUIRE", "k", "LEASE", 30000, "VALUE", "v" * 4000)) + encode(("RELEASE", "k"))
                            for _ in range(100)))
        for _ in range(200):
            c.reply()
    t.until(lambda: s.number("journal_copies", c) >= 1 and s.number("journal_bytes", c) < 17 << 20,
            "the journal was replaced by a shorter one")
    check_that(os.stat(t.path("data/journal")).st_size < 24 << 20, "it is short on the disk")
    fence = c.acquire("last", "LEASE", 30000)
    s, c = s.crash().with_clients(1)
    check([c("CHECK", "held", held), c("CHECK", "last", fence), c("READ", "k"), c("DRAIN")], [1, 1, None, [b"d*"]])


@test
def journal_bytes_max_rejects_leases_until_locks_are_released(t):
    s, c = start(t, "--journal-bytes-max", "16m", "--lease-volatile", "20m").with_clients(1)
    fences, got = {}, None
    for i in range(9000):
        got = c("ACQUIRE", "k%d" % i, "LEASE", 600000, "VALUE", "v" * 4000)
        if not isinstance(got, list):
            break
        fences["k%d" % i] = got[0]
    check_error(got, "IO", "journal-bytes-max")
    check_error(c("READY"), "NOTREADY", "journal")
    c.acquire("bare")
    check([c("CHECK", k, f) for k, f in list(fences.items())[:3]], [1, 1, 1])
    for k in list(fences)[:2000]:
        check(c("RELEASE", k, fences.pop(k)), 1)
    t.until(lambda: isinstance(c("ACQUIRE", "again", "LEASE", 60000), list), "leases are granted again")
    s, c = s.crash().with_clients(1)
    check([c("CHECK", k, f) for k, f in fences.items()], [1] * len(fences))


@test
def a_small_journal_bytes_max_suffices_if_locks_are_released(t):
    p = t.failing("--data", t.path("data"), "--journal-bytes-max", "15m")
    check_that("journal-bytes-max" in p.err, p.err)
    s, c = start(t, "--journal-bytes-max", "16m").with_clients(1)
    for _ in range(100):
        c.send_raw(b"".join(encode(("ACQUIRE", "k", "LEASE", 30000, "VALUE", "v" * 4000)) + encode(("RELEASE", "k"))
                            for _ in range(100)))
        check([x for x in (c.reply() for _ in range(200)) if isinstance(x, Error)], [])
    info = s.info(c)
    check(info["journal_errors"], "0")
    check_that(int(info["journal_copies"]) >= 2, "the journal was replaced by a shorter one")


@test
def a_limit_of_file_sizes_is_not_journal_bytes_max(t):
    s, c = start(t).with_clients(1)
    resource.prlimit(s.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    got = None
    for i in range(1000):
        got = c("ACQUIRE", "k%d" % i, "LEASE", 30000, "VALUE", "v" * 4000)
        if not isinstance(got, list):
            break
    check_error(got, "IO", "ulimit -f")
    check_that("journal-bytes-max" not in str(got), got)


# --- Random kills --------------------------------------------------------------------------------


class Holder(threading.Thread):
    """A client that repeatedly acquires k with a lease, and believes in it as docs/server.md says:
    from before it asked. What it believed is in `grants`: (from at the latest, until, fence)."""

    def __init__(self, world, seed):
        super().__init__(daemon=True)
        self.world, self.draw, self.grants, self.problem = world, random.Random(seed), [], None

    def run(self):
        try:
            while not self.world.over:
                self.serve()
        except Exception as e:  # told by the test
            self.problem = e

    def serve(self):
        server = self.world.server
        try:
            c = server.client()
            while not self.world.over:
                self.once(c)
        except (OSError, Closed):
            time.sleep(0.005)

    def once(self, c):
        lease = self.draw.choice((100, 300, 1000, 1900))
        sent = boot_ms()
        got = c("ACQUIRE", "k", "WAIT", 200, "LEASE", lease)
        if not isinstance(got, list):
            if isinstance(got, Error) and got.word not in ("RECOVERING", "SHUTDOWN"):
                raise Failure("ACQUIRE: %r" % got)
            return
        grant = [boot_ms(), sent + got[3] + lease, got[0]]
        self.grants.append(grant)
        time.sleep(self.draw.random() * 0.05)
        if self.draw.random() < 0.3:
            sent = boot_ms()
            left = c("EXTEND", "k", got[0], lease)
            if isinstance(left, Error) and boot_ms() < grant[1]:
                raise Failure("a lease was lost: EXTEND %d: %r" % (got[0], left))
            grant[1] = max(grant[1], sent + left) if isinstance(left, int) else grant[1]
        if self.draw.random() < 0.8:
            grant[1] = min(grant[1], boot_ms())
            c("RELEASE", "k", got[0])


class World:
    pass


@test
def random_kills_never_make_two_holders(t):
    kills = 100 if LONG else 10
    print("# random kills: --seed %d" % SEED, file=sys.stderr)
    draw = random.Random(SEED)
    world = World()
    world.over, world.server = False, start(t)
    holders = [Holder(world, draw.random()) for _ in range(3)]
    long = world.server.client().acquire("long", "LEASE", 3600000)
    for h in holders:
        h.start()

    def granted():
        return sum(len(h.grants) for h in holders)

    for i in range(kills):
        before, some = granted(), draw.randrange(1, 15)
        t.until(lambda: granted() >= before + some or any(h.problem for h in holders),
                "there are grants again")
        time.sleep(draw.random() * 0.02)
        if draw.random() < 0.3:
            world.server.signal(signal.SIGTERM)
            time.sleep(draw.random() * 0.01)
        world.server.signal(signal.SIGKILL)
        world.server.status
        world.server = start(t)
        if draw.random() < 0.2:
            world.server.signal(signal.SIGKILL)
            world.server.status
            world.server = start(t)
        check(world.server.client()("EXTEND", "long", long, 3600000), 3600000, "the lease of an hour")
    world.over = True
    for h in holders:
        h.join()
        check(h.problem, None, "a holder's problem")
    grants = sorted((g for h in holders for g in h.grants), key=lambda g: g[2])
    check_that(len(grants) > 2 * kills, "there were grants: %d" % len(grants))
    for a, b in zip(grants, grants[1:]):
        check_that(a[2] < b[2], "fences differ")
        check_that(b[0] >= a[1], "fence %d was granted at %.1f at the latest, and %d ends at %.1f"
                   " (--seed %d)" % (b[2], b[0], a[2], a[1], SEED))


# --- A kill after any system call ------------------------------------------------------------------


class Script:
    """Commands of one client, and what they must leave behind: `sure` has the state of each key that
    the server has acknowledged; the command whose reply was lost may have been carried out or not."""

    def __init__(self, s):
        self.sure, self.unsure, self.drained = {}, None, None
        try:
            self.run(s.client())
        except (OSError, Closed):
            pass

    def do(self, c, key, after, *command):
        self.unsure = (key, after)
        got = c(*command)
        self.unsure = None
        self.sure[key] = dict(after, fence=got[0] if isinstance(got, list) else self.sure.get(key, {}).get("fence"))
        return got

    def run(self, c):
        def held(ms, broken=False):
            return {"held": True, "ms": ms, "broken": broken}

        free = {"held": False, "ms": 0, "broken": False}
        for key, lease, longer in (("short", 30000, 50000), ("long", 600000, 900000)):
            got = self.do(c, key, held(lease), "ACQUIRE", key, "LEASE", lease)
            self.do(c, key, held(longer), "EXTEND", key, got[0], longer)
            for gone in ("released " + key, "broken " + key):
                got = self.do(c, gone, held(lease), "ACQUIRE", gone, "LEASE", lease)
                if gone.startswith("released"):
                    self.do(c, gone, free, "RELEASE", gone, got[0])
                else:
                    self.do(c, gone, held(lease, True), "BREAK", gone, got[0])
        self.drained = "unsure"
        c("DRAIN", "d*", "ON")
        self.drained = "sure"
        for i in range(3):  # enough for a shorter copy of the journal
            c.send_raw(b"".join(encode(("ACQUIRE", "big", "LEASE", 30000, "VALUE", "v" * 4000)) +
                                encode(("RELEASE", "big")) for _ in range(100)))
            for _ in range(200):
                c.reply()
        time.sleep(0.05)
        got = self.do(c, "last", held(600000), "ACQUIRE", "last", "LEASE", 600000)

    def check(self, s, point):
        c = s.client()
        for key, want in self.sure.items():
            maybe = [want] + ([self.unsure[1]] if self.unsure and self.unsure[0] == key else [])
            got = c("READ", key)
            check_that(any((got is not None) == w["held"] for w in maybe), "%s at %d: %r, %r" % (key, point, got, maybe))
            if got is None:
                continue
            check(got[1], want["fence"], "the fence of %s at %d" % (key, point))
            check_that(got[2] > min(w["ms"] for w in maybe) - 25000, "the lease of %s at %d: %r" % (key, point, got))
            lost = isinstance(c("EXTEND", key, want["fence"], 1000), Error)
            check_that(any(lost == w["broken"] for w in maybe), "broken or not: %s at %d" % (key, point))
        if self.drained != "unsure":
            check(c("DRAIN"), [b"d*"] if self.drained else [], "drained at %d" % point)
        c.acquire("new %d" % point, "LEASE", 1000)


@test
def killed_after_any_system_call_the_server_loses_nothing_that_it_acknowledged(t):
    killat = build_program(t, "killat")

    def once(point):
        data, count = "data%d" % point, t.path("calls")
        s = t.server("--data", t.path(data), "--data-volatile", "--engine", "none",
                     argv=(killat, str(point), count, tap.program))
        s.signal(signal.SIGUSR1)
        script = Script(s)
        if point == 0:
            s.signal(signal.SIGTERM)
        s.status
        s = t.server("--data", t.path(data), "--data-volatile", "--engine", "none")
        if point == 0:
            check(script.unsure, None, "the script has ended")
        script.check(s, point)
        s.kill()
        with open(count) as f:
            return int(f.read())

    total = once(0)
    check_that(total > 100, "%d system calls" % total)
    draw = random.Random(SEED)
    points = list(range(1, total + 1))
    if not LONG:  # most commands of the script are in its first quarter
        points = draw.sample(points[:total // 4], 20) + draw.sample(points[total // 4:], 10)
    for point in points:
        once(point)
    print("# killed after %d of %d system calls: --seed %d" % (len(points), total, SEED), file=sys.stderr)


# --- A file that is lost or damaged --------------------------------------------------------------


def used_directory(t, clean=True):
    s = start(t)
    fence = s.client().acquire("k", "LEASE", 60000, "VALUE", "host")
    (s.end if clean else s.kill)()
    return fence


def refused(t, *words, options=()):
    p = t.failing("--data", t.path("data"), *options)
    check(p.status, 1, "the exit status")
    for word in words + (t.path("data"),):
        check_that(word in p.err, "it says %r: %s" % (word, p.err))
    check_that("listening" not in p.err and "ready: sluice" not in p.err, "it does not claim to serve: " + p.err)


def a_directory_that_lost_its_journal_is_refused(t, clean):
    used_directory(t, clean)
    os.rename(t.path("data/journal"), t.path("moved"))
    refused(t, "is missing", "put it back", "remove")
    os.rename(t.path("moved"), t.path("data/journal"))
    start(t).kill()
    os.unlink(t.path("data/journal"))
    os.unlink(t.path("data/lock"))
    s = start(t)  # as it says
    s.client().acquire("k", "LEASE", 60000)


test_of("a_directory_that_lost_its_journal_is_refused_after_a_stop",
        a_directory_that_lost_its_journal_is_refused, True)
test_of("a_directory_that_lost_its_journal_is_refused_after_a_crash",
        a_directory_that_lost_its_journal_is_refused, False)


@test
def without_journal_and_lock_it_grants_at_once_and_keeps_its_transactions(t):
    """As docs/restart.md says, for an operator who knows that no holder is left."""
    s, c = start(t).with_clients(1)
    old = c.acquire("k", "LEASE", 3600000)
    c("TX.BEGIN")
    c("TX.PUT", "accounts", "ann", "100")
    check(c("TX.COMMIT"), 1)
    s.end()
    os.unlink(t.path("data/journal"))
    os.unlink(t.path("data/lock"))
    s, c = start(t).with_clients(1)
    check_that(c.acquire("k", "LEASE", 1000) > old, "fences rise")
    c("TX.BEGIN")
    check(c("TX.GET", "accounts", "ann"), b"100", "what was committed")


@test
def a_directory_whose_first_start_failed_is_new(t):
    """The lock's file is there, but nothing was ever granted."""
    shims = Shims(t)
    shims.sync(errno.EIO)
    p = t.run(tap.program, "--port", "auto", "--data", t.path("data"), env=shims.env)
    check(p.status, 1)
    check_that(os.strerror(errno.EIO) in p.err, "it says why")
    check_that("first start" not in p.err, "it does not claim a start that failed: " + p.err)
    start(t).client().acquire("k", "LEASE", 1000)


@test
def a_damaged_journal_is_rejected(t):
    """A wrong byte in a frame that other frames follow. `sluice journal check` finds it, too."""
    s, c = start(t).with_clients(1)
    for i in range(20):
        c.acquire("k%d" % i, "LEASE", 600000, "VALUE", "v" * 100)
    s.kill()
    path = t.path("data/journal")
    with open(path, "rb") as f:
        whole = f.read()
    for at in (0, 20, 100, whole.index(b"k1"), whole.index(b"k5")):
        with open(path, "wb") as f:
            f.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        refused(t, '"journal"', "damaged", "sluice journal forget")
    with open(path, "wb") as f:
        f.write(b"Something else, that somebody keeps there.\n")
    refused(t, "not a journal")
    os.unlink(path)
    os.mkdir(path)
    refused(t, "is not a regular file")


@test
def an_incomplete_last_frame_is_dropped(t):
    """The server was killed in the middle of a write, so no reply has shown that frame."""
    s, c = start(t).with_clients(1)
    first = c.acquire("first", "LEASE", 600000)
    bytes_before = s.number("journal_bytes", c)
    c.acquire("second", "LEASE", 30000)
    s.kill()
    with open(t.path("data/journal"), "r+b") as f:
        f.seek(bytes_before + 60)
        f.write(b"\0" * 200)
    s, c = start(t).with_clients(1)
    check([c("CHECK", "first", first), c("READ", "second")], [1, None])
    third = c.acquire("third", "LEASE", 30000)
    s, c = s.crash().with_clients(1)
    check([c("CHECK", "first", first), c("CHECK", "third", third)], [1, 1])


@test
def an_unreadable_journal_is_rejected(t):
    used_directory(t)
    words = t.as_nobody()
    os.chown(t.path("data"), 65534, 65534)
    os.chmod(t.path("data/lock"), 0o666)
    os.chmod(t.path("data/journal"), 0o000)
    p = t.run(*words, t.copy_of_program(), "--port", "auto", "--data", t.path("data"))
    check(p.status, 1)
    check_that("cannot read" in p.err and os.strerror(errno.EACCES) in p.err, p.err)


@test
def a_directory_of_another_user_is_refused(t):
    used_directory(t)
    words = t.as_nobody()
    os.chmod(t.path("data"), 0o755)
    p = t.run(*words, t.copy_of_program(), "--port", "auto", "--data", t.path("data"))
    check(p.status, 1)
    check_that("belongs to another user" in p.err and "--data" in p.err, "it says so")


@test
def a_directory_that_this_user_may_not_write_to_is_rejected(t):
    used_directory(t)
    words = t.as_nobody()
    os.chown(t.path("data"), 65534, 65534)
    os.unlink(t.path("data/lock"))
    os.chmod(t.path("data"), 0o500)
    p = t.run(*words, t.copy_of_program(), "--port", "auto", "--data", t.path("data"))
    check(p.status, 1)
    check_that("cannot write to this directory" in p.err and "--data" in p.err, "it says so")


# --- Disks ---------------------------------------------------------------------------------------


def small_disk(t):
    os.mkdir(t.path("data"))
    mount(t, "-t", "tmpfs", "-o", "size=4m,mode=0700", "none", t.path("data"))


def start_small(t, **more):
    """A server on the small disk. It has no store, which would fill the disk."""
    return start(t, "--engine", "none", **more)


def fill_disk(t):
    with open(t.path("data/ballast"), "wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 4096)
        except OSError as e:
            check(e.errno, errno.ENOSPC)


def empty_disk(t):
    os.unlink(t.path("data/ballast"))


@test
def tmpfs_needs_data_volatile(t):
    small_disk(t)
    refused(t, "tmpfs", "--data-volatile")
    s = start_small(t)
    fence = s.client().acquire("k", "LEASE", 60000)
    check(s.crash().client()("CHECK", "k", fence), 1)


@test
def a_full_disk_at_the_start_is_rejected(t):
    small_disk(t)
    fill_disk(t)
    refused(t, "the disk is full", "--data", options=("--data-volatile", "--engine", "none"))
    empty_disk(t)
    s = start_small(t)
    fence = s.client().acquire("k", "LEASE", 60000)
    s.end()
    fill_disk(t)
    check(start_small(t).client()("CHECK", "k", fence), 1, "the journal has space that was allocated before")


@test
def a_read_only_disk_at_the_start_is_rejected(t):
    small_disk(t)
    s = start_small(t)
    fence = s.client().acquire("k", "LEASE", 60000)
    s.end()
    mount(t, "-o", "remount,ro", t.path("data"))
    refused(t, "the file system is read-only", "--data", options=("--data-volatile",))
    mount(t, "-o", "remount,rw", t.path("data"))
    check(start_small(t).client()("CHECK", "k", fence), 1)


def unmount(t, path):
    subprocess.run(["umount", path], check=True)
    t.mounted.remove(path)


@test
def a_file_system_that_was_unmounted_is_another_life(t):
    image, data = t.path("image"), t.path("data")
    os.mkdir(t.path("test"))
    mount(t, "-t", "tmpfs", "none", t.path("test"))  # Only root can do this.
    os.mkdir(data)
    with open(image, "wb") as f:
        f.truncate(64 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", image])
    device = subprocess.run(["losetup", "-f", "--show", image], stdout=subprocess.PIPE, text=True)
    if made.returncode != 0 or device.returncode != 0:
        raise Skip("there are no loop devices")
    device = device.stdout.strip()
    try:
        mount(t, device, data)
        if not os.path.exists("/sys/fs/ext4/" + os.path.basename(device)):
            raise Skip("/sys does not show mounted file systems")
        s = start(t)
        fence = s.client().acquire("k", "LEASE", 30000)
        s.kill()
        mount(t, "--bind", data, data)  # As in the mount namespace of a service.
        s = start(t)
        check([s.client()("READY"), s.client()("CHECK", "k", fence)], ["READY", 1])
        s.kill()
        unmount(t, data)
        unmount(t, data)
        mount(t, device, data)
        s = start(t)
        check_error(s.client()("ACQUIRE", "k", "LEASE", 1000), "RECOVERING")
        check_that("has been unmounted" in s.log, "the log says why")
    finally:
        subprocess.run(["losetup", "-d", device])  # When it is unmounted.


@test
def a_disk_that_is_full_later(t):
    small_disk(t)
    s = start_small(t)
    c = s.client()
    first = c.acquire("first", "LEASE", 600000)
    fill_disk(t)
    held, got = {}, None
    for i in range(3000):  # until the allocated space is used
        try:
            got = c("ACQUIRE", "k%d" % i, "LEASE", 600000, "VALUE", "v" * 4000)
        except Closed:  # the write of its turn failed, so it has no reply
            c = s.client()
            continue
        if not isinstance(got, list):
            break
        held["k%d" % i] = got[0]
    check_error(got, "IO", os.strerror(errno.ENOSPC), t.path("data/journal"))
    check_error(c("EXTEND", "first", first, 700000), "IO")
    check_error(c("BREAK", "first", first), "IO")
    check_error(c("DRAIN", "d*", "ON"), "IO")
    check_error(c("READY"), "NOTREADY")
    check(c("CHECK", "first", first), 1)
    bare = c.acquire("bare")
    check([c("RELEASE", "bare", bare), c("RELEASE", "k0", held.pop("k0"))], [1, 1])
    check_that(s.number("journal_errors", c) >= 1, "it was counted")
    empty_disk(t)
    t.until(lambda: isinstance(c("ACQUIRE", "again", "LEASE", 60000), list), "it is granted again")
    s.until_log("the journal works again")
    check(c("READY"), "READY")
    s, c = s.crash().with_clients(1)
    check([c("CHECK", k, f) for k, f in held.items()], [1] * len(held))
    check([c("CHECK", "first", first), c("READ", "k0")], [1, None])


def a_disk_that_fails(t, fails):
    shims = Shims(t)
    s, c, w, sub = start(t, env=shims.env).with_clients(3)
    sub.subscribe("lock:k")
    first = c.acquire("k", "LEASE", 600000)
    c.acquire("bare")
    fails(shims, errno.EIO)
    other = s.client()
    try:
        check_error(other("ACQUIRE", "x", "LEASE", 3600000), "IO", os.strerror(errno.EIO))
    except Closed:
        pass  # the write failed before the reply was sent
    check_error(c("ACQUIRE", "x", "LEASE", 1000), "IO")
    check_error(c("EXTEND", "k", first, 700000), "IO")
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER, by=c)
    check([c("CHECK", "k", first), c("RELEASE", "bare")], [1, 1])
    check(c("READ", "x"), None, "it was undone")
    check_that("journal-error" in os.listdir(t.path("data")), "the error is noted")
    time.sleep(1.2)
    check_error(c("ACQUIRE", "x", "LEASE", 1000), "IO")
    fails(shims, 0)
    t.until(lambda: isinstance(c("ACQUIRE", "x", "LEASE", 3600000), list), "it is granted again")
    check_that("journal-error" not in os.listdir(t.path("data")), "a new file was written")
    check(c("RELEASE", "k", first), 1)
    w.reply()
    check([sub.message()[1].split()[0] for _ in range(3)], ["granted", "released", "granted"])
    s, c = s.crash().with_clients(1)
    check([isinstance(c("READ", "x"), list), c("READ", "k")], [True, None])


test_of("a_sync_that_fails_rejects_leases_until_a_new_file_is_written", a_disk_that_fails, Shims.sync)
test_of("a_write_that_fails_rejects_leases_until_a_new_file_is_written", a_disk_that_fails, Shims.write)


@test
def a_server_that_is_ready_again_grants_at_once(t):
    shims = Shims(t)
    s, c, other = start(t, env=shims.env).with_clients(2)
    shims.write(errno.ENOSPC)
    sends_in_vain(other, ("ACQUIRE", "x", "LEASE", 1000))
    shims.clock(3600)  # No fences are left.
    t.until(lambda: isinstance(c("ACQUIRE", "none"), Error), "there are no fences")
    shims.write(0)
    t.until(lambda: c("READY") == "READY", "the journal works again")
    check(c("ACQUIRE", "k", "LEASE", 1000)[1], 1)


@test
def after_an_error_a_start_is_as_after_a_power_failure(t):
    shims = Shims(t)
    s, c = start(t, env=shims.env).with_clients(1)
    long, short = c.acquire("long", "LEASE", 600000), c.acquire("short", "LEASE", 30000)
    shims.sync(errno.EIO)
    check_error(c("ACQUIRE", "x", "LEASE", 600000), "IO")
    s.kill()
    shims.sync(0)
    s, c = start(t, env=shims.env).with_clients(1)
    check(c("CHECK", "long", long), 1)
    check_that("restored the long leases" in s.log, s.log)


@test
def a_stop_that_cannot_write_reports_it_and_notifies_holders(t):
    shims = Shims(t)
    s, c = start(t, env=shims.env).with_clients(1, 3)
    fence = c.acquire("k", "LEASE", 30000)
    shims.sync(errno.ENOSPC)
    check_error(c("ACQUIRE", "x", "LEASE", 600000), "IO")
    s.signal(signal.SIGTERM)
    check(s.status, 1, "the exit status")
    check_that("as after a crash" in s.log, "it says what follows")
    check(c.push(), [b"lock", b"k", b"broken", fence])


# --- A directory that is moved, copied or replaced -------------------------------------------------


@test
def a_journal_that_was_replaced_rejects_leases(t):
    s, c = start(t).with_clients(1)
    fence = c.acquire("k", "LEASE", 600000)
    os.rename(t.path("data/journal"), t.path("data/mine"))
    with open(t.path("data/journal"), "wb") as f:
        f.write(b"another file")
    t.until(lambda: isinstance(c("EXTEND", "k", fence, 600000), Error), "the server notices it")
    check_error(c("ACQUIRE", "x", "LEASE", 1000), "IO", "moved or replaced")
    check(c("CHECK", "k", fence), 1)
    os.rename(t.path("data/mine"), t.path("data/journal"))
    t.until(lambda: isinstance(c("ACQUIRE", "x", "LEASE", 30000), list), "it works again")
    check(s.crash().client()("CHECK", "k", fence), 1)


@test
def a_journal_that_was_removed_is_written_again(t):
    s, c = start(t).with_clients(1)
    fence = c.acquire("k", "LEASE", 600000)
    os.unlink(t.path("data/journal"))
    t.until(lambda: os.path.exists(t.path("data/journal")), "a new file")
    t.until(lambda: isinstance(c("ACQUIRE", "x", "LEASE", 30000), list), "leases are granted")
    check(s.crash().client()("CHECK", "k", fence), 1)


@test
def a_directory_that_was_moved_away_rejects_leases(t):
    s, c = start(t).with_clients(1)
    fence = c.acquire("k", "LEASE", 600000)
    os.rename(t.path("data"), t.path("elsewhere"))
    t.until(lambda: isinstance(c("EXTEND", "k", fence, 600000), Error), "the server notices it")
    os.rename(t.path("elsewhere"), t.path("data"))
    t.until(lambda: isinstance(c("ACQUIRE", "x", "LEASE", 30000), list), "it works again")


@test
def a_copy_of_a_directory_is_another_life(t):
    """It may be old, so short leases are not trusted and new grants wait."""
    s, c = start(t).with_clients(1)
    long, short = c.acquire("long", "LEASE", 600000), c.acquire("short", "LEASE", 30000)
    s.kill()
    subprocess.run(["cp", "-a", t.path("data"), t.path("copy")], check=True)
    s = start(t, directory="copy")
    check_that("restored the long leases" in s.log, s.log)
    c = s.client()
    check(c("CHECK", "long", long), 1)
    s.kill()
    os.rename(t.path("data"), t.path("moved"))
    s = start(t, directory="moved")
    c = s.client()
    check([c("CHECK", "long", long), c("CHECK", "short", short)], [1, 1], "a moved directory has the same files")
    c.acquire("new", "LEASE", 1000)


@test
def a_server_without_its_lock_file_still_has_the_directory(t):
    s, c = start(t).with_clients(1)
    fence = c.acquire("k", "LEASE", 600000)
    os.unlink(t.path("data/lock"))
    refused(t, "another server uses this directory")
    check(c("CHECK", "k", fence), 1)
    s.kill()
    os.unlink(t.path("data/lock"))
    check(start(t).client()("CHECK", "k", fence), 1)


# --- A slow disk -----------------------------------------------------------------------------------


def slow(t):
    shims = Shims(t)
    s = start(t, env=shims.env)
    s.client().acquire("warm", "LEASE", 2000)
    shims.sync(-1)
    return shims, s


@test
def a_slow_disk_delays_no_request_without_disk_access(t):
    shims, s = slow(t)
    c, other, asks = s.clients(3)
    c.send("ACQUIRE", "k", "LEASE", 600000).send("PING")
    t.until(lambda: s.number("deferred_commands", other) == 1, "it waits for the disk")
    check(s.number("blocked_clients", other), 1)
    fence = other.acquire("short", "LEASE", 1500)
    other.acquire("bare")
    check([other("EXTEND", "short", fence, 1900), other("PING")], [1900, "PONG"])
    asks.send("READ", "k")  # It would show a grant that is not acknowledged.
    t.until(lambda: s.number("deferred_commands", other) == 2, "it waits as well")
    check_that(c.quiet() and asks.quiet(), "no answers yet")
    time.sleep(0.02)
    shims.sync(0)
    got = c.reply()
    check([got[1], got[2], got[4]], [1, 600000, 0])
    check(c.reply(), "PONG", "what was sent behind it")
    check(asks.reply()[1], got[0])
    check(s.number("deferred_commands", other), 0)


@test
def a_server_whose_sync_does_not_end_is_not_ready(t):
    shims, s = slow(t)
    c, other = s.clients(2)
    c.send("ACQUIRE", "k", "LEASE", 600000)
    t.until(lambda: s.number("deferred_commands", other) == 1, "it waits for the disk")
    check(other("READY"), "READY")
    shims.clock(0, 10)
    check_error(other("READY"), "NOTREADY", "disk: a sync of the journal has been running for 1")
    t.until(lambda: "a sync of the journal has been running" in s.log, "the log says so")
    shims.sync(0)
    check(c.reply()[1], 1)
    t.until(lambda: other("READY") == "READY", "it is ready again")


@test
def no_reply_leaves_before_its_record_is_written(t):
    shims = Shims(t)
    s, c, other = start(t, env=shims.env).with_clients(2)
    fence = c.acquire("k", "LEASE", 30000)
    shims.write(-1)
    c.send("ACQUIRE", "new", "LEASE", 30000)
    t.until(lambda: shims.blocked_writes() == 1, "the server writes the grant")
    check_that(not c.ready(0.3), "no reply to ACQUIRE")
    shims.write(0)
    check(c.reply()[1:3], [1, 30000])
    shims.write(-1)
    c.send("EXTEND", "k", fence, 31000)
    t.until(lambda: shims.blocked_writes() == 2, "the server writes the extension")
    check_that(not c.ready(0.3), "no reply to EXTEND")
    shims.write(0)
    check(c.reply(), 31000)


@test
def a_request_for_a_key_whose_grant_waits_for_the_disk_waits_as_well(t):
    shims, s = slow(t)
    c, other, watch = s.clients(3)
    c.send("ACQUIRE", "k", "LEASE", 600000)
    t.until(lambda: s.number("deferred_commands", watch) == 1, "it waits for the disk")
    other.send("ACQUIRE", "k")
    t.until(lambda: s.number("deferred_commands", watch) == 2, "null would show the grant")
    check_that(other.quiet(), "no answer yet")
    shims.sync(0)
    check([c.reply()[1], other.reply()], [1, None])


@test
def an_extension_waits_for_the_disk_if_its_bound_is_new(t):
    shims, s = slow(t)
    c, watch = s.clients(2)
    shims.sync(0)
    fence = c.acquire("k", "LEASE", 600000)
    shims.sync(-1)
    c.send("EXTEND", "k", fence, 900000)
    t.until(lambda: s.number("deferred_commands", watch) == 1, "it waits for the disk")
    check_that(c.quiet(), "no answer yet")
    shims.sync(0)
    check(c.reply(), 900000)
    for command in (("BREAK", "k", fence), ("DRAIN", "d*", "ON"), ("DRAIN", "d*", "OFF")):
        shims.sync(-1)
        c.send(*command)
        t.until(lambda: s.number("deferred_commands", watch) == 1, "it waits for the disk")
        check_that(c.quiet(), "no answer yet")
        shims.sync(0)
        check(c.reply(), 1)


@test
def a_waiter_is_granted_when_its_lease_is_durable(t):
    shims, s = slow(t)
    c, w, watch = s.clients(3)
    c.acquire("k")
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER, "LEASE", 600000, by=watch)
    check(c("RELEASE", "k"), 1)
    t.until(lambda: s.number("deferred_commands", watch) == 1, "it waits for the disk")
    check_that(w.quiet(), "no answer yet")
    shims.sync(0)
    check(w.reply()[1:3], [1, 600000])


@test
def requests_that_wait_for_the_disk_are_served_in_order(t):
    shims, s = slow(t)
    clients = s.clients(20)
    c = s.client()
    for i, one in enumerate(clients):
        one.send("ACQUIRE", "k", "PER", 100, "LEASE", 600000 if i % 3 else 3600000)
        t.until(lambda: s.number("deferred_commands", c) == i + 1, "it waits for the disk")
    syncs = s.number("journal_syncs", c)
    shims.sync(0)
    got = [one.reply()[0] for one in clients]
    check(got, sorted(got))
    check_that(s.number("journal_syncs", c) <= syncs + 3, "one sync serves many requests")


@test
def a_grant_after_a_release_that_is_not_durable_waits_for_the_disk(t):
    """Otherwise the released lease would return after a power failure, with a new holder."""
    shims = Shims(t)
    s, c, other = start(t, env=shims.env).with_clients(2)
    fence = c.acquire("k", "LEASE", 600000)
    bare = c.acquire("bare", "LEASE", 600000)
    shims.sync(-1)
    check([c("RELEASE", "k", fence), c("RELEASE", "bare", bare)], [1, 1])
    c.send("ACQUIRE", "k", "LEASE", 1000)
    other.send("ACQUIRE", "bare")
    watch = s.client()
    t.until(lambda: s.number("deferred_commands", watch) == 2, "both wait for the disk")
    shims.sync(0)
    check([c.reply()[1], other.reply()[1]], [1, 1])


@test
def a_client_that_leaves_while_it_waits_for_the_disk_gets_nothing(t):
    shims, s = slow(t)
    c, gone, half = s.clients(3)
    gone.send("ACQUIRE", "gone", "LEASE", 600000)
    half.send("ACQUIRE", "half", "LEASE", 600000)
    t.until(lambda: s.number("deferred_commands", c) == 2, "both wait for the disk")
    gone.reset()
    t.until(lambda: s.number("deferred_commands", c) == 1, "one has gone")
    half.socket.shutdown(1)  # It said all it had to say, and listens.
    shims.sync(0)
    check(half.reply()[1:3], [1, 600000])
    check(half.until_closed(), b"")
    t.until(lambda: s.number("connected_clients", c) <= 2, "they have gone")
    check(c("READ", "gone"), None)
    check(c("READ", "half")[2] > 0, True)


def hears_nothing(sub):
    """A subscriber with RESP3 has got nothing so far."""
    check(sub("PING"), "PONG")
    check(sub.pushes, [])


def next_events(sub, count, key="k"):
    """The next events of a key, without what varies."""
    found = [sub.message() for _ in range(count)]
    check({channel for channel, _ in found}, {"lock:" + key})
    return [re.sub(r" (\w+_ms|held)=-?\d+", "", text) for _, text in found]


def to_be_durable(t, s, watch, count=1):
    t.until(lambda: s.number("deferred_commands", watch) == count, "they wait for the disk")


@test
def events_of_a_grant_and_of_an_extension_wait_for_the_disk(t):
    shims, s = slow(t)
    c, watch, sub = s.client(), s.client(), s.client(3).subscribe("lock:k")
    c.send("ACQUIRE", "k", "LEASE", 600000)
    to_be_durable(t, s, watch)
    hears_nothing(sub)
    shims.sync(0)
    fence = c.reply()[0]
    check(next_events(sub, 1), ["granted %d" % fence])
    shims.sync(-1)
    c.send("EXTEND", "k", fence, 900000)
    to_be_durable(t, s, watch)
    hears_nothing(sub)
    shims.sync(0)
    check(c.reply(), 900000)
    check(next_events(sub, 1), ["extended %d" % fence])


@test
def events_of_break_wait_for_the_disk(t):
    """So does what would show it: CHECK, a grant to the next client, AWAIT."""
    shims = Shims(t)
    s, c, asks, waits, seen, watch = start(t, env=shims.env).with_clients(5)
    sub = s.client(3).subscribe("lock:k")
    holder = s.client(3)
    fence = holder.acquire("k", "LEASE", 30000)
    check(next_events(sub, 1), ["granted %d" % fence])
    for last in (True, False):
        shims.sync(-1)
        c.send(*(["BREAK", "k", fence] + ([] if last else ["NOW"])))
        to_be_durable(t, s, watch)
        asks.send("CHECK", "k", fence)
        to_be_durable(t, s, watch, 2)
        if not last:
            waits.send("ACQUIRE", "k")
            seen.send("AWAIT", "k", "FREE", FOREVER)
            to_be_durable(t, s, watch, 4)
        check_that(c.quiet() and asks.quiet() and waits.quiet() and seen.quiet(), "no replies")
        hears_nothing(sub)
        hears_nothing(holder)
        shims.sync(0)
        check([c.reply(), asks.reply()], [1, 1] if last else [2, 0])
        if last:
            check(next_events(sub, 1), ["broken %d why=last-lease" % fence])
            check(holder.push()[1:], [b"k", b"broken", fence])
        else:
            next = waits.reply()[0]
            check(next_events(sub, 2),
                  ["released %d why=break" % fence, "granted %d overlapping=1" % next])
    waits("RELEASE", "k")
    check(seen.reply(), 1)


@test
def break_is_published_although_its_client_has_left(t):
    shims = Shims(t)
    s, c, gone, watch = start(t, env=shims.env).with_clients(3)
    sub = s.client(3).subscribe("lock:k")
    fence = c.acquire("k", "LEASE", 30000)
    check(next_events(sub, 1), ["granted %d" % fence])
    shims.sync(-1)
    gone.send("BREAK", "k", fence, "NOW")
    to_be_durable(t, s, watch)
    gone.reset()
    to_be_durable(t, s, watch, 0)
    hears_nothing(sub)
    shims.sync(0)
    check(next_events(sub, 1), ["broken %d" % fence])


@test
def break_is_published_when_a_failed_journal_works_again(t):
    shims = Shims(t)
    s, c = start(t, env=shims.env).with_clients(1)
    sub = s.client(3).subscribe("lock:k")
    fence = c.acquire("k", "LEASE", 30000)
    check(next_events(sub, 1), ["granted %d" % fence])
    shims.disk(errno.EIO)
    shims.sync(errno.EIO)
    check_error(c("BREAK", "k", fence, "NOW"), "IO")
    hears_nothing(sub)
    shims.sync(0)
    shims.disk(0)
    check(next_events(sub, 1), ["broken %d" % fence])
    check(c("READY"), "READY")


@test
def a_watcher_is_told_of_a_grant_when_it_is_durable(t):
    shims, s = slow(t)
    c, seen, watch = s.clients(3)
    seen.send("AWAIT", "k", "HELD", FOREVER)
    t.until(lambda: s.number("blocked_clients", watch) == 1, "it waits")
    c.send("ACQUIRE", "k", "LEASE", 600000)
    to_be_durable(t, s, watch, 2)
    check_that(c.quiet() and seen.quiet(), "no replies")
    shims.sync(0)
    check([c.reply()[1], seen.reply()], [1, 1])


@test
def a_watcher_waits_on_if_the_grant_could_not_be_written(t):
    shims, s = slow(t)
    c, seen, watch = s.clients(3)
    seen.send("AWAIT", "k", "HELD", FOREVER)
    t.until(lambda: s.number("blocked_clients", watch) == 1, "it waits")
    c.send("ACQUIRE", "k", "LEASE", 600000)
    to_be_durable(t, s, watch, 2)
    shims.sync(errno.EIO)
    check_error(c.reply(), "IO")
    shims.sync(0)
    to_be_durable(t, s, watch, 0)
    check_that(seen.quiet(), "nobody holds it")
    t.until(lambda: watch("READY") == "READY", "the journal works again")
    c.acquire("k")
    check(seen.reply(), 1)


@test
def a_holder_is_asked_after_it_was_granted(t):
    shims, s = slow(t)
    c, thief, watch = s.client(3), s.client(3), s.client()
    sub = s.client(3).subscribe("lock:k")
    c.send("ACQUIRE", "k", "LEASE", 600000)
    to_be_durable(t, s, watch)
    thief.send("ACQUIRE", "k", "WAIT", FOREVER, "PRIORITY", 5, "STEAL")
    t.until(lambda: s.number("blocked_clients", watch) == 2, "the thief waits")
    hears_nothing(sub)
    check_that(c.quiet() and thief.quiet(), "nothing is pushed")
    shims.sync(0)
    got = c.value(time.monotonic() + c.patience_s)
    fence = got[0]
    check(c.push()[1:], [b"k", b"asked", fence])
    check(thief.push()[1:4], [b"k", b"waits", fence])
    check(next_events(sub, 2), ["granted %d" % fence, "asked %d priority=5" % fence])


@test
def a_robbed_holder_is_told_when_the_grant_of_the_thief_is_durable(t):
    shims = Shims(t)
    s, watch = start(t, env=shims.env).with_clients(1)
    sub, c, thief = s.client(3).subscribe("lock:k"), s.client(3), s.client(3)
    fence = c.acquire("k", "LEASE", 600000)
    check(next_events(sub, 1), ["granted %d" % fence])
    shims.sync(-1)
    thief.send("ACQUIRE", "k", "WAIT", 60000, "LEASE", 600000, "PRIORITY", 5, "STEAL", 0)
    to_be_durable(t, s, watch)
    check(next_events(sub, 1), ["asked %d priority=5" % fence])
    check(c.push()[1:], [b"k", b"asked", fence])
    check(thief.push()[1:4], [b"k", b"waits", fence])
    hears_nothing(sub)
    check_that(c.quiet() and thief.quiet(), "nothing is pushed")
    shims.sync(0)
    got = thief.reply()[0]
    check(next_events(sub, 2),
          ["granted %d overlapping=1" % got, "stolen %d overlapping=1" % fence])
    check(c.push()[1:], [b"k", b"stolen", fence])


@test
def what_drain_rejects_is_rejected_when_it_is_durable(t):
    shims, s = slow(t)
    c, w, new, lists, watch = s.clients(5)
    c.acquire("k")
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER, by=watch)
    lists.send("PING")
    check(lists.reply(), "PONG")
    c.send("DRAIN", "k*", "ON")
    to_be_durable(t, s, watch, 2)
    new.send("ACQUIRE", "k2")
    lists.send("DRAIN")
    to_be_durable(t, s, watch, 4)
    check_that(all(one.quiet() for one in (c, w, new, lists)), "no replies")
    shims.sync(0)
    check([c.reply(), lists.reply()], [1, [b"k*"]])
    check_error(w.reply(), "DRAINED")
    check_error(new.reply(), "DRAINED")


@test
def an_extension_that_does_not_become_durable_is_undone(t):
    shims, s = slow(t)
    shims.sync(0)
    c, other, gone, asks, watch = s.clients(5)
    options = {"k": (), "counted": ("PER", 3), "left": ()}
    fences = {key: c.acquire(key, "LEASE", 600000, "VALUE", "old", *words) for key, words in options.items()}
    shims.sync(-1)
    c.send("EXTEND", "k", fences["k"], 900000, "VALUE", "new")
    other.send("EXTEND", "counted", fences["counted"], 900000, "VALUE", "another")
    gone.send("EXTEND", "left", fences["left"], 900000)
    t.until(lambda: s.number("deferred_commands", watch) == 3, "they wait for the disk")
    later = s.client().send("EXTEND", "k", fences["k"], 1200000)
    t.until(lambda: s.number("deferred_commands", watch) == 4, "it waits as well")
    asks.send("READ", "k")
    t.until(lambda: s.number("deferred_commands", watch) == 5, "it would show the extensions")
    gone.reset()
    t.until(lambda: s.number("deferred_commands", watch) == 4, "one has gone")
    shims.sync(errno.EIO)
    for one in (c, other, later):
        check_error(one.reply(), "IO")
    check(asks.reply()[1], fences["k"])
    for key, fence in fences.items():
        value, newest, left = watch("READ", key)[:3]
        check([value, newest], [b"old", fence], key)
        check_that(0 < left <= 600000, "%d ms of %s are left" % (left, key))
        check(watch("CHECK", key, fence), 1)
        check_that(pairs(s.explain(key, watch)["holders"][0])["lease_ms"] <= 600000, "EXPLAIN shows the same")
    shims.sync(0)
    t.until(lambda: c("EXTEND", "k", fences["k"], 900000, "VALUE", "new") == 900000, "the journal works again")
    s, c = s.crash().with_clients(1)
    check(c("READ", "k")[0], b"new")
    check_that(600000 < c("READ", "k")[2] <= 900000, "the lease was extended")
    check_that(c("READ", "left")[2] <= 600000, "this one was not")


def leaves(gone, how, watch, number):
    """The connection of a client ends. It has not closed it, so the server need not answer it."""
    if how == "reset":
        gone.reset()
    else:
        check(watch("CLIENT", "KILL", "ID", number), 1)


def an_extension_stays_although_its_client_has_left(t, how):
    shims, s = slow(t)
    shims.sync(0)
    c, gone, short, watch = s.clients(4)
    number = gone("CLIENT", "ID")
    fence = c.acquire("k", "LEASE", 100000, "VALUE", "old")
    shims.sync(-1)
    gone.send("EXTEND", "k", fence, 900000, "VALUE", "gone")
    to_be_durable(t, s, watch)
    short.send("EXTEND", "k", fence, 1000, "VALUE", "new")
    to_be_durable(t, s, watch, 2)
    leaves(gone, how, watch, number)
    to_be_durable(t, s, watch)
    shims.sync(0)
    left = short.reply()
    check_that(100000 < left <= 900000, "%d ms are left" % left)
    check_that(100000 < watch("READ", "k")[2] <= 900000, "the lease lasts as long as the reply says")
    check(watch("READ", "k")[:2], [b"new", fence])
    s, c = s.crash().with_clients(1)
    check(c("READ", "k")[:2], [b"new", fence])
    check_that(100000 < c("READ", "k")[2] <= 900000, "after a crash as well")


def an_extension_whose_client_has_left_is_undone_if_it_does_not_become_durable(t, how, ms):
    shims, s = slow(t)
    shims.sync(0)
    c, gone, other, watch = s.clients(4)
    number = gone("CLIENT", "ID")
    fence = c.acquire("k", "LEASE", 100000, "VALUE", "old")
    shims.sync(-1)
    gone.send("EXTEND", "k", fence, 900000, "VALUE", "gone")
    to_be_durable(t, s, watch)
    other.send("EXTEND", "k", fence, ms, "VALUE", "new")
    to_be_durable(t, s, watch, 2)
    leaves(gone, how, watch, number)
    to_be_durable(t, s, watch)
    shims.sync(errno.EIO)
    check_error(other.reply(), "IO")
    check_lease(watch, "k", b"old", fence, 100000)
    shims.sync(0)
    t.until(lambda: watch("READY") == "READY", "the journal works again")
    check_lease(watch, "k", b"old", fence, 100000)
    s, c = s.crash().with_clients(1)
    check_lease(c, "k", b"old", fence, 100000)


for how in ("reset", "kill"):
    test_of("an_extension_stays_although_its_client_has_left_by_" + how,
            an_extension_stays_although_its_client_has_left, how)
    for word, ms in (("shorter", 1000), ("longer", 1200000)):
        test_of("an_extension_whose_client_has_left_by_%s_is_undone_after_a_%s_one" % (how, word),
                an_extension_whose_client_has_left_is_undone_if_it_does_not_become_durable, how, ms)


@test
def a_grant_that_ended_while_its_extension_waited_for_the_disk_is_lost(t):
    shims, s = slow(t)
    shims.sync(0)
    c, releases, watch = s.clients(3)
    fence = c.acquire("k", "LEASE", 100000)
    shims.sync(-1)
    c.send("EXTEND", "k", fence, 900000)
    to_be_durable(t, s, watch)
    check(releases("RELEASE", "k", fence), 1)
    shims.sync(0)
    check_error(c.reply(), "LOST")


def sends_in_vain(c, *commands):
    """The commands of one loop iteration whose records cannot be written. The server closes the
    connection, unless an earlier write has failed: the server writes the limit of fences, too."""
    try:
        c.send_raw(b"".join(map(encode, commands))).reply()
    except Closed:
        pass


def check_lease(c, key, value, fence, ms_max):
    """A key has this holder and value, and a lease of at most ms_max."""
    got = c("READ", key)
    check(got[:2], [value, fence], key)
    check_that(0 < got[2] <= ms_max, "%d ms of %s are left" % (got[2], key))
    check(c("CHECK", key, fence), 1)
    check_that(0 < pairs(pairs(c("EXPLAIN", key))["holders"][0])["lease_ms"] <= ms_max, "EXPLAIN shows the same")


@test
def short_leases_and_extensions_whose_write_failed_are_undone(t):
    shims = Shims(t)
    s, c, holder, watch = start(t, env=shims.env).with_clients(3)
    options = {"k": (), "counted": ("PER", 3), "parked": ()}
    fences = {key: holder.acquire(key, "LEASE", 30000, "VALUE", "old", *words) for key, words in options.items()}
    kept, left = holder.acquire("kept", "LEASE", 30000), holder.acquire("left", "LEASE", 30000)
    shims.write(errno.EIO)
    sends_in_vain(c, ("ACQUIRE", "new", "LEASE", 30000), ("ACQUIRE", "several", "PER", 3, "LEASE", 30000),
                  ("RELEASE", "left", left), ("ACQUIRE", "left", "LEASE", 30000),
                  *(("EXTEND", key, fences[key], ms, *words) for key in ("k", "counted")
                    for ms, words in ((40000, ("VALUE", "newer")), (50000, ()))),
                  ("EXTEND", "parked", fences["parked"], 50000),
                  ("EXTEND", "parked", fences["parked"], 600000, "VALUE", "newest"))  # it waits for a sync
    check([watch("READ", key) for key in ("new", "several", "left")], [None] * 3)
    for key, fence in fences.items():
        check_lease(watch, key, b"old", fence, 30000)
    check(watch("CHECK", "kept", kept), 1)
    check(sorted(pairs(row)["key"] for row in watch("LOCKS")[1]), [b"counted", b"k", b"kept", b"parked"])
    check_error(watch("ACQUIRE", "left"), "IO")  # the file may still show the old lease
    check_error(watch("ACQUIRE", "new", "LEASE", 1000), "IO")
    shims.write(0)
    t.until(lambda: watch("READY") == "READY", "the journal works again")
    new = watch.acquire("new", "LEASE", 30000)
    s, c = s.crash().with_clients(1)
    check([c("CHECK", "kept", kept), c("CHECK", "new", new), c("READ", "several")], [1, 1, None])
    for key, fence in fences.items():
        check_lease(c, key, b"old", fence, 30000)


@test
def a_waiter_whose_lease_could_not_be_written_holds_nothing(t):
    shims = Shims(t)
    s, c, first, second, watch = start(t, env=shims.env).with_clients(4)
    fence = c.acquire("k", "LEASE", 30000)
    s.waits(first, "ACQUIRE", "k", "LEASE", 30000, "WAIT", FOREVER, by=watch)
    s.waits(second, "ACQUIRE", "k", "LEASE", 30000, "WAIT", FOREVER, count=2, by=watch)
    shims.write(errno.EIO)
    sends_in_vain(c, ("RELEASE", "k", fence))
    t.until(lambda: s.waiters("k", watch) == 0, "both have left the queue")
    check_error(second.reply(), "IO")
    check(watch("READ", "k"), None)
    shims.write(0)
    t.until(lambda: watch("READY") == "READY", "the journal works again")
    check(s.crash().client()("READ", "k"), None)


@test
def a_failed_sync_does_not_undo_what_was_acknowledged(t):
    shims, s = slow(t)
    c, watch = s.clients(2)
    fence = c.acquire("k", "LEASE", 20000, "VALUE", "old")
    check(c("EXTEND", "k", fence, 40000, "VALUE", "new"), 40000)
    c.send("ACQUIRE", "long", "LEASE", 600000)
    to_be_durable(t, s, watch)
    shims.sync(errno.EIO)
    check_error(c.reply(), "IO")
    check([watch("READ", "long"), watch("CHECK", "k", fence)], [None, 1])
    value, _, left = watch("READ", "k")[:3]
    check_that(value == b"new" and left > 20000, "%r, %d ms are left" % (value, left))


@test
def extensions_are_undone_before_their_connections_are_closed(t):
    shims, s = slow(t)
    shims.sync(0)
    subscriber, c, other, watch = s.client(3), *s.clients(3)
    subscriber.subscribe("lock:x")
    fence = c.acquire("k", "LEASE", 600000, "VALUE", "old")
    shims.sync(-1)
    subscriber.send("EXTEND", "k", fence, 900000, "VALUE", "new")
    to_be_durable(t, s, watch)
    c.send("EXTEND", "k", fence, 1200000)
    to_be_durable(t, s, watch, 2)
    shims.write(errno.EIO)
    sends_in_vain(other, ("ACQUIRE", "x", "LEASE", 20000))  # the subscriber hears of it, so it is closed
    check_error(c.reply(), "IO")
    check_lease(watch, "k", b"old", fence, 600000)
    shims.sync(0)
    shims.write(0)
    t.until(lambda: watch("READY") == "READY", "the journal works again")


class Traffic:
    """Clients that send many commands at once, so that during each sync the next one is due."""

    def __init__(self, t, s, shims, count, *commands):
        self.fences, self.left = set(), []
        watch = s.client()
        for i, c in enumerate(s.clients(count)):
            c.send_raw(b"".join(map(encode, commands)) * (60 // len(commands)))
            self.left.append([c, 60])
            t.until(lambda: s.number("deferred_commands", watch) == i + 1, "it waits for the disk")
        shims.sync_ms(15)

    def collect(self):
        """The fences that were acknowledged so far."""
        for one in self.left:
            while one[1] > 0 and one[0].ready():
                try:
                    reply = one[0].reply()
                except Closed:
                    one[1] = 0
                    break
                one[1] -= 1
                if isinstance(reply, list):
                    self.fences.add(reply[0])
        return self.fences

    @property
    def ended(self):
        self.collect()
        return not any(n for _, n in self.left)


def what_is_shown_is_durable(t, shown, *command):
    """A key that changes all the time delays no reply forever, but the reply shows only what is
    durable: the holder is told of it without another sync."""
    shims, s = slow(t)
    asks, watch = s.clients(2)
    traffic = Traffic(t, s, shims, 2, ("ACQUIRE", "k", "PER", 1000, "LEASE", 600000))
    asks.send(*command)
    t.until(lambda: s.number("deferred_commands", watch) == 3, "it waits for the disk")
    check(s.number("blocked_clients", watch), 3)
    while not asks.ready():
        syncs = s.number("journal_syncs", watch)
        shims.sync(-2)
        t.until(lambda: s.number("journal_syncs", watch) > syncs, "one sync has ended")
    reply = asks.reply()
    t.until(lambda: shown(reply, traffic.collect()), "all that %r shows was acknowledged" % (command,))
    shims.sync_ms(0)
    shims.sync(0)
    t.until(lambda: traffic.ended, "all were granted")


for name, shown, command in (
        ("READ", lambda reply, known: reply[1] in known, ("READ", "k")),
        ("EXPLAIN", lambda reply, known: {pairs(h)["fence"] for h in pairs(reply)["holders"]} <= known,
         ("EXPLAIN", "k")),
        ("LOCKS", lambda reply, known: pairs(reply[1][0])["held"] <= len(known), ("LOCKS", "MATCH", "k"))):
    test_of("what_%s_shows_of_a_busy_key_is_durable" % name, what_is_shown_is_durable, shown, *command)


@test
def a_reader_of_a_busy_key_sees_only_grants_that_were_acknowledged(t):
    shims, s = slow(t)
    asks = s.client()
    traffic = Traffic(t, s, shims, 4, ("ACQUIRE", "k", "PER", 4, "LEASE", 600000), ("RELEASE", "k"))
    shims.sync(0)
    seen = set()
    while not traffic.ended:
        reply = asks("READ", "k")
        if reply is None or reply[1] in seen:
            continue
        seen.add(reply[1])
        shims.sync(-1)
        t.until(lambda: reply[1] in traffic.collect(), "its client knows of %d" % reply[1])
        shims.sync(0)
    check_that(seen, "the reader has seen some")


def replies_wait_for_the_disk(t):
    """One client reads a busy key, until its replies wait for the disk."""
    shims, s = slow(t)
    asks, watch = s.clients(2)
    traffic = Traffic(t, s, shims, 2, ("ACQUIRE", "k", "PER", 1000, "LEASE", 600000))
    asks.send("READ", "k").send("READ", "k").send("READ", "k")
    syncs = s.number("journal_syncs", watch)
    shims.sync(0)
    t.until(lambda: s.number("journal_syncs", watch) >= syncs + 9, "it was parked often enough")
    return shims, s, traffic, asks, watch


@test
def an_error_while_a_reply_waits_for_the_disk(t):
    shims, s, traffic, asks, watch = replies_wait_for_the_disk(t)
    shims.sync(errno.EIO)
    for _ in range(3):
        fence = asks.reply()[1]
        t.until(lambda: fence in traffic.collect(), "its client knows of %d" % fence)
    shims.sync_ms(0)
    shims.sync(0)
    t.until(lambda: traffic.ended, "all were answered")
    t.until(lambda: isinstance(watch("ACQUIRE", "x", "LEASE", 600000), list), "the journal works again")
    s.end()


@test
def a_stop_while_a_reply_waits_for_the_disk(t):
    shims, s, traffic, asks, watch = replies_wait_for_the_disk(t)
    shims.sync(-1)
    s.signal(signal.SIGTERM)
    replies = [asks.reply()]
    while not isinstance(replies[-1], Error):
        replies.append(asks.reply())
    check_error(replies.pop(), "SHUTDOWN")
    t.until(lambda: {reply[1] for reply in replies} <= traffic.collect(), "their clients know of them")
    shims.sync(0)
    check(s.status, 0, "the exit status")


@test
def a_stop_while_the_disk_is_slow(t):
    shims, s = slow(t)
    c, other = s.clients(2)
    held = other.acquire("k", "LEASE", 30000)
    c.send("ACQUIRE", "x", "LEASE", 600000)
    t.until(lambda: s.number("deferred_commands", other) == 1, "it waits for the disk")
    s.signal(signal.SIGTERM)
    check_error(c.reply(), "SHUTDOWN")
    shims.sync(0)
    check(s.status, 0)
    s, c = start(t, env=shims.env).with_clients(1)
    check([c("CHECK", "k", held), c("READ", "x")], [1, None])


# --- Which directory --------------------------------------------------------------------------------


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@test
def auto_is_a_directory_of_the_port(t):
    port = free_port()
    env = {"XDG_STATE_HOME": None, "STATE_DIRECTORY": None}
    s = t.server(port=port, env=env)
    directory = t.path(".local/state/sluice/%d" % port)
    check(s.info()["data"], directory)
    fence = s.client().acquire("k", "LEASE", 60000)
    s.end()
    s = t.server(port=port, env=env)
    check(s.client()("CHECK", "k", fence), 1)
    s.end()
    s = t.server(port=port, env=dict(env, XDG_STATE_HOME=t.path("xdg")))
    check(s.info()["data"], t.path("xdg/sluice/%d" % port))
    s.end()
    s = t.server(env=dict(env, STATE_DIRECTORY=t.path("service") + ":" + t.path("other")))
    check(s.info()["data"], t.path("service"))


def without_a_directory(t, options, env, words):
    s = t.server(*options, env=dict({"XDG_STATE_HOME": None, "STATE_DIRECTORY": None}, **env))
    check_that(words in s.log, "it says %r: %s" % (words, s.log))
    check(s.info()["data"], "")
    check(s.info()["journal_bytes"], "0")
    s.client().acquire("k", "LEASE", 60000)
    check_that(not os.path.exists(t.path(".local")), "nothing was made")


test_of("auto_is_none_for_a_port_that_is_not_fixed", without_a_directory, (), {},
        "warn data: no data directory")
test_of("none_is_none", without_a_directory, ("--data", "none"), {}, "warn data: no data directory")
test_of("an_empty_name_is_none", without_a_directory, ("--data", ""), {}, "warn data: no data directory")


@test
def auto_is_none_where_no_directory_has_a_name(t):
    for env in ({"HOME": None}, {"HOME": "relative"}):
        env.update(XDG_STATE_HOME=None, STATE_DIRECTORY=None)
        s = t.server(port=free_port(), env=env)
        check_that("warn data: no data directory" in s.log, "it says so")
        check(s.info()["data"], "")


@test
def auto_stops_if_it_cannot_create_the_directory(t):
    """It may have been in use a moment ago."""
    env = dict(os.environ, HOME=t.write("file", "x"))
    for name in ("XDG_STATE_HOME", "STATE_DIRECTORY"):
        env.pop(name, None)
    p = subprocess.run([tap.program, "--port", str(free_port())], env=env, timeout=60,
                       stderr=subprocess.PIPE)
    check(p.returncode, 1)
    check_that(b"--data none" in p.stderr, "it says what to do: %r" % p.stderr)


# --- Pauses, and clocks that step ----------------------------------------------------------------


@test
def a_server_that_was_stopped_for_a_while_breaks_no_promise(t):
    """SIGSTOP: what ended meanwhile has ended, what did not is held; nobody is told twice."""
    s, c, w, sub = start(t).with_clients(3)
    sub.subscribe("lock:short", "lock:long")
    sent = boot_ms()
    short, long = c.acquire("short", "LEASE", 800), c.acquire("long", "LEASE", 60000)
    left = c("READ", "long")[2]
    s.waits(w, "ACQUIRE", "short", "WAIT", FOREVER, "LEASE", 60000)
    stop(t, s.pid)
    c.send("EXTEND", "short", short, 60000)
    paused = boot_ms()
    t.until(lambda: boot_ms() > max(sent + 900, paused + 600), "the short lease is over")
    s.signal(signal.SIGCONT)
    check_error(c.reply(), "LOST")
    got = w.reply()
    check_that(got[0] > long > short, "fences rise")
    check(c("CHECK", "short", short), 0)
    check([c("CHECK", "long", long), c("EXTEND", "long", long, 60000)], [1, 60000])
    check_that(left - (boot_ms() - sent) <= c("READ", "long")[2], "its lease is as long as it was")
    check([sub.message() for _ in range(5)][2:],
          [("lock:short", "expired %d" % short),
           ("lock:short", "granted %d held=1 lease_ms=60000 waited_ms=%d" % (got[0], got[3])),
           ("lock:long", "extended %d lease_ms=60000" % long)])


@test
def a_server_that_is_stopped_is_not_a_crash(t):
    """Another one in its place would have to have its directory, and does not get it."""
    s = start(t)
    s.client().acquire("k", "LEASE", 60000)
    stop(t, s.pid)
    refused(t, "another server uses this directory")
    s.signal(signal.SIGCONT)
    s.still_well()


def a_wall_clock_that_steps_changes_nothing(t, end):
    """F3: over a restart, too."""
    shims = Shims(t)
    last, held = 0, None
    s = start(t, env=shims.env)
    for seconds in (0, 3 * 86400, -3 * 86400, 60, 0):
        shims.clock(seconds)
        c = s.client()
        if held:
            check(c("CHECK", "held", held), 1)
        else:
            held = c.acquire("held", "LEASE", 3600000)
        for _ in range(3):
            new = c.acquire("k", "PER", 1000)
            check_that(new > last, "the fence rises over a step of %d s" % seconds)
            last = new
        left = c("READ", "held")[2]
        check_that(3000000 < left <= 3600000, "the lease is as long as it was, not %d" % left)
        if end:
            s = s.restart()


test_of("a_wall_clock_that_steps_changes_nothing", a_wall_clock_that_steps_changes_nothing, False)
test_of("a_wall_clock_that_steps_between_two_starts_changes_nothing",
        a_wall_clock_that_steps_changes_nothing, True)


@test
def a_machine_that_slept_has_slept_through_leases(t):
    shims = Shims(t)
    s, c, w = start(t, env=shims.env).with_clients(2)
    short, long = c.acquire("short", "LEASE", 60000), c.acquire("long", "LEASE", 86400000)
    s.waits(w, "ACQUIRE", "short", "WAIT", FOREVER)
    shims.clock(3600, 3600)
    check_error(c("EXTEND", "short", short, 1000), "LOST")
    check_that(w.reply()[0] > long, "the next has it")
    left = c("READ", "long")[2]
    check_that(80000000 < left <= 82800000, "an hour less is left, not %d" % left)
    # Asleep between two servers of one boot: that counts, too.
    s.end()
    shims.clock(7200, 7200)
    s = start(t, env=shims.env)
    left = s.client()("READ", "long")[2]
    check_that(76000000 < left <= 79200000, "another hour less is left, not %d" % left)


@test
def a_recovery_ends_while_the_machine_sleeps(t):
    shims = Shims(t)
    s = start(t, env=shims.env)
    s.client().acquire("k", "LEASE", 30000)
    s = power_failure(t, shims, s, "another")
    c, w = s.clients(2)
    check_error(c("ACQUIRE", "k"), "RECOVERING")
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER)
    shims.clock(61, 61)
    check(isinstance(w.reply(), list), True)


main(__doc__)
