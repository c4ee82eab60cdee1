/* state_inside.h - the state as its own files see it: state.c, while it serves,
 * state_start.c, before and after, and state_engine.c, where an engine keeps it. */
#ifndef SL_SERVER_ARBITER_STATE_INTERNAL_H
#define SL_SERVER_ARBITER_STATE_INTERNAL_H

#include "base/durable.h"
#include "server/arbiter/state.h"
#include "server/data/directory.h"
#include "server/data/state_file.h"

struct sl_state {
    struct sl_directory directory;
    sl_state_write *write; /* Order that `next` is kept; NULL: nothing is. */
    bool current;          /* It is ours to say what is kept; with a folder always. */
    sl_ms inherited_ms; /* What the keeper before had as longest, while that may run. */
    struct sl_kept kept; /* What is on the disk for certain. */
    struct sl_kept next; /* What is being written. */
    bool writing;        /* Then `result` and `writer` are the worker's. */
    int result;
    int failed;                   /* Why the last write failed; 0: it did not. */
    sl_ms lease_cap_ms;           /* No lease is longer, the last server's included. */
    sl_ms lease_wanted_ms;        /* Somebody would have one so long. */
    struct sl_longest longest;    /* Of those that were given. */
    uint32_t waiting[SL_LENGTHS]; /* How many wait who want such a one. */
    struct sl_list deferred;      /* Those who wait for a write, */
    struct sl_list resuming;      /* and whose turn has come. */
    struct sl_list again;         /* Calls to dispatch again in the next turn. */
    size_t deferred_count;
    sl_fence fence_seen; /* The last, a second ago, */
    sl_ms granted_ms;    /* and when it last was another. */
    uint64_t writes, errors, restored;
    uv_work_t work;
    struct sl_state_writer *writer;
};

/* What the file has to say of leases: none runs longer from now on, and whoever wants a
 * longer one has to wait. */
sl_ms sl_state_longest(const struct sl_state *st, struct sl_now now);

/* It keeps nothing yet. NULL: it was said in the log. */
struct sl_state *sl_state_new(struct server *s);

/* Write what is needed now and soon. */
void sl_state_start_writing(struct server *s);

/* That is done, or failed for a reason (an errno). Who waited for it is dispatched again, in
 * the next turn of the loop if not before. */
void sl_state_end_writing(struct server *s, int error);

/* Let all who were deferred try again. */
void sl_state_retry(struct server *s);

/* The file of the folder, by a worker. */
bool sl_state_write_file(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* For how long nothing is granted yet. */
sl_ms sl_state_quiet_ms(const struct server *s);

#endif /* SL_SERVER_ARBITER_STATE_INTERNAL_H */
