/* client.c - simulated clients. A client holds one lock at a time, uses one node at a
 * time, and has its own clock. It acts as holder only until its own deadline: sent +
 * 0.998 x (waited + lease). A client may be slow, may not release when asked, may
 * forget to release and may give up waiting. But it follows the rules of
 * docs/leases.md. */
#include <stdio.h>
#include <string.h>

#include "sim/world.h"

/* Return the client's deadline, as docs/leases.md defines it. */
int64_t sim_client_deadline(int64_t sent_us, sl_ms ms)
{
    return sent_us + ms * 998;
}

int64_t sim_client_clock(const struct sim_world *w, uint32_t c)
{
    return sim_clock_us(&w->clients[c].clock, w->now_us);
}

struct sl_bytes sim_key_bytes(uint32_t key)
{
    static const char *const keys[SIM_KEYS] = {"k0", "k1", "k2", "k3"};
    return (struct sl_bytes){keys[key], 2};
}

void sim_client_wake(struct sim_world *w, uint32_t c, int64_t shows_us)
{
    struct sim_client *x = &w->clients[c];
    int64_t at = sim_clock_when(&x->clock, shows_us);
    if (at < w->now_us) at = w->now_us;
    if (at < x->paused_us) at = x->paused_us;
    sim_schedule(
        w, at - w->now_us,
        (struct sim_event){.type = SIM_EVENT_CLIENT, .other = c, .number = ++x->wake});
}

bool sim_client_is_busy(const struct sim_client *x)
{
    for (int i = 0; i < SIM_REQUESTS; i++) {
        if (x->requests[i].number != 0) return true;
    }
    return false;
}

/* ---- connections ---- */

/* Return the delay of a message over a connection. Messages arrive in order. */
static int64_t arrival(struct sim_world *w, int64_t *last_us)
{
    int64_t at = w->now_us + sim_net_delay(w);
    if (at <= *last_us) at = *last_us + 1;
    *last_us = at;
    return at - w->now_us;
}

/* Disconnect the client. The node notices this soon, late, or never if it crashes
 * first. */
void sim_client_hang_up(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    bool late = sim_has_fault(w, SIM_FAULT_DELAY) && sl_random_maybe(&w->random, 3000);
    int64_t delay_us = late ? sl_random_between(&w->random, 0, w->tail_us) : 0;
    delay_us += arrival(w, &x->out_us);
    for (int i = 0; i < SIM_REQUESTS; i++) {
        struct sim_request *r = &x->requests[i];
        if (r->number != 0)
            sim_schedule(w, delay_us,
                         (struct sim_event){.type = SIM_EVENT_HANGUP,
                                            .node = x->node,
                                            .other = c,
                                            .number = r->number,
                                            .link = x->life});
        r->number = 0;
    }
    x->life = 0;
    x->session = 0;
}

bool sim_client_cut(struct sim_world *w, uint64_t number)
{
    for (uint32_t c = 0; c < SIM_CLIENTS; c++) {
        const struct sim_client *x = &w->clients[c];
        for (int i = 0; i < SIM_REQUESTS; i++) {
            if (x->requests[i].number != number) continue;
            SIM_TRACE(w, "c%u is disconnected (request %llu)", c + 1,
                      (unsigned long long)number);
            sim_checker_withdraw(&w->checker, number);
            sim_client_hang_up(w, c);
            sim_client_wake(w, c, sim_client_clock(w, c));
            return true;
        }
    }
    return false;
}

bool sim_client_connect(struct sim_world *w, uint32_t c)
{
    return sim_client_connect_from(w, c, sl_random_below(&w->random, SIM_NODES));
}

bool sim_client_connect_from(struct sim_world *w, uint32_t c, uint32_t start)
{
    struct sim_client *x = &w->clients[c];
    uint32_t members = sim_checker_newest_members(&w->checker);
    /* Most clients know the members; some try any node. */
    if (x->role == SIM_ROLE_USER && sl_random_maybe(&w->random, 1000)) members = ~0u;
    for (uint32_t i = 0; i < SIM_NODES; i++) {
        uint32_t m = (start + i) % SIM_NODES;
        if (!sim_machine_runs(w, m) || (members & 1u << sim_node_id(m)) == 0) continue;
        x->node = m;
        x->life = w->machines[m].life;
        x->session = ++w->sessions;
        x->out_us = x->in_us = 0;
        SIM_TRACE(w, "c%u connects to n%u as session %llu", c + 1, m + 1,
                  (unsigned long long)x->session);
        return true;
    }
    return false;
}

