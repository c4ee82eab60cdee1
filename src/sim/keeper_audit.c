/* keeper_audit.c - compares what keepers do with the rules of src/failover/README.md. Unlike the
 * checker, it knows the state of all nodes and the real time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

#define AUTHORITY_US 2000000ll
/* The time that a waiter has waited does not include the time for which a message was under way. */
#define WAITED_LESS_MS 1500
/* Two waiters that arrive within this time may change places; clients of two nodes, within the time
 * for which a cut can delay a request. */
#define OVERTAKE_MS 20
#define OVERTAKE_NODE_MS 5000

/* The authority of a keeper ends before AUTHORITY_US have passed since the next keeper claimed its
 * term. The next keeper grants nothing before that authority has ended. A keeper that resigns grants
 * and extends nothing any more, so the next one need not wait. */
static void check_authority(struct ksim_world *w, uint32_t i, uint64_t term, bool fresh)
{
    const struct ksim_etcd *e = &w->etcd;
    if (term + 1 >= KSIM_TERMS || w->checker.without_clocks) return;
    int64_t next_us = e->claimed_us[term + 1];
    if (next_us > 0 && w->now_us >= next_us + AUTHORITY_US)
        KSIM_WRONG(w,
                   "n%u %s in term %" PRIu64 ", %" PRId64
                   " ms after the next term was claimed",
                   i + 1, fresh ? "grants" : "extends", term,
                   (w->now_us - next_us) / 1000);
    if (e->resigned[term] || w->nodes[i].resigns_term == term)
        KSIM_WRONG(w, "n%u %s in term %" PRIu64 ", in which it has resigned", i + 1,
                   fresh ? "grants" : "extends", term);
    if (fresh && term > 1 && !e->resigned[term - 1] &&
        w->now_us < e->sent_us[term - 1] + AUTHORITY_US)
        KSIM_WRONG(w,
                   "n%u grants in term %" PRIu64 ", only %" PRId64
                   " ms after the previous keeper sent its last heartbeat",
                   i + 1, term, (w->now_us - e->sent_us[term - 1]) / 1000);
}

static uint32_t node_of(uint32_t i, const struct ksim_conn *c)
{
    return c->is_guest ? c->guest.node : i + 1;
}

/* An acquisition that was repeated has the position of one of its attempts. */
static bool is_repeated(const struct ksim_world *w, const struct ksim_command *m)
{
    return m->id[0] != '\0' &&
           w->attempts[strtoull(m->id, NULL, 16) % KSIM_REQUESTS] > 1;
}

/* Whether a request reached its node shortly before, or during, the last pause of the keeper. The keeper
 * does not know how long a forwarded request waited for the end of the pause. */
static bool arrived_in_pause(const struct ksim_node *keeper, int64_t arrived_us)
{
    return arrived_us > keeper->paused_from_us - OVERTAKE_NODE_MS * 1000 &&
           arrived_us < keeper->paused_us;
}

/* Waiters are granted in the order of their arrival at their nodes, also if the keeper or a link has
 * changed since. (The keeper does not know how long a request was on its way, so waiters of different
 * nodes may change places if they arrived at about the same time.) */
static void check_order(struct ksim_world *w, uint32_t i, const struct ksim_request *q)
{
    const struct ksim_command *m = &q->command;
    const struct ksim_request *o = NULL;
    int64_t arrived_us = w->arrived_us[m->number % KSIM_REQUESTS];
    if (m->shared != 0 || m->steal != 0 || is_repeated(w, m)) return;
    while ((o = ksim_request_next(&w->nodes[i], o)) != NULL) {
        const struct ksim_command *other = &o->command;
        if (o == q || o->place != KSIM_IN_TABLE || o->deferred ||
            other->key != m->key || other->priority < m->priority ||
            other->shared != 0 || other->units > m->units || is_repeated(w, other))
            continue;
        bool same_node = node_of(i, o->c) == node_of(i, q->c);
        /* The keeper may know the position of an acquisition with an id from before a link broke. */
        bool exact = same_node && m->id[0] == '\0' && other->id[0] == '\0';
        int64_t overtake_ms = exact ? OVERTAKE_MS : OVERTAKE_NODE_MS;
        int64_t other_us = w->arrived_us[other->number % KSIM_REQUESTS];
        int64_t earlier_us = arrived_us - other_us;
        if (!same_node && arrived_in_pause(&w->nodes[i], other_us)) continue;
        if (earlier_us > overtake_ms * 1000 &&
            (same_node || !w->checker.without_clocks))
            KSIM_WRONG(w,
                       "k%u: request %" PRIu64 " is granted before request %" PRIu64
                       ", which arrived %" PRId64 " ms earlier",
                       m->key, m->number, other->number, earlier_us / 1000);
    }
}

