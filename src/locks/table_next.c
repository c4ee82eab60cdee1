/* table_next.c - returns the effects of time and of earlier changes, one in each
 * call. */
#include "locks/table_internal.h"

static void tell(struct sl_effect *out, enum sl_effect_type type, struct sl_lock *l,
                 struct sl_session *s)
{
    *out = (struct sl_effect){.type = type, .key = sl_lock_key(l), .session = s};
}

void sl_table_dequeue(struct sl_table *t, struct sl_entry *e)
{
    struct sl_roster *r = e->lock->roster;
    sl_roster_dequeue(r, e);
    sl_waits_remove(&t->waits, &r->by_age, &e->wait);
    t->waiting--;
    sl_table_waiter_left(t, r);
}

void sl_table_stop_waiting(struct sl_table *t, struct sl_entry *e)
{
    struct sl_lock *l = e->lock;
    if (e->state == SL_WAITING) sl_table_dequeue(t, e);
    else {
        sl_list_remove(&e->in_list);
        l->roster->watchers--;
        sl_table_waiter_left(t, l->roster);
    }
    sl_table_retire_entry(t, e);
    sl_table_drop_unused(t, l);
}

/* End an attempt that has joined another one, or a waiter that others have joined: these continue to
 * wait. */
static void leave_joined(struct sl_table *t, struct sl_entry *e)
{
    if (e->state != SL_JOINED) e = sl_table_pass_on(t, e);
    sl_list_remove(&e->in_list);
    sl_table_retire_entry(t, e);
}

/* Remove a waiter or watcher, and fill in the effect that tells it why. Returns
 * false if there is nothing to report because its session has ended. */
static bool finish_wait(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                        enum sl_effect_type type, struct sl_effect *out)
{
    bool tells = !e->session->ended;
    *out = (struct sl_effect){.type = type, .session = e->session, .ticket = e->ticket};
    out->key = e->lock != NULL ? sl_lock_key(e->lock) : sl_acquisition_key(e->named);
    if (e->state == SL_JOINED || sl_table_is_joined(e)) leave_joined(t, e);
    else {
        /* If the table may grant, the reply is nil, so a duplicate that arrives later must not be
         * granted. Otherwise the client may repeat its request. */
        if (type == SL_EFFECT_TIMED_OUT && !sl_must_wait(sl_table_may_grant(t, now)))
            sl_table_end_named(t, now, e);
        else sl_table_forget_named(t, e);
        sl_table_stop_waiting(t, e);
    }
    if (!tells) sl_table_free_retired(t);
    return tells;
}

void sl_table_withdraw(struct sl_table *t, struct sl_session *s)
{
    sl_table_free_retired(t);
    /* Waiters are at the end of the list. */
    while (!sl_list_empty(&s->mine)) {
        struct sl_entry *e = sl_container_of(s->mine.prev, struct sl_entry, of_session);
        if (e->state == SL_HOLDING) return;
        if (e->state == SL_JOINED || sl_table_is_joined(e)) leave_joined(t, e);
        else {
            sl_table_forget_named(t, e);
            sl_table_stop_waiting(t, e);
        }
        sl_table_free_retired(t);
    }
}

/* Handle the lease, wait or overlap mark that ends first. Returns false if there is
 * no effect. */
static bool next_due(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    void *owner = t->heap.items[0].owner;
    struct sl_lock *l = sl_owner_lock(owner);
    if (l != NULL && !sl_has_inline(l)) { /* It was an overlap mark. */
        sl_table_unmark_next(t, l);
        sl_table_drop_unused(t, l);
        sl_table_free_retired(t);
        return false;
    }
    if (l != NULL) {
        tell(out, SL_EFFECT_EXPIRED, l, NULL);
        sl_table_end_inline(t, now, l, &out->past);
        return true;
    }
    struct sl_entry *e = owner;
    if (e->state == SL_HOLDING) {
        tell(out, SL_EFFECT_EXPIRED, e->lock, NULL);
        sl_table_end_entry(t, now, e, &out->past);
        return true;
    }
    if (e->force_timer) { /* The thief may be granted the lock by force now. */
        sl_table_set_end(t, e, e->end_ms);
        sl_table_recheck(t, e->lock->roster);
        return false;
    }
    return finish_wait(t, now, e, SL_EFFECT_TIMED_OUT, out);
}

/* End one entry of an ended session. Returns false if there is no effect. */
static bool next_of_ended(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    struct sl_session *s = sl_container_of(t->ended_sessions.next, struct sl_session,
                                           over);
    if (sl_list_empty(&s->mine)) {
        sl_list_remove(&s->over);
        sl_client_unref(s->client);
        s->client = NULL;
        *out = (struct sl_effect){.type = SL_EFFECT_SESSION_OVER, .session = s};
        return true;
    }
    struct sl_entry *e = sl_container_of(s->mine.next, struct sl_entry, of_session);
    if (e->state != SL_HOLDING) {
        finish_wait(t, now, e, SL_EFFECT_TIMED_OUT, out);
        return false;
    }
    tell(out, SL_EFFECT_ENDED, e->lock, NULL);
    sl_table_end_entry(t, now, e, &out->past);
    return true;
}

/* Returns a watcher whose condition is true, or NULL. Without authority, or during a
 * recovery, a key that is free in this table may be held in another. */
