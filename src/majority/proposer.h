/* proposer.h - the proposer of a node: it asks all acceptors on behalf of clients. */
#ifndef SL_MAJORITY_PROPOSER_H
#define SL_MAJORITY_PROPOSER_H

#include "majority/node_internal.h"

/* --- Requests --------------------------------------------------------------------- */

/* The vote of one node in a round. */
struct sl_proposer_vote {
    enum sl_vote_verdict verdict; /* NONE: the vote has not arrived. */
    bool gone;                    /* The missing vote is not expected any more. */
    uint32_t flags;
    struct sl_attempt_id owner;
    sl_fence fence;
    int32_t priority, wanted;
    sl_ms left_ms;
    uint64_t stamp;
    struct sl_node_text *value, *note, *client, *request;
    uint64_t digest;
};

/* Why a round failed. */
enum sl_proposer_outcome {
    SL_OUTCOME_NONE,
    SL_OUTCOME_TAKEN,
    SL_OUTCOME_UNCLEAR,
    SL_OUTCOME_NOQUORUM,
    SL_OUTCOME_DISK
};

struct sl_proposer_request {
    struct sl_node_queued_order order; /* The first member; becomes the answer. */
    struct sl_list all;
    struct sl_list key_link; /* In the waiters or watchers of the key. */
    struct sl_node_key *key; /* NULL: membership change, or rejected immediately. */
    enum sl_node_verb type;
    uint64_t ticket, session;
    struct sl_attempt_id owner;
    sl_fence fence;
    uint64_t stamp; /* The stamp of the new value. */
    sl_ms lease_ms, since_ms, wait_end_ms, force_ms;
    bool waits; /* The client allows it to wait until wait_end_ms. */
    int32_t priority;
    bool steal, want_free, new_value, at_once, on;
    bool last;        /* The wait has timed out; this is the last round. */
    bool ran_away;    /* The fences of an acceptor are implausibly high. */
    bool recheck;     /* A node became unreachable during the round. */
    bool told_holder; /* The client of a stealing request knows the holder. */
    bool outstanding; /* Its last attempt was not released, so acceptors may have it. */
    struct sl_node_text *value, *note, *client;
    struct sl_node_text *request; /* The user and REQUEST id; NULL: none. */
    uint64_t digest;              /* Of its options. */
    uint64_t place;               /* The queue is ordered by priority, then by this. */
    bool looks;        /* Before it waits, it asks whether it repeats a grant. */
    bool adopts;       /* The round adopts the lease with the fence of the request. */
    bool adopts_grant; /* That lease is known to be a grant. */
    sl_fence lacked_fence; /* The fence of a lease that it could not adopt. */
    bool withdrew;         /* CANCEL: it withdrew a request that waited here. */
    struct sl_node_text
        *held_key;         /* The key, while the answer waits for the journal. */
    struct sl_wait by_age; /* In the waits of the key, by age. */

    bool in_round;
    uint64_t round;
    sl_ms sent_ms, end_ms; /* Votes count only before end_ms. */
    sl_ms votes_end_ms;    /* When to ask for missing votes again. */
    sl_ms hard_end_ms;     /* When to stop waiting for missing votes. */
    sl_ms waited_ms;
    sl_ms try_ms;  /* When the next round is due. */
    sl_ms disk_ms; /* When it began to wait for the disk; 0: it does not. */
    uint32_t tries, splits;
    sl_ms contest_ms; /* When other requests began to compete, or SL_NEVER. */
    enum sl_proposer_outcome outcome;            /* The outcome of the last round. */
    struct sl_proposer_vote votes[SL_NODES_MAX]; /* By position in the membership. */
    uint32_t timer;                              /* Slot in request_timers. */

    struct sl_node_answer answer;
    struct sl_node_copy copies[SL_NODES_MAX];
};

/* The votes of a round, counted. */
struct sl_proposer_count {
    uint32_t members, majority;
    uint32_t yes, held, reserved, lacks, fence, clock, silent, full, big, stranger;
    uint32_t granted; /* Nodes that have the same agreed lease. */
    uint32_t rivals;  /* Votes for competing attempts, or turns for them. */
    bool yields;      /* One of these attempts has a better rank. */
    uint32_t drained;
    uint32_t ended, names; /* Votes ENDED and NAMES. */
    bool ended_surely;     /* A vote ENDED is certain. */
    /* The lease that most nodes have for the acquisition of the request; or a lease that is
     * known to be agreed. */
    sl_fence mine_fence;
    uint32_t mine;       /* How many nodes have it. */
    bool mine_agreed;    /* It is known to be agreed. */
    bool mismatch;       /* It was requested with other options. */
    uint32_t open;       /* Votes that may still arrive. */
    uint32_t missing;    /* Votes that will not arrive. */
    sl_fence most_fence; /* The fence of the lease that most nodes have. */
    uint32_t most;       /* How many nodes have that lease. */
    sl_ms left_ms;       /* The longest time left of a reported lease. */
    sl_ms yes_left_ms;   /* The shortest time left in the YES votes. */
    sl_ms silent_ms;     /* The longest silence of a node. */
};

