#include "sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALL_START_US 1700000000000000
#define LOOK_US 30000 /* How often links are looked at. */

void sl_later(struct world *w, int64_t delay_us, struct happening h)
{
    h.at_us = w->now_us + delay_us;
    sl_queue_put(&w->queue, &h);
}

/* ---- what a seed is made of ---- */

static sl_ms pick(struct sl_random *r, const sl_ms *from, uint32_t n)
{
    return from[sl_random_below(r, n)];
}

static void draw_limits(struct world *w)
{
    struct sl_random *r = &w->random;
    static const sl_ms longest[] = {200, 400, 1000, 2000};
    w->lease_max_ms = pick(r, longest, 4);
    w->lease_min_ms = 100;
    w->limits = sl_node_limits_default;
    w->limits.keys_max = 64;
    w->limits.waiters_max = sl_random_maybe(r, 1000) ? 2 : 16;
    w->limits.key_bytes_max = w->limits.value_bytes_max = 64;
    w->limits.lease_min_ms = 50;
    w->limits.lease_max_ms = w->lease_max_ms;
    w->limits.heartbeat_ms = sl_random_between(r, 100, 500);
    w->limits.answer_ms = sl_random_between(r, 20, 150);
    w->limits.answer_min_ms = sl_random_between(r, 5, 20);
    w->limits.answer_max_ms = sl_random_between(r, 150, 500);
    w->limits.forget_ms = sl_random_between(r, w->lease_max_ms / 2,
                                            3 * w->lease_max_ms);
    w->limits.waiting_messages_max = sl_random_maybe(r, 1000) ? 4 : 64;
}

static void draw_counts(struct world *w)
{
    struct sl_random *r = &w->random;
    uint32_t dice = sl_random_below(r, 100);
    w->node_count = dice < 60 ? 3 : dice < 90 ? 5 : dice < 95 ? 4 : dice < 98 ? 2 : 1;
    w->key_count = 1 + sl_random_below(r, sl_random_maybe(r, 5000) ? 1 : SL_SIM_KEYS);
    w->client_count = 2 + sl_random_below(r, 7);
    if (w->setup.clients > 0) w->client_count = w->setup.clients;
    w->operator_count = 1 + sl_random_below(r, 2);
}

static enum sl_message_type draw_aged(struct sl_random *r)
{
    static const enum sl_message_type often[] = {SL_MESSAGE_NONE,    SL_MESSAGE_NONE,
                                                 SL_MESSAGE_ACQUIRE, SL_MESSAGE_RELEASE,
                                                 SL_MESSAGE_TEACH,   SL_MESSAGE_VOTE};
    if (sl_random_maybe(r, 3000)) return 1 + sl_random_below(r, SL_MESSAGE_COUNT - 1);
    return often[sl_random_below(r, sizeof often / sizeof often[0])];
}

static void draw_speeds(struct world *w)
{
    struct sl_random *r = &w->random;
    w->loss = (uint32_t)sl_random_between(r, 50, sl_random_maybe(r, 5000) ? 500 : 3000);
    w->doubles = (uint32_t)sl_random_between(r, 200, 3000);
    w->short_us = sl_random_between(r, 200, sl_random_maybe(r, 5000) ? 2000 : 20000);
    w->tail_us = 2000 * w->lease_max_ms;
    w->ages_us = 20000 * w->lease_max_ms;
    w->nemesis_us = sl_random_between(r, 20, 400) * 1000;
    w->operator_us = sl_random_between(r, 20, sl_random_maybe(r, 7000) ? 200 : 1500) *
                     1000;
    w->think_ms = sl_random_between(r, 1,
                                    pick(r, (sl_ms[]){20, 20, 500, 500, 3000}, 5));
    w->long_leases = sl_random_maybe(r, 3000);
    w->aged = draw_aged(r);
    w->growing = true;
    w->slack_us = sl_random_maybe(r, 8000) ? 1000 : 30000;
    w->heal_at = sl_random_maybe(r, 3000) ? w->setup.events * 6 / 10 : 0;
}

static void draw(struct world *w)
{
    sl_random_seed(&w->random, w->setup.seed);
    w->faults = sl_faults_draw(&w->random);
    if (w->setup.faults_given) w->faults = w->setup.faults;
    if ((w->faults & 1u << FAULT_STEAL) == 0) w->faults &= ~(1u << FAULT_FORCE);
    draw_limits(w);
    draw_counts(w);
    draw_speeds(w);
    if (sl_has_fault(w, FAULT_ROLLING)) sl_rolling_draw(w);
}

