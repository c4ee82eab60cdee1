/* test_restart.c - what a table needs to be safe over a restart: fences above a floor and
 * below a limit, silence, and grants that are put back. By transcripts, as test_table.c. */
#include <stdio.h>

#include "failing_alloc.h"
#include "table_stage.h"

static struct stage *stage_new(void)
{
    struct stage *s = stage_open(100, 1);
    s->now = (struct sl_now){.ms = 1000, .wall_us = 1000000};
    return s;
}

/* --- Fences ---------------------------------------------------------------- */

UNIT_TEST(fences_are_above_the_floor)
{
    STAGE s = stage_new();
    sl_table_set_fences(s->table, 5000000, 6000000);
    ASK('a', .lease_ms = 100);
    assert_true(s->last[0] == 5000001);
    sl_table_set_fences(s->table, 10, 6000000); /* It does not fall. */
    ASK('b', .key = bytes("other"));
    assert_true(s->last[1] == 5000002);
    SAID("a held 1\nb held 1\n");
}

UNIT_TEST(no_fence_is_above_the_limit)
{
    STAGE s = stage_new();
    sl_table_set_fences(s->table, 5000000, 5000002);
    ASK('a', .per = 9, .buckets = 1);
    ASK('b', .per = 9, .buckets = 1, .lease_ms = 100);
    assert_int_equal(sl_table_fences_left(s->table), 0);
    ASK('c', .per = 9, .buckets = 1);
    ASK('c', .per = 9, .buckets = 1, .wait_ms = 100);
    ASK('c', .key = bytes("new"));
    ASK('c', .key = bytes("new"), .lease_ms = 5);
    ASK('c', .per = 1, .buckets = 1); /* It is taken, and that needs no fence. */
    SAID(
        "a held 1\nb held 2\nc NOFENCES\nc NOFENCES\nc NOFENCES\nc NOFENCES\nc FULL\n");
    sl_table_set_fences(s->table, 0, 5000003);
    ASK('c', .key = bytes("new"));
    assert_true(s->last[2] == 5000003);
    SAID("c held 1\n");
}

UNIT_TEST(a_clock_beyond_the_limit_needs_it_raised)
{
    STAGE s = stage_new();
    sl_table_set_fences(s->table, 0, 2000000);
    assert_int_equal(sl_table_fences_left(s->table), 2000000);
    pass(s, 1000);
    ASK('a', .lease_ms = 100);
    pass(s, 1);
    ASK('b', .key = bytes("other"), .lease_ms = 100);
    assert_int_equal(sl_table_fences_left(s->table), 0);
    sl_table_set_fences(s->table, 0, 2001000);
    ASK('b', .key = bytes("other"), .lease_ms = 100);
    assert_true(s->last[1] == 2001000);
    SAID("a held 1\nb NOFENCES\nb held 1\n");
}

UNIT_TEST(a_waiter_is_not_granted_before_the_limit_is_raised)
{
    STAGE s = stage_new();
    struct sl_ended past;
    sl_table_set_fences(s->table, 5000000, 5000001);
    ASK('a');
    ASK('b', .wait_ms = 5000);
    ASK('c', .wait_ms = 10);
    assert_true(sl_table_release(s->table, s->now, s->session, bytes("k"), 0, &past));
    settle(s);
    assert_int_equal(sl_table_fences_left(s->table), 0);
    SAID("a held 1\nb waits\nc waits\n");
    pass(s, 20); /* Time goes on for all of them. */
    SAID("c timed out k\n");
    sl_table_set_fences(s->table, 0, 6000000);
    assert_true(sl_table_fences_left(s->table) > 0);
    settle(s);
    assert_true(s->last[1] > 5000001);
    SAID("b granted k\n");
}

/* --- Silence --------------------------------------------------------------- */

