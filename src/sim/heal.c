/* heal.c - the phase after the faults, when the cluster must make progress: every key
 * is granted again within a time limit; one of several requests for a free key is
 * granted (contest.c); a stealing client gets a key from a holder that does not
 * release; and every request is answered. */
#include <string.h>

#include "sim/world.h"

#define ROUNDS 3
#define LAST_MS 1000  /* Time for the last events to happen. */
#define OPEN_MS 25000 /* By then, a node has also given up a membership change. */

void sim_heal_enter(struct sim_world *w, enum sim_heal_phase phase)
{
    w->heal = phase;
    w->heal_us = w->now_us;
}

sl_ms sim_heal_passed_ms(const struct sim_world *w)
{
    return (w->now_us - w->heal_us) / 1000;
}

/* The limit is twice the time in which all leases expire. It includes time to reconnect
 * links, to retry a failed write after a second, and to complete a stalled membership
 * change. */
sl_ms sim_heal_bound_ms(const struct sim_world *w)
{
    return 2 * (w->lease_max_ms + w->lease_max_ms + w->lease_max_ms / 100) + 10000 +
           4 * w->limits.answer_max_ms;
}

/* Return the time limit for a steal: the holder's lease expires first, and some rounds
 * of messages may be lost. */
static sl_ms steal_bound_ms(const struct sim_world *w)
{
    sl_ms rounds = w->heal_loses ? 8 : 3;
    return w->steal_ms + w->steal_ms / 100 + rounds * w->limits.answer_max_ms + 300;
}

/* ---- the faults end ---- */

static void heal_machine(struct sim_world *w, uint32_t m, uint32_t members)
{
    struct sim_machine *x = &w->machines[m];
    x->failing_us = x->slow_us = 0;
    for (uint32_t o = 0; o < SIM_NODES; o++) x->links[o].cut_until_us = 0;
    if (x->node == NULL && (members & 1u << sim_node_id(m)) != 0)
        sim_schedule(w, 1000, (struct sim_event){.type = SIM_EVENT_START, .node = m});
    if (x->paused_us > w->heal_us) w->heal_us = x->paused_us;
}

/* Return whether a majority of the members never lost their data directory. Otherwise
 * the cluster cannot make progress. */
static bool can_heal(const struct sim_world *w, uint32_t members)
{
    int good = 0;
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        bool on = (members & 1u << sim_node_id(m)) != 0;
        if (on && !w->machines[m].is_emptied) good++;
    }
    return good > __builtin_popcount(members) / 2;
}

void sim_heal_begin(struct sim_world *w)
{
    uint32_t members = sim_checker_newest_members(&w->checker);
    if (!can_heal(w, members)) {
        w->over = true;
        return;
    }
    SIM_TRACE(w, "nothing breaks any more");
    sim_nemesis_end_old_copies(w, SIM_NEVER);
    sim_heal_enter(w, SIM_HEAL_WAIT);
    for (uint32_t m = 0; m < SIM_NODES; m++) heal_machine(w, m, members);
    for (uint32_t c = 0; c < w->client_count; c++) {
        struct sim_client *x = &w->clients[c];
        x->quiet = true; /* If a client is still granted a lock, it releases it. */
        if (x->paused_us > w->heal_us) w->heal_us = x->paused_us;
    }
}

void sim_heal_begin_client(struct sim_world *w, uint32_t c, enum sim_role role)
{
    struct sim_client *x = &w->clients[c];
    uint64_t wake = x->wake;
    memset(x, 0, sizeof *x);
    x->wake = wake;
    x->clock = (struct sim_clock){.began_us = 1000000000, .ppm = c % 2 ? 900 : -900};
    sim_checker_doubt(&w->checker, c);
    sim_client_init(w, c, role);
}

/* Begin the phase in which one client holds a key and another one steals it. */
void sim_heal_begin_holding(struct sim_world *w)
{
    sim_heal_begin_client(w, SIM_HOLDER, SIM_ROLE_HOLDER);
    sim_heal_enter(w, SIM_HEAL_HOLD);
    w->steal_ms = sl_random_between(&w->random, w->lease_min_ms, w->lease_max_ms);
}

/* ---- every key must be granted ---- */

static void begin_keys(struct sim_world *w)
{
    sim_heal_enter(w, SIM_HEAL_KEYS);
    for (uint32_t k = 0; k < w->key_count; k++)
        sim_heal_begin_client(w, SIM_HOLDER + k, SIM_ROLE_TRIES);
}

bool sim_heal_is_quiet(const struct sim_world *w, uint32_t first, uint32_t count)
{
    for (uint32_t c = first; c < first + count; c++) {
        if (w->clients[c].hold.is || sim_client_is_busy(&w->clients[c])) return false;
    }
    return true;
}

