/* The journal of a node: what it records, and what it knows after a start. */
#include "majority_stage.h"

#include <stdlib.h>
#include <string.h>

#include "majority/key_record.h"
#include "test_main.h"

/* A stage whose leases of more than two seconds must be durable. */
#define DURABLE_TEST(name, nodes)                     \
    static void name##_on_stage(struct stage *s);     \
    TEST(name)                                        \
    {                                                 \
        struct stage *s = stage_durable(nodes, 2000); \
        name##_on_stage(s);                           \
        stage_end(s);                                 \
    }                                                 \
    static void name##_on_stage(struct stage *s)

/* --- The state of a key as bytes ------------------------------------------------------ */

static struct sl_node_text *text(const char *from)
{
    size_t n = strlen(from);
    struct sl_node_text *t = calloc(1, sizeof *t + n);
    t->n = n;
    memcpy(t->at, from, n);
    return t;
}

/* Everything in a record, and where it is. */
TEST(a_record_has_this_layout)
{
    static const unsigned char expected[] = {
        2,    9,    1,    0, 0, 0,   0,   0, /* Format; lease and reservation; one report. */
        0x11, 0,    0,    0, 0, 0,   0,   0,   0x12, 0,    0,    0,    0,    0,    0,
        0, /* Seen, past, */
        0x13, 0,    0,    0, 0, 0,   0,   0,   0x14, 0,    0,    0,    0,    0,    0,
        0, /* released, lapsed. */
        0x15, 0,    0,    0, 0, 0,   0,   0,   0x16, 0,    0,    0,    0,    0,    0,
        0, /* Broken, overlaps until. */
        0x21, 0,    0,    0, 0, 0,   0,   0,   0x22, 0,    0,    0,    0,    0,    0,
        0, /* The reservation. */
        0x23, 0,    0,    0, 0, 0,   0,   0,   0xff, 0xff, 0xff, 0xff, 0,    0,    0,
        0,    0x31, 0,    0, 0, 0,   0,   0,   0,    3,    2,    0,    0,    0,    0,
        0,    0, /* The report. */
        0x41, 0,    0,    0, 0, 0,   0,   0,   0x42, 0,    0,    0,    0,    0,    0,
        0, /* The lease. */
        0x43, 0,    0,    0, 0, 0,   0,   0,   0x44, 0,    0,    0,    0,    0,    0,
        0,    0x45, 0,    0, 0, 0,   0,   0,   0,    0x46, 0,    0,    0,    0,    0,
        0,    0,    0x47, 0, 0, 0,   0,   0,   0,    0,    0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 7, 0, 0,   0,   3,   0,    0,    0,    1,    0,    0,    0,
        2,    0,    0,    0, 3, 0,   0,   0,   2,    0,    0,    0,    0x48, 0,    0,
        0,    0,    0,    0, 0, 'v', 'n', 'o', 'c',  'l',  'i',  'i',  'd'};
    struct sl_node_key k = {.seen_fence = 0x11,
                            .past_fence = 0x12,
                            .released_fence = 0x13,
                            .lapsed_fence = 0x14,
                            .broken_fence = 0x15,
                            .overlaps_until_ms = 0x16,
                            .reserved = {.live = true,
                                         .owner = {0x21, 0x22},
                                         .end_ms = 0x23,
                                         .priority = -1},
                            .reports[0] = {0x31, true, true, SL_NODE_EVENT_RELEASED},
                            .report_next = 1,
                            .lease = {.live = true,
                                      .agreed = true,
                                      .owner = {0x41, 0x42},
                                      .fence = 0x43,
                                      .end_ms = 0x44,
                                      .lease_ms = 0x45,
                                      .stamp = 0x46,
                                      .sure_ms = 0x47,
                                      .asked_ms = -1,
                                      .priority = 7,
                                      .value = text("v"),
                                      .note = text("no"),
                                      .client = text("cli"),
                                      .request = text("id"),
                                      .digest = 0x48}};
    char bytes[sizeof expected];
    assert_int_equal(SL_NODE_EVENT_RELEASED, 2);
    assert_int_equal(sl_key_record_bytes(&k), sizeof expected);
    sl_key_record_write(&k, bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
    free(k.lease.value);
    free(k.lease.note);
    free(k.lease.client);
    free(k.lease.request);
}

/* Get the item of the key of a lease, as acceptor 2 records it. */
static struct sl_item recorded_lease(struct stage *s)
{
    struct sl_item item;
    uint64_t cursor = 0;
    granted(s, ASK(1, .lease_ms = 1000, .value = {"value", 5}));
    do assert_true(sl_node_item(s->actor[2].node, &cursor, &item));
    while (item.kind != SL_ITEM_KEY || item.key.at[0] != 'k');
    return item;
}

/* Restore an item in a node without any other. */
static int restored(struct stage *s, const struct sl_item *item)
{
    struct sim_disk d = {0};
    struct sl_recovery r;
    sim_disk_open(&d, clock_of(s, 2), 1000, &r);
    struct sl_node_start start = {.id = 2, .epoch = 5, .birth = 5, .limits = s->limits};
    sim_disk_start(&d, &r, &start);
    struct sl_node *other = sl_node_new(&start, clock_of(s, 2));
    int status = sl_node_restore(other, clock_of(s, 2), item, 0);
    sl_node_free(other);
    sim_disk_kill(&d);
    sim_disk_erase(&d);
    sl_recovery_end(&r);
    return status;
}

/* No byte can be missing, and none too many. */
STAGE_TEST(a_record_that_is_cut_is_invalid, 3)
{
    struct sl_item item = recorded_lease(s), cut = item;
    for (cut.value.n = 0; cut.value.n <= item.value.n; cut.value.n++)
        assert_int_equal(restored(s, &cut),
                         cut.value.n == item.value.n ? SLUICE_OK : SLUICE_EINVAL);
}

STAGE_TEST(a_record_with_a_fence_above_the_largest_one_is_invalid, 3)
{
    struct sl_item item = recorded_lease(s);
    char bytes[512];
    assert_true(item.value.n <= sizeof bytes);
    size_t lease = 56 + 16 * (size_t)item.value.at[2]; /* After the reports. */
    /* Seen, past, released, lapsed, broken; and the fence of the lease. */
    const size_t places[] = {8, 16, 24, 32, 40, lease + 16};
    for (size_t i = 0; i < 6; i++) {
        struct sl_item forged = item;
        memcpy(bytes, item.value.at, item.value.n);
        forged.value.at = bytes;
        assert_int_equal(restored(s, &forged), SLUICE_OK);
        bytes[places[i] + 6] |= 0x20; /* 2^53 */
        assert_int_equal(restored(s, &forged), SLUICE_EINVAL);
    }
}

/* --- The same life ---------------------------------------------------------------------- */

STAGE_TEST(a_node_that_was_killed_votes_at_once_and_knows_its_leases, 3)
{
    sl_fence a = take(s, 1, 30000);
    for (sl_node_id id = 1; id <= 3; id++) {
        restart_killed(s, id);
        assert_int_equal(silence_of(s, id), 0);
        assert_int_equal(acceptor_has(s, id), a);
        assert_int_equal(copy_at(s, id), a);
        assert_int_equal(extend(s, id % 3 + 1, a, 30000), SLUICE_OK);
        pass(s, 300);
    }
    uint64_t b = ASK(2);
    refused(s, b, SLUICE_EFULL);
}

/* All nodes at once: no other node could teach it. */
STAGE_TEST(all_nodes_are_killed_and_no_lease_is_lost, 3)
{
    sl_fence a = take(s, 1, 30000);
    for (sl_node_id id = 1; id <= 3; id++) kill_node(s, id);
    for (sl_node_id id = 1; id <= 3; id++) start(s, id);
    pass(s, 300);
    assert_int_equal(extend(s, 2, a, 30000), SLUICE_OK);
    assert_int_equal(release(s, 3, a), 1);
    assert_true(take(s, 1, 1000) > a);
}

STAGE_TEST(a_release_is_remembered, 3)
{
    sl_fence a = take(s, 1, 30000);
    assert_int_equal(release(s, 2, a), 1);
    for (sl_node_id id = 1; id <= 3; id++) restart_killed(s, id);
    pass(s, 300);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_ELOST);
}

