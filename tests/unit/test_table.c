/* test_table.c - the rules of the lock table, by transcripts. The test moves the time, so nothing
 * sleeps. */
#include <stdlib.h>

#include "table_stage.h"

static void tell(struct stage *s, const struct sl_effect *e)
{
    int key = (int)e->key.n;
    char who = e->session != NULL ? name_of(s, e->session) : '-';
    switch (e->type) {
        case SL_EFFECT_NOTHING: break;
        case SL_EFFECT_GRANTED:
            say(s, "%c granted %.*s held %d waited %d%s\n", who, key, e->key.at,
                (int)e->grant.held, (int)e->grant.waited_ms,
                e->grant.overlapping ? " overlapping" : "");
            break;
        case SL_EFFECT_TIMED_OUT:
            say(s, "%c timed out at %.*s\n", who, key, e->key.at);
            break;
        case SL_EFFECT_EXPIRED: say(s, "%.*s expired\n", key, e->key.at); break;
        case SL_EFFECT_ENDED: say(s, "%.*s ended\n", key, e->key.at); break;
        case SL_EFFECT_REFUSED: say(s, "%c refused %.*s\n", who, key, e->key.at); break;
        case SL_EFFECT_CANCELLED: fail(); break;
        case SL_EFFECT_SEEN: say(s, "%c sees %.*s\n", who, key, e->key.at); break;
        case SL_EFFECT_SESSION_OVER: say(s, "%c over\n", who); break;
        case SL_EFFECT_ASKED:
        case SL_EFFECT_WITHDRAWN:
        case SL_EFFECT_THIEF_WAITS:
        case SL_EFFECT_STOLEN: fail_msg("nobody steals here"); break;
    }
}

/* With a clock that may be late by so much. */
static struct stage *stage_with(sl_ms grain_ms)
{
    struct stage *s = stage_open(4, grain_ms);
    s->tell = tell;
    s->says_time = true;
    return s;
}

static struct stage *stage_new(void)
{
    return stage_with(0);
}

/* --- Capacity ------------------------------------------------------------- */

UNIT_TEST(the_transcript_of_canal_lock_value_for_value)
{
    STAGE s = stage_new();
    ASK('a', .per = 3);
    ASK('a', .per = 3);
    ASK('a', .per = 3);
    ASK('a', .per = 3);
    ASK('a', .per = 3, .buckets = 2);
    ASK('a', .per = 3);
    release(s, 'a', 0);
    ASK('a', .per = 3);
    release(s, 'a', 0);
    ASK('a', .per = 3);
    ASK('a', .per = 3);
    SAID("a held 1\na held 2\na held 3\na FULL\na held 4\na FULL\na releases 1\n"
         "a FULL\na releases 1\na held 3\na FULL\n");
}

UNIT_TEST(more_capacity_admits_new_callers_at_once)
{
    STAGE s = stage_new();
    ASK('a', .per = 3, .units = 3);
    ASK('b', .per = 3, .wait_ms = 1000);
    ASK('c', .per = 3);
    ASK('d', .per = 6);
    SAID("a held 3\nb waits\nc FULL\nd held 4\n");
}

UNIT_TEST(a_small_request_does_not_overtake_a_large_one)
{
    STAGE s = stage_new();
    ASK('a', .per = 3, .units = 2);
    ASK('b', .per = 3, .units = 3, .wait_ms = 1000);
    ASK('c', .per = 3, .units = 1, .wait_ms = 1000);
    release(s, 'a', 0);
    SAID("a held 2\nb waits\nc waits\na releases 1\nb granted k held 3 waited 0\n");
    release(s, 'b', 0);
    SAID("b releases 1\nc granted k held 1 waited 0\n");
}

