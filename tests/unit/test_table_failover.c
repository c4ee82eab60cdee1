/* test_table_failover.c - the lock table of a keeper: the end of its authority, reclaimed grants, and
 * the reset. By transcripts, and at random. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing_alloc.h"
#include "table_stage.h"

/* --- The stage ------------------------------------------------------------- */

enum { FLOOR = 5000 };

/* With a clock that may be late by so much. */
static struct stage *stage_with(sl_ms grain_ms)
{
    struct stage *s = stage_open(100, grain_ms);
    s->now.ms = 1000;
    s->judges = true;
    sl_table_set_fences(s->table, FLOOR, SL_FENCE_MAX);
    return s;
}

static struct stage *stage_new(void)
{
    return stage_with(0);
}

static void await(struct stage *s, char who, bool free, sl_ms wait_ms)
{
    int status = sl_table_await(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                                free, wait_ms, 0);
    say(s, "%c %s\n", who,
        status == SL_WAITS    ? "watches"
        : status == SLUICE_OK ? "sees"
                              : sluice_status_word(status));
    settle(s);
}

static void extend(struct stage *s, char who, sl_fence fence, sl_ms ms)
{
    sl_ms left;
    int status = sl_table_extend(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                                 fence, ms, (struct sl_bytes){0}, &left);
    say(s, "%c %s\n", who,
        status == SLUICE_OK ? "extended" : sluice_status_word(status));
    settle(s);
}

/* With authority until then. */
static void authority(struct stage *s, sl_ms until_ms)
{
    sl_table_set_authority(s->table, until_ms);
    settle(s);
}

/* --- Drained patterns ------------------------------------------------------ */

UNIT_TEST(a_restored_pattern_rejects_waiters)
{
    STAGE s = stage_new();
    ASK('a');
    ASK('b', .wait_ms = 100);
    assert_int_equal(sl_table_restore_drain(s->table, bytes("k")), SLUICE_OK);
    settle(s);
    SAID("a held 1\nb waits\nb refused k\n");
}

/* The journal says that a thief was granted the lock by force, and a node does not know that. */
UNIT_TEST(a_lease_that_was_stolen_cannot_be_extended_whoever_reports_it_first)
{
    for (int first = 0; first < 2; first++) {
        STAGE s = stage_new();
        struct sl_grant_view v = grant(40, 5000);
        sl_ms left;
        sl_table_set_fences(s->table, 100, SL_FENCE_MAX);
        for (int i = 0; i < 2; i++) {
            v.stolen = v.asked = i == first;
            assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                             SLUICE_OK);
        }
        assert_int_equal(sl_table_extend(s->table, s->now, &s->session[0], bytes("k"),
                                         40, 9000, (struct sl_bytes){0}, &left),
                         SLUICE_EASKED);
    }
}

/* --- Authority ------------------------------------------------------------- */

UNIT_TEST(nothing_is_granted_at_the_end_of_the_authority_or_after)
{
    STAGE s = stage_new();
    authority(s, 2000);
    pass(s, 999);
    ASK('a', .lease_ms = 100000);
    pass(s, 1);
    ASK('b', .key = bytes("new"));
    ASK('b', .key = bytes("new"), .lease_ms = 100);
    ASK('b', .key = bytes("new"), .wait_ms = 5000);
    ASK('c', .key = bytes("new"), .wait_ms = 10, .lease_ms = 100);
    ASK('d', .wait_ms = 5000);
    ASK('e');
    SAID("a held 1\nb NOKEEPER\nb NOKEEPER\nb waits\nc waits\nd waits\ne NOKEEPER\n");
    assert_int_equal(sl_table_due(s->table), 2010); /* The first wait that ends. */
    pass(s, 10);
    SAID("c timed out new\n");
    authority(s, 2010); /* It is later, and over. */
    SAID("");
    authority(s, 2011);
    SAID("b granted new\n");
    release(s, 'a', s->last[0]);
    SAID("a releases 1\nd granted k\n");
    authority(s, 1500); /* It may also be taken away. */
    ASK('e', .key = bytes("another"));
    SAID("e NOKEEPER\n");
    authority(s, SL_NEVER);
    ASK('e', .key = bytes("another"));
    SAID("e held 1\n");
}

UNIT_TEST(a_late_clock_has_less_authority)
{
    STAGE s = stage_with(5);
    authority(s, 2000);
    pass(s, 995); /* It is before 2000. */
    ASK('a', .lease_ms = 100000);
    pass(s, 1); /* It may be 2000. */
    ASK('b', .key = bytes("new"));
    extend(s, 'a', s->last[0], 200000);
    SAID("a held 1\nb NOKEEPER\na NOKEEPER\n");
}

UNIT_TEST(no_lease_is_extended_without_authority)
{
    STAGE s = stage_new();
    authority(s, 2000);
    ASK('a', .lease_ms = 1500);
    pass(s, 999);
    extend(s, 'a', s->last[0], 1000);
    pass(s, 1);
    extend(s, 'a', s->last[0], 5000);
    extend(s, 'a', 4711, 5000); /* Whether it is lost is not for us to say. */
    pass(s, 998);
    SAID("a held 1\na extended\na NOKEEPER\na NOKEEPER\n");
    pass(s, 1);
    SAID("- expired k\n"); /* When it ends is what it was. */
}

