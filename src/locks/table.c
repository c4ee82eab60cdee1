/* table.c - creates, grants, ends and frees locks and entries. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "locks/table_internal.h"

/* --- Helpers ------------------------------------------------------------------ */

static uint64_t hash_of(const void *lock, const struct sl_index *x)
{
    struct sl_bytes key = sl_lock_key(lock);
    return sl_hash(x->key, key.at, key.n);
}

static bool same_key(const void *lock, struct sl_bytes key)
{
    const struct sl_lock *l = lock;
    return l->key_bytes == key.n && memcmp(l->text, key.at, key.n) == 0;
}

static const struct sl_index_kind locks = {.hash = hash_of, .same = same_key};

static void timer_moved(void *owner, uint32_t place)
{
    struct sl_lock *l = sl_owner_lock(owner);
    if (l != NULL) l->timer = place;
    else ((struct sl_entry *)owner)->timer = place;
}

struct sl_lock *sl_table_look_up(struct sl_table *t, struct sl_bytes key)
{
    t->found_hash = sl_hash(t->index.key, key.at, key.n);
    return t->found_lock = sl_index_find(&t->index, key, t->found_hash);
}

struct sl_lock *sl_table_find_lock(const struct sl_table *t, struct sl_bytes key)
{
    return sl_index_find(&t->index, key, sl_hash(t->index.key, key.at, key.n));
}

static sl_fence fence_after(const struct sl_table *t, struct sl_now now)
{
    sl_fence f = t->fence + 1;
    if (now.wall_us > f && now.wall_us <= SL_WALL_US_MAX) f = now.wall_us;
    return f;
}

sl_fence sl_table_next_fence(struct sl_table *t, struct sl_now now)
{
    assert(sl_table_may_grant(t, now) == SLUICE_OK);
    return t->fence = fence_after(t, now);
}

int sl_table_may_grant(const struct sl_table *t, struct sl_now now)
{
    if (!sl_table_has_authority(t, now)) return SLUICE_ENOKEEPER;
    if (now.ms < t->recovering_until_ms) return SLUICE_ERECOVERING;
    return fence_after(t, now) <= t->fence_limit ? SLUICE_OK : SLUICE_EFENCES;
}

int sl_copy_text(struct sl_bytes value, struct sl_bytes note, char **out)
{
    *out = NULL;
    if (value.n + note.n == 0) return SLUICE_OK;
    *out = malloc(value.n + note.n);
    if (*out == NULL) return SLUICE_ENOMEM;
    if (value.n > 0) memcpy(*out, value.at, value.n);
    if (note.n > 0) memcpy(*out + value.n, note.at, note.n);
    return SLUICE_OK;
}

void sl_entry_free(struct sl_entry *e)
{
    if (e == NULL) return;
    sl_client_unref(e->client);
    free(e->text);
    free(e);
}

void sl_table_free_retired(struct sl_table *t)
{
    free(t->retired_lock);
    sl_entry_free(t->retired_entry);
    t->retired_lock = NULL;
    t->retired_entry = NULL;
}

/* --- Creation, destruction and sessions --------------------------------------- */

struct sl_table *sl_table_new(const struct sl_table_limits *limits,
                              struct sl_hash_key key)
{
    assert(limits->key_bytes_max <= UINT16_MAX);
    assert(limits->value_bytes_max <= UINT16_MAX && limits->grain_ms >= 0);
    struct sl_table *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->limits = *limits;
    t->fence_limit = SL_FENCE_MAX;
    t->authority_until_ms = SL_NEVER;
    sl_index_init(&t->index, &locks, key);
    sl_clients_init(&t->clients, key);
    t->waits.seed = t->index.seed;
    sl_heap_init(&t->heap, timer_moved);
    sl_list_init(&t->recheck);
    sl_list_init(&t->awaited);
    sl_list_init(&t->ended_sessions);
    sl_list_init(&t->drains);
    sl_list_init(&t->to_answer);
    sl_requests_init(&t->requests, key, limits->request_keep_ms);
    return t;
}