UNIT_TEST(a_waiter_with_more_capacity_passes_one_with_less_that_does_not_fit)
{
    STAGE s = stage_new();
    ASK('a', .per = 5, .units = 5);
    ASK('b', .per = 1, .wait_ms = 1000);
    ASK('c', .per = 5, .wait_ms = 1000);
    sl_fence first = s->last[0];
    (void)first;
    ASK('d', .per = 4, .wait_ms = 1000);
    release(s, 'a', 0);
    SAID("a held 5\nb waits\nc waits\nd waits\na releases 1\n"
         "b granted k held 1 waited 0\nc granted k held 2 waited 0\n"
         "d granted k held 3 waited 0\n");
}

UNIT_TEST(zero_and_excessive_capacities_are_rejected)
{
    STAGE s = stage_new();
    struct sl_grant g;
    struct sl_want w = {.key = bytes("k"), .per = 0, .buckets = 1, .units = 1};
    assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &w, &g),
                     SLUICE_EFULL);
    w.per = UINT32_MAX, w.buckets = 2;
    assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &w, &g),
                     SLUICE_ETOOBIG);
    w.per = 2, w.buckets = 1, w.units = 3;
    assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &w, &g),
                     SLUICE_ETOOBIG);
    w.units = 0;
    assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &w, &g),
                     SLUICE_EINVAL);
    w.units = 1, w.key.n = 0;
    assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &w, &g),
                     SLUICE_EINVAL);
    w.key = (struct sl_bytes){"12345678901234567890123456789012345678901234567890"
                              "123456789012345678901234567890123456789012345678901",
                              101};
    assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &w, &g),
                     SLUICE_ETOOBIG);
}

/* --- Shared --------------------------------------------------------------- */

UNIT_TEST(a_shared_request_fits_only_with_other_shared_requests)
{
    STAGE s = stage_new();
    ASK('a', .shared = true);
    ASK('b', .shared = true);
    ASK('c', .per = 100);
    ASK('c', .per = 100, .wait_ms = 1000);
    ASK('d', .shared = true); /* A waiting writer is not starved by readers. */
    release(s, 'a', 0);
    release(s, 'b', 0);
    SAID("a held 1\nb held 2\nc FULL\nc waits\nd FULL\na releases 1\nb releases 1\n"
         "c granted k held 1 waited 0\n");
    ASK('d', .shared = true, .wait_ms = 1000);
    ASK('e', .shared = true, .wait_ms = 1000);
    release(s, 'c', 0);
    SAID("d waits\ne waits\nc releases 1\nd granted k held 1 waited 0\n"
         "e granted k held 2 waited 0\n");
}

/* --- Waiting -------------------------------------------------------------- */

UNIT_TEST(W1_a_waiter_is_granted_only_if_it_is_alive_and_in_time)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 100);
    ASK('b', .wait_ms = 100);
    ASK('c', .wait_ms = 200);
    ASK('d', .wait_ms = 300);
    sl_table_session_end(s->table, &s->session['c' - 'a']);
    s->now.ms += 100; /* The lease expires, and b's wait times out. */
    settle(s);
    SAID("a held 1\nb waits\nc waits\nd waits\nk expired\n"
         "b timed out at k\nd granted k held 1 waited 100\nc over\n");
}

UNIT_TEST(W1_what_comes_free_is_not_for_a_session_that_has_ended)
{
    STAGE s = stage_new();
    ASK('a');
    ASK('b', .wait_ms = 100);
    ASK('c', .wait_ms = 100);
    sl_table_session_end(s->table, &s->session[1]);
    release(s, 'a', 0); /* Before anybody asked what follows from b's end. */
    SAID("a held 1\nb waits\nc waits\na releases 1\nc granted k held 1 waited 0\n"
         "b over\n");
}

UNIT_TEST(W2_waiting_is_by_priority_and_then_by_arrival)
{
    STAGE s = stage_new();
    ASK('a');
    ASK('b', .wait_ms = 1000);
    ASK('c', .wait_ms = 1000, .priority = 5);
    ASK('d', .wait_ms = 1000);
    ASK('e', .wait_ms = 1000, .priority = 5);
    for (char who = 'a'; who < 'f'; who++) s->said[0] = '\0';
    release(s, 'a', 0);
    release(s, 'c', 0);
    release(s, 'e', 0);
    release(s, 'b', 0);
    SAID("a releases 1\nc granted k held 1 waited 0\nc releases 1\n"
         "e granted k held 1 waited 0\ne releases 1\nb granted k held 1 waited 0\n"
         "b releases 1\nd granted k held 1 waited 0\n");
}

