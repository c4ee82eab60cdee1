/* etcd_internal.h - the storage on etcd, from inside.
 *
 *     submit --> writes   --> slots: a group each, one transaction of etcd --+--> done --> work
 *            |-> renewals --> one at a time                                  |
 *            \-> reads    --> a few at a time, many in one transaction     --/
 *
 *     etcd.c          the queues; open and close
 *     task.c          a request that is sent until its outcome is known
 *     group.c         groups of commits and bars: sent, answered, lost, settled
 *     group_build.c   the transaction of a group
 *     group_limits.c  which operations may be in one group
 *     term.c          claims and renewals
 *     watch.c         watches the term
 *     read.c          rows, outcomes and terms: many in one transaction
 *     scan.c          scans, in pages of one revision
 *     lease.c         leases of etcd, for keys that expire
 *     json.c          the JSON of etcd's gateway
 *     client.h        requests to etcd
 *
 * Keys, after the prefix (terms and ids have 16 hex digits, so that they sort):
 *
 *     format                         "1"
 *     keeper                         "term node nonce"
 *     keeper/beat                    "number fence_limit longest_ms"
 *     d/<bytes of table: 2><table><key>   the value
 *     r/<request>                    "term id": committed, at the revision of this key
 *     b/<term>/<id>                  "": barred
 *     g/<nonce>/<slot>               number of the last group of this slot of a storage
 *     g/<nonce>/<slot>/<i>           that number, if the group's i-th inner transaction was done
 *
 * r/, b/ and g/ are on leases that nobody renews, so etcd deletes them. README.md has the rules. */
#ifndef SL_STORAGE_ETCD_ETCD_INTERNAL_H
#define SL_STORAGE_ETCD_ETCD_INTERNAL_H

#include <jansson.h>

#include "storage/etcd/client.h"
#include "storage/kind.h"

#define SL_ETCD_FORMAT "1"
#define SL_ETCD_PREFIX_MAX 256
#define SL_ETCD_NONCE_BYTES 40
#define SL_ETCD_KEY_MAX (SL_ETCD_PREFIX_MAX + SL_STORAGE_REQUEST_BYTES_MAX + 128)
#define SL_ETCD_READ_SLOTS 4
#define SL_ETCD_HURRY_MS 2000 /* In a hurry, an operation waits no longer than this. */

struct sl_etcd;

/* --- Writing JSON (json.c) --------------------------------------------------- */

