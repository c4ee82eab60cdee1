/* test_requests.c - acquisitions that clients have named with REQUEST: repeated, joined, lost and
 * cancelled. */
#include "table_stage.h"

#include <string.h>

#include "base/random.h"

#define ID "0123456789abcdef"
#define OTHER "fedcba9876543210"

/* The transcript shows fences as 1, 2, ..., in the order of their first appearance. */
static sl_fence fences[16];

static int ordinal(sl_fence fence)
{
    int i = 0;
    while (fences[i] != 0 && fences[i] != fence) i++;
    fences[i] = fence;
    return i + 1;
}

static void tell_grant(struct stage *s, const struct sl_effect *e)
{
    if (e->type == SL_EFFECT_GRANTED)
        say(s, "%c %s %d waited %d\n", name_of(s, e->session),
            e->grant.replay ? "replayed" : "granted", ordinal(e->grant.fence),
            (int)e->grant.waited_ms);
    else tell_word(s, e);
}

static struct stage *stage_new(void)
{
    struct stage *s = stage_open(100, 0);
    memset(fences, 0, sizeof fences);
    s->tell = tell_grant;
    return s;
}

/* The id with which each session asked last. */
static const char *asked[SESSIONS];

/* ACQUIRE k ... REQUEST id. Says the fence, and whether it is a replay. */
static void try(struct stage *s, char who, const char *id, struct sl_want w)
{
    struct sl_grant g;
    w.key = w.key.n == 0 ? bytes("k") : w.key;
    w.per = w.per == 0 ? 1 : w.per;
    w.buckets = w.units = 1;
    w.request = bytes(id);
    asked[who - 'a'] = id;
    int status = sl_table_acquire(s->table, s->now, &s->session[who - 'a'], &w, &g);
    if (status == SLUICE_OK) s->last[who - 'a'] = g.fence;
    if (status == SLUICE_OK)
        say(s, "%c %s %d lease %d\n", who, g.replay ? "replayed" : "granted",
            ordinal(g.fence), (int)g.lease_ms);
    else
        say(s, "%c %s\n", who,
            status == SL_WAITS ? "waits" : sluice_status_word(status));
    settle(s);
}
#define TRY(who, id, ...) try(s, who, id, (struct sl_want){__VA_ARGS__})

static void cancel(struct stage *s, char who, const char *id)
{
    struct sl_ended past = {0};
    int n = sl_table_cancel(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                            bytes(id), &past);
    if (n < 0) say(s, "%c %s\n", who, sluice_status_word(n));
    else say(s, "%c cancels %d\n", who, n);
    settle(s);
}

static void lose(struct stage *s, char who)
{
    sl_table_lose(s->table, s->now, &s->session[who - 'a'], 0, bytes("k"),
                  bytes(asked[who - 'a']));
    settle(s);
}

/* --- Repeats ------------------------------------------------------------------------ */

UNIT_TEST(a_repeated_request_gets_the_same_grant)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 500);
    pass(s, 200);
    TRY('b', ID, .lease_ms = 500);
    SAID("a granted 1 lease 500\nb replayed 1 lease 300\n");
    release(s, 'b', s->last[1]);
    SAID("b releases 1\n");
}

UNIT_TEST(the_time_that_a_repeat_has_waited_counts_from_its_own_arrival)
{
    STAGE s = stage_new();
    struct sl_want w = {.key = bytes("k"), .per = 1, .buckets = 1, .units = 1};
    struct sl_grant g;
    w.lease_ms = 500;
    w.request = bytes(ID);
    w.waited_ms = 90;
    assert_int_equal(sl_table_acquire(s->table, s->now, &s->session[0], &w, &g), 0);
    assert_int_equal(g.waited_ms, 90);
    w.waited_ms = 7;
    assert_int_equal(sl_table_acquire(s->table, s->now, &s->session[1], &w, &g), 0);
    assert_int_equal(g.waited_ms, 7);
}

UNIT_TEST(another_user_or_key_with_the_same_id_is_another_acquisition)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 500);
    TRY('g', ID, .lease_ms = 500);
    TRY('a', ID, .lease_ms = 500, .key = bytes("k2"));
    SAID("a granted 1 lease 500\ng FULL\na granted 2 lease 500\n");
}

