#!/usr/bin/python3
"""test_checker - that the checker of transactions finds each anomaly, and invents none.

    tests/tx/test_checker.py [PATTERN...]

Each test is a history of a few lines and the anomalies that are in it. Beside one that has an
anomaly stands one that looks like it and has none. Prints TAP.
"""
import fnmatch
import io
import json
import os
import random
import re
import sys
import tempfile
from contextlib import redirect_stdout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checker  # noqa: E402

tests = []


def history(*wanted):
    """Register a test: f(h) writes a history in which these kinds of anomalies are."""
    def register(f):
        tests.append((f.__name__, f, set(wanted)))
        return f
    return register


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


class History:
    """Writes a history. Without times all are at once, so that the clock says nothing."""

    def __init__(self):
        self.lines, self.n = [], 0

    def add(self, op, inv, **more):
        self.n += 1
        self.lines.append(json.dumps(dict(client="c", n=self.n, op=op, inv=inv, **more)) + "\n")

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


# --- Cycles ------------------------------------------------------------------------


@history()
def one_after_the_other_is_fine(h):
    h.tx("A", "x= x+1 y= y+2", 0, 10)
    h.tx("B", "x=1 x+3 y=2 y+4", 20, 30)
    h.tx("C", "x=1,3 y=2,4", 40, 50)


@history("G0")
def writes_in_two_orders_are_G0(h):
    h.tx("A", "x+1 y+2")
    h.tx("B", "x+3 y+4")
    h.tx("C", "x=1,3")
    h.tx("D", "y=4,2")


@history()
def writes_in_one_order_are_fine(h):
    h.tx("A", "x+1 y+2")
    h.tx("B", "x+3 y+4")
    h.tx("C", "x=1,3")
    h.tx("D", "y=2,4")


@history("G1c")
def two_that_read_each_other_are_G1c(h):
    h.tx("A", "x+1 y=2")
    h.tx("B", "y+2 x=1")


@history()
def two_of_which_one_reads_the_other_are_fine(h):
    h.tx("A", "x+1 y=")
    h.tx("B", "y+2 x=1")


@history("G1c")
def a_read_against_the_order_of_writes_is_G1c(h):
    h.tx("A", "x+1 y=3")
    h.tx("B", "x+2 y+3")
    h.tx("C", "x=1,2")


@history("G-single")
def half_of_a_transaction_seen_is_G_single(h):
    h.tx("A", "x+1 y+2")
    h.tx("B", "x=1 y=")
    h.tx("C", "x=1 y=2")


@history()
def all_or_nothing_of_a_transaction_seen_is_fine(h):
    h.tx("A", "x+1 y+2")
    h.tx("B", "x= y=")
    h.tx("C", "x=1 y=2")


@history("G2")
def two_that_do_not_see_each_other_are_G2(h):
    h.tx("A", "x= y+1")
    h.tx("B", "y= x+2")
    h.tx("C", "x=2 y=1")


@history()
def two_of_which_one_does_not_see_the_other_are_fine(h):
    h.tx("A", "x= y+1")
    h.tx("B", "y=1 x+2")
    h.tx("C", "x=2 y=1")


@history("G2")
def a_key_that_a_scan_overlooks_is_found(h):
    h.tx("A", "?y=1 z+5")
    h.tx("B", "y+1")
    h.tx("C", "z= x+2")
    h.tx("D", "?x=2;y=1;z=5")


@history()
def a_key_that_comes_after_a_scan_is_fine(h):
    h.tx("A", "?y=1 z+5")
    h.tx("B", "y+1")
    h.tx("C", "z=5 x+2")
    h.tx("D", "?x=2;y=1;z=5")


@history("G-single")
def a_long_cycle_is_found(h):
    for i in range(50):
        h.tx("T%d" % i, "k%d= k%d+%d k%d=%s" % (
            i, i, i, (i - 1) % 50, "" if i == 0 else str(i - 1)))
    h.tx("Z", "k49=49 k0=")


# --- The clock -------------------------------------------------------------------------


@history("real-time")
def a_read_of_the_past_is_against_the_clock(h):
    h.tx("A", "x+1", 0, 10)
    h.tx("B", "x=", 20, 30)
    h.tx("C", "x=1", 0, 40)


