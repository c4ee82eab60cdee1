/* session.h - the session of a connection, which the lock table uses to identify the client.
 *
 * A session has a number, holds locks and waits for them. RESET begins a new session on the same
 * connection. A session may outlive its connection: if the connection breaks, its locks without a
 * lease *linger* for a while, because the client may not know yet that it has lost the
 * connection. */
#ifndef SL_SERVER_NET_SESSION_H
#define SL_SERVER_NET_SESSION_H

#include "failover/guests.h"
#include "server/server.h"

/* How a connection ends. This determines what happens to its locks without a lease. */
enum sl_parting {
    SL_STAYS,    /* The connection stays open. */
    SL_SAID_BYE, /* The client closed the connection: release its locks at once. */
    /* The connection broke, or the server closed it: its locks linger
     * (settings.linger). */
    SL_WAS_CUT,
};

/* A session. The server owns it. */
struct session {
    struct sl_session s; /* s.id is the number of the connection. */
    struct conn *conn;   /* NULL: the connection is closed. */
    /* The RESET to answer when this session has ended; NULL: none. */
    struct request *resets;
    /* For a proxy: the client of another node; owned. NULL: a client of this node. */
    struct sl_guest *guest;
    sl_ms linger_end_ms;
    struct sl_list lingering;
};

/* Initialize the index of sessions. */
void sl_conn_setup_sessions(struct server *s);

/* Find a session by number. Returns NULL if there is none. */
struct session *sl_server_session(const struct server *s, uint64_t id);

/* End the session of a connection, if it has one, and begin a new session with a new number. Sets
 * *old to the session that ends, or to NULL if there was none. Returns SLUICE_OK, or SLUICE_ENOMEM;
 * then nothing has changed. */
int sl_conn_begin_session(struct conn *c, struct session **old);

/* Write the client's address for EXPLAIN and LOCKS: "10.0.0.7:51152", followed in a cluster by "
 * via node 2". */
#define SL_WHERE_BYTES 160u
void sl_conn_where(const struct conn *c, char out[SL_WHERE_BYTES]);

/* Pass the name and address of the connection to the lock table, for later grants. Returns
 * SLUICE_OK or SLUICE_ENOMEM. */
int sl_conn_describe(struct conn *c);

/* Withdraw the requests of a connection that is being closed, and end its session or let it
 * linger. */
void sl_conn_end_session(struct conn *c, enum sl_parting how);

/* Return when the first lingering session ends, or SL_NEVER if none lingers. */
sl_ms sl_conn_linger_due(const struct server *s);

/* End the lingering sessions whose time has expired. */
void sl_conn_end_lingering(struct server *s);

#endif /* SL_SERVER_NET_SESSION_H */
