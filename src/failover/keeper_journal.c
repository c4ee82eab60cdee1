/* keeper_journal.c - records the long leases of the keeper in etcd, and restores them at the next
 * keeper. */
#include "failover/keeper_journal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "locks/grant_record.h"

#define RETRY_MS 250
#define FENCE_DIGITS 14

/* The bound of a grant that has a record. */
struct grant_bound {
    sl_fence fence;
    sl_ms bound_ms;    /* In journal time. */
    uint64_t position; /* When this position is durable, so is the bound; until then, */
    sl_ms durable_ms;  /* the bound in the storage is this one; 0: none. */
    uint64_t value_hash; /* Of the grant as it was recorded, without its times. */
    bool broken;         /* The record says that the grant was broken or stolen. */
};

/* The entry of a grant that was broken or stolen, and has expired by the reports that the keeper has
 * received during its wait. */
struct kept_entry {
    struct sl_list all;
    sl_fence fence;
    uint32_t key_bytes;
    char key[];
};

/* --- The bounds ------------------------------------------------------------------------ */

static uint64_t hash_bound(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct grant_bound *)item)->fence, x->seed);
}

static bool same_bound(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct grant_bound *)item)->fence, key.at, key.n) == 0;
}

static const struct sl_index_kind by_fence = {.hash = hash_bound, .same = same_bound};

static struct grant_bound *find_bound(const struct sl_keeper_journal *k, sl_fence fence)
{
    return sl_index_find(&k->bounds,
                         (struct sl_bytes){(const char *)&fence, sizeof fence},
                         sl_hash_u64(fence, k->bounds.seed));
}

/* Returns NULL if out of memory. */
static struct grant_bound *make_bound(struct sl_keeper_journal *k, sl_fence fence)
{
    struct grant_bound *b = find_bound(k, fence);
    if (b != NULL) return b;
    if (sl_index_reserve(&k->bounds) != SLUICE_OK || (b = calloc(1, sizeof *b)) == NULL)
        return NULL;
    b->fence = fence;
    sl_index_put(&k->bounds, b, hash_bound(b, &k->bounds));
    return b;
}

static void drop_bound(struct sl_keeper_journal *k, struct grant_bound *b)
{
    sl_index_remove(&k->bounds, b, hash_bound(b, &k->bounds));
    free(b);
}

/* --- Journal time ----------------------------------------------------------------------- */

sl_ms sl_keeper_journal_time(const struct sl_keeper_journal *k, sl_ms now_ms)
{
    sl_ms passed = now_ms - k->begun_at_ms;
    return k->begun_ms + passed - passed / 500 - (passed % 500 != 0);
}

/* Return a journal time that is not reached before this time of our clock. */
static sl_ms to_journal_time(const struct sl_keeper_journal *k, sl_ms now_ms, sl_ms ms)
{
    if (ms == SL_NEVER) return SL_NEVER;
    return sl_ms_after(sl_keeper_journal_time(k, now_ms), ms - now_ms);
}

/* Return a time of our clock at which a lease of an earlier keeper with this bound has expired. */
static sl_ms from_journal_time(const struct sl_keeper_journal *k, sl_ms bound_ms)
{
    sl_ms left = bound_ms - k->begun_ms;
    return sl_ms_after(k->begun_at_ms, sl_ms_after(left, left / 499 + 2));
}

static sl_ms round_up(sl_ms ms, sl_ms step)
{
    if (step == 0 || ms % step == 0) return ms;
    return sl_ms_after(ms, step - ms % step);
}

/* --- Changes ---------------------------------------------------------------------------- */

void sl_keeper_journal_change(struct sl_keeper_journal *k, sl_ms now_ms)
{
    k->now_ms = now_ms;
    k->need = 0;
}

static void need(struct sl_keeper_journal *k, uint64_t position)
{
    if (position > k->need) k->need = position;
}

