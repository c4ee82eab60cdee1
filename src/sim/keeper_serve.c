/* keeper_serve.c - the commands of clients: the keeper runs them with its lock table, and other
 * nodes pass them to the route. Follows src/server/arbiter/local.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

static const char *const names[KSIM_KEYS] = {"k0", "k1", "k2", "k3"};
static const char large[UINT16_MAX]; /* The value of a lease. */

struct sl_bytes ksim_key(uint32_t key)
{
    return (struct sl_bytes){names[key], 2};
}

uint32_t ksim_key_of(struct sl_bytes key)
{
    return (uint32_t)(key.at[1] - '0');
}

/* ---- connections ---- */

struct ksim_conn *ksim_conn_new(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct ksim_conn *c = calloc(1, sizeof *c);
    if (c == NULL) abort();
    c->open = true;
    c->linger_ms = SL_NEVER;
    sl_session_begin(&c->s, ++n->last_id, 0);
    sl_list_append(&n->conns, &c->all);
    return c;
}

struct ksim_conn *ksim_conn_find(const struct ksim_world *w, uint32_t i, uint64_t dial)
{
    const struct sl_list *all = &w->nodes[i].conns;
    for (struct sl_list *x = all->next; x != all; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (c->open && !c->is_guest && c->dial == dial) return c;
    }
    return NULL;
}

struct ksim_conn *ksim_conn_of_session(const struct ksim_world *w, uint32_t i,
                                       uint64_t id)
{
    const struct sl_list *all = &w->nodes[i].conns;
    for (struct sl_list *x = all->next; x != all; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (c->open && c->s.id == id) return c;
    }
    return NULL;
}

bool ksim_conn_hung_up(const struct ksim_world *w, const struct ksim_conn *c)
{
    return !c->is_guest && w->clients[c->client].ways[c->way].dial != c->dial;
}

static void begin_change(struct ksim_world *w, uint32_t i)
{
    sl_keeper_journal_change(&w->nodes[i].f.journal, ksim_node_now(w, i).ms);
}

/* Undo a grant whose reply waits for the journal. An extension stays: the reply to a later EXTEND, which
 * waits as well, may show its expiry. */
static void take_back(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    const struct sl_grant g = {.fence = c->parked.fence,
                               .overlapping = c->parked.overlapping};
    begin_change(w, i);
    if (!c->parked.fresh) return;
    bool ended = sl_table_take_back(w->nodes[i].table, ksim_node_now(w, i), &c->s,
                                    ksim_key(c->command.key), &g);
    if (c->place == KSIM_FOR_WITNESS && ended)
        sl_guests_gone(&w->nodes[i].f.guests, ksim_node_now(w, i).ms, g.fence, false);
}

void ksim_conn_close(struct ksim_world *w, uint32_t i, struct ksim_conn *c, bool cut)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_failover_message m;
    if (!c->open) return;
    c->open = false;
    ksim_limits_uncount(n, c);
    if (c->place == KSIM_IN_TABLE) {
        sl_table_lose(n->table, ksim_node_now(w, i), &c->s, c->ticket,
                      ksim_key(c->command.key), ksim_id_of(&c->command));
        ksim_leases_left(w, i, c);
    }
    if (c->place == KSIM_FOR_JOURNAL || c->place == KSIM_FOR_WITNESS) {
        take_back(w, i, c);
        /* A known gap: if this keeper fails before the end is durable, nobody withdraws the grant of its
         * own client. */
        if (!c->is_guest) ksim_audit_delivered(w, c->parked.fence);
    }
    if (c->place == KSIM_ON_ROUTE)
        sl_route_withdraw(&n->f.route, ksim_node_now(w, i).ms, &c->request);
    c->place = KSIM_NOWHERE;
    c->busy = false;
    c->rest[0] = '\0';
    ksim_tx_leave(w, i, c);
    if (sl_route_leave(&n->f.route, &c->route, cut, &m))
        ksim_net_send(w, i, n->f.route.keeper, &m);
    ksim_rules_left(w, i, c);
    sl_ms linger = w->linger_ms;
    if (c->is_guest) {
        linger = sl_guest_linger_ms(&c->guest, linger);
        if (sl_guests_closed(&n->f.guests, &c->guest, &m))
            ksim_net_send(w, i, c->guest.node, &m);
    } else if (c->dial != 0) ksim_client_cut(w, c->client, c->way, c->dial);
    if (!cut || linger == 0 || !sl_session_holds(&c->s))
        sl_table_session_end(n->table, &c->s);
    else c->linger_ms = ksim_node_now(w, i).ms + linger + 1;
}

