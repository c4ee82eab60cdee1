/* test_storage_etcd.c - what is particular to the storage on etcd: its transactions and their
 * limits, answers that are lost, members that are gone, and what etcd forgets or refuses. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "storage/etcd/client.h"
#include "storage_relay_stage.h"

#define ANSWER_MS_THREE 1000 /* Of members that are paused. */

/* How often the key of table t was written. */
static uint64_t writes_of(const struct stage *s, const char *key)
{
    char whole[64] = "d/\0\1t";
    strcpy(whole + 5, key);
    return number_of(s, whole, 5 + strlen(key), "version");
}

static uint64_t count_of(const struct stage *s, const char *part)
{
    char whole[200], base64[300], end[300], json[700];
    snprintf(whole, sizeof whole, "%s%s", s->prefix, part);
    sl_etcd_base64_write(base64, text(whole));
    whole[strlen(whole) - 1]++;
    sl_etcd_base64_write(end, text(whole));
    snprintf(json, sizeof json,
             "{\"key\":\"%s\",\"range_end\":\"%s\",\"count_only\":true}", base64, end);
    char *answer = etcd_ask(&members, 0, "/v3/kv/range", json, NULL);
    assert_non_null(answer);
    const char *at = strstr(answer, "\"count\":\"");
    uint64_t number = at != NULL ? strtoull(at + 9, NULL, 10) : 0;
    free(answer);
    return number;
}

static uint64_t groups(const struct stage *s)
{
    struct sl_storage_stats stats;
    sl_storage_stats(s->storage, &stats);
    return stats.groups;
}

static void revoke_all_leases(void)
{
    char *all = etcd_ask(&members, 0, "/v3/lease/leases", "{}", NULL), json[100];
    assert_non_null(all);
    for (const char *at = all; (at = strstr(at, "\"ID\":\"")) != NULL; at += 6) {
        snprintf(json, sizeof json, "{\"ID\":\"%llu\"}", strtoull(at + 6, NULL, 10));
        free(etcd_ask(&members, 0, "/v3/lease/revoke", json, NULL));
    }
    free(all);
}

/* --- A crowd of commits --------------------------------------------------------- */

enum { CROWD = 40, WRITES = 400 };

struct crowd {
    struct asked asked[CROWD];
    struct sl_storage_write writes[CROWD][WRITES];
    char names[CROWD][WRITES][24];
    int n;
};
static struct crowd crowd;

static struct asked *add(struct crowd *c, uint64_t term, uint64_t id,
                         const char *request, int writes, const char *value)
{
    struct asked *a = &c->asked[c->n];
    for (int i = 0; i < writes; i++) {
        snprintf(c->names[c->n][i], sizeof c->names[c->n][i], "%d.%d", c->n, i);
        c->writes[c->n][i] = (struct sl_storage_write){
            text("t"), text(c->names[c->n][i]), text(value)};
    }
    *a = (struct asked){
        .op = commit_of(term, id, request, c->writes[c->n], (uint32_t)writes)};
    c->n++;
    return a;
}

static void submit_crowd(struct stage *s, struct crowd *c)
{
    for (int i = 0; i < c->n; i++) submit(s, &c->asked[i]);
}

static void await_crowd(struct stage *s, struct crowd *c)
{
    for (int i = 0; i < c->n; i++) {
        await(s, &c->asked[i]);
        forget(&c->asked[i]);
    }
}

static void await_all_ok(struct stage *s, struct crowd *c)
{
    await_crowd(s, c);
    for (int i = 0; i < c->n; i++) assert_int_equal(c->asked[i].got.status, SLUICE_OK);
    c->n = 0;
}

/* --- Groups ---------------------------------------------------------------------- */

static void those_that_wait_together_are_one_transaction(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    uint64_t before = groups(s);
    for (int i = 0; i < CROWD; i++) add(&crowd, term, 2, NULL, 1, "v");
    submit_crowd(s, &crowd);
    await_all_ok(s, &crowd);
    assert_int_equal(groups(s), before + 1);
    s->settings.group_max = 1;
    stage_reopen(s);
    for (int i = 0; i < CROWD; i++) add(&crowd, term, 2, NULL, 1, "v");
    submit_crowd(s, &crowd);
    await_all_ok(s, &crowd);
    assert_int_equal(groups(s), CROWD);
}

static void commits_in_one_write_succeed_or_fail_independently(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result known;
    uint64_t term = claim(s);
    assert_int_equal(bar(s, term, 7), SLUICE_OK);
    assert_int_equal(put(s, term, 1, "known", "t", "k", "v", &known), SLUICE_OK);
    uint64_t before = groups(s);
    add(&crowd, term, 1, "new", 2, "1");
    add(&crowd, term, 7, "barred", 1, "2");
    add(&crowd, term, 2, "known", 1, "3");
    add(&crowd, term, 3, NULL, 3, "4");
    add(&crowd, term, 7, NULL, 0, NULL);
    add(&crowd, term, 4, NULL, 0, NULL);
    struct asked bar_it = {.op = {.type = SL_STORAGE_BAR, .term = term, .id = 9}};
    submit_crowd(s, &crowd);
    submit(s, &bar_it);
    await_crowd(s, &crowd);
    await(s, &bar_it);
    forget(&bar_it);
    static const int wanted[] = {SLUICE_OK, SLUICE_EBARRED, SLUICE_OK,
                                 SLUICE_OK, SLUICE_EBARRED, SLUICE_OK};
    for (int i = 0; i < 6; i++) assert_int_equal(crowd.asked[i].got.status, wanted[i]);
    assert_int_equal(bar_it.got.status, SLUICE_OK);
    assert_int_equal(crowd.asked[2].got.revision, known.revision);
    assert_int_equal(groups(s), before + 1);
    assert_string_equal(value_of(s, "t", "0.1"), "1");
    assert_null(value_of(s, "t", "1.0"));
    assert_null(value_of(s, "t", "2.0"));
    assert_string_equal(value_of(s, "t", "3.2"), "4");
    assert_int_equal(outcome(s, "barred"), 0);
    assert_int_not_equal(outcome(s, "new"), 0);
    assert_int_equal(put(s, term, 9, NULL, "t", "k", "v", NULL), SLUICE_EBARRED);
    crowd.n = 0;
}

