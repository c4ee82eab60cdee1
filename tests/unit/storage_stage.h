/* storage_stage.h - for tests of storages: one in a folder of its own, operations that are
 * waited for, and a disk that waits or fails. */
#ifndef SLUICE_STORAGE_STAGE_H
#define SLUICE_STORAGE_STAGE_H

#include <stdatomic.h>
#include <stdio.h>

#include "etcd_stage.h"
#include "storage/storage.h"

/* --- A storage of some kind -------------------------------------------------- */

struct stage;

struct storage_kind {
    const char *name;
    int members; /* Of an etcd; 0: it needs none. */
    struct sl_storage *(*open)(const struct stage *s, char *why, size_t why_bytes);
    void (*check)(const char *folder); /* What lasts is whole. */
};

struct stage {
    const struct storage_kind *kind;
    char folder[128];
    struct sl_storage_settings settings;
    struct sl_etcd_settings etcd; /* dedup_keep_ms and group_max are those above. */
    char prefix[64];              /* Its own: an etcd is shared by tests. */
    struct sl_storage *storage;
};

extern const struct storage_kind lmdb_kind, etcd_kind, etcd_three_kind;

/* The etcd of the kinds that need one. False: there is none here. */
extern struct etcd_stage members;
bool kind_begin(const struct storage_kind *kind);
void kind_end(const struct storage_kind *kind);

/* A folder, settings that are generous, and a storage. */
void stage_begin(struct stage *s, const struct storage_kind *kind);
void stage_end(struct stage *s);

void stage_open(struct stage *s);
void stage_close(struct stage *s); /* And its folder is checked. */
void stage_reopen(struct stage *s);

/* Deliver all that is done, and check the invariants. */
void stage_work(struct stage *s);

/* --- Operations -------------------------------------------------------------- */

/* What was asked, and the answer, copied. */
struct asked {
    struct sl_storage_op op;
    struct sl_storage_result got;
    bool done;
    char *bytes; /* Of got. */
};

/* Submit it; and wait until it is done. */
void submit(struct stage *s, struct asked *a);
void await(struct stage *s, struct asked *a);
void forget(struct asked *a); /* The copy. */

struct sl_bytes text(const char *s);

/* One operation and its status; `got`, where it is not NULL, has the rest without bytes. */
int do_op(struct stage *s, const struct sl_storage_op *op,
          struct sl_storage_result *got);
uint64_t claim(struct stage *s);
int put(struct stage *s, uint64_t term, uint64_t id, const char *request,
        const char *table, const char *key, const char *value,
        struct sl_storage_result *got);
int del(struct stage *s, uint64_t term, const char *table, const char *key);
int only_read(struct stage *s, uint64_t term, uint64_t id, const char *request);
int bar(struct stage *s, uint64_t term, uint64_t id);

/* The revision of a request; 0: it was not committed. */
uint64_t outcome(struct stage *s, const char *request);

/* The value, in memory that stays until the next call; NULL: there is none. */
const char *value_of(struct stage *s, const char *table, const char *key);

/* --- The disk ---------------------------------------------------------------- */

struct disk {
    atomic_int syncs;       /* So many there were. */
    atomic_bool held;       /* They wait. */
    atomic_int held_now;    /* So many wait now. */
    atomic_int sync_error;  /* An errno: they fail; 0. */
    atomic_int write_error; /* The same of pages, */
    atomic_int first_error; /* and of the first two of the file. */
    /* Of those a letter each: o is written; f fails; p is written, and yet it is said that
     * it failed; v fails, and what the last p has written is gone again, as a kernel may
     * forget what it could not write. When LMDB fails to write one it writes the old one
     * back. */
    const char *_Atomic first_plan;
};
extern struct disk disk;

/* All that are submitted in between are a group, or several. etcd is not held: until the
 * storage works nothing is sent. */
void hold_disk(struct stage *s, struct asked *first);
void release_disk(void);

#endif /* SLUICE_STORAGE_STAGE_H */
