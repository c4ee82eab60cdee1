/* journal.c - the buffer of records, and what is not durable yet. */
#include "journal/journal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

/* A buffer that has grown beyond this size is freed when it is empty. */
#define BUFFER_BYTES_KEPT (1u << 20)
#define MARKS_MIN 64u

/* Positions of a key, which is represented by its hash. If two keys have the same hash, a request
 * waits unnecessarily. */
struct mark {
    uint64_t hash;    /* 0: the slot is empty. */
    uint64_t ended;   /* A lease has ended, and its end has this position; 0: none. */
    uint64_t pending; /* A change waits for this position; 0: none. */
};

/* A hash table of marks, with open addressing. It is only ever emptied as a whole. */
struct marks {
    struct mark *at;
    size_t size, count;
    uint64_t last; /* The highest position in it. */
};

/* A journal that mends itself is still failed. */
enum journal_state { WORKS, FAILED, MENDS };

struct sl_journal {
    struct sl_hash_key key;
    sl_ms volatile_ms, step_ms;
    sl_ms inherited_ms, inherited_until_ms; /* Of an earlier server (J5). */
    enum journal_state state;
    bool forgot; /* A mark was lost for lack of memory: any key may have one. */

    struct sl_buffer records; /* Those that have not been taken. */
    size_t frame_at;          /* Where the last frame in it begins, */
    uint64_t frames;          /* and how many there are. */
    /* The records of the last take, until the next one: their write may fail. */
    struct sl_buffer taken;
    size_t rest_at; /* Records after this offset have not been taken yet, */
    uint64_t rest;  /* and form so many frames. */

    uint64_t position; /* Of the last frame taken, */
    uint64_t written;  /* and of the last one that is known to be written. */
    uint64_t durable;
    uint64_t awaited; /* The highest position that a request waits for. */
    bool is_syncing;
    uint64_t sync_position;          /* What the sync in progress makes durable. */
    sl_ms end_due_ms, synced_due_ms; /* When ends must be durable: those after, and
                                       * those in, the sync in progress. */
    /* Marks since the sync in progress began, and from before. Without a sync in progress there
     * are none from before, unless the journal is being mended: then these are the marks that
     * the new file will settle. */
    struct marks marks, before;
};

/* --- Marks ------------------------------------------------------------------------ */

static struct mark *slot_of(const struct marks *m, uint64_t hash)
{
    size_t i = (size_t)hash & (m->size - 1);
    while (m->at[i].hash != 0 && m->at[i].hash != hash) i = (i + 1) & (m->size - 1);
    return &m->at[i];
}

static bool grow_marks(struct marks *m)
{
    size_t size = m->size == 0 ? MARKS_MIN : 2 * m->size;
    struct marks larger = {calloc(size, sizeof *larger.at), size, m->count, m->last};
    if (larger.at == NULL) return false;
    for (size_t i = 0; i < m->size; i++)
        if (m->at[i].hash != 0) *slot_of(&larger, m->at[i].hash) = m->at[i];
    free(m->at);
    *m = larger;
    return true;
}

/* Raise the positions that are stored for new.hash to those of `new`, if these are higher. Returns
 * false when out of memory. */
static bool add_mark(struct marks *m, struct mark new)
{
    if (4 * (m->count + 1) > 3 * m->size && !grow_marks(m)) return false;
    struct mark *slot = slot_of(m, new.hash);
    if (slot->hash == 0) m->count++;
    slot->hash = new.hash;
    if (new.ended > slot->ended) slot->ended = new.ended;
    if (new.pending > slot->pending) slot->pending = new.pending;
    if (new.ended > m->last) m->last = new.ended;
    if (new.pending > m->last) m->last = new.pending;
    return true;
}

static void empty_marks(struct marks *m)
{
    if (m->size > MARKS_MIN && m->count < m->size / 8) {
        free(m->at);
        *m = (struct marks){0};
        return;
    }
    if (m->count > 0) memset(m->at, 0, m->size * sizeof *m->at);
    m->count = 0;
    m->last = 0;
}

static uint64_t hash_of(const struct sl_journal *j, struct sl_bytes key)
{
    uint64_t hash = sl_hash(j->key, key.at, key.n);
    return hash == 0 ? 1 : hash;
}

/* Returns the positions of a key that are not durable yet. */
static struct mark find_mark(const struct sl_journal *j, struct sl_bytes key)
{
    struct mark found = {0};
    if (j->marks.count == 0 && j->before.count == 0) return found;
    found.hash = hash_of(j, key);
    const struct marks *tables[] = {&j->marks, &j->before};
    for (int i = 0; i < 2; i++) {
        if (tables[i]->count == 0) continue;
        const struct mark *slot = slot_of(tables[i], found.hash);
        if (slot->ended > j->durable && slot->ended > found.ended)
            found.ended = slot->ended;
        if (slot->pending > j->durable && slot->pending > found.pending)
            found.pending = slot->pending;
    }
    return found;
}

