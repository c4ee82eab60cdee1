/* test_table_memory.c - the table under random requests, and without memory: the n-th
 * allocation fails, for every n, and nothing has changed by a request that was refused. */
#include <string.h>

#include "failing_alloc.h"
#include "test.h"

#include "locks/table.h"

static const struct sl_table_limits limits = {.keys_max = 1000,
                                              .waiters_max = 100,
                                              .key_bytes_max = 100,
                                              .value_bytes_max = 100,
                                              .drains_max = 8};

/* --- Random requests ------------------------------------------------------- */

enum { SESSIONS = 16, KEYS = 6, FENCES = 16 };

struct crowd {
    struct sl_table *table;
    struct sl_session session[SESSIONS];
    bool waits[SESSIONS], over[SESSIONS];
    sl_fence fence[KEYS][FENCES]; /* Some that were given. */
    struct sl_now now;
    uint64_t ids, random;
    size_t granted;
};

static uint32_t pick(struct crowd *c, uint32_t below)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)(c->random % below);
}

static struct sl_bytes key_of(uint32_t k)
{
    static const char *const keys[KEYS] = {"a", "b", "c", "d", "e", "f"};
    return (struct sl_bytes){keys[k], 1};
}

static void begin(struct crowd *c, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->random = seed;
    c->now.wall_us = 1000000;
    c->table = sl_table_new(&limits, (struct sl_hash_key){seed, 0});
    for (uint32_t i = 0; i < SESSIONS; i++)
        sl_session_begin(&c->session[i], ++c->ids, i % 3);
}

static int ask(struct crowd *c, uint32_t who, uint32_t k)
{
    struct sl_grant g;
    struct sl_want w = {.key = key_of(k),
                        .shared = pick(c, 5) == 0,
                        .per = 1 + pick(c, 3),
                        .buckets = 1 + pick(c, 2),
                        .units = 1 + pick(c, 2),
                        .priority = (int32_t)pick(c, 3),
                        .wait_ms = pick(c, 2) ? pick(c, 50) : 0,
                        .lease_ms = pick(c, 2) ? 1 + pick(c, 50) : 0,
                        .value = {"a value", pick(c, 8)},
                        .note = {"a note", pick(c, 7)}};
    if (pick(c, 3) == 0) {
        w.per = w.buckets = w.units = 1;
        w.priority = 0, w.shared = false, w.lease_ms = 1 + pick(c, 50);
    }
    int status = sl_table_acquire(c->table, c->now, &c->session[who], &w, &g);
    if (status == SL_WAITS) c->waits[who] = true;
    if (status == SLUICE_OK) {
        c->fence[k][pick(c, FENCES)] = g.fence;
        c->granted++;
    }
    return status;
}

static int act(struct crowd *c)
{
    uint32_t who = pick(c, SESSIONS), k = pick(c, KEYS);
    struct sl_session *s = &c->session[who];
    sl_fence fence = c->fence[k][pick(c, FENCES)];
    struct sl_ended past;
    sl_ms left;
    if (c->over[who]) return SLUICE_OK;
    switch (pick(c, 13)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4: return c->waits[who] ? SLUICE_OK : ask(c, who, k);
        case 5:
        case 6:
            if (!c->waits[who])
                sl_table_release(c->table, c->now, s, key_of(k), pick(c, 2) ? 0 : fence,
                                 &past);
            return SLUICE_OK;
        case 7: {
            struct sl_bytes value = {pick(c, 2) ? "another value" : NULL, pick(c, 14)};
            return sl_table_extend(c->table, c->now, s, key_of(k), fence,
                                   1 + pick(c, 60), value, &left);
        }
        case 8:
            if (pick(c, 8) == 0)
                sl_table_break(c->table, c->now, key_of(k), fence, pick(c, 2), &past);
            return SLUICE_OK;
        case 9:
            if (pick(c, 30) == 0)
                return sl_table_drain(c->table, (struct sl_bytes){"[ab]", 4},
                                      pick(c, 4) == 0);
            return SLUICE_OK;
        case 10: {
            if (c->waits[who]) return SLUICE_OK;
            int status = sl_table_await(c->table, c->now, s, key_of(k), pick(c, 2),
                                        pick(c, 30), 0);
            if (status == SL_WAITS) c->waits[who] = true;
            return status;
        }
        case 11:
            if (pick(c, 4) != 0) return SLUICE_OK;
            sl_table_withdraw(c->table, s);
            c->waits[who] = false;
            return SLUICE_OK;
        default:
            if (pick(c, 20) != 0) return SLUICE_OK;
            sl_table_session_end(c->table, s);
            c->over[who] = true;
            return SLUICE_OK;
    }
}

