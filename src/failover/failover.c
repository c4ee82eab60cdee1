/* failover.c - combines election, route and guests into one node. */
#include "failover/failover.h"

#include <assert.h>

#include "failover/resign.h"
#include "failover/takeover.h"

#define LOCKS_A_STEP 64u
#define JOURNAL_RETRY_MS 250

/* --- Messages, links, time ----------------------------------------------------------------- */

void sl_failover_receive(struct sl_failover *f, struct sl_now now, uint32_t from,
                         const struct sl_failover_message *m, struct sl_bytes name,
                         struct sl_bytes address, uint32_t linked)
{
    /* The previous keeper may send COME when it already knows that this node has claimed the next
     * term, and this node does not know it yet. Without the answer NOT, it would never try again. */
    bool from_keeper = from == f->route.keeper && !f->route.leads;
    sl_keeper_journal_change(&f->journal, now.ms);
    linked &= ~(1u << f->guests.resigner); /* Its leases are in the journal. */
    if (m->type == SL_FAILOVER_COME) sl_takeover_bar(f);
    if (m->type == SL_FAILOVER_DOUBT)
        sl_election_peer_doubts(f->election, now.ms, from, m->term, m->sight);
    else if (m->type != SL_FAILOVER_COME && (m->type == SL_FAILOVER_NOT || from_keeper))
        sl_route_receive(&f->route, now.ms, from, m, name, address);
    else sl_guests_receive(&f->guests, now, from, m, linked);
}

void sl_failover_linked(struct sl_failover *f, sl_ms now_ms, uint32_t node)
{
    sl_election_peer_changed(f->election, now_ms, node, SL_PEER_UP);
    if (node == f->route.keeper) sl_route_link(&f->route, now_ms);
}

void sl_failover_unlinked(struct sl_failover *f, sl_ms now_ms, uint32_t node)
{
    sl_guests_unlinked(&f->guests, now_ms, node);
    if (node == f->route.keeper) sl_route_link(&f->route, now_ms);
}

void sl_failover_sight(struct sl_failover *f, sl_ms now_ms, uint32_t node,
                       enum sl_peer_state sight)
{
    sl_election_peer_changed(f->election, now_ms, node, sight);
}

/* --- The journal --------------------------------------------------------------------------- */

/* Begin the journal of this term. If there is no memory for it, the next tick tries again. */
static void begin_journal(struct sl_failover *f, sl_ms now_ms)
{
    bool begun = sl_keeper_journal_begin(&f->journal, now_ms, f->journal_ms);
    f->read_ms = begun ? now_ms : sl_ms_after(now_ms, JOURNAL_RETRY_MS);
}

/* The table is complete, except for what other nodes report, when all entries and the ledger of this node
 * have been read. */
static void end_reading(struct sl_failover *f, sl_ms now_ms)
{
    if (!f->incomplete || f->guests.reads_journal ||
        !sl_list_empty(&f->route.ledger.all))
        return;
    f->incomplete = false;
    sl_table_recover(f->settings.table,
                     f->quiet_until_ms > now_ms ? f->quiet_until_ms : 0);
}

bool sl_failover_recorded(struct sl_failover *f, sl_ms now_ms, uint64_t term,
                          const struct sl_storage_result *d)
{
    if (d->status == SLUICE_ESTALE) sl_election_refused(f->election, now_ms, d->term);
    /* A node writes nothing before its last write is answered. So if this was a write of an earlier term,
     * none of this term is under way, and the journal ignores the answer. */
    bool counts = f->journal.frame.n > 0;
    assert(!counts || (f->route.leads && term == f->guests.term));
    if (counts && d->status == SLUICE_OK) sl_resign_recorded(f, now_ms);
    return sl_keeper_journal_written(&f->journal, now_ms, d->status == SLUICE_OK);
}

