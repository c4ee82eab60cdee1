/* table_check.c - the invariants of table.h, for tests and the simulator. */
#include <assert.h>

#include "locks/table_internal.h"

static void check_entry(const struct sl_table *t, const struct sl_lock *l,
                        const struct sl_entry *e)
{
    assert(e->lock == l);
    sl_ms at = e->force_timer ? e->force_ms : e->end_ms;
    assert((at != SL_NEVER) == (e->timer != SL_HEAP_NONE) && "I7");
    if (e->timer != SL_HEAP_NONE) {
        assert(e->timer < t->heap.count && "I7");
        assert(t->heap.items[e->timer].owner == e && "I7");
        assert(t->heap.items[e->timer].at == at && "I7");
    }
    const struct sl_heap *ends = &l->crowd->ends;
    bool ends_here = e->state == SL_HOLDS && !e->ghost && e->end_ms != SL_NEVER;
    assert(ends_here == (e->crowd_timer != SL_HEAP_NONE) && "I7");
    if (ends_here) {
        assert(e->crowd_timer < ends->count && "I7");
        assert(ends->items[e->crowd_timer].owner == e && "I7");
        assert(ends->items[e->crowd_timer].at == e->end_ms && "I7");
    }
    bool listed = !sl_list_empty(&e->of_session);
    bool should = e->state != SL_HOLDS || e->lease_ms == 0;
    assert(listed == should && "I8");
    assert((e->session != NULL) == should && "I8");
}

static bool is_in_tree(const struct sl_crowd *c, const struct sl_entry *e)
{
    const struct sl_tree_node *n = c->by_session;
    while (n != NULL && n != &e->by_session) {
        const struct sl_entry *at = sl_container_of(n, struct sl_entry, by_session);
        bool right = at->session_id != e->session_id ? at->session_id < e->session_id
                                                     : at->fence < e->fence;
        n = right ? n->right : n->left;
    }
    return n == &e->by_session;
}

/* Every holder is there once, in order. */
static void check_ranks(const struct sl_crowd *c)
{
    const struct sl_entry *last = NULL;
    uint32_t count = 0, stolen = 0;
    for (const struct sl_entry *e = sl_crowd_first_rank(c); e != NULL;
         e = sl_crowd_next_rank(c, e)) {
        if (last != NULL)
            assert((last->priority < e->priority ||
                    (last->priority == e->priority && last->fence > e->fence)) &&
                   "I1");
        last = e;
        count++;
        stolen += e->stolen;
    }
    assert(count == c->counted && stolen == c->stolen && "I1");
}

static void check_victims(const struct sl_crowd *c)
{
    for (int v = 1; v < SL_VICTIMS; v++)
        for (const struct sl_list *n = c->victims[v].next; n != &c->victims[v];
             n = n->next) {
            const struct sl_entry *e = sl_container_of(n, struct sl_entry, asked);
            assert(e->victim == v && e->state == SL_HOLDS && !e->ghost && "I9");
            if (v != SL_ASKED_TO_GO || c->plan_is_old) continue;
            assert(c->thief != NULL && c->thief->state == SL_IN_LINE && "I9");
            assert(e->priority < c->thief->priority && "I9");
            assert(e->session_id != c->thief->session_id && "I9");
        }
}

static void check_holders(const struct sl_table *t, const struct sl_lock *l)
{
    const struct sl_crowd *c = l->crowd;
    uint64_t held = sl_seat_counts(l);
    uint32_t shared = 0, live = 0, counted = 0, leased = 0, reclaimed = 0;
    sl_fence last = sl_seat_counts(l) ? l->fence : 0;
    for (uint32_t i = c->holders.first; i < c->holders.count; i++) {
        const struct sl_entry *e = c->holders.items[i].entry;
        if (e == NULL) continue;
        live++;
        assert(e->state == SL_HOLDS);
        assert(e->fence == c->holders.items[i].fence && e->fence > last && "I5");
        last = e->fence;
        check_entry(t, l, e);
        assert(!e->ghost && "I1");
        held += e->units;
        shared += e->shared;
        leased += e->lease_ms > 0;
        reclaimed += e->reclaimed;
        counted++;
        assert(is_in_tree(c, e) && "I1");
    }
    assert(last <= t->fence && t->fence <= t->fence_limit && "I5");
    assert(held == c->held && shared == c->shared && live == c->holders.live && "I1");
    assert(counted == c->counted && leased == c->leased && "I1");
    assert(reclaimed == c->reclaimed && "I1");
    assert((held == 0 || shared == 0 || c->stolen + c->reclaimed > 0) && "I2");
    check_ranks(c);
    check_victims(c);
}

