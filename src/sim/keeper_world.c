/* keeper_world.c - a keeper cluster: what a seed draws, and the event loop. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

#define LINKS_US 50000 /* How often links are updated. */

static const struct sim_fault_row rows[] = {
#define FAULT(name, w, o, text) {.word = w, .what = text, .often = o},
    KSIM_FAULT_MAP(FAULT)
#undef FAULT
};

const struct sim_fault_list ksim_faults = {rows, KSIM_FAULT_COUNT};

void ksim_schedule(struct ksim_world *w, int64_t delay_us, struct sim_event e)
{
    e.at_us = w->now_us + delay_us;
    sim_queue_put(&w->queue, &e);
}

void ksim_mix(struct ksim_world *w, uint64_t x)
{
    w->hash = (w->hash ^ x) * 0x9FB21C651E98DF25ull;
    w->hash ^= w->hash >> 29;
}

/* ---- drawing from the seed ---- */

static sl_ms pick(struct sl_random *r, const sl_ms *from, uint32_t n)
{
    return from[sl_random_below(r, n)];
}

struct sim_clock ksim_clock(struct ksim_world *w, int64_t began_us)
{
    struct sl_random *r = &w->random;
    struct sim_clock c = {.since_us = w->now_us,
                          .began_us = began_us +
                                      sl_random_between(r, 1000000, 100000000000),
                          .ppm = sl_random_between(r, -50, 50)};
    int64_t most = sl_random_maybe(r, 5000) ? SIM_DRIFT_PPM : -SIM_DRIFT_PPM;
    if ((w->faults & 1ull << KSIM_FAULT_DRIFT) != 0) c.ppm = most;
    return c;
}

/* Draw what was added last, from another generator: so seeds without it do the same as before. */
static void draw_more(struct ksim_world *w)
{
    struct sl_random r;
    sl_random_seed(&r, ~w->setup.seed);
    for (uint32_t f = KSIM_FAULT_NOTIFY; f < KSIM_FAULT_COUNT; f++)
        if (sl_random_maybe(&r, rows[f].often) && !w->breaks) w->faults |= 1ull << f;
    if ((w->faults & (1ull << KSIM_FAULT_REPEAT | 1ull << KSIM_FAULT_NOTIFY)) == 0)
        w->faults &= ~(1ull << KSIM_FAULT_AGAIN);
}

static void draw_faults(struct ksim_world *w)
{
    const struct sim_fault_list first = {rows, KSIM_FAULT_NOTIFY};
    w->faults = sim_faults_draw(&first, &w->random);
    /* With these faults, a node that has lost its keeper may keep the connections of clients without a
     * lease for too long. Some seeds do without them, so that such clients are checked, too. */
    const uint64_t loose = 1ull << KSIM_FAULT_PAUSE | 1ull << KSIM_FAULT_ALONE |
                           1ull << KSIM_FAULT_DOWN | 1ull << KSIM_FAULT_AWAY |
                           1ull << KSIM_FAULT_SLOW | 1ull << KSIM_FAULT_LOST;
    if (sl_random_maybe(&w->random, 2500)) {
        w->faults &= ~loose;
        w->faults |= 1ull << KSIM_FAULT_LOOSE | 1ull << KSIM_FAULT_CUT |
                     1ull << KSIM_FAULT_RESET;
    }
    const uint64_t storms = loose | 1ull << KSIM_FAULT_DELAY | 1ull << KSIM_FAULT_CUT |
                            1ull << KSIM_FAULT_RESET | 1ull << KSIM_FAULT_PART |
                            1ull << KSIM_FAULT_FULL | 1ull << KSIM_FAULT_BUSY |
                            1ull << KSIM_FAULT_MEMORY;
    if (sl_random_maybe(&w->random, 1000)) {
        w->faults &= ~storms;
        w->faults |= 1ull << KSIM_FAULT_CRASH;
    }
    w->breaks = sl_random_maybe(&w->random, 1500) && !w->setup.faults_given;
    if (w->breaks)
        w->faults = (w->faults &
                     (1ull << KSIM_FAULT_BUSY | 1ull << KSIM_FAULT_FULL |
                      1ull << KSIM_FAULT_DRIFT | 1ull << KSIM_FAULT_DELAY)) |
                    1ull << KSIM_FAULT_OPERATE | 1ull << KSIM_FAULT_SIDE |
                    1ull << KSIM_FAULT_CRASH | 1ull << KSIM_FAULT_SEVERAL;
    draw_more(w);
    if (w->setup.faults_given) w->faults = w->setup.faults;
    w->calm = (w->faults & storms) == 0;
    if ((w->faults & 1ull << KSIM_FAULT_STEAL) == 0)
        w->faults &= ~(1ull << KSIM_FAULT_FORCE);
    if ((w->faults & 1ull << KSIM_FAULT_PAUSE) == 0)
        w->faults &= ~(1ull << KSIM_FAULT_STOP);
    w->checker.without_clocks = (w->faults & 1ull << KSIM_FAULT_STOP) != 0;
    w->checker.checks_loose = (w->faults & (loose | 1ull << KSIM_FAULT_MEMORY)) == 0;
}

