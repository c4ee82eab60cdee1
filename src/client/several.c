/* several.c - sluice_acquire_all(): several locks, all or none. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/kind.h"

struct member {
    const char *key;
    size_t number;  /* Its position in the list of the program. */
    uint64_t fence; /* 0: not held. */
    bool missed;    /* ASKED came before the program knew of the grants. */
};

struct sluice_locks {
    struct sluice *s;
    size_t n, held; /* The first `held` members are held. */
    void (*on_event)(void *arg, const struct sluice_event *e);
    void *arg;
    pthread_mutex_t mutex; /* Guards `complete`, `lost` and `missed`. */
    bool complete;         /* The program knows of the grants. */
    bool lost;             /* A grant is lost. */
    char *keys;
    struct member members[]; /* In the order of their keys. */
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Release a grant without waiting for the server. */
static void release_now(struct sluice *s, const char *key, uint64_t fence)
{
    if (s->kind->release_start != NULL)
        s->kind->release_start(s, key, fence, NULL, NULL);
    else s->kind->release(s, key, fence);
}

static void release_others(struct sluice_locks *l, const char *key)
{
    for (size_t i = l->n; i-- > 0;)
        if (strcmp(l->members[i].key, key) != 0)
            release_now(l->s, l->members[i].key, l->members[i].fence);
}

static struct member *member_of(struct sluice_locks *l, const char *key)
{
    struct member *m = l->members;
    while (strcmp(m->key, key) != 0) m++;
    return m;
}

static void on_event(void *arg, const struct sluice_event *e)
{
    struct sluice_locks *l = arg;
    bool ends = e->type != SLUICE_EVENT_ASKED && e->type != SLUICE_EVENT_WITHDRAWN;
    pthread_mutex_lock(&l->mutex);
    bool known = l->complete, first = !l->lost;
    if (ends) l->lost = true;
    else if (!known) member_of(l, e->key)->missed = e->type == SLUICE_EVENT_ASKED;
    pthread_mutex_unlock(&l->mutex);
    if (!known || !first)
        return; /* For acquire_all(); or on_event() has reported the first loss. */
    if (l->on_event != NULL) l->on_event(l->arg, e);
    if (ends) release_others(l, e->key);
}

/* --- Creating --------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->key, ((const struct member *)b)->key);
}

static void free_locks(struct sluice_locks *l)
{
    pthread_mutex_destroy(&l->mutex);
    free(l->keys);
    free(l);
}

static int make(struct sluice *s, const char *const *keys, size_t n,
                const struct sluice_request *r, struct sluice_locks **out)
{
    struct sluice_locks *l = calloc(1, sizeof *l + n * sizeof *l->members);
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += strlen(keys[i]) + 1;
    char *at = malloc(bytes);
    if (l == NULL || at == NULL) {
        free(l);
        free(at);
        return SLUICE_ENOMEM;
    }
    l->s = s;
    l->n = n;
    l->on_event = r->on_event;
    l->arg = r->arg;
    l->keys = at;
    pthread_mutex_init(&l->mutex, NULL);
    for (size_t i = 0; i < n; i++) {
        l->members[i] = (struct member){.key = strcpy(at, keys[i]), .number = i};
        at += strlen(keys[i]) + 1;
    }
    qsort(l->members, n, sizeof *l->members, by_key);
    for (size_t i = 1; i < n; i++)
        if (by_key(&l->members[i - 1], &l->members[i]) == 0) {
            free_locks(l);
            return SLUICE_EINVAL;
        }
    *out = l;
    return SLUICE_OK;
}

/* --- Acquiring and releasing -------------------------------------------------------- */

static int release_held(struct sluice_locks *l)
{
    int first = SLUICE_OK;
    while (l->held > 0) {
        struct member *m = &l->members[--l->held];
        int status = sluice_release(l->s, m->key, m->fence);
        if (first == SLUICE_OK) first = status;
    }
    return first;
}

/* Acquire all members once, in order. */
static int acquire_each(struct sluice_locks *l, const struct sluice_request *r,
                        int64_t end_ms)
{
    struct sluice_request one = *r;
    struct sluice_grant g;
    l->lost = false;
    for (size_t i = 0; i < l->n; i++) l->members[i].missed = false;
    one.on_event = on_event;
    one.arg = l;
    for (size_t i = 0; i < l->n; i++) {
        int64_t left_ms = end_ms - now_ms();
        if (r->wait_ms > 0) one.wait_ms = left_ms > 0 ? left_ms : 0;
        int status = sluice_acquire(l->s, l->members[i].key, &one, &g);
        if (status != SLUICE_OK) return status;
        l->members[i].fence = g.fence;
        l->held++;
    }
    pthread_mutex_lock(&l->mutex);
    bool complete = l->complete = !l->lost;
    pthread_mutex_unlock(&l->mutex);
    if (!complete) return SLUICE_ELOST;
    for (size_t i = 0; i < l->n; i++)
        if (l->members[i].missed)
            l->s->kind->remind(l->s, l->members[i].key, l->members[i].fence);
    return SLUICE_OK;
}

static int acquire_all(struct sluice_locks *l, const struct sluice_request *r)
{
    int64_t end_ms = now_ms() + (r->wait_ms > 0 ? r->wait_ms : 0);
    for (;;) {
        int status = acquire_each(l, r, end_ms);
        if (status == SLUICE_OK) return status;
        release_held(l);
        /* A grant was lost while the others were acquired: begin again. */
        if (status != SLUICE_ELOST) return status;
        if (r->wait_ms != SLUICE_FOREVER && now_ms() >= end_ms) return SLUICE_EFULL;
    }
}

int sluice_acquire_all(struct sluice *s, const char *const *keys, size_t n,
                       const struct sluice_request *request, struct sluice_locks **out)
{
    static const struct sluice_request defaults;
    const struct sluice_request *r = request != NULL ? request : &defaults;
    struct sluice_locks *l;
    if (s == NULL || keys == NULL || out == NULL || n == 0 ||
        n > SLUICE_KEYS_AT_ONCE_MAX)
        return SLUICE_EINVAL;
    bool on_server = s->kind->release_start != NULL;
    if (on_server && r->lease_ms != 0 && r->keep_alive == 0) return SLUICE_EINVAL;
    for (size_t i = 0; i < n; i++)
        if (keys[i] == NULL) return SLUICE_EINVAL;
    int status = make(s, keys, n, r, &l);
    if (status != SLUICE_OK) return status;
    status = acquire_all(l, r);
    if (status == SLUICE_OK) *out = l;
    else free_locks(l);
    return status;
}

uint64_t sluice_locks_fence(const struct sluice_locks *l, size_t i)
{
    for (size_t m = 0; l != NULL && m < l->n; m++)
        if (l->members[m].number == i) return l->members[m].fence;
    return 0;
}

int64_t sluice_locks_left(const struct sluice_locks *l)
{
    int64_t least_ms = SLUICE_FOREVER;
    if (l == NULL) return SLUICE_EINVAL;
    for (size_t i = 0; i < l->n; i++) {
        int64_t left_ms = sluice_left(l->s, l->members[i].key, l->members[i].fence);
        if (left_ms < SLUICE_FOREVER) return left_ms; /* An error. */
        if (left_ms != SLUICE_FOREVER &&
            (least_ms == SLUICE_FOREVER || left_ms < least_ms))
            least_ms = left_ms;
    }
    return least_ms;
}

int sluice_release_all(struct sluice_locks *l)
{
    if (l == NULL) return SLUICE_OK;
    int status = release_held(l);
    free_locks(l);
    return status;
}
