/* test_majority_membership.c - the membership changes while leases are held: one node at a time,
 * decided once, whichever node dies at whatever step. Nodes 1 to 3 (or 5) are a cluster; others are
 * started empty and added. */
#include <stdlib.h>
#include <string.h>

#include "majority_stage.h"
#include "test_main.h"

/* Messages about lists. */
static const enum sl_message_type about_lists[] = {
    SL_MESSAGE_PREPARE, SL_MESSAGE_PROMISE, SL_MESSAGE_ACCEPT, SL_MESSAGE_ACCEPTED,
    SL_MESSAGE_STORE,   SL_MESSAGE_STORED,  SL_MESSAGE_FORCE};
enum { ABOUT_LISTS = sizeof about_lists / sizeof *about_lists };

/* And about leases. */
static void cut_leases(struct stage *s, sl_node_id from, sl_node_id to)
{
    cut(s, from, to, SL_MESSAGE_ACQUIRE);
    cut(s, from, to, SL_MESSAGE_RENEW);
    cut(s, from, to, SL_MESSAGE_TEACH);
    cut(s, from, to, SL_MESSAGE_RELEASE);
}

static uint32_t version_at(const struct stage *s, sl_node_id id)
{
    return (uint32_t)sl_node_membership(s->actor[id].node)->version;
}

/* A change is asked for until it is made: it may be too soon. */
static void changed(struct stage *s, sl_node_id at, int sign, sl_node_id node)
{
    for (int i = 0; i < 60; i++) {
        uint64_t t = sign > 0 ? add_node(s, at, node) : remove_node(s, at, node);
        if (outcome(s, t) == SLUICE_OK) return;
        one_list(s);
        pass(s, 1000);
    }
    fail_msg("node %u: %s", node, answer_to(s, s->requests)->reason);
}

/* Until a request is answered, a lease is extended through a node. */
static void extending(struct stage *s, uint64_t request, sl_node_id at, sl_fence fence)
{
    while (!answered(s, request)) {
        pass(s, 200);
        assert_int_equal(extend(s, at, fence, 1000), SLUICE_OK);
    }
}

static void refused_because(struct stage *s, uint64_t request, const char *part)
{
    refused(s, request, SLUICE_ENODES);
    if (strstr(answer_to(s, request)->reason, part) == NULL)
        fail_msg("the reason is: %s", answer_to(s, request)->reason);
}

/* --- Growing and shrinking ------------------------------------------------------ */

/* 3, 4, 5, 4 nodes; the lease is extended all the time, at last through a node that came
 * later, when the node where it was taken is gone. */
STAGE_TEST(Q3_growing_and_shrinking_with_a_lease_held, 3)
{
    sl_fence a = take(s, 1, 1000);
    uint64_t b = ASK(3, .wait_ms = 600000);
    const struct {
        int sign;
        sl_node_id node, by, through;
        const char *list;
    } steps[] = {{1, 4, 1, 2, "2: 1 2 3 4"},
                 {1, 5, 4, 3, "3: 1 2 3 4 5"},
                 {-1, 1, 2, 5, "4: 2 3 4 5"}};
    for (size_t i = 0; i < 3; i++) {
        if (steps[i].sign > 0) start(s, steps[i].node);
        uint64_t t = steps[i].sign > 0 ? add_node(s, steps[i].by, steps[i].node)
                                       : remove_node(s, steps[i].by, steps[i].node);
        extending(s, t, steps[i].through, a);
        refused(s, t, SLUICE_OK);
        for (sl_node_id id = 2; id <= 3 + i && id <= 5; id++) LIST(id, steps[i].list);
        assert_int_equal(read_key(s, 2), a);
        one_list(s);
    }
    waits(s, b);
    crash(s, 1);
    assert_int_equal(extend(s, 4, a, 1000), SLUICE_OK);
    assert_int_equal(release(s, 5, a), 1);
    outcome(s, b);
    assert_true(granted(s, b) > a);
}

