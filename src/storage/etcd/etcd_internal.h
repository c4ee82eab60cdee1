/* etcd_internal.h - internals of the storage on etcd.
 *
 *     submit --> writes   --> slots: a group each, one transaction of etcd --+--> done --> work
 *            |-> renewals --> one at a time                                  |
 *            \-> reads    --> a few at a time, many in one transaction     --/
 *
 *     etcd.c          the queues; open and close
 *     task.c          requests that are sent again until their outcome is known
 *     group.c         groups of commits, bars and records: sent, answered, lost, settled
 *     group_build.c   the transaction of a group
 *     group_limits.c  which operations may be in one group
 *     term.c          claims, renewals and resignations
 *     watch.c         watches the term
 *     read.c          rows, outcomes and terms: many in one transaction
 *     scan.c          scans and pages of the journal, in pages of one revision
 *     lease.c         leases of etcd, for keys that expire
 *     json.c          the JSON of etcd's gateway
 *     client.h        requests to etcd
 *
 * Keys, after the prefix (terms and ids have 16 hex digits, so that they sort):
 *
 *     format                         "1"
 *     keeper                         "term node nonce clock_ms"
 *     keeper/beat                    "number fence_limit longest_ms term clock_ms ledgers resigned"
 *     d/<bytes of table: 2><table><key>   the value
 *     journal/<key>                  a row of the keeper's journal
 *     r/<request>                    "term id": committed, at the revision of this key
 *     b/<term>/<id>                  "": barred
 *     g/<nonce>/<slot>               number of the last group of this slot of a storage
 *     g/<nonce>/<slot>/<i>           that number, if the group's i-th inner transaction was done
 *
 * The keys in r/, b/ and g/ have etcd leases that are never renewed, so etcd deletes
 * them in time. README.md has the rules. */
#ifndef SL_STORAGE_ETCD_ETCD_INTERNAL_H
#define SL_STORAGE_ETCD_ETCD_INTERNAL_H

#include <jansson.h>

#include "storage/etcd/client.h"
#include "storage/kind.h"

#define SL_ETCD_FORMAT "1"
#define SL_ETCD_PREFIX_MAX 256
#define SL_ETCD_NONCE_BYTES 40
#define SL_ETCD_KEY_MAX (SL_ETCD_PREFIX_MAX + SL_STORAGE_JOURNAL_KEY_BYTES_MAX + 128)
#define SL_ETCD_READ_SLOTS 4
#define SL_ETCD_HURRY_MS 2000 /* The longest wait after sl_storage_hurry(). */

struct sl_etcd;

/* --- Writing JSON (json.c) --------------------------------------------------- */

struct sl_etcd_text {
    char *at;
    size_t n, capacity;
    bool failed; /* Out of memory; the text is incomplete. */
};

void sl_etcd_text_clear(struct sl_etcd_text *t);
void sl_etcd_text_free(struct sl_etcd_text *t);
void sl_etcd_text_add(struct sl_etcd_text *t, const char *more);

struct sl_etcd_key {
    char at[SL_ETCD_KEY_MAX];
    size_t n;
};

void sl_etcd_key_of(const struct sl_etcd *e, struct sl_etcd_key *k, const char *name);
void sl_etcd_key_data(const struct sl_etcd *e, struct sl_etcd_key *k,
                      struct sl_bytes table, struct sl_bytes key);
void sl_etcd_key_journal(const struct sl_etcd *e, struct sl_etcd_key *k,
                         struct sl_bytes key);
void sl_etcd_key_request(const struct sl_etcd *e, struct sl_etcd_key *k,
                         struct sl_bytes request);
void sl_etcd_key_bar(const struct sl_etcd *e, struct sl_etcd_key *k, uint64_t term,
                     uint64_t id);
void sl_etcd_key_slot(const struct sl_etcd *e, struct sl_etcd_key *k, uint32_t slot);
void sl_etcd_key_part(const struct sl_etcd *e, struct sl_etcd_key *k, uint32_t slot,
                      uint32_t i);

/* Write a transaction, in this order: begin, comparisons, then, operations, else,
 * operations, end. */
