/* glob.h - patterns over keys: * ? [a-z] [^a-z] and \ before any of these. */
#ifndef SL_CORE_GLOB_H
#define SL_CORE_GLOB_H

#include "core/types.h"

/* Whether all of the text matches. Takes at most pattern times text steps. */
bool sl_glob(struct sl_bytes pattern, struct sl_bytes text);

#endif /* SL_CORE_GLOB_H */
