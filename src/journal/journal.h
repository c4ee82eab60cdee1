/* journal.h - the rules of the journal while a server runs: what must be written, and what must be
 * durable before the server acknowledges it. Pure.
 *
 * A change is *acknowledged* when anything that shows it leaves the server: a reply, a push, an
 * event, READ, EXPLAIN, or a message to another node. The rules:
 *
 *   J1  Nothing is acknowledged before its record is written. The owner of the journal fetches the
 *       records (sl_journal_take()) and writes them before it sends the output of a loop
 *       iteration.
 *   J2  Records are in the order of the changes. So the record that ends a grant precedes the
 *       record of the grant that uses its capacity, and if a record is durable, all records before
 *       it are.
 *   J3  A record has the exact expiry, and a *bound* that is not earlier. Recovery in the same life
 *       uses the expiry; recovery in another life (after a power failure) uses the bound. The
 *       bound of a short lease is its expiry. The bound of a long lease is its expiry, rounded up
 *       to a multiple of SL_BOUND_STEP_MS, or of lease-volatile if that is shorter; so an extension
 *       usually leaves the bound unchanged. A long lease is longer than lease-volatile, so the
 *       bound is less than one lease later than the expiry. The bound depends on nothing but the
 *       expiry and lease-volatile, so the journal need not store it.
 *       A bound that is not durable lies at most lease-volatile after the time it was written.
 *   J4  A record must be durable before the change is acknowledged
 *         (a) if its bound is new and lies more than lease-volatile ahead: then the lease is
 *             *long*, and stays long until it ends; or
 *         (b) if the journal on disk may still show a long lease of the same key that has ended,
 *             because its end is not durable yet. Otherwise that lease would return after a power
 *             failure, and its late EXTEND would succeed although another client was granted the
 *             key. This also applies to grants without a lease, which have no record.
 *       Ends of long leases become durable within SL_END_SYNC_MS.
 *   J5  lease-volatile is an item of the journal, and durable before the server uses it. Recovery
 *       waits for the largest value in the journal. A copy of the journal keeps a larger value of
 *       an earlier server until the short leases of that server have expired.
 *   J6  The server gives no fence above the limit in the journal, which is durable before use.
 *
 * In another life, recovery ignores all short leases, even if their records survived. The kernel
 * may write a page back without a sync. So the record of a short lease A may survive while its
 * end, and the record of the next short lease B, are lost; a late EXTEND of A would succeed
 * although B was granted. All short leases have expired when the wait of lease-volatile has ended.
 *
 * After a failed write or sync, the journal is *failed*: put() returns SL_JOURNAL_FAILED, so does
 * need() for keys whose file still shows a lease that has ended, and the server rejects such
 * requests, until the owner has written a new file from memory. The journal also fails if it runs
 * out of memory; then records appended before can still be taken and written.
 *
 *     put, end --> buffer --take--> write a frame --written--> sync --synced--> durable
 *
 * A *position* is the number of a frame; 0 is before the first frame. */
#ifndef SL_JOURNAL_JOURNAL_H
#define SL_JOURNAL_JOURNAL_H

#include "base/hash.h"
#include "journal/record.h"

#define SL_BOUND_STEP_MS 30000
#define SL_END_SYNC_MS 1000

struct sl_journal; /* Opaque. */

/* Create a journal whose last frame on disk is `position`. `volatile_ms` is the lease-volatile to
 * use, 0: every record is durable before it is acknowledged. Returns NULL when out of memory. */
struct sl_journal *sl_journal_new(struct sl_hash_key key, uint64_t position,
                                  sl_ms volatile_ms);
void sl_journal_free(struct sl_journal *j); /* NULL is allowed. */

/* The position to wait for when the journal cannot be written. */
#define SL_JOURNAL_FAILED UINT64_MAX

/* What the journal contained about an item before a put. All zero: it is new. If the item now
 * belongs to another holder, the caller ends it first, and puts it as a new one. */
struct sl_item_before {
    sl_ms expiry_ms; /* 0: the item is new. */
    bool is_long;    /* It is, or its holder had such an item before. */
};

/* Append the record of an item. Sets item->bound_ms and item->is_long; the caller stores is_long
 * with the grant for the next call. Returns the position that must be durable before the change
 * is acknowledged (J4), 0 if it need not be, or SL_JOURNAL_FAILED. `item` without expiry
 * (SL_NEVER), such as a drained pattern or a limit, must always be durable. */
uint64_t sl_journal_put(struct sl_journal *j, struct sl_now now, struct sl_item *item,
                        struct sl_item_before before);

/* Append the end of an item. Returns the position at which the end is durable, or
 * SL_JOURNAL_FAILED. A release need not wait for it; BREAK and DRAIN OFF do, and call
 * sl_journal_await(). */
