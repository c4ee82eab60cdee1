/* keeper_notify.c - clients that wait for several locks on one connection (ACQUIRE ... REQUEST id NOTIFY), and
 * use the connection for other commands meanwhile. They repeat and cancel acquisitions, on the same connection
 * or through another node. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

/* ---- acquisitions ---- */

struct ksim_wait *ksim_notify_find(struct ksim_client *x, const char *id)
{
    for (uint32_t k = 0; k < KSIM_WAITS; k++)
        if (x->waits[k].command.verb != 0 && strcmp(x->waits[k].command.id, id) == 0)
            return &x->waits[k];
    return NULL;
}

struct ksim_hold *ksim_notify_hold(struct ksim_client *x, sl_fence fence)
{
    for (uint32_t k = 0; k < KSIM_WAITS; k++)
        if (x->waits[k].hold.is && x->waits[k].hold.fence == fence)
            return &x->waits[k].hold;
    return NULL;
}

static bool is_queued(const struct ksim_wait *k)
{
    return k->queued[0].dial != 0 || k->queued[1].dial != 0;
}

bool ksim_notify_waits(const struct ksim_client *x)
{
    for (uint32_t k = 0; k < KSIM_WAITS; k++)
        if (is_queued(&x->waits[k])) return true;
    return false;
}

/* Whether a command about this acquisition is under way on a connection of the client. */
static bool is_asked(const struct ksim_client *x, const struct ksim_wait *k,
                     uint32_t way)
{
    const struct ksim_way *y = &x->ways[way];
    return y->busy && strcmp(y->command.id, k->command.id) == 0;
}

static bool is_pending(const struct ksim_client *x, const struct ksim_wait *k)
{
    return is_queued(k) || is_asked(x, k, 0) || is_asked(x, k, 1);
}

/* ---- requests ---- */

/* Send ACQUIRE. The timeout and NOTIFY are not among the options that must be the same. */
static void ask(struct ksim_world *w, uint32_t c, uint32_t way, struct ksim_wait *k)
{
    struct ksim_command m = k->command;
    struct sl_random *r = &w->random;
    k->repeated = k->asked;
    k->asked = true;
    m.notify = sl_random_maybe(r, 8500);
    m.wait_ms = sl_random_maybe(r, 1000)
                    ? 0
                    : sl_random_between(r, 1, m.notify ? 20000 : w->wait_max_ms);
    ksim_client_ask(w, c, way, &m);
}

static void begin(struct ksim_world *w, uint32_t c, uint32_t way, struct ksim_wait *k)
{
    struct ksim_command m = ksim_client_draw(w, c);
    struct sl_random *r = &w->random;
    /* A known gap: as in keeper_repeats.c. */
    while (m.lease_ms == 0 && w->checker.checks_loose) m = ksim_client_draw(w, c);
    /* The client steals from itself, too. */
    if (ksim_has_fault(w, KSIM_FAULT_STEAL))
        m.priority = (int32_t)sl_random_below(r, 3);
    m.steal = m.priority > 0 && sl_random_maybe(r, 3000);
    if (m.steal == 0) m.force_ms = SL_NEVER;
    snprintf(m.id, sizeof m.id, "%016" PRIx64, ++w->ids);
    *k = (struct ksim_wait){.command = m, .floor = w->checker.highest[m.key]};
    ask(w, c, way, k);
}

static void cancel(struct ksim_world *w, uint32_t c, uint32_t way, struct ksim_wait *k)
{
    struct ksim_command m = {.verb = KSIM_CANCEL, .key = k->command.key};
    strcpy(m.id, k->command.id);
    k->gives_up = true;
    ksim_client_ask(w, c, way, &m);
}

/* ---- replies ---- */

/* End a grant without a lease that the client does not use. It belongs to the connection whose attempt reached the
 * keeper last, and the client does not know which one that is. */
static void drop(struct ksim_world *w, uint32_t c, uint32_t way,
                 const struct ksim_wait *k)
{
    ksim_client_hang_up(w, c, way, false);
    if (k->repeated) ksim_client_hang_up(w, c, 1 - way, false);
}

/* The client receives a grant for this attempt. */
static void granted(struct ksim_world *w, uint32_t c, uint32_t way, struct ksim_wait *k,
                    const struct ksim_grant *g)
{
    struct ksim_hold *h = &k->hold;
    if (ksim_checker_find(&w->checker, g->fence) != NULL) { /* By another attempt. */
        if (!h->is || h->fence != g->fence) return;
        if (g->until_us > h->until_us) h->until_us = g->until_us;
        h->dial = w->clients[c].ways[way].dial;
        ksim_checker_repeated(&w->checker, g, w->now_us);
        return;
    }
    if (k->cancelled) { /* The keeper has released it, or it is a new one that did not know of CANCEL. */
        if (!g->leased) drop(w, c, way, k);
        return;
    }
    if (!k->over && !k->gives_up && !h->is) {
        ksim_client_hold(w, c, way, h, g, &k->command, k->floor);
        h->moves = !g->leased && k->repeated;
        k->over = true;
        return;
    }
    struct ksim_grant unused = *g;
    unused.held = false;
    unused.touched = true;
    ksim_checker_granted(&w->checker, &unused, k->floor, w->now_us);
    if (!g->leased) drop(w, c, way, k);
    else {
        k->over = false;
        k->gives_up = true; /* Cancel it again. */
    }
}