UNIT_TEST(a_repeat_with_other_options_is_rejected)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 500, .digest = 1);
    TRY('b', ID, .lease_ms = 600, .digest = 2);
    TRY('b', OTHER, .wait_ms = 50, .digest = 1);
    TRY('c', OTHER, .wait_ms = 50, .digest = 2);
    SAID("a granted 1 lease 500\nb MISMATCH\nb waits\nc MISMATCH\n");
}

UNIT_TEST(an_acquisition_that_has_ended_is_not_granted_again)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 500);
    release(s, 'a', s->last[0]);
    TRY('a', ID, .lease_ms = 500);
    SAID("a granted 1 lease 500\na releases 1\na ENDED\n");
    TRY('a', OTHER, .lease_ms = 500);
    pass(s, 500);
    TRY('a', OTHER, .lease_ms = 500); /* Its lease has expired. */
    SAID("a granted 2 lease 500\n- expired k\na ENDED\n");
    pass(s, 999);
    TRY('a', OTHER, .lease_ms = 500);
    pass(s, 1);
    TRY('a', OTHER, .lease_ms = 500); /* The table has forgotten it. */
    SAID("a ENDED\na granted 3 lease 500\n");
}

UNIT_TEST(an_expired_lease_is_not_replayed_before_its_expiry_is_reported)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 500);
    s->now.ms += 500;
    TRY('b', ID, .lease_ms = 500);
    SAID("a granted 1 lease 500\nb ENDED\n- expired k\n");
}

UNIT_TEST(a_request_that_was_answered_with_nil_has_ended)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    TRY('b', ID, .lease_ms = 500);
    TRY('c', OTHER, .lease_ms = 500, .wait_ms = 50);
    pass(s, 50);
    release(s, 'a', s->last[0]);
    TRY('b', ID, .lease_ms = 500);
    TRY('c', OTHER, .lease_ms = 500, .wait_ms = 50);
    SAID("a held 1\nb FULL\nc waits\nc timed out k\na releases 1\nb ENDED\nc ENDED\n");
}

UNIT_TEST(a_request_that_was_rejected_can_be_repeated)
{
    STAGE s = stage_new();
    assert_int_equal(sl_table_drain(s->table, bytes("k"), true), 0);
    TRY('a', ID, .lease_ms = 500);
    assert_int_equal(sl_table_drain(s->table, bytes("k"), false), 0);
    TRY('a', ID, .lease_ms = 500);
    SAID("a DRAINED\na granted 1 lease 500\n");
    TRY('b', OTHER, .lease_ms = 500, .wait_ms = 50);
    assert_int_equal(sl_table_drain(s->table, bytes("k"), true), 0);
    settle(s);
    assert_int_equal(sl_table_drain(s->table, bytes("k"), false), 0);
    TRY('b', OTHER, .lease_ms = 500, .wait_ms = 50);
    SAID("b waits\nb refused k\nb waits\n");
}

UNIT_TEST(a_repeat_without_a_lease_moves_the_grant_to_its_session)
{
    STAGE s = stage_new();
    TRY('a', ID);
    TRY('b', ID);
    end(s, 'a');
    SAID("a granted 1 lease 0\nb replayed 1 lease 0\na over \n");
    end(s, 'b');
    SAID("- ended k\nb over \n");
}

UNIT_TEST(a_table_without_authority_replays_nothing)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 500);
    sl_table_set_authority(s->table, 10);
    pass(s, 10);
    TRY('a', ID, .lease_ms = 500);
    cancel(s, 'a', OTHER);
    SAID("a granted 1 lease 500\na NOKEEPER\na NOKEEPER\n");
}

/* --- Joined attempts ---------------------------------------------------------------- */

UNIT_TEST(attempts_that_wait_together_get_one_grant)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 1000);
    TRY('b', ID, .lease_ms = 500, .wait_ms = 900);
    ASK('c', .wait_ms = 900);
    pass(s, 40);
    TRY('d', ID, .lease_ms = 500, .wait_ms = 900);
    pass(s, 10);
    SAID("a held 1\nb waits\nc waits\nd waits\n");
    release(s, 'a', s->last[0]);
    /* Each attempt has waited since its own arrival. */
    SAID("a releases 1\nd granted 1 waited 10\nb replayed 1 waited 50\n");
    release(s, 'b', s->last[1]);
    SAID("b releases 1\nc granted 2 waited 50\n");
}