static struct clock draw_clock(struct world *w)
{
    struct sl_random *r = &w->random;
    struct clock c = {.since_us = w->now_us,
                      .began_us = sl_random_between(r, 1000000, 100000000000),
                      .ppm = sl_random_between(r, -50, 50)};
    int64_t most = sl_random_maybe(r, 5000) ? SL_DRIFT_PPM : -SL_DRIFT_PPM;
    if (sl_has_fault(w, FAULT_DRIFT)) c.ppm = most;
    return c;
}

/* ---- machines ---- */

bool sl_machine_runs(const struct world *w, uint32_t m)
{
    return w->machines[m].node != NULL;
}

struct sl_now sl_machine_now(const struct world *w, uint32_t m)
{
    const struct machine *x = &w->machines[m];
    int64_t us = sl_clock_us(&x->clock, w->now_us);
    return (struct sl_now){
        .ms = us / 1000,
        .wall_us = (uint64_t)(WALL_START_US + w->now_us + x->wall_off_us)};
}

static void first_list(const struct world *w, struct sl_membership *out)
{
    *out = (struct sl_membership){.version = 1, .count = w->node_count};
    for (uint32_t i = 0; i < w->node_count; i++) {
        out->at[i].id = sl_id_of(i);
        snprintf(out->at[i].address, sizeof out->at[i].address, "n%u:1", i + 1);
    }
}

/* Those with whom it wants to be connected. */
static void look_at_peers(struct world *w, uint32_t m)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(w->machines[m].node, peers);
    w->machines[m].peers = 0;
    for (uint32_t i = 0; i < n; i++) w->machines[m].peers |= 1u << peers[i].id;
}

void sl_machine_start(struct world *w, uint32_t m)
{
    struct machine *x = &w->machines[m];
    struct sl_node_start start = {.id = sl_id_of(m),
                                  .epoch = sl_random_next(&w->random) | 1,
                                  .birth = sl_random_next(&w->random) | 1,
                                  .seed = sl_random_next(&w->random),
                                  .kept = x->disk,
                                  .limits = w->limits};
    if (m < w->node_count && x->disk.birth == 0 && !x->is_emptied)
        first_list(w, &start.bootstrap);
    x->node = sl_node_new(&start, sl_machine_now(w, m));
    if (x->node == NULL) abort();
    x->life = ++w->lives;
    sl_books_started(&w->books, m);
    x->writing = false;
    x->due_ms = SL_NEVER;
    x->tick_us = SL_SIM_NEVER;
    x->idle_ticks = 0;
    TRACE(w, "n%u starts%s", m + 1,
          start.bootstrap.version > 0 ? " for the first time"
          : x->disk.birth == 0        ? " with nothing on its disk"
                                      : "");
    look_at_peers(w, m);
    sl_machine_settle(w, m);
}

/* A write that was under way may have happened, or not. */
static void lose_power(struct world *w, struct machine *x)
{
    if (x->writing && sl_random_maybe(&w->random, 5000)) x->disk = x->ahead;
    x->writing = false;
    if (sl_random_maybe(&w->random, 3000))
        x->clock = draw_clock(w); /* The machine, too. */
}

void sl_machine_kill(struct world *w, uint32_t m)
{
    struct machine *x = &w->machines[m];
    TRACE(w, "n%u is killed%s", m + 1, x->writing ? ", while it writes" : "");
    sl_node_free(x->node);
    x->node = NULL;
    lose_power(w, x);
    for (uint32_t c = 0; c < SL_SIM_CLIENTS; c++) {
        /* Its clients notice, sooner or later; some look themselves. */
        if (w->clients[c].life == x->life && w->clients[c].role != ROLE_KEEPS)
            sl_client_wake(
                w, c, sl_client_clock(w, c) + sl_random_between(&w->random, 0, 300000));
    }
    x->life = 0;
    sl_net_killed(w, m);
    w->counts.crashes++;
}

/* ---- what a node orders ---- */

static void mix(struct world *w, uint64_t x)
{
    w->hash = (w->hash ^ x) * 0x9FB21C651E98DF25ull;
    w->hash ^= w->hash >> 29;
}

