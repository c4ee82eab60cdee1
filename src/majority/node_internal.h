/* node_internal.h - a node, as the files that implement it see it.
 *
 *     node.c                the entry points: messages, links, time, start and end
 *     node_clock.c          the time, from the clocks of all members
 *     node_peers.c          the other nodes
 *     node_disk.c           the file of the node, and messages that wait for it
 *     node_record.c         the journal of the node; key_record.h the state of a key
 *     node_orders.c         the orders of the node to its caller
 *     node_memory.c         allocation; counts every byte
 *     node_key.c            the state of a key
 *     node_acquisition.c    acquisitions with a REQUEST id that have no lease
 *     acceptor.c            votes
 *     acceptor_lease.c      the start and end of leases and reservations
 *     acceptor_teach.c      learning leases that were agreed without this acceptor
 *     acceptor_report.c     events about grants, each published once
 *     proposer.c            clients' requests
 *     proposer_queue.c      the requests that wait for a key
 *     proposer_round.c      one message to all acceptors, and their votes
 *     node_drain.c          drained patterns
 *     proposer_attempt.c    ACQUIRE
 *     proposer_adopt.c      attempts that repeat another one, and CANCEL
 *     proposer_evaluate.c   EXTEND, RELEASE, CHECK, READ, VOTES
 *     proposer_teach.c      teaching agreed leases to nodes that may lack them
 *     membership_change.c   membership changes
 *     node_inspect.c        queries; node_check.c the invariants */
#ifndef SL_MAJORITY_NODE_INTERNAL_H
#define SL_MAJORITY_NODE_INTERNAL_H

#include "base/durable.h"
#include "base/heap.h"
#include "base/index.h"
#include "base/random.h"
#include "base/waits.h"
#include "majority/membership.h"
#include "majority/node.h"

/* A fence is a number of microseconds, so this is a day of fences. A fence
 * further ahead than this is not plausible. */
#define SL_NODE_FENCE_DAY 86400000000u

/* Shorten or lengthen a time, assuming that each clock runs too fast or too slow by at
 * most 1 in 1000. */
static inline sl_ms sl_node_shrink_ms(sl_ms lease_ms)
{
    return lease_ms - lease_ms / 500 - (lease_ms % 500 > 0 ? 1 : 0);
}

static inline sl_ms sl_node_stretch_ms(sl_ms lease_ms)
{
    return sl_ms_after(lease_ms, lease_ms / 400 + 3);
}

/* Clock readings are rounded down to a millisecond, so a time span may begin up to
 * this much later than its first reading. */
#define SL_NODE_GRAIN_MS 1

static inline sl_ms sl_node_min_ms(sl_ms a, sl_ms b)
{
    return a < b ? a : b;
}

static inline sl_ms sl_node_max_ms(sl_ms a, sl_ms b)
{
    return a > b ? a : b;
}

static inline sl_ms sl_node_clamp_ms(sl_ms x, sl_ms low, sl_ms high)
{
    return sl_node_min_ms(sl_node_max_ms(x, low), high);
}

/* Bytes that the node owns. A NULL pointer means no bytes. */
struct sl_node_text {
    size_t n;
    char at[];
};

/* The rank of a request among the requests that compete for a free key: the higher
 * priority comes first, then the older request. Every message contains the rank of its
 * request, so any node can compare two requests. */
struct sl_attempt_rank {
    int32_t priority;
    struct sl_attempt_id owner;
};

static inline bool sl_attempt_comes_before(struct sl_attempt_rank a,
                                           struct sl_attempt_rank b)
{
    if (a.priority != b.priority) return a.priority > b.priority;
    if (a.owner.number != b.owner.number) return a.owner.number < b.owner.number;
    return a.owner.epoch < b.owner.epoch;
}

static inline bool sl_attempt_same(struct sl_attempt_id a, struct sl_attempt_id b)
{
    return a.epoch == b.epoch && a.number == b.number;
}

/* --- Orders ----------------------------------------------------------------------- */

struct sl_proposer_request; /* proposer.h */

