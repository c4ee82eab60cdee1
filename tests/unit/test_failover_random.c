/* test_failover_random.c - clusters of three nodes and their storage in one process: links are cut,
 * nodes are killed, the storage is slow or does not answer, clocks run at different speeds. Clients
 * take locks with and without a lease through all nodes. No two of them hold the same lock at
 * the same time, and grants survive a change of the keeper. No lease remains that no client knows
 * of. */
#include <string.h>

#include "history.h"
#include "test.h"

#include "failover/failover.h"
#include "sluice.h"

enum {
    NODES = 3,
    CLIENTS = 6,
    KEYS = 2,
    ASKS = 1 << 16,
    GUESTS = 64,
    MESSAGES = 512,
    PARKED = 64,
    ROWS = 512,
    VOLATILE = 1000,
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
    uint32_t ask;             /* The number of its last ACQUIRE. */
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
    uint64_t life;     /* The number of its process. */
    int64_t drift;     /* The clock gains this many milliseconds per 1000 seconds. */
    sl_ms alone_until; /* It reaches neither the storage nor other nodes. */
    bool limits_known; /* The storage knows the limits of this keeper. */
    sl_fence floor;
    struct parked { /* A reply that waits for the journal. */
        bool used;
        uint64_t position;
        struct client *c;   /* It is for a client of this node, */
        uint64_t client_id; /* with this session; or */
        struct sl_guest *guest;
        int key;
        sl_fence fence;
        bool fresh;
        char reply[40];
    } parked[PARKED];
    struct operation { /* Of the storage, one of each kind at a time. */
        bool busy, executed;
        struct sl_failover_order order;
        sl_ms asked_ms; /* By the clock of the node. */
        sl_ms at_ms;    /* When it is executed, and then when it is answered. */
        struct sl_storage_result result;
        bool lost; /* It is executed, but not answered. */
    } ops[SL_FAILOVER_ORDER_JOURNAL + 1];
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
static uint32_t cut_next[2]; /* The link between these nodes breaks next; 0: none. */
static uint64_t granted, forwarded, extended, changes, reclaimed, withdrawn, recorded,
    restored;

/* Every ACQUIRE, by number. */
static struct ask {
    uint32_t node;
    uint64_t life;     /* Of the node. */
    sl_fence fence[2]; /* Of its last two grants; 0: none. */
    sl_fence told;     /* The client knows of this grant; 0: of none. */
    bool under_way;    /* The client waits for the reply. */
    sl_ms end_ms;      /* When its client got another reply, or left. */
} asks[ASKS];
static uint32_t ask_count;
static uint64_t lives;

/* The journal in the storage, sorted by key. */
static struct row {
    char key[32], value[160];
    size_t key_bytes, value_bytes;
} rows[ROWS];
static size_t row_count;

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
    if (c->end_ms <= t) return; /* The reply came too late. */
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

/* The client got the reply to its ACQUIRE, or left. */
static void end_ask(const struct client *c, sl_fence told)
{
    struct ask *a = &asks[c->ask];
    if (c->command[0] != 'A' || !a->under_way) return;
    a->under_way = false;
    a->told = told;
    a->end_ms = t;
}

static const struct ask *ask_of(sl_fence fence)
{
    for (uint32_t i = ask_count; i > 0; i--)
        if (asks[i].fence[0] == fence || asks[i].fence[1] == fence) return &asks[i];
    CHECK(false && "every grant is recorded");
    return NULL;
}

/* The keeper rejects an ACQUIRE, because another grant has the lock. The client of that grant must
 * know of it, or still wait for the reply. Its node has told the keeper of all other grants on its
 * current route, before READY; and on an open route, soon after its client has left. */
static void check_holder(uint32_t keeper, uint32_t ask, sl_fence fence)
{
    const struct ask *a = ask_of(fence);
    const struct sl_route *r = &nodes[a->node].f.route;
    bool own = a == &asks[ask];
    bool known = a->told == fence || (a->under_way && !own);
    bool reported = nodes[a->node].up && nodes[a->node].life == a->life && r->open &&
                    r->keeper == keeper &&
                    nodes[keeper].f.guests.nodes[a->node].ready && t - a->end_ms > 50;
    if (history.shown && !known && (own || reported))
        printf("# %d: grant %d of an ACQUIRE of node %u, at keeper %u\n", (int)t,
               (int)fence, a->node, keeper);
    CHECK(!own && "an ACQUIRE that is sent again finds its own grant");
    CHECK((known || !reported) && "a lease remains that no client knows of");
}

/* A keeper releases a grant that no client knows of. */
static void check_unknown(sl_fence fence)
{
    CHECK(ask_of(fence)->told != fence && "a lease that a client knows of is released");
    withdrawn++;
}

/* A reply: G fence, E (extended), R (released), or N (no). */
static void hear(struct client *c, struct sl_bytes reply)
{
    char kind = reply.at[0];
    /* Clocks drift, and are rounded down. */
    sl_ms end_ms = c->lease_ms == 0 ? SL_NEVER
                                    : c->asked_ms + c->lease_ms - c->lease_ms / 500 - 1;
    end_ask(c, kind == 'G' ? strtoull(reply.at + 2, NULL, 10) : 0);
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

static void park(struct node *n, struct client *c, struct sl_guest *guest, int key,
                 sl_fence fence, bool fresh, const char *reply)
{
    size_t i = 0;
    while (i < PARKED && n->parked[i].used) i++;
    CHECK(i < PARKED);
    n->parked[i] = (struct parked){.used = true,
                                   .position = n->f.journal.need,
                                   .c = c,
                                   .client_id = c != NULL ? c->id : 0,
                                   .guest = guest,
                                   .key = key,
                                   .fence = fence,
                                   .fresh = fresh};
    strcpy(n->parked[i].reply, reply);
}

/* Run a command of a session at the keeper `id`. Returns the reply; NULL: it comes later. */
static const char *execute(uint32_t id, struct client *c, struct sl_session *s,
                           struct sl_guest *guest, const char *command)
{
    static char reply[40];
    struct node *n = &nodes[id];
    struct sl_now now = clock_of(n);
    struct sl_failover_message m[2];
    struct sl_ended past;
    int key = command[2] - '0';
    char *rest;
    sl_fence fence = strtoull(command + 4, &rest, 10);
    sl_ms lease_ms = strtol(rest, &rest, 10), left_ms;
    uint32_t ask = (uint32_t)strtoul(rest, NULL, 10);
    bool fresh = command[0] == 'A', good = false;
    strcpy(reply, "N");
    if (!n->limits_known && command[0] != 'R') return reply;
    sl_keeper_journal_change(&n->f.journal, now.ms);
    if (fresh) {
        const struct sl_want want = {.key = key_of(key),
                                     .per = 1,
                                     .buckets = 1,
                                     .units = 1,
                                     .lease_ms = lease_ms};
        struct sl_grant g;
        struct sl_grant_view v;
        int status = sl_table_acquire(n->table, now, s, &want, &g);
        good = status == SLUICE_OK;
        if (status == SLUICE_EFULL && sl_table_newest(n->table, now, want.key, &v) &&
            v.leased)
            check_holder(id, ask, v.fence);
        if (good) {
            fence = g.fence;
            asks[ask].fence[1] = asks[ask].fence[0];
            asks[ask].fence[0] = fence;
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
    if (n->f.journal.need != 0) {
        CHECK(n->f.journal.need != SL_JOURNAL_FAILED);
        park(n, c, guest, key, fence, fresh, reply);
        if (guest == NULL) return NULL; /* The reply comes later. */
    }
    size_t count = sl_guests_held(&n->f.guests, now, guest, key_of(key), fence, fresh,
                                  m);
    for (size_t i = 0; i < count; i++) post(id, guest->node, &m[i]);
    return n->f.journal.need != 0 ? NULL : reply;
}

static void close_client(struct client *c)
{
    struct node *n = &nodes[c->node];
    struct sl_failover_message m;
    if (c->id == 0) return;
    if (c->asks && c->route.known && c->route.request != NULL)
        sl_route_withdraw(&n->f.route, clock_of(n).ms, &c->request);
    end_ask(c, 0);
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
    for (size_t i = 0; i < PARKED; i++) {
        struct parked *p = &n->parked[i];
        if (!p->used || p->guest != g) continue;
        const struct sl_grant unknown = {.fence = p->fence};
        if (p->fresh)
            sl_table_take_back(n->table, clock_of(n), g->session, key_of(p->key),
                               &unknown);
        p->used = false;
    }
    struct guest_of_node *slot = slot_of(g);
    struct sl_failover_message m;
    slot->closed = true;
    slot->linger_end_ms = cut ? t + sl_guest_linger_ms(g, 500) + 10 : t;
    if (sl_guests_closed(&n->f.guests, g, &m)) post(id, g->node, &m);
    if (!cut) sl_table_session_end(n->table, &slot->session);
}

static void say_to_guest(uint32_t id, struct sl_guest *g, const char *reply);

static void run(uint32_t id, struct sl_guest *g, struct sl_bytes command)
{
    char text[40];
    memcpy(text, command.at, command.n);
    text[command.n] = '\0';
    const char *reply = execute(id, NULL, g->session, g, text);
    if (reply != NULL) say_to_guest(id, g, reply);
}

static void say_to_guest(uint32_t id, struct sl_guest *g, const char *reply)
{
    g->busy = false;
    const struct sl_failover_message m = {.type = SL_FAILOVER_SAY,
                                          .session = g->id,
                                          .what = SL_SAY_LAST,
                                          .bytes = {reply, strlen(reply)}};
    post(id, g->node, &m);
    if (reply[0] == 'G' && draw_one_in(50)) { /* The reply is lost. */
        cut_next[0] = id;
        cut_next[1] = g->node;
    }
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
        if (o.type == SL_GUESTS_ORDER_RELEASE) {
            const struct sl_session any = {0};
            struct sl_ended past;
            check_unknown(o.message.fence);
            CHECK(sl_table_release(n->table, clock_of(n), &any, o.message.key,
                                   o.message.fence, &past) == 1);
            sl_guests_gone(&n->f.guests, clock_of(n).ms, o.message.fence, false);
        }
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
    CHECK(sl_failover_write_limits(&n->f, now.ms, n->floor + FENCES, VOLATILE));
    changes++;
    sl_route_resume(&n->f.route);
}

/* The replies that wait for the journal of a keeper that was deposed. */
static void requeue(uint32_t id)
{
    struct node *n = &nodes[id];
    for (size_t i = 0; i < PARKED; i++) {
        struct parked *p = &n->parked[i];
        if (!p->used) continue;
        p->used = false;
        CHECK(p->c != NULL); /* The guests are closed. */
        if (p->c->id != p->client_id) continue;
        const struct sl_grant unknown = {.fence = p->fence};
        const struct sl_bytes none = {0};
        if (p->fresh) {
            sl_table_take_back(n->table, clock_of(n), &p->c->session, key_of(p->key),
                               &unknown);
            sl_route_withdraw_own(&n->f.route, clock_of(n).ms, &p->c->session,
                                  key_of(p->key), p->fence, p->c->lease_ms);
            CHECK(sl_table_describe(n->table, &p->c->session, none, none) == SLUICE_OK);
        }
        ask(p->c);
    }
}

static void end_term(uint32_t id)
{
    struct node *n = &nodes[id];
    fetch_guests(id);
    for (size_t i = 0; i < CLIENTS; i++)
        if (clients[i].node == id && clients[i].id != 0)
            CHECK(sl_route_session_begin(&n->f.route, &clients[i].route,
                                         &clients[i].session) == SLUICE_OK);
    requeue(id);
}

/* More of the journal is durable. */
static void deliver_parked(uint32_t id)
{
    struct node *n = &nodes[id];
    uint64_t durable = sl_journal_durable(n->f.journal.rules);
    struct sl_failover_message m[2];
    for (size_t i = 0; i < PARKED; i++) {
        struct parked *p = &n->parked[i];
        if (!p->used || p->position > durable) continue;
        p->used = false;
        if (p->guest == NULL && p->c->id != p->client_id) continue;
        size_t count = sl_guests_held(&n->f.guests, clock_of(n), p->guest,
                                      key_of(p->key), p->fence, p->fresh, m);
        for (size_t k = 0; k < count; k++) post(id, p->guest->node, &m[k]);
        if (p->guest != NULL) say_to_guest(id, p->guest, p->reply);
        else hear(p->c, (struct sl_bytes){p->reply, strlen(p->reply)});
    }
}

static void carry_out(uint32_t id, const struct sl_failover_order *o)
{
    struct node *n = &nodes[id];
    if (o->type <= SL_FAILOVER_ORDER_JOURNAL) {
        CHECK(!n->ops[o->type].busy);
        n->ops[o->type] = (struct operation){.busy = true,
                                             .order = *o,
                                             .asked_ms = clock_of(n).ms,
                                             .at_ms = t + (sl_ms)draw_below(20),
                                             .lost = draw_one_in(50)};
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
        const char *reply = execute(c->node, c, &c->session, NULL, c->command);
        if (reply != NULL) hear(c, (struct sl_bytes){reply, strlen(reply)});
        return;
    }
    CHECK(sl_route_session_begin(r, &c->route, &c->session) == SLUICE_OK);
    c->request = (struct sl_route_request){
        .verb = c->command[0] == 'A'   ? SL_ROUTE_ACQUIRE
                : c->command[0] == 'R' ? SL_ROUTE_RELEASE
                                       : SL_ROUTE_OTHER,
        .arrived_ms = clock_of(n).ms,
        .key = key_of(c->key),
        .lease_ms = c->command[0] == 'A' ? c->lease_ms : 0,
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
        c->session.origin = sl_route_draw_origin(&nodes[c->node].f.route);
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
        CHECK(ask_count + 1 < ASKS);
        c->ask = ++ask_count;
        asks[c->ask] = (struct ask){
            .node = c->node, .life = nodes[c->node].life, .under_way = true};
        snprintf(c->command, sizeof c->command, "A %d 0 %d %u", c->key,
                 (int)c->lease_ms, c->ask);
    }
    ask(c);
}

/* --- The storage ------------------------------------------------------------------------------ */

static int compare_keys(struct sl_bytes a, struct sl_bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n == 0 ? 0 : memcmp(a.at, b.at, n);
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

static struct sl_bytes row_key(size_t i)
{
    return (struct sl_bytes){rows[i].key, rows[i].key_bytes};
}

static void write_row(const struct sl_storage_write *w)
{
    size_t i = 0;
    while (i < row_count && compare_keys(row_key(i), w->key) < 0) i++;
    bool found = i < row_count && compare_keys(row_key(i), w->key) == 0;
    if (found && w->value.at == NULL)
        memmove(&rows[i], &rows[i + 1], (--row_count - i) * sizeof rows[0]);
    if (w->value.at == NULL) return;
    CHECK(row_count < ROWS && w->key.n <= sizeof rows[i].key &&
          w->value.n <= sizeof rows[i].value);
    if (!found) memmove(&rows[i + 1], &rows[i], (row_count++ - i) * sizeof rows[0]);
    rows[i].key_bytes = w->key.n;
    rows[i].value_bytes = w->value.n;
    memcpy(rows[i].key, w->key.at, w->key.n);
    memcpy(rows[i].value, w->value.at, w->value.n);
    recorded++;
}

/* Read a page of the journal, which has few rows. */
static void read_rows(struct operation *op)
{
    static struct sl_storage_row page[3];
    uint32_t n = 0;
    for (size_t i = 0; i < row_count; i++) {
        if (compare_keys(row_key(i), op->order.after) <= 0) continue;
        op->result.more = n == 3;
        if (n == 3) break;
        page[n++] = (struct sl_storage_row){row_key(i),
                                            {rows[i].value, rows[i].value_bytes}};
    }
    op->result.rows = page;
    op->result.row_count = n;
    restored += n;
}

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
            stored.clock_ms = o->clock_ms;
        } else op->result.status = SLUICE_ESTALE;
    } else if (o->type == SL_FAILOVER_ORDER_RENEW) {
        if (current) {
            stored.heartbeat++;
            stored.fence_limit = o->fence_limit;
            stored.longest_ms = o->longest_ms;
            stored.clock_ms = o->clock_ms;
        } else op->result.status = SLUICE_ESTALE;
    }
    if (o->type == SL_FAILOVER_ORDER_RECORD && current)
        for (uint32_t i = 0; i < o->write_count; i++) write_row(&o->writes[i]);
    else if (o->type == SL_FAILOVER_ORDER_RECORD) op->result.status = SLUICE_ESTALE;
    if (o->type != SL_FAILOVER_ORDER_CLAIM || op->result.status != SLUICE_OK)
        op->result.term_record = stored;
    op->result.term = stored.term;
    if (op->lost && o->type != SL_FAILOVER_ORDER_RECORD) op->result.status = SLUICE_EIO;
}

static void answer_op(uint32_t id, struct operation *op)
{
    struct node *n = &nodes[id];
    struct sl_now now = clock_of(n);
    uint32_t bad;
    op->busy = false;
    if (op->order.type == SL_FAILOVER_ORDER_JOURNAL) {
        if (op->result.status == SLUICE_OK) read_rows(op);
        CHECK(sl_failover_journal_read(&n->f, now, op->order.term, &op->result, &bad) ==
              SLUICE_OK);
    } else if (op->order.type == SL_FAILOVER_ORDER_RECORD) {
        if (sl_failover_recorded(&n->f, now.ms, op->order.term, &op->result))
            deliver_parked(id);
    } else if (op->order.type == SL_FAILOVER_ORDER_READ_TERM)
        sl_failover_term_read(&n->f, now.ms, op->asked_ms, &op->result);
    else if (op->order.type == SL_FAILOVER_ORDER_CLAIM)
        sl_failover_claimed(&n->f, now.ms, op->asked_ms, &op->result);
    else if (sl_failover_renewed(&n->f, now.ms, op->asked_ms, op->order.term,
                                 &op->result)) {
        if (op->result.status == SLUICE_OK) {
            n->limits_known = true;
            sl_table_set_fences(n->table, n->floor, op->order.fence_limit);
        } else if (n->f.route.leads)
            sl_failover_write_limits(&n->f, now.ms, op->order.fence_limit, VOLATILE);
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
    const struct sl_failover_settings s = {.self = id,
                                           .keeper_wait_ms = 5000,
                                           .hash_key = {7, ++lives},
                                           .table = n->table,
                                           .volatile_ms = VOLATILE,
                                           .entries_max = 3,
                                           .entry_bytes_max = 1000};
    n->life = lives;
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
    if (cut_next[0] != 0 && !healed) set_link(cut_next[0], cut_next[1], false);
    cut_next[0] = 0;
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
        for (size_t i = 0; n->up && i <= SL_FAILOVER_ORDER_JOURNAL; i++) {
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
    cut_next[0] = 0;
    row_count = 0;
    last_id = 100;
    ask_count = 0;
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
                  "leases reclaimed, %d withdrawn, %d entries recorded, %d restored\n",
                  (int)granted, (int)extended, (int)forwarded, (int)changes,
                  (int)reclaimed, (int)withdrawn, (int)recorded, (int)restored);
    assert_true(recorded > 1000 && restored > 10);
    assert_true(granted > 1000 && extended > 100 && forwarded > 1000);
    assert_true(changes > 20 && reclaimed > 10 && withdrawn > 10);
}

int main(void)
{
    return run_unit_tests("failover_random");
}
