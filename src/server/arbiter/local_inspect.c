/* local_inspect.c - EXPLAIN and LOCKS for keys that the lock table of this server decides. */
#include <inttypes.h>
#include <string.h>

#include "server/arbiter/local.h"
#include "server/observe/inspection.h"

/* --- Why a request waits --------------------------------------------------- */

struct wait_reason {
    struct sl_grant_view first; /* The first waiter of the queue, */
    bool has_first;             /* once add_waiters() has seen it. */
    sl_ms quiet_ms;             /* How long the server grants nothing; 0: it grants. */
    bool new_keeper;            /* The reason for that: a new keeper, not a crash. */
    bool has_thief;             /* One of the waiters steals. */
};

static uint64_t capacity_of(const struct sl_grant_view *v)
{
    return (uint64_t)v->per * v->buckets;
}

/* Write the sentence that says why a waiter waits, by the rules of src/locks/README.md. */
static void write_wait_reason(const struct wait_reason *reason,
                              const struct sl_lock_view *l,
                              const struct sl_grant_view *v, char *out, size_t n)
{
    const char *are = l->held == 1 ? "unit is" : "units are";
    uint64_t capacity = capacity_of(v);
    if (reason->quiet_ms > 0)
        snprintf(out, n,
                 reason->new_keeper
                     ? "the keeper is new and waits for leases that the previous one "
                       "granted: it grants nothing for %" PRId64 " ms"
                     : "the server recovers from a crash: it grants nothing for "
                       "%" PRId64 " ms",
                 reason->quiet_ms);
    else if (v->shared && l->held > 0)
        snprintf(out, n, "it is shared, and %" PRIu64 " %s held by others", l->held,
                 are);
    else if (!v->shared && l->shared)
        snprintf(out, n, "the lock is shared by %" PRIu32 " now", l->holders);
    else if (!v->shared && l->held + v->units > capacity)
        snprintf(out, n,
                 "%" PRIu64 " %s held; with its %" PRIu32
                 " that is more than the room of %" PRIu64 " it declares",
                 l->held, are, v->units, capacity);
    else if (reason->has_first && reason->first.priority > v->priority)
        snprintf(out, n, "one with priority %" PRId32 " is before it",
                 reason->first.priority);
    else if (reason->has_first)
        snprintf(out, n,
                 "one that came earlier is before it, and declares no less room");
    else snprintf(out, n, "it is next");
}

/* Describe the state of the lock in sentences. */
static void add_sentences(const struct wait_reason *reason, struct sl_inspection *i)
{
    const struct sl_lock_view *l = &i->lock;
    if (reason->quiet_ms > 0)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 reason->new_keeper
                     ? "the keeper is new and may not know all holders yet: it grants "
                       "nothing for %" PRId64 " ms"
                     : "the server recovers from a crash and does not know the "
                       "holders: it grants nothing for %" PRId64 " ms",
                 reason->quiet_ms);
    else if (l->holders == 0)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES, "nobody holds it");
    else if (l->shared)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "%" PRIu32 " hold it, and share it", l->holders);
    else
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "%" PRIu32 " %s it: %" PRIu64 " %s", l->holders,
                 l->holders == 1 ? "holds" : "hold", l->held,
                 l->held == 1 ? "unit" : "units");
    if (l->waiters > 0)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES, "%" PRIu32 " %s for it",
                 l->waiters, l->waiters == 1 ? "waits" : "wait");
    if (l->watchers > 0)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "%" PRIu32 " %s it with AWAIT", l->watchers,
                 l->watchers == 1 ? "watches" : "watch");
    if (l->reserved)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "a thief with priority %" PRId32 " has reserved it: %" PRIu32 " asked",
                 l->reserved_priority, l->asked);
    else if (reason->has_thief)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "a thief waits and asks nobody: one before it does not steal, or not "
                 "all in "
                 "its way have less priority");
    if (l->drained)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "it is drained: nothing is granted");
    if (l->next_overlaps)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "a grant was broken: the next one is marked as overlapping");
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
        write_wait_reason(reason, &i->lock, v, i->why[i->waiter_count],
                          SL_SENTENCE_BYTES);
        if (!reason->has_first) reason->first = *v;
        reason->has_first = true;
        if (v->steals) reason->has_thief = true;
        i->waiter_count++;
    }
}

static void explain(struct server *s, struct sl_inspection *i)
{
    struct wait_reason reason = {.new_keeper = sl_local_of(s)->reclaims};
    struct sl_table_stats table;
    sl_server_spend(s, s->drain_words * i->key.n);
    if (!sl_table_inspect(s->table, s->now, i->key, &i->lock))
        i->lock = (struct sl_lock_view){.drained = sl_table_drained(s->table, i->key)};
    sl_table_stats(s->table, &table);
    if (table.recovering_until_ms > s->now.ms)
        reason.quiet_ms = table.recovering_until_ms - s->now.ms;
    add_holders(s, i);
    add_waiters(s, i, &reason);
    add_sentences(&reason, i);
}

void sl_local_inspect(const struct arbiter *a, struct sl_inspection *i)
{
    struct server *s = a->s;
    if (i->of == SL_INSPECT_LOCK) explain(s, i);
    else if (i->of == SL_INSPECT_LOCKS)
        i->found_count += sl_table_scan(s->table, s->now, &i->cursor,
                                        i->found + i->found_count, i->found_max);
}