/* RESET: the connection gets a new session. */
static void reset(struct ksim_world *w, uint32_t i, struct ksim_conn *old)
{
    struct ksim_conn *c = ksim_conn_new(w, i);
    c->client = old->client;
    c->way = old->way;
    c->dial = old->dial;
    old->dial = 0;
    ksim_conn_close(w, i, old, false);
    ksim_reply(w, i, c, (struct sl_bytes){"+OK\r\n", 5});
}

void ksim_conn_over(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    if (c->is_guest) sl_guests_over(&w->nodes[i].f.guests, &c->guest);
    sl_list_remove(&c->all);
    free(c);
}

/* ---- replies ---- */

static void say(struct ksim_world *w, uint32_t i, const struct ksim_conn *c,
                struct sl_bytes bytes, uint32_t what)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_SAY,
                                          .session = c->guest.id,
                                          .what = what,
                                          .tx = c->tx_id,
                                          .bytes = bytes};
    ksim_net_send(w, i, c->guest.node, &m);
}

void ksim_reply(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                struct sl_bytes reply)
{
    c->busy = false;
    c->place = KSIM_NOWHERE;
    if (!c->is_guest) {
        ksim_client_send(w, c, reply, false);
        return;
    }
    say(w, i, c, reply, SL_SAY_LAST);
    c->guest.busy = false;
}

void ksim_push(struct ksim_world *w, uint32_t i, const struct ksim_conn *c,
               struct sl_bytes bytes, bool more)
{
    if (c->is_guest) say(w, i, c, bytes, 0);
    else ksim_client_send(w, c, bytes, more);
}

static void reply_text(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                       const char *text)
{
    ksim_reply(w, i, c, (struct sl_bytes){text, strlen(text)});
}

void ksim_reply_status(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                       int status)
{
    char text[64];
    if (status == SLUICE_EFULL) {
        reply_text(w, i, c, "$-1\r\n");
        return;
    }
    snprintf(text, sizeof text, "-%s %" PRIu64 "\r\n", sluice_status_word(status),
             w->nodes[i].f.guests.term);
    reply_text(w, i, c, text);
}

/* A reply of which the node of the client receives the first part earlier. */
static void reply_in_parts(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    char text[64];
    snprintf(c->rest, sizeof c->rest, ":%" PRIu64 "\r\n", c->command.number);
    snprintf(text, sizeof text, "*2\r\n:%" PRIu64 "\r\n", c->command.number);
    if (!c->is_guest) {
        strcat(text, c->rest);
        c->rest[0] = '\0';
        reply_text(w, i, c, text);
        return;
    }
    say(w, i, c, (struct sl_bytes){text, strlen(text)}, SL_SAY_MORE);
    c->rest_ms = ksim_node_now(w, i).ms + sl_random_below(&w->random, 100);
}

static void send_rest(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    char rest[sizeof c->rest];
    if (c->rest[0] == '\0') return;
    strcpy(rest, c->rest);
    c->rest[0] = '\0';
    reply_text(w, i, c, rest);
}

void ksim_serve_rests(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (c->rest_ms <= ksim_node_now(w, i).ms) send_rest(w, i, c);
    }
}

/* ---- commands at the keeper ---- */

/* Tell the node of the client about the grant, before the reply. */
static void notify_held(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                        sl_fence fence, bool fresh)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_failover_message m[2];
    ksim_leases_shown(w, i, c->command.key, fence);
    size_t count = sl_guests_held(&n->f.guests, ksim_node_now(w, i), &c->guest,
                                  c->guest.came_ms, ksim_key(c->command.key), fence,
                                  fresh, m);
    for (size_t k = 0; k < count; k++) ksim_net_send(w, i, c->guest.node, &m[k]);
}