void sl_etcd_txn_begin(struct sl_etcd_text *t);
void sl_etcd_txn_then(struct sl_etcd_text *t);
void sl_etcd_txn_else(struct sl_etcd_text *t);
void sl_etcd_txn_end(struct sl_etcd_text *t);

/* Begin and end an inner transaction: a transaction that is an operation of another
 * transaction. */
void sl_etcd_txn_inner(struct sl_etcd_text *t);
void sl_etcd_txn_inner_end(struct sl_etcd_text *t);

void sl_etcd_if_absent(struct sl_etcd_text *t, const struct sl_etcd_key *k);
void sl_etcd_if_revision(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                         uint64_t revision);
void sl_etcd_if_value(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                      const char *result, struct sl_bytes value);
void sl_etcd_if_term(struct sl_etcd_text *t, const struct sl_etcd *e, uint64_t term);

void sl_etcd_op_put(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                    struct sl_bytes value, int64_t lease);
void sl_etcd_op_delete(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                       const struct sl_etcd_key *end);
enum sl_etcd_range { SL_ETCD_RANGE_ALL, SL_ETCD_RANGE_KEYS, SL_ETCD_RANGE_COUNT };
void sl_etcd_op_range(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                      const struct sl_etcd_key *end, enum sl_etcd_range what);
void sl_etcd_op_read_term(struct sl_etcd_text *t, const struct sl_etcd *e);

/* --- Reading JSON (json.c) --------------------------------------------------- */

/* Parse JSON. Returns NULL if the bytes are not JSON, or if out of memory. */
json_t *sl_etcd_json_of(struct sl_bytes b);
uint64_t sl_etcd_json_number(const json_t *o, const char *name); /* 0: absent. */
bool sl_etcd_json_succeeded(const json_t *o);
uint64_t sl_etcd_json_revision(const json_t *answer); /* From its header. */

/* Return a part of the i-th operation's answer: its keys, the number of its keys, or
 * the answer of its inner transaction. */
const json_t *sl_etcd_json_keys(const json_t *txn, size_t i);
uint64_t sl_etcd_json_count(const json_t *txn, size_t i);
const json_t *sl_etcd_json_inner(const json_t *txn, size_t i);

/* sl_etcd_json_text() copies the value of a key as text, truncated to out_bytes.
 * sl_etcd_json_is() returns whether a key has this name. */
void sl_etcd_json_text(const json_t *kv, char *out, size_t out_bytes);
bool sl_etcd_json_is(const json_t *kv, const struct sl_etcd_key *k);

/* Parse the answer to sl_etcd_op_read_term(). sl_etcd_json_term_key() updates *out from
 * a single key. `nonce` may be NULL. */
void sl_etcd_json_term(const struct sl_etcd *e, const json_t *keys,
                       struct sl_storage_term *out, char nonce[SL_ETCD_NONCE_BYTES]);
void sl_etcd_json_term_key(const struct sl_etcd *e, const json_t *kv,
                           struct sl_storage_term *out,
                           char nonce[SL_ETCD_NONCE_BYTES]);

/* Update *out from the key "keeper/beat". The clock and the marks in it count only if
 * the keeper of out->term wrote them. */
void sl_etcd_json_beat(const struct sl_etcd *e, const json_t *keys,
                       struct sl_storage_term *out);

/* --- The storage ------------------------------------------------------------- */

/* A request that the storage sends again until it knows the outcome. */
struct sl_etcd_task {
    struct sl_etcd_call call;
    struct sl_etcd *e;
    struct sl_etcd_text body;
    bool busy;      /* The task is in use, from begin() to end(). */
    bool in_flight; /* The client has the call. */
    /* Some try got no answer: etcd may have executed it, or may still do so. */
    bool lost;
    bool abandoned;  /* No operation waits for the outcome any more. */
    bool writes;     /* The task writes, */
    bool only_reads; /* but this try only reads. */
    unsigned tries;
    sl_ms since_ms, retry_at_ms; /* SL_NEVER: no retry is due. */
};

