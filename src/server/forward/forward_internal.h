/* relay_inside.h - what the files of the relay share.
 *
 *     relay.c   a node's side: commands on their way to the keeper, and what comes back
 *     far.c     the keeper's side: connections of other nodes
 *     news.c    what it tells ledgers elsewhere
 *     reign.c   who is the keeper, and what a node does that becomes it, or is it no more
 *
 * Frames on a link, each a command of the Redis protocol. The way begins with R.COME; when
 * that was welcome, with what the node reclaims; its commands come after R.READY.
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

/* What a command is, as far as another way is concerned. */
enum sl_forward_kind {
    SL_ASKS_AGAIN, /* It can be asked again. */
    SL_ACQUIRES,
    SL_RELEASES,
    SL_BEGINS,  /* A transaction: again, too. */
    SL_COMMITS, /* Its outcome is asked for, if it has a name. */
    SL_ABORTS,
    SL_IN_IT, /* Its transaction is over. */
};

/* A command of a connection: on its way, or waiting for one; or, with words alone, done here
 * and waiting for its grant. */
struct sl_forwarded {
    struct sl_list place;
    struct conn *c;
    enum sl_forward_kind kind;
    bool sent, waits; /* waits: for long, by its own words. */
    sl_ms sent_ms;
    bool had;     /* RELEASE: it was in the ledger. */
    bool settles; /* COMMIT that became a TX.OUTCOME. */
    sl_ms since_ms;
    uint64_t tx;      /* TX.BEGIN: the transaction that it has begun. */
    size_t request_n; /* TX.BEGIN REQUEST id: the length of the id; 0: there is none. */
    size_t n;         /* Bytes of the command. */
    char bytes[];
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
    struct sl_election *office;
    bool leads;
    uint64_t term;     /* Of this node's reign. */
    sl_node_id keeper; /* Whom to ask; 0: none is known. */
    uint64_t keeper_term;
    sl_ms without_since_ms;      /* Since when there is no way; SL_NEVER: there is. */
    struct sl_storage_term lost; /* Who was the keeper then. */
    sl_ms
        certain_ms; /* What is held without a lease was nobody else's, at least then. */
    sl_ms poke_ms;  /* When to ask for it again. */

    uint64_t way;   /* Its number. */
    sl_ms again_ms; /* When to try to begin it again; SL_NEVER. */
    bool open;      /* The ledger is handed over, commands may follow. */
    bool handing;   /* It is being handed over. */
    bool listens;   /* That was told. */
    struct sl_ledger ledger;
    struct sl_list queued,
        sent; /* struct sl_forwarded, in the order in which they came. */
    size_t queued_count, sent_count;

    bool exporting; /* It was the keeper, and its table is being written down: */
    uint64_t export_cursor; /* up to here. */
    sl_ms gather_ms; /* As keeper: until then other nodes may be about to reclaim; 0. */

    struct sl_glob **majority; /* Of majority-keys. */
    size_t majority_count;

    struct sl_index far; /* Far connections by node and session. */
    struct sl_list stalled;
    struct sl_proxy_node nodes[SL_NODE_ID_MAX + 1];

    struct sl_witness news;

    struct duty { /* One operation of the engine of each kind, at a time. */
        struct sl_storage_op op;
        bool busy;
        sl_ms asked_ms;
        bool has_state;
    } look, claim, renew;
    sl_fence fence_limit; /* To be kept with the next renewal. */
    sl_ms longest_ms;
    bool state_wanted;
    struct {
        uint64_t forwarded, served, reclaimed, refused;
    } counts;
};

/* --- relay.c -------------------------------------------------------------------------- */

/* Words as one command of the protocol; NULL when out of memory. */
struct sl_forwarded *sl_forwarded_new(struct conn *c, const struct sl_bytes *at,
                                      size_t n);

/* The way to the keeper is another: what was sent on the old one is settled or queued, and
 * the new one is begun, if it can be. */
void sl_forward_turn(struct server *s);
void sl_forward_end_way(struct server *s);
void sl_forward_begin_way(struct server *s);

/* There is no way, and the keeper may be about to give away what clients here believe to
 * hold without a lease: their connections end. When to look again, or SL_NEVER. */
void sl_forward_cut_off(struct server *s);
sl_ms sl_forward_cut_due(const struct server *s);

/* Hand the ledger over, as much as this turn allows. True: there is no more. */
bool sl_forward_hand_over(struct server *s);

/* This node is the keeper now: what waited is done here, and what is in its ledger held here,
 * as much as a turn allows. True: there is no more. */
void sl_forward_come_home(struct server *s);
bool sl_forward_reclaim_own(struct server *s);

/* All nodes that can be heard have reclaimed: what waited for that is done. */
void sl_forward_gathered(struct server *s);

/* The keeper is another: local connections that wait will ask there; open transactions are
 * over. */
void sl_forward_go_out(struct server *s);

/* --- far.c ---------------------------------------------------------------------------- */

/* Compile majority-keys. SLUICE_ENOMEM. */
int sl_forward_read_majority_keys(struct server *s);

void sl_proxy_init(struct server *s);
void sl_proxy_received(struct server *s, sl_node_id from, const struct sl_args *args);

/* Close those of a node, or of all (0): it is gone, or we are not the keeper any more. */
void sl_proxy_close_all(struct server *s, sl_node_id node);

/* Whether all nodes with whom there is a link have reclaimed what they had to. */
bool sl_proxy_all_ready(const struct server *s);

/* A grant of a record, here, where this node is the keeper: false: it is lost. */
bool sl_reclaim(struct server *s, struct session *n, const struct sl_grant_view *v,
                struct sl_bytes key);

/* --- news.c ----------------------------------------------------------------------------- */

void sl_witness_init(struct sl_witness *n);

/* A client of this node, which is the keeper, took or extended this with a lease. */
void sl_witness_note(struct server *s, struct sl_bytes key, sl_fence fence);

/* Tell what is due; or nothing of it, as this node is the keeper no more. */
void sl_witness_tell(struct server *s);
void sl_witness_forget(struct server *s);

/* --- frames ---------------------------------------------------------------------------- */

/* A frame of so many words, to be followed by them; NULL: there is no link. */
struct sl_resp_writer *sl_frame(struct server *s, sl_node_id to, const char *name,
                                size_t words);

#endif /* SL_SERVER_FORWARD_FORWARD_INTERNAL_H */
