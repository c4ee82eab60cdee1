/* test_failover.c - a node of a cluster on etcd: it becomes the keeper, steps down, and hands its
 * grants over. The test plays the storage, the other nodes and the clock. */
#include <stdio.h>
#include <string.h>

#include "failing_alloc.h"
#include "test.h"

#include "failover/failover.h"
#include "journal/record.h"
#include "locks/grant_record.h"
#include "sluice.h"

/* --- Node 1 of three, with three clients ----------------------------------------------------- */

enum { SELF = 1, CLIENTS = 3 };

static const struct sl_table_limits limits = {.keys_max = 1000,
                                              .waiters_max = 10,
                                              .key_bytes_max = 100,
                                              .value_bytes_max = 100,
                                              .drains_max = 10};
static struct sl_failover node;
static struct sl_table *table;
static struct sl_session clients[CLIENTS + 1]; /* By id, from 1. */
static struct sl_route_session sessions[CLIENTS + 1];
static struct sl_guest guest; /* A client of node 2, */
static struct sl_session guest_session;
static struct sl_now now;
static struct sl_failover_order last; /* The last order LEAD. */
static uint32_t lead_linked; /* The nodes that report before the journal is read. */
static bool journal_waits;   /* The test itself answers the read of the journal. */
static char said[32768];
static const uint32_t linked = 1u << 2 | 1u << 3;

static struct sl_bytes text(const char *at)
{
    return (struct sl_bytes){at, strlen(at)};
}

static void say(const char *format, ...)
{
    size_t n = strlen(said);
    va_list args;
    va_start(args, format);
    vsnprintf(said + n, sizeof said - n, format, args);
    va_end(args);
}

static int setup(void **state)
{
    static const uint32_t ids[] = {1, 2, 3};
    (void)state;
    now = (struct sl_now){1000, 1000000};
    table = sl_table_new(&limits, (struct sl_hash_key){7, 0});
    const struct sl_failover_settings s = {.self = SELF,
                                           .keeper_wait_ms = 5000,
                                           .hash_key = {7, 0},
                                           .table = table,
                                           .volatile_ms = 10000,
                                           .entries_max = 10,
                                           .entry_bytes_max = 4000};
    assert_true(sl_failover_init(&node, &s, now.ms));
    sl_election_members(node.election, now.ms, ids, 3);
    for (uint64_t i = 1; i <= CLIENTS; i++) {
        sl_session_begin(&clients[i], i, 0);
        sessions[i] = (struct sl_route_session){0};
    }
    sl_session_begin(&guest_session, 50, 0);
    said[0] = '\0';
    journal_waits = false;
    lead_linked = 0;
    return 0;
}

static int teardown(void **state)
{
    struct sl_failover_message m;
    (void)state;
    for (uint64_t i = 1; i <= CLIENTS; i++)
        sl_route_leave(&node.route, &sessions[i], false, &m);
    sl_failover_free(&node);
    sl_table_free(table);
    return 0;
}

/* The journal is empty. */
static void read_journal(uint64_t term)
{
    const struct sl_storage_result empty = {.status = SLUICE_OK};
    uint32_t bad;
    assert_int_equal(sl_failover_journal_read(&node, now, term, &empty, &bad),
                     SLUICE_OK);
}

static uint32_t resign_ledgers; /* Of the last RESIGN. */

static void say_order(const struct sl_failover_order *o)
{
    int term = (int)o->term;
    switch (o->type) {
        case SL_FAILOVER_ORDER_READ_TERM: say("read\n"); break;
        case SL_FAILOVER_ORDER_CLAIM: say("claim after %d\n", term); break;
        case SL_FAILOVER_ORDER_RENEW:
            say("renew %d with %d %d\n", term, (int)o->fence_limit, (int)o->longest_ms);
            break;
        case SL_FAILOVER_ORDER_RECORD:
            say("record %u in %d\n", o->write_count, term);
            break;
        case SL_FAILOVER_ORDER_JOURNAL:
            if (journal_waits) say("read the journal of %d\n", term);
            else read_journal(5);
            break;
        case SL_FAILOVER_ORDER_RESIGN:
            say("resign %d at %d\n", term, (int)o->clock_ms);
            resign_ledgers = o->ledgers;
            break;
        case SL_FAILOVER_ORDER_DOUBT: break;
        case SL_FAILOVER_ORDER_LEAD:
            say("lead %d\n", term);
            last = *o;
            sl_failover_lead(&node, now.ms, o, lead_linked);
            sl_table_set_fences(table, o->before.fence_limit, SL_FENCE_MAX);
            break;
        case SL_FAILOVER_ORDER_STOP: say("stop %d\n", term); break;
        case SL_FAILOVER_ORDER_KEEPER: say("keeper %u of %d\n", o->node, term); break;
    }
    sl_failover_check(&node);
}

/* Fetch all orders. Returns those of the node, and the messages of the route. */
static const char *orders(void)
{
    static char out[sizeof said];
    struct sl_failover_order o;
    struct sl_route_order r;
    struct sl_guests_order g;
    struct sl_failover_message m;
    sl_failover_tick(&node, now.ms);
    while (sl_failover_next(&node, now.ms, &o)) say_order(&o);
    while (sl_guests_next(&node.guests, now, linked, &g)) {
        if (g.type == SL_GUESTS_ORDER_CLOSE) {
            say("close a guest\n");
            sl_guests_closed(&node.guests, g.guest, &m);
        } else if (g.type == SL_GUESTS_ORDER_SEND) say("answer node %u\n", g.to);
    }
    while (sl_route_next(&node.route, now.ms, true, &r)) {
        if (r.type != SL_ROUTE_ORDER_SEND) continue;
        if (r.message.type == SL_FAILOVER_COME) say("COME %d\n", (int)r.message.term);
        if (r.message.type == SL_FAILOVER_RECLAIM)
            say("RECLAIM %d %.*s left %d\n", (int)r.message.session,
                (int)r.message.key.n, r.message.key.at,
                r.message.grant.leased ? (int)r.message.grant.left_ms : -1);
        if (r.message.type == SL_FAILOVER_RECLAIM && r.message.session == 0)
            say("of %d\n", (int)r.message.grant.origin);
    }
    sl_failover_check(&node);
    memcpy(out, said, sizeof said);
    said[0] = '\0';
    return out;
}

static struct sl_storage_result result(int status, uint64_t term, uint32_t keeper)
{
    return (struct sl_storage_result){.status = status,
                                      .term = term,
                                      .term_record = {.term = term,
                                                      .node = keeper,
                                                      .heartbeat = 1,
                                                      .fence_limit = 1000,
                                                      .longest_ms = 5000}};
}

