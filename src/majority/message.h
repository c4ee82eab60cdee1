/* message.h - what nodes send to each other about leases and about the membership.
 *
 * A message is a value. The simulator hands it over as it is; servers send it as one command of
 * the Redis protocol (server/net/node_wire.h). A message may be lost, delayed, duplicated or
 * reordered: safety does not depend on it, only progress does.
 *
 *     proposer                       acceptors (all, including the one of its own node)
 *       ACQUIRE fence owner lease -->
 *                             <-- VOTE yes | held by ... | reserved | fence too low | silent ...
 *       TEACH fence (agreed) ----->  so that every node knows; nodes that lack the lease learn it
 *
 *     RENEW (of EXTEND), RELEASE and LOOK (of READ, CHECK, VOTES) work alike, by key and fence,
 *     from any node. */
#ifndef SL_MAJORITY_MESSAGE_H
#define SL_MAJORITY_MESSAGE_H

#include "base/types.h"

/* --- Membership ------------------------------------------------------------------- */

#define SL_NODES_MAX 9
#define SL_NODE_ID_MAX 15   /* The id is part of every fence. */
#define SL_ADDRESS_BYTES 72 /* "host:port" and its NUL. */

typedef uint32_t sl_node_id; /* 1 to SL_NODE_ID_MAX; 0: none. */

struct sl_member {
    sl_node_id id;
    uint64_t birth; /* Names its data directory (node.h); 0: as first linked. */
    char address[SL_ADDRESS_BYTES];
};

/* The nodes of a cluster. Each version differs from the one before by one node. */
struct sl_membership {
    uint64_t version; /* 0: there is no membership. */
    uint64_t cluster; /* A hash of its first membership; names the cluster. */
    uint32_t count;
    struct sl_member at[SL_NODES_MAX]; /* Sorted by id. */
    sl_node_id added;                  /* The node that this version added; 0: none. */
};

/* A Paxos ballot about the next membership. The larger one wins. 0, 0: none. */
struct sl_ballot {
    uint64_t number;
    sl_node_id id;
};

/* --- Messages --------------------------------------------------------------------- */

/* MESSAGE(TYPE, fields): the fields on the wire after those that all messages have, in this
 * order. struct sl_message has the letter of each field. Types are names on the wire. */
#define SL_MESSAGE_MAP(MESSAGE)                                    \
    MESSAGE(BEAT, "l") /* Heartbeat, and how long it is silent. */ \
    MESSAGE(ACQUIRE, "rkofLpFvni")                                 \
    MESSAGE(RENEW, "rkfLFvs")                                      \
    MESSAGE(RELEASE, "rkofF")                                      \
    MESSAGE(CANCEL, "ko")          /* A stealing request ended. */ \
    MESSAGE(TEACH, "kofLpFvniwsl") /* A lease is agreed. */        \
    MESSAGE(TAUGHT, "")            /* All leases were taught. */   \
    MESSAGE(LOOK, "rk")                                            \
    MESSAGE(VOTE, "rVcfolpPFvnis")                                 \
    MESSAGE(PREPARE, "b") /* Paxos, about the next membership. */  \
    MESSAGE(PROMISE, "bVBml")                                      \
    MESSAGE(ACCEPT, "bm")                                          \
    MESSAGE(ACCEPTED, "bVB")                                       \
    MESSAGE(STORE, "m") /* It was decided. */                      \
    MESSAGE(STORED, "ucL")                                         \
    MESSAGE(FORCE, "mcL") /* It is in force; fences are above c. */

enum sl_message_type {
    SL_MESSAGE_NONE,
#define MESSAGE(type, fields) SL_MESSAGE_##type,
    SL_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
        SL_MESSAGE_COUNT
};

/* How an acceptor votes. Verdicts are names on the wire. */
#define SL_VERDICT_MAP(VERDICT)                                                        \
    VERDICT(YES)  /* Done. RELEASE: the lease was there. LOOK: this is the copy. */    \
    VERDICT(HELD) /* By another owner; its fence, priority and time left follow. */    \
    VERDICT(RESERVED) /* For a stealing request that waits for the holder. */          \
    VERDICT(LACKS)    /* The acceptor does not have this lease. */                     \
    VERDICT(FENCE)    /* The fence is not above all that were seen. */                 \
    VERDICT(CLOCK)    /* The fence is days ahead, so a clock is wrong. */              \
    VERDICT(SILENT)   /* It restarted, and waits until all it promised has expired. */ \
    VERDICT(BIG)      /* The lease or the key is longer than it allows. */             \
    VERDICT(FULL)     /* There are too many keys. */                                   \
    VERDICT(STRANGER) /* It goes by another membership, or by none. */                 \
    VERDICT(SOON)     /* The last membership change was too recent. */                 \
    VERDICT(LATER)    /* A larger ballot was promised. */                              \
    VERDICT(BAD)      /* This membership cannot follow the current one. */

