/* torture.c - K3: processes and threads use a few keys, and are killed at random.
 *
 *     torture [--short | --long] [--seconds N] [--seed N]
 *
 * Workers acquire and release units of keys by name and by handle, with different capacities, and
 * some of them wait. There are more names than keys. A killer kills the workers, stops and continues
 * them, and kills processes that only reap. From time to time the test stops all threads and checks:
 *
 *   - The segment is consistent (audit.h), above all N1.
 *   - According to the notes of the workers, a key has no more certainly held units than the largest
 *     capacity that a worker declares for it.
 *   - The count of each key is the number of certainly held units, plus or minus the units that
 *     workers were acquiring or releasing.
 *
 * A worker notes a unit as certainly held after the grant and until just before the release. So the
 * notes may show too few units for a moment, but never too many. At the end all workers are killed,
 * and all counts must be 0. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "audit.h"
#include "canal/counter.h"
#include "canal/keys.h"
#include "canal/slot.h"
#include "canal/thread.h"
#include "options.h"
#include "sluice.h"
#include "stage.h"

#define WORKERS 6
#define THREADS_MAX 2
#define HOT 4      /* Names that all use, with capacities of their own. */
#define NAMES 160  /* All names; there are fewer keys. */
#define HELD_MAX 4 /* Names that a thread holds at one time. */
#define COMPLAINTS_MAX 10
#define STUCK_MS 120000 /* Nobody waits longer than a moment, but machines are busy. */
#define ROUNDS_MIN 100  /* However long they take. */

static const struct sluice_canal_options options = {
    /* Fewer slots than could be: the dead's are needed. Keys enough for all that can be
     * held and resolved at one time, and no more. */
    .keys = WORKERS * THREADS_MAX * (HELD_MAX + 1),
    .slots = WORKERS * THREADS_MAX + 2,
    .records = (WORKERS * THREADS_MAX + 2) * 8,
};

/* What one thread tells of itself. Written by it alone. */
struct notes {
    _Alignas(64) uint64_t operations;
    uint32_t certain[NAMES]; /* Units that it holds for certain, of each name. */
    uint32_t maybe[NAMES];   /* Units that it is just acquiring or releasing. */
};

struct board {
    struct notes notes[WORKERS][THREADS_MAX];
    uint32_t complaints;
    char complaint[COMPLAINTS_MAX][160];
    uint32_t refused[32]; /* How often each status was the answer, by -status. */
};

static struct board *board;
static char path[STAGE_PATH_MAX];

static void __attribute__((format(printf, 1, 2))) complain(const char *format, ...)
{
    uint32_t n = __atomic_fetch_add(&board->complaints, 1, __ATOMIC_RELAXED);
    if (n >= COMPLAINTS_MAX) return;
    va_list args;
    va_start(args, format);
    vsnprintf(board->complaint[n], sizeof board->complaint[n], format, args);
    va_end(args);
}

