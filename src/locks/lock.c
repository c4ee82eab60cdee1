#include "locks/lock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

/* --- The roll -------------------------------------------------------------- */

/* Twice as many places as holders: then holes are swept out once for as many grants as
 * there are holders, and a grant costs the same however many there are. */
int sl_roll_reserve(struct sl_roll *r, uint32_t holders)
{
    if (holders > UINT32_MAX / 4) return SLUICE_ENOMEM;
    uint32_t want = 2 * holders;
    if (want <= r->size) return SLUICE_OK;
    uint32_t size = r->size < 2 ? 4 : r->size + r->size / 2;
    if (size < want) size = want;
    struct sl_roll_item *items = realloc(r->items, size * sizeof *items);
    if (items == NULL) return SLUICE_ENOMEM;
    r->items = items;
    r->size = size;
    return SLUICE_OK;
}

static void sweep(struct sl_roll *r)
{
    uint32_t kept = 0;
    for (uint32_t i = r->first; i < r->count; i++)
        if (r->items[i].entry != NULL) r->items[kept++] = r->items[i];
    r->count = kept;
    r->first = 0;
}

void sl_roll_append(struct sl_roll *r, struct sl_entry *e)
{
    if (r->count == r->size) sweep(r);
    assert(r->count < r->size);
    assert(r->count == 0 || r->items[r->count - 1].fence < e->fence);
    r->items[r->count++] = (struct sl_roll_item){.fence = e->fence, .entry = e};
    r->live++;
}

/* The first whose fence is not less; or behind the last. */
static uint32_t place_of(const struct sl_roll *r, sl_fence fence)
{
    uint32_t from = r->first, to = r->count;
    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        if (r->items[mid].fence < fence) from = mid + 1;
        else to = mid;
    }
    return from;
}

static struct sl_roll_item *find(const struct sl_roll *r, sl_fence fence)
{
    uint32_t at = place_of(r, fence);
    return at < r->count && r->items[at].fence == fence ? &r->items[at] : NULL;
}

void sl_roll_insert(struct sl_roll *r, struct sl_entry *e)
{
    if (r->count == r->size) sweep(r);
    assert(r->count < r->size);
    uint32_t at = place_of(r, e->fence);
    bool was_here = at < r->count && r->items[at].fence == e->fence;
    if (was_here) assert(r->items[at].entry == NULL);
    else if (at == r->first && at > 0) at = --r->first;
    else {
        memmove(&r->items[at + 1], &r->items[at], (r->count - at) * sizeof *r->items);
        r->count++;
    }
    r->items[at] = (struct sl_roll_item){.fence = e->fence, .entry = e};
    r->live++;
}

struct sl_entry *sl_roll_find(const struct sl_roll *r, sl_fence fence)
{
    const struct sl_roll_item *item = find(r, fence);
    return item == NULL ? NULL : item->entry;
}

void sl_roll_remove(struct sl_roll *r, sl_fence fence)
{
    struct sl_roll_item *item = find(r, fence);
    assert(item != NULL && item->entry != NULL);
    item->entry = NULL;
    r->live--;
    while (r->count > r->first && r->items[r->count - 1].entry == NULL) r->count--;
    while (r->first < r->count && r->items[r->first].entry == NULL) r->first++;
    if (r->live == 0) r->first = r->count = 0;
    if (r->count - r->first > 2 * r->live + 16) sweep(r);
}

/* --- By session, and by rank ------------------------------------------------ */

static struct sl_entry *of_session(const struct sl_tree_node *n)
{
    return sl_container_of(n, struct sl_entry, by_session);
}

static struct sl_entry *of_rank(const struct sl_tree_node *n)
{
    return n == NULL ? NULL : sl_container_of(n, struct sl_entry, by_rank);
}

static bool session_before(const struct sl_tree_node *x, const struct sl_tree_node *y)
{
    const struct sl_entry *a = of_session(x), *b = of_session(y);
    if (a->session_id != b->session_id) return a->session_id < b->session_id;
    return a->fence < b->fence;
}