static bool is_connected(const struct sim_world *w, const struct sim_client *x)
{
    return x->life != 0 && w->machines[x->node].life == x->life;
}

/* ---- requests ---- */

uint64_t sim_client_ask(struct sim_world *w, uint32_t c,
                        const struct sl_node_request *ask, uint32_t key,
                        int64_t patience_ms)
{
    struct sim_client *x = &w->clients[c];
    struct sim_request *r = NULL;
    for (int i = 0; i < SIM_REQUESTS && r == NULL; i++) {
        if (x->requests[i].number == 0) r = &x->requests[i];
    }
    if (r == NULL) return 0;
    int64_t clock_us = sim_client_clock(w, c);
    uint64_t id = ask->type == SL_NODE_RELEASE ? x->hold.id
                  : ask->request.n > 0         ? x->acquisition.id
                                               : 0;
    struct sim_request_record row = {.client = c,
                                     .type = ask->type,
                                     .key = key,
                                     .fence = ask->fence,
                                     .id = id,
                                     .digest = ask->digest,
                                     .pattern = key,
                                     .on = ask->on,
                                     .sent_us = w->now_us,
                                     .steal = ask->steal,
                                     .force = ask->steal && ask->force_ms != SL_NEVER};
    *r = (struct sim_request){.number = sim_checker_request(&w->checker, &row),
                              .type = ask->type,
                              .key = key,
                              .fence = ask->fence,
                              .id = id,
                              .sent_us = clock_us,
                              .until_us = clock_us + patience_ms * 1000};
    struct sim_packet *p = sim_packet_new(&w->queue);
    p->ask = *ask;
    p->ask.session = x->session;
    p->ask.key = ask->type == SL_NODE_DRAIN ? sim_pattern_bytes(key)
                                            : sim_key_bytes(key);
    if (ask->request.n > 0) sim_repeats_write(p, id);
    if (ask->type == SL_NODE_ACQUIRE) {
        p->ask.note = (struct sl_bytes){"a note", 6};
        p->ask.client = (struct sl_bytes){"a client", 8};
    }
    SIM_TRACE(w, "c%u > n%u %s k%u (request %llu)", c + 1, x->node + 1,
              sim_verb_name(ask->type), key, (unsigned long long)r->number);
    sim_schedule(w, arrival(w, &x->out_us),
                 (struct sim_event){.type = SIM_EVENT_REQUEST,
                                    .node = x->node,
                                    .other = c,
                                    .number = r->number,
                                    .link = x->life,
                                    .packet = p});
    return r->number;
}

static sl_ms draw_lease(struct sim_world *w)
{
    sl_ms most = w->lease_max_ms;
    if (w->long_leases) return sl_random_between(&w->random, most * 9 / 10, most);
    if (sl_random_maybe(&w->random, 7000)) most = most > 400 ? 400 : most;
    return sl_random_between(&w->random, w->lease_min_ms, most);
}

static void acquire(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    struct sl_random *r = &w->random;
    struct sl_node_request ask = {.type = SL_NODE_ACQUIRE,
                                  .lease_ms = draw_lease(w),
                                  .force_ms = SL_NEVER,
                                  .value = {"value", 5}};
    if (sl_random_maybe(r, 7000))
        ask.wait_ms = sl_random_between(r, 1, 2 * w->lease_max_ms);
    if (sim_has_fault(w, SIM_FAULT_STEAL)) {
        ask.priority = x->priority = (int32_t)sl_random_between(r, -1, 3);
        ask.steal = sl_random_maybe(r, 6000);
        if (ask.steal && sim_has_fault(w, SIM_FAULT_FORCE) && sl_random_maybe(r, 5000))
            ask.force_ms = sl_random_between(r, 0, ask.wait_ms + 10);
    }
    x->ignores = sl_random_maybe(r, 4000);
    uint32_t key = sl_random_below(r, w->key_count);
    if (w->repeats) sim_repeats_draw(w, c, key, &ask);
    sim_client_ask(w, c, &ask, key,
                   ask.wait_ms + sl_random_between(r, 50, 4 * w->limits.answer_max_ms));
}

