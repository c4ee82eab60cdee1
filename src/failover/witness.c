/* witness.c - collects reports to the ledgers of other nodes, and chooses who receives them. */
#include "failover/witness.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define GATHERED_MS 10

void sl_witness_init(struct sl_witness *w)
{
    *w = (struct sl_witness){.due_ms = SL_NEVER};
}

void sl_witness_forget(struct sl_witness *w)
{
    while (w->note_count > 0) free(w->notes[--w->note_count].key);
    w->gone_count = w->notes_sent = w->gone_sent = 0;
    w->named = false;
    w->due_ms = SL_NEVER;
}

static void gather(struct sl_witness *w, sl_ms now_ms, bool at_once)
{
    if (at_once) w->due_ms = now_ms;
    else if (w->due_ms == SL_NEVER) w->due_ms = now_ms + GATHERED_MS;
}

void sl_witness_note(struct sl_witness *w, sl_ms now_ms, struct sl_bytes key,
                     sl_fence fence)
{
    assert(w->note_count < SL_NOTES_MAX);
    char *copy = malloc(key.n);
    if (copy == NULL) return;
    memcpy(copy, key.at, key.n);
    w->notes[w->note_count++] = (struct sl_note){
        .fence = fence, .key = copy, .n = key.n};
    gather(w, now_ms, w->note_count == SL_NOTES_MAX);
}

void sl_witness_gone(struct sl_witness *w, sl_ms now_ms, sl_fence fence, bool at_once)
{
    assert(w->gone_count < SL_GONE_MAX);
    w->gone[w->gone_count++] = fence;
    gather(w, now_ms, at_once || w->gone_count == SL_GONE_MAX);
}

/* Return the witness of a grant: a node that has handed over its ledger, and whose clock is known;
 * 0: none. The fence selects the witness, so that the nodes share the work. */
static uint32_t witness_of(sl_fence fence, const struct sl_guest_node *nodes,
                           uint32_t linked)
{
    const uint32_t ids = SL_ELECTION_NODES_MAX - 1;
    for (uint32_t i = 0; i < ids; i++) {
        uint32_t id = 1 + (uint32_t)((fence + i) % ids);
        if (nodes[id].ready && nodes[id].clock_ms != 0 && (linked >> id & 1) != 0)
            return id;
    }
    return 0;
}

/* Get the next message about a note: first CLIENT, then NOTE. Returns false if the note needs no
 * message. */
static bool next_note(struct sl_witness *w, struct sl_now now,
                      const struct sl_table *table, const struct sl_guest_node *nodes,
                      uint32_t linked, uint32_t *to, struct sl_failover_message *out)
{
    const struct sl_note *note = &w->notes[w->notes_sent];
    const struct sl_bytes key = {note->key, note->n};
    struct sl_grant_view v;
    if (!sl_table_inspect_grant(table, now, key, note->fence, &v) || !v.leased ||
        (*to = witness_of(note->fence, nodes, linked)) == 0) {
        w->notes_sent++;
        return false;
    }
    if (!w->named && v.name.n + v.address.n > 0) {
        *out = (struct sl_failover_message){
            .type = SL_FAILOVER_CLIENT, .name = v.name, .address = v.address};
        w->named = true;
        return true;
    }
    /* The time is by the clock of the witness, so a message that arrives late does not make the
     * lease longer. */
    const struct sl_guest_node *node = &nodes[*to];
    *out = (struct sl_failover_message){.type = SL_FAILOVER_NOTE,
                                        .ms = node->clock_ms +
                                              (now.ms - node->clock_at_ms),
                                        .key = key,
                                        .grant = v};
    w->named = false;
    w->notes_sent++;
    return true;
}

/* Send the notes first, so that GONE removes a grant that has ended. */
bool sl_witness_next(struct sl_witness *w, struct sl_now now,
                     const struct sl_table *table,
                     const struct sl_guest_node nodes[SL_ELECTION_NODES_MAX],
                     uint32_t linked, uint32_t *to, struct sl_failover_message *out)
{
    if (w->due_ms > now.ms) return false;
    while (w->notes_sent < w->note_count)
        if (next_note(w, now, table, nodes, linked, to, out)) return true;
    while (w->gone_count > 0 && ++w->gone_sent < SL_ELECTION_NODES_MAX) {
        if (!nodes[w->gone_sent].open) continue;
        *to = w->gone_sent;
        *out = (struct sl_failover_message){
            .type = SL_FAILOVER_GONE, .gone = w->gone, .gone_count = w->gone_count};
        return true;
    }
    sl_witness_forget(w); /* All reports are sent. */
    return false;
}
