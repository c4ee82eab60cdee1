/* session.c - sessions. Each thread of the program that uses a service has a session,
 * which ends when the thread exits. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/memory/memory.h"

static __thread struct sl_client_session
    *mine; /* The calling thread's sessions, one per service. */

/* Guards the pointers between sessions and services, so that an exiting thread and a
 * thread that closes a service do not conflict. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static int once_result = SLUICE_ENOMEM;

/* A session id consists of a counter and the thread id. Thread ids on Linux are below
 * 2^22. */
#define TID_BITS 22

static uint64_t session_id_of(uint64_t count)
{
    return count << TID_BITS | (uint64_t)syscall(SYS_gettid);
}

int32_t sl_client_session_tid(uint64_t session_id)
{
    return (int32_t)(session_id & ((1u << TID_BITS) - 1));
}

/* --- The end of a session --------------------------------------------------- */

static void free_session(struct sl_client_session *p)
{
    pthread_cond_destroy(&p->answered);
    free(p);
}

/* Release a session that has ended and to which the table no longer refers. The caller
 * holds the mutex. */
static void forget(struct sl_client_session *p)
{
    sl_list_remove(&p->of_service);
    if (p->exited) free_session(p);
    /* Release, and the last access: the session's thread may free it immediately. */
    else __atomic_store_n(&p->s, NULL, __ATOMIC_RELEASE);
}

void sl_client_session_over(struct sl_session *session)
{
    forget(sl_container_of(session, struct sl_client_session, table_session));
}

void sl_client_session_end_all(struct sl_memory *s)
{
    pthread_mutex_lock(&registry);
    pthread_mutex_lock(&s->mutex);
    for (struct sl_list *n = s->sessions.next; n != &s->sessions; n = n->next)
        sl_table_session_end(
            s->table,
            &sl_container_of(n, struct sl_client_session, of_service)->table_session);
    sl_client_settle(s);
    pthread_mutex_unlock(&s->mutex);
    pthread_mutex_unlock(&registry);
}

/* Wait for the running callback if it belongs to a grant of this session, which has
 * just ended. */
static void await_own_callback(struct sl_memory *s, uint64_t session_id)
{
    const struct sl_client_watch *w = s->running;
    if (w != NULL && w->dropped && w->session_id == session_id)
        sl_client_await_callback(s, w);
}

static void end_with_thread(struct sl_client_session *p)
{
    pthread_mutex_lock(&registry);
    struct sl_memory *s = __atomic_load_n(&p->s, __ATOMIC_ACQUIRE);
    if (s == NULL) {
        pthread_mutex_unlock(&registry);
        free_session(p);
        return;
    }
    pthread_mutex_lock(
        &s->mutex); /* From here on, a thread that closes the service waits for us. */
    pthread_mutex_unlock(&registry);
    uint64_t id = p->table_session.id;
    p->exited = true;
    sl_client_read_clock(s);
    sl_table_session_end(s->table, &p->table_session);
    sl_client_settle(s);
    await_own_callback(s, id);
    pthread_mutex_unlock(&s->mutex);
}

static void on_thread_exit(void *unused)
{
    (void)unused;
    while (mine != NULL) {
        struct sl_client_session *p = mine;
        mine = p->next_of_thread;
        end_with_thread(p);
    }
}

/* --- Forks ------------------------------------------------------------------ */

static void before_fork(void)
{
    pthread_mutex_lock(&registry);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&registry);
}

/* Forget all services and sessions: they belong to the parent. The child neither
 * changes nor frees them, because another thread may have been changing them during the
 * fork. */
static void after_fork_in_child(void)
{
    sl_client_fork_era++;
    mine = NULL;
    pthread_mutex_unlock(&registry);
}

static void prepare_once(void)
{
    if (pthread_key_create(&exit_key, on_thread_exit) != 0) return;
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
        return;
    once_result = SLUICE_OK;
}

int sl_client_session_prepare(void)
{
    pthread_once(&once, prepare_once);
    return once_result;
}

/* --- The calling thread's session ------------------------------------------- */

/* Find the session for s, or NULL. Frees sessions of closed services. */
static struct sl_client_session *find(const struct sl_memory *s)
{
    struct sl_client_session **p = &mine;
    while (*p != NULL) {
        struct sl_client_session *here = *p;
        const struct sl_memory *its = __atomic_load_n(&here->s, __ATOMIC_ACQUIRE);
        if (its == s) return here;
        if (its == NULL) {
            *p = here->next_of_thread;
            free_session(here);
        } else p = &here->next_of_thread;
    }
    return NULL;
}

int sl_client_session_of(struct sl_memory *s, struct sl_client_session **out)
{
    *out = find(s);
    if (*out != NULL) return SLUICE_OK;
    struct sl_client_session *p = calloc(1, sizeof *p);
    if (p == NULL) return SLUICE_ENOMEM;
    /* Any value that is not NULL makes the exit handler run. */
    if (sl_client_condition_init(&p->answered) != SLUICE_OK) {
        free(p);
        return SLUICE_ENOMEM;
    }
    if (pthread_setspecific(exit_key, p) != 0) {
        free_session(p);
        return SLUICE_ENOMEM;
    }
    p->s = s;
    sl_session_begin(&p->table_session, session_id_of(++s->sessions_made), 0);
    sl_list_append(&s->sessions, &p->of_service);
    p->next_of_thread = mine;
    mine = p;
    *out = p;
    return SLUICE_OK;
}
