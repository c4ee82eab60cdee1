/* arbiter.h - an arbiter decides requests. There are three kinds:
 *
 *     local      decides with the lock table and the transactions of this server
 *     majority   lets the nodes of a cluster vote
 *     remote     forwards requests to the keeper, which is another node
 *
 * main() creates the arbiters that the deployment has; the router (router.h) chooses one of them
 * for each request. All other code calls an arbiter through the functions in its kind. */
#ifndef SL_SERVER_ARBITER_ARBITER_H
#define SL_SERVER_ARBITER_ARBITER_H

#include "server/request.h"

/* The functions of an arbiter. `leave` and the functions after `pump` may be NULL. */
struct arbiter_kind {
    const char *name;

    /* Answer the request now, or keep it and answer later. */
    void (*submit)(struct arbiter *a, struct request *r);

    /* Forget a kept request, which is about to be freed without a reply. */
    void (*withdraw)(struct arbiter *a, struct request *r);

    /* Release a grant whose client will never learn of it. */
    void (*take_back)(struct arbiter *a, struct request *r, const struct sl_grant *g);

    /* Whether a kept request will be answered soon. */
    bool (*is_brief)(const struct arbiter *a, const struct request *r);

    /* End a session: its client has closed the connection, or the connection broke. */
    void (*leave)(struct arbiter *a, struct conn *c, enum sl_parting how);

    /* Return the time at which the arbiter next has work that no request triggers, or SL_NEVER. */
    sl_ms (*due)(const struct arbiter *a);

    /* Do the work that is due, within the budget of this loop iteration. Returns true if no work
     * is left. */
    bool (*pump)(struct arbiter *a);

    /* Handle a command of the connection's transaction that the server itself rejected. */
    void (*tx_failed)(struct arbiter *a, struct conn *c, const char *name,
                      const char *code);

    /* Whether the server waits for the answer to this request before it stops. */
    bool (*must_finish)(const struct arbiter *a, const struct request *r);

    /* Do periodic work; the server calls this every second. */
    void (*second)(struct arbiter *a);

    /* Fill in an inspection: the holders and waiters of a lock, or a page of locks. */
    void (*inspect)(const struct arbiter *a, struct sl_inspection *out);
};

struct arbiter {
    const struct arbiter_kind *kind;
    struct server *s;
};

/* Call pump() of all arbiters. Returns true if no arbiter has more work in this loop iteration. */
bool sl_arbiters_pump(struct server *s);

sl_ms sl_arbiters_due(const struct server *s);
void sl_arbiters_second(struct server *s);

/* Call leave() of all arbiters. */
void sl_arbiters_leave(struct conn *c, enum sl_parting how);

#endif /* SL_SERVER_ARBITER_ARBITER_H */