/* A group of writes. Each group is sent from its own slot. */
struct sl_etcd_group {
    struct sl_etcd_task task;
    struct sl_list ops;   /* Operations of the current transaction. */
    struct sl_list later; /* Operations of the next transaction. */
    uint32_t index, count;
    uint64_t term;
    bool inner;      /* Each operation is an inner transaction. */
    bool reads_slot; /* The task only reads the slot's key. */
    bool unbuilt;    /* The body must be built first, as soon as there is a lease. */
    uint64_t flat_number; /* Number of the transaction with all operations, */
    uint64_t number;      /* and of the current transaction. */
    uint64_t slot_revision;
    int64_t lease;
    uint64_t *names; /* Hashes of the names that no other group may use meanwhile. */
    size_t name_count, name_capacity;
};

struct sl_etcd_claim {
    struct sl_etcd_task task;
    struct sl_storage_op *op; /* NULL: none. */
    bool reads_format;        /* The task only reads the format. */
    bool settling;            /* The task only reads which claim succeeded. */
    char nonce[SL_ETCD_NONCE_BYTES];
    struct sl_storage_term seen; /* The newest known record when the claim began. */
};

/* A renewal or a resignation. */
struct sl_etcd_renewal {
    struct sl_etcd_task task;
    struct sl_storage_op *op;
    unsigned repeats;
};

struct sl_etcd_reading {
    struct sl_etcd_task task;
    struct sl_list ops;
    uint32_t count;
};

/* A scan, or an operation that reads the journal, reads pages at one revision. */
struct sl_etcd_scanning {
    struct sl_etcd_task task;
    struct sl_storage_op *op;
    uint64_t revision;
    uint32_t page_rows;
    struct sl_etcd_key next;
    /* While the scan runs, `at` is an offset in `bytes`. */
    struct sl_storage_row *rows;
    uint32_t count, capacity;
    char *bytes;
    size_t n, bytes_capacity;
    unsigned restarts;
    bool cut; /* There is a row that does not fit into the result. */
};

/* The etcd lease for all keys that expire. */
struct sl_etcd_lease {
    struct sl_etcd_task task;
    int64_t id; /* 0: none. */
    sl_ms since_ms;
    uint64_t keys;
};

struct sl_etcd_watching {
    struct sl_etcd_task task; /* Reads the term. */
    void (*changed)(void *owner, const struct sl_storage_term *term);
    void *owner;
    bool streaming;   /* The client's watch is active. */
    sl_ms poll_at_ms; /* When to read the term next. */
    struct sl_etcd_key key, end;
    struct sl_storage_term term;
    uint64_t revision; /* The revision at which `term` was read. */
    bool report;       /* Report the next term even if it is the same. */
    unsigned failures;
};

enum sl_etcd_format {
    SL_ETCD_FORMAT_UNKNOWN,
    SL_ETCD_FORMAT_NONE,
    SL_ETCD_FORMAT_OURS,
    SL_ETCD_FORMAT_OTHER
};

struct sl_etcd {
    struct sl_storage base;
    /* Do not use its strings: they belong to the caller. */
    struct sl_etcd_settings settings;
    uint32_t members;
    struct sl_bytes prefix;
    char nonce[17];  /* Identifies this storage. */
    uint64_t number; /* The last number given to a group, a claim or a renewal. */

    struct sl_etcd_client *client;
    int fd, event;

    struct sl_list writes, renewals, reads, scans, held, done;
    uint32_t alone, reads_alone; /* How many of the next operations to send alone. */
    struct sl_etcd_group *slots;
    uint32_t slot_count;
    struct sl_etcd_claim claim;
    struct sl_etcd_renewal renewal;
    struct sl_etcd_reading readings[SL_ETCD_READ_SLOTS];
    struct sl_etcd_scanning scannings[SL_ETCD_READ_SLOTS];
    size_t
        journal_row_bytes; /* Average of the last rows of the journal; 0: not known. */
    struct sl_etcd_lease lease;
    struct sl_etcd_watching watching;

