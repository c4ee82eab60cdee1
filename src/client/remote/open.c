/* open.c - opens and closes a service of a server or a cluster. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "client/memory/memory.h"
#include "client/remote/remote.h"

#define RETRY_MS \
    10000 /* Twice SL_ENGINE_REPLY_MS: time for another address if one is silent. */
#define CONNECT_MS 1000
#define NAME_BYTES_MAX 63u

/* --- Allocation ------------------------------------------------------------------- */

static char *copy_of(const char *text)
{
    return text != NULL ? strdup(text) : NULL;
}

/* Split the list of addresses. Returns the number of addresses, or 0 if one is invalid. */
static uint32_t parse_addresses(struct sl_remote *s)
{
    uint32_t n = 0;
    for (char *at = s->where, *comma; at != NULL; at = comma) {
        comma = strchr(at, ',');
        if (comma != NULL) *comma++ = '\0';
        if (n == SL_ENGINE_ADDRESSES_MAX) return 0;
        s->texts[n] = at;
        if (!sl_client_address_parse(at, &s->addresses[n++])) return 0;
    }
    return n;
}

static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n <= NAME_BYTES_MAX && strcspn(name, " \n\r") == n;
}

/* The name of the program, without characters that a client's name cannot have. */
static char *program_name(void)
{
    char *name = strndup(program_invocation_short_name, NAME_BYTES_MAX);
    for (char *c = name; c != NULL && *c != '\0'; c++)
        if (*c <= ' ' || *c > '~') *c = '_';
    return name;
}

