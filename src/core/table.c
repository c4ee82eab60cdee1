#include "core/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/glob.h"
#include "core/table_inside.h"

/* A pattern of keys on which nothing is granted. */
struct drain {
    struct sl_list place;
    size_t n;
    char glob[];
};

/* --- Small things --------------------------------------------------------- */

static uint64_t hash_bytes(struct sl_bytes b, uint64_t seed)
{
    return XXH3_64bits_withSeed(b.at, b.n, seed);
}

static uint64_t hash_of(const void *lock, uint64_t seed)
{
    return hash_bytes(sl_key_of(lock), seed);
}

static bool same_key(const void *lock, struct sl_bytes key)
{
    const struct sl_lock *l = lock;
    return l->key_bytes == key.n && memcmp(l->text, key.at, key.n) == 0;
}

static const struct sl_index_kind locks = {.hash = hash_of, .same = same_key};

static struct sl_lock *lock_of_owner(void *owner)
{
    uintptr_t p = (uintptr_t)owner;
    return (p & 1u) != 0 ? (struct sl_lock *)(p & ~(uintptr_t)1) : NULL;
}

static void placed(void *owner, uint32_t place)
{
    struct sl_lock *l = lock_of_owner(owner);
    if (l != NULL) l->timer = place;
    else ((struct sl_entry *)owner)->timer = place;
}

struct sl_lock *sl_table_find_lock(const struct sl_table *t, struct sl_bytes key)
{
    return sl_index_find(&t->index, key, hash_bytes(key, t->index.seed));
}

/* The next fence: the time, or one more than the last. */
static sl_fence next_fence(struct sl_table *t, struct sl_now now)
{
    sl_fence f = t->fence + 1;
    if (now.wall_us > f && now.wall_us <= SL_FENCE_MAX) f = now.wall_us;
    return t->fence = f;
}

/* A copy of a value and a note, one behind the other; *out NULL if both are empty. */
static int copy_text(struct sl_bytes value, struct sl_bytes note, char **out)
{
    *out = NULL;
    if (value.n + note.n == 0) return SLUICE_OK;
    *out = malloc(value.n + note.n);
    if (*out == NULL) return SLUICE_ENOMEM;
    if (value.n > 0) memcpy(*out, value.at, value.n);
    if (note.n > 0) memcpy(*out + value.n, note.at, note.n);
    return SLUICE_OK;
}

static void free_entry(struct sl_entry *e)
{
    if (e == NULL) return;
    free(e->text);
    free(e);
}

static void forget_old(struct sl_table *t)
{
    free(t->old_lock);
    free_entry(t->old_entry);
    t->old_lock = NULL;
    t->old_entry = NULL;
}

bool sl_table_drained(const struct sl_table *t, struct sl_bytes key)
{
    for (const struct sl_list *n = t->drains.next; n != &t->drains; n = n->next) {
        const struct drain *d = sl_entry_of(n, struct drain, place);
        if (sl_glob((struct sl_bytes){d->glob, d->n}, key)) return true;
    }
    return false;
}

/* --- Life ----------------------------------------------------------------- */

struct sl_table *sl_table_new(const struct sl_limits *limits, uint64_t seed)
{
    struct sl_table *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->limits = *limits;
    sl_index_init(&t->index, &locks, seed);
    sl_heap_init(&t->heap, placed);
    sl_list_init(&t->stirred);
    sl_list_init(&t->waited);
    sl_list_init(&t->over);
    sl_list_init(&t->drains);
    return t;
}

static void free_crowd_and_all(struct sl_crowd *c)
{
    for (uint32_t i = 0; i < c->holders.count; i++)
        free_entry(c->holders.items[i].entry);
    while (!sl_list_empty(&c->lines)) {
        struct sl_line *line = sl_entry_of(c->lines.next, struct sl_line, place);
        while (!sl_list_empty(&line->entries)) {
            struct sl_entry *e = sl_entry_of(line->entries.next, struct sl_entry,
                                             place);
            sl_list_remove(&e->place);
            free_entry(e);
        }
        sl_list_remove(&line->place);
        free(line);
    }
    while (!sl_list_empty(&c->watching)) {
        struct sl_entry *e = sl_entry_of(c->watching.next, struct sl_entry, place);
        sl_list_remove(&e->place);
        free_entry(e);
    }
    free(c->holders.items);
    free(c);
}

