/* keeper_node.c - nodes: they receive messages, carry out orders, become the keeper and step down.
 * Follows src/server/forward/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

#define PAGE_ROWS 3u /* So that the journal rarely fits into one page. */
#define WALL_START_US 1700000000000000
#define TURNS_MAX \
    200 /* This many loop iterations in a row without a message are a busy loop. */

static const struct sl_table_limits limits_of_all = {.keys_max = 64,
                                                     .waiters_max = 32,
                                                     .key_bytes_max = 64,
                                                     .value_bytes_max = UINT16_MAX,
                                                     .drains_max = 8,
                                                     .requests_max = 65536,
                                                     .request_keep_ms = KSIM_KEEP_MS,
                                                     .grain_ms = 1};

struct sl_now ksim_node_now(const struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    return (struct sl_now){
        .ms = sim_clock_us(&n->clock, w->now_us) / 1000,
        .wall_us = (uint64_t)(WALL_START_US + w->now_us + n->wall_off_us)};
}

bool ksim_node_runs(const struct ksim_world *w, uint32_t i)
{
    return w->nodes[i].up && w->now_us >= w->nodes[i].paused_us && !w->nodes[i].stopped;
}

uint32_t ksim_node_linked(const struct ksim_world *w, uint32_t i)
{
    uint32_t bits = 0;
    for (uint32_t o = 0; o < w->node_count; o++)
        if (w->nodes[i].links[o].up) bits |= 1u << (o + 1);
    return bits;
}

/* ---- start and kill ---- */

void ksim_node_start(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    struct sl_table_limits limits = limits_of_all;
    limits.linger_ms = w->linger_ms;
    n->table = sl_table_new(&limits, (struct sl_hash_key){7, 0});
    const struct sl_failover_settings s = {.self = i + 1,
                                           .keeper_wait_ms = w->keeper_wait_ms,
                                           .hash_key = {7, w->lives + 1},
                                           .table = n->table,
                                           .volatile_ms = w->volatile_ms,
                                           .entries_max = 4,
                                           .entry_bytes_max = 2 * UINT16_MAX};
    if (n->table == NULL || !sl_failover_init(&n->f, &s, now.ms)) abort();
    sl_table_set_authority(n->table, 0);
    sl_list_init(&n->conns);
    sl_list_init(&n->managers);
    n->up = true;
    n->life = ++w->lives;
    n->started_us = w->now_us;
    n->last_id = 0;
    n->limits = (struct ksim_limits){0};
    n->over_count = n->unread_count = 0;
    n->sent_route = 0;
    n->quiet = n->reclaims = n->has_more = false;
    n->unwell_us = n->alone_us = w->now_us;
    n->paused_us = n->stalls_us = n->reads_us = 0;
    n->tick_us = INT64_MAX;
    n->heartbeat = n->told_term = 0;
    n->urgent_to = n->quiet_to = n->not_to = n->routes = 0;
    n->reports_subscribed = false;
    n->subscribed = sl_random_maybe(&w->random, 3000);
    n->confirmed_us = w->now_us;
    n->lost_ms = 0;
    n->invalid_term = 0;
    n->watch_missed = true; /* A new watch reports the current term. */
    for (uint32_t o = 0; o < w->node_count; o++) {
        n->asked_ms[o] = INT64_MIN;
        n->links[o].up = false;
        n->links[o].broken_us = -1;
        n->links[o].call_us = 0;
        n->links[o].sees_closed = false;
        n->links[o].unsent = 0;
        n->links[o].heard_us = w->now_us;
    }
    KSIM_TRACE(w, "n%u starts", i + 1);
    ksim_members_start(w, i);
    ksim_schedule(
        w, sl_random_between(&w->random, 0, 1000000),
        (struct sim_event){.type = SIM_EVENT_SECOND, .node = i, .number = n->life});
    ksim_node_settle(w, i);
}

void ksim_node_free(struct ksim_node *n)
{
    if (!n->up) return;
    ksim_tx_free(n);
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next)
        sl_route_tx_ended(&sl_container_of(x, struct ksim_conn, all)->route);
    sl_failover_free(&n->f); /* Its ledger refers to the connections. */
    sl_table_free(n->table);
    n->table = NULL;
    while (!sl_list_empty(&n->conns))
        ksim_conn_free(n, sl_container_of(n->conns.next, struct ksim_conn, all));
    n->up = false;
}