UNIT_TEST(everything_else_continues_without_authority)
{
    STAGE s = stage_new();
    struct sl_ended past;
    struct sl_grant_view v;
    ASK('a', .per = 3, .lease_ms = 60000);
    ASK('b', .per = 3);
    ASK('c', .per = 3, .lease_ms = 500);
    ASK('d', .per = 3, .wait_ms = 60000);
    ASK('e', .per = 3, .wait_ms = 60000);
    SAID("a held 1\nb held 2\nc held 3\nd waits\ne waits\n");
    authority(s, 0);
    assert_true(sl_table_holds(s->table, s->now, bytes("k"), s->last[0]));
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &v));
    release(s, 'a', s->last[0]);
    assert_int_equal(
        sl_table_break(s->table, s->now, bytes("k"), s->last[1], true, &past), 2);
    pass(s, 500);
    sl_table_withdraw(s->table, &s->session[3]);
    settle(s);
    SAID("a releases 1\n- expired k\n");
    sl_table_drain(s->table, bytes("k"), true);
    settle(s);
    SAID("e refused k\n");
}

UNIT_TEST(a_table_without_authority_does_not_spin)
{
    STAGE s = stage_new();
    struct sl_effect e;
    authority(s, 500);
    ASK('a', .wait_ms = SL_NEVER);
    ASK('b', .wait_ms = 60000, .key = bytes("other"));
    SAID("a waits\nb waits\n");
    assert_false(sl_table_next(s->table, s->now, &e));
    assert_int_equal(sl_table_due(s->table), 61000);
    sl_table_recover(s->table, 3000);
    pass(s, 2000);
    assert_false(sl_table_next(s->table, s->now, &e));
    assert_int_equal(sl_table_due(s->table), 61000);
    authority(s, 500);
    assert_false(sl_table_next(s->table, s->now, &e));
    SAID("");
}

UNIT_TEST(silence_and_authority_have_both_to_allow_it)
{
    STAGE s = stage_new();
    authority(s, 2000);
    sl_table_recover(s->table, 3000);
    ASK('a');
    ASK('a', .wait_ms = 60000);
    pass(s, 1000);
    ASK('b');
    SAID("a RECOVERING\na waits\nb NOKEEPER\n");
    authority(s, 2500); /* Authority, and still silence. */
    pass(s, 1000);
    SAID(""); /* No silence, and no authority. */
    authority(s, 4000);
    SAID("a granted k\n");
    sl_table_recover(s->table, 5000);
    ASK('b', .wait_ms = 60000, .key = bytes("other"));
    authority(s, 9000);
    SAID("b waits\n");
    pass(s, 2000);
    SAID("b granted other\n");
}

UNIT_TEST(free_keys_are_not_reported_without_authority)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    await(s, 'b', true, 60000);
    authority(s, 1100);
    pass(s, 500);
    SAID("a held 1\nb watches\n- expired k\n"); /* It may be held elsewhere by now. */
    await(s, 'c', true, 0);
    await(s, 'c', true, 60000);
    await(s, 'd', false, 0);
    await(s, 'd', false, 10);
    SAID("c NOKEEPER\nc watches\nd FULL\nd watches\n");
    assert_int_equal(sl_table_due(s->table), 1510);
    pass(s, 10);
    SAID("d timed out k\n");
    authority(s, 3000);
    SAID("b sees k\nc sees k\n");
}

UNIT_TEST(a_watcher_of_a_new_key_is_heard_when_the_authority_is_back)
{
    STAGE s = stage_new();
    authority(s, 0);
    await(s, 'a', true, 60000);
    await(s, 'b', true, 60000);
    sl_table_withdraw(s->table, &s->session[1]);
    authority(s, 2000);
    SAID("a watches\nb watches\na sees k\n");
}

UNIT_TEST(a_thief_enters_nowhere_without_authority)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 50000);
    authority(s, 1050);
    ASK('b', .wait_ms = 5000, .priority = 1, .steal = true, .force_ms = 100);
    SAID("a held 1\nb waits\nb asked k\n");
    pass(s, 1000);
    SAID("");
    authority(s, 3000);
    SAID("b granted k\n- stolen k\n");
}

/* --- Reclaims -------------------------------------------------------------- */

/* Without a lease. */
static struct sl_grant_view bare(sl_fence fence)
{
    struct sl_grant_view v = grant(fence, SL_NEVER);
    v.leased = false;
    return v;
}

/* By a session; '-': by none. */
static int reclaim(struct stage *s, char who, struct sl_grant_view v)
{
    struct sl_session *by = who == '-' ? NULL : &s->session[who - 'a'];
    int status = sl_table_reclaim(s->table, s->now, by, &v, bytes("k"));
    sl_table_check(s->table);
    settle(s);
    return status;
}

