/* remote.h - internals of a lock service on a server or a cluster: sockets, threads and
 * callbacks around struct sl_engine.
 *
 *     threads of the program     the engine, under one mutex     our two threads
 *     ----------------------     ---------------------------     ---------------
 *     acquire, release, ...  ->  sl_engine_*()  <- input, time - sluice-io: sockets, timer
 *     a waiter sleeps        <-  tickets, events --------------> sluice-teller: callbacks
 *
 * With the option event_loop there are no threads, and sluice_step() does their work. A thread
 * that changes the engine carries out its orders before it unlocks the mutex
 * (sl_remote_settle()).
 * No thread holds the mutex while a callback of the program runs. */
#ifndef SL_CLIENT_REMOTE_H
#define SL_CLIENT_REMOTE_H

#include <pthread.h>

#include "client/engine/engine.h"
#include "client/kind.h"
#include "client/remote/socket.h"
#include "client/wire.h"

#define SL_REMOTE_CLOSE_MS 1000     /* How long sluice_close() waits for replies. */
#define SL_REMOTE_WIRES_MAX 8u      /* Idle connections kept for transactions. */
#define SL_REMOTE_STEP_MAX 16       /* Callbacks of one sluice_step(). */
#define SL_REMOTE_TX_REPLY_MS 90000 /* A command may wait for another transaction. */

/* A call of the program. A blocking call has it on its stack. */
struct sl_remote_call {
    struct sl_ticket ticket;
    pthread_cond_t *wakes; /* NULL: the call has a callback instead. */
    struct sl_list node;   /* In the queue of callbacks. */
    sluice_done_fn *on_done;
    void *arg;
    bool acquires;
};

struct sl_remote {
    struct sluice base;
    pthread_mutex_t
        mutex;         /* Guards the fields below, except those that never change. */
    uint32_t fork_era; /* Never changes, like event_loop and the addresses. */
    bool event_loop;
    char *where; /* The list of addresses, with a NUL after each. */
    const char *texts[SL_ENGINE_ADDRESSES_MAX];
    struct sl_client_address addresses[SL_ENGINE_ADDRESSES_MAX];
    char *password, *name;

    struct sl_engine engine;
    struct sl_socket sockets[SL_ENGINE_LINKS];
    int epoll, timer;
    sl_ms timer_ms; /* When the timer fires; SL_NEVER: it is stopped. */

    bool closing, stops; /* The service is being closed; its threads must end. */
    uint32_t sleepers;   /* Threads that sleep in a call; closing waits for them. */
    pthread_cond_t sleepers_gone, changed;

    pthread_t io_thread, callback_thread;
    struct sl_list callbacks; /* Calls that have ended. */
    pthread_cond_t callback_ready, callback_done;
    uint64_t callbacks_done;
    bool closed_in_callback;

    struct sluice_wire *wires[SL_REMOTE_WIRES_MAX];
    unsigned idle;
};

static inline struct sl_remote *sl_remote_of(struct sluice *s)
{
    return sl_container_of(s, struct sl_remote, base);
}

/* The time in milliseconds of CLOCK_BOOTTIME, which counts while the machine is suspended. */
sl_ms sl_remote_now(void);

/* --- loop.c; all under the mutex --------------------------------------------------- */

/* Create the descriptors. Returns SLUICE_OK, or SLUICE_EIO with errno. */
int sl_remote_open_loop(struct sl_remote *s);
void sl_remote_close_loop(struct sl_remote *s);

/* Carry out all orders of the engine, and wake the threads whose calls have ended. */
void sl_remote_settle(struct sl_remote *s);

/* Handle what the sockets have received, and what is due. Does not wait. */
void sl_remote_poll(struct sl_remote *s);

void *sl_remote_io_thread(void *service);

/* --- callbacks.c --------------------------------------------------------------------- */

/* Make at most `most` callbacks that are due, and return their number. Unlocks the mutex
 * meanwhile. */
int sl_remote_run_callbacks(struct sl_remote *s, int most);
bool sl_remote_has_callbacks(const struct sl_remote *s);
void *sl_remote_callback_thread(void *service);

/* Free a closed service whose threads have ended. */
void sl_remote_free(struct sl_remote *s);

/* --- calls.c --------------------------------------------------------------------------- */

extern const struct sl_client_kind sl_remote_kind;

/* Sleep in a call until a condition is signalled; the mutex is unlocked meanwhile. */
void sl_remote_sleep(struct sl_remote *s, pthread_cond_t *until);

/* --- inspect.c --------------------------------------------------------------------------- */

/* Fill views from a reply to EXPLAIN. Returns the number of holders and waiters, or
 * SLUICE_EPROTOCOL. */
int64_t sl_remote_views(const struct sluice_reply *r, struct sluice_view *out,
                        size_t max);

void sl_remote_close(struct sluice *s);

#endif /* SL_CLIENT_REMOTE_H */
