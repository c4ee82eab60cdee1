/* conn.h - a connection: bytes in, commands out; replies in, bytes out.
 *
 *     reads --- a request is kept ---> reads (but runs no command)
 *       |  \--- output not taken yet ---> does not read until it is
 *       +--- end of file, error, limit ---> gone
 *
 * Between commands a connection has no buffers of its own: it borrows the server's. So a
 * connection that is idle costs little more than its struct.
 *
 * Who hangs up matters. A client that ends the stream has said that it is done:
 * what it holds without a lease is given back at once. A connection that breaks, or that we
 * close, may have a holder that does not know yet: its grants linger. */
#ifndef SL_SERVER_NET_CONN_H
#define SL_SERVER_NET_CONN_H

#include "server/server.h"

/* How a connection ends, for what it holds without a lease. */
enum sl_parting {
    SL_STAYS,    /* It does not end. */
    SL_SAID_BYE, /* It said so: at once. */
    SL_WAS_CUT,  /* After settings.linger. */
};

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
    struct sl_list all, dirty, ready, leaving;
    struct sl_list unauthed; /* While it has not authenticated. */
    struct sl_list subscriptions;
    size_t channel_count, pattern_count;

    struct sl_resp_reader *reader; /* NULL: nothing is half read. */
    struct sl_resp_writer out;
    char *sending; /* On its way; NULL: nothing. */
    size_t sending_bytes;
    size_t counted_bytes; /* Of its buffers, in server->buffer_bytes. */
    uv_write_t write;

    struct sl_list requests; /* Those that are kept (server/request.h). */
    uint16_t ticket_count;
    struct sl_tx_session *tx; /* Its transaction (arbiter/transactions.h). */
    struct sl_forward_session *forwarded; /* What the keeper knows of it (forward/). */
    struct sl_proxy
        *proxy; /* It stands for a client of another node; NULL: a socket. */
    enum sl_parting leaves;  /* It has gone; it will be closed in a later turn. */
    enum sl_parting hang_up; /* When all is sent. */
    sl_ms hang_up_ms;        /* Since when. */
    bool reading, authed, closing;
    bool busy;           /* There was unprocessed input after the last read. */
    uint8_t input_class; /* An enum sl_input_class. */
    bool in_holders;     /* It has held a lock without a lease (input.h); */
    bool left;           /* and its peer has closed it. */
    bool in_multi;       /* What comes belongs to a MULTI that was refused. */
    bool ended; /* It has ended its stream, and is not done with what came before. */
    uint8_t auth_failures;
    sl_ms since_ms, heard_ms;
    sl_ms unauthed_ms; /* Since when it has not authenticated. */
    char name[64];
    struct sockaddr_in6 peer; /* Or a sockaddr_in. */
};

/* The limits of what connections may send. */
void sl_conn_setup(struct server *s);

/* Call it when the client has authenticated, or must do so again. */
void sl_conn_authed(struct conn *c, bool yes);

/* A connection comes in, and takes care of itself from here on. False: out of memory; it is
 * still at the door. */
bool sl_conn_accept(struct server *s, uv_stream_t *listener, bool tcp);

/* A connection that stands for a client of another node: it has a session, but no socket. NULL:
 * out of memory. */
struct conn *sl_conn_new_proxy(struct server *s, struct sl_proxy *proxy);

/* What has come for it; to be worked on then. False: out of memory. */
bool sl_conn_feed(struct conn *c, struct sl_bytes b);

/* Where to write to it. It will be sent at the end of the callback. */
struct sl_resp_writer *sl_conn_out(struct conn *c);

/* Something has come, or it has ended: read it, and act on it. */
void sl_conn_has_input(struct conn *c, bool ended);

/* Run the commands that it has sent, within its share, as far as possible now. */
void sl_conn_work(struct conn *c);

/* Send what was written. */
void sl_conn_flush(struct conn *c);

/* A kept request was answered: go on. */
void sl_conn_unblock(struct conn *c);

/* Whether the other side has closed, and how, though we may not have read that yet. */
enum sl_parting sl_conn_hung_up(const struct conn *c);

/* Whether it gives back what it holds without a lease, now or within a few turns: its peer
 * has closed it, and it is not kept by anything that may take long. */
bool sl_conn_gives_back(struct conn *c);

/* Close when what was written is sent. */
void sl_conn_hang_up(struct conn *c, enum sl_parting how);

/* Close now. */
void sl_conn_close(struct conn *c, enum sl_parting how);

/* Release what it holds without a lease, and give it a new number. *old is the session that ends;
 * NULL: there was none. SLUICE_ENOMEM: nothing has changed. */
int sl_conn_begin_session(struct conn *c, struct session **old);

/* Close some of those who have gone. */
void sl_conn_close_leaving(struct server *s);

/* What is due every second: those that are silent, or do not go. */
void sl_conn_check_all(struct server *s);

/* Whether it comes from this machine. */
bool sl_conn_is_local(const struct conn *c);

/* "127.0.0.1:4711"; false: it is no such address. */
bool sl_address_text(const struct sockaddr_in6 *a, char *out, size_t n);

/* The same, or the path of the socket. */
void sl_conn_address(const struct conn *c, char *out, size_t n);

static inline uint64_t sl_conn_id(const struct conn *c)
{
    return c->session->s.id;
}

#endif /* SL_SERVER_NET_CONN_H */
