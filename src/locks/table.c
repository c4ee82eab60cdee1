/* table.c - what a table is made of: locks and entries, and how they come and go. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "locks/table_internal.h"

/* --- Small things --------------------------------------------------------- */

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

static void placed(void *owner, uint32_t place)
{
    struct sl_lock *l = sl_owner_lock(owner);
    if (l != NULL) l->timer = place;
    else ((struct sl_entry *)owner)->timer = place;
}

struct sl_lock *sl_table_seek_lock(struct sl_table *t, struct sl_bytes key)
{
    t->sought_hash = sl_hash(t->index.key, key.at, key.n);
    return t->sought = sl_index_find(&t->index, key, t->sought_hash);
}

struct sl_lock *sl_table_find_lock(const struct sl_table *t, struct sl_bytes key)
{
    return sl_index_find(&t->index, key, sl_hash(t->index.key, key.at, key.n));
}

static sl_fence fence_after(const struct sl_table *t, struct sl_now now)
{
    sl_fence f = t->fence + 1;
#if defined MUT_CLOCKBACK
    if (now.wall_us <= SL_WALL_US_MAX) f = now.wall_us;
#elif defined MUT_FENCEMAX
    if (now.wall_us > f) f = now.wall_us;
#else
    if (now.wall_us > f && now.wall_us <= SL_WALL_US_MAX) f = now.wall_us;
#endif
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
    free(e->text);
    free(e);
}

void sl_table_forget_old(struct sl_table *t)
{
    free(t->old_lock);
    sl_entry_free(t->old_entry);
    t->old_lock = NULL;
    t->old_entry = NULL;
}

/* --- Life ----------------------------------------------------------------- */

struct sl_table *sl_table_new(const struct sl_table_limits *limits,
                              struct sl_hash_key key)
{
    struct sl_table *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->limits = *limits;
    t->fence_limit = SL_FENCE_MAX;
    t->authority_until_ms = SL_NEVER;
    sl_index_init(&t->index, &locks, key);
    sl_heap_init(&t->heap, placed);
    sl_list_init(&t->stirred);
    sl_list_init(&t->waited);
    sl_list_init(&t->over);
    sl_list_init(&t->drains);
    return t;
}

/* Of a line, of watchers, of ghosts. */
static void each_on(const struct sl_list *list, void (*see)(struct sl_entry *e))
{
    for (struct sl_list *n = list->next, *next; n != list; n = next) {
        next = n->next; /* It may be freed. */
        see(sl_container_of(n, struct sl_entry, place));
    }
}

static void each_entry(const struct sl_crowd *c, void (*see)(struct sl_entry *e))
{
    for (uint32_t i = c->holders.first; i < c->holders.count; i++)
        if (c->holders.items[i].entry != NULL) see(c->holders.items[i].entry);
    for (const struct sl_list *n = c->lines.next; n != &c->lines; n = n->next)
        each_on(&sl_container_of(n, struct sl_line, place)->entries, see);
    each_on(&c->watching[false], see);
    each_on(&c->watching[true], see);
    each_on(&c->ghosts, see);
}

static void free_crowd_and_all(struct sl_crowd *c)
{
    each_entry(c, sl_entry_free);
    while (!sl_list_empty(&c->lines)) {
        struct sl_line *line = sl_container_of(c->lines.next, struct sl_line, place);
        sl_list_remove(&line->place);
        free(line);
    }
    free(c->holders.items);
    sl_heap_free(&c->ends);
    free(c);
}

static void free_lock_and_all(void *lock)
{
    struct sl_lock *l = lock;
    if (l->crowd != NULL) free_crowd_and_all(l->crowd);
    free(l);
}

void sl_table_free(struct sl_table *t)
{
    if (t == NULL) return;
    sl_table_forget_old(t);
    sl_index_empty(&t->index, free_lock_and_all);
    sl_table_free_drains(t);
    sl_heap_free(&t->heap);
    free(t);
}

static void leave_session(struct sl_entry *e)
{
    sl_list_remove(&e->of_session);
}

/* Sessions outlive what they had here. */
static void drop_lock(void *lock)
{
    struct sl_lock *l = lock;
    if (l->crowd != NULL) each_entry(l->crowd, leave_session);
    free_lock_and_all(l);
}

void sl_table_reset(struct sl_table *t)
{
    sl_table_forget_old(t);
    sl_index_empty(&t->index, drop_lock);
    t->sought = NULL;
    sl_heap_free(&t->heap);
    sl_table_free_drains(t);
    sl_list_init(&t->stirred);
    sl_list_init(&t->waited);
    t->entries = t->waiting = t->crowds = t->to_stir = 0;
    t->crowds_made = t->text_bytes = 0;
    t->short_of_fences = t->lacks_authority = false;
#ifdef MUT_RESETFENCE
    t->fence = 0;
#endif
}

