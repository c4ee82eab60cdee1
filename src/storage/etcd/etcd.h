/* etcd_engine.h - the engine on etcd, from inside: what its files share.
 *
 *     submit --> writes   --> slots: a group each, one transaction of etcd's --+--> done
 *            |-> renewals --> one at a time                                    |
 *            \-> reads    --> a few at a time, many in one transaction       --/
 *
 * Keys, behind the prefix (a term and an id have 16 hex digits, so that they sort):
 *
 *     format                         "1"
 *     keeper                         "term node nonce"
 *     keeper/beat                    "number fence_limit longest_ms"
 *     d/<bytes of table: 2><table><key>   the value
 *     r/<request>                    "term id": it was committed, under this key's revision
 *     b/<term>/<id>                  "": it is barred
 *     g/<nonce>/<slot>               the number of the last group of this slot of an engine
 *     g/<nonce>/<slot>/<i>           and whether its i-th was done, where each stood alone
 *
 * r/, b/ and g/ are on leases of etcd's that nobody renews: it forgets them by itself. README.md
 * has the rules. */
#ifndef SL_STORAGE_ETCD_ETCD_H
#define SL_STORAGE_ETCD_ETCD_H

#include <jansson.h>

#include "storage/etcd/client.h"
#include "storage/kind.h"

#define SL_ETCD_FORMAT "1"
#define SL_ETCD_PREFIX_MAX 256
#define SL_NONCE_BYTES 40
#define SL_ETCD_KEY_MAX (SL_ETCD_PREFIX_MAX + SL_STORAGE_REQUEST_BYTES_MAX + 128)

/* --- Text: JSON that is written (etcd_json.c) -------------------------------- */

struct sl_etcd_text {
    char *at;
    size_t n, room;
    bool failed; /* Out of memory; then it is of no use. */
};

void sl_etcd_text_clear(struct sl_etcd_text *t);
void sl_etcd_text_free(struct sl_etcd_text *t);
void sl_etcd_text_add(struct sl_etcd_text *t, const char *words);

struct sl_etcd_key {
    char at[SL_ETCD_KEY_MAX];
    size_t n;
};

void sl_etcd_key_of(const struct sl_storage *e, struct sl_etcd_key *k,
                    const char *name);
void sl_etcd_key_data(const struct sl_storage *e, struct sl_etcd_key *k,
                      struct sl_bytes table, struct sl_bytes key);
void sl_etcd_key_request(const struct sl_storage *e, struct sl_etcd_key *k,
                         struct sl_bytes request);
void sl_etcd_key_bar(const struct sl_storage *e, struct sl_etcd_key *k, uint64_t term,
                     uint64_t id);
void sl_etcd_key_slot(const struct sl_storage *e, struct sl_etcd_key *k, uint32_t slot);
void sl_etcd_key_part(const struct sl_storage *e, struct sl_etcd_key *k, uint32_t slot,
                      uint32_t i);

/* A transaction: begin, comparisons, then, operations, else, operations, end. */
void sl_etcd_txn_begin(struct sl_etcd_text *t);
void sl_etcd_txn_then(struct sl_etcd_text *t);
void sl_etcd_txn_else(struct sl_etcd_text *t);
void sl_etcd_txn_end(struct sl_etcd_text *t);
void sl_etcd_txn_inner(
    struct sl_etcd_text *t); /* Begin one that is an operation of another; */
void sl_etcd_txn_inner_end(struct sl_etcd_text *t);

void sl_etcd_if_absent(struct sl_etcd_text *t, const struct sl_etcd_key *k);
void sl_etcd_if_revision(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                         uint64_t revision);
void sl_etcd_if_value(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                      const char *result, struct sl_bytes value);
/* This term is the current one. */
void sl_etcd_if_term(struct sl_etcd_text *t, const struct sl_storage *e, uint64_t term);

void sl_etcd_op_put(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                    struct sl_bytes value, int64_t lease);
void sl_etcd_op_delete(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                       const struct sl_etcd_key *end);
enum sl_etcd_range { SL_ETCD_RANGE_ALL, SL_ETCD_RANGE_KEYS, SL_ETCD_RANGE_COUNT };
void sl_etcd_op_range(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                      const struct sl_etcd_key *end, enum sl_etcd_range what);
/* Who is the keeper: both keys. */
void sl_etcd_op_reign(struct sl_etcd_text *t, const struct sl_storage *e);

/* --- JSON that is read ------------------------------------------------------- */

/* NULL: it is none, or there is no memory. */
json_t *sl_etcd_json_of(struct sl_bytes b);
uint64_t sl_etcd_json_number(const json_t *o,
                             const char *name); /* 0: it is not there. */
bool sl_etcd_json_succeeded(const json_t *o);
uint64_t sl_etcd_json_revision(const json_t *answer); /* Of its header. */

