/* node.h - a node of a majority cluster, whose nodes agree on leases by majority
 * vote.
 *
 * A node has no side effects, like the lock table. Its inputs are the time,
 * messages, clients' requests and completed writes; its outputs are the orders that
 * sl_node_next() returns. sluice-server and sluice-sim run the same code. README.md
 * states the rules and why they are safe.
 *
 *     sl_node_submit() --+                  +--> SL_NODE_ORDER_ANSWER  for a client
 *     sl_node_receive() -+--> node -- next -+--> SL_NODE_ORDER_SEND    to another node
 *     sl_node_written() -+                  +--> SL_NODE_ORDER_WRITE   to the file `node`
 *     sl_node_tick() ----+                  +--> SL_NODE_ORDER_RECORD  to the journal
 *                                           +--> SL_NODE_ORDER_EVENT   for listeners of a key
 *
 * A node has two parts. Its *acceptor* records leases and votes. Its *proposer* asks
 * all acceptors on behalf of clients. A lease is agreed when a majority of acceptors
 * has voted for it before any of these votes can have expired.
 *
 * Not thread-safe. */
#ifndef SL_MAJORITY_NODE_H
#define SL_MAJORITY_NODE_H

#include "journal/journal.h"
#include "locks/table.h"
#include "majority/message.h"

struct sl_node; /* Opaque. */

/* --- Durable state ---------------------------------------------------------------- */

struct sl_node_birth {
    sl_node_id id;
    uint64_t birth;
};

/* The file of a node: what it must know after a restart, besides the journal, which has the votes.
 * Written as a whole and durable before the node uses it. All zero: the node has never been
 * started. */
struct sl_node_durable {
    sl_node_id id;               /* The node that wrote this state. */
    uint64_t birth;              /* Random; identifies the data directory. */
    sl_fence fence_limit;        /* No vote was for a fence above this limit. */
    sl_ms lease_longest_ms;      /* The longest lease that the node must wait for after
                                  * a start, because its journal does not contain it: of
                                  * a single server, of an earlier version, or of the
                                  * members before the node was added. 0: none. */
    struct sl_membership force;  /* The membership in force; version 0: none. */
    struct sl_ballot promised;   /* Paxos: the highest ballot promised. */
    struct sl_ballot accepted;   /* Paxos: the ballot of the vote. */
    struct sl_membership vote;   /* Paxos: the vote; version 0: none. */
    struct sl_membership stored; /* Decided, but not in force yet; version 0: none. */
    struct sl_node_birth births[SL_NODES_MAX]; /* The births of linked members. */
};

/* --- Start ------------------------------------------------------------------------ */

struct sl_node_limits {
    uint32_t keys_max;
    uint32_t waiters_max; /* Requests of this node that wait for one key. */
    uint32_t key_bytes_max, value_bytes_max;
    sl_ms lease_min_ms, lease_max_ms;
    sl_ms heartbeat_ms; /* The interval between heartbeats. */
    sl_ms answer_ms;    /* How long to wait for votes until RTTs are known. */
    sl_ms answer_min_ms, answer_max_ms; /* The range of the timeout after that. */
    sl_ms forget_ms;               /* How long to remember a key without a lease. */
    uint32_t waiting_messages_max; /* Messages that wait for the disk. */
    uint32_t requests_max; /* Acquisitions with an id that have ended, and that the
                            * node remembers. */
    uint32_t drains_max;   /* Patterns that are on. */
    sl_ms request_keep_ms; /* How long the node remembers them. */
    sl_ms
        linger_ms; /* How long the node keeps the position in the queue, or the grant, of
                      * a request with an id whose client has left. */
};

extern const struct sl_node_limits sl_node_limits_default;

