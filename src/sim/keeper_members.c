/* keeper_members.c - the membership of a keeper cluster, and operators that change it: NODES ADD and NODES
 * REMOVE, one node at a time. Each node learns of a change at another time. As in src/server/, a node keeps
 * its links to the old members for a while. */
#include "sim/keeper.h"

#define PAUSE_US 3000000 /* Operators wait at least this long between two changes. */

/* What happens in an event. */
enum { CHANGE, LEARN, UNLINK, REMOVED };

static void schedule(struct ksim_world *w, uint32_t node, uint32_t what, int64_t us)
{
    ksim_schedule(w, us,
                  (struct sim_event){.type = SIM_EVENT_OPERATOR,
                                     .node = node,
                                     .other = what,
                                     .number = w->nodes[node].life});
}

bool ksim_is_member(const struct ksim_world *w, uint32_t i)
{
    return (w->members >> (i + 1) & 1) != 0;
}

static uint32_t count(uint32_t members)
{
    uint32_t n = 0;
    for (; members != 0; members &= members - 1) n++;
    return n;
}

bool ksim_members_link(const struct ksim_world *w, uint32_t a, uint32_t b)
{
    return (w->nodes[a].peers >> (b + 1) & 1) != 0 &&
           (w->nodes[b].peers >> (a + 1) & 1) != 0;
}

/* Tell the election of a node which nodes are members. */
static void tell(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    uint32_t ids[KSIM_NODES], k = 0;
    for (uint32_t o = 0; o < w->node_count; o++)
        if ((n->members >> (o + 1) & 1) != 0) ids[k++] = o + 1;
    sl_election_members(n->f.election, ksim_node_now(w, i).ms, ids, k);
}

void ksim_members_start(struct ksim_world *w, uint32_t i)
{
    w->nodes[i].members = w->nodes[i].peers = w->members;
    tell(w, i);
}

void ksim_members_begin(struct ksim_world *w)
{
    w->members = (2u << w->node_count) - 2;
    if (!ksim_has_fault(w, KSIM_FAULT_MEMBERS)) return;
    if (w->node_count > 3)
        w->members &= ~(2u << sl_random_below(&w->random, w->node_count));
    schedule(w, 0, CHANGE, PAUSE_US);
}

/* All nodes learn of the change, some of them late. */
static void announce(struct ksim_world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++)
        schedule(
            w, i, LEARN,
            sl_random_between(&w->random, 1000,
                              sl_random_maybe(&w->random, 2000) ? 2000000 : 100000));
}

static void add(struct ksim_world *w, uint32_t i)
{
    KSIM_TRACE(w, "an operator adds n%u", i + 1);
    w->members |= 2u << i;
    if (!w->nodes[i].up) ksim_node_start(w, i);
}

static void remove_node(struct ksim_world *w, uint32_t i)
{
    KSIM_TRACE(w, "an operator removes n%u", i + 1);
    w->members &= ~(2u << i);
    if (sl_random_maybe(&w->random, 3000)) w->mistake = i + 1;
    else if (sl_random_maybe(&w->random, 5000))
        schedule(w, i, REMOVED, sl_random_between(&w->random, 0, 8000000));
}

static void change(struct ksim_world *w)
{
    uint32_t i = w->mistake != 0 ? w->mistake - 1
                                 : sl_random_below(&w->random, w->node_count);
    if (w->healed) return;
    w->mistake = 0;
    w->counts.members++;
    if (!ksim_is_member(w, i)) add(w, i);
    else if (count(w->members) > 2) remove_node(w, i);
    announce(w);
    schedule(w, 0, CHANGE,
             w->mistake != 0 ? sl_random_between(&w->random, 100000, 1500000)
                             : PAUSE_US + sl_random_between(&w->random, 0, 4000000));
}

static void learn(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    if (!n->up || n->members == w->members) return;
    n->members = w->members;
    n->peers |= w->members;
    schedule(w, i, UNLINK, sl_random_between(&w->random, 1000, 1000000));
    tell(w, i);
    ksim_node_settle(w, i);
}

void ksim_members_event(struct ksim_world *w, const struct sim_event *e)
{
    struct ksim_node *n = &w->nodes[e->node];
    switch (e->other) {
        case CHANGE: change(w); break;
        case LEARN: learn(w, e->node); break;
        case UNLINK:
            if (n->up && n->life == e->number) n->peers = n->members;
            break;
        default: /* An operator stops a node that was removed. */
            if (n->up && !ksim_is_member(w, e->node)) ksim_node_kill(w, e->node);
            break;
    }
}

void ksim_members_heal(struct ksim_world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++)
        if (!ksim_is_member(w, i) && w->nodes[i].up) ksim_node_kill(w, i);
}