/* This node was the keeper of term 4 before a restart, and becomes the keeper of term 5. */
static const char *claim(void)
{
    const struct sl_storage_result before = result(SLUICE_OK, 4, SELF);
    struct sl_storage_result claimed = result(SLUICE_OK, 5, SELF);
    orders();
    sl_failover_term_read(&node, now.ms, now.ms, &before);
    assert_string_equal(orders(), "keeper 0 of 4\nclaim after 4\n");
    sl_failover_claimed(&node, now.ms, now.ms, &claimed);
    return orders();
}

static void lead(void)
{
    assert_string_equal(claim(), "lead 5\n");
}

static void lead_without_journal(void)
{
    assert_string_equal(claim(), "lead 5\nread the journal of 5\n");
}

/* Become the keeper, and end the wait for old leases. */
static void lead_and_wait(void)
{
    lead();
    sl_table_recover(table, 0);
}

/* Node 2 is the keeper of term 6. */
static void depose(void)
{
    const struct sl_storage_term next = {.term = 6, .node = 2, .heartbeat = 1};
    sl_election_term_changed(node.election, now.ms, &next);
}

static int acquire(struct sl_session *s, const char *key, sl_ms lease_ms)
{
    struct sl_grant g;
    const struct sl_want want = {
        .key = text(key), .per = 1, .buckets = 1, .units = 1, .lease_ms = lease_ms};
    now.wall_us += 1000;
    return sl_table_acquire(table, now, s, &want, &g);
}

static bool is_held(const char *key)
{
    struct sl_grant_view v;
    return sl_table_newest(table, now, text(key), &v);
}

static void begin_sessions(void)
{
    for (uint64_t i = 1; i <= CLIENTS; i++)
        assert_int_equal(sl_route_session_begin(&node.route, &sessions[i], &clients[i]),
                         0);
}

/* --- A term begins --------------------------------------------------------------------------- */

UNIT_TEST(a_new_keeper_grants_nothing_before_the_leases_of_its_predecessor_have_expired)
{
    lead();
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    sl_ms end_ms = now.ms + last.quiet_ms;
    assert_true(last.quiet_ms > 7000); /* The authority, and the longest lease. */
    now.ms = end_ms - 1;
    sl_table_set_authority(table, SL_NEVER);
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    now.ms = end_ms;
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_OK);
}

UNIT_TEST(a_keeper_grants_until_its_authority_has_ended)
{
    lead_and_wait();
    now.ms += 1900;
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_OK);
    now.ms += 100;
    assert_int_equal(acquire(&clients[2], "l", 1000), SLUICE_ENOKEEPER);
    const struct sl_storage_result ok = result(SLUICE_OK, 5, SELF);
    sl_failover_renewed(&node, now.ms, now.ms - 100, 5, &ok);
    assert_int_equal(acquire(&clients[2], "l", 1000), SLUICE_OK);
    now.ms += 1900; /* 2 s after the renewal was requested. */
    assert_int_equal(acquire(&clients[3], "m", 1000), SLUICE_ENOKEEPER);
}

UNIT_TEST(a_new_keeper_reclaims_the_grants_of_its_own_clients)
{
    sl_ms given_ms;
    struct sl_record x = {.fence = 10,
                          .session = 1,
                          .leased = true,
                          .units = 1,
                          .per = 1,
                          .buckets = 1,
                          .end_ms = now.ms + 9000,
                          .key = text("leased")};
    begin_sessions();
    sl_ledger_put(&node.route.ledger, &x, &sessions[1].held);
    x = (struct sl_record){.fence = 11,
                           .session = 2,
                           .units = 1,
                           .per = 1,
                           .buckets = 1,
                           .end_ms = SL_NEVER,
                           .key = text("unleased")};
    sl_ledger_put(&node.route.ledger, &x, &sessions[2].held);
    x.fence = 12;
    x.session = 0; /* Its client has left. */
    x.key = text("left");
    sl_ledger_put(&node.route.ledger, &x, NULL);
    x = (struct sl_record){.fence = 13,
                           .leased = true,
                           .units = 1,
                           .per = 1,
                           .buckets = 1,
                           .end_ms = now.ms,
                           .key = text("expired")};
    sl_ledger_put(&node.route.ledger, &x, NULL);
    x.fence = 14;
    x.end_ms = now.ms + 9000;
    x.origin = 77;
    x.key = text("withdrawn");
    assert_true(sl_withdrawn_add(&node.route.withdrawn, 77, x.key, 13, SL_NEVER));
    sl_ledger_put(&node.route.ledger, &x, NULL);
    x.fence = 15;
    x.origin = 0;
    x.unanswered = true; /* The last keeper may not have acknowledged it. */
    x.key = text("unanswered");
    sl_ledger_put(&node.route.ledger, &x, NULL);
    assert_false(sl_failover_reclaim_own(&node, now, &given_ms)); /* Not the keeper. */
    lead();
    sl_ms given = 0;
    while (sl_failover_reclaim_own(&node, now, &given_ms)) given += given_ms;
    assert_int_equal(given, 9000);
    assert_true(is_held("leased") && is_held("unleased"));
    assert_false(is_held("left") || is_held("expired") || is_held("withdrawn") ||
                 is_held("unanswered"));
    assert_true(sl_session_holds(&clients[2]));
    assert_int_equal(node.route.ledger.by_fence.count, 0);
}

/* --- A term ends ------------------------------------------------------------------------------ */

UNIT_TEST(a_keeper_that_is_deposed_grants_nothing)
{
    lead_and_wait();
    orders();
    depose();
    assert_string_equal(orders(), "stop 5\nkeeper 2 of 6\n");
    assert_false(node.route.leads || node.guests.leads);
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ENOKEEPER);
}

UNIT_TEST(a_deposed_keeper_hands_its_grants_over_when_all_are_copied)
{
    struct sl_ended past;
    struct sl_grant_view v;
    lead_and_wait();
    orders();
    /* Node 2 has a client with a lease and a grant without one. */
    struct sl_failover_message m = {.type = SL_FAILOVER_COME, .term = 5};
    sl_failover_receive(&node, now, 2, &m, text(""), text(""), linked);
    orders();
    assert_int_equal(sl_guests_open(&node.guests, &guest, 2, 77, &guest_session), 0);
    guest_session.origin = 77;
    assert_int_equal(acquire(&guest_session, "its lease", 9000), SLUICE_OK);
    assert_int_equal(acquire(&guest_session, "its lock", 0), SLUICE_OK);
    assert_int_equal(acquire(&clients[1], "lease", 9000), SLUICE_OK);
    assert_int_equal(acquire(&clients[1], "lock", 0), SLUICE_OK);
    assert_int_equal(acquire(&clients[2], "broken", 9000), SLUICE_OK);
    assert_true(sl_table_newest(table, now, text("broken"), &v));
    sl_table_break(table, now, text("broken"), v.fence, false, &past);
    depose();
    assert_string_equal(orders(),
                        "stop 5\nkeeper 2 of 6\nanswer node 2\nclose a guest\n");
    begin_sessions();
    uint32_t budget = 63;
    assert_false(sl_failover_export(&node, now, &budget));
    assert_string_equal(orders(), ""); /* No COME: the ledger is not complete. */
    budget = 1000;
    assert_true(sl_failover_export(&node, now, &budget));
    assert_int_equal(budget, 1000 - 64);
    assert_string_equal(orders(), "COME 6\n");
    m = (struct sl_failover_message){.type = SL_FAILOVER_HERE, .term = 6};
    sl_failover_receive(&node, now, 2, &m, text(""), text(""), linked);
    const char *sent = orders();
    assert_non_null(strstr(sent, "RECLAIM 1 lease left 9000\n"));
    assert_non_null(strstr(sent, "RECLAIM 1 lock left -1\n"));
    assert_non_null(strstr(sent, "RECLAIM 0 its lease left 9000\nof 77\n"));
    assert_null(strstr(sent, "its lock"));               /* Node 2 reports it itself. */
    assert_non_null(strstr(sent, "broken left 9000\n")); /* Etcd may not know it yet. */
    /* No withdrawal may release what the client knows. */
    assert_true(sessions[1].known_fence > 1000 && sessions[3].known_fence == 0);
    sl_guests_over(&node.guests, &guest);
}

