/* test_majority_break.c - operators in a majority cluster: BREAK, and BREAK ... NOW. */
#include "majority_stage.h"
#include "test_main.h"

static int64_t break_lease(struct stage *s, sl_node_id at, sl_fence fence, bool at_once)
{
    uint64_t b = REQUEST(BREAK, at, .fence = fence, .at_once = at_once);
    int status = outcome(s, b);
    return status == SLUICE_OK ? answer_to(s, b)->number : status;
}

STAGE_TEST(a_broken_lease_is_not_extended_and_lasts_until_its_expiry, 3)
{
    sl_fence fence = take(s, 1, 1000);
    assert_int_equal(break_lease(s, 2, fence, false), 1);
    for (sl_node_id at = 1; at <= 3; at++)
        assert_int_equal(extend(s, at, fence, 1000), SLUICE_ELOST);
    assert_int_equal(check(s, 3, fence), 1);
    assert_int_equal(break_lease(s, 3, fence, false), 1);
    uint64_t b = ASK(3, .wait_ms = 5000);
    pass(s, 900);
    waits(s, b);
    outcome(s, b);
    assert_true(granted(s, b) > fence);
    assert_false(answer_to(s, b)->grant.overlapping);
    assert_int_equal(extend(s, 1, granted(s, b), 1000), SLUICE_OK);
}

STAGE_TEST(BREAK_of_an_unknown_fence_does_nothing, 3)
{
    sl_fence fence = take(s, 1, 1000);
    assert_int_equal(break_lease(s, 2, fence + 16, false), 0);
    assert_int_equal(break_lease(s, 2, fence + 16, true), 0);
    assert_int_equal(extend(s, 1, fence, 1000), SLUICE_OK);
    assert_int_equal(break_lease(s, 2, fence, false), 1);
}

STAGE_TEST(every_node_publishes_once_that_a_lease_was_broken, 3)
{
    uint64_t a = ASK(1, .lease_ms = 5000, .session = 7);
    sl_fence fence = granted(s, a);
    assert_int_equal(break_lease(s, 2, fence, false), 1);
    assert_int_equal(break_lease(s, 3, fence, false), 1);
    for (sl_node_id at = 1; at <= 3; at++)
        assert_int_equal(events(s, at, SL_NODE_EVENT_BROKEN, fence), 1);
    assert_int_equal(last_event(s, 1, SL_NODE_EVENT_BROKEN)->session, 7);
    assert_false(last_event(s, 1, SL_NODE_EVENT_BROKEN)->at_once);
    assert_int_equal(break_lease(s, 3, fence, true), 2);
    for (sl_node_id at = 1; at <= 3; at++) {
        assert_int_equal(events(s, at, SL_NODE_EVENT_RELEASED, fence), 1);
        assert_true(last_event(s, at, SL_NODE_EVENT_RELEASED)->at_once);
    }
}

STAGE_TEST(BREAK_NOW_ends_the_lease_and_marks_the_next_grant, 3)
{
    sl_fence fence = take(s, 1, 5000);
    assert_int_equal(break_lease(s, 2, fence, true), 2);
    assert_int_equal(events(s, 3, SL_NODE_EVENT_BROKEN, fence), 1);
    assert_true(last_event(s, 3, SL_NODE_EVENT_BROKEN)->at_once);
    assert_int_equal(check(s, 1, fence), 0);
    assert_int_equal(extend(s, 1, fence, 1000), SLUICE_ELOST);
    uint64_t b = ASK(3, .lease_ms = 100);
    granted(s, b);
    assert_true(answer_to(s, b)->grant.overlapping);
    assert_int_equal(break_lease(s, 2, fence, true), 0);
    pass(s, 5002);
    uint64_t c = ASK(2);
    granted(s, c);
    assert_false(answer_to(s, c)->grant.overlapping);
}

/* One of the nodes that voted for the lease does not know that it was broken. */
STAGE_TEST(a_broken_lease_is_not_extended_by_the_other_nodes, 3)
{
    cut(s, 1, 3, SL_MESSAGE_ACQUIRE);
    sl_fence fence = take(s, 1, 5000);
    open_all(s);
    cut(s, 2, 1, SL_MESSAGE_BREAK);
    cut(s, 2, 1, SL_MESSAGE_TEACH);
    assert_int_equal(break_lease(s, 2, fence, false), 1);
    open_all(s);
    assert_int_equal(extend(s, 1, fence, 5000), SLUICE_ELOST);
}

/* Node 3 was not asked, and learns it. */
STAGE_TEST(all_nodes_learn_that_a_lease_was_broken, 3)
{
    sl_fence fence = take(s, 1, 5000);
    cut(s, 2, 3, SL_MESSAGE_BREAK);
    assert_int_equal(break_lease(s, 2, fence, false), 1);
    open_all(s);
    isolate(s, 2);
    assert_int_equal(extend(s, 1, fence, 5000), SLUICE_ELOST);
}

STAGE_TEST(BREAK_needs_a_majority, 3)
{
    sl_fence fence = take(s, 1, 5000);
    isolate(s, 2);
    assert_int_equal(break_lease(s, 2, fence, false), SLUICE_ENOQUORUM);
    open_all(s);
    pass(s, 300);
    assert_int_equal(extend(s, 1, fence, 5000), SLUICE_OK);
}

STAGE_TEST(a_node_that_was_killed_knows_what_was_broken, 3)
{
    sl_fence fence = take(s, 1, 30000), now;
    assert_int_equal(break_lease(s, 2, fence, false), 1);
    for (sl_node_id id = 1; id <= 3; id++) restart_killed(s, id);
    pass(s, 300);
    assert_int_equal(extend(s, 1, fence, 30000), SLUICE_ELOST);
    assert_int_equal(break_lease(s, 2, fence, true), 2);
    for (sl_node_id id = 1; id <= 3; id++) restart_killed(s, id);
    pass(s, 300);
    uint64_t b = ASK(3);
    now = granted(s, b);
    assert_true(now > fence && answer_to(s, b)->grant.overlapping);
}

/* A power failure at all nodes: the lease is long, so its end and its mark are durable. */
TEST(long_leases_stay_broken_when_the_power_fails)
{
    struct stage *s = stage_durable(3, 1000);
    sl_fence fence = take(s, 1, 60000);
    assert_int_equal(break_lease(s, 2, fence, false), 1);
    for (sl_node_id id = 1; id <= 3; id++) crash(s, id);
    for (sl_node_id id = 1; id <= 3; id++) start(s, id);
    end_silence(s);
    pass(s, 300);
    assert_int_equal(extend(s, 1, fence, 60000), SLUICE_ELOST);
    assert_int_equal(break_lease(s, 2, fence, true), 2);
    for (sl_node_id id = 1; id <= 3; id++) crash(s, id);
    for (sl_node_id id = 1; id <= 3; id++) start(s, id);
    end_silence(s);
    pass(s, 300);
    uint64_t b = ASK(3);
    outcome(s, b);
    granted(s, b);
    assert_true(answer_to(s, b)->grant.overlapping);
    stage_end(s);
}

TEST_MAIN(NULL, NULL)
