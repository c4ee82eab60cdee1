/* test_tx_restart.c - locks that a transaction takes again after RESTART, and waits with a
 * deadline. */
#include "tx_stage.h"

/* --- After a restart ----------------------------------------------------------- */

/* 2 has written b, and wanted to write a; 1 has both, and is not done. */
static struct stage *stage_restarted(void)
{
    struct stage *s = stage_new();
    BEGIN(1), BEGIN(2), PUT(1, "a", "1"), PUT(2, "b", "2"), PUT(1, "b", "1");
    PUT(2, "a", "2");
    SAID("1 began 1\n2 began 2\n1 put\n2 put\n1 waits\n2 RESTART 2 1\n1 put\n");
    return s;
}

UNIT_TEST(what_was_written_is_locked_by_the_first_command_after_BEGIN)
{
    STAGE s = stage_restarted();
    COMMIT(1), BEGIN(2);
    SAID("1 committed 1\n2 began 2\n");
    HOLDERS("a", "");
    HOLDERS("b", "");
    GET(2, "c");
    SAID("2 got nothing\n");
    HOLDERS("a", "2 W");
    HOLDERS("b", "2 W");
    HOLDERS("c", "2 R");
    HOLDERS("*", "2 IW");
    COMMIT(2);
    SAID("2 committed 1\n");
}

UNIT_TEST(BEGIN_does_not_wait_and_the_first_command_does)
{
    STAGE s = stage_restarted();
    BEGIN(2);
    SAID("2 began 2\n");
    GET(2, "c");
    SAID("2 waits\n");
    COMMIT(1);
    SAID("1 committed 1\n2 got nothing\n");
}

/* Readers that all want to write restart once each, and then queue for writing. */
UNIT_TEST(readers_that_want_to_write_run_twice)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 4; i++) BEGIN(i), GET(i, "a");
    UNHEARD;
    for (uint64_t i = 1; i <= 4; i++) PUT(i, "a", "x");
    SAID("1 waits\n2 RESTART 2 1\n3 RESTART 3 1\n4 RESTART 4 1\n1 put\n");
    for (uint64_t i = 2; i <= 4; i++) BEGIN(i), GET(i, "a");
    UNHEARD;
    HOLDERS("a", "1 W, 2 ->W for 1, 3 ->W for 1, 4 ->W for 1");
    COMMIT(1);
    SAID("1 committed 1\n2 got x\n");
    PUT(2, "a", "y"), COMMIT(2), COMMIT(3), COMMIT(4);
    SAID("2 put\n2 committed 2\n3 got y\n3 committed 2\n4 got y\n4 committed 2\n");
    assert_int_equal(stats_of(s).restarted, 3);
}

/* 2 wrote a before b, and 3 b before a. 4 and 5 have these keys when both run again, and the
 * one that 3 wrote first is free first. */
UNIT_TEST(restarted_transactions_take_locks_in_one_order)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), WRITE(1, "c");
    WRITE(2, "a"), WRITE(3, "b"), WRITE(2, "b"), WRITE(3, "a");
    WRITE(2, "c"), WRITE(1, "a"), COMMIT(1);
    assert_int_equal(stats_of(s).restarted, 2);
    BEGIN(4), WRITE(4, "a"), BEGIN(5), WRITE(5, "b");
    BEGIN(2), BEGIN(3);
    UNHEARD;
    GET(2, "z"), GET(3, "z"), COMMIT(5), COMMIT(4);
    SAID("2 waits\n3 waits\n5 committed 0\n4 committed 0\n2 got nothing\n");
    COMMIT(2);
    SAID("2 committed 0\n3 got nothing\n");
    assert_int_equal(stats_of(s).restarted, 2);
}

/* 3 loses once more while it takes its locks again: it had a, and waited for b. */
UNIT_TEST(a_second_restart_remembers_all)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), WRITE(1, "d"), WRITE(3, "a"), WRITE(3, "b");
    WRITE(3, "c"), WRITE(3, "d"), WRITE(1, "a"), COMMIT(1);
    assert_int_equal(stats_of(s).restarted, 1); /* 3 will take a, b, c, d again. */
    WRITE(2, "b"), BEGIN(3), GET(3, "z");
    HOLDERS("a", "3 W");
    HOLDERS("b", "2 W, 3 ->W for 2");
    WRITE(2, "a");
    assert_int_equal(stats_of(s).restarted, 2);
    COMMIT(2), BEGIN(3);
    UNHEARD;
    GET(3, "z");
    SAID("3 got nothing\n");
    HOLDERS("a", "3 W");
    HOLDERS("b", "3 W");
    HOLDERS("c", "3 W");
    HOLDERS("d", "3 W");
}

