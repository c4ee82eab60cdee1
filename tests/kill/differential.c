/* differential.c - K15: compares every result with that of the kernel's SysV semaphores.
 *
 *     differential [--short | --long] [--operations N] [--seed N]
 *
 * Players are threads of a few processes, and take turns. In its turn a player does some random
 * operations, each on a lock of Sluice and on the SysV semaphore of tests/oracle/sysv.h. Both results
 * must be equal: granted or rejected, and the number. No other player runs meanwhile, so there is one
 * correct result. Capacities and units differ from call to call.
 *
 * In some turns the process is killed. The units of its players are released: by the kernel with
 * SEM_UNDO, and by Sluice when a process reaps. After that both must be equal again, whatever the last
 * operation was. Until a process reaps, Sluice may still count the units of dead holders. Then the
 * test compares only whether a request is granted, since dead holders do not block a request. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "options.h"
#include "sluice.h"
#include "stage.h"
#include "sysv.h"

#define PROCESSES 4
#define THREADS 2
#define KEYS 3
#define ROOM_MAX 6u /* Below this, per and buckets. */
#define UNITS_MAX 4u

/* Slots in plenty: a claimer may be refused when all that are not in use are just being
 * reaped by others, and that is not what is compared here. */
#define SLOTS (4 * PROCESSES * THREADS)
static const struct sluice_canal_options options = {
    .keys = KEYS, .slots = SLOTS, .records = 8 * SLOTS};
static const char *const keys[KEYS] = {"first", "second", "third"};

enum turn_kind {
    TURN_RUN,   /* This many operations. */
    TURN_LEAVE, /* Close the canal, which gives all back, and open it again. */
    TURN_END,   /* The thread ends, which does the same; another takes its place. */
};

struct turn {
    enum turn_kind kind;
    uint32_t operations;
    uint64_t seed;
    bool strict; /* Compare numbers too, not only verdicts. */
};

struct board {
    uint64_t operations, granted, refused, released, notheld;
    bool wrong;
    char why[200];
};

static struct board *board;
static struct sysv oracle[KEYS];
static char path[STAGE_PATH_MAX];

static void __attribute__((format(printf, 1, 2))) wrong(const char *format, ...)
{
    if (board->wrong) return;
    va_list args;
    va_start(args, format);
    vsnprintf(board->why, sizeof board->why, format, args);
    va_end(args);
    board->wrong = true;
}

/* ---- a player ---- */

struct player {
    int fd;
    struct sluice_canal *canal;
    struct sluice_key *handle; /* Of the first key; the others are used by name. */
    uint32_t held[KEYS];
};

static uint32_t draw(uint64_t *chance, uint32_t below)
{
    return (uint32_t)(stage_random(chance) >> 33) % below;
}

static void enter(struct player *p)
{
    int status = sluice_canal_open(path, &options, &p->canal);
    if (status == SLUICE_OK) status = sluice_key_resolve(p->canal, keys[0], &p->handle);
    if (status != SLUICE_OK)
        wrong("a player cannot enter: %s", sluice_status_word(status));
}

static void acquire(struct player *p, uint32_t key, uint64_t *chance, bool strict)
{
    uint32_t per = draw(chance, ROOM_MAX), buckets = draw(chance, ROOM_MAX);
    struct sluice_capacity capacity = {.per = per, .buckets = buckets};
    struct sluice_want want = {.units = 1 + draw(chance, UNITS_MAX)};
    int64_t theirs = sysv_acquire(&oracle[key], (int32_t)(per * buckets),
                                  (int32_t)want.units);
    int64_t ours = key == 0
                       ? sluice_key_acquire(p->handle, capacity, &want)
                       : sluice_canal_acquire(p->canal, keys[key], capacity, &want);
    bool too_big = want.units > per * buckets && per * buckets > 0;
    if (theirs == SYSV_FAILED) wrong("the semaphore failed: %s", strerror(errno));
    else if (theirs == SYSV_REFUSED) {
        board->refused++;
        if (ours != (too_big ? SLUICE_ETOOBIG : SLUICE_EFULL))
            wrong("acquire %u of %ux%u: refused by the oracle, %" PRId64 " by us",
                  want.units, per, buckets, ours);
    } else {
        board->granted++;
        p->held[key] += want.units;
        if (ours <= 0 || (strict && ours != theirs))
            wrong("acquire %u of %ux%u: %" PRId64 " by the oracle, %" PRId64 " by us",
                  want.units, per, buckets, theirs, ours);
    }
}

