/* number.h - a number among the words of a command, or of what nodes say to each other. */
#ifndef SL_SERVER_COMMAND_NUMBER_H
#define SL_SERVER_COMMAND_NUMBER_H

#include "base/types.h"

/* Decimal digits with a sign or without, all of them, in the range. */
bool sl_parse_number(struct sl_bytes b, int64_t min, int64_t max, int64_t *out);

#endif /* SL_SERVER_COMMAND_NUMBER_H */
