/* cluster.h - this server as a node of a cluster: every lock is a lease from a majority.
 *
 * The node itself is majority/node.h, which decides; here are its clock, its folder, its
 * clients. The lock table has nothing to do then.
 *
 *     command -> sl_majority_ask() -> node -> links.c -> other nodes
 *     reply   <- sl_majority_reply() <- sl_majority_tell() <- node
 *
 * A connection whose command asks the node waits, as in ACQUIRE, until it is answered. Its
 * number is that of its request: there is one at a time. */
#ifndef SL_SERVER_ARBITER_MAJORITY_H
#define SL_SERVER_ARBITER_MAJORITY_H

#include "majority/node.h"
#include "server/arbiter/arbiter.h"

/* Take possession of the folder, read what the node has to know, listen to other nodes. 0,
 * or -1: it was said in the log. */
int sl_majority_start(struct server *s);

/* The loop has ended. */
void sl_majority_stop(struct server *s);

/* NULL: this server is alone. */
struct sl_node *sl_majority_node(const struct server *s);

struct arbiter *sl_majority_arbiter(struct server *s);

/* --- Ask ------------------------------------------------------------------------------ */

struct sl_majority_view {
    const char *directory;
    uint64_t writes, errors; /* Of its file. */
    uint32_t nodes_up;       /* Other nodes that it is connected with. */
};
void sl_majority_inspect_file(const struct server *s, struct sl_majority_view *out);

/* Bytes of what it keeps as a node, about; 0: it is alone. */
size_t sl_majority_bytes(const struct server *s);

#endif /* SL_SERVER_ARBITER_MAJORITY_H */
