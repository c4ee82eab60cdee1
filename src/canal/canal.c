/* canal.c - the public functions of canals.
 *
 * An acquire first tries to take the units. If the lock is full, it releases the units
 * of dead threads and tries again. If the lock is still full and the caller wants to
 * wait, it sleeps. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "canal/counter.h"
#include "canal/keys.h"
#include "canal/segment.h"
#include "canal/sleep.h"
#include "canal/slot.h"
#include "canal/thread.h"
#include "sluice.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)

/* A validated request. */
struct canal_request {
    struct sluice_capacity capacity;
    uint32_t cap;
    uint32_t units;
    int64_t wait_ms;
    bool continues_wait;
};

/* --- Requests ------------------------------------------------------------- */

/* Validate a request. Returns SLUICE_OK, SLUICE_EFULL if the capacity is 0,
 * SLUICE_ETOOBIG or SLUICE_EINVAL. */
static inline int check_request(struct sluice_capacity capacity,
                                const struct sluice_want *want,
                                struct canal_request *out)
{
    uint64_t cap = (uint64_t)capacity.per * capacity.buckets;
    *out = (struct canal_request){
        .capacity = capacity, .cap = (uint32_t)cap, .units = 1};
    if (want != NULL) {
        if (want->units != 0) out->units = want->units;
        out->wait_ms = want->wait_ms;
        out->continues_wait = want->continues_wait != 0;
        if (want->wait_ms < SLUICE_FOREVER || want->continues_wait > 1)
            return SLUICE_EINVAL;
    }
    if (cap > SLUICE_CAPACITY_MAX || out->units > SLUICE_UNITS_MAX)
        return SLUICE_ETOOBIG;
    if (LIKELY(out->units <= cap)) return SLUICE_OK;
    return cap == 0 ? SLUICE_EFULL : SLUICE_ETOOBIG;
}

static uint64_t pack_capacity(struct sluice_capacity capacity)
{
    return (uint64_t)capacity.buckets << 32 | capacity.per;
}

/* Read the coarse clock: a precise clock costs more than the whole acquire. */
static int64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void note_capacity(const struct sl_canal_counter *c,
                                 const struct canal_request *q)
{
    __atomic_store_n(&c->record->capacity, pack_capacity(q->capacity),
                     __ATOMIC_RELAXED);
}

/* Try to acquire once. The stores of the capacity and the time are Relaxed because only
 * inspection reads them (inspect.c). For a first acquire they come before the swap, so
 * that the values are right even if the thread is killed after the swap. */
static inline int64_t try_acquire(const struct sl_canal_counter *c,
                                  const struct canal_request *q)
{
    bool first = sl_canal_counter_held(c) == 0;
    if (first) {
        note_capacity(c, q);
        __atomic_store_n(&c->record->since_ms, wall_ms(), __ATOMIC_RELAXED);
    }
    uint32_t nth = sl_canal_counter_acquire(c, q->cap, q->units);
    if (!LIKELY(nth > 0)) return SLUICE_EFULL;
    if (!first) note_capacity(c, q);
    return nth;
}

static inline int release_units(const struct sl_canal_counter *c,
                                struct sl_canal_shm_key *key, uint32_t units)
{
    if (!LIKELY(units > 0)) return SLUICE_EINVAL;
    if (!LIKELY(units <= sl_canal_counter_held(c))) return SLUICE_ENOTHELD;
    sl_canal_counter_release(c, units);
    sl_canal_sleep_wake(key);
    return SLUICE_OK;
}

/* --- When the lock is full ------------------------------------------------ */

/* Release the units of dead threads, then try to acquire. Units of dead threads must
 * not cause SLUICE_EFULL. */
static int64_t acquire_after_reaping(const struct sl_canal_segment *seg, uint32_t key,
                                     const struct sl_canal_counter *c,
                                     const struct canal_request *q)
{
    sl_canal_slot_reap_key(seg, key);
    int64_t nth = try_acquire(
        c, q); /* Try even if we freed no units: another thread may have freed some. */
    return nth == SLUICE_EFULL && !sl_canal_counter_is_sound(c) ? SLUICE_EDAMAGED : nth;
}

