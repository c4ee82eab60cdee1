/* test_failover_route.c - a node whose clients are served by the keeper on another node: which
 * messages it sends, what its clients receive, and what it hands over to the next keeper. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing_alloc.h"
#include "test.h"

#include "failover/route.h"
#include "sluice.h"

/* --- A node with four clients, and a transcript ------------------------------------------- */

enum { CLIENTS = 4, SELF = 1 };

static struct sl_route route;
static struct sl_election *election;
static struct sl_route_session sessions[CLIENTS + 1]; /* By id, from 1. */
static struct sl_session table_sessions[CLIENTS + 1];
static struct sl_route_request requests[CLIENTS + 1];
#define NOTIFIES 3
static struct sl_route_request
    notifies[NOTIFIES]; /* Of client 1; they say 10, 11, ... */
static sl_ms now;
static bool has_space, settles;
static uint64_t withdrawn_origin; /* In the last WITHDRAW. */
static int begun;                 /* How many routes have begun. */
static char said[16384];

static struct sl_bytes text(const char *at)
{
    return (struct sl_bytes){at, strlen(at)};
}

static int setup(void **state)
{
    struct sl_election_settings set = sl_election_settings_default;
    (void)state;
    now = 1000;
    set.self = SELF;
    election = sl_election_new(&set, now);
    const struct sl_route_settings s = {
        .keeper_wait_ms = 5000, .hash_key = {7, 0}, .election = election};
    sl_route_init(&route, &s, now);
    memset(sessions, 0, sizeof sessions);
    memset(notifies, 0, sizeof notifies);
    has_space = settles = true;
    return 0;
}

static void submit(uint64_t client, struct sl_route_request q)
{
    requests[client] = q;
    sl_session_begin(&table_sessions[client], client, 0);
    requests[client].arrived_ms = q.arrived_ms != 0 ? q.arrived_ms : now;
    assert_int_equal(
        sl_route_session_begin(&route, &sessions[client], &table_sessions[client]), 0);
    sl_route_submit(&route, &sessions[client], &requests[client]);
    sl_route_check(&route);
}

/* The request of a client: its command is its verb and the id of the client. */
#define SUBMIT(client, text_, ...) \
    submit(client, (struct sl_route_request){.bytes = text(text_), __VA_ARGS__})

/* The i-th request of client 1 with NOTIFY. */
static void notify(int i, const char *bytes)
{
    notifies[i] = (struct sl_route_request){.verb = SL_ROUTE_ACQUIRE,
                                            .bytes = text(bytes),
                                            .key = text("k"),
                                            .lease_ms = 10000,
                                            .waits = true,
                                            .named = true,
                                            .notify = true,
                                            .arrived_ms = now};
    sl_session_begin(&table_sessions[1], 1, 0);
    sl_route_session_begin(&route, &sessions[1], &table_sessions[1]);
    sl_route_submit(&route, &sessions[1], &notifies[i]);
    sl_route_check(&route);
}

static void leave(uint64_t client)
{
    struct sl_failover_message m;
    struct sl_route_session *n = &sessions[client];
    if (n->known && n->request != NULL) sl_route_withdraw(&route, now, n->request);
    for (int i = 0; i < NOTIFIES && client == 1 && n->known; i++)
        if (notifies[i].session != NULL && !sl_list_empty(&notifies[i].place))
            sl_route_withdraw(&route, now, &notifies[i]);
    if (sl_route_leave(&route, n, true, &m)) {
        size_t at = strlen(said);
        snprintf(said + at, sizeof said - at, "END %d\n", (int)m.session);
    }
    sl_route_check(&route);
}

static int teardown(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= CLIENTS; i++) leave(i);
    sl_route_free(&route);
    sl_election_free(election);
    return 0;
}

static void say(const char *format, ...)
{
    size_t n = strlen(said);
    va_list args;
    va_start(args, format);
    vsnprintf(said + n, sizeof said - n, format, args);
    va_end(args);
}

static void say_message(const struct sl_failover_message *m)
{
    int n = (int)m->session;
    switch (m->type) {
        case SL_FAILOVER_COME: say("COME %d\n", (int)m->term); break;
        case SL_FAILOVER_CLOCK: say("CLOCK %d\n", (int)m->ms); break;
        case SL_FAILOVER_READY:
            say("READY\n");
            assert_int_equal(m->ms, now - route.complete_ms);
            break;
        case SL_FAILOVER_LISTEN: say("LISTEN %d\n", m->yes); break;
        case SL_FAILOVER_ORIGIN:
            assert_true(m->origin != 0 && m->origin == sessions[n].origin);
            break;
        case SL_FAILOVER_NOTED: say("NOTED %d\n", (int)m->fence); break;
        case SL_FAILOVER_WITHDRAW:
            say("WITHDRAW %.*s above %d\n", (int)m->key.n, m->key.at, (int)m->fence);
            withdrawn_origin = m->origin;
            break;
        case SL_FAILOVER_CLIENT:
            say("CLIENT %.*s\n", (int)m->name.n, m->name.at);
            break;
        case SL_FAILOVER_DO:
            if (m->bytes.n > 100)
                say("DO %d %zu%s\n", n, m->bytes.n, m->last ? "." : "");
            else
                say("DO %d waited %d: %.*s\n", n, (int)m->ms, (int)m->bytes.n,
                    m->bytes.at);
            break;
        case SL_FAILOVER_RECLAIM:
            say("RECLAIM %d %.*s %d left %d\n", n, (int)m->key.n, m->key.at,
                (int)m->grant.fence, m->grant.leased ? (int)m->grant.left_ms : -1);
            assert_int_equal(m->ms, now - route.here_ms);
            if (m->grant.origin != 0) say("of %d\n", (int)m->grant.origin);
            break;
        default: fail();
    }
}

static void carry_out(const struct sl_route_order *o)
{
    static const char *const reasons[] = {
        [SL_ROUTE_ABORTED] = "OK",          [SL_ROUTE_STALE] = "STALE",
        [SL_ROUTE_UNKNOWN] = "UNKNOWN",     [SL_ROUTE_ASK] = "ASK",
        [SL_ROUTE_ASK_LATER] = "ASK LATER", [SL_ROUTE_NO_KEEPER] = "NOKEEPER"};
    static const char *const closes[] = {[SL_ROUTE_HALF_REPLIED] = "half replied",
                                         [SL_ROUTE_CUT_OFF] = "cut off",
                                         [SL_ROUTE_CLOSED] = "closed"};
    bool notify = o->request >= notifies && o->request < notifies + NOTIFIES;
    int client = (int)(notify               ? 10 + (o->request - notifies)
                       : o->request != NULL ? o->request - requests
                       : o->session != NULL ? o->session - sessions
                                            : 0);
    switch (o->type) {
        case SL_ROUTE_ORDER_NONE: say("nothing\n"); break;
        case SL_ROUTE_ORDER_SEND: say_message(&o->message); break;
        case SL_ROUTE_ORDER_DESCRIBE: say("describe %d\n", client); break;
        case SL_ROUTE_ORDER_REPLY:
            say("%d gets %.*s\n", client, (int)o->bytes.n, o->bytes.at);
            if (o->late) sl_route_take_back(&route, now, o->request, o->fence);
            break;
        case SL_ROUTE_ORDER_QUEUED: say("%d is queued\n", client); break;
        case SL_ROUTE_ORDER_ANSWER:
            say("%d gets %s\n", client, reasons[o->answer]);
            break;
        case SL_ROUTE_ORDER_SETTLE:
            say("%d settles %.*s\n", client, (int)o->bytes.n, o->bytes.at);
            if (settles) {
                requests[client] = (struct sl_route_request){
                    .bytes = text("TX.OUTCOME"), .arrived_ms = now};
                sl_route_settle(&route, o->session, &requests[client]);
            } else sl_route_settle(&route, o->session, NULL);
            break;
        case SL_ROUTE_ORDER_RESUME: say("%d runs here\n", client); break;
        case SL_ROUTE_ORDER_PUSH:
            say("%d reads %.*s\n", client, (int)o->bytes.n, o->bytes.at);
            break;
        case SL_ROUTE_ORDER_TX_LOST: say("%d lost its transaction\n", client); break;
        case SL_ROUTE_ORDER_CLOSE:
            say("close %d: %s\n", client, closes[o->close]);
            leave((uint64_t)client);
            break;
        case SL_ROUTE_ORDER_BEGUN: begun++; break;
        case SL_ROUTE_ORDER_LOST: say("lost\n"); break;
        case SL_ROUTE_ORDER_PUBLISH: say("publish\n"); break;
    }
    sl_route_check(&route);
}

