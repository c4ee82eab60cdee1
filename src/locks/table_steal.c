/* table_steal.c - which waiter steals, from which holders, and how they are notified
 * (rules 7 and 8 in README.md).
 *
 * The *thief* is a waiter that steals and would be next if there were enough
 * capacity. Its *plan* is a list of victims. To make a plan, the table sorts the
 * holders by priority, lowest first, then newest first, and takes the shortest
 * prefix whose release makes the thief fit. All victims must have a lower priority
 * than the thief and belong to other sessions (README.md). If all such holders together are not
 * enough, there is no plan, and the table asks no holder. While there is a plan, the
 * lock is *reserved*: freed capacity goes to the thief.
 *
 * Whenever something has changed, the table makes a new plan, and then notifies the
 * holders of the differences, one in each call. So each holder is asked only once,
 * however many waiters steal.
 *
 * A live holder is never displaced. Its grant ends when the holder releases it or
 * the lease expires. Only a thief with a force_ms (rule 8) is granted the lock while a
 * victim still holds it, and that grant is marked as overlapping. */
#include "locks/table_internal.h"

static struct sl_entry *first_on(const struct sl_list *list)
{
    if (sl_list_empty(list)) return NULL;
    return sl_container_of(list->next, struct sl_entry, asked);
}

/* --- The plan --------------------------------------------------------------- */

static bool may_be_victim(const struct sl_entry *e, const struct sl_entry *thief)
{
    return e->priority < thief->priority;
}

/* Whether the thief would fit without this many units and this many shared holders. */
static bool would_fit(const struct sl_roster *r, const struct sl_entry *thief,
                      uint64_t units, uint32_t shared)
{
    if (thief->shared) return r->held == units;
    return r->shared == shared &&
           r->held - units + thief->units <= thief->queue->capacity;
}

/* Mark as few holders as possible as victims. Returns false if no plan is possible. */
static bool make_plan(struct sl_roster *r, const struct sl_entry *thief)
{
    uint64_t units = 0;
    uint32_t shared = 0;
    r->plan++;
    if (thief == NULL) return false;
    /* The capacity that the thief reserved is free now. */
    if (would_fit(r, thief, 0, 0)) return r->thief == thief;
    for (struct sl_entry *e = sl_roster_first_rank(r);
         e != NULL && may_be_victim(e, thief); e = sl_roster_next_rank(r, e)) {
        if (e->session_id == thief->session_id && !thief->notify) continue;
        e->plan = r->plan;
        units += e->units;
        shared += e->shared;
        if (would_fit(r, thief, units, shared)) return true;
    }
    if (would_fit(r, thief, units, shared)) return true;
    r->plan++; /* Forget the marks. */
    return false;
}

/* Move the holders that are not in the plan to the list `to`. */
static void drop_unneeded(struct sl_roster *r, enum sl_victim from, enum sl_victim to)
{
    struct sl_list *list = &r->victims[from], *next;
    for (struct sl_list *n = list->next; n != list; n = next) {
        next = n->next;
        struct sl_entry *e = sl_container_of(n, struct sl_entry, asked);
        if (e->plan != r->plan) sl_roster_set_victim(r, e, to);
    }
}

/* Add the holders of the plan that have not been asked yet, or whose withdrawal is
 * pending. */
static void add_victims(struct sl_roster *r)
{
    for (struct sl_entry *e = sl_roster_first_rank(r);
         e != NULL && may_be_victim(e, r->thief); e = sl_roster_next_rank(r, e)) {
        if (e->plan != r->plan || e->stolen)
            continue; /* Its own session, or already stolen from. */
        if (e->victim == SL_VICTIM_NONE) sl_roster_set_victim(r, e, SL_VICTIM_TO_ASK);
        else if (e->victim == SL_VICTIM_TO_WITHDRAW)
            sl_roster_set_victim(r, e, SL_VICTIM_ASKED);
    }
}