static void do_write(struct world *w, uint32_t m, const struct sl_node_durable *d)
{
    struct machine *x = &w->machines[m];
    struct sl_random *r = &w->random;
    if (x->writing) sl_books_wrong(&w->books, "n%u writes two things at once", m + 1);
    if (d->fence_limit < x->disk.fence_limit)
        sl_books_wrong(&w->books, "n%u writes a lower limit of fences", m + 1);
    x->writing = true;
    x->ahead = *d;
    int64_t takes_us = sl_random_between(r, 100, 10000);
    if (w->now_us < x->slow_us) takes_us += sl_random_between(r, 0, 1000000);
    if (w->setup.trace) sl_trace_write(w, m, d);
    mix(w, d->fence_limit ^ (uint64_t)d->lease_longest_ms ^ d->force.version << 32);
    sl_later(w, takes_us,
             (struct happening){.type = HAPPENS_WRITTEN, .node = m, .number = x->life});
    /* What is relied on too early is found by dying before it is written. */
    if (sl_has_fault(w, FAULT_CRASH) && sl_random_maybe(r, 500))
        sl_later(w, sl_random_between(r, 0, takes_us),
                 (struct happening){.type = HAPPENS_CRASH, .node = m});
}

static void do_order(struct world *w, uint32_t m, const struct sl_node_order *o)
{
    mix(w, (uint64_t)w->now_us << 8 ^ (uint64_t)o->type << 4 ^ m);
    switch (o->type) {
        case SL_NODE_ORDER_SEND:
            mix(w, o->message->fence ^ (uint64_t)o->message->type << 56 ^
                       (uint64_t)o->message->verdict << 48 ^ o->to);
            sl_net_send(w, m, o->to, o->message);
            break;
        case SL_NODE_ORDER_ANSWER:
            mix(w, o->ticket << 16 ^ (uint64_t)o->answer->status);
            sl_client_answer(w, m, o->ticket, o->answer);
            break;
        case SL_NODE_ORDER_EVENT:
            mix(w, o->event->fence << 4 ^ (uint64_t)o->event->type);
            sl_client_event(w, m, o->event);
            break;
        case SL_NODE_ORDER_WRITE: do_write(w, m, o->durable); break;
        case SL_NODE_ORDER_LINKS: look_at_peers(w, m); break;
        case SL_NODE_ORDER_LOG: TRACE(w, "n%u says: %s", m + 1, o->text); break;
    }
}

/* Its next tick. Real timers are late, by a little. */
static void set_alarm(struct world *w, uint32_t m)
{
    struct machine *x = &w->machines[m];
    sl_ms due = sl_node_due(x->node);
    if (due == SL_NEVER || due >= x->due_ms) return;
    int64_t at = sl_clock_when(&x->clock, due * 1000);
    if (at < w->now_us + 20) at = w->now_us + 20;
    at += sl_random_below(&w->random, w->slack_us);
    if (at >= x->tick_us) return;
    x->due_ms = due;
    x->tick_us = at;
    sl_later(w, at - w->now_us,
             (struct happening){.type = HAPPENS_TICK, .node = m, .number = x->life});
}

/* What is looked at must be there, and change nothing. */
static void inspect(struct world *w, uint32_t m)
{
    struct sl_node *n = w->machines[m].node;
    struct sl_now now = sl_machine_now(w, m);
    struct sl_lease_view views[SL_SIM_KEYS];
    struct sl_waiter_view waiter;
    struct sl_node_stats stats;
    struct sl_peer_view peer;
    uint64_t cursor = 0;
    size_t n_views = sl_node_scan(n, now, &cursor, views, SL_SIM_KEYS);
    for (size_t i = 0; i < n_views; i++) mix(w, views[i].copy.fence);
    for (uint32_t k = 0; k < w->key_count; k++) {
        if (sl_node_waiter(n, now, sl_key_bytes(k), 0, &waiter)) mix(w, waiter.session);
    }
    sl_node_stats(n, now, &stats);
    sl_node_peer(n, sl_id_of((m + 1) % SL_SIM_NODES), &peer);
    mix(w, stats.requests ^ (uint64_t)peer.rtt_ms);
}

#define ORDERS_MAX 100000
#define INSPECT_EVERY 64 /* Views are many calls, and change nothing. */