/* Carry out all orders. Returns them, one per line. */
static const char *orders(void)
{
    struct sl_route_order o;
    said[0] = '\0';
    while (sl_route_next(&route, now, has_space, &o)) carry_out(&o);
    return said;
}

static void receive(struct sl_failover_message m)
{
    sl_route_receive(&route, now, route.keeper, &m, text("ann"), text("10.0.0.7:1"));
    sl_route_check(&route);
}
#define RECEIVE(type_, ...) \
    receive((struct sl_failover_message){.type = SL_FAILOVER_##type_, __VA_ARGS__})

/* Node 2 becomes the keeper of this term, and accepts this node. */
static void open_route(uint64_t term)
{
    sl_route_keeper(&route, now, 2, term);
    orders();
    RECEIVE(HERE, .term = term);
    orders();
    RECEIVE(HERE, .term = term);
    assert_true(route.open && route.confirmed);
}

/* The keeper reports a grant with this time left, and replies to the ACQUIRE of a client. */
static void grant(uint64_t client, const char *key, sl_fence fence, sl_ms left_ms)
{
    SUBMIT(client, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text(key),
           .lease_ms = left_ms != SL_NEVER ? left_ms : 0);
    orders();
    RECEIVE(HELD, .session = client, .yes = true, .key = text(key),
            .grant = {.fence = fence,
                      .leased = left_ms != SL_NEVER,
                      .left_ms = left_ms,
                      .units = 1,
                      .per = 1,
                      .buckets = 1});
    RECEIVE(SAY, .session = client, .what = SL_SAY_LAST, .bytes = text("*5"));
    orders();
}

/* A client begins a transaction; n 0: without a REQUEST id. */
static void begin(uint64_t client, const char *id)
{
    SUBMIT(client, "TX.BEGIN", .verb = SL_ROUTE_TX_BEGIN, .id = text(id));
    orders();
    RECEIVE(SAY, .session = client, .what = SL_SAY_LAST, .tx = 70 + client,
            .bytes = text("+OK"));
    orders();
}

/* --- Beginning a route ------------------------------------------------------------------------ */

UNIT_TEST(requests_wait_until_the_keeper_accepts_the_node)
{
    SUBMIT(1, "one");
    assert_string_equal(orders(), "");
    sl_route_keeper(&route, now, 2, 7);
    assert_string_equal(orders(), "COME 7\n");
    RECEIVE(HERE, .term = 6); /* An old answer. */
    assert_string_equal(orders(), "");
    now += 100;
    RECEIVE(HERE, .term = 7);
    assert_string_equal(orders(),
                        "CLOCK 1100\nREADY\ndescribe 1\nDO 1 waited 100: one\n");
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("+OK"));
    assert_string_equal(orders(), "1 gets +OK\n");
}

UNIT_TEST(a_node_that_is_not_the_keeper_is_asked_again)
{
    sl_route_keeper(&route, now, 2, 7);
    orders();
    RECEIVE(NOT, .term = 7);
    assert_string_equal(orders(), "");
    assert_int_equal(sl_route_due(&route), now + 20);
    now += 20;
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "COME 7\n");
}

UNIT_TEST(a_link_that_is_full_delays_messages)
{
    open_route(7);
    has_space = false;
    SUBMIT(1, "one");
    assert_string_equal(orders(), "");
    has_space = true;
    assert_string_equal(orders(), "describe 1\nDO 1 waited 0: one\n");
}

UNIT_TEST(a_long_command_is_sent_in_pieces)
{
    static char long_one[SL_ROUTE_PIECE + 200];
    open_route(7);
    submit(1, (struct sl_route_request){.bytes = {long_one, sizeof long_one}});
    assert_string_equal(orders(), "describe 1\nDO 1 32768\nDO 1 200.\n");
}

UNIT_TEST(requests_are_sent_in_order_of_arrival)
{
    SUBMIT(1, "late", .arrived_ms = 900);
    SUBMIT(2, "early", .arrived_ms = 800);
    sl_route_keeper(&route, now, 2, 7);
    orders();
    RECEIVE(HERE, .term = 7);
    assert_string_equal(orders(), "CLOCK 1000\nREADY\ndescribe 2\nDO 2 waited 200: "
                                  "early\ndescribe 1\nDO 1 waited 100: late\n");
}

UNIT_TEST(every_keeper_learns_the_clients_once)
{
    open_route(7);
    SUBMIT(1, "one");
    assert_string_equal(orders(), "describe 1\nDO 1 waited 0: one\n");
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("+OK"));
    orders();
    SUBMIT(1, "two");
    assert_string_equal(orders(), "DO 1 waited 0: two\n");
    open_route(8);
    assert_non_null(strstr(said, "describe 1\nDO 1 waited 0: two\n"));
}

/* --- The ledger ------------------------------------------------------------------------------- */

/* A lease is certainly valid until it expires at the keeper: the time counts from the request, and is
 * shorter by 1/500. It has certainly expired when that time has passed since the reply, and 1/499. */
UNIT_TEST(a_record_has_the_first_and_the_last_time_at_which_the_lease_may_expire)
{
    open_route(7);
    SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE);
    orders();
    now += 400; /* The reply is late. */
    RECEIVE(HELD, .session = 1, .yes = true, .ms = 50, .key = text("k"),
            .grant = {.fence = 5, .leased = true, .left_ms = 10000});
    const struct sl_record *x = sl_ledger_find(&route.ledger, 5);
    assert_int_equal(x->sure_ms, 1000 + 10050 - 10050 / 500 - 1);
    assert_int_equal(x->end_ms, 1400 + 10000 + 10000 / 499 + 5);
    RECEIVE(NOTE, .ms = 1300, .key = text("l"),
            .grant = {.fence = 6, .leased = true, .left_ms = 10000});
    assert_int_equal(sl_ledger_find(&route.ledger, 6)->sure_ms, 1300 + 10000 - 21);
    assert_int_equal(sl_ledger_find(&route.ledger, 6)->end_ms, 1400 + 10000 + 25);
}

UNIT_TEST(a_mark_is_answered_when_the_notes_before_it_are_recorded)
{
    open_route(7);
    RECEIVE(NOTE, .ms = 1000, .key = text("l"),
            .grant = {.fence = 6, .leased = true, .left_ms = 10000});
    RECEIVE(MARK, .fence = 4);
    assert_string_equal(orders(), "NOTED 4\n");
    assert_non_null(sl_ledger_find(&route.ledger, 6));
    RECEIVE(MARK, .fence = 5);
    sl_route_keeper(&route, now, 3, 8); /* Node 2 is no longer the keeper. */
    assert_null(strstr(orders(), "NOTED"));
}