/* --- The journal ------------------------------------------------------------------------------- */

UNIT_TEST(a_new_keeper_grants_nothing_before_it_has_read_the_journal)
{
    struct sl_storage_result lost = {.status = SLUICE_EIO};
    uint32_t bad;
    journal_waits = true;
    lead_without_journal();
    assert_true(node.guests.reports_until_ms != 0);
    now.ms += 100000;
    sl_table_set_authority(table, SL_NEVER);
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    assert_false(
        sl_guests_reports_end(&node.guests, now.ms)); /* It cannot say "not held". */
    orders();
    assert_int_equal(sl_failover_journal_read(&node, now, 5, &lost, &bad), SLUICE_OK);
    assert_null(strstr(orders(), "read the journal")); /* Not at once. */
    now.ms += 250;
    assert_non_null(strstr(orders(), "read the journal of 5\n"));
    read_journal(4); /* An answer to an earlier read. */
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    orders();
    read_journal(5);
    assert_true(sl_guests_reports_end(&node.guests, now.ms));
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_OK);
}

UNIT_TEST(a_new_keeper_grants_nothing_if_the_journal_has_an_invalid_entry)
{
    const struct sl_storage_row row = {text("g0"), text("x")};
    const struct sl_storage_result r = {
        .status = SLUICE_OK, .rows = &row, .row_count = 1};
    uint32_t bad = 7;
    journal_waits = true;
    lead_without_journal();
    assert_int_equal(sl_failover_journal_read(&node, now, 5, &r, &bad), SLUICE_EINVAL);
    assert_int_equal(bad, 0);
    now.ms += 100000;
    sl_table_set_authority(table, SL_NEVER);
    assert_null(strstr(orders(), "read the journal"));
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
}

static void receive_from_2(struct sl_failover_message m)
{
    const struct sl_bytes none = {NULL, 0};
    sl_failover_receive(&node, now, 2, &m, none, none, linked);
    orders();
}

/* Node 2 reports a lease. */
static void report(sl_fence fence, sl_ms left_ms)
{
    receive_from_2((struct sl_failover_message){.type = SL_FAILOVER_RECLAIM,
                                                .key = text("k"),
                                                .grant = {.fence = fence,
                                                          .leased = true,
                                                          .units = 1,
                                                          .per = 1,
                                                          .buckets = 1,
                                                          .left_ms = left_ms}});
}

/* The journal may know a later expiry. */
UNIT_TEST(a_lease_that_expires_by_a_report_while_the_journal_is_read_keeps_its_entry)
{
    journal_waits = true;
    lead_without_journal();
    receive_from_2((struct sl_failover_message){.type = SL_FAILOVER_COME, .term = 5});
    report(10, 100);
    now.ms += 200;
    report(11, 5000);
    assert_int_equal(sl_journal_last(node.journal.rules), 0); /* Nothing to write. */
}

UNIT_TEST(a_grant_that_was_broken_in_an_earlier_term_is_reported_as_broken)
{
    static char key[] = "g0000000000000a";
    struct sl_grant_view v = {.broken = true, .units = 1, .per = 1, .buckets = 1};
    char value[100];
    struct sl_buffer text_of_row = {0};
    struct sl_item item = {.kind = SL_ITEM_GRANT,
                           .key = text("k"),
                           .fence = 10,
                           .expiry_ms = 1, /* It has expired. */
                           .bound_ms = 1};
    uint32_t bad;
    item.value = (struct sl_bytes){value, (size_t)(sl_grant_write(value, &v) - value)};
    assert_int_equal(sl_record_put(&text_of_row, &item), SLUICE_OK);
    const struct sl_storage_row row = {text(key), {text_of_row.at, text_of_row.n}};
    const struct sl_storage_result r = {
        .status = SLUICE_OK, .rows = &row, .row_count = 1};
    journal_waits = true;
    lead_without_journal();
    receive_from_2((struct sl_failover_message){.type = SL_FAILOVER_COME, .term = 5});
    now.ms += 1000;
    assert_int_equal(sl_failover_journal_read(&node, now, 5, &r, &bad), SLUICE_OK);
    report(10, 5000);
    assert_true(sl_table_inspect_grant(table, now, text("k"), 10, &v) && v.broken);
    sl_table_recover(table, 0);
    orders();
    sl_buffer_free(&text_of_row);
}

UNIT_TEST(a_long_lease_is_recorded_in_the_term_of_the_keeper)
{
    struct sl_storage_result r = result(SLUICE_OK, 5, SELF);
    lead_and_wait();
    assert_int_equal(acquire(&clients[1], "k", 60000), SLUICE_OK);
    assert_string_equal(orders(), "record 1 in 5\n");
    assert_true(sl_failover_recorded(&node, now.ms, 5, &r));
    assert_int_equal(acquire(&clients[1], "l", 60000), SLUICE_OK);
    orders();
    r = result(SLUICE_ESTALE, 6, 2);
    assert_false(sl_failover_recorded(&node, now.ms, 5, &r));
    assert_non_null(strstr(orders(), "stop 5\n")); /* The storage has a newer term. */
    assert_null(node.journal.rules);
}

