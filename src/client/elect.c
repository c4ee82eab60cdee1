/* elect.c - sluice_elect(): stands for election, leads, and stands again. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/kind.h"

#define LEASE_MS 10000
#define PAUSE_MS 1000 /* Between a rejected request and the next one. */
#define PAUSE_NO_MEMORY_NS 100000000

/* One request is pending, or a grant is held, or neither while a callback runs. */
struct sluice_election {
    struct sluice *s;
    struct sluice_candidate candidate; /* Its strings are in `text`. */
    struct sluice_cancel cancel;
    pthread_mutex_t mutex; /* Guards the fields below. */
    pthread_cond_t changed;
    bool resigns;
    uint32_t callbacks; /* Calls of on_done() to come, and callbacks that run. */
    bool forgotten;     /* The last callback frees the election. */
    uint64_t fence;     /* 0: does not lead. */
    char *key;
    char text[];
};

static void stand_again(struct sluice_election *e, int64_t delay_ms);

static void free_election(struct sluice_election *e)
{
    pthread_mutex_destroy(&e->mutex);
    pthread_cond_destroy(&e->changed);
    free(e);
}

/* A callback begins, or will come. Returns false if the candidate has resigned. */
static bool enter(struct sluice_election *e)
{
    pthread_mutex_lock(&e->mutex);
    bool goes_on = !e->resigns;
    if (goes_on) e->callbacks++;
    pthread_mutex_unlock(&e->mutex);
    return goes_on;
}

/* A callback has returned, or will not come. */
static void leave(struct sluice_election *e)
{
    pthread_mutex_lock(&e->mutex);
    bool last = --e->callbacks == 0 && e->forgotten;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    if (last) free_election(e);
}

static void on_event(void *arg, const struct sluice_event *event)
{
    struct sluice_election *e = arg;
    bool ends = event->type != SLUICE_EVENT_ASKED &&
                event->type != SLUICE_EVENT_WITHDRAWN;
    if (!ends || !enter(e)) return;
    e->candidate.on_ended(e->candidate.arg, event->fence, event->type);
    pthread_mutex_lock(&e->mutex);
    e->fence = 0;
    pthread_mutex_unlock(&e->mutex);
    stand_again(e, 0);
    leave(e);
}

static void on_done(void *arg, int status, const struct sluice_grant *grant)
{
    struct sluice_election *e = arg;
    pthread_mutex_lock(&e->mutex);
    bool resigns = e->resigns, forgotten = e->forgotten;
    if (status == SLUICE_OK) e->fence = grant->fence;
    pthread_mutex_unlock(&e->mutex);
    if (status == SLUICE_OK && !resigns)
        e->candidate.on_elected(e->candidate.arg, grant->fence);
    else if (status == SLUICE_OK && forgotten)
        e->s->kind->release_start(e->s, e->key, grant->fence, NULL, NULL);
    else if (!resigns && status != SLUICE_ECLOSED) stand_again(e, PAUSE_MS);
    leave(e);
}

static int stand(struct sluice_election *e, int64_t delay_ms)
{
    const struct sluice_request r = {.priority = e->candidate.priority,
                                     .wait_ms = SLUICE_FOREVER,
                                     .lease_ms = e->candidate.lease_ms,
                                     .value = e->candidate.value,
                                     .note = e->candidate.note,
                                     .on_event = on_event,
                                     .arg = e,
                                     .cancel = &e->cancel,
                                     .keep_alive = 1};
    if (!enter(e)) return SLUICE_ECANCELLED;
    int status = e->s->kind->acquire_start(e->s, e->key, &r, delay_ms, on_done, e);
    if (status != SLUICE_OK) leave(e);
    return status;
}

/* Stand for election again, in a callback. Without memory, wait until there is some: no other thread
 * would try again. */
static void stand_again(struct sluice_election *e, int64_t delay_ms)
{
    while (stand(e, delay_ms) == SLUICE_ENOMEM)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NO_MEMORY_NS}, NULL);
}

static size_t size_of(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

static char *copy(char **at, const char *text)
{
    if (text == NULL) return NULL;
    size_t n = strlen(text) + 1;
    char *out = memcpy(*at, text, n);
    *at += n;
    return out;
}

int sluice_elect(struct sluice *s, const char *key, const struct sluice_candidate *c,
                 struct sluice_election **out)
{
    if (s == NULL || key == NULL || c == NULL || out == NULL) return SLUICE_EINVAL;
    if (s->kind->acquire_start == NULL || c->on_elected == NULL || c->on_ended == NULL)
        return SLUICE_EINVAL;
    size_t n = strnlen(key, SLUICE_KEY_BYTES_MAX + 1);
    if (n == 0 || n > SLUICE_KEY_BYTES_MAX || c->lease_ms < 0 ||
        c->lease_ms > SL_CLIENT_MS_MAX ||
        size_of(c->value) > SLUICE_VALUE_BYTES_MAX + 1 ||
        size_of(c->note) > SLUICE_VALUE_BYTES_MAX + 1)
        return SLUICE_EINVAL;
    struct sluice_election *e = calloc(1, sizeof *e + n + 1 + size_of(c->value) +
                                              size_of(c->note));
    if (e == NULL) return SLUICE_ENOMEM;
    char *at = e->text;
    e->s = s;
    e->candidate = *c;
    e->key = copy(&at, key);
    e->candidate.value = copy(&at, c->value);
    e->candidate.note = copy(&at, c->note);
    if (e->candidate.lease_ms == 0) e->candidate.lease_ms = LEASE_MS;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->changed, NULL);
    int status = stand(e, 0);
    if (status == SLUICE_OK) *out = e;
    else free_election(e);
    return status;
}

void sluice_resign(struct sluice_election *e)
{
    if (e == NULL) return;
    struct sluice *s = e->s;
    pthread_mutex_lock(&e->mutex);
    e->resigns = true;
    pthread_mutex_unlock(&e->mutex);
    sluice_cancel(s, &e->cancel);
    /* No other candidate may lead while a callback of this one runs. In an event loop no callback runs
     * now, and on_done() may come later. */
    bool waits = !s->kind->runs_event_loop(s);
    pthread_mutex_lock(&e->mutex);
    while (waits && e->callbacks > 0) pthread_cond_wait(&e->changed, &e->mutex);
    bool forgotten = e->forgotten = e->callbacks > 0;
    uint64_t fence = e->fence;
    pthread_mutex_unlock(&e->mutex);
    if (fence != 0 && waits) sluice_release(s, e->key, fence);
    else if (fence != 0) s->kind->release_start(s, e->key, fence, NULL, NULL);
    if (!forgotten) free_election(e);
}
