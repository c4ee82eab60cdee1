/* witness.c - collects reports to the ledgers of other nodes, and chooses who receives them. */
#include "failover/witness.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define GATHERED_MS 10
#define SIZE_MIN 64u

void sl_witness_init(struct sl_witness *w)
{
    *w = (struct sl_witness){.due_ms = SL_NEVER};
}

/* --- Notes ----------------------------------------------------------------------------------- */

static struct sl_note *note_at(const struct sl_witness *w, uint64_t number)
{
    return &w->notes[number & (w->size - 1)];
}

/* Make space for one more note. Returns false if out of memory. */
static bool reserve(struct sl_witness *w)
{
    if (w->last - w->noted < w->size) return true;
    struct sl_witness larger = {.size = w->size == 0 ? SIZE_MIN : 2 * w->size};
    larger.notes = malloc(larger.size * sizeof *larger.notes);
    if (larger.notes == NULL) return false;
    for (uint64_t i = w->noted + 1; i <= w->last; i++)
        *note_at(&larger, i) = *note_at(w, i);
    free(w->notes);
    w->notes = larger.notes;
    w->size = larger.size;
    return true;
}

uint64_t sl_witness_note(struct sl_witness *w, struct sl_bytes key, sl_fence fence)
{
    char *copy = reserve(w) ? malloc(key.n) : NULL;
    if (copy == NULL) return 0;
    memcpy(copy, key.at, key.n);
    w->last++;
    *note_at(w, w->last) = (struct sl_note){.fence = fence, .key = copy, .n = key.n};
    return w->last;
}

void sl_witness_noted(struct sl_witness *w, uint64_t number)
{
    if (number > w->last) return; /* It is not one of our numbers. */
    while (w->noted < number) free(note_at(w, ++w->noted)->key);
    if (w->sent < w->noted) w->sent = w->noted;
    if (w->marked < w->noted) w->marked = w->noted;
}

void sl_witness_lost(struct sl_witness *w, uint32_t node)
{
    if (w->node != node) return;
    w->node = 0;
    w->searched = 0;
    w->gone_told = 0;
    w->sent = w->marked = w->noted;
    w->named = false;
}

bool sl_witness_is_missing(const struct sl_witness *w)
{
    return w->node == 0 && w->last > w->noted && w->searched == w->last;
}

/* Return a node that has handed over its ledger, and whose clock is known; 0: none. */
static uint32_t choose(const struct sl_guest_node *nodes, uint32_t linked)
{
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++)
        if (nodes[i].ready && nodes[i].clock_ms != 0 && (linked >> i & 1) != 0)
            return i;
    return 0;
}

struct sl_failover_message sl_note_for(const struct sl_guest_node *node, sl_ms now_ms,
                                       struct sl_bytes key,
                                       const struct sl_grant_view *v)
{
    /* The clock of the node may be slower than ours, by up to 1 in 500. */
    sl_ms passed_ms = now_ms - node->clock_at_ms;
    return (struct sl_failover_message){.type = SL_FAILOVER_NOTE,
                                        .ms = node->clock_ms + passed_ms -
                                              (passed_ms + 499) / 500,
                                        .key = key,
                                        .grant = *v};
}

/* Get the next message about a note: first CLIENT, then NOTE. Returns false if the note needs no
 * message, because the grant has ended. */
static bool next_note(struct sl_witness *w, struct sl_now now,
                      const struct sl_table *table, const struct sl_guest_node *node,
                      struct sl_failover_message *out)
{
    const struct sl_note *note = note_at(w, w->sent + 1);
    const struct sl_bytes key = {note->key, note->n};
    struct sl_grant_view v;
    if (!sl_table_inspect_grant(table, now, key, note->fence, &v) || !v.leased) {
        w->sent++;
        w->named = false;
        return false;
    }
    if (!w->named && v.name.n + v.address.n > 0) {
        *out = (struct sl_failover_message){
            .type = SL_FAILOVER_CLIENT, .name = v.name, .address = v.address};
        w->named = true;
        return true;
    }
    *out = sl_note_for(node, now.ms, key, &v);
    w->named = false;
    w->sent++;
    return true;
}

/* --- Grants that have ended -------------------------------------------------------------------- */

void sl_witness_gone(struct sl_witness *w, sl_ms now_ms, sl_fence fence, bool at_once)
{
    assert(w->gone_count < SL_GONE_MAX);
    w->gone[w->gone_count++] = fence;
    if (at_once || w->gone_count == SL_GONE_MAX) w->due_ms = now_ms;
    else if (w->due_ms == SL_NEVER) w->due_ms = now_ms + GATHERED_MS;
}

/* Get GONE for a node, with the ended grants from this index on. Returns false if there are none. */
static bool gone_for(const struct sl_witness *w, size_t from,
                     struct sl_failover_message *out)
{
    *out = (struct sl_failover_message){.type = SL_FAILOVER_GONE,
                                        .gone = w->gone + from,
                                        .gone_count = w->gone_count - from};
    return from < w->gone_count;
}

static bool next_gone(struct sl_witness *w, sl_ms now_ms,
                      const struct sl_guest_node *nodes, uint32_t *to,
                      struct sl_failover_message *out)
{
    size_t told = w->gone_told;
    if (w->due_ms > now_ms) {
        /* Report the end of earlier grants to the witness before the client learns of the next one. */
        if (w->node == 0 || w->marked == w->last) return false;
        w->gone_told = w->gone_count;
        return gone_for(w, told, out);
    }
    while (++w->gone_sent < SL_ELECTION_NODES_MAX) {
        *to = w->gone_sent;
        if (nodes[*to].open && gone_for(w, *to == w->node ? told : 0, out)) return true;
    }
    w->gone_count = w->gone_told = w->gone_sent = 0;
    w->due_ms = SL_NEVER;
    return false;
}

/* --- Messages ------------------------------------------------------------------------------ */

bool sl_witness_is_due(const struct sl_witness *w, sl_ms now_ms)
{
    return w->due_ms <= now_ms || w->marked < w->last;
}

/* Send the notes first, so that GONE removes a grant that has ended. */
bool sl_witness_next(struct sl_witness *w, struct sl_now now,
                     const struct sl_table *table,
                     const struct sl_guest_node nodes[SL_ELECTION_NODES_MAX],
                     uint32_t linked, uint32_t *to, struct sl_failover_message *out)
{
    if (!sl_witness_is_due(w, now.ms)) return false;
    if (w->node == 0 && w->sent < w->last) {
        w->node = choose(nodes, linked);
        w->searched = w->last;
    }
    *to = w->node;
    while (w->node != 0 && w->sent < w->last)
        if (next_note(w, now, table, &nodes[w->node], out)) return true;
    if (next_gone(w, now.ms, nodes, to, out)) return true;
    if (w->node == 0 || w->marked == w->last) return false;
    w->marked = w->last;
    *to = w->node;
    *out = (struct sl_failover_message){.type = SL_FAILOVER_MARK, .fence = w->last};
    return true;
}

/* --- Life ------------------------------------------------------------------------------------ */

void sl_witness_forget(struct sl_witness *w)
{
    sl_witness_noted(w, w->last);
    sl_witness_lost(w, w->node);
    w->gone_count = w->gone_told = w->gone_sent = 0;
    w->due_ms = SL_NEVER;
}

void sl_witness_free(struct sl_witness *w)
{
    sl_witness_forget(w);
    free(w->notes);
    w->notes = NULL;
    w->size = 0;
}