/* Return the position that the journal must have before a command about this key is answered. */
static uint64_t pending(const struct ksim_node *n, struct sl_bytes key)
{
    const struct sl_journal *j = n->f.journal.rules;
    if (j == NULL) return 0;
    uint64_t position = sl_journal_pending(j, key), all = n->limits.all_position;
    return all > sl_journal_durable(j) && all > position ? all : position;
}

static void park(struct ksim_conn *c, uint64_t position, bool runs, const char *text)
{
    c->place = KSIM_FOR_JOURNAL;
    c->parked.position = position;
    c->parked.fence = 0;
    c->parked.fresh = c->parked.replay = false;
    c->parked.runs = runs;
    snprintf(c->parked.reply, sizeof c->parked.reply, "%s", text);
}

/* Reply to BREAK or DRAIN. */
static void reply_durable(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                          const char *text)
{
    const struct ksim_command *m = &c->command;
    if (m->verb == KSIM_BREAK && strncmp(text, ":1", 2) == 0)
        ksim_rules_acked(w, i, m->key, m->fence, SL_NEVER, false);
    reply_text(w, i, c, text);
}

void ksim_serve_acknowledge(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                            uint64_t need, const char *text)
{
    if (need == 0) reply_durable(w, i, c, text);
    else park(c, need, false, text);
}

bool ksim_serve_waits_for_others(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    const struct ksim_command *m = &c->command;
    uint64_t position = pending(&w->nodes[i], m->verb == KSIM_DRAIN
                                                  ? ksim_pattern(m->pattern)
                                                  : ksim_key(m->key));
    if (position == 0) return false;
    park(c, position, true, "");
    return true;
}

/* There is no memory for a note, so undo the grant or the extension. */
static void refuse(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct sl_now now = ksim_node_now(w, i);
    take_back(w, i, c);
    if (c->command.verb == KSIM_EXTEND)
        sl_table_undo_extend(w->nodes[i].table, now, ksim_key(c->command.key),
                             c->parked.fence, c->parked.end_ms, c->parked.before_ms,
                             (struct sl_bytes){NULL, 0});
    ksim_reply_status(w, i, c, SLUICE_ENOMEM);
}

/* Report a grant or an extension to the node of the client; for a client of this node, to the witness.
 * Returns the number of the note; 0: none. A grant without a lease that a repeated attempt has moved to
 * another connection belongs to the ledger of its new node only. */
static uint64_t report_held(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    bool moved = c->parked.replay && c->command.lease_ms == 0;
    sl_fence fence = c->parked.fence;
    if (moved && c->parked.moved_from == 0) return 0;
    if (moved) ksim_requests_moved(w, i, c->parked.moved_from, fence);
    uint64_t number = 0;
    if (c->is_guest) notify_held(w, i, c, fence, c->parked.fresh || moved);
    else {
        ksim_memory_begin(w);
        number = sl_failover_note(&w->nodes[i].f, ksim_node_now(w, i),
                                  ksim_key(c->command.key), fence);
        ksim_memory_end();
    }
    /* Another node may report the grant to the next keeper, so it is not taken back. */
    if (c->command.id[0] != '\0' && c->command.lease_ms > 0 && number != SL_NOTE_FAILED)
        sl_table_known(w->nodes[i].table, ksim_node_now(w, i), ksim_key(c->command.key),
                       fence);
    return number;
}

/* Reply to an ACQUIRE or EXTEND. */
static void reply_held(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    if (c->parked.replay)
        sl_table_known(w->nodes[i].table, ksim_node_now(w, i), ksim_key(c->command.key),
                       c->parked.fence);
    reply_text(w, i, c, c->parked.reply);
}

/* Send a reply that shows a change, when the journal allows it: for a client of this node, when another
 * node has recorded the lease. */