void sl_table_free(struct sl_table *t)
{
    if (t == NULL) return;
    void *some[64];
    uint64_t cursor = 0;
    forget_old(t);
    do {
        size_t n = sl_index_scan(&t->index, &cursor, some, sizeof some / sizeof *some);
        for (size_t i = 0; i < n; i++) {
            struct sl_lock *l = some[i];
            if (l->crowd != NULL) free_crowd_and_all(l->crowd);
            free(l);
        }
    } while (cursor != 0);
    while (!sl_list_empty(&t->drains)) {
        struct drain *d = sl_entry_of(t->drains.next, struct drain, place);
        sl_list_remove(&d->place);
        free(d);
    }
    sl_index_free(&t->index);
    sl_heap_free(&t->heap);
    free(t);
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

/* --- Locks come and go ---------------------------------------------------- */

static struct sl_lock *new_lock(struct sl_bytes key, struct sl_bytes value,
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

/* Look at a crowd again: somebody may be next, or a watcher see what it waits for. */
static void stir(struct sl_table *t, struct sl_crowd *c)
{
    if (c->waiters + c->watchers == 0 || !sl_list_empty(&c->stirred)) return;
    sl_list_append(&t->stirred, &c->stirred);
}

/* After somebody has gone: free what nobody is in. The lock's memory lives until the next
 * call, as its key may have been handed out. */
static void tidy(struct sl_table *t, struct sl_lock *l)
{
    struct sl_crowd *c = l->crowd;
    if (c != NULL) {
        stir(t, c);
        if (c->holders.live + c->waiters + c->watchers > 0) return;
        sl_crowd_free(c);
        t->crowds--;
        l->crowd = NULL;
    }
    if (sl_has_seat(l) || (l->flags & SL_NEXT_OVERLAPS) != 0) return;
    sl_index_remove(&t->index, l, hash_of(l, t->index.seed));
    assert(t->old_lock == NULL || t->old_lock == l);
    t->old_lock = l;
}

static int need_crowd(struct sl_table *t, struct sl_lock *l)
{
    if (l->crowd != NULL) return SLUICE_OK;
    l->crowd = sl_crowd_new(l);
    if (l->crowd == NULL) return SLUICE_ENOMEM;
    sl_list_append(&t->waited, &l->crowd->waited);
    t->crowds++;
    return SLUICE_OK;
}

/* --- Entries -------------------------------------------------------------- */

static struct sl_entry *new_entry(const struct sl_session *s, const struct sl_want *w)
{
    struct sl_entry *e = malloc(sizeof *e);
    if (e == NULL) return NULL;
    *e = (struct sl_entry){.session_id = s->id,
                           .user = s->user,
                           .end_ms = SL_NEVER,
                           .lease_ms = w->lease_ms,
                           .timer = SL_HEAP_NONE,
                           .units = w->shared ? 0 : w->units,
                           .per = w->per,
                           .buckets = w->buckets,
                           .priority = w->priority,
                           .shared = w->shared,
                           .value_bytes = (uint16_t)w->value.n,
                           .note_bytes = (uint16_t)w->note.n};
    if (copy_text(w->value, w->note, &e->text) != SLUICE_OK) {
        free(e);
        return NULL;
    }
    sl_list_init(&e->of_session);
    sl_list_init(&e->place);
    return e;
}

static void set_end(struct sl_table *t, struct sl_entry *e, sl_ms end_ms)
{
    e->end_ms = end_ms;
    if (end_ms == SL_NEVER) {
        if (e->timer != SL_HEAP_NONE) sl_heap_remove(&t->heap, e->timer);
    } else if (e->timer == SL_HEAP_NONE) sl_heap_put(&t->heap, end_ms, e);
    else sl_heap_move(&t->heap, e->timer, end_ms);
}

/* Let an entry go that is on no roll, line or list of watchers any more. Its bytes live
 * until the next call. */
static void bury(struct sl_table *t, struct sl_entry *e)
{
    set_end(t, e, SL_NEVER);
    sl_list_remove(&e->of_session);
    t->entries--;
    assert(t->old_entry == NULL);
    t->old_entry = e;
}

/* Make an entry a holder. All memory for it is there. */
static void hold(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                 struct sl_session *s, struct sl_grant *out)
{
    struct sl_lock *l = e->lock;
    struct sl_crowd *c = l->crowd;
    e->state = SL_HOLDS;
    e->fence = next_fence(t, now);
    e->granted_ms = now.ms;
    set_end(t, e, e->lease_ms == 0 ? SL_NEVER : sl_ms_after(now.ms, e->lease_ms));
    sl_list_remove(&e->of_session);
    e->session = e->lease_ms == 0 ? s : NULL;
    if (e->lease_ms == 0) sl_list_append(&s->mine, &e->of_session);
    sl_roll_append(&c->holders, e);
    c->held += e->units;
    if (e->shared) c->shared++;
    *out = (struct sl_grant){.fence = e->fence,
                             .held = e->shared ? c->shared : c->held,
                             .lease_ms = e->lease_ms,
                             .waited_ms = now.ms - e->asked_ms,
                             .overlapping = (l->flags & SL_NEXT_OVERLAPS) != 0};
    l->flags &= (uint16_t)~SL_NEXT_OVERLAPS;
    stir(t, c); /* For those who watch. */
}

/* Units that are no longer counted, while the entry stays where it is. */
static void uncount(struct sl_table *t, struct sl_entry *e)
{
    struct sl_crowd *c = e->lock->crowd;
    if (e->ghost) return;
    e->ghost = true;
    c->held -= e->units;
    if (e->shared) c->shared--;
    stir(t, c);
}

/* Take a holder off its lock. */
static void unhold(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                   struct sl_past *out)
{
    struct sl_lock *l = e->lock;
    *out = (struct sl_past){.fence = e->fence,
                            .session_id = e->session_id,
                            .held_ms = now.ms - e->granted_ms};
    uncount(t, e);
    sl_roll_remove(&l->crowd->holders, e->fence);
    bury(t, e);
    tidy(t, l);
}

/* The same for the seat. */
static void unseat(struct sl_table *t, struct sl_now now, struct sl_lock *l,
                   struct sl_past *out)
{
    *out = (struct sl_past){.fence = l->fence,
                            .session_id = l->session_id,
                            .held_ms = sl_seat_age_ms(l, now)};
    if (l->crowd != NULL && sl_seat_counts(l)) l->crowd->held--;
    if (l->timer != SL_HEAP_NONE) sl_heap_remove(&t->heap, l->timer);
    l->fence = 0;
    l->flags &= (uint16_t) ~(SL_SEAT_GHOST | SL_SEAT_BROKEN);
    tidy(t, l);
}

/* --- Time passes ---------------------------------------------------------- */

/* While the heap has more to tell than it was asked for, leases that are over may still
 * be there: of this lock, count them no more. */
static void pass_time(struct sl_table *t, struct sl_now now, struct sl_lock *l)
{
    if (t->heap.count == 0 || t->heap.items[0].at > now.ms) return;
    struct sl_crowd *c = l->crowd;
    if (sl_seat_counts(l) && l->end_ms <= now.ms) {
        l->flags |= SL_SEAT_GHOST;
        if (c != NULL) c->held--, stir(t, c);
    }
    for (uint32_t i = c == NULL ? 0 : c->holders.first;
         c != NULL && i < c->holders.count; i++) {
        struct sl_entry *e = c->holders.items[i].entry;
        if (e != NULL && e->end_ms <= now.ms) uncount(t, e);
    }
}

/* --- Acquire -------------------------------------------------------------- */

static int check_want(const struct sl_table *t, const struct sl_want *w)
{
    const struct sl_limits *m = &t->limits;
    if (w->key.n == 0) return SLUICE_EINVAL;
    if (w->key.n > m->key_bytes_max || w->value.n > m->value_bytes_max ||
        w->note.n > m->value_bytes_max)
        return SLUICE_ETOOBIG;
    if (w->wait_ms < 0 || w->lease_ms < 0) return SLUICE_EINVAL;
    if (w->shared) return SLUICE_OK;
    uint64_t room = (uint64_t)w->per * w->buckets;
    if (w->units == 0) return SLUICE_EINVAL;
    if (room > SLUICE_ROOM_MAX || w->units > SLUICE_UNITS_MAX) return SLUICE_ETOOBIG;
    if (room == 0) return SLUICE_EFULL; /* No room is room for nobody. */
    return w->units > room ? SLUICE_ETOOBIG : SLUICE_OK;
}

static uint64_t room_of(const struct sl_want *w)
{
    return w->shared ? 0 : (uint64_t)w->per * w->buckets;
}

/* Whether a request is so plain that it may have the seat of a new lock. */
static bool is_plain(const struct sl_want *w)
{
    return w->lease_ms > 0 && !w->shared && w->per == 1 && w->buckets == 1 &&
           w->units == 1 && w->priority == 0;
}

/* A lock that nobody had to do with, and its first holder on the seat. */
static int take_seat(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                     const struct sl_want *w, struct sl_grant *out)
{
    struct sl_lock *l = new_lock(w->key, w->value, w->note);
    if (l == NULL || sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1) != SLUICE_OK) {
        free(l);
        return SLUICE_ENOMEM;
    }
    l->fence = next_fence(t, now);
    l->session_id = s->id;
    l->user = s->user;
    l->end_ms = sl_ms_after(now.ms, w->lease_ms);
    if (l->end_ms != SL_NEVER) sl_heap_put(&t->heap, l->end_ms, sl_as_owner(l));
    sl_index_put(&t->index, l, hash_of(l, t->index.seed));
    *out = (struct sl_grant){.fence = l->fence, .held = 1, .lease_ms = w->lease_ms};
    return SLUICE_OK;
}

/* Memory for one more entry on a lock, whatever becomes of it. */
static int reserve_entry(struct sl_table *t, struct sl_lock *l)
{
    int status = need_crowd(t, l);
    if (status != SLUICE_OK) return status;
    struct sl_crowd *c = l->crowd;
    status = sl_roll_reserve(&c->holders, c->holders.live + c->waiters + 1);
    if (status != SLUICE_OK) return status;
    return sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1);
}