/* Extend a lease, sometimes with a new value. */
static void extend(struct sim_world *w, uint32_t c, uint32_t key, sl_fence fence,
                   sl_ms lease_ms)
{
    struct sl_node_request ask = {
        .type = SL_NODE_EXTEND, .fence = fence, .lease_ms = lease_ms};
    if (sl_random_maybe(&w->random, 2000)) ask.value = (struct sl_bytes){"another", 7};
    sim_client_ask(w, c, &ask, key,
                   sl_random_between(&w->random, 20, 3 * w->limits.answer_max_ms));
}

void sim_client_extend(struct sim_world *w, uint32_t c, sl_ms lease_ms)
{
    const struct sim_hold *h = &w->clients[c].hold;
    extend(w, c, h->key, h->fence, lease_ms);
}

/* Release the lock. The client stops acting as holder before it sends the release. */
void sim_client_release(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    struct sim_hold *h = &x->hold;
    struct sl_node_request ask = {.type = SL_NODE_RELEASE, .fence = h->fence};
    if (h->session == x->session && sl_random_maybe(&w->random, 2000)) ask.fence = 0;
    h->is = false;
    if (h->id == x->acquisition.id) x->acquisition.is_over = true;
    sim_checker_doubt(&w->checker, c);
    sim_checker_released(&w->checker, h->key, h->fence);
    sim_client_ask(w, c, &ask, h->key,
                   sl_random_between(&w->random, 20, 3 * w->limits.answer_max_ms));
}

static void check(struct sim_world *w, uint32_t c)
{
    const struct sim_hold *h = &w->clients[c].hold;
    struct sl_node_request ask = {.type = SL_NODE_CHECK, .fence = h->fence};
    sim_client_ask(w, c, &ask, h->key, 2 * w->limits.answer_max_ms);
}

/* Send a request that only reads. */
static void inspect(struct sim_world *w, uint32_t c)
{
    static const enum sl_node_verb types[] = {SL_NODE_READ, SL_NODE_CHECK,
                                              SL_NODE_VOTES, SL_NODE_AWAIT};
    struct sl_random *r = &w->random;
    struct sim_client *x = &w->clients[c];
    struct sl_node_request ask = {.type = types[sl_random_below(r, 4)],
                                  .fence = x->old[0].fence};
    if (ask.type == SL_NODE_AWAIT) {
        ask.wait_ms = sl_random_between(r, 1, w->lease_max_ms);
        ask.want_free = sl_random_maybe(r, 5000);
    }
    if (ask.type == SL_NODE_CHECK && ask.fence == 0) ask.fence = 1;
    uint32_t key = sl_random_below(r, w->key_count);
    sim_client_ask(w, c, &ask, ask.fence > 1 ? x->old[0].key : key, ask.wait_ms + 1000);
}

static void extend_old(struct sim_world *w, uint32_t c)
{
    const struct sim_hold *h = &w->clients[c].old[sl_random_below(&w->random, SIM_OLD)];
    if (h->fence != 0) extend(w, c, h->key, h->fence, draw_lease(w));
    else inspect(w, c);
}

/* ---- holding ---- */

/* Plan the next extension: in time, at the last moment, too late, or never. */
static void plan_extension(struct sim_world *w, uint32_t c)
{
    struct sl_random *r = &w->random;
    struct sim_hold *h = &w->clients[c].hold;
    int64_t now = sim_client_clock(w, c), left = h->until_us - now;
    if (left < 5000) left = 5000;
    uint32_t dice = sl_random_below(r, 100);
    if (dice < 45) h->extend_us = now + left / 3;
    else if (dice < 60) h->extend_us = h->until_us - sl_random_between(r, 0, 10000);
    else if (dice < 70) h->extend_us = h->until_us + sl_random_between(r, 0, 3000);
    else if (dice < 80) h->extend_us = h->until_us + sl_random_between(r, 0, left);
    else if (dice < 90) h->extend_us = now + sl_random_between(r, 0, left);
    else h->extend_us = SIM_NEVER;
}

