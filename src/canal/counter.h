/* counter.h - a detectable counter: its count is exact even if its users are killed.
 *
 * A key's word holds the count and the tag (record, seq) of its last writer. A thread
 * announces an operation in its record, swaps the word, and completes the operation in
 * its record. If the thread is killed in between, other threads must find out whether
 * the swap took place. The swap took place if its tag is in the word, or if another
 * thread has overwritten its tag. Before a thread overwrites a tag, it raises the
 * *mark* of the record that the tag names.
 *
 *     announce --> swap (the operation takes place) --> complete
 *
 * Invariants, which tests and models refer to:
 *
 *   N1  the count is the sum of the units that all records effectively hold: held, plus or minus the
 *       pending units if the pending swap took place
 *   N2  a tag is written into a word at most once: seq never decreases
 *   N3  before a record overwrites the tag of another record, it raises the other's mark
 *   N4  a mark is only raised to a seq that was read from a word
 *
 * While the owner of a record lives, only the owner operates on the record. After the
 * owner's death, any number of reapers may operate on it at once, and each of them may
 * be killed too. README.md explains why this is correct. */
#ifndef SL_CANAL_COUNTER_H
#define SL_CANAL_COUNTER_H

#include <assert.h>

#include "canal/layout.h"

enum sl_canal_pending {
    SL_CANAL_PENDING_NONE = 0,
    SL_CANAL_PENDING_ACQUIRE = 1,
    SL_CANAL_PENDING_RELEASE = 2,
    SL_CANAL_PENDING_DRAIN = 3
};

/* Everything that a thread's operations on a key need. Filled once. */
struct sl_canal_counter {
    struct sl_canal_word *word;
    struct sl_canal_shm_record *record;
    struct sl_canal_shm_record *records; /* All records, to find the record to mark. */
    uint32_t record_count;
    uint32_t tag; /* This record's index, plus 1. */
};

/* --- Fields of the two words ---------------------------------------------- */

static inline uint32_t sl_canal_word_count(struct sl_canal_pair w)
{
    return (uint32_t)w.lo;
}

static inline uint32_t sl_canal_word_tag(struct sl_canal_pair w)
{
    return (uint32_t)(w.lo >> 32);
}

static inline struct sl_canal_pair sl_canal_word_make(uint32_t count, uint32_t tag,
                                                      uint64_t seq)
{
    return (struct sl_canal_pair){.lo = (uint64_t)tag << 32 | count, .hi = seq};
}

static inline uint32_t sl_canal_record_held(uint64_t lo)
{
    return (uint32_t)lo;
}

static inline enum sl_canal_pending sl_canal_record_pending(uint64_t lo)
{
    return (enum sl_canal_pending)(lo >> 62);
}

static inline uint32_t sl_canal_record_units(uint64_t lo)
{
    return (uint32_t)(lo >> 32) & SLUICE_UNITS_MAX;
}

static inline uint64_t sl_canal_record_make(uint32_t held, enum sl_canal_pending pend,
                                            uint32_t units)
{
    return (uint64_t)pend << 62 | (uint64_t)units << 32 | held;
}

/* --- Operations of a thread on its own record ----------------------------- */

static inline uint32_t sl_canal_counter_held(const struct sl_canal_counter *c)
{
    /* Relaxed: while this thread lives, no other thread writes the state. */
    return sl_canal_record_held(
        __atomic_load_n(&c->record->state.lo, __ATOMIC_RELAXED));
}

/* Raise the mark of the record whose tag is in `seen`. Call this before overwriting the
 * tag (invariant N3). Returns false if the tag names no record: the segment is
 * damaged. */