UNIT_TEST(during_recovery_a_request_is_rejected_or_waits)
{
    STAGE s = stage_new();
    sl_table_recover(s->table, 3000);
    assert_int_equal(sl_table_due(s->table), 3000);
    ASK('a');
    ASK('a', .lease_ms = 100);
    ASK('a', .wait_ms = 500);
    ASK('b', .wait_ms = 5000, .lease_ms = 100);
    ASK('c', .wait_ms = 5000, .priority = 1);
    ASK('d', .wait_ms = 5000, .key = bytes("other"), .shared = true);
    SAID("a RECOVERING\na RECOVERING\na waits\nb waits\nc waits\nd waits\n");
    pass(s, 1000);
    SAID("a timed out k\n");
    pass(s, 999);
    ASK('e', .key = bytes("free"));
    SAID("e RECOVERING\n");
    pass(s, 1);
    SAID("c granted k\nd granted other\n");
    ASK('e', .key = bytes("free"));
    SAID("e held 1\n");
    sl_table_session_end(s->table, &s->session[2]);
    settle(s);
    SAID("- ended k\nb granted k\nc over \n");
}

UNIT_TEST(the_recovery_has_ended_for_a_request_at_its_end)
{
    STAGE s = stage_new();
    sl_table_recover(s->table, 3000);
    ASK('b', .wait_ms = 5000);
    s->now.ms = 3000;
    ASK('a', .key = bytes("other"));
    SAID("b waits\na held 1\nb granted k\n");
    assert_int_equal(sl_table_due(s->table), SL_NEVER);
}

UNIT_TEST(a_waiter_of_the_silence_may_leave)
{
    STAGE s = stage_new();
    sl_table_recover(s->table, 3000);
    ASK('a', .wait_ms = 5000);
    ASK('b', .wait_ms = 5000);
    sl_table_withdraw(s->table, &s->session[0]);
    settle(s);
    sl_table_session_end(s->table, &s->session[1]);
    settle(s);
    pass(s, 2000);
    SAID("a waits\nb waits\nb over \n");
}

UNIT_TEST(what_is_free_is_not_known_in_the_silence)
{
    STAGE s = stage_new();
    sl_table_recover(s->table, 3000);
    int status = sl_table_await(s->table, s->now, s->session, bytes("k"), true, 100, 0);
    assert_int_equal(status, SLUICE_ERECOVERING);
    status = sl_table_await(s->table, s->now, s->session, bytes("k"), false, 5000, 0);
    assert_int_equal(status, SL_WAITS);
    ASK('b', .wait_ms = 5000);
    pass(s, 2000);
    SAID("b waits\nb granted k\na sees k\n");
}

UNIT_TEST(a_thief_enters_nowhere_in_the_silence)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 50000);
    sl_table_recover(s->table, 3000);
    ASK('b', .wait_ms = 5000, .priority = 1, .steal = true, .force_ms = 100);
    SAID("a held 1\nb waits\nb asked k\n");
    pass(s, 1000);
    SAID("");
    pass(s, 1000);
    SAID("b granted k\n- stolen k\n");
}

/* --- Restore --------------------------------------------------------------- */

static int restore(struct stage *s, struct sl_grant_view v)
{
    int status = sl_table_restore(s->table, s->now, &v, bytes("k"));
    sl_table_check(s->table);
    return status;
}

static struct stage *stage_with_floor(void)
{
    struct stage *s = stage_new();
    sl_table_set_fences(s->table, 5000, SL_FENCE_MAX);
    return s;
}

