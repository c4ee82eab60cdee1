/* relay.h - a cluster with a keeper: whoever is asked, the keeper answers.
 *
 * Every node takes every command. One that is the keeper's (KEEPER in commands.def) is
 * done here while this node is the keeper (reign.c); else its words go to the node that is,
 * over their link, and are run there on a connection without a socket (far.c), whose output
 * comes back as bytes (relay.c).
 *
 *     client --> conn, waits --words--> link --> far conn --> dispatch.c --> table, keeper
 *     client <-- conn <-------bytes---- link <-- far conn <-- reply
 *
 * A connection has one command on its way at a time, so their order is kept. Besides the
 * reply the keeper tells each grant that a client of this node took or extended: the node
 * writes it down (ledger.h).
 *
 * The keeper dies, or another one becomes it, or the link breaks: this is another *way*.
 * On it the node first hands its ledger over (reclaims), and then asks again what was not
 * answered, with the time that it has waited. What cannot be asked again is settled: a
 * transaction is over (STALE), unless it was about to commit: then it is asked what became
 * of its request. While there is no way, commands wait, up to keeper-wait. */
#ifndef SL_SERVER_FORWARD_FORWARD_H
#define SL_SERVER_FORWARD_FORWARD_H

#include "failover/election.h"
#include "majority/node.h"
#include "server/command/dispatch.h"
#include "server/forward/ledger.h"
#include "server/net/links.h"

/* To be called when the node and its engine are there. 0, also where there is no such
 * engine; or -1: it was said in the log. */
int sl_forward_start(struct server *s);

/* What state.c wants to be kept in the engine: it is, with the next renewal, which is now.
 * False: this node is not the keeper. */
bool sl_forward_write_state(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* The loop has ended. */
void sl_forward_stop(struct server *s);

/* Whether a majority of nodes decides about this key, and no keeper. */
bool sl_by_majority(const struct server *s, struct sl_bytes key);

/* --- Commands ------------------------------------------------------------------------ */

/* Whether the command is to be run here. False: it is on its way, or was refused. */
bool sl_forward_here(struct call *call, const struct command *command);

/* What one is told whose transaction went with its keeper. */
#define SL_LOST_TX "its keeper was lost, and it with it: TX.BEGIN again"

/* It was run here; if its connection waits now, its words are kept, as the keeper may be
 * another before it is answered. */
void sl_forward_ran(struct call *call, const struct command *command);

/* It does not wait any more: its words are not needed. */
void sl_forward_forget(struct conn *c);

/* A connection is gone, or begins anew. */
void sl_forward_leave(struct conn *c, enum sl_parting how);

/* Whether it asked for something that is done soon. */
bool sl_forward_is_brief(const struct conn *c);

/* A command of the transaction that this connection has at the keeper was refused here. */
void sl_forward_failed(struct conn *c, const char *name);

/* A grant that a far connection took (fresh) or extended: its node is told. */
void sl_forward_held(struct conn *c, struct sl_bytes key, sl_fence fence, bool fresh);

/* A grant is over: other nodes may have it in their ledgers. At once, where its holder may
 * not know, and would go on with the next keeper. */
void sl_forward_gone(struct server *s, sl_fence fence, bool at_once);

/* --- A far connection (far.c) ---------------------------------------------------------- */

struct sl_proxy {
    struct conn *c;
    sl_node_id node;
    uint64_t session; /* Its number there. */
    sl_ms came_ms;    /* When its last command came. */
    bool busy;        /* A command came, */
    bool ran;         /* was run, */
    bool gone;        /* or its node says that it is gone, or is gone itself: */
    bool adrift;      /* then its grants wait for it to come back. */
    struct sl_list stalled;
};

/* Send what was written to it, as far as the link has room. */
void sl_proxy_flush(struct conn *c);

/* It was closed here: its node is told, unless it knows. */
void sl_proxy_closed(struct conn *c);

/* --- What happens --------------------------------------------------------------------- */

void sl_forward_linked(struct server *s, sl_node_id id);
void sl_forward_unlinked(struct server *s, sl_node_id id, enum sl_link_end how);
void sl_forward_unreached(struct server *s, sl_node_id id, enum sl_link_end how);
void sl_forward_received(struct server *s, sl_node_id from, const struct sl_args *args);
bool sl_forward_is_frame(const struct sl_args *args);

/* The link has sent what it had. */
void sl_forward_drained(struct server *s, sl_node_id id);

/* The list of nodes is another. */
void sl_forward_members(struct server *s);

/* The engine has refused something, as this term is current. */
void sl_forward_refused(struct server *s, uint64_t term);

/* An event happened here: other nodes have listeners, too. */
bool sl_forward_listened(const struct server *s);
void sl_forward_event(struct server *s, struct sl_bytes channel, struct sl_bytes text);

bool sl_forward_tell(struct server *s);
sl_ms sl_forward_due(const struct server *s);
void sl_forward_second(struct server *s);

/* --- Ask ------------------------------------------------------------------------------ */

/* Why there is no keeper, for an error. */
const char *sl_forward_why_not(const struct server *s);

struct sl_forward_view {
    sl_node_id keeper; /* 0: none is known. */
    uint64_t term;
    bool leads, open;   /* It is this node; or there is a way to it. */
    sl_ms authority_ms; /* What is left of it. */
    size_t queued, sent, far, records;
    uint64_t forwarded, served, reclaimed, refused, claims, ways;
};
void sl_forward_look(const struct server *s, struct sl_forward_view *out);

/* Bytes of what clients of this node hold at the keeper. */
size_t sl_forward_bytes(const struct server *s);

#endif /* SL_SERVER_FORWARD_FORWARD_H */
