#!/usr/bin/python3
"""test_checker - that the checker of histories finds each violation, and invents none.

    tests/cluster/test_checker.py [PATTERN...]

Each test is a history of a few lines and the violations that are in it. Next to one that has a
violation stands one that looks like it and has none. Prints TAP.
"""
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checker  # noqa: E402
from history_tests import Lines, Tests  # noqa: E402


class History(Lines):
    """Writes a history; times are milliseconds."""

    def add(self, client, op, inv, ret, **more):
        if ret is not None:
            more["ret"] = int(ret * checker.MS)
        self.record(client=client, op=op, inv=int(inv * checker.MS), **more)

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

    def fault(self, inv, ret=None, kind="cut"):
        self.add("nemesis", "FAULT", inv, ret or inv, kind=kind)

    def heal(self, at, bound=1000, keys=("k",)):
        self.add("nemesis", "HEAL", at, at, bound_ms=bound, keys=keys)

    def end(self, at):
        self.add("run", "END", at, at)

    def verdict(self):
        return checker.Verdict(checker.parse(self.lines))


HISTORIES = """
# One at a time

one_after_the_other_is_fine
    acquire a 0 1 10; release a 50 51 10; acquire b 51 52 11; acquire a 200 201 12
two_that_believe_at_once_overlap: overlap
    acquire a 0 1 10; acquire b 50 51 11
two_keys_have_nothing_to_do_with_each_other
    acquire a 0 1 10; acquire b 50 51 10 key=other
a_release_that_was_sent_late_overlaps: overlap
    acquire a 0 1 10; acquire b 50 51 11; release a 51.5 52 10
a_release_counts_from_its_sending
    acquire a 0 1 10; release a 50 90 10; acquire b 40 51 11
a_release_without_an_answer_ends_a_belief_all_the_same
    acquire a 0 1 10; unknown a RELEASE 50 fence=10; acquire b 51 52 11
a_release_that_failed_ends_a_belief_all_the_same
    acquire a 0 1 10; release a 50 51 10 word=NOQUORUM; acquire b 51 52 11
the_release_of_another_grant_ends_nothing: overlap
    acquire a 0 1 10; release a 50 51 9; acquire b 52 53 11
a_lease_that_ends_early_overlaps: overlap
    acquire a 0 1 10 lease=1000; acquire b 997 997.5 11
a_lease_is_shorter_for_its_holder
    acquire a 0 1 10 lease=1000; acquire b 997 998.5 11
a_lease_counts_from_the_sending
    acquire a 0 90 10; acquire b 50 100 11
what_was_waited_counts_too: overlap
    acquire a 0 500 10 waited=490; acquire b 549 550 11
what_was_waited_ends_too
    acquire a 0 500 10 waited=490; acquire b 589 590 11
three_at_once_are_two_overlaps_with_the_long_one: overlap, overlap
    acquire a 0 1 10 lease=1000; acquire b 50 51 11; acquire c 200 201 12
an_answer_that_comes_after_the_end_is_no_belief
    acquire a 0 300 10; acquire b 150 151 11 lease=1000
who_was_not_answered_believes_nothing
    unknown a ACQUIRE 0; acquire b 50 51 11
who_was_refused_believes_nothing
    acquire a 0 1 10; refused b 20 21; refused c 20 90 word=NOQUORUM
a_pause_of_the_holder_is_no_excuse: overlap
    acquire a 0 1 10 lease=1000; fault 100 900 kind=pause; acquire b 500 501 11

# Dying

the_dead_believe_nothing
    acquire a 0 1 10 lease=1000; died a 100; acquire b 200 201 11
who_dies_later_believed_until_then: overlap
    acquire a 0 1 10 lease=1000; died a 300; acquire b 200 201 11
the_death_of_another_is_no_excuse: overlap
    acquire a 0 1 10 lease=1000; died c 100; acquire b 200 201 11

# Extending

an_extended_belief_lasts_longer: overlap
    acquire a 0 1 10; extend a 50 51 10; acquire b 120 121 11
an_extend_counts_from_its_sending
    acquire a 0 1 10; extend a 50 90 10; acquire b 120 150 11
an_extend_without_an_answer_extends_no_belief
    acquire a 0 1 10; unknown a EXTEND 50 fence=10; acquire b 120 121 11
an_extend_without_an_answer_stands_between_others
    acquire a 0 1 10; extend a 40 41 10; unknown a EXTEND 50 fence=10; extend a 60 61 10;
    acquire b 170 171 11
an_extend_that_failed_shortens_no_belief: overlap
    acquire a 0 1 10 lease=1000; extend a 50 51 10 word=NOQUORUM; acquire b 120 121 11
who_is_asked_to_go_still_holds: overlap
    acquire a 0 1 10 lease=1000; extend a 50 51 10 word=ASKED; acquire b 120 121 11
LOST_ends_a_belief_and_should_not_come_before_its_end: EXTEND before its end
    acquire a 0 1 10 lease=1000; extend a 50 51 10 word=LOST; acquire b 51 52 11
LOST_ends_a_belief_when_it_is_read: EXTEND before its end, overlap
    acquire a 0 1 10 lease=1000; extend a 50 60 10 word=LOST; acquire b 51 52 11
LOST_around_the_end_is_fine
    acquire a 0 1 10; extend a 95 101 10 word=LOST
LOST_is_fine_after_the_release_was_sent
    acquire a 0 1 10; unknown a RELEASE 40 fence=10; extend a 50 51 10 word=LOST;
    check a 52 53 10 word=no
LOST_is_fine_when_a_thief_has_entered_beside
    acquire a 0 1 10 lease=1000; acquire b 20 25 11 waited=5 overlapping=1 early=0;
    extend a 50 51 10 word=LOST
LOST_is_fine_when_a_thief_has_tried_to_enter_beside
    acquire a 0 1 10 lease=1000; unknown b ACQUIRE 20 early=0; check a 50 51 10 word=no
CHECK_that_denies_a_holder_is_found: CHECK before its end
    acquire a 0 1 10; check b 50 51 10 word=no
CHECK_that_denies_one_who_extended_is_found: CHECK before its end
    acquire a 0 1 10; extend a 50 51 10; check b 120 121 10 word=no
CHECK_that_denies_around_the_end_is_fine
    acquire a 0 1 10; check b 90 110 10 word=no; check b 120 121 10 word=no
a_shorter_extend_shortens_nothing_and_is_fine
    acquire a 0 1 10 lease=1000; extend a 50 51 10 lease=950; acquire b 1000 1001 11
a_shorter_extend_shortens_no_belief: overlap
    acquire a 0 1 10 lease=1000; extend a 50 51 10 lease=10; acquire b 500 501 11
an_extend_after_another_held_is_found: EXTEND of the past, fence not in order
    acquire a 0 1 10; acquire b 100 101 11; release b 120 121 11; extend a 130 131 10
an_extend_after_a_gap_in_which_nobody_held_is_fine
    acquire a 0 1 10; extend a 130 131 10; acquire b 230 231 11
an_extend_after_a_gap_holds_from_then_on: overlap
    acquire a 0 1 10; extend a 130 131 10; acquire b 150 151 11
an_extend_beside_the_next_grant_may_have_come_first
    acquire a 0 1 10; extend a 90 300 10; acquire b 200 250 11
an_extend_after_LOST_is_found: EXTEND after its end
    acquire a 0 1 10; extend a 150 151 10 word=LOST; extend a 160 161 10
an_extend_sent_before_LOST_came_is_fine
    acquire a 0 1 10; extend a 50 51 10; extend a 52 400 10 word=LOST
an_extend_while_another_is_told_LOST_is_fine
    acquire a 0 1 10; extend a 95 200 10 word=LOST; extend a 96 97 10
an_extend_after_the_release_is_found: EXTEND after its end
    acquire a 0 1 10; release a 50 51 10; extend b 60 61 10
an_extend_after_a_release_that_did_nothing_is_fine
    acquire a 0 1 10; release a 50 51 10 word=NOQUORUM; unknown a RELEASE 55 fence=10;
    extend b 60 61 10
CHECK_after_LOST_is_found: CHECK after its end
    acquire a 0 1 10; extend a 150 151 10 word=LOST; check b 160 161 10
CHECK_after_LOST_is_fine_when_a_thief_has_entered_beside
    acquire a 0 1 10 lease=1000; acquire b 20 25 11 waited=5 overlapping=1 early=0;
    extend a 50 51 10 word=LOST; check b 60 61 10
CHECK_after_the_release_is_found: CHECK after its end
    acquire a 0 1 10; release a 50 51 10; check b 60 61 10
CHECK_of_one_whom_another_followed_is_found: CHECK of the past
    acquire a 0 1 10; acquire b 100 101 11; check c 130 131 10
CHECK_of_holders_and_of_none_is_fine
    acquire a 0 1 10; check c 30 131 10; acquire b 100 101 11; check c 132 133 10 word=no;
    check c 134 135 11

# Fences

a_fence_that_falls_is_found: fence not above, fence not in order
    acquire a 0 1 10; acquire b 200 201 9
a_fence_that_falls_is_found_though_nobody_believed_in_it: fence not above
    acquire a 0 150 10; acquire b 200 201 9
a_fence_that_falls_is_found_though_both_were_asked_for_at_once: fence not in order
    acquire a 0 10 10; release a 20 21 10; acquire b 5 100 9 lease=1000
grants_that_were_asked_for_at_once_rise_as_they_are_held
    acquire a 0 10 10; release a 20 21 10; acquire b 5 100 11 lease=1000
a_fence_that_is_used_twice_is_found: fence not above, fence not in order, fence used twice
    acquire a 0 1 10; acquire c 200 201 11; acquire b 400 401 10
a_fence_that_is_used_again_at_once_is_found: fence used twice
    acquire a 0 1 10; acquire b 200 201 10
one_fence_for_two_that_came_at_once_is_found: fence used twice
    acquire a 0 1 10; release a 2 3 10; acquire b 0 4 10
fences_may_skip
    acquire a 0 1 10; acquire b 200 201 1794756018106349
a_fence_that_changes_over_an_extend_is_found: fence changed
    acquire a 0 1 10 value=v1; extend a 50 51 10; read b 60 61 11 v1
a_copy_has_no_fence_of_an_attempt: fence changed
    acquire a 0 50 10 value=v1 waited=40; read b 20 21 9 v1
a_majority_has_no_fence_of_an_attempt_when_another_was_granted: fence changed
    acquire a 0 50 10 value=v1 waited=40; read b 51 52 11 v1 majority=True
a_majority_may_have_voted_for_an_attempt_before
    acquire a 0 50 10 value=v1 waited=40; read b 20 60 9 v1 majority=True
a_fence_that_stays_over_an_extend_is_fine
    acquire a 0 1 10 value=v1; extend a 50 51 10; read b 60 61 10 v1;
    read b 62 63 10 v1 majority=True

# What a grant says of itself

who_says_that_it_waited_longer_than_it_took_is_found: waited too long
    acquire a 0 10 10 waited=50
waiting_is_rounded_and_clocks_differ
    acquire a 0 10000 10 waited=10010
a_lease_that_is_longer_than_was_asked_for_is_found: lease too long
    acquire a 0 10 10 lease=200 asked_ms=100
an_extend_that_is_longer_than_was_asked_for_is_found: lease too long
    acquire a 0 10 10; extend a 20 21 10 lease=101 asked=100
a_short_extend_of_a_long_lease_answers_what_is_left
    acquire a 0 10 10 lease=1000; extend a 20 21 10 lease=980 asked=100
a_grant_that_says_it_overlaps_may
    acquire a 0 1 10 lease=1000; acquire b 50 61 11 waited=10 overlapping=1 early=0.5
a_grant_that_says_it_overlaps_though_nobody_wanted_to_is_found: overlapping unasked
    acquire a 0 1 10 lease=1000; acquire b 50 61 11 waited=10 overlapping=1
one_whom_a_thief_entered_beside_still_holds
    acquire a 0 1 10 lease=1000; acquire b 50 61 11 waited=10 overlapping=1 early=0;
    check a 70 71 10; release b 80 81 11; extend a 1010 1011 10; acquire c 2000 2001 12
fences_rise_also_beside_others: fence not above, overlap
    acquire a 0 1 10 lease=1000; release a 70 71 10;
    acquire b 60 65 9 waited=5 overlapping=1 early=0
a_grant_that_says_it_overlaps_does_not_excuse_the_next: overlap
    acquire a 0 1 10 lease=1000 overlapping=1 early=0; acquire b 50 51 11

# Reading

what_nobody_wrote_is_found: READ of nothing
    acquire a 0 1 10 value=v1; read b 10 11 10 v2
what_is_read_before_it_was_asked_for_is_found: READ of nothing
    read b 10 11 10 v1; acquire a 20 21 10 value=v1
what_was_asked_for_without_an_answer_may_be_read
    unknown a ACQUIRE 0 value=v1; read b 10 11 10 v1
what_was_refused_is_not_read: READ of what was refused
    refused a 0 1 word=NOQUORUM value=v1; read b 10 11 10 v1
what_is_refused_at_this_moment_may_be_read
    refused a 0 20 word=NOQUORUM value=v1; read b 10 30 10 v1
a_copy_may_be_old
    acquire a 0 1 10 value=v1; acquire b 100 101 11 value=v2; read c 110 111 10 v1;
    read c 112 113
a_majority_is_not_old: READ overlooks
    acquire a 0 1 10 value=v1; acquire b 100 101 11 value=v2; read c 110 111 10 v1 majority=True
a_majority_may_show_what_is_over_if_nothing_is_held
    acquire a 0 1 10 value=v1; acquire b 100 101 11 value=v2; release b 105 106 11;
    read c 110 111 10 v1 majority=True
a_majority_does_not_overlook_a_holder: READ overlooks
    acquire a 0 1 10 value=v1; read c 10 11 majority=True
a_majority_may_overlook_who_comes_or_goes
    read c 0.5 2 majority=True; acquire a 0 1 10 value=v1; read c 10 21 majority=True;
    release a 20 22 10; read c 23 24 majority=True

# What the lock guards

updates_one_after_the_other_are_fine
    update a 0 1 10 x None; update b 2 3 11 y x; final 10,x,None 11,y,x
an_update_that_was_overwritten_is_found: update lost
    update a 0 1 10 x None; update b 2 3 11 y x; update a 2 4 11 z x;
    final 10,x,None 11,y,x 11,z,x
an_update_that_is_not_there_is_found: update lost
    update a 0 1 10 x None; update b 2 3 11 y x; final 10,x,None
an_update_without_an_answer_may_be_there_or_not
    update a 0 1 10 x None; update b 2 None 11 y x; update c 4 None 12 z y;
    final 10,x,None 11,y,x
an_update_that_was_refused_is_not_there
    update a 0 1 10 x None; update b 2 3 9 y x word=refused; final 10,x,None
an_update_that_was_refused_and_is_there_is_found: update invented
    update a 0 1 10 x None; update b 2 3 11 y x word=refused; final 10,x,None 11,y,x
an_update_that_nobody_made_is_found: update invented
    update a 0 1 10 x None; final 10,x,None 11,y,x
an_old_fence_that_was_taken_is_found: old fence taken
    update a 0 1 11 x None; update b 2 3 10 y x; final 11,x,None 10,y,x
who_holds_on_comes_with_the_same_fence
    update a 0 1 11 x None; update a 2 3 11 y x; final 11,x,None 11,y,x
a_resource_without_fences_is_not_held_against_the_lock
    update a 0 1 11 x None resource=plain; update b 2 3 10 y None resource=plain;
    final 11,x,None 10,y,None resource=plain

# Progress

progress_in_time_is_fine
    fault 0; heal 1000; acquire a 1900 1990 10; end 5000
no_progress_is_found: no progress
    fault 0; heal 1000; refused a 1900 1990 word=NOQUORUM; end 5000
progress_that_comes_late_is_found: no progress
    fault 0; heal 1000; acquire a 2100 2101 10; end 5000
progress_is_asked_of_each_key: no progress
    heal 1000 keys=k,other; acquire a 1100 1101 10; end 5000
what_was_granted_before_is_no_progress: no progress
    acquire a 900 901 10; heal 1000; end 5000
the_next_fault_may_come_before_the_time_is_over
    heal 1000; fault 1500; heal 2500; acquire a 2600 2601 10; end 5000
the_next_fault_is_no_excuse_when_the_time_is_over: no progress
    heal 1000; fault 2500; heal 3000; acquire a 3100 3101 10; end 5000
"""


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


