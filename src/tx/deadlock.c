/* cycles.c - who waits for each other, and who of them gives way.
 *
 * Before a transaction t waits there is no cycle, so each that its wait closes goes through
 * t: without t nobody waits for himself, by whatever way. So a search from t, in depth, meets
 * nobody twice on one way, and whoever is done without having met t ends nowhere near t:
 *
 *     t -> a -> b -> t      the youngest of t, a, b loses; say a
 *     t -> c -> b           b is known to lead to t: the youngest of t, c, and b's way loses
 *     t -> d -> e           e waits for nobody: it ends, and then d
 *
 * All who lose are found before the first of them restarts, so that nothing moves meanwhile:
 * a restart takes waits away, and adds none (what others get by it they go on with later, see
 * sl_tx_go_on()), so whoever ends nowhere does so to the end of the search, however many
 * lose. Hence nobody is looked at again: for each item it is remembered up to whom, of those
 * who have it and of its line, all end or lose. That is one place for all who want the same
 * mode. They skip themselves, and nobody misses them there: who has less and wants more
 * stands before all others in line. Only t has places of its own, as others must find it.
 *
 * A way that is known is not walked again. If somebody ahead on it is to lose, it does, and
 * all whose youngest ahead it was have no known way any more: they are followed again, from
 * where they had got to. Others may have a way through it whose youngest is somebody else,
 * and do not see that it is broken: then one may lose whom nobody would have had to wait
 * for. That is rare, and the oldest is never among them. */
#include <assert.h>
#include <string.h>

#include "tx/manager_internal.h"

#define CYCLE_MAX 64u /* Of one, so many are named. */

struct search {
    struct sl_tx_manager *k;
    struct sl_tx *t;
    struct sl_list *holder, *place; /* How far t itself has looked. */
    struct sl_tx *losers;           /* The last, and by its `to` those before. */
};

/* --- Who is in the way ------------------------------------------------------------- */

static bool is_over(const struct sl_tx_manager *k, const struct sl_tx *x)
{
    return x->seen == k->search &&
           (x->mark == SL_TX_ENDING || x->mark == SL_MARK_LOSES);
}

static void look_from_the_start(const struct sl_tx_manager *k, struct sl_tx_item *i)
{
    i->search = k->search;
    for (int m = 0; m < SL_TX_MODES; m++) i->holder[m] = i->locks.next;
    i->place = i->line.next;
}

/* The first in the way of who waits for l of whom it is not known that it ends; NULL: all
 * are over. */
static struct sl_tx *next_blocker(struct search *s, const struct sl_tx_lock *l)
{
    struct sl_tx_manager *k = s->k;
    struct sl_tx_item *i = l->item;
    bool own = l->tx == s->t;
#ifdef MUT_SKIPFIRST
    own = false;
#endif
    if (i->search != k->search) look_from_the_start(k, i);
#ifdef MUT_LONGLOOK
    look_from_the_start(k, i);
#endif
    struct sl_list **holder = own ? &s->holder : &i->holder[l->wanted];
    struct sl_list **place = own ? &s->place : &i->place;
    for (; *holder != &i->locks; *holder = (*holder)->next) {
        const struct sl_tx_lock *o = sl_container_of(*holder, struct sl_tx_lock,
                                                     in_item);
        k->stats.steps++;
        if (o != l && !sl_tx_mode_fits(l->wanted, o->mode) && !is_over(k, o->tx))
            return o->tx;
    }
    for (; *place != &l->in_line && *place != &i->line; *place = (*place)->next) {
        const struct sl_tx_lock *o = sl_container_of(*place, struct sl_tx_lock,
                                                     in_line);
        k->stats.steps++;
        if (!is_over(k, o->tx)) return o->tx;
    }
    return NULL;
}

/* Nobody waits for most who begin to wait, and those close no cycle. */
static bool is_waited_for(struct sl_tx_manager *k, const struct sl_tx *t)
{
    for (const struct sl_list *a = t->locks.next; a != &t->locks; a = a->next) {
        const struct sl_tx_lock *l = sl_container_of(a, struct sl_tx_lock, in_tx);
        uint32_t self = l == t->waits ? 1 : 0;
        k->stats.steps++;
        if (l->mode != SL_TX_MODE_NONE && l->item->waiter_count > self) return true;
    }
    return t->waits->in_line.next != &t->waits->item->line; /* Behind it. */
}

/* --- Who loses --------------------------------------------------------------------- */

static struct sl_tx *younger(struct sl_tx *a, struct sl_tx *b)
{
#ifdef MUT_YOUNGEST
    return a->id < b->id ? a : b;
#endif
    return a->id > b->id ? a : b;
}

static void follow(const struct search *s, struct sl_tx *x, struct sl_tx *from)
{
    x->seen = s->k->search;
    x->mark = SL_TX_OPEN;
    x->from = from;
    x->youngest = from == NULL ? x : younger(from->youngest, x);
}

