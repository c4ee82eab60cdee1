/* test_failover_random.c - clusters of three nodes and their storage in one process: links are cut,
 * nodes are killed, the storage is slow or does not answer, clocks run at different speeds. Clients
 * take locks with and without a lease through all nodes. No two of them hold the same lock at
 * the same time, and grants survive a change of the keeper. */
#include <string.h>

#include "history.h"
#include "test.h"

#include "failover/failover.h"
#include "sluice.h"

enum {
    NODES = 3,
    CLIENTS = 6,
    KEYS = 2,
    GUESTS = 64,
    MESSAGES = 512,
    LEASE_MAX = 3000
};

#define FENCES 1000000000000u /* How many fences a keeper may use. */

static const struct sl_table_limits limits = {.keys_max = 1000,
                                              .waiters_max = 10,
                                              .key_bytes_max = 100,
                                              .value_bytes_max = 100,
                                              .drains_max = 10};

/* --- The world --------------------------------------------------------------------------- */

/* A client, which is connected to one node. */
struct client {
    uint32_t node;
    uint64_t id; /* The id of its session; 0: not connected. */
    struct sl_session session;
    struct sl_route_session route;
    struct sl_route_request request;
    char command[40];
    bool asks;   /* A request is under way. */
    bool leaves; /* It closes its connection, because it could not release its lock. */
    int key;
    sl_ms lease_ms, asked_ms; /* Of the last request, in true time. */
    /* What it believes: it holds the key under this fence until end_ms, in true time. */
    bool holds;
    int held_key;
    sl_fence fence;
    sl_ms end_ms;
    sl_ms works_until; /* It uses its lock, and sends nothing. */
    /* While the client held its lock, the keeper could not reach the storage. Such a keeper does not
     * know whether it was deposed, so it keeps the connections of its own clients. It also ends
     * lingering grants of other nodes' clients, while those nodes see no new heartbeat and keep the
     * connections. So another client may get a lock that this one holds without a lease:
     * docs/cluster.md promises one holder only for leases. */
    bool cut_off;
};

struct guest_of_node {
    struct sl_guest guest;
    struct sl_session session;
    bool used, closed;
    sl_ms linger_end_ms;
};

struct node {
    bool up;
    struct sl_failover f;
    struct sl_table *table;
    struct guest_of_node guests[GUESTS];
    int64_t drift;     /* The clock gains this many milliseconds per 1000 seconds. */
    sl_ms alone_until; /* It reaches neither the storage nor other nodes. */
    bool limits_known; /* The storage knows the limits of this keeper. */
    sl_fence floor;
    struct operation { /* Of the storage, one of each kind at a time. */
        bool busy, executed;
        struct sl_failover_order order;
        sl_ms asked_ms; /* By the clock of the node. */
        sl_ms at_ms;    /* When it is executed, and then when it is answered. */
        struct sl_storage_result result;
    } ops[3];
};

static struct node nodes[NODES + 1];
static struct client clients[CLIENTS];
static struct sl_storage_term stored;
static sl_ms t, storage_down_until;
static uint64_t last_id;
static bool link_up[NODES + 1][NODES + 1];
static struct packet {
    bool used;
    uint32_t from, to;
    sl_ms at_ms;
    uint64_t number; /* Messages of one link arrive in this order. */
    char *bytes;
    size_t n;
} packets[MESSAGES];
static uint64_t packet_number;
static uint64_t granted, forwarded, extended, changes, reclaimed;

static struct sl_now clock_of(const struct node *n)
{
    return (struct sl_now){100000 + t + t * n->drift / 1000000,
                           (uint64_t)(1000000 + t) * 1000};
}

static uint32_t linked_to(uint32_t id)
{
    uint32_t bits = 0;
    for (uint32_t i = 1; i <= NODES; i++)
        if (link_up[id][i]) bits |= 1u << i;
    return bits;
}

/* --- Messages ------------------------------------------------------------------------------ */