/* An order that the caller has not fetched yet. Its bytes follow it in memory. */
struct sl_node_queued_order {
    struct sl_list link;
    enum sl_node_order_type type;
    sl_node_id to[2 * SL_NODES_MAX];
    uint32_t to_count, to_done;
    /* The position of the journal that must be durable before the order is fetched. */
    uint64_t position;
    bool is_request; /* The first member of a request, which is freed with it. */
    size_t bytes;    /* Number of bytes that follow the struct. */
    union {
        struct sl_message message;
        struct sl_node_event event;
        char text[240];
    } u;
};

/* --- The state of a key ---------------------------------------------------------- */

struct sl_node_lease {
    bool live;
    bool agreed; /* Known to be agreed; if not, it may be a failed attempt. */
    bool overlapping;
    bool stolen; /* A stealing request overlaps it; cannot be extended. */
    bool copied; /* Learned from another node's copy; not confirmed since. */
    struct sl_attempt_id owner;
    sl_fence fence;
    int32_t priority;
    sl_ms end_ms, lease_ms;
    uint64_t stamp;   /* The stamp of the value; the highest is the newest. */
    sl_ms sure_ms;    /* Agreed at least until this time of our clock; 0: unknown. */
    sl_ms asked_ms;   /* When it was asked to release; -1: not asked. */
    uint64_t session; /* The session on this node that holds it; 0: none. */
    size_t length;    /* The index + 1 of its length in base/durable.h; 0: none. */
    struct sl_node_text *value, *note, *client;
    struct sl_node_text *request; /* The user and REQUEST id; NULL: none. */
    uint64_t digest;              /* Of the options of the request. */
    bool adopted; /* A client has received it, so giving up does not end it. */
};

/* A reservation by a stealing request, which waits until the lease of this key ends. */
struct sl_acceptor_reservation {
    bool live;
    struct sl_attempt_id owner;
    int32_t priority;
    sl_ms end_ms;
};

/* The turn. It belongs to the request with the best rank that this acceptor rejected
 * because of an attempt that is not known to be agreed. While the turn lasts, the
 * acceptor rejects all requests of lower rank. */
struct sl_acceptor_turn {
    struct sl_attempt_rank rank;
    sl_ms end_ms; /* When the turn ends; 0: no turn. */
};

/* What was published about a grant. Messages about a grant arrive in any order, and
 * each event is published once. */
struct sl_acceptor_report {
    sl_fence fence; /* 0: the slot is unused. */
    bool granted, over;
    enum sl_node_event_type how; /* How the grant ended. */
};

#define SL_ACCEPTOR_REPORTS 8 /* How many grants of a key are remembered. */

struct sl_node_key {
    struct sl_node_lease lease;
    struct sl_node_lease *overlapped; /* A lease that a stealing request overlaps.
                                       * Its holder may use the resource until it
                                       * ends. NULL: none. */
    struct sl_node_lease *learned;    /* An agreed lease that the acceptor records if
                                    * the attempt in `lease` is given up. NULL: none. */
    struct sl_acceptor_reservation reserved;
    struct sl_acceptor_turn turn;
    struct sl_acceptor_report reports[SL_ACCEPTOR_REPORTS];
    uint32_t report_next;
    sl_fence seen_fence; /* The highest fence seen; a new attempt needs a higher one. */
    /* The highest fence of a lease that ended here. An attempt that its proposer gave
     * up does not count. The acceptor does not learn leases with a lower fence, or with
     * a fence up to released_fence. */
    sl_fence past_fence;
    sl_fence released_fence; /* The highest fence of a released lease. */
    /* The fence of a copied lease that expired here but may be valid elsewhere. */
    sl_fence lapsed_fence;
    sl_fence broken_fence; /* The last lease that an operator has broken here. */
    /* Until then, the holder of a lease that an operator has ended may still use the
     * resource, so new leases are marked as overlapping. */
    sl_ms overlaps_until_ms;
    sl_ms idle_ms;               /* When its last lease or reservation ended. */
    struct sl_list waiters;      /* Requests in the order in which they will try. */
    struct sl_wait_group by_age; /* The waiters, sorted by the start of the wait. */
    struct sl_list watchers;     /* AWAIT requests. */
    uint32_t waiter_count;
    uint32_t request_count;  /* Number of all requests for this key. */
    uint32_t deferred_count; /* Messages about this key that wait for the disk. */
    sl_fence taken_fence;    /* The last fence that a proposer here was granted. */
    uint64_t taken_session;  /* The session to which that fence was granted. */
    sl_ms taken_sure_ms;     /* Until when that lease is agreed. */
    struct sl_list changed;  /* In the changed keys of the node, whose state must be
                              * recorded. */
    uint64_t recorded;       /* Hash of the state in the journal; 0: it has none. */
    uint64_t recorded_core;  /* sl_key_record_core() of that state. */
    sl_ms recorded_end_ms;   /* The expiry of the item. */
    bool recorded_long;
    sl_fence recorded_fence; /* Of the lease; 0: none. */
    bool recorded_exact;     /* The bound of the item is its expiry, not rounded up. */
    uint64_t recorded_at;    /* The position of its last record. */
    uint64_t position;       /* Must be durable before the state is shown. */
    uint32_t timer;          /* Slot in key_timers. */
    uint32_t key_n;
    char key[];
};

