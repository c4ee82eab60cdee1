/* router.h - chooses the arbiter for a request. Only the router knows how the deployment assigns
 * requests to arbiters. */
#ifndef SL_SERVER_ARBITER_ROUTER_H
#define SL_SERVER_ARBITER_ROUTER_H

#include "server/arbiter/arbiter.h"

/* Choose the arbiter if the deployment has more than one. */
struct arbiter *sl_router_choose_of_many(const struct request *r);

/* Return the arbiter of a request. request.c calls this once per request and term. */
static inline struct arbiter *sl_router_choose(const struct request *r)
{
    const struct arbiters *a = &r->s->arbiters;
    return a->majority == NULL ? a->local : sl_router_choose_of_many(r);
}

/* Compile the patterns of the setting majority-keys: in a cluster on etcd, a majority decides the
 * keys that match. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_router_read_keys(struct server *s);

#endif /* SL_SERVER_ARBITER_ROUTER_H */
