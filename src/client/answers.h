/* answers.h - how long holders recently took to release after they were asked to.
 * STEAL AUTO waits accordingly. */
#ifndef SL_CLIENT_ANSWERS_H
#define SL_CLIENT_ANSWERS_H

#include "base/types.h"

#define SL_ANSWERS 256u
#define SL_ANSWERS_MIN 20u /* Fewer measurements are not significant. */

struct sl_answers {
    uint64_t count; /* Number of measurements ever; the last SL_ANSWERS are kept. */
    sl_ms ms[SL_ANSWERS];
};

void sl_answers_add(struct sl_answers *a, sl_ms ms);

/* A percentile of the measurements; 0: there are none. */
sl_ms sl_answers_at(const struct sl_answers *a, unsigned percent);

/* STEAL AUTO: how long to wait for a release; SL_NEVER: there are too few
 * measurements. */
sl_ms sl_answers_force_ms(const struct sl_answers *a);

#endif /* SL_CLIENT_ANSWERS_H */
