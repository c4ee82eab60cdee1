/* test_tx_memory.c - a transaction manager without memory: every allocation fails once, and some fail
 * all the time. Each request is answered, or rejected with ENOMEM at once. Exactly what was
 * reported as committed is committed. Invariants hold, and when there is memory again everything
 * continues, also for clients that have left. */
#include <stdio.h>
#include <string.h>

#include "failing_alloc.h"
#include "tx_stage.h"

static void calm(void)
{
    memory_is_back();
    memory_fails_only_in(&stage_in_manager); /* The stage has memory. */
    stage_in_manager = false;
}

/* What became of a request: OK; WAITS, as it is not answered; or a status. */
#define WAITS 1
static int outcome(const struct stage *s, uint64_t ticket)
{
    const struct asked *a = &s->asked[ticket];
    if (a->refused != SLUICE_OK) return a->refused;
    return a->answered ? a->status : WAITS;
}

/* With memory, or without some of it, nothing else is told. */
static int expect(const struct stage *s, uint64_t ticket, int status)
{
    int is = outcome(s, ticket);
    if (is != status && memory_failures() == 0)
        fail_msg("%s instead of %s", sluice_status_word(is),
                 sluice_status_word(status));
    return is;
}

/* A current manager, maybe after some attempts; NULL: there was no memory for one. */
static struct stage *leader(void)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.age_ms_max = 100000;
    struct stage *s = stage_candidate(&limits, NULL);
    if (s == NULL) return NULL;
    s->silent = true;
    for (int i = 0; i < 1000 && stats_of(s).state != SL_TX_MANAGER_CURRENT; i++)
        pass(s, 100);
    assert_int_equal(stats_of(s).state, SL_TX_MANAGER_CURRENT);
    return s;
}

/* Writes and commits as long as possible. */
static void writer(struct stage *s, uint64_t who, const char *item, const char *v)
{
    char request[8];
    snprintf(request, sizeof request, "r%d", (int)s->tickets);
    leave(s, who); /* Without memory it may have one that it could not abort. */
    bool began = expect(s, BEGIN_AS(who, request), SLUICE_OK) == SLUICE_OK;
    bool put = expect(s, PUT(who, item, v), SLUICE_OK) == SLUICE_OK;
    uint64_t commits = s->store->commits;
    int status = expect(s, COMMIT(who), SLUICE_OK);
    assert_int_equal(s->store->commits, commits + (status == SLUICE_OK));
    assert_true(began || status != SLUICE_OK);
    if (put && status == SLUICE_OK)
        assert_string_equal(stored_at(s->store, "t", item), v);
    if (began && status != SLUICE_OK) ABORT(who);
}

/* Of everything a little. */
static void play(struct stage *s)
{
    writer(s, 1, "a", "1"), writer(s, 1, "b", "2"), writer(s, 2, "c", "3");
    for (uint64_t i = 1; i <= 5; i++) expect(s, BEGIN(i), SLUICE_OK);
    expect(s, GET(1, "a"), SLUICE_OK);
    expect(s, PUT(1, "b", "new"), SLUICE_OK);
    expect(s, DEL(1, "c"), SLUICE_OK);
    expect(s, SCAN(1, "*"), SLUICE_OK);
    expect(s, PUT(1, "b", "newer"), SLUICE_OK);
    expect(s, WRITE(2, "u/a"), SLUICE_OK);
    expect(s, WRITE_WITHIN(3, "b", 0), SLUICE_EFULL);
    uint64_t bounded = WRITE_WITHIN(3, "b", 10);
    pass(s, 10);
    expect(s, bounded, SLUICE_EFULL);
    uint64_t waits = GET(2, "b");
    expect(s, waits, WAITS);
    expect(s, WRITE(3, "u/b"), SLUICE_OK);
    expect(s, WRITE(3, "u/a"), WAITS);
    leave(s, 4);    /* With nothing. */
    READ(1, "u/a"); /* A cycle. */
    if (memory_failures() == 0) expect(s, waits, SLUICE_ERESTART);
    expect(s, OUTCOME(6, "r1"), SLUICE_OK);
    by_hand(s);
    uint64_t commit = COMMIT(1);
    for (uint64_t i = 7; i <= 9; i++) {
        BEGIN(i);
        WRITE(i, i == 7 ? "u/x" : i == 8 ? "u/y" : "u/z");
    }
    leave(s, 7), leave(s, 3), leave(s, 8);
    GET(9, "v/a"), leave(s, 9);
    at_once(s);
    if (memory_failures() == 0) {
        assert_int_equal(outcome(s, commit), SLUICE_OK);
        assert_string_equal(stored_at(s->store, "t", "b"), "newer");
        assert_string_equal(stored_at(s->store, "t", "c"), "");
    }
    pass(s, 100);
    BEGIN(2), GET(2, "z"); /* With what it had before. */
    ABORT(2), ABORT(1);
    leave(s, 2);
}

