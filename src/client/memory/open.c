/* open.c - opens and closes a service. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/memory/memory.h"

#define KEYS_DEFAULT (1u << 20)
#define WAITERS_DEFAULT (1u << 16)

/* --- Allocation ---------------------------------------------------------------- */

static int make_conditions(struct sl_memory *s)
{
    pthread_cond_t *all[] = {&s->sleepers_gone, &s->clock_wake, &s->event_ready,
                             &s->callback_done};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (sl_client_condition_init(all[i]) != SLUICE_OK) return SLUICE_ENOMEM;
    return SLUICE_OK;
}

static void free_all(struct sl_memory *s)
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

static int make(const struct sluice_options *o, struct sl_memory **out)
{
    const struct sl_table_limits limits = {
        .keys_max = o->keys != 0 ? o->keys : KEYS_DEFAULT,
        .waiters_max = o->waiters != 0 ? o->waiters : WAITERS_DEFAULT,
        .key_bytes_max = SLUICE_KEY_BYTES_MAX,
        .value_bytes_max = SLUICE_VALUE_BYTES_MAX,
        .grain_ms = 1};
    struct sl_hash_key key;
    if (getrandom(&key, sizeof key, 0) != sizeof key) return SLUICE_EIO;
    struct sl_memory *s = calloc(1, sizeof *s);
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

static void stop(struct sl_memory *s)
{
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    pthread_cond_signal(&s->clock_wake);
    pthread_cond_signal(&s->event_ready);
    pthread_mutex_unlock(&s->mutex);
}

static int start_threads(struct sl_memory *s)
{
    int status = sl_client_start_thread(&s->clock, sl_client_clock_thread, s,
                                        "sluice-clock");
    if (status != SLUICE_OK) return status;
    status = sl_client_start_thread(&s->callback_thread, sl_client_callback_thread, s,
                                    "sluice-teller");
    if (status == SLUICE_OK) return SLUICE_OK;
    int why = errno;
    stop(s);
    pthread_join(s->clock, NULL);
    errno = why;
    return status;
}

static void close_memory(struct sluice *service);

static const struct sl_client_kind kind = {.close = close_memory,
                                           .acquire = sl_in_memory_acquire,
                                           .cancel = sl_in_memory_cancel,
                                           .release = sl_in_memory_release,
                                           .extend = sl_in_memory_extend,
                                           .left = sl_in_memory_left,
                                           .check = sl_in_memory_check,
                                           .revoke = sl_in_memory_break,
                                           .remind = sl_in_memory_remind,
                                           .inspect = sl_in_memory_inspect};

int sl_in_memory_open(const struct sluice_options *options, struct sluice **out)
{
    struct sl_memory *s;
    if (options->event_loop != 0) return SLUICE_EINVAL;
    int status = sl_client_session_prepare();
    if (status == SLUICE_OK) status = make(options, &s);
    if (status != SLUICE_OK) return status;
    s->base.kind = &kind;
    status = start_threads(s);
    if (status != SLUICE_OK) {
        int why = errno;
        free_all(s);
        errno = why;
        return status;
    }
    *out = &s->base;
    return SLUICE_OK;
}

/* --- Closing --------------------------------------------------------------------- */

void sl_client_answer_waiters(struct sl_memory *s, const struct sluice_cancel *token,
                              int status)
{
    for (struct sl_list *n = s->sessions.next; n != &s->sessions; n = n->next) {
        struct sl_client_session *p = sl_container_of(n, struct sl_client_session,
                                                      of_service);
        if (p->answer != SL_CLIENT_WAITING) continue;
        if (token != NULL && p->cancel != token) continue;
        sl_table_withdraw(s->table, &p->table_session);
        p->answer = status;
        pthread_cond_signal(&p->answered);
    }
}

/* Both threads have ended, or the callback thread calls this as its last action. */
void sl_client_free(struct sl_memory *s)
{
    sl_client_session_end_all(s);
    pthread_mutex_lock(&s->mutex);
    while (s->sleepers > 0) pthread_cond_wait(&s->sleepers_gone, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    free_all(s);
}

static void close_memory(struct sluice *service)
{
    struct sl_memory *s = sl_memory_of(service);
    /* In a child process this is only a copy of the parent's service. */
    if (s->fork_era != sl_client_fork_era) return;
    stop(s);
    pthread_mutex_lock(&s->mutex);
    sl_client_answer_waiters(s, NULL, SLUICE_ECLOSED);
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
