/* news.c - what the keeper tells the ledgers of other nodes, besides what their own clients
 * hold: leases of its own clients, and what is over.
 *
 * It is gathered for a moment: most locks are given back by then, and nobody has to know. */
#include <stdlib.h>
#include <string.h>

#include "server/forward/forward_internal.h"

#define GATHERED_MS 10

static void begin(struct server *s)
{
    struct sl_witness *n = &s->forward->witness;
    if (n->due_ms == SL_NEVER) n->due_ms = s->now.ms + GATHERED_MS;
}

void sl_witness_init(struct sl_witness *n)
{
    n->due_ms = SL_NEVER;
}

/* What a client of the keeper's own node took with a lease another node writes down, too:
 * else it would go with this one. It is told by its own clock. */
static void tell_witness(struct server *s, struct sl_bytes key,
                         const struct sl_grant_view *v)
{
    struct sl_forward *r = s->forward;
    struct sl_resp_writer *w;
#ifdef MUT_RELAYNOTE
    return;
#endif
    for (sl_node_id n = 0; n < SL_NODE_ID_MAX; n++) {
        sl_node_id id = 1 + (sl_node_id)((v->fence + n) % SL_NODE_ID_MAX);
        const struct sl_proxy_node *node = &r->nodes[id];
        if (!node->ready || node->clock_ms == 0) continue;
        if ((w = sl_frame(s, id, "R.NOTE", 1 + SL_RECORD_WORDS)) == NULL) continue;
        sl_frame_number(w,
                        (uint64_t)(node->clock_ms + (s->now.ms - node->clock_at_ms)));
        sl_record_write(w, key, v);
        return;
    }
}

static void tell_gone(struct server *s)
{
    struct sl_witness *n = &s->forward->witness;
    struct sl_resp_writer *w;
    for (sl_node_id i = 1; n->gone_count > 0 && i <= SL_NODE_ID_MAX; i++) {
        if (!s->forward->nodes[i].open) continue;
        if ((w = sl_frame(s, i, "R.GONE", n->gone_count)) == NULL) continue;
        for (size_t j = 0; j < n->gone_count; j++) sl_frame_number(w, n->gone[j]);
    }
    n->gone_count = 0;
}

/* Notes first: one that is gone is not to come back. */
static void tell(struct server *s)
{
    struct sl_witness *n = &s->forward->witness;
    for (size_t i = 0; i < n->note_count; i++) {
        struct sl_grant_view v;
        const struct sl_bytes key = {n->notes[i].key, n->notes[i].n};
        if (sl_table_inspect_grant(s->table, s->now, key, n->notes[i].fence, &v) &&
            v.leased)
            tell_witness(s, key, &v);
        free(n->notes[i].key);
    }
    n->note_count = 0;
    tell_gone(s);
    n->due_ms = SL_NEVER;
}

void sl_witness_tell(struct server *s)
{
    if (s->forward->witness.due_ms <= s->now.ms) tell(s);
}

void sl_witness_forget(struct server *s)
{
    struct sl_witness *n = &s->forward->witness;
    while (n->note_count > 0) free(n->notes[--n->note_count].key);
    n->gone_count = 0;
    n->due_ms = SL_NEVER;
}

void sl_witness_note(struct server *s, struct sl_bytes key, sl_fence fence)
{
    struct sl_witness *n = &s->forward->witness;
    if (!s->forward->leads) return;
    if (n->note_count == SL_NOTES_MAX) tell(s);
    char *copy = malloc(key.n);
    if (copy == NULL) return; /* Then there is no witness. */
    memcpy(copy, key.at, key.n);
    n->notes[n->note_count++] = (struct sl_note){
        .fence = fence, .key = copy, .n = key.n};
    begin(s);
}

void sl_forward_gone(struct server *s, sl_fence fence, bool at_once)
{
#ifdef MUT_RELAYGONE
    return;
#endif
    if (s->forward == NULL || !s->forward->leads) return;
    struct sl_witness *n = &s->forward->witness;
    n->gone[n->gone_count++] = fence;
    begin(s);
    if (at_once || n->gone_count == SL_GONE_MAX) tell(s);
}
