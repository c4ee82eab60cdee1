/* message.h - the messages between nodes, about leases and about the membership.
 *
 * The simulator passes messages on as structs; servers send each as one command of
 * the Redis protocol (server/net/node_wire.h). A message may be lost, delayed,
 * duplicated or reordered. Safety does not depend on the arrival of messages; only
 * progress does.
 *
 *     proposer                       acceptors (all, including the one of its own node)
 *       ACQUIRE fence owner lease -->
 *                             <-- VOTE yes | held by ... | reserved | fence too low | silent ...
 *       TEACH fence (agreed) ----->  all nodes learn that the lease is agreed; nodes that
 *                                    lack the lease record it
 *
 *     RENEW (for EXTEND), RELEASE, ADOPT and LOOK (for READ, CHECK, VOTES) work the same
 *     way, by key and fence, and may be sent by any node; END (for CANCEL) by key and
 *     REQUEST id. */
#ifndef SL_MAJORITY_MESSAGE_H
#define SL_MAJORITY_MESSAGE_H

#include "base/types.h"

/* --- Membership ------------------------------------------------------------------- */

#define SL_NODES_MAX 9
#define SL_NODE_ID_MAX 15   /* The id is part of every fence. */
#define SL_ADDRESS_BYTES 72 /* "host:port" and a NUL. */

typedef uint32_t sl_node_id; /* 1 to SL_NODE_ID_MAX; 0: none. */

struct sl_member {
    sl_node_id id;
    uint64_t birth; /* Identifies its data directory (node.h); 0: as first linked. */
    char address[SL_ADDRESS_BYTES];
};

/* The nodes of a cluster. Each version differs from the previous one by one node. */
struct sl_membership {
    uint64_t version; /* 0: no membership. */
    uint64_t cluster; /* Hash of the first membership; identifies the cluster. */
    uint32_t count;
    struct sl_member at[SL_NODES_MAX]; /* Sorted by id. */
    sl_node_id added;                  /* The node that this version added; 0: none. */
};

/* A Paxos ballot for the next membership. The larger ballot wins. 0, 0: none. */
struct sl_ballot {
    uint64_t number;
    sl_node_id id;
};

/* --- Messages --------------------------------------------------------------------- */

/* MESSAGE(TYPE, fields): `fields` lists the fields on the wire, after those that all
 * messages have, in this order. struct sl_message gives the letter of each field. On
 * the wire, the type is its name. */
#define SL_MESSAGE_MAP(MESSAGE)                                            \
    /* Heartbeat: how long the sender is silent, and the last position \
     * and the last durable position of its journal. */   \
    MESSAGE(BEAT, "lcud")                                                  \
    MESSAGE(ACQUIRE, "rkofLpFvniqd")                                       \
    MESSAGE(RENEW, "rkfLFvs")                                              \
    MESSAGE(RELEASE, "rkofF")                                              \
    MESSAGE(CANCEL, "ko") /* A stealing request has ended. */              \
    /* A lease is agreed. */                                               \
    MESSAGE(TEACH, "kofLpFvniwslqd")                                       \
    MESSAGE(TAUGHT, "") /* All leases were taught. */                      \
    MESSAGE(LOOK, "rkqd")                                                  \
    /* A repeated request wants this lease: keep it, even if the         \
     * attempt is given up. */ \
    MESSAGE(ADOPT, "rkf")                                                  \
    MESSAGE(BREAK, "rkf")  /* An operator forbids to extend this lease. */ \
    MESSAGE(DRAIN, "rvsF") /* The pattern `v` is drained, or no longer. */ \
    MESSAGE(END, "rkq")    /* The client has cancelled an acquisition. */  \
    MESSAGE(VOTE, "rVcfolpPFvnisqd")                                       \
    MESSAGE(PREPARE, "b") /* Paxos, for the next membership. */            \
    MESSAGE(PROMISE, "bVBml")                                              \
    MESSAGE(ACCEPT, "bm")                                                  \
    MESSAGE(ACCEPTED, "bVB")                                               \
    MESSAGE(STORE, "m") /* The membership is decided. */                   \
    MESSAGE(STORED, "ucLd")                                                \
    MESSAGE(FORCE, "mcLd") /* It is in force; new fences are above c. */

enum sl_message_type {
    SL_MESSAGE_NONE,
#define MESSAGE(type, fields) SL_MESSAGE_##type,
    SL_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
        SL_MESSAGE_COUNT
};

/* The verdicts of an acceptor. On the wire, a verdict is its name. */
#define SL_VERDICT_MAP(VERDICT)                                                      \
    VERDICT(YES)      /* Done. RELEASE: had the lease. LOOK: this is the copy. */    \
    VERDICT(HELD)     /* By another owner; its fence, priority, time left follow. */ \
    VERDICT(RESERVED) /* For a stealing request that waits for the holder. */        \
    VERDICT(LACKS)    /* The acceptor does not have this lease. */                   \
    VERDICT(FENCE)    /* The fence is not above all fences seen so far. */           \
    VERDICT(CLOCK)    /* The fence is days ahead: a clock is wrong. */               \
    VERDICT(SILENT)   /* Restarted; waits until its old votes have expired. */       \
    VERDICT(BIG)      /* The lease or the key is longer than allowed. */             \
    VERDICT(FULL)     /* The acceptor has too many keys. */                          \
    VERDICT(ENDED)    /* The acquisition with this REQUEST id has ended. */          \
    VERDICT(NAMES)    /* The acceptor remembers too many REQUEST ids. */             \
    VERDICT(DRAINED)  /* The key matches a drained pattern. */                       \
    VERDICT(STRANGER) /* The acceptor uses another membership, or none. */           \
    VERDICT(SOON)     /* The last membership change was too recent. */               \
    VERDICT(LATER)    /* The acceptor has promised a larger ballot. */               \
    VERDICT(BAD)      /* This membership cannot follow the current one. */

