#!/usr/bin/python3
"""test_checker - that the checker of transactions finds each anomaly, and invents none.

    tests/tx/test_checker.py [PATTERN...]

Each test is a history of a few lines and the anomalies that are in it. Next to one that has an
anomaly stands one that looks like it and has none. Prints TAP.
"""
import os
import random
import re
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib")]
import checker  # noqa: E402
from history_tests import Lines, Tests  # noqa: E402


def steps_of(text):
    """"x=1,2" read a list, "x+3" append; "a:10@p" read an account, "a:=11@q" write it;
    "?x=1,2;y=3" and "$a=10@p;b=7@q" are scans of the tables of lists and of accounts."""
    steps = []
    for word in text.split():
        if word.startswith("?"):
            rows = dict(row.split("=") for row in word[1:].split(";") if row)
            steps.append(["lists", "l", {k: v.split(",") for k, v in rows.items()}])
        elif word.startswith("$"):
            rows = dict(row.split("=") for row in word[1:].split(";") if row)
            steps.append(["scan", "b", {k: [int(v.split("@")[0]), v.split("@")[1]]
                                        for k, v in rows.items()}])
        elif ":=" in word:
            key, value = word.split(":=")
            steps.append(["put", "b", key, int(value.split("@")[0]), value.split("@")[1]])
        elif ":" in word:
            key, value = word.split(":")
            steps.append(["get", "b", key,
                          [int(value.split("@")[0]), value.split("@")[1]] if value else None])
        elif "+" in word:
            key, tag = word.split("+")
            steps.append(["append", "l", key, tag])
        else:
            key, tags = word.split("=")
            steps.append(["list", "l", key, tags.split(",") if tags else []])
    return steps


class History(Lines):
    """Writes a history. Without times all are at once, so that the clock says nothing."""

    def add(self, op, inv, **more):
        self.record(client="c", op=op, inv=inv, **more)

    def tx(self, request, text, inv=0, ret=1000, result="ok", attempt=1, **more):
        answer = {} if result is None else dict(ret=ret, result=result)
        more.setdefault("asked", inv)
        self.add("TX", inv, request=request, attempt=attempt, steps=steps_of(text),
                 **more, **answer)

    def unknown(self, request, text, inv=0, **more):
        """It asked, and was told nothing."""
        self.tx(request, text, inv, result=None, **more)

    def killed(self, request, text, inv=0, **more):
        """It never asked."""
        self.tx(request, text, inv, result=None, asked=None, **more)

    def outcome(self, request, revision, inv=2000, ret=2001, final=False):
        self.add("OUTCOME", inv, ret=ret, request=request, revision=revision, final=final)

    def up(self, term, at):
        self.add("UP", at, ret=at, known_at=at, term=term)

    def bank(self, total, accounts):
        self.add("BANK", 0, ret=0, table="b", sum=total, accounts=accounts)

    def verdict(self):
        return checker.Verdict(checker.parse(self.lines))