static void acknowledge_now(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    ksim_rules_acked(w, i, c->command.key, c->parked.fence,
                     c->parked.replay ? c->parked.left_ms : c->command.lease_ms,
                     c->parked.fresh);
    uint64_t number = report_held(w, i, c);
    if (number == SL_NOTE_FAILED) {
        refuse(w, i, c);
        return;
    }
    c->parked.position = number;
    c->parked.since_us = w->now_us;
    c->place = KSIM_FOR_WITNESS;
    if (number != 0) return;
    if (!c->is_guest) ksim_leases_acked(w, i, c);
    reply_held(w, i, c);
}

static void acknowledge(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                        sl_fence fence, bool fresh, const char *text)
{
    uint64_t need = w->nodes[i].f.journal.need;
    struct sl_grant_view v;
    if (need == SL_JOURNAL_FAILED) abort(); /* There is memory, and space. */
    /* A crash before the notes of the keeper are sent exposes what only the keeper knows. */
    if (ksim_has_fault(w, KSIM_FAULT_CRASH) && sl_random_maybe(&w->random, 50))
        ksim_schedule(w, sl_random_between(&w->random, 0, 20000),
                      (struct sim_event){.type = SIM_EVENT_CRASH,
                                         .node = i,
                                         .number = w->nodes[i].life});
    c->parked.fence = fence;
    c->parked.fresh = fresh;
    c->parked.runs = false;
    c->parked.end_ms = sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                              ksim_key(c->command.key), fence, &v)
                           ? v.end_ms
                           : 0;
    snprintf(c->parked.reply, sizeof c->parked.reply, "%s", text);
    /* The remaining time in the reply may be that of an earlier extension, which must be durable. */
    if (need == 0 && !fresh) need = pending(&w->nodes[i], ksim_key(c->command.key));
    if (need == 0) {
        acknowledge_now(w, i, c);
        return;
    }
    /* If the keeper fails before the reply, the client's node must know of the grant, to withdraw it. It
     * must not know of an extension, which the next keeper may not find in the journal. */
    if ((fresh || c->parked.replay) && c->is_guest) report_held(w, i, c);
    c->place = KSIM_FOR_JOURNAL;
    c->parked.position = need;
}

/* Whether the grant of a reply has expired while the reply waited; then run the command again. */
static bool is_over(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    if (c->command.verb != KSIM_ACQUIRE ||
        sl_table_holds(w->nodes[i].table, ksim_node_now(w, i), ksim_key(c->command.key),
                       c->parked.fence))
        return false;
    /* A known gap: if this keeper fails before the end is durable, the next one restores the lease,
     * which no client knows of, until it expires again. */
    ksim_audit_delivered(w, c->parked.fence);
    c->place = KSIM_NOWHERE;
    c->deferred = true;
    ksim_serve(w, i, c);
    return true;
}

void ksim_serve_durable(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    uint64_t durable = sl_journal_durable(n->f.journal.rules);
    struct sl_list *next;
    ksim_admin_durable(w, i, durable);
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        next = x->next;
        if (c->place != KSIM_FOR_JOURNAL || c->parked.position > durable) continue;
        if (c->parked.runs) {
            c->place = KSIM_NOWHERE;
            c->deferred = true;
            ksim_serve(w, i, c);
        } else if (c->parked.fence == 0) {
            c->place = KSIM_NOWHERE;
            reply_durable(w, i, c, c->parked.reply);
        } else if (!is_over(w, i, c)) acknowledge_now(w, i, c);
    }
}

void ksim_serve_noted(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    uint64_t noted = sl_failover_noted(&n->f);
    struct sl_list *next;
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        next = x->next;
        if (c->place != KSIM_FOR_WITNESS || c->parked.position > noted) continue;
        if (is_over(w, i, c)) continue;
        ksim_leases_acked(w, i, c);
        reply_held(w, i, c);
    }
}

static void describe_client(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    char name[16], address[16];
    int a = snprintf(name, sizeof name, "c%u", c->client + 1);
    int b = snprintf(address, sizeof address, "n%u", i + 1);
    if (sl_table_describe(w->nodes[i].table, &c->s, (struct sl_bytes){name, (size_t)a},
                          (struct sl_bytes){address, (size_t)b}) != SLUICE_OK)
        abort();
}

