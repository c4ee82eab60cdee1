/* links_inside.h - what the files of links share.
 *
 *     links.c       whom to call and when; who has been silent for too long
 *     link.c        one connection: bytes in and out, its end
 *     link_meet.c   its beginning: who is there, and what differs
 *
 * A link is closed only in callbacks of the loop that are its own: never inside a function
 * of links.h, whose caller may be in the middle of something. There it is *doomed*: nothing
 * is sent to it, and the timer closes it. */
#ifndef SL_SERVER_NET_LINKS_INTERNAL_H
#define SL_SERVER_NET_LINKS_INTERNAL_H

#include "server/net/link_auth.h"
#include "server/net/links.h"
#include "server/observe/log.h"

#define SL_LINK_MEET_MS 2000         /* So long a link may take to come up. */
#define SL_LINK_SILENT_MS 500        /* So long one that is up may say nothing. */
#define SL_LINK_STRANGERS 32u        /* Callers that have not shown who they are. */
#define SL_LINK_STRANGER_BYTES 1024u /* And what each may send. */

enum sl_link_phase {
    SL_LINK_CALLS,           /* The caller waits for the connection. */
    SL_LINK_AWAITS_NONCE,    /* The caller. */
    SL_LINK_AWAITS_WELCOME,  /* The caller. */
    SL_LINK_AWAITS_HELLO,    /* The callee. */
    SL_LINK_AWAITS_SETTINGS, /* The other side is who it says it is. */
    SL_LINK_UP,
};

struct link {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
    } uv;
    struct server *server;
    struct sl_list all, dirty;
    uv_connect_t connect;
    uv_write_t write;

    enum sl_role role; /* Ours. */
    enum sl_link_phase phase;
    sl_node_id id; /* Of the other side; before AWAITS_SETTINGS: what it says. */
    struct sl_meeting meeting;
    bool known; /* It has shown that it is that node. */
    bool talks; /* It is up, and a message has come. */
    bool closing;
    bool silent;   /* That is why it is closed. */
    bool replaced; /* By a newer one: what comes is heard, and nothing is sent. */
    size_t came;   /* Bytes. */
    sl_ms since_ms, up_ms, heard_ms;
    const char *doom; /* Why it is to be closed; NULL: it is not. */
    char why[200];    /* Room for that. */
    char address[SL_ADDRESS_BYTES];

    struct sl_resp_reader *reader;
    struct sl_resp_writer out;
    char *sending; /* On its way; NULL: nothing. */
    size_t sending_bytes;
};

/* A node to be connected with. */
struct peer {
    struct sl_member member;
    sl_ms call_ms;  /* When to call it; SL_NEVER: it is being called, or up. */
    sl_ms delay_ms; /* How long to wait when that fails. */
    uint32_t calls;
    uint64_t looks_up; /* The number of the look-up that goes on; 0: none. */
    bool was_up;
    char said[200];   /* What was last said in the log about it. */
    uint64_t differs; /* And of what differs, a hash. */
};

struct door {
    uv_tcp_t tcp;
    struct server *server;
    bool waits; /* Somebody is at it for whom there was no time. */
};

struct sl_links {
    struct server *server;
    const struct sl_link_handler *handler;
    struct door *doors[SL_LISTENERS_MAX];
    size_t door_count;
    int port;
    struct peer peers[2 * SL_NODES_MAX];
    size_t peer_count;
    struct sl_list all; /* In the order in which they began. */
    struct sl_list dirty;
    size_t strangers;
    uv_timer_t timer;
    sl_ms timer_ms; /* When it will ring, or SL_NEVER. */
    uint64_t last_look_up;
    uint64_t random;
    bool stopped;
    struct sl_links_view counts;
};

/* --- links.c ---------------------------------------------------------------- */

/* The timer is to ring by then. */
void sl_links_ring_by(struct sl_links *l, sl_ms ms);

struct peer *sl_links_peer(struct sl_links *l, sl_node_id id);

/* The link with this node that is up and not replaced, doomed or not; or NULL. */
struct link *sl_links_up(struct sl_links *l, sl_node_id id);

/* The first message has come: who is refused after it is up need not be told of. */
void sl_links_came(struct link *k);

/* It is no more, up or not. NULL: there is nothing to be said. */
void sl_links_gone(struct link *k, const char *why);

/* --- link.c ----------------------------------------------------------------- */

/* Call a node. NULL: out of memory. */
struct link *sl_link_call(struct server *s, const struct sl_member *to,
                          const struct sockaddr *a);

/* Let one in. False: out of memory; it is still at the door. */
bool sl_link_accept(struct server *s, uv_stream_t *door);

/* Close it, in a callback of its own. */
void sl_link_close(struct link *k, const char *why);

/* Close it later. Copies why. */
void sl_link_doom(struct link *k, const char *why);

/* Where to write to it. It will be sent at the end of the callback. */
struct sl_resp_writer *sl_link_out(struct link *k);
void sl_link_flush(struct link *k);

/* Whether something is there to be read. */
bool sl_link_has_news(const struct link *k);

/* --- link_meet.c ------------------------------------------------------------ */

/* The callee sends its nonce. */
void sl_link_challenge(struct link *k);

/* A command of a link that is not up. It may be closed after that. */
void sl_link_meet(struct link *k, const struct sl_args *args);

/* The other side has refused: its words. */
void sl_link_refused(struct link *k, const struct sl_args *args);
bool sl_link_is_refusal(const struct sl_args *args);

#endif /* SL_SERVER_NET_LINKS_INTERNAL_H */