/* A note about a lease that may have expired says so. */
UNIT_TEST(a_note_may_be_unsure_when_the_lease_expires)
{
    open_route(7);
    RECEIVE(NOTE, .ms = 1000, .key = text("l"),
            .grant = {.fence = 6, .leased = true, .left_ms = 10000, .unsure_ms = 4000});
    const struct sl_record *x = sl_ledger_find(&route.ledger, 6);
    assert_int_equal(x->sure_ms, 1000 + 6000 - 13);
    assert_int_equal(x->end_ms, 1000 + 10025);
}

UNIT_TEST(a_ledger_is_young_until_the_keeper_has_completed_it)
{
    open_route(7);
    assert_int_equal(route.complete_ms, 1000);
    RECEIVE(COMPLETE, .ms = 0);
    assert_true(now - route.complete_ms > 366ll * 24 * 3600 * 1000);
}

UNIT_TEST(a_ledger_that_has_lost_a_record_stays_young)
{
    open_route(7);
    now += 500;
    memory_fails_after(0);
    RECEIVE(NOTE, .ms = 1000, .key = text("l"),
            .grant = {.fence = 6, .leased = true, .left_ms = 10000});
    memory_is_back();
    RECEIVE(COMPLETE, .ms = 0);
    assert_int_equal(route.complete_ms, now);
    open_route(8); /* The next keeper sends all leases again. */
    RECEIVE(COMPLETE, .ms = 0);
    assert_true(now - route.complete_ms > 366ll * 24 * 3600 * 1000);
}

UNIT_TEST(a_route_that_the_keeper_has_not_confirmed_does_not_delay_the_cut_off)
{
    open_route(7);
    grant(1, "k", 5, SL_NEVER);
    sl_route_link(&route,
                  now); /* The link is replaced; the keeper counts from now on. */
    orders();
    RECEIVE(HERE, .term = 7);
    orders();
    assert_true(route.open && !route.confirmed);
    now += 900;
    sl_route_link(&route, now); /* The report was lost. */
    orders();
    now += 300;
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "close 1: cut off\n");
}

/* The keeper has ended a grant, of which only this node knows the last extension. */
UNIT_TEST(a_record_is_handed_over_although_the_keeper_has_ended_the_grant)
{
    open_route(7);
    grant(1, "k", 5, 5000);
    sl_route_link(&route, now);
    orders();
    RECEIVE(HERE, .term = 7);
    const sl_fence gone[] = {5};
    RECEIVE(GONE, .gone = gone, .gone_count = 1);
    assert_non_null(strstr(orders(), "RECLAIM"));
    RECEIVE(GONE, .gone = gone, .gone_count = 1);
    assert_null(sl_ledger_find(&route.ledger, 5));
}

UNIT_TEST(a_client_without_a_lease_is_safe_when_the_keeper_has_confirmed_the_report)
{
    open_route(7);
    grant(1, "k", 5, SL_NEVER);
    sl_route_keeper(&route, now, 3, 8);
    orders();
    RECEIVE(HERE, .term = 8);
    orders();
    assert_true(route.open);
    now += 1200; /* The report may still be on its way. */
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "close 1: cut off\nEND 1\n");
    grant(2, "l", 6, SL_NEVER);
    RECEIVE(HERE, .term = 8);
    now += 5000;
    assert_true(sl_route_due(&route) == SL_NEVER);
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "");
}

/* The keeper has acknowledged a lease that is not in the ledger. So the next keeper must not rely on the
 * ledger until that lease has expired. */
UNIT_TEST(without_memory_for_a_record_the_ledger_is_incomplete)
{
    const struct sl_grant_view lease = {.fence = 5, .leased = true, .left_ms = 10000};
    open_route(7);
    SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE);
    orders();
    now += 400;
    assert_int_equal(route.complete_ms, 1000);
    memory_fails_after(0);
    RECEIVE(HELD, .session = 1, .yes = true, .key = text("k"), .grant = lease);
    memory_is_back();
    assert_null(sl_ledger_find(&route.ledger, 5));
    assert_int_equal(route.complete_ms, 1400);
    now += 100;
    memory_fails_after(0);
    RECEIVE(NOTE, .ms = now, .key = text("k"), .grant = lease);
    memory_is_back();
    assert_int_equal(route.complete_ms, 1500);
    now += 100;
    RECEIVE(NOTE, .ms = now, .key = text("k"), .grant = lease);
    assert_non_null(sl_ledger_find(&route.ledger, 5));
    assert_int_equal(route.complete_ms, 1500);
}

UNIT_TEST(the_next_keeper_learns_the_grants_before_the_requests)
{
    open_route(7);
    grant(1, "k", 5, 10000);
    grant(2, "m", 6, SL_NEVER);
    RECEIVE(CLIENT, .name = text("bob"), .address = text("a"));
    RECEIVE(NOTE, .ms = 1000, .key = text("l"),
            .grant = {.fence = 7, .leased = true, .left_ms = 10000});
    SUBMIT(3, "three");
    orders();
    now += 1000;
    sl_route_keeper(&route, now, 3, 8);
    orders();
    RECEIVE(HERE, .term = 8);
    assert_string_equal(orders(), "CLOCK 2000\n"
                                  "CLIENT bob\nRECLAIM 0 l 7 left 9025\n"
                                  "describe 1\nRECLAIM 1 k 5 left 9025\n"
                                  "describe 2\nRECLAIM 2 m 6 left -1\n"
                                  "READY\ndescribe 3\nDO 3 waited 1000: three\n");
}

UNIT_TEST(a_client_that_was_named_on_an_old_route_is_forgotten)
{
    open_route(7);
    RECEIVE(CLIENT, .name = text("bob"), .address = text("a"));
    open_route(8);
    RECEIVE(NOTE, .ms = 1000, .key = text("l"),
            .grant = {.fence = 7, .leased = true, .left_ms = 10000});
    assert_int_equal(sl_ledger_find(&route.ledger, 7)->name.n, 0);
}

UNIT_TEST(a_grant_that_has_ended_is_not_handed_over)
{
    open_route(7);
    grant(1, "k", 5, 10000);
    grant(2, "l", 6, 10000);
    grant(3, "m", 7, 500);
    const sl_fence gone[] = {6};
    RECEIVE(GONE, .gone = gone, .gone_count = 1);
    now += 1000;
    sl_route_keeper(&route, now, 3, 8);
    orders();
    RECEIVE(HERE, .term = 8);
    assert_string_equal(orders(), "CLOCK 2000\ndescribe 3\nnothing\n"
                                  "describe 1\nRECLAIM 1 k 5 left 9025\nREADY\n");
}

UNIT_TEST(a_grant_that_is_being_released_is_not_handed_over)
{
    open_route(7);
    grant(1, "k", 5, 10000);
    SUBMIT(1, "RELEASE", .verb = SL_ROUTE_RELEASE,
           .released_fence = sl_route_released(&route, &sessions[1], text("k"), 0));
    orders();
    assert_null(sl_ledger_find(&route.ledger, 5));
    sl_route_keeper(&route, now, 3, 8);
    orders();
    RECEIVE(HERE, .term = 8);
    assert_string_equal(orders(), "CLOCK 1000\nREADY\ndescribe 1\nDO 1 waited 0: "
                                  "RELEASE\n");
    /* The grant ended with the previous keeper, so the client has released it. */
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text(":0\r\n"));
    assert_string_equal(orders(), "1 gets :1\r\n\n");
}