/* etcd counts an inner transaction on top of the outer one. */
static void a_group_that_does_not_fit_alone_each_is_split(void **state)
{
    struct stage *s = *state;
    s->etcd.ops_max = 32;
    stage_reopen(s);
    uint64_t term = claim(s);
    assert_int_equal(bar(s, term, 7), SLUICE_OK);
    add(&crowd, term, 7, NULL, 1, "no");
    add(&crowd, term, 1, NULL, 20, "v");
    for (int i = 0; i < 10; i++) add(&crowd, term, 1, i % 2 ? "odd" : NULL, 1, "v");
    submit_crowd(s, &crowd);
    await_crowd(s, &crowd);
    assert_int_equal(crowd.asked[0].got.status, SLUICE_EBARRED);
    for (int i = 1; i < crowd.n; i++) {
        assert_int_equal(crowd.asked[i].got.status, SLUICE_OK);
        /* The same request five times is done once. */
        assert_int_equal(writes_of(s, crowd.names[i][0]), i < 4 || i % 2 == 0);
    }
    crowd.n = 0;
}

static void limits_of_etcd_have_their_own_errors(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    add(&crowd, term, 1, "fits", 126, "v");
    submit_crowd(s, &crowd);
    await_all_ok(s, &crowd);
    add(&crowd, term, 1, "too many", 127, "v");
    submit_crowd(s, &crowd);
    await_crowd(s, &crowd);
    assert_int_equal(crowd.asked[0].got.status, SLUICE_EWRITES);
    crowd.n = 0;
    char *large = malloc((size_t)2 << 20);
    memset(large, 'x', (size_t)2 << 20);
    large[((size_t)2 << 20) - 1] = '\0';
    assert_int_equal(put(s, term, 1, "big", "t", "k", large, NULL), SLUICE_ETOOBIG);
    assert_int_equal(outcome(s, "big"), 0);
    /* etcd takes less than we were told: what fits it is done all the same. */
    s->etcd.ops_max = 1000;
    s->etcd.request_bytes_max = (size_t)64 << 20;
    s->settings.group_max = 1000;
    stage_reopen(s);
    assert_int_equal(put(s, term, 1, "big", "t", "k", large, NULL), SLUICE_ETOOBIG);
    add(&crowd, term, 1, NULL, 300, "v");
    for (int i = 1; i < CROWD; i++) add(&crowd, term, 1, NULL, 10, "v");
    submit_crowd(s, &crowd);
    await_crowd(s, &crowd);
    assert_int_equal(crowd.asked[0].got.status, SLUICE_EWRITES);
    for (int i = 1; i < CROWD; i++)
        assert_int_equal(crowd.asked[i].got.status, SLUICE_OK);
    crowd.n = 0;
    free(large);
}

/* --- Answers that are lost ------------------------------------------------------- */

static const enum relay_way ways[] = {RELAY_LOSE_ANSWER, RELAY_LOSE_REQUEST,
                                      RELAY_LATE};

static void a_commit_whose_answer_is_lost_is_done_once(void **state)
{
    static const char *const requests[] = {NULL, "r"};
    struct stage *s = *state;
    uint64_t term = claim(s);
    for (int w = 0; w < 3; w++)
        for (int r = 0; r < 2; r++) {
            char key[32], request[32];
            struct sl_storage_stats stats, before;
            sl_storage_stats(s->storage, &before);
            snprintf(key, sizeof key, "k%d%d", w, r);
            snprintf(request, sizeof request, "r%d", w);
            relay_lose(ways[w], "request_put", 1);
            struct sl_storage_result got;
            assert_int_equal(put(s, term, 1, requests[r] != NULL ? request : NULL, "t",
                                 key, "v", &got),
                             SLUICE_OK);
            assert_int_equal(relay_lost(), 1);
            assert_int_equal(relay_release(), ways[w] == RELAY_LATE);
            assert_int_equal(writes_of(s, key), 1);
            if (requests[r] != NULL)
                assert_int_equal(outcome(s, request), got.revision);
            sl_storage_stats(s->storage, &stats);
            assert_int_equal(stats.commits, before.commits + 1);
            assert_int_equal(stats.duplicates, before.duplicates);
        }
}

/* The request comes when its key has another value already. */
static void a_request_that_comes_late_is_not_done_again(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    relay_lose(RELAY_LATE, "request_put", 1);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "first", NULL), SLUICE_OK);
    assert_int_equal(put(s, term, 2, NULL, "t", "k", "second", NULL), SLUICE_OK);
    assert_int_equal(relay_release(), 1);
    assert_string_equal(value_of(s, "t", "k"), "second");
}

static void a_group_whose_answer_is_lost_is_done_once(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    bar(s, term, 7);
    for (int w = 0; w < 3; w++)
        for (int inner = 0; inner < 2; inner++) {
            char value[24];
            snprintf(value, sizeof value, "%d%d", w, inner);
            add(&crowd, term, 1, NULL, 2, value);
            add(&crowd, term, 2, value, 2, value);
            if (inner) add(&crowd, term, 7, NULL, 1, value);
            add(&crowd, term, 3, NULL, 0, NULL);
            add(&crowd, term, 4, NULL, 1, value);
            uint64_t before = writes_of(s, "0.0");
            relay_lose(ways[w], inner ? "request_txn" : "request_put", 1);
            submit_crowd(s, &crowd);
            await_crowd(s, &crowd);
            assert_int_equal(relay_lost(), 1);
            assert_int_equal(relay_release(), ways[w] == RELAY_LATE);
            for (int i = 0; i < crowd.n; i++)
                assert_int_equal(crowd.asked[i].got.status,
                                 inner && i == 2 ? SLUICE_EBARRED : SLUICE_OK);
            assert_int_equal(writes_of(s, "0.0"), before + 1);
            assert_string_equal(value_of(s, "t", "1.1"), value);
            assert_int_equal(outcome(s, value), crowd.asked[1].got.revision);
            crowd.n = 0;
        }
}

/* RT8: three keepers come while nobody knows whether it was done. */
static void outcomes_from_before_a_term_change_are_reported(void **state)
{
    struct stage *s = *state;
    for (int w = 0; w < 3; w++)
        for (int many = 0; many < 2; many++) {
            char request[32];
            uint64_t term = claim(s);
            snprintf(request, sizeof request, "r%d%d", w, many);
            crowd.n = 0;
            add(&crowd, term, 1, NULL, 1, request);
            if (many) add(&crowd, term, 2, request, 1, request);
            if (many) add(&crowd, term, 3, NULL, 0, NULL);
            uint64_t before = writes_of(s, "0.0");
            /* A commit of this is the first that is lost; then nothing passes. */
            relay_lose(ways[w], "request_put", 1);
            submit_crowd(s, &crowd);
            run_until_lost(s, 1);
            relay_lose(RELAY_LOSE_REQUEST, "", -1);
            for (int i = 0; i < 3; i++) claim(&second);
            run_for(s, 60);
            assert_false(crowd.asked[0].done);
            relay_lose(RELAY_PASS, "", 0);
            await_crowd(s, &crowd);
            bool done = ways[w] == RELAY_LOSE_ANSWER;
            for (int i = 0; i < crowd.n; i++) {
                assert_int_equal(crowd.asked[i].got.status,
                                 done ? SLUICE_OK : SLUICE_ESTALE);
                if (!done) assert_int_equal(crowd.asked[i].got.term, term + 3);
            }
            relay_release();
            assert_int_equal(writes_of(s, "0.0"), before + done);
            if (many) assert_int_equal(outcome(s, request) != 0, done);
        }
    crowd.n = 0;
}