UNIT_TEST(waiters_of_the_same_millisecond_are_queued_by_the_number_of_their_arrival)
{
    STAGE s = stage_new();
    ASK('a');
    uint64_t first = sl_table_next_number(s->table);
    uint64_t second = sl_table_next_number(s->table);
    ASK('b', .wait_ms = SL_NEVER);
    ASK('c', .wait_ms = SL_NEVER, .number = second);
    ASK('d', .wait_ms = SL_NEVER, .number = first);
    release(s, 'a', 0);
    release(s, 'd', 0);
    release(s, 'c', 0);
    SAID("a held 1\nb waits\nc waits\nd waits\n"
         "a releases 1\nd granted k held 1 waited 0\n"
         "d releases 1\nc granted k held 1 waited 0\n"
         "c releases 1\nb granted k held 1 waited 0\n");
}

UNIT_TEST(a_wait_that_is_over_says_how_long_the_table_had_it)
{
    STAGE s = stage_new();
    ASK('a');
    ASK('b', .wait_ms = 5000, .lease_ms = 50);
    pass(s, 3000);
    release(s, 'a', 0);
    pass(s, 49);
    pass(s, 1);
    SAID("a held 1\nb waits\n[3000]\na releases 1\nb granted k held 1 waited 3000\n"
         "[3049]\n[3050]\nk expired\n");
}

UNIT_TEST(a_session_that_would_wait_for_itself_alone_gets_an_error)
{
    STAGE s = stage_new();
    ASK('a');
    ASK('a');
    ASK('a', .wait_ms = 100);
    SAID("a held 1\na FULL\na DEADLOCK\n");
    ASK('b', .key = bytes("leased"), .lease_ms = 50);
    ASK('b', .key = bytes("leased"),
        .wait_ms = 100); /* A pool's other user: it ends. */
    pass(s, 50);
    SAID(
        "b held 1\nb waits\n[50]\nleased expired\nb granted leased held 1 waited 50\n");
}

UNIT_TEST(the_number_of_waiters_is_limited)
{
    STAGE s = stage_new();
    ASK('a');
    for (char who = 'b'; who < 'g'; who++) ASK(who, .wait_ms = 10);
    SAID("a held 1\nb waits\nc waits\nd waits\ne waits\nf WAITERS\n");
}

/* --- Leases and fences ---------------------------------------------------- */

static int extend(struct stage *s, char who, sl_fence fence, sl_ms ms,
                  const char *value, sl_ms *left)
{
    struct sl_bytes v = {0};
    if (value != NULL) v = bytes(value);
    int status = sl_table_extend(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                                 fence, ms, v, left);
    sl_table_check(s->table);
    return status;
}

UNIT_TEST(EXTEND_never_shortens_a_lease)
{
    STAGE s = stage_new();
    sl_ms left;
    ASK('a', .lease_ms = 100, .value = bytes("one"));
    pass(s, 50);
    assert_int_equal(extend(s, 'a', s->last[0], 10, NULL, &left), SLUICE_OK);
    assert_int_equal(left, 50);
    assert_int_equal(extend(s, 'b', s->last[0], 200, "a longer value", &left),
                     SLUICE_OK);
    assert_int_equal(left, 200);
    assert_int_equal(extend(s, 'g', s->last[0], 200, NULL, &left), SLUICE_ELOST);
    assert_int_equal(extend(s, 'a', s->last[0] + 1, 200, NULL, &left), SLUICE_ELOST);
    assert_int_equal(extend(s, 'a', s->last[0], 0, NULL, &left), SLUICE_EINVAL);
    struct sl_grant_view v;
    uint64_t cursor = 0;
    assert_true(sl_table_each(s->table, s->now, bytes("k"), &cursor, &v));
    assert_int_equal(v.value.n, 14);
    assert_memory_equal(v.value.at, "a longer value", 14);
    s->said[0] = '\0';
    pass(s, 199);
    pass(s, 1);
    SAID("[249]\n[250]\nk expired\n");
    assert_int_equal(extend(s, 'a', s->last[0], 200, NULL, &left), SLUICE_ELOST);
    ASK('a');
    assert_int_equal(extend(s, 'a', s->last[0], 200, NULL, &left), SLUICE_ENOLEASE);
}

