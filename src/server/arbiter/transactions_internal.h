/* transactions_internal.h - shared by transactions.c and transactions_storage.c. */
#ifndef SL_SERVER_ARBITER_TRANSACTIONS_INTERNAL_H
#define SL_SERVER_ARBITER_TRANSACTIONS_INTERNAL_H

#include "server/arbiter/transactions.h"

#define DEADLOCKS_KEPT 8u
#define TERMS_KEPT 8u

/* In a cluster, there is a manager for each term in which this node is the keeper. A deposed
 * manager stays until the storage has answered its orders. */
struct sl_transactions {
    struct sl_tx_manager *manager;     /* NULL: another node is the keeper. */
    uint64_t term;                     /* In a cluster: the term of `manager`. */
    struct sl_storage *storage;        /* NULL: the storage is closed. */
    bool etcd;                         /* The storage is etcd, not a file. */
    bool closing;                      /* The storage accepts no more operations. */
    char damage[SL_STORAGE_WHY_BYTES]; /* Why the storage cannot be used; "": it can. */
    uv_poll_t poll;
    size_t ordered;               /* Unfinished orders of `manager`. */
    size_t commits;               /* Unfinished commits of all managers. */
    size_t scans;                 /* Unfinished scans in the storage. */
    struct sl_list scans_waiting; /* Scans that wait to be submitted to the storage. */
    struct sl_deposed {
        struct sl_tx_manager *manager; /* NULL: this entry is free. */
        uint64_t term;
        size_t ordered;
    } deposed[TERMS_KEPT];
    struct request *current; /* The request in sl_transactions_submit(); NULL: none. */
    int failed;              /* The error of the last claim or commit; 0: none. */
    struct sl_deadlock deadlocks[DEADLOCKS_KEPT];
    /* Number of deadlocks since the start; the newest is at (this - 1) %
     * DEADLOCKS_KEPT. */
    uint64_t deadlock_count;
};

/* Submit an order of a manager to the storage. */
void sl_transactions_order(struct server *s, const struct sl_tx_order *o);

/* Answer all requests for which a stopped manager has answers. */
void sl_transactions_answer_all(struct server *s, struct sl_tx_manager *of);

#endif /* SL_SERVER_ARBITER_TRANSACTIONS_INTERNAL_H */
