/* keeper_leases.c - what nodes know about leases: which nodes have recorded a lease before its client
 * learns of it, and until when it is certainly valid. Like keeper_rules.c, these checks know the state of
 * all nodes, of etcd, and the real time. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "journal/record.h"
#include "locks/grant_record.h"
#include "locks/lock.h"
#include "sim/keeper.h"

#define AUTHORITY_US 2000000ll
#define ROUNDED_US 3000 /* Times are in whole milliseconds. */

/* Return the slot of a lease, or a free slot for it. */
static struct ksim_lease *slot_of(struct ksim_world *w, sl_fence fence)
{
    size_t at = ksim_slot(fence, KSIM_LEASES);
    for (size_t k = 0; k < KSIM_LEASES; k++) {
        struct ksim_lease *x = &w->leases[(at + k) % KSIM_LEASES];
        if (x->fence == fence || x->fence == 0) return x;
    }
    return &w->leases[at]; /* There are too many. Forget one. */
}

struct ksim_lease *ksim_leases_find(struct ksim_world *w, sl_fence fence)
{
    struct ksim_lease *x = slot_of(w, fence);
    return x->fence == fence ? x : NULL;
}

static int64_t real_us(const struct ksim_world *w, uint32_t i, sl_ms ms)
{
    return ms == SL_NEVER ? INT64_MAX : sim_clock_when(&w->nodes[i].clock, ms * 1000);
}

static bool inspect(struct ksim_world *w, uint32_t i, struct sl_bytes key,
                    sl_fence fence, struct sl_grant_view *v)
{
    return sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i), key, fence,
                                  v) &&
           v->leased;
}

static bool is_in_journal(const struct ksim_world *w, sl_fence fence)
{
    const struct ksim_map *m = &w->etcd.journal;
    for (size_t k = 0; k < m->count; k++)
        if (ksim_fence_of(&m->items[k]) == fence) return true;
    return false;
}

/* ---- until when a lease is valid ---- */

/* Until the authority of the previous keeper has ended, that keeper must not let a lease expire that the
 * new one extends. */
static void check_rival(struct ksim_world *w, uint32_t i, const struct ksim_lease *x)
{
    uint64_t term = w->nodes[i].f.guests.term;
    if (term < 2 || term >= KSIM_TERMS || w->etcd.resigned[term - 1]) return;
    int64_t until_us = w->etcd.sent_us[term - 1] + AUTHORITY_US;
    if (w->now_us < until_us && x->end_us + ROUNDED_US < until_us)
        KSIM_WRONG(w,
                   "n%u extends fence %" PRIu64 ", which expires at an earlier keeper "
                   "%" PRId64 " ms before the authority of the last one ends",
                   i + 1, x->fence, (until_us - x->end_us) / 1000);
}

/* Whether a keeper may extend a lease after its last known expiry. */
static bool lasts_longer(const struct ksim_world *w, const struct ksim_lease *x)
{
    return x->recorded ||
           (x->passed_on &&
            x->end_us >= w->etcd.sent_us[x->term % KSIM_TERMS] + AUTHORITY_US);
}

/* A new keeper extends a lease only if the lease has not expired in the table of the keeper that has last
 * granted or extended it. */
static void check_extended(struct ksim_world *w, uint32_t i, sl_fence fence)
{
    const struct ksim_lease *x = ksim_leases_find(w, fence);
    if (x == NULL || x->term == w->nodes[i].f.guests.term) return;
    if (!lasts_longer(w, x) && w->now_us > x->end_us + ROUNDED_US)
        KSIM_WRONG(w,
                   "n%u extends fence %" PRIu64 ", which has expired %" PRId64
                   " us ago at the keeper of term %" PRIu64,
                   i + 1, fence, w->now_us - x->end_us, x->term);
    if (!x->recorded && !x->passed_on) check_rival(w, i, x);
}

void ksim_leases_granted(struct ksim_world *w, uint32_t i, uint32_t key, sl_fence fence,
                         bool fresh)
{
    struct ksim_lease *x = slot_of(w, fence);
    struct sl_grant_view v;
    if (w->checker.without_clocks) return;
    if (!fresh && !w->rates_change) check_extended(w, i, fence);
    if (!inspect(w, i, ksim_key(key), fence, &v)) return;
    if (x->fence != fence) *x = (struct ksim_lease){.fence = fence};
    int64_t end_us = real_us(w, i, v.end_ms);
    if (end_us > x->end_us) x->end_us = end_us;
    x->term = w->nodes[i].f.guests.term;
}

/* A report may have lengthened the lease since it was extended. */
void ksim_leases_shown(struct ksim_world *w, uint32_t i, uint32_t key, sl_fence fence)
{
    struct ksim_lease *x = ksim_leases_find(w, fence);
    struct sl_grant_view v;
    if (x == NULL || !inspect(w, i, ksim_key(key), fence, &v)) return;
    int64_t end_us = real_us(w, i, v.end_ms);
    if (end_us > x->end_us) x->end_us = end_us;
}