UNIT_TEST(an_extension_that_crosses_a_release_leaves_no_record)
{
    open_route(7);
    grant(1, "k", 5, 100000);
    SUBMIT(2, "EXTEND", .key = text("k"));
    SUBMIT(1, "RELEASE", .verb = SL_ROUTE_RELEASE, .key = text("k"), .fence = 5);
    orders();
    RECEIVE(HELD, .session = 2, .key = text("k"),
            .grant = {.fence = 5,
                      .leased = true,
                      .left_ms = 100000,
                      .units = 1,
                      .per = 1,
                      .buckets = 1});
    RECEIVE(SAY, .session = 2, .what = SL_SAY_LAST, .bytes = text(":100000\r\n"));
    orders();
    assert_int_equal(route.ledger.by_fence.count, 1);
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text(":1\r\n"));
    assert_int_equal(route.ledger.by_fence.count, 0);
}

/* Session 2 repeats the ACQUIRE of a lock without a lease before session 1 sends RELEASE. */
UNIT_TEST(
    a_release_that_a_repeated_acquire_overtakes_leaves_the_record_of_the_new_holder)
{
    const sl_fence gone[] = {5};
    open_route(7);
    grant(1, "k", 5, SL_NEVER);
    SUBMIT(2, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"));
    orders();
    SUBMIT(1, "RELEASE", .verb = SL_ROUTE_RELEASE, .key = text("k"), .fence = 5);
    orders();
    RECEIVE(GONE, .gone = gone, .gone_count = 1);
    RECEIVE(
        HELD, .session = 2, .yes = true, .key = text("k"),
        .grant = {.fence = 5, .left_ms = SL_NEVER, .units = 1, .per = 1, .buckets = 1});
    RECEIVE(SAY, .session = 2, .what = SL_SAY_LAST, .bytes = text("*6\r\n"));
    orders();
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text(":0\r\n"));
    assert_true(sl_route_holds_unleased(&sessions[2]));
}

UNIT_TEST(a_grant_that_is_released_while_this_node_steps_down_leaves_the_ledger)
{
    sl_route_lead(&route, now, 1, 7);
    orders();
    SUBMIT(1, "RELEASE", .verb = SL_ROUTE_RELEASE, .key = text("k"), .fence = 5);
    sl_route_step_down(&route, now);
    const struct sl_record copy = {.session = 1,
                                   .fence = 5,
                                   .units = 1,
                                   .end_ms = SL_NEVER,
                                   .sure_ms = SL_NEVER,
                                   .key = text("k")};
    assert_true(sl_ledger_put(&route.ledger, &copy, &sessions[1].held));
    sl_route_exported(&route);
    sl_route_keeper(&route, now, 3, 8);
    orders();
    RECEIVE(HERE, .term = 8);
    orders();
    assert_null(sl_ledger_find(&route.ledger, 5));
}

UNIT_TEST(a_RELEASE_that_the_keeper_rejects_leaves_the_record)
{
    open_route(7);
    grant(1, "k", 5, 10000);
    grant(1, "m", 6, SL_NEVER);
    grant(2, "x", 7, 10000);
    assert_int_equal(sl_route_released(&route, &sessions[1], text("k"), 0), 5);
    assert_int_equal(sl_route_released(&route, &sessions[1], text("l"), 0), 0);
    assert_int_equal(sl_route_released(&route, &sessions[1], text("l"), 5), 0);
    assert_int_equal(sl_route_released(&route, &sessions[2], text("k"), 5), 5);
    assert_int_equal(sl_route_released(&route, &sessions[2], text("m"), 6), 0);
    assert_int_equal(sl_route_released(&route, &sessions[1], text("m"), 6), 6);
}

UNIT_TEST(a_grant_that_the_keeper_rejects_closes_its_client_only_without_a_lease)
{
    open_route(7);
    grant(1, "k", 5, 10000);
    grant(2, "m", 6, SL_NEVER);
    RECEIVE(LOST, .session = 1, .fence = 5);
    assert_string_equal(orders(), "lost\n");
    RECEIVE(LOST, .session = 2, .fence = 6);
    assert_string_equal(orders(), "lost\nclose 2: closed\nEND 2\n");
    assert_int_equal(route.ledger.by_fence.count, 0);
}

/* --- Ending a route --------------------------------------------------------------------------- */

UNIT_TEST(unanswered_requests_are_sent_again_with_the_time_that_they_have_waited)
{
    open_route(7);
    SUBMIT(1, "one", .waits = true);
    orders();
    now += 300;
    SUBMIT(2, "two");
    orders();
    sl_route_link(&route, now);
    assert_string_equal(orders(), "COME 7\n");
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("+OLD"));
    assert_string_equal(orders(), ""); /* Of the old route. */
    now += 100;
    RECEIVE(HERE, .term = 7);
    assert_string_equal(orders(),
                        "CLOCK 1400\nREADY\ndescribe 1\nDO 1 waited 400: one\n"
                        "describe 2\nDO 2 waited 100: two\n");
}

/* The client received no reply, and the ACQUIRE is sent again. So nobody would release the first
 * grant, if there is one. */
UNIT_TEST(a_grant_whose_reply_was_lost_is_withdrawn)
{
    for (int reported = 0; reported < 2; reported++) {
        open_route(7);
        SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"),
               .lease_ms = 10000);
        orders();
        if (reported == 1)
            RECEIVE(HELD, .session = 1, .yes = true, .key = text("k"),
                    .grant = {.fence = 5, .leased = true, .left_ms = 10000});
        uint64_t origin = sessions[1].origin;
        sl_route_keeper(&route, now, 3, 8);
        orders();
        RECEIVE(HERE, .term = 8);
        assert_string_equal(orders(), "CLOCK 1000\nWITHDRAW k above 0\nREADY\n"
                                      "describe 1\nDO 1 waited 0: ACQUIRE\n");
        assert_true(withdrawn_origin == origin && sessions[1].origin != origin);
        assert_int_equal(route.ledger.by_fence.count, 0);
        leave(1);
        sl_withdrawn_clear(&route.withdrawn);
    }
}

/* The client may have repeated the request through another node, and hold the lock. */
UNIT_TEST(a_grant_with_an_id_is_not_withdrawn)
{
    for (int leaves = 0; leaves < 2; leaves++) {
        open_route(7);
        SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"),
               .lease_ms = 10000, .named = true);
        orders();
        RECEIVE(HELD, .session = 1, .yes = true, .key = text("k"),
                .grant = {.fence = 5, .leased = true, .left_ms = 10000});
        if (leaves == 1) leave(1);
        assert_string_equal(orders(), "");
        sl_route_keeper(&route, now, 3, 8);
        orders();
        RECEIVE(HERE, .term = 8);
        /* The node does not report a grant that the keeper may not have acknowledged. */
        assert_string_equal(
            orders(),
            leaves == 1
                ? "CLOCK 1000\nnothing\nREADY\n"
                : "CLOCK 1000\nnothing\nREADY\ndescribe 1\nDO 1 waited 0: ACQUIRE\n");
        assert_int_equal(route.ledger.by_fence.count, 0);
        if (leaves == 0) leave(1);
    }
}

/* A keeper reports a grant before it is recorded. If the record fails, or the keeper cannot write it,
 * the client receives an error. */
UNIT_TEST(a_grant_whose_client_received_an_error_is_not_reported)
{
    open_route(7);
    SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"), .lease_ms = 10000,
           .named = true);
    orders();
    RECEIVE(HELD, .session = 1, .yes = true, .key = text("k"),
            .grant = {.fence = 5, .leased = true, .left_ms = 10000});
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("-RECOVERING"));
    orders();
    assert_int_equal(sessions[1].known_fence, 0);
    sl_route_keeper(&route, now, 3, 8);
    orders();
    RECEIVE(HERE, .term = 8);
    assert_null(strstr(orders(), "RECLAIM"));
    assert_int_equal(route.ledger.by_fence.count, 0);
    leave(1);
}

/* The clients 1 and 2 are connections that repeat one acquisition. The keeper grants it to client 2, and
 * reports it for both. */