enum sl_vote_verdict {
    SL_VERDICT_NONE,
#define VERDICT(name) SL_VERDICT_##name,
    SL_VERDICT_MAP(VERDICT)
#undef VERDICT
        SL_VERDICT_COUNT
};

/* Flags in messages. */
enum {
    SL_FLAG_STEAL = 1,        /* ACQUIRE: ask a holder of lower priority to release. */
    SL_FLAG_FORCE = 2,        /* ACQUIRE, with STEAL: do not wait for the holder. */
    SL_FLAG_FINAL = 4,        /* RELEASE: by the holder; else an attempt is given up. */
    SL_FLAG_VALUE = 8,        /* RENEW: with a new value. */
    SL_FLAG_OVERLAPPING = 16, /* VOTE, TEACH: the lease overlaps another one. */
    SL_FLAG_EXTENDED = 32,    /* TEACH: the lease was extended, not granted. */
    SL_FLAG_WHOLE = 64,       /* TEACH: with owner, priority, value, note, client. */
    SL_FLAG_AGREED = 128,     /* VOTE: the lease is known to be agreed. */
    SL_FLAG_RESERVED = 256,   /* VOTE: a stealing request of priority `wanted` waits. */
    SL_FLAG_COPY = 512,       /* TEACH: from the copy of a node, not from a round. */
    SL_FLAG_TURN = 1024,      /* VOTE RESERVED: `owner` and `priority` have the turn. */
    SL_FLAG_MINE = 2048,      /* VOTE: the lease has the REQUEST id of the message, */
    SL_FLAG_MISMATCH = 4096,  /* but was requested with other options. */
    SL_FLAG_ADOPTED = 8192,   /* TEACH: a client has received the lease. */
    SL_FLAG_UNLESS_ADOPTED = 16384, /* RELEASE: only if no client has received it. */
    SL_FLAG_SURE = 32768,           /* VOTE ENDED: it was granted, or cancelled. */
    /* TEACH, VOTE: an operator has broken the lease. RELEASE: BREAK ... NOW ends it. */
    SL_FLAG_BROKEN = 65536,
    SL_FLAG_ON = 131072,      /* DRAIN: on, not off. */
    SL_FLAG_CHANGED = 262144, /* VOTE: DRAIN has changed the pattern here. */
};

/* Identifies the owner of attempts: one request of a client. */
struct sl_attempt_id {
    uint64_t epoch;  /* The epoch of the node that received the request. */
    uint64_t number; /* Arrival in microseconds; unique at that node. */
};

struct sl_message {
    enum sl_message_type type;

    /* In all messages. */
    uint64_t cluster;     /* The sender's cluster. */
    uint64_t version;     /* The version of the sender's membership. */
    uint64_t epoch;       /* The sender's epoch: a random number of each start. */
    sl_ms sent_ms;        /* The sender's monotonic clock. */
    uint64_t wall_us;     /* The sender's wall clock. */
    uint64_t heard_epoch; /* The receiver's epoch, as last heard; 0: unknown. */
    sl_ms heard_ms;       /* The receiver's clock, as last heard. */

    uint64_t round;             /* r  The proposer's round; a vote repeats it. */
    struct sl_bytes key;        /* k  The key. */
    struct sl_attempt_id owner; /* o  The owner of the attempt or lease. */
    sl_fence fence;             /* f  The fence. */
    sl_ms lease_ms;             /* L  STORED, FORCE: the longest lease. */
    int32_t priority;           /* p  The priority. */
    uint32_t flags;             /* F  Flags, see above. */
    struct sl_bytes value;      /* v  Borrowed, like all pointers here. */
    struct sl_bytes note;       /* n  The note. */
    struct sl_bytes client;     /* i  The client of the lease: name, NUL, address. */
    sl_ms waited_ms;            /* w  How long the request has waited. */
    uint64_t stamp; /* s  Of the value: the highest is the newest; 0: the fence. */
    struct sl_bytes request; /* q  The user and the REQUEST id of the acquisition. */
    uint64_t
        digest; /* d  Of its options. BEAT, STORED, FORCE: of the drained patterns. */

    enum sl_vote_verdict verdict; /* V  The verdict. */
    sl_fence
        ceiling; /* c  The highest fence seen; STORED, FORCE: the limit; BEAT: the last
                       *    position of the sender's journal. */
    sl_ms left_ms;  /* l  Time left. TEACH: for how long it is agreed. */
    int32_t wanted; /* P  The priority of a reservation. */

    struct sl_ballot ballot;   /* b  The ballot. */
    struct sl_ballot ballot2;  /* B  The ballot promised, or the ballot of the vote. */
    struct sl_membership list; /* m  The membership. */
    uint64_t which; /* u  The version of a membership. BEAT: the last position that
                                *    is durable. */
};

/* Return the name of a message type, such as "ACQUIRE", its fields, or the name of a
 * verdict. Return NULL if there is no such type or verdict. */
const char *sl_message_name(enum sl_message_type type);
const char *sl_message_fields(enum sl_message_type type);
const char *sl_vote_verdict_name(enum sl_vote_verdict verdict);

#endif /* SL_MAJORITY_MESSAGE_H */
