#!/usr/bin/python3
"""test_keeper_checker - that the checker of keeper's histories finds each violation, and invents
none.

    tests/cluster/test_keeper_checker.py [PATTERN...]

Each test is a history of a few lines and the kinds of violations that are in it. Beside one that
has a violation stands one that looks like it and has none. What checker.py finds by itself has its
own tests. Prints TAP.
"""
import fnmatch
import io
import os
import random
import re
import sys
import tempfile
from contextlib import redirect_stdout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import keeper_checker  # noqa: E402
import test_checker  # noqa: E402
from keeper_checker import checker, tx_checker  # noqa: E402

tests = []


def history(*wanted):
    """Register a test: f(h) writes a history in which these kinds of violations are."""
    def register(f):
        tests.append((f.__name__, f, set(wanted)))
        return f
    return register


class History(test_checker.History):
    """Times are milliseconds. A grant has 1 unit of a room of 3, unless it is said."""

    def take(self, client, inv, ret, fence, units=1, room=3, lease=10000, **more):
        self.acquire(client, inv, ret, fence, lease if lease else -1, units=units, room=room,
                     asked_ms=lease or None, **more)

    def nil(self, client, inv, ret, units=1, room=3, **more):
        self.refused(client, inv, ret, units=units, room=room, asked_ms=10000, **more)

    def closed(self, client, at, fence):
        self.add(client, "CLOSED", at, at, key="k", fence=fence)

    def left(self, holders):
        self.add("run", "LEFT", 90000, 90000, key="k", holders=holders)

    def tx(self, request, tag, term, revision, inv, ret, before=()):
        """Appends to a list, which it has read; or, without a tag, only reads it."""
        self.n += 1
        self.add("t", "TX", inv, ret, request=request, attempt=1, term=term,
                 asked=int(inv * checker.MS), result="ok", revision=revision,
                 known_at=int(inv * checker.MS),
                 steps=[["list", "l", "x", list(before)]]
                 + ([["append", "l", "x", tag]] if tag else []))

    def kinds(self):
        records = checker.parse(self.lines)
        kinds = set(keeper_checker.Verdict([r for r in records if r.op != "TX"]).kinds)
        if any(r.op == "TX" for r in records):
            kinds |= set(keeper_checker.TxVerdict(tx_checker.parse(self.lines)).kinds)
        return kinds


# --- Room -------------------------------------------------------------------------


@history()
def three_of_three_are_fine(h):
    for i in range(3):
        h.take("abc"[i], 10 * i, 10 * i + 1, 10 + i)


@history("over room")
def four_of_three_are_over_room(h):
    for i in range(4):
        h.take("abcd"[i], 10 * i, 10 * i + 1, 10 + i)


@history("over room")
def two_and_two_of_three_are_over_room(h):
    h.take("a", 0, 1, 10, units=2)
    h.take("b", 10, 11, 11, units=2)


@history()
def a_unit_that_was_released_can_be_taken(h):
    h.take("a", 0, 1, 10, units=2)
    h.release("a", 12, 13, 10)
    h.take("b", 10, 14, 11, units=2)


@history("over room")
def one_that_is_released_only_later_is_still_held(h):
    h.take("a", 0, 1, 10, units=2)
    h.take("b", 10, 14, 11, units=2)
    h.release("a", 15, 16, 10)


@history()
def who_declares_more_room_may_enter(h):
    h.take("a", 0, 1, 10, units=3)
    h.take("b", 10, 11, 11, units=3, room=6)


@history("over room")
def who_declares_less_room_may_not(h):
    h.take("a", 0, 1, 10, units=3, room=6)
    h.take("b", 10, 11, 11, units=1, room=3)


@history()
def a_lease_that_is_over_frees_its_units(h):
    h.take("a", 0, 1, 10, units=3, lease=100)
    h.take("b", 100, 101, 11, units=3)


@history("over room")
def a_lease_that_was_extended_does_not(h):
    h.take("a", 0, 1, 10, units=3, lease=100)
    h.extend("a", 50, 51, 10, 200)
    h.take("b", 150, 151, 11, units=3)


@history("over room")
def one_that_comes_again_by_an_extend_counts_from_then(h):
    """b's request had room between the two beliefs of a; but then both have it."""
    h.take("a", 0, 1, 10, units=3, lease=100)
    h.extend("a", 50, 151, 10, 300)
    h.take("b", 99, 170, 11, units=3)


@history()
def who_died_holds_nothing(h):
    h.take("a", 0, 1, 10, units=3)
    h.died("a", 50)
    h.take("b", 60, 61, 11)


@history()
def readers_share(h):
    h.take("a", 0, 1, 10, shared=True)
    h.take("b", 0, 2, 11, shared=True)


