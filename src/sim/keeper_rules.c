/* keeper_rules.c - rules of src/failover/README.md that no client sees at once: what nodes send, store
 * and remember. Like keeper_audit.c, these checks know the state of all nodes, of etcd, and the real
 * time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

#define AUTHORITY_US 2000000ll
#define SILENCE_US 2900000ll /* The silence after which a node claims, less than 3 s. */
#define REPORTS_MS 1000      /* How long a new keeper waits for reports. */

static bool is_current(const struct ksim_world *w, uint32_t i)
{
    return w->nodes[i].f.guests.leads &&
           w->etcd.term.term == w->nodes[i].f.guests.term &&
           w->etcd.term.term < KSIM_TERMS;
}

static bool is_known(struct ksim_world *w, uint32_t i, struct sl_bytes key,
                     sl_fence fence, struct sl_grant_view *v)
{
    return sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i), key, fence,
                                  v);
}

/* ---- authority ---- */

/* The authority ends 2 s after the last confirmed heartbeat was sent, by any clock. */
static void check_authority(struct ksim_world *w, uint32_t i,
                            const struct sl_table_stats *stats)
{
    const struct ksim_node *n = &w->nodes[i];
    sl_ms until_ms = stats->authority_until_ms;
    if (!n->f.route.leads && until_ms > ksim_node_now(w, i).ms)
        KSIM_WRONG(w, "n%u has authority, but it is not the keeper", i + 1);
    /* The rate of a clock may have changed, so a time in the past is not exact. */
    if (!n->f.route.leads || until_ms <= ksim_node_now(w, i).ms ||
        w->checker.without_clocks)
        return;
    int64_t end_us = sim_clock_when(&n->clock, until_ms * 1000);
    int64_t most_us = w->etcd.sent_us[n->f.guests.term % KSIM_TERMS] + AUTHORITY_US;
    if (end_us > most_us + 1000)
        KSIM_WRONG(w, "n%u has authority for %" PRId64 " us too long", i + 1,
                   end_us - most_us);
}

#define TICK_US 1000000ll /* A node does something at least this often. */

/* The successor of a keeper that has resigned does not wait, if all other nodes have reported. */
static void check_successor(struct ksim_world *w, uint32_t i,
                            const struct sl_table_stats *stats)
{
    struct ksim_node *n = &w->nodes[i];
    const struct sl_guests *g = &n->f.guests;
    int64_t since_us = n->waits_us;
    n->waits_us = 0;
    if (!is_current(w, i) || g->term < 2 || !w->etcd.resigned[g->term - 1] ||
        g->reads_journal || n->has_more || !sl_list_empty(&n->f.route.ledger.all) ||
        stats->recovering_until_ms <= ksim_node_now(w, i).ms)
        return;
    for (uint32_t o = 0; o < w->node_count; o++)
        if (o != i && o + 1 != w->etcd.nodes[g->term - 1] && !g->nodes[o + 1].ready)
            return;
    n->waits_us = since_us > 0 ? since_us : w->now_us;
    if (w->now_us - n->waits_us < TICK_US) return;
    KSIM_WRONG(w,
               "n%u waits, although the last keeper has resigned and all have reported",
               i + 1);
}

/* ---- ends of which the holder may not know ---- */

void ksim_rules_urgent(struct ksim_world *w, uint32_t i, sl_fence fence)
{
    struct ksim_node *n = &w->nodes[i];
    n->urgent = fence;
    n->urgent_to = 0;
    for (uint32_t o = 0; o < w->node_count; o++)
        if (n->f.guests.nodes[o + 1].open) n->urgent_to |= 1u << o;
}

static void check_urgent(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    for (uint32_t o = 0; o < w->node_count; o++)
        if ((n->urgent_to >> o & 1) != 0 && n->f.guests.nodes[o + 1].open &&
            n->links[o].up)
            KSIM_WRONG(w,
                       "n%u has not yet told n%u that fence %" PRIu64 " was taken away",
                       i + 1, o + 1, n->urgent);
    n->urgent_to = 0;
}

/* A keeper that has stepped down has told the nodes that had a route. Note which nodes have one. */
static void check_told(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    for (uint32_t o = 0; o < w->node_count; o++)
        if ((n->not_to >> o & 1) != 0 && n->links[o].up)
            KSIM_WRONG(w, "n%u does not tell n%u that its route has ended", i + 1,
                       o + 1);
    n->not_to = n->routes = 0;
    for (uint32_t o = 0; o < w->node_count; o++)
        if (n->f.guests.leads && n->f.guests.nodes[o + 1].open) n->routes |= 1u << o;
}

