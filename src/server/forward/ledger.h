/* ledger.h - what clients of this node hold, though another node is the keeper.
 *
 * The keeper remembers who holds what, and may die. So a node writes down each grant that
 * its clients took or extended, as the keeper tells it, and hands that to the next keeper:
 * whole, under the old fence (A10). A grant is on the list of the connection that took it;
 * without a lease it goes with it. One with a lease stays until it has ended here, or was
 * released. */
#ifndef SL_SERVER_FORWARD_LEDGER_H
#define SL_SERVER_FORWARD_LEDGER_H

#include "base/index.h"
#include "locks/table.h"

struct sl_ledger {
    struct sl_index by_fence;
    struct sl_list all;
    size_t unleased; /* Those without a lease. */
    size_t bytes;    /* Of all of them, keys, values and notes included. */
};

/* A grant. Bytes are behind it. */
struct sl_record {
    struct sl_list all, of_conn;
    uint64_t session; /* Who took it; 0: one that is gone, or of another node. */
    uint64_t told;    /* Which keeper was last told of it: a number of the relay's. */
    sl_fence fence;
    bool shared, leased;
    bool unwanted; /* Nobody was told of it: it is to be given back. */
    uint32_t units, per, buckets;
    int32_t priority;
    sl_ms end_ms; /* Of the lease; SL_NEVER. */
    struct sl_bytes key, value, note;
};

void sl_ledger_init(struct sl_ledger *l, struct sl_hash_key key);

/* Write a grant down, or again: then it stays with the connection that it was of. False: out
 * of memory. Copies bytes. */
bool sl_ledger_put(struct sl_ledger *l, const struct sl_record *r,
                   struct sl_list *of_conn);

/* NULL: there is none. */
struct sl_record *sl_ledger_find(const struct sl_ledger *l, sl_fence fence);

/* The newest of a key among the last thousand of a connection; or NULL. */
struct sl_record *sl_ledger_newest(const struct sl_list *of_conn, struct sl_bytes key);

bool sl_ledger_holds_unleased(const struct sl_list *of_conn);

void sl_ledger_drop(struct sl_ledger *l, struct sl_record *r);

/* The connection is gone, and what it held without a lease. */
void sl_ledger_leave(struct sl_ledger *l, struct sl_list *of_conn);

/* Look at so many, each in its turn, and forget those that have ended. */
void sl_ledger_sweep(struct sl_ledger *l, sl_ms now_ms, size_t most);

/* A grant as the table sees it; bytes are borrowed. */
struct sl_record sl_record_of(struct sl_bytes key, const struct sl_grant_view *v,
                              uint64_t session, sl_ms end_ms);

/* As the table sees such a grant. */
struct sl_grant_view sl_record_view(const struct sl_record *r, sl_ms now_ms);

#endif /* SL_SERVER_FORWARD_LEDGER_H */
