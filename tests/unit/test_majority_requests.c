/* test_majority_requests.c - acquisitions with a REQUEST id in a majority cluster: attempts that
 * repeat another one, through the same node or another one, and CANCEL. */
#include "majority_stage.h"
#include "test_main.h"

/* What identifies an acquisition, and the digest of its options. */
#define ID(name) .request = {name, sizeof name - 1}, .digest = 1
#define FIRST ID("the first one")
#define OTHER ID("another one")

static const struct sl_grant *grant_of(struct stage *s, uint64_t request)
{
    granted(s, request);
    return &answer_to(s, request)->grant;
}

static int64_t cancel(struct stage *s, sl_node_id at)
{
    uint64_t c = REQUEST(CANCEL, at, FIRST);
    int status = outcome(s, c);
    return status == SLUICE_OK ? answer_to(s, c)->number : status;
}

STAGE_TEST(a_repeated_request_gets_its_own_grant_through_any_node, 3)
{
    uint64_t a = ASK(1, FIRST, .lease_ms = 1000);
    sl_fence fence = granted(s, a);
    assert_false(grant_of(s, a)->replay);
    pass(s, 300);
    for (sl_node_id at = 1; at <= 3; at++) {
        const struct sl_grant *g = grant_of(s, ASK(at, FIRST, .lease_ms = 1000));
        assert_int_equal(g->fence, fence);
        assert_true(g->replay && g->lease_ms <= 700 && g->lease_ms >= 690);
    }
    uint64_t b = ASK(2, OTHER);
    outcome(s, b);
    refused(s, b, SLUICE_EFULL);
    assert_int_equal(release(s, 3, fence), 1);
}

STAGE_TEST(a_request_with_other_options_is_a_mismatch, 3)
{
    granted(s, ASK(1, FIRST));
    uint64_t b = ASK(2, .request = {"the first one", 13}, .digest = 2);
    outcome(s, b);
    refused(s, b, SLUICE_EMISMATCH);
}

STAGE_TEST(an_acquisition_that_was_released_has_ended, 3)
{
    sl_fence fence = granted(s, ASK(1, FIRST));
    assert_int_equal(release(s, 2, fence), 1);
    for (sl_node_id at = 1; at <= 3; at++) {
        uint64_t b = ASK(at, FIRST, .wait_ms = 1000);
        outcome(s, b);
        refused(s, b, SLUICE_EENDED);
    }
    assert_true(granted(s, ASK(1, OTHER)) > fence);
}

STAGE_TEST(an_acquisition_whose_lease_expired_has_ended, 3)
{
    granted(s, ASK(1, FIRST, .lease_ms = 500));
    pass(s, 510);
    uint64_t b = ASK(2, FIRST, .lease_ms = 500);
    outcome(s, b);
    refused(s, b, SLUICE_EENDED);
    pass(s, s->limits.request_keep_ms);
    granted(s, ASK(2, FIRST, .lease_ms = 500));
}

/* The proposer of the grant was killed before it told the others that the lease is agreed. */
STAGE_TEST(an_expired_lease_that_nobody_knows_to_be_agreed_has_ended, 3)
{
    cut(s, 1, 0, SL_MESSAGE_TEACH);
    granted(s, ASK(1, FIRST, .lease_ms = 500));
    kill_node(s, 1);
    pass(s, 510);
    open_all(s);
    uint64_t b = ASK(2, FIRST, .lease_ms = 500);
    outcome(s, b);
    refused(s, b, SLUICE_EENDED);
}

STAGE_TEST(CANCEL_releases_the_grant_and_ends_the_acquisition, 3)
{
    granted(s, ASK(1, FIRST, .lease_ms = 5000));
    assert_int_equal(cancel(s, 2), 2);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_RELEASED, 0), 1);
    assert_int_equal(read_key(s, 3), 0);
    uint64_t b = ASK(3, FIRST);
    outcome(s, b);
    refused(s, b, SLUICE_EENDED);
    assert_int_equal(cancel(s, 1), 0);
}

STAGE_TEST(a_request_that_arrives_after_CANCEL_is_not_granted, 3)
{
    assert_int_equal(cancel(s, 2), 0);
    uint64_t b = ASK(3, FIRST);
    outcome(s, b);
    refused(s, b, SLUICE_EENDED);
    granted(s, ASK(3, OTHER));
}

