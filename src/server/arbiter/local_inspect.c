/* local_inspect.c - EXPLAIN and LOCKS for keys that the lock table of this server decides. */
#include <inttypes.h>
#include <string.h>

#include "server/arbiter/local.h"
#include "server/arbiter/state.h"
#include "server/observe/inspection.h"
#include "sluice.h"

/* --- Why a request waits --------------------------------------------------- */

struct wait_reason {
    struct sl_grant_view first; /* The first waiter of the queue, if has_first. */
    bool has_first;             /* add_waiters() has set `first`. */
    sl_ms quiet_ms; /* For how long the server grants nothing; 0: it grants. */
    /* The server grants nothing because it is a new keeper, not because of a crash. */
    bool new_keeper;
    bool has_thief; /* At least one waiter uses STEAL. */
};

static uint64_t capacity_of(const struct sl_grant_view *v)
{
    return (uint64_t)v->per * v->buckets;
}

/* Write why a waiter waits, following the rules in src/locks/README.md. */
static void write_wait_reason(const struct wait_reason *reason,
                              const struct sl_lock_view *l,
                              const struct sl_grant_view *v, char *out)
{
    char time[SL_AGE_BYTES];
    uint64_t capacity = capacity_of(v);
    size_t n = SL_REASON_BYTES;
    if (reason->quiet_ms > 0)
        snprintf(
            out, n,
            reason->new_keeper
                ? "the new keeper waits for leases of the previous keeper to expire: "
                  "it grants no lock for another %s"
                : "the server waits for leases that it does not know to expire: "
                  "it grants no lock for another %s",
            sl_age_text(reason->quiet_ms, time));
    else if (v->shared && l->held == SLUICE_UNITS_MAX)
        snprintf(out, n, "held exclusively");
    else if (v->shared && l->held > 0)
        snprintf(out, n, "held exclusively: %" PRIu64 " %s held", l->held,
                 l->held == 1 ? "unit" : "units");
    else if (!v->shared && l->shared)
        snprintf(out, n, "shared by %" PRIu32 " %s", l->holders,
                 l->holders == 1 ? "holder" : "holders");
    else if (!v->shared && l->held == SLUICE_UNITS_MAX)
        snprintf(out, n, "full: the holder has all units that a lock can have");
    else if (!v->shared && v->units == SLUICE_UNITS_MAX && l->held > 0)
        snprintf(out, n, "full: %" PRIu64 " %s held, all requested", l->held,
                 l->held == 1 ? "unit" : "units");
    else if (!v->shared && l->held + v->units > capacity)
        snprintf(out, n,
                 "full: %" PRIu64 " of %" PRIu64 " units held, %" PRIu32 " requested",
                 l->held, capacity, v->units);
    else if (reason->has_first && reason->first.priority > v->priority)
        snprintf(out, n, "queued behind a waiter with priority %" PRId32,
                 reason->first.priority);
    else if (reason->has_first)
        snprintf(out, n,
                 "queued behind an earlier waiter with the same or a larger capacity");
    else snprintf(out, n, "next in the queue");
}

static void add_stealing(const struct wait_reason *reason, struct sl_inspection *i)
{
    const struct sl_lock_view *l = &i->lock;
    if (l->reserved)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "reserved for a waiter with STEAL and priority %" PRId32
                 ": the server has asked %" PRIu32 " %s to release",
                 l->reserved_priority, l->asked, l->asked == 1 ? "holder" : "holders");
    else if (reason->has_thief)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "a waiter with STEAL cannot preempt: a waiter without STEAL is ahead "
                 "of it, "
                 "or a holder has the same or a higher priority");
}

/* Describe the state of the lock in sentences. */
static void add_sentences(const struct wait_reason *reason, struct sl_inspection *i)
{
    const struct sl_lock_view *l = &i->lock;
    char time[SL_AGE_BYTES];
    if (reason->quiet_ms > 0)
        snprintf(
            sl_inspection_sentence(i), SL_SENTENCE_BYTES,
            reason->new_keeper
                ? "the keeper is new and may not know all holders yet: it grants no "
                  "lock for another %s"
                : "the server may not know all holders, because its machine lost "
                  "power or its data was moved: it grants no lock for another %s",
            sl_age_text(reason->quiet_ms, time));
    if (reason->quiet_ms == 0 || l->holders + l->waiters > 0)
        sl_inspection_summarize(i, "");
    if (l->watchers > 0)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "%" PRIu32 " %s it with AWAIT", l->watchers,
                 l->watchers == 1 ? "client watches" : "clients watch");
    add_stealing(reason, i);
    if (l->drained)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "drained: the server grants no request for this key");
    if (l->next_overlaps)
        snprintf(
            sl_inspection_sentence(i), SL_SENTENCE_BYTES,
            "a grant was broken: the server will mark the next grant as overlapping");
}

/* --- Inspection -------------------------------------------------------------- */

static void add_holders(const struct server *s, struct sl_inspection *i)
{
    uint64_t cursor = 0;
    while (
        i->holder_count < i->lock.holders && i->holder_count < SL_SHOWN_MAX &&
        sl_table_each(s->table, s->now, i->key, &cursor, &i->holders[i->holder_count]))
        i->holder_count++;
}

static void add_waiters(const struct server *s, struct sl_inspection *i,
                        struct wait_reason *reason)
{
    uint64_t cursor = SL_EACH_WAITER;
    while (i->waiter_count < i->lock.waiters && i->waiter_count < SL_SHOWN_MAX) {
        struct sl_grant_view *v = &i->waiters[i->waiter_count];
        if (!sl_table_each(s->table, s->now, i->key, &cursor, v)) break;
        write_wait_reason(reason, &i->lock, v, i->reasons[i->waiter_count]);
        if (!reason->has_first) reason->first = *v;
        reason->has_first = true;
        if (v->steals) reason->has_thief = true;
        i->waiter_count++;
    }
}

static void explain(struct server *s, struct sl_inspection *i)
{
    struct wait_reason reason = {.new_keeper = sl_local_of(s)->reclaims};
    sl_server_spend(s, s->drain_words * i->key.n);
    if (!sl_table_inspect(s->table, s->now, i->key, &i->lock))
        i->lock = (struct sl_lock_view){.drained = sl_table_drained(s->table, i->key)};
    reason.quiet_ms = sl_state_quiet_ms(s);
    add_holders(s, i);
    add_waiters(s, i, &reason);
    add_sentences(&reason, i);
}

void sl_local_inspect(const struct arbiter *a, struct sl_inspection *i)
{
    struct server *s = a->s;
    if (i->of == SL_INSPECT_LOCK) explain(s, i);
    else if (i->of == SL_INSPECT_LOCKS)
        i->found_count += (i->waited ? sl_table_scan_waited : sl_table_scan)(
            s->table, s->now, &i->cursor, i->found + i->found_count, i->found_max);
}
