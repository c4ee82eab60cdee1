/* answers.h - how long those who were asked to go took for it, lately: what STEAL AUTO goes
 * by. */
#ifndef SL_CLIENT_ANSWERS_H
#define SL_CLIENT_ANSWERS_H

#include "base/types.h"

#define SL_ANSWERS 256u
#define SL_ANSWERS_MIN 20u /* Fewer say nothing. */

struct sl_answers {
    uint64_t count; /* Ever; the last ones are kept. */
    sl_ms ms[SL_ANSWERS];
};

void sl_answers_add(struct sl_answers *a, sl_ms ms);

/* The answer time that so many percent of them did not pass; 0: there are none. */
sl_ms sl_answers_at(const struct sl_answers *a, unsigned percent);

/* STEAL AUTO: how long to wait for an answer; SL_NEVER: too few to say. */
sl_ms sl_answers_force_ms(const struct sl_answers *a);

#endif /* SL_CLIENT_ANSWERS_H */