/* Whether all that stands in the way is the session's own, for as long as it lives. */
static bool waits_for_itself(const struct sl_lock *l, const struct sl_session *s)
{
    const struct sl_crowd *c = l->crowd;
    if (c == NULL || sl_seat_counts(l) || c->holders.live == 0) return false;
    for (uint32_t i = c->holders.first; i < c->holders.count; i++) {
        const struct sl_entry *e = c->holders.items[i].entry;
        if (e != NULL && !e->ghost && e->session != s) return false;
    }
    return true;
}

static int enter_line(struct sl_table *t, struct sl_now now, struct sl_session *s,
                      struct sl_lock *l, const struct sl_want *w)
{
    if (waits_for_itself(l, s)) return SLUICE_EDEADLOCK;
    if (l->crowd != NULL &&
        l->crowd->waiters + l->crowd->watchers >= t->limits.waiters_max)
        return SLUICE_EWAITERS;
    struct sl_entry *e = new_entry(s, w);
    if (e == NULL) return SLUICE_ENOMEM;
    struct sl_line *line = NULL;
    if (reserve_entry(t, l) == SLUICE_OK)
        line = sl_crowd_line(l->crowd, w->priority, w->shared, room_of(w));
    if (line == NULL) {
        free_entry(e);
        tidy(t, l);
        return SLUICE_ENOMEM;
    }
    e->lock = l;
    e->state = SL_IN_LINE;
    e->session = s;
    e->asked_ms = now.ms;
    e->arrival = ++t->arrivals;
    sl_list_append(&s->mine, &e->of_session);
    sl_crowd_enter(l->crowd, line, e);
    t->entries++;
    t->waiting++;
    set_end(t, e, sl_ms_after(now.ms, w->wait_ms));
    return SL_WAITS;
}

