/* inspect.c - inspects a segment, without a slot and without disturbing its users. It
 * reads fields one by one while they change. So each value was right at some moment,
 * but not all at the same moment. */
#include <stdio.h>
#include <string.h>

#include "canal/counter.h"
#include "canal/keys.h"
#include "canal/slot.h"
#include "canal/thread.h"
#include "sluice.h"

static struct sluice_capacity unpack_capacity(uint64_t packed)
{
    return (struct sluice_capacity){.per = (uint32_t)packed,
                                    .buckets = (uint32_t)(packed >> 32)};
}

static bool bit_is_set(const struct sl_canal_segment *seg, uint32_t slot, uint32_t key)
{
    uint64_t word = __atomic_load_n(&sl_canal_bitmap(seg, key)[slot / 64],
                                    __ATOMIC_ACQUIRE);
    return (word >> slot % 64 & 1u) != 0;
}

static void fill_thread(const struct sl_canal_segment *seg, uint32_t slot,
                        struct sluice_holder *out)
{
    const struct sl_canal_shm_slot *s = &seg->slots[slot];
    uint64_t program[2] = {__atomic_load_n(&s->program[0], __ATOMIC_RELAXED),
                           __atomic_load_n(&s->program[1], __ATOMIC_RELAXED)};
    *out = (struct sluice_holder){.pid = __atomic_load_n(&s->pid, __ATOMIC_RELAXED),
                                  .tid = __atomic_load_n(&s->tid, __ATOMIC_RELAXED),
                                  .slot = slot,
                                  .dead = sl_canal_slot_is_dead(seg, slot),
                                  .inherited = sl_canal_slot_inherited(seg, slot)};
    memcpy(out->program, program, sizeof out->program);
    out->program[sizeof out->program - 1] = '\0';
}

/* Read a start time. In a damaged segment it can be any number; a time before 1970
 * becomes 0. */
static int64_t since(const int64_t *ms)
{
    int64_t n = __atomic_load_n(ms, __ATOMIC_RELAXED);
    return n > 0 ? n : 0;
}

/* Fill *out if a record holds units of a key. */
static bool as_holder(const struct sl_canal_segment *seg, uint32_t record,
                      uint32_t slot, uint32_t key, struct sluice_holder *out)
{
    if (sl_canal_record_key(seg, record) != key || !bit_is_set(seg, slot, key))
        return false;
    /* An idle record can still name its last key. */
    uint32_t held = sl_canal_counter_effective(seg, record);
    if (held == 0) return false;
    const struct sl_canal_shm_record *rec = &seg->records[record];
    fill_thread(seg, slot, out);
    out->units = held;
    out->capacity = unpack_capacity(__atomic_load_n(&rec->capacity, __ATOMIC_RELAXED));
    out->since_ms = since(&rec->since_ms);
    return true;
}

/* Fill *out if a slot waits for a key. */
static bool as_waiter(const struct sl_canal_segment *seg, uint32_t slot, uint32_t key,
                      struct sluice_holder *out)
{
    const struct sl_canal_shm_slot *s = &seg->slots[slot];
    if (!bit_is_set(seg, slot, key)) return false;
    if (__atomic_load_n(&s->waits_key, __ATOMIC_ACQUIRE) != key + 1) return false;
    fill_thread(seg, slot, out);
    if (out->dead || out->inherited) return false;
    out->waits = 1;
    out->units = __atomic_load_n(&s->waits_units, __ATOMIC_RELAXED);
    out->capacity = unpack_capacity(
        __atomic_load_n(&s->waits_capacity, __ATOMIC_RELAXED));
    out->since_ms = since(&s->waits_since_ms);
    return true;
}

/* Find the next holder of a key or, after the last holder, the next waiter. The cursor
 * counts records, then slots. So even in a damaged segment, the number of steps is
 * bounded by the records in use and the slots. */
static bool next_at_key(const struct sl_canal_segment *seg, uint32_t key,
                        uint64_t *cursor, struct sluice_holder *out)
{
    while (*cursor < seg->record_count) {
        uint32_t record = (uint32_t)(*cursor)++,
                 chunk = record / SL_CANAL_CHUNK_RECORDS;
        uint32_t slot = sl_canal_chunk_slot(seg, chunk);
        if (slot == SL_CANAL_NONE) *cursor = (chunk + 1ull) * SL_CANAL_CHUNK_RECORDS;
        else if (as_holder(seg, record, slot, key, out)) return true;
    }
    while (*cursor < (uint64_t)seg->record_count + seg->slot_count) {
        uint32_t slot = (uint32_t)((*cursor)++ - seg->record_count);
        if (as_waiter(seg, slot, key, out)) return true;
    }
    return false;
}