static bool rank_before(const struct sl_tree_node *x, const struct sl_tree_node *y)
{
    const struct sl_entry *a = of_rank(x), *b = of_rank(y);
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->fence > b->fence;
}

static uint64_t session_number(const struct sl_tree_node *n)
{
    return of_session(n)->fence;
}

static uint64_t rank_number(const struct sl_tree_node *n)
{
    return of_rank(n)->fence;
}

static const struct sl_tree_kind by_session = {session_before, session_number};
static const struct sl_tree_kind by_rank = {rank_before, rank_number};

struct sl_entry *sl_crowd_newest(const struct sl_crowd *c, uint64_t session_id)
{
    struct sl_entry *found = NULL;
    for (struct sl_tree_node *n = c->by_session; n != NULL;) {
        struct sl_entry *e = of_session(n);
        if (e->session_id == session_id) found = e;
        n = e->session_id <= session_id ? n->right : n->left;
    }
    return found;
}

bool sl_crowd_is_of(const struct sl_crowd *c, uint64_t session_id)
{
    if (c->by_session == NULL || c->leased > 0) return false;
    return of_session(sl_tree_first(c->by_session))->session_id == session_id &&
           of_session(sl_tree_last(c->by_session))->session_id == session_id;
}

struct sl_entry *sl_crowd_first_rank(const struct sl_crowd *c)
{
    return of_rank(sl_tree_first(c->by_rank));
}

struct sl_entry *sl_crowd_next_rank(const struct sl_crowd *c, const struct sl_entry *e)
{
    return of_rank(sl_tree_after(c->by_rank, &e->by_rank, &by_rank));
}

/* --- Crowds and lines ------------------------------------------------------ */

static void placed(void *owner, uint32_t place)
{
    ((struct sl_entry *)owner)->crowd_timer = place;
}

struct sl_crowd *sl_crowd_new(struct sl_lock *l)
{
    struct sl_crowd *c = calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    c->lock = l;
    bool sits = l->fence != 0 && (l->flags & SL_SEAT_GHOST) == 0;
    c->held = sits ? 1 : 0;
    sl_list_init(&c->lines);
    sl_list_init(&c->watching[false]);
    sl_list_init(&c->watching[true]);
    sl_list_init(&c->ghosts);
    for (int i = 0; i < SL_VICTIMS; i++) sl_list_init(&c->victims[i]);
    sl_heap_init(&c->ends, placed);
    sl_list_init(&c->stirred);
    sl_list_init(&c->waited);
    return c;
}

void sl_crowd_free(struct sl_crowd *c)
{
    assert(!sl_crowd_is_there(c));
    sl_list_remove(&c->stirred);
    sl_list_remove(&c->waited);
    free(c->holders.items);
    sl_heap_free(&c->ends);
    free(c);
}

int sl_crowd_reserve_end(struct sl_crowd *c)
{
#ifdef MUT_LATEENDS
    return sl_heap_reserve(&c->ends, 1);
#else
    return sl_heap_reserve(&c->ends, c->waiters + 1);
#endif
}

void sl_crowd_victim(struct sl_crowd *c, struct sl_entry *e, enum sl_victim v)
{
    sl_list_remove(&e->asked);
    e->victim = (uint8_t)v;
    if (v != SL_NO_VICTIM) sl_list_append(&c->victims[v], &e->asked);
}

void sl_crowd_count(struct sl_crowd *c, struct sl_entry *e, uint64_t seed)
{
    c->counted++;
    c->holders_changed = true;
    c->held += e->units;
    if (e->shared) c->shared++;
    if (e->lease_ms > 0) c->leased++;
    sl_tree_put(&c->by_session, &e->by_session, &by_session, seed);
    sl_tree_put(&c->by_rank, &e->by_rank, &by_rank, seed);
}