static void post(uint32_t from, uint32_t to, const struct sl_failover_message *m)
{
    struct sl_resp_writer w;
    if (to == 0 || to > NODES || !link_up[from][to]) return;
    for (size_t i = 0; i < MESSAGES; i++) {
        if (packets[i].used) continue;
        sl_resp_writer_init(&w, 1 << 20);
        sl_failover_write(&w, m);
        packets[i] = (struct packet){.used = true,
                                     .from = from,
                                     .to = to,
                                     .at_ms = t + (sl_ms)draw_below(8),
                                     .number = ++packet_number};
        packets[i].bytes = sl_resp_take(&w, &packets[i].n);
        return;
    }
    CHECK(false && "there are few messages at a time");
}

static void drop_packets(uint32_t a, uint32_t b)
{
    for (size_t i = 0; i < MESSAGES; i++) {
        struct packet *p = &packets[i];
        if (!p->used || !((p->from == a && p->to == b) || (p->from == b && p->to == a)))
            continue;
        free(p->bytes);
        p->used = false;
    }
}

/* --- Clients ------------------------------------------------------------------------------- */

static const char *const key_names[KEYS] = {"k", "l"};

static struct sl_bytes key_of(int key)
{
    return (struct sl_bytes){key_names[key], 1};
}

/* No other client may believe that it holds the key. */
static void check_alone(const struct client *c)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        const struct client *x = &clients[i];
        if (x == c || !x->holds || x->held_key != c->held_key || x->end_ms <= t)
            continue;
        if (x->end_ms == SL_NEVER && x->cut_off) continue;
        if (history.shown)
            printf("# %d: client %d (fence %d) and client %d (fence %d, until %d)\n",
                   (int)t, (int)(c - clients), (int)c->fence, (int)i, (int)x->fence,
                   (int)x->end_ms);
        CHECK(false && "two clients hold a lock");
    }
}

static bool keeper_is_cut_off(void)
{
    bool alone = false;
    for (uint32_t i = 1; i <= NODES; i++)
        alone |= nodes[i].up && nodes[i].f.route.leads && t < nodes[i].alone_until;
    return alone || t < storage_down_until;
}

/* A reply: G fence, E (extended), R (released), or N (no). */
static void hear(struct client *c, struct sl_bytes reply)
{
    char kind = reply.at[0];
    sl_ms end_ms = c->lease_ms == 0 ? SL_NEVER
                                    : c->asked_ms + c->lease_ms - c->lease_ms / 500;
    c->asks = false;
    if (kind == 'N' && c->command[0] == 'R') c->leaves = true;
    if (kind == 'G') {
        c->holds = true;
        c->held_key = c->key;
        c->fence = strtoull(reply.at + 2, NULL, 10);
        c->end_ms = end_ms;
        c->works_until = t;
        if (draw_one_in(4)) c->works_until += draw_below(draw_one_in(3) ? 12000 : 3000);
        c->cut_off = keeper_is_cut_off();
        granted++;
        check_alone(c);
    } else if (kind == 'E' && end_ms > c->end_ms) {
        c->end_ms = end_ms;
        extended++;
        check_alone(c);
    }
}

/* Run a command of a session at the keeper `id`. Returns the reply. */
static const char *execute(uint32_t id, struct sl_session *s, struct sl_guest *guest,
                           const char *command)
{
    static char reply[40];
    struct node *n = &nodes[id];
    struct sl_now now = clock_of(n);
    struct sl_failover_message m[2];
    struct sl_ended past;
    int key = command[2] - '0';
    char *rest;
    sl_fence fence = strtoull(command + 4, &rest, 10);
    sl_ms lease_ms = strtol(rest, NULL, 10), left_ms;
    bool fresh = command[0] == 'A', good = false;
    strcpy(reply, "N");
    if (!n->limits_known && command[0] != 'R') return reply;
    if (fresh) {
        const struct sl_want want = {.key = key_of(key),
                                     .per = 1,
                                     .buckets = 1,
                                     .units = 1,
                                     .lease_ms = lease_ms};
        struct sl_grant g;
        good = sl_table_acquire(n->table, now, s, &want, &g) == SLUICE_OK;
        if (good) {
            fence = g.fence;
            snprintf(reply, sizeof reply, "G %" PRIu64, fence);
        }
    } else if (command[0] == 'E') {
        good = sl_table_extend(n->table, now, s, key_of(key), fence, lease_ms,
                               (struct sl_bytes){NULL, 0}, &left_ms) == SLUICE_OK;
        if (good) strcpy(reply, "E");
    } else if (sl_table_release(n->table, now, s, key_of(key), fence, &past) == 1) {
        sl_guests_gone(&n->f.guests, now.ms, fence, false);
        strcpy(reply, "R");
    }
    if (!good) return reply;
    size_t count = sl_guests_held(&n->f.guests, now, guest, key_of(key), fence, fresh,
                                  m);
    for (size_t i = 0; i < count; i++) post(id, guest->node, &m[i]);
    return reply;
}

