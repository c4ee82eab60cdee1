/* test_failover_guests.c - the other nodes and their clients, as the keeper sees them: routes,
 * requests, reports of grants, and what happens when a link ends. */
#include <stdio.h>
#include <string.h>

#include "test.h"

#include "failover/guests.h"
#include "sluice.h"

/* --- A keeper, node 1, with links to nodes 2 and 3 ----------------------------------------- */

enum { GUESTS = 40, TERM = 7, LONGEST = 5000 };

static const struct sl_table_limits limits = {.keys_max = 1000,
                                              .waiters_max = 10,
                                              .key_bytes_max = 100,
                                              .value_bytes_max = 100,
                                              .drains_max = 10};
static struct sl_guests guests;
static struct sl_table *table;
static struct sl_guest guest[GUESTS];
static struct sl_session session[GUESTS],
    own; /* The session of each guest; a client here. */
static size_t guest_count;
static uint32_t linked;
static struct sl_now now;
static char said[16384];

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
    (void)state;
    now = (struct sl_now){1000, 1000000};
    table = sl_table_new(&limits, (struct sl_hash_key){7, 0});
    assert_non_null(table);
    sl_session_begin(&own, 900, 0);
    sl_guests_init(&guests, table, (struct sl_hash_key){7, 0});
    guest_count = 0;
    linked = 1u << 2 | 1u << 3;
    said[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_guests_free(&guests);
    sl_table_free(table);
    return 0;
}

static void say_message(uint32_t to, const struct sl_failover_message *m)
{
    int n = (int)m->session;
    switch (m->type) {
        case SL_FAILOVER_HERE: say("%u: HERE %d\n", to, (int)m->term); break;
        case SL_FAILOVER_NOT: say("%u: NOT %d\n", to, (int)m->term); break;
        case SL_FAILOVER_CUT: say("%u: CUT %d\n", to, n); break;
        case SL_FAILOVER_LOST: say("%u: LOST %d %d\n", to, n, (int)m->fence); break;
        case SL_FAILOVER_CLIENT:
            say("%u: CLIENT %.*s\n", to, (int)m->name.n, m->name.at);
            break;
        case SL_FAILOVER_HELD:
            say("%u: HELD %d %s %.*s after %d\n", to, n, m->yes ? "new" : "extended",
                (int)m->key.n, m->key.at, (int)m->ms);
            break;
        case SL_FAILOVER_NOTE:
            say("%u: NOTE %.*s\n", to, (int)m->key.n, m->key.at);
            break;
        case SL_FAILOVER_QUIET:
            say("%u: QUIET %d node %u\n", to, (int)m->ms, m->what);
            break;
        case SL_FAILOVER_MARK: say("%u: MARK %d\n", to, (int)m->fence); break;
        case SL_FAILOVER_GONE: say("%u: GONE %zu\n", to, m->gone_count); break;
        default: fail();
    }
}

/* Close the connection of a guest. If it was cut, its grants linger; otherwise its session ends. */
static void close_guest(struct sl_guest *n, bool cut)
{
    struct sl_failover_message m;
    uint32_t node = n->node;
    if (!cut) sl_table_session_end(table, n->session);
    if (sl_guests_closed(&guests, n, &m)) say_message(node, &m);
}

static void carry_out(const struct sl_guests_order *o)
{
    const struct sl_failover_message *m = &o->message;
    int n = o->guest == NULL ? 0 : (int)o->guest->id;
    struct sl_ended past;
    switch (o->type) {
        case SL_GUESTS_ORDER_SEND: say_message(o->to, m); break;
        case SL_GUESTS_ORDER_RUN:
            say("run %d: %.*s%s\n", n, (int)m->bytes.n, m->bytes.at,
                m->last ? "." : "");
            break;
        case SL_GUESTS_ORDER_NAME:
            say("name %d %.*s\n", n, (int)m->name.n, m->name.at);
            break;
        case SL_GUESTS_ORDER_FAIL: say("fail %d\n", n); break;
        case SL_GUESTS_ORDER_CLOSE:
            say("close %d%s\n", n, o->cut ? ", cut" : "");
            close_guest(o->guest, o->cut);
            break;
        case SL_GUESTS_ORDER_END:
            say("end %d\n", n);
            sl_table_session_end(table, o->guest->session);
            break;
        case SL_GUESTS_ORDER_RELEASE:
            say("release %.*s %d\n", (int)m->key.n, m->key.at, (int)m->fence);
            assert_int_equal(
                sl_table_release(table, now, &own, m->key, m->fence, &past), 1);
            sl_guests_gone(&guests, now.ms, m->fence, false);
            break;
        case SL_GUESTS_ORDER_GIVEN: say("given %d\n", (int)o->ms); break;
        case SL_GUESTS_ORDER_LISTEN: break;
    }
    sl_guests_check(&guests);
}