/* Leases are so long that the drift of clocks matters more than the time until there is another keeper. In
 * half of these seeds, only keepers that resign record the leases. (A table does not know for how long a lease
 * is certainly valid if two reports of its expiry differ by more than 17 minutes.) */
static void draw_long(struct ksim_world *w)
{
    bool is_short = sl_random_maybe(&w->random, 5000);
    uint64_t faults = 1ull << KSIM_FAULT_DRIFT;
    w->lease_min_ms = is_short ? 60000 : 2700000;
    w->lease_max_ms = is_short ? 600000 : 3600000;
    w->rates_change = false;
    w->volatile_ms = 200; /* The bounds in the journal are rounded up to this. */
    if (is_short) {
        w->volatile_ms = w->lease_max_ms;
        w->resigns_often = true;
        faults |= 1ull << KSIM_FAULT_RESIGN;
    }
    if (!w->setup.faults_given) w->faults |= faults;
}

/* All leases last as long as lease-volatile. So they need no record, unless a keeper knows only that they may
 * last longer. */
static void draw_even(struct ksim_world *w)
{
    bool is_long = w->heal_at == 0 && w->setup.seed % 2 == 0;
    if (is_long) w->volatile_ms = w->setup.seed % 4 == 0 ? 3600000 : 1800000;
    else if (w->volatile_ms < 1000) w->volatile_ms = 10000;
    w->lease_min_ms = w->lease_max_ms = w->volatile_ms;
    if (is_long) w->rates_change = false;
    /* A node reports such a lease a few seconds after its grant, and the client repeats its command. */
    if (is_long && !w->setup.faults_given)
        w->faults |= 1ull << KSIM_FAULT_REPEAT | 1ull << KSIM_FAULT_AGAIN |
                     1ull << KSIM_FAULT_CRASH;
}

/* Keepers fail often, and nodes know different expiries of many leases, which operators break. */
static void draw_breaks(struct ksim_world *w)
{
    w->key_count = KSIM_KEYS;
    w->client_count = 8;
    w->node_count = w->machine_count = 5;
    w->lease_min_ms = 2000;
    w->lease_max_ms = w->volatile_ms = 8000;
    w->think_ms = 200;
    w->nemesis_us = sl_random_between(&w->random, 120, 250) * 1000;
}

