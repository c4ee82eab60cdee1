/* file.h - the journal in a file: reads it at a start, writes frames, syncs, and replaces the file
 * by a shorter one. The rules are in journal.h and recovery.h.
 *
 *     journal          the current file
 *     journal.next     the file that will replace it
 *     journal-error    exists while an I/O error makes the content of `journal` doubtful
 *
 * Frames are written with pwritev() before the replies of a loop iteration are sent, so they
 * survive the death of the process. The space is allocated in steps before it is used
 * (fallocate()), so a write inside it cannot fail for lack of space. A sync is fdatasync(), on a
 * worker thread.
 *
 *   J9   After a failed write or sync the server never syncs that file again, because the kernel
 *        may have dropped the pages and would report success to the next caller. It writes a new
 *        file from memory. An I/O error (not a full disk) is noted in journal-error, because the
 *        cached pages of the file may be lost even in the same life.
 *   J10  The file is replaced step by step (*compaction*): the owner copies its items to the next
 *        file, a few in each loop iteration. From the first copied record until the rename and the
 *        directory are durable, every frame goes to both files.
 *   J11  One process uses the directory (the lock of server/data/directory.h). If the name
 *        "journal" leads to another file, the server rejects leases.
 *
 * Functions that block are marked; the server calls them on a worker thread, or at start and
 * stop. All others return quickly. One thread at a time may call a blocking function; meanwhile the
 * loop may call sl_journal_file_write(), _copy(), _bytes() and _in_place(), and no other function.
 *
 * An error of a write, a sync or a commit is final for that file: later writes and syncs return the
 * same error. These functions note I/O errors in journal-error themselves. */
#ifndef SL_JOURNAL_FILE_H
#define SL_JOURNAL_FILE_H

#include "journal/recovery.h"

#define SL_JOURNAL_NAME "journal"
#define SL_JOURNAL_NEXT "journal.next"
#define SL_JOURNAL_ERROR "journal-error"

struct sl_journal_file; /* Opaque. */

/* --- Start -------------------------------------------------------------------------- */

/* Describe the present life of the journal in this directory (the inode is 0 if there is no
 * journal). `directory` is a file descriptor; wait_until_ms is 0.
 *
 * Machines that were made from one image may share a machine id. If a volume moves between them and
 * also keeps its device number, J8 counts the wait from the boot of a machine that did not write the
 * file. */
void sl_journal_life(int directory, struct sl_life *out);

/* The kind of file system, which decides what a directory can be used for. */
enum sl_journal_place {
    SL_PLACE_LOCAL,  /* Files survive the process and, after a sync, a power failure. */
    SL_PLACE_MEMORY, /* tmpfs, ramfs, overlay: the files may be lost with the machine. */
    SL_PLACE_NETWORK, /* Everything must be durable before it is acknowledged. */
    SL_PLACE_UNKNOWN  /* Treated as network. */
};
enum sl_journal_place sl_journal_place(int directory);

/* Before a start, sync the journal once. If the sync reports an I/O error that no process has seen
 * yet, note it: the frames that a killed server wrote last may be lost. Call this before
 * sl_journal_life() and sl_journal_map(). Blocks. */
void sl_journal_probe(int directory);

/* Read the journal into memory. Blocks. Returns 0; ENOENT if there is none; or an errno. The caller
 * frees *out with sl_journal_unmap(). */
int sl_journal_map(int directory, struct sl_bytes *out);
void sl_journal_unmap(struct sl_bytes file);

/* Continue the file after its last intact frame (same life). Clears the rest, and makes the file
 * and its name durable. Blocks. Returns 0 or an errno. I/O errors are noted, so the next start
 * writes a new file. */
int sl_journal_file_continue(int directory, const struct sl_recovery *r,
                             struct sl_journal_file **out);

/* Begin a new file that nothing refers to yet: every item goes to it with sl_journal_file_copy(),
 * and sl_journal_file_commit() and _switch() make it the journal. For a first start, for another
 * life, and after an error. `position` is the last position of the old journal. Blocks. Returns 0
 * or an errno. */
