/* test_majority_memory.c - nodes without memory: every allocation fails once, and some fail all
 * the time. A request is answered all the same, with ENOMEM or as if a message had been lost;
 * nobody gets what another holds (the stage looks), nothing is corrupt, and when there is
 * memory again all goes on. */
#include "failing_alloc.h"
#include "majority_stage.h"
#include "test_main.h"

static int calm(void **state)
{
    (void)state;
    memory_is_back();
    memory_fails_only_in(&stage_in_node); /* The stage has memory. */
    stage_in_node = false;
    return 0;
}

static sl_fence fence_or_none(struct stage *s, uint64_t request)
{
    return outcome(s, request) == SLUICE_OK ? answer_to(s, request)->grant.fence
                                            : 12345;
}

/* Who knows of a lease knows all of it. */
static void whole(struct stage *s, sl_fence fence)
{
    for (sl_node_id id = 1; id <= 3; id++) {
        struct sl_node_copy c;
        if (!sl_node_copy(s->actor[id].node, clock_of(s, id), (struct sl_bytes){"k", 1},
                          &c) ||
            c.fence != fence)
            continue;
        assert_int_equal(c.value.n, 5);
        assert_int_equal(c.note.n, 4);
    }
}

/* Of everything a little. */
static void play(struct stage *s)
{
    uint64_t t = ASK(1, .lease_ms = 500, .value = {"value", 5}, .note = {"note", 4},
                     .session = 1);
    sl_fence a = fence_or_none(s, t);
    whole(s, a);
    uint64_t waiter = ASK(2, .wait_ms = 300, .note = {"waits", 5}, .session = 2);
    uint64_t watcher = REQUEST(AWAIT, 3, .wait_ms = 300, .want_free = true);
    uint64_t gone = ASK(3, .wait_ms = 300);
    pass(s, 5);
    outcome(s, REQUEST(EXTEND, 2, .fence = a, .lease_ms = 500, .value = {"other", 5}));
    whole(s, a);
    outcome(s, REQUEST(READ, 3));
    outcome(s, REQUEST(VOTES, 1));
    outcome(s, REQUEST(CHECK, 2, .fence = a));
    if (!answered(s, gone)) withdraw(s, gone);
    uint64_t thief = ASK(3, THIEF_FOR(400), .priority = 5, .lease_ms = 200,
                         .session = 3);
    pass(s, 5);
    outcome(s, REQUEST(RELEASE, 1, .fence = a));
    sl_fence b = fence_or_none(s, thief);
    outcome(s, REQUEST(RELEASE, 3, .fence = b, .session = 3));
    outcome(s, waiter);
    outcome(s, watcher);
    uint64_t victim = ASK(1, .lease_ms = 300, .wait_ms = 700, .value = {"value", 5});
    outcome(s, victim);
    outcome(s, ASK(2, .wait_ms = 700, .steal = true, .force_ms = 5, .priority = 7,
                   .lease_ms = 100, .value = {"second", 6}));
    restart(s, 2);
}

/* There is memory again: whatever was lost, soon all is well. */
static void recovers(struct stage *s)
{
    memory_is_back();
    end_silence(s);
    pass(s, 1500);
    for (sl_node_id id = 1; id <= 3; id++) {
        sl_fence f = take(s, id, 500);
        assert_int_equal(read_key(s, id % 3 + 1), f);
        assert_int_equal(release(s, id % 3 + 1, f), 1);
    }
}

TEST(every_allocation_fails_once)
{
    struct stage *s = stage_new(3);
    memory_count_anew();
    play(s);
    long all = memory_allocations();
    recovers(s);
    stage_end(s);
    assert_true(all > 100);
    for (long n = 0; n < all; n++) {
        s = stage_new(3);
        memory_fails_after(n);
        play(s);
        assert_int_equal(memory_failures(), 1);
        recovers(s);
        stage_end(s);
    }
}

TEST(many_allocations_fail)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct stage *s = stage_new(3);
        memory_fails_by_chance(seed * 104729, 4);
        for (int i = 0; i < 3; i++) play(s);
        assert_true(memory_failures() > 10);
        recovers(s);
        stage_end(s);
    }
}

/* A change of the list: what is lost is said again. */
TEST(a_change_of_the_list_does_not_need_every_allocation)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct stage *s = stage_new(3);
        start(s, 4);
        memory_fails_by_chance(seed * 7919, 4);
        uint64_t t = add_node(s, 1, 4);
        outcome(s, t);
        one_list(s);
        memory_is_back();
        pass(s, 10000);
        one_list(s);
        if (answer_to(s, t)->status == SLUICE_OK) LIST(3, "2: 1 2 3 4");
        recovers(s);
        stage_end(s);
    }
}

TEST(a_node_without_memory_is_none)
{
    struct sl_journal *journal = sl_journal_new((struct sl_hash_key){1, 2}, 0, 1000);
    struct sl_node_start begin = {.id = 1,
                                  .epoch = 1,
                                  .birth = 1,
                                  .seed = 1,
                                  .journal = journal,
                                  .limits = stage_limits};
    stage_in_node = true;
    for (long n = 0;; n++) {
        memory_fails_after(n);
        struct sl_node *node = sl_node_new(&begin, (struct sl_now){1000, 1000});
        if (memory_failures() == 0) {
            assert_non_null(node);
            sl_node_free(node);
            assert_true(n > 0);
            break;
        }
        assert_null(node);
    }
    stage_in_node = false;
    memory_is_back();
    sl_node_free(NULL);
    sl_journal_free(journal);
}

/* A request for which there is no memory fails at once, and gets no other answer. */
STAGE_TEST(a_request_without_memory_is_rejected, 3)
{
    memory_fails_after(0);
    uint64_t t = ASK(1, .value = {"v", 1});
    memory_is_back();
    refused(s, t, SLUICE_ENOMEM);
    pass(s, 1000);
    for (sl_node_id id = 1; id <= 3; id++) assert_int_equal(acceptor_has(s, id), 0);
}

TEST_MAIN(NULL, calm)
