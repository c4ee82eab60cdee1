#include "buckets.h"

#include <assert.h>
#include <limits.h>

/* Whole operations are the steps in a loop. Inlined, the compiler keeps the operation
 * in registers, and the loop is about as fast as the algorithm written straight down;
 * as a rival in the bench it should not pay for being an oracle. */
#define INLINE static inline __attribute__((always_inline))

/* ---- the table: what ETS offers ---- */

/* Orders: an ETS operation takes a lock around the entry, so each is acquire and
 * release at once; acq_rel pairs with itself on the same entry. Nothing in the
 * algorithm relies on an order between two entries. */

/* ets:update_counter(Table, Key, {Pos, increment}). False: badarg, no such entry.
 * Entries are never deleted, so one that was seen may be added to blindly. */
INLINE bool ets_add(_Atomic int32_t *entry, int32_t increment, int32_t *after)
{
    int32_t seen = atomic_load_explicit(entry, memory_order_acquire);
    if (seen == BUCKETS_ABSENT) return false;
    if (increment != 0) {
        seen = atomic_fetch_add_explicit(entry, increment, memory_order_acq_rel);
    }
    *after = seen + increment;
    return true;
}

/* ets:update_counter(Table, Key, {Pos, increment, threshold, set}): a sum beyond the
 * threshold (above it if increment is positive, else below it) becomes `set`. */
INLINE bool ets_add_bounded(_Atomic int32_t *entry, int32_t increment,
                            int32_t threshold, int32_t set, int32_t *after)
{
    int32_t seen = atomic_load_explicit(entry, memory_order_acquire);
    int32_t sum;
    do {
        if (seen == BUCKETS_ABSENT) return false;
        sum = seen + increment;
        if (increment >= 0 ? sum > threshold : sum < threshold) sum = set;
        /* Writing back what stands there already changes nothing for anybody; left out
         * in the algorithm's favour, who walks past many full buckets. */
        if (sum == seen) break;
    } while (!atomic_compare_exchange_weak_explicit(
        entry, &seen, sum, memory_order_acq_rel, memory_order_acquire));
    *after = sum;
    return true;
}

/* ets:insert_new(Table, {Key, value}). False: somebody else was first. */
static bool ets_insert_new(_Atomic int32_t *entry, int32_t value)
{
    int32_t absent = BUCKETS_ABSENT;
    return atomic_compare_exchange_strong_explicit(
        entry, &absent, value, memory_order_acq_rel, memory_order_acquire);
}

/* ets:insert(Table, {Key, value}). */
static void ets_insert(_Atomic int32_t *entry, int32_t value)
{
    atomic_store_explicit(entry, value, memory_order_release);
}

/* ---- the places an operation can stand at ---- */

/*     acquire:  WALK --acquired--> TELL_LOCK -> END
 *                | ^ full: next bucket            ^
 *         absent | | somebody else was first      |
 *                v |                              |
 *               CREATE --> HIGHEST --> TELL_LOCK -+
 *
 *     release:  LOOK --> DECREMENT --0..per-1---------> TELL_UNLOCK -> END
 *                          | ^  | per                       ^
 *                 below 0  | |  +-> AGAIN (tries) --per-1---+
 *                          v |        | none left           |
 *                        PUT_BACK     +-> TWICE ------------+
 *
 *     down:     UNMONITOR --> LOOK, and on as a release that tells nobody */
enum place {
    WALK = 1,
    CREATE,
    HIGHEST,
    TELL_LOCK,
    LOOK,
    DECREMENT,
    PUT_BACK,
    AGAIN,
    TWICE,
    TELL_UNLOCK,
    UNMONITOR,
    END,
};

INLINE bool end(struct buckets_op *op, enum buckets_word word)
{
    op->place = END;
    op->answer.word = word;
    return true;
}

/* Go on with telling the manager, if the caller has one. The answer is fixed. */
INLINE bool tell(struct buckets_op *op, enum place how, enum buckets_word word)
{
    op->answer.word = word;
    op->place = op->process == BUCKETS_UNWATCHED ? END : how;
    return op->place == END;
}

/* ---- acquire ---- */

/* "A value smaller than or equal to the limit: acquired." The value is the place in
 * this bucket; those before it are full. */
INLINE bool acquired(struct buckets_op *op, int32_t value)
{
    op->took = 1;
    op->answer.nth = value + (int32_t)((op->at - 1) * op->per);
    return tell(op, TELL_LOCK, BUCKETS_ACQUIRED);
}