static void leave_session(struct sl_entry *e)
{
    sl_list_remove(&e->of_session);
}

static void each_in(const struct sl_list *list, void (*see)(struct sl_entry *e))
{
    for (struct sl_list *n = list->next, *next; n != list; n = next) {
        next = n->next; /* see() may free the entry. */
        see(sl_container_of(n, struct sl_entry, in_list));
    }
}

static void each_entry(const struct sl_roster *r, void (*see)(struct sl_entry *e))
{
    for (uint32_t i = r->holders.first; i < r->holders.count; i++)
        if (r->holders.items[i].entry != NULL) see(r->holders.items[i].entry);
    for (const struct sl_list *n = r->queues.next; n != &r->queues; n = n->next)
        each_in(&sl_container_of(n, struct sl_wait_queue, in_roster)->entries, see);
    each_in(&r->watching[false], see);
    each_in(&r->watching[true], see);
    each_in(&r->expired, see);
}

static void free_roster_and_all(struct sl_roster *r)
{
    each_entry(r, sl_entry_free);
    while (!sl_list_empty(&r->queues)) {
        struct sl_wait_queue *queue = sl_container_of(r->queues.next,
                                                      struct sl_wait_queue, in_roster);
        sl_list_remove(&queue->in_roster);
        free(queue);
    }
    free(r->holders.items);
    sl_heap_free(&r->ends);
    free(r);
}

static void free_lock_and_all(void *lock)
{
    struct sl_lock *l = lock;
    if (l->roster != NULL) free_roster_and_all(l->roster);
    sl_client_unref(l->client);
    free(l);
}

/* Forget all acquisitions, and free the attempts that have joined them. */
static void drop_requests(struct sl_table *t)
{
    void *some[64];
    uint64_t cursor = 0;
    do {
        size_t n = sl_index_scan(&t->requests.index, &cursor, some,
                                 sizeof some / sizeof *some);
        for (size_t i = 0; i < n; i++) {
            struct sl_acquisition *a = some[i];
            each_in(&a->joined, leave_session);
            each_in(&a->joined, sl_entry_free);
        }
    } while (cursor != 0);
    sl_requests_empty(&t->requests);
    sl_list_init(&t->to_answer);
}

void sl_table_free(struct sl_table *t)
{
    if (t == NULL) return;
    sl_table_free_retired(t);
    drop_requests(t);
    sl_index_free(&t->requests.index);
    sl_index_empty(&t->index, free_lock_and_all);
    sl_table_free_drains(t);
    sl_heap_free(&t->heap);
    sl_clients_free(&t->clients);
    free(t);
}

/* Free a lock, but first remove its entries from their sessions, which live on. */
static void drop_lock(void *lock)
{
    struct sl_lock *l = lock;
    if (l->roster != NULL) each_entry(l->roster, leave_session);
    free_lock_and_all(l);
}

void sl_table_reset(struct sl_table *t)
{
    sl_table_free_retired(t);
    drop_requests(t);
    sl_index_empty(&t->index, drop_lock);
    t->found_lock = NULL;
    sl_heap_free(&t->heap);
    sl_table_free_drains(t);
    sl_list_init(&t->recheck);
    sl_list_init(&t->awaited);
    t->waits.groups = NULL;
    t->entries = t->waiting = t->awaited_count = t->recheck_left = 0;
    t->roster_count = t->text_bytes = 0;
    t->short_of_fences = t->lacks_authority = false;
}

void sl_session_begin(struct sl_session *s, uint64_t id, uint32_t user)
{
    *s = (struct sl_session){.id = id, .user = user};
    sl_list_init(&s->mine);
    sl_list_init(&s->over);
}

void sl_table_session_end(struct sl_table *t, struct sl_session *s)
{
    assert(s->mine.next != NULL); /* The session has begun. */
    if (s->ended) return;
    s->ended = true;
    sl_list_append(&t->ended_sessions, &s->over);
}