static void show_holders(struct stage *s)
{
    struct sl_grant_view v;
    for (uint64_t cursor = 0;
         sl_table_each(s->table, s->now, bytes("k"), &cursor, &v) && !v.waits;)
        say(s, "%llu by %llu%s\n", (unsigned long long)v.fence,
            (unsigned long long)v.session_id, v.leased ? "" : " bare");
}

UNIT_TEST(a_session_reclaims_what_it_held)
{
    STAGE s = stage_new();
    struct sl_grant_view got;
    struct sl_grant_view v = grant(4000, 700);
    v.value = bytes("host:1");
    sl_table_recover(s->table, 3000);
    assert_int_equal(reclaim(s, 'b', v), SLUICE_OK);
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &got));
    assert_memory_equal(got.value.at, "host:1", 6);
    assert_int_equal(got.left_ms, 700);
    assert_int_equal(got.session_id, 2);
    extend(s, 'c', 4000, 5000); /* It is its user's, in the silence too. */
    extend(s, 'g', 4000, 5000);
    release(s, 'a', 0);
    release(s, 'b', 0); /* And was taken by this one. */
    SAID("c extended\ng LOST\na releases 0\nb releases 1\n");
    ASK('a', .wait_ms = 60000);
    pass(s, 2000);
    assert_true(s->last[0] > FLOOR);
    SAID("a waits\na granted k\n");
}

/* After a change of the keeper, the nodes send their waiters one after another. */
UNIT_TEST(a_waiter_that_has_waited_elsewhere_keeps_its_position)
{
    STAGE s = stage_new();
    ASK('a', .wait_ms = 0);
    pass(s, 1000);
    ASK('b', .wait_ms = 60000, .waited_ms = 500);
    ASK('c', .wait_ms = 60000, .waited_ms = 100);
    ASK('d', .wait_ms = 60000, .waited_ms = 900);
    ASK('e', .wait_ms = 60000, .waited_ms = 300);
    ASK('f', .wait_ms = 60000, .priority = 1);
    sl_table_check(s->table);
    s->said[0] = '\0';
    static const char order[] = "afdbec";
    for (int i = 0; i < 5; i++) {
        char wanted[60];
        release(s, order[i], 0);
        snprintf(wanted, sizeof wanted, "%c releases 1\n%c granted k\n", order[i],
                 order[i + 1]);
        SAID(wanted);
    }
}

/* Requests with different capacities are in different queues. */
UNIT_TEST(a_waiter_of_another_capacity_keeps_its_position)
{
    STAGE s = stage_new();
    ASK('a', .wait_ms = 0);
    pass(s, 1000);
    ASK('b', .wait_ms = 60000, .waited_ms = 500);
    ASK('c', .wait_ms = 60000, .waited_ms = 600, .per = 2, .units = 2);
    ASK('d', .wait_ms = 60000, .waited_ms = 700);
    sl_table_check(s->table);
    s->said[0] = '\0';
    release(s, 'a', 0);
    SAID("a releases 1\nd granted k\n");
    release(s, 'd', 0);
    SAID("d releases 1\nc granted k\n");
    release(s, 'c', 0);
    SAID("c releases 1\nb granted k\n");
}

/* It has waited for longer than a waiter that does not fit. */
UNIT_TEST(a_waiter_that_comes_first_and_fits_is_granted)
{
    STAGE s = stage_new();
    ASK('a', .wait_ms = 0, .per = 3, .units = 1);
    pass(s, 1000);
    ASK('b', .wait_ms = 60000, .per = 3, .units = 3);
    ASK('c', .wait_ms = 60000, .per = 3, .units = 2, .waited_ms = 100);
    SAID("a held 1\nb waits\nc waits\nc granted k\n");
}

/* A keeper knows the grants of a client of another node by their origin, which they keep. */
UNIT_TEST(a_grant_keeps_the_origin_of_its_client)
{
    STAGE s = stage_new();
    struct sl_grant_view got, v = grant(4000, 700);
    s->session[0].origin = 77;
    ASK('a', .lease_ms = 1000, .wait_ms = 0);
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &got));
    assert_int_equal(got.origin, 77);
    release(s, 'a', 0);
    v.origin = 78;
    assert_int_equal(reclaim(s, '-', v), SLUICE_OK);
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &got));
    assert_int_equal(got.origin, 78);
    v = grant(4001, 700);
    assert_int_equal(reclaim(s, '-', v), SLUICE_OK);
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &got));
    assert_int_equal(got.origin, 0);
    v = grant(4002, 700);
    v.origin = 79;
    v.name = bytes("worker");
    assert_int_equal(reclaim(s, '-', v), SLUICE_OK);
    v.fence = 4003;
    v.origin = 80;
    assert_int_equal(reclaim(s, '-', v), SLUICE_OK);
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &got));
    assert_int_equal(got.origin, 80);
    SAID("a held 1\na releases 1\n");
}

