/* nemesis.c - injects faults, and simulates the operators who change the membership
 * meanwhile. */
#include <stdio.h>
#include <string.h>

#include "sim/world.h"

#define OPERATOR \
    (SIM_CLIENTS) /* In the checker, operators have the numbers after the clients. */

static uint32_t some_machine(struct sim_world *w)
{
    uint32_t start = sl_random_below(&w->random, SIM_NODES);
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        uint32_t m = (start + i) % SIM_NODES;
        if (sim_machine_runs(w, m)) return m;
    }
    return SIM_NODES;
}

/* Draw the duration of a fault. Half of the faults are short; the others may last
 * longer than a lease. */
static int64_t draw_length(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    return sl_random_maybe(r, 5000)
               ? sl_random_between(r, 1000, 100000)
               : sl_random_between(r, 1000, 3000 * w->lease_max_ms);
}

/* ---- links ---- */

static void cut(struct sim_world *w, uint32_t from, uint32_t to, int64_t length_us)
{
    struct sim_link *l = &w->machines[from].links[to];
    int64_t until = w->now_us + length_us;
    if (until > l->cut_until_us) l->cut_until_us = until;
}

static void cut_a_link(struct sim_world *w)
{
    uint32_t a = sl_random_below(&w->random, SIM_NODES),
             b = sl_random_below(&w->random, SIM_NODES);
    int64_t length = draw_length(w);
    if (a == b) return;
    bool both = sl_random_maybe(&w->random, 3000);
    SIM_TRACE(w, "cut: n%u %s n%u for %lld ms", a + 1, both ? "<->" : "->", b + 1,
              (long long)(length / 1000));
    cut(w, a, b, length);
    if (both) cut(w, b, a, length);
}

void sim_nemesis_part(struct sim_world *w, uint32_t side, int64_t length)
{
    SIM_TRACE(w, "parted: %#x from the others for %lld ms", side,
              (long long)(length / 1000));
    for (uint32_t a = 0; a < SIM_NODES; a++) {
        for (uint32_t b = 0; b < SIM_NODES; b++) {
            if ((side >> a & 1) != (side >> b & 1)) cut(w, a, b, length);
        }
    }
}

static void part_some(struct sim_world *w)
{
    uint32_t alone = sl_random_below(&w->random, SIM_NODES);
    if (sl_random_maybe(&w->random, 7000)) {
        sim_nemesis_part(w, sl_random_below(&w->random, 1u << SIM_NODES),
                         draw_length(w));
        return;
    }
    /* Isolate one node for a long time, or until the membership has changed twice
     * without it. */
    sim_nemesis_part(w, 1u << alone,
                     sl_random_between(&w->random, 2000, 8000) * w->lease_max_ms);
    w->alone = alone;
    w->alone_until = w->checker.membership_count + 2;
}

/* Reconnect the isolated node: to all other nodes, or to only one, so that the two are
 * partitioned from the rest. */
static void bring_back(struct sim_world *w)
{
    uint32_t one = sl_random_below(&w->random, SIM_NODES);
    if (w->alone_until == 0 || w->checker.membership_count < w->alone_until) return;
    SIM_TRACE(w, "n%u is not alone any more", w->alone + 1);
    w->alone_until = 0;
    for (uint32_t o = 0; o < SIM_NODES; o++)
        w->machines[o].links[w->alone].cut_until_us =
            w->machines[w->alone].links[o].cut_until_us = 0;
    if (sl_random_maybe(&w->random, 5000))
        sim_nemesis_part(w, 1u << w->alone | 1u << one, 2000 * w->lease_max_ms);
}

/* ---- machines ---- */

bool sim_nemesis_takes_power(struct sim_world *w)
{
    return sim_has_fault(w, SIM_FAULT_POWER) && sl_random_maybe(&w->random, 5000);
}

static void crash(struct sim_world *w, uint32_t m, bool power)
{
    if (m >= SIM_NODES || !sim_machine_runs(w, m)) return;
    sim_machine_kill(w, m, power);
    sim_schedule(w, draw_length(w),
                 (struct sim_event){.type = SIM_EVENT_START, .node = m});
}

