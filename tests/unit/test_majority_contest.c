/* test_majority_contest.c - requests that compete for a free key: one of them is granted within a
 * few rounds, in whatever order messages arrive, and nobody is told that the key is taken while
 * it is free. Unless a test says otherwise node 3 of three is dead, so that two requests at the
 * other two nodes split the votes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "majority_stage.h"
#include "test_main.h"

static const struct sl_node_request plain = {.lease_ms = 5000};

static uint64_t attempts_of(struct stage *s)
{
    uint64_t sum = 0;
    for (sl_node_id id = 1; id <= 2; id++) {
        struct sl_node_stats stats;
        sl_node_stats(s->actor[id].node, clock_of(s, id), &stats);
        sum += stats.attempts;
    }
    return sum;
}

static struct stage *two_of_three(void)
{
    struct sl_node_limits limits = stage_limits;
    limits.keys_max = 1000000;
    struct stage *s = stage_with(3, &limits);
    crash(s, 3);
    pass(s, 10);
    return s;
}

/* --- All orders of messages ---------------------------------------------------------- */

enum { PLAYERS_MAX = 3, STEPS_MAX = 200, QUIET_MS_MAX = 400 };

/* What is tried, and how far the search is: a path is the number of the choice at each step. */
struct search {
    struct stage *s;
    uint32_t players;
    sl_node_id at[PLAYERS_MAX];
    struct sl_node_request ask[PLAYERS_MAX];
    uint32_t
        free_steps; /* Choices are varied up to here; then the first one is taken. */
    unsigned path[STEPS_MAX], choices[STEPS_MAX];
    uint32_t steps, passes, passes_max;
    uint64_t request[PLAYERS_MAX];
    uint64_t paths, attempts_most;
    sl_ms quiet_most;
};

/* Step by step: the next request is asked, the oldest message of one way arrives, or both take
 * a while. */
enum { DO_ASK, DO_FORTH, DO_BACK, DO_PASS, DO_COUNT };

static bool is_possible(const struct search *x, uint32_t asked, int what)
{
    bool idle = kept(x->s, 1, 2, SL_MESSAGE_NONE) + kept(x->s, 2, 1, SL_MESSAGE_NONE) ==
                0;
    if (what == DO_ASK) return asked < x->players;
    if (what == DO_PASS) return !idle && x->passes > 0 && x->steps < x->free_steps;
    return what == DO_FORTH ? kept(x->s, 1, 2, SL_MESSAGE_NONE) > 0
                            : kept(x->s, 2, 1, SL_MESSAGE_NONE) > 0;
}

static int choose(struct search *x, uint32_t asked)
{
    int possible[DO_COUNT];
    unsigned count = 0;
    for (int what = 0; what < DO_COUNT; what++)
        if (is_possible(x, asked, what)) possible[count++] = what;
    if (count == 0) return DO_COUNT;
    assert_true(x->steps < STEPS_MAX);
    unsigned *at = &x->path[x->steps];
    if (x->steps >= x->free_steps) *at = x->steps % count; /* Fair. */
    if (*at >= count) *at = count - 1; /* Pauses are left to chance. */
    x->choices[x->steps++] = count;
    return possible[*at];
}

static void ask_next(struct search *x, uint32_t i)
{
    static char key[24];
    struct stage *s = x->s;
    struct sl_node_request ask = x->ask[i];
    int n = snprintf(key, sizeof key, "key%llu", (unsigned long long)x->paths);
    ask.key = (struct sl_bytes){key, (size_t)n};
    ask.type = SL_NODE_ACQUIRE;
    pass_us(s, 1); /* It is younger than those before. */
    x->request[i] = stage_ask(s, x->at[i], ask);
}

static uint32_t count_grants(const struct search *x, uint32_t asked)
{
    uint32_t grants = 0;
    for (uint32_t i = 0; i < asked; i++) {
        const struct request *r = &x->s->request[x->request[i]];
        if (!r->answered) continue;
        if (r->answer.status == SLUICE_OK) grants++;
        else assert_int_equal(r->answer.status, SLUICE_EFULL);
    }
    return grants;
}

