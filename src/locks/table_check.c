/* table_check.c - checks the invariants that table.h lists, for tests and the
 * simulator. */
#include <assert.h>

#include "locks/table_internal.h"

/* What we count here, to compare with the table's counters. */
struct totals {
    size_t entries, waiting, text_bytes, rosters, awaited;
    size_t client_refs;
};

/* Only a grant that another table made may have no client. */
static void check_client(const struct sl_table *t, const struct sl_client *c,
                         uint64_t session_id, struct totals *sum)
{
    if (c == NULL) assert(session_id == 0 && "I11");
    else assert(c->of == &t->clients && c->session_id == session_id && "I11");
    sum->client_refs += c != NULL;
}

/* In addition, each session and the last effect may own one reference. */
static void check_clients(const struct sl_clients *cs, size_t refs)
{
    size_t count = 0, text_bytes = 0, sum = 0;
    for (const struct sl_list *n = cs->all.next; n != &cs->all; n = n->next) {
        const struct sl_client *c = sl_container_of(n, struct sl_client, all);
        assert(c->refs > 0 && "I11");
        sum += c->refs;
        count++;
        text_bytes += (size_t)c->name_bytes + c->address_bytes;
    }
    assert(count == cs->count && text_bytes == cs->text_bytes && "I11");
    assert(refs <= sum && sum <= refs + count + 1 && "I11");
}

static void check_entry(const struct sl_table *t, const struct sl_lock *l,
                        const struct sl_entry *e, struct totals *sum)
{
    sum->entries++;
    sum->text_bytes += sl_entry_text_bytes(e);
    if (e->named != NULL) assert(e->named->entry == e && !e->named->ended && "I12");
    if (e->state != SL_WATCHING || e->client != NULL)
        check_client(t, e->client, e->session_id, sum);
    assert(e->lock == l);
    assert(e->units <= SLUICE_UNITS_MAX && (!e->shared || e->units == 0) && "I1");
    assert((e->fence != 0) == (e->state == SL_HOLDING) && "I5");
    assert((!e->force_timer || (e->state == SL_WAITING && e->steals)) && "I7");
    sl_ms at = e->force_timer ? e->force_ms : e->end_ms;
    assert((at != SL_NEVER) == (e->timer != SL_HEAP_NONE) && "I7");
    if (e->timer != SL_HEAP_NONE) {
        assert(e->timer < t->heap.count && "I7");
        assert(t->heap.items[e->timer].owner == e && "I7");
        assert(t->heap.items[e->timer].at == at && "I7");
    }
    const struct sl_heap *ends = &l->roster->ends;
    bool ends_here = e->state == SL_HOLDING && !e->expired && e->end_ms != SL_NEVER;
    assert(ends_here == (e->roster_timer != SL_HEAP_NONE) && "I7");
    if (ends_here) {
        assert(e->roster_timer < ends->count && "I7");
        assert(ends->items[e->roster_timer].owner == e && "I7");
        assert(ends->items[e->roster_timer].at == e->end_ms && "I7");
    }
    bool listed = !sl_list_empty(&e->of_session);
    bool should = e->state != SL_HOLDING || e->lease_ms == 0;
    assert(listed == should && "I8");
    assert((e->session != NULL) == should && "I8");
}

static bool is_in_tree(const struct sl_roster *r, const struct sl_entry *e)
{
    const struct sl_tree_node *n = r->by_session;
    while (n != NULL && n != &e->by_session) {
        const struct sl_entry *at = sl_container_of(n, struct sl_entry, by_session);
        bool right = at->session_id != e->session_id ? at->session_id < e->session_id
                                                     : at->fence < e->fence;
        n = right ? n->right : n->left;
    }
    return n == &e->by_session;
}

/* Check that every holder is in the tree once, and in order. */
static void check_ranks(const struct sl_roster *r)
{
    const struct sl_entry *last = NULL;
    uint32_t count = 0, stolen = 0;
    for (const struct sl_entry *e = sl_roster_first_rank(r); e != NULL;
         e = sl_roster_next_rank(r, e)) {
        if (last != NULL)
            assert((last->priority < e->priority ||
                    (last->priority == e->priority && last->fence > e->fence)) &&
                   "I1");
        last = e;
        count++;
        stolen += e->stolen;
    }
    assert(count == r->counted && stolen == r->stolen && "I1");
}

