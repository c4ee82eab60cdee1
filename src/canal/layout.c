#include "canal/layout.h"

static size_t align_up(size_t n)
{
    return (n + 127u) & ~(size_t)127u;
}

/* Reserve `count` objects of `size` bytes at offset *at, and advance *at. base may be
 * NULL. */
static void *place(char *base, size_t *at, size_t count, size_t size)
{
    size_t here = *at;
    *at = align_up(here + count * size);
    return base == NULL ? NULL : base + here;
}

static uint32_t power_of_two_from(uint32_t n)
{
    uint32_t p = 16;
    while (p < n) p <<= 1;
    return p;
}

void sl_canal_layout_place(struct sl_canal_segment *seg, void *base, uint32_t keys,
                           uint32_t slots, uint32_t records)
{
    seg->key_count = keys;
    seg->slot_count = slots;
    seg->chunk_count = (records + SL_CANAL_CHUNK_RECORDS - 1u) / SL_CANAL_CHUNK_RECORDS;
    seg->record_count = seg->chunk_count * SL_CANAL_CHUNK_RECORDS;
    seg->bitmap_words = (slots + 63u) / 64u;
    uint32_t index_size = power_of_two_from(
        2u * keys); /* Half empty, so that searches are short. */
    seg->index_mask = index_size - 1u;

    size_t at = 0;
    seg->header = place(base, &at, 1, sizeof *seg->header);
    seg->slots = place(base, &at, slots, sizeof *seg->slots);
    seg->keys = place(base, &at, keys, sizeof *seg->keys);
    seg->names = place(base, &at, keys, sizeof *seg->names);
    seg->bitmaps = place(base, &at, (size_t)keys * seg->bitmap_words, sizeof(uint64_t));
    seg->index = place(base, &at, index_size, sizeof(uint32_t));
    seg->chunks = place(base, &at, seg->chunk_count, sizeof(uint32_t));
    seg->records = place(base, &at, seg->record_count, sizeof *seg->records);
    seg->bytes = (at + 4095u) & ~(size_t)4095u;
}

uint32_t sl_canal_layout_hash(void)
{
    const size_t sizes[] = {
        sizeof(struct sl_canal_shm_header),
        sizeof(struct sl_canal_shm_slot),
        sizeof(struct sl_canal_shm_key),
        sizeof(struct sl_canal_shm_name),
        sizeof(struct sl_canal_shm_record),
        sizeof(pthread_mutex_t),
        SL_CANAL_CHUNK_RECORDS,
    };
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        h = (h ^ (uint32_t)sizes[i]) * 16777619u;
    return h;
}
