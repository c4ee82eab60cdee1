/* node_inside.h - a node as its own files see it.
 *
 *     node.c    doors in and out: messages, links, the disk, orders
 *     voter.c   places: what is known of a key, and what a voter says
 *     seeker.c  requests: what clients want, and rounds of votes
 *     change.c  the list of nodes
 *     look.c    questions */
#ifndef SL_MAJORITY_NODE_INTERNAL_H
#define SL_MAJORITY_NODE_INTERNAL_H

#include "base/heap.h"
#include "base/index.h"
#include "base/longest.h"
#include "majority/membership.h"
#include "majority/node.h"

/* Fences are microseconds: with a block of twenty seconds, of which the next is written
 * when half of it is used, there is a write every ten seconds. */
#define SL_FENCE_BLOCK 20000000u
#define SL_FENCE_DAY 86400000000u

/* Clocks differ in speed by one in a thousand at most, either way. */
static inline sl_ms sl_shrink(sl_ms lease_ms)
{
#ifdef MUT_M9
    return lease_ms;
#endif
    return lease_ms - lease_ms / 500 - (lease_ms % 500 > 0 ? 1 : 0);
}

static inline sl_ms sl_stretch(sl_ms lease_ms)
{
#ifdef MUT_SHORT
    return sl_shrink(lease_ms);
#endif
    return sl_ms_after(lease_ms, lease_ms / 400 + 3);
}

/* Clocks are rounded down: what begins now ends one later than it says. */
#define SL_GRAIN_MS 1

/* Bytes of our own; NULL: none. */
struct sl_node_text {
    size_t n;
    char at[];
};

/* The order of requests that compete for a free key: the higher priority comes first, then
 * the older request. All nodes know it from the messages themselves. */
struct sl_rank {
    int32_t priority;
    struct sl_attempt_id owner;
};

static inline bool sl_comes_before(struct sl_rank a, struct sl_rank b)
{
    if (a.priority != b.priority) return a.priority > b.priority;
#ifdef MUT_NOORDER
    return false;
#endif
    if (a.owner.number != b.owner.number) return a.owner.number < b.owner.number;
    return a.owner.epoch < b.owner.epoch;
}

/* --- What follows ------------------------------------------------------------- */

/* An order that waits to be fetched; its bytes stand behind it. */
struct sl_out {
    struct sl_list place;
    enum sl_node_order_type type;
    sl_node_id to[2 * SL_NODES_MAX];
    uint32_t to_count, to_done;
    bool is_request; /* It is part of a request, which goes with it. */
    size_t bytes;    /* That stand behind it. */
    union {
        struct sl_message message;
        struct sl_node_event event;
        char text[240];
    } u;
};

/* --- What is known of a key ------------------------------------------------------ */

struct sl_node_lease {
    bool live;
    bool agreed; /* It is known to be a grant. */
    bool overlapping;
    bool stolen; /* A thief entered beside it: it lasts, but is not extended. */
    bool copied; /* Learned from the copy of another node, and not confirmed since. */
    struct sl_attempt_id owner;
    sl_fence fence;
    int32_t priority;
    sl_ms end_ms, lease_ms;
    uint64_t stamp;   /* Of its value: the highest is the newest. */
    sl_ms sure_ms;    /* It is agreed until then at least, by this node's clock; 0. */
    sl_ms asked_ms;   /* Since when a thief waits; -1: none does. */
    uint64_t session; /* Who took it here; 0: nobody. */
    size_t
        length; /* Which of the lengths (base/longest.h) it counts as, from 1; 0: none. */
    struct sl_node_text *value, *note;
};

struct sl_reservation {
    bool live;
    struct sl_attempt_id owner;
    int32_t priority;
    sl_ms end_ms;
};

/* The first request, in the order of competing requests, that this voter rejected for an attempt
 * which is not known to be a grant. When that attempt is given up, the voter rejects all later
 * requests. */
struct sl_turn {
    struct sl_rank rank;
    sl_ms end_ms; /* When the turn ends; 0: there is none. */
};

/* What was told of a grant: its news may come in any order, and each is told once. */
struct sl_told {
    sl_fence fence; /* 0: of none. */
    bool granted, over;
    enum sl_node_event_type how; /* Of its end. */
};

#define SL_TOLD 8 /* Grants of a key of which that is remembered. */

