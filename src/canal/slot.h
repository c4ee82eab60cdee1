/* slot.h - the threads that use a segment, and the cleanup after dead threads.
 *
 *     free --claim--> alive --leave--> free
 *                       |
 *                       +--the kernel marks its mutex--> dead --reap--> free
 *
 * A slot is alive while its thread holds the slot's robust mutex. When the thread dies,
 * for whatever reason, the kernel marks the mutex. The thread that then locks the mutex
 * is the slot's exclusive reaper, and only the exclusive reaper may free the slot. The
 * reaper may be stopped at any point, so it sets `dying` first. Other threads that see
 * `dying` do not wait for the reaper: they release the dead thread's units themselves
 * (any number of threads may call sl_canal_counter_reap()).
 *
 * A *tether* is a file lock that the processes started by the slot's thread inherit. A
 * tethered slot counts as dead only when no process holds its tether any more. */
#ifndef SL_CANAL_SLOT_H
#define SL_CANAL_SLOT_H

#include "canal/layout.h"

/* Claim a slot for the calling thread: a free slot, or the slot of a dead thread.
 * Returns SLUICE_OK or SLUICE_ESLOTS. */
int sl_canal_slot_claim(const struct sl_canal_segment *seg, uint32_t *out);

/* Release all units of the calling thread's slot, then free the slot. If the slot is
 * tethered, its units remain held until the tether is free, as after the thread's
 * death. */
void sl_canal_slot_leave(const struct sl_canal_segment *seg, uint32_t slot);

/* Take a chunk of records for a slot of the calling thread, and store the index of its
 * first record in *out. Returns SLUICE_OK or SLUICE_ERECORDS. */
int sl_canal_slot_take_chunk(const struct sl_canal_segment *seg, uint32_t slot,
                             uint32_t *out);

/* Release the units of a key that dead threads hold. Returns the number of units. */
uint64_t sl_canal_slot_reap_key(const struct sl_canal_segment *seg, uint32_t key);

/* Release the units of all keys that dead threads hold, and free their slots.
 * Returns the number of units. */
uint64_t sl_canal_slot_reap_all(const struct sl_canal_segment *seg);

/* For inspection: return whether a slot is in use; whether its thread is dead but its
 * tether is still held; and whether its thread is dead and its units can be
 * released. */
bool sl_canal_slot_in_use(const struct sl_canal_segment *seg, uint32_t slot);
bool sl_canal_slot_inherited(const struct sl_canal_segment *seg, uint32_t slot);
bool sl_canal_slot_is_dead(const struct sl_canal_segment *seg, uint32_t slot);

/* Set or clear the bit of a slot in a key's bitmap. Only the slot's thread or its
 * exclusive reaper may call this. Set the bit before using the key, and clear it
 * afterwards. While the bit is set, some record of the slot names the key. */
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
