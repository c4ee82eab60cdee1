/* watch.h - grants with a callback, and the events that have not been reported yet.
 *
 * A grant whose request has a callback has a watch. Events are stored in the watch
 * itself, so an event needs no allocation: of ASKED and WITHDRAWN only the last one
 * matters, and every other event happens at most once.
 *
 * The functions are not thread-safe: the caller holds the mutex of the struct
 * sluice. */
#ifndef SL_CLIENT_WATCH_H
#define SL_CLIENT_WATCH_H

#include "base/types.h"
#include "sluice.h"

struct sl_ticket;

typedef void sl_client_event_fn(void *arg, const struct sluice_event *e);

struct sl_client_watch {
    struct sl_list queue; /* In the queue of watches with events, or in no list. */
    struct sl_client_watch *chain;
    /* The program has not learned of the grant yet: report this ticket before an event. NULL: it
     * has. Not used in one process. */
    struct sl_ticket *ticket;
    sl_fence fence;
    uint64_t session_id;
    sl_client_event_fn *on_event;
    void *arg;
    /* The current state, and the state that was reported last. */
    bool asked, asked_reported;
    bool over; /* The grant has ended; free the watch when all events are reported. */
    bool dropped;     /* The grant was released; report nothing more. */
    unsigned events;  /* Events to report once, as bits: STOLEN, BROKEN, EXPIRED. */
    int32_t priority; /* The thief's priority. */
    sl_ms end_ms;     /* When the lease expires, as of ASKED. */
    char key[];
};

struct sl_client_watches {
    struct sl_client_watch **slots; /* A hash table by fence, with chains. */
    uint32_t mask;
    size_t count;
    struct sl_list queue; /* Watches with events to report, in order. */
};

/* Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_client_watches_init(struct sl_client_watches *x);
void sl_client_watches_free(struct sl_client_watches *x); /* Frees all watches too. */

/* Create a watch for a request. Copies the key. Returns NULL if out of memory. */
struct sl_client_watch *sl_client_watch_new(struct sl_bytes key,
                                            sl_client_event_fn *on_event, void *arg);

/* Add the watch of a request that was granted. The table then owns the watch. This
 * cannot fail. */
void sl_client_watches_put(struct sl_client_watches *x, struct sl_client_watch *w,
                           sl_fence fence, uint64_t session_id);

struct sl_client_watch *sl_client_watches_find(const struct sl_client_watches *x,
                                               sl_fence fence);

/* Remove a watch; the caller frees it. */
void sl_client_watches_remove(struct sl_client_watches *x, struct sl_client_watch *w);

/* Return whether there is an event to report. */
bool sl_client_watch_has_event(const struct sl_client_watch *w);

/* Take the next event of a watch that has one, and mark it as reported. */
struct sluice_event sl_client_watch_next_event(struct sl_client_watch *w, sl_ms now_ms);

/* Check the invariants: every watch is in the chain of its fence; a watch with an event is in
 * the queue; the watch of an ended grant has an event. The watch whose callback is running
 * is exempt from the last two. */
void sl_client_watches_check(const struct sl_client_watches *x,
                             const struct sl_client_watch *running);

#endif /* SL_CLIENT_WATCH_H */
