/* audit.c - compares what a node shows with what its journal says at that moment, both the bytes that
 * were written and those that are durable (replay.h). It checks:
 *
 *     - When an answer to ACQUIRE or EXTEND leaves, a majority of the members has written the
 *       lease. If it is long, it is durable at a majority.
 *     - After each start of a node, a majority still has every lease whose holder may act. A short
 *       lease may be lost where the power failed, and any lease where the directory was lost.
 *     - When a vote leaves, the lease that it shows is written, and durable if it is long (J4 a).
 *     - When a vote or TEACH shows a lease, no other long lease of the key would return after a
 *       power failure; nor would a lease of which a vote or event shows the end (J4 b).
 *     - What was written is the state in memory. */
#include <stdio.h>
#include <string.h>

#include "sim/world.h"

static const struct sim_replayed *written(struct sim_machine *x, uint32_t key)
{
    sim_replay_to(&x->written, &x->journal, x->journal.bytes);
    return &x->written.keys[key];
}

static const struct sim_replayed *durable(struct sim_machine *x, uint32_t key)
{
    sim_replay_to(&x->durable, &x->journal, x->journal.durable);
    return &x->durable.keys[key];
}

static uint32_t key_of(struct sl_bytes key)
{
    uint32_t k = key.n == 2 ? (uint32_t)(key.at[1] - '0') : SIM_KEYS;
    return k < SIM_KEYS ? k : SIM_KEYS;
}

static void trace(const struct sim_world *w, uint32_t m, const char *what,
                  const struct sim_replayed *k)
{
    const struct sim_machine *x = &w->machines[m];
    SIM_TRACE(w,
              "n%u has %s at %lld: %s, bound %lld, past %llu, leases %llu until %lld, "
              "%llu until %lld, %llu until %lld",
              m + 1, what, (long long)sim_machine_now(w, m).ms,
              !k->is       ? "nothing"
              : k->is_long ? "long"
                           : "short",
              (long long)k->bound_ms, (unsigned long long)k->past_fence,
              (unsigned long long)k->leases[0].fence, (long long)k->leases[0].end_ms,
              (unsigned long long)k->leases[1].fence, (long long)k->leases[1].end_ms,
              (unsigned long long)k->leases[2].fence, (long long)k->leases[2].end_ms);
    if (x->node == NULL) SIM_TRACE(w, "n%u is down", m + 1);
}

/* Report a violation, and what the journals say about the key. */
static void trace_key(struct sim_world *w, uint32_t key)
{
    for (uint32_t m = 0; w->setup.trace && m < SIM_NODES; m++) {
        struct sim_machine *x = &w->machines[m];
        if (x->journal.bytes == 0) continue;
        trace(w, m, "written", written(x, key));
        trace(w, m, "made durable", durable(x, key));
    }
}

/* ---- acknowledged leases ---- */

/* Return whether the journal of a machine has a lease until the deadline of its holder. */
static bool is_known(struct sim_machine *x, uint32_t key,
                     const struct sim_grant_record *g, bool power)
{
    const struct sim_replayed *k = power ? durable(x, key) : written(x, key);
    sl_ms end_ms = sim_replayed_end(k, g->fence, power || x->lost_power);
    if (end_ms < 0) return false;
    /* The record has the time of a clock that is gone. */
    if (x->lost_power) return true;
    return sim_clock_when(&x->clock, end_ms * 1000) >=
           sim_clock_when(g->clock, g->until_us);
}

/* Return whether a machine may have forgotten a lease. */
static bool may_forget(struct sim_machine *x, uint32_t key, bool forced,
                       const struct sim_grant_record *g)
{
    if (x->emptied_us >= g->asked_us) return true;
    if (x->power_us >= g->asked_us && !g->is_long) return true;
    /* An acceptor keeps only one of several leases that were overlapped. */
    return forced && written(x, key)->past_fence >= g->fence;
}

static void check_lease(struct sim_world *w, uint32_t key,
                        const struct sim_grant_record *g, bool power, const char *when)
{
    const struct sim_membership_record *newest = sim_checker_newest(&w->checker);
    if (newest == NULL || newest->version != g->version || g->released ||
        sim_clock_us(g->clock, w->now_us) >= g->until_us)
        return;
    int known = 0, excused = 0, members = __builtin_popcount(newest->members);
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        struct sim_machine *x = &w->machines[m];
        if ((newest->members & 1u << sim_node_id(m)) == 0) continue;
        if (is_known(x, key, g, power)) known++;
        else if (may_forget(x, key, w->checker.keys[key].forced, g)) excused++;
    }
    if (known + excused > members / 2) return;
    trace_key(w, key);
    sim_checker_wrong(&w->checker,
                      "%s, the lease of k%u under fence %llu is %s at %d nodes of %d",
                      when, key, (unsigned long long)g->fence,
                      power ? "durable" : "known", known, members);
}

