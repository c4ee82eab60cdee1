/* reply.h - writes the reply to a request from the answer of its arbiter. */
#ifndef SL_SERVER_COMMAND_REPLY_H
#define SL_SERVER_COMMAND_REPLY_H

#include "server/request.h"

/* Write the reply to a request. */
void sl_reply(struct call *call, const struct request *r, const struct answer *a);

/* Write the reply to TX.BEGIN, TX.COMMIT and the other commands up to TX.OUTCOME (tx.c). */
void sl_reply_tx(struct call *call, const struct request *r, const struct answer *a);

#endif /* SL_SERVER_COMMAND_REPLY_H */
