/* memory.h - internals of a lock service in the memory of this process.
 *
 *     threads of the program        the table, under one mutex        our two threads
 *     ----------------------        --------------------------        -------------------
 *     acquire, release, ...  ---->  sl_table_*()  <---- time ------   clock: leases, waits
 *     a waiter sleeps        <----  effects  ---> events of watches -> callbacks: on_event
 *
 * ../README.md has the rules. Lock order: first the registry's mutex (session.c), then the
 * mutex of a struct sl_memory. No thread holds either mutex while a callback of the
 * program runs. */
#ifndef SL_CLIENT_MEMORY_H
#define SL_CLIENT_MEMORY_H

#include <pthread.h>

#include "client/answers.h"
#include "client/kind.h"
#include "client/watch.h"
#include "locks/table.h"
#include "sluice.h"

struct sl_memory {
    struct sluice base;
    pthread_mutex_t mutex; /* Guards all fields below, except fork_era. */
    /* The value of sl_client_fork_era in the process that opened the service. In any
     * other process the service is only a copy. */
    uint32_t fork_era;
    bool closing;
    uint32_t sleepers; /* Threads that sleep in a call; closing waits for them. */
    pthread_cond_t sleepers_gone;

    struct sl_table *table;
    struct sl_now now;
    struct sl_list sessions;
    uint64_t sessions_made;
    struct sl_answers answers;

    pthread_t clock;
    pthread_cond_t clock_wake;
    sl_ms clock_at_ms; /* When the clock thread wakes, at the latest. */

    pthread_t callback_thread;
    pthread_cond_t event_ready;
    struct sl_client_watches watches;
    struct sl_client_watch *running; /* The watch whose callback runs, */
    uint64_t callbacks_done;         /* and how many callbacks have returned. */
    pthread_cond_t callback_done;
    /* A callback has closed the service, so the callback thread frees it. */
    bool closed_in_callback;
};

static inline struct sl_memory *sl_memory_of(struct sluice *s)
{
    return sl_container_of(s, struct sl_memory, base);
}

/* --- Sessions (session.c) -------------------------------------------------- */

#define SL_CLIENT_WAITING 1 /* The session waits; otherwise `answer` is a status. */

/* The session of a thread that has made a request. The session is in the list of its
 * thread and in the list of the service, until the thread exits or the service is
 * closed. */
struct sl_client_session {
    struct sl_session table_session;
    /* NULL: the service is closed. Atomic: the closing thread stores it with Release,
     * the session's thread loads it with Acquire. */
    struct sl_memory *s;
    struct sl_client_session *next_of_thread;
    struct sl_list of_service;
    bool exited; /* Its thread has exited, so the service frees it. */

    int answer;                         /* The result of its wait. */
    const struct sluice_cancel *cancel; /* The token of its wait; NULL: none. */
    struct sl_grant grant;
    struct sl_client_watch *watch; /* The watch of the pending request; NULL: none. */
    pthread_cond_t answered;
};

/* Install the handlers for thread exit and fork. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_client_session_prepare(void);

/* Get the calling thread's session; create it if there is none. Returns SLUICE_OK or
 * SLUICE_ENOMEM. */
int sl_client_session_of(struct sl_memory *s, struct sl_client_session **out);

/* Return the kernel's id of the thread that began a session. */
int32_t sl_client_session_tid(uint64_t session_id);

/* End all sessions of a service that is being closed. Their threads free the memory. */
void sl_client_session_end_all(struct sl_memory *s);

/* Clean up after the table has ended a session. The caller holds the mutex. */
void sl_client_session_over(struct sl_session *session);

/* --- Calls (service.c) ------------------------------------------------------- */

/* Begin a call: lock the mutex, read the clock, and apply the effects that are due.
 * Returns SLUICE_OK, or SLUICE_EFORKED or SLUICE_ECLOSED without locking
 * the mutex. */
int sl_client_enter(struct sl_memory *s);

/* End a call: apply all effects of the change and unlock the mutex. */
void sl_client_leave(struct sl_memory *s);

/* Sleep in a call until a condition is signalled; the mutex is unlocked meanwhile. */
void sl_client_sleep(struct sl_memory *s, pthread_cond_t *until);

/* --- Effects (service.c); all under the mutex -------------------------------- */

/* Read the clock into s->now. */
void sl_client_read_clock(struct sl_memory *s);

/* Advance the table to the current time and apply all its effects. */
void sl_client_settle(struct sl_memory *s);

/* Record that a session's request was granted. The watch of the request, if any,
 * becomes the watch of the grant. */
void sl_client_granted(struct sl_memory *s, struct sl_client_session *p,
                       const struct sl_grant *grant);

/* Report STOLEN, BROKEN or EXPIRED to the watch of a grant. `over` says whether the
 * grant has ended. */
void sl_client_report(struct sl_memory *s, sl_fence fence, enum sluice_event_type what,
                      bool over);

/* Stop reporting events of a grant. Frees the watch, unless its callback is running. */
void sl_client_drop_watch(struct sl_memory *s, struct sl_client_watch *w);

/* Wait until no callback of this watch is running. Returns at once if the calling
 * thread is in that callback. This may unlock the mutex meanwhile, and the watch may be
 * freed. */
void sl_client_await_callback(struct sl_memory *s, const struct sl_client_watch *w);

/* --- The functions of the kind (calls.c, inspect.c, open.c, service.c) --- */

int sl_in_memory_acquire(struct sluice *s, const char *key,
                         const struct sluice_request *r, struct sluice_grant *out);
int sl_in_memory_cancel(struct sluice *s, struct sluice_cancel *token);
int sl_in_memory_release(struct sluice *s, const char *key, uint64_t fence);
int sl_in_memory_extend(struct sluice *s, const char *key, uint64_t fence,
                        int64_t lease_ms);
int64_t sl_in_memory_left(struct sluice *s, const char *key, uint64_t fence);
int sl_in_memory_check(struct sluice *s, const char *key, uint64_t fence);
int sl_in_memory_break(struct sluice *s, const char *key, uint64_t fence, bool at_once);
void sl_in_memory_remind(struct sluice *s, const char *key, uint64_t fence);
int64_t sl_in_memory_inspect(struct sluice *s, const char *key, struct sluice_view *out,
                             size_t max);

/* --- Our threads (service.c), and closing (open.c) ----------------------------- */

void *sl_client_clock_thread(void *service);
void *sl_client_callback_thread(void *service);

/* End all waits, or those with this token, with a status. */
void sl_client_answer_waiters(struct sl_memory *s, const struct sluice_cancel *token,
                              int status);

/* Free a closed service whose clock thread has ended. */
void sl_client_free(struct sl_memory *s);

/* Check the invariants of a service, including those of its table. The caller holds the
 * mutex. For tests. */
void sl_client_check(const struct sluice *s);

#endif /* SL_CLIENT_MEMORY_H */