/* 2 has written b, and wanted to read a. */
UNIT_TEST(a_key_that_it_waited_to_read_is_taken_for_writing_if_it_writes)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "u/b"), GET(2, "a"), WRITE(1, "u/b");
    COMMIT(1), BEGIN(2), GET(2, "z");
    HOLDERS("a", "2 W");
    HOLDERS("*", "2 IW");
    HOLDERS("u/b", "2 W");
}

/* 2 has read b, and wanted to read a: other transactions may still read a. */
UNIT_TEST(a_reader_takes_nothing_for_writing)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), GET(2, "b"), GET(2, "a"), WRITE(1, "b");
    COMMIT(1), BEGIN(2), GET(2, "z");
    HOLDERS("a", "2 R");
    HOLDERS("b", "");
    HOLDERS("*", "2 IR");
}

/* Two that scan a table and then write into it. */
UNIT_TEST(a_table_that_was_scanned_and_written_is_taken_again)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), SCAN(1, "*"), SCAN(2, "*"), PUT(1, "a", "1"), PUT(2, "b", "2");
    COMMIT(1), BEGIN(2), GET(2, "z");
    HOLDERS("*", "2 RIW");
}

UNIT_TEST(remembered_locks_are_forgotten_at_the_end)
{
    struct stage *s = stage_restarted();
    assert_int_equal(stats_of(s).remembered, 3); /* Both keys, and their table. */
    assert_int_equal(stats_of(s).locks, 3);      /* Those of 1. */
    ABORT(2);
    assert_int_equal(stats_of(s).remembered, 0);
    BEGIN(2), GET(2, "c");
    SAID("2 aborted\n2 began 3\n2 got nothing\n");
    stage_end(s);

    s = stage_restarted();
    BEGIN(2), COMMIT(2); /* It needed nothing. */
    SAID("2 began 2\n2 committed 0\n");
    assert_int_equal(stats_of(s).remembered, 0);
    stage_end(s);

    s = stage_restarted();
    leave(s, 2);
    assert_int_equal(stats_of(s).remembered, 0);
    stage_end(s);

    s = stage_restarted();
    BEGIN(2), GET(2, "c"), leave(s, 2); /* While it waits for what it had. */
    assert_int_equal(stats_of(s).remembered, 0);
    stage_end(s);

    s = stage_restarted();
    stop(s, 2);
    assert_int_equal(stats_of(s).remembered, 0);
    stage_end(s);
}

UNIT_TEST(remembered_locks_are_forgotten_at_the_age_limit)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.age_ms_max = 1000;
    STAGE s = stage_with(&limits);
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "b"), WRITE(1, "b"), WRITE(2, "a");
    assert_int_equal(stats_of(s).remembered, 3);
    pass(s, 1000);
    assert_int_equal(stats_of(s).remembered, 0);
}

/* A lock that is remembered counts as one: nobody has more of them than the limits allow. */
UNIT_TEST(remembered_locks_count_in_the_limits)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.locks_max = 4;
    limits.total_locks_max = 7;
    STAGE s = stage_with(&limits);
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "b"), WRITE(1, "b"), WRITE(2, "a");
    COMMIT(1), BEGIN(3);
    UNHEARD;
    WRITE(3, "c"), WRITE(3, "d"), WRITE(3, "e");
    SAID("3 locked\n3 locked\n3 locked\n");
    ABORT(3), BEGIN(3), BEGIN(4), WRITE(4, "c"), WRITE(3, "d"), WRITE(3, "e");
    SAID("3 aborted\n3 began 4\n4 began 5\n4 locked\n3 locked\n3 TRANSACTIONS\n");
    ABORT(3), ABORT(4), BEGIN(2), WRITE(2, "x"), WRITE(2, "y");
    SAID("3 aborted\n4 aborted\n2 began 2\n2 locked\n2 LOCKS\n");
}

/* --- Waits with a deadline -------------------------------------------------------- */

UNIT_TEST(a_wait_of_0_is_none)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a");
    UNHEARD;
    WRITE_WITHIN(2, "a", 0), READ_WITHIN(2, "a", 0), WRITE_WITHIN(2, "b", 0);
    SAID("2 FULL\n2 FULL\n2 locked\n");
    HOLDERS("a", "1 W");
    assert_int_equal(sl_tx_manager_due(s->manager), SL_NEVER);
    PUT(2, "b", "x"), COMMIT(2); /* It goes on, and commits. */
    SAID("2 put\n2 committed 1\n");
}

/* It would close a cycle, and its youngest would restart. */
UNIT_TEST(a_wait_of_0_restarts_no_transaction)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "b"), WRITE(2, "a");
    UNHEARD;
    WRITE_WITHIN(1, "b", 0);
    SAID("1 FULL\n");
    COMMIT(1);
    SAID("1 committed 0\n2 locked\n");
}