/* Until one is granted. */
static void play(struct search *x)
{
    struct stage *s = x->s;
    uint32_t asked = 0;
    sl_ms quiet = 0;
    uint64_t before = attempts_of(s);
    x->steps = 0;
    x->passes = x->passes_max;
    hold(s, 1, 2, SL_MESSAGE_NONE);
    hold(s, 2, 1, SL_MESSAGE_NONE);
    while (asked < x->players || count_grants(x, asked) == 0) {
        int what = choose(x, asked);
        if (what == DO_ASK) ask_next(x, asked++);
        else if (what == DO_FORTH) deliver(s, 1, 2, SL_MESSAGE_NONE);
        else if (what == DO_BACK) deliver(s, 2, 1, SL_MESSAGE_NONE);
        else if (what == DO_PASS) {
            x->passes--;
            pass(s, 1);
        } else {
            if (++quiet >= QUIET_MS_MAX)
                fail_msg("path %llu: nobody was granted the key",
                         (unsigned long long)x->paths);
            pass(s, 1);
        }
    }
    uint64_t attempts = attempts_of(s) - before;
    if (attempts > x->attempts_most) x->attempts_most = attempts;
    if (quiet > x->quiet_most) x->quiet_most = quiet;
    flow(s);
}

/* All others receive that it is taken; waiters get it in turn. */
static void finish(struct search *x)
{
    struct stage *s = x->s;
    uint32_t done = 0, grants = 0;
    bool over[PLAYERS_MAX] = {false};
    for (int ms = 0; done < x->players; ms++) {
        assert_true(ms < 10000);
        for (uint32_t i = 0; i < x->players; i++) {
            struct request *r = &s->request[x->request[i]];
            if (over[i] || !r->answered) continue;
            over[i] = true;
            done++;
            if (r->answer.status != SLUICE_OK) continue;
            grants++;
            if (x->ask[0].wait_ms == 0) continue; /* It keeps the key. */
            struct sl_node_request ask = {.type = SL_NODE_RELEASE,
                                          .key = {r->key, strlen(r->key)},
                                          .fence = r->answer.grant.fence};
            uint64_t t = stage_ask(s, r->at, ask);
            assert_int_equal(answer_to(s, t)->number, 1);
        }
        pass(s, 1);
    }
    assert_int_equal(grants, x->ask[0].wait_ms == 0 ? 1 : x->players);
    s->requests = 0;
    forget_events(s);
}

/* The next path; false: that was the last one. */
static bool advance(struct search *x)
{
    uint32_t n = x->steps < x->free_steps ? x->steps : x->free_steps;
    while (n > 0 && x->path[n - 1] + 1 >= x->choices[n - 1]) n--;
    if (n == 0) return false;
    x->path[n - 1]++;
    for (uint32_t i = n; i < STEPS_MAX; i++) x->path[i] = 0;
    return true;
}

static void search(struct search *x, uint32_t attempts_max)
{
    x->s = two_of_three();
    do {
        play(x);
        finish(x);
        x->paths++;
    } while (advance(x));
    stage_end(x->s);
    print_message("%llu orders, at most %llu attempts and %lld ms of pauses\n",
                  (unsigned long long)x->paths, (unsigned long long)x->attempts_most,
                  (long long)x->quiet_most);
    assert_true(x->paths >= 30); /* Else nothing was searched. */
    assert_true(x->attempts_most <= attempts_max);
}

TEST(two_requests_in_all_orders)
{
    for (sl_node_id first = 1; first <= 2; first++) {
        struct search x = {.players = 2,
                           .at = {first, 3 - first},
                           .ask = {plain, plain},
                           .free_steps = 12,
                           .passes_max = 1};
        search(&x, 8);
    }
}

TEST(two_waiting_requests_in_all_orders)
{
    struct search x = {.players = 2,
                       .at = {1, 2},
                       .ask = {plain, plain},
                       .free_steps = 12,
                       .passes_max = 1};
    x.ask[0].wait_ms = x.ask[1].wait_ms = 5000;
    search(&x, 8);
}

/* The younger one has more priority, so it comes first. */
TEST(two_of_unequal_priority_in_all_orders)
{
    struct search x = {.players = 2,
                       .at = {1, 2},
                       .ask = {plain, plain},
                       .free_steps = 12,
                       .passes_max = 1};
    x.ask[1].priority = 5;
    search(&x, 8);
}