static void at_most_two_of_four_can_vote(struct stage *s, uint64_t request)
{
    outcome(s, request);
    refused(s, request, SLUICE_ERECOVERING);
    const struct sl_node_answer *a = answer_to(s, request);
    assert_int_equal(a->can_vote, 2);
    assert_int_equal(a->members, 4);
    assert_int_equal(a->needed, 3);
    assert_int_equal(a->silent, 1);
    assert_in_range(a->left_ms, 20000, 31000);
}

/* Node 3 is dead, and node 4 was just added. The answer is the same if the vote of node 2 arrives
 * after the vote of node 4, and if the request stands behind a waiter. */
STAGE_TEST(a_dead_node_and_an_added_node_make_the_answer_RECOVERING, 3)
{
    const struct sl_bytes key = {"other", 5};
    take(s, 1, 30000);
    start(s, 4);
    refused(s, add_node(s, 1, 4), SLUICE_OK);
    crash(s, 3);
    at_most_two_of_four_can_vote(s, ASK(1, .key = key));
    hold(s, 2, 1, SL_MESSAGE_VOTE);
    at_most_two_of_four_can_vote(s, ASK(1, .key = key));
    at_most_two_of_four_can_vote(s, REQUEST(RELEASE, 1, .key = key, .fence = 1));
    uint64_t waiter = ASK(1, .key = key, .wait_ms = 10000),
             second = ASK(1, .key = key, .wait_ms = 5000);
    waits(s, waiter);
    at_most_two_of_four_can_vote(s, ASK(1, .key = key));
    at_most_two_of_four_can_vote(s, second);
    at_most_two_of_four_can_vote(s, waiter);
}

STAGE_TEST(N1_a_new_node_is_silent_for_the_longest_lease, 3)
{
    take(s, 1, 30000);
    start(s, 4);
    refused(s, add_node(s, 3, 4), SLUICE_OK);
    LIST(4, "2: 1 2 3 4");
    assert_true(silence_of(s, 4) >= 29000);
    restart(s, 4); /* And from the beginning, if it is started again. */
    assert_true(silence_of(s, 4) >= 30000);
}

/* Before it has learnt it, a new node answers empty; then as the others. */
STAGE_TEST(Q11_a_new_node_learns_every_lease_within_one_extension, 3)
{
    uint64_t t = ASK(1, .lease_ms = 1000, .value = {"v", 1});
    sl_fence a = granted(s, t);
    start(s, 4);
    uint64_t more = add_node(s, 2, 4);
    extending(s, more, 1, a);
    refused(s, more, SLUICE_OK);
    assert_int_equal(copy_at(s, 4), 0);
    assert_int_equal(read_key(s, 4), a); /* A majority knows. */
    while (silence_of(s, 4) > 0) {
        pass(s, 100);
        assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
    }
    pass(s, 100); /* Somebody has heard of it since. */
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_OK);
    assert_int_equal(copy_at(s, 4), a);
    struct sl_node_copy c;
    sl_node_copy(s->actor[4].node, clock_of(s, 4), (struct sl_bytes){"k", 1}, &c);
    assert_memory_equal(c.value.at, "v", 1);
}

STAGE_TEST(a_node_that_was_removed_has_no_say, 4)
{
    changed(s, 1, -1, 3);
    pass(s, 200);
    uint64_t t = ASK(3);
    refused(s, t, SLUICE_ENOQUORUM);
    sl_fence a = take(s, 1, 1000);
    assert_int_equal(events(s, 3, SL_NODE_EVENT_GRANTED, a), 0);
    crash(s, 2);
    crash(s, 4);
    refused(s, ASK(1, .key = {"other", 5}), SLUICE_ENOQUORUM);
}

STAGE_TEST(a_node_removes_itself, 4)
{
    sl_fence a = take(s, 1, 60000);
    refused(s, remove_node(s, 1, 1), SLUICE_OK);
    for (sl_node_id id = 2; id <= 4; id++) LIST(id, "2: 2 3 4");
    refused(s, ASK(1), SLUICE_ENOQUORUM);
    assert_int_equal(extend(s, 2, a, 60000), SLUICE_OK);
}