/* Beside those who hold, if there are any. */
static int join(struct sl_table *t, struct sl_now now, struct sl_session *s,
                struct sl_lock *l, const struct sl_want *w, struct sl_grant *out)
{
    struct sl_entry *e = new_entry(s, w);
    if (e == NULL || reserve_entry(t, l) != SLUICE_OK) {
        free_entry(e);
        tidy(t, l);
        return SLUICE_ENOMEM;
    }
    e->lock = l;
    e->asked_ms = now.ms;
    t->entries++;
    hold(t, now, e, s, out);
    return SLUICE_OK;
}

/* A lock with nobody on it, in the index. NULL when out of memory. */
static struct sl_lock *found_lock(struct sl_table *t, struct sl_bytes key)
{
    const struct sl_bytes none = {0};
    struct sl_lock *l = new_lock(key, none, none);
    if (l != NULL) sl_index_put(&t->index, l, hash_of(l, t->index.seed));
    return l;
}

static int reserve_key(struct sl_table *t)
{
    if (t->index.count >= t->limits.keys_max) return SLUICE_EKEYS;
    return sl_index_reserve(&t->index);
}

static int acquire_new(struct sl_table *t, struct sl_now now, struct sl_session *s,
                       const struct sl_want *w, struct sl_grant *out)
{
    int status = reserve_key(t);
    if (status != SLUICE_OK) return status;
    if (is_plain(w)) return take_seat(t, now, s, w, out);
    struct sl_lock *l = found_lock(t, w->key);
    if (l == NULL) return SLUICE_ENOMEM;
    return join(t, now, s, l, w, out);
}