STAGE_TEST(a_reservation_is_remembered, 3)
{
    sl_fence a = take(s, 1, 30000);
    uint64_t b = ASK(1, .priority = 5, THIEF);
    waits(s, b);
    for (sl_node_id id = 2; id <= 3; id++) restart_killed(s, id);
    assert_int_equal(extend(s, 2, a, 30000), SLUICE_EASKED);
}

STAGE_TEST(an_overlapped_lease_is_remembered, 3)
{
    s->may_overlap = true;
    take(s, 1, 5000);
    uint64_t b = ASK(1, .priority = 5, .lease_ms = 500, FORCE(0));
    granted(s, b);
    for (sl_node_id id = 2; id <= 3; id++) restart_killed(s, id);
    pass(s, 1000);
    uint64_t c = ASK(2); /* The first holder may still act. */
    refused(s, c, SLUICE_EFULL);
    pass(s, 5000);
    take(s, 2, 1000);
}

STAGE_TEST(a_TEACH_from_before_the_start_is_not_believed_in_the_same_life, 3)
{
    struct sl_message m = forged(s, 3, 2, SL_MESSAGE_TEACH);
    m.flags = SL_FLAG_WHOLE;
    m.lease_ms = 5000;
    restart_killed(s, 2);
    pass(s, 300);
    give(s, 3, 2, &m);
    assert_int_equal(acceptor_has(s, 2), 0);
}

