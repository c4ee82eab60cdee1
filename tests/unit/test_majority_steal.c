/* test_majority_steal.c - stealing from a majority: P1 .. P25, the edge cases of a theft, as
 * far as they are about nodes (docs/stealing.md); entering early; and the two ways in which
 * a thief could wait forever.
 *
 * A holds through node 1, its session is 1; thieves ask at nodes 2 and 3. */
#include <stdlib.h>

#include "majority_stage.h"
#include "test_main.h"

static uint64_t hold_a(struct stage *s, sl_ms lease_ms)
{
    uint64_t a = ASK(1, .lease_ms = lease_ms, .session = 1, .note = {"backup", 6});
    granted(s, a);
    return a;
}

static sl_fence fence_of(struct stage *s, uint64_t request)
{
    return granted(s, request);
}

/* So long it took from the request to the grant. */
static sl_ms took_ms(const struct stage *s, uint64_t request)
{
    const struct request *r = &s->request[request];
    return (r->granted_us - r->sent_us) / 1000;
}

STAGE_TEST(a_holder_is_asked_releases_and_the_thief_is_in, 3)
{
    uint64_t a = hold_a(s, 5000);
    sl_fence fence = fence_of(s, a);
    pass(s, 100);
    uint64_t b = ASK(2, THIEF, .priority = 5, .session = 9);
    waits(s, b);
    for (sl_node_id id = 1; id <= 3; id++)
        assert_int_equal(events(s, id, SL_NODE_EVENT_ASKED, fence), 1);
    const struct sl_node_event *e = last_event(s, 1, SL_NODE_EVENT_ASKED);
    assert_int_equal(e->session, 1);
    assert_int_equal(e->priority, 5);
    assert_int_equal(e->left_ms, 4900);
    assert_int_equal(last_event(s, 2, SL_NODE_EVENT_ASKED)->session, 0);
    assert_int_equal(events(s, 2, SL_NODE_EVENT_WAITS, fence), 1);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_WAITS, 0), 0);
    assert_int_equal(last_event(s, 2, SL_NODE_EVENT_WAITS)->session, 9);
    assert_int_equal(extend(s, 1, fence, 5000), SLUICE_EASKED);
    pass(s, 20);
    assert_int_equal(release(s, 1, fence), 1);
    assert_int_equal(last_event(s, 1, SL_NODE_EVENT_RELEASED)->asked_ms, 20);
    outcome(s, b);
    assert_true(granted(s, b) > fence);
    assert_true(took_ms(s, b) <= 40);
    assert_false(answer_to(s, b)->grant.overlapping);
    assert_int_equal(extend(s, 2, granted(s, b), 1000), SLUICE_OK);
    for (sl_node_id id = 1; id <= 3;
         id++) { /* After the expiry of a holder that was asked. */
        assert_int_equal(events(s, id, SL_NODE_EVENT_STOLEN, 0), 1);
        assert_false(last_event(s, id, SL_NODE_EVENT_STOLEN)->overlapping);
    }
}

STAGE_TEST(priority_alone_does_not_steal, 3)
{
    uint64_t a = hold_a(s, 1000);
    ASK(2, .wait_ms = 5000, .priority = 9);
    assert_int_equal(extend(s, 1, fence_of(s, a), 1000), SLUICE_OK);
    assert_int_equal(events(s, 0, SL_NODE_EVENT_ASKED, 0), 0);
}

STAGE_TEST(a_read_reports_the_thief, 3)
{
    hold_a(s, 5000);
    ASK(2, THIEF, .priority = 5);
    uint64_t v = REQUEST(VOTES, 3);
    outcome(s, v);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(answer_to(s, v)->copies[i].reserved);
        assert_int_equal(answer_to(s, v)->copies[i].wanted, 5);
    }
}

/* The thief's node dies with its reservation on all nodes. A keeps what it has, cannot
 * extend for a while, and nobody enters before its end. */
