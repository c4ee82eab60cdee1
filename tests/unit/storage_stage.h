/* storage_stage.h - for tests of the storage: one in a directory of its own, operations that the
 * test waits for, and a disk that waits or fails. */
#ifndef SLUICE_STORAGE_STAGE_H
#define SLUICE_STORAGE_STAGE_H

#include <stdatomic.h>
#include <stdio.h>

#include "etcd_stage.h"
#include "storage/storage.h"

/* --- A storage --------------------------------------------------------------- */

struct stage;

struct storage_kind {
    const char *name;
    int members; /* Of an etcd; 0: none. */
    struct sl_storage *(*open)(const struct stage *s, char *why, size_t why_bytes);
    void (*check)(const char *directory); /* Fails the test if the store is damaged. */
};

struct stage {
    const struct storage_kind *kind;
    char directory[128];
    struct sl_storage_settings settings;
    struct sl_etcd_settings etcd; /* dedup_keep_ms and group_max are those above. */
    char prefix[64];              /* Of its own: tests share an etcd. */
    struct sl_storage *storage;
};

extern const struct storage_kind lmdb_kind, etcd_kind, etcd_three_kind;

/* The etcd for the kinds that need one. False: etcd is not installed. */
extern struct etcd_stage members;
bool kind_begin(const struct storage_kind *kind);
void kind_end(const struct storage_kind *kind);

/* A directory, generous settings, and a storage. */
void stage_begin(struct stage *s, const struct storage_kind *kind);
void stage_end(struct stage *s);

void stage_open(struct stage *s);
void stage_close(struct stage *s); /* Also checks the store. */
void stage_reopen(struct stage *s);

/* Deliver all that is done, and check the invariants. */
void stage_work(struct stage *s);

/* --- Operations -------------------------------------------------------------- */

/* An operation, and a copy of its result. */
struct asked {
    struct sl_storage_op op;
    struct sl_storage_result got;
    bool done;
    char *bytes; /* Of got. */
};

void submit(struct stage *s, struct asked *a);
void await(struct stage *s, struct asked *a); /* Until it is done. */
void forget(struct asked *a);                 /* Frees the copy. */

struct sl_bytes text(const char *s);

/* A commit. `request` may be NULL. */
struct sl_storage_op commit_of(uint64_t term, uint64_t id, const char *request,
                               const struct sl_storage_write *writes, uint32_t count);

/* Do one operation and return its status. *got is the rest of the result, without bytes; got may
 * be NULL. */
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

/* The value, valid until the next call; NULL: there is none. */
const char *value_of(struct stage *s, const char *table, const char *key);

/* --- The disk ---------------------------------------------------------------- */

struct disk {
    atomic_int syncs;       /* Number of syncs so far. */
    atomic_bool held;       /* Syncs wait. */
    atomic_int held_now;    /* Number of syncs that wait now. */
    atomic_int sync_error;  /* With this errno syncs fail; 0: they do not. */
    atomic_int write_error; /* The same for writes of pages, */
    atomic_int first_error; /* and for writes of the first two pages. */
    /* One letter for each write of the first two pages. o: it succeeds. f: it fails. p: it is
     * written but fails. v: it fails, and what the last p has written is lost, as a kernel may
     * drop what it cannot write. When LMDB fails to write one, it writes the old one back. */
    const char *_Atomic first_plan;
};
extern struct disk disk;

/* Operations that are submitted in between are done in groups. etcd needs no holding: the storage
 * sends nothing until it works. */
void hold_disk(struct stage *s, struct asked *first);
void release_disk(void);

/* --- etcd -------------------------------------------------------------------- */

sl_ms now_ms(void);

/* Let a storage work for this long, or until the relay has lost this many requests. */
void run_for(struct stage *s, sl_ms ms);
void run_until_lost(struct stage *s, int count);

/* A number that etcd has of a key, without the storage: "version", "mod_revision". The key
 * is without the prefix. */
uint64_t number_of(const struct stage *s, const char *key, size_t n, const char *name);

#endif /* SLUICE_STORAGE_STAGE_H */
