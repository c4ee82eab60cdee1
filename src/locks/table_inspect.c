/* table_inspect.c - queries. */
#include "locks/table_internal.h"

bool sl_table_holds(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                    sl_fence fence)
{
    struct sl_grant_ref p;
    return sl_table_find(t, now, key, fence, &p) && sl_grant_sure_end(&p) > now.ms;
}

static sl_ms unsure_ms(const struct sl_lock *l, const struct sl_entry *e)
{
    return sl_unsure_ms(e != NULL ? e->unsure
                                  : (l->flags & SL_INLINE_UNSURE) >> SL_UNSURE_SHIFT);
}

void sl_table_view_inline(const struct sl_table *t, const struct sl_lock *l,
                          struct sl_now now, struct sl_grant_view *out)
{
    const char *value = l->text + l->key_bytes;
    *out = (struct sl_grant_view){.leased = true,
                                  .broken = (l->flags & SL_INLINE_BROKEN) != 0,
                                  .is_long = (l->flags & SL_INLINE_LONG) != 0,
                                  .fence = l->fence,
                                  .session_id = sl_inline_session_id(l),
                                  .origin = sl_client_origin(l->client),
                                  .user = l->user,
                                  .units = 1,
                                  .per = 1,
                                  .buckets = 1,
                                  .end_ms = l->end_ms,
                                  .left_ms = sl_left_at_least(t, now, l->end_ms),
                                  .unsure_ms = unsure_ms(l, NULL),
                                  .since_ms = sl_inline_age_ms(l, now),
                                  .value = {value, l->value_bytes},
                                  .note = {value + l->value_bytes, l->note_bytes},
                                  .name = sl_client_name(l->client),
                                  .address = sl_client_address(l->client)};
}

void sl_table_view_entry(const struct sl_table *t, const struct sl_entry *e,
                         struct sl_now now, struct sl_grant_view *out)
{
    bool waits = e->state == SL_WAITING;
    *out = (struct sl_grant_view){
        .waits = waits,
        .shared = e->shared,
        .leased = e->lease_ms > 0,
        .broken = e->broken,
        .overlapping = e->overlaps,
        .asked = !waits && sl_is_victim(e),
        .stolen = e->stolen,
        .is_long = e->is_long,
        .steals = waits && e->steals,
        .fence = e->fence,
        .session_id = e->session_id,
        .origin = sl_client_origin(e->client),
        .user = e->user,
        .units = e->units,
        .per = e->per,
        .buckets = e->buckets,
        .priority = e->priority,
        .end_ms = e->end_ms,
        .left_ms = sl_left_at_least(t, now, e->end_ms),
        .unsure_ms = unsure_ms(NULL, e),
        .since_ms = now.ms - (waits ? e->wait.since_ms : e->granted_ms),
        .value = {e->text, e->value_bytes},
        .note = {e->text == NULL ? NULL : e->text + e->value_bytes, e->note_bytes},
        .name = sl_client_name(e->client),
        .address = sl_client_address(e->client)};
    if (e->named == NULL) return;
    out->request = sl_acquisition_id(e->named);
    out->digest = e->named->digest;
}

bool sl_table_inspect_grant(const struct sl_table *t, struct sl_now now,
                            struct sl_bytes key, sl_fence fence,
                            struct sl_grant_view *out)
{
    struct sl_grant_ref p;
    if (!sl_table_find(t, now, key, fence, &p)) return false;
    if (p.entry == NULL) sl_table_view_inline(t, p.lock, now, out);
    else sl_table_view_entry(t, p.entry, now, out);
    return true;
}

/* Count the holders whose leases have not expired. This visits each holder only if the
 * table has not processed all expiries yet. */