STAGE_TEST(P1_the_thief_crashes_after_its_reservation, 3)
{
    uint64_t a = hold_a(s, 3000);
    ASK(2, THIEF, .priority = 5);
    crash(s, 2);
    assert_int_equal(extend(s, 1, fence_of(s, a), 3000), SLUICE_EASKED);
    while (believes(s, a)) {
        not_granted(s, ASK(3));
        assert_int_equal(check(s, 1, fence_of(s, a)), 1);
        pass(s, 50);
    }
    uint64_t again_a = ASK(1, .wait_ms = 10000);
    outcome(s, again_a);
    granted(s, again_a);
    assert_true(took_ms(s, again_a) <= 5000);
}

/* And when nobody holds it: all may have it when the reservation is over. */
STAGE_TEST(P2_the_thief_crashes_after_the_release, 3)
{
    uint64_t a = hold_a(s, 2000);
    hold(s, 1, 2, SL_MESSAGE_NONE);
    hold(s, 3, 2, SL_MESSAGE_NONE);
    ASK(2, THIEF, .priority = 5);
    crash(s, 2);
    assert_int_equal(release(s, 1, fence_of(s, a)), 1);
    open_all(s);
    uint64_t b = ASK(3, .wait_ms = 20000);
    outcome(s, b);
    granted(s, b);
    assert_true(took_ms(s, b) <= 7000);
}

STAGE_TEST(P3_the_thief_crashes_when_it_has_it, 3)
{
    uint64_t a = hold_a(s, 5000);
    uint64_t b = ASK(2, THIEF, .priority = 5, .lease_ms = 1000);
    release(s, 1, fence_of(s, a));
    outcome(s, b);
    granted(s, b);
    crash(s, 2);
    uint64_t c = ASK(3, .wait_ms = 10000);
    outcome(s, c);
    granted(s, c);
    assert_true(took_ms(s, c) >= 990);
    assert_true(took_ms(s, c) <= 1600);
}

STAGE_TEST(P4_a_victim_that_cannot_be_reached_is_waited_for, 3)
{
    uint64_t a = hold_a(s, 2000);
    stop(s, 1);
    uint64_t b = ASK(2, THIEF, .priority = 5, .lease_ms = 60000);
    pass(s, 1990);
    waits(s, b);
    outcome(s, b);
    granted(s, b);
    assert_true(took_ms(s, b) <= 2500);
    go(s, 1);
    assert_int_equal(extend(s, 1, fence_of(s, a), 2000), SLUICE_ELOST);
}

/* The victim's node does not hear of the theft at first; the thief asks again. */
STAGE_TEST(P5_asking_is_repeated, 3)
{
    uint64_t a = hold_a(s, 10000);
    cut(s, 2, 1, SL_MESSAGE_NONE);
    uint64_t b = ASK(2, THIEF, .priority = 5);
    pass(s, 100);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_ASKED, 0), 0);
    open_all(s);
    pass(s, 3000);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_ASKED, fence_of(s, a)), 1);
    release(s, 1, fence_of(s, a));
    outcome(s, b);
    granted(s, b);
}

STAGE_TEST(P6_a_majority_that_heard_of_the_release_is_enough, 3)
{
    uint64_t a = hold_a(s, 60000);
    uint64_t b = ASK(2, THIEF, .priority = 5);
    cut(s, 1, 3, SL_MESSAGE_NONE);
    release(s, 1, fence_of(s, a));
    outcome(s, b);
    granted(s, b);
    assert_true(took_ms(s, b) <= 1000);
}

/* The release reaches node 1 alone, where the thief hears that A is gone; but two acceptors say
 * that it is held. */
