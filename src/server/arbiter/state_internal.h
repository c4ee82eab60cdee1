/* state_internal.h - shared by the files of state.h: state.c has the limits and the requests that
 * wait; state_changes.c says what a change must wait for; state_events.c has the events that wait,
 * and the extensions of clients that have left; state_journal.c writes to the journal of a single
 * server, state_import.c reads the file of an earlier version, and state_storage.c writes to the
 * storage of a cluster. */
#ifndef SL_SERVER_ARBITER_STATE_INTERNAL_H
#define SL_SERVER_ARBITER_STATE_INTERNAL_H

#include "base/durable.h"
#include "failover/keeper_journal.h"
#include "server/arbiter/state.h"
#include "server/data/state_file.h"

struct sl_state {
    sl_state_write *write; /* Starts to write `next`; NULL: no durable state. */
    bool current; /* This server is the keeper, or has its own data directory. */
    /* The longest lease of the previous keeper that may still be valid. */
    sl_ms inherited_ms;
    struct sl_kept kept; /* The content of the last successful write. */
    struct sl_kept next; /* The content of the write in progress. */
    bool writing;
    int failed; /* The errno of the last write; 0: it succeeded. */
    /* Leases have a limit, because there is no record of each one. */
    bool limits_leases;
    /* Write why a write failed, and what to do; NULL: etcd does not answer. */
    void (*explain)(const struct server *s, char *out, size_t size);
    /* The maximum length of a lease, including leases that the last server gave. */
    sl_ms lease_cap_ms;
    sl_ms lease_wanted_ms; /* The longest lease that any waiting request needs. */
    /* The longest lease that was given and may still be valid. */
    struct sl_longest longest;
    /* Number of waiters in the lock table, by length of the requested lease. */
    uint32_t waiting[SL_LENGTHS];
    struct sl_list deferred; /* Requests that wait for a higher limit. */
    struct sl_list parked;   /* Requests and events that wait for a position of the
                               * journal. */
    struct sl_list noting; /* Requests that wait for another node, in the order of their
                               * numbers. */
    struct sl_list resuming;  /* Requests that can run again now. */
    struct sl_list next_turn; /* Requests that run again in the next loop iteration. */
    size_t deferred_count;    /* Number of requests on all five lists. */
    sl_fence fence_seen;      /* The last fence one second ago. */
    sl_ms granted_ms;         /* When the last fence last changed. */
    uint64_t writes, errors, restored;
    struct sl_state_journal *journal; /* Of a single server; NULL: none. */
    struct sl_keeper_journal *keeper; /* Of the keeper, borrowed; NULL: none. */
    uint64_t need;         /* What the changes since sl_state_change() need. */
    uint64_t all_position; /* Requests about any key wait for this position. */
    bool is_lost; /* The journal has failed, so grants do not survive a stop. */
};

/* Return the limit for leases to write next: the longest lease that was given or that a request
 * waits for. */
sl_ms sl_state_longest(const struct sl_state *st, struct sl_now now);

/* Create a state that writes nothing yet. Returns NULL after logging that memory is exhausted. */
struct sl_state *sl_state_new(struct server *s);

/* Write the limits that are needed now or will be needed soon. */
void sl_state_start_writing(struct server *s);

/* Finish a write: `error` is 0 or the errno. Requests that waited for the write run again, in the
 * next loop iteration at the latest. */
void sl_state_end_writing(struct server *s, int error);

/* The journal works again: write what the last write could not, without waiting for the timer. */
void sl_state_write_again(struct server *s);

/* Run again all requests that wait for a write. */
void sl_state_retry(struct server *s);

/* state_events.c: publish an event that was parked, or not if it is about a grant that has ended;
 * whether it stays parked while the journal has failed; free all that are parked. */
void sl_state_deliver_event(struct server *s, struct request *r);
bool sl_state_keeps_event(const struct request *r);
void sl_state_free_events(struct server *s);

/* state_events.c: forget an extension whose client has left. */
void sl_state_drop_left(struct request *r);

/* Read the file "state" of an earlier version, if there is one, and restore its grants. Sets *floor
 * to the last fence that may have been granted, and *wait_until_ms to the time until which new
 * grants wait. Returns 1 if there is such a file, 0 if there is none, or -1 after logging why it
 * cannot be used. */
int sl_state_import(struct server *s, sl_fence *floor, sl_ms *wait_until_ms);

#endif /* SL_SERVER_ARBITER_STATE_INTERNAL_H */