TEST(three_in_many_orders)
{
    static const sl_node_id at[][3] = {{1, 2, 1}, {1, 1, 2}, {2, 1, 1}};
    for (size_t i = 0; i < 3; i++) {
        struct search x = {.players = 3,
                           .at = {at[i][0], at[i][1], at[i][2]},
                           .ask = {plain, plain, plain},
                           .free_steps = 12};
        x.ask[2].priority = (int32_t)i;
        search(&x, 16);
    }
}

/* --- The first one ---------------------------------------------------------------------- */

/* Two requests that have a vote each. Returns with all messages held. */
static void split(struct stage *s, uint64_t out[2], struct sl_node_request a,
                  struct sl_node_request b)
{
    a.type = b.type = SL_NODE_ACQUIRE;
    hold(s, 1, 2, SL_MESSAGE_NONE);
    hold(s, 2, 1, SL_MESSAGE_NONE);
    out[0] = stage_ask(s, 1, a);
    pass_us(s, 1);
    out[1] = stage_ask(s, 2, b);
}

TEST(the_older_request_comes_first)
{
    struct stage *s = two_of_three();
    uint64_t t[2];
    split(s, t, plain, plain);
    flow(s);
    granted(s, t[0]);
    outcome(s, t[1]);
    refused(s, t[1], SLUICE_EFULL);
    stage_end(s);
}

TEST(the_higher_priority_comes_first)
{
    struct stage *s = two_of_three();
    uint64_t t[2];
    split(s, t, plain, (struct sl_node_request){.lease_ms = 5000, .priority = 1});
    flow(s);
    granted(s, t[1]);
    outcome(s, t[0]);
    refused(s, t[0], SLUICE_EFULL);
    stage_end(s);
}

/* The second request has withdrawn, and the first has not asked again: its turn is kept, and
 * no request that is younger takes the free vote. */
TEST(nobody_enters_while_the_first_retries)
{
    struct stage *s = two_of_three();
    uint64_t t[2];
    split(s, t, plain, plain);
    deliver(s, 1, 2, SL_MESSAGE_ACQUIRE); /* Refused; but it is the next one. */
    deliver(s, 2, 1, SL_MESSAGE_ACQUIRE);
    deliver(s, 1, 2, SL_MESSAGE_VOTE); /* Now the second one withdraws. */
    assert_int_equal(acceptor_has(s, 2), 0);
    pass_us(s, 1);
    uint64_t late = ASK(2, .lease_ms = 5000);
    assert_int_equal(acceptor_has(s, 2), 0);
    flow(s);
    granted(s, t[0]);
    outcome(s, t[1]);
    refused(s, t[1], SLUICE_EFULL);
    outcome(s, late);
    refused(s, late, SLUICE_EFULL);
    stage_end(s);
}

/* A younger request comes at node 2, and at both, in every moment; until the first has it. */
static void press(struct stage *s, bool both)
{
    uint64_t t[2], more[64];
    uint32_t count = 0;
    split(s, t, plain, plain);
    while (!answered(s, t[0])) {
        assert_true(count < 40);
        more[count] = ASK(both ? count % 2 + 1 : 2, .lease_ms = 5000);
        count++;
        pass_us(s, 1);
        for (uint32_t n = kept(s, 1, 2, SL_MESSAGE_NONE); n > 0; n--)
            deliver(s, 1, 2, SL_MESSAGE_NONE);
        for (uint32_t n = kept(s, 2, 1, SL_MESSAGE_NONE); n > 0; n--)
            deliver(s, 2, 1, SL_MESSAGE_NONE);
    }
    granted(s, t[0]);
    flow(s);
    for (uint32_t i = 0; i < count; i++) {
        outcome(s, more[i]);
        refused(s, more[i], SLUICE_EFULL);
    }
}

TEST(newcomers_do_not_keep_the_first_out)
{
    for (int both = 0; both < 2; both++) {
        struct stage *s = two_of_three();
        press(s, both);
        stage_end(s);
    }
}

/* Fences are ahead of the clocks, so that each is just above the last: those that were given
 * up are above what the first one uses. */
