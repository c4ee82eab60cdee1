#!/usr/bin/python3
"""test_keeper_checker - that the checker of keeper's histories finds each violation, and invents
none.

    tests/cluster/test_keeper_checker.py [PATTERN...]

Each test is a history of a few lines and the kinds of violations that are in it. Next to one that
has a violation stands one that looks like it and has none. What checker.py finds by itself has its
own tests. Prints TAP.
"""
import os
import random
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import keeper_checker  # noqa: E402
import test_checker  # noqa: E402
from history_tests import Tests  # noqa: E402
from keeper_checker import checker, tx_checker  # noqa: E402


class History(test_checker.History):
    """Times are milliseconds. A grant has 1 unit of a capacity of 3, unless it is said."""

    def take(self, client, inv, ret, fence, units=1, capacity=3, lease=10000, **more):
        self.acquire(client, inv, ret, fence, lease if lease else -1, units=units,
                     capacity=capacity, asked_ms=lease or None, **more)

    def nil(self, client, inv, ret, units=1, capacity=3, **more):
        self.refused(client, inv, ret, units=units, capacity=capacity, asked_ms=10000, **more)

    def closed(self, client, at, fence):
        self.add(client, "CLOSED", at, at, key="k", fence=fence)

    def volatile(self, ms):
        self.add("run", "SETTING", 0, 0, volatile_ms=ms)

    def left(self, holders):
        self.add("run", "LEFT", 90000, 90000, key="k", holders=holders)

    def tx(self, request, tag, term, revision, inv, ret, before=()):
        """Appends to a list, which it has read; or, without a tag, only reads it."""
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
        return sorted(kinds)


