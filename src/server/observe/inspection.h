/* inspection.h - the data that EXPLAIN and LOCKS show. An arbiter fills in an inspection;
 * inspection.c writes the reply from it. */
#ifndef SL_SERVER_OBSERVE_INSPECTION_H
#define SL_SERVER_OBSERVE_INSPECTION_H

#include "server/request.h"

#define SL_SHOWN_MAX 100u /* Maximum holders, and maximum waiters, in one EXPLAIN. */
#define SL_COUNT_MAX 1000 /* Maximum locks in one LOCKS. */
#define SL_SENTENCE_BYTES 640u
#define SL_REASON_BYTES 160u
#define SL_CLIENT_TEXT_BYTES 256u /* A name and an address. */
#define SL_SENTENCES_MAX (SL_NODES_MAX + 7)
/* Pattern matching stops after this many steps; the cursor continues there. */
#define SL_INSPECT_STEPS_MAX 500000u

enum sl_inspect {
    SL_INSPECT_LOCK,   /* EXPLAIN key */
    SL_INSPECT_LOCKS,  /* LOCKS: the next page, starting at `cursor`. */
    SL_INSPECT_DRAINS, /* DRAIN without arguments */
    SL_INSPECT_NODES,  /* NODES without arguments */
    SL_INSPECT_TX,     /* EXPLAIN TX, LOCKS TX */
};

struct sl_inspection {
    const struct server *s;
    enum sl_inspect of;

    /* LOCK */
    struct sl_bytes key;
    struct sl_lock_view lock;
    size_t holder_count, waiter_count, sentence_count;
    /* The answers of the nodes; NULL: no majority decides this lock. */
    const struct sl_node_answer *votes;

    /* LOCKS */
    uint64_t cursor;
    size_t found_max, found_count;
    bool waited;  /* Only locks with waiters, the longest wait first. */
    size_t steps; /* The cost in steps of pattern matching. */

    struct sl_node *node;           /* NODES */
    const struct sl_tx_manager *tx; /* TX */

    /* Large arrays. Only as many entries are valid as the counts say. */
    struct sl_grant_view holders[SL_SHOWN_MAX];
    struct sl_grant_view waiters[SL_SHOWN_MAX];
    char reasons[SL_SHOWN_MAX][SL_REASON_BYTES]; /* Why each waiter waits. */
    char sentences[SL_SENTENCES_MAX][SL_SENTENCE_BYTES];
    struct sl_lock_view found[SL_COUNT_MAX];
};

/* Return an empty inspection. The server has only one and reuses it for the next request. */
struct sl_inspection *sl_inspection_new(struct server *s, enum sl_inspect of);

/* Add a sentence to the summary. Returns the buffer to fill in. */
char *sl_inspection_sentence(struct sl_inspection *i);

/* Write the first sentence of the summary from `lock`, `holders` and `waiters`: the holder, how
 * long it has held the lock, and the next waiter. `where` is " at this node" or "". */
void sl_inspection_summarize(struct sl_inspection *i, const char *where);

/* Format a duration as "350 ms", "12 s" or "5 min". */
#define SL_AGE_BYTES 24u
const char *sl_age_text(sl_ms ms, char out[SL_AGE_BYTES]);

/* Answer LOCKS with the locks that the arbiter finds, one page at a time. */
void sl_inspection_list(struct request *r);

/* --- Writing -------------------------------------------------------------------- */

/* Write the reply to EXPLAIN, LOCKS, DRAIN or NODES. */
void sl_inspection_write(struct call *call, const struct request *r,
                         const struct sl_inspection *i);

/* Write the reply to EXPLAIN TX or LOCKS TX (arbiter/transactions_inspect.c). */
void sl_inspection_write_tx(struct call *call, const struct request *r,
                            const struct sl_inspection *i);

/* Write a name and its value. */
void sl_put_number(struct sl_resp_writer *w, const char *name, int64_t n);
void sl_put_bytes(struct sl_resp_writer *w, const char *name, struct sl_bytes b);
void sl_put_text(struct sl_resp_writer *w, const char *name, const char *text);

/* Get the name and address of a session. Returns false if its connection is not open. */
bool sl_session_client(const struct server *s, uint64_t id, struct sl_bytes *name,
                       char address[SL_WHERE_BYTES]);

/* Format a client as "backup-7 (10.0.0.7:51152)", or without a name as "client 9
 * (10.0.0.7:51152)". */
void sl_client_text(uint64_t id, struct sl_bytes name, struct sl_bytes address,
                    char out[SL_CLIENT_TEXT_BYTES]);

#endif /* SL_SERVER_OBSERVE_INSPECTION_H */