UNIT_TEST(a_leased_grant_belongs_to_its_user_and_others_to_their_session)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 1000);
    end(s, 'a'); /* It outlives its session. */
    release(s, 'g', s->last[0]);
    release(s, 'b', 0);
    release(s, 'b', s->last[0]);
    release(s, 'b', s->last[0]);
    ASK('b');
    release(s, 'c', s->last[1]);
    end(s, 'b');
    SAID("a held 1\na over\ng releases 0\nb releases 0\nb releases 1\nb releases 0\n"
         "b held 1\nc releases 0\nk ended\nb over\n");
}

UNIT_TEST(fences_rise_whatever_the_clock_does)
{
    STAGE s = stage_new();
    sl_fence last = 0;
    for (int i = 0; i < 100; i++) {
        s->now.wall_us = (uint64_t)(i % 7 == 0 ? 1 : 1000000 - 1000 * i);
        ASK('a', .lease_ms = 10);
        assert_true(s->last[0] > last);
        last = s->last[0];
        release(s, 'a', last);
    }
    s->now.wall_us =
        UINT64_MAX; /* A clock that is beyond all fences is not believed. */
    ASK('a');
    assert_true(s->last[0] == last + 1);
}

UNIT_TEST(a_grant_expires_at_its_time_even_if_not_yet_reported)
{
    STAGE s = stage_new();
    struct sl_grant g;
    struct sl_want w = {
        .key = bytes("k"), .per = 1, .buckets = 1, .units = 1, .lease_ms = 100};
    assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &w, &g), SLUICE_OK);
    sl_fence first = g.fence;
    assert_true(sl_table_holds(s->table, s->now, bytes("k"), first));
    s->now.ms = 100; /* And nobody asks what follows from that. */
    assert_false(sl_table_holds(s->table, s->now, bytes("k"), first));
    assert_int_equal(sl_table_acquire(s->table, s->now, &s->session[1], &w, &g),
                     SLUICE_OK);
    assert_true(g.fence > first);
    sl_table_check(s->table);
    settle(s);
    SAID("k expired\n");
    assert_true(sl_table_holds(s->table, s->now, bytes("k"), g.fence));
}

/* --- Break, drain, await -------------------------------------------------- */

UNIT_TEST(break_takes_a_lease_at_its_end_or_at_once)
{
    STAGE s = stage_new();
    struct sl_ended p;
    sl_ms left;
    ASK('a', .lease_ms = 100);
    assert_int_equal(
        sl_table_break(s->table, s->now, bytes("k"), s->last[0], false, &p), 1);
    assert_int_equal(extend(s, 'a', s->last[0], 500, NULL, &left), SLUICE_ELOST);
    pass(s, 100);
    ASK('a', .lease_ms = 100);
    assert_int_equal(sl_table_break(s->table, s->now, bytes("k"), s->last[0], true, &p),
                     2);
    assert_int_equal(sl_table_break(s->table, s->now, bytes("k"), s->last[0], true, &p),
                     0);
    settle(s);
    ASK('b');
    ASK('c', .wait_ms = 10);
    assert_int_equal(
        sl_table_break(s->table, s->now, bytes("k"), s->last[1], false, &p), 2);
    settle(s);
    SAID("a held 1\n[100]\nk expired\na held 1\nb held 1 overlapping\nc waits\n"
         "c granted k held 1 waited 0 overlapping\n");
}

