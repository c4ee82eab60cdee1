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

static void begin_change(struct ksim_world *w, uint32_t i)
{
    sl_keeper_journal_change(&w->nodes[i].f.journal, ksim_node_now(w, i).ms);
}

/* ---- commands at the keeper ---- */

/* Undo a grant that was not acknowledged; another node may know it already. This function does not undo an
 * extension: the reply to a later EXTEND, which waits as well, may show its expiry. */
static void take_back(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    const struct sl_grant g = {.fence = q->parked.fence,
                               .overlapping = q->parked.overlapping};
    begin_change(w, i);
    if (!q->parked.fresh) return;
    if (sl_table_take_back(w->nodes[i].table, ksim_node_now(w, i), &q->c->s,
                           ksim_key(q->command.key), &g))
        sl_guests_gone(&w->nodes[i].f.guests, ksim_node_now(w, i).ms, g.fence, false);
}

void ksim_serve_withdraw(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    ksim_limits_uncount(n, q);
    if (q->place == KSIM_IN_TABLE) {
        sl_table_lose(n->table, ksim_node_now(w, i), &q->c->s, q->ticket,
                      ksim_key(q->command.key), ksim_id_of(&q->command));
        ksim_leases_left(w, i, q);
    }
    if (q->place == KSIM_FOR_JOURNAL || q->place == KSIM_FOR_WITNESS) {
        take_back(w, i, q);
        /* A known gap: if this keeper fails before the end is durable, nobody withdraws the grant of its
         * own client. */
        if (!q->c->is_guest) ksim_audit_delivered(w, q->parked.fence);
    }
    if (q->place == KSIM_ON_ROUTE)
        sl_route_withdraw(&n->f.route, ksim_node_now(w, i).ms, &q->remote);
}

/* Tell the node of the client about the grant, before the reply. */
static void notify_held(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                        sl_fence fence, bool fresh)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_failover_message m[2];
    ksim_leases_shown(w, i, q->command.key, fence);
    size_t count = sl_guests_held(&n->f.guests, ksim_node_now(w, i), &q->c->guest,
                                  q->came_ms, ksim_key(q->command.key), fence, fresh,
                                  m);
    for (size_t k = 0; k < count; k++) ksim_net_send(w, i, q->c->guest.node, &m[k]);
}

/* Return the position that the journal must have before a command about this key is answered. */
static uint64_t pending(const struct ksim_node *n, struct sl_bytes key)
{
    const struct sl_journal *j = n->f.journal.rules;
    if (j == NULL) return 0;
    uint64_t position = sl_journal_pending(j, key), all = n->limits.all_position;
    return all > sl_journal_durable(j) && all > position ? all : position;
}

static void park(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                 uint64_t position, bool runs, const char *text)
{
    ksim_request_wait(w, i, q, KSIM_FOR_JOURNAL);
    q->parked.position = position;
    q->parked.fence = 0;
    q->parked.fresh = q->parked.replay = false;
    q->parked.runs = runs;
    snprintf(q->parked.reply, sizeof q->parked.reply, "%s", text);
}

/* Reply to BREAK or DRAIN. */
static void reply_durable(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                          const char *text)
{
    const struct ksim_command *m = &q->command;
    if (m->verb == KSIM_BREAK && strncmp(text, ":1", 2) == 0)
        ksim_rules_acked(w, i, m->key, m->fence, SL_NEVER, false);
    ksim_reply_text(w, i, q, text);
}

void ksim_serve_acknowledge(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                            uint64_t need, const char *text)
{
    if (need == 0) reply_durable(w, i, q, text);
    else park(w, i, q, need, false, text);
}

bool ksim_serve_waits_for_others(struct ksim_world *w, uint32_t i,
                                 struct ksim_request *q)
{
    const struct ksim_command *m = &q->command;
    uint64_t position = pending(&w->nodes[i], m->verb == KSIM_DRAIN
                                                  ? ksim_pattern(m->pattern)
                                                  : ksim_key(m->key));
    if (position == 0) return false;
    park(w, i, q, position, true, "");
    return true;
}

/* There is no memory for a note, so undo the grant or the extension. */
static void refuse(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct sl_now now = ksim_node_now(w, i);
    take_back(w, i, q);
    if (q->command.verb == KSIM_EXTEND)
        sl_table_undo_extend(w->nodes[i].table, now, ksim_key(q->command.key),
                             q->parked.fence, q->parked.end_ms, q->parked.before_ms,
                             (struct sl_bytes){NULL, 0});
    ksim_reply_status(w, i, q, SLUICE_ENOMEM);
}

