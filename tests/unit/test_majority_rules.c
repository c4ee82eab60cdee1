/* test_majority_rules.c - the rules of src/majority/README.md, one by one: V1 .. V8 of the acceptor,
 * S1 .. S5 of the proposer, X of extending through any node; and Q1 .. Q11, what else may
 * happen to a majority. An acceptor is asked by messages that the test writes itself. */
#include <stdlib.h>
#include <string.h>

#include "majority_stage.h"
#include "test_main.h"

/* What node 2 says to such a message of node 3. */
static struct sl_message said(struct stage *s, struct sl_message m)
{
    m.round = 2000000 + ++s->drawn;
    return probe(s, 3, 2, &m);
}

/* A request of node 3 to node 2: of another owner each time, with a fence above all. */
static struct sl_message request(struct stage *s)
{
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_ACQUIRE);
    m.owner.number = 2000000 + ++s->drawn;
    m.fence = (sl_fence)s->now_us + 1000 * ++s->drawn;
    return m;
}

#define VERDICT(v, name)                                   \
    assert_string_equal(sl_vote_verdict_name((v).verdict), \
                        sl_vote_verdict_name(SL_VERDICT_##name))

/* --- The acceptor ---------------------------------------------------------------- */

STAGE_TEST(V1_another_s_lease_is_not_replaced, 3)
{
    sl_fence a = take(s, 1, 1000);
    struct sl_message m = request(s);
    m.priority = 100;
    struct sl_message v = said(s, m);
    VERDICT(v, HELD);
    assert_int_equal(v.fence, a);
    assert_int_equal(v.left_ms, 1000);
    assert_int_equal(acceptor_has(s, 2), a);
    pass(s, 1001);
    VERDICT(said(s, request(s)), YES);
}

STAGE_TEST(V1_an_extension_never_shortens, 3)
{
    sl_fence a = take(s, 1, 10000);
    uint64_t e = REQUEST(EXTEND, 2, .fence = a, .lease_ms = 100);
    outcome(s, e);
    refused(s, e, SLUICE_OK);
    pass(s, 5000);
    assert_int_equal(acceptor_has(s, 2), a);
    uint64_t b = ASK(3);
    outcome(s, b);
    refused(s, b, SLUICE_EFULL);
}

STAGE_TEST(V2_a_fence_is_above_all_that_were_seen, 3)
{
    sl_fence a = take(s, 1, 1000);
    assert_int_equal(release(s, 1, a), 1);
    struct sl_message m = request(s);
    m.fence = a;
    struct sl_message v = said(s, m);
    VERDICT(v, FENCE);
    assert_true(v.ceiling >= a);
    m.fence = a - 1;
    VERDICT(said(s, m), FENCE);
    assert_int_equal(acceptor_has(s, 2), 0);
    m.fence = v.ceiling + 1;
    VERDICT(said(s, m), YES);
}

/* Of five nodes 1 and 2 have clocks that are a minute ahead of the others', and go by them:
 * nodes 1 and 3 are linked with three each. */
static struct stage *clocks_apart(void)
{
    struct stage *s = stage_new(5);
    for (sl_node_id id = 1; id <= 2; id++) {
        s->actor[id].wall_offset_us = 60000000;
        for (sl_node_id other = 4; other <= 5; other++) unlink_nodes(s, id, other);
    }
    unlink_nodes(s, 2, 3);
    pass(s, 300);
    return s;
}

/* A proposer whose clock is behind is told, and asks again above. */
TEST(V2_a_clock_that_is_behind_costs_a_second_round)
{
    struct stage *s = clocks_apart();
    sl_fence a = take(s, 1, 1000);
    assert_true(a > (sl_fence)s->now_us + 50000000);
    assert_int_equal(release(s, 1, a), 1);
    unlink_nodes(s, 1, 3);
    pass(s, 300);
    assert_true(take(s, 3, 1000) > a);
    stage_end(s);
}

STAGE_TEST(V2_a_fence_that_is_days_ahead_is_not_believed, 3)
{
    struct sl_message m = request(s);
    m.fence = (sl_fence)s->now_us + 3 * 86400000000ull;
    VERDICT(said(s, m), CLOCK);
}

/* What is not on the disk yet was not voted for. */
STAGE_TEST(V2_the_limit_is_written_before_the_vote, 3)
{
    struct sl_message m = request(s);
    m.fence += 60000000; /* Above all that is written. */
    disk_stop(s, 2);
    assert_int_equal(said(s, m).type, SL_MESSAGE_NONE);
    assert_true(s->actor[2].writes);
    hold(s, 2, 3, SL_MESSAGE_VOTE);
    disk_go(s, 2);
    VERDICT(*newest(s, 2, 3, SL_MESSAGE_VOTE), YES);
    assert_true(s->actor[2].disk.fence_limit >= m.fence);
}

TEST(V2_a_disk_that_fails_gives_no_vote_and_is_tried_again)
{
    struct stage *s = stage_cold(3, &stage_limits);
    s->actor[2].disk_fails = s->actor[3].disk_fails = true;
    uint64_t a = ASK(1, .wait_ms = 10000);
    pass(s, 3000);
    waits(s, a);
    assert_true(s->actor[2].wrote >= 3);
    assert_true(s->actor[2].wrote < 10);
    s->actor[2].disk_fails = false;
    outcome(s, a);
    granted(s, a);
    stage_end(s);
}

STAGE_TEST(V2_fences_rise_over_a_restart_with_a_clock_that_went_back, 3)
{
    sl_fence a = take(s, 1, 1000);
    pass(s, 10);
    for (sl_node_id id = 1; id <= 3; id++) {
        s->actor[id].wall_offset_us = -900000000;
        restart(s, id);
    }
    end_silence(s);
    struct sl_message m = request(s);
    m.fence = a;
    VERDICT(said(s, m), FENCE);
    assert_true(take(s, 1, 1000) > a);
}

STAGE_TEST(V3_what_is_lacking_is_not_extended, 3)
{
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_RENEW);
    m.fence = 12345;
    VERDICT(said(s, m), LACKS);
    assert_int_equal(acceptor_has(s, 2), 0);
    sl_fence a = take(s, 1, 1000);
    m.fence = a + 1;
    VERDICT(said(s, m), LACKS);
    m.fence = a - 1;
    VERDICT(said(s, m), LACKS);
    m.fence = a;
    VERDICT(said(s, m), YES);
}

STAGE_TEST(V4_a_release_clears_the_lease_of_its_fence, 3)
{
    sl_fence a = take(s, 1, 1000);
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_RELEASE);
    m.flags = SL_FLAG_FINAL;
    m.fence = a - 1;
    said(s, m);
    assert_int_equal(acceptor_has(s, 2), a);
    m.fence = a + 1;
    said(s, m);
    assert_int_equal(acceptor_has(s, 2), a);
    m.fence = a;
    VERDICT(said(s, m), YES);
    assert_int_equal(acceptor_has(s, 2), 0);
    VERDICT(said(s, m), LACKS);
}

STAGE_TEST(V4_an_attempt_that_was_given_up_is_refused, 3)
{
    struct sl_message m = request(s), r = forged(s, 3, 2, SL_MESSAGE_RELEASE);
    r.fence = m.fence;
    said(s, r);
    VERDICT(said(s, m), FENCE);
    assert_int_equal(acceptor_has(s, 2), 0);
}

STAGE_TEST(V5_after_a_power_failure_it_is_silent_for_the_wait_of_the_journal, 3)
{
    take(s, 1, 10000);
    restart(s, 2);
    sl_ms silence = silence_of(s, 2);
    assert_true(silence >= 10000); /* One less would not do: Q2. */
    assert_true(silence <= 10100);
    struct sl_message m = request(s);
    struct sl_message v = said(s, m);
    VERDICT(v, SILENT);
    assert_int_equal(v.left_ms, silence);
    pass(s, silence - 1);
    VERDICT(said(s, m), SILENT);
    pass(s, 1);
    assert_int_equal(silence_of(s, 2), 0);
    m.key = (struct sl_bytes){"another", 7};
    m.fence = (sl_fence)s->now_us + 3600000000;
    VERDICT(said(s, m), YES);
}

/* During a silence nothing is extended, released or taught. */
STAGE_TEST(V5_silence_is_about_everything, 3)
{
    sl_fence a = take(s, 1, 5000);
    restart(s, 2);
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_RENEW);
    m.fence = a;
    VERDICT(said(s, m), SILENT);
    m.type = SL_MESSAGE_LOOK;
    VERDICT(said(s, m), SILENT);
    assert_int_equal(extend(s, 1, a, 5000), SLUICE_OK); /* And teaches. */
    assert_int_equal(copy_at(s, 2), 0);
}

/* A TEACH to node 2 of a lease of the fence, with node 2's clock as it was when its
 * sender last heard of it. */
static struct sl_message teach(struct stage *s, sl_fence fence)
{
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_TEACH);
    m.fence = fence;
    m.flags = SL_FLAG_WHOLE;
    m.lease_ms = 5000;
    return m;
}

