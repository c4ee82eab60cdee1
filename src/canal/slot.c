#include "canal/slot.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "canal/counter.h"
#include "canal/robust.h"
#include "canal/sleep.h"

/* How many times, and for how long, a thread that claims a slot scans all slots while
 * reapers are freeing some of them. */
#define CLAIM_PASSES_MAX 100u
#define CLAIM_NS_MAX 2000000000

/* --- The slot's mutex ----------------------------------------------------- */

/* Read the futex word of the slot's mutex. The word is part of the kernel's interface;
 * its name in the struct is glibc's. Relaxed: the value is only a hint, because callers
 * lock the mutex before they act on it. */
static uint32_t mutex_word(const struct sl_canal_shm_slot *s)
{
    return (uint32_t)__atomic_load_n(&s->mutex.__data.__lock, __ATOMIC_RELAXED);
}

static bool is_tethered(const struct sl_canal_shm_slot *s)
{
    return __atomic_load_n(&s->tethered, __ATOMIC_ACQUIRE) != 0;
}

/* Return whether the thread of a slot is dead. The thread is dead if the kernel has
 * marked the mutex, or if the slot is an orphan: a reaper locked the mutex of the dead
 * thread, found the tether still held, and unlocked the mutex. */
static bool owner_gone(const struct sl_canal_shm_slot *s)
{
    uint32_t word = mutex_word(s);
    return (word & FUTEX_OWNER_DIED) != 0 || (word == 0 && is_tethered(s));
}

/* Return the number of our PID namespace, or 0 if it is unknown. */
static uint32_t own_pid_space(void)
{
    /* Cached for one process only, because a child can be in another namespace.
     * Relaxed: every thread computes the same number. */
    static uint64_t known; /* pid << 32 | number */
    uint64_t seen = __atomic_load_n(&known, __ATOMIC_RELAXED);
    uint32_t pid = (uint32_t)getpid();
    if (seen >> 32 == pid) return (uint32_t)seen;
    struct stat st;
    uint32_t number = stat("/proc/self/ns/pid", &st) == 0 ? (uint32_t)st.st_ino : 0;
    __atomic_store_n(&known, (uint64_t)pid << 32 | number, __ATOMIC_RELAXED);
    return number;
}

/* Detect a dead thread whose mutex the kernel has not marked. This happens if a thread
 * that is not the first of its process executes another program. Such a thread takes
 * over the first thread's id before the kernel handles its robust list, so the kernel
 * does not mark its mutexes. For such threads of other processes, check whether the
 * thread id still exists. (A new thread with the same id in the same process hides the
 * death until the new thread exits. That delays the cleanup but is safe.) Returns the
 * generation whose thread is gone, or 0.
 *
 * The function reads the generation before and after pid and tid, so that both belong
 * to this generation: freeing a slot clears its tid, and a new owner writes pid, then
 * tid, then generation. The function reads the mutex again after the check: the kernel
 * marks mutexes before it frees the thread id, so if the mutex is still unmarked after
 * the id is gone, the kernel will never mark it. */
static uint64_t gone_unmarked(const struct sl_canal_shm_slot *s)
{
    uint64_t generation = __atomic_load_n(&s->generation, __ATOMIC_ACQUIRE);
    uint32_t word = mutex_word(s);
    int32_t tid = __atomic_load_n(&s->tid, __ATOMIC_ACQUIRE);
    int32_t pid = __atomic_load_n(&s->pid, __ATOMIC_ACQUIRE);
    if (tid == pid || tid <= 0 || pid == getpid()) return 0;
    if ((word & FUTEX_OWNER_DIED) != 0 || (word & FUTEX_TID_MASK) != (uint32_t)tid)
        return 0;
    uint32_t space = __atomic_load_n(&s->pid_space, __ATOMIC_ACQUIRE);
    if (space == 0 || space != own_pid_space()) return 0;
    if (tgkill(pid, tid, 0) == 0 || errno != ESRCH) return 0;
    uint32_t after = (uint32_t)__atomic_load_n(&s->mutex.__data.__lock,
                                               __ATOMIC_ACQUIRE);
    if (after != word) return 0;
    return __atomic_load_n(&s->generation, __ATOMIC_ACQUIRE) == generation ? generation
                                                                           : 0;
}

/* Mark the mutex of a thread that is gone, as the kernel should have done. Threads do
 * this under mark_mutex, and once per generation: they set `dying` first and clear it
 * after incrementing the generation, so a late thread finds one of the two changed.
 *
 * Such a slot cannot be freed in any other way. So nothing changes between the checks
 * and the mark, however long we are stopped there. If we are killed there, the slot is
 * lost until the segment is created again. Its units are not lost: other threads
 * release them (being_reaped()). They also do so while mark_mutex is not available
 * (reap_slot()). */
