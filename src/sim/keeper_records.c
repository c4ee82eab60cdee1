/* keeper_records.c - checks which grants are in the ledgers of nodes: those that their clients know of, and none
 * that no keeper has acknowledged. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/keeper.h"

static struct ksim_made *made_of(struct ksim_world *w, sl_fence fence)
{
    struct ksim_made *x = &w->made[ksim_slot(fence, KSIM_MADE)];
    return x->fence == fence ? x : NULL;
}

/* ---- grants that no keeper has acknowledged ---- */

void ksim_records_acked(struct ksim_world *w, sl_fence fence)
{
    struct ksim_made *x = made_of(w, fence);
    if (x != NULL) x->acked = true;
}

void ksim_records_noted(struct ksim_world *w, uint32_t i, sl_fence fence)
{
    struct ksim_made *x = made_of(w, fence);
    if (x != NULL) x->noted |= 1u << i;
}

void ksim_records_taken(struct ksim_world *w, uint32_t i, const struct ksim_request *q)
{
    struct ksim_made *x = made_of(w, q->parked.fence);
    if (x == NULL) return;
    x->taken++;
    x->taker_node = q->c->is_guest ? q->c->guest.node : i + 1;
    x->taker_id = q->c->is_guest ? q->c->guest.id : q->c->s.id;
}

/* A node reports a grant, or adds one of its ledger as a new keeper. If the record is the report of a keeper to the
 * node of the client, a client has received a reply with the grant. */
static void check_acked(struct ksim_world *w, uint32_t i, sl_fence fence,
                        const char *what)
{
    const struct ksim_made *x = made_of(w, fence);
    if (x == NULL || x->acked || (x->noted >> i & 1) != 0) return;
    KSIM_WRONG(w, "n%u %s fence %" PRIu64 ", which no keeper has acknowledged", i + 1,
               what, fence);
}

void ksim_records_reported(struct ksim_world *w, uint32_t i, sl_fence fence)
{
    check_acked(w, i, fence, "reports");
}

void ksim_records_reclaims_own(struct ksim_world *w, uint32_t i,
                               const struct sl_record *r)
{
    w->unacked = 0;
    if (sl_table_holds(w->nodes[i].table, ksim_node_now(w, i), r->key, r->fence))
        return;
    w->unacked = r->fence;
    w->unacked_key = ksim_key_of(r->key);
}

void ksim_records_reclaimed_own(struct ksim_world *w, uint32_t i)
{
    if (w->unacked != 0 && sl_table_holds(w->nodes[i].table, ksim_node_now(w, i),
                                          ksim_key(w->unacked_key), w->unacked))
        check_acked(w, i, w->unacked, "adds");
}

/* ---- grants that clients know of ---- */

/* Whether the ledger of a node may lack this grant. */
static bool may_lack(const struct ksim_world *w, uint32_t i, sl_fence fence)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct ksim_broken *b = &w->admin.broken[ksim_slot(fence, KSIM_BROKEN)];
    const struct ksim_grant *g = ksim_checker_find(&w->checker, fence);
    return n->lost_us >= n->started_us || (b->fence == fence && b->now) ||
           (g != NULL && (g->touched || !ksim_checker_holds(g, w->now_us)));
}

/* Whether a grant without a lease may be in the ledger of the node of another attempt. A known gap: an attempt that was
 * delayed may take it over. */
static bool is_elsewhere(const struct ksim_world *w, uint32_t i,
                         const struct ksim_request *q, sl_fence fence)
{
    const struct ksim_made *x = &w->made[ksim_slot(fence, KSIM_MADE)];
    if (q->command.lease_ms > 0 || q->command.id[0] == '\0') return false;
    return x->fence != fence || x->taken > 2 || x->taker_node != i + 1 ||
           x->taker_id != q->c->s.id;
}

/* Whether the client has already received this grant through another node, and perhaps extended it there. If the
 * reply to this attempt is late, the record of this node may have expired. */
static bool may_be_extended(const struct ksim_world *w, uint32_t i, sl_fence fence)
{
    const struct ksim_grant *g = ksim_checker_find(&w->checker, fence);
    return g != NULL && g->node != i && (g->elsewhere || g->acked_us > g->received_us);
}

/* A node passes a grant to its client: it has a record of it. */
void ksim_records_passed(struct ksim_world *w, uint32_t i, const struct ksim_request *q,
                         struct sl_bytes reply)
{
    sl_fence fence;
    int count;
    if (q->command.verb != KSIM_ACQUIRE || w->checker.without_clocks ||
        sscanf(reply.at, "*%d\r\n:%" SCNu64, &count, &fence) != 2 ||
        may_lack(w, i, fence) || is_elsewhere(w, i, q, fence) ||
        may_be_extended(w, i, fence))
        return;
    const struct ksim_lease *lease = ksim_leases_find(w, fence);
    if (q->command.lease_ms > 0 && (lease == NULL || lease->end_us <= w->now_us))
        return;
    const struct sl_record *x = sl_ledger_find(&w->nodes[i].f.route.ledger, fence);
    if (x == NULL)
        KSIM_WRONG(w, "n%u has no record of fence %" PRIu64 ", which c%u receives",
                   i + 1, fence, q->c->client + 1);
}

/* As long as the holder of a lease relies on it, the node that has passed it on has a record. */
static void check_kept(struct ksim_world *w, uint32_t i, const struct ksim_grant *g)
{
    if (g->node != i || g->life != w->nodes[i].life || !g->leased ||
        may_lack(w, i, g->fence) || w->checker.overlapping[g->key] > g->fence ||
        ksim_checker_left(g, w->now_us) < g->lease_ms / 100 + 50 ||
        sl_ledger_find(&w->nodes[i].f.route.ledger, g->fence) != NULL)
        return;
    KSIM_WRONG(w, "n%u has no record of fence %" PRIu64 ", which c%u holds", i + 1,
               g->fence, g->client + 1);
}

void ksim_records_second(struct ksim_world *w, uint32_t i)
{
    const struct sl_route *r = &w->nodes[i].f.route;
    if (r->leads || r->exporting || w->checker.without_clocks) return;
    for (uint32_t g = 0; g < w->checker.count; g++)
        check_kept(w, i, &w->checker.grants[g]);
}

/* ---- grants that a node takes back ---- */

void ksim_records_taken_back(struct ksim_world *w, uint32_t i, uint64_t origin,
                             const struct ksim_request *q, sl_fence fence)
{
    const struct sl_grant_view v = {.leased = true, .origin = origin, .fence = fence};
    if (q->command.lease_ms == 0 || fence == 0 || origin == 0 ||
        sl_withdrawn_has(&w->nodes[i].f.route.withdrawn, ksim_key(q->command.key), &v))
        return;
    KSIM_WRONG(w, "n%u takes back fence %" PRIu64 ", but does not withdraw it", i + 1,
               fence);
}