static void a_bar_whose_answer_is_lost_is_there(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    for (int w = 0; w < 3; w++) {
        relay_lose(ways[w], "request_put", 1);
        assert_int_equal(bar(s, term, 10 + (uint64_t)w), SLUICE_OK);
        assert_int_equal(relay_lost(), 1);
        assert_int_equal(only_read(s, term, 10 + (uint64_t)w, NULL), SLUICE_EBARRED);
        relay_release();
    }
}

static void an_outcome_is_not_reported_until_it_is_known(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    struct asked look = {.op = {.type = SL_STORAGE_OUTCOME, .request = text("r")}};
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    add(&crowd, term, 1, "r", 1, "v");
    relay_lose(RELAY_LOSE_REQUEST, "request_put", 3);
    submit_crowd(s, &crowd);
    run_until_lost(s, 1);
    submit(s, &look);
    await(s, &look);
    assert_true(crowd.asked[0].done);
    assert_true(look.got.found);
    forget(&look);
    await_all_ok(s, &crowd);
}

static unsigned pick(uint64_t *random, unsigned below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (unsigned)(*random % below);
}

/* Whatever is lost, and whenever the late ones come: what was told to be committed was
 * written, once. */
static void random_lost_replies_never_repeat_a_commit(void **state)
{
    enum { ROUNDS = 150, MOST = 8 };
    static const char *const words[] = {"request_put", "request_txn", "/v3/lease"};
    struct stage *s = *state;
    uint64_t random = 88172645463325252ull, expected[MOST] = {0};
    uint64_t term = claim(s);
    assert_int_equal(bar(s, term, 7), SLUICE_OK);
    for (int round = 0; round < ROUNDS; round++) {
        char request[MOST][32];
        int n = 1 + (int)pick(&random, MOST);
        if (pick(&random, 20) == 0) {
            term = claim(&second);
            assert_int_equal(bar(s, term, 7), SLUICE_OK);
        }
        relay_lose(ways[pick(&random, 3)], words[pick(&random, 3)],
                   (int)pick(&random, 4));
        for (int i = 0; i < n; i++) {
            snprintf(request[i], sizeof request[i], "r%d.%d", round, i);
            add(&crowd, term, pick(&random, 6) == 0 ? 7 : 1,
                pick(&random, 2) ? request[i] : NULL, 1, "v");
        }
        submit_crowd(s, &crowd);
        await_crowd(s, &crowd);
        for (int i = 0; i < n; i++) {
            bool barred = crowd.asked[i].op.id == 7;
            assert_int_equal(crowd.asked[i].got.status,
                             barred ? SLUICE_EBARRED : SLUICE_OK);
            if (!barred) expected[i]++;
            if (pick(&random, 8) == 0) relay_release();
            assert_int_equal(writes_of(s, crowd.names[i][0]), expected[i]);
        }
        if (pick(&random, 10) == 0) revoke_all_leases();
        if (pick(&random, 30) == 0) stage_reopen(s);
        bar(&second, term, 7); /* Its lease may be gone. */
        crowd.n = 0;
    }
}

/* --- Claims and renewals ----------------------------------------------------------- */

static struct sl_storage_term look(struct stage *s)
{
    struct sl_storage_result got;
    assert_int_equal(
        do_op(s, &(struct sl_storage_op){.type = SL_STORAGE_READ_TERM}, &got),
        SLUICE_OK);
    return got.term_record;
}

static void must_be(struct sl_storage_term got, sl_ms clock_ms, uint32_t ledgers,
                    bool resigned)
{
    assert_int_equal(got.clock_ms, clock_ms);
    assert_int_equal(got.ledgers, ledgers);
    assert_int_equal(got.resigned, resigned);
}

static int claim_at(struct stage *s, uint64_t term, sl_ms clock_ms,
                    struct sl_storage_result *got)
{
    struct sl_storage_op op = {
        .type = SL_STORAGE_CLAIM, .term = term, .node = 2, .clock_ms = clock_ms};
    return do_op(s, &op, got);
}

static struct sl_storage_op mark(enum sl_storage_op_type type, uint64_t term,
                                 sl_ms clock_ms, uint32_t ledgers)
{
    return (struct sl_storage_op){.type = type,
                                  .term = term,
                                  .fence_limit = 100,
                                  .longest_ms = 7,
                                  .clock_ms = clock_ms,
                                  .ledgers = ledgers};
}

static int renew_at(struct stage *s, uint64_t term, sl_ms clock_ms, uint32_t ledgers)
{
    struct sl_storage_op op = mark(SL_STORAGE_RENEW, term, clock_ms, ledgers);
    return do_op(s, &op, NULL);
}

static int resign(struct stage *s, uint64_t term, sl_ms clock_ms)
{
    struct sl_storage_op op = mark(SL_STORAGE_RESIGN, term, clock_ms, true);
    return do_op(s, &op, NULL);
}

static int claim_as(struct stage *s, uint64_t term, uint64_t beat, uint32_t node,
                    struct sl_storage_result *got)
{
    struct sl_storage_op op = {
        .type = SL_STORAGE_CLAIM, .term = term, .heartbeat = beat, .node = node};
    return do_op(s, &op, got);
}

static int renew(struct stage *s, uint64_t term, sl_fence limit, sl_ms longest,
                 struct sl_storage_result *got)
{
    struct sl_storage_op op = {.type = SL_STORAGE_RENEW,
                               .term = term,
                               .fence_limit = limit,
                               .longest_ms = longest};
    return do_op(s, &op, got);
}

