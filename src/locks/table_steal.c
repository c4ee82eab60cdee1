/* table_steal.c - who steals, from whom, and what they are told (rules 7 and 8).
 *
 * A thief is one who waits and would be next if there were room. Its *plan* is the
 * shortest beginning of the list of holders - lowest priority first, then the newest - that
 * makes room for it. They must all have less priority than the thief and be of other
 * sessions; if all of those together do not suffice there is no plan, and nobody is asked.
 * While there is one the lock is *reserved*: what becomes free is the thief's.
 *
 * The plan is made anew whenever something has changed. What differs from what the holders
 * were told is told then, one thing a call: so each hears of it once, whoever the thief is
 * by now, and however many thieves there are.
 *
 * A believer's place is never given away. It ends by its own release or with its lease;
 * only a thief that was told to (rule 8) enters beside it, and that is marked. */
#include "locks/table_internal.h"

static struct sl_entry *first_on(const struct sl_list *list)
{
    if (sl_list_empty(list)) return NULL;
    return sl_container_of(list->next, struct sl_entry, asked);
}

/* --- The plan --------------------------------------------------------------- */

static bool may_be_victim(const struct sl_entry *e, const struct sl_entry *thief)
{
#ifdef MUT_EQUALSTEALS
    return e->priority <= thief->priority;
#else
    return e->priority < thief->priority;
#endif
}

/* Whether it would fit when so much is gone. */
static bool would_fit(const struct sl_crowd *c, const struct sl_entry *thief,
                      uint64_t units, uint32_t shared)
{
    if (thief->shared) return c->held == units;
    return c->shared == shared && c->held - units + thief->units <= thief->line->room;
}

/* Mark as few as make room for it. */
static bool make_plan(struct sl_crowd *c, const struct sl_entry *thief)
{
    uint64_t units = 0;
    uint32_t shared = 0;
    c->plan++;
    if (thief == NULL) return false;
    /* What it has reserved is free now, and goes to nobody else. */
    if (would_fit(c, thief, 0, 0)) return c->thief == thief;
    for (struct sl_entry *e = sl_crowd_first_rank(c);
         e != NULL && may_be_victim(e, thief); e = sl_crowd_next_rank(c, e)) {
        if (e->session_id == thief->session_id) continue;
        e->plan = c->plan;
        units += e->units;
        shared += e->shared;
#ifndef MUT_ASKALL
        if (would_fit(c, thief, units, shared)) return true;
#endif
    }
    if (would_fit(c, thief, units, shared)) return true;
    c->plan++; /* Whom it has marked is not needed. */
    return false;
}

/* Move who is no longer needed from one list to another. */
static void sift(struct sl_crowd *c, enum sl_victim from, enum sl_victim to)
{
    struct sl_list *list = &c->victims[from], *next;
    for (struct sl_list *n = list->next; n != list; n = next) {
        next = n->next;
        struct sl_entry *e = sl_container_of(n, struct sl_entry, asked);
        if (e->plan != c->plan) sl_crowd_victim(c, e, to);
    }
}

/* Who is needed and does not know it, or was told otherwise. */
static void enlist(struct sl_crowd *c)
{
    for (struct sl_entry *e = sl_crowd_first_rank(c);
         e != NULL && may_be_victim(e, c->thief); e = sl_crowd_next_rank(c, e)) {
        if (e->plan != c->plan || e->stolen) continue; /* Its own; or it knows. */
        if (e->victim == SL_NO_VICTIM) sl_crowd_victim(c, e, SL_TO_ASK);
        else if (e->victim == SL_TO_WITHDRAW) sl_crowd_victim(c, e, SL_ASKED_TO_GO);
    }
}

void sl_table_plan(struct sl_crowd *c)
{
    if (!c->plan_is_old) return;
    struct sl_entry *thief = sl_lock_thief(c->lock);
    c->plan_is_old = false;
    if (thief != NULL && thief->session->ended) thief = NULL;
    if (thief == c->planned_for && !c->holders_changed) return;
    c->planned_for = thief;
    c->holders_changed = false;
#ifdef MUT_RESVLOST
    if (c->thief != NULL && c->thief != thief) thief = NULL;
#endif
    c->thief = make_plan(c, thief) ? thief : NULL;
    sift(c, SL_TO_ASK, SL_NO_VICTIM);
    sift(c, SL_ASKED_TO_GO, SL_TO_WITHDRAW);
    if (c->thief != NULL) enlist(c);
}

