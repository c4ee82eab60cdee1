/* majority.h - the arbiter `majority`: this server as a node of a majority cluster.
 *
 * The protocol is in majority/node.h, which does no I/O. This module connects it with the clock,
 * clients, links to other nodes, and a file.
 *
 *     request -> submit() -> sl_node_submit() -> orders -> pump() -> net/links.c -> other nodes
 *     reply   <- sl_request_answer() <- pump() <- orders <- node <- net/links.c <- other nodes
 *
 * The ticket of a request identifies it to the node. */
#ifndef SL_SERVER_ARBITER_MAJORITY_H
#define SL_SERVER_ARBITER_MAJORITY_H

#include "majority/node.h"
#include "server/arbiter/arbiter.h"

/* Read the file of the node, create the node, and listen for other nodes. Returns 0, or -1 after
 * logging the reason. */
int sl_majority_start(struct server *s);

/* Close the links, wait for the last write, and write the mark of a clean stop. Call this when the
 * loop has ended. Returns 0, or -1 after logging the reason. */
int sl_majority_stop(struct server *s);

/* Return the node, or NULL if this server is not a node of a cluster. */
struct sl_node *sl_majority_node(const struct server *s);

/* Whether this node is a member of its cluster. */
bool sl_majority_is_member(const struct server *s);

struct arbiter *sl_majority_arbiter(struct server *s);

/* --- Inspection ----------------------------------------------------------------------- */

struct sl_majority_view {
    const char *directory;
    uint64_t writes, errors; /* Writes of the node's file, and failed writes. */
    int failed;              /* The errno of the last write; 0: it succeeded. */
    uint32_t nodes_up;       /* Number of other nodes whose link to this node is up. */
};
void sl_majority_inspect_file(const struct server *s, struct sl_majority_view *out);

/* Write the text of the error RECOVERING. A node that has started, or was added, does not vote until
 * earlier leases have expired. */
void sl_majority_write_recovering(const struct sl_node_answer *a, char *out,
                                  size_t size);

/* Return approximately how many bytes the node uses; 0: this server is not a node. */
size_t sl_majority_bytes(const struct server *s);

#endif /* SL_SERVER_ARBITER_MAJORITY_H */
