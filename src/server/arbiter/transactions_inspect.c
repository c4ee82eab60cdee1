/* transactions_inspect.c - EXPLAIN TX and LOCKS TX: the locks of transactions. */
#include <inttypes.h>
#include <string.h>

#include "base/glob.h"
#include "server/arbiter/transactions.h"
#include "server/observe/inspection.h"

/* --- EXPLAIN TX ------------------------------------------------------------------------------ */

#define SENTENCES_MAX 20u
#define WAITS_MAX 10u /* Sentences about what a transaction waits for. */

struct item {
    const struct sl_tx_manager *manager;
    sl_ms now;
    struct sl_tx_item_view view;
    uint64_t shown[2 * SL_SHOWN_MAX]; /* The transactions in the reply. */
    uint32_t shown_count;
    char sentences[SENTENCES_MAX][SL_DEADLOCK_TEXT_BYTES + 120];
    uint32_t sentence_count;
};

static void put_key(struct sl_resp_writer *w, struct sl_bytes key)
{
    sl_resp_text(w, "key");
    if (key.at != NULL) sl_resp_bulk(w, key);
    else sl_resp_null(w);
}

static void put_one(struct call *call, struct item *it, const struct sl_tx_view *v)
{
    struct sl_resp_writer *w = call->out;
    char address[128];
    sl_session_address(call->s, v->session, address, sizeof address);
    sl_resp_map(w, 7);
    sl_put_number(w, "transaction", (int64_t)v->id);
    sl_put_number(w, "client", (int64_t)v->session);
    sl_put_text(w, "address", address);
    sl_put_text(w, "has", sl_tx_mode_name(v->mode));
    sl_put_text(w, "wants", sl_tx_mode_name(v->wanted));
    sl_put_number(w, "waits_for", (int64_t)v->waits_for);
    sl_put_number(w, "age_ms", v->since_ms);
    it->shown[it->shown_count++] = v->id;
    if (v->wanted == SL_TX_MODE_NONE || it->sentence_count >= WAITS_MAX) return;
    snprintf(it->sentences[it->sentence_count++], sizeof it->sentences[0],
             "transaction %" PRIu64 " waits for transaction %" PRIu64, v->id,
             v->waits_for);
}

/* Write the transactions from `first` on, at most SL_SHOWN_MAX of them. */
static void put_some(struct call *call, struct item *it, const char *name,
                     uint32_t first, uint32_t count)
{
    struct sl_tx_view v;
    uint32_t n = count < SL_SHOWN_MAX ? count : SL_SHOWN_MAX;
    sl_resp_text(call->out, name);
    sl_resp_array(call->out, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!sl_tx_manager_holder(it->manager, it->now, it->view.table, it->view.key,
                                  first + i, &v))
            v = (struct sl_tx_view){0};
        put_one(call, it, &v);
    }
}

/* The number of waiters that do not hold the lock in another mode. The other waiters are among the
 * holders. */
static uint32_t count_outside(const struct item *it)
{
    struct sl_tx_view v;
    uint32_t low = it->view.holders, high = it->view.holders + it->view.waiters;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sl_tx_manager_holder(it->manager, it->now, it->view.table, it->view.key,
                                 middle, &v))
            low = middle + 1;
        else high = middle;
    }
    return low - it->view.holders;
}

static void add_first_sentences(struct item *it)
{
    const struct sl_tx_item_view *v = &it->view;
    size_t n = sizeof it->sentences[0];
    if (v->holders == 0)
        snprintf(it->sentences[it->sentence_count++], n, "nobody has it");
    else
        snprintf(it->sentences[it->sentence_count++], n, "%" PRIu32 " %s it",
                 v->holders, v->holders == 1 ? "transaction has" : "transactions have");
    if (v->waiters > 0)
        snprintf(it->sentences[it->sentence_count++], n, "%" PRIu32 " %s for it",
                 v->waiters, v->waiters == 1 ? "waits" : "wait");
}

static bool in_deadlock(const struct item *it, const struct sl_deadlock *c)
{
    uint32_t n = c->count < SL_DEADLOCK_SHOWN ? c->count : SL_DEADLOCK_SHOWN;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < it->shown_count; j++)
            if (c->of[i] == it->shown[j]) return true;
    return false;
}