/* The limits of now apply only to new keys. */
STAGE_TEST(all_keys_are_restored_although_the_limits_are_lower, 3)
{
    static const char *const keys[] = {"a long key 1", "a long key 2", "a long key 3"};
    sl_fence fences[3];
    for (int i = 0; i < 3; i++)
        fences[i] = granted(s, ASK(1, .key = {keys[i], 12}, .lease_ms = 30000));
    for (sl_node_id id = 1; id <= 3; id++) kill_node(s, id);
    s->limits.keys_max = 2;
    s->limits.key_bytes_max = 11;
    for (sl_node_id id = 1; id <= 3; id++) start(s, id);
    for (int i = 0; i < 9; i++) {
        struct sl_node_copy copy;
        sl_node_id id = (sl_node_id)(1 + i / 3);
        assert_true(sl_node_copy(s->actor[id].node, clock_of(s, id),
                                 (struct sl_bytes){keys[i % 3], 12}, &copy));
        assert_true(copy.held && copy.fence == fences[i % 3]);
    }
    refused(s, ASK(1, .key = {"new", 3}), SLUICE_EKEYS);
    refused(s, ASK(1, .key = {"a new long key", 14}), SLUICE_ETOOBIG);
    pass(s, 31000 + 3 * s->limits.forget_ms);
    granted(s, ASK(1, .key = {"new", 3}));
}

/* --- Durability ------------------------------------------------------------------------- */

/* The vote of a long lease, and the answer, wait for the sync; those of a short one do not. */
DURABLE_TEST(a_long_lease_is_durable_before_its_vote, 3)
{
    for (sl_node_id id = 1; id <= 3; id++) disk_stop(s, id);
    uint64_t a = ASK(1, .key = {"short", 5}, .lease_ms = 2000);
    granted(s, a);
    uint64_t b = ASK(1, .lease_ms = 2001);
    pass(s, 20);
    waits(s, b);
    disk_go(s, 2);
    disk_go(s, 3);
    pass(s, 1);
    waits(s, b); /* Two others have voted, but the vote of its own node counts, too. */
    disk_go(s, 1);
    granted(s, b);
}

/* Other keys of the node are not delayed. */
DURABLE_TEST(a_sync_delays_no_other_key, 3)
{
    sl_fence a = take(s, 1, 30000);
    for (sl_node_id id = 1; id <= 3; id++) disk_stop(s, id);
    uint64_t b = ASK(1, .key = {"long", 4}, .lease_ms = 30000);
    waits(s, b);
    granted(s, ASK(1, .key = {"short", 5}));
    assert_int_equal(check(s, 2, a), 1);
    for (sl_node_id id = 1; id <= 3; id++) disk_go(s, id);
    granted(s, b);
}

/* Extending a long lease costs no sync while its bound stays the same. */
DURABLE_TEST(an_extension_within_the_bound_needs_no_sync, 3)
{
    int waited = 0;
    sl_fence a = take(s, 1, 30000);
    for (int i = 0; i < 20; i++) {
        pass(s, 100);
        for (sl_node_id id = 1; id <= 3; id++) disk_stop(s, id);
        uint64_t e = REQUEST(EXTEND, 1, .fence = a, .lease_ms = 30000);
        waited += !answered(s, e);
        for (sl_node_id id = 1; id <= 3; id++) disk_go(s, id);
        refused(s, e, SLUICE_OK);
    }
    assert_in_range(waited, 1, 3); /* The step is two seconds here. */
}