void ksim_node_resign(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_list *next;
    if (!ksim_node_runs(w, i) || !sl_failover_resign(&n->f, ksim_node_now(w, i).ms))
        return;
    KSIM_TRACE(w, "n%u begins to resign", i + 1);
    w->counts.resignations++;
    ksim_rules_resign(w, i);
    n->resigns_term = n->f.guests.term;
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        next = x->next;
        if (!c->is_guest && c->open && sl_session_holds(&c->s))
            ksim_conn_close(w, i, c, true);
    }
    ksim_node_settle(w, i);
}

void ksim_node_start_clock(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    if (n->stopped) sim_clock_rate(&n->clock, w->now_us, n->stopped_ppm);
    n->stopped = false;
}

void ksim_node_kill(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    KSIM_TRACE(w, "n%u is killed%s", i + 1, n->f.route.leads ? ", the keeper" : "");
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next) {
        const struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (!c->is_guest && c->open) ksim_client_cut(w, c->client, c->way, c->dial);
    }
    ksim_node_start_clock(w, i);
    ksim_node_free(n);
    for (uint32_t o = 0; o < w->node_count; o++) n->links[o].up = false;
    n->killed_us = w->now_us;
    w->counts.crashes++;
}

/* ---- orders of the guests and of the route ---- */

static struct ksim_conn *conn_of_guest(struct sl_guest *g)
{
    return sl_container_of(g, struct ksim_conn, guest);
}

static void run_guest(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                      const struct sl_failover_message *m)
{
    struct ksim_command command;
    if (m->bytes.n != sizeof command) {
        KSIM_WRONG(w, "n%u receives a command of %zu bytes", i + 1, m->bytes.n);
        return;
    }
    memcpy(&command, m->bytes.at, sizeof command);
    ksim_rules_asked(w, i, &c->guest);
    struct ksim_request *q = ksim_request_new(&w->nodes[i], c, &command,
                                              c->guest.arrived_ms, c->guest.came_ms);
    if (c->request == q) ksim_serve(w, i, q);
}

/* Release a grant that no client knows of. */
static void release_unanswered(struct ksim_world *w, uint32_t i,
                               const struct sl_failover_message *m)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    const struct sl_session any = {0};
    struct sl_ended past;
    ksim_rules_withdrawn(w, i, m->fence);
    if (sl_table_release(n->table, now, &any, m->key, m->fence, &past) == 1)
        sl_guests_gone(&n->f.guests, now.ms, past.fence, false);
}

void ksim_node_guest_orders(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_guests_order o;
    while (
        sl_guests_next(&n->f.guests, ksim_node_now(w, i), ksim_node_linked(w, i), &o)) {
        ksim_mix(w, (uint64_t)o.type << 8 ^ i);
        switch (o.type) {
            case SL_GUESTS_ORDER_SEND: ksim_net_send(w, i, o.to, &o.message); break;
            case SL_GUESTS_ORDER_RUN:
                run_guest(w, i, conn_of_guest(o.guest), &o.message);
                break;
            case SL_GUESTS_ORDER_CLOSE:
                ksim_conn_close(w, i, conn_of_guest(o.guest), o.cut);
                break;
            case SL_GUESTS_ORDER_END:
                conn_of_guest(o.guest)->linger_ms = SL_NEVER;
                sl_table_session_end(n->table, o.guest->session);
                break;
            case SL_GUESTS_ORDER_RELEASE: release_unanswered(w, i, &o.message); break;
            case SL_GUESTS_ORDER_GIVEN:
                ksim_limits_given(n, ksim_node_now(w, i).ms, o.ms);
                break;
            case SL_GUESTS_ORDER_NAME:
            case SL_GUESTS_ORDER_FAIL:
            case SL_GUESTS_ORDER_LISTEN: break;
        }
    }
}

static struct ksim_conn *conn_of_route(const struct sl_route_session *s)
{
    return (struct ksim_conn *)(uintptr_t)sl_container_of(s, const struct ksim_conn,
                                                          route);
}

