#include "server/arbiter/transactions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/transactions_internal.h"
#include "server/forward/forward.h"
#include "server/observe/inspection.h"

/* --- Cycles -------------------------------------------------------------------------------- */

void sl_cycle_text(const uint64_t *of, uint32_t count, char out[SL_CYCLE_TEXT])
{
    size_t n = 0;
    uint32_t shown = count < SL_CYCLE_SHOWN ? count : SL_CYCLE_SHOWN;
    for (uint32_t i = 0; i < shown; i++)
        n += (size_t)snprintf(out + n, SL_CYCLE_TEXT - n, "%" PRIu64 " waits for ",
                              of[i]);
    snprintf(out + n, SL_CYCLE_TEXT - n, "%s%" PRIu64,
             shown < count ? "... waits for " : "", of[0]);
}

static void remember_cycle(struct server *s, uint64_t loser,
                           const struct sl_tx_answer *a)
{
    struct sl_keep *k = s->keep;
    struct sl_cycle *c = &k->cycles[k->cycle_count++ % CYCLES_KEPT];
    uint32_t n = a->cycle_count < SL_CYCLE_SHOWN ? a->cycle_count : SL_CYCLE_SHOWN;
    *c = (struct sl_cycle){.at_ms = s->now.ms, .loser = loser, .count = a->cycle_count};
    memcpy(c->of, a->cycle, n * sizeof *c->of);
}

const struct sl_cycle *sl_keep_cycle(const struct server *s, uint32_t i)
{
    const struct sl_keep *k = s->keep;
    if (k == NULL || i >= k->cycle_count || i >= CYCLES_KEPT) return NULL;
    return &k->cycles[(k->cycle_count - 1 - i) % CYCLES_KEPT];
}

/* --- Requests -------------------------------------------------------------------------------- */

/* After RESTART and AGE the keeper itself lets nothing be done, until BEGIN. */
static bool is_over(const char *word)
{
    return strcmp(word, sluice_status_word(SLUICE_ERESTART)) == 0 ||
           strcmp(word, sluice_status_word(SLUICE_EAGE)) == 0;
}

void sl_keep_failed(struct conn *c, const char *name, const char *word)
{
    struct sl_tx_session *t = c->tx;
    if (t == NULL || t->id == 0 || (t->error != NULL && !is_over(word))) return;
    t->failed = name;
    t->error = word;
}

static bool has_failed(const struct conn *c)
{
#ifdef MUT_TXHALF
    return false;
#endif
    return c->tx != NULL && c->tx->error != NULL && !is_over(c->tx->error);
}

#define STEP_COST 8u /* Of a lock that is looked at: somewhere in memory. */

/* A search for cycles may look at thousands of locks: then a turn has fewer commands. */
static uint64_t steps_of(const struct sl_keep *k)
{
    struct sl_tx_manager_stats stats;
    sl_tx_manager_stats(k->keeper, &stats);
    return stats.steps;
}

static void refuse(struct request *r, int status, const char *text)
{
    const struct answer a = {.status = status, .text = text};
    sl_request_answer(r, &a);
}

/* False: out of memory. */
static bool has_session(struct conn *c)
{
    if (c->tx == NULL) c->tx = calloc(1, sizeof *c->tx);
    return c->tx != NULL;
}

void sl_keep_lose(struct conn *c)
{
    if (!has_session(c)) return;
    c->tx->id = 0;
#ifndef MUT_RELAYSTALE
    c->tx->lost = true;
#endif
}

bool sl_keep_answers_lost(struct request *r)
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
    struct sl_keep *k = s->keep;
    struct sl_tx_request ask = r->tx;
    if (!has_session(r->c)) {
        sl_request_answer_status(r, SLUICE_ENOMEM);
        return;
    }
    if (sl_keep_answers_lost(r) || !sl_request_reserve(r)) return;
    ask.session = sl_conn_id(r->c);
    if (ask.type == SL_TX_COMMIT && has_failed(r->c)) ask.type = SL_TX_ABORT;
    uint64_t before = steps_of(k);
    int status = sl_tx_manager_submit(k->keeper, s->now.ms, sl_request_ticket(r), &ask);
    sl_server_spend(s, STEP_COST * (steps_of(k) - before));
    if (status != SLUICE_OK) {
        sl_request_answer_status(r, status);
        return;
    }
    k->current = r; /* Most are answered before this returns. */
    sl_keep_pump(s);
    k->current = NULL;
    if (!r->answered) sl_request_keep(r);
}

static void inspect(struct request *r)
{
    struct sl_inspection *i = sl_inspection_new(r->s, SL_INSPECT_TX);
    i->tx = r->s->keep->keeper;
    const struct answer a = {.status = SLUICE_OK, .inspection = i};
    sl_request_answer(r, &a);
}

void sl_keep_submit_request(struct request *r)
{
    const struct sl_keep *k = r->s->keep;
    if (k == NULL || k->keeper == NULL)
        refuse(r, SLUICE_ENOKEEPER, sl_keep_why_not(r->s));
    else if (r->verb == SL_VERB_TX) submit(r);
    else inspect(r);
}

