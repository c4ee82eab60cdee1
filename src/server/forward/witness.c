/* witness.c - on the keeper: reports to the ledgers of other nodes, in addition to the grants of
 * their own clients. The keeper reports leases of its own clients to another node, the witness, and
 * reports grants that have ended. It collects reports for GATHERED_MS. Most locks are released
 * within that time, so their grants need no report. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/forward/forward_internal.h"

#define GATHERED_MS 10

static void begin(struct server *s)
{
    struct sl_witness *witness = &s->forward->witness;
    if (witness->due_ms == SL_NEVER) witness->due_ms = s->now.ms + GATHERED_MS;
}

void sl_witness_init(struct sl_witness *witness)
{
    witness->due_ms = SL_NEVER;
}

/* Report a lease of a client of the keeper's own node to one other node, so that the lease survives
 * if this node fails. The frame contains a time by the clock of that node. */
static void send_note(struct server *s, struct sl_bytes key,
                      const struct sl_grant_view *v)
{
    struct sl_forward *f = s->forward;
    for (sl_node_id n = 0; n < SL_NODE_ID_MAX; n++) {
        sl_node_id id = 1 + (sl_node_id)((v->fence + n) % SL_NODE_ID_MAX);
        const struct sl_proxy_node *node = &f->nodes[id];
        if (!node->ready || node->clock_ms == 0) continue;
        if (v->name.n + v->address.n > 0)
            sl_forward_send_client(s, id, 0, v->name, v->address);
        const struct sl_failover_message m = {.type = SL_FAILOVER_NOTE,
                                              .ms = node->clock_ms +
                                                    (s->now.ms - node->clock_at_ms),
                                              .key = key,
                                              .grant = *v};
        if (sl_forward_send(s, id, &m)) return;
    }
}

static void send_gone(struct server *s)
{
    struct sl_witness *witness = &s->forward->witness;
    struct sl_failover_message m = {.type = SL_FAILOVER_GONE,
                                    .gone_count = witness->gone_count};
    memcpy(m.gone, witness->gone, witness->gone_count * sizeof *m.gone);
    for (sl_node_id i = 1; witness->gone_count > 0 && i <= SL_NODE_ID_MAX; i++)
        if (s->forward->nodes[i].open) sl_forward_send(s, i, &m);
    witness->gone_count = 0;
}

/* Send the notes first, so that a later GONE removes a grant that has ended. */
static void send_all(struct server *s)
{
    struct sl_witness *witness = &s->forward->witness;
    for (size_t i = 0; i < witness->note_count; i++) {
        struct sl_grant_view v;
        const struct sl_bytes key = {witness->notes[i].key, witness->notes[i].n};
        if (sl_table_inspect_grant(s->table, s->now, key, witness->notes[i].fence,
                                   &v) &&
            v.leased)
            send_note(s, key, &v);
        free(witness->notes[i].key);
    }
    witness->note_count = 0;
    send_gone(s);
    witness->due_ms = SL_NEVER;
}

void sl_witness_send(struct server *s)
{
    if (s->forward->witness.due_ms <= s->now.ms) send_all(s);
}

void sl_witness_forget(struct server *s)
{
    struct sl_witness *witness = &s->forward->witness;
    while (witness->note_count > 0) free(witness->notes[--witness->note_count].key);
    witness->gone_count = 0;
    witness->due_ms = SL_NEVER;
}

void sl_witness_note(struct server *s, struct sl_bytes key, sl_fence fence)
{
    struct sl_witness *witness = &s->forward->witness;
    if (!s->forward->leads) return;
    if (witness->note_count == SL_NOTES_MAX) send_all(s);
    char *copy = malloc(key.n);
    if (copy == NULL) return; /* Out of memory: the grant has no witness. */
    memcpy(copy, key.at, key.n);
    witness->notes[witness->note_count++] = (struct sl_note){
        .fence = fence, .key = copy, .n = key.n};
    begin(s);
}

void sl_forward_gone(struct server *s, sl_fence fence, bool at_once)
{
    if (s->forward == NULL || !s->forward->leads) return;
    struct sl_witness *witness = &s->forward->witness;
    assert(witness->gone_count < SL_GONE_MAX);
    witness->gone[witness->gone_count++] = fence;
    begin(s);
    if (at_once || witness->gone_count == SL_GONE_MAX) send_all(s);
}
