/* events.h - the events of locks: published to subscribers and pushed to holders.
 *
 * Each event is published on the channel lock:KEY as "NAME fence more". Some are also pushed to
 * the connection that they concern, if it speaks RESP3. The table in events.c has all of them. */
#ifndef SL_SERVER_OBSERVE_EVENTS_H
#define SL_SERVER_OBSERVE_EVENTS_H

#include "server/server.h"

enum sl_event_type {
    SL_EVENT_GRANTED,
    SL_EVENT_EXTENDED,
    SL_EVENT_RELEASED,
    SL_EVENT_EXPIRED,
    SL_EVENT_BROKEN,
    SL_EVENT_ASKED,     /* A client with a higher priority waits for the holder. */
    SL_EVENT_WITHDRAWN, /* It does not any more. */
    SL_EVENT_STOLEN, /* A thief has the lock; overlapping: the holder may not know. */
    SL_EVENT_WAITS,  /* Pushed to the thief: which holder it waits for. */
    SL_EVENTS
};

struct sl_event {
    enum sl_event_type type;
    struct sl_bytes key;
    sl_fence fence;
    uint64_t session;     /* The session to push it to; 0: none. */
    uint64_t held;        /* GRANTED */
    sl_ms lease_ms;       /* GRANTED, EXTENDED; 0: none. */
    sl_ms waited_ms;      /* GRANTED */
    bool overlapping;     /* GRANTED, STOLEN */
    int32_t priority;     /* ASKED */
    sl_ms left_ms;        /* ASKED, WAITS: of the holder's lease; SL_NEVER. */
    const char *why;      /* RELEASED, BROKEN; NULL: none. */
    struct sl_bytes note; /* WAITS: the holder's. */
};

void sl_event_publish(struct server *s, const struct sl_event *e);

/* The events that both kinds of lock have. */
void sl_event_granted(struct server *s, struct sl_bytes key, const struct sl_grant *g);

#endif /* SL_SERVER_OBSERVE_EVENTS_H */