UNIT_TEST(a_grant_without_a_lease_ends_with_its_session)
{
    STAGE s = stage_new();
    assert_int_equal(reclaim(s, 'a', bare(4000)), SLUICE_OK);
    assert_int_equal(reclaim(s, '-', bare(4001)), SLUICE_EINVAL);
    assert_true(sl_session_holds(&s->session[0]));
    ASK('a', .wait_ms = 60000);
    ASK('b', .wait_ms = 60000);
    show_holders(s);
    SAID("a DEADLOCK\nb waits\n4000 by 1 bare\n");
    sl_table_session_end(s->table, &s->session[0]);
    settle(s);
    SAID("- ended k\nb granted k\na over \n");
    assert_int_equal(reclaim(s, 'a', bare(4000)), SLUICE_EINVAL); /* It has ended. */
}

/* The n-th order of five. */
static void order(int n, int out[5])
{
    int left[5] = {0, 1, 2, 3, 4};
    for (int i = 5; i > 0; i--) {
        int at = n % i;
        n /= i;
        out[i - 1] = left[at];
        left[at] = left[i - 1];
    }
}

UNIT_TEST(reclaims_may_come_in_any_order)
{
    for (int n = 0; n < 120; n++) {
        struct stage *s = stage_new();
        int at[5];
        order(n, at);
        for (int i = 0; i < 5; i++) {
            struct sl_grant_view v = grant(4000 + (sl_fence)at[i], 700 + at[i]);
            if (at[i] == 2) v = bare(4002);
            if (at[i] == 4) v.priority = 3; /* Not plain: never on the seat. */
            assert_int_equal(reclaim(s, (char)('a' + at[i]), v), SLUICE_OK);
        }
        show_holders(s);
        SAID("4000 by 1\n4001 by 2\n4002 by 3 bare\n4003 by 4\n4004 by 5\n");
        release(s, 'd', 4003);
        release(s, 'a', 0);
        assert_int_equal(reclaim(s, 'd', grant(4003, 900)), SLUICE_OK); /* Stale. */
        show_holders(s);
        SAID("d releases 1\na releases 1\n"
             "4001 by 2\n4002 by 3 bare\n4003 by 4\n4004 by 5\n");
        pass(s, 701);
        show_holders(s);
        SAID("- expired k\n4002 by 3 bare\n4003 by 4\n4004 by 5\n");
        stage_end(s);
    }
}

UNIT_TEST(all_reclaims_are_kept_and_nobody_else_enters_before_it_fits)
{
    STAGE s = stage_new();
    for (sl_fence f = 4000; f < 4005; f++) {
        struct sl_grant_view v = grant(f, 10000 * (sl_ms)(f - 3999));
        v.per = 2; /* Five units in a capacity of two. */
        assert_int_equal(reclaim(s, 'a', v), SLUICE_OK);
    }
    ASK('b', .per = 2, .wait_ms = SL_NEVER, .lease_ms = 1000000);
    ASK('c', .per = 5);
    ASK('d', .per = 7, .units = 2);
    SAID("b waits\nc FULL\nd held 7\n");
    release(s, 'd', 0);
    pass(s, 30000);
    SAID("d releases 1\n- expired k\n- expired k\n- expired k\n");
    release(s, 'a', 4003);
    SAID("a releases 1\nb granted k\n"); /* One and one. */
}

UNIT_TEST(shared_ones_and_others_may_be_reclaimed_together)
{
    STAGE s = stage_new();
    struct sl_grant_view v = grant(4001, 10000);
    v.shared = true, v.units = v.per = v.buckets = 0;
    assert_int_equal(reclaim(s, 'a', grant(4000, 20000)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'b', v), SLUICE_OK);
    ASK('c', .shared = true, .wait_ms = SL_NEVER);
    ASK('d', .per = 9);
    pass(s, 10000);
    SAID("c waits\nd FULL\n- expired k\n");
    release(s, 'a', 4000);
    SAID("a releases 1\nc granted k\n");
}

UNIT_TEST(a_reclaim_joins_holders_and_waiters)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 60000); /* On the seat, with a higher fence. */
    ASK('b', .wait_ms = 60000);
    await(s, 'c', true, 60000);
    assert_int_equal(reclaim(s, 'd', grant(4000, 5000)), SLUICE_OK);
    release(s, 'a', 0);
    SAID("a held 1\nb waits\nc watches\na releases 1\n");
    pass(s, 5000);
    SAID("- expired k\nb granted k\n");
}

UNIT_TEST(a_thief_asks_also_for_what_was_reclaimed)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 60000);
    ASK('b', .wait_ms = 60000, .priority = 1, .steal = true, .force_ms = SL_NEVER);
    SAID("a held 1\nb waits\nb asked k\n");
    assert_int_equal(reclaim(s, 'd', grant(4000, 5000)), SLUICE_OK);
    SAID("b asked k\n");
    release(s, 'a', 0);
    release(s, 'd', 0);
    SAID("a releases 1\nd releases 1\nb granted k\n");
}