struct sl_node_key {
    struct sl_node_lease lease;
    struct sl_node_lease
        *beside; /* One that a thief entered beside: its holder may act until
                                its end, whatever becomes of the thief; NULL: none. */
    struct sl_node_lease
        *lesson; /* One that is agreed, while this voter stands by an attempt
                                that will come to nothing; NULL: none. */
    struct sl_reservation reserved;
    struct sl_turn turn;
    struct sl_told told[SL_TOLD];
    uint32_t told_next;
    sl_fence seen;   /* The highest fence: a fresh attempt needs more. */
    sl_fence past;   /* The highest that ended here and was not given up: less is not */
    sl_fence ended;  /* believed any more, nor what was released. */
    sl_fence lapsed; /* A copied lease that ended here; it may have been extended. 0. */
    sl_ms idle_ms;   /* Since when there is neither lease nor reservation. */
    struct sl_list waiters; /* Requests, in the order in which they try. */
    struct sl_list watchers;
    uint32_t waiter_count;
    uint32_t requests;      /* All that are about it. */
    uint32_t stashed;       /* Messages about it that wait for the disk. */
    sl_fence taken_fence;   /* The last that was agreed here, */
    uint64_t taken_session; /* who took it, */
    sl_ms taken_sure_ms;    /* and until when it stands. */
    uint32_t due;           /* In the heap of places. */
    uint32_t key_n;
    char key[];
};

/* --- What a client wants --------------------------------------------------------- */

/* What one node said in a round. */
struct sl_vote {
    enum sl_vote_verdict verdict; /* NONE: nothing yet. */
    bool gone;                    /* And nothing is to be expected. */
    uint32_t flags;
    struct sl_attempt_id owner;
    sl_fence fence;
    int32_t priority, wanted;
    sl_ms left_ms;
    uint64_t stamp;
    struct sl_node_text *value, *note;
};

enum sl_outcome {
    SL_OUT_NONE,
    SL_OUT_TAKEN,
    SL_OUT_UNCLEAR,
    SL_OUT_NOQUORUM,
    SL_OUT_DISK
};

struct sl_node_pending {
    struct sl_out out; /* First: it becomes the order of its answer. */
    struct sl_list all;
    struct sl_list in_place; /* Of waiters, or watchers. */
    struct sl_node_key *place;
    enum sl_node_verb type;
    uint64_t ticket, session;
    struct sl_attempt_id owner;
    sl_fence fence;
    uint64_t stamp; /* Of a new value. */
    sl_ms lease_ms, since_ms, wait_end_ms, force_ms;
    bool waits; /* It wishes to, for a while. */
    int32_t priority;
    bool steal, want_free, new_value;
    bool last;      /* Its time is over; the round that runs is its last. */
    bool ran_away;  /* A voter's fences are beyond belief. */
    bool recheck;   /* A node cannot be reached any more. */
    bool told_whom; /* The thief has been told for whom it waits. */
    bool stands;    /* Voters may have its last attempt: it has not been released. */
    struct sl_node_text *value, *note;

    bool in_round;
    uint64_t round;
    sl_ms sent_ms, end_ms; /* A vote counts before that. */
    sl_ms votes_end_ms;    /* It is waited for until then, and asked for again, */
    sl_ms hard_end_ms;     /* until then. */
    sl_ms waited_ms;
    sl_ms try_ms;  /* When the next round is due. */
    sl_ms disk_ms; /* Since when it waits for the disk; 0: it does not. */
    uint32_t tries, splits;
    sl_ms contest_ms; /* Since when others compete with it; SL_NEVER: they do not. */
    enum sl_outcome outcome; /* Of the last round. */
    uint32_t counted;        /* Of a mutant; always here, so that all files agree. */
    struct sl_vote votes[SL_NODES_MAX];
    uint32_t due; /* In the heap of requests. */

    struct sl_node_answer answer;
    struct sl_node_copy copies[SL_NODES_MAX];
};

/* --- Other nodes ----------------------------------------------------------------- */

struct sl_peer {
    sl_node_id id; /* 0: this place is free. */
    bool linked;
    bool meets;     /* It will be, when its birth is on the disk. */
    uint64_t birth; /* As it said when it was linked. */
    uint64_t epoch; /* As last heard. */
    sl_ms stamp_ms;
    uint64_t version;
    uint64_t wall_us;     /* The time that it believes, */
    sl_ms wall_ms;        /* as of then; 0: not known. */
    sl_ms srtt8, rttvar4; /* Of answers, in 8ths and 4ths; -1: none came. */
    sl_ms told_ms;        /* When it was last told of the list. */
    sl_ms silent_ms;      /* Until then it does not vote, nor learn. */
    sl_ms teach_ms;       /* When it is taught more of what it may have missed, */
    uint64_t lesson;      /* from here on; SL_NEVER: that was all. */
    bool taught;          /* It has taught us all that it knows since our silence. */
};

#define SL_PEERS (2 * SL_NODES_MAX)

/* A message that waits for the disk. */
struct sl_stashed {
    struct sl_list place;
    sl_node_id from;
    struct sl_message m; /* Its bytes stand behind it. */
};

static inline size_t sl_stashed_bytes(const struct sl_message *m)
{
    return sizeof(struct sl_stashed) + m->key.n + m->value.n + m->note.n;
}