/* Carry out all orders. Returns the orders since the last call, one per line. */
static const char *orders(void)
{
    static char out[sizeof said];
    struct sl_guests_order o;
    while (sl_guests_next(&guests, now, linked, &o)) carry_out(&o);
    memcpy(out, said, sizeof said);
    said[0] = '\0';
    return out;
}

static void receive(uint32_t from, struct sl_failover_message m)
{
    bool of_session = m.type == SL_FAILOVER_DO || m.type == SL_FAILOVER_RECLAIM ||
                      m.type == SL_FAILOVER_CLIENT;
    if (of_session && m.session != 0 && guests.nodes[from].open &&
        sl_guests_find(&guests, from, m.session) == NULL)
        receive(from, (struct sl_failover_message){.type = SL_FAILOVER_ORIGIN,
                                                   .session = m.session,
                                                   .origin = 1000 + m.session});
    if (sl_guests_lacks(&guests, from, &m)) {
        assert_true(guest_count < GUESTS);
        size_t i = guest_count++;
        sl_session_begin(&session[i], 1 + i, 0);
        assert_int_equal(
            sl_guests_open(&guests, &guest[i], from, m.session, &session[i]), 0);
    }
    sl_guests_receive(&guests, now, from, &m, linked);
    sl_guests_check(&guests);
}
#define RECEIVE(from, type_, ...) \
    receive(from,                 \
            (struct sl_failover_message){.type = SL_FAILOVER_##type_, __VA_ARGS__})

/* Node 1 becomes the keeper. For `quiet_ms`, it grants nothing. */
static void lead(sl_ms quiet_ms)
{
    sl_table_set_fences(table, 1000, SL_FENCE_MAX);
    if (quiet_ms > 0) sl_table_recover(table, now.ms + quiet_ms);
    sl_guests_lead(&guests, now.ms, TERM, quiet_ms > 0, LONGEST, linked);
    sl_guests_journal_read(&guests);
}

/* A node begins a route, and has nothing to report. */
static void come(uint32_t node)
{
    RECEIVE(node, COME, .term = TERM);
    orders();
    RECEIVE(node, CLOCK, .ms = 5000);
    orders();
    RECEIVE(node, READY, .ms = 0);
    orders();
}

/* A guest acquires a key. */
static sl_fence acquire(struct sl_session *s, const char *key, sl_ms lease_ms)
{
    struct sl_grant g;
    const struct sl_want want = {
        .key = text(key), .per = 1, .buckets = 1, .units = 1, .lease_ms = lease_ms};
    now.wall_us += 1000;
    assert_int_equal(sl_table_acquire(table, now, s, &want, &g), SLUICE_OK);
    return g.fence;
}

static bool is_held(const char *key, sl_fence fence)
{
    return sl_table_holds(table, now, text(key), fence);
}

static void pass_effects(void)
{
    struct sl_effect e;
    while (sl_table_next(table, now, &e))
        if (e.type == SL_EFFECT_SESSION_OVER && e.session != &own)
            sl_guests_over(&guests, &guest[e.session - session]);
    sl_guests_check(&guests);
}

#define GRANT(fence_, left) GRANT_OF(0, fence_, left)
#define GRANT_OF(origin_, fence_, left)     \
    .grant = {.fence = fence_,              \
              .origin = origin_,            \
              .leased = (left) != SL_NEVER, \
              .left_ms = left,              \
              .units = 1,                   \
              .per = 1,                     \
              .buckets = 1}

/* --- Routes ---------------------------------------------------------------------------------- */

UNIT_TEST(only_the_keeper_of_the_term_accepts_a_node)
{
    RECEIVE(2, COME, .term = TERM);
    assert_string_equal(orders(), "2: NOT 7\n");
    lead(0);
    RECEIVE(2, COME, .term = TERM - 1);
    assert_string_equal(orders(), "2: NOT 6\n");
    RECEIVE(2, COME, .term = TERM);
    assert_string_equal(orders(), "2: HERE 7\n");
    guests.stopping = true;
    RECEIVE(3, COME, .term = TERM);
    assert_string_equal(orders(), "3: NOT 7\n");
}

UNIT_TEST(a_request_needs_a_route)
{
    lead(0);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    assert_string_equal(orders(), "2: NOT 7\n");
    come(2);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true, .ms = 300);
    assert_string_equal(orders(), "run 5: x.\n");
    assert_int_equal(guest[0].arrived_ms, now.ms - 300);
    assert_false(guest[0].partial);
    RECEIVE(3, DO, .session = 5, .bytes = text("x"), .last = true);
    assert_string_equal(orders(), "3: NOT 7\n");
    assert_int_equal(guest_count, 1);
}

UNIT_TEST(a_command_in_pieces_arrives_with_its_first_piece)
{
    lead(0);
    come(2);
    RECEIVE(2, DO, .session = 5, .bytes = text("a"));
    orders();
    now.ms += 40;
    RECEIVE(2, DO, .session = 5, .bytes = text("b"), .last = true);
    assert_string_equal(orders(), "run 5: b.\n");
    assert_int_equal(guest[0].came_ms, now.ms - 40);
}

/* A node sends its requests in the order of their arrival; the first one was on its way for long. */
UNIT_TEST(requests_of_a_node_keep_their_order)
{
    lead(0);
    come(2);
    come(3);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true, .ms = 100);
    orders();
    now.ms += 50;
    RECEIVE(2, DO, .session = 6, .bytes = text("x"), .last = true, .ms = 200);
    orders();
    RECEIVE(3, DO, .session = 7, .bytes = text("x"), .last = true, .ms = 200);
    orders();
    assert_int_equal(guest[1].arrived_ms, now.ms - 150);
    assert_int_equal(guest[2].arrived_ms, now.ms - 200);
    come(2); /* A new route. */
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true, .ms = 900);
    orders();
    assert_int_equal(guest[3].arrived_ms, now.ms - 900);
}

