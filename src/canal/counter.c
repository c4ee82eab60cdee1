#include "canal/counter.h"

#include <assert.h>

/* How many times to read a record that changes while we read it. */
#define EFFECTIVE_TRIES 16

struct sl_canal_pair sl_canal_counter_read_again(const struct sl_canal_counter *c,
                                                 struct sl_canal_pair seen,
                                                 unsigned tries)
{
    /* The first failed swap has just read the word, so use that value. */
    if (tries == 0) return seen;
    unsigned pauses = 8u << (tries > 5 ? 5 : tries);
    while (pauses-- > 0) sl_canal_word_pause();
    return sl_canal_word_load(c->word);
}

/* Return whether the operation (record, seq) of a dead thread took place. Read the word
 * first and the mark second: if another thread overwrote the tag before we read the
 * word, that thread had already raised the mark. In the other order, a thread could
 * raise the mark between the two reads. */
static bool took_place(struct sl_canal_word *word, const struct sl_canal_shm_record *r,
                       uint32_t tag, uint64_t seq)
{
    struct sl_canal_pair w = sl_canal_word_load(word);
    if (sl_canal_word_tag(w) == tag && w.hi == seq) return true;
    return __atomic_load_n(&r->mark, __ATOMIC_ACQUIRE) >= seq;
}

/* Return the number of units that a record holds, counting its pending operation if it
 * took place. */
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

/* Subtract the units of a record in state s = DRAIN from the word. However many threads
 * call this, it happens at most once. Returns the number of units if this call
 * subtracted them, otherwise 0. */
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
    /* Do not remove this check. If the state is still s after we read the word, no
     * thread had drained the record when we read the word, and a later drain changes
     * the word so that our swap fails. Without the check, a reaper that is delayed here
     * could drain the record a second time: a new owner of the record overwrites its
     * own tag without raising the mark. */
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
        /* Read the generation after the state. If the slot still has this generation,
         * the dead thread wrote s, and every later state differs from s. So a swap of s
         * cannot change a record that has a new owner. Pairs with the release in
         * free_slot() (slot.c). */
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
        /* Acquire: read the key after the state. The key of a record changes only while
         * the record is idle. So if a swap of s succeeds, or a second read returns s,
         * this is the right key. */
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
        /* An owner overwrites its own tag without raising its mark. So the result is
         * valid only if the operation was pending during the whole calculation. */
        struct sl_canal_pair after = sl_canal_word_load(&r->state);
        if (sl_canal_pair_equal(after, s)) break;
        s = after;
    }
    return units;
}