STAGE_TEST(V6_a_TEACH_of_another_life_is_not_believed, 3)
{
    take(s, 1, 1000);
    uint64_t epoch = s->actor[2].epoch;
    restart(s, 2);
    end_silence(s);
    struct sl_message m = teach(s, (sl_fence)s->now_us + 5);
    m.heard_epoch = epoch;
    give(s, 3, 2, &m);
    assert_int_equal(acceptor_has(s, 2), 0);
    m.heard_epoch = 0;
    give(s, 3, 2, &m);
    assert_int_equal(acceptor_has(s, 2), 0);
    m.heard_epoch = s->actor[2].epoch;
    give(s, 3, 2, &m);
    assert_int_equal(acceptor_has(s, 2), m.fence);
}

STAGE_TEST(V6_a_TEACH_that_was_sent_in_the_silence_is_not_believed, 3)
{
    take(s, 1, 1000);
    restart(s, 2);
    struct sl_message early = teach(s, (sl_fence)s->now_us + 5);
    end_silence(s);
    early.heard_ms = clock_of(s, 2).ms - 1;
    give(s, 3, 2, &early);
    assert_int_equal(acceptor_has(s, 2), 0);
    pass(s, 1);
    struct sl_message m = teach(s, early.fence);
    give(s, 3, 2, &m);
    assert_int_equal(acceptor_has(s, 2), m.fence);
}

STAGE_TEST(V6_a_TEACH_that_was_long_on_its_way_is_not_believed, 3)
{
    take(s, 1, 1000);
    struct sl_message m = teach(s, (sl_fence)s->now_us + 2000000);
    pass(s, s->limits.forget_ms + 1000);
    give(s, 3, 2, &m);
    assert_int_equal(acceptor_has(s, 2), 0);
}

STAGE_TEST(V6_a_TEACH_below_what_was_seen_is_not_believed, 3)
{
    sl_fence a = take(s, 1, 1000);
    pass(s, 10);
    assert_int_equal(release(s, 1, a), 1);
    struct sl_message m = teach(s, a - 1);
    give(s, 3, 2, &m);
    assert_int_equal(acceptor_has(s, 2), 0);
}

/* Of a grant with a higher fence it says that what is here is over. */
STAGE_TEST(V6_a_TEACH_replaces_no_lease_of_a_higher_fence, 3)
{
    sl_fence a = take(s, 1, 10000);
    struct sl_message m = teach(s, a - 1);
    give(s, 3, 2, &m);
    assert_int_equal(acceptor_has(s, 2), a);
}

/* A key is forgotten some time after its lease; its fences are not. */
/* Node 3 is cut off until its copy has ended. Nobody else has had the key, and the holder goes
 * on: node 3 learns the lease with the next extension, and counts again. */
STAGE_TEST(V6_a_lease_that_expired_here_is_learned_again, 3)
{
    sl_fence a = take(s, 1, 1000);
    cut(s, 0, 3, SL_MESSAGE_NONE);
    for (int i = 0; i < 4; i++) {
        pass(s, 300);
        assert_int_equal(extend(s, 1 + (sl_node_id)i % 2, a, 1000), SLUICE_OK);
    }
    assert_int_equal(events(s, 3, SL_NODE_EVENT_EXPIRED, a), 1);
    open_all(s);
    assert_int_equal(acceptor_has(s, 3), 0);
    pass(s, 100); /* Nodes hear of each other again. */
    assert_int_equal(extend(s, 2, a, 1000), SLUICE_OK);
    assert_int_equal(acceptor_has(s, 3), a);
    crash(s, 2);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
    pass(s, 1100);
    assert_int_equal(acceptor_has(s, 3), 0);
}

/* The release has overtaken the news of the grant. */
STAGE_TEST(V6_a_lease_that_was_released_is_not_learned_again, 3)
{
    cut(s, 1, 2, SL_MESSAGE_ACQUIRE);
    hold(s, 1, 2, SL_MESSAGE_TEACH);
    sl_fence a = take(s, 1, 1000);
    assert_int_equal(release(s, 1, a), 1);
    deliver(s, 1, 2, SL_MESSAGE_TEACH);
    assert_int_equal(acceptor_has(s, 2), 0);
}

STAGE_TEST(V6_what_was_seen_of_a_forgotten_key_stays, 3)
{
    for (sl_node_id id = 1; id <= 3; id++)
        s->actor[id].wall_offset_us = 600000000; /* So that the fence is far ahead, */
    sl_fence a = take(s, 1, 1000);
    for (sl_node_id id = 1; id <= 3; id++)
        s->actor[id].wall_offset_us = 0; /* of these. */
    pass(s, 4 * s->limits.forget_ms + 2000);
    struct sl_node_stats stats;
    sl_node_stats(s->actor[2].node, clock_of(s, 2), &stats);
    assert_int_equal(stats.keys, 0);
    struct sl_message m = request(s);
    m.fence = a;
    VERDICT(said(s, m), FENCE);
    assert_true(take(s, 3, 1000) > a);
}

STAGE_TEST(V7_a_reservation_refuses_extensions_and_others, 3)
{
    sl_fence a = take(s, 1, 1000);
    struct sl_message thief = request(s);
    thief.priority = 5;
    thief.flags = SL_FLAG_STEAL;
    VERDICT(said(s, thief), HELD);
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_RENEW);
    m.fence = a;
    VERDICT(said(s, m), RESERVED);
    pass(s, 1001);
    struct sl_message other = request(s);
    other.priority = 5;
    VERDICT(said(s, other), RESERVED);
    other.priority = 6;
    VERDICT(said(s, other), YES);
}

STAGE_TEST(V7_a_reservation_outlives_the_thief_s_attempts, 3)
{
    sl_fence a = take(s, 1, 1000);
    struct sl_message thief = request(s), m = forged(s, 3, 2, SL_MESSAGE_RENEW);
    thief.priority = 5;
    thief.flags = SL_FLAG_STEAL;
    VERDICT(said(s, thief), HELD);
    struct sl_message r = forged(s, 3, 2, SL_MESSAGE_RELEASE);
    r.fence = thief.fence;
    said(s, r); /* It gives up this attempt. */
    m.fence = a;
    VERDICT(said(s, m), RESERVED);
    struct sl_message gone = forged(s, 3, 2, SL_MESSAGE_CANCEL);
    gone.owner = thief.owner;
    gone.owner.number++;
    give(s, 3, 2, &gone);
    VERDICT(said(s, m), RESERVED); /* That was another's. */
    gone.owner = thief.owner;
    give(s, 3, 2, &gone);
    VERDICT(said(s, m), YES);
}

STAGE_TEST(V7_a_reservation_ends_a_while_after_the_lease, 3)
{
    take(s, 1, 1000);
    struct sl_message thief = request(s);
    thief.priority = 5;
    thief.flags = SL_FLAG_STEAL;
    VERDICT(said(s, thief), HELD);
    pass(s, 1000);
    VERDICT(said(s, request(s)), RESERVED);
    pass(s, 3 * s->limits.answer_max_ms);
    VERDICT(said(s, request(s)), YES);
}

STAGE_TEST(V8_it_goes_by_its_own_list, 3)
{
    for (uint64_t version = 0; version <= 2; version += 2) {
        struct sl_message m = request(s);
        m.version = version;
        VERDICT(said(s, m), STRANGER);
        assert_int_equal(acceptor_has(s, 2), 0);
    }
    sl_fence a = take(s, 1, 1000);
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_RENEW);
    m.fence = a;
    m.version = 2;
    VERDICT(said(s, m), STRANGER);
    VERDICT(said(s, request(s)), HELD);
}

TEST(keys_are_bounded)
{
    struct sl_node_limits limits = stage_limits;
    limits.keys_max = 2;
    struct stage *s = stage_cold(3, &limits);
    granted(s, ASK(1, .key = {"a", 1}));
    granted(s, ASK(1, .key = {"b", 1}));
    uint64_t c = ASK(1, .key = {"c", 1});
    outcome(s, c);
    refused(s, c, SLUICE_EKEYS);
    pass(s, 3 * limits.forget_ms + 2000);
    granted(s, ASK(1, .key = {"c", 1}));
    stage_end(s);
}

/* --- The proposer ----------------------------------------------------------------- */

/* They wait for votes as long as a lease may be. */
static struct sl_node_limits patient;

static int be_patient(void **state)
{
    (void)state;
    patient = stage_limits;
    patient.answer_ms = patient.answer_min_ms = patient.answer_max_ms = 100000;
    return 0;
}