void sl_session_begin(struct sl_session *s, uint64_t id, uint32_t user)
{
    *s = (struct sl_session){.id = id, .user = user};
    sl_list_init(&s->mine);
    sl_list_init(&s->over);
}

void sl_table_session_end(struct sl_table *t, struct sl_session *s)
{
    if (s->ended) return;
    s->ended = true;
    sl_list_append(&t->over, &s->over);
}

bool sl_table_ends_sessions(const struct sl_table *t)
{
    return !sl_list_empty(&t->over);
}

bool sl_session_holds(const struct sl_session *s)
{
    for (const struct sl_list *n = s->mine.next; n != &s->mine; n = n->next)
        if (sl_container_of(n, struct sl_entry, of_session)->state == SL_HOLDS)
            return true;
    return false;
}

/* --- Locks come and go ---------------------------------------------------- */

void sl_table_put_lock(struct sl_table *t, struct sl_lock *l)
{
    sl_index_put(&t->index, l, t->sought_hash);
    t->sought = l;
    t->text_bytes += sl_lock_text_bytes(l);
}

void sl_table_stir(struct sl_table *t, struct sl_crowd *c)
{
    bool victims = false;
    for (int i = 0; i < SL_VICTIMS; i++) victims |= !sl_list_empty(&c->victims[i]);
    c->plan_is_old = true;
    if (c->waiters + c->watchers == 0 && !victims) return;
    if (!sl_list_empty(&c->stirred)) return;
    sl_list_append(&t->stirred, &c->stirred);
}

void sl_table_joined(struct sl_table *t, struct sl_crowd *c)
{
    if (!sl_list_empty(&c->waited)) return;
    sl_list_append(&t->waited, &c->waited);
    t->crowds++;
}

void sl_table_left(struct sl_table *t, struct sl_crowd *c)
{
    if (c->waiters + c->watchers > 0) return;
    sl_list_remove(&c->waited);
    t->crowds--;
}

void sl_table_tidy(struct sl_table *t, struct sl_lock *l)
{
    struct sl_crowd *c = l->crowd;
    if (c != NULL) {
        sl_table_stir(t, c);
        if (sl_crowd_is_there(c)) return;
        sl_crowd_free(c);
        t->crowds_made--;
        l->crowd = NULL;
    }
    /* A mark keeps it, but one without an end would keep it for ever. */
    if (sl_has_seat(l) || (l->flags & SL_NEXT_OVERLAPS && l->timer != SL_HEAP_NONE))
        return;
    sl_index_remove(&t->index, l,
                    l == t->sought ? t->sought_hash : hash_of(l, &t->index));
    t->sought = NULL;
    t->text_bytes -= sl_lock_text_bytes(l);
    assert(t->old_lock == NULL || t->old_lock == l);
    t->old_lock = l;
}

int sl_table_reserve_entry(struct sl_table *t, struct sl_lock *l, bool leased)
{
    if (l->crowd == NULL) {
        l->crowd = sl_crowd_new(l);
        if (l->crowd == NULL) return SLUICE_ENOMEM;
        t->crowds_made++;
    }
    struct sl_crowd *c = l->crowd;
#ifdef MUT_LATEROLL
    int status = sl_roll_reserve(&c->holders, c->holders.live + 1);
#else
    int status = sl_roll_reserve(&c->holders, c->holders.live + c->waiters + 1);
#endif
    if (status == SLUICE_OK && leased) status = sl_crowd_reserve_end(c);
    if (status != SLUICE_OK) return status;
#ifdef MUT_LATEHEAP
    return sl_heap_reserve(&t->heap, 1);
#else
    return sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1);
#endif
}

/* --- Entries -------------------------------------------------------------- */

struct sl_entry *sl_entry_new(const struct sl_session *s, const struct sl_want *w)
{
    struct sl_entry *e = malloc(sizeof *e);
    if (e == NULL) return NULL;
    *e = (struct sl_entry){.session_id = s->id,
                           .user = s->user,
                           .end_ms = SL_NEVER,
                           .lease_ms = w->lease_ms,
                           .timer = SL_HEAP_NONE,
                           .crowd_timer = SL_HEAP_NONE,
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
        free(e);
        return NULL;
    }
    sl_list_init(&e->of_session);
    sl_list_init(&e->place);
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
    if (e->state == SL_HOLDS && !e->ghost)
        set_timer(&e->lock->crowd->ends, e->crowd_timer, end_ms, e);
}

void sl_table_set_force(struct sl_table *t, struct sl_entry *e, sl_ms force_ms)
{
    e->force_ms = force_ms;
    if (force_ms >= e->end_ms) return;
    e->force_timer = true;
    set_timer(&t->heap, e->timer, force_ms, e);
}

