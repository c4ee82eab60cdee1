#include "sysv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

/* As semctl(2) wants it: "the calling program must define this union". */
union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
};

/* ---- life ---- */

/* The undertaker: makes the semaphore, says which it is, waits until nobody has the
 * other end of `deaths` open any more, and removes it. That way there is no moment at
 * which a kill leaves a semaphore behind. In a session of its own and deaf to polite
 * signals, so that what ends the test does not end this first; with nothing else open,
 * so that nobody waits for it. */
static _Noreturn void bury(int deaths, int answer)
{
    int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    char byte;
    setsid();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "sysv-undertaker");
    if (id >= 0 &&
        semctl(id, 0, SETVAL, (union semun){.val = SYSV_CAPACITY_MAX}) == 0) {
        /* If nobody reads it any more, nobody has the pipe open either. */
        (void)!write(answer, &id, sizeof id);
    }
    dup2(deaths, 0);
    close_range(1, ~0u, 0);
    while (read(0, &byte, 1) < 0 && errno == EINTR) continue;
    if (id >= 0) semctl(id, 0, IPC_RMID);
    _exit(0);
}

static int64_t failed(int error)
{
    errno = error;
    return SYSV_FAILED;
}

int64_t sysv_open(struct sysv *s)
{
    int deaths[2], answer[2];
    if (pipe2(deaths, O_CLOEXEC) != 0) return SYSV_FAILED;
    if (pipe2(answer, O_CLOEXEC) != 0) {
        int error = errno;
        close(deaths[0]);
        close(deaths[1]);
        return failed(error);
    }
    s->undertaker = fork();
    if (s->undertaker == 0) {
        close(deaths[1]);
        bury(deaths[0], answer[1]);
    }
    int error = errno;
    close(deaths[0]);
    close(answer[1]);
    ssize_t got = 0;
    if (s->undertaker > 0) {
        do {
            got = read(answer[0], &s->id, sizeof s->id);
        } while (got < 0 && errno == EINTR);
        error = ENOSPC; /* The likely one: too many semaphores in the system. */
    }
    close(answer[0]);
    s->alive = deaths[1];
    if (got == sizeof s->id) return 0;
    close(s->alive);
    if (s->undertaker > 0) waitpid(s->undertaker, NULL, 0);
    return failed(error);
}

void sysv_close(struct sysv *s)
{
    semctl(s->id, 0, IPC_RMID);
    /* Not by closing the pipe: children that are still there hold it open too. */
    kill(s->undertaker, SIGKILL);
    while (waitpid(s->undertaker, NULL, 0) < 0 && errno == EINTR) continue;
    close(s->alive);
}

/* ---- change and ask ---- */

static int64_t operate(struct sysv *s, struct sembuf *operations, size_t count)
{
    int result;
    do {
        result = semop(s->id, operations, count);
    } while (result != 0 && errno == EINTR);
    if (result == 0) return 0;
    /* ERANGE: a release that would raise the value above its largest, that is, of more
     * than is held. */
    return errno == EAGAIN || errno == ERANGE ? SYSV_REFUSED : SYSV_FAILED;
}

int64_t sysv_acquire(struct sysv *s, int32_t capacity, int32_t units)
{
    if (capacity < 0 || capacity > SYSV_CAPACITY_MAX || units < 1) {
        errno = EINVAL;
        return SYSV_FAILED;
    }
    /* Whatever is held; and the sum below would wrap. */
    if (units > capacity) return SYSV_REFUSED;
    short flags = IPC_NOWAIT | SEM_UNDO;
    short spare = (short)(SYSV_CAPACITY_MAX - capacity);
    struct sembuf operations[2] = {
        {.sem_op = (short)-(spare + units), .sem_flg = flags},
        {.sem_op = spare, .sem_flg = flags},
    };
    /* An operation of 0 would mean "wait until it is zero". */
    int64_t result = operate(s, operations, spare == 0 ? 1 : 2);
    return result != 0 ? result : sysv_count(s);
}

int64_t sysv_release(struct sysv *s, int32_t units)
{
    if (units < 1) {
        errno = EINVAL;
        return SYSV_FAILED;
    }
    if (units > SYSV_CAPACITY_MAX) return SYSV_REFUSED;
    struct sembuf operation = {.sem_op = (short)units,
                               .sem_flg = IPC_NOWAIT | SEM_UNDO};
    return operate(s, &operation, 1);
}

int64_t sysv_count(struct sysv *s)
{
    int value = semctl(s->id, 0, GETVAL);
    return value < 0 ? SYSV_FAILED : SYSV_CAPACITY_MAX - value;
}
