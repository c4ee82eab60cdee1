/* sleep.h - waiting for room, and being woken.
 *
 * A key's wake word is a sequence number and one bit: somebody sleeps. A sleeper reads
 * it, sets the bit, looks at the count once more, and sleeps while the word is what it
 * was. Whoever made room raises the number, clears the bit and wakes all; who then
 * does not fit begins again. Because the number changes with every wake, a sleeper
 * that was overtaken between its look and its sleep does not fall asleep.
 *
 * A kill can still lose a wake: of a releaser between its swap and its wake, or of a
 * holder, which wakes nobody. So no sleep lasts longer than SL_CANAL_SLEEP_MS_MAX; after it
 * the sleeper looks for dead holders itself. Not fair. */
#ifndef SL_CANAL_SLEEP_H
#define SL_CANAL_SLEEP_H

#include "canal/layout.h"

#define SL_CANAL_SLEEP_MS_MAX 100

/* Wake all who sleep for a key, if any. After every change that made room. */
static inline void sl_canal_sleep_wake(struct sl_canal_shm_key *key);

/* Announce a sleep: returns what sl_canal_sleep() is to be given. Look at the count between
 * the two calls. */
uint32_t sl_canal_sleep_prepare(struct sl_canal_shm_key *key);

/* Sleep until woken, but no longer than SL_CANAL_SLEEP_MS_MAX or until deadline_ns. */
void sl_canal_sleep(struct sl_canal_shm_key *key, uint32_t prepared,
                    int64_t deadline_ns);

/* CLOCK_MONOTONIC. */
int64_t sl_canal_sleep_now_ns(void);

/* now + wait_ms with a ceiling; INT64_MAX for SLUICE_FOREVER. */
int64_t sl_canal_sleep_deadline_ns(int64_t wait_ms);

void sl_canal_sleep_wake_all(struct sl_canal_shm_key *key);

static inline void sl_canal_sleep_wake(struct sl_canal_shm_key *key)
{
    /* The swap that made room comes first, then this look: pairs with
     * sl_canal_sleep_prepare(), which sets the bit and after which the count is read. */
    sl_canal_word_fence();
    if (__builtin_expect(__atomic_load_n(&key->wake, __ATOMIC_RELAXED) & 1u, 0))
        sl_canal_sleep_wake_all(key);
}

#endif /* SL_CANAL_SLEEP_H */