void sl_machine_settle(struct world *w, uint32_t m)
{
    struct machine *x = &w->machines[m];
    struct sl_node_order o;
    uint32_t orders = 0;
    while (sl_node_next(x->node, &o)) {
        do_order(w, m, &o);
        if (++orders < ORDERS_MAX) continue;
        sl_books_wrong(&w->books, "n%u orders without end", m + 1);
        return;
    }
    if (orders > 0) x->idle_ticks = 0;
    sl_books_list(&w->books, m, sl_node_membership(x->node));
    sl_node_check(x->node);
    if (++x->settled % INSPECT_EVERY == 0) inspect(w, m);
    set_alarm(w, m);
}

/* ---- what happens ---- */

static void ticks(struct world *w, const struct happening *h)
{
    struct machine *x = &w->machines[h->node];
    if (h->at_us != x->tick_us) return; /* There is an earlier one. */
    x->due_ms = SL_NEVER;
    x->tick_us = SL_SIM_NEVER;
    sl_node_tick(x->node, sl_machine_now(w, h->node));
    if (x->idle_ticks++ == 0 || w->now_us - x->idle_us > 1000000) {
        x->idle_ticks = 1;
        x->idle_us = w->now_us;
    }
    if (x->idle_ticks > 1000)
        sl_books_wrong(&w->books, "n%u wants to be woken, and does nothing",
                       h->node + 1);
    sl_machine_settle(w, h->node);
}

static void written(struct world *w, const struct happening *h)
{
    struct machine *x = &w->machines[h->node];
    bool ok = w->now_us >= x->failing_us;
    x->writing = false;
    /* An error tells nothing: it may be there all the same. */
    if (ok || sl_random_maybe(&w->random, 5000)) x->disk = x->ahead;
    TRACE(w, "n%u %s", h->node + 1, ok ? "has written" : "could not write");
    sl_node_written(x->node, sl_machine_now(w, h->node), ok);
    sl_machine_settle(w, h->node);
}

static void asks(struct world *w, const struct happening *h)
{
    struct machine *x = &w->machines[h->node];
    const struct sl_node_request *ask = &h->parcel->ask;
    if (w->setup.trace) sl_trace_ask(w, h->other, h->node, h->number, ask);
    sl_books_asked(&w->books, h->number, h->node, x->life, w->now_us);
    sl_node_submit(x->node, sl_machine_now(w, h->node), h->number, ask);
    sl_machine_settle(w, h->node);
}

static void gone(struct world *w, const struct happening *h)
{
    if (!sl_books_withdraw(&w->books, h->number)) return;
    TRACE(w, "n%u withdraws request %llu of c%u", h->node + 1,
          (unsigned long long)h->number, h->other + 1);
    sl_node_withdraw(w->machines[h->node].node, sl_machine_now(w, h->node), h->number);
    sl_machine_settle(w, h->node);
}

/* Of a node: it must be there, in the life that is meant (but messages may outlive that), and
 * not be stopped. */
static bool is_ready(struct world *w, struct happening *h)
{
    const struct machine *x = &w->machines[h->node];
    if (x->node == NULL) return false;
    bool of_a_life = h->type == HAPPENS_TICK || h->type == HAPPENS_WRITTEN;
    if (of_a_life && h->number != x->life) return false;
    if ((h->type == HAPPENS_ASK || h->type == HAPPENS_GONE) && h->link != x->life)
        return false;
    if (w->now_us >= x->paused_us) return true;
    if (h->type == HAPPENS_TICK && h->at_us == x->tick_us)
        w->machines[h->node].tick_us = x->paused_us;
    h->at_us = x->paused_us;
    sl_queue_put(&w->queue, h);
    h->parcel = NULL;
    return false;
}

static void happens_to_node(struct world *w, struct happening *h)
{
    if (!is_ready(w, h)) return;
    switch (h->type) {
        case HAPPENS_MESSAGE: sl_net_arrives(w, h); break;
        case HAPPENS_TICK: ticks(w, h); break;
        case HAPPENS_WRITTEN: written(w, h); break;
        case HAPPENS_ASK: asks(w, h); break;
        case HAPPENS_GONE: gone(w, h); break;
        default: break;
    }
}

