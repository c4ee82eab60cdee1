/* keeper_operator.c - operators: clients that break grants, and drain keys for a while. If a reply
 * is lost or an error, they usually repeat the command, through any node. */
#include <inttypes.h>
#include <stdio.h>

#include "sim/keeper.h"

#define RECENT 16u         /* Operators break one of the last grants. */
#define SETTLED_US 3000000 /* After the faults: when all requests have arrived. */

void ksim_operator_init(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    uint32_t slot = w->client_count - 1 - c;
    if (c >= w->client_count || w->client_count < 3 + 2 * slot) return;
    if (slot >= KSIM_OPERATORS || !ksim_has_fault(w, KSIM_FAULT_OPERATE)) return;
    x->operator.is = true;
    x->operator.slot = slot;
    x->runs_tx = false;
}

static uint32_t own_pattern(struct ksim_world *w, const struct ksim_operator *o)
{
    const uint32_t each = KSIM_PATTERNS / KSIM_OPERATORS;
    return o->slot * each + sl_random_below(&w->random, each);
}

static void choose_drain(struct ksim_world *w, struct ksim_operator *o)
{
    uint32_t p = own_pattern(w, o);
    o->job = (struct ksim_command){
        .verb = KSIM_DRAIN, .pattern = p, .yes = o->on[p] ? 0 : 1};
    if (o->on[p] && sl_random_maybe(&w->random, 1000)) o->job.yes = 1;
}

static void break_grant(struct ksim_world *w, struct ksim_operator *o,
                        const struct ksim_grant *g)
{
    if (g == NULL) return;
    o->job = (struct ksim_command){.verb = KSIM_BREAK,
                                   .key = g->key,
                                   .fence = g->fence,
                                   .yes = sl_random_maybe(&w->random, 5000)};
    /* The promises of BREAK and BREAK ... NOW differ, so use one of them for each grant. */
    if (w->breaks) o->job.yes = g->fence % 2;
}

static void choose_break(struct ksim_world *w, struct ksim_operator *o)
{
    const struct ksim_checker *k = &w->checker;
    sl_fence fence;
    uint32_t how = ksim_takeover_breaks(w, &fence);
    if (how == KSIM_BREAK_LATER) return;
    if (how != KSIM_BREAK_NONE && sl_random_maybe(&w->random, 8000)) {
        break_grant(w, o, ksim_checker_find(k, fence));
        if (how == KSIM_BREAK_NOW) o->job.yes = 1;
        return;
    }
    uint32_t count = k->count < RECENT ? k->count : RECENT;
    uint32_t first = count == 0 ? 0 : sl_random_below(&w->random, count);
    const struct ksim_grant *g = NULL;
    for (uint32_t i = 0; i < count && g == NULL; i++) {
        g = &k->grants[k->count - 1 - (first + i) % count];
        /* Break few grants again. */
        if (!ksim_checker_holds(g, w->now_us) ||
            (g->touched && sl_random_maybe(&w->random, 9000)))
            g = NULL;
    }
    break_grant(w, o, g);
}

/* Choose what to do next. A drained key hides other faults, so patterns are soon turned off. */
static void choose(struct ksim_world *w, struct ksim_operator *o)
{
    bool drains = sl_random_maybe(&w->random, 700);
    for (uint32_t p = 0; p < KSIM_PATTERNS; p++)
        if (o->on[p] && sl_random_maybe(&w->random, 7000)) drains = true;
    if (drains) choose_drain(w, o);
    else choose_break(w, o);
}

/* After the faults, turn off all patterns. */
static void choose_off(struct ksim_world *w, struct ksim_operator *o)
{
    const uint32_t each = KSIM_PATTERNS / KSIM_OPERATORS;
    o->job.verb = 0;
    if (w->now_us < w->healed_us + SETTLED_US) return;
    for (uint32_t p = o->slot * each; p < (o->slot + 1) * each; p++)
        if (!o->off[p])
            o->job = (struct ksim_command){.verb = KSIM_DRAIN, .pattern = p};
}

void ksim_operator_act(struct ksim_world *w, uint32_t c)
{
    struct ksim_operator *o = &w->clients[c].operator;
    if (w->healed) choose_off(w, o);
    else if (o->job.verb == 0) choose(w, o);
    if (o->job.verb == 0) return;
    if (o->job.verb == KSIM_DRAIN && o->job.yes != 0) o->on[o->job.pattern] = true;
    ksim_client_ask(w, c, 0, &o->job);
}

static void failed(struct ksim_world *w, struct ksim_operator *o)
{
    if (sl_random_maybe(&w->random, 2000)) o->job.verb = 0;
}

void ksim_operator_answered(struct ksim_world *w, uint32_t c, const char *text)
{
    struct ksim_operator *o = &w->clients[c].operator;
    const struct ksim_command *m = &w->clients[c].ways[0].command;
    uint64_t number, term;
    int n;
    if (text[0] == '-') {
        failed(w, o);
        return;
    }
    if (sscanf(text, ":%d\r\n %" SCNu64 " %" SCNu64, &n, &number, &term) != 3 ||
        number != m->number) {
        KSIM_WRONG(w, "c%u receives the reply to another request", c + 1);
        return;
    }
    ksim_admin_acked(w, m, n, term);
    if (m->verb == KSIM_DRAIN && m->yes == 0) {
        o->on[m->pattern] = false;
        o->off[m->pattern] = w->healed && w->now_us > w->healed_us + SETTLED_US;
    }
    o->job.verb = 0;
}

void ksim_operator_cut(struct ksim_world *w, uint32_t c)
{
    if (w->clients[c].ways[0].busy) failed(w, &w->clients[c].operator);
}
