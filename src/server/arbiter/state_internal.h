/* state_internal.h - shared by the files of state.h: state.c while the server runs, state_start.c
 * at start and stop, state_storage.c for a cluster with a keeper. */
#ifndef SL_SERVER_ARBITER_STATE_INTERNAL_H
#define SL_SERVER_ARBITER_STATE_INTERNAL_H

#include "base/durable.h"
#include "server/arbiter/state.h"
#include "server/data/directory.h"
#include "server/data/state_file.h"

struct sl_state {
    struct sl_directory directory;
    sl_state_write *write; /* Orders that `next` is written; NULL: no durable state. */
    bool current;          /* This server is the keeper, or has its own directory. */
    sl_ms inherited_ms;  /* The longest lease of the last keeper, while one may run. */
    struct sl_kept kept; /* The last successful write. */
    struct sl_kept next; /* The write in progress. */
    bool writing;        /* A worker thread uses `result` and `writer`. */
    int result;
    int failed;                   /* The errno of the last write; 0: it succeeded. */
    sl_ms lease_cap_ms;           /* No lease is longer, not even of the last server. */
    sl_ms lease_wanted_ms;        /* The longest lease that a request waits to get. */
    struct sl_longest longest;    /* The longest lease that was given. */
    uint32_t waiting[SL_LENGTHS]; /* Waiters in the lock table, by length of lease. */
    struct sl_list deferred;      /* Requests that wait for a write, */
    struct sl_list resuming;      /* or that can run again now, */
    struct sl_list next_turn;     /* or that run again in the next turn. */
    size_t deferred_count;        /* Requests on all three lists. */
    sl_fence fence_seen;          /* The last fence, as of a second ago, */
    sl_ms granted_ms;             /* and when it last changed. */
    uint64_t writes, errors, restored;
    uv_work_t work;
    struct sl_state_writer *writer;
};

/* The limit for leases to write next: no lease that was given or is waited for is longer. */
sl_ms sl_state_longest(const struct sl_state *st, struct sl_now now);

/* A state that writes nothing yet. NULL: out of memory; the log says so. */
struct sl_state *sl_state_new(struct server *s);

/* Write the limits that are needed now and soon. */
void sl_state_start_writing(struct server *s);

/* The write is done, or failed with this errno. Requests that waited for it run again, in the next
 * turn of the loop at the latest. */
void sl_state_end_writing(struct server *s, int error);

/* Let all requests that wait for a write run again. */
void sl_state_retry(struct server *s);

/* Write the file in the data directory, on a worker thread. */
bool sl_state_write_file(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* For how long the table still grants nothing. */
sl_ms sl_state_quiet_ms(const struct server *s);

#endif /* SL_SERVER_ARBITER_STATE_INTERNAL_H */
