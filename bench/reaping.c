#include "reaping.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"

#define HOLD_MS 60000 /* The timeout for the holder to acquire all units. */

/* Data of both kinds. */
struct scene {
    struct sluice_canal *canal;
    char (*names)[16];
    int set; /* Of semaphores; -1: none. */
};

struct times {
    double exit_ns;   /* From the kill until the process has exited. */
    double permit_ns; /* From then until another process has acquired a unit. */
};

static const struct sluice_capacity capacity = {.per = 1, .buckets = 1};

static struct sembuf one_unit(uint32_t key, short change)
{
    return (struct sembuf){.sem_num = (unsigned short)key,
                           .sem_op = change,
                           .sem_flg = IPC_NOWAIT | SEM_UNDO};
}

/* ---- the holder ---- */

static bool hold_all(const struct scene *s, bool ours)
{
    for (uint32_t k = 0; k < REAPING_KEYS; k++) {
        struct sembuf take = one_unit(k, -1);
        if (ours ? sluice_canal_acquire(s->canal, s->names[k], capacity, NULL) != 1
                 : semop(s->set, &take, 1) != 0)
            return false;
    }
    return true;
}

/* Fork a process that holds a unit of each key, or none. Returns -1 on failure. */
static pid_t fork_holder(const struct scene *s, bool ours, bool holds)
{
    int ready[2];
    if (pipe(ready) != 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        crew_child();
        char good = !holds || hold_all(s, ours) ? 'y' : 'n';
        if (write(ready[1], &good, 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    char said = 'n';
    const char *wrong = pid < 0 ? "" : crew_read(ready[0], &said, 1, HOLD_MS);
    close(ready[0]);
    if (wrong == NULL && said == 'y') return pid;
    if (pid > 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    return -1;
}

/* ---- one round ---- */

/* Acquire and release a unit of the first key; only the acquire is timed. */
static bool take_one(const struct scene *s, bool ours, int64_t *took_at_ns)
{
    struct sembuf take = one_unit(0, -1), give = one_unit(0, 1);
    bool good = ours ? sluice_canal_acquire(s->canal, s->names[0], capacity, NULL) == 1
                     : semop(s->set, &take, 1) == 0;
    *took_at_ns = now_ns();
    return good && (ours ? sluice_canal_release(s->canal, s->names[0], 1) == SLUICE_OK
                         : semop(s->set, &give, 1) == 0);
}

static const char *one_round(const struct scene *s, bool ours, bool holds,
                             struct times *out)
{
    pid_t pid = fork_holder(s, ours, holds);
    if (pid < 0)
        return interrupted() ? "interrupted" : "the holder did not get its units";
    int64_t begin_ns = now_ns();
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    int64_t gone_ns = now_ns(), took_ns;
    if (!take_one(s, ours, &took_ns))
        return "the unit of a killed holder was not released";
    out->exit_ns = (double)(gone_ns - begin_ns);
    out->permit_ns = (double)(took_ns - gone_ns);
    return NULL;
}

/* Check that all units are free again. */
static bool all_free(const struct scene *s)
{
    for (uint32_t k = 0; k < REAPING_KEYS; k++)
        if (sluice_canal_count(s->canal, s->names[k]) != 0) return false;
    return true;
}

static const char *all_rounds(struct section *s, const struct scene *scene,
                              uint32_t rounds)
{
    /* The first round is the warm-up and is not counted. */
    for (uint32_t n = 0; n <= rounds; n++) {
        uint32_t i = n == 0 ? 0 : n - 1;
        struct times ours, sysv, idle;
        const char *wrong = one_round(scene, true, true, &ours);
        if (wrong == NULL && !all_free(scene))
            wrong = "the unit of a killed holder was not released";
        if (wrong != NULL) return wrong;
        s->cells[NAME][0].runs[i] = (ours.exit_ns + ours.permit_ns) / REAPING_KEYS;
        s->cells[NAME][1].runs[i] = ours.permit_ns / REAPING_KEYS;
        if (scene->set < 0) continue;
        wrong = one_round(scene, false, true, &sysv);
        if (wrong == NULL) wrong = one_round(scene, false, false, &idle);
        if (wrong != NULL) return wrong;
        double more_ns = sysv.exit_ns - idle.exit_ns + sysv.permit_ns;
        s->cells[SYSV][0].runs[i] = (sysv.exit_ns + sysv.permit_ns) / REAPING_KEYS;
        s->cells[SYSV][1].runs[i] = (more_ns > 0 ? more_ns : 0) / REAPING_KEYS;
    }
    for (uint32_t v = 0; v < 2; v++) {
        series_close(&s->cells[NAME][v], rounds);
        if (scene->set >= 0) series_close(&s->cells[SYSV][v], rounds);
    }
    return NULL;
}

static int set_of_ones(void)
{
    union {
        int value;
        unsigned short *values;
    } argument;
    static unsigned short ones[REAPING_KEYS];
    for (uint32_t k = 0; k < REAPING_KEYS; k++) ones[k] = 1;
    int set = semget(IPC_PRIVATE, REAPING_KEYS, IPC_CREAT | 0600);
    argument.values = ones;
    if (set >= 0 && semctl(set, 0, SETALL, argument) != 0) {
        semctl(set, 0, IPC_RMID);
        set = -1;
    }
    return set;
}

const char *reaping_measure(struct section *s, uint32_t rounds)
{
    struct scene scene = {.names = names_make(REAPING_KEYS)};
    if (scene.names == NULL) return "no memory";
    const char *wrong = canal_open(&scene.canal, REAPING_KEYS);
    if (wrong == NULL) {
        scene.set = set_of_ones();
        wrong = all_rounds(s, &scene, rounds);
        sluice_canal_close(scene.canal);
        if (scene.set >= 0) semctl(scene.set, 0, IPC_RMID);
        else
            for (uint32_t v = 0; v < 2; v++)
                snprintf(s->cells[SYSV][v].skipped, sizeof s->cells[SYSV][v].skipped,
                         "the kernel does not allow these semaphores");
    }
    free(scene.names);
    return wrong;
}