struct sl_etcd_text {
    char *at;
    size_t n, capacity;
    bool failed; /* Out of memory. The text is not complete then. */
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
void sl_etcd_key_request(const struct sl_etcd *e, struct sl_etcd_key *k,
                         struct sl_bytes request);
void sl_etcd_key_bar(const struct sl_etcd *e, struct sl_etcd_key *k, uint64_t term,
                     uint64_t id);
void sl_etcd_key_slot(const struct sl_etcd *e, struct sl_etcd_key *k, uint32_t slot);
void sl_etcd_key_part(const struct sl_etcd *e, struct sl_etcd_key *k, uint32_t slot,
                      uint32_t i);

/* A transaction: begin, comparisons, then, operations, else, operations, end. */
void sl_etcd_txn_begin(struct sl_etcd_text *t);
void sl_etcd_txn_then(struct sl_etcd_text *t);
void sl_etcd_txn_else(struct sl_etcd_text *t);
void sl_etcd_txn_end(struct sl_etcd_text *t);

/* Begin and end a transaction that is an operation of another one. */
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

/* NULL: this is not JSON, or out of memory. */
json_t *sl_etcd_json_of(struct sl_bytes b);
uint64_t sl_etcd_json_number(const json_t *o, const char *name); /* 0: absent. */
bool sl_etcd_json_succeeded(const json_t *o);
uint64_t sl_etcd_json_revision(const json_t *answer); /* Of its header. */

/* Of the i-th operation of a transaction: its keys, their number, its own transaction. */
const json_t *sl_etcd_json_keys(const json_t *txn, size_t i);
uint64_t sl_etcd_json_count(const json_t *txn, size_t i);
const json_t *sl_etcd_json_inner(const json_t *txn, size_t i);

/* The value of a key as text, truncated to out_bytes; and whether a key has this name. */
void sl_etcd_json_text(const json_t *kv, char *out, size_t out_bytes);
bool sl_etcd_json_is(const json_t *kv, const struct sl_etcd_key *k);

/* The answer to sl_etcd_op_read_term(). The second function updates *out from one key. `nonce`
 * may be NULL. */
void sl_etcd_json_term(const struct sl_etcd *e, const json_t *keys,
                       struct sl_storage_term *out, char nonce[SL_ETCD_NONCE_BYTES]);
void sl_etcd_json_term_key(const struct sl_etcd *e, const json_t *kv,
                           struct sl_storage_term *out,
                           char nonce[SL_ETCD_NONCE_BYTES]);

/* --- The storage ------------------------------------------------------------- */

/* A request that is sent until its outcome is known. */
struct sl_etcd_task {
    struct sl_etcd_call call;
    struct sl_etcd *e;
    struct sl_etcd_text body;
    bool busy;      /* The task is in use, from begin() to end(). */
    bool in_flight; /* The client has the call. */
    bool
        lost; /* No answer came to some try: etcd may have done it, or may yet do it. */
    bool abandoned;  /* Nobody waits for the outcome any more. */
    bool writes;     /* The task changes something, */
    bool only_reads; /* but this try of it does not. */
    unsigned tries;
    sl_ms since_ms, retry_at_ms; /* SL_NEVER: no retry is due. */
};

/* A group of writes, which is sent from a slot of its own. */
struct sl_etcd_group {
    struct sl_etcd_task task;
    struct sl_list ops;   /* In the transaction that is sent now. */
    struct sl_list later; /* In the next one. */
    uint32_t index, count;
    uint64_t term;
    bool inner;           /* Each operation is an inner transaction. */
    bool reads_slot;      /* The task only reads what the slot's key says. */
    bool unbuilt;         /* The body must be written first, when there is a lease. */
    uint64_t flat_number; /* Of the transaction with all operations in it; */
    uint64_t number;      /* and of the one that is sent now. */
    uint64_t slot_revision;
    int64_t lease;
    uint64_t *names; /* Hashes of all that no other group may touch meanwhile. */
    size_t name_count, name_capacity;
};

struct sl_etcd_claim {
    struct sl_etcd_task task;
    struct sl_storage_op *op; /* NULL: none. */
    bool reads_format;        /* The task only reads the format. */
    bool settling;            /* The task only reads whose claim succeeded. */
    char nonce[SL_ETCD_NONCE_BYTES];
};

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

/* A scan reads pages at one revision. */
struct sl_etcd_scanning {
    struct sl_etcd_task task;
    struct sl_storage_op *op;
    uint64_t revision;
    uint32_t page_rows;
    struct sl_etcd_key next;
    struct sl_storage_row *rows; /* Until the end, `at` is an offset in `bytes`. */
    uint32_t count, capacity;
    char *bytes;
    size_t n, bytes_capacity;
    unsigned restarts;
};

/* The lease of all keys that expire. */
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
    bool streaming;   /* The client's watch is on. */
    sl_ms poll_at_ms; /* When the term is read next. */
    struct sl_etcd_key key, end;
    struct sl_storage_term term;
    uint64_t revision; /* At which the term was so. */
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
    struct sl_etcd_settings settings; /* Its texts belong to the caller: unused. */
    uint32_t members;
    struct sl_bytes prefix;
    char nonce[17];  /* Of this storage. */
    uint64_t number; /* The last one given to a group, a claim or a renewal. */

    struct sl_etcd_client *client;
    int fd, event;

    struct sl_list writes, renewals, reads, scans, held, done;
    uint32_t alone, reads_alone; /* This many of the next operations are not grouped. */
    struct sl_etcd_group *slots;
    uint32_t slot_count;
    struct sl_etcd_claim claim;
    struct sl_etcd_renewal renewal;
    struct sl_etcd_reading readings[SL_ETCD_READ_SLOTS];
    struct sl_etcd_scanning scannings[SL_ETCD_READ_SLOTS];
    struct sl_etcd_lease lease;
    struct sl_etcd_watching watching;

    enum sl_etcd_format format;
    uint64_t heartbeat;          /* The last known revision of keeper/beat. */
    struct sl_storage_term seen; /* The newest one. */
    sl_ms silent_since_ms; /* No answer since then; 0: the last request had one. */
    sl_ms hurry_since_ms;  /* 0: no hurry. */
    sl_ms wake_at_ms;
    char trouble[300];
    bool write_trouble; /* Only a write that succeeds ends it. */
    struct sl_storage_stats stats;
};

/* The operation is done: it goes to the queue of those that sl_storage_work() reports. */
void sl_etcd_op_done(struct sl_etcd *e, struct sl_storage_op *op, int status);

/* The same for one operation, or a list of them, that failed: the result is the status only. */
void sl_etcd_op_fail(struct sl_etcd *e, struct sl_storage_op *op, int status);
void sl_etcd_ops_fail(struct sl_etcd *e, struct sl_list *ops, int status);

void sl_etcd_note_revision(struct sl_etcd *e, uint64_t revision);
void sl_etcd_note_term(struct sl_etcd *e, const struct sl_storage_term *term);
void sl_etcd_wake(struct sl_etcd *e, sl_ms at_ms); /* At that time or earlier. */