/* The keeper that has granted or extended a lease has recorded it: note the expiry that the entry covers. */
static void note_durable(struct ksim_world *w, const struct ksim_item *entry,
                         struct ksim_lease *x)
{
    uint32_t i = w->etcd.term.node - 1;
    const struct ksim_node *n = &w->nodes[i];
    struct sl_grant_view v;
    struct sl_item item;
    size_t at = 0;
    if (!n->up || !n->f.guests.leads || n->f.guests.term != w->etcd.term.term ||
        sl_record_next(entry->value, &at, &item) != 1 ||
        !inspect(w, i, item.key, item.fence, &v))
        return;
    sl_ms now_ms = ksim_node_now(w, i).ms;
    sl_ms end_ms = sl_keeper_journal_time(&n->f.journal, now_ms) + v.end_ms - now_ms;
    if (end_ms <= item.expiry_ms) x->durable_us = real_us(w, i, v.end_ms);
}

/* A keeper that has not read all entries does not know until when a lease lasts, so it records none. It may record a
 * broken or stolen grant, whose entry it has read. */
static void check_read(struct ksim_world *w, const struct ksim_item *entry)
{
    uint32_t i = w->etcd.term.node - 1;
    const struct sl_guests *g = &w->nodes[i].f.guests;
    struct sl_grant_view v;
    struct sl_item item;
    size_t at = 0;
    if (!w->nodes[i].up || !g->leads || g->term != w->etcd.term.term ||
        !g->reads_journal || ksim_fence_of(entry) == 0 || entry->value.at == NULL ||
        sl_record_next(entry->value, &at, &item) != 1 ||
        !sl_grant_read(item.value, &v) || v.broken || v.stolen)
        return;
    KSIM_WRONG(w, "n%u records fence %" PRIu64 " before it has read the journal", i + 1,
               ksim_fence_of(entry));
}

void ksim_leases_recorded(struct ksim_world *w, const struct ksim_item *entry)
{
    check_read(w, entry);
    struct ksim_lease *x = ksim_leases_find(w, ksim_fence_of(entry));
    if (x == NULL) return;
    note_durable(w, entry, x);
    if (x->term == w->etcd.term.term) x->recorded = true;
    else if (!x->passed_on) {
        uint32_t i = w->etcd.term.node - 1;
        const struct ksim_node *n = &w->nodes[i];
        bool leads = n->up && n->f.guests.leads && n->f.journal.rules != NULL &&
                     n->f.guests.term == w->etcd.term.term;
        x->passed_on = true;
        x->passed_us = w->now_us;
        x->passed_ms = leads ? sl_keeper_journal_time(&n->f.journal,
                                                      ksim_node_now(w, i).ms)
                             : w->etcd.journal_ms +
                                   (w->now_us - w->etcd.journal_us) / 1000;
    }
}

/* A lease is not certainly valid for longer than the keeper that granted or extended it has it. */
static void check_sure(struct ksim_world *w, uint32_t i, sl_fence fence, sl_ms sure_ms,
                       const char *where)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct ksim_lease *x = ksim_leases_find(w, fence);
    sl_ms now_ms = ksim_node_now(w, i).ms;
    if (x == NULL || x->recorded || sure_ms <= now_ms || w->checker.without_clocks ||
        w->rates_change)
        return;
    int64_t end_us = x->end_us;
    if (x->passed_on) { /* Journal time stands still between two keepers. */
        if (!n->f.guests.leads || n->f.journal.rules == NULL) return;
        int64_t passed_us = 1000 * (sl_keeper_journal_time(&n->f.journal, now_ms) -
                                    x->passed_ms);
        int64_t still_us = w->now_us - x->passed_us - passed_us;
        if (still_us > 0) end_us += still_us;
    }
    int64_t late_us = real_us(w, i, sure_ms) - end_us;
    if (late_us > ROUNDED_US)
        KSIM_WRONG(w,
                   "fence %" PRIu64
                   " is certainly valid in the %s of n%u until %" PRId64
                   " us after it expires",
                   fence, where, i + 1, late_us);
}

static sl_ms sure_of(const struct sl_grant_view *v)
{
    return v->unsure_ms == SL_NEVER ? 0 : v->end_ms - v->unsure_ms;
}

/* Read an entry of the journal. Returns false if it is not that of a grant. */
static bool read_entry(const struct ksim_item *x, struct sl_item *item,
                       struct sl_grant_view *v)
{
    size_t at = 0;
    if (ksim_fence_of(x) == 0 || sl_record_next(x->value, &at, item) != 1 ||
        !sl_grant_read(item->value, v))
        return false;
    v->fence = item->fence;
    return true;
}

