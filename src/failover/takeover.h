/* takeover.h - how long a new keeper waits, and what a keeper does so that the next one need not wait
 * for short leases. Internal to the failover code. README.md has the rules. */
#ifndef SL_FAILOVER_TAKEOVER_H
#define SL_FAILOVER_TAKEOVER_H

#include "failover/failover.h"

/* This node becomes the keeper: determine which reports end its wait. */
void sl_takeover_lead(struct sl_failover *f, sl_ms now_ms,
                      const struct sl_failover_order *o);

/* End the wait early, if all reports have arrived. If there are notes, and no node can be the witness:
 * write that to the storage, and then acknowledge the leases without a witness. */
void sl_takeover_tick(struct sl_failover *f, sl_ms now_ms);
sl_ms sl_takeover_due(const struct sl_failover *f);

/* Prevent nodes that the storage does not name from beginning a route: the next keeper would not wait
 * for their reports. */
void sl_takeover_bar(struct sl_failover *f);

/* Return the ledgers to write with a renewal that is about to be sent; and report that the renewal was
 * successful. */
uint32_t sl_takeover_renews(struct sl_failover *f, sl_ms now_ms);
void sl_takeover_renewed(struct sl_failover *f);

/* Return the nodes to write with RESIGN: their clients may hold locks without a lease. */
uint32_t sl_takeover_resigns(const struct sl_failover *f, sl_ms now_ms);

#endif /* SL_FAILOVER_TAKEOVER_H */
