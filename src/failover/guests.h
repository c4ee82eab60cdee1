/* guests.h - on the keeper: the other nodes, whose clients it serves. */
#ifndef SL_FAILOVER_GUESTS_H
#define SL_FAILOVER_GUESTS_H

#include "failover/message.h"

/* Another node, as the keeper sees it. */
struct sl_guest_node {
    bool open;    /* The node has a route to this keeper. */
    bool ready;   /* The node has reported its ledger. */
    bool listens; /* The node has subscribers. */
    /* A lower bound of the node's clock at the time clock_at_ms of our clock; 0: unknown. */
    sl_ms clock_ms;
    sl_ms clock_at_ms; /* When our clock was read for clock_ms. */
    size_t count;      /* The number of sessions of its clients. */
    struct sl_noted_client noted;
};

#endif /* SL_FAILOVER_GUESTS_H */
