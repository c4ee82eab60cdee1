/* resign.c - a keeper hands its term over, so that its successor does not wait for leases. */
#include "failover/resign.h"

#define SILENCE_MS 2000 /* How long the storage may take to write a record, */
#define TOTAL_MS 3000   /* and to write all. */

/* --- The keeper that resigns ----------------------------------------------------------------- */

/* Whether the table has all leases that are valid. */
static bool knows_all(const struct sl_failover *f, sl_ms now_ms)
{
    struct sl_table_stats stats;
    struct sl_bytes after;
    sl_table_stats(f->settings.table, &stats);
    return f->route.leads && f->journal.rules != NULL &&
           !sl_keeper_journal_reads(&f->journal, &after) &&
           sl_list_empty(&f->route.ledger.all) && stats.recovering_until_ms <= now_ms;
}

bool sl_failover_resign(struct sl_failover *f, sl_ms now_ms)
{
    if (f->resigning) return true;
    if (!knows_all(f, now_ms)) return false;
    f->resigning = true;
    f->recorded = false;
    f->walk = (struct sl_table_walk){0};
    f->resign_end_ms = sl_ms_after(now_ms, TOTAL_MS);
    f->resign_until_ms = sl_ms_after(now_ms, SILENCE_MS);
    sl_table_set_authority(f->settings.table, 0);
    return true;
}

void sl_resign_recorded(struct sl_failover *f, sl_ms now_ms)
{
    sl_ms until_ms = sl_ms_after(now_ms, SILENCE_MS);
    f->resign_until_ms = until_ms < f->resign_end_ms ? until_ms : f->resign_end_ms;
}

void sl_resign_end(struct sl_failover *f)
{
    sl_table_walk_end(&f->walk);
    f->resigning = false;
    f->guests.resigner = 0;
}

void sl_resign_go_on(struct sl_failover *f, sl_ms now_ms)
{
    if (!f->resigning) return;
    if (!f->recorded && sl_keeper_journal_is_durable(&f->journal)) {
        int status = sl_keeper_journal_record_all(&f->journal, now_ms, &f->walk,
                                                  f->settings.entries_max);
        f->recorded = status == 0;
        if (status < 0) f->resign_until_ms = now_ms;
    }
    /* A grant may have ended since the last step. */
    sl_journal_await(f->journal.rules, sl_journal_last(f->journal.rules));
    bool all = f->recorded && sl_keeper_journal_is_durable(&f->journal);
    if (all || f->resign_until_ms <= now_ms)
        sl_election_resign(f->election, now_ms, all);
}

sl_ms sl_resign_due(const struct sl_failover *f)
{
    if (!f->resigning) return SL_NEVER;
    return sl_keeper_journal_is_durable(&f->journal) ? 0 : f->resign_until_ms;
}