/* Of the i-th operation of a transaction: its keys, and how many there are. */
const json_t *sl_etcd_json_keys(const json_t *txn, size_t i);
uint64_t sl_etcd_json_count(const json_t *txn, size_t i);
const json_t *sl_etcd_json_inner(const json_t *txn, size_t i); /* A transaction. */

/* A key's value as text, cut if need be; and whether a key has this name. */
void sl_etcd_json_text(const json_t *kv, char *out, size_t room);
bool sl_etcd_json_is(const json_t *kv, const struct sl_etcd_key *k);

/* From the answer of sl_etcd_op_reign(); and what one key says of it. `nonce` may be NULL. */
void sl_etcd_json_reign(const struct sl_storage *e, const json_t *keys,
                        struct sl_storage_term *out, char nonce[SL_NONCE_BYTES]);
void sl_etcd_json_reign_key(const struct sl_storage *e, const json_t *kv,
                            struct sl_storage_term *out, char nonce[SL_NONCE_BYTES]);

/* --- The engine -------------------------------------------------------------- */

#define SL_READ_SLOTS 4

/* A request that is sent, and again. */
struct sl_etcd_task {
    struct sl_etcd_call call;
    struct sl_storage *e;
    struct sl_etcd_text body;
    bool busy;   /* It is somebody's, */
    bool flying; /* the client has it, */
    bool lost;   /* and one of its tries may be done, or may come to be. */
    bool gone;   /* Nobody waits for it any more. */
    bool writes; /* What it is for; */
    bool looks;  /* and this time it only looks. */
    unsigned tries;
    sl_ms since, retry_at; /* SL_NEVER: not by itself. */
};

/* Writes: a group. Names are hashes of what it must not meet another with. */
struct sl_etcd_group {
    struct sl_etcd_task ask;
    struct sl_list ops, later; /* Those that are asked for; those that wait for them. */
    uint32_t index, count;
    uint64_t term;
    bool inner;
    bool looking;         /* It asks what its slot says. */
    bool unbuilt;         /* Its body is to be made, anew: it waits for a lease. */
    uint64_t flat_number; /* Of the group, while it stood together; */
    uint64_t number;      /* and of what is sent now. */
    uint64_t slot_revision;
    int64_t lease;
    uint64_t *names;
    size_t name_count;
};

struct sl_etcd_claim {
    struct sl_etcd_task ask;
    struct sl_storage_op *op; /* NULL: none. */
    bool looking;             /* What format is it? */
    bool settling;            /* Is it ours? */
    char nonce[SL_NONCE_BYTES];
};

struct sl_etcd_renewal {
    struct sl_etcd_task ask;
    struct sl_storage_op *op;
    unsigned again;
};

struct sl_etcd_reading {
    struct sl_etcd_task ask;
    struct sl_list ops;
    uint32_t count;
};

/* A scan: pages of one revision. */
struct sl_etcd_scanning {
    struct sl_etcd_task ask;
    struct sl_storage_op *op;
    uint64_t revision;
    uint32_t page;
    struct sl_etcd_key next;
    struct sl_storage_row *rows; /* Their bytes are numbers, of places in `bytes`. */
    uint32_t count, room;
    char *bytes;
    size_t n, bytes_room;
    unsigned anew;
};

/* The lease that what is forgotten is on. */
struct sl_etcd_lease {
    struct sl_etcd_task ask;
    int64_t id; /* 0: none. */
    sl_ms since;
    uint64_t keys;
};

struct sl_etcd_watching {
    struct sl_etcd_task ask; /* A look. */
    void (*told)(void *owner, const struct sl_storage_term *reign);
    void *owner;
    bool streams;
    sl_ms look_at; /* The next look. */
    struct sl_etcd_key key, end;
    struct sl_storage_term reign;
    uint64_t revision; /* That it was so at. */
    bool tell;         /* Whatever it is. */
    unsigned failures;
};

enum sl_etcd_format {
    SL_ETCD_FORMAT_UNKNOWN,
    SL_ETCD_FORMAT_NONE,
    SL_ETCD_FORMAT_OURS,
    SL_ETCD_FORMAT_OTHER
};

struct sl_storage {
    struct sl_storage_head head;
    struct sl_etcd_settings settings; /* Its numbers. */
    uint32_t members;
    struct sl_bytes prefix;
    char nonce[17]; /* Of this engine. */
    uint64_t number;

    struct sl_etcd *client;
    int fd, event;

    struct sl_list writes, renewals, reads, scans, held, done;
    uint32_t alone, reads_alone; /* So many of the next ones are not grouped. */
    struct sl_etcd_group *slots;
    uint32_t slot_count;
    struct sl_etcd_claim claim;
    struct sl_etcd_renewal renewal;
    struct sl_etcd_reading readings[SL_READ_SLOTS];
    struct sl_etcd_scanning scannings[SL_READ_SLOTS];
    struct sl_etcd_lease lease;
    struct sl_etcd_watching watching;