void sl_crowd_uncount(struct sl_crowd *c, struct sl_entry *e, uint64_t seed)
{
    c->counted--;
    c->held -= e->units;
    if (e->shared) c->shared--;
    if (e->lease_ms > 0) c->leased--;
    sl_tree_remove(&c->by_session, &e->by_session, &by_session, seed);
    sl_tree_remove(&c->by_rank, &e->by_rank, &by_rank, seed);
    if (e->crowd_timer != SL_HEAP_NONE) sl_heap_remove(&c->ends, e->crowd_timer);
    /* Without one of its own a plan is still the shortest, if that one was small. */
    if (e->plan != c->plan || e->units > 1 || c->stolen > 0) c->holders_changed = true;
    if (e->stolen) c->stolen--;
    if (e->reclaimed) c->reclaimed--;
    if (e->victim != SL_ASKED_TO_GO) e->victim_ms = -1;
    sl_crowd_victim(c, e, SL_NO_VICTIM);
    sl_roll_remove(&c->holders, e->fence);
    e->ghost = true;
    sl_list_append(&c->ghosts, &e->place);
}

void sl_crowd_rebind(struct sl_crowd *c, struct sl_entry *e, uint64_t session_id,
                     uint64_t seed)
{
    sl_tree_remove(&c->by_session, &e->by_session, &by_session, seed);
    e->session_id = session_id;
    sl_tree_put(&c->by_session, &e->by_session, &by_session, seed);
    c->holders_changed = true;
}

static struct sl_line *line_of(const struct sl_list *node)
{
    return sl_container_of(node, struct sl_line, place);
}

static struct sl_entry *head_of(const struct sl_line *line)
{
    return sl_container_of(line->entries.next, struct sl_entry, place);
}

struct sl_line *sl_crowd_line(struct sl_crowd *c, int32_t priority, bool shared,
                              uint64_t room)
{
    struct sl_list *at = c->lines.next;
    for (; at != &c->lines && line_of(at)->priority >= priority; at = at->next) {
        struct sl_line *l = line_of(at);
        if (l->priority == priority && l->shared == shared && l->room == room) return l;
    }
    struct sl_line *l = malloc(sizeof *l);
    if (l == NULL) return NULL;
    *l = (struct sl_line){.room = room, .priority = priority, .shared = shared};
    sl_list_init(&l->entries);
    sl_list_append(at, &l->place); /* Before the first of lower priority. */
    return l;
}

void sl_crowd_enter(struct sl_crowd *c, struct sl_line *line, struct sl_entry *e)
{
    e->line = line;
#ifdef MUT_LASTFIRST
    sl_list_append(line->entries.next, &e->place);
#else
    sl_list_append(&line->entries, &e->place);
#endif
    c->waiters++;
}

/* Its head has gone: behind those of its priority whose heads came before the new one. */
static void move_back(struct sl_crowd *c, struct sl_line *line)
{
    struct sl_list *at = line->place.next;
#ifdef MUT_NOMOVE
    return;
#endif
    while (at != &c->lines && line_of(at)->priority == line->priority &&
           head_of(line_of(at))->arrival < head_of(line)->arrival)
        at = at->next;
    sl_list_remove(&line->place);
    sl_list_append(at, &line->place); /* Before that one. */
}

void sl_crowd_leave(struct sl_crowd *c, struct sl_entry *e)
{
    struct sl_line *line = e->line;
    bool first = head_of(line) == e;
    sl_list_remove(&e->place);
    e->line = NULL;
    c->waiters--;
    c->plan_is_old = true;
    if (c->thief == e) c->thief = NULL;
    if (c->told == e) c->told = NULL;
    if (c->planned_for == e) {
        c->planned_for = NULL;
        c->holders_changed = true;
    }
    if (sl_list_empty(&line->entries)) {
        sl_list_remove(&line->place);
        free(line);
    } else if (first) move_back(c, line);
}

/* --- Who fits -------------------------------------------------------------- */