void sl_roster_plan(struct sl_roster *r)
{
    if (!r->plan_is_old) return;
    struct sl_entry *thief = sl_lock_thief(r->lock);
    r->plan_is_old = false;
    if (thief != NULL && thief->session->ended) thief = NULL;
    if (thief == r->planned_for && !r->holders_changed) return;
    r->planned_for = thief;
    r->holders_changed = false;
    r->thief = make_plan(r, thief) ? thief : NULL;
    drop_unneeded(r, SL_VICTIM_TO_ASK, SL_VICTIM_NONE);
    drop_unneeded(r, SL_VICTIM_ASKED, SL_VICTIM_TO_WITHDRAW);
    if (r->thief != NULL) add_victims(r);
}

/* --- Effects ------------------------------------------------------- */

static void tell(const struct sl_table *t, struct sl_now now, enum sl_effect_type type,
                 const struct sl_entry *e, struct sl_effect *out)
{
    const struct sl_entry *thief = e->lock->roster->thief;
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

/* Tell the recorder that the holder was stolen from, or was not. */
static void note(const struct sl_table *t, struct sl_now now, struct sl_entry *e)
{
    if (e->lease_ms > 0)
        sl_table_note_grant(t, now, (struct sl_grant_ref){e->lock, e}, e->end_ms);
}

void sl_table_steal(const struct sl_table *t, struct sl_now now, struct sl_roster *r)
{
    struct sl_entry *e;
    while ((e = first_on(&r->victims[SL_VICTIM_ASKED])) != NULL) {
        e->stolen = true;
        r->stolen++;
        e->victim_ms = -1;
        sl_roster_set_victim(r, e, SL_VICTIM_STOLEN);
        note(t, now, e);
    }
}

bool sl_table_undo_steal(const struct sl_table *t, struct sl_now now,
                         struct sl_roster *r)
{
    struct sl_entry *e = first_on(&r->victims[SL_VICTIM_STOLEN]);
    if (e == NULL) return false;
    for (; e != NULL; e = first_on(&r->victims[SL_VICTIM_STOLEN])) {
        e->stolen = false;
        r->stolen--;
        e->victim_ms = 0; /* The holder had been asked. */
        sl_roster_set_victim(r, e, SL_VICTIM_TO_WITHDRAW);
        note(t, now, e);
    }
    r->holders_changed = true;
    return true;
}

bool sl_table_next_stolen(const struct sl_table *t, struct sl_now now,
                          struct sl_roster *r, struct sl_effect *out)
{
    struct sl_entry *e = first_on(&r->victims[SL_VICTIM_STOLEN]);
    if (e == NULL) return false;
    sl_roster_set_victim(r, e, SL_VICTIM_NONE);
    tell(t, now, SL_EFFECT_STOLEN, e, out);
    return true;
}

bool sl_table_next_steal(struct sl_table *t, struct sl_now now, struct sl_roster *r,
                         struct sl_effect *out, struct sl_entry **enters)
{
    struct sl_entry *e;
    *enters = NULL;
    if ((e = first_on(&r->victims[SL_VICTIM_TO_WITHDRAW])) != NULL) {
        sl_roster_set_victim(r, e, SL_VICTIM_NONE);
        e->victim_ms = -1;
        tell(t, now, SL_EFFECT_WITHDRAWN, e, out);
        return true;
    }
    if ((e = first_on(&r->victims[SL_VICTIM_TO_ASK])) != NULL) {
        sl_roster_set_victim(r, e, SL_VICTIM_ASKED);
        e->victim_ms = now.ms;
        r->informed_thief = r->thief;
        tell(t, now, SL_EFFECT_ASKED, e, out);
        return true;
    }
    if (r->thief == NULL) return false;
    e = first_on(&r->victims[SL_VICTIM_ASKED]);
    if (r->informed_thief != r->thief && e != NULL) {
        r->informed_thief = r->thief;
        tell(t, now, SL_EFFECT_THIEF_WAITS, e, out);
        return true;
    }
    if (r->thief->force_ms > now.ms || r->thief->end_ms <= now.ms) return false;
    *enters = r->thief;
    return true;
}
