/* forward_internal.h - what the files of forward/ share.
 *
 *     forward.c  a node's side: requests for the keeper, and what comes back
 *     route.c    a node's side: how it finds the keeper, and hands its ledger over
 *     proxy.c    the keeper's side: connections of other nodes
 *     witness.c  what the keeper reports to ledgers of other nodes
 *     term.c     who is the keeper, and what a node does that becomes or stops being the keeper
 *
 * Frames on a link, each a command of the Redis protocol. A route begins with R.COME; if the
 * keeper welcomes it, the node sends what it reclaims; its requests come after R.READY.
 *
 *     to the keeper                        from the keeper
 *     R.COME term                          R.HERE term, or R.NOT term: it is not the keeper
 *     R.RECLAIM session RECORD             R.LOST session fence    there is no such grant
 *     R.READY
 *     R.DO session waited_ms resp3 last bytes     R.SAY session what tx bytes
 *     R.END session cut                    R.CUT session
 *     R.DROP session key fence             R.HELD session fresh age_ms RECORD
 *     R.FAIL session command               a node itself refused it, in a transaction
 *     R.LISTEN yes                         R.EVENT channel text
 *     R.CLOCK ms                           R.NOTE ms RECORD: by the receiver's clock
 *                                          R.GONE fence ...
 *     and between all: R.DOUBT term sight
 *
 *     age_ms: since the R.DO came. tx: the transaction that the session has now, 0: none.
 *     RECORD: record.h */
#ifndef SL_SERVER_FORWARD_FORWARD_INTERNAL_H
#define SL_SERVER_FORWARD_FORWARD_INTERNAL_H

#include "server/forward/forward.h"
#include "server/forward/record.h"
#include "server/net/links.h"
#include "storage/storage.h"

#define SL_FORWARD_PIECE 32768u /* Bytes of a command or reply in one frame. */
#define SL_FORWARD_HIGH \
    ((size_t)1 << 20) /* With so much unsent a link is given no more. */

/* Of R.SAY: the reply is whole with this; or the rest of it, or of a push, follows. */
#define SL_SAY_LAST 1u
#define SL_SAY_MORE 2u

/* What a node remembers of a connection that has forwarded something. */
struct sl_forward_session {
    struct sl_list held;     /* What it holds at the keeper (ledger.h). */
    uint64_t route;          /* The route on which it was last forwarded. */
    sl_fence untold;         /* Granted by the keeper, and the reply is not here yet. */
    uint64_t tx;             /* Its transaction at the keeper; 0: none. */
    struct sl_bytes request; /* The id of its TX.BEGIN REQUEST; owned; n 0: none. */
    bool half; /* A part of a reply was sent to it; the rest is at the keeper. */
};

struct sl_proxy_node {
    bool open, ready, listens; /* ready: what it had to reclaim has come. */
    sl_ms clock_ms;            /* Its clock, as it was when our own was clock_at_ms, */
    sl_ms clock_at_ms;         /* or before; 0: it has not said. */
    size_t count;              /* Far connections. */
};

#define SL_NOTES_MAX 256u
#define SL_GONE_MAX 60u /* A frame has so many words. */

struct sl_witness { /* For ledgers elsewhere (news.c). */
    sl_ms due_ms;   /* SL_NEVER: there are none. */
    size_t note_count, gone_count;
    struct sl_note {
        sl_fence fence;
        char *key;
        size_t n;
    } notes[SL_NOTES_MAX];
    sl_fence gone[SL_GONE_MAX];
};

struct sl_forward {
    struct sl_election *election;
    bool leads;
    uint64_t term;     /* Of this node's reign. */
    sl_node_id keeper; /* Whom to ask; 0: none is known. */
    uint64_t keeper_term;
    sl_ms without_since_ms;      /* Since when there is no way; SL_NEVER: there is. */
    struct sl_storage_term lost; /* Who was the keeper then. */
    sl_ms
        certain_ms; /* What is held without a lease was nobody else's, at least then. */
    sl_ms poke_ms;  /* When to ask for it again. */

    uint64_t route; /* Its number. */
    sl_ms again_ms; /* When to try to begin it again; SL_NEVER. */
    bool open;      /* The ledger is handed over, commands may follow. */
    bool handing;   /* It is being handed over. */
    bool listens;   /* That was told. */
    struct sl_ledger ledger;
    struct sl_list queued, sent; /* Requests, in the order in which they arrived. */
    size_t queued_count, sent_count;

    bool exporting; /* It was the keeper, and its table is being written down: */
    uint64_t export_cursor; /* up to here. */
    sl_ms
        reports_until_ms; /* As keeper: until then other nodes may be about to reclaim; 0. */

    struct sl_index proxies; /* Far connections by node and session. */
    struct sl_list stalled;
    struct sl_proxy_node nodes[SL_NODE_ID_MAX + 1];

