/* thread.h - the relation of one thread to one segment.
 *
 * A thread that uses a canal is *attached* to it: it has a slot, and *bindings*. A binding
 * is a record of the slot and the key that the record is bound to. It is *engaged* while
 * the thread holds the key, waits for it, operates on it or has a handle for it. Then the
 * slot's bit is set and the key keeps its name. An idle binding only remembers its key, and
 * is rebound when another key needs a binding.
 *
 * All this is private to the thread, so it needs no lock. An attachment ends when its
 * thread closes the canal or exits. The child of a fork has none. */
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
    struct sl_canal_attachment *attachments; /* Those of all threads. */
    struct sluice_canal *next;
};

/* A resolved key. */
struct sluice_key {
    struct sl_canal_counter counter;
    struct sl_canal_shm_key *key;
    uint64_t serial;                 /* Serial number of its thread; 0: it has none. */
    struct sl_canal_attachment *att; /* NULL: its thread has exited. */
    uint32_t binding;
    uint32_t fork_era; /* The process that made it, as a number of forks. */
    struct sluice_key *next;
    struct sluice_key **link; /* The pointer to this handle. */
};

#define SL_CANAL_BINDING_NONE UINT32_MAX

struct sl_canal_binding {
    uint32_t record;
    uint32_t key; /* UINT32_MAX: none yet. */
    uint32_t handles;
    bool engaged;
    uint32_t older, newer; /* The list of idle ones, oldest first. */
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
 * first attached. Every operation by handle compares it. */
extern __thread uint64_t sl_canal_thread_serial;

/* The number of forks between the first process and this one. */
extern uint32_t sl_canal_thread_fork_era;

/* Register an open canal, and unregister it when the calling thread closes it. The
 * memory is freed with the last attachment. */
int sl_canal_thread_canal_opened(struct sluice_canal *c);
void sl_canal_thread_canal_closed(struct sluice_canal *c);

/* The calling thread's attachment to a canal, or NULL. */
struct sl_canal_attachment *sl_canal_thread_attached(const struct sluice_canal *c);

/* The same, created if there is none. SLUICE_ENOMEM, SLUICE_ESLOTS,
 * SLUICE_ESEGMENTS. */
int sl_canal_thread_attach(struct sluice_canal *c, struct sl_canal_attachment **out);

/* Engage a binding for a name: find or create the key, bind a record to it, set the
 * slot's bit, and check that the key still has the name. After SLUICE_OK, call
 * sl_canal_thread_settle() when the operation has ended. SLUICE_ENOMEM, SLUICE_EKEYS,
 * SLUICE_ERECORDS, SLUICE_EBUSY, SLUICE_EIO. */
int sl_canal_thread_engage(struct sl_canal_attachment *att,
                           const struct sl_canal_name *name, uint32_t *out);

/* The engaged binding of a name, or SL_CANAL_BINDING_NONE. */
uint32_t sl_canal_thread_engaged(const struct sl_canal_attachment *att,
                                 const struct sl_canal_name *name);

/* After an operation: disengage the binding if the thread holds no units and has no
 * handle. */
void sl_canal_thread_settle(struct sl_canal_attachment *att, uint32_t binding);

/* Check the invariants of the calling thread's attachment, which are all about private
 * memory: idle bindings are in one list, bound ones in the map, handles belong to engaged
 * ones. For tests. */
void sl_canal_thread_check(const struct sl_canal_attachment *att);

/* The counter that the operations of a binding use. */
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
