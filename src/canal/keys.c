#include "canal/keys.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "canal/counter.h"
#include "canal/robust.h"
#include "canal/slot.h"

/* --- Names ---------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Return the bytes after the last whole word of a name, padded with zeros. */
static uint64_t last_word(const char *key, size_t n)
{
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
                   "the first byte is the lowest");
    size_t rest = n % 8;
    uint64_t word = 0;
    if (n >= 8 && rest > 0) {
        memcpy(&word, key + n - 8, 8);
        return word >> (64 - 8 * rest);
    }
    for (size_t i = 0; i < rest; i++) word |= (uint64_t)(unsigned char)key[i] << 8 * i;
    return word;
}

/* Each segment has a random hash seed, so that no user can prepare names that collide.
 * The function copies word by word because the compiler turns a memcpy() of n bytes
 * into a string instruction, which is slower than the rest of this function. */
int sl_canal_keys_name(const struct sl_canal_segment *seg, const char *key,
                       struct sl_canal_name *out)
{
    if (key == NULL) return SLUICE_EINVAL;
    size_t n = strnlen(key, SLUICE_KEY_BYTES_MAX + 1);
    if (n == 0 || n > SLUICE_KEY_BYTES_MAX) return SLUICE_EINVAL;
    uint32_t last = (uint32_t)(n / 8);
    out->words = last + 1; /* The name ends with at least one zero byte. */
    uint64_t h = seg->header->seed ^ out->words;
    for (uint32_t i = 0; i <= last; i++) {
        uint64_t word;
        if (i < last) memcpy(&word, key + 8 * i, 8);
        else word = last_word(key, n);
        out->padded.words[i] = word;
        h = mix(h ^ word ^ 0x9e3779b97f4a7c15ull, 0xd6e8feb86659fd93ull);
    }
    out->hash = mix(h, 0xa0761d6478bd642full);
    return SLUICE_OK;
}

/* Compare a name that another thread may change meanwhile; the caller then checks the
 * state again. The last word of a name contains its terminating zero, so names are
 * equal if this many words are equal. */
static bool same_name(const struct sl_canal_segment *seg, uint32_t key,
                      const struct sl_canal_name *name)
{
    const struct sl_canal_shm_name *there = &seg->names[key];
    if (__atomic_load_n(&seg->keys[key].hash, __ATOMIC_RELAXED) != name->hash)
        return false;
    for (uint32_t i = 0; i < name->words; i++)
        if (__atomic_load_n(&there->words[i], __ATOMIC_RELAXED) !=
            name->padded.words[i])
            return false;
    return true;
}

static uint64_t key_state(const struct sl_canal_segment *seg, uint32_t key)
{
    return __atomic_load_n(&seg->keys[key].state, __ATOMIC_ACQUIRE);
}

/* Return whether a key in this state (READY or CLOSING) has a name. An invalid state,
 * in a damaged segment, counts as FREE. */
static bool has_name(uint64_t state)
{
    _Static_assert(SL_CANAL_KEY_READY == 1 && SL_CANAL_KEY_CLOSING == 2,
                   "one bit tells them");
    return ((state + 1u) & 2u) != 0;
}

static bool index_empty(const struct sl_canal_segment *seg, uint32_t at)
{
    return __atomic_load_n(&seg->index[at], __ATOMIC_ACQUIRE) == 0;
}

/* A key in state CLOSING still has its name, so this function finds it. */
bool sl_canal_keys_find(const struct sl_canal_segment *seg,
                        const struct sl_canal_name *name, struct sl_canal_key_ref *out)
{
    uint32_t at = (uint32_t)name->hash & seg->index_mask;
    for (uint32_t probes = 0; probes <= seg->index_mask; probes++) {
        uint32_t key = sl_canal_index_key(seg, at);
        if (key == SL_CANAL_NONE) {
            if (index_empty(seg, at)) return false;
        } else {
            uint64_t before = key_state(seg, key);
            bool same = has_name(before) && same_name(seg, key, name);
            /* Acquire: read the name before reading the state again. */
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            if (same && key_state(seg, key) >> 2 == before >> 2) {
                *out = (struct sl_canal_key_ref){.key = key, .generation = before >> 2};
                return true;
            }
        }
        at = (at + 1) & seg->index_mask;
    }
    return false;
}

bool sl_canal_keys_is_current(const struct sl_canal_segment *seg,
                              struct sl_canal_key_ref ref)
{
    assert(ref.key < seg->key_count);
    return key_state(seg, ref.key) >> 2 == ref.generation;
}

bool sl_canal_keys_has_name(const struct sl_canal_segment *seg, uint32_t key,
                            const struct sl_canal_name *name)
{
    assert(key < seg->key_count);
    assert(name->words > 0 && name->words <= SL_CANAL_NAME_WORDS);
    return same_name(seg, key, name);
}

