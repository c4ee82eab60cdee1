/* node_wire.h - messages between nodes, encoded as commands of the Redis protocol.
 *
 *     TYPE version epoch sent_ms heard_epoch heard_ms FIELD...
 *
 * All arguments are bulk strings. majority/message.h says which fields a type has, in which
 * order. Numbers are in decimal, without leading zeros. A membership is
 * version:cluster:added:birth:birth:1=host:port,2=host:port. */
#ifndef SL_SERVER_NET_NODE_WIRE_H
#define SL_SERVER_NET_NODE_WIRE_H

#include "majority/message.h"
#include "resp/writer.h"

void sl_message_write(struct sl_resp_writer *w, const struct sl_message *m);

/* Parse a message. Returns false if the type is unknown, the number of arguments is wrong, or an
 * argument is invalid. Writing the parsed message again gives the same arguments. Bytes are
 * borrowed. */
bool sl_message_read(struct sl_message *m, const struct sl_bytes *at, size_t n);

#endif /* SL_SERVER_NET_NODE_WIRE_H */
