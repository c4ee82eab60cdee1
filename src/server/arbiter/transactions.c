/* transactions.c - handles the requests of transactions, and writes their answers and error
 * texts. */
#include "server/arbiter/transactions.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/transactions_internal.h"
#include "server/forward/forward.h"
#include "server/observe/inspection.h"

/* --- Deadlocks ----------------------------------------------------------------------------- */

void sl_deadlock_text(const uint64_t *of, uint32_t count,
                      char out[SL_DEADLOCK_TEXT_BYTES])
{
    size_t n = 0;
    uint32_t shown = count < SL_DEADLOCK_SHOWN ? count : SL_DEADLOCK_SHOWN;
    for (uint32_t i = 0; i < shown; i++)
        n += (size_t)snprintf(out + n, SL_DEADLOCK_TEXT_BYTES - n,
                              "%" PRIu64 " waits for ", of[i]);
    snprintf(out + n, SL_DEADLOCK_TEXT_BYTES - n, "%s%" PRIu64,
             shown < count ? "... waits for " : "", of[0]);
}

static void remember_deadlock(struct server *s, uint64_t victim,
                              const struct sl_tx_answer *a)
{
    struct sl_transactions *t = s->transactions;
    struct sl_deadlock *c = &t->deadlocks[t->deadlock_count++ % DEADLOCKS_KEPT];
    uint32_t n = a->cycle_count < SL_DEADLOCK_SHOWN ? a->cycle_count
                                                    : SL_DEADLOCK_SHOWN;
    *c = (struct sl_deadlock){
        .at_ms = s->now.ms, .victim = victim, .count = a->cycle_count};
    memcpy(c->of, a->cycle, n * sizeof *c->of);
}

const struct sl_deadlock *sl_transactions_deadlock(const struct server *s, uint32_t i)
{
    const struct sl_transactions *t = s->transactions;
    if (t == NULL || i >= t->deadlock_count || i >= DEADLOCKS_KEPT) return NULL;
    return &t->deadlocks[(t->deadlock_count - 1 - i) % DEADLOCKS_KEPT];
}

/* --- Requests -------------------------------------------------------------------------------- */

/* Whether this error ends the transaction: after RESTART and AGE, the manager itself rejects all
 * commands until TX.BEGIN. */
static bool is_over(const char *code)
{
    return strcmp(code, sluice_status_word(SLUICE_ERESTART)) == 0 ||
           strcmp(code, sluice_status_word(SLUICE_EAGE)) == 0;
}

void sl_transactions_failed(struct conn *c, const char *name, const char *code)
{
    struct sl_tx_session *t = c->tx;
    if (t == NULL || t->id == 0 || (t->error != NULL && !is_over(code))) return;
    t->failed = name;
    t->error = code;
}

static bool has_failed(const struct conn *c)
{
    return c->tx != NULL && c->tx->error != NULL && !is_over(c->tx->error);
}

#define STEP_COST 8u /* Visiting a lock in a search usually misses the CPU cache. */

/* Return the steps of deadlock searches so far. A search may visit thousands of locks, so the
 * server charges its steps to the budget of this loop iteration. */
static uint64_t steps_of(const struct sl_transactions *t)
{
    struct sl_tx_manager_stats stats;
    sl_tx_manager_stats(t->manager, &stats);
    return stats.steps;
}

static void refuse(struct request *r, int status, const char *text)
{
    const struct answer a = {.status = status, .text = text};
    sl_request_answer(r, &a);
}

/* Make sure that the connection has a struct sl_tx_session. Returns false if out of memory. */
static bool has_session(struct conn *c)
{
    if (c->tx == NULL) c->tx = calloc(1, sizeof *c->tx);
    return c->tx != NULL;
}

void sl_transactions_lost(struct conn *c)
{
    if (!has_session(c)) return;
    c->tx->id = 0;
    c->tx->lost = true;
}