static bool put_item(struct sl_keeper_journal *k, struct sl_item *item)
{
    uint64_t position = SL_JOURNAL_FAILED;
    if (sl_record_bytes(item) + item->key.n + 64 <= k->settings.bytes_max)
        position = sl_journal_put(k->rules, (struct sl_now){.ms = k->now_ms}, item,
                                  (struct sl_item_before){0});
    need(k, position);
    return position != SL_JOURNAL_FAILED;
}

static bool write_value(struct sl_keeper_journal *k, const struct sl_grant_view *v,
                        struct sl_bytes *out)
{
    size_t n = sl_grant_bytes_max(v);
    if (n > k->value.size) {
        char *at = realloc(k->value.at, n);
        if (at == NULL) return false;
        k->value.at = at;
        k->value.size = n;
    }
    char *end = sl_grant_write(k->value.at, v);
    *out = (struct sl_bytes){k->value.at, (size_t)(end - k->value.at)};
    return true;
}

/* Return the bound that the storage has. */
static sl_ms durable_bound(const struct sl_keeper_journal *k,
                           const struct grant_bound *b)
{
    return sl_journal_durable(k->rules) >= b->position ? b->bound_ms : b->durable_ms;
}

bool sl_keeper_journal_writes(const struct sl_keeper_journal *k, sl_fence fence)
{
    const struct grant_bound *b = k->bounds.count > 0 ? find_bound(k, fence) : NULL;
    return b != NULL && sl_journal_durable(k->rules) < b->position;
}

bool sl_keeper_journal_covers(const struct sl_keeper_journal *k, sl_fence fence,
                              sl_ms now_ms, sl_ms end_ms)
{
    const struct grant_bound *b = k->bounds.count > 0 ? find_bound(k, fence) : NULL;
    return b != NULL && durable_bound(k, b) >= to_journal_time(k, now_ms, end_ms);
}

/* Record a grant, with a bound that is a multiple of `step`, unless its record is good enough. Returns
 * whether it has a record. */
static bool record_grant(struct sl_keeper_journal *k, const struct sl_grant_change *c,
                         sl_ms step)
{
    struct sl_grant_view v = c->grant;
    struct sl_bytes value;
    struct grant_bound *b = make_bound(k, v.fence);
    /* The entry of an earlier keeper may have a later bound. That of a broken or stolen
     * grant has been read. */
    assert(!k->reads || v.broken || v.stolen);
    sl_ms end_ms = to_journal_time(k, k->now_ms, v.end_ms);
    sl_ms bound_ms = round_up(end_ms, step);
    /* The next keeper holds the lease for longer, by up to 1 in 499 for its clock. */
    if (v.unsure_ms > 0 && v.unsure_ms != SL_NEVER)
        v.unsure_ms += (v.end_ms - k->now_ms) / 200 + 10;
    if (b == NULL || !write_value(k, &v, &value)) {
        need(k, SL_JOURNAL_FAILED);
        return b != NULL;
    }
    uint64_t hash = sl_hash(k->settings.hash_key, value.at, value.n);
    if (b->bound_ms >= end_ms && b->value_hash == hash) {
        need(k, sl_journal_pending(k->rules, c->key));
        return true;
    }
    struct sl_item item = {.kind = SL_ITEM_GRANT,
                           .key = c->key,
                           .fence = v.fence,
                           .expiry_ms = v.end_ms,
                           .value = value};
    sl_ms before_ms = durable_bound(k, b);
    if (put_item(k, &item)) {
        b->durable_ms = before_ms;
        b->bound_ms = bound_ms;
        b->position = sl_journal_last(k->rules);
        b->value_hash = hash;
        b->broken = v.broken || v.stolen;
    } else if (b->bound_ms == 0) {
        drop_bound(k, b);
        return false;
    }
    return true;
}

static void end_item(struct sl_keeper_journal *k, enum sl_item_kind kind,
                     struct sl_bytes key, sl_fence fence)
{
    sl_journal_end(k->rules, (struct sl_now){.ms = k->now_ms}, kind, key, fence, true);
}