UNIT_TEST(journal_time_is_renewed_with_the_term)
{
    struct sl_storage_result before = result(SLUICE_OK, 4, SELF);
    struct sl_failover_order o;
    orders();
    before.term_record.clock_ms = 5000;
    sl_failover_term_read(&node, now.ms, now.ms, &before);
    while (sl_failover_next(&node, now.ms, &o))
        if (o.type == SL_FAILOVER_ORDER_CLAIM) assert_int_equal(o.clock_ms, 5000);
    before.term_record.term = before.term = 5;
    sl_failover_claimed(&node, now.ms, now.ms, &before);
    orders();
    now.ms += 1000;
    sl_failover_tick(&node, now.ms);
    bool renewed = false;
    while (sl_failover_next(&node, now.ms, &o))
        if (o.type == SL_FAILOVER_ORDER_RENEW) {
            assert_int_equal(o.clock_ms, 5998); /* A little slower than the clock. */
            renewed = true;
        }
    assert_true(renewed);
}

/* --- Resignation ------------------------------------------------------------------------------- */

static struct sl_storage_result ok(void)
{
    return result(SLUICE_OK, 5, SELF);
}

/* The keeper has two short leases, a long one that is recorded, and a grant without a lease. */
static sl_fence lead_with_leases(void)
{
    const struct sl_storage_result r = ok();
    struct sl_grant_view v;
    lead_and_wait();
    assert_int_equal(acquire(&clients[1], "long", 60000), SLUICE_OK);
    assert_string_equal(orders(), "record 1 in 5\n");
    assert_true(sl_failover_recorded(&node, now.ms, 5, &r));
    assert_int_equal(acquire(&clients[1], "short", 3000), SLUICE_OK);
    assert_int_equal(acquire(&clients[2], "other", 2000), SLUICE_OK);
    assert_int_equal(acquire(&guest_session, "loose", 0), SLUICE_OK);
    assert_true(sl_table_newest(table, now, text("short"), &v));
    return v.fence;
}

UNIT_TEST(a_keeper_that_resigns_records_its_short_leases_first)
{
    const struct sl_storage_result r = ok();
    lead_with_leases();
    assert_string_equal(orders(), ""); /* A short lease needs no record. */
    now.ms += 100;
    assert_true(sl_failover_resign(&node, now.ms));
    assert_string_equal(orders(), "record 2 in 5\n");
    now.ms += 100;
    assert_string_equal(orders(), ""); /* Not before they are durable. */
    assert_true(sl_failover_recorded(&node, now.ms, 5, &r));
    assert_string_equal(orders(), "resign 5 at 199\nstop 5\nkeeper 0 of 5\n");
    assert_false(node.resigning);
}

UNIT_TEST(a_keeper_that_resigns_grants_and_extends_nothing)
{
    const struct sl_storage_result r = ok();
    struct sl_table_stats stats;
    sl_ms left;
    sl_fence fence = lead_with_leases();
    assert_true(sl_failover_resign(&node, now.ms));
    assert_true(sl_failover_resign(&node, now.ms)); /* Again. */
    assert_int_equal(acquire(&clients[3], "free", 1000), SLUICE_ENOKEEPER);
    assert_int_equal(sl_table_extend(table, now, &clients[1], text("short"), fence,
                                     3000, (struct sl_bytes){NULL, 0}, &left),
                     SLUICE_ENOKEEPER);
    now.ms += 10;
    sl_failover_renewed(&node, now.ms, now.ms - 5, 5, &r); /* It changes nothing. */
    assert_int_equal(acquire(&clients[3], "free", 1000), SLUICE_ENOKEEPER);
    sl_table_stats(table, &stats);
    assert_int_equal(stats.authority_until_ms, 0);
}

UNIT_TEST(a_grant_that_ends_while_its_keeper_resigns_is_removed_from_the_journal_first)
{
    const struct sl_storage_result r = ok();
    struct sl_ended past;
    sl_fence fence = lead_with_leases();
    assert_true(sl_failover_resign(&node, now.ms));
    assert_string_equal(orders(), "record 2 in 5\n");
    assert_int_equal(
        sl_table_release(table, now, &clients[1], text("short"), fence, &past), 1);
    assert_true(sl_failover_recorded(&node, now.ms, 5, &r));
    assert_string_equal(orders(), "record 1 in 5\n");
    assert_true(sl_failover_recorded(&node, now.ms, 5, &r));
    assert_string_equal(orders(), "resign 5 at 0\nstop 5\nkeeper 0 of 5\n");
}

UNIT_TEST(many_leases_are_recorded_in_steps)
{
    const struct sl_storage_result r = ok();
    char key[16];
    int writes = 0;
    lead_and_wait();
    for (int i = 0; i < 25; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(acquire(&clients[1], key, 3000), SLUICE_OK);
    }
    assert_true(sl_failover_resign(&node, now.ms));
    for (const char *said_now = orders(); strstr(said_now, "resign") == NULL;
         said_now = orders()) {
        if (strstr(said_now, "record") == NULL) continue;
        assert_true(sl_failover_recorded(&node, now.ms, 5, &r));
        writes++;
    }
    assert_in_range(writes, 3, 5); /* At most ten entries each. */
}

UNIT_TEST(a_keeper_whose_leases_cannot_be_recorded_stops_without_the_mark)
{
    const struct sl_storage_result failed = {.status = SLUICE_EIO};
    lead_with_leases();
    assert_true(sl_failover_resign(&node, now.ms));
    assert_string_equal(orders(), "record 2 in 5\n");
    now.ms += 1999;
    assert_null(strstr(orders(), "stop"));
    sl_failover_recorded(&node, now.ms, 5, &failed);
    now.ms += 1;
    const char *last_orders = orders();
    assert_null(strstr(last_orders, "resign"));
    assert_non_null(strstr(last_orders, "stop 5\nkeeper 0 of 5\n"));
    sl_failover_tick(&node, now.ms += 200);
    assert_null(strstr(orders(), "claim")); /* Others claim first. */
}

UNIT_TEST(only_a_keeper_that_knows_all_leases_resigns)
{
    assert_false(sl_failover_resign(&node, now.ms));
    lead();
    assert_false(sl_failover_resign(&node, now.ms)); /* It still waits. */
    now.ms += last.quiet_ms;
    assert_true(sl_failover_resign(&node, now.ms));
}

/* This node becomes the keeper of term 5, after node 3 has resigned. */
static void lead_after_resignation(uint32_t ledgers)
{
    struct sl_storage_result before = result(SLUICE_OK, 4, 3);
    struct sl_storage_result claimed = result(SLUICE_OK, 5, 3);
    before.term_record.resigned = claimed.term_record.resigned = true;
    before.term_record.ledgers = claimed.term_record.ledgers = ledgers;
    orders();
    sl_failover_term_read(&node, now.ms, now.ms, &before);
    assert_non_null(strstr(orders(), "claim after 4\n"));
    sl_failover_claimed(&node, now.ms, now.ms, &claimed);
    orders();
}