    enum sl_etcd_format format;
    /* The last known revision of keeper/beat; 0 if the term was resigned there. */
    uint64_t heartbeat;
    struct sl_storage_term seen; /* The newest known record. */
    sl_ms silent_since_ms;       /* When etcd stopped answering; 0: it answers. */
    sl_ms hurry_since_ms;        /* 0: no hurry. */
    sl_ms wake_at_ms;
    char trouble[300];
    bool write_trouble; /* Only a successful write clears `trouble`. */
    struct sl_storage_stats stats;
};

/* Finish an operation: move it to the queue of operations that sl_storage_work()
 * reports. */
void sl_etcd_op_done(struct sl_etcd *e, struct sl_storage_op *op, int status);

/* Finish one operation, or all operations of a list, with an error. The result contains
 * only the status. */
void sl_etcd_op_fail(struct sl_etcd *e, struct sl_storage_op *op, int status);
void sl_etcd_ops_fail(struct sl_etcd *e, struct sl_list *ops, int status);

void sl_etcd_note_revision(struct sl_etcd *e, uint64_t revision);
void sl_etcd_note_term(struct sl_etcd *e, const struct sl_storage_term *term);
void sl_etcd_wake(struct sl_etcd *e, sl_ms at_ms); /* At this time or earlier. */

/* --- Tasks (task.c) ---------------------------------------------------------- */

sl_ms sl_etcd_now(void); /* The client's clock, CLOCK_BOOTTIME. */

/* The meaning of the answer to a task. */
enum sl_etcd_outcome {
    SL_ETCD_OUTCOME_ANSWER,   /* Executed, or a comparison failed. */
    SL_ETCD_OUTCOME_UNSENT,   /* Not executed: no member was reached. */
    SL_ETCD_OUTCOME_UNKNOWN,  /* etcd may have executed it, or may still do so. */
    SL_ETCD_OUTCOME_NO_LEASE, /* Not executed: the lease has expired. */
    SL_ETCD_OUTCOME_BUSY,     /* Not executed: try again later. */
    SL_ETCD_OUTCOME_REFUSED,  /* Not executed, for the reason in *status. */
};
enum sl_etcd_outcome sl_etcd_outcome_of(struct sl_etcd_task *a, int *status);

void sl_etcd_task_init(struct sl_etcd *e, struct sl_etcd_task *a, const char *path,
                       void (*done)(struct sl_etcd_call *call), void *owner);
void sl_etcd_task_begin(struct sl_etcd_task *a);
void sl_etcd_task_send(struct sl_etcd_task *a); /* Sends its body. */
/* Sends it again, after a growing pause. */
void sl_etcd_task_later(struct sl_etcd_task *a);
void sl_etcd_task_end(struct sl_etcd_task *a);
bool sl_etcd_task_is_due(const struct sl_etcd_task *a, sl_ms now);

/* Return whether the storage is in a hurry and the task has taken too long. */
bool sl_etcd_task_is_overdue(const struct sl_etcd_task *a, sl_ms now);

/* Return whether etcd has been silent for so long that unsent operations must fail. */
bool sl_etcd_is_silent(const struct sl_etcd *e, sl_ms now);
void sl_etcd_note_silence(struct sl_etcd *e, sl_ms since_ms);

/* Return whether the data in etcd has our format. If not, set `trouble`. */
bool sl_etcd_format_is_ours(struct sl_etcd *e, const json_t *keys);

/* --- Leases of etcd (lease.c) ------------------------------------------------ */

/* Return the id of a lease for this many more keys. If there is none yet, requests one
 * and returns 0. */
int64_t sl_etcd_lease_take(struct sl_etcd *e, uint64_t keys);
/* Call this when the lease has expired. */
void sl_etcd_lease_drop(struct sl_etcd *e, int64_t id);
void sl_etcd_lease_init(struct sl_etcd *e);
void sl_etcd_lease_pump(struct sl_etcd *e, sl_ms now);

/* --- Groups (group.c) -------------------------------------------------------- */

/* pump() sends the groups that are ready. hurry() fails the groups that have taken too
 * long. refuse() fails the groups that still wait for a lease. */
