/* cluster.h - this server as a node of a cluster: every lock is a lease from a majority.
 *
 * The node itself is majority/node.h, which decides; here are its clock, its folder, its
 * clients. The lock table has nothing to do then.
 *
 *     command -> sl_cluster_ask() -> node -> links.c -> other nodes
 *     reply   <- sl_cluster_reply() <- sl_cluster_tell() <- node
 *
 * A connection whose command asks the node waits, as in ACQUIRE, until it is answered. Its
 * number is that of its request: there is one at a time. */
#ifndef SL_SERVER_ARBITER_CLUSTER_H
#define SL_SERVER_ARBITER_CLUSTER_H

#include "majority/node.h"
#include "server/command/dispatch.h"

/* Take possession of the folder, read what the node has to know, listen to other nodes. 0,
 * or -1: it was said in the log. */
int sl_cluster_start(struct server *s);

/* The loop has ended. */
void sl_cluster_stop(struct server *s);

/* NULL: this server is alone. */
struct sl_node *sl_cluster_node(const struct server *s);

/* Tell what follows, as much as this turn allows. True: there is no more. */
bool sl_cluster_tell(struct server *s);

/* When the node has something to do by itself, or SL_NEVER. */
sl_ms sl_cluster_due(const struct server *s);

/* --- Requests ----------------------------------------------------------------------- */

/* What a connection waits for. */
struct sl_asking {
    enum sl_node_verb type;
    sl_ms wait_ms;
    struct sl_bytes key; /* Its own. */
};

/* The connection waits from now on, until sl_cluster_reply(). */
void sl_cluster_ask(struct call *call, const struct sl_node_request *ask);

/* Write the reply (commands_cluster.c). */
void sl_cluster_reply(struct call *call, const struct sl_asking *q,
                      const struct sl_node_answer *a);

/* It does not wait any more: it is gone, or was told something else. A release goes on. */
void sl_cluster_leave(struct conn *c);

/* Whether it asked for something that is done soon, and is done though it has ended its
 * stream. */
bool sl_cluster_is_brief(const struct conn *c);

/* --- Commands in a cluster (commands_cluster.c); their words have been read ----------- */

void sl_cluster_acquire(struct call *call, const struct sl_want *want);
void sl_cluster_release(struct call *call, sl_fence fence);
void sl_cluster_extend(struct call *call, sl_fence fence, sl_ms lease_ms,
                       struct sl_bytes value);
void sl_cluster_check(struct call *call, sl_fence fence);
void sl_cluster_read(struct call *call, bool majority);
void sl_cluster_await(struct call *call, bool want_free, sl_ms wait_ms);
void sl_cluster_explain(struct call *call);

/* Of BREAK and DRAIN: a majority does not do this. */
void sl_cluster_refuse(struct call *call);

/* --- Ask ------------------------------------------------------------------------------ */

struct sl_cluster_view {
    const char *folder;
    uint64_t writes, errors; /* Of its file. */
    uint32_t nodes_up;       /* Other nodes that it is connected with. */
};
void sl_cluster_look(const struct server *s, struct sl_cluster_view *out);

/* Bytes of what it keeps as a node, about; 0: it is alone. */
size_t sl_cluster_bytes(const struct server *s);

#endif /* SL_SERVER_ARBITER_CLUSTER_H */
