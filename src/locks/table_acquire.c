/* table_acquire.c - requests, which are granted, queued or rejected; and watchers. */
#include <stdlib.h>
#include <string.h>

#include "locks/table_internal.h"

struct sl_lock *sl_lock_new(struct sl_bytes key, struct sl_bytes value,
                            struct sl_bytes note)
{
    struct sl_lock *l = malloc(offsetof(struct sl_lock, text) + key.n + value.n +
                               note.n);
    if (l == NULL) return NULL;
    *l = (struct sl_lock){.timer = SL_HEAP_NONE,
                          .key_bytes = (uint16_t)key.n,
                          .value_bytes = (uint16_t)value.n,
                          .note_bytes = (uint16_t)note.n};
    memcpy(l->text, key.at, key.n);
    if (value.n > 0) memcpy(l->text + key.n, value.at, value.n);
    if (note.n > 0) memcpy(l->text + key.n + value.n, note.at, note.n);
    return l;
}

static int check_want(const struct sl_table *t, const struct sl_want *w)
{
    const struct sl_table_limits *m = &t->limits;
    if (w->key.n == 0) return SLUICE_EINVAL;
    if (w->key.n > m->key_bytes_max || w->value.n > m->value_bytes_max ||
        w->note.n > m->value_bytes_max)
        return SLUICE_ETOOBIG;
    if (w->wait_ms < 0 || w->lease_ms < 0) return SLUICE_EINVAL;
    if (w->shared) return SLUICE_OK;
    uint64_t capacity = (uint64_t)w->per * w->buckets;
    if (w->units == 0) return SLUICE_EINVAL;
    if (capacity > SLUICE_CAPACITY_MAX || w->units > SLUICE_UNITS_MAX)
        return SLUICE_ETOOBIG;
    if (capacity == 0) return SLUICE_EFULL; /* A capacity of 0 is always full. */
    return w->units > capacity ? SLUICE_ETOOBIG : SLUICE_OK;
}

static uint64_t capacity_of(const struct sl_want *w)
{
    return w->shared ? 0 : (uint64_t)w->per * w->buckets;
}

bool sl_want_is_plain(const struct sl_want *w)
{
    return w->lease_ms > 0 && !w->shared && w->per == 1 && w->buckets == 1 &&
           w->units == 1 && w->priority == 0 && w->named == NULL;
}

/* Create a lock with an inline holder. */
static int grant_inline(struct sl_table *t, struct sl_now now,
                        const struct sl_session *s, const struct sl_want *w,
                        struct sl_grant *out)
{
    struct sl_lock *l = sl_lock_new(w->key, w->value, w->note);
    if (l == NULL || sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1) != SLUICE_OK) {
        free(l);
        return SLUICE_ENOMEM;
    }
    l->fence = sl_table_next_fence(t, now);
    l->client = sl_client_ref(s->client);
    l->user = s->user;
    l->end_ms = sl_end_after(t, now, w->lease_ms);
    if (l->end_ms != SL_NEVER) sl_heap_put(&t->heap, l->end_ms, sl_inline_owner(l));
    sl_table_put_lock(t, l);
    sl_table_note_grant(t, now, (struct sl_grant_ref){.lock = l}, 0);
    *out = (struct sl_grant){.fence = l->fence,
                             .held = 1,
                             .lease_ms = w->lease_ms,
                             .waited_ms = sl_waited_ms(t, w->waited_ms)};
    return SLUICE_OK;
}

/* Rule 3 in README.md: whether only this session holds the lock, without a lease. */
static bool waits_for_itself(const struct sl_lock *l, const struct sl_session *s)
{
    return l->roster != NULL && !sl_inline_counts(l) &&
           sl_roster_is_only_of(l->roster, s->id);
}

uint64_t sl_table_next_number(struct sl_table *t)
{
    return ++t->arrivals;
}

