/* open.c - a service begins and ends. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/internal.h"

#define KEYS_DEFAULT (1u << 20)
#define WAITERS_DEFAULT (1u << 16)

/* --- What it is made of -------------------------------------------------------- */

static int make_conditions(struct sluice *s)
{
    pthread_cond_t *all[] = {&s->left, &s->clock_turn, &s->news, &s->told};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (sl_condition_init(all[i]) != SLUICE_OK) return SLUICE_ENOMEM;
    return SLUICE_OK;
}

static void free_all(struct sluice *s)
{
    sl_table_free(s->table);
    sl_watches_free(&s->watches);
    pthread_cond_destroy(&s->left);
    pthread_cond_destroy(&s->clock_turn);
    pthread_cond_destroy(&s->news);
    pthread_cond_destroy(&s->told);
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
    s->era = sl_client_era;
    s->clock_at_ms = SL_NEVER;
    sl_list_init(&s->parties);
    s->table = sl_table_new(&limits, key);
    /* Neither a mutex nor a condition takes memory or fails here; but ask. */
    if (s->table == NULL || sl_watches_init(&s->watches) != SLUICE_OK ||
        pthread_mutex_init(&s->mutex, NULL) != 0 || make_conditions(s) != SLUICE_OK) {
        sl_table_free(s->table);
        sl_watches_free(&s->watches);
        free(s);
        return SLUICE_ENOMEM;
    }
    *out = s;
    return SLUICE_OK;
}

/* --- Its two threads ------------------------------------------------------------ */

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
    pthread_cond_signal(&s->clock_turn);
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->mutex);
}

/* All signals but those that a thread brings upon itself. */
static void others_signals(sigset_t *out)
{
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                              SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(out);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(out, own[i]);
}

/* Both leave signals to the threads of the program. */
static int start_threads(struct sluice *s)
{
    sigset_t others, before;
    others_signals(&others);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    int status = start(&s->clock, sl_service_clock, s, "sluice-clock");
    if (status == SLUICE_OK) {
        status = start(&s->teller, sl_service_teller, s, "sluice-teller");
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
    int status = sl_party_prepare();
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

/* --- Its end --------------------------------------------------------------------- */

/* Who waits is told; nothing more is granted. */
static void turn_away(struct sluice *s)
{
    for (struct sl_list *n = s->parties.next; n != &s->parties; n = n->next) {
        struct sl_party *p = sl_container_of(n, struct sl_party, of_service);
        if (p->answer != SL_ANSWER_NONE) continue;
        sl_table_withdraw(s->table, &p->session);
        p->answer = SLUICE_ECLOSED;
        pthread_cond_signal(&p->answered);
    }
}

/* Our threads are gone, or one of them calls this as the last thing it does. */
void sl_service_free(struct sluice *s)
{
    sl_party_end_all(s);
    pthread_mutex_lock(&s->mutex);
    while (s->inside > 0) pthread_cond_wait(&s->left, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    free_all(s);
}

void sluice_close(struct sluice *s)
{
    /* What came over a fork is a picture of another process. */
    if (s == NULL || s->era != sl_client_era) return;
    stop(s);
    pthread_mutex_lock(&s->mutex);
    turn_away(s);
    bool by_teller = pthread_equal(pthread_self(), s->teller) != 0;
    s->closed_by_teller = by_teller;
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->clock, NULL);
    if (by_teller) {
        pthread_detach(s->teller);
        return;
    }
    pthread_join(s->teller, NULL);
    sl_service_free(s);
}