struct sl_node_start {
    sl_node_id id;
    uint64_t epoch; /* Random, drawn at every start; not 0. */
    uint64_t birth; /* Random, for a first start. */
    uint64_t seed;  /* For random pauses. */
    struct sl_hash_key hash_key;
    struct sl_node_durable kept;    /* The state on disk. */
    struct sl_membership bootstrap; /* For a first start: the first membership. */
    sl_fence floor;                 /* The highest fence granted as a single server. */
    sl_ms silence_ms;               /* The longest lease granted as a single server. */
    struct sl_journal *journal;     /* Borrowed. Contains what was recovered. */
    bool same_life;                 /* See journal/recovery.h. */
    sl_ms wait_until_ms;            /* When the wait of the journal ends; 0: no wait. */
    sl_ms wait_ms; /* How long that wait is: the largest lease-volatile. */
    struct sl_node_limits limits;
};

/* A run of a node: from a start to the next one. */
struct sl_node_run {
    uint64_t epoch;
    uint64_t position; /* The last position of the journal when the run began. */
    bool same_life;    /* The run began in the same life as the one before. */
};

/* What a node states about itself when another node connects. A peer that remembers a position of
 * an earlier run that the next run did not have rejects the node: its directory is an old copy. */
#define SL_NODE_RUNS_MAX 16
struct sl_node_identity {
    uint64_t birth; /* Identifies the data directory. */
    uint32_t
        run_count; /* The last runs, oldest first; the last one is the present one. */
    struct sl_node_run runs[SL_NODE_RUNS_MAX];
};

/* --- Requests --------------------------------------------------------------------- */

enum sl_node_verb {
    SL_NODE_ACQUIRE,
    SL_NODE_EXTEND,
    SL_NODE_RELEASE, /* Fence 0: the session's lease of this key. */
    SL_NODE_CHECK,
    SL_NODE_READ,   /* By majority vote; sl_node_copy() reads the local copy. */
    SL_NODE_VOTES,  /* The copy of each node, for EXPLAIN. */
    SL_NODE_AWAIT,  /* Uses the local copy. */
    SL_NODE_BREAK,  /* By an operator: the lease can no longer be extended. */
    SL_NODE_DRAIN,  /* Turn a pattern, in `key`, on or off. */
    SL_NODE_CANCEL, /* End the acquisition with this REQUEST id. */
    /* Release a grant with a REQUEST id that its client has not received, wait_ms from
     * now, unless another attempt has adopted it. Without an answer. */
    SL_NODE_TAKE_BACK,
    SL_NODE_ADD,
    SL_NODE_REMOVE,
};

#define SL_NODE_REQUEST_BYTES_MAX 256u

struct sl_node_request {
    enum sl_node_verb type;
    uint64_t session;    /* The client's session; 0: none. */
    struct sl_bytes key; /* Borrowed during the call, like all pointers here. */
    sl_fence fence;
    sl_ms lease_ms;
    sl_ms wait_ms;
    int32_t priority;
    bool steal;
    sl_ms force_ms;        /* With steal: when it may overlap, or SL_NEVER. */
    bool at_once;          /* BREAK: end the lease now. */
    bool on;               /* DRAIN. */
    bool want_free;        /* AWAIT: until the key is free; else until it is held. */
    struct sl_bytes value; /* EXTEND: NULL in `at` keeps the old value. */
    struct sl_bytes note;
    struct sl_bytes client; /* ACQUIRE: name, NUL, address; may be empty. */
    /* ACQUIRE, CANCEL: what identifies the acquisition, together with the key: the user
     * and the REQUEST id. n 0: the request has no id. */
    struct sl_bytes request;
    uint64_t digest; /* Of the options that all attempts must have. */
    sl_node_id node; /* ADD, REMOVE. */
    const char *address;
};

/* An acceptor's copy of a key. */
struct sl_node_copy {
    sl_node_id node;
    /* YES: the fields below are valid; SILENT: the acceptor does not vote yet; NONE: it
     * did not answer. */
    enum sl_vote_verdict verdict;
    bool held;      /* The acceptor has a lease. */
    bool agreed;    /* The lease is known to be agreed, not just an attempt. */
    bool broken;    /* An operator has broken it. */
    bool reserved;  /* A stealing request waits for the lease. */
    int32_t wanted; /* The priority of the stealing request. */
    struct sl_attempt_id owner;
    sl_fence fence;
    int32_t priority;
    sl_ms left_ms;    /* Time left of the lease, or of the silence. */
    uint64_t session; /* The session that holds it, if it is of this node; else 0. */
    struct sl_bytes value, note;
    struct sl_bytes client; /* The holder's name, NUL, address; empty: unknown. */
};