static void nap(uint32_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

/* ---- names and capacities ---- */

static char names[NAMES][16];

static void make_names(void)
{
    for (uint32_t n = 0; n < NAMES; n++)
        snprintf(names[n], sizeof names[n], "name-%u", n);
}

/* The largest capacity that anybody declares for a name; the others are smaller. */
static uint32_t capacity_max(uint32_t name)
{
    return name < HOT ? 4 + 2 * name : 2;
}

/* ---- a worker's thread ---- */

struct hand {
    uint32_t name;
    uint32_t units;
};

struct toil {
    struct sluice_canal *canal;
    struct notes *notes;
    uint64_t chance;
    struct hand hands[HELD_MAX];
    uint32_t hand_count;
    struct sluice_key *handle; /* Of one of the hot names. */
    uint32_t handle_name;
};

static uint32_t draw(struct toil *t, uint32_t below)
{
    return (uint32_t)(stage_random(&t->chance) >> 33) % below;
}

static void note(uint32_t *where, uint32_t units)
{
    __atomic_store_n(where, units, __ATOMIC_SEQ_CST);
}

static struct hand *hand_with(struct toil *t, uint32_t name)
{
    for (uint32_t i = 0; i < t->hand_count; i++)
        if (t->hands[i].name == name) return &t->hands[i];
    return NULL;
}

/* An answer that is not a grant. Some must not be. */
static void refused(int64_t status, const char *what)
{
    switch (status) {
        case SLUICE_EFULL:
        case SLUICE_EKEYS: /* Names that were reclaimed and made again at a bad moment. */
        case SLUICE_ESLOTS: /* The slots of the dead are just being reaped. */
        case SLUICE_EBUSY:  /* Somebody is stopped with the key table. */
            __atomic_fetch_add(&board->refused[-status], 1, __ATOMIC_RELAXED);
            break;
        default: complain("%s was answered %s", what, sluice_status_word(status));
    }
}

static void toil_acquire(struct toil *t)
{
    uint32_t name = draw(t, 4) != 0 ? draw(t, HOT) : draw(t, NAMES);
    struct hand *hand = hand_with(t, name);
    if (hand == NULL && t->hand_count == HELD_MAX) return;
    uint32_t units = 1 + draw(t, 3);
    uint32_t per = 1 + draw(t, capacity_max(name)), buckets = 1;
    if (per % 2 == 0 && draw(t, 2) == 0) per /= 2, buckets = 2;
    struct sluice_capacity capacity = {.per = per, .buckets = buckets};
    struct sluice_want want = {.units = units,
                               .wait_ms = draw(t, 16) == 0 ? 1 + draw(t, 4) : 0};
    note(&t->notes->maybe[name], units);
    int64_t nth = t->handle != NULL && t->handle_name == name
                      ? sluice_key_acquire(t->handle, capacity, &want)
                      : sluice_canal_acquire(t->canal, names[name], capacity, &want);
    if (nth > 0) {
        if (hand == NULL) {
            hand = &t->hands[t->hand_count++];
            *hand = (struct hand){.name = name};
        }
        hand->units += units;
        note(&t->notes->certain[name], hand->units);
        if (nth > (int64_t)per * buckets || nth < units)
            complain("granted %u of %ux%u as number %" PRId64, units, per, buckets,
                     nth);
    } else if (units > per * buckets) {
        if (nth != SLUICE_ETOOBIG) complain("too big was answered %" PRId64, nth);
    } else {
        refused(nth, "an acquire");
    }
    note(&t->notes->maybe[name], 0);
}

static void toil_release(struct toil *t)
{
    if (t->hand_count == 0) return;
    uint32_t which = draw(t, t->hand_count);
    struct hand *hand = &t->hands[which];
    uint32_t name = hand->name, units = 1 + draw(t, hand->units);
    bool by_handle = t->handle != NULL && t->handle_name == name;
    note(&t->notes->maybe[name], units);
    note(&t->notes->certain[name], hand->units - units);
    int status = by_handle ? sluice_key_release(t->handle, units)
                           : sluice_canal_release(t->canal, names[name], units);
    note(&t->notes->maybe[name], 0);
    if (status != SLUICE_OK)
        complain("a release was answered %s", sluice_status_word(status));
    hand->units -= units;
    if (hand->units > 0) return;
    *hand = t->hands[--t->hand_count];
}

/* Once in a while: another handle, a look, a wrong release, a fresh start. */
static void toil_rarely(struct toil *t)
{
    int64_t answer;
    switch (draw(t, 4)) {
        case 0:
            sluice_key_free(t->handle);
            t->handle = NULL;
            t->handle_name = draw(t, HOT);
            answer = sluice_key_resolve(t->canal, names[t->handle_name], &t->handle);
            if (answer != SLUICE_OK) refused(answer, "a resolve");
            break;
        case 1:
            answer = sluice_canal_count(t->canal, names[draw(t, HOT)]);
            if (answer < 0) refused(answer, "a count");
            break;
        case 2:
            /* More than anybody can hold. */
            answer = sluice_canal_release(t->canal, names[draw(t, NAMES)], 1000);
            if (answer != SLUICE_ENOTHELD)
                complain("a release of what nobody holds was not refused");
            break;
        case 3: sluice_canal_reap(t->canal); break;
    }
}

static void *toil(void *arg)
{
    struct toil *t = arg;
    for (;;) {
        uint32_t what = draw(t, 256);
        if (what < 2) toil_rarely(t);
        else if (what < 128) toil_acquire(t);
        else toil_release(t);
        t->notes->operations++;
        /* A thread may also just end, and leave everything to its exit handler. */
        if (t->notes != &board->notes[0][0] && draw(t, 1u << 20) == 0) break;
    }
    /* No longer certain, before it is released. */
    for (uint32_t i = 0; i < t->hand_count; i++) {
        note(&t->notes->maybe[t->hands[i].name], t->hands[i].units);
        note(&t->notes->certain[t->hands[i].name], 0);
    }
    return NULL;
}

static _Noreturn void be_worker(uint32_t worker, uint64_t seed)
{
    static struct toil toils[THREADS_MAX];
    struct sluice_canal *canal;
    uint32_t threads = worker % 3 == 2 ? 2 : 1;
    pthread_t thread;
    int status = sluice_canal_open(path, &options, &canal);
    if (status != SLUICE_OK) complain("open: %s", sluice_status_word(status));
    if (status != SLUICE_OK) _exit(1);
    for (uint32_t i = 0; i < threads; i++)
        toils[i] = (struct toil){
            .canal = canal, .notes = &board->notes[worker][i], .chance = seed + i};
    if (threads == 2 && pthread_create(&thread, NULL, toil, &toils[1]) != 0) _exit(1);
    toil(&toils[0]);
    if (threads == 2) pthread_join(thread, NULL);
    if (draw(&toils[0], 2) == 0) sluice_canal_close(canal);
    _exit(0);
}

static _Noreturn void be_reaper(void)
{
    struct sluice_canal *canal;
    if (sluice_canal_open(path, &options, &canal) != SLUICE_OK) _exit(1);
    for (;;) {
        sluice_canal_reap(canal);
        nap(100);
    }
}

/* ---- the killer ---- */

struct world {
    pid_t worker[WORKERS];
    bool stopped[WORKERS];
    uint64_t operations[WORKERS]; /* When it was last seen to move, and when. */
    int64_t moved_ms[WORKERS];
    pid_t reaper;
    struct sluice_canal *canal; /* The killer's own; it has no slot. */
    uint64_t chance;
    uint64_t kills, reapers, stops, ends, audits, mismatches, total_operations, freed;
};

static uint32_t pick(struct world *w, uint32_t below)
{
    return (uint32_t)(stage_random(&w->chance) >> 33) % below;
}

static void start_worker(struct world *w, uint32_t i)
{
    uint64_t seed = stage_random(&w->chance);
    w->stopped[i] = false;
    w->operations[i] = 0;
    w->moved_ms[i] = stage_now_ms();
    w->worker[i] = stage_fork();
    if (w->worker[i] == 0) be_worker(i, seed);
}

static void start_reaper(struct world *w)
{
    w->reaper = stage_fork();
    if (w->reaper == 0) be_reaper();
}

/* It is dead: forget its notes, and start again. */
static void bury(struct world *w, uint32_t i)
{
    for (uint32_t j = 0; j < THREADS_MAX; j++) {
        w->total_operations += board->notes[i][j].operations;
        memset(&board->notes[i][j], 0, sizeof board->notes[i][j]);
    }
    w->worker[i] = 0;
}

static void kill_worker(struct world *w, uint32_t i)
{
    kill(w->worker[i], SIGKILL);
    while (waitpid(w->worker[i], NULL, 0) < 0 && errno == EINTR) continue;
    bury(w, i);
    w->kills++;
}

static void kill_reaper(struct world *w)
{
    kill(w->reaper, SIGKILL);
    while (waitpid(w->reaper, NULL, 0) < 0 && errno == EINTR) continue;
    w->reapers++;
}

/* Workers that came to their end by themselves. */
static void notice_ends(struct world *w)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (waitpid(w->worker[i], NULL, WNOHANG) != w->worker[i]) continue;
        bury(w, i);
        w->ends++;
        start_worker(w, i);
    }
}