int sl_table_acquire(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_want *w, struct sl_grant *out)
{
    forget_old(t);
    int status = check_want(t, w);
    if (status != SLUICE_OK) return status;
    if (t->fence >= SL_FENCE_MAX || s->ended) return SLUICE_EINVAL;
    if (sl_table_drained(t, w->key)) return SLUICE_EDRAINED;
    struct sl_lock *l = sl_table_find_lock(t, w->key);
    if (l == NULL) return acquire_new(t, now, s, w, out);
    pass_time(t, now, l);
    uint64_t room = room_of(w);
    if (sl_lock_fits(l, w->shared, room, w->units) &&
        !sl_lock_holds_back(l, w->shared, room, w->priority))
        return join(t, now, s, l, w, out);
    if (w->wait_ms == 0) return SLUICE_EFULL;
    return enter_line(t, now, s, l, w);
}

/* --- Release, extend, break ----------------------------------------------- */

bool sl_table_find(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, struct sl_place *out)
{
    struct sl_lock *l = sl_table_find_lock(t, key);
    if (l == NULL || fence == 0) return false;
    *out = (struct sl_place){.lock = l};
    if (l->fence == fence) return sl_seat_lives(l, now);
    if (l->crowd == NULL) return false;
    out->entry = sl_roll_find(&l->crowd->holders, fence);
    return sl_entry_lives(out->entry, now);
}

/* The newest grant that a session took and still has. */
static bool find_newest(const struct sl_table *t, struct sl_now now,
                        struct sl_bytes key, uint64_t session_id, struct sl_place *out)
{
    struct sl_lock *l = sl_table_find_lock(t, key);
    if (l == NULL) return false;
    *out = (struct sl_place){.lock = l};
    uint32_t first = l->crowd == NULL ? 0 : l->crowd->holders.first;
    for (uint32_t i = l->crowd == NULL ? 0 : l->crowd->holders.count; i > first; i--) {
        out->entry = l->crowd->holders.items[i - 1].entry;
        if (sl_entry_lives(out->entry, now) && out->entry->session_id == session_id)
            return true;
    }
    out->entry = NULL;
    return sl_seat_lives(l, now) && l->session_id == session_id;
}

/* Whether a session may use a grant: it took it, or it is leased to its user. */
static bool may_use(const struct sl_place *p, const struct sl_session *s)
{
    const struct sl_entry *e = p->entry;
    if (e == NULL) return p->lock->user == s->user;
    return e->session == s || (e->lease_ms > 0 && e->user == s->user);
}

static void end_grant(struct sl_table *t, struct sl_now now, const struct sl_place *p,
                      struct sl_past *out)
{
    if (p->entry != NULL) unhold(t, now, p->entry, out);
    else unseat(t, now, p->lock, out);
}

int sl_table_release(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                     struct sl_bytes key, sl_fence fence, struct sl_past *out)
{
    struct sl_place p;
    forget_old(t);
    bool found = fence != 0 ? sl_table_find(t, now, key, fence, &p) && may_use(&p, s)
                            : find_newest(t, now, key, s->id, &p);
    if (!found) return 0;
    end_grant(t, now, &p, out);
    return 1;
}

/* Turn the seat into an entry, for what a seat has no place for. */
static int leave_seat(struct sl_table *t, struct sl_now now, struct sl_place *p,
                      struct sl_bytes value)
{
    struct sl_lock *l = p->lock;
    const struct sl_session s = {.id = l->session_id, .user = l->user};
    const struct sl_want w = {
        .per = 1,
        .buckets = 1,
        .units = 1,
        .lease_ms = 1,
        .value = value,
        .note = {l->text + l->key_bytes + l->value_bytes, l->note_bytes}};
    struct sl_entry *e = new_entry(&s, &w);
    if (e == NULL || reserve_entry(t, l) != SLUICE_OK) {
        free_entry(e);
        tidy(t, l);
        return SLUICE_ENOMEM;
    }
    e->lock = l;
    e->state = SL_HOLDS;
    e->fence = l->fence;
    e->broken = (l->flags & SL_SEAT_BROKEN) != 0;
    e->asked_ms = e->granted_ms = now.ms - sl_seat_age_ms(l, now);
    e->end_ms = l->end_ms;
    t->entries++;
    if (l->timer != SL_HEAP_NONE) sl_heap_remove(&t->heap, l->timer);
    set_end(t, e, e->end_ms);
    /* The seat is taken with the lock, so its fence is the least. */
    sl_roll_prepend(&l->crowd->holders, e);
    l->fence = 0;
    l->flags &= (uint16_t)~SL_SEAT_BROKEN;
    p->entry = e;
    return SLUICE_OK;
}