/* The client receives the outcome of an attempt: a grant, nil or an error. */
static void ended(struct ksim_world *w, uint32_t c, uint32_t way, struct ksim_wait *k,
                  const struct ksim_command *m, int64_t sent_us, const char *text)
{
    struct ksim_grant g;
    uint64_t term;
    if (text[0] == '*') {
        if (ksim_client_read(w, c, way, m, sent_us, text, &g))
            granted(w, c, way, k, &g);
        return;
    }
    if (text[0] != '$' && text[0] != '-') {
        KSIM_WRONG(w, "c%u receives the reply to another request", c + 1);
        return;
    }
    if (sscanf(text, "-DRAINED %" SCNu64, &term) == 1) ksim_admin_refused(w, m, term);
    /* A lock without a lease that belongs to another connection ends with that connection. */
    if (k->hold.is && !k->hold.moves && sscanf(text, "-ENDED %" SCNu64, &term) == 1)
        ksim_checker_lost(&w->checker, k->hold.fence, term, w->now_us);
    /* Another attempt may still be granted the lock; after these errors, this one may be, too. */
    if (strncmp(text, "-NOKEEPER", 9) == 0 || strncmp(text, "-RECOVERING", 11) == 0 ||
        strncmp(text, "-IO", 3) == 0 || strncmp(text, "-NOMEM", 6) == 0)
        return;
    if (!is_pending(&w->clients[c], k) && !k->gives_up) k->over = true;
}

void ksim_notify_answered(struct ksim_world *w, uint32_t c, uint32_t way,
                          const char *text)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_way *y = &x->ways[way];
    const struct ksim_command m = y->command;
    struct ksim_wait *k = ksim_notify_find(x, m.id);
    if (k == NULL) abort();
    if (strcmp(text, "+QUEUED\r\n") != 0) {
        ended(w, c, way, k, &m, y->sent_us, text);
        return;
    }
    if (m.notify == 0) KSIM_WRONG(w, "c%u receives QUEUED without NOTIFY", c + 1);
    k->queued[way].dial = y->dial;
    k->queued[way].number = m.number;
    k->queued[way].sent_us = y->sent_us;
    k->queued[way].give_up_us = y->give_up_us;
}

void ksim_notify_outcome(struct ksim_world *w, uint32_t c, uint32_t way,
                         const char *text)
{
    struct ksim_client *x = &w->clients[c];
    char id[sizeof x->waits->command.id] = "";
    size_t n = strcspn(text, " ");
    if (n < sizeof id) memcpy(id, text, n);
    struct ksim_wait *k = ksim_notify_find(x, id);
    KSIM_TRACE(w, "c%u hears from n%u the outcome of %s: %.*s", c + 1,
               x->ways[way].node + 1, id, (int)strcspn(text + n, "\n"), text + n);
    if (k == NULL || k->queued[way].dial != x->ways[way].dial) {
        KSIM_WRONG(w, "c%u receives an outcome for which it does not wait", c + 1);
        return;
    }
    struct ksim_command m = k->command;
    m.number = k->queued[way].number;
    k->queued[way].dial = 0;
    ended(w, c, way, k, &m, k->queued[way].sent_us, text + n + 1);
}

void ksim_notify_cancelled(struct ksim_world *w, uint32_t c, uint32_t way,
                           const char *text)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_command *m = &x->ways[way].command;
    struct ksim_wait *k = ksim_notify_find(x, m->id);
    uint64_t number;
    int n;
    if (k == NULL) abort();
    if (text[0] ==
        '-') { /* Send CANCEL again. A lock without a lease ends with its connection. */
        for (uint32_t o = 0; o < 2 && m->fence != 0; o++)
            ksim_client_hang_up(w, c, o, false);
        return;
    }
    if (sscanf(text, ":%d\r\n %" SCNu64, &n, &number) != 2 || number != m->number) {
        KSIM_WRONG(w, "c%u receives the reply to another request", c + 1);
        return;
    }
    /* The reply is the outcome on this connection. On the other one, it may be on its way. */
    k->queued[way].dial = 0;
    k->cancelled = k->over = true;
    /* If the keeper fails now, the lock may be held again, until its connection closes. */
    if (m->fence != 0 && k->command.lease_ms == 0)
        for (uint32_t o = 0; o < 2; o++) ksim_client_hang_up(w, c, o, false);
}