/* Votes that come at the end of the attempt, or later, are none. */
TEST(S1_votes_count_before_the_end_that_was_fixed_at_first)
{
    const struct {
        sl_ms late;
        bool good;
    } cases[] = {{0, true}, {190, true}, {200, false}, {201, false}, {230, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage *s = stage_with(3, &patient);
        hold(s, 0, 1, SL_MESSAGE_VOTE);
        uint64_t a = ASK(1, .lease_ms = 200);
        pass(s, cases[i].late);
        open_all(s);
        hold(s, 1, 0, SL_MESSAGE_TEACH);
        cut(s, 1, 0, SL_MESSAGE_ACQUIRE); /* It has only this attempt. */
        settle(s);
        assert_int_equal(answered(s, a), cases[i].good);
        /* S4: and nothing is taught that is not agreed. */
        assert_int_equal(kept(s, 1, 0, SL_MESSAGE_TEACH) > 0, cases[i].good);
        stage_end(s);
    }
}

/* Shrunk by the drift: 0.998 of a minute is 59880 ms. The acceptors' clocks are fast. */
TEST(S1_the_end_is_shrunk_by_the_drift_of_clocks)
{
    for (int late = 0; late < 2; late++) {
        struct stage *s = stage_with(3, &patient);
        hold(s, 0, 1, SL_MESSAGE_VOTE);
        uint64_t a = ASK(1, .lease_ms = 60000);
        pass(s, late ? 59881 : 59879);
        open_all(s);
        cut(s, 1, 0, SL_MESSAGE_ACQUIRE);
        settle(s);
        assert_int_equal(answered(s, a), !late);
        stage_end(s);
    }
}

STAGE_TEST(S2_repeated_votes_of_a_node_count_once, 5)
{
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    uint64_t a = ASK(1, .lease_ms = 10000);
    for (int i = 0; i < 4; i++) again(s, 2, 1, SL_MESSAGE_VOTE);
    waits(s, a);
    deliver(s, 3, 1, SL_MESSAGE_VOTE);
    granted(s, a);
}

STAGE_TEST(S2_votes_of_an_earlier_round_do_not_count, 5)
{
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    uint64_t a = ASK(1, .lease_ms = 10000);
    outcome(s, a);
    refused(s, a, SLUICE_ENOQUORUM);
    pass(s, 50);
    cut(s, 1, 4, SL_MESSAGE_ACQUIRE);
    cut(s, 1, 5, SL_MESSAGE_ACQUIRE);
    cut(s, 1, 3, SL_MESSAGE_ACQUIRE);
    uint64_t b = ASK(1, .lease_ms = 10000);
    for (sl_node_id id = 3; id <= 5; id++)
        while (kept(s, id, 1, SL_MESSAGE_VOTE) > 0) deliver(s, id, 1, SL_MESSAGE_VOTE);
    outcome(s, b);
    not_granted(s, b);
}

/* Node 1 asked, and was restarted before it received the votes. */
TEST(S2_votes_for_an_earlier_life_do_not_count)
{
    struct stage *s = stage_cold(3, &stage_limits);
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    ASK(1, .lease_ms = 1000);
    pass(s, 5);
    assert_int_equal(newest(s, 2, 1, SL_MESSAGE_VOTE)->verdict, SL_VERDICT_YES);
    restart(s, 1);
    end_silence(s);
    cut(s, 1, 0, SL_MESSAGE_ACQUIRE); /* Nobody hears of the next request. */
    uint64_t b = ASK(1, .lease_ms = 1000);
    pass(s, 5);
    while (kept(s, 0, 1, SL_MESSAGE_VOTE) > 0) deliver(s, 0, 1, SL_MESSAGE_VOTE);
    not_granted(s, b);
    stage_end(s);
}

STAGE_TEST(S2_three_of_five_are_needed, 5)
{
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    uint64_t a = ASK(1);
    deliver(s, 4, 1, SL_MESSAGE_VOTE);
    waits(s, a);
    deliver(s, 5, 1, SL_MESSAGE_VOTE);
    granted(s, a);
}

STAGE_TEST(S3_a_failed_attempt_is_released, 3)
{
    cut(s, 1, 2, SL_MESSAGE_NONE);
    sl_fence a = take(s, 1, 10000);
    open_all(s);
    assert_int_equal(acceptor_has(s, 2), 0);
    cut(s, 0, 3, SL_MESSAGE_NONE);          /* Only node 1 can say that it is held, */
    uint64_t b = ASK(2, .lease_ms = 10000); /* and node 2 votes for its own. */
    outcome(s, b);
    not_granted(s, b);
    flow(s);
    pass(s, 1);
    assert_int_equal(acceptor_has(s, 2), 0);
    assert_int_equal(acceptor_has(s, 1), a);
}

/* Whatever becomes of an extension, its holder acts until the end it had before. */
STAGE_TEST(S3_a_failed_extension_is_not_released, 3)
{
    sl_fence a = take(s, 1, 5000);
    pass(s, 1000);
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    hold(s, 0, 0, SL_MESSAGE_RELEASE);
    hold(s, 0, 0, SL_MESSAGE_TEACH);
    uint64_t e = REQUEST(EXTEND, 1, .fence = a, .lease_ms = 5000);
    outcome(s, e);
    refused(s, e, SLUICE_ENOQUORUM);
    assert_int_equal(kept(s, 0, 0, SL_MESSAGE_RELEASE), 0);
    assert_int_equal(kept(s, 1, 0, SL_MESSAGE_TEACH), 0); /* S4. */
    flow(s);
    assert_true(believes(s, 1));
    for (sl_node_id id = 1; id <= 3; id++) assert_int_equal(acceptor_has(s, id), a);
    uint64_t b = ASK(2, .wait_ms = 10000);
    outcome(s, b);
    granted(s, b);
}

/* Node 1 cannot reach a majority: its extension fails, and is forgotten. */
STAGE_TEST(S3_an_extension_that_few_heard_of_is_not_released, 3)
{
    sl_fence a = take(s, 1, 5000);
    cut(s, 1, 2, SL_MESSAGE_RENEW);
    cut(s, 1, 3, SL_MESSAGE_RENEW);
    assert_int_equal(extend(s, 1, a, 5000), SLUICE_ENOQUORUM);
    open_all(s);
    for (sl_node_id id = 1; id <= 3; id++) assert_int_equal(acceptor_has(s, id), a);
    uint64_t b = ASK(2);
    outcome(s, b);
    refused(s, b, SLUICE_EFULL);
    assert_int_equal(extend(s, 1, a, 5000), SLUICE_OK);
}

STAGE_TEST(S4_a_grant_is_taught_to_who_did_not_hear_the_request, 3)
{
    cut(s, 1, 3, SL_MESSAGE_ACQUIRE);
    uint64_t t = ASK(1, .value = {"v", 1}, .note = {"n", 1}, .client = {"c", 1},
                     .priority = 3);
    sl_fence a = granted(s, t);
    for (sl_node_id id = 1; id <= 3; id++) {
        struct sl_node_copy c;
        assert_true(sl_node_copy(s->actor[id].node, clock_of(s, id),
                                 (struct sl_bytes){"k", 1}, &c));
        assert_int_equal(c.fence, a);
        assert_true(c.agreed);
        assert_int_equal(c.client.n, 1);
        assert_memory_equal(c.client.at, "c", 1);
        assert_int_equal(c.priority, 3);
        assert_memory_equal(c.value.at, "v", 1);
        assert_memory_equal(c.note.at, "n", 1);
    }
}

STAGE_TEST(S4_an_extension_teaches_those_who_lack_it, 3)
{
    cut(s, 1, 3, SL_MESSAGE_NONE);
    uint64_t t = ASK(1, .lease_ms = 2000, .value = {"old", 3});
    sl_fence a = granted(s, t);
    pass(s, 1000);
    open_all(s);
    pass(s, 200);
    assert_int_equal(copy_at(s, 3), 0);
    assert_int_equal(outcome(s, REQUEST(EXTEND, 2, .fence = a, .lease_ms = 2000,
                                        .value = {"new", 3})),
                     SLUICE_OK);
    pass(s, 1);
    for (sl_node_id id = 1; id <= 3; id++) {
        struct sl_node_copy c;
        assert_int_equal(acceptor_has(s, id), a);
        assert_true(sl_node_copy(s->actor[id].node, clock_of(s, id),
                                 (struct sl_bytes){"k", 1}, &c));
        assert_int_equal(c.fence, a);
        assert_memory_equal(c.value.at, "new", 3);
    }
}

/* If another client extends a lease, the client that acquired it stays its client. */
STAGE_TEST(S4_a_lease_keeps_its_client, 3)
{
    cut(s, 1, 3, SL_MESSAGE_NONE);
    sl_fence a = granted(s, ASK(1, .lease_ms = 2000, .client = {"client", 6}));
    pass(s, 1000);
    open_all(s);
    pass(s, 200);
    assert_int_equal(outcome(s, REQUEST(EXTEND, 2, .fence = a, .lease_ms = 2000)),
                     SLUICE_OK);
    pass(s, 1);
    uint64_t votes = REQUEST(VOTES, 3);
    assert_int_equal(outcome(s, votes), SLUICE_OK);
    const struct sl_node_answer *answer = &s->request[votes].answer;
    assert_int_equal(answer->copy_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(answer->copies[i].client.n, 6);
        assert_memory_equal(answer->copies[i].client.at, "client", 6);
    }
}

/* A restarted node is taught whose lease it is. */
STAGE_TEST(S4_a_node_that_started_learns_the_client, 3)
{
    sl_fence a = granted(s, ASK(1, .lease_ms = 5000, .client = {"client", 6}));
    struct sl_node_copy c;
    restart(s, 3);
    while (silence_of(s, 3) > 1000) pass(s, 1);
    assert_int_equal(extend(s, 1, a, 5000), SLUICE_OK);
    end_silence(s);
    pass(s, 500);
    assert_true(
        sl_node_copy(s->actor[3].node, clock_of(s, 3), (struct sl_bytes){"k", 1}, &c));
    assert_int_equal(c.client.n, 6);
    assert_memory_equal(c.client.at, "client", 6);
}

/* The keys that clients of a node wait for. */
static void check_waited(struct stage *s, sl_node_id id, const char *keys)
{
    struct sl_lease_view found;
    uint64_t cursor = 0;
    size_t n = 0;
    sl_ms last = SL_NEVER;
    while (sl_node_scan_waited(s->actor[id].node, clock_of(s, id), &cursor, &found,
                               1) == 1) {
        assert_int_equal(found.key.n, 1);
        assert_int_equal(found.key.at[0], keys[n]);
        assert_true(found.waiters > 0 && found.waited_ms >= 0 &&
                    found.waited_ms <= last);
        last = found.waited_ms;
        n++;
    }
    assert_int_equal(cursor, 0);
    assert_int_equal(keys[n], '\0');
}

STAGE_TEST(Q_the_longest_wait_of_a_node_is_listed_first, 3)
{
    const struct sl_bytes x = {"x", 1}, y = {"y", 1}, z = {"z", 1};
    granted(s, ASK(1, .key = x, .lease_ms = 60000));
    sl_fence b = granted(s, ASK(1, .key = y, .lease_ms = 60000));
    granted(s, ASK(1, .key = z, .lease_ms = 60000));
    check_waited(s, 2, "");
    uint64_t first = ASK(2, .key = y, .wait_ms = 50000, .lease_ms = 1000);
    pass(s, 10);
    ASK(2, .key = x, .wait_ms = 50000, .lease_ms = 1000);
    pass(s, 10);
    ASK(2, .key = y, .wait_ms = 50000, .lease_ms = 1000, .priority = 5);
    ASK(3, .key = z, .wait_ms = 50000, .lease_ms = 1000);
    check_waited(s, 2, "yx");
    check_waited(s, 3, "z");
    check_waited(s, 1, "");
    withdraw(s, first); /* The next one of y came after that of x. */
    check_waited(s, 2, "xy");
    outcome(s, REQUEST(RELEASE, 1, .key = y, .fence = b));
    pass(s, 1000);
    check_waited(s, 2, "x");
}

/* Node 3 has the lease, and misses that it was extended. */
STAGE_TEST(S4_who_missed_an_extension_learns_of_it, 3)
{
    uint64_t t = ASK(1, .lease_ms = 1000, .value = {"old", 3});
    sl_fence a = granted(s, t);
    pass(s, 500);
    cut(s, 1, 3, SL_MESSAGE_RENEW);
    uint64_t e = REQUEST(EXTEND, 1, .fence = a, .lease_ms = 1000, .value = {"new", 3});
    refused(s, e, SLUICE_OK);
    struct sl_node_copy c;
    assert_true(
        sl_node_copy(s->actor[3].node, clock_of(s, 3), (struct sl_bytes){"k", 1}, &c));
    assert_memory_equal(c.value.at, "new", 3);
    pass(s, 600);
    assert_int_equal(copy_at(s, 3), a);
    assert_int_equal(events(s, 3, SL_NODE_EVENT_EXTENDED, a), 1);
    assert_int_equal(events(s, 3, SL_NODE_EVENT_EXPIRED, a), 0);
}

/* An attempt that is not agreed is not shown, and is no grant to READ. */
STAGE_TEST(S4_an_attempt_is_no_copy, 3)
{
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    ASK(1);
    assert_true(acceptor_has(s, 2) != 0);
    assert_int_equal(copy_at(s, 2), 0);
    assert_int_equal(events(s, 0, SL_NODE_EVENT_GRANTED, 0), 0);
}

/* A release that reached nobody else: not the news of it, but votes decide. */
static sl_ms learning_of(const struct stage *s, sl_node_id at)
{
    struct sl_node_stats stats;
    sl_node_stats(s->actor[at].node, clock_of(s, at), &stats);
    return stats.learning_ms;
}

static sl_ms left_at(struct stage *s, sl_node_id at)
{
    struct sl_node_copy c;
    if (!sl_node_copy(s->actor[at].node, clock_of(s, at), (struct sl_bytes){"k", 1},
                      &c))
        return 0;
    return c.left_ms;
}

/* Node 3 runs all extensions itself while it is silent: it has no copy, and neither of the
 * others has run any. Both know them all the same, and teach them. */
STAGE_TEST(S4_a_node_teaches_extensions_that_others_ran, 3)
{
    sl_fence a = take(s, 1, 1000);
    restart(s, 3);
    while (silence_of(s, 3) > 0) {
        assert_int_equal(extend(s, 3, a, 1000), SLUICE_OK);
        for (int i = 0; i < 400 && silence_of(s, 3) > 0; i++) pass(s, 1);
    }
    pass(s, 1);
    assert_int_equal(acceptor_has(s, 3), a);
    sl_ms less = left_at(s, 2) - left_at(s, 3);
    assert_in_range(less + 5, 0, 10);
    assert_int_equal(learning_of(s, 3), 0);
    crash(s, 2);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
}

/* Node 2 hears late that the lease is agreed. It may not teach it any longer than node 1: by
 * then another may have had the key. */
STAGE_TEST(S4_what_is_agreed_counts_from_when_that_was_said, 3)
{
    hold(s, 1, 2, SL_MESSAGE_TEACH);
    sl_fence a = take(s, 1, 2000);
    pass(s, 500);
    cut(s, 0, 1, SL_MESSAGE_VOTE);
    cut(s, 1, 3, SL_MESSAGE_RENEW);
    assert_int_equal(extend(s, 1, a, 60000), SLUICE_ENOQUORUM); /* But node 2 has it. */
    pass(s, 500);
    deliver(s, 1, 2, SL_MESSAGE_TEACH);
    open_all(s);
    unlink_nodes(s, 1, 3); /* It would be right to teach it. */
    while (acceptor_has(s, 3) == a) pass(s, 1);
    pass(s, 50);
    assert_int_equal(acceptor_has(s, 2), a);
    assert_int_equal(copy_at(s, 2), a);
    unlink_nodes(s, 2, 3);
    link_nodes(s, 2, 3);
    pass(s, 300);
    assert_int_equal(acceptor_has(s, 3), 0);
}

/* Until it was taught what others have, a node that started must not be relied on. */
STAGE_TEST(S4_a_node_that_started_is_ready_when_it_was_taught, 3)
{
    sl_fence a = take(s, 1, 5000);
    pass(s, 300);
    assert_int_equal(learning_of(s, 1), 0);
    restart(s, 3);
    hold(s, 0, 3, SL_MESSAGE_TEACH);
    hold(s, 0, 3, SL_MESSAGE_TAUGHT);
    assert_true(learning_of(s, 3) > silence_of(s, 3));
    while (silence_of(s, 3) > 1000) pass(s, 1);
    assert_int_equal(extend(s, 1, a, 5000), SLUICE_OK);
    end_silence(s);
    pass(s, 10);
    assert_true(learning_of(s, 3) > 0);
    deliver_all(s, 0, 3, SL_MESSAGE_TEACH);
    assert_int_equal(acceptor_has(s, 3), a);
    assert_true(learning_of(s, 3) > 0);
    deliver_all(s, 1, 3, SL_MESSAGE_TAUGHT);
    assert_true(learning_of(s, 3) > 0);
    deliver_all(s, 2, 3, SL_MESSAGE_TAUGHT);
    assert_int_equal(learning_of(s, 3), 0);
}

/* Nobody teaches it: then it waits as long as a lease may last without an extension. */
STAGE_TEST(S4_a_node_is_ready_after_the_longest_lease_at_last, 3)
{
    take(s, 1, 5000);
    restart(s, 3);
    hold(s, 0, 3, SL_MESSAGE_TAUGHT);
    end_silence(s);
    pass(s, 4990);
    assert_true(learning_of(s, 3) > 0);
    pass(s, 100);
    assert_int_equal(learning_of(s, 3), 0);
}

STAGE_TEST(S5_it_acts_on_votes_alone, 3)
{
    sl_fence a = take(s, 1, 2000);
    cut(s, 1, 0, SL_MESSAGE_RELEASE);
    uint64_t b = ASK(1, .wait_ms = 10000); /* Where it is released. */
    waits(s, b);
    REQUEST(RELEASE, 1, .fence = a);
    pass(s, 1500);
    waits(s, b);
    outcome(s, b);
    granted(s, b);
}

/* Node 1 has the copy, and is alone: it asks, and does not answer from it. */
STAGE_TEST(S5_a_check_asks_a_majority, 3)
{
    sl_fence a = take(s, 1, 5000);
    assert_int_equal(check(s, 2, a), 1);
    assert_int_equal(check(s, 2, a + 1), 0);
    isolate(s, 1);
    assert_int_equal(check(s, 1, a), SLUICE_ENOQUORUM);
    assert_int_equal(copy_at(s, 1), a);
}

STAGE_TEST(a_minority_grants_nothing_and_reads_its_copy, 3)
{
    sl_fence a = take(s, 1, 5000);
    crash(s, 1);
    crash(s, 2);
    assert_int_equal(copy_at(s, 3), a);
    uint64_t b = ASK(3, .key = {"other", 5});
    outcome(s, b);
    refused(s, b, SLUICE_ENOQUORUM);
    assert_int_equal(extend(s, 3, a, 5000), SLUICE_ENOQUORUM);
    uint64_t r = REQUEST(READ, 3);
    outcome(s, r);
    refused(s, r, SLUICE_ENOQUORUM);
    pass(s, 5001);
    assert_int_equal(copy_at(s, 3), 0);
}

STAGE_TEST(silent_nodes_are_distinguished_from_missing_ones, 3)
{
    take(s, 1, 5000);
    restart(s, 2);
    restart(s, 3);
    uint64_t b = ASK(1, .key = {"other", 5});
    outcome(s, b);
    refused(s, b, SLUICE_ERECOVERING);
    assert_true(answer_to(s, b)->left_ms > 4000);
    assert_true(answer_to(s, b)->left_ms <= 5100);
    uint64_t c = ASK(1, .key = {"other", 5}, .wait_ms = 10000);
    outcome(s, c);
    granted(s, c);
}

/* --- Fences ------------------------------------------------------------------------- */

/* Two nodes ask in the same microsecond, by the same clock. */
STAGE_TEST(F_no_two_attempts_have_the_same_fence, 5)
{
    hold(s, 0, 0, SL_MESSAGE_ACQUIRE);
    for (sl_node_id id = 1; id <= 4; id++) ASK(id, .key = {"a", 1});
    for (sl_node_id id = 1; id <= 4; id++) ASK(id, .key = {"b", 1});
    assert_int_equal(kept(s, 0, 5, SL_MESSAGE_ACQUIRE), 8);
    for (size_t i = 0; i < s->bag_count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct parcel *p = &s->bag[i], *q = &s->bag[j];
            if (p->m.type != SL_MESSAGE_ACQUIRE || q->m.type != SL_MESSAGE_ACQUIRE)
                continue;
            bool same = p->from == q->from && p->m.round == q->m.round;
            assert_int_equal(p->m.fence == q->m.fence, same);
        }
}

/* And one that restarts takes none again: it begins above what the disk had. */
STAGE_TEST(F_nor_after_a_restart, 3)
{
    hold(s, 0, 0, SL_MESSAGE_ACQUIRE);
    ASK(1);
    sl_fence before = newest(s, 1, 2, SL_MESSAGE_ACQUIRE)->fence;
    s->actor[1].wall_offset_us = -500000000;
    restart(s, 1);
    end_silence(s);
    ASK(1);
    pass(s, 5);
    assert_true(newest(s, 1, 2, SL_MESSAGE_ACQUIRE)->fence > before);
}

/* --- Through any node ------------------------------------------------------------ */

STAGE_TEST(X_a_lease_is_extended_and_released_through_any_node, 3)
{
    sl_fence a = take(s, 1, 2000);
    for (sl_node_id id = 1; id <= 3; id++) {
        pass(s, 1000);
        assert_int_equal(extend(s, id, a, 2000), SLUICE_OK);
    }
    assert_int_equal(release(s, 3, a), 1);
    assert_int_equal(release(s, 2, a), 0);
    granted(s, ASK(2));
}

TEST(X_another_node_extends_a_lease_when_its_node_has_died)
{
    for (sl_node_id dead = 1; dead <= 3; dead++) {
        struct stage *s = stage_new(3);
        sl_node_id next = dead % 3 + 1;
        sl_fence a = take(s, dead, 2000);
        crash(s, dead);
        pass(s, 1000);
        assert_int_equal(extend(s, next, a, 2000), SLUICE_OK);
        pass(s, 1500);
        assert_int_equal(check(s, next, a), 1);
        uint64_t b = ASK(next);
        outcome(s, b);
        refused(s, b, SLUICE_EFULL);
        assert_int_equal(release(s, next, a), 1);
        take(s, next, 1000);
        stage_end(s);
    }
}

/* Too slow by its own count; nobody came, so it has it again. */
STAGE_TEST(X_who_finds_its_lease_still_there_has_it, 3)
{
    sl_fence a = take(s, 1, 1000);
    pass(s, 999);
    assert_false(believes(s, 1));
    assert_int_equal(extend(s, 2, a, 1000), SLUICE_OK);
    assert_true(believes(s, 1));
}

/* What a majority says, and what a node has. */
static void value_is(struct stage *s, const char *value)
{
    for (sl_node_id id = 1; id <= 3; id++) {
        uint64_t r = REQUEST(READ, id);
        refused(s, r, SLUICE_OK);
        assert_int_equal(answer_to(s, r)->copy_count, 1);
        assert_int_equal(answer_to(s, r)->copies[0].value.n, strlen(value));
        assert_memory_equal(answer_to(s, r)->copies[0].value.at, value, strlen(value));
    }
}

static uint64_t extend_with(struct stage *s, sl_node_id at, sl_fence fence,
                            const char *value)
{
    return REQUEST(EXTEND, at, .fence = fence, .lease_ms = 5000,
                   .value = {value, strlen(value)});
}

/* Node 1 does not hear of the new value; readers do, whomever they ask. */
STAGE_TEST(X_a_value_that_was_stored_is_read, 3)
{
    uint64_t t = ASK(1, .lease_ms = 5000, .value = {"old", 3});
    sl_fence a = granted(s, t);
    cut(s, 2, 1, SL_MESSAGE_NONE);
    cut(s, 1, 2, SL_MESSAGE_NONE);
    refused(s, extend_with(s, 2, a, "new"), SLUICE_OK);
    open_all(s);
    pass(s, 300);
    value_is(s, "new");
    assert_int_equal(extend(s, 3, a, 5000), SLUICE_OK);
    value_is(s, "new");
}

/* Through a node whose clock is behind: the last one counts all the same. */
TEST(X_values_follow_each_other_whatever_the_clocks_say)
{
    struct stage *s = clocks_apart();
    for (sl_node_id id = 1; id <= 2; id++)
        for (sl_node_id other = 3; other <= 5; other++) link_nodes(s, id, other);
    pass(s, 300);
    sl_fence a = take(s, 2, 5000);
    for (sl_node_id id = 1; id <= 2; id++)
        for (sl_node_id other = 4; other <= 5; other++) unlink_nodes(s, id, other);
    unlink_nodes(s, 2, 3);
    refused(s, extend_with(s, 1, a, "one"), SLUICE_OK);
    unlink_nodes(s, 1, 3);
    refused(s, extend_with(s, 3, a, "two"), SLUICE_OK);
    for (sl_node_id id = 1; id <= 2; id++)
        for (sl_node_id other = 3; other <= 5; other++) link_nodes(s, id, other);
    value_is(s, "two");
    stage_end(s);
}

STAGE_TEST(X_an_old_value_that_comes_late_is_refused, 3)
{
    sl_fence a = take(s, 1, 5000);
    hold(s, 1, 3, SL_MESSAGE_RENEW);
    refused(s, extend_with(s, 1, a, "one"), SLUICE_OK);
    pass(s, 1);
    refused(s, extend_with(s, 2, a, "two"), SLUICE_OK);
    deliver_all(s, 1, 3, SL_MESSAGE_RENEW);
    value_is(s, "two");
    struct sl_node_copy c;
    assert_true(
        sl_node_copy(s->actor[3].node, clock_of(s, 3), (struct sl_bytes){"k", 1}, &c));
    assert_memory_equal(c.value.at, "two", 3);
}

/* The directed test of QL-M10, without restarts. An extension that reached node 1 alone: it
 * has the lease for long. Nodes 2 and 3 let it end, and gave it to B, who is gone. Of a
 * majority only one still has A's. */
STAGE_TEST(X_acceptors_that_lack_the_lease_do_not_count, 3)
{
    sl_fence a = take(s, 1, 2000);
    pass(s, 1000);
    cut(s, 1, 0, SL_MESSAGE_RENEW);
    assert_int_equal(extend(s, 1, a, 60000), SLUICE_ENOQUORUM);
    open_all(s);
    pass(s, 1100);
    cut(s, 2, 1, SL_MESSAGE_NONE); /* Node 1 does not hear of B. */
    cut(s, 3, 1, SL_MESSAGE_NONE);
    sl_fence b = take(s, 2, 1000);
    assert_int_equal(release(s, 2, b), 1);
    pass(s, 1000);
    open_all(s);
    assert_int_equal(acceptor_has(s, 1), a);
    pass(s, 200);
    assert_int_equal(extend(s, 1, a, 2000), SLUICE_ELOST);
    assert_int_equal(extend(s, 3, a, 2000), SLUICE_ELOST);
}

/* And with the argument of README.md against it: node 2 restarts, forgets B's, and a TEACH
 * of A's lease that was on its way all the time arrives. If node 2 believed it, a majority
 * would have A's lease again, although B had come between. */
STAGE_TEST(X_a_late_TEACH_does_not_restore_an_ended_lease, 3)
{
    hold(s, 1, 2, SL_MESSAGE_TEACH);
    cut(s, 1, 2, SL_MESSAGE_ACQUIRE);
    sl_fence a = take(s, 1, 2000);
    pass(s, 500);
    assert_int_equal(extend(s, 1, a, 2000), SLUICE_OK);
    assert_true(kept(s, 1, 2, SL_MESSAGE_TEACH) >= 2);
    cut(s, 1, 0, SL_MESSAGE_RENEW);
    assert_int_equal(extend(s, 1, a, 60000), SLUICE_ENOQUORUM);
    pass(s, 2100);
    cut(s, 2, 1, SL_MESSAGE_NONE);
    cut(s, 3, 1, SL_MESSAGE_NONE);
    sl_fence b = take(s, 2, 1000);
    assert_true(b > a);
    assert_int_equal(release(s, 2, b), 1);
    open_all(s);
    hold(s, 1, 2, SL_MESSAGE_TEACH);
    s->longest_ms = 2000; /* Node 2 did not vote for the extension of 60 seconds. */
    restart(s, 2);
    end_silence(s);
    pass(s, 300);
    assert_int_equal(acceptor_has(s, 1), a);
    while (kept(s, 1, 2, SL_MESSAGE_TEACH) > 0) deliver(s, 1, 2, SL_MESSAGE_TEACH);
    assert_int_equal(acceptor_has(s, 2), 0);
    assert_int_equal(extend(s, 1, a, 2000), SLUICE_ELOST);
}

/* --- Q1 .. Q11 ------------------------------------------------------------------- */

/* One, two, all nodes, in every combination; with clocks that went back. */
TEST(Q1_fences_rise_whoever_restarts)
{
    for (uint32_t who = 1; who < 8; who++) {
        struct stage *s = stage_new(3);
        sl_fence a = take(s, 1, 1000);
        for (sl_node_id id = 1; id <= 3; id++) {
            s->actor[id].wall_offset_us = -900000000;
            if (who >> (id - 1) & 1) restart(s, id);
        }
        uint64_t b = ASK(3, .wait_ms = 10000);
        outcome(s, b);
        assert_true(granted(s, b) > a);
        assert_true(s->request[b].granted_us >= s->request[1].end_us);
        stage_end(s);
    }
}

/* A holds by nodes 1 and 2, all slow; node 2 forgets at once, and its clock is fast. */
STAGE_TEST(Q2_a_restarted_node_is_silent_long_enough_even_if_clocks_drift, 3)
{
    s->client_ppm = -1000;
    run_at(s, 1, -1000);
    run_at(s, 2, 1000);
    run_at(s, 3, 1000);
    cut(s, 1, 3, SL_MESSAGE_NONE);
    uint64_t a = ASK(1, .lease_ms = 10000);
    granted(s, a);
    restart(s, 2);
    open_all(s);
    cut(s, 0, 1, SL_MESSAGE_NONE); /* Only nodes 2 and 3 are there for B. */
    cut(s, 1, 0, SL_MESSAGE_NONE);
    assert_true(silence_of(s, 2) >= 10000);
    uint64_t b = ASK(3, .wait_ms = 30000);
    outcome(s, b);
    granted(s, b);
    assert_true(s->request[b].granted_us >= s->request[a].end_us);
}

TEST(Q4_an_extension_at_the_very_end)
{
    for (sl_ms late = -1; late <= 1; late++) {
        struct stage *s = stage_new(3);
        sl_fence a = take(s, 1, 1000);
        pass(s, 1001 + late); /* An acceptor's clock may be late by one. */
        struct sl_message m = forged(s, 3, 2, SL_MESSAGE_RENEW);
        m.fence = a;
        if (late < 0) VERDICT(said(s, m), YES);
        else VERDICT(said(s, m), LACKS);
        assert_int_equal(extend(s, 1, a, 1000), late < 0 ? SLUICE_OK : SLUICE_ELOST);
        stage_end(s);
    }
}

STAGE_TEST(Q5_leases_have_bounds, 3)
{
    refused(s, ASK(1, .lease_ms = 60001), SLUICE_ETOOBIG);
    not_granted(s, ASK(1, .lease_ms = 49));
    sl_fence a = take(s, 1, 60000);
    refused(s, REQUEST(EXTEND, 1, .fence = a, .lease_ms = 60001), SLUICE_ETOOBIG);
    release(s, 1, a);
    take(s, 1, 50);
}

/* All that nodes say, with a theft and a change of the list. */
static void everything(struct stage *s)
{
    uint64_t t = ASK(1, .lease_ms = 3000, .value = {"v", 1});
    outcome(s, t);
    sl_fence a = granted(s, t);
    pass(s, 100);
    assert_int_equal(extend(s, 2, a, 3000), SLUICE_OK);
    assert_int_equal(read_key(s, 3), a);
    assert_int_equal(check(s, 3, a), 1);
    uint64_t thief = ASK(2, THIEF, .priority = 5, .lease_ms = 2000);
    waits(s, thief);
    pass(s, 100);
    assert_int_equal(release(s, 1, a), 1);
    outcome(s, thief);
    sl_fence b = granted(s, thief);
    uint64_t quitter = ASK(3, THIEF_FOR(200), .priority = 9);
    outcome(s, quitter);
    refused(s, quitter, SLUICE_EFULL);
    assert_int_equal(extend(s, 1, b, 3000), SLUICE_OK);
    start(s, 4);
    uint64_t more = add_node(s, 1, 4);
    outcome(s, more);
    refused(s, more, SLUICE_OK);
    for (int i = 0; i < 8; i++) { /* Longer than node 4 is silent. */
        pass(s, 1000);
        assert_int_equal(extend(s, 4, b, 3000), SLUICE_OK);
    }
    LIST(3, "2: 1 2 3 4");
    for (sl_node_id id = 1; id <= 4; id++) assert_int_equal(copy_at(s, id), b);
    assert_int_equal(release(s, 3, b), 1);
    pass(s, 100);
    outcome(s, ASK(4));
    granted(s, s->requests);
    release(s, 1, answer_to(s, s->requests)->grant.fence);
    pass(s, 100);
}

STAGE_TEST(Q6_every_message_may_come_twice, 3)
{
    s->doubled = true;
    everything(s);
}

STAGE_TEST(Q6_and_in_another_order, 3)
{
    s->last_first = true;
    everything(s);
    s->doubled = true;
    pass(s, 100);
}

/* All of it again, long after; while another holds it. */
TEST(Q6_every_message_may_come_again_much_later)
{
    for (sl_ms later = 0; later <= 20000; later += 5000) {
        struct stage *s = stage_new(3);
        s->remembers = true;
        everything(s);
        s->remembers = false;
        pass(s, later + 1);
        sl_fence c = take(s, 1, 10000);
        size_t seen = s->events;
        replay(s);
        pass(s, 10);
        for (sl_node_id id = 1; id <= 4; id++) assert_int_equal(acceptor_has(s, id), c);
        for (sl_node_id id = 1; id <= 4; id++) assert_int_equal(copy_at(s, id), c);
        assert_int_equal(s->events, seen);
        assert_int_equal(extend(s, 2, c, 10000), SLUICE_OK);
        LIST(3, "2: 1 2 3 4");
        stage_end(s);
    }
}

/* A request that comes again does not bring an old value back. */
STAGE_TEST(Q6_a_request_that_comes_again_changes_nothing, 3)
{
    hold(s, 1, 2, SL_MESSAGE_ACQUIRE);
    uint64_t t = ASK(1, .value = {"old", 3});
    again(s, 1, 2, SL_MESSAGE_ACQUIRE);
    sl_fence a = granted(s, t);
    uint64_t e = REQUEST(EXTEND, 3, .fence = a, .value = {"new", 3}, .lease_ms = 2000);
    refused(s, e, SLUICE_OK);
    deliver(s, 1, 2, SL_MESSAGE_ACQUIRE);
    struct sl_node_copy c;
    assert_true(
        sl_node_copy(s->actor[2].node, clock_of(s, 2), (struct sl_bytes){"k", 1}, &c));
    assert_memory_equal(c.value.at, "new", 3);
    assert_int_equal(c.left_ms, 2000);
}

STAGE_TEST(Q7_a_holder_that_is_not_heard_loses_it_in_time, 3)
{
    sl_fence a = take(s, 1, 2000);
    cut(s, 1, 0, SL_MESSAGE_NONE);
    assert_int_equal(extend(s, 1, a, 2000), SLUICE_ENOQUORUM);
    uint64_t b = ASK(2, .wait_ms = 5000);
    outcome(s, b);
    granted(s, b);
}

STAGE_TEST(Q7_a_holder_that_hears_nothing_counts_on_nothing, 3)
{
    sl_fence a = take(s, 1, 2000);
    cut(s, 0, 1, SL_MESSAGE_NONE);
    pass(s, 1000);
    assert_int_equal(extend(s, 1, a, 2000), SLUICE_ENOQUORUM);
    pass(s, 500);
    assert_int_equal(acceptor_has(s, 2),
                     a); /* It was extended, though it does not know. */
    uint64_t b = ASK(2, .wait_ms = 5000);
    outcome(s, b);
    granted(s, b);
}

#define DAYS_US(n) ((int64_t)(n)*86400000000)

/* Fences follow the clocks of most: one that is days ahead uses none up, and the node with
 * it serves as the others do. */
STAGE_TEST(one_clock_days_ahead_changes_nothing, 3)
{
    sl_fence a = take(s, 1, 1000);
    assert_int_equal(release(s, 1, a), 1);
    s->actor[3].wall_offset_us = DAYS_US(30);
    pass(s, 1000);
    sl_fence b = take(s, 3, 1000);
    assert_true(b > a && b - a < DAYS_US(1));
    assert_int_equal(release(s, 2, b), 1);
    restart(s, 3);
    s->actor[3].wall_offset_us = 0;
    end_silence(s);
    crash(s, 1);
    pass(s, 1000);
    sl_fence c = take(s, 3, 1000);
    assert_true(c > b && c - a < DAYS_US(1));
}

/* The first that a node with such a clock hears of the others is a request. */
STAGE_TEST(one_clock_days_ahead_does_not_decide_about_the_first_request, 3)
{
    sl_fence a = take(s, 1, 1000);
    assert_int_equal(release(s, 1, a), 1);
    crash(s, 3);
    s->actor[3].wall_offset_us = DAYS_US(30);
    cut(s, 0, 3, SL_MESSAGE_BEAT);
    cut(s, 0, 3, SL_MESSAGE_TAUGHT);
    start(s, 3);
    end_silence(s);
    pass(s, 60000); /* What is on its disk is used up. */
    sl_fence b = take(s, 1, 1000);
    assert_int_equal(acceptor_has(s, 3), b);
    assert_true(s->actor[3].disk.fence_limit - b < DAYS_US(1));
}

/* Alone it cannot know what time it is, and takes no fence. */
STAGE_TEST(an_uncontended_request_wastes_no_fence, 3)
{
    isolate(s, 3);
    unlink_nodes(s, 1, 3);
    unlink_nodes(s, 2, 3);
    s->actor[3].wall_offset_us = DAYS_US(30);
    pass(s, 1000);
    refused(s, ASK(3), SLUICE_ENOQUORUM);
    refused(s, ASK(3, .wait_ms = 500), SLUICE_ENOQUORUM);
    assert_true(s->actor[3].disk.fence_limit < clock_of(s, 1).wall_us + DAYS_US(1));
}

/* Votes of nobody's round, and lists from nowhere. */
STAGE_TEST(what_a_node_says_out_of_turn_is_not_believed, 3)
{
    sl_fence a = take(s, 1, 1000);
    struct sl_message v = forged(s, 2, 1, SL_MESSAGE_VOTE);
    v.verdict = SL_VERDICT_FENCE;
    v.round = 12345;
    for (int i = 1; i <= 30; i++) {
        v.ceiling = a + (sl_fence)DAYS_US(i);
        give(s, 2, 1, &v);
    }
    struct sl_message f = forged(s, 2, 1, SL_MESSAGE_FORCE);
    f.list = *sl_node_membership(s->actor[1].node);
    f.list.version += 1u << 30;
    give(s, 2, 1, &f);
    f.list.version = 7;
    f.list.cluster++;
    give(s, 2, 1, &f);
    f = forged(s, 4, 1, SL_MESSAGE_FORCE); /* On neither list. */
    f.list = *sl_node_membership(s->actor[1].node);
    f.list.version++;
    give(s, 4, 1, &f);
    pass(s, 10);
    LIST(1, "1: 1 2 3");
    assert_int_equal(release(s, 1, a), 1);
    sl_fence b = take(s, 1, 1000);
    assert_true(b - a < DAYS_US(1));
}

STAGE_TEST(Q8_a_suspended_machine_wakes_to_nothing, 3)
{
    sl_fence a = take(s, 1, 10000);
    jump(s, 3600000);
    assert_int_equal(copy_at(s, 1), 0);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_ELOST);
    take(s, 2, 1000);
}

