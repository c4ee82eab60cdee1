/* open.c - the public functions of a lock service: checks their arguments, and calls the
 * functions of its kind. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/kind.h"

/* --- Opening and closing ------------------------------------------------------ */

int sluice_open(const char *where, const struct sluice_options *options,
                struct sluice **out)
{
    static const struct sluice_options defaults;
    const struct sluice_options *o = options != NULL ? options : &defaults;
    if (out == NULL || o->event_loop > 1) return SLUICE_EINVAL;
    if (o->retry_ms < 0 || o->retry_ms > SL_CLIENT_MS_MAX) return SLUICE_EINVAL;
    if (o->connect_ms < 0 || o->connect_ms > SL_CLIENT_MS_MAX) return SLUICE_EINVAL;
    if (where == NULL) where = getenv("SLUICE_SERVER");
    if (where == NULL || where[0] == '\0') where = SLUICE_SERVER_DEFAULT;
    if (strcmp(where, "memory:") == 0) return sl_in_memory_open(o, out);
    return sl_remote_open(where, o, out);
}

void sluice_close(struct sluice *s)
{
    if (s != NULL) s->kind->close(s);
}

/* --- Arguments ------------------------------------------------------------------ */

static bool is_key(const char *key)
{
    size_t n = key != NULL ? strnlen(key, SLUICE_KEY_BYTES_MAX + 1) : 0;
    return n > 0 && n <= SLUICE_KEY_BYTES_MAX;
}

static bool is_too_long(const char *text)
{
    return text != NULL &&
           strnlen(text, SLUICE_VALUE_BYTES_MAX + 1) > SLUICE_VALUE_BYTES_MAX;
}

static bool times_are_valid(const struct sluice_request *r)
{
    if (r->wait_ms < SLUICE_FOREVER || r->wait_ms > SL_CLIENT_MS_MAX) return false;
    if (r->lease_ms < 0 || r->lease_ms > SL_CLIENT_MS_MAX) return false;
    if (r->margin_ms < 0 || (r->margin_ms > 0 && r->margin_ms >= r->lease_ms))
        return false;
    if (r->max_hold_ms < 0 || r->max_hold_ms > SL_CLIENT_MS_MAX) return false;
    if (r->max_hold_ms > 0 && (r->keep_alive == 0 || r->max_hold_ms < r->lease_ms))
        return false;
    if (r->keep_alive > 1 || (r->keep_alive == 1 && r->lease_ms == 0)) return false;
    double early = r->steal_early;
    return early == SLUICE_STEAL_AUTO || (early >= 0 && early <= 1);
}

static int check_request(const char *key, const struct sluice_request *r)
{
    if (!is_key(key)) return SLUICE_EINVAL;
    if (r->shared != 0 && (r->per | r->buckets | r->units) != 0) return SLUICE_EINVAL;
    if (r->shared > 1 || r->steal > 1 || !times_are_valid(r)) return SLUICE_EINVAL;
    return is_too_long(r->value) || is_too_long(r->note) ? SLUICE_ETOOBIG : SLUICE_OK;
}

static const struct sluice_request default_request;

/* --- Locks ------------------------------------------------------------------------- */

int sluice_acquire(struct sluice *s, const char *key,
                   const struct sluice_request *request, struct sluice_grant *out)
{
    const struct sluice_request *r = request != NULL ? request : &default_request;
    if (s == NULL || out == NULL) return SLUICE_EINVAL;
    int status = check_request(key, r);
    return status == SLUICE_OK ? s->kind->acquire(s, key, r, out) : status;
}

int sluice_cancel(struct sluice *s, struct sluice_cancel *token)
{
    return s != NULL && token != NULL ? s->kind->cancel(s, token) : SLUICE_EINVAL;
}

int sluice_release(struct sluice *s, const char *key, uint64_t fence)
{
    return s != NULL && is_key(key) ? s->kind->release(s, key, fence) : SLUICE_EINVAL;
}

int sluice_extend(struct sluice *s, const char *key, uint64_t fence, int64_t lease_ms)
{
    if (s == NULL || !is_key(key)) return SLUICE_EINVAL;
    if (lease_ms <= 0 || lease_ms > SL_CLIENT_MS_MAX) return SLUICE_EINVAL;
    return s->kind->extend(s, key, fence, lease_ms);
}