/* Record in the slot that its thread waits, for inspection. */
static void note_waiting(struct sl_canal_shm_slot *s, uint32_t key,
                         const struct canal_request *q)
{
    __atomic_store_n(&s->waits_capacity, pack_capacity(q->capacity), __ATOMIC_RELAXED);
    __atomic_store_n(&s->waits_units, q->units, __ATOMIC_RELAXED);
    if (!q->continues_wait)
        __atomic_store_n(&s->waits_since_ms, wall_ms(), __ATOMIC_RELAXED);
    __atomic_store_n(&s->waits_key, key + 1, __ATOMIC_RELEASE);
}

/* Sleep and try, until the units fit or the deadline has passed. */
static int64_t acquire_by_deadline(const struct sl_canal_segment *seg, uint32_t key,
                                   const struct sl_canal_counter *c,
                                   const struct canal_request *q)
{
    struct sl_canal_shm_key *k = &seg->keys[key];
    int64_t deadline_ns = sl_canal_sleep_deadline_ns(q->wait_ms);
    for (;;) {
        uint32_t prepared = sl_canal_sleep_prepare(k);
        /* Try again after sl_canal_sleep_prepare(), because a release before that call
         * does not wake us. */
        int64_t nth = try_acquire(c, q);
        if (nth != SLUICE_EFULL) return nth;
        sl_canal_sleep(k, prepared, deadline_ns);
        nth = try_acquire(c, q);
        if (nth != SLUICE_EFULL) return nth;
        nth = acquire_after_reaping(seg, key, c, q);
        if (nth != SLUICE_EFULL) return nth;
        if (sl_canal_sleep_now_ns() >= deadline_ns) return SLUICE_EFULL;
    }
}

__attribute__((noinline)) static int64_t acquire_slowly(
    struct sl_canal_attachment *att, uint32_t binding, const struct sl_canal_counter *c,
    const struct canal_request *q)
{
    assert(binding < att->binding_count && att->bindings[binding].engaged);
    const struct sl_canal_segment *seg = &att->canal->seg;
    uint32_t key = att->bindings[binding].key;
    assert(key < seg->key_count);
    int64_t nth = acquire_after_reaping(seg, key, c, q);
    if (nth != SLUICE_EFULL || q->wait_ms == 0) return nth;
    note_waiting(&seg->slots[att->slot], key, q);
    nth = acquire_by_deadline(seg, key, c, q);
    __atomic_store_n(&seg->slots[att->slot].waits_key, 0, __ATOMIC_RELEASE);
    return nth;
}

/* --- Open and close ------------------------------------------------------- */

int sluice_canal_open(const char *name, const struct sluice_canal_options *options,
                      struct sluice_canal **out)
{
    if (out == NULL) return SLUICE_EINVAL;
    *out = NULL;
    struct sluice_canal *c = calloc(1, sizeof *c);
    if (c == NULL) return SLUICE_ENOMEM;
    int status = sl_canal_segment_open(name, options, &c->seg);
    if (status == SLUICE_OK) {
        status = sl_canal_segment_find_path(&c->seg, &c->path);
        if (status == SLUICE_OK) status = sl_canal_thread_canal_opened(c);
        if (status == SLUICE_OK) {
            *out = c;
            return SLUICE_OK;
        }
        sl_canal_segment_close(&c->seg);
    }
    free(c->path);
    free(c);
    return status;
}

void sluice_canal_close(struct sluice_canal *c)
{
    if (c != NULL) sl_canal_thread_canal_closed(c);
}

const char *sluice_canal_path(const struct sluice_canal *c)
{
    return c == NULL ? NULL : c->path;
}

int sluice_canal_removed(const struct sluice_canal *c)
{
    if (c == NULL) return SLUICE_EINVAL;
    if (c->path == NULL) return 0;
    return !sl_canal_segment_still_at(c->seg.fd, c->path) ||
           sl_canal_segment_truncated(&c->seg);
}

