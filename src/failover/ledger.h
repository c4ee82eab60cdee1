/* ledger.h - the grants of the clients of this node, while another node is the keeper.
 *
 * Only the keeper knows all holders, and the keeper may fail. So when the keeper reports that a
 * client of this node took or extended a grant, the node records the grant in its ledger. It
 * hands its ledger to the next keeper. The next keeper restores these grants with their fences.
 * Each record is on the list of the connection that took the grant. A record without a lease is
 * dropped when the connection ends. A record with a lease stays until the lease expires by this
 * node's clock, or the grant is released. */
#ifndef SL_FAILOVER_LEDGER_H
#define SL_FAILOVER_LEDGER_H

#include "base/index.h"
#include "locks/table.h"

struct sl_ledger {
    struct sl_index by_fence;
    struct sl_list all;
    size_t unleased; /* Number of records without a lease. */
    size_t bytes;    /* Bytes of all records, including keys, values and notes. */
};

/* A recorded grant. Its key, value and note follow the struct in memory. */
struct sl_record {
    struct sl_list all, of_conn;
    /* The session that took the grant; 0: it has ended, or is on another node. */
    uint64_t session;
    uint64_t route; /* The route on which the node last handed over this record. */
    sl_fence fence;
    uint64_t origin; /* Of a client of another node; 0: unknown. */
    bool shared, leased;
    bool
        unanswered; /* No reply that shows this grant to a client of this node has arrived yet. */
    uint32_t units, per, buckets;
    int32_t priority;
    /* A lease is valid until sure_ms at least, and end_ms at most; without a lease: SL_NEVER. */
    sl_ms end_ms, sure_ms;
    struct sl_bytes key, value, note;
    struct sl_bytes name, address; /* The client; empty: unknown. */
    struct sl_bytes request;       /* The id of the acquisition; empty: none. */
    uint64_t digest;               /* table.h */
};

void sl_ledger_init(struct sl_ledger *l, struct sl_hash_key key);

/* Add a record, or replace the record with the same fence. A replaced record keeps its connection,
 * and each of its times that is later; it also keeps its client if the new record does not name one, and
 * it stays answered.
 * Returns false if out of memory. Copies bytes. */
bool sl_ledger_put(struct sl_ledger *l, const struct sl_record *r,
                   struct sl_list *of_conn);

/* Find a record by fence. Returns NULL if there is none. */
struct sl_record *sl_ledger_find(const struct sl_ledger *l, sl_fence fence);

/* Return the newest record of a key among the last thousand records of a connection; NULL: none. */
struct sl_record *sl_ledger_newest(const struct sl_list *of_conn, struct sl_bytes key);

bool sl_ledger_holds_unleased(const struct sl_list *of_conn);

/* Remove a record and free it; or remove it, and let the caller free it with free(). */
void sl_ledger_drop(struct sl_ledger *l, struct sl_record *r);
void sl_ledger_take(struct sl_ledger *l, struct sl_record *r);

/* When a connection has closed: drop its records without a lease, and detach the others. */
void sl_ledger_leave(struct sl_ledger *l, struct sl_list *of_conn);

/* Check up to `most` records, round-robin, and drop those that have expired. */
void sl_ledger_sweep(struct sl_ledger *l, sl_ms now_ms, size_t most);

/* Return a record of a grant in the table. Its bytes are borrowed. */
struct sl_record sl_record_of(struct sl_bytes key, const struct sl_grant_view *v,
                              uint64_t session, sl_ms end_ms, sl_ms sure_ms);

/* Return the grant of a record in the form that the table uses. */
struct sl_grant_view sl_record_view(const struct sl_record *r, sl_ms now_ms);

#endif /* SL_FAILOVER_LEDGER_H */
