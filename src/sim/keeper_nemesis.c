/* keeper_nemesis.c - injects faults into a keeper cluster. */
#include "sim/keeper.h"

static uint32_t any_node(struct ksim_world *w)
{
    return sl_random_below(&w->random, w->node_count);
}

/* Return the keeper, as etcd knows it, or any node. Faults of the keeper matter most. */
static uint32_t likely_keeper(struct ksim_world *w)
{
    uint32_t keeper = w->etcd.term.node;
    if (keeper != 0 && sl_random_maybe(&w->random, 5000)) return keeper - 1;
    return any_node(w);
}

/* Most faults are short; some last longer than every time limit. */
static int64_t length(struct ksim_world *w)
{
    struct sl_random *r = &w->random;
    /* Links, authority and heartbeats time out after 0.5 s, 2 s and 3 s. */
    const int64_t limits_us[] = {500000, 2000000, 3000000};
    if (sl_random_maybe(r, 2000))
        return limits_us[sl_random_below(r, 3)] + sl_random_between(r, -100000, 400000);
    if (sl_random_maybe(r, 5000)) return sl_random_between(r, 1000, 1500000);
    if (sl_random_maybe(r, 7000)) return sl_random_between(r, 1000000, 6000000);
    return sl_random_between(r, 5000000, KSIM_FAULT_MAX_US - 1000000);
}

static void crash_for(struct ksim_world *w, uint32_t i, int64_t us)
{
    if (!w->nodes[i].up) return;
    ksim_node_kill(w, i);
    ksim_schedule(w, us, (struct sim_event){.type = SIM_EVENT_START, .node = i});
}

void ksim_nemesis_crash(struct ksim_world *w, uint32_t i)
{
    crash_for(w, i, sl_random_maybe(&w->random, 5000) ? length(w) / 10 : length(w));
}

/* Return the node that is likely to be the witness of this keeper, or any node. */
static uint32_t likely_witness(struct ksim_world *w, uint32_t keeper)
{
    if (sl_random_maybe(&w->random, 5000)) return any_node(w);
    return keeper == 0 ? 1 % w->node_count : 0;
}

void ksim_nemesis_crash_keeper(struct ksim_world *w, uint32_t i)
{
    if (!w->nodes[i].up || sl_random_maybe(&w->random, 7000)) {
        ksim_nemesis_crash(w, i);
        return;
    }
    crash_for(w, likely_witness(w, i), sl_random_between(&w->random, 1000, 100000));
    crash_for(w, i, length(w));
}

/* Kill a node. Or kill two: the keeper, and one that starts again at once, without its ledger. Or kill all
 * but the keeper, which then has no witness. */
static void crash(struct ksim_world *w)
{
    uint32_t i = likely_keeper(w), dice = sl_random_below(&w->random, 10);
    if (dice < 6) ksim_nemesis_crash(w, i);
    else if (dice < 9) {
        uint32_t other = likely_witness(w, i);
        crash_for(w, other, sl_random_between(&w->random, 1000, 100000));
        crash_for(w, i, length(w));
    } else {
        int64_t us = sl_random_between(&w->random, 4000000, 12000000);
        for (uint32_t o = 0; o < w->node_count; o++)
            if (o != i) crash_for(w, o, us + sl_random_between(&w->random, 0, 500000));
    }
}

/* ---- the network ---- */

static void cut(struct ksim_world *w, uint32_t a, uint32_t b, int64_t until_us)
{
    if (a == b || w->nodes[a].links[b].cut_until_us >= until_us) return;
    w->nodes[a].links[b].cut_until_us = until_us;
}

static void cut_link(struct ksim_world *w)
{
    uint32_t a = likely_keeper(w), b = any_node(w);
    int64_t until_us = w->now_us + length(w);
    bool both = sl_random_maybe(&w->random, 4000),
         in = sl_random_maybe(&w->random, 5000);
    if (a == b) return;
    KSIM_TRACE(w, "nemesis: cut n%u %s n%u for %lld ms", a + 1,
               both ? "and"
               : in ? "from"
                    : "to",
               b + 1, (long long)(until_us - w->now_us) / 1000);
    if (both || !in) cut(w, a, b, until_us);
    if (both || in) cut(w, b, a, until_us);
}

