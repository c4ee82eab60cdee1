/* resign.h - a keeper hands its term over. Internal to the failover code. failover.h has the public
 * interface, and README.md the rules. */
#ifndef SL_FAILOVER_RESIGN_H
#define SL_FAILOVER_RESIGN_H

#include "failover/failover.h"

/* Do the next step of a resignation, if there is one; return when it is due. */
void sl_resign_go_on(struct sl_failover *f, sl_ms now_ms);
sl_ms sl_resign_due(const struct sl_failover *f);

/* A write to the journal has succeeded. */
void sl_resign_recorded(struct sl_failover *f, sl_ms now_ms);

/* The term ends. */
void sl_resign_end(struct sl_failover *f);

#endif /* SL_FAILOVER_RESIGN_H */
