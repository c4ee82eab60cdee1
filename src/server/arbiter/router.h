/* router.h - which arbiter decides a request. This is the only place that asks which deployment
 * the server is in. */
#ifndef SL_SERVER_ARBITER_ROUTER_H
#define SL_SERVER_ARBITER_ROUTER_H

#include "server/arbiter/arbiter.h"

/* Where there is more than one arbiter. */
struct arbiter *sl_router_choose_of_many(const struct request *r);

/* Called once per request and term. */
static inline struct arbiter *sl_router_choose(const struct request *r)
{
    const struct arbiters *a = &r->s->arbiters;
    return a->majority == NULL ? a->local : sl_router_choose_of_many(r);
}

/* Compile majority-keys: the keys that a majority decides, where there is a keeper. SLUICE_OK or
 * SLUICE_ENOMEM. */
int sl_router_read_keys(struct server *s);

#endif /* SL_SERVER_ARBITER_ROUTER_H */