/* Whether the next keeper would not extend a lease because of its entry in the journal. */
static bool is_unsure_in_journal(const struct ksim_world *w, sl_fence fence)
{
    const struct ksim_map *m = &w->etcd.journal;
    struct sl_grant_view v;
    struct sl_item item;
    for (size_t k = 0; k < m->count; k++)
        if (read_entry(&m->items[k], &item, &v) && v.fence == fence)
            return v.unsure_ms != 0;
    return false;
}

/* A keeper extends a lease only if it is certainly valid. The holder then relies on the expiry, so the
 * keeper records it, even if it is not later. */
void ksim_leases_extended(struct ksim_world *w, uint32_t i, struct sl_bytes key,
                          const struct sl_grant_view *before)
{
    sl_ms now_ms = ksim_node_now(w, i).ms;
    struct sl_grant_view v;
    if (before->leased && sure_of(before) <= now_ms)
        KSIM_WRONG(w, "n%u extends fence %" PRIu64 ", which may have expired", i + 1,
                   before->fence);
    if (before->leased && before->unsure_ms != 0 && w->nodes[i].f.journal.need == 0 &&
        inspect(w, i, key, before->fence, &v) && v.end_ms - now_ms > w->volatile_ms &&
        is_unsure_in_journal(w, before->fence))
        KSIM_WRONG(w, "n%u does not record the extension of fence %" PRIu64, i + 1,
                   before->fence);
}

/* A keeper has read the journal: it has all entries that have not expired. */
static void check_restored(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct ksim_map *m = &w->etcd.journal;
    struct sl_now now = ksim_node_now(w, i);
    sl_ms journal_ms = sl_keeper_journal_time(&n->f.journal, now.ms);
    struct sl_grant_view v, held;
    struct sl_item item;
    for (size_t k = 0; k < m->count; k++) {
        if (!read_entry(&m->items[k], &item, &v) || item.expiry_ms <= journal_ms + 10 ||
            sl_guests_withdrew(&n->f.guests, item.key, &v))
            continue;
        const struct ksim_lease *x = ksim_leases_find(w, item.fence);
        if (!inspect(w, i, item.key, item.fence, &held))
            KSIM_WRONG(w, "n%u has read the journal, but does not know fence %" PRIu64,
                       i + 1, item.fence);
        else if (x != NULL && !w->rates_change &&
                 real_us(w, i, held.end_ms) + ROUNDED_US < x->durable_us)
            KSIM_WRONG(w,
                       "n%u has read the journal, but lets fence %" PRIu64
                       " expire %" PRId64 " us too early",
                       i + 1, item.fence, x->durable_us - real_us(w, i, held.end_ms));
    }
}

static void check_table(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    struct sl_grant_view v;
    for (uint32_t k = 0; k < w->key_count; k++) {
        uint64_t cursor = 0;
        while (sl_table_each(n->table, ksim_node_now(w, i), ksim_key(k), &cursor, &v) &&
               !v.waits) {
            if (v.leased && !v.broken) check_sure(w, i, v.fence, sure_of(&v), "table");
            /* A broken grant stays until its lease expires. */
            if (!n->has_more && !n->f.resigning && !v.broken && !v.stolen &&
                sl_guests_withdrew(&n->f.guests, ksim_key(k), &v))
                KSIM_WRONG(w, "k%u: n%u has fence %" PRIu64 ", which was withdrawn", k,
                           i + 1, v.fence);
        }
    }
}

void ksim_leases_restored(struct ksim_world *w, uint32_t i)
{
    const struct sl_failover *f = &w->nodes[i].f;
    if (!f->guests.leads) return;
    check_table(w, i);
    if (w->nodes[i].quiet && !f->guests.reads_journal && f->journal.rules != NULL &&
        f->guests.term == w->etcd.term.term && !w->checker.without_clocks)
        check_restored(w, i);
}

/* A new keeper moves the first record of its ledger to its table, unless the grant was withdrawn. */
void ksim_leases_reclaims_own(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_now now = ksim_node_now(w, i);
    const struct sl_record *x = sl_container_of(n->f.route.ledger.all.next,
                                                const struct sl_record, all);
    const struct sl_grant_view v = sl_record_view(x, now.ms);
    w->withdrawn = sl_guests_withdrew(&n->f.guests, x->key, &v) &&
                           !sl_table_holds(n->table, now, x->key, x->fence)
                       ? x->fence
                       : 0;
    w->withdrawn_key = ksim_key_of(x->key);
    w->reclaimed = x->fence;
    ksim_records_reclaims_own(w, i, x);
}