/* Report a grant or an extension to the node of the client; for a client of this node, to the witness.
 * Returns the number of the note; 0: none. A grant without a lease that a repeated attempt has moved to
 * another connection belongs to the ledger of its new node only. */
static uint64_t report_held(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    bool moved = q->parked.replay && q->command.lease_ms == 0;
    sl_fence fence = q->parked.fence;
    if (moved && q->parked.moved_from == 0) return 0;
    if (moved || q->parked.fresh) ksim_records_taken(w, i, q);
    if (moved) ksim_requests_moved(w, i, q->parked.moved_from, fence);
    uint64_t number = 0;
    if (q->c->is_guest) notify_held(w, i, q, fence, q->parked.fresh || moved);
    else {
        ksim_memory_begin(w);
        number = sl_failover_note(&w->nodes[i].f, ksim_node_now(w, i),
                                  ksim_key(q->command.key), fence);
        ksim_memory_end();
    }
    /* Another node may report the grant to the next keeper, so it is not taken back. */
    if (q->command.id[0] != '\0' && q->command.lease_ms > 0 && number != SL_NOTE_FAILED)
        sl_table_known(w->nodes[i].table, ksim_node_now(w, i), ksim_key(q->command.key),
                       fence);
    return number;
}

/* Reply to an ACQUIRE or EXTEND. */
static void reply_held(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    ksim_records_acked(w, q->parked.fence);
    if (q->parked.replay)
        sl_table_known(w->nodes[i].table, ksim_node_now(w, i), ksim_key(q->command.key),
                       q->parked.fence);
    ksim_reply_text(w, i, q, q->parked.reply);
}

/* Send a reply that shows a change, when the journal allows it: for a client of this node, when another
 * node has recorded the lease. */
static void acknowledge_now(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    ksim_rules_acked(w, i, q->command.key, q->parked.fence,
                     q->parked.replay ? q->parked.left_ms : q->command.lease_ms,
                     q->parked.fresh);
    uint64_t number = report_held(w, i, q);
    if (number == SL_NOTE_FAILED) {
        refuse(w, i, q);
        return;
    }
    q->parked.position = number;
    q->parked.since_us = w->now_us;
    if (number != 0) {
        ksim_request_wait(w, i, q, KSIM_FOR_WITNESS);
        return;
    }
    if (!q->c->is_guest) ksim_leases_acked(w, i, q);
    reply_held(w, i, q);
}

static void acknowledge(struct ksim_world *w, uint32_t i, struct ksim_request *q,
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
    if (need != 0 && fresh && ksim_has_fault(w, KSIM_FAULT_WRITES) &&
        sl_random_maybe(&w->random, 1000))
        ksim_schedule(w, sl_random_between(&w->random, 0, 5000),
                      (struct sim_event){.type = SIM_EVENT_CRASH,
                                         .node = i,
                                         .number = w->nodes[i].life});
    q->parked.fence = fence;
    q->parked.fresh = fresh;
    q->parked.runs = false;
    q->parked.end_ms = sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                              ksim_key(q->command.key), fence, &v)
                           ? v.end_ms
                           : 0;
    snprintf(q->parked.reply, sizeof q->parked.reply, "%s", text);
    /* The remaining time in the reply may be that of an earlier extension, which must be durable. */
    if (need == 0 && !fresh) need = pending(&w->nodes[i], ksim_key(q->command.key));
    if (need == 0) {
        acknowledge_now(w, i, q);
        return;
    }
    /* If the keeper fails before the reply, the client's node must know of the grant, to withdraw it. It
     * must not know of an extension, which the next keeper may not find in the journal. */
    if ((fresh || q->parked.replay) && q->c->is_guest) report_held(w, i, q);
    q->parked.position = need;
    ksim_request_wait(w, i, q, KSIM_FOR_JOURNAL);
}

/* Whether the change that a reply shows still exists. If the reply waited, the lease may have expired. An
 * extension may also have been undone: if an earlier EXTEND had set a later expiry, this one kept that expiry; if
 * there was then no memory for the note of the earlier one, that expiry was undone. */
