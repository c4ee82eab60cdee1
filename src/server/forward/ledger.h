/* ledger.h - the grants of the clients of this node, while another node is the keeper.
 *
 * The keeper knows the holders, and may fail. So each node records the grants that its clients take
 * or extend, when the keeper reports them, and hands its ledger to the next keeper. The next keeper
 * restores these grants with their fences. A record is on the list of the connection that took the
 * grant. A record without a lease ends with its connection; a record with a lease stays until the
 * lease expires here or the grant is released. */
#ifndef SL_SERVER_FORWARD_LEDGER_H
#define SL_SERVER_FORWARD_LEDGER_H

#include "base/index.h"
#include "locks/table.h"

struct sl_ledger {
    struct sl_index by_fence;
    struct sl_list all;
    size_t unleased; /* Records without a lease. */
    size_t bytes;    /* Of all records, with keys, values and notes. */
};

/* A grant. Its bytes follow it in memory. */
struct sl_record {
    struct sl_list all, of_conn;
    uint64_t
        session; /* The session that took it; 0: it has ended, or is on another node. */
    uint64_t route; /* The route on which the node last handed it over. */
    sl_fence fence;
    bool shared, leased;
    bool unwanted; /* No client knows of it: the keeper must release it. */
    uint32_t units, per, buckets;
    int32_t priority;
    sl_ms end_ms; /* When the lease expires; SL_NEVER: no lease. */
    struct sl_bytes key, value, note;
    struct sl_bytes name, address; /* Of the client; empty: unknown. */
};

void sl_ledger_init(struct sl_ledger *l, struct sl_hash_key key);

/* Add a record, or replace the one with the same fence, which keeps its connection, and its client
 * if the new one does not name it. False: out of memory. Copies bytes. */
bool sl_ledger_put(struct sl_ledger *l, const struct sl_record *r,
                   struct sl_list *of_conn);

/* NULL: there is no such record. */
struct sl_record *sl_ledger_find(const struct sl_ledger *l, sl_fence fence);

/* The newest record of a key among the last thousand of a connection; NULL: none. */
struct sl_record *sl_ledger_newest(const struct sl_list *of_conn, struct sl_bytes key);

bool sl_ledger_holds_unleased(const struct sl_list *of_conn);

/* Remove a record and free it. */
void sl_ledger_drop(struct sl_ledger *l, struct sl_record *r);

/* The connection has closed: drop its records without a lease, and detach the others. */
void sl_ledger_leave(struct sl_ledger *l, struct sl_list *of_conn);

/* Check this many records, in rotation, and drop those that have expired. */
void sl_ledger_sweep(struct sl_ledger *l, sl_ms now_ms, size_t most);

/* A record of a grant in the table; bytes are borrowed. */
struct sl_record sl_record_of(struct sl_bytes key, const struct sl_grant_view *v,
                              uint64_t session, sl_ms end_ms);

/* The same grant as the table shows it. */
struct sl_grant_view sl_record_view(const struct sl_record *r, sl_ms now_ms);

#endif /* SL_SERVER_FORWARD_LEDGER_H */
