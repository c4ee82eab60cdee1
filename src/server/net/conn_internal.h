/* conn_internal.h - shared by the files that implement connections.
 *
 *     conn.c          creation and closing
 *     conn_accept.c   accepting connections
 *     conn_input.c    input: bytes and commands
 *     conn_output.c   output: replies and pushes
 *     session.c       sessions
 */
#ifndef SL_SERVER_NET_CONN_INTERNAL_H
#define SL_SERVER_NET_CONN_INTERNAL_H

#include "server/net/conn.h"

/* The server frees larger buffers instead of keeping them as spares. */
#define SL_SPARE_BYTES_MAX 65536u

/* --- conn.c --------------------------------------------------------------- */

/* Create a connection without handle and session. Returns NULL if out of memory. */
struct conn *sl_conn_new(struct server *s);

/* Close and free a connection that has no session yet. */
void sl_conn_abandon(struct conn *c);

/* Start or stop reading from the connection. Closes the connection if out of memory. */
void sl_conn_watch(struct conn *c, bool yes);

/* Close the connection now or in a later loop iteration, because thousands of connections may
 * close at once. Until then, the server grants it nothing. */
void sl_conn_close_in_turn(struct conn *c, enum sl_parting how);

/* --- conn_input.c --------------------------------------------------------- */

/* Run the remaining commands of the connection in a later loop iteration. */
void sl_conn_work_later(struct conn *c);

/* Whether the client has sent commands that have not run yet, or has requests that will be answered
 * soon. If so, the connection stays open after the client has shut down its side. */
bool sl_conn_has_more(const struct conn *c);

/* --- conn_output.c -------------------------------------------------------- */

/* Update server.buffer_bytes for the buffers of this connection. Most connections have none
 * between loop iterations. */
void sl_conn_count_buffers(struct conn *c);

/* Return the limit on unsent output of a connection. */
size_t sl_conn_output_max(const struct server *s);

#endif /* SL_SERVER_NET_CONN_INTERNAL_H */
