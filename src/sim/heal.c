/* heal.c - from some point on nothing breaks any more. Then every key can be had again within
 * a bound, one of several requests for a free key is granted, a thief gets its key however stubborn the holder, and no request is forgotten. */
#include <string.h>

#include "sim/world.h"

#define VICTIM (SL_SIM_CLIENTS - SL_SIM_KEYS)
#define THIEF (VICTIM + 1)
#define ROUNDS 3
#define CONTESTS 3
#define RIVALS_MAX SL_SIM_KEYS
#define ATTEMPTS_MAX 12 /* Of one request, until all are answered. */
#define LAST_MS 1000    /* Events that are on their way still come. */
#define OPEN_MS 25000   /* A change of the list is given up by then, too. */

static void enter(struct world *w, enum heal_phase phase)
{
    w->heal = phase;
    w->heal_us = w->now_us;
}

static sl_ms passed_ms(const struct world *w)
{
    return (w->now_us - w->heal_us) / 1000;
}

/* All that may have been promised has ended, twice; and what else takes its time: links are
 * made again, a disk that failed is tried again in a second, a change of the list that was
 * begun is finished by others. */
static sl_ms bound_ms(const struct world *w)
{
    return 2 * (w->lease_max_ms + w->lease_max_ms + w->lease_max_ms / 100) + 10000 +
           4 * w->limits.answer_max_ms;
}

/* A stubborn holder's lease runs out, and some rounds may be lost. */
static sl_ms steal_bound_ms(const struct world *w)
{
    sl_ms rounds = w->heal_loses ? 8 : 3;
    return w->steal_ms + w->steal_ms / 100 + rounds * w->limits.answer_max_ms + 300;
}

/* ---- it begins ---- */

static void heal_machine(struct world *w, uint32_t m, uint32_t members)
{
    struct machine *x = &w->machines[m];
    x->failing_us = x->slow_us = 0;
    for (uint32_t o = 0; o < SL_SIM_NODES; o++) x->links[o].cut_until_us = 0;
    if (x->node == NULL && (members & 1u << sl_id_of(m)) != 0)
        sl_later(w, 1000, (struct happening){.type = HAPPENS_START, .node = m});
    if (x->paused_us > w->heal_us) w->heal_us = x->paused_us;
}

/* Whether there is a majority that never lost its folder; else no rule can help. */
static bool can_heal(const struct world *w, uint32_t members)
{
    int good = 0;
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) {
        bool on = (members & 1u << sl_id_of(m)) != 0;
        if (on && !w->machines[m].is_emptied) good++;
    }
    return good > __builtin_popcount(members) / 2;
}

void sl_heal_begin(struct world *w)
{
    uint32_t members = sl_books_newest(&w->books);
    if (!can_heal(w, members)) {
        w->over = true;
        return;
    }
    TRACE(w, "nothing breaks any more");
    enter(w, HEAL_WAIT);
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) heal_machine(w, m, members);
    for (uint32_t c = 0; c < w->client_count; c++) {
        struct client *x = &w->clients[c];
        x->quiet = true; /* What they still get they give back. */
        if (x->paused_us > w->heal_us) w->heal_us = x->paused_us;
    }
}

static void begin_client(struct world *w, uint32_t c, enum role role)
{
    struct client *x = &w->clients[c];
    uint64_t wake = x->wake;
    memset(x, 0, sizeof *x);
    x->wake = wake;
    x->clock = (struct clock){.began_us = 1000000000, .ppm = c % 2 ? 900 : -900};
    sl_books_doubt(&w->books, c);
    sl_client_init(w, c, role);
}

/* The last phase but one: a holder, and then a thief. */
static void begin_holding(struct world *w)
{
    begin_client(w, VICTIM, ROLE_VICTIM);
    enter(w, HEAL_HOLD);
    w->steal_ms = sl_random_between(&w->random, w->lease_min_ms, w->lease_max_ms);
}

/* ---- every key can be had ---- */