int64_t sluice_left(struct sluice *s, const char *key, uint64_t fence)
{
    return s != NULL && is_key(key) ? s->kind->left(s, key, fence) : SLUICE_EINVAL;
}

int sluice_check(struct sluice *s, const char *key, uint64_t fence)
{
    return s != NULL && is_key(key) ? s->kind->check(s, key, fence) : SLUICE_EINVAL;
}

int sluice_break(struct sluice *s, const char *key, uint64_t fence, uint32_t at_once)
{
    if (s == NULL || !is_key(key)) return SLUICE_EINVAL;
    return s->kind->revoke(s, key, fence, at_once != 0);
}

int64_t sluice_inspect(struct sluice *s, const char *key, struct sluice_view *out,
                       size_t max)
{
    if (s == NULL || !is_key(key) || (out == NULL && max > 0)) return SLUICE_EINVAL;
    return s->kind->inspect(s, key, out, max);
}

void sluice_error(struct sluice *s, char *out, size_t size)
{
    if (out == NULL || size == 0) return;
    out[0] = '\0';
    if (s != NULL && s->kind->error != NULL) s->kind->error(s, out, size);
}

/* --- Event loops ---------------------------------------------------------------------- */

int sluice_fd(struct sluice *s)
{
    return s != NULL && s->kind->fd != NULL ? s->kind->fd(s) : SLUICE_EINVAL;
}

int sluice_timeout_ms(struct sluice *s)
{
    return s != NULL && s->kind->timeout_ms != NULL ? s->kind->timeout_ms(s) : -1;
}

int sluice_step(struct sluice *s)
{
    return s != NULL && s->kind->step != NULL ? s->kind->step(s) : SLUICE_EINVAL;
}

int sluice_acquire_start(struct sluice *s, const char *key,
                         const struct sluice_request *request, sluice_done_fn *on_done,
                         void *arg)
{
    const struct sluice_request *r = request != NULL ? request : &default_request;
    if (s == NULL || s->kind->acquire_start == NULL) return SLUICE_EINVAL;
    int status = check_request(key, r);
    if (status != SLUICE_OK) return status;
    return s->kind->acquire_start(s, key, r, 0, on_done, arg);
}

int sluice_release_start(struct sluice *s, const char *key, uint64_t fence,
                         sluice_done_fn *on_done, void *arg)
{
    if (s == NULL || s->kind->release_start == NULL || !is_key(key))
        return SLUICE_EINVAL;
    return s->kind->release_start(s, key, fence, on_done, arg);
}

int sluice_extend_start(struct sluice *s, const char *key, uint64_t fence,
                        int64_t lease_ms, sluice_done_fn *on_done, void *arg)
{
    if (s == NULL || s->kind->extend_start == NULL || !is_key(key))
        return SLUICE_EINVAL;
    if (lease_ms <= 0 || lease_ms > SL_CLIENT_MS_MAX) return SLUICE_EINVAL;
    return s->kind->extend_start(s, key, fence, lease_ms, on_done, arg);
}

/* --- Threads ----------------------------------------------------------------------------- */

uint32_t sl_client_fork_era;

/* Fill a set with all signals except those that a thread causes itself, such as
 * SIGSEGV. */
static void signals_of_others(sigset_t *out)
{
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                              SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(out);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(out, own[i]);
}

int sl_client_start_thread(pthread_t *t, void *(*work)(void *), void *arg,
                           const char *name)
{
    sigset_t others, before;
    signals_of_others(&others);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    int failed = pthread_create(t, NULL, work, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        errno = failed;
        return SLUICE_EIO;
    }
    pthread_setname_np(*t, name);
    return SLUICE_OK;
}

int sl_client_condition_init(pthread_cond_t *c)
{
    pthread_condattr_t a;
    if (pthread_condattr_init(&a) != 0) return SLUICE_ENOMEM;
    int failed = pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    if (failed == 0) failed = pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
    return failed == 0 ? SLUICE_OK : SLUICE_ENOMEM;
}
