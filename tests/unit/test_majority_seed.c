/* test_majority_seed.c - interleavings that gave an older system of leases two holders, or
 * none: L1 .. L16, each with the same schedule against our nodes. (L6 was about something
 * that we do not have.)
 *
 * There a client asked the nodes itself; here node 1 asks for A, node 2 or 3 for B. Each
 * has a mutant, tests/mutants/majority-*.patch, without the rule that it needs. */
#include <stdlib.h>

#include "majority_stage.h"
#include "test_main.h"

/* Their clocks are a minute ahead, or right again: then fences that were taken before are
 * above those that follow, and not refused for being low. */
static void set_clocks(struct stage *s, bool ahead)
{
    for (sl_node_id id = 1; id <= 3; id++)
        s->actor[id].wall_offset_us = ahead ? 60000000 : 0;
    pass(s, 200); /* They have told each other. */
    if (ahead) warm_up(s, 1);
}

/* Node 1 asks for A, and what it sends is kept. */
static uint64_t ask_and_keep(struct stage *s, sl_ms lease_ms)
{
    hold(s, 1, 0, SL_MESSAGE_ACQUIRE);
    return ASK(1, .lease_ms = lease_ms, .priority = 9); /* That shall not help. */
}

/* A takes it by nodes 1 and 2; node 3 hears nothing of it. */
static uint64_t take_without_3(struct stage *s, sl_ms lease_ms)
{
    cut(s, 1, 3, SL_MESSAGE_NONE);
    uint64_t a = ASK(1, .lease_ms = lease_ms);
    granted(s, a);
    pass(s, 1);
    open_all(s);
    assert_int_equal(acceptor_has(s, 3), 0);
    return a;
}

/* As long as A believes nobody gets it, at any of the nodes; then somebody does. */
static void only_after(struct stage *s, uint64_t a, sl_node_id first, sl_node_id last)
{
    while (believes(s, a)) {
        for (sl_node_id at = first; at <= last; at++) {
            uint64_t b = ASK(at, .lease_ms = 100);
            outcome(s, b);
            if (believes(s, a)) not_granted(s, b);
        }
        pass(s, 97);
    }
    uint64_t b = ASK(first, .wait_ms = 30000);
    outcome(s, b);
    granted(s, b);
}

/* A's requests are sent, and are 12 s late; B has had it for some time. */
STAGE_TEST(L1_a_late_commit_is_refused, 3)
{
    set_clocks(s, true);
    uint64_t a = ask_and_keep(s, 10000);
    stop(s, 1);
    set_clocks(s, false);
    pass(s, 12000);
    sl_fence b = take(s, 2, 10000);
    deliver(s, 1, 2, SL_MESSAGE_ACQUIRE);
    deliver(s, 1, 3, SL_MESSAGE_ACQUIRE);
    assert_int_equal(acceptor_has(s, 2), b);
    assert_int_equal(acceptor_has(s, 3), b);
    open_all(s);
    go(s, 1);
    outcome(s, a);
    not_granted(s, a);
    assert_int_equal(extend(s, 2, b, 10000), SLUICE_OK);
}

/* Only one node hears of A. */
STAGE_TEST(L2_a_partial_commit_is_no_grant, 3)
{
    cut(s, 1, 0, SL_MESSAGE_ACQUIRE);
    uint64_t a = ASK(1, .lease_ms = 10000);
    outcome(s, a);
    refused(s, a, SLUICE_ENOQUORUM);
    assert_int_equal(answer_to(s, a)->needed, 2);
    assert_int_equal(answer_to(s, a)->members, 3);
    take(s, 2, 10000);
}