bool sl_table_ends_sessions(const struct sl_table *t)
{
    return !sl_list_empty(&t->ended_sessions);
}

int sl_table_describe(struct sl_table *t, struct sl_session *s, struct sl_bytes name,
                      struct sl_bytes address)
{
    struct sl_client *c = sl_client_get(&t->clients, s->id, s->origin, name, address);
    if (c == NULL) return SLUICE_ENOMEM;
    sl_client_unref(s->client);
    s->client = c;
    return SLUICE_OK;
}

int sl_table_know_client(struct sl_table *t, struct sl_session *s)
{
    const struct sl_bytes none = {0};
    return s->client != NULL ? SLUICE_OK : sl_table_describe(t, s, none, none);
}

bool sl_session_holds(const struct sl_session *s)
{
    for (const struct sl_list *n = s->mine.next; n != &s->mine; n = n->next)
        if (sl_container_of(n, struct sl_entry, of_session)->state == SL_HOLDING)
            return true;
    return false;
}

/* --- Locks ------------------------------------------------ */

void sl_table_put_lock(struct sl_table *t, struct sl_lock *l)
{
    assert(t->found_lock == NULL); /* The last look-up was for this key. */
    sl_index_put(&t->index, l, t->found_hash);
    t->found_lock = l;
    t->text_bytes += sl_lock_text_bytes(l);
}

void sl_table_recheck(struct sl_table *t, struct sl_roster *r)
{
    bool victims = false;
    for (int i = 0; i < SL_VICTIM_STATES; i++)
        victims |= !sl_list_empty(&r->victims[i]);
    r->plan_is_old = true;
    if (r->waiters + r->watchers == 0 && !victims) return;
    if (!sl_list_empty(&r->recheck)) return;
    sl_list_append(&t->recheck, &r->recheck);
}

void sl_table_waiter_joined(struct sl_table *t, struct sl_roster *r)
{
    if (!sl_list_empty(&r->awaited)) return;
    sl_list_append(&t->awaited, &r->awaited);
    t->awaited_count++;
}

void sl_table_waiter_left(struct sl_table *t, struct sl_roster *r)
{
    if (r->waiters + r->watchers > 0) return;
    sl_list_remove(&r->awaited);
    t->awaited_count--;
}

void sl_table_drop_unused(struct sl_table *t, struct sl_lock *l)
{
    struct sl_roster *r = l->roster;
    if (r != NULL) {
        sl_table_recheck(t, r);
        if (sl_roster_in_use(r)) return;
        sl_roster_free(r);
        t->roster_count--;
        l->roster = NULL;
    }
    /* An overlap mark keeps the lock in the table until a timer removes the mark. A
     * mark without a timer must not keep the lock, or it would stay forever. */
    if (sl_has_inline(l) || (l->flags & SL_NEXT_OVERLAPS && l->timer != SL_HEAP_NONE))
        return;
    sl_index_remove(&t->index, l,
                    l == t->found_lock ? t->found_hash : hash_of(l, &t->index));
    t->found_lock = NULL;
    sl_table_note_unmark(t, l); /* Without a timer, the mark is lost with the lock. */
    t->text_bytes -= sl_lock_text_bytes(l);
    assert(t->retired_lock == NULL || t->retired_lock == l);
    t->retired_lock = l;
}

int sl_table_reserve_entry(struct sl_table *t, struct sl_lock *l, bool leased)
{
    if (l->roster == NULL) {
        l->roster = sl_roster_new(l);
        if (l->roster == NULL) return SLUICE_ENOMEM;
        t->roster_count++;
    }
    struct sl_roster *r = l->roster;
    int status = sl_holders_reserve(&r->holders, r->holders.live + r->waiters + 1);
    if (status == SLUICE_OK && leased) status = sl_roster_reserve_end(r);
    if (status != SLUICE_OK) return status;
    return sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1);
}