static void a_claim_belongs_to_one_node_and_its_data_survives(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    assert_int_equal(look(s).term, 0);
    assert_int_equal(claim_as(s, 0, 0, 3, &got), SLUICE_OK);
    assert_int_equal(got.term, 1);
    assert_int_equal(claim_as(&second, 0, 0, 4, &got), SLUICE_ESTALE);
    assert_int_equal(got.term, 1);
    assert_int_equal(got.term_record.node, 3);
    assert_int_equal(renew(s, 1, 1000, 5000, &got), SLUICE_OK);
    assert_int_equal(got.term_record.fence_limit, 1000);
    struct sl_storage_term seen = look(&second);
    assert_int_equal(seen.term, 1);
    assert_int_equal(seen.node, 3);
    assert_int_equal(seen.longest_ms, 5000);
    assert_int_equal(seen.heartbeat, got.term_record.heartbeat);
    assert_int_equal(renew(s, 1, 2000, 6000, NULL), SLUICE_OK);
    /* It was renewed: it is not silent. */
    assert_int_equal(claim_as(&second, 1, seen.heartbeat, 4, &got), SLUICE_ESTALE);
    assert_int_equal(got.term, 1);
    assert_int_not_equal(got.term_record.heartbeat, seen.heartbeat);
    assert_int_equal(claim_as(&second, 1, got.term_record.heartbeat, 4, &got),
                     SLUICE_OK);
    assert_int_equal(got.term, 2);
    assert_int_equal(got.term_record.term, 2);
    assert_int_equal(got.term_record.node, 3);
    assert_int_equal(got.term_record.fence_limit, 2000);
    assert_int_equal(got.term_record.longest_ms, 6000);
    assert_int_equal(renew(s, 1, 3000, 1, &got), SLUICE_ESTALE);
    assert_int_equal(got.term, 2);
    assert_int_equal(got.term_record.node, 4);
    assert_int_equal(look(s).fence_limit, 2000);
    assert_int_equal(renew(&second, 2, 4000, 1, NULL), SLUICE_OK);
    assert_int_equal(look(s).fence_limit, 4000);
}

static void a_node_recognizes_its_claim_after_a_lost_reply(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    uint64_t term = claim(s);
    for (int w = 0; w < 3; w++) {
        relay_lose(ways[w], "request_delete_range", 1);
        assert_int_equal(claim_as(s, term, 0, 5, &got), SLUICE_OK);
        assert_int_equal(got.term, ++term);
        relay_release();
        assert_int_equal(look(s).term, term);
    }
    /* The same node, in the name of another storage: not this claim. */
    struct asked a = {.op = {.type = SL_STORAGE_CLAIM, .term = term, .node = 5}};
    relay_lose(RELAY_LATE, "request_delete_range", 1);
    submit(s, &a);
    run_until_lost(s, 1);
    relay_lose(RELAY_LOSE_REQUEST, "", -1);
    assert_int_equal(claim_as(&second, term, 0, 5, NULL), SLUICE_OK);
    relay_lose(RELAY_PASS, "", 0);
    await(s, &a);
    forget(&a);
    assert_int_equal(a.got.status, SLUICE_ESTALE);
    assert_int_equal(a.got.term, term + 1);
    assert_int_equal(relay_release(), 1);
    assert_int_equal(look(s).term, term + 1);
}

static void a_lost_renewal_fails_and_has_no_effect_when_it_arrives_late(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(renew(s, term, 100, 1, NULL), SLUICE_OK);
    for (int w = 0; w < 3; w++) {
        sl_fence limit = 1000 * (sl_fence)(w + 1);
        relay_lose(ways[w], "request_put", 1);
        assert_int_equal(renew(s, term, limit, 2, NULL), SLUICE_EIO);
        assert_int_equal(renew(s, term, limit + 1, 3, NULL), SLUICE_OK);
        assert_int_equal(relay_release(), ways[w] == RELAY_LATE);
        assert_int_equal(look(s).fence_limit, limit + 1);
    }
}

static void a_claim_reports_the_clock_and_the_marks_of_the_previous_term(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    assert_int_equal(claim_at(s, 0, 50, &got), SLUICE_OK);
    must_be(got.term_record, 0, false, false);
    must_be(look(&second), 50, false, false);
    /* The previous keeper never renewed. */
    assert_int_equal(claim_at(&second, 1, 60, &got), SLUICE_OK);
    must_be(got.term_record, 50, false, false);
    assert_int_equal(renew_at(&second, 2, 70, false), SLUICE_OK);
    must_be(look(s), 70, false, false);
    assert_int_equal(renew_at(&second, 2, 80, true), SLUICE_OK);
    must_be(look(s), 80, true, false);
    assert_int_equal(claim_at(s, 2, 90, &got), SLUICE_OK);
    must_be(got.term_record, 80, true, false);
    /* The new term begins without marks. */
    must_be(look(s), 90, false, false);
    assert_int_equal(look(s).fence_limit, 100);
    assert_int_equal(claim_at(&second, 2, 95, &got), SLUICE_ESTALE);
    must_be(got.term_record, 90, false, false);
    assert_int_equal(renew_at(s, 3, 100, false), SLUICE_OK);
    must_be(look(&second), 100, false, false);
}

/* Where the answer is lost, the record of the previous term is found all the same. */
static void a_claim_whose_answer_is_lost_reports_the_previous_term(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    uint64_t term = 0;
    for (int w = 0; w < 3; w++)
        for (int renewed = 0; renewed < 3; renewed++) {
            sl_ms before = 1000 * w + 100 * renewed + 10;
            assert_int_equal(claim_at(&second, term, before, NULL), SLUICE_OK);
            term++;
            if (renewed > 0)
                assert_int_equal(renew_at(&second, term, ++before, true), SLUICE_OK);
            if (renewed > 1)
                assert_int_equal(resign(&second, term, ++before), SLUICE_OK);
            look(s);
            relay_lose(ways[w], "request_delete_range", 1);
            assert_int_equal(claim_at(s, term, 7, &got), SLUICE_OK);
            assert_int_equal(relay_lost(), 1);
            assert_int_equal(got.term, ++term);
            assert_int_equal(got.term_record.node, 2);
            must_be(got.term_record, before, renewed > 0, renewed > 1);
            relay_release();
            must_be(look(s), 7, false, false);
            assert_int_equal(renew_at(s, term, 8, false), SLUICE_OK);
        }
}

static void a_resigned_term_is_not_renewed(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    uint64_t term = claim(s);
    assert_int_equal(resign(&second, term - 1, 1), SLUICE_ESTALE);
    assert_int_equal(renew_at(s, term, 10, true), SLUICE_OK);
    assert_int_equal(resign(s, term, 20), SLUICE_OK);
    must_be(look(&second), 20, true, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(renew_at(s, term, 30, true), SLUICE_ESTALE);
        assert_int_equal(renew_at(&second, term, 30, true), SLUICE_ESTALE);
    }
    /* Again: it is resigned already. */
    assert_int_equal(resign(s, term, 40), SLUICE_OK);
    must_be(look(s), 20, true, true);
    assert_int_equal(claim_at(s, term, 50, &got), SLUICE_OK);
    must_be(got.term_record, 20, true, true);
    must_be(look(s), 50, false, false);
    assert_int_equal(resign(s, term, 60), SLUICE_ESTALE);
    assert_int_equal(renew_at(s, term, 60, true), SLUICE_ESTALE);
    assert_int_equal(renew_at(s, term + 1, 70, false), SLUICE_OK);
    must_be(look(s), 70, false, false);
    assert_int_equal(resign(s, term + 1, 80), SLUICE_OK);
    must_be(look(s), 80, true, true);
}

