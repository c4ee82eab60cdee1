/* proposer.h - the proposer of a node: it asks all acceptors on behalf of clients. */
#ifndef SL_MAJORITY_PROPOSER_H
#define SL_MAJORITY_PROPOSER_H

#include "majority/node_internal.h"

/* --- Requests --------------------------------------------------------------------- */

/* The vote of one node in a round. */
struct sl_proposer_vote {
    enum sl_vote_verdict verdict; /* NONE: the vote has not arrived, */
    bool gone;                    /* and is not expected any more. */
    uint32_t flags;
    struct sl_attempt_id owner;
    sl_fence fence;
    int32_t priority, wanted;
    sl_ms left_ms;
    uint64_t stamp;
    struct sl_node_text *value, *note, *client;
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
    struct sl_node_queued_order order; /* The first member: it becomes the answer. */
    struct sl_list all;
    struct sl_list key_link; /* Among the waiters, or watchers, of the key. */
    struct sl_node_key *key; /* NULL: a membership change, or rejected at once. */
    enum sl_node_verb type;
    uint64_t ticket, session;
    struct sl_attempt_id owner;
    sl_fence fence;
    uint64_t stamp; /* Of a new value. */
    sl_ms lease_ms, since_ms, wait_end_ms, force_ms;
    bool waits; /* The client allows it to wait, until wait_end_ms. */
    int32_t priority;
    bool steal, want_free, new_value;
    bool last;     /* The wait has timed out: the current round is the last. */
    bool ran_away; /* The fences of an acceptor are implausibly high. */
    bool recheck;  /* A node became unreachable during the round. */
    bool
        told_holder; /* A stealing request was notified of the holder for which it waits. */
    bool outstanding; /* Acceptors may have its last attempt: it was not released. */
    struct sl_node_text *value, *note, *client;
    struct sl_wait by_age; /* Among the waiters of the key. */

    bool in_round;
    uint64_t round;
    sl_ms sent_ms, end_ms; /* Votes count before end_ms. */
    sl_ms votes_end_ms;    /* Missing votes are asked for again then, */
    sl_ms hard_end_ms;     /* and given up then. */
    sl_ms waited_ms;
    sl_ms try_ms;  /* When the next round is due. */
    sl_ms disk_ms; /* Since when it waits for the disk; 0: it does not. */
    uint32_t tries, splits;
    sl_ms contest_ms; /* Since when other requests compete with it; SL_NEVER. */
    enum sl_proposer_outcome outcome;            /* Of the last round. */
    struct sl_proposer_vote votes[SL_NODES_MAX]; /* By position in the membership. */
    uint32_t timer;                              /* Index into request_timers. */

    struct sl_node_answer answer;
    struct sl_node_copy copies[SL_NODES_MAX];
};

/* What the votes of a round add up to. */
struct sl_proposer_count {
    uint32_t members, majority;
    uint32_t yes, held, reserved, lacks, fence, clock, silent, full, big, stranger;
    uint32_t granted;    /* Nodes that have one lease which is known to be a grant. */
    uint32_t rivals;     /* Votes that competing attempts have, or have the turn for. */
    bool yields;         /* One of those comes before this request. */
    uint32_t open;       /* Votes that may still arrive, */
    uint32_t missing;    /* and votes that will not. */
    sl_fence most_fence; /* The lease that most nodes have, */
    uint32_t most;       /* and how many have it. */
    sl_ms left_ms;       /* The longest time left of a reported lease, */
    sl_ms yes_left_ms;   /* the shortest of the votes YES, */
    sl_ms silent_ms;     /* and the longest silence. */
};

/* --- proposer.c ------------------------------------------------------------------- */

void sl_proposer_init(struct sl_node *n, struct sl_hash_key hash_key);
void sl_proposer_free(struct sl_node *n);

/* A request by its ticket or round: in by_ticket or by_round. NULL: there is none. */
struct sl_proposer_request *sl_proposer_find(const struct sl_index *x, uint64_t number);

void sl_proposer_tick(struct sl_node *n, struct sl_now now);

/* A node became unreachable; the membership changed. */
void sl_proposer_lost(struct sl_node *n, struct sl_now now, sl_node_id id);
void sl_proposer_membership_changed(struct sl_node *n, struct sl_now now);

/* Set the timer of a request. */
void sl_proposer_schedule(struct sl_node *n, struct sl_proposer_request *r);

/* End the round of a request; the next one begins at at_ms. */
void sl_proposer_try_again(struct sl_node *n, struct sl_proposer_request *r,
                           sl_ms at_ms);

/* Answer a request and end it. */
void sl_proposer_finish(struct sl_node *n, struct sl_now now,
                        struct sl_proposer_request *r, int status);