/* --- What is told ----------------------------------------------------------- */

static void tell(const struct sl_table *t, struct sl_now now, enum sl_effect_type type,
                 const struct sl_entry *e, struct sl_effect *out)
{
    const struct sl_entry *thief = e->lock->crowd->thief;
    *out = (struct sl_effect){
        .type = type,
        .key = sl_lock_key(e->lock),
        .session = thief != NULL ? thief->session : NULL,
        .past = {.fence = e->fence,
                 .session_id = e->session_id,
                 .held_ms = now.ms - e->granted_ms,
                 .broken = e->broken,
                 .asked_ms = e->victim_ms < 0 ? -1 : now.ms - e->victim_ms},
        .note = {e->text == NULL ? NULL : e->text + e->value_bytes, e->note_bytes},
        .left_ms = sl_left_at_least(t, now, e->end_ms),
        .priority = thief != NULL ? thief->priority : 0};
}

void sl_crowd_rob(struct sl_crowd *c)
{
    struct sl_entry *e;
    while ((e = first_on(&c->victims[SL_ASKED_TO_GO])) != NULL) {
        e->stolen = true;
        c->stolen++;
        e->victim_ms = -1;
        sl_crowd_victim(c, e, SL_ROBBED);
    }
}

bool sl_crowd_unrob(struct sl_crowd *c)
{
    struct sl_entry *e = first_on(&c->victims[SL_ROBBED]);
    if (e == NULL) return false;
    for (; e != NULL; e = first_on(&c->victims[SL_ROBBED])) {
        e->stolen = false;
        c->stolen--;
        e->victim_ms = 0; /* It had been told. */
        sl_crowd_victim(c, e, SL_TO_WITHDRAW);
    }
    c->holders_changed = true;
    return true;
}

bool sl_table_next_robbed(const struct sl_table *t, struct sl_now now,
                          struct sl_crowd *c, struct sl_effect *out)
{
    struct sl_entry *e = first_on(&c->victims[SL_ROBBED]);
    if (e == NULL) return false;
    sl_crowd_victim(c, e, SL_NO_VICTIM);
    tell(t, now, SL_EFFECT_STOLEN, e, out);
    return true;
}

bool sl_table_next_theft(struct sl_table *t, struct sl_now now, struct sl_crowd *c,
                         struct sl_effect *out, struct sl_entry **enters)
{
    struct sl_entry *e;
    *enters = NULL;
    if ((e = first_on(&c->victims[SL_TO_WITHDRAW])) != NULL) {
        sl_crowd_victim(c, e, SL_NO_VICTIM);
        e->victim_ms = -1;
#ifdef MUT_NOWITHDRAWN
        return sl_table_next_theft(t, now, c, out, enters);
#endif
        tell(t, now, SL_EFFECT_WITHDRAWN, e, out);
        return true;
    }
    if ((e = first_on(&c->victims[SL_TO_ASK])) != NULL) {
#ifdef MUT_ASKTWICE
        sl_crowd_victim(c, e, e->victim_ms < 0 ? SL_TO_ASK : SL_ASKED_TO_GO);
#else
        sl_crowd_victim(c, e, SL_ASKED_TO_GO);
#endif
        e->victim_ms = now.ms;
        c->told = c->thief;
        tell(t, now, SL_EFFECT_ASKED, e, out);
        return true;
    }
    if (c->thief == NULL) return false;
    e = first_on(&c->victims[SL_ASKED_TO_GO]);
    if (c->told != c->thief && e != NULL) {
        c->told = c->thief;
        tell(t, now, SL_EFFECT_THIEF_WAITS, e, out);
        return true;
    }
#ifdef MUT_OVERWRITE
    *enters = c->thief;
    return true;
#endif
    if (c->thief->force_ms > now.ms || c->thief->end_ms <= now.ms) return false;
    *enters = c->thief;
    return true;
}