static uint64_t capacity_units(struct sluice_capacity r)
{
    return (uint64_t)r.per * r.buckets;
}

/* Count the holders and waiters of a key, and compare their capacities. */
static void fill_key(const struct sl_canal_segment *seg, uint32_t key,
                     struct sluice_key_info *out)
{
    struct sluice_holder h;
    bool any = false;
    for (uint64_t cursor = 0; next_at_key(seg, key, &cursor, &h);) {
        if (h.waits) out->waiters++;
        else out->holders++;
        if (any && (h.capacity.per != out->capacity.per ||
                    h.capacity.buckets != out->capacity.buckets))
            out->capacities_differ = 1;
        if (!any || capacity_units(h.capacity) > capacity_units(out->capacity))
            out->capacity = h.capacity;
        any = true;
    }
}

int sluice_canal_next_key(struct sluice_canal *c, uint64_t *cursor,
                          struct sluice_key_info *out)
{
    if (c == NULL || cursor == NULL || out == NULL) return SLUICE_EINVAL;
    const struct sl_canal_segment *seg = &c->seg;
    while (*cursor < seg->key_count) {
        uint32_t key = (uint32_t)(*cursor)++;
        memset(out, 0, sizeof *out);
        if (!sl_canal_keys_in_use(seg, key) ||
            !sl_canal_keys_copy_name(seg, key, out->key))
            continue;
        out->held = sl_canal_word_count(sl_canal_word_load(&seg->keys[key].word));
        fill_key(seg, key, out);
        return 1;
    }
    return 0;
}

int sluice_canal_next_holder(struct sluice_canal *c, const char *key, uint64_t *cursor,
                             struct sluice_holder *out)
{
    struct sl_canal_name name;
    struct sl_canal_key_ref ref;
    if (c == NULL || cursor == NULL || out == NULL) return SLUICE_EINVAL;
    int status = sl_canal_keys_name(&c->seg, key, &name);
    if (status == SLUICE_OK) status = sl_canal_keys_lookup(&c->seg, &name, &ref);
    if (status == SLUICE_ENOENT) return 0;
    if (status != SLUICE_OK) return status;
    return next_at_key(&c->seg, ref.key, cursor, out) ? 1 : 0;
}

int sluice_canal_info(struct sluice_canal *c, struct sluice_canal_info *out)
{
    if (c == NULL || out == NULL) return SLUICE_EINVAL;
    const struct sl_canal_segment *seg = &c->seg;
    *out = (struct sluice_canal_info){.keys = seg->key_count,
                                      .slots = seg->slot_count,
                                      .records = seg->record_count,
                                      .bytes = seg->bytes};
    for (uint32_t k = 0; k < seg->key_count; k++)
        out->keys_used += sl_canal_keys_in_use(seg, k);
    for (uint32_t s = 0; s < seg->slot_count; s++)
        out->slots_used += sl_canal_slot_in_use(seg, s);
    for (uint32_t k = 0; k < seg->chunk_count; k++)
        if (__atomic_load_n(&seg->chunks[k], __ATOMIC_RELAXED) != 0)
            out->records_used += SL_CANAL_CHUNK_RECORDS;
    return SLUICE_OK;
}

size_t sluice_canal_picture(uint64_t held, struct sluice_capacity capacity, char *out,
                            size_t size)
{
    static const char more[] = "...]";
    if (out == NULL || size == 0) return 0;
    if (size < sizeof more + 1) {
        out[0] = '\0';
        return 0;
    }
    uint64_t per = capacity.per != 0 ? capacity.per : 1;
    uint64_t buckets = (held + per - 1) / per;
    if (buckets < capacity.buckets) buckets = capacity.buckets;
    size_t n = 0;
    out[n++] = '[';
    for (uint64_t b = 0; b < buckets; b++) {
        char number[32];
        uint64_t in = held < per ? held : per;
        held -= in;
        size_t len = (size_t)snprintf(number, sizeof number, "%s%llu", b > 0 ? "," : "",
                                      (unsigned long long)in);
        if (n + len + sizeof more > size) {
            memcpy(out + n, more, sizeof more);
            return n + sizeof more - 1;
        }
        memcpy(out + n, number, len);
        n += len;
    }
    out[n++] = ']';
    out[n] = '\0';
    return n;
}
