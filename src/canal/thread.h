/* thread.h - the state that one thread keeps for one segment.
 *
 * A thread that uses a canal is *attached* to it: it has a slot, and *bindings*. A
 * binding is a record of the slot, together with the key that the record is bound to. A
 * binding is *engaged* while the thread holds the key, waits for it, operates on it or
 * has a handle for it. While a binding is engaged, the slot's bit is set and the key
 * keeps its name. An *idle* binding only remembers its key, and can be rebound to
 * another key.
 *
 * This state is private to the thread, so it needs no lock. An attachment ends when its
 * thread closes the canal or exits. After fork(), the child has no attachments. */
#ifndef SL_CANAL_THREAD_H
#define SL_CANAL_THREAD_H

#include "canal/counter.h"
#include "canal/keys.h"

struct sl_canal_attachment;

/* An open canal, as this process sees it. */
struct sluice_canal {
    struct sl_canal_segment seg;
    char *path;    /* Path of the segment's file; NULL: anonymous. */
    uint32_t refs; /* 1 while open, 1 for each attachment. */
    bool closed;
    struct sl_canal_attachment *attachments; /* The attachments of all threads. */
    struct sluice_canal *next;
};

/* A handle for a key. */
struct sluice_key {
    struct sl_canal_counter counter;
    struct sl_canal_shm_key *key;
    uint64_t serial; /* Serial number of its thread; 0: no thread owns it. */
    struct sl_canal_attachment *att; /* NULL: its thread has exited. */
    uint32_t binding;
    /* The value of sl_canal_thread_fork_era in the process that created it. */
    uint32_t fork_era;
    struct sluice_key *next;
    struct sluice_key **link; /* The pointer to this handle. */
};

#define SL_CANAL_BINDING_NONE UINT32_MAX

struct sl_canal_binding {
    uint32_t record;
    uint32_t key; /* UINT32_MAX: none yet. */
    uint32_t handles;
    bool engaged;
    uint32_t older, newer; /* The list of idle bindings, oldest first. */
};

struct sl_canal_attachment {
    struct sluice_canal *canal;
    uint32_t slot;
    struct sl_canal_binding *bindings;
    uint32_t binding_count;
    uint32_t *map; /* Binding + 1, found by key; 0: empty. */
    uint32_t map_mask;
    uint32_t oldest, newest; /* Idle bindings. */
    struct sluice_key *handles;
    struct sl_canal_attachment *next_of_thread;
    struct sl_canal_attachment *next_of_canal;
};

/* A number that identifies the calling thread in this process; 0 until the thread is
 * first attached. Every operation by handle compares this number with that of the
 * handle. */
extern __thread uint64_t sl_canal_thread_serial;

/* How many fork() calls separate this process from the first one. Identifies a process
 * among its ancestors. */
extern uint32_t sl_canal_thread_fork_era;

/* Register an open canal; unregister it when the calling thread closes it. The memory
 * is freed when the last attachment ends. */
int sl_canal_thread_canal_opened(struct sluice_canal *c);
void sl_canal_thread_canal_closed(struct sluice_canal *c);

/* Return the calling thread's attachment to a canal, or NULL. */
struct sl_canal_attachment *sl_canal_thread_attached(const struct sluice_canal *c);

/* Get the calling thread's attachment to a canal; create it if there is none. Returns
 * SLUICE_OK, SLUICE_ENOMEM, SLUICE_ESLOTS or SLUICE_ESEGMENTS. */
int sl_canal_thread_attach(struct sluice_canal *c, struct sl_canal_attachment **out);

/* Engage a binding for a name: find or create the key, bind a record to it, set the
 * slot's bit, and check that the key still has the name. Returns SLUICE_OK,
 * SLUICE_ENOMEM, SLUICE_EKEYS, SLUICE_ERECORDS, SLUICE_EBUSY or SLUICE_EIO. After
 * SLUICE_OK, call sl_canal_thread_settle() when the operation has ended. */
int sl_canal_thread_engage(struct sl_canal_attachment *att,
                           const struct sl_canal_name *name, uint32_t *out);

/* Return the engaged binding for a name, or SL_CANAL_BINDING_NONE. */
uint32_t sl_canal_thread_engaged(const struct sl_canal_attachment *att,
                                 const struct sl_canal_name *name);

/* Disengage the binding if the thread holds no units of its key and has no handle for
 * it. Call this after every operation. */
void sl_canal_thread_settle(struct sl_canal_attachment *att, uint32_t binding);

/* Check the invariants of the calling thread's attachment. They concern only private
 * memory: idle bindings are in one list, bound bindings are in the map, and handles
 * belong to engaged bindings. For tests. */
void sl_canal_thread_check(const struct sl_canal_attachment *att);

/* Return the counter that the operations of a binding use. */
static inline struct sl_canal_counter sl_canal_thread_counter(
    const struct sl_canal_attachment *att, uint32_t binding)
{
    const struct sl_canal_segment *seg = &att->canal->seg;
    const struct sl_canal_binding *b = &att->bindings[binding];
    return (struct sl_canal_counter){
        .word = &seg->keys[b->key].word,
        .record = &seg->records[b->record],
        .records = seg->records,
        .record_count = seg->record_count,
        .tag = b->record + 1,
    };
}

#endif /* SL_CANAL_THREAD_H */
