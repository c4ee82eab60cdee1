#!/usr/bin/python3
"""test_checker - that the checker of histories finds each violation, and invents none.

    tests/cluster/test_checker.py [PATTERN...]

Each test is a history of a few lines and the violations that are in it. Beside one that has a
violation stands one that looks like it and has none. Prints TAP.
"""
import fnmatch
import io
import json
import os
import random
import sys
import tempfile
from contextlib import redirect_stdout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checker  # noqa: E402

tests = []


def history(*wanted):
    """Register a test: f(h) writes a history in which these kinds of violations are."""
    def register(f):
        tests.append((f.__name__, f, sorted(wanted)))
        return f
    return register


class History:
    """Writes a history; times are milliseconds."""

    def __init__(self):
        self.lines, self.n = [], 0

    def add(self, client, op, inv, ret, **more):
        self.n += 1
        ask = dict(client=client, n=self.n, op=op, inv=int(inv * checker.MS))
        if ret is not None:
            more["ret"] = int(ret * checker.MS)
        self.lines.append(json.dumps({**ask, **more}) + "\n")

    def acquire(self, client, inv, ret, fence, lease=100, waited=0, key="k", **more):
        more.setdefault("asked_ms", lease)
        self.add(client, "ACQUIRE", inv, ret, key=key, result="ok", fence=fence,
                 lease_ms=lease, waited_ms=waited, **more)

    def refused(self, client, inv, ret, word="nil", key="k", **more):
        self.add(client, "ACQUIRE", inv, ret, key=key, result=word, **more)

    def unknown(self, client, op, inv, key="k", **more):
        self.add(client, op, inv, None, key=key, **more)

    def extend(self, client, inv, ret, fence, lease=100, word="ok", key="k", asked=None):
        self.add(client, "EXTEND", inv, ret, key=key, fence=fence, result=word,
                 asked_ms=asked or lease, lease_ms=lease if word == "ok" else None)

    def release(self, client, inv, ret, fence, word="ok", key="k"):
        self.add(client, "RELEASE", inv, ret, key=key, fence=fence, result=word)

    def check(self, client, inv, ret, fence, word="ok", key="k"):
        self.add(client, "CHECK", inv, ret, key=key, fence=fence, result=word)

    def read(self, client, inv, ret, fence=None, value=None, majority=False, key="k"):
        self.add(client, "READ", inv, ret, key=key, fence=fence, value=value,
                 majority=majority, result="nil" if fence is None else "ok")

    def died(self, client, inv):
        self.add("nemesis", "DIED", inv, inv, who=client)

    def update(self, client, inv, ret, fence, item, after, resource="fenced", word="ok"):
        more = {} if ret is None else {"result": word}
        self.add(client, "UPDATE", inv, ret, key="k", fence=fence, item=item, after=after,
                 resource=resource, **more)

    def final(self, *log, resource="fenced"):
        self.add("run", "FINAL", 9000, 9000, key="k", resource=resource, log=log)

    def fault(self, inv):
        self.add("nemesis", "FAULT", inv, inv, kind="cut")

    def heal(self, at, bound=1000, keys=("k",)):
        self.add("nemesis", "HEAL", at, at, bound_ms=bound, keys=keys)

    def end(self, at):
        self.add("run", "END", at, at)

    def verdict(self):
        return checker.Verdict(checker.parse(self.lines))


# --- One at a time ----------------------------------------------------------------


@history()
def one_after_the_other_is_fine(h):
    h.acquire("a", 0, 1, 10)
    h.release("a", 50, 51, 10)
    h.acquire("b", 51, 52, 11)
    h.acquire("a", 200, 201, 12)


@history("overlap")
def two_that_believe_at_once_overlap(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 50, 51, 11)


@history()
def two_keys_have_nothing_to_do_with_each_other(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 50, 51, 10, key="other")


@history("overlap")
def a_release_that_was_sent_late_overlaps(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 50, 51, 11)
    h.release("a", 51.5, 52, 10)


@history()
def a_release_counts_from_its_sending(h):
    h.acquire("a", 0, 1, 10)
    h.release("a", 50, 90, 10)
    h.acquire("b", 40, 51, 11)