static void acquire_twice(sl_ms lease_ms)
{
    open_route(7);
    for (uint64_t i = 1; i <= 2; i++)
        SUBMIT(i, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"),
               .lease_ms = lease_ms, .named = lease_ms > 0);
    orders();
    for (uint64_t i = 2; i >= 1; i--)
        RECEIVE(HELD, .session = i, .yes = i == 2, .key = text("k"),
                .grant = {.fence = 5, .leased = true, .left_ms = lease_ms});
}

/* Returns what the node reports to the next keeper. */
static const char *hand_over(void)
{
    sl_route_keeper(&route, now, 3, 8);
    orders();
    RECEIVE(HERE, .term = 8);
    return orders();
}

static const char reported[] =
    "CLOCK 1000\nCLIENT ann\nRECLAIM 0 k 5 left 10025\nREADY\n";

UNIT_TEST(a_grant_stays_in_the_ledger_if_another_attempt_was_answered)
{
    acquire_twice(10000);
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*6"));
    leave(2);
    assert_string_equal(hand_over(), reported);
}

UNIT_TEST(a_grant_stays_in_the_ledger_if_another_attempt_is_answered_later)
{
    acquire_twice(10000);
    leave(2);
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*6"));
    assert_string_equal(hand_over(), reported);
}

UNIT_TEST(an_answered_grant_stays_in_the_ledger_if_a_later_attempt_is_not_answered)
{
    acquire_twice(10000);
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*6"));
    RECEIVE(HELD, .session = 2, .key = text("k"),
            .grant = {.fence = 5, .leased = true, .left_ms = 10000});
    leave(1);
    leave(2);
    assert_string_equal(hand_over(), reported);
}

UNIT_TEST(an_extension_shows_that_the_client_has_the_grant)
{
    acquire_twice(10000);
    leave(1);
    leave(2);
    SUBMIT(3, "EXTEND");
    orders();
    RECEIVE(HELD, .session = 3, .key = text("k"),
            .grant = {.fence = 5, .leased = true, .left_ms = 10000});
    RECEIVE(SAY, .session = 3, .what = SL_SAY_LAST, .bytes = text(":10000"));
    assert_string_equal(hand_over(), reported);
}

UNIT_TEST(a_repeated_grant_that_was_not_acknowledged_is_not_handed_over)
{
    open_route(7);
    SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"), .lease_ms = 10000,
           .named = true);
    orders();
    RECEIVE(HELD, .session = 1, .key = text("k"),
            .grant = {.fence = 5, .leased = true, .left_ms = 10000});
    leave(1);
    assert_string_equal(hand_over(), "CLOCK 1000\nnothing\nREADY\n");
}

/* A repeated attempt moves a grant without a lease to its own connection. */
UNIT_TEST(a_grant_that_has_moved_stays_when_its_first_connection_closes)
{
    const sl_fence gone[] = {5};
    open_route(7);
    for (uint64_t i = 1; i <= 2; i++)
        SUBMIT(i, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"));
    orders();
    for (uint64_t i = 1; i <= 2; i++) {
        RECEIVE(GONE, .gone = gone, .gone_count = 1);
        RECEIVE(HELD, .session = i, .yes = true, .key = text("k"),
                .grant = {.fence = 5});
    }
    leave(1);
    RECEIVE(SAY, .session = 2, .what = SL_SAY_LAST, .bytes = text("*6"));
    assert_string_equal(hand_over(),
                        "CLOCK 1000\ndescribe 2\nRECLAIM 2 k 5 left -1\nREADY\n");
}

UNIT_TEST(a_withdrawal_spares_the_grants_that_the_client_knows)
{
    open_route(7);
    grant(1, "k", 5, 10000);
    SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"), .lease_ms = 10000);
    orders();
    sl_route_keeper(&route, now, 3, 8);
    orders();
    RECEIVE(HERE, .term = 8);
    assert_string_equal(orders(), "CLOCK 1000\nWITHDRAW k above 5\n"
                                  "describe 1\nRECLAIM 1 k 5 left 10025\nREADY\n"
                                  "DO 1 waited 0: ACQUIRE\n");
    /* The client knows the second grant too. It has another origin. */
    RECEIVE(HELD, .session = 1, .yes = true, .key = text("k"),
            .grant = {.fence = 9, .leased = true, .left_ms = 10000});
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*5"));
    orders();
    assert_true(withdrawn_origin != sessions[1].origin);
    assert_int_equal(sessions[1].known_fence, 9);
}

/* The keeper ends a grant without a lease together with the session. */
UNIT_TEST(a_request_without_a_lease_is_not_withdrawn)
{
    open_route(7);
    SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"));
    SUBMIT(2, "EXTEND", .key = text("k"), .lease_ms = 10000);
    orders();
    RECEIVE(HELD, .session = 1, .yes = true, .key = text("k"), .grant = {.fence = 5});
    sl_route_link(&route, now);
    orders();
    RECEIVE(HERE, .term = 7);
    assert_string_equal(orders(), "CLOCK 1000\nREADY\n"
                                  "describe 1\nDO 1 waited 0: ACQUIRE\n"
                                  "describe 2\nDO 2 waited 0: EXTEND\n");
    assert_int_equal(route.ledger.by_fence.count, 0);
}

/* Each of them may know of the grant. */
UNIT_TEST(every_keeper_learns_of_a_withdrawal_until_the_lease_must_have_expired)
{
    open_route(7);
    SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"), .lease_ms = 10000);
    orders();
    sl_route_keeper(&route, now, 0, 0);
    now += 5000;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(), "1 gets NOKEEPER\n");
    leave(1);
    sl_ms left_ms = 60000 + 10000;
    for (uint64_t term = 8; term < 10; term++) {
        sl_route_keeper(&route, now, 3, term);
        orders();
        RECEIVE(HERE, .term = term);
        assert_non_null(strstr(orders(), "WITHDRAW k above 0\nREADY\n"));
        assert_string_equal(orders(), "");
    }
    now = 1000 + left_ms - 1;
    sl_route_second(&route, now, false);
    assert_int_equal(route.withdrawn.by_origin.count, 1);
    now++;
    sl_route_second(&route, now, false);
    assert_int_equal(route.withdrawn.by_origin.count, 0);
}

/* END comes first: the keeper then grants nothing more for the request. */
UNIT_TEST(a_client_that_leaves_withdraws_its_request)
{
    open_route(7);
    SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"), .lease_ms = 10000,
           .waits = true);
    SUBMIT(2, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("l"), .lease_ms = 10000);
    orders();
    RECEIVE(HELD, .session = 2, .yes = true, .key = text("l"),
            .grant = {.fence = 5, .leased = true, .left_ms = 10000});
    said[0] = '\0';
    leave(1);
    assert_string_equal(said, "END 1\n");
    assert_string_equal(orders(), "WITHDRAW k above 0\n");
    leave(2);
    assert_string_equal(orders(), "WITHDRAW l above 0\n");
    assert_int_equal(route.ledger.by_fence.count, 0);
    has_space = false;
    SUBMIT(3, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("m"), .lease_ms = 10000);
    orders();
    leave(3); /* The keeper does not know its request. */
    has_space = true;
    assert_string_equal(orders(), "");
}

UNIT_TEST(the_origin_of_a_grant_is_handed_over)
{
    const struct sl_record x = {.fence = 5,
                                .origin = 77,
                                .leased = true,
                                .end_ms = now + 1000,
                                .key = text("k"),
                                .address = text("a")};
    sl_ledger_put(&route.ledger, &x, NULL);
    sl_route_keeper(&route, now, 2, 7);
    orders();
    RECEIVE(HERE, .term = 7);
    assert_string_equal(orders(), "CLOCK 1000\nCLIENT \n"
                                  "RECLAIM 0 k 5 left 1000\nof 77\nREADY\n");
}