/* In another life the long lease is there, and the short one is not. */
DURABLE_TEST(all_nodes_lose_power_and_no_long_lease_is_lost, 3)
{
    sl_fence a = take(s, 1, 30000);
    uint64_t b = ASK(1, .key = {"short", 5}, .lease_ms = 2000);
    granted(s, b);
    for (sl_node_id id = 1; id <= 3; id++) crash(s, id);
    for (sl_node_id id = 1; id <= 3; id++) start(s, id);
    for (sl_node_id id = 1; id <= 3; id++)
        assert_in_range(silence_of(s, id), 2000,
                        2020); /* More by the drift of clocks. */
    pass(s, 300);
    refused(s, ASK(2, .key = {"short", 5}), SLUICE_ERECOVERING);
    end_silence(s);
    pass(s, 300);
    assert_int_equal(extend(s, 2, a, 30000), SLUICE_OK);
    granted(s, ASK(2, .key = {"short", 5}));
}

/* The record of an extension is lost, but not the promise: the lease is held until its bound. */
DURABLE_TEST(an_extension_that_was_not_durable_is_kept, 3)
{
    sl_fence a = take(s, 1, 3000);
    sl_ms ends_ms = now_ms(s) + 3000;
    for (bool waited = true; waited;) { /* Until the bound is the same as before. */
        pass(s, 100);
        /* A later record is durable, so the time from the grant until now is known to have passed. */
        uint64_t other = ASK(1, .key = {"other", 5}, .lease_ms = 3000);
        granted(s, other);
        outcome(s, REQUEST(RELEASE, 1, .key = {"other", 5},
                           .fence = answer_to(s, other)->grant.fence));
        for (sl_node_id id = 1; id <= 3; id++) disk_stop(s, id);
        uint64_t e = REQUEST(EXTEND, 1, .fence = a, .lease_ms = 3000);
        waited = !answered(s, e);
        if (!waited) ends_ms = now_ms(s) + 3000;
        if (!waited) crash(s, 2);
        for (sl_node_id id = 1; id <= 3; id++)
            if (id != 2 || waited) disk_go(s, id);
        if (waited) refused(s, e, SLUICE_OK);
    }
    cut(s, 0, 2, SL_MESSAGE_TEACH); /* It knows the lease from its journal alone. */
    start(s, 2);
    end_silence(s);
    pass(s, ends_ms - now_ms(s) - 10);
    assert_int_equal(acceptor_has(s, 2), a);
}

/* The wait is not over because the node was killed meanwhile. */
DURABLE_TEST(a_second_start_does_not_end_the_silence, 3)
{
    take(s, 1, 2000);
    restart(s, 2);
    sl_ms silence = silence_of(s, 2);
    pass(s, 500);
    restart_killed(s, 2);
    assert_in_range(silence_of(s, 2), silence - 501, silence - 499);
    restart(s, 2); /* And in another life it begins again. */
    assert_in_range(silence_of(s, 2), silence - 10, silence + 10);
}

/* The long lease A is released, and B is granted a short one. The end of A must be durable first:
 * otherwise two nodes lose power, A is back, and its late EXTEND succeeds after B was granted. */
DURABLE_TEST(a_released_long_lease_does_not_return, 3)
{
    sl_fence a = take(s, 1, 30000);
    pass(s, 300);
    for (sl_node_id id = 1; id <= 3; id++) disk_stop(s, id);
    uint64_t r = REQUEST(RELEASE, 2, .fence = a);
    uint64_t b = ASK(3, .wait_ms = 20000, .lease_ms = 500);
    pass(s, 300);
    waits(s, b);
    for (sl_node_id id = 1; id <= 3; id++) disk_go(s, id);
    refused(s, r, SLUICE_OK);
    granted(s, b);
    crash(s, 1);
    crash(s, 2);
    start(s, 1);
    start(s, 2);
    end_silence(s);
    pass(s, 300);
    assert_int_equal(extend(s, 1, a, 1000), SLUICE_ELOST);
}