uint64_t sl_lock_held(const struct sl_lock *l)
{
    if (l->crowd != NULL) return l->crowd->held;
    return l->fence != 0 && (l->flags & SL_SEAT_GHOST) == 0;
}

bool sl_lock_fits(const struct sl_lock *l, bool shared, uint64_t room, uint32_t units)
{
    uint64_t held = sl_lock_held(l);
#ifdef MUT_HOLDERSROOM
    const struct sl_roll *r = l->crowd == NULL ? NULL : &l->crowd->holders;
    if (r != NULL && r->live > 0)
        room = (uint64_t)r->items[r->first].entry->per *
               r->items[r->first].entry->buckets;
#endif
#ifdef MUT_SHAREDBESIDE
    if (shared) return true;
#endif
    if (shared) return held == 0;
#ifndef MUT_BESIDESHARED
    if (l->crowd != NULL && l->crowd->shared > 0) return false;
#endif
    return held <= room && units <= room - held;
}

/* Rule 2. A waiter holds back what comes later with lower priority; and with its own, what
 * declares no more room than it does. A shared one declares none: it lets everybody go
 * first who came first, and nobody pass it. */
static bool line_holds_back(const struct sl_line *line, bool shared, uint64_t room,
                            int32_t priority)
{
    if (line->priority != priority) return line->priority > priority;
#ifdef MUT_NOPASS
    return true;
#else
    return line->shared || shared || room <= line->room;
#endif
}

/* Rule 7. What becomes free while a reservation stands goes to it, whatever room others of
 * its priority declare. */
static bool is_reserved(const struct sl_crowd *c, int32_t priority)
{
#ifdef MUT_PASSRESERVED
    return false;
#endif
    return c->thief != NULL && priority <= c->thief->priority;
}

bool sl_lock_holds_back(const struct sl_lock *l, bool shared, uint64_t room,
                        int32_t priority)
{
    if (l->crowd == NULL) return false;
    if (is_reserved(l->crowd, priority)) return true;
    for (const struct sl_list *n = l->crowd->lines.next; n != &l->crowd->lines;
         n = n->next) {
        const struct sl_line *line = line_of(n);
        if (line->priority < priority) return false;
        if (line_holds_back(line, shared, room, priority)) return true;
    }
    return false;
}

/* The first by arrival, of the highest priority, that is not held back and is wanted. Those
 * who came before it declare less room than it does, all of them. */
static struct sl_entry *first_of(const struct sl_lock *l,
                                 bool (*wanted)(const struct sl_lock *l,
                                                const struct sl_entry *e))
{
    const struct sl_crowd *c = l->crowd;
    if (c == NULL || sl_list_empty(&c->lines)) return NULL;
    const struct sl_line *first = line_of(c->lines.next);
    uint64_t room = 0; /* The most that those before declare. */
    for (const struct sl_list *n = c->lines.next; n != &c->lines; n = n->next) {
        const struct sl_line *line = line_of(n);
        if (line->priority != first->priority) return NULL;
        struct sl_entry *e = head_of(line);
#ifdef MUT_NOPASS
        bool held_back = line != first;
#else
        bool held_back = line != first && (line->shared || line->room <= room);
#endif
        if (!held_back && wanted(l, e)) return e;
        if (line->shared) return NULL; /* Nobody passes it. */
        if (line->room > room) room = line->room;
    }
    return NULL;
}

static bool fits(const struct sl_lock *l, const struct sl_entry *e)
{
    if (e != l->crowd->thief && is_reserved(l->crowd, e->priority)) return false;
    return sl_lock_fits(l, e->shared, e->line->room, e->units);
}

static bool steals(const struct sl_lock *l, const struct sl_entry *e)
{
    (void)l;
    return e->steals;
}

struct sl_entry *sl_lock_next(const struct sl_lock *l)
{
    return first_of(l, fits);
}

struct sl_entry *sl_lock_thief(const struct sl_lock *l)
{
    return first_of(l, steals);
}
