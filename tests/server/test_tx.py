#!/usr/bin/python3
"""test_tx.py - transactions on one server: waits, restarts, durability, and what
happens to clients that disconnect.

    tests/server/test_tx.py SERVER [--jobs N] [PATTERN...]
"""
import itertools
import os
import random
import signal
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
from live import (Error, Failure, both_protocols, check, check_error, check_that, main, pairs,
                  sluice, start, stop, test, test_of, threads)
from shims import Shims, mount
from tx import begin, commit, ok


class Restart(Exception):
    """It received that error."""


def commit_fails(c, word, command):
    """It is over: something had failed before."""
    check_error(c("TX.COMMIT"), word, "%s failed with %s" % (command, word), "nothing was committed")
    check_error(c("TX.COMMIT"), "NOTX")


def put(s, table, key, value, *request):
    """One transaction that writes one value; its revision."""
    c = s.client()
    begin(c, *request)
    ok(c, "TX.PUT", table, key, value)
    got = commit(c)
    c.close()
    return got


def get(s, table, key):
    c = s.client()
    begin(c)
    got = c("TX.GET", table, key)
    commit(c)
    c.close()
    return got


def table(s, name):
    """All of a table, as a dict."""
    c = s.client(3)
    begin(c)
    got = c("TX.SCAN", name)
    check_that(isinstance(got, dict), "TX.SCAN is answered: %r" % (got,))
    commit(c)
    c.close()
    return got


def waits(s, client, *words, count=1):
    """A transaction sends a command, and is one of this many that wait."""
    client.send(*words)
    s.until_number("transactions_waiting", count)


def one_waits_for_the_other(t):
    """A server and two transactions: the older one has written x and waits for y, which the
    younger one has written. Also their numbers."""
    s, a, b = start(t).with_clients(2)
    old, young = begin(a)[1], begin(b)[1]
    ok(a, "TX.PUT", "t", "x", "a")
    ok(b, "TX.PUT", "t", "y", "b")
    waits(s, a, "TX.PUT", "t", "y", "a")
    return s, a, b, old, young


def explain(s, *item):
    c = s.client(3)
    got = pairs(c("EXPLAIN", "TX", *item))
    c.close()
    return got


# --- One transaction -----------------------------------------------------------------


@both_protocols
def a_transaction_from_begin_to_commit(t, protocol):
    s = start(t)
    c = s.client(protocol)
    check(begin(c), (1, 1))
    check(c("TX.GET", "t", "a"), None)
    ok(c, "TX.PUT", "t", "a", "1")
    ok(c, "TX.PUT", "t", "b", b"\0\r\n\xff")
    ok(c, "TX.PUT", "t", "empty", "")
    check(c("TX.GET", "t", "a"), b"1", "its own write")
    check(c("TX.GET", "t", "empty"), b"")
    wanted = {b"a": b"1", b"b": b"\0\r\n\xff", b"empty": b""}
    got = c("TX.SCAN", "t")
    check_that(isinstance(got, dict if protocol == 3 else list), "the kind of %r" % (got,))
    check({k.encode(): v for k, v in pairs(got).items()}, wanted)
    ok(c, "TX.DEL", "t", "b")
    ok(c, "TX.DEL", "t", "never was")
    check(c("TX.GET", "t", "b"), None, "its own deletion")
    first = commit(c)
    check(table(s, "t"), {b"a": b"1", b"empty": b""})
    check(begin(c)[0], 1, "the term")
    ok(c, "TX.PUT", "t", "a", "2")
    ok(c, "TX.ABORT")
    check(get(s, "t", "a"), b"1", "after ABORT")
    check_that(put(s, "t", "a", "3") > first, "revisions rise")


@test
def tables_are_apart(t):
    s = start(t)
    put(s, "t", "ab", "1")
    put(s, "ta", "b", "2")
    put(s, "T", "ab", "3")
    check([table(s, name) for name in ("t", "ta", "T", "tab")],
          [{b"ab": b"1"}, {b"b": b"2"}, {b"ab": b"3"}, {}])


@test
def a_scan_is_in_the_order_of_keys(t):
    s, c = start(t).with_clients(1)
    begin(c)
    keys = [b"%d" % i for i in range(50)] + [b"a", b"a\0", b"aa", b"\xff", b"\0"]
    random.Random(7).shuffle(keys)
    for k in keys[:25]:
        ok(c, "TX.PUT", "t", k, "x")
    commit(c)
    begin(c)
    for k in keys[25:]:
        ok(c, "TX.PUT", "t", k, "y")
    check(c("TX.SCAN", "t")[::2], sorted(keys), "before the commit")
    commit(c)
    begin(c)
    check(c("TX.SCAN", "t")[::2], sorted(keys), "after it")


@test
def what_is_not_there_is_reported(t):
    s, c = start(t).with_clients(1)
    for words in (("TX.GET", "t", "k"), ("TX.PUT", "t", "k", "v"), ("TX.DEL", "t", "k"), ("TX.SCAN", "t"),
                  ("TX.LOCK", "READ", "t"), ("TX.COMMIT",), ("TX.ABORT",)):
        check_error(c(*words), "NOTX", "TX.BEGIN")
    check(begin(c), (1, 1))
    check_error(c("TX.BEGIN"), "NOTX", "transaction 1", "TX.COMMIT")
    for words in (("TX.LOCK", "HOLD", "t"), ("TX.BEGIN", "REQUEST"), ("TX.BEGIN", "NAME", "x"),
                  ("TX.GET", "", "k"), ("TX.GET", "t", ""), ("TX.SCAN", ""), ("TX.OUTCOME", ""),
                  ("TX.GET", "t"), ("TX.COMMIT", "now"), ("EXPLAIN", "RX", "t")):
        check_error(c(*words), "ERR")
    check(c("TX.OUTCOME", "never asked"), None)
    ok(c, "TX.PUT", "t", "k", "v")
    ok(c, "TX.ABORT")
    put(s, "t", "k", "w")
    check(get(s, "t", "k"), b"w", "none of that did harm")


@test
def a_read_only_transaction_commits_too(t):
    s = start(t)
    put(s, "t", "k", "v")
    before = s.number("revision")
    c = s.client()
    begin(c)
    check(c("TX.GET", "t", "k"), b"v")
    check(commit(c), before, "the revision stays")


# --- After an error -------------------------------------------------------------------


A_LIMIT = ("--tx-value-bytes-max", "10", "--tx-writes-max", "3", "--tx-locks-max", "6", "--tx-rows-max", "2")
FAILURES = (  # the word of its error, and what is sent
    ("TOOBIG", "TX.PUT", "t", "b", "x" * 11),
    ("TOOBIG", "TX.SCAN", "full"),
    ("TOOBIG", "TX.GET", "t", "k" * 600),
    ("WRITES", "TX.PUT", "t", "b", "1"),
    ("LOCKS", "TX.LOCK", "WRITE", "u", "b"),
    ("ERR", "TX.PUT", "t", "b"),
    ("ERR", "TX.GET", "t", ""),
    ("ERR", "TX.LOCK", "HOLD", "t"),
    ("ERR", "TX.COMMIT", "now"),
    ("ERR", "TX.ABORT", "it"),
    ("ERR", "TX.PTU", "t", "b", "1"),
    ("NOTX", "TX.BEGIN"),
    ("NOTX", "tx.begin", "REQUEST", "r2"),
    ("ERR", "TX.BEGIN", "NAME", "x"),
)