void ksim_rules_settled(struct ksim_world *w, uint32_t i,
                        const struct sl_table_stats *stats)
{
    const struct ksim_node *n = &w->nodes[i];
    check_told(w, i);
    if (n->f.route.leads && n->f.guests.term < n->told_term)
        KSIM_WRONG(w, "n%u leads in term %" PRIu64 ", but knows term %" PRIu64, i + 1,
                   n->f.guests.term, n->told_term);
    check_authority(w, i, stats);
    check_successor(w, i, stats);
    check_urgent(w, i);
    ksim_leases_settled(w, i, stats);
}

/* ---- terms ---- */

void ksim_rules_told(struct ksim_world *w, uint32_t i, uint64_t term)
{
    if (term > w->nodes[i].told_term) w->nodes[i].told_term = term;
}

static void note_reported(struct ksim_world *w, sl_fence fence, uint64_t term)
{
    struct ksim_lease *x = ksim_leases_find(w, fence);
    if (x != NULL) x->reported_term = term;
}

void ksim_rules_lead(struct ksim_world *w, uint32_t i, uint64_t term, bool waits)
{
    struct ksim_node *n = &w->nodes[i];
    n->lead_ms = ksim_node_now(w, i).ms;
    n->lead_linked = waits ? ksim_node_linked(w, i) : 0;
    const struct sl_list *all = &n->f.route.ledger.all;
    for (const struct sl_list *x = all->next; x != all; x = x->next)
        note_reported(w, sl_container_of(x, const struct sl_record, all)->fence, term);
    if (term < n->told_term)
        KSIM_WRONG(w, "n%u leads in term %" PRIu64 ", but knows term %" PRIu64, i + 1,
                   term, n->told_term);
}

void ksim_rules_stop(struct ksim_world *w, uint32_t i, uint64_t term)
{
    const struct sl_storage_term *t = &w->etcd.term;
    if (t->term == term && t->node == i + 1 && w->nodes[i].resigns_term != term)
        KSIM_WRONG(w, "n%u stops, although it is the keeper of term %" PRIu64, i + 1,
                   term);
    w->nodes[i].not_to |= w->nodes[i].routes;
}

void ksim_rules_resign(struct ksim_world *w, uint32_t i)
{
    struct sl_table_stats stats;
    sl_table_stats(w->nodes[i].table, &stats);
    if (stats.recovering_until_ms > ksim_node_now(w, i).ms)
        KSIM_WRONG(w, "n%u resigns, although it waits for earlier leases", i + 1);
}

/* Note when each node last heard the others, and when it could last doubt them. */
void ksim_rules_health(struct ksim_world *w)
{
    for (uint32_t a = 0; a < w->node_count; a++)
        for (uint32_t b = 0; b < w->node_count; b++) {
            struct ksim_link *x = &w->nodes[a].links[b];
            if (a == b || !ksim_node_runs(w, a)) continue;
            if (x->sees_closed) x->closed_us = w->now_us;
            if (x->up && x->broken_us < 0) x->heard_us = w->now_us;
            if (w->now_us - x->heard_us > SILENCE_US) x->silent_us = w->now_us;
        }
}

/* How long a doubt counts, after the node has reached the keeper again. */
#define DOUBT_US 2500000ll

/* A claim has the journal time that the node read last. The node may have been cut off from etcd for up to
 * 15 s since, and etcd may have been slow before and after. */
#define OLD_JOURNAL_MS 40000

/* A node claims a term because a majority cannot reach the keeper, or because its heartbeat has not
 * changed for a while. A keeper that has resigned lets others claim first. */