static void mark_if_gone(const struct sl_canal_segment *seg, uint32_t slot)
{
    struct sl_canal_shm_slot *s = &seg->slots[slot];
    pthread_mutex_t *m = &seg->header->mark_mutex;
    uint64_t generation = gone_unmarked(s);
    if (generation == 0) return;
    int e = sl_canal_robust_try(m);
    if (e != 0 && e != EOWNERDEAD) return;
    if (__atomic_load_n(&s->dying, __ATOMIC_ACQUIRE) == 0 &&
        __atomic_load_n(&s->generation, __ATOMIC_ACQUIRE) == generation) {
        __atomic_store_n(&s->dying, generation, __ATOMIC_RELEASE);
        __atomic_store_n(&s->mutex.__data.__lock, (int)FUTEX_OWNER_DIED,
                         __ATOMIC_SEQ_CST);
    }
    sl_canal_robust_unlock(m);
}

/* Return whether a process still holds the file lock of a tethered slot. */
static bool tether_held(const struct sl_canal_segment *seg, uint32_t slot)
{
    assert(slot < seg->slot_count);
    if (!is_tethered(&seg->slots[slot])) return false;
    struct flock l = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    if (seg->fd < 0 || fcntl(seg->fd, F_OFD_GETLK, &l) != 0) return true;
    return l.l_type != F_UNLCK;
}

bool sl_canal_slot_in_use(const struct sl_canal_segment *seg, uint32_t slot)
{
    assert(slot < seg->slot_count);
    return mutex_word(&seg->slots[slot]) != 0 || is_tethered(&seg->slots[slot]);
}

bool sl_canal_slot_inherited(const struct sl_canal_segment *seg, uint32_t slot)
{
    return owner_gone(&seg->slots[slot]) && tether_held(seg, slot);
}

bool sl_canal_slot_is_dead(const struct sl_canal_segment *seg, uint32_t slot)
{
    assert(slot < seg->slot_count);
    const struct sl_canal_shm_slot *s = &seg->slots[slot];
    if (__atomic_load_n(&s->dying, __ATOMIC_ACQUIRE) != 0) return true;
    return owner_gone(s) && !tether_held(seg, slot);
}

/* --- Bits and records ----------------------------------------------------- */

/* Find the next record of a slot, starting at *at. Returns false if there is none. The
 * search reads the owner of every chunk, which takes a few kilobytes of reads. A linked
 * list would be faster, but a kill could break it. */
static bool next_record(const struct sl_canal_segment *seg, uint32_t slot, uint32_t *at)
{
    while (*at < seg->record_count) {
        uint32_t chunk = *at / SL_CANAL_CHUNK_RECORDS;
        if (sl_canal_chunk_slot(seg, chunk) == slot) return true;
        *at = (chunk + 1) * SL_CANAL_CHUNK_RECORDS;
    }
    return false;
}

