/* disk.h - the journal of a simulated machine: the bytes of its file, and how many of them survive a
 * loss of power. The simulator and the unit tests of majority/ use it in the place of
 * journal/file.h, around the same rules (journal/journal.h, journal/recovery.h).
 *
 *     struct sl_recovery r;
 *     sim_disk_open(&d, now, volatile_ms, &r);      d.journal is new
 *     ... create the node with d.journal, restore the items of r ...
 *     sim_disk_begin(&d, now, &r, node);            the file is complete and durable
 *     sim_disk_write(&d, now);                      at each order to record
 *     sim_disk_sync_begin(&d), sim_disk_sync_end(&d, ok)
 *     sim_disk_replace(&d, now)                     begin to copy the items to a new file
 *     sim_disk_copy_some(&d, now, node)             when all are copied, the next sync commits it
 *     sim_disk_kill(&d);                            the process has died */
#ifndef SL_SIM_DISK_H
#define SL_SIM_DISK_H

#include "base/random.h"
#include "journal/recovery.h"
#include "majority/node.h"

struct sim_disk {
    struct sl_journal *journal; /* NULL: the node is down. */
    char *file;
    size_t bytes, size;
    size_t durable; /* This many bytes survive a loss of power. */
    struct sl_chain chain;
    bool is_syncing;
    size_t sync_bytes;    /* How many bytes the sync in progress makes durable. */
    uint64_t boot, inode; /* Of the present. */
    sl_ms boot_ms;        /* When the machine booted, by its clock. */
    uint64_t files;       /* Files that were begun; for their ids and inodes. */
    /* The file that will replace this one: only its bytes, chain and inode. NULL: there is none. */
    struct sim_disk *next;
    uint64_t copy_cursor;
    bool is_copied; /* All items are in the next file. */
    bool is_commit; /* The sync in progress makes the next file the journal. */
};

/* Recover the file, and create d->journal. Call sl_recovery_end() afterwards. r->result is OK if
 * there is no file yet. */
void sim_disk_open(struct sim_disk *d, struct sl_now now, sl_ms volatile_ms,
                   struct sl_recovery *r);

/* Fill in what a node must know about its journal. */
void sim_disk_start(const struct sim_disk *d, const struct sl_recovery *r,
                    struct sl_node_start *out);

/* Restore the items of the journal into a new node. Returns SLUICE_OK or a status. */
int sim_disk_restore(struct sim_disk *d, struct sl_now now, const struct sl_recovery *r,
                     struct sl_node *n);

/* Continue the file in the same life; otherwise write a new one from memory. */
void sim_disk_begin(struct sim_disk *d, struct sl_now now, const struct sl_recovery *r,
                    struct sl_node *n);

/* Write the records that the journal has. */
void sim_disk_write(struct sim_disk *d, struct sl_now now);

/* A write fails: a part of the first frame may be in the file, and the journal has failed. */
void sim_disk_write_fails(struct sim_disk *d, struct sl_now now, struct sl_random *r);

/* Begin the next file: from now on, records are written to both files. Then call
 * sim_disk_copy_some() between calls of the node, as a server does; it copies a few items. */
void sim_disk_replace(struct sim_disk *d, struct sl_now now);
void sim_disk_copy_some(struct sim_disk *d, struct sl_now now, struct sl_node *n);

/* Call this before the process dies: if a commit is in progress, either file may be the journal
 * afterwards. */
void sim_disk_end_commit(struct sim_disk *d, struct sl_random *r);

void sim_disk_sync_begin(struct sim_disk *d);
void sim_disk_sync_end(struct sim_disk *d, bool ok);

/* After a failure, replace the file by one that is written from memory. */
void sim_disk_mend(struct sim_disk *d, struct sl_now now, struct sl_node *n);

/* The process dies; everything that was written survives. */
void sim_disk_kill(struct sim_disk *d);

/* The machine loses power, and is booted again when its clock shows boot_ms. Bytes that are not
 * durable may be lost, as *r decides; NULL: all are. */
void sim_disk_lose_power(struct sim_disk *d, struct sl_random *r, sl_ms boot_ms);

/* The file as it is now, and back. A copy has another inode, unless it is in place. */
struct sim_disk sim_disk_copy(const struct sim_disk *d);
void sim_disk_put_back(struct sim_disk *d, const struct sim_disk *copy, bool in_place);

void sim_disk_erase(struct sim_disk *d); /* The directory is lost. */

#endif /* SL_SIM_DISK_H */