/* Reset one connection, or all connections of a node: then the others may claim the next term at once. */
static void reset(struct ksim_world *w)
{
    uint32_t a = likely_keeper(w), b = any_node(w);
    bool all = sl_random_maybe(&w->random, 3000);
    for (uint32_t o = 0; o < w->node_count; o++)
        if (o != a && (all || o == b)) {
            ksim_net_reset(w, a, o);
            if (all) ksim_net_reset(w, o, a);
        }
}

/* The links of each keeper are reset soon after it has claimed its term. So a node may become the keeper
 * again while an operation of its earlier term is under way. */
static void begin_flapping(struct ksim_world *w)
{
    w->flaps_us = w->now_us + sl_random_between(&w->random, 2000000, 8000000);
    KSIM_TRACE(w, "nemesis: links of the keeper are reset for %lld ms",
               (long long)(w->flaps_us - w->now_us) / 1000);
}

void ksim_nemesis_flap(struct ksim_world *w)
{
    uint32_t a = w->etcd.term.node - 1;
    if (w->now_us >= w->flaps_us || w->healed || w->etcd.term.node == 0 ||
        !sl_random_maybe(&w->random, 1000))
        return;
    for (uint32_t o = 0; o < w->node_count; o++) {
        if (o == a) continue;
        ksim_net_reset(w, a, o);
        ksim_net_reset(w, o, a);
    }
}

static void part(struct ksim_world *w)
{
    uint32_t side = sl_random_below(&w->random, 1u << w->node_count);
    int64_t until_us = w->now_us + length(w);
    KSIM_TRACE(w, "nemesis: partition, sides %#x", side);
    for (uint32_t a = 0; a < w->node_count; a++)
        for (uint32_t b = 0; b < w->node_count; b++)
            if ((side >> a & 1) != (side >> b & 1)) cut(w, a, b, until_us);
}

static void isolate(struct ksim_world *w)
{
    uint32_t a = likely_keeper(w);
    int64_t until_us = w->now_us + length(w);
    KSIM_TRACE(w, "nemesis: n%u is alone for %lld ms", a + 1,
               (long long)(until_us - w->now_us) / 1000);
    for (uint32_t b = 0; b < w->node_count; b++) {
        cut(w, a, b, until_us);
        cut(w, b, a, until_us);
    }
    /* Etcd may become reachable again earlier or later than the nodes. */
    w->nodes[a].away_us = until_us + sl_random_between(&w->random, -500000, 500000);
}

/* ---- nodes and clients ---- */

static void lose_power(struct ksim_world *w)
{
    uint32_t machine = w->nodes[any_node(w)].machine;
    KSIM_TRACE(w, "nemesis: machine %u loses power", machine + 1);
    for (uint32_t i = 0; i < w->node_count; i++) {
        if (w->nodes[i].machine != machine) continue;
        ksim_nemesis_crash(w, i);
        w->nodes[i].clock = ksim_clock(w, 0);
        w->nodes[i].clock.began_us = 0; /* The clock begins when the machine boots. */
    }
}

/* The holder of a lock without a lease notices a little later that its session has ended. If it is a guest, its
 * node may not have reported the grant yet. */
static void excuse_holder(struct ksim_world *w, uint32_t i, const struct ksim_conn *c)
{
    struct sl_grant_view v;
    const struct ksim_conn *there = c->is_guest ? ksim_conn_of_session(
                                                      w, c->guest.node - 1, c->guest.id)
                                                : NULL;
    if (there != NULL && !there->is_guest)
        ksim_client_closing(w, there->client, there->dial);
    for (uint32_t g = 0; g < w->checker.count; g++) {
        const struct ksim_grant *x = &w->checker.grants[g];
        if (x->held && !x->leased &&
            sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                   ksim_key(x->key), x->fence, &v) &&
            v.session_id == c->s.id)
            ksim_checker_closing(&w->checker, x->fence);
    }
}

