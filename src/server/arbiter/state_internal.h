/* state_internal.h - shared by the files of state.h: state.c while the server runs, state_start.c
 * at start and stop, state_storage.c for a cluster on etcd. */
#ifndef SL_SERVER_ARBITER_STATE_INTERNAL_H
#define SL_SERVER_ARBITER_STATE_INTERNAL_H

#include "base/durable.h"
#include "server/arbiter/state.h"
#include "server/data/directory.h"
#include "server/data/state_file.h"

struct sl_state {
    struct sl_directory directory;
    sl_state_write *write; /* Starts to write `next`; NULL: no durable state. */
    bool current; /* This server is the keeper, or has its own data directory. */
    /* The longest lease of the last keeper that may still be valid. */
    sl_ms inherited_ms;
    struct sl_kept kept; /* The content of the last successful write. */
    struct sl_kept next; /* The content of the write in progress. */
    bool writing;        /* A worker thread uses `result` and `writer`. */
    int result;
    int failed; /* The errno of the last write; 0: it succeeded. */
    /* The maximum length of a lease, including leases that the last server gave. */
    sl_ms lease_cap_ms;
    sl_ms lease_wanted_ms; /* The longest lease that any waiting request needs. */
    /* The longest lease that was given and may still be valid. */
    struct sl_longest longest;
    /* Number of waiters in the lock table, by length of the requested lease. */
    uint32_t waiting[SL_LENGTHS];
    struct sl_list deferred;  /* Requests that wait for a write. */
    struct sl_list resuming;  /* Requests that can run again now. */
    struct sl_list next_turn; /* Requests that run again in the next loop iteration. */
    size_t deferred_count;    /* Number of requests on all three lists. */
    sl_fence fence_seen;      /* The last fence one second ago. */
    sl_ms granted_ms;         /* When the last fence last changed. */
    uint64_t writes, errors, restored;
    uv_work_t work;
    struct sl_state_writer *writer;
};

/* Return the limit for leases to write next: the longest lease that was given or that a request
 * waits for. */
sl_ms sl_state_longest(const struct sl_state *st, struct sl_now now);

/* Create a state that writes nothing yet. Returns NULL after logging that memory is exhausted. */
struct sl_state *sl_state_new(struct server *s);

/* Write the limits that are needed now or will be needed soon. */
void sl_state_start_writing(struct server *s);

/* Finish a write: `error` is 0 or the errno. Requests that waited for the write run again, in the
 * next loop iteration at the latest. */
void sl_state_end_writing(struct server *s, int error);

/* Run again all requests that wait for a write. */
void sl_state_retry(struct server *s);

/* Write the file in the data directory, on a worker thread. */
bool sl_state_write_file(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* Return for how much longer the table grants nothing. */
sl_ms sl_state_quiet_ms(const struct server *s);

#endif /* SL_SERVER_ARBITER_STATE_INTERNAL_H */
