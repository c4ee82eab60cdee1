/* local.h - the arbiter `local`: the lock table of this server (locks/table.h) and its
 * transactions (transactions.h).
 *
 * The table decides. This module gives it the time, answers the requests of clients, and
 * publishes events. */
#ifndef SL_SERVER_ARBITER_LOCAL_H
#define SL_SERVER_ARBITER_LOCAL_H

#include "server/arbiter/arbiter.h"

/* In a cluster with a keeper, other nodes record grants, to report them to the next keeper. */
struct sl_local_observer {
    /* A connection was granted a lock, or has extended its lease. */
    void (*held)(struct conn *c, struct sl_bytes key, sl_fence fence, bool fresh);
    /* A grant has ended. `at_once`: its holder may not know, so do not delay the report. */
    void (*gone)(struct server *s, sl_fence fence, bool at_once);
};

struct sl_local {
    struct arbiter arbiter;
    const struct sl_local_observer *observer; /* NULL: none. */
    /* While the table recovers, a node may still report the holder of an unknown fence. */
    bool reclaims;
};

/* NULL: out of memory. */
struct arbiter *sl_local_new(struct server *s);

struct sl_local *sl_local_of(const struct server *s);

/* The text of an error with this status, if it says why the server grants nothing at present;
 * NULL: the status has its own text. */
const char *sl_local_why_not(const struct server *s, int status);

/* Another arbiter decides from now on: remove the waiters of clients of this node from the table,
 * and pass each to `move`. */
void sl_local_move_waiters(struct server *s, void (*move)(struct request *r));

/* Answer requests and publish events that follow from changes of the table, within the budget of
 * this turn. True: there are no more. */
bool sl_local_pump_table(struct server *s);

/* local_inspect.c */
void sl_local_inspect(const struct arbiter *a, struct sl_inspection *i);

#endif /* SL_SERVER_ARBITER_LOCAL_H */