/* --- Broken grants that have expired ----------------------------------------------------- */

static bool waits(const struct sl_keeper_journal *k)
{
    struct sl_table_stats stats;
    sl_table_stats(k->settings.table, &stats);
    return stats.recovering_until_ms > k->now_ms;
}

/* Keep the entry of a broken grant that has expired. Until the wait ends, another node may report a later
 * expiry, to this keeper or to the next one, which must know that the grant was broken. Returns false if out
 * of memory. */
static bool keep_entry(struct sl_keeper_journal *k, struct sl_bytes key, sl_fence fence)
{
    struct kept_entry *x = malloc(sizeof *x + key.n);
    if (x == NULL) return false;
    x->fence = fence;
    x->key_bytes = (uint32_t)key.n;
    memcpy(x->key, key.at, key.n);
    sl_list_append(&k->kept, &x->all);
    return true;
}

/* Forget all kept entries. If `ends`, delete those of grants that are not held again. */
static void forget_kept(struct sl_keeper_journal *k, bool ends)
{
    while (!sl_list_empty(&k->kept)) {
        struct kept_entry *x = sl_container_of(k->kept.next, struct kept_entry, all);
        if (ends && find_bound(k, x->fence) == NULL)
            end_item(k, SL_ITEM_GRANT, (struct sl_bytes){x->key, x->key_bytes},
                     x->fence);
        sl_list_remove(&x->all);
        free(x);
    }
}

void sl_keeper_journal_tidy(struct sl_keeper_journal *k, sl_ms now_ms)
{
    if (sl_list_empty(&k->kept)) return;
    k->now_ms = now_ms;
    if (!waits(k)) forget_kept(k, true);
}

/* --- Changes of the table ------------------------------------------------------------------ */

static bool put_grant(void *arg, const struct sl_grant_change *c)
{
    struct sl_keeper_journal *k = arg;
    sl_keeper_journal_tidy(k, k->now_ms);
    const struct sl_grant_view *v = &c->grant;
    sl_ms step = k->settings.volatile_ms < SL_BOUND_STEP_MS ? k->settings.volatile_ms
                                                            : SL_BOUND_STEP_MS;
    /* If the lease is not extended, do not round the bound up. Otherwise a lease that each keeper restores and
     * records again would become longer and longer. */
    if (c->before_ms == v->end_ms || v->unsure_ms > 0) step = 0;
    if (v->end_ms - k->now_ms > k->settings.volatile_ms || v->broken || v->stolen)
        return record_grant(k, c, step);
    if (c->before_ms == 0) need(k, sl_journal_need(k->rules, c->key));
    else need(k, sl_journal_pending(k->rules, c->key));
    return v->is_long;
}

static void end_grant(void *arg, struct sl_bytes key, sl_fence fence, sl_ms end_ms,
                      bool is_long)
{
    struct sl_keeper_journal *k = arg;
    (void)is_long; /* The table does not know this of a grant that a node reported. */
    struct grant_bound *b = k->bounds.count > 0 ? find_bound(k, fence) : NULL;
    /* Its entry may not have been read yet. If the grant has expired, the entry may have a later bound than
     * the node that reported the grant knew. Otherwise settings.withdrew() says that it has ended. */
    bool expired = end_ms <= k->now_ms, broken = b != NULL && b->broken;
    if (b == NULL && (!k->reads || expired)) return;
    if (b != NULL) drop_bound(k, b);
    if (expired && broken && waits(k) && keep_entry(k, key, fence)) return;
    end_item(k, SL_ITEM_GRANT, key, fence);
}

static void unleased_grant(void *arg, struct sl_bytes key, sl_fence fence)
{
    struct sl_keeper_journal *k = arg;
    (void)fence;
    sl_keeper_journal_tidy(k, k->now_ms);
    need(k, sl_journal_need(k->rules, key));
}