static const char *text_of(enum sl_route_answer why)
{
    switch (why) {
        case SL_ROUTE_NO_KEEPER: return "-NOKEEPER\r\n";
        case SL_ROUTE_ABORTED: return "+OK\r\n";
        case SL_ROUTE_STALE: return "-STALE\r\n";
        default: return "-UNKNOWN\r\n";
    }
}

static void reply(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                  const struct sl_route_order *o)
{
    q->place = KSIM_NOWHERE;
    if (o->late && ksim_conn_hung_up(w, q->c) && sl_random_maybe(&w->random, 5000)) {
        uint64_t origin = q->c->route.origin;
        sl_route_take_back(&w->nodes[i].f.route, ksim_node_now(w, i).ms, o->request,
                           o->fence);
        ksim_records_taken_back(w, i, origin, q, o->fence);
        ksim_conn_close(w, i, q->c, false);
        return;
    }
    ksim_records_passed(w, i, q, o->bytes);
    if (q->command.verb == KSIM_CANCEL && o->bytes.at[0] == ':')
        ksim_requests_cancelled(w, i, q);
    ksim_reply(w, i, q, o->bytes);
}

static void do_route_order(struct ksim_world *w, uint32_t i,
                           const struct sl_route_order *o)
{
    struct ksim_node *n = &w->nodes[i];
    struct ksim_request *q = o->request == NULL
                                 ? NULL
                                 : sl_container_of(o->request, struct ksim_request,
                                                   remote);
    struct ksim_conn *c = o->session != NULL ? conn_of_route(o->session) : NULL;
    const char *text;
    ksim_mix(w, (uint64_t)o->type << 16 ^ i);
    switch (o->type) {
        case SL_ROUTE_ORDER_NONE: break;
        case SL_ROUTE_ORDER_SEND:
            ksim_net_send(w, i, n->f.route.keeper, &o->message);
            break;
        case SL_ROUTE_ORDER_DESCRIBE: {
            char name[16], address[16];
            int a = snprintf(name, sizeof name, "c%u", c->client + 1);
            int b = snprintf(address, sizeof address, "n%u", i + 1);
            const struct sl_failover_message m = {.type = SL_FAILOVER_CLIENT,
                                                  .session = o->session->id,
                                                  .name = {name, (size_t)a},
                                                  .address = {address, (size_t)b}};
            ksim_net_send(w, i, n->f.route.keeper, &m);
            break;
        }
        case SL_ROUTE_ORDER_REPLY: reply(w, i, q, o); break;
        case SL_ROUTE_ORDER_ANSWER:
            KSIM_TRACE(w, "n%u answers request %llu itself, for reason %d", i + 1,
                       (unsigned long long)q->command.number, (int)o->answer);
            if (o->answer == SL_ROUTE_NO_KEEPER) ksim_rules_gave_up(w, i, q);
            text = text_of(o->answer);
            q->place = KSIM_NOWHERE;
            ksim_reply(w, i, q, (struct sl_bytes){text, strlen(text)});
            break;
        case SL_ROUTE_ORDER_RESUME:
            q->place = KSIM_NOWHERE;
            ksim_serve(w, i, q);
            break;
        case SL_ROUTE_ORDER_PUSH: ksim_push(w, i, c, o->bytes, true); break;
        case SL_ROUTE_ORDER_CLOSE:
            KSIM_TRACE(w, "n%u closes the connection of c%u, for reason %d", i + 1,
                       c->client + 1, (int)o->close);
            if (o->close == SL_ROUTE_CUT_OFF) ksim_rules_cut_off(w, i);
            ksim_conn_close(w, i, c, true);
            break;
        case SL_ROUTE_ORDER_LOST:
            KSIM_TRACE(w, "n%u learns that a grant is lost", i + 1);
            break;
        case SL_ROUTE_ORDER_TX_LOST: ksim_tx_lost(c); break;
        case SL_ROUTE_ORDER_SETTLE:
            KSIM_TRACE(w, "n%u asks for the outcome of a commit", i + 1);
            ksim_serve_settle(w, i, q, o->bytes);
            break;
        case SL_ROUTE_ORDER_QUEUED: ksim_request_queue(w, i, q); break;
        case SL_ROUTE_ORDER_BEGUN:
        case SL_ROUTE_ORDER_PUBLISH: break;
    }
}

