/* counter.h - the detectable counter: exact though its users are killed.
 *
 * A key's word holds the count and the tag (record, seq) of its last writer. A thread
 * announces in its record what it is about to do, swaps the word, and writes down in
 * the record that it is done. Killed in between, it has left the question whether the
 * swap took place, and anybody can answer it: either the tag is still in the word, or
 * it was overwritten, and whoever overwrites a tag first raises the *mark* of the
 * record that it belongs to. That is all; src/canal/README.md has the argument.
 *
 *     announce --> swap (the moment it happens) --> complete
 *
 * Invariants, named in tests and models:
 *
 *   N1  the count is the sum over all records of what they effectively hold: held,
 *       plus or minus the pending units if the pending swap took place
 *   N2  a tag is in a word at most once, ever: seq never goes back
 *   N3  when a tag is overwritten by another record, its mark was raised before
 *   N4  a mark is only ever raised to a tag that was read from a word
 *
 * A record has one driver at a time: its thread, or, after its death, any number of
 * reapers, each of which may be killed too. */
#ifndef SL_CANAL_COUNTER_H
#define SL_CANAL_COUNTER_H

#include "canal/layout.h"

enum sl_canal_pending {
    SL_CANAL_PENDING_NONE = 0,
    SL_CANAL_PENDING_ACQUIRE = 1,
    SL_CANAL_PENDING_RELEASE = 2,
    SL_CANAL_PENDING_DRAIN = 3
};

/* Where a thread's operations on a key take place. Resolved once. */
struct sl_canal_counter {
    struct sl_canal_word *word;
    struct sl_canal_shm_record *record;
    struct sl_canal_shm_record *records; /* All of them, to find whom to mark. */
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
    /* Relaxed: only this thread writes it while it lives. */
    return sl_canal_record_held(
        __atomic_load_n(&c->record->state.lo, __ATOMIC_RELAXED));
}

/* Rule N3: before the tag in `seen` may be overwritten, its record is marked. False: the
 * tag names no record, so the segment is damaged. */
static inline bool sl_canal_counter_mark_writer(struct sl_canal_shm_record *records,
                                                uint32_t record_count,
                                                struct sl_canal_pair seen,
                                                uint32_t own_tag)
{
#ifndef MUT_NOHELP
    uint32_t tag = sl_canal_word_tag(seen);
    if (tag == 0 || tag == own_tag) return true;
#ifndef MUT_ANYTAG
    if (__builtin_expect(tag > record_count, 0)) return false;
#endif
    (void)record_count;
    uint64_t *mark = &records[tag - 1].mark;
    /* Acquire and release: the mark pairs with the reaper that reads it after the
     * word. It is raised without a look at the record's state: reading that line
     * would take it from its owner, ten times the price of the whole operation. */
    uint64_t old = __atomic_load_n(mark, __ATOMIC_ACQUIRE);
    while (old < seen.hi &&
           !__atomic_compare_exchange_n(mark, &old, seen.hi, true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {}
#else
    (void)records, (void)record_count, (void)seen, (void)own_tag;
#endif
    return true;
}

/* Say what is about to happen. Two stores in this order; Release, so that a reaper
 * that sees the second sees the first. A kill between them leaves a higher seq and
 * nothing pending, which is harmless. */
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

/* Say that it is over. Release: not before the swap. */
static inline void sl_canal_counter_complete(const struct sl_canal_counter *c,
                                             uint32_t held)
{
    __atomic_store_n(&c->record->state.lo,
                     sl_canal_record_make(held, SL_CANAL_PENDING_NONE, 0),
                     __ATOMIC_RELEASE);
}

/* A first look at the word. Two loads may be torn; that does no harm if the tag is
 * our own, since then nobody is to be marked and the swap compares all sixteen
 * bytes. It spares the common case a 16-byte load right behind a 16-byte swap, which
 * processors cannot forward. */
static inline struct sl_canal_pair sl_canal_counter_read(
    const struct sl_canal_counter *c)
{
    struct sl_canal_pair seen = {.lo = __atomic_load_n(&c->word->lo, __ATOMIC_RELAXED),
                                 .hi = __atomic_load_n(&c->word->hi, __ATOMIC_RELAXED)};
    if (sl_canal_word_tag(seen) != c->tag) seen = sl_canal_word_load(c->word);
    return seen;
}

/* After `tries` lost swaps: let the others have the line for a while, then look. */
struct sl_canal_pair sl_canal_counter_read_again(const struct sl_canal_counter *c,
                                                 struct sl_canal_pair seen,
                                                 unsigned tries);

/* Whether the word's tag can be overwritten: false in a damaged segment. */
static inline bool sl_canal_counter_is_sound(const struct sl_canal_counter *c)
{
    return sl_canal_word_tag(sl_canal_word_load(c->word)) <= c->record_count;
}

/* Take units if they fit into cap: the number of units now held by all, or 0 for
 * full and for a word that is not sound. units is 1..SLUICE_UNITS_MAX and at most cap. Linearizes at the swap, and
 * "full" at the load of the word. Lock-free. */
static inline uint32_t sl_canal_counter_acquire(const struct sl_canal_counter *c,
                                                uint32_t cap, uint32_t units)
{
    uint32_t held = sl_canal_counter_held(c);
    uint64_t seq = sl_canal_counter_announce(c, held, SL_CANAL_PENDING_ACQUIRE, units);
    struct sl_canal_pair seen = sl_canal_counter_read(c);
    for (unsigned tries = 0;; tries++) {
        uint32_t count = sl_canal_word_count(seen);
        /* Compare before subtracting: the room may have shrunk below the count. */
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

/* Give units back; held, by this record, is at least that many. */
static inline void sl_canal_counter_release(const struct sl_canal_counter *c,
                                            uint32_t units)
{
    uint32_t held = sl_canal_counter_held(c);
    uint64_t seq = sl_canal_counter_announce(c, held, SL_CANAL_PENDING_RELEASE, units);
    struct sl_canal_pair seen = sl_canal_counter_read(c);
    for (unsigned tries = 0;; tries++) {
        /* A tag that names no record is overwritten as well: giving back cannot fail. */
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

/* Give back what a record holds: of a slot that is dead, or of the caller's own. Any
 * number of reapers may do this at once, be killed or stopped anywhere. Does nothing
 * any more as soon as the slot's generation is not `generation`: the slot has been
 * freed, and the record may be somebody else's. Returns the units freed by this call. */
uint32_t sl_canal_counter_reap(const struct sl_canal_segment *seg, uint32_t record,
                               const struct sl_canal_shm_slot *slot,
                               uint64_t generation);

/* What a record effectively holds (N1). Exact only when nothing moves. For audits. */
uint32_t sl_canal_counter_effective(const struct sl_canal_segment *seg,
                                    uint32_t record);

#endif /* SL_CANAL_COUNTER_H */
