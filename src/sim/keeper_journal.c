/* keeper_journal.c - checks what keepers write to the journal. */
#include <inttypes.h>

#include "journal/record.h"
#include "locks/grant_record.h"
#include "sim/keeper.h"

#define ROUNDED_US 3000 /* Times are in whole milliseconds. */

/* Read an entry. Returns false if it is not that of a grant. */
static bool read(const struct ksim_item *x, struct sl_item *item,
                 struct sl_grant_view *v)
{
    size_t at = 0;
    return ksim_fence_of(x) != 0 && x->value.at != NULL &&
           sl_record_next(x->value, &at, item) == 1 && sl_grant_read(item->value, v);
}

/* Whether this write is one of the current keeper, and at which journal time it is executed. */
static bool is_current(const struct ksim_world *w, uint32_t i, sl_ms *journal_ms)
{
    const struct ksim_node *n = &w->nodes[i];
    if (!n->up || !n->f.guests.leads || n->f.guests.term != w->etcd.term.term ||
        n->f.journal.rules == NULL || w->checker.without_clocks)
        return false;
    *journal_ms = sl_keeper_journal_time(&n->f.journal, ksim_node_now(w, i).ms);
    return true;
}

/* A keeper that holds a lease does not delete its entry. The entry of a lease that has expired before a node
 * reported it again may be deleted, unless the lease was broken. */
static void check_held(struct ksim_world *w, const struct sl_item *item,
                       bool has_passed)
{
    uint32_t i = w->etcd.term.node - 1;
    struct sl_grant_view v;
    if (!has_passed && sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                              item->key, item->fence, &v))
        KSIM_WRONG(w, "n%u deletes the entry of fence %" PRIu64 ", which it holds",
                   i + 1, item->fence);
}

/* The entry of a lease stays until its bound while its holder relies on the lease, even if the lease has expired by
 * the reports so far. That of a broken lease stays for longer, because nodes may report a later expiry. */
static void check_deleted(struct ksim_world *w, const struct ksim_item *entry)
{
    bool found;
    size_t k = ksim_map_find(&w->etcd.journal, entry->key, &found);
    struct sl_grant_view v;
    struct sl_item item;
    sl_ms journal_ms;
    if (!found || entry->value.at != NULL ||
        !is_current(w, w->etcd.term.node - 1, &journal_ms) ||
        !read(&w->etcd.journal.items[k], &item, &v))
        return;
    bool has_passed = !v.broken && item.expiry_ms <= journal_ms;
    check_held(w, &item, has_passed);
    const struct ksim_grant *g = ksim_checker_find(&w->checker, item.fence);
    if (g == NULL || !g->leased || !ksim_checker_holds(g, w->now_us) || g->revoked ||
        v.stolen || has_passed || (!v.broken && g->touched) ||
        w->checker.overlapping[g->key] > g->fence)
        return;
    KSIM_WRONG(w,
               "k%u: n%u deletes the entry of fence %" PRIu64
               ", on which c%u relies for another %" PRId64 " ms",
               g->key, w->etcd.term.node, g->fence, g->client + 1,
               ksim_checker_left(g, w->now_us));
}

/* A keeper records a lease that an earlier one has granted, and that a node has reported. According to the entry,
 * it is not certainly valid for longer than in the table of the earlier keeper. */
static void check_sure(struct ksim_world *w, const struct ksim_item *entry)
{
    uint32_t i = w->etcd.term.node - 1;
    struct sl_grant_view v;
    struct sl_item item;
    sl_ms journal_ms;
    if (!is_current(w, i, &journal_ms) || w->rates_change || !read(entry, &item, &v) ||
        v.broken || v.unsure_ms == SL_NEVER)
        return;
    const struct ksim_lease *x = ksim_leases_find(w, item.fence);
    if (x == NULL || x->term == w->etcd.term.term || x->recorded || x->passed_on)
        return;
    int64_t late_us = w->now_us - x->end_us +
                      1000 * (item.expiry_ms - v.unsure_ms - journal_ms);
    if (late_us > ROUNDED_US)
        KSIM_WRONG(w,
                   "n%u records that fence %" PRIu64
                   " is certainly valid until %" PRId64 " us after it expires",
                   i + 1, item.fence, late_us);
}

void ksim_journal_writes(struct ksim_world *w, const struct ksim_item *entry)
{
    check_deleted(w, entry);
    check_sure(w, entry);
}

/* A keeper that has read the journal knows which leases were broken or stolen, also if a node reports one again. */
void ksim_journal_reported(struct ksim_world *w, uint32_t i, struct sl_bytes key,
                           sl_fence fence)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct ksim_map *m = &w->etcd.journal;
    struct sl_grant_view v, held;
    struct sl_item item;
    if (!n->f.guests.leads || n->f.guests.reads_journal ||
        n->f.guests.term != w->etcd.term.term ||
        !sl_table_inspect_grant(n->table, ksim_node_now(w, i), key, fence, &held) ||
        held.broken)
        return;
    /* After the wait, the keeper itself may undo a steal. */
    bool stolen = n->quiet && !held.stolen;
    for (size_t k = 0; k < m->count; k++)
        if (read(&m->items[k], &item, &v) && item.fence == fence &&
            (v.broken || (stolen && v.stolen)))
            KSIM_WRONG(w,
                       "n%u does not know that fence %" PRIu64
                       " was %s, although it has read the journal",
                       i + 1, fence, v.broken ? "broken" : "stolen");
}