void sim_nemesis_crash(struct sim_world *w, uint32_t m)
{
    if (!sim_has_fault(w, SIM_FAULT_CRASH) || !sim_machine_runs(w, m)) return;
    sim_machine_kill(w, m, sim_nemesis_takes_power(w));
    sim_schedule(w, sl_random_between(&w->random, 0, 20000),
                 (struct sim_event){.type = SIM_EVENT_START, .node = m});
}

static void crash_some(struct sim_world *w)
{
    bool power = sim_nemesis_takes_power(w);
    crash(w, some_machine(w), power);
    if (sl_random_maybe(&w->random, 2000)) crash(w, some_machine(w), power);
}

static void crash_all(struct sim_world *w)
{
    if (!sl_random_maybe(&w->random, 3000)) return;
    bool power = sim_nemesis_takes_power(w);
    for (uint32_t m = 0; m < SIM_NODES; m++) crash(w, m, power);
}

static void pause_one(struct sim_world *w)
{
    int64_t until = w->now_us + draw_length(w) * 2 / 3;
    if (sl_random_maybe(&w->random, 6000)) {
        uint32_t m = some_machine(w);
        if (m >= SIM_NODES || until < w->machines[m].paused_us) return;
        SIM_TRACE(w, "n%u stops for %lld ms", m + 1,
                  (long long)(until - w->now_us) / 1000);
        w->machines[m].paused_us = until;
        return;
    }
    uint32_t c = sl_random_below(&w->random, w->client_count);
    if (until > w->clients[c].paused_us) w->clients[c].paused_us = until;
}

static void hurt_a_disk(struct sim_world *w)
{
    struct sim_machine *x = &w->machines[sl_random_below(&w->random, SIM_NODES)];
    int64_t *which = sl_random_maybe(&w->random, 5000) ? &x->failing_us : &x->slow_us;
    *which = w->now_us + draw_length(w);
}

static int64_t draw_ppm(struct sim_world *w)
{
    if (sl_random_maybe(&w->random, 3000))
        return sl_random_between(&w->random, -SIM_DRIFT_PPM, SIM_DRIFT_PPM);
    return sl_random_maybe(&w->random, 5000) ? SIM_DRIFT_PPM : -SIM_DRIFT_PPM;
}

/* Change the rate of a clock. Timers that are already set then fire late or early; an
 * early tick does nothing. */
static void change_speed(struct sim_world *w)
{
    uint32_t i = sl_random_below(&w->random, SIM_NODES + w->client_count);
    struct sim_clock *c = i < SIM_NODES ? &w->machines[i].clock
                                        : &w->clients[i - SIM_NODES].clock;
    sim_clock_rate(c, w->now_us, draw_ppm(w));
}

static void step_a_clock(struct sim_world *w)
{
    uint32_t m = sl_random_below(&w->random, SIM_NODES);
    w->machines[m].wall_off_us = sl_random_between(&w->random, -3600, 3600) * 1000000;
}

/* ---- an empty data directory ---- */

static bool is_member(const struct sim_machine *x, uint32_t m)
{
    const struct sl_membership *list = sl_node_membership(x->node);
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->at[i].id == sim_node_id(m)) return true;
    }
    return false;
}

/* Return the nodes that lost their data directory and were not added again, as bits. */
static uint32_t emptied(const struct sim_world *w)
{
    uint32_t bits = 0;
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        const struct sim_machine *x = &w->machines[m];
        bool back = x->node != NULL && is_member(x, m);
        if (x->is_old || (x->is_emptied && !back)) bits |= 1u << sim_node_id(m);
    }
    return bits;
}

/* Return the node that the newest membership added. Few other nodes are connected to it
 * yet. */
static uint32_t newcomer(const struct sim_world *w)
{
    uint64_t version = 0;
    uint32_t m = SIM_NODES;
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        if (!sim_machine_runs(w, i)) continue;
        const struct sl_membership *list = sl_node_membership(w->machines[i].node);
        if (list->version <= version) continue;
        version = list->version;
        m = list->added - 1;
    }
    return m < SIM_NODES && sim_machine_runs(w, m) ? m : SIM_NODES;
}

