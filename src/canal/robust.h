/* robust.h - locks in shared memory that the kernel marks when their holder dies.
 *
 * The lock word is that of a robust mutex: the holder's thread id, FUTEX_WAITERS, and
 * FUTEX_OWNER_DIED, which the kernel sets when the holder dies if the thread's robust list
 * contains the word. The offset and the meaning of the word are glibc's, so processes that
 * call pthread_mutex_lock() on it can share a segment with us. We call no function of glibc
 * on it after pthread_mutex_init(). glibc keeps the list's pointers in the mutex, that is in
 * shared memory, and writes through them: a user who can write to the segment could make
 * any process that unlocks a mutex write to any address. glibc also trusts the mutex type
 * that it finds there.
 *
 * Here the order of the list is private to the thread. Shared memory is written for the
 * kernel and never read back:
 *
 *     head -> .. -> guard -> word n -> .. -> word 1 -> guard -> .. -> head
 *             |                                                 |
 *             mutexes of the program, which glibc adds and removes
 *
 * The two guards are private memory. glibc changes only the neighbours of a mutex that it
 * adds or removes, and no mutex of the program is ever a neighbour of one of our words.
 *
 * One risk remains: the kernel reads the pointers when the thread dies. A user who changes
 * them before can hide the death from others, or make the kernel mark another word that
 * contains the thread's id in the memory of the dying process. */
#ifndef SL_CANAL_ROBUST_H
#define SL_CANAL_ROBUST_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* Whether the calling thread has a robust list in the expected format. */
bool sl_canal_robust_is_supported(void);

/* Lock the mutex if it is free or its holder is dead. 0; EOWNERDEAD: locked, and the
 * last holder died; EBUSY; ENOTSUP: the thread has no robust list; ENOMEM. */
int sl_canal_robust_try(pthread_mutex_t *m);

/* The same, but wait until a time of CLOCK_MONOTONIC: ETIMEDOUT instead of EBUSY. */
int sl_canal_robust_lock(pthread_mutex_t *m, const struct timespec *until);

/* Unlock a mutex that the calling thread has locked. */
void sl_canal_robust_unlock(pthread_mutex_t *m);

/* Call this in the child of a fork, where glibc has emptied the list: the child does
 * not hold the parent's locks. */
void sl_canal_robust_forked(void);

#endif /* SL_CANAL_ROBUST_H */