STAGE_TEST(P7_the_thief_does_not_act_on_the_victim_s_word, 3)
{
    uint64_t a = hold_a(s, 2000);
    cut(s, 1, 2, SL_MESSAGE_RELEASE);
    cut(s, 1, 3, SL_MESSAGE_RELEASE);
    uint64_t b = ASK(2, THIEF, .priority = 5);
    REQUEST(RELEASE, 1, .fence = fence_of(s, a));
    assert_int_equal(acceptor_has(s, 1), 0);
    pass(s, 1500);
    waits(s, b);
    outcome(s, b);
    granted(s, b);
    assert_true(took_ms(s, b) >= 1990);
}

STAGE_TEST(P8_a_higher_thief_comes_before_the_first, 3)
{
    uint64_t a = hold_a(s, 10000);
    uint64_t b = ASK(2, THIEF, .priority = 5, .lease_ms = 500);
    pass(s, 50);
    uint64_t c = ASK(3, THIEF, .priority = 9, .lease_ms = 500);
    pass(s, 200);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_ASKED, fence_of(s, a)), 1);
    release(s, 1, fence_of(s, a));
    outcome(s, c);
    granted(s, c);
    waits(s, b);
    outcome(s, b);
    granted(s, b);
}

/* A releases while the thief's request is on its way: there is nobody to ask. */
STAGE_TEST(P9_the_victim_releases_in_the_same_moment, 3)
{
    uint64_t a = hold_a(s, 10000);
    hold(s, 2, 1, SL_MESSAGE_ACQUIRE);
    hold(s, 2, 3, SL_MESSAGE_ACQUIRE);
    uint64_t b = ASK(2, THIEF, .priority = 5);
    release(s, 1, fence_of(s, a));
    flow(s);
    outcome(s, b);
    granted(s, b);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_ASKED, 0), 0);
    assert_int_equal(release(s, 1, fence_of(s, a)), 0);
}

/* A has it again; a message of an earlier thief, which has left, arrives. */
STAGE_TEST(P10_a_late_theft_does_not_hit_a_new_hold, 3)
{
    uint64_t a = hold_a(s, 10000);
    hold(s, 2, 1, SL_MESSAGE_ACQUIRE);
    hold(s, 2, 3, SL_MESSAGE_ACQUIRE);
    uint64_t b = ASK(2, THIEF_FOR(100), .priority = 5);
    outcome(s, b);
    not_granted(s, b);
    release(s, 1, fence_of(s, a));
    pass(s, 10);
    a = hold_a(s, 10000);
    flow(s);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_ASKED, fence_of(s, a)), 0);
    assert_int_equal(extend(s, 1, fence_of(s, a), 10000), SLUICE_OK);
}

STAGE_TEST(P11_the_victim_s_lease_ends_meanwhile, 3)
{
    uint64_t a = hold_a(s, 1000);
    uint64_t b = ASK(2, THIEF, .priority = 5, .lease_ms = 10000);
    outcome(s, b);
    granted(s, b);
    pass(s, 2000);
    for (sl_node_id id = 1; id <= 3; id++) {
        assert_int_equal(events(s, id, SL_NODE_EVENT_EXPIRED, fence_of(s, a)), 1);
        assert_int_equal(events(s, id, SL_NODE_EVENT_STOLEN, fence_of(s, a)), 1);
        assert_false(last_event(s, id, SL_NODE_EVENT_STOLEN)->overlapping);
        assert_int_equal(events(s, id, SL_NODE_EVENT_RELEASED, 0), 0);
    }
    assert_int_equal(extend(s, 1, fence_of(s, a), 1000), SLUICE_ELOST);
}

STAGE_TEST(P12_the_thief_s_time_is_over, 3)
{
    uint64_t a = hold_a(s, 10000);
    int64_t began_us = s->now_us;
    uint64_t b = ASK(2, THIEF_FOR(500), .priority = 5);
    outcome(s, b);
    refused(s, b, SLUICE_EFULL);
    assert_int_equal((s->now_us - began_us) / 1000, 501); /* Clocks are rounded down. */
    for (sl_node_id id = 1; id <= 3; id++)
        assert_int_equal(events(s, id, SL_NODE_EVENT_WITHDRAWN, fence_of(s, a)), 1);
    assert_int_equal(extend(s, 1, fence_of(s, a), 10000), SLUICE_OK);
}