UNIT_TEST(a_drained_key_grants_nothing_and_rejects_waiters)
{
    STAGE s = stage_new();
    ASK('a');
    ASK('b', .wait_ms = 100);
    assert_int_equal(sl_table_drain(s->table, bytes("[j-l]"), true), SLUICE_OK);
    assert_int_equal(sl_table_drain(s->table, bytes("x*"), true), SLUICE_OK);
    assert_int_equal(sl_table_drain(s->table, bytes("y"), true), SLUICE_EFULL);
    settle(s);
    ASK('c');
    ASK('c', .key = bytes("other"));
    release(s, 'a', 0);
    assert_int_equal(sl_table_drain(s->table, bytes("[j-l]"), false), SLUICE_OK);
    assert_int_equal(sl_table_drain(s->table, bytes("[j-l]"), false), SLUICE_ENOENT);
    ASK('c');
    SAID("a held 1\nb waits\nb refused k\nc DRAINED\nc held 1\na releases 1\nc held "
         "1\n");
}

static void watch(struct stage *s, char who, bool want_free, sl_ms ms)
{
    int status = sl_table_await(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                                want_free, ms, 0);
    say(s, "%c %s\n", who, status == SL_WAITS ? "watches" : sluice_status_word(status));
    settle(s);
}

UNIT_TEST(await_sees_a_key_held_or_free)
{
    STAGE s = stage_new();
    watch(s, 'a', true, 0);
    watch(s, 'a', false, 0);
    watch(s, 'a', false, 100);
    watch(s, 'd', false, 10);
    pass(s, 10);
    ASK('b');
    watch(s, 'c', true, 100);
    release(s, 'b', 0);
    SAID("a OK\na FULL\na watches\nd watches\n[10]\nd timed out at k\nb held 1\na sees "
         "k\n"
         "c watches\nb releases 1\nc sees k\n");
}

UNIT_TEST(the_grants_of_an_ended_session_are_released)
{
    STAGE s = stage_new();
    ASK('a', .per = 2);
    ASK('a', .key = bytes("other"));
    ASK('b', .per = 1, .wait_ms = 1000);
    ASK('c', .key = bytes("other"), .wait_ms = 1000);
    s->said[0] = '\0';
    end(s, 'a');
    SAID("k ended\nb granted k held 1 waited 0\nother ended\n"
         "c granted other held 1 waited 0\na over\n");
}

UNIT_TEST(a_withdrawn_request_leaves_the_queue_and_keeps_its_grants)
{
    STAGE s = stage_new();
    ASK('a', .shared = true);
    ASK('b', .key = bytes("other"));
    assert_true(sl_session_holds(&s->session[1]));
    ASK('b', .wait_ms = 1000);
    ASK('c', .shared = true, .wait_ms = 1000); /* Behind b, which is exclusive. */
    assert_false(sl_session_holds(&s->session[2]));
    sl_table_withdraw(s->table, &s->session[1]);
    settle(s);
    SAID("a held 1\nb held 1\nb waits\nc waits\nc granted k held 2 waited 0\n");
    assert_true(sl_session_holds(&s->session[1]));
    watch(s, 'b', true, 1000);
    sl_table_withdraw(s->table, &s->session[1]);
    sl_table_withdraw(s->table, &s->session[1]);
    pass(s, 2000); /* Nothing is told for what was withdrawn. */
    end(s, 'b');
    assert_false(sl_session_holds(&s->session[1]));
    SAID("b watches\n[2000]\nother ended\nb over\n");
    ASK('d', .key = bytes("leased"), .lease_ms = 10);
    assert_false(sl_session_holds(&s->session[3]));
}