/* The time in the reply includes the time that the request has waited at its node. */
static void check_waited(struct ksim_world *w, const struct ksim_request *q,
                         sl_ms waited_ms)
{
    const struct ksim_command *m = &q->command;
    int64_t us = w->now_us - w->arrived_us[m->number % KSIM_REQUESTS];
    if ((w->faults & 1ull << KSIM_FAULT_PAUSE) != 0) return;

    if (waited_ms + WAITED_LESS_MS < us / 1000 - us / 500000 ||
        waited_ms - 2 > us / 1000 + us / 500000)
        KSIM_WRONG(
            w, "k%u: request %" PRIu64 " has waited %" PRId64 " ms, not %" PRId64 " ms",
            m->key, m->number, us / 1000, waited_ms);
}

void ksim_audit_grant(struct ksim_world *w, uint32_t i, const struct ksim_request *q,
                      sl_fence fence, const struct sl_grant *g)
{
    const struct ksim_node *n = &w->nodes[i];
    ksim_mix(w, fence);
    check_authority(w, i, n->f.guests.term, g != NULL);
    ksim_admin_granted(w, i, q->command.key, fence, g);
    ksim_rules_grant(w, i, fence, q->command.lease_ms);
    ksim_leases_granted(w, i, q->command.key, fence, g != NULL);
    if (g == NULL) return;
    if (n->invalid_term == n->f.guests.term)
        KSIM_WRONG(w, "n%u grants, although it cannot read the journal", i + 1);
    check_order(w, i, q);
    check_waited(w, q, g->waited_ms);
    uint32_t node = node_of(i, q->c) - 1;
    w->made[ksim_slot(fence, KSIM_MADE)] = (struct ksim_made){
        .fence = fence,
        .term = n->f.guests.term,
        .number = q->command.number,
        /* Nobody withdraws a grant with an id: its client repeats or cancels the request. */
        .delivered = q->command.id[0] != '\0',
        .node = node,
        .life = w->arrived_life[q->command.number % KSIM_REQUESTS]};
}

void ksim_audit_replayed(struct ksim_world *w, uint32_t i, sl_fence fence)
{
    uint64_t term = w->nodes[i].f.guests.term;
    struct ksim_made *x = &w->made[ksim_slot(fence, KSIM_MADE)];
    if (x->fence == fence && x->term != term) x->replayed = true;
    check_authority(w, i, term, false);
}

/* Whether this node has handed over its ledger to the keeper. */
static bool has_reported(const struct ksim_world *w, uint32_t keeper, uint32_t node)
{
    return node == keeper || w->nodes[keeper].f.guests.nodes[node + 1].ready;
}

/* Whether the client of a grant without a lease is still connected to the node. */
static bool is_connected(const struct ksim_world *w, const struct ksim_grant *g)
{
    const struct ksim_hold *h = &w->clients[g->client].hold;
    return h->is && h->fence == g->fence && ksim_conn_find(w, g->node, h->dial) != NULL;
}

/* A grant that its holder relies on must be known now, if the node through which the holder learned of it
 * has not been restarted and has handed over its ledger. When the wait of the keeper has ended, it knows
 * all leases. */