/* A thief that enters early replaces the long lease A, and the latest end stays the same. */
DURABLE_TEST(a_long_lease_that_is_overlapped_is_durable_as_such, 3)
{
    s->may_overlap = true;
    take(s, 1, 30000);
    pass(s, 300);
    for (sl_node_id id = 1; id <= 3; id++) disk_stop(s, id);
    uint64_t b = ASK(2, .priority = 5, .lease_ms = 500, FORCE(0));
    pass(s, 20);
    waits(s, b);
    for (sl_node_id id = 1; id <= 3; id++) disk_go(s, id);
    granted(s, b);
}

/* A client that disconnects while its grant waits for the sync leaves no lease behind. */
DURABLE_TEST(a_grant_that_is_withdrawn_while_it_waits_is_released, 3)
{
    disk_stop(s, 1);
    uint64_t a = ASK(1, .lease_ms = 30000);
    pass(s, 20);
    waits(s, a);
    withdraw(s, a);
    disk_go(s, 1);
    pass(s, 300);
    take(s, 2, 1000);
}

/* The disk is slower than the lease: the client does not receive a grant that has expired. */
DURABLE_TEST(an_answer_that_waited_too_long_is_an_error, 3)
{
    disk_stop(s, 1);
    uint64_t a = ASK(1, .lease_ms = 2100);
    pass(s, 2200);
    waits(s, a);
    disk_go(s, 1);
    refused(s, a, SLUICE_ENOQUORUM);
}

/* --- A failing disk ----------------------------------------------------------------------- */

/* The other nodes go on without it; when it works again, it votes again. */
DURABLE_TEST(a_node_whose_journal_fails_does_not_vote, 3)
{
    s->actor[3].disk_fails = true;
    sl_fence a = take(s, 1, 30000);
    pass(s, 100);
    assert_int_equal(acceptor_has(s, 3), 0);
    uint64_t b = ASK(3, .key = {"short", 5}); /* The others vote. */
    granted(s, b);
    s->actor[3].disk_fails = false;
    pass(s, 1500);
    assert_int_equal(extend(s, 1, a, 30000), SLUICE_OK);
    pass(s, 100);
    assert_int_equal(acceptor_has(s, 3), a);
    crash(s, 3);
    start(s, 3);
    end_silence(s);
    crash(s, 2);
    pass(s, 300);
    assert_int_equal(extend(s, 1, a, 30000), SLUICE_OK);
}

/* The vote of the node itself was lost in a failed write. Nobody receives a grant that needs it:
 * after a crash the node would not know the lease. */
DURABLE_TEST(a_vote_whose_record_was_lost_does_not_count, 3)
{
    crash(s, 3);
    s->actor[1].disk_fails = s->actor[1].write_fails = true;
    uint64_t a = ASK(1, .lease_ms = 1000, .wait_ms = 500);
    pass(s, 600);
    not_granted(s, a);
    s->actor[1].disk_fails = false;
    pass(s, 1500);
    take(s, 2,
         1000); /* The new file is complete, and nothing is left of the attempt. */
}

DURABLE_TEST(an_extension_whose_record_was_lost_does_not_count, 3)
{
    sl_fence a = take(s, 1, 1000);
    crash(s, 3);
    s->actor[1].disk_fails = s->actor[1].write_fails = true;
    assert_int_not_equal(extend(s, 1, a, 1500), SLUICE_OK);
}

DURABLE_TEST(a_release_whose_record_was_lost_does_not_count, 3)
{
    sl_fence a = take(s, 1, 1000);
    crash(s, 3);
    s->actor[1].disk_fails = s->actor[1].write_fails = true;
    uint64_t r = REQUEST(RELEASE, 1, .fence = a);
    pass(s, 600);
    not_granted(s, r);
}

/* A node reports how far its journal is written. If a record is lost and the node is killed, its
 * directory is not an old copy. */
DURABLE_TEST(a_lost_record_does_not_count_as_written, 3)
{
    take(s, 1, 1000);
    s->actor[3].disk_fails = s->actor[3].write_fails = true;
    granted(s, ASK(1, .key = {"other", 5}));
    pass(s, 2000); /* Heartbeats. */
    assert_false(s->actor[3].write_fails);
    restart_killed(s, 3);
    pass(s, 300);
    assert_true(s->linked[1][3] && s->linked[2][3]);
}