void sl_keep_leave(struct conn *c)
{
    struct server *s = c->server;
    free(c->tx);
    c->tx = NULL;
    if (s->keep == NULL || s->keep->keeper == NULL) return;
    sl_tx_manager_leave(s->keep->keeper, s->now.ms, sl_conn_id(c));
}

bool sl_keep_is_brief(const struct request *r)
{
    const struct sl_keep *k = r->s->keep;
#ifdef MUT_TXBRIEF
    return false;
#endif
    return k->keeper == NULL || !sl_tx_manager_waits(k->keeper, sl_conn_id(r->c));
}

bool sl_keep_is_busy(const struct server *s)
{
#ifdef MUT_TXSTOP
    return false;
#endif
    return s->keep != NULL && s->keep->commits > 0;
}

/* Which transaction the connection has after this answer. */
static uint64_t transaction_of(const struct conn *c, enum sl_tx_verb asked,
                               const struct sl_tx_answer *a)
{
    bool restarts = a->status == SLUICE_ERESTART || a->status == SLUICE_EAGE;
    if (asked == SL_TX_BEGIN) return a->status == SLUICE_OK ? a->id : c->tx->id;
    if (asked == SL_TX_OUTCOME) return c->tx->id;
    if (asked == SL_TX_COMMIT && !restarts) return 0;
    if (asked == SL_TX_ABORT && a->status == SLUICE_OK) return 0;
    return a->status == SLUICE_ESTALE ? 0 : c->tx->id;
}

/* A commit that became an abort, because a command before it had failed. */
static void answer_failed(struct request *r)
{
    const struct sl_tx_session *t = r->c->tx;
    struct call call = sl_request_call(r);
    char text[120];
    snprintf(text, sizeof text,
             "%s failed before (%s): nothing was committed; TX.BEGIN again", t->failed,
             t->error);
    sl_say(&call, t->error, text);
    sl_request_end(r);
}

/* --- Errors of the storage ---------------------------------------------------------------- */

#define TEXT_BYTES (SL_CYCLE_TEXT + 100)

static const char *etcd_text(const struct server *s, enum sl_tx_verb asked, int status,
                             char text[TEXT_BYTES])
{
    const char *trouble = sl_keep_trouble(s);
    if (status == SLUICE_ENOSPC)
        return "etcd has no space left (its quota): nothing was written, and what is "
               "there can be read";
    if (status == SLUICE_ECLOSED)
        return "the server stops, and etcd does not answer: TX.OUTCOME will tell "
               "whether it was committed, if it has a REQUEST";
    snprintf(text, TEXT_BYTES, "%s%s",
             asked == SL_TX_COMMIT ? "nothing was committed: " : "",
             *trouble != '\0' ? trouble : "etcd does not answer");
    return text;
}

static const char *store_text(enum sl_tx_verb asked, int status)
{
    if (status == SLUICE_ENOSPC)
        return "the store is full (store-bytes-max), or its disk is: nothing was "
               "written, and what is there can be read";
    if (status == SLUICE_ECLOSED)
        return "the server stops, and its disk fails: TX.OUTCOME will tell whether it "
               "was committed, if it has a REQUEST";
    return asked == SL_TX_COMMIT ? "the disk of the store failed: nothing was committed"
                                 : "the disk of the store cannot be read";
}

/* A commit with more than one transaction of etcd can have. */
static const char *etcd_limit_text(const struct server *s, char text[TEXT_BYTES])
{
    snprintf(
        text, TEXT_BYTES,
        "etcd takes %" PRId64 " operations (etcd-ops-max) and %" PRId64
        " bytes (etcd-request-bytes-max) in one transaction: nothing was committed",
        s->settings->etcd_ops_max, s->settings->etcd_request_bytes_max);
    return text;
}

static const char *restart_text(const struct sl_tx_answer *a, char text[TEXT_BYTES])
{
    char cycle[SL_CYCLE_TEXT];
    if (a->cycle_count == 0)
        return "a cycle was broken here, and this was not done: TX.BEGIN again";
    sl_cycle_text(a->cycle, a->cycle_count, cycle);
    snprintf(text, TEXT_BYTES,
             "a cycle of transactions was broken here: %s; TX.BEGIN again", cycle);
    return text;
}

/* The text of an error; NULL: the reply has one itself. */
static const char *text_of(const struct server *s, enum sl_tx_verb asked,
                           const struct sl_tx_answer *a, char text[TEXT_BYTES])
{
    bool etcd = s->keep->etcd;
    int status = a->status;
    switch (status) {
        case SLUICE_ERESTART: return restart_text(a, text);
        case SLUICE_ENOKEEPER: return sl_keep_why_not(s);
        case SLUICE_ENOSPC:
        case SLUICE_ECLOSED:
        case SLUICE_EIO:
            return etcd ? etcd_text(s, asked, status, text) : store_text(asked, status);
        case SLUICE_ETOOBIG:
        case SLUICE_EWRITES:
            return etcd && asked == SL_TX_COMMIT ? etcd_limit_text(s, text) : NULL;
        default: return NULL;
    }
}

