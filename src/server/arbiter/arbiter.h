/* arbiter.h - what decides a request: this server, a majority of nodes, or the keeper.
 *
 *     local      the lock table and the transactions of this server
 *     majority   the nodes of a cluster, by vote
 *     remote     the keeper, on another node
 *
 * main() makes those that the deployment has; the router chooses one of them for each request.
 * Nothing else in the server asks which deployment it is in. */
#ifndef SL_SERVER_ARBITER_ARBITER_H
#define SL_SERVER_ARBITER_ARBITER_H

#include "server/request.h"

struct arbiter_kind {
    const char *name;

    /* Answer it now, or keep it and answer later. */
    void (*submit)(struct arbiter *a, struct request *r);

    /* A kept request is about to be freed without an answer: its client is gone. */
    void (*withdraw)(struct arbiter *a, struct request *r);

    /* A grant that its client will never learn of. */
    void (*take_back)(struct arbiter *a, struct request *r, const struct sl_grant *g);

    /* Whether a kept request is answered soon. */
    bool (*is_brief)(const struct arbiter *a, const struct request *r);

    /* A session has ended: by its client, or because its connection broke. */
    void (*leave)(struct arbiter *a, struct conn *c, enum sl_parting how);

    /* When it next has something to do by itself, or SL_NEVER. */
    sl_ms (*due)(const struct arbiter *a);

    /* Do what is due, within the budget of this turn. True: nothing is left. */
    bool (*pump)(struct arbiter *a);

    /* A command of the connection's transaction failed here. */
    void (*tx_failed)(struct arbiter *a, struct conn *c, const char *name,
                      const char *word);

    /* Whether a stopping server waits for the answer. */
    bool (*must_finish)(const struct arbiter *a, const struct request *r);

    /* Every second. */
    void (*second)(struct arbiter *a);

    /* Fill in what it knows of a lock, or a page of its locks. */
    void (*inspect)(const struct arbiter *a, struct sl_inspection *out);
};

struct arbiter {
    const struct arbiter_kind *kind;
    struct server *s;
};

/* Pump all. True: nothing is left. */
bool sl_arbiters_pump(struct server *s);

/* Pump those that are due: before the first command of every millisecond. */
void sl_arbiters_pump_due(struct server *s);
sl_ms sl_arbiters_due(const struct server *s);
void sl_arbiters_second(struct server *s);

/* A session has ended; a command of its transaction failed. */
void sl_arbiters_leave(struct conn *c, enum sl_parting how);
void sl_arbiters_tx_failed(struct conn *c, const char *name, const char *word);

#endif /* SL_SERVER_ARBITER_ARBITER_H */