static void close_client(struct client *c)
{
    struct node *n = &nodes[c->node];
    struct sl_failover_message m;
    if (c->id == 0) return;
    if (c->asks && c->route.known && c->route.request != NULL)
        sl_route_withdraw(&n->f.route, &c->request);
    if (sl_route_leave(&n->f.route, &c->route, true, &m))
        post(c->node, n->f.route.keeper, &m);
    if (c->lease_ms == 0 || c->end_ms == SL_NEVER) c->holds = false;
    c->asks = false;
    c->id = 0;
    sl_table_session_end(n->table, &c->session);
}

/* --- Orders ---------------------------------------------------------------------------------- */

static struct guest_of_node *slot_of(struct sl_guest *g)
{
    return sl_container_of(g, struct guest_of_node, guest);
}

static void close_guest(uint32_t id, struct sl_guest *g, bool cut)
{
    struct node *n = &nodes[id];
    struct guest_of_node *slot = slot_of(g);
    struct sl_failover_message m;
    slot->closed = true;
    slot->linger_end_ms = cut ? t + sl_guest_linger_ms(g, 500) + 10 : t;
    if (sl_guests_closed(&n->f.guests, g, &m)) post(id, g->node, &m);
    if (!cut) sl_table_session_end(n->table, &slot->session);
}

static void run(uint32_t id, struct sl_guest *g, struct sl_bytes command)
{
    char text[40];
    memcpy(text, command.at, command.n);
    text[command.n] = '\0';
    const char *reply = execute(id, g->session, g, text);
    g->busy = false;
    const struct sl_failover_message m = {.type = SL_FAILOVER_SAY,
                                          .session = g->id,
                                          .what = SL_SAY_LAST,
                                          .bytes = {reply, strlen(reply)}};
    post(id, g->node, &m);
}

static void fetch_guests(uint32_t id)
{
    struct node *n = &nodes[id];
    struct sl_guests_order o;
    while (sl_guests_next(&n->f.guests, clock_of(n), linked_to(id), &o)) {
        if (o.type == SL_GUESTS_ORDER_SEND) post(id, o.to, &o.message);
        if (o.type == SL_GUESTS_ORDER_RUN) run(id, o.guest, o.message.bytes);
        if (o.type == SL_GUESTS_ORDER_CLOSE) close_guest(id, o.guest, o.cut);
        if (o.type == SL_GUESTS_ORDER_END)
            sl_table_session_end(n->table, o.guest->session);
        if (o.type == SL_GUESTS_ORDER_GIVEN) reclaimed++;
    }
}

static struct client *client_of(const struct sl_route_session *r)
{
    return sl_container_of(r, struct client, route);
}

static void ask(struct client *c);

static void fetch_route(uint32_t id)
{
    struct node *n = &nodes[id];
    struct sl_route_order o;
    while (sl_route_next(&n->f.route, clock_of(n).ms, true, &o)) {
        struct client *c = o.request != NULL
                               ? sl_container_of(o.request, struct client, request)
                           : o.session != NULL ? client_of(o.session)
                                               : NULL;
        if (o.type == SL_ROUTE_ORDER_SEND) post(id, n->f.route.keeper, &o.message);
        if (o.type == SL_ROUTE_ORDER_REPLY) {
            forwarded++;
            hear(c, o.bytes);
        }
        if (o.type == SL_ROUTE_ORDER_ANSWER) hear(c, (struct sl_bytes){"N", 1});
        if (o.type == SL_ROUTE_ORDER_RESUME) ask(c);
        if (o.type == SL_ROUTE_ORDER_CLOSE) close_client(c);
    }
}

