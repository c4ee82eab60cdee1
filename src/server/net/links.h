/* links.h - connections between nodes, on which both sides have authenticated.
 *
 * Every two nodes have one link, whichever of them called first. Before anything else both prove
 * that they know the cluster's secret, by a keyed hash over both random numbers and both ids: the
 * secret itself is never sent, and a proof is of no use for another pair of nodes or at another
 * time. Then they compare the settings that have to be equal. A node closes a link on which
 * nothing has come for half a second, and calls again: soon at first, then with growing pauses
 * up to a limit.
 *
 * A message for a node whose link is not up is dropped: messages may be lost
 * (majority/message.h). */
#ifndef SL_SERVER_NET_LINKS_H
#define SL_SERVER_NET_LINKS_H

#include "majority/message.h"
#include "resp/reader.h"
#include "server/server.h"

/* How a link ended: another took its place; it fell silent; or its other side, or something on
 * the way, closed it. */
enum sl_link_end { SL_END_REPLACED, SL_END_SILENT, SL_END_CLOSED };

/* The functions of the module that started the links. All calls come from callbacks of the loop,
 * never from inside a function of this header. */
struct sl_link_handler {
    /* What is shown to the other side: when this node was born, and the settings that should be
     * equal, one "name=value" per line. */
    uint64_t (*birth)(const struct server *s);
    void (*settings)(const struct server *s, char *out, size_t n);

    /* A link is up. False: close it, and report *why to the other side and in the log. */
    bool (*up)(struct server *s, sl_node_id id, uint64_t birth, const char **why);
    void (*down)(struct server *s, sl_node_id id, enum sl_link_end how);

    /* A call to a node has failed. */
    void (*unreached)(struct server *s, sl_node_id id, enum sl_link_end how);

    void (*message)(struct server *s, sl_node_id from, const struct sl_message *m);

    /* Frames are commands that are no messages. They come in order, on one link only. */
    bool (*is_frame)(const struct server *s, const struct sl_args *args);
    void (*frame)(struct server *s, sl_node_id from, const struct sl_args *args);

    /* How much unsent output a link may have above output-bytes-max, for frames. */
    size_t (*frame_bytes)(const struct server *s);

    /* The link has sent all its output. */
    void (*drained)(struct server *s, sl_node_id id);
};

/* Listen on the node port. 0, or -1: the log says why. Borrows the handler. */
int sl_links_start(struct server *s, const struct sl_link_handler *handler);

/* Log the addresses of the node port. */
void sl_links_log_listening(const struct server *s);

/* Close all links, and open no more. The handler is not called for that. */
void sl_links_stop(struct server *s);

/* The nodes to be connected with from now on; the own one among them is skipped. Links with
 * others are closed. */
void sl_links_set(struct server *s, const struct sl_member *at, uint32_t n);

/* It is sent at the end of the callback, together with what else goes there. */
void sl_links_send(struct server *s, sl_node_id to, const struct sl_message *m);
void sl_links_flush(struct server *s);

/* Where to write a frame to; NULL: the link is not up. */
struct sl_resp_writer *sl_links_frame(struct server *s, sl_node_id to);
bool sl_links_are_up(const struct server *s, sl_node_id to);

/* How much output of the link is not sent yet. */
size_t sl_links_unsent(const struct server *s, sl_node_id to);

/* For INFO: counted since the start. */
struct sl_links_view {
    uint64_t reconnects; /* Links that came up again. */
    uint64_t refused;    /* Callers, and answers to calls, that were rejected. */
    uint64_t unread;     /* Commands of nodes that were neither message nor frame. */
};
void sl_links_view(const struct server *s, struct sl_links_view *out);

#endif /* SL_SERVER_NET_LINKS_H */
