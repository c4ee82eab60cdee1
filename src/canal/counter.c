#include "canal/counter.h"

#include <assert.h>

/* How often to read a record again that changes while it is being read. */
#define EFFECTIVE_TRIES 16

struct sl_canal_pair sl_canal_counter_read_again(const struct sl_canal_counter *c,
                                                 struct sl_canal_pair seen,
                                                 unsigned tries)
{
    /* The first failed swap has just read the word, so use what it read. */
    if (tries == 0) return seen;
    unsigned pauses = 8u << (tries > 5 ? 5 : tries);
    while (pauses-- > 0) sl_canal_word_pause();
    return sl_canal_word_load(c->word);
}

/* Whether the operation (record, seq) of a dead thread took place. Read the word
 * first and the mark second: if the tag was overwritten before we read the word, the
 * mark has been raised by now. In the other order the mark could be raised
 * between the two reads. */
static bool took_place(struct sl_canal_word *word, const struct sl_canal_shm_record *r,
                       uint32_t tag, uint64_t seq)
{
    struct sl_canal_pair w = sl_canal_word_load(word);
    if (sl_canal_word_tag(w) == tag && w.hi == seq) return true;
    return __atomic_load_n(&r->mark, __ATOMIC_ACQUIRE) >= seq;
}

/* The units that a record holds once its pending operation is decided. */
static uint32_t settled(struct sl_canal_word *word, const struct sl_canal_shm_record *r,
                        uint32_t tag, struct sl_canal_pair s)
{
    uint32_t held = sl_canal_record_held(s.lo);
    if (!took_place(word, r, tag, s.hi)) return held;
    switch (sl_canal_record_pending(s.lo)) {
        case SL_CANAL_PENDING_NONE: break;
        case SL_CANAL_PENDING_ACQUIRE: return held + sl_canal_record_units(s.lo);
        case SL_CANAL_PENDING_RELEASE: return held - sl_canal_record_units(s.lo);
        case SL_CANAL_PENDING_DRAIN: return 0;
    }
    return held;
}

/* Take the units of a record in state s = DRAIN off the word. All calls together do
 * this at most once. Returns the units if this call did it. */
static uint32_t drain(const struct sl_canal_segment *seg, struct sl_canal_word *word,
                      uint32_t record, struct sl_canal_pair s)
{
    struct sl_canal_shm_record *r = &seg->records[record];
    uint32_t tag = record + 1, held = sl_canal_record_held(s.lo);
    struct sl_canal_pair w = sl_canal_word_load(word);
    bool drained = (sl_canal_word_tag(w) == tag && w.hi == s.hi) ||
                   __atomic_load_n(&r->mark, __ATOMIC_ACQUIRE) >= s.hi;
    if (drained) {
        sl_canal_word_swap(
            &r->state, &s,
            (struct sl_canal_pair){sl_canal_record_make(0, SL_CANAL_PENDING_NONE, 0),
                                   s.hi});
        return 0;
    }
    (void)sl_canal_counter_mark_writer(seg->records, seg->record_count, w, tag);
    /* Do not remove this check. If the state is still s after the word was read,
     * nobody had drained the record when the word was read, and a later drain
     * changes the word so that our swap fails. Without the check, a reaper that
     * sleeps here drains a second time after a new owner of the record has
     * overwritten the tag, which it does without raising a mark. */
    if (!sl_canal_pair_equal(sl_canal_word_load(&r->state), s)) return 0;
    return sl_canal_word_swap(
               word, &w, sl_canal_word_make(sl_canal_word_count(w) - held, tag, s.hi))
               ? held
               : 0;
}

uint32_t sl_canal_counter_reap(const struct sl_canal_segment *seg, uint32_t record,
                               const struct sl_canal_shm_slot *slot,
                               uint64_t generation)
{
    assert(record < seg->record_count);
    struct sl_canal_shm_record *r = &seg->records[record];
    uint32_t freed = 0;
    for (;;) {
        struct sl_canal_pair s = sl_canal_word_load(&r->state);
        /* After the state: if the slot still has this generation, the dead thread
         * wrote s, and every later state differs from it. So a swap of s cannot hit
         * a new owner. Pairs with the release in free_slot() (slot.c). */
        if (__atomic_load_n(&slot->generation, __ATOMIC_ACQUIRE) != generation)
            return freed;
        enum sl_canal_pending pend = sl_canal_record_pending(s.lo);
        uint32_t held = sl_canal_record_held(s.lo);
        if (pend == SL_CANAL_PENDING_NONE && held == 0) return freed;
        if (pend == SL_CANAL_PENDING_NONE) {
            struct sl_canal_pair next = {
                sl_canal_record_make(held, SL_CANAL_PENDING_DRAIN, 0), s.hi + 1};
            sl_canal_word_swap(&r->state, &s, next);
            continue;
        }
        /* Acquire, after the state: the key of a record changes only while the
         * record is idle. So if a swap of s succeeds, or s is seen again, this is
         * the right key. */
        uint32_t key = sl_canal_record_key(seg, record);
        if (key == SL_CANAL_NONE)
            return freed; /* The segment is damaged; do not make it worse. */
        struct sl_canal_word *word = &seg->keys[key].word;
        if (pend == SL_CANAL_PENDING_DRAIN) {
            freed += drain(seg, word, record, s);
        } else {
            uint32_t now = settled(word, r, record + 1, s);
            sl_canal_word_swap(
                &r->state, &s,
                (struct sl_canal_pair){
                    sl_canal_record_make(now, SL_CANAL_PENDING_NONE, 0), s.hi});
        }
    }
}

uint32_t sl_canal_counter_effective(const struct sl_canal_segment *seg, uint32_t record)
{
    assert(record < seg->record_count);
    struct sl_canal_shm_record *r = &seg->records[record];
    struct sl_canal_pair s = sl_canal_word_load(&r->state);
    uint32_t units = sl_canal_record_held(s.lo);
    for (int tries = 0; tries < EFFECTIVE_TRIES; tries++) {
        if (sl_canal_record_pending(s.lo) == SL_CANAL_PENDING_NONE)
            return sl_canal_record_held(s.lo);
        uint32_t key = sl_canal_record_key(seg, record);
        if (key == SL_CANAL_NONE) return sl_canal_record_held(s.lo);
        units = settled(&seg->keys[key].word, r, record + 1, s);
        /* An owner overwrites its own tag without raising its mark. So the decision
         * is valid only if the operation was pending all the time. */
        struct sl_canal_pair after = sl_canal_word_load(&r->state);
        if (sl_canal_pair_equal(after, s)) break;
        s = after;
    }
    return units;
}