/* --- What is refused --------------------------------------------------------------- */

STAGE_TEST(an_empty_change_is_rejected_with_the_reason, 3)
{
    refused_because(s, add_node(s, 1, 2), "already a member");
    refused_because(s, remove_node(s, 1, 7), "not a member");
    refused_because(s, add_node(s, 1, 7), "does not answer");
    refused_because(s, REQUEST(ADD, 1, .node = 7, .address = "nonsense"), "host:port");
    refused_because(s, REQUEST(ADD, 1, .node = 7, .address = "node1:5627"), "address");
    refused(s, REQUEST(ADD, 1, .node = 0, .address = "node7:5627"), SLUICE_ENODES);
    start(s, 7);
    refused_because(s, add_node(s, 7, 1), "not a member of a cluster");
    for (sl_node_id id = 1; id <= 3; id++) LIST(id, "1: 1 2 3");
    refused(s, add_node(s, 1, 7), SLUICE_OK);
}

STAGE_TEST(the_last_node_stays, 1)
{
    take(s, 1, 1000); /* A majority of one. */
    refused_because(s, remove_node(s, 1, 1), "last");
}

/* A list that differs by more than one node is voted for and stored by nobody. */
STAGE_TEST(Q3_an_illegal_jump_is_refused_by_every_acceptor, 3)
{
    start(s, 4);
    hold(s, 0, 3, SL_MESSAGE_ACCEPTED);
    hold(s, 0, 3, SL_MESSAGE_STORED);
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_ACCEPT);
    m.ballot = (struct sl_ballot){100, 3};
    m.list = *sl_node_membership(s->actor[2].node);
    m.list.version = 2;
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_member *x = &m.list.at[m.list.count++];
        memset(x, 0, sizeof *x);
        x->id = 4 + i;
        memcpy(x->address, i == 0 ? "four:1" : "five:1", 7);
        m.list.added = x->id;
    }
    give(s, 3, 2, &m);
    assert_int_equal(newest(s, 2, 3, SL_MESSAGE_ACCEPTED)->verdict, SL_VERDICT_BAD);
    m.type = SL_MESSAGE_STORE;
    give(s, 3, 2, &m);
    assert_int_equal(kept(s, 2, 3, SL_MESSAGE_STORED), 0);
    m.list.count = 4; /* One more; but two versions on. */
    m.list.added = 4;
    m.list.version = 3;
    give(s, 3, 2, &m);
    m.type = SL_MESSAGE_ACCEPT;
    m.ballot.number++;
    give(s, 3, 2, &m);
    assert_int_equal(newest(s, 2, 3, SL_MESSAGE_ACCEPTED)->verdict, SL_VERDICT_BAD);
    assert_int_equal(s->actor[2].disk.stored.version, 0);
}

/* Five nodes, A holds by 1, 2 and 3, the others have not heard of it. If 1 and then 2 could be
 * removed at once, 4 and 5 would be a majority of the three that are left. */
STAGE_TEST(N3_a_second_change_waits_for_leases_of_the_list_before, 5)
{
    cut(s, 1, 4, SL_MESSAGE_NONE);
    cut(s, 1, 5, SL_MESSAGE_NONE);
    uint64_t a = ASK(1, .lease_ms = 30000);
    granted(s, a);
    open_all(s);
    for (sl_node_id id = 1; id <= 3; id++) cut_leases(s, 0, id);
    refused(s, remove_node(s, 4, 1), SLUICE_OK);
    LIST(5, "2: 2 3 4 5");
    refused_because(s, remove_node(s, 4, 2), "leases from before the change");
    LIST(5, "2: 2 3 4 5");
    while (believes(s, a)) {
        outcome(s, remove_node(s, 4, 2));
        outcome(s, ASK(4, .lease_ms = 100)); /* The stage looks at who gets it. */
        pass(s, 1000);
    }
    open_all(s);
    if (version_at(s, 4) == 2) changed(s, 4, -1, 2);
    LIST(5, "3: 3 4 5");
    take(s, 5, 1000);
}