void ksim_serve_requeue(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct ksim_node *n = &w->nodes[i];
    take_back(w, i, c);
    if (c->parked.fresh && c->command.id[0] == '\0') {
        sl_route_withdraw_own(&n->f.route, ksim_node_now(w, i).ms, &c->s,
                              ksim_key(c->command.key), c->parked.fence,
                              c->command.lease_ms);
        describe_client(w, i, c);
    }
    c->deferred = true;
    ksim_serve_forward(w, i, c);
}

static void granted(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                    const struct sl_grant *g)
{
    struct ksim_node *n = &w->nodes[i];
    char text[160];
    if (g->replay) ksim_audit_replayed(w, i, g->fence);
    else {
        if (g->lease_ms > 0) ksim_limits_given(n, ksim_node_now(w, i).ms, g->lease_ms);
        ksim_audit_grant(w, i, c, g->fence, g);
    }
    if (c->command.id[0] != '\0') ksim_requests_granted(w, i, &c->command);
    snprintf(text, sizeof text,
             "*%d\r\n:%" PRIu64 "\r\n:%" PRId64 "\r\n:%" PRId64 "\r\n:%d\r\n:%" PRIu64
             "\r\n:%d\r\n %" PRIu64,
             c->command.id[0] != '\0' ? 6 : 5, g->fence, g->lease_ms, g->waited_ms,
             g->overlapping, c->command.number, g->replay, n->f.guests.term);
    c->parked.overlapping = g->overlapping;
    c->parked.replay = g->replay;
    c->parked.moved_from = g->moved_from;
    c->parked.left_ms = g->lease_ms;
    acknowledge(w, i, c, g->fence, !g->replay, text);
}

/* Let the command wait until the limits are durable. */
static void defer(struct ksim_world *w, uint32_t i, struct ksim_conn *c, sl_ms lease_ms)
{
    c->place = KSIM_FOR_LIMITS;
    c->deferred = true;
    ksim_limits_want(w, i, lease_ms);
}

static void acquire(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &c->command;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_grant g;
    struct sl_want want = {.key = ksim_key(m->key),
                           .shared = m->shared != 0,
                           .per = m->per,
                           .buckets = 1,
                           .units = m->units,
                           .priority = m->priority,
                           .wait_ms = m->wait_ms,
                           .waited_ms = now.ms - c->arrived_ms,
                           .lease_ms = m->lease_ms,
                           .steal = m->steal != 0,
                           .force_ms = m->force_ms,
                           .request = ksim_id_of(m),
                           .digest = ksim_digest_of(m),
                           .ticket = c->ticket = ++w->tickets};
    if (ksim_has_fault(w, KSIM_FAULT_LARGE) && m->lease_ms > 0)
        want.value = (struct sl_bytes){large, sizeof large};
    if (want.wait_ms > 0)
        want.wait_ms = want.wait_ms > want.waited_ms ? want.wait_ms - want.waited_ms
                                                     : 0;
    if (!ksim_limits_know(n, m->lease_ms)) {
        int status = sl_table_judge(n->table, now, &c->s, &want);
        if (status == SLUICE_OK || status == SL_WAITS) {
            if (n->limits.failed) {
                ksim_reply_status(w, i, c, SLUICE_EIO);
                return;
            }
            defer(w, i, c, m->lease_ms);
            return;
        }
    }
    /* The table ends an acquisition with the reply nil, but the lock may be free when the journal is durable. */
    if (want.request.n > 0 && want.wait_ms == 0 &&
        sl_table_judge(n->table, now, &c->s, &want) == SLUICE_EFULL &&
        ksim_serve_waits_for_others(w, i, c))
        return;
    if (!c->is_guest && c->s.client == NULL) {
        if (c->s.origin == 0) c->s.origin = sl_route_draw_origin(&n->f.route);
        describe_client(w, i, c);
    }
    begin_change(w, i);
    int status = sl_table_acquire(n->table, now, &c->s, &want, &g);
    if (status == SLUICE_OK && g.replay && ksim_serve_waits_for_others(w, i, c)) return;
    if (status == SLUICE_OK) granted(w, i, c, &g);
    else if (status == SL_WAITS) {
        c->place = KSIM_IN_TABLE;
        if (m->lease_ms > 0) ksim_limits_count(n, c, m->lease_ms);
    } else if (status == SLUICE_EFENCES && !n->limits.failed) {
        defer(w, i, c, 0);
    } else if ((status == SLUICE_EFULL || status == SLUICE_EDRAINED) &&
               ksim_serve_waits_for_others(w, i, c))
        return;
    else ksim_reply_status(w, i, c, status);
}