@both_protocols
def a_pipeline_with_a_failed_command_commits_nothing(t, protocol):
    s = start(t, *A_LIMIT)
    a, b = s.client(protocol), s.client()
    for i in range(3):
        put(s, "full", i, "v")
    before = s.number("revision")
    for n, (word, *words) in enumerate(FAILURES):
        first = [("TX.PUT", "t", key, "1") for key in ("a", "c", "d")]
        if word == "LOCKS":
            first = [("TX.GET", "t", key) for key in ("e", "f", "g")] + first[:1]
        got = a.pipeline(("TX.BEGIN", "REQUEST", "r%d" % n), *first, tuple(words), ("TX.GET", "t", "a"),
                       ("TX.COMMIT",))
        name = words[0].upper() if words[0] != "TX.PTU" else "an unknown command"
        check(got[-2], b"1", "after %r: it goes on" % (words,))
        check_error(got[-3], word)
        check_error(got[-1], word, "%s failed with %s" % (name, word), "nothing was committed", "retry from TX.BEGIN")
        check(s.number("revision"), before)
        check((s.number("transactions"), s.number("transaction_locks")), (0, 0), "its locks are free")
        check(b("TX.OUTCOME", "r%d" % n), None)
    check(a.pipeline(("TX.BEGIN",), ("TX.PUT", "t", "a", "2"), ("TX.COMMIT",))[1:], ["OK", before + 1])


@test
def an_error_before_an_abort_or_outside_is_none_of_the_next_transaction(t):
    s, c = start(t, *A_LIMIT).with_clients(1)
    bad = ("TX.PUT", "t", "b", "x" * 11)
    for end in ("TX.ABORT", "RESET"):
        check_error(c.pipeline(("TX.BEGIN",), bad, (end,))[1], "TOOBIG")
        c.pipeline(("TX.BEGIN",), ("TX.PUT", "t", "a", "1"))
        commit(c)
    check_error(c(*bad), "TOOBIG")
    check_error(c("TX.PUT", "t", "b"), "ERR")
    begin(c)
    check_error(c("TX.OUTCOME", "r" * 1000), "TOOBIG", "(tx-request-bytes-max)")
    check_error(c("ACQUIRE"), "ERR")
    commit(c)


@test
def a_transaction_restarts_whatever_else_failed(t):
    """RESTART is to be replayed, whatever follows it; after another error it is that error."""
    s, a, b = start(t, *A_LIMIT).with_clients(2)
    bad = ("TX.PUT", "t", "b", "x" * 11)
    for first in (False, True):
        begin(a)
        number = begin(b)
        ok(a, "TX.PUT", "t", "a", "1")
        ok(b, "TX.PUT", "t", "b", "2")
        waits(s, a, "TX.PUT", "t", "b", "1")
        if first:
            check_error(b(*bad), "TOOBIG")
        check_error(b("TX.PUT", "t", "a", "2"), "RESTART")
        check(a.reply(), "OK")
        check_error(b(*bad), "TOOBIG")
        check_error(b("TX.COMMIT"), "RESTART", "retry from TX.BEGIN")
        check(begin(b), number, "its age is kept")
        ok(b, "TX.ABORT")
        commit(a)


# --- Two of them -----------------------------------------------------------------------


@test
def a_conflicting_pair_runs_one_after_the_other(t):
    s = start(t)
    put(s, "t", "x", "0")
    a, b = s.clients(2)
    begin(a), begin(b)
    check(a("TX.GET", "t", "x"), b"0")
    ok(a, "TX.PUT", "t", "x", "1")
    waits(s, b, "TX.GET", "t", "x")
    check_that(b.quiet(), "it waits")
    commit(a)
    check(b.reply(), b"1", "what it read after the commit")
    commit(b)


@test
def readers_do_not_wait_for_each_other(t):
    s = start(t)
    put(s, "t", "x", "0")
    a, b, c = s.clients(3)
    for x in (a, b):
        begin(x)
        check(x("TX.GET", "t", "x"), b"0")
    begin(c)
    waits(s, c, "TX.PUT", "t", "x", "1")
    commit(a)
    check_that(c.quiet(), "one still reads")
    commit(b)
    check(c.reply(), "OK")
    commit(c)
    check(get(s, "t", "x"), b"1")


@test
def locks_on_a_table_conflict_with_locks_on_its_keys(t):
    """Locks on a whole table and on keys of it: what fits and what waits."""
    s = start(t)
    key = {"READ": ("TX.LOCK", "READ", "t", "k"), "WRITE": ("TX.LOCK", "WRITE", "t", "k")}
    whole = {"READ": ("TX.LOCK", "READ", "t"), "WRITE": ("TX.LOCK", "WRITE", "t")}
    for mine in ("READ", "WRITE"):
        for yours in ("READ", "WRITE"):
            for first, second in ((key[mine], whole[yours]), (whole[mine], key[yours]),
                                  (whole[mine], whole[yours]), (key[mine], key[yours])):
                a, b = s.clients(2)
                begin(a), begin(b)
                ok(a, *first)
                b.send(*second)
                if mine == yours == "READ":
                    check(b.reply(), "OK", "%r together with %r" % (second, first))
                else:
                    s.until_number("transactions_waiting", 1)
                    commit(a)
                    check(b.reply(), "OK", "%r after %r" % (second, first))
                for x in (a, b):
                    x.close()
                s.until_number("transactions", 0)


@test
def a_scan_has_no_phantoms(t):
    s = start(t)
    put(s, "t", "a", "1")
    a, b = s.clients(2)
    begin(a), begin(b)
    check(a("TX.SCAN", "t"), [b"a", b"1"])
    waits(s, b, "TX.PUT", "t", "new", "1")
    check(a("TX.SCAN", "t"), [b"a", b"1"], "the same again")
    commit(a)
    check(b.reply(), "OK")
    commit(b)


@test
def a_deadlock_is_named_and_both_commit(t):
    s, a, b, old, young = one_waits_for_the_other(t)
    check_error(b("TX.PUT", "t", "x", "b"), "RESTART", "%d waits for %d waits for %d" % (young, old, young),
                "retry from TX.BEGIN")
    check(a.reply(), "OK", "the older one goes on")
    check_error(b("TX.PUT", "t", "z", "b"), "RESTART")
    check(begin(b), (1, young), "it keeps its number")
    waits(s, b, "TX.PUT", "t", "x", "b")
    words = b"\n".join(explain(s, "t", "x")["summary"]).decode()
    check_that("%d waits for %d waits for %d" % (young, old, young) in words, "EXPLAIN names it: " + words)
    commit(a)
    check(b.reply(), "OK")
    ok(b, "TX.PUT", "t", "y", "b")
    commit(b)
    check(table(s, "t"), {b"x": b"b", b"y": b"b"})
    info = s.info()
    check([info[n] for n in ("deadlocks", "restarts", "last_deadlock")],
          ["1", "1", "%d waits for %d waits for %d" % (young, old, young)])