STAGE_TEST(P12_the_thief_s_client_hangs_up, 3)
{
    uint64_t a = hold_a(s, 10000);
    uint64_t b = ASK(2, THIEF, .priority = 5);
    pass(s, 100);
    withdraw(s, b);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_WITHDRAWN, fence_of(s, a)), 1);
    assert_int_equal(extend(s, 1, fence_of(s, a), 10000), SLUICE_OK);
}

STAGE_TEST(P13_equal_priority_asks_nobody, 3)
{
    uint64_t a = ASK(1, .priority = 5);
    sl_fence fence = granted(s, a);
    ASK(2, THIEF, .priority = 5);
    assert_int_equal(events(s, 0, SL_NODE_EVENT_ASKED, 0), 0);
    assert_int_equal(extend(s, 1, fence, 1000), SLUICE_OK);
}

STAGE_TEST(P14_lower_priority_asks_nobody, 3)
{
    uint64_t a = ASK(1, .priority = 5);
    sl_fence fence = granted(s, a);
    ASK(2, THIEF, .priority = -5);
    assert_int_equal(events(s, 0, SL_NODE_EVENT_ASKED, 0), 0);
    assert_int_equal(extend(s, 1, fence, 1000), SLUICE_OK);
}

STAGE_TEST(P17_the_first_of_two_equal_thieves_has_it_first, 3)
{
    uint64_t a = hold_a(s, 60000);
    uint64_t b = ASK(2, THIEF_FOR(30000), .priority = 5, .lease_ms = 500);
    uint64_t c = ASK(3, THIEF_FOR(30000), .priority = 5, .lease_ms = 500);
    pass(s, 1000);
    release(s, 1, fence_of(s, a));
    outcome(s, b);
    granted(s, b);
    waits(s, c);
    outcome(s, c);
    granted(s, c);
}

/* Each of them has reserved it at its own node, and then at some of the others: whichever
 * way they are split, both have it soon, one after the other. */
TEST(P17_split_reservations_do_not_last)
{
    for (uint32_t way = 0; way < 8; way++) {
        struct stage *s = stage_new(5);
        uint64_t a = hold_a(s, 10000);
        hold(s, 4, 0, SL_MESSAGE_ACQUIRE);
        hold(s, 5, 0, SL_MESSAGE_ACQUIRE);
        uint64_t b = ASK(4, THIEF_FOR(60000), .priority = 5, .lease_ms = 300);
        uint64_t c = ASK(5, THIEF_FOR(60000), .priority = 5, .lease_ms = 300);
        for (sl_node_id id = 1; id <= 3; id++)
            deliver(s, way >> (id - 1) & 1 ? 4 : 5, id, SL_MESSAGE_ACQUIRE);
        flow(s);
        pass(s, 100);
        release(s, 1, fence_of(s, a));
        outcome(s, b);
        outcome(s, c);
        granted(s, b);
        granted(s, c);
        assert_true(took_ms(s, b) < 12000);
        assert_true(took_ms(s, c) < 12000);
        stage_end(s);
    }
}

STAGE_TEST(P18_a_reservation_of_a_minority_stops_nobody, 5)
{
    uint64_t a = hold_a(s, 1000);
    for (sl_node_id id = 1; id <= 3; id++) cut(s, 5, id, SL_MESSAGE_ACQUIRE);
    ASK(5, THIEF_FOR(60000), .priority = 5);
    for (int i = 0; i < 10; i++) {
        pass(s, 500);
        assert_int_equal(extend(s, 1, fence_of(s, a), 1000), SLUICE_OK);
    }
    assert_true(believes(s, a));
}