static void release(struct player *p, uint32_t key, uint64_t *chance)
{
    uint32_t units = 1 + draw(chance, UNITS_MAX);
    if (units > p->held[key] && draw(chance, 8) != 0) units = p->held[key];
    if (units == 0) return;
    bool mine = units <= p->held[key];
    /* The kernel does not ask whose they are; so only what is one's own. */
    int64_t theirs = mine ? sysv_release(&oracle[key], (int32_t)units) : 0;
    int64_t ours = key == 0 ? sluice_key_release(p->handle, units)
                            : sluice_canal_release(p->canal, keys[key], units);
    if (theirs != 0) wrong("the oracle does not release");
    if (ours != (mine ? SLUICE_OK : SLUICE_ENOTHELD))
        wrong("release %u of %u: %s", units, p->held[key], sluice_status_word(ours));
    if (mine) p->held[key] -= units;
    if (mine) board->released++;
    else board->notheld++;
}

static void count(struct player *p, uint32_t key, bool strict)
{
    int64_t theirs = sysv_count(&oracle[key]);
    int64_t ours = key == 0 ? sluice_key_count(p->handle)
                            : sluice_canal_count(p->canal, keys[key]);
    if (strict ? ours != theirs : ours < theirs)
        wrong("%s: the oracle counts %" PRId64 ", we count %" PRId64, keys[key], theirs,
              ours);
}

static void play(struct player *p, const struct turn *t)
{
    uint64_t chance = t->seed;
    for (uint32_t i = 0; i < t->operations && !board->wrong; i++) {
        uint32_t key = draw(&chance, KEYS), what = draw(&chance, 16);
        if (what < 7) acquire(p, key, &chance, t->strict);
        else if (what < 14) release(p, key, &chance);
        else count(p, key, t->strict);
        board->operations++;
    }
}

/* All that a player holds goes back, in the oracle by its name. */
static void give_all_back(struct player *p)
{
    for (uint32_t k = 0; k < KEYS; k++) {
        if (p->held[k] > 0 && sysv_release(&oracle[k], (int32_t)p->held[k]) != 0)
            wrong("the oracle does not take all back");
        p->held[k] = 0;
    }
}

static void *be_player(void *arg)
{
    struct player *p = arg;
    struct turn t;
    /* An undo list of its own, as each thread has a slot of its own with us. */
    if (unshare(CLONE_SYSVSEM) != 0) wrong("unshare: %s", strerror(errno));
    enter(p);
    while (recv(p->fd, &t, sizeof t, MSG_WAITALL) == (ssize_t)sizeof t) {
        int32_t tid = (int32_t)syscall(SYS_gettid);
        if (t.kind == TURN_RUN) play(p, &t);
        if (t.kind == TURN_LEAVE) {
            give_all_back(p);
            sluice_key_free(p->handle);
            sluice_canal_close(p->canal);
            enter(p);
        }
        send(p->fd, &tid, sizeof tid, MSG_NOSIGNAL);
        if (t.kind == TURN_END) return NULL; /* With all that it holds. */
    }
    return NULL;
}