/* Move the marks from before that are not durable to the others, and drop the rest. */
static void keep_marks(struct sl_journal *j)
{
    if (j->before.last > j->durable)
        for (size_t i = 0; i < j->before.size; i++) {
            const struct mark *m = &j->before.at[i];
            if (m->ended <= j->durable && m->pending <= j->durable) continue;
            if (!add_mark(&j->marks, *m)) j->forgot = true;
        }
    empty_marks(&j->before);
}

static void swap_marks(struct sl_journal *j)
{
    struct marks m = j->marks;
    assert(j->before.count == 0);
    j->marks = j->before;
    j->before = m;
}

/* --- Creation --------------------------------------------------------------------- */

struct sl_journal *sl_journal_new(struct sl_hash_key key, uint64_t position,
                                  sl_ms volatile_ms)
{
    assert(volatile_ms >= 0);
    struct sl_journal *j = calloc(1, sizeof *j);
    if (j == NULL) return NULL;
    j->key = key;
    j->volatile_ms = volatile_ms;
    j->step_ms = volatile_ms < SL_BOUND_STEP_MS ? volatile_ms : SL_BOUND_STEP_MS;
    j->position = j->written = j->durable = position;
    j->end_due_ms = j->synced_due_ms = SL_NEVER;
    return j;
}

void sl_journal_free(struct sl_journal *j)
{
    if (j == NULL) return;
    sl_buffer_free(&j->records);
    sl_buffer_free(&j->taken);
    free(j->marks.at);
    free(j->before.at);
    free(j);
}

/* --- The buffer ----------------------------------------------------------------------- */

static void empty_buffer(struct sl_buffer *b)
{
    if (b->size > BUFFER_BYTES_KEPT) sl_buffer_free(b);
    b->n = 0;
}

/* A record was appended at this offset. It begins a new frame if it does not fit into the
 * last one. */
static void count_record(struct sl_journal *j, size_t at)
{
    if (j->frames == 0 || j->records.n - j->frame_at > SL_RECORDS_BYTES_MAX) {
        j->frame_at = at;
        j->frames++;
    }
}

/* Memory ran out. Records that were appended before can still be written; there will be no
 * others until the journal is mended. */
static void run_out(struct sl_journal *j)
{
    if (j->state == MENDS) sl_journal_fail(j);
    j->state = FAILED;
}

/* Append the record that puts an item, or ends it. Returns its position, or
 * SL_JOURNAL_FAILED. */
static uint64_t append(struct sl_journal *j, const struct sl_item *item, bool is_end)
{
    size_t at = j->records.n;
    int status = is_end ? sl_record_end(&j->records, item->kind, item->key, item->fence)
                        : sl_record_put(&j->records, item);
    if (status != SLUICE_OK) {
        run_out(j);
        return SL_JOURNAL_FAILED;
    }
    count_record(j, at);
    return sl_journal_last(j);
}

/* Returns where the first frame of the rest ends. */
static size_t end_of_frame(const struct sl_journal *j)
{
    struct sl_bytes all = {j->taken.at, j->taken.n};
    struct sl_item item;
    size_t end = j->rest_at;
    if (j->rest == 1) return j->taken.n;
    /* Divide the records as count_record() did. */
    for (size_t next = end; next - j->rest_at <= SL_RECORDS_BYTES_MAX;) {
        end = next;
        sl_record_next(all, &next, &item);
    }
    return end;
}

bool sl_journal_take(struct sl_journal *j, struct sl_bytes *records, uint64_t *position)
{
    if (j->state == WORKS) j->written = j->position; /* The caller has written it. */
    if (j->rest == 0) {
        if (j->frames == 0) return false;
        struct sl_buffer empty = j->taken;
        empty_buffer(&empty);
        j->taken = j->records;
        j->rest = j->frames;
        j->rest_at = 0;
        j->records = empty;
        j->frames = j->frame_at = 0;
    }
    size_t end = end_of_frame(j);
    *records = (struct sl_bytes){j->taken.at + j->rest_at, end - j->rest_at};
    *position = ++j->position;
    j->rest_at = end;
    j->rest--;
    return true;
}

/* --- Changes ------------------------------------------------------------------------- */

static sl_ms bound_of(const struct sl_journal *j, sl_ms expiry_ms)
{
    if (j->step_ms == 0 || expiry_ms % j->step_ms == 0) return expiry_ms;
    return sl_ms_after(expiry_ms, j->step_ms - expiry_ms % j->step_ms);
}

void sl_journal_bound(const struct sl_journal *j, struct sl_item *item)
{
    bool rounded = item->is_long && item->expiry_ms != SL_NEVER;
    item->bound_ms = rounded ? bound_of(j, item->expiry_ms) : item->expiry_ms;
}

