/* buckets.h - canal lock's own algorithm, as its two documents describe it.
 *
 * An oracle: what canal lock answers, and also where it goes wrong. Nothing here is
 * improved. A lock is a row of counters in a table that many processes share, one
 * counter per bucket, and an entry `highest` that says how many there are:
 *
 *     highest  bucket 1  bucket 2  bucket 3        per = 50
 *        3        51        50        7            50 + 50 + 7 hold a unit
 *                 ^
 *                 the ceiling per + 1: full, and somebody was refused since
 *
 * Acquire walks up from bucket 1, release walks down from `highest`. The table is ETS:
 * each access to one entry is atomic, nothing else is. So an operation here is a small
 * machine, and buckets_step() makes exactly one access. That gives three uses:
 *
 *   in sequence     buckets_acquire(), buckets_release(), buckets_down()
 *   step by step    buckets_begin_*() and buckets_step(); the caller may let
 *                   others step in between (interleave.c tries all ways)
 *   concurrently    the same functions by threads or processes: every access is an
 *                   atomic instruction, and struct buckets is flat, so it may lie in
 *                   shared memory (a rival in the bench)
 *
 * The documents are the README of canal lock ("Algorithm (in practice)") and the
 * earlier description it grew from. Where both are silent, a comment says what the
 * Erlang program does. */
#ifndef TESTS_ORACLE_BUCKETS_H
#define TESTS_ORACLE_BUCKETS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* "This step is done in a loop up to ?MAX_DECR_TRIES, after which, to avoid being
 * livelocked, the lock is decremented by 2." The README's prose says "more than say,
 * 10 times"; the program's constant is this. */
#define BUCKETS_MAX_DECR_TRIES 15u

#define BUCKETS_MAX 128u          /* Counters of one key here. ETS has no such limit. */
#define BUCKETS_PROCESSES_MAX 16u /* Callers that the manager can watch here. */
#define BUCKETS_UNWATCHED UINT32_MAX

/* An entry of the table that does not exist. No counter gets near it. */
#define BUCKETS_ABSENT INT32_MIN

/* One key of the table, with what the lock manager knows about it. */
struct buckets {
    _Atomic int32_t highest;
    _Atomic int32_t bucket[BUCKETS_MAX]; /* bucket[0] is bucket 1. */
    /* The manager's private table: how many monitors each process has on this key. */
    _Atomic uint32_t monitors[BUCKETS_PROCESSES_MAX];
    /* The parameter of start_link: `per` of releases after a death. */
    uint32_t start_per;
    uint32_t decr_tries;
};

enum buckets_word {
    BUCKETS_ACQUIRED = 1, /* {acquired, nth} */
    BUCKETS_FULL,         /* full */
    BUCKETS_OK,           /* ok: released */
    /* Nothing was left to release: release/3 logs a warning, out_of_buckets, and returns ok. */
    BUCKETS_OUT_OF_BUCKETS,
    /* An entry was missing: the caller crashes, and what it had changed stays. */
    BUCKETS_BADARG,
    /* A counter had a value that none of the documents' cases names. The process that released
     * crashes; if that is the manager, the table goes with it. */
    BUCKETS_NO_CASE,
};

struct buckets_answer {
    enum buckets_word word;
    int32_t nth; /* ACQUIRED only. Below 1 when a release had gone below 0 just then. */
};

/* An operation on its way. Plain data: may be copied between two steps. */
struct buckets_op {
    uint32_t place;   /* What buckets_step() does next; see buckets.c. */
    uint32_t process; /* The caller: an index of monitors, or BUCKETS_UNWATCHED. */
    uint32_t per;
    uint32_t buckets;
    uint32_t at;    /* The bucket it stands at, from 1. */
    uint32_t tries; /* Left in the loop of second decrements. */
    uint32_t took;  /* 1: it has counted itself in (acquire). */
    uint32_t gave;  /* 1: it has taken a unit out of a bucket (release). */
    struct buckets_answer answer; /* When buckets_step() has returned true. */
};

/* --- Life ----------------------------------------------------------------- */

/* An empty table for one key, and canal_lock:start_link(start_per). For other values of
 * MAX_DECR_TRIES set decr_tries afterwards. */
void buckets_init(struct buckets *t, uint32_t start_per);

/* --- One operation, whole ------------------------------------------------- */

/* canal_lock:acquire(Key, per, buckets): ACQUIRED, FULL, BADARG.
 * per and buckets are at least 1, buckets at most BUCKETS_MAX. */
struct buckets_answer buckets_acquire(struct buckets *t, uint32_t per,
                                      uint32_t buckets);

/* canal_lock:release(Key, per, _): OK, OUT_OF_BUCKETS, BADARG, NO_CASE. The number of
 * buckets that callers of canal lock pass along is not looked at, only logged. */
struct buckets_answer buckets_release(struct buckets *t, uint32_t per);

/* What the manager does for one monitor of a process that died: a release with the
 * `per` that the manager was started with. */
struct buckets_answer buckets_down(struct buckets *t);

/* --- One operation, step by step ------------------------------------------ */

/* Begin. Nothing is touched yet. The process is told to the manager in a step of its
 * own after an acquire or a release, unless it is BUCKETS_UNWATCHED. */
void buckets_begin_acquire(struct buckets_op *op, uint32_t process, uint32_t per,
                           uint32_t buckets);
void buckets_begin_release(struct buckets_op *op, uint32_t process, uint32_t per);

/* Begin the manager's release for one monitor of a dead process: its first step takes
 * the monitor away, and ends in OK if there was none (left). */
void buckets_begin_down(struct buckets_op *op, const struct buckets *t,
                        uint32_t process);

/* Make one access to the table (or tell the manager). True: that was the last, and
 * op->answer is there. */
bool buckets_step(struct buckets *t, struct buckets_op *op);

/* --- Ask ------------------------------------------------------------------ */

/* How many units the counters stand for, if every caller declares this `per`. */
int64_t buckets_count(const struct buckets *t, uint32_t per);

/* "acquired", "full", ... Never NULL. */
const char *buckets_word_name(enum buckets_word word);

#endif /* TESTS_ORACLE_BUCKETS_H */