/* But three of five do. */
STAGE_TEST(P18_a_blocking_set_is_enough, 5)
{
    uint64_t a = hold_a(s, 1000);
    for (sl_node_id id = 1; id <= 2; id++) cut(s, 5, id, SL_MESSAGE_ACQUIRE);
    uint64_t b = ASK(5, THIEF_FOR(60000), .priority = 5);
    assert_int_equal(extend(s, 1, fence_of(s, a), 1000), SLUICE_EASKED);
    outcome(s, b);
    granted(s, b);
    assert_true(took_ms(s, b) < 2000);
}

TEST(P19_extension_and_theft_in_one_moment)
{
    for (int thief_first = 0; thief_first < 2; thief_first++) {
        struct stage *s = stage_new(3);
        uint64_t a = hold_a(s, 1000);
        pass(s, 500);
        hold(s, 0, 0, SL_MESSAGE_ACQUIRE);
        hold(s, 0, 0, SL_MESSAGE_RENEW);
        hold(s, 0, 0, SL_MESSAGE_VOTE);
        uint64_t e = REQUEST(EXTEND, 1, .fence = fence_of(s, a), .lease_ms = 1000);
        uint64_t b = ASK(2, THIEF, .priority = 5);
        /* Node 2 is reserved, node 1 is extended; node 3 decides. */
        deliver(s, thief_first ? 2 : 1, 3,
                thief_first ? SL_MESSAGE_ACQUIRE : SL_MESSAGE_RENEW);
        flow(s);
        outcome(s, e);
        refused(s, e, thief_first ? SLUICE_EASKED : SLUICE_OK);
        outcome(s, b);
        granted(s, b);
        assert_true(took_ms(s, b) <= 1500);
        stage_end(s);
    }
}

/* When the thief's request arrives another client has it, with a higher or a lower priority. */
TEST(P20_a_late_theft_is_judged_by_who_holds_now)
{
    for (int32_t priority = 3; priority <= 7; priority += 4) {
        struct stage *s = stage_new(3);
        uint64_t a = hold_a(s, 10000);
        hold(s, 2, 0, SL_MESSAGE_ACQUIRE);
        ASK(2, THIEF, .priority = 5);
        release(s, 1, fence_of(s, a));
        uint64_t c = ASK(3, .lease_ms = 10000, .priority = priority, .wait_ms = 1000);
        outcome(s, c);
        sl_fence fence = granted(s, c);
        flow(s);
        pass(s, 300); /* The thief's fence may have been low, and it asks again. */
        bool asked = priority < 5;
        assert_int_equal(extend(s, 3, fence, 10000), asked ? SLUICE_EASKED : SLUICE_OK);
        assert_int_equal(events(s, 3, SL_NODE_EVENT_ASKED, fence), asked);
        stage_end(s);
    }
}

/* Requests of attempts that are over, and their votes, come again and again. */
STAGE_TEST(P21_a_finished_attempt_comes_again, 3)
{
    hold(s, 1, 2, SL_MESSAGE_ACQUIRE);
    hold(s, 1, 3, SL_MESSAGE_ACQUIRE);
    uint64_t a = ASK(1, .lease_ms = 5000);
    again(s, 1, 2, SL_MESSAGE_ACQUIRE);
    again(s, 1, 3, SL_MESSAGE_ACQUIRE);
    sl_fence fence = granted(s, a);
    pass(s, 1000);
    again(s, 1, 2, SL_MESSAGE_ACQUIRE); /* While it is held: nothing. */
    assert_int_equal(release(s, 1, fence), 1);
    again(s, 1, 2, SL_MESSAGE_ACQUIRE);
    again(s, 1, 3, SL_MESSAGE_ACQUIRE);
    for (sl_node_id id = 1; id <= 3; id++) assert_int_equal(acceptor_has(s, id), 0);
    sl_fence b = take(s, 2, 1000);
    again(s, 1, 2, SL_MESSAGE_ACQUIRE);
    again(s, 1, 3, SL_MESSAGE_ACQUIRE);
    assert_int_equal(acceptor_has(s, 3), b);
}

