/* deadlock.c - finds cycles in the wait-for graph, and chooses the victims that
 * restart.
 *
 * Before a transaction t begins to wait, there is no cycle, so every cycle that its
 * wait closes goes through t. Therefore a depth-first search from t never meets a
 * transaction twice on one path. A transaction from which no path leads to t is
 * *clear*:
 *
 *     t -> a -> b -> t      the youngest of t, a, b is the victim; say a
 *     t -> c -> b           b is known to reach t: the victim is the youngest of t, c
 *                           and b's path
 *     t -> d -> e           e waits for nobody: e is clear, and then d
 *
 * The search finds all victims before the first of them restarts, so the graph does
 * not change during the search. A restart only removes edges: transactions that get
 * a lock because of it run later (sl_tx_run_ready()). So a clear transaction stays
 * clear during the whole search, however many victims there are.
 *
 * The search follows no edge twice. Each item has a cursor into its holders and one
 * into its queue, and every transaction before a cursor is clear or a victim. All
 * waiters that want the same mode share a cursor. A waiter that is itself a holder
 * skips itself at the cursor. The other waiters still find it, because a holder that
 * wants a stronger mode is at the head of the queue. Only t has its own cursors,
 * because the other waiters must find t.
 *
 * The search does not repeat a path that is known to reach t. If a transaction
 * ahead on such a path becomes a victim, the transactions for which it was the
 * youngest ahead have no known path any more. The search visits them again and
 * continues at their cursors. Other transactions may have a path through the victim
 * with a different youngest transaction. The search does not notice that their path is
 * broken, so a transaction may become a victim unnecessarily. That is rare, and never
 * happens to the oldest transaction. */
#include <string.h>

#include "tx/manager_internal.h"

#define CYCLE_SHOWN_MAX 64u /* A reply names at most this many. */

struct search {
    struct sl_tx_manager *m;
    struct sl_tx *t;
    struct sl_list *next_holder, *next_waiter; /* The cursors of t. */
    struct sl_tx *victims;                     /* The last victim; linked by `next`. */
};

/* --- Edges of the graph ------------------------------------------------------------- */

static bool is_settled(const struct sl_tx_manager *m, const struct sl_tx *x)
{
    return x->search == m->searches &&
           (x->mark == SL_TX_MARK_CLEAR || x->mark == SL_TX_MARK_VICTIM);
}

static void reset_cursors(const struct sl_tx_manager *m, struct sl_tx_item *i)
{
    i->search = m->searches;
    for (int mode = 0; mode < SL_TX_MODES; mode++) i->next_holder[mode] = i->locks.next;
    i->next_waiter = i->queue.next;
}

/* Returns the next transaction that l's transaction waits for and that is neither
 * clear nor a victim, or NULL. */
static struct sl_tx *next_blocker(struct search *s, const struct sl_tx_lock *l)
{
    struct sl_tx_manager *m = s->m;
    struct sl_tx_item *i = l->item;
    bool own = l->tx == s->t;
    if (i->search != m->searches) reset_cursors(m, i);
    struct sl_list **holder = own ? &s->next_holder : &i->next_holder[l->wanted];
    struct sl_list **waiter = own ? &s->next_waiter : &i->next_waiter;
    for (; *holder != &i->locks; *holder = (*holder)->next) {
        const struct sl_tx_lock *o = sl_container_of(*holder, struct sl_tx_lock,
                                                     in_item);
        m->stats.steps++;
        if (o != l && !sl_tx_mode_fits(l->wanted, o->mode) && !is_settled(m, o->tx))
            return o->tx;
    }
    for (; *waiter != &l->in_queue && *waiter != &i->queue; *waiter = (*waiter)->next) {
        const struct sl_tx_lock *o = sl_container_of(*waiter, struct sl_tx_lock,
                                                     in_queue);
        m->stats.steps++;
        if (!is_settled(m, o->tx)) return o->tx;
    }
    return NULL;
}

/* Whether another transaction waits for t. Most transactions that begin to wait have
 * no waiters, so they close no cycle. */
static bool is_waited_for(struct sl_tx_manager *m, const struct sl_tx *t)
{
    for (const struct sl_list *a = t->locks.next; a != &t->locks; a = a->next) {
        const struct sl_tx_lock *l = sl_container_of(a, struct sl_tx_lock, in_tx);
        uint32_t self = l == t->waits_for ? 1 : 0;
        m->stats.steps++;
        if (l->mode != SL_TX_MODE_NONE && l->item->waiter_count > self) return true;
    }
    /* The waiters behind t in the queue also wait for t. */
    return t->waits_for->in_queue.next != &t->waits_for->item->queue;
}

/* --- Victims ------------------------------------------------------------------------ */

static struct sl_tx *younger(struct sl_tx *a, struct sl_tx *b)
{
    return a->id > b->id ? a : b;
}