/* The node sends requests with NOTIFY again, without waiting for the replies. */
UNIT_TEST(each_command_of_a_guest_has_its_own_arrival)
{
    lead(0);
    come(2);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true, .ms = 900);
    assert_string_equal(orders(), "run 5: x.\n");
    RECEIVE(2, DO, .session = 5, .bytes = text("y"), .last = true, .ms = 700);
    assert_string_equal(orders(), "run 5: y.\n");
    assert_int_equal(guest[0].arrived_ms, now.ms - 700);
}

UNIT_TEST(the_clients_of_two_nodes_are_different)
{
    lead(0);
    come(2);
    come(3);
    RECEIVE(2, CLIENT, .session = 5, .name = text("ann"), .address = text("a"));
    orders();
    RECEIVE(3, CLIENT, .session = 5, .name = text("bob"), .address = text("b"));
    assert_string_equal(orders(), "name 5 bob\n");
    assert_int_equal(guest_count, 2);
    assert_true(sl_guests_find(&guests, 2, 5) == &guest[0]);
    assert_true(sl_guests_find(&guests, 3, 5) == &guest[1]);
}

UNIT_TEST(a_client_that_leaves_its_node_leaves_the_keeper)
{
    lead(0);
    come(2);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    sl_fence fence = acquire(&session[0], "k", 0);
    RECEIVE(2, END, .session = 5, .yes = false);
    assert_string_equal(orders(), "close 5\n"); /* The node knows: no CUT. */
    pass_effects();
    assert_false(is_held("k", fence));
    assert_int_equal(guests.by_session.count, 0);
}

UNIT_TEST(a_node_learns_that_the_keeper_has_closed_a_session)
{
    lead(0);
    come(2);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    close_guest(&guest[0], false);
    assert_string_equal(orders(), "2: CUT 5\n");
}

/* Node 2 does not know whether a request of its client was granted. */
UNIT_TEST(a_withdrawn_grant_is_released)
{
    lead(0);
    come(2);
    RECEIVE(2, ORIGIN, .session = 5, .origin = 77);
    RECEIVE(2, ORIGIN, .session = 6, .origin = 78);
    orders();
    sl_fence known = acquire(&session[0], "k", 30000);
    sl_fence other = acquire(&session[1], "l", 30000);
    RECEIVE(2, WITHDRAW, .origin = 77, .key = text("k"), .fence = known);
    RECEIVE(2, WITHDRAW, .origin = 77, .key = text("l"), .fence = known);
    RECEIVE(2, WITHDRAW, .origin = 0, .key = text("k"), .fence = 0);
    assert_string_equal(orders(), "");
    sl_fence fence = acquire(&session[0], "m", 30000);
    sl_fence unleased = acquire(&session[0], "n", 0);
    come(2); /* The link broke. */
    RECEIVE(2, WITHDRAW, .origin = 77, .key = text("m"), .fence = known);
    char line[40];
    snprintf(line, sizeof line, "release m %d\n", (int)fence);
    assert_string_equal(orders(), line);
    RECEIVE(2, WITHDRAW, .origin = 77, .key = text("n"), .fence = known);
    assert_string_equal(orders(), "");
    assert_true(is_held("k", known) && is_held("l", other) && is_held("n", unleased));
    assert_false(is_held("m", fence));
    assert_int_equal(guests.withdrawn.by_origin.count, 0);
}

/* Another node reports the grant of a client of node 2 later: it was the keeper. */
UNIT_TEST(a_withdrawn_grant_is_not_added_later)
{
    lead(10000);
    come(2);
    come(3);
    RECEIVE(2, WITHDRAW, .origin = 77, .key = text("k"), .fence = 400);
    RECEIVE(2, WITHDRAW, .origin = 78, .key = text("k"), .fence = 400);
    orders();
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT_OF(77, 401, 5000));
    assert_string_equal(orders(), "3: GONE 1\n");
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT(402, 5000));
    orders();
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT_OF(77, 400, 5000));
    orders();
    RECEIVE(3, RECLAIM, .key = text("l"), GRANT_OF(77, 403, 5000));
    orders();
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT_OF(0, 404, 5000));
    orders();
    assert_false(is_held("k", 401));
    assert_true(is_held("k", 400) && is_held("k", 402) && is_held("l", 403));
    assert_true(is_held("k", 404));
}