/* A node closes a connection, for example because an operator wants it to. */
static void close_conn(struct ksim_world *w)
{
    uint32_t i = likely_keeper(w), count = 0, k = 0;
    struct ksim_node *n = &w->nodes[i];
    if (!ksim_node_runs(w, i)) return;
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next)
        count += sl_container_of(x, struct ksim_conn, all)->open;
    if (count == 0) return;
    uint32_t which = sl_random_below(&w->random, count);
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (!c->open || k++ != which) continue;
        KSIM_TRACE(w, "nemesis: n%u closes a connection of a %s", i + 1,
                   c->is_guest ? "guest" : "client");
        excuse_holder(w, i, c);
        ksim_conn_close(w, i, c, sl_random_maybe(&w->random, 5000));
        break;
    }
    ksim_node_settle(w, i);
}

/* The keeper closes the session of a client whose node hands over its ledger. */
void ksim_nemesis_close_guest(struct ksim_world *w, uint32_t i, uint32_t from,
                              uint64_t session)
{
    const struct sl_guest *g = sl_guests_find(&w->nodes[i].f.guests, from, session);
    if (g == NULL || !g->open || !ksim_has_fault(w, KSIM_FAULT_CLOSE) ||
        !sl_random_maybe(&w->random, 1000))
        return;
    KSIM_TRACE(w, "nemesis: n%u closes session %llu of n%u", i + 1,
               (unsigned long long)session, from);
    struct ksim_conn *c = sl_container_of(g, struct ksim_conn, guest);
    excuse_holder(w, i, c);
    ksim_conn_close(w, i, c, true);
}

/* Return an open connection of this client to the node, or NULL; one that waits for a lock, if there is one. */
static struct ksim_conn *conn_of(struct ksim_world *w, uint32_t i, uint32_t client,
                                 uint32_t way)
{
    uint64_t dial = w->clients[client].ways[way].dial;
    return dial == 0 || w->clients[client].ways[way].node != i
               ? NULL
               : ksim_conn_find(w, i, dial);
}

/* Close a connection of the client, often one that has sent another attempt; or the link to the keeper. */
void ksim_nemesis_held(struct ksim_world *w, uint32_t i, uint32_t from,
                       uint64_t session)
{
    struct sl_random *r = &w->random;
    const struct ksim_conn *of = ksim_conn_of_session(w, i, session);
    if (of == NULL || of->is_guest || !ksim_has_fault(w, KSIM_FAULT_EARLY)) return;
    const struct ksim_request *q = ksim_conn_next(of, NULL);
    while (q != NULL && q->command.id[0] == '\0') q = ksim_conn_next(of, q);
    if (q == NULL || !sl_random_maybe(r, 500)) return;
    if (sl_random_maybe(r, 3000)) {
        ksim_net_reset(w, i, from);
        return;
    }
    uint32_t way = sl_random_maybe(r, 7000) ? 1 - of->way : of->way;
    struct ksim_conn *c = conn_of(w, i, of->client, way);
    if (c == NULL) return;
    KSIM_TRACE(w, "nemesis: n%u closes a connection of c%u", i + 1, of->client + 1);
    ksim_conn_close(w, i, c, sl_random_maybe(r, 5000));
}

static void set_wall(struct ksim_world *w)
{
    w->nodes[any_node(w)].wall_off_us = sl_random_between(&w->random, -3600000000,
                                                          3600000000);
}

static void change_rate(struct ksim_world *w)
{
    struct ksim_node *n = &w->nodes[any_node(w)];
    if (n->stopped || !w->rates_change) return;
    sim_clock_rate(&n->clock, w->now_us,
                   sl_random_maybe(&w->random, 5000) ? SIM_DRIFT_PPM : -SIM_DRIFT_PPM);
}

/* ---- etcd ---- */

static void stop_etcd(struct ksim_world *w)
{
    w->etcd.down_us = w->now_us + length(w);
    KSIM_TRACE(w, "nemesis: etcd is unavailable for %lld ms",
               (long long)(w->etcd.down_us - w->now_us) / 1000);
}

static void slow_etcd(struct ksim_world *w)
{
    w->etcd.slow_us = w->now_us + length(w);
    KSIM_TRACE(w, "nemesis: etcd is slow");
}

static void send_away(struct ksim_world *w)
{
    uint32_t i = likely_keeper(w);
    w->nodes[i].away_us = w->now_us + length(w);
    KSIM_TRACE(w, "nemesis: n%u cannot reach etcd for %lld ms", i + 1,
               (long long)(w->nodes[i].away_us - w->now_us) / 1000);
}