/* One machine sleeps, with a request on its way. */
STAGE_TEST(Q8_one_that_slept_grants_nothing_late, 3)
{
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    uint64_t a = ASK(1, .lease_ms = 60000);
    stop(s, 1);
    pass(s, 61000);
    take(s, 2, 1000);
    open_all(s);
    go(s, 1);
    pass(s, 1);
    outcome(s, a);
    not_granted(s, a);
}

/* The holder's clocks slow, the acceptors' fast, as far as is promised; and the other way. */
TEST(Q9_clocks_at_the_edge_of_the_drift)
{
    for (int ppm = -1000; ppm <= 1000; ppm += 2000) {
        struct stage *s = stage_new(3);
        s->client_ppm = ppm;
        run_at(s, 1, ppm);
        run_at(s, 2, -ppm);
        run_at(s, 3, -ppm);
        pass(s, 777);
        uint64_t a = ASK(1, .lease_ms = 60000);
        granted(s, a);
        uint64_t b = ASK(3, .wait_ms = 70000);
        while (!answered(s, b)) pass(s, 1);
        granted(s, b);
        assert_true(s->request[b].granted_us >= s->request[a].end_us);
        assert_true(s->request[b].granted_us <= s->request[a].sent_us + 61000000);
        stage_end(s);
    }
}

