#include "actor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Far more than an order may take on a busy machine. */
#define PATIENCE_MS 10000

/* ---- inside the actor ---- */

/* What it has. */
struct role {
    struct sluice_canal *canal;
    struct sluice_key *handle;
    char resolved[ACTOR_KEY_MAX];
};

static void leave(struct role *r)
{
    sluice_key_free(r->handle);
    sluice_canal_close(r->canal);
    *r = (struct role){0};
}

static struct sluice_key *handle_of(const struct role *r, const char *key)
{
    return r->handle != NULL && strcmp(r->resolved, key) == 0 ? r->handle : NULL;
}

static int64_t acquire(struct role *r, const struct actor_order *o)
{
    struct sluice_key *k = handle_of(r, o->key);
    struct sluice_want want = {.units = o->units, .wait_ms = o->wait_ms};
    if (k != NULL) return sluice_key_acquire(k, o->capacity, &want);
    return sluice_canal_acquire(r->canal, o->key, o->capacity, &want);
}

static int64_t release(struct role *r, const struct actor_order *o)
{
    struct sluice_key *k = handle_of(r, o->key);
    if (k != NULL) return sluice_key_release(k, o->units);
    return sluice_canal_release(r->canal, o->key, o->units);
}

static int64_t resolve(struct role *r, const struct actor_order *o)
{
    sluice_key_free(r->handle);
    r->handle = NULL;
    memcpy(r->resolved, o->key, sizeof r->resolved);
    return sluice_key_resolve(r->canal, o->key, &r->handle);
}

static int64_t obey(struct role *r, const struct actor_order *o, struct actor_answer *a)
{
    switch (o->verb) {
        case ACTOR_OPEN:
            leave(r);
            return sluice_canal_open(o->path, &o->options, &r->canal);
        case ACTOR_CLOSE: leave(r); return 0;
        case ACTOR_ACQUIRE: return acquire(r, o);
        case ACTOR_RELEASE: return release(r, o);
        case ACTOR_RESOLVE: return resolve(r, o);
        case ACTOR_COUNT: return sluice_canal_count(r->canal, o->key);
        case ACTOR_REAP: return sluice_canal_reap(r->canal);
        case ACTOR_INFO: return sluice_canal_info(r->canal, &a->info);
    }
    return SLUICE_EINVAL;
}

static _Noreturn void act(int fd)
{
    struct role r = {0};
    struct actor_order o;
    while (recv(fd, &o, sizeof o, MSG_WAITALL) == (ssize_t)sizeof o) {
        struct actor_answer a = {0};
        a.result = obey(&r, &o, &a);
        a.at_ms = stage_now_ms();
        if (send(fd, &a, sizeof a, MSG_NOSIGNAL) != (ssize_t)sizeof a) break;
    }
    _exit(0);
}

/* ---- outside ---- */

struct actor actor_start(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        stage_bail("socketpair: %s", strerror(errno));
    struct actor a = {.fd = ends[0]};
    a.pid = stage_fork();
    if (a.pid == 0) {
        close(ends[0]);
        act(ends[1]);
    }
    close(ends[1]);
    return a;
}

void actor_kill(struct actor *a)
{
    kill(a->pid, SIGKILL);
    while (waitpid(a->pid, NULL, 0) < 0 && errno == EINTR) continue;
    close(a->fd);
    *a = (struct actor){.fd = -1};
}

void actor_order(struct actor *a, const struct actor_order *order)
{
    if (send(a->fd, order, sizeof *order, MSG_NOSIGNAL) != (ssize_t)sizeof *order)
        stage_note("an actor is gone: %s", strerror(errno));
}

int64_t actor_answer(struct actor *a, int64_t within_ms, struct actor_answer *out)
{
    struct actor_answer here;
    struct pollfd p = {.fd = a->fd, .events = POLLIN};
    if (out == NULL) out = &here;
    *out = (struct actor_answer){.result = ACTOR_SILENT};
    if (poll(&p, 1, (int)within_ms) != 1) return ACTOR_SILENT;
    if (recv(a->fd, out, sizeof *out, MSG_WAITALL) != (ssize_t)sizeof *out)
        out->result = ACTOR_SILENT;
    return out->result;
}

static int64_t order_and_wait(struct actor *a, const struct actor_order *order,
                              struct actor_answer *out)
{
    actor_order(a, order);
    int64_t result = actor_answer(a, PATIENCE_MS, out);
    if (result == ACTOR_SILENT) {
        actor_kill(a);
        *a = actor_start();
    }
    return result;
}

int64_t actor_do(struct actor *a, const struct actor_order *order)
{
    return order_and_wait(a, order, NULL);
}

static struct actor_order about(enum actor_verb verb, const char *key)
{
    struct actor_order o = {.verb = verb};
    if (key != NULL) snprintf(o.key, sizeof o.key, "%s", key);
    return o;
}

int64_t actor_open(struct actor *a, const char *path,
                   struct sluice_canal_options options)
{
    struct actor_order o = {.verb = ACTOR_OPEN, .options = options};
    snprintf(o.path, sizeof o.path, "%s", path);
    return actor_do(a, &o);
}

int64_t actor_close(struct actor *a)
{
    struct actor_order o = about(ACTOR_CLOSE, NULL);
    return actor_do(a, &o);
}

static struct actor_order to_acquire(const char *key, uint32_t capacity, uint32_t units,
                                     int64_t wait_ms)
{
    struct actor_order o = about(ACTOR_ACQUIRE, key);
    o.capacity = (struct sluice_capacity){.per = capacity, .buckets = 1};
    o.units = units;
    o.wait_ms = wait_ms;
    return o;
}

int64_t actor_acquire(struct actor *a, const char *key, uint32_t capacity,
                      uint32_t units)
{
    struct actor_order o = to_acquire(key, capacity, units, 0);
    return actor_do(a, &o);
}

void actor_acquire_later(struct actor *a, const char *key, uint32_t capacity,
                         uint32_t units, int64_t wait_ms)
{
    struct actor_order o = to_acquire(key, capacity, units, wait_ms);
    actor_order(a, &o);
}

int64_t actor_release(struct actor *a, const char *key, uint32_t units)
{
    struct actor_order o = about(ACTOR_RELEASE, key);
    o.units = units;
    return actor_do(a, &o);
}

int64_t actor_resolve(struct actor *a, const char *key)
{
    struct actor_order o = about(ACTOR_RESOLVE, key);
    return actor_do(a, &o);
}

int64_t actor_count(struct actor *a, const char *key)
{
    struct actor_order o = about(ACTOR_COUNT, key);
    return actor_do(a, &o);
}

int64_t actor_reap(struct actor *a)
{
    struct actor_order o = about(ACTOR_REAP, NULL);
    return actor_do(a, &o);
}

int64_t actor_info(struct actor *a, struct sluice_canal_info *out)
{
    struct actor_order o = about(ACTOR_INFO, NULL);
    struct actor_answer answer;
    int64_t result = order_and_wait(a, &o, &answer);
    *out = answer.info;
    return result;
}