/* Another value. */
static int set_value(struct sl_table *t, struct sl_now now, struct sl_place *p,
                     struct sl_bytes value)
{
    struct sl_entry *e = p->entry;
    struct sl_lock *l = p->lock;
    if (e == NULL && value.n == l->value_bytes) {
        memcpy(l->text + l->key_bytes, value.at, value.n);
        return SLUICE_OK;
    }
    if (e == NULL) return leave_seat(t, now, p, value);
    char *text;
    const struct sl_bytes note = {e->text + e->value_bytes, e->note_bytes};
    int status = copy_text(value, note, &text);
    if (status != SLUICE_OK) return status;
    free(e->text);
    e->text = text;
    e->value_bytes = (uint16_t)value.n;
    return SLUICE_OK;
}

/* Whether a grant has a lease, and one that may still grow. */
static int may_extend(const struct sl_place *p)
{
    const struct sl_entry *e = p->entry;
    if (e == NULL) return p->lock->flags & SL_SEAT_BROKEN ? SLUICE_ELOST : SLUICE_OK;
    if (e->lease_ms == 0) return SLUICE_ENOLEASE;
    return e->broken ? SLUICE_ELOST : SLUICE_OK;
}

static sl_ms end_of(const struct sl_place *p)
{
    return p->entry != NULL ? p->entry->end_ms : p->lock->end_ms;
}

static void move_end(struct sl_table *t, const struct sl_place *p, sl_ms end_ms)
{
    struct sl_lock *l = p->lock;
    if (end_ms <= end_of(p)) return;
    if (p->entry != NULL) {
        set_end(t, p->entry, end_ms);
        return;
    }
    l->end_ms = end_ms;
    if (end_ms != SL_NEVER) sl_heap_move(&t->heap, l->timer, end_ms);
    else sl_heap_remove(&t->heap, l->timer);
}

int sl_table_extend(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                    struct sl_bytes key, sl_fence fence, sl_ms ms,
                    struct sl_bytes value, sl_ms *lease_ms)
{
    struct sl_place p;
    forget_old(t);
    if (ms <= 0) return SLUICE_EINVAL;
    if (value.n > t->limits.value_bytes_max) return SLUICE_ETOOBIG;
    if (!sl_table_find(t, now, key, fence, &p) || !may_use(&p, s)) return SLUICE_ELOST;
    int status = may_extend(&p);
    if (status == SLUICE_OK && value.at != NULL) status = set_value(t, now, &p, value);
    if (status != SLUICE_OK) return status;
    move_end(t, &p, sl_ms_after(now.ms, ms));
    *lease_ms = end_of(&p) == SL_NEVER ? SL_NEVER : end_of(&p) - now.ms;
    return SLUICE_OK;
}

int sl_table_break(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, bool at_once, struct sl_past *out)
{
    struct sl_place p;
    forget_old(t);
    if (!sl_table_find(t, now, key, fence, &p)) return 0;
    bool leased = p.entry == NULL || p.entry->lease_ms > 0;
    if (leased && !at_once) {
        if (p.entry != NULL) p.entry->broken = true;
        else p.lock->flags |= SL_SEAT_BROKEN;
        return 1;
    }
    p.lock->flags |= SL_NEXT_OVERLAPS; /* First, so that the lock stays. */
    end_grant(t, now, &p, out);
    return 2;
}

/* --- Await and drain ------------------------------------------------------ */

static bool is_so(const struct sl_lock *l, bool want_free)
{
    bool held = l != NULL &&
                (sl_lock_held(l) > 0 || (l->crowd != NULL && l->crowd->shared > 0));
    return held != want_free;
}