int sl_failover_journal_read(struct sl_failover *f, struct sl_now now, uint64_t term,
                             const struct sl_storage_result *d, uint32_t *bad)
{
    f->reading = false;
    if (!f->route.leads || term != f->guests.term) return SLUICE_OK;
    int status = d->status;
    if (status == SLUICE_OK)
        status = sl_keeper_journal_restore(&f->journal, now, d->rows, d->row_count,
                                           d->more, bad);
    if (status == SLUICE_EINVAL) {
        f->unreadable = true;
        return SLUICE_EINVAL;
    }
    struct sl_bytes after;
    if (status != SLUICE_OK) f->read_ms = sl_ms_after(now.ms, JOURNAL_RETRY_MS);
    else if (!sl_keeper_journal_reads(&f->journal, &after)) {
        sl_guests_journal_read(&f->guests);
        end_reading(f, now.ms);
    }
    return SLUICE_OK;
}

/* When the next entries are due to be read, or SL_NEVER. */
static sl_ms read_due(const struct sl_failover *f)
{
    struct sl_bytes after;
    if (!f->route.leads || f->reading || f->unreadable) return SL_NEVER;
    bool reads = f->journal.rules == NULL ||
                 sl_keeper_journal_reads(&f->journal, &after);
    if (!reads) return SL_NEVER;
    /* Nodes report first, because they also know the sessions of the grants. */
    sl_ms reports = f->guests.reports_until_ms;
    return reports > f->read_ms ? reports : f->read_ms;
}

/* Get the next order of the journal. */
static bool next_of_journal(struct sl_failover *f, sl_ms now_ms,
                            struct sl_failover_order *out)
{
    *out = (struct sl_failover_order){.term = f->guests.term};
    if (f->journal.rules == NULL) return false;
    if (read_due(f) <= now_ms) {
        out->type = SL_FAILOVER_ORDER_JOURNAL;
        f->reading = sl_keeper_journal_reads(&f->journal, &out->after);
        return true;
    }
    out->type = SL_FAILOVER_ORDER_RECORD;
    return sl_keeper_journal_next(&f->journal, now_ms, &out->writes, &out->write_count);
}

/* --- Time ------------------------------------------------------------------------------------ */

void sl_failover_tick(struct sl_failover *f, sl_ms now_ms)
{
    if (f->route.leads && f->journal.rules == NULL && f->read_ms <= now_ms)
        begin_journal(f, now_ms);
    sl_resign_go_on(f, now_ms);
    end_reading(f, now_ms);
    sl_takeover_tick(f, now_ms);
    sl_keeper_journal_tidy(&f->journal, now_ms);
    if (sl_election_due(f->election) <= now_ms) sl_election_tick(f->election, now_ms);
    if (sl_route_due(&f->route) <= now_ms) sl_route_tick(&f->route, now_ms);
}

sl_ms sl_failover_due(const struct sl_failover *f)
{
    sl_ms due = sl_election_due(f->election);
    sl_ms route = sl_route_due(&f->route), guests = sl_guests_due(&f->guests);
    sl_ms journal = sl_keeper_journal_due(&f->journal), read = read_due(f);
    sl_ms resign = sl_resign_due(f);
    if (route < due) due = route;
    if (guests < due) due = guests;
    if (journal < due) due = journal;
    if (resign < due) due = resign;
    if (sl_takeover_due(f) < due) due = sl_takeover_due(f);
    return read < due ? read : due;
}

/* --- The storage ---------------------------------------------------------------------------- */

void sl_failover_term_read(struct sl_failover *f, sl_ms now_ms, sl_ms asked_ms,
                           const struct sl_storage_result *d)
{
    sl_election_term_read(f->election, now_ms, asked_ms, d);
}

void sl_failover_claimed(struct sl_failover *f, sl_ms now_ms, sl_ms asked_ms,
                         const struct sl_storage_result *d)
{
    sl_election_claimed(f->election, now_ms, asked_ms, d);
}