struct sl_node_answer {
    /* SLUICE_OK, or one of:
     *
     *     EFULL         the key is taken
     *     ENOQUORUM     too few nodes answer
     *     ERECOVERING   too many nodes are silent after a restart, for left_ms
     *     EFENCES       a clock is days ahead
     *     EIO           the disk fails
     *     EENDED        the acquisition with this id has ended
     *     EMISMATCH     an attempt with this id had other options
     *     EDRAINED      the key matches a drained pattern
     *     EREQUESTS     the nodes remember too many ids
     *     ENODES        the membership was not changed, for the given `reason`; if
     *                   left_ms is not 0, retry after that time
     *
     * ELOST, EASKED, EDEADLOCK, EKEYS, EWAITERS, ETOOBIG, EINVAL, ENOMEM: see
     * table.h. */
    int status;
    struct sl_grant grant; /* ACQUIRE. */
    int64_t number;        /* RELEASE, CHECK, AWAIT: 1 or 0. EXTEND: milliseconds left.
                     * CANCEL: 2 if it released a grant, 1 if it withdrew a request.
                     * DRAIN: 1 if it has changed the pattern.
                     * BREAK: 2 if it ended the lease, 1 if it has forbidden extensions. */
    sl_ms left_ms;
    uint32_t answered, needed, members; /* Numbers of nodes. */
    uint32_t can_vote; /* ERECOVERING: nodes that voted, or whose vote may arrive. */
    uint32_t silent;   /* ERECOVERING: nodes that do not vote yet; 0: only this one. */
    uint32_t have, lack; /* EXTEND, CHECK: nodes that have the lease, or lack it. */
    /* VOTES: one per member. READ: the newest copy of the lease, or none. Borrowed
     * until the next call. */
    const struct sl_node_copy *copies;
    uint32_t copy_count;
    char reason[200]; /* A text for operators; may be empty. */
};

/* --- Orders ----------------------------------------------------------------------- */

enum sl_node_order_type {
    SL_NODE_ORDER_SEND,   /* Send `message` to `to`; it may be lost. */
    SL_NODE_ORDER_ANSWER, /* Answer the request with this ticket, which has ended. */
    SL_NODE_ORDER_EVENT,
    SL_NODE_ORDER_WRITE,  /* Write `durable`, then call sl_node_written(). */
    SL_NODE_ORDER_RECORD, /* Take the records from the journal, and write them before
                           * anything that a later order sends leaves the server. */
    SL_NODE_ORDER_LINKS,  /* sl_node_peers() has changed. */
    SL_NODE_ORDER_LOG,    /* Log `text`. */
};

/* EVENT(NAME, "name"): what happened to a grant. */
#define SL_NODE_EVENT_MAP(EVENT)  \
    EVENT(GRANTED, "granted")     \
    EVENT(EXTENDED, "extended")   \
    EVENT(RELEASED, "released")   \
    EVENT(EXPIRED, "expired")     \
    EVENT(ASKED, "asked")         \
    EVENT(WITHDRAWN, "withdrawn") \
    EVENT(STOLEN, "stolen")       \
    EVENT(BROKEN, "broken")       \
    EVENT(WAITS, "waits") /* Only for a stealing client: the holder it waits for. */

enum sl_node_event_type {
#define EVENT(name, text) SL_NODE_EVENT_##name,
    SL_NODE_EVENT_MAP(EVENT)
#undef EVENT
};

struct sl_node_event {
    enum sl_node_event_type type;
    struct sl_bytes key;
    sl_fence fence;
    uint64_t session; /* The holder's session, if it is a client of this node; else 0.
                      * WAITS: the stealing client's session. */
    sl_ms lease_ms;   /* GRANTED, EXTENDED. */
    sl_ms waited_ms;  /* GRANTED. */
    sl_ms left_ms;    /* ASKED, WAITS. */
    sl_ms asked_ms;   /* RELEASED, EXPIRED: how long ago it was asked; -1: never. */
    int32_t priority; /* ASKED: the priority of the stealing request. */
    bool overlapping; /* GRANTED, STOLEN. */
    bool at_once; /* BROKEN: the grant has ended. RELEASED: BREAK ... NOW ended it. */
    struct sl_bytes note; /* WAITS: the holder's note. */
};