static inline bool sl_canal_counter_mark_writer(struct sl_canal_shm_record *records,
                                                uint32_t record_count,
                                                struct sl_canal_pair seen,
                                                uint32_t own_tag)
{
    uint32_t tag = sl_canal_word_tag(seen);
    if (tag == 0 || tag == own_tag) return true;
    if (__builtin_expect(tag > record_count, 0)) return false;
    uint64_t *mark = &records[tag - 1].mark;
    /* Acquire and release: pairs with the reaper, which reads the mark after the word.
     * Do not read the record's state here: taking that cache line from its owner would
     * cost ten times as much as the whole operation. */
    uint64_t old = __atomic_load_n(mark, __ATOMIC_ACQUIRE);
    while (old < seen.hi &&
           !__atomic_compare_exchange_n(mark, &old, seen.hi, true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {}
    return true;
}

/* Announce an operation. The order of the two stores matters, and both are Release: a
 * reaper that sees the second store also sees the first. A kill between them leaves a
 * higher seq and no pending operation, which is harmless. */
static inline uint64_t sl_canal_counter_announce(const struct sl_canal_counter *c,
                                                 uint32_t held,
                                                 enum sl_canal_pending pend,
                                                 uint32_t units)
{
    struct sl_canal_word *state = &c->record->state;
    uint64_t seq = __atomic_load_n(&state->hi, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&state->hi, seq, __ATOMIC_RELEASE);
    __atomic_store_n(&state->lo, sl_canal_record_make(held, pend, units),
                     __ATOMIC_RELEASE);
    return seq;
}

/* Complete an operation. Release: the store must not become visible before the swap. */
static inline void sl_canal_counter_complete(const struct sl_canal_counter *c,
                                             uint32_t held)
{
    __atomic_store_n(&c->record->state.lo,
                     sl_canal_record_make(held, SL_CANAL_PENDING_NONE, 0),
                     __ATOMIC_RELEASE);
}

/* Read the word for the first try, with two 8-byte loads. Together they can be torn.
 * This is harmless if the tag is our own: no record needs a mark, and the swap compares
 * all sixteen bytes. The common case thus avoids a 16-byte load right after a 16-byte
 * swap, which processors cannot forward. */
static inline struct sl_canal_pair sl_canal_counter_read(
    const struct sl_canal_counter *c)
{
    struct sl_canal_pair seen = {.lo = __atomic_load_n(&c->word->lo, __ATOMIC_RELAXED),
                                 .hi = __atomic_load_n(&c->word->hi, __ATOMIC_RELAXED)};
    if (sl_canal_word_tag(seen) != c->tag) seen = sl_canal_word_load(c->word);
    return seen;
}

/* Read the word after `tries` failed swaps. Before that, pause, so that other threads
 * can use the cache line. */
struct sl_canal_pair sl_canal_counter_read_again(const struct sl_canal_counter *c,
                                                 struct sl_canal_pair seen,
                                                 unsigned tries);

/* Return whether the word's tag names a record. Returns false only in a damaged
 * segment. */
static inline bool sl_canal_counter_is_sound(const struct sl_canal_counter *c)
{
    return sl_canal_word_tag(sl_canal_word_load(c->word)) <= c->record_count;
}

/* Acquire units if they fit into `cap`. Returns the number of units that all threads
 * now hold, or 0 if the lock is full or the word is not sound. units is
 * 1..SLUICE_UNITS_MAX and at most cap. The linearization point is the swap; for
 * "full", the load of the word. Lock-free. */
static inline uint32_t sl_canal_counter_acquire(const struct sl_canal_counter *c,
                                                uint32_t cap, uint32_t units)
{
    assert(units > 0 && units <= cap);
    uint32_t held = sl_canal_counter_held(c);
    uint64_t seq = sl_canal_counter_announce(c, held, SL_CANAL_PENDING_ACQUIRE, units);
    struct sl_canal_pair seen = sl_canal_counter_read(c);
    for (unsigned tries = 0;; tries++) {
        uint32_t count = sl_canal_word_count(seen);
        /* Compare before subtracting, because the capacity may be below the count. */
        if (count >= cap || units > cap - count) {
            sl_canal_counter_complete(c, held);
            return 0;
        }
        if (!sl_canal_counter_mark_writer(c->records, c->record_count, seen, c->tag)) {
            sl_canal_counter_complete(c, held);
            return 0;
        }
        if (sl_canal_word_swap(c->word, &seen,
                               sl_canal_word_make(count + units, c->tag, seq))) {
            sl_canal_counter_complete(c, held + units);
            return count + units;
        }
        seen = sl_canal_counter_read_again(c, seen, tries);
    }
}

/* Release units. The record must hold at least that many. */
static inline void sl_canal_counter_release(const struct sl_canal_counter *c,
                                            uint32_t units)
{
    assert(units > 0);
    uint32_t held = sl_canal_counter_held(c);
    uint64_t seq = sl_canal_counter_announce(c, held, SL_CANAL_PENDING_RELEASE, units);
    struct sl_canal_pair seen = sl_canal_counter_read(c);
    for (unsigned tries = 0;; tries++) {
        /* A release cannot fail, so it overwrites even a tag that names no record. */
        (void)sl_canal_counter_mark_writer(c->records, c->record_count, seen, c->tag);
        if (sl_canal_word_swap(
                c->word, &seen,
                sl_canal_word_make(sl_canal_word_count(seen) - units, c->tag, seq)))
            break;
        seen = sl_canal_counter_read_again(c, seen, tries);
    }
    sl_canal_counter_complete(c, held - units);
}

/* --- Operations on a dead thread's record --------------------------------- */

/* Release the units of a record that belongs to a dead slot or to the caller's own
 * slot. Any number of reapers may do this at once, and each may be killed or stopped at
 * any point. If the slot's generation is no longer `generation`, the slot has been
 * freed, and the record may have a new owner; then the function returns early.
 * Returns the number of units that this call released. */
uint32_t sl_canal_counter_reap(const struct sl_canal_segment *seg, uint32_t record,
                               const struct sl_canal_shm_slot *slot,
                               uint64_t generation);

/* Return the number of units that a record effectively holds. The number is exact for
 * some moment during the call, unless the record changes during each of a few
 * attempts. */
uint32_t sl_canal_counter_effective(const struct sl_canal_segment *seg,
                                    uint32_t record);

#endif /* SL_CANAL_COUNTER_H */
