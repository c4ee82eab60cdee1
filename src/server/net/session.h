/* session.h - the session of a connection: what the lock table knows of it.
 *
 * A session has a number, holds locks and waits for them. RESET begins a new session on the same
 * connection. A session may outlive its connection: locks that were held without a lease
 * *linger* for a while if the connection was cut, because their holder may not know that yet. */
#ifndef SL_SERVER_NET_SESSION_H
#define SL_SERVER_NET_SESSION_H

#include "server/server.h"

/* How a connection ends, which decides about the locks that it holds without a lease. */
enum sl_parting {
    SL_STAYS,    /* It does not end. */
    SL_SAID_BYE, /* The client ended it: the locks are released at once. */
    SL_WAS_CUT, /* It broke, or the server closed it: the locks linger (settings.linger). */
};

/* Owned by the server. */
struct session {
    struct sl_session s; /* s.id is the number of the connection. */
    struct conn *conn;   /* NULL: the connection is gone. */
    struct request
        *resets; /* The RESET that is answered when this session has ended; NULL. */
    uint32_t
        proxy_node; /* Of a proxy: the node of its client; 0: a client of this node. */
    uint64_t proxy_id; /* Of a proxy: the number of its session on that node. */
    sl_ms linger_end_ms;
    struct sl_list lingering;
};

/* Prepare the index of sessions. */
void sl_conn_setup_sessions(struct server *s);

/* The session of this number; NULL: there is none. */
struct session *sl_server_session(const struct server *s, uint64_t id);

/* End the session of a connection, if it has one, and begin another with a new number. *old is the
 * session that ends; NULL: there was none. SLUICE_ENOMEM: nothing has changed. */
int sl_conn_begin_session(struct conn *c, struct session **old);

/* Where its client is, for EXPLAIN and LOCKS: "10.0.0.7:51152", in a cluster with " via node 2". */
#define SL_WHERE_BYTES 160u
void sl_conn_where(const struct conn *c, char out[SL_WHERE_BYTES]);

/* Give the name and address of the connection to the lock table, for later grants.
 * SLUICE_ENOMEM. */
int sl_conn_describe(struct conn *c);

/* The connection is being closed: withdraw its requests and end its session, or let it linger. */
void sl_conn_end_session(struct conn *c, enum sl_parting how);

/* When the first lingering session ends; SL_NEVER: there is none. */
sl_ms sl_conn_linger_due(const struct server *s);

/* End the lingering sessions whose time has passed. */
void sl_conn_end_lingering(struct server *s);

#endif /* SL_SERVER_NET_SESSION_H */