UNIT_TEST(the_same_grant_is_reclaimed_once)
{
    STAGE s = stage_new();
    struct sl_grant_view v;
    assert_int_equal(reclaim(s, 'a', grant(4000, 700)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'a', grant(4000, 700)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'b', grant(4000, 700)), SLUICE_OK); /* Its user's. */
    assert_int_equal(reclaim(s, '-', grant(4000, 700)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'g', grant(4000, 700)), SLUICE_EINVAL);
    assert_int_equal(reclaim(s, 'a', bare(4000)), SLUICE_EINVAL);
    assert_int_equal(reclaim(s, 'a', bare(4001)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'a', bare(4001)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'b', bare(4001)), SLUICE_EINVAL);
    assert_int_equal(reclaim(s, 'a', grant(4001, 5)), SLUICE_EINVAL);
    assert_int_equal(reclaim(s, '-', grant(4002, 700)), SLUICE_OK);
    assert_int_equal(reclaim(s, '-', grant(4002, 700)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'a', grant(4002, 700)), SLUICE_EINVAL);
    show_holders(s);
    SAID("4000 by 1\n4001 by 1 bare\n4002 by 0\n");
    v = grant(4000, 10), v.broken = true;
    assert_int_equal(reclaim(s, 'a', v), SLUICE_OK);
    extend(s, 'a', 4000, 800);
    SAID("a LOST\n"); /* Broken is what any of them says. */
}

UNIT_TEST(the_later_of_two_expiry_times_counts)
{
    for (int entry = 0; entry < 2; entry++) {
        struct stage *s = stage_new();
        struct sl_grant_view v = grant(4000, 700);
        v.priority = entry; /* Then it does not sit on the seat. */
        assert_int_equal(reclaim(s, 'a', v), SLUICE_OK);
        v.left_ms = 500; /* From a node that does not know of the extension, */
        assert_int_equal(reclaim(s, 'b', v), SLUICE_OK);
        v.left_ms = 900; /* and from one that does. */
        assert_int_equal(reclaim(s, 'b', v), SLUICE_OK);
        pass(s, 899);
        SAID("");
        /* As late as can be: it has ended, and nobody was told. */
        s->now.ms += 1;
        v.left_ms = 100;
        struct sl_session *a = &s->session[0];
        assert_int_equal(sl_table_reclaim(s->table, s->now, a, &v, bytes("k")),
                         SLUICE_OK);
        settle(s);
        show_holders(s);
        SAID("4000 by 1\n");
        pass(s, 100);
        SAID("- expired k\n");
        stage_end(s);
    }
}

/* Two nodes report a lease: it ends between 600 and 700, or between 300 and 900. */
UNIT_TEST(a_lease_is_extended_while_one_report_is_sure_of_it)
{
    for (int i = 0; i < 4; i++) {
        struct stage *s = stage_new();
        struct sl_grant_view sure = grant(4000, 700), unsure = grant(4000, 900), v;
        sure.unsure_ms = 100;
        unsure.unsure_ms = 600;
        sure.priority = unsure.priority = i & 1; /* 1: not inline. */
        assert_int_equal(reclaim(s, 'a', i < 2 ? sure : unsure), SLUICE_OK);
        assert_int_equal(reclaim(s, 'b', i < 2 ? unsure : sure), SLUICE_OK);
        pass(s, 599);
        assert_true(sl_table_holds(s->table, s->now, bytes("k"), 4000));
        pass(s, 1);
        assert_false(sl_table_holds(s->table, s->now, bytes("k"), 4000));
        extend(s, 'a', 4000, 800);
        SAID("a LOST\n");
        pass(s, 299);
        assert_true(sl_table_inspect_grant(s->table, s->now, bytes("k"), 4000, &v));
        pass(s, 101);
        SAID("- expired k\n");
        stage_end(s);
    }
}

static int rebind(struct stage *s, char who, sl_fence fence)
{
    int status = sl_table_rebind(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                                 fence);
    sl_table_check(s->table);
    settle(s);
    return status;
}

UNIT_TEST(a_grant_without_a_lease_may_go_to_another_session)
{
    STAGE s = stage_new();
    struct sl_grant_view v;
    assert_int_equal(reclaim(s, 'a', bare(4000)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'a', bare(4001)), SLUICE_OK);
    assert_int_equal(reclaim(s, 'a', grant(4002, 700)), SLUICE_OK);
    assert_int_equal(rebind(s, 'b', 4000), SLUICE_OK);
    assert_int_equal(rebind(s, 'b', 4002), SLUICE_ENOENT); /* It is its user's. */
    assert_int_equal(rebind(s, 'b', 4003), SLUICE_ENOENT);
    show_holders(s);
    SAID("4000 by 2 bare\n4001 by 1 bare\n4002 by 1\n");
    assert_true(sl_table_inspect_grant(s->table, s->now, bytes("k"), 4000, &v));
    assert_true(v.session_id == 2 && !v.leased);
    sl_table_session_end(s->table, &s->session[0]);
    settle(s);
    show_holders(s);
    release(s, 'b', 0);
    SAID("- ended k\na over \n4000 by 2 bare\n4002 by 1\nb releases 1\n");
    assert_int_equal(rebind(s, 'a', 4002), SLUICE_EINVAL); /* It has ended. */
}