STAGE_TEST(CANCEL_withdraws_requests_that_wait_here, 3)
{
    sl_fence fence = granted(s, ASK(1));
    uint64_t b = ASK(2, FIRST, .wait_ms = 5000), c = ASK(3, FIRST, .wait_ms = 5000);
    waits(s, b);
    assert_int_equal(cancel(s, 2), 1);
    refused(s, b, SLUICE_EENDED);
    /* The other node learns it when it asks the acceptors again. */
    assert_int_equal(release(s, 1, fence), 1);
    outcome(s, c);
    refused(s, c, SLUICE_EENDED);
    granted(s, ASK(3, OTHER));
}

/* The votes for the request arrive after CANCEL was answered. */
STAGE_TEST(a_node_does_not_grant_what_it_knows_to_be_cancelled, 3)
{
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    uint64_t a = ASK(1, FIRST);
    assert_int_equal(cancel(s, 2), 2); /* A majority has voted for it. */
    flow(s);
    outcome(s, a);
    refused(s, a, SLUICE_EENDED);
    granted(s, ASK(3, OTHER));
}

STAGE_TEST(a_lease_that_was_cancelled_is_not_learned, 3)
{
    cut(s, 1, 3, SL_MESSAGE_ACQUIRE);
    hold(s, 1, 3, SL_MESSAGE_TEACH);
    granted(s, ASK(1, FIRST, .lease_ms = 5000));
    assert_int_equal(cancel(s, 2), 2);
    flow(s);
    assert_int_equal(acceptor_has(s, 3), 0);
}

/* Node 1 has a majority, but does not hear of it. */
STAGE_TEST(giving_up_does_not_end_a_lease_that_was_adopted, 3)
{
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    hold(s, 0, 1, SL_MESSAGE_TEACH);
    uint64_t a = ASK(1, FIRST, .lease_ms = 3000);
    const struct sl_grant *g = grant_of(s, ASK(2, FIRST, .lease_ms = 3000));
    assert_true(g->replay);
    withdraw(s, a);
    settle(s);
    for (sl_node_id at = 1; at <= 3; at++)
        assert_int_equal(acceptor_has(s, at), g->fence);
    flow(s);
    assert_int_equal(extend(s, 3, g->fence, 3000), SLUICE_OK);
}

/* Node 1 makes another attempt, under a higher fence. */
STAGE_TEST(another_attempt_does_not_replace_a_lease_that_was_adopted, 3)
{
    cut(s, 2, 1, SL_MESSAGE_VOTE);
    cut(s, 3, 1, SL_MESSAGE_VOTE);
    cut(s, 2, 1, SL_MESSAGE_TEACH);
    uint64_t a = ASK(1, FIRST, .lease_ms = 9000, .wait_ms = 8000);
    sl_fence fence = granted(s, ASK(2, FIRST, .lease_ms = 9000));
    flow(s);
    outcome(s, a);
    assert_int_equal(granted(s, a), fence);
    assert_true(grant_of(s, a)->replay);
}

/* Node 1 does not know that its attempt was adopted, and that the lease has expired. */
STAGE_TEST(no_attempt_is_granted_after_the_adopted_one_has_expired, 3)
{
    cut(s, 0, 1, SL_MESSAGE_VOTE);
    cut(s, 0, 1, SL_MESSAGE_TEACH);
    uint64_t a = ASK(1, FIRST, .lease_ms = 500, .wait_ms = 9000);
    granted(s, ASK(2, FIRST, .lease_ms = 500));
    pass(s, 510);
    open_all(s);
    outcome(s, a);
    refused(s, a, SLUICE_EENDED);
}

STAGE_TEST(an_attempt_without_a_majority_is_not_adopted, 5)
{
    cut(s, 1, 3, SL_MESSAGE_ACQUIRE);
    cut(s, 1, 4, SL_MESSAGE_ACQUIRE);
    cut(s, 1, 5, SL_MESSAGE_ACQUIRE);
    uint64_t a = ASK(1, FIRST, .lease_ms = 5000);
    kill_node(s, 1);
    open_all(s);
    const struct sl_grant *g = grant_of(s, ASK(3, FIRST, .lease_ms = 5000));
    assert_false(g->replay || answered(s, a));
    assert_int_equal(granted(s, ASK(4, FIRST, .lease_ms = 5000)), g->fence);
}