static void begin_term(uint32_t id, const struct sl_failover_order *o)
{
    struct node *n = &nodes[id];
    struct sl_now now = clock_of(n);
    uint32_t all = UINT32_MAX;
    if (n->f.route.exporting) CHECK(sl_failover_export(&n->f, now, &all));
    sl_failover_lead(&n->f, now.ms, o, linked_to(id));
    fetch_route(id);
    n->floor = o->before.fence_limit;
    n->limits_known = false;
    sl_table_set_fences(n->table, n->floor, n->floor);
    CHECK(sl_failover_write_limits(&n->f, now.ms, n->floor + FENCES, LEASE_MAX));
    changes++;
    sl_route_resume(&n->f.route);
}

static void end_term(uint32_t id)
{
    struct node *n = &nodes[id];
    fetch_guests(id);
    for (size_t i = 0; i < CLIENTS; i++)
        if (clients[i].node == id && clients[i].id != 0)
            CHECK(sl_route_session_begin(&n->f.route, &clients[i].route,
                                         &clients[i].session) == SLUICE_OK);
}

static void carry_out(uint32_t id, const struct sl_failover_order *o)
{
    struct node *n = &nodes[id];
    if (o->type <= SL_FAILOVER_ORDER_RENEW) {
        CHECK(!n->ops[o->type].busy);
        n->ops[o->type] = (struct operation){.busy = true,
                                             .order = *o,
                                             .asked_ms = clock_of(n).ms,
                                             .at_ms = t + (sl_ms)draw_below(20)};
    } else if (o->type == SL_FAILOVER_ORDER_DOUBT)
        for (uint32_t i = 1; i <= NODES; i++) post(id, i, &o->message);
    else if (o->type == SL_FAILOVER_ORDER_LEAD) begin_term(id, o);
    else if (o->type == SL_FAILOVER_ORDER_STOP) end_term(id);
}

static void settle(uint32_t id)
{
    struct node *n = &nodes[id];
    struct sl_failover_order o;
    struct sl_effect e;
    uint32_t budget = 64;
    sl_ms given_ms;
    if (!n->up) return;
    struct sl_now now = clock_of(n);
    sl_failover_tick(&n->f, now.ms);
    fetch_guests(id);
    fetch_route(id);
    while (sl_failover_next(&n->f, now.ms, &o)) carry_out(id, &o);
    if (n->f.route.exporting) sl_failover_export(&n->f, now, &budget);
    while (sl_failover_reclaim_own(&n->f, now, &given_ms)) reclaimed += given_ms > 0;
    if (sl_guests_reports_end(&n->f.guests, now.ms)) sl_route_resume(&n->f.route);
    for (size_t i = 0; i < GUESTS; i++) {
        struct guest_of_node *g = &n->guests[i];
        if (g->used && g->closed && !g->session.ended && t >= g->linger_end_ms)
            sl_table_session_end(n->table, &g->session);
    }
    while (sl_table_next(n->table, now, &e)) {
        if (e.type == SL_EFFECT_EXPIRED || e.type == SL_EFFECT_ENDED)
            sl_guests_gone(&n->f.guests, now.ms, e.past.fence, false);
        if (e.type == SL_EFFECT_SESSION_OVER)
            for (size_t i = 0; i < GUESTS; i++)
                if (&n->guests[i].session == e.session) {
                    sl_guests_over(&n->f.guests, &n->guests[i].guest);
                    n->guests[i].used = false;
                }
        fetch_guests(id);
    }
    fetch_guests(id);
    fetch_route(id);
    sl_failover_check(&n->f);
    sl_table_check(n->table);
}