bool sl_transactions_answers_lost(struct request *r)
{
    unsigned flags = r->command->flags;
    if (r->c->tx == NULL || !r->c->tx->lost || (flags & SL_TX) == 0) return false;
    r->c->tx->lost = false;
    if ((flags & (SL_BEGINS | SL_ABORTS)) != 0) return false;
    refuse(r, SLUICE_ESTALE, SL_LOST_TX);
    return true;
}

static void submit(struct request *r)
{
    struct server *s = r->s;
    struct sl_transactions *t = s->transactions;
    struct sl_tx_request q = r->tx;
    if (!has_session(r->c)) {
        sl_request_answer_status(r, SLUICE_ENOMEM);
        return;
    }
    if (sl_transactions_answers_lost(r) || !sl_request_reserve(r)) return;
    q.session = sl_conn_id(r->c);
    if (q.type == SL_TX_COMMIT && has_failed(r->c)) q.type = SL_TX_ABORT;
    uint64_t before = steps_of(t);
    int status = sl_tx_manager_submit(t->manager, s->now.ms, sl_request_ticket(r), &q);
    sl_server_spend(s, STEP_COST * (steps_of(t) - before));
    if (status != SLUICE_OK) {
        sl_request_answer_status(r, status);
        return;
    }
    assert(t->current == NULL);
    t->current = r; /* Most requests are answered during this call. */
    sl_transactions_pump(s);
    t->current = NULL;
    if (!r->answered) sl_request_keep(r);
}

static void inspect(struct request *r)
{
    struct sl_inspection *i = sl_inspection_new(r->s, SL_INSPECT_TX);
    i->tx = r->s->transactions->manager;
    const struct answer a = {.status = SLUICE_OK, .inspection = i};
    sl_request_answer(r, &a);
}

void sl_transactions_submit(struct request *r)
{
    assert(r->verb >= SL_VERB_TX && !r->answered);
    const struct sl_transactions *t = r->s->transactions;
    if (t == NULL || t->manager == NULL)
        refuse(r, SLUICE_ENOKEEPER, sl_transactions_why_not(r->s));
    else if (r->verb == SL_VERB_TX) submit(r);
    else inspect(r);
}

void sl_transactions_leave(struct conn *c)
{
    struct server *s = c->server;
    free(c->tx);
    c->tx = NULL;
    if (s->transactions == NULL || s->transactions->manager == NULL) return;
    sl_tx_manager_leave(s->transactions->manager, s->now.ms, sl_conn_id(c));
}

bool sl_transactions_is_brief(const struct request *r)
{
    const struct sl_transactions *t = r->s->transactions;
    return t->manager == NULL || !sl_tx_manager_waits(t->manager, sl_conn_id(r->c));
}

bool sl_transactions_is_busy(const struct server *s)
{
    return s->transactions != NULL && s->transactions->commits > 0;
}

/* Return the transaction of the connection after this answer; 0: none. */
static uint64_t transaction_of(const struct conn *c, enum sl_tx_verb verb,
                               const struct sl_tx_answer *a)
{
    bool restarts = a->status == SLUICE_ERESTART || a->status == SLUICE_EAGE;
    if (verb == SL_TX_BEGIN) return a->status == SLUICE_OK ? a->id : c->tx->id;
    if (verb == SL_TX_OUTCOME) return c->tx->id;
    if (verb == SL_TX_COMMIT && !restarts) return 0;
    if (verb == SL_TX_ABORT && a->status == SLUICE_OK) return 0;
    return a->status == SLUICE_ESTALE ? 0 : c->tx->id;
}

/* Answer a TX.COMMIT that aborted the transaction, because an earlier command had failed. */
static void answer_failed(struct request *r)
{
    const struct sl_tx_session *t = r->c->tx;
    struct call call = sl_request_call(r);
    char text[120];
    snprintf(text, sizeof text,
             "nothing was committed, because %s failed with %s; retry from TX.BEGIN",
             t->failed, t->error);
    sl_say(&call, t->error, text);
    sl_request_end(r);
}

/* --- Errors of the storage ---------------------------------------------------------------- */

#define TEXT_BYTES (SL_DEADLOCK_TEXT_BYTES + 100)