void sim_audit_acknowledged(struct sim_world *w, uint32_t m, uint32_t c,
                            const struct sim_request *r, const struct sl_node_answer *a)
{
    bool is_grant = r->type == SL_NODE_ACQUIRE;
    if (a->status != SLUICE_OK || (!is_grant && r->type != SL_NODE_EXTEND)) return;
    sl_fence fence = is_grant ? a->grant.fence : r->fence;
    struct sim_grant_record *g = sim_checker_grant(&w->checker, r->key, fence);
    if (g == NULL) return;
    sl_ms lease_ms = is_grant ? a->grant.lease_ms : a->number;
    int64_t until_us = sim_client_deadline(
        r->sent_us, lease_ms + (is_grant ? a->grant.waited_ms : 0));
    if (g->clock != NULL && until_us <= g->until_us) return;
    g->clock = &w->clients[c].clock;
    g->until_us = until_us;
    g->asked_us = w->checker.requests[r->number - 1].sent_us;
    g->is_long = lease_ms > w->volatile_ms;
    /* If the membership has changed meanwhile, it is unknown which one agreed. */
    g->version = sl_node_membership(w->machines[m].node)->version;
    if (w->checker.requests[r->number - 1].version != g->version) g->version = 0;
    check_lease(w, r->key, g, false, "when it is acknowledged");
    if (g->is_long) check_lease(w, r->key, g, true, "when it is acknowledged");
}

void sim_audit_started(struct sim_world *w, uint32_t m)
{
    char when[32];
    snprintf(when, sizeof when, "after the start of n%u", m + 1);
    for (uint32_t key = 0; key < w->key_count; key++) {
        const struct sim_key_record *k = &w->checker.keys[key];
        for (uint32_t i = k->count; i > 0; i--)
            if (k->grants[i - 1].clock != NULL)
                check_lease(w, key, &k->grants[i - 1], false, when);
    }
}

/* ---- messages ---- */

static struct sim_heard *find_heard(struct sim_machine *x, sl_node_id from,
                                    uint64_t round)
{
    for (int i = 0; i < SIM_HEARD; i++)
        if (x->heard[i].from == from && x->heard[i].round == round) return &x->heard[i];
    return NULL;
}

void sim_audit_received(struct sim_world *w, uint32_t m, sl_node_id from,
                        const struct sl_message *msg)
{
    struct sim_machine *x = &w->machines[m];
    uint32_t key = key_of(msg->key);
    bool asks = msg->type == SL_MESSAGE_ACQUIRE || msg->type == SL_MESSAGE_RENEW ||
                msg->type == SL_MESSAGE_RELEASE || msg->type == SL_MESSAGE_LOOK ||
                msg->type == SL_MESSAGE_ADOPT || msg->type == SL_MESSAGE_END;
    if (!asks || msg->round == 0 || key == SIM_KEYS ||
        find_heard(x, from, msg->round) != NULL)
        return;
    x->heard[x->heard_next++ % SIM_HEARD] = (struct sim_heard){
        .from = from,
        .round = msg->round,
        .type = msg->type,
        .key = key,
        .fence = msg->fence,
        .final = (msg->flags & SL_FLAG_FINAL) != 0,
        .lease_ms = msg->lease_ms,
        .at_ms = sim_machine_now(w, m).ms};
}

/* A node shows a lease. No other long lease may return after a power failure. */
static void check_shown(struct sim_world *w, uint32_t m, uint32_t key, sl_fence fence)
{
    struct sim_machine *x = &w->machines[m];
    const struct sim_replayed *is = written(x, key), *kept = durable(x, key);
    if (is->leases[0].fence != fence || !kept->is_long ||
        kept->bound_ms <= sim_machine_now(w, m).ms)
        return;
    sl_fence other = kept->leases[0].fence;
    if (other == 0 || sim_replayed_end(kept, fence, false) >= 0) return;
    trace_key(w, key);
    sim_checker_wrong(&w->checker,
                      "n%u shows fence %llu of k%u, but after a power failure it "
                      "would have fence %llu",
                      m + 1, (unsigned long long)fence, key, (unsigned long long)other);
}

/* A node shows that a lease has ended. If its end is durable, the lease was learned again later. */
static void check_ended(struct sim_world *w, uint32_t m, uint32_t key, sl_fence fence)
{
    struct sim_machine *x = &w->machines[m];
    if (sim_replayed_end(written(x, key), fence, false) >= 0) return;
    const struct sim_replayed *kept = durable(x, key);
    if (!kept->is_long || kept->leases[0].fence != fence || kept->past_fence >= fence ||
        kept->bound_ms <= sim_machine_now(w, m).ms)
        return;
    trace_key(w, key);
    sim_checker_wrong(&w->checker,
                      "n%u shows that fence %llu of k%u has ended, but it would "
                      "return after a power failure",
                      m + 1, (unsigned long long)fence, key);
}

/* A vote shows a lease that was at least this long at a time of the node's clock. If it is a vote
 * for a new attempt, the lease may have been taught before, and may end earlier. */
