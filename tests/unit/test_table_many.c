/* test_table_many.c - one key with very many on it: what one request costs must not grow
 * with them, or one peer could make all others wait. A request that looked at everybody
 * would make these tests last for minutes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "locks/table.h"

enum { MANY = 100000, SESSIONS = 4 };

static const struct sl_table_limits limits = {.keys_max = 2 * MANY,
                                              .waiters_max = 2 * MANY,
                                              .key_bytes_max = 100,
                                              .value_bytes_max = 100,
                                              .drains_max = 2};

struct crowd {
    struct sl_table *table;
    struct sl_session session[SESSIONS];
    struct sl_now now;
    size_t told[SL_EFFECT_SESSION_OVER + 1];
};

static const struct sl_bytes key = {"k", 1};

static void begin(struct crowd *c)
{
    memset(c, 0, sizeof *c);
    c->now.wall_us = 1000;
    c->table = sl_table_new(&limits, (struct sl_hash_key){42, 0});
    for (uint32_t i = 0; i < SESSIONS; i++) sl_session_begin(&c->session[i], i + 1, 1);
}

static int ask(struct crowd *c, int who, struct sl_want w)
{
    struct sl_grant g;
    w.key = key;
    return sl_table_acquire(c->table, c->now, &c->session[who], &w, &g);
}

#define ASK(who, ...) ask(&c, who, (struct sl_want){__VA_ARGS__})

static void settle(struct crowd *c)
{
    struct sl_effect e;
    while (sl_table_next(c->table, c->now, &e)) c->told[e.type]++;
}

static void finish(struct crowd *c)
{
    sl_table_check(c->table);
    sl_table_free(c->table);
}

static void many_who_share(struct crowd *c, int who, sl_ms lease_ms)
{
    for (int i = 0; i < MANY; i++)
        assert_int_equal(
            ask(c, who, (struct sl_want){.shared = true, .lease_ms = lease_ms}),
            SLUICE_OK);
}

UNIT_TEST(a_client_without_a_grant_may_release_often)
{
    static struct crowd c;
    struct sl_ended past;
    begin(&c);
    many_who_share(&c, 0, 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(sl_table_release(c.table, c.now, &c.session[1], key, 0, &past),
                         0);
    assert_int_equal(ASK(1, .shared = true), SLUICE_OK);
    many_who_share(&c, 0, 0);
    assert_int_equal(sl_table_release(c.table, c.now, &c.session[1], key, 0, &past), 1);
    finish(&c);
}

UNIT_TEST(a_holder_of_nearly_all_units_may_wait_often)
{
    static struct crowd c;
    begin(&c);
    many_who_share(&c, 0, 0);
    assert_int_equal(ASK(1, .shared = true), SLUICE_OK); /* The last is another's. */
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ASK(0, .per = 1, .buckets = 1, .units = 1, .wait_ms = 10),
                         SL_WAITS);
        sl_table_withdraw(c.table, &c.session[0]);
    }
    finish(&c);
}

UNIT_TEST(leases_that_expire_together_are_reported_one_by_one)
{
    static struct crowd c;
    begin(&c);
    many_who_share(&c, 0, 0); /* Before them on the roll. */
    many_who_share(&c, 0, 10);
    assert_int_equal(ASK(1, .per = 1, .buckets = 1, .units = 1, .wait_ms = 100),
                     SL_WAITS);
    c.now.ms = 10;
    settle(&c);
    assert_int_equal(c.told[SL_EFFECT_EXPIRED], MANY);
    finish(&c);
}

UNIT_TEST(while_leases_end_every_request_is_cheap)
{
    static struct crowd c;
    struct sl_effect e;
    begin(&c);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(ASK(0, .shared = true, .lease_ms = 1 + i), SLUICE_OK);
    for (int i = 0; i < MANY; i++) { /* One more is over each time, and none is told. */
        c.now.ms++;
        assert_int_equal(ASK(1, .per = 1, .buckets = 1, .units = 1),
                         i < MANY - 1 ? SLUICE_EFULL : SLUICE_OK);
    }
    while (sl_table_next(c.table, c.now, &e)) c.told[e.type]++;
    assert_int_equal(c.told[SL_EFFECT_EXPIRED], MANY);
    finish(&c);
}

