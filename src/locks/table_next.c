/* table_next.c - what follows from the time and from earlier changes. */
#include "locks/table_internal.h"

static void tell(struct sl_effect *out, enum sl_effect_type type, struct sl_lock *l,
                 struct sl_session *s)
{
    *out = (struct sl_effect){.type = type, .key = sl_lock_key(l), .session = s};
}

static void leave_line(struct sl_table *t, struct sl_entry *e)
{
    struct sl_crowd *c = e->lock->crowd;
    sl_crowd_leave(c, e);
    t->waiting--;
    sl_table_left(t, c);
}

/* Out of its line or from among the watchers, and gone. */
static void stop_waiting(struct sl_table *t, struct sl_entry *e)
{
    struct sl_lock *l = e->lock;
    if (e->state == SL_IN_LINE) leave_line(t, e);
    else {
        sl_list_remove(&e->place);
        l->crowd->watchers--;
        sl_table_left(t, l->crowd);
    }
    sl_table_bury(t, e);
    sl_table_tidy(t, l);
}

/* It waits or watches no more, and is told why; but an ended session is told nothing.
 * Returns whether there is something to tell. */
static bool dismiss(struct sl_table *t, struct sl_entry *e, enum sl_effect_type type,
                    struct sl_effect *out)
{
#ifdef MUT_TELLENDED
    bool tells = true;
#else
    bool tells = !e->session->ended;
#endif
    tell(out, type, e->lock, e->session);
    stop_waiting(t, e);
    if (!tells) sl_table_forget_old(t);
    return tells;
}

void sl_table_withdraw(struct sl_table *t, struct sl_session *s)
{
    sl_table_forget_old(t);
    while (!sl_list_empty(&s->mine)) {
        struct sl_entry *e = sl_container_of(s->mine.prev, struct sl_entry, of_session);
#ifdef MUT_NOWITHDRAW
        return;
#endif
        if (e->state == SL_HOLDS) return;
        stop_waiting(t, e);
        sl_table_forget_old(t);
    }
}

/* The end of a lease or a wait that the heap has first. */
static bool next_due(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    void *owner = t->heap.items[0].owner;
    struct sl_lock *l = sl_owner_lock(owner);
    if (l != NULL && !sl_has_seat(l)) { /* The end of a mark. */
        sl_table_unmark(t, l);
        sl_table_tidy(t, l);
        sl_table_forget_old(t);
        return false;
    }
    if (l != NULL) {
        tell(out, SL_EFFECT_EXPIRED, l, NULL);
        sl_table_unseat(t, now, l, &out->past);
        return true;
    }
    struct sl_entry *e = owner;
    if (e->state == SL_HOLDS) {
        tell(out, SL_EFFECT_EXPIRED, e->lock, NULL);
        sl_table_unhold(t, now, e, &out->past);
        return true;
    }
    if (e->force_timer) { /* A thief may enter now, if it is its turn. */
        sl_table_set_end(t, e, e->end_ms);
        sl_table_stir(t, e->lock->crowd);
        return false;
    }
    return dismiss(t, e, SL_EFFECT_TIMED_OUT, out);
}

/* One thing that an ended session had. False: something of no interest to anybody. */
static bool next_over(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    struct sl_session *s = sl_container_of(t->over.next, struct sl_session, over);
    if (sl_list_empty(&s->mine)) {
        sl_list_remove(&s->over);
        *out = (struct sl_effect){.type = SL_EFFECT_SESSION_OVER, .session = s};
        return true;
    }
    struct sl_entry *e = sl_container_of(s->mine.next, struct sl_entry, of_session);
    if (e->state != SL_HOLDS) {
        stop_waiting(t, e);
        sl_table_forget_old(t);
        return false;
    }
    tell(out, SL_EFFECT_ENDED, e->lock, NULL);
#ifdef MUT_ENDSLEEPS
    struct sl_crowd *c = e->lock->crowd;
    sl_table_unhold(t, now, e, &out->past);
    if (t->old_lock == NULL) sl_list_remove(&c->stirred);
#else
    sl_table_unhold(t, now, e, &out->past);
#endif
    return true;
}

/* A watcher that sees what it waits for; NULL: none. What is free here may have been granted
 * elsewhere, when the table has no authority, or before the silence. */
static struct sl_entry *first_who_sees(struct sl_table *t, struct sl_now now,
                                       const struct sl_crowd *c)
{
    bool is_free = sl_lock_is_so(c->lock, true);
    const struct sl_list *watching = &c->watching[is_free];
    if (sl_list_empty(watching)) return NULL;
#ifndef MUT_SEENLATE
    if (is_free && !sl_table_has_authority(t, now)) {
        t->lacks_authority = true;
        return NULL;
    }
#endif
    if (is_free && now.ms < t->recovering_until_ms) return NULL;
    return sl_container_of(watching->next, struct sl_entry, place);
}

