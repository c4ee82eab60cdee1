#include "rivals.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <unistd.h>

#include "canal/word.h"
#include "oracle/buckets.h"

/* Two cache lines for each lock, as in Sluice. Processors fetch lines in pairs, so
 * adjacent locks would slow each other down. */
#define CELL_BYTES 128u

/* ---- the loops ---- */

/* Two for each lock: always one key, or the keys in the order of the site. `id`_thing()
 * finds what the lock's functions need for a key, `id`_pair() is the pair, true if it
 * was granted; both are inlined. */
/* clang-format off */
#define LOOPS(id, type)                                                               \
    static uint32_t id##_one(struct seat *s, uint32_t pairs)                          \
    {                                                                                 \
        const struct sluice_capacity capacity = s->place->site.capacity;                          \
        type const thing = id##_thing(s->place, s->key);                              \
        uint32_t granted = 0;                                                         \
        for (uint32_t i = 0; i < pairs; i++) granted += id##_pair(thing, capacity);       \
        return granted;                                                               \
    }                                                                                 \
    static uint32_t id##_many(struct seat *s, uint32_t pairs)                         \
    {                                                                                 \
        const struct sluice_capacity capacity = s->place->site.capacity;                          \
        const struct place *const p = s->place;                                       \
        const uint32_t *const order = p->site.order;                                  \
        const uint32_t mask = p->site.order_mask;                                     \
        uint32_t granted = 0, next = s->next;                                         \
        for (uint32_t i = 0; i < pairs; i++)                                          \
            granted += id##_pair(id##_thing(p, order[next++ & mask]), capacity);          \
        s->next = next;                                                               \
        return granted;                                                               \
    }
/* clang-format on */

#define INLINE static inline __attribute__((always_inline))

/* ---- shared memory for locks that need it ---- */