static void check_known(struct ksim_world *w, uint32_t i, const struct ksim_grant *g,
                        bool has_waited)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_grant_view v;
    char name[16];
    sl_ms left = ksim_checker_left(g, w->now_us);
    /* A record expires up to 0.4 % before the lease, and its holder learns of it later. */
    sl_ms less = g->lease_ms / 100 + 50;
    if (!ksim_checker_holds(g, w->now_us) || g->touched || left < less ||
        w->checker.overlapping[g->key] > g->fence)
        return;
    bool alive = w->nodes[g->node].up && w->nodes[g->node].life == g->life;
    bool all = has_waited && g->leased;
    bool reports = alive && (w->faults & 1ull << KSIM_FAULT_MEMORY) == 0;
    if (!all && !(reports && has_reported(w, i, g->node))) return;
    /* A known gap: an earlier attempt that was delayed may have taken over a grant without a lease. */
    if (!g->leased && (g->closing || g->id != 0 || !is_connected(w, g))) return;
    if (!sl_table_inspect_grant(n->table, ksim_node_now(w, i), ksim_key(g->key),
                                g->fence, &v)) {
        KSIM_WRONG(w,
                   "k%u: the new keeper n%u does not know the grant of c%u (fence "
                   "%" PRIu64 "), although %s",
                   g->key, i + 1, g->client + 1, g->fence,
                   all ? "it has waited" : "its node has handed it over");
        return;
    }
    if (g->leased && v.left_ms + less < left)
        KSIM_WRONG(w,
                   "k%u: the new keeper n%u lets the lease of c%u (fence %" PRIu64
                   ") expire in %" PRId64 " ms, %" PRId64 " ms before its holder",
                   g->key, i + 1, g->client + 1, g->fence, v.left_ms, left - v.left_ms);
    snprintf(name, sizeof name, "c%u", g->client + 1);
    /* If the keeper has closed the session before the report, it does not know the client. */
    if (v.name.n == 0 && (w->faults & 1ull << KSIM_FAULT_CLOSE) != 0) return;
    if (v.name.n != strlen(name) || memcmp(v.name.at, name, v.name.n) != 0)
        KSIM_WRONG(
            w, "k%u: the new keeper n%u does not know that c%u holds fence %" PRIu64,
            g->key, i + 1, g->client + 1, g->fence);
}

/* Whether this node still acts as the keeper, although another node has claimed the next term. */
static bool is_deposed(const struct ksim_world *w, uint32_t i)
{
    return w->etcd.term.term != w->nodes[i].f.guests.term;
}

void ksim_audit_reported(struct ksim_world *w, uint32_t i, uint32_t from)
{
    /* After its wait, a keeper rejects grants that it does not know. */
    if (w->checker.without_clocks || is_deposed(w, i) || !w->nodes[i].quiet) return;
    ksim_admin_reported(w, i);
    ksim_marks_reported(w, i, from);
    for (uint32_t g = 0; g < w->checker.count; g++)
        if (w->checker.grants[g].node == from)
            check_known(w, i, &w->checker.grants[g], false);
}

/* How long it may take until a witness knows a lease of the keeper's own client; and until a node that
 * was started can be a witness. */
#define WITNESS_US 300000ll
#define STARTED_US 3000000ll

/* A keeper reports the leases of its own clients to a witness. So the next keeper must know them, if no
 * other node was killed meanwhile. */
static void check_witness(struct ksim_world *w, uint32_t i, const struct ksim_grant *g)
{
    const struct ksim_node *home = &w->nodes[g->node];
    struct sl_grant_view v;
    if (!ksim_checker_holds(g, w->now_us) || !g->leased || !g->at_keeper ||
        g->touched || w->checker.overlapping[g->key] > g->fence ||
        ksim_leases_is_alone(w, g->fence) ||
        ksim_checker_left(g, w->now_us) < g->lease_ms / 100 + 50 ||
        (home->up && home->life == g->life) ||
        home->killed_us < g->acked_us + WITNESS_US)
        return;
    for (uint32_t o = 0; o < w->node_count; o++)
        if (o != g->node && (w->nodes[o].killed_us > g->acked_us - STARTED_US ||
                             w->nodes[o].started_us > g->acked_us - STARTED_US ||
                             !has_reported(w, i, o)))
            return;
    if (!sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                ksim_key(g->key), g->fence, &v))
        KSIM_WRONG(w,
                   "k%u: no node has reported the lease of c%u (fence %" PRIu64
                   "), which the previous keeper granted or extended",
                   g->key, g->client + 1, g->fence);
}