static void check_victims(const struct sl_roster *r)
{
    for (int v = 1; v < SL_VICTIM_STATES; v++)
        for (const struct sl_list *n = r->victims[v].next; n != &r->victims[v];
             n = n->next) {
            const struct sl_entry *e = sl_container_of(n, struct sl_entry, asked);
            assert(e->victim == v && e->state == SL_HOLDING && !e->expired && "I9");
            if (v != SL_VICTIM_ASKED || r->plan_is_old) continue;
            assert(r->thief != NULL && r->thief->state == SL_WAITING && "I9");
            assert(e->priority < r->thief->priority && "I9");
            assert((e->session_id != r->thief->session_id || r->thief->notify) && "I9");
        }
}

static void check_holders(const struct sl_table *t, const struct sl_lock *l,
                          struct totals *sum)
{
    const struct sl_roster *r = l->roster;
    uint64_t held = sl_inline_counts(l);
    uint32_t shared = 0, live = 0, counted = 0, leased = 0, reclaimed = 0;
    sl_fence last = sl_inline_counts(l) ? l->fence : 0;
    for (uint32_t i = r->holders.first; i < r->holders.count; i++) {
        const struct sl_entry *e = r->holders.items[i].entry;
        if (e == NULL) continue;
        live++;
        assert(e->state == SL_HOLDING);
        assert(e->fence == r->holders.items[i].fence && e->fence > last && "I5");
        last = e->fence;
        check_entry(t, l, e, sum);
        assert(!e->expired && "I1");
        held += e->units;
        shared += e->shared;
        leased += e->lease_ms > 0;
        reclaimed += e->reclaimed;
        counted++;
        assert(is_in_tree(r, e) && "I1");
    }
    assert(last <= t->fence && t->fence <= t->fence_limit && "I5");
    assert(held == r->held && shared == r->shared && live == r->holders.live && "I1");
    assert(counted == r->counted && leased == r->leased && "I1");
    assert(reclaimed == r->reclaimed && "I1");
    assert((held == 0 || shared == 0 || r->stolen + r->reclaimed > 0) && "I2");
    for (const struct sl_list *n = r->expired.next; n != &r->expired; n = n->next) {
        const struct sl_entry *e = sl_container_of(n, struct sl_entry, in_list);
        assert(e->state == SL_HOLDING && e->expired && "I1");
        assert(sl_holders_find(&r->holders, e->fence) == NULL && "I1");
        check_entry(t, l, e, sum);
    }
    check_ranks(r);
    check_victims(r);
}

static bool came_before(const struct sl_entry *a, const struct sl_entry *b)
{
    return a->wait.since_ms < b->wait.since_ms ||
           (a->wait.since_ms == b->wait.since_ms && a->wait.number < b->wait.number);
}

static void check_waiters(const struct sl_table *t, const struct sl_lock *l,
                          struct totals *sum)
{
    const struct sl_roster *r = l->roster;
    uint32_t waiters = 0, watchers = 0;
    int64_t priority = INT64_MAX;
    const struct sl_entry *head = NULL;
    for (const struct sl_list *i = r->queues.next; i != &r->queues; i = i->next) {
        const struct sl_wait_queue *queue = sl_container_of(i, struct sl_wait_queue,
                                                            in_roster);
        const struct sl_entry *last = NULL;
        assert(queue->priority <= priority && "I3");
        assert(!sl_list_empty(&queue->entries) && "I3");
        if (queue->priority < priority) head = NULL;
        priority = queue->priority;
        for (const struct sl_list *j = queue->entries.next; j != &queue->entries;
             j = j->next) {
            const struct sl_entry *e = sl_container_of(j, struct sl_entry, in_list);
            assert(e->state == SL_WAITING && e->queue == queue);
            assert((last == NULL || came_before(last, e)) && "I3");
            if (last == NULL) {
                assert((head == NULL || came_before(head, e)) && "I3");
                head = e;
            }
            last = e;
            waiters++;
            check_entry(t, l, e, sum);
        }
    }
    for (int free = 0; free < 2; free++) {
        const struct sl_list *list = &r->watching[free];
        for (const struct sl_list *i = list->next; i != list; i = i->next) {
            const struct sl_entry *e = sl_container_of(i, struct sl_entry, in_list);
            assert(e->state == SL_WATCHING && e->watch_free == free);
            check_entry(t, l, e, sum);
            watchers++;
        }
    }
    assert(sl_wait_group_check(&t->waits, &r->by_age) == r->waiters && "I10");
    assert(sl_list_empty(&r->awaited) == (waiters + watchers == 0));
    assert(waiters == r->waiters && watchers == r->watchers);
    if (sl_list_empty(&r->recheck) && t->recheck_left == 0 &&
        t->recovering_until_ms == 0 && !t->short_of_fences && !t->lacks_authority)
        assert((sl_lock_next(l) == NULL) && "I4");
}