HISTORIES = """
# Capacity

three_units_of_a_capacity_of_three_are_fine
    take a 0 1 10; take b 10 11 11; take c 20 21 12
four_units_of_a_capacity_of_three_are_found: over capacity
    take a 0 1 10; take b 10 11 11; take c 20 21 12; take d 30 31 13
two_grants_of_two_units_of_three_are_found: over capacity
    take a 0 1 10 units=2; take b 10 11 11 units=2
a_released_unit_can_be_granted_again
    take a 0 1 10 units=2; release a 12 13 10; take b 10 14 11 units=2
a_unit_that_is_released_later_is_still_held: over capacity
    take a 0 1 10 units=2; take b 10 14 11 units=2; release a 15 16 10
a_request_that_declares_more_capacity_may_be_granted
    take a 0 1 10 units=3; take b 10 11 11 units=3 capacity=6
a_request_that_declares_less_capacity_may_not_be_granted: over capacity
    take a 0 1 10 units=3 capacity=6; take b 10 11 11 units=1 capacity=3
an_expired_lease_frees_its_units
    take a 0 1 10 units=3 lease=100; take b 100 101 11 units=3
an_extended_lease_does_not_free_its_units: over capacity
    take a 0 1 10 units=3 lease=100; extend a 50 51 10 200; take b 150 151 11 units=3
# b's request had capacity between the two beliefs of a; but then both have it.
a_grant_that_an_extend_revives_counts_from_then_on: over capacity
    take a 0 1 10 units=3 lease=100; extend a 50 151 10 300; take b 99 170 11 units=3
a_dead_client_holds_nothing
    take a 0 1 10 units=3; died a 50; take b 60 61 11
readers_share_a_lock
    take a 0 1 10 shared=True; take b 0 2 11 shared=True
a_writer_does_not_share_with_a_reader: over capacity
    take a 0 1 10 shared=True; take b 5 6 11 shared=False
two_writers_do_not_share: over capacity
    take a 0 1 10 shared=False; take b 5 6 11 shared=False
units_have_fences_of_their_own: fence used twice
    take a 0 1 10; take b 5 6 10
fences_rise_with_the_clock: fence not above
    take a 0 1 10; take b 5 6 9
a_released_grant_is_not_held_any_more: CHECK after its end
    take a 0 1 10; release a 5 6 10; check a 7 8 10
a_released_grant_may_be_held_again_after_a_fault
    take a 0 1 10; release a 5 6 10; fault 900; check a 2000 2001 10
a_keeper_that_was_replaced_may_reply_to_a_release
    fault 0; heal 10 keys=; take a 20 21 10; release a 900 901 10; check a 2000 2001 10
a_fault_long_before_a_release_is_no_excuse: CHECK after its end
    fault 0; heal 10 keys=; take a 20 21 10; release a 1100 1101 10; check a 2000 2001 10
a_fault_long_after_a_release_is_no_excuse: CHECK after its end
    take a 0 1 10; release a 5 6 10; fault 1100; check a 2000 2001 10
a_lost_extension_before_a_fault_may_be_followed_by_the_same_grant
    acquire a 0 1 10 3600000; release a 40 41 10; extend a 42 43 10 word=LOST; fault 100; refused b 5000 5001 asked_ms=1000
a_released_grant_that_is_held_again_may_be_extended
    take a 0 1 10; release a 5 6 10; fault 900; extend a 2000 2001 10 5000
a_fault_long_after_a_release_is_no_excuse_to_extend: EXTEND after its end
    take a 0 1 10; release a 5 6 10; fault 1100; extend a 2000 2001 10 5000

# Without a lease

a_grant_without_a_lease_is_held_for_ever: over capacity
    take a 0 1 10 units=3 lease=None; take b 60000 60001 11
a_grant_without_a_lease_ends_with_its_connection
    take a 0 1 10 units=3 lease=None; closed a 50 10; take b 60 61 11
a_grant_without_a_lease_may_end_with_a_fault
    take a 0 1 10 units=3 lease=None; fault 30; take b 60 61 11
a_grant_with_a_lease_does_not_end_with_a_fault: over capacity
    take a 0 1 10 units=3; fault 30; take b 60 61 11
a_fault_that_was_healed_before_the_grant_is_no_excuse: over capacity
    fault 0; heal 10 keys=; take a 20 21 10 units=3 lease=None; take b 60 61 11

# Full

a_full_key_rejects_a_request
    take a 0 1 10 units=3; nil b 5 6
a_free_key_is_not_full: full too early
    nil b 5 6
two_units_of_three_leave_one: full too early
    take a 0 1 10 units=2; nil b 5 6
two_units_of_three_do_not_leave_two
    take a 0 1 10 units=2; nil b 5 6 units=2
a_concurrent_request_may_have_been_granted_first
    nil b 5 6; take a 4 7 10 units=3
a_request_without_an_answer_may_have_been_granted
    unknown a ACQUIRE 0 units=3 capacity=3 asked_ms=10000; nil b 5 6
a_request_without_an_answer_does_not_hold_for_ever: full too early
    unknown a ACQUIRE 0 units=3 capacity=3 asked_ms=1000; nil b 60000 60001
a_request_without_an_answer_may_hold_until_the_heal
    fault 0; unknown a ACQUIRE 1 units=3 capacity=3 asked_ms=1000; nil b 60000 60001
a_released_key_is_not_full: full too early
    take a 0 1 10 units=3; release a 5 6 10; nil b 7 8
a_key_whose_release_was_not_answered_may_be_full
    take a 0 1 10 units=3; unknown a RELEASE 5 fence=10; nil b 7 8
a_key_whose_lease_expired_long_ago_is_not_full: full too early
    take a 0 1 10 units=3 lease=100; nil b 5000 5001
a_waiter_keeps_others_from_the_units_that_are_left
    take a 0 1 10 units=2; nil c 2 500 units=3 wait_asked_ms=498; nil b 5 6
a_lost_connection_holds_its_grant_for_a_while
    take a 0 1 10 units=3 lease=None; closed a 50 10; nil b 60 61
a_lost_connection_does_not_hold_its_grant_for_longer: full too early
    take a 0 1 10 units=3 lease=None; closed a 50 10; nil b 20000 20001

# Before its end

LOST_before_the_end_of_a_lease_is_found: EXTEND before its end
    acquire a 0 1 10 10000; extend a 50 51 10 word=LOST
LOST_after_a_fault_is_fine
    acquire a 0 1 10 10000; fault 20; extend a 50 51 10 word=LOST
CHECK_that_denies_a_holder_of_units_is_found: CHECK before its end
    take a 0 1 10; check b 50 51 10 word=no

# Long leases

LOST_of_a_long_lease_has_no_excuse: EXTEND before its end
    acquire a 0 1 10 10001; fault 20; extend a 50 51 10 word=LOST
CHECK_of_a_long_lease_has_no_excuse: CHECK before its end
    acquire a 0 1 10 3600000; fault 20; check b 50 51 10 word=no
a_lease_that_was_extended_to_a_long_one_is_long: EXTEND before its end
    acquire a 0 1 10 1000; extend a 2 3 10 3600000; fault 20; extend a 50 51 10 word=LOST
the_setting_says_which_leases_are_long: EXTEND before its end
    volatile 2000; acquire a 0 1 10 2001; fault 20; extend a 50 51 10 word=LOST
a_RELEASE_of_a_long_lease_finds_it: RELEASE before its end
    acquire a 0 1 10 3600000; fault 20; release a 50 51 10 word=no
a_RELEASE_of_a_short_lease_may_find_nothing
    acquire a 0 1 10 10000; fault 20; release a 50 51 10 word=no
a_RELEASE_may_be_repeated
    acquire a 0 1 10 3600000; unknown a RELEASE 40 fence=10; release a 50 51 10 word=no
a_RELEASE_after_the_expiry_may_find_nothing
    acquire a 0 1 10 20000; release a 20050 20051 10 word=no
a_long_lease_may_last_longer_after_a_fault
    acquire a 0 1 10 3600000; fault 20; heal 500 keys=; extend a 1000 1001 10 3625000 asked=3600000
a_lease_does_not_last_longer_without_a_fault: lease too long
    acquire a 0 1 10 3600000; extend a 1000 1001 10 3605000 asked=3600000
a_long_lease_does_not_last_much_longer: lease too long
    acquire a 0 1 10 3600000; fault 20; heal 500 keys=; extend a 1000 1001 10 3645000 asked=3600000
a_long_lease_lasts_longer_after_each_fault
    acquire a 0 1 10 3600000; fault 20; fault 30; fault 40; heal 500 keys=; extend a 1000 1001 10 3655000 asked=3600000
a_short_lease_does_not_last_longer_after_a_fault: lease too long
    acquire a 0 1 10 9000; fault 20; heal 500 keys=; extend a 1000 1001 10 9500 asked=9000
a_restored_lease_may_keep_others_out_for_longer
    acquire a 0 1 10 20000; fault 20; heal 500 keys=; refused b 32000 32001 asked_ms=1000
a_restored_lease_does_not_keep_others_out_for_ever: full too early
    acquire a 0 1 10 20000; fault 20; heal 500 keys=; refused b 42000 42001 asked_ms=1000
a_long_lease_keeps_nobody_out_after_its_end: full too early
    acquire a 0 1 10 20000; refused b 32000 32001 asked_ms=1000

# One at a time, by the rules of checker.py

two_holders_at_once_are_found: overlap
    acquire a 0 1 10; acquire b 50 51 11
no_grant_after_a_heal_is_found: no progress
    heal 0 1000; end 5000

# At the end

no_holder_is_left_at_the_end
    left 0
a_holder_that_is_left_at_the_end_is_found: kept
    left 1

# Reads

what_was_refused_is_not_read: READ of what was refused
    acquire c 0 1 9 400; refused a 2 500 value=v1 asked_ms=1000; read b 600 601 10 v1
what_was_refused_by_a_keeper_was_withdrawn_before: READ of what was refused
    fault 100; heal 200; acquire c 0 1 9 400; refused a 2 500 value=v1 asked_ms=1000; read b 600 601 10 v1
a_node_without_a_keeper_cannot_withdraw_a_grant
    fault 100; heal 200; acquire c 0 1 9 400; refused a 2 500 word=NOKEEPER value=v1 asked_ms=1000; read b 600 601 10 v1
a_grant_that_is_not_withdrawn_expires: READ of what was refused
    fault 100; heal 200; acquire c 0 1 9 400; refused a 2 500 word=NOKEEPER value=v1 asked_ms=1000; read b 3000 3001 10 v1
a_fault_before_the_request_is_no_excuse_for_a_lost_reply: READ of what was refused
    fault 100; heal 200; acquire c 210 211 9 400; refused a 300 500 word=NOKEEPER value=v1 asked_ms=1000; read b 600 601 10 v1

# Terms

commits_of_one_term_and_then_of_the_next_are_fine
    tx A A/1#1 1 5 0 1; tx B B/1#1 2 6 5 6 A/1#1,
# By revision it comes first.
a_transaction_that_began_earlier_may_be_of_an_older_term
    tx B B/1#1 1 5 0 9; tx A A/1#1 2 6 2 3 B/1#1,
# Both at the same time; by revision the older term is later.
a_commit_of_a_deposed_keeper_is_found: term
    tx A A/1#1 2 5 0 10; tx B B/1#1 1 6 0 10 A/1#1,
# Also who only reads.
a_transaction_that_began_under_a_deposed_keeper_is_found: term
    tx A A/1#1 2 5 0 1; tx B None 1 5 5 6 A/1#1,
"""


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


GAPS = "acquire a 0 10 10", "acquire a 300 310 11", "acquire a 350 360 12", "end 500"


def longest_gap():
    return keeper_checker.Verdict(checker.parse(History(GAPS).lines)).gap


def main(patterns):
    t = Tests(patterns, HISTORIES, History, keeper_checker, History.kinds)
    text = keeper_checker.__doc__.split("What may not happen")[1].split("Transactions")[0]
    told = set(re.findall(r"^    (\S+(?: \S+)*)  ", text, re.M))
    # Two of checker.py's have a longer name.
    t.check("every_kind_has_a_test", lambda: len(told) == 5 and all(
        any(k.endswith(x) for k in t.kinds) for x in told), lambda: [str(told)])
    t.check("steps_agree_with_the_definition", lambda: slow_steps_agree(1))
    t.check("the_longest_gap_is_found", lambda: longest_gap() == 300.0)
    t.check_program("the_program_shows_the_lines", "two_grants_of_two_units_of_three_are_found", 1,
                    "over capacity: key k: 2 more of 3", "line 1 ")
    t.check_program("the_program_is_content", "three_units_of_a_capacity_of_three_are_fine", 0,
                    "3 grants", "0 violations")
    return t.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