INLINE bool step_walk(struct buckets *t, struct buckets_op *op)
{
    int32_t cap = (int32_t)op->per + 1;
    int32_t value;
    if (!ets_add_bounded(&t->bucket[op->at - 1], 1, cap, cap, &value)) {
        op->place = CREATE;
        return false;
    }
    if (value < cap) return acquired(op, value);
    /* "The lock is full. Increment the bucket number by one and try again. If all
     * buckets are exhausted, return a value indicating the lock couldn't be
     * acquired." */
    if (op->at == op->buckets) return end(op, BUCKETS_FULL);
    op->at++;
    return false;
}

INLINE bool step_create(struct buckets *t, struct buckets_op *op)
{
    if (!ets_insert_new(&t->bucket[op->at - 1], 1)) {
        op->place = WALK; /* "Try again from scratch on that bucket." */
        return false;
    }
    op->took = 1;
    op->place = HIGHEST;
    return false;
}

/* "A value is added of the form {Key, highest}, N}, tracking the total number of
 * buckets made active": inserted with the first bucket, counted up with the others. */
INLINE bool step_highest(struct buckets *t, struct buckets_op *op)
{
    if (op->at == 1) {
        ets_insert(&t->highest, 1);
    } else {
        int32_t number;
        /* The process that made bucket 1 may not have got this far yet. */
        if (!ets_add(&t->highest, 1, &number)) return end(op, BUCKETS_BADARG);
    }
    return acquired(op, 1);
}

/* ---- release ---- */

INLINE bool released(struct buckets_op *op)
{
    return tell(op, TELL_UNLOCK, BUCKETS_OK);
}

INLINE bool step_look(struct buckets *t, struct buckets_op *op)
{
    int32_t number;
    if (!ets_add(&t->highest, 0, &number)) return end(op, BUCKETS_BADARG);
    op->at = (uint32_t)number;
    op->place = DECREMENT;
    return false;
}

INLINE bool step_decrement(struct buckets *t, struct buckets_op *op)
{
    int32_t per = (int32_t)op->per;
    int32_t value;
    if (!ets_add(&t->bucket[op->at - 1], -1, &value)) return end(op, BUCKETS_BADARG);
    if (value < 0) {
        op->place = PUT_BACK;
        return false;
    }
    op->gave = 1;
    if (value < per) return released(op);
    if (value == per) {
        op->tries = t->decr_tries;
        op->place = op->tries > 0 ? AGAIN : TWICE;
        return false;
    }
    return end(op, BUCKETS_NO_CASE);
}

INLINE bool step_put_back(struct buckets *t, struct buckets_op *op)
{
    int32_t value;
    if (!ets_add(&t->bucket[op->at - 1], 1, &value)) return end(op, BUCKETS_BADARG);
    if (op->at == 1) {
        /* The manager is told all the same: to it, the caller has released. */
        return tell(op, TELL_UNLOCK, BUCKETS_OUT_OF_BUCKETS);
    }
    op->at--;
    op->place = DECREMENT;
    return false;
}

/* The counter stood at per + 1, "full", so the first decrement freed nothing. */
INLINE bool step_again(struct buckets *t, struct buckets_op *op)
{
    int32_t per = (int32_t)op->per;
    int32_t value;
    if (!ets_add_bounded(&t->bucket[op->at - 1], -1, 0, 0, &value)) {
        return end(op, BUCKETS_BADARG);
    }
    if (value < per) return released(op);
    if (value > per) return end(op, BUCKETS_NO_CASE);
    if (--op->tries == 0) op->place = TWICE;
    return false;
}

INLINE bool step_twice(struct buckets *t, struct buckets_op *op)
{
    int32_t value;
    if (!ets_add_bounded(&t->bucket[op->at - 1], -2, 0, 0, &value)) {
        return end(op, BUCKETS_BADARG);
    }
    return released(op);
}

/* ---- the manager ---- */

/* Take one monitor away, if there is one. Relaxed: the manager is one process that
 * handles one message at a time, and the count guards no other memory. */