/* The node may have had no memory for the record. */
UNIT_TEST(a_grant_for_a_client_that_has_left_is_withdrawn)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        open_route(7);
        SUBMIT(1, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .key = text("k"),
               .lease_ms = 10000, .waits = true);
        orders();
        uint64_t origin = sessions[1].origin;
        if (recorded == 0) memory_fails_after(0);
        RECEIVE(HELD, .session = 1, .yes = true, .key = text("k"),
                .grant = {.fence = 5, .leased = true, .left_ms = 10000});
        memory_is_back();
        RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*5"));
        assert_string_equal(orders(), "1 gets *5\nWITHDRAW k above 4\n");
        assert_true(withdrawn_origin == origin && sessions[1].origin != origin);
        assert_int_equal(route.ledger.by_fence.count, 0);
        leave(1);
        sl_withdrawn_clear(&route.withdrawn);
    }
}

UNIT_TEST(a_lost_commit_is_settled_by_its_REQUEST_id)
{
    open_route(7);
    begin(1, "id-1");
    SUBMIT(1, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
    orders();
    sl_route_keeper(&route, now, 3, 8);
    assert_string_equal(orders(), "1 settles id-1\nCOME 8\n");
    RECEIVE(HERE, .term = 8);
    assert_string_equal(orders(), "CLOCK 1000\nREADY\ndescribe 1\nDO 1 waited 0: "
                                  "TX.OUTCOME\n");
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text(":9\r\n"));
    assert_string_equal(orders(), "1 gets :9\r\n\n");
}

UNIT_TEST(the_reply_to_a_lost_commit_says_what_is_known)
{
    static const char *const replies[] = {"-ERR", "$-1"}, *const wanted[] = {"ASK",
                                                                             "STALE"};
    for (int i = 0; i < 2; i++) {
        char line[40];
        open_route(7 + (uint64_t)i);
        begin(1, "id-1");
        SUBMIT(1, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
        orders();
        open_route(20 + (uint64_t)i);
        RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text(replies[i]));
        snprintf(line, sizeof line, "1 gets %s\n", wanted[i]);
        assert_string_equal(orders(), line);
    }
}

UNIT_TEST(without_a_REQUEST_id_the_outcome_of_a_lost_commit_is_unknown)
{
    open_route(7);
    begin(1, "");
    begin(2, "id-2");
    SUBMIT(1, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
    SUBMIT(2, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
    orders();
    settles = false; /* Out of memory. */
    sl_route_keeper(&route, now, 3, 8);
    assert_string_equal(orders(),
                        "2 settles id-2\n1 gets UNKNOWN\n2 gets UNKNOWN\nCOME 8\n");
}

UNIT_TEST(a_transaction_is_lost_with_its_keeper)
{
    open_route(7);
    for (uint64_t i = 1; i <= 4; i++) begin(i, "id");
    SUBMIT(1, "TX.GET", .verb = SL_ROUTE_TX);
    SUBMIT(2, "TX.ABORT", .verb = SL_ROUTE_TX_ABORT);
    SUBMIT(3, "TX.BEGIN", .verb = SL_ROUTE_TX_BEGIN);
    orders();
    sl_route_keeper(&route, now, 3, 8);
    assert_string_equal(orders(),
                        "4 lost its transaction\n1 gets STALE\n2 gets OK\nCOME 8\n");
    RECEIVE(HERE, .term = 8);
    assert_string_equal(orders(),
                        "CLOCK 1000\nREADY\ndescribe 3\nDO 3 waited 0: TX.BEGIN\n");
}

UNIT_TEST(a_commit_that_was_not_sent_is_rejected)
{
    open_route(7);
    begin(1, "id-1");
    has_space = false;
    SUBMIT(1, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
    orders();
    sl_route_keeper(&route, now, 3, 8);
    assert_string_equal(orders(), "1 gets STALE\nCOME 8\n");
}

UNIT_TEST(a_rejected_TX_BEGIN_keeps_the_REQUEST_id)
{
    open_route(7);
    begin(1, "id-1");
    SUBMIT(1, "TX.BEGIN", .verb = SL_ROUTE_TX_BEGIN, .id = text("id-2"));
    orders();
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .tx = 71, .bytes = text("-ERR"));
    SUBMIT(1, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
    orders();
    sl_route_keeper(&route, now, 3, 8);
    assert_string_equal(orders(), "1 settles id-1\nCOME 8\n");
}

UNIT_TEST(a_transaction_that_has_ended_is_forgotten)
{
    open_route(7);
    begin(1, "id-1");
    SUBMIT(1, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
    orders();
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .tx = 0, .bytes = text(":9"));
    orders();
    SUBMIT(1, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
    orders();
    sl_route_keeper(&route, now, 3, 8);
    assert_string_equal(orders(), "COME 8\n"); /* It is sent again, and rejected. */
    open_route(9);
    begin(2, "id-2");
    leave(2); /* RESET begins another session. */
    assert_false(sessions[2].tx != 0 || sessions[2].tx_request.n != 0);
}

UNIT_TEST(a_client_with_half_of_a_reply_is_closed)
{
    open_route(7);
    SUBMIT(1, "one");
    SUBMIT(2, "two");
    orders();
    RECEIVE(SAY, .session = 1, .what = SL_SAY_MORE, .bytes = text("*2"));
    assert_string_equal(orders(), "1 reads *2\n");
    sl_route_link(&route, now);
    assert_string_equal(orders(), "close 1: half replied\nCOME 7\n");
}

UNIT_TEST(the_keeper_learns_that_a_client_has_left)
{
    open_route(7);
    SUBMIT(1, "one");
    orders();
    said[0] = '\0';
    leave(1);
    assert_string_equal(said, "END 1\n");
    SUBMIT(2, "two");
    said[0] = '\0';
    leave(2); /* The keeper does not know it. */
    assert_string_equal(said, "");
}

UNIT_TEST(the_keeper_learns_that_the_node_rejected_a_command_of_a_transaction)
{
    struct sl_failover_message m;
    open_route(7);
    SUBMIT(2, "two");
    orders();
    begin(1, "id");
    assert_true(sl_route_failed(&route, &sessions[1], "TX.PUT", &m));
    assert_int_equal(m.type, SL_FAILOVER_FAIL);
    assert_int_equal(m.session, 1);
    assert_false(sl_route_failed(&route, &sessions[2], "TX.PUT", &m));
}

/* --- NOTIFY ------------------------------------------------------------------------------ */

#define QUEUED \
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("+QUEUED\r\n"))

UNIT_TEST(a_session_goes_on_while_the_keeper_has_queued_its_requests)
{
    open_route(7);
    notify(0, "n0");
    assert_string_equal(orders(), "describe 1\nDO 1 waited 0: n0\n");
    QUEUED;
    assert_string_equal(orders(), "10 is queued\n");
    notify(1, "n1");
    assert_string_equal(orders(), "DO 1 waited 0: n1\n");
    QUEUED;
    assert_string_equal(orders(), "11 is queued\n");
    SUBMIT(1, "READ");
    assert_string_equal(orders(), "DO 1 waited 0: READ\n");
    RECEIVE(HELD, .session = 1, .yes = true, .key = text("k"), .request = &notifies[1],
            .grant = {.fence = 5, .leased = true, .left_ms = 10000});
    assert_int_equal(notifies[1].unanswered, 5);
    RECEIVE(OUTCOME, .session = 1, .request = &notifies[1], .bytes = text("*6"));
    assert_string_equal(orders(), "11 gets *6\n");
    assert_int_equal(sessions[1].known_fence, 5);
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*-1"));
    assert_string_equal(orders(), "1 gets *-1\n");
    RECEIVE(OUTCOME, .session = 1, .request = NULL,
            .bytes = text("*6")); /* It was cancelled. */
    assert_string_equal(orders(), "");
    notify(2, "n2");
    orders();
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*6"));
    assert_string_equal(orders(), "12 gets *6\n"); /* Its outcome was known at once. */
}

/* The keeper has queued two requests of client 1 with NOTIFY, which arrived 10 ms after each other. */
static void queue_two(void)
{
    for (int i = 0; i < 2; i++) {
        notify(i, i == 0 ? "n0" : "n1");
        orders();
        QUEUED;
        orders();
        now += 10;
    }
}

UNIT_TEST(the_next_keeper_gets_queued_requests_in_order)
{
    open_route(7);
    queue_two();
    SUBMIT(2, "ACQUIRE", .verb = SL_ROUTE_ACQUIRE, .arrived_ms = now - 15);
    SUBMIT(1, "AWAIT", .waits = true);
    orders();
    sl_route_keeper(&route, now, 3, 8);
    assert_string_equal(orders(), "COME 8\n");
    RECEIVE(OUTCOME, .session = 1, .request = &notifies[0], .bytes = text("*6"));
    assert_string_equal(orders(), ""); /* Of the old route. */
    RECEIVE(HERE, .term = 8);
    /* All are sent at once, in order of arrival, also those of other clients. */
    assert_string_equal(orders(),
                        "CLOCK 1020\nREADY\ndescribe 1\nDO 1 waited 20: n0\n"
                        "describe 2\nDO 2 waited 15: ACQUIRE\nDO 1 waited 10: n1\n"
                        "DO 1 waited 0: AWAIT\n");
    QUEUED;
    assert_string_equal(orders(), "10 is queued\n");
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*6"));
    assert_string_equal(orders(), "11 gets *6\n");
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text("*-1"));
    assert_string_equal(orders(), "1 gets *-1\n");
}

UNIT_TEST(queued_requests_run_at_the_node_that_becomes_the_keeper)
{
    open_route(7);
    queue_two();
    notify(2, "n2");
    orders();
    sl_route_lead(&route, now, 1, 8);
    orders();
    sl_route_resume(&route);
    assert_string_equal(orders(), "10 runs here\n11 runs here\n12 runs here\n");
}

UNIT_TEST(without_a_keeper_all_requests_of_a_session_are_answered)
{
    open_route(7);
    queue_two();
    notify(2, "n2");
    orders();
    sl_route_keeper(&route, now, 0, 0);
    now += 5000;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(),
                        "10 gets NOKEEPER\n11 gets NOKEEPER\n12 gets NOKEEPER\n");
    SUBMIT(1, "READ");
    leave(1);
}

/* The client has repeated the ACQUIRE of a grant that it holds, with NOTIFY. The extension has the id of that
 * ACQUIRE, so the caller takes HELD for the queued request. */
UNIT_TEST(an_extension_shows_the_grant_while_the_client_repeats_its_acquisition)
{
    for (sl_fence extended = 4; extended <= 5; extended++) {
        open_route(7);
        notify(0, "n0");
        orders();
        QUEUED;
        orders();
        SUBMIT(1, "EXTEND", .verb = SL_ROUTE_EXTEND, .fence = extended);
        orders();
        RECEIVE(HELD, .session = 1, .key = text("k"), .request = &notifies[0],
                .grant = {.fence = 5, .leased = true, .left_ms = 10000});
        assert_int_equal(notifies[0].unanswered, 5);
        RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text(":10000"));
        orders();
        bool is_reported = strstr(hand_over(), "RECLAIM 0 k 5 left") != NULL;
        assert_int_equal(is_reported, extended == 5);
        leave(1);
    }
}

