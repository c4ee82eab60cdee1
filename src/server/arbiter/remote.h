/* remote.h - the arbiter `remote`: it forwards requests to the keeper on another node. Its code
 * is in server/forward/. */
#ifndef SL_SERVER_ARBITER_REMOTE_H
#define SL_SERVER_ARBITER_REMOTE_H

#include "server/arbiter/arbiter.h"

/* Create the arbiter. Returns NULL if out of memory. */
struct arbiter *sl_remote_new(struct server *s);

#endif /* SL_SERVER_ARBITER_REMOTE_H */