static void draw(struct ksim_world *w)
{
    struct sl_random *r = &w->random;
    sl_random_seed(r, w->setup.seed);
    draw_faults(w);
    uint32_t dice = sl_random_below(r, 100);
    w->node_count = dice < 12   ? 2
                    : dice < 60 ? 3
                    : dice < 85 ? 5
                    : dice < 90 ? 4
                    : dice < 95 ? 6
                                : 7;
    w->machine_count = sl_random_maybe(r, 7000) ? w->node_count
                                                : 1 + sl_random_below(r, w->node_count);
    w->key_count = sl_random_maybe(r, 4000)   ? 1
                   : sl_random_maybe(r, 5000) ? KSIM_KEYS
                                              : 1 + sl_random_below(r, KSIM_KEYS);
    w->client_count = 2 + sl_random_below(r, 7);
    if (w->setup.clients > 0) w->client_count = w->setup.clients;
    w->lease_min_ms = 100;
    w->lease_max_ms = pick(r, (sl_ms[]){500, 2000, 2000, 5000, 10000, 30000}, 6);
    w->volatile_ms = pick(r, (sl_ms[]){0, 200, 1000, 5000, 10000, 10000}, 6);
    w->linger_ms = pick(r, (sl_ms[]){0, 500, 2000, 5000, 5000}, 5);
    w->keeper_wait_ms = pick(r, (sl_ms[]){0, 1000, 5000, 5000, 15000}, 5);
    w->wait_max_ms = pick(r, (sl_ms[]){200, 3000, 20000}, 3);
    w->think_ms = pick(r, (sl_ms[]){20, 200, 1000}, 3);
    w->short_us = sl_random_between(r, 200, sl_random_maybe(r, 5000) ? 2000 : 20000);
    w->etcd_us = sl_random_between(r, 500, sl_random_maybe(r, 5000) ? 5000 : 50000);
    w->nemesis_us = sl_random_between(r, 50, 600) * 1000;
    w->resigns_often = sl_random_maybe(r, 2500);
    w->slack_us = sl_random_maybe(r, 8000) ? 1000 : 30000;
    w->rates_change = ksim_has_fault(w, KSIM_FAULT_DRIFT) && sl_random_maybe(r, 5000);
    w->lazy = sl_random_maybe(r, 5000);
    w->space = ksim_has_fault(w, KSIM_FAULT_FULL) ? 100 : 1 << 20;
    w->heal_at = sl_random_maybe(r, 4000) ? w->setup.events * 6 / 10 : 0;
    if (w->breaks) draw_breaks(w);
    else if (w->heal_at == 0 && sl_random_maybe(r, 1500)) draw_long(w);
    if (ksim_has_fault(w, KSIM_FAULT_EVEN)) draw_even(w);
}

/* ---- events ---- */

/* A pause has ended. */
static void resume(struct ksim_world *w, uint32_t i, uint64_t life)
{
    struct ksim_node *n = &w->nodes[i];
    if (!n->up || n->life != life) return;
    ksim_node_start_clock(w, i);
    KSIM_TRACE(w, "n%u continues", i + 1);
    n->waits_us = 0;
    ksim_net_resume(w, i);
    ksim_node_settle(w, i);
}

static void tick(struct ksim_world *w, const struct sim_event *e)
{
    struct ksim_node *n = &w->nodes[e->node];
    if (!n->up || n->tick_number != e->number) return;
    n->tick_us = INT64_MAX;
    ksim_node_settle(w, e->node);
}

static void second(struct ksim_world *w, const struct sim_event *e)
{
    struct ksim_node *n = &w->nodes[e->node];
    if (!n->up || n->life != e->number) return;
    if (sl_random_maybe(&w->random, 300)) n->subscribed = !n->subscribed;
    sl_route_second(&n->f.route, ksim_node_now(w, e->node).ms, n->subscribed);
    ksim_limits_second(w, e->node);
    ksim_node_settle(w, e->node);
    ksim_etcd_poll(w, e->node);
    ksim_audit_unknown(w, e->node);
    ksim_rules_second(w, e->node);
    ksim_admin_second(w, e->node);
    ksim_schedule(w, 1000000, *e);
}

