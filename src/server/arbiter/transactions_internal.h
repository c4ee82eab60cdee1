/* transactions_internal.h - what transactions.c and transactions_storage.c share. */
#ifndef SL_SERVER_ARBITER_TRANSACTIONS_INTERNAL_H
#define SL_SERVER_ARBITER_TRANSACTIONS_INTERNAL_H

#include "server/arbiter/transactions.h"

#define CYCLES_KEPT 8u
#define TERMS_KEPT 8u
/* In a cluster there is a keeper for each term in which this node is one. One that is
 * deposed stays until the engine has answered what it ordered. */
struct sl_transactions {
    struct sl_tx_manager *manager;     /* NULL: another node is it. */
    uint64_t term;                     /* In a cluster: of this reign. */
    struct sl_storage *engine;         /* NULL: it is closed. */
    bool etcd;                         /* The storage is etcd, not a file. */
    bool closing;                      /* The engine takes no more orders. */
    char damage[SL_STORAGE_WHY_BYTES]; /* Why the store is not used; "": it is. */
    uv_poll_t poll;
    size_t ordered;               /* Of the engine, and not done; */
    size_t commits;               /* those of them that are commits, */
    size_t scans;                 /* and scans that the engine has. */
    struct sl_list scans_waiting; /* Scans that it does not have yet. */
    struct old {
        struct sl_tx_manager
            *manager; /* Deposed, and waiting for the engine; or NULL. */
        uint64_t term;
        size_t ordered;
    } old[TERMS_KEPT];
    struct request *current; /* The request that is being submitted; NULL: none. */
    int failed;              /* Why the last claim or commit failed; 0: it did not. */
    struct sl_deadlock cycles[CYCLES_KEPT];
    uint64_t
        cycle_count; /* Of all that were; the last is at (this - 1) % CYCLES_KEPT. */
};

/* Submit an order of a manager to the storage. */
void sl_transactions_order(struct server *s, const struct sl_tx_order *o);

/* Answer all that a stopped manager has to say. */
void sl_transactions_answer_all(struct server *s, struct sl_tx_manager *of);

#endif /* SL_SERVER_ARBITER_TRANSACTIONS_INTERNAL_H */