static const char *etcd_text(const struct server *s, enum sl_tx_verb verb, int status,
                             char text[TEXT_BYTES])
{
    const char *trouble = sl_transactions_trouble(s);
    if (status == SLUICE_ENOSPC)
        return "etcd has used up its space quota; nothing was written, but reads still "
               "work";
    if (status == SLUICE_ECLOSED)
        return "the server is shutting down and etcd does not answer, so the outcome "
               "is unknown; if TX.BEGIN had a REQUEST id, ask for the outcome "
               "with TX.OUTCOME id";
    snprintf(text, TEXT_BYTES, "%s%s",
             verb == SL_TX_COMMIT ? "nothing was committed: " : "",
             *trouble != '\0' ? trouble : "etcd does not answer");
    return text;
}

static const char *store_text(enum sl_tx_verb verb, int status)
{
    if (status == SLUICE_ENOSPC)
        return "the store is full (store-bytes-max), or its disk is full; nothing was "
               "written, but reads still work";
    if (status == SLUICE_ECLOSED)
        return "the disk failed while the server was shutting down, so the outcome is "
               "unknown; if TX.BEGIN had a REQUEST id, ask for the outcome with "
               "TX.OUTCOME id";
    return verb == SL_TX_COMMIT ? "nothing was committed, because the store cannot be "
                                  "written; see the server's log"
                                : "the store cannot be read; see the server's log";
}

/* Return the error text for a commit that exceeds the maximum size of an etcd transaction. */
static const char *etcd_limit_text(const struct server *s, char text[TEXT_BYTES])
{
    snprintf(text, TEXT_BYTES,
             "nothing was committed, because etcd accepts at most %" PRId64
             " operations (etcd-ops-max) and %" PRId64
             " bytes (etcd-request-bytes-max) in one transaction",
             s->settings->etcd_ops_max, s->settings->etcd_request_bytes_max);
    return text;
}

static const char *restart_text(const struct sl_tx_answer *a, char text[TEXT_BYTES])
{
    char cycle[SL_DEADLOCK_TEXT_BYTES];
    if (a->cycle_count == 0)
        return "the transaction lost its locks in a deadlock; retry from TX.BEGIN";
    sl_deadlock_text(a->cycle, a->cycle_count, cycle);
    snprintf(text, TEXT_BYTES, "deadlock: transaction %s; retry from TX.BEGIN", cycle);
    return text;
}

/* Return the text of an error; NULL: use the standard text. */
static const char *text_of(const struct server *s, enum sl_tx_verb verb,
                           const struct sl_tx_answer *a, char text[TEXT_BYTES])
{
    bool etcd = s->transactions->etcd;
    int status = a->status;
    switch (status) {
        case SLUICE_ERESTART: return restart_text(a, text);
        case SLUICE_ENOKEEPER: return sl_transactions_why_not(s);
        case SLUICE_ENOSPC:
        case SLUICE_ECLOSED:
        case SLUICE_EIO:
            return etcd ? etcd_text(s, verb, status, text) : store_text(verb, status);
        case SLUICE_ETOOBIG:
        case SLUICE_EWRITES:
            return etcd && verb == SL_TX_COMMIT ? etcd_limit_text(s, text) : NULL;
        default: return NULL;
    }
}

/* --- Answers --------------------------------------------------------------------------------- */

static struct request *find(const struct server *s, uint64_t ticket)
{
    struct request *r = s->transactions->current;
    return r != NULL && r->ticket == ticket ? r : sl_request_find(s, ticket);
}

