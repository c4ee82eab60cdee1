/* sleep.h - puts threads to sleep until units are released, and wakes them.
 *
 * A key's wake word contains a sequence number, and one bit that is set while a thread
 * sleeps. A sleeper reads the word, sets the bit, tries to acquire once more, and
 * sleeps until the word changes. A thread that releases units increments the number,
 * clears the bit and wakes all sleepers. A woken thread that finds the lock full starts
 * again. The number changes with every wake. So if units are released between a
 * thread's last try and its sleep, the thread does not fall asleep.
 *
 * A kill can still lose a wake: a killed holder wakes no waiter, and a releaser can be
 * killed between its swap and its wake. So no sleep lasts longer than
 * SL_CANAL_SLEEP_MS_MAX. After that time the sleeper itself searches for dead holders.
 * Sleepers are not served in order. */
#ifndef SL_CANAL_SLEEP_H
#define SL_CANAL_SLEEP_H

#include "canal/layout.h"

#define SL_CANAL_SLEEP_MS_MAX 100

/* Wake all sleepers of a key, if there are any. Call this after every release. */
static inline void sl_canal_sleep_wake(struct sl_canal_shm_key *key);

/* Announce a sleep. Returns the argument for sl_canal_sleep(). Try to acquire
 * between the two calls. */
uint32_t sl_canal_sleep_prepare(struct sl_canal_shm_key *key);

/* Sleep until another thread wakes this one, but not longer than SL_CANAL_SLEEP_MS_MAX
 * and not past deadline_ns. */
void sl_canal_sleep(struct sl_canal_shm_key *key, uint32_t prepared,
                    int64_t deadline_ns);

/* Return the time of CLOCK_MONOTONIC. */
int64_t sl_canal_sleep_now_ns(void);

/* Return now + wait_ms, or INT64_MAX on overflow and for SLUICE_FOREVER. */
int64_t sl_canal_sleep_deadline_ns(int64_t wait_ms);

void sl_canal_sleep_wake_all(struct sl_canal_shm_key *key);

static inline void sl_canal_sleep_wake(struct sl_canal_shm_key *key)
{
    /* Order the swap that released the units before this load. Pairs with
     * sl_canal_sleep_prepare(), after which the sleeper reads the count. */
    sl_canal_word_fence();
    if (__builtin_expect(__atomic_load_n(&key->wake, __ATOMIC_RELAXED) & 1u, 0))
        sl_canal_sleep_wake_all(key);
}

#endif /* SL_CANAL_SLEEP_H */