void ksim_leases_reclaimed_own(struct ksim_world *w, uint32_t i)
{
    if (w->withdrawn != 0 && sl_table_holds(w->nodes[i].table, ksim_node_now(w, i),
                                            ksim_key(w->withdrawn_key), w->withdrawn))
        KSIM_WRONG(w, "n%u adds fence %" PRIu64 ", which was withdrawn", i + 1,
                   w->withdrawn);
    ksim_records_reclaimed_own(w, i);
    ksim_journal_reported(w, i, ksim_key(w->withdrawn_key), w->reclaimed);
}

/* ---- two nodes know each lease ---- */

void ksim_leases_acked(struct ksim_world *w, uint32_t i, const struct ksim_request *q)
{
    sl_fence fence = q->parked.fence;
    uint32_t key = q->command.key;
    uint64_t term = w->nodes[i].f.guests.term;
    struct ksim_lease *x = ksim_leases_find(w, fence);
    struct sl_grant_view v;
    if (w->checker.without_clocks || x == NULL || term >= KSIM_TERMS ||
        !inspect(w, i, ksim_key(key), fence, &v) || is_in_journal(w, fence))
        return;
    int64_t end_us = real_us(w, i, q->parked.end_ms);
    if (x->noted_us + ROUNDED_US >= end_us || w->etcd.term.term != term) return;
    if (w->etcd.term.ledgers != 0)
        KSIM_WRONG(w,
                   "k%u: n%u acknowledges fence %" PRIu64
                   ", which no other node has recorded, although etcd names ledgers",
                   key, i + 1, fence);
    x->alone = true;
    w->alone_term = term;
    if (end_us > w->alone_us) w->alone_us = end_us;
}

bool ksim_leases_is_alone(struct ksim_world *w, sl_fence fence)
{
    const struct ksim_lease *x = ksim_leases_find(w, fence);
    return x != NULL && x->alone;
}

void ksim_leases_renewed(struct ksim_world *w)
{
    const struct sl_storage_term *t = &w->etcd.term;
    if (t->ledgers != 0 && !t->resigned && t->term == w->alone_term &&
        w->now_us < w->alone_us && !w->checker.without_clocks)
        KSIM_WRONG(w,
                   "n%u names ledgers, although no other node has recorded a lease "
                   "that expires in %" PRId64 " ms",
                   t->node, (w->alone_us - w->now_us) / 1000);
}

#define NO_WITNESS_US 4400000ll /* A keeper looks for a witness for longer than this. */

#define UNLEASED_MS \
    2000 /* How long a node without a route may have clients without a lease. */

/* A keeper names every node that may be the only other one that knows a grant. */
static void check_named(struct ksim_world *w, uint32_t i, uint32_t ledgers)
{
    const struct ksim_node *n = &w->nodes[i];
    sl_ms now_ms = ksim_node_now(w, i).ms;
    sl_ms known_ms = w->volatile_ms > UNLEASED_MS ? w->volatile_ms : UNLEASED_MS;
    for (uint32_t o = 0; o < w->node_count; o++) {
        if ((ledgers >> (o + 1) & 1) != 0) continue;
        if ((n->last_ledgers >> (o + 1) & 1) != 0 && now_ms < n->quiet_until_ms)
            KSIM_WRONG(w,
                       "n%u does not name n%u, which may know a lease of the last term",
                       i + 1, o + 1);
        if (n->open_ms[o] != 0 && now_ms < n->open_ms[o] + known_ms)
            KSIM_WRONG(w, "n%u does not name n%u, which had a route %" PRId64 " ms ago",
                       i + 1, o + 1, now_ms - n->open_ms[o]);
    }
}

/* A keeper names ledgers when it knows all leases, until it has had no witness for a while. */
void ksim_leases_renews(struct ksim_world *w, uint32_t i, uint32_t ledgers)
{
    const struct sl_storage_term *t = &w->etcd.term;
    struct sl_table_stats stats;
    sl_table_stats(w->nodes[i].table, &stats);
    bool quiet = stats.recovering_until_ms > ksim_node_now(w, i).ms;
    if (ledgers != 0 && quiet)
        KSIM_WRONG(w, "n%u names ledgers, although it waits for earlier leases", i + 1);
    if (ledgers != 0) check_named(w, i, ledgers);
    if (ledgers == 0 && !quiet && t->ledgers != 0 && t->node == i + 1 &&
        w->now_us - w->nodes[i].guest_us < NO_WITNESS_US && !w->checker.without_clocks)
        KSIM_WRONG(w,
                   "n%u names no ledgers, although it had a witness %" PRId64 " ms ago",
                   i + 1, (w->now_us - w->nodes[i].guest_us) / 1000);
}

void ksim_leases_resigns(struct ksim_world *w, uint32_t i, uint32_t ledgers)
{
    check_named(w, i, ledgers);
}