/* A duplicate of an extension may make a lease longer that is there, and no other. */
STAGE_TEST(P21_an_extension_comes_again, 3)
{
    uint64_t a = hold_a(s, 1000);
    hold(s, 1, 2, SL_MESSAGE_RENEW);
    hold(s, 1, 3, SL_MESSAGE_RENEW);
    uint64_t e = REQUEST(EXTEND, 1, .fence = fence_of(s, a), .lease_ms = 1000);
    again(s, 1, 2, SL_MESSAGE_RENEW);
    again(s, 1, 3, SL_MESSAGE_RENEW);
    refused(s, e, SLUICE_OK);
    pass(s, 1001);
    again(s, 1, 2, SL_MESSAGE_RENEW);
    again(s, 1, 3, SL_MESSAGE_RENEW);
    for (sl_node_id id = 1; id <= 3; id++) assert_int_equal(acceptor_has(s, id), 0);
    granted(s, ASK(2));
}

STAGE_TEST(P22_an_extension_does_not_change_the_priority, 3)
{
    uint64_t a = ASK(1, .priority = 5);
    sl_fence fence = granted(s, a);
    assert_int_equal(outcome(s, REQUEST(EXTEND, 2, .fence = fence, .priority = -5)),
                     SLUICE_OK);
    ASK(3, THIEF, .priority = 4);
    assert_int_equal(events(s, 0, SL_NODE_EVENT_ASKED, 0), 0);
}

STAGE_TEST(P23_a_victim_that_does_not_care_is_waited_for_until_its_end, 3)
{
    uint64_t a = hold_a(s, 2000);
    pass(s, 500);
    uint64_t b = ASK(3, THIEF, .priority = 5);
    outcome(s, b);
    granted(s, b);
    assert_true(took_ms(s, b) >= 1490);
    assert_true(took_ms(s, b) <= 1800);
    assert_int_equal(release(s, 1, fence_of(s, a)), 0);
}

/* Two of the five that had the reservation forget it. The thief asks again; and A, whose
 * extensions they may let pass when their silence is over, is in the end refused. */
STAGE_TEST(P24_a_restart_loses_a_reservation_and_the_thief_asks_again, 5)
{
    uint64_t a = hold_a(s, 1000);
    uint64_t b = ASK(5, THIEF_FOR(60000), .priority = 5);
    restart(s, 3);
    restart(s, 4);
    while (!answered(s, b)) {
        if (believes(s, a)) extend(s, 1, fence_of(s, a), 1000);
        pass(s, 100);
        assert_true(now_ms(s) < s->request[b].sent_us / 1000 + 10000);
    }
    granted(s, b);
}

/* The highest takes it again and again: others starve, and are served when it stops. */
STAGE_TEST(P25_a_storm_of_thefts_ends_with_the_others_served, 3)
{
    uint64_t low = 0;
    sl_fence last = fence_of(s, hold_a(s, 1000));
    for (int i = 0; i < 20; i++) {
        uint64_t b = ASK((sl_node_id)(i % 3 + 1), THIEF, .priority = i + 1);
        if (i == 5) low = ASK(3, .wait_ms = 60000);
        pass(s, 3);
        release(s, 1, last);
        outcome(s, b);
        last = granted(s, b);
    }
    waits(s, low);
    release(s, 2, last);
    outcome(s, low);
    granted(s, low);
}

/* --- Entering early ----------------------------------------------------------------- */

