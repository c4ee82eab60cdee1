/* net.c - links between nodes. A link models a TCP connection: both ends open it
 * together, and each end notices separately that it is broken. Messages in transit are
 * lost with the link, unless the seed has the fault "late". */
#include <stdlib.h>
#include <string.h>

#include "majority/membership.h"
#include "sim/world.h"

#define SILENCE_US 500000 /* When a node gives up a silent peer. */

/* ---- messages ---- */

int64_t sim_net_delay(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    if (sim_has_fault(w, SIM_FAULT_DELAY) && sl_random_maybe(r, 500))
        return sl_random_between(r, 50, w->tail_us);
    return 50 + sl_random_below(r, (uint32_t)w->short_us);
}

static void take_bytes(struct sim_packet *p, struct sl_bytes *b, size_t *used)
{
    if (b->n > SIM_PACKET_BYTES - *used) abort();
    if (b->n > 0) memcpy(p->bytes + *used, b->at, b->n);
    b->at = p->bytes + *used;
    *used += b->n;
}

static struct sim_packet *wrap(struct sim_world *w, const struct sl_message *m)
{
    struct sim_packet *p = sim_packet_new(&w->queue);
    size_t used = 0;
    p->message = *m;
    take_bytes(p, &p->message.key, &used);
    take_bytes(p, &p->message.value, &used);
    take_bytes(p, &p->message.note, &used);
    take_bytes(p, &p->message.client, &used);
    take_bytes(p, &p->message.request, &used);
    return p;
}

/* Return whether a message is very late. Some bugs need two late messages of the same
 * type, so the late messages of a seed are often of one type. */
static bool takes_ages(struct sim_world *w, const struct sl_message *m)
{
    if (w->aged == SL_MESSAGE_NONE) return sl_random_maybe(&w->random, 200);
    return m->type == w->aged && sl_random_maybe(&w->random, 4000);
}

static void post(struct sim_world *w, uint32_t from, uint32_t to,
                 const struct sl_message *m)
{
    struct sim_link *link = &w->machines[from].links[to];
    int64_t at = w->now_us + sim_net_delay(w);
    if (sim_has_fault(w, SIM_FAULT_AGES) && takes_ages(w, m))
        at = w->now_us + sl_random_between(&w->random, 0, w->ages_us);
    else if ((w->faults & 1ull << SIM_FAULT_OVERTAKE) == 0) {
        if (at <= link->last_us) at = link->last_us + 1;
        link->last_us = at;
    }
    struct sim_event e = {.type = SIM_EVENT_MESSAGE,
                          .node = to,
                          .other = from,
                          .link = w->connection[from][to],
                          .packet = wrap(w, m)};
    sim_schedule(w, at - w->now_us, e);
}

void sim_net_send(struct sim_world *w, uint32_t from, sl_node_id id,
                  const struct sl_message *m)
{
    uint32_t to = id - 1;
    if (to >= SIM_NODES || to == from) {
        sim_checker_wrong(&w->checker, "n%u sends to node %u", from + 1, id);
        return;
    }
    const struct sim_link *link = &w->machines[from].links[to];
    const char *lost = NULL;
    if (!link->up) lost = "(no link)";
    else if (w->now_us < link->cut_until_us) lost = "(cut)";
    else if (sim_has_fault(w, SIM_FAULT_LOSS) && sl_random_maybe(&w->random, w->loss))
        lost = "(lost)";
    else if (w->heal_loses && sl_random_maybe(&w->random, 200)) lost = "(lost)";
    if (w->setup.trace) sim_trace_message(w, lost ? lost : ">", from, to, m);
    if (lost != NULL) return;
    post(w, from, to, m);
    if (sim_has_fault(w, SIM_FAULT_DOUBLE) && sl_random_maybe(&w->random, w->doubles))
        post(w, from, to, m);
}

void sim_net_deliver(struct sim_world *w, const struct sim_event *e)
{
    const struct sim_link *link = &w->machines[e->node].links[e->other];
    bool old = e->link != w->connection[e->other][e->node];
    if (!link->up || (old && !sim_has_fault(w, SIM_FAULT_LATE))) return;
    if (w->setup.trace)
        sim_trace_message(w, old ? "<<" : "<", e->node, e->other, &e->packet->message);
    sim_audit_received(w, e->node, sim_node_id(e->other), &e->packet->message);
    sl_node_receive(w->machines[e->node].node, sim_machine_now(w, e->node),
                    sim_node_id(e->other), &e->packet->message);
    sim_machine_settle(w, e->node);
}

/* ---- links ---- */

