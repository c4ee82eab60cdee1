/* state_inside.h - the state as its own files see it: state.c, while it serves, and
 * state_start.c, before and after. */
#ifndef SL_SERVER_STATE_INSIDE_H
#define SL_SERVER_STATE_INSIDE_H

#include "core/longest.h"
#include "server/folder.h"
#include "server/state.h"
#include "server/state_file.h"

struct sl_state {
    struct sl_folder folder;
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

/* For how long nothing is granted yet. */
sl_ms sl_state_quiet_ms(const struct server *s);

/* A block of fences above all that was given, and the time. */
sl_fence sl_state_limit_above(sl_fence floor, uint64_t wall_us);

#endif /* SL_SERVER_STATE_INSIDE_H */