/* ---- audits ---- */

/* Stop a process, all of it: the parent hears of it when its last thread has stopped.
 * False if it has ended instead. */
static bool halt(pid_t pid)
{
    int status;
    kill(pid, SIGSTOP);
    for (;;) {
        pid_t got = waitpid(pid, &status, WUNTRACED);
        if (got < 0 && errno == EINTR) continue;
        if (got != pid) return false;
        return WIFSTOPPED(status);
    }
}

static void mismatch(struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void mismatch(struct world *w, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->mismatches++ < COMPLAINTS_MAX)
        stage_note("audit %" PRIu64 ": %s", w->audits, text);
}

/* Units of a key that belong to threads of the dead. */
static uint64_t left_by_the_dead(const struct world *w, uint32_t key)
{
    const struct sl_canal_segment *seg = &w->canal->seg;
    uint64_t units = 0;
    for (uint32_t r = 0; r < seg->record_count; r++) {
        uint32_t slot = seg->chunks[r / SL_CANAL_CHUNK_RECORDS];
        if (slot == 0 || seg->records[r].key != key) continue;
        bool lives = false;
        for (uint32_t i = 0; i < WORKERS; i++)
            lives |= w->worker[i] == seg->slots[slot - 1].pid;
        if (!lives || sl_canal_slot_is_dead(seg, slot - 1))
            units += sl_canal_counter_effective(seg, r);
    }
    return units;
}