/* A short wait is waited for. */
STAGE_TEST(N3_a_change_that_is_too_soon_waits_a_little, 3)
{
    sl_fence a = take(s, 1, 1000);
    start(s, 4);
    start(s, 5);
    refused(s, add_node(s, 1, 4), SLUICE_OK);
    int64_t began_us = s->now_us;
    uint64_t t = add_node(s, 1, 5);
    extending(s, t, 2, a);
    refused(s, t, SLUICE_OK);
    assert_true(s->now_us - began_us >= 1000000);
    LIST(5, "3: 1 2 3 4 5");
}

/* Node 1 goes by the list of three, the others by that of five. B holds by 3, 4 and 5, and
 * node 2 has not heard of it: together with node 1 it would be a majority of three. */
STAGE_TEST(V8_a_node_of_an_old_list_gets_no_vote, 3)
{
    start(s, 4);
    start(s, 5);
    for (size_t i = 0; i < ABOUT_LISTS; i++) cut(s, 0, 1, about_lists[i]);
    changed(s, 2, 1, 4);
    end_silence(s);
    changed(s, 3, 1, 5);
    end_silence(s);
    LIST(1, "1: 1 2 3");
    LIST(2, "3: 1 2 3 4 5");
    cut_leases(s, 3, 1);
    cut_leases(s, 3, 2);
    take(s, 3, 20000);
    uint64_t a = ASK(1);
    not_granted(s, a);
    open_all(s);
    pass(s, 200);
    LIST(1, "3: 1 2 3 4 5");
    assert_int_equal(outcome(s, ASK(1)), SLUICE_EFULL);
}

/* Votes of the old list come when there is a new one. */
TEST(V8_votes_of_the_old_list_do_not_count)
{
    struct sl_node_limits patient = stage_limits;
    patient.answer_ms = patient.answer_min_ms = patient.answer_max_ms = 1000;
    struct stage *s = stage_with(3, &patient);
    start(s, 4);
    hold(s, 0, 1, SL_MESSAGE_VOTE);
    hold(s, 1, 0, SL_MESSAGE_ACQUIRE);
    uint64_t a = ASK(1, .wait_ms = 30000);
    sl_fence first = newest(s, 1, 2, SL_MESSAGE_ACQUIRE)->fence;
    deliver(s, 1, 2, SL_MESSAGE_ACQUIRE);
    deliver(s, 1, 3, SL_MESSAGE_ACQUIRE);
    assert_int_equal(newest(s, 2, 1, SL_MESSAGE_VOTE)->verdict, SL_VERDICT_YES);
    refused(s, add_node(s, 2, 4), SLUICE_OK);
    LIST(1, "2: 1 2 3 4");
    deliver_all(s, 2, 1, SL_MESSAGE_VOTE);
    deliver_all(s, 3, 1, SL_MESSAGE_VOTE);
    waits(s, a);
    flow(s);
    assert_true(granted(s, a) != first);
    stage_end(s);
}

/* --- Fences over a change -------------------------------------------------------------- */

/* The clocks of nodes 1 and 2 are ten minutes ahead, and A had it by them. When the list has
 * grown to five they die: B has it by three nodes that know nothing of A. */
STAGE_TEST(N6_fences_rise_with_clocks_apart_and_the_oldest_nodes_down, 3)
{
    s->actor[1].wall_offset_us = s->actor[2].wall_offset_us = 600000000;
    cut_leases(s, 0, 3);
    warm_up(s, 1);
    sl_fence a = take(s, 1, 1000);
    assert_int_equal(release(s, 1, a), 1);
    pass(s, 10000);
    open_all(s);
    start(s, 4);
    start(s, 5);
    changed(s, 3, 1, 4);
    end_silence(s);
    changed(s, 3, 1, 5);
    end_silence(s);
    crash(s, 1);
    crash(s, 2);
    for (sl_node_id id = 3; id <= 5; id++) LIST(id, "3: 1 2 3 4 5");
    for (sl_node_id id = 3; id <= 5; id++)
        assert_true(take(s, id, 50) > a), pass(s, 60);
}