@history()
def a_release_without_an_answer_ends_a_belief_all_the_same(h):
    h.acquire("a", 0, 1, 10)
    h.unknown("a", "RELEASE", 50, fence=10)
    h.acquire("b", 51, 52, 11)


@history()
def a_release_that_failed_ends_a_belief_all_the_same(h):
    h.acquire("a", 0, 1, 10)
    h.release("a", 50, 51, 10, word="NOQUORUM")
    h.acquire("b", 51, 52, 11)


@history("overlap")
def the_release_of_another_grant_ends_nothing(h):
    h.acquire("a", 0, 1, 10)
    h.release("a", 50, 51, 9)
    h.acquire("b", 52, 53, 11)


@history("overlap")
def a_lease_that_ends_early_overlaps(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.acquire("b", 997, 997.5, 11)


@history()
def a_lease_is_shorter_for_its_holder(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.acquire("b", 997, 998.5, 11)


@history()
def a_lease_counts_from_the_sending(h):
    h.acquire("a", 0, 90, 10)
    h.acquire("b", 50, 100, 11)


@history("overlap")
def what_was_waited_counts_too(h):
    h.acquire("a", 0, 500, 10, waited=490)
    h.acquire("b", 549, 550, 11)


@history()
def what_was_waited_ends_too(h):
    h.acquire("a", 0, 500, 10, waited=490)
    h.acquire("b", 589, 590, 11)


@history("overlap", "overlap")
def three_at_once_are_two_overlaps_with_the_long_one(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.acquire("b", 50, 51, 11)
    h.acquire("c", 200, 201, 12)


@history()
def an_answer_that_comes_after_the_end_is_no_belief(h):
    h.acquire("a", 0, 300, 10)
    h.acquire("b", 150, 151, 11, lease=1000)


@history()
def who_was_not_answered_believes_nothing(h):
    h.unknown("a", "ACQUIRE", 0)
    h.acquire("b", 50, 51, 11)


@history()
def who_was_refused_believes_nothing(h):
    h.acquire("a", 0, 1, 10)
    h.refused("b", 20, 21)
    h.refused("c", 20, 90, word="NOQUORUM")


@history("overlap")
def a_pause_of_the_holder_is_no_excuse(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.add("nemesis", "FAULT", 100, 900, kind="pause client")
    h.acquire("b", 500, 501, 11)


# --- Dying ---------------------------------------------------------------------------


@history()
def the_dead_believe_nothing(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.died("a", 100)
    h.acquire("b", 200, 201, 11)


@history("overlap")
def who_dies_later_believed_until_then(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.died("a", 300)
    h.acquire("b", 200, 201, 11)


@history("overlap")
def the_death_of_another_is_no_excuse(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.died("c", 100)
    h.acquire("b", 200, 201, 11)


# --- Extending -----------------------------------------------------------------------


@history("overlap")
def an_extended_belief_lasts_longer(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 50, 51, 10)
    h.acquire("b", 120, 121, 11)


@history()
def an_extend_counts_from_its_sending(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 50, 90, 10)
    h.acquire("b", 120, 150, 11)


@history()
def an_extend_without_an_answer_extends_no_belief(h):
    h.acquire("a", 0, 1, 10)
    h.unknown("a", "EXTEND", 50, fence=10)
    h.acquire("b", 120, 121, 11)


@history()
def an_extend_without_an_answer_stands_between_others(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 40, 41, 10)
    h.unknown("a", "EXTEND", 50, fence=10)
    h.extend("a", 60, 61, 10)
    h.acquire("b", 170, 171, 11)


@history("overlap")
def an_extend_that_failed_shortens_no_belief(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.extend("a", 50, 51, 10, word="NOQUORUM")
    h.acquire("b", 120, 121, 11)


@history("overlap")
def who_is_asked_to_go_still_holds(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.extend("a", 50, 51, 10, word="ASKED")
    h.acquire("b", 120, 121, 11)


@history("EXTEND before its end")
def LOST_ends_a_belief_and_should_not_come_before_its_end(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.extend("a", 50, 51, 10, word="LOST")
    h.acquire("b", 51, 52, 11)


@history("EXTEND before its end", "overlap")
def LOST_ends_a_belief_when_it_is_read(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.extend("a", 50, 60, 10, word="LOST")
    h.acquire("b", 51, 52, 11)


@history()
def LOST_around_the_end_is_fine(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 95, 101, 10, word="LOST")


@history()
def LOST_is_fine_after_the_release_was_sent(h):
    h.acquire("a", 0, 1, 10)
    h.unknown("a", "RELEASE", 40, fence=10)
    h.extend("a", 50, 51, 10, word="LOST")
    h.check("a", 52, 53, 10, word="no")


@history()
def LOST_is_fine_when_a_thief_has_entered_beside(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.acquire("b", 20, 25, 11, waited=5, overlapping=1, early=0)
    h.extend("a", 50, 51, 10, word="LOST")


@history()
def LOST_is_fine_when_a_thief_has_tried_to_enter_beside(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.unknown("b", "ACQUIRE", 20, early=0)
    h.check("a", 50, 51, 10, word="no")


@history("CHECK before its end")
def CHECK_that_denies_a_holder_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.check("b", 50, 51, 10, word="no")


@history("CHECK before its end")
def CHECK_that_denies_one_who_extended_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 50, 51, 10)
    h.check("b", 120, 121, 10, word="no")


@history()
def CHECK_that_denies_around_the_end_is_fine(h):
    h.acquire("a", 0, 1, 10)
    h.check("b", 90, 110, 10, word="no")
    h.check("b", 120, 121, 10, word="no")


@history()
def a_shorter_extend_shortens_nothing_and_is_fine(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.extend("a", 50, 51, 10, lease=950)
    h.acquire("b", 1000, 1001, 11)


@history("overlap")
def a_shorter_extend_shortens_no_belief(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.extend("a", 50, 51, 10, lease=10)
    h.acquire("b", 500, 501, 11)


@history("EXTEND of the past", "fence not in order")
def an_extend_after_another_held_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 100, 101, 11)
    h.release("b", 120, 121, 11)
    h.extend("a", 130, 131, 10)


@history()
def an_extend_after_a_gap_in_which_nobody_held_is_fine(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 130, 131, 10)
    h.acquire("b", 230, 231, 11)


@history("overlap")
def an_extend_after_a_gap_holds_from_then_on(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 130, 131, 10)
    h.acquire("b", 150, 151, 11)


@history()
def an_extend_beside_the_next_grant_may_have_come_first(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 90, 300, 10)
    h.acquire("b", 200, 250, 11)


@history("EXTEND after its end")
def an_extend_after_LOST_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 150, 151, 10, word="LOST")
    h.extend("a", 160, 161, 10)


@history()
def an_extend_sent_before_LOST_came_is_fine(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 50, 51, 10)
    h.extend("a", 52, 400, 10, word="LOST")


@history()
def an_extend_while_another_is_told_LOST_is_fine(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 95, 200, 10, word="LOST")
    h.extend("a", 96, 97, 10)


@history("EXTEND after its end")
def an_extend_after_the_release_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.release("a", 50, 51, 10)
    h.extend("b", 60, 61, 10)


@history()
def an_extend_after_a_release_that_did_nothing_is_fine(h):
    h.acquire("a", 0, 1, 10)
    h.release("a", 50, 51, 10, word="NOQUORUM")
    h.unknown("a", "RELEASE", 55, fence=10)
    h.extend("b", 60, 61, 10)


@history("CHECK after its end")
def CHECK_after_LOST_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.extend("a", 150, 151, 10, word="LOST")
    h.check("b", 160, 161, 10)


@history()
def CHECK_after_LOST_is_fine_when_a_thief_has_entered_beside(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.acquire("b", 20, 25, 11, waited=5, overlapping=1, early=0)
    h.extend("a", 50, 51, 10, word="LOST")
    h.check("b", 60, 61, 10)


@history("CHECK after its end")
def CHECK_after_the_release_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.release("a", 50, 51, 10)
    h.check("b", 60, 61, 10)


@history("CHECK of the past")
def CHECK_of_one_whom_another_followed_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 100, 101, 11)
    h.check("c", 130, 131, 10)


@history()
def CHECK_of_holders_and_of_none_is_fine(h):
    h.acquire("a", 0, 1, 10)
    h.check("c", 30, 131, 10)
    h.acquire("b", 100, 101, 11)
    h.check("c", 132, 133, 10, word="no")
    h.check("c", 134, 135, 11)


# --- Fences ----------------------------------------------------------------------------


@history("fence not above", "fence not in order")
def a_fence_that_falls_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 200, 201, 9)


@history("fence not above")
def a_fence_that_falls_is_found_though_nobody_believed_in_it(h):
    h.acquire("a", 0, 150, 10)
    h.acquire("b", 200, 201, 9)


@history("fence not in order")
def a_fence_that_falls_is_found_though_both_were_asked_for_at_once(h):
    h.acquire("a", 0, 10, 10)
    h.release("a", 20, 21, 10)
    h.acquire("b", 5, 100, 9, lease=1000)


@history()
def grants_that_were_asked_for_at_once_rise_as_they_are_held(h):
    h.acquire("a", 0, 10, 10)
    h.release("a", 20, 21, 10)
    h.acquire("b", 5, 100, 11, lease=1000)


@history("fence not above", "fence not in order", "fence used twice")
def a_fence_that_is_used_twice_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("c", 200, 201, 11)
    h.acquire("b", 400, 401, 10)


@history("fence used twice")
def a_fence_that_is_used_again_at_once_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 200, 201, 10)


@history("fence used twice")
def one_fence_for_two_that_came_at_once_is_found(h):
    h.acquire("a", 0, 1, 10)
    h.release("a", 2, 3, 10)
    h.acquire("b", 0, 4, 10)


@history()
def fences_may_skip(h):
    h.acquire("a", 0, 1, 10)
    h.acquire("b", 200, 201, 1794756018106349)


@history("fence changed")
def a_fence_that_changes_over_an_extend_is_found(h):
    h.acquire("a", 0, 1, 10, value="v1")
    h.extend("a", 50, 51, 10)
    h.read("b", 60, 61, 11, "v1")


@history("fence changed")
def a_copy_has_no_fence_of_an_attempt(h):
    h.acquire("a", 0, 50, 10, value="v1", waited=40)
    h.read("b", 20, 21, 9, "v1")


@history("fence changed")
def a_majority_has_no_fence_of_an_attempt_when_another_was_granted(h):
    h.acquire("a", 0, 50, 10, value="v1", waited=40)
    h.read("b", 51, 52, 11, "v1", majority=True)


@history()
def a_majority_may_have_voted_for_an_attempt_before(h):
    h.acquire("a", 0, 50, 10, value="v1", waited=40)
    h.read("b", 20, 60, 9, "v1", majority=True)


@history()
def a_fence_that_stays_over_an_extend_is_fine(h):
    h.acquire("a", 0, 1, 10, value="v1")
    h.extend("a", 50, 51, 10)
    h.read("b", 60, 61, 10, "v1")
    h.read("b", 62, 63, 10, "v1", majority=True)


# --- What a grant says of itself -----------------------------------------------------


@history("waited too long")
def who_says_that_it_waited_longer_than_it_took_is_found(h):
    h.acquire("a", 0, 10, 10, waited=50)


@history()
def waiting_is_rounded_and_clocks_differ(h):
    h.acquire("a", 0, 10000, 10, waited=10010)


@history("lease too long")
def a_lease_that_is_longer_than_was_asked_for_is_found(h):
    h.acquire("a", 0, 10, 10, lease=200, asked_ms=100)


@history("lease too long")
def an_extend_that_is_longer_than_was_asked_for_is_found(h):
    h.acquire("a", 0, 10, 10)
    h.extend("a", 20, 21, 10, lease=101, asked=100)


@history()
def a_short_extend_of_a_long_lease_answers_what_is_left(h):
    h.acquire("a", 0, 10, 10, lease=1000)
    h.extend("a", 20, 21, 10, lease=980, asked=100)


@history()
def a_grant_that_says_it_overlaps_may(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.acquire("b", 50, 61, 11, waited=10, overlapping=1, early=0.5)


@history("overlapping unasked")
def a_grant_that_says_it_overlaps_though_nobody_wanted_to_is_found(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.acquire("b", 50, 61, 11, waited=10, overlapping=1)


@history()
def one_whom_a_thief_entered_beside_still_holds(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.acquire("b", 50, 61, 11, waited=10, overlapping=1, early=0)
    h.check("a", 70, 71, 10)
    h.release("b", 80, 81, 11)
    h.extend("a", 1010, 1011, 10)
    h.acquire("c", 2000, 2001, 12)


@history("fence not above", "overlap")
def fences_rise_also_beside_others(h):
    h.acquire("a", 0, 1, 10, lease=1000)
    h.release("a", 70, 71, 10)
    h.acquire("b", 60, 65, 9, waited=5, overlapping=1, early=0)


@history("overlap")
def a_grant_that_says_it_overlaps_does_not_excuse_the_next(h):
    h.acquire("a", 0, 1, 10, lease=1000, overlapping=1, early=0)
    h.acquire("b", 50, 51, 11)


# --- Reading ---------------------------------------------------------------------------


@history("READ of nothing")
def what_nobody_wrote_is_found(h):
    h.acquire("a", 0, 1, 10, value="v1")
    h.read("b", 10, 11, 10, "v2")


@history("READ of nothing")
def what_is_read_before_it_was_asked_for_is_found(h):
    h.read("b", 10, 11, 10, "v1")
    h.acquire("a", 20, 21, 10, value="v1")


@history()
def what_was_asked_for_without_an_answer_may_be_read(h):
    h.unknown("a", "ACQUIRE", 0, value="v1")
    h.read("b", 10, 11, 10, "v1")


@history("READ of what was refused")
def what_was_refused_is_not_read(h):
    h.refused("a", 0, 1, word="NOQUORUM", value="v1")
    h.read("b", 10, 11, 10, "v1")


@history()
def what_is_refused_at_this_moment_may_be_read(h):
    h.refused("a", 0, 20, word="NOQUORUM", value="v1")
    h.read("b", 10, 30, 10, "v1")


@history()
def a_copy_may_be_old(h):
    h.acquire("a", 0, 1, 10, value="v1")
    h.acquire("b", 100, 101, 11, value="v2")
    h.read("c", 110, 111, 10, "v1")
    h.read("c", 112, 113)


@history("READ overlooks")
def a_majority_is_not_old(h):
    h.acquire("a", 0, 1, 10, value="v1")
    h.acquire("b", 100, 101, 11, value="v2")
    h.read("c", 110, 111, 10, "v1", majority=True)


@history()
def a_majority_may_show_what_is_over_if_nothing_is_held(h):
    h.acquire("a", 0, 1, 10, value="v1")
    h.acquire("b", 100, 101, 11, value="v2")
    h.release("b", 105, 106, 11)
    h.read("c", 110, 111, 10, "v1", majority=True)


@history("READ overlooks")
def a_majority_does_not_overlook_a_holder(h):
    h.acquire("a", 0, 1, 10, value="v1")
    h.read("c", 10, 11, majority=True)


@history()
def a_majority_may_overlook_who_comes_or_goes(h):
    h.read("c", 0.5, 2, majority=True)
    h.acquire("a", 0, 1, 10, value="v1")
    h.read("c", 10, 21, majority=True)
    h.release("a", 20, 22, 10)
    h.read("c", 23, 24, majority=True)


# --- What the lock guards --------------------------------------------------------------


@history()
def updates_one_after_the_other_are_fine(h):
    h.update("a", 0, 1, 10, "x", None)
    h.update("b", 2, 3, 11, "y", "x")
    h.final([10, "x", None], [11, "y", "x"])


@history("update lost")
def an_update_that_was_overwritten_is_found(h):
    h.update("a", 0, 1, 10, "x", None)
    h.update("b", 2, 3, 11, "y", "x")
    h.update("a", 2, 4, 11, "z", "x")
    h.final([10, "x", None], [11, "y", "x"], [11, "z", "x"])


@history("update lost")
def an_update_that_is_not_there_is_found(h):
    h.update("a", 0, 1, 10, "x", None)
    h.update("b", 2, 3, 11, "y", "x")
    h.final([10, "x", None])


@history()
def an_update_without_an_answer_may_be_there_or_not(h):
    h.update("a", 0, 1, 10, "x", None)
    h.update("b", 2, None, 11, "y", "x")
    h.update("c", 4, None, 12, "z", "y")
    h.final([10, "x", None], [11, "y", "x"])


@history()
def an_update_that_was_refused_is_not_there(h):
    h.update("a", 0, 1, 10, "x", None)
    h.update("b", 2, 3, 9, "y", "x", word="refused")
    h.final([10, "x", None])


@history("update invented")
def an_update_that_was_refused_and_is_there_is_found(h):
    h.update("a", 0, 1, 10, "x", None)
    h.update("b", 2, 3, 11, "y", "x", word="refused")
    h.final([10, "x", None], [11, "y", "x"])


@history("update invented")
def an_update_that_nobody_made_is_found(h):
    h.update("a", 0, 1, 10, "x", None)
    h.final([10, "x", None], [11, "y", "x"])


@history("old fence taken")
def an_old_fence_that_was_taken_is_found(h):
    h.update("a", 0, 1, 11, "x", None)
    h.update("b", 2, 3, 10, "y", "x")
    h.final([11, "x", None], [10, "y", "x"])


@history()
def who_holds_on_comes_with_the_same_fence(h):
    h.update("a", 0, 1, 11, "x", None)
    h.update("a", 2, 3, 11, "y", "x")
    h.final([11, "x", None], [11, "y", "x"])


@history()
def a_resource_without_fences_is_not_held_against_the_lock(h):
    h.update("a", 0, 1, 11, "x", None, resource="plain")
    h.update("b", 2, 3, 10, "y", None, resource="plain")
    h.final([11, "x", None], [10, "y", None], resource="plain")


# --- Progress ----------------------------------------------------------------------------


@history()
def progress_in_time_is_fine(h):
    h.fault(0)
    h.heal(1000)
    h.acquire("a", 1900, 1990, 10)
    h.end(5000)


@history("no progress")
def no_progress_is_found(h):
    h.fault(0)
    h.heal(1000)
    h.refused("a", 1900, 1990, word="NOQUORUM")
    h.end(5000)


@history("no progress")
def progress_that_comes_late_is_found(h):
    h.fault(0)
    h.heal(1000)
    h.acquire("a", 2100, 2101, 10)
    h.end(5000)


@history("no progress")
def progress_is_asked_of_each_key(h):
    h.heal(1000, keys=("k", "other"))
    h.acquire("a", 1100, 1101, 10)
    h.end(5000)


@history("no progress")
def what_was_granted_before_is_no_progress(h):
    h.acquire("a", 900, 901, 10)
    h.heal(1000)
    h.end(5000)


@history()
def the_next_fault_may_come_before_the_time_is_over(h):
    h.heal(1000)
    h.fault(1500)
    h.heal(2500)
    h.acquire("a", 2600, 2601, 10)
    h.end(5000)


@history("no progress")
def the_next_fault_is_no_excuse_when_the_time_is_over(h):
    h.heal(1000)
    h.fault(2500)
    h.heal(3000)
    h.acquire("a", 3100, 3101, 10)
    h.end(5000)


# --- More than one history, and the program -----------------------------------------------


def said(ok, sentence):
    global number, failed
    number += 1
    failed += not ok
    print("%s %d - %s" % ("ok" if ok else "not ok", number, sentence))


def slow_overlaps(beliefs):
    """Every pair, by the definition."""
    return sum(1 for i, a in enumerate(beliefs) for b in beliefs[:i]
               if a.grant is not b.grant and a.start < b.end and b.start < a.end
               and not max(a.grant, b.grant, key=lambda g: g.fence).overlapping)


def random_history(rng):
    h = History()
    for fence in range(1, rng.randint(2, 12)):
        inv = rng.randint(0, 1000)
        client = rng.choice("abc")
        h.acquire(client, inv, inv + rng.randint(0, 50), fence, lease=rng.randint(10, 200))
        for _ in range(rng.randint(0, 2)):
            inv += rng.randint(1, 200)
            h.extend(client, inv, inv + rng.randint(0, 50), fence, lease=rng.randint(10, 200))
        if rng.random() < 0.5:
            h.release(client, inv + rng.randint(60, 200), inv + 300, fence)
    return h


def sweep_agrees_with_the_definition(seed):
    rng, bad, all_clean = random.Random(seed), 0, 0
    for _ in range(1000):
        ops = checker.parse(random_history(rng).lines)
        beliefs = checker.beliefs_of(ops)
        found = len(checker.overlaps("k", beliefs))
        bad += found != slow_overlaps(beliefs)
        all_clean += found == 0
    return bad == 0 and 0 < all_clean < 1000


def run_program(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.writelines(lines)
        f.flush()
        out = io.StringIO()
        with redirect_stdout(out):
            status = checker.main([f.name])
    return status, out.getvalue()


def large_history():
    h = History()
    for i in range(30000):
        h.acquire("c%d" % (i % 12), 2 * i, 2 * i + 0.5, i + 1, key="k%d" % (i % 3))
        h.release("c%d" % (i % 12), 2 * i + 1, 2 * i + 1.5, i + 1, key="k%d" % (i % 3))
    return h


def main(patterns):
    def chosen(name):
        return not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)

    for name, f, wanted in tests:
        if not chosen(name):
            continue
        h = History()
        f(h)
        found = sorted(v.kind for v in h.verdict().violations)
        said(found == wanted, name)
        if found != wanted:
            print("#   found %r, wanted %r" % (found, wanted))

    if chosen("two_lines_are_one_record"):
        verdict = checker.Verdict(checker.parse([
            '{"client":"a","n":1,"op":"ACQUIRE","key":"k","inv":5,"asked_ms":1}\n',
            '{"client":"a","n":2,"op":"RELEASE","key":"k","inv":9,"fence":3}\n',
            '{"client":"a","n":1,"ret":7,"result":"ok","fence":3,"lease_ms":1,"waited_ms":0}\n',
            '{"client":"a","n":2,"re']))
        said(verdict.grants == 1 and verdict.results[("RELEASE", "unknown")] == 1
             and verdict.beliefs == 1, "two_lines_are_one_record")
    if chosen("what_has_no_fence_is_told_apart"):
        h = History()
        h.update("a", 0, 1, 11, "x", None, resource="plain")
        h.update("b", 2, 3, 10, "y", "x", resource="plain")
        h.update("a", 4, 5, 11, "z", "x", resource="plain")
        h.final([11, "x", None], [10, "y", "x"], [11, "z", "x"], resource="plain")
        verdict = h.verdict()
        said(not verdict.violations and [v.kind for v in verdict.unfenced] == ["update lost"],
             "what_has_no_fence_is_told_apart")
    if chosen("the_sweep_agrees_with_the_definition"):
        said(sweep_agrees_with_the_definition(1), "the_sweep_agrees_with_the_definition")
    if chosen("a_large_history_is_checked"):
        verdict = large_history().verdict()
        said(verdict.grants == 30000 and not verdict.violations, "a_large_history_is_checked")
    if chosen("the_program_shows_the_lines"):
        h = History()
        two_that_believe_at_once_overlap(h)
        status, out = run_program(h.lines)
        said(status == 1 and "overlap: key k: two held it for" in out and "line 1 " in out
             and "line 2 " in out and "1 overlaps" in out, "the_program_shows_the_lines")
    if chosen("the_program_is_content"):
        h = History()
        one_after_the_other_is_fine(h)
        status, out = run_program(h.lines)
        said(status == 0 and "0 overlaps, 0 violations" in out, "the_program_is_content")
    if chosen("what_is_no_history_is_refused"):
        bad = ("nonsense\n", '{"client":"a","n":1,"ret":3}\n',
               '{"client":"a","n":1,"op":"READ","inv":5,"ret":3}\n')
        stderr, sys.stderr = sys.stderr, io.StringIO()
        statuses = [run_program([line])[0] for line in bad]
        sys.stderr = stderr
        said(statuses == [2, 2, 2], "what_is_no_history_is_refused")
    print("1..%d" % number)
    return 1 if failed or not number else 0


number = failed = 0
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