static void a_renewal_that_arrives_after_the_resignation_has_no_effect(void **state)
{
    struct stage *s = *state;
    for (int w = 0; w < 3; w++) {
        uint64_t term = claim(s);
        assert_int_equal(renew_at(s, term, 10, false), SLUICE_OK);
        relay_lose(ways[w], "request_put", 1);
        assert_int_equal(renew_at(s, term, 20, true), SLUICE_EIO);
        assert_int_equal(resign(s, term, 30), SLUICE_OK);
        assert_int_equal(relay_release(), ways[w] == RELAY_LATE);
        must_be(look(s), 30, true, true);
    }
}

static void a_lost_resignation_can_be_repeated(void **state)
{
    struct stage *s = *state;
    for (int w = 0; w < 3; w++) {
        uint64_t term = claim(s);
        assert_int_equal(renew_at(s, term, 10, true), SLUICE_OK);
        relay_lose(ways[w], "request_put", 1);
        assert_int_equal(resign(s, term, 20), SLUICE_EIO);
        assert_int_equal(resign(s, term, 30), SLUICE_OK);
        must_be(look(s), ways[w] == RELAY_LOSE_ANSWER ? 20 : 30, true, true);
        assert_int_equal(relay_release(), ways[w] == RELAY_LATE);
        must_be(look(s), ways[w] == RELAY_LOSE_ANSWER ? 20 : 30, true, true);
        assert_int_equal(renew_at(s, term, 40, true), SLUICE_ESTALE);
    }
}

static void put_key(const struct stage *s, const char *key, const char *value)
{
    char whole[100], base64[150], of_value[150], json[400];
    snprintf(whole, sizeof whole, "%s%s", s->prefix, key);
    sl_etcd_base64_write(base64, text(whole));
    sl_etcd_base64_write(of_value, text(value));
    snprintf(json, sizeof json, "{\"key\":\"%s\",\"value\":\"%s\"}", base64, of_value);
    free(etcd_ask(&members, 0, "/v3/kv/put", json, NULL));
}

/* Versions before the journal wrote neither the clock nor the marks. */
static void the_record_of_an_older_version_has_no_clock_and_no_marks(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    put_key(s, "format", "1");
    put_key(s, "keeper", "5 3 0123456789abcdef.1");
    put_key(s, "keeper/beat", "9 1000 5000");
    struct sl_storage_term seen = look(s);
    assert_int_equal(seen.term, 5);
    assert_int_equal(seen.fence_limit, 1000);
    must_be(seen, 0, false, false);
    assert_int_equal(claim_at(s, 5, 10, &got), SLUICE_OK);
    assert_int_equal(got.term_record.longest_ms, 5000);
    must_be(got.term_record, 0, false, false);
    must_be(look(s), 10, false, false);
    assert_int_equal(renew_at(s, 6, 20, true), SLUICE_OK);
    assert_int_equal(resign(s, 6, 30), SLUICE_OK);
    /* An older version claims the next term, and does not renew it yet. */
    put_key(s, "keeper", "7 3 0123456789abcdef.2");
    must_be(look(s), 0, false, false);
    assert_int_equal(look(s).fence_limit, 100);
    put_key(s, "keeper/beat", "2 2000 5000");
    must_be(look(s), 0, false, false);
    assert_int_equal(claim_at(s, 7, 40, &got), SLUICE_OK);
    must_be(got.term_record, 0, false, false);
}

static void another_format_is_rejected_with_a_message(void **state)
{
    struct stage *s = *state;
    char whole[100], base64[150], json[300];
    snprintf(whole, sizeof whole, "%sformat", s->prefix);
    sl_etcd_base64_write(base64, text(whole));
    snprintf(json, sizeof json, "{\"key\":\"%s\",\"value\":\"Mg==\"}", base64);
    free(etcd_ask(&members, 0, "/v3/kv/put", json, NULL));
    assert_int_equal(claim_as(s, 0, 0, 1, NULL), SLUICE_EIO);
    assert_non_null(strstr(sl_storage_trouble(s->storage), "format 2"));
    assert_int_equal(
        do_op(&second, &(struct sl_storage_op){.type = SL_STORAGE_READ_TERM}, NULL),
        SLUICE_EIO);
    assert_non_null(strstr(sl_storage_trouble(second.storage), "format 2"));
    snprintf(json, sizeof json, "{\"key\":\"%s\"}", base64);
    free(etcd_ask(&members, 0, "/v3/kv/deleterange", json, NULL));
    assert_int_equal(claim_as(s, 0, 0, 1, NULL), SLUICE_OK);
    assert_string_equal(sl_storage_trouble(s->storage), "");
}

/* --- Watching ------------------------------------------------------------------------ */

static struct sl_storage_term told;
static int told_count;

static void on_told(void *owner, const struct sl_storage_term *term)
{
    (void)owner;
    told = *term;
    told_count++;
}

static void await_told(struct stage *s, uint64_t term, sl_fence limit)
{
    sl_ms until = now_ms() + 20000;
    while (told_count == 0 || told.term != term || told.fence_limit != limit) {
        assert_true(now_ms() < until);
        run_for(s, 10);
    }
}

static void a_watcher_is_notified(void **state)
{
    struct stage *s = *state;
    told_count = 0;
    sl_storage_watch(s->storage, on_told, NULL);
    await_told(s, 0, 0);
    uint64_t term = claim(&second);
    await_told(s, term, 0);
    assert_int_equal(told.node, 1);
    for (sl_fence i = 1; i < 20; i++) {
        uint64_t beat = told.heartbeat;
        assert_int_equal(renew(&second, term, i, 7, NULL), SLUICE_OK);
        await_told(s, term, i);
        assert_int_equal(told.longest_ms, 7);
        assert_true(told.heartbeat > beat);
    }
    assert_int_equal(renew_at(&second, term, 40, true), SLUICE_OK);
    await_told(s, term, 100);
    must_be(told, 40, true, false);
    assert_int_equal(resign(&second, term, 50), SLUICE_OK);
    while (!told.resigned) run_for(s, 10);
    assert_int_equal(claim_at(&second, term, 60, NULL), SLUICE_OK);
    term++;
    await_told(s, term, 100);
    must_be(told, 60, false, false);
    /* Data is none of its business. */
    int before = told_count;
    put(&second, term, 1, NULL, "t", "k", "v", NULL);
    run_for(s, 30);
    assert_int_equal(told_count, before);
}

