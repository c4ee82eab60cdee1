#include "server/net/auth.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/heap.h"
#include "server/net/guesses.h"

#define RESUMED_AT_ONCE 64u /* The rest comes in the next turn. */

struct sl_auth {
    struct sl_guesses guesses;
    struct sl_heap waits; /* Of struct sl_auth_wait. */
};

/* A delayed AUTH, with its arguments. */
struct sl_auth_wait {
    struct conn *c;
    struct sl_guess *guess;
    uint32_t place;
    size_t bytes;
    struct sl_args args;
    struct sl_bytes at[];
};

static void placed(void *owner, uint32_t place)
{
    ((struct sl_auth_wait *)owner)->place = place;
}

int sl_auth_start(struct server *s)
{
    s->auth = calloc(1, sizeof *s->auth);
    if (s->auth == NULL) return -1;
    s->auth->guesses.key = s->hash_key;
    s->auth->guesses.max_ms = s->settings->auth_delay_ms;
    sl_heap_init(&s->auth->waits, placed);
    return 0;
}

enum { KIND_IPV4 = 1, KIND_IPV6, KIND_UNIX };

/* A client of an IPv6 network usually controls all addresses of its /64. */
static struct sl_guess_address address_of(const struct conn *c)
{
    struct sl_guess_address a = {0};
    const struct in6_addr *in6 = &c->peer.sin6_addr;
    if (c->peer.sin6_family == AF_INET) {
        a.kind = KIND_IPV4;
        memcpy(a.at, &((const struct sockaddr_in *)(const void *)&c->peer)->sin_addr,
               4);
    } else if (c->peer.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(in6)) {
        a.kind = KIND_IPV4;
        memcpy(a.at, in6->s6_addr + 12, 4);
    } else if (c->peer.sin6_family == AF_INET6) {
        a.kind = KIND_IPV6;
        memcpy(a.at, in6->s6_addr, 8);
    } else {
        struct ucred user = {.uid = 0};
        socklen_t n = sizeof user;
        a.kind = KIND_UNIX;
        if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &user, &n) == 0)
            memcpy(a.at, &user.uid, sizeof user.uid);
    }
    return a;
}

/* Copies the arguments of a call, to dispatch it later. NULL when out of memory. */
static struct sl_auth_wait *copy_call(const struct call *call)
{
    size_t n = 0;
    for (size_t i = 0; i < call->n; i++) n += call->at[i].n;
    size_t bytes = sizeof(struct sl_auth_wait) + call->n * sizeof(struct sl_bytes) + n;
    struct sl_auth_wait *w = malloc(bytes);
    if (w == NULL) return NULL;
    char *text = (char *)(w->at + call->n);
    *w = (struct sl_auth_wait){
        .c = call->c, .bytes = bytes, .args = {.at = w->at, .n = call->n}};
    for (size_t i = 0; i < call->n; i++) {
        w->at[i] = (struct sl_bytes){text, call->at[i].n};
        if (call->at[i].n > 0) memcpy(text, call->at[i].at, call->at[i].n);
        text += call->at[i].n;
    }
    return w;
}

static void say_too_many(struct call *call)
{
    char text[160];
    snprintf(text, sizeof text,
             "%" PRId64
             " AUTH commands from this address are already delayed after wrong "
             "passwords (auth-waiting-max); retry later",
             call->s->settings->auth_waiting_max);
    sl_say(call, "LIMIT", text);
    sl_conn_hang_up(call->c, SL_WAS_CUT);
}

static void begin_to_wait(struct call *call, struct sl_guess *guess, sl_ms delay_ms)
{
    struct server *s = call->s;
    struct sl_auth_wait *w = copy_call(call);
    if (w == NULL || sl_heap_reserve(&s->auth->waits, 1) != SLUICE_OK) {
        free(w);
        sl_say_status(call, SLUICE_ENOMEM);
        return;
    }
    w->guess = guess;
    guess->waiting++;
    sl_heap_put(&s->auth->waits, sl_ms_after(s->now.ms, delay_ms + 1), w);
    s->buffer_bytes += w->bytes;
    s->stats.auth_delays++;
    call->c->auth_wait = w;
    call->c->blocked = SL_IN_AUTH;
    s->blocked_count++;
}

bool sl_auth_must_wait(struct call *call)
{
    struct server *s = call->s;
    struct sl_guess *guess;
    const struct sl_guess_address address = address_of(call->c);
#ifdef MUT_NODELAY
    return false;
#endif
    if (call->c->auth_waited) return false;
    sl_ms delay_ms = sl_guesses_delay(&s->auth->guesses, &address, s->now.ms, &guess);
    if (delay_ms == 0) return false;
#ifndef MUT_AUTHWAITING
    if (guess->waiting >= (uint32_t)s->settings->auth_waiting_max) {
        say_too_many(call);
        return true;
    }
#endif
    begin_to_wait(call, guess, delay_ms);
    return true;
}

void sl_auth_failed(struct conn *c)
{
    const struct sl_guess_address address = address_of(c);
    sl_guesses_failed(&c->server->auth->guesses, &address, c->server->now.ms);
}

void sl_auth_forget(struct conn *c)
{
    struct sl_auth_wait *w = c->auth_wait;
    if (w == NULL) return;
    c->auth_wait = NULL;
    w->guess->waiting--;
    c->server->buffer_bytes -= w->bytes;
    sl_heap_remove(&c->server->auth->waits, w->place);
    explicit_bzero(w, w->bytes); /* It contains a password. */
    free(w);
}

sl_ms sl_auth_due(const struct server *s)
{
    const struct sl_heap *h = &s->auth->waits;
    return h->count == 0 ? SL_NEVER : h->items[0].at;
}

static void resume(struct server *s, struct sl_auth_wait *w)
{
    struct conn *c = w->c;
    sl_heap_remove(&s->auth->waits, w->place);
    c->auth_wait = NULL;
    w->guess->waiting--;
    s->buffer_bytes -= w->bytes;
    sl_conn_unblock(c);
    s->stats.commands--; /* The delayed command was counted when it arrived. */
    c->auth_waited = true;
    sl_dispatch(c, &w->args);
    c->auth_waited = false;
    explicit_bzero(w, w->bytes);
    free(w);
    if (c->ended) sl_conn_work(c);
}

void sl_auth_resume(struct server *s)
{
    for (unsigned i = 0; i < RESUMED_AT_ONCE && sl_auth_due(s) <= s->now.ms; i++)
        resume(s, s->auth->waits.items[0].owner);
}
