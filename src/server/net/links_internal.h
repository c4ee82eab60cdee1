/* links_internal.h - shared by the files that implement links.
 *
 *     links.c            when to connect to which node; closes silent links
 *     link.c             one link: input, output, closing
 *     link_handshake.c   the handshake: both sides authenticate and compare settings
 *
 * A link is closed only in its own callbacks of the loop and by the timer, never inside a
 * function of links.h, because the calling code may still be using the link. Such a function
 * calls sl_link_close_later(): the link sends nothing more, and the timer closes it. */
#ifndef SL_SERVER_NET_LINKS_INTERNAL_H
#define SL_SERVER_NET_LINKS_INTERNAL_H

#include "base/random.h"
#include "server/net/link_auth.h"
#include "server/net/links.h"
#include "server/observe/log.h"

#define SL_LINK_HANDSHAKE_MS 2000 /* Timeout of the handshake. */
/* Close a link that has received nothing for this long. */
#define SL_LINK_SILENT_MS 500
/* Maximum number of connections that have not authenticated. */
#define SL_LINK_STRANGERS 32u
/* Maximum bytes from a node that has not authenticated. */
#define SL_LINK_STRANGER_BYTES 1024u

enum sl_link_phase {
    SL_LINK_CALLS,           /* The caller is connecting. */
    SL_LINK_AWAITS_NONCE,    /* Caller. */
    SL_LINK_AWAITS_WELCOME,  /* Caller. */
    SL_LINK_AWAITS_HELLO,    /* Callee. */
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

    enum sl_link_role role; /* The role of this node. */
    enum sl_link_phase phase;
    sl_node_id id; /* The id of the other node; unverified before AWAITS_SETTINGS. */
    struct sl_handshake handshake;
    bool known; /* The other side has authenticated as that node. */
    bool talks; /* The link is up, and a message has arrived. */
    bool closing;
    bool silent; /* The link is being closed because it was silent. */
    /* A newer link replaced this one, which still reads messages but sends nothing. */
    bool replaced;
    size_t came; /* Bytes received. */
    sl_ms since_ms, up_ms, heard_ms;
    const char *close_why; /* Why the timer is to close the link; NULL: it is not. */
    char why[200];         /* The text of close_why. */
    char address[SL_ADDRESS_BYTES];

    struct sl_resp_reader *reader;
    struct sl_resp_writer out;
    char *sending; /* Output that libuv is sending; NULL: none. */
    size_t sending_bytes;
};

/* A node to connect to. */
struct peer {
    struct sl_member member;
    sl_ms call_ms;  /* When to connect; SL_NEVER: already connecting or connected. */
    sl_ms delay_ms; /* The delay before the next attempt after a failure. */
    uint32_t calls;
    uint64_t lookup; /* The number of the pending lookup of its host name; 0: none. */
    bool was_up;
    char said[200];   /* The last logged message about this node. */
    uint64_t differs; /* A hash of the settings that were compared last. */
};

struct listener {
    uv_tcp_t tcp;
    struct server *server;
    bool pending; /* A connection waits to be accepted in a later loop iteration. */
};

struct sl_links {
    struct server *server;
    const struct sl_link_handler *handler;
    struct listener *listeners[SL_LISTENERS_MAX];
    size_t listener_count;
    int port;
    struct peer peers[2 * SL_NODES_MAX];
    size_t peer_count;
    struct sl_list all; /* Links, oldest first. */
    struct sl_list dirty;
    size_t strangers;
    uv_timer_t timer;
    sl_ms timer_ms; /* When the timer expires, or SL_NEVER. */
    uint64_t last_lookup;
    struct sl_random random;
    bool stopped;
    struct sl_links_view counts;
};

/* --- links.c ---------------------------------------------------------------- */

/* Make sure that the timer expires at this time or earlier. */
void sl_links_wake_by(struct sl_links *l, sl_ms ms);

struct peer *sl_links_peer(struct sl_links *l, sl_node_id id);

/* Return the link to this node that is up and not replaced, even if the timer is about to close it.
 * Returns NULL if there is none. */
struct link *sl_links_up(struct sl_links *l, sl_node_id id);

/* The first message has arrived on the link. Only now log that the link is up, because until then
 * the other side may still reject it. */
void sl_links_talks(struct link *k);

/* Handle the end of a link, whether or not it was up. `why` NULL: log nothing. */
void sl_links_closed(struct link *k, const char *why);

/* --- link.c ----------------------------------------------------------------- */

/* Connect to a node. Returns NULL if out of memory. */
struct link *sl_link_call(struct server *s, const struct sl_member *to,
                          const struct sockaddr *a);

/* Accept a connection. Returns false if out of memory; then the connection stays in the backlog. */
bool sl_link_accept(struct server *s, uv_stream_t *listener);

/* Close the link. Call this only in a callback of this link. */
void sl_link_close(struct link *k, const char *why);

/* Let the timer close the link. Copies `why`. */
void sl_link_close_later(struct link *k, const char *why);

/* Return the writer for output to the link. The output is sent at the end of the callback. */
struct sl_resp_writer *sl_link_out(struct link *k);
void sl_link_flush(struct link *k);

/* Whether the link has input to read. */
bool sl_link_has_input(const struct link *k);

/* --- link_handshake.c ------------------------------------------------------- */

/* As callee, send the nonce. */
void sl_link_challenge(struct link *k);

/* Handle the next command of the handshake. This may close the link. */
void sl_link_shake(struct link *k, const struct sl_args *args);

/* Handle the other side's rejection of the link, which says why. */
void sl_link_refused(struct link *k, const struct sl_args *args);
bool sl_link_is_refusal(const struct sl_args *args);

#endif /* SL_SERVER_NET_LINKS_INTERNAL_H */