static void do_route(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_route_order o;
    uint32_t budget = ksim_has_fault(w, KSIM_FAULT_BUSY)
                          ? 1 + sl_random_below(&w->random, 4)
                          : UINT32_MAX;
    for (;;) {
        bool has_space = ksim_net_has_space(w, i, n->f.route.keeper) &&
                         w->now_us >= n->stalls_us;
        bool spends = n->f.route.handing && has_space;
        if (spends && budget == 0) {
            n->has_more = true;
            return;
        }
        if (!sl_route_next(&n->f.route, ksim_node_now(w, i).ms, has_space, &o)) return;
        if (spends) budget--;
        do_route_order(w, i, &o);
    }
}

void ksim_node_orders(struct ksim_world *w, uint32_t i)
{
    ksim_node_guest_orders(w, i);
    do_route(w, i);
}

/* ---- orders of the node ---- */

static void submit(struct ksim_world *w, uint32_t i, enum sl_storage_op_type type,
                   const struct sl_failover_order *o)
{
    const struct sl_storage_op op = {.type = type,
                                     .term = o->term,
                                     .heartbeat = o->heartbeat,
                                     .node = i + 1,
                                     .fence_limit = o->fence_limit,
                                     .longest_ms = o->longest_ms,
                                     .clock_ms = o->clock_ms,
                                     .ledgers = o->ledgers,
                                     .writes = o->writes,
                                     .write_count = o->write_count,
                                     .key = o->after,
                                     .rows_max = PAGE_ROWS};
    ksim_etcd_submit(w, i, &op, ksim_node_now(w, i).ms);
}

static void lead(struct ksim_world *w, uint32_t i, const struct sl_failover_order *o)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    uint32_t all = UINT32_MAX;
    KSIM_TRACE(w, "n%u is the keeper of term %llu, and waits %lld ms", i + 1,
               (unsigned long long)o->term, (long long)o->quiet_ms);
    if (n->f.route.exporting) sl_failover_export(&n->f, now, &all);
    ksim_audit_leads(w, i);
    ksim_rules_lead(w, i, o->term, o->quiet_ms > 0);
    sl_failover_lead(&n->f, now.ms, o, ksim_node_linked(w, i));
    do_route(w, i);
    n->quiet = n->reclaims = o->quiet_ms > 0;
    n->quiet_until_ms = sl_ms_after(now.ms, o->quiet_ms);
    n->successor = o->before.resigned;
    n->longest_ms = o->before.longest_ms;
    n->last_ledgers = o->before.ledgers | 1u << o->before.node;
    n->last_keeper = o->before.node;
    memset(n->open_ms, 0, sizeof n->open_ms);
    for (uint32_t k = 0; k < KSIM_NODES; k++) n->complete_ms[k] = SL_NEVER;
    ksim_limits_begin(w, i, o->before.fence_limit, o->before.longest_ms);
    ksim_tx_lead(w, i, o->term);
    sl_route_resume(&n->f.route);
    do_route(w, i);
    ksim_takeover_begin(w, i);
    if (ksim_has_fault(w, KSIM_FAULT_CRASH) && sl_random_maybe(&w->random, 1000))
        ksim_schedule(
            w, sl_random_between(&w->random, 0, 3000000),
            (struct sim_event){.type = SIM_EVENT_CRASH, .node = i, .number = n->life});
}

/* A client of this node, which is no longer the keeper, uses the route from now on. */
static void move_client(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct ksim_node *n = &w->nodes[i];
    if (sl_route_session_begin(&n->f.route, &c->route, &c->s) != SLUICE_OK) abort();
    /* Its transaction is lost. If the manager has its request, it answers it. */
    if (c->request == NULL || c->request->place != KSIM_IN_TX) {
        bool there = sl_route_tx_ended(&c->route);
        if (c->tx_id != 0 || there) ksim_tx_lost(c);
    }
    struct ksim_request *q = NULL;
    while ((q = ksim_conn_next(c, q)) != NULL) {
        if (q->place == KSIM_FOR_JOURNAL || q->place == KSIM_FOR_WITNESS)
            ksim_serve_requeue(w, i, q);
        if (q->place != KSIM_IN_TABLE) continue;
        ksim_limits_uncount(n, q);
        sl_table_lose(n->table, ksim_node_now(w, i), &c->s, q->ticket,
                      ksim_key(q->command.key), ksim_id_of(&q->command));
        ksim_serve_forward(w, i, q);
    }
}