@history()
def a_read_at_the_same_time_may_miss_a_write(h):
    h.tx("A", "x+1", 0, 10)
    h.tx("B", "x=", 5, 30)
    h.tx("C", "x=1", 0, 40)


@history("real-time")
def writes_against_the_clock_are_found(h):
    h.tx("A", "x+1", 0, 10)
    h.tx("B", "x+2", 20, 30)
    h.tx("C", "x=2,1", 5, 40)


@history("real-time")
def a_cycle_through_others_against_the_clock_is_found(h):
    h.tx("A", "x+1", 0, 10)
    h.tx("B", "y+2", 20, 30)
    h.tx("C", "x= y=2", 0, 100)
    h.tx("D", "x=1 y=2", 0, 100)


@history()
def a_commit_that_was_not_answered_may_come_late(h):
    h.unknown("A", "x+1", 0)
    h.tx("B", "x=", 20, 30)
    h.tx("C", "x=1", 40, 50)


# --- Aborted, unfinished ------------------------------------------------------------------


@history("G1a")
def a_read_of_what_was_aborted_is_G1a(h):
    h.tx("A", "x+1", result="ABORT")
    h.tx("B", "x=1")


@history("G1a")
def a_read_of_one_who_was_killed_before_it_asked_is_G1a(h):
    h.killed("A", "x+1")
    h.tx("B", "x=1")


@history("G1a")
def a_read_of_one_who_was_killed_before_it_told_is_G1a(h):
    h.killed("A", "")
    h.tx("B", "x=A/1#1")


@history()
def a_read_of_one_who_was_killed_when_it_had_asked_is_fine(h):
    h.unknown("A", "x+1")
    h.tx("B", "x=1")


@history()
def what_was_aborted_may_have_read_what_it_likes(h):
    h.tx("A", "x+1", result="RESTART")
    h.tx("B", "x=1 y=9", result="RESTART")
    h.tx("C", "x=")


@history("G1a")
def an_outcome_that_is_final_aborts(h):
    h.unknown("A", "x+1", 0)
    h.outcome("A", None, 10, 11, final=True)
    h.tx("B", "x=1", 20, 30)


@history()
def an_outcome_may_be_too_early(h):
    h.unknown("A", "x+1", 0)
    h.outcome("A", None, 10, 11)
    h.tx("B", "x=1", 20, 30)


@history("G1b")
def a_read_of_what_is_not_finished_is_G1b(h):
    h.tx("A", "x+1 x+2")
    h.tx("B", "x=1")


@history()
def a_read_of_what_is_finished_is_fine(h):
    h.tx("A", "x+1 x=1 x+2 x=1,2")
    h.tx("B", "x=1,2")


@history("G1b", "G-single")
def an_account_that_is_not_finished_is_G1b(h):
    h.tx("A", "a: a:=5@p a:=6@q")
    h.tx("B", "a:5@p")


# --- Lost, twice, invented --------------------------------------------------------------------


@history("lost update")
def two_that_follow_one_version_lose_an_update(h):
    h.tx("A", "x= x+1")
    h.tx("B", "x= x+2")
    h.tx("C", "x=2")


@history("lost update", "G-single")
def it_is_lost_though_both_are_there(h):
    h.tx("A", "x= x+1")
    h.tx("B", "x= x+2")
    h.tx("C", "x=1,2")


@history()
def one_that_follows_the_other_loses_nothing(h):
    h.tx("A", "x= x+1")
    h.tx("B", "x=1 x+2")
    h.tx("C", "x=1,2")


@history("lost update")
def an_account_loses_an_update(h):
    h.tx("S", "a: a:=10@s", 0, 1)
    h.tx("A", "a:10@s a:=11@p", 2, 10)
    h.tx("B", "a:10@s a:=12@q", 2, 10)
    h.tx("C", "a:12@q", 2, 20)


@history()
def an_account_loses_none(h):
    h.tx("S", "a: a:=10@s", 0, 1)
    h.tx("A", "a:10@s a:=11@p", 2, 10)
    h.tx("B", "a:11@p a:=13@q", 2, 10)
    h.tx("C", "a:13@q", 2, 20)


@history("lost write")
def what_was_answered_and_is_not_there_is_lost(h):
    h.tx("A", "x= x+1", 0, 10)
    h.tx("B", "x=", 20, 30)