void ksim_audit_all_reported(struct ksim_world *w, uint32_t i)
{
    if (is_deposed(w, i)) return;
    ksim_admin_reported(w, i);
    if (!w->calm || w->checker.without_clocks) return;
    for (uint32_t g = 0; g < w->checker.count; g++)
        check_witness(w, i, &w->checker.grants[g]);
}

void ksim_audit_leads(struct ksim_world *w, uint32_t i)
{
    for (uint32_t g = 0; g < w->checker.count; g++)
        if (w->checker.grants[g].node == i) w->checker.grants[g].elsewhere = true;
}

void ksim_audit_reclaim(struct ksim_world *w, uint32_t from, sl_fence fence)
{
    const struct ksim_grant *g = ksim_checker_find(&w->checker, fence);
    const struct ksim_made *x = &w->made[ksim_slot(fence, KSIM_MADE)];
    /* A node that had a note, and has not received GONE, may report the lease to the next keeper, which then sends a
     * note of it to the node `from`. */
    if (x->fence == fence && x->noted != 0) return;
    /* The journal may have a long lease, and its end only a moment later. */
    if (g == NULL || !g->ended || g->elsewhere || g->lease_ms > w->volatile_ms ||
        (w->faults & 1ull << KSIM_FAULT_SIDE) != 0 || g->ended_node != from ||
        g->node != from || g->ended_life != w->nodes[from].life)
        return;
    KSIM_WRONG(w,
               "n%u hands over the grant of c%u (fence %" PRIu64
               "), which it has released through this node",
               from + 1, g->client + 1, fence);
}

void ksim_audit_wait_ended(struct ksim_world *w, uint32_t i)
{
    KSIM_TRACE(w, "n%u has waited for earlier leases", i + 1);
    if (w->checker.without_clocks || is_deposed(w, i)) return;
    for (uint32_t g = 0; g < w->checker.count; g++)
        check_known(w, i, &w->checker.grants[g], true);
    ksim_admin_reported(w, i);
    ksim_admin_wait_ended(w, i);
    ksim_rules_wait_ended(w, i);
    ksim_leases_restored(w, i);
    ksim_leases_waited(w, i);
}

/* ---- grants that no client knows of ---- */

#define UNKNOWN_US 1500000ll /* How long a keeper may need to release such a grant. */

void ksim_audit_delivered(struct ksim_world *w, sl_fence fence)
{
    struct ksim_made *x = &w->made[ksim_slot(fence, KSIM_MADE)];
    if (x->fence == fence) x->delivered = true;
}

/* Whether a request still waits for its reply. */
static bool is_pending(const struct ksim_world *w, uint32_t node, uint64_t number)
{
    const struct ksim_request *q = NULL;
    while ((q = ksim_request_next(&w->nodes[node], q)) != NULL)
        if (!q->c->is_guest && q->command.number == number) return true;
    return false;
}

static void check_unknown(struct ksim_world *w, uint32_t i, uint32_t key,
                          const struct sl_grant_view *v)
{
    struct ksim_made *x = &w->made[ksim_slot(v->fence, KSIM_MADE)];
    if (x->fence != v->fence || x->delivered) return;
    const struct ksim_node *n = &w->nodes[x->node];
    if (!v->leased || !n->up || n->life != x->life || !has_reported(w, i, x->node) ||
        is_pending(w, x->node, x->number)) {
        x->unknown_us = 0;
        return;
    }
    if (x->unknown_us == 0 || x->unknown_term != w->etcd.term.term) {
        x->unknown_us = w->now_us;
        x->unknown_term = w->etcd.term.term;
    }
    if (w->now_us - x->unknown_us > UNKNOWN_US)
        KSIM_WRONG(w,
                   "k%u: n%u keeps a lease that no client knows of (fence %" PRIu64
                   ", request %" PRIu64 " of n%u), for another %" PRId64 " ms",
                   key, i + 1, v->fence, x->number, x->node + 1, v->left_ms);
}