/* The table must not grant after the authority of this node has ended. */
static void pass_authority(struct sl_failover *f)
{
    struct sl_election_view v;
    sl_election_view(f->election, &v);
    sl_table_set_authority(f->settings.table, f->resigning ? 0 : v.authority_end_ms);
}

bool sl_failover_renewed(struct sl_failover *f, sl_ms now_ms, sl_ms asked_ms,
                         uint64_t term, const struct sl_storage_result *d)
{
    sl_election_renewed(f->election, now_ms, asked_ms, term, d);
    if (!f->route.leads) return false;
    pass_authority(f);
    /* A node sends no renewal before the last one is answered. So if this was a renewal of an earlier
     * term, none of this term was sent. */
    assert(term == f->guests.term || (!f->limits_sent && f->ledgers_sent == 0));
    if (d->status == SLUICE_OK) sl_takeover_renewed(f);
    bool wrote = f->limits_sent;
    f->limits_sent = false;
    return wrote;
}

bool sl_failover_write_limits(struct sl_failover *f, sl_ms now_ms, sl_fence fence_limit,
                              sl_ms longest_ms)
{
    if (!f->route.leads) return false;
    f->fence_limit = fence_limit;
    f->longest_ms = longest_ms;
    f->limits_wanted = true;
    sl_election_hurries(f->election, now_ms);
    return true;
}

/* --- A term begins and ends -------------------------------------------------------------------- */

void sl_failover_lead(struct sl_failover *f, sl_ms now_ms,
                      const struct sl_failover_order *o, uint32_t linked)
{
    sl_route_lead(&f->route, now_ms, f->settings.self, o->term);
    f->fence_limit = o->before.fence_limit;
    f->longest_ms = o->before.longest_ms;
    f->limits_wanted = f->limits_sent = false;
    pass_authority(f);
    /* The storage may not know the time of the last term, if the answer to the claim was lost. */
    f->journal_ms = o->before.clock_ms > f->claimed_ms ? o->before.clock_ms
                                                       : f->claimed_ms;
    f->unreadable = false;
    sl_table_recover(f->settings.table, SL_NEVER); /* Until end_reading(). */
    f->incomplete = true;
    begin_journal(f, now_ms);
    sl_takeover_lead(f, now_ms, o);
    sl_guests_lead(&f->guests, now_ms, o->term, o->quiet_ms > 0, o->before.longest_ms,
                   linked & ~(1u << f->guests.resigner));
    sl_guests_is_complete(&f->guests, now_ms, now_ms - f->route.complete_ms);
}

static void stop(struct sl_failover *f, sl_ms now_ms)
{
    sl_table_set_authority(f->settings.table, 0);
    sl_resign_end(f);
    sl_keeper_journal_end(&f->journal);
    sl_table_recover(f->settings.table, 0);
    f->export_cursor = 0;
    f->incomplete = false;
    f->limits_wanted = f->limits_sent = false;
    sl_route_step_down(&f->route, now_ms);
    sl_guests_stop(&f->guests);
}

/* Copy a grant to the ledger, unless it has no lease and its holder is not a client of this node:
 * the holder's node has a record of such a grant. Its client may not know of the last extension, so
 * this record does not allow the next keeper to extend the lease. Another node, or the journal, does. */
static void export(struct sl_failover *f, sl_ms now_ms, struct sl_bytes key,
                   const struct sl_grant_view *v)
{
    struct sl_route_session *n = sl_route_session_find(&f->route, v->session_id);
    if (!v->leased && n == NULL) return;
    const struct sl_record x = sl_record_of(key, v, n != NULL ? n->id : 0,
                                            v->leased ? v->end_ms : SL_NEVER,
                                            v->leased ? now_ms : SL_NEVER);
    if (!sl_ledger_put(&f->route.ledger, &x, n != NULL ? &n->held : NULL))
        f->route.complete_ms = now_ms;
    if (n != NULL) sl_route_knows(n, v->fence);
}

