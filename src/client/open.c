/* open.c - opens and closes a service. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/internal.h"

#define KEYS_DEFAULT (1u << 20)
#define WAITERS_DEFAULT (1u << 16)

/* --- Allocation ---------------------------------------------------------------- */

static int make_conditions(struct sluice *s)
{
    pthread_cond_t *all[] = {&s->sleepers_gone, &s->clock_wake, &s->event_ready,
                             &s->callback_done};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (sl_client_condition_init(all[i]) != SLUICE_OK) return SLUICE_ENOMEM;
    return SLUICE_OK;
}

static void free_all(struct sluice *s)
{
    sl_table_free(s->table);
    sl_client_watches_free(&s->watches);
    pthread_cond_destroy(&s->sleepers_gone);
    pthread_cond_destroy(&s->clock_wake);
    pthread_cond_destroy(&s->event_ready);
    pthread_cond_destroy(&s->callback_done);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static int make(const struct sluice_options *o, struct sluice **out)
{
    const struct sl_table_limits limits = {
        .keys_max = o->keys != 0 ? o->keys : KEYS_DEFAULT,
        .waiters_max = o->waiters != 0 ? o->waiters : WAITERS_DEFAULT,
        .key_bytes_max = SLUICE_KEY_BYTES_MAX,
        .value_bytes_max = SLUICE_VALUE_BYTES_MAX,
        .grain_ms = 1};
    struct sl_hash_key key;
    if (getrandom(&key, sizeof key, 0) != sizeof key) return SLUICE_EIO;
    struct sluice *s = calloc(1, sizeof *s);
    if (s == NULL) return SLUICE_ENOMEM;
    s->fork_era = sl_client_fork_era;
    s->clock_at_ms = SL_NEVER;
    sl_list_init(&s->sessions);
    s->table = sl_table_new(&limits, key);
    /* On Linux, initializing a mutex or a condition variable needs no memory and cannot
     * fail, but check anyway. */
    if (s->table == NULL || sl_client_watches_init(&s->watches) != SLUICE_OK ||
        pthread_mutex_init(&s->mutex, NULL) != 0 || make_conditions(s) != SLUICE_OK) {
        sl_table_free(s->table);
        sl_client_watches_free(&s->watches);
        free(s);
        return SLUICE_ENOMEM;
    }
    *out = s;
    return SLUICE_OK;
}

/* --- Threads -------------------------------------------------------------------- */

static int start(pthread_t *t, void *(*work)(void *), struct sluice *s,
                 const char *name)
{
    int failed = pthread_create(t, NULL, work, s);
    if (failed != 0) {
        errno = failed;
        return SLUICE_EIO;
    }
    pthread_setname_np(*t, name);
    return SLUICE_OK;
}

static void stop(struct sluice *s)
{
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    pthread_cond_signal(&s->clock_wake);
    pthread_cond_signal(&s->event_ready);
    pthread_mutex_unlock(&s->mutex);
}

/* Fill a set with all signals except those that a thread causes itself, such as
 * SIGSEGV. */
static void signals_of_others(sigset_t *out)
{
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                              SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(out);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(out, own[i]);
}

/* Start both threads with signals blocked, so that the program's own threads receive
 * them. */
static int start_threads(struct sluice *s)
{
    sigset_t others, before;
    signals_of_others(&others);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    int status = start(&s->clock, sl_client_clock_thread, s, "sluice-clock");
    if (status == SLUICE_OK) {
        status = start(&s->callback_thread, sl_client_callback_thread, s,
                       "sluice-teller");
        if (status != SLUICE_OK) {
            int why = errno;
            stop(s);
            pthread_join(s->clock, NULL);
            errno = why;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

int sluice_open(const char *where, const struct sluice_options *options,
                struct sluice **out)
{
    static const struct sluice_options defaults;
    struct sluice *s;
    if (where == NULL || out == NULL || strcmp(where, "memory:") != 0)
        return SLUICE_EINVAL;
    int status = sl_client_session_prepare();
    if (status == SLUICE_OK) status = make(options != NULL ? options : &defaults, &s);
    if (status != SLUICE_OK) return status;
    status = start_threads(s);
    if (status != SLUICE_OK) {
        int why = errno;
        free_all(s);
        errno = why;
        return status;
    }
    *out = s;
    return SLUICE_OK;
}

/* --- Closing --------------------------------------------------------------------- */

/* Answer all waiters with SLUICE_ECLOSED. */
static void answer_waiters(struct sluice *s)
{
    for (struct sl_list *n = s->sessions.next; n != &s->sessions; n = n->next) {
        struct sl_client_session *p = sl_container_of(n, struct sl_client_session,
                                                      of_service);
        if (p->answer != SL_CLIENT_WAITING) continue;
        sl_table_withdraw(s->table, &p->table_session);
        p->answer = SLUICE_ECLOSED;
        pthread_cond_signal(&p->answered);
    }
}

/* Both threads have ended, or the callback thread calls this as its last action. */
void sl_client_free(struct sluice *s)
{
    sl_client_session_end_all(s);
    pthread_mutex_lock(&s->mutex);
    while (s->sleepers > 0) pthread_cond_wait(&s->sleepers_gone, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    free_all(s);
}

void sluice_close(struct sluice *s)
{
    /* In a child process this is only a copy of the parent's service. */
    if (s == NULL || s->fork_era != sl_client_fork_era) return;
    stop(s);
    pthread_mutex_lock(&s->mutex);
    answer_waiters(s);
    bool in_callback = pthread_equal(pthread_self(), s->callback_thread) != 0;
    s->closed_in_callback = in_callback;
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->clock, NULL);
    if (in_callback) {
        pthread_detach(s->callback_thread);
        return;
    }
    pthread_join(s->callback_thread, NULL);
    sl_client_free(s);
}
