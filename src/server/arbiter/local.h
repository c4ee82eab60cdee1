/* local.h - the arbiter `local`: the lock table of this server (locks/table.h) and its
 * transactions (transactions.h).
 *
 * The table makes the decisions. This module passes the current time to the table, answers the
 * requests of clients, and publishes events. */
#ifndef SL_SERVER_ARBITER_LOCAL_H
#define SL_SERVER_ARBITER_LOCAL_H

#include "server/arbiter/arbiter.h"

/* Callbacks for grants. In a cluster on etcd, other nodes record grants, so that they can report
 * them to the next keeper. */
struct sl_local_observer {
    /* The client of a connection is about to be described to the table. */
    void (*described)(struct conn *c);
    /* A connection has acquired a lock, or has extended its lease. Returns the position for which the
     * reply must wait, of sl_state_noted(); 0: none; or SL_STATE_FAILED. */
    uint64_t (*held)(struct conn *c, sl_ms came_ms, struct sl_bytes key, sl_fence fence,
                     bool fresh);
    /* A grant without a lease no longer belongs to this session. */
    void (*moved)(struct server *s, uint64_t session, sl_fence fence);
    /* A grant has ended. `at_once`: the holder may not know that, so the report must not be
     * delayed. */
    void (*gone)(struct server *s, sl_fence fence, bool at_once);
    /* An operator has broken a grant, or a thief was granted the lock by force. `ended`: the grant has
     * ended; gone() follows when that is durable. */
    void (*broke)(struct server *s, sl_fence fence, bool ended);
};

struct sl_local {
    struct arbiter arbiter;
    const struct sl_local_observer *observer; /* Callbacks for grants; NULL: none. */
    /* While the table recovers, other nodes may still report grants that the table does not
     * know. */
    bool reclaims;
};

/* Create the arbiter. Returns NULL if out of memory. */
struct arbiter *sl_local_new(struct server *s);

struct sl_local *sl_local_of(const struct server *s);

/* Return the text of an error with this status, if it explains why the server grants nothing at
 * present. Returns NULL if the standard text of the status applies. */
const char *sl_local_why_not(const struct server *s, int status);

/* Remove the waiters of this node's clients from the table, and pass each of them to `move`,
 * because another arbiter decides from now on. */
void sl_local_move_waiters(struct server *s, void (*move)(struct request *r));

/* Answer the requests and publish the events that result from changes in the table, within the
 * budget of this loop iteration. Returns true if there are no more. */
bool sl_local_pump_table(struct server *s);

/* Release a grant with a lease whose client never received the reply. */
void sl_local_end_unanswered(struct server *s, struct sl_bytes key, sl_fence fence);

/* Undo the change of a parked request, because it will not become durable. */
void sl_local_undo(struct request *r);

/* Answer a parked request whose outcome is known (state.h). If not `durable`, the journal has
 * failed. */
void sl_local_deliver(struct request *r, bool durable);

/* Return what a drained pattern adds to server.drain_words. */
size_t sl_local_drain_words(struct sl_bytes glob);

/* local_inspect.c */
void sl_local_inspect(const struct arbiter *a, struct sl_inspection *i);

#endif /* SL_SERVER_ARBITER_LOCAL_H */
