/* contest.c - several clients request a free key at the same time, often while one node
 * is down. One request must be granted within a bounded number of attempts, and the
 * other clients must receive a reply that the key is taken. */
#include "sim/world.h"

#define CONTESTS 3
#define RIVALS_MAX SIM_KEYS
#define ATTEMPTS_MAX 12 /* Average per request. */

/* Plan the next contest. It begins when all earlier leases have expired. */
static void plan(struct sim_world *w)
{
    struct sim_contest *t = &w->contest;
    uint32_t count = t->count, barren = t->barren;
    *t = (struct sim_contest){
        .count = count,
        .barren = barren,
        .start_us = w->now_us + sl_random_between(&w->random, 1000, 100000) +
                    1000 * (w->lease_max_ms + w->lease_max_ms / 100),
        .lease_ms = w->lease_max_ms,
        .memberships = w->checker.membership_count};
    if (sl_random_maybe(&w->random, 3000))
        t->wait_ms = sl_random_between(&w->random, 1, 60);
}

/* Return whether a change of the membership may still come into force. */
static bool is_changing(const struct sim_world *w)
{
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        const struct sl_node_durable *d = &w->machines[m].disk;
        if (d->promised.number > 0 || d->vote.version > d->force.version ||
            d->stored.version > d->force.version)
            return true;
    }
    return false;
}

/* Kill one node, if the remaining nodes that never lost their data directory are a
 * majority, now and after a change of the membership. */
static void kill_spare_node(struct sim_world *w)
{
    if (is_changing(w)) return;
    uint32_t members = sim_checker_newest_members(&w->checker), good = 0;
    uint32_t all = (uint32_t)__builtin_popcount(members), victim = SIM_NODES;
    uint32_t start = sl_random_below(&w->random, SIM_NODES);
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        uint32_t m = (start + i) % SIM_NODES;
        if ((members & 1u << sim_node_id(m)) == 0 || w->machines[m].is_emptied ||
            !sim_machine_runs(w, m))
            continue;
        good++;
        victim = m;
    }
    if (good < all / 2 + 2) return;
    SIM_TRACE(w, "n%u stays down for a while", victim + 1);
    sim_machine_kill(w, victim, false);
}

void sim_contest_begin(struct sim_world *w)
{
    for (uint32_t i = 0; i < RIVALS_MAX; i++)
        sim_heal_begin_client(w, SIM_HOLDER + i, SIM_ROLE_RIVAL);
    sim_heal_enter(w, SIM_HEAL_CONTEST);
    plan(w);
    if (sl_random_maybe(&w->random, 7000)) kill_spare_node(w);
}

static void end(struct sim_world *w)
{
    uint32_t members = sim_checker_newest_members(&w->checker);
    for (uint32_t m = 0; m < SIM_NODES; m++)
        if (w->machines[m].node == NULL && (members & 1u << sim_node_id(m)) != 0)
            sim_schedule(w, 1000,
                         (struct sim_event){.type = SIM_EVENT_START, .node = m});
    sim_heal_begin_holding(w);
}

static uint64_t attempts_of(const struct sim_world *w)
{
    uint64_t sum = 0;
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        struct sl_node_stats stats;
        if (w->machines[m].node == NULL) continue;
        sl_node_stats(w->machines[m].node, sim_machine_now(w, m), &stats);
        sum += stats.attempts;
    }
    return sum;
}

/* Connect the client to a node that the other nodes are connected to. */
static bool meet_member(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    uint32_t members = sim_checker_newest_members(&w->checker);
    for (int i = 0; i < 20; i++) {
        bool up = x->life != 0 && w->machines[x->node].life == x->life;
        if (up && !w->machines[x->node].is_emptied &&
            (members & 1u << sim_node_id(x->node)) != 0)
            return true;
        if (x->life != 0) sim_client_hang_up(w, c);
        if (!sim_client_connect(w, c)) return false;
    }
    return false;
}

