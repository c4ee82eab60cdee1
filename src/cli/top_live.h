/* top_live.h - `sluice top` on a terminal. */
#ifndef SL_CLI_TOP_LIVE_H
#define SL_CLI_TOP_LIVE_H

#include <stdint.h>

#include "cli/top_data.h"

/* Show updates until the user quits, or until `count` updates were shown (0: no limit). Takes over
 * the source, which a thread uses from now on. Returns an exit status, or does not return. */
int top_live(struct top_source *source, int64_t interval_ms, uint64_t count);

#endif /* SL_CLI_TOP_LIVE_H */