/* Whether the event needs a process that may be paused; it then happens after the pause. */
static int64_t paused_until(const struct ksim_world *w, const struct sim_event *e)
{
    switch (e->type) {
        case SIM_EVENT_MESSAGE:
        case SIM_EVENT_TICK:
        case SIM_EVENT_SECOND:
        case SIM_EVENT_WATCH:
        case SIM_EVENT_REQUEST:
        case SIM_EVENT_HANGUP: return w->nodes[e->node].paused_us;
        case SIM_EVENT_OPERATOR: /* A node learns of a change, unless `other` is 0. */
            return e->other == 0 ? 0 : w->nodes[e->node].paused_us;
        case SIM_EVENT_ANSWER:
        case SIM_EVENT_CLOSED: return w->clients[e->other / 2].paused_us;
        default: return 0;
    }
}

/* Handle an event. Returns false if it happens later. */
static bool handle(struct ksim_world *w, const struct sim_event *e)
{
    int64_t paused_us = paused_until(w, e);
    /* What arrives as the pause ends must not overtake what arrived during the pause. */
    if (paused_us > 0 && w->now_us <= paused_us) {
        ksim_schedule(w, paused_us - w->now_us + 1, *e);
        return false;
    }
    switch (e->type) {
        case SIM_EVENT_MESSAGE: ksim_net_deliver(w, e); break;
        case SIM_EVENT_TICK: tick(w, e); break;
        case SIM_EVENT_SECOND: second(w, e); break;
        case SIM_EVENT_STORAGE: ksim_etcd_event(w, e); break;
        case SIM_EVENT_WATCH: ksim_etcd_watched(w, e); break;
        case SIM_EVENT_REQUEST: ksim_client_request(w, e); break;
        case SIM_EVENT_HANGUP: ksim_client_hung_up(w, e); break;
        case SIM_EVENT_ANSWER: ksim_client_received(w, e); break;
        case SIM_EVENT_CLOSED: ksim_client_closed(w, e); break;
        case SIM_EVENT_CLIENT:
            if (w->clients[e->other].wake == e->number) ksim_client_act(w, e->other);
            break;
        case SIM_EVENT_NEMESIS: ksim_nemesis_act(w); break;
        case SIM_EVENT_LINKS:
            ksim_net_update(w);
            ksim_nemesis_flap(w);
            ksim_schedule(w, LINKS_US, *e);
            break;
        case SIM_EVENT_RESIGN:
            if (!w->healed && w->nodes[e->node].life == e->number)
                ksim_node_resign(w, e->node);
            break;
        case SIM_EVENT_PAUSE: ksim_pause_event(w, e); break;
        case SIM_EVENT_CRASH:
            if (w->nodes[e->node].life != e->number) break;
            if (!w->healed || w->nodes[e->node].f.unreadable)
                ksim_nemesis_crash_keeper(w, e->node);
            break;
        case SIM_EVENT_START:
            if (!w->nodes[e->node].up && ksim_is_member(w, e->node))
                ksim_node_start(w, e->node);
            break;
        case SIM_EVENT_OPERATOR: ksim_members_event(w, e); break;
        case SIM_EVENT_MEND: resume(w, e->node, e->number); break;
        default: break;
    }
    return true;
}

/* ---- a run ---- */

static void begin(struct ksim_world *w)
{
    static const struct sl_resp_limits wire = {.args_max = 128,
                                               .bulk_bytes_max = 65536,
                                               .command_bytes_max = 1 << 20,
                                               .inline_bytes_max = 64};
    w->reader = sl_resp_reader_new(&wire);
    if (w->reader == NULL) abort();
    ksim_etcd_init(&w->etcd);
    ksim_admin_init(w);
    ksim_members_begin(w);
    for (uint32_t i = 0; i < w->node_count; i++) {
        w->nodes[i].machine = i % w->machine_count;
        w->nodes[i].clock = ksim_clock(w, 0);
        if (ksim_has_fault(w, KSIM_FAULT_WALL))
            w->nodes[i].wall_off_us = sl_random_between(&w->random, -3600000000,
                                                        3600000000);
        ksim_schedule(w, sl_random_between(&w->random, 0, 500000),
                      (struct sim_event){.type = SIM_EVENT_START, .node = i});
    }
    for (uint32_t c = 0; c < w->client_count; c++) ksim_client_init(w, c);
    ksim_schedule(w, 1000, (struct sim_event){.type = SIM_EVENT_LINKS});
    ksim_schedule(w, 3000000, (struct sim_event){.type = SIM_EVENT_NEMESIS});
}

