#!/usr/bin/python3
"""test_steal.py - stealing over a live server: who is asked, who is told, who gets in.

    tests/server/test_steal.py SERVER [--long] [--jobs N] [PATTERN...]

--long: 200 random runs instead of 10 where a test makes random runs. What draws random
numbers takes its seed from $SLUICE_SEED, or draws and prints one.

P1-P25 are the edge cases of a theft (docs/stealing.md); those that need no connection are
in tests/unit/test_steal.c.
"""
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import Skip, check, check_error, check_that, main, pairs, test, test_of

LONG = "--long" in sys.argv
if LONG:
    sys.argv.remove("--long")
RUNS = 200 if LONG else 10

FOREVER = 10 ** 8  # ms, to wait
HOURS = 10 ** 7    # ms, of a lease
LATE_S = 20        # what a machine that stalls may take for anything
SOON_MS = 50       # what is promised on one that does not: printed, not demanded


def chance():
    seed = int(os.environ.get("SLUICE_SEED") or random.randrange(1 << 32))
    print("# seed %d: SLUICE_SEED=%d replays it" % (seed, seed), flush=True)
    return random.Random(seed)


def thief(s, *options, key="k", priority=5, wait=FOREVER, protocol=3, steal=("STEAL",)):
    """A connection that has sent its wish and waits in the queue."""
    before = s.waiters(key)
    c = s.client(protocol)
    s.waits(c, "ACQUIRE", key, "WAIT", wait, "PRIORITY", priority, *steal, *options, count=before + 1)
    return c


def listener(s, key="k"):
    return s.client().subscribe("lock:" + key)


def events_until(sub, last):
    """Messages on the key, up to the first that begins so."""
    found = []
    while not found or not found[-1].startswith(last):
        found.append(sub.message()[1])
    return found


def plain(events):
    """Without times, which differ."""
    return [" ".join(w for w in e.split() if "_ms=" not in w) for e in events]


def counts(s, client):
    info = s.info(client)
    return {name: int(info[name]) for name in ("asks", "withdrawals", "steals", "overlaps")}


def answers(s, client):
    """The numbers of steal_answer_ms."""
    line = s.info(client)["steal_answer_ms"]
    return {k: int(v) for k, v in (part.split("=") for part in line.split(","))}


# --- The handshake -----------------------------------------------------------------------


@test
def asked_released_granted_with_a_higher_fence(t):
    s = t.server()
    sub, ask = listener(s), s.client()
    victim = s.client(3)
    first = victim.acquire("k", "LEASE", HOURS, "NOTE", "nightly backup")
    b = thief(s, "LEASE", HOURS)
    check(victim.push(), [b"lock", b"k", b"asked", first])
    told = b.push()
    check(told[:4], [b"lock", b"k", b"waits", first], "what the thief is told")
    check_that(0 < told[4] <= HOURS, "what is left is what is left: %d" % told[4])
    check(told[5], b"nightly backup", "the note")
    check_error(victim("EXTEND", "k", first, 60000), "ASKED", "RELEASE it")
    check(victim("CHECK", "k", first), 1, "it is held while it is asked")
    check(victim("RELEASE", "k", first), 1)
    fence, held, lease, waited, overlapping = b.reply()
    check_that(fence > first, "the fence is higher: %d > %d" % (fence, first))
    check((held, lease, overlapping), (1, HOURS, 0))
    check(b("EXTEND", "k", fence, 2 * HOURS), 2 * HOURS, "the thief's own extension")
    check(plain(events_until(sub, "extended")),
          ["granted %d held=1" % first, "asked %d priority=5" % first, "released %d" % first,
           "stolen %d" % first, "granted %d held=1" % fence, "extended %d" % fence])
    check(victim("PING"), "PONG")
    check(victim.pushes, [], "more pushes to the victim")
    check(b.pushes, [], "more pushes to the thief")
    check(counts(s, ask), {"asks": 1, "withdrawals": 0, "steals": 1, "overlaps": 0})
    check(answers(s, ask)["count"], 1, "the answers")


