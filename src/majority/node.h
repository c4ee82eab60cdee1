/* node.h - a node: a lease from a majority, and a list of nodes that changes by one.
 *
 * A node is a value, as the lock table is: time, messages, clients' requests and the news
 * that something is on the disk come in; orders come out of sl_node_next(). The same code
 * runs in sluice-server and in sluice-sim. README.md has the rules and why they are safe.
 *
 *     sl_node_submit() ----+                    +--> SL_NODE_ORDER_ANSWER  to who asked
 *     sl_node_receive() +--> a node -- next -+--> SL_NODE_ORDER_SEND    to another node
 *     sl_node_written() |                    +--> SL_NODE_ORDER_WRITE   to the disk
 *     sl_node_tick() ---+                    +--> SL_NODE_ORDER_EVENT   to who listens to a key
 *
 * Two parts: a *voter* remembers leases, a *seeker* asks all voters for its clients. A lease
 * is agreed when a majority of voters said yes, and the first message was sent so lately
 * that all of them still stand.
 *
 * Not thread-safe. */
#ifndef SL_MAJORITY_NODE_H
#define SL_MAJORITY_NODE_H

#include "locks/table.h"
#include "majority/message.h"

struct sl_node; /* Opaque. */

/* --- What is to be on the disk ------------------------------------------------ */

struct sl_node_birth {
    sl_node_id id;
    uint64_t birth;
};

/* What a node has to know after a restart. All zero: it has never been started. */
struct sl_node_durable {
    sl_node_id id;  /* Whose it is. */
    uint64_t birth; /* Drawn at the first start: it tells a folder from another. */
    sl_fence fence_limit;   /* No fence above it was voted for. */
    sl_ms lease_longest_ms; /* No lease longer than that was, of those that may live. */
    struct sl_membership force;  /* The list in force; version 0: none. */
    struct sl_ballot promised;   /* Of the next list: what was promised, */
    struct sl_ballot accepted;   /* voted for, */
    struct sl_membership vote;   /* which is this; version 0: none, */
    struct sl_membership stored; /* and what was decided, not yet in force. */
    struct sl_node_birth
        births[SL_NODES_MAX]; /* Of the members, as far as they were met. */
};

/* --- How it is started ---------------------------------------------------------- */

struct sl_node_limits {
    uint32_t keys_max;
    uint32_t waiters_max; /* Requests that wait for one key, at this node. */
    uint32_t key_bytes_max, value_bytes_max;
    sl_ms lease_min_ms, lease_max_ms;
    sl_ms heartbeat_ms; /* A node that has nothing to say says so. */
    sl_ms answer_ms;    /* How long votes are waited for, before any has come; */
    sl_ms answer_min_ms, answer_max_ms; /* then it follows them, between these. */
    sl_ms forget_ms;               /* A key without a lease is forgotten after that. */
    uint32_t waiting_messages_max; /* That wait for the disk. */
};

extern const struct sl_node_limits sl_node_limits_default;

struct sl_node_start {
    sl_node_id id;
    uint64_t epoch; /* A random number, another at every start; not 0. */
    uint64_t birth; /* Another, for a first start. */
    uint64_t seed;  /* Of all that is left to chance. */
    struct sl_hash_key hash_key;
    struct sl_node_durable kept; /* As it was on the disk. */
    struct sl_membership
        bootstrap;    /* Of a first start: the first list, without silence. */
    sl_fence floor;   /* Fences are above, whatever the disk says; */
    sl_ms silence_ms; /* and nothing is voted for so long: of an earlier life alone. */
    struct sl_node_limits limits;
};

/* --- What clients ask ------------------------------------------------------------ */

enum sl_node_verb {
    SL_NODE_ACQUIRE,
    SL_NODE_EXTEND,
    SL_NODE_RELEASE, /* fence 0: what this session took of the key. */
    SL_NODE_CHECK,
    SL_NODE_READ,  /* By majority; for the local copy see sl_node_copy(). */
    SL_NODE_VOTES, /* What each node has, for EXPLAIN. */
    SL_NODE_AWAIT, /* By the local copy. */
    SL_NODE_ADD,
    SL_NODE_REMOVE,
};