/* A node whose ledger is this old begins a route, and has nothing to report. */
static void reports_after(uint32_t from, sl_ms age_ms)
{
    struct sl_failover_message m = {.type = SL_FAILOVER_COME, .term = 5};
    sl_failover_receive(&node, now, from, &m, text(""), text(""), linked);
    orders();
    m = (struct sl_failover_message){.type = SL_FAILOVER_CLOCK, .ms = 5000};
    sl_failover_receive(&node, now, from, &m, text(""), text(""), linked);
    orders();
    m = (struct sl_failover_message){.type = SL_FAILOVER_READY, .ms = age_ms};
    sl_failover_receive(&node, now, from, &m, text(""), text(""), linked);
    orders();
}

static void reports(uint32_t from)
{
    reports_after(from, 60000);
}

UNIT_TEST(the_successor_of_a_keeper_that_resigned_waits_only_for_reports)
{
    lead_after_resignation(0);
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    assert_int_not_equal(node.guests.reports_until_ms, 0);
    reports(2);
    assert_true(sl_guests_reports_end(&node.guests, now.ms)); /* Without node 3. */
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_OK);
}

UNIT_TEST(the_successor_reads_the_journal_first)
{
    journal_waits = true;
    lead_after_resignation(0);
    reports(2);
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    read_journal(5);
    orders();
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_OK);
}

UNIT_TEST(
    the_successor_waits_for_a_node_that_does_not_report_as_long_as_its_clients_may_hold_locks)
{
    lead_after_resignation(0);
    reports(3); /* The report of the previous keeper is not enough. */
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    assert_in_range(last.quiet_ms, 2001, 2010);
    now.ms += last.quiet_ms;
    sl_table_set_authority(table, SL_NEVER);
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_OK);
}

/* The node is not a member any more, but its clients may still hold locks without a lease. */
UNIT_TEST(the_successor_waits_for_a_node_that_was_removed)
{
    lead_after_resignation(1u << 2 | 1u << 4);
    reports(2);
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    reports(4);
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_OK);
}

UNIT_TEST(a_keeper_that_resigns_names_the_nodes_whose_clients_may_hold_locks)
{
    static const uint32_t ids[] = {1, 2};
    node.guests.volatile_ms = 0;
    lead_and_wait();
    reports(3);
    reports(4);
    reports(5);
    sl_election_members(node.election, now.ms, ids, 2);
    sl_failover_unlinked(&node, now.ms, 4);
    orders();
    now.ms += 1;
    sl_failover_unlinked(&node, now.ms, 5);
    orders();
    now.ms += 1999;
    assert_true(sl_failover_resign(&node, now.ms));
    assert_non_null(strstr(orders(), "resign 5"));
    assert_int_equal(resign_ledgers, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 5);
}

/* --- Limits ------------------------------------------------------------------------------------ */

UNIT_TEST(limits_are_written_with_the_next_renewal)
{
    const struct sl_storage_result ok = result(SLUICE_OK, 5, SELF);
    assert_false(sl_failover_write_limits(&node, now.ms, 2000, 60000));
    lead();
    orders();
    assert_true(sl_failover_write_limits(&node, now.ms, 2000, 60000));
    assert_string_equal(orders(), "renew 5 with 2000 60000\n");
    assert_true(sl_failover_write_limits(&node, now.ms, 3000, 70000));
    assert_true(sl_failover_renewed(&node, now.ms, now.ms, 5, &ok));
    assert_string_equal(orders(), "renew 5 with 3000 70000\n");
    assert_true(sl_failover_renewed(&node, now.ms, now.ms, 5, &ok));
    now.ms += 500;
    assert_string_equal(orders(), "renew 5 with 3000 70000\n");
    assert_false(sl_failover_renewed(&node, now.ms, now.ms, 5, &ok)); /* Nothing new. */
}

/* --- Messages --------------------------------------------------------------------------------- */

UNIT_TEST(messages_reach_the_part_that_they_are_for)
{
    struct sl_failover_message m = {.type = SL_FAILOVER_COME, .term = 5};
    lead();
    orders();
    sl_failover_receive(&node, now, 3, &m, text(""), text(""), linked);
    assert_string_equal(orders(), "answer node 3\n");
    depose();
    orders();
    uint32_t budget = 1000;
    sl_failover_export(&node, now, &budget);
    assert_string_equal(orders(), "COME 6\n");
    m = (struct sl_failover_message){.type = SL_FAILOVER_HERE, .term = 6};
    sl_failover_receive(&node, now, 3, &m, text(""), text(""), linked);
    orders();
    assert_false(node.route.open); /* Node 3 is not the keeper. */
    sl_failover_receive(&node, now, 2, &m, text(""), text(""), linked);
    orders();
    assert_true(node.route.open);
    sl_failover_unlinked(&node, now.ms, 3);
    assert_true(node.route.open);
    sl_failover_unlinked(&node, now.ms, 2);
    assert_false(node.route.open);
    orders();
    sl_failover_linked(&node, now.ms, 2);
    assert_string_equal(orders(), "COME 6\n");
}

UNIT_TEST(a_node_answers_the_last_keeper_that_knows_of_its_claim_first)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_COME, .term = 7};
    lead();
    depose(); /* Node 2 is the keeper of term 6. */
    orders();
    uint32_t budget = 1000;
    sl_failover_export(&node, now, &budget);
    orders();
    sl_failover_receive(&node, now, 2, &m, text(""), text(""), linked);
    assert_string_equal(orders(), "answer node 2\n"); /* NOT: it asks again later. */
}

/* --- The wait of a new keeper, and what ends it early --------------------------------------------- */

#define AUTHORITY_MS 2006 /* Two seconds, and 1/499. */

/* Time passes while the node runs: it is not suspended. */
static void pass(sl_ms ms)
{
    for (; ms > 100; ms -= 100) {
        now.ms += 100;
        orders();
    }
    now.ms += ms;
}

/* Node 1 has run for a minute, and becomes the keeper of term 5. The keeper of term 4 was `keeper`. Node
 * 1 saw its last heartbeat `seen_ms` ago, but etcd has the heartbeat `heartbeat`. */
static void lead_seen(uint32_t keeper, uint32_t ledgers, sl_ms seen_ms,
                      uint64_t heartbeat)
{
    struct sl_storage_result before = result(SLUICE_OK, 4, keeper);
    struct sl_storage_result claimed = result(SLUICE_OK, 5, keeper);
    const struct sl_failover_message doubt = {
        .type = SL_FAILOVER_DOUBT, .term = 4, .sight = SL_PEER_CLOSED};
    now.ms += 59000;
    orders();
    pass(1000); /* It does not count doubts right after it was suspended. */
    claimed.term_record.ledgers = ledgers;
    claimed.term_record.heartbeat = heartbeat;
    orders();
    sl_failover_term_read(&node, now.ms, now.ms, &before);
    orders();
    pass(seen_ms);
    sl_failover_sight(&node, now.ms, keeper, SL_PEER_CLOSED);
    sl_failover_receive(&node, now, 2, &doubt, text(""), text(""), linked);
    sl_failover_receive(&node, now, 3, &doubt, text(""), text(""), linked);
    assert_non_null(strstr(orders(), "claim after 4\n"));
    sl_failover_claimed(&node, now.ms, now.ms, &claimed);
    orders();
    sl_table_set_authority(table, SL_NEVER);
}