@history("over room")
def a_writer_does_not(h):
    h.take("a", 0, 1, 10, shared=True)
    h.take("b", 5, 6, 11, shared=False)


@history("over room")
def nor_do_two_writers(h):
    h.take("a", 0, 1, 10, shared=False)
    h.take("b", 5, 6, 11, shared=False)


@history("fence used twice")
def units_have_fences_of_their_own(h):
    h.take("a", 0, 1, 10)
    h.take("b", 5, 6, 10)


@history("fence not above")
def fences_rise_with_the_clock(h):
    h.take("a", 0, 1, 10)
    h.take("b", 5, 6, 9)


@history("CHECK after its end")
def what_is_over_is_over(h):
    h.take("a", 0, 1, 10)
    h.release("a", 5, 6, 10)
    h.check("a", 7, 8, 10)


# --- Without a lease ------------------------------------------------------------------


@history("over room")
def without_a_lease_it_is_held_as_well(h):
    h.take("a", 0, 1, 10, units=3, lease=None)
    h.take("b", 60000, 60001, 11)


@history()
def until_its_connection_has_ended(h):
    h.take("a", 0, 1, 10, units=3, lease=None)
    h.closed("a", 50, 10)
    h.take("b", 60, 61, 11)


@history()
def or_something_was_broken(h):
    h.take("a", 0, 1, 10, units=3, lease=None)
    h.fault(30)
    h.take("b", 60, 61, 11)


@history("over room")
def with_a_lease_nothing_excuses(h):
    h.take("a", 0, 1, 10, units=3)
    h.fault(30)
    h.take("b", 60, 61, 11)


@history("over room")
def what_was_broken_and_whole_again_before_is_no_excuse(h):
    h.fault(0)
    h.heal(10, keys=())
    h.take("a", 20, 21, 10, units=3, lease=None)
    h.take("b", 60, 61, 11)


# --- Full -----------------------------------------------------------------------------


@history()
def full_is_full(h):
    h.take("a", 0, 1, 10, units=3)
    h.nil("b", 5, 6)


@history("full too early")
def nobody_there_is_not_full(h):
    h.nil("b", 5, 6)


@history("full too early")
def two_of_three_are_not_full_for_one(h):
    h.take("a", 0, 1, 10, units=2)
    h.nil("b", 5, 6)


@history()
def but_for_two(h):
    h.take("a", 0, 1, 10, units=2)
    h.nil("b", 5, 6, units=2)


@history()
def who_asks_at_the_same_time_may_have_it(h):
    h.nil("b", 5, 6)
    h.take("a", 4, 7, 10, units=3)


@history()
def who_was_not_answered_may_have_it(h):
    h.unknown("a", "ACQUIRE", 0, units=3, room=3, asked_ms=10000)
    h.nil("b", 5, 6)


@history("full too early")
def but_not_for_ever(h):
    h.unknown("a", "ACQUIRE", 0, units=3, room=3, asked_ms=1000)
    h.nil("b", 60000, 60001)


@history()
def unless_it_is_not_whole_again(h):
    h.fault(0)
    h.unknown("a", "ACQUIRE", 1, units=3, room=3, asked_ms=1000)
    h.nil("b", 60000, 60001)


@history("full too early")
def what_was_released_is_free(h):
    h.take("a", 0, 1, 10, units=3)
    h.release("a", 5, 6, 10)
    h.nil("b", 7, 8)


@history()
def unless_nobody_has_said_so(h):
    h.take("a", 0, 1, 10, units=3)
    h.unknown("a", "RELEASE", 5, fence=10)
    h.nil("b", 7, 8)


@history("full too early")
def a_lease_that_is_long_over_is_free(h):
    h.take("a", 0, 1, 10, units=3, lease=100)
    h.nil("b", 5000, 5001)


@history()
def who_stands_in_line_holds_back_others(h):
    h.take("a", 0, 1, 10, units=2)
    h.nil("c", 2, 500, units=3, wait_asked_ms=498)
    h.nil("b", 5, 6)


@history()
def a_lost_connection_keeps_it_for_a_while(h):
    h.take("a", 0, 1, 10, units=3, lease=None)
    h.closed("a", 50, 10)
    h.nil("b", 60, 61)


@history("full too early")
def and_not_longer(h):
    h.take("a", 0, 1, 10, units=3, lease=None)
    h.closed("a", 50, 10)
    h.nil("b", 20000, 20001)


# --- Before its end -------------------------------------------------------------------


@history("EXTEND before its end")
def lost_before_its_end(h):
    h.acquire("a", 0, 1, 10, 10000)
    h.extend("a", 50, 51, 10, word="LOST")