void ksim_rules_claim(struct ksim_world *w, const struct ksim_op *x)
{
    const struct ksim_etcd *e = &w->etcd;
    uint32_t keeper = e->term.node - 1, doubts = 0;
    int64_t beat_us = w->now_us - e->renewed_us;
    if (e->term.term == 0 || w->checker.without_clocks) return;
    if (x->op.clock_ms + OLD_JOURNAL_MS < e->term.clock_ms)
        KSIM_WRONG(w, "n%u sets the journal time back by %" PRId64 " ms", x->node + 1,
                   e->term.clock_ms - x->op.clock_ms);
    if (keeper == x->node) {
        if (e->term.resigned && e->resigned_life == x->life && beat_us < SILENCE_US)
            KSIM_WRONG(w, "n%u claims the next term at once, although it has resigned",
                       x->node + 1);
        return;
    }
    if (e->term.resigned || beat_us > SILENCE_US || !w->nodes[keeper].up) return;
    /* A known gap: before the first heartbeat in a new cluster, a claim has no heartbeat to compare. */
    if (e->term.term == 1) return;
    /* Nodes that know another membership count another majority. */
    if ((w->faults & 1ull << KSIM_FAULT_MEMBERS) != 0) return;
    for (uint32_t o = 0; o < w->node_count; o++) {
        const struct ksim_link *l = &w->nodes[o].links[keeper];
        if (o == keeper) continue;
        if (w->now_us - l->heard_us > SILENCE_US ||
            (l->closed_us > 0 && x->asked_us - l->closed_us < DOUBT_US) ||
            (l->silent_us > 0 && x->asked_us - l->silent_us < DOUBT_US))
            doubts++;
    }
    if (doubts <= w->node_count / 2)
        KSIM_WRONG(w,
                   "n%u deposes n%u, whose last heartbeat is %" PRId64
                   " ms old, and which %u of %u nodes may doubt",
                   x->node + 1, keeper + 1, beat_us / 1000, doubts, w->node_count);
}

/* Etcd has executed a claim or a renewal: journal time is slower than all clocks. */
void ksim_rules_renewed(struct ksim_world *w, const struct ksim_op *x)
{
    struct ksim_etcd *e = &w->etcd;
    uint64_t t = e->term.term % KSIM_TERMS;
    bool begins = x->op.type == SL_STORAGE_CLAIM;
    e->renewed_us = w->now_us;
    ksim_leases_renewed(w);
    if (x->asked_us > e->sent_us[t]) e->sent_us[t] = x->asked_us;
    if (x->op.type == SL_STORAGE_RESIGN) e->resigned_life = x->life;
    if (begins || e->journal_us == 0) {
        e->nodes[t] = x->node + 1;
        e->journal_us = begins ? 0 : x->asked_us;
        e->journal_ms = x->op.clock_ms;
        return;
    }
    int64_t passed_us = x->asked_us - e->journal_us;
    if (!w->checker.without_clocks &&
        x->op.clock_ms - e->journal_ms > (passed_us - passed_us / 1000) / 1000 + 2)
        KSIM_WRONG(w,
                   "journal time advances by %" PRId64 " ms while %" PRId64 " ms pass",
                   x->op.clock_ms - e->journal_ms, passed_us / 1000);
}

/* ---- withdrawals ---- */

void ksim_rules_withdrawn(struct ksim_world *w, uint32_t i, sl_fence fence)
{
    const struct ksim_grant *g = ksim_checker_find(&w->checker, fence);
    if (g != NULL && !g->touched && ksim_checker_holds(g, w->now_us) &&
        !w->checker.without_clocks)
        KSIM_WRONG(w, "n%u releases fence %" PRIu64 ", which its client c%u knows of",
                   i + 1, fence, g->client + 1);
}

/* ---- what is durable before a reply ---- */

sl_fence ksim_fence_of(const struct ksim_item *x)
{
    char text[32] = "";
    if (x->key.at[0] != 'g' || x->key.n >= sizeof text) return 0;
    memcpy(text, x->key.at + 1, x->key.n - 1);
    return strtoull(text, NULL, 16);
}

/* A long lease is in the journal, and an earlier lease of an exclusive key that has ended is not. */
void ksim_rules_acked(struct ksim_world *w, uint32_t i, uint32_t key, sl_fence fence,
                      sl_ms lease_ms, bool fresh)
{
    const struct ksim_map *m = &w->etcd.journal;
    struct sl_grant_view v;
    bool found = false;
    if (!is_current(w, i) || !is_known(w, i, ksim_key(key), fence, &v)) return;
    for (size_t k = 0; k < m->count; k++) {
        sl_fence other = ksim_fence_of(&m->items[k]);
        if (other == fence) found = true;
        if (!fresh || v.overlapping || other == 0 || other >= fence ||
            ksim_kind_of(key) != KSIM_MUTEX)
            continue;
        const struct ksim_grant *g = ksim_checker_find(&w->checker, other);
        struct sl_grant_view past;
        if (g != NULL && g->key == key && !is_known(w, i, ksim_key(key), other, &past))
            KSIM_WRONG(w,
                       "k%u: n%u grants fence %" PRIu64 ", but the journal still has "
                       "fence %" PRIu64 ", which has ended",
                       key, i + 1, fence, other);
    }
    if (!found && lease_ms > w->volatile_ms)
        KSIM_WRONG(
            w, "k%u: n%u acknowledges fence %" PRIu64 ", which is not in the journal",
            key, i + 1, fence);
}