UNIT_TEST(a_wait_ends_at_its_deadline)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), WRITE(1, "a");
    UNHEARD;
    WRITE_WITHIN(2, "a", 100);
    assert_int_equal(sl_tx_manager_due(s->manager), s->now + 100);
    READ(3, "a"), pass(s, 99);
    SAID("2 waits\n3 waits\n");
    HOLDERS("a", "1 W, 2 ->W for 1, 3 ->R for 1");
    pass(s, 1);
    SAID("2 FULL\n");
    HOLDERS("a", "1 W, 3 ->R for 1");
    assert_int_equal(sl_tx_manager_due(s->manager), SL_NEVER);
    COMMIT(1), WRITE_WITHIN(2, "b", 100), COMMIT(2);
    SAID("1 committed 0\n3 locked\n2 locked\n2 committed 0\n");
    assert_int_equal(sl_tx_manager_due(s->manager), SL_NEVER);
}

UNIT_TEST(a_wait_that_is_granted_has_no_deadline_any_more)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE_WITHIN(2, "a", 100), pass(s, 50);
    UNHEARD;
    COMMIT(1), pass(s, 1000);
    SAID("1 committed 0\n2 locked\n");
    HOLDERS("a", "2 W");
}

/* A waiter behind one whose wait has timed out may be next then. */
UNIT_TEST(a_timeout_lets_other_waiters_continue)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), READ(1, "a"), WRITE_WITHIN(2, "a", 100), READ(3, "a");
    UNHEARD;
    pass(s, 100);
    SAID("2 FULL\n3 locked\n");
}

/* The intention on the table as well, so that the table is as free as before; but what it had
 * before stays. */
UNIT_TEST(a_wait_that_times_out_leaves_nothing_behind)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), READ(1, "a"), WRITE_WITHIN(2, "a", 0);
    HOLDERS("*", "1 IR");
    READ(2, "b"), WRITE_WITHIN(2, "a", 0);
    HOLDERS("*", "1 IR, 2 IR");
    READ(2, "a"), WRITE_WITHIN(2, "a", 10), pass(s, 10);
    HOLDERS("*", "1 IR, 2 IR");
    HOLDERS("a", "1 R, 2 R");
    WRITE_WITHIN(2, "*", 0);
    HOLDERS("*", "1 IR, 2 IR");
    WRITE(2, "c"), WRITE_WITHIN(2, "a", 10), READ(3, "*");
    HOLDERS("*", "1 IR, 2 IW, 3 ->R for 2");
    UNHEARD;
    pass(s, 10);
    SAID("2 FULL\n");
    HOLDERS("*", "1 IR, 2 IW, 3 ->R for 2");
}

/* The table was free when it was asked, and is not when the wait for the key is over. */
UNIT_TEST(a_table_that_waits_for_its_intention_is_served)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), READ(1, "a"), WRITE_WITHIN(2, "a", 10), READ(3, "*");
    HOLDERS("*", "1 IR, 2 IW, 3 ->R for 2");
    UNHEARD;
    pass(s, 10);
    SAID("2 FULL\n3 locked\n");
}

UNIT_TEST(a_bounded_wait_may_close_a_cycle)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "b"), WRITE(1, "b");
    UNHEARD;
    WRITE_WITHIN(2, "a", 100);
    SAID("2 RESTART 2 1\n1 locked\n");
    assert_int_equal(sl_tx_manager_due(s->manager), SL_NEVER);
}

/* Its locks of before are a part of the wait. What it could not have it takes later. */
UNIT_TEST(the_deadline_covers_locks_taken_again)
{
    STAGE s = stage_restarted();
    BEGIN(2), WRITE_WITHIN(2, "c", 0), WRITE_WITHIN(2, "c", 50), pass(s, 50);
    SAID("2 began 2\n2 FULL\n2 waits\n2 FULL\n");
    HOLDERS("a", "1 W");
    HOLDERS("c", "");
    COMMIT(1), WRITE_WITHIN(2, "c", 0);
    SAID("1 committed 1\n2 locked\n");
    HOLDERS("a", "2 W");
    HOLDERS("c", "2 W");
}

UNIT_TEST(a_waiter_with_a_deadline_can_leave)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "b"), WRITE_WITHIN(2, "a", 100);
    UNHEARD;
    leave(s, 2), pass(s, 200);
    SAID("");
    BEGIN(3), WRITE_WITHIN(3, "a", 100), stop(s, 2), pass(s, 200);
    SAID("3 began 3\n3 waits\n3 STALE 2\n");
}

int main(void)
{
    return run_unit_tests("tx_restart");
}
