/* repeats.c - clients that give their acquisitions a REQUEST id. If such a client does not know
 * the outcome, it repeats the request through any node, or cancels it. Some clients repeat a
 * request that has ended, as a network does that delivers a copy late. */
#include <stdio.h>
#include <string.h>

#include "sim/world.h"

/* Marks the id of a request; sim_repeats_write() writes the id itself. */
static const struct sl_bytes an_id = {"id", 2};

void sim_repeats_write(struct sim_packet *p, uint64_t id)
{
    int n = snprintf(p->bytes, sizeof p->bytes, "acquisition %06llu",
                     (unsigned long long)id);
    p->ask.request = (struct sl_bytes){p->bytes, (size_t)n};
}

void sim_repeats_draw(struct sim_world *w, uint32_t c, uint32_t key,
                      struct sl_node_request *ask)
{
    struct sim_acquisition *a = &w->clients[c].acquisition;
    if (!sl_random_maybe(&w->ids, 7000)) return;
    ask->request = an_id;
    ask->digest = 1;
    *a = (struct sim_acquisition){.id = sim_checker_acquisition(&w->checker),
                                  .is_open = true,
                                  .key = key,
                                  .ask = *ask};
}

static void repeat(struct sim_world *w, uint32_t c)
{
    struct sl_random *r = &w->ids;
    struct sim_acquisition *a = &w->clients[c].acquisition;
    struct sl_node_request ask = a->ask;
    ask.wait_ms = sl_random_maybe(r, 7000)
                      ? sl_random_between(r, 1, 2 * w->lease_max_ms)
                      : 0;
    if (sl_random_maybe(r, 300)) ask.digest = 2;
    sim_client_ask(w, c, &ask, a->key,
                   ask.wait_ms + sl_random_between(r, 5, 4 * w->limits.answer_max_ms));
}

bool sim_repeats_act(struct sim_world *w, uint32_t c)
{
    struct sl_random *r = &w->ids;
    struct sim_client *x = &w->clients[c];
    struct sim_acquisition *a = &x->acquisition;
    if (a->id == 0 || (!a->is_open && !sl_random_maybe(r, 300))) return false;
    if (a->is_open && !a->cancels && sl_random_maybe(r, 500)) {
        a->is_open = false; /* The client forgets the request. */
        return false;
    }
    if (a->is_open && sl_random_maybe(r, 3000)) a->cancels = true;
    if (a->cancels) {
        const struct sl_node_request ask = {.type = SL_NODE_CANCEL, .request = an_id};
        sim_checker_cancels(&w->checker, a->key, a->id);
        sim_client_ask(w, c, &ask, a->key,
                       sl_random_between(r, 5, 4 * w->limits.answer_max_ms));
    } else repeat(w, c);
    return true;
}

/* Return whether an answer decides the outcome of an ACQUIRE. */
static bool decides(int status)
{
    return status == SLUICE_OK || status == SLUICE_EENDED ||
           status == SLUICE_EMISMATCH || status == SLUICE_EFULL;
}

bool sim_repeats_answered(struct sim_world *w, uint32_t c, const struct sim_request *r,
                          int status)
{
    struct sim_acquisition *a = &w->clients[c].acquisition;
    if (r->id != a->id) return r->type == SL_NODE_ACQUIRE;
    if (r->type == SL_NODE_CANCEL) {
        if (status == SLUICE_OK) {
            a->is_open = a->cancels = false;
            a->is_over = true;
        }
        return true;
    }
    if (a->cancels || a->is_over) return false;
    if (decides(status)) a->is_open = false;
    return true;
}

void sim_repeats_came_too_late(struct sim_world *w, uint32_t m,
                               const struct sim_request_record *r,
                               const struct sl_grant *g)
{
    struct sim_machine *x = &w->machines[m];
    const struct sl_node_request ask = {
        .type = SL_NODE_TAKE_BACK,
        .key = sim_key_bytes(r->key),
        .fence = g->fence,
        .wait_ms = sl_random_between(&w->ids, 0, w->limits.linger_ms)};
    sl_node_submit(x->node, sim_machine_now(w, m), 0, &ask);
}