enum sl_vote_verdict {
    SL_VERDICT_NONE,
#define VERDICT(name) SL_VERDICT_##name,
    SL_VERDICT_MAP(VERDICT)
#undef VERDICT
        SL_VERDICT_COUNT
};

/* Flags of ACQUIRE, TEACH and VOTE. */
enum {
    SL_FLAG_STEAL = 1, /* ACQUIRE: ask a holder with a lower priority to release, */
    SL_FLAG_FORCE = 2, /* and do not wait for it any longer. */
    SL_FLAG_FINAL = 4, /* RELEASE: by the holder; else an attempt is given up. */
    SL_FLAG_VALUE = 8, /* RENEW: with a new value. */
    SL_FLAG_OVERLAPPING = 16, /* VOTE, TEACH: the lease overlaps another one. */
    SL_FLAG_EXTENDED = 32,    /* TEACH: it was extended, not granted. */
    SL_FLAG_WHOLE = 64,       /* TEACH: with owner, priority, value, note and client. */
    SL_FLAG_AGREED = 128,     /* VOTE: the lease is known to be a grant. */
    SL_FLAG_RESERVED = 256,   /* VOTE: a stealing request of priority `wanted` waits. */
    SL_FLAG_COPY = 512,       /* TEACH: from the copy of a node, not from a round. */
    SL_FLAG_TURN = 1024,      /* VOTE RESERVED: `owner` and `priority` have the turn. */
};

/* The owner of an attempt: one request of a client. */
struct sl_attempt_id {
    uint64_t epoch;  /* Of the node that the client asked. */
    uint64_t number; /* Arrival in microseconds; unique at that node. */
};

struct sl_message {
    enum sl_message_type type;

    /* In all messages. */
    uint64_t cluster;     /* Of the membership that the sender goes by, */
    uint64_t version;     /* and its version. */
    uint64_t epoch;       /* Of the sender: a random number of each start, */
    sl_ms sent_ms;        /* its clock, */
    uint64_t wall_us;     /* and its wall clock. */
    uint64_t heard_epoch; /* What it last heard of the receiver: epoch (0: nothing), */
    sl_ms heard_ms;       /* and clock. */

    uint64_t round;             /* r  Of the proposer; its votes carry the same. */
    struct sl_bytes key;        /* k */
    struct sl_attempt_id owner; /* o */
    sl_fence fence;             /* f */
    sl_ms lease_ms;             /* L  STORED, FORCE: the longest that may run. */
    int32_t priority;           /* p */
    uint32_t flags;             /* F */
    struct sl_bytes value;      /* v  Borrowed, as all pointers here. */
    struct sl_bytes note;       /* n */
    struct sl_bytes client;     /* i  Of the lease: a name, NUL, and an address. */
    sl_ms waited_ms;            /* w */
    uint64_t stamp; /* s  Of the value: the higher is newer; 0: the fence is it. */

    enum sl_vote_verdict verdict; /* V */
    sl_fence
        ceiling;    /* c  The highest fence that was seen; STORED, FORCE: the limit. */
    sl_ms left_ms;  /* l  Until something ends. TEACH: for how long it is agreed. */
    int32_t wanted; /* P  The priority of a reservation. */

    struct sl_ballot ballot;   /* b */
    struct sl_ballot ballot2;  /* B  The one promised, or of the vote. */
    struct sl_membership list; /* m */
    uint64_t which;            /* u  The version of a membership. */
};

/* "ACQUIRE", and its fields. NULL: there is no such type. */
const char *sl_message_name(enum sl_message_type type);
const char *sl_message_fields(enum sl_message_type type);
const char *sl_vote_verdict_name(enum sl_vote_verdict verdict);

#endif /* SL_MAJORITY_MESSAGE_H */
