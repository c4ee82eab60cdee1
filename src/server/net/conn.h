/* conn.h - a connection: bytes in, commands out; replies in, bytes out.
 *
 *     reads --- waits in ACQUIRE or AWAIT ---> reads (but acts on nothing)
 *       |  \--- output not taken yet ---> does not read until it is
 *       +--- end of file, error, limit ---> gone
 *
 * Between commands a connection has no buffers of its own: it borrows the server's. So a
 * connection that is idle costs little more than its struct.
 *
 * Who hangs up matters (A13). A client that ends the stream has said that it is done:
 * what it holds without a lease is given back at once. A connection that breaks, or that we
 * close, may have a holder that does not know yet: its grants linger. */
#ifndef SL_SERVER_NET_CONN_H
#define SL_SERVER_NET_CONN_H

#include "server/server.h"

enum sl_blocked {
    SL_NOT_BLOCKED,
    SL_IN_ACQUIRE,
    SL_IN_AWAIT,
    SL_IN_RESET,
    SL_FOR_THE_DISK,
    SL_IN_CLUSTER, /* For other nodes: c->request (cluster.h). */
    SL_IN_TX,      /* For the keeper, or its store: c->tx_asked (keeper.h). */
    SL_IN_AUTH,    /* After wrong passwords: c->auth_wait (auth.h). */
    SL_IN_RELAY,   /* For the keeper at another node: c->relayed (relay.h). */
};

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
        uv_timer_t timer; /* Of a far one; never started. */
    } uv;
    int fd; /* Of the socket; -1: it has none. */
    struct server *server;
    struct session *session;
    struct session *ending; /* The one before, in RESET; else NULL. */
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

    enum sl_blocked blocked;
    struct sl_deferred *deferred;   /* The command that waits for the disk (state.c). */
    struct sl_auth_wait *auth_wait; /* Its delayed AUTH (auth.c). */
    struct sl_asking *request;      /* Its request to the nodes (cluster.c). */
    uint64_t tx;                    /* The number of its transaction; 0: it has none. */
    uint8_t tx_asked;               /* What it asked the keeper for. */
    const char *tx_failed;        /* What failed first in its transaction, a command, */
    const char *tx_error;         /* and the word of the error; NULL: nothing did. */
    struct sl_proxy *far;         /* A connection of another node (relay.h); or NULL. */
    struct sl_forwarded *relayed; /* What it asked the keeper's node for (relay.c). */
    struct sl_list held;          /* What it holds at the keeper (ledger.h). */
    sl_fence releases;            /* RELEASE that is relayed: of this grant. */
    sl_fence untold;              /* Granted there, and the reply is not here yet. */
    uint64_t far_way;             /* It was last relayed on this way. */
    struct sl_forwarded *begun; /* The TX.BEGIN of its transaction at the keeper; NULL:
                                   * it has none there. Only relay.c sets and frees it. */
    enum sl_parting leaves;     /* It has gone; it will be closed in a later turn. */
    enum sl_parting hang_up;    /* When all is sent. */
    sl_ms hang_up_ms;           /* Since when. */
    bool reading, authed, closing;
    bool busy;           /* There was unprocessed input after the last read. */
    uint8_t input_class; /* An enum sl_input_class. */
    bool in_holders;     /* It has held a lock without a lease (input.h); */
    bool left;           /* and its peer has closed it. */
    bool in_multi;       /* What comes belongs to a MULTI that was refused. */
    bool auth_waited;    /* The current command was delayed after wrong passwords. */
    bool half;     /* It was told a part of something, and the rest is at the keeper. */
    bool tx_lost;  /* Its transaction went with its keeper, and it was not told yet. */
    bool settling; /* Its TX.OUTCOME stands for a COMMIT whose answer was lost. */
    bool ended;    /* It has ended its stream, and is not done with what came before. */
    uint8_t auth_failures;
    uint8_t lease_step;      /* Of the lease that it waits for (state.c); 0: none. */
    sl_ms deferred_since_ms; /* Of the command that waits, or waited, for the disk. */
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

/* A connection of another node: without a socket (relay.h); it has a session. NULL: out of
 * memory. */
struct conn *sl_conn_new_proxy(struct server *s, struct sl_proxy *far);

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

/* It waited, and has been answered. */
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

/* What it holds without a lease is given back, and it has a new number. When all is given
 * back, effects.c answers. SLUICE_ENOMEM: it is as it was. */
int sl_conn_begin_session(struct conn *c);

/* Close some of those who have gone. */
void sl_conn_see_off(struct server *s);

/* What is due every second: those that are silent, or do not go. */
void sl_conn_look_after(struct server *s);

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