/* There is memory again: transactions that left are barred, and all is free. */
static void recovers(struct stage *s)
{
    memory_is_back();
    memory_count_anew();
    for (uint64_t i = 1; i < 10; i++) leave(s, i);
    for (int i = 0; i < 3; i++) pass(s, 100);
    assert_int_equal(stats_of(s).transactions, 0);
    assert_int_equal(sl_tx_manager_due(s->manager), SL_NEVER);
    writer(s, 1, "a", "last");
    assert_string_equal(stored_at(s->store, "t", "a"), "last");
}

UNIT_TEST(every_allocation_fails_once)
{
    calm();
    memory_count_anew();
    struct stage *s = leader();
    play(s);
    long all = memory_allocations();
    recovers(s);
    stage_end(s);
    assert_true(all > 100);
    for (long n = 0; n < all; n++) {
        memory_fails_after(n);
        s = leader();
        if (s == NULL) continue;
        play(s);
        assert_int_equal(memory_failures(), 1);
        recovers(s);
        stage_end(s);
    }
}

UNIT_TEST(many_allocations_fail)
{
    calm();
    for (uint64_t seed = 1; seed <= 200; seed++) {
        memory_fails_by_chance(seed * 104729, 4);
        struct stage *s = leader();
        if (s == NULL) continue;
        for (int i = 0; i < 3; i++) play(s);
        assert_true(memory_failures() > 10);
        recovers(s);
        stage_end(s);
    }
}

/* It is tried again, and does not keep the processor busy until then. */
UNIT_TEST(a_bar_without_memory_is_ordered_later)
{
    calm();
    STAGE s = leader();
    BEGIN(1), WRITE(1, "a"), BEGIN(2);
    uint64_t waits = WRITE(2, "a");
    by_hand(s);
    memory_fails_after(0);
    leave(s, 1);
    memory_is_back();
    assert_int_equal(orders(s), 0);
    assert_int_equal(sl_tx_manager_due(s->manager), s->now + 100);
    pass(s, 100);
    assert_int_equal(orders(s), 1);
    does(s);
    assert_int_equal(outcome(s, waits), SLUICE_OK);
}

/* As if the storage had refused it: nothing is committed, and nothing is left of it. */
UNIT_TEST(a_commit_without_memory_is_the_end)
{
    calm();
    for (long n = 1; n <= 2; n++) { /* After its reply. */
        struct stage *s = leader();
        BEGIN(1), PUT(1, "a", "x");
        memory_fails_after(n);
        uint64_t commit = COMMIT(1);
        memory_is_back();
        assert_int_equal(outcome(s, commit), SLUICE_ENOMEM);
        HOLDERS("a", "");
        assert_int_equal(outcome(s, COMMIT(1)), SLUICE_ENOTX);
        assert_string_equal(stored_at(s->store, "t", "a"), "");
        stage_end(s);
    }
}

int main(void)
{
    return run_unit_tests("tx_memory");
}
