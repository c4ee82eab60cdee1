/* sysv.h - a counting lock with declared capacity on a SysV semaphore: the second oracle.
 *
 * The kernel keeps the count, decides, and with SEM_UNDO releases what a dead process
 * held, so this lock shares nothing with ours but the specification. It is slow (two
 * system calls a pair) and small (SYSV_ROOM_MAX), and good for comparing.
 *
 * How a semaphore, which only knows "not below 0", compares with a capacity that changes
 * from call to call: its value is SYSV_ROOM_MAX - held. An acquire of u units with capacity
 * r is one semop() of two operations, which the kernel does both or not at all:
 *
 *     take  SYSV_ROOM_MAX - r + u      passes iff held + u <= r
 *     put   SYSV_ROOM_MAX - r          so that u are taken in all
 *
 * Units belong to a process, whatever its thread; threads of one process share what
 * SEM_UNDO releases.
 *
 * A semaphore outlives its makers. It is removed by sysv_close(), or else, when all who
 * have it open are dead, by a small process that waits for just that. */
#ifndef TESTS_ORACLE_SYSV_H
#define TESTS_ORACLE_SYSV_H

#include <stdint.h>

#define SYSV_CAPACITY_MAX 32767 /* Linux: SEMVMX, and as much for one process's undo. */

struct sysv {
    int id;
    int alive; /* A pipe's end: open in everybody who uses the semaphore. */
    int undertaker;
};

#define SYSV_REFUSED ((int64_t)-1) /* It does not fit, or nobody holds that many. */
#define SYSV_FAILED ((int64_t)-2)  /* The system refused; errno says why. */

/* --- Life ----------------------------------------------------------------- */

/* A new lock, nothing held. Children that are forked afterwards may use it too. 0 or
 * SYSV_FAILED. Do it before threads are started: it forks. */
int64_t sysv_open(struct sysv *s);

/* Remove it, for all. By the process that opened it. */
void sysv_close(struct sysv *s);

/* --- Change and ask ------------------------------------------------------- */

/* The number of units now held by all, or SYSV_REFUSED, SYSV_FAILED. Capacity 0 to
 * SYSV_ROOM_MAX, units at least 1. The number is read after the call: it is exact only
 * if nobody else acts meanwhile. */
int64_t sysv_acquire(struct sysv *s, int32_t capacity, int32_t units);

/* 0, SYSV_REFUSED, SYSV_FAILED. What this process does not hold is taken from others:
 * the kernel does not ask. */
int64_t sysv_release(struct sysv *s, int32_t units);

int64_t sysv_count(struct sysv *s);

#endif /* TESTS_ORACLE_SYSV_H */
