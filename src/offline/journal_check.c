/* journal_check.c - `sluice-offline journal check`: verifies every frame and record of a journal, and
 * prints counts. It only reads, so a server may use the journal at the same time. */
#include <inttypes.h>
#include <stdio.h>

#include "offline/journal_load.h"
#include "offline/offline.h"

static void print_counts(const struct offline_journal *j)
{
    const struct offline_journal_counts *c = &j->counts;
    printf("format %u\nowner %s\nin_use %s\nframes %" PRIu64 "\nrecords %" PRIu64
           "\nitems %" PRIu64 "\nbytes %zu\nincomplete_bytes %" PRIu64
           "\nposition %" PRIu64 "\ndurable_position %" PRIu64 "\n",
           SL_JOURNAL_FORMAT, offline_journal_owner(j), j->in_use ? "yes" : "no",
           c->frames, c->records, c->live, j->intact.n, c->torn_bytes,
           j->start.chain.position, c->durable_position);
}

/* Print what the next start would do. */
static void print_start(const struct offline_journal *j)
{
    struct offline_cursor cursor = {0};
    struct offline_item i;
    uint64_t held = 0, ignored = 0;
    while (offline_journal_next(j, &cursor, &i)) {
        if (i.is_held) held++;
        else ignored++;
    }
    printf("clean %s\nlife %s%s%s\nheld %" PRIu64 "\nignored %" PRIu64
           "\nwait_ms %" PRId64 "\n",
           j->start.clean ? "yes" : "no", j->start.same_life ? "same" : "other",
           j->start.same_life ? "" : ": ", j->start.same_life ? "" : j->start.why_other,
           held, ignored, offline_journal_wait_ms(j));
}

int offline_journal_check(const struct offline_arguments *a)
{
    struct offline_journal j;
    int status = offline_journal_open(&j, a->directory);
    if (status == 0) status = offline_journal_read(&j, a->directory);
    if (status == 0) {
        if (j.has_header) print_counts(&j);
        if (!j.is_damaged) print_start(&j);
        status = offline_flush();
        if (j.is_damaged) status = offline_journal_report_damage(&j, a->directory);
    }
    offline_journal_close(&j);
    return status;
}