#define ALONE_US 7000000ll   /* How long a keeper may wait for a witness, */
#define RENEWED_US 2500000ll /* and for a renewal, after one has failed. */

void ksim_leases_second(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    int64_t since_us = w->now_us - ALONE_US;
    if (n->f.resigning || w->now_us < w->etcd.down_us || w->now_us < w->etcd.slow_us ||
        w->now_us < n->away_us || w->now_us < n->straggles_us ||
        n->paused_us > since_us)
        n->alone_us = w->now_us;
    if (n->alone_us > since_us || n->failed_us > w->now_us - RENEWED_US) return;
    const struct ksim_request *q = NULL;
    while ((q = ksim_request_next(n, q)) != NULL)
        if (q->place == KSIM_FOR_WITNESS && q->parked.since_us < since_us)
            KSIM_WRONG(w,
                       "k%u: n%u does not acknowledge fence %" PRIu64
                       ", although there is no witness",
                       q->command.key, i + 1, q->parked.fence);
}

/* ---- ledgers that are complete ---- */

static void check_complete(struct ksim_world *w, uint32_t i, uint32_t from)
{
    const struct ksim_node *n = &w->nodes[i], *keeper = &w->nodes[from - 1];
    if (!n->f.route.open || n->f.route.keeper != from ||
        w->etcd.term.term != n->f.route.keeper_term || !keeper->up ||
        w->checker.without_clocks || n->f.route.has_lost)
        return;
    for (uint32_t k = 0; k < w->checker.count; k++) {
        const struct ksim_grant *g = &w->checker.grants[k];
        if (!g->leased || g->touched || !ksim_checker_holds(g, w->now_us) ||
            g->acked_us > keeper->ready_us[i] || is_in_journal(w, g->fence) ||
            ksim_checker_left(g, w->now_us) < g->lease_ms / 100 + 50 ||
            w->checker.overlapping[g->key] > g->fence ||
            sl_ledger_find(&n->f.route.ledger, g->fence) != NULL)
            continue;
        KSIM_WRONG(
            w,
            "n%u tells n%u that its ledger is complete, but it lacks the lease of "
            "c%u (fence %" PRIu64 ")",
            from, i + 1, g->client + 1, g->fence);
    }
}

/* ---- messages ---- */

void ksim_leases_lost(struct ksim_world *w, uint32_t i)
{
    w->nodes[i].lost_ms = ksim_node_now(w, i).ms;
    w->nodes[i].lost_us = w->now_us;
}

/* The keeper has completed the ledger of a node, with all records that it had lost before READY. */
static void note_complete(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    if (n->lost_us <= n->ready_sent_us) n->lost_ms = 0;
}

/* A node sends READY after all its withdrawals, and says for how long its ledger has been complete. */
static void check_ready(struct ksim_world *w, uint32_t i, sl_ms age_ms)
{
    struct ksim_node *n = &w->nodes[i];
    const struct sl_route *r = &n->f.route;
    const struct sl_list *all = &r->withdrawn.all;
    sl_ms lost_ms = ksim_node_now(w, i).ms - n->lost_ms;
    if (n->lost_ms != 0 && age_ms > lost_ms)
        KSIM_WRONG(w,
                   "n%u says that its ledger is complete, but it lost a record %" PRId64
                   " ms ago",
                   i + 1, lost_ms);
    n->ready_sent_us = w->now_us;
    for (const struct sl_list *x = all->next; x != all; x = x->next)
        if (sl_container_of(x, const struct sl_withdrawal, all)->route != r->number)
            KSIM_WRONG(w, "n%u sends READY before all its withdrawals", i + 1);
}

/* A withdrawal does not mean a grant that its client knows of. */
static void check_withdrawal(struct ksim_world *w, uint32_t i,
                             const struct sl_failover_message *m)
{
    for (uint32_t k = 0; k < w->checker.count; k++) {
        const struct ksim_grant *g = &w->checker.grants[k];
        if (g->fence <= m->fence || !g->leased || g->touched || g->id != 0 ||
            g->key != ksim_key_of(m->key) || !ksim_checker_holds(g, w->now_us))
            continue;
        const struct sl_record *x = sl_ledger_find(&w->nodes[i].f.route.ledger,
                                                   g->fence);
        if (x != NULL && x->origin == m->origin)
            KSIM_WRONG(w,
                       "n%u withdraws fence %" PRIu64 ", which its client c%u knows of",
                       i + 1, g->fence, g->client + 1);
    }
}

/* The time in a note is not later than the clock of the node that records it. */
static void check_note(struct ksim_world *w, uint32_t from, uint32_t to, sl_ms ms)
{
    const struct ksim_node *n = &w->nodes[to];
    sl_ms late_ms = ms - ksim_node_now(w, to).ms;
    if (late_ms > 1 && n->links[from].up && !w->checker.without_clocks &&
        n->links[from].number == w->nodes[from].links[to].number)
        KSIM_WRONG(w,
                   "n%u sends a note with a time that n%u reaches %" PRId64 " ms later",
                   from + 1, to + 1, late_ms);
}