@history("lost write")
def all_attempts_are_lost_though_one_was_answered(h):
    h.unknown("A", "x= x+1", 0, attempt=1)
    h.tx("A", "x= x+2", 5, 10, attempt=2)
    h.tx("B", "x=", 20, 30)


@history()
def what_was_not_answered_may_be_gone(h):
    h.unknown("A", "x= x+1", 0)
    h.tx("B", "x=", 20, 30)


@history("lost write")
def what_an_outcome_says_must_be_there(h):
    h.unknown("A", "x= x+1", 0)
    h.outcome("A", 3, 10, 11)
    h.tx("B", "x=", 20, 30)


@history("applied twice")
def two_attempts_that_are_there_were_applied_twice(h):
    h.unknown("A", "x= x+1", 0, attempt=1)
    h.tx("A", "x=1 x+2", 20, 30, attempt=2)
    h.tx("B", "x=1,2", 40, 50)


@history()
def the_answer_to_the_second_attempt_may_be_about_the_first(h):
    h.unknown("A", "x= x+1", 0, attempt=1)
    h.tx("A", "x=1 x+2", 20, 30, attempt=2)
    h.tx("B", "x=1", 40, 50)


@history("real-time")
def then_the_first_is_known_since_the_second(h):
    h.unknown("A", "x= x+1", 0, attempt=1)
    h.tx("A", "x=1 x+2", 20, 30, attempt=2)
    h.tx("B", "x=", 40, 50)
    h.tx("C", "x=1", 0, 100)


@history("applied twice")
def an_element_twice_is_found(h):
    h.tx("A", "x+1")
    h.tx("B", "x=1,1")


@history("invented")
def what_nobody_wrote_is_invented(h):
    h.tx("A", "x+1")
    h.tx("B", "x=1,7")


@history("invented")
def what_was_written_elsewhere_is_invented(h):
    h.tx("A", "x+1")
    h.tx("B", "y=1")


@history("incompatible")
def two_reads_that_differ_in_the_middle_are_incompatible(h):
    h.tx("A", "x+1")
    h.tx("B", "x+2")
    h.tx("C", "x=1,2")
    h.tx("D", "x=2")


@history("internal")
def one_that_does_not_see_its_own_write_is_found(h):
    h.tx("A", "x= x+1 x=")


@history("internal")
def a_read_that_changes_is_found(h):
    h.tx("A", "x=")
    h.tx("B", "x+1")
    h.tx("C", "x= x=1")


# --- The rest --------------------------------------------------------------------------


@history("sum")
def a_wrong_sum_is_found(h):
    h.bank(20, 2)
    h.tx("S", "a: b: a:=10@s b:=10@t", 0, 1)
    h.tx("A", "$a=10@s;b=9@t", 2, 3)


@history()
def a_right_sum_is_fine(h):
    h.bank(20, 2)
    h.tx("S", "a: b: a:=10@s b:=10@t", 0, 1)
    h.tx("A", "a:10@s b:10@t a:=7@u b:=13@v", 2, 3)
    h.tx("B", "$a=7@u;b=13@v", 4, 5)
    h.tx("C", "$a=10@s;b=10@t", 2, 3)


@history("sum", "G-single")
def a_scan_in_the_middle_of_a_transfer_is_found(h):
    h.bank(20, 2)
    h.tx("S", "a: b: a:=10@s b:=10@t", 0, 1)
    h.tx("A", "a:10@s b:10@t a:=7@u b:=13@v", 2, 9)
    h.tx("B", "$a=7@u;b=10@t", 2, 9)


@history("outcome")
def an_outcome_that_forgets_is_found(h):
    h.tx("A", "x+1", 0, 10, revision=1)
    h.outcome("A", None, 20, 21)
    h.tx("B", "x=1", 30, 40, revision=1)


@history("outcome")
def an_outcome_with_another_revision_is_found(h):
    h.tx("A", "x+1", 0, 10, revision=1)
    h.outcome("A", 2, 20, 21)


@history("outcome")
def an_outcome_of_what_was_aborted_is_found(h):
    h.tx("A", "x+1", 0, 10, result="ABORT")
    h.outcome("A", 2, 20, 21)


@history("revision")
def one_revision_for_two_is_found(h):
    h.tx("A", "x+1", 0, 10, revision=1)
    h.tx("B", "y+2", 0, 10, revision=1)


@history("revision")
def a_revision_against_the_clock_is_found(h):
    h.tx("A", "x+1", 0, 10, revision=2)
    h.tx("B", "y+2", 20, 30, revision=1)