@test
def two_redis_cli(t):
    """What anybody can try by hand."""
    if shutil.which("redis-cli") is None:
        raise Skip("there is no redis-cli")
    s = t.server()

    def cli():
        return t.start("stdbuf", "-oL", "redis-cli", "-p", str(s.port), stdin=subprocess.PIPE)

    def say(p, text):
        p.popen.stdin.write(text.encode() + b"\n")
        p.popen.stdin.flush()

    def line(p, n):
        t.until(lambda: p.out.count("\n") > n, "line %d is printed" % n)
        return p.out.splitlines()[n]

    a, b = cli(), cli()
    say(a, "ACQUIRE k LEASE 600000")
    first = int(line(a, 0))
    say(b, "ACQUIRE k LEASE 600000 WAIT 600000 PRIORITY 1 STEAL")
    s.until_waiting("k", 1)
    line(a, 4)  # the fifth number
    say(a, "EXTEND k %d 600000" % first)
    check(line(a, 5).split()[0], "ASKED", "the answer to EXTEND")
    say(a, "RELEASE k %d" % first)
    check(line(a, 7), "1", "the answer to RELEASE")
    check_that(int(line(b, 0)) > first, "the fence is higher")
    check(line(b, 4), "0", "overlapping")


@test
def a_victim_in_RESP2_hears_of_it_by_its_subscription(t):
    s = t.server()
    victim, ear = s.client(), listener(s)
    first = victim.acquire("k", "LEASE", HOURS)
    b = thief(s, protocol=2)
    check(plain(events_until(ear, "asked")), ["granted %d held=1" % first,
                                              "asked %d priority=5" % first])
    check(victim("RELEASE", "k", first), 1)
    check_that(b.reply()[0] > first, "the thief is in")
    check_that(victim.quiet(), "nothing else was sent to the victim's connection")


@test
def a_grant_is_released_from_another_connection_when_it_is_asked(t):
    """So a pool of connections can answer."""
    s = t.server()
    first = s.client().acquire("k", "LEASE", HOURS)
    b = thief(s)
    check(s.client()("RELEASE", "k", first), 1)
    check_that(b.reply()[0] > first, "the thief is in")


@test
def units_and_readers(t):
    s = t.server()
    sub, c = listener(s), s.client(3)
    low = c.acquire("k", "PER", 3, "LEASE", HOURS, "PRIORITY", 1)
    lowest = c.acquire("k", "PER", 3, "LEASE", HOURS)
    newest = c.acquire("k", "PER", 3, "LEASE", HOURS)
    b = thief(s, "PER", 3, "UNITS", 2, "LEASE", HOURS)
    check([c.push()[2:], c.push()[2:]], [[b"asked", newest], [b"asked", lowest]])
    check_error(s.client()("EXTEND", "k", lowest, HOURS), "ASKED")
    check(c("EXTEND", "k", low, 2 * HOURS), 2 * HOURS, "who is not asked")
    check(c("RELEASE", "k", low), 1)  # one unit less is needed
    check(c.push()[2:], [b"withdrawn", lowest])
    check(c("EXTEND", "k", lowest, 2 * HOURS), 2 * HOURS, "who is not asked any more")
    check(c("ACQUIRE", "k", "PER", 100), None, "what is free is the thief's")
    check(c("RELEASE", "k", newest), 1)
    fence = b.reply()[0]
    reader = thief(s, "SHARED", priority=6)
    check(c.push()[2:], [b"asked", lowest])
    check(b.push()[2:4], [b"waits", newest])  # as it was told before it was in
    told = [b.push()[2:4] for _ in range(2)]
    check(told, [[b"waits", lowest], [b"asked", fence]], "what the first thief is told")
    c("RELEASE", "k", lowest)
    b("RELEASE", "k", fence)
    check(reader.reply()[1:2], [1])
    check(plain(events_until(sub, "granted %d" % pairs(s.explain("k")["holders"][0])["fence"])),
          ["granted %d held=1" % low, "granted %d held=2" % lowest, "granted %d held=3" % newest,
           "asked %d priority=5" % newest, "asked %d priority=5" % lowest, "extended %d" % low,
           "released %d" % low, "withdrawn %d" % lowest, "extended %d" % lowest,
           "released %d" % newest, "stolen %d" % newest, "granted %d held=3" % fence,
           "asked %d priority=6" % lowest, "asked %d priority=6" % fence,
           "released %d" % lowest, "stolen %d" % lowest, "released %d" % fence,
           "stolen %d" % fence, "granted %d held=1" %
           pairs(s.explain("k")["holders"][0])["fence"]])


