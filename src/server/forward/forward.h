/* forward.h - a cluster on etcd: every node accepts every command and forwards it to the keeper.
 *
 * While this node is the keeper, its own lock table decides (term.c). Otherwise the node sends
 * the arguments of a request to the keeper over the link between the two nodes. The keeper runs
 * them on a connection without a socket (proxy.c), and the output of that connection is returned
 * as bytes (forward.c).
 *
 *     client --> conn --> remote arbiter --arguments--> link --> proxy --> local arbiter
 *     client <-- conn <-- remote arbiter <----bytes---- link <-- proxy <-- reply
 *
 * README.md describes the order of requests, the ledger, and a change of the keeper. */
#ifndef SL_SERVER_FORWARD_FORWARD_H
#define SL_SERVER_FORWARD_FORWARD_H

#include "failover/election.h"
#include "failover/ledger.h"
#include "majority/node.h"
#include "server/forward/proxy.h"
#include "server/net/links.h"
#include "server/request.h"

/* Start forwarding. Call this when the node and its storage are open. Returns the remote arbiter,
 * or NULL after logging the reason. */
struct arbiter *sl_forward_start(struct server *s);

/* Stop forwarding. Call this when the loop has ended. */
void sl_forward_stop(struct server *s);

/* Renew the term now, and write the limits for fences and leases with it. Returns false if this
 * node is not the keeper. */
bool sl_forward_write_state(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* As the keeper: hand the term over to another node. Returns NULL, or the reason why that is not
 * possible. */
const char *sl_forward_resign(struct server *s);

/* The same for a server that stops: call sl_server_stop() again afterwards. Returns false if this node
 * cannot resign, or has tried to do so. */
bool sl_forward_resigns_first(struct server *s, const char *why);

/* --- Requests (forward.c) ------------------------------------------------------------- */

/* Whether the remote arbiter must handle a request. This is so if the keeper is another node, or if
 * this node is the keeper but resigns, or must wait for reports from other nodes first. */
bool sl_forward_must_decide(const struct request *r);

void sl_forward_submit(struct arbiter *a, struct request *r);
void sl_forward_withdraw(struct arbiter *a, struct request *r);
void sl_forward_take_back(struct arbiter *a, struct request *r,
                          const struct sl_grant *g);
bool sl_forward_is_brief(const struct arbiter *a, const struct request *r);
void sl_forward_leave(struct arbiter *a, struct conn *c, enum sl_parting how);

/* Report to the keeper that this node has rejected a command of the connection's transaction. */
void sl_forward_failed(struct arbiter *a, struct conn *c, const char *name,
                       const char *code);

/* --- Calls from links, membership and storage ------------------------------------------ */

void sl_forward_linked(struct server *s, sl_node_id id);
void sl_forward_unlinked(struct server *s, sl_node_id id, enum sl_link_end how);
void sl_forward_unreached(struct server *s, sl_node_id id, enum sl_link_end how);
void sl_forward_received(struct server *s, sl_node_id from, const struct sl_args *args);
bool sl_forward_is_frame(const struct sl_args *args);

/* Continue to send: the link to this node has sent all its output. */
void sl_forward_drained(struct server *s, sl_node_id id);

/* Handle a change of the membership. */
void sl_forward_members(struct server *s);

/* Handle an operation that the storage rejected because the later term `term` is current. */
void sl_forward_term_rejected(struct server *s, uint64_t term);

bool sl_forward_pump(struct arbiter *a);
sl_ms sl_forward_due(const struct arbiter *a);
void sl_forward_second(struct arbiter *a);

/* --- Inspection ----------------------------------------------------------------------- */

/* Return the text of the error NOKEEPER. */
const char *sl_forward_why_not(const struct server *s);

struct sl_forward_view {
    sl_node_id keeper; /* 0: unknown. */
    uint64_t term;
    bool resigning; /* This node is the keeper, and hands the term over. */
    /* `leads`: this node is the keeper. `open`: it has a route to the keeper. */
    bool leads, open;
    /* As the keeper: other nodes know all short leases, and etcd knows that. As another node: no lease
     * that is valid is missing in its ledger. */
    bool known;
    sl_ms authority_ms; /* The remaining time of the keeper's authority. */
    sl_ms quiet_ms; /* For how long the keeper grants nothing, as far as is known. */
    uint32_t quiet_node; /* The node for whose report it waits; 0: none. */
    bool
        reads_journal; /* This node is the keeper, and has not read its journal in etcd yet. */
    size_t queued, sent, proxies, records;
    uint64_t forwarded, served, reclaimed, refused, claims, routes;
};
void sl_forward_view(const struct server *s, struct sl_forward_view *out);

/* Return the number of bytes of the ledger. */
size_t sl_forward_bytes(const struct server *s);

#endif /* SL_SERVER_FORWARD_FORWARD_H */
