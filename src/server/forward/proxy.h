/* proxy.h - on the keeper: a connection that represents a client of another node.
 *
 * A proxy has a session and runs commands like any other connection, but has no socket. Its input
 * arrives in messages from the node of the client, and its output returns in messages. */
#ifndef SL_SERVER_FORWARD_PROXY_H
#define SL_SERVER_FORWARD_PROXY_H

#include "server/net/conn.h"

struct request;

/* When a command arrived. */
struct sl_arrival {
    sl_ms came_ms;    /* At this node, the keeper. */
    sl_ms arrived_ms; /* At the node of the client. */
    uint64_t number;  /* As in struct sl_want. */
};

struct sl_proxy {
    struct conn *c;            /* Its session is a guest (failover/guests.h). */
    struct sl_arrival arrival; /* Of the command that runs, or ran last. */
    struct sl_arrival
        *arrivals; /* Of the commands that are still to run, in their order. */
    size_t arrivals_first, arrivals_end, arrivals_space;
    bool
        ran; /* The proxy has run its last command, and has not sent the whole reply. */
    size_t
        outcome; /* Where in the output the outcome of a request with NOTIFY begins. */
    struct sl_list stalled;
    struct sl_list outcomes; /* Those that are sent after the output. */
};

#define SL_PROXY_REFUSAL "the keeper does not accept this command from another node"

/* The proxy is about to run its next command. */
void sl_proxy_begins(struct conn *c);

/* Whether the proxy may run its next command: it has sent the reply to the one before. */
static inline bool sl_proxy_may_run(const struct conn *c)
{
    return sl_list_empty(&c->proxy->stalled);
}

/* The proxy has run a command. Send its reply, if it is complete. */
void sl_proxy_ran(struct conn *c);

/* Send the proxy's output to its node, while the link has space. */
void sl_proxy_flush(struct conn *c);

/* Send the outcome of a request with NOTIFY to its node. Its reply was the last output of the proxy. */
void sl_proxy_outcome(const struct request *r);

/* Tell the node that the keeper has closed the proxy, unless the node knows. */
void sl_proxy_closed(struct conn *c);

void sl_proxy_free(struct sl_proxy *p); /* NULL is allowed. */

/* Forget a session that has ended, if it belonged to a proxy. */
void sl_proxy_session_over(struct server *s, struct session *n);

/* Whether the keeper has granted this connection a lock without a lease. */
bool sl_forward_holds_unleased(const struct conn *c);

/* Report the new name of a connection to the keeper. */
void sl_forward_renamed(struct conn *c);

/* Free the forward session of a connection. */
void sl_forward_free_session(struct conn *c);

#endif /* SL_SERVER_FORWARD_PROXY_H */
