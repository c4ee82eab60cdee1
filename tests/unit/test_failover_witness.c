/* test_failover_witness.c - the reports of a keeper to the ledgers of other nodes: which node
 * receives which report, and when. */
#include <stdio.h>
#include <string.h>

#include "test.h"

#include "failover/witness.h"
#include "sluice.h"

static const struct sl_table_limits limits = {.keys_max = 1000,
                                              .waiters_max = 10,
                                              .key_bytes_max = 100,
                                              .value_bytes_max = 100,
                                              .drains_max = 10};
static struct sl_witness w;
static struct sl_table *table;
static struct sl_session client;
static struct sl_guest_node nodes[SL_ELECTION_NODES_MAX];
static uint32_t linked;
static struct sl_now now;
static char said[32768];

static struct sl_bytes text(const char *at)
{
    return (struct sl_bytes){at, strlen(at)};
}

/* Nodes 2 and 3 have handed over their ledgers. Their clocks showed 5000 and 70000 at 1000. */
static int setup(void **state)
{
    (void)state;
    now = (struct sl_now){1000, 1000000};
    table = sl_table_new(&limits, (struct sl_hash_key){7, 0});
    assert_non_null(table);
    sl_session_begin(&client, 1, 0);
    sl_table_describe(table, &client, text("ann"), text("10.0.0.7:1"));
    sl_witness_init(&w);
    memset(nodes, 0, sizeof nodes);
    nodes[2] = (struct sl_guest_node){
        .open = true, .ready = true, .clock_ms = 5000, .clock_at_ms = 1000};
    nodes[3] = (struct sl_guest_node){
        .open = true, .ready = true, .clock_ms = 70000, .clock_at_ms = 1000};
    linked = 1u << 2 | 1u << 3;
    said[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_witness_free(&w);
    sl_table_free(table);
    return 0;
}

static void say_one(uint32_t to, const struct sl_failover_message *m)
{
    char *at = said + strlen(said);
    size_t n = sizeof said - strlen(said);
    if (m->type == SL_FAILOVER_CLIENT)
        snprintf(at, n, "%u: client %.*s\n", to, (int)m->name.n, m->name.at);
    else if (m->type == SL_FAILOVER_NOTE)
        snprintf(at, n, "%u: note %.*s at %lld left %lld\n", to, (int)m->key.n,
                 m->key.at, (long long)m->ms, (long long)m->grant.left_ms);
    else if (m->type == SL_FAILOVER_MARK)
        snprintf(at, n, "%u: mark %d\n", to, (int)m->fence);
    else snprintf(at, n, "%u: gone %zu\n", to, m->gone_count);
}

/* Return the messages that are due now, one per line. */
static const char *sent(void)
{
    struct sl_failover_message m;
    uint32_t to;
    said[0] = '\0';
    while (sl_witness_next(&w, now, table, nodes, linked, &to, &m)) say_one(to, &m);
    return said;
}

/* The client acquires a key, and the keeper notes it. */
static sl_fence take(const char *key, sl_ms lease_ms)
{
    struct sl_grant g;
    const struct sl_want want = {
        .key = text(key), .per = 1, .buckets = 1, .units = 1, .lease_ms = lease_ms};
    now.wall_us += 1000;
    assert_int_equal(sl_table_acquire(table, now, &client, &want, &g), SLUICE_OK);
    sl_witness_note(&w, text(key), g.fence);
    return g.fence;
}

static void release(const char *key, sl_fence fence)
{
    struct sl_ended past;
    assert_int_equal(sl_table_release(table, now, &client, text(key), fence, &past), 1);
}

/* The client learns of its lease when the witness has confirmed the note. */
UNIT_TEST(a_lease_of_a_client_of_the_keeper_is_reported_to_one_other_node)
{
    take("k", 30000);
    assert_string_equal(sent(),
                        "2: client ann\n2: note k at 5000 left 30000\n2: mark 1\n");
    assert_string_equal(sent(), "");
    assert_int_equal(w.noted, 0);
    sl_witness_noted(&w, 1);
    assert_int_equal(w.noted, 1);
    assert_false(sl_witness_is_due(&w, now.ms));
}

UNIT_TEST(one_mark_confirms_several_notes)
{
    take("k", 30000);
    take("l", 30000);
    assert_string_equal(sent(), "2: client ann\n2: note k at 5000 left 30000\n"
                                "2: client ann\n2: note l at 5000 left 30000\n"
                                "2: mark 2\n");
    take("m", 30000);
    assert_string_equal(sent(),
                        "2: client ann\n2: note m at 5000 left 30000\n2: mark 3\n");
    sl_witness_noted(&w, 2);
    assert_int_equal(w.noted, 2);
    sl_witness_noted(&w, 1); /* A late answer. */
    sl_witness_noted(&w, 4); /* There is no such note. */
    assert_int_equal(w.noted, 2);
}

UNIT_TEST(a_lease_that_has_ended_needs_no_note)
{
    sl_fence fence = take("k", 30000);
    release("k", fence);
    sl_witness_gone(&w, now.ms, fence, false);
    assert_string_equal(sent(), "2: gone 1\n2: mark 1\n");
    now.ms += 10;
    assert_string_equal(sent(), "3: gone 1\n");
}

/* If the keeper failed between the note and GONE, the next keeper would hold a lock for a client that has
 * released it. */
UNIT_TEST(the_witness_learns_of_ends_with_the_next_note)
{
    nodes[2].clock_ms = 0;
    sl_witness_gone(&w, now.ms, 77, false);
    assert_string_equal(sent(), "");
    take("k", 30000);
    assert_string_equal(sent(), "3: client ann\n3: note k at 70000 left 30000\n"
                                "3: gone 1\n3: mark 1\n");
    now.ms += 5;
    sl_witness_gone(&w, now.ms, 78, false);
    now.ms += 5; /* The other nodes need not be woken for each note. */
    assert_string_equal(sent(), "2: gone 2\n3: gone 1\n");
    now.ms += 10;
    assert_string_equal(sent(), "");
}

UNIT_TEST(a_new_witness_learns_of_all_ends)
{
    sl_witness_gone(&w, now.ms, 77, false);
    take("k", 30000);
    assert_string_equal(sent(), "2: client ann\n2: note k at 5000 left 30000\n"
                                "2: gone 1\n2: mark 1\n");
    nodes[2] = (struct sl_guest_node){0};
    sl_witness_lost(&w, 2);
    assert_string_equal(sent(), "3: client ann\n3: note k at 70000 left 30000\n"
                                "3: gone 1\n3: mark 1\n");
}

UNIT_TEST(ends_are_collected_for_ten_milliseconds)
{
    sl_witness_gone(&w, now.ms, 77, false);
    now.ms += 9;
    assert_string_equal(sent(), "");
    sl_witness_gone(&w, now.ms, 78, false);
    now.ms += 1;
    assert_string_equal(sent(), "2: gone 2\n3: gone 2\n");
}

UNIT_TEST(an_end_that_the_holder_may_not_know_is_reported_at_once)
{
    sl_witness_gone(&w, now.ms, 77, true);
    assert_string_equal(sent(), "2: gone 1\n3: gone 1\n");
}

/* The record expires by the clock of the witness. If the note contained only the time left, a late
 * note would make the record outlive the lease. That clock may be slower than the keeper's by 1 in 500. */
UNIT_TEST(a_note_has_a_time_of_the_clock_of_its_witness)
{
    nodes[2].ready = false;
    take("k", 30000);
    now.ms += 600;
    assert_string_equal(sent(),
                        "3: client ann\n3: note k at 70598 left 29400\n3: mark 1\n");
}

UNIT_TEST(a_node_that_has_not_handed_over_its_ledger_is_no_witness)
{
    nodes[2].ready = nodes[3].ready = false;
    take("k", 30000);
    assert_false(sl_witness_is_missing(&w)); /* Nobody has looked for one. */
    assert_string_equal(sent(), "");
    assert_true(sl_witness_is_missing(&w));
    nodes[2].ready = true;
    nodes[2].clock_ms = 0; /* Its clock is not known. */
    nodes[3].ready = true;
    linked = 1u << 2; /* The link to node 3 has ended. */
    take("l", 30000);
    assert_string_equal(sent(), "");
    linked = 1u << 3;
    assert_string_equal(sent(), "3: client ann\n3: note k at 70000 left 30000\n"
                                "3: client ann\n3: note l at 70000 left 30000\n"
                                "3: mark 2\n");
    assert_false(sl_witness_is_missing(&w));
}

UNIT_TEST(notes_that_are_not_confirmed_are_sent_to_the_next_witness)
{
    take("k", 30000);
    take("l", 30000);
    sent();
    sl_witness_noted(&w, 1);
    sl_witness_lost(&w, 3); /* It is not the witness. */
    assert_string_equal(sent(), "");
    sl_witness_lost(&w, 2);
    nodes[2].ready = false;
    assert_string_equal(sent(),
                        "3: client ann\n3: note l at 70000 left 30000\n3: mark 2\n");
}

UNIT_TEST(many_notes_wait_for_a_witness)
{
    char key[8];
    linked = 0;
    for (int i = 1; i <= 300; i++) {
        snprintf(key, sizeof key, "k%d", i);
        take(key, 30000);
        if (i == 100) sl_witness_noted(&w, 70);
    }
    assert_int_equal(w.last, 300);
    linked = 1u << 3;
    const char *all = sent();
    assert_null(strstr(all, "note k70 "));
    assert_non_null(strstr(all, "note k71 "));
    assert_non_null(strstr(all, "note k300 "));
    assert_non_null(strstr(all, "3: mark 300\n"));
}

UNIT_TEST(full_reports_are_due_at_once)
{
    for (sl_fence i = 1; i < SL_GONE_MAX; i++) sl_witness_gone(&w, now.ms, i, false);
    assert_string_equal(sent(), "");
    sl_witness_gone(&w, now.ms, SL_GONE_MAX, false);
    assert_string_equal(sent(), "2: gone 60\n3: gone 60\n");
}

UNIT_TEST(a_deposed_keeper_reports_nothing)
{
    take("k", 30000);
    sl_witness_gone(&w, now.ms, 77, false);
    sl_witness_forget(&w);
    now.ms += 1000;
    assert_string_equal(sent(), "");
    assert_int_equal(w.node, 0);
}

int main(void)
{
    return run_unit_tests_with("failover_witness", setup, teardown);
}