    enum sl_etcd_format format;
    uint64_t heartbeat; /* The revision of keeper/beat, as far as it is known. */
    struct sl_storage_term seen; /* The last that was. */
    sl_ms silent_since;          /* No answer since; 0: the last request had one. */
    sl_ms hurry_since;           /* 0: no hurry. */
    sl_ms wake_at;
    char trouble[300];
    bool write_trouble; /* Only a write that is done ends it. */
    struct sl_storage_stats stats;
};

/* --- Asking (etcd.c) --------------------------------------------------------- */

sl_ms sl_etcd_now(void); /* As the client has it: the boot-time clock. */

/* What an answer means for who asked. */
enum sl_etcd_outcome {
    SL_ETCD_OUTCOME_ANSWER,   /* It is one. */
    SL_ETCD_OUTCOME_UNSENT,   /* It was not done: nobody was reached. */
    SL_ETCD_OUTCOME_UNKNOWN,  /* It was done, or will be, or not. */
    SL_ETCD_OUTCOME_NO_LEASE, /* It was not done: the lease is gone. */
    SL_ETCD_OUTCOME_BUSY,     /* It was not done, and may be asked again. */
    SL_ETCD_OUTCOME_REFUSED,  /* It was not done: *status says why. */
};
enum sl_etcd_outcome sl_etcd_outcome_of(struct sl_etcd_task *a, int *status);

void sl_etcd_task_init(struct sl_storage *e, struct sl_etcd_task *a, const char *path,
                       void (*done)(struct sl_etcd_call *call), void *owner);
void sl_etcd_task_begin(struct sl_etcd_task *a); /* It is busy from now on. */
void sl_etcd_task_send(struct sl_etcd_task *a);  /* Its body. */
void sl_etcd_task_later(struct sl_etcd_task *a); /* Again, after a pause that grows. */
void sl_etcd_task_end(struct sl_etcd_task *a);
bool sl_etcd_task_is_due(const struct sl_etcd_task *a, sl_ms now);
void sl_etcd_wake(struct sl_storage *e, sl_ms at); /* Not later than that. */
/* No answer for so long that who was not sent is told so. */
bool sl_etcd_is_silent(const struct sl_storage *e, sl_ms now);
void sl_etcd_note_silence(struct sl_storage *e, sl_ms since);

void sl_etcd_op_done(struct sl_storage *e, struct sl_storage_op *op, int status);
struct sl_storage_op *sl_etcd_op_after(const struct sl_list *list,
                                       struct sl_storage_op *op);
void sl_etcd_note_revision(struct sl_storage *e, uint64_t revision);
void sl_etcd_note_reign(struct sl_storage *e, const struct sl_storage_term *reign);

/* Is the format of what is there ours? From its keys; it says so in `trouble`. */
bool sl_etcd_format_is_ours(struct sl_storage *e, const json_t *keys);

/* A lease for so many keys more; 0: there is none yet, and it is asked for. */
int64_t sl_etcd_lease_take(struct sl_storage *e, uint64_t keys);
void sl_etcd_lease_drop(struct sl_storage *e, int64_t id); /* It is gone. */
void sl_etcd_lease_init(struct sl_storage *e);
void sl_etcd_lease_pump(struct sl_storage *e, sl_ms now);

/* --- The lanes: what can be sent is sent, what is due is done ----------------- */

int sl_etcd_groups_init(struct sl_storage *e);
void sl_etcd_groups_free(struct sl_storage *e);
void sl_etcd_groups_pump(struct sl_storage *e, sl_ms now);
void sl_etcd_groups_refuse(struct sl_storage *e,
                           int status); /* Those without a lease. */
void sl_etcd_groups_hurry(struct sl_storage *e,
                          sl_ms now); /* Whoever waits too long. */
bool sl_etcd_request_in_flight(const struct sl_storage *e, struct sl_bytes request);

void sl_etcd_term_init(struct sl_storage *e);
void sl_etcd_term_free(struct sl_storage *e);
void sl_etcd_term_claim(struct sl_storage *e, struct sl_storage_op *op);
void sl_etcd_term_pump(struct sl_storage *e, sl_ms now);
void sl_etcd_term_hurry(struct sl_storage *e, sl_ms now);

void sl_etcd_watching_init(struct sl_storage *e);
void sl_etcd_watching_free(struct sl_storage *e);
void sl_etcd_watching_pump(struct sl_storage *e, sl_ms now);

void sl_etcd_reads_init(struct sl_storage *e);
void sl_etcd_reads_free(struct sl_storage *e);
void sl_etcd_reads_submit(struct sl_storage *e, struct sl_storage_op *op);
void sl_etcd_reads_pump(struct sl_storage *e, sl_ms now);
void sl_etcd_reads_hurry(struct sl_storage *e, sl_ms now);

#define SL_HURRY_MS 2000

#endif /* SL_STORAGE_ETCD_ETCD_H */
