/* keys.h - names come and go.
 *
 *     FREE --make--> READY(generation) --close--> CLOSING --nobody uses it--> FREE
 *                       ^                            |          (generation + 1)
 *                       +------- somebody does ------+
 *
 * Finding a name takes no lock and may be wrong in one way only: it may miss a name
 * that is there, while the table is being changed. Making and reclaiming names is done
 * under one robust mutex, and begins with finding the name again. Who dies with the
 * mutex leaves nothing that the next one cannot mend: the index is built anew, and a
 * key that was closing is ready again.
 *
 * A key keeps its name while any bit of its bitmap is set. Who uses a key therefore
 * sets its bit and then looks whether the key is still what it was; who reclaims it
 * closes it and then looks at the bits. One of the two sees the other. A user that finds
 * its key closing opens it again and does not wait; the reclaimer frees only what is
 * still closed. */
#ifndef SL_CANAL_KEYS_H
#define SL_CANAL_KEYS_H

#include "canal/layout.h"

/* A name ready to be looked up: padded, with its hash. */
struct sl_canal_name {
    struct sl_canal_shm_name padded;
    uint64_t hash;
    uint32_t words; /* That are not all zero. */
};

/* Which key, and which of the names it has had. */
struct sl_canal_key_ref {
    uint32_t key;
    uint64_t generation;
};

/* Prepare a name. SLUICE_EINVAL if it is NULL, empty or too long. */
int sl_canal_keys_name(const struct sl_canal_segment *seg, const char *key,
                       struct sl_canal_name *out);

/* Find a name; false if it is not there, or just now cannot be seen. */
bool sl_canal_keys_find(const struct sl_canal_segment *seg,
                        const struct sl_canal_name *name, struct sl_canal_key_ref *out);

/* The same, but never wrong: SLUICE_OK, SLUICE_ENOENT, or SLUICE_EBUSY. */
int sl_canal_keys_lookup(const struct sl_canal_segment *seg,
                         const struct sl_canal_name *name,
                         struct sl_canal_key_ref *out);

/* Whether a key that cannot lose its name, since the caller uses it, has this one. */
bool sl_canal_keys_has_name(const struct sl_canal_segment *seg, uint32_t key,
                            const struct sl_canal_name *name);

/* Find a name or make it, taking the place of one that nobody uses if need be.
 * SLUICE_EKEYS; SLUICE_EBUSY when the mutex could not be had in SL_CANAL_KEYS_WAIT_MS. */
#define SL_CANAL_KEYS_WAIT_MS 1000
int sl_canal_keys_make(const struct sl_canal_segment *seg,
                       const struct sl_canal_name *name, struct sl_canal_key_ref *out);

/* Whether the key still has that name; opened again if it was closing. Ask after the
 * slot's bit was set: then the answer stays true while the bit is. */
bool sl_canal_keys_keep(const struct sl_canal_segment *seg,
                        struct sl_canal_key_ref ref);

/* Whether the key still has that name, as far as a look goes. */
bool sl_canal_keys_is_current(const struct sl_canal_segment *seg,
                              struct sl_canal_key_ref ref);

/* Copy the name of a key that is in use, with a closing NUL; false if it has none. */
bool sl_canal_keys_copy_name(const struct sl_canal_segment *seg, uint32_t key,
                             char out[SLUICE_KEY_BYTES_MAX + 1]);

/* Whether any slot uses the key. */
bool sl_canal_keys_in_use(const struct sl_canal_segment *seg, uint32_t key);

#endif /* SL_CANAL_KEYS_H */