HISTORIES = """
# Cycles

one_after_the_other_is_fine
    tx A 0 10: x= x+1 y= y+2; tx B 20 30: x=1 x+3 y=2 y+4; tx C 40 50: x=1,3 y=2,4
writes_in_two_orders_are_G0: G0
    tx A: x+1 y+2; tx B: x+3 y+4; tx C: x=1,3; tx D: y=4,2
writes_in_one_order_are_fine
    tx A: x+1 y+2; tx B: x+3 y+4; tx C: x=1,3; tx D: y=2,4
two_that_read_each_other_are_G1c: G1c
    tx A: x+1 y=2; tx B: y+2 x=1
two_of_which_one_reads_the_other_are_fine
    tx A: x+1 y=; tx B: y+2 x=1
a_read_against_the_order_of_writes_is_G1c: G1c
    tx A: x+1 y=3; tx B: x+2 y+3; tx C: x=1,2
half_of_a_transaction_seen_is_G_single: G-single
    tx A: x+1 y+2; tx B: x=1 y=; tx C: x=1 y=2
all_or_nothing_of_a_transaction_seen_is_fine
    tx A: x+1 y+2; tx B: x= y=; tx C: x=1 y=2
two_that_do_not_see_each_other_are_G2: G2
    tx A: x= y+1; tx B: y= x+2; tx C: x=2 y=1
two_of_which_one_does_not_see_the_other_are_fine
    tx A: x= y+1; tx B: y=1 x+2; tx C: x=2 y=1
a_key_that_a_scan_overlooks_is_found: G2
    tx A: ?y=1 z+5; tx B: y+1; tx C: z= x+2; tx D: ?x=2;y=1;z=5
a_key_that_comes_after_a_scan_is_fine
    tx A: ?y=1 z+5; tx B: y+1; tx C: z=5 x+2; tx D: ?x=2;y=1;z=5

# The clock

a_read_of_the_past_is_against_the_clock: real-time
    tx A 0 10: x+1; tx B 20 30: x=; tx C 0 40: x=1
a_read_at_the_same_time_may_miss_a_write
    tx A 0 10: x+1; tx B 5 30: x=; tx C 0 40: x=1
writes_against_the_clock_are_found: real-time
    tx A 0 10: x+1; tx B 20 30: x+2; tx C 5 40: x=2,1
a_cycle_through_others_against_the_clock_is_found: real-time
    tx A 0 10: x+1; tx B 20 30: y+2; tx C 0 100: x= y=2; tx D 0 100: x=1 y=2
a_commit_that_was_not_answered_may_come_late
    unknown A 0: x+1; tx B 20 30: x=; tx C 40 50: x=1

# Aborted, unfinished

a_read_of_what_was_aborted_is_G1a: G1a
    tx A result=ABORT: x+1; tx B: x=1
a_read_of_one_who_was_killed_before_it_asked_is_G1a: G1a
    killed A: x+1; tx B: x=1
a_read_of_one_who_was_killed_before_it_told_is_G1a: G1a
    killed A:; tx B: x=A/1#1
a_read_of_one_who_was_killed_when_it_had_asked_is_fine
    unknown A: x+1; tx B: x=1
what_was_aborted_may_have_read_what_it_likes
    tx A result=RESTART: x+1; tx B result=RESTART: x=1 y=9; tx C: x=
an_outcome_that_is_final_aborts: G1a
    unknown A 0: x+1; outcome A None 10 11 final=True; tx B 20 30: x=1
an_outcome_may_be_too_early
    unknown A 0: x+1; outcome A None 10 11; tx B 20 30: x=1
a_read_of_what_is_not_finished_is_G1b: G1b
    tx A: x+1 x+2; tx B: x=1
a_read_of_what_is_finished_is_fine
    tx A: x+1 x=1 x+2 x=1,2; tx B: x=1,2
an_account_that_is_not_finished_is_G1b: G1b, G-single
    tx A: a: a:=5@p a:=6@q; tx B: a:5@p

# Lost, twice, invented

two_that_follow_one_version_lose_an_update: lost update
    tx A: x= x+1; tx B: x= x+2; tx C: x=2
it_is_lost_though_both_are_there: lost update, G-single
    tx A: x= x+1; tx B: x= x+2; tx C: x=1,2
one_that_follows_the_other_loses_nothing
    tx A: x= x+1; tx B: x=1 x+2; tx C: x=1,2
an_account_loses_an_update: lost update
    tx S 0 1: a: a:=10@s; tx A 2 10: a:10@s a:=11@p; tx B 2 10: a:10@s a:=12@q;
    tx C 2 20: a:12@q
an_account_loses_none
    tx S 0 1: a: a:=10@s; tx A 2 10: a:10@s a:=11@p; tx B 2 10: a:11@p a:=13@q;
    tx C 2 20: a:13@q
what_was_answered_and_is_not_there_is_lost: lost write
    tx A 0 10: x= x+1; tx B 20 30: x=
all_attempts_are_lost_though_one_was_answered: lost write
    unknown A 0 attempt=1: x= x+1; tx A 5 10 attempt=2: x= x+2; tx B 20 30: x=
what_was_not_answered_may_be_gone
    unknown A 0: x= x+1; tx B 20 30: x=
what_an_outcome_says_must_be_there: lost write
    unknown A 0: x= x+1; outcome A 3 10 11; tx B 20 30: x=
two_attempts_that_are_there_were_applied_twice: applied twice
    unknown A 0 attempt=1: x= x+1; tx A 20 30 attempt=2: x=1 x+2; tx B 40 50: x=1,2
the_answer_to_the_second_attempt_may_be_about_the_first
    unknown A 0 attempt=1: x= x+1; tx A 20 30 attempt=2: x=1 x+2; tx B 40 50: x=1
then_the_first_is_known_since_the_second: real-time
    unknown A 0 attempt=1: x= x+1; tx A 20 30 attempt=2: x=1 x+2; tx B 40 50: x=;
    tx C 0 100: x=1
an_element_twice_is_found: applied twice
    tx A: x+1; tx B: x=1,1
what_nobody_wrote_is_invented: invented
    tx A: x+1; tx B: x=1,7
what_was_written_elsewhere_is_invented: invented
    tx A: x+1; tx B: y=1
two_reads_that_differ_in_the_middle_are_incompatible: incompatible
    tx A: x+1; tx B: x+2; tx C: x=1,2; tx D: x=2
one_that_does_not_see_its_own_write_is_found: internal
    tx A: x= x+1 x=
a_read_that_changes_is_found: internal
    tx A: x=; tx B: x+1; tx C: x= x=1

# The rest

a_wrong_sum_is_found: sum
    bank 20 2; tx S 0 1: a: b: a:=10@s b:=10@t; tx A 2 3: $a=10@s;b=9@t
a_right_sum_is_fine
    bank 20 2; tx S 0 1: a: b: a:=10@s b:=10@t; tx A 2 3: a:10@s b:10@t a:=7@u b:=13@v;
    tx B 4 5: $a=7@u;b=13@v; tx C 2 3: $a=10@s;b=10@t
a_scan_in_the_middle_of_a_transfer_is_found: sum, G-single
    bank 20 2; tx S 0 1: a: b: a:=10@s b:=10@t; tx A 2 9: a:10@s b:10@t a:=7@u b:=13@v;
    tx B 2 9: $a=7@u;b=10@t
an_outcome_that_forgets_is_found: outcome
    tx A 0 10 revision=1: x+1; outcome A None 20 21; tx B 30 40 revision=1: x=1
an_outcome_with_another_revision_is_found: outcome
    tx A 0 10 revision=1: x+1; outcome A 2 20 21
an_outcome_of_what_was_aborted_is_found: outcome
    tx A 0 10 result=ABORT: x+1; outcome A 2 20 21
one_revision_for_two_is_found: revision
    tx A 0 10 revision=1: x+1; tx B 0 10 revision=1: y+2
a_revision_against_the_clock_is_found: revision
    tx A 0 10 revision=2: x+1; tx B 20 30 revision=1: y+2
a_revision_against_the_order_of_versions_is_found: revision
    tx A revision=2: x= x+1; tx B revision=1: x=1 x+2; tx C revision=2: x=1,2
revisions_that_rise_are_fine
    tx A 0 10 revision=1: x= x+1; tx B 20 30 revision=1: x=1; tx C 20 30 revision=2: x=1 x+2;
    outcome C 2 40 41
a_start_with_the_same_term_is_found: term
    up 1 0; up 1 10
a_term_that_falls_is_found: term
    up 1 0; up 2 10; tx A 20 30 term=1 known_at=25: x=
terms_that_rise_are_fine
    up 1 0; tx A 5 8 term=1 known_at=6: x=; up 2 10; tx B 20 30 term=2 known_at=25: x=
"""