static bool is_in_table(const struct ksim_world *w, uint32_t i,
                        const struct ksim_request *q)
{
    const struct sl_table *t = w->nodes[i].table;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_bytes key = ksim_key(q->command.key);
    struct sl_grant_view v;
    return q->command.verb == KSIM_ACQUIRE
               ? sl_table_holds(t, now, key, q->parked.fence)
               : sl_table_inspect_grant(t, now, key, q->parked.fence, &v) &&
                     v.end_ms >= q->parked.end_ms;
}

/* If the change that a reply shows no longer exists, run the command again. */
static bool is_over(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    if (is_in_table(w, i, q)) return false;
    /* A known gap: if this keeper fails before the end is durable, the next one restores the lease,
     * which no client knows of, until it expires again. */
    if (q->command.verb == KSIM_ACQUIRE) ksim_audit_delivered(w, q->parked.fence);
    q->place = KSIM_NOWHERE;
    q->deferred = true;
    ksim_serve(w, i, q);
    return true;
}

void ksim_serve_durable(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    uint64_t durable = sl_journal_durable(n->f.journal.rules);
    struct ksim_request *q = NULL;
    ksim_admin_durable(w, i, durable);
    while ((q = ksim_request_next(n, q)) != NULL) {
        if (q->place != KSIM_FOR_JOURNAL || q->parked.position > durable) continue;
        if (q->parked.runs) {
            q->place = KSIM_NOWHERE;
            q->deferred = true;
            ksim_serve(w, i, q);
        } else if (q->parked.fence == 0) {
            q->place = KSIM_NOWHERE;
            reply_durable(w, i, q, q->parked.reply);
        } else if (!is_over(w, i, q)) acknowledge_now(w, i, q);
    }
}