struct sl_node_request {
    enum sl_node_verb type;
    uint64_t session;    /* Of the client's connection; 0: none. */
    struct sl_bytes key; /* Borrowed for the call, as all bytes. */
    sl_fence fence;
    sl_ms lease_ms;
    sl_ms wait_ms;
    int32_t priority;
    bool steal;
    sl_ms force_ms;        /* With steal: after so long it enters beside; SL_NEVER. */
    bool want_free;        /* AWAIT: until it is free; else until it is held. */
    struct sl_bytes value; /* EXTEND: at NULL: as it was. */
    struct sl_bytes note;
    sl_node_id node; /* ADD, REMOVE. */
    const char *address;
};

/* What a voter has of a key. */
struct sl_node_copy {
    sl_node_id node;
    enum sl_vote_verdict
        verdict;    /* YES: this is what it has; SILENT; NONE: no answer. */
    bool held;      /* There is a lease: */
    bool agreed;    /* known to be a grant; else an attempt, maybe. */
    bool reserved;  /* A thief waits for it to go. */
    int32_t wanted; /* Its priority. */
    struct sl_attempt_id owner;
    sl_fence fence;
    int32_t priority;
    sl_ms left_ms; /* Of the lease, or of a silence. */
    struct sl_bytes value, note;
};

struct sl_node_answer {
    /* OK; EFULL: taken; ELOST, EASKED, EDEADLOCK, EKEYS, EWAITERS, ETOOBIG, EINVAL,
     * ENOMEM as in table.h; ENOQUORUM: too few nodes answer; ERECOVERING: too many are
     * silent after a restart, for left_ms; ENODES: the list was not changed, and why; it
     * may be in left_ms, if that is not 0. */
    int status;
    struct sl_grant grant; /* ACQUIRE. */
    int64_t number;        /* RELEASE, CHECK, AWAIT: 1 or 0. EXTEND: the lease. */
    sl_ms left_ms;
    uint32_t answered, needed, members; /* Of NOQUORUM; */
    uint32_t have, lack; /* of EXTEND and CHECK: how many have it, and do not. */
    const struct sl_node_copy
        *copies; /* VOTES: one a member. READ: the one that counts, or
                                     none; borrowed until the next call. */
    uint32_t copy_count;
    char reason[200]; /* Of ENODES. */
};

/* --- What follows ----------------------------------------------------------------- */

enum sl_node_order_type {
    SL_NODE_ORDER_SEND,   /* To `to`; it may be lost. */
    SL_NODE_ORDER_ANSWER, /* To the ticket: its request is over. */
    SL_NODE_ORDER_EVENT,
    SL_NODE_ORDER_WRITE, /* `durable`, whole; sl_node_written() is due, and no other comes before. */
    SL_NODE_ORDER_LINKS, /* The nodes to be connected with are others now: sl_node_peers(). */
    SL_NODE_ORDER_LOG, /* Something worth a line: `text`. */
};

/* What became of a grant. */
#define SL_NODE_EVENT_MAP(EVENT)  \
    EVENT(GRANTED, "granted")     \
    EVENT(EXTENDED, "extended")   \
    EVENT(RELEASED, "released")   \
    EVENT(EXPIRED, "expired")     \
    EVENT(ASKED, "asked")         \
    EVENT(WITHDRAWN, "withdrawn") \
    EVENT(STOLEN, "stolen")       \
    EVENT(WAITS, "waits") /* To a thief alone: for whom it waits. */

enum sl_node_event_type {
#define EVENT(name, text) SL_NODE_EVENT_##name,
    SL_NODE_EVENT_MAP(EVENT)
#undef EVENT
};

struct sl_node_event {
    enum sl_node_event_type type;
    struct sl_bytes key;
    sl_fence fence;
    uint64_t session; /* Of the holder, if it took it here (WAITS: of the thief); 0. */
    sl_ms lease_ms;   /* GRANTED, EXTENDED. */
    sl_ms waited_ms;  /* GRANTED. */
    sl_ms left_ms;    /* ASKED, WAITS. */
    sl_ms asked_ms;   /* RELEASED, EXPIRED: for how long it had been asked; -1. */
    int32_t priority; /* ASKED: the thief's. */
    bool overlapping; /* GRANTED, STOLEN. */
    struct sl_bytes note; /* WAITS: the holder's. */
};

struct sl_node_order {
    enum sl_node_order_type type;
    sl_node_id to;
    const struct sl_message *message; /* Borrowed until the next call, as all here. */
    uint64_t ticket;
    const struct sl_node_answer *answer;
    const struct sl_node_event *event;
    const struct sl_node_durable *durable;
    const char *text;
};

/* --- Life ------------------------------------------------------------------------- */

