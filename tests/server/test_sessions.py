#!/usr/bin/python3
"""test_sessions.py - what becomes of grants and waits when connections, processes and
servers end, stop or are cut off.

    tests/server/test_sessions.py SERVER [--jobs N] [PATTERN...]

S1-S3, W1, W2, F1-F5, A1, A2 and A13 are the names of cases that must be covered:
reconnecting never revives a grant (S1), ids are used once (S2), a loss is told once with
its reason (S3), a waiter is granted only if alive and in time (W1) and in order (W2), a
holder that slept is fenced off (F1), answers in flight (F2, A2), clocks that step (F3),
restarts (F4), fences that are ordered (F5, A1), and hanging up (A13).
"""
import fcntl
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from live import (Client, Closed, Failure, Push, check, check_error, check_that, encode, main, pairs,
                  stop, test, test_of)
from shims import Shims

FOREVER = 10 ** 8  # ms
LINGER = ("--linger", "1h")  # what lingers, lingers for longer than a test


def until_free(t, c, key):
    t.until(lambda: c("AWAIT", key, "FREE", 0) == 1, "%s is free" % key)


def waiting(s, key, *options, protocol=2):
    """A connection that waits for the key."""
    before = s.waiters(key)
    w = s.client(protocol)
    s.waits(w, "ACQUIRE", key, "WAIT", FOREVER, *options, count=before + 1)
    return w


def held_and_wanted(t, *options):
    """A server, a connection that holds k, and one that waits for it."""
    s, holder = t.server(*options).with_clients(1)
    holder.acquire("k")
    return s, holder, waiting(s, "k")


# --- Holders that die -----------------------------------------------------------------


def hold(s, *options, address=None):
    """A child that holds k, and says its fence."""
    def run(say):
        c = s.client(address=address)
        run.kept = c
        say(c.acquire("k", *options))
    child = s.stage.child(run)
    return child, int(child.line())


@test
def kill_9_of_a_holder_releases_its_grant_at_once(t):
    s = t.server(*LINGER)
    child, fence = hold(s)
    w = waiting(s, "k")
    child.kill()
    check_that(w.reply()[0] > fence, "the waiter is granted, with a larger fence")


@test
def kill_9_of_a_holder_with_a_lease_releases_it_at_expiry(t):
    s = t.server("--linger", "0")
    start = time.monotonic()
    child, _ = hold(s, "LEASE", 800)
    w = s.client()
    w.send("ACQUIRE", "k", "WAIT", FOREVER)
    child.kill()
    w.reply()
    check_that(time.monotonic() - start >= 0.8, "not before its end")


@test
def kill_9_of_a_holder_on_a_unix_socket(t):
    path = t.path("sock")
    s = t.server("--socket", path, *LINGER)
    child, _ = hold(s, address=path)
    w = waiting(s, "k")
    child.kill()
    w.reply()


@test
def kill_9_of_a_thousand_holders_leaves_nothing(t):
    s, ask = t.server(*LINGER).with_clients(1)

    def run(say):
        run.kept = [s.client() for _ in range(20)]
        for i, c in enumerate(run.kept):
            for j in range(50):
                c.acquire("k%d" % (j % 25), "PER", 10000)
        say("up")

    child = t.child(run)
    check(child.line(), "up")
    check(s.number("entries", ask), 1000)
    child.kill()
    t.until(lambda: s.number("entries", ask) == 0, "all of it is back")
    check(s.number("keys", ask), 0)
    check(s.number("disconnect_releases", ask), 1000)


# --- Holders that have closed, though the server has not read that -----------------------


def closed_and_asked(t, s, requests, holders, close=Client.close):
    """The replies to requests that are sent after the holders have closed, all of it while the
    server is stopped. The server reads the requests first: the PING was there before."""
    ask = s.client()
    check(ask("PING"), "PONG")
    stop(t, s.pid)
    ask.send("PING")
    for holder in holders:
        close(holder)
    ask.send_raw(b"".join(encode(request) for request in requests))
    s.signal(signal.SIGCONT)
    check(ask.reply(), "PONG")
    return [ask.reply() for _ in requests]


def holding(s, count, *request):
    holders = s.clients(count)
    for holder in holders:
        holder.acquire(*request)
    return holders


@test
def a_key_of_a_holder_that_has_closed_is_granted_at_once(t):
    s = t.server(*LINGER)
    holders = s.clients(300)
    for i, holder in enumerate(holders):
        holder.acquire("k%d" % i)
    got = closed_and_asked(t, s, [("ACQUIRE", "k%d" % i) for i in range(300)], holders)
    check(got.count(None), 0, "requests of 300 that were told nil")
    check(s.number("deferred_commands"), 0)


@test
def keys_of_shared_and_counted_holders_that_have_closed_are_granted_at_once(t):
    s, stays = t.server(*LINGER).with_clients(1)
    stays.acquire("room", "PER", 5)
    stays.acquire("read", "SHARED")
    holders = holding(s, 100, "shared", "SHARED") + holding(s, 4, "room", "PER", 5) + holding(s, 1, "seen")
    got = closed_and_asked(t, s, [("ACQUIRE", "shared"), ("ACQUIRE", "room", "PER", 5, "UNITS", 4),
                                  ("AWAIT", "seen", "FREE", 0), ("ACQUIRE", "read")], holders)
    check_that(all(isinstance(reply, list) for reply in got[:2]), "both are granted: %r" % (got,))
    check(got[2:], [1, None], "AWAIT of a key whose holder has closed, ACQUIRE of one whose holder has not")