/* A grant that was waited for, and counts from its sending: the waiting was measured by a
 * clock that is fast, and counted by one that is slow. */
STAGE_TEST(Q9_a_long_wait_is_not_counted_twice, 3)
{
    for (sl_node_id id = 1; id <= 3; id++) run_at(s, id, 1000);
    s->client_ppm = -1000;
    sl_fence a = take(s, 1, 60000);
    uint64_t b = ASK(2, .wait_ms = 200000, .lease_ms = 1000);
    for (int i = 0; i < 2; i++) {
        pass(s, 40000);
        assert_int_equal(extend(s, 1, a, 60000), SLUICE_OK);
    }
    assert_int_equal(release(s, 1, a), 1);
    outcome(s, b);
    granted(s, b);
    assert_true(s->request[b].end_us > s->now_us);
    assert_true(s->request[b].end_us <= s->now_us + 1000000);
    uint64_t c = ASK(3, .wait_ms = 5000);
    outcome(s, c);
    granted(s, c);
}

/* Clocks are rounded down to milliseconds: a wait may seem longer than it was by one, and a
 * lease at an acceptor end one early. A asks at the end of a millisecond, and tries at the
 * beginning of another; nodes 2 and 3 vote at the end of one. */
STAGE_TEST(Q9_rounding_does_not_make_a_lease_longer, 3)
{
    s->actor[1].offset_us += 999 - (s->now_us + s->actor[1].offset_us) % 1000;
    for (sl_node_id id = 2; id <= 3; id++)
        s->actor[id].offset_us += 998 - (s->now_us + s->actor[id].offset_us) % 1000;
    sl_fence b = take(s, 2, 1000);
    uint64_t a = ASK(1, .wait_ms = 5000, .lease_ms = 50);
    pass(s, 10);
    REQUEST(RELEASE, 2, .fence = b);
    pass_us(s, 1);
    granted(s, a);
    cut(s, 3, 1, SL_MESSAGE_NONE); /* Node 1 would say that it is held. */
    pass(s, 50);
    for (int i = 0; i < 9; i++) {
        pass_us(s, 100);
        outcome(s, ASK(3, .lease_ms = 50)); /* The stage looks. */
    }
}

