/* keeper_journal.h - the journal of the keeper, which is in etcd: what must be written there before the
 * keeper acknowledges a change, and what the next keeper restores. Pure.
 *
 * The rules are those of journal/journal.h, with these differences:
 *
 *   - Only long leases have records, and grants that were broken or stolen. A *long* lease is longer than
 *     lease-volatile. The next keeper does not need records of short leases: nodes report them, and it
 *     grants nothing until those that no node reports have expired.
 *   - A record has a bound and no exact expiry, because the next keeper has another clock. So an
 *     extension within the bound needs no record.
 *   - A write does not fail: the caller repeats it until it succeeds, or until the term ends. Meanwhile,
 *     requests that depend on it wait.
 *
 * Bounds are in *journal time*, which the keepers share. It is a time in milliseconds that stands still
 * while there is no keeper, and is a little slower than the keeper's clock (1 in 500). Each renewal of the
 * term stores it. The next keeper continues with the stored time when its claim is answered. So journal
 * time never advances faster than the clock of the keeper that granted a lease, if the speeds of two
 * clocks differ by at most 1 in 500, and at the bound in journal time, the lease has expired.
 *
 * An entry of the journal is a key and a value of the storage:
 *
 *     g + fence (14 hexadecimal digits)    a grant with a lease
 *     o + key                              the next grant of the key overlaps a broken one
 *     d + pattern                          a drained pattern
 *
 * The value is a record that puts the item (journal/record.h), with the bound as its expiry. */
#ifndef SL_FAILOVER_KEEPER_JOURNAL_H
#define SL_FAILOVER_KEEPER_JOURNAL_H

#include "base/index.h"
#include "journal/journal.h"
#include "locks/table.h"
#include "storage/storage.h"

#define SL_KEEPER_JOURNAL_ENTRIES_MAX 1024u

struct sl_keeper_journal_settings {
    struct sl_hash_key hash_key;
    struct sl_table *table; /* Borrowed. */
    sl_ms volatile_ms;      /* lease-volatile */
    /* The limits of one write: the number of entries, and their bytes. */
    uint32_t entries_max;
    size_t bytes_max;
    /* Whether a grant must not be restored, because no client knows of it, or because it has ended in this
     * term; NULL: never. */
    bool (*withdrew)(const void *arg, struct sl_bytes key,
                     const struct sl_grant_view *v);
    /* The entry of this grant says that it was broken or stolen. `stolen`: stolen, and not broken. NULL: not
     * needed. */
    void (*broke)(void *arg, sl_ms now_ms, sl_fence fence, bool stolen);
    void *arg;
};

struct sl_keeper_journal {
    struct sl_keeper_journal_settings settings;
    struct sl_journal *rules; /* NULL: this node is not the keeper. */
    uint64_t need; /* What the changes since sl_keeper_journal_change() need. */
    /* Private. */
    sl_ms now_ms; /* The time of the change. */
    struct sl_table_recorder recorder;
    sl_ms begun_at_ms, begun_ms; /* At this time of the clock, journal time was this. */
    struct sl_index bounds;      /* The bounds of recorded grants, by fence. */
    struct sl_list kept;     /* Entries of broken grants that stay during the wait. */
    struct sl_buffer value;  /* The value of an item. */
    bool reads;              /* Entries of earlier terms are still being read, */
    struct sl_buffer after;  /* those after this key. */
    struct sl_bytes frame;   /* The records that are being written; n 0: none, */
    size_t written, writing; /* up to and including these offsets. */
    bool writes;             /* A write is under way, perhaps of an earlier term. */
    sl_ms retry_ms;          /* The last write failed; repeat it at this time. */
    struct sl_buffer text;   /* Keys and values of that write. */
    struct sl_storage_write *entries;
    uint32_t entry_count;
};

/* Returns false if out of memory. */
bool sl_keeper_journal_init(struct sl_keeper_journal *k,
                            const struct sl_keeper_journal_settings *s);
void sl_keeper_journal_free(struct sl_keeper_journal *k);

/* A term begins, at this journal time. From now on the journal records the changes of the table. First
 * the caller reads all entries, see below. Returns false if out of memory. */
bool sl_keeper_journal_begin(struct sl_keeper_journal *k, sl_ms now_ms,
                             sl_ms journal_ms);
/* The term has ended. A write under way may still succeed, if it does so before the next term. */
void sl_keeper_journal_end(struct sl_keeper_journal *k);

/* Return the journal time, to store with a renewal. */
sl_ms sl_keeper_journal_time(const struct sl_keeper_journal *k, sl_ms now_ms);

/* --- What earlier keepers recorded ----------------------------------------------------- */

/* Whether more entries must be read: those after the key *after. */
bool sl_keeper_journal_reads(const struct sl_keeper_journal *k, struct sl_bytes *after);

/* Restore the entries of a page, which are in the order of their keys; `more`: there are others.
 * Returns SLUICE_OK; SLUICE_ENOMEM: read this page again later; or SLUICE_EINVAL: the entry *bad is
 * invalid, so this node must not grant. */
int sl_keeper_journal_restore(struct sl_keeper_journal *k, struct sl_now now,
                              const struct sl_storage_row *rows, uint32_t count,
                              bool more, uint32_t *bad);

/* --- Changes --------------------------------------------------------------------------- */

/* Call this before a change of the table. Afterwards, `need` is the position that must be durable before
 * the change is acknowledged; 0: none; SL_JOURNAL_FAILED: the change cannot be recorded. */
void sl_keeper_journal_change(struct sl_keeper_journal *k, sl_ms now_ms);

/* Whether the grant has a record that is not durable yet. */
bool sl_keeper_journal_writes(const struct sl_keeper_journal *k, sl_fence fence);

/* Whether a durable record of this grant lasts until end_ms at least. */
bool sl_keeper_journal_covers(const struct sl_keeper_journal *k, sl_fence fence,
                              sl_ms now_ms, sl_ms end_ms);

/* For a keeper that resigns: record about `max` leases that have no sufficient record, short ones too,
 * from the position *w on. All overlap marks and drained patterns have records. Returns 1 if there is more;
 * 0 if all leases have records, which may not be durable yet; or SLUICE_ENOMEM: a lease cannot be
 * recorded. Call sl_table_walk_end() in any case. */
int sl_keeper_journal_record_all(struct sl_keeper_journal *k, sl_ms now_ms,
                                 struct sl_table_walk *w, size_t max);

/* If the wait of this keeper has ended, delete the entries of broken grants that have expired during it. */
void sl_keeper_journal_tidy(struct sl_keeper_journal *k, sl_ms now_ms);

/* Whether everything is durable, and no write is under way. */
bool sl_keeper_journal_is_durable(const struct sl_keeper_journal *k);

/* --- Writing ------------------------------------------------------------------------------ */

/* Return when to call sl_keeper_journal_next(), or SL_NEVER. */
sl_ms sl_keeper_journal_due(const struct sl_keeper_journal *k);

/* Get the entries to write in one transaction of the storage, if a write is due. They are borrowed until
 * sl_keeper_journal_written(). Returns false if there is nothing to write now. */
bool sl_keeper_journal_next(struct sl_keeper_journal *k, sl_ms now_ms,
                            const struct sl_storage_write **entries, uint32_t *count);

/* The write has ended; if it has not succeeded (`ok`), repeat it. Returns true if sl_journal_durable() has
 * risen. */
bool sl_keeper_journal_written(struct sl_keeper_journal *k, sl_ms now_ms, bool ok);

void sl_keeper_journal_check(const struct sl_keeper_journal *k);

#endif /* SL_FAILOVER_KEEPER_JOURNAL_H */