/* Whether another node may still report the grant, so that the keeper cannot say that it is not
 * held. */
static bool may_be_reported(struct ksim_world *w, uint32_t i, const struct ksim_conn *c)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    struct sl_table_stats stats;
    sl_table_stats(n->table, &stats);
    return stats.recovering_until_ms > now.ms &&
           !sl_table_holds(n->table, now, ksim_key(c->command.key), c->command.fence);
}

static void extend(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &c->command;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_grant_view v = {0};
    char text[64];
    sl_ms left;
    if (sl_table_inspect_grant(n->table, now, ksim_key(m->key), m->fence, &v) &&
        !ksim_limits_know(n, m->lease_ms)) {
        if (n->limits.failed) {
            ksim_reply_status(w, i, c, SLUICE_EIO);
            return;
        }
        defer(w, i, c, m->lease_ms);
        return;
    }
    begin_change(w, i);
    int status = sl_table_extend(n->table, now, &c->s, ksim_key(m->key), m->fence,
                                 m->lease_ms, (struct sl_bytes){NULL, 0}, &left);
    if (status == SLUICE_ELOST) ksim_rules_not_held(w, i);
    if (status == SLUICE_ELOST && may_be_reported(w, i, c)) status = SLUICE_ERECOVERING;
    else if (status == SLUICE_ELOST && ksim_serve_waits_for_others(w, i, c)) return;
    if (status != SLUICE_OK) {
        ksim_reply_status(w, i, c, status);
        return;
    }
    ksim_leases_extended(w, i, ksim_key(m->key), &v);
    c->parked.replay = false;
    c->parked.before_ms = v.end_ms;
    ksim_limits_given(n, now.ms, m->lease_ms);
    ksim_audit_grant(w, i, c, m->fence, NULL);
    snprintf(text, sizeof text, ":%" PRId64 "\r\n %" PRIu64, left, n->f.guests.term);
    acknowledge(w, i, c, m->fence, false, text);
}

static void release(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &c->command;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_ended past;
    begin_change(w, i);
    if (sl_table_release(n->table, now, &c->s, ksim_key(m->key), m->fence, &past) ==
        0) {
        ksim_rules_not_held(w, i);
        if (may_be_reported(w, i, c)) ksim_reply_status(w, i, c, SLUICE_ERECOVERING);
        else if (!ksim_serve_waits_for_others(w, i, c)) reply_text(w, i, c, ":0\r\n");
        return;
    }
    ksim_leases_ended(w, i, m->fence);
    if (past.leased || past.session_id != c->s.id)
        sl_guests_gone(&n->f.guests, now.ms, past.fence, false);
    reply_text(w, i, c, ":1\r\n");
}

/* ---- which node decides ---- */

static enum sl_route_verb verb_of(const struct ksim_command *m)
{
    switch (m->verb) {
        case KSIM_ACQUIRE: return SL_ROUTE_ACQUIRE;
        case KSIM_RELEASE: return SL_ROUTE_RELEASE;
        case KSIM_TX_BEGIN: return SL_ROUTE_TX_BEGIN;
        case KSIM_TX_COMMIT: return SL_ROUTE_TX_COMMIT;
        case KSIM_TX_ABORT: return SL_ROUTE_TX_ABORT;
        default: return ksim_is_tx(m) ? SL_ROUTE_TX : SL_ROUTE_OTHER;
    }
}

