/* takeover.c - the wait of a new keeper, and what a keeper does to shorten the wait of the next one. */
#include "failover/takeover.h"

/* --- The new keeper ---------------------------------------------------------------------------- */

static uint32_t members_of(const struct sl_failover *f)
{
    uint32_t members = 0;
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++)
        if (sl_election_has_member(f->election, i)) members |= 1u << i;
    return members;
}

void sl_takeover_lead(struct sl_failover *f, sl_ms now_ms,
                      const struct sl_failover_order *o)
{
    const struct sl_storage_term *before = &o->before;
    struct sl_guests *g = &f->guests;
    uint32_t last = before->node % SL_ELECTION_NODES_MAX;
    uint32_t ledgers = before->ledgers;
    if (before->resigned) ledgers |= members_of(f); /* It may be of an older version. */
    f->quiet_until_ms = o->quiet_ms > 0 ? sl_ms_after(now_ms, o->quiet_ms) : 0;
    f->authority_until_ms = sl_ms_after(now_ms, o->authority_ms);
    f->ends_early = o->quiet_ms > 0 && ledgers != 0;
    sl_table_set_rival(f->settings.table, o->quiet_ms > 0 && !before->resigned
                                              ? f->authority_until_ms
                                              : 0);
    g->resigner = before->resigned ? last : 0;
    g->needed = ledgers & ~(1u << last | 1u << f->settings.self);
    f->ledgers = f->ledgers_sent = 0;
    f->no_ledgers = true;
    f->alone_until_ms = f->alone_at_ms = 0;
    f->alone_asked = false;
    /* Until the leases of earlier keepers have expired, a node may be the only one that has them, even
     * if it is no longer a member. */
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++)
        if (((before->ledgers | 1u << last) >> i & 1) != 0)
            g->nodes[i].until_ms = f->quiet_until_ms;
}

static bool all_reported(const struct sl_failover *f)
{
    struct sl_bytes after;
    return !f->unreadable && f->journal.rules != NULL &&
           !sl_keeper_journal_reads(&f->journal, &after) &&
           sl_list_empty(&f->route.ledger.all) &&
           (f->guests.needed & ~f->guests.reported) == 0;
}

/* A keeper that has resigned has recorded all its leases. Otherwise the previous keeper may grant until
 * its authority ends, and a ledger may lack leases that were granted before its node was started. */
static void end_early(struct sl_failover *f, sl_ms now_ms)
{
    struct sl_guests *g = &f->guests;
    if (!f->ends_early || !all_reported(f)) return;
    sl_ms until_ms = f->authority_until_ms > g->complete_ms ? f->authority_until_ms
                                                            : g->complete_ms;
    if (g->resigner != 0) until_ms = now_ms;
    f->ends_early = false;
    g->resigner = g->needed = 0;
    if (until_ms >= f->quiet_until_ms) return;
    f->quiet_until_ms = until_ms > now_ms ? until_ms : 0;
    sl_table_recover(f->settings.table, f->quiet_until_ms);
}

/* --- The keeper, for the next one --------------------------------------------------------------- */

static bool is_quiet(const struct sl_failover *f, sl_ms now_ms)
{
    struct sl_table_stats stats;
    sl_table_stats(f->settings.table, &stats);
    return stats.recovering_until_ms > now_ms;
}

uint32_t sl_takeover_renews(struct sl_failover *f, sl_ms now_ms)
{
    bool none = is_quiet(f, now_ms) || f->alone_until_ms > now_ms ||
                (f->guests.witness.node == 0 && f->alone_asked);
    f->ledgers_sent = none ? 0 : sl_guests_ledgers(&f->guests, now_ms, members_of(f));
    /* Even if the renewal is reported as failed, the storage may have executed it. */
    f->ledgers &= f->ledgers_sent;
    f->no_ledgers = f->no_ledgers && f->ledgers_sent == 0;
    return f->ledgers_sent;
}

uint32_t sl_takeover_resigns(const struct sl_failover *f, sl_ms now_ms)
{
    return sl_guests_ledgers(&f->guests, now_ms, members_of(f));
}

void sl_takeover_renewed(struct sl_failover *f)
{
    f->ledgers = f->ledgers_sent;
    f->no_ledgers = f->ledgers == 0;
}

void sl_takeover_bar(struct sl_failover *f)
{
    uint32_t open = f->no_ledgers ? UINT32_MAX : f->ledgers;
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++)
        if (f->guests.nodes[i].open) open |= 1u << i;
    f->guests.barred = ~open;
}

uint64_t sl_failover_note(struct sl_failover *f, struct sl_now now, struct sl_bytes key,
                          sl_fence fence)
{
    struct sl_grant_view v;
    if (!f->route.leads ||
        !sl_table_inspect_grant(f->settings.table, now, key, fence, &v) || !v.leased ||
        sl_keeper_journal_covers(&f->journal, fence, now.ms, v.end_ms))
        return 0;
    uint64_t number = sl_witness_note(&f->guests.witness, key, fence);
    return number != 0 ? number : SL_NOTE_FAILED;
}