static void count_holders(const struct sl_roster *r, struct sl_now now,
                          struct sl_lock_view *out)
{
    if (r->ends.count == 0 || r->ends.items[0].at > now.ms) {
        out->holders += r->counted;
        out->held += r->held - sl_inline_counts(r->lock);
        out->shared = r->shared > 0;
        return;
    }
    for (uint32_t i = r->holders.first; i < r->holders.count; i++) {
        const struct sl_entry *e = r->holders.items[i].entry;
        if (!sl_entry_lives(e, now)) continue;
        out->holders++;
        out->held += e->units;
        if (e->shared) out->shared = true;
    }
}

/* Show the oldest holder. The inline holder is the oldest; the others are sorted by
 * fence. */
static void view_oldest(const struct sl_table *t, struct sl_now now,
                        const struct sl_lock *l, struct sl_grant_view *out)
{
    if (sl_inline_lives(l, now)) {
        sl_table_view_inline(t, l, now, out);
        return;
    }
    const struct sl_holders *h = &l->roster->holders;
    for (uint32_t i = h->first; i < h->count; i++) {
        if (!sl_entry_lives(h->items[i].entry, now)) continue;
        sl_table_view_entry(t, h->items[i].entry, now, out);
        return;
    }
}

static void view_roster(const struct sl_roster *r, struct sl_now now,
                        struct sl_lock_view *out)
{
    out->waiters = r->waiters;
    out->watchers = r->watchers;
    if (r->by_age.oldest != NULL) out->waited_ms = now.ms - r->by_age.oldest->since_ms;
    out->reserved = r->thief != NULL;
    out->reserved_priority = r->thief != NULL ? r->thief->priority : 0;
    const struct sl_list *asked = &r->victims[SL_VICTIM_ASKED];
    for (const struct sl_list *n = asked->next; n != asked; n = n->next) out->asked++;
    count_holders(r, now, out);
}

static void view_lock(const struct sl_table *t, struct sl_now now,
                      const struct sl_lock *l, struct sl_lock_view *out)
{
    const struct sl_roster *r = l->roster;
    *out = (struct sl_lock_view){.key = sl_lock_key(l),
                                 .drained = sl_table_drained(t, sl_lock_key(l)),
                                 .next_overlaps = sl_lock_is_marked(l, now),
                                 .waited_ms = -1};
    if (sl_inline_lives(l, now)) out->held = out->holders = 1;
    if (r != NULL) view_roster(r, now, out);
    if (out->holders > 0) view_oldest(t, now, l, &out->holder);
}

bool sl_table_inspect(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                      struct sl_lock_view *out)
{
    struct sl_lock *l = sl_table_find_lock(t, key);
    if (l == NULL) return false;
    sl_table_expire_lock(t, now, l); /* So we visit each expired holder only once. */
    view_lock(t, now, l, out);
    return true;
}

/* The cursor 0 is the inline holder, then come the slots of the array of holders,
 * and waiters begin at SL_EACH_WAITER. */
static bool each_waiter(const struct sl_table *t, const struct sl_roster *r,
                        struct sl_now now, uint64_t *cursor, struct sl_grant_view *out)
{
    uint64_t n = *cursor - SL_EACH_WAITER;
    for (const struct sl_list *i = r->queues.next; i != &r->queues; i = i->next) {
        const struct sl_wait_queue *queue = sl_container_of(i, struct sl_wait_queue,
                                                            in_roster);
        for (const struct sl_list *j = queue->entries.next; j != &queue->entries;
             j = j->next) {
            if (n-- > 0) continue;
            sl_table_view_entry(t, sl_container_of(j, struct sl_entry, in_list), now,
                                out);
            ++*cursor;
            return true;
        }
    }
    return false;
}