static void begin_keys(struct world *w)
{
    enter(w, HEAL_KEYS);
    for (uint32_t k = 0; k < w->key_count; k++) begin_client(w, VICTIM + k, ROLE_TRIES);
}

static bool is_quiet(const struct world *w, uint32_t first, uint32_t count)
{
    for (uint32_t c = first; c < first + count; c++) {
        if (w->clients[c].hold.is || sl_client_is_busy(&w->clients[c])) return false;
    }
    return true;
}

static void try_key(struct world *w, uint32_t c)
{
    uint32_t key = c - VICTIM;
    if (w->clients[c].hold.is) sl_client_release(w, c);
    if ((w->had & 1u << key) != 0) return;
    sl_ms left = bound_ms(w) - passed_ms(w);
    struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                  .lease_ms = w->lease_min_ms,
                                  .wait_ms = left > 0 ? left : 0,
                                  .force_ms = SL_NEVER};
    sl_client_ask(w, c, &ask, key, ask.wait_ms + 1000);
}

/* ---- one of several requests for a free key is granted ---- */

/* Nobody on the newest list is silent; and all run, or all but some that were killed. */
static bool is_settled(const struct world *w, bool may_be_down)
{
    uint32_t members = sl_books_newest(&w->books);
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) {
        const struct machine *x = &w->machines[m];
        struct sl_node_stats stats;
        if ((members & 1u << sl_id_of(m)) == 0 || x->is_emptied) continue;
        if (x->node == NULL && may_be_down) continue;
        if (x->node == NULL) return false;
        sl_node_stats(x->node, sl_machine_now(w, m), &stats);
        if (stats.silent_ms > 0) return false;
    }
    return true;
}

/* When all that was promised before has ended. */
static void plan_contest(struct world *w)
{
    struct contest *t = &w->contest;
    uint32_t count = t->count;
    *t = (struct contest){.count = count,
                          .start_us = w->now_us +
                                      sl_random_between(&w->random, 1000, 100000) +
                                      1000 * (w->lease_max_ms + w->lease_max_ms / 100),
                          .lease_ms = w->lease_max_ms,
                          .lists = w->books.list_count};
    if (sl_random_maybe(&w->random, 3000))
        t->wait_ms = sl_random_between(&w->random, 1, 60);
}

/* As many as a majority, which never lost its folder, can do without: one at most. */
static void kill_one(struct world *w)
{
    uint32_t members = sl_books_newest(&w->books), good = 0;
    uint32_t all = (uint32_t)__builtin_popcount(members), victim = SL_SIM_NODES;
    uint32_t start = sl_random_below(&w->random, SL_SIM_NODES);
    for (uint32_t i = 0; i < SL_SIM_NODES; i++) {
        uint32_t m = (start + i) % SL_SIM_NODES;
        if ((members & 1u << sl_id_of(m)) == 0 || w->machines[m].is_emptied ||
            !sl_machine_runs(w, m))
            continue;
        good++;
        victim = m;
    }
    if (good < all / 2 + 2) return;
    TRACE(w, "n%u stays down for a while", victim + 1);
    sl_machine_kill(w, victim);
}

static void begin_contests(struct world *w)
{
    for (uint32_t i = 0; i < RIVALS_MAX; i++) begin_client(w, VICTIM + i, ROLE_RIVAL);
    enter(w, HEAL_CONTEST);
    plan_contest(w);
    if (sl_random_maybe(&w->random, 7000)) kill_one(w);
}

static void end_contests(struct world *w)
{
    uint32_t members = sl_books_newest(&w->books);
    for (uint32_t m = 0; m < SL_SIM_NODES; m++)
        if (w->machines[m].node == NULL && (members & 1u << sl_id_of(m)) != 0)
            sl_later(w, 1000, (struct happening){.type = HAPPENS_START, .node = m});
    begin_holding(w);
}

static uint64_t attempts_of(const struct world *w)
{
    uint64_t sum = 0;
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) {
        struct sl_node_stats stats;
        if (w->machines[m].node == NULL) continue;
        sl_node_stats(w->machines[m].node, sl_machine_now(w, m), &stats);
        sum += stats.attempts;
    }
    return sum;
}