/* A keeper of a newer version has written an entry to the journal. Later, the entry is deleted. */
static const struct sl_bytes newer = {"z", 1};

void ksim_nemesis_delete_newer(struct ksim_world *w)
{
    ksim_map_put(&w->etcd.journal, newer, (struct sl_bytes){NULL, 0}, 0);
}

static void change_newer(struct ksim_world *w)
{
    bool found;
    ksim_map_find(&w->etcd.journal, newer, &found);
    KSIM_TRACE(w, "nemesis: an entry of a newer version %s", found ? "ends" : "begins");
    if (found) ksim_nemesis_delete_newer(w);
    else ksim_map_put(&w->etcd.journal, newer, (struct sl_bytes){"?", 1}, 0);
}

/* ---- which fault ---- */

static void inject_pause(struct ksim_world *w)
{
    uint32_t dice = sl_random_below(&w->random, 10);
    if (dice < 4) ksim_pause_doubting(w);
    else if (dice < 8) ksim_pause_node(w, likely_keeper(w), length(w));
    else ksim_pause_client(w, sl_random_below(&w->random, w->client_count), length(w));
}

/* The keeper grants locks to clients of a node that does not receive its messages, and cannot reach etcd, so
 * another node takes over. Then the first node withdraws these grants, and the old keeper reports them. */
static void mute_keeper(struct ksim_world *w)
{
    struct sl_random *r = &w->random;
    uint32_t i = w->etcd.term.node - 1, to = sl_random_below(r, w->node_count);
    if (w->etcd.term.node == 0 || !w->nodes[i].up || to == i) return;
    KSIM_TRACE(w, "n%u does not receive the messages of the keeper n%u", to + 1, i + 1);
    w->nodes[i].links[to].cut_until_us = w->now_us +
                                         sl_random_between(r, 1000000, 3000000);
    w->nodes[i].away_us = w->now_us + sl_random_between(r, 2000000, 5000000);
    ksim_takeover_cut_off(w, i);
}

static void inject(struct ksim_world *w, enum ksim_fault f)
{
    switch (f) {
        case KSIM_FAULT_CUT: cut_link(w); break;
        case KSIM_FAULT_RESET:
            if (sl_random_maybe(&w->random, 1000)) begin_flapping(w);
            else reset(w);
            break;
        case KSIM_FAULT_PART: part(w); break;
        case KSIM_FAULT_ALONE: isolate(w); break;
        case KSIM_FAULT_CRASH: crash(w); break;
        case KSIM_FAULT_RESIGN:
            if (w->etcd.term.node != 0) ksim_node_resign(w, w->etcd.term.node - 1);
            break;
        case KSIM_FAULT_POWER: lose_power(w); break;
        case KSIM_FAULT_OUTAGE:
            if (sl_random_maybe(&w->random, 2000))
                for (uint32_t i = 0; i < w->node_count; i++) ksim_nemesis_crash(w, i);
            break;
        case KSIM_FAULT_PAUSE: inject_pause(w); break;
        case KSIM_FAULT_CLOSE: close_conn(w); break;
        case KSIM_FAULT_DRIFT: change_rate(w); break;
        case KSIM_FAULT_WALL: set_wall(w); break;
        case KSIM_FAULT_SLOW: slow_etcd(w); break;
        case KSIM_FAULT_DOWN: stop_etcd(w); break;
        case KSIM_FAULT_AWAY:
            if (sl_random_maybe(&w->random, 5000)) mute_keeper(w);
            else send_away(w);
            break;
        case KSIM_FAULT_NEWER: change_newer(w); break;
        default: break; /* Other faults are in the code that they affect. */
    }
}

void ksim_nemesis_act(struct ksim_world *w)
{
    if (w->healed) return;
    enum ksim_fault f = (enum ksim_fault)sl_random_below(&w->random, KSIM_FAULT_NOTIFY);
    if (ksim_has_fault(w, f)) inject(w, f);
    ksim_schedule(w, sl_random_between(&w->random, 0, 2 * w->nemesis_us),
                  (struct sim_event){.type = SIM_EVENT_NEMESIS});
}
