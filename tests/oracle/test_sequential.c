/* test_sequential.c - one call after the other: canal lock's buckets, the
 * specification, a SysV semaphore and our library answer alike, value for value.
 *
 *     test_sequential                      the same histories every time
 *     SLUICE_SEED=n test_sequential        others
 *     SLUICE_SEED=n SLUICE_HISTORY=h ...   only history h of seed n, told call by call
 *     SLUICE_HISTORIES=n ...               this many, instead of the usual number
 *
 * A failure prints the line that replays it. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "test.h"

#include "buckets.h"
#include "sluice.h"
#include "spec.h"
#include "sysv.h"

/* ---- chance ---- */

/* splitmix64: any seed is a good one, and each history has its own. */
struct chance {
    uint64_t state;
};

static uint64_t draw(struct chance *c)
{
    uint64_t z = (c->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number from low to high, both included. */
static uint32_t between(struct chance *c, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(draw(c) % ((uint64_t)high - low + 1));
}

/* Mostly short, now and then long: small histories show corners, long ones drift. */
static uint32_t any_length(struct chance *c)
{
    return between(c, 1, 4u << between(c, 0, 6));
}

/* ---- what is run, and how to run it again ---- */

struct plan {
    uint64_t seed;
    uint64_t first, count;
    bool told;
    uint64_t calls; /* Made so far. */
};

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

static struct plan plan_of(uint64_t histories)
{
    struct plan p = {.seed = number_from("SLUICE_SEED", 1),
                     .count = number_from("SLUICE_HISTORIES", histories)};
    if (getenv("SLUICE_HISTORY") != NULL) {
        p.first = number_from("SLUICE_HISTORY", 0);
        p.count = 1;
        p.told = true;
    }
    return p;
}

static void tell_plan(const struct plan *p)
{
    printf("# seed %" PRIu64 ", %" PRIu64 " histories, %" PRIu64 " calls\n", p->seed,
           p->count, p->calls);
}

static struct chance chance_of(const struct plan *p, uint64_t history)
{
    struct chance c = {p->seed};
    c.state = draw(&c) ^ history;
    return c;
}

/* One call of a history, and what everybody answered, for people. */
struct told {
    char call[64];
    char answers[160];
};

/* Print it if it was asked for, fail if the answers differ. */
static void tell(const struct plan *p, uint64_t history, uint32_t step,
                 const struct told *t, bool same)
{
    if (p->told) printf("# %4" PRIu32 "  %-32s %s\n", step, t->call, t->answers);
    if (same) return;
    fail_msg("history %" PRIu64 ", call %" PRIu32 ": %s: %s\n"
             "replay: SLUICE_SEED=%" PRIu64 " SLUICE_HISTORY=%" PRIu64
             " test_sequential",
             history, step, t->call, t->answers, p->seed, history);
}

/* ---- our library ---- */

/* By name or by handle: histories use either, and the answers must not differ. */
struct ours {
    struct sluice_canal *canal;
    struct sluice_key *handle; /* NULL: by name. */
    char key[32];
};

static struct sluice_canal *open_canal(void)
{
    struct sluice_canal *canal = NULL;
    struct sluice_canal_options options = {
        .anonymous = 1, .keys = 64, .slots = 8, .records = 64};
    int status = sluice_canal_open(NULL, &options, &canal);
    if (status != SLUICE_OK) fail_msg("open: %s", sluice_status_text(status));
    return canal;
}

static void ours_init(struct ours *o, struct sluice_canal *canal, struct chance *c)
{
    o->canal = canal;
    o->handle = NULL;
    /* Few enough to stay in the table, many enough to differ in place. */
    snprintf(o->key, sizeof o->key, "key %" PRIu32, between(c, 1, 16));
    if (between(c, 0, 1) == 1) {
        assert_int_equal(sluice_key_resolve(canal, o->key, &o->handle), SLUICE_OK);
    }
}

static int64_t ours_acquire(struct ours *o, struct sluice_capacity capacity,
                            uint32_t units)
{
    struct sluice_want want = {.units = units};
    const struct sluice_want *wanted = units == 1 ? NULL : &want;
    return o->handle != NULL ? sluice_key_acquire(o->handle, capacity, wanted)
                             : sluice_canal_acquire(o->canal, o->key, capacity, wanted);
}

static int64_t ours_release(struct ours *o, uint32_t units)
{
    return o->handle != NULL ? sluice_key_release(o->handle, units)
                             : sluice_canal_release(o->canal, o->key, units);
}

static int64_t ours_count(struct ours *o)
{
    return o->handle != NULL ? sluice_key_count(o->handle)
                             : sluice_canal_count(o->canal, o->key);
}

/* Leave nothing behind for the next history that meets the same key. */
static void ours_end(struct ours *o, int64_t held)
{
    while (held > 0) {
        uint32_t units = (uint32_t)(held < SLUICE_UNITS_MAX ? held : SLUICE_UNITS_MAX);
        assert_int_equal(ours_release(o, units), SLUICE_OK);
        held -= units;
    }
    assert_int_equal(ours_count(o), 0);
    if (o->handle != NULL) assert_int_equal(sluice_key_free(o->handle), SLUICE_OK);
}

/* ---- one `per`: buckets, specification, ours ---- */

static bool same_acquire(struct buckets_answer b, int64_t s, int64_t o)
{
    if (s == SPEC_REFUSED) return b.word == BUCKETS_FULL && o == SLUICE_EFULL;
    return b.word == BUCKETS_ACQUIRED && b.nth == s && o == s;
}

/* To release what nobody holds is an error in all three, and changes nothing. Canal
 * lock knows two: nothing left in any bucket, and no such key at all, which crashes. */
static bool same_release(struct buckets_answer b, int64_t s, int64_t o, bool key_known)
{
    if (s != SPEC_REFUSED) return b.word == BUCKETS_OK && o == SLUICE_OK;
    return b.word == (key_known ? BUCKETS_OUT_OF_BUCKETS : BUCKETS_BADARG) &&
           o == SLUICE_ENOTHELD;
}

static void one_per_history(struct plan *p, uint64_t history,
                            struct sluice_canal *canal)
{
    struct chance c = chance_of(p, history);
    uint32_t per = between(&c, 1, 8);
    uint32_t buckets_max = between(&c, 1, 6);
    uint32_t length = any_length(&c);
    uint32_t eager = between(&c, 30, 70); /* Acquires among 100 calls. */
    struct buckets buckets;
    struct spec spec = {0};
    struct ours ours;
    bool key_known = false;

    buckets_init(&buckets, per);
    ours_init(&ours, canal, &c);
    for (uint32_t step = 0; step < length; step++) {
        bool acquire = between(&c, 1, 100) <= eager;
        uint32_t n = between(&c, 1, buckets_max);
        struct sluice_capacity capacity = {.per = per, .buckets = n};
        struct buckets_answer b;
        int64_t s, o;
        bool same;
        if (acquire) {
            b = buckets_acquire(&buckets, per, n);
            s = spec_acquire(&spec, (int64_t)per * n, 1);
            o = ours_acquire(&ours, capacity, 1);
            same = same_acquire(b, s, o);
            key_known = true;
        } else {
            b = buckets_release(&buckets, per);
            s = spec_release(&spec, 1);
            o = ours_release(&ours, 1);
            same = same_release(b, s, o, key_known);
        }
        int64_t in_buckets = buckets_count(&buckets, per), in_ours = ours_count(&ours);
        same = same && in_buckets == spec.held && in_ours == spec.held;
        p->calls++;
        if (same && !p->told) continue;

        struct told t;
        snprintf(t.call, sizeof t.call, "%s(%" PRIu32 ", %" PRIu32 ")",
                 acquire ? "acquire" : "release", per, n);
        snprintf(t.answers, sizeof t.answers,
                 "buckets %s %d [%" PRId64 "], spec %" PRId64 " [%" PRId64
                 "], ours %" PRId64 " [%" PRId64 "]",
                 buckets_word_name(b.word), b.word == BUCKETS_ACQUIRED ? b.nth : 0,
                 in_buckets, s, spec.held, o, in_ours);
        tell(p, history, step, &t, same);
    }
    ours_end(&ours, spec.held);
}

static void with_one_per_buckets_spec_and_ours_answer_alike(void **state)
{
    (void)state;
    struct plan p = plan_of(100000);
    struct sluice_canal *canal = open_canal();
    for (uint64_t i = 0; i < p.count; i++) one_per_history(&p, p.first + i, canal);
    tell_plan(&p);
    sluice_canal_close(canal);
}

/* ---- any capacities and units: specification, SysV, ours ---- */

/* The specification has one word for "does not fit"; ours has two. */
static int64_t refusal_of(struct sluice_capacity capacity, uint32_t units)
{
    uint64_t all = (uint64_t)capacity.per * capacity.buckets;
    return all > 0 && units > all ? SLUICE_ETOOBIG : SLUICE_EFULL;
}

/* With a semaphore next to it if sysv is not NULL; capacities and units must suit it then. */
static void any_capacity_history(struct plan *p, uint64_t history,
                                 struct sluice_canal *canal, struct sysv *sysv)
{
    struct chance c = chance_of(p, history);
    uint32_t length = any_length(&c);
    uint32_t eager = between(&c, 30, 70);
    uint32_t side = between(&c, 1, 180); /* 180 * 180 <= SYSV_ROOM_MAX */
    uint32_t units_max = between(&c, 0, 3) == 0 ? side * 4 : 3;
    struct spec spec = {0};
    struct ours ours;

    if (sysv == NULL && between(&c, 0, 1) == 0) { /* As large as they come. */
        side = 65535;
        units_max = SLUICE_UNITS_MAX;
    }
    ours_init(&ours, canal, &c);
    for (uint32_t step = 0; step < length; step++) {
        bool acquire = between(&c, 1, 100) <= eager;
        uint32_t units = between(&c, 1, units_max);
        struct sluice_capacity capacity = {.per = between(&c, 0, side),
                                           .buckets = between(&c, 0, side)};
        int64_t all = (int64_t)capacity.per * capacity.buckets;
        int64_t s, y = 0, o, want;
        if (acquire) {
            s = spec_acquire(&spec, all, units);
            if (sysv != NULL) y = sysv_acquire(sysv, (int32_t)all, (int32_t)units);
            o = ours_acquire(&ours, capacity, units);
            want = s == SPEC_REFUSED ? refusal_of(capacity, units) : s;
        } else {
            s = spec_release(&spec, units);
            if (sysv != NULL) y = sysv_release(sysv, (int32_t)units);
            o = ours_release(&ours, units);
            want = s == SPEC_REFUSED ? SLUICE_ENOTHELD : SLUICE_OK;
        }
        int64_t in_sysv = sysv != NULL ? sysv_count(sysv) : spec.held;
        int64_t in_ours = ours_count(&ours);
        bool same = o == want && in_ours == spec.held && in_sysv == spec.held &&
                    (sysv == NULL || y == s);
        p->calls++;
        if (same && !p->told) continue;

        struct told t;
        snprintf(t.call, sizeof t.call, "%s(%" PRIu32 ", %" PRIu32 ") of %" PRIu32,
                 acquire ? "acquire" : "release", capacity.per, capacity.buckets,
                 units);
        snprintf(t.answers, sizeof t.answers,
                 "spec %" PRId64 " [%" PRId64 "], sysv %" PRId64 " [%" PRId64
                 "], ours %" PRId64 " [%" PRId64 "], wanted %" PRId64,
                 s, spec.held, y, in_sysv, o, in_ours, want);
        tell(p, history, step, &t, same);
    }
    if (sysv != NULL && spec.held > 0) {
        assert_int_equal(sysv_release(sysv, (int32_t)spec.held), 0);
    }
    ours_end(&ours, spec.held);
}

static void with_any_capacity_and_units_spec_and_ours_answer_alike(void **state)
{
    (void)state;
    struct plan p = plan_of(50000);
    struct sluice_canal *canal = open_canal();
    for (uint64_t i = 0; i < p.count; i++)
        any_capacity_history(&p, p.first + i, canal, NULL);
    tell_plan(&p);
    sluice_canal_close(canal);
}

static void C8_with_any_capacity_and_units_a_sysv_semaphore_and_ours_answer_alike(
    void **state)
{
    (void)state;
    struct plan p = plan_of(30000);
    struct sysv sysv;
    if (sysv_open(&sysv) != 0) {
        print_message("# SysV semaphores are not to be had here\n");
        skip();
    }
    struct sluice_canal *canal = open_canal();
    for (uint64_t i = 0; i < p.count; i++)
        any_capacity_history(&p, p.first + i, canal, &sysv);
    tell_plan(&p);
    sluice_canal_close(canal);
    sysv_close(&sysv);
}

/* ---- the oracle's two forms ---- */

/* Stepping must not change what an operation does: where nobody steps in between, it
 * is the whole operation. A manager watches, and has a monitor for each unit held. */
static void buckets_in_steps_and_in_one_piece_answer_alike(void **state)
{
    (void)state;
    struct plan p = plan_of(5000);
    for (uint64_t i = 0; i < p.count; i++) {
        struct chance c = chance_of(&p, p.first + i);
        uint32_t per = between(&c, 1, 4);
        uint32_t length = any_length(&c);
        struct buckets whole, stepped;
        uint32_t held = 0;
        buckets_init(&whole, per);
        buckets_init(&stepped, per);
        for (uint32_t step = 0; step < length; step++) {
            struct buckets_op op;
            struct buckets_answer answer;
            if (between(&c, 0, 2) > 0) {
                uint32_t n = between(&c, 1, 3);
                answer = buckets_acquire(&whole, per, n);
                buckets_begin_acquire(&op, 0, per, n);
            } else {
                answer = buckets_release(&whole, per);
                buckets_begin_release(&op, 0, per);
            }
            while (!buckets_step(&stepped, &op)) continue;
            assert_int_equal(op.answer.word, answer.word);
            assert_int_equal(op.answer.nth, answer.nth);
            assert_int_equal(buckets_count(&stepped, per), buckets_count(&whole, per));
            if (answer.word == BUCKETS_ACQUIRED) held++;
            if (answer.word == BUCKETS_OK) held--;
            assert_int_equal(stepped.monitors[0], held);
            p.calls++;
        }
        /* Its death gives all of it back, a monitor at a time. */
        for (; held > 0; held--) {
            struct buckets_op op;
            buckets_begin_down(&op, &stepped, 0);
            while (!buckets_step(&stepped, &op)) continue;
            assert_int_equal(op.answer.word, BUCKETS_OK);
        }
        assert_int_equal(buckets_count(&stepped, per), 0);
    }
    tell_plan(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_in_steps_and_in_one_piece_answer_alike),
        cmocka_unit_test(with_one_per_buckets_spec_and_ours_answer_alike),
        cmocka_unit_test(with_any_capacity_and_units_spec_and_ours_answer_alike),
        cmocka_unit_test(
            C8_with_any_capacity_and_units_a_sysv_semaphore_and_ours_answer_alike),
    };
    return cmocka_run_group_tests_name("sequential", tests, NULL, NULL);
}
