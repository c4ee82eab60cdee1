#include "canal/sleep.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000

int64_t sl_canal_sleep_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 * NS_PER_MS + t.tv_nsec;
}

int64_t sl_canal_sleep_deadline_ns(int64_t wait_ms)
{
    assert(wait_ms >= SLUICE_FOREVER);
    if (wait_ms == SLUICE_FOREVER) return INT64_MAX;
    int64_t now = sl_canal_sleep_now_ns();
    if (wait_ms > (INT64_MAX - now) / NS_PER_MS) return INT64_MAX;
    return now + wait_ms * NS_PER_MS;
}

void sl_canal_sleep_wake_all(struct sl_canal_shm_key *key)
{
    /* Increment the number and clear the bit in one step. If the word has changed
     * meanwhile, another thread has done this, or a new sleeper has set the bit: check
     * again. */
    uint32_t seen = __atomic_load_n(&key->wake, __ATOMIC_RELAXED);
    do {
        if ((seen & 1u) == 0) return;
    } while (!__atomic_compare_exchange_n(&key->wake, &seen, (seen | 1u) + 1u, true,
                                          __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    syscall(SYS_futex, &key->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t sl_canal_sleep_prepare(struct sl_canal_shm_key *key)
{
    /* Sequentially consistent: pairs with sl_canal_sleep_wake(). */
    uint32_t seen = __atomic_fetch_or(&key->wake, 1u, __ATOMIC_SEQ_CST);
    sl_canal_word_fence();
    return seen | 1u;
}

void sl_canal_sleep(struct sl_canal_shm_key *key, uint32_t prepared,
                    int64_t deadline_ns)
{
    assert((prepared & 1u) == 1); /* sl_canal_sleep_prepare() sets this bit. */
    int64_t ns = deadline_ns - sl_canal_sleep_now_ns();
    if (ns <= 0) return;
    if (ns > (int64_t)SL_CANAL_SLEEP_MS_MAX * NS_PER_MS)
        ns = (int64_t)SL_CANAL_SLEEP_MS_MAX * NS_PER_MS;
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    /* Do not use FUTEX_PRIVATE, because the word is in shared memory. The result does
     * not matter: the caller tries to acquire again in any case. */
    syscall(SYS_futex, &key->wake, FUTEX_WAIT, prepared, &t, NULL, 0);
}
