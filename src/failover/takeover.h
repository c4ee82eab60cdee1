/* takeover.h - how long a new keeper waits, as the parts of a node see it; and what a keeper does so
 * that the next one need not wait for short leases. README.md has the rules. */
#ifndef SL_FAILOVER_TAKEOVER_H
#define SL_FAILOVER_TAKEOVER_H

#include "failover/failover.h"

/* This node becomes the keeper: determine which reports end its wait. */
void sl_takeover_lead(struct sl_failover *f, sl_ms now_ms,
                      const struct sl_failover_order *o);

/* End the wait early, if nothing is missing. If there are notes, and no witness for them: let the
 * storage know, and then do without. */
void sl_takeover_tick(struct sl_failover *f, sl_ms now_ms);

/* Let only nodes begin a route that the next keeper will ask for their ledgers. */
void sl_takeover_bar(struct sl_failover *f);

/* A renewal is sent: return the ledgers to write. It was successful. */
uint32_t sl_takeover_renews(struct sl_failover *f, sl_ms now_ms);
void sl_takeover_renewed(struct sl_failover *f);

#endif /* SL_FAILOVER_TAKEOVER_H */
