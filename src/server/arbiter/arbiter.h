/* arbiter.h - an arbiter decides requests: this server, a majority of nodes, or the keeper.
 *
 *     local      the lock table and the transactions of this server
 *     majority   the nodes of a cluster, by vote
 *     remote     the keeper, on another node
 *
 * main() creates the arbiters that the deployment has; the router (router.h) chooses one of them
 * for each request. All other code calls an arbiter through its kind. */
#ifndef SL_SERVER_ARBITER_ARBITER_H
#define SL_SERVER_ARBITER_ARBITER_H

#include "server/request.h"

/* `leave` and the functions behind `pump` may be NULL. */
struct arbiter_kind {
    const char *name;

    /* Answer the request now, or keep it and answer later. */
    void (*submit)(struct arbiter *a, struct request *r);

    /* Forget a kept request: the caller is about to free it without a reply. */
    void (*withdraw)(struct arbiter *a, struct request *r);

    /* Release a grant that its client will never learn of. */
    void (*take_back)(struct arbiter *a, struct request *r, const struct sl_grant *g);

    /* Whether a kept request will be answered soon. */
    bool (*is_brief)(const struct arbiter *a, const struct request *r);

    /* A session has ended: its client has closed it, or its connection broke. */
    void (*leave)(struct arbiter *a, struct conn *c, enum sl_parting how);

    /* When the arbiter next has work without a request, or SL_NEVER. */
    sl_ms (*due)(const struct arbiter *a);

    /* Do the work that is due, within the budget of this turn. True: there is no more. */
    bool (*pump)(struct arbiter *a);

    /* The server itself rejected a command of the connection's transaction. */
    void (*tx_failed)(struct arbiter *a, struct conn *c, const char *name,
                      const char *code);

    /* Whether a server that stops waits for the answer to this request. */
    bool (*must_finish)(const struct arbiter *a, const struct request *r);

    /* Called every second. */
    void (*second)(struct arbiter *a);

    /* Fill in the holders and waiters of a lock, or a page of locks. */
    void (*inspect)(const struct arbiter *a, struct sl_inspection *out);
};

struct arbiter {
    const struct arbiter_kind *kind;
    struct server *s;
};

/* Pump all arbiters. True: no arbiter has more to do in this turn. */
bool sl_arbiters_pump(struct server *s);

sl_ms sl_arbiters_due(const struct server *s);
void sl_arbiters_second(struct server *s);

/* Call leave() of all arbiters. */
void sl_arbiters_leave(struct conn *c, enum sl_parting how);

#endif /* SL_SERVER_ARBITER_ARBITER_H */