static void remember(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    memmove(&x->old[1], &x->old[0], sizeof x->old - sizeof x->old[0]);
    x->old[0] = x->hold;
    x->hold.is = false;
    sim_checker_doubt(&w->checker, c);
}

static void believe(struct sim_world *w, uint32_t c)
{
    const struct sim_hold *h = &w->clients[c].hold;
    struct sim_belief b = {.is = true,
                           .key = h->key,
                           .fence = h->fence,
                           .overlapping = h->overlapping,
                           .until_us = h->until_us,
                           .clock = &w->clients[c].clock};
    sim_checker_believe(&w->checker, c, &b, w->now_us);
}

static void granted(struct sim_world *w, uint32_t c, const struct sim_request *r,
                    const struct sl_grant *g)
{
    struct sim_client *x = &w->clients[c];
    int64_t now = sim_client_clock(w, c);
    x->hold = (struct sim_hold){
        .is = true,
        .key = r->key,
        .fence = g->fence,
        .id = r->id,
        .session = x->session,
        .lease_ms = g->lease_ms,
        .overlapping = g->overlapping,
        .until_us = sim_client_deadline(r->sent_us, g->waited_ms + g->lease_ms)};
    x->hold.release_us = now + sl_random_between(&w->random, 0,
                                                 (x->hold.until_us - now > 0 ? 3 : 1) *
                                                     g->lease_ms * 1000);
    SIM_TRACE(w, "c%u has k%u under fence %llu for %lld us", c + 1, r->key,
              (unsigned long long)g->fence, (long long)(x->hold.until_us - now));
    sim_checker_received(&w->checker, r->id, g->fence);
    believe(w, c);
    plan_extension(w, c);
}

/* Handle a successful extension: of the lease that the client holds, or of one that had
 * expired and is valid again. */
static void extended(struct sim_world *w, uint32_t c, const struct sim_request *r,
                     sl_ms lease_ms)
{
    struct sim_client *x = &w->clients[c];
    struct sim_hold *h = &x->hold;
    if (!h->is) {
        for (int i = 0; i < SIM_OLD && !h->is; i++) {
            struct sim_hold *old = &x->old[i];
            if (old->fence != r->fence || old->key != r->key) continue;
            *h = *old;
            h->is = true;
            old->fence = 0;
        }
    }
    if (!h->is || h->fence != r->fence || h->key != r->key) return;
    int64_t until = sim_client_deadline(r->sent_us, lease_ms);
    if (until > h->until_us) h->until_us = until;
    SIM_TRACE(w, "c%u has k%u extended for %lld us", c + 1, h->key,
              (long long)(h->until_us - sim_client_clock(w, c)));
    believe(w, c);
    plan_extension(w, c);
}

static void lost(struct sim_world *w, uint32_t c, uint32_t key, sl_fence fence)
{
    struct sim_client *x = &w->clients[c];
    if (!x->hold.is || x->hold.key != key || x->hold.fence != fence) return;
    SIM_TRACE(w, "c%u learns that it lost k%u", c + 1, key);
    x->hold.is = false;
    sim_checker_doubt(&w->checker, c);
}

/* ---- acting ---- */

static bool is_impatient(const struct sim_world *w, uint32_t c)
{
    const struct sim_client *x = &w->clients[c];
    int64_t now = sim_client_clock(w, c);
    for (int i = 0; i < SIM_REQUESTS; i++) {
        if (x->requests[i].number != 0 && now >= x->requests[i].until_us) return true;
    }
    return false;
}

static bool is_waiting_for(const struct sim_client *x, enum sl_node_verb type)
{
    for (int i = 0; i < SIM_REQUESTS; i++) {
        if (x->requests[i].number != 0 && x->requests[i].type == type) return true;
    }
    return false;
}

