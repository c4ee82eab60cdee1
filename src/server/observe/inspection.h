/* inspection.h - what EXPLAIN and LOCKS show. An arbiter fills it in; inspection.c writes it. */
#ifndef SL_SERVER_OBSERVE_INSPECTION_H
#define SL_SERVER_OBSERVE_INSPECTION_H

#include "server/request.h"

#define SL_SHOWN_MAX 100u /* Holders, and waiters, of one EXPLAIN. */
#define SL_COUNT_MAX 1000 /* Locks of one LOCKS. */
#define SL_SENTENCE_BYTES 640u
#define SL_REASON_BYTES 160u
#define SL_CLIENT_TEXT_BYTES 256u /* A name and an address. */
#define SL_SENTENCES_MAX (SL_NODES_MAX + 7)
#define SL_INSPECT_STEPS_MAX \
    500000u /* Steps of pattern matching in one call; the cursor continues there. */

enum sl_inspect {
    SL_INSPECT_LOCK,   /* EXPLAIN key */
    SL_INSPECT_LOCKS,  /* LOCKS: the next few, from `cursor` on. */
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
    const struct sl_node_answer
        *votes; /* What each node knows of it; NULL: one decides. */

    /* LOCKS */
    uint64_t cursor;
    size_t found_max, found_count;
    bool waited;  /* Only those with waiters, the longest wait first. */
    size_t steps; /* What it cost. */

    struct sl_node *node;           /* NODES */
    const struct sl_tx_manager *tx; /* TX */

    /* Large; only as much of these is valid as the counts say. */
    struct sl_grant_view holders[SL_SHOWN_MAX];
    struct sl_grant_view waiters[SL_SHOWN_MAX];
    char reasons[SL_SHOWN_MAX][SL_REASON_BYTES]; /* Why each waiter waits. */
    char sentences[SL_SENTENCES_MAX][SL_SENTENCE_BYTES];
    struct sl_lock_view found[SL_COUNT_MAX];
};

/* An empty one. The server has one, and uses it again for the next request. */
struct sl_inspection *sl_inspection_new(struct server *s, enum sl_inspect of);

/* The next sentence of the summary, to be filled in. */
char *sl_inspection_sentence(struct sl_inspection *i);

/* The sentence that a summary begins with: the holder, since when, and the next waiter, by what
 * `lock`, `holders` and `waiters` have. `where`: " at this node", or "". */
void sl_inspection_summarize(struct sl_inspection *i, const char *where);

/* "350 ms", "12 s", "5 min". */
#define SL_AGE_BYTES 24u
const char *sl_age_text(sl_ms ms, char out[SL_AGE_BYTES]);

/* Answer LOCKS from what its arbiter finds, a page at a time. */
void sl_inspection_list(struct request *r);

/* --- Writing -------------------------------------------------------------------- */

/* The replies to EXPLAIN, LOCKS, DRAIN and NODES. */
void sl_inspection_write(struct call *call, const struct request *r,
                         const struct sl_inspection *i);

/* EXPLAIN TX and LOCKS TX (arbiter/transactions_inspect.c). */
void sl_inspection_write_tx(struct call *call, const struct request *r,
                            const struct sl_inspection *i);

/* A name and its value. */
void sl_put_number(struct sl_resp_writer *w, const char *name, int64_t n);
void sl_put_bytes(struct sl_resp_writer *w, const char *name, struct sl_bytes b);
void sl_put_text(struct sl_resp_writer *w, const char *name, const char *text);

/* The name and address of a session whose connection is open. False: it is not open. */
bool sl_session_client(const struct server *s, uint64_t id, struct sl_bytes *name,
                       char address[SL_WHERE_BYTES]);

/* "backup-7 (10.0.0.7:51152)", or "client 9 (10.0.0.7:51152)" without a name. */
void sl_client_text(uint64_t id, struct sl_bytes name, struct sl_bytes address,
                    char out[SL_CLIENT_TEXT_BYTES]);

#endif /* SL_SERVER_OBSERVE_INSPECTION_H */