static void check_vote(struct sim_world *w, uint32_t m, uint32_t key, sl_fence fence,
                       sl_ms since_ms, sl_ms lease_ms, bool is_new)
{
    struct sim_machine *x = &w->machines[m];
    sl_ms end_ms = sim_replayed_end(written(x, key), fence, false);
    if (end_ms < 0) { /* It has ended meanwhile, or was never written. */
        struct sl_node_copy copy = {0};
        if (sl_node_copy(x->node, sim_machine_now(w, m), sim_key_bytes(key), &copy) &&
            copy.fence == fence)
            sim_checker_wrong(&w->checker,
                              "n%u shows fence %llu of k%u, which is not written",
                              m + 1, (unsigned long long)fence, key);
        return;
    }
    sl_ms until_ms = since_ms + lease_ms < end_ms ? since_ms + lease_ms : end_ms;
    /* Count from now, because the vote may have waited. If the lease expires within volatile_ms, it
     * need not be durable: after a power failure, the node is silent for that long. */
    bool is_long = until_ms - sim_machine_now(w, m).ms > w->volatile_ms;
    sl_ms kept_ms = sim_replayed_end(durable(x, key), fence, !is_new);
    if (is_long && (is_new ? kept_ms < 0 : kept_ms < until_ms)) {
        trace_key(w, key);
        sim_checker_wrong(&w->checker,
                          "n%u shows the long lease of k%u under fence %llu, which is "
                          "not durable",
                          m + 1, key, (unsigned long long)fence);
    }
    check_shown(w, m, key, fence);
}

#define GRAIN_MS 5 /* Clocks are rounded. */

static void check_votes(struct sim_world *w, uint32_t m, sl_node_id to,
                        const struct sl_message *v)
{
    const struct sim_heard *h = find_heard(&w->machines[m], to, v->round);
    if (h == NULL) return;
    bool yes = v->verdict == SL_VERDICT_YES;
    if (h->type == SL_MESSAGE_RELEASE) {
        if (yes && h->final) check_ended(w, m, h->key, h->fence);
    } else if (h->type == SL_MESSAGE_END) {
        if (yes) check_ended(w, m, h->key, v->fence);
    } else if (yes && h->type != SL_MESSAGE_LOOK && h->type != SL_MESSAGE_ADOPT)
        check_vote(w, m, h->key, h->fence, h->at_ms, h->lease_ms,
                   h->type == SL_MESSAGE_ACQUIRE);
    else if (v->fence != 0 && (v->flags & SL_FLAG_TURN) == 0)
        check_vote(w, m, h->key, v->fence, h->at_ms, v->left_ms - GRAIN_MS, false);
}

static void check_event(struct sim_world *w, uint32_t m, const struct sl_node_event *e)
{
    uint32_t key = key_of(e->key);
    if (key == SIM_KEYS) return;
    if (e->type == SL_NODE_EVENT_RELEASED || e->type == SL_NODE_EVENT_EXPIRED)
        check_ended(w, m, key, e->fence);
}

/* All states in memory must be in the file. */
static void check_memory(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_item item;
    uint64_t cursor = 0;
    uint32_t seen = 0;
    while (sl_node_item(x->node, &cursor, &item)) {
        uint32_t key = item.kind == SL_ITEM_KEY ? key_of(item.key) : SIM_KEYS;
        if (key == SIM_KEYS) continue;
        const struct sim_replayed *k = written(x, key);
        seen |= 1u << key;
        if (!k->is || k->bytes != item.value.n ||
            memcmp(x->journal.file + k->at, item.value.at, k->bytes) != 0)
            sim_checker_wrong(&w->checker, "n%u has not written the state of k%u",
                              m + 1, key);
    }
    for (uint32_t key = 0; key < SIM_KEYS; key++)
        if ((seen & 1u << key) == 0 && written(x, key)->is)
            sim_checker_wrong(&w->checker, "n%u has not written that it forgot k%u",
                              m + 1, key);
}

#define MEMORY_EVERY 16 /* Not at every order, because it is slow. */

void sim_audit_order(struct sim_world *w, uint32_t m, const struct sl_node_order *o)
{
    struct sim_machine *x = &w->machines[m];
    bool shows = o->type == SL_NODE_ORDER_SEND || o->type == SL_NODE_ORDER_ANSWER ||
                 o->type == SL_NODE_ORDER_EVENT;
    /* First, because the other checks inspect the node, which lets leases expire. */
    if (shows && ++x->shown % MEMORY_EVERY == 0 &&
        !sl_journal_failed(x->journal.journal))
        check_memory(w, m);
    if (o->type == SL_NODE_ORDER_EVENT) check_event(w, m, o->event);
    if (o->type != SL_NODE_ORDER_SEND) return;
    const struct sl_message *msg = o->message;
    if (msg->type == SL_MESSAGE_VOTE) check_votes(w, m, o->to, msg);
    if (msg->type == SL_MESSAGE_TEACH && key_of(msg->key) < SIM_KEYS)
        check_shown(w, m, key_of(msg->key), msg->fence);
}