/* Copies start. NULL when out of memory. */
struct sl_node *sl_node_new(const struct sl_node_start *start, struct sl_now now);
void sl_node_free(struct sl_node *n); /* NULL is allowed. */

/* --- Change ----------------------------------------------------------------------- */

/* A client asks. SLUICE_OK: exactly one SL_NODE_ORDER_ANSWER with this ticket follows, unless it is
 * withdrawn. SLUICE_ENOMEM: none does. Tickets are the caller's, each of one request at a
 * time; 0: nobody wants the answer. */
int sl_node_submit(struct sl_node *n, struct sl_now now, uint64_t ticket,
                   const struct sl_node_request *ask);

/* The client is gone: its request is given up without an answer. */
void sl_node_withdraw(struct sl_node *n, struct sl_now now, uint64_t ticket);

/* A message of the node `from`, which is it for certain. */
void sl_node_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m);

/* Another node can be reached, or no more. `birth` is what it says of itself. False: it is
 * not what it was, or not known here, and must not be talked to; *why says so. */
bool sl_node_link(struct sl_node *n, struct sl_now now, sl_node_id id, bool up,
                  uint64_t birth, const char **why);

/* What the last SL_NODE_ORDER_WRITE said is on the disk for certain; or it could not be written:
 * then it is ordered again in a second. */
void sl_node_written(struct sl_node *n, struct sl_now now, bool ok);

/* Time has passed. */
void sl_node_tick(struct sl_node *n, struct sl_now now);

/* When it next has something to do by itself, or SL_NEVER. */
sl_ms sl_node_due(const struct sl_node *n);

/* What follows, one order a call; false: that was all. */
bool sl_node_next(struct sl_node *n, struct sl_node_order *out);

/* --- Ask -------------------------------------------------------------------------- */

uint64_t sl_node_birth(const struct sl_node *n);

/* The list in force; version 0: it is on none yet. */
const struct sl_membership *sl_node_membership(const struct sl_node *n);

/* Those with whom it should be connected, besides itself: members of the list in force, of
 * the one that comes, and one that is to be added. Returns how many. */
uint32_t sl_node_peers(const struct sl_node *n, struct sl_member out[2 * SL_NODES_MAX]);

/* What this node has of a key: false, if nothing that is known to be a grant. */
bool sl_node_copy(struct sl_node *n, struct sl_now now, struct sl_bytes key,
                  struct sl_node_copy *out);

/* All keys with a lease that is known to be a grant, or with waiters, as sl_table_scan(). */
struct sl_lease_view {
    struct sl_bytes key;
    struct sl_node_copy copy; /* copy.held: false if nobody holds it. */
    uint32_t waiters;         /* At this node. */
};
size_t sl_node_scan(struct sl_node *n, struct sl_now now, uint64_t *cursor,
                    struct sl_lease_view *out, size_t max);

/* How many wait for a key at this node; the i-th of them, from 0. */
uint32_t sl_node_waiters(const struct sl_node *n, struct sl_bytes key);
struct sl_waiter_view {
    uint64_t session;
    int32_t priority;
    bool steals;
    sl_ms since_ms, left_ms;
    struct sl_bytes note;
};
bool sl_node_waiter(struct sl_node *n, struct sl_now now, struct sl_bytes key,
                    uint32_t i, struct sl_waiter_view *out);

struct sl_node_stats {
    sl_ms silent_ms;   /* So long it does not vote. */
    sl_ms learning_ms; /* So long it may lack leases that others have, at most. */
    size_t keys, leases, requests;
    sl_ms answer_ms; /* How long votes are waited for now. */
    sl_fence fence_last, fence_limit;
    sl_ms lease_longest_ms;
    uint64_t attempts, grants, splits, timeouts, taught;
    bool changing; /* The list is being changed. */
};
void sl_node_stats(struct sl_node *n, struct sl_now now, struct sl_node_stats *out);

/* Bytes that it has allocated, without its own fixed part. */
size_t sl_node_bytes(const struct sl_node *n);

/* Whether the node `id` was heard of lately, and how long its answers take. */
struct sl_peer_view {
    bool linked;
    sl_ms rtt_ms; /* -1: not known. */
    uint64_t version;
};
void sl_node_peer(const struct sl_node *n, sl_node_id id, struct sl_peer_view *out);

/* Abort, naming the invariant, if one is broken. */
void sl_node_check(const struct sl_node *n);

#endif /* SL_MAJORITY_NODE_H */