static void try_key(struct sim_world *w, uint32_t c)
{
    uint32_t key = c - SIM_HOLDER;
    if (w->clients[c].hold.is) sim_client_release(w, c);
    if ((w->had & 1u << key) != 0) return;
    sl_ms left = sim_heal_bound_ms(w) - sim_heal_passed_ms(w);
    struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                  .lease_ms = w->lease_min_ms,
                                  .wait_ms = left > 0 ? left : 0,
                                  .force_ms = SL_NEVER};
    sim_client_ask(w, c, &ask, key, ask.wait_ms + 1000);
}

/* Return whether a member uses the newest membership, and has links to the others that run. */
static bool has_joined(const struct sim_world *w, uint32_t m)
{
    const struct sim_membership_record *newest = sim_checker_newest(&w->checker);
    const struct sim_machine *x = &w->machines[m];
    if (sl_node_membership(x->node)->version != newest->version) return false;
    for (uint32_t o = 0; o < SIM_NODES; o++) {
        const struct sim_machine *y = &w->machines[o];
        bool other = o != m && (newest->members & 1u << sim_node_id(o)) != 0;
        if (other && y->node != NULL && !y->is_emptied && !x->links[o].up) return false;
    }
    return true;
}

bool sim_heal_is_settled(const struct sim_world *w, bool may_be_down)
{
    uint32_t members = sim_checker_newest_members(&w->checker);
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        const struct sim_machine *x = &w->machines[m];
        struct sl_node_stats stats;
        if ((members & 1u << sim_node_id(m)) == 0 || x->is_emptied) continue;
        if (x->node == NULL && may_be_down) continue;
        if (x->node == NULL) return false;
        sl_node_stats(x->node, sim_machine_now(w, m), &stats);
        if (stats.silent_ms > 0 || !has_joined(w, m)) return false;
    }
    return true;
}

static void check_keys(struct sim_world *w)
{
    if (w->had == (1u << w->key_count) - 1 &&
        sim_heal_is_quiet(w, SIM_HOLDER, w->key_count)) {
        sim_contest_begin(w);
        return;
    }
    if (sim_heal_passed_ms(w) <= sim_heal_bound_ms(w) + 500) return;
    /* The membership may have changed since the faults ended. */
    if (!can_heal(w, sim_checker_newest_members(&w->checker))) {
        w->over = true;
        return;
    }
    for (uint32_t k = 0; k < w->key_count; k++) {
        if ((w->had & 1u << k) == 0)
            sim_checker_stuck(
                &w->checker,
                "k%u could not be had within %lld ms, though nothing breaks "
                "any more (last answer: %s)",
                k, (long long)sim_heal_bound_ms(w), sluice_status_word(w->last_status));
    }
    sim_checker_stuck(&w->checker, "a release was not answered");
}

/* ---- a stealing client must get its key ---- */

static void act_as_holder(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    struct sim_hold *h = &x->hold;
    int64_t now = sim_client_clock(w, c);
    h->release_us = SIM_NEVER;
    if (!h->is && w->heal == SIM_HEAL_HOLD) {
        struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                      .lease_ms = w->steal_ms,
                                      .wait_ms = 2 * w->lease_max_ms + 1000,
                                      .force_ms = SL_NEVER};
        sim_client_ask(w, c, &ask, 0, ask.wait_ms + 2000);
    } else if (h->is && now >= h->extend_us) {
        h->extend_us = now + w->steal_ms * 1000 / 3;
        sim_client_extend(w, c, w->steal_ms);
    } else if (h->is && h->extend_us > now + w->steal_ms * 1000 / 3) {
        h->extend_us = now + w->steal_ms * 1000 / 3; /* Earlier than planned. */
    }
}

static void begin_stealing(struct sim_world *w)
{
    sim_heal_begin_client(w, SIM_STEALER, SIM_ROLE_STEALER);
    sim_heal_enter(w, SIM_HEAL_STEAL);
    w->heal_loses = sl_random_maybe(&w->random, 5000);
}

static void steal(struct sim_world *w, uint32_t c)
{
    struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                  .lease_ms = w->lease_min_ms,
                                  .wait_ms = 4 * steal_bound_ms(w),
                                  .priority = 5,
                                  .steal = true,
                                  .force_ms = SL_NEVER};
    if (w->clients[c].hold.is) {
        sim_client_release(w, c);
        return;
    }
    if (w->heal != SIM_HEAL_STEAL || (w->had & 1) != 0) return;
    w->heal_us = w->now_us; /* The time limit counts from here. */
    sim_client_ask(w, c, &ask, 0, ask.wait_ms + 1000);
}