STAGE_TEST(Q10_fifty_clients_are_all_served, 3)
{
    enum { CLIENTS = 50 };
    uint64_t t[CLIENTS];
    for (uint32_t i = 0; i < CLIENTS; i++)
        t[i] = ASK(i % 3 + 1, .wait_ms = 60000, .lease_ms = 5000, .session = i + 1);
    for (int served = 0, ms = 0; served < CLIENTS; ms++) {
        assert_true(ms < 30000);
        for (uint32_t i = 0; i < CLIENTS; i++)
            if (t[i] != 0 && answered(s, t[i])) {
                release(s, s->request[t[i]].at, granted(s, t[i]));
                t[i] = 0;
                served++;
            }
        pass(s, 1);
    }
}

/* All ask at once, and none waits: in each round somebody may have it. */
STAGE_TEST(Q10_those_who_split_the_votes_try_again, 5)
{
    uint64_t t[5];
    hold(s, 0, 0, SL_MESSAGE_ACQUIRE);
    for (uint32_t i = 0; i < 5; i++)
        t[i] = ASK(i + 1, .wait_ms = 5000, .lease_ms = 60000);
    flow(s);
    uint32_t have = 0;
    for (int ms = 0; ms < 2000 && have == 0; ms++) {
        for (uint32_t i = 0; i < 5; i++) have += answered(s, t[i]);
        pass(s, 1);
    }
    assert_int_equal(have, 1);
}