static void compact(struct stage *s)
{
    struct sl_storage_stats stats;
    char json[100];
    look(s);
    sl_storage_stats(s->storage, &stats);
    snprintf(json, sizeof json, "{\"revision\":\"%llu\",\"physical\":true}",
             (unsigned long long)stats.revision);
    free(etcd_ask(&members, 0, "/v3/kv/compaction", json, NULL));
}

static void a_watch_continues_after_etcd_was_down_and_compacted(void **state)
{
    struct stage *s = *state;
    told_count = 0;
    sl_storage_watch(s->storage, on_told, NULL);
    uint64_t term = claim(&second);
    await_told(s, term, 0);
    relay_lose(RELAY_LOSE_REQUEST, "", -1);
    etcd_kill(&members, 0);
    run_for(s, 50);
    etcd_start(&members, 0);
    etcd_await(&members);
    assert_int_equal(renew(&second, term, 50, 1, NULL), SLUICE_OK);
    assert_int_equal(renew(&second, term, 60, 1, NULL), SLUICE_OK);
    compact(&second);
    relay_lose(RELAY_PASS, "", 0);
    await_told(s, term, 60);
    assert_int_equal(renew(&second, term, 70, 1, NULL), SLUICE_OK);
    await_told(s, term, 70);
}

/* --- What etcd forgets ----------------------------------------------------------------- */

static void compaction_loses_no_request(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result once, got;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, "r", "t", "k", "v", &once), SLUICE_OK);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "w", NULL), SLUICE_OK);
    compact(s);
    assert_int_equal(outcome(s, "r"), once.revision);
    assert_int_equal(put(s, claim(s), 1, "r", "t", "k", "again", &got), SLUICE_OK);
    assert_int_equal(got.revision, once.revision);
    assert_string_equal(value_of(s, "t", "k"), "w");
}

static void a_lease_that_is_gone_is_replaced(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, "r", "t", "k", "v", NULL), SLUICE_OK);
    revoke_all_leases();
    assert_int_equal(outcome(s, "r"), 0); /* As it would be after dedup_keep_ms. */
    for (int i = 0; i < 3; i++) add(&crowd, term, 1, NULL, 1, "v");
    submit_crowd(s, &crowd);
    await_all_ok(s, &crowd);
    assert_int_equal(put(s, term, 1, "r", "t", "k", "w", NULL), SLUICE_OK);
    assert_int_not_equal(outcome(s, "r"), 0);
}

static void requests_are_forgotten_by_etcd_itself(void **state)
{
    struct stage *s = *state;
    s->settings.dedup_keep_ms = 1;
    stage_reopen(s);
    assert_int_equal(put(s, claim(s), 1, "r", "t", "k", "v", NULL), SLUICE_OK);
    assert_int_equal(count_of(s, "r/"), 1);
    sl_ms until = now_ms() + 30000;
    while (outcome(s, "r") != 0) {
        assert_true(now_ms() < until);
        run_for(s, 100);
    }
    assert_int_equal(count_of(s, "g/"), 0);
    assert_string_equal(value_of(s, "t", "k"), "v");
}

static void a_claim_drops_the_bars_of_old_terms(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    for (uint64_t i = 0; i < 5; i++) assert_int_equal(bar(s, term, i), SLUICE_OK);
    assert_int_equal(count_of(s, "b/"), 5);
    term = claim(&second);
    assert_int_equal(count_of(s, "b/"), 0);
    assert_int_equal(bar(&second, term, 1), SLUICE_OK);
    assert_int_equal(bar(s, term - 1, 2), SLUICE_ESTALE);
    assert_int_equal(count_of(s, "b/"), 1);
}

/* --- Many rows --------------------------------------------------------------------------- */

static void a_scan_comes_in_pages(void **state)
{
    enum { ROWS = 1000 };
    struct stage *s = *state;
    uint64_t term = claim(s);
    for (int i = 0; i < ROWS / 100; i++) {
        crowd.n = i;
        add(&crowd, term, 1, NULL, 100, "0123456789");
        submit(s, &crowd.asked[i]);
        await(s, &crowd.asked[i]);
        forget(&crowd.asked[i]);
    }
    crowd.n = 0;
    struct asked a = {
        .op = {.type = SL_STORAGE_SCAN, .table = text("t"), .rows_max = ROWS}};
    submit(s, &a);
    await(s, &a);
    assert_int_equal(a.got.status, SLUICE_OK);
    assert_int_equal(a.got.row_count, ROWS);
    for (int i = 1; i < ROWS; i++)
        assert_true(strcmp(a.got.rows[i - 1].key.at, a.got.rows[i].key.at) < 0);
    forget(&a);
    struct sl_storage_op op = a.op;
    op.rows_max = ROWS - 1;
    assert_int_equal(do_op(s, &op, NULL), SLUICE_ETOOBIG);
    op.rows_max = ROWS;
    op.bytes_max = ROWS * 10;
    assert_int_equal(do_op(s, &op, NULL), SLUICE_ETOOBIG);
    op.bytes_max = ROWS * 15;
    assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
}

/* --- The end --------------------------------------------------------------------------------- */

static void in_a_hurry_what_is_not_known_is_reported_to_be_so(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    add(&crowd, term, 1, "r", 1, "v");
    add(&crowd, term, 1, NULL, 1, "v");
    relay_lose(RELAY_LOSE_ANSWER, "request_put", 1);
    submit_crowd(s, &crowd);
    run_until_lost(s, 1);
    relay_lose(RELAY_LOSE_REQUEST, "", -1);
    run_for(s, 100);
    assert_false(crowd.asked[0].done);
    sl_ms before = now_ms();
    sl_storage_hurry(s->storage);
    await_crowd(s, &crowd);
    assert_in_range(now_ms() - before, 1000, 10000);
    assert_int_equal(crowd.asked[0].got.status, SLUICE_ECLOSED);
    assert_int_equal(crowd.asked[1].got.status, SLUICE_ECLOSED);
    assert_int_not_equal(outcome(&second, "r"), 0);
    crowd.n = 0;
}

static void an_end_while_the_term_is_read_reports_no_term(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    told_count = 0;
    sl_storage_watch(s->storage, on_told, NULL);
    relay_lose(RELAY_LOSE_ANSWER, "request_put",
               1); /* So that the commit takes longer. */
    add(&crowd, term, 1, "r", 1, "v");
    submit_crowd(s, &crowd);
    stage_work(s); /* Sends the commit, and the read of the term. */
    stage_close(s);
    assert_int_equal(crowd.asked[0].got.status, SLUICE_OK);
    assert_int_equal(told_count, 0);
    forget(&crowd.asked[0]);
    crowd.n = 0;
    stage_open(s);
}