int sl_table_await(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   struct sl_bytes key, bool want_free, sl_ms wait_ms)
{
    forget_old(t);
    if (key.n == 0 || wait_ms < 0 || s->ended) return SLUICE_EINVAL;
    if (key.n > t->limits.key_bytes_max) return SLUICE_ETOOBIG;
    struct sl_lock *l = sl_table_find_lock(t, key);
    if (l != NULL) pass_time(t, now, l);
    if (is_so(l, want_free)) return SLUICE_OK;
    if (wait_ms == 0) return SLUICE_EFULL;
    if (l != NULL && l->crowd != NULL &&
        l->crowd->waiters + l->crowd->watchers >= t->limits.waiters_max)
        return SLUICE_EWAITERS;
    const struct sl_want w = {.key = key};
    struct sl_entry *e = new_entry(s, &w);
    if (e == NULL) return SLUICE_ENOMEM;
    int status = SLUICE_OK;
    if (l == NULL) {
        status = reserve_key(t);
        if (status == SLUICE_OK) l = found_lock(t, key);
        if (status == SLUICE_OK && l == NULL) status = SLUICE_ENOMEM;
    }
    if (status == SLUICE_OK) status = reserve_entry(t, l);
    if (status != SLUICE_OK) {
        free_entry(e);
        if (l != NULL) tidy(t, l);
        return status;
    }
    e->lock = l;
    e->state = SL_WATCHES;
    e->watch_free = want_free;
    e->session = s;
    e->asked_ms = now.ms;
    sl_list_append(&s->mine, &e->of_session);
    sl_list_append(&l->crowd->watching, &e->place);
    l->crowd->watchers++;
    t->entries++;
    set_end(t, e, sl_ms_after(now.ms, wait_ms));
    return SL_WAITS;
}

static struct drain *find_drain(const struct sl_table *t, struct sl_bytes glob)
{
    for (struct sl_list *n = t->drains.next; n != &t->drains; n = n->next) {
        struct drain *d = sl_entry_of(n, struct drain, place);
        if (d->n == glob.n && memcmp(d->glob, glob.at, glob.n) == 0) return d;
    }
    return NULL;
}

int sl_table_drain(struct sl_table *t, struct sl_bytes glob, bool on)
{
    forget_old(t);
    struct drain *d = find_drain(t, glob);
    if (!on && d == NULL) return SLUICE_ENOENT;
    if (on && d != NULL) return SLUICE_OK;
    if (on) {
        if (glob.n == 0) return SLUICE_EINVAL;
        if (glob.n > t->limits.key_bytes_max) return SLUICE_ETOOBIG;
        if (t->drain_count >= t->limits.drains_max) return SLUICE_EFULL;
        d = malloc(sizeof *d + glob.n);
        if (d == NULL) return SLUICE_ENOMEM;
        d->n = glob.n;
        memcpy(d->glob, glob.at, glob.n);
        sl_list_append(&t->drains, &d->place);
        t->drain_count++;
    } else {
        sl_list_remove(&d->place);
        free(d);
        t->drain_count--;
    }
    /* Who waits is looked at again, a few at a time. */
    t->to_stir = t->crowds;
    return SLUICE_OK;
}

/* --- What follows --------------------------------------------------------- */

static void tell(struct sl_effect *out, enum sl_effect_type type, struct sl_lock *l,
                 struct sl_session *s)
{
    *out = (struct sl_effect){.type = type, .key = sl_key_of(l), .session = s};
}

/* Out of its line or from among the watchers, and gone. */
static void stop_waiting(struct sl_table *t, struct sl_entry *e)
{
    struct sl_lock *l = e->lock;
    if (e->state == SL_IN_LINE) {
        sl_crowd_leave(l->crowd, e);
        t->waiting--;
    } else {
        sl_list_remove(&e->place);
        l->crowd->watchers--;
    }
    bury(t, e);
    tidy(t, l);
}

/* The end of a lease or a wait that the heap has first. */
static void next_due(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    void *owner = t->heap.items[0].owner;
    struct sl_lock *l = lock_of_owner(owner);
    if (l != NULL) {
        tell(out, SL_EXPIRED, l, NULL);
        unseat(t, now, l, &out->past);
        return;
    }
    struct sl_entry *e = owner;
    if (e->state == SL_HOLDS) {
        tell(out, SL_EXPIRED, e->lock, NULL);
        unhold(t, now, e, &out->past);
        return;
    }
    tell(out, SL_TIMED_OUT, e->lock, e->session);
    stop_waiting(t, e);
}

