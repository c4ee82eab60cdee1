/* owner.h - a small server around src/journal: it grants leases, extends and ends them, syncs,
 * replaces its file and recovers. Its clients remember what was acknowledged, and check that it
 * holds after a kill or a power failure.
 *
 * An owner contains no pointer that its clients need. So it can be in memory that processes share:
 * when the process of the owner is killed, another one checks what its clients know. */
#ifndef TESTS_JOURNAL_OWNER_H
#define TESTS_JOURNAL_OWNER_H

#include "journal/file.h"
#include "journal/journal.h"

#define OWNER_KEYS 6
#define OWNER_WAITS 64
#define OWNER_VOLATILE_MS 60000
#define OWNER_VALUE_BYTES_MAX 8192

/* A grant in the table of the owner. */
struct owner_grant {
    sl_fence fence;  /* 0: the key is free. */
    sl_ms expiry_ms; /* SL_NEVER: without a lease, so it has no record. */
    bool is_long;
};

/* What the clients of a key know. */
struct owner_known {
    sl_fence fence;      /* Of the last grant that was acknowledged; 0: none. */
    sl_ms expiry_ms;     /* As acknowledged; SL_NEVER: without a lease. */
    bool is_long;        /* A record of the grant had to be durable. */
    sl_ms sure_ms;       /* The record with this expiry had to be durable. */
    bool ended;          /* The holder asked for its release, or the lease expired; */
    bool end_is_written; /* and the server has acknowledged that. */
    bool is_forgotten;   /* A power failure has lost its record; new grants wait. */
    bool may_be_later;   /* An extension was written but not acknowledged. */
};

/* A change that is not acknowledged yet. */
struct owner_wait {
    uint64_t position; /* 0: the next frame that is written. */
    int key;
    bool is_written, is_end, is_extension;
    bool is_expiry; /* It ends because its lease has expired, not by a release. */
    bool is_sure;   /* The record of this change must be durable. */
    struct owner_grant grant;
};

struct owner {
    int directory;
    size_t value_bytes; /* Of a grant of k1; of k2 twice that, and so on. */
    unsigned boot;      /* The number of the boot of the machine. */
    sl_ms now_ms;

    /* The process: lost when it is killed. */
    struct sl_journal *j;
    struct sl_journal_file *f;
    struct owner_grant table[OWNER_KEYS];
    struct owner_wait waits[OWNER_WAITS];
    size_t waits_count;
    int copied;  /* The next key to copy to the next file; -1: there is no next file. */
    bool serves; /* It has started, and does not stop. */
    bool commits; /* A worker thread commits the next file. */
    sl_fence fence, fence_limit;
    sl_ms wait_until_ms;         /* New grants wait until this time. */
    struct sl_recovery recovery; /* Of the last start; without its items. */

    /* The clients. */
    struct owner_known known[OWNER_KEYS]
                            [2]; /* One of the two is valid: owner_known(). */
    volatile uint8_t shown[OWNER_KEYS];
    sl_fence fence_given;  /* The highest fence that any client has seen. */
    sl_ms waited_until_ms; /* The end of the server's wait, as of the last start. */
    unsigned started_in;   /* The boot of the last start that was successful. */
    bool stopped_cleanly;
    bool has_failed;     /* A write or a sync has failed since the start. */
    bool may_fail;       /* The disk has faults, so an I/O error may have been noted. */
    char wrong[400];     /* The first violation; "": none. */
    bool was_same_life;  /* As the last check found. */
    sl_ms found_wait_ms; /* New grants wait until this time, as the last check found; */
    uint64_t held,
        forgotten; /* leases that clients relied on, and what became of them. */
};

/* Print what happens. */
extern bool owner_trace;
__attribute__((format(printf, 2, 3))) void owner_say(const struct owner *o,
                                                     const char *format, ...);

/* What the clients of a key know. It changes all at once, even if the process is killed. */
struct owner_known *owner_known(struct owner *o, int key);

/* Begin with an empty directory and no clients. */
void owner_init(struct owner *o, int directory);

/* --- Start ---------------------------------------------------------------------------- */

/* Start the server: recover, continue the file or write a new one. Returns 0 or an errno; EILSEQ:
 * the journal is damaged. */
int owner_start(struct owner *o);

/* Free what a process had that was killed. Its system calls must not have an effect any more. */
void owner_forget_process(struct owner *o);

/* Stop cleanly. Returns 0 or an errno. */
int owner_stop(struct owner *o);

/* --- Requests --------------------------------------------------------------------------- */

/* Each does nothing if the table, or a change that is pending, does not allow it. A lease of 0 is a
 * grant without a lease. */
void owner_acquire(struct owner *o, int key, sl_ms lease_ms);
void owner_extend(struct owner *o, int key, sl_ms lease_ms);
void owner_release(struct owner *o, int key);

/* --- The loop ---------------------------------------------------------------------------- */

/* The end of a loop iteration: expire leases, write a frame, and send acknowledgements. */
void owner_turn(struct owner *o);

/* What a worker thread does, and what the loop does afterwards. */
void owner_sync(struct owner *o);

/* Begin to replace the file; copy some items; commit. Each does nothing if it is not the time. */
void owner_replace(struct owner *o);
void owner_copy(struct owner *o);
void owner_commit(struct owner *o);

/* Write a new file from memory, if the journal has failed. */
void owner_mend(struct owner *o);

/* --- Accidents --------------------------------------------------------------------------- */

/* Recover without changing anything, and check the result against what the clients know; add the
 * first violation to o->wrong. Returns 0 or an errno, as owner_start(). Call it after a kill; or
 * after a power failure, when owner_boot() has been called. */
int owner_check_same_life(struct owner *o);
int owner_check_other_life(struct owner *o);

/* The machine starts again, at the time 0. The clients' leases do not pause. */
void owner_boot(struct owner *o, sl_ms died_ms);

#endif /* TESTS_JOURNAL_OWNER_H */