static void an_end_does_not_wait_for_a_silent_etcd(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    s->etcd.answer_ms = 60000;
    stage_reopen(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    struct asked read = {
        .op = {.type = SL_STORAGE_READ, .table = text("t"), .key = text("k")}};
    struct asked renewal = {.op = {.type = SL_STORAGE_RENEW, .term = term}};
    struct asked resignation = {.op = {.type = SL_STORAGE_RESIGN, .term = term}};
    struct asked journal = {.op = {.type = SL_STORAGE_JOURNAL, .rows_max = 9}};
    struct asked scan = {
        .op = {.type = SL_STORAGE_SCAN, .table = text("t"), .rows_max = 9}};
    struct asked next = {.op = {.type = SL_STORAGE_CLAIM, .term = term}};
    relay_lose(RELAY_SILENT, "", -1);
    add(&crowd, term, 1, "r", 1, "v");
    submit_crowd(s, &crowd);
    submit(s, &read);
    submit(s, &scan);
    submit(s, &renewal);
    submit(s, &resignation);
    submit(s, &journal);
    submit(s, &next);
    run_for(s, 20);
    sl_ms before = now_ms();
    stage_close(s);
    assert_in_range(now_ms() - before, 1000, 15000);
    assert_int_equal(crowd.asked[0].got.status, SLUICE_ECLOSED);
    assert_int_equal(read.got.status, SLUICE_EIO);
    assert_int_equal(scan.got.status, SLUICE_EIO);
    assert_int_equal(renewal.got.status, SLUICE_EIO);
    assert_int_equal(resignation.got.status, SLUICE_EIO);
    assert_int_equal(journal.got.status, SLUICE_EIO);
    assert_true(next.got.status == SLUICE_EIO || next.got.status == SLUICE_ECLOSED);
    forget(&crowd.asked[0]);
    forget(&read);
    forget(&scan);
    forget(&renewal);
    forget(&resignation);
    forget(&journal);
    forget(&next);
    crowd.n = 0;
    relay_lose(RELAY_PASS, "", 0);
    stage_open(s);
}

/* --- Members that are gone ------------------------------------------------------------------- */

static int begin_three(void **state)
{
    stage_begin(&stage, &etcd_three_kind);
    sl_storage_close(stage.storage);
    stage.etcd.answer_ms = ANSWER_MS_THREE;
    stage_open(&stage);
    *state = &stage;
    return 0;
}

static int end_three(void **state)
{
    (void)state;
    stage_end(&stage);
    return 0;
}

static void commits_go_on_without_one_member(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    char key[32];
    for (int round = 0; round < 4; round++) {
        int member = round < 2 ? etcd_leader(&members)
                               : (etcd_leader(&members) + 1) % 3;
        for (int i = 0; i < 3; i++) {
            snprintf(key, sizeof key, "k%d%d", round, i);
            if (i == 1 && round % 2 == 0) etcd_kill(&members, member);
            if (i == 1 && round % 2 == 1) etcd_pause(&members, member);
            int status = put(s, term, 1, key, "t", key, "v", NULL);
            /* While they choose a leader nobody may answer; then it was not done. */
            while (status == SLUICE_EIO)
                status = put(s, term, 1, key, "t", key, "v", NULL);
            assert_int_equal(status, SLUICE_OK);
        }
        if (round % 2 == 0) etcd_start(&members, member);
        else etcd_resume(&members, member);
        etcd_await(&members);
        for (int i = 0; i < 3; i++) {
            snprintf(key, sizeof key, "k%d%d", round, i);
            assert_int_equal(writes_of(s, key), 1);
        }
    }
}

static void requests_fail_while_all_of_etcd_is_down_and_succeed_afterwards(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, "r", "t", "k", "v", NULL), SLUICE_OK);
    for (int i = 0; i < 3; i++) etcd_kill(&members, i);
    struct sl_storage_op read = {
        .type = SL_STORAGE_READ, .table = text("t"), .key = text("k")};
    struct sl_storage_op op = {.type = SL_STORAGE_READ_TERM};
    assert_int_equal(do_op(s, &read, NULL), SLUICE_EIO);
    assert_non_null(strstr(sl_storage_trouble(s->storage), "etcd"));
    assert_int_equal(do_op(s, &op, NULL), SLUICE_EIO);
    assert_int_equal(renew(s, term, 1, 1, NULL), SLUICE_EIO);
    assert_int_equal(claim_as(s, term, 0, 1, NULL), SLUICE_EIO);
    for (int i = 0; i < CROWD; i++)
        add(&crowd, term, 1, i == 0 ? "lost" : NULL, 100, "v");
    submit_crowd(s, &crowd);
    await_crowd(s, &crowd);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(crowd.asked[i].got.status, SLUICE_EIO);
    crowd.n = 0;
    for (int i = 0; i < 3; i++) etcd_start(&members, i);
    etcd_await(&members);
    assert_int_equal(outcome(s, "lost"), 0);
    assert_int_equal(put(s, term, 1, "s", "t", "k", "w", NULL), SLUICE_OK);
    assert_string_equal(value_of(s, "t", "k"), "w");
    assert_string_equal(sl_storage_trouble(s->storage), "");
}

/* All stop in the middle: what is not known is known when they are back. */
static void what_was_on_its_way_is_settled_when_they_are_back(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
    for (int i = 0; i < 3; i++) etcd_pause(&members, i);
    for (int i = 0; i < 4; i++) add(&crowd, term, 1, i % 2 ? "odd" : NULL, 1, "v");
    submit_crowd(s, &crowd);
    run_for(s, 2 * ANSWER_MS_THREE);
    assert_false(crowd.asked[0].done);
    for (int i = 0; i < 3; i++) etcd_resume(&members, i);
    await_crowd(s, &crowd);
    for (int i = 0; i < crowd.n; i++) {
        int status = crowd.asked[i].got.status; /* The last may not have been sent. */
        assert_true(status == SLUICE_OK || (i == 3 && status == SLUICE_EIO));
        if (i < 3) assert_int_equal(writes_of(s, crowd.names[i][0]), 1);
    }
    crowd.n = 0;
}

/* --- What etcd refuses ----------------------------------------------------------------------- */

