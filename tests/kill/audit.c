#include "audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "canal/counter.h"
#include "canal/keys.h"
#include "canal/slot.h"

/* Where the first thing that is wrong is written down. */
struct complaint {
    char *why;
    size_t size;
    bool wrong;
};

static void __attribute__((format(printf, 2, 3)))
wrong(struct complaint *c, const char *format, ...)
{
    if (c->wrong) return;
    c->wrong = true;
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, c->size, format, args);
    va_end(args);
}

/* The slot that a record belongs to, plus 1; 0: to none. */
static uint32_t slot_of(const struct sl_canal_segment *seg, uint32_t record)
{
    return seg->chunks[record / SL_CANAL_CHUNK_RECORDS];
}

static bool bit_is_set(const struct sl_canal_segment *seg, uint32_t key, uint32_t slot)
{
    return (sl_canal_bitmap(seg, key)[slot / 64] >> slot % 64 & 1u) != 0;
}

/* ---- at every instruction ---- */

static void audit_count(const struct sl_canal_segment *seg, uint32_t key,
                        struct complaint *c)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < seg->record_count; r++)
        if (seg->records[r].key == key) sum += sl_canal_counter_effective(seg, r);
    uint32_t count = sl_canal_word_count(sl_canal_word_load(&seg->keys[key].word));
    if (sum != count)
        wrong(c, "N1: key %u counts %u, its records hold %llu", key, count,
              (unsigned long long)sum);
}

static void audit_bits(const struct sl_canal_segment *seg, uint32_t key,
                       struct complaint *c)
{
    for (uint32_t s = 0; s < seg->slot_count; s++) {
        if (!bit_is_set(seg, key, s)) continue;
        bool named = false;
        for (uint32_t r = 0; r < seg->record_count && !named; r++)
            named = slot_of(seg, r) == s + 1 && seg->records[r].key == key;
        if (!named) wrong(c, "B1: slot %u has its bit at key %u and no record", s, key);
    }
}

static void audit_record(const struct sl_canal_segment *seg, uint32_t record,
                         struct complaint *c)
{
    uint32_t held = sl_canal_counter_effective(seg, record);
    if (held == 0) return;
    uint32_t slot = slot_of(seg, record);
    if (slot == 0 || slot > seg->slot_count || !sl_canal_slot_in_use(seg, slot - 1))
        wrong(c, "B2: record %u holds %u and is nobody's", record, held);
    else if (!bit_is_set(seg, seg->records[record].key, slot - 1))
        wrong(c, "B2: record %u of slot %u holds %u of key %u without a bit", record,
              slot - 1, held, seg->records[record].key);
}

static void audit_chunks(const struct sl_canal_segment *seg, struct complaint *c)
{
    for (uint32_t i = 0; i < seg->chunk_count; i++) {
        uint32_t slot = seg->chunks[i];
        if (slot == 0) continue;
        if (slot > seg->slot_count || !sl_canal_slot_in_use(seg, slot - 1))
            wrong(c, "C1: chunk %u belongs to slot %u, which is free", i, slot - 1);
    }
}

/* ---- when it is settled ---- */

static void audit_name(const struct sl_canal_segment *seg, uint32_t key,
                       struct complaint *c)
{
    enum sl_canal_key_state state = sl_canal_key_state(seg->keys[key].state);
    uint32_t places = 0;
    for (uint32_t i = 0; i <= seg->index_mask; i++) places += seg->index[i] == key + 1;
    if (state == SL_CANAL_KEY_CLOSING) wrong(c, "I2: key %u is closing", key);
    if (state == SL_CANAL_KEY_FREE && places != 0)
        wrong(c, "I2: the index leads to key %u, which has no name", key);
    if (state != SL_CANAL_KEY_READY) return;
    struct sl_canal_name name;
    struct sl_canal_key_ref found;
    char text[SLUICE_KEY_BYTES_MAX + 1];
    if (!sl_canal_keys_copy_name(seg, key, text) ||
        sl_canal_keys_name(seg, text, &name) != SLUICE_OK ||
        name.hash != seg->keys[key].hash)
        wrong(c, "I1: key %u has no proper name", key);
    else if (!sl_canal_keys_find(seg, &name, &found))
        wrong(c, "I1: key %u, '%s', is not found", key, text);
    else if (found.key != key)
        wrong(c, "I1: keys %u and %u are both '%s'", key, found.key, text);
    else if (places != 1)
        wrong(c, "I1: key %u, '%s', is in the index %u times", key, text, places);
}

static void audit_slots(const struct sl_canal_segment *seg, struct complaint *c)
{
    for (uint32_t s = 0; s < seg->slot_count; s++) {
        if (seg->slots[s].dying != 0) wrong(c, "D1: slot %u is dying", s);
        if (seg->slots[s].generation == 0) wrong(c, "D2: slot %u was not filled in", s);
    }
    if ((seg->header->changes & 1u) != 0) wrong(c, "I2: the index is changing");
}

bool audit(const struct sl_canal_segment *seg, bool settled, char *why, size_t size)
{
    struct complaint c = {.why = why, .size = size};
    for (uint32_t k = 0; k < seg->key_count; k++) {
        audit_count(seg, k, &c);
        audit_bits(seg, k, &c);
        if (settled) audit_name(seg, k, &c);
    }
    for (uint32_t r = 0; r < seg->record_count; r++) audit_record(seg, r, &c);
    audit_chunks(seg, &c);
    if (settled) audit_slots(seg, &c);
    return !c.wrong;
}