/* Every overlap mark has a record, so that BREAK holds under the next keeper. */
static bool put_mark(void *arg, struct sl_bytes key, sl_ms end_ms, sl_ms before_ms,
                     bool is_long)
{
    struct sl_keeper_journal *k = arg;
    struct sl_item item = {.kind = SL_ITEM_OVERLAP, .key = key, .expiry_ms = end_ms};
    (void)before_ms;
    return put_item(k, &item) || is_long;
}

static void end_mark(void *arg, struct sl_bytes key, bool is_long)
{
    if (is_long) end_item(arg, SL_ITEM_OVERLAP, key, 0);
}

static void put_drain(void *arg, struct sl_bytes glob, bool on)
{
    struct sl_keeper_journal *k = arg;
    struct sl_item item = {.kind = SL_ITEM_DRAIN, .key = glob, .expiry_ms = SL_NEVER};
    if (on) put_item(k, &item);
    else end_item(k, SL_ITEM_DRAIN, glob, 0);
}

/* --- All leases, when the keeper resigns -------------------------------------------------- */

/* No extension follows, so the bound is the expiry. */
static bool put_last(void *arg, const struct sl_grant_change *c)
{
    return record_grant(arg, c, 0);
}

static bool has_mark(void *arg, struct sl_bytes key, sl_ms end_ms, sl_ms before_ms,
                     bool is_long)
{
    (void)arg, (void)key, (void)end_ms, (void)before_ms;
    return is_long;
}

static void has_drain(void *arg, struct sl_bytes glob, bool on)
{
    (void)arg, (void)glob, (void)on;
}

int sl_keeper_journal_record_all(struct sl_keeper_journal *k, sl_ms now_ms,
                                 struct sl_table_walk *w, size_t max)
{
    const struct sl_table_recorder all = {
        .arg = k, .put = put_last, .mark = has_mark, .drain = has_drain};
    sl_keeper_journal_change(k, now_ms);
    int status = sl_table_walk(k->settings.table, (struct sl_now){.ms = now_ms}, w,
                               &all, max);
    if (k->need == SL_JOURNAL_FAILED) return SLUICE_ENOMEM;
    sl_journal_await(k->rules, sl_journal_last(k->rules));
    return status;
}

bool sl_keeper_journal_is_durable(const struct sl_keeper_journal *k)
{
    return !k->writes && sl_journal_durable(k->rules) >= sl_journal_last(k->rules);
}

/* --- Entries ------------------------------------------------------------------------------ */

static bool append(struct sl_buffer *b, const char *at, size_t n)
{
    if (b->n + n > b->size) {
        size_t size = 2 * (b->n + n);
        char *larger = realloc(b->at, size);
        if (larger == NULL) return false;
        b->at = larger;
        b->size = size;
    }
    if (n > 0) memcpy(b->at + b->n, at, n);
    b->n += n;
    return true;
}

/* Append the key of the entry of an item. */
static bool append_key(struct sl_buffer *b, const struct sl_item *item)
{
    static const char digits[] = "0123456789abcdef";
    char text[1 + FENCE_DIGITS];
    if (item->kind != SL_ITEM_GRANT)
        return append(b, item->kind == SL_ITEM_DRAIN ? "d" : "o", 1) &&
               append(b, item->key.at, item->key.n);
    text[0] = 'g';
    for (int i = 0; i < FENCE_DIGITS; i++)
        text[1 + i] = digits[item->fence >> (4 * (FENCE_DIGITS - 1 - i)) & 15];
    return append(b, text, sizeof text);
}

/* Whether the key of an entry is that of its item. */
static bool is_key_of(struct sl_bytes key, const struct sl_item *item)
{
    char text[1 + FENCE_DIGITS];
    struct sl_buffer b = {text, 0, sizeof text};
    if (item->kind == SL_ITEM_GRANT)
        return append_key(&b, item) && key.n == b.n && memcmp(key.at, text, b.n) == 0;
    char letter = item->kind == SL_ITEM_DRAIN ? 'd' : 'o';
    return key.n == item->key.n + 1 && key.at[0] == letter &&
           memcmp(key.at + 1, item->key.at, item->key.n) == 0;
}