UNIT_TEST(a_lock_that_only_a_withdrawn_one_watched_is_gone)
{
    STAGE s = stage_new();
    struct sl_table_stats stats;
    watch(s, 'a', false, 1000);
    sl_table_stats(s->table, &stats);
    assert_int_equal(stats.keys, 1);
    assert_int_equal(stats.waiters, 0);
    sl_table_withdraw(s->table, &s->session[0]);
    sl_table_stats(s->table, &stats);
    assert_int_equal(stats.keys, 0);
}

UNIT_TEST(drains_are_listed_and_say_what_changed)
{
    STAGE s = stage_new();
    struct sl_table_stats stats;
    struct sl_bytes glob;
    assert_false(sl_table_drains(s->table, 0, &glob));
    assert_int_equal(sl_table_drain(s->table, bytes("a*"), true), SLUICE_OK);
    assert_int_equal(sl_table_drain(s->table, bytes("b"), true), SLUICE_OK);
    assert_int_equal(sl_table_drain(s->table, bytes("a*"), true), SLUICE_ENOENT);
    assert_true(sl_table_drains(s->table, 0, &glob));
    assert_int_equal(glob.n, 2);
    assert_memory_equal(glob.at, "a*", 2);
    assert_true(sl_table_drains(s->table, 1, &glob));
    assert_memory_equal(glob.at, "b", 1);
    assert_false(sl_table_drains(s->table, 2, &glob));
    ASK('a');
    ASK('b', .wait_ms = 1000);
    sl_table_stats(s->table, &stats);
    assert_int_equal(stats.drains, 2);
    assert_int_equal(stats.waiters, 1);
    assert_int_equal(sl_table_drain(s->table, bytes("a*"), false), SLUICE_OK);
    assert_int_equal(sl_table_drain(s->table, bytes("a*"), false), SLUICE_ENOENT);
    assert_int_equal(sl_table_drain(s->table, bytes(""), true), SLUICE_EINVAL);
}

UNIT_TEST(an_ended_session_is_notified_only_of_its_end)
{
    STAGE s = stage_new();
    ASK('a');
    ASK('b', .wait_ms = 100);
    watch(s, 'c', true, 100);
    ASK('d', .wait_ms = 100);
    s->said[0] = '\0';
    sl_table_session_end(s->table, &s->session[1]);
    sl_table_session_end(s->table, &s->session[2]);
    sl_table_session_end(s->table, &s->session[3]);
    struct sl_ended p;
    assert_int_equal(
        sl_table_release(s->table, s->now, &s->session[0], bytes("k"), 0, &p), 1);
    sl_table_drain(s->table, bytes("k"), true);
    s->now.ms += 100;
    settle(s);
    SAID("b over\nc over\nd over\n");
}

UNIT_TEST(a_lease_that_is_over_makes_no_deadlock)
{
    STAGE s = stage_new();
    struct sl_grant g;
    struct sl_want w = {
        .key = bytes("k"), .per = 2, .buckets = 1, .units = 1, .lease_ms = 10};
    assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &w, &g), SLUICE_OK);
    w.per = 1, w.lease_ms = 0, w.wait_ms = 100;
    assert_int_equal(sl_table_acquire(s->table, s->now, &s->session[1], &w, &g),
                     SL_WAITS);
    s->now.ms = 10; /* Nobody asks what follows; c comes behind b. */
    assert_int_equal(sl_table_acquire(s->table, s->now, &s->session[2], &w, &g),
                     SL_WAITS);
    settle(s);
    SAID("k expired\nb granted k held 1 waited 10\n");
}

UNIT_TEST(the_earliest_eligible_waiter_is_next)
{
    STAGE s = stage_new();
    ASK('a', .per = 9, .units = 9);
    ASK('b', .per = 3, .wait_ms = 10);
    ASK('c', .per = 2, .wait_ms = 1000);
    ASK('d', .per = 3, .wait_ms = 1000); /* In b's queue, and behind c. */
    pass(s, 10);
    SAID("a held 9\nb waits\nc waits\nd waits\n[10]\nb timed out at k\n");
    release(s, 'a', 0);
    SAID("a releases 1\nc granted k held 1 waited 10\nd granted k held 2 waited 10\n");
}

