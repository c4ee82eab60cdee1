/* clocklock.c - pthread_mutex_clocklock() for the thread sanitizer of gcc 12, which does
 * not know it: it would see mutexes unlocked that it never saw locked. It does know
 * pthread_mutex_trylock(). Linked into the programs of build/tsan only. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

static int later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec >= b->tv_nsec;
}

int pthread_mutex_clocklock(pthread_mutex_t *m, clockid_t clock,
                            const struct timespec *until)
{
    for (;;) {
        int e = pthread_mutex_trylock(m);
        if (e != EBUSY) return e;
        struct timespec now;
        clock_gettime(clock, &now);
        if (later(&now, until)) return ETIMEDOUT;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}