bool sl_canal_keys_keep(const struct sl_canal_segment *seg, struct sl_canal_key_ref ref)
{
    const uint64_t ready = sl_canal_key_state_make(ref.generation, SL_CANAL_KEY_READY);
    uint64_t closing = sl_canal_key_state_make(ref.generation, SL_CANAL_KEY_CLOSING);
    /* Read the state after setting the bit. Pairs with reclaim(), which closes the key
     * before it reads the bits. */
    sl_canal_word_fence();
    if (key_state(seg, ref.key) == ready) return true;
    /* Do not wait for the reclaimer, which may be stopped: it frees a key only if the
     * key is still closing. */
    return __atomic_compare_exchange_n(&seg->keys[ref.key].state, &closing, ready,
                                       false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE) ||
           closing == ready;
}

bool sl_canal_keys_in_use(const struct sl_canal_segment *seg, uint32_t key)
{
    assert(key < seg->key_count);
    const uint64_t *bits = sl_canal_bitmap(seg, key);
    for (uint32_t w = 0; w < seg->bitmap_words; w++)
        if (__atomic_load_n(&bits[w], __ATOMIC_SEQ_CST) != 0) return true;
    return sl_canal_word_count(sl_canal_word_load(&seg->keys[key].word)) != 0;
}

bool sl_canal_keys_copy_name(const struct sl_canal_segment *seg, uint32_t key,
                             char out[SLUICE_KEY_BYTES_MAX + 1])
{
    assert(key < seg->key_count);
    uint64_t before = key_state(seg, key);
    if (!has_name(before)) return false;
    uint64_t words[SL_CANAL_NAME_WORDS];
    for (uint32_t i = 0; i < SL_CANAL_NAME_WORDS; i++)
        words[i] = __atomic_load_n(&seg->names[key].words[i], __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (key_state(seg, key) >> 2 != before >> 2) return false;
    memcpy(out, words, sizeof words);
    out[SLUICE_KEY_BYTES_MAX] = '\0';
    return true;
}

/* --- The index; under the mutex ------------------------------------------- */

/* Add a key. Returns false if there is no empty entry, which happens only in a damaged
 * index. */
static bool index_put(const struct sl_canal_segment *seg, uint32_t key)
{
    assert(key < seg->key_count);
    uint32_t at = (uint32_t)seg->keys[key].hash & seg->index_mask;
    for (uint32_t probes = 0; !index_empty(seg, at); probes++) {
        if (probes == seg->index_mask) return false;
        at = (at + 1) & seg->index_mask;
    }
    /* Release: a thread that sees the entry also sees the name and the state. */
    __atomic_store_n(&seg->index[at], key + 1, __ATOMIC_RELEASE);
    return true;
}

/* Begin or end a change of the index; `changes` is odd during a change. If `changes`
 * was even and stayed the same during a search that found nothing, the search has not
 * missed a name. */
static void index_changes(const struct sl_canal_segment *seg, uint32_t odd)
{
    uint32_t n = seg->header->changes;
    if ((n & 1u) != odd)
        __atomic_store_n(&seg->header->changes, n + 1, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Remove a key, and move the entries behind it so that no search ends too early.
 * Returns false if the index is damaged and must be rebuilt. */
static bool index_remove(const struct sl_canal_segment *seg, uint32_t key)
{
    uint32_t mask = seg->index_mask, probes = 0;
    uint32_t hole = (uint32_t)seg->keys[key].hash & mask;
    while (sl_canal_index_key(seg, hole) != key) {
        if (index_empty(seg, hole)) return true;
        if (probes++ == mask) return false;
        hole = (hole + 1) & mask;
    }
    index_changes(seg, 1);
    for (uint32_t at = (hole + 1) & mask; !index_empty(seg, at); at = (at + 1) & mask) {
        uint32_t moved = sl_canal_index_key(seg, at);
        if (moved == SL_CANAL_NONE || probes++ == 2 * mask) return false;
        uint32_t home = (uint32_t)seg->keys[moved].hash & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        __atomic_store_n(&seg->index[hole], moved + 1, __ATOMIC_RELEASE);
        hole = at;
    }
    __atomic_store_n(&seg->index[hole], 0, __ATOMIC_RELEASE);
    index_changes(seg, 0);
    return true;
}

/* Rebuild the index, because the last holder of the mutex died at some point of a
 * change, or because the index is damaged. */
static void rebuild_index(const struct sl_canal_segment *seg)
{
    index_changes(seg, 1);
    for (uint32_t i = 0; i <= seg->index_mask; i++)
        __atomic_store_n(&seg->index[i], 0, __ATOMIC_RELAXED);
    for (uint32_t k = 0; k < seg->key_count; k++) {
        uint64_t state = key_state(seg, k);
        if (!has_name(state)) continue;
        __atomic_store_n(&seg->keys[k].state,
                         sl_canal_key_state_make(state >> 2, SL_CANAL_KEY_READY),
                         __ATOMIC_RELEASE);
        (void)index_put(seg, k); /* The index has two entries per key. */
    }
    index_changes(seg, 0);
}

static int lock_keys(const struct sl_canal_segment *seg)
{
    struct timespec until; /* Use a timeout, because the holder may be stopped. */
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SL_CANAL_KEYS_WAIT_MS / 1000;
    int e = sl_canal_robust_lock(&seg->header->key_mutex, &until);
    if (e == ETIMEDOUT) return SLUICE_EBUSY;
    if (e == EOWNERDEAD) {
        rebuild_index(seg);
        return SLUICE_OK;
    }
    if (e != 0) {
        errno = e;
        return SLUICE_EIO;
    }
    return SLUICE_OK;
}

/* --- Creating and reclaiming keys; under the mutex ------------------------ */

/* Free a key that has a name, unless it is in use. */
static bool reclaim(const struct sl_canal_segment *seg, uint32_t key)
{
    assert(key < seg->key_count);
    struct sl_canal_shm_key *k = &seg->keys[key];
    uint64_t generation = key_state(seg, key) >> 2;
    const uint64_t ready = sl_canal_key_state_make(generation, SL_CANAL_KEY_READY);
    const uint64_t freed = sl_canal_key_state_make(generation + 1, SL_CANAL_KEY_FREE);
    uint64_t closing = sl_canal_key_state_make(generation, SL_CANAL_KEY_CLOSING);
    if (sl_canal_keys_in_use(seg, key))
        return false; /* Do not close a key that is in use. */
    /* Sequentially consistent: pairs with sl_canal_keys_keep(), where a user can
     * reopen the key at any moment. */
    __atomic_store_n(&k->state, closing, __ATOMIC_SEQ_CST);
    bool used = sl_canal_keys_in_use(seg, key);
    if (!__atomic_compare_exchange_n(&k->state, &closing, used ? ready : freed, false,
                                     __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return false;
    /* If we are killed before this call, the next holder of the mutex rebuilds the
     * index. */
    if (!used && !index_remove(seg, key)) rebuild_index(seg);
    return !used;
}

/* Find a key without a name: one that was never used, or the next key that is not in
 * use. */
static bool find_free(const struct sl_canal_segment *seg, uint32_t *out)
{
    struct sl_canal_shm_header *h = seg->header;
    uint32_t fresh = __atomic_load_n(&h->fresh, __ATOMIC_RELAXED);
    if (fresh < seg->key_count) {
        *out = fresh;
        __atomic_store_n(&h->fresh, fresh + 1, __ATOMIC_RELAXED);
        if (!has_name(key_state(seg, *out))) return true;
    }
    for (uint32_t n = 0; n < seg->key_count; n++) {
        uint32_t key = h->hand % seg->key_count;
        h->hand = (key + 1) % seg->key_count;
        if (!has_name(key_state(seg, key)) || reclaim(seg, key)) {
            *out = key;
            return true;
        }
    }
    return false;
}

/* Give a free key its name. If we are killed before the state is READY, the key stays
 * free. */
static void give_name(const struct sl_canal_segment *seg, uint32_t key,
                      const struct sl_canal_name *name)
{
    struct sl_canal_shm_key *k = &seg->keys[key];
    /* Release: other threads see that the key is free before its old name is
     * overwritten. Pairs with the fence in sl_canal_keys_find(). */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (uint32_t i = 0; i < SL_CANAL_NAME_WORDS; i++)
        __atomic_store_n(&seg->names[key].words[i],
                         i < name->words ? name->padded.words[i] : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&k->hash, name->hash, __ATOMIC_RELAXED);
    __atomic_store_n(
        &k->state,
        sl_canal_key_state_make(key_state(seg, key) >> 2, SL_CANAL_KEY_READY),
        __ATOMIC_RELEASE);
    if (!index_put(seg, key)) rebuild_index(seg);
}

int sl_canal_keys_lookup(const struct sl_canal_segment *seg,
                         const struct sl_canal_name *name, struct sl_canal_key_ref *out)
{
    const uint32_t *changes = &seg->header->changes;
    uint32_t before = __atomic_load_n(changes, __ATOMIC_ACQUIRE);
    if (sl_canal_keys_find(seg, name, out)) return SLUICE_OK;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if ((before & 1u) == 0 && __atomic_load_n(changes, __ATOMIC_ACQUIRE) == before)
        return SLUICE_ENOENT;
    int status = lock_keys(seg);
    if (status != SLUICE_OK) return status;
    status = sl_canal_keys_find(seg, name, out) ? SLUICE_OK : SLUICE_ENOENT;
    sl_canal_robust_unlock(&seg->header->key_mutex);
    return status;
}

int sl_canal_keys_make(const struct sl_canal_segment *seg,
                       const struct sl_canal_name *name, struct sl_canal_key_ref *out)
{
    assert(name->words > 0 && name->words <= SL_CANAL_NAME_WORDS);
    int status = lock_keys(seg);
    if (status != SLUICE_OK) return status;
    if (!sl_canal_keys_find(seg, name, out)) {
        uint32_t key = 0;
        bool found = find_free(seg, &key);
        if (!found) {
            /* Dead threads still have their bits set. */
            sl_canal_slot_reap_all(seg);
            found = find_free(seg, &key);
        }
        if (found) {
            give_name(seg, key, name);
            *out = (struct sl_canal_key_ref){.key = key,
                                             .generation = key_state(seg, key) >> 2};
        } else {
            status = SLUICE_EKEYS;
        }
    }
    sl_canal_robust_unlock(&seg->header->key_mutex);
    return status;
}
