/* fuzz_table.c - random bytes become requests to a lock table and to the oracle.
 *
 * A byte chooses the operation, and the bytes after it the session, the key and the numbers: small
 * ones, so that few bytes reach much. After every step the invariants of the table are checked, and
 * the table is compared with the oracle. */
#include <string.h>

#include "fuzz.h"
#include "oracle.h"

struct input {
    const uint8_t *at;
    size_t n;
};

struct world {
    struct oracle o;
    struct sl_table *table;
    struct input in;
    uint64_t ids;
};

/* 0 when there is no more. */
static uint8_t take(struct input *in)
{
    if (in->n == 0) return 0;
    in->n--;
    return *in->at++;
}

/* Mostly short times; sometimes one without an end. */
static sl_ms take_ms(struct input *in)
{
    uint8_t b = take(in);
    return b == 255 ? SL_NEVER : b % 64;
}

static int take_key(struct input *in)
{
    return take(in) % KEYS;
}

/* Fences that were given, and some that were not. */
static sl_fence take_fence(struct world *w)
{
    uint8_t b = take(&w->in);
    if (b >= 250) return w->o.fence + b - 252u;
    return w->o.grants[b % GRANTS].fence;
}

static void acquire(struct world *w, int s)
{
    if (w->o.waits[s].what != AT_NOTHING || !oracle_has_place(&w->o)) return;
    int key = take_key(&w->in);
    uint8_t kind = take(&w->in), size = take(&w->in);
    struct sl_want want = {.key = oracle_key(key),
                           .shared = (kind & 3) == 3,
                           .per = 1,
                           .buckets = 1,
                           .units = 1,
                           .note = {"note", (size_t)(kind >> 7) * 4}};
    if ((kind & 3) == 1 || (kind & 3) == 2) {
        want.per = size & 3;
        want.buckets = 1 + (size >> 2 & 1);
        want.units = 1 + (size >> 3 & 3);
        want.priority = size >> 5 & 3;
    }
    if ((kind & 4) != 0) want.lease_ms = take_ms(&w->in);
    if ((kind & 8) != 0) want.wait_ms = take_ms(&w->in);
    if ((kind & 16) != 0)
        want.value = (struct sl_bytes){"a value", (kind >> 5 & 3) + 1u};
    struct sl_grant g;
    int status = sl_table_acquire(w->table, w->o.now, &w->o.session[s], &want, &g);
    oracle_acquired(&w->o, s, key, &want, status, &g);
}

static void await(struct world *w, int s)
{
    if (w->o.waits[s].what != AT_NOTHING) return;
    int key = take_key(&w->in);
    bool want_free = take(&w->in) & 1;
    sl_ms ms = take_ms(&w->in);
    int status = sl_table_await(w->table, w->o.now, &w->o.session[s], oracle_key(key),
                                want_free, ms, 0);
    oracle_awaited(&w->o, s, key, want_free, ms, status);
}

static void release(struct world *w, int s)
{
    int key = take_key(&w->in);
    sl_fence fence = take(&w->in) & 1 ? take_fence(w) : 0;
    struct sl_ended past = {0};
    int answer = sl_table_release(w->table, w->o.now, &w->o.session[s], oracle_key(key),
                                  fence, &past);
    oracle_released(&w->o, s, key, fence, answer, &past);
}

static void extend(struct world *w, int s)
{
    static const char text[] = "another value";
    int key = take_key(&w->in);
    sl_fence fence = take_fence(w);
    sl_ms ms = take_ms(&w->in), left = 0;
    uint8_t b = take(&w->in);
    struct sl_bytes value = {b & 1 ? text : NULL,
                             b & 1 ? (size_t)(b >> 1) % sizeof text : 0};
    int status = sl_table_extend(w->table, w->o.now, &w->o.session[s], oracle_key(key),
                                 fence, ms, value, &left);
    oracle_extended(&w->o, s, key, fence, ms, status, left);
}

static void break_grant(struct world *w)
{
    int key = take_key(&w->in);
    sl_fence fence = take_fence(w);
    bool at_once = take(&w->in) & 1;
    struct sl_ended past = {0};
    int answer = sl_table_break(w->table, w->o.now, oracle_key(key), fence, at_once,
                                &past);
    oracle_broke(&w->o, key, fence, at_once, answer, &past);
}

