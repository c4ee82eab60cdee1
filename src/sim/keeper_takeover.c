/* keeper_takeover.c - faults while a node takes over. A node that knows the last extension of a lease reports
 * it late, or slowly. Meanwhile operators break this lease, because the keeper has failed. Clients request leases
 * again that they hold. A keeper that was cut off becomes the keeper again. */
#include "sim/keeper.h"

#define RECENT 16u
#define HURRY_US 6000000 /* How long operators are in a hurry. */
#define REPORTS_US 1000000
#define RETURN_US 12000000 /* How long it takes until a node is the keeper again. */

/* Return when a lease expires according to the ledger of a node, in real time; 0: it has no record. */
static int64_t end_at(const struct ksim_world *w, uint32_t i, sl_fence fence)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct sl_record *x = ksim_node_runs(w, i)
                                    ? sl_ledger_find(&n->f.route.ledger, fence)
                                    : NULL;
    return x != NULL ? sim_clock_when(&n->clock, x->end_ms * 1000) : 0;
}

#define LATER_US 50000

/* Return the node with the latest expiry of a lease, if all others have an earlier one: the last of these is
 * *second_us. */
static uint32_t last_to_know(const struct ksim_world *w, sl_fence fence,
                             int64_t *second_us)
{
    uint32_t last = KSIM_NODES;
    int64_t last_us = 0;
    *second_us = 0;
    for (uint32_t i = 0; i < w->node_count; i++) {
        int64_t us = end_at(w, i, fence);
        if (us > last_us) {
            *second_us = last_us;
            last_us = us;
            last = i;
        } else if (us > *second_us) *second_us = us;
    }
    return *second_us > w->now_us && last_us > *second_us + LATER_US ? last
                                                                     : KSIM_NODES;
}

/* Return a node that may be the only one that knows of the last extension of a lease: the longest extension. */
static uint32_t choose_node(const struct ksim_world *w, uint32_t keeper,
                            const struct ksim_grant **lease, int64_t *second_us)
{
    const struct ksim_checker *k = &w->checker;
    uint32_t best = KSIM_NODES;
    int64_t most_us = 0;
    for (uint32_t n = 0; n < k->count && n < RECENT; n++) {
        const struct ksim_grant *g = &k->grants[k->count - 1 - n];
        if (!g->leased || !ksim_checker_holds(g, w->now_us)) continue;
        int64_t second;
        uint32_t node = last_to_know(w, g->fence, &second);
        if (node == KSIM_NODES || node == keeper) continue;
        int64_t longer_us = end_at(w, node, g->fence) - second;
        if (longer_us <= most_us) continue;
        most_us = longer_us;
        *second_us = second;
        *lease = g;
        best = node;
    }
    return best;
}

static void cut(struct ksim_world *w, uint32_t from, uint32_t to, int64_t until_us)
{
    struct ksim_link *x = &w->nodes[from].links[to];
    if (x->cut_until_us < until_us) x->cut_until_us = until_us;
}

static void wake_operators(struct ksim_world *w, int64_t most_us)
{
    for (uint32_t c = 0; c < w->client_count; c++) {
        struct ksim_client *x = &w->clients[c];
        if (!x->operator.is || x->ways[0].busy) continue;
        int64_t us = sl_random_between(&w->random, 0, most_us);
        x->next_us = ksim_client_clock(w, c) + us;
        ksim_client_wake(w, c, us + 1000);
    }
}

void ksim_takeover_cut_off(struct ksim_world *w, uint32_t i)
{
    if (!ksim_has_fault(w, KSIM_FAULT_RETURN)) return;
    w->returns = i + 1;
    w->returns_us = w->now_us + RETURN_US;
}

/* A node that was cut off becomes the keeper again: another one that takes over meanwhile fails soon. Grants that
 * the node has made, and that no client has learned of, are in its ledger, which it then reads slowly. */
