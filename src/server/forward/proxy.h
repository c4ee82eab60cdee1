/* proxy.h - on the keeper: a connection that stands for a client of another node.
 *
 * It has a session and runs commands like any other connection, but it has no socket: its input
 * comes in frames from the node of the client, and its output goes back in frames. */
#ifndef SL_SERVER_FORWARD_PROXY_H
#define SL_SERVER_FORWARD_PROXY_H

#include "majority/message.h"
#include "server/net/conn.h"

struct sl_proxy {
    struct conn *c;
    sl_node_id node;
    uint64_t session; /* The session of the client on that node. */
    sl_ms came_ms;    /* When its last command came here, */
    sl_ms arrived_ms; /* and when it arrived at its node. */
    bool busy;        /* It has a command that is not answered, */
    bool ran;         /* and has run it. */
    bool gone;        /* Its node knows that it ends, or the link to the node ended; */
    bool adrift;      /* in the second case its grants stay for a while. */
    struct sl_list stalled;
};

#define SL_PROXY_REFUSAL "the keeper does not accept this command from another node"

static inline sl_ms sl_proxy_arrived_ms(const struct conn *c)
{
    return c->proxy->arrived_ms;
}

/* Send its output to its node, while the link has space. */
void sl_proxy_flush(struct conn *c);

/* The keeper has closed it: inform its node, unless the node knows. */
void sl_proxy_closed(struct conn *c);

/* Whether the keeper has granted this connection something without a lease. */
bool sl_forward_holds_unleased(const struct conn *c);

/* A connection has another name: the keeper must know. */
void sl_forward_renamed(struct conn *c);

/* Free the forward session of a connection. */
void sl_forward_free_session(struct conn *c);

#endif /* SL_SERVER_FORWARD_PROXY_H */