# --- A victim that does not answer -------------------------------------------------------


class Sleeper(threading.Thread):
    """Sleeps until a time, and tells how many ms too late it woke: what the machine, and
    not the server, is to blame for."""

    def __init__(self, end):
        super().__init__(daemon=True)
        self.end = end
        self.start()

    def run(self):
        time.sleep(max(0, self.end - time.monotonic()))
        self.late = (time.monotonic() - self.end) * 1000


def wait_out(s, draw, key):
    """One run: how many ms after the expiry of the lease the thief holds the lock; and how many a
    sleeper was late for the same moment."""
    lease = draw.randrange(20, 160)
    victim, b = s.client(3), s.client()
    before = time.monotonic()
    fence = victim.acquire(key, "LEASE", lease)
    after = time.monotonic()
    sleeper = Sleeper(after + lease / 1000)
    time.sleep(draw.uniform(0, lease / 2000))  # the thief comes at any moment of the lease
    b.send("ACQUIRE", key, "WAIT", FOREVER, "PRIORITY", draw.randrange(1, 100), "STEAL")
    if draw.random() < 0.5:  # it hears of it, and does not obey
        if victim.push()[2] == b"asked":
            got = victim("EXTEND", key, fence, HOURS)
            check_that(getattr(got, "word", "") in ("ASKED", "LOST"), "it is refused: %r" % got)
    got = b.reply(LATE_S)
    now = time.monotonic()
    check_that(got[0] > fence, "the fence is higher")
    check(got[4], 0, "overlapping")
    check_that(now >= before + lease / 1000, "it is not granted before the lease expires: %.1f of %d ms"
               % ((now - before) * 1000, lease))
    check_that(now <= after + lease / 1000 + LATE_S, "it is in when the lease has ended")
    check_error(victim("EXTEND", key, fence, HOURS), "LOST")
    check(victim("RELEASE", key, fence), 0, "releasing what is over")
    check(b("CHECK", key, got[0]), 1, "what the thief holds")
    victim.close()
    b.close()
    sleeper.join()
    return (now - after) * 1000 - lease, sleeper.late