/* Return whether all running nodes that have a membership have the same one. */
static bool is_one_membership(const struct sim_world *w)
{
    uint64_t version = 0;
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        if (!sim_machine_runs(w, m)) continue;
        uint64_t its = sl_node_membership(w->machines[m].node)->version;
        if (version != 0 && its != 0 && its != version) return false;
        if (its != 0) version = its;
    }
    return true;
}

/* Kill a node, and empty its data directory. */
static void empty(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    SIM_TRACE(w, "n%u loses its data directory", m + 1);
    if (sim_machine_runs(w, m)) sim_machine_kill(w, m, false);
    memset(&x->disk, 0, sizeof x->disk);
    sim_disk_erase(&x->journal);
    x->remembered.is = false;
    x->is_emptied = true;
    x->is_old = false;
    x->emptied_us = w->now_us;
    x->written = x->durable = (struct sim_replay){0};
    w->checker.newest_version[m] = 0;
    sim_schedule(w, draw_length(w),
                 (struct sim_event){.type = SIM_EVENT_START, .node = m});
}

static void empty_a_directory(struct sim_world *w)
{
    uint32_t m = newcomer(w), members = sim_checker_newest_members(&w->checker);
    if (m >= SIM_NODES || sl_random_maybe(&w->random, 5000)) m = some_machine(w);
    /* If two nodes lost their data directory, there might never be a majority again. */
    if (m >= SIM_NODES || (emptied(w) & members) != 0 || !is_one_membership(w)) return;
    if (__builtin_popcount(members) < 3 || !sl_random_maybe(&w->random, 3000)) return;
    empty(w, m);
}

/* ---- an old copy of a data directory ---- */

static void back_up(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    SIM_TRACE(w, "the directory of n%u is copied", m + 1);
    sim_disk_erase(&x->backup.journal);
    x->backup = (struct sim_backup){.is = true,
                                    .disk = x->disk,
                                    .journal = sim_disk_copy(&x->journal),
                                    .states = *sl_node_identity(x->node)};
}

/* Return whether all other members would reject the node after it went back to its backup, even
 * if they restart. */
static bool is_missed(const struct sim_world *w, uint32_t m, bool in_place)
{
    const struct sim_machine *x = &w->machines[m];
    uint32_t members = sim_checker_newest_members(&w->checker);
    struct sl_node_identity old = x->backup.states;
    if (old.run_count == SL_NODE_RUNS_MAX)
        memmove(old.runs, old.runs + 1, --old.run_count * sizeof *old.runs);
    old.runs[old.run_count++] = (struct sl_node_run){
        1, x->backup.journal.chain.position, in_place};
    if ((members & 1u << sim_node_id(m)) == 0) return false;
    if (x->backup.disk.force.count < 2) return false; /* It needs no other node. */
    for (uint32_t o = 0; o < SIM_NODES; o++) {
        if (o == m) continue;
        /* A node that was removed while it was down would still work with it. */
        const struct sl_node_durable *d = &w->machines[o].disk;
        bool is_member = (members & 1u << sim_node_id(o)) != 0;
        /* A node that is about to be added would not know it. */
        if (d->vote.version > d->force.version || d->stored.version > d->force.version)
            return false;
        if (!is_member && d->force.version == 0) continue;
        if (!sim_machine_runs(w, o)) return false;
        struct sl_node_stats stats;
        sl_node_stats(w->machines[o].node, sim_machine_now(w, o), &stats);
        if (stats.changing ||
            !sl_node_remembers(w->machines[o].node, sim_node_id(m), &old))
            return false;
    }
    return true;
}

