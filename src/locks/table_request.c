/* table_request.c - acquisitions with a REQUEST id (requests.h): attempts that repeat, join or cancel
 * them. */
#include <assert.h>
#include <stdlib.h>

#include "locks/table_internal.h"

/* --- Attempts that have joined ------------------------------------------------- */

/* Remove an attempt that has joined. */
static void retire_joined(struct sl_table *t, struct sl_entry *e)
{
    sl_list_remove(&e->in_list);
    sl_table_retire_entry(t, e);
}

/* Exchange the clients, sessions and deadlines of two attempts, so that `j` takes over the position of
 * `e` in the queue. */
static void take_place(struct sl_table *t, struct sl_entry *e, struct sl_entry *j)
{
    struct sl_client *client = e->client;
    uint64_t session_id = e->session_id, ticket = e->ticket;
    struct sl_session *s = e->session;
    sl_ms end_ms = e->end_ms, came_ms = e->came_ms;
    bool notify = e->notify;
    e->client = j->client;
    e->session_id = j->session_id;
    e->ticket = j->ticket;
    e->came_ms = j->came_ms;
    e->notify = j->notify;
    e->session = j->session;
    sl_list_remove(&e->of_session);
    sl_list_append(&j->session->mine, &e->of_session);
    sl_ms force_ms = e->force_ms;
    sl_table_set_end(t, e, j->end_ms);
    if (e->steals) sl_table_set_force(t, e, force_ms);
    j->client = client;
    j->session_id = session_id;
    j->ticket = ticket;
    j->came_ms = came_ms;
    j->notify = notify;
    j->session = s;
    sl_list_remove(&j->of_session);
    sl_list_append(&s->mine, &j->of_session);
    sl_table_set_end(t, j, end_ms);
    /* A thief that now belongs to another session does not ask holders of that session, so make a new plan. */
    struct sl_roster *r = e->lock->roster;
    if (r->planned_for == e) r->holders_changed = true;
    sl_table_recheck(t, r);
}

static struct sl_entry *newest_joined(const struct sl_acquisition *a)
{
    return sl_container_of(a->joined.prev, struct sl_entry, in_list);
}

bool sl_table_is_joined(const struct sl_entry *e)
{
    return e->state == SL_WAITING && e->named != NULL &&
           !sl_list_empty(&e->named->joined);
}

struct sl_entry *sl_table_pass_on(struct sl_table *t, struct sl_entry *e)
{
    struct sl_entry *j = newest_joined(e->named);
    take_place(t, e, j);
    return j;
}

void sl_table_leave_queue(struct sl_table *t, struct sl_entry *e)
{
    struct sl_lock *l = e->lock;
    sl_table_dequeue(t, e);
    e->state = SL_JOINED;
    e->steals = false;
    e->lock = NULL;
    sl_table_set_end(t, e, e->end_ms);
    sl_list_append(&e->named->joined, &e->in_list);
    sl_table_drop_unused(t, l);
}

void sl_table_answer_joined(struct sl_table *t, struct sl_acquisition *a)
{
    if (sl_list_empty(&a->joined) || !sl_list_empty(&a->to_answer)) return;
    sl_list_append(&t->to_answer, &a->to_answer);
}

/* Return the reply to a repeated ACQUIRE whose acquisition is held. */
static struct sl_grant grant_of(const struct sl_table *t, struct sl_now now,
                                const struct sl_entry *e, sl_ms waited_ms)
{
    const struct sl_roster *r = e->lock->roster;
    const struct sl_grant_ref p = {e->lock, (struct sl_entry *)e};
    sl_ms left_ms = sl_left_at_least(t, now, sl_grant_sure_end(&p));
    return (struct sl_grant){.fence = e->fence,
                             .held = e->shared ? r->shared : r->held,
                             .lease_ms = e->lease_ms == 0 ? 0
                                         : left_ms > 0    ? left_ms
                                                          : 1,
                             .waited_ms = sl_waited_ms(t, waited_ms),
                             .overlapping = e->overlaps,
                             .replay = true};
}

/* A grant that a node has reported was perhaps never acknowledged, and then it has no record. Let the
 * recorder see it before a client does. */
static void record_reported(struct sl_table *t, struct sl_now now, struct sl_entry *e)
{
    if (e->reclaimed && e->lease_ms > 0 && !e->is_long)
        sl_table_note_grant(t, now, (struct sl_grant_ref){e->lock, e}, e->end_ms);
}

