/* links.h - authenticated connections between nodes.
 *
 * Each pair of nodes has one link; either of them may open it. First, both nodes prove that they
 * know the cluster's secret (link_auth.h). Then they compare the settings that must be equal on
 * all nodes. A node closes a link on which it has received nothing for half a second, and
 * reconnects with exponential backoff.
 *
 * If the link to a node is not up, messages to that node are dropped. The protocol tolerates lost
 * messages (majority/message.h). */
#ifndef SL_SERVER_NET_LINKS_H
#define SL_SERVER_NET_LINKS_H

#include "majority/node.h"
#include "resp/reader.h"
#include "server/server.h"

/* How a link ended: a newer link replaced it, nothing was received for too long, or the connection
 * was closed or failed. */
enum sl_link_end { SL_END_REPLACED, SL_END_SILENT, SL_END_CLOSED };

/* Callbacks to the module that started the links. They are called only from callbacks of the loop,
 * never from inside a function of this header. */
struct sl_link_handler {
    /* Data that is sent to the other side: what this node states about its data directory, and the
     * settings that should be equal, one "name=value" per line. */
    const struct sl_node_identity *(*identity)(const struct server *s);
    void (*settings)(const struct server *s, char *out, size_t n);

    /* A link is up. To close it, return false and set *why, which is sent to the other side and
     * logged. */
    bool (*up)(struct server *s, sl_node_id id, const struct sl_node_identity *states,
               const char **why);
    void (*down)(struct server *s, sl_node_id id, enum sl_link_end how);

    /* A connection attempt to a node has failed. */
    void (*unreached)(struct server *s, sl_node_id id, enum sl_link_end how);

    void (*message)(struct server *s, sl_node_id from, const struct sl_message *m);

    /* Frames are commands other than messages. They arrive in order, within one link. */
    bool (*is_frame)(const struct server *s, const struct sl_args *args);
    void (*frame)(struct server *s, sl_node_id from, const struct sl_args *args);

    /* How many bytes of unsent frames a link may have in addition to output-bytes-max. */
    size_t (*frame_bytes)(const struct server *s);

    /* The link has sent all its output. */
    void (*drained)(struct server *s, sl_node_id id);
};

/* Listen on the node port. Returns 0, or -1 after logging the reason. Borrows the handler. */
int sl_links_start(struct server *s, const struct sl_link_handler *handler);

/* Log the addresses of the node port. */
void sl_links_log_listening(const struct server *s);

/* Close all links, and open no new ones. Does not call the handler. */
void sl_links_stop(struct server *s);

/* Set the nodes to connect to. This node itself is skipped. Links to nodes that are not in the list
 * are closed. */
void sl_links_set(struct server *s, const struct sl_member *at, uint32_t n);

/* Send a message at the end of the callback, together with other output to that node. */
void sl_links_send(struct server *s, sl_node_id to, const struct sl_message *m);
void sl_links_flush(struct server *s);

/* Close the links with output that is not sent yet, and drop that output. */
void sl_links_cut_dirty(struct server *s);

/* Return the writer for a frame, or NULL if the link is not up. */
struct sl_resp_writer *sl_links_frame(struct server *s, sl_node_id to);
bool sl_links_are_up(const struct server *s, sl_node_id to);

/* Return the number of bytes that are not sent yet on the link. */
size_t sl_links_unsent(const struct server *s, sl_node_id to);

/* Counters for INFO, since the start. */
struct sl_links_view {
    uint64_t reconnects; /* Links that were re-established. */
    uint64_t refused; /* Connections, in either direction, that failed the handshake. */
    uint64_t unread;  /* Commands from nodes that were neither a message nor a frame. */
};
void sl_links_view(const struct server *s, struct sl_links_view *out);

#endif /* SL_SERVER_NET_LINKS_H */