@history()
def a_fault_may_lose_it(h):
    h.acquire("a", 0, 1, 10, 10000)
    h.fault(20)
    h.extend("a", 50, 51, 10, word="LOST")


@history("CHECK before its end")
def also_of_units(h):
    h.take("a", 0, 1, 10)
    h.check("b", 50, 51, 10, word="no")


# --- One at a time, by the rules of checker.py ----------------------------------------


@history("overlap")
def two_at_once(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 50, 51, 11)


@history("no progress")
def nothing_after_a_heal(h):
    h.heal(0, 1000)
    h.end(5000)


# --- At the end -----------------------------------------------------------------------


@history()
def nobody_is_left(h):
    h.left(0)


@history("kept")
def somebody_is_left(h):
    h.left(1)


# --- Terms ----------------------------------------------------------------------------


@history()
def commits_of_one_term_and_then_of_the_next(h):
    h.tx("A", "A/1#1", 1, 5, 0, 1)
    h.tx("B", "B/1#1", 2, 6, 5, 6, ["A/1#1"])


@history()
def who_began_before_may_be_of_an_older_term(h):
    """By revision it comes first."""
    h.tx("B", "B/1#1", 1, 5, 0, 9)
    h.tx("A", "A/1#1", 2, 6, 2, 3, ["B/1#1"])


@history("term")
def a_commit_of_who_was_deposed(h):
    """Both at the same time; by revision the older term is later."""
    h.tx("A", "A/1#1", 2, 5, 0, 10)
    h.tx("B", "B/1#1", 1, 6, 0, 10, ["A/1#1"])


@history("term")
def begun_under_who_was_deposed_long_ago(h):
    """Also who only reads."""
    h.tx("A", "A/1#1", 2, 5, 0, 1)
    h.tx("B", None, 1, 5, 5, 6, ["A/1#1"])


# --- The rest -------------------------------------------------------------------------


def slow_steps_agree(seed):
    """Steps.within() against the definition."""
    rng = random.Random(seed)
    for _ in range(500):
        intervals = [(a, a + rng.randint(0, 10), rng.randint(1, 3))
                     for a in (rng.randint(0, 30) for _ in range(rng.randint(0, 6)))]
        start = rng.randint(0, 40)
        end = start + rng.randint(0, 10)
        values = [sum(w for a, b, w in intervals if a <= t < b) for t in range(start, end + 1)]
        got = keeper_checker.Steps(intervals).within(start, end)
        if (min(got), max(got)) != (min(values), max(values)):
            return False
    return True


def run_program(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.writelines(lines)
        f.flush()
        out = io.StringIO()
        with redirect_stdout(out):
            status = keeper_checker.main([f.name])
    return status, out.getvalue()


def gaps():
    h = History()
    h.acquire("a", 0, 10, 10)
    h.acquire("a", 300, 310, 11)
    h.acquire("a", 350, 360, 12)
    h.end(500)
    return keeper_checker.Verdict(checker.parse(h.lines)).gap


def main(patterns):
    number = failed = 0

    def said(name, ok, why=""):
        nonlocal number, failed
        if patterns and not any(fnmatch.fnmatch(name, p) for p in patterns):
            return
        ok = ok()
        number += 1
        failed += not ok
        print("%s %d - %s" % ("ok" if ok else "not ok", number, name))
        if not ok and why:
            print("#   " + why())

    for name, f, wanted in tests:
        h = History()
        f(h)
        said(name, lambda: h.kinds() == wanted,
             lambda: "found %r, wanted %r" % (sorted(h.kinds()), sorted(wanted)))
    kinds = {k for _, _, wanted in tests for k in wanted}
    text = keeper_checker.__doc__.split("What may not happen")[1].split("Transactions")[0]
    told = set(re.findall(r"^    (\S+(?: \S+)*)  ", text, re.M))
    # Two of checker.py's have a longer name.
    said("every_kind_has_a_test", lambda: all(any(k.endswith(t) for k in kinds) for t in told)
         and len(told) == 5, lambda: str(told))
    said("steps_agree_with_the_definition", lambda: slow_steps_agree(1))
    said("the_longest_gap_is_found", lambda: gaps() == 300.0)

    def shown(f, wanted, *parts):
        h = History()
        f(h)
        status, out = run_program(h.lines)
        return status == wanted and all(p in out for p in parts)

    said("the_program_shows_the_lines", lambda: shown(
        two_and_two_of_three_are_over_room, 1, "over room: key k: 2 more of 3", "line 1 "))
    said("the_program_is_content", lambda: shown(
        three_of_three_are_fine, 0, "3 grants", "0 violations"))
    print("1..%d" % number)
    return 1 if failed or not number else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