/* --- Changing the list ------------------------------------------------------------- */

enum sl_membership_change_phase {
    SL_C_NONE,
    SL_C_REACH,   /* The node to be added is to answer first. */
    SL_C_PREPARE, /* May we decide? */
    SL_C_ACCEPT,
    SL_C_STORE,
    SL_C_FORCE, /* Told; it is only to be written here, too. */
    SL_C_PAUSE, /* And try again. */
};

struct sl_membership_change {
    enum sl_membership_change_phase phase;
    struct sl_node_pending *request; /* NULL: what another began is finished. */
    struct sl_membership want;       /* The operator's wish; version 0: none. */
    struct sl_membership list;       /* What is to be decided, or was. */
    struct sl_ballot ballot;
    struct sl_ballot best; /* Of the votes that the promises told of. */
    sl_node_id yes[SL_PEERS], soon[SL_PEERS];
    uint32_t yes_count, soon_count;
    sl_fence limit; /* The highest of those who stored it, */
    sl_ms longest_ms;
    sl_ms resend_ms, give_up_ms, go_on_ms;
    sl_ms left_ms; /* Of those who said SOON, the longest. */
    bool waits_for_disk;
    uint32_t tries;
};

struct sl_node {
    sl_node_id id;
    uint64_t epoch;
    uint64_t chance; /* State of the generator. */
    struct sl_node_limits limits;

    struct sl_node_durable kept;    /* On the disk for certain; */
    struct sl_node_durable next;    /* what should be; */
    struct sl_node_durable writing; /* what is being written. */
    bool is_writing, write_due;
    sl_ms write_again_ms;         /* After a failure; 0: there was none. */
    sl_ms longest_sure_ms;        /* Whatever the disk has, it does not say less. */
    uint32_t lengths[SL_LENGTHS]; /* How many leases there are of each; */
    sl_ms lengths_ms[SL_LENGTHS]; /* when the last of them went; 0: never. */
    sl_ms voted_ms;               /* The last time that a fence was. */
    struct sl_list stash;
    uint32_t stash_count;

    sl_ms silent_ms; /* Until then nothing is voted for. */
    sl_ms learn_ms;  /* Until then leases of before may be missing here, at most. */
    sl_ms soon_ms;   /* Until then no other list. */
    sl_fence floor;
    sl_fence fence_last; /* That a seeker here took, or heard of. */

    struct sl_peer peers[SL_PEERS];
    struct sl_member asked_for; /* A node that is to be added. */
    sl_ms now_ms;               /* As of the last call, */
    uint64_t own_wall_us;       /* both by the own clocks. */
    sl_ms beat_ms, second_ms;
    bool links_due;
    bool said_emptied, said_foreign;

    struct sl_index places, by_ticket, by_round;
    struct sl_heap place_ends, request_ends;
    struct sl_list requests;
    uint32_t request_count;
    uint64_t last_number, last_round;
    struct sl_membership_change change;
    sl_ms finish_ms; /* When what another began is finished; SL_NEVER. */

    struct sl_list orders;
    struct sl_out *fetched; /* To be freed at the next call. */
    struct sl_message sending;
    size_t lease_count;
    size_t block_bytes; /* Of all blocks that it has allocated: see sl_block_new(). */
    uint64_t attempts, grants, splits, timeouts, taught;
};

/* --- node.c ------------------------------------------------------------------------ */

/* All memory that a node keeps for clients is allocated and freed here, which counts it.
 * NULL: no memory. A block is zeroed, and freed with the size that it was allocated with. */
void *sl_block_new(struct sl_node *n, size_t bytes);
void sl_block_free(struct sl_node *n, void *block, size_t bytes);

struct sl_node_text *sl_node_text_new(struct sl_node *n,
                                      struct sl_bytes b); /* NULL: empty, too. */
void sl_node_text_drop(struct sl_node *n, struct sl_node_text *t);
/* False: no memory. */
bool sl_node_text_set(struct sl_node *n, struct sl_node_text **t, struct sl_bytes b);
static inline struct sl_bytes sl_node_text_bytes(const struct sl_node_text *t)
{
    return t == NULL ? (struct sl_bytes){NULL, 0} : (struct sl_bytes){t->at, t->n};
}
static inline bool sl_owner_is(struct sl_attempt_id a, struct sl_attempt_id b)
{
    return a.epoch == b.epoch && a.number == b.number;
}

extern const struct sl_index_kind sl_places_kind, sl_tickets_kind, sl_rounds_kind;

/* The time as most of the nodes believe it: one clock that is days ahead must not use up
 * the fences. Every door begins with it. */
struct sl_now sl_believe(struct sl_node *n, struct sl_now now);

/* Whether so many nodes are heard of that this means something. */
bool sl_knows_time(const struct sl_node *n);

