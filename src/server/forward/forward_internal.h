/* forward_internal.h - shared by the files of forward/. failover/message.h describes the messages
 * between nodes. */
#ifndef SL_SERVER_FORWARD_FORWARD_INTERNAL_H
#define SL_SERVER_FORWARD_FORWARD_INTERNAL_H

#include "failover/failover.h"
#include "server/forward/forward.h"
#include "server/net/links.h"
#include "storage/storage.h"

#define SL_FORWARD_PIECE 32768u /* Maximum bytes of a reply in one message. */
#define SL_FORWARD_HIGH \
    ((size_t)1 << 20) /* Send no more on a link that has this many unsent bytes. */

/* A client of this node that has sent a request to the keeper. */
struct sl_forward_session {
    struct sl_route_session route;
    struct conn *c;
    size_t where_bytes;
    char where[]; /* The address of the client (sl_conn_where()), without '\0'. */
};

struct sl_forward {
    struct sl_failover node; /* This node. */
    bool carrying;           /* Orders of the route are being carried out. */
    struct sl_list stalled;  /* Proxies whose output waits for space on the link. */

    struct sl_term_op { /* At most one storage operation of each kind at a time. */
        struct sl_storage_op op;
        bool busy;
        sl_ms asked_ms;
    } read_term, claim, renew, resign, record, journal;
    bool holders_closed;  /* In a resignation: see close_unleased_holders(). */
    const char *stop_why; /* Stop the server after the resignation; NULL: do not. */
};

/* --- forward.c ------------------------------------------------------------------------- */

/* Return the forward session of a connection, creating it if necessary. Returns NULL if out of
 * memory. */
struct sl_route_session *sl_forward_session_make(struct conn *c);

/* Pass a kept request to the route. */
void sl_forward_enqueue(struct request *r, struct sl_route_session *n);

/* Carry out the orders of the route, as many as the budget of this loop iteration allows. Returns
 * true if there are no more now. */
bool sl_forward_carry_out(struct server *s);

/* --- proxy.c ---------------------------------------------------------------------------- */

/* Create the proxy that a message needs. Returns false if that is not possible. */
bool sl_proxy_prepare(struct server *s, sl_node_id from,
                      const struct sl_failover_message *m);

/* Carry out the orders of the guests. */
void sl_proxy_carry_out(struct server *s);

/* Return the nodes to which there is a link: bit n for node n. */
uint32_t sl_proxy_linked(const struct server *s);

/* Flush the proxies whose output waits for space on a link. */
void sl_proxy_flush_stalled(struct server *s);

/* Callbacks of the local arbiter (arbiter/local.h). */
uint64_t sl_forward_held(struct conn *c, sl_ms came_ms, struct sl_bytes key,
                         sl_fence fence, bool fresh);
void sl_forward_moved(struct server *s, uint64_t session, sl_fence fence);
void sl_forward_gone(struct server *s, sl_fence fence, bool at_once);
void sl_forward_broke(struct server *s, sl_fence fence, bool ended);

/* --- Messages -------------------------------------------------------------------------- */

/* Send a message. Returns false if there is no link. */
bool sl_forward_send(struct server *s, sl_node_id to,
                     const struct sl_failover_message *m);

/* Send CLIENT. */
void sl_forward_send_client(struct server *s, sl_node_id to, uint64_t session,
                            struct sl_bytes name, struct sl_bytes address);

#endif /* SL_SERVER_FORWARD_FORWARD_INTERNAL_H */