static int enqueue(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   struct sl_lock *l, const struct sl_want *w)
{
    if (!w->notify && waits_for_itself(l, s)) return SLUICE_EDEADLOCK;
    if (w->steal && sl_table_move_inline(t, now, l) != SLUICE_OK) return SLUICE_ENOMEM;
    if (l->roster != NULL &&
        l->roster->waiters + l->roster->watchers >= t->limits.waiters_max)
        return SLUICE_EWAITERS;
    struct sl_entry *e = sl_entry_new(s, w);
    struct sl_wait_queue *queue = NULL;
    if (e != NULL && sl_table_reserve_entry(t, l, w->lease_ms > 0) == SLUICE_OK)
        queue = sl_roster_queue(l->roster, w->priority, w->shared, capacity_of(w));
    if (queue == NULL) {
        sl_entry_free(e);
        sl_table_drop_unused(t, l);
        return SLUICE_ENOMEM;
    }
    e->lock = l;
    e->state = SL_WAITING;
    e->session = s;
    if (e->named != NULL) e->named->entry = e;
    e->wait.since_ms = e->came_ms = now.ms - w->waited_ms;
    e->wait.number = w->number > 0 ? w->number : sl_table_next_number(t);
    /* After its connection was lost, an acquisition gets its old position. But this attempt
     * may have arrived at its node earlier: the message of the lost one may have been on its way for long. */
    if (w->named != NULL && !sl_list_empty(&w->named->in_list) &&
        w->named->since_ms <= e->wait.since_ms)
        e->wait = (struct sl_wait){.since_ms = w->named->since_ms,
                                   .number = w->named->number};
    sl_list_append(&s->mine, &e->of_session);
    sl_table_waiter_joined(t, l->roster);
    bool overtakes = sl_roster_enqueue(l->roster, queue, e);
    sl_waits_add(&t->waits, &l->roster->by_age, &e->wait);
    sl_table_count_entry(t, e);
    t->waiting++;
    /* A thief that does not want to wait must still be queued for a moment. */
    sl_table_set_end(t, e, sl_end_after(t, now, w->wait_ms > 0 ? w->wait_ms : 1));
    if (w->steal) /* A force_ms of 0 means now, even if the clock lags. */
        sl_table_set_force(
            t, e, w->force_ms == 0 ? now.ms : sl_end_after(t, now, w->force_ms));
    if (w->steal || l->roster->thief != NULL || overtakes)
        sl_table_recheck(t, l->roster);
    return SL_WAITS;
}

/* Grant a request as an entry, because the lock has a holder or the request cannot
 * be inline. */
static int join(struct sl_table *t, struct sl_now now, struct sl_session *s,
                struct sl_lock *l, const struct sl_want *w, struct sl_grant *out)
{
    struct sl_entry *e = sl_entry_new(s, w);
    if (e == NULL || sl_table_reserve_entry(t, l, w->lease_ms > 0) != SLUICE_OK) {
        sl_entry_free(e);
        sl_table_drop_unused(t, l);
        return SLUICE_ENOMEM;
    }
    e->lock = l;
    if (e->named != NULL) e->named->entry = e;
    e->wait.since_ms = e->came_ms = now.ms - w->waited_ms;
    e->wait.number = sl_table_next_number(t);
    sl_table_count_entry(t, e);
    sl_table_grant_entry(t, now, e, s, out);
    return SLUICE_OK;
}

struct sl_lock *sl_table_add_lock(struct sl_table *t, struct sl_bytes key)
{
    const struct sl_bytes none = {0};
    struct sl_lock *l = sl_lock_new(key, none, none);
    if (l != NULL) sl_table_put_lock(t, l);
    return l;
}

static int reserve_key(struct sl_table *t)
{
    if (t->index.count >= t->limits.keys_max) return SLUICE_EKEYS;
    return sl_index_reserve(&t->index);
}

/* Handle a request for a key without a lock: grant it, or queue it until the table
 * may grant. */
static int acquire_new(struct sl_table *t, struct sl_now now, struct sl_session *s,
                       const struct sl_want *w, bool waits, struct sl_grant *out)
{
    int status = reserve_key(t);
    if (status != SLUICE_OK) return status;
    if (sl_want_is_plain(w) && !waits) return grant_inline(t, now, s, w, out);
    struct sl_lock *l = sl_table_add_lock(t, w->key);
    if (l == NULL) return SLUICE_ENOMEM;
    if (waits) return enqueue(t, now, s, l, w);
    return join(t, now, s, l, w, out);
}

static int lack_fence(struct sl_table *t)
{
    t->short_of_fences = true;
    return SLUICE_EFENCES;
}

/* Decide a request. Returns SLUICE_OK to grant it, SL_WAITS to queue it, or an
 * error. Sets *l to the lock, or to NULL. */
static int judge(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                 const struct sl_want *w, struct sl_lock **l)
{
    int status = check_want(t, w);
    if (status != SLUICE_OK) return status;
    if (t->fence >= SL_FENCE_MAX || s->ended) return SLUICE_EINVAL;
    if (sl_table_drained(t, w->key)) return SLUICE_EDRAINED;
    int may = sl_table_may_grant(t, now);
    if (sl_must_wait(may) && w->wait_ms == 0) return may;
    *l = sl_table_look_up(t, w->key);
    if (*l == NULL) return sl_must_wait(may) ? SL_WAITS : may;
    sl_table_expire_lock(t, now, *l);
    uint64_t capacity = capacity_of(w);
    if (!sl_must_wait(may) && sl_lock_fits(*l, w->shared, capacity, w->units) &&
        !sl_lock_holds_back(*l, w->shared, capacity, w->priority))
        return may;
    bool at_once = w->steal && w->force_ms == 0;
    return w->wait_ms == 0 && !at_once ? SLUICE_EFULL : SL_WAITS;
}

int sl_table_judge(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                   const struct sl_want *w)
{
    struct sl_lock *l = NULL;
    return judge(t, now, s, w, &l);
}

