/* recorder.h - the journal of this server: the rules (journal/journal.h), the file
 * (journal/file.h) and a worker thread for what blocks.
 *
 * The owner is the module whose state the journal records: the lock table of a single server, or
 * the acceptor of a node. It puts and ends items. sl_server_settle() writes them before it sends
 * any output (J1). One job at a time runs on the worker thread:
 *
 *     sync      makes all frames durable; several requests may wait for it (group commit)
 *     commit    makes a shorter copy of the journal the current file
 *     new       after an error: closes the file and begins another one
 *
 * Start:
 *
 *     sl_recorder_open()    reads the journal
 *     the owner             restores all items of sl_recorder_next(), and removes files that an
 *                           earlier version left
 *     sl_recorder_begin()   continues the file, or writes a new one; now the owner may serve
 *
 * A *copy* is a new file with all items, written from memory, a few in each loop iteration. It
 * replaces the file when that has become too large, and after an error. */
#ifndef SL_SERVER_RECORDER_H
#define SL_SERVER_RECORDER_H

#include "journal/file.h"
#include "journal/journal.h"
#include "server/server.h"

struct sl_recorder; /* Opaque. */

/* Functions of the owner. The first two may answer requests; they are called from a callback of the
 * loop that ends with sl_server_settle(), and from sl_recorder_flush(). */
struct sl_recorder_owner {
    /* sl_journal_durable() has risen, or the journal works again. */
    void (*durable)(struct server *s);
    /* The journal has failed: no position becomes durable any more until it works again. The owner
     * undoes the changes that wait, and those since the last call of `written`. */
    void (*failed)(struct server *s);
    /* All records so far are written, so the replies may leave. This is also called if the journal
     * has failed for lack of memory: it wrote the records before that. NULL is allowed. */
    void (*written)(struct server *s);
    /* Call sl_recorder_copy() for a few more items. `first`: begin again. Items of the kinds LIFE,
     * VOLATILE, FENCES and CLEAN are copied by the recorder. Returns 1 if there is more, 0 at the end, or
     * SLUICE_ENOMEM. */
    int (*copy)(struct server *s, bool first);
};

/* --- Start ---------------------------------------------------------------------- */

/* Read the journal in the data directory of the server, and set s->recorder. `volatile_ms` is the
 * lease-volatile to use. Blocks. Returns 0, or -1 after logging the reason. */
int sl_recorder_open(struct server *s, enum sl_journal_use use,
                     const struct sl_recorder_owner *owner);

/* What the journal contained. `result` is SL_RECOVERY_OK, or there is no journal: then `items` and
 * all limits are 0. Valid until sl_recorder_begin(). */
const struct sl_recovery *sl_recorder_recovery(const struct sl_recorder *r);

/* Whether there was a journal. */
bool sl_recorder_found(const struct sl_recorder *r);

/* Whether a node found the journal of a single server. sl_recorder_begin() replaces it by a new one,
 * so the owner makes durable first what it must remember of sl_recorder_recovery(). */
bool sl_recorder_converts(const struct sl_recorder *r);

/* Get the next item that must be held, and tell the journal that it is held. Ends items that have
 * expired. Bytes are borrowed until sl_recorder_begin(). Returns false at the end. Set *cursor to 0
 * before the first call. */
bool sl_recorder_next(struct server *s, uint64_t *cursor, struct sl_item *out);

/* Continue the file, or write a new one. Fences stay below `fence_limit`, and new grants wait until
 * `wait_until_ms` (0: they do not). Everything is durable then. Blocks. Returns 0, or -1 after
 * logging the reason. */
int sl_recorder_begin(struct server *s, sl_fence fence_limit, sl_ms wait_until_ms);

/* --- Changes -------------------------------------------------------------------- */

/* Like the functions of journal.h; they also count the size of what is live. */
uint64_t sl_recorder_put(struct server *s, struct sl_item *item,
                         struct sl_item_before before);
uint64_t sl_recorder_end(struct server *s, enum sl_item_kind kind, struct sl_bytes key,
                         sl_fence fence, bool is_long);

/* Put a new limit of fences. Returns the position that must be durable before its use, or
 * SL_JOURNAL_FAILED. */
uint64_t sl_recorder_put_fences(struct server *s, sl_fence limit);

/* Add an item to the copy; only from `copy` of the owner. Sets item->bound_ms, unless the owner has
 * set it to the expiry. NULL: memory is exhausted. */
void sl_recorder_copy(struct server *s, struct sl_item *item);

struct sl_journal *sl_recorder_journal(const struct sl_recorder *r);

/* The errno of the failure, or 0. */
int sl_recorder_error(const struct sl_recorder *r);

/* Write an error text that names the file, the reason and the remedy. */
void sl_recorder_explain(const struct server *s, char *out, size_t size);

/* How long the present sync has been running, if that is more than 5 seconds; otherwise 0. */
sl_ms sl_recorder_slow_ms(const struct server *s);

/* --- The event loop ----------------------------------------------------------------- */

/* Write all records to the file. The server calls this before it sends output. Does nothing if
 * there is no recorder. */
void sl_recorder_flush(struct server *s);

/* Start the job that is due, or continue a copy. The server calls this at the end of every callback.
 * Returns false if there is more to do in the next loop iteration. */
bool sl_recorder_pump(struct server *s);
sl_ms sl_recorder_due(const struct server *s);

/* Check that the file is still in place, and try to write a new one after a failure. The server
 * calls this every second. */
void sl_recorder_second(struct server *s);

/* Write the mark of a clean stop, if `clean`, and close the file. Call this when the loop has ended.
 * Blocks. Returns 0, or -1 after logging the reason. */
int sl_recorder_stop(struct server *s, bool clean);

struct sl_recorder_view {
    uint64_t bytes, live_bytes, position, durable;
    uint64_t syncs, copies, errors;
    bool copying;
    const char *failed; /* NULL: the journal works. */
    sl_ms volatile_ms;
};
void sl_recorder_inspect(const struct server *s, struct sl_recorder_view *out);

#endif /* SL_SERVER_RECORDER_H */