/* --- Answers --------------------------------------------------------------------------------- */

static struct request *find(const struct server *s, uint64_t ticket)
{
    struct request *r = s->keep->current;
    return r != NULL && r->ticket == ticket ? r : sl_request_find(s, ticket);
}

static void answer(struct server *s, uint64_t ticket, const struct sl_tx_answer *a)
{
    struct request *r = find(s, ticket);
    if (r == NULL || r->answered) return; /* Its client has left. */
    struct conn *c = r->c;
    enum sl_tx_verb asked = r->tx.type;
    char text[TEXT_BYTES];
    const struct answer reply = {.status = a->status,
                                 .text = text_of(s, asked, a, text),
                                 .number = (int64_t)c->tx->id,
                                 .tx = a};
    if (a->status == SLUICE_ERESTART && a->cycle_count > 0)
        remember_cycle(s, c->tx->id, a);
    if (asked == SL_TX_COMMIT && a->status == SLUICE_OK && has_failed(c))
        answer_failed(r);
    else if (r->settles && a->status == SLUICE_OK && !a->found)
        refuse(r, SLUICE_ESTALE, SL_LOST_TX);
    else sl_request_answer(r, &reply);
    c->tx->id = transaction_of(c, asked, a);
    if (c->tx->id == 0 || (asked == SL_TX_BEGIN && a->status == SLUICE_OK))
        c->tx->error = NULL;
}

sl_ms sl_keep_due(const struct server *s)
{
    return s->keep == NULL || s->keep->keeper == NULL
               ? SL_NEVER
               : sl_tx_manager_due(s->keep->keeper);
}

bool sl_keep_pump(struct server *s)
{
    struct sl_tx_order o;
    if (s->keep == NULL || s->keep->keeper == NULL) return true;
    struct sl_tx_manager *k = s->keep->keeper;
    if (sl_tx_manager_due(k) <= s->now.ms) sl_tx_manager_tick(k, s->now.ms);
    while (s->effects_left > 0) {
        if (!sl_tx_manager_next(k, &o)) return sl_tx_manager_due(k) > s->now.ms;
        sl_server_count_effect(s, false);
        if (o.type == SL_TX_ORDER_ANSWER) answer(s, o.ticket, o.answer);
        else sl_keep_order(s, &o);
    }
    return false;
}

/* A deposed one orders nothing more; what it answers is answered at once. */
void sl_keep_answer_all(struct server *s, struct sl_tx_manager *of)
{
    struct sl_tx_order o;
    while (sl_tx_manager_next(of, &o))
        if (o.type == SL_TX_ORDER_ANSWER) answer(s, o.ticket, o.answer);
}

/* --- Ask ---------------------------------------------------------------------------------------- */

const struct sl_tx_manager *sl_keep_keeper(const struct server *s)
{
    return s->keep == NULL ? NULL : s->keep->keeper;
}

const char *sl_keep_why_not(const struct server *s)
{
    if (s->relay != NULL) return sl_forward_why_not(s);
    if (s->cluster != NULL)
        return "a cluster has no transactions without an etcd: --etcd URL,...";
    if (s->settings->engine == SL_ENGINE_NONE)
        return "there are no transactions here (engine: none)";
    if (s->keep == NULL)
        return "transactions need a folder to keep their data in: --data FOLDER";
    if (*s->keep->damage != '\0') return s->keep->damage;
    struct sl_tx_manager_stats stats;
    sl_tx_manager_stats(s->keep->keeper, &stats);
    if (stats.state == SL_TX_MANAGER_STOPPED)
        return "another keeper has taken the store over, and this one has stopped; "
               "start "
               "the server again";
    return "the store has not made this keeper current yet, see the log; ask again";
}

static const char *state_name(enum sl_tx_manager_state state)
{
    return state == SL_TX_MANAGER_CURRENT   ? "leader"
           : state == SL_TX_MANAGER_STOPPED ? "stopped"
                                            : "candidate";
}

size_t sl_keep_bytes(const struct server *s)
{
    const struct sl_keep *k = s->keep;
    return k == NULL || k->keeper == NULL ? 0 : sl_tx_manager_bytes(k->keeper);
}

void sl_keep_look(const struct server *s, struct sl_keep_view *out)
{
    const struct sl_keep *k = s->keep;
    *out = (struct sl_keep_view){.engine = "none", .state = "none"};
    if (k == NULL) return;
    if (k->keeper != NULL) sl_tx_manager_stats(k->keeper, &out->keeper);
    if (k->engine != NULL) sl_storage_stats(k->engine, &out->engine_stats);
    out->engine = s->relay != NULL ? "etcd" : "lmdb";
    out->state = k->keeper != NULL    ? state_name(out->keeper.state)
                 : *k->damage != '\0' ? "damaged"
                                      : "watching";
}
