/* node_wire.h - what nodes say to each other, as commands of the Redis protocol.
 *
 *     TYPE version epoch sent_ms heard_epoch heard_ms FIELD...
 *
 * All words are bulk strings. Which fields a type has, and in which order, says
 * majority/message.h; here each letter has its words. Numbers are in decimal, with nothing
 * before them; a list is
 * version:cluster:added:birth:birth:1=host:port,2=host:port. */
#ifndef SL_SERVER_NET_NODE_WIRE_H
#define SL_SERVER_NET_NODE_WIRE_H

#include "majority/message.h"
#include "resp/writer.h"

void sl_message_write(struct sl_resp_writer *w, const struct sl_message *m);

/* False: it is no message: of another type or number of words, or a word is not what it
 * should be. What is read is written again as the same words. Bytes are borrowed. */
bool sl_message_read(struct sl_message *m, const struct sl_bytes *at, size_t n);

#endif /* SL_SERVER_NET_NODE_WIRE_H */