UNIT_TEST(watchers_are_not_asked_what_they_do_not_wait_for)
{
    static struct crowd c;
    struct sl_ended past;
    begin(&c);
    assert_int_equal(ASK(0, .shared = true), SLUICE_OK);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(
            sl_table_await(c.table, c.now, &c.session[1], key, true, SL_NEVER, 0),
            SL_WAITS);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ASK(2, .shared = true), SLUICE_OK);
        settle(&c);
        assert_int_equal(sl_table_release(c.table, c.now, &c.session[2], key, 0, &past),
                         1);
        settle(&c);
    }
    assert_int_equal(c.told[SL_EFFECT_SEEN], 0);
    finish(&c);
}

UNIT_TEST(looking_at_a_key_does_not_count_its_holders)
{
    static struct crowd c;
    struct sl_lock_view lock;
    struct sl_grant_view newest;
    begin(&c);
    many_who_share(&c, 0, 0);
    many_who_share(&c, 1, 50);
    for (int i = 0; i < MANY; i++) {
        assert_true(sl_table_inspect(c.table, c.now, key, &lock));
        assert_int_equal(lock.holders, 2 * MANY);
        assert_true(sl_table_newest(c.table, c.now, key, &newest));
        assert_true(newest.leased);
    }
    finish(&c);
}

UNIT_TEST(a_drain_visits_only_keys_with_waiters)
{
    static struct crowd c;
    struct sl_grant g;
    begin(&c);
    for (uint32_t i = 0; i < MANY; i++) {
        struct sl_want w = {.key = {(char *)&i, sizeof i}, .shared = true};
        assert_int_equal(sl_table_acquire(c.table, c.now, c.session, &w, &g),
                         SLUICE_OK);
    }
    for (int i = 0; i < MANY; i++) {
        const struct sl_bytes glob = {"x", 1};
        assert_int_equal(sl_table_drain(c.table, glob, i % 2 == 0), SLUICE_OK);
        settle(&c);
    }
    finish(&c);
}

/* Inline and not, waiting, with another value. */
UNIT_TEST(all_memory_is_counted_and_freed)
{
    enum { KEYS = 1000 };
    struct crowd c;
    char text[100], name[16];
    sl_fence fences[KEYS];
    const struct sl_bytes of = {name, 5}, value = {text, 100}, note = {text, 50};
    begin(&c);
    memset(text, 'x', sizeof text);
    const size_t empty = sl_table_bytes(c.table);
    for (int i = 0; i < KEYS; i++) {
        struct sl_grant g;
        const struct sl_want w = {.key = of,
                                  .per = 1,
                                  .buckets = 1,
                                  .units = 1,
                                  .lease_ms = i % 3 == 0 ? 0 : 60000,
                                  .value = value,
                                  .note = note};
        snprintf(name, sizeof name, "%05d", i);
        assert_int_equal(sl_table_acquire(c.table, c.now, &c.session[0], &w, &g),
                         SLUICE_OK);
        fences[i] = g.fence;
    }
    const size_t full = sl_table_bytes(c.table);
    assert_true(full >= empty + KEYS * (5 + 100 + 50 + 48));
    assert_true(full <= empty + KEYS * 2000);
    for (int i = 0; i < KEYS; i++) {
        struct sl_grant g;
        struct sl_ended past;
        sl_ms lease_ms;
        const struct sl_want w = {.key = of,
                                  .per = 1,
                                  .buckets = 1,
                                  .units = 1,
                                  .wait_ms = 1000,
                                  .priority = i % 5,
                                  .value = value};
        snprintf(name, sizeof name, "%05d", i);
        if (i % 3 != 0)
            assert_int_equal(
                sl_table_extend(c.table, c.now, &c.session[0], of, fences[i], 60000,
                                (struct sl_bytes){text, 50 + (size_t)i % 50},
                                &lease_ms),
                SLUICE_OK);
        assert_int_equal(sl_table_acquire(c.table, c.now, &c.session[1], &w, &g),
                         SL_WAITS);
        sl_table_withdraw(c.table, &c.session[1]);
        assert_int_equal(
            sl_table_release(c.table, c.now, &c.session[0], of, fences[i], &past), 1);
        settle(&c);
    }
    assert_true(sl_table_bytes(c.table) < empty + 4096);
    finish(&c);
}

int main(void)
{
    return run_unit_tests("table_many");
}