UNIT_TEST(a_late_clock_does_not_end_a_lease_early)
{
    STAGE s = stage_with(1);
    sl_ms left;
    ASK('a', .lease_ms = 100);
    ASK('b', .key = bytes("other"), .shared = true, .lease_ms = 100);
    pass(s, 100);
    assert_int_equal(extend(s, 'a', s->last[0], 1, NULL, &left), SLUICE_OK);
    pass(s, 1);
    pass(s, 1);
    SAID("a held 1\nb held 1\n[100]\n[101]\nother expired\n[102]\nk expired\n");
}

/* A holder adds the time that it waited to its lease: so that must not be too long. */
UNIT_TEST(a_late_clock_does_not_make_a_wait_longer)
{
    STAGE s = stage_with(1);
    ASK('a', .lease_ms = 10);
    ASK('b', .lease_ms = 50, .wait_ms = 100);
    pass(s, 11);
    release(s, 'b', s->last[1]);
    ASK('c', .lease_ms = 50, .wait_ms = 100, .waited_ms = 1);
    SAID("a held 1\nb waits\n[11]\nk expired\nb granted k held 1 waited 10\n"
         "b releases 1\nc held 1\n");
}

UNIT_TEST(a_clock_far_ahead_leaves_fences_to_grow)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10);
    sl_fence last = s->last[0];
    s->now.wall_us = SL_FENCE_MAX;
    ASK('b', .wait_ms = 100);
    release(s, 'a', last);
    assert_true(s->last[1] == last + 1);
    s->now.wall_us = SL_WALL_US_MAX;
    ASK('c', .key = bytes("other"));
    assert_true(s->last[2] == SL_WALL_US_MAX);
    release(s, 'b', 0);
    ASK('d');
    assert_true(s->last[3] == SL_WALL_US_MAX + 1);
}

UNIT_TEST(the_newest_grant_is_the_one_that_is_read)
{
    STAGE s = stage_new();
    struct sl_grant_view v;
    assert_false(sl_table_newest(s->table, s->now, bytes("k"), &v));
    ASK('a', .lease_ms = 100);
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &v));
    assert_true(v.fence == s->last[0]);
    ASK('b', .per = 3, .lease_ms = 50);
    ASK('c', .per = 3, .lease_ms = 10);
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &v));
    assert_true(v.fence == s->last[2]);
    s->now.ms += 10; /* Over, and not told. */
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &v));
    assert_true(v.fence == s->last[1]);
    s->now.ms += 40;
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &v));
    assert_true(v.fence == s->last[0]);
}

UNIT_TEST(a_fence_names_one_grant_and_no_other)
{
    STAGE s = stage_new();
    ASK('a', .per = 3);
    sl_fence first = s->last[0];
    ASK('a', .per = 3);
    ASK('b', .per = 3);
    release(s, 'a', first + 1000);
    release(s, 'b', first);
    release(s, 'a', first);
    assert_false(sl_table_holds(s->table, s->now, bytes("k"), first));
    assert_true(sl_table_holds(s->table, s->now, bytes("k"), s->last[0]));
    release(s, 'a', 0);
    release(s, 'a', 0);
    SAID("a held 1\na held 2\nb held 3\na releases 0\nb releases 0\na releases 1\n"
         "a releases 1\na releases 0\n");
}

UNIT_TEST(a_table_is_freed_with_all_that_is_in_it)
{
    struct stage *s = stage_new();
    for (uint32_t i = 0; i < 900;
         i++) { /* While the index moves, and when it does not. */
        ASK('a', .key = {(char *)&i, sizeof i}, .lease_ms = i % 2 * 1000);
        s->said[0] = '\0';
    }
    ASK('a');
    ASK('b', .wait_ms = 10, .note = bytes("a note"));
    watch(s, 'c', true, 10);
    sl_table_drain(s->table, bytes("x"), true);
    sl_table_free(s->table);
    free(s);
}

int main(void)
{
    return run_unit_tests("table");
}