static inline struct sl_bytes sl_node_key_bytes(const struct sl_node_key *k)
{
    return (struct sl_bytes){k->key, k->key_n};
}

static inline bool sl_node_key_has(const struct sl_node_key *k, sl_fence fence)
{
    return k != NULL && k->lease.live && k->lease.fence == fence;
}

/* Returns the time left of a lease, as its holder counts it. */
static inline sl_ms sl_node_lease_left_ms(const struct sl_node_lease *l,
                                          struct sl_now now)
{
    return sl_node_max_ms(l->end_ms - SL_NODE_GRAIN_MS - now.ms, 0);
}

/* --- Acquisitions with a REQUEST id ----------------------------------------------- */

/* What the node remembers about an acquisition that has no lease here. */
struct sl_node_acquisition {
    struct sl_list link;
    sl_ms until_ms;
    /* Ended: the owner of its lease; epoch 0: a client has released or cancelled it. */
    struct sl_attempt_id owner;
    /* Ended: it was certainly granted or cancelled. If not, its owner may make more
     * attempts, because it knows whether it was granted. */
    bool sure;
    uint64_t place; /* Absent: its position in the queue. */
    uint32_t key_n, request_n;
    char text[]; /* The key, then the user and the id. */
};

/* A set of them, sorted by until_ms. */
struct sl_node_acquisitions {
    struct sl_index index;
    struct sl_list list;
};

/* --- Other nodes ------------------------------------------------------------------ */

struct sl_node_peer {
    sl_node_id id; /* 0: the slot is free. */
    bool linked;
    bool link_pending; /* Will be linked when its birth is on disk. */
    uint64_t birth;    /* The birth that it stated when it was linked. */
    uint64_t epoch;    /* The last epoch heard. */
    sl_ms stamp_ms;
    uint64_t version;
    uint64_t wall_us;         /* Its wall clock when last heard. */
    sl_ms wall_ms;            /* When its wall clock was heard; 0: never. */
    sl_ms srtt8, rttvar4;     /* Smoothed RTT * 8 and variance * 4; -1: unknown. */
    sl_ms membership_sent_ms; /* When we last sent it the membership. */
    sl_ms silent_ms;          /* Until then it neither votes nor learns leases. */
    sl_ms teach_ms;           /* When to teach it more leases; SL_NEVER: all taught. */
    uint64_t teach_cursor;    /* Where teaching continues. */
    bool taught;              /* It has taught us all its leases since our silence. */
};

#define SL_NODE_PEERS_MAX (2 * SL_NODES_MAX)

/* What another node has reported about its journal, to detect an old copy of its directory. */
struct sl_node_progress {
    uint64_t birth, epoch; /* 0: nothing is known. */
    uint64_t began;        /* The position when that run began. */
    uint64_t position, durable;
    uint64_t rejected; /* The epoch of the last run that was rejected; 0: none. */
};

struct sl_node_journal_of {
    struct sl_node_progress known, recorded; /* In memory, and in the journal. */
    uint64_t position;                       /* Where it was recorded. */
    sl_ms record_ms; /* It is not recorded again before this time. */
};