/* And the disks know it: all that are left restart. */
STAGE_TEST(N6_fences_of_a_change_are_on_the_disk, 3)
{
    pass(s, 61000); /* Node 3 does not follow the clock without votes. */
    s->actor[1].wall_offset_us = s->actor[2].wall_offset_us = 600000000;
    cut_leases(s, 0, 3);
    warm_up(s, 1);
    sl_fence a = take(s, 1, 1000);
    pass(s, 10000);
    open_all(s);
    start(s, 4);
    start(s, 5);
    changed(s, 3, 1, 4);
    changed(s, 3, 1, 5);
    crash(s, 1);
    crash(s, 2);
    for (sl_node_id id = 3; id <= 5; id++) restart(s, id);
    end_silence(s);
    assert_true(take(s, 4, 1000) > a);
}

/* --- Emptied nodes --------------------------------------------------------------------- */

STAGE_TEST(N7_an_emptied_node_is_not_talked_to, 3)
{
    cut(s, 1, 3, SL_MESSAGE_NONE);
    uint64_t a = ASK(1, .lease_ms = 10000);
    granted(s, a);
    open_all(s);
    restart_empty(s, 2);
    assert_false(s->linked[1][2]);
    assert_false(s->linked[3][2]);
    pass(s, 30000); /* However long it waits, */
    LIST(2, "0:");
    crash(s, 1);
    refused(s, ASK(3), SLUICE_ENOQUORUM); /* it has no vote. */
    restart(s, 1);
    end_silence(s);
    changed(s, 3, -1, 2);
    LIST(1, "2: 1 3");
    changed(s, 3, 1, 2);
    LIST(2, "3: 1 2 3");
    end_silence(s);
    crash(s, 1);
    take(s, 3, 1000);
}

/* One that was added last, and is on the list as such. A holds by 1, 2 and it; then it loses
 * its data directory, and only 3 and 4, who know nothing of A, tell it what is in force. */
STAGE_TEST(N7_nor_is_one_that_was_just_added, 4)
{
    start(s, 5);
    changed(s, 3, 1, 5);
    end_silence(s);
    pass(s, 1000);
    cut_leases(s, 1, 3);
    cut_leases(s, 1, 4);
    uint64_t a = ASK(1, .lease_ms = 20000);
    granted(s, a);
    open_all(s);
    for (sl_node_id id = 1; id <= 2; id++) {
        cut(s, id, 5, SL_MESSAGE_NONE);
        cut_leases(s, 0, id);
    }
    restart_empty(s, 5);
    while (believes(s, a)) {
        outcome(s, ASK(3, .lease_ms = 100)); /* The stage looks at who gets it. */
        pass(s, 500);
    }
    LIST(5, "0:");
}

/* The same, and nodes 3 and 4 have never met it. */
STAGE_TEST(N7_nor_by_those_who_never_met_it, 4)
{
    start(s, 5);
    unlink_nodes(s, 3, 5);
    unlink_nodes(s, 4, 5);
    changed(s, 1, 1, 5);
    end_silence(s);
    pass(s, 1000);
    cut_leases(s, 1, 3);
    cut_leases(s, 1, 4);
    uint64_t a = ASK(1, .lease_ms = 20000);
    granted(s, a);
    open_all(s);
    for (sl_node_id id = 1; id <= 2; id++) {
        unlink_nodes(s, id, 5);
        cut_leases(s, 0, id);
    }
    crash(s, 5);
    link_nodes(s, 3, 5);
    link_nodes(s, 4, 5);
    restart_empty(s, 5);
    assert_false(s->linked[3][5]);
    while (believes(s, a)) {
        outcome(s, ASK(3, .lease_ms = 100)); /* The stage looks at who gets it. */
        pass(s, 500);
    }
    LIST(5, "0:");
}