/* Send the command of a client to its node. */
static void ask(struct client *c)
{
    struct node *n = &nodes[c->node];
    struct sl_route *r = &n->f.route;
    bool needs_reports = c->command[0] != 'A' && n->f.guests.reports_until_ms != 0;
    c->asks = true;
    if (r->leads && !needs_reports) {
        const char *reply = execute(c->node, &c->session, NULL, c->command);
        hear(c, (struct sl_bytes){reply, strlen(reply)});
        return;
    }
    CHECK(sl_route_session_begin(r, &c->route, &c->session) == SLUICE_OK);
    c->request = (struct sl_route_request){
        .verb = c->command[0] == 'A'   ? SL_ROUTE_ACQUIRE
                : c->command[0] == 'R' ? SL_ROUTE_RELEASE
                                       : SL_ROUTE_OTHER,
        .arrived_ms = clock_of(n).ms,
        .bytes = {c->command, strlen(c->command)}};
    if (c->command[0] == 'R')
        c->request.released_fence = sl_route_released(r, &c->route, key_of(c->key),
                                                      c->fence);
    sl_route_submit(r, &c->route, &c->request);
}

static void act(struct client *c)
{
    if (!nodes[c->node].up || c->asks || (c->holds && t < c->works_until)) return;
    if (c->leaves && c->id != 0) {
        close_client(c);
        c->leaves = false;
        return;
    }
    c->leaves = false;
    if (c->id == 0) {
        memset(&c->route, 0, sizeof c->route);
        c->id = ++last_id;
        sl_session_begin(&c->session, c->id, 0);
    }
    if (c->holds && c->end_ms <= t) c->holds = false;
    if (c->holds && c->end_ms != SL_NEVER && draw_one_in(2)) {
        c->key = c->held_key;
        c->asked_ms = t;
        c->lease_ms = 100 + (sl_ms)draw_below(LEASE_MAX - 100);
        snprintf(c->command, sizeof c->command, "E %d %" PRIu64 " %d", c->key, c->fence,
                 (int)c->lease_ms);
    } else if (c->holds) {
        c->holds = false;
        c->key = c->held_key;
        snprintf(c->command, sizeof c->command, "R %d %" PRIu64 " 0", c->key, c->fence);
    } else {
        c->key = (int)draw_below(KEYS);
        c->asked_ms = t;
        c->end_ms = 0;
        c->lease_ms = draw_one_in(3) ? 0 : 100 + (sl_ms)draw_below(LEASE_MAX - 100);
        snprintf(c->command, sizeof c->command, "A %d 0 %d", c->key, (int)c->lease_ms);
    }
    ask(c);
}

/* --- The storage ------------------------------------------------------------------------------ */

static void execute_op(uint32_t id, struct operation *op)
{
    const struct sl_failover_order *o = &op->order;
    bool current = stored.term == o->term;
    op->executed = true;
    op->at_ms = t + (sl_ms)draw_below(20);
    op->result = (struct sl_storage_result){.status = SLUICE_OK};
    if (t < storage_down_until || t < nodes[id].alone_until) {
        op->result.status = SLUICE_EIO;
        return;
    }
    if (o->type == SL_FAILOVER_ORDER_CLAIM) {
        if (current && (o->heartbeat == 0 || o->heartbeat == stored.heartbeat)) {
            stored.term++;
            op->result.term_record = stored;
            stored.node = id;
            stored.heartbeat++;
        } else op->result.status = SLUICE_ESTALE;
    } else if (o->type == SL_FAILOVER_ORDER_RENEW) {
        if (current) {
            stored.heartbeat++;
            stored.fence_limit = o->fence_limit;
            stored.longest_ms = o->longest_ms;
        } else op->result.status = SLUICE_ESTALE;
    }
    if (o->type != SL_FAILOVER_ORDER_CLAIM || op->result.status != SLUICE_OK)
        op->result.term_record = stored;
    op->result.term = stored.term;
}

static void answer_op(uint32_t id, struct operation *op)
{
    struct node *n = &nodes[id];
    struct sl_now now = clock_of(n);
    op->busy = false;
    if (op->order.type == SL_FAILOVER_ORDER_READ_TERM)
        sl_failover_term_read(&n->f, now.ms, op->asked_ms, &op->result);
    else if (op->order.type == SL_FAILOVER_ORDER_CLAIM)
        sl_failover_claimed(&n->f, now.ms, op->asked_ms, &op->result);
    else if (sl_failover_renewed(&n->f, now.ms, op->asked_ms, op->order.term,
                                 &op->result)) {
        if (op->result.status == SLUICE_OK) {
            n->limits_known = true;
            sl_table_set_fences(n->table, n->floor, op->order.fence_limit);
        } else if (n->f.route.leads)
            sl_failover_write_limits(&n->f, now.ms, op->order.fence_limit, LEASE_MAX);
    }
}