/* --- Entries -------------------------------------------------------------- */

struct sl_entry *sl_entry_new(const struct sl_session *s, const struct sl_want *w)
{
    struct sl_entry *e = malloc(sizeof *e);
    if (e == NULL) return NULL;
    *e = (struct sl_entry){.client = sl_client_ref(s->client),
                           .named = w->named,
                           .session_id = s->id,
                           .ticket = w->ticket,
                           .notify = w->notify,
                           .user = s->user,
                           .end_ms = SL_NEVER,
                           .lease_ms = w->lease_ms,
                           .timer = SL_HEAP_NONE,
                           .roster_timer = SL_HEAP_NONE,
                           .units = w->shared ? 0 : w->units,
                           .per = w->per,
                           .buckets = w->buckets,
                           .priority = w->priority,
                           .shared = w->shared,
                           .steals = w->steal,
                           .force_ms = SL_NEVER,
                           .victim_ms = -1,
                           .value_bytes = (uint16_t)w->value.n,
                           .note_bytes = (uint16_t)w->note.n};
    if (sl_copy_text(w->value, w->note, &e->text) != SLUICE_OK) {
        sl_entry_free(e);
        return NULL;
    }
    sl_list_init(&e->of_session);
    sl_list_init(&e->in_list);
    sl_list_init(&e->asked);
    return e;
}

static void set_timer(struct sl_heap *h, uint32_t place, sl_ms end_ms, void *owner)
{
    if (end_ms == SL_NEVER) {
        if (place != SL_HEAP_NONE) sl_heap_remove(h, place);
    } else if (place == SL_HEAP_NONE) sl_heap_put(h, end_ms, owner);
    else sl_heap_move(h, place, end_ms);
}

void sl_table_set_end(struct sl_table *t, struct sl_entry *e, sl_ms end_ms)
{
    e->end_ms = end_ms;
    e->force_timer = false;
    set_timer(&t->heap, e->timer, end_ms, e);
    if (e->state == SL_HOLDING && !e->expired)
        set_timer(&e->lock->roster->ends, e->roster_timer, end_ms, e);
}

void sl_table_set_force(struct sl_table *t, struct sl_entry *e, sl_ms force_ms)
{
    e->force_ms = force_ms;
    if (force_ms >= e->end_ms) return;
    e->force_timer = true;
    set_timer(&t->heap, e->timer, force_ms, e);
}

void sl_table_retire_entry(struct sl_table *t, struct sl_entry *e)
{
    assert(e->queue == NULL && sl_list_empty(&e->in_list));
    sl_table_set_end(t, e, SL_NEVER);
    sl_list_remove(&e->of_session);
    t->entries--;
    t->text_bytes -= sl_entry_text_bytes(e);
    assert(t->retired_entry == NULL);
    t->retired_entry = e;
}

void sl_table_mark_next(struct sl_table *t, struct sl_lock *l, sl_ms end_ms)
{
    bool marked = (l->flags & SL_NEXT_OVERLAPS) != 0;
    if (marked && l->timer != SL_HEAP_NONE && l->end_ms > end_ms) return;
    sl_table_note_mark(t, l, end_ms, marked ? l->end_ms : 0);
    l->flags |= SL_NEXT_OVERLAPS;
    if (sl_has_inline(l)) return; /* The mark lasts as long as the inline holder. */
    l->end_ms = end_ms;
    set_timer(&t->heap, l->timer, end_ms, sl_inline_owner(l));
}

void sl_table_unmark_next(struct sl_table *t, struct sl_lock *l)
{
    if ((l->flags & SL_NEXT_OVERLAPS) == 0) return;
    sl_table_note_unmark(t, l);
    if (!sl_has_inline(l) && l->timer != SL_HEAP_NONE)
        sl_heap_remove(&t->heap, l->timer);
}

