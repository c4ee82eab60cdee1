/* keeper_requests.c - acquisitions with a REQUEST id, at the keeper: ACQUIRE ... REQUEST, and CANCEL. Follows
 * src/server/arbiter/local.c and src/server/forward/proxy.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

struct sl_bytes ksim_id_of(const struct ksim_command *m)
{
    return (struct sl_bytes){
        m->id, m->verb == KSIM_ACQUIRE || m->verb == KSIM_CANCEL ? strlen(m->id) : 0};
}

uint64_t ksim_digest_of(const struct ksim_command *m)
{
    return (uint64_t)m->lease_ms << 16 ^ (uint64_t)m->units << 8 ^
           (uint64_t)m->priority << 4 ^ m->shared << 1 ^ m->steal;
}

static struct ksim_cancelled *slot_of(struct ksim_world *w, uint64_t id)
{
    return &w->cancelled[id % KSIM_CANCELLED];
}

/* A keeper that has answered CANCEL does not grant the acquisition any more. */
void ksim_requests_granted(struct ksim_world *w, uint32_t i,
                           const struct ksim_command *m)
{
    uint64_t id = strtoull(m->id, NULL, 16);
    const struct ksim_cancelled *x = slot_of(w, id);
    const struct ksim_node *n = &w->nodes[i];
    if (x->id == id && x->life == n->life && x->term == n->f.guests.term &&
        w->now_us - x->at_us < (KSIM_KEEP_MS - KSIM_KEEP_MS / 100) * 1000ll)
        KSIM_WRONG(w, "k%u: n%u grants request %" PRIu64 ", which was cancelled",
                   m->key, i + 1, m->number);
}

void ksim_requests_cancel(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &q->command;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_ended past;
    char text[96];
    if (!sl_table_has_authority(n->table, now)) {
        ksim_reply_status(w, i, q, SLUICE_ENOKEEPER);
        return;
    }
    sl_keeper_journal_change(&n->f.journal, now.ms);
    int status = sl_table_cancel(n->table, now, &q->c->s, ksim_key(m->key),
                                 ksim_id_of(m), &past);
    if (status < 0) {
        ksim_reply_status(w, i, q, status);
        return;
    }
    if (status == 2) {
        ksim_leases_ended(w, i, past.fence);
        sl_guests_gone(&n->f.guests, now.ms, past.fence, true);
        ksim_rules_urgent(w, i, past.fence);
        ksim_node_guest_orders(w,
                               i); /* The nodes learn of it before the client does. */
    }
    uint64_t id = strtoull(m->id, NULL, 16);
    *slot_of(w, id) = (struct ksim_cancelled){
        .id = id, .life = n->life, .term = n->f.guests.term, .at_us = w->now_us};
    ksim_requests_cancelled(w, i, q);
    int length = snprintf(text, sizeof text, ":%d\r\n %" PRIu64, status, m->number);
    ksim_reply(w, i, q, (struct sl_bytes){text, (size_t)length});
}

void ksim_requests_cancelled(struct ksim_world *w, uint32_t i,
                             const struct ksim_request *cancel)
{
    const struct ksim_command *m = &cancel->command;
    struct ksim_request *q = ksim_request_find(cancel->c, ksim_key(m->key),
                                               ksim_id_of(m));
    if (q != NULL) ksim_request_drop(w, i, q);
}

void ksim_requests_moved(struct ksim_world *w, uint32_t i, uint64_t session,
                         sl_fence fence)
{
    const struct sl_list *all = &w->nodes[i].conns;
    const struct sl_failover_message m = {
        .type = SL_FAILOVER_GONE, .gone = &fence, .gone_count = 1};
    for (const struct sl_list *x = all->next; x != all; x = x->next) {
        const struct ksim_conn *c = sl_container_of(x, const struct ksim_conn, all);
        if (c->s.id != session) continue;
        if (c->is_guest) ksim_net_send(w, i, c->guest.node, &m);
        return;
    }
}