/* Connected with a node that the others talk to. */
static bool meet_member(struct world *w, uint32_t c)
{
    struct client *x = &w->clients[c];
    uint32_t members = sl_books_newest(&w->books);
    for (int i = 0; i < 20; i++) {
        bool up = x->life != 0 && w->machines[x->node].life == x->life;
        if (up && !w->machines[x->node].is_emptied &&
            (members & 1u << sl_id_of(x->node)) != 0)
            return true;
        if (x->life != 0) sl_client_hang_up(w, c);
        if (!sl_client_connect(w, c)) return false;
    }
    return false;
}

static void start_contest(struct world *w)
{
    struct contest *t = &w->contest;
    uint32_t wanted = 2 + sl_random_below(&w->random, RIVALS_MAX - 1);
    t->runs = true;
    t->start_us = w->now_us;
    t->lists = w->books.list_count;
    t->attempts = attempts_of(w);
    TRACE(w, "contest: %u ask at once", wanted);
    for (uint32_t c = VICTIM; c < VICTIM + wanted; c++) {
        struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                      .lease_ms = t->lease_ms,
                                      .wait_ms = t->wait_ms,
                                      .force_ms = SL_NEVER};
        if (!meet_member(w, c)) continue;
        sl_client_ask(w, c, &ask, 0, 60000);
        t->rivals++;
    }
}

static void count_rival(struct world *w, int status)
{
    struct contest *t = &w->contest;
    if (status == SLUICE_OK) t->ok++;
    else if (status == SLUICE_EFULL || status == SLUICE_EWAITERS) t->taken++;
    else {
        t->failed++;
        t->last_failure = status;
    }
}

/* A list that changes meanwhile, a lease that ended, or a node that begins anew may let others
 * in, or nobody. */
static void judge_contest(struct world *w)
{
    struct contest *t = &w->contest;
    uint64_t attempts = attempts_of(w) - t->attempts;
    sl_ms took = (w->now_us - t->start_us) / 1000;
    /* With so few, messages to itself are lost while a node writes. */
    bool fair = w->books.list_count == t->lists && w->limits.waiting_messages_max > 4;
    uint32_t members = sl_books_newest(&w->books);
    for (uint32_t m = 0; m < SL_SIM_NODES; m++)
        if ((members & 1u << sl_id_of(m)) != 0 && w->machines[m].is_emptied)
            fair = false;
    TRACE(w, "contest: %u of %u granted, %llu attempts, %lld ms", t->ok, t->rivals,
          (unsigned long long)attempts, (long long)took);
    /* Who waits for a short time may not have heard from a majority by then. */
    if (t->failed > 0 && (t->wait_ms > 0 || t->last_failure == SLUICE_EFENCES))
        fair = false;
    if (fair && (t->ok == 0 || t->failed > 0 || (t->ok > 1 && took < t->lease_ms)))
        sl_books_stuck(
            &w->books,
            "%u of %u requests for a free key were granted, %u were told that "
            "it is taken, %u failed (%s)",
            t->ok, t->rivals, t->taken, t->failed, sluice_status_word(t->last_failure));
    if (fair && attempts > ATTEMPTS_MAX * t->rivals)
        sl_books_stuck(&w->books, "%u requests for a free key took %llu attempts",
                       t->rivals, (unsigned long long)attempts);
}

static bool is_anything_open(const struct world *w)
{
    uint64_t lives[SL_SIM_NODES];
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) lives[m] = w->machines[m].life;
    return sl_books_open(&w->books, lives) != 0;
}