static void let_return(struct ksim_world *w, uint32_t i)
{
    if (w->returns == 0 || w->now_us > w->returns_us) return;
    if (w->returns == i + 1) {
        w->nodes[i].reads_us = w->now_us +
                               sl_random_between(&w->random, 0, 2 * REPORTS_US);
        w->returns = 0;
    } else
        ksim_schedule(w, sl_random_between(&w->random, 0, 200000),
                      (struct sim_event){.type = SIM_EVENT_CRASH,
                                         .node = i,
                                         .number = w->nodes[i].life});
}

/* The keeper fails in its wait, after the lease has expired there. The next keeper receives the late report before or
 * after it reads the journal. Returns when the node can report. */
static int64_t fail_after(struct ksim_world *w, uint32_t i, uint32_t node,
                          int64_t from_us, int64_t to_us)
{
    struct sl_random *r = &w->random;
    int64_t fail_us = sl_random_between(r, from_us, to_us), until_us = fail_us;
    if (sl_random_maybe(r, 5000)) until_us += sl_random_between(r, 800000, 2000000);
    ksim_schedule(w, fail_us - w->now_us,
                  (struct sim_event){
                      .type = SIM_EVENT_CRASH, .node = i, .number = w->nodes[i].life});
    for (uint32_t o = 0; o < w->node_count; o++)
        if (o != node) {
            cut(w, o, node, until_us);
            cut(w, node, o, until_us);
        }
    return until_us;
}

void ksim_takeover_begin(struct ksim_world *w, uint32_t i)
{
    struct sl_random *r = &w->random;
    const struct ksim_grant *g;
    let_return(w, i);
    for (uint32_t c = 0; c < w->client_count; c++)
        ksim_repeats_doubt(w, c, 3 * REPORTS_US / 2);
    if (!ksim_has_fault(w, KSIM_FAULT_OPERATE)) return;
    int64_t second_us;
    uint32_t node = choose_node(w, i, &g, &second_us);
    if (node == KSIM_NODES) return;
    int64_t until_us = w->now_us + sl_random_between(r, 1000000, 4000000);
    /* The lease expires at the keeper before the late report. */
    bool expires = second_us > w->now_us + REPORTS_US && sl_random_maybe(r, 6000);
    if (expires) until_us = second_us + sl_random_between(r, 100000, 800000);
    if (expires && sl_random_maybe(r, 5000)) {
        until_us = fail_after(w, i, node, second_us, end_at(w, node, g->fence));
    }
    KSIM_TRACE(w, "nemesis: n%u reports late to n%u, fence %llu for %lld ms%s",
               node + 1, i + 1, (unsigned long long)g->fence,
               (long long)(until_us - w->now_us) / 1000,
               expires ? ", after it has expired" : "");
    cut(w, i, node, until_us);
    cut(w, node, i, until_us);
    w->hurry_us = w->now_us + HURRY_US;
    w->hurry_fence = g->fence;
    w->hurry_node = !expires && sl_random_maybe(r, 5000) ? node + 1 : 0;
    w->hurry_now = false;
    if (w->hurry_node == 0) wake_operators(w, 2 * REPORTS_US);
}

bool ksim_takeover_hurries(const struct ksim_world *w)
{
    return w->now_us < w->hurry_us && !w->healed;
}

/* A node is about to hand over its ledger. Its link may be full for a while. */
void ksim_takeover_stall(struct ksim_world *w, uint32_t i)
{
    bool late = w->hurry_node == i + 1;
    if (!ksim_takeover_hurries(w) || !(late || sl_random_maybe(&w->random, 3000)))
        return;
    w->nodes[i].stalls_us = w->now_us + sl_random_between(&w->random, 50000, 1000000);
    if (!late) return;
    w->hurry_node = 0;
    w->hurry_now = true;
    wake_operators(w, 200000);
}

uint32_t ksim_takeover_breaks(const struct ksim_world *w, sl_fence *fence)
{
    if (!ksim_takeover_hurries(w)) return KSIM_BREAK_NONE;
    *fence = w->hurry_fence;
    return w->hurry_node != 0 ? KSIM_BREAK_LATER
           : w->hurry_now     ? KSIM_BREAK_NOW
                              : KSIM_BREAK_ANY;
}