UNIT_TEST(each_attempt_is_answered_by_its_own_deadline)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 1000);
    TRY('b', ID, .lease_ms = 500, .wait_ms = 50);
    TRY('c', ID, .lease_ms = 500, .wait_ms = 100);
    TRY('d', ID, .lease_ms = 500, .wait_ms = 70);
    TRY('e', ID, .lease_ms = 500); /* It does not wait. */
    pass(s, 50);
    SAID("a held 1\nb waits\nc waits\nd waits\ne FULL\nb timed out k\n");
    pass(s, 20);
    SAID("d timed out k\n");
    release(s, 'a', s->last[0]);
    SAID("a releases 1\nc granted 1 waited 70\n");
}

UNIT_TEST(a_wait_has_ended_when_its_last_attempt_has_timed_out)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 1000);
    TRY('b', ID, .lease_ms = 500, .wait_ms = 50);
    TRY('c', ID, .lease_ms = 500, .wait_ms = 60);
    pass(s, 60);
    TRY('b', ID, .lease_ms = 500, .wait_ms = 50);
    SAID("a held 1\nb waits\nc waits\nb timed out k\nc timed out k\nb ENDED\n");
}

UNIT_TEST(a_grant_without_a_lease_belongs_to_the_newest_attempt)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 1000);
    TRY('b', ID, .wait_ms = 900);
    TRY('c', ID, .wait_ms = 900);
    release(s, 'a', s->last[0]);
    end(s, 'b');
    SAID("a held 1\nb waits\nc waits\na releases 1\nc granted 1 waited 0\n"
         "b replayed 1 waited 0\nb over \n");
    assert_true(sl_session_holds(&s->session[2]));
}

UNIT_TEST(a_grant_that_is_taken_back_goes_to_the_other_attempt)
{
    STAGE s = stage_new();
    struct sl_effect e;
    ASK('a', .lease_ms = 1000);
    TRY('b', ID, .wait_ms = 900);
    TRY('c', ID, .wait_ms = 900);
    release_only(s, 'a', s->last[0]);
    while (sl_table_next(s->table, s->now, &e) && e.type != SL_EFFECT_GRANTED) continue;
    assert_ptr_equal(e.session, &s->session[2]);
    sl_table_take_back(s->table, s->now, e.session, bytes("k"), &e.grant);
    sl_table_check(s->table);
    s->said[0] = '\0';
    settle(s);
    SAID("b replayed 1 waited 0\n");
    assert_true(sl_session_holds(&s->session[1]));
}

UNIT_TEST(a_grant_that_a_client_knows_is_not_taken_back)
{
    STAGE s = stage_new();
    struct sl_grant first = {0};
    const struct sl_want w = {.key = bytes("k"),
                              .per = 1,
                              .buckets = 1,
                              .units = 1,
                              .lease_ms = 500,
                              .request = bytes(ID)};
    for (int known = 1; known >= 0; known--) {
        assert_int_equal(sl_table_acquire(s->table, s->now, &s->session[0], &w, &first),
                         SLUICE_OK);
        TRY('b', ID, .lease_ms = 500);
        if (known == 1) sl_table_known(s->table, s->now, bytes("k"), first.fence);
        bool ended = sl_table_take_back(s->table, s->now, &s->session[0], bytes("k"),
                                        &first);
        settle(s);
        assert_int_equal(ended, known == 0);
        assert_int_equal(sl_table_holds(s->table, s->now, bytes("k"), first.fence),
                         known == 1);
        if (known == 1) cancel(s, 'a', ID);
        pass(s, 200000); /* The id is forgotten. */
    }
    SAID("b replayed 1 lease 500\na cancels 2\nb replayed 2 lease 500\n");
}

UNIT_TEST(a_grant_without_a_lease_says_from_which_session_it_moved)
{
    STAGE s = stage_new();
    struct sl_grant g;
    const struct sl_want w = {
        .key = bytes("k"), .per = 1, .buckets = 1, .units = 1, .request = bytes(ID)};
    for (int who = 0; who < 2; who++)
        for (int again = 0; again < 2; again++) {
            assert_int_equal(
                sl_table_acquire(s->table, s->now, &s->session[who], &w, &g),
                SLUICE_OK);
            assert_int_equal(g.moved_from,
                             who == 1 && again == 0 ? s->session[0].id : 0);
        }
}