/* An extension reaches one node: A's end is the old one, when B comes. */
STAGE_TEST(L3_an_extension_without_a_majority_does_not_extend_the_lease, 3)
{
    sl_fence a = take(s, 1, 3000);
    int64_t began_us = s->now_us;
    pass(s, 2000);
    cut(s, 1, 0, SL_MESSAGE_RENEW);
    uint64_t e = REQUEST(EXTEND, 1, .fence = a, .lease_ms = 3000);
    outcome(s, e);
    refused(s, e, SLUICE_ENOQUORUM);
    assert_true(believes(s, 1));
    uint64_t b = ASK(2, .wait_ms = 5000);
    waits(s, b);
    outcome(s, b);
    granted(s, b);
    assert_true(s->now_us - began_us >= 2994000);
    assert_true(s->now_us - began_us < 3500000);
}

/* A's extension comes when its lease is over and B has it. */
STAGE_TEST(L4_a_zombie_s_extension_is_refused, 3)
{
    sl_fence a = take(s, 1, 3000);
    pass(s, 1000);
    hold(s, 1, 0, SL_MESSAGE_RENEW);
    uint64_t e = REQUEST(EXTEND, 1, .fence = a, .lease_ms = 3000);
    stop(s, 1);
    pass(s, 13000);
    sl_fence b = take(s, 2, 20000);
    assert_true(b > a);
    deliver(s, 1, 2, SL_MESSAGE_RENEW);
    deliver(s, 1, 3, SL_MESSAGE_RENEW);
    open_all(s);
    go(s, 1);
    outcome(s, e);
    not_granted(s, e);
    assert_int_equal(extend(s, 1, a, 3000), SLUICE_ELOST);
    assert_int_equal(acceptor_has(s, 2), b);
    assert_int_equal(acceptor_has(s, 3), b);
    assert_int_equal(extend(s, 2, b, 20000), SLUICE_OK);
}

/* A releases and takes it again; then copies of its old release arrive. */
STAGE_TEST(L5_an_old_release_clears_nothing_new, 3)
{
    sl_fence a = take(s, 1, 10000);
    hold(s, 1, 0, SL_MESSAGE_RELEASE);
    REQUEST(RELEASE, 1, .fence = a);
    again(s, 1, 2, SL_MESSAGE_RELEASE); /* The duplicate stays. */
    sl_fence a2 = take(s, 1, 10000);
    assert_int_equal(acceptor_has(s, 2), a2);
    deliver(s, 1, 2, SL_MESSAGE_RELEASE);
    deliver(s, 1, 3, SL_MESSAGE_RELEASE);
    assert_int_equal(acceptor_has(s, 2), a2);
    uint64_t b = ASK(3, .lease_ms = 10000);
    outcome(s, b);
    refused(s, b, SLUICE_EFULL);
}

/* The same without a duplicate: the release is late at one node, and node 1 has forgotten. */
STAGE_TEST(L5_an_old_release_of_a_lost_copy_clears_nothing_new, 3)
{
    sl_fence a = take(s, 1, 10000);
    hold(s, 1, 0, SL_MESSAGE_RELEASE);
    REQUEST(RELEASE, 1, .fence = a);
    deliver(s, 1, 3, SL_MESSAGE_RELEASE); /* The one to node 2 is late. */
    pass(s, 11000);
    sl_fence a2 = take(s, 1, 10000);
    assert_int_equal(acceptor_has(s, 2), a2);
    deliver(s, 1, 2, SL_MESSAGE_RELEASE);
    assert_int_equal(acceptor_has(s, 2), a2);
    outcome(s, ASK(3, .lease_ms = 10000));
    refused(s, s->requests, SLUICE_EFULL);
}

/* A's first attempt fails, and is given up; its second one is granted. Then the old releases
 * arrive. */
STAGE_TEST(L5_an_old_release_of_an_attempt_clears_nothing_new, 3)
{
    cut(s, 0, 1, SL_MESSAGE_VOTE);
    hold(s, 1, 0, SL_MESSAGE_RELEASE);
    uint64_t a = ASK(1, .lease_ms = 10000, .wait_ms = 5000);
    for (int i = 0; kept(s, 1, 0, SL_MESSAGE_RELEASE) < 2 && i < 1000; i++) pass(s, 1);
    open_all(s);
    hold(s, 1, 0, SL_MESSAGE_RELEASE);
    granted(s, a);
    deliver_all(s, 1, 0, SL_MESSAGE_RELEASE);
    for (sl_node_id id = 1; id <= 3; id++)
        assert_int_equal(acceptor_has(s, id), answer_to(s, a)->grant.fence);
    not_granted(s, ASK(3, .lease_ms = 10000));
}