static void lead_after(uint32_t keeper, uint32_t ledgers)
{
    lead_seen(keeper, ledgers, 0, 1);
}

/* Return for how long the keeper grants nothing. */
static sl_ms quiet(void)
{
    struct sl_table_stats stats;
    sl_table_stats(table, &stats);
    return stats.recovering_until_ms > now.ms ? stats.recovering_until_ms - now.ms : 0;
}

#define ALL_NODES (1u << 1 | 1u << 2 | 1u << 3)

UNIT_TEST(
    a_new_keeper_waits_for_the_authority_of_the_last_one_if_all_other_nodes_report)
{
    lead_after(3, ALL_NODES);
    assert_true(quiet() > 7000);
    now.ms += 100;
    reports(2);
    assert_int_equal(quiet(), AUTHORITY_MS - 100);
    now.ms += AUTHORITY_MS - 101;
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_ERECOVERING);
    now.ms += 1;
    assert_int_equal(acquire(&clients[1], "k", 1000), SLUICE_OK);
}

/* The previous keeper sent its last heartbeat before this node saw it. */
UNIT_TEST(the_authority_of_the_last_keeper_counts_from_its_last_heartbeat)
{
    lead_seen(3, ALL_NODES, 900, 1);
    reports(2);
    assert_int_equal(quiet(), AUTHORITY_MS - 900);
}

UNIT_TEST(a_heartbeat_that_this_node_has_not_seen_counts_from_the_claim)
{
    lead_seen(3, ALL_NODES, 900, 2);
    reports(2);
    assert_int_equal(quiet(), AUTHORITY_MS);
}

/* Otherwise the previous keeper may let the lease expire, and grant the lock to another client. */
UNIT_TEST(a_new_keeper_extends_leases_that_are_valid_until_the_last_keeper_cannot_grant)
{
    sl_ms left_ms;
    lead_after(3, ALL_NODES);
    struct sl_grant_view v = {.fence = 10,
                              .leased = true,
                              .units = 1,
                              .per = 1,
                              .buckets = 1,
                              .left_ms = AUTHORITY_MS};
    assert_int_equal(sl_table_reclaim(table, now, NULL, &v, text("short")), SLUICE_OK);
    v.left_ms++;
    assert_int_equal(sl_table_reclaim(table, now, NULL, &v, text("long")), SLUICE_OK);
    const struct sl_bytes none = {NULL, 0};
    assert_int_equal(sl_table_extend(table, now, &clients[1], text("short"), 10, 9000,
                                     none, &left_ms),
                     SLUICE_ERECOVERING);
    assert_int_equal(sl_table_extend(table, now, &clients[1], text("long"), 10, 9000,
                                     none, &left_ms),
                     SLUICE_OK);
}

UNIT_TEST(a_new_keeper_waits_for_all_leases_if_a_ledger_is_missing)
{
    uint32_t waits_for;
    lead_after(3, ALL_NODES | 1u << 4);
    reports(2);
    reports(3); /* The previous keeper is still alive. */
    assert_true(quiet() > 7000);
    assert_true(sl_guests_quiet_ms(&node.guests, now.ms, linked, &waits_for) > 7000);
    assert_int_equal(waits_for, 4);
    now.ms += 3000;
    reports(4);
    assert_int_equal(quiet(), 0);
}

UNIT_TEST(a_new_keeper_waits_for_all_leases_if_some_may_be_in_no_ledger)
{
    lead_after(3, 0);
    reports(2);
    reports(3);
    assert_true(quiet() > 7000);
}

UNIT_TEST(a_new_keeper_waits_for_leases_that_are_older_than_a_ledger)
{
    lead_after(3, ALL_NODES);
    reports_after(2,
                  1000); /* Node 2 was started a second ago. Leases last up to 5 s. */
    assert_int_equal(quiet(), 5000 + 12 - (1000 - 2));
}

UNIT_TEST(a_new_keeper_waits_for_leases_that_are_older_than_its_own_ledger)
{
    now.ms -= 59000;
    node.route.complete_ms = 1000; /* This node was started a second ago. */
    lead_after(3, ALL_NODES);
    reports(2);
    assert_int_equal(quiet(), 5000 + 12 - (1000 - 2));
}

UNIT_TEST(a_new_keeper_waits_until_it_has_read_the_journal_and_its_own_ledger)
{
    sl_ms given_ms;
    const struct sl_record x = {.fence = 10,
                                .leased = true,
                                .units = 1,
                                .per = 1,
                                .buckets = 1,
                                .end_ms = now.ms + 70000,
                                .sure_ms = now.ms + 70000,
                                .key = text("k")};
    sl_ledger_put(&node.route.ledger, &x, NULL);
    journal_waits = true;
    lead_after(3, ALL_NODES);
    reports(2);
    now.ms += 3000;
    orders();
    read_journal(5);
    orders();
    assert_true(quiet() > 3000);
    while (sl_failover_reclaim_own(&node, now, &given_ms)) continue;
    orders();
    assert_int_equal(quiet(), 0);
}

/* Clients of the new keeper may hold locks without a lease, so its ledger matters even if all leases have
 * expired. */
UNIT_TEST(a_new_keeper_that_reads_its_own_ledger_slowly_grants_nothing)
{
    sl_ms given_ms;
    const struct sl_record x = {.fence = 10,
                                .leased = true,
                                .units = 1,
                                .per = 1,
                                .buckets = 1,
                                .end_ms = now.ms + 70000,
                                .sure_ms = now.ms + 70000,
                                .key = text("k")};
    sl_ledger_put(&node.route.ledger, &x, NULL);
    lead_after(3, 0);
    orders();
    now.ms += 60000;
    orders();
    assert_true(quiet() > 0);
    assert_true(sl_failover_reclaim_own(&node, now, &given_ms));
    assert_false(sl_failover_reclaim_own(&node, now, &given_ms));
    orders();
    assert_int_equal(quiet(), 0);
}

/* --- The witness ------------------------------------------------------------------------------- */

static struct sl_failover_order renewal;

/* Let the keeper renew its term, and return the nodes that it writes to the storage. */
static uint32_t renew(int status)
{
    const struct sl_storage_result r = result(status, 5, SELF);
    struct sl_failover_order o;
    bool renewed = false;
    now.ms += 500;
    sl_failover_tick(&node, now.ms);
    while (sl_failover_next(&node, now.ms, &o))
        if (o.type == SL_FAILOVER_ORDER_RENEW) {
            renewed = true;
            renewal = o;
        }
    assert_true(renewed);
    sl_failover_renewed(&node, now.ms, now.ms, 5, &r);
    orders();
    return renewal.ledgers;
}