static struct sl_entry *next_seen(struct sl_table *t, struct sl_now now,
                                  const struct sl_roster *r)
{
    bool is_free = sl_lock_is_so(r->lock, true);
    const struct sl_list *watching = &r->watching[is_free];
    if (sl_list_empty(watching)) return NULL;
    if (is_free && !sl_table_has_authority(t, now)) {
        t->lacks_authority = true;
        return NULL;
    }
    if (is_free && now.ms < t->recovering_until_ms) return NULL;
    return sl_container_of(watching->next, struct sl_entry, in_list);
}

/* Report the expiry of a holder before the effects that it causes. */
static bool next_expired(struct sl_table *t, struct sl_now now, struct sl_lock *l,
                         struct sl_effect *out)
{
    const struct sl_roster *r = l->roster;
    sl_table_expire_lock(t, now, l);
    if (sl_has_inline(l) && !sl_inline_counts(l)) {
        tell(out, SL_EFFECT_EXPIRED, l, NULL);
        sl_table_end_inline(t, now, l, &out->past);
        return true;
    }
    if (sl_list_empty(&r->expired)) return false;
    tell(out, SL_EFFECT_EXPIRED, l, NULL);
    struct sl_entry *e = sl_container_of(r->expired.next, struct sl_entry, in_list);
    sl_table_end_entry(t, now, e, &out->past);
    return true;
}

static struct sl_entry *first_waiter(const struct sl_roster *r)
{
    const struct sl_wait_queue *queue = sl_container_of(
        r->queues.next, struct sl_wait_queue, in_roster);
    return sl_container_of(queue->entries.next, struct sl_entry, in_list);
}

static void grant(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                  struct sl_effect *out)
{
    /* A grant without a lease belongs to the newest attempt. */
    if (sl_table_is_joined(e)) sl_table_pass_on(t, e);
    tell(out, SL_EFFECT_GRANTED, e->lock, e->session);
    out->ticket = e->ticket;
    sl_table_dequeue(t, e);
    if (e->named != NULL) sl_table_answer_joined(t, e->named);
    sl_table_grant_entry(t, now, e, e->session, &out->grant);
}

/* Rule 8 in README.md: grant the lock to the thief, which has waited long enough for its
 * victims. */
static bool grant_by_force(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                           struct sl_effect *out)
{
    if (e->session->ended) return finish_wait(t, now, e, SL_EFFECT_TIMED_OUT, out);
    sl_table_steal(t, now, e->lock->roster);
    e->overlaps = true;
    grant(t, now, e, out);
    return true;
}

/* Whether a waiter may get the lock now. If not, the table rechecks it when that
 * changes. */
static bool may_grant(struct sl_table *t, struct sl_now now)
{
    int status = sl_table_may_grant(t, now);
    if (status == SLUICE_EFENCES) t->short_of_fences = true;
    if (status == SLUICE_ENOKEEPER) t->lacks_authority = true;
    return status == SLUICE_OK;
}

/* Returns the next effect in the first roster to recheck. Returns false if there is
 * none. */
static bool next_recheck(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    struct sl_roster *r = sl_container_of(t->recheck.next, struct sl_roster, recheck);
    struct sl_lock *l = r->lock;
    if (next_expired(t, now, l, out)) return true;
    if (r->waiters > 0 && sl_table_drained(t, sl_lock_key(l)))
        return finish_wait(t, now, first_waiter(r), SL_EFFECT_REFUSED, out);
    if (sl_table_next_stolen(t, now, r, out)) return true;
    sl_roster_plan(r);
    struct sl_entry *e = sl_lock_next(l);
    if (e == NULL || !may_grant(t, now)) {
        if (sl_table_next_steal(t, now, r, out, &e)) {
            if (e == NULL) return true;
            if (may_grant(t, now)) return grant_by_force(t, now, e, out);
        }
        e = next_seen(t, now, r);
        if (e != NULL) return finish_wait(t, now, e, SL_EFFECT_SEEN, out);
        sl_list_remove(&r->recheck);
        return false;
    }
    /* Rule 5 in README.md: check the session and the deadline again. */
    if (e->session->ended || e->end_ms <= now.ms)
        return finish_wait(t, now, e, SL_EFFECT_TIMED_OUT, out);
    grant(t, now, e, out);
    return true;
}

static void recheck_one_more(struct sl_table *t)
{
    t->recheck_left--;
    if (sl_list_empty(&t->awaited)) return;
    struct sl_roster *r = sl_container_of(t->awaited.next, struct sl_roster, awaited);
    sl_list_remove(&r->awaited);
    sl_list_append(&t->awaited, &r->awaited);
    sl_table_recheck(t, r);
}

/* The maximum number of steps without an effect in one call. Each may compare a key
 * with every drained pattern. */
#define QUIET_STEPS_MAX 2u

bool sl_table_next(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    sl_table_free_retired(t);
    sl_table_end_recovery(t, now);
    for (uint32_t quiet = 0; quiet < QUIET_STEPS_MAX; quiet++) {
        if (!sl_list_empty(&t->to_answer)) {
            if (sl_table_next_joined(t, now, out)) return true;
        } else if (!sl_list_empty(&t->recheck)) {
            if (next_recheck(t, now, out)) return true;
        } else if (!sl_list_empty(&t->ended_sessions)) {
            if (next_of_ended(t, now, out)) return true;
        } else if (t->heap.count > 0 && t->heap.items[0].at <= now.ms) {
            if (next_due(t, now, out)) return true;
        } else if (sl_requests_expire(&t->requests, now.ms)) continue;
        else if (t->recheck_left > 0) recheck_one_more(t);
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
    sl_ms forget = sl_requests_due(&t->requests);
    if (forget < due) due = forget;
    return t->recovering_until_ms != 0 && t->recovering_until_ms < due
               ? t->recovering_until_ms
               : due;
}