static void stop(struct ksim_world *w, uint32_t i, uint64_t term)
{
    struct ksim_node *n = &w->nodes[i];
    KSIM_TRACE(w, "n%u is no longer the keeper of term %llu", i + 1,
               (unsigned long long)term);
    ksim_rules_stop(w, i, term);
    n->quiet = n->reclaims = false;
    n->had_records = !sl_list_empty(&n->f.route.ledger.all);
    ksim_node_guest_orders(w, i);
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (!c->is_guest && c->open) move_client(w, i, c);
    }
    ksim_tx_depose(w, i, term);
    ksim_limits_end(w, i);
    ksim_export_begin(w, i);
}

static void do_order(struct ksim_world *w, uint32_t i,
                     const struct sl_failover_order *o)
{
    ksim_mix(w, (uint64_t)o->type << 24 ^ (uint64_t)w->now_us ^ i);
    switch (o->type) {
        case SL_FAILOVER_ORDER_READ_TERM: submit(w, i, SL_STORAGE_READ_TERM, o); break;
        case SL_FAILOVER_ORDER_CLAIM: submit(w, i, SL_STORAGE_CLAIM, o); break;
        case SL_FAILOVER_ORDER_RENEW:
            ksim_leases_renews(w, i, o->ledgers);
            submit(w, i, SL_STORAGE_RENEW, o);
            break;
        case SL_FAILOVER_ORDER_RESIGN:
            KSIM_TRACE(w, "n%u resigns in term %llu", i + 1,
                       (unsigned long long)o->term);
            ksim_leases_resigns(w, i, o->ledgers);
            submit(w, i, SL_STORAGE_RESIGN, o);
            break;
        case SL_FAILOVER_ORDER_RECORD: submit(w, i, SL_STORAGE_RECORD, o); break;
        case SL_FAILOVER_ORDER_JOURNAL: submit(w, i, SL_STORAGE_JOURNAL, o); break;
        case SL_FAILOVER_ORDER_DOUBT:
            for (uint32_t to = 1; to <= w->node_count; to++)
                if (to != i + 1) ksim_net_send(w, i, to, &o->message);
            break;
        case SL_FAILOVER_ORDER_LEAD: lead(w, i, o); break;
        case SL_FAILOVER_ORDER_STOP: stop(w, i, o->term); break;
        case SL_FAILOVER_ORDER_KEEPER: do_route(w, i); break;
    }
}

/* ---- one loop iteration ---- */

static sl_ms end_lingering(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    sl_ms now_ms = ksim_node_now(w, i).ms, due = SL_NEVER;
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (c->linger_ms <= now_ms) {
            c->linger_ms = SL_NEVER;
            sl_table_session_end(n->table, &c->s);
        } else if (c->linger_ms < due) due = c->linger_ms;
    }
    return due;
}

struct ksim_fill {
    struct ksim_world *w;
    uint32_t node;
    size_t bytes; /* Of the leases that were sent. */
};

#define FILL_BYTES 65536u /* When so many bytes were sent, the rest must wait. */

static void send_fill(void *arg, uint32_t to, const struct sl_failover_message *m)
{
    struct ksim_fill *f = arg;
    const struct sl_keeper_journal *j = &f->w->nodes[f->node].f.journal;
    if (m->type == SL_FAILOVER_NOTE && sl_keeper_journal_writes(j, m->grant.fence))
        KSIM_WRONG(f->w,
                   "n%u completes a ledger with a lease whose record is not durable",
                   f->node + 1);
    if (m->type == SL_FAILOVER_NOTE && f->bytes >= FILL_BYTES)
        KSIM_WRONG(f->w, "n%u sends more than %zu bytes in one step", f->node + 1,
                   f->bytes);
    f->bytes += m->key.n + m->grant.value.n + m->name.n + m->address.n;
    ksim_net_send(f->w, f->node, to, m);
}