static sl_fence newest(const char *key)
{
    struct sl_grant_view v;
    assert_true(sl_table_newest(table, now, text(key), &v));
    return v.fence;
}

UNIT_TEST(a_keeper_names_the_ledgers_when_its_wait_has_ended)
{
    lead_after(3, 0);
    reports(2);
    assert_int_equal(renew(SLUICE_OK), 0);
    sl_table_recover(table, 0);
    assert_int_equal(renew(SLUICE_OK), ALL_NODES);
    assert_int_equal(node.ledgers, ALL_NODES);
}

/* The previous keeper is not a member any more, but it may still have leases that nobody else has. */
UNIT_TEST(a_keeper_names_the_ledgers_of_the_last_term_until_their_leases_have_expired)
{
    static const uint32_t ids[] = {1, 2};
    lead_after(3, ALL_NODES | 1u << 4);
    reports(2);
    reports(4);
    sl_election_members(node.election, now.ms, ids, 2);
    now.ms += 3000;
    assert_int_equal(renew(SLUICE_OK), ALL_NODES | 1u << 4);
    now.ms += 5000;
    assert_int_equal(renew(SLUICE_OK),
                     1u << 1 | 1u << 2 | 1u << 4); /* Node 4 has a route. */
}

/* The storage executes the write of the journal. */
static void make_durable(void)
{
    const struct sl_storage_result ok = result(SLUICE_OK, 5, SELF);
    while (!sl_keeper_journal_is_durable(&node.journal)) {
        sl_journal_await(node.journal.rules, sl_journal_last(node.journal.rules));
        orders();
        sl_failover_recorded(&node, now.ms, 5, &ok);
    }
}

UNIT_TEST(a_lease_waits_for_the_witness)
{
    struct sl_failover_message m = {.type = SL_FAILOVER_NOTED, .fence = 1};
    lead_after(3, 0);
    sl_table_recover(table, 0);
    reports(2);
    assert_int_equal(acquire(&clients[1], "k", 5000), SLUICE_OK);
    assert_int_equal(sl_failover_note(&node, now, text("k"), newest("k")), 1);
    orders();
    assert_int_equal(sl_failover_noted(&node), 0);
    sl_failover_receive(&node, now, 2, &m, text(""), text(""), linked);
    assert_int_equal(sl_failover_noted(&node), 1);
    assert_int_equal(acquire(&clients[1], "l", 0), SLUICE_OK);
    assert_int_equal(sl_failover_note(&node, now, text("l"), newest("l")), 0);
    assert_int_equal(acquire(&clients[1], "m", 60000), SLUICE_OK);
    make_durable();
    assert_int_equal(sl_failover_note(&node, now, text("m"), newest("m")), 0);
    assert_int_equal(sl_failover_note(&node, now, text("k"), newest("k") + 1), 0);
}

/* The storage must not name ledgers while a lease is in none of them. */
UNIT_TEST(a_keeper_without_a_witness_tells_the_storage_first)
{
    lead_after(3, 0);
    sl_table_recover(table, 0);
    assert_int_equal(renew(SLUICE_OK), ALL_NODES);
    assert_int_equal(acquire(&clients[1], "k", 5000), SLUICE_OK);
    assert_int_equal(sl_failover_note(&node, now, text("k"), newest("k")), 1);
    orders();
    assert_int_equal(sl_failover_noted(&node), 0);
    /* If it is only cut off from the other nodes, they claim the next term meanwhile. */
    for (int i = 0; i < 9; i++) assert_int_equal(renew(SLUICE_OK), ALL_NODES);
    assert_int_equal(sl_failover_noted(&node), 0);
    assert_int_equal(renew(SLUICE_EIO), 0);
    assert_int_equal(sl_failover_noted(&node), 0);
    assert_int_equal(renew(SLUICE_OK), 0);
    assert_int_equal(sl_failover_noted(&node), 1);
    reports(2); /* There is a witness again, but the lease is still valid. */
    assert_int_equal(renew(SLUICE_OK), 0);
    now.ms += 9400;
    assert_int_equal(renew(SLUICE_OK), ALL_NODES);
}

/* A renewal whose answer is lost may have been executed or not. */
UNIT_TEST(only_nodes_that_the_storage_certainly_names_begin_a_route)
{
    static const uint32_t ids[] = {1, 2, 3, 4};
    lead_after(3, 0);
    sl_table_recover(table, 0);
    assert_int_equal(renew(SLUICE_OK), ALL_NODES);
    sl_election_members(node.election, now.ms, ids, 4);
    reports(4);
    assert_false(node.guests.nodes[4].open);
    assert_int_equal(renew(SLUICE_EIO), ALL_NODES | 1u << 4);
    reports(4);
    assert_false(node.guests.nodes[4].open);
    assert_int_equal(renew(SLUICE_OK), ALL_NODES | 1u << 4);
    reports(4);
    assert_true(node.guests.nodes[4].open);
}

/* --- Ledgers of nodes that were started recently ----------------------------------------------- */

static void say_fill(void *arg, uint32_t to, const struct sl_failover_message *m)
{
    (void)arg;
    if (m->type == SL_FAILOVER_NOTE)
        say("%u: note %.*s left %d\n", to, (int)m->key.n, m->key.at,
            (int)m->grant.left_ms);
    else if (m->type == SL_FAILOVER_COMPLETE) say("%u: complete\n", to);
    else if (m->type == SL_FAILOVER_CLIENT)
        say("%u: client %.*s\n", to, (int)m->name.n, m->name.at);
}

static const char *fill(uint32_t able)
{
    static char out[sizeof said];
    while (sl_failover_fill(&node, now, able, say_fill, NULL)) continue;
    memcpy(out, said, sizeof said);
    said[0] = '\0';
    return out;
}

/* A short lease becomes long, or is broken. Until the record is durable, only this node knows the lease. */
UNIT_TEST(a_ledger_is_not_completed_while_a_record_is_not_durable)
{
    struct sl_ended past;
    sl_ms left_ms;
    lead_after(3, 0);
    sl_table_recover(table, 0);
    assert_int_equal(acquire(&clients[1], "k", 5000), SLUICE_OK);
    assert_int_equal(sl_table_extend(table, now, &clients[1], text("k"), newest("k"),
                                     60000, (struct sl_bytes){NULL, 0}, &left_ms),
                     SLUICE_OK);
    reports_after(2, 100);
    assert_string_equal(fill(linked), "");
    make_durable();
    assert_string_equal(fill(linked), "2: complete\n");
    assert_int_equal(acquire(&clients[1], "l", 5000), SLUICE_OK);
    assert_int_equal(sl_table_break(table, now, text("l"), newest("l"), false, &past),
                     1);
    reports_after(3, 100);
    assert_null(strstr(fill(linked), "complete"));
    make_durable();
    assert_string_equal(fill(linked), "3: complete\n");
}

