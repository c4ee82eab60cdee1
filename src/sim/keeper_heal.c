/* keeper_heal.c - the phase after the faults. Everything runs again, and the cluster must make
 * progress: there is a keeper, every request is answered, and every key is granted again. */
#include <inttypes.h>

#include "sim/keeper.h"

#define SECOND_US 1000000ll

/* How long the cluster may need until every key can be granted: the nodes notice the loss of the
 * keeper, elect another one, which waits for the authority and the leases of the last one; and grants
 * without a lease linger. */
static int64_t bound_us(const struct ksim_world *w)
{
    sl_ms longest = sl_longest_round_up(w->lease_max_ms, SL_NEVER);
    return 1000 * (2 * longest + w->linger_ms) + 15 * SECOND_US;
}

void ksim_heal_begin(struct ksim_world *w)
{
    w->healed = true;
    w->healed_us = w->now_us + KSIM_FAULT_MAX_US; /* Until then, all faults end. */
    KSIM_TRACE(w, "no more faults");
    ksim_members_heal(w);
    ksim_nemesis_delete_newer(w);
    for (uint32_t c = 0; c < w->client_count; c++) {
        struct ksim_client *x = &w->clients[c];
        x->role = KSIM_ROLE_QUIET;
        x->hold.release_us = 0;
        for (uint32_t k = 0; k < KSIM_WAITS; k++) x->waits[k].hold.release_us = 0;
        ksim_client_wake(w, c, sl_random_between(&w->random, 0, SECOND_US));
    }
}

/* The client has waited for longer than its options allow. */
void ksim_heal_unanswered(struct ksim_world *w, uint32_t c,
                          const struct ksim_command *m)
{
    if (w->now_us - w->healed_us > bound_us(w))
        ksim_checker_stuck(&w->checker,
                           "c%u has received no answer to its request %" PRIu64, c + 1,
                           m->number);
}

static void not_granted(struct ksim_world *w, uint32_t key)
{
    uint32_t i = w->etcd.term.node - 1;
    struct sl_lock_view v = {0};
    if (i < w->node_count && w->nodes[i].up)
        sl_table_inspect(w->nodes[i].table, ksim_node_now(w, i), ksim_key(key), &v);
    ksim_checker_stuck(&w->checker,
                       "k%u is not granted; the keeper has %u holders (fence %" PRIu64
                       ", %s), %u waiters%s",
                       key, v.holders, v.holder.fence,
                       v.holder.leased ? "lease" : "no lease", v.waiters,
                       v.reserved ? ", a thief" : "");
}

/* Let one client for each key try to acquire it. */
static void try_keys(struct ksim_world *w)
{
    w->tries = true;
    w->tries_us = w->now_us;
    for (uint32_t k = 0; k < w->key_count; k++) {
        uint32_t c = KSIM_CLIENTS - KSIM_KEYS + k;
        ksim_client_init(w, c);
        w->clients[c].role = KSIM_ROLE_TRIES;
        w->clients[c].key = k;
    }
}

void ksim_heal_step(struct ksim_world *w)
{
    int64_t since_us = w->now_us - w->healed_us;
    if (!w->tries && since_us > bound_us(w)) try_keys(w);
    if (!w->tries) return;
    /* Now a free key must be granted soon: only the retries of clients take time. */
    bool late = w->now_us - w->tries_us > 5 * SECOND_US;
    bool done = true;
    for (uint32_t k = 0; k < w->key_count; k++) {
        const struct ksim_client *x = &w->clients[KSIM_CLIENTS - KSIM_KEYS + k];
        if (x->role == KSIM_ROLE_DONE) continue;
        done = false;
        if (late) not_granted(w, k);
    }
    for (uint32_t c = 0; c < w->client_count; c++) {
        if (!ksim_client_is_busy(&w->clients[c])) continue;
        done = false;
    }
    if (done) w->over = true;
}
