/* keys.h - the key table: creates, finds and reclaims names.
 *
 *     FREE --create--> READY(generation) --close--> CLOSING --not in use--> FREE
 *                         ^                            |       (generation + 1)
 *                         +---------- in use ----------+
 *
 * A search takes no lock. It can fail in one way only: it can miss an existing name
 * while the table is being changed. A thread that creates or reclaims a name holds one
 * robust mutex and repeats the search first. If the holder of the mutex dies, the next
 * holder repairs the table: it rebuilds the index and reopens a closing key.
 *
 * A key keeps its name while any bit of its bitmap is set. A thread that wants to use a
 * key sets its bit and then checks that the key still has the name. The reclaimer
 * closes the key and then reads the bits. So at least one of the two sees the other. A
 * thread that finds its key closing reopens the key and does not wait. The reclaimer
 * frees a key only if the key is still closing. */
#ifndef SL_CANAL_KEYS_H
#define SL_CANAL_KEYS_H

#include "canal/layout.h"

/* A name prepared for a lookup: padded, with its hash. */
struct sl_canal_name {
    struct sl_canal_shm_name padded;
    uint64_t hash;
    uint32_t words; /* Number of words that are not all zero. */
};

/* A key, and the generation that says which of its successive names is meant. */
struct sl_canal_key_ref {
    uint32_t key;
    uint64_t generation;
};

/* Prepare a name. Returns SLUICE_OK, or SLUICE_EINVAL if the name is NULL, empty or too
 * long. */
int sl_canal_keys_name(const struct sl_canal_segment *seg, const char *key,
                       struct sl_canal_name *out);

/* Find a name without taking a lock. Returns false if the name does not exist. May also
 * return false for an existing name while another thread changes the table. */
bool sl_canal_keys_find(const struct sl_canal_segment *seg,
                        const struct sl_canal_name *name, struct sl_canal_key_ref *out);

/* Find a name, without missing an existing one. Returns SLUICE_OK, SLUICE_ENOENT,
 * SLUICE_EBUSY or SLUICE_EIO. */
int sl_canal_keys_lookup(const struct sl_canal_segment *seg,
                         const struct sl_canal_name *name,
                         struct sl_canal_key_ref *out);

/* Return whether a key has this name. The caller must be using the key, so that the
 * name cannot change. */
bool sl_canal_keys_has_name(const struct sl_canal_segment *seg, uint32_t key,
                            const struct sl_canal_name *name);

/* Find a name or create it. If the table is full, the new name replaces an unused one.
 * Returns SLUICE_OK, SLUICE_EKEYS, SLUICE_EIO, or SLUICE_EBUSY if the mutex did not
 * become available within SL_CANAL_KEYS_WAIT_MS. */
#define SL_CANAL_KEYS_WAIT_MS 1000
int sl_canal_keys_make(const struct sl_canal_segment *seg,
                       const struct sl_canal_name *name, struct sl_canal_key_ref *out);

/* Return whether the key still has that name, and reopen it if it is closing. Call this
 * after setting the slot's bit: then a result of true stays valid while the bit is
 * set. */
bool sl_canal_keys_keep(const struct sl_canal_segment *seg,
                        struct sl_canal_key_ref ref);

/* Return whether the key has that name at this moment. */
bool sl_canal_keys_is_current(const struct sl_canal_segment *seg,
                              struct sl_canal_key_ref ref);

/* Copy the name of a key in use, with a terminating NUL. Returns false if the key has
 * no name. */
bool sl_canal_keys_copy_name(const struct sl_canal_segment *seg, uint32_t key,
                             char out[SLUICE_KEY_BYTES_MAX + 1]);

/* Return whether any slot uses the key. */
bool sl_canal_keys_in_use(const struct sl_canal_segment *seg, uint32_t key);

#endif /* SL_CANAL_KEYS_H */
