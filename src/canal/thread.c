#include "canal/thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "canal/robust.h"
#include "canal/segment.h"
#include "canal/slot.h"

/* A record whose seq has reached this value is not bound again. No thread lives long
 * enough to use up the remaining values. */
#define SEQ_MAX (1ull << 63)

/* How many times to try to engage a key before giving up, if another thread reclaims
 * the key each time. In an undamaged segment, one retry is almost always enough. */
#define ENGAGE_TRIES_MAX 1000u

__thread uint64_t sl_canal_thread_serial;
uint32_t sl_canal_thread_fork_era;

/* The calling thread's attachments. */
static __thread struct sl_canal_attachment *attached;
static __thread uint32_t attached_count;

/* Guards the list of canals, their attachments and their reference counts. A thread
 * does not hold this mutex while it waits for anything in shared memory. */
static pthread_mutex_t canals_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sluice_canal *canals;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static int once_result = SLUICE_ENOMEM;

/* --- Canals of this process ----------------------------------------------- */

/* Drop a reference; dropping the last one destroys the canal. The caller holds
 * canals_mutex. */
static void unref(struct sluice_canal *c)
{
    assert(c->refs > 0);
    if (--c->refs > 0) return;
    assert(c->closed && c->attachments == NULL);
    struct sluice_canal **p = &canals;
    while (*p != c) p = &(*p)->next;
    *p = c->next;
    sl_canal_segment_close(&c->seg);
    free(c->path);
    free(c);
}

/* Mark the handles of an attachment that ends as belonging to no thread, so that any
 * thread may free them. Release, and the last access: another thread may free the
 * handle immediately. */
static void forget_handles(struct sl_canal_attachment *att)
{
    for (struct sluice_key *k = att->handles, *next; k != NULL; k = next) {
        next = k->next;
        k->serial = 0;
        __atomic_store_n(&k->att, NULL, __ATOMIC_RELEASE);
    }
}

static void free_attachment(struct sl_canal_attachment *att)
{
    free(att->bindings);
    free(att->map);
    free(att);
}

/* Leave the slot and free the attachment. */
static void detach(struct sl_canal_attachment *att)
{
    struct sluice_canal *c = att->canal;
    struct sl_canal_attachment **p = &attached;
    while (*p != att) p = &(*p)->next_of_thread;
    *p = att->next_of_thread;
    forget_handles(att);
    sl_canal_slot_leave(&c->seg, att->slot);
    attached_count--;
    pthread_mutex_lock(&canals_mutex);
    for (p = &c->attachments; *p != att; p = &(*p)->next_of_canal) {}
    *p = att->next_of_canal;
    unref(c);
    pthread_mutex_unlock(&canals_mutex);
    free_attachment(att);
}

/* --- Thread exit and fork ------------------------------------------------- */

static void on_thread_exit(void *unused)
{
    (void)unused;
    while (attached != NULL) detach(attached);
}

static void before_fork(void)
{
    pthread_mutex_lock(&canals_mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&canals_mutex);
}

/* Forget all attachments, without touching shared memory: the child has a copy of the
 * attachments, but the slots belong to the parent. The child does not free the
 * attachments of other threads, because those threads may have been changing them
 * during the fork. */
static void after_fork_in_child(void)
{
    sl_canal_thread_fork_era++;
    sl_canal_thread_serial = 0;
    sl_canal_robust_forked();
    for (struct sl_canal_attachment *att = attached, *next; att != NULL; att = next) {
        next = att->next_of_thread;
        free_attachment(att);
    }
    attached = NULL;
    attached_count = 0;
    for (struct sluice_canal *c = canals, *next; c != NULL; c = next) {
        next = c->next;
        c->attachments = NULL;
        c->refs = 1;
        if (c->closed) unref(c);
    }
    pthread_mutex_unlock(&canals_mutex);
}

static void prepare_once(void)
{
    if (pthread_key_create(&exit_key, on_thread_exit) != 0) return;
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
        return;
    once_result = SLUICE_OK;
}

int sl_canal_thread_canal_opened(struct sluice_canal *c)
{
    pthread_once(&once, prepare_once);
    if (once_result != SLUICE_OK) return once_result;
    pthread_mutex_lock(&canals_mutex);
    c->refs = 1;
    c->next = canals;
    canals = c;
    pthread_mutex_unlock(&canals_mutex);
    return SLUICE_OK;
}