/* Return whether messages from `from` reach `to`. */
static bool is_heard(const struct sim_world *w, uint32_t from, uint32_t to)
{
    const struct sim_machine *x = &w->machines[from];
    return x->node != NULL && w->now_us >= x->paused_us &&
           w->now_us >= x->links[to].cut_until_us;
}

static bool is_wanted(const struct sim_world *w, uint32_t a, uint32_t b)
{
    return (w->machines[a].peers & 1u << sim_node_id(b)) != 0 ||
           (w->machines[b].peers & 1u << sim_node_id(a)) != 0;
}

/* Return whether a node accepts connections. A server opens its port only after the
 * record of its start is on disk. */
static bool is_open(const struct sim_world *w, uint32_t m)
{
    const struct sim_machine *x = &w->machines[m];
    return x->node != NULL && w->now_us >= x->paused_us && x->disk.birth != 0 &&
           x->disk.birth == sl_node_identity(x->node)->birth;
}

static bool set_link(struct sim_world *w, uint32_t m, uint32_t other, bool up)
{
    struct sim_machine *x = &w->machines[m];
    const char *why = "";
    bool ok = sl_node_link(x->node, sim_machine_now(w, m), sim_node_id(other), up,
                           up ? sl_node_identity(w->machines[other].node) : NULL, &why);
    if (up && ok && w->machines[other].is_old && !x->is_old &&
        sl_membership_find(sl_node_membership(x->node), sim_node_id(other)) >= 0)
        sim_checker_wrong(&w->checker,
                          "n%u accepts n%u, whose directory is an old copy", m + 1,
                          other + 1);
    x->links[other].up = up && ok;
    x->links[other].broken_us = -1;
    SIM_TRACE(w, "n%u %s n%u%s%s", m + 1,
              !up  ? "has no link to"
              : ok ? "has a link to"
                   : "does not talk to",
              other + 1, ok ? "" : ": ", ok ? "" : why);
    sim_machine_settle(w, m);
    return ok;
}

static void connect(struct sim_world *w, uint32_t a, uint32_t b)
{
    w->connection[a][b] = w->connection[b][a] = ++w->connections;
    w->machines[a].links[b].last_us = w->machines[b].links[a].last_us = 0;
    if (!set_link(w, a, b, true)) return;
    if (!set_link(w, b, a, true)) set_link(w, a, b, false);
}

static void may_connect(struct sim_world *w, uint32_t a, uint32_t b)
{
    const struct sim_link *x = &w->machines[a].links[b], *y = &w->machines[b].links[a];
    if (x->up || y->up || !is_wanted(w, a, b)) return;
    if (!is_open(w, a) || !is_open(w, b) || !is_heard(w, a, b) || !is_heard(w, b, a))
        return;
    if (sl_random_maybe(&w->random, 4000)) connect(w, a, b);
}

/* Return whether node `a` notices that its link to `b` is broken. */
static bool notices(const struct sim_world *w, uint32_t a, uint32_t b)
{
    const struct sim_link *x = &w->machines[a].links[b];
    bool other_up = w->machines[b].links[a].up;
    if (!is_wanted(w, a, b)) return true;
    if (w->machines[b].node == NULL || is_heard(w, b, a)) return !other_up;
    bool silent = x->broken_us >= 0 && w->now_us - x->broken_us > SILENCE_US;
    return silent && !sim_has_fault(w, SIM_FAULT_STEADY);
}

static void update_end(struct sim_world *w, uint32_t a, uint32_t b)
{
    struct sim_machine *x = &w->machines[a];
    if (x->node == NULL || w->now_us < x->paused_us) return;
    if (is_heard(w, b, a)) x->links[b].broken_us = -1;
    else if (x->links[b].broken_us < 0) x->links[b].broken_us = w->now_us;
    if (x->links[b].up && notices(w, a, b)) set_link(w, a, b, false);
}

void sim_net_update(struct sim_world *w)
{
    for (uint32_t a = 0; a < SIM_NODES; a++) {
        for (uint32_t b = 0; b < SIM_NODES; b++) {
            if (a != b) update_end(w, a, b);
            if (a < b) may_connect(w, a, b);
        }
    }
}

void sim_net_cut(struct sim_world *w, uint32_t m, uint32_t others)
{
    for (uint32_t o = 0; o < SIM_NODES; o++)
        if ((others & 1u << o) != 0 && w->machines[m].links[o].up)
            set_link(w, m, o, false);
}

void sim_net_drop(struct sim_world *w, uint32_t m)
{
    for (uint32_t o = 0; o < SIM_NODES; o++) {
        w->machines[m].links[o].up = false;
        w->machines[m].links[o].broken_us = -1;
    }
    w->machines[m].peers = 0;
}
