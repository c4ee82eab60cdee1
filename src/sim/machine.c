/* machine.c - machines: their clocks, and how their nodes start, recover and are killed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/world.h"

#define WALL_START_US 1700000000000000

bool sim_machine_runs(const struct sim_world *w, uint32_t m)
{
    return w->machines[m].node != NULL;
}

struct sl_now sim_machine_now(const struct sim_world *w, uint32_t m)
{
    const struct sim_machine *x = &w->machines[m];
    int64_t us = sim_clock_us(&x->clock, w->now_us);
    return (struct sl_now){
        .ms = us / 1000,
        .wall_us = (uint64_t)(WALL_START_US + w->now_us + x->wall_off_us)};
}

static void first_list(const struct sim_world *w, struct sl_membership *out)
{
    *out = (struct sl_membership){.version = 1, .count = w->node_count};
    for (uint32_t i = 0; i < w->node_count; i++) {
        out->at[i].id = sim_node_id(i);
        snprintf(out->at[i].address, sizeof out->at[i].address, "n%u:1", i + 1);
    }
}

void sim_machine_update_peers(struct sim_world *w, uint32_t m)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(w->machines[m].node, peers);
    w->machines[m].peers = 0;
    for (uint32_t i = 0; i < n; i++) w->machines[m].peers |= 1u << peers[i].id;
}

/* Write the state of a node to x->remembered. Returns the first key whose state is not the same as
 * before, or SIM_KEYS. */
static uint32_t remember(struct sim_machine *x, struct sl_now now)
{
    struct sim_remembered was = x->remembered, *is = &x->remembered;
    struct sl_item item;
    uint64_t cursor = 0;
    memset(is, 0, sizeof *is);
    is->is = true;
    is->now = was.is ? was.now : now; /* Compare the states at the same time. */
    while (sl_node_item(x->node, &cursor, &item)) {
        if (item.kind != SL_ITEM_KEY) continue;
        uint32_t k = (uint32_t)(item.key.at[1] - '0');
        if (item.value.n > SIM_STATE_BYTES) abort();
        is->keys[k].bytes = item.value.n;
        memcpy(is->keys[k].at, item.value.at, item.value.n);
    }
    uint32_t differs = SIM_KEYS;
    for (uint32_t k = SIM_KEYS; k-- > 0;) {
        struct sl_node_copy copy = {0};
        sl_node_copy(x->node, is->now, sim_key_bytes(k), &copy);
        is->keys[k].fence = copy.fence;
        is->keys[k].agreed = copy.agreed;
        is->keys[k].reserved = copy.reserved;
        is->keys[k].wanted = copy.reserved ? copy.wanted : 0;
        if (was.is && memcmp(&was.keys[k], &is->keys[k], sizeof is->keys[k]) != 0)
            differs = k;
    }
    return differs;
}

/* Read the journal, and create the node. */
static void recover(struct sim_world *w, uint32_t m, struct sl_node_start *start)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_now now = sim_machine_now(w, m);
    struct sl_recovery r;
    sim_disk_open(&x->journal, now, w->volatile_ms, &r);
    if (r.result != SL_RECOVERY_OK)
        sim_checker_wrong(&w->checker, "n%u cannot read its journal: %d", m + 1,
                          (int)r.result);
    sim_disk_start(&x->journal, &r, start);
    x->node = sl_node_new(start, now);
    if (x->node == NULL) abort();
    int status = sim_disk_restore(&x->journal, now, &r, x->node);
    if (status != SLUICE_OK)
        sim_checker_wrong(&w->checker, "n%u cannot restore its journal: status %d",
                          m + 1, status);
    sim_disk_begin(&x->journal, now, &r, x->node);
    uint32_t forgot = r.same_life && !x->is_old ? remember(x, now) : SIM_KEYS;
    if (forgot < SIM_KEYS)
        sim_checker_wrong(&w->checker,
                          "n%u has forgotten the state of k%u in the same life", m + 1,
                          forgot);
    x->remembered.is = false;
    SIM_TRACE(w, "n%u recovers %zu items in %s life, and waits until %lld", m + 1,
              r.items, r.same_life ? "the same" : "another",
              (long long)r.wait_until_ms);
    sl_recovery_end(&r);
}

void sim_machine_start(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_node_start start = {.id = sim_node_id(m),
                                  .epoch = sl_random_next(&w->random) | 1,
                                  .birth = sl_random_next(&w->random) | 1,
                                  .seed = sl_random_next(&w->random),
                                  .kept = x->disk,
                                  .limits = w->limits};
    if (m < w->node_count && x->disk.birth == 0 && !x->is_emptied)
        first_list(w, &start.bootstrap);
    recover(w, m, &start);
    x->written = x->durable = (struct sim_replay){0};
    memset(x->heard, 0, sizeof x->heard);
    x->lost_power = false;
    x->life = ++w->lives;
    sim_checker_started(&w->checker, m);
    x->writing = x->mends = x->write_fails = false;
    x->cut_links = 0;
    x->due_ms = SL_NEVER;
    x->tick_us = SIM_NEVER;
    x->idle_ticks = 0;
    SIM_TRACE(w, "n%u starts%s", m + 1,
              start.bootstrap.version > 0 ? " for the first time"
              : x->disk.birth == 0        ? " with nothing on its disk"
                                          : "");
    sim_machine_update_peers(w, m);
    sim_audit_started(w, m);
    sim_machine_settle(w, m);
}

/* Simulate a loss of power. The machine boots at once, and its clock begins at 0. */
static void lose_power(struct sim_world *w, struct sim_machine *x)
{
    sim_disk_lose_power(&x->journal, &w->random, 0);
    x->clock = sim_draw_clock(w);
    x->clock.began_us = 0;
    x->written = x->durable = (struct sim_replay){0};
    x->lost_power = true;
    x->power_us = w->now_us;
    x->remembered.is = false;
}

void sim_machine_kill(struct sim_world *w, uint32_t m, bool power)
{
    struct sim_machine *x = &w->machines[m];
    SIM_TRACE(w, "n%u %s%s", m + 1, power ? "loses power" : "is killed",
              x->writing ? ", while it writes" : "");
    x->remembered.is = false;
    if (!sl_journal_failed(x->journal.journal)) remember(x, sim_machine_now(w, m));
    sl_node_free(x->node);
    x->node = NULL;
    sim_disk_end_commit(&x->journal, &w->copies);
    sim_disk_kill(&x->journal);
    /* A pending write may or may not be on disk. */
    if (x->writing && sl_random_maybe(&w->random, 5000)) x->disk = x->ahead;
    x->writing = false;
    if (power) lose_power(w, x);
    for (uint32_t c = 0; c < SIM_CLIENTS; c++) {
        /* The clients of the node notice after a while. In a rolling restart, clients
         * detect this themselves. */
        if (w->clients[c].life == x->life && w->clients[c].role != SIM_ROLE_KEEPS)
            sim_client_wake(w, c,
                            sim_client_clock(w, c) +
                                sl_random_between(&w->random, 0, 300000));
    }
    x->life = 0;
    sim_net_drop(w, m);
    w->counts.crashes++;
}