/* Added, but down when its membership came into force; and then it changed again. */
STAGE_TEST(a_node_added_while_it_was_down_joins_later, 3)
{
    start(s, 4);
    hold(s, 0, 4, SL_MESSAGE_NONE);
    uint64_t t = add_node(s, 1, 4);
    pass(s, 5);
    crash(s, 4);
    refused(s, t, SLUICE_OK);
    changed(s, 1, -1, 3);
    LIST(2, "3: 1 2 4");
    open_all(s);
    lose(s, 0, 4, SL_MESSAGE_NONE);
    restart(s, 4);
    pass(s, 1000);
    LIST(4, "3: 1 2 4");
    end_silence(s);
    crash(s, 2);
    take(s, 1, 1000);
}

/* --- Two operators ------------------------------------------------------------------------ */

/* Each wants another node. Whatever the order in which their messages come, there is one list
 * of each version, and the operators are told what became of theirs. */
TEST(N5_two_operators_at_once_end_in_one_list)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct stage *s = stage_new(3);
        start(s, 4);
        start(s, 5);
        shuffle(s, seed);
        for (size_t i = 0; i < ABOUT_LISTS; i++) hold(s, 0, 0, about_lists[i]);
        uint64_t x = add_node(s, 1, 4), y = add_node(s, 2, 5);
        for (int i = 0; i < 400 && !(answered(s, x) && answered(s, y)); i++) {
            open_all(s);
            for (int n = 0; n < 3; n++) settle_one(s), one_list(s);
            for (size_t k = 0; k < ABOUT_LISTS; k++) hold(s, 0, 0, about_lists[k]);
            pass(s, 1);
        }
        flow(s);
        outcome(s, x);
        outcome(s, y);
        one_list(s);
        pass(s, 5000);
        one_list(s);
        for (sl_node_id id = 2; id <= 3; id++)
            assert_int_equal(sl_node_membership(s->actor[id].node)->version,
                             sl_node_membership(s->actor[1].node)->version);
        const char *list = list_at(s, 1);
        bool has_4 = strstr(list, " 4") != NULL, has_5 = strstr(list, " 5") != NULL;
        assert_true(has_4 || has_5);
        assert_int_equal(answer_to(s, x)->status == SLUICE_OK, has_4);
        assert_int_equal(answer_to(s, y)->status == SLUICE_OK, has_5);
        take(s, 3, 1000);
        stage_end(s);
    }
}

/* Without chance: each has the promise of node 3, one after the other, and then both go on. */
STAGE_TEST(N5_a_promise_to_a_larger_ballot_ends_the_smaller, 3)
{
    start(s, 4);
    start(s, 5);
    cut(s, 1, 2, SL_MESSAGE_NONE);
    cut(s, 2, 1, SL_MESSAGE_NONE);
    hold(s, 0, 3, SL_MESSAGE_ACCEPT);
    hold(s, 0, 0, SL_MESSAGE_STORE);
    uint64_t x = add_node(s, 1, 4); /* Promised by 1 and 3, */
    uint64_t y = add_node(s, 2, 5); /* and by 2 and 3. */
    pass(s, 1);
    deliver_all(s, 2, 3, SL_MESSAGE_ACCEPT);
    deliver_all(s, 1, 3, SL_MESSAGE_ACCEPT);
    deliver_all(s, 0, 0, SL_MESSAGE_STORE);
    one_list(s);
    for (int i = 0; i < 300; i++) {
        pass(s, 10);
        deliver_all(s, 1, 3, SL_MESSAGE_ACCEPT);
        deliver_all(s, 2, 3, SL_MESSAGE_ACCEPT);
        deliver_all(s, 0, 0, SL_MESSAGE_STORE);
        one_list(s);
    }
    flow(s);
    outcome(s, x);
    outcome(s, y);
    one_list(s);
    assert_true(answer_to(s, x)->status == SLUICE_OK ||
                answer_to(s, y)->status == SLUICE_OK);
}