void ksim_leases_sent(struct ksim_world *w, uint32_t from, uint32_t to,
                      const struct sl_failover_message *m)
{
    struct sl_table_stats stats;
    if (m->type == SL_FAILOVER_NOTE) {
        check_note(w, from, to, m->ms);
        ksim_records_noted(w, to, m->grant.fence);
    }
    if (m->type == SL_FAILOVER_RECLAIM) ksim_records_reported(w, from, m->grant.fence);
    if (m->type == SL_FAILOVER_READY) check_ready(w, from, m->ms);
    if (m->type == SL_FAILOVER_WITHDRAW) check_withdrawal(w, from, m);
    if (m->type != SL_FAILOVER_COMPLETE) return;
    sl_table_stats(w->nodes[from].table, &stats);
    if (stats.recovering_until_ms > ksim_node_now(w, from).ms)
        KSIM_WRONG(w,
                   "n%u tells n%u that its ledger is complete, although it waits for "
                   "earlier leases",
                   from + 1, to + 1);
}

void ksim_leases_receive(struct ksim_world *w, uint32_t i,
                         const struct sl_failover_message *m, struct ksim_before *b)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct sl_record *x = sl_ledger_find(&n->f.route.ledger, m->grant.fence);
    struct sl_grant_view v;
    b->has_route = n->f.route.open || n->f.route.handing;
    const struct sl_route_session *s = sl_route_session_find(&n->f.route, m->session);
    b->recorded = x != NULL;
    b->named = x != NULL && x->address.n > 0;
    b->asks = s != NULL && s->request != NULL;
    if (s != NULL && s->tx_request.n < sizeof b->tx_id) {
        b->tx = s->tx;
        if (s->tx_request.n > 0) memcpy(b->tx_id, s->tx_request.at, s->tx_request.n);
    }
    if (m->type == SL_FAILOVER_RECLAIM) {
        if (n->f.guests.leads && inspect(w, i, m->key, m->grant.fence, &v))
            b->sure_ms = sure_of(&v);
    } else if (x != NULL) b->sure_ms = x->sure_ms;
}

/* A keeper has received the report of a lease. It extends the lease while one report is certain of it, and
 * knows the origin of its client. */
static void check_reclaimed(struct ksim_world *w, uint32_t i, uint32_t from,
                            const struct sl_failover_message *m,
                            const struct ksim_before *b)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct sl_grant_view *r = &m->grant;
    struct sl_grant_view v;
    /* A keeper ignores the messages of an earlier route. */
    if (!n->f.guests.leads || !n->f.guests.nodes[from].open || b->closed ||
        !inspect(w, i, m->key, r->fence, &v))
        return;
    if (!v.broken) check_sure(w, i, r->fence, sure_of(&v), "table");
    sl_ms ms = m->ms + r->left_ms - r->unsure_ms;
    sl_ms sure = r->unsure_ms >= r->left_ms
                     ? 0
                     : n->f.guests.nodes[from].here_ms + ms - ms / 500 - 3;
    if (sure < b->sure_ms) sure = b->sure_ms;
    /* A table cannot store a longer time between the two expiries. It then does not extend the lease. */
    bool fits = sl_unsure_code(v.end_ms - sure) != SL_UNSURE_NEVER;
    if (fits && sure > ksim_node_now(w, i).ms && sure_of(&v) < sure)
        KSIM_WRONG(w,
                   "n%u extends fence %" PRIu64 " for %" PRId64
                   " ms less than its reports allow",
                   i + 1, r->fence, sure - sure_of(&v));
    const struct ksim_lease *x = ksim_leases_find(w, r->fence);
    if (v.left_ms + 2 < r->left_ms && x != NULL && !w->rates_change &&
        real_us(w, i, v.end_ms) + ROUNDED_US < x->end_us)
        KSIM_WRONG(w,
                   "n%u lets fence %" PRIu64 " expire %" PRId64
                   " ms before the time that "
                   "n%u has reported",
                   i + 1, r->fence, r->left_ms - v.left_ms, from);
    bool guest = m->session != 0 &&
                 sl_guests_find(&n->f.guests, from, m->session) != NULL;
    if (!b->known && !guest && r->origin != 0 && v.origin != r->origin)
        KSIM_WRONG(w, "n%u forgets the origin of fence %" PRIu64, i + 1, r->fence);
    if (!b->known && n->ended_term == n->f.guests.term)
        for (uint32_t k = 0; k < KSIM_ENDED; k++)
            if (n->ended[k] == r->fence)
                KSIM_WRONG(w, "n%u adds fence %" PRIu64 ", which was released", i + 1,
                           r->fence);
}

