/* route_internal.h - shared by the files that implement the route.
 *
 *     route.c           sessions, the queue of requests, the beginning and the end of a route, time
 *     route_receive.c   messages from the keeper
 *     route_orders.c    orders to the caller */
#ifndef SL_FAILOVER_ROUTE_INTERNAL_H
#define SL_FAILOVER_ROUTE_INTERNAL_H

#include "failover/route.h"

/* Order that the connection of a client is closed. */
void sl_route_close_session(struct sl_route *r, struct sl_route_session *n,
                            enum sl_route_close why);

/* Remove a request from its lists. */
void sl_route_unlist(struct sl_route *r, struct sl_route_request *q);

/* Remove a request that has ended from its session and from its list. */
void sl_route_end_request(struct sl_route *r, struct sl_route_request *q);

/* The keeper has queued a request with NOTIFY. */
void sl_route_queued(struct sl_route *r, struct sl_route_request *q);

/* End the route: answer its unanswered requests, or queue them to be sent again. */
void sl_route_end(struct sl_route *r, sl_ms now_ms);

#endif /* SL_FAILOVER_ROUTE_INTERNAL_H */