STAGE_TEST(a_repeated_request_does_not_wait_behind_others, 3)
{
    sl_fence fence = granted(s, ASK(1, FIRST, .lease_ms = 5000));
    uint64_t b = ASK(2, .wait_ms = 3000);
    waits(s, b);
    assert_int_equal(granted(s, ASK(2, FIRST, .lease_ms = 5000)), fence);
    assert_int_equal(granted(s, ASK(2, FIRST, .lease_ms = 5000, .wait_ms = 3000)),
                     fence);
    waits(s, b);
}

/* Otherwise the repeated request would wait behind OTHER, which waits for the lease of FIRST. */
STAGE_TEST(a_repeated_request_waits_for_the_node_that_knows_the_grant, 3)
{
    cut(s, 1, 2, SL_MESSAGE_ACQUIRE);
    cut(s, 1, 3, SL_MESSAGE_TEACH);
    cut(s, 1, 2, SL_MESSAGE_TEACH);
    sl_fence fence = granted(s, ASK(1, FIRST));
    uint64_t a = ASK(2, OTHER, .wait_ms = 60000);
    waits(s, a);
    hold(s, 1, 2, SL_MESSAGE_VOTE);
    uint64_t b = ASK(2, FIRST, .wait_ms = 60000);
    waits(s, b);
    open_all(s);
    const struct sl_grant *g = grant_of(s, b);
    assert_true(g->fence == fence && g->replay);
}

/* The node that made the grant was killed before the others knew that the lease is agreed. */
STAGE_TEST(a_repeated_request_says_that_an_earlier_one_may_hold_the_lock, 3)
{
    cut(s, 1, 0, SL_MESSAGE_TEACH);
    cut(s, 1, 3, SL_MESSAGE_ACQUIRE);
    granted(s, ASK(1, FIRST, .lease_ms = 9000));
    waits(s, ASK(2, OTHER, .wait_ms = 60000));
    kill_node(s, 1);
    open_all(s);
    uint64_t b = ASK(2, FIRST, .lease_ms = 9000);
    outcome(s, b);
    refused(s, b, SLUICE_ENOQUORUM);
    assert_non_null(strstr(answer_to(s, b)->reason, "an earlier request"));
    uint64_t c = ASK(2, FIRST, .lease_ms = 9000, .wait_ms = 20000);
    waits(s, c);
    pass(s, 9500);
    outcome(s, c); /* It does not wait forever. */
}

STAGE_TEST(a_request_keeps_its_position_for_linger, 3)
{
    sl_fence fence = granted(s, ASK(1, .lease_ms = 9000));
    uint64_t a = ASK(2, FIRST, .wait_ms = 60000, .lease_ms = 200);
    pass(s, 10);
    uint64_t b = ASK(2, .wait_ms = 60000, .lease_ms = 200);
    withdraw(s, a);
    pass(s, s->limits.linger_ms - 100);
    uint64_t again = ASK(2, FIRST, .wait_ms = 60000, .lease_ms = 200);
    assert_int_equal(release(s, 3, fence), 1);
    outcome(s, again);
    granted(s, again);
    assert_false(answered(s, b));
    outcome(s, b);
    granted(s, b);
}

STAGE_TEST(a_request_loses_its_position_after_linger, 3)
{
    sl_fence fence = granted(s, ASK(1, .lease_ms = 20000));
    uint64_t a = ASK(2, FIRST, .wait_ms = 60000, .lease_ms = 200);
    pass(s, 10);
    uint64_t b = ASK(2, .wait_ms = 60000, .lease_ms = 200);
    withdraw(s, a);
    pass(s, s->limits.linger_ms + 10);
    uint64_t again = ASK(2, FIRST, .wait_ms = 60000, .lease_ms = 200);
    assert_int_equal(release(s, 3, fence), 1);
    outcome(s, b);
    granted(s, b);
    assert_false(answered(s, again));
}