/* ---- limits ---- */

/* The limits for fences and leases are in etcd before the keeper uses them. */
void ksim_rules_grant(struct ksim_world *w, uint32_t i, sl_fence fence, sl_ms lease_ms)
{
    const struct sl_storage_term *t = &w->etcd.term;
    if (!is_current(w, i)) return;
    if (fence > t->fence_limit)
        KSIM_WRONG(w, "n%u grants fence %" PRIu64 ", above the limit in etcd", i + 1,
                   fence);
    if (lease_ms > w->volatile_ms) lease_ms = w->volatile_ms;
    if (lease_ms > t->longest_ms)
        KSIM_WRONG(w, "n%u grants a lease of %" PRId64 " ms, above the limit in etcd",
                   i + 1, lease_ms);
}

/* ---- replies of a new keeper ---- */

/* A keeper does not find a grant. It must have read the journal, and must have waited for reports. */
void ksim_rules_not_held(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct sl_guests *g = &n->f.guests;
    if (!is_current(w, i)) return;
    if (g->reads_journal)
        KSIM_WRONG(w, "n%u says \"not held\" before it has read the journal", i + 1);
    if (ksim_node_now(w, i).ms >= n->lead_ms + REPORTS_MS) return;
    for (uint32_t o = 0; o < w->node_count; o++)
        if ((n->lead_linked >> (o + 1) & 1) != 0 && (g->reported >> (o + 1) & 1) == 0 &&
            w->etcd.nodes[g->term - 1] != o + 1)
            KSIM_WRONG(w, "n%u says \"not held\" before n%u has reported", i + 1,
                       o + 1);
}

/* The requests of a node have arrived there in the order in which it sends them. On a new route, it sends
 * those that were not answered again. */
void ksim_rules_asked(struct ksim_world *w, uint32_t i, const struct sl_guest *g)
{
    struct ksim_node *n = &w->nodes[i];
    uint32_t o = g->node - 1;
    if (g->arrived_ms < n->asked_ms[o])
        KSIM_WRONG(w, "n%u counts a request of n%u as earlier than the one before",
                   i + 1, o + 1);
    n->asked_ms[o] = g->arrived_ms;
}

void ksim_rules_left(struct ksim_world *w, uint32_t i, const struct ksim_conn *c)
{
    if (c->route.tx != 0 || c->route.tx_request.n != 0)
        KSIM_WRONG(w, "n%u remembers the transaction of a client that has left", i + 1);
}

/* A keeper runs requests for locks itself, unless it hands over to another node. (Those with an id wait until it
 * has read the journal.) */
void ksim_rules_gave_up(struct ksim_world *w, uint32_t i, const struct ksim_request *q)
{
    const struct ksim_node *n = &w->nodes[i];
    bool is_ready = q->command.id[0] == '\0' || n->f.guests.reports_until_ms == 0;
    if (q->command.verb == KSIM_ACQUIRE && n->f.route.leads && !n->f.resigning &&
        is_ready)
        KSIM_WRONG(w, "n%u answers request %" PRIu64 " with NOKEEPER, but it leads",
                   i + 1, q->command.number);
}

/* Without a route, a node keeps its clients while etcd shows the same term and heartbeat. */
void ksim_rules_cut_off(struct ksim_world *w, uint32_t i)
{
    const struct sl_route *r = &w->nodes[i].f.route;
    const struct sl_storage_term *t = &w->etcd.term;
    if (w->checker.checks_loose && t->term == r->lost.term &&
        t->heartbeat == r->lost.heartbeat)
        KSIM_WRONG(w, "n%u closes a connection, although no keeper can grant", i + 1);
}

/* ---- messages ---- */

/* A node sends requests in the order in which they have arrived there. Those that arrive before and after a pause in
 * which the clock of the node stops may arrive at the same time by that clock. */
