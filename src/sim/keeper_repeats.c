/* keeper_repeats.c - clients that give their acquisitions a REQUEST id. If a client does not learn the outcome, it
 * repeats the command through any node, or cancels it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/keeper.h"

void ksim_repeats_begin(struct ksim_world *w, uint32_t c, struct ksim_command *m)
{
    if (!ksim_has_fault(w, KSIM_FAULT_REPEAT) || !sl_random_maybe(&w->random, 6000))
        return;
    /* A known gap: a grant without a lease belongs to the attempt that arrived at the keeper last. If that is an
     * earlier attempt that was delayed, the grant ends when its connection closes. */
    if (m->lease_ms == 0 && w->checker.checks_loose) return;
    snprintf(m->id, sizeof m->id, "%016" PRIx64, ++w->ids);
    w->clients[c].repeat = (struct ksim_repeat){.command = *m,
                                                .floor = w->checker.highest[m->key]};
}

static bool is_same(const struct ksim_repeat *r, const struct ksim_command *m)
{
    return r->command.verb != 0 && strcmp(r->command.id, m->id) == 0;
}

static void forget(struct ksim_client *x)
{
    x->repeat = (struct ksim_repeat){0};
}

/* The client does not repeat its command any more. A connection may hold the lock without a lease. */
static void give_up(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    bool loose = x->repeat.command.verb != 0 && x->repeat.command.lease_ms == 0;
    for (uint32_t way = 0; way < 2 && loose; way++)
        ksim_client_hang_up(w, c, way, false);
    forget(x);
}

static void cancel(struct ksim_world *w, uint32_t c, uint32_t way,
                   const struct ksim_command *m)
{
    struct ksim_command cancels = {.verb = KSIM_CANCEL, .key = m->key};
    strcpy(cancels.id, m->id);
    ksim_client_ask(w, c, way, &cancels);
}

/* Send the command again. The timeout is not one of the options that must be the same. */
static void repeat(struct ksim_world *w, uint32_t c, uint32_t way)
{
    struct ksim_command m = w->clients[c].repeat.command;
    if (sl_random_maybe(&w->random, 3000))
        m.wait_ms = sl_random_between(&w->random, 0, w->wait_max_ms);
    ksim_client_ask(w, c, way, &m);
}

void ksim_repeats_act(struct ksim_world *w, uint32_t c)
{
    struct ksim_repeat *r = &w->clients[c].repeat;
    if (sl_random_maybe(&w->random, 1500)) r->gives_up = true;
    if (r->gives_up) cancel(w, c, 0, &r->command);
    else repeat(w, c, 0);
}

void ksim_repeats_hurry(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_command *m = &x->ways[0].command;
    bool busy = x->ways[0].busy || x->ways[1].busy;
    if (x->role != KSIM_ROLE_USER && (!busy || x->repeat.command.lease_ms > 0))
        give_up(w, c);
    if (x->repeat.command.verb == 0 || x->repeat.gives_up || !x->ways[0].busy ||
        x->ways[1].busy || m->verb != KSIM_ACQUIRE || m->lease_ms == 0 ||
        !is_same(&x->repeat, m) || !sl_random_maybe(&w->random, 2000))
        return;
    if (x->ways[1].dial != 0) ksim_client_hang_up(w, c, 1, false);
    if (ksim_client_dial(w, c, 1)) repeat(w, c, 1);
}

static bool may_ask_again(const struct ksim_hold *h)
{
    return h->is && h->lease_ms > 0 && h->id[0] != '\0';
}

void ksim_repeats_doubt(struct ksim_world *w, uint32_t c, int64_t most_us)
{
    struct ksim_client *x = &w->clients[c];
    bool any = false;
    if (!ksim_has_fault(w, KSIM_FAULT_AGAIN)) return;
    if (may_ask_again(&x->hold)) any = x->hold.asks_again = true;
    for (uint32_t k = 0; k < KSIM_WAITS; k++)
        if (may_ask_again(&x->waits[k].hold)) any = x->waits[k].hold.asks_again = true;
    if (any) ksim_client_wake(w, c, sl_random_between(&w->random, 0, most_us));
}