/* Which key each name has, or UINT32_MAX. Not by the index, which a process that is stopped
 * may just be changing; a key that is closing has its name all the same. */
static void find_names(struct world *w, uint32_t key_of[NAMES])
{
    const struct sl_canal_segment *seg = &w->canal->seg;
    char text[SLUICE_KEY_BYTES_MAX + 1];
    for (uint32_t n = 0; n < NAMES; n++) key_of[n] = UINT32_MAX;
    for (uint32_t k = 0; k < seg->key_count; k++) {
        if (!sl_canal_keys_copy_name(seg, k, text)) continue;
        for (uint32_t n = 0; n < NAMES; n++) {
            if (strcmp(names[n], text) != 0) continue;
            if (key_of[n] != UINT32_MAX)
                mismatch(w, "keys %u and %u are both %s", key_of[n], k, text);
            key_of[n] = k;
        }
    }
}

static void audit_name(struct world *w, uint32_t name, uint32_t key)
{
    const struct sl_canal_segment *seg = &w->canal->seg;
    uint64_t certain = 0, maybe = 0, count = 0, dead = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        for (uint32_t j = 0; j < THREADS_MAX; j++) {
            certain += board->notes[i][j].certain[name];
            maybe += board->notes[i][j].maybe[name];
        }
    }
    if (certain > capacity_max(name))
        mismatch(w,
                 "name %u: %" PRIu64 " units are held for certain in a capacity of %u",
                 name, certain, capacity_max(name));
    if (key != UINT32_MAX) {
        count = sl_canal_word_count(sl_canal_word_load(&seg->keys[key].word));
        dead = left_by_the_dead(w, key);
    }
    if (count < certain || count > certain + maybe + dead)
        mismatch(w, "name %u counts %" PRIu64 "; held are %" PRIu64 " to %" PRIu64,
                 name, count, certain, certain + maybe + dead);
}

static void audit_names(struct world *w)
{
    uint32_t key_of[NAMES];
    find_names(w, key_of);
    for (uint32_t n = 0; n < NAMES; n++) audit_name(w, n, key_of[n]);
}

static void audit_progress(struct world *w)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        uint64_t n = board->notes[i][0].operations + board->notes[i][1].operations;
        if (n != w->operations[i] || w->stopped[i]) {
            w->operations[i] = n;
            w->moved_ms[i] = stage_now_ms();
        } else if (stage_now_ms() - w->moved_ms[i] > STUCK_MS) {
            mismatch(w, "worker %u does not move any more", i);
            w->moved_ms[i] = stage_now_ms();
        }
    }
}

static void audit_world(struct world *w)
{
    char why[160];
    bool whole = true;
    w->audits++;
    audit_progress(w);
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (w->stopped[i]) continue;
        if (halt(w->worker[i])) continue;
        bury(w, i); /* It has just ended. */
        w->ends++;
        start_worker(w, i);
        whole &= halt(w->worker[i]);
    }
    whole &= halt(w->reaper);
    if (!whole) stage_bail("the world could not be stopped");
    if (!audit(&w->canal->seg, false, why, sizeof why)) mismatch(w, "%s", why);
    audit_names(w);
    /* Once more, with what the killer itself may reap. */
    w->freed += (uint64_t)sluice_canal_reap(w->canal);
    if (!audit(&w->canal->seg, false, why, sizeof why)) mismatch(w, "reaped: %s", why);
    audit_names(w);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (!w->stopped[i]) kill(w->worker[i], SIGCONT);
    kill(w->reaper, SIGCONT);
}

/* ---- the run ---- */

static void one_round(struct world *w)
{
    uint32_t i = pick(w, WORKERS);
    nap(pick(w, 1200));
    switch (pick(w, 16)) {
        case 0:
            kill_reaper(w);
            start_reaper(w);
            break;
        case 1:
        case 2:
            if (w->stopped[i]) break;
            if (halt(w->worker[i])) {
                w->stopped[i] = true;
                w->stops++;
            } else {
                bury(w, i);
                w->ends++;
                start_worker(w, i);
            }
            break;
        case 3:
        case 4:
        case 5:
            if (w->stopped[i]) kill(w->worker[i], SIGCONT);
            w->stopped[i] = false;
            break;
        default:
            kill_worker(w, i); /* It may be stopped. */
            start_worker(w, i);
    }
    notice_ends(w);
}