void ksim_serve_noted(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    uint64_t noted = sl_failover_noted(&n->f);
    struct ksim_request *q = NULL;
    while ((q = ksim_request_next(n, q)) != NULL) {
        if (q->place != KSIM_FOR_WITNESS || q->parked.position > noted) continue;
        if (is_over(w, i, q)) continue;
        ksim_leases_acked(w, i, q);
        reply_held(w, i, q);
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

void ksim_serve_requeue(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    take_back(w, i, q);
    if (q->parked.fresh && q->command.id[0] == '\0') {
        sl_route_withdraw_own(&n->f.route, ksim_node_now(w, i).ms, &q->c->s,
                              ksim_key(q->command.key), q->parked.fence,
                              q->command.lease_ms);
        describe_client(w, i, q->c);
    }
    q->deferred = true;
    ksim_serve_forward(w, i, q);
}

static void granted(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                    const struct sl_grant *g)
{
    struct ksim_node *n = &w->nodes[i];
    char text[160];
    if (g->replay) ksim_audit_replayed(w, i, g->fence);
    else {
        if (g->lease_ms > 0) ksim_limits_given(n, ksim_node_now(w, i).ms, g->lease_ms);
        ksim_audit_grant(w, i, q, g->fence, g);
    }
    if (q->command.id[0] != '\0') ksim_requests_granted(w, i, &q->command);
    snprintf(text, sizeof text,
             "*%d\r\n:%" PRIu64 "\r\n:%" PRId64 "\r\n:%" PRId64 "\r\n:%d\r\n:%" PRIu64
             "\r\n:%d\r\n %" PRIu64,
             q->command.id[0] != '\0' ? 6 : 5, g->fence, g->lease_ms, g->waited_ms,
             g->overlapping, q->command.number, g->replay, n->f.guests.term);
    q->parked.overlapping = g->overlapping;
    q->parked.replay = g->replay;
    q->parked.moved_from = g->moved_from;
    q->parked.left_ms = g->lease_ms;
    acknowledge(w, i, q, g->fence, !g->replay, text);
}

/* Let the command wait until the limits are durable. */
static void defer(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                  sl_ms lease_ms)
{
    ksim_request_wait(w, i, q, KSIM_FOR_LIMITS);
    q->deferred = true;
    ksim_limits_want(w, i, lease_ms);
}

static void acquire(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &q->command;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_grant g;
    struct sl_want want = {.key = ksim_key(m->key),
                           .shared = m->shared != 0,
                           .per = m->per,
                           .buckets = 1,
                           .units = m->units,
                           .priority = m->priority,
                           .wait_ms = m->wait_ms,
                           .waited_ms = now.ms - q->arrived_ms,
                           .lease_ms = m->lease_ms,
                           .steal = m->steal != 0,
                           .force_ms = m->force_ms,
                           .notify = m->notify != 0,
                           .request = ksim_id_of(m),
                           .digest = ksim_digest_of(m),
                           .ticket = q->ticket = ++w->tickets};
    if (ksim_has_fault(w, KSIM_FAULT_LARGE) && m->lease_ms > 0)
        want.value = (struct sl_bytes){large, sizeof large};
    if (want.wait_ms > 0)
        want.wait_ms = want.wait_ms > want.waited_ms ? want.wait_ms - want.waited_ms
                                                     : 0;
    if (!ksim_limits_know(n, m->lease_ms)) {
        int status = sl_table_judge(n->table, now, &q->c->s, &want);
        if (status == SLUICE_OK || status == SL_WAITS) {
            if (n->limits.failed) {
                ksim_reply_status(w, i, q, SLUICE_EIO);
                return;
            }
            defer(w, i, q, m->lease_ms);
            return;
        }
    }
    /* A grant without a lease moves to the connection that repeats it, and its nodes must learn of that. */
    if (sl_table_repeats(n->table, &q->c->s, &want) &&
        ksim_serve_waits_for_others(w, i, q))
        return;
    /* The table ends an acquisition with the reply nil, but the lock may be free when the journal is durable. */
    if (want.request.n > 0 && want.wait_ms == 0 &&
        sl_table_judge(n->table, now, &q->c->s, &want) == SLUICE_EFULL &&
        ksim_serve_waits_for_others(w, i, q))
        return;
    if (!q->c->is_guest && q->c->s.client == NULL) {
        if (q->c->s.origin == 0) q->c->s.origin = sl_route_draw_origin(&n->f.route);
        describe_client(w, i, q->c);
    }
    begin_change(w, i);
    int status = sl_table_acquire(n->table, now, &q->c->s, &want, &g);
    if (status == SLUICE_OK) granted(w, i, q, &g);
    else if (status == SL_WAITS) {
        ksim_request_wait(w, i, q, KSIM_IN_TABLE);
        if (m->lease_ms > 0) ksim_limits_count(n, q, m->lease_ms);
    } else if (status == SLUICE_EFENCES && !n->limits.failed) {
        defer(w, i, q, 0);
    } else if ((status == SLUICE_EFULL || status == SLUICE_EDRAINED) &&
               ksim_serve_waits_for_others(w, i, q))
        return;
    else ksim_reply_status(w, i, q, status);
}

/* Whether another node may still report the grant, so that the keeper cannot say that it is not
 * held. */
static bool may_be_reported(struct ksim_world *w, uint32_t i,
                            const struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    struct sl_table_stats stats;
    sl_table_stats(n->table, &stats);
    return stats.recovering_until_ms > now.ms &&
           !sl_table_holds(n->table, now, ksim_key(q->command.key), q->command.fence);
}

static void extend(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &q->command;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_grant_view v = {0};
    char text[64];
    sl_ms left;
    if (sl_table_inspect_grant(n->table, now, ksim_key(m->key), m->fence, &v) &&
        !ksim_limits_know(n, m->lease_ms)) {
        if (n->limits.failed) {
            ksim_reply_status(w, i, q, SLUICE_EIO);
            return;
        }
        defer(w, i, q, m->lease_ms);
        return;
    }
    begin_change(w, i);
    int status = sl_table_extend(n->table, now, &q->c->s, ksim_key(m->key), m->fence,
                                 m->lease_ms, (struct sl_bytes){NULL, 0}, &left);
    if (status == SLUICE_ELOST) ksim_rules_not_held(w, i);
    if (status == SLUICE_ELOST && may_be_reported(w, i, q)) status = SLUICE_ERECOVERING;
    else if (status == SLUICE_ELOST && ksim_serve_waits_for_others(w, i, q)) return;
    if (status != SLUICE_OK) {
        ksim_reply_status(w, i, q, status);
        return;
    }
    ksim_leases_extended(w, i, ksim_key(m->key), &v);
    q->parked.replay = false;
    q->parked.before_ms = v.end_ms;
    ksim_limits_given(n, now.ms, m->lease_ms);
    ksim_audit_grant(w, i, q, m->fence, NULL);
    snprintf(text, sizeof text, ":%" PRId64 "\r\n %" PRIu64, left, n->f.guests.term);
    acknowledge(w, i, q, m->fence, false, text);
}

static void release(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &q->command;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_ended past;
    begin_change(w, i);
    if (sl_table_release(n->table, now, &q->c->s, ksim_key(m->key), m->fence, &past) ==
        0) {
        ksim_rules_not_held(w, i);
        if (may_be_reported(w, i, q)) ksim_reply_status(w, i, q, SLUICE_ERECOVERING);
        else if (!ksim_serve_waits_for_others(w, i, q))
            ksim_reply_text(w, i, q, ":0\r\n");
        return;
    }
    ksim_leases_ended(w, i, m->fence);
    if (past.leased || past.session_id != q->c->s.id)
        sl_guests_gone(&n->f.guests, now.ms, past.fence, false);
    ksim_reply_text(w, i, q, ":1\r\n");
}

/* ---- which node decides ---- */

static enum sl_route_verb verb_of(const struct ksim_command *m)
{
    switch (m->verb) {
        case KSIM_ACQUIRE: return SL_ROUTE_ACQUIRE;
        case KSIM_EXTEND: return SL_ROUTE_EXTEND;
        case KSIM_RELEASE: return SL_ROUTE_RELEASE;
        case KSIM_TX_BEGIN: return SL_ROUTE_TX_BEGIN;
        case KSIM_TX_COMMIT: return SL_ROUTE_TX_COMMIT;
        case KSIM_TX_ABORT: return SL_ROUTE_TX_ABORT;
        default: return ksim_is_tx(m) ? SL_ROUTE_TX : SL_ROUTE_OTHER;
    }
}

/* Set up the part of a request that the route uses. */
static void describe(struct ksim_request *q)
{
    const struct ksim_command *m = &q->command;
    bool has_fence = m->verb == KSIM_EXTEND || m->verb == KSIM_RELEASE;
    q->remote = (struct sl_route_request){
        .verb = verb_of(m),
        .waits = m->wait_ms > 0,
        .settles = m->settles != 0,
        .arrived_ms = q->arrived_ms,
        .key = ksim_key(m->key),
        .lease_ms = m->verb == KSIM_ACQUIRE ? m->lease_ms : 0,
        .fence = has_fence ? m->fence : 0,
        .bytes = {(const char *)m, sizeof *m},
        .named = m->verb == KSIM_ACQUIRE && m->id[0] != '\0' && m->lease_ms > 0,
        .notify = m->notify != 0,
        .id = {m->id, m->verb == KSIM_TX_BEGIN ? strlen(m->id) : 0}};
}

void ksim_serve_forward(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct sl_route *r = &w->nodes[i].f.route;
    const struct ksim_command *m = &q->command;
    if (sl_route_session_begin(r, &q->c->route, &q->c->s) != SLUICE_OK) abort();
    describe(q);
    if (m->verb == KSIM_RELEASE)
        q->remote.released_fence = sl_route_released(r, &q->c->route, ksim_key(m->key),
                                                     m->fence);
    q->place = KSIM_ON_ROUTE;
    w->counts.forwarded++;
    sl_route_submit(r, &q->c->route, &q->remote);
}

void ksim_serve_settle(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                       struct sl_bytes id)
{
    struct ksim_command *m = &q->command;
    m->verb = KSIM_TX_OUTCOME;
    m->settles = 1;
    if (id.n >= sizeof m->id) abort();
    memcpy(m->id, id.at, id.n);
    m->id[id.n] = '\0';
    describe(q);
    sl_route_settle(&w->nodes[i].f.route, &q->c->route, &q->remote);
}

void ksim_serve(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_route *r = &n->f.route;
    uint32_t verb = q->command.verb;
    bool complete = verb == KSIM_EXTEND || verb == KSIM_RELEASE || verb == KSIM_READ ||
                    verb == KSIM_BREAK || verb == KSIM_DRAIN || verb == KSIM_CANCEL ||
                    (verb == KSIM_ACQUIRE && q->command.id[0] != '\0');
    bool of_locks = complete || verb == KSIM_ACQUIRE;
    bool here = r->leads && (n->f.guests.reports_until_ms == 0 || !complete) &&
                !(n->f.resigning && of_locks);
    if (ksim_tx_answers_lost(w, i, q)) return;
    if (verb == KSIM_RESET) {
        ksim_conn_reset(w, i, q);
        return;
    }
    if (!here && sl_route_gives_up(r, ksim_node_now(w, i).ms))
        ksim_reply_text(w, i, q, "-NOKEEPER\r\n");
    else if (!here) ksim_serve_forward(w, i, q);
    else if (verb == KSIM_ACQUIRE) acquire(w, i, q);
    else if (verb == KSIM_EXTEND) extend(w, i, q);
    else if (verb == KSIM_RELEASE) release(w, i, q);
    else if (verb == KSIM_READ) ksim_reply_in_parts(w, i, q);
    else if (verb == KSIM_BREAK) ksim_admin_break(w, i, q);
    else if (verb == KSIM_DRAIN) ksim_admin_drain(w, i, q);
    else if (verb == KSIM_CANCEL) ksim_requests_cancel(w, i, q);
    else ksim_tx_serve(w, i, q);
}

void ksim_serve_resume_deferred(struct ksim_world *w, uint32_t i)
{
    struct ksim_request *q = NULL;
    while ((q = ksim_request_next(&w->nodes[i], q)) != NULL) {
        if (q->place != KSIM_FOR_LIMITS) continue;
        q->place = KSIM_NOWHERE;
        ksim_serve(w, i, q);
    }
}

/* ---- effects of the table ---- */

/* Return the request that waits in the table with the ticket of this effect, or NULL. */
static struct ksim_request *waiter(const struct ksim_conn *c, const struct sl_effect *e)
{
    struct ksim_request *q = ksim_conn_next(c, NULL);
    while (q != NULL && (q->place != KSIM_IN_TABLE || q->ticket != e->ticket))
        q = ksim_conn_next(c, q);
    return q;
}

static void answer_granted(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                           const struct sl_effect *e)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    struct ksim_request *q = waiter(c, e);
    if (q == NULL && e->grant.replay) return;
    if (q != NULL) ksim_limits_uncount(n, q);
    bool late = q != NULL && ksim_conn_hung_up(w, c) &&
                sl_random_maybe(&w->random, 5000);
    if (q != NULL && !late) {
        granted(w, i, q, &e->grant);
        return;
    }
    bool stays = !e->grant.replay &&
                 !sl_table_take_back(n->table, now, &c->s, e->key, &e->grant);
    if (!late) return;
    if (stays) { /* It belongs to another attempt. */
        if (e->grant.lease_ms > 0) ksim_limits_given(n, now.ms, e->grant.lease_ms);
        ksim_audit_grant(w, i, q, e->grant.fence, &e->grant);
    }
    q->place = KSIM_NOWHERE;
    ksim_conn_close(w, i, c, false);
}

static void answer_timeout(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct sl_table_stats stats;
    sl_ms now_ms = ksim_node_now(w, i).ms;
    sl_table_stats(w->nodes[i].table, &stats);
    ksim_reply_status(w, i, q,
                      stats.authority_until_ms <= now_ms   ? SLUICE_ENOKEEPER
                      : stats.recovering_until_ms > now_ms ? SLUICE_ERECOVERING
                                                           : SLUICE_EFULL);
}

/* Answer a waiter that is not granted the lock: it has timed out; its key is drained; or its acquisition was
 * cancelled. */
static void answer_waiter(struct ksim_world *w, uint32_t i, const struct ksim_conn *c,
                          const struct sl_effect *e)
{
    struct ksim_request *q = waiter(c, e);
    if (q == NULL) return;
    ksim_limits_uncount(&w->nodes[i], q);
    if (e->type == SL_EFFECT_TIMED_OUT) answer_timeout(w, i, q);
    else if (e->type == SL_EFFECT_CANCELLED) ksim_reply_status(w, i, q, SLUICE_EENDED);
    else if (!ksim_serve_waits_for_others(w, i, q))
        ksim_reply_status(w, i, q, SLUICE_EDRAINED);
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
            case SL_EFFECT_TIMED_OUT:
            case SL_EFFECT_REFUSED:
            case SL_EFFECT_CANCELLED: answer_waiter(w, i, c, &e); break;
            case SL_EFFECT_ASKED:
            case SL_EFFECT_STOLEN: notify_holder(w, i, &e); break;
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