/* A correct node reports the grants of a session before it sends a request. */
UNIT_TEST(a_waiter_leaves_although_its_session_was_given_a_grant_meanwhile)
{
    STAGE s = stage_new();
    struct sl_lock_view v;
    assert_int_equal(reclaim(s, 'a', bare(4000)), SLUICE_OK);
    for (int i = 0; i < 2; i++) {
        ASK('b', .wait_ms = 60000);
        if (i == 0) assert_int_equal(reclaim(s, 'b', bare(4001)), SLUICE_OK);
        else assert_int_equal(rebind(s, 'b', 4000), SLUICE_OK);
        sl_table_withdraw(s->table, &s->session[1]);
        assert_true(sl_table_inspect(s->table, s->now, bytes("k"), &v));
        assert_int_equal(v.waiters, 0);
    }
}

UNIT_TEST(a_thief_does_not_ask_what_becomes_its_own)
{
    STAGE s = stage_new();
    assert_int_equal(reclaim(s, 'a', bare(4000)), SLUICE_OK);
    ASK('b', .wait_ms = 60000, .priority = 1, .steal = true, .force_ms = SL_NEVER);
    SAID("b waits\nb asked k\n");
    assert_int_equal(rebind(s, 'b', 4000), SLUICE_OK);
    SAID("- withdrawn k\n");
}

UNIT_TEST(an_impossible_grant_is_not_reclaimed)
{
    STAGE s = stage_new();
    struct sl_grant_view v = grant(4000, 700);
    v.waits = true;
    assert_int_equal(reclaim(s, 'a', v), SLUICE_EINVAL);
    assert_int_equal(reclaim(s, 'a', grant(FLOOR + 1, 700)), SLUICE_EINVAL);
    assert_int_equal(reclaim(s, 'a', grant(0, 700)), SLUICE_EINVAL);
    assert_int_equal(reclaim(s, 'a', grant(4000, -1)), SLUICE_EINVAL);
    v = grant(4000, 700), v.units = 0;
    assert_int_equal(reclaim(s, 'a', v), SLUICE_EINVAL);
    v = grant(4000, 700);
    int status = sl_table_reclaim(s->table, s->now, NULL, &v, bytes(""));
    assert_int_equal(status, SLUICE_EINVAL);
}

/* --- Reset ----------------------------------------------------------------- */

UNIT_TEST(after_a_reset_nothing_is_left_but_fences_and_limits)
{
    STAGE s = stage_new();
    struct sl_table_stats stats;
    struct sl_ended past;
    ASK('a', .lease_ms = 60000);
    ASK('a', .key = bytes("own"));
    ASK('b', .wait_ms = 60000);
    await(s, 'c', true, 60000);
    ASK('d', .shared = true, .key = bytes("shared"), .lease_ms = 10);
    ASK('d', .key = bytes("marked"));
    sl_table_break(s->table, s->now, bytes("marked"), s->last[3], true, &past);
    ASK('e', .wait_ms = 60000, .priority = 1, .steal = true, .force_ms = SL_NEVER);
    sl_table_drain(s->table, bytes("x*"), true);
    SAID("a held 1\na held 1\nb waits\nc watches\nd held 1\nd held 1\ne waits\ne asked "
         "k\n");
    sl_fence last = s->last[3];
    sl_table_session_end(s->table, &s->session[0]); /* It has not been told. */
    s->now.ms += 20;
    sl_table_inspect(s->table, s->now, bytes("shared"), &(struct sl_lock_view){0});
    sl_table_reset(s->table);
    sl_table_check(s->table);
    sl_table_stats(s->table, &stats);
    assert_true(stats.keys == 0 && stats.entries == 0 && stats.waiters == 0 &&
                stats.drains == 0);
    assert_int_equal(sl_table_due(s->table), SL_NEVER);
    settle(s);
    SAID("a over \n"); /* And that is all that anybody is told. */
    for (int i = 0; i < SESSIONS; i++) assert_false(sl_session_holds(&s->session[i]));
    sl_session_begin(&s->session[0], 100, 1);
    ASK('a', .wait_ms = 5); /* Who waited may ask again. */
    assert_true(s->last[0] > last);
    ASK('b', .key = bytes("marked"), .lease_ms = 50);
    ASK('c', .wait_ms = 5);
    ASK('d', .key = bytes("x"));
    SAID("a held 1\nb held 1\nc waits\nd held 1\n");
    pass(s, 5);
    SAID("c timed out k\n");
    sl_table_reset(s->table);
    sl_table_reset(s->table);
}

UNIT_TEST(a_reset_gives_no_authority_and_ends_no_silence)
{
    STAGE s = stage_new();
    authority(s, 2000);
    sl_table_recover(s->table, 1500);
    ASK('a', .wait_ms = 60000);
    sl_table_reset(s->table);
    ASK('a');
    pass(s, 1000);
    ASK('a', .wait_ms = 60000);
    SAID("a waits\na RECOVERING\na waits\n");
    sl_table_reset(s->table);
    authority(s, 9000);
    SAID("");
}