void sl_table_grant_entry(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                          struct sl_session *s, struct sl_grant *out)
{
    struct sl_lock *l = e->lock;
    struct sl_roster *r = l->roster;
    assert(e->state != SL_HOLDING && e->queue == NULL);
    e->state = SL_HOLDING;
    e->fence = sl_table_next_fence(t, now);
    e->granted_ms = now.ms;
    sl_table_set_end(t, e,
                     e->lease_ms == 0 ? SL_NEVER : sl_end_after(t, now, e->lease_ms));
    sl_list_remove(&e->of_session);
    e->session = e->lease_ms == 0 ? s : NULL;
    if (e->lease_ms == 0) sl_list_append(&s->mine, &e->of_session);
    sl_holders_append(&r->holders, e);
    sl_roster_add_holder(r, e, t->index.seed);
    *out = (struct sl_grant){.fence = e->fence,
                             .held = e->shared ? r->shared : r->held,
                             .lease_ms = e->lease_ms,
                             .waited_ms = sl_waited_ms(t, now.ms - e->came_ms),
                             .overlapping = e->overlaps || sl_lock_is_marked(l, now)};
    e->overlaps = out->overlapping;
    sl_table_unmark_next(t, l);
    sl_table_note_grant(t, now, (struct sl_grant_ref){l, e}, 0);
    sl_table_recheck(t, r); /* Watchers may wait until the key is held. */
}

static void expire_entry(struct sl_table *t, struct sl_now now, struct sl_entry *e)
{
    struct sl_roster *r = e->lock->roster;
    if (e->expired) return;
    sl_table_end_named(t, now, e);
    sl_table_note_end(t, (struct sl_grant_ref){e->lock, e});
    sl_roster_expire_holder(r, e, t->index.seed);
    sl_table_recheck(t, r);
}

void sl_table_end_entry(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                        struct sl_ended *out)
{
    struct sl_lock *l = e->lock;
    assert(e->state == SL_HOLDING);
    *out = (struct sl_ended){.fence = e->fence,
                             .session_id = e->session_id,
                             .held_ms = now.ms - e->granted_ms,
                             .broken = e->broken,
                             .leased = e->lease_ms > 0};
    expire_entry(t, now, e);
    out->asked_ms = e->victim_ms < 0 ? -1 : now.ms - e->victim_ms;
    sl_list_remove(&e->in_list); /* Remove it from the expired list. */
    sl_table_retire_entry(t, e);
    sl_table_drop_unused(t, l);
}

void sl_table_end_inline(struct sl_table *t, struct sl_now now, struct sl_lock *l,
                         struct sl_ended *out)
{
    assert(sl_has_inline(l));
    *out = (struct sl_ended){.fence = l->fence,
                             .session_id = sl_inline_session_id(l),
                             .held_ms = sl_inline_age_ms(l, now),
                             .broken = (l->flags & SL_INLINE_BROKEN) != 0,
                             .leased = l->end_ms != SL_NEVER,
                             .asked_ms = -1};
    if (sl_inline_counts(l)) {
        sl_table_note_end(t, (struct sl_grant_ref){.lock = l});
        if (l->roster != NULL) l->roster->held--;
    }
    if (l->timer != SL_HEAP_NONE) sl_heap_remove(&t->heap, l->timer);
    sl_inline_clear(l);
    sl_table_drop_unused(t, l);
}

/* --- Expiry ------------------------------------------------------ */

void sl_table_expire_lock(struct sl_table *t, struct sl_now now, struct sl_lock *l)
{
    struct sl_roster *r = l->roster;
    if (sl_inline_counts(l) && l->end_ms <= now.ms) {
        sl_table_note_end(t, (struct sl_grant_ref){.lock = l});
        l->flags |= SL_INLINE_EXPIRED;
        if (r != NULL) r->held--, sl_table_recheck(t, r);
    }
    while (r != NULL && r->ends.count > 0 && r->ends.items[0].at <= now.ms)
        expire_entry(t, now, r->ends.items[0].owner);
}