UNIT_TEST(a_session_that_ends_leaves_the_others_waiting)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 1000);
    TRY('b', ID, .wait_ms = 900);
    TRY('c', ID, .wait_ms = 900);
    TRY('d', ID, .wait_ms = 900);
    ASK('e', .wait_ms = 900);
    end(s, 'b');
    end(s, 'd');
    SAID("a held 1\nb waits\nc waits\nd waits\ne waits\nb over \nd over \n");
    release(s, 'a', s->last[0]);
    SAID("a releases 1\nc granted 1 waited 0\n");
}

/* --- Lost connections ---------------------------------------------------------------- */

UNIT_TEST(a_lost_attempt_keeps_its_position_for_a_while)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    TRY('b', ID, .wait_ms = 900);
    ASK('c', .wait_ms = 2900);
    lose(s, 'b');
    pass(s, 99);
    TRY('d', ID, .wait_ms = 900);
    release(s, 'a', s->last[0]);
    SAID("a held 1\nb waits\nc waits\nd waits\na releases 1\nd granted 1 waited 0\n");
}

UNIT_TEST(an_attempt_that_arrived_before_the_lost_one_gets_its_own_position)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    TRY('b', ID, .wait_ms = 900);
    ASK('c', .wait_ms = 2900, .waited_ms = 20);
    lose(s, 'b');
    pass(s, 10);
    TRY('d', ID, .wait_ms = 900, .waited_ms = 60);
    release(s, 'a', s->last[0]);
    SAID("a held 1\nb waits\nc waits\nd waits\na releases 1\nd granted 1 waited 60\n");
}

UNIT_TEST(a_lost_attempt_does_not_block_others)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    TRY('b', ID, .wait_ms = 900);
    ASK('c', .lease_ms = 5, .wait_ms = 900);
    lose(s, 'b');
    release(s, 'a', s->last[0]);
    SAID("a held 1\nb waits\nc waits\na releases 1\nc granted 1 waited 0\n");
    TRY('d', ID, .wait_ms = 900);
    pass(s, 5);
    SAID("d waits\n- expired k\nd granted 2 waited 5\n");
}

UNIT_TEST(a_lost_attempt_that_is_not_repeated_has_ended)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    TRY('b', ID, .wait_ms = 900);
    lose(s, 'b');
    pass(s, 100);
    TRY('d', ID, .wait_ms = 900);
    SAID("a held 1\nb waits\nd ENDED\n");
}

UNIT_TEST(a_grant_that_was_taken_back_is_repeated_at_its_old_position)
{
    STAGE s = stage_new();
    struct sl_effect e;
    ASK('a', .lease_ms = 1000);
    TRY('b', ID, .lease_ms = 900, .wait_ms = 900);
    ASK('c', .lease_ms = 10, .wait_ms = 900);
    ASK('d', .lease_ms = 10, .wait_ms = 900);
    release_only(s, 'a', s->last[0]);
    while (sl_table_next(s->table, s->now, &e) && e.type != SL_EFFECT_GRANTED) continue;
    sl_table_take_back(s->table, s->now, e.session, bytes("k"), &e.grant);
    s->said[0] = '\0';
    settle(s);
    TRY('e', ID, .lease_ms = 900, .wait_ms = 900);
    pass(s, 10);
    SAID("c granted 1 waited 0\ne waits\n- expired k\ne granted 2 waited 10\n");
}

UNIT_TEST(an_undone_grant_can_be_repeated)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 900);
    sl_table_undo_grant(s->table, s->now, bytes("k"), s->last[0]);
    TRY('a', ID, .lease_ms = 900);
    SAID("a granted 1 lease 900\na granted 2 lease 900\n");
}

/* --- CANCEL ------------------------------------------------------------------------- */

UNIT_TEST(cancel_withdraws_a_wait_with_all_attempts)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    TRY('b', ID, .wait_ms = 900);
    TRY('c', ID, .wait_ms = 900);
    ASK('d', .wait_ms = 900);
    cancel(s, 'e', ID);
    SAID("a held 1\nb waits\nc waits\nd waits\ne cancels 1\nb cancelled k\n"
         "c cancelled k\n");
    cancel(s, 'e', ID);
    TRY('b', ID, .wait_ms = 900);
    release(s, 'a', s->last[0]);
    SAID("e cancels 0\nb ENDED\na releases 1\nd granted 1 waited 0\n");
}