void ksim_audit_unknown(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    struct sl_grant_view v;
    if (!n->f.guests.leads || is_deposed(w, i) || n->reclaims) return;
    for (uint32_t k = 0; k < w->key_count; k++) {
        uint64_t cursor = 0;
        while (sl_table_each(n->table, ksim_node_now(w, i), ksim_key(k), &cursor, &v) &&
               !v.waits)
            check_unknown(w, i, k, &v);
    }
}

/* ---- elections ---- */

/* How long a keeper must have been well before a claim is wrong: the nodes may have noticed the end of
 * their links, have waited for the silence, and their doubts are valid for a while. */
#define WELL_US 8000000ll

/* A node may count the doubt of another node for this long after that node has a link again. */
#define DOUBT_US 2500000ll

void ksim_audit_health(struct ksim_world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct ksim_node *n = &w->nodes[i];
        uint32_t seen = 1;
        for (uint32_t o = 0; o < w->node_count; o++) {
            struct ksim_link *x = &w->nodes[o].links[i];
            if (o == i) continue;
            if (!w->nodes[o].up || !x->up) x->down_us = w->now_us;
            else if (w->now_us - x->down_us > DOUBT_US) seen++;
        }
        if (!ksim_node_runs(w, i) || w->now_us < n->away_us ||
            w->now_us < n->straggles_us || w->now_us < w->etcd.slow_us ||
            seen <= w->node_count / 2)
            n->unwell_us = w->now_us;
    }
}

void ksim_audit_claim(struct ksim_world *w, uint32_t i)
{
    uint32_t keeper = w->etcd.term.node - 1;
    if (w->etcd.term.term == 0 || keeper == i || w->checker.without_clocks) return;
    if ((w->faults & 1ull << KSIM_FAULT_MEMBERS) != 0) return;
    if (w->nodes[keeper].resigns_term == w->etcd.term.term) return;
    ksim_audit_health(w);
    if (w->now_us - w->nodes[keeper].unwell_us > WELL_US)
        KSIM_WRONG(w,
                   "n%u deposes n%u, which has been able to be the keeper for %" PRId64
                   " ms",
                   i + 1, keeper + 1, (w->now_us - w->nodes[keeper].unwell_us) / 1000);
}

/* ---- transactions ---- */

static uint64_t number_in(const struct ksim_world *w, uint32_t row)
{
    char name[] = {'t', '\0', 'r', (char)('0' + row)};
    bool found;
    size_t i = ksim_map_find(&w->etcd.rows, (struct sl_bytes){name, sizeof name},
                             &found);
    return found ? strtoull(w->etcd.rows.items[i].value.at, NULL, 10) : 0;
}

void ksim_audit_commit(struct ksim_world *w, const struct ksim_op *op)
{
    uint64_t number = 0;
    for (uint32_t i = 0; i < op->op.write_count; i++) {
        const struct sl_storage_write *x = &op->op.writes[i];
        uint64_t before, other;
        uint32_t other_row, row = (uint32_t)(x->key.at[1] - '0');
        char text[80] = "";
        memcpy(text, x->value.at, x->value.n);
        if (sscanf(text, "%" SCNu64 " %" SCNu64 " %u %" SCNu64, &number, &before,
                   &other_row, &other) != 4)
            abort();
        if (number_in(w, row) != before || number_in(w, other_row) != other)
            KSIM_WRONG(w,
                       "transaction %" PRIu64 " commits, but rows that it has read "
                       "have changed: r%u %" PRIu64 " to %" PRIu64 ", r%u %" PRIu64
                       " to %" PRIu64,
                       number, row, before, number_in(w, row), other_row, other,
                       number_in(w, other_row));
    }
    if (number == 0) return;
    if (w->committed[number])
        KSIM_WRONG(w, "transaction %" PRIu64 " is committed twice", number);
    if (w->refused[number])
        KSIM_WRONG(w, "transaction %" PRIu64 " is committed after it was rejected",
                   number);
    w->committed[number] = true;
    w->committed_at[number] = op->op.result.revision;
}