/* A message that waits for the disk. Its bytes follow it in memory. */
struct sl_node_deferred {
    struct sl_list link;
    sl_node_id from;
    struct sl_message m;
};

static inline size_t sl_node_deferred_bytes(const struct sl_message *m)
{
    return sizeof(struct sl_node_deferred) + m->key.n + m->value.n + m->note.n +
           m->client.n + m->request.n;
}

/* --- Membership changes ----------------------------------------------------------- */

enum sl_membership_change_phase {
    SL_CHANGE_NONE,
    SL_CHANGE_REACH,   /* Wait until the node to be added answers. */
    SL_CHANGE_PREPARE, /* Paxos, phase 1: the members promise. */
    SL_CHANGE_ACCEPT,  /* Paxos, phase 2: the members accept. */
    SL_CHANGE_STORE,   /* Majorities of both memberships store it. */
    SL_CHANGE_FORCE,   /* Sent to all nodes, and written here. */
    SL_CHANGE_PAUSE,   /* Another change was faster; PREPARE follows. */
};

struct sl_membership_change {
    enum sl_membership_change_phase phase;
    struct sl_proposer_request
        *request;              /* NULL: completes the change of another node. */
    struct sl_membership want; /* What the operator wants; version 0: nothing. */
    struct sl_membership list; /* The membership that is being or was decided. */
    struct sl_ballot ballot;
    struct sl_ballot best; /* The highest ballot of a vote in a promise. */
    sl_node_id yes[SL_NODE_PEERS_MAX], soon[SL_NODE_PEERS_MAX];
    uint32_t yes_count, soon_count;
    sl_fence limit; /* Highest fence limit among the nodes that stored `list`. */
    sl_ms longest_ms;
    sl_ms resend_ms, give_up_ms, resume_ms;
    sl_ms left_ms; /* The longest time left that a SOON answer reported. */
    bool waits_for_disk;
    uint32_t tries;
};

/* --- The node --------------------------------------------------------------------- */

struct sl_node {
    sl_node_id id;
    uint64_t epoch;
    struct sl_random random;
    struct sl_node_limits limits;

    struct sl_node_durable kept;    /* The state that is known to be on disk. */
    struct sl_node_durable next;    /* The state that should be on disk. */
    struct sl_node_durable writing; /* The state that is being written. */
    bool is_writing, write_due;
    sl_ms write_again_ms;         /* When to retry a failed write; 0: none failed. */
    uint32_t lengths[SL_LENGTHS]; /* The number of leases of each length. */
    sl_ms voted_ms;               /* When the acceptor last recorded a lease. */
    struct sl_list deferred;
    uint32_t deferred_count;

    sl_ms silent_ms;     /* The acceptor does not vote before this time. */
    sl_ms learn_ms;      /* By then at the latest, no earlier lease is missing here. */
    sl_ms soon_ms;       /* The acceptor rejects membership changes before this. */
    sl_fence floor;      /* A new attempt needs a fence above this. */
    sl_fence fence_last; /* The highest fence that a proposer here used or saw. */

    struct sl_journal *journal;
    bool same_life;
    struct sl_node_identity self; /* What this node states about itself. */
    bool self_due;                /* It must be recorded. */
    uint64_t key_position;        /* The last position that has a record of a key, */
    uint64_t
        shown_after; /* and the last one that must be durable before its key is shown. */
    struct sl_list changed; /* Keys whose state must be recorded. */
    bool record_due;        /* The journal has records that are not written. */
    bool had_failed;        /* The journal had failed at the last call. */
    char *record;           /* The last item that was encoded, */
    size_t record_bytes;    /* and the size of this block. */
    struct sl_node_journal_of journals[SL_NODE_ID_MAX + 1]; /* By id. */

    struct sl_node_peer peers[SL_NODE_PEERS_MAX];
    struct sl_member joining; /* The node that is to be added; id 0: none. */
    sl_ms now_ms;             /* The node's own clock at the last call. */
    uint64_t own_wall_us;     /* The node's own wall clock at the last call. */
    sl_ms heartbeat_due_ms, limits_due_ms;
    bool links_due;
    bool logged_emptied, logged_foreign;