struct sl_node_order {
    enum sl_node_order_type type;
    sl_node_id to;
    /* Borrowed until the next call, like all pointers here. */
    const struct sl_message *message;
    uint64_t ticket;
    const struct sl_node_answer *answer;
    const struct sl_node_event *event;
    const struct sl_node_durable *durable;
    const char *text;
};

/* --- Start and end ---------------------------------------------------------------- */

/* Create a node. Copies start. Returns NULL when out of memory. */
struct sl_node *sl_node_new(const struct sl_node_start *start, struct sl_now now);
void sl_node_free(struct sl_node *n); /* NULL is allowed. */

/* Restore an item of the journal. Call this for all items of the kinds KEY and PEER, before any
 * other function; `shift_ms` is sl_recovery_shift_ms(). In another life than the one in which
 * it was recorded, a lease is held until the bound of the item. The limits do not apply: they may
 * have been higher in an earlier run. Returns SLUICE_OK; SLUICE_EINVAL if the item is invalid;
 * SLUICE_ENOMEM. */
int sl_node_restore(struct sl_node *n, struct sl_now now, const struct sl_item *item,
                    sl_ms shift_ms);

/* All items are restored: record this run. The caller makes the record durable before the node
 * is linked. */
void sl_node_restored(struct sl_node *n);

/* Get the next item that the journal must contain: for a new file. Set *cursor to 0 before the
 * first call. Records what has changed, so write the records first if the order RECORD
 * is due. The bytes are borrowed until the next call. Returns false if there are no more, or when
 * out of memory; then the journal has failed. */
bool sl_node_item(struct sl_node *n, uint64_t *cursor, struct sl_item *out);

/* --- Calls that change a node ----------------------------------------------------- */

/* Submit a client's request. Returns SLUICE_OK if exactly one SL_NODE_ORDER_ANSWER
 * with this ticket follows, unless the request is withdrawn; SLUICE_ENOMEM if none
 * follows. The caller chooses a ticket that no other pending request has. With
 * ticket 0, no answer follows. */
int sl_node_submit(struct sl_node *n, struct sl_now now, uint64_t ticket,
                   const struct sl_node_request *ask);

/* End a request without an answer. Call this when its client has disconnected. */
void sl_node_withdraw(struct sl_node *n, struct sl_now now, uint64_t ticket);

/* Handle a message from the node `from`. The caller has authenticated it. */
void sl_node_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m);

/* Handle a node that became reachable or unreachable. `states` is what the node
 * states about itself; NULL if up is false. Returns false and sets *why if the caller
 * must not communicate with it. */
bool sl_node_link(struct sl_node *n, struct sl_now now, sl_node_id id, bool up,
                  const struct sl_node_identity *states, const char **why);

/* Report that the last SL_NODE_ORDER_WRITE is on disk, or, if ok is false, that it
 * failed. The node orders one write at a time. After a failure, the node orders the
 * write again in a second. */
void sl_node_written(struct sl_node *n, struct sl_now now, bool ok);

/* Report that more of the journal is durable: after sl_journal_sync_end() and
 * sl_journal_mend(). Then fetch the orders that have waited for it. */
void sl_node_synced(struct sl_node *n, struct sl_now now);

/* Handle everything that is due by now. */
void sl_node_tick(struct sl_node *n, struct sl_now now);

/* Returns when the next sl_node_tick() is due, or SL_NEVER. */
sl_ms sl_node_due(const struct sl_node *n);

/* Order a write of the file, because it has another format. */
void sl_node_rewrite(struct sl_node *n);

/* Get only the order to write the file, if it is due. */
bool sl_node_order_file(struct sl_node *n, struct sl_node_order *out);

/* Get the next order. Returns false if there is none. The node holds back messages, answers and
 * events until the records on which they depend are durable (rules J1 and J4 in
 * journal/journal.h). */
bool sl_node_next(struct sl_node *n, struct sl_node_order *out);