STAGE_TEST(Q11_a_restarted_node_learns_a_lease_with_its_extension, 3)
{
    sl_fence a = take(s, 1, 1000);
    restart(s, 3);
    for (int i = 0; i < 10; i++) {
        pass(s, 300);
        assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
    }
    assert_int_equal(silence_of(s, 3), 0);
    assert_int_equal(copy_at(s, 3), a);
    assert_int_equal(acceptor_has(s, 3), a);
    crash(s, 2); /* Now it counts. */
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
}

/* --- What else is promised --------------------------------------------------------- */

STAGE_TEST(events_are_published_at_every_node_once, 3)
{
    uint64_t t = ASK(1, .session = 77);
    sl_fence a = granted(s, t);
    pass(s, 500);
    assert_int_equal(extend(s, 2, a, 1000), SLUICE_OK);
    pass(s, 500);
    assert_int_equal(release(s, 3, a), 1);
    sl_fence b = take(s, 2, 1000);
    pass(s, 1100);
    for (sl_node_id id = 1; id <= 3; id++) {
        assert_int_equal(events(s, id, SL_NODE_EVENT_GRANTED, a), 1);
        assert_int_equal(events(s, id, SL_NODE_EVENT_EXTENDED, a), 1);
        assert_int_equal(events(s, id, SL_NODE_EVENT_RELEASED, a), 1);
        assert_int_equal(events(s, id, SL_NODE_EVENT_EXPIRED, a), 0);
        assert_int_equal(events(s, id, SL_NODE_EVENT_GRANTED, b), 1);
        assert_int_equal(events(s, id, SL_NODE_EVENT_RELEASED, b), 0);
        assert_int_equal(events(s, id, SL_NODE_EVENT_EXPIRED, b), 1);
    }
    assert_int_equal(last_event(s, 1, SL_NODE_EVENT_RELEASED)->session, 77);
    assert_int_equal(last_event(s, 2, SL_NODE_EVENT_RELEASED)->session, 0);
}