@history("revision")
def a_revision_against_the_order_of_versions_is_found(h):
    h.tx("A", "x= x+1", revision=2)
    h.tx("B", "x=1 x+2", revision=1)
    h.tx("C", "x=1,2", revision=2)


@history()
def revisions_that_rise_are_fine(h):
    h.tx("A", "x= x+1", 0, 10, revision=1)
    h.tx("B", "x=1", 20, 30, revision=1)
    h.tx("C", "x=1 x+2", 20, 30, revision=2)
    h.outcome("C", 2, 40, 41)


@history("term")
def a_start_with_the_same_term_is_found(h):
    h.up(1, 0)
    h.up(1, 10)


@history("term")
def a_term_that_falls_is_found(h):
    h.up(1, 0)
    h.up(2, 10)
    h.tx("A", "x=", 20, 30, term=1, known_at=25)


@history()
def terms_that_rise_are_fine(h):
    h.up(1, 0)
    h.tx("A", "x=", 5, 8, term=1, known_at=6)
    h.up(2, 10)
    h.tx("B", "x=", 20, 30, term=2, known_at=25)


# --- Many --------------------------------------------------------------------------------


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


def run_program(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.writelines(lines)
        f.flush()
        out = io.StringIO()
        with redirect_stdout(out):
            status = checker.main([f.name])
    return status, out.getvalue()


def main(patterns):
    number = failed = 0

    def chosen(name):
        return not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)

    def said(ok, name, why=()):
        nonlocal number, failed
        number += 1
        failed += not ok
        print("%s %d - %s" % ("ok" if ok else "not ok", number, name))
        for line in why if not ok else ():
            print("#   " + line)

    for name, f, wanted in tests:
        if chosen(name):
            h = History()
            f(h)
            verdict = h.verdict()
            said(set(verdict.kinds) == wanted, name,
                 ["wanted " + (", ".join(sorted(wanted)) or "nothing")] + verdict.explain())
    if chosen("every_kind_has_a_test"):
        kinds = {kind for _, _, wanted in tests for kind in wanted}
        text = checker.__doc__.split("What may not happen:")[1].split("Exit status")[0]
        told = {kind for names in re.findall(r"^ *(\S.*?)  ", text, re.M)
                for kind in names.split(", ")}
        said(kinds == told, "every_kind_has_a_test", [str(kinds ^ told)])
    if chosen("serial_histories_are_clean"):
        bad = [line for seed in range(20) for line in serial_history(seed, 300).verdict().explain()]
        said(not bad, "serial_histories_are_clean", bad[:20])
    if chosen("one_old_read_among_many_is_found"):
        missed = [seed for seed in range(20)
                  if not serial_history(seed, 300, True).verdict().anomalies]
        # The one that is broken may be one that was not committed.
        said(len(missed) < 12, "one_old_read_among_many_is_found", [str(missed)])
    if chosen("a_large_history_is_checked"):
        verdict = serial_history(1, 20000).verdict()
        said(verdict.commits > 10000 and not verdict.anomalies, "a_large_history_is_checked",
             verdict.explain())
    if chosen("the_program_shows_the_cycle"):
        h = History()
        two_that_read_each_other_are_G1c(h)
        status, out = run_program(h.lines)
        said(status == 1 and "G1c: B/1 -(wr l/y 2)-> A/1 -(wr l/x 1)-> B/1" in out
             and "line 2 " in out and "1 anomalies" in out, "the_program_shows_the_cycle", [out])
    if chosen("the_program_is_content"):
        h = History()
        one_after_the_other_is_fine(h)
        status, out = run_program(h.lines)
        said(status == 0 and "3 committed, 2 of them wrote, 0 anomalies" in out,
             "the_program_is_content", [out])
    if chosen("what_is_no_history_is_refused"):
        bad = ("nonsense\n", '{"client":"a","n":1,"ret":3}\n',
               '{"client":"a","n":1,"op":"TX","inv":5,"ret":3}\n')
        stderr, sys.stderr = sys.stderr, io.StringIO()
        statuses = [run_program([line])[0] for line in bad]
        sys.stderr = stderr
        said(statuses == [2, 2, 2], "what_is_no_history_is_refused")
    print("1..%d" % number)
    return 1 if failed or not number else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