UNIT_TEST(a_restored_grant_is_what_it_was)
{
    STAGE s = stage_with_floor();
    struct sl_grant_view v = grant(4000, 700), got;
    struct sl_ended past;
    sl_ms left;
    v.value = bytes("host:1");
    v.note = bytes("a note");
    assert_int_equal(restore(s, v), SLUICE_OK);
    assert_true(sl_table_newest(s->table, s->now, bytes("k"), &got));
    assert_true(got.leased && !got.broken && !got.asked && got.fence == 4000);
    assert_int_equal(got.session_id, 0);
    assert_int_equal(got.left_ms, 700);
    assert_int_equal(got.since_ms, 996); /* By its fence. */
    assert_memory_equal(got.value.at, "host:1", 6);
    assert_memory_equal(got.note.at, "a note", 6);
    ASK('a');
    SAID("a FULL\n");
    int status = sl_table_extend(s->table, s->now, s->session, bytes("k"), 4000, 2000,
                                 bytes("elsewhere"), &left);
    assert_int_equal(status, SLUICE_OK);
    assert_int_equal(left, 2000);
    sl_table_check(s->table);
    /* It is leased to a user, and nobody's to release without its fence. */
    for (int i = 0; i < SESSIONS; i++)
        assert_int_equal(
            sl_table_release(s->table, s->now, &s->session[i], bytes("k"), 0, &past),
            0);
    assert_int_equal(
        sl_table_release(s->table, s->now, &s->session[7], bytes("k"), 4000, &past), 0);
    assert_int_equal(
        sl_table_release(s->table, s->now, &s->session[3], bytes("k"), 4000, &past), 1);
}

UNIT_TEST(a_restored_lease_expires_at_its_original_time)
{
    STAGE s = stage_with_floor();
    assert_int_equal(restore(s, grant(4000, 700)), SLUICE_OK);
    ASK('a', .wait_ms = 10000);
    pass(s, 700);
    SAID("a waits\n"); /* Not early, when the clock is late. */
    pass(s, 1);
    assert_true(s->last[0] > 5000);
    SAID("- expired k\na granted k\n");
}

UNIT_TEST(many_kinds_are_restored_on_one_key)
{
    STAGE s = stage_with_floor();
    struct sl_grant_view v = grant(4000, 700), got;
    assert_int_equal(restore(s, v), SLUICE_OK); /* Inline; the others are entries. */
    v = grant(4001, 100);
    v.units = 3, v.per = 4, v.buckets = 2, v.priority = -7, v.broken = true;
    assert_int_equal(restore(s, v), SLUICE_OK);
    uint64_t cursor = 0;
    assert_true(sl_table_each(s->table, s->now, bytes("k"), &cursor, &got));
    assert_true(got.fence == 4000);
    assert_true(sl_table_each(s->table, s->now, bytes("k"), &cursor, &got));
    assert_true(got.fence == 4001 && got.units == 3 && got.per == 4 &&
                got.buckets == 2 && got.priority == -7 && got.broken);
    ASK('a', .per = 5, .buckets = 1, .units = 2);
    ASK('b', .per = 5, .buckets = 1, .units = 1, .lease_ms = 5);
    SAID("a FULL\nb held 5\n");
    pass(s, 200);
    SAID("- expired k\n- expired k\n");
}

UNIT_TEST(shared_ones_are_restored)
{
    STAGE s = stage_with_floor();
    struct sl_grant_view v = grant(4000, 700);
    v.shared = true, v.units = v.per = v.buckets = 0;
    assert_int_equal(restore(s, v), SLUICE_OK);
    v.fence++;
    assert_int_equal(restore(s, v), SLUICE_OK);
    ASK('a');
    ASK('b', .shared = true, .lease_ms = 5);
    SAID("a FULL\nb held 3\n");
}

UNIT_TEST(one_that_was_robbed_is_not_extended_after_it)
{
    STAGE s = stage_with_floor();
    struct sl_grant_view v = grant(4000, 700);
    sl_ms left;
    v.asked = true;
    v.shared = true, v.units = v.per = v.buckets = 0;
    assert_int_equal(restore(s, v), SLUICE_OK);
    assert_int_equal(restore(s, grant(4001, 700)), SLUICE_OK); /* The thief. */
    int status = sl_table_extend(s->table, s->now, s->session, bytes("k"), 4000, 2000,
                                 (struct sl_bytes){0}, &left);
    assert_int_equal(status, SLUICE_EASKED);
}