bool sl_failover_export(struct sl_failover *f, struct sl_now now, uint32_t *budget)
{
    struct sl_table *table = f->settings.table;
    struct sl_lock_view at[LOCKS_A_STEP];
    assert(f->route.exporting);
    do {
        if (*budget < LOCKS_A_STEP) return false;
        size_t n = sl_table_scan(table, now, &f->export_cursor, at, LOCKS_A_STEP);
        *budget -= LOCKS_A_STEP;
        for (size_t i = 0; i < n; i++) {
            struct sl_grant_view v;
            uint64_t each = 0;
            while (sl_table_each(table, now, at[i].key, &each, &v) && !v.waits)
                export(f, now.ms, at[i].key, &v);
        }
    } while (f->export_cursor != 0);
    sl_table_reset(table);
    sl_route_exported(&f->route);
    return true;
}

bool sl_failover_reclaim_own(struct sl_failover *f, struct sl_now now, sl_ms *given_ms)
{
    struct sl_ledger *l = &f->route.ledger;
    *given_ms = 0;
    if (!f->route.leads || sl_list_empty(&l->all)) return false;
    sl_keeper_journal_change(&f->journal, now.ms);
    struct sl_record *x = sl_container_of(l->all.next, struct sl_record, all);
    struct sl_route_session *n = x->session == 0
                                     ? NULL
                                     : sl_route_session_find(&f->route, x->session);
    const struct sl_grant_view v = sl_record_view(x, now.ms);
    bool added;
    sl_guests_reported(&f->guests, now, &v, x->key);
    if (x->end_ms > now.ms && !x->unanswered && (x->leased || n != NULL) &&
        !sl_guests_withdrew(&f->guests, x->key, &v) &&
        sl_guests_reclaim(&f->guests, now, n == NULL ? NULL : n->session, NULL, &v,
                          x->key, &added) &&
        added && v.leased)
        *given_ms = v.left_ms;
    sl_ledger_drop(l, x);
    return true;
}

/* --- Orders ---------------------------------------------------------------------------------- */

static sl_ms journal_time(const struct sl_failover *f, sl_ms now_ms)
{
    return f->journal.rules != NULL ? sl_keeper_journal_time(&f->journal, now_ms)
                                    : f->journal_ms;
}

/* Handle an order of the election. Returns false if the caller has nothing to do. */
static bool carry_out(struct sl_failover *f, sl_ms now_ms,
                      const struct sl_election_order *o, struct sl_failover_order *out)
{
    struct sl_election_view v;
    *out = (struct sl_failover_order){.term = o->term,
                                      .heartbeat = o->heartbeat,
                                      .node = o->node,
                                      .before = o->before,
                                      .quiet_ms = o->quiet_ms,
                                      .authority_ms = o->authority_ms,
                                      .fence_limit = f->fence_limit,
                                      .longest_ms = f->longest_ms};
    switch (o->type) {
        case SL_ELECTION_ORDER_READ_TERM:
            out->type = SL_FAILOVER_ORDER_READ_TERM;
            break;
        case SL_ELECTION_ORDER_CLAIM:
            sl_election_view(f->election, &v);
            out->type = SL_FAILOVER_ORDER_CLAIM;
            out->clock_ms = f->claimed_ms = v.current.clock_ms; /* It stands still. */
            break;
        case SL_ELECTION_ORDER_RENEW:
            out->type = SL_FAILOVER_ORDER_RENEW;
            out->clock_ms = journal_time(f, now_ms);
            out->ledgers = sl_takeover_renews(f, now_ms);
            f->limits_sent = f->limits_wanted;
            f->limits_wanted = false;
            break;
        case SL_ELECTION_ORDER_RESIGN:
            out->type = SL_FAILOVER_ORDER_RESIGN;
            out->clock_ms = journal_time(f, now_ms);
            out->ledgers = sl_takeover_resigns(f, now_ms);
            break;
        case SL_ELECTION_ORDER_DOUBT:
            out->type = SL_FAILOVER_ORDER_DOUBT;
            out->message = (struct sl_failover_message){
                .type = SL_FAILOVER_DOUBT, .term = o->term, .sight = o->sight};
            break;
        case SL_ELECTION_ORDER_LEAD: out->type = SL_FAILOVER_ORDER_LEAD; break;
        case SL_ELECTION_ORDER_STOP:
            if (!f->route.leads) return false;
            stop(f, now_ms);
            out->type = SL_FAILOVER_ORDER_STOP;
            break;
        case SL_ELECTION_ORDER_KEEPER:
            if (f->route.leads) return false;
            sl_route_keeper(&f->route, now_ms, o->node, o->term);
            out->type = SL_FAILOVER_ORDER_KEEPER;
            break;
    }
    return true;
}