static void visit(const struct search *s, struct sl_tx *x, struct sl_tx *parent)
{
    x->search = s->m->searches;
    x->mark = SL_TX_MARK_OPEN;
    x->parent = parent;
    x->youngest = parent == NULL ? x : younger(parent->youngest, x);
}

/* Store the cycle in the victim's answer: the path from t to x, then from y back to
 * t. When out of memory, the answer names no cycle. */
static void report_cycle(const struct search *s, struct sl_tx *victim,
                         const struct sl_tx *x, const struct sl_tx *y)
{
    uint64_t ids[CYCLE_SHOWN_MAX];
    uint32_t n = 0;
    for (; x != NULL && n < CYCLE_SHOWN_MAX; x = x->parent) ids[n++] = x->id;
    for (uint32_t i = 0; i < n / 2; i++) {
        uint64_t other = ids[n - 1 - i];
        ids[n - 1 - i] = ids[i];
        ids[i] = other;
    }
    for (; y != s->t && n < CYCLE_SHOWN_MAX; y = y->next) ids[n++] = y->id;
    uint64_t *copy = sl_tx_reply_bytes(s->m, victim->reply, n * sizeof *ids);
    if (copy == NULL) return;
    memcpy(copy, ids, n * sizeof *ids);
    victim->reply->answer.cycle = copy;
    victim->reply->answer.cycle_count = n;
}

static void mark_victim(struct search *s, struct sl_tx *victim)
{
    victim->mark = SL_TX_MARK_VICTIM;
    victim->next = s->victims;
    s->victims = victim;
}

/* Choose a victim on the path from t to x. x waits for y, which is t or reaches t.
 * The transactions after the victim on that path also reach t. Returns the victim's
 * parent. */
static struct sl_tx *choose_behind(struct search *s, struct sl_tx *x, struct sl_tx *y)
{
    struct sl_tx *victim = x->youngest;
    report_cycle(s, victim, x, y);
    while (x != victim) {
        x->mark = SL_TX_MARK_REACHES;
        x->next = y;
        x->youngest = y == s->t ? x : younger(y->youngest, x);
        y = x;
        x = x->parent;
    }
    mark_victim(s, victim);
    return victim->parent;
}

/* Choose a victim on the known path from y, for which x waits. */
static void choose_ahead(struct search *s, const struct sl_tx *x, struct sl_tx *y)
{
    struct sl_tx *victim = y->youngest;
    report_cycle(s, victim, x, y);
    mark_victim(s, victim);
}

static bool victim_is_ahead(const struct search *s, const struct sl_tx *x,
                            struct sl_tx *y)
{
    return y != s->t && younger(x->youngest, y->youngest) == y->youngest;
}

/* Whether y is t, or has a known path to t that is not broken. */
static bool reaches_start(const struct search *s, const struct sl_tx *y)
{
    if (y == s->t) return true;
    if (y->search != s->m->searches || y->mark != SL_TX_MARK_REACHES) return false;
    return y->youngest->mark != SL_TX_MARK_VICTIM;
}

/* --- The search --------------------------------------------------------------------- */

/* Search without recursion: each transaction knows its parent. */
static void search(struct search *s)
{
    struct sl_tx *x = s->t;
    visit(s, x, NULL);
    while (x != NULL) {
        struct sl_tx *y = x->waits_for == NULL ? NULL : next_blocker(s, x->waits_for);
        if (y == NULL) {
            x->mark = SL_TX_MARK_CLEAR;
            x = x->parent;
        } else if (reaches_start(s, y)) {
            if (victim_is_ahead(s, x, y)) choose_ahead(s, x, y);
            else x = choose_behind(s, x, y);
        } else {
            assert(y->search != s->m->searches || y->mark == SL_TX_MARK_REACHES);
            visit(s, y, x);
            x = y;
        }
    }
}

/* Returns the victims in the order in which they were found. If t is a victim, its
 * restart breaks all cycles, so the other victims are spared. */
static struct sl_tx *victims_of(const struct search *s)
{
    struct sl_tx *first = NULL, *next;
    bool alone = s->t->mark == SL_TX_MARK_VICTIM;
    for (struct sl_tx *x = s->victims; x != NULL; x = next) {
        next = x->next;
        if (alone && x != s->t) {
            x->reply->answer.cycle = NULL;
            x->reply->answer.cycle_count = 0;
            continue;
        }
        x->next = first;
        first = x;
    }
    return first;
}

void sl_tx_deadlock_break(struct sl_tx_manager *m, struct sl_tx *t)
{
    assert(t->waits_for != NULL && t->reply != NULL);
    if (!is_waited_for(m, t)) return;
    struct sl_tx_item *i = t->waits_for->item;
    struct search s = {
        .m = m, .t = t, .next_holder = i->locks.next, .next_waiter = i->queue.next};
    m->searches++;
    search(&s);
    struct sl_tx *next;
    for (struct sl_tx *x = victims_of(&s); x != NULL; x = next) {
        next = x->next;
        m->stats.cycles++;
        sl_tx_restart(m, x, SLUICE_ERESTART);
    }
}