/* Set up the part of a request that the route uses. */
static void describe(struct ksim_conn *c)
{
    const struct ksim_command *m = &c->command;
    c->request = (struct sl_route_request){
        .verb = verb_of(m),
        .waits = m->wait_ms > 0,
        .settles = m->settles != 0,
        .arrived_ms = c->arrived_ms,
        .key = ksim_key(m->key),
        .lease_ms = m->verb == KSIM_ACQUIRE ? m->lease_ms : 0,
        .fence = m->verb == KSIM_RELEASE ? m->fence : 0,
        .bytes = {(const char *)m, sizeof *m},
        .named = m->verb == KSIM_ACQUIRE && m->id[0] != '\0' && m->lease_ms > 0,
        .id = {m->id, m->verb == KSIM_TX_BEGIN ? strlen(m->id) : 0}};
}

void ksim_serve_forward(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct sl_route *r = &w->nodes[i].f.route;
    const struct ksim_command *m = &c->command;
    if (sl_route_session_begin(r, &c->route, &c->s) != SLUICE_OK) abort();
    describe(c);
    if (m->verb == KSIM_RELEASE)
        c->request.released_fence = sl_route_released(r, &c->route, ksim_key(m->key),
                                                      m->fence);
    c->place = KSIM_ON_ROUTE;
    w->counts.forwarded++;
    sl_route_submit(r, &c->route, &c->request);
}

void ksim_serve_settle(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                       struct sl_bytes id)
{
    struct ksim_command *m = &c->command;
    m->verb = KSIM_TX_OUTCOME;
    m->settles = 1;
    if (id.n >= sizeof m->id) abort();
    memcpy(m->id, id.at, id.n);
    m->id[id.n] = '\0';
    describe(c);
    sl_route_settle(&w->nodes[i].f.route, &c->route, &c->request);
}

void ksim_serve(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_route *r = &n->f.route;
    uint32_t verb = c->command.verb;
    bool complete = verb == KSIM_EXTEND || verb == KSIM_RELEASE || verb == KSIM_READ ||
                    verb == KSIM_BREAK || verb == KSIM_DRAIN || verb == KSIM_CANCEL ||
                    (verb == KSIM_ACQUIRE && c->command.id[0] != '\0');
    bool of_locks = complete || verb == KSIM_ACQUIRE;
    bool here = r->leads && (n->f.guests.reports_until_ms == 0 || !complete) &&
                !(n->f.resigning && of_locks);
    if (ksim_tx_answers_lost(w, i, c)) return;
    if (verb == KSIM_RESET) {
        reset(w, i, c);
        return;
    }
    if (!here && sl_route_gives_up(r, ksim_node_now(w, i).ms))
        reply_text(w, i, c, "-NOKEEPER\r\n");
    else if (!here) ksim_serve_forward(w, i, c);
    else if (verb == KSIM_ACQUIRE) acquire(w, i, c);
    else if (verb == KSIM_EXTEND) extend(w, i, c);
    else if (verb == KSIM_RELEASE) release(w, i, c);
    else if (verb == KSIM_READ) reply_in_parts(w, i, c);
    else if (verb == KSIM_BREAK) ksim_admin_break(w, i, c);
    else if (verb == KSIM_DRAIN) ksim_admin_drain(w, i, c);
    else if (verb == KSIM_CANCEL) ksim_requests_cancel(w, i, c);
    else ksim_tx_serve(w, i, c);
}

void ksim_serve_resume_deferred(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_list *next;
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        next = x->next;
        if (c->place != KSIM_FOR_LIMITS) continue;
        c->place = KSIM_NOWHERE;
        ksim_serve(w, i, c);
    }
}

/* ---- effects of the table ---- */

/* Whether the request of a connection waits in the table, with the ticket of this effect. */
static bool is_waiter(const struct ksim_conn *c, const struct sl_effect *e)
{
    return c->open && c->place == KSIM_IN_TABLE && c->ticket == e->ticket;
}

