/* forward.h - a cluster with a keeper: every node accepts every command, the keeper decides.
 *
 * A request for the keeper is decided here while this node is the keeper (term.c). Otherwise its
 * arguments go to the keeper over the link between the two nodes and run there on a connection
 * without a socket (proxy.c); the output of that connection comes back as bytes (forward.c).
 *
 *     client --> conn --> remote arbiter --arguments--> link --> proxy --> local arbiter
 *     client <-- conn <-- remote arbiter <----bytes---- link <-- proxy <-- reply
 *
 * A connection has one request under way at a time, so their order is kept. Besides the reply, the
 * keeper reports each grant that a client of this node took or extended, and the node writes it
 * down (ledger.h).
 *
 * If the keeper dies, another node takes over, or the link breaks, the node has a new *route*.
 * On it the node first hands its ledger over, so that the keeper can reclaim the grants. Then
 * it submits again what was not answered, with the time that it has waited. What cannot be
 * submitted again is settled: a transaction is aborted (STALE), unless it was about to commit:
 * then TX.OUTCOME tells. While there is no route, requests wait, up to keeper-wait. */
#ifndef SL_SERVER_FORWARD_FORWARD_H
#define SL_SERVER_FORWARD_FORWARD_H

#include "failover/election.h"
#include "majority/node.h"
#include "server/forward/ledger.h"
#include "server/forward/proxy.h"
#include "server/net/links.h"
#include "server/request.h"

/* Called when the node and its storage are there. Returns the remote arbiter; NULL: it is in the
 * log why not. */
struct arbiter *sl_forward_start(struct server *s);

/* The loop has ended. */
void sl_forward_stop(struct server *s);

/* Write the limits of fences and leases with the next renewal, which is now. False: this node is
 * not the keeper. */
bool sl_forward_write_state(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* --- Requests (forward.c) ------------------------------------------------------------- */

/* Whether the remote arbiter has to have it: the keeper is another node, or this one waits for
 * reports of other nodes before it decides such a request. */
bool sl_forward_has_to(const struct request *r);

void sl_forward_submit(struct arbiter *a, struct request *r);
void sl_forward_withdraw(struct arbiter *a, struct request *r);
void sl_forward_take_back(struct arbiter *a, struct request *r,
                          const struct sl_grant *g);
bool sl_forward_is_brief(const struct arbiter *a, const struct request *r);
void sl_forward_leave(struct arbiter *a, struct conn *c, enum sl_parting how);

/* A command of the transaction that this connection has at the keeper failed here. */
void sl_forward_failed(struct arbiter *a, struct conn *c, const char *name,
                       const char *word);

/* --- What happens --------------------------------------------------------------------- */

void sl_forward_linked(struct server *s, sl_node_id id);
void sl_forward_unlinked(struct server *s, sl_node_id id, enum sl_link_end how);
void sl_forward_unreached(struct server *s, sl_node_id id, enum sl_link_end how);
void sl_forward_received(struct server *s, sl_node_id from, const struct sl_args *args);
bool sl_forward_is_frame(const struct sl_args *args);

/* The link has sent what it had. */
void sl_forward_drained(struct server *s, sl_node_id id);

/* The membership has changed. */
void sl_forward_members(struct server *s);

/* The storage has rejected something, because this term is current. */
void sl_forward_term_rejected(struct server *s, uint64_t term);

bool sl_forward_pump(struct arbiter *a);
sl_ms sl_forward_due(const struct arbiter *a);
void sl_forward_second(struct arbiter *a);

/* --- Inspection ----------------------------------------------------------------------- */

/* Why there is no keeper, for an error. */
const char *sl_forward_why_not(const struct server *s);

struct sl_forward_view {
    sl_node_id keeper; /* 0: none is known. */
    uint64_t term;
    bool leads, open;   /* This node is the keeper; or there is a route to it. */
    sl_ms authority_ms; /* What is left of it. */
    size_t queued, sent, far, records;
    uint64_t forwarded, served, reclaimed, refused, claims, ways;
};
void sl_forward_view(const struct server *s, struct sl_forward_view *out);

/* Bytes of the ledger. */
size_t sl_forward_bytes(const struct server *s);

#endif /* SL_SERVER_FORWARD_FORWARD_H */