static bool unmonitor(struct buckets *t, uint32_t process)
{
    uint32_t seen = atomic_load_explicit(&t->monitors[process], memory_order_relaxed);
    do {
        if (seen == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&t->monitors[process], &seen,
                                                    seen - 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

static bool step_tell_lock(struct buckets *t, struct buckets_op *op)
{
    atomic_fetch_add_explicit(&t->monitors[op->process], 1, memory_order_relaxed);
    return end(op, op->answer.word);
}

static bool step_tell_unlock(struct buckets *t, struct buckets_op *op)
{
    /* An unlock of what was never locked is logged by the manager, nothing more. */
    (void)unmonitor(t, op->process);
    return end(op, op->answer.word);
}

static bool step_unmonitor(struct buckets *t, struct buckets_op *op)
{
    if (!unmonitor(t, op->process)) return end(op, BUCKETS_OK);
    op->process = BUCKETS_UNWATCHED; /* From here on nobody is to be told. */
    op->place = LOOK;
    return false;
}

/* ---- one operation, step by step ---- */

void buckets_init(struct buckets *t, uint32_t start_per)
{
    assert(start_per >= 1 && start_per < INT32_MAX);
    atomic_init(&t->highest, BUCKETS_ABSENT);
    for (uint32_t i = 0; i < BUCKETS_MAX; i++)
        atomic_init(&t->bucket[i], BUCKETS_ABSENT);
    for (uint32_t i = 0; i < BUCKETS_PROCESSES_MAX; i++)
        atomic_init(&t->monitors[i], 0);
    t->start_per = start_per;
    t->decr_tries = BUCKETS_MAX_DECR_TRIES;
}

void buckets_begin_acquire(struct buckets_op *op, uint32_t process, uint32_t per,
                           uint32_t buckets)
{
    assert(per >= 1 && per < INT32_MAX && buckets >= 1 && buckets <= BUCKETS_MAX);
    *op = (struct buckets_op){
        .place = WALK, .process = process, .per = per, .buckets = buckets, .at = 1};
}

void buckets_begin_release(struct buckets_op *op, uint32_t process, uint32_t per)
{
    assert(per >= 1 && per < INT32_MAX);
    *op = (struct buckets_op){.place = LOOK, .process = process, .per = per};
}

void buckets_begin_down(struct buckets_op *op, const struct buckets *t,
                        uint32_t process)
{
    assert(process < BUCKETS_PROCESSES_MAX);
    *op = (struct buckets_op){
        .place = UNMONITOR, .process = process, .per = t->start_per};
}

INLINE bool step(struct buckets *t, struct buckets_op *op)
{
    switch ((enum place)op->place) {
        case WALK: return step_walk(t, op);
        case CREATE: return step_create(t, op);
        case HIGHEST: return step_highest(t, op);
        case TELL_LOCK: return step_tell_lock(t, op);
        case LOOK: return step_look(t, op);
        case DECREMENT: return step_decrement(t, op);
        case PUT_BACK: return step_put_back(t, op);
        case AGAIN: return step_again(t, op);
        case TWICE: return step_twice(t, op);
        case TELL_UNLOCK: return step_tell_unlock(t, op);
        case UNMONITOR: return step_unmonitor(t, op);
        case END: return true;
    }
    assert(0 && "a place of the list above");
    return true;
}

bool buckets_step(struct buckets *t, struct buckets_op *op)
{
    return step(t, op);
}

/* ---- one operation, whole ---- */

struct buckets_answer buckets_acquire(struct buckets *t, uint32_t per, uint32_t buckets)
{
    struct buckets_op op;
    buckets_begin_acquire(&op, BUCKETS_UNWATCHED, per, buckets);
    while (!step(t, &op)) continue;
    return op.answer;
}

struct buckets_answer buckets_release(struct buckets *t, uint32_t per)
{
    struct buckets_op op;
    buckets_begin_release(&op, BUCKETS_UNWATCHED, per);
    while (!step(t, &op)) continue;
    return op.answer;
}

struct buckets_answer buckets_down(struct buckets *t)
{
    return buckets_release(t, t->start_per);
}

/* ---- ask ---- */

int64_t buckets_count(const struct buckets *t, uint32_t per)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < BUCKETS_MAX; i++) {
        int32_t value = atomic_load_explicit(&t->bucket[i], memory_order_acquire);
        if (value == BUCKETS_ABSENT) break; /* Made in order, never deleted. */
        count += value > (int32_t)per ? (int32_t)per : value;
    }
    return count;
}

const char *buckets_word_name(enum buckets_word word)
{
    switch (word) {
        case BUCKETS_ACQUIRED: return "acquired";
        case BUCKETS_FULL: return "full";
        case BUCKETS_OK: return "ok";
        case BUCKETS_OUT_OF_BUCKETS: return "out_of_buckets";
        case BUCKETS_BADARG: return "badarg";
        case BUCKETS_NO_CASE: return "no case";
    }
    return "?";
}