/* --- What earlier keepers recorded -------------------------------------------------------- */

bool sl_keeper_journal_reads(const struct sl_keeper_journal *k, struct sl_bytes *after)
{
    *after = (struct sl_bytes){k->after.at, k->after.n};
    return k->reads;
}

static int restore_grant(struct sl_keeper_journal *k, struct sl_now now,
                         struct sl_item *item)
{
    struct sl_grant_view v;
    if (!sl_grant_read(item->value, &v)) return SLUICE_EINVAL;
    v.fence = item->fence;
    v.end_ms = from_journal_time(k, item->expiry_ms);
    v.is_long = v.leased = true;
    bool withdrawn = k->settings.withdrew != NULL &&
                     k->settings.withdrew(k->settings.arg, item->key, &v);
    bool broken = v.broken || v.stolen;
    if (broken && k->settings.broke != NULL)
        k->settings.broke(k->settings.arg, now.ms, item->fence, !v.broken);
    struct sl_grant_view held;
    if (v.end_ms <= now.ms && broken && !withdrawn) {
        if (!sl_table_inspect_grant(k->settings.table, now, item->key, item->fence,
                                    &held))
            return keep_entry(k, item->key, item->fence) ? SLUICE_OK : SLUICE_ENOMEM;
        v.end_ms = held.end_ms; /* A node has reported a later expiry. */
        v.unsure_ms = SL_NEVER;
    }
    if (v.end_ms <= now.ms || withdrawn) {
        end_item(k, SL_ITEM_GRANT, item->key, item->fence);
        return SLUICE_OK;
    }
    /* Restore the grant before the bound is stored: if the lease has just expired, because a node has reported
     * an earlier expiry, the table first tells end_grant(), which would delete an entry with a bound. */
    int status = sl_table_restore(k->settings.table, now, &v, item->key);
    if (status != SLUICE_OK) return status;
    struct grant_bound *b = make_bound(k, item->fence);
    if (b == NULL) return SLUICE_ENOMEM;
    b->bound_ms = item->expiry_ms;
    b->value_hash = sl_hash(k->settings.hash_key, item->value.at, item->value.n);
    b->broken = broken;
    return SLUICE_OK;
}

static int restore_mark(struct sl_keeper_journal *k, struct sl_now now,
                        const struct sl_item *item)
{
    sl_ms end_ms = from_journal_time(k, item->expiry_ms);
    if (end_ms > now.ms)
        return sl_table_restore_mark(k->settings.table, now, item->key, end_ms, true);
    end_item(k, SL_ITEM_OVERLAP, item->key, 0);
    return SLUICE_OK;
}

static int restore(struct sl_keeper_journal *k, struct sl_now now,
                   const struct sl_storage_row *row)
{
    struct sl_item item;
    size_t at = 0;
    if (sl_record_next(row->value, &at, &item) != 1 || at != row->value.n ||
        !is_key_of(row->key, &item))
        return SLUICE_EINVAL;
    switch (item.kind) {
        case SL_ITEM_GRANT: return restore_grant(k, now, &item);
        case SL_ITEM_OVERLAP: return restore_mark(k, now, &item);
        case SL_ITEM_DRAIN: return sl_table_restore_drain(k->settings.table, item.key);
        default: return SLUICE_EINVAL;
    }
}

int sl_keeper_journal_restore(struct sl_keeper_journal *k, struct sl_now now,
                              const struct sl_storage_row *rows, uint32_t count,
                              bool more, uint32_t *bad)
{
    assert(k->reads);
    k->now_ms = now.ms;
    for (uint32_t i = 0; i < count; i++) {
        int status = restore(k, now, &rows[i]);
        *bad = i;
        if (status == SLUICE_ENOMEM) return SLUICE_ENOMEM;
        if (status != SLUICE_OK) return SLUICE_EINVAL;
        k->after.n = 0;
        if (!append(&k->after, rows[i].key.at, rows[i].key.n)) return SLUICE_ENOMEM;
    }
    k->reads = more;
    return SLUICE_OK;
}