/* --- Queries --------------------------------------------------------------------- */

const struct sl_node_identity *sl_node_identity(const struct sl_node *n);

/* Returns the membership in force. Its version is 0 if the node has none yet. */
const struct sl_membership *sl_node_membership(const struct sl_node *n);

/* Get the nodes to connect to: the other members of the current and of the next
 * membership, and a node that is to be added. Returns their number. */
uint32_t sl_node_peers(const struct sl_node *n, struct sl_member out[2 * SL_NODES_MAX]);

/* Get this node's copy of a key, from memory: its record may not be durable yet. Returns
 * false if the node has no lease that is known to be agreed. */
bool sl_node_copy(struct sl_node *n, struct sl_now now, struct sl_bytes key,
                  struct sl_node_copy *out);

/* Iterate over all keys that have waiters, or a lease that is known to be agreed.
 * Works like sl_table_scan(). */
struct sl_lease_view {
    struct sl_bytes key;
    struct sl_node_copy copy; /* copy.held is false if the key is not held. */
    uint32_t waiters;         /* Waiters at this node. */
    sl_ms waited_ms;          /* How long the oldest of them has waited; -1: none. */
};
size_t sl_node_scan(struct sl_node *n, struct sl_now now, uint64_t *cursor,
                    struct sl_lease_view *out, size_t max);

/* Iterate over the keys that have waiters at this node, longest wait first. Works
 * like sl_table_scan_waited(). */
size_t sl_node_scan_waited(struct sl_node *n, struct sl_now now, uint64_t *cursor,
                           struct sl_lease_view *out, size_t max);

/* sl_node_waiters() returns how many requests of this node wait for a key;
 * sl_node_waiter() gets the one at position i, from 0. */
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

/* Whether a session of this node holds a key, or waits for it. */
bool sl_node_uses(const struct sl_node *n, struct sl_bytes key, uint64_t session);
/* Whether a key matches a drained pattern, as this node knows it. */
bool sl_node_is_drained(const struct sl_node *n, struct sl_bytes key);

/* Get the drained pattern at position i, from 0, as this node knows it. Returns false if there are
 * no more. */
bool sl_node_drains(const struct sl_node *n, uint32_t i, struct sl_bytes *pattern);

struct sl_node_stats {
    sl_ms silent_ms;   /* How much longer the node will not vote. */
    sl_ms learning_ms; /* How much longer the node may not know all leases. */
    size_t keys, leases, requests,
        ended;       /* ended: ids of acquisitions that have ended. */
    sl_ms answer_ms; /* How long a proposer waits for votes. */
    sl_fence fence_last, fence_limit;
    sl_ms lease_longest_ms; /* Of the leases that are valid here. */
    uint64_t attempts, grants, splits, timeouts, taught;
    bool changing; /* A membership change is in progress. */
};
void sl_node_stats(struct sl_node *n, struct sl_now now, struct sl_node_stats *out);

/* Whether enough members can vote now, as far as links and heartbeats tell. Returns SLUICE_OK, or
 * ENOQUORUM or ERECOVERING, as ACQUIRE would. Fills in the numbers of nodes and left_ms. */
int sl_node_quorum(const struct sl_node *n, struct sl_now now,
                   struct sl_node_answer *out);

/* Returns how many bytes of memory the node has allocated, not counting struct sl_node. */
size_t sl_node_bytes(const struct sl_node *n);

/* Another node, as this node sees it. */
struct sl_peer_view {
    bool linked;
    sl_ms rtt_ms; /* -1: not known yet. */
    uint64_t version;
};
void sl_node_peer(const struct sl_node *n, sl_node_id id, struct sl_peer_view *out);

/* Whether this node, even after a restart, rejects the node `id` with this identity, because its
 * data directory is an old copy. For the simulator. */
bool sl_node_remembers(const struct sl_node *n, sl_node_id id,
                       const struct sl_node_identity *states);

/* Abort and name the invariant if one is violated. This visits the whole node. For
 * tests and the simulator, which call it after every step. */
void sl_node_check(const struct sl_node *n);

#endif /* SL_MAJORITY_NODE_H */
