/* local.h - the arbiter of this server: its lock table (locks/table.h) and its transactions
 * (arbiter/tx.h).
 *
 * The table decides. Here are its clock, its clients and its events. */
#ifndef SL_SERVER_ARBITER_LOCAL_H
#define SL_SERVER_ARBITER_LOCAL_H

#include "server/arbiter/arbiter.h"

/* Others that must know who holds what: the nodes of a cluster, for the next keeper. */
struct sl_local_observer {
    /* A connection was granted a lock, or has extended its lease. */
    void (*held)(struct conn *c, struct sl_bytes key, sl_fence fence, bool fresh);
    /* A grant has ended. `at_once`: its holder may not know. */
    void (*gone)(struct server *s, sl_fence fence, bool at_once);
};

struct sl_local {
    struct arbiter arbiter;
    const struct sl_local_observer *observer; /* NULL: none. */
    /* While the table recovers, the holder of an unknown fence may still be reported. */
    bool reclaims;
};

struct arbiter *sl_local_new(struct server *s);

struct sl_local *sl_local_of(const struct server *s);

/* Why nothing is granted at present; NULL: it is not so. For an error with this status. */
const char *sl_local_why_not(const struct server *s, int status);

/* Waiters that another arbiter decides from now on: they leave the table, and are handed to
 * `move`. */
void sl_local_hand_over(struct server *s, void (*move)(struct request *r));

/* Tell what follows from changes of the table, within the budget. True: nothing is left. */
bool sl_local_pump_table(struct server *s);

/* local_inspect.c */
void sl_local_inspect(const struct arbiter *a, struct sl_inspection *i);

#endif /* SL_SERVER_ARBITER_LOCAL_H */