/* Whether a record must be durable because of its bound (J4 a). */
static bool must_be_durable(const struct sl_journal *j, struct sl_now now,
                            const struct sl_item *item, struct sl_item_before before)
{
    if (j->volatile_ms == 0 || item->expiry_ms == SL_NEVER) return true;
    if (!item->is_long) return false;
    sl_ms old_ms = before.is_long ? bound_of(j, before.expiry_ms) : 0;
    if (item->bound_ms == old_ms) return false;
    /* An earlier bound ends a part of a lease that the disk still shows. */
    return item->bound_ms < old_ms || item->bound_ms - now.ms > j->volatile_ms;
}

/* A change of the key waits for this position. */
static uint64_t wait_for(struct sl_journal *j, uint64_t hash, uint64_t position)
{
    if (!add_mark(&j->marks, (struct mark){.hash = hash, .pending = position})) {
        j->forgot = true;
        run_out(j);
        return SL_JOURNAL_FAILED;
    }
    sl_journal_await(j, position);
    return position;
}

uint64_t sl_journal_put(struct sl_journal *j, struct sl_now now, struct sl_item *item,
                        struct sl_item_before before)
{
    bool is_new = before.expiry_ms == 0;
    item->is_long = before.is_long || item->expiry_ms - now.ms > j->volatile_ms;
    sl_journal_bound(j, item);
    if (j->state != WORKS) return SL_JOURNAL_FAILED;

    struct mark mark = find_mark(j, item->key);
    uint64_t position = append(j, item, false), wait = mark.pending;
    if (position == SL_JOURNAL_FAILED) return SL_JOURNAL_FAILED;
    if (must_be_durable(j, now, item, before)) wait = position;
    if (is_new && mark.ended > wait) wait = mark.ended; /* J4 b. */
    if (wait == 0) return 0;
    return wait_for(j, hash_of(j, item->key), wait);
}

uint64_t sl_journal_end(struct sl_journal *j, struct sl_now now, enum sl_item_kind kind,
                        struct sl_bytes key, sl_fence fence, bool is_long)
{
    const struct sl_item item = {.kind = kind, .key = key, .fence = fence};
    uint64_t position = j->state == FAILED ? SL_JOURNAL_FAILED : append(j, &item, true);
    /* The file of a failed journal shows short leases that have ended, too. */
    if (is_long || j->state != WORKS) {
        struct mark mark = {.hash = hash_of(j, key), .ended = position};
        if (!add_mark(&j->marks, mark)) {
            j->forgot = true;
            run_out(j);
            return SL_JOURNAL_FAILED;
        }
    }
    if (is_long && j->end_due_ms == SL_NEVER)
        j->end_due_ms = sl_ms_after(now.ms, SL_END_SYNC_MS);
    return position;
}

void sl_journal_await(struct sl_journal *j, uint64_t position)
{
    if (position != SL_JOURNAL_FAILED && position > j->awaited) j->awaited = position;
}

uint64_t sl_journal_await_key(struct sl_journal *j, struct sl_bytes key,
                              uint64_t position)
{
    if (j->state != WORKS || position == SL_JOURNAL_FAILED) return SL_JOURNAL_FAILED;
    return wait_for(j, hash_of(j, key), position);
}

uint64_t sl_journal_need(struct sl_journal *j, struct sl_bytes key)
{
    struct mark mark = find_mark(j, key);
    if (j->state != WORKS) return mark.ended != 0 || j->forgot ? SL_JOURNAL_FAILED : 0;
    uint64_t wait = mark.ended > mark.pending ? mark.ended : mark.pending;
    return wait == 0 ? 0 : wait_for(j, mark.hash, wait);
}

uint64_t sl_journal_pending(const struct sl_journal *j, struct sl_bytes key)
{
    return j->state == WORKS ? find_mark(j, key).pending : 0;
}

uint64_t sl_journal_pending_any(const struct sl_journal *j)
{
    return j->state == WORKS && j->awaited > j->durable ? j->awaited : 0;
}

/* --- Starting and copying ----------------------------------------------------------- */

void sl_journal_restore(struct sl_journal *j, struct sl_item *item)
{
    sl_ms written_ms = item->bound_ms;
    sl_journal_bound(j, item);
    if (j->state == WORKS && item->bound_ms > written_ms) append(j, item, false);
}

void sl_journal_inherit(struct sl_journal *j, sl_ms volatile_ms, sl_ms now_ms)
{
    j->inherited_ms = volatile_ms;
    j->inherited_until_ms = sl_ms_after(now_ms, volatile_ms);
}