bool sl_table_next_joined(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    struct sl_acquisition *a = sl_container_of(t->to_answer.next, struct sl_acquisition,
                                               to_answer);
    if (sl_list_empty(&a->joined)) {
        sl_list_remove(&a->to_answer);
        return false;
    }
    struct sl_entry *j = newest_joined(a);
    bool tells = !j->session->ended;
    *out = (struct sl_effect){.type = SL_EFFECT_CANCELLED,
                              .key = sl_acquisition_key(a),
                              .session = j->session,
                              .ticket = j->ticket};
    if (a->entry != NULL) {
        assert(a->entry->state == SL_HOLDING);
        out->type = SL_EFFECT_GRANTED;
        out->grant = grant_of(t, now, a->entry, now.ms - j->came_ms);
        record_reported(t, now, a->entry);
    }
    retire_joined(t, j);
    if (!tells) sl_table_free_retired(t);
    return tells;
}

/* --- ACQUIRE ------------------------------------------------------------------- */

/* Repeat the reply of an acquisition that is held. */
static int replay(struct sl_table *t, struct sl_now now, struct sl_session *s,
                  const struct sl_want *w, struct sl_entry *e, struct sl_grant *out)
{
    const struct sl_grant_ref p = {e->lock, e};
    if (!sl_table_has_authority(t, now)) return SLUICE_ENOKEEPER;
    if (sl_grant_sure_end(&p) <= now.ms) return SLUICE_ERECOVERING;
    uint64_t from = e->session_id;
    bool moves = e->lease_ms == 0 && e->session != s;
    if (moves) {
        int status = sl_table_rebind(t, now, s, w->key, e->fence);
        if (status != SLUICE_OK) return status;
    }
    record_reported(t, now, e);
    *out = grant_of(t, now, e, w->waited_ms);
    if (moves) out->moved_from = from;
    return SLUICE_OK;
}

/* Let an attempt wait together with the one that is in the queue. */
static int join_wait(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_want *w, struct sl_acquisition *a)
{
    const struct sl_want plain = {
        .key = w->key, .ticket = w->ticket, .notify = w->notify};
    if (w->wait_ms == 0) return SLUICE_EFULL;
    if (sl_table_know_client(t, s) != SLUICE_OK) return SLUICE_ENOMEM;
    struct sl_entry *j = sl_entry_new(s, &plain);
    if (j == NULL || sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1) != SLUICE_OK) {
        sl_entry_free(j);
        return SLUICE_ENOMEM;
    }
    j->state = SL_JOINED;
    j->named = a;
    j->session = s;
    j->wait.since_ms = j->came_ms = now.ms - w->waited_ms;
    sl_list_append(&s->mine, &j->of_session);
    sl_list_append(&a->joined, &j->in_list);
    sl_table_count_entry(t, j);
    sl_table_set_end(t, j, sl_end_after(t, now, w->wait_ms));
    return SL_WAITS;
}

/* Whether the table can remember one more id. At the limit it forgets the one that ended first: the
 * copies of its commands have probably all arrived. If the table rejected new ids instead, a client
 * that uses many ids could exclude all others. */
static bool has_room(struct sl_table *t)
{
    return t->requests.index.count < t->limits.requests_max ||
           (t->limits.requests_max > 0 && sl_requests_forget_oldest(&t->requests));
}

bool sl_table_repeats(const struct sl_table *t, const struct sl_session *s,
                      const struct sl_want *w)
{
    const struct sl_acquisition *a = w->request.n > 0
                                         ? sl_requests_find(&t->requests, s->user,
                                                            w->key, w->request)
                                         : NULL;
    return a != NULL && a->entry != NULL && a->entry->state == SL_HOLDING;
}

int sl_table_repeat(struct sl_table *t, struct sl_now now, struct sl_session *s,
                    const struct sl_want *w, struct sl_acquisition **found,
                    struct sl_grant *out)
{
    struct sl_acquisition *a = sl_requests_find(&t->requests, s->user, w->key,
                                                w->request);
    *found = NULL;
    if (a == NULL) return has_room(t) ? SL_IS_NEW : SLUICE_EREQUESTS;
    if (s->ended) return SLUICE_EINVAL;
    /* Its lease may have expired since the last effect. */
    if (a->entry != NULL) sl_table_expire_lock(t, now, a->entry->lock);
    if (a->ended) return SLUICE_EENDED;
    if (a->digest != w->digest) return SLUICE_EMISMATCH;
    if (a->entry == NULL) {
        *found = a;
        return SL_IS_NEW;
    }
    return a->entry->state == SL_HOLDING ? replay(t, now, s, w, a->entry, out)
                                         : join_wait(t, now, s, w, a);
}

/* --- Ends ------------------------------------------------------------------------ */

void sl_table_end_named(struct sl_table *t, struct sl_now now, struct sl_entry *e)
{
    struct sl_acquisition *a = e->named;
    if (a == NULL) return;
    e->named = NULL;
    sl_requests_end(&t->requests, a, now.ms);
    sl_table_answer_joined(t, a);
}