static void answer_granted(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                           const struct sl_effect *e)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    bool waits = is_waiter(c, e);
    if (!waits && e->grant.replay) return;
    if (waits) ksim_limits_uncount(n, c);
    bool late = waits && ksim_conn_hung_up(w, c) && sl_random_maybe(&w->random, 5000);
    if (!waits || late) {
        bool stays = !e->grant.replay &&
                     !sl_table_take_back(n->table, now, &c->s, e->key, &e->grant);
        if (stays && late) { /* It belongs to another attempt. */
            if (e->grant.lease_ms > 0) ksim_limits_given(n, now.ms, e->grant.lease_ms);
            ksim_audit_grant(w, i, c, e->grant.fence, &e->grant);
        }
        if (late) {
            c->place = KSIM_NOWHERE;
            ksim_conn_close(w, i, c, false);
        }
        return;
    }
    granted(w, i, c, &e->grant);
}

static void answer_timeout(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                           const struct sl_effect *e)
{
    struct sl_table_stats stats;
    sl_ms now_ms = ksim_node_now(w, i).ms;
    if (!is_waiter(c, e)) return;
    ksim_limits_uncount(&w->nodes[i], c);
    sl_table_stats(w->nodes[i].table, &stats);
    ksim_reply_status(w, i, c,
                      stats.authority_until_ms <= now_ms   ? SLUICE_ENOKEEPER
                      : stats.recovering_until_ms > now_ms ? SLUICE_ERECOVERING
                                                           : SLUICE_EFULL);
}

/* A waiter is rejected because its key is drained. */
static void answer_refused(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                           const struct sl_effect *e)
{
    if (!is_waiter(c, e)) return;
    ksim_limits_uncount(&w->nodes[i], c);
    if (!ksim_serve_waits_for_others(w, i, c))
        ksim_reply_status(w, i, c, SLUICE_EDRAINED);
}

/* The acquisition of a waiter was cancelled. */
static void answer_cancelled(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                             const struct sl_effect *e)
{
    if (!is_waiter(c, e)) return;
    ksim_limits_uncount(&w->nodes[i], c);
    ksim_reply_status(w, i, c, SLUICE_EENDED);
}

static void notify_holder(struct ksim_world *w, uint32_t i, const struct sl_effect *e)
{
    char text[64];
    struct ksim_conn *c = ksim_conn_of_session(w, i, e->past.session_id);
    bool stolen = e->type == SL_EFFECT_STOLEN;
    if (stolen) {
        sl_guests_broke(&w->nodes[i].f.guests, ksim_node_now(w, i).ms, e->past.fence,
                        false);
    }
    if (c == NULL) return;
    send_rest(w, i, c); /* A push is never in the middle of a reply. */
    int n = snprintf(text, sizeof text, ">%s %" PRIu64, stolen ? "STOLEN" : "ASKED",
                     e->past.fence);
    ksim_push(w, i, c, (struct sl_bytes){text, (size_t)n}, false);
}

void ksim_serve_effects(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_effect e;
    for (;;) {
        begin_change(w, i);
        if (!sl_table_next(n->table, ksim_node_now(w, i), &e)) break;
        struct ksim_conn *c = e.session == NULL
                                  ? NULL
                                  : sl_container_of(e.session, struct ksim_conn, s);
        ksim_mix(w, (uint64_t)e.type << 32 ^ i);
        switch (e.type) {
            case SL_EFFECT_GRANTED: answer_granted(w, i, c, &e); break;
            case SL_EFFECT_TIMED_OUT: answer_timeout(w, i, c, &e); break;
            case SL_EFFECT_ASKED:
            case SL_EFFECT_STOLEN: notify_holder(w, i, &e); break;
            case SL_EFFECT_REFUSED: answer_refused(w, i, c, &e); break;
            case SL_EFFECT_CANCELLED: answer_cancelled(w, i, c, &e); break;
            case SL_EFFECT_SESSION_OVER: ksim_conn_over(w, i, c); break;
            case SL_EFFECT_NOTHING:
            case SL_EFFECT_EXPIRED:
            case SL_EFFECT_ENDED:
            case SL_EFFECT_SEEN:
            case SL_EFFECT_WITHDRAWN:
            case SL_EFFECT_THIEF_WAITS: break;
        }
    }
}