static void check_sequence(struct ksim_world *w, uint32_t i,
                           const struct sl_failover_message *m)
{
    struct ksim_node *n = &w->nodes[i];
    struct ksim_command c;
    if (m->bytes.n != sizeof c) return;
    memcpy(&c, m->bytes.at, sizeof c);
    int64_t arrived_us = w->arrived_us[c.number % KSIM_REQUESTS];
    int64_t newest_us = w->arrived_us[n->sent_number % KSIM_REQUESTS];
    bool first = n->sent_route != n->f.route.number;
    if (!first && !w->checker.without_clocks && arrived_us + 2000 < newest_us)
        KSIM_WRONG(w,
                   "n%u sends request %" PRIu64 " after request %" PRIu64
                   ", which has arrived %" PRId64 " us later",
                   i + 1, c.number, n->sent_number, newest_us - arrived_us);
    if (first || arrived_us > newest_us) n->sent_number = c.number;
    n->sent_route = n->f.route.number;
}

/* A node that sends the RELEASE of a lease has no record of the lease any more. */
static void check_released(struct ksim_world *w, uint32_t i,
                           const struct sl_failover_message *m)
{
    struct ksim_command c;
    if (m->bytes.n != sizeof c) return;
    memcpy(&c, m->bytes.at, sizeof c);
    const struct sl_record *x = c.verb == KSIM_RELEASE
                                    ? sl_ledger_find(&w->nodes[i].f.route.ledger,
                                                     c.fence)
                                    : NULL;
    if (x != NULL && x->leased && ksim_key_of(x->key) == c.key)
        KSIM_WRONG(w,
                   "n%u has a record of fence %" PRIu64 ", which its client releases",
                   i + 1, c.fence);
}

void ksim_rules_sent(struct ksim_world *w, uint32_t from, uint32_t to,
                     const struct sl_failover_message *m)
{
    struct ksim_node *n = &w->nodes[from];
    if (m->type == SL_FAILOVER_DO) {
        check_sequence(w, from, m);
        check_released(w, from, m);
    }
    ksim_leases_sent(w, from, to, m);
    if (m->type == SL_FAILOVER_COME) n->reports_subscribed = n->f.route.heard;
    if (m->type == SL_FAILOVER_QUIET && n->quiet_to == to + 1) n->quiet_to = 0;
    if (m->type == SL_FAILOVER_NOT) n->not_to &= ~(1u << to);
    if (m->type == SL_FAILOVER_RECLAIM) {
        note_reported(w, m->grant.fence, n->f.route.keeper_term);
    }
    if (m->type == SL_FAILOVER_NOTE && !n->f.guests.nodes[to + 1].ready)
        KSIM_WRONG(w, "n%u chooses n%u as a witness, which has not reported", from + 1,
                   to + 1);
    for (size_t k = 0; m->type == SL_FAILOVER_GONE && k < m->gone_count; k++)
        if (m->gone[k] == n->urgent) n->urgent_to &= ~(1u << to);
}

/* According to the record of a grant that this keeper has made, the lease is certainly valid for some
 * time. That time is not longer than the lease. */
static void check_record(struct ksim_world *w, uint32_t i, uint32_t from,
                         sl_fence fence, struct sl_bytes key)
{
    const struct ksim_node *n = &w->nodes[i], *keeper = &w->nodes[from - 1];
    const struct sl_record *x = sl_ledger_find(&n->f.route.ledger, fence);
    struct sl_grant_view v;
    const struct ksim_made *made = &w->made[ksim_slot(fence, KSIM_MADE)];
    if (made->fence != fence || made->term != keeper->f.guests.term) return;
    if (x == NULL || !x->leased || !keeper->up || !keeper->f.guests.leads ||
        w->checker.without_clocks || !is_known(w, from - 1, key, fence, &v))
        return;
    int64_t late_us = sim_clock_when(&n->clock, x->sure_ms * 1000) -
                      sim_clock_when(&keeper->clock, v.end_ms * 1000);
    if (late_us > 2500) /* Times are in whole milliseconds. */
        KSIM_WRONG(w,
                   "n%u has a record of fence %" PRIu64 " that is sure until %" PRId64
                   " us after the lease",
                   i + 1, fence, late_us);
}