/* The first thread of a process only starts players: one for each that ends. */
static _Noreturn void be_process(const int fds[THREADS])
{
    static struct player players[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        players[i] = (struct player){.fd = fds[i]};
        if (pthread_create(&threads[i], NULL, be_player, &players[i]) != 0) _exit(1);
    }
    for (uint32_t i = 0;; i = (i + 1) % THREADS) {
        if (pthread_tryjoin_np(threads[i], NULL) == 0) {
            /* Its canal stays open, as a process's is that loses a thread. */
            players[i] = (struct player){.fd = fds[i]};
            if (pthread_create(&threads[i], NULL, be_player, &players[i]) != 0)
                _exit(1);
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}

/* ---- who gives the turns ---- */

struct table {
    pid_t pid[PROCESSES];
    int fd[PROCESSES][THREADS];
    struct sluice_canal *canal;
    uint64_t chance;
    uint64_t turns, kills, ends, leaves, comparisons;
    bool unreaped; /* Somebody died, and nobody has reaped since. */
};

static void start_process(struct table *t, uint32_t i)
{
    int theirs[THREADS];
    for (uint32_t j = 0; j < THREADS; j++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
            stage_bail("socketpair: %s", strerror(errno));
        t->fd[i][j] = ends[0];
        theirs[j] = ends[1];
    }
    t->pid[i] = stage_fork();
    if (t->pid[i] == 0) be_process(theirs);
    for (uint32_t j = 0; j < THREADS; j++) close(theirs[j]);
}

static void end_process(struct table *t, uint32_t i)
{
    kill(t->pid[i], SIGKILL);
    while (waitpid(t->pid[i], NULL, 0) < 0 && errno == EINTR) continue;
    for (uint32_t j = 0; j < THREADS; j++) close(t->fd[i][j]);
}

/* Ours and theirs, from outside. With what the dead left, ours may be more. */
static void compare(struct table *t)
{
    t->comparisons++;
    for (uint32_t k = 0; k < KEYS; k++) {
        int64_t theirs = sysv_count(&oracle[k]),
                ours = sluice_canal_count(t->canal, keys[k]);
        if (t->unreaped ? ours < theirs : ours != theirs)
            wrong("after turn %" PRIu64 ", %s: the oracle counts %" PRId64
                  ", we %" PRId64,
                  t->turns, keys[k], theirs, ours);
    }
}

static void reap(struct table *t)
{
    if (sluice_canal_reap(t->canal) < 0) wrong("reap failed");
    t->unreaped = false;
    compare(t);
}

static void send_turn(struct table *t, uint32_t i, uint32_t j, struct turn turn)
{
    turn.strict = !t->unreaped;
    turn.seed = stage_random(&t->chance);
    t->turns++;
    if (send(t->fd[i][j], &turn, sizeof turn, MSG_NOSIGNAL) != (ssize_t)sizeof turn)
        wrong("a player is gone");
}

static int32_t await_turn(struct table *t, uint32_t i, uint32_t j)
{
    int32_t tid = 0;
    if (recv(t->fd[i][j], &tid, sizeof tid, MSG_WAITALL) != (ssize_t)sizeof tid)
        wrong("a player did not finish its turn");
    return tid;
}

/* A thread has ended when the kernel no longer knows it; only then its undo is done. */
static void await_end(pid_t pid, int32_t tid)
{
    char where[64];
    snprintf(where, sizeof where, "/proc/%d/task/%d", (int)pid, (int)tid);
    for (int i = 0; i < 100000 && access(where, F_OK) == 0; i++) usleep(100);
}

static void one_turn(struct table *t, uint64_t left)
{
    uint32_t i = draw(&t->chance, PROCESSES), j = draw(&t->chance, THREADS);
    uint32_t n = 1 + draw(&t->chance, 200);
    if (n > left) n = (uint32_t)left;
    switch (draw(&t->chance, 64)) {
        case 0: /* Killed at work. */
        case 1:
            send_turn(t, i, j, (struct turn){.kind = TURN_RUN, .operations = 1u << 20});
            nanosleep(&(struct timespec){.tv_nsec = draw(&t->chance, 400000)}, NULL);
            end_process(t, i);
            t->kills++;
            t->unreaped = true;
            compare(t);
            if (draw(&t->chance, 2) == 0) reap(t);
            start_process(t, i);
            break;
        case 2:
            send_turn(t, i, j, (struct turn){.kind = TURN_LEAVE});
            await_turn(t, i, j);
            t->leaves++;
            compare(t);
            break;
        case 3: {
            send_turn(t, i, j, (struct turn){.kind = TURN_END});
            int32_t tid = await_turn(t, i, j);
            await_end(t->pid[i], tid);
            t->ends++;
            compare(t);
            break;
        }
        default:
            send_turn(t, i, j, (struct turn){.kind = TURN_RUN, .operations = n});
            await_turn(t, i, j);
            if (t->unreaped && draw(&t->chance, 8) == 0) reap(t);
    }
}

int main(int argc, char **argv)
{
    struct table t = {0};
    uint64_t operations = 1000 * 1000, seed = options_seed();
    const struct test_option program_options[] = {
        {"--long", .number = &operations, .preset = 200u * 1000u * 1000u},
        {"--operations", .number = &operations},
        {"--seed", .number = &seed},
        {.name = NULL}};
    options_read(argc, argv,
                 "differential [--short | --long] [--operations N] [--seed N]",
                 program_options);
    /* Ten microseconds an operation and ten minutes are plenty, on a busy machine too. */
    stage_open((unsigned)(operations / 100000 + 600));
    stage_note("differential --operations %" PRIu64 " --seed %" PRIu64, operations,
               seed);
    t.chance = seed;
    board = stage_shared(sizeof *board);
    stage_path(path);
    for (uint32_t k = 0; k < KEYS; k++)
        if (sysv_open(&oracle[k]) != 0) stage_bail("no semaphore: %s", strerror(errno));
    int status = sluice_canal_open(path, &options, &t.canal);
    if (status != SLUICE_OK) stage_bail("open: %s", sluice_status_word(status));
    for (uint32_t i = 0; i < PROCESSES; i++) start_process(&t, i);
    while (board->operations < operations && !board->wrong)
        one_turn(&t, operations - board->operations);
    for (uint32_t i = 0; i < PROCESSES; i++) end_process(&t, i);
    if (!board->wrong) reap(&t);
    int64_t rest = 0;
    for (uint32_t k = 0; k < KEYS; k++) {
        rest += sluice_canal_count(t.canal, keys[k]) + sysv_count(&oracle[k]);
        sysv_close(&oracle[k]);
    }
    if (board->wrong) stage_note("%s", board->why);
    stage_note("%" PRIu64 " granted, %" PRIu64 " refused, %" PRIu64
               " released, %" PRIu64 " not held",
               board->granted, board->refused, board->released, board->notheld);
    stage_ok(!board->wrong,
             "K15 %" PRIu64 " operations in %" PRIu64 " turns, %" PRIu64
             " kills, %" PRIu64 " threads ended, %" PRIu64
             " left: every answer as the kernel's semaphore",
             board->operations, t.turns, t.kills, t.ends, t.leaves);
    stage_ok(rest == 0, "at the end both count nothing");
    stage_close();
}