/* Node 3 is restarted, while the holder extends through node 1. Then it has a copy. */
static void restart_under(struct stage *s, sl_fence a)
{
    forget_events(s);
    restart(s, 3);
    while (silence_of(s, 3) > 0) {
        assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
        for (int i = 0; i < 300 && silence_of(s, 3) > 0; i++) pass(s, 1);
    }
    pass(s, 10);
    assert_int_equal(acceptor_has(s, 3), a);
}

/* Node 3 has a lease from the copies of others alone, and misses its extension: it does not
 * know that it is over, and says nothing. */
STAGE_TEST(an_ending_copy_is_not_reported_as_expired, 3)
{
    sl_fence a = take(s, 1, 1000);
    restart_under(s, a);
    cut(s, 0, 3, SL_MESSAGE_NONE);
    pass(s, 300);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
    pass(s, 750);
    assert_int_equal(copy_at(s, 3), 0);
    assert_int_equal(events(s, 3, SL_NODE_EVENT_EXPIRED, a), 0);
    open_all(s);
    pass(s, 100);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
    assert_int_equal(copy_at(s, 3), a);
    assert_int_equal(events(s, 3, SL_NODE_EVENT_GRANTED, a), 1);
    assert_int_equal(events(s, 3, SL_NODE_EVENT_EXTENDED, a), 1);
    pass(s, 1100);
    assert_int_equal(events(s, 3, SL_NODE_EVENT_EXPIRED, a), 1);
}

/* What became of it is told when nobody has spoken of it for long, or when the next lease of the
 * key is agreed; and not at all if it was released. */
TEST(an_expired_copy_is_eventually_reported_as_expired)
{
    for (int i = 0; i < 3; i++) {
        struct stage *s = stage_new(3);
        sl_fence a = take(s, 1, 1000);
        restart_under(s, a);
        if (i == 2)
            cut(s, 1, 0, SL_MESSAGE_RENEW); /* Node 1 alone has it for longer. */
        if (i == 2) assert_int_equal(extend(s, 1, a, 60000), SLUICE_ENOQUORUM);
        open_all(s);
        pass(s, 1000);
        assert_int_equal(copy_at(s, 3), 0);
        assert_int_equal(events(s, 3, SL_NODE_EVENT_EXPIRED, a), 0);
        if (i == 0) pass(s, 2 * s->limits.forget_ms);
        if (i == 1) take(s, 1, 1000);
        if (i == 2) assert_int_equal(release(s, 1, a), 1);
        pass(s, 10);
        assert_int_equal(events(s, 3, SL_NODE_EVENT_EXPIRED, a), i < 2);
        assert_int_equal(events(s, 3, SL_NODE_EVENT_RELEASED, a), i == 2);
        stage_end(s);
    }
}

STAGE_TEST(a_session_s_own_grant_is_released_without_a_fence, 3)
{
    uint64_t a = ASK(1, .session = 5);
    granted(s, a);
    uint64_t r = REQUEST(RELEASE, 1, .session = 6);
    outcome(s, r);
    assert_int_equal(answer_to(s, r)->number, 0);
    assert_true(acceptor_has(s, 2) != 0);
    s->request[a].end_us = s->now_us;
    r = REQUEST(RELEASE, 1, .session = 5);
    outcome(s, r);
    assert_int_equal(answer_to(s, r)->number, 1);
    granted(s, ASK(2));
}

STAGE_TEST(a_withdrawn_request_leaves_nothing, 3)
{
    sl_fence a = take(s, 1, 1000);
    uint64_t b = ASK(2, .wait_ms = 10000);
    withdraw(s, b);
    release(s, 1, a);
    granted(s, ASK(3));
    hold(s, 0, 0, SL_MESSAGE_VOTE);
    uint64_t c = ASK(2, .key = {"other", 5});
    withdraw(s, c);
    flow(s);
    pass(s, 1);
    granted(s, ASK(3, .key = {"other", 5}));
}

/* --- Memory -------------------------------------------------------------------- */

static size_t bytes_at(const struct stage *s, sl_node_id id)
{
    return sl_node_bytes(s->actor[id].node);
}

/* sl_node_check() compares the sum with all that is there, after every call. */
STAGE_TEST(all_memory_is_counted_and_returns_to_what_it_was, 3)
{
    static const char text[STAGE_BYTES] = "text";
    granted(s, ASK(1, .lease_ms = 100));
    pass(s, 30000);
    size_t before[4], with[4];
    for (sl_node_id id = 1; id <= 3; id++) before[id] = bytes_at(s, id);

    sl_fence a = granted(s, ASK(1, .lease_ms = 60000, .value = {text, 10}));
    for (sl_node_id id = 1; id <= 3; id++) with[id] = bytes_at(s, id);
    uint64_t e = REQUEST(EXTEND, 2, .fence = a, .lease_ms = 60000, .value = {text, 60});
    assert_int_equal(outcome(s, e), SLUICE_OK);
    for (sl_node_id id = 1; id <= 3; id++)
        assert_int_equal(bytes_at(s, id), with[id] + 50);

    uint64_t waiter = ASK(2, .wait_ms = 60000, .note = {text, 64}, .value = {text, 64});
    assert_true(bytes_at(s, 2) >= with[2] + 50 + 64 + 64);
    assert_int_equal(bytes_at(s, 3), with[3] + 50);
    withdraw(s, waiter);
    pass(s, 1000);

    /* One that a thief overlaps, and its texts. */
    granted(s, ASK(3, .wait_ms = 1000, .steal = true, .force_ms = 0, .priority = 7,
                   .lease_ms = 100, .value = {text, 30}, .note = {text, 40}));
    for (sl_node_id id = 1; id <= 3; id++)
        assert_true(bytes_at(s, id) >= with[id] + 50 + 30 + 40);
    pass(s, 1000);
    for (sl_node_id id = 1; id <= 3; id++)
        assert_int_equal(bytes_at(s, id), with[id] + 50);

    assert_int_equal(release(s, 3, a), 1);
    pass(s, 30000);
    for (sl_node_id id = 1; id <= 3; id++)
        assert_int_equal(bytes_at(s, id), before[id]);
}

STAGE_TEST(a_waiter_is_notified_in_time, 3)
{
    take(s, 1, 10000);
    int64_t began_us = s->now_us;
    uint64_t b = ASK(2, .wait_ms = 700);
    outcome(s, b);
    refused(s, b, SLUICE_EFULL);
    assert_int_equal((s->now_us - began_us) / 1000, 701); /* Clocks are rounded down. */
}

STAGE_TEST(a_waiter_has_it_soon_after_the_release, 3)
{
    sl_fence a = take(s, 1, 60000);
    uint64_t b = ASK(3, .wait_ms = 60000);
    pass(s, 5000);
    release(s, 1, a);
    int64_t began_us = s->now_us;
    outcome(s, b);
    granted(s, b);
    assert_true(s->now_us - began_us <= 100000);
    assert_true(answer_to(s, b)->grant.waited_ms >= 5000);
    assert_true(answer_to(s, b)->grant.waited_ms <= 5100);
}

STAGE_TEST(votes_tell_what_each_node_has, 3)
{
    sl_fence a = take(s, 1, 5000);
    restart(s, 3);
    uint64_t v = REQUEST(VOTES, 2);
    outcome(s, v);
    const struct sl_node_answer *got = answer_to(s, v);
    assert_int_equal(got->copy_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sl_node_copy *c = &got->copies[i];
        assert_int_equal(c->node, i + 1);
        assert_int_equal(c->verdict, i < 2 ? SL_VERDICT_YES : SL_VERDICT_SILENT);
        assert_int_equal(c->held, i < 2);
        if (i < 2) assert_int_equal(c->fence, a);
    }
}

STAGE_TEST(awaiting_is_by_the_local_copy, 3)
{
    uint64_t held = REQUEST(AWAIT, 2, .wait_ms = 10000);
    waits(s, held);
    sl_fence a = take(s, 1, 1000);
    refused(s, held, SLUICE_OK);
    assert_int_equal(answer_to(s, held)->number, 1);
    uint64_t gone = REQUEST(AWAIT, 3, .wait_ms = 10000, .want_free = true);
    waits(s, gone);
    release(s, 1, a);
    pass(s, 1);
    refused(s, gone, SLUICE_OK);
    uint64_t vain = REQUEST(AWAIT, 3, .wait_ms = 100);
    outcome(s, vain);
    assert_int_equal(answer_to(s, vain)->number, 0);
}

TEST_MAIN(be_patient, NULL)