/* --- proposer.c ------------------------------------------------------------------- */

void sl_proposer_init(struct sl_node *n, struct sl_hash_key hash_key);
void sl_proposer_free(struct sl_node *n);

/* Find a request by its ticket (in by_ticket) or its round (in by_round). Returns
 * NULL if there is none. */
struct sl_proposer_request *sl_proposer_find(const struct sl_index *x, uint64_t number);

void sl_proposer_tick(struct sl_node *n, struct sl_now now);

/* Handle a node that became unreachable, or a change of the membership. */
void sl_proposer_lost(struct sl_node *n, struct sl_now now, sl_node_id id);
void sl_proposer_membership_changed(struct sl_node *n, struct sl_now now);

/* Set the timer of a request. */
void sl_proposer_schedule(struct sl_node *n, struct sl_proposer_request *r);

/* End the round of a request, and begin the next one at at_ms. */
void sl_proposer_try_again(struct sl_node *n, struct sl_proposer_request *r,
                           sl_ms at_ms);

/* Answer a request and end it. */
void sl_proposer_finish(struct sl_node *n, struct sl_now now,
                        struct sl_proposer_request *r, int status);
void sl_proposer_finish_with(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r, int64_t number);
#define SL_PROPOSER_MAY_HOLD                                      \
    "an earlier request with this REQUEST id may hold the lock; " \
    "retry, or send CANCEL"
void sl_proposer_finish_because(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r, int status,
                                const char *reason);
void sl_proposer_request_free(struct sl_node *n, struct sl_proposer_request *r);

/* --- proposer_queue.c ------------------------------------------------------------- */

/* Returns the first request that waits for a key, or NULL. */
struct sl_proposer_request *sl_proposer_queue_head(const struct sl_node_key *k);
/* Whether the request may try now: it is the first in the queue, or does not wait in
 * a queue. */
bool sl_proposer_queue_is_first(const struct sl_proposer_request *r);
void sl_proposer_queue_join(struct sl_node *n, struct sl_node_key *k,
                            struct sl_proposer_request *r);
void sl_proposer_queue_leave(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r);

/* Wake the requests that wait until the key is held or free. */
void sl_proposer_wake(struct sl_node *n, struct sl_now now, struct sl_node_key *k);

/* Whether the key is in the state that an AWAIT request waits for. */
bool sl_proposer_is_awaited(const struct sl_node_key *k,
                            const struct sl_proposer_request *r);

/* --- proposer_round.c ------------------------------------------------------------- */

#define SL_PROPOSER_RETRY_MS \
    250                         /* A waiter retries after one to two times this long. */
#define SL_PROPOSER_PATIENCE 3  /* Give up on a node after this many answer timeouts. */
#define SL_PROPOSER_TRIES_MAX 6 /* Rounds without a pause if fences were too low. */
#define SL_PROPOSER_ROUNDS_MAX 24 /* Rounds of a request that does not wait. */

/* Returns the message of a request, without type and flags. */
struct sl_message sl_proposer_message(const struct sl_proposer_request *r);

/* Ask all acceptors. The request may have ended when this returns, because the node
 * also votes itself. */
void sl_proposer_start_round(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r);
void sl_proposer_end_round(struct sl_node *n, struct sl_proposer_request *r);
void sl_proposer_forget_votes(struct sl_node *n, struct sl_proposer_request *r);

/* Ask the acceptors that have not voted again. */
void sl_proposer_ask_again(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r);

struct sl_proposer_count sl_proposer_count_votes(const struct sl_node *n,
                                                 const struct sl_proposer_request *r);
/* Returns how many votes report a lease with this fence. */
uint32_t sl_proposer_same_fence(const struct sl_proposer_request *r, uint32_t members,
                                sl_fence fence);

/* Record in the answer of a request how many nodes voted, can vote and are silent. */
void sl_proposer_note_votes(struct sl_proposer_request *r,
                            const struct sl_proposer_count *c);

/* End a request, because too few nodes answered. */
void sl_proposer_finish_no_quorum(struct sl_node *n, struct sl_now now,
                                  struct sl_proposer_request *r,
                                  const struct sl_proposer_count *c);
/* End a request that has not asked the nodes itself, because too few nodes answered the first
 * request in its queue. */
void sl_proposer_finish_like(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r,
                             const struct sl_proposer_request *first);

/* If nodes use another membership, retry a little later. Returns false if no node
 * does, or the request has retried often enough. */