static void restore_old_copy(struct sim_world *w)
{
    uint32_t m = some_machine(w), members = sim_checker_newest_members(&w->checker);
    if (m >= SIM_NODES || (emptied(w) & members) != 0 || !is_one_membership(w)) return;
    struct sim_machine *x = &w->machines[m];
    bool in_place = sl_random_maybe(&w->random, 5000) &&
                    x->backup.journal.boot == x->journal.boot;
    if (!x->backup.is || x->backup.disk.birth != x->disk.birth ||
        sl_random_maybe(&w->random, 2000)) {
        if (x->disk.birth != 0) back_up(w, m);
        return;
    }
    if (__builtin_popcount(members) < 3 || !is_missed(w, m, in_place)) return;
    SIM_TRACE(w, "n%u gets an old copy of its directory%s", m + 1,
              in_place ? ", in place" : "");
    sim_machine_kill(w, m, false);
    x->remembered.is = false;
    x->disk = x->backup.disk;
    sim_disk_put_back(&x->journal, &x->backup.journal, in_place);
    x->is_old = x->is_emptied = true;
    x->emptied_us = w->now_us;
    x->written = x->durable = (struct sim_replay){0};
    x->old_until_us = w->now_us + draw_length(w);
    w->checker.newest_version[m] = 0;
    sim_schedule(w, sl_random_between(&w->random, 0, 20000),
                 (struct sim_event){.type = SIM_EVENT_START, .node = m});
}

void sim_nemesis_end_old_copies(struct sim_world *w, int64_t now_us)
{
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        struct sim_machine *x = &w->machines[m];
        if (x->is_old && now_us >= x->old_until_us) empty(w, m);
    }
}

/* ---- choosing faults ---- */

void sim_nemesis_act(struct sim_world *w)
{
    static const struct {
        enum sim_fault fault;
        void (*act)(struct sim_world *w);
    } acts[] = {
        {SIM_FAULT_CUT, cut_a_link},          {SIM_FAULT_PART, part_some},
        {SIM_FAULT_CRASH, crash_some},        {SIM_FAULT_OUTAGE, crash_all},
        {SIM_FAULT_PAUSE, pause_one},         {SIM_FAULT_DISK, hurt_a_disk},
        {SIM_FAULT_DRIFT, change_speed},      {SIM_FAULT_WALL, step_a_clock},
        {SIM_FAULT_EMPTY, empty_a_directory}, {SIM_FAULT_COPY, restore_old_copy}};
    const uint32_t n = sizeof acts / sizeof acts[0];
    if (w->heal != SIM_HEAL_NOT) return;
    if (sim_has_fault(w, SIM_FAULT_ROLLING)) {
        sim_rolling_act(w);
        return;
    }
    bring_back(w);
    sim_nemesis_end_old_copies(w, w->now_us);
    for (uint32_t tries = 0; tries < n; tries++) {
        uint32_t i = sl_random_below(&w->random, n);
        if (!sim_has_fault(w, acts[i].fault)) continue;
        acts[i].act(w);
        break;
    }
    sim_schedule(w, sl_random_between(&w->random, 100, 2 * w->nemesis_us),
                 (struct sim_event){.type = SIM_EVENT_NEMESIS});
}

/* ---- operators ---- */

/* Start a node that is to be added, with an old data directory or an empty one. */
static void prepare(struct sim_world *w, uint32_t m)
{
    if (!sim_machine_runs(w, m)) sim_machine_start(w, m);
}

static uint32_t draw_member(struct sim_world *w, uint32_t bits)
{
    uint32_t start = sl_random_below(&w->random, SIM_NODES);
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        uint32_t m = (start + i) % SIM_NODES;
        if ((bits & 1u << sim_node_id(m)) != 0) return m;
    }
    return SIM_NODES;
}