/* Complete the ledger of a node that was started recently, by one key. Returns false if there is nothing
 * to send. */
static bool fill(struct ksim_world *w, uint32_t i)
{
    struct ksim_fill f = {w, i, 0};
    uint32_t able = 0;
    for (uint32_t o = 0; o < w->node_count; o++)
        if (w->nodes[i].links[o].up && ksim_net_has_space(w, i, o + 1))
            able |= 1u << (o + 1);
    return sl_failover_fill(&w->nodes[i].f, ksim_node_now(w, i), able, send_fill, &f);
}

static void turn(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    struct sl_failover_order o;
    bool busy = ksim_has_fault(w, KSIM_FAULT_BUSY);
    uint32_t budget = busy && sl_random_maybe(&w->random, 9500) ? 0 : 1 << 20;
    uint32_t reclaims = !busy ? UINT32_MAX
                        : sl_random_maybe(&w->random, w->lazy ? 9900 : 8000)
                            ? 0
                            : sl_random_below(&w->random, 3);
    if (w->now_us < n->reads_us) reclaims = 0;
    sl_ms given_ms;
    bool leads = n->f.route.leads, more = false;
    struct ksim_request *q;
    end_lingering(w, i);
    ksim_reply_rests(w, i);
    ksim_serve_effects(w, i);
    sl_failover_tick(&n->f, now.ms);
    ksim_node_orders(w, i);
    while (sl_failover_next(&n->f, now.ms, &o)) do_order(w, i, &o);
    if (n->f.route.exporting) {
        ksim_memory_begin(w);
        more = !sl_failover_export(&n->f, now, &budget);
        if (ksim_memory_end()) ksim_leases_lost(w, i);
        if (!more) ksim_export_end(w, i);
    }
    while (n->f.route.leads && !sl_list_empty(&n->f.route.ledger.all)) {
        more = reclaims-- == 0;
        if (more) break;
        ksim_leases_reclaims_own(w, i);
        sl_failover_reclaim_own(&n->f, now, &given_ms);
        ksim_leases_reclaimed_own(w, i);
        if (given_ms > 0) ksim_limits_given(n, now.ms, given_ms);
    }
    if (more) n->has_more = true;
    else if (sl_guests_reports_end(&n->f.guests, now.ms)) {
        ksim_audit_all_reported(w, i);
        sl_route_resume(&n->f.route);
    }
    ksim_node_orders(w, i);
    ksim_serve_effects(w, i);
    if (n->f.route.leads) ksim_serve_noted(w, i);
    uint32_t fills = busy ? sl_random_below(&w->random, 3) : UINT32_MAX;
    while (fills > 0 && fill(w, i)) fills--;
    ksim_tx_pump(w, i);
    if (leads) ksim_limits_ahead(w, i);
    while ((q = ksim_request_read(n)) != NULL) ksim_serve(w, i, q);
}

static bool is_due(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    sl_ms now_ms = ksim_node_now(w, i).ms;
    return !n->has_more &&
           (sl_failover_due(&n->f) <= now_ms || sl_table_due(n->table) <= now_ms ||
            ksim_tx_due(n) <= now_ms);
}

static void set_timer(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    sl_ms due = sl_failover_due(&n->f), table = sl_table_due(n->table);
    sl_ms linger = end_lingering(w, i);
    if (table < due) due = table;
    if (ksim_tx_due(n) < due) due = ksim_tx_due(n);
    if (linger < due) due = linger;
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next) {
        const struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (c->rest[0] != '\0' && c->rest_ms < due) due = c->rest_ms;
    }
    int64_t at = due == SL_NEVER ? INT64_MAX : sim_clock_when(&n->clock, due * 1000);
    if (n->has_more && at > w->now_us + 1000) at = w->now_us + 1000;
    if (n->stalls_us > w->now_us && at > n->stalls_us) at = n->stalls_us;
    if (at <= w->now_us) at = w->now_us + 1;
    if (at == INT64_MAX || (n->tick_us > w->now_us && n->tick_us <= at)) return;
    n->tick_us = at;
    ksim_schedule(w, at - w->now_us + sl_random_below(&w->random, w->slack_us),
                  (struct sim_event){
                      .type = SIM_EVENT_TICK, .node = i, .number = ++n->tick_number});
}