def sweep_agrees(seed):
    rng, bad, all_clean = random.Random(seed), 0, 0
    for _ in range(1000):
        ops = checker.parse(random_history(rng).lines)
        beliefs = checker.beliefs_of(ops)
        found = len(checker.overlaps("k", beliefs))
        bad += found != slow_overlaps(beliefs)
        all_clean += found == 0
    return bad == 0 and 0 < all_clean < 1000


def large_history():
    h = History()
    for i in range(30000):
        h.acquire("c%d" % (i % 12), 2 * i, 2 * i + 0.5, i + 1, key="k%d" % (i % 3))
        h.release("c%d" % (i % 12), 2 * i + 1, 2 * i + 1.5, i + 1, key="k%d" % (i % 3))
    return h


TWO_LINES = (
    '{"client":"a","n":1,"op":"ACQUIRE","key":"k","inv":5,"asked_ms":1}\n',
    '{"client":"a","n":2,"op":"RELEASE","key":"k","inv":9,"fence":3}\n',
    '{"client":"a","n":1,"ret":7,"result":"ok","fence":3,"lease_ms":1,"waited_ms":0}\n',
    '{"client":"a","n":2,"re')
UNFENCED = (
    "update a 0 1 11 x None resource=plain", "update b 2 3 10 y x resource=plain",
    "update a 4 5 11 z x resource=plain", "final 11,x,None 10,y,x 11,z,x resource=plain")


