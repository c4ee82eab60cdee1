/* thread.h - what one thread has to do with one segment.
 *
 * A thread that uses a canal is *attached* to it: it has a slot there, and *bindings*,
 * each a record of the slot with the key that it is bound to. A binding is *engaged*
 * while the thread holds the key, waits for it, is at work on it or has resolved it;
 * then the slot's bit is set and the key keeps its name. Idle bindings keep their key
 * only as a memory, and are rebound when another key needs one.
 *
 * All this is private to the thread, so nothing here is locked. An attachment ends when
 * its thread closes the canal or exits. The child of a fork has none. */
#ifndef SL_CANAL_THREAD_H
#define SL_CANAL_THREAD_H

#include "canal/counter.h"
#include "canal/keys.h"

struct sl_canal_attachment;

/* An open canal, as this process sees it. */
struct sluice_canal {
    struct sl_canal_segment seg;
    char *path;    /* Of the segment's file; NULL: anonymous. */
    uint32_t refs; /* 1 while open, 1 for each attachment. */
    bool closed;
    struct sl_canal_attachment *attachments; /* Of all threads. */
    struct sluice_canal *next;
};

/* A resolved key. */
struct sluice_key {
    struct sl_canal_counter counter;
    struct sl_canal_shm_key *key;
    uint64_t serial; /* Of the thread that it belongs to; 0: of none. */
    struct sl_canal_attachment
        *att; /* NULL: its thread is gone, or it came over a fork. */
    uint32_t binding;
    uint32_t fork_era; /* Which process made it, in the line of forks. */
    struct sluice_key *next;
    struct sluice_key **link; /* What points to this one. */
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

/* A number for the calling thread, of this process and no other; 0 until it is first
 * attached to something. Compared on every operation by handle. */
extern __thread uint64_t sl_canal_thread_serial;

/* How many forks lie between the first process and this one. */
extern uint32_t sl_canal_thread_fork_era;

/* Make known / forget an open canal. forget() is told when the calling thread closes
 * it: the memory goes when the last attachment does. */
int sl_canal_thread_canal_opened(struct sluice_canal *c);
void sl_canal_thread_canal_closed(struct sluice_canal *c);

/* The calling thread's attachment to a canal, or NULL. */
struct sl_canal_attachment *sl_canal_thread_attached(const struct sluice_canal *c);

/* The same, made if need be. SLUICE_ENOMEM, SLUICE_ESLOTS. */
int sl_canal_thread_attach(struct sluice_canal *c, struct sl_canal_attachment **out);

/* Engage a binding for a name: find or make the key, bind a record to it, set the bit,
 * make sure that it is still that key. On SLUICE_OK follow with sl_canal_thread_settle().
 * SLUICE_ENOMEM, SLUICE_EKEYS, SLUICE_ERECORDS, SLUICE_EBUSY. */
int sl_canal_thread_engage(struct sl_canal_attachment *att,
                           const struct sl_canal_name *name, uint32_t *out);

/* The engaged binding of a name, or SL_CANAL_BINDING_NONE. */
uint32_t sl_canal_thread_engaged(const struct sl_canal_attachment *att,
                                 const struct sl_canal_name *name);

/* After an operation: disengage if nothing is held and nothing resolved. */
void sl_canal_thread_settle(struct sl_canal_attachment *att, uint32_t binding);

/* Where the operations of a binding take place. */
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
#ifndef MUT_NOTAG
        .tag = b->record + 1,
#endif
    };
}

#endif /* SL_CANAL_THREAD_H */