/* A holds by nodes 1 and 2, and node 2 forgets. */
STAGE_TEST(L7_a_node_that_forgot_is_silent, 3)
{
    uint64_t a = take_without_3(s, 5000);
    restart(s, 2);
    uint64_t b = ASK(3, .lease_ms = 5000);
    outcome(s, b);
    not_granted(s, b);
    only_after(s, a, 2, 3);
}

/* A holds by two of three nodes, and there are five soon. */
STAGE_TEST(L8_added_nodes_cannot_form_a_second_majority, 3)
{
    uint64_t a = take_without_3(s, 10000);
    cut(s, 0, 0, SL_MESSAGE_TEACH); /* Lessons may be lost: nothing depends on them. */
    start(s, 4);
    start(s, 5);
    outcome(s, add_node(s, 3, 4));
    outcome(s, add_node(s, 3, 5));
    outcome(s, add_node(s, 4, 5));
    only_after(s, a, 3, 4);
}

/* Two seconds are two seconds, whenever in a second they begin. */
TEST(L9_no_lease_ends_early)
{
    for (sl_ms at = 0; at < 1000; at += 100) {
        struct stage *s = stage_new(3);
        run_at(s, 1, -1000);
        run_at(s, 2, 1000);
        run_at(s, 3, 1000);
        s->client_ppm = -1000;
        pass(s, 1000 - now_ms(s) % 1000 + at);
        uint64_t a = ASK(1, .lease_ms = 2000);
        granted(s, a);
        uint64_t b = ASK(3, .wait_ms = 5000);
        outcome(s, b);
        granted(s, b);
        assert_true(s->request[b].granted_us >= s->request[a].end_us);
        assert_true(s->request[b].granted_us - s->request[a].sent_us >= 1996000);
        stage_end(s);
    }
}

/* The clocks on the wall step an hour back, or forth. */
TEST(L10_a_clock_that_steps_changes_nothing)
{
    const int64_t hour_us = 3600000000;
    for (int back = 0; back < 2; back++) {
        struct stage *s = stage_new(3);
        for (sl_node_id id = 1; id <= 3; id++)
            s->actor[id].wall_offset_us = 2 * hour_us;
        sl_fence a = take(s, 1, 5000);
        for (sl_node_id id = 1; id <= 3; id++)
            s->actor[id].wall_offset_us = back ? hour_us : 3 * hour_us;
        pass(s, 4000);
        uint64_t b = ASK(2);
        outcome(s, b);
        refused(s, b, SLUICE_EFULL);
        assert_int_equal(extend(s, 1, a, 5000), SLUICE_OK);
        pass(s, 4000);
        assert_int_equal(check(s, 3, a), 1);
        assert_int_equal(release(s, 1, a), 1);
        assert_true(take(s, 2, 1000) > a);
        stage_end(s);
    }
}

/* As L1, but nobody stops: the network is late. A was told that it has nothing. */
STAGE_TEST(L11_a_delayed_request_is_refused, 3)
{
    set_clocks(s, true);
    uint64_t a = ask_and_keep(s, 60000);
    set_clocks(s, false);
    outcome(s, a);
    refused(s, a, SLUICE_ENOQUORUM);
    sl_fence b = take(s, 2, 10000);
    deliver_all(s, 1, 0, SL_MESSAGE_ACQUIRE);
    assert_int_equal(acceptor_has(s, 2), b);
    assert_int_equal(acceptor_has(s, 3), b);
    assert_int_equal(release(s, 2, b), 1);
    take(s, 3, 1000); /* And there is no trace of A's. */
}

