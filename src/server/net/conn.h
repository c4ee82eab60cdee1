/* conn.h - the connection of a client: bytes in, commands out; replies in, bytes out.
 *
 *     reads --- a request is kept ---> reads (but runs no command)
 *       |  \--- the client does not read its output ---> does not read until it does
 *       +--- end of file, error, limit ---> closed
 *
 * Between commands a connection has no buffers of its own: it borrows the server's. So an idle
 * connection costs little more than its struct.
 *
 * It matters how a connection ends. If the client ends the stream, the server releases at once
 * what it holds without a lease. If the connection breaks, or the server closes it, the client
 * may still believe that it holds its locks, so they linger (session.h). */
#ifndef SL_SERVER_NET_CONN_H
#define SL_SERVER_NET_CONN_H

#include "server/net/session.h"

struct conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
        uv_timer_t timer; /* Of a proxy; never started. */
    } uv;
    int fd; /* Of the socket; -1: it has none. */
    struct server *server;
    struct session *session;
    struct sl_list all, dirty, ready, leaving; /* In the lists of the server. */
    struct sl_list unauthed;                   /* While it has not authenticated. */

    struct sl_input input;         /* Whether the server reads from it (input.h). */
    struct sl_resp_reader *reader; /* NULL: there is no partial command. */
    struct sl_resp_writer out;
    char *sending; /* Output that libuv sends; NULL: none. */
    size_t sending_bytes;
    size_t counted_bytes; /* Of its buffers, in server.buffer_bytes. */
    uv_write_t write;

    enum sl_parting leaves;  /* The client has gone; it is closed in a later turn. */
    enum sl_parting hang_up; /* It is closed when all output is sent, */
    sl_ms hang_up_ms;        /* since this time. */
    bool authed, closing;
    bool ended; /* The client has ended its stream; what it sent before is still run. */
    bool
        in_multi; /* It sent MULTI, which is rejected with all that follows up to EXEC. */
    uint8_t auth_failures;
    uint16_t ticket_count; /* Of its requests (request.c). */
    sl_ms since_ms, heard_ms;
    sl_ms unauthed_ms; /* Since when it has not authenticated. */
    char name[64];
    struct sockaddr_in6 peer; /* Or a sockaddr_in. */

    /* What other modules know of it. */
    struct sl_list requests;         /* Those that are kept (server/request.h). */
    struct sl_subscriber subscriber; /* observe/pubsub.h */
    struct sl_tx_session *tx;        /* Its transaction (arbiter/transactions.h). */
    struct sl_forward_session *forwarded; /* What the keeper knows of it (forward/). */
    struct sl_proxy
        *proxy; /* The client of another node that it stands for; NULL: none. */
    const char *requests_only; /* Why it may run requests only; NULL: any command. */
};

/* The limits of what connections may send. */
void sl_conn_setup(struct server *s);

/* The client has authenticated, or must do so again. */
void sl_conn_authed(struct conn *c, bool yes);

/* Accept the next connection of a listener. False: out of memory; it stays in the backlog. */
bool sl_conn_accept(struct server *s, uv_stream_t *listener, bool tcp);

/* A connection that stands for a client of another node. It has a session, but no socket. NULL:
 * out of memory. */
struct conn *sl_conn_new_proxy(struct server *s, struct sl_proxy *proxy);

/* Input of a proxy; sl_conn_work() runs it. False: out of memory. */
bool sl_conn_feed(struct conn *c, struct sl_bytes b);

/* Where to write to it. It will be sent at the end of the callback. */
struct sl_resp_writer *sl_conn_out(struct conn *c);

/* Its socket is readable, or was closed by the peer: read, and run the commands. */
void sl_conn_has_input(struct conn *c, bool ended);

/* Run the commands that it has sent, as many as its share allows. */
void sl_conn_work(struct conn *c);

/* Send what was written. */
void sl_conn_flush(struct conn *c);

/* A kept request was answered: run the next commands. */
void sl_conn_unblock(struct conn *c);

/* Whether the client has closed it, and how, even if the server has not read that yet. */
enum sl_parting sl_conn_hung_up(const struct conn *c);

/* Whether it releases what it holds without a lease, now or within a few turns: its peer has
 * closed it, and nothing that may take long keeps it open. */
bool sl_conn_gives_back(struct conn *c);

/* Close when what was written is sent. */
void sl_conn_hang_up(struct conn *c, enum sl_parting how);

/* Close now. */
void sl_conn_close(struct conn *c, enum sl_parting how);

/* Close some of those whose clients have gone. */
void sl_conn_close_leaving(struct server *s);

/* Call it every second: it closes connections that are idle, or whose output is not taken. */
void sl_conn_check_all(struct server *s);

/* Whether it comes from this machine. */
bool sl_conn_is_local(const struct conn *c);

/* "127.0.0.1:4711". False: it is neither IPv4 nor IPv6. */
bool sl_address_text(const struct sockaddr_in6 *a, char *out, size_t n);

/* The same, or the path of the socket. */
void sl_conn_address(const struct conn *c, char *out, size_t n);

static inline uint64_t sl_conn_id(const struct conn *c)
{
    return c->session->s.id;
}

#endif /* SL_SERVER_NET_CONN_H */