UNIT_TEST(cancel_releases_a_grant)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 5000);
    cancel(s, 'g', ID); /* Another user. */
    cancel(s, 'b', ID);
    TRY('a', ID, .lease_ms = 5000);
    ASK('c', .lease_ms = 10);
    SAID("a granted 1 lease 5000\ng cancels 0\nb cancels 2\na ENDED\nc held 1\n");
}

UNIT_TEST(a_request_that_arrives_after_its_cancel_is_not_granted)
{
    STAGE s = stage_new();
    cancel(s, 'a', ID);
    TRY('a', ID, .lease_ms = 5000);
    SAID("a cancels 0\na ENDED\n");
    ASK('a', .lease_ms = 5000);
    TRY('b', OTHER, .wait_ms = 900);
    lose(s, 'b');
    cancel(s, 'c', OTHER);
    TRY('b', OTHER, .wait_ms = 900);
    SAID("a held 1\nb waits\nc cancels 1\nb ENDED\n");
}

UNIT_TEST(cancel_of_an_unknown_id_is_rejected_while_other_nodes_may_know_it)
{
    STAGE s = stage_new();
    sl_table_recover(s->table, 50);
    cancel(s, 'a', ID);
    cancel(s, 'a', "short");
    SAID("a RECOVERING\na INVALID\n");
}

/* --- Limits, records ----------------------------------------------------------------- */

/* A stage remembers 20 ids. */
UNIT_TEST(at_the_limit_the_id_that_ended_first_is_forgotten)
{
    STAGE s = stage_new();
    char id[] = "id that counts aa", first[] = "id that counts ab";
    for (int i = 0; i < 20; i++) {
        id[16]++;
        cancel(s, 'a', id);
    }
    s->said[0] = '\0';
    TRY('a', first, .lease_ms = 10); /* It is remembered. */
    cancel(s, 'a', ID);
    TRY('a', ID, .lease_ms = 10);
    TRY('a', first, .lease_ms = 10); /* It was forgotten. */
    SAID("a ENDED\na cancels 0\na ENDED\na granted 1 lease 10\n");
}

UNIT_TEST(the_number_of_ids_in_use_has_a_limit)
{
    STAGE s = stage_new();
    char id[] = "id that counts aa";
    ASK('b', .lease_ms = 1000);
    for (int i = 0; i < 20; i++) {
        id[16]++;
        TRY('a', id, .wait_ms = 1000, .notify = true);
    }
    s->said[0] = '\0';
    TRY('c', ID, .wait_ms = 1000);
    cancel(s, 'c', ID);
    ASK('c', .lease_ms = 10); /* A request without an id is not affected. */
    SAID("c REQUESTS\nc REQUESTS\nc FULL\n");
    cancel(s, 'a', id);
    s->said[0] = '\0';
    TRY('c', ID, .wait_ms = 1000);
    SAID("c waits\n");
}

UNIT_TEST(a_restored_grant_keeps_its_id)
{
    STAGE s = stage_new();
    struct sl_grant_view v = grant(40, 500);
    v.user = 1;
    v.request = bytes(ID);
    v.digest = 3;
    sl_table_set_fences(s->table, 100, SL_FENCE_MAX);
    assert_int_equal(sl_table_restore(s->table, s->now, &v, bytes("k")), SLUICE_OK);
    TRY('a', ID, .lease_ms = 500, .digest = 4);
    TRY('a', ID, .lease_ms = 500, .digest = 3);
    cancel(s, 'a', ID);
    SAID("a MISMATCH\na replayed 1 lease 500\na cancels 2\n");
}