static void check_contest(struct world *w)
{
    struct contest *t = &w->contest;
    if (passed_ms(w) > 4 * bound_ms(w) + 60000)
        sl_books_stuck(&w->books, "requests for a free key were not answered");
    if (!t->runs) {
        if (!is_quiet(w, 0, SL_SIM_CLIENTS) || is_anything_open(w)) plan_contest(w);
        /* Messages of before have come, and links with who is down are given up. */
        if (w->now_us < t->start_us || 1000 * passed_ms(w) < 1000000 + w->tail_us)
            return;
        if (t->count >= CONTESTS) end_contests(w);
        else if (is_settled(w, true)) start_contest(w);
        return;
    }
    if (t->ok + t->taken + t->failed < t->rivals) return;
    judge_contest(w);
    t->count++;
    plan_contest(w);
}

/* The key is free again before the next contest. */
static void rest_as_rival(struct world *w, uint32_t c)
{
    if (w->clients[c].hold.is && !w->contest.runs) sl_client_release(w, c);
}

static void check_keys(struct world *w)
{
    if (w->had == (1u << w->key_count) - 1 && is_quiet(w, VICTIM, w->key_count)) {
        begin_contests(w);
        return;
    }
    if (passed_ms(w) <= bound_ms(w) + 500) return;
    if (!can_heal(w, sl_books_newest(&w->books))) { /* By a list that came since. */
        w->over = true;
        return;
    }
    for (uint32_t k = 0; k < w->key_count; k++) {
        if ((w->had & 1u << k) == 0)
            sl_books_stuck(&w->books,
                           "k%u could not be had within %lld ms, though nothing breaks "
                           "any more (last answer: %s)",
                           k, (long long)bound_ms(w),
                           sluice_status_word(w->last_status));
    }
    sl_books_stuck(&w->books, "a release was not answered");
}

/* ---- a thief gets its key ---- */

static void act_as_victim(struct world *w, uint32_t c)
{
    struct client *x = &w->clients[c];
    struct hold *h = &x->hold;
    int64_t now = sl_client_clock(w, c);
    h->release_us = SL_SIM_NEVER;
    if (!h->is && w->heal == HEAL_HOLD) {
        struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                      .lease_ms = w->steal_ms,
                                      .wait_ms = 2 * w->lease_max_ms + 1000,
                                      .force_ms = SL_NEVER};
        sl_client_ask(w, c, &ask, 0, ask.wait_ms + 2000);
    } else if (h->is && now >= h->extend_us) {
        h->extend_us = now + w->steal_ms * 1000 / 3;
        sl_client_extend(w, c, w->steal_ms);
    } else if (h->is && h->extend_us > now + w->steal_ms * 1000 / 3) {
        h->extend_us = now + w->steal_ms * 1000 / 3; /* Whatever it had planned. */
    }
}

static void begin_stealing(struct world *w)
{
    begin_client(w, THIEF, ROLE_THIEF);
    enter(w, HEAL_STEAL);
    w->heal_loses = sl_random_maybe(&w->random, 5000);
}

static void steal(struct world *w, uint32_t c)
{
    struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                  .lease_ms = w->lease_min_ms,
                                  .wait_ms = 4 * steal_bound_ms(w),
                                  .priority = 5,
                                  .steal = true,
                                  .force_ms = SL_NEVER};
    if (w->clients[c].hold.is) {
        sl_client_release(w, c);
        return;
    }
    if (w->heal != HEAL_STEAL || (w->had & 1) != 0) return;
    w->heal_us = w->now_us; /* From here on it counts. */
    sl_client_ask(w, c, &ask, 0, ask.wait_ms + 1000);
}

static void check_hold(struct world *w)
{
    /* For a while it holds undisturbed. */
    const struct hold *h = &w->clients[VICTIM].hold;
    if (h->is && h->fence != 0 && passed_ms(w) > 2 * w->steal_ms &&
        is_settled(w, false)) {
        w->lists = w->books.list_count;
        w->had = 0;
        begin_stealing(w);
    } else if (passed_ms(w) > 2 * w->lease_max_ms + 4000 + bound_ms(w))
        sl_books_stuck(&w->books,
                       "k0 could not be held, though nothing breaks any more");
}