/* --- Copies of the journal ------------------------------------------------------------------ */

/* The items are copied to a new file, a few in each loop iteration. A state that is not recorded yet
 * goes to the present file, too: the node may be killed before the new one replaces it. */
DURABLE_TEST(a_copy_does_not_take_the_place_of_a_record, 3)
{
    sl_fence a = take(s, 1, 100);
    pass(s, 200);
    struct sl_item item;
    uint64_t cursor = 0;
    assert_true(sl_node_item(s->actor[3].node, &cursor, &item));
    struct sl_message m = forged(s, 1, 3, SL_MESSAGE_ACQUIRE);
    m.fence = a + 16;
    sl_node_receive(s->actor[3].node, clock_of(s, 3), 1, &m);
    while (sl_node_item(s->actor[3].node, &cursor, &item)) {}
    pass(s, 10);
    assert_int_equal(acceptor_has(s, 3), m.fence);
    restart_killed(s, 3);
    pass(s, 300);
    assert_int_equal(acceptor_has(s, 3), m.fence);
}

/* The journal fails, and the commit of a new file fails, too. What was copied to that file is not
 * recorded. */
DURABLE_TEST(a_copy_that_is_not_committed_is_no_record, 3)
{
    sl_fence a = take(s, 1, 100);
    pass(s, 200);
    hold(s, 3, 1, SL_MESSAGE_VOTE);
    struct sl_journal *j = s->actor[3].journal.journal;
    struct sl_message m = forged(s, 1, 3, SL_MESSAGE_ACQUIRE);
    struct sl_item item;
    uint64_t cursor = 0;
    m.fence = a + 16;
    sl_node_receive(s->actor[3].node, clock_of(s, 3), 1, &m);
    s->actor[3].disk_fails = true;
    sl_journal_fail(j);
    sl_journal_mend_begin(j);
    while (sl_node_item(s->actor[3].node, &cursor, &item)) {}
    sl_journal_fail(j);
    pass(s, 100);
    assert_int_equal(kept(s, 3, 1, SL_MESSAGE_VOTE), 0);
}

/* --- Old copies ----------------------------------------------------------------------------- */

static void go_back(struct stage *s, sl_node_id id, struct sl_node_durable disk,
                    const struct sim_disk *copy, bool in_place)
{
    kill_node(s, id);
    s->actor[id].disk = disk;
    sim_disk_put_back(&s->actor[id].journal, copy, in_place);
    start(s, id);
    pass(s, 300);
}

static void an_old_copy_is_rejected(struct stage *s, bool in_place)
{
    struct sl_node_durable disk = s->actor[3].disk;
    struct sim_disk copy = sim_disk_copy(&s->actor[3].journal);
    take(s, 1, 30000);
    pass(s, 6000); /* The others record it at times. */
    go_back(s, 3, disk, &copy, in_place);
    assert_false(s->linked[1][3] || s->linked[2][3]);
    /* It does not catch up by itself. */
    for (int i = 0; i < 20; i++) {
        restart_killed(s, 3);
        if (i < 10) assert_false(s->linked[1][3] || s->linked[2][3]);
    }
    restart(s, 1); /* And the others remember it. */
    end_silence(s);
    assert_false(s->linked[1][3]);
    restart_empty(s, 3);
    pass(s, 31000); /* The lease may be one of an earlier membership. */
    refused(s, remove_node(s, 1, 3), SLUICE_OK);
    free(copy.file);
}

DURABLE_TEST(an_old_copy_of_a_directory_is_rejected, 3)
{
    an_old_copy_is_rejected(s, false);
}

DURABLE_TEST(an_old_copy_in_place_is_rejected, 3)
{
    an_old_copy_is_rejected(s, true);
}

/* A node that lost what was not durable is none. */
DURABLE_TEST(a_node_that_lost_power_is_not_taken_for_an_old_copy, 3)
{
    for (int i = 0; i < 20; i++) {
        granted(s, ASK(1, .lease_ms = i % 2 == 0 ? 500 : 3000, .wait_ms = 10000));
        pass(s, 200);
        if (i % 3 == 0) restart_killed(s, 3);
        else restart(s, 3);
        assert_true(s->linked[1][3] && s->linked[2][3]);
        pass(s, 100);
    }
}

TEST_MAIN(NULL, NULL)