/* Add the last deadlocks that one of the shown transactions was part of. */
static void add_deadlocks(const struct server *s, struct item *it)
{
    const struct sl_deadlock *c;
    char text[SL_DEADLOCK_TEXT_BYTES];
    for (uint32_t i = 0; (c = sl_transactions_deadlock(s, i)) != NULL; i++) {
        if (!in_deadlock(it, c) || it->sentence_count >= SENTENCES_MAX) continue;
        sl_deadlock_text(c->of, c->count, text);
        snprintf(it->sentences[it->sentence_count++], sizeof it->sentences[0],
                 "a cycle was broken %" PRId64 " ms ago: %s; %" PRIu64
                 " lost its locks, and may begin again",
                 it->now - c->at_ms, text, c->victim);
    }
}

static void put_explanation(struct call *call, struct item *it)
{
    struct sl_resp_writer *w = call->out;
    uint32_t outside = count_outside(it);
    sl_call_cost(call, 100 + it->view.holders / 4);
    add_first_sentences(it);
    sl_resp_map(w, 7);
    sl_put_bytes(w, "table", it->view.table);
    put_key(w, it->view.key);
    sl_put_number(w, "holders_count", it->view.holders);
    sl_put_number(w, "waiters_count", it->view.waiters);
    put_some(call, it, "holders", 0, it->view.holders);
    put_some(call, it, "waiters", it->view.holders, outside);
    add_deadlocks(call->s, it);
    sl_resp_text(w, "words");
    sl_resp_array(w, it->sentence_count);
    for (uint32_t i = 0; i < it->sentence_count; i++) sl_resp_text(w, it->sentences[i]);
}

static void explain(struct call *call, const struct request *r,
                    const struct sl_tx_manager *tx)
{
    const struct sl_bytes none = {NULL, 0};
    struct item it = {.manager = tx, .now = call->s->now.ms};
    it.view = (struct sl_tx_item_view){.table = r->table,
                                       .key = r->item != NULL ? *r->item : none};
    sl_tx_manager_item(tx, it.view.table, it.view.key, &it.view);
    put_explanation(call, &it);
}

/* --- LOCKS TX -------------------------------------------------------------------------------- */

static void put_item(struct sl_resp_writer *w, const struct sl_tx_item_view *v)
{
    sl_resp_map(w, 4);
    sl_put_bytes(w, "table", v->table);
    put_key(w, v->key);
    sl_put_number(w, "holders", v->holders);
    sl_put_number(w, "waiters", v->waiters);
}

static bool is_shown(const struct sl_tx_item_view *v, const struct sl_glob *glob)
{
    if (v->holders + v->waiters == 0) return false;
    return glob == NULL || sl_glob_matches(glob, v->table);
}

static void list(struct call *call, const struct sl_page *page,
                 const struct sl_tx_manager *tx)
{
    struct sl_tx_item_view found[SL_COUNT_MAX];
    uint64_t at = page->cursor;
    size_t seen = 0, shown = 0, steps = 0;
    char cursor[24];
    do {
        struct sl_tx_item_view *to = found + shown;
        size_t n = sl_tx_manager_scan(tx, &at, to, (size_t)page->count - seen);
        seen += n;
        for (size_t i = 0; i < n; i++) {
            steps += 16 + sl_glob_words(page->match.n) * to[i].table.n;
            if (is_shown(&to[i], page->glob)) found[shown++] = to[i];
        }
    } while (at != 0 && seen < (size_t)page->count && steps < SL_INSPECT_STEPS_MAX);
    sl_call_cost(call, seen);
    sl_server_spend(call->s, steps);
    snprintf(cursor, sizeof cursor, "%" PRIu64, at);
    sl_resp_array(call->out, 2);
    sl_resp_text(call->out, cursor);
    sl_resp_array(call->out, shown);
    for (size_t i = 0; i < shown; i++) put_item(call->out, &found[i]);
}

void sl_inspection_write_tx(struct call *call, const struct request *r,
                            const struct sl_inspection *i)
{
    if (r->verb == SL_VERB_TX_EXPLAIN) explain(call, r, i->tx);
    else list(call, &r->page, i->tx);
}