void ksim_node_settle(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_table_stats stats;
    if (!n->up || n->settling) return;
    n->settling = true;
    for (uint32_t turns = 0; turns == 0 || is_due(w, i); turns++) {
        n->has_more = false;
        if (turns > TURNS_MAX) {
            ksim_checker_stuck(&w->checker, "n%u runs in a busy loop", i + 1);
            break;
        }
        turn(w, i);
    }
    sl_failover_check(&n->f);
    sl_table_check(n->table);
    sl_table_stats(n->table, &stats);
    if (n->reclaims && sl_list_empty(&n->f.route.ledger.all)) {
        n->reclaims = false;
        ksim_audit_reported(w, i, i);
    }
    if (n->quiet && stats.recovering_until_ms <= ksim_node_now(w, i).ms &&
        !n->has_more) {
        n->quiet = false;
        if (!n->successor && ksim_node_now(w, i).ms < n->quiet_until_ms)
            w->counts.early++;
        if (ksim_has_fault(w, KSIM_FAULT_RESIGN) &&
            sl_random_maybe(&w->random, w->resigns_often ? 6000 : 1000))
            ksim_schedule(w, sl_random_between(&w->random, 0, 200000),
                          (struct sim_event){
                              .type = SIM_EVENT_RESIGN, .node = i, .number = n->life});
        ksim_audit_wait_ended(w, i);
    }
    ksim_rules_settled(w, i, &stats);
    ksim_request_sweep(n);
    set_timer(w, i);
    n->settling = false;
}

/* ---- events ---- */

/* Parse a message. Returns false if it is not one. */
static bool parse(struct ksim_world *w, struct sl_bytes bytes, sl_fence *gone,
                  struct sl_failover_message *m)
{
    struct sl_args args;
    for (size_t done = 0; done < bytes.n;) {
        char *at;
        size_t part = sl_resp_room(w->reader, &at);
        if (part > bytes.n - done) part = bytes.n - done;
        memcpy(at, bytes.at + done, part);
        sl_resp_filled(w->reader, part);
        done += part;
    }
    return sl_resp_next(w->reader, &args) == 1 && sl_failover_read(&args, gone, m);
}

static void open_guest(struct ksim_world *w, uint32_t i, uint32_t from, uint64_t id)
{
    struct ksim_conn *c = ksim_conn_new(w, i);
    c->is_guest = true;
    if (sl_guests_open(&w->nodes[i].f.guests, &c->guest, from, id, &c->s) != SLUICE_OK)
        abort();
}

/* Find the request with NOTIFY that a message is about. Returns NULL if there is none. */
static struct sl_route_request *notified(const struct ksim_node *n,
                                         const struct sl_failover_message *m)
{
    struct sl_bytes id = m->type == SL_FAILOVER_OUTCOME ? m->name : m->grant.request;
    const struct sl_route_session *s = sl_route_session_find(&n->f.route, m->session);
    struct ksim_request *q = s == NULL
                                 ? NULL
                                 : ksim_request_find(conn_of_route(s), m->key, id);
    return q == NULL || q->place != KSIM_ON_ROUTE ? NULL : &q->remote;
}