static void start(struct sim_world *w)
{
    struct sim_contest *t = &w->contest;
    uint32_t wanted = 2 + sl_random_below(&w->random, RIVALS_MAX - 1);
    t->runs = true;
    t->start_us = w->now_us;
    t->memberships = w->checker.membership_count;
    t->attempts = attempts_of(w);
    SIM_TRACE(w, "contest: %u ask at once", wanted);
    for (uint32_t c = SIM_HOLDER; c < SIM_HOLDER + wanted; c++) {
        struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                      .lease_ms = t->lease_ms,
                                      .wait_ms = t->wait_ms,
                                      .force_ms = SL_NEVER};
        if (!meet_member(w, c)) continue;
        sim_client_ask(w, c, &ask, 0, 60000);
        t->rivals++;
    }
}

void sim_contest_answered(struct sim_world *w, int status)
{
    struct sim_contest *t = &w->contest;
    if (status == SLUICE_OK) t->ok++;
    else if (status == SLUICE_EFULL || status == SLUICE_EWAITERS) t->taken++;
    else {
        t->failed++;
        t->last_failure = status;
    }
}

/* Check the result of a contest. If the membership changed meanwhile or a lease
 * expired, any number of requests may be granted. */
static void judge(struct sim_world *w)
{
    struct sim_contest *t = &w->contest;
    uint64_t attempts = attempts_of(w) - t->attempts;
    sl_ms took = (w->now_us - t->start_us) / 1000;
    /* With a lower limit for deferred messages, a node drops its own messages while it
     * writes. */
    bool fair = w->checker.membership_count == t->memberships &&
                w->limits.waiting_messages_max > 4;
    uint32_t members = sim_checker_newest_members(&w->checker);
    for (uint32_t m = 0; m < SIM_NODES; m++)
        if ((members & 1u << sim_node_id(m)) != 0 && w->machines[m].is_emptied)
            fair = false;
    SIM_TRACE(w, "contest: %u of %u granted, %llu attempts, %lld ms", t->ok, t->rivals,
              (unsigned long long)attempts, (long long)took);
    /* A request with a short WAIT may time out before a majority has answered. */
    if (t->failed > 0 && (t->wait_ms > 0 || t->last_failure == SLUICE_EFENCES))
        fair = false;
    /* If the messages of one connection overtake each other, requests of one node can hinder each other at
     * every attempt. That is unlikely to happen in each contest. */
    t->barren = t->ok == 0 ? t->barren + 1 : 0;
    if ((w->faults & 1ull << SIM_FAULT_OVERTAKE) != 0 && t->ok == 0 &&
        t->barren < CONTESTS)
        return;
    if (fair && (t->ok == 0 || t->failed > 0 || (t->ok > 1 && took < t->lease_ms)))
        sim_checker_stuck(
            &w->checker,
            "%u of %u requests for a free key were granted, %u were answered that "
            "it is taken, %u failed (%s)",
            t->ok, t->rivals, t->taken, t->failed, sluice_status_word(t->last_failure));
    if (fair && attempts > ATTEMPTS_MAX * t->rivals)
        sim_checker_stuck(&w->checker, "%u requests for a free key took %llu attempts",
                          t->rivals, (unsigned long long)attempts);
}

void sim_contest_step(struct sim_world *w)
{
    struct sim_contest *t = &w->contest;
    if (sim_heal_passed_ms(w) > 4 * sim_heal_bound_ms(w) + 60000)
        sim_checker_stuck(&w->checker, "requests for a free key were not answered");
    if (!t->runs) {
        if (!sim_heal_is_quiet(w, 0, SIM_CLIENTS) || sim_heal_open_request(w) != 0)
            plan(w);
        /* Wait until earlier messages have arrived and the links to the killed node are
         * closed. */
        if (w->now_us < t->start_us ||
            1000 * sim_heal_passed_ms(w) < 1000000 + w->tail_us)
            return;
        if (t->count >= CONTESTS) end(w);
        else if (sim_heal_is_settled(w, true)) start(w);
        return;
    }
    if (t->ok + t->taken + t->failed < t->rivals) return;
    judge(w);
    t->count++;
    plan(w);
}

/* Release the key after a contest, so that it is free before the next one. */
void sim_contest_client_act(struct sim_world *w, uint32_t c)
{
    if (w->clients[c].hold.is && !w->contest.runs) sim_client_release(w, c);
}