UNIT_TEST(a_reported_grant_goes_to_the_attempts_that_wait_for_it)
{
    STAGE s = stage_new();
    struct sl_grant_view v = grant(40, 500);
    v.user = 1;
    v.request = bytes(ID);
    v.digest = 3;
    sl_table_set_fences(s->table, 100, SL_FENCE_MAX);
    sl_table_recover(s->table, 50);
    TRY('a', ID, .lease_ms = 500, .wait_ms = 900, .digest = 3);
    TRY('b', ID, .lease_ms = 500, .wait_ms = 900, .digest = 3);
    assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                     SLUICE_OK);
    settle(s);
    SAID("a waits\nb waits\na replayed 1 waited 0\nb replayed 1 waited 0\n");
    v.fence = 30; /* An earlier grant of the same acquisition. */
    assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                     SLUICE_OK);
    TRY('a', ID, .lease_ms = 500, .digest = 3);
    SAID("a replayed 1 lease 500\n");
}

static bool record_put(void *arg, const struct sl_grant_change *c)
{
    say(arg, "recorded %d\n", (int)c->grant.fence);
    return true;
}

static void record_end(void *arg, struct sl_bytes key, sl_fence fence, sl_ms end_ms,
                       bool is_long)
{
    (void)arg, (void)key, (void)fence, (void)end_ms, (void)is_long;
}

UNIT_TEST(a_reported_grant_is_recorded_before_a_client_learns_of_it)
{
    for (int joined = 0; joined < 2; joined++) {
        STAGE s = stage_new();
        const struct sl_table_recorder recorder = {
            .arg = s, .put = record_put, .end = record_end};
        struct sl_grant_view v = grant(40, 500);
        v.user = 1;
        v.request = bytes(ID);
        sl_table_set_fences(s->table, 100, SL_FENCE_MAX);
        sl_table_set_recorder(s->table, &recorder);
        sl_table_recover(s->table, 50);
        if (joined == 1) TRY('a', ID, .lease_ms = 500, .wait_ms = 900);
        assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                         SLUICE_OK);
        settle(s);
        if (joined == 0) TRY('a', ID, .lease_ms = 500);
        TRY('b', ID, .lease_ms = 500); /* It has a record now. */
        SAID(joined == 1 ? "a waits\nrecorded 40\na replayed 1 waited 0\n"
                           "b replayed 1 lease 500\n"
                         : "recorded 40\na replayed 1 lease 500\n"
                           "b replayed 1 lease 500\n");
    }
}

UNIT_TEST(a_wait_that_times_out_while_the_table_may_not_grant_can_be_repeated)
{
    STAGE s = stage_new();
    sl_table_recover(s->table, 500);
    TRY('a', ID, .lease_ms = 500, .wait_ms = 50);
    pass(s, 50);
    TRY('a', ID, .lease_ms = 500, .wait_ms = 900);
    pass(s, 450);
    SAID("a waits\na timed out k\na waits\na granted 1 waited 450\n");
}

UNIT_TEST(a_grant_that_is_reported_after_its_cancel_is_rejected)
{
    STAGE s = stage_new();
    struct sl_grant_view v = grant(40, 500);
    v.request = bytes(ID);
    sl_table_set_fences(s->table, 100, SL_FENCE_MAX);
    sl_table_recover(s->table, 5000);
    TRY('a', ID, .lease_ms = 500, .wait_ms = 900);
    cancel(s, 'b', ID);
    assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                     SLUICE_EENDED);
    v.request = bytes(
        OTHER); /* It has expired by the first report, and nobody has cancelled it. */
    assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                     SLUICE_OK);
    pass(s, 600);
    v.left_ms = 900;
    assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                     SLUICE_OK);
    TRY('c', OTHER, .lease_ms = 500);
    SAID("a waits\nb cancels 1\na cancelled k\n- expired k\nc replayed 1 lease 900\n");
}

/* --- Many waits of one session -------------------------------------------------------- */

static void tell_ticket(struct stage *s, const struct sl_effect *e)
{
    if (e->ticket == 0) {
        tell_word(s, e);
        return;
    }
    say(s, "%d: ", (int)e->ticket);
    tell_word(s, e);
}

UNIT_TEST(each_wait_of_a_session_has_its_own_effect)
{
    STAGE s = stage_new();
    s->tell = tell_ticket;
    TRY('a', ID, .lease_ms = 500);
    TRY('b', "b-b-b-b-b-b-b-b-1", .lease_ms = 500, .wait_ms = 100, .ticket = 1,
        .notify = true);
    TRY('b', "b-b-b-b-b-b-b-b-2", .lease_ms = 500, .wait_ms = 1000, .ticket = 2,
        .notify = true);
    TRY('b', "b-b-b-b-b-b-b-b-3", .lease_ms = 500, .wait_ms = 1000, .ticket = 3,
        .notify = true);
    SAID("a granted 1 lease 500\nb waits\nb waits\nb waits\n");
    pass(s, 100);
    SAID("1: b timed out k\n");
    cancel(s, 'c', "b-b-b-b-b-b-b-b-2");
    SAID("c cancels 1\n2: b cancelled k\n");
    pass(s, 400);
    SAID("- expired k\n3: b granted k\n");
}