void ksim_node_receive(struct ksim_world *w, uint32_t i, uint32_t from,
                       struct sl_bytes bytes)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_failover_message m;
    sl_fence gone[SL_GONE_MAX];
    char name[16] = "", address[16] = "";
    if (!parse(w, bytes, gone, &m)) {
        KSIM_WRONG(w, "n%u cannot read a message of n%u", i + 1, from);
        return;
    }
    if (w->setup.trace) ksim_trace_message(w, "<", i, from - 1, &m);
    if (ksim_forge_is_answer(w, i, &m)) return;
    struct ksim_before before;
    ksim_rules_receive(w, i, from, &m, &before);
    if (sl_guests_lacks(&n->f.guests, from, &m)) open_guest(w, i, from, m.session);
    if (m.type == SL_FAILOVER_HELD && m.yes) {
        const struct sl_route_session *s = sl_route_session_find(&n->f.route,
                                                                 m.session);
        if (s == NULL) return; /* The client has left. */
        snprintf(name, sizeof name, "c%u", conn_of_route(s)->client + 1);
        snprintf(address, sizeof address, "n%u", i + 1);
    }
    if (m.type == SL_FAILOVER_HELD || m.type == SL_FAILOVER_OUTCOME)
        m.request = notified(n, &m);
    bool records = m.type == SL_FAILOVER_HELD || m.type == SL_FAILOVER_NOTE;
    if (m.type == SL_FAILOVER_HERE && !n->f.route.open && !n->f.route.handing)
        ksim_takeover_stall(w, i);
    if (records) ksim_memory_begin(w);
    sl_failover_receive(
        &n->f, ksim_node_now(w, i), from, &m, (struct sl_bytes){name, strlen(name)},
        (struct sl_bytes){address, strlen(address)}, ksim_node_linked(w, i));
    if (records && ksim_memory_end()) ksim_leases_lost(w, i);
    ksim_node_orders(w, i);
    if (m.type == SL_FAILOVER_HELD) ksim_nemesis_held(w, i, from - 1, m.session);
    if (m.type == SL_FAILOVER_CLIENT && n->f.guests.leads &&
        n->f.guests.nodes[from].open && !n->f.guests.nodes[from].ready)
        ksim_nemesis_close_guest(w, i, from, m.session);
    if (m.type == SL_FAILOVER_READY && n->f.guests.leads &&
        n->f.guests.nodes[from].ready)
        ksim_audit_reported(w, i, from - 1);
    ksim_rules_received(w, i, from, &m, &before);
    ksim_node_settle(w, i);
}

/* A keeper has read an invalid entry. An operator restarts it. */
static void cannot_read(struct ksim_world *w, uint32_t i, uint64_t term)
{
    struct ksim_node *n = &w->nodes[i];
    /* A keeper that does not know that it was deposed may read entries of its successor. */
    if (term == w->etcd.term.term && (w->faults & 1ull << KSIM_FAULT_NEWER) == 0)
        KSIM_WRONG(w, "n%u: the journal has an invalid entry", i + 1);
    n->invalid_term = term;
    ksim_schedule(
        w, sl_random_between(&w->random, 500000, KSIM_FAULT_MAX_US),
        (struct sim_event){.type = SIM_EVENT_CRASH, .node = i, .number = n->life});
}

void ksim_node_storage(struct ksim_world *w, uint32_t i, const struct ksim_op *op)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    const struct sl_storage_result *r = &op->op.result;
    switch (op->op.type) {
        case SL_STORAGE_READ_TERM:
            sl_failover_term_read(&n->f, now.ms, op->asked_ms, r);
            break;
        case SL_STORAGE_CLAIM:
            sl_failover_claimed(&n->f, now.ms, op->asked_ms, r);
            break;
        case SL_STORAGE_RENEW:
            if (r->status != SLUICE_OK)
                KSIM_TRACE(w, "n%u: the renewal of term %llu fails", i + 1,
                           (unsigned long long)op->op.term);
            if (sl_failover_renewed(&n->f, now.ms, op->asked_ms, op->op.term, r))
                ksim_limits_written(w, i, r->status == SLUICE_OK);
            break;
        case SL_STORAGE_RESIGN: break; /* The result does not matter. */
        case SL_STORAGE_RECORD:
            if (sl_failover_recorded(&n->f, now.ms, op->op.term, r))
                ksim_serve_durable(w, i);
            break;
        case SL_STORAGE_JOURNAL: {
            uint32_t bad;
            if (sl_failover_journal_read(&n->f, now, op->op.term, r, &bad) != SLUICE_OK)
                cannot_read(w, i, op->op.term);
            ksim_leases_restored(w, i);
            break;
        }
        default: ksim_tx_done(w, i, op); break;
    }
    ksim_node_settle(w, i);
}

void ksim_node_term_changed(struct ksim_world *w, uint32_t i,
                            const struct sl_storage_term *term)
{
    sl_election_term_changed(w->nodes[i].f.election, ksim_node_now(w, i).ms, term);
    ksim_node_settle(w, i);
}