/* Hear what follows; at most so much of it. */
static void hear(struct crowd *c, unsigned most)
{
    struct sl_effect e;
    while (most-- > 0 && sl_table_next(c->table, c->now, &e)) {
        if (e.session == NULL) continue;
        ptrdiff_t who = e.session - c->session;
        if (e.type == SL_EFFECT_SESSION_OVER) {
            sl_session_begin(e.session, ++c->ids, (uint32_t)who % 3);
            c->over[who] = false;
        } else assert_true(c->waits[who] && !c->over[who]);
        c->waits[who] = false;
        if (e.type == SL_EFFECT_GRANTED) c->granted++;
    }
}

static void finish(struct crowd *c)
{
    struct sl_effect e;
    struct sl_table_stats stats;
    for (uint32_t i = 0; i < SESSIONS; i++)
        sl_table_session_end(c->table, &c->session[i]);
    c->now.ms += 1000000;
    while (sl_table_next(c->table, c->now, &e)) {}
    sl_table_check(c->table);
    sl_table_stats(c->table, &stats);
    assert_int_equal(stats.entries, 0);
    sl_table_free(c->table);
}

static void let_time_pass(struct crowd *c)
{
    uint32_t ms = pick(c, 4) == 0 ? pick(c, 5) : 0;
    c->now.ms += ms;
    c->now.wall_us += ms * 1000;
}

UNIT_TEST(random_requests_keep_the_invariants)
{
    static struct crowd c;
    size_t granted = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(&c, seed * 7919);
        for (int i = 0; i < 3000; i++) {
            act(&c);
            let_time_pass(&c);
            hear(&c, pick(&c, 3) == 0 ? 1 : 1000);
            sl_table_check(c.table);
        }
        granted += c.granted;
        finish(&c);
    }
    assert_true(granted > 1000); /* Else it was about nothing. */
}

/* --- Without memory -------------------------------------------------------- */

UNIT_TEST(every_allocation_may_fail_and_nothing_has_changed)
{
    static struct crowd c;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        size_t refused = 0;
        begin(&c, seed * 104729);
        for (int i = 0; i < 1500; i++) {
            struct sl_table_stats before, after;
            sl_table_stats(c.table, &before);
            memory_ends_after(pick(&c, 4));
            int status = act(&c);
            memory_ends_after(0); /* What follows needs no memory at all. */
            if (status == SLUICE_ENOMEM) {
                refused++;
                sl_table_stats(c.table, &after);
                assert_int_equal(before.keys, after.keys);
                assert_int_equal(before.entries, after.entries);
                assert_true(before.fence_last == after.fence_last);
            }
            let_time_pass(&c);
            hear(&c, 1000);
            memory_is_back();
            sl_table_check(c.table);
        }
        assert_true(refused > 50);
        finish(&c);
    }
    memory_ends_after(0);
    assert_null(sl_table_new(&limits, (struct sl_hash_key){1, 0}));
    memory_is_back();
}

UNIT_TEST(a_waiter_has_its_holder_entry_reserved)
{
    static struct crowd c;
    struct sl_grant g;
    struct sl_ended past;
    begin(&c, 1);
    struct sl_want w = {.key = key_of(0), .per = 1, .buckets = 1, .units = 1};
    assert_int_equal(sl_table_acquire(c.table, c.now, c.session, &w, &g), SLUICE_OK);
    w.shared = true, w.wait_ms = SL_NEVER, w.lease_ms = 100;
    for (uint32_t i = 1; i < SESSIONS; i++) {
        int status = sl_table_acquire(c.table, c.now, &c.session[i], &w, &g);
        assert_int_equal(status, SL_WAITS);
        c.waits[i] = true;
    }
    memory_ends_after(0);
    assert_int_equal(sl_table_release(c.table, c.now, c.session, key_of(0), 0, &past),
                     1);
    hear(&c, 1000);
    memory_is_back();
    assert_int_equal(c.granted, SESSIONS - 1);
    sl_table_check(c.table);
    finish(&c);
}

int main(void)
{
    return run_unit_tests("table_memory");
}