UNIT_TEST(what_cannot_have_been_is_not_restored)
{
    STAGE s = stage_with_floor();
    struct sl_grant_view v = grant(4000, 700);
    assert_int_equal(restore(s, grant(5001, 700)),
                     SLUICE_EINVAL); /* Above the floor. */
    assert_int_equal(restore(s, grant(0, 700)), SLUICE_EINVAL);
    assert_int_equal(restore(s, grant(4000, -1)), SLUICE_EINVAL);
    v.leased = false;
    assert_int_equal(restore(s, v), SLUICE_EINVAL);
    v = grant(4000, 700), v.units = 0;
    assert_int_equal(restore(s, v), SLUICE_EINVAL);
    v = grant(4000, 700);
    assert_int_equal(sl_table_restore(s->table, s->now, &v, bytes("")), SLUICE_EINVAL);
    assert_int_equal(restore(s, v), SLUICE_OK);
}

/* --- All of a table -------------------------------------------------------- */

static uint64_t random_state;

static uint32_t pick(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state % below);
}

static struct sl_bytes some_key(void)
{
    static const char *const keys[] = {"a", "b", "c", "d", "e", "f"};
    return bytes(keys[pick(6)]);
}

static void live(struct stage *s)
{
    struct sl_effect e;
    struct sl_grant g;
    struct sl_ended past;
    for (int i = 0; i < 400; i++) {
        struct sl_session *who = &s->session[pick(SESSIONS)];
        struct sl_want w = {.key = some_key(),
                            .shared = pick(4) == 0,
                            .per = 1 + pick(3),
                            .buckets = 1,
                            .units = 1,
                            .priority = (int32_t)pick(3),
                            .lease_ms = pick(4) != 0 ? 1 + pick(900) : 0,
                            .value = {"a value", pick(8)},
                            .note = {"a note", pick(7)},
                            .steal = pick(3) == 0,
                            .force_ms = pick(2) ? 0 : SL_NEVER};
        if (pick(4) == 0) w.per = 1, w.shared = w.steal = false, w.priority = 0;
        int status = sl_table_acquire(s->table, s->now, who, &w, &g);
        if (status == SLUICE_OK && w.lease_ms > 0 && pick(10) == 0)
            sl_table_break(s->table, s->now, w.key, g.fence, false, &past);
        if (status == SL_WAITS) sl_table_withdraw(s->table, who);
        if (pick(3) == 0) sl_table_release(s->table, s->now, who, some_key(), 0, &past);
        s->now.ms += pick(8);
        s->now.wall_us += 1 + pick(8000);
        while (sl_table_next(s->table, s->now, &e)) {}
    }
}

/* Every leased grant of one table into another. */
static size_t copy(const struct stage *from, struct stage *to)
{
    struct sl_lock_view locks[64];
    struct sl_grant_view v;
    uint64_t cursor = 0, each;
    size_t copied = 0;
    do {
        size_t n = sl_table_scan(from->table, from->now, &cursor, locks, 64);
        for (size_t i = 0; i < n; i++)
            for (each = 0;
                 sl_table_each(from->table, from->now, locks[i].key, &each, &v) &&
                 !v.waits;) {
                if (!v.leased) continue;
                int status = sl_table_restore(to->table, to->now, &v, locks[i].key);
                assert_int_equal(status, SLUICE_OK);
                copied++;
            }
    } while (cursor != 0);
    return copied;
}

/* As one line, without the session and the time. */
static void view_text(const struct sl_grant_view *v, char *out, size_t n)
{
    snprintf(out, n, "%llu %d%d%d %u %u %u %u %d %lld '%.*s' '%.*s'",
             (unsigned long long)v->fence, v->shared, v->broken, v->asked, v->user,
             v->units, v->per, v->buckets, v->priority, (long long)v->left_ms,
             (int)v->value.n, v->value.at, (int)v->note.n, v->note.at);
}