UNIT_TEST(a_table_may_be_freed_with_expired_leases_unreported)
{
    struct stage *s = stage_new();
    ASK('a', .per = 2, .lease_ms = 10);
    ASK('b', .per = 2, .lease_ms = 10);
    s->now.ms += 20;
    sl_table_inspect(s->table, s->now, bytes("k"), &(struct sl_lock_view){0});
    sl_table_free(s->table); /* The sanitizer looks whether that is all of it. */
    free(s);
}

/* --- At random ------------------------------------------------------------- */

enum { KEYS = 4, RECORDS = 32 };

struct world {
    struct sl_table *table;
    struct sl_session session[SESSIONS];
    bool waits[SESSIONS], over[SESSIONS];
    struct sl_now now;
    sl_ms authority_ms, quiet_ms;
    sl_fence fence[KEYS][RECORDS]; /* Some that were given. */
    uint64_t ids, random;
    sl_fence highest;
    struct sl_want want[SESSIONS]; /* What each waits for. */
    size_t granted, reclaimed, resets;
};

static uint32_t pick(struct world *w, uint32_t below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (uint32_t)(w->random % below);
}

static struct sl_bytes key_of(uint32_t k)
{
    static const char *const keys[KEYS] = {"a", "b", "c", "d"};
    return (struct sl_bytes){keys[k], 1};
}

/* A grant was made now: it fits, is allowed, and its fence is the highest. */
static void judge(struct world *w, struct sl_bytes key, const struct sl_want *want,
                  const struct sl_grant *g)
{
    struct sl_lock_view v;
    assert_true(w->now.ms < w->authority_ms && w->now.ms >= w->quiet_ms);
    assert_true(g->fence > w->highest);
    w->highest = g->fence;
    w->granted++;
    w->fence[key.at[0] - 'a'][pick(w, RECORDS)] = g->fence;
    assert_true(sl_table_inspect(w->table, w->now, key, &v));
    if (want->shared) assert_int_equal(v.held, 0);
    else assert_true(!v.shared && v.held <= (uint64_t)want->per * want->buckets);
}

static int ask_for(struct world *w, uint32_t who, uint32_t k)
{
    struct sl_grant g;
    struct sl_want want = {.key = key_of(k),
                           .shared = pick(w, 5) == 0,
                           .per = 1 + pick(w, 3),
                           .buckets = 1,
                           .units = 1,
                           .priority = (int32_t)pick(w, 2),
                           .wait_ms = pick(w, 2) ? pick(w, 50) : 0,
                           .lease_ms = pick(w, 2) ? 1 + pick(w, 50) : 0};
    if (pick(w, 2) == 0) {
        want.per = 1, want.priority = 0, want.shared = false;
        want.lease_ms = 1 + pick(w, 50);
    }
    int status = sl_table_acquire(w->table, w->now, &w->session[who], &want, &g);
    if (status == SL_WAITS) {
        w->waits[who] = true;
        w->want[who] = want;
    }
    if (status == SLUICE_OK) judge(w, key_of(k), &want, &g);
    return status;
}

static int reclaim_some(struct world *w, uint32_t who, uint32_t k)
{
    struct sl_table_stats stats;
    struct sl_session *s = pick(w, 4) == 0 ? NULL : &w->session[who];
    sl_table_stats(w->table, &stats);
    struct sl_grant_view v = {.leased = s == NULL || pick(w, 3) != 0,
                              .shared = pick(w, 4) == 0,
                              .broken = pick(w, 9) == 0,
                              .asked = pick(w, 9) == 0,
                              .fence = pick(w, 2)
                                           ? w->fence[k][pick(w, RECORDS)]
                                           : 1 + pick(w, (uint32_t)stats.fence_last),
                              .user = pick(w, 3),
                              .units = 1 + pick(w, 2),
                              .per = 1 + pick(w, 2),
                              .buckets = 1,
                              .priority = (int32_t)pick(w, 2),
                              .left_ms = pick(w, 60),
                              .value = {"a value", pick(w, 8)}};
    if (pick(w, 2) == 0) v.per = v.units = 1, v.priority = 0, v.shared = false;
    int status = sl_table_reclaim(w->table, w->now, s, &v, key_of(k));
    if (status == SLUICE_OK) w->reclaimed++;
    if (status == SLUICE_OK && (v.left_ms > 0 || !v.leased))
        assert_true(sl_table_holds(w->table, w->now, key_of(k), v.fence));
    return status;
}

static void set_times(struct world *w)
{
    w->authority_ms = w->now.ms - 10 + pick(w, 100);
    if (pick(w, 4) == 0) w->authority_ms = SL_NEVER;
    sl_table_set_authority(w->table, w->authority_ms);
    if (pick(w, 4) != 0) return;
    w->quiet_ms = w->now.ms + pick(w, 20);
    sl_table_recover(w->table, w->quiet_ms);
}

static void reset(struct world *w)
{
    sl_table_reset(w->table);
    memset(w->waits, 0, sizeof w->waits);
    w->resets++;
}