    struct sl_index keys, by_ticket, by_round;
    struct sl_heap key_timers, request_timers;
    struct sl_list requests;
    struct sl_waits waits; /* Keys with waiters, by the start of the oldest wait. */
    /* Acquisitions that have ended at this acceptor; and those that waited at this
     * proposer until their client left. */
    struct sl_node_acquisitions ended, absent;
    struct sl_list drains;
    uint64_t drain_position;     /* The position of their last record, */
    uint64_t drains_recorded_at; /* and the last one before it was durable. */
    uint32_t request_count;
    uint64_t last_number, last_round;
    struct sl_membership_change change;
    sl_ms finish_ms; /* When to complete a stalled change, or SL_NEVER. */

    struct sl_list orders;
    struct sl_list held;                  /* Orders that wait for the journal. */
    struct sl_node_queued_order *fetched; /* Freed at the next call. */
    size_t lease_count;
    size_t block_bytes; /* Size of all blocks; see sl_node_block_new(). */
    uint64_t attempts, grants, splits, timeouts, taught;
};

static inline bool sl_node_is_member(const struct sl_node *n)
{
    return sl_membership_find(&n->kept.force, n->id) >= 0;
}

/* --- node.c ----------------------------------------------------------------------- */

/* Pass a message to the part of the node that handles it. */
void sl_node_dispatch(struct sl_node *n, struct sl_now now, sl_node_id from,
                      const struct sl_message *m);

/* --- node_memory.c ---------------------------------------------------------------- */

/* Allocate and free a block. All allocations of a node use these functions, which
 * count the bytes. A new block is zeroed. sl_node_block_new() returns NULL when out
 * of memory. To free a block, pass the size with which it was allocated. */
void *sl_node_block_new(struct sl_node *n, size_t bytes);
void sl_node_block_free(struct sl_node *n, void *block, size_t bytes);

/* Copy bytes. Returns NULL if b is empty, or when out of memory. */
struct sl_node_text *sl_node_text_new(struct sl_node *n, struct sl_bytes b);
void sl_node_text_free(struct sl_node *n, struct sl_node_text *t);
/* Replace *t by a copy of b. Returns false when out of memory; then nothing has
 * changed. */
bool sl_node_text_set(struct sl_node *n, struct sl_node_text **t, struct sl_bytes b);

static inline struct sl_bytes sl_node_text_bytes(const struct sl_node_text *t)
{
    return t == NULL ? (struct sl_bytes){NULL, 0} : (struct sl_bytes){t->at, t->n};
}

/* Copy *b to `at`, and make *b point there. Returns the address after the copy. */
char *sl_node_put_bytes(char *at, struct sl_bytes *b);
/* Do the same for all bytes of a message. */
void sl_node_put_message(char *at, struct sl_message *m);

/* --- node_clock.c ----------------------------------------------------------------- */

/* Returns the time with the median wall clock of the members, so that a single clock
 * that is days ahead does not use up the fences. Every entry point of a node calls
 * this first. */
struct sl_now sl_node_median_time(struct sl_node *n, struct sl_now now);

/* Whether the clocks of a majority are known, so that the median is meaningful. */
bool sl_node_knows_time(const struct sl_node *n);

/* Returns the highest fence that a proposer uses, or accepts as seen by others. */
sl_fence sl_node_fence_max(const struct sl_node *n, struct sl_now now);

/* Whether an acceptor should accept a fence as plausible. The limit leaves a day of
 * margin, because the acceptor may have been offline while fences increased. */
bool sl_node_is_plausible(const struct sl_node *n, struct sl_now now, sl_fence fence);

/* --- node_peers.c ----------------------------------------------------------------- */

struct sl_node_peer *sl_node_find_peer(const struct sl_node *n, sl_node_id id);
bool sl_node_can_reach(const struct sl_node *n, sl_node_id id); /* True for itself. */

/* Returns the round-trip time of the slowest linked node. */
sl_ms sl_node_rtt_ms(const struct sl_node *n);

/* Returns how long a proposer waits for votes. */
sl_ms sl_node_answer_ms(const struct sl_node *n);