int sl_etcd_groups_init(struct sl_etcd *e);
void sl_etcd_groups_free(struct sl_etcd *e);
void sl_etcd_groups_pump(struct sl_etcd *e, sl_ms now);
void sl_etcd_groups_hurry(struct sl_etcd *e, sl_ms now);
void sl_etcd_groups_refuse(struct sl_etcd *e, int status);

/* group_build.c: build the body. A group that writes needs a lease. */
void sl_etcd_group_build(struct sl_etcd_group *g, int64_t lease);
void sl_etcd_group_build_slot_read(struct sl_etcd_group *g);

/* --- Limits of groups (group_limits.c) --------------------------------------- */

#define SL_ETCD_WRITES_FACTOR 4 /* A commit has up to this × ops_max writes. */

struct sl_etcd_cost {
    uint32_t ifs, ops;
    size_t bytes;
};

/* Return how many comparisons, operations and bytes this operation adds to a
 * transaction of etcd. */
struct sl_etcd_cost sl_etcd_cost_of(const struct sl_etcd *e,
                                    const struct sl_storage_op *op);
bool sl_etcd_costs_fit(const struct sl_etcd *e, const struct sl_etcd_cost *sum);

/* Return OK, or an error if the operation is too large for any transaction. */
int sl_etcd_fits_alone(const struct sl_etcd *e, const struct sl_storage_op *op);

/* Move the operations that do not fit as inner transactions to `later`. */
void sl_etcd_group_split(struct sl_etcd_group *g);

/* sl_etcd_op_conflicts() returns whether the operation uses a name that an unfinished
 * group uses. sl_etcd_group_take_names() records the names that the operation uses;
 * call it only if sl_etcd_group_has_names_left(). */
bool sl_etcd_op_conflicts(const struct sl_etcd *e, const struct sl_storage_op *op);
bool sl_etcd_group_has_names_left(const struct sl_etcd_group *g,
                                  const struct sl_storage_op *op);
void sl_etcd_group_take_names(struct sl_etcd_group *g, const struct sl_storage_op *op);
bool sl_etcd_request_in_flight(const struct sl_etcd *e, struct sl_bytes request);

void sl_etcd_record_limits(const struct sl_etcd *e,
                           struct sl_storage_record_limits *out);

/* Write the key that a write of this operation changes. */
void sl_etcd_key_of_write(const struct sl_etcd *e, struct sl_etcd_key *k,
                          const struct sl_storage_op *op, uint32_t i);

/* Return whether a later write of the same commit overwrites the i-th write. */
bool sl_etcd_is_overwritten(const struct sl_storage_op *op, uint32_t i);
bool sl_etcd_keeps_request(const struct sl_storage_op *op);
void sl_etcd_group_count(struct sl_etcd_group *g); /* Sets count and task.writes. */

/* --- The other lanes --------------------------------------------------------- */

void sl_etcd_term_init(struct sl_etcd *e);
void sl_etcd_term_free(struct sl_etcd *e);
void sl_etcd_term_claim(struct sl_etcd *e, struct sl_storage_op *op);
void sl_etcd_term_pump(struct sl_etcd *e, sl_ms now);
void sl_etcd_term_hurry(struct sl_etcd *e, sl_ms now);

void sl_etcd_watching_init(struct sl_etcd *e);
void sl_etcd_watching_free(struct sl_etcd *e);
void sl_etcd_watching_pump(struct sl_etcd *e, sl_ms now);

void sl_etcd_reads_init(struct sl_etcd *e);
void sl_etcd_reads_free(struct sl_etcd *e);
void sl_etcd_reads_submit(struct sl_etcd *e, struct sl_storage_op *op);
void sl_etcd_reads_pump(struct sl_etcd *e, sl_ms now);
void sl_etcd_reads_hurry(struct sl_etcd *e, sl_ms now);

void sl_etcd_scans_init(struct sl_etcd *e);
void sl_etcd_scans_free(struct sl_etcd *e);
void sl_etcd_scans_pump(struct sl_etcd *e, sl_ms now);
void sl_etcd_scans_hurry(struct sl_etcd *e, sl_ms now);

#endif /* SL_STORAGE_ETCD_ETCD_INTERNAL_H */