/* --- Tasks (task.c) ---------------------------------------------------------- */

sl_ms sl_etcd_now(void); /* The client's: the boot-time clock. */

/* What the answer to a task means. */
enum sl_etcd_outcome {
    SL_ETCD_OUTCOME_ANSWER,   /* etcd did it, or says which comparison failed. */
    SL_ETCD_OUTCOME_UNSENT,   /* Not done: no member was reached. */
    SL_ETCD_OUTCOME_UNKNOWN,  /* Done or not, or it will be. */
    SL_ETCD_OUTCOME_NO_LEASE, /* Not done: the lease has expired. */
    SL_ETCD_OUTCOME_BUSY,     /* Not done: try again later. */
    SL_ETCD_OUTCOME_REFUSED,  /* Not done: *status says why. */
};
enum sl_etcd_outcome sl_etcd_outcome_of(struct sl_etcd_task *a, int *status);

void sl_etcd_task_init(struct sl_etcd *e, struct sl_etcd_task *a, const char *path,
                       void (*done)(struct sl_etcd_call *call), void *owner);
void sl_etcd_task_begin(struct sl_etcd_task *a);
void sl_etcd_task_send(struct sl_etcd_task *a);  /* Its body. */
void sl_etcd_task_later(struct sl_etcd_task *a); /* Again, after a pause that grows. */
void sl_etcd_task_end(struct sl_etcd_task *a);
bool sl_etcd_task_is_due(const struct sl_etcd_task *a, sl_ms now);

/* In a hurry: has the task taken too long? */
bool sl_etcd_task_is_overdue(const struct sl_etcd_task *a, sl_ms now);

/* Has etcd been silent for so long that operations which were not sent fail? */
bool sl_etcd_is_silent(const struct sl_etcd *e, sl_ms now);
void sl_etcd_note_silence(struct sl_etcd *e, sl_ms since_ms);

/* Is the format in etcd ours? If not, `trouble` says so. */
bool sl_etcd_format_is_ours(struct sl_etcd *e, const json_t *keys);

/* --- Leases of etcd (lease.c) ------------------------------------------------ */

/* A lease for this many more keys. 0: there is none yet; it has been requested. */
int64_t sl_etcd_lease_take(struct sl_etcd *e, uint64_t keys);
void sl_etcd_lease_drop(struct sl_etcd *e, int64_t id); /* It has expired. */
void sl_etcd_lease_init(struct sl_etcd *e);
void sl_etcd_lease_pump(struct sl_etcd *e, sl_ms now);

/* --- Groups (group.c) -------------------------------------------------------- */

/* pump() sends what can be sent; hurry() fails what has taken too long. */
int sl_etcd_groups_init(struct sl_etcd *e);
void sl_etcd_groups_free(struct sl_etcd *e);
void sl_etcd_groups_pump(struct sl_etcd *e, sl_ms now);
void sl_etcd_groups_hurry(struct sl_etcd *e, sl_ms now);
void sl_etcd_groups_refuse(struct sl_etcd *e, int status); /* Those without a lease. */

/* group_build.c: write the body. A group that writes needs a lease. */
void sl_etcd_group_build(struct sl_etcd_group *g, int64_t lease);
void sl_etcd_group_build_slot_read(struct sl_etcd_group *g);

/* --- Limits of groups (group_limits.c) --------------------------------------- */

#define SL_ETCD_WRITES_FACTOR 4 /* A commit has at most this × ops_max writes. */

struct sl_etcd_cost {
    uint32_t ifs, ops;
    size_t bytes;
};

/* Operations that a transaction of etcd has, and the bytes that it takes. */
struct sl_etcd_cost sl_etcd_cost_of(const struct sl_etcd *e,
                                    const struct sl_storage_op *op);
bool sl_etcd_costs_fit(const struct sl_etcd *e, const struct sl_etcd_cost *sum);

/* OK, or why the operation fits into no transaction. */
int sl_etcd_fits_alone(const struct sl_etcd *e, const struct sl_storage_op *op);

/* Move the operations that do not fit as inner transactions to `later`. */
void sl_etcd_group_split(struct sl_etcd_group *g);

/* Does the operation touch what an unfinished group touches? Record what it touches, if there is
 * memory left for that. */
bool sl_etcd_op_conflicts(const struct sl_etcd *e, const struct sl_storage_op *op);
bool sl_etcd_group_has_names_left(const struct sl_etcd_group *g,
                                  const struct sl_storage_op *op);
void sl_etcd_group_take_names(struct sl_etcd_group *g, const struct sl_storage_op *op);
bool sl_etcd_request_in_flight(const struct sl_etcd *e, struct sl_bytes request);

/* Does a later write of the same commit replace the i-th one? */
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