void ksim_rules_receive(struct ksim_world *w, uint32_t i, uint32_t from,
                        const struct sl_failover_message *m, struct ksim_before *b)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_table_stats stats;
    struct sl_grant_view v;
    *b = (struct ksim_before){.open = n->f.guests.nodes[from].open};
    ksim_leases_receive(w, i, m, b);
    sl_table_stats(n->table, &stats);
    bool waits = stats.recovering_until_ms > ksim_node_now(w, i).ms;
    n->quiet_to = m->type == SL_FAILOVER_CLOCK && n->f.guests.leads && b->open &&
                          n->links[from - 1].up && waits
                      ? from
                      : 0;
    bool of_guest = n->f.guests.leads || from != n->f.route.keeper;
    if ((m->type == SL_FAILOVER_DO || m->type == SL_FAILOVER_CLOCK) && of_guest &&
        (!n->f.guests.leads || !b->open))
        n->not_to |= 1u << (from - 1);
    const struct sl_record *x = sl_ledger_find(&n->f.route.ledger, m->fence);
    b->loses = m->type == SL_FAILOVER_LOST && x != NULL && !x->leased &&
               x->session == m->session;
    if (m->type != SL_FAILOVER_RECLAIM) return;
    b->closed = !waits;
    b->known = is_known(w, i, m->key, m->grant.fence, &v);
}

/* The keeper has rejected a grant without a lease, so the node closes the connection of the client. */
static void check_lost(struct ksim_world *w, uint32_t i,
                       const struct sl_failover_message *m)
{
    const struct sl_route *r = &w->nodes[i].f.route;
    const struct sl_route_session *s = sl_route_session_find(r, m->session);
    if (s == NULL || sl_ledger_find(&r->ledger, m->fence) != NULL) return;
    if (s->close == SL_ROUTE_STAYS &&
        sl_container_of(s, const struct ksim_conn, route)->open)
        KSIM_WRONG(
            w,
            "n%u keeps the connection of a client, although the keeper has rejected "
            "its grant with fence %" PRIu64,
            i + 1, m->fence);
}

static void check_guests(struct ksim_world *w, uint32_t i, uint32_t from, bool come)
{
    const struct sl_list *all = &w->nodes[i].conns;
    for (const struct sl_list *x = all->next; x != all; x = x->next) {
        const struct ksim_conn *c = sl_container_of(x, const struct ksim_conn, all);
        if (!c->is_guest || c->guest.node != from) continue;
        if (come && c->open)
            KSIM_WRONG(w, "n%u has a guest of n%u from before its new route", i + 1,
                       from);
        if (!come && !c->open && !c->s.ended)
            KSIM_WRONG(w, "n%u has a guest of n%u that n%u has not reported", i + 1,
                       from, from);
    }
}

void ksim_rules_received(struct ksim_world *w, uint32_t i, uint32_t from,
                         const struct sl_failover_message *m,
                         const struct ksim_before *b)
{
    const struct sl_guests *g = &w->nodes[i].f.guests;
    bool open = g->leads && g->nodes[from].open;
    struct sl_grant_view v;
    if (m->type == SL_FAILOVER_COME && open && !b->open && m->term != g->term)
        KSIM_WRONG(w, "n%u accepts n%u for term %" PRIu64, i + 1, from, m->term);
    uint32_t ledgers = is_current(w, i) ? w->etcd.term.ledgers : 0;
    if (m->type == SL_FAILOVER_COME && open && !b->open && ledgers != 0 &&
        (ledgers >> from & 1) == 0)
        KSIM_WRONG(w, "n%u accepts n%u, whose ledger etcd does not name", i + 1, from);
    if (m->type == SL_FAILOVER_COME && open && m->term == g->term) {
        check_guests(w, i, from, true);
        w->nodes[i].asked_ms[from - 1] = INT64_MIN;
    }
    if (m->type == SL_FAILOVER_READY && open) {
        check_guests(w, i, from, false);
        const struct sl_route *r = &w->nodes[from - 1].f.route;
        if (w->nodes[from - 1].reports_subscribed && !g->nodes[from].listens &&
            w->nodes[from - 1].up && r->open && r->keeper == i + 1)
            KSIM_WRONG(w, "n%u has not told n%u that it has subscribers", from, i + 1);
    }
    if (w->nodes[i].quiet_to != 0)
        KSIM_WRONG(w, "n%u does not tell n%u that it waits for earlier leases", i + 1,
                   from);
    if (m->type == SL_FAILOVER_RECLAIM && g->leads && b->closed && !b->known &&
        is_known(w, i, m->key, m->grant.fence, &v))
        KSIM_WRONG(w, "n%u adds fence %" PRIu64 " after its wait", i + 1,
                   m->grant.fence);
    if (b->loses) check_lost(w, i, m);
    if (m->type == SL_FAILOVER_HELD || m->type == SL_FAILOVER_NOTE)
        check_record(w, i, from, m->grant.fence, m->key);
    ksim_leases_received(w, i, from, m, b);
}

