/* watch.h - which grants want to be told of, and what is still to be told.
 *
 * A grant that was asked for with a callback has a watch. News of it are kept in the watch
 * itself, so that nothing has to be allocated when something happens: of being asked and
 * not being asked any more only the last counts, and everything else happens once.
 *
 * Not thread-safe: its struct sluice's mutex guards it. */
#ifndef SL_CLIENT_WATCH_H
#define SL_CLIENT_WATCH_H

#include "base/types.h"
#include "sluice.h"

typedef void sl_client_event_fn(void *arg, const struct sluice_event *e);

struct sl_client_watch {
    struct sl_list queue; /* Among those with news, or alone. */
    struct sl_client_watch *chain;
    sl_fence fence;
    uint64_t session_id;
    sl_client_event_fn *on_event;
    void *arg;
    bool asked, asked_reported; /* How it is, and what its holder was told last. */
    bool over;                  /* The grant is; so it goes when all is told. */
    bool dropped;               /* Released: nothing is to be told any more. */
    unsigned events;  /* Bits of what happens once: STOLEN, BROKEN, EXPIRED. */
    int32_t priority; /* The thief's. */
    sl_ms end_ms;     /* Of its lease, when it was asked. */
    char key[];
};

struct sl_client_watches {
    struct sl_client_watch **slots; /* By fence; those of one slot are a chain. */
    uint32_t mask;
    size_t count;
    struct sl_list queue; /* Those with news, in the order in which they had them. */
};

/* SLUICE_ENOMEM. */
int sl_client_watches_init(struct sl_client_watches *x);
void sl_client_watches_free(struct sl_client_watches *x); /* With all watches. */

/* A watch for a grant that is yet to come; NULL: out of memory. Copies the key. */
struct sl_client_watch *sl_client_watch_new(struct sl_bytes key,
                                            sl_client_event_fn *on_event, void *arg);

/* It has come. This cannot fail. The watch is the table's from now on. */
void sl_client_watches_put(struct sl_client_watches *x, struct sl_client_watch *w,
                           sl_fence fence, uint64_t session_id);

struct sl_client_watch *sl_client_watches_find(const struct sl_client_watches *x,
                                               sl_fence fence);

/* Take it out; the caller frees it. */
void sl_client_watches_remove(struct sl_client_watches *x, struct sl_client_watch *w);

/* Whether there is something to tell. */
bool sl_client_watch_has_event(const struct sl_client_watch *w);

/* The next thing to tell, of a watch that has news; it counts as told. */
struct sluice_event sl_client_watch_next_event(struct sl_client_watch *w, sl_ms now_ms);

#endif /* SL_CLIENT_WATCH_H */