uint64_t sl_journal_end(struct sl_journal *j, struct sl_now now, enum sl_item_kind kind,
                        struct sl_bytes key, sl_fence fence, bool is_long);

/* A request waits until this position is durable, so a sync is due at once. Call it for positions
 * that sl_journal_end() returned; for those of the other functions it is not necessary. */
void sl_journal_await(struct sl_journal *j, uint64_t position);

/* The same, and requests about this key wait as well (sl_journal_pending()). Returns the position,
 * or SL_JOURNAL_FAILED. */
uint64_t sl_journal_await_key(struct sl_journal *j, struct sl_bytes key,
                              uint64_t position);

/* Returns the position that must be durable before a grant without a record on this key is
 * acknowledged (J4 b): 0, a position, or SL_JOURNAL_FAILED. Call it when the lock is granted. */
uint64_t sl_journal_need(struct sl_journal *j, struct sl_bytes key);

/* Returns the position for which a request about this key must wait, because a change of the key
 * is not acknowledged yet; 0 if there is none. */
uint64_t sl_journal_pending(const struct sl_journal *j, struct sl_bytes key);

/* The same for requests about all keys, such as LOCKS. */
uint64_t sl_journal_pending_any(const struct sl_journal *j);

/* --- Starting and copying ----------------------------------------------------------- */

/* At a start in the same life: an item of recovery is held, and the journal continues the file. If
 * lease-volatile has changed, the record may have an earlier bound than this journal assumes; then
 * the item is appended again. The owner makes the records of a start durable before it serves. */
void sl_journal_restore(struct sl_journal *j, struct sl_item *item);

/* An earlier server used this lease-volatile until `now_ms` (J5). */
void sl_journal_inherit(struct sl_journal *j, sl_ms volatile_ms, sl_ms now_ms);

/* For a copy of the journal: set item->bound_ms, as put() would (J3); and get the value of
 * SL_ITEM_VOLATILE (J5). */
void sl_journal_bound(const struct sl_journal *j, struct sl_item *item);
sl_ms sl_journal_copied_volatile_ms(const struct sl_journal *j, sl_ms now_ms);

/* --- Writing and syncing ---------------------------------------------------------- */

/* Take the records that are not written yet, at most those of one frame; call it until it returns
 * false, because there are none. *position is the position of the frame that the caller writes.
 * *records is borrowed until the next call of this function or of sl_journal_fail(). */
bool sl_journal_take(struct sl_journal *j, struct sl_bytes *records,
                     uint64_t *position);

/* Returns when a sync is due: 0 at once, because an acknowledgement waits for it; a time; or
 * SL_NEVER. */
sl_ms sl_journal_sync_due(const struct sl_journal *j);

/* Begin a sync of all frames written so far; end it, with its result. There is at most one at a
 * time. Committing a copy (file.h) is a sync, too. If the sync has failed, the journal fails. */
void sl_journal_sync_begin(struct sl_journal *j);
void sl_journal_sync_end(struct sl_journal *j, bool ok);

/* Return a position: of the last durable frame; of the last frame written; of the last frame taken,
 * which is not written if its write failed; of the frame with the last record. */
uint64_t sl_journal_durable(const struct sl_journal *j);
uint64_t sl_journal_written(const struct sl_journal *j);
uint64_t sl_journal_position(const struct sl_journal *j);
uint64_t sl_journal_last(const struct sl_journal *j);

/* The file cannot be written any more. Drops the records that are not written; those taken last may
 * be among them. So after a failed write, call it before the next sl_journal_take().
 *
 * The caller must undo every change that was not acknowledged, also those of the iteration whose
 * write failed (even if they need not wait for a position), and no reply that shows them may leave.
 * A grant ends. An extension is undone, too: with the new expiry in the table, CHECK and READ would
 * show it, although it is not recorded. Nothing is pending any more. */
void sl_journal_fail(struct sl_journal *j);
bool sl_journal_failed(const struct sl_journal *j);

/* The owner of a failed journal begins a new file: it copies all items from memory to it, a few in
 * each loop iteration. From now on ends are recorded again, because an item may have been copied
 * before it ends; the owner takes them and writes them to the new file. sl_journal_mend(): the new
 * file has replaced the old one, and is durable up to this position; the journal works again. If
 * the attempt fails, call sl_journal_fail() again. */
void sl_journal_mend_begin(struct sl_journal *j);
void sl_journal_mend(struct sl_journal *j, uint64_t position);

sl_ms sl_journal_volatile_ms(const struct sl_journal *j);

void sl_journal_check(const struct sl_journal *j);

#endif /* SL_JOURNAL_JOURNAL_H */