int sl_canal_slot_take_chunk(const struct sl_canal_segment *seg, uint32_t slot,
                             uint32_t *out)
{
    assert(slot < seg->slot_count);
    for (uint32_t c = 0; c < seg->chunk_count; c++) {
        uint32_t nobody = 0;
        if (__atomic_load_n(&seg->chunks[c], __ATOMIC_RELAXED) != 0) continue;
        /* Acquire: pairs with the release in free_slot(). The chunk's records are
         * idle. */
        if (!__atomic_compare_exchange_n(&seg->chunks[c], &nobody, slot + 1, false,
                                         __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        *out = c * SL_CANAL_CHUNK_RECORDS;
        return SLUICE_OK;
    }
    return SLUICE_ERECORDS;
}

/* --- Reaping -------------------------------------------------------------- */

/* Release the units in a slot's records: those of all keys, or only those of the key
 * `only`. */
static uint64_t reap_records(const struct sl_canal_segment *seg, uint32_t slot,
                             uint64_t generation, uint32_t only)
{
    uint64_t freed = 0;
    for (uint32_t r = 0; next_record(seg, slot, &r); r++) {
        uint32_t key = sl_canal_record_key(seg, r);
        if (key == SL_CANAL_NONE || (only != SL_CANAL_NONE && key != only)) continue;
        uint32_t units = sl_canal_counter_reap(seg, r, &seg->slots[slot], generation);
        if (units > 0) sl_canal_sleep_wake(&seg->keys[key]);
        freed += units;
    }
    return freed;
}

/* Free a slot whose records are all idle. The caller holds the slot's mutex and keeps
 * it. If the caller is killed at any point, the next reaper frees the slot again. */
static void free_slot(const struct sl_canal_segment *seg, uint32_t slot)
{
    assert(slot < seg->slot_count);
    struct sl_canal_shm_slot *s = &seg->slots[slot];
    for (uint32_t r = 0; next_record(seg, slot, &r); r++) {
        uint32_t key = sl_canal_record_key(seg, r);
        if (key != SL_CANAL_NONE) sl_canal_slot_clear_bit(seg, slot, key);
    }
    __atomic_store_n(&s->waits_key, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&s->tethered, 0, __ATOMIC_RELEASE);
    /* Release: change the generation before any record gets a new owner. Pairs with
     * sl_canal_counter_reap(), where a late reaper then stops. */
    __atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&s->dying, 0, __ATOMIC_RELEASE);
    for (uint32_t c = 0; c < seg->chunk_count; c++)
        if (sl_canal_chunk_slot(seg, c) == slot)
            __atomic_store_n(&seg->chunks[c], 0, __ATOMIC_RELEASE);
    /* From now on the slot has no owner. Pairs with gone_unmarked(). */
    __atomic_store_n(&s->tid, 0, __ATOMIC_RELEASE);
}

/* Release all units of a dead slot and free the slot. The caller holds the slot's mutex
 * and keeps it. */
static uint64_t reap_locked(const struct sl_canal_segment *seg, uint32_t slot)
{
    struct sl_canal_shm_slot *s = &seg->slots[slot];
    uint64_t generation = s->generation;
    /* Set `dying` before anything else. If we are stopped or killed after this, other
     * threads see that they must release the units of this slot themselves. */
    __atomic_store_n(&s->dying, generation, __ATOMIC_RELEASE);
    uint64_t freed = reap_records(seg, slot, generation, SL_CANAL_NONE);
    free_slot(seg, slot);
    return freed;
}

/* Become the exclusive reaper of a dead slot and free it. The caller then holds the
 * slot's mutex. Returns false if the slot is not dead or another thread is reaping
 * it. */
static bool reap_exclusively(const struct sl_canal_segment *seg, uint32_t slot,
                             uint64_t *freed)
{
    struct sl_canal_shm_slot *s = &seg->slots[slot];
    mark_if_gone(seg, slot);
    if (!owner_gone(s) || tether_held(seg, slot)) return false;
    int e = sl_canal_robust_try(&s->mutex);
    if (e != 0 && e != EOWNERDEAD) return false;
    if (e == 0 && !is_tethered(s)) { /* Another reaper has freed the slot. */
        sl_canal_robust_unlock(&s->mutex);
        return false;
    }
    *freed += reap_locked(seg, slot);
    return true;
}

/* If the thread of a slot is dead and another thread holds the slot's mutex, return the
 * slot's generation; otherwise return 0. The caller does not wait for that other
 * thread, because it may be stopped.
 *
 * In this state, either the reaper has already set `dying`, or the mutex is locked by a
 * thread whose id is not the slot's tid. A new owner that has locked the mutex but not
 * yet written its tid looks the same. That is harmless: the new owner holds no units
 * yet, and before it acquires any, it writes its tid and increments the generation.
 * This is why the function reads the generation first. */
static uint64_t being_reaped(const struct sl_canal_segment *seg, uint32_t slot)
{
    const struct sl_canal_shm_slot *s = &seg->slots[slot];
    uint64_t generation = __atomic_load_n(&s->generation, __ATOMIC_ACQUIRE);
    uint64_t dying = __atomic_load_n(&s->dying, __ATOMIC_ACQUIRE);
    if (dying != 0) return dying;
    uint32_t word = mutex_word(s);
    uint32_t tid = (uint32_t)__atomic_load_n(&s->tid, __ATOMIC_ACQUIRE);
    bool locked = (word & FUTEX_OWNER_DIED) == 0 && (word & FUTEX_TID_MASK) != 0;
    if (locked && (word & FUTEX_TID_MASK) != tid && !tether_held(seg, slot))
        return generation;
    return 0;
}

static uint64_t reap_slot(const struct sl_canal_segment *seg, uint32_t slot,
                          uint32_t key)
{
    uint64_t freed = 0;
    if (reap_exclusively(seg, slot, &freed)) {
        sl_canal_robust_unlock(&seg->slots[slot].mutex);
        return freed;
    }
    uint64_t generation = being_reaped(seg, slot);
    if (generation == 0 && !tether_held(seg, slot))
        generation = gone_unmarked(&seg->slots[slot]);
    if (generation != 0) freed += reap_records(seg, slot, generation, key);
    return freed;
}

uint64_t sl_canal_slot_reap_key(const struct sl_canal_segment *seg, uint32_t key)
{
    assert(key < seg->key_count);
    uint64_t freed = 0;
    for (uint32_t w = 0; w < seg->bitmap_words; w++) {
        uint64_t bits = __atomic_load_n(&sl_canal_bitmap(seg, key)[w],
                                        __ATOMIC_ACQUIRE);
        for (; bits != 0; bits &= bits - 1) {
            uint32_t slot = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (slot < seg->slot_count) freed += reap_slot(seg, slot, key);
        }
    }
    return freed;
}

uint64_t sl_canal_slot_reap_all(const struct sl_canal_segment *seg)
{
    uint64_t freed = 0;
    for (uint32_t slot = 0; slot < seg->slot_count; slot++)
        freed += reap_slot(seg, slot, SL_CANAL_NONE);
    return freed;
}

/* --- Claiming and leaving a slot ------------------------------------------ */

/* Record the owner of the slot, before the slot is used. Write the tid first, then the
 * generation, with Release: pairs with being_reaped() and gone_unmarked(). The program
 * name is for inspection. */
static void sign(struct sl_canal_shm_slot *s)
{
    uint64_t name[2] = {0};
    prctl(PR_GET_NAME, name, 0, 0, 0);
    __atomic_store_n(&s->program[0], name[0], __ATOMIC_RELAXED);
    __atomic_store_n(&s->program[1], name[1], __ATOMIC_RELAXED);
    __atomic_store_n(&s->pid_space, own_pid_space(), __ATOMIC_RELAXED);
    __atomic_store_n(&s->pid, (int32_t)getpid(), __ATOMIC_RELAXED);
    __atomic_store_n(&s->tid, (int32_t)gettid(), __ATOMIC_RELEASE);
    __atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_RELEASE);
}

