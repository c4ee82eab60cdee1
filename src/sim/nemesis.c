/* nemesis.c - what breaks, and operators who change the list of nodes meanwhile. */
#include <stdio.h>
#include <string.h>

#include "sim/world.h"

#define OPERATOR (SL_SIM_CLIENTS) /* In the books, the first of them. */

static uint32_t some_machine(struct world *w)
{
    uint32_t start = sl_random_below(&w->random, SL_SIM_NODES);
    for (uint32_t i = 0; i < SL_SIM_NODES; i++) {
        uint32_t m = (start + i) % SL_SIM_NODES;
        if (sl_machine_runs(w, m)) return m;
    }
    return SL_SIM_NODES;
}

/* Half of the faults are short, the others may outlast a lease. */
static int64_t draw_length(struct world *w)
{
    struct sl_random *r = &w->random;
    return sl_random_maybe(r, 5000)
               ? sl_random_between(r, 1000, 100000)
               : sl_random_between(r, 1000, 3000 * w->lease_max_ms);
}

/* ---- links ---- */

static void cut(struct world *w, uint32_t from, uint32_t to, int64_t length_us)
{
    struct sim_link *l = &w->machines[from].links[to];
    int64_t until = w->now_us + length_us;
    if (until > l->cut_until_us) l->cut_until_us = until;
}

static void cut_a_link(struct world *w)
{
    uint32_t a = sl_random_below(&w->random, SL_SIM_NODES),
             b = sl_random_below(&w->random, SL_SIM_NODES);
    int64_t length = draw_length(w);
    if (a == b) return;
    bool both = sl_random_maybe(&w->random, 3000);
    TRACE(w, "cut: n%u %s n%u for %lld ms", a + 1, both ? "<->" : "->", b + 1,
          (long long)(length / 1000));
    cut(w, a, b, length);
    if (both) cut(w, b, a, length);
}

void sl_nemesis_part(struct world *w, uint32_t side, int64_t length)
{
    TRACE(w, "parted: %#x from the others for %lld ms", side,
          (long long)(length / 1000));
    for (uint32_t a = 0; a < SL_SIM_NODES; a++) {
        for (uint32_t b = 0; b < SL_SIM_NODES; b++) {
            if ((side >> a & 1) != (side >> b & 1)) cut(w, a, b, length);
        }
    }
}

static void part_some(struct world *w)
{
    uint32_t alone = sl_random_below(&w->random, SL_SIM_NODES);
    if (sl_random_maybe(&w->random, 7000)) {
        sl_nemesis_part(w, sl_random_below(&w->random, 1u << SL_SIM_NODES),
                        draw_length(w));
        return;
    }
    /* One alone, for long; or until the list has changed twice, and it does not know. */
    sl_nemesis_part(w, 1u << alone,
                    sl_random_between(&w->random, 2000, 8000) * w->lease_max_ms);
    w->alone = alone;
    w->alone_until = w->books.list_count + 2;
}

/* It comes back to all, or to one other that is parted from the rest now. */
static void bring_back(struct world *w)
{
    uint32_t one = sl_random_below(&w->random, SL_SIM_NODES);
    if (w->alone_until == 0 || w->books.list_count < w->alone_until) return;
    TRACE(w, "n%u is not alone any more", w->alone + 1);
    w->alone_until = 0;
    for (uint32_t o = 0; o < SL_SIM_NODES; o++)
        w->machines[o].links[w->alone].cut_until_us =
            w->machines[w->alone].links[o].cut_until_us = 0;
    if (sl_random_maybe(&w->random, 5000))
        sl_nemesis_part(w, 1u << w->alone | 1u << one, 2000 * w->lease_max_ms);
}

/* ---- machines ---- */

static void crash(struct world *w, uint32_t m)
{
    if (m >= SL_SIM_NODES || !sl_machine_runs(w, m)) return;
    sl_machine_kill(w, m);
    sl_later(w, draw_length(w), (struct happening){.type = HAPPENS_START, .node = m});
}

void sl_nemesis_crash(struct world *w, uint32_t m)
{
    if (!sl_has_fault(w, FAULT_CRASH) || !sl_machine_runs(w, m)) return;
    sl_machine_kill(w, m);
    sl_later(w, sl_random_between(&w->random, 0, 20000),
             (struct happening){.type = HAPPENS_START, .node = m});
}

static void crash_some(struct world *w)
{
    crash(w, some_machine(w));
    if (sl_random_maybe(&w->random, 2000)) crash(w, some_machine(w));
}

static void crash_all(struct world *w)
{
    if (!sl_random_maybe(&w->random, 3000)) return;
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) crash(w, m);
}

static void pause_one(struct world *w)
{
    int64_t until = w->now_us + draw_length(w) * 2 / 3;
    if (sl_random_maybe(&w->random, 6000)) {
        uint32_t m = some_machine(w);
        if (m >= SL_SIM_NODES || until < w->machines[m].paused_us) return;
        TRACE(w, "n%u stops for %lld ms", m + 1, (long long)(until - w->now_us) / 1000);
        w->machines[m].paused_us = until;
        return;
    }
    uint32_t c = sl_random_below(&w->random, w->client_count);
    if (until > w->clients[c].paused_us) w->clients[c].paused_us = until;
}

