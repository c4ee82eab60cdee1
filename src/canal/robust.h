/* robust.h - locks in shared memory that the kernel marks when their holder dies.
 *
 * The lock word is that of a robust mutex. It contains the holder's thread id,
 * FUTEX_WAITERS and FUTEX_OWNER_DIED. The kernel sets FUTEX_OWNER_DIED when the holder
 * dies, if the thread's robust list contains the word. The word has the same offset and
 * meaning as in glibc, so processes that call pthread_mutex_lock() on the mutex can
 * share a segment with us.
 *
 * After pthread_mutex_init() we call no glibc function on the mutex. glibc keeps the
 * pointers of the robust list in the mutex, which is in shared memory, and writes
 * through them. So a user who can write to the segment could make any process that
 * unlocks a mutex write to any address. glibc also trusts the mutex type that it finds
 * there.
 *
 * Here each thread keeps the order of the list in private memory. It writes the
 * pointers in shared memory for the kernel, and never reads them back:
 *
 *     head -> .. -> guard -> word n -> .. -> word 1 -> guard -> .. -> head
 *             |                                                 |
 *             the program's own mutexes, which glibc adds and removes
 *
 * The two guards are private memory. When glibc adds or removes a mutex, it changes
 * only the neighbours of that mutex in the list. A mutex of the program is never a
 * neighbour of one of our words.
 *
 * One risk remains: the kernel reads the pointers when the thread dies. A user who
 * changes them before that can hide the death from other threads. Such a user can also
 * make the kernel mark a different word in the memory of the dying process, if that
 * word contains the thread's id. */
#ifndef SL_CANAL_ROBUST_H
#define SL_CANAL_ROBUST_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* Return whether the calling thread has a robust list in the expected format. */
bool sl_canal_robust_is_supported(void);

/* Lock the mutex if it is free or its holder is dead. Returns 0 or, if the last holder
 * died, EOWNERDEAD; in both cases the mutex is locked. On failure, returns EBUSY,
 * ENOTSUP (the thread has no robust list) or ENOMEM. */
int sl_canal_robust_try(pthread_mutex_t *m);

/* Lock the mutex, and wait for it until this time of CLOCK_MONOTONIC. Returns the same
 * values as sl_canal_robust_try(), except that it returns ETIMEDOUT instead of
 * EBUSY. */
int sl_canal_robust_lock(pthread_mutex_t *m, const struct timespec *until);

/* Unlock a mutex that the calling thread has locked. */
void sl_canal_robust_unlock(pthread_mutex_t *m);

/* Forget all locks. Call this in the child after fork(): the child does not hold the
 * parent's locks, and glibc has emptied the child's robust list. */
void sl_canal_robust_forked(void);

#endif /* SL_CANAL_ROBUST_H */
