/* reply.h - the reply of each verb. */
#ifndef SL_SERVER_COMMAND_REPLY_H
#define SL_SERVER_COMMAND_REPLY_H

#include "server/request.h"

/* Write what an arbiter has answered. */
void sl_reply(struct call *call, const struct request *r, const struct answer *a);

/* The same of TX.* (tx.c). */
void sl_reply_tx(struct call *call, const struct request *r, const struct answer *a);

#endif /* SL_SERVER_COMMAND_REPLY_H */