/* Record the sender's clock, membership and round-trip time from a message. */
void sl_node_hear(struct sl_node *n, struct sl_now now, sl_node_id from,
                  const struct sl_message *m);

/* Link the peers whose birth is now on disk. */
void sl_node_link_known(struct sl_node *n, struct sl_now now);

/* Make the node silent until this time, because it has forgotten its leases. It does
 * not vote before that time. After that, it learns the leases of the other members. */
void sl_node_be_silent_until(struct sl_node *n, struct sl_now now, sl_ms until_ms);

/* --- node_orders.c ---------------------------------------------------------------- */

/* Send a message to one node, or to all members. The node handles a message to
 * itself immediately, so a caller must send as its last step: the answer may change
 * any state. */
void sl_node_send(struct sl_node *n, struct sl_now now, sl_node_id to,
                  struct sl_message *m);
void sl_node_broadcast(struct sl_node *n, struct sl_now now, struct sl_message *m);
void sl_node_send_heartbeat(struct sl_node *n); /* To all linked peers. */

void sl_node_publish(struct sl_node *n, const struct sl_node_event *e);
void sl_node_log(struct sl_node *n, const char *text);

/* Queue the answer of a request that has ended, or free the request if no client
 * waits for it. */
void sl_node_queue_answer(struct sl_node *n, struct sl_proposer_request *r);

/* Find the request whose answer waits for the journal, and remove the answer. Returns NULL if
 * there is none. */
struct sl_proposer_request *sl_node_take_held(struct sl_node *n, uint64_t ticket);
void sl_node_free_orders(struct sl_node *n);

/* --- node_disk.c ------------------------------------------------------------------ */

/* Order a write, because `next` has changed. */
void sl_node_want_write(struct sl_node *n);

/* Get the write that is due. Returns false if none is due, or a write is in
 * progress. */
bool sl_node_order_write(struct sl_node *n, struct sl_node_order *out);

/* Whether the durable state allows a vote for this fence. If not, orders a write that
 * will allow it. */
bool sl_node_may_vote(struct sl_node *n, struct sl_now now, sl_fence fence);

/* Make the durable fence limit follow the clock. Call this once a second. */
void sl_node_follow_limits(struct sl_node *n, struct sl_now now);

/* Defer a message: handle it again after the next write. */
void sl_node_defer(struct sl_node *n, sl_node_id from, const struct sl_message *m);
void sl_node_drop_deferred(struct sl_node *n);

/* --- node_record.c ---------------------------------------------------------------- */

/* Handle that the state of a key has changed. It is recorded before the next order is fetched. */
void sl_node_key_changed(struct sl_node *n, struct sl_node_key *k);

/* Record all changes. */
void sl_node_record(struct sl_node *n);

/* Record the end of a key that is forgotten. */
void sl_node_record_forgotten(struct sl_node *n, struct sl_node_key *k);

/* Returns the position that must be durable before the state of a key is shown; 0: none;
 * SL_JOURNAL_FAILED: the state could not be recorded. NULL is allowed. */
uint64_t sl_node_position(struct sl_node *n, struct sl_node_key *k);
/* Returns the same for all orders that are held back. */
uint64_t sl_node_position_of_all(struct sl_node *n);
/* Whether the position is 0 for all keys. */
bool sl_node_shows_all(const struct sl_node *n);

/* Whether the acceptor cannot record votes at present. */
bool sl_node_cannot_record(struct sl_node *n);

/* Remember what a heartbeat reports about the journal of its sender, and what the sender states
 * when it is linked. sl_node_went_back() says whether its directory is an old copy. */
void sl_node_hear_journal(struct sl_node *n, sl_node_id from,
                          const struct sl_message *m);
void sl_node_meet_journal(struct sl_node *n, sl_node_id id,
                          const struct sl_node_identity *states);
bool sl_node_went_back(struct sl_node *n, sl_node_id id,
                       const struct sl_node_identity *states);
/* Fill in a heartbeat. */
void sl_node_report_journal(const struct sl_node *n, struct sl_message *m);

/* --- node_key.c ------------------------------------------------------------------- */

void sl_node_keys_init(struct sl_node *n, struct sl_hash_key hash_key);
void sl_node_keys_free(struct sl_node *n); /* Call this when the node is freed. */