/* The client may have repeated the request through another node, and then knows the grant. */
UNIT_TEST(a_grant_with_an_id_is_not_withdrawn)
{
    lead(10000);
    come(2);
    come(3);
    struct sl_failover_message m = {
        .type = SL_FAILOVER_RECLAIM, .key = text("k"), GRANT_OF(77, 401, 5000)};
    m.grant.request = text("an id of 16 byte");
    receive(3, m);
    orders();
    RECEIVE(2, WITHDRAW, .origin = 77, .key = text("k"), .fence = 400);
    assert_string_equal(orders(), "");
    assert_true(is_held("k", 401));
}

/* The keeper knows the grant already, from its journal or from another node. */
UNIT_TEST(a_withdrawn_grant_is_not_added_again)
{
    lead(10000);
    come(2);
    come(3);
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT_OF(77, 401, 5000));
    orders();
    RECEIVE(2, WITHDRAW, .origin = 77, .key = text("k"), .fence = 400);
    assert_string_equal(orders(), "release k 401\n");
    assert_false(is_held("k", 401));
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT_OF(77, 401, 5000));
    assert_string_equal(orders(), "3: GONE 1\n");
    assert_false(is_held("k", 401));
}

/* The new keeper itself does not know whether a request of its client was granted. */
UNIT_TEST(a_keeper_does_not_add_grants_that_it_has_withdrawn)
{
    struct sl_withdrawn mine;
    sl_withdrawn_init(&mine, (struct sl_hash_key){7, 0});
    assert_true(sl_withdrawn_add(&mine, 77, text("k"), 400, 90000));
    guests.own = &mine;
    lead(10000);
    come(3);
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT_OF(77, 401, 5000));
    assert_string_equal(orders(), "3: GONE 1\n");
    assert_false(is_held("k", 401));
    sl_withdrawn_free(&mine);
}

UNIT_TEST(a_failed_command_of_a_transaction_is_passed_on)
{
    lead(0);
    come(2);
    RECEIVE(2, FAIL, .session = 5, .bytes = text("TX.PUT"));
    assert_string_equal(orders(), ""); /* There is no such session. */
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    RECEIVE(2, FAIL, .session = 5, .bytes = text("TX.PUT"));
    assert_string_equal(orders(), "fail 5\n");
}

/* --- Reports to other nodes ------------------------------------------------------------------- */

static const char *held(const struct sl_guest *n, const char *key, sl_fence fence,
                        bool fresh)
{
    struct sl_failover_message m[2];
    size_t count = sl_guests_held(&guests, now, n, n->came_ms, text(key), fence, fresh,
                                  m);
    for (size_t i = 0; i < count; i++) say_message(n->node, &m[i]);
    return orders();
}

UNIT_TEST(the_node_of_a_client_learns_of_its_grant)
{
    lead(0);
    come(2);
    RECEIVE(2, CLIENT, .session = 5, .name = text("ann"), .address = text("a"));
    orders();
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    sl_fence fence = acquire(&session[0], "k", 30000);
    now.ms += 20;
    assert_string_equal(held(&guest[0], "k", fence, true),
                        "2: HELD 5 new k after 20\n");
    assert_string_equal(held(&guest[0], "k", fence, false),
                        "2: CLIENT ann\n2: HELD 5 extended k after 20\n");
    assert_string_equal(held(&guest[0], "k", fence + 1, false), "");
}

UNIT_TEST(another_node_learns_of_the_lease_of_a_client_of_the_keeper)
{
    lead(0);
    come(2);
    sl_fence fence = acquire(&own, "k", 30000);
    assert_int_equal(sl_witness_note(&guests.witness, text("k"), fence), 1);
    assert_string_equal(orders(), "2: NOTE k\n2: MARK 1\n");
    assert_int_equal(guests.witness.noted, 0);
    RECEIVE(2, NOTED, .fence = 1);
    assert_int_equal(guests.witness.noted, 1);
    sl_guests_gone(&guests, now.ms, fence, true);
    assert_string_equal(orders(), "2: GONE 1\n");
}

/* The route of the witness ends before it has confirmed the note. */
UNIT_TEST(a_note_that_is_not_confirmed_is_sent_to_another_node)
{
    lead(0);
    come(2);
    come(3);
    sl_fence fence = acquire(&own, "k", 30000);
    sl_witness_note(&guests.witness, text("k"), fence);
    orders();
    sl_guests_unlinked(&guests, now.ms, 2);
    assert_string_equal(orders(), "3: NOTE k\n3: MARK 1\n");
    RECEIVE(3, COME, .term = TERM);
    assert_string_equal(orders(), "3: HERE 7\n");
    RECEIVE(3, CLOCK, .ms = 5000);
    RECEIVE(3, READY, .ms = 0);
    assert_string_equal(orders(), "3: HERE 7\n3: NOTE k\n3: MARK 1\n");
    RECEIVE(2, NOTED, .fence = 1); /* Node 2 has no route. */
    assert_int_equal(guests.witness.noted, 0);
}