void sl_proposer_finish_with(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r, int64_t number);
void sl_proposer_finish_because(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r, int status,
                                const char *reason);
void sl_proposer_request_free(struct sl_node *n, struct sl_proposer_request *r);

/* --- proposer_queue.c ------------------------------------------------------------- */

/* The first request that waits for a key; NULL: none does. */
struct sl_proposer_request *sl_proposer_queue_head(const struct sl_node_key *k);
/* Whether it is this request's turn: it is first, or does not wait in the queue. */
bool sl_proposer_queue_is_first(const struct sl_proposer_request *r);
void sl_proposer_queue_join(struct sl_node *n, struct sl_node_key *k,
                            struct sl_proposer_request *r);
void sl_proposer_queue_leave(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r);

/* The lease of a key ended, or began: the requests that wait for that continue. */
void sl_proposer_wake(struct sl_node *n, struct sl_now now, struct sl_node_key *k);

/* Whether the key is what an AWAIT request waits for. */
bool sl_proposer_is_awaited(const struct sl_node_key *k,
                            const struct sl_proposer_request *r);

/* --- proposer_round.c ------------------------------------------------------------- */

#define SL_PROPOSER_RETRY_MS \
    250 /* A waiter asks again after that, and as much at random. */
#define SL_PROPOSER_PATIENCE \
    3 /* Answer times, after which a hanging node is given up. */
#define SL_PROPOSER_TRIES_MAX 6 /* Rounds without a pause, when fences were too low. */
#define SL_PROPOSER_ROUNDS_MAX 24 /* Rounds of a request that does not wait. */

/* The message of a request, without its type and flags. */
struct sl_message sl_proposer_message(const struct sl_proposer_request *r);

/* Ask all acceptors. The request may be over when this returns, since the node votes itself. */
void sl_proposer_start_round(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r);
void sl_proposer_end_round(struct sl_node *n, struct sl_proposer_request *r);
void sl_proposer_forget_votes(struct sl_node *n, struct sl_proposer_request *r);

/* Ask those again that have not answered. */
void sl_proposer_ask_again(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r);

struct sl_proposer_count sl_proposer_count_votes(const struct sl_node *n,
                                                 const struct sl_proposer_request *r);
/* How many votes report the lease of this fence. */
uint32_t sl_proposer_same_fence(const struct sl_proposer_request *r, uint32_t members,
                                sl_fence fence);

/* Too few nodes answered. */
void sl_proposer_finish_no_quorum(struct sl_node *n, struct sl_now now,
                                  struct sl_proposer_request *r,
                                  const struct sl_proposer_count *c);

/* Nodes go by another membership: ask again a little later. False: no node does, or the
 * request has asked often enough. */
bool sl_proposer_retry_for_membership(struct sl_node *n, struct sl_now now,
                                      struct sl_proposer_request *r,
                                      const struct sl_proposer_count *c);

void sl_proposer_receive_vote(struct sl_node *n, struct sl_now now, sl_node_id from,
                              const struct sl_message *m);

/* --- proposer_attempt.c ----------------------------------------------------------- */

/* Begin an attempt under a new fence. */
void sl_proposer_attempt(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r);
/* Release a failed attempt, so that its votes keep nobody out. */
void sl_proposer_give_up(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r);
/* A stealing request ends: the acceptors drop its reservation. */
void sl_proposer_cancel(struct sl_node *n, struct sl_now now,
                        const struct sl_proposer_request *r);
sl_fence sl_proposer_next_fence(const struct sl_node *n, struct sl_now now);
void sl_proposer_evaluate_acquire(struct sl_node *n, struct sl_now now,
                                  struct sl_proposer_request *r,
                                  const struct sl_proposer_count *c);
/* Settle a contest without the vote of a node that does not answer. False: there is none. */
bool sl_proposer_settle_contest(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r);
/* The wait of a request has timed out. */
void sl_proposer_wait_over(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r);

/* --- proposer_evaluate.c ---------------------------------------------------------- */

/* Decide, by the votes so far, whether the round of a request has ended. */
void sl_proposer_evaluate(struct sl_node *n, struct sl_now now,
                          struct sl_proposer_request *r);

/* --- proposer_teach.c ------------------------------------------------------------- */

/* Teach a lease that was agreed in this round: briefly to the nodes that voted YES, in full to
 * the others. */
void sl_proposer_announce(struct sl_node *n, struct sl_now now,
                          const struct sl_proposer_request *r, struct sl_message *m);

/* Remember which client here has the lease, and until when it may be taught. */
void sl_proposer_note_grant(const struct sl_proposer_request *r);

/* Teach a peer some more of the leases that it may lack. */
void sl_proposer_teach_peer(struct sl_node *n, struct sl_now now,
                            struct sl_node_peer *peer);

#endif /* SL_MAJORITY_PROPOSER_H */