static void compare(const struct stage *a, const struct stage *b)
{
    static const char *const keys[] = {"a", "b", "c", "d", "e", "f"};
    char at[400], bt[400];
    struct sl_grant_view va, vb;
    for (int k = 0; k < 6; k++) {
        uint64_t ca = 0, cb = 0;
        while (sl_table_each(a->table, a->now, bytes(keys[k]), &ca, &va)) {
            if (!va.leased || va.waits) continue;
            assert_true(sl_table_each(b->table, b->now, bytes(keys[k]), &cb, &vb));
            view_text(&va, at, sizeof at);
            view_text(&vb, bt, sizeof bt);
            assert_string_equal(at, bt);
        }
        assert_false(sl_table_each(b->table, b->now, bytes(keys[k]), &cb, &vb));
    }
}

UNIT_TEST(a_restored_table_equals_the_original)
{
    size_t copied = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        random_state = seed * 7919;
        struct stage *a = stage_new(), *b = stage_new();
        struct sl_table_stats stats;
        live(a);
        sl_table_check(a->table);
        sl_table_stats(a->table, &stats);
        b->now = a->now;
        sl_table_set_fences(b->table, stats.fence_last, SL_FENCE_MAX);
        copied += copy(a, b);
        sl_table_check(b->table);
        compare(a, b);
        for (int i = 0; i < 20; i++) { /* And ends as it would have. */
            struct sl_effect e;
            a->now.ms = b->now.ms += 37;
            while (sl_table_next(a->table, a->now, &e)) {}
            while (sl_table_next(b->table, b->now, &e)) {}
            sl_table_check(b->table);
            compare(a, b);
        }
        live(b);
        sl_table_check(b->table);
        stage_end(a);
        stage_end(b);
    }
    assert_true(copied > 300); /* Else it was about nothing. */
}

/* --- Without memory -------------------------------------------------------- */

static void restore_without_memory(struct stage *s, const struct sl_grant_view *v,
                                   struct sl_bytes key)
{
    struct sl_table_stats before, after;
    int status = SLUICE_ENOMEM;
    for (long n = 0; status == SLUICE_ENOMEM; n++) {
        sl_table_stats(s->table, &before);
        memory_ends_after(n);
        status = sl_table_restore(s->table, s->now, v, key);
        memory_is_back();
        sl_table_check(s->table);
        if (status != SLUICE_ENOMEM) break;
        sl_table_stats(s->table, &after);
        assert_int_equal(before.keys, after.keys);
        assert_int_equal(before.entries, after.entries);
        assert_true(n < 100);
    }
    assert_int_equal(status, SLUICE_OK);
}

UNIT_TEST(every_allocation_of_a_restore_may_fail)
{
    STAGE s = stage_with_floor();
    struct sl_grant_view v = grant(1, 700);
    v.value = bytes("a value");
    for (int i = 0; i < 40; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i / 4);
        v.fence++;
        v.per = 4;
        v.priority = i % 3;
        if (i % 8 == 0) v.per = 1, v.priority = 0;
        restore_without_memory(s, &v, bytes(key));
    }
}

UNIT_TEST(queueing_during_recovery_may_lack_memory)
{
    STAGE s = stage_new();
    struct sl_grant g;
    struct sl_table_stats stats;
    struct sl_want w = {.key = bytes("k"),
                        .per = 1,
                        .buckets = 1,
                        .units = 1,
                        .wait_ms = 5000,
                        .lease_ms = 100};
    sl_table_recover(s->table, 3000);
    int status = SLUICE_ENOMEM;
    for (long n = 0; status == SLUICE_ENOMEM; n++) {
        memory_ends_after(n);
        status = sl_table_acquire(s->table, s->now, s->session, &w, &g);
        memory_is_back();
        sl_table_check(s->table);
        sl_table_stats(s->table, &stats);
        assert_int_equal(stats.keys, status == SLUICE_ENOMEM ? 0 : 1);
    }
    assert_int_equal(status, SL_WAITS);
    memory_ends_after(0); /* What follows needs no memory at all. */
    pass(s, 2000);
    memory_is_back();
    SAID("a granted k\n");
}

int main(void)
{
    return run_unit_tests("restart");
}