bool sl_table_each(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   uint64_t *cursor, struct sl_grant_view *out)
{
    const struct sl_lock *l = sl_table_find_lock(t, key);
    if (l == NULL) return false;
    if (*cursor == 0) {
        ++*cursor;
        if (sl_inline_lives(l, now)) {
            sl_table_view_inline(t, l, now, out);
            return true;
        }
    }
    const struct sl_roster *r = l->roster;
    if (r == NULL) return false;
    while (*cursor < SL_EACH_WAITER) {
        uint64_t i = *cursor - 1;
        if (i >= r->holders.count) {
            *cursor = SL_EACH_WAITER;
            break;
        }
        ++*cursor;
        const struct sl_entry *e = r->holders.items[i].entry;
        if (!sl_entry_lives(e, now)) continue;
        sl_table_view_entry(t, e, now, out);
        return true;
    }
    return each_waiter(t, r, now, cursor, out);
}

bool sl_table_newest(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                     struct sl_grant_view *out)
{
    struct sl_lock *l = sl_table_find_lock(t, key);
    if (l == NULL) return false;
    sl_table_expire_lock(t, now, l);
    const struct sl_roster *r = l->roster;
    for (uint32_t i = r == NULL ? 0 : r->holders.count; i > 0; i--) {
        const struct sl_entry *e = r->holders.items[i - 1].entry;
        if (!sl_entry_lives(e, now)) continue;
        sl_table_view_entry(t, e, now, out);
        return true;
    }
    if (!sl_inline_lives(l, now)) return false; /* It has the lowest fence. */
    sl_table_view_inline(t, l, now, out);
    return true;
}

size_t sl_table_scan(const struct sl_table *t, struct sl_now now, uint64_t *cursor,
                     struct sl_lock_view *out, size_t max)
{
    void *found[64];
    size_t most = sizeof found / sizeof *found;
    size_t n = sl_index_scan(&t->index, cursor, found, max < most ? max : most);
    for (size_t i = 0; i < n; i++) view_lock(t, now, found[i], &out[i]);
    return n;
}

size_t sl_table_scan_waited(const struct sl_table *t, struct sl_now now,
                            uint64_t *cursor, struct sl_lock_view *out, size_t max)
{
    size_t n = 0;
    for (; n < max; n++) {
        const struct sl_wait_group *g = sl_waits_after(&t->waits, cursor);
        if (g == NULL) {
            *cursor = 0;
            break;
        }
        view_lock(t, now, sl_container_of(g, struct sl_roster, by_age)->lock, &out[n]);
    }
    return n;
}

/* An entry has a slot in one array and in two heaps. Up to half of their slots may
 * be empty. */
#define ENTRY_BYTES                                  \
    (sizeof(struct sl_entry) + 2 * SL_MALLOC_BYTES + \
     2 * (sizeof(struct sl_holder_slot) + sizeof(struct sl_heap_item)))
#define ROSTER_BYTES \
    (sizeof(struct sl_roster) + sizeof(struct sl_wait_queue) + 2 * SL_MALLOC_BYTES)

size_t sl_table_bytes(const struct sl_table *t)
{
    return t->text_bytes + t->index.count * (sizeof(struct sl_lock) + SL_MALLOC_BYTES) +
           t->entries * ENTRY_BYTES + t->roster_count * ROSTER_BYTES +
           sl_index_bytes(&t->index) + t->heap.size * sizeof *t->heap.items +
           sl_clients_bytes(&t->clients) + sl_requests_bytes(&t->requests) +
           t->drain_count * (t->limits.key_bytes_max + SL_MALLOC_BYTES);
}

void sl_table_stats(const struct sl_table *t, struct sl_table_stats *out)
{
    *out = (struct sl_table_stats){.keys = t->index.count,
                                   .entries = t->entries,
                                   .waiters = t->waiting,
                                   .requests = t->requests.index.count,
                                   .drains = t->drain_count,
                                   .bytes = sl_index_bytes(&t->index) +
                                            t->heap.size * sizeof *t->heap.items,
                                   .fence_last = t->fence,
                                   .fence_limit = t->fence_limit,
                                   .recovering_until_ms = t->recovering_until_ms,
                                   .authority_until_ms = t->authority_until_ms};
}