@test
def the_youngest_restarts_no_matter_which_closes_the_cycle(t):
    s, a, b, c = start(t).with_clients(3)
    ids = [begin(x)[1] for x in (a, b, c)]
    for x, key in ((a, "x"), (b, "y"), (c, "z")):
        ok(x, "TX.LOCK", "WRITE", "t", key)
    waits(s, c, "TX.GET", "t", "x")
    waits(s, b, "TX.GET", "t", "z", count=2)
    a.send("TX.GET", "t", "y")
    got = c.reply()
    check_error(got, "RESTART")
    named = [int(n) for n in got.split("deadlock: transaction ")[1].split(";")[0].split(" waits for ")]
    check(named[0], named[-1], "it is a cycle: %r" % got)
    check(sorted(named[1:]), sorted(ids))
    follows = dict(zip(named, named[1:]))
    check([follows[i] for i in (ids[2], ids[1], ids[0])], [ids[0], ids[2], ids[1]], "the wait-for graph")
    check(b.reply(), None)
    commit(b)
    check(a.reply(), None)
    commit(a)


@test
def two_transactions_that_read_and_then_write(t):
    """Each would have to wait for the other to stop reading."""
    s = start(t)
    put(s, "t", "n", "0")
    a, b = s.clients(2)
    for x in (a, b):
        begin(x)
        check(x("TX.GET", "t", "n"), b"0")
    waits(s, a, "TX.PUT", "t", "n", "1")
    check_error(b("TX.PUT", "t", "n", "1"), "RESTART")
    check(a.reply(), "OK")
    commit(a)
    begin(b)
    check(b("TX.GET", "t", "n"), b"1", "it sees the other's")
    ok(b, "TX.PUT", "t", "n", "2")
    commit(b)
    check(get(s, "t", "n"), b"2")


@test
def what_was_sent_ahead_of_RESTART_does_nothing(t):
    """A pipeline was sent whole; in the middle of it the transaction lost its locks."""
    s, a, b = one_waits_for_the_other(t)[:3]
    for words in (("TX.PUT", "t", "x", "b"), ("TX.PUT", "t", "z", "b"), ("TX.GET", "t", "y"), ("TX.COMMIT",),
                  ("TX.COMMIT",)):
        b.send(*words)
    for _ in range(5):
        check_error(b.reply(), "RESTART", "retry from TX.BEGIN")
    check(a.reply(), "OK")
    commit(a)
    check(table(s, "t"), {b"x": b"a", b"y": b"a"})
    ok(b, "TX.ABORT")


@test
def TX_LOCK_waits_no_longer_than_WAIT(t):
    s, a, b = start(t).with_clients(2)
    begin(a), begin(b)
    ok(a, "TX.LOCK", "WRITE", "t", "x")
    check(b("TX.LOCK", "WRITE", "t", "x", "WAIT", "0"), None)
    check(b("TX.LOCK", "READ", "t", "WAIT", "0"), None, "the table")
    began = time.monotonic()
    check(b("tx.lock", "read", "t", "x", "wait", "120"), None)
    check_that(time.monotonic() - began >= 0.12, "it waited for 120 ms")
    began = time.monotonic()
    check(b("TX.LOCK", "READ", "t", "x", "WAIT", "0.2s"), None)
    check_that(time.monotonic() - began >= 0.2, "it waited for 0.2 s")
    ok(b, "TX.LOCK", "WRITE", "t", "y", "WAIT", "0")
    waits(s, b, "TX.LOCK", "WRITE", "t", "x", "WAIT", "600000")
    ok(a, "TX.ABORT")
    check(b.reply(), "OK")
    ok(b, "TX.PUT", "t", "x", "1")
    commit(b)
    check(get(s, "t", "x"), b"1", "nil is no error: it was committed")
    check(s.number("transaction_locks"), 0)


@test
def TX_LOCK_says_what_is_wrong_with_WAIT(t):
    s, c = start(t).with_clients(1)
    for words in (("t", "WAIT", "-1"), ("t", "k", "WAIT", "x"), ("t", "WAIT", ""), ("t", "k", "WAIT", "1e3")):
        check_error(c("TX.LOCK", "READ", *words), "ERR", "WAIT must be a duration from 0 to")
    check_error(c("TX.LOCK", "READ", "t", "k", "LATER", "1"), "ERR", 'unknown option "LATER" for TX.LOCK')
    check_error(c("TX.LOCK", "READ", "t", "k", "1"), "ERR", "only WAIT time can follow the table and the key; usage:")
    begin(c)
    ok(c, "TX.LOCK", "READ", "t", "WAIT")
    check(explain(s, "t", "WAIT")["holders_count"], 1, "a key of that name")
    ok(c, "TX.LOCK", "READ", "t", "WAIT", "WAIT", "5")


@test
def a_restarted_transaction_takes_its_write_locks_first(t):
    s, a, b = one_waits_for_the_other(t)[:3]
    check_error(b("TX.GET", "t", "x"), "RESTART")
    check(a.reply(), "OK")
    check(s.number("transaction_locks_remembered"), 3)
    check(s.number("transaction_locks"), 3)
    begin(b)
    waits(s, b, "TX.GET", "other", "z")
    check(explain(s, "t", "x")["waiters_count"], 1, "it waits for what it had")
    commit(a)
    check(b.reply(), None)
    for key in ("x", "y"):
        check(pairs(explain(s, "t", key)["holders"][0])["has"], b"writes", key)
    commit(b)
    check(s.number("transaction_locks_remembered"), 0)


@test
def thirty_two_clients_on_two_keys_all_finish(t):
    s = start(t)
    clients, rounds = 32, 4
    restarts = []

    def ask(c, *words):
        got = c(*words)
        if isinstance(got, Error):
            if got.word == "RESTART":
                raise Restart()
            raise Failure("%r: %r" % (words, got))
        return got

    def add_one(c, keys):
        while True:
            begin(c)
            try:
                for key in keys:
                    n = int(ask(c, "TX.GET", "t", key) or 0)
                    ask(c, "TX.PUT", "t", key, n + 1)
                return ask(c, "TX.COMMIT")
            except Restart:
                restarts.append(1)

    def work(number):
        c = s.client()
        for i in range(rounds):
            add_one(c, ("x", "y") if (number + i) % 2 else ("y", "x"))

    with threads(work, range(clients)):
        pass
    total = b"%d" % (clients * rounds)
    check(table(s, "t"), {b"x": total, b"y": total})
    check_that(restarts, "there were cycles to break")
    check(s.number("transactions"), 0)
    check(s.number("transaction_locks"), 0)


# --- What lasts -------------------------------------------------------------------------


@test
def after_kill_9_committed_data_is_there(t):
    s = start(t)
    put(s, "t", "committed", "1")
    c, w = s.clients(2)
    term, _ = begin(c)
    ok(c, "TX.PUT", "t", "open", "1")
    ok(c, "TX.DEL", "t", "committed")
    begin(w)
    waits(s, w, "TX.PUT", "t", "open", "2")
    last = s.number("revision")
    for i in range(2):
        s = s.crash()
        check(table(s, "t"), {b"committed": b"1"})
        c = s.client()
        again, _ = begin(c)
        check_that(again > term, "term %d after %d" % (again, term))
        term = again
        c.close()
    check_that(put(s, "t", "k", "v") > last, "revisions go on")


@test
def a_clean_stop_is_a_new_term_as_well(t):
    s = start(t)
    put(s, "t", "k", "v")
    s = s.restart()
    check(begin(s.client())[0], 2)
    check(get(s, "t", "k"), b"v")
    check(s.info()["term"], "2")