/* The highest fence that a seeker takes, or believes that others have seen; and whether a
 * voter believes one: it may have been away while others went on. */
sl_fence sl_highest_fence(const struct sl_node *n, struct sl_now now);
bool sl_is_believable(const struct sl_node *n, struct sl_now now, sl_fence fence);

uint64_t sl_chance(struct sl_node *n, uint64_t below);
bool sl_is_member(const struct sl_node *n);
struct sl_peer *sl_peer(const struct sl_node *n, sl_node_id id); /* NULL: not known. */
bool sl_can_reach(const struct sl_node *n, sl_node_id id);       /* Itself, too. */

/* How long an answer of the slowest node takes. */
sl_ms sl_rtt_ms(const struct sl_node *n);

/* How long votes are waited for. */
sl_ms sl_answer_ms(const struct sl_node *n);

/* Send to one, or to all of a list; what goes to itself is handled at once, last. */
void sl_send(struct sl_node *n, struct sl_now now, sl_node_id to, struct sl_message *m);
void sl_send_all(struct sl_node *n, struct sl_now now, struct sl_message *m);

void sl_tell(struct sl_node *n, const struct sl_node_event *e);
void sl_log_line(struct sl_node *n, const char *text);

/* `next` has changed: it is to be written. */
void sl_want_write(struct sl_node *n);

/* Whether a lease so long, under this fence, may be voted for now. False: it was ordered to
 * be written. */
bool sl_may_vote(struct sl_node *n, struct sl_now now, sl_fence fence, sl_ms lease_ms);

/* Keep a message until the next write is done, then handle it again. */
void sl_stash(struct sl_node *n, sl_node_id from, const struct sl_message *m);

/* Put a request that is over among the orders, or free it if nobody waits for it. */
void sl_order_answer(struct sl_node *n, struct sl_node_pending *r);
void sl_node_pending_free(struct sl_node *n, struct sl_node_pending *r);

/* --- voter.c ----------------------------------------------------------------------- */

struct sl_node_key *sl_node_key_find(const struct sl_node *n, struct sl_bytes key);
struct sl_node_key *sl_node_key_get(struct sl_node *n, struct sl_now now,
                                    struct sl_bytes key, int *status);
struct sl_bytes sl_node_key_key(const struct sl_node_key *p);

/* What of it is over at this time is over. */
void sl_node_key_settle(struct sl_node *n, struct sl_now now, struct sl_node_key *p);

/* When something about it is due next; the tick frees it when nobody needs it. */
void sl_node_key_schedule(struct sl_node *n, struct sl_now now, struct sl_node_key *p);
void sl_node_key_free(struct sl_node *n, struct sl_now now, struct sl_node_key *p);

void sl_acceptor_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                         const struct sl_message *m);
void sl_acceptor_tick(struct sl_node *n, struct sl_now now);

/* A node has taught all that it knows. */
void sl_acceptor_taught(struct sl_node *n, struct sl_now now, sl_node_id from,
                        const struct sl_message *m);

/* How long the longest lease is that stands here, or is expected. */
sl_ms sl_longest_lease(const struct sl_node *n, struct sl_now now);

/* --- seeker.c ---------------------------------------------------------------------- */

void sl_proposer_vote(struct sl_node *n, struct sl_now now, sl_node_id from,
                      const struct sl_message *m);
void sl_proposer_tick(struct sl_node *n, struct sl_now now);

/* Tell a node some more of what was agreed here. */
void sl_proposer_teach(struct sl_node *n, struct sl_now now, struct sl_peer *peer);

/* The lease of a place is over, or there is one now. */
void sl_proposer_wake(struct sl_node *n, struct sl_now now, struct sl_node_key *p);

/* A node cannot be reached any more; the list is another now. */
void sl_proposer_lost(struct sl_node *n, struct sl_now now, sl_node_id id);
void sl_proposer_list_changed(struct sl_node *n, struct sl_now now);

/* A request is over. */
void sl_finish(struct sl_node *n, struct sl_now now, struct sl_node_pending *r,
               int status);

/* --- change.c ---------------------------------------------------------------------- */

void sl_membership_change_begin(struct sl_node *n, struct sl_now now,
                                struct sl_node_pending *r,
                                const struct sl_node_request *ask);
void sl_membership_change_withdraw(struct sl_node *n, struct sl_node_pending *r);
void sl_membership_change_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                                  const struct sl_message *m);
void sl_membership_change_linked(struct sl_node *n, struct sl_now now, sl_node_id id);
void sl_membership_change_tick(struct sl_node *n, struct sl_now now);
sl_ms sl_membership_change_due(const struct sl_node *n);

/* Tell a node of the list in force. */
void sl_membership_change_tell(struct sl_node *n, struct sl_now now, sl_node_id to);

#endif /* SL_MAJORITY_NODE_INTERNAL_H */