bool ksim_repeats_again(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    struct ksim_command m = x->hold.asked;
    if (!x->hold.asks_again || x->ways[0].busy || !ksim_client_dial(w, c, 0))
        return false;
    x->hold.asks_again = false;
    if (sl_random_maybe(&w->random, 5000)) m.wait_ms = 0;
    ksim_client_ask(w, c, 0, &m);
    return true;
}

void ksim_repeats_failed(struct ksim_world *w, uint32_t c, const struct ksim_command *m,
                         const char *text)
{
    struct ksim_client *x = &w->clients[c];
    uint64_t term;
    if (x->hold.is && strcmp(x->hold.id, m->id) == 0 &&
        sscanf(text, "-ENDED %" SCNu64, &term) == 1)
        ksim_checker_lost(&w->checker, x->hold.fence, term, w->now_us);
    if (m->verb != KSIM_ACQUIRE || !is_same(&x->repeat, m)) return;
    /* After these errors, the lock may be held. */
    if (strncmp(text, "-NOKEEPER", 9) == 0 || strncmp(text, "-RECOVERING", 11) == 0 ||
        strncmp(text, "-IO", 3) == 0 || strncmp(text, "-NOMEM", 6) == 0)
        return;
    if (!x->repeat.gives_up) forget(x);
}

void ksim_repeats_cancelled(struct ksim_world *w, uint32_t c, uint32_t way,
                            const char *text)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_command *m = &x->ways[way].command;
    uint64_t number;
    int n;
    if (text[0] == '-') {
        /* A lock without a lease ends with its connection. */
        if (m->fence != 0) ksim_client_hang_up(w, c, way, false);
        if (is_same(&x->repeat, m) && sl_random_maybe(&w->random, 2000)) give_up(w, c);
        return;
    }
    if (sscanf(text, ":%d\r\n %" SCNu64, &n, &number) != 2 || number != m->number) {
        KSIM_WRONG(w, "c%u receives the reply to another request", c + 1);
        return;
    }
    if (is_same(&x->repeat, m)) forget(x);
    /* The reply to an earlier attempt may still be on its way, on the other connection. */
    struct ksim_way *other = &x->ways[1 - way];
    if (strcmp(other->command.id, m->id) == 0) other->cancelled = true;
}

/* The client knows the grant: it is the reply to another attempt. */
static void granted_again(struct ksim_world *w, uint32_t c, uint32_t way,
                          const struct ksim_grant *g)
{
    struct ksim_client *x = &w->clients[c];
    struct ksim_hold *h = x->hold.is && x->hold.fence == g->fence     ? &x->hold
                          : x->extra.is && x->extra.fence == g->fence ? &x->extra
                                                                      : NULL;
    if (h == NULL) return;
    if (g->until_us > h->until_us) h->until_us = g->until_us;
    h->dial = x->ways[way].dial;
    ksim_checker_repeated(&w->checker, g, w->now_us);
}

bool ksim_repeats_granted(struct ksim_world *w, uint32_t c, uint32_t way,
                          const struct ksim_grant *g)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_command m = x->ways[way].command;
    struct ksim_way *other = &x->ways[1 - way];
    if (ksim_checker_find(&w->checker, g->fence) != NULL) {
        granted_again(w, c, way, g);
        return false;
    }
    if (is_same(&x->repeat, &m) && !x->repeat.gives_up && !x->hold.is) {
        forget(x);
        if (other->busy && strcmp(other->command.id, m.id) == 0 &&
            sl_random_maybe(&w->random, 5000))
            ksim_client_hang_up(w, c, 1 - way, sl_random_maybe(&w->random, 5000));
        return true;
    }
    /* The client has given up, or uses another lock. */
    if (!x->ways[way].cancelled) {
        struct ksim_grant unused = *g; /* CANCEL may have released it. */
        unused.held = false;
        unused.touched = true;
        ksim_checker_granted(&w->checker, &unused, x->ways[way].floor, w->now_us);
    }
    if (!g->leased) ksim_client_hang_up(w, c, way, false);
    else if (!is_same(&x->repeat, &m)) cancel(w, c, way, &m);
    return false;
}