/* A holder of the lock whose lease is over is told of before what follows from that. */
static bool next_expired(struct sl_table *t, struct sl_now now, struct sl_lock *l,
                         struct sl_effect *out)
{
    const struct sl_crowd *c = l->crowd;
    sl_table_pass_time(t, now, l);
    if (sl_has_seat(l) && !sl_seat_counts(l)) {
        tell(out, SL_EFFECT_EXPIRED, l, NULL);
        sl_table_unseat(t, now, l, &out->past);
        return true;
    }
    if (sl_list_empty(&c->ghosts)) return false;
    tell(out, SL_EFFECT_EXPIRED, l, NULL);
    struct sl_entry *e = sl_container_of(c->ghosts.next, struct sl_entry, place);
    sl_table_unhold(t, now, e, &out->past);
    return true;
}

static struct sl_entry *first_in_line(const struct sl_crowd *c)
{
    const struct sl_line *line = sl_container_of(c->lines.next, struct sl_line, place);
    return sl_container_of(line->entries.next, struct sl_entry, place);
}

static void grant(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                  struct sl_effect *out)
{
    tell(out, SL_EFFECT_GRANTED, e->lock, e->session);
    leave_line(t, e);
    sl_table_hold(t, now, e, e->session, &out->grant);
}

/* Rule 8: a thief has waited long enough for an answer. */
static bool enter_beside(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                         struct sl_effect *out)
{
    if (e->session->ended) return dismiss(t, e, SL_EFFECT_TIMED_OUT, out);
    sl_crowd_rob(e->lock->crowd);
    grant(t, now, e, out);
    e->overlaps = out->grant.overlapping = true;
    return true;
}

/* For somebody who could be granted. If not, it is looked at again when that changes. */
static bool may_grant(struct sl_table *t, struct sl_now now)
{
    int status = sl_table_may_grant(t, now);
    if (status == SLUICE_EFENCES) t->short_of_fences = true;
    if (status == SLUICE_ENOKEEPER) t->lacks_authority = true;
    return status == SLUICE_OK;
}

/* The next thing in a crowd that was stirred; false: nothing there. */
static bool next_stirred(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    struct sl_crowd *c = sl_container_of(t->stirred.next, struct sl_crowd, stirred);
    struct sl_lock *l = c->lock;
    if (next_expired(t, now, l, out)) return true;
    if (c->waiters > 0 && sl_table_drained(t, sl_lock_key(l)))
        return dismiss(t, first_in_line(c), SL_EFFECT_REFUSED, out);
    if (sl_table_next_robbed(t, now, c, out)) return true;
    sl_table_plan(c);
    struct sl_entry *e = sl_lock_next(l);
    if (e == NULL || !may_grant(t, now)) {
        if (sl_table_next_theft(t, now, c, out, &e)) {
            if (e == NULL) return true;
            if (may_grant(t, now)) return enter_beside(t, now, e, out);
        }
        e = first_who_sees(t, now, c);
        if (e != NULL) return dismiss(t, e, SL_EFFECT_SEEN, out);
        sl_list_remove(&c->stirred);
        return false;
    }
    /* Rule 5: its connection and its time are looked at again. */
#if defined MUT_DEADGRANT
    if (e->end_ms <= now.ms) return dismiss(t, e, SL_EFFECT_TIMED_OUT, out);
#elif defined MUT_LATEGRANT
    if (e->session->ended) return dismiss(t, e, SL_EFFECT_TIMED_OUT, out);
#else
    if (e->session->ended || e->end_ms <= now.ms)
        return dismiss(t, e, SL_EFFECT_TIMED_OUT, out);
#endif
    grant(t, now, e, out);
    return true;
}

static void stir_one_more(struct sl_table *t)
{
    t->to_stir--;
    if (sl_list_empty(&t->waited)) return;
    struct sl_crowd *c = sl_container_of(t->waited.next, struct sl_crowd, waited);
    sl_list_remove(&c->waited);
    sl_list_append(&t->waited, &c->waited);
    sl_table_stir(t, c);
}

#define SILENT_MAX 2u /* Each may compare a key with every drain. */

bool sl_table_next(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    sl_table_forget_old(t);
    sl_table_end_silence(t, now);
    for (uint32_t silent = 0; silent < SILENT_MAX; silent++) {
        if (!sl_list_empty(&t->stirred)) {
            if (next_stirred(t, now, out)) return true;
        } else if (!sl_list_empty(&t->over)) {
            if (next_over(t, now, out)) return true;
        } else if (t->heap.count > 0 && t->heap.items[0].at <= now.ms) {
            if (next_due(t, now, out)) return true;
        } else if (t->to_stir > 0) stir_one_more(t);
        else {
            sl_heap_trim(&t->heap, (uint32_t)t->waiting);
            return false;
        }
    }
    *out = (struct sl_effect){.type = SL_EFFECT_NOTHING};
    return true;
}

sl_ms sl_table_due(const struct sl_table *t)
{
    sl_ms due = t->heap.count > 0 ? t->heap.items[0].at : SL_NEVER;
    return t->recovering_until_ms != 0 && t->recovering_until_ms < due
               ? t->recovering_until_ms
               : due;
}