void sl_table_forget_named(struct sl_table *t, struct sl_entry *e)
{
    struct sl_acquisition *a = e->named;
    if (a == NULL) return;
    e->named = NULL;
    a->entry = NULL;
    sl_requests_forget(&t->requests, a);
}

void sl_table_lose_named(struct sl_table *t, struct sl_now now, struct sl_entry *e)
{
    struct sl_acquisition *a = e->named;
    if (a == NULL) return;
    a->since_ms = e->wait.since_ms;
    a->number = e->wait.number;
    e->named = NULL;
    sl_requests_lose(&t->requests, a, sl_end_after(t, now, t->limits.linger_ms));
}

/* The connection of a waiting attempt was lost. */
static void lose_wait(struct sl_table *t, struct sl_now now, struct sl_entry *e)
{
    if (sl_table_is_joined(e)) e = sl_table_pass_on(t, e);
    if (e->state == SL_JOINED) {
        retire_joined(t, e);
        return;
    }
    sl_table_lose_named(t, now, e);
    sl_table_stop_waiting(t, e);
}

/* Return the attempt of a session with this ticket that waits for an acquisition, or NULL. */
static struct sl_entry *attempt(const struct sl_acquisition *a,
                                const struct sl_session *s, uint64_t ticket)
{
    struct sl_entry *e = a->entry;
    if (e != NULL && e->state == SL_WAITING && e->session == s && e->ticket == ticket)
        return e;
    for (struct sl_list *n = a->joined.prev; n != &a->joined; n = n->prev) {
        e = sl_container_of(n, struct sl_entry, in_list);
        if (e->session == s && e->ticket == ticket) return e;
    }
    return NULL;
}

/* Return the waiter or watcher of a session with this ticket that has no id, or NULL. */
static struct sl_entry *unnamed(const struct sl_session *s, uint64_t ticket)
{
    for (struct sl_list *n = s->mine.prev; n != &s->mine; n = n->prev) {
        struct sl_entry *e = sl_container_of(n, struct sl_entry, of_session);
        if (e->state != SL_HOLDING && e->named == NULL && e->ticket == ticket) return e;
    }
    return NULL;
}

void sl_table_lose(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   uint64_t ticket, struct sl_bytes key, struct sl_bytes id)
{
    struct sl_entry *e;
    sl_table_free_retired(t);
    if (id.n == 0) e = unnamed(s, ticket);
    else {
        struct sl_acquisition *a = sl_requests_find(&t->requests, s->user, key, id);
        e = a == NULL ? NULL : attempt(a, s, ticket);
    }
    if (e == NULL) return;
    lose_wait(t, now, e);
    sl_table_free_retired(t);
}

/* --- CANCEL ---------------------------------------------------------------------- */

/* Remember an id that is not known, so that an ACQUIRE that arrives later is not granted. */
static int cancel_unknown(struct sl_table *t, struct sl_now now,
                          const struct sl_session *s, struct sl_bytes key,
                          struct sl_bytes id)
{
    if (!sl_table_has_authority(t, now)) return SLUICE_ENOKEEPER;
    if (now.ms < t->recovering_until_ms) return SLUICE_ERECOVERING;
    if (!has_room(t)) return SLUICE_EREQUESTS;
    struct sl_acquisition *a = sl_requests_add(&t->requests, s->user, key, id, 0);
    if (a == NULL) return SLUICE_ENOMEM;
    a->cancelled = true;
    sl_requests_end(&t->requests, a, now.ms);
    return 0;
}

/* Withdraw all attempts of an acquisition that waits. */
static void cancel_wait(struct sl_table *t, struct sl_now now, struct sl_entry *e)
{
    struct sl_acquisition *a = e->named;
    sl_table_leave_queue(t, e);
    sl_requests_end(&t->requests, a, now.ms);
    sl_table_answer_joined(t, a);
}

int sl_table_cancel(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                    struct sl_bytes key, struct sl_bytes id, struct sl_ended *out)
{
    sl_table_free_retired(t);
    if (key.n == 0 || key.n > t->limits.key_bytes_max || id.n < SL_REQUEST_ID_MIN ||
        id.n > SL_REQUEST_ID_MAX)
        return SLUICE_EINVAL;
    struct sl_acquisition *a = sl_requests_find(&t->requests, s->user, key, id);
    if (a == NULL) return cancel_unknown(t, now, s, key, id);
    if (a->entry != NULL) sl_table_expire_lock(t, now, a->entry->lock);
    a->cancelled = true;
    if (a->ended) return 0;
    struct sl_entry *e = a->entry;
    if (e == NULL) sl_requests_end(&t->requests, a, now.ms);
    else if (e->state == SL_WAITING) cancel_wait(t, now, e);
    else {
        sl_table_end_entry(t, now, e, out);
        return 2;
    }
    return 1;
}