static void note_expiry(struct ksim_lease *x, int64_t end_us)
{
    if (x->noted_us < end_us) x->noted_us = end_us;
}

/* A node has received the report of a grant for its ledger. */
static void check_recorded(struct ksim_world *w, uint32_t i,
                           const struct sl_failover_message *m,
                           const struct ksim_before *b)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct sl_record *x = sl_ledger_find(&n->f.route.ledger, m->grant.fence);
    struct ksim_lease *lease = ksim_leases_find(w, m->grant.fence);
    /* A node without memory does not record the lease, and later reports that its ledger is incomplete. */
    if (lease != NULL && n->f.route.has_lost && b->has_route)
        note_expiry(lease, w->now_us + 2000 * m->grant.left_ms);
    if (x == NULL || n->f.route.leads) return;
    if (!b->has_route && !b->recorded)
        KSIM_WRONG(w, "n%u records fence %" PRIu64 " of an old route", i + 1, x->fence);
    if (b->named && x->address.n == 0)
        KSIM_WRONG(w, "n%u forgets which client has fence %" PRIu64, i + 1, x->fence);
    if (!x->leased) return;
    if (b->recorded && x->sure_ms < b->sure_ms)
        KSIM_WRONG(w, "n%u is certain of fence %" PRIu64 " for a shorter time", i + 1,
                   x->fence);
    check_sure(w, i, x->fence, x->sure_ms, "ledger");
    int64_t end_us = real_us(w, i, x->end_ms);
    if (lease != NULL) note_expiry(lease, end_us);
}

/* A node does not answer a request with a message of an old route. */
static void check_said(struct ksim_world *w, uint32_t i,
                       const struct sl_failover_message *m, const struct ksim_before *b)
{
    const struct sl_route_session *s = sl_route_session_find(&w->nodes[i].f.route,
                                                             m->session);
    if (!b->has_route && b->asks && !w->nodes[i].f.route.leads && s != NULL &&
        s->request == NULL)
        KSIM_WRONG(w, "n%u answers a request with a reply of an old route", i + 1);
    if (!b->has_route || !b->asks || m->what != SL_SAY_LAST || s == NULL) return;
    if (m->tx == 0 && s->tx != 0)
        KSIM_WRONG(w, "n%u remembers a transaction that has ended", i + 1);
    if (b->tx != 0 && s->tx == b->tx &&
        (s->tx_request.n != strlen(b->tx_id) ||
         (s->tx_request.n > 0 &&
          memcmp(s->tx_request.at, b->tx_id, s->tx_request.n) != 0)))
        KSIM_WRONG(w, "n%u replaces the REQUEST id of an open transaction", i + 1);
}

void ksim_leases_received(struct ksim_world *w, uint32_t i, uint32_t from,
                          const struct sl_failover_message *m,
                          const struct ksim_before *b)
{
    switch (m->type) {
        case SL_FAILOVER_RECLAIM:
            check_reclaimed(w, i, from, m, b);
            ksim_journal_reported(w, i, m->key, m->grant.fence);
            break;
        case SL_FAILOVER_HELD:
        case SL_FAILOVER_NOTE: check_recorded(w, i, m, b); break;
        case SL_FAILOVER_SAY:
            if (from == w->nodes[i].f.route.keeper) check_said(w, i, m, b);
            break;
        case SL_FAILOVER_COMPLETE:
            if (b->has_route && from == w->nodes[i].f.route.keeper) note_complete(w, i);
            check_complete(w, i, from);
            break;
        case SL_FAILOVER_READY:
            w->nodes[i].ready_us[from - 1] = w->now_us;
            /* The first report counts. */
            if (w->nodes[i].complete_ms[from - 1] == SL_NEVER)
                w->nodes[i].complete_ms[from - 1] = ksim_node_now(w, i).ms - m->ms;
            break;
        default: break;
    }
}

/* ---- ends of grants ---- */

void ksim_leases_ended(struct ksim_world *w, uint32_t i, sl_fence fence)
{
    struct ksim_node *n = &w->nodes[i];
    if (n->ended_term != n->f.guests.term) memset(n->ended, 0, sizeof n->ended);
    n->ended_term = n->f.guests.term;
    n->ended[n->ended_count++ % KSIM_ENDED] = fence;
}

/* A client has left: its request is no longer in the queue. */
void ksim_leases_left(struct ksim_world *w, uint32_t i, const struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_request *o = NULL;
    struct sl_bytes id = ksim_id_of(&q->command);
    struct sl_grant_view v;
    uint64_t cursor = 0;
    while ((o = ksim_conn_next(q->c, o)) != NULL) /* Another attempt may wait. */
        if (o != q && sl_bytes_equal(ksim_id_of(&o->command), id)) return;
    while (sl_table_each(n->table, ksim_node_now(w, i), ksim_key(q->command.key),
                         &cursor, &v))
        if (v.waits && v.session_id == q->c->s.id && sl_bytes_equal(v.request, id))
            KSIM_WRONG(w, "k%u: n%u keeps a waiter whose client has left",
                       q->command.key, i + 1);
}