/* Else it could be used for two lists: by the same node, before and after a restart. */
STAGE_TEST(N5_a_ballot_is_on_the_disk_before_anybody_hears_of_it, 3)
{
    hold(s, 1, 0, SL_MESSAGE_PREPARE);
    disk_stop(s, 1);
    uint64_t t = remove_node(s, 1, 3);
    pass(s, 5);
    assert_int_equal(kept(s, 1, 0, SL_MESSAGE_PREPARE), 0);
    disk_go(s, 1);
    pass(s, 5);
    assert_true(kept(s, 1, 2, SL_MESSAGE_PREPARE) > 0);
    assert_true(s->actor[1].disk.promised.number > 0);
    flow(s);
    refused(s, t, SLUICE_OK);
}

/* Ballots restart with every membership. Node 3's promise about the second list comes when the
 * third one is being decided, under the same ballot. */
STAGE_TEST(N5_a_promise_about_another_list_does_not_count, 3)
{
    start(s, 4);
    hold(s, 3, 1, SL_MESSAGE_PROMISE);
    refused(s, add_node(s, 1, 4), SLUICE_OK);
    struct sl_ballot ballot = newest(s, 3, 1, SL_MESSAGE_PROMISE)->ballot;
    pass(s, 10000);
    end_silence(s);
    hold(s, 1, 0, SL_MESSAGE_PREPARE);
    hold(s, 1, 0, SL_MESSAGE_ACCEPT);
    remove_node(s, 1, 4);
    pass(s, 5);
    assert_int_equal(newest(s, 1, 2, SL_MESSAGE_PREPARE)->ballot.number, ballot.number);
    deliver(s, 1, 2, SL_MESSAGE_PREPARE); /* Two promises of four, */
    deliver_all(s, 3, 1, SL_MESSAGE_PROMISE);
    pass(s, 5);
    assert_int_equal(kept(s, 1, 0, SL_MESSAGE_ACCEPT), 0);
    deliver(s, 1, 3, SL_MESSAGE_PREPARE);
    deliver_all(s, 3, 1, SL_MESSAGE_PROMISE); /* and now a third. */
    pass(s, 5);
    assert_true(kept(s, 1, 0, SL_MESSAGE_ACCEPT) > 0);
}

STAGE_TEST(two_changes_at_one_node_are_rejected, 3)
{
    start(s, 4);
    start(s, 5);
    hold(s, 0, 0, SL_MESSAGE_PROMISE);
    uint64_t x = add_node(s, 1, 4);
    refused_because(s, add_node(s, 1, 5), "another membership change");
    flow(s);
    refused(s, x, SLUICE_OK);
}

/* --- Dying at every step ----------------------------------------------------------------- */

/* So many messages about lists are delivered, in order. False: there were not so many, and
 * the change is made. */
static bool step(struct stage *s, uint64_t change, int steps)
{
    for (; steps > 0; steps--) {
        size_t i = 0;
        if (answered(s, change) && s->bag_count == 0) return false;
        while (i < s->bag_count && s->bag[i].m.type < SL_MESSAGE_PREPARE) i++;
        if (i == s->bag_count) {
            if (answered(s, change)) return false;
            pass(s, 1);
            steps++;
            continue;
        }
        deliver(s, s->bag[i].from, s->bag[i].to, s->bag[i].m.type);
        one_list(s);
    }
    return true;
}

/* The operator's node dies after this many messages, for good. What it began is finished, or
 * nothing is left of it; another operator goes on. */
TEST(N5_the_operator_dies_at_every_step)
{
    int made = 0, unmade = 0;
    for (int steps = 0;; steps++) {
        struct stage *s = stage_new(3);
        start(s, 4);
        start(s, 5);
        for (size_t i = 0; i < ABOUT_LISTS; i++) hold(s, 0, 0, about_lists[i]);
        uint64_t t = add_node(s, 1, 4);
        bool more = step(s, t, steps);
        crash(s, 1);
        lose(s, 1, 0, SL_MESSAGE_NONE);
        flow(s);
        pass(s, 15000);
        one_list(s);
        assert_int_equal(version_at(s, 2), version_at(s, 3));
        if (version_at(s, 2) == 1) {
            unmade++;
            LIST(4, "0:");
            changed(s, 2, 1, 4);
        } else made++;
        for (sl_node_id id = 2; id <= 4; id++) LIST(id, "2: 1 2 3 4");
        changed(s, 3, 1, 5);
        LIST(4, "3: 1 2 3 4 5");
        end_silence(s);
        take(s, 5, 1000);
        stage_end(s);
        if (!more) break;
    }
    assert_true(made > 3);
    assert_true(unmade > 3);
}