void ksim_notify_cut(struct ksim_world *w, uint32_t c, uint32_t way)
{
    struct ksim_client *x = &w->clients[c];
    struct ksim_way *y = &x->ways[way];
    uint64_t dial = y->dial;
    /* The client does not know whether CANCEL has released its lock. It closes its other connection too, so that a
     * lock without a lease ends. */
    bool released = y->busy && y->command.verb == KSIM_CANCEL && y->command.fence != 0;
    y->busy = false;
    if (released) ksim_client_hang_up(w, c, 1 - way, false);
    for (uint32_t i = 0; i < KSIM_WAITS; i++) {
        struct ksim_wait *k = &x->waits[i];
        if (k->queued[way].dial == dial) k->queued[way].dial = 0;
        if (!k->hold.is || k->hold.lease_ms > 0 || k->hold.dial != dial) continue;
        ksim_checker_doubt(&w->checker, k->hold.fence, true);
        k->hold.is = false;
        /* The lock belongs to the connection whose attempt reached the keeper last, but the client
         * knows only which reply arrived last. */
        if (k->hold.moves) ksim_client_hang_up(w, c, 1 - way, false);
    }
}

/* ---- what the client does next ---- */

/* The client has waited for longer than its options allow. */
static void check_patience(struct ksim_world *w, uint32_t c, const struct ksim_wait *k)
{
    for (uint32_t way = 0; way < 2; way++) {
        if (k->queued[way].dial == 0 || w->now_us <= k->queued[way].give_up_us)
            continue;
        if (w->healed) ksim_heal_unanswered(w, c, &k->command);
        else ksim_client_hang_up(w, c, way, sl_random_maybe(&w->random, 5000));
    }
}

/* Do something about an acquisition, through this connection, which is free. */
static void act_on(struct ksim_world *w, uint32_t c, uint32_t way, struct ksim_wait *k)
{
    const struct ksim_client *x = &w->clients[c];
    struct sl_random *r = &w->random;
    bool pending = is_pending(x, k);
    if (k->over || k->hold.is || is_asked(x, k, 1 - way)) return;
    if (k->gives_up || sl_random_maybe(r, pending ? 1000 : 1500)) cancel(w, c, way, k);
    else if (k->queued[way].dial == 0 && (!pending || sl_random_maybe(r, 1000)))
        ask(w, c, way, k);
}

/* Request the lease again that the client holds, through any connection. */
static void ask_again(struct ksim_world *w, uint32_t c, struct ksim_wait *k)
{
    const struct ksim_client *x = &w->clients[c];
    uint32_t way = x->ways[0].busy ? 1 : 0;
    if (x->ways[way].busy || is_pending(x, k) || !ksim_client_dial(w, c, way)) return;
    k->hold.asks_again = false;
    ask(w, c, way, k);
}

static void act_now(struct ksim_world *w, uint32_t c, uint32_t way)
{
    struct ksim_client *x = &w->clients[c];
    struct sl_random *r = &w->random;
    struct ksim_wait *k = &x->waits[sl_random_below(r, KSIM_WAITS)];
    if (x->ways[way].dial != 0 && ksim_has_fault(w, KSIM_FAULT_MOVE) &&
        sl_random_maybe(r, 300))
        ksim_client_hang_up(w, c, way, sl_random_maybe(r, 5000));
    if (!ksim_client_dial(w, c, way)) return;
    if (sl_random_maybe(r, 100))
        ksim_client_ask(w, c, way, &(struct ksim_command){.verb = KSIM_RESET});
    else if (sl_random_maybe(r, 1000))
        ksim_client_ask(w, c, way, &(struct ksim_command){.verb = KSIM_READ});
    else if (k->command.verb != 0) act_on(w, c, way, k);
    else if (x->role == KSIM_ROLE_USER) begin(w, c, way, k);
}

void ksim_notify_act(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    for (uint32_t i = 0; i < KSIM_WAITS; i++) {
        struct ksim_wait *k = &x->waits[i];
        if (k->hold.is && k->hold.asks_again) ask_again(w, c, k);
        if (k->hold.is) ksim_client_use(w, c, &k->hold);
        check_patience(w, c, k);
        if (k->over && !k->hold.is && !is_pending(x, k)) k->command.verb = 0;
    }
    uint32_t way = sl_random_maybe(&w->random, 2500) ? 1 : 0;
    if (x->role != KSIM_ROLE_USER || ksim_client_clock(w, c) < x->next_us ||
        x->ways[way].busy)
        return;
    act_now(w, c, way);
    x->next_us = ksim_client_clock(w, c) + ksim_client_think_us(w, x);
}

int64_t ksim_notify_due_us(const struct ksim_client *x, int64_t due_us)
{
    if (x->role == KSIM_ROLE_USER && x->next_us < due_us) due_us = x->next_us;
    for (uint32_t i = 0; i < KSIM_WAITS; i++) {
        const struct ksim_hold *h = &x->waits[i].hold;
        if (!h->is) continue;
        if (h->release_us < due_us) due_us = h->release_us;
        if (h->extend_us < due_us) due_us = h->extend_us;
        if (h->lease_ms > 0 && h->until_us < due_us) due_us = h->until_us;
    }
    return due_us;
}