void sl_table_bury(struct sl_table *t, struct sl_entry *e)
{
    sl_table_set_end(t, e, SL_NEVER);
    sl_list_remove(&e->of_session);
    t->entries--;
    t->text_bytes -= sl_entry_text_bytes(e);
    assert(t->old_entry == NULL);
    t->old_entry = e;
}

void sl_table_mark(struct sl_table *t, struct sl_lock *l, sl_ms end_ms)
{
    bool marked = (l->flags & SL_NEXT_OVERLAPS) != 0;
    l->flags |= SL_NEXT_OVERLAPS;
    if (sl_has_seat(l)) return; /* It stays as long as who sits there. */
    if (marked && l->timer != SL_HEAP_NONE && l->end_ms > end_ms) return;
    l->end_ms = end_ms;
    set_timer(&t->heap, l->timer, end_ms, sl_as_owner(l));
}

void sl_table_unmark(struct sl_table *t, struct sl_lock *l)
{
    if ((l->flags & SL_NEXT_OVERLAPS) == 0) return;
    l->flags &= (uint16_t)~SL_NEXT_OVERLAPS;
    if (!sl_has_seat(l) && l->timer != SL_HEAP_NONE) sl_heap_remove(&t->heap, l->timer);
}

void sl_table_hold(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                   struct sl_session *s, struct sl_grant *out)
{
    struct sl_lock *l = e->lock;
    struct sl_crowd *c = l->crowd;
    e->state = SL_HOLDS;
    e->fence = sl_table_next_fence(t, now);
    e->granted_ms = now.ms;
    sl_table_set_end(t, e,
                     e->lease_ms == 0 ? SL_NEVER : sl_end_after(t, now, e->lease_ms));
    sl_list_remove(&e->of_session);
    e->session = e->lease_ms == 0 ? s : NULL;
    if (e->lease_ms == 0) sl_list_append(&s->mine, &e->of_session);
    sl_roll_append(&c->holders, e);
    sl_crowd_count(c, e, t->index.seed);
    *out = (struct sl_grant){.fence = e->fence,
                             .held = e->shared ? c->shared : c->held,
                             .lease_ms = e->lease_ms,
                             .waited_ms = sl_waited_ms(t, now.ms - e->asked_ms),
                             .overlapping = sl_lock_is_marked(l, now)};
    e->overlaps = out->overlapping;
    sl_table_unmark(t, l);
    sl_table_stir(t, c); /* For those who watch. */
}

/* Units that are no longer counted, while the entry stays where it is. */
static void uncount(struct sl_table *t, struct sl_entry *e)
{
    struct sl_crowd *c = e->lock->crowd;
    if (e->ghost) return;
    sl_crowd_uncount(c, e, t->index.seed);
    sl_table_stir(t, c);
}

void sl_table_unhold(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                     struct sl_ended *out)
{
    struct sl_lock *l = e->lock;
    *out = (struct sl_ended){.fence = e->fence,
                             .session_id = e->session_id,
                             .held_ms = now.ms - e->granted_ms,
                             .broken = e->broken,
                             .leased = e->lease_ms > 0};
    uncount(t, e);
    out->asked_ms = e->victim_ms < 0 ? -1 : now.ms - e->victim_ms;
    sl_list_remove(&e->place); /* From among the ghosts. */
    sl_table_bury(t, e);
    sl_table_tidy(t, l);
}

void sl_table_unseat(struct sl_table *t, struct sl_now now, struct sl_lock *l,
                     struct sl_ended *out)
{
    *out = (struct sl_ended){.fence = l->fence,
                             .session_id = l->session_id,
                             .held_ms = sl_seat_age_ms(l, now),
                             .broken = (l->flags & SL_SEAT_BROKEN) != 0,
                             .leased = l->end_ms != SL_NEVER,
                             .asked_ms = -1};
    if (l->crowd != NULL && sl_seat_counts(l)) l->crowd->held--;
    if (l->timer != SL_HEAP_NONE) sl_heap_remove(&t->heap, l->timer);
    l->fence = 0;
    l->flags &= (uint16_t) ~(SL_SEAT_GHOST | SL_SEAT_BROKEN);
    sl_table_tidy(t, l);
}

/* --- Time passes ---------------------------------------------------------- */

void sl_table_pass_time(struct sl_table *t, struct sl_now now, struct sl_lock *l)
{
    struct sl_crowd *c = l->crowd;
#ifdef MUT_GHOSTCOUNTS
    return;
#endif
    if (sl_seat_counts(l) && l->end_ms <= now.ms) {
        l->flags |= SL_SEAT_GHOST;
        if (c != NULL) c->held--, sl_table_stir(t, c);
    }
    while (c != NULL && c->ends.count > 0 && c->ends.items[0].at <= now.ms)
        uncount(t, c->ends.items[0].owner);
}
