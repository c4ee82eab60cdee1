/* links.h - connections between nodes: who is at the other end is known for certain.
 *
 * Every two nodes have one link, whoever called first. Before anything else both show that
 * they know the cluster's secret, by a keyed hash over both random numbers and both names:
 * the secret itself never crosses the wire, and an answer is of no use for another pair or
 * another time. Then they compare what has to be equal in their settings. A peer that says
 * nothing for half a second is given up; it is called again, at first soon, then with
 * growing pauses up to a bound.
 *
 * What is sent on a link that is not up is dropped: messages may be lost (majority/message.h). */
#ifndef SL_SERVER_NET_LINKS_H
#define SL_SERVER_NET_LINKS_H

#include "majority/node.h"
#include "server/server.h"

/* Listen on the node port. 0, or -1: it was said in the log. */
int sl_links_start(struct server *s);

/* Hang up, on everybody and for good. Nothing is told of it. */
void sl_links_stop(struct server *s);

/* How a link ended: another took its place; it fell silent; or its other side, or somebody
 * on the way, closed it. */
enum sl_link_end { SL_END_REPLACED, SL_END_SILENT, SL_END_CLOSED };

/* With whom to be connected from now on, besides oneself. Others are hung up on. */
void sl_links_set(struct server *s, const struct sl_member *at, uint32_t n);

/* It is sent at the end of the callback, together with what else goes there. */
void sl_links_send(struct server *s, sl_node_id to, const struct sl_message *m);
void sl_links_flush(struct server *s);

/* Where to write a frame of another kind (relay.h) to; NULL: the link is not up. And how
 * much of all is not sent yet. */
struct sl_resp_writer *sl_links_frame(struct server *s, sl_node_id to);
bool sl_links_are_up(const struct server *s, sl_node_id to);
size_t sl_links_unsent(const struct server *s, sl_node_id to);

/* For INFO: counted since the start. */
struct sl_links_view {
    uint64_t reconnects; /* Came up again. */
    uint64_t refused;    /* Callers, and answers to calls, that were turned away. */
    uint64_t unread;     /* What came from a node and was no message. */
};
void sl_links_view(const struct server *s, struct sl_links_view *out);

/* --- What links tell (cluster.c) -------------------------------------------------- */

/* All of it from callbacks of the loop, never from inside a function of the above. */

/* A link is up; false: hang up, and *why is told to the other side and to the log. */
bool sl_majority_linked(struct server *s, sl_node_id id, uint64_t birth,
                        const char **why);
void sl_majority_unlinked(struct server *s, sl_node_id id, enum sl_link_end how);

/* A node was called in vain. */
void sl_majority_unreached(struct server *s, sl_node_id id, enum sl_link_end how);
void sl_majority_received(struct server *s, sl_node_id from,
                          const struct sl_message *m);

/* What is shown to the other side, and compared: name=value, one a line. */
uint64_t sl_majority_birth(const struct server *s);
void sl_majority_settings(const struct server *s, char *out, size_t n);

#endif /* SL_SERVER_NET_LINKS_H */