uint64_t sl_failover_noted(const struct sl_failover *f)
{
    return f->guests.witness.noted;
}

/* --- Ledgers of nodes that were started recently ------------------------------------------------ */

/* How many bytes of one key to send in one step. */
#define FILL_BYTES 65536u

enum filled { FILLED, FILL_MORE, FILL_LATER };

/* Send the leases of a key that are not in the journal, in the order of their fences. */
static enum filled fill_key(struct sl_failover *f, struct sl_now now, uint32_t to,
                            struct sl_bytes key, sl_failover_send *send, void *arg)
{
    struct sl_guest_node *n = &f->guests.nodes[to];
    uint64_t each = 0, hash = sl_hash(f->settings.hash_key, key.at, key.n);
    struct sl_grant_view v;
    size_t bytes = 0;
    if (n->filling != hash) n->filled_fence = 0; /* It is another key. */
    n->filling = hash;
    while (sl_table_each(f->settings.table, now, key, &each, &v) && !v.waits) {
        if (v.fence <= n->filled_fence || !v.leased) continue;
        /* The storage may never execute the write. If it does, the grant needs no note. */
        if (sl_keeper_journal_writes(&f->journal, v.fence)) {
            sl_journal_await(f->journal.rules, sl_journal_last(f->journal.rules));
            return FILL_LATER;
        }
        if (v.broken ||
            sl_keeper_journal_covers(&f->journal, v.fence, now.ms, v.end_ms))
            continue;
        if (bytes >= FILL_BYTES) return FILL_MORE;
        const struct sl_failover_message client = {
            .type = SL_FAILOVER_CLIENT, .name = v.name, .address = v.address};
        if (v.name.n + v.address.n > 0) send(arg, to, &client);
        const struct sl_failover_message note = sl_note_for(n, now.ms, key, &v);
        send(arg, to, &note);
        n->filled_fence = v.fence;
        bytes += key.n + v.value.n + v.note.n + v.name.n + v.address.n + 256;
    }
    n->filling = 0;
    return FILLED;
}

bool sl_failover_fill(struct sl_failover *f, struct sl_now now, uint32_t able,
                      sl_failover_send *send, void *arg)
{
    const struct sl_failover_message complete = {.type = SL_FAILOVER_COMPLETE};
    struct sl_lock_view l;
    if (!f->route.leads || is_quiet(f, now.ms)) return false;
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++) {
        struct sl_guest_node *n = &f->guests.nodes[i];
        if (!n->lacks || n->clock_ms == 0 || (able >> i & 1) == 0) continue;
        uint64_t before = n->filled;
        enum filled done = FILLED;
        if (sl_table_scan(f->settings.table, now, &n->filled, &l, 1) == 1)
            done = fill_key(f, now, i, l.key, send, arg);
        if (done != FILLED) n->filled = before; /* Continue with this key. */
        if (done != FILLED) return done == FILL_MORE;
        n->lacks = n->filled != 0;
        if (!n->lacks) send(arg, i, &complete);
        return true;
    }
    return false;
}

/* --- Time ------------------------------------------------------------------------------------------ */

/* If a keeper is cut off from the other nodes, but not from the storage, they claim the next term within
 * this time. If it wrote earlier that there are no ledgers, the next keeper would wait for all short
 * leases. */
#define ALONE_MS 4500

static void go_on_alone(struct sl_failover *f, sl_ms now_ms)
{
    struct sl_witness *w = &f->guests.witness;
    if (w->node != 0 || w->noted == w->last) {
        f->alone_at_ms = 0;
        f->alone_asked = false;
        return;
    }
    if (f->alone_at_ms == 0 && !sl_witness_is_missing(w)) return;
    if (f->no_ledgers) {
        f->alone_until_ms = sl_ms_after(now_ms, f->settings.volatile_ms);
        sl_witness_noted(w, w->last);
        return;
    }
    if (f->alone_at_ms == 0) {
        f->alone_at_ms = sl_ms_after(now_ms, ALONE_MS);
        f->alone_asked = false;
    }
    if (f->alone_at_ms > now_ms || f->alone_asked) return;
    f->alone_asked = true;
    sl_election_hurries(f->election, now_ms);
}

void sl_takeover_tick(struct sl_failover *f, sl_ms now_ms)
{
    if (!f->route.leads) return;
    end_early(f, now_ms);
    go_on_alone(f, now_ms);
}

sl_ms sl_takeover_due(const struct sl_failover *f)
{
    bool waits = f->route.leads && f->alone_at_ms != 0 && !f->alone_asked;
    return waits ? f->alone_at_ms : SL_NEVER;
}