    struct sl_witness witness;

    struct duty { /* One operation of the engine of each kind, at a time. */
        struct sl_storage_op op;
        bool busy;
        sl_ms asked_ms;
        bool has_state;
    } read_term, claim, renew;
    sl_fence fence_limit; /* To be kept with the next renewal. */
    sl_ms longest_ms;
    bool state_wanted;
    struct {
        uint64_t forwarded, served, reclaimed, refused;
    } counts;
};

/* --- forward.c ------------------------------------------------------------------------- */

/* NULL: it has forwarded nothing. */
struct sl_forward_session *sl_forward_session_make(struct conn *c);

/* The request that a connection has at the remote arbiter; NULL: none. */
struct request *sl_forward_request_of(const struct conn *c);

/* Into the queue, by age. */
void sl_forward_enqueue(struct request *r);

/* Send what is queued, as far as the link has room. */
void sl_forward_send_queued(struct server *s);

/* It is not on a list any more. */
void sl_forward_unlist(struct request *r);

/* Write an error and end it. */
void sl_forward_answer_problem(struct request *r, const char *word, const char *text);

/* The transaction of a connection at the keeper has ended; or it was lost with the keeper. */
void sl_forward_tx_ended(struct conn *c);
void sl_forward_tx_lost(struct conn *c);

/* Tell the keeper that nobody wants this grant. */
void sl_forward_drop(struct server *s, struct sl_record *x);

/* Frames of the keeper to a client. */
void sl_forward_from_keeper(struct server *s, const struct sl_args *a);
bool sl_forward_frame_is(const struct sl_args *a, const char *name, size_t n);

/* --- route.c ---------------------------------------------------------------------------- */

/* A lease of a record ends here when it does for the keeper, or before. */
void sl_forward_here(struct server *s, const struct sl_args *a);
void sl_forward_tell_listening(struct server *s);
void sl_forward_tell_clock(struct server *s);

/* The way to the keeper is another: what was sent on the old one is settled or queued, and
 * the new one is begun, if it can be. */
void sl_forward_change_route(struct server *s);
void sl_forward_end_route(struct server *s);
void sl_forward_begin_route(struct server *s);

/* There is no way, and the keeper may be about to give away what clients here believe to
 * hold without a lease: their connections end. When to look again, or SL_NEVER. */
void sl_forward_cut_off(struct server *s);
sl_ms sl_forward_cut_due(const struct server *s);

/* Hand the ledger over, as much as this turn allows. True: there is no more. */
bool sl_forward_hand_over(struct server *s);

/* This node is the keeper now: what waited is done here, and what is in its ledger held here,
 * as much as a turn allows. True: there is no more. */
void sl_forward_take_over(struct server *s);
bool sl_forward_reclaim_own(struct server *s);

/* All nodes that can be heard have reclaimed: what waited for that is done. */
void sl_forward_reports_complete(struct server *s);

/* The keeper is another: local connections that wait will ask there; open transactions are
 * over. */
void sl_forward_step_down(struct server *s);

/* --- proxy.c ---------------------------------------------------------------------------- */

void sl_proxy_init(struct server *s);
void sl_proxy_received(struct server *s, sl_node_id from, const struct sl_args *args);

/* Close those of a node, or of all (0): it is gone, or we are not the keeper any more. */
void sl_proxy_close_all(struct server *s, sl_node_id node);

/* Whether all nodes with whom there is a link have reclaimed what they had to. */
bool sl_proxy_all_ready(const struct server *s);

/* A grant of a record, here, where this node is the keeper: false: it is lost. */
bool sl_reclaim(struct server *s, struct session *n, const struct sl_grant_view *v,
                struct sl_bytes key);

/* --- witness.c ----------------------------------------------------------------------------- */

void sl_witness_init(struct sl_witness *n);

/* A client of this node, which is the keeper, took or extended this with a lease. */
void sl_witness_note(struct server *s, struct sl_bytes key, sl_fence fence);

/* The observers of the lock table (arbiter/local.h): proxy.c, witness.c. */
void sl_forward_held(struct conn *c, struct sl_bytes key, sl_fence fence, bool fresh);
void sl_forward_gone(struct server *s, sl_fence fence, bool at_once);

/* Tell what is due; or nothing of it, as this node is the keeper no more. */
void sl_witness_tell(struct server *s);
void sl_witness_forget(struct server *s);

/* --- frames ---------------------------------------------------------------------------- */

/* A frame of so many words, to be followed by them; NULL: there is no link. */
struct sl_resp_writer *sl_frame(struct server *s, sl_node_id to, const char *name,
                                size_t words);

#endif /* SL_SERVER_FORWARD_FORWARD_INTERNAL_H */