static void free_fields(struct sl_remote *s)
{
    free(s->where);
    free(s->password);
    free(s->name);
    pthread_cond_destroy(&s->sleepers_gone);
    pthread_cond_destroy(&s->changed);
    pthread_cond_destroy(&s->callback_ready);
    pthread_cond_destroy(&s->callback_done);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

void sl_remote_free(struct sl_remote *s)
{
    pthread_mutex_lock(&s->mutex);
    while (s->sleepers > 0) pthread_cond_wait(&s->sleepers_gone, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    while (s->idle > 0) sluice_wire_close(s->wires[--s->idle]);
    sl_engine_free(&s->engine);
    sl_remote_close_loop(s);
    free_fields(s);
}

static int make_engine(struct sl_remote *s, uint32_t addresses,
                       const struct sluice_options *o)
{
    struct {
        struct sl_hash_key key;
        uint64_t seed, id[2];
    } secret;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret) return SLUICE_EIO;
    struct sl_engine_options options = {
        .addresses = addresses,
        .password = s->password,
        .name = s->name,
        .retry_ms = o->retry_ms != 0 ? o->retry_ms : RETRY_MS,
        .connect_ms = o->connect_ms != 0 ? o->connect_ms : CONNECT_MS,
        .seed = secret.seed};
    snprintf(options.id_prefix, sizeof options.id_prefix, "%016llx%016llx",
             (unsigned long long)secret.id[0], (unsigned long long)secret.id[1]);
    return sl_engine_init(&s->engine, &options, secret.key);
}

static int make(const char *where, const struct sluice_options *o,
                struct sl_remote **out)
{
    struct sl_remote *s = calloc(1, sizeof *s);
    if (s == NULL) return SLUICE_ENOMEM;
    s->base.kind = &sl_remote_kind;
    s->fork_era = sl_client_fork_era;
    s->event_loop = o->event_loop != 0;
    s->where = copy_of(where);
    s->password = copy_of(o->password);
    s->name = o->name != NULL ? copy_of(o->name) : program_name();
    sl_list_init(&s->callbacks);
    /* On Linux, these cannot fail, but check anyway. */
    int status = SLUICE_OK;
    pthread_cond_t *all[] = {&s->sleepers_gone, &s->changed, &s->callback_ready,
                             &s->callback_done};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (sl_client_condition_init(all[i]) != SLUICE_OK) status = SLUICE_ENOMEM;
    if (pthread_mutex_init(&s->mutex, NULL) != 0) status = SLUICE_ENOMEM;
    if (s->where == NULL || s->name == NULL ||
        (o->password != NULL && s->password == NULL))
        status = SLUICE_ENOMEM;
    uint32_t addresses = status == SLUICE_OK ? parse_addresses(s) : 1;
    if (addresses == 0) status = SLUICE_EINVAL;
    if (status == SLUICE_OK) status = sl_remote_open_loop(s);
    if (status == SLUICE_OK) {
        status = make_engine(s, addresses, o);
        if (status != SLUICE_OK) sl_remote_close_loop(s);
    }
    if (status == SLUICE_OK) *out = s;
    else free_fields(s);
    return status;
}

/* --- Opening ------------------------------------------------------------------------ */

static void stop(struct sl_remote *s)
{
    pthread_mutex_lock(&s->mutex);
    s->closing = s->stops = true;
    sl_remote_settle(s);
    pthread_cond_signal(&s->callback_ready);
    pthread_mutex_unlock(&s->mutex);
}

static int start_threads(struct sl_remote *s)
{
    int status = sl_client_start_thread(&s->io_thread, sl_remote_io_thread, s,
                                        "sluice-io");
    if (status != SLUICE_OK) return status;
    status = sl_client_start_thread(&s->callback_thread, sl_remote_callback_thread, s,
                                    "sluice-teller");
    if (status == SLUICE_OK) return SLUICE_OK;
    int why = errno;
    stop(s);
    pthread_join(s->io_thread, NULL);
    errno = why;
    return status;
}

int sl_remote_open(const char *where, const struct sluice_options *o,
                   struct sluice **out)
{
    struct sl_remote *s = NULL;
    if (o->name != NULL && !is_name(o->name)) return SLUICE_EINVAL;
    int status = sl_client_session_prepare(); /* For forks. */
    if (status == SLUICE_OK) status = make(where, o, &s);
    if (status != SLUICE_OK) return status;
    if (!s->event_loop) status = start_threads(s);
    if (status == SLUICE_OK) *out = &s->base;
    else {
        int why = errno;
        sl_remote_free(s);
        errno = why;
    }
    return status;
}

/* --- Closing ---------------------------------------------------------------------------- */

/* Wait until the server has replied to the last commands, for a limited time. */
static void wait_for_replies(struct sl_remote *s)
{
    sl_ms end_ms = sl_remote_now() + SL_REMOTE_CLOSE_MS;
    while (!sl_engine_is_closed(&s->engine) && sl_remote_now() < end_ms) {
        if (s->event_loop) {
            struct pollfd p = {.fd = s->epoll, .events = POLLIN};
            poll(&p, 1, (int)(end_ms - sl_remote_now()) + 1);
            sl_remote_poll(s);
        } else {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            t.tv_nsec += 50000000; /* Look at the clock often: it counts suspends. */
            if (t.tv_nsec >= 1000000000) {
                t.tv_sec++;
                t.tv_nsec -= 1000000000;
            }
            pthread_cond_timedwait(&s->changed, &s->mutex, &t);
        }
    }
}

void sl_remote_close(struct sluice *service)
{
    struct sl_remote *s = sl_remote_of(service);
    /* In a child process this is only a copy of the parent's service. */
    if (s->fork_era != sl_client_fork_era) return;
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    sl_engine_close(&s->engine, sl_remote_now());
    sl_remote_settle(s);
    wait_for_replies(s);
    if (s->event_loop) sl_remote_run_callbacks(s, INT_MAX);
    bool in_callback = !s->event_loop &&
                       pthread_equal(pthread_self(), s->callback_thread) != 0;
    s->closed_in_callback = in_callback;
    pthread_mutex_unlock(&s->mutex);
    stop(s);
    if (!s->event_loop) pthread_join(s->io_thread, NULL);
    if (in_callback) {
        pthread_detach(s->callback_thread);
        return;
    }
    if (!s->event_loop) pthread_join(s->callback_thread, NULL);
    sl_remote_free(s);
}