/* ---- locks without a lease ---- */

/* A node without a route closes the connections of their holders within this time. */
#define CUT_OFF_MS 1200

void ksim_leases_routes(struct ksim_world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct sl_route *r = &w->nodes[i].f.route;
        if (w->nodes[i].up && (r->leads || r->confirmed))
            w->nodes[i].confirmed_us = w->now_us;
    }
}

/* A node counts the time without a route from when the keeper last confirmed its route, or from when etcd
 * still had the same heartbeat. */
static void check_certain(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    const struct sl_route *r = &n->f.route;
    struct sl_election_view v;
    sl_election_view(n->f.election, &v);
    if (r->leads || r->confirmed || r->certain_ms <= v.known_ms || w->rates_change ||
        w->checker.without_clocks)
        return;
    if (real_us(w, i, r->certain_ms) > n->confirmed_us + ROUNDED_US)
        KSIM_WRONG(w, "n%u counts on a route that the keeper has not confirmed", i + 1);
}

/* Until a keeper has confirmed the report of a node, the node closes the connections of clients without a
 * lease in time. */
static void check_cut_off(struct ksim_world *w, uint32_t i)
{
    const struct sl_route *r = &w->nodes[i].f.route;
    check_certain(w, i);
    if (r->leads || r->exporting || r->confirmed || r->ledger.unleased == 0 ||
        r->without_since_ms == 0 || ksim_node_now(w, i).ms < r->certain_ms + CUT_OFF_MS)
        return;
    KSIM_WRONG(w,
               "n%u has no route, and keeps the connection of a client without a lease",
               i + 1);
}

/* A wait ends early only if all nodes that the last keeper has named have reported, except that keeper. */
static void check_reports(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    uint32_t missing = n->last_ledgers &
                       ~(n->f.guests.reported | 2u << i | 1u << n->last_keeper);
    sl_ms now_ms = ksim_node_now(w, i).ms;
    if (now_ms >= n->quiet_until_ms) return;
    if (!n->successor && (n->last_ledgers & ~(1u << n->last_keeper)) == 0)
        KSIM_WRONG(w, "n%u ends its wait early, but the last keeper named no ledgers",
                   i + 1);
    if (missing != 0)
        KSIM_WRONG(w, "n%u has waited for earlier leases, but not for the nodes %#x",
                   i + 1, missing);
    for (uint32_t o = 0; o < w->node_count; o++)
        if (!n->successor && o != i && o + 1 != n->last_keeper &&
            (n->last_ledgers >> (o + 1) & 1) != 0 &&
            now_ms - n->complete_ms[o] < n->longest_ms)
            KSIM_WRONG(w,
                       "n%u has waited for earlier leases, but the ledger of n%u may "
                       "lack some",
                       i + 1, o + 1);
}

/* A new keeper whose ledger may lack leases waits until these have expired. */
void ksim_leases_waited(struct ksim_world *w, uint32_t i)
{
    const struct ksim_node *n = &w->nodes[i];
    sl_ms age_ms = ksim_node_now(w, i).ms - n->f.route.complete_ms;
    check_reports(w, i);
    if (!n->successor && ksim_node_now(w, i).ms < n->quiet_until_ms &&
        age_ms < n->longest_ms)
        KSIM_WRONG(
            w,
            "n%u has waited for earlier leases, but its ledger may lack leases of "
            "the last %" PRId64 " ms",
            i + 1, n->longest_ms - age_ms);
}

void ksim_leases_settled(struct ksim_world *w, uint32_t i,
                         const struct sl_table_stats *stats)
{
    struct ksim_node *n = &w->nodes[i];
    sl_ms now_ms = ksim_node_now(w, i).ms;
    check_cut_off(w, i);
    for (uint32_t o = 0; o < w->node_count; o++)
        if (n->f.guests.nodes[o + 1].ready && n->f.guests.nodes[o + 1].clock_ms != 0)
            n->guest_us = w->now_us;
    for (uint32_t o = 0; o < w->node_count; o++)
        if (n->f.guests.leads && n->f.guests.nodes[o + 1].open) {
            n->open_ms[o] = now_ms;
            n->alone_us = w->now_us;
        }
    if (n->f.route.leads && stats->recovering_until_ms <= now_ms &&
        !sl_list_empty(&n->f.route.ledger.all))
        KSIM_WRONG(w, "n%u ends its wait before it has read its own ledger", i + 1);
}