static void check_steal(struct world *w)
{
    if (w->had == 0) {
        /* Who comes new is silent at first: that time does not count. */
        if (w->books.list_count != w->lists) {
            w->lists = w->books.list_count;
            w->heal_us = w->now_us + 1000 * w->lease_max_ms;
        }
        if (passed_ms(w) > steal_bound_ms(w) + 300)
            sl_books_stuck(&w->books,
                           "a thief did not get k0 within %lld ms from a holder that "
                           "ignores it and has a lease of %lld ms",
                           (long long)steal_bound_ms(w), (long long)w->steal_ms);
        return;
    }
    if (w->clients[THIEF].hold.is || sl_client_is_busy(&w->clients[THIEF])) return;
    w->heal_loses = false;
    if (++w->rounds < ROUNDS) begin_holding(w);
    else enter(w, HEAL_DONE);
}

/* ---- nothing is left ---- */

static void check_rest(struct world *w)
{
    uint64_t lives[SL_SIM_NODES];
    if (passed_ms(w) < LAST_MS) return;
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) lives[m] = w->machines[m].life;
    uint64_t open = sl_books_open(&w->books, lives);
    if (open != 0 && passed_ms(w) < OPEN_MS) return;
    if (open != 0) {
        const struct request_row *r = &w->books.requests[open - 1];
        sl_books_stuck(&w->books, "n%u never answered %s, request %llu, of %lld ms ago",
                       r->node + 1, sl_ask_word(r->type), (unsigned long long)open,
                       (long long)(w->now_us - r->asked_us) / 1000);
    }
    for (uint32_t m = 0; m < SL_SIM_NODES; m++) {
        if (w->machines[m].node != NULL) sl_node_check(w->machines[m].node);
    }
    w->over = true;
}

void sl_heal_goes_on(struct world *w)
{
    switch (w->heal) {
        case HEAL_NOT: break;
        case HEAL_WAIT:
            if (w->now_us >= w->heal_us + 20000) begin_keys(w);
            break;
        case HEAL_KEYS: check_keys(w); break;
        case HEAL_CONTEST: check_contest(w); break;
        case HEAL_HOLD: check_hold(w); break;
        case HEAL_STEAL: check_steal(w); break;
        case HEAL_DONE: check_rest(w); break;
    }
}

/* ---- those who try ---- */

void sl_heal_client_acts(struct world *w, uint32_t c)
{
    struct client *x = &w->clients[c];
    int64_t now = sl_client_clock(w, c);
    for (int i = 0; i < SL_SIM_REQUESTS; i++) {
        if (x->requests[i].number != 0 && now >= x->requests[i].until_us) {
            sl_client_hang_up(w, c);
            break;
        }
    }
    if (x->life == 0 && !sl_client_connect(w, c)) {
        sl_client_wake(w, c, now + 20000);
        return;
    }
    if (!sl_client_is_busy(x) && (x->hold.is || now >= x->next_us)) {
        switch (x->role) {
            case ROLE_TRIES: try_key(w, c); break;
            case ROLE_VICTIM: act_as_victim(w, c); break;
            case ROLE_THIEF: steal(w, c); break;
            case ROLE_RIVAL: rest_as_rival(w, c); break;
            case ROLE_USER:
            case ROLE_KEEPS: break;
        }
    }
    /* Look again soon. */
    if (w->heal != HEAL_DONE) sl_client_wake(w, c, now + 5000);
}

void sl_heal_answered(struct world *w, uint32_t c, const struct sim_request *r,
                      const struct parcel *p)
{
    struct client *x = &w->clients[c];
    if (r->type != SL_NODE_ACQUIRE) return;
    w->last_status = p->answer.status;
    if (x->role == ROLE_RIVAL) {
        count_rival(w, p->answer.status);
        return;
    }
    if (p->answer.status == SLUICE_OK) {
        if (x->role == ROLE_TRIES) w->had |= 1u << r->key;
        if (x->role == ROLE_THIEF) w->had = 1;
        return;
    }
    /* Another node may do better. */
    x->next_us = sl_client_clock(w, c) + 30000;
    if (x->life != 0) sl_client_hang_up(w, c);
}