/* Return when the client has to act next. */
static int64_t next_of(const struct sim_world *w, uint32_t c)
{
    const struct sim_client *x = &w->clients[c];
    const struct sim_hold *h = &x->hold;
    int64_t next = SIM_NEVER;
    for (int i = 0; i < SIM_REQUESTS; i++) {
        const struct sim_request *r = &x->requests[i];
        if (r->number != 0 && r->until_us < next) next = r->until_us;
    }
    if (h->is) {
        int64_t over = h->until_us + h->lease_ms * 1000;
        if (over < next) next = over;
        if (h->release_us < next) next = h->release_us;
        if (h->extend_us < next && !is_waiting_for(x, SL_NODE_EXTEND))
            next = h->extend_us;
    } else if (x->next_us < next && !sim_client_is_busy(x)) next = x->next_us;
    return next;
}

static void act_as_holder(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    struct sim_hold *h = &x->hold;
    int64_t now = sim_client_clock(w, c);
    if (x->quiet) sim_client_release(w, c);
    else if (now >= h->release_us) {
        /* Some clients never release. */
        if (sl_random_maybe(&w->random, 8500) && now < h->until_us)
            sim_client_release(w, c);
        else h->release_us = SIM_NEVER;
    } else if (now >= h->extend_us && !is_waiting_for(x, SL_NODE_EXTEND)) {
        h->extend_us = SIM_NEVER;
        if (sl_random_maybe(&w->random, 1000)) check(w, c);
        else sim_client_extend(w, c, draw_lease(w));
    } else if (now >= h->until_us + h->lease_ms * 1000) remember(w, c);
}

/* Act as an operator who breaks the last grant of a key. */
static void break_last(struct sim_world *w, uint32_t c)
{
    uint32_t key = sl_random_below(&w->ids, w->key_count);
    struct sl_node_request ask = {.type = SL_NODE_BREAK,
                                  .fence = w->checker.keys[key].highest,
                                  .at_once = sl_random_maybe(&w->ids, 3000)};
    if (ask.fence == 0) ask.fence = 1;
    sim_checker_breaks(&w->checker, key, ask.fence, ask.at_once);
    sim_client_ask(w, c, &ask, key,
                   sl_random_between(&w->ids, 20, 4 * w->limits.answer_max_ms));
}

/* Act as an operator who turns a pattern on or off. */
static void drain(struct sim_world *w, uint32_t c)
{
    uint32_t pattern = sl_random_below(&w->ids, SIM_PATTERNS);
    const struct sl_node_request ask = {.type = SL_NODE_DRAIN,
                                        .on = sl_random_maybe(&w->ids, 4000)};
    sim_client_ask(w, c, &ask, pattern,
                   sl_random_between(&w->ids, 20, 6 * w->limits.answer_max_ms));
}

static void start_request(struct sim_world *w, uint32_t c)
{
    struct sl_random *r = &w->random;
    struct sim_client *x = &w->clients[c];
    x->next_us = sim_client_clock(w, c) + sl_random_between(r, 0, w->think_ms * 1000);
    if (x->quiet) x->next_us = SIM_NEVER;
    else if (w->drains && sl_random_maybe(&w->ids, 800)) drain(w, c);
    else if (w->breaks && sl_random_maybe(&w->ids, 1000)) break_last(w, c);
    else if (sim_has_fault(w, SIM_FAULT_STALE) && sl_random_maybe(r, 2000))
        extend_old(w, c);
    else if (sl_random_maybe(r, 800)) inspect(w, c);
    else acquire(w, c);
}

static void act_as_user(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    if (is_impatient(w, c) || (x->life != 0 && !is_connected(w, x)))
        sim_client_hang_up(w, c);
    else if (sim_has_fault(w, SIM_FAULT_MOVE) && !sim_client_is_busy(x) &&
             sl_random_maybe(&w->random, 1000))
        sim_client_hang_up(w, c);
    if (x->life == 0 && !sim_client_connect(w, c)) {
        sim_client_wake(w, c, sim_client_clock(w, c) + 20000);
        return;
    }
    if (x->hold.is) act_as_holder(w, c);
    else if (!x->quiet && !sim_client_is_busy(x) && sim_repeats_act(w, c)) return;
    else if (!sim_client_is_busy(x) && sim_client_clock(w, c) >= x->next_us)
        start_request(w, c);
}

