/* keeper_net.c - links between nodes. A link is a TCP connection: its messages arrive in order, or
 * are lost when it ends; a cut delays them. Both ends open it together, and each end notices
 * separately that it is broken. Messages of different connections, and of the two directions of one
 * connection, overtake each other. */
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

#define SILENCE_US \
    500000 /* When a node closes a silent link, as src/server/net/links.c. */

#define CALL_US \
    2000000 /* How long a node tries to connect, as src/server/net/links.c. */

#define PAUSED_US 2100000 /* A node does not notice a shorter pause. */

int64_t ksim_net_delay(struct ksim_world *w)
{
    struct sl_random *r = &w->random;
    if (ksim_has_fault(w, KSIM_FAULT_DELAY) && sl_random_maybe(r, 500))
        return sl_random_between(r, 50, 400000);
    return 50 + sl_random_below(r, (uint32_t)w->short_us);
}

/* ---- messages ---- */

bool ksim_net_has_space(const struct ksim_world *w, uint32_t i, uint32_t to_id)
{
    return to_id == 0 || to_id > w->node_count ||
           w->nodes[i].links[to_id - 1].unsent < w->space;
}

/* A cut while a node hands over its ledger. */
static void cut_handover(struct ksim_world *w, uint32_t from, uint32_t to)
{
    int64_t until_us = w->now_us + sl_random_between(&w->random, 50000, 2000000);
    struct ksim_link *x = sl_random_maybe(&w->random, 5000) ? &w->nodes[from].links[to]
                                                            : &w->nodes[to].links[from];
    if (until_us > x->cut_until_us) x->cut_until_us = until_us;
}

static void put(struct ksim_world *w, uint32_t from, uint32_t to,
                const struct sl_failover_message *m, bool forged)
{
    struct sl_resp_writer out;
    struct ksim_link *link = &w->nodes[from].links[to];
    sl_resp_writer_init(&out, 1 << 20);
    sl_failover_write(&out, m);
    struct sim_event e = {.type = SIM_EVENT_MESSAGE,
                          .node = to,
                          .other = from,
                          .link = link->number,
                          .number = w->nodes[to].life,
                          .forged = forged ? m->type : 0};
    e.bytes = sl_resp_take(&out, &e.byte_count);
    if (e.bytes == NULL) abort();
    int64_t at = w->now_us + ksim_net_delay(w);
    if (w->now_us < link->cut_until_us) at += link->cut_until_us - w->now_us;
    if (at <= link->last_us) at = link->last_us + 1;
    link->last_us = at;
    link->unsent += e.byte_count;
    ksim_schedule(w, at - w->now_us, e);
}

void ksim_net_forge(struct ksim_world *w, uint32_t from, uint32_t to,
                    const struct sl_failover_message *m)
{
    if (w->setup.trace) ksim_trace_message(w, "> (forged)", from, to, m);
    ksim_mix(w, (uint64_t)m->type << 56 ^ (uint64_t)w->now_us << 4 ^ from);
    if (w->nodes[from].links[to].up) put(w, from, to, m, true);
}

void ksim_net_send(struct ksim_world *w, uint32_t from, uint32_t to_id,
                   const struct sl_failover_message *m)
{
    if (to_id == 0 || to_id > w->node_count || to_id == from + 1) {
        KSIM_WRONG(w, "n%u sends to node %u", from + 1, to_id);
        return;
    }
    uint32_t to = to_id - 1;
    struct ksim_link *link = &w->nodes[from].links[to];
    if (w->setup.trace)
        ksim_trace_message(w, link->up ? ">" : "(no link)", from, to, m);
    ksim_mix(w, (uint64_t)m->type << 56 ^ (uint64_t)w->now_us << 4 ^ from ^ m->fence ^
                    m->session << 32 ^ m->grant.fence);
    if (!link->up) return;
    bool hands_over = m->type == SL_FAILOVER_COME || m->type == SL_FAILOVER_HERE ||
                      m->type == SL_FAILOVER_READY;
    if (hands_over && ksim_has_fault(w, KSIM_FAULT_CUT) &&
        sl_random_maybe(&w->random, 200))
        cut_handover(w, from, to);
    ksim_rules_sent(w, from, to, m);
    if (m->type == SL_FAILOVER_RECLAIM) ksim_audit_reclaim(w, from, m->grant.fence);
    put(w, from, to, m, false);
    ksim_forge_after(w, from, to, m);
}

void ksim_net_deliver(struct ksim_world *w, const struct sim_event *e)
{
    struct ksim_link *out = &w->nodes[e->other].links[e->node];
    const struct ksim_link *in = &w->nodes[e->node].links[e->other];
    bool was_full = out->unsent >= w->space;
    if (out->number == e->link && out->up) {
        out->unsent -= e->byte_count;
        if (was_full && ksim_node_runs(w, e->other)) ksim_node_settle(w, e->other);
    }
    /* The sender may have been killed: what it sent before arrives. */
    if (!w->nodes[e->node].up || !in->up || in->number != e->link) return;
    if (e->forged != 0 && !ksim_forge_receive(w, e->node, e->forged)) return;
    ksim_node_receive(w, e->node, e->other + 1,
                      (struct sl_bytes){e->bytes, e->byte_count});
    if (e->forged != 0) ksim_forge_received(w, e->node);
}

/* ---- links ---- */

/* Return whether packets of `from` reach `to`. */
static bool is_reachable(const struct ksim_world *w, uint32_t from, uint32_t to)
{
    return w->now_us >= w->nodes[from].links[to].cut_until_us;
}