static void end_run(struct ksim_world *w)
{
    for (uint32_t i = 0; i < KSIM_NODES; i++) ksim_node_free(&w->nodes[i]);
    ksim_etcd_free(&w->etcd);
    sl_resp_reader_free(w->reader);
    sim_queue_clear(&w->queue);
}

static void reset(struct ksim_world *w, const struct sim_setup *setup)
{
    struct sim_queue queue = w->queue;
    struct ksim_checker checker = w->checker;
    memset(w, 0, sizeof *w);
    w->queue = queue;
    w->checker = checker;
    w->setup = *setup;
    ksim_checker_clear(&w->checker);
}

static bool goes_on(struct ksim_world *w)
{
    if (w->over || w->checker.wrong[0] != '\0') return false;
    if (w->setup.until > 0 && w->steps >= w->setup.until) return false;
    if (w->heal_at == 0) return w->steps < w->setup.events;
    if (!w->healed && w->steps >= w->heal_at) ksim_heal_begin(w);
    return true;
}

static void run(void *world, const struct sim_setup *setup)
{
    struct ksim_world *w = world;
    struct sim_event e;
    reset(w, setup);
    draw(w);
    if (setup->trace) ksim_trace_setup(w);
    begin(w);
    while (goes_on(w) && sim_queue_take(&w->queue, &e)) {
        w->now_us = e.at_us;
        w->steps++;
        ksim_leases_routes(w);
        if (handle(w, &e)) free(e.bytes);
        if (w->healed) ksim_heal_step(w);
    }
    w->counts.seeds = 1;
    w->counts.events = w->steps;
    w->counts.healed = w->over;
    w->counts.overlaps = w->checker.overlaps;
    if (w->checker.wrong[0] != '\0') w->counts.wrong = 1;
    if (w->checker.wrong[0] != '\0' && w->checker.is_stuck) w->counts.stuck = 1;
    end_run(w);
}

/* ---- as main.c sees it ---- */

static void *create(void)
{
    struct ksim_world *w = calloc(1, sizeof *w);
    if (w == NULL) abort();
    return w;
}

static void destroy(void *world)
{
    struct ksim_world *w = world;
    sim_queue_free(&w->queue);
    ksim_checker_free(&w->checker);
    free(w);
}

static void look(const void *world, struct sim_result *out)
{
    const struct ksim_world *w = world;
    *out = (struct sim_result){.hash = w->hash,
                               .steps = w->steps,
                               .now_us = w->now_us,
                               .faults = w->faults,
                               .clients = w->client_count,
                               .wrong = w->checker.wrong,
                               .is_stuck = w->checker.is_stuck,
                               .counts = w->counts};
}

static void print_setup(const void *w)
{
    ksim_trace_setup(w);
}

static void print_counts(const struct sim_counts *c)
{
    printf("%" PRIu64 " grants, %" PRIu64 " extends, %" PRIu64 " steals, %" PRIu64
           " forwarded, %" PRIu64 " recorded, %" PRIu64 " crashes, %" PRIu64
           " terms, %" PRIu64 " resignations, %" PRIu64
           " waits that ended early, %" PRIu64 " commits, %" PRIu64 " breaks, %" PRIu64
           " drains, %" PRIu64 " membership changes, %" PRIu64
           " overlaps without a lease",
           c->grants, c->extends, c->steals, c->forwarded, c->records, c->crashes,
           c->changes, c->resignations, c->early, c->commits, c->breaks, c->drains,
           c->members, c->overlaps);
}

const struct sim_kind sim_kind_keeper = {.option = " --keeper",
                                         .faults = &ksim_faults,
                                         .events = 30000,
                                         .create = create,
                                         .destroy = destroy,
                                         .run = run,
                                         .look = look,
                                         .print_setup = print_setup,
                                         .print_counts = print_counts};
