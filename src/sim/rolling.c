/* rolling.c - a rolling restart. An operator restarts one node after the other, as
 * docs/leases.md recommends. Now and then a node is cut off instead, for longer than it takes
 * the others to notice. Nothing else breaks. Holders extend in time, each time through another
 * node. A majority of nodes is up all the time, so no lease may be lost. */
#include "sim/world.h"

#define WAKE_US 10000 /* How often a holder looks at its clock. */

/* Other faults may cost a lease, and that would be right. */
#define HARMLESS (1u << FAULT_ROLLING | 1u << FAULT_DRIFT | 1u << FAULT_WALL)

void sl_rolling_draw(struct world *w)
{
    struct sl_random *r = &w->random;
    w->faults &= HARMLESS;
    w->node_count = sl_random_maybe(r, 7000) ? 3 : 5;
    w->client_count = w->key_count; /* Each has a key of its own. */
    w->lease_max_ms = sl_random_maybe(r, 5000) ? 1000 : 2000;
    w->limits.lease_max_ms = w->lease_max_ms;
    w->limits.forget_ms = sl_random_between(r, w->lease_max_ms, 3 * w->lease_max_ms);
    w->limits.heartbeat_ms = sl_random_between(r, 100, 200);
    w->limits.waiting_messages_max = 64;
    w->short_us = sl_random_between(r, 200, 5000);
    w->slack_us = 1000;
    w->heal_at = 0;
}

/* ---- the operator ---- */

#define CUT_OFF_US 700000 /* At least: a link is given up before. */

/* What NODES and INFO of each node tell an operator. */
static bool are_ready(const struct world *w)
{
    for (uint32_t m = 0; m < w->node_count; m++) {
        for (uint32_t o = 0; o < w->node_count; o++)
            if (o != m && !w->machines[m].links[o].up) return false;
        struct sl_node_stats stats;
        if (!sl_machine_runs(w, m)) return false;
        sl_node_stats(w->machines[m].node, sl_machine_now(w, m), &stats);
        if (stats.silent_ms > 0 || stats.learning_ms > 0) return false;
    }
    return true;
}

void sl_rolling_acts(struct world *w)
{
    struct sl_random *r = &w->random;
    uint32_t m = w->rolled % w->node_count;
    if (w->now_us < w->cut_off_us || !are_ready(w)) {
        /* Later. */
    } else if (sl_random_maybe(r, 2000)) {
        w->cut_off_us = w->now_us + CUT_OFF_US + sl_random_below(r, 3000000);
        sl_nemesis_part(w, 1u << sl_random_below(r, w->node_count),
                        w->cut_off_us - w->now_us);
    } else {
        w->rolled++;
        sl_machine_kill(w, m);
        sl_later(w, sl_random_between(r, 1000, 100000),
                 (struct happening){.type = HAPPENS_START, .node = m});
    }
    sl_later(w, sl_random_between(r, 1000, 20000),
             (struct happening){.type = HAPPENS_NEMESIS});
}

/* ---- holders ---- */

static void lost(struct world *w, uint32_t c, const char *how)
{
    const struct hold *h = &w->clients[c].hold;
    sl_books_wrong(
        &w->books,
        "c%u has lost k%u under fence %llu (%s), though it extended in time and "
        "one node at a time was restarted",
        c + 1, h->key, (unsigned long long)h->fence, how);
}

static void take(struct world *w, uint32_t c)
{
    sl_ms most = w->lease_max_ms;
    struct sl_node_request ask = {
        .type = SL_NODE_ACQUIRE,
        .lease_ms = sl_random_between(&w->random, most / 2, most),
        .force_ms = SL_NEVER};
    sl_client_ask(w, c, &ask, c, most / 6);
}

/* Each try has a sixth of the lease; then it goes to another node. */
static void extend(struct world *w, uint32_t c)
{
    struct hold *h = &w->clients[c].hold;
    struct sl_node_request ask = {
        .type = SL_NODE_EXTEND, .fence = h->fence, .lease_ms = h->lease_ms};
    h->extend_us = SL_SIM_NEVER;
    sl_client_ask(w, c, &ask, h->key, h->lease_ms / 6);
}

static bool is_cut_off(const struct world *w, const struct client *x, int64_t now)
{
    if (x->life != 0 && w->machines[x->node].life != x->life) return true;
    for (int i = 0; i < SL_SIM_REQUESTS; i++) {
        if (x->requests[i].number != 0 && now >= x->requests[i].until_us) return true;
    }
    return false;
}

/* Through a node that is drawn; after a failure through the one after that. */
static bool go_to_a_node(struct world *w, uint32_t c)
{
    struct client *x = &w->clients[c];
    uint32_t start = x->retries ? x->node + 1
                                : sl_random_below(&w->random, w->node_count);
    return sl_client_connect_from(w, c, start % w->node_count);
}

static void failed(struct client *x, int64_t now)
{
    x->retries = true;
    if (x->hold.is) x->hold.extend_us = now;
}

void sl_rolling_client_acts(struct world *w, uint32_t c)
{
    struct client *x = &w->clients[c];
    int64_t now = sl_client_clock(w, c);
    bool cut_off = is_cut_off(w, x, now);
    if (x->hold.is && now >= x->hold.until_us) lost(w, c, "its deadline passed");
    /* Each request goes to a node that is drawn anew. */
    if (cut_off || !sl_client_is_busy(x)) sl_client_hang_up(w, c);
    if (cut_off) failed(x, now);
    bool due = x->hold.is ? now >= x->hold.extend_us : now >= x->next_us;
    if (due && !sl_client_is_busy(x) && go_to_a_node(w, c)) {
        if (x->hold.is) extend(w, c);
        else take(w, c);
    }
    sl_client_wake(w, c, now + WAKE_US);
}

void sl_rolling_answered(struct world *w, uint32_t c, const struct sim_request *r,
                         const struct parcel *p)
{
    struct hold *h = &w->clients[c].hold;
    int64_t now = sl_client_clock(w, c);
    if (r->type == SL_NODE_EXTEND && p->answer.status == SLUICE_ELOST)
        lost(w, c, "EXTEND was answered with LOST");
    h->release_us = SL_SIM_NEVER;
    if (p->answer.status != SLUICE_OK) {
        failed(&w->clients[c], now);
        return;
    }
    int64_t share = sl_random_between(&w->random, h->lease_ms / 3, h->lease_ms / 2) *
                    1000;
    h->extend_us = r->sent_us + share;
    w->clients[c].retries = false;
}
