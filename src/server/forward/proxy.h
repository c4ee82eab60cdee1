/* proxy.h - on the keeper: a connection that stands for a client of another node.
 *
 * It has a session and runs commands as any other, but no socket: its input comes in frames of
 * the node's link, and its output goes back in frames. */
#ifndef SL_SERVER_FORWARD_PROXY_H
#define SL_SERVER_FORWARD_PROXY_H

#include "majority/message.h"
#include "server/net/conn.h"

struct sl_proxy {
    struct conn *c;
    sl_node_id node;
    uint64_t session; /* Its number on that node. */
    sl_ms came_ms;    /* When its last command came here, */
    sl_ms arrived_ms; /* and when it arrived at its node. */
    bool busy;        /* A command came, */
    bool ran;         /* and was run. */
    bool gone;        /* Its node knows that it ends, or is gone itself; */
    bool adrift;      /* then its grants wait for it to come back. */
    struct sl_list stalled;
};

static inline sl_ms sl_proxy_arrived_ms(const struct conn *c)
{
    return c->proxy->arrived_ms;
}

/* Send what was written to it, as far as the link has room. */
void sl_proxy_flush(struct conn *c);

/* It was closed here: its node is told, unless it knows. */
void sl_proxy_closed(struct conn *c);

/* Whether the keeper has granted this connection something without a lease. */
bool sl_forward_holds_unleased(const struct conn *c);

/* Free what the node remembers of a connection for the keeper. */
void sl_forward_free_session(struct conn *c);

#endif /* SL_SERVER_FORWARD_PROXY_H */