/* --- By name -------------------------------------------------------------- */

int64_t sluice_canal_acquire(struct sluice_canal *c, const char *key,
                             struct sluice_capacity capacity,
                             const struct sluice_want *want)
{
    struct sl_canal_attachment *att;
    struct sl_canal_name name;
    struct canal_request q;
    uint32_t binding;
    if (c == NULL) return SLUICE_EINVAL;
    int status = sl_canal_keys_name(&c->seg, key, &name);
    if (status == SLUICE_OK) status = check_request(capacity, want, &q);
    if (status == SLUICE_OK) status = sl_canal_thread_attach(c, &att);
    if (status == SLUICE_OK) status = sl_canal_thread_engage(att, &name, &binding);
    if (status != SLUICE_OK) return status;
    struct sl_canal_counter counter = sl_canal_thread_counter(att, binding);
    int64_t nth = try_acquire(&counter, &q);
    if (nth == SLUICE_EFULL) nth = acquire_slowly(att, binding, &counter, &q);
    if (nth < 0)
        sl_canal_thread_settle(
            att, binding); /* If the thread holds units, the binding stays engaged. */
    return nth;
}

int sluice_canal_release(struct sluice_canal *c, const char *key, uint32_t units)
{
    struct sl_canal_name name;
    if (c == NULL || units == 0) return SLUICE_EINVAL;
    int status = sl_canal_keys_name(&c->seg, key, &name);
    if (status != SLUICE_OK) return status;
    struct sl_canal_attachment *att = sl_canal_thread_attached(c);
    if (att == NULL) return SLUICE_ENOTHELD;
    uint32_t binding = sl_canal_thread_engaged(att, &name);
    if (binding == SL_CANAL_BINDING_NONE) return SLUICE_ENOTHELD;
    struct sl_canal_counter counter = sl_canal_thread_counter(att, binding);
    status = release_units(&counter, &c->seg.keys[att->bindings[binding].key], units);
    sl_canal_thread_settle(att, binding);
    return status;
}

static int64_t count_of(struct sl_canal_shm_key *key)
{
    /* Acquire: a thread that sees that units were released also sees the earlier writes
     * of their holder. */
    return (uint32_t)__atomic_load_n(&key->word.lo, __ATOMIC_ACQUIRE);
}

int64_t sluice_canal_count(struct sluice_canal *c, const char *key)
{
    struct sl_canal_name name;
    struct sl_canal_key_ref ref;
    if (c == NULL) return SLUICE_EINVAL;
    int status = sl_canal_keys_name(&c->seg, key, &name);
    if (status == SLUICE_OK) status = sl_canal_keys_lookup(&c->seg, &name, &ref);
    if (status == SLUICE_ENOENT) return 0;
    if (status != SLUICE_OK) return status;
    int64_t count = count_of(&c->seg.keys[ref.key]);
    return sl_canal_keys_is_current(&c->seg, ref)
               ? count
               : 0; /* A key loses its name only when it has no holders. */
}

/* --- By handle ------------------------------------------------------------ */

static int owner_error(const struct sluice_key *k)
{
    return k->fork_era != sl_canal_thread_fork_era ? SLUICE_EFORKED : SLUICE_ETHREAD;
}

int sluice_key_resolve(struct sluice_canal *c, const char *key, struct sluice_key **out)
{
    struct sl_canal_attachment *att;
    struct sl_canal_name name;
    uint32_t binding;
    if (c == NULL || out == NULL) return SLUICE_EINVAL;
    *out = NULL;
    int status = sl_canal_keys_name(&c->seg, key, &name);
    if (status != SLUICE_OK) return status;
    struct sluice_key *k = calloc(1, sizeof *k);
    if (k == NULL) return SLUICE_ENOMEM;
    status = sl_canal_thread_attach(c, &att);
    if (status == SLUICE_OK) status = sl_canal_thread_engage(att, &name, &binding);
    if (status != SLUICE_OK) {
        free(k);
        return status;
    }
    att->bindings[binding].handles++;
    k->counter = sl_canal_thread_counter(att, binding);
    k->key = &c->seg.keys[att->bindings[binding].key];
    k->serial = sl_canal_thread_serial;
    k->fork_era = sl_canal_thread_fork_era;
    k->att = att;
    k->binding = binding;
    k->next = att->handles;
    k->link = &att->handles;
    if (k->next != NULL) k->next->link = &k->next;
    att->handles = k;
    *out = k;
    return SLUICE_OK;
}

