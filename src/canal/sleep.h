/* sleep.h - waiting for units, and being woken.
 *
 * A key's wake word is a sequence number and one bit that says that a thread sleeps. A
 * sleeper reads the word, sets the bit, tries to acquire once more, and sleeps while the
 * word does not change. A thread that releases units raises the number, clears the bit and
 * wakes all sleepers; those that find the lock full start again. The number changes with
 * every wake, so a sleeper that is overtaken between its last try and its sleep does not
 * fall asleep.
 *
 * A kill can still lose a wake: that of a releaser between its swap and its wake, or that of
 * a holder, which wakes no waiter. So no sleep lasts longer than SL_CANAL_SLEEP_MS_MAX;
 * then the sleeper searches for dead holders itself. Sleepers are not served in order. */
#ifndef SL_CANAL_SLEEP_H
#define SL_CANAL_SLEEP_H

#include "canal/layout.h"

#define SL_CANAL_SLEEP_MS_MAX 100

/* Wake all sleepers of a key, if there are any. Call it after every release. */
static inline void sl_canal_sleep_wake(struct sl_canal_shm_key *key);

/* Announce a sleep. Returns the argument for sl_canal_sleep(). Try to acquire
 * between the two calls. */
uint32_t sl_canal_sleep_prepare(struct sl_canal_shm_key *key);

/* Sleep until woken, but no longer than SL_CANAL_SLEEP_MS_MAX or until deadline_ns. */
void sl_canal_sleep(struct sl_canal_shm_key *key, uint32_t prepared,
                    int64_t deadline_ns);

/* CLOCK_MONOTONIC. */
int64_t sl_canal_sleep_now_ns(void);

/* now + wait_ms, saturated; INT64_MAX for SLUICE_FOREVER. */
int64_t sl_canal_sleep_deadline_ns(int64_t wait_ms);

void sl_canal_sleep_wake_all(struct sl_canal_shm_key *key);

static inline void sl_canal_sleep_wake(struct sl_canal_shm_key *key)
{
    /* The swap that released units comes first, then this load. Pairs with
     * sl_canal_sleep_prepare(), after which the sleeper reads the count. */
    sl_canal_word_fence();
    if (__builtin_expect(__atomic_load_n(&key->wake, __ATOMIC_RELAXED) & 1u, 0))
        sl_canal_sleep_wake_all(key);
}

#endif /* SL_CANAL_SLEEP_H */
