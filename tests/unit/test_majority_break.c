/* test_majority_break.c - operators in a majority cluster: BREAK, BREAK ... NOW, and DRAIN. */
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

/* --- DRAIN ------------------------------------------------------------------------------- */

#define PATTERN(text) .key = {text, sizeof text - 1}

static int64_t drain(struct stage *s, sl_node_id at, bool on)
{
    uint64_t d = REQUEST(DRAIN, at, PATTERN("k*"), .on = on);
    int status = outcome(s, d);
    return status == SLUICE_OK ? answer_to(s, d)->number : status;
}

static uint32_t drains_at(struct stage *s, sl_node_id at)
{
    struct sl_bytes pattern;
    uint32_t count = 0;
    while (sl_node_drains(s->actor[at].node, count, &pattern)) count++;
    return count;
}

STAGE_TEST(a_drained_key_is_not_granted, 3)
{
    assert_int_equal(drain(s, 1, true), 1);
    assert_int_equal(drain(s, 2, true), 0);
    for (sl_node_id at = 1; at <= 3; at++) {
        uint64_t a = ASK(at, .wait_ms = 5000);
        refused(s, a, SLUICE_EDRAINED);
        granted(s, ASK(at, .key = {"other", 5}, .lease_ms = 50));
        pass(s, 60);
        assert_int_equal(drains_at(s, at), 1);
    }
    assert_int_equal(drain(s, 3, false), 1);
    assert_int_equal(drain(s, 1, false), 0);
    granted(s, ASK(2));
}

STAGE_TEST(a_holder_keeps_a_drained_key_and_waiters_are_rejected, 3)
{
    uint64_t a = ASK(1, .lease_ms = 5000, .request = {"an id", 5});
    sl_fence fence = granted(s, a);
    uint64_t b = ASK(2, .wait_ms = 60000), c = ASK(2, .wait_ms = 60000),
             d = ASK(3, .wait_ms = 60000);
    assert_int_equal(drain(s, 1, true), 1);
    pass(s, 5);
    assert_true(answered(s, b) && answered(s, c) && answered(s, d));
    refused(s, b, SLUICE_EDRAINED);
    refused(s, c, SLUICE_EDRAINED);
    refused(s, d, SLUICE_EDRAINED);
    assert_int_equal(extend(s, 3, fence, 5000), SLUICE_OK);
    assert_int_equal(granted(s, ASK(3, .request = {"an id", 5})), fence);
    assert_int_equal(release(s, 2, fence), 1);
}

STAGE_TEST(a_node_that_was_cut_off_learns_the_patterns, 3)
{
    isolate(s, 3);
    assert_int_equal(drain(s, 1, true), 1);
    assert_int_equal(drains_at(s, 3), 0);
    open_all(s);
    pass(s, 300);
    assert_int_equal(drains_at(s, 3), 1);
    isolate(s, 1);
    uint64_t a = ASK(3);
    outcome(s, a);
    refused(s, a, SLUICE_EDRAINED);
}

STAGE_TEST(an_old_DRAIN_does_not_count, 3)
{
    hold(s, 1, 3, SL_MESSAGE_DRAIN);
    assert_int_equal(drain(s, 1, true), 1);
    assert_int_equal(drain(s, 2, false), 1);
    assert_true(kept(s, 1, 3, SL_MESSAGE_DRAIN) > 0);
    deliver_all(s, 1, 3, SL_MESSAGE_DRAIN);
    assert_int_equal(drains_at(s, 3), 0);
    pass(s, 300);
    for (sl_node_id at = 1; at <= 3; at++) assert_int_equal(drains_at(s, at), 0);
}

STAGE_TEST(patterns_survive_power_failures, 3)
{
    assert_int_equal(drain(s, 1, true), 1);
    for (sl_node_id id = 1; id <= 3; id++) crash(s, id);
    for (sl_node_id id = 1; id <= 3; id++) start(s, id);
    end_silence(s);
    pass(s, 300);
    for (sl_node_id at = 1; at <= 3; at++) assert_int_equal(drains_at(s, at), 1);
    uint64_t a = ASK(3);
    outcome(s, a);
    refused(s, a, SLUICE_EDRAINED);
}

STAGE_TEST(a_new_node_knows_the_patterns_before_it_votes, 3)
{
    assert_int_equal(drain(s, 1, true), 1);
    start(s, 4);
    assert_int_equal(outcome(s, add_node(s, 1, 4)), SLUICE_OK);
    assert_int_equal(drains_at(s, 4), 1);
}

/* A node that knows other patterns does not use the new membership. */
STAGE_TEST(a_node_without_the_patterns_does_not_use_the_next_membership, 3)
{
    assert_int_equal(drain(s, 1, true), 1);
    start(s, 4);
    cut(s, 0, 4, SL_MESSAGE_DRAIN);
    assert_int_equal(outcome(s, add_node(s, 1, 4)), SLUICE_OK);
    pass(s, 1000);
    LIST(1, "2: 1 2 3 4");
    assert_string_not_equal(list_at(s, 4), "2: 1 2 3 4");
    open_all(s);
    pass(s, 1000);
    LIST(4, "2: 1 2 3 4");
}

STAGE_TEST(the_number_of_patterns_is_limited, 3)
{
    assert_int_equal(drain(s, 1, true), 1);
    uint64_t a = REQUEST(DRAIN, 2, PATTERN("a*"), .on = true),
             b = REQUEST(DRAIN, 2, PATTERN("b*"), .on = true),
             c = REQUEST(DRAIN, 2, PATTERN("c*"), .on = true);
    refused(s, a, SLUICE_OK);
    refused(s, b, SLUICE_OK);
    refused(s, c, SLUICE_EFULL);
    assert_int_equal(drain(s, 1, false), 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(drain(s, 1, true), 1);
        assert_int_equal(drain(s, 1, false), 1);
    }
    assert_int_equal(drains_at(s, 3), 2);
}

TEST_MAIN(NULL, NULL)