sl_ms sl_journal_copied_volatile_ms(const struct sl_journal *j, sl_ms now_ms)
{
    bool inherits = j->inherited_ms > j->volatile_ms && now_ms < j->inherited_until_ms;
    return inherits ? j->inherited_ms : j->volatile_ms;
}

sl_ms sl_journal_volatile_ms(const struct sl_journal *j)
{
    return j->volatile_ms;
}

/* --- Syncing --------------------------------------------------------------------------- */

sl_ms sl_journal_sync_due(const struct sl_journal *j)
{
    if (j->state != WORKS || j->is_syncing) return SL_NEVER;
    return j->awaited > j->durable ? 0 : j->end_due_ms;
}

void sl_journal_sync_begin(struct sl_journal *j)
{
    assert(j->state == WORKS && !j->is_syncing);
    j->is_syncing = true;
    j->sync_position = j->position;
    swap_marks(j);
    j->synced_due_ms = j->end_due_ms;
    /* Records that have not been taken are not in this sync, and may be ends. */
    if (j->frames + j->rest == 0) j->end_due_ms = SL_NEVER;
}

void sl_journal_sync_end(struct sl_journal *j, bool ok)
{
    assert(j->is_syncing);
    j->is_syncing = false;
    if (ok && j->sync_position > j->durable) j->durable = j->sync_position;
    if (j->durable > j->written) j->written = j->durable;
    j->synced_due_ms = SL_NEVER;
    keep_marks(j);
    if (!ok || j->forgot) sl_journal_fail(j);
}

uint64_t sl_journal_durable(const struct sl_journal *j)
{
    return j->durable;
}

uint64_t sl_journal_last(const struct sl_journal *j)
{
    return j->position + j->rest + j->frames;
}

uint64_t sl_journal_position(const struct sl_journal *j)
{
    return j->position;
}

uint64_t sl_journal_written(const struct sl_journal *j)
{
    return j->written;
}

/* --- Failure ---------------------------------------------------------------------------- */

/* Drop records that were not written. If a record says that a lease has ended, mark its key, because
 * the file may still show that lease. */
static void lose_records(struct sl_journal *j, struct sl_buffer *b)
{
    struct sl_bytes records = {b->at, b->n};
    struct sl_item item;
    int type;
    for (size_t at = 0; (type = sl_record_next(records, &at, &item)) > 0;)
        if (type == 2) {
            struct mark mark = {.hash = hash_of(j, item.key),
                                .ended = SL_JOURNAL_FAILED};
            if (!add_mark(&j->marks, mark)) j->forgot = true;
        }
    empty_buffer(b);
}

void sl_journal_fail(struct sl_journal *j)
{
    if (j->state == MENDS) keep_marks(j);
    j->state = FAILED;
    lose_records(j, &j->taken);
    lose_records(j, &j->records);
    j->frames = j->frame_at = j->rest = j->rest_at = 0;
    j->awaited = 0;
    j->end_due_ms = j->synced_due_ms = SL_NEVER;
}

bool sl_journal_failed(const struct sl_journal *j)
{
    return j->state != WORKS;
}

void sl_journal_mend_begin(struct sl_journal *j)
{
    assert(j->state == FAILED && !j->is_syncing);
    sl_journal_fail(j); /* Drop the records before a lack of memory. */
    j->state = MENDS;
    swap_marks(j);
}

void sl_journal_mend(struct sl_journal *j, uint64_t position)
{
    assert(j->state == MENDS && position >= j->durable && position <= j->position);
    j->state = WORKS;
    j->durable = position;
    if (position > j->written) j->written = position;
    j->forgot = false;
    empty_marks(&j->before);
}

/* --- Invariants ------------------------------------------------------------------------- */

static void check_marks(const struct marks *m)
{
    size_t count = 0;
    assert(m->size == 0 || (m->size & (m->size - 1)) == 0);
    for (size_t i = 0; i < m->size; i++) {
        const struct mark *slot = &m->at[i];
        if (slot->hash == 0) continue;
        count++;
        assert(slot_of(m, slot->hash) == slot);
        assert(slot->ended <= m->last && slot->pending <= m->last);
        assert(slot->ended != 0 || slot->pending != 0);
    }
    assert(count == m->count && 4 * count <= 3 * m->size);
}

void sl_journal_check(const struct sl_journal *j)
{
    assert((j->frames == 0) == (j->records.n == 0));
    assert(j->frames == 0 || j->frame_at < j->records.n);
    assert((j->rest == 0) == (j->rest_at == j->taken.n));
    assert(j->durable <= j->written && j->written <= j->position);
    assert(j->awaited <= sl_journal_last(j));
    assert(!j->is_syncing || j->sync_position <= j->position);
    assert(j->is_syncing || j->state == MENDS || j->before.count == 0);
    assert(j->state != WORKS || !j->forgot || j->is_syncing);
    check_marks(&j->marks);
    check_marks(&j->before);
}