UNIT_TEST(losing_one_wait_of_a_session_leaves_the_others)
{
    STAGE s = stage_new();
    struct sl_ended past;
    s->tell = tell_ticket;
    TRY('a', ID, .lease_ms = 500);
    TRY('b', OTHER, .lease_ms = 500, .wait_ms = 1000, .ticket = 1, .notify = true);
    TRY('b', "b-b-b-b-b-b-b-b-2", .lease_ms = 500, .wait_ms = 1000, .ticket = 2,
        .notify = true);
    TRY('c', OTHER, .lease_ms = 500, .wait_ms = 1000, .ticket = 3, .notify = true);
    sl_table_lose(s->table, s->now, &s->session[1], 7, bytes("k"), bytes(OTHER));
    sl_table_lose(s->table, s->now, &s->session[2], 1, bytes("k"), bytes(OTHER));
    sl_table_lose(s->table, s->now, &s->session[1], 1, bytes("k"), bytes(OTHER));
    sl_table_lose(s->table, s->now, &s->session[1], 2, bytes("k"),
                  bytes("b-b-b-b-b-b-b-b-2"));
    SAID("a granted 1 lease 500\nb waits\nb waits\nc waits\n");
    pass(s, 500);
    SAID("- expired k\n3: c granted k\n");
    assert_int_equal(
        sl_table_release(s->table, s->now, &s->session[2], bytes("k"), 0, &past), 1);
    settle(s);
    SAID("");
}

UNIT_TEST(a_waiter_without_an_id_leaves_the_queue_when_it_is_lost)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', .wait_ms = 1000, .ticket = 1);
    ASK('c', .wait_ms = 1000, .ticket = 2);
    sl_table_lose(s->table, s->now, &s->session[1], 1, bytes("k"),
                  (struct sl_bytes){NULL, 0});
    release(s, 'a', s->last[0]);
    SAID("a held 1\nb waits\nc waits\na releases 1\nc granted 1 waited 0\n");
}

UNIT_TEST(an_attempt_that_joins_brings_its_own_ticket)
{
    STAGE s = stage_new();
    s->tell = tell_ticket;
    TRY('a', ID, .lease_ms = 500);
    TRY('b', OTHER, .lease_ms = 500, .wait_ms = 50, .ticket = 1, .notify = true);
    TRY('c', OTHER, .lease_ms = 500, .wait_ms = 1000, .ticket = 2);
    SAID("a granted 1 lease 500\nb waits\nc waits\n");
    pass(s, 50);
    SAID("1: b timed out k\n");
    pass(s, 450);
    SAID("- expired k\n2: c granted k\n");
}

UNIT_TEST(a_session_that_is_notified_may_wait_for_its_own_lock)
{
    STAGE s = stage_new();
    s->tell = tell_ticket;
    TRY('a', ID, .wait_ms = 0);
    TRY('a', OTHER, .wait_ms = 1000, .ticket = 1);
    SAID("a granted 1 lease 0\na DEADLOCK\n");
    TRY('a', OTHER, .wait_ms = 1000, .ticket = 1, .notify = true);
    TRY('a', "a-a-a-a-a-a-a-a-3", .wait_ms = 1000, .steal = true, .priority = 1,
        .force_ms = SL_NEVER, .ticket = 2, .notify = true);
    SAID("a waits\na waits\na asked k\n");
    cancel(s, 'a', ID);
    SAID("a cancels 2\n2: a granted k\n");
}

UNIT_TEST(a_thief_does_not_ask_the_session_that_takes_its_position)
{
    STAGE s = stage_new();
    TRY('a', ID, .lease_ms = 500);
    TRY('b', OTHER, .wait_ms = 1000, .steal = true, .priority = 1, .force_ms = SL_NEVER,
        .notify = true);
    TRY('a', OTHER, .wait_ms = 1000, .steal = true, .priority = 1,
        .force_ms = SL_NEVER);
    SAID("a granted 1 lease 500\nb waits\nb asked k\na waits\n");
    end(s, 'b');
    SAID("- withdrawn k\nb over \n");
}