TEST(requests_that_yield_do_not_outrun_the_first)
{
    for (int both = 0; both < 2; both++) {
        struct stage *s = two_of_three();
        for (sl_node_id id = 1; id <= 2; id++) s->actor[id].wall_offset_us = -60000000;
        pass(s, 300);
        press(s, both);
        stage_end(s);
    }
}

/* A node that hangs answers neither: its vote is not waited for until it is given up. */
STAGE_TEST(a_node_that_hangs_does_not_decide, 3)
{
    uint64_t t[2];
    stop(s, 3);
    split(s, t, plain, plain);
    flow(s);
    pass(s, 100);
    granted(s, t[0]);
    outcome(s, t[1]);
    refused(s, t[1], SLUICE_EFULL);
}

/* --- Clients that leave during it ------------------------------------------------------------ */

TEST(a_withdrawn_request_leaves_no_vote)
{
    struct stage *s = two_of_three();
    uint64_t t[2];
    split(s, t, plain, plain);
    deliver(s, 1, 2, SL_MESSAGE_ACQUIRE);
    deliver(s, 2, 1,
            SL_MESSAGE_VOTE); /* The first one asks again, and keeps its vote. */
    assert_int_not_equal(acceptor_has(s, 1), 0);
    withdraw(s, t[0]);
    assert_int_equal(acceptor_has(s, 1), 0);
    flow(s);
    pass(s, 10);
    granted(s, t[1]);
    stage_end(s);
}

/* It has votes, and waits for its next round: they are released with its answer. */
TEST(a_request_that_times_out_between_rounds_leaves_no_vote)
{
    struct stage *s = two_of_three();
    struct sl_message ghost = forged(s, 1, 2, SL_MESSAGE_ACQUIRE);
    ghost.owner.number = UINT64_MAX; /* The youngest of all; it never withdraws. */
    ghost.fence = (sl_fence)s->now_us + 1000;
    ghost.lease_ms = 5000;
    ghost.round = 0;
    give(s, 1, 2, &ghost);
    assert_int_equal(acceptor_has(s, 2), ghost.fence);
    uint64_t t = ASK(1, .lease_ms = 5000);
    outcome(s, t);
    refused(s, t, SLUICE_EFULL); /* Node 3 may have it, for all that is known. */
    assert_int_equal(acceptor_has(s, 1), 0);
    stage_end(s);
}

/* The acceptor has not heard of the second attempt: the end of that ends the first, too. */
TEST(an_attempt_that_is_given_up_takes_earlier_ones_along)
{
    struct stage *s = two_of_three();
    struct sl_message m = forged(s, 1, 2, SL_MESSAGE_ACQUIRE);
    m.owner.number = 77;
    m.fence = (sl_fence)s->now_us + 1000;
    m.round = 0;
    give(s, 1, 2, &m);
    assert_int_equal(acceptor_has(s, 2), m.fence);
    m.type = SL_MESSAGE_RELEASE;
    m.fence += 16;
    give(s, 1, 2, &m);
    assert_int_equal(acceptor_has(s, 2), 0);
    stage_end(s);
}

/* The node that made an attempt is dead, and has left one vote: it may have been granted. */
STAGE_TEST(a_dead_proposers_vote_counts_until_it_expires, 3)
{
    cut(s, 3, 1, SL_MESSAGE_NONE);
    hold(s, 2, 3, SL_MESSAGE_NONE);
    ASK(3, .lease_ms = 3000);
    pass_us(s, 1);
    crash(s, 3);
    flow(s);
    assert_int_not_equal(acceptor_has(s, 2), 0);
    uint64_t t = ASK(1, .lease_ms = 1000),
             u = ASK(1, .lease_ms = 1000, .wait_ms = 10000);
    sl_ms began = now_ms(s);
    outcome(s, t);
    refused(s, t, SLUICE_EFULL);
    outcome(s, u);
    granted(s, u);
    assert_true(now_ms(s) - began <= 3600);
}

/* Two acceptors have attempts of different requests, and all three answer: no lease is in force.
 * Its own vote is released with its answer. */