/* The commit was sent, and its outcome is unknown. The requests with NOTIFY are sent again. */
UNIT_TEST(a_commit_is_settled_while_requests_wait_with_NOTIFY)
{
    open_route(7);
    begin(1, "id");
    queue_two();
    SUBMIT(1, "TX.COMMIT", .verb = SL_ROUTE_TX_COMMIT);
    orders();
    sl_route_keeper(&route, now, 3, 8);
    assert_string_equal(orders(), "1 settles id\nCOME 8\n");
    RECEIVE(HERE, .term = 8);
    assert_string_equal(orders(), "CLOCK 1020\nREADY\ndescribe 1\nDO 1 waited 20: n0\n"
                                  "DO 1 waited 10: n1\nDO 1 waited 0: TX.OUTCOME\n");
    QUEUED;
    orders();
    QUEUED;
    orders();
    RECEIVE(SAY, .session = 1, .what = SL_SAY_LAST, .bytes = text(":5\r\n"));
    assert_string_equal(orders(), "1 gets :5\r\n\n");
}

UNIT_TEST(a_client_that_leaves_ends_its_queued_requests)
{
    open_route(7);
    queue_two();
    notify(2, "n2");
    orders();
    for (int i = 0; i < 3; i++) {
        sl_route_withdraw(&route, now, &notifies[i]);
        sl_route_check(&route);
    }
    assert_int_equal(route.queued_count + route.sent_count + route.waiting_count, 0);
    said[0] = '\0';
    leave(1);
    assert_string_equal(said, "END 1\n");
    assert_string_equal(orders(), "");
}

/* --- Without a route -------------------------------------------------------------------------- */

UNIT_TEST(without_a_keeper_requests_wait_for_keeper_wait)
{
    SUBMIT(1, "one");
    now += 4999;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(), "");
    assert_false(sl_route_gives_up(&route, now));
    SUBMIT(2, "two", .settles = true);
    now += 1;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(), "1 gets NOKEEPER\n");
    assert_true(sl_route_gives_up(&route, now));
    now += 4999;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(), "2 gets ASK LATER\n");
}

/* The keeper cannot read its journal, for example. */
UNIT_TEST(requests_do_not_wait_forever_for_a_new_keeper_that_is_not_ready)
{
    sl_route_lead(&route, now, 1, 7);
    orders();
    SUBMIT(1, "one");
    now += 9999;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(), "");
    now += 1;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(), "1 gets NOKEEPER\n");
}

UNIT_TEST(the_time_at_an_earlier_keeper_does_not_count_for_a_new_one)
{
    open_route(7);
    SUBMIT(1, "AWAIT", .waits = true);
    orders();
    now += 60000;
    sl_route_lead(&route, now, 1, 8);
    sl_route_second(&route, now, false);
    orders();
    sl_route_resume(
        &route); /* The keeper is not ready, so the request is queued again. */
    assert_string_equal(orders(), "1 runs here\n");
    SUBMIT(1, "AWAIT", .waits = true, .arrived_ms = now - 60000);
    now += 9999;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(), "");
    now += 1;
    sl_route_second(&route, now, false);
    assert_string_equal(orders(), "1 gets NOKEEPER\n");
}

UNIT_TEST(clients_with_unleased_grants_are_closed_when_the_keeper_cannot_be_reached)
{
    open_route(7);
    grant(1, "k", 5, SL_NEVER);
    grant(2, "l", 6, 100000);
    sl_route_link(&route, now);
    orders();
    now += 1199;
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "");
    now += 1;
    assert_true(sl_route_due(&route) <= now);
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "close 1: cut off\n");
    assert_int_equal(route.ledger.by_fence.count, 1);
    assert_true(sl_route_due(&route) == SL_NEVER);
}

/* Neither the keeper nor a new one releases the locks while the storage shows the same term and
 * heartbeat. */
