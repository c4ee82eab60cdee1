/* duration.h - durations in text: 500ms, 30s, 5m, 1h.
 *
 * The server's commands and settings and the options of the sluice command all use this parser,
 * so a duration is written the same way everywhere. */
#ifndef SL_BASE_DURATION_H
#define SL_BASE_DURATION_H

#include "base/types.h"

/* Examples of the accepted forms, for error messages. */
#define SL_DURATION_FORMS "500ms, 30s, 5m or 1h"

/* Parse a number that is directly followed by the unit ms, s, m or h in lower case.
 * A number without a unit is multiplied by `plain_ms`. With a unit above ms, the
 * number may have a decimal fraction; the result is rounded up to whole
 * milliseconds. Returns false if the text is not a duration, or if the result is not
 * between min and max. */
bool sl_parse_duration(struct sl_bytes text, sl_ms plain_ms, sl_ms min, sl_ms max,
                       sl_ms *out);

/* Write a duration in the largest unit that divides it, such as "90s". From two years on, write
 * whole years of 365 days, rounded down, such as "142808 years"; sl_parse_duration() does not
 * accept that form. Returns `buffer`. */
#define SL_DURATION_BYTES 24
const char *sl_duration_text(sl_ms ms, char buffer[SL_DURATION_BYTES]);

#endif /* SL_BASE_DURATION_H */