/* After so long of the thief's wait: at once, half of it, never. */
TEST(the_thief_enters_when_it_said)
{
    for (sl_ms force = 0; force <= 2000; force += 500) {
        struct stage *s = stage_new(3);
        uint64_t a = hold_a(s, 5000);
        uint64_t b = ASK(2, FORCE(force), .priority = 5);
        outcome(s, b);
        sl_fence fence = granted(s, b);
        assert_true(fence > fence_of(s, a));
        assert_true(took_ms(s, b) >= force);
        assert_true(took_ms(s, b) <= force + 100);
        assert_true(answer_to(s, b)->grant.overlapping);
        assert_true(believes(s, a)); /* And was told: */
        for (sl_node_id id = 1; id <= 3; id++) {
            assert_int_equal(events(s, id, SL_NODE_EVENT_STOLEN, fence_of(s, a)), 1);
            assert_true(last_event(s, id, SL_NODE_EVENT_GRANTED)->overlapping);
            assert_int_equal(copy_at(s, id), fence);
        }
        assert_int_equal(last_event(s, 1, SL_NODE_EVENT_STOLEN)->session, 1);
        assert_int_equal(extend(s, 1, fence_of(s, a), 1000), SLUICE_EASKED);
        assert_int_equal(check(s, 1, fence_of(s, a)), 0);
        assert_int_equal(check(s, 3, fence), 1);
        assert_int_equal(extend(s, 1, fence, 1000), SLUICE_OK);
        stage_end(s);
    }
}

STAGE_TEST(a_thief_that_never_enters_early_waits_to_the_end, 3)
{
    hold_a(s, 5000);
    uint64_t b = ASK(2, THIEF, .priority = 5);
    outcome(s, b);
    granted(s, b);
    assert_true(took_ms(s, b) >= 4990);
    assert_false(answer_to(s, b)->grant.overlapping);
}

/* The holder goes in time: then nothing overlaps, although it could have. */
STAGE_TEST(a_holder_that_goes_in_time_is_not_overlapped, 3)
{
    uint64_t a = hold_a(s, 5000);
    uint64_t b = ASK(2, FORCE(1000), .priority = 5);
    pass(s, 500);
    release(s, 1, fence_of(s, a));
    outcome(s, b);
    granted(s, b);
    assert_false(answer_to(s, b)->grant.overlapping);
    assert_false(last_event(s, 1, SL_NODE_EVENT_STOLEN)->overlapping);
}

/* One that overlaps another ends as any other does. */
STAGE_TEST(an_early_entry_is_not_overlapped_by_a_reclaim, 3)
{
    uint64_t a = hold_a(s, 60000);
    uint64_t b = ASK(2, FORCE(0), .priority = 5, .lease_ms = 5000);
    granted(s, b);
    release(s, 1, fence_of(s, a)); /* It heard that it was robbed. */
    granted(s, b);
    uint64_t c = ASK(3, THIEF, .priority = 9);
    pass(s, 100);
    release(s, 2, granted(s, b));
    granted(s, c);
    assert_int_equal(events(s, 1, SL_NODE_EVENT_STOLEN, granted(s, b)), 1);
    assert_false(last_event(s, 1, SL_NODE_EVENT_STOLEN)->overlapping);
}

/* The thief is gone, but the holder that it overlapped may still act: it is in the way until its
 * end, and is not extended. */
STAGE_TEST(a_robbed_holder_is_shown_until_it_ends, 3)
{
    uint64_t a = hold_a(s, 5000);
    uint64_t b = ASK(2, FORCE(0), .priority = 5);
    release(s, 2, granted(s, b));
    while (believes(s, a)) {
        refused(s, ASK(3, .lease_ms = 100), SLUICE_EFULL);
        assert_int_equal(extend(s, 1, fence_of(s, a), 5000), SLUICE_EASKED);
        pass(s, 300);
    }
    pass(s, 10);
    uint64_t d = ASK(3);
    granted(s, d);
    assert_false(answer_to(s, d)->grant.overlapping);
}