void sim_client_act(struct sim_world *w, uint32_t c)
{
    struct sim_client *x = &w->clients[c];
    if (w->now_us < x->paused_us) {
        sim_client_wake(w, c, sim_client_clock(w, c));
        return;
    }
    uint64_t wake = x->wake;
    if (x->role == SIM_ROLE_KEEPS) {
        sim_rolling_client_act(w, c);
        return;
    }
    if (x->role != SIM_ROLE_USER) {
        sim_heal_client_act(w, c);
        return;
    }
    act_as_user(w, c);
    if (x->wake != wake) return; /* The client has already set its timer. */
    int64_t next = next_of(w, c), now = sim_client_clock(w, c);
    if (next != SIM_NEVER) sim_client_wake(w, c, next > now ? next : now + 100);
}

void sim_client_init(struct sim_world *w, uint32_t c, enum sim_role role)
{
    struct sim_client *x = &w->clients[c];
    x->role = role;
    x->next_us = sim_client_clock(w, c) + sl_random_between(&w->random, 100000, 300000);
    sim_client_wake(w, c, x->next_us);
}

/* ---- answers and notices ---- */

/* Return whether the client is paused. If so, deliver the packet when the client
 * continues. */
static bool is_paused(struct sim_world *w, uint32_t c, const struct sim_event *e)
{
    struct sim_event again = *e;
    if (w->now_us >= w->clients[c].paused_us) return false;
    again.packet = sim_packet_new(&w->queue);
    *again.packet = *e->packet;
    sim_schedule(w, w->clients[c].paused_us - w->now_us, again);
    return true;
}

static void take_answer(struct sim_world *w, uint32_t c, const struct sim_request *r,
                        const struct sim_packet *p)
{
    int status = p->answer.status;
    if (r->id != 0 && r->type != SL_NODE_RELEASE &&
        !sim_repeats_answered(w, c, r, status))
        return;
    if (r->type == SL_NODE_ACQUIRE && status == SLUICE_OK)
        granted(w, c, r, &p->answer.grant);
    if (r->type == SL_NODE_EXTEND && status == SLUICE_OK)
        extended(w, c, r, p->answer.number);
    if (r->type == SL_NODE_EXTEND && status == SLUICE_ELOST)
        lost(w, c, r->key, r->fence);
    /* After such an answer the client sometimes switches to another node. */
    bool bad = status == SLUICE_ENOQUORUM || status == SLUICE_ERECOVERING ||
               status == SLUICE_ENODES;
    if (bad && sl_random_maybe(&w->random, 3000)) sim_client_hang_up(w, c);
    if (w->clients[c].hold.is && w->clients[c].hold.extend_us == SIM_NEVER)
        plan_extension(w, c);
}

void sim_client_answered(struct sim_world *w, uint32_t c, const struct sim_event *e)
{
    struct sim_client *x = &w->clients[c];
    struct sim_request *r = NULL, was;
    if (is_paused(w, c, e)) return;
    for (int i = 0; i < SIM_REQUESTS; i++) {
        if (x->requests[i].number == e->number) r = &x->requests[i];
    }
    if (r == NULL) return; /* The client has disconnected. */
    was = *r;
    r->number = 0;
    SIM_TRACE(w, "c%u < %s k%u: %s (request %llu)", c + 1, sim_verb_name(was.type),
              was.key, sluice_status_word(e->packet->answer.status),
              (unsigned long long)e->number);
    take_answer(w, c, &was, e->packet);
    if (x->role == SIM_ROLE_KEEPS) sim_rolling_answered(w, c, &was, e->packet);
    else if (x->role != SIM_ROLE_USER) sim_heal_answered(w, c, &was, e->packet);
    sim_client_act(w, c);
}

