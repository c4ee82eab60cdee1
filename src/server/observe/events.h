/* events.h - the events of locks: published to subscribers and pushed to holders.
 *
 * Each event is published on the channel lock:KEY as "NAME fence more". One event,
 * keeper-changed, concerns all keys, and is published to all subscribers. Some events are also
 * pushed to the connection that they concern, if it uses RESP3. The table in events.c lists all
 * events. */
#ifndef SL_SERVER_OBSERVE_EVENTS_H
#define SL_SERVER_OBSERVE_EVENTS_H

#include "server/server.h"

enum sl_event_type {
    SL_EVENT_GRANTED,
    SL_EVENT_EXTENDED,
    SL_EVENT_RELEASED,
    SL_EVENT_EXPIRED,
    SL_EVENT_BROKEN,
    /* A client with a higher priority waits: the holder should release. */
    SL_EVENT_ASKED,
    SL_EVENT_WITHDRAWN, /* That client no longer waits. */
    /* A thief has the lock; overlapping: the holder may still use it. */
    SL_EVENT_STOLEN,
    SL_EVENT_WAITS, /* Pushed to the thief: the holder that it waits for. */
    SL_EVENTS
};

struct sl_event {
    enum sl_event_type type;
    struct sl_bytes key;
    sl_fence fence;
    uint64_t session; /* The session to push the event to; 0: none. */
    uint64_t held;    /* GRANTED */
    sl_ms lease_ms;   /* GRANTED, EXTENDED; 0: none. */
    sl_ms waited_ms;  /* GRANTED */
    bool overlapping; /* GRANTED, STOLEN */
    int32_t priority; /* ASKED */
    /* ASKED, WAITS: the rest of the holder's lease; SL_NEVER: no lease. */
    sl_ms left_ms;
    const char *why;      /* RELEASED, BROKEN; NULL: none. */
    bool ends;            /* RELEASED, BROKEN: by BREAK NOW (sl_state_publish()). */
    struct sl_bytes note; /* WAITS: the note of the holder. */
};

void sl_event_publish(struct server *s, const struct sl_event *e);

/* Tell all subscribers that events may be missing before this one, because this node is connected
 * to the keeper `node` of this term from now on, or has become the keeper itself. */
void sl_event_keeper_changed(struct server *s, uint64_t term, uint32_t node);

/* Publish a grant. Used for locks of the table and for locks that a majority decides. */
void sl_event_granted(struct server *s, struct sl_bytes key, const struct sl_grant *g);

#endif /* SL_SERVER_OBSERVE_EVENTS_H */