/* --- Faults ----------------------------------------------------------------------------------- */

static void set_link(uint32_t a, uint32_t b, bool up)
{
    if (a == b || link_up[a][b] == up) return;
    if (up && (t < nodes[a].alone_until || t < nodes[b].alone_until)) return;
    link_up[a][b] = link_up[b][a] = up;
    if (!up) drop_packets(a, b);
    for (int i = 0; i < 2; i++) {
        uint32_t id = i == 0 ? a : b, other = i == 0 ? b : a;
        struct node *n = &nodes[id];
        if (!n->up) continue;
        sl_ms now_ms = clock_of(n).ms;
        if (up) sl_failover_linked(&n->f, now_ms, other);
        else {
            sl_failover_unlinked(&n->f, now_ms, other);
            sl_failover_sight(&n->f, now_ms, other,
                              nodes[other].up ? SL_PEER_SILENT : SL_PEER_CLOSED);
        }
        settle(id);
    }
}

static void start(uint32_t id)
{
    static const uint32_t ids[] = {1, 2, 3};
    struct node *n = &nodes[id];
    struct sl_now now = clock_of(n);
    int64_t drift = n->drift;
    sl_ms alone_until = n->alone_until;
    memset(n, 0, sizeof *n);
    n->drift = drift;
    n->alone_until = alone_until;
    n->table = sl_table_new(&limits, (struct sl_hash_key){7, 0});
    const struct sl_failover_settings s = {
        .self = id, .keeper_wait_ms = 5000, .hash_key = {7, 0}, .table = n->table};
    CHECK(n->table != NULL && sl_failover_init(&n->f, &s, now.ms));
    n->up = true;
    sl_election_members(n->f.election, now.ms, ids, NODES);
    for (uint32_t i = 1; i <= NODES; i++)
        if (nodes[i].up) set_link(id, i, true);
}

/* The process dies. Its clients see that their connections are closed, and stop using locks without
 * a lease. */
static void kill_node(uint32_t id)
{
    struct node *n = &nodes[id];
    if (!n->up) return;
    for (size_t i = 0; i < CLIENTS; i++)
        if (clients[i].node == id) close_client(&clients[i]);
    n->up = false;
    for (uint32_t i = 1; i <= NODES; i++) set_link(id, i, false);
    sl_failover_free(&n->f);
    sl_table_free(n->table);
}

static void receive(struct packet *p)
{
    struct node *n = &nodes[p->to];
    static const struct sl_resp_limits wire = {.args_max = 128,
                                               .bulk_bytes_max = 65536,
                                               .command_bytes_max = 1 << 20,
                                               .inline_bytes_max = 64};
    struct sl_resp_reader *reader = sl_resp_reader_new(&wire);
    struct sl_args args;
    struct sl_failover_message m;
    sl_fence gone[SL_GONE_MAX];
    char *at;
    size_t done = 0;
    while (done < p->n) {
        size_t part = sl_resp_room(reader, &at);
        if (part > p->n - done) part = p->n - done;
        memcpy(at, p->bytes + done, part);
        sl_resp_filled(reader, part);
        done += part;
    }
    CHECK(sl_resp_next(reader, &args) == 1 && sl_failover_read(&args, gone, &m));
    for (size_t i = 0; i < GUESTS && sl_guests_lacks(&n->f.guests, p->from, &m); i++) {
        struct guest_of_node *g = &n->guests[i];
        if (g->used) continue;
        *g = (struct guest_of_node){.used = true};
        sl_session_begin(&g->session, ++last_id, 0);
        CHECK(sl_guests_open(&n->f.guests, &g->guest, p->from, m.session,
                             &g->session) == SLUICE_OK);
    }
    sl_failover_receive(&n->f, clock_of(n), p->from, &m, (struct sl_bytes){"c", 1},
                        (struct sl_bytes){"a", 1}, linked_to(p->to));
    settle(p->to);
    sl_resp_reader_free(reader);
}