/* Grant or queue a request that judge() has accepted. */
static int accept(struct sl_table *t, struct sl_now now, struct sl_session *s,
                  const struct sl_want *w, struct sl_lock *l, bool waits,
                  struct sl_grant *out)
{
    if (sl_table_know_client(t, s) != SLUICE_OK) return SLUICE_ENOMEM;
    if (waits && !sl_table_has_authority(t, now)) t->lacks_authority = true;
    if (l == NULL) return acquire_new(t, now, s, w, waits, out);
    return waits ? enqueue(t, now, s, l, w) : join(t, now, s, l, w, out);
}

/* Handle an attempt whose id is new, or whose acquisition is absent (`lost`; requests.h). `status` is the
 * result of judge(). */
static int accept_named(struct sl_table *t, struct sl_now now, struct sl_session *s,
                        const struct sl_want *w, struct sl_acquisition *lost,
                        struct sl_lock *l, int status, struct sl_grant *out)
{
    struct sl_want named = *w;
    bool accepted = status == SLUICE_OK || status == SL_WAITS;
    if (!accepted && status != SLUICE_EFULL) return status;
    named.named = lost != NULL ? lost
                               : sl_requests_add(&t->requests, s->user, w->key,
                                                 w->request, w->digest);
    if (named.named == NULL) return SLUICE_ENOMEM;
    if (accepted) status = accept(t, now, s, &named, l, status == SL_WAITS, out);
    if (status == SLUICE_OK || status == SL_WAITS) sl_requests_revive(named.named);
    /* The reply is nil, so a duplicate that arrives later must not be granted. */
    else if (status == SLUICE_EFULL) sl_requests_end(&t->requests, named.named, now.ms);
    else if (lost == NULL) sl_requests_forget(&t->requests, named.named);
    return status;
}

int sl_table_acquire(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_want *w, struct sl_grant *out)
{
    struct sl_lock *l = NULL;
    struct sl_acquisition *lost = NULL;
    sl_table_free_retired(t);
    if (w->request.n > 0) {
        int known = sl_table_repeat(t, now, s, w, &lost, out);
        if (known != SL_IS_NEW) return known;
    }
    int status = judge(t, now, s, w, &l);
    if (status == SLUICE_EFENCES) return lack_fence(t);
    if (w->request.n > 0) return accept_named(t, now, s, w, lost, l, status, out);
    if (status != SLUICE_OK && status != SL_WAITS) return status;
    return accept(t, now, s, w, l, status == SL_WAITS, out);
}

/* --- Await ----------------------------------------------------------------- */

int sl_table_await(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   struct sl_bytes key, bool want_free, sl_ms wait_ms, uint64_t ticket)
{
    sl_table_free_retired(t);
    if (key.n == 0 || wait_ms < 0 || s->ended) return SLUICE_EINVAL;
    if (key.n > t->limits.key_bytes_max) return SLUICE_ETOOBIG;
    /* During a recovery, a key that looks free may be held. */
    if (want_free && now.ms < t->recovering_until_ms) return SLUICE_ERECOVERING;
    struct sl_lock *l = sl_table_look_up(t, key);
    if (l != NULL) sl_table_expire_lock(t, now, l);
    /* Without authority, a key that is free in this table may be held in another. */
    bool knows = !want_free || sl_table_has_authority(t, now);
    if (knows && sl_lock_is_so(l, want_free)) return SLUICE_OK;
    if (wait_ms == 0) return knows ? SLUICE_EFULL : SLUICE_ENOKEEPER;
    if (!knows) t->lacks_authority = true;
    if (l != NULL && l->roster != NULL &&
        l->roster->waiters + l->roster->watchers >= t->limits.waiters_max)
        return SLUICE_EWAITERS;
    const struct sl_want w = {.key = key, .ticket = ticket};
    struct sl_entry *e = sl_entry_new(s, &w);
    if (e == NULL) return SLUICE_ENOMEM;
    int status = SLUICE_OK;
    if (l == NULL) {
        status = reserve_key(t);
        if (status == SLUICE_OK) l = sl_table_add_lock(t, key);
        if (status == SLUICE_OK && l == NULL) status = SLUICE_ENOMEM;
    }
    if (status == SLUICE_OK) status = sl_table_reserve_entry(t, l, false);
    if (status != SLUICE_OK) {
        sl_entry_free(e);
        if (l != NULL) sl_table_drop_unused(t, l);
        return status;
    }
    e->lock = l;
    e->state = SL_WATCHING;
    e->watch_free = want_free;
    e->session = s;
    e->wait.since_ms = now.ms;
    sl_list_append(&s->mine, &e->of_session);
    sl_list_append(&l->roster->watching[want_free], &e->in_list);
    sl_table_waiter_joined(t, l->roster);
    l->roster->watchers++;
    sl_table_count_entry(t, e);
    sl_table_set_end(t, e, sl_end_after(t, now, wait_ms));
    return SL_WAITS;
}