@test
def a_request_is_committed_once(t):
    s = start(t)
    first = put(s, "t", "n", "1", "REQUEST", "pay 17")
    check(put(s, "t", "n", "2", "REQUEST", "pay 17"), first, "the same revision")
    check(get(s, "t", "n"), b"1")
    check(s.number("duplicates"), 1)
    s = s.crash()
    check(put(s, "t", "n", "3", "REQUEST", "pay 17"), first, "over a restart")
    check(get(s, "t", "n"), b"1")
    check(s.client()("TX.OUTCOME", "pay 17"), first)
    check_that(put(s, "t", "n", "4", "REQUEST", "pay 18") > first, "another is another")
    check(get(s, "t", "n"), b"4")


@test
def TX_OUTCOME_reports_a_commit_whose_reply_was_lost(t):
    s, c, other = start(t).with_clients(2)
    begin(c, "REQUEST", "r1")
    ok(c, "TX.PUT", "t", "k", "v")
    check(other("TX.OUTCOME", "r1"), None, "before the commit")
    stop(t, s.pid)
    c.send("TX.COMMIT")
    c.close()
    s.signal(signal.SIGCONT)
    revision = t.until(lambda: other("TX.OUTCOME", "r1"), "the outcome is known")
    check(get(s, "t", "k"), b"v")
    s = s.crash()
    check(s.client()("TX.OUTCOME", "r1"), revision, "over a restart")


@test
def a_request_that_was_aborted_has_no_outcome(t):
    s, c = start(t).with_clients(1)
    begin(c, "REQUEST", "r1")
    ok(c, "TX.PUT", "t", "k", "v")
    check(c("TX.OUTCOME", "r1"), None, "it is not committed yet")
    ok(c, "TX.ABORT")
    check(c("TX.OUTCOME", "r1"), None)
    begin(c, "REQUEST", "r1")
    ok(c, "TX.PUT", "t", "k", "w")
    check(commit(c), c("TX.OUTCOME", "r1"))


# --- Clients that disconnect----------------------------------------------------------------


def leave_by(c, how):
    {"close": c.close, "reset": c.reset}[how]()


def leaves_with_locks(t, how):
    s, a, b = start(t, "--linger", "1h").with_clients(2)
    begin(a), begin(b)
    ok(a, "TX.PUT", "t", "x", "a")
    waits(s, b, "TX.PUT", "t", "x", "b")
    leave_by(a, how)
    check(b.reply(), "OK")
    commit(b)
    check(get(s, "t", "x"), b"b")
    check(s.number("barred"), 1)


def leaves_while_it_waits(t, how):
    s, a, b, c = start(t).with_clients(3)
    begin(a), begin(b), begin(c)
    ok(b, "TX.PUT", "t", "y", "b")
    ok(a, "TX.PUT", "t", "x", "a")
    waits(s, b, "TX.PUT", "t", "x", "b")
    waits(s, c, "TX.PUT", "t", "y", "c", count=2)
    leave_by(b, how)
    check(c.reply(), "OK", "its locks are free")
    commit(a)
    commit(c)
    check(table(s, "t"), {b"x": b"a", b"y": b"c"})


def leaves_after_RESTART(t, how):
    s, a, b = one_waits_for_the_other(t)[:3]
    check_error(b("TX.PUT", "t", "x", "b"), "RESTART")
    leave_by(b, how)
    check(a.reply(), "OK")
    commit(a)
    s.until_number("transactions", 0)


def leaves_while_it_commits(t, how):
    """It is committed, or it is not, whole; and its locks are free."""
    s, a = start(t).with_clients(1)
    begin(a, "REQUEST", "r")
    ok(a, "TX.PUT", "t", "x", "a")
    ok(a, "TX.PUT", "t", "y", "a")
    stop(t, s.pid)
    a.send("TX.COMMIT")
    leave_by(a, how)
    s.signal(signal.SIGCONT)
    s.until_number("transactions", 0)
    got = table(s, "t")
    check_that(got in ({}, {b"x": b"a", b"y": b"a"}), "all or nothing: %r" % got)
    check(s.client()("TX.OUTCOME", "r") is not None, bool(got))
    put(s, "t", "x", "b")


for kind in (leaves_with_locks, leaves_while_it_waits, leaves_after_RESTART, leaves_while_it_commits):
    for way in ("close", "reset"):
        test_of("one_that_%s_by_%s" % (kind.__name__, way), kind, way)


@test
def a_killed_client_releases_its_locks(t):
    s = start(t)
    kept = []

    def hold(say):
        c = s.client()
        kept.append(c)
        begin(c)
        ok(c, "TX.PUT", "t", "x", "a")
        say("holds")

    child = t.child(hold)
    check(child.line(), "holds")
    b = s.client()
    begin(b)
    waits(s, b, "TX.PUT", "t", "x", "b")
    child.kill()
    check(b.reply(), "OK")
    commit(b)


@test
def RESET_and_CLIENT_KILL_give_a_transaction_up(t):
    s, a, b = start(t).with_clients(2)
    begin(a)
    ok(a, "TX.PUT", "t", "x", "a")
    check(a("RESET"), "RESET")
    check_error(a("TX.COMMIT"), "NOTX")
    begin(b)
    ok(b, "TX.PUT", "t", "x", "b")
    check(a("CLIENT", "KILL", "ID", b.id), 1)
    b.until_closed()
    begin(a)
    ok(a, "TX.PUT", "t", "x", "a2")
    commit(a)
    check(table(s, "t"), {b"x": b"a2"})


@test
def a_stream_that_ends_is_read_to_its_end(t):
    """All of it was sent ahead: reads that wait for the store are no reason to hang up."""
    s = start(t)
    put(s, "t", "old", "1")
    c = s.client()
    for words in (("TX.BEGIN", "REQUEST", "r"), ("TX.GET", "t", "old"), ("TX.SCAN", "t"), ("TX.PUT", "t", "k", "v"),
                  ("TX.OUTCOME", "r"), ("TX.COMMIT",), ("TX.OUTCOME", "r"), ("PING",)):
        c.send(*words)
    c.socket.shutdown(socket.SHUT_WR)
    got = [c.reply() for _ in range(8)]
    check(got[1:5], [b"1", [b"old", b"1"], "OK", None])
    check_that(isinstance(got[5], int) and got[5] == got[6], "the revision: %r" % (got,))
    check(got[7], "PONG")
    check(c.until_closed(), b"")
    check(get(s, "t", "k"), b"v")


# --- Stopping ----------------------------------------------------------------------------


def stop_with_transactions(t, how):
    s = start(t)
    put(s, "t", "k", "old")
    a, b, idle = s.clients(3)
    begin(a), begin(b), begin(idle)
    ok(a, "TX.PUT", "t", "k", "new")
    waits(s, b, "TX.GET", "t", "k")
    if how == "SIGTERM":
        s.signal(signal.SIGTERM)
    else:
        s.client().send("SHUTDOWN")
    check_error(b.reply(), "SHUTDOWN")
    check(s.status, 0)
    s = start(t)
    check(get(s, "t", "k"), b"old")


for way in ("SIGTERM", "SHUTDOWN"):
    test_of("%s_with_transactions_open" % way, stop_with_transactions, way)


