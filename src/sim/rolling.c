/* rolling.c - a rolling restart. An operator restarts one node after the other, as
 * docs/leases.md recommends. Sometimes a node is partitioned instead, for longer than
 * the other nodes need to notice. There are no other faults. Holders extend their
 * leases in time, each time through another node. A majority of nodes is always up, so
 * no lease may be lost. */
#include "sim/world.h"

#define WAKE_US 10000 /* How often a holder acts. */

/* The faults that must not cost a lease. With other faults, losing a lease would be
 * correct. */
#define HARMLESS                                                                    \
    (1ull << SIM_FAULT_ROLLING | 1ull << SIM_FAULT_DRIFT | 1ull << SIM_FAULT_WALL | \
     1ull << SIM_FAULT_POWER)

void sim_rolling_draw(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    w->faults &= HARMLESS;
    w->node_count = sl_random_maybe(r, 7000) ? 3 : 5;
    w->client_count = w->key_count; /* Each client has its own key. */
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

#define CUT_OFF_US 700000 /* Minimum; the other nodes give up the link earlier. */

/* Return whether all nodes are ready, as an operator can see in NODES and INFO of each
 * node. No grant waits for a sync: while only a bare majority knows a lease, none of
 * these nodes may be lost. */
static bool are_ready(const struct sim_world *w)
{
    for (uint32_t m = 0; m < w->node_count; m++) {
        for (uint32_t o = 0; o < w->node_count; o++)
            if (o != m && !w->machines[m].links[o].up) return false;
        struct sl_node_stats stats;
        if (!sim_machine_runs(w, m) ||
            sl_journal_pending_any(w->machines[m].journal.journal) != 0)
            return false;
        sl_node_stats(w->machines[m].node, sim_machine_now(w, m), &stats);
        if (stats.silent_ms > 0 || stats.learning_ms > 0) return false;
    }
    return true;
}

void sim_rolling_act(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    uint32_t m = w->rolled % w->node_count;
    if (w->now_us < w->cut_off_us || !are_ready(w)) {
        /* Try again later. */
    } else if (sl_random_maybe(r, 2000)) {
        w->cut_off_us = w->now_us + CUT_OFF_US + sl_random_below(r, 3000000);
        sim_nemesis_part(w, 1u << sl_random_below(r, w->node_count),
                         w->cut_off_us - w->now_us);
    } else {
        w->rolled++;
        sim_machine_kill(w, m, sim_nemesis_takes_power(w));
        sim_schedule(w, sl_random_between(r, 1000, 100000),
                     (struct sim_event){.type = SIM_EVENT_START, .node = m});
    }
    sim_schedule(w, sl_random_between(r, 1000, 20000),
                 (struct sim_event){.type = SIM_EVENT_NEMESIS});
}

/* ---- holders ---- */

static void lost(struct sim_world *w, uint32_t c, const char *how)
{
    const struct sim_hold *h = &w->clients[c].hold;
    sim_checker_wrong(
        &w->checker,
        "c%u has lost k%u under fence %llu (%s), though it extended in time and "
        "one node at a time was restarted",
        c + 1, h->key, (unsigned long long)h->fence, how);
}

static void take(struct sim_world *w, uint32_t c)
{
    sl_ms most = w->lease_max_ms;
    struct sl_node_request ask = {
        .type = SL_NODE_ACQUIRE,
        .lease_ms = sl_random_between(&w->random, most / 2, most),
        .force_ms = SL_NEVER};
    sim_client_ask(w, c, &ask, c, most / 6);
}

/* Extend the lease. Each try may take a sixth of the lease; after that the client
 * switches to another node. */
static void extend(struct sim_world *w, uint32_t c)
{
    struct sim_hold *h = &w->clients[c].hold;
    struct sl_node_request ask = {
        .type = SL_NODE_EXTEND, .fence = h->fence, .lease_ms = h->lease_ms};
    h->extend_us = SIM_NEVER;
    sim_client_ask(w, c, &ask, h->key, h->lease_ms / 6);
}

static bool is_cut_off(const struct sim_world *w, const struct sim_client *x,
                       int64_t now)
{
    if (x->life != 0 && w->machines[x->node].life != x->life) return true;
    for (int i = 0; i < SIM_REQUESTS; i++) {
        if (x->requests[i].number != 0 && now >= x->requests[i].until_us) return true;
    }
    return false;
}

/* Connect to a random node or, after a failure, to the next one. */
static bool go_to_a_node(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    uint32_t start = x->retries ? x->node + 1
                                : sl_random_below(&w->random, w->node_count);
    return sim_client_connect_from(w, c, start % w->node_count);
}

static void failed(struct sim_client *x, int64_t now)
{
    x->retries = true;
    if (x->hold.is) x->hold.extend_us = now;
}

void sim_rolling_client_act(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    int64_t now = sim_client_clock(w, c);
    bool cut_off = is_cut_off(w, x, now);
    if (x->hold.is && now >= x->hold.until_us) lost(w, c, "its deadline passed");
    /* Each request goes to another random node. */
    if (cut_off || !sim_client_is_busy(x)) sim_client_hang_up(w, c);
    if (cut_off) failed(x, now);
    bool due = x->hold.is ? now >= x->hold.extend_us : now >= x->next_us;
    if (due && !sim_client_is_busy(x) && go_to_a_node(w, c)) {
        if (x->hold.is) extend(w, c);
        else take(w, c);
    }
    sim_client_wake(w, c, now + WAKE_US);
}

void sim_rolling_answered(struct sim_world *w, uint32_t c, const struct sim_request *r,
                          const struct sim_packet *p)
{
    struct sim_hold *h = &w->clients[c].hold;
    int64_t now = sim_client_clock(w, c);
    if (r->type == SL_NODE_EXTEND && p->answer.status == SLUICE_ELOST)
        lost(w, c, "EXTEND was answered with LOST");
    h->release_us = SIM_NEVER;
    if (p->answer.status != SLUICE_OK) {
        failed(&w->clients[c], now);
        return;
    }
    int64_t share = sl_random_between(&w->random, h->lease_ms / 3, h->lease_ms / 2) *
                    1000;
    h->extend_us = r->sent_us + share;
    w->clients[c].retries = false;
}