static void answer(struct server *s, uint64_t ticket, const struct sl_tx_answer *a)
{
    struct request *r = find(s, ticket);
    /* The client has left, so nobody waits for the answer. */
    if (r == NULL || r->answered) return;
    struct conn *c = r->c;
    enum sl_tx_verb verb = r->tx.type;
    char text[TEXT_BYTES];
    const struct answer reply = {.status = a->status,
                                 .text = text_of(s, verb, a, text),
                                 .number = (int64_t)c->tx->id,
                                 .tx = a};
    if (a->status == SLUICE_ERESTART && a->cycle_count > 0)
        remember_deadlock(s, c->tx->id, a);
    if (verb == SL_TX_COMMIT && a->status == SLUICE_OK && has_failed(c))
        answer_failed(r);
    else if (r->settles && a->status == SLUICE_OK && !a->found)
        refuse(r, SLUICE_ESTALE, SL_LOST_TX);
    else if (r->settles && a->status != SLUICE_OK) /* The commit may have succeeded. */
        refuse(r, SLUICE_ECLOSED,
               "the keeper failed during the commit, and the outcome is unknown; send "
               "TX.OUTCOME id to find out");
    else sl_request_answer(r, &reply);
    c->tx->id = transaction_of(c, verb, a);
    if (c->tx->id == 0 || (verb == SL_TX_BEGIN && a->status == SLUICE_OK))
        c->tx->error = NULL;
}

sl_ms sl_transactions_due(const struct server *s)
{
    return s->transactions == NULL || s->transactions->manager == NULL
               ? SL_NEVER
               : sl_tx_manager_due(s->transactions->manager);
}

bool sl_transactions_pump(struct server *s)
{
    struct sl_tx_order o;
    if (s->transactions == NULL || s->transactions->manager == NULL) return true;
    struct sl_tx_manager *m = s->transactions->manager;
    if (sl_tx_manager_due(m) <= s->now.ms) sl_tx_manager_tick(m, s->now.ms);
    while (s->effects_left > 0) {
        if (!sl_tx_manager_next(m, &o)) return sl_tx_manager_due(m) > s->now.ms;
        sl_server_count_effect(s, false);
        if (o.type == SL_TX_ORDER_ANSWER) answer(s, o.ticket, o.answer);
        else sl_transactions_order(s, &o);
    }
    return false;
}

/* Answer the requests of a stopped manager, which gives no more orders to the storage. */
void sl_transactions_answer_all(struct server *s, struct sl_tx_manager *of)
{
    struct sl_tx_order o;
    while (sl_tx_manager_next(of, &o))
        if (o.type == SL_TX_ORDER_ANSWER) answer(s, o.ticket, o.answer);
}

/* --- Inspection ------------------------------------------------------------------------------- */

const char *sl_transactions_why_not(const struct server *s)
{
    if (s->forward != NULL) return sl_forward_why_not(s);
    if (s->majority != NULL)
        return "transactions in a cluster need etcd; start the nodes with --etcd "
               "URL,...";
    if (s->settings->engine == SL_ENGINE_NONE)
        return "transactions are disabled on this server (engine: none)";
    if (s->transactions == NULL)
        return "transactions need a data directory; start the server with --data "
               "DIRECTORY";
    if (*s->transactions->damage != '\0') return s->transactions->damage;
    struct sl_tx_manager_stats stats;
    sl_tx_manager_stats(s->transactions->manager, &stats);
    if (stats.state == SL_TX_MANAGER_STOPPED)
        return "another server has taken over the store, so this one no longer serves "
               "transactions; restart it";
    return "the store is not ready yet; retry, and see the server's log";
}

static const char *state_name(enum sl_tx_manager_state state)
{
    return state == SL_TX_MANAGER_CURRENT   ? "leader"
           : state == SL_TX_MANAGER_STOPPED ? "stopped"
                                            : "candidate";
}

size_t sl_transactions_bytes(const struct server *s)
{
    const struct sl_transactions *t = s->transactions;
    return t == NULL || t->manager == NULL ? 0 : sl_tx_manager_bytes(t->manager);
}

void sl_transactions_inspect(const struct server *s, struct sl_transactions_view *out)
{
    const struct sl_transactions *t = s->transactions;
    *out = (struct sl_transactions_view){.storage = "none", .state = "none"};
    if (t == NULL) return;
    if (t->manager != NULL) sl_tx_manager_stats(t->manager, &out->manager);
    if (t->storage != NULL) sl_storage_stats(t->storage, &out->storage_stats);
    out->storage = s->forward != NULL ? "etcd" : "lmdb";
    out->state = t->manager != NULL   ? state_name(out->manager.state)
                 : *t->damage != '\0' ? "damaged"
                                      : "watching";
}