def slow(t, *options):
    """A server whose disk can be made to wait."""
    shims = Shims(t)
    return shims, start(t, *options, env=shims.env)


@test
def a_slow_disk_delays_only_commits(t):
    shims, s = slow(t)
    put(s, "t", "k", "old")
    a, b, c = s.clients(3)
    begin(a)
    ok(a, "TX.PUT", "t", "k", "new")
    shims.store(-1)
    a.send("TX.COMMIT")
    t.until(lambda: s.number("store_waiting", c) >= 1, "the commit is on its way")
    begin(b)
    check(c("PING"), "PONG")
    check_that(isinstance(c("ACQUIRE", "lock"), list), "locks are granted")
    ok(b, "TX.PUT", "t", "other", "b")
    waits(s, b, "TX.GET", "t", "k")
    shims.store(0)
    check_that(isinstance(a.reply(), int), "the commit is answered")
    check(b.reply(), b"new")
    commit(b)


@test
def a_commit_on_its_way_is_answered_before_a_stop(t):
    shims, s = slow(t)
    a, c = s.clients(2)
    begin(a)
    ok(a, "TX.PUT", "t", "k", "v")
    shims.store(-1)
    a.send("TX.COMMIT", )
    t.until(lambda: s.number("store_waiting", c) >= 1, "the commit is on its way")
    s.signal(signal.SIGTERM)
    s.until_log("stopping")
    check_that(a.quiet(), "it is not answered yet")
    check_error(c("READY"), "NOTREADY", "the server stops")
    check_error(c("ACQUIRE", "k"), "SHUTDOWN")
    shims.store(0)
    check_that(isinstance(a.reply(), int), "the commit is answered")
    check(s.status, 0)
    s = start(t)
    check(get(s, "t", "k"), b"v")


@test
def locks_are_held_until_the_commit_of_a_lost_client_is_decided(t):
    """Its locks are kept until it is known what became of its commit."""
    shims, s = slow(t)
    a, b, c = s.clients(3)
    begin(a, "REQUEST", "r")
    ok(a, "TX.PUT", "t", "k", "a")
    shims.store(-1)
    a.send("TX.COMMIT")
    t.until(lambda: s.number("store_waiting", c) >= 1, "the commit is on its way")
    a.reset()
    t.until(lambda: s.number("connected_clients", c) == 2, "it is gone")
    begin(b)
    waits(s, b, "TX.GET", "t", "k")
    check_that(b.quiet(), "its locks are held still")
    shims.store(0)
    check(b.reply(), b"a")
    check_that(isinstance(b("TX.OUTCOME", "r"), int), "it was committed")


@test
def a_failing_disk_is_reported_and_recovers(t):
    shims, s = slow(t)
    put(s, "t", "k", "old")
    a = s.client()
    begin(a)
    ok(a, "TX.PUT", "t", "k", "new")
    shims.store(5)  # EIO
    check_error(a("TX.COMMIT"), "IO", "nothing was committed")
    check_that(s.number("store_errors") >= 1, "it is counted")
    check_that("the store failed" in s.log, "it is in the log")
    begin(a)
    check(a("TX.GET", "t", "k"), b"old", "it can be read")
    ok(a, "TX.ABORT")
    shims.store(0)
    t.until(lambda: try_put(s, "t", "k", "newer"), "it is written again")
    check(get(s, "t", "k"), b"newer")


@test
def a_commit_is_answered_before_a_stop_although_its_connection_waits_for_locks(t):
    shims, s = slow(t)
    c, holder = s.client(3), s.client()
    holder.acquire("k", "LEASE", 60000)
    for n in range(2):
        check(c("ACQUIRE", "k", "WAIT", 60000, "REQUEST", "the id of wait %2d" % n, "NOTIFY"), "QUEUED")
    begin(c)
    ok(c, "TX.PUT", "t", "k", "v")
    shims.store(-1)
    c.send("TX.COMMIT")
    t.until(lambda: s.number("store_waiting", holder) >= 1, "the commit is on its way")
    s.signal(signal.SIGTERM)
    for _ in range(2):
        check_error(c.push()[4], "SHUTDOWN")
    shims.store(0)
    check_that(isinstance(c.reply(), int), "the commit is answered")
    check(s.status, 0)
    s = start(t)
    check(get(s, "t", "k"), b"v")


@test
def a_stop_does_not_wait_for_a_disk_that_fails(t):
    """What became of a commit is not known: while it is tried others read, and a stop ends it."""
    shims, s = slow(t)
    put(s, "t", "other", "v")
    a, b, c = s.clients(3)
    begin(a, "REQUEST", "r")
    ok(a, "TX.PUT", "t", "k", "v")
    shims.store_end(5)  # EIO
    a.send("TX.COMMIT")
    t.until(lambda: s.number("store_waiting", c) >= 1, "the commit is on its way")
    begin(b)
    for _ in range(20):
        check(b("TX.GET", "t", "other"), b"v")
    check_that(a.quiet(), "it is not answered yet")
    s.signal(signal.SIGTERM)
    check_error(a.reply(), "CLOSED", "ask for the outcome with TX.OUTCOME id")
    check(s.status, 0)
    shims.store_end(0)
    s, b = start(t).with_clients(1)
    check(b("TX.OUTCOME", "r") is not None, get(s, "t", "k") is not None)


def try_put(s, name, key, value):
    """Whether it was committed; an error changes nothing."""
    c = s.client()
    try:
        if not isinstance(c("TX.BEGIN"), list) or c("TX.PUT", name, key, value) != "OK":
            return False
        got = c("TX.COMMIT")
        if isinstance(got, Error):
            check_that(got.word in ("NOSPACE", "IO", "NOKEEPER"), "the error is one of the disk: %r" % got)
            return False
        return True
    finally:
        c.close()


# --- Limits ------------------------------------------------------------------------------


@test
def tx_max(t):
    s, a, b, c = start(t, "--tx-max", "2").with_clients(3)
    begin(a), begin(b)
    check_error(c("TX.BEGIN"), "TRANSACTIONS", "2 transactions", "(tx-max)")
    ok(a, "TX.ABORT")
    begin(c)
    b.close()
    s.until_number("transactions", 1)
    begin(a)


@test
def tx_locks_max(t):
    s, c = start(t, "--tx-locks-max", "3").with_clients(1)
    begin(c)
    ok(c, "TX.PUT", "t", "a", "1")
    ok(c, "TX.PUT", "t", "b", "1")
    check_error(c("TX.PUT", "t", "c", "1"), "LOCKS", "(tx-locks-max)")
    check_error(c("TX.GET", "u", "c"), "LOCKS", "(tx-locks-max)")
    ok(c, "TX.PUT", "t", "b", "2")
    commit_fails(c, "LOCKS", "TX.PUT")
    check(table(s, "t"), {})


@test
def tx_writes_max(t):
    s, c = start(t, "--tx-writes-max", "2").with_clients(1)
    begin(c)
    ok(c, "TX.PUT", "t", "a", "1")
    ok(c, "TX.DEL", "t", "b")
    check_error(c("TX.PUT", "t", "c", "1"), "WRITES", "(tx-writes-max)")
    ok(c, "TX.PUT", "t", "b", "2")
    commit_fails(c, "WRITES", "TX.PUT")
    check(table(s, "t"), {})


