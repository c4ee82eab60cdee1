#include "server/net/auth.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/heap.h"
#include "server/net/guesses.h"
#include "server/request.h"

#define RESUMED_AT_ONCE 64u /* Run this many delayed commands per loop iteration. */

struct sl_auth {
    struct sl_guesses guesses;
    struct sl_heap waits; /* Kept requests: AUTH, or HELLO with AUTH. */
};

static void placed(void *owner, uint32_t place)
{
    ((struct request *)owner)->heap_place = place;
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

/* Return the address for counting wrong passwords. For IPv6 this is the /64 network, because a
 * client usually controls all of its addresses. */
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

static void say_too_many(struct call *call)
{
    char text[160];
    snprintf(text, sizeof text,
             "%" PRId64 " AUTH commands from this address are already delayed after "
             "wrong passwords (auth-waiting-max); retry later",
             call->s->settings->auth_waiting_max);
    sl_say(call, "LIMIT", text);
    sl_conn_hang_up(call->c, SL_WAS_CUT);
}

static void end_delay(struct request *r)
{
    r->guess->waiting--;
    sl_heap_remove(&r->s->auth->waits, r->heap_place);
}

static void delay(struct call *call, struct sl_guess *guess, sl_ms delay_ms)
{
    struct server *s = call->s;
    struct request r, *k;
    sl_request_init(&r, call, SL_VERB_NONE);
    if (sl_heap_reserve(&s->auth->waits, 1) != SLUICE_OK) {
        sl_say_status(call, SLUICE_ENOMEM);
        return;
    }
    if ((k = sl_request_keep(&r)) == NULL) return;
    k->guess = guess;
    k->dropped = end_delay;
    guess->waiting++;
    sl_heap_put(&s->auth->waits, sl_ms_after(s->now.ms, delay_ms + 1), k);
    s->stats.auth_delays++;
}

bool sl_auth_must_wait(struct call *call)
{
    struct server *s = call->s;
    struct sl_guess *guess;
    const struct sl_guess_address address = address_of(call->c);
    if (call->resumed != NULL) return false;
    sl_ms delay_ms = sl_guesses_delay(&s->auth->guesses, &address, s->now.ms, &guess);
    if (delay_ms == 0) return false;
    if (guess->waiting >= (uint32_t)s->settings->auth_waiting_max) {
        say_too_many(call);
        return true;
    }
    delay(call, guess, delay_ms);
    return true;
}

void sl_auth_failed(struct conn *c)
{
    const struct sl_guess_address address = address_of(c);
    sl_guesses_failed(&c->server->auth->guesses, &address, c->server->now.ms);
}

sl_ms sl_auth_due(const struct server *s)
{
    const struct sl_heap *h = &s->auth->waits;
    return h->count == 0 ? SL_NEVER : h->items[0].at;
}

void sl_auth_resume(struct server *s)
{
    for (unsigned i = 0; i < RESUMED_AT_ONCE && sl_auth_due(s) <= s->now.ms; i++) {
        struct request *r = s->auth->waits.items[0].owner;
        end_delay(r);
        sl_request_resume(r);
    }
}
