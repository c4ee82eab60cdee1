/* draw.c - what a seed draws: nodes, keys, clients, limits, delays and clocks. */
#include "sim/world.h"

static sl_ms pick(struct sl_random *r, const sl_ms *from, uint32_t n)
{
    return from[sl_random_below(r, n)];
}

static void draw_limits(struct sim_world *w)
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
    w->limits.requests_max = 10000;
    w->limits.request_keep_ms = 3600000;
    w->limits.linger_ms = w->lease_max_ms / 2;
    w->limits.waiting_messages_max = sl_random_maybe(r, 1000) ? 4 : 64;
    /* Some leases are longer, and some are not; or all must be durable. */
    w->volatile_ms = sl_random_maybe(r, 1000)
                         ? 0
                         : sl_random_between(r, w->lease_min_ms, w->lease_max_ms);
}

static void draw_counts(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    uint32_t dice = sl_random_below(r, 100);
    w->node_count = dice < 60 ? 3 : dice < 90 ? 5 : dice < 95 ? 4 : dice < 98 ? 2 : 1;
    w->key_count = 1 + sl_random_below(r, sl_random_maybe(r, 5000) ? 1 : SIM_KEYS);
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

static void draw_speeds(struct sim_world *w)
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

void sim_draw(struct sim_world *w)
{
    sl_random_seed(&w->random, w->setup.seed);
    sl_random_seed(&w->copies, ~w->setup.seed);
    w->replaces = sl_random_maybe(&w->copies, 2000);
    sl_random_seed(&w->ids, w->setup.seed ^ 0x5eed);
    w->repeats = sl_random_maybe(&w->ids, 6000);
    w->breaks = sl_random_maybe(&w->ids, 3000);
    w->drains = sl_random_maybe(&w->ids, 3000);
    w->faults = sim_faults_draw(&sim_faults_majority, &w->random);
    if (w->setup.faults_given) w->faults = w->setup.faults;
    if ((w->faults & 1ull << SIM_FAULT_STEAL) == 0)
        w->faults &= ~(1ull << SIM_FAULT_FORCE);
    draw_limits(w);
    draw_counts(w);
    draw_speeds(w);
    if (sim_has_fault(w, SIM_FAULT_ROLLING)) sim_rolling_draw(w);
    /* When the faults have ended, all keys must be granted. */
    if (w->heal_at != 0) w->drains = false;
}

struct sim_clock sim_draw_clock(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    struct sim_clock c = {.since_us = w->now_us,
                          .began_us = sl_random_between(r, 1000000, 100000000000),
                          .ppm = sl_random_between(r, -50, 50)};
    int64_t most = sl_random_maybe(r, 5000) ? SIM_DRIFT_PPM : -SIM_DRIFT_PPM;
    if (sim_has_fault(w, SIM_FAULT_DRIFT)) c.ppm = most;
    return c;
}