static void happens(struct world *w, struct happening *h)
{
    switch (h->type) {
        case HAPPENS_MESSAGE:
        case HAPPENS_TICK:
        case HAPPENS_WRITTEN:
        case HAPPENS_ASK:
        case HAPPENS_GONE: happens_to_node(w, h); break;
        case HAPPENS_ANSWER: sl_client_answered(w, h->other, h); break;
        case HAPPENS_NEWS: sl_client_hears(w, h->other, h); break;
        case HAPPENS_CLIENT:
            if (h->number == w->clients[h->other].wake) sl_client_acts(w, h->other);
            break;
        case HAPPENS_OPERATOR: sl_operator_acts(w, h->other); break;
        case HAPPENS_NEMESIS: sl_nemesis_acts(w); break;
        case HAPPENS_CRASH: sl_nemesis_crash(w, h->node); break;
        case HAPPENS_START:
            if (!sl_machine_runs(w, h->node)) sl_machine_start(w, h->node);
            break;
        case HAPPENS_LINKS:
            sl_net_look(w);
            sl_later(w, LOOK_US, (struct happening){.type = HAPPENS_LINKS});
            break;
    }
}

/* ---- a run ---- */

/* One clock may be days ahead: what it says is not believed. */
static void draw_walls(struct world *w)
{
    for (uint32_t m = 0; m < SL_SIM_NODES; m++)
        w->machines[m].wall_off_us = sl_random_between(&w->random, -3600, 3600) *
                                     1000000;
    /* But others have to be right: two or one, or with one that lost its folder, are too
     * few. */
    bool others = w->node_count > 2 && !sl_has_fault(w, FAULT_EMPTY);
    if (others && sl_random_maybe(&w->random, 1500))
        w->machines[sl_random_below(&w->random, SL_SIM_NODES)].wall_off_us +=
            3 * 86400000000;
}

static void begin(struct world *w)
{
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) {
        struct machine *x = &w->machines[m];
        x->clock = draw_clock(w);
        for (uint32_t o = 0; o < SL_SIM_NODES; o++) x->links[o].broken_us = -1;
        if (m < w->node_count)
            sl_later(w, sl_random_between(&w->random, 0, 100000),
                     (struct happening){.type = HAPPENS_START, .node = m});
    }
    if (sl_has_fault(w, FAULT_WALL)) draw_walls(w);
    for (uint32_t c = 0; c < w->client_count; c++) {
        w->clients[c].clock = draw_clock(w);
        sl_client_init(w, c, sl_has_fault(w, FAULT_ROLLING) ? ROLE_KEEPS : ROLE_USER);
    }
    sl_later(w, 1000, (struct happening){.type = HAPPENS_LINKS});
    sl_later(w, w->nemesis_us, (struct happening){.type = HAPPENS_NEMESIS});
    for (uint32_t o = 0; sl_has_fault(w, FAULT_NODES) && o < w->operator_count; o++)
        sl_later(w, w->operator_us,
                 (struct happening){.type = HAPPENS_OPERATOR, .other = o});
}

static void end_run(struct world *w)
{
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) {
        sl_node_free(w->machines[m].node);
        w->machines[m].node = NULL;
    }
    sl_queue_clear(&w->queue);
}

static void reset(struct world *w, const struct sim_setup *setup)
{
    struct queue queue = w->queue;
    struct books books = w->books;
    memset(w, 0, sizeof *w);
    w->queue = queue;
    w->books = books;
    w->setup = *setup;
    sl_books_clear(&w->books);
}

/* Whether it goes on. */
static bool is_on(struct world *w)
{
    if (w->over || w->books.wrong[0] != '\0') return false;
    if (w->setup.until > 0 && w->steps >= w->setup.until) return false;
    if (w->heal_at == 0) return w->steps < w->setup.events;
    if (w->heal == HEAL_NOT && w->steps >= w->heal_at) sl_heal_begin(w);
    return true;
}

void sl_world_run(struct world *w, const struct sim_setup *setup)
{
    struct happening h;
    reset(w, setup);
    draw(w);
    if (setup->trace) sl_trace_setup(w);
    begin(w);
    while (is_on(w) && sl_queue_take(&w->queue, &h)) {
        w->now_us = h.at_us;
        w->steps++;
        happens(w, &h);
        sl_parcel_free(&w->queue, h.parcel);
        if (w->heal != HEAL_NOT) sl_heal_goes_on(w);
    }
    w->counts.seeds = 1;
    w->counts.events = w->steps;
    w->counts.changes = w->books.list_count > 1 ? w->books.list_count - 1 : 0;
    w->counts.healed = w->heal == HEAL_DONE;
    if (w->books.wrong[0] != '\0') w->counts.wrong = 1;
    if (w->books.wrong[0] != '\0' && w->books.is_stuck) w->counts.stuck = 1;
    end_run(w);
}

void sl_world_free(struct world *w)
{
    sl_queue_free(&w->queue);
    sl_books_free(&w->books);
}