int sl_journal_file_new(int directory, enum sl_journal_use use, uint64_t position,
                        struct sl_journal_file **out);

/* Close and free. Does not sync. Blocks. NULL is allowed. */
void sl_journal_file_close(struct sl_journal_file *f);

/* --- Frames ---------------------------------------------------------------------------- */

/* Write a frame with these records to the current file, and to the next file if there is one.
 * `position` is one more than that of the last frame. Returns 0 or an errno: ENOSPC if no space
 * could be allocated, EFBIG if the file would exceed bytes_max (in both cases nothing was written,
 * and the file can still be synced), or another errno. After an error the caller calls
 * sl_journal_fail() and writes a new file. If only the next file cannot be written, and no commit
 * has begun, the result is 0, and sl_journal_file_copy() and sl_journal_file_commit() return the
 * error. */
int sl_journal_file_write(struct sl_journal_file *f, struct sl_bytes records,
                          uint64_t position, sl_ms now_ms);

/* Make sure that the next frames of up to this many bytes in total find space. Returns 0 or an
 * errno, as sl_journal_file_write(). */
int sl_journal_file_reserve(struct sl_journal_file *f, uint64_t bytes);

/* Set bytes_max, for the current file and the next one. At first there is no limit. */
void sl_journal_file_limit(struct sl_journal_file *f, uint64_t bytes_max);

/* Sync the current file. Blocks. Returns 0 or an errno. */
int sl_journal_file_sync(struct sl_journal_file *f);

/* Note an I/O error in the directory. Blocks briefly; the result is best effort. */
void sl_journal_file_note_error(int directory);

/* Whether the name "journal" still leads to the current file, or to the next one. */
bool sl_journal_file_in_place(const struct sl_journal_file *f);

/* The number of bytes that were written to the current file; to the next one, if there is no
 * current file. */
uint64_t sl_journal_file_bytes(const struct sl_journal_file *f);

/* Describe the present life of the file that receives copies, or of the current file if there is no
 * next file. Each file contains its own SL_ITEM_LIFE, because each has another inode: the owner
 * copies this one instead of that of the old file, and puts no SL_ITEM_LIFE with
 * sl_journal_file_write() while there is a next file. */
void sl_journal_file_life(const struct sl_journal_file *f, struct sl_life *out);

/* --- Replacing the file ------------------------------------------------------------------- */

/* Begin the next file. Blocks briefly. From now on, frames go to both files. Returns 0 or an
 * errno; then there is no next file. */
int sl_journal_file_replace(struct sl_journal_file *f);

/* Add a frame of copied items to the next file only. It has the position of the last frame
 * written. Returns 0 or an errno; then the caller calls sl_journal_file_drop(). */
int sl_journal_file_copy(struct sl_journal_file *f, struct sl_bytes records,
                         sl_ms now_ms);

/* Sync the next file, rename it to `journal`, sync the directory, and remove journal-error. All
 * frames written before this call are durable then. The loop may write frames meanwhile: they go
 * to both files until sl_journal_file_switch(). Blocks. Returns 0 or an errno; then the caller calls
 * sl_journal_file_drop(). If it is unknown which file has the name, later writes and syncs of the
 * current file fail. */
int sl_journal_file_commit(struct sl_journal_file *f);

/* After a commit, stop writing to the old file. sl_journal_file_drop() gives up the next file; if
 * there is no current file, the caller then closes `f`. Both return quickly; the next blocking call
 * closes the descriptor of the other file.
 *
 * A commit is a sync as well (sl_journal_sync_begin()). If it fails, the caller can still complete
 * that sync: it drops the next file and syncs the current one. */
void sl_journal_file_switch(struct sl_journal_file *f);
void sl_journal_file_drop(struct sl_journal_file *f);

#endif /* SL_JOURNAL_FILE_H */