/* --- Reclaims --------------------------------------------------------------------------------- */

UNIT_TEST(a_new_keeper_learns_the_grants_of_other_nodes)
{
    lead(60000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    RECEIVE(2, RECLAIM, .session = 5, .key = text("k"), GRANT(10, 30000));
    assert_string_equal(orders(), "given 30062\n");
    RECEIVE(2, RECLAIM, .session = 6, .key = text("l"), GRANT(11, SL_NEVER));
    assert_string_equal(orders(), "");
    RECEIVE(2, CLIENT, .name = text("bob"), .address = text("b"));
    RECEIVE(2, RECLAIM, .session = 0, .key = text("m"), GRANT(12, 20000));
    assert_string_equal(orders(), "given 20042\n");
    assert_true(is_held("k", 10) && is_held("l", 11) && is_held("m", 12));
    struct sl_grant_view v;
    assert_true(sl_table_inspect_grant(table, now, text("m"), 12, &v));
    assert_true(v.name.n == 3 && memcmp(v.name.at, "bob", 3) == 0);
    assert_int_equal(guests.reclaimed, 3);
}

/* After the wait, the keeper has granted locks to others. */
UNIT_TEST(a_grant_that_is_reported_too_late_is_rejected)
{
    lead(5000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    now.ms += 5000;
    RECEIVE(2, RECLAIM, .session = 5, .key = text("k"), GRANT(10, 30000));
    assert_string_equal(orders(), "2: LOST 5 10\n");
    assert_false(is_held("k", 10));
    assert_int_equal(guests.refused, 1);
}

UNIT_TEST(an_unleased_grant_needs_its_holder)
{
    lead(60000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    RECEIVE(2, RECLAIM, .session = 0, .key = text("k"), GRANT(10, SL_NEVER));
    assert_string_equal(orders(), "2: LOST 0 10\n");
}

UNIT_TEST(the_later_of_two_reported_expiries_counts)
{
    struct sl_grant_view v;
    lead(60000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    RECEIVE(2, RECLAIM, .session = 5, .key = text("k"), GRANT(10, 10000));
    orders();
    RECEIVE(3, COME, .term = TERM);
    orders();
    RECEIVE(3, RECLAIM, .session = 0, .key = text("k"), GRANT(10, 40000));
    assert_string_equal(orders(), "given 40082\n");
    assert_true(sl_table_inspect_grant(table, now, text("k"), 10, &v));
    assert_in_range(v.left_ms, 40082, 40100);
}

/* Whether the lease still prevents other grants, although it may have expired. */
static bool is_kept(const char *key, sl_fence fence)
{
    struct sl_grant_view v;
    return sl_table_inspect_grant(table, now, text(key), fence, &v);
}

/* The lease is held until it has certainly expired, and extended while it is certainly valid. The node
 * counts the second time since HERE arrived, so a slow message does not make it longer. */
UNIT_TEST(a_reported_lease_is_not_extended_when_it_may_have_expired)
{
    lead(60000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    now.ms +=
        700; /* The message was slow: 200 ms before it was sent, and 500 ms after. */
    struct sl_failover_message m = {
        .type = SL_FAILOVER_RECLAIM, .ms = 200, .key = text("k"), GRANT(10, 4000)};
    m.grant.unsure_ms = 300;
    receive(2, m);
    orders();
    sl_ms sure_ms = now.ms - 700 + 200 + 3700 -
                    8; /* 3900 / 500 and 1 are for the clocks. */
    now.ms = sure_ms - 1;
    assert_true(is_kept("k", 10) && is_held("k", 10));
    now.ms = sure_ms;
    assert_true(is_kept("k", 10) && !is_held("k", 10));
    now.ms = 1000 + 700 + 4010;
    assert_true(is_kept("k", 10));
    now.ms += 200;
    assert_false(is_kept("k", 10));
}

/* A keeper that was deposed does not know which extensions its clients have learned of. */
UNIT_TEST(a_lease_that_no_node_is_sure_of_is_only_held)
{
    lead(60000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    struct sl_failover_message m = {
        .type = SL_FAILOVER_RECLAIM, .key = text("k"), GRANT(10, 4000)};
    m.grant.unsure_ms = 4000;
    receive(2, m);
    orders();
    assert_true(is_kept("k", 10) && !is_held("k", 10));
    m.grant.unsure_ms = 0; /* Another node knows the lease better. */
    m.grant.left_ms = 3000;
    RECEIVE(3, COME, .term = TERM);
    orders();
    receive(3, m);
    orders();
    now.ms += 2900;
    assert_true(is_held("k", 10));
    now.ms += 1100;
    assert_true(is_kept("k", 10) && !is_held("k", 10));
}

/* A new keeper waits. Node 2 has reported a lease of 5 s, and node 3 has reported nothing yet. */
static void learn_short_lease(void)
{
    lead(60000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    RECEIVE(3, COME, .term = TERM);
    orders();
    RECEIVE(2, RECLAIM, .key = text("k"), GRANT(10, 5000));
    orders();
}

UNIT_TEST(a_lease_that_was_broken_during_the_wait_keeps_the_later_expiry)
{
    struct sl_grant_view v;
    struct sl_ended past;
    learn_short_lease();
    assert_int_equal(sl_table_break(table, now, text("k"), 10, false, &past), 1);
    sl_guests_broke(&guests, now.ms, 10, false);
    assert_string_equal(orders(), ""); /* The ledgers keep the lease. */
    /* The holder has extended its lease through node 3. */
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT(10, 30000));
    orders();
    assert_true(sl_table_inspect_grant(table, now, text("k"), 10, &v));
    assert_true(v.broken && v.left_ms >= 30000);
}

UNIT_TEST(a_lease_that_was_broken_and_has_expired_is_added_with_its_later_expiry)
{
    struct sl_grant_view v;
    struct sl_ended past;
    struct sl_effect e;
    learn_short_lease();
    assert_int_equal(sl_table_break(table, now, text("k"), 10, false, &past), 1);
    sl_guests_broke(&guests, now.ms, 10, false);
    now.ms += 6000;
    while (sl_table_next(table, now, &e)) continue;
    assert_false(sl_table_inspect_grant(table, now, text("k"), 10, &v));
    RECEIVE(3, RECLAIM, .ms = 6000, .key = text("k"), GRANT(10, 30000));
    orders();
    assert_true(sl_table_inspect_grant(table, now, text("k"), 10, &v));
    assert_true(v.broken && v.left_ms >= 30000);
}

/* The journal says that the lease was stolen, and a node that does not know that reports it again. */
UNIT_TEST(a_lease_that_was_stolen_is_not_reported_as_broken)
{
    for (int expired = 0; expired < 2; expired++) {
        struct sl_effect e;
        sl_ms left_ms;
        learn_short_lease();
        struct sl_grant_view v = {.fence = 10,
                                  .leased = true,
                                  .asked = true,
                                  .stolen = true,
                                  .units = 1,
                                  .per = 1,
                                  .buckets = 1,
                                  .end_ms = now.ms + 5000};
        assert_int_equal(sl_table_restore(table, now, &v, text("k")), SLUICE_OK);
        sl_guests_stole(&guests, now.ms, 10);
        if (expired) now.ms += 6000;
        while (sl_table_next(table, now, &e)) continue;
        RECEIVE(3, RECLAIM, .ms = 6000, .key = text("k"), GRANT(10, 30000));
        orders();
        assert_true(sl_table_inspect_grant(table, now, text("k"), 10, &v));
        assert_true(v.stolen && !v.broken && v.left_ms >= 30000);
        const struct sl_session any = {0};
        sl_table_recover(table, 0);
        sl_table_set_authority(table, SL_NEVER);
        assert_int_equal(sl_table_extend(table, now, &any, text("k"), 10, 9000,
                                         (struct sl_bytes){0}, &left_ms),
                         SLUICE_EASKED);
        teardown(NULL);
        setup(NULL);
    }
}

UNIT_TEST(the_mark_of_a_revoked_lease_lasts_until_the_latest_reported_expiry)
{
    struct sl_lock_view v;
    struct sl_ended past;
    struct sl_effect e;
    learn_short_lease();
    assert_int_equal(sl_table_break(table, now, text("k"), 10, true, &past), 2);
    sl_guests_broke(&guests, now.ms, 10, true);
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT(10, 30000));
    assert_string_equal(orders(), "3: GONE 1\n");
    now.ms += 29000;
    while (sl_table_next(table, now, &e)) continue;
    assert_false(is_kept("k", 10));
    assert_true(sl_table_inspect(table, now, text("k"), &v) && v.next_overlaps);
}

/* The client has released its lease, or an operator has broken it, and another node does not know that. */
UNIT_TEST(a_grant_that_ended_during_the_wait_is_not_added_again)
{
    lead(60000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    RECEIVE(3, COME, .term = TERM);
    orders();
    RECEIVE(2, RECLAIM, .key = text("k"), GRANT(10, 30000));
    orders();
    struct sl_ended past;
    assert_int_equal(sl_table_release(table, now, &own, text("k"), 10, &past), 1);
    sl_guests_gone(&guests, now.ms, 10, false);
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT(10, 30000));
    assert_string_equal(orders(), "3: GONE 1\n");
    assert_false(is_kept("k", 10));
    RECEIVE(3, RECLAIM, .key = text("k"), GRANT(11, 30000));
    orders();
    assert_true(is_kept("k", 11));
    sl_guests_stop(&guests);
    orders();
    assert_int_equal(guests.ended.count, 0);
}

/* --- What a ledger lacks ---------------------------------------------------------------------------- */

UNIT_TEST(a_ledger_lacks_leases_that_are_older_than_its_node)
{
    lead(60000);
    come(2); /* It was started just now. */
    assert_int_equal(guests.complete_ms, now.ms + LONGEST + LONGEST / 499 + 2);
    RECEIVE(3, COME, .term = TERM);
    orders();
    guests.complete_ms = 0;
    RECEIVE(3, READY, .ms = 3000);
    orders();
    assert_int_equal(guests.complete_ms, now.ms + LONGEST + 12 - (3000 - 6));
    guests.complete_ms = 0;
    sl_guests_is_complete(&guests, now.ms, 6000);
    assert_int_equal(guests.complete_ms, 0);
    assert_int_equal(guests.reported, 1u << 2 | 1u << 3);
}

/* The next keeper must ask the nodes that had a route, even if they are no longer members. */
UNIT_TEST(a_node_is_needed_until_the_leases_in_its_ledger_have_expired)
{
    guests.volatile_ms = 10000;
    lead(0);
    come(2);
    assert_int_equal(sl_guests_ledgers(&guests, now.ms, 1u << 1), 1u << 1 | 1u << 2);
    sl_guests_unlinked(&guests, now.ms, 2);
    orders();
    assert_int_equal(sl_guests_ledgers(&guests, now.ms + 9999, 0), 1u << 2);
    assert_int_equal(sl_guests_ledgers(&guests, now.ms + 10000, 0), 0);
    guests.barred = 1u << 2;
    RECEIVE(2, COME, .term = TERM);
    assert_string_equal(orders(), "2: NOT 7\n");
}

/* The link broke and was opened again. The keeper still has the grant; the client now has another
 * session. */
UNIT_TEST(an_unleased_grant_follows_its_client_to_a_new_link)
{
    lead(0);
    come(2);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    RECEIVE(2, DO, .session = 6, .bytes = text("x"), .last = true);
    orders();
    sl_fence fence = acquire(&session[0], "k", 0);
    sl_guests_unlinked(&guests, now.ms, 2);
    assert_string_equal(orders(), "close 5, cut\nclose 6, cut\n");
    assert_int_equal(sl_guest_linger_ms(&guest[0], 0), 2000);
    assert_int_equal(sl_guest_linger_ms(&guest[0], 9000), 9000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    RECEIVE(2, RECLAIM, .session = 6, .key = text("k"), GRANT(fence, SL_NEVER));
    char lost[40]; /* It is the grant of another client. */
    snprintf(lost, sizeof lost, "2: LOST 6 %d\n", (int)fence);
    assert_string_equal(orders(), lost);
    RECEIVE(2, RECLAIM, .session = 5, .key = text("k"), GRANT(fence, SL_NEVER));
    assert_string_equal(orders(), "");
    assert_true(is_held("k", fence));
    assert_true(sl_session_holds(&session[3]) && !sl_session_holds(&session[0]));
    RECEIVE(2, READY, .ms = 0);
    orders();
    pass_effects();
    assert_true(is_held("k", fence));
}

/* The clients left while the link was down, or their node was restarted. */
UNIT_TEST(grants_that_a_node_does_not_report_again_end)
{
    lead(0);
    come(2);
    come(3);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    RECEIVE(3, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    sl_fence here = acquire(&session[0], "k", 0), there = acquire(&session[1], "l", 0);
    sl_guests_unlinked(&guests, now.ms, 2);
    orders();
    sl_guests_unlinked(&guests, now.ms, 3);
    orders();
    assert_true(is_held("k", here));
    RECEIVE(2, COME, .term = TERM);
    orders();
    RECEIVE(2, READY, .ms = 0);
    assert_string_equal(orders(), "2: HERE 7\nend 5\n");
    pass_effects();
    assert_false(is_held("k", here));
    assert_true(is_held("l", there)); /* Node 3 may still return. */
}

/* The keeper has closed the session, and its node does not know it yet. A grant for this request could not
 * be withdrawn, because the keeper would not know the origin of the client. */
UNIT_TEST(a_request_of_a_session_that_the_keeper_has_closed_is_ignored)
{
    const struct sl_failover_message late = {
        .type = SL_FAILOVER_DO, .session = 5, .bytes = text("x"), .last = true};
    struct sl_failover_message cut;
    lead(0);
    come(2);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    assert_true(sl_guests_closed(&guests, &guest[0], &cut));
    assert_false(sl_guests_lacks(&guests, 2, &late));
    sl_guests_receive(&guests, now, 2, &late, linked);
    assert_string_equal(orders(), "");
}

/* Its lease remains, but it does not hold a lock without a lease any more. */
UNIT_TEST(a_lease_of_a_session_that_the_keeper_has_closed_is_added)
{
    const struct sl_failover_message leased = {
        .type = SL_FAILOVER_RECLAIM, .session = 5, .key = text("k"), GRANT(10, 30000)};
    const struct sl_failover_message unleased = {.type = SL_FAILOVER_RECLAIM,
                                                 .session = 5,
                                                 .key = text("l"),
                                                 GRANT(11, SL_NEVER)};
    lead(60000);
    RECEIVE(2, COME, .term = TERM);
    orders();
    sl_guests_receive(&guests, now, 2, &leased, linked);
    orders();
    assert_true(is_held("k", 10));
    sl_guests_receive(&guests, now, 2, &unleased, linked);
    assert_string_equal(orders(), "2: LOST 5 11\n");
}

UNIT_TEST(a_new_route_closes_the_sessions_of_the_old_one)
{
    lead(0);
    come(2);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    RECEIVE(2, COME, .term = TERM);
    assert_string_equal(orders(), "2: HERE 7\nclose 5, cut\n");
    assert_false(guests.nodes[2].ready);
}

/* --- The wait for reports ------------------------------------------------------------------------ */

UNIT_TEST(a_new_keeper_waits_for_the_reports_of_all_linked_nodes)
{
    lead(60000);
    assert_int_equal(sl_guests_due(&guests), now.ms + 1000);
    now.ms += 100;
    come(2);
    assert_false(sl_guests_reports_end(&guests, now.ms));
    RECEIVE(3, COME, .term = TERM);
    orders();
    assert_false(sl_guests_reports_end(&guests, now.ms));
    RECEIVE(3, READY, .ms = 0);
    assert_true(sl_guests_reports_end(&guests, now.ms));
    assert_false(sl_guests_reports_end(&guests, now.ms));
}

UNIT_TEST(nodes_learn_for_what_a_new_keeper_waits)
{
    lead(10000);
    RECEIVE(3, COME, .term = TERM);
    orders();
    RECEIVE(2, COME, .term = TERM);
    orders();
    RECEIVE(2, CLOCK, .ms = 5000);
    assert_string_equal(orders(), "2: QUIET 10000 node 2\n");
    RECEIVE(2, READY, .ms = 0);
    orders();
    RECEIVE(2, CLOCK, .ms = 5000);
    assert_string_equal(orders(), "2: QUIET 10000 node 3\n");
    RECEIVE(3, READY, .ms = 0);
    orders();
    assert_true(sl_guests_reports_end(&guests, now.ms));
    now.ms += 4000;
    RECEIVE(2, CLOCK, .ms = 9000);
    assert_string_equal(orders(), "2: QUIET 6000 node 0\n");
    now.ms += 6000;
    RECEIVE(2, CLOCK, .ms = 15000);
    assert_string_equal(orders(), "");
}

UNIT_TEST(a_new_keeper_does_not_wait_for_reports_forever)
{
    lead(60000);
    come(2);
    now.ms += 999;
    assert_false(sl_guests_reports_end(&guests, now.ms));
    now.ms += 1;
    assert_true(sl_guests_reports_end(&guests, now.ms));
}

/* Otherwise DRAIN could turn off a pattern that the journal has. */
UNIT_TEST(the_first_keeper_waits_only_for_its_journal)
{
    sl_guests_lead(&guests, now.ms, TERM, false, LONGEST, linked);
    assert_false(sl_guests_reports_end(&guests, now.ms));
    sl_table_recover(table, SL_NEVER);
    uint32_t node = 7;
    assert_int_equal(sl_guests_quiet_ms(&guests, now.ms, linked, &node), SL_REPORTS_MS);
    assert_int_equal(node, 0); /* It waits for no node. */
    sl_guests_journal_read(&guests);
    assert_true(sl_guests_reports_end(&guests, now.ms));
    assert_true(sl_guests_due(&guests) == SL_NEVER);
}

UNIT_TEST(a_keeper_that_steps_down_closes_all_sessions)
{
    lead(0);
    come(2);
    come(3);
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    orders();
    RECEIVE(3, DO, .session = 6, .bytes = text("x"), .last = true);
    orders();
    sl_guests_gone(&guests, now.ms, 77, false);
    sl_guests_stop(&guests);
    assert_string_equal(orders(), "2: NOT 7\n3: NOT 7\nclose 5, cut\nclose 6, cut\n");
    now.ms += 1000;
    assert_string_equal(orders(), "");
    /* A node that has not received NOT, or that claims to have a route. */
    RECEIVE(2, DO, .session = 5, .bytes = text("x"), .last = true);
    assert_string_equal(orders(), "2: NOT 7\n");
    RECEIVE(4, CLOCK, .ms = 7);
    assert_string_equal(orders(), "4: NOT 7\n");
    RECEIVE(4, GONE);
    assert_string_equal(orders(), "");
}

int main(void)
{
    return run_unit_tests_with("failover_guests", setup, teardown);
}