def two_lines_are_one_record():
    verdict = checker.Verdict(checker.parse(TWO_LINES))
    return (verdict.grants == 1 and verdict.results[("RELEASE", "unknown")] == 1
            and verdict.beliefs == 1)


def what_has_no_fence_is_told_apart():
    verdict = History(UNFENCED).verdict()
    return not verdict.violations and [v.kind for v in verdict.unfenced] == ["update lost"]


def a_large_history_is_checked():
    verdict = large_history().verdict()
    return verdict.grants == 30000 and not verdict.violations


def the_sweep_agrees_with_the_definition():
    return sweep_agrees(1)


def main(patterns):
    t = Tests(patterns, HISTORIES, History, checker,
              lambda h: sorted(v.kind for v in h.verdict().violations))
    for f in (two_lines_are_one_record, what_has_no_fence_is_told_apart,
              the_sweep_agrees_with_the_definition, a_large_history_is_checked):
        t.check(f.__name__, f)
    t.check_program("the_program_shows_the_lines", "two_that_believe_at_once_overlap", 1,
                    "overlap: key k: two held it for", "line 1 ", "line 2 ", "1 overlaps")
    t.check_program("the_program_is_content", "one_after_the_other_is_fine", 0,
                    "0 overlaps, 0 violations")
    t.check_refusals("what_is_no_history_is_refused", "nonsense\n",
                     '{"client":"a","n":1,"ret":3}\n',
                     '{"client":"a","n":1,"op":"READ","inv":5,"ret":3}\n')
    return t.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