static void check_lock(const struct sl_table *t, const struct sl_lock *l,
                       struct totals *sum)
{
    sum->text_bytes += sl_lock_text_bytes(l);
    assert(l->key_bytes > 0 && (!sl_has_inline(l) || l->fence <= t->fence) && "I5");
    const struct sl_roster *r = l->roster;
    assert((sl_has_inline(l) || l->client == NULL) && "I11");
    if (sl_has_inline(l)) {
        check_client(t, l->client, sl_inline_session_id(l), sum);
        assert((l->end_ms != SL_NEVER) == (l->timer != SL_HEAP_NONE) && "I7");
        if (l->timer != SL_HEAP_NONE)
            assert(t->heap.items[l->timer].owner ==
                       sl_inline_owner((struct sl_lock *)l) &&
                   "I7");
    }
    if (!sl_has_inline(l) && l->timer != SL_HEAP_NONE)
        assert((l->flags & SL_NEXT_OVERLAPS) != 0 &&
               t->heap.items[l->timer].owner == sl_inline_owner((struct sl_lock *)l) &&
               "I6");
    assert((sl_has_inline(l) || r != NULL || l->timer != SL_HEAP_NONE) && "I6");
    if (r == NULL) return;
    assert(r->lock == l);
    assert(sl_roster_in_use(r) && "I6");
    sum->rosters++;
    sum->waiting += r->waiters;
    sum->awaited += r->waiters + r->watchers > 0;
    check_holders(t, l, sum);
    check_waiters(t, l, sum);
}

static void check_joined(const struct sl_table *t, const struct sl_entry *e,
                         struct totals *sum)
{
    sum->entries++;
    sum->text_bytes += sl_entry_text_bytes(e);
    check_client(t, e->client, e->session_id, sum);
    assert(e->state == SL_JOINED && e->lock == NULL && e->session != NULL && "I12");
    assert(!sl_list_empty(&e->of_session) && "I8");
    assert((e->end_ms != SL_NEVER) == (e->timer != SL_HEAP_NONE) && "I7");
    if (e->timer != SL_HEAP_NONE)
        assert(t->heap.items[e->timer].owner == e &&
               t->heap.items[e->timer].at == e->end_ms && "I7");
}

static void check_acquisition(const struct sl_table *t, const struct sl_acquisition *a,
                              struct totals *sum)
{
    const struct sl_entry *e = a->entry;
    assert((e == NULL) == !sl_list_empty(&a->in_list) && "I12");
    if (e != NULL) {
        assert(e->named == a && !a->ended && e->user == a->user && "I12");
        assert((e->state == SL_WAITING || e->state == SL_HOLDING) && "I12");
    }
    if (!sl_list_empty(&a->joined) && sl_list_empty(&a->to_answer))
        assert(e != NULL && e->state == SL_WAITING && "I12");
    for (const struct sl_list *n = a->joined.next; n != &a->joined; n = n->next) {
        const struct sl_entry *j = sl_container_of(n, const struct sl_entry, in_list);
        assert(j->named == a && "I12");
        check_joined(t, j, sum);
    }
}

static void check_requests(const struct sl_table *t, struct totals *sum)
{
    void *some[64];
    uint64_t cursor = 0;
    do {
        size_t n = sl_index_scan(&t->requests.index, &cursor, some,
                                 sizeof some / sizeof *some);
        for (size_t i = 0; i < n; i++) check_acquisition(t, some[i], sum);
    } while (cursor != 0);
}

void sl_table_check(const struct sl_table *t)
{
    void *some[64];
    uint64_t cursor = 0;
    struct totals sum = {0};
    do {
        size_t n = sl_index_scan(&t->index, &cursor, some, sizeof some / sizeof *some);
        for (size_t i = 0; i < n; i++) check_lock(t, some[i], &sum);
    } while (cursor != 0);
    check_requests(t, &sum);
    assert(sum.entries == t->entries && sum.rosters == t->roster_count && "I8");
    assert(sum.waiting == t->waiting && sum.awaited == t->awaited_count && "I8");
    assert(sum.text_bytes == t->text_bytes && "I8");
    check_clients(&t->clients, sum.client_refs);
    assert(t->fence <= SL_FENCE_MAX && "I5");
    for (uint32_t i = 1; i < t->heap.count; i++)
        assert(t->heap.items[(i - 1) / 4].at <= t->heap.items[i].at && "I7");
}