static void hurt_a_disk(struct world *w)
{
    struct machine *x = &w->machines[sl_random_below(&w->random, SL_SIM_NODES)];
    int64_t *which = sl_random_maybe(&w->random, 5000) ? &x->failing_us : &x->slow_us;
    *which = w->now_us + draw_length(w);
}

static int64_t draw_ppm(struct world *w)
{
    if (sl_random_maybe(&w->random, 3000))
        return sl_random_between(&w->random, -SL_DRIFT_PPM, SL_DRIFT_PPM);
    return sl_random_maybe(&w->random, 5000) ? SL_DRIFT_PPM : -SL_DRIFT_PPM;
}

/* Only its next alarms know the new rate; the others are late, or early and then do nothing. */
static void change_speed(struct world *w)
{
    uint32_t i = sl_random_below(&w->random, SL_SIM_NODES + w->client_count);
    struct clock *c = i < SL_SIM_NODES ? &w->machines[i].clock
                                       : &w->clients[i - SL_SIM_NODES].clock;
    sl_clock_rate(c, w->now_us, draw_ppm(w));
}

static void step_a_clock(struct world *w)
{
    uint32_t m = sl_random_below(&w->random, SL_SIM_NODES);
    w->machines[m].wall_off_us = sl_random_between(&w->random, -3600, 3600) * 1000000;
}

/* ---- an empty folder ---- */

static bool is_on_its_list(const struct machine *x, uint32_t m)
{
    const struct sl_membership *list = sl_node_membership(x->node);
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->at[i].id == sl_id_of(m)) return true;
    }
    return false;
}

/* Emptied, and not taken back. */
static uint32_t emptied(const struct world *w)
{
    uint32_t bits = 0;
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) {
        const struct machine *x = &w->machines[m];
        bool back = x->node != NULL && is_on_its_list(x, m);
        if (x->is_emptied && !back) bits |= 1u << sl_id_of(m);
    }
    return bits;
}

/* The one that came with the newest list: few have met it. */
static uint32_t newcomer(const struct world *w)
{
    uint64_t version = 0;
    uint32_t m = SL_SIM_NODES;
    for (uint32_t i = 0; i < SL_SIM_NODES; i++) {
        if (!sl_machine_runs(w, i)) continue;
        const struct sl_membership *list = sl_node_membership(w->machines[i].node);
        if (list->version <= version) continue;
        version = list->version;
        m = list->added - 1;
    }
    return m < SL_SIM_NODES && sl_machine_runs(w, m) ? m : SL_SIM_NODES;
}

/* Whether all who run go by the newest list, or by none. */
static bool is_one_list(const struct world *w)
{
    uint64_t version = 0;
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) {
        if (!sl_machine_runs(w, m)) continue;
        uint64_t its = sl_node_membership(w->machines[m].node)->version;
        if (version != 0 && its != 0 && its != version) return false;
        if (its != 0) version = its;
    }
    return true;
}

static void empty_a_folder(struct world *w)
{
    uint32_t m = newcomer(w), members = sl_books_newest(&w->books);
    if (m >= SL_SIM_NODES || sl_random_maybe(&w->random, 5000)) m = some_machine(w);
    /* With two of them there may be no majority, ever. */
    if (m >= SL_SIM_NODES || (emptied(w) & members) != 0 || !is_one_list(w)) return;
    if (__builtin_popcount(members) < 3 || !sl_random_maybe(&w->random, 3000)) return;
    struct machine *x = &w->machines[m];
    TRACE(w, "n%u loses its folder", m + 1);
    sl_machine_kill(w, m);
    memset(&x->disk, 0, sizeof x->disk);
    x->is_emptied = true;
    w->books.version_seen[m] = 0;
    sl_later(w, draw_length(w), (struct happening){.type = HAPPENS_START, .node = m});
}

/* ---- one after the other ---- */

void sl_nemesis_acts(struct world *w)
{
    static const struct {
        enum fault fault;
        void (*act)(struct world *w);
    } acts[] = {{FAULT_CUT, cut_a_link},      {FAULT_PART, part_some},
                {FAULT_CRASH, crash_some},    {FAULT_OUTAGE, crash_all},
                {FAULT_PAUSE, pause_one},     {FAULT_DISK, hurt_a_disk},
                {FAULT_DRIFT, change_speed},  {FAULT_WALL, step_a_clock},
                {FAULT_EMPTY, empty_a_folder}};
    const uint32_t n = sizeof acts / sizeof acts[0];
    if (w->heal != HEAL_NOT) return;
    if (sl_has_fault(w, FAULT_ROLLING)) {
        sl_rolling_acts(w);
        return;
    }
    bring_back(w);
    for (uint32_t tries = 0; tries < n; tries++) {
        uint32_t i = sl_random_below(&w->random, n);
        if (!sl_has_fault(w, acts[i].fault)) continue;
        acts[i].act(w);
        break;
    }
    sl_later(w, sl_random_between(&w->random, 100, 2 * w->nemesis_us),
             (struct happening){.type = HAPPENS_NEMESIS});
}