static int act(struct world *w)
{
    uint32_t who = pick(w, SESSIONS), k = pick(w, KEYS);
    struct sl_session *s = &w->session[who];
    sl_fence fence = w->fence[k][pick(w, RECORDS)];
    struct sl_ended past;
    sl_ms left;
    int status = SLUICE_OK;
    if (w->over[who]) return SLUICE_OK;
    switch (pick(w, 14)) {
        case 0:
        case 1:
        case 2:
        case 3: return w->waits[who] ? SLUICE_OK : ask_for(w, who, k);
        case 4:
        case 5:
            if (!w->waits[who])
                sl_table_release(w->table, w->now, s, key_of(k), pick(w, 2) ? 0 : fence,
                                 &past);
            return SLUICE_OK;
        case 6:
            status = sl_table_extend(w->table, w->now, s, key_of(k), fence,
                                     1 + pick(w, 60), (struct sl_bytes){0}, &left);
            if (w->now.ms >= w->authority_ms)
                assert_int_equal(status, SLUICE_ENOKEEPER);
            return status;
        case 7:
        case 8:
        case 9: return w->waits[who] ? SLUICE_OK : reclaim_some(w, who, k);
        case 10:
            if (w->waits[who]) return SLUICE_OK;
            status = sl_table_await(w->table, w->now, s, key_of(k), pick(w, 2),
                                    pick(w, 30), 0);
            w->waits[who] = status == SL_WAITS;
            return status;
        case 11:
            if (pick(w, 3) == 0) set_times(w);
            return SLUICE_OK;
        case 12:
            if (pick(w, 40) == 0) reset(w);
            else if (!w->waits[who])
                sl_table_rebind(w->table, w->now, s, key_of(k), fence);
            return SLUICE_OK;
        default:
            if (pick(w, 20) != 0) return SLUICE_OK;
            sl_table_session_end(w->table, s);
            w->over[who] = true;
            return SLUICE_OK;
    }
}

static void hear(struct world *w, unsigned most)
{
    struct sl_effect e;
    while (most-- > 0 && sl_table_next(w->table, w->now, &e)) {
        if (e.session == NULL) continue;
        ptrdiff_t who = e.session - w->session;
        if (e.type == SL_EFFECT_SESSION_OVER) {
            sl_session_begin(e.session, ++w->ids, (uint32_t)who % 3);
            w->over[who] = false;
        } else assert_true(w->waits[who] && !w->over[who]);
        w->waits[who] = false;
        if (e.type == SL_EFFECT_GRANTED) judge(w, e.key, &w->want[who], &e.grant);
    }
}

static void begin(struct world *w, uint64_t seed)
{
    const struct sl_table_limits limits = {.keys_max = 1000,
                                           .waiters_max = 100,
                                           .key_bytes_max = 100,
                                           .value_bytes_max = 100};
    memset(w, 0, sizeof *w);
    w->random = seed;
    w->now = (struct sl_now){.ms = 1000};
    w->authority_ms = SL_NEVER;
    w->table = sl_table_new(&limits, (struct sl_hash_key){seed, 0});
    sl_table_set_fences(w->table, 200, SL_FENCE_MAX);
    w->highest = 200;
    for (uint32_t i = 0; i < SESSIONS; i++)
        sl_session_begin(&w->session[i], ++w->ids, i % 3);
}

static void finish(struct world *w)
{
    struct sl_effect e;
    struct sl_table_stats stats;
    for (uint32_t i = 0; i < SESSIONS; i++)
        sl_table_session_end(w->table, &w->session[i]);
    w->now.ms += 1000000;
    while (sl_table_next(w->table, w->now, &e)) {}
    sl_table_check(w->table);
    sl_table_stats(w->table, &stats);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(stats.keys, 0);
    sl_table_free(w->table);
}

/* Without memory, if so; then what follows needs none. */
static size_t play(struct world *w, int steps, bool starved)
{
    size_t refused = 0;
    for (int i = 0; i < steps; i++) {
        struct sl_table_stats before, after;
        sl_table_stats(w->table, &before);
        if (starved) memory_ends_after(pick(w, 4));
        int status = act(w);
        if (starved) memory_ends_after(0);
        if (status == SLUICE_ENOMEM) {
            refused++;
            sl_table_stats(w->table, &after);
            assert_int_equal(before.keys, after.keys);
            assert_true(before.fence_last == after.fence_last);
        }
        if (pick(w, 3) == 0) w->now.ms += pick(w, 5);
        hear(w, pick(w, 3) == 0 ? 1 : 1000);
        memory_is_back();
        sl_table_check(w->table);
    }
    return refused;
}

UNIT_TEST(random_terms_keep_the_invariants)
{
    static struct world w;
    size_t granted = 0, reclaimed = 0, resets = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        begin(&w, seed * 7919);
        refused += play(&w, 2000, seed % 2 == 0);
        granted += w.granted, reclaimed += w.reclaimed, resets += w.resets;
        finish(&w);
    }
    print_message("# seeds 1 to 40: %zu grants, %zu reclaims, %zu resets, %zu without "
                  "memory\n",
                  granted, reclaimed, resets, refused);
    /* Else it was about nothing. */
    assert_true(granted > 1500 && reclaimed > 3000 && resets > 50 && refused > 500);
}

int main(void)
{
    return run_unit_tests("table_failover");
}