/* --- Writing --------------------------------------------------------------------------------- */

sl_ms sl_keeper_journal_due(const struct sl_keeper_journal *k)
{
    if (k->rules == NULL || k->writes) return SL_NEVER;
    return k->frame.n > 0 ? k->retry_ms : sl_journal_sync_due(k->rules);
}

/* The entries of one write. While they are added, `key` and `value` are offsets. */
struct added_entry {
    size_t key, key_end, value_end;
    bool is_end;
};

struct batch {
    struct sl_keeper_journal *k;
    struct added_entry *at;
    uint32_t count;
};

/* Remove an earlier entry with the key of the last one, because the last change counts. */
static void drop_earlier(struct batch *b)
{
    const char *text = b->k->text.at;
    const struct added_entry *last = &b->at[b->count - 1];
    size_t n = last->key_end - last->key;
    for (uint32_t i = 0; i + 1 < b->count; i++) {
        struct added_entry *e = &b->at[i];
        if (e->key_end - e->key != n || memcmp(text + e->key, text + last->key, n) != 0)
            continue;
        *e = *last;
        b->count--;
        return;
    }
}

/* Add the entry of a record. Returns false if out of memory. */
static bool add_entry(struct batch *b, sl_ms now_ms, struct sl_item *item, bool is_end)
{
    struct sl_keeper_journal *k = b->k;
    struct added_entry *e = &b->at[b->count];
    if (!is_end && item->kind == SL_ITEM_GRANT) {
        const struct grant_bound *known = find_bound(k, item->fence);
        if (known == NULL) return true; /* A later record ends it. */
        item->expiry_ms = known->bound_ms;
    } else if (!is_end) item->expiry_ms = to_journal_time(k, now_ms, item->expiry_ms);
    item->bound_ms = item->expiry_ms;
    e->key = k->text.n;
    if (!append_key(&k->text, item)) return false;
    e->key_end = k->text.n;
    e->is_end = is_end;
    if (!is_end && sl_record_put(&k->text, item) != SLUICE_OK) return false;
    e->value_end = k->text.n;
    b->count++;
    drop_earlier(b);
    return true;
}

/* Collect the entries of the next write from the frame. Returns their number; 0 if out of memory. */
static uint32_t collect(struct sl_keeper_journal *k, sl_ms now_ms,
                        struct added_entry *at)
{
    struct batch b = {.k = k, .at = at};
    struct sl_item item;
    int type;
    k->text.n = 0;
    k->writing = k->written;
    for (size_t next = k->written; b.count < k->settings.entries_max;) {
        type = sl_record_next(k->frame, &next, &item);
        if (type <= 0) break;
        size_t bytes = type == 1 ? sl_record_bytes(&item) : 0;
        if (b.count > 0 && k->text.n + bytes + item.key.n + 64 > k->settings.bytes_max)
            break;
        if (!add_entry(&b, now_ms, &item, type == 2)) return 0;
        k->writing = next;
    }
    return b.count;
}

static void end_frame(struct sl_keeper_journal *k)
{
    k->frame = (struct sl_bytes){0};
    k->written = k->writing = 0;
    sl_journal_sync_end(k->rules, true);
}