bool sl_proposer_retry_for_membership(struct sl_node *n, struct sl_now now,
                                      struct sl_proposer_request *r,
                                      const struct sl_proposer_count *c);

void sl_proposer_receive_vote(struct sl_node *n, struct sl_now now, sl_node_id from,
                              const struct sl_message *m);

/* --- proposer_attempt.c ----------------------------------------------------------- */

/* Start an attempt under a new fence. */
void sl_proposer_attempt(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r);
/* Release a failed attempt, so that its votes do not block other requests. */
void sl_proposer_give_up(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r);
/* Make the acceptors drop the reservation of a stealing request that ends. */
void sl_proposer_cancel(struct sl_node *n, struct sl_now now,
                        const struct sl_proposer_request *r);
sl_fence sl_proposer_next_fence(const struct sl_node *n, struct sl_now now);
void sl_proposer_evaluate_acquire(struct sl_node *n, struct sl_now now,
                                  struct sl_proposer_request *r,
                                  const struct sl_proposer_count *c);
/* Settle a contest without the votes of nodes that do not answer. Returns false if
 * there is no contest. */
bool sl_proposer_settle_contest(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r);
/* Handle the timeout of a waiting request. */
void sl_proposer_wait_over(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r);

/* Continue a request that is not in the queue: let it wait, or try. */
void sl_proposer_ask_acquire(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r);

/* --- proposer_adopt.c ------------------------------------------------------------- */

/* A round of an attempt shows that its acquisition has a lease, or may have one. Begin to
 * adopt it, or answer the request. Returns false if the votes show nothing like that. */
bool sl_proposer_repeats(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r,
                         const struct sl_proposer_count *c);
/* Evaluate a round of an ACQUIRE that looks for the lease of its acquisition, or adopts
 * it. */
void sl_proposer_evaluate_look(struct sl_node *n, struct sl_now now,
                               struct sl_proposer_request *r,
                               const struct sl_proposer_count *c);
void sl_proposer_evaluate_adopt(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r,
                                const struct sl_proposer_count *c);

/* The client of a request that waits has left: keep its position in the queue. */
void sl_proposer_keep_place(struct sl_node *n, struct sl_now now,
                            const struct sl_proposer_request *r);
/* Give a request the position of an earlier attempt that waits here, or did until its
 * client left. Returns false if the earlier attempt has other options. */
bool sl_proposer_take_place(struct sl_node *n, struct sl_proposer_request *r);

/* CANCEL: withdraw the requests that wait here, and ask all acceptors. */
void sl_proposer_ask_cancel(struct sl_node *n, struct sl_now now,
                            struct sl_proposer_request *r);
void sl_proposer_evaluate_cancel(struct sl_node *n, struct sl_now now,
                                 struct sl_proposer_request *r,
                                 const struct sl_proposer_count *c);

/* Release a grant that no client has received, unless it was adopted. */
void sl_proposer_take_back(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r);

/* Whether two requests are attempts of one acquisition. */
static inline bool sl_proposer_same_acquisition(const struct sl_proposer_request *a,
                                                const struct sl_proposer_request *b)
{
    return a->request != NULL && b->request != NULL &&
           sl_bytes_equal(sl_node_text_bytes(a->request),
                          sl_node_text_bytes(b->request));
}

/* --- proposer_evaluate.c ---------------------------------------------------------- */

/* Decide from the votes so far whether the round of a request has ended. */
void sl_proposer_evaluate(struct sl_node *n, struct sl_now now,
                          struct sl_proposer_request *r);

/* Returns the YES vote with the newest value of the lease, or NULL if there is no
 * YES vote. */
const struct sl_proposer_vote *sl_proposer_vote_with_lease(
    const struct sl_node *n, const struct sl_proposer_request *r);
/* Teach the lease of this vote, until the end of the round. */
void sl_proposer_announce_vote(struct sl_node *n, struct sl_now now,
                               struct sl_proposer_request *r,
                               const struct sl_proposer_vote *v, uint32_t flags);

/* --- proposer_teach.c ------------------------------------------------------------- */

/* Teach a lease that was agreed in this round. Send the full lease to the nodes that
 * did not vote YES, and a short message to the others. */
void sl_proposer_announce(struct sl_node *n, struct sl_now now,
                          const struct sl_proposer_request *r, struct sl_message *m);

/* Record which client of this node has the lease, and until when the lease may be
 * taught. */
void sl_proposer_note_grant(struct sl_node *n, const struct sl_proposer_request *r);

/* Teach a peer some more of the leases that it may lack. */
void sl_proposer_teach_peer(struct sl_node *n, struct sl_now now,
                            struct sl_node_peer *peer);

#endif /* SL_MAJORITY_PROPOSER_H */
