/* table_look.c - questions to the table. Nothing is changed here. */
#include "locks/table_internal.h"

bool sl_table_holds(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                    sl_fence fence)
{
    struct sl_grant_place p;
    return sl_table_find(t, now, key, fence, &p);
}

static void view_seat(const struct sl_table *t, const struct sl_lock *l,
                      struct sl_now now, struct sl_grant_view *out)
{
    const char *value = l->text + l->key_bytes;
    *out = (struct sl_grant_view){.leased = true,
                                  .broken = (l->flags & SL_SEAT_BROKEN) != 0,
                                  .fence = l->fence,
                                  .session_id = l->session_id,
                                  .user = l->user,
                                  .units = 1,
                                  .per = 1,
                                  .buckets = 1,
                                  .left_ms = sl_left_at_least(t, now, l->end_ms),
                                  .since_ms = sl_seat_age_ms(l, now),
                                  .value = {value, l->value_bytes},
                                  .note = {value + l->value_bytes, l->note_bytes}};
}

static void view_entry(const struct sl_table *t, const struct sl_entry *e,
                       struct sl_now now, struct sl_grant_view *out)
{
    bool waits = e->state == SL_IN_LINE;
    *out = (struct sl_grant_view){
        .waits = waits,
        .shared = e->shared,
        .leased = e->lease_ms > 0,
        .broken = e->broken,
        .overlapping = e->overlaps,
        .asked = !waits && sl_is_victim(e),
        .steals = waits && e->steals,
        .fence = e->fence,
        .session_id = e->session_id,
        .user = e->user,
        .units = e->units,
        .per = e->per,
        .buckets = e->buckets,
        .priority = e->priority,
        .left_ms = sl_left_at_least(t, now, e->end_ms),
        .since_ms = now.ms - (waits ? e->asked_ms : e->granted_ms),
        .value = {e->text, e->value_bytes},
        .note = {e->text == NULL ? NULL : e->text + e->value_bytes, e->note_bytes}};
}

bool sl_table_inspect_grant(const struct sl_table *t, struct sl_now now,
                            struct sl_bytes key, sl_fence fence,
                            struct sl_grant_view *out)
{
    struct sl_grant_place p;
    if (!sl_table_find(t, now, key, fence, &p)) return false;
    if (p.entry == NULL) view_seat(t, p.lock, now, out);
    else view_entry(t, p.entry, now, out);
    return true;
}

/* Leases that are over are not counted, whether or not the table has got to them. Only
 * while it has not they have to be looked for. */
static void count_holders(const struct sl_crowd *c, struct sl_now now,
                          struct sl_lock_view *out)
{
    if (c->ends.count == 0 || c->ends.items[0].at > now.ms) {
        out->holders += c->counted;
        out->held += c->held - sl_seat_counts(c->lock);
        out->shared = c->shared > 0;
        return;
    }
    for (uint32_t i = c->holders.first; i < c->holders.count; i++) {
        const struct sl_entry *e = c->holders.items[i].entry;
        if (!sl_entry_lives(e, now)) continue;
        out->holders++;
        out->held += e->units;
        if (e->shared) out->shared = true;
    }
}

static void view_lock(const struct sl_table *t, struct sl_now now,
                      const struct sl_lock *l, struct sl_lock_view *out)
{
    const struct sl_crowd *c = l->crowd;
    *out = (struct sl_lock_view){.key = sl_lock_key(l),
                                 .drained = sl_table_drained(t, sl_lock_key(l)),
                                 .next_overlaps = sl_lock_is_marked(l, now)};
    if (sl_seat_lives(l, now)) out->held = out->holders = 1;
    if (c == NULL) return;
    out->waiters = c->waiters;
    out->watchers = c->watchers;
    out->reserved = c->thief != NULL;
    out->reserved_priority = c->thief != NULL ? c->thief->priority : 0;
    const struct sl_list *asked = &c->victims[SL_ASKED_TO_GO];
    for (const struct sl_list *n = asked->next; n != asked; n = n->next) out->asked++;
    count_holders(c, now, out);
}

