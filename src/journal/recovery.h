/* recovery.h - reads a journal after a start: which items are held, and how long new grants must
 * wait. Pure: the caller maps the file and describes the machine.
 *
 * A *life* is the time in which all writes to the file survive: one boot of one machine, one
 * mount, one file. Within the same life the death of a process loses nothing that was written.
 *
 *   J7  Same life: same boot id and time namespace, same device and inode, a local file system that
 *       has not been unmounted since, no I/O error noted, and the clock is not below the last time in the file. Every item is
 *       held to its exact expiry, and the server grants at once - or, if the previous server was
 *       still waiting (J8), when that wait ends.
 *   J8  Another life: long leases are held until their bounds (J3 in journal.h); their remaining
 *       time counts from the start of this server. Short leases are ignored (journal.h). New grants wait lease-volatile (the
 *       largest value in the file), or the rest of the previous server's wait if that is longer:
 *       from the boot, if the file was written in an earlier boot of this machine (same machine id,
 *       device and inode); from the start of the process otherwise. After a clean stop nothing is ignored, and new grants wait only
 *       for the rest of the previous server's wait.
 *   J9  Replay stops at the first frame that is not intact. If a later frame says that this place
 *       was durable, or if any intact frame follows in the same life, the journal is damaged. In
 *       another life, frames after the last sync may be lost in any order.
 *
 * In another life the caller writes a new file, because the times of the old one count from
 * another boot. In the same life it truncates the file after the last intact frame (`bytes`) and
 * continues it. In both cases it then puts SL_ITEM_LIFE with sl_life_write(), which contains the
 * end of the wait, and makes it durable before it serves (J5). */
#ifndef SL_JOURNAL_RECOVERY_H
#define SL_JOURNAL_RECOVERY_H

#include "base/hash.h"
#include "journal/record.h"

#define SL_LIFE_TEXT_BYTES 64

struct sl_life {
    char boot[SL_LIFE_TEXT_BYTES];    /* The boot id; "": unknown. */
    char clock[SL_LIFE_TEXT_BYTES];   /* The time namespace; "": unknown. */
    char machine[SL_LIFE_TEXT_BYTES]; /* The machine id; "": unknown. */
    uint64_t device, inode;           /* Of the journal file. */
    uint64_t mount;      /* Identifies this mount of the file system; 0: unknown. */
    sl_ms wait_until_ms; /* New grants wait until this time; 0: they do not. */
    /* Only in the description of the present: */
    sl_ms
        boot_ms; /* When the machine booted, by the clock of `now_ms`: 0, except in a time
                    * namespace with an offset; if unknown, the time of the start. */
    bool keeps_writes; /* A local file system; what was written survives the process. */
    bool had_error;    /* An I/O error was noted in the directory. */
};

/* The value of SL_ITEM_LIFE. Returns false if the bytes are invalid. */
#define SL_LIFE_BYTES (3 * SL_LIFE_TEXT_BYTES + 32)
void sl_life_write(char out[SL_LIFE_BYTES], const struct sl_life *l);
bool sl_life_read(struct sl_bytes value, struct sl_life *out);

enum sl_recovery_result {
    SL_RECOVERY_OK,
    SL_RECOVERY_NOT_A_JOURNAL,
    SL_RECOVERY_FORMAT, /* The file has another format. */
    SL_RECOVERY_DAMAGED,
    SL_RECOVERY_NO_MEMORY /* Or the file is larger than SL_RECOVERY_BYTES_MAX. */
};

#define SL_RECOVERY_BYTES_MAX (1ull << 34)

struct sl_recovery {
    enum sl_recovery_result result;
    enum sl_journal_use use;
    bool same_life, clean;
    const char *why_other; /* Why it is another life, for the log; NULL: same life. */
    size_t bytes;          /* The offset after the last intact frame. */
    size_t damaged_at;     /* SL_RECOVERY_DAMAGED: the offset of the first bad frame. */
    struct sl_chain chain; /* To continue the file. */
    sl_ms last_ms;         /* The time of the last intact frame. */
    sl_ms wait_until_ms;   /* New grants wait until this time; 0: they do not. */
    sl_ms volatile_ms;     /* The largest lease-volatile in the file. */
    sl_fence fence_limit;  /* 0: none. */
    size_t items;          /* The number of items, including those that next() skips. */
    sl_ms shift_ms; /* What must be added to a time in the value of an item, to get a
                            * time of the present: 0 in the same life. */
    struct sl_recovery_map *map; /* Private. */
};

/* Replay a file. `file` is borrowed until sl_recovery_end(). `life` describes the present: the
 * clock is `now_ms`. Sets r->result; call sl_recovery_end() in any case. */
void sl_recovery_begin(struct sl_recovery *r, struct sl_bytes file,
                       const struct sl_life *life, sl_ms now_ms,
                       struct sl_hash_key key);

/* Get the next item that must be held, in the order of their records; set *cursor to 0 before the
 * first call. Its times are in the clock of the present. Its bytes are borrowed. In the same life, items
 * that have expired while no server ran are returned as well: the caller must record their ends,
 * because they would return after a later power failure. Items of the kinds LIFE, VOLATILE, FENCES
 * and CLEAN are not returned. */
bool sl_recovery_next(const struct sl_recovery *r, uint64_t *cursor,
                      struct sl_item *out);

void sl_recovery_end(struct sl_recovery *r);

#endif /* SL_JOURNAL_RECOVERY_H */