@test
def tx_bytes_max(t):
    s, c = start(t, "--tx-bytes-max", "100").with_clients(1)
    begin(c)
    ok(c, "TX.PUT", "t", "a", "x" * 60)
    check_error(c("TX.PUT", "t", "b", "x" * 60), "WRITES", "(tx-bytes-max)")
    ok(c, "TX.PUT", "t", "a", "x" * 90)
    check_error(c("TX.PUT", "t", "a", "x" * 99), "WRITES", "(tx-bytes-max)")
    commit_fails(c, "WRITES", "TX.PUT")
    check(table(s, "t"), {})


@test
def tx_total_bytes_max(t):
    s, a, b = start(t, "--tx-total-bytes-max", "100").with_clients(2)
    begin(a)
    begin(b)
    ok(a, "TX.PUT", "t", "a", "x" * 60)
    check_error(b("TX.PUT", "t", "b", "x" * 60), "TRANSACTIONS", "100 bytes", "(tx-total-bytes-max)")
    commit_fails(b, "TRANSACTIONS", "TX.PUT")
    commit(a)
    begin(b)
    ok(b, "TX.PUT", "t", "b", "x" * 60)
    commit(b)
    check(table(s, "t"), {b"a": b"x" * 60, b"b": b"x" * 60})


@test
def tx_total_locks_max(t):
    s, a, b = start(t, "--tx-total-locks-max", "4").with_clients(2)
    begin(a)
    begin(b)
    ok(a, "TX.PUT", "t", "a", "1")
    ok(b, "TX.PUT", "t", "b", "1")
    check_error(b("TX.PUT", "t", "c", "1"), "TRANSACTIONS", "4 locks", "(tx-total-locks-max)")
    commit_fails(b, "TRANSACTIONS", "TX.PUT")
    commit(a)
    check(table(s, "t"), {b"a": b"1"})


@test
def tx_age(t):
    s, a, b = start(t, "--tx-age", "300ms").with_clients(2)
    begin(a)
    ok(a, "TX.PUT", "t", "k", "a")
    begin(b)
    got = b("TX.PUT", "t", "k", "b")
    if isinstance(got, Error):  # a slow machine: both were too old
        check_error(got, "AGE", "(tx-age)")
    check_error(a("TX.COMMIT"), "AGE", "300 ms", "(tx-age)", "retry from TX.BEGIN")
    number = begin(a)
    check_error(a("TX.PUT", "t"), "ERR", "wrong number")
    b.close()
    t.until(lambda: isinstance(a("TX.LOCK", "READ", "t", "k"), Error), "it is too old")
    check_error(a("TX.COMMIT"), "AGE")  # and not what failed before: it keeps its number
    check(begin(a), number)
    check(a("TX.OUTCOME", "x"), None)
    check(s.info()["keeper"], "leader")
    c = start(t, "--tx-age", "0", directory="other").client()
    begin(c)
    commit(c)


@test
def tx_name_bytes_max(t):
    s, c = start(t, "--tx-name-bytes-max", "10").with_clients(1)
    begin(c)
    ok(c, "TX.PUT", "tttt", "kkkkkk", "1")
    for words in (("TX.PUT", "tttt", "kkkkkkk", "1"), ("TX.GET", "t" * 10, "k"), ("TX.DEL", "t", "k" * 10),
                  ("TX.SCAN", "t" * 11), ("TX.LOCK", "READ", "t" * 11), ("EXPLAIN", "TX", "t" * 11)):
        check_error(c(*words), "TOOBIG", "(tx-name-bytes-max)")
    commit_fails(c, "TOOBIG", "TX.PUT")


@test
def the_longest_names_are_kept(t):
    s = start(t, "--tx-name-bytes-max", "509", "--tx-request-bytes-max", "511")
    for name, key in (("t" * 508, "k"), ("t", "k" * 508), ("t" * 254, "k" * 255)):
        put(s, name, key, "v")
        check(table(s, name), {key.encode(): b"v"})
    c = s.client()
    begin(c)
    check_error(c("TX.PUT", "t" * 255, "k" * 255, "v"), "TOOBIG", "510 bytes", "509")
    ok(c, "TX.ABORT")
    revision = put(s, "t", "k", "v", "REQUEST", "r" * 511)
    check(c("TX.OUTCOME", "r" * 511), revision)


@test
def tx_value_bytes_max(t):
    s, c = start(t, "--tx-value-bytes-max", "10").with_clients(1)
    begin(c)
    ok(c, "TX.PUT", "t", "k", "x" * 10)
    check_error(c("TX.PUT", "t", "k", "x" * 11), "TOOBIG", "(tx-value-bytes-max)")
    commit_fails(c, "TOOBIG", "TX.PUT")
    put(s, "t", "k", "x" * 10)


@test
def tx_request_bytes_max(t):
    s, c = start(t, "--tx-request-bytes-max", "10").with_clients(1)
    check_error(c("TX.BEGIN", "REQUEST", "x" * 11), "TOOBIG", "(tx-request-bytes-max)")
    check_error(c("TX.OUTCOME", "x" * 11), "TOOBIG", "(tx-request-bytes-max)")
    begin(c, "REQUEST", "x" * 10)


@test
def tx_rows_max(t):
    s, c = start(t, "--tx-rows-max", "3").with_clients(1)
    begin(c)
    for i in range(3):
        ok(c, "TX.PUT", "t", i, "v")
    check(len(c("TX.SCAN", "t")), 6)
    commit(c)
    begin(c)
    ok(c, "TX.PUT", "t", "3", "v")
    check_error(c("TX.SCAN", "t"), "TOOBIG", "3 rows", "(tx-rows-max)")
    commit_fails(c, "TOOBIG", "TX.SCAN")
    put(s, "t", "3", "v")
    begin(c)
    check_error(c("TX.SCAN", "t"), "TOOBIG", "3 rows", "(tx-rows-max)")
    check(c("TX.GET", "t", "0"), b"v", "it goes on")
    commit_fails(c, "TOOBIG", "TX.SCAN")


@test
def a_scan_above_output_bytes_max_is_an_error_and_no_hanging_up(t):
    s, c = start(t, "--output-bytes-max", "20k").with_clients(1)
    # Few large ones, and many whose keys and values would fit, but not with what goes around them.
    for rows, length, written in ((10, 3000, False), (10, 3000, True), (400, 40, False), (400, 40, True)):
        name = "t%d" % rows
        begin(c)
        for i in range(rows):
            ok(c, "TX.PUT", name, i, "v" * length)
        if written:
            commit(c)
            begin(c)
        # Else it is in no store yet.
        check_error(c("TX.SCAN", name), "TOOBIG", "(output-bytes-max)")
        check(c("TX.GET", name, 0), b"v" * length)
        commit_fails(c, "TOOBIG", "TX.SCAN")


@test
def dedup_keep(t):
    s = start(t, "--dedup-keep", "1s")
    put(s, "t", "k", "v", "REQUEST", "r")

    later = ("later %d" % i for i in itertools.count())

    def forgotten():
        put(s, "other", "k", "v", "REQUEST", next(later))  # what is old goes when a new one comes
        return s.client()("TX.OUTCOME", "r") is None

    t.until(forgotten, "it is forgotten")
    check(get(s, "t", "k"), b"v", "what it did stays")


