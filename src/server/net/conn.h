/* conn.h - the connection of a client: bytes in, commands out; replies in, bytes out.
 *
 *     reads --- a request is kept ---> reads (but runs no command)
 *       |  \--- the client does not read its output ---> reads nothing until it does
 *       +--- end of file, error, limit ---> closed
 *
 * Between commands a connection has no buffers of its own: it borrows the server's. So an idle
 * connection costs little more than its struct.
 *
 * How a connection ends decides what happens to its locks without a lease. If the client closes
 * the connection, the server releases them at once. If the connection breaks, or the server
 * closes it, the client may still believe that it holds them, so the server keeps them for a
 * while: they linger (session.h). */
#ifndef SL_SERVER_NET_CONN_H
#define SL_SERVER_NET_CONN_H

#include "server/net/session.h"

struct conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
        uv_timer_t timer; /* Used by a proxy instead of a socket; never started. */
    } uv;
    int fd; /* The socket; -1: none. */
    struct server *server;
    struct session *session;
    struct sl_list all, dirty, ready, leaving; /* Links in the lists of the server. */
    struct sl_list unauthed;                   /* Link in server.unauthed. */

    struct sl_input input; /* Whether the server reads from the socket (input.h). */
    struct sl_resp_reader *reader; /* NULL: no partial command has arrived. */
    struct sl_resp_writer out;
    char *sending; /* Output that libuv is sending; NULL: none. */
    size_t sending_bytes;
    /* The part of server.buffer_bytes that this connection accounts for. */
    size_t counted_bytes;
    uv_write_t write;

    /* The client has gone; the server closes the connection in a later loop iteration. */
    enum sl_parting leaves;
    /* The server closes the connection when all output is sent. */
    enum sl_parting hang_up;
    sl_ms hang_up_ms; /* When `hang_up` was set. */
    bool authed, closing;
    /* The client has shut down its side; the server still runs the commands sent
     * before. */
    bool ended;
    /* The client sent MULTI; the server rejects MULTI and all commands up to EXEC. */
    bool in_multi;
    uint8_t auth_failures;
    sl_ms since_ms, heard_ms;
    /* When the connection was accepted, or last lost its authentication. */
    sl_ms unauthed_ms;
    char name[64];
    struct sockaddr_in6 peer; /* The peer's address; may be a sockaddr_in. */

    /* Data of other modules. */
    /* Kept requests (server/request.h): those that block the connection, and those that do not,
     * because the client has received QUEUED. */
    struct sl_list requests, notifies;
    uint32_t notify_count;           /* Number of requests with NOTIFY. */
    struct sl_subscriber subscriber; /* Its subscriptions (observe/pubsub.h). */
    /* The connection's transaction (arbiter/transactions.h). */
    struct sl_tx_session *tx;
    /* The connection's requests and grants at the keeper (forward/). */
    struct sl_forward_session *forwarded;
    /* The client of another node that this connection represents; NULL: none. */
    struct sl_proxy *proxy;
    /* Why the connection may run only requests; NULL: it may run any command. */
    const char *requests_only;
};

/* Set the limits on the size of commands. */
void sl_conn_setup(struct server *s);

/* Record that the client has authenticated, or must authenticate again. */
void sl_conn_authed(struct conn *c, bool yes);

/* Accept the next connection of a listener. Returns false if out of memory; then the connection
 * stays in the backlog. */
bool sl_conn_accept(struct server *s, uv_stream_t *listener, bool tcp);

/* Create a connection that represents a client of another node. It has a session, but no socket.
 * Returns NULL if out of memory. */
struct conn *sl_conn_new_proxy(struct server *s, struct sl_proxy *proxy);

/* Add input to a proxy; sl_conn_work() runs it. Returns false if out of memory. */
bool sl_conn_feed(struct conn *c, struct sl_bytes b);

/* Return the writer for output to this connection. The output is sent at the end of the
 * callback. */
struct sl_resp_writer *sl_conn_out(struct conn *c);

/* Read from the socket and run the commands. The socket is readable, or, with `ended`, the peer has
 * closed it. */
void sl_conn_has_input(struct conn *c, bool ended);

/* Run commands that the client has sent, up to the connection's share of this loop iteration. */
void sl_conn_work(struct conn *c);

/* Send the output that has been written. */
void sl_conn_flush(struct conn *c);

/* Close all connections with unsent output, and drop the output. */
void sl_conn_cut_dirty(struct server *s);

/* Run the next commands, after a kept request was answered. */
void sl_conn_unblock(struct conn *c);

/* Whether and how the client has closed the connection, even if the server has not yet read the end
 * of the stream. */
enum sl_parting sl_conn_hung_up(const struct conn *c);

/* Whether the server will release the connection's locks without a lease now or within a few loop
 * iterations: the peer has closed the connection, and no long request keeps it open. */
bool sl_conn_gives_back(struct conn *c);

/* Close the connection when all output has been sent. */
void sl_conn_hang_up(struct conn *c, enum sl_parting how);

/* Close the connection now. */
void sl_conn_close(struct conn *c, enum sl_parting how);

/* Close some of the connections whose clients have gone. */
void sl_conn_close_leaving(struct server *s);

/* Call this every second. It closes connections that are idle, or whose client does not read its
 * output. */
void sl_conn_check_all(struct server *s);

/* Whether the client is on this machine. */
bool sl_conn_is_local(const struct conn *c);

/* Write the address as text: "127.0.0.1:4711". Returns false if it is neither IPv4 nor IPv6. */
bool sl_address_text(const struct sockaddr_in6 *a, char *out, size_t n);

/* Write the client's address, or the path of the Unix socket. */
void sl_conn_address(const struct conn *c, char *out, size_t n);

static inline uint64_t sl_conn_id(const struct conn *c)
{
    return c->session->s.id;
}

#endif /* SL_SERVER_NET_CONN_H */