static void drain(struct world *w)
{
    uint8_t b = take(&w->in);
    int pattern = b % PATTERNS;
    bool on = (b & 0x40) != 0;
    oracle_drained(&w->o, pattern, on,
                   sl_table_drain(w->table, oracle_pattern(pattern), on));
}

static bool hear_one(struct world *w)
{
    struct sl_effect e;
    if (!sl_table_next(w->table, w->o.now, &e)) return false;
    if (e.type != SL_EFFECT_NOTHING) oracle_told(&w->o, &e);
    if (e.type == SL_EFFECT_SESSION_OVER) {
        memset(e.session, 0xee,
               sizeof *e.session); /* The table does not use it any more. */
        sl_session_begin(e.session, ++w->ids, (uint32_t)(e.session - w->o.session) % 2);
    }
    sl_table_check(w->table);
    return true;
}

static void settle(struct world *w)
{
    while (hear_one(w)) {}
    oracle_settled(&w->o);
}

static void pass(struct world *w)
{
    uint8_t b = take(&w->in);
    w->o.now.ms += b % 32;
    /* The clock on the wall may do anything. */
    if (b < 192) w->o.now.wall_us += (uint64_t)(b % 32) * 1000;
    else if (b < 224) w->o.now.wall_us = (uint64_t)b;
    else w->o.now.wall_us = (uint64_t)1 << (b - 192);
}

static void step(struct world *w)
{
    uint8_t what = take(&w->in);
    int s = what >> 5; /* Of 8, where SESSIONS are: the last ones stand for time. */
    if (s >= SESSIONS) {
        pass(w);
        if (s > SESSIONS) settle(w);
        return;
    }
    bool gone = w->o.ended[s];
    switch (what & 15) {
        case 0:
        case 1:
        case 2:
        case 3:
            if (!gone) acquire(w, s);
            break;
        case 4:
        case 5:
            if (!gone) release(w, s);
            break;
        case 6:
            if (!gone) extend(w, s);
            break;
        case 7:
            if (!gone) await(w, s);
            break;
        case 8: break_grant(w); break;
        case 9: drain(w); break;
        case 10:
            sl_table_withdraw(w->table, &w->o.session[s]);
            oracle_withdrew(&w->o, s);
            break;
        case 11:
            sl_table_session_end(w->table, &w->o.session[s]);
            oracle_ended(&w->o, s);
            break;
        case 12:
        case 13: hear_one(w); break;
        default: settle(w); break;
    }
}

/* All sessions end and all leases: nothing may be left. */
static void finish(struct world *w)
{
    struct sl_table_stats stats;
    for (int s = 0; s < SESSIONS; s++) {
        if (!w->o.ended[s]) oracle_ended(&w->o, s);
        sl_table_session_end(w->table, &w->o.session[s]);
    }
    settle(w);
    for (int i = 0; i < GRANTS; i++) {
        const struct grant *g = &w->o.grants[i];
        struct sl_ended past;
        if (g->fence == 0) continue;
        sl_fence fence = g->fence;
        int key = g->key;
        must(sl_table_break(w->table, w->o.now, oracle_key(key), fence, true, &past) ==
             2);
        oracle_broke(&w->o, key, fence, true, 2, &past);
    }
    settle(w);
    oracle_compare(&w->o, w->table);
    sl_table_stats(w->table, &stats);
    must(stats.entries == 0 && stats.waiters == 0);
    sl_table_free(w->table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct world w;
    memset(&w, 0, sizeof w);
    w.in = (struct input){data, n};
    uint8_t b = take(&w.in);
    const struct sl_table_limits limits = {.keys_max = b & 1 ? 2 : 100,
                                           .waiters_max = b & 2 ? 2 : 100,
                                           .key_bytes_max = 10,
                                           .value_bytes_max = 20,
                                           .drains_max = 3,
                                           .grain_ms = b >> 2 & 1};
    w.table = sl_table_new(&limits, (struct sl_hash_key){b, 0});
    w.o.now.wall_us = 1000;
    w.o.grain_ms = limits.grain_ms;
    for (uint32_t s = 0; s < SESSIONS; s++)
        sl_session_begin(&w.o.session[s], ++w.ids, s % 2);
    while (w.in.n > 0) {
        step(&w);
        sl_table_check(w.table);
        oracle_compare(&w.o, w.table);
    }
    finish(&w);
    return 0;
}
