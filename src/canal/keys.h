/* keys.h - the key table: names are created, found and reclaimed.
 *
 *     FREE --create--> READY(generation) --close--> CLOSING --not in use--> FREE
 *                         ^                            |       (generation + 1)
 *                         +---------- in use ----------+
 *
 * A search takes no lock. It can fail in one way only: it can miss an existing name while
 * the table is being changed. Names are created and reclaimed under one robust mutex,
 * after another search. If its holder dies, the next one repairs the table: it rebuilds
 * the index and reopens a closing key.
 *
 * A key keeps its name while a bit of its bitmap is set. A user sets its bit and then
 * checks that the key still has the name. The reclaimer closes the key and then reads the
 * bits. So one of them sees the other. A user that finds its key closing reopens it and
 * does not wait; the reclaimer frees only a key that is still closed. */
#ifndef SL_CANAL_KEYS_H
#define SL_CANAL_KEYS_H

#include "canal/layout.h"

/* A name prepared for a lookup: padded, with its hash. */
struct sl_canal_name {
    struct sl_canal_shm_name padded;
    uint64_t hash;
    uint32_t words; /* Number of words that are not all zero. */
};

/* A key, and which of its names is meant. */
struct sl_canal_key_ref {
    uint32_t key;
    uint64_t generation;
};

/* Prepare a name. SLUICE_EINVAL if it is NULL, empty or too long. */
int sl_canal_keys_name(const struct sl_canal_segment *seg, const char *key,
                       struct sl_canal_name *out);

/* Find a name without a lock. Returns false if the name does not exist, and
 * sometimes while the table is being changed. */
bool sl_canal_keys_find(const struct sl_canal_segment *seg,
                        const struct sl_canal_name *name, struct sl_canal_key_ref *out);

/* The same, but exact: SLUICE_OK, SLUICE_ENOENT, SLUICE_EBUSY or SLUICE_EIO. */
int sl_canal_keys_lookup(const struct sl_canal_segment *seg,
                         const struct sl_canal_name *name,
                         struct sl_canal_key_ref *out);

/* Whether a key has this name. The caller uses the key, so the name cannot change. */
bool sl_canal_keys_has_name(const struct sl_canal_segment *seg, uint32_t key,
                            const struct sl_canal_name *name);

/* Find a name or create it, in place of an unused one if the table is full.
 * SLUICE_EKEYS; SLUICE_EIO; SLUICE_EBUSY if the mutex was not available for
 * SL_CANAL_KEYS_WAIT_MS. */
#define SL_CANAL_KEYS_WAIT_MS 1000
int sl_canal_keys_make(const struct sl_canal_segment *seg,
                       const struct sl_canal_name *name, struct sl_canal_key_ref *out);

/* Whether the key still has that name; reopens a closing key. Call this after
 * setting the slot's bit: then the result remains true while the bit is set. */
bool sl_canal_keys_keep(const struct sl_canal_segment *seg,
                        struct sl_canal_key_ref ref);

/* Whether the key has that name at this moment. */
bool sl_canal_keys_is_current(const struct sl_canal_segment *seg,
                              struct sl_canal_key_ref ref);

/* Copy the name of a key in use, with a terminating NUL. Returns false if it has
 * none. */
bool sl_canal_keys_copy_name(const struct sl_canal_segment *seg, uint32_t key,
                             char out[SLUICE_KEY_BYTES_MAX + 1]);

/* Whether any slot uses the key. */
bool sl_canal_keys_in_use(const struct sl_canal_segment *seg, uint32_t key);

#endif /* SL_CANAL_KEYS_H */
