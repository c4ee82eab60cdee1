/* links_internal.h - what the files of links share.
 *
 *     links.c            which nodes to call and when; closes links that are silent
 *     link.c             one link: bytes in and out, its end
 *     link_handshake.c   its beginning: both sides prove who they are and compare settings
 *
 * A link is closed only in its own callbacks of the loop and by the timer, never inside a function
 * of links.h, whose caller may be in the middle of something. Such a function calls
 * sl_link_close_later(): nothing is sent any more, and the timer closes the link. */
#ifndef SL_SERVER_NET_LINKS_INTERNAL_H
#define SL_SERVER_NET_LINKS_INTERNAL_H

#include "base/random.h"
#include "server/net/link_auth.h"
#include "server/net/links.h"
#include "server/observe/log.h"

#define SL_LINK_HANDSHAKE_MS 2000    /* How long a link may take to come up. */
#define SL_LINK_SILENT_MS 500        /* How long a link that is up may be silent. */
#define SL_LINK_STRANGERS 32u        /* Callers that have not authenticated, */
#define SL_LINK_STRANGER_BYTES 1024u /* and what each of them may send. */

enum sl_link_phase {
    SL_LINK_CALLS,           /* The caller waits for the connection. */
    SL_LINK_AWAITS_NONCE,    /* The caller. */
    SL_LINK_AWAITS_WELCOME,  /* The caller. */
    SL_LINK_AWAITS_HELLO,    /* The callee. */
    SL_LINK_AWAITS_SETTINGS, /* The other side has authenticated. */
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

    enum sl_link_role role; /* Ours. */
    enum sl_link_phase phase;
    sl_node_id id; /* Of the other side; before AWAITS_SETTINGS: unverified. */
    struct sl_handshake handshake;
    bool known; /* It has authenticated as that node. */
    bool talks; /* It is up, and a message has come. */
    bool closing;
    bool silent;   /* It is closed because nothing came. */
    bool replaced; /* By a newer one: messages are read from it, and nothing is sent. */
    size_t came;   /* Bytes received. */
    sl_ms since_ms, up_ms, heard_ms;
    const char
        *close_why; /* The timer closes it, for this reason; NULL: it does not. */
    char why[200];  /* The text of close_why. */
    char address[SL_ADDRESS_BYTES];

    struct sl_resp_reader *reader;
    struct sl_resp_writer out;
    char *sending; /* Output that libuv sends; NULL: none. */
    size_t sending_bytes;
};

/* A node to be connected with. */
struct peer {
    struct sl_member member;
    sl_ms
        call_ms; /* When to call it; SL_NEVER: it is being called, or its link is up. */
    sl_ms delay_ms; /* How long to wait after a failure. */
    uint32_t calls;
    uint64_t
        lookup; /* The number of the lookup of its name that is under way; 0: none. */
    bool was_up;
    char said[200];   /* The last message about it in the log. */
    uint64_t differs; /* A hash of the settings that were last compared. */
};

struct listener {
    uv_tcp_t tcp;
    struct server *server;
    bool pending; /* A caller is to be accepted in a later turn. */
};

struct sl_links {
    struct server *server;
    const struct sl_link_handler *handler;
    struct listener *listeners[SL_LISTENERS_MAX];
    size_t listener_count;
    int port;
    struct peer peers[2 * SL_NODES_MAX];
    size_t peer_count;
    struct sl_list all; /* Links, in the order in which they began. */
    struct sl_list dirty;
    size_t strangers;
    uv_timer_t timer;
    sl_ms timer_ms; /* When it expires, or SL_NEVER. */
    uint64_t last_lookup;
    struct sl_random random;
    bool stopped;
    struct sl_links_view counts;
};

/* --- links.c ---------------------------------------------------------------- */

/* Let the timer expire by then. */
void sl_links_wake_by(struct sl_links *l, sl_ms ms);

struct peer *sl_links_peer(struct sl_links *l, sl_node_id id);

/* The link with this node that is up and not replaced, even if it is closed later; or NULL. */
struct link *sl_links_up(struct sl_links *l, sl_node_id id);

/* The first message has come on it. Only now the log tells of the link: the other side may refuse
 * a link that is up on this side. */
void sl_links_talks(struct link *k);

/* It was closed, up or not. NULL: there is nothing to log. */
void sl_links_closed(struct link *k, const char *why);

/* --- link.c ----------------------------------------------------------------- */

/* Call a node. NULL: out of memory. */
struct link *sl_link_call(struct server *s, const struct sl_member *to,
                          const struct sockaddr *a);

/* Accept a caller. False: out of memory; it stays in the backlog. */
bool sl_link_accept(struct server *s, uv_stream_t *listener);

/* Close it, in a callback of its own. */
void sl_link_close(struct link *k, const char *why);

/* Let the timer close it. Copies why. */
void sl_link_close_later(struct link *k, const char *why);

/* Where to write to it. It will be sent at the end of the callback. */
struct sl_resp_writer *sl_link_out(struct link *k);
void sl_link_flush(struct link *k);

/* Whether there is input to read. */
bool sl_link_has_input(const struct link *k);

/* --- link_handshake.c ------------------------------------------------------- */

/* The callee sends its nonce. */
void sl_link_challenge(struct link *k);

/* Take the next command of the handshake. The link may be closed after that. */
void sl_link_shake(struct link *k, const struct sl_args *args);

/* The other side has refused the link, and said why. */
void sl_link_refused(struct link *k, const struct sl_args *args);
bool sl_link_is_refusal(const struct sl_args *args);

#endif /* SL_SERVER_NET_LINKS_INTERNAL_H */
