/* slot.h - the threads that use a segment, and what becomes of them.
 *
 *     free --claim--> alive --leave--> free
 *                       |
 *                       +--the kernel marks its mutex--> dead --reap--> free
 *
 * A slot is alive while its thread holds the slot's robust mutex. When the thread is
 * gone, however, the kernel marks the mutex. Who then locks it is the slot's one
 * exclusive reaper, and alone may free it. But an exclusive reaper may be stopped in
 * the middle; so it first says `dying`, and whoever finds that gives back the permits
 * that it needs itself, without waiting (sl_canal_counter_reap() allows any number).
 *
 * A tethered slot is dead only when its tether is free as well: a file lock that the
 * processes started by its thread have inherited. */
#ifndef SL_CANAL_SLOT_H
#define SL_CANAL_SLOT_H

#include "canal/layout.h"

/* Take a free slot, or that of a dead thread, for the calling thread: its number in
 * *out. SLUICE_ESLOTS. */
int sl_canal_slot_claim(const struct sl_canal_segment *seg, uint32_t *out);

/* Give back all that the calling thread's slot holds, and the slot. What is tethered
 * stays held as long as the tether is, as after the thread's death. */
void sl_canal_slot_leave(const struct sl_canal_segment *seg, uint32_t slot);

/* Take a chunk of records for a slot of the calling thread: the first record's number
 * in *out. SLUICE_ERECORDS. */
int sl_canal_slot_take_chunk(const struct sl_canal_segment *seg, uint32_t slot,
                             uint32_t *out);

/* Give back what dead threads hold of a key. Returns the units freed. */
uint64_t sl_canal_slot_reap_key(const struct sl_canal_segment *seg, uint32_t key);

/* Give back what dead threads hold of any key, and free their slots. */
uint64_t sl_canal_slot_reap_all(const struct sl_canal_segment *seg);

/* Whether a slot is in use, by a dead thread, by those who have a dead thread's tether.
 * For those who look inside. */
bool sl_canal_slot_in_use(const struct sl_canal_segment *seg, uint32_t slot);
bool sl_canal_slot_inherited(const struct sl_canal_segment *seg, uint32_t slot);
bool sl_canal_slot_is_dead(const struct sl_canal_segment *seg, uint32_t slot);

/* The bit of a slot in a key's bitmap. Only the slot's thread, or its exclusive
 * reaper, may change it. Set before a key is used and cleared after; while it is set
 * some record of the slot names the key. */
static inline void sl_canal_slot_set_bit(const struct sl_canal_segment *seg,
                                         uint32_t slot, uint32_t key)
{
    /* Sequentially consistent: pairs with the reclaimer, which closes a key and then
     * looks at its bits, while we set the bit and then look at the state (keys.c). */
    __atomic_fetch_or(&sl_canal_bitmap(seg, key)[slot / 64], 1ull << slot % 64,
                      __ATOMIC_SEQ_CST);
}

static inline void sl_canal_slot_clear_bit(const struct sl_canal_segment *seg,
                                           uint32_t slot, uint32_t key)
{
    /* Release: what we did to the key comes before somebody else's reclaiming it. */
    __atomic_fetch_and(&sl_canal_bitmap(seg, key)[slot / 64], ~(1ull << slot % 64),
                       __ATOMIC_RELEASE);
}

#endif /* SL_CANAL_SLOT_H */
