/* conn_internal.h - what the files of a connection share.
 *
 *     conn.c          its life
 *     conn_accept.c   how it begins
 *     conn_input.c    its input: bytes and commands
 *     conn_output.c   its output: replies and pushes
 *     session.c       its session
 */
#ifndef SL_SERVER_NET_CONN_INTERNAL_H
#define SL_SERVER_NET_CONN_INTERNAL_H

#include "server/net/conn.h"

#define SL_SPARE_BYTES_MAX 65536u /* The server does not keep larger buffers. */

/* --- conn.c --------------------------------------------------------------- */

/* A connection without handle and session. NULL: out of memory. */
struct conn *sl_conn_new(struct server *s);

/* Close and free one that has no session yet. */
void sl_conn_abandon(struct conn *c);

/* Read from it from now on, or do not. If there is no memory for that, it is closed. */
void sl_conn_watch(struct conn *c, bool yes);

/* Close it now or in a later turn, since thousands may close at once. Until it is closed, the
 * server grants it nothing. */
void sl_conn_close_in_turn(struct conn *c, enum sl_parting how);

/* --- conn_input.c --------------------------------------------------------- */

/* Run the rest of its commands in a later turn. */
void sl_conn_work_later(struct conn *c);

/* Whether the server has yet to run commands that it sent, or to answer requests that are
 * answered soon. Then it stays open though the client has ended its stream. */
bool sl_conn_has_more(const struct conn *c);

/* --- conn_output.c -------------------------------------------------------- */

/* Count its buffers in server.buffer_bytes. Most connections have none between turns. */
void sl_conn_count_buffers(struct conn *c);

/* The limit of its unsent output. */
size_t sl_conn_output_max(const struct server *s);

#endif /* SL_SERVER_NET_CONN_INTERNAL_H */