STAGE_TEST(attempts_at_one_node_share_a_position, 3)
{
    sl_fence fence = granted(s, ASK(1, .lease_ms = 20000));
    uint64_t a = ASK(2, FIRST, .wait_ms = 60000, .lease_ms = 5000),
             b = ASK(2, .wait_ms = 60000),
             again = ASK(2, FIRST, .wait_ms = 60000, .lease_ms = 5000),
             other = ASK(2, .request = {"the first one", 13}, .wait_ms = 60000);
    refused(s, other, SLUICE_EMISMATCH);
    assert_int_equal(release(s, 3, fence), 1);
    outcome(s, a);
    sl_fence next = granted(s, a);
    outcome(s, again);
    assert_int_equal(granted(s, again), next);
    assert_false(answered(s, b));
}

STAGE_TEST(a_grant_that_nobody_received_is_released, 3)
{
    sl_fence fence = granted(s, ASK(1, FIRST, .lease_ms = 9000));
    REQUEST(TAKE_BACK, 1, .fence = fence, .wait_ms = 1000);
    pass(s, 990);
    assert_int_equal(read_key(s, 2), fence);
    pass(s, 20);
    assert_int_equal(read_key(s, 2), 0);
    uint64_t b = ASK(3, FIRST);
    outcome(s, b);
    refused(s, b, SLUICE_EENDED);
}

STAGE_TEST(a_grant_that_was_adopted_is_not_taken_back, 3)
{
    sl_fence fence = granted(s, ASK(1, FIRST, .lease_ms = 9000));
    REQUEST(TAKE_BACK, 1, .fence = fence, .wait_ms = 1000);
    isolate(s, 3); /* It is not told that the lease was adopted. */
    assert_int_equal(granted(s, ASK(2, FIRST, .lease_ms = 9000)), fence);
    open_all(s);
    pass(s, 1010);
    assert_int_equal(check(s, 1, fence), 1);
    assert_int_equal(acceptor_has(s, 1), fence);
    assert_int_equal(acceptor_has(s, 2), fence);
}

STAGE_TEST(a_grant_that_was_extended_is_not_taken_back, 3)
{
    sl_fence fence = granted(s, ASK(1, FIRST, .lease_ms = 9000));
    REQUEST(TAKE_BACK, 1, .fence = fence, .wait_ms = 1000);
    assert_int_equal(extend(s, 2, fence, 9000), SLUICE_OK);
    pass(s, 1010);
    assert_int_equal(check(s, 1, fence), 1);
}

STAGE_TEST(a_node_that_was_killed_knows_the_id_and_that_the_lease_was_adopted, 3)
{
    sl_fence fence = granted(s, ASK(1, FIRST, .lease_ms = 30000));
    granted(s, ASK(2, FIRST, .lease_ms = 30000));
    for (sl_node_id id = 1; id <= 3; id++) restart_killed(s, id);
    pass(s, 300);
    REQUEST(TAKE_BACK, 1, .fence = fence);
    pass(s, 10);
    assert_int_equal(granted(s, ASK(3, FIRST, .lease_ms = 30000)), fence);
    assert_int_equal(cancel(s, 1), 2);
}

TEST(at_the_limit_the_id_that_ended_first_is_forgotten)
{
    struct sl_node_limits limits = stage_limits;
    limits.requests_max = 1;
    struct stage *s = stage_with(3, &limits);
    assert_int_equal(cancel(s, 1), 0);
    uint64_t a = ASK(1, FIRST), c = REQUEST(CANCEL, 2, OTHER);
    outcome(s, a);
    refused(s, a, SLUICE_EENDED);
    outcome(s, c);
    uint64_t b = ASK(1, OTHER);
    outcome(s, b);
    refused(s, b, SLUICE_EENDED);
    granted(s, ASK(1, FIRST));
    stage_end(s);
}

TEST(without_memory_for_ids_requests_with_an_id_are_rejected)
{
    struct sl_node_limits limits = stage_limits;
    limits.requests_max = 0;
    struct stage *s = stage_with(3, &limits);
    uint64_t b = ASK(1, OTHER), c = REQUEST(CANCEL, 2, OTHER);
    outcome(s, b);
    refused(s, b, SLUICE_EREQUESTS);
    outcome(s, c);
    refused(s, c, SLUICE_EREQUESTS);
    granted(s, ASK(1));
    stage_end(s);
}

TEST_MAIN(NULL, NULL)