def serial_history(seed, count, broken=False):
    """Random transactions, done one after the other, and told with times that overlap."""
    rng, h, state = random.Random(seed), History(), {}
    for i in range(count):
        words, mine = [], {}
        for slot in range(rng.randint(1, 4)):
            key = "k%d" % (i // 100 * 4 + rng.randrange(4))
            mine.setdefault(key, list(state.get(key, ())))
            words.append("%s=%s" % (key, ",".join(mine[key])))
            if rng.random() < 0.5:
                mine[key].append("%d.%d" % (i, slot))
                words.append("%s+%s" % (key, mine[key][-1]))
        if broken and i == count // 2:
            words.append("k0=")  # long ago it was so
        if rng.random() < 0.8:
            state.update(mine)
            result = rng.choice(("ok", "ok", "ok", None))
        else:
            result = "RESTART"
        h.tx("T%d" % i, " ".join(words), i * 10 - rng.randrange(35), i * 10 + rng.randrange(35),
             result)
    for key in state:
        h.tx("end " + key, "%s=%s" % (key, ",".join(state[key])), 20 * count, 20 * count + 1)
    return h


def long_cycle():
    h = History()
    for i in range(50):
        h.tx("T%d" % i, "k%d= k%d+%d k%d=%s" % (
            i, i, i, (i - 1) % 50, "" if i == 0 else str(i - 1)))
    h.tx("Z", "k49=49 k0=")
    return kinds_of(h)


def kinds_of(h):
    return sorted(h.verdict().kinds)


def explain(h):
    return h.verdict().explain()


def main(patterns):
    t = Tests(patterns, HISTORIES, History, checker, kinds_of, explain)
    t.check("a_long_cycle_is_found", lambda: long_cycle() == ["G-single"])
    text = checker.__doc__.split("What may not happen:")[1].split("Exit status")[0]
    told = {kind for names in re.findall(r"^ *(\S.*?)  ", text, re.M)
            for kind in names.split(", ")}
    t.check("every_kind_has_a_test", lambda: t.kinds == told, lambda: [str(t.kinds ^ told)])
    t.check("serial_histories_are_clean", lambda: not any(
        explain(serial_history(seed, 300)) for seed in range(20)))
    # The one that is broken may be one that was not committed.
    t.check("one_old_read_among_many_is_found", lambda: sum(
        not kinds_of(serial_history(seed, 300, True)) for seed in range(20)) < 12)

    def large():
        verdict = serial_history(1, 20000).verdict()
        return verdict.commits > 10000 and not verdict.anomalies

    t.check("a_large_history_is_checked", large)
    t.check_program("the_program_shows_the_cycle", "two_that_read_each_other_are_G1c", 1,
                    "G1c: B/1 -(wr l/y 2)-> A/1 -(wr l/x 1)-> B/1", "line 2 ", "1 anomalies")
    t.check_program("the_program_is_content", "one_after_the_other_is_fine", 0,
                    "3 committed, 2 of them wrote, 0 anomalies")
    t.check_refusals("what_is_no_history_is_refused", "nonsense\n",
                     '{"client":"a","n":1,"ret":3}\n',
                     '{"client":"a","n":1,"op":"TX","inv":5,"ret":3}\n')
    return t.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
