/* kind.h - the two kinds of lock services: in this process (memory/), and on a server or a
 * cluster (remote/). open.c calls the functions of a service through this table. */
#ifndef SL_CLIENT_KIND_H
#define SL_CLIENT_KIND_H

#include <pthread.h>
#include <stdbool.h>

#include "sluice.h"

/* The functions of a kind. They have the meaning of the public functions of the same name;
 * open.c has checked that pointers are not NULL, and keys, requests and times are valid. NULL:
 * this kind does not support the function. */
struct sl_client_kind {
    void (*close)(struct sluice *s);
    int (*acquire)(struct sluice *s, const char *key, const struct sluice_request *r,
                   struct sluice_grant *out);
    int (*cancel)(struct sluice *s, struct sluice_cancel *token);
    int (*release)(struct sluice *s, const char *key, uint64_t fence);
    int (*extend)(struct sluice *s, const char *key, uint64_t fence, int64_t lease_ms);
    int64_t (*left)(struct sluice *s, const char *key, uint64_t fence);
    int (*check)(struct sluice *s, const char *key, uint64_t fence);
    int (*revoke)(struct sluice *s, const char *key, uint64_t fence, bool at_once);
    int64_t (*inspect)(struct sluice *s, const char *key, struct sluice_view *out,
                       size_t max);
    /* Report ASKED again, if the holder is still asked to release the grant. */
    void (*remind)(struct sluice *s, const char *key, uint64_t fence);
    void (*error)(struct sluice *s, char *out, size_t size);
    int (*fd)(struct sluice *s);
    int (*timeout_ms)(struct sluice *s);
    int (*step)(struct sluice *s);
    /* The request is sent after delay_ms. */
    int (*acquire_start)(struct sluice *s, const char *key,
                         const struct sluice_request *r, int64_t delay_ms,
                         sluice_done_fn *on_done, void *arg);
    int (*release_start)(struct sluice *s, const char *key, uint64_t fence,
                         sluice_done_fn *on_done, void *arg);
    int (*extend_start)(struct sluice *s, const char *key, uint64_t fence,
                        int64_t lease_ms, sluice_done_fn *on_done, void *arg);
    bool (*runs_event_loop)(const struct sluice *s);
    /* Open a connection for a transaction, or take an idle one in attempt 0; and return it. */
    int (*open_wire)(struct sluice *s, unsigned attempt, struct sluice_wire **out);
    void (*keep_wire)(struct sluice *s, struct sluice_wire *w);
    int64_t (*retry_ms)(const struct sluice *s);
};

/* Every service begins with this. */
struct sluice {
    const struct sl_client_kind *kind;
};

/* The longest duration that the public functions accept: 142,000 years. */
#define SL_CLIENT_MS_MAX ((int64_t)1 << 52)

/* Open a service of a kind. */
int sl_in_memory_open(const struct sluice_options *o, struct sluice **out);
int sl_remote_open(const char *where, const struct sluice_options *o,
                   struct sluice **out);

/* How many fork() calls separate this process from the first one. Identifies a process
 * among its ancestors. A service belongs to the process that opened it. */
extern uint32_t sl_client_fork_era;

/* Start a thread with all signals blocked except those that a thread causes itself, so that the
 * program's own threads receive the others. Returns SLUICE_OK, or SLUICE_EIO with errno. */
int sl_client_start_thread(pthread_t *t, void *(*work)(void *), void *arg,
                           const char *name);

/* Initialize a condition variable whose timed waits use CLOCK_MONOTONIC. Returns
 * SLUICE_OK or SLUICE_ENOMEM. */
int sl_client_condition_init(pthread_cond_t *c);

#endif /* SL_CLIENT_KIND_H */