/* ---- operators ---- */

/* A node to be added has to run; on its disk is what it had, or nothing. */
static void prepare(struct world *w, uint32_t m)
{
    if (!sl_machine_runs(w, m)) sl_machine_start(w, m);
}

static uint32_t draw_member(struct world *w, uint32_t bits)
{
    uint32_t start = sl_random_below(&w->random, SL_SIM_NODES);
    for (uint32_t i = 0; i < SL_SIM_NODES; i++) {
        uint32_t m = (start + i) % SL_SIM_NODES;
        if ((bits & 1u << sl_id_of(m)) != 0) return m;
    }
    return SL_SIM_NODES;
}

static bool wish(struct world *w, struct sl_node_request *ask,
                 char address[SL_ADDRESS_BYTES])
{
    const uint32_t all = (1u << (SL_SIM_NODES + 1)) - 2;
    uint32_t members = sl_books_newest(&w->books), bad = emptied(w) & members;
    int count = __builtin_popcount(members);
    /* Of two, none may lose its folder: then no list could ever follow. */
    int least = sl_has_fault(w, FAULT_EMPTY) ? 3 : 2;
    if (count <= 3) w->growing = true;
    if (count >= 5) w->growing = false;
    bool add = count <= least ||
               (count < 6 && sl_random_maybe(&w->random, w->growing ? 9000 : 1000));
    /* Who lost its folder has to go first. */
    if (bad != 0) add = false;
    uint32_t m = draw_member(w, bad != 0 ? bad : add ? all & ~members : members);
    if (members == 0 || m >= SL_SIM_NODES) return false;
    if (add) prepare(w, m);
    snprintf(address, SL_ADDRESS_BYTES, "n%u:1", m + 1);
    *ask = (struct sl_node_request){.type = add ? SL_NODE_ADD : SL_NODE_REMOVE,
                                    .node = sl_id_of(m),
                                    .address = address,
                                    .wait_ms = sl_random_between(&w->random, 0, 5000)};
    return true;
}

static void give_up(struct world *w, uint32_t operator)
{
    uint64_t number = w->operators[operator].number;
    w->operators[operator].number = 0;
    if (number == 0 || w->books.requests[number - 1].state != REQUEST_ASKED) return;
    uint32_t m = w->books.requests[number - 1].node;
    if (w->machines[m].life != w->books.requests[number - 1].life) return;
    sl_books_withdraw(&w->books, number);
    sl_node_withdraw(w->machines[m].node, sl_machine_now(w, m), number);
    sl_machine_settle(w, m);
}

static bool is_patient(const struct world *w, uint32_t operator)
{
    uint64_t number = w->operators[operator].number;
    if (number == 0 || w->now_us >= w->operators[operator].until_us) return false;
    return w->books.requests[number - 1].state == REQUEST_ASKED;
}

static void ask_for_change(struct world *w, uint32_t operator)
{
    char address[SL_ADDRESS_BYTES];
    struct sl_node_request ask;
    uint32_t members = sl_books_newest(&w->books) & ~emptied(w);
    uint32_t m = w->operators[operator].node; /* Most stay where they are. */
    if (sl_random_maybe(&w->random, 3000) || (members & 1u << sl_id_of(m)) == 0)
        m = draw_member(w, members);
    if (m >= SL_SIM_NODES || !sl_machine_runs(w, m) ||
        w->now_us < w->machines[m].paused_us || !wish(w, &ask, address))
        return;
    struct request_row row = {
        .client = OPERATOR + operator, .type = ask.type, .sent_us = w->now_us};
    uint64_t number = sl_books_request(&w->books, &row);
    w->operators[operator].node = m;
    w->operators[operator].number = number;
    w->operators[operator].until_us = w->now_us + sl_random_between(&w->random, 100, 10000) * 1000;
    TRACE(w, "operator %u at n%u: %s node %u (request %llu)", operator+ 1, m + 1,
          sl_ask_word(ask.type), ask.node, (unsigned long long)number);
    sl_books_asked(&w->books, number, m, w->machines[m].life, w->now_us);
    sl_node_submit(w->machines[m].node, sl_machine_now(w, m), number, &ask);
    sl_machine_settle(w, m);
    /* The worst moment for a node to die is when it decides something. */
    if (sl_has_fault(w, FAULT_CRASH) && sl_random_maybe(&w->random, 2000))
        sl_later(w, sl_random_between(&w->random, 0, 20000),
                 (struct happening){.type = HAPPENS_CRASH, .node = m});
}

void sl_operator_acts(struct world *w, uint32_t operator)
{
    if (w->heal != HEAL_NOT) return;
    if (!is_patient(w, operator)) {
        give_up(w, operator);
        ask_for_change(w, operator);
    }
    sl_later(w, sl_random_between(&w->random, 1000, 2 * w->operator_us),
             (struct happening){.type = HAPPENS_OPERATOR, .other = operator});
}
