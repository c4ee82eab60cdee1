/* answers.h - records how long holders took to release after a revoke request. STEAL
 * AUTO derives its waiting time from this. */
#ifndef SL_CLIENT_ANSWERS_H
#define SL_CLIENT_ANSWERS_H

#include "base/types.h"

#define SL_ANSWERS 256u
#define SL_ANSWERS_MIN 20u /* Fewer measurements are too few to use. */

struct sl_answers {
    /* Total number of measurements so far; only the last SL_ANSWERS are kept. */
    uint64_t count;
    sl_ms ms[SL_ANSWERS];
};

void sl_answers_add(struct sl_answers *a, sl_ms ms);

/* Return a percentile of the measurements, or 0 if there are none. */
sl_ms sl_answers_at(const struct sl_answers *a, unsigned percent);

/* Return how long STEAL AUTO waits for a release, or SL_NEVER if there are too few
 * measurements. */
sl_ms sl_answers_force_ms(const struct sl_answers *a);

#endif /* SL_CLIENT_ANSWERS_H */
