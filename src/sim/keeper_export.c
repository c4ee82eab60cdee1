/* keeper_export.c - checks what a keeper that steps down copies from its table to its ledger. */
#include <inttypes.h>

#include "sim/keeper.h"

void ksim_export_begin(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_grant_view v;
    n->export_count = 0;
    for (uint32_t k = 0; k < w->key_count; k++) {
        uint64_t cursor = 0;
        while (sl_table_each(n->table, ksim_node_now(w, i), ksim_key(k), &cursor, &v) &&
               !v.waits)
            if (v.leased && n->export_count < KSIM_EXPORTS) {
                n->exports[n->export_count].fence = v.fence;
                n->exports[n->export_count++].end_ms = v.end_ms;
            }
    }
}

/* A node forgets no lease before it has expired, even if the lease was broken: the journal may not have that
 * yet. */
static void check_complete(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    if (w->checker.without_clocks || (w->faults & 1ull << KSIM_FAULT_MEMORY) != 0)
        return;
    for (uint32_t k = 0; k < n->export_count; k++) {
        const struct ksim_grant *g = ksim_checker_find(&w->checker,
                                                       n->exports[k].fence);
        if (g != NULL && ksim_checker_holds(g, w->now_us) &&
            n->exports[k].end_ms > ksim_node_now(w, i).ms &&
            sl_ledger_find(&n->f.route.ledger, g->fence) == NULL)
            KSIM_WRONG(w,
                       "n%u has stepped down, and forgets the lease of c%u (fence "
                       "%" PRIu64 ")",
                       i + 1, g->client + 1, g->fence);
    }
}

/* A keeper that has stepped down may have extended leases without the knowledge of their clients. So its
 * report does not allow the next keeper to extend a lease. */
static void check_sure(struct ksim_world *w, uint32_t i)
{
    const struct sl_list *all = &w->nodes[i].f.route.ledger.all;
    if (w->nodes[i].had_records) return;
    for (const struct sl_list *x = all->next; x != all; x = x->next) {
        const struct sl_record *r = sl_container_of(x, const struct sl_record, all);
        if (r->leased && r->sure_ms > ksim_node_now(w, i).ms)
            KSIM_WRONG(w,
                       "n%u has stepped down, and fence %" PRIu64
                       " in its ledger can be extended",
                       i + 1, r->fence);
        const struct sl_route_session *s = sl_route_session_find(&w->nodes[i].f.route,
                                                                 r->session);
        if (s != NULL && s->known_fence < r->fence)
            KSIM_WRONG(w,
                       "n%u has stepped down, and a withdrawal may end fence %" PRIu64
                       ", which its client knows of",
                       i + 1, r->fence);
    }
}

void ksim_export_end(struct ksim_world *w, uint32_t i)
{
    const struct sl_list *all = &w->nodes[i].f.route.ledger.all;
    for (const struct sl_list *x = all->next; x != all; x = x->next)
        ksim_records_noted(w, i,
                           sl_container_of(x, const struct sl_record, all)->fence);
    check_complete(w, i);
    check_sure(w, i);
}