void sl_canal_thread_canal_closed(struct sluice_canal *c)
{
    struct sl_canal_attachment *att = sl_canal_thread_attached(c);
    if (att != NULL) detach(att);
    pthread_mutex_lock(&canals_mutex);
    c->closed = true;
    unref(c);
    pthread_mutex_unlock(&canals_mutex);
}

/* --- Attaching ------------------------------------------------------------ */

struct sl_canal_attachment *sl_canal_thread_attached(const struct sluice_canal *c)
{
    for (struct sl_canal_attachment *a = attached; a != NULL; a = a->next_of_thread)
        if (a->canal == c) return a;
    return NULL;
}

static uint64_t next_serial(void)
{
    static uint64_t last; /* Relaxed: the numbers only have to be unique. */
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

int sl_canal_thread_attach(struct sluice_canal *c, struct sl_canal_attachment **out)
{
    *out = sl_canal_thread_attached(c);
    if (*out != NULL) return SLUICE_OK;
    if (attached_count >= SLUICE_SEGMENTS_MAX) return SLUICE_ESEGMENTS;
    struct sl_canal_attachment *att = calloc(1, sizeof *att);
    /* Any value that is not NULL makes the exit handler run. */
    if (att == NULL || pthread_setspecific(exit_key, att) != 0) {
        free(att);
        return SLUICE_ENOMEM;
    }
    int status = sl_canal_slot_claim(&c->seg, &att->slot);
    if (status != SLUICE_OK) {
        free(att);
        return status;
    }
    att->canal = c;
    att->oldest = att->newest = SL_CANAL_BINDING_NONE;
    if (sl_canal_thread_serial == 0) sl_canal_thread_serial = next_serial();
    att->next_of_thread = attached;
    attached = att;
    attached_count++;
    pthread_mutex_lock(&canals_mutex);
    assert(c->refs > 0 && !c->closed);
    c->refs++;
    att->next_of_canal = c->attachments;
    c->attachments = att;
    pthread_mutex_unlock(&canals_mutex);
    *out = att;
    return SLUICE_OK;
}

/* --- Idle bindings: a list, oldest first ---------------------------------- */

static void idle_append(struct sl_canal_attachment *att, uint32_t b)
{
    struct sl_canal_binding *all = att->bindings;
    all[b].older = att->newest;
    all[b].newer = SL_CANAL_BINDING_NONE;
    if (att->newest == SL_CANAL_BINDING_NONE) att->oldest = b;
    else all[att->newest].newer = b;
    att->newest = b;
}

static void idle_remove(struct sl_canal_attachment *att, uint32_t b)
{
    struct sl_canal_binding *all = att->bindings;
    uint32_t older = all[b].older, newer = all[b].newer;
    if (older == SL_CANAL_BINDING_NONE) att->oldest = newer;
    else all[older].newer = newer;
    if (newer == SL_CANAL_BINDING_NONE) att->newest = older;
    else all[newer].older = older;
}

/* --- The map from keys to bindings ---------------------------------------- */

static uint32_t map_home(const struct sl_canal_attachment *att, uint32_t key)
{
    return (key * 2654435761u >> 7) & att->map_mask;
}

static uint32_t map_find(const struct sl_canal_attachment *att, uint32_t key)
{
    if (att->map == NULL) return SL_CANAL_BINDING_NONE;
    for (uint32_t at = map_home(att, key); att->map[at] != 0;
         at = (at + 1) & att->map_mask)
        if (att->bindings[att->map[at] - 1].key == key) return att->map[at] - 1;
    return SL_CANAL_BINDING_NONE;
}

static void map_put(struct sl_canal_attachment *att, uint32_t b)
{
    uint32_t at = map_home(att, att->bindings[b].key);
    while (att->map[at] != 0) at = (at + 1) & att->map_mask;
    att->map[at] = b + 1;
}

static void map_remove(struct sl_canal_attachment *att, uint32_t b)
{
    uint32_t mask = att->map_mask, hole = map_home(att, att->bindings[b].key);
    while (att->map[hole] != b + 1) hole = (hole + 1) & mask;
    for (uint32_t at = (hole + 1) & mask; att->map[at] != 0; at = (at + 1) & mask) {
        uint32_t home = map_home(att, att->bindings[att->map[at] - 1].key);
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        att->map[hole] = att->map[at];
        hole = at;
    }
    att->map[hole] = 0;
}

/* --- Binding and engaging ------------------------------------------------- */

/* Allocate memory for one more chunk of bindings. */
static int reserve_bindings(struct sl_canal_attachment *att)
{
    uint32_t want = att->binding_count + SL_CANAL_CHUNK_RECORDS;
    if (att->map == NULL || want * 2 > att->map_mask + 1) {
        uint32_t size = att->map == NULL ? 4 * SL_CANAL_CHUNK_RECORDS
                                         : 2 * (att->map_mask + 1);
        struct sl_canal_binding *bigger = realloc(att->bindings,
                                                  size / 2 * sizeof *bigger);
        if (bigger == NULL) return SLUICE_ENOMEM;
        att->bindings = bigger;
        uint32_t *map = calloc(size, sizeof *map);
        if (map == NULL) return SLUICE_ENOMEM;
        free(att->map);
        att->map = map;
        att->map_mask = size - 1;
        for (uint32_t b = 0; b < att->binding_count; b++)
            if (att->bindings[b].key != UINT32_MAX) map_put(att, b);
    }
    return SLUICE_OK;
}

/* Get more records for this slot, as idle bindings. */
static int grow(struct sl_canal_attachment *att)
{
    const struct sl_canal_segment *seg = &att->canal->seg;
    uint32_t first;
    int status = reserve_bindings(att);
    if (status != SLUICE_OK) return status;
    status = sl_canal_slot_take_chunk(seg, att->slot, &first);
    if (status != SLUICE_OK) {
        sl_canal_slot_reap_all(seg); /* Dead threads may have records. */
        status = sl_canal_slot_take_chunk(seg, att->slot, &first);
    }
    if (status != SLUICE_OK) return status;
    for (uint32_t i = 0; i < SL_CANAL_CHUNK_RECORDS; i++) {
        uint32_t b = att->binding_count++;
        att->bindings[b] = (struct sl_canal_binding){.record = first + i,
                                                     .key = UINT32_MAX};
        /* A record whose seq is used up is not added to a list, so it is never bound.
         * The same applies to a record that had no owner but holds units, which happens
         * only in a damaged segment. */
        struct sl_canal_pair s = sl_canal_word_load(&seg->records[first + i].state);
        if (s.hi < SEQ_MAX && s.lo == 0) idle_append(att, b);
    }
    return SLUICE_OK;
}

/* Bind the oldest idle binding to a key. */
static int bind(struct sl_canal_attachment *att, uint32_t key, uint32_t *out)
{
    while (att->oldest == SL_CANAL_BINDING_NONE) {
        int status = grow(att);
        if (status != SLUICE_OK) return status;
    }
    uint32_t b = att->oldest;
    assert(b < att->binding_count && !att->bindings[b].engaged);
    assert(att->bindings[b].handles == 0);
    struct sl_canal_binding *binding = &att->bindings[b];
    struct sl_canal_shm_record *r = &att->canal->seg.records[binding->record];
    if (binding->key != UINT32_MAX) map_remove(att, b);
    /* The record is idle. A late reaper of an earlier owner has read a state that was
     * not idle, and reads the key after the state. States never repeat. So if the
     * reaper finds the state unchanged afterwards, it has read the right key. */
    __atomic_store_n(&r->key, key, __ATOMIC_RELEASE);
    binding->key = key;
    map_put(att, b);
    *out = b;
    return SLUICE_OK;
}

int sl_canal_thread_engage(struct sl_canal_attachment *att,
                           const struct sl_canal_name *name, uint32_t *out)
{
    const struct sl_canal_segment *seg = &att->canal->seg;
    for (unsigned tries = 0; tries < ENGAGE_TRIES_MAX; tries++) {
        struct sl_canal_key_ref ref;
        if (!sl_canal_keys_find(seg, name, &ref)) {
            int status = sl_canal_keys_make(seg, name, &ref);
            if (status != SLUICE_OK) return status;
        }
        /* Prefetch both cache lines. Atomic instructions change them later, and the
         * processor does not start such instructions early. */
        __builtin_prefetch(&seg->keys[ref.key].word, 1);
        __builtin_prefetch(&sl_canal_bitmap(seg, ref.key)[att->slot / 64], 1);
        uint32_t b = map_find(att, ref.key);
        if (b != SL_CANAL_BINDING_NONE && att->bindings[b].engaged) {
            *out = b; /* The slot's bit is set, so the key still has its name. */
            return SLUICE_OK;
        }
        if (b == SL_CANAL_BINDING_NONE) {
            int status = bind(att, ref.key, &b);
            if (status != SLUICE_OK) return status;
        }
        /* Set the bit after the record names the key, so that a reaper finds the
         * bit. */
        sl_canal_slot_set_bit(seg, att->slot, ref.key);
        if (sl_canal_keys_keep(seg, ref)) {
            idle_remove(att, b);
            att->bindings[b].engaged = true;
            *out = b;
            return SLUICE_OK;
        }
        sl_canal_slot_clear_bit(seg, att->slot, ref.key);
    }
    return SLUICE_EBUSY;
}

uint32_t sl_canal_thread_engaged(const struct sl_canal_attachment *att,
                                 const struct sl_canal_name *name)
{
    const struct sl_canal_segment *seg = &att->canal->seg;
    struct sl_canal_key_ref ref;
    if (sl_canal_keys_find(seg, name, &ref)) {
        uint32_t b = map_find(att, ref.key);
        return b != SL_CANAL_BINDING_NONE && att->bindings[b].engaged
                   ? b
                   : SL_CANAL_BINDING_NONE;
    }
    /* The search can miss a name while another thread changes the table. So search the
     * engaged bindings too, whose keys keep their names. */
    for (uint32_t b = 0; b < att->binding_count; b++)
        if (att->bindings[b].engaged &&
            sl_canal_keys_has_name(seg, att->bindings[b].key, name))
            return b;
    return SL_CANAL_BINDING_NONE;
}

void sl_canal_thread_settle(struct sl_canal_attachment *att, uint32_t binding)
{
    assert(binding < att->binding_count);
    struct sl_canal_binding *b = &att->bindings[binding];
    const struct sl_canal_shm_record *r = &att->canal->seg.records[b->record];
    /* Relaxed: while this thread lives, no other thread writes the state. */
    uint64_t lo = __atomic_load_n(&r->state.lo, __ATOMIC_RELAXED);
    if (!b->engaged || b->handles > 0 || sl_canal_record_held(lo) > 0) return;
    b->engaged = false;
    sl_canal_slot_clear_bit(&att->canal->seg, att->slot, b->key);
    idle_append(att, binding);
}

/* --- Invariants ------------------------------------------------------------ */

static uint32_t check_idle_list(const struct sl_canal_attachment *att)
{
    uint32_t count = 0, older = SL_CANAL_BINDING_NONE;
    for (uint32_t b = att->oldest; b != SL_CANAL_BINDING_NONE;
         older = b, b = att->bindings[b].newer) {
        assert(b < att->binding_count && !att->bindings[b].engaged);
        assert(att->bindings[b].older == older && ++count <= att->binding_count);
    }
    assert(att->newest == older);
    return count;
}

static uint64_t check_handles(const struct sl_canal_attachment *att)
{
    uint64_t count = 0;
    struct sluice_key *const *link = &att->handles;
    for (; *link != NULL; link = &(*link)->next, count++) {
        const struct sluice_key *k = *link;
        assert(k->link == link && k->att == att && k->serial == sl_canal_thread_serial);
        assert(k->binding < att->binding_count && att->bindings[k->binding].engaged);
    }
    return count;
}

void sl_canal_thread_check(const struct sl_canal_attachment *att)
{
    const struct sl_canal_segment *seg = &att->canal->seg;
    uint32_t idle = 0, bound = 0, mapped = 0;
    uint64_t handles = 0;
    assert(att->slot < seg->slot_count);
    assert(att->binding_count % SL_CANAL_CHUNK_RECORDS == 0);
    for (uint32_t b = 0; b < att->binding_count; b++) {
        const struct sl_canal_binding *binding = &att->bindings[b];
        assert(binding->record < seg->record_count);
        assert(binding->engaged || binding->handles == 0);
        idle += !binding->engaged;
        handles += binding->handles;
        if (binding->key == UINT32_MAX) {
            assert(!binding->engaged);
            continue;
        }
        assert(binding->key < seg->key_count && map_find(att, binding->key) == b);
        bound++;
    }
    for (uint32_t i = 0; att->map != NULL && i <= att->map_mask; i++)
        mapped += att->map[i] != 0;
    assert(mapped == bound);
    /* Records whose seq is used up are in no list. */
    assert(check_idle_list(att) <= idle);
    assert(check_handles(att) == handles);
}