/* Lock a slot that seems to be free, and check that it is. */
static bool lock_free_slot(const struct sl_canal_segment *seg, uint32_t slot)
{
    struct sl_canal_shm_slot *s = &seg->slots[slot];
    int e = sl_canal_robust_try(&s->mutex);
    if (e != 0 && e != EOWNERDEAD) return false;
    if (e == 0 && !is_tethered(s)) return true;
    /* Another thread has claimed the slot meanwhile, and died. */
    if (!tether_held(seg, slot)) {
        reap_locked(seg, slot);
        return true;
    }
    sl_canal_robust_unlock(&s->mutex); /* The slot is an orphan. */
    return false;
}

/* Claim a free slot or, from the second pass on, the slot of a dead thread. Sets
 * *moving if a reaper is freeing some slot. */
static bool claim_in_a_pass(const struct sl_canal_segment *seg, unsigned pass,
                            uint32_t *out, bool *moving)
{
    uint64_t freed = 0;
    for (uint32_t slot = 0; slot < seg->slot_count; slot++) {
        if ((!sl_canal_slot_in_use(seg, slot) && lock_free_slot(seg, slot)) ||
            (pass > 0 && reap_exclusively(seg, slot, &freed))) {
            *out = slot;
            return true;
        }
        if (being_reaped(seg, slot) != 0) *moving = true;
    }
    return false;
}

int sl_canal_slot_claim(const struct sl_canal_segment *seg, uint32_t *out)
{
    bool moving = true;
    int64_t begun_ns = sl_canal_sleep_now_ns();
    /* Limit the number of passes, because a reaper may be stopped. */
    for (unsigned pass = 0; moving && pass < CLAIM_PASSES_MAX; pass++) {
        if (pass > 1 && sl_canal_sleep_now_ns() - begun_ns > CLAIM_NS_MAX) break;
        if (pass > 1) sched_yield();
        moving = pass == 0;
        if (!claim_in_a_pass(seg, pass, out, &moving)) continue;
        assert(*out < seg->slot_count);
        sign(&seg->slots[*out]);
        return SLUICE_OK;
    }
    return SLUICE_ESLOTS;
}

void sl_canal_slot_leave(const struct sl_canal_segment *seg, uint32_t slot)
{
    assert(slot < seg->slot_count);
    struct sl_canal_shm_slot *s = &seg->slots[slot];
    if (!tether_held(seg, slot)) { /* Otherwise the slot becomes an orphan. */
        reap_records(seg, slot, s->generation, SL_CANAL_NONE);
        free_slot(seg, slot);
    }
    sl_canal_robust_unlock(&s->mutex);
}