void sim_client_notified(struct sim_world *w, uint32_t c, const struct sim_event *e)
{
    struct sim_client *x = &w->clients[c];
    if (is_paused(w, c, e)) return;
    if (x->session != e->packet->notice.session) return;
    struct sim_hold *hold = &x->hold;
    if (!hold->is || hold->fence != e->packet->notice.fence ||
        hold->key != e->packet->notice.key)
        return;
    if (e->packet->notice.type == SL_NODE_EVENT_STOLEN ||
        e->packet->notice.type == SL_NODE_EVENT_EXPIRED || e->packet->notice.at_once) {
        lost(w, c, hold->key, hold->fence);
    } else if (!x->ignores && x->role != SIM_ROLE_HOLDER) {
        hold->release_us = sim_client_clock(w, c) +
                           sl_random_between(&w->random, 0, 20000);
    }
    sim_client_act(w, c);
}

/* ---- orders of a node ---- */

static const struct sim_request *awaited(const struct sim_client *x, uint64_t number)
{
    for (int i = 0; i < SIM_REQUESTS; i++) {
        if (x->requests[i].number == number) return &x->requests[i];
    }
    return NULL;
}

static void count(struct sim_world *w, const struct sim_request_record *r,
                  const struct sl_node_answer *a)
{
    if (a->status != SLUICE_OK) return;
    if (r->type == SL_NODE_ACQUIRE) w->counts.grants++;
    if (r->type == SL_NODE_EXTEND) w->counts.extends++;
    if (r->type == SL_NODE_ACQUIRE && r->steal && a->grant.waited_ms > 0)
        w->counts.steals++;
}

void sim_client_answer(struct sim_world *w, uint32_t m, uint64_t number,
                       const struct sl_node_answer *a)
{
    const struct sim_request_record *row = sim_checker_answered(
        &w->checker, number, m, w->machines[m].life, a, w->now_us);
    if (row == NULL) return;
    SIM_TRACE(w, "n%u answers request %llu: %s%s%s", m + 1, (unsigned long long)number,
              sluice_status_word(a->status), a->reason[0] ? ", " : "", a->reason);
    count(w, row, a);
    if (row->client >= SIM_CLIENTS) return; /* The request is from an operator. */
    struct sim_client *x = &w->clients[row->client];
    const struct sim_request *r = awaited(x, number);
    if (r ==
        NULL) { /* The client has disconnected, but the node has not noticed yet. */
        if (row->id != 0 && row->type == SL_NODE_ACQUIRE && a->status == SLUICE_OK)
            sim_repeats_came_too_late(w, m, row, &a->grant);
        return;
    }
    sim_audit_acknowledged(w, m, row->client, r, a);
    struct sim_packet *p = sim_packet_new(&w->queue);
    p->answer.status = a->status;
    p->answer.grant = a->grant;
    p->answer.number = a->number;
    struct sim_event e = {
        .type = SIM_EVENT_ANSWER, .other = row->client, .number = number, .packet = p};
    sim_schedule(w, arrival(w, &x->in_us), e);
}

void sim_client_event(struct sim_world *w, uint32_t m, const struct sl_node_event *e)
{
    static const char *const names[] = {
#define EVENT(name, text) text,
        SL_NODE_EVENT_MAP(EVENT)
#undef EVENT
    };
    SIM_TRACE(w, "n%u tells: %.*s %s, fence %llu, session %llu", m + 1, (int)e->key.n,
              e->key.at, names[e->type], (unsigned long long)e->fence,
              (unsigned long long)e->session);
    bool concerns = e->type == SL_NODE_EVENT_ASKED || e->type == SL_NODE_EVENT_STOLEN ||
                    e->type == SL_NODE_EVENT_EXPIRED || e->type == SL_NODE_EVENT_BROKEN;
    if (e->session == 0 || !concerns || e->key.n != 2) return;
    for (uint32_t c = 0; c < SIM_CLIENTS; c++) {
        struct sim_client *x = &w->clients[c];
        if (x->session != e->session) continue;
        struct sim_packet *p = sim_packet_new(&w->queue);
        p->notice.type = e->type;
        p->notice.key = (uint32_t)(e->key.at[1] - '0');
        p->notice.fence = e->fence;
        p->notice.session = e->session;
        p->notice.at_once = e->at_once;
        sim_schedule(
            w, arrival(w, &x->in_us),
            (struct sim_event){.type = SIM_EVENT_NOTICE, .other = c, .packet = p});
    }
}