static void check_hold(struct sim_world *w)
{
    /* Let the holder keep the key for a while first. */
    const struct sim_hold *h = &w->clients[SIM_HOLDER].hold;
    if (h->is && h->fence != 0 && sim_heal_passed_ms(w) > 2 * w->steal_ms &&
        sim_heal_is_settled(w, false)) {
        w->memberships = w->checker.membership_count;
        w->had = 0;
        begin_stealing(w);
    } else if (sim_heal_passed_ms(w) >
               2 * w->lease_max_ms + 4000 + sim_heal_bound_ms(w))
        sim_checker_stuck(&w->checker,
                          "k0 could not be held, though nothing breaks any more");
}

static void check_steal(struct sim_world *w)
{
    if (w->had == 0) {
        /* A node that was just added is silent at first. That time does not count. */
        if (w->checker.membership_count != w->memberships) {
            w->memberships = w->checker.membership_count;
            w->heal_us = w->now_us + 1000 * w->lease_max_ms;
        }
        if (sim_heal_passed_ms(w) > steal_bound_ms(w) + 300)
            sim_checker_stuck(
                &w->checker,
                "a stealing client did not get k0 within %lld ms from a holder that "
                "ignores it and has a lease of %lld ms",
                (long long)steal_bound_ms(w), (long long)w->steal_ms);
        return;
    }
    if (w->clients[SIM_STEALER].hold.is || sim_client_is_busy(&w->clients[SIM_STEALER]))
        return;
    w->heal_loses = false;
    if (++w->rounds < ROUNDS) sim_heal_begin_holding(w);
    else sim_heal_enter(w, SIM_HEAL_DONE);
}

/* ---- every request must be answered ---- */

uint64_t sim_heal_open_request(const struct sim_world *w)
{
    uint64_t lives[SIM_NODES];
    for (uint32_t m = 0; m < SIM_NODES; m++) lives[m] = w->machines[m].life;
    return sim_checker_open(&w->checker, lives);
}

static void check_rest(struct sim_world *w)
{
    if (sim_heal_passed_ms(w) < LAST_MS) return;
    uint64_t open = sim_heal_open_request(w);
    if (open != 0 && sim_heal_passed_ms(w) < OPEN_MS) return;
    if (open != 0) {
        const struct sim_request_record *r = &w->checker.requests[open - 1];
        sim_checker_stuck(&w->checker,
                          "n%u never answered %s, request %llu, of %lld ms ago",
                          r->node + 1, sim_verb_name(r->type), (unsigned long long)open,
                          (long long)(w->now_us - r->arrived_us) / 1000);
    }
    w->over = true;
}

void sim_heal_step(struct sim_world *w)
{
    switch (w->heal) {
        case SIM_HEAL_NOT: break;
        case SIM_HEAL_WAIT:
            if (w->now_us >= w->heal_us + 20000) begin_keys(w);
            break;
        case SIM_HEAL_KEYS: check_keys(w); break;
        case SIM_HEAL_CONTEST: sim_contest_step(w); break;
        case SIM_HEAL_HOLD: check_hold(w); break;
        case SIM_HEAL_STEAL: check_steal(w); break;
        case SIM_HEAL_DONE: check_rest(w); break;
    }
}

/* ---- the clients ---- */

void sim_heal_client_act(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    int64_t now = sim_client_clock(w, c);
    for (int i = 0; i < SIM_REQUESTS; i++) {
        if (x->requests[i].number != 0 && now >= x->requests[i].until_us) {
            sim_client_hang_up(w, c);
            break;
        }
    }
    if (x->life == 0 && !sim_client_connect(w, c)) {
        sim_client_wake(w, c, now + 20000);
        return;
    }
    if (!sim_client_is_busy(x) && (x->hold.is || now >= x->next_us)) {
        switch (x->role) {
            case SIM_ROLE_TRIES: try_key(w, c); break;
            case SIM_ROLE_HOLDER: act_as_holder(w, c); break;
            case SIM_ROLE_STEALER: steal(w, c); break;
            case SIM_ROLE_RIVAL: sim_contest_client_act(w, c); break;
            case SIM_ROLE_USER:
            case SIM_ROLE_KEEPS: break;
        }
    }
    /* Check again soon. */
    if (w->heal != SIM_HEAL_DONE) sim_client_wake(w, c, now + 5000);
}

void sim_heal_answered(struct sim_world *w, uint32_t c, const struct sim_request *r,
                       const struct sim_packet *p)
{
    struct sim_client *x = &w->clients[c];
    if (r->type != SL_NODE_ACQUIRE) return;
    w->last_status = p->answer.status;
    if (x->role == SIM_ROLE_RIVAL) {
        sim_contest_answered(w, p->answer.status);
        return;
    }
    if (p->answer.status == SLUICE_OK) {
        if (x->role == SIM_ROLE_TRIES) w->had |= 1u << r->key;
        if (x->role == SIM_ROLE_STEALER) w->had = 1;
        return;
    }
    /* Try again soon: another node may grant the request. */
    x->next_us = sim_client_clock(w, c) + 30000;
    if (x->life != 0) sim_client_hang_up(w, c);
}
