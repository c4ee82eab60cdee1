/* message.h - what nodes say to each other about leases and about who they are.
 *
 * A message is a value: in the simulator it is handed over as it is, between servers it is
 * one command of the Redis protocol (server/net/node_wire.h). A message may be lost,
 * late, doubled and overtaken: nothing depends on it but progress.
 *
 *     seeker                         voters (all of them, its own included)
 *       ACQUIRE fence owner lease -->
 *                      <-- VOTE yes | held by ... | reserved | fence too low | silent ...
 *       TEACH fence (agreed) ----->    so that every node knows, and those that lack it learn it
 *
 *     RENEW, RELEASE, LOOK likewise, by key and fence, from any node. */
#ifndef SL_MAJORITY_MESSAGE_H
#define SL_MAJORITY_MESSAGE_H

#include "base/types.h"

/* --- Who they are ----------------------------------------------------------- */

#define SL_NODES_MAX 9
#define SL_NODE_ID_MAX 15   /* It is part of every fence. */
#define SL_ADDRESS_BYTES 72 /* "host:port" and its end. */

typedef uint32_t sl_node_id; /* 1 to SL_NODE_ID_MAX; 0: none. */

struct sl_member {
    sl_node_id id;
    uint64_t birth; /* Which folder it has (node.h); 0: as it was first met. */
    char address[SL_ADDRESS_BYTES];
};

/* A list of nodes. Lists follow each other by one node at a time. */
struct sl_membership {
    uint64_t version; /* 0: there is no list. */
    uint64_t cluster; /* Of its first list: lists of another one are nothing to us. */
    uint32_t count;
    struct sl_member at[SL_NODES_MAX]; /* By id. */
    sl_node_id added;                  /* The node that came with this version; 0. */
};

/* Whose turn it is to decide the next list; the larger wins. 0, 0: nobody's. */
struct sl_ballot {
    uint64_t number;
    sl_node_id id;
};

/* --- Messages --------------------------------------------------------------- */

/* MESSAGE(TYPE, fields): the fields that it has on a wire besides those that all have, in
 * this order; the letters stand beside them in struct sl_message. */
#define SL_MESSAGE_MAP(MESSAGE)                                       \
    MESSAGE(BEAT, "l") /* I am here; silent for so long. */           \
    MESSAGE(ACQUIRE, "rkofLpFvn")                                     \
    MESSAGE(RENEW, "rkfLFvs")                                         \
    MESSAGE(RELEASE, "rkofF")                                         \
    MESSAGE(CANCEL, "ko")         /* A thief goes away. */            \
    MESSAGE(TEACH, "kofLpFvnwsl") /* It is agreed. */                 \
    MESSAGE(TAUGHT, "")           /* That was all I can teach you. */ \
    MESSAGE(LOOK, "rk")                                               \
    MESSAGE(VOTE, "rVcfolpPFvns")                                     \
    MESSAGE(PREPARE, "b") /* May I decide the next list? */           \
    MESSAGE(PROMISE, "bVBml")                                         \
    MESSAGE(ACCEPT, "bm")                                             \
    MESSAGE(ACCEPTED, "bVB")                                          \
    MESSAGE(STORE, "m") /* This list was decided. */                  \
    MESSAGE(STORED, "ucL")                                            \
    MESSAGE(FORCE, "mcL") /* This list is in force; fences are above. */

enum sl_message_type {
    SL_MESSAGE_NONE,
#define MESSAGE(type, fields) SL_MESSAGE_##type,
    SL_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
        SL_MESSAGE_COUNT
};

/* What a voter says. */
#define SL_VERDICT_MAP(VERDICT)                                                        \
    VERDICT(YES) /* Done. Of RELEASE: it was there. Of LOOK: here is what there is. */ \
    VERDICT(HELD)     /* By another, whose fence, priority and time left follow. */    \
    VERDICT(RESERVED) /* For another, who waits for its holder to go. */               \
    VERDICT(LACKS)    /* There is no such lease here. */                               \
    VERDICT(FENCE)    /* The fence is not above those that were seen. */               \
    VERDICT(CLOCK)    /* The fence is days ahead: a clock is wrong. */                 \
    VERDICT(SILENT)   /* It forgot, and lets what it may have promised end first. */   \
    VERDICT(BIG)      /* The lease, or the key, is longer than it allows. */           \
    VERDICT(FULL)     /* There are too many keys. */                                   \
    VERDICT(STRANGER) /* It goes by another list, or is on none. */                    \
    VERDICT(SOON)     /* The last change of the list is too fresh. */                  \
    VERDICT(LATER)    /* A larger ballot was promised. */                              \
    VERDICT(BAD)      /* That is no list that may follow. */