static void a_full_etcd_is_distinguished_from_other_errors(void **state)
{
    struct stage s;
    (void)state;
    setenv("ETCD_QUOTA_BACKEND_BYTES", "2000000", 1);
    assert_true(etcd_begin(&members, 1));
    unsetenv("ETCD_QUOTA_BACKEND_BYTES");
    stage_begin(&s, &etcd_kind);
    s.settings.group_max = 1;
    stage_reopen(&s);
    enum { TOGETHER = 12 };
    char *value = malloc(200001), request[TOGETHER][32];
    bool full = false;
    memset(value, 'v', 200000);
    value[200000] = '\0';
    uint64_t term = claim(&s);
    /* Many at a time: when the first of them makes it full, others are on their way, and
     * etcd does these and calls them refused. */
    for (int round = 0; !full; round++) {
        for (int i = 0; i < TOGETHER; i++) {
            snprintf(request[i], sizeof request[i], "r%d.%d", round, i);
            add(&crowd, term, 1, request[i], 1, value);
        }
        submit_crowd(&s, &crowd);
        await_crowd(&s, &crowd);
        for (int i = 0; i < TOGETHER; i++) {
            int status = crowd.asked[i].got.status;
            assert_true(status == SLUICE_OK || status == SLUICE_ENOSPC);
            assert_int_equal(outcome(&s, request[i]) != 0, status == SLUICE_OK);
            if (status == SLUICE_ENOSPC) full = true;
        }
        crowd.n = 0;
    }
    assert_non_null(strstr(sl_storage_trouble(s.storage), "space"));
    assert_string_equal(value_of(&s, "t", "0.0"), value);
    stage_reopen(&s); /* Without a lease, too. */
    assert_int_equal(put(&s, term, 1, "r", "t", "k", "v", NULL), SLUICE_ENOSPC);
    assert_int_equal(only_read(&s, term, 1, NULL), SLUICE_OK);
    assert_int_equal(renew(&s, term, 1, 1, NULL), SLUICE_ENOSPC);
    free(value);
    stage_end(&s);
    etcd_end(&members);
}

static void ask_ok(const char *path, const char *json)
{
    int status = 0;
    free(etcd_ask(&members, 0, path, json, &status));
    assert_int_equal(status, 200);
}

static void a_wrong_password_is_reported(void **state)
{
    struct stage s;
    (void)state;
    assert_true(etcd_begin(&members, 1));
    ask_ok("/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"secret\"}");
    ask_ok("/v3/auth/role/add", "{\"name\":\"root\"}");
    ask_ok("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    ask_ok("/v3/auth/user/add", "{\"name\":\"nobody\",\"password\":\"secret\"}");
    ask_ok("/v3/auth/enable", "{}");
    stage_begin(&s, &etcd_kind);
    static const struct {
        const char *user, *password;
    } wrong[] = {{"root", "wrong"}, {"", ""}, {"nobody", "secret"}};
    for (size_t i = 0; i < 3; i++) {
        sl_storage_close(s.storage);
        s.etcd.user = wrong[i].user;
        s.etcd.password = wrong[i].password;
        stage_open(&s);
        struct sl_storage_op op = {.type = SL_STORAGE_READ_TERM};
        assert_int_equal(do_op(&s, &op, NULL), SLUICE_EIO);
        assert_string_not_equal(sl_storage_trouble(s.storage), "");
        assert_int_equal(claim_as(&s, 0, 0, 1, NULL), SLUICE_EIO);
        assert_int_equal(put(&s, 1, 1, "r", "t", "k", "v", NULL), SLUICE_EIO);
    }
    sl_storage_close(s.storage);
    s.etcd.user = "root";
    s.etcd.password = "secret";
    stage_open(&s);
    assert_int_equal(put(&s, claim(&s), 1, "r", "t", "k", "v", NULL), SLUICE_OK);
    assert_string_equal(sl_storage_trouble(s.storage), "");
    stage_end(&s);
    etcd_end(&members);
}

/* --- All of them ------------------------------------------------------------------------------ */

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define TEST_OF_THREE(name) \
    cmocka_unit_test_setup_teardown(name, begin_three, end_three)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(those_that_wait_together_are_one_transaction),
        TEST(commits_in_one_write_succeed_or_fail_independently),
        TEST(a_group_that_does_not_fit_alone_each_is_split),
        TEST(limits_of_etcd_have_their_own_errors),
        TEST(a_commit_whose_answer_is_lost_is_done_once),
        TEST(a_request_that_comes_late_is_not_done_again),
        TEST(a_group_whose_answer_is_lost_is_done_once),
        TEST(outcomes_from_before_a_term_change_are_reported),
        TEST(a_bar_whose_answer_is_lost_is_there),
        TEST(an_outcome_is_not_reported_until_it_is_known),
        TEST(random_lost_replies_never_repeat_a_commit),
        TEST(a_claim_belongs_to_one_node_and_its_data_survives),
        TEST(a_node_recognizes_its_claim_after_a_lost_reply),
        TEST(a_lost_renewal_fails_and_has_no_effect_when_it_arrives_late),
        TEST(a_claim_reports_the_clock_and_the_marks_of_the_previous_term),
        TEST(a_claim_whose_answer_is_lost_reports_the_previous_term),
        TEST(a_resigned_term_is_not_renewed),
        TEST(a_renewal_that_arrives_after_the_resignation_has_no_effect),
        TEST(a_lost_resignation_can_be_repeated),
        TEST(the_record_of_an_older_version_has_no_clock_and_no_marks),
        TEST(another_format_is_rejected_with_a_message),
        TEST(a_watcher_is_notified),
        TEST(a_watch_continues_after_etcd_was_down_and_compacted),
        TEST(compaction_loses_no_request),
        TEST(a_lease_that_is_gone_is_replaced),
        TEST(requests_are_forgotten_by_etcd_itself),
        TEST(a_claim_drops_the_bars_of_old_terms),
        TEST(a_scan_comes_in_pages),
        TEST(in_a_hurry_what_is_not_known_is_reported_to_be_so),
        TEST(an_end_while_the_term_is_read_reports_no_term),
        TEST(an_end_does_not_wait_for_a_silent_etcd),
    };
    static const struct CMUnitTest of_three[] = {
        TEST_OF_THREE(commits_go_on_without_one_member),
        TEST_OF_THREE(requests_fail_while_all_of_etcd_is_down_and_succeed_afterwards),
        TEST_OF_THREE(what_was_on_its_way_is_settled_when_they_are_back),
    };
    static const struct CMUnitTest refusals[] = {
        cmocka_unit_test(a_full_etcd_is_distinguished_from_other_errors),
        cmocka_unit_test(a_wrong_password_is_reported),
    };
    if (!kind_begin(&etcd_kind)) return 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kind_end(&etcd_kind);
    kind_begin(&etcd_three_kind);
    failed += cmocka_run_group_tests(of_three, NULL, NULL);
    kind_end(&etcd_three_kind);
    return failed + cmocka_run_group_tests(refusals, NULL, NULL);
}