bool sl_failover_next(struct sl_failover *f, sl_ms now_ms,
                      struct sl_failover_order *out)
{
    struct sl_election_order o;
    while (sl_election_next(f->election, &o))
        if (carry_out(f, now_ms, &o, out)) return true;
    return next_of_journal(f, now_ms, out);
}

/* --- Life ------------------------------------------------------------------------------------ */

static bool withdrew(const void *guests, struct sl_bytes key,
                     const struct sl_grant_view *v)
{
    return sl_guests_withdrew(guests, key, v);
}

static void broke(void *guests, sl_ms now_ms, sl_fence fence, bool stolen)
{
    if (stolen) sl_guests_stole(guests, now_ms, fence);
    else sl_guests_broke(guests, now_ms, fence, false);
}

bool sl_failover_init(struct sl_failover *f, const struct sl_failover_settings *s,
                      sl_ms now_ms)
{
    struct sl_election_settings set = sl_election_settings_default;
    set.self = s->self;
    *f = (struct sl_failover){.settings = *s};
    f->election = sl_election_new(&set, now_ms);
    if (f->election == NULL) return false;
    const struct sl_route_settings route = {.keeper_wait_ms = s->keeper_wait_ms,
                                            .hash_key = s->hash_key,
                                            .election = f->election};
    sl_route_init(&f->route, &route, now_ms);
    sl_guests_init(&f->guests, s->table, s->hash_key);
    f->guests.volatile_ms = s->volatile_ms;
    f->guests.own = &f->route.withdrawn;
    const struct sl_keeper_journal_settings journal = {.hash_key = s->hash_key,
                                                       .table = s->table,
                                                       .volatile_ms = s->volatile_ms,
                                                       .entries_max = s->entries_max,
                                                       .bytes_max = s->entry_bytes_max,
                                                       .withdrew = withdrew,
                                                       .broke = broke,
                                                       .arg = &f->guests};
    return sl_keeper_journal_init(&f->journal, &journal);
}

void sl_failover_free(struct sl_failover *f)
{
    sl_resign_end(f);
    sl_route_free(&f->route);
    sl_guests_free(&f->guests);
    sl_keeper_journal_free(&f->journal);
    sl_election_free(f->election);
}

#define must(so, what) assert((so) && what)

void sl_failover_check(const struct sl_failover *f)
{
    struct sl_table_stats stats;
    sl_table_stats(f->settings.table, &stats);
    sl_election_check(f->election);
    sl_route_check(&f->route);
    sl_guests_check(&f->guests);
    must(f->route.leads == f->guests.leads, "the route and the guests agree who leads");
    must(!f->route.leads || f->route.keeper_term == f->guests.term,
         "a keeper serves its own term");
    sl_keeper_journal_check(&f->journal);
    must(!f->resigning || (f->route.leads && stats.authority_until_ms == 0),
         "a keeper that resigns has no authority");
    must(f->route.leads || f->journal.rules == NULL, "only a keeper has a journal");
    must(!f->limits_wanted || f->route.leads, "only a keeper writes limits");
    must(!f->route.leads || !f->no_ledgers || f->ledgers == 0,
         "the storage has either some ledgers or none");
    must(f->route.leads || f->route.exporting || stats.keys == 0,
         "only a keeper has locks");
}
