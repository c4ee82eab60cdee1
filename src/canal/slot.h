/* slot.h - the threads that use a segment, and what happens when they die.
 *
 *     free --claim--> alive --leave--> free
 *                       |
 *                       +--the kernel marks its mutex--> dead --reap--> free
 *
 * A slot is alive while its thread holds the slot's robust mutex. When the thread is gone,
 * for whatever reason, the kernel marks the mutex. The thread that then locks it is the
 * slot's exclusive reaper, and only it may free the slot. It may be stopped at any point.
 * So it first sets `dying`, and other threads that see this release the units they need
 * themselves, without waiting (any number of threads may call sl_canal_counter_reap()).
 *
 * A tethered slot is dead only when its tether is free as well: a file lock that the
 * processes started by its thread have inherited. */
#ifndef SL_CANAL_SLOT_H
#define SL_CANAL_SLOT_H

#include "canal/layout.h"

/* Claim a slot for the calling thread: a free one, or that of a dead thread.
 * SLUICE_ESLOTS. */
int sl_canal_slot_claim(const struct sl_canal_segment *seg, uint32_t *out);

/* Release all units of the calling thread's slot, and the slot. Tethered units
 * remain held as long as the tether is, as after the thread's death. */
void sl_canal_slot_leave(const struct sl_canal_segment *seg, uint32_t slot);

/* Take a chunk of records for a slot of the calling thread. *out is its first
 * record. SLUICE_ERECORDS. */
int sl_canal_slot_take_chunk(const struct sl_canal_segment *seg, uint32_t slot,
                             uint32_t *out);

/* Release the units of a key that dead threads hold. Returns their number. */
uint64_t sl_canal_slot_reap_key(const struct sl_canal_segment *seg, uint32_t key);

/* Release the units of all keys that dead threads hold, and free their slots.
 * Returns the number of units. */
uint64_t sl_canal_slot_reap_all(const struct sl_canal_segment *seg);

/* Whether a slot is in use; whether its thread is dead but its tether is held;
 * whether its thread is dead and its units can be released. For inspection. */
bool sl_canal_slot_in_use(const struct sl_canal_segment *seg, uint32_t slot);
bool sl_canal_slot_inherited(const struct sl_canal_segment *seg, uint32_t slot);
bool sl_canal_slot_is_dead(const struct sl_canal_segment *seg, uint32_t slot);

/* Set or clear the bit of a slot in a key's bitmap. Only the slot's thread or its
 * exclusive reaper may do so. The bit is set before the key is used and cleared
 * afterwards. While it is set, some record of the slot names the key. */
static inline void sl_canal_slot_set_bit(const struct sl_canal_segment *seg,
                                         uint32_t slot, uint32_t key)
{
    /* Sequentially consistent: pairs with the reclaimer, which closes a key and then
     * reads its bits, while we set the bit and then read the state (keys.c). */
    __atomic_fetch_or(&sl_canal_bitmap(seg, key)[slot / 64], 1ull << slot % 64,
                      __ATOMIC_SEQ_CST);
}

static inline void sl_canal_slot_clear_bit(const struct sl_canal_segment *seg,
                                           uint32_t slot, uint32_t key)
{
    /* Release: the reclaimer sees what we did to the key. */
    __atomic_fetch_and(&sl_canal_bitmap(seg, key)[slot / 64], ~(1ull << slot % 64),
                       __ATOMIC_RELEASE);
}

#endif /* SL_CANAL_SLOT_H */
