/* keeper_pause.c - nodes and clients pause for a while. A node that continues must not count its own pause
 * as silence of the keeper. So some pauses begin when other nodes have a reason to doubt the keeper, which
 * continues to renew its term. */
#include "sim/keeper.h"

void ksim_pause_node(struct ksim_world *w, uint32_t i, int64_t us)
{
    struct ksim_node *n = &w->nodes[i];
    if (!ksim_node_runs(w, i)) return;
    n->paused_from_us = w->now_us;
    n->paused_us = w->now_us + us;
    KSIM_TRACE(w, "nemesis: n%u pauses for %lld ms", i + 1, (long long)us / 1000);
    if (ksim_has_fault(w, KSIM_FAULT_STOP)) {
        n->stopped = true;
        n->stopped_ppm = n->clock.ppm;
        sim_clock_rate(&n->clock, w->now_us, -1000000);
    }
    ksim_schedule(
        w, us,
        (struct sim_event){.type = SIM_EVENT_MEND, .node = i, .number = n->life});
}

void ksim_pause_client(struct ksim_world *w, uint32_t c, int64_t us)
{
    if (w->now_us < w->clients[c].paused_us) return; /* Its input stays in order. */
    w->clients[c].paused_us = w->now_us + us;
    KSIM_TRACE(w, "nemesis: c%u pauses", c + 1);
}

/* A node that does not hear the keeper pauses. Together with some others, it is a bare majority. */
static void pause_silent(struct ksim_world *w, uint32_t keeper, uint32_t i)
{
    uint32_t silent = w->node_count / 2;
    int64_t until_us = w->now_us + sl_random_between(&w->random, 4000000, 8000000);
    for (uint32_t k = 0; k < w->node_count; k++) {
        uint32_t o = (i + k) % w->node_count;
        if (o == keeper || (o != i && silent == 0)) continue;
        if (o != i) silent--;
        if (w->nodes[keeper].links[o].cut_until_us < until_us)
            w->nodes[keeper].links[o].cut_until_us = until_us;
    }
    /* A node that waits for an answer of etcd must notice its pause, too. */
    if (ksim_has_fault(w, KSIM_FAULT_SLOW) && sl_random_maybe(&w->random, 5000))
        w->etcd.slow_us = w->now_us + 3000000;
    KSIM_TRACE(w, "nemesis: n%u and others do not hear n%u", i + 1, keeper + 1);
    ksim_schedule(w, sl_random_between(&w->random, 600000, 2500000),
                  (struct sim_event){
                      .type = SIM_EVENT_PAUSE, .node = i, .number = w->nodes[i].life});
}

/* A node pauses, and others lose their connections to the keeper for a moment. */
static void pause_closed(struct ksim_world *w, uint32_t keeper, uint32_t i)
{
    ksim_pause_node(w, i, sl_random_between(&w->random, 2600000, 6000000));
    for (uint32_t o = 0; o < w->node_count; o++)
        if (o != keeper && o != i) ksim_net_reset(w, o, keeper);
}

/* A node pauses that has lost its connection to the keeper and cannot open one. When it continues, others lose
 * their connections, too, but fewer than a majority. */
static void pause_unreached(struct ksim_world *w, uint32_t keeper, uint32_t i)
{
    int64_t us = sl_random_between(&w->random, 2600000, 5000000);
    int64_t until_us = w->now_us + us + 2000000;
    ksim_net_reset(w, i, keeper);
    if (!ksim_node_runs(w, i)) return;
    if (w->nodes[keeper].links[i].cut_until_us < until_us)
        w->nodes[keeper].links[i].cut_until_us = until_us;
    if (w->nodes[i].links[keeper].cut_until_us < until_us)
        w->nodes[i].links[keeper].cut_until_us = until_us;
    ksim_pause_node(w, i, us);
    ksim_schedule(w, us + sl_random_between(&w->random, 500000, 1500000),
                  (struct sim_event){.type = SIM_EVENT_PAUSE,
                                     .node = i,
                                     .other = keeper + 1,
                                     .number = w->nodes[i].life});
}

static void reset_some(struct ksim_world *w, uint32_t keeper, uint32_t i)
{
    uint32_t count = w->node_count / 2;
    for (uint32_t k = 1; k < w->node_count && count > 0; k++) {
        uint32_t o = (i + k) % w->node_count;
        if (o == keeper) continue;
        ksim_net_reset(w, o, keeper);
        count--;
    }
}

void ksim_pause_doubting(struct ksim_world *w)
{
    uint32_t i = sl_random_below(&w->random, w->node_count);
    uint32_t keeper = w->etcd.term.node - 1;
    if (w->etcd.term.node == 0 || i == keeper || !ksim_node_runs(w, i)) return;
    uint32_t dice = sl_random_below(&w->random, 10);
    if (dice < 4) pause_silent(w, keeper, i);
    else if (dice < 7) pause_unreached(w, keeper, i);
    else pause_closed(w, keeper, i);
}

void ksim_pause_event(struct ksim_world *w, const struct sim_event *e)
{
    if (w->nodes[e->node].life != e->number || w->healed) return;
    if (e->other != 0) reset_some(w, e->other - 1, e->node);
    else ksim_pause_node(w, e->node, sl_random_between(&w->random, 2000000, 6000000));
}