STAGE_TEST(split_votes_are_not_reported_as_a_lease, 3)
{
    for (sl_node_id to = 2; to <= 3; to++) {
        struct sl_message ghost = forged(s, to % 3 + 1, to, SL_MESSAGE_ACQUIRE);
        ghost.owner.number = UINT64_MAX - to;
        ghost.fence = (sl_fence)s->now_us + 1000 * to;
        ghost.lease_ms = 5000;
        ghost.round = 0;
        give(s, to % 3 + 1, to, &ghost);
        assert_int_equal(acceptor_has(s, to), ghost.fence);
    }
    uint64_t t = ASK(1, .lease_ms = 1000);
    outcome(s, t);
    refused(s, t, SLUICE_ENOQUORUM);
    assert_int_equal(acceptor_has(s, 1), 0);
}

/* --- Waiting --------------------------------------------------------------------------------- */

/* The time of both is over before their votes have come. */
TEST(a_short_wait_ends_once_the_holder_is_known)
{
    struct stage *s = two_of_three();
    uint64_t t[2];
    const struct sl_node_request brief = {.lease_ms = 5000, .wait_ms = 1};
    split(s, t, brief, brief);
    pass(s, 5);
    flow(s);
    pass(s, 50);
    granted(s, t[0]);
    refused(s, t[1], SLUICE_EFULL);
    stage_end(s);
}

/* And between two rounds. */
TEST(a_wait_that_ends_between_two_rounds_continues)
{
    struct stage *s = two_of_three();
    uint64_t t[2];
    const struct sl_node_request brief = {.lease_ms = 5000, .wait_ms = 6};
    split(s, t, brief, brief);
    deliver(s, 1, 2, SL_MESSAGE_ACQUIRE);
    deliver(s, 2, 1,
            SL_MESSAGE_VOTE); /* The first asks again, is refused again, and again. */
    for (int i = 0; i < 3; i++) {
        for (int ms = 0; ms < 50 && kept(s, 1, 2, SL_MESSAGE_ACQUIRE) == 0; ms++)
            pass(s, 1);
        deliver(s, 1, 2, SL_MESSAGE_ACQUIRE);
        deliver(s, 2, 1, SL_MESSAGE_VOTE);
    }
    pass(s, 6);
    flow(s);
    pass(s, 300);
    granted(s, t[0]);
    not_granted(s, t[1]);
    stage_end(s);
}

/* It stands behind another one, which is granted the key just then: it has not asked anybody
 * when its time is over. */
TEST(a_queued_request_learns_that_the_key_is_taken)
{
    struct stage *s = two_of_three();
    hold(s, 1, 2, SL_MESSAGE_NONE);
    uint64_t t = ASK(1, .lease_ms = 5000, .wait_ms = 5000);
    uint64_t u = ASK(1, .lease_ms = 5000, .wait_ms = 30);
    flow(s);
    granted(s, t);
    pass(s, 40);
    refused(s, u, SLUICE_EFULL);
    stage_end(s);
}

/* The first of them ends, the second becomes the head of the queue in the same millisecond. */
TEST(waits_without_a_majority_end_in_time)
{
    struct stage *s = two_of_three();
    crash(s, 2);
    pass(s, 1000);
    uint64_t t[3];
    for (int i = 0; i < 3; i++) t[i] = ASK(1, .lease_ms = 5000, .wait_ms = 300);
    pass(s, 299);
    for (int i = 0; i < 3; i++) waits(s, t[i]);
    pass(s, 2000);
    for (int i = 0; i < 3; i++) refused(s, t[i], SLUICE_ENOQUORUM);
    stage_end(s);
}

/* Waits of 100 ms that begin late in a millisecond of their nodes' clocks. */
STAGE_TEST(no_wait_ends_before_its_time, 3)
{
    sl_fence f = take(s, 1, 5000);
    assert_true(f > 0);
    pass_us(s, 300);
    int64_t began = s->now_us;
    uint64_t t = ASK(2, .wait_ms = 100),
             u = REQUEST(AWAIT, 3, .wait_ms = 100, .want_free = true);
    pass_us(s, 900);
    pass(s, 99);
    assert_true(s->now_us - began < 100000);
    waits(s, t);
    waits(s, u);
    pass(s, 300);
    refused(s, t, SLUICE_EFULL);
    assert_int_equal(answer_to(s, u)->number, 0);
}

TEST_MAIN(NULL, NULL)