bool sl_table_inspect(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                      struct sl_lock_view *out)
{
    struct sl_lock *l = sl_table_find_lock(t, key);
    if (l == NULL) return false;
    sl_table_pass_time(t, now, l); /* So that the dead are walked over once. */
    view_lock(t, now, l, out);
    return true;
}

/* The cursor: 0 the seat, then the roll, and from SL_EACH_WAITER on the waiters, counted. */
static bool each_waiter(const struct sl_table *t, const struct sl_crowd *c,
                        struct sl_now now, uint64_t *cursor, struct sl_grant_view *out)
{
    uint64_t n = *cursor - SL_EACH_WAITER;
    for (const struct sl_list *i = c->lines.next; i != &c->lines; i = i->next) {
        const struct sl_line *line = sl_container_of(i, struct sl_line, place);
        for (const struct sl_list *j = line->entries.next; j != &line->entries;
             j = j->next) {
            if (n-- > 0) continue;
            view_entry(t, sl_container_of(j, struct sl_entry, place), now, out);
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
        if (sl_seat_lives(l, now)) {
            view_seat(t, l, now, out);
            return true;
        }
    }
    const struct sl_crowd *c = l->crowd;
    if (c == NULL) return false;
    while (*cursor < SL_EACH_WAITER) {
        uint64_t i = *cursor - 1;
        if (i >= c->holders.count) {
            *cursor = SL_EACH_WAITER;
            break;
        }
        ++*cursor;
        const struct sl_entry *e = c->holders.items[i].entry;
        if (!sl_entry_lives(e, now)) continue;
        view_entry(t, e, now, out);
        return true;
    }
    return each_waiter(t, c, now, cursor, out);
}

bool sl_table_newest(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                     struct sl_grant_view *out)
{
    struct sl_lock *l = sl_table_find_lock(t, key);
    if (l == NULL) return false;
    sl_table_pass_time(t, now, l);
    const struct sl_crowd *c = l->crowd;
    for (uint32_t i = c == NULL ? 0 : c->holders.count; i > 0; i--) {
        const struct sl_entry *e = c->holders.items[i - 1].entry;
        if (!sl_entry_lives(e, now)) continue;
        view_entry(t, e, now, out);
        return true;
    }
    if (!sl_seat_lives(l, now)) return false; /* The seat's fence is the least. */
    view_seat(t, l, now, out);
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

/* An entry has places on a roll and in two heaps, of which up to half may be empty. */
#define ENTRY_BYTES                                  \
    (sizeof(struct sl_entry) + 2 * SL_MALLOC_BYTES + \
     2 * (sizeof(struct sl_roll_item) + sizeof(struct sl_heap_item)))
#define CROWD_BYTES \
    (sizeof(struct sl_crowd) + sizeof(struct sl_line) + 2 * SL_MALLOC_BYTES)

size_t sl_table_bytes(const struct sl_table *t)
{
    return t->text_bytes + t->index.count * (sizeof(struct sl_lock) + SL_MALLOC_BYTES) +
           t->entries * ENTRY_BYTES + t->crowds_made * CROWD_BYTES +
           sl_index_bytes(&t->index) + t->heap.size * sizeof *t->heap.items +
           t->drain_count * (t->limits.key_bytes_max + SL_MALLOC_BYTES);
}

void sl_table_stats(const struct sl_table *t, struct sl_table_stats *out)
{
    *out = (struct sl_table_stats){.keys = t->index.count,
                                   .entries = t->entries,
                                   .waiters = t->waiting,
                                   .drains = t->drain_count,
                                   .bytes = sl_index_bytes(&t->index) +
                                            t->heap.size * sizeof *t->heap.items,
                                   .fence_last = t->fence,
                                   .fence_limit = t->fence_limit,
                                   .recovering_until_ms = t->recovering_until_ms,
                                   .authority_until_ms = t->authority_until_ms};
}
