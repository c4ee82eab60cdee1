/* net.c - links between nodes. A link is what a connection is: it is made by both ends, each
 * end notices by itself that it is gone, and what is under way then is gone with it (unless
 * the seed has messages that outlive all that). */
#include <stdlib.h>
#include <string.h>

#include "sim/world.h"

#define SILENCE_US 500000 /* After that a silent peer is given up. */

/* ---- messages ---- */

int64_t sl_net_delay(struct world *w)
{
    struct sl_random *r = &w->random;
    if (sl_has_fault(w, FAULT_DELAY) && sl_random_maybe(r, 500))
        return sl_random_between(r, 50, w->tail_us);
    return 50 + sl_random_below(r, (uint32_t)w->short_us);
}

static void take_bytes(struct parcel *p, struct sl_bytes *b, size_t *used)
{
    if (b->n > SL_PARCEL_BYTES - *used) abort();
    if (b->n > 0) memcpy(p->bytes + *used, b->at, b->n);
    b->at = p->bytes + *used;
    *used += b->n;
}

static struct parcel *wrap(struct world *w, const struct sl_message *m)
{
    struct parcel *p = sl_parcel_new(&w->queue);
    size_t used = 0;
    p->message = *m;
    take_bytes(p, &p->message.key, &used);
    take_bytes(p, &p->message.value, &used);
    take_bytes(p, &p->message.note, &used);
    return p;
}

/* Two of its kind that are late together do what one alone cannot: so they are many. */
static bool takes_ages(struct world *w, const struct sl_message *m)
{
    if (w->aged == SL_MESSAGE_NONE) return sl_random_maybe(&w->random, 200);
    return m->type == w->aged && sl_random_maybe(&w->random, 4000);
}

static void post(struct world *w, uint32_t from, uint32_t to,
                 const struct sl_message *m)
{
    struct sim_link *link = &w->machines[from].links[to];
    int64_t at = w->now_us + sl_net_delay(w);
    if (sl_has_fault(w, FAULT_AGES) && takes_ages(w, m))
        at = w->now_us + sl_random_between(&w->random, 0, w->ages_us);
    else if ((w->faults & 1u << FAULT_OVERTAKE) == 0) {
        if (at <= link->last_us) at = link->last_us + 1;
        link->last_us = at;
    }
    struct happening h = {.type = HAPPENS_MESSAGE,
                          .node = to,
                          .other = from,
                          .link = w->connection[from][to],
                          .parcel = wrap(w, m)};
    sl_later(w, at - w->now_us, h);
}

void sl_net_send(struct world *w, uint32_t from, sl_node_id id,
                 const struct sl_message *m)
{
    uint32_t to = id - 1;
    if (to >= SL_SIM_NODES || to == from) {
        sl_books_wrong(&w->books, "n%u sends to node %u", from + 1, id);
        return;
    }
    const struct sim_link *link = &w->machines[from].links[to];
    const char *lost = NULL;
    if (!link->up) lost = "(no link)";
    else if (w->now_us < link->cut_until_us) lost = "(cut)";
    else if (sl_has_fault(w, FAULT_LOSS) && sl_random_maybe(&w->random, w->loss))
        lost = "(lost)";
    else if (w->heal_loses && sl_random_maybe(&w->random, 200)) lost = "(lost)";
    if (w->setup.trace) sl_trace_message(w, lost ? lost : ">", from, to, m);
    if (lost != NULL) return;
    post(w, from, to, m);
    if (sl_has_fault(w, FAULT_DOUBLE) && sl_random_maybe(&w->random, w->doubles))
        post(w, from, to, m);
}

void sl_net_arrives(struct world *w, const struct happening *h)
{
    const struct sim_link *link = &w->machines[h->node].links[h->other];
    bool old = h->link != w->connection[h->other][h->node];
    if (!link->up || (old && !sl_has_fault(w, FAULT_LATE))) return;
    if (w->setup.trace)
        sl_trace_message(w, old ? "<<" : "<", h->node, h->other, &h->parcel->message);
    sl_node_receive(w->machines[h->node].node, sl_machine_now(w, h->node),
                    sl_id_of(h->other), &h->parcel->message);
    sl_machine_settle(w, h->node);
}