bool sl_keeper_journal_next(struct sl_keeper_journal *k, sl_ms now_ms,
                            const struct sl_storage_write **entries, uint32_t *count)
{
    struct added_entry at[SL_KEEPER_JOURNAL_ENTRIES_MAX];
    uint64_t position;
    if (sl_keeper_journal_due(k) > now_ms) return false;
    if (k->frame.n == 0) {
        if (!sl_journal_take(k->rules, &k->frame, &position)) return false;
        sl_journal_sync_begin(k->rules);
    }
    k->entry_count = collect(k, now_ms, at);
    if (k->entry_count == 0 && k->writing == k->written) {
        k->retry_ms = sl_ms_after(now_ms, RETRY_MS); /* Out of memory. */
        return false;
    }
    for (uint32_t i = 0; i < k->entry_count; i++) {
        const char *text = k->text.at;
        struct sl_bytes value = {text + at[i].key_end, at[i].value_end - at[i].key_end};
        k->entries[i] = (struct sl_storage_write){
            .key = {text + at[i].key, at[i].key_end - at[i].key}};
        if (!at[i].is_end) k->entries[i].value = value;
    }
    k->writes = true;
    *entries = k->entries;
    *count = k->entry_count;
    return true;
}

bool sl_keeper_journal_written(struct sl_keeper_journal *k, sl_ms now_ms, bool ok)
{
    assert(k->writes);
    k->writes = false;
    if (k->frame.n == 0) return false; /* It was a write of an earlier term. */
    if (!ok) {
        k->retry_ms = sl_ms_after(now_ms, RETRY_MS);
        return false;
    }
    k->retry_ms = 0;
    k->written = k->writing;
    if (k->written < k->frame.n) return false;
    end_frame(k);
    return true;
}

/* --- Life ------------------------------------------------------------------------------------ */

bool sl_keeper_journal_init(struct sl_keeper_journal *k,
                            const struct sl_keeper_journal_settings *s)
{
    assert(s->entries_max > 0 && s->entries_max <= SL_KEEPER_JOURNAL_ENTRIES_MAX);
    *k = (struct sl_keeper_journal){.settings = *s,
                                    .recorder = {.arg = k,
                                                 .put = put_grant,
                                                 .end = end_grant,
                                                 .unleased = unleased_grant,
                                                 .mark = put_mark,
                                                 .unmark = end_mark,
                                                 .drain = put_drain}};
    k->entries = calloc(s->entries_max, sizeof *k->entries);
    sl_list_init(&k->kept);
    sl_index_init(&k->bounds, &by_fence, s->hash_key);
    return k->entries != NULL;
}

bool sl_keeper_journal_begin(struct sl_keeper_journal *k, sl_ms now_ms,
                             sl_ms journal_ms)
{
    assert(k->rules == NULL);
    k->rules = sl_journal_new(k->settings.hash_key, 0, k->settings.volatile_ms);
    if (k->rules == NULL) return false;
    k->need = 0;
    k->now_ms = k->begun_at_ms = now_ms;
    k->begun_ms = journal_ms;
    k->reads = true;
    k->after.n = 0;
    k->retry_ms = 0;
    sl_table_set_recorder(k->settings.table, &k->recorder);
    return true;
}

void sl_keeper_journal_end(struct sl_keeper_journal *k)
{
    if (k->rules == NULL) return;
    sl_table_set_recorder(k->settings.table, NULL);
    sl_journal_free(k->rules);
    k->rules = NULL;
    k->reads = false;
    k->frame = (struct sl_bytes){0};
    k->written = k->writing = 0;
    sl_index_empty(&k->bounds, free);
    forget_kept(k, false);
}

void sl_keeper_journal_free(struct sl_keeper_journal *k)
{
    sl_keeper_journal_end(k);
    sl_index_free(&k->bounds);
    sl_buffer_free(&k->value);
    sl_buffer_free(&k->after);
    sl_buffer_free(&k->text);
    free(k->entries);
    k->entries = NULL;
}

#define must(so, what) assert((so) && what)

void sl_keeper_journal_check(const struct sl_keeper_journal *k)
{
    must(k->rules != NULL || (k->frame.n == 0 && k->bounds.count == 0 && !k->reads),
         "only a keeper has a journal");
    must(k->written <= k->writing && k->writing <= k->frame.n,
         "writes are in the order of the records");
    if (k->rules != NULL) sl_journal_check(k->rules);
}