@test
def a_closed_holder_of_many_keys_releases_all_of_them_first(t):
    """More than the server releases in one turn."""
    s, holder = t.server(*LINGER).with_clients(1)
    for i in range(3000):
        holder.send("ACQUIRE", "k%d" % i)
    for i in range(3000):
        holder.reply()
    got = closed_and_asked(t, s, [("ACQUIRE", "k%d" % i) for i in range(2999, 0, -1)], [holder])
    check(got.count(None), 0, "requests that were told nil")


@test
def commands_that_a_client_sent_before_closing_are_executed_first(t):
    def send_and_close(holder):
        holder.send_raw(encode(["PING"]) * 2000 + encode(["ACQUIRE", "leased", "LEASE", FOREVER // 10]))
        holder.socket.shutdown(socket.SHUT_WR)

    s = t.server(*LINGER)
    got = closed_and_asked(t, s, [("ACQUIRE", "k"), ("ACQUIRE", "leased")], holding(s, 1, "k"), send_and_close)
    check_that(isinstance(got[0], list), "it is granted: %r" % got[0])
    check(got[1], None, "the reply about the key that the holder took before it closed")


@test
def a_key_of_a_holder_that_was_reset_is_not_granted_at_once(t):
    """A13: its holder may not know."""
    s = t.server(*LINGER)
    check(closed_and_asked(t, s, [("ACQUIRE", "k")], holding(s, 1, "k"), Client.reset), [None])


@test
def a_request_never_gets_nil_after_the_holder_has_closed(t):
    s, ask = t.server(*LINGER).with_clients(1)
    nils = 0
    for _ in range(5000):
        holder = s.client()
        holder.acquire("k")
        ask.send("PING")  # So that the server may come to read from ask first.
        holder.close()
        ask.send("ACQUIRE", "k")
        check(ask.reply(), "PONG")
        if ask.reply() is None:
            nils += 1
            until_free(t, ask, "k")
        else:
            ask("RELEASE", "k")
    check(nils, 0, "requests of 5,000 that were told nil")


# --- Ways to hang up --------------------------------------------------------------------


@test
def end_of_file_ends_grants_at_once(t):
    s, holder, w = held_and_wanted(t, *LINGER)
    holder.close()
    w.reply()


@test
def half_a_close_is_an_end_of_file(t):
    s, holder, w = held_and_wanted(t, *LINGER)
    holder.socket.shutdown(socket.SHUT_WR)
    w.reply()
    check(holder.until_closed(), b"", "what came after it")


@test
def what_was_asked_before_half_a_close_is_answered(t):
    s, c = t.server(*LINGER).with_clients(1)
    c.send("PING").send("ACQUIRE", "k").send("PING", "x")
    c.socket.shutdown(socket.SHUT_WR)
    data = c.until_closed()
    check_that(re.fullmatch(rb"\+PONG\r\n\*5\r\n:\d+\r\n:1\r\n:-1\r\n:0\r\n:0\r\n\$1\r\nx\r\n", data),
               "all was answered: %r" % data)
    until_free(t, s.client(), "k")


@test
def a_long_pipeline_before_half_a_close_is_answered(t):
    s, c = t.server(*LINGER).with_clients(1)
    c.send_raw(encode(["ACQUIRE", "k", "PER", "100000"]) * 20000)
    c.socket.shutdown(socket.SHUT_WR)
    check(c.until_closed().count(b"*5\r\n"), 20000, "grants that were told")
    ask = s.client()
    t.until(lambda: s.number("entries", ask) == 0, "all are released")


@test
def QUIT_ends_grants_at_once(t):
    s, holder, w = held_and_wanted(t, *LINGER)
    check(holder("QUIT"), "OK")
    w.reply()


@test
def RESET_ends_grants_at_once_and_goes_on(t):
    s, holder, w = held_and_wanted(t, *LINGER)
    check(holder("RESET"), "RESET")
    w.reply()
    check(holder("RELEASE", "k"), 0, "it is not the holder's any more")
    check(holder("PING"), "PONG")


def check_lingers(t, s, key, w, start, linger_s):
    got = w.reply()
    stayed = time.monotonic() - start
    check_that(stayed >= linger_s, "its grant stayed for --linger, not %.4f s" % stayed)
    check(got[4], 0, "nothing overlaps")


def break_the_stream(holder):
    holder.send_raw(b"*1\r\n!oops\r\n")
    check_error(holder.reply(), "ERR", "protocol error")
    holder.until_closed()


def keeps_its_grants_for_linger(t, leave):
    """Its holder may be alive, and has not read the news."""
    s, holder, w = held_and_wanted(t, "--linger", "700ms")
    number, c = holder.id, s.client()
    start = time.monotonic()
    leave(holder, c, number)
    check_lingers(t, s, "k", w, start, 0.7)


for name, leave in (
        ("a_reset_connection_keeps_its_grants_for_linger", lambda holder, c, number: holder.reset()),
        ("a_killed_connection_keeps_its_grants_for_linger", lambda holder, c, number: (
            check(c("CLIENT", "KILL", "ID", number), 1), holder.until_closed())),
        ("a_connection_that_kills_itself_keeps_its_grants_for_linger",
         lambda holder, c, number: holder.send("CLIENT", "KILL", "ID", number)),
        ("a_broken_stream_keeps_its_grants_for_linger", lambda holder, c, number: break_the_stream(holder))):
    test_of(name, keeps_its_grants_for_linger, leave)


@test
def linger_0_lets_go_at_once(t):
    s, holder, w = held_and_wanted(t, "--linger", "0")
    holder.reset()
    w.reply()


@test
def what_lingers_can_be_broken_by_an_operator(t):
    s, holder, c = t.server(*LINGER).with_clients(2)
    fence = holder.acquire("k")
    holder.reset()
    w = waiting(s, "k")
    t.until(lambda: s.number("connected_clients", c) == 2, "the reset is seen")
    check(c("CHECK", "k", fence), 1)
    check(c("RELEASE", "k", fence), 0, "nobody else may release it")
    check(c("BREAK", "k", fence), 2)
    check(w.reply()[4], 1, "overlapping")


@test
def a_reset_waiter_keeps_its_other_grants(t):
    """A13: it waits for one key, holds another, and is reset while the server sleeps; the
    key it waits for is released in the same moment."""
    s, holder, c, w = t.server("--linger", "1500ms").with_clients(3)
    holder.acquire("busy")
    c.acquire("k")
    s.waits(c, "ACQUIRE", "busy", "WAIT", FOREVER)
    s.waits(w, "ACQUIRE", "k", "WAIT", FOREVER)
    stop(t, s.pid)
    holder.send("RELEASE", "busy")
    start = time.monotonic()
    c.reset()
    s.signal(signal.SIGCONT)
    check(holder.reply(), 1)
    check_lingers(t, s, "k", w, start, 1.5)


# --- Waiting ----------------------------------------------------------------------------


def leave_by_kill(c, s):
    address = "%s:%d" % c.socket.getsockname()
    check(s.client()("CLIENT", "KILL", "ADDR", address), 1)


def leave_by_close_with_much_to_say(c, s):
    """It has said more than the server reads while it waits, but no more than the sockets
    hold: the end of what never arrives cannot be seen."""
    c.send_raw(encode(["PING"]) * 8000)
    c.close()


WAYS_TO_LEAVE = {
    "close": lambda c, s: c.close(),
    "reset": lambda c, s: c.reset(),
    "half_close": lambda c, s: c.socket.shutdown(socket.SHUT_WR),
    "kill": leave_by_kill,
    "close_with_much_to_say": leave_by_close_with_much_to_say,
}


def check_leaves(t, leave):
    """W1: its place in the line is gone, and the next one is granted."""
    s, holder, c = t.server(*LINGER).with_clients(2)
    holder.acquire("k")
    gone = s.client()
    gone.acquire("mine")  # may linger: that is no reason to stay in the queue
    s.waits(gone, "ACQUIRE", "k", "WAIT", FOREVER)
    nxt = waiting(s, "k")
    leave(gone, s)
    s.until_waiting("k", 1)
    check(s.number("blocked_clients", c), 1)
    check(holder("RELEASE", "k"), 1)
    nxt.reply()
    check(s.number("grants", c), 3, "grants")
    check(nxt("RELEASE", "k"), 1)
    check(c("AWAIT", "k", "FREE", 0), 1)


for name, leave in WAYS_TO_LEAVE.items():
    test_of("a_waiter_that_leaves_by_%s_is_out_of_the_line" % name, check_leaves, leave)


@test
def a_killed_process_that_waits_is_out_of_the_queue(t):
    s, holder = t.server(*LINGER).with_clients(1)
    holder.acquire("k")

    def run(say):
        run.kept = s.client()
        run.kept.send("ACQUIRE", "k", "WAIT", FOREVER)
        say("up")

    child = t.child(run)
    child.line()
    s.until_waiting("k", 1)
    child.kill()
    s.until_waiting("k", 0)


@test
def a_watcher_that_leaves_is_forgotten(t):
    s, holder, c, ask = t.server(*LINGER).with_clients(3)
    holder.acquire("k")
    c.send("AWAIT", "k", "FREE", FOREVER)
    t.until(lambda: s.number("blocked_clients", ask) == 1, "it waits")
    c.reset()
    t.until(lambda: s.number("blocked_clients", ask) == 0, "it is gone")
    check(holder("RELEASE", "k"), 1)
    check(s.number("keys", ask), 0)


@test
def a_waiter_whose_time_is_over_is_not_granted(t):
    """W1: the release and the end of the wait are seen in one moment."""
    s, holder, w, ask = t.server().with_clients(3)
    holder.acquire("k")
    for wait in (300, 2000, 10000):  # the longer ones, if the machine stalls
        w.send("ACQUIRE", "k", "WAIT", wait)
        t.until(lambda: s.waiters("k", ask) == 1 or w.ready(), "it waits")
        asked = time.monotonic()
        stop(t, s.pid)
        if not w.ready():
            break
        s.signal(signal.SIGCONT)
        check(w.reply(), None)
    holder.send("RELEASE", "k")
    time.sleep(max(0.0, asked + wait / 1000 + 0.05 - time.monotonic()))
    s.signal(signal.SIGCONT)
    check(holder.reply(), 1)
    check(w.reply(), None, "the waiter's time was over")
    check(w("AWAIT", "k", "FREE", 0), 1)


@test
def waiters_that_all_die_while_the_server_is_stopped(t):
    """W1: it wakes up to a release and ten dead in front of a living one."""
    s, holder = t.server(*LINGER).with_clients(1)
    holder.acquire("k")
    dead = [waiting(s, "k") for _ in range(10)]
    w = waiting(s, "k")
    stop(t, s.pid)
    holder.send("RELEASE", "k")
    for c in dead:
        c.close()
    s.signal(signal.SIGCONT)
    w.reply()
    s.until_waiting("k", 0)
    check(s.holders("k"), 1)


@test
def a_disconnected_client_gets_no_lease(t):
    """W1: with a lease nobody else would have it for an hour."""
    s, holder, dead, w, *others = t.server(*LINGER).with_clients(43)
    holder.acquire("k")
    for i, c in enumerate((dead, w)):
        s.waits(c, "ACQUIRE", "k", "WAIT", FOREVER, "LEASE", 3600000, count=i + 1)
    stop(t, s.pid)
    holder.send("RELEASE", "k")
    # The server serves these first, and then grants the lock before it reads that the connection closed.
    for c in others:
        c.send("PING")
    dead.close()
    s.signal(signal.SIGCONT)
    check_that(w.reply()[0] > 0, "the one behind it has it")


@test
def the_mark_of_a_broken_grant_survives_a_disconnect(t):
    s, holder, dead, w, admin = t.server(*LINGER).with_clients(4)
    fence = holder("ACQUIRE", "k", "LEASE", 3600000)[0]
    for i, c in enumerate((dead, w)):
        s.waits(c, "ACQUIRE", "k", "WAIT", FOREVER, count=i + 1)
    stop(t, s.pid)
    admin.send("BREAK", "k", fence, "NOW")
    dead.close()
    s.signal(signal.SIGCONT)
    check(w.reply()[4], 1, "overlapping")


@test
def after_RESET_of_many_all_is_free(t):
    s, c = t.server(*LINGER).with_clients(1)
    for i in range(3000):
        c.send("ACQUIRE", "k%d" % i)
    for i in range(3000):
        c.reply()
    c.send("RESET")
    c.send("ACQUIRE", "k2999")
    check(c.reply(), "RESET")
    check_that(c.reply() is not None, "it is free")


@test
def waiters_are_granted_by_priority_then_in_order_of_arrival(t):
    """W2."""
    s, holder = t.server().with_clients(1)
    holder.acquire("k")
    order = [0, 5, 0, -1, 5, 2147483647, 0, -1]
    line = [(waiting(s, "k", "PRIORITY", p), p, i) for i, p in enumerate(order)]
    shown = [pairs(w)["priority"] for w in s.explain("k")["waiters"]]
    check(shown, sorted(order, reverse=True), "the line as EXPLAIN tells it")
    check(holder("RELEASE", "k"), 1)
    last = 0
    for w, p, i in sorted(line, key=lambda x: (-x[1], x[2])):
        fence = w.reply()[0]
        check_that(fence > last, "fences rise in the order of grants")
        last = fence
        for other, _, j in line:
            check_that(other is w or other.quiet(), "%d is granted alone, not %d" % (i, j))
        check(w("RELEASE", "k"), 1)


@test
def waited_ms_is_how_long_it_waited(t):
    s, holder, w = t.server().with_clients(2)
    holder.acquire("k")
    sent = time.monotonic()
    s.waits(w, "ACQUIRE", "k", "WAIT", 60000)
    waits = time.monotonic()
    time.sleep(3)
    released = time.monotonic()
    check(holder("RELEASE", "k"), 1)
    waited = w.reply()[3]
    granted = time.monotonic()
    check_that((released - waits) * 1000 - 2 <= waited <= (granted - sent) * 1000 + 1,
               "waited_ms %d is between %.1f and %.1f" %
               (waited, (released - waits) * 1000, (granted - sent) * 1000))
    check_that(waited >= 2990, "it is at least the three seconds")


@test
def a_wait_for_an_expiring_lease(t):
    s, a, b = t.server().with_clients(2)
    start = time.monotonic()
    first = a.acquire("k", "LEASE", 300)
    fence, _, lease, waited, overlapping = b("ACQUIRE", "k", "WAIT", 60000, "LEASE", 5000)
    check_that(time.monotonic() - start >= 0.3, "not before its end")
    check([lease, overlapping], [5000, 0])
    check_that(fence > first and waited >= 0, "a later grant")


# --- Other connections ---------------------------------------------------------------------


@test
def a_pool_may_release_on_another_connection_what_is_leased(t):
    s, a, b = t.server().with_clients(2)
    leased = a.acquire("leased", "LEASE", 60000)
    bare = a.acquire("bare")
    check(b("EXTEND", "leased", leased, 70000), 70000)
    check(b("RELEASE", "leased", leased), 1)
    check(b("RELEASE", "bare", bare), 0)
    check(b("RELEASE", "bare"), 0)
    check(b("CHECK", "bare", bare), 1)


@test
def a_lease_outlives_its_connection(t):
    s = t.server("--linger", "0")
    for end in (lambda c: c.close(), lambda c: c.reset(), lambda c: c("QUIT"), lambda c: c("RESET")):
        c = s.client()
        key = "k%d" % c.id
        fence = c.acquire(key, "LEASE", 60000)
        end(c)
        d = s.client()
        t.until(lambda: s.number("connected_clients", d) <= 2, "it is gone")
        check(d("CHECK", key, fence), 1)
        check(d("EXTEND", key, fence, 70000), 70000)
        check(d("RELEASE", key, fence), 1)


@test
def connecting_again_never_revives_a_grant(t):
    """S1: a connection is another session, even under the same name."""
    s, c, killer = t.server(*LINGER).with_clients(2)
    check(c("CLIENT", "SETNAME", "me"), "OK")
    fence, old = c.acquire("k"), c.id
    check(killer("CLIENT", "KILL", "ID", old), 1)
    c.until_closed()
    c.close()
    d = s.client()
    check(d("CLIENT", "SETNAME", "me"), "OK")
    check_that(d.id > old, "another id")
    check(d("RELEASE", "k"), 0)
    check(d("RELEASE", "k", fence), 0)
    check(d("ACQUIRE", "k"), None)
    check(killer("CHECK", "k", fence), 1, "it lingers, and nobody has it")


@test
def a_server_that_was_killed_has_forgotten_unleased_grants_and_fences_rise(t):
    options = ("--data", t.path("data"))
    os.mkdir(t.path("data"))
    s, c = t.server(*options).with_clients(1)
    bare, leased = c.acquire("k"), c.acquire("l", "LEASE", 60000)
    s.signal(signal.SIGKILL)
    c.until_closed()
    s.status
    d = t.server(*options).client()
    check([d("CHECK", "k", bare), d("CHECK", "l", leased)], [0, 1])
    check([d("RELEASE", "k", bare), d("RELEASE", "k"), d("RELEASE", "l", leased)], [0, 0, 1])
    got = d("ACQUIRE", "k")
    check_that(got[0] > max(bare, leased), "the fence rose")


@test
def ids_are_used_once(t):
    """S2."""
    s = t.server()
    last = 0
    for _ in range(300):
        c = s.client()
        number = c.id
        check_that(number > last, "%d is above %d" % (number, last))
        last = number
        c.close()


# --- Fences ----------------------------------------------------------------------------------


class Resource:
    """What a lock guards: a file with a counter that refuses an older fence than it saw."""

    def __init__(self, path):
        self.path = path
        if not os.path.exists(path):
            with open(path, "wb") as f:
                f.write(struct.pack("QQ", 0, 0))

    def write(self, fence):
        with open(self.path, "r+b") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            highest, count = struct.unpack("QQ", f.read())
            if fence < highest:
                return False
            f.seek(0)
            f.write(struct.pack("QQ", fence, count + 1))
            return True

    @property
    def count(self):
        with open(self.path, "rb") as f:
            return struct.unpack("QQ", f.read())[1]


@test
def a_holder_that_slept_through_its_lease_is_fenced_off(t):
    """F1: the pause comes after the last check; only the resource can refuse."""
    s = t.server()
    resource = Resource(t.path("resource"))

    def run(say):
        c = s.client()
        fence = c.acquire("k", "LEASE", 500)
        while c("CHECK", "k", fence) == 0:  # the machine stalled
            fence = c.acquire("k", "LEASE", 500)
        say(fence)
        signal.sigtimedwait([signal.SIGUSR1], 60)  # here it is stopped
        say("wrote" if resource.write(fence) else "refused")
        say(c("CHECK", "k", fence))

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    child = t.child(run)
    old = int(child.line())
    check_that(resource.write(old), "the holder may write")
    child.stop()
    c = s.client()
    new = c("ACQUIRE", "k", "WAIT", FOREVER, "LEASE", 60000)[0]
    check_that(new > old, "F5: fences are ordered")
    check_that(resource.write(new), "the next holder may write")
    os.kill(child.pid, signal.SIGUSR1)
    child.go_on()
    check(child.line(), "refused")
    check(child.line(), "0")
    check(resource.count, 2)


@test
def a_client_that_counts_from_the_reply_overlaps_the_next_holder(t):
    """L12, the mistake that waited_ms is there to spare: the reply may be read late."""
    s, a, b = t.server().with_clients(2)
    for i in range(50):  # a machine that stalls may hide it for a while
        key = "k%d" % i
        sent = time.monotonic()
        a.send("ACQUIRE", key, "LEASE", 400)
        t.until(lambda: s.holders(key) == 1, "it is granted")
        b.send("ACQUIRE", key, "WAIT", FOREVER, "LEASE", 10000)
        time.sleep(0.25)
        waited_ms = a.reply()[3]
        from_the_reply = time.monotonic() + 0.4
        check_that(b.reply() is not None, "the next one has it")
        granted = time.monotonic()
        check_that(granted >= sent + (waited_ms + 400) / 1000, "who counts from the sending has stopped")
        if granted < from_the_reply:
            return
    raise Failure("who counts from the reply was never caught")


@test
def a_client_that_counts_from_sending_stops_before_the_next_grant(t):
    """A2, F2: 100 pauses of the server at random moments. A holder takes its lease to end
    at t_send + waited_ms + lease_ms (after EXTEND at t_send + its answer), by a clock that
    both have."""
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    s, first, holder, other = t.server().with_clients(3)
    ended = threading.Event()

    def pause():
        r = random.Random(seed + 1)
        for _ in range(100):
            time.sleep(r.uniform(0, 0.02))
            s.signal(signal.SIGSTOP)
            time.sleep(r.uniform(0, 0.06))
            s.signal(signal.SIGCONT)
        ended.set()

    thread = threading.Thread(target=pause, daemon=True)
    thread.start()
    rounds = 0
    try:
        while not ended.is_set() or rounds < 50:
            rounds += 1
            if draw.random() < 0.5:  # it will have to wait
                first("ACQUIRE", "k", "LEASE", draw.randrange(5, 40))
            sent = time.monotonic()
            fence, _, lease, waited, _ = holder("ACQUIRE", "k", "WAIT", FOREVER,
                                                "LEASE", draw.randrange(5, 40))
            end = sent + (waited + lease) / 1000
            if draw.random() < 0.4:  # what an extend answers counts in the same way
                sent = time.monotonic()
                left = holder("EXTEND", "k", fence, draw.randrange(1, 40))
                if isinstance(left, int):
                    end = max(end, sent + left / 1000)
            while True:
                got = other("ACQUIRE", "k", "LEASE", 60000)
                now = time.monotonic()
                if got is not None:
                    break
            check_that(now >= end, "seed %d, round %d: another is granted %.3f ms too early "
                       "(waited_ms %d, lease_ms %d)" % (seed, rounds, (end - now) * 1000,
                                                       waited, lease))
            check(other("RELEASE", "k", got[0]), 1)
    finally:
        thread.join()


@test
def a_wall_clock_step_expires_no_lease_and_fences_increase(t):
    """F3, A1."""
    shims = Shims(t)
    s, c, w = t.server(env=shims.env).with_clients(2)
    fence = c.acquire("k", "LEASE", 3600000)
    bare = c.acquire("bare")
    s.waits(w, "ACQUIRE", "k", "WAIT", 3600000)
    last = fence
    for seconds in (10 * 86400, -10 * 86400, 0):
        shims.clock(seconds)
        new = c.acquire("other", "PER", 1000)
        check_that(new > last, "the fence rises over a step of %d s" % seconds)
        if seconds > 0:
            check_that(new - fence > 5 * 86400 * 10 ** 6, "the step reaches the server")
        last = new
        left = c("READ", "k")[2]
        check_that(3000000 < left <= 3600000, "the lease is as long as it was, not %d" % left)
        check([c("CHECK", "k", fence), c("CHECK", "bare", bare)], [1, 1])
    check_that(w.quiet(), "the waiter waits")


# --- What is told -------------------------------------------------------------------------------


# How a grant ends: what its connection, or another, does with the fence.
WAYS_TO_END = {
    "release": lambda c, other, fence: check(c("RELEASE", "k", fence), 1),
    "release_by_another": lambda c, other, fence: check(other("RELEASE", "k", fence), 1),
    "close": lambda c, other, fence: c.close(),
    "reset": lambda c, other, fence: c.reset(),
    "QUIT": lambda c, other, fence: check(c("QUIT"), "OK"),
    "RESET": lambda c, other, fence: check(c("RESET"), "RESET"),
    "kill": lambda c, other, fence: check(
        other("CLIENT", "KILL", "ADDR", "%s:%d" % c.socket.getsockname()), 1),
    "break": lambda c, other, fence: check(other("BREAK", "k", fence), 2),
    "break_now": lambda c, other, fence: check(other("BREAK", "k", fence, "NOW"), 2),
    "wait": lambda c, other, fence: None,  # by itself
}
# how it ends, options of ACQUIRE, the event, the push to the holder
ENDS = (("release", (), "released %d", None),
        ("release", ("LEASE", FOREVER // 10), "released %d", None),
        ("release_by_another", ("LEASE", 60000), "released %d", None),
        ("close", (), "released %d why=disconnect", None),
        ("reset", (), "released %d why=disconnect", None),
        ("QUIT", (), "released %d why=disconnect", None),
        ("RESET", (), "released %d why=disconnect", None),
        ("kill", (), "released %d why=disconnect", None),
        ("wait", ("LEASE", 50), "expired %d", b"expired"),
        ("break", (), "broken %d", b"broken"),
        ("break_now", ("LEASE", 60000), "broken %d", b"broken"))


def the_end_of_a_grant_is_published_once(t, how, options, event, push):
    """S3: on lock:k, to a pattern, and to its holder."""
    s, sub, by_pattern, other = t.server("--linger", "100ms").with_clients(3)
    sub.subscribe("lock:k", "lock:end")
    by_pattern.subscribe("lock:*", command="PSUBSCRIBE")
    c = s.client(3)
    fence, held, lease, waited, _ = c("ACQUIRE", "k", *options)
    WAYS_TO_END[how](c, other, fence)
    until_free(t, other, "k")
    t.until(lambda: s.number("entries", other) == 0, "all is over")
    end = other.acquire("end")
    wanted = [("lock:k", "granted %d held=1 lease_ms=%d waited_ms=0" % (fence, lease)),
              ("lock:k", event % fence),
              ("lock:end", "granted %d held=1 lease_ms=-1 waited_ms=0" % end)]
    for who in (sub, by_pattern):
        check([who.message() for _ in wanted], wanted, "the events")
    if push:
        got = c.push()
        check(got[:3] + [int(got[3])], [b"lock", b"k", push, fence], "the push")
    if how in ("release", "release_by_another", "wait", "break", "break_now"):
        check(c("PING"), "PONG")
        check(c.pushes, [], "further pushes")


for how, options, event, push in ENDS:
    test_of("the_end_of_a_grant_is_published_once_%s%s" % (how, "_leased" if options else ""),
            the_end_of_a_grant_is_published_once, how, options, event, push)


@test
def a_broken_lease_is_reported_at_the_break_and_at_expiry(t):
    """S3: BREAK of a leased grant: it is asked to end, and ends with its lease."""
    s, sub, other = t.server().with_clients(2)
    c = s.client(3)
    sub.subscribe("lock:k", "lock:end")
    for lease in (300, 2000, 10000):  # the longer ones, if the machine stalls
        fence = c.acquire("k", "LEASE", lease)
        if [other("BREAK", "k", fence), other("BREAK", "k", fence)] == [1, 1]:
            break
    until_free(t, other, "k")
    t.until(lambda: s.number("entries", other) == 0, "all is over")
    other.acquire("end")
    told = []
    while True:
        channel, text = sub.message()
        if channel == "lock:end":
            break
        if int(text.split()[1]) == fence:
            told.append(text)
    check(told[1:], ["broken %d why=last-lease" % fence, "expired %d" % fence], "after granted")
    check(c("PING"), "PONG")
    check([p[2] for p in c.pushes if int(p[3]) == fence], [b"broken", b"expired"])


@test
def a_client_that_speaks_RESP2_is_pushed_nothing(t):
    s, c, other = t.server().with_clients(2)
    fence = c.acquire("k")
    check(other("BREAK", "k", fence), 2)
    check(c("PING"), "PONG", "the next reply")


@test
def a_holder_that_waits_for_something_else_is_pushed_its_loss(t):
    s = t.server()
    c, other, third = s.client(3), s.client(), s.client()
    third.acquire("busy")
    fence = c.acquire("k")
    s.waits(c, "ACQUIRE", "busy", "WAIT", FOREVER)
    check(other("BREAK", "k", fence), 2)
    got = c.push()
    check([got[2], int(got[3])], [b"broken", fence])
    check(third("RELEASE", "busy"), 1)
    check(c.reply()[1], 1)


@test
def a_holder_that_subscribes_gets_both_the_push_and_the_message(t):
    s = t.server()
    c, other = s.client(3), s.client()
    fence = c.acquire("k")
    c.subscribe("lock:k")
    check(other("BREAK", "k", fence), 2)
    kinds = sorted([c.push()[0], c.push()[0]])
    check(kinds, [b"lock", b"message"])


@test
def a_thousand_expired_leases_are_reported_once_each(t):
    s = t.server()
    sub, c = s.client(), s.client(3)
    sub.subscribe("lock:*", command="PSUBSCRIBE")
    fences = [c.acquire("k%d" % i, "LEASE", 300 + i % 3) for i in range(1000)]
    expired = []
    while len(expired) < 1000:
        channel, text = sub.message()
        if text.startswith("expired"):
            expired.append((channel, int(text.split()[1])))
        else:
            check(text.split()[0], "granted")
    check(sorted(expired), sorted(("lock:k%d" % i, f) for i, f in enumerate(fences)))
    check(c("PING"), "PONG")
    check(sorted(int(p[3]) for p in c.pushes), sorted(fences), "the pushes")
    check(s.number("expiries"), 1000)


class Chaos:
    """Clients that do anything, in one thread. A connection either waits or is idle."""

    def __init__(self, t, s, seed):
        self.t, self.s, self.draw = t, s, random.Random(seed)
        self.ask = s.client()
        self.all = [self.new() for _ in range(12)]

    def new(self):
        c = self.s.client(self.draw.choice((2, 3)))
        c.number, c.fences, c.waits = c.id, [], None
        return c

    def collect(self, c):
        """The reply of one that waited, if it has come."""
        while c.waits and c.ready():
            got = c.value(time.monotonic() + 30)
            if isinstance(got, Push):
                continue
            if isinstance(got, list):
                c.fences.append((c.waits, got[0]))
            c.waits = None
        return not c.waits

    def replace(self, c):
        self.all[self.all.index(c)] = self.new()

    def act(self):
        draw = self.draw
        c = draw.choice(self.all)
        if draw.random() < 0.01:  # an operator
            key = "k%d" % draw.randrange(4)
            got = self.ask("READ", key)
            if got:
                self.ask("BREAK", key, got[1], *draw.choice(((), ("NOW",))))
        try:
            if draw.random() < 0.08:  # it ends, whatever it does
                how = draw.choice(("close", "reset", "kill", "half", "garbage"))
                if how == "kill":
                    self.ask("CLIENT", "KILL", "ID", c.number)
                elif how == "half":
                    c.socket.shutdown(socket.SHUT_WR)
                elif how == "garbage":
                    c.send_raw(b"*1\r\n!\r\n")
                self.replace(c)
                c.reset() if how == "reset" else c.close()
            elif self.collect(c):
                self.command(c)
            else:
                time.sleep(0.0002)
        except (Closed, OSError):
            self.replace(c)

    def command(self, c):
        draw = self.draw
        key = "k%d" % draw.randrange(4)
        what = draw.random()
        if what < 0.5:
            words = []
            if draw.random() < 0.6:
                words += ["WAIT", draw.choice((1, 1, 2, 3, 5, 5, 10, 30, FOREVER))]
            if draw.random() < 0.5:
                words += ["LEASE", draw.choice((1, 1, 2, 3, 3, 20, 60))]
            if draw.random() < 0.3:
                words += ["PRIORITY", draw.randrange(-2, 3)]
            c.send("ACQUIRE", key, *words)
            c.waits = key
        elif what < 0.65 or not c.fences:
            c("RELEASE", key)
        elif what < 0.97 and c.fences:
            key, fence = draw.choice(c.fences[-5:])
            c(*draw.choice((("RELEASE", key, fence), ("EXTEND", key, fence, 30), ("CHECK", key, fence),
                            ("RELEASE", key, fence), ("BREAK", key, fence),
                            ("BREAK", key, fence, "NOW"))))
        elif what < 0.985:
            c("RESET")
            c.protocol = 2
        else:
            stop(self.t, self.s.pid)
            time.sleep(0.005)
            self.s.signal(signal.SIGCONT)


def check_story(events, seed):
    """What the events of a server tell makes sense: every grant of a key is told once and
    ends once, fences rise, and one ends before the next begins. That it has ended by its
    lease or with its connection may be told after the next grant, and only that."""
    held, past, last, broken = {}, set(), 0, set()
    ended = 0
    for channel, text in events:
        where = "seed %d: %s %s" % (seed, channel, text)
        words = text.split()
        event, fence = words[0], int(words[1])
        held.setdefault(channel, set())
        if event == "granted":
            check_that(fence > last, where + ": fences rise")
            last = fence
            past |= held[channel]  # whose ends have to be told still
            held[channel].add(fence)
            continue
        check_that(fence in held[channel], where + ": it is held")
        if event == "extended" or text.endswith("why=last-lease"):
            check_that(fence not in broken | past, where + ": it is not over")
            broken |= {fence} if event == "broken" else set()
            continue
        check_that(event == "expired" or text.endswith("why=disconnect") or fence not in past
                   and event in ("released", "broken"), where + ": that is how it may end")
        held[channel].remove(fence)
        ended += 1
    check([h for h in held.values() if h], [], "seed %d: who still holds" % seed)
    return ended


@test
def whatever_happens_the_events_tell_it_in_order_and_once(t):
    """S3, W1, over thousands of random steps."""
    seed = random.randrange(1 << 32)
    s = t.server("--linger", "15ms")
    sub = s.client().subscribe("lock:*", command="PSUBSCRIBE")
    chaos = Chaos(t, s, seed)
    for _ in range(6000):
        chaos.act()
    for c in chaos.all:
        c.close()
    ask = chaos.ask
    t.until(lambda: s.number("connected_clients", ask) == 2, "all are gone")
    t.until(lambda: all(s.holders("k%d" % i, ask) + s.waiters("k%d" % i, ask) == 0
                        for i in range(4)), "nobody holds or waits (seed %d)" % seed)
    info = s.info(ask)
    ask.acquire("end")
    events = []
    while not events or events[-1][0] != "lock:end":
        events.append(sub.message())
    ended = check_story(events[:-1], seed)
    check(ended, int(info["grants"]), "seed %d: grants that ended" % seed)
    check_that(ended > 300, "seed %d: there were %d grants" % (seed, ended))
    check(ended, sum(int(info[n]) for n in ("releases", "expiries", "disconnect_releases")) +
          sum("broken" in e[1] and "last-lease" not in e[1] or "why=break" in e[1]
              for e in events),
          "seed %d: ends as INFO counts them" % seed)


# --- Sockets -----------------------------------------------------------------------------------


@test
def a_unix_socket_serves_as_well(t):
    path = t.path("sock")
    s = t.server("--socket", path)
    check(oct(os.stat(path).st_mode & 0o777), "0o600", "its mode")
    a, b = Client(path), Client(path, 3)
    tcp = s.client()
    fence = a.acquire("k")
    check(b("ACQUIRE", "k"), None)
    check(tcp("CHECK", "k", fence), 1, "one table for both")
    w = waiting(s, "k")
    a.close()
    w.reply()
    address = pairs(s.explain("k")["holders"][0])["address"]
    check_that(address, "the holder has an address")


@test
def only_a_unix_socket_with_port_0(t):
    path = t.path("sock")
    s = t.server("--socket", path, "--socket-mode", "0666", port=0)
    check(s.port, None, "the port")
    check(oct(os.stat(path).st_mode & 0o777), "0o666", "its mode")
    check(Client(path)("PING"), "PONG")
    listening = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True).stdout
    check_that("pid=%d," % s.pid not in listening, "it listens on no port")


@test
def accepted_connections_are_kept_alive(t):
    """So a peer whose machine is gone is found out."""
    for options, wanted in (((), True), (("--keep-alive", "0"), False)):
        s = t.server(*options)
        kept = s.clients(3)
        kept[0]("PING")
        t.until(lambda: s.number("connected_clients", kept[0]) == 3, "all are accepted")

        def timers():
            """Of each connection; while data is on its way another timer is shown."""
            out = subprocess.run(["ss", "-Htno", "sport", "=", ":%d" % s.port],
                                 capture_output=True, text=True).stdout.strip()
            return [re.search(r"timer:\((\w+)|$", line).group(1) for line in out.splitlines()]

        t.until(lambda: "on" not in timers(), "all data has arrived")
        check(timers(), ["keepalive" if wanted else None] * 3, "the timers with %r" % (options,))


main(__doc__)