static bool draw_change(struct sim_world *w, struct sl_node_request *ask,
                        char address[SL_ADDRESS_BYTES])
{
    const uint32_t all = (1u << (SIM_NODES + 1)) - 2;
    uint32_t members = sim_checker_newest_members(&w->checker),
             bad = emptied(w) & members;
    int count = __builtin_popcount(members);
    /* If one of two nodes loses its data directory, the membership can never change
     * again. */
    bool may_lose = sim_has_fault(w, SIM_FAULT_EMPTY) ||
                    sim_has_fault(w, SIM_FAULT_COPY);
    int least = may_lose ? 3 : 2;
    if (count <= 3) w->growing = true;
    if (count >= 5) w->growing = false;
    bool add = count <= least ||
               (count < 6 && sl_random_maybe(&w->random, w->growing ? 9000 : 1000));
    /* A node that lost its data directory must be removed first. */
    if (bad != 0) add = false;
    uint32_t m = draw_member(w, bad != 0 ? bad : add ? all & ~members : members);
    if (members == 0 || m >= SIM_NODES) return false;
    if (add) prepare(w, m);
    snprintf(address, SL_ADDRESS_BYTES, "n%u:1", m + 1);
    *ask = (struct sl_node_request){.type = add ? SL_NODE_ADD : SL_NODE_REMOVE,
                                    .node = sim_node_id(m),
                                    .address = address,
                                    .wait_ms = sl_random_between(&w->random, 0, 5000)};
    return true;
}

static void give_up(struct sim_world *w, uint32_t operator)
{
    uint64_t number = w->operators[operator].number;
    w->operators[operator].number = 0;
    if (number == 0 || w->checker.requests[number - 1].state != SIM_REQUEST_ARRIVED)
        return;
    uint32_t m = w->checker.requests[number - 1].node;
    if (w->machines[m].life != w->checker.requests[number - 1].life) return;
    sim_checker_withdraw(&w->checker, number);
    sl_node_withdraw(w->machines[m].node, sim_machine_now(w, m), number);
    sim_machine_settle(w, m);
}

static bool is_patient(const struct sim_world *w, uint32_t operator)
{
    uint64_t number = w->operators[operator].number;
    if (number == 0 || w->now_us >= w->operators[operator].until_us) return false;
    return w->checker.requests[number - 1].state == SIM_REQUEST_ARRIVED;
}

static void ask_for_change(struct sim_world *w, uint32_t operator)
{
    char address[SL_ADDRESS_BYTES];
    struct sl_node_request ask;
    uint32_t members = sim_checker_newest_members(&w->checker) & ~emptied(w);
    uint32_t m = w->operators[operator].node; /* Most operators stay with their node. */
    if (sl_random_maybe(&w->random, 3000) || (members & 1u << sim_node_id(m)) == 0)
        m = draw_member(w, members);
    if (m >= SIM_NODES || !sim_machine_runs(w, m) ||
        w->now_us < w->machines[m].paused_us || !draw_change(w, &ask, address))
        return;
    struct sim_request_record row = {
        .client = OPERATOR + operator, .type = ask.type, .sent_us = w->now_us};
    uint64_t number = sim_checker_request(&w->checker, &row);
    w->operators[operator].node = m;
    w->operators[operator].number = number;
    w->operators[operator].until_us = w->now_us + sl_random_between(&w->random, 100, 10000) * 1000;
    SIM_TRACE(w, "operator %u at n%u: %s node %u (request %llu)", operator+ 1, m + 1,
              sim_verb_name(ask.type), ask.node, (unsigned long long)number);
    sim_checker_arrived(&w->checker, number, m, w->machines[m].life, w->now_us);
    sl_node_submit(w->machines[m].node, sim_machine_now(w, m), number, &ask);
    sim_machine_settle(w, m);
    /* The most critical moment for a crash is during a membership change. */
    if (sim_has_fault(w, SIM_FAULT_CRASH) && sl_random_maybe(&w->random, 2000))
        sim_schedule(w, sl_random_between(&w->random, 0, 20000),
                     (struct sim_event){.type = SIM_EVENT_CRASH, .node = m});
}

void sim_operator_act(struct sim_world *w, uint32_t operator)
{
    if (w->heal != SIM_HEAL_NOT) return;
    if (!is_patient(w, operator)) {
        give_up(w, operator);
        ask_for_change(w, operator);
    }
    sim_schedule(w, sl_random_between(&w->random, 1000, 2 * w->operator_us),
             (struct sim_event){.type = SIM_EVENT_OPERATOR, .other = operator});
}
