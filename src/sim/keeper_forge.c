/* keeper_forge.c - a node with a bug, or of an old version, sends a message that no correct node would send.
 * The receiver must ignore or reject it, without any effect on the clients of other nodes.
 *
 *     COME      a second one, on the same link
 *     NOTED     with a number that the keeper has not used
 *     RECLAIM   of the grant of another client */
#include <inttypes.h>

#include "sim/keeper.h"

/* Whether this node has handed over its ledger to the keeper `to`. */
static bool has_route(const struct ksim_world *w, uint32_t from, uint32_t to)
{
    const struct sl_route *r = &w->nodes[from].f.route;
    return w->nodes[from].up && r->open && r->keeper == to + 1;
}

void ksim_forge_come(struct ksim_world *w, uint32_t from, uint32_t to)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_COME,
                                          .term = w->nodes[from].f.route.keeper_term};
    if (!ksim_has_fault(w, KSIM_FAULT_FORGE) || !has_route(w, from, to)) return;
    ksim_net_forge(w, from, to, &m);
}

static void forge_noted(struct ksim_world *w, uint32_t from, uint32_t to)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_NOTED,
                                          .fence = 1000000 +
                                                   sl_random_below(&w->random, 1000)};
    ksim_net_forge(w, from, to, &m);
}

/* Report a grant without a lease for a session that does not hold it. */
static void forge_reclaim(struct ksim_world *w, uint32_t from, uint32_t to,
                          uint64_t session)
{
    const struct sl_list *all = &w->nodes[from].f.route.ledger.all;
    sl_ms now_ms = ksim_node_now(w, from).ms;
    for (const struct sl_list *x = all->next; x != all; x = x->next) {
        const struct sl_record *r = sl_container_of(x, const struct sl_record, all);
        if (r->leased || r->session == session) continue;
        const struct sl_failover_message m = {.type = SL_FAILOVER_RECLAIM,
                                              .session = session,
                                              .ms = now_ms -
                                                    w->nodes[from].f.route.here_ms,
                                              .key = r->key,
                                              .grant = sl_record_view(r, now_ms)};
        w->forged = (struct ksim_forged){.fence = r->fence, .key = ksim_key_of(r->key)};
        ksim_net_forge(w, from, to, &m);
        return;
    }
}

void ksim_forge_after(struct ksim_world *w, uint32_t from, uint32_t to,
                      const struct sl_failover_message *m)
{
    if (!ksim_has_fault(w, KSIM_FAULT_FORGE) || !has_route(w, from, to)) return;
    if (m->type != SL_FAILOVER_DO || !sl_random_maybe(&w->random, 2000)) return;
    if (sl_random_maybe(&w->random, 5000)) forge_noted(w, from, to);
    else forge_reclaim(w, from, to, m->session);
}

/* Returns false if the false report would be as good as the true one: the keeper does not know the grant. */
bool ksim_forge_receive(struct ksim_world *w, uint32_t i, uint32_t type)
{
    struct sl_grant_view v;
    struct ksim_forged *x = &w->forged;
    bool known = x->fence != 0 &&
                 sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                        ksim_key(x->key), x->fence, &v);
    x->holder = known && type == SL_FAILOVER_RECLAIM ? v.session_id : 0;
    return known || type != SL_FAILOVER_RECLAIM;
}

void ksim_forge_received(struct ksim_world *w, uint32_t i)
{
    struct sl_grant_view v;
    const struct ksim_forged *x = &w->forged;
    if (x->holder == 0 || !w->nodes[i].up) return;
    if (!sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                ksim_key(x->key), x->fence, &v) ||
        v.session_id != x->holder)
        KSIM_WRONG(w, "k%u: another client takes fence %" PRIu64 " by a false report",
                   x->key, x->fence);
}

bool ksim_forge_is_answer(const struct ksim_world *w, uint32_t i,
                          const struct sl_failover_message *m)
{
    const struct sl_record *x = sl_ledger_find(&w->nodes[i].f.route.ledger, m->fence);
    return (w->faults & 1ull << KSIM_FAULT_FORGE) != 0 && m->type == SL_FAILOVER_LOST &&
           x != NULL && x->session != m->session;
}