struct sl_node_key *sl_node_key_find(const struct sl_node *n, struct sl_bytes key);
/* Find or create a key. If this fails, returns NULL and sets *status. */
struct sl_node_key *sl_node_key_get(struct sl_node *n, struct sl_now now,
                                    struct sl_bytes key, int *status);
/* Find or create a key of the journal. The limits do not apply to it: they may have been higher
 * when it was recorded. Returns NULL when out of memory. */
struct sl_node_key *sl_node_key_restore(struct sl_node *n, struct sl_now now,
                                        struct sl_bytes key);
void sl_node_key_free(struct sl_node *n, struct sl_now now, struct sl_node_key *k);

/* sl_node_key_due() returns when something about a key is due;
 * sl_node_key_schedule() sets its timer. sl_acceptor_tick() frees a key that is not
 * needed any more. */
sl_ms sl_node_key_due(const struct sl_node *n, const struct sl_node_key *k);
void sl_node_key_schedule(struct sl_node *n, struct sl_node_key *k);

void sl_node_lease_clear(struct sl_node *n, struct sl_node_lease *l);
void sl_node_lease_free(struct sl_node *n,
                        struct sl_node_lease **l); /* NULL is allowed. */

/* --- node_acquisition.c ----------------------------------------------------------- */

void sl_node_acquisitions_init(struct sl_node *n, struct sl_hash_key hash_key);
void sl_node_acquisitions_free(struct sl_node *n);

struct sl_node_acquisition *sl_node_acquisition_find(
    const struct sl_node_acquisitions *s, struct sl_bytes key, struct sl_bytes request);
/* Find or add one, and remember it until this time, which is not before that of any
 * other. Returns NULL when out of memory. */
struct sl_node_acquisition *sl_node_acquisition_keep(struct sl_node *n,
                                                     struct sl_node_acquisitions *s,
                                                     struct sl_bytes key,
                                                     struct sl_bytes request,
                                                     sl_ms until_ms);
/* Forget the one that ended first. */
void sl_node_acquisition_forget_oldest(struct sl_node *n,
                                       struct sl_node_acquisitions *s);
void sl_node_acquisition_forget(struct sl_node *n, struct sl_node_acquisitions *s,
                                struct sl_node_acquisition *a);
void sl_node_acquisitions_tick(struct sl_node *n, struct sl_now now);

/* --- node_drain.c ----------------------------------------------------------------- */

/* Returns a number that is the same at nodes that know the same patterns. */
uint64_t sl_node_drain_digest(const struct sl_node *n);
void sl_node_receive_drain(struct sl_node *n, struct sl_now now, sl_node_id from,
                           const struct sl_message *m);
/* Send all patterns to a node that knows others. */
void sl_node_tell_drains(struct sl_node *n, struct sl_now now, sl_node_id to);
void sl_node_record_drains(struct sl_node *n);
/* Like sl_node_position(), for the drained patterns. */
uint64_t sl_node_drain_position(struct sl_node *n);
/* Get the item of the pattern with the lowest stamp above *stamp, and set *stamp. */
bool sl_node_next_drain(struct sl_node *n, uint64_t *stamp, char value[16],
                        struct sl_item *out);
int sl_node_restore_drain(struct sl_node *n, const struct sl_item *item);
size_t sl_node_drains_bytes(const struct sl_node *n);
void sl_node_drains_free(struct sl_node *n);

/* --- membership_change.c ---------------------------------------------------------- */

void sl_membership_change_begin(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r,
                                const struct sl_node_request *ask);
void sl_membership_change_withdraw(struct sl_node *n, struct sl_proposer_request *r);
void sl_membership_change_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                                  const struct sl_message *m);
void sl_membership_change_linked(struct sl_node *n, struct sl_now now, sl_node_id id);
void sl_membership_change_tick(struct sl_node *n, struct sl_now now);
sl_ms sl_membership_change_due(const struct sl_node *n);

/* Tell a node which membership is in force. */
void sl_membership_change_tell(struct sl_node *n, struct sl_now now, sl_node_id to);

#endif /* SL_MAJORITY_NODE_INTERNAL_H */