UNIT_TEST(an_unchanged_heartbeat_keeps_the_clients_of_a_cut_off_node)
{
    const struct sl_storage_result same = {
        .term_record = {.term = 7, .node = 2, .heartbeat = 40}};
    const struct sl_storage_result next = {
        .term_record = {.term = 7, .node = 2, .heartbeat = 41}};
    sl_election_term_read(election, now, now, &same);
    open_route(7);
    grant(1, "k", 5, SL_NEVER);
    sl_route_link(&route, now);
    orders();
    now += 1000;
    sl_election_term_read(election, now, now - 10, &same);
    now += 1000;
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "");
    sl_election_term_read(election, now, now - 10, &next);
    now += 200;
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "close 1: cut off\n");
}

/* The next keeper waits for the end of this node's authority, but not for its report. */
UNIT_TEST(a_node_that_was_the_keeper_cuts_off_clients_whatever_the_next_keeper_stores)
{
    const struct sl_record held = {.session = 1,
                                   .fence = 5,
                                   .units = 1,
                                   .end_ms = SL_NEVER,
                                   .sure_ms = SL_NEVER,
                                   .key = text("k")};
    const struct sl_storage_result next = {
        .term_record = {.term = 8, .node = 2, .heartbeat = 1}};
    sl_route_lead(&route, now, SELF, 7);
    SUBMIT(1, "ACQUIRE");
    orders();
    sl_election_term_read(election, now, now, &next);
    sl_route_step_down(&route, now);
    assert_true(sl_ledger_put(&route.ledger, &held, &sessions[1].held));
    sl_route_exported(&route);
    orders();
    now += 1199;
    sl_election_term_read(election, now, now, &next); /* The same heartbeat. */
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "");
    now += 1;
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "close 1: cut off\n");
}

UNIT_TEST(a_node_that_was_the_keeper_cuts_off_clients_that_are_not_in_the_ledger_yet)
{
    struct sl_list grant;
    sl_route_lead(&route, now, SELF, 7);
    SUBMIT(1, "ACQUIRE");
    SUBMIT(2, "ACQUIRE");
    orders();
    sl_list_append(&table_sessions[1].mine, &grant);
    sl_route_step_down(&route, now);
    now += 1200;
    assert_true(sl_route_due(&route) <= now);
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "close 1: cut off\n");
    assert_true(sl_route_due(&route) == SL_NEVER); /* Until the copy is complete. */
    sl_list_remove(&grant);
}

/* --- This node becomes the keeper, or steps down ------------------------------------------------ */

UNIT_TEST(the_requests_of_a_new_keeper_run_here)
{
    open_route(7);
    SUBMIT(1, "one");
    orders();
    SUBMIT(2, "two", .arrived_ms = 900);
    has_space = false;
    sl_route_lead(&route, now, SELF, 8);
    assert_string_equal(orders(), "");
    sl_route_resume(&route);
    assert_string_equal(orders(), "2 runs here\n1 runs here\n");
    SUBMIT(3, "three"); /* It needs the reports of other nodes. */
    assert_string_equal(orders(), "");
    sl_route_step_down(&route, now);
    sl_route_keeper(&route, now, 2, 9);
    assert_string_equal(orders(), ""); /* The ledger is not complete. */
    sl_route_exported(&route);
    assert_string_equal(orders(), "COME 9\n");
    has_space = true;
    RECEIVE(HERE, .term = 9);
    assert_string_equal(orders(),
                        "CLOCK 1000\nREADY\ndescribe 3\nDO 3 waited 0: three\n");
}

UNIT_TEST(a_node_knows_for_what_the_keeper_waits)
{
    open_route(7);
    assert_int_equal(sl_route_quiet_ms(&route, now), 0);
    RECEIVE(QUIET, .ms = 10000, .what = 3);
    now += 1000;
    assert_int_equal(sl_route_quiet_ms(&route, now), 9000);
    assert_int_equal(route.quiet_node, 3);
    now += 1001; /* The keeper does not repeat it. */
    assert_int_equal(sl_route_quiet_ms(&route, now), 0);
    RECEIVE(QUIET, .ms = 10000);
    sl_route_link(&route, now);
    assert_int_equal(sl_route_quiet_ms(&route, now), 0);
}

UNIT_TEST(the_keeper_learns_whether_the_node_has_subscribers)
{
    open_route(7);
    sl_route_second(&route, now, true);
    assert_string_equal(orders(), "CLOCK 1000\nLISTEN 1\n");
    sl_route_second(&route, now, true);
    assert_string_equal(orders(), "CLOCK 1000\n");
    /* The next keeper learns it at once, and subscribers learn that events may be missing. */
    sl_route_keeper(&route, now, 2, 8);
    assert_string_equal(orders(), "COME 8\nLISTEN 1\n");
    RECEIVE(NOT, .term = 8);
    now += 20;
    sl_route_tick(&route, now);
    assert_string_equal(orders(), "COME 8\nLISTEN 1\n");
    begun = 0;
    RECEIVE(HERE, .term = 8);
    assert_string_equal(orders(), "CLOCK 1020\nREADY\n");
    assert_int_equal(begun, 1);
    sl_route_second(&route, now, true);
    assert_string_equal(orders(), "CLOCK 1020\n");
    RECEIVE(EVENT, .channel = text("c"), .bytes = text("t"));
    assert_string_equal(orders(), "publish\n");
}

/* --- Random -------------------------------------------------------------------------------------- */

static uint64_t drawn = 0x9e3779b97f4a7c15u;
static uint64_t draw(uint64_t n)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return drawn % n;
}

/* Any message and any event in any order: the invariants hold, and each request is in one place. */
UNIT_TEST(random_events_keep_the_invariants)
{
    for (int i = 0; i < 200000; i++) {
        uint64_t n = 1 + draw(CLIENTS);
        switch (draw(14)) {
            case 0: sl_route_keeper(&route, now, (uint32_t)draw(4), draw(3)); break;
            case 1: sl_route_link(&route, now); break;
            case 2: RECEIVE(HERE, .term = draw(3)); break;
            case 3: RECEIVE(NOT, .term = draw(3)); break;
            case 4:
                RECEIVE(HELD, .session = n, .yes = draw(2) == 0, .key = text("k"),
                        .grant = {.fence = 1 + draw(20),
                                  .leased = draw(2) == 0,
                                  .left_ms = (sl_ms)draw(10000)});
                break;
            case 5:
            case 6:
                RECEIVE(SAY, .session = n, .what = (uint32_t)draw(3), .tx = draw(3),
                        .bytes = text(draw(2) == 0 ? "*5" : ":0\r\n"));
                break;
            case 7: RECEIVE(LOST, .session = n, .fence = 1 + draw(20)); break;
            case 8: leave(n); break;
            case 9: sl_route_second(&route, now, draw(2) == 0); break;
            case 10:
                now += (sl_ms)draw(2000);
                sl_route_tick(&route, now);
                break;
            case 11:
                if (draw(20) != 0) break;
                if (!route.leads && !route.exporting)
                    sl_route_lead(&route, now, SELF, 9);
                else if (route.leads) sl_route_step_down(&route, now);
                else sl_route_exported(&route);
                break;
            case 12:
                if (route.leads) sl_route_resume(&route);
                if (sessions[n].known && requests[n].session != NULL)
                    sl_route_take_back(&route, now, &requests[n], 1 + draw(20));
                break;
            default:
                if (sessions[n].known && sessions[n].request != NULL) break;
                SUBMIT(n, "x", .verb = (enum sl_route_verb)draw(7), .key = text("k"),
                       .lease_ms = (sl_ms)draw(2) * 1000, .waits = draw(2) == 0,
                       .id = text(draw(2) == 0 ? "id" : ""),
                       .released_fence = draw(20));
        }
        has_space = draw(8) != 0;
        settles = draw(4) != 0;
        if (draw(3) != 0 || route.has_order) orders();
        sl_route_check(&route);
    }
}

int main(void)
{
    return run_unit_tests_with("failover_route", setup, teardown);
}