@test
def tx_group_max(t):
    """Commits that wait together are written together; or each alone, if that is asked for."""
    for most, together in (("256", True), ("1", False)):
        shims = Shims(t)
        s = start(t, "--tx-group-max", most, directory="data" + most, env=shims.env)
        clients = s.clients(8)
        for i, c in enumerate(clients):
            begin(c)
            ok(c, "TX.PUT", "t", i, "v")
        before = s.number("commit_groups")
        shims.store(-1)
        for c in clients:
            c.send("TX.COMMIT")
        eye = s.client()
        t.until(lambda: s.number("store_waiting", eye) == 8, "all are on their way")
        shims.store(0)
        for c in clients:
            check_that(isinstance(c.reply(), int), "it is committed")
        groups = s.number("commit_groups") - before
        check_that(groups <= 3 if together else groups == 8, "%d groups of 8 commits" % groups)


@test
def store_bytes_max(t):
    """The store is full: what is there can be read and deleted, and then there is space."""
    s = start(t, "--store-bytes-max", "1m")
    value = "v" * 10000
    n = 0
    while try_put(s, "t", "k%d" % n, value):
        n += 1
        check_that(n < 200, "a megabyte is full after %d values" % n)
    check_that(n > 10, "there was space for %d" % n)
    c = s.client()
    begin(c)
    ok(c, "TX.PUT", "t", "more", value)
    check_error(c("TX.COMMIT"), "NOSPACE", "(store-bytes-max)")
    check(len(table(s, "t")), n, "the rows")
    begin(c)
    for i in range(n // 2):
        ok(c, "TX.DEL", "t", "k%d" % i)
    commit(c)
    t.until(lambda: try_put(s, "t", "more", value), "there is space again")
    check(get(s, "t", "more"), value.encode())
    s.kill()
    s = start(t, "--store-bytes-max", "2m")
    check(len(table(s, "t")), n - n // 2 + 1, "the rows")
    check_that(try_put(s, "t", "still more", value), "a larger one has space")


@test
def a_dump_that_nobody_reads_blocks_nobody(t):
    """LMDB keeps what is overwritten while somebody reads what was there before."""
    s = start(t, "--store-bytes-max", "1m")
    for i in range(20):
        check_that(try_put(s, "t", "k%d" % i, "v" * 10000), "there is space")
    read, write = os.pipe()
    p = t.start(sluice(), "store", "dump", t.path("data"), stdout=write)
    os.close(write)
    with os.fdopen(read, "rb") as out:
        check(out.read(6), b"sluice")
        for i in range(200):
            check_that(try_put(s, "t", "k", "v" * 10000), "there is space, time %d" % i)
        check_that(p.running, "the rest is not read yet")
        check_that(out.read().endswith(b"\nend 20\n"), "all of it comes")
    check(p.status, 0)


def small_disk(t, size):
    os.mkdir(t.path("data"))
    mount(t, "-t", "tmpfs", "-o", "mode=0700,size=" + size, "none", t.path("data"))


@test
def a_full_disk_loses_nothing(t):
    small_disk(t, "4m")
    s = start(t)
    put(s, "t", "first", "1")
    n = 0
    while try_put(s, "t", "k%d" % n, "v" * 10000):
        n += 1
        check_that(n < 400, "the disk is full after %d values" % n)
    c, other = s.clients(2)
    begin(c, "REQUEST", "r")
    ok(c, "TX.PUT", "t", "more", "v" * 10000)
    check_error(c("TX.COMMIT"), "NOSPACE", "nothing was written")
    check(other("TX.OUTCOME", "r"), None)
    check(get(s, "t", "first"), b"1", "reads go on")
    check(len(table(s, "t")), n + 1, "the rows")
    s.still_well()
    mount(t, "-o", "remount,size=8m", t.path("data"))
    t.until(lambda: try_put(s, "t", "more", "w"), "there is space again")
    s = s.crash()
    got = table(s, "t")
    check(len(got), n + 2, "the rows")
    check((got[b"first"], got[b"more"]), (b"1", b"w"))
    check(all(got[b"k%d" % i] == b"v" * 10000 for i in range(n)), True, "all of them are whole")


# --- Where there are none -------------------------------------------------------------------


@test
def two_servers_on_one_directory_are_rejected(t):
    s = start(t)
    put(s, "t", "k", "v")
    p = t.failing("--data", t.path("data"))
    check(p.status, 1)
    check_that("another server uses this directory" in p.err, "it says why: " + p.err)
    check(get(s, "t", "k"), b"v")


@test
def engine_none(t):
    s, c = start(t, "--engine", "none").with_clients(1)
    for words in (("TX.BEGIN",), ("TX.COMMIT",), ("TX.OUTCOME", "r"), ("LOCKS", "TX"), ("EXPLAIN", "TX", "t")):
        check_error(c(*words), "NOKEEPER", "engine: none")
    check(sorted(os.listdir(t.path("data"))), ["journal", "lock"])
    check((s.info()["engine"], s.info()["keeper"], s.info()["term"]), ("none", "none", "0"))


@test
def without_a_directory_there_are_no_transactions(t):
    s = t.server("--data", "none")
    check_error(s.client()("TX.BEGIN"), "NOKEEPER", "--data DIRECTORY")
    s = t.server()
    check_error(s.client()("TX.BEGIN"), "NOKEEPER", "--data DIRECTORY")


@test
def engine_lmdb_is_rejected_where_it_cannot_work(t):
    node = ("--node", "1", "--peers", "1=127.0.0.1:9", "--secret", "0123456789abcdef")
    for options, words, status in (
            (node + ("--data", t.path("d")), "a cluster requires etcd", 2),
            (("--data", "none"), "engine lmdb requires a data directory; set \"data\" to a directory", 2), ((), "--data DIRECTORY", 1)):
        p = t.failing("--engine", "lmdb", *options)
        check(p.status, status, p.err)
        check_that(words in p.err, "it says why: " + p.err)
    p = t.failing("--engine", "sqlite")
    check(p.status, 2)
    check_that('engine must be auto, none, lmdb or etcd (got "sqlite")' in p.err, p.err)


@test
def a_node_of_a_cluster_has_no_keeper(t):
    s = t.server("--node", "1", "--peers", "1=127.0.0.1:9", "--node-port", "auto", "--bootstrap",
                 "--secret", "0123456789abcdef", "--data", t.path("data"))
    c = s.client()
    for words in (("TX.BEGIN",), ("TX.OUTCOME", "r"), ("LOCKS", "TX"), ("EXPLAIN", "TX", "t", "k")):
        check_error(c(*words), "NOKEEPER", "cluster")
    check(s.info(c)["engine"], "none")


@test
def a_foreign_file_is_rejected_and_left_unchanged(t):
    s = start(t)
    s.client().acquire("lock", "LEASE", 3600000)
    put(s, "t", "k", "v")
    s.end()
    names = [n for n in os.listdir(t.path("data")) if n not in ("lock", "journal")]
    store = max(names, key=lambda n: os.path.getsize(t.path("data/" + n)))
    os.rename(t.path("data/" + store), t.path("moved"))
    with open(t.path("data/" + store), "wb") as f:
        f.write(b"not a store of Sluice\n" * 1000)
    p = t.failing("--data", t.path("data"))
    check(p.status, 1)
    check_that("cannot open the transaction store" in p.err and store in p.err, "it says why: " + p.err)
    check_that("listening" not in p.err and "ready: sluice" not in p.err, "it does not claim to serve: " + p.err)
    os.rename(t.path("moved"), t.path("data/" + store))
    s = start(t)
    check(get(s, "t", "k"), b"v")
    check(s.client()("ACQUIRE", "lock"), None, "what was held with a lease is held still")
    check(s.number("recovering_ms"), 0)


# --- Looking ----------------------------------------------------------------------------------


@both_protocols
def EXPLAIN_and_LOCKS_show_items_apart_from_locks(t, protocol):
    s = start(t)
    a, b, c = s.client(protocol), s.client(protocol), s.client(protocol)
    first, second = begin(a)[1], begin(b)[1]
    ok(a, "TX.PUT", "t", "k", "v")
    waits(s, b, "TX.GET", "t", "k")
    got = pairs(c("EXPLAIN", "TX", "t", "k"))
    check([got[n] for n in ("table", "key", "holders_count", "waiters_count")], [b"t", b"k", 1, 1])
    holder, waiter = pairs(got["holders"][0]), pairs(got["waiters"][0])
    check([holder[n] for n in ("transaction", "has", "wants", "waits_for")], [first, b"writes", b"none", 0])
    check([waiter[n] for n in ("transaction", "has", "wants", "waits_for")], [second, b"none", b"reads", first])
    check_that(holder["address"].startswith(b"127.0.0.1:") and holder["age_ms"] >= 0, "the rest of %r" % holder)
    whole = pairs(c("EXPLAIN", "TX", "t"))
    check((whole["key"], whole["holders_count"], whole["waiters_count"]), (None, 2, 0))
    check([pairs(h)["has"] for h in whole["holders"]], [b"intends to write", b"intends to read"])
    nobody = pairs(c("EXPLAIN", "TX", "t", "nobody"))
    check((nobody["holders"], nobody["waiters"], nobody["summary"]),
          ([], [], [b"free: no transaction holds it"]))

    c.acquire("TX")
    check(pairs(c("EXPLAIN", "TX"))["held"], 1, "the lock of that name")
    cursor, items = c("LOCKS", "TX")
    check(cursor, b"0")
    items = sorted((pairs(i) for i in items), key=lambda i: i["key"] or b"")
    check([(i["table"], i["key"], i["holders"], i["waiters"]) for i in items],
          [(b"t", None, 2, 0), (b"t", b"k", 1, 1)])
    check([pairs(i)["key"] for i in c("LOCKS")[1]], [b"TX"], "LOCKS has locks alone")
    check(c("LOCKS", "TX", "MATCH", "u*")[1], [])
    check(len(c("LOCKS", "tx", "match", "t*", "COUNT", "100")[1]), 2)
    check_error(c("LOCKS", "TX", "COUNT", "0"), "ERR")
    line = [x for x in c("CLIENT", "LIST").decode().splitlines() if "id=%d " % holder["client"] in x][0]
    check_that(line.endswith("tx=%d" % first), "CLIENT LIST has it: " + line)
    commit(a)


@test
def LOCKS_TX_lists_all_by_cursor(t):
    s, c = start(t).with_clients(1)
    begin(c)
    for i in range(300):
        ok(c, "TX.LOCK", "WRITE", "t%d" % (i % 3), "k%d" % i)
    seen, cursor = set(), "0"
    for _ in range(1000):
        words = () if cursor == "0" else ("CURSOR", cursor)
        got = c("LOCKS", "TX", *words, "COUNT", "7")
        seen |= {(pairs(i)["table"], pairs(i)["key"]) for i in got[1]}
        cursor = got[0].decode()
        if cursor == "0":
            break
    check(len(seen), 303)
    commit(c)
    check(c("LOCKS", "TX"), [b"0", []])


@test
def EXPLAIN_of_many(t):
    s = start(t)
    holders = s.clients(120)
    for c in holders:
        begin(c)
        ok(c, "TX.LOCK", "READ", "t", "k")
    waiters = s.clients(110)
    for c in waiters:
        begin(c)
        c.send("TX.LOCK", "WRITE", "t", "k")
    waits(s, holders[5], "TX.LOCK", "WRITE", "t", "k", count=111)
    got = explain(s, "t", "k")
    check((got["holders_count"], got["waiters_count"]), (120, 111))
    check((len(got["holders"]), len(got["waiters"])), (100, 100), "so many are shown")
    check([pairs(w)["wants"] for w in got["waiters"]], [b"writes"] * 100)
    check(pairs(got["holders"][5])["wants"], b"writes", "one that has it and wants more")


@test
def INFO_counts(t):
    s, a, b = start(t).with_clients(2)
    begin(a), begin(b)
    ok(a, "TX.PUT", "t", "k", "v")
    waits(s, b, "TX.GET", "t", "k")
    info = s.info()
    check([info[n] for n in ("engine", "keeper", "term", "transactions", "transactions_waiting",
                             "transactions_begun", "commits")],
          ["lmdb", "leader", "1", "2", "1", "2", "0"])
    check_that(int(info["transaction_locks"]) >= 3, "locks are counted: " + info["transaction_locks"])
    commit(a)
    check(b.reply(), b"v")
    ok(b, "TX.ABORT")
    info = s.info()
    check([info[n] for n in ("transactions", "commits", "aborts", "revision", "store_keys")],
          ["0", "1", "1", "1", "1"])
    check_that(0 < int(info["store_bytes"]) <= int(info["store_bytes_max"]) == 1 << 30, "bytes are counted")


# --- Clients of others -----------------------------------------------------------------------


@test
def redis_py(t):
    import redis
    s = start(t)
    one, two = s.redis(single_connection_client=True), s.redis(single_connection_client=True)
    term, number = one.execute_command("TX.BEGIN", "REQUEST", "r1")
    two.execute_command("TX.BEGIN")
    check(one.execute_command("TX.PUT", "accounts", "ann", 10), b"OK")
    check(two.execute_command("TX.PUT", "accounts", "ben", 20), b"OK")
    waits = threading.Thread(target=one.execute_command, args=("TX.GET", "accounts", "ben"))
    waits.start()
    s.until_number("transactions_waiting", 1)
    try:
        two.execute_command("TX.GET", "accounts", "ann")
        raise Failure("there is no error")
    except redis.ResponseError as e:
        check_that(str(e).startswith("RESTART "), "the error: %s" % e)
    waits.join()
    revision = one.execute_command("TX.COMMIT")
    check(one.execute_command("TX.OUTCOME", "r1"), revision)
    two.execute_command("TX.BEGIN")
    check(two.execute_command("TX.SCAN", "accounts"), [b"ann", b"10"])
    two.execute_command("TX.COMMIT")
    with one.pipeline(transaction=False) as p:
        for words in (("TX.BEGIN",), ("TX.PUT", "accounts", "eve", 5), ("TX.GET", "accounts", "eve"), ("TX.COMMIT",)):
            p.execute_command(*words)
        got = p.execute()
    check(got[1:3], [b"OK", b"5"])
    check_that(got[3] > revision, "it is committed")


@test
def sluice_do(t):
    s = start(t)
    p = t.run(sluice(), "do", "--server", "127.0.0.1:%d" % s.port, "TX.OUTCOME", "never")
    check_that(p.status in (0, 1), "its status: %d, %s" % (p.status, p.err))


if __name__ == "__main__":
    main(__doc__)