/* ---- what is left of grants that have ended ---- */

#define LEFT_US 4000000ll /* How long a record or an entry may be left. */

/* Note that something is left of a grant. Returns true if it has been for too long. */
static bool is_left(struct ksim_world *w, struct ksim_left *all, sl_fence fence,
                    uint64_t owner)
{
    struct ksim_left *x = &all[ksim_slot(fence, KSIM_LEFT)];
    if (x->fence != fence || x->owner != owner || w->now_us - x->last_us > 1500000)
        *x = (struct ksim_left){.fence = fence, .owner = owner, .since_us = w->now_us};
    x->last_us = w->now_us;
    return w->now_us - x->since_us > LEFT_US;
}

/* Whether BREAK NOW has ended a grant, and that is not durable yet. */
static bool ends_later(const struct ksim_node *n, sl_fence fence)
{
    for (uint32_t k = 0; k < n->later_count; k++)
        if (n->later[k].fence == fence) return true;
    return false;
}

/* The ledger of a node has no grant that has ended at the keeper. */
static void check_ledger(struct ksim_world *w, uint32_t i, uint32_t o)
{
    struct ksim_node *n = &w->nodes[i], *other = &w->nodes[o];
    const struct sl_route *r = &other->f.route;
    struct sl_grant_view v;
    if (!ksim_node_runs(w, o) || !n->links[o].up || !other->links[i].up ||
        n->links[o].number != other->links[i].number || !r->open ||
        r->keeper_term != n->f.guests.term || !n->f.guests.nodes[o + 1].ready ||
        n->links[o].last_us > w->now_us)
        return;
    for (const struct sl_list *x = r->ledger.all.next; x != &r->ledger.all;
         x = x->next) {
        const struct sl_record *c = sl_container_of(x, const struct sl_record, all);
        if (c->leased && w->checker.without_clocks) continue;
        /* A node that was the keeper may have an extension that no other node knows of. */
        if (c->leased && c->sure_ms <= ksim_node_now(w, o).ms) continue;
        if (c->end_ms <= ksim_node_now(w, o).ms || ends_later(n, c->fence) ||
            is_known(w, i, c->key, c->fence, &v))
            continue;
        if (is_left(w, w->left_records, c->fence, n->links[o].number << 3 | o))
            KSIM_WRONG(w,
                       "n%u still has a record of fence %" PRIu64
                       ", which has ended at the keeper",
                       o + 1, c->fence);
    }
}

/* The journal has no grant that has ended. */
static void check_journal(struct ksim_world *w, uint32_t i)
{
    const struct ksim_map *m = &w->etcd.journal;
    struct sl_grant_view v;
    for (size_t k = 0; k < m->count; k++) {
        sl_fence fence = ksim_fence_of(&m->items[k]);
        bool held = fence == 0;
        for (uint32_t q = 0; q < w->key_count && !held; q++)
            held = is_known(w, i, ksim_key(q), fence, &v);
        if (!held && is_left(w, w->left_entries, fence, w->etcd.term.term))
            KSIM_WRONG(w,
                       "the journal still has fence %" PRIu64
                       ", which has ended at the keeper n%u",
                       fence, i + 1);
    }
}

/* The journal has each long lease on which a client relies. */
static void check_recorded(struct ksim_world *w, uint32_t i)
{
    const struct ksim_map *m = &w->etcd.journal;
    struct sl_grant_view v;
    if (w->checker.without_clocks) return;
    for (uint32_t k = 0; k < w->checker.count; k++) {
        const struct ksim_grant *g = &w->checker.grants[k];
        if (!g->leased || g->touched || g->lease_ms <= w->volatile_ms ||
            !ksim_checker_holds(g, w->now_us) ||
            ksim_checker_left(g, w->now_us) < g->lease_ms / 100 + 50 ||
            !is_known(w, i, ksim_key(g->key), g->fence, &v))
            continue;
        bool found = false;
        for (size_t n = 0; n < m->count && !found; n++)
            found = ksim_fence_of(&m->items[n]) == g->fence;
        if (!found)
            KSIM_WRONG(w,
                       "k%u: the journal does not have the lease of c%u (fence %" PRIu64
                       ")",
                       g->key, g->client + 1, g->fence);
    }
}