/* The cycle from t to x, and on from y to t, for the answer to the one that loses: as they
 * wait for each other. Without memory it is told nothing but that there was one. */
static void name_cycle(const struct search *s, struct sl_tx *loser,
                       const struct sl_tx *x, const struct sl_tx *y)
{
    uint64_t ids[CYCLE_MAX];
    uint32_t n = 0;
    for (; x != NULL && n < CYCLE_MAX; x = x->from) ids[n++] = x->id;
    for (uint32_t i = 0; i < n / 2; i++) {
        uint64_t other = ids[n - 1 - i];
        ids[n - 1 - i] = ids[i];
        ids[i] = other;
    }
    for (; y != s->t && n < CYCLE_MAX; y = y->to) ids[n++] = y->id;
    uint64_t *room = sl_tx_reply_bytes(s->k, loser->reply, n * sizeof *ids);
    if (room == NULL) return;
    memcpy(room, ids, n * sizeof *ids);
    loser->reply->answer.cycle = room;
    loser->reply->answer.cycle_count = n;
}

static void mark_loser(struct search *s, struct sl_tx *loser)
{
    loser->mark = SL_MARK_LOSES;
    loser->to = s->losers;
    s->losers = loser;
}

/* It is on the way to x, which waits for y, which is t or leads to it. Those behind it on
 * that way lead there, too. Returns who is before it. */
static struct sl_tx *lose(struct search *s, struct sl_tx *x, struct sl_tx *y)
{
    struct sl_tx *loser = x->youngest;
    name_cycle(s, loser, x, y);
    while (x != loser) {
        x->mark = SL_MARK_LEADS;
        x->to = y;
        x->youngest = y == s->t ? x : younger(y->youngest, x);
        y = x;
        x = x->from;
    }
    mark_loser(s, loser);
    return loser->from;
}

/* It is on the known way from y, which x waits for: x goes on with its next. */
static void lose_ahead(struct search *s, const struct sl_tx *x, struct sl_tx *y)
{
    struct sl_tx *loser = y->youngest;
    name_cycle(s, loser, x, y);
    mark_loser(s, loser);
}

/* Whether y is t, or has a known way to it that is not broken. */
static bool leads(const struct search *s, const struct sl_tx *y)
{
    if (y == s->t) return true;
#ifdef MUT_WALKAGAIN
    return false;
#endif
    if (y->seen != s->k->search || y->mark != SL_MARK_LEADS) return false;
    return y->youngest->mark != SL_MARK_LOSES;
}

static bool is_ahead(const struct search *s, const struct sl_tx *x, struct sl_tx *y)
{
    return y != s->t && younger(x->youngest, y->youngest) == y->youngest;
}

/* Without recursion: each knows from whom it was reached. */
static void search(struct search *s)
{
    struct sl_tx *x = s->t;
    follow(s, x, NULL);
    while (x != NULL) {
        struct sl_tx *y = x->waits == NULL ? NULL : next_blocker(s, x->waits);
        if (y == NULL) {
            x->mark = SL_TX_ENDING;
            x = x->from;
        } else if (leads(s, y)) {
            if (is_ahead(s, x, y)) lose_ahead(s, x, y);
            else x = lose(s, x, y);
#ifdef MUT_ONECYCLE
            return;
#endif
        } else {
            assert(y->seen != s->k->search || y->mark == SL_MARK_LEADS);
            follow(s, y, x);
            x = y;
        }
    }
}

/* Those who lose, in the order in which they were found; but if t does it is enough. */
static struct sl_tx *losers_of(const struct search *s)
{
    struct sl_tx *first = NULL, *next;
    bool alone = s->t->mark == SL_MARK_LOSES;
    for (struct sl_tx *x = s->losers; x != NULL; x = next) {
        next = x->to;
        if (alone && x != s->t) {
            x->reply->answer.cycle = NULL;
            x->reply->answer.cycle_count = 0;
            continue;
        }
        x->to = first;
        first = x;
    }
    return first;
}

void sl_tx_deadlock_break(struct sl_tx_manager *k, struct sl_tx *t)
{
#ifdef MUT_NOCYCLE
    return;
#endif
#ifndef MUT_LOOKALWAYS
    if (!is_waited_for(k, t)) return;
#endif
    struct sl_tx_item *i = t->waits->item;
    struct search s = {.k = k, .t = t, .holder = i->locks.next, .place = i->line.next};
    k->search++;
    search(&s);
    struct sl_tx *next;
    for (struct sl_tx *x = losers_of(&s); x != NULL; x = next) {
        next = x->to;
        k->stats.cycles++;
        sl_tx_restart(k, x, SLUICE_ERESTART);
    }
}