/* A forced attempt that fails has robbed nobody, though acceptors had said yes. */
STAGE_TEST(a_forced_attempt_that_fails_leaves_the_lease, 3)
{
    uint64_t a = hold_a(s, 5000);
    cut(s, 0, 2, SL_MESSAGE_VOTE);
    uint64_t b = ASK(2, .wait_ms = 500, .steal = true, .force_ms = 0, .priority = 5);
    not_granted(s, b);
    open_all(s);
    pass(s, 10);
    for (sl_node_id id = 1; id <= 3; id++)
        assert_int_equal(acceptor_has(s, id), fence_of(s, a));
    assert_int_equal(events(s, 0, SL_NODE_EVENT_STOLEN, 0), 0);
    assert_int_equal(extend(s, 1, fence_of(s, a), 5000), SLUICE_OK);
    assert_int_equal(check(s, 3, fence_of(s, a)), 1);
}

/* The thief's node has not heard of A. Of its first attempt neither the votes nor the end
 * are heard; its second one finds the first, and A behind it. */
STAGE_TEST(an_entry_at_the_second_attempt_is_marked_overlapping, 3)
{
    cut(s, 1, 2, SL_MESSAGE_NONE);
    uint64_t a = hold_a(s, 20000);
    open_all(s);
    cut(s, 0, 2, SL_MESSAGE_VOTE);
    cut(s, 2, 0, SL_MESSAGE_RELEASE);
    hold(s, 2, 0, SL_MESSAGE_CANCEL);
    uint64_t b = ASK(2, FORCE(0), .priority = 5);
    pass(s, 30);
    waits(s, b);
    open_all(s);
    granted(s, b);
    assert_true(believes(s, a));
    assert_true(answer_to(s, b)->grant.overlapping);
}

STAGE_TEST(force_does_not_help_against_the_same_priority, 3)
{
    granted(s, ASK(1, .priority = 5, .lease_ms = 2000));
    uint64_t b = ASK(2, FORCE(0), .priority = 5);
    outcome(s, b);
    granted(s, b);
    assert_true(took_ms(s, b) >= 1990);
    assert_false(answer_to(s, b)->grant.overlapping);
}

/* It enters by a majority: a minority does not let it in, however it forces. */
STAGE_TEST(force_needs_a_majority_too, 3)
{
    uint64_t a = hold_a(s, 3000);
    isolate(s, 2);
    uint64_t b = ASK(2, .wait_ms = 1000, .steal = true, .force_ms = 0, .priority = 5);
    outcome(s, b);
    not_granted(s, b);
    open_all(s);
    pass(s, 200);
    assert_int_equal(check(s, 1, fence_of(s, a)), 1);
}

/* --- Starving ------------------------------------------------------------------------- */

/* A victim that ignores the thief and goes on extending: mutant 13 lets it. */
STAGE_TEST(starving_13_a_revoked_holder_cannot_extend_forever, 3)
{
    uint64_t a = hold_a(s, 300);
    uint64_t b = ASK(2, THIEF, .priority = 5);
    for (int i = 0; i < 50 && !answered(s, b); i++) {
        pass(s, 100);
        if (!answered(s, b))
            REQUEST(EXTEND, 1, .fence = fence_of(s, a), .lease_ms = 300);
    }
    granted(s, b);
    assert_true(took_ms(s, b) <= 600);
}

/* And one that tries every other moment, also when the thief has just given up an attempt:
 * mutant 17 forgets the reservation then. */
STAGE_TEST(starving_17_a_failed_attempt_leaves_its_reservation, 3)
{
    uint64_t a = hold_a(s, 300);
    uint64_t b = ASK(2, THIEF, .priority = 5);
    for (int i = 0; i < 200 && !answered(s, b); i++) {
        REQUEST(EXTEND, 1, .fence = fence_of(s, a), .lease_ms = 300);
        pass(s, 7);
    }
    granted(s, b);
    assert_true(took_ms(s, b) <= 600);
}

TEST_MAIN(NULL, NULL)