/* One of the nodes crashes at its n-th write, and is back: with what it wrote, or without. */
static bool restart_at_write(struct stage *s, sl_node_id id, unsigned n, bool written)
{
    unsigned before = s->actor[id].wrote;
    for (int ms = 0; ms < 500; ms++) {
        if (s->actor[id].wrote - before == n) {
            if (written) crash_written(s, id);
            else crash(s, id);
            start(s, id);
            return true;
        }
        if (s->actor[id].writes) {
            disk_done(s, id, true);
            settle(s);
        }
        pass(s, 1);
    }
    return false;
}

TEST(N5_every_node_restarts_at_every_write)
{
    int restarts = 0;
    for (sl_node_id id = 1; id <= 4; id++)
        for (unsigned n = 1; n < 8; n++)
            for (int written = 0; written < 2; written++) {
                struct stage *s = stage_new(3);
                start(s, 4);
                take(s, 3, 1000);
                disk_stop(s, id);
                add_node(s, 1, 4);
                bool hit = restart_at_write(s, id, n, written);
                restarts += hit;
                if (!hit) disk_go(s, id);
                one_list(s);
                pass(s, 15000);
                one_list(s);
                if (version_at(s, 2) == 1) changed(s, 2, 1, 4);
                for (sl_node_id i = 1; i <= 4; i++) LIST(i, "2: 1 2 3 4");
                stage_end(s);
            }
    assert_true(restarts > 20);
}

/* What was promised and voted for is known after a restart: node 3 votes for the list with
 * node 4, restarts, and must not help one with node 5 to be decided in its place. */
STAGE_TEST(N5_a_vote_survives_a_restart, 3)
{
    start(s, 4);
    start(s, 5);
    hold(s, 0, 1,
         SL_MESSAGE_ACCEPTED); /* It is decided by 1 and 3, but nobody knows. */
    cut(s, 1, 2, SL_MESSAGE_NONE);
    cut(s, 0, 0, SL_MESSAGE_STORE);
    add_node(s, 1, 4);
    pass(s, 1);
    assert_int_equal(s->actor[3].disk.vote.version, 2);
    restart(s, 3);
    stop(s, 1);
    open_all(s);
    hold(s, 0, 1, SL_MESSAGE_NONE);
    end_silence(s);
    uint64_t t = add_node(s, 2, 5);
    refused(s, t, SLUICE_ENODES);
    LIST(2, "2: 1 2 3 4");
    LIST(3, "2: 1 2 3 4");
    go(s, 1);
    flow(s);
    pass(s, 300);
    LIST(1, "2: 1 2 3 4");
}

/* A minority decides nothing, and receives an error. */
STAGE_TEST(a_minority_changes_no_list, 3)
{
    crash(s, 2);
    crash(s, 3);
    uint64_t t = remove_node(s, 1, 2);
    refused_because(s, t, "too few");
    LIST(1, "1: 1 2 3");
}

/* It is silent for a minute, and promises nothing; the others are a majority. */
STAGE_TEST(one_node_that_restarted_does_not_stop_a_change, 3)
{
    start(s, 4);
    take(s, 1, 60000);
    restart(s, 3);
    refused(s, add_node(s, 1, 4), SLUICE_OK);
    LIST(2, "2: 1 2 3 4");
}

/* One node is down while the list changes, and hears of it when it is back. */
STAGE_TEST(a_node_that_was_away_learns_the_membership, 3)
{
    start(s, 4);
    crash(s, 3);
    changed(s, 1, 1, 4);
    restart(s, 3);
    pass(s, 500);
    LIST(3, "2: 1 2 3 4");
}

TEST_MAIN(NULL, NULL)