@test
def P4_who_does_not_answer_is_waited_out_to_the_end_of_its_lease_and_not_longer(t):
    s = t.server()
    draw = chance()
    runs = [wait_out(s, draw, "k%d" % i) for i in range(RUNS)]
    late, slept = (sorted(ms) for ms in zip(*runs))
    print("# %d runs: granted %.1f ms after the expiry of the lease (median), %.1f ms at most; "
          "%d within %d ms. A sleeper woke %.1f ms too late (median), %.1f ms at most" %
          (RUNS, late[RUNS // 2], late[-1], sum(ms <= SOON_MS for ms in late), SOON_MS,
           slept[RUNS // 2], slept[-1]), flush=True)


@test
def P4_a_victim_that_was_stopped_finds_its_grant_lost(t):
    s = t.server()
    wake = t.path("wake")

    def run(say):
        c = s.client()
        fence = c.acquire("k", "LEASE", 700)
        say(fence)
        while not os.path.exists(wake):
            time.sleep(0.005)
        say(c("EXTEND", "k", fence, HOURS).word)  # its first call
        say(c("RELEASE", "k", fence))

    child = t.child(run)
    first = int(child.line())
    child.stop()
    b = thief(s)
    got = b.reply()
    check_that(got[0] > first, "the thief is in")
    t.write("wake", "")
    child.go_on()
    check(child.line(), "LOST", "the first answer to a victim that wakes")
    check(child.line(), "0", "the second")
    check(b("CHECK", "k", got[0]), 1, "the thief's grant")


@test
def P11_a_lease_that_ends_during_the_handshake_is_told_once(t):
    s = t.server()
    sub, victim = listener(s), s.client(3)
    first = victim.acquire("k", "LEASE", 100)
    b = thief(s)
    fence = b.reply()[0]
    b("RELEASE", "k")
    events = plain(events_until(sub, "released %d" % fence))
    check_that(events in (["granted %d held=1" % first, "asked %d priority=5" % first,
                           "expired %d" % first, "stolen %d" % first,
                           "granted %d held=1" % fence, "released %d" % fence],
                          # It stalled, and the thief found the lock free.
                          ["granted %d held=1" % first, "expired %d" % first,
                           "granted %d held=1" % fence, "released %d" % fence]),
               "each is told once: %r" % events)
    check(victim("PING"), "PONG")
    check([p[2:] for p in victim.pushes], [[w, first] for w in (b"asked", b"expired")
                                           if len(events) == 6 or w == b"expired"])
    check(answers(s, s.client())["count"], 0, "an expiry is no answer")


@test
def without_a_lease_it_is_waited_for_as_long_as_the_thief_waits(t):
    s, victim = t.server().with_clients(1, 3)
    first = victim.acquire("k")
    b = thief(s, wait=200)
    check(b.push()[3:5], [first, -1], "whom it waits for, and that there is no end")
    check(b.reply(), None)
    check([victim.push()[2], victim.push()[2]], [b"asked", b"withdrawn"])
    b = thief(s)
    victim.close()  # that ends it
    check_that(b.reply()[0] > first, "the thief is in")


# --- Thieves that come and go ------------------------------------------------------------


class Diary:
    """Who held when, by its own clock."""

    def __init__(self):
        self.lines, self.mutex = [], threading.Lock()

    def write(self, fence, begin, end, who):
        with self.mutex:
            self.lines.append((fence, begin, end, who))

    def check(self):
        """In the order of fences each ends before the next begins."""
        lines = sorted(self.lines)
        for (f, _, end, a), (g, begin, _, b) in zip(lines, lines[1:]):
            check_that(end <= begin, "%s with %d has ended when %s with %d begins" % (a, f, b, g))
        return [who for _, _, _, who in lines]


@test
def P8_of_fifty_thieves_the_highest_is_in_after_one_handshake(t):
    s = t.server()
    draw = chance()
    sub, victim, diary = listener(s), s.client(3), Diary()
    thieves = [(priority, s.client()) for priority in draw.sample(range(1, 1000), 50)]
    highest = max(p for p, _ in thieves)
    begin = time.monotonic()
    first = victim.acquire("k", "LEASE", HOURS)
    refused = []

    def steal(priority, c, wait):
        got = c("ACQUIRE", "k", "LEASE", HOURS, "WAIT", wait, "PRIORITY", priority, "STEAL")
        if got is None:
            refused.append(priority)
            return
        at = time.monotonic()
        check(got[4], 0, "overlapping")
        time.sleep(0.001)
        diary.write(got[0], at, time.monotonic(), priority)
        check(c("RELEASE", "k", got[0]), 1)

    # Some give up before the holder has answered, but not the highest; nor the client that
    # comes first, or there might be nobody left for a moment.
    waits = {p: FOREVER if p in (highest, thieves[0][0]) or draw.random() < 0.7
             else draw.randrange(0, 15) for p, _ in thieves}
    threads = [threading.Thread(target=steal, args=(p, c, waits[p])) for p, c in thieves]
    threads[0].start()
    check(victim.push()[2:], [b"asked", first])
    asked = time.monotonic()
    for thread in threads[1:]:
        thread.start()
    patient = sum(wait == FOREVER for wait in waits.values())
    s.until_waiting("k", patient)  # all are there, and the hasty ones are gone
    time.sleep(max(0, asked + 0.020 - time.monotonic()))
    diary.write(first, begin, time.monotonic(), 0)
    check(victim("RELEASE", "k", first), 1)
    for thread in threads:
        thread.join(LATE_S)
    check_that(not any(thread.is_alive() for thread in threads), "all are done")
    order = diary.check()
    check(order[:2], [0, highest], "who held first, and then")
    check(order[1:], sorted(order[1:], reverse=True), "the waiters, by priority")
    check(sorted(order[1:] + refused), sorted(waits), "who was granted or refused")
    check(victim.pushes, [], "what the victim received besides one request")
    events = events_until(sub, "released %d" % sorted(diary.lines)[-1][0])
    about_first = [e.split()[0] for e in events if e.split()[1] == str(first)]
    check(about_first, ["granted", "asked", "released", "stolen"], "the events of the holder")
    check([e for e in events if "overlapping" in e], [], "overlapping ones")


@test
def P1_a_thief_that_is_killed_during_the_handshake_leaves_all_as_it_was(t):
    s = t.server()
    sub, victim = listener(s), s.client(3)
    first = victim.acquire("k", "LEASE", HOURS)

    def run(say):
        run.kept = s.client()
        run.kept.send("ACQUIRE", "k", "WAIT", FOREVER, "PRIORITY", 5, "STEAL")
        say("sent")

    child = t.child(run)
    child.line()
    check(victim.push(), [b"lock", b"k", b"asked", first])
    check_error(victim("EXTEND", "k", first, HOURS), "ASKED")
    child.kill()
    check(victim.push(), [b"lock", b"k", b"withdrawn", first])
    check(victim("EXTEND", "k", first, 2 * HOURS), 2 * HOURS, "the next extension")
    check(s.client()("ACQUIRE", "k"), None, "others are not let in")
    check(plain(events_until(sub, "extended")),
          ["granted %d held=1" % first, "asked %d priority=5" % first, "withdrawn %d" % first,
           "extended %d" % first])
    check(counts(s, s.client()), {"asks": 1, "withdrawals": 1, "steals": 0, "overlaps": 0})


@test
def P3_a_thief_that_is_killed_with_the_grant_loses_it_with_its_lease(t):
    s, victim = t.server().with_clients(1, 3)
    first = victim.acquire("k", "LEASE", HOURS)

    def run(say):
        run.kept = s.client()
        say(run.kept("ACQUIRE", "k", "WAIT", FOREVER, "LEASE", 200, "PRIORITY", 5, "STEAL")[0])

    child = t.child(run)
    victim.push()
    victim("RELEASE", "k", first)
    fence = int(child.line())
    child.kill()
    again = victim("ACQUIRE", "k", "WAIT", FOREVER)
    check_that(again[0] > fence > first, "fences rise")


@test
def P12_a_thief_whose_time_is_over_is_told_and_the_victim_too(t):
    s, victim = t.server().with_clients(1, 3)
    first = victim.acquire("k", "LEASE", HOURS)
    b = s.client()
    sent = time.monotonic()
    check(b("ACQUIRE", "k", "WAIT", 100, "PRIORITY", 5, "STEAL"), None)
    check_that(time.monotonic() - sent >= 0.1, "it has waited")
    check([victim.push()[2:], victim.push()[2:]], [[b"asked", first], [b"withdrawn", first]])
    check(victim("EXTEND", "k", first, 2 * HOURS), 2 * HOURS)
    b = thief(s)  # P5: who tries again asks again
    check(victim.push()[2:], [b"asked", first])
    check(victim("RELEASE", "k", first), 1)
    check_that(b.reply()[0] > first, "the thief is in")


@test
def P13_P14_equal_and_lower_priority_steal_nothing(t):
    s, victim = t.server().with_clients(1, 3)
    first = victim.acquire("k", "LEASE", HOURS, "PRIORITY", 5)
    for priority in (5, 4, -2 ** 31):
        for steal in ((), (0,), (0.5,), (1,), ("AUTO",)):
            check(s.client()("ACQUIRE", "k", "WAIT", 20, "PRIORITY", priority, "STEAL", *steal),
                  None, "PRIORITY %d STEAL %r" % (priority, steal))
    check(s.client()("ACQUIRE", "k", "PRIORITY", 9, "STEAL"), None, "without a wait")
    check(s.client()("ACQUIRE", "k", "WAIT", 20, "PRIORITY", 9), None, "without STEAL")
    check(victim("EXTEND", "k", first, 2 * HOURS), 2 * HOURS)
    check(victim.pushes, [])
    check(counts(s, victim), {"asks": 0, "withdrawals": 0, "steals": 0, "overlaps": 0})


@test
def ones_own_connection_is_never_a_victim(t):
    s, c = t.server().with_clients(1, 3)
    first = c.acquire("k", "LEASE", HOURS)
    for steal in ((), (0,)):
        check(c("ACQUIRE", "k", "WAIT", 50, "PRIORITY", 9, "STEAL", *steal), None)
    check(c("EXTEND", "k", first, 2 * HOURS), 2 * HOURS)
    check(c.pushes, [])
    other = s.client()
    check(other("ACQUIRE", "k", "PRIORITY", 9, "STEAL", 0)[4], 1, "another's connection may")


# --- What can be seen --------------------------------------------------------------------


@test
def EXPLAIN_tells_who_is_asked_and_who_steals(t):
    s, c = t.server().with_clients(1)
    c.acquire("k", "LEASE", HOURS, "PER", 2)
    c.acquire("k", "LEASE", HOURS, "PER", 2)
    got = s.explain("k")
    check([pairs(h)["asked"] for h in got["holders"]], [0, 0])
    b = thief(s, "PER", 2, priority=7)
    w = s.client()
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER, count=2)
    got = s.explain("k")
    check([pairs(h)["asked"] for h in got["holders"]], [0, 1], "who is asked")
    check([pairs(x)["steals"] for x in got["waiters"]], [1, 0], "who steals")
    summary = [x.decode() for x in got["summary"]]
    check_that("reserved for a waiter with STEAL and priority 7: the server has asked 1 holder to release" in summary,
               "%r" % summary)
    b.close()
    s.until_waiting("k", 1)
    got = s.explain("k")
    check([pairs(h)["asked"] for h in got["holders"]], [0, 0], "who is asked still")
    check_that(not any(b"reserved" in x for x in got["summary"]), "no reservation is told of")


@test
def INFO_shows_the_answer_times(t):
    s = t.server()
    ask, victim = s.client(), s.client(3)
    check(answers(s, ask), {"count": 0, "p50": 0, "p99": 0, "auto_ms": -1})
    first = victim.acquire("k", "LEASE", HOURS)
    b = thief(s)
    victim.push()
    asked = time.monotonic()
    time.sleep(0.1)
    waited = (time.monotonic() - asked) * 1000
    victim("RELEASE", "k", first)
    b.reply()
    got = answers(s, ask)
    check((got["count"], got["auto_ms"]), (1, -1))
    check_that(waited - 2 <= got["p50"] == got["p99"] <= waited + LATE_S * 1000,
               "the answer took %d ms: %r" % (waited, got))


# --- Early entry -------------------------------------------------------------------------


@test
def STEAL_half_enters_after_half_of_its_wait_and_says_so(t):
    s = t.server()
    sub, victim = listener(s), s.client(3)
    first = victim.acquire("k", "LEASE", HOURS)
    b = s.client(3)
    sent = time.monotonic()
    got = b("ACQUIRE", "k", "WAIT", 4000, "PRIORITY", 5, "STEAL", "0.5", "LEASE", HOURS)
    took = (time.monotonic() - sent) * 1000
    fence, held, _, waited, overlapping = got
    check_that(fence > first and held == 2, "it is next to the victim: %r" % got)
    check(overlapping, 1)
    check_that(2000 <= waited and 2000 <= took, "it waited: %d ms of %.0f" % (waited, took))
    check([victim.push()[2:], victim.push()[2:]], [[b"asked", first], [b"stolen", first]])
    check(victim("CHECK", "k", first), 1, "the victim holds")
    check_error(victim("EXTEND", "k", first, HOURS), "ASKED")
    check([pairs(h)["asked"] for h in s.explain("k")["holders"]], [1, 0])
    check(victim("RELEASE", "k", first), 1)
    check(b("EXTEND", "k", fence, 2 * HOURS), 2 * HOURS)
    check(plain(events_until(sub, "extended")),
          ["granted %d held=1" % first, "asked %d priority=5" % first,
           "granted %d held=2 overlapping=1" % fence, "stolen %d overlapping=1" % first,
           "released %d" % first, "extended %d" % fence])
    check(victim.pushes, [], "what else the victim heard")
    check(counts(s, victim), {"asks": 1, "withdrawals": 0, "steals": 1, "overlaps": 1})


@test
def STEAL_half_of_a_victim_that_answers_does_not_overlap(t):
    s, victim = t.server().with_clients(1, 3)
    first = victim.acquire("k", "LEASE", HOURS)
    b = thief(s, steal=("STEAL", "0.5"))
    check(victim.push()[2:], [b"asked", first])
    victim("RELEASE", "k", first)
    check(b.reply()[4], 0)


@test
def a_top_priority_thief_also_learns_its_holder(t):
    s, v = t.server().with_clients(1)
    fence = v.acquire("k", "LEASE", HOURS, "NOTE", "backup")
    first = thief(s, priority=5)
    second = thief(s, priority=9)
    for c in (first, second):
        told = c.push()
        check([told[i] for i in (0, 1, 2, 3, 5)], [b"lock", b"k", b"waits", fence, b"backup"])


@test
def a_disconnected_thief_takes_nothing(t):
    """It has half closed behind more than the server reads while it waits."""
    s = t.server()
    v, sub = s.client(3), listener(s)
    fence = v.acquire("k", "LEASE", HOURS)
    c = s.client()
    s.waits(c, "ACQUIRE", "k", "WAIT", 6000, "PRIORITY", 5, "STEAL", "0.05")
    c.send_raw(b"PING\r\n" * 14000)
    c.socket.shutdown(socket.SHUT_WR)
    said = events_until(sub, "withdrawn")
    check_that(not any("stolen" in e for e in said), "nobody is robbed: %r" % said)
    check_that(v("EXTEND", "k", fence, HOURS) == HOURS, "and may extend")
    check(v("RELEASE", "k", fence), 1)
    check(s.client()("ACQUIRE", "k")[4], 0, "overlapping")


@test
def a_fraction_of_no_wait_is_no_wait_and_enters_nothing(t):
    s = t.server()
    s.client().acquire("k", "LEASE", HOURS)
    for f in ("0.000001", "0.5", "0.999999"):
        check(s.client()("ACQUIRE", "k", "PRIORITY", 5, "STEAL", f), None, "STEAL " + f)


@test
def STEAL_0_enters_at_once_with_or_without_a_wait(t):
    s, victim = t.server().with_clients(1, 3)
    first = victim.acquire("k", "LEASE", HOURS)
    second = s.client()("ACQUIRE", "k", "PRIORITY", 5, "STEAL", 0, "LEASE", HOURS)
    check(second[3:], [0, 1], "how long it waited, and overlapping")
    third = s.client()("ACQUIRE", "k", "PRIORITY", 6, "STEAL", "0.0", "WAIT", 1000)
    check(third[4], 1, "overlapping")
    check_that(third[0] > second[0] > first, "fences rise")
    check([victim.push()[2:], victim.push()[2:]], [[b"asked", first], [b"stolen", first]])
    check(victim("PING"), "PONG")
    check(victim.pushes, [], "it is robbed once")
    check(s.client()("ACQUIRE", "free", "PRIORITY", 5, "STEAL", 0)[4], 0, "of a free lock")


@test
def STEAL_1_never_enters_early(t):
    s = t.server()
    s.client().acquire("k", "LEASE", HOURS)
    for steal in (("STEAL",), ("STEAL", 1), ("STEAL", "1.0"), ("STEAL", "AUTO")):
        check(s.client()("ACQUIRE", "k", "WAIT", 50, "PRIORITY", 5, *steal), None, repr(steal))


@test
def STEAL_AUTO_goes_by_twenty_answers(t):
    s = t.server()
    ask, victim = s.client(), s.client(3)

    def handshake():
        fence = victim.acquire("k", "LEASE", HOURS)
        b = s.client()
        b.send("ACQUIRE", "k", "WAIT", FOREVER, "PRIORITY", 5, "STEAL")
        check(victim.push()[2:], [b"asked", fence])
        victim("RELEASE", "k", fence)
        b.reply()
        b.close()
        victim("AWAIT", "k", "FREE", FOREVER)

    for i in range(19):
        handshake()
    got = answers(s, ask)
    check((got["count"], got["auto_ms"]), (19, -1), "nineteen are too few")
    silent = victim.acquire("k", "LEASE", HOURS)
    check(s.client()("ACQUIRE", "k", "WAIT", 50, "PRIORITY", 5, "STEAL", "AUTO"), None)
    check([victim.push()[2], victim.push()[2]], [b"asked", b"withdrawn"])
    victim("RELEASE", "k", silent)  # it was withdrawn, so that is no answer
    check(answers(s, ask)["count"], 19)
    handshake()
    got = answers(s, ask)
    check(got["count"], 20)
    check(got["auto_ms"], got["p99"] + got["p99"] // 2 + 5, "what AUTO goes by")
    silent = victim.acquire("k", "LEASE", HOURS)
    reply = s.client()("ACQUIRE", "k", "WAIT", FOREVER, "PRIORITY", 5, "STEAL", "AUTO")
    check(reply[4], 1, "overlapping")
    check_that(reply[3] >= got["auto_ms"], "it has waited %d of %d ms" % (reply[3], got["auto_ms"]))
    check([victim.push()[2:], victim.push()[2:]], [[b"asked", silent], [b"stolen", silent]])


@test
def an_invalid_fraction_is_rejected(t):
    s, c = t.server().with_clients(1)
    for bad in ("2", "1.1", "1.000001", "-1", "-0.5", "x", "", ".", "0.5.5", "1e0", "0,5", "nan",
                "99999999999999999999", "AUTOS"):
        check_error(c("ACQUIRE", "k", "STEAL", bad), "ERR")
    check_error(c("ACQUIRE", "k", "STEAL", "STEAL"), "ERR")
    check_error(c("ACQUIRE", "k", "STEAL", "0.5", "AUTO"), "ERR")
    check(c("AWAIT", "k", "FREE", 0), 1, "nothing was granted")
    for good in ("0", "1", "0.5", ".5", "1.", "0.0000001", "auto"):
        check(len(c("ACQUIRE", "k", "steal", good, "LEASE", 5, "WAIT", FOREVER)), 5, good)


def ask_again(t, how):
    """A higher thief comes while one waits, or goes: the victim hears nothing new."""
    s = t.server()
    sub, victim = listener(s), s.client(3)
    first = victim.acquire("k", "LEASE", HOURS)
    low, high = thief(s, priority=5), thief(s, priority=7)
    if how == "goes":
        high.close()
        s.until_waiting("k", 1)
    check_error(victim("EXTEND", "k", first, HOURS), "ASKED")
    check([p[2:] for p in victim.pushes], [[b"asked", first]])
    victim("RELEASE", "k", first)
    check_that((low if how == "goes" else high).reply()[0] > first, "the right one is in")
    check(plain(events_until(sub, "stolen")),
          ["granted %d held=1" % first, "asked %d priority=5" % first, "released %d" % first,
           "stolen %d" % first])


test_of("P8_a_second_thief_does_not_notify_the_victim_again", ask_again, "comes")
test_of("P8_a_thief_that_leaves_does_not_notify_the_victim_again", ask_again, "goes")


main(__doc__)