/* --- At random -------------------------------------------------------------------------- */

/* Clients repeat requests on several connections at random. An acquisition has at most one grant, and no
 * grant after it has ended. */
enum { IDS = 6, STEPS = 3000 };

struct model {
    sl_fence fence[IDS]; /* The grant of each acquisition; 0: none yet. */
    bool over[IDS];      /* It has ended. */
};

static char *id_of(int i)
{
    static char id[] = "a random id of x.";
    id[16] = (char)('a' + i);
    return id;
}

static struct model model;
static int waits_for[SESSIONS]; /* The id; -1: none. */

static void told(struct stage *s, const struct sl_effect *e)
{
    int who = (int)(e->session - s->session);
    switch (e->type) {
        case SL_EFFECT_GRANTED: {
            int id = waits_for[who];
            assert_in_range(id, 0, IDS - 1);
            assert_false(model.over[id]);
            if (model.fence[id] != 0) assert_int_equal(model.fence[id], e->grant.fence);
            model.fence[id] = e->grant.fence;
            waits_for[who] = -1;
            break;
        }
        case SL_EFFECT_CANCELLED:
            assert_true(model.over[waits_for[who]]);
            waits_for[who] = -1;
            break;
        case SL_EFFECT_TIMED_OUT: waits_for[who] = -1; break;
        case SL_EFFECT_EXPIRED:
            for (int i = 0; i < IDS; i++)
                if (model.fence[i] == e->past.fence) model.over[i] = true;
            break;
        default: break;
    }
}

static void step(struct stage *s, struct sl_random *random)
{
    int who = (int)sl_random_below(random, 6), id = (int)sl_random_below(random, IDS);
    struct sl_session *session = &s->session[who];
    struct sl_grant g;
    struct sl_ended past;
    struct sl_want w = {.key = bytes("k"),
                        .per = 1,
                        .buckets = 1,
                        .units = 1,
                        .lease_ms = 1 + (sl_ms)sl_random_below(random, 60),
                        .wait_ms = (sl_ms)sl_random_below(random, 40),
                        .request = bytes(id_of(id))};
    switch (sl_random_below(random, 6)) {
        case 0:
        case 1: {
            if (waits_for[who] >= 0) break;
            int status = sl_table_acquire(s->table, s->now, session, &w, &g);
            if (status == SL_WAITS) waits_for[who] = id;
            if (status == SLUICE_EENDED) model.over[id] = true;
            if (status != SLUICE_OK) break;
            assert_false(model.over[id]);
            assert_int_equal(g.replay, model.fence[id] != 0);
            if (g.replay) assert_int_equal(g.fence, model.fence[id]);
            model.fence[id] = g.fence;
            break;
        }
        case 2:
            if (waits_for[who] < 0) break;
            sl_table_lose(s->table, s->now, session, 0, bytes("k"),
                          bytes(id_of(waits_for[who])));
            waits_for[who] = -1;
            break;
        case 3:
            if (sl_table_cancel(s->table, s->now, session, bytes("k"), bytes(id_of(id)),
                                &past) >= 0)
                model.over[id] = true;
            break;
        case 4:
            if (model.fence[id] == 0) break;
            if (sl_table_release(s->table, s->now, session, bytes("k"), model.fence[id],
                                 &past) == 1)
                model.over[id] = true;
            break;
        default: s->now.ms += (sl_ms)sl_random_below(random, 20); break;
    }
}

UNIT_TEST(at_random_an_acquisition_has_at_most_one_grant)
{
    struct sl_random random;
    sl_random_seed(&random, 1);
    for (int round = 0; round < 200; round++) {
        STAGE s = stage_new();
        s->tell = told;
        model = (struct model){0};
        for (int i = 0; i < SESSIONS; i++) waits_for[i] = -1;
        for (int i = 0; i < STEPS / 20; i++) {
            step(s, &random);
            settle(s);
        }
        s->tell = tell_word;
        s->said[0] = '\0';
    }
}

int main(void)
{
    return run_unit_tests("requests");
}