#define NOT_READY_MS \
    5000             /* How long requests wait at a new keeper, beyond keeper-wait; */
#define TICK_MS 1500 /* and until a node notices that. */

/* Without a route, requests wait for keeper-wait. */
static void check_without_route(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct ksim_request *q = NULL;
    sl_ms since_ms = n->f.route.without_since_ms, now_ms = ksim_node_now(w, i).ms;
    if (n->f.route.leads || since_ms == SL_NEVER) return;
    while ((q = ksim_request_next(n, q)) != NULL) {
        sl_ms from_ms = q->arrived_ms > since_ms ? q->arrived_ms : since_ms;
        if (q->place == KSIM_ON_ROUTE && !q->c->is_guest &&
            now_ms - from_ms > w->keeper_wait_ms + TICK_MS)
            KSIM_WRONG(w,
                       "request %" PRIu64 " has waited for %" PRId64
                       " ms at n%u, which has no keeper",
                       q->command.number, now_ms - from_ms, i + 1);
    }
}

/* Requests do not wait forever for a keeper that is not ready. */
static void check_waiting(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct ksim_request *q = NULL;
    sl_ms most_ms = w->keeper_wait_ms + NOT_READY_MS + TICK_MS;
    if (!n->f.route.leads || w->now_us - n->paused_us < 1000 * TICK_MS) return;
    while ((q = ksim_request_next(n, q)) != NULL) {
        sl_ms since_ms = q->arrived_ms > n->lead_ms ? q->arrived_ms : n->lead_ms;
        sl_ms ms = ksim_node_now(w, i).ms - since_ms;
        if (q->place == KSIM_ON_ROUTE && !q->c->is_guest && ms > most_ms)
            KSIM_WRONG(w,
                       "request %" PRIu64 " has waited for %" PRId64
                       " ms at the keeper n%u, which is not ready",
                       q->command.number, ms, i + 1);
    }
}

void ksim_rules_second(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    int64_t since_us = w->now_us - LEFT_US;
    check_waiting(w, i);
    check_without_route(w, i);
    ksim_records_second(w, i);
    if (is_current(w, i)) ksim_leases_second(w, i);
    if (!is_current(w, i) || n->quiet || n->reclaims || n->f.guests.reads_journal)
        return;
    check_recorded(w, i);
    for (uint32_t o = 0; o < w->node_count; o++)
        if (o != i) check_ledger(w, i, o);
    if (since_us > w->etcd.down_us && since_us > w->etcd.slow_us &&
        since_us > n->away_us && since_us > n->straggles_us &&
        since_us > n->paused_us && !n->f.resigning)
        check_journal(w, i);
}

/* When a client has received a later grant of an exclusive key, the end of an earlier one is durable. So
 * the journal does not restore it, unless a node has reported it since (a known gap: that node had not
 * received GONE; or a later keeper has repeated the reply to the later grant, and the keeper that made this grant
 * failed before the end of the earlier one was durable). */
void ksim_rules_wait_ended(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    struct sl_grant_view v;
    for (uint32_t k = 0; k < w->key_count; k++) {
        uint64_t cursor = 0;
        if (ksim_kind_of(k) != KSIM_MUTEX) continue;
        while (sl_table_each(n->table, ksim_node_now(w, i), ksim_key(k), &cursor, &v) &&
               !v.waits) {
            sl_fence later = w->checker.highest_alone[k];
            const struct ksim_lease *x = ksim_leases_find(w, v.fence);
            const struct ksim_made *made = &w->made[ksim_slot(later, KSIM_MADE)];
            if (v.leased && !v.broken && !v.stolen && v.fence < later &&
                made->fence == later && !made->replayed &&
                (x == NULL || x->reported_term <= made->term))
                KSIM_WRONG(w,
                           "k%u: n%u restores fence %" PRIu64 ", but a client has "
                           "received fence %" PRIu64,
                           k, i + 1, v.fence, later);
        }
    }
}