enum sl_vote_verdict {
    SL_VERDICT_NONE,
#define VERDICT(name) SL_VERDICT_##name,
    SL_VERDICT_MAP(VERDICT)
#undef VERDICT
        SL_VERDICT_COUNT
};

/* Flags of ACQUIRE, TEACH and VOTE. */
enum {
    SL_FLAG_STEAL = 1, /* ACQUIRE: a holder of less priority is asked to go. */
    SL_FLAG_FORCE = 2, /* And is not waited for any longer. */
    SL_FLAG_FINAL = 4, /* RELEASE: by the holder's wish; else an attempt is given up. */
    SL_FLAG_VALUE = 8, /* RENEW: with a new value. */
    SL_FLAG_OVERLAPPING = 16, /* VOTE, TEACH: it was taken beside another. */
    SL_FLAG_EXTENDED = 32,    /* TEACH: it was extended, not granted. */
    SL_FLAG_WHOLE = 64,       /* TEACH: with owner, priority, value and note. */
    SL_FLAG_AGREED = 128,     /* VOTE on LOOK: it is known to be a grant. */
    SL_FLAG_RESERVED = 256, /* VOTE on LOOK: a thief waits; `wanted` is its priority. */
    SL_FLAG_COPY = 512, /* TEACH: from the copy of a node, not from a round of votes. */
    SL_FLAG_TURN = 1024, /* VOTE RESERVED: for a competing request, which comes first:
                              `owner` and `priority` are its. */
};

/* Who asks: one request of a client. */
struct sl_attempt_id {
    uint64_t epoch;  /* Of the node that took it. */
    uint64_t number; /* When, in microseconds; no two requests there have the same. */
};

struct sl_message {
    enum sl_message_type type;

    /* In all of them. */
    uint64_t cluster;     /* Of the list that the sender goes by, */
    uint64_t version;     /* and which one it is. */
    uint64_t epoch;       /* The sender's: a random number of each start, */
    sl_ms sent_ms;        /* and its clock. */
    uint64_t wall_us;     /* The time that it believes. */
    uint64_t heard_epoch; /* The newest such that it has of the receiver; 0: none. */
    sl_ms heard_ms;

    uint64_t round;             /* r  Of the seeker; its votes carry the same. */
    struct sl_bytes key;        /* k */
    struct sl_attempt_id owner; /* o */
    sl_fence fence;             /* f */
    sl_ms lease_ms;             /* L  Of STORED and FORCE: the longest given. */
    int32_t priority;           /* p */
    uint32_t flags;             /* F */
    struct sl_bytes value;      /* v  Borrowed, as all bytes. */
    struct sl_bytes note;       /* n */
    sl_ms waited_ms;            /* w */
    uint64_t stamp; /* s  Of the value: the higher is the newer; 0: the fence is. */

    enum sl_vote_verdict verdict; /* V */
    sl_fence ceiling; /* c  The highest fence that was seen; of STORED, FORCE: limit. */
    sl_ms left_ms;    /* l  Until something ends. Of TEACH: it is agreed for so long. */
    int32_t wanted;   /* P  The priority of a reservation. */

    struct sl_ballot ballot;   /* b */
    struct sl_ballot ballot2;  /* B  The one promised, or voted for. */
    struct sl_membership list; /* m */
    uint64_t which;            /* u  Version of a list. */
};

/* "ACQUIRE", and which fields it has. NULL: there is none. */
const char *sl_message_name(enum sl_message_type type);
const char *sl_message_fields(enum sl_message_type type);
const char *sl_vote_verdict_name(enum sl_vote_verdict verdict);

#endif /* SL_MAJORITY_MESSAGE_H */