/* Everybody is dead: nothing may be left. */
static void judge_end(struct world *w)
{
    char why[160];
    const struct sl_canal_segment *seg = &w->canal->seg;
    for (uint32_t i = 0; i < WORKERS; i++) kill_worker(w, i);
    kill_reaper(w);
    w->freed += (uint64_t)sluice_canal_reap(w->canal);
    uint32_t counts = 0, slots = 0, records = 0;
    for (uint32_t k = 0; k < seg->key_count; k++)
        counts += sl_canal_word_count(sl_canal_word_load(&seg->keys[k].word)) != 0;
    for (uint32_t s = 0; s < seg->slot_count; s++)
        slots += sl_canal_slot_in_use(seg, s);
    for (uint32_t c = 0; c < seg->chunk_count; c++) records += seg->chunks[c] != 0;
    stage_ok(counts == 0 && slots == 0 && records == 0,
             "at the end %u keys count, %u slots and %u chunks are in use", counts,
             slots, records);
    /* A new name takes the key mutex, and mends what a dead maker left. */
    bool usable = true;
    for (uint32_t n = 0; n < NAMES; n++) {
        struct sluice_capacity capacity = {.per = capacity_max(n), .buckets = 1};
        struct sluice_want all = {.units = capacity_max(n)};
        usable &= sluice_canal_acquire(w->canal, names[n], capacity, &all) ==
                  capacity_max(n);
        usable &= sluice_canal_acquire(w->canal, names[n], capacity, NULL) ==
                  SLUICE_EFULL;
        usable &= sluice_canal_release(w->canal, names[n], capacity_max(n)) ==
                  SLUICE_OK;
    }
    uint64_t generations = 0;
    for (uint32_t k = 0; k < seg->key_count; k++)
        generations += seg->keys[k].state >> 2;
    stage_note("keys were given another name %" PRIu64 " times", generations);
    stage_ok(usable, "then every name is filled to its capacity and emptied again");
    bool good = audit(seg, true, why, sizeof why);
    if (!good) stage_note("%s", why);
    stage_ok(good, "and the segment is in order");
}

static void report(const struct world *w)
{
    for (uint32_t i = 0; i < board->complaints && i < COMPLAINTS_MAX; i++)
        stage_note("%s", board->complaint[i]);
    for (int i = 0; i < 32; i++)
        if (board->refused[i] != 0)
            stage_note("answered %s %u times", sluice_status_word(-i),
                       board->refused[i]);
    stage_note("%" PRIu64 " stops, %" PRIu64 " ends, %" PRIu64
               " reapers killed, %" PRIu64 " units reaped in audits",
               w->stops, w->ends, w->reapers, w->freed);
    stage_ok(board->complaints == 0,
             "workers: %u wrong answers in %" PRIu64 " operations", board->complaints,
             w->total_operations);
    stage_ok(w->mismatches == 0 && w->audits > 0,
             "K3 %" PRIu64 " kills, %" PRIu64 " operations, %" PRIu64
             " audits: %" PRIu64 " mismatches",
             w->kills, w->total_operations, w->audits, w->mismatches);
}

int main(int argc, char **argv)
{
    uint64_t seconds = 10;
    struct world w = {.chance = options_seed()};
    const struct test_option program_options[] = {
        {"--long", .number = &seconds, .preset = 3600},
        {"--seconds", .number = &seconds},
        {"--seed", .number = &w.chance},
        {.name = NULL}};
    options_read(argc, argv, "torture [--short | --long] [--seconds N] [--seed N]",
                 program_options);
    stage_open((unsigned)seconds + 600);
    stage_note("torture --seconds %" PRIu64 " --seed %" PRIu64, seconds, w.chance);
    board = stage_shared(sizeof *board);
    make_names();
    stage_path(path);
    int status = sluice_canal_open(path, &options, &w.canal);
    if (status != SLUICE_OK) stage_bail("open: %s", sluice_status_word(status));
    start_reaper(&w);
    for (uint32_t i = 0; i < WORKERS; i++) start_worker(&w, i);
    int64_t until = stage_now_ms() + (int64_t)seconds * 1000, told = stage_now_ms();
    for (uint64_t round = 1;
         (round <= ROUNDS_MIN || stage_now_ms() < until) && w.mismatches < 100;
         round++) {
        one_round(&w);
        if (round % 25 == 0) audit_world(&w);
        if (stage_now_ms() - told > 60000) {
            told = stage_now_ms();
            stage_note("%" PRIu64 " kills, %" PRIu64 " audits, %" PRIu64
                       " mismatches so far",
                       w.kills, w.audits, w.mismatches);
        }
    }
    judge_end(&w);
    report(&w);
    stage_close();
}