/* Return whether messages of `from` arrive at `to`. */
static bool is_heard(const struct ksim_world *w, uint32_t from, uint32_t to)
{
    const struct ksim_node *n = &w->nodes[from];
    return n->up && w->now_us >= n->paused_us && is_reachable(w, from, to);
}

static void end_link(struct ksim_world *w, uint32_t a, uint32_t b, bool replaced,
                     enum sl_peer_state sight)
{
    struct ksim_node *n = &w->nodes[a];
    struct sl_now now = ksim_node_now(w, a);
    n->links[b].up = false;
    n->links[b].broken_us = -1;
    n->links[b].unsent = 0;
    n->lead_linked &= ~(1u << (b + 1));
    n->links[b].call_us = 0;
    n->links[b].sees_closed = sight == SL_PEER_CLOSED;
    if (sight == SL_PEER_CLOSED) n->links[b].closed_us = w->now_us;
    ksim_audit_health(w);
    KSIM_TRACE(w, "n%u has no link to n%u%s", a + 1, b + 1,
               replaced                  ? ": replaced"
               : sight == SL_PEER_CLOSED ? ": closed"
                                         : ": silent");
    sl_failover_unlinked(&n->f, now.ms, b + 1);
    ksim_node_orders(w, a);
    if (!replaced) sl_failover_sight(&n->f, now.ms, b + 1, sight);
    ksim_node_settle(w, a);
}

static void begin_link(struct ksim_world *w, uint32_t a, uint32_t b, uint64_t number)
{
    struct ksim_node *n = &w->nodes[a];
    struct ksim_link *x = &n->links[b];
    if (x->up) end_link(w, a, b, true, SL_PEER_CLOSED);
    x->up = true;
    x->sees_closed = false;
    x->call_us = 0;
    x->number = number;
    x->broken_us = -1;
    x->last_us = 0;
    x->heard_us = w->now_us;
    x->unsent = 0;
    KSIM_TRACE(w, "n%u has a link to n%u", a + 1, b + 1);
    sl_failover_linked(&n->f, ksim_node_now(w, a).ms, b + 1);
    ksim_node_settle(w, a);
}

/* A node without a link tries to connect. */
static void call(struct ksim_world *w, uint32_t a, uint32_t b)
{
    struct ksim_node *n = &w->nodes[a];
    bool there = is_reachable(w, a, b) && is_reachable(w, b, a);
    bool accepts = ksim_members_link(w, a, b);
    if (!ksim_node_runs(w, a) || !sl_random_maybe(&w->random, 4000)) return;
    if (there && accepts && ksim_node_runs(w, b)) {
        uint64_t number = ++w->links;
        begin_link(w, a, b, number);
        begin_link(w, b, a, number);
        return;
    }
    bool closed = there && (!w->nodes[b].up || !accepts);
    struct ksim_link *x = &n->links[b];
    if (!closed && x->call_us == 0) x->call_us = w->now_us;
    if (!closed && w->now_us - x->call_us < CALL_US) return;
    x->call_us = 0;
    x->sees_closed = closed;
    sl_failover_sight(&n->f, ksim_node_now(w, a).ms, b + 1,
                      closed ? SL_PEER_CLOSED : SL_PEER_SILENT);
    ksim_node_settle(w, a);
}

/* Return whether node `a` notices that the other end has closed the connection. */
static bool is_closed(const struct ksim_world *w, uint32_t a, uint32_t b)
{
    const struct ksim_link *x = &w->nodes[a].links[b], *y = &w->nodes[b].links[a];
    bool ended = !w->nodes[b].up || !y->up || y->number != x->number;
    return ended && is_reachable(w, b, a);
}

static void update_end(struct ksim_world *w, uint32_t a, uint32_t b)
{
    struct ksim_link *x = &w->nodes[a].links[b];
    if (!ksim_node_runs(w, a)) return;
    if (!x->up) {
        call(w, a, b);
        return;
    }
    if (is_heard(w, b, a)) x->broken_us = -1;
    else if (x->broken_us < 0) x->broken_us = w->now_us;
    if (is_closed(w, a, b) || !ksim_members_link(w, a, b))
        end_link(w, a, b, false, SL_PEER_CLOSED);
    else if (x->broken_us >= 0 && w->now_us - x->broken_us > SILENCE_US)
        end_link(w, a, b, false, SL_PEER_SILENT);
}

void ksim_net_update(struct ksim_world *w)
{
    ksim_audit_health(w);
    for (uint32_t a = 0; a < w->node_count; a++)
        for (uint32_t b = 0; b < w->node_count; b++)
            if (a != b) update_end(w, a, b);
    ksim_rules_health(w);
}

void ksim_net_reset(struct ksim_world *w, uint32_t a, uint32_t b)
{
    if (!ksim_node_runs(w, a) || !w->nodes[a].links[b].up) return;
    ksim_forge_come(w, a, b);
    end_link(w, a, b, false, SL_PEER_CLOSED);
}

/* Do not count the time for which a node did not run as silence of other nodes. It may notice that another
 * node has closed its connection before it reads the messages that arrived on other connections. */
void ksim_net_resume(struct ksim_world *w, uint32_t i)
{
    for (uint32_t b = 0; b < w->node_count; b++) {
        w->nodes[i].links[b].broken_us = -1;
        /* It does not notice that it was paused if that was short. */
        if (w->now_us - w->nodes[i].paused_from_us > PAUSED_US) {
            w->nodes[i].links[b].heard_us = w->now_us;
            w->nodes[i].links[b].sees_closed = false;
        }
    }
    for (uint32_t b = 0; b < w->node_count; b++)
        if (b != i && sl_random_maybe(&w->random, 3000)) update_end(w, i, b);
}