static void deliver(void)
{
    for (;;) {
        struct packet *first = NULL;
        for (size_t i = 0; i < MESSAGES; i++) {
            struct packet *p = &packets[i];
            if (p->used && (first == NULL || p->number < first->number)) {
                /* An earlier message of the same link comes first. */
                if (p->at_ms <= t) first = p;
            }
        }
        if (first == NULL) return;
        for (size_t i = 0; i < MESSAGES; i++)
            if (packets[i].used && packets[i].from == first->from &&
                packets[i].to == first->to && packets[i].number < first->number)
                first = &packets[i];
        struct packet p = *first;
        first->used = false;
        receive(&p);
        free(p.bytes);
    }
}

/* Cut a node off from all others and from the storage. Its clients still reach it. */
static void isolate(uint32_t id)
{
    for (uint32_t i = 1; i <= NODES; i++) set_link(id, i, false);
    nodes[id].alone_until = t + 2000 + draw_below(8000);
}

static void inject(bool healed)
{
    uint32_t a = 1 + (uint32_t)draw_below(NODES), b = 1 + (uint32_t)draw_below(NODES);
    if (healed) {
        for (a = 1; a <= NODES; a++) nodes[a].alone_until = 0;
        for (a = 1; a <= NODES; a++)
            if (!nodes[a].up) start(a);
        for (a = 1; a <= NODES; a++)
            for (b = 1; b <= NODES; b++) set_link(a, b, true);
        storage_down_until = 0;
    } else if (draw_one_in(3000)) kill_node(a);
    else if (draw_one_in(3000)) isolate(a);
    else if (draw_one_in(300) && !nodes[a].up) start(a);
    else if (draw_one_in(1000)) set_link(a, b, false);
    else if (draw_one_in(200) && nodes[a].up && nodes[b].up) set_link(a, b, true);
    else if (draw_one_in(5000)) storage_down_until = t + (sl_ms)draw_below(6000);
}

static void step(bool healed)
{
    t += 1 + (sl_ms)draw_below(5);
    inject(healed);
    for (size_t i = 0; i < CLIENTS; i++) clients[i].cut_off |= keeper_is_cut_off();
    deliver();
    for (uint32_t id = 1; id <= NODES; id++) {
        struct node *n = &nodes[id];
        for (size_t i = 0; n->up && i < 3; i++) {
            struct operation *op = &n->ops[i];
            if (op->busy && !op->executed && op->at_ms <= t) execute_op(id, op);
            else if (op->busy && op->executed && op->at_ms <= t) answer_op(id, op);
        }
        if (n->up && t % 1000 < 5) sl_route_second(&n->f.route, clock_of(n).ms, false);
        settle(id);
    }
    struct client *c = &clients[draw_below(CLIENTS)];
    if (draw_one_in(4)) act(c);
    settle(c->node);
}

static void play(uint64_t number)
{
    (void)number;
    memset(clients, 0, sizeof clients);
    memset(nodes, 0, sizeof nodes);
    memset(link_up, 0, sizeof link_up);
    stored = (struct sl_storage_term){0};
    t = storage_down_until = 0;
    last_id = 100;
    for (size_t i = 0; i < CLIENTS; i++) clients[i].node = 1 + (uint32_t)(i % NODES);
    for (uint32_t i = 1; i <= NODES; i++) {
        nodes[i].drift = (int64_t)draw_below(2001) - 1000;
        start(i);
    }
    for (int i = 0; i < 10000; i++) step(false);
    uint64_t before = granted;
    for (int i = 0; i < 6000; i++) step(true);
    CHECK(granted > before); /* After the faults, locks are granted again. */
    for (uint32_t i = 1; i <= NODES; i++) kill_node(i);
}

UNIT_TEST(no_two_clients_hold_a_lock)
{
    if (!play_histories("test_failover_random", 100, play)) return;
    print_message("# %d grants, %d extensions, %d replies forwarded, %d terms, %d "
                  "leases reclaimed\n",
                  (int)granted, (int)extended, (int)forwarded, (int)changes,
                  (int)reclaimed);
    assert_true(granted > 1000 && extended > 100 && forwarded > 1000);
    assert_true(changes > 20 && reclaimed > 10);
}

int main(void)
{
    return run_unit_tests("failover_random");
}