int sluice_key_free(struct sluice_key *k)
{
    if (k == NULL) return SLUICE_OK;
    /* Acquire: pairs with forget_handles(). A handle inherited through fork() owns
     * nothing in the segment, so freeing its memory is enough. */
    bool ownerless = k->fork_era != sl_canal_thread_fork_era ||
                     __atomic_load_n(&k->att, __ATOMIC_ACQUIRE) == NULL;
    if (!ownerless) {
        if (k->serial != sl_canal_thread_serial || k->serial == 0)
            return owner_error(k);
        assert(*k->link == k);
        assert(k->att->bindings[k->binding].handles > 0);
        *k->link = k->next;
        if (k->next != NULL) k->next->link = k->link;
        k->att->bindings[k->binding].handles--;
        sl_canal_thread_settle(k->att, k->binding);
    }
    free(k);
    return SLUICE_OK;
}

int64_t sluice_key_acquire(struct sluice_key *k, struct sluice_capacity capacity,
                           const struct sluice_want *want)
{
    struct canal_request q;
    if (!LIKELY(k != NULL)) return SLUICE_EINVAL;
    if (!LIKELY(k->serial == sl_canal_thread_serial) || k->serial == 0)
        return owner_error(k);
    int status = check_request(capacity, want, &q);
    if (!LIKELY(status == SLUICE_OK)) return status;
    int64_t nth = try_acquire(&k->counter, &q);
    if (LIKELY(nth > 0)) return nth;
    return acquire_slowly(k->att, k->binding, &k->counter, &q);
}

int sluice_key_release(struct sluice_key *k, uint32_t units)
{
    if (!LIKELY(k != NULL)) return SLUICE_EINVAL;
    if (!LIKELY(k->serial == sl_canal_thread_serial) || k->serial == 0)
        return owner_error(k);
    return release_units(&k->counter, k->key, units);
}

int64_t sluice_key_count(const struct sluice_key *k)
{
    if (k == NULL) return SLUICE_EINVAL;
    if (k->serial != sl_canal_thread_serial || k->serial == 0) return owner_error(k);
    return count_of(k->key);
}

/* --- Maintain ------------------------------------------------------------- */

int64_t sluice_canal_reap(struct sluice_canal *c)
{
    return c == NULL ? SLUICE_EINVAL : (int64_t)sl_canal_slot_reap_all(&c->seg);
}

int sluice_canal_tether(struct sluice_canal *c, int *fd_out)
{
    struct sl_canal_attachment *att;
    char self[64];
    if (c == NULL || fd_out == NULL || c->seg.fd < 0) return SLUICE_EINVAL;
    int status = sl_canal_thread_attach(c, &att);
    if (status != SLUICE_OK) return status;
    /* Open the file again: the lock belongs to this open file description, and child
     * processes inherit it with the descriptor. */
    snprintf(self, sizeof self, "/proc/self/fd/%d", c->seg.fd);
    int fd = open(self, O_RDWR);
    if (fd < 0) return SLUICE_EIO;
    struct flock l = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = att->slot, .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &l) != 0) {
        int e = errno;
        close(fd);
        errno = e;
        return e == EAGAIN || e == EACCES ? SLUICE_EBUSY : SLUICE_EIO;
    }
    /* Release: a thread that sees the flag also finds the file locked. */
    __atomic_store_n(&c->seg.slots[att->slot].tethered, 1, __ATOMIC_RELEASE);
    *fd_out = fd;
    return SLUICE_OK;
}