/* Yes, said the acceptors; but A hears of it when its lease is over. */
STAGE_TEST(L12_a_lease_counts_from_before_it_was_asked_for, 3)
{
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    uint64_t a = ASK(1, .lease_ms = 200);
    stop(s, 1);
    pass(s, 201);
    sl_fence b = take(s, 2, 1000);
    open_all(s);
    go(s, 1);
    outcome(s, a);
    not_granted(s, a);
    assert_int_equal(acceptor_has(s, 3), b);
}

/* One that waited: it counts from its sending too, with what it waited. */
STAGE_TEST(L12_a_grant_tells_how_long_it_waited, 3)
{
    take(s, 2, 3000);
    uint64_t a = ASK(1, .lease_ms = 1000, .wait_ms = 10000);
    outcome(s, a);
    granted(s, a);
    const struct request *r = &s->request[a];
    assert_true(r->end_us <= s->now_us + 1000000);
    assert_true(r->end_us >= s->now_us + 900000);
    uint64_t b = ASK(3, .wait_ms = 10000);
    outcome(s, b);
    granted(s, b);
}

STAGE_TEST(L13_what_is_over_takes_no_value, 3)
{
    uint64_t a = ASK(1, .lease_ms = 1000, .value = {"old", 3});
    sl_fence fence = granted(s, a);
    pass(s, 1001);
    uint64_t e = REQUEST(EXTEND, 1, .fence = fence, .value = {"new", 3});
    outcome(s, e);
    refused(s, e, SLUICE_ELOST);
    assert_int_equal(read_key(s, 2), 0);
    for (sl_node_id id = 1; id <= 3; id++) {
        assert_int_equal(acceptor_has(s, id), 0);
        assert_int_equal(copy_at(s, id), 0);
    }
}

/* Who crashes while it asks: no longer than its lease. */
STAGE_TEST(L14_who_crashes_while_asking_blocks_no_longer_than_its_lease, 3)
{
    cut(s, 1, 3, SL_MESSAGE_ACQUIRE);
    hold(s, 2, 1, SL_MESSAGE_VOTE);
    ASK(1, .lease_ms = 500);
    crash(s, 1);
    flow(s);
    assert_true(acceptor_has(s, 2) != 0);
    int64_t began_us = s->now_us;
    uint64_t b = ASK(3, .wait_ms = 5000);
    outcome(s, b);
    granted(s, b);
    assert_true(s->now_us - began_us <= 1000000);
}

STAGE_TEST(L14_who_asks_in_vain_does_not_block_the_holder_s_extension, 3)
{
    sl_fence a = take(s, 1, 1000);
    ASK(3, .priority = 9);
    hold(s, 3, 0, SL_MESSAGE_RELEASE);
    ASK(3, .priority = 9, .wait_ms = 1000);
    crash(s, 3);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
    pass(s, 500);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
}

/* An attempt is given up before its request arrives. */
STAGE_TEST(L15_an_attempt_that_arrives_after_its_abort_has_no_effect, 3)
{
    uint64_t a = ask_and_keep(s, 10000);
    outcome(s, a);
    not_granted(s, a);
    deliver_all(s, 1, 0, SL_MESSAGE_ACQUIRE);
    for (sl_node_id id = 1; id <= 3; id++) assert_int_equal(acceptor_has(s, id), 0);
    granted(s, ASK(2));
}

/* The operator puts an empty node in the place of one that had a copy. */
STAGE_TEST(L16_an_empty_node_has_no_vote_for_what_it_does_not_know, 3)
{
    uint64_t a = take_without_3(s, 10000);
    cut(s, 0, 0, SL_MESSAGE_TEACH); /* Lessons may be lost: nothing depends on them. */
    restart_empty(s, 2);
    outcome(s, remove_node(s, 3, 2));
    outcome(s, add_node(s, 3, 2));
    only_after(s, a, 3, 3);
}

TEST_MAIN(NULL, NULL)