/* ---- links ---- */

/* Whether what `from` says comes to `to`. */
static bool is_heard(const struct world *w, uint32_t from, uint32_t to)
{
    const struct machine *x = &w->machines[from];
    return x->node != NULL && w->now_us >= x->paused_us &&
           w->now_us >= x->links[to].cut_until_us;
}

static bool is_wanted(const struct world *w, uint32_t a, uint32_t b)
{
    return (w->machines[a].peers & 1u << sl_id_of(b)) != 0 ||
           (w->machines[b].peers & 1u << sl_id_of(a)) != 0;
}

/* A server opens its port when its birth is on the disk. */
static bool is_open(const struct world *w, uint32_t m)
{
    const struct machine *x = &w->machines[m];
    return x->node != NULL && w->now_us >= x->paused_us && x->disk.birth != 0 &&
           x->disk.birth == sl_node_birth(x->node);
}

static bool tell(struct world *w, uint32_t m, uint32_t other, bool up)
{
    struct machine *x = &w->machines[m];
    const char *why = "";
    uint64_t birth = up ? sl_node_birth(w->machines[other].node) : 0;
    bool ok = sl_node_link(x->node, sl_machine_now(w, m), sl_id_of(other), up, birth,
                           &why);
    x->links[other].up = up && ok;
    x->links[other].broken_us = -1;
    TRACE(w, "n%u %s n%u%s%s", m + 1,
          !up  ? "has no link to"
          : ok ? "has a link to"
               : "does not talk to",
          other + 1, ok ? "" : ": ", ok ? "" : why);
    sl_machine_settle(w, m);
    return ok;
}

static void connect(struct world *w, uint32_t a, uint32_t b)
{
    w->connection[a][b] = w->connection[b][a] = ++w->connections;
    w->machines[a].links[b].last_us = w->machines[b].links[a].last_us = 0;
    if (!tell(w, a, b, true)) return;
    if (!tell(w, b, a, true)) tell(w, a, b, false);
}

static void may_connect(struct world *w, uint32_t a, uint32_t b)
{
    const struct sim_link *x = &w->machines[a].links[b], *y = &w->machines[b].links[a];
    if (x->up || y->up || !is_wanted(w, a, b)) return;
    if (!is_open(w, a) || !is_open(w, b) || !is_heard(w, a, b) || !is_heard(w, b, a))
        return;
    if (sl_random_maybe(&w->random, 4000)) connect(w, a, b);
}

/* Whether the end at `a` notices that its link to `b` is gone. */
static bool notices(const struct world *w, uint32_t a, uint32_t b)
{
    const struct sim_link *x = &w->machines[a].links[b];
    bool other_up = w->machines[b].links[a].up;
    if (!is_wanted(w, a, b)) return true;
    if (w->machines[b].node == NULL || is_heard(w, b, a)) return !other_up;
    bool silent = x->broken_us >= 0 && w->now_us - x->broken_us > SILENCE_US;
    return silent && !sl_has_fault(w, FAULT_STEADY);
}

static void look_at_end(struct world *w, uint32_t a, uint32_t b)
{
    struct machine *x = &w->machines[a];
    if (x->node == NULL || w->now_us < x->paused_us) return;
    if (is_heard(w, b, a)) x->links[b].broken_us = -1;
    else if (x->links[b].broken_us < 0) x->links[b].broken_us = w->now_us;
    if (x->links[b].up && notices(w, a, b)) tell(w, a, b, false);
}

void sl_net_look(struct world *w)
{
    for (uint32_t a = 0; a < SL_SIM_NODES; a++) {
        for (uint32_t b = 0; b < SL_SIM_NODES; b++) {
            if (a != b) look_at_end(w, a, b);
            if (a < b) may_connect(w, a, b);
        }
    }
}

void sl_net_killed(struct world *w, uint32_t m)
{
    for (uint32_t o = 0; o < SL_SIM_NODES; o++) {
        w->machines[m].links[o].up = false;
        w->machines[m].links[o].broken_us = -1;
    }
    w->machines[m].peers = 0;
}
