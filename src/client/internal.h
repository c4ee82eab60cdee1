/* inside.h - an open lock service in the memory of this process, as its own files see it.
 *
 *     threads of the program        the table, under one mutex        two threads of ours
 *     ----------------------        --------------------------        -------------------
 *     acquire, release, ...  ---->  sl_table_*()  <---- time ------   clock: leases, waits
 *     a waiter sleeps        <----  effects  ----> news of watches -> teller: calls `lost`
 *
 * README.md has the rules. Lock order: the registry's mutex (party.c), then that of a
 * struct sluice. Neither is held while the program's own code runs. */
#ifndef SL_CLIENT_INTERNAL_H
#define SL_CLIENT_INTERNAL_H

#include <pthread.h>

#include "client/answers.h"
#include "client/watch.h"
#include "locks/table.h"
#include "sluice.h"

struct sluice {
    pthread_mutex_t mutex; /* Guards all that follows, but the fork_era. */
    uint32_t fork_era;     /* Of forks: in another process this is only a memory. */
    bool closing;
    uint32_t sleepers; /* Threads asleep in a call, to be waited for by who closes. */
    pthread_cond_t sleepers_gone;

    struct sl_table *table;
    struct sl_now now;
    struct sl_list sessions;
    uint64_t sessions_made;
    struct sl_answers answers;

    pthread_t clock;
    pthread_cond_t clock_wake;
    sl_ms clock_at_ms; /* When it looks next, at the latest. */

    pthread_t callback_thread;
    pthread_cond_t event_ready;
    struct sl_client_watches watches;
    struct sl_client_watch *running; /* Whose callback runs, */
    uint64_t callbacks_done;         /* and how many have returned. */
    pthread_cond_t callback_done;
    bool closed_in_callback; /* Closed in a callback: the teller frees what is left. */
};

/* --- Threads of the program (party.c) -------------------------------------- */

#define SL_CLIENT_WAITING 1 /* It still waits; else a status. */

/* A thread that has asked for something: a session of the table. It is on the list of its
 * thread, and on that of the service until one of the two ends. */
struct sl_client_session {
    struct sl_session table_session;
    struct sluice
        *s; /* NULL: closed. Atomic: release when closing, acquire by its thread. */
    struct sl_client_session *next_of_thread;
    struct sl_list of_service;
    bool exited; /* Its thread is gone, and the memory is the service's. */

    int answer; /* To what it waits for. */
    struct sl_grant grant;
    struct sl_client_watch *watch; /* Of what it waits for; NULL: none. */
    pthread_cond_t answered;
};

/* Which process this is, in the line of forks. */
extern uint32_t sl_client_fork_era;

/* Make sure that exits of threads and forks are noticed. SLUICE_ENOMEM. */
int sl_client_session_prepare(void);

/* The calling thread's party, made if need be. SLUICE_ENOMEM. */
int sl_client_session_of(struct sluice *s, struct sl_client_session **out);

/* The kernel's number of the thread that a session was begun by. */
int32_t sl_client_session_tid(uint64_t session_id);

/* The service closes: end all sessions, and leave what threads still have to them. */
void sl_client_session_end_all(struct sluice *s);

/* Its session is over, as the table says. Under the mutex. */
void sl_client_session_over(struct sl_session *session);

/* --- Calls (service.c) ------------------------------------------------------- */

/* Begin a call: the mutex is taken, the clock looked at, what is due has happened.
 * SLUICE_EINVAL, SLUICE_EFORKED, SLUICE_ECLOSED: nothing is taken. */
int sl_client_enter(struct sluice *s);

/* End it: what follows happens, and the mutex is given back. */
void sl_client_leave(struct sluice *s);

/* Sleep inside a call; the mutex is given up meanwhile. */
void sl_client_sleep(struct sluice *s, pthread_cond_t *until);

/* --- What happens (service.c); all under the mutex --------------------------- */

void sl_client_read_clock(struct sluice *s);

/* Let happen what follows from the time and from changes. */
void sl_client_settle(struct sluice *s);

/* A party has been granted what it asked for: its watch, if any, becomes the grant's. */
void sl_client_granted(struct sluice *s, struct sl_client_session *p,
                       const struct sl_grant *grant);

/* STOLEN, BROKEN or EXPIRED has happened to a grant; it may be over by that. */
void sl_client_report(struct sluice *s, sl_fence fence, enum sluice_event_type what,
                      bool over);

/* Tell nothing more of a grant. The watch is gone, unless its callback runs. */
void sl_client_drop_watch(struct sluice *s, struct sl_client_watch *w);

/* No callback of this watch runs when this returns, unless we are in it. The mutex may
 * be given up meanwhile, and the watch may be gone after. */
void sl_client_await_callback(struct sluice *s, const struct sl_client_watch *w);

/* --- Our threads (service.c), and the end (open.c) ----------------------------- */

void *sl_client_clock_thread(void *service);
void *sl_client_callback_thread(void *service);

/* The last of it, when it is closed and the clock's thread is gone. */
void sl_client_free(struct sluice *s);

/* A condition whose timed waits go by CLOCK_MONOTONIC. SLUICE_ENOMEM. */
int sl_client_condition_init(pthread_cond_t *c);

#endif /* SL_CLIENT_INTERNAL_H */