/* One thing that an ended session had. False: something of no interest to anybody. */
static bool next_over(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    struct sl_session *s = sl_entry_of(t->over.next, struct sl_session, over);
    if (sl_list_empty(&s->mine)) {
        sl_list_remove(&s->over);
        *out = (struct sl_effect){.type = SL_SESSION_OVER, .session = s};
        return true;
    }
    struct sl_entry *e = sl_entry_of(s->mine.next, struct sl_entry, of_session);
    if (e->state != SL_HOLDS) {
        stop_waiting(t, e);
        forget_old(t);
        return false;
    }
    tell(out, SL_ENDED, e->lock, NULL);
    unhold(t, now, e, &out->past);
    return true;
}

/* A watcher that sees what it waits for. */
static bool next_seen(struct sl_table *t, struct sl_crowd *c, struct sl_effect *out)
{
    for (struct sl_list *n = c->watching.next; n != &c->watching; n = n->next) {
        struct sl_entry *e = sl_entry_of(n, struct sl_entry, place);
        if (!is_so(c->lock, e->watch_free)) continue;
        tell(out, SL_SEEN, c->lock, e->session);
        stop_waiting(t, e);
        return true;
    }
    return false;
}

/* A holder of the lock whose lease is over is told of before what follows from that. */
static bool next_expired(struct sl_table *t, struct sl_now now, struct sl_lock *l,
                         struct sl_effect *out)
{
    const struct sl_crowd *c = l->crowd;
    if (t->heap.count == 0 || t->heap.items[0].at > now.ms) return false;
    if (sl_has_seat(l) && l->end_ms <= now.ms) {
        tell(out, SL_EXPIRED, l, NULL);
        unseat(t, now, l, &out->past);
        return true;
    }
    for (uint32_t i = c->holders.first; i < c->holders.count; i++) {
        struct sl_entry *e = c->holders.items[i].entry;
        if (e == NULL || e->end_ms > now.ms) continue;
        tell(out, SL_EXPIRED, l, NULL);
        unhold(t, now, e, &out->past);
        return true;
    }
    return false;
}

/* The next thing in a crowd that was stirred; false: nothing there. */
static bool next_stirred(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    struct sl_crowd *c = sl_entry_of(t->stirred.next, struct sl_crowd, stirred);
    struct sl_lock *l = c->lock;
    if (next_expired(t, now, l, out)) return true;
    if (c->waiters > 0 && sl_table_drained(t, sl_key_of(l))) {
        struct sl_line *line = sl_entry_of(c->lines.next, struct sl_line, place);
        struct sl_entry *e = sl_entry_of(line->entries.next, struct sl_entry, place);
        tell(out, SL_REFUSED, l, e->session);
        stop_waiting(t, e);
        return true;
    }
    struct sl_entry *e = sl_lock_next(l);
    if (e == NULL) {
        if (next_seen(t, c, out)) return true;
        sl_list_remove(&c->stirred);
        return false;
    }
    /* Rule 5: its connection and its time are looked at again. */
    if (e->session->ended || e->end_ms <= now.ms) {
        bool tells = !e->session->ended;
        tell(out, SL_TIMED_OUT, l, e->session);
        stop_waiting(t, e);
        if (!tells) forget_old(t);
        return tells;
    }
    tell(out, SL_GRANTED, l, e->session);
    sl_crowd_leave(c, e);
    t->waiting--;
    hold(t, now, e, e->session, &out->grant);
    return true;
}

static void stir_one_more(struct sl_table *t)
{
    t->to_stir--;
    if (sl_list_empty(&t->waited)) return;
    struct sl_crowd *c = sl_entry_of(t->waited.next, struct sl_crowd, waited);
    sl_list_remove(&c->waited);
    sl_list_append(&t->waited, &c->waited);
    stir(t, c);
}

bool sl_table_next(struct sl_table *t, struct sl_now now, struct sl_effect *out)
{
    forget_old(t);
    for (;;) {
        if (!sl_list_empty(&t->stirred)) {
            if (next_stirred(t, now, out)) return true;
        } else if (!sl_list_empty(&t->over)) {
            if (next_over(t, now, out)) return true;
        } else if (t->heap.count > 0 && t->heap.items[0].at <= now.ms) {
            next_due(t, now, out);
            return true;
        } else if (t->to_stir > 0) stir_one_more(t);
        else break;
    }
    sl_heap_trim(&t->heap, (uint32_t)t->waiting);
    return false;
}

sl_ms sl_table_due(const struct sl_table *t)
{
    return t->heap.count > 0 ? t->heap.items[0].at : SL_NEVER;
}