static const char *cells_map(struct place *p, size_t cell_bytes)
{
    p->cell_bytes = (cell_bytes + CELL_BYTES - 1u) / CELL_BYTES * CELL_BYTES;
    p->cells_bytes = p->cell_bytes * p->site.keys;
    void *base = mmap(NULL, p->cells_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return "no memory";
    p->cells = base;
    return NULL;
}

static void cells_unmap(struct place *p)
{
    munmap(p->cells, p->cells_bytes);
}

INLINE void *cell(const struct place *p, size_t bytes, uint32_t key)
{
    /* A constant, as in a typical program. */
    return p->cells +
           (size_t)key * ((bytes + CELL_BYTES - 1u) / CELL_BYTES * CELL_BYTES);
}

static const char *sit_as_opened(struct place *p, uint32_t seat)
{
    (void)p, (void)seat;
    return NULL;
}

/* ---- bare compare-and-swap, 8 bytes ---- */

/* The minimum of such a lock: load, compare with the capacity, swap. It is inlined
 * and does not record holders. */

static const char *cas8_open(struct place *p)
{
    const char *refused = cells_map(p, sizeof(uint64_t));
    if (refused == NULL) *(uint64_t *)p->cells = p->site.held;
    return refused;
}

INLINE uint64_t *cas8_thing(const struct place *p, uint32_t key)
{
    return cell(p, sizeof(uint64_t), key);
}

INLINE bool cas8_pair(uint64_t *count, struct sluice_capacity capacity)
{
    const uint64_t cap = (uint64_t)capacity.per * capacity.buckets;
    /* Acquire order for the acquire and release order for the release, as for any
     * lock; relaxed for the load, since the swap compares. */
    uint64_t seen = __atomic_load_n(count, __ATOMIC_RELAXED);
    do {
        if (seen >= cap) return false;
    } while (!__atomic_compare_exchange_n(count, &seen, seen + 1, true,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    seen = __atomic_load_n(count, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(count, &seen, seen - 1, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {}
    return true;
}

static int64_t cas8_count(struct place *p, uint32_t key)
{
    return (int64_t)__atomic_load_n(cas8_thing(p, key), __ATOMIC_ACQUIRE);
}

LOOPS(cas8, uint64_t *)

/* ---- bare compare-and-swap, 16 bytes ---- */

/* The same with the instruction that ours stands on. Loaded in two halves: that is the
 * fastest way where a 16-byte load right behind a 16-byte swap would have to wait for
 * it. If they do not fit together, the swap says so. */

static const char *cas16_open(struct place *p)
{
    const char *refused = cells_map(p, sizeof(struct sl_canal_word));
    if (refused == NULL) ((struct sl_canal_word *)(void *)p->cells)->lo = p->site.held;
    return refused;
}

INLINE struct sl_canal_word *cas16_thing(const struct place *p, uint32_t key)
{
    return cell(p, sizeof(struct sl_canal_word), key);
}

INLINE struct sl_canal_pair cas16_look(const struct sl_canal_word *w)
{
    return (struct sl_canal_pair){.lo = __atomic_load_n(&w->lo, __ATOMIC_RELAXED),
                                  .hi = __atomic_load_n(&w->hi, __ATOMIC_RELAXED)};
}

INLINE bool cas16_pair(struct sl_canal_word *w, struct sluice_capacity capacity)
{
    const uint64_t cap = (uint64_t)capacity.per * capacity.buckets;
    struct sl_canal_pair seen = cas16_look(w);
    do {
        if (seen.lo >= cap) return false;
    } while (!sl_canal_word_swap(w, &seen,
                                 (struct sl_canal_pair){seen.lo + 1, seen.hi + 1}));
    seen = cas16_look(w);
    while (!sl_canal_word_swap(w, &seen,
                               (struct sl_canal_pair){seen.lo - 1, seen.hi + 1})) {}
    return true;
}

static int64_t cas16_count(struct place *p, uint32_t key)
{
    return (int64_t)__atomic_load_n(&cas16_thing(p, key)->lo, __ATOMIC_ACQUIRE);
}

LOOPS(cas16, struct sl_canal_word *)

/* ---- POSIX semaphore ---- */

static uint32_t capacity_left(const struct place *p, uint32_t key)
{
    return p->site.capacity.per * p->site.capacity.buckets -
           (key == 0 ? p->site.held : 0);
}

INLINE sem_t *posix_thing(const struct place *p, uint32_t key)
{
    return cell(p, sizeof(sem_t), key);
}

static const char *posix_open(struct place *p)
{
    const char *refused = cells_map(p, sizeof(sem_t));
    if (refused != NULL) return refused;
    for (uint32_t k = 0; k < p->site.keys; k++)
        if (sem_init(posix_thing(p, k), 1, capacity_left(p, k)) != 0) {
            cells_unmap(p);
            return "sem_init() failed";
        }
    return NULL;
}

INLINE bool posix_pair(sem_t *s, struct sluice_capacity capacity)
{
    (void)capacity; /* The capacity is fixed at creation. */
    return sem_trywait(s) == 0 && sem_post(s) == 0;
}

static int64_t posix_count(struct place *p, uint32_t key)
{
    int value = -1;
    sem_getvalue(posix_thing(p, key), &value);
    return (int64_t)p->site.capacity.per * p->site.capacity.buckets - value;
}

LOOPS(posix, sem_t *)

/* ---- SysV semaphore with SEM_UNDO ---- */

/* One operation for each, with a capacity that is fixed at creation: the minimum. A
 * capacity that is declared on every call takes two operations in one call. */

#define SET_SEMAPHORES 25000u /* The kernel allows 32000 in one set by default. */

struct sysv_thing {
    int set;
    unsigned short number;
};

INLINE struct sysv_thing sysv_thing(const struct place *p, uint32_t key)
{
    return (struct sysv_thing){p->sets[key / SET_SEMAPHORES],
                               (unsigned short)(key % SET_SEMAPHORES)};
}

static void sysv_close(struct place *p)
{
    for (uint32_t i = 0; i < p->set_count; i++) semctl(p->sets[i], 0, IPC_RMID);
    free(p->sets);
}

static const char *sysv_open(struct place *p)
{
    union {
        int value;
        unsigned short *values;
    } argument;
    uint32_t sets = (p->site.keys + SET_SEMAPHORES - 1) / SET_SEMAPHORES;
    p->sets = calloc(sets, sizeof *p->sets);
    unsigned short *values = calloc(SET_SEMAPHORES, sizeof *values);
    bool good = p->sets != NULL && values != NULL;
    for (uint32_t k = 0; good && k < p->site.keys; k += SET_SEMAPHORES) {
        uint32_t count = p->site.keys - k < SET_SEMAPHORES ? p->site.keys - k
                                                           : SET_SEMAPHORES;
        for (uint32_t i = 0; i < count; i++)
            values[i] = (unsigned short)capacity_left(p, k + i);
        int id = semget(IPC_PRIVATE, (int)count, IPC_CREAT | 0600);
        good = id >= 0;
        if (good) p->sets[p->set_count++] = id;
        argument.values = values;
        good = good && semctl(id, 0, SETALL, argument) == 0;
    }
    free(values);
    if (good) return NULL;
    sysv_close(p);
    return "the kernel does not allow these semaphores";
}

INLINE bool sysv_pair(struct sysv_thing t, struct sluice_capacity capacity)
{
    (void)capacity;
    const short flags = IPC_NOWAIT | SEM_UNDO;
    struct sembuf take = {.sem_num = t.number, .sem_op = -1, .sem_flg = flags};
    struct sembuf give = {.sem_num = t.number, .sem_op = 1, .sem_flg = flags};
    return semop(t.set, &take, 1) == 0 && semop(t.set, &give, 1) == 0;
}

static int64_t sysv_count(struct place *p, uint32_t key)
{
    struct sysv_thing t = sysv_thing(p, key);
    return (int64_t)p->site.capacity.per * p->site.capacity.buckets -
           semctl(t.set, t.number, GETVAL);
}

LOOPS(sysv, struct sysv_thing)

/* ---- flock(2) ---- */

/* The lock of a file: one holder. If two processes share a key it is acquired as a reader,
 * which excludes no one: rejected calls would be faster than grants. */

struct flock_thing {
    int file;
    int how;
};

INLINE struct flock_thing flock_thing(const struct place *p, uint32_t key)
{
    bool shared = p->site.seats > 1 && !p->site.apart;
    return (struct flock_thing){p->files[key], (shared ? LOCK_SH : LOCK_EX) | LOCK_NB};
}

static void flock_close(struct place *p)
{
    for (uint32_t i = 0; i < p->site.keys; i++) close(p->files[i]);
}

static const char *flock_open(struct place *p)
{
    if (p->site.keys > SEATS_MAX) return "it needs a file for each key";
    for (uint32_t i = 0; i < p->site.keys; i++) p->files[i] = -1;
    for (uint32_t i = 0; i < p->site.keys; i++) {
        p->files[i] = memfd_create("bench", MFD_CLOEXEC);
        if (p->files[i] < 0) {
            flock_close(p);
            return "cannot create a file";
        }
    }
    return NULL;
}

/* Such a lock belongs to an open file description, so each process opens the file
 * itself. */
static const char *flock_sit(struct place *p, uint32_t seat)
{
    (void)seat;
    for (uint32_t i = 0; i < p->site.keys; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", p->files[i]);
        p->files[i] = open(path, O_RDWR | O_CLOEXEC);
        if (p->files[i] < 0) return "/proc is not mounted";
    }
    return NULL;
}

INLINE bool flock_pair(struct flock_thing t, struct sluice_capacity capacity)
{
    (void)capacity;
    return flock(t.file, t.how) == 0 && flock(t.file, LOCK_UN) == 0;
}

static int64_t flock_count(struct place *p, uint32_t key)
{
    if (flock(p->files[key], LOCK_EX | LOCK_NB) != 0) return 1;
    flock(p->files[key], LOCK_UN);
    return 0;
}

LOOPS(flock, struct flock_thing)

/* ---- canal lock's buckets ---- */

/* Only the algorithm: without ETS and without a process that monitors the holders,
 * both of which cost far more. */

INLINE struct buckets *buckets_thing(const struct place *p, uint32_t key)
{
    return cell(p, sizeof(struct buckets), key);
}

static const char *buckets_open(struct place *p)
{
    const struct sluice_capacity capacity = p->site.capacity;
    const char *refused = cells_map(p, sizeof(struct buckets));
    if (refused != NULL) return refused;
    for (uint32_t k = 0; k < p->site.keys; k++)
        buckets_init(buckets_thing(p, k), capacity.per);
    for (uint32_t i = 0; i < p->site.held; i++)
        buckets_acquire(buckets_thing(p, 0), capacity.per, capacity.buckets);
    return NULL;
}

INLINE bool buckets_pair(struct buckets *b, struct sluice_capacity capacity)
{
    return buckets_acquire(b, capacity.per, capacity.buckets).word ==
               BUCKETS_ACQUIRED &&
           buckets_release(b, capacity.per).word == BUCKETS_OK;
}

static int64_t buckets_held(struct place *p, uint32_t key)
{
    return buckets_count(buckets_thing(p, key), p->site.capacity.per);
}

LOOPS(buckets, struct buckets *)

/* ---- Sluice ---- */

const char *canal_open(struct sluice_canal **out, uint32_t keys)
{
    /* Enough keys and records, and at least the defaults. */
    struct sluice_canal_options o = {.keys = keys + 4096, .records = keys + 16384};
    char name[64];
    snprintf(name, sizeof name, "bench.%d", (int)getpid());
    int status = sluice_canal_open(name, &o, out);
    sluice_canal_remove(
        name); /* Processes that have the file open keep it; no file is left behind. */
    if (status == SLUICE_ENOSPC) {
        o.anonymous = 1; /* The same memory without a file. */
        status = sluice_canal_open(NULL, &o, out);
    }
    return status == SLUICE_OK ? NULL : sluice_status_text(status);
}

char (*names_make(uint32_t keys))[16]
{
    char(*names)[16] = calloc(keys, sizeof *names);
    if (names == NULL) return NULL;
    for (uint32_t k = 0; k < keys; k++)
        snprintf(names[k], sizeof names[k], "bench:%06u", k % 1000000u);
    return names;
}

static void ours_close(struct place *p)
{
    sluice_canal_close(p->canal);
    free(p->names);
}

static const char *ours_open(struct place *p)
{
    p->names = names_make(p->site.keys);
    if (p->names == NULL) return "no memory";
    const char *refused = canal_open(&p->canal, p->site.keys);
    if (refused != NULL) {
        free(p->names);
        return refused;
    }
    struct sluice_want want = {.units = p->site.held};
    if (p->site.held == 0) return NULL;
    int64_t nth = sluice_canal_acquire(p->canal, p->names[0], p->site.capacity, &want);
    if (nth == p->site.held) return NULL;
    ours_close(p);
    return sluice_status_text(nth);
}

static int64_t ours_count(struct place *p, uint32_t key)
{
    return sluice_canal_count(p->canal, p->names[key]);
}

/* Use each key once, in order, so that they are adjacent in the table. */
static const char *name_sit(struct place *p, uint32_t seat)
{
    if (seat != 0) return NULL;
    for (uint32_t k = 0; k < p->site.keys; k++) {
        int64_t nth = sluice_canal_acquire(p->canal, p->names[k], p->site.capacity,
                                           NULL);
        if (nth <= 0) return sluice_status_text(nth);
        sluice_canal_release(p->canal, p->names[k], 1);
    }
    return NULL;
}

struct name_thing {
    struct sluice_canal *canal;
    const char *key;
};

INLINE struct name_thing name_thing(const struct place *p, uint32_t key)
{
    return (struct name_thing){p->canal, p->names[key]};
}

INLINE bool name_pair(struct name_thing t, struct sluice_capacity capacity)
{
    return sluice_canal_acquire(t.canal, t.key, capacity, NULL) > 0 &&
           sluice_canal_release(t.canal, t.key, 1) == SLUICE_OK;
}

LOOPS(name, struct name_thing)

static const char *handle_sit(struct place *p, uint32_t seat)
{
    (void)seat;
    p->handles = calloc(p->site.keys, sizeof(struct sluice_key *));
    if (p->handles == NULL) return "no memory";
    for (uint32_t k = 0; k < p->site.keys; k++) {
        int status = sluice_key_resolve(p->canal, p->names[k], &p->handles[k]);
        if (status != SLUICE_OK) return sluice_status_text(status);
    }
    return NULL;
}

INLINE struct sluice_key *handle_thing(const struct place *p, uint32_t key)
{
    return p->handles[key];
}

INLINE bool handle_pair(struct sluice_key *k, struct sluice_capacity capacity)
{
    return sluice_key_acquire(k, capacity, NULL) > 0 &&
           sluice_key_release(k, 1) == SLUICE_OK;
}

LOOPS(handle, struct sluice_key *)

/* ---- all locks ---- */

#define LOOPS_OF(id) .one = id##_one, .many = id##_many

const struct rival rivals[RIVALS] = {
    [CAS8] = {"cas8", "bare compare-and-swap, 8 bytes", "lost",
              "One locked instruction each way and nothing else. It does not record "
              "holders, so the units of a killed holder are lost.",
              cas8_open, sit_as_opened, LOOPS_OF(cas8), cas8_count, cells_unmap},
    [CAS16] = {"cas16", "bare compare-and-swap, 16 bytes", "lost",
               "The same with the instruction that Sluice uses: what remains of Sluice "
               "without the call, the checks and the record that survives a kill.",
               cas16_open, sit_as_opened, LOOPS_OF(cas16), cas16_count, cells_unmap},
    [POSIX] = {"posix", "POSIX semaphore", "lost",
               "It only counts, with an 8-byte instruction each way. Its size is fixed "
               "when it is created, and the units of a killed holder are lost.",
               posix_open, sit_as_opened, LOOPS_OF(posix), posix_count, cells_unmap},
    [SYSV] = {"sysv", "SysV semaphore, SEM_UNDO", "released",
              "The kernel records the units of each process and releases them when "
              "the process exits. It need not search for them.",
              sysv_open, sit_as_opened, LOOPS_OF(sysv), sysv_count, sysv_close},
    [FLOCK] = {"flock", "flock(2)", "released",
               "The kernel releases the lock with the file. But the lock admits one "
               "writer or any number of readers; it does not count.",
               flock_open, flock_sit, LOOPS_OF(flock), flock_count, flock_close},
    [BUCKETS] =
        {"buckets", "canal lock's buckets", "need a monitor",
         "Only its counters, without the process that monitors the holders: "
         "8-byte instructions, and no record of holders. Concurrent callers can "
         "exceed the capacity.",
         buckets_open, sit_as_opened, LOOPS_OF(buckets), buckets_held, cells_unmap,
         true},
    [NAME] = {"name", "Sluice by name", "released", NULL, ours_open, name_sit,
              LOOPS_OF(name), ours_count, ours_close},
    [HANDLE] = {"handle", "Sluice by handle", "released", NULL, ours_open, handle_sit,
                LOOPS_OF(handle), ours_count, ours_close},
};

const char *place_open(struct place *p, const struct rival *r, const struct site *site)
{
    *p = (struct place){.site = *site};
    return r->open(p);
}