UNIT_TEST(the_leases_of_a_key_are_sent_in_parts)
{
    char value[90];
    struct sl_grant g;
    memset(value, 'v', sizeof value);
    lead_after(3, 0);
    sl_table_recover(table, 0);
    for (int i = 0; i < 500; i++) {
        const struct sl_want want = {.key = text("k"),
                                     .per = 1000,
                                     .buckets = 1,
                                     .units = 1,
                                     .lease_ms = 5000,
                                     .value = {value, sizeof value}};
        now.wall_us += 1000;
        assert_int_equal(sl_table_acquire(table, now, &clients[1], &want, &g),
                         SLUICE_OK);
    }
    reports_after(2, 100);
    int steps = 0, notes = 0;
    while (sl_failover_fill(&node, now, linked, say_fill, NULL)) {
        const char *at = said;
        while ((at = strstr(at, "note k")) != NULL) {
            notes++;
            at++;
        }
        said[0] = '\0';
        steps++;
    }
    assert_int_equal(notes, 500);
    assert_int_equal(steps, 3);
    assert_false(node.guests.nodes[2].lacks);
}

UNIT_TEST(a_node_that_was_started_recently_learns_all_short_leases)
{
    lead_after(3, 0);
    reports_after(2, 100);
    sl_table_describe(table, &clients[1], text("ann"), text("a"));
    assert_string_equal(fill(linked),
                        ""); /* The keeper does not know all leases yet. */
    sl_table_recover(table, 0);
    assert_int_equal(acquire(&clients[1], "k", 5000), SLUICE_OK);
    assert_int_equal(acquire(&clients[1], "long", 60000), SLUICE_OK);
    assert_int_equal(acquire(&clients[2], "lock", 0), SLUICE_OK);
    orders();
    assert_string_equal(fill(1u << 3), ""); /* The link is full. */
    /* The record of a long lease is not durable, and may never be. */
    assert_null(strstr(fill(linked), "complete"));
    make_durable();
    node.guests.nodes[2].filled = 0;
    assert_string_equal(fill(linked),
                        "2: client ann\n2: note k left 5000\n2: complete\n");
    assert_string_equal(fill(linked), "");
    reports_after(2, 100); /* It was started again. */
    assert_string_equal(fill(linked),
                        "2: client ann\n2: note k left 5000\n2: complete\n");
    reports_after(2, 60000); /* It lost its link. */
    assert_string_equal(fill(linked), "");
}

/* The node may have been dropped from the storage. */
UNIT_TEST(a_node_that_a_lost_renewal_does_not_name_begins_no_route)
{
    static const uint32_t ids[] = {1, 2, 3, 4};
    lead_after(3, 0);
    sl_table_recover(table, 0);
    sl_election_members(node.election, now.ms, ids, 4);
    assert_int_equal(renew(SLUICE_OK), ALL_NODES | 1u << 4);
    sl_election_members(node.election, now.ms, ids, 3);
    assert_int_equal(renew(SLUICE_EIO), ALL_NODES);
    reports(4);
    assert_false(node.guests.nodes[4].open);
}

UNIT_TEST(new_leases_do_not_delay_a_keeper_without_a_witness)
{
    char key[] = "k0";
    lead_after(3, 0);
    sl_table_recover(table, 0);
    assert_int_equal(renew(SLUICE_OK), ALL_NODES);
    for (int i = 0; i < 12; i++) {
        key[1]++;
        assert_int_equal(acquire(&clients[1], key, 9000), SLUICE_OK);
        assert_int_equal(sl_failover_note(&node, now, text(key), newest(key)), i + 1);
        if (i == 0) orders(); /* The keeper finds no witness. */
        renew(SLUICE_OK);
    }
    assert_int_not_equal(sl_failover_noted(&node), 0);
}

/* The storage may name ledgers now, although the keeper has no answer. */
UNIT_TEST(a_keeper_without_a_witness_does_not_rely_on_a_lost_renewal)
{
    lead_after(3, 0);
    sl_table_recover(table, 0);
    assert_int_equal(renew(SLUICE_EIO), ALL_NODES);
    assert_int_equal(acquire(&clients[1], "k", 5000), SLUICE_OK);
    assert_int_equal(sl_failover_note(&node, now, text("k"), newest("k")), 1);
    orders();
    sl_failover_tick(&node, now.ms);
    for (int i = 0; i < 8; i++) assert_int_equal(renew(SLUICE_EIO), ALL_NODES);
    assert_int_equal(sl_failover_noted(&node), 0);
    assert_int_equal(renew(SLUICE_OK), 0);
    assert_int_equal(sl_failover_noted(&node), 1);
}

UNIT_TEST(without_memory_for_a_note_a_lease_is_not_acknowledged)
{
    lead_after(3, 0);
    sl_table_recover(table, 0);
    assert_int_equal(acquire(&clients[1], "k", 5000), SLUICE_OK);
    sl_fence fence = newest("k");
    for (long n = 0;; n++) {
        memory_fails_after(n);
        uint64_t number = sl_failover_note(&node, now, text("k"), fence);
        memory_is_back();
        if (memory_failures() == 0) break;
        assert_true(number == SL_NOTE_FAILED);
    }
    assert_int_equal(node.guests.witness.last, 1);
}

/* --- What a deposed keeper knows ---------------------------------------------------------------- */

/* Become the keeper, grant a lease, and be deposed. Returns the fence. */
static sl_fence grant_and_stop(void)
{
    lead_and_wait();
    orders();
    assert_int_equal(acquire(&clients[1], "k", 9000), SLUICE_OK);
    sl_fence fence = newest("k");
    depose();
    orders();
    begin_sessions();
    now.ms += 100;
    return fence;
}

/* Its client may not have learned of the last extension, and may believe that the lease has expired. */
UNIT_TEST(a_lease_that_a_deposed_keeper_reports_is_not_extended)
{
    sl_fence fence = grant_and_stop();
    uint32_t budget = 1000;
    assert_true(sl_failover_export(&node, now, &budget));
    const struct sl_record *x = sl_ledger_find(&node.route.ledger, fence);
    assert_non_null(x);
    assert_int_equal(x->sure_ms, now.ms);
    assert_int_equal(x->end_ms, now.ms + 8900);
    assert_int_equal(node.route.complete_ms, 1000);
}

UNIT_TEST(a_deposed_keeper_without_memory_for_a_record_has_an_incomplete_ledger)
{
    sl_fence fence = grant_and_stop();
    uint32_t budget = 1000;
    memory_fails_after(0);
    assert_true(sl_failover_export(&node, now, &budget));
    memory_is_back();
    assert_null(sl_ledger_find(&node.route.ledger, fence));
    assert_int_equal(node.route.complete_ms, now.ms);
}

int main(void)
{
    return run_unit_tests_with("failover", setup, teardown);
}