static void check_waiters(const struct sl_table *t, const struct sl_lock *l)
{
    const struct sl_crowd *c = l->crowd;
    uint32_t waiters = 0, watchers = 0;
    int64_t priority = INT64_MAX;
    uint64_t head = 0;
    for (const struct sl_list *i = c->lines.next; i != &c->lines; i = i->next) {
        const struct sl_line *line = sl_container_of(i, struct sl_line, place);
        uint64_t arrival = 0;
        assert(line->priority <= priority && "I3");
        assert(!sl_list_empty(&line->entries) && "I3");
        if (line->priority < priority) head = 0;
        priority = line->priority;
        for (const struct sl_list *j = line->entries.next; j != &line->entries;
             j = j->next) {
            const struct sl_entry *e = sl_container_of(j, struct sl_entry, place);
            assert(e->state == SL_IN_LINE && e->line == line);
            assert(e->arrival > arrival && "I3");
            if (arrival == 0) {
                assert(e->arrival > head && "I3");
                head = e->arrival;
            }
            arrival = e->arrival;
            waiters++;
            check_entry(t, l, e);
        }
    }
    for (int free = 0; free < 2; free++) {
        const struct sl_list *list = &c->watching[free];
        for (const struct sl_list *i = list->next; i != list; i = i->next) {
            const struct sl_entry *e = sl_container_of(i, struct sl_entry, place);
            assert(e->state == SL_WATCHES && e->watch_free == free);
            check_entry(t, l, e);
            watchers++;
        }
    }
    assert(sl_list_empty(&c->waited) == (waiters + watchers == 0));
    assert(waiters == c->waiters && watchers == c->watchers);
    if (sl_list_empty(&c->stirred) && t->to_stir == 0 && t->recovering_until_ms == 0 &&
        !t->short_of_fences && !t->lacks_authority)
        assert((sl_lock_next(l) == NULL) && "I4");
}

static void check_lock(const struct sl_table *t, const struct sl_lock *l)
{
    const struct sl_crowd *c = l->crowd;
    if (sl_has_seat(l)) {
        assert((l->end_ms != SL_NEVER) == (l->timer != SL_HEAP_NONE) && "I7");
        if (l->timer != SL_HEAP_NONE)
            assert(t->heap.items[l->timer].owner == sl_as_owner((struct sl_lock *)l) &&
                   "I7");
    }
    if (!sl_has_seat(l) && l->timer != SL_HEAP_NONE)
        assert((l->flags & SL_NEXT_OVERLAPS) != 0 &&
               t->heap.items[l->timer].owner == sl_as_owner((struct sl_lock *)l) &&
               "I6");
    assert((sl_has_seat(l) || c != NULL || l->timer != SL_HEAP_NONE) && "I6");
    if (c == NULL) return;
    assert(c->lock == l);
    assert(sl_crowd_is_there(c) && "I6");
    check_holders(t, l);
    check_waiters(t, l);
}

void sl_table_check(const struct sl_table *t)
{
    void *some[64];
    uint64_t cursor = 0;
    size_t crowds = 0;
    do {
        size_t n = sl_index_scan(&t->index, &cursor, some, sizeof some / sizeof *some);
        for (size_t i = 0; i < n; i++) {
            check_lock(t, some[i]);
            crowds += ((const struct sl_lock *)some[i])->crowd != NULL;
        }
    } while (cursor != 0);
    assert(crowds == t->crowds_made && "I8");
    assert((t->index.count > 0 || t->text_bytes == 0) && "I8");
    for (uint32_t i = 1; i < t->heap.count; i++)
        assert(t->heap.items[(i - 1) / 4].at <= t->heap.items[i].at && "I7");
}
