/* commands_tx.c - the commands of transactions: TX.BEGIN to TX.OUTCOME; EXPLAIN TX and
 * LOCKS TX. */
#include <inttypes.h>
#include <string.h>

#include "base/glob.h"
#include "server/arbiter/tx.h"
#include "server/forward/forward.h"
#include "server/observe/inspect.h"

static const char *word_of(int status)
{
    return sluice_status_word(status);
}

/* --- Words ------------------------------------------------------------------------------ */

/* Whether this is the name of a table, and of a key in it, if there is one; if not, it was
 * said why. */
static bool good_names(struct call *call, struct sl_bytes table,
                       const struct sl_bytes *key)
{
    size_t n = table.n + (key != NULL ? key->n : 0);
    int64_t most = call->s->settings->tx_name_bytes_max;
    char text[160];
    if (table.n == 0 || (key != NULL && key->n == 0)) {
        sl_say(call, "ERR", "the name of a table or key has at least one byte");
        return false;
    }
    if (n <= (size_t)most) return true;
    snprintf(text, sizeof text,
             "the names of table and key have %zu bytes together, and may have %" PRId64
             " (tx-name-bytes-max)",
             n, most);
    sl_say(call, "TOOBIG", text);
    return false;
}

static bool good_request(struct call *call, struct sl_bytes request)
{
    char text[120];
    if (request.n == 0) {
        sl_say(call, "ERR", "the name of a request has at least one byte");
        return false;
    }
    if (request.n <= (size_t)call->s->settings->tx_request_bytes_max) return true;
    snprintf(text, sizeof text,
             "the name of a request may have %" PRId64 " bytes (tx-request-bytes-max)",
             call->s->settings->tx_request_bytes_max);
    sl_say(call, "TOOBIG", text);
    return false;
}

static bool good_value(struct call *call, struct sl_bytes value)
{
    char text[120];
    if (value.n <= (size_t)call->s->settings->tx_value_bytes_max) return true;
    snprintf(text, sizeof text,
             "a value may have %" PRId64 " bytes (tx-value-bytes-max)",
             call->s->settings->tx_value_bytes_max);
    sl_say(call, "TOOBIG", text);
    return false;
}

/* --- Asking ------------------------------------------------------------------------------- */

static void ask(struct call *call, struct sl_tx_request a)
{
    a.session = sl_conn_id(call->c);
    sl_keep_ask(call, &a);
}

void sl_do_tx_begin(struct call *call)
{
    struct sl_tx_request a = {.type = SL_TX_BEGIN};
    if (call->n == 2 || (call->n == 3 && !sl_word_is(call->at[1], "REQUEST"))) {
        sl_say_syntax(call, "REQUEST id may follow");
        return;
    }
    if (call->n == 3) {
        if (!good_request(call, call->at[2])) return;
        a.request = call->at[2];
    }
    ask(call, a);
}

#define WAIT_MS_MAX ((int64_t)1 << 52)

/* Parses WAIT ms, which may be the last two arguments. The clock is rounded down to milliseconds,
 * so we add one: a timeout must not expire early. */
static bool take_wait(struct call *call, struct sl_tx_request *a)
{
    int64_t ms;
    char text[120];
    if (call->n < 5) return true;
    if (!sl_word_is(call->at[call->n - 2], "WAIT")) {
        sl_say_syntax(call, "only WAIT ms can follow the table and the key");
        return false;
    }
    if (!sl_parse_number(call->at[call->n - 1], 0, WAIT_MS_MAX, &ms)) {
        snprintf(text, sizeof text, "WAIT must be an integer from 0 to %" PRId64,
                 WAIT_MS_MAX);
        sl_say_syntax(call, text);
        return false;
    }
    a->bounded = true;
    a->wait_ms = ms > 0 ? ms + 1 : 0;
    return true;
}

void sl_do_tx_lock(struct call *call)
{
    struct sl_tx_request a = {.type = SL_TX_LOCK, .table = call->at[2]};
    a.write = sl_word_is(call->at[1], "WRITE");
    if (!a.write && !sl_word_is(call->at[1], "READ")) {
        sl_say_syntax(call, "READ or WRITE comes first");
        return;
    }
    if (!take_wait(call, &a)) return;
    bool has_key = call->n == 4 || call->n == 6;
    if (!good_names(call, call->at[2], has_key ? &call->at[3] : NULL)) return;
    if (has_key) a.key = call->at[3];
    ask(call, a);
}

/* Of a table and a key. */
static void ask_key(struct call *call, enum sl_tx_verb type, struct sl_bytes value)
{
    if (!good_names(call, call->at[1], &call->at[2])) return;
    ask(call,
        (struct sl_tx_request){
            .type = type, .table = call->at[1], .key = call->at[2], .value = value});
}

void sl_do_tx_get(struct call *call)
{
    ask_key(call, SL_TX_GET, (struct sl_bytes){NULL, 0});
}

void sl_do_tx_put(struct call *call)
{
    if (good_value(call, call->at[3])) ask_key(call, SL_TX_PUT, call->at[3]);
}

void sl_do_tx_del(struct call *call)
{
    ask_key(call, SL_TX_DEL, (struct sl_bytes){NULL, 0});
}

void sl_do_tx_scan(struct call *call)
{
    if (!good_names(call, call->at[1], NULL)) return;
    ask(call, (struct sl_tx_request){.type = SL_TX_SCAN, .table = call->at[1]});
}

void sl_do_tx_commit(struct call *call)
{
    ask(call, (struct sl_tx_request){.type = SL_TX_COMMIT});
}

void sl_do_tx_abort(struct call *call)
{
    ask(call, (struct sl_tx_request){.type = SL_TX_ABORT});
}

void sl_do_tx_outcome(struct call *call)
{
    if (!good_request(call, call->at[1])) return;
    ask(call, (struct sl_tx_request){.type = SL_TX_OUTCOME, .request = call->at[1]});
}

/* --- Errors -------------------------------------------------------------------------------- */

static void say_restart(struct call *call, const struct sl_tx_answer *a)
{
    char text[SL_CYCLE_TEXT + 100], cycle[SL_CYCLE_TEXT];
    if (a->cycle_count > 0) {
        sl_cycle_text(a->cycle, a->cycle_count, cycle);
        snprintf(text, sizeof text,
                 "a cycle of transactions was broken here: %s; TX.BEGIN again", cycle);
    } else
        snprintf(text, sizeof text,
                 "a cycle was broken here, and this was not done: TX.BEGIN again");
    sl_say(call, word_of(a->status), text);
}

static void say_no_transaction(struct call *call, enum sl_tx_verb asked)
{
    char text[120];
    if (asked == SL_TX_BEGIN)
        snprintf(text, sizeof text,
                 "this connection has transaction %" PRIu64
                 " already: TX.COMMIT or TX.ABORT comes first",
                 call->c->tx);
    else snprintf(text, sizeof text, "this connection has no transaction: TX.BEGIN");
    sl_say(call, word_of(SLUICE_ENOTX), text);
}

/* In a cluster: the same of its etcd. */
static void say_etcd(struct call *call, enum sl_tx_verb asked, int status)
{
    const char *trouble = sl_keep_trouble(call->s);
    char text[500];
    if (status == SLUICE_ENOSPC)
        snprintf(text, sizeof text,
                 "etcd has no space left (its quota): nothing was written, and what is "
                 "there can be read");
    else if (status == SLUICE_ECLOSED)
        snprintf(text, sizeof text,
                 "the server stops, and etcd does not answer: TX.OUTCOME will tell "
                 "whether it was committed, if it has a REQUEST");
    else
        snprintf(text, sizeof text, "%s%s",
                 asked == SL_TX_COMMIT ? "nothing was committed: " : "",
                 *trouble != '\0' ? trouble : "etcd does not answer");
    sl_say(call, word_of(status), text);
}

static void say_store(struct call *call, enum sl_tx_verb asked, int status)
{
    const char *text = "the disk of the store cannot be read";
    if (call->s->relay != NULL) {
        say_etcd(call, asked, status);
        return;
    }
    if (status == SLUICE_ENOSPC)
        text = "the store is full (store-bytes-max), or its disk is: nothing was "
               "written, and what is there can be read";
    else if (status == SLUICE_ECLOSED)
        text = "the server stops, and its disk fails: TX.OUTCOME will tell whether it "
               "was committed, if it has a REQUEST";
    else if (asked == SL_TX_COMMIT)
        text = "the disk of the store failed: nothing was committed";
    sl_say(call, word_of(status), text);
}

/* A commit that is more than one transaction of etcd can be. */
static void say_etcd_limit(struct call *call, int status)
{
    const struct sl_settings *set = call->s->settings;
    char text[200];
    snprintf(
        text, sizeof text,
        "etcd takes %" PRId64 " operations (etcd-ops-max) and %" PRId64
        " bytes (etcd-request-bytes-max) in one transaction: nothing was committed",
        set->etcd_ops_max, set->etcd_request_bytes_max);
    sl_say(call, word_of(status), text);
}

/* A limit, with the setting that it is. */
static void say_limit(struct call *call, enum sl_tx_verb asked, int status)
{
    const struct sl_settings *set = call->s->settings;
    char text[200] = "";
    switch (status) {
        case SLUICE_ETOOBIG:
            snprintf(text, sizeof text,
                     "the table has more than %" PRId64
                     " rows (tx-rows-max), or more bytes "
                     "than a reply may have (output-bytes-max)",
                     set->tx_rows_max);
            break;
        case SLUICE_ELOCKS:
            snprintf(text, sizeof text,
                     "this transaction has as many locks as it may, %" PRId64
                     " (tx-locks-max)",
                     set->tx_locks_max);
            break;
        case SLUICE_EWRITES:
            snprintf(text, sizeof text,
                     "this transaction may write %" PRId64
                     " keys (tx-writes-max), and %" PRId64 " bytes (tx-bytes-max)",
                     set->tx_writes_max, set->tx_bytes_max);
            break;
        case SLUICE_ETRANSACTIONS:
            if (asked == SL_TX_BEGIN)
                snprintf(text, sizeof text,
                         "there are %" PRId64 " transactions already (tx-max)",
                         set->tx_max);
            else
                snprintf(text, sizeof text,
                         "all transactions together may write %" PRId64
                         " bytes (tx-total-bytes-max) and have %" PRId64
                         " locks (tx-total-locks-max): try again when others are done",
                         set->tx_total_bytes_max, set->tx_total_locks_max);
            break;
        default:
            snprintf(text, sizeof text,
                     "this transaction was not committed within %" PRId64
                     " ms, and was aborted (tx-age): TX.BEGIN again",
                     set->tx_age_ms);
            break;
    }
    sl_say(call, word_of(status), text);
}

static void say_stale(struct call *call, const struct sl_tx_answer *a)
{
    char text[160];
    snprintf(text, sizeof text,
             "another keeper is current, of term %" PRIu64
             ": nothing was committed; TX.BEGIN again, there",
             a->term);
    sl_say(call, word_of(a->status), text);
}

static void say_why(struct call *call, enum sl_tx_verb asked,
                    const struct sl_tx_answer *a)
{
    switch (a->status) {
        case SLUICE_ERESTART: say_restart(call, a); break;
        case SLUICE_ESTALE: say_stale(call, a); break;
        case SLUICE_EBARRED:
            sl_say(call, word_of(a->status),
                   "this transaction was given up, and commits no more: TX.BEGIN");
            break;
        case SLUICE_ENOKEEPER:
            sl_say(call, word_of(a->status), sl_keep_why_not(call->s));
            break;
        case SLUICE_ENOTX: say_no_transaction(call, asked); break;
        case SLUICE_ENOSPC:
        case SLUICE_ECLOSED:
        case SLUICE_EIO: say_store(call, asked, a->status); break;
        case SLUICE_ETOOBIG:
        case SLUICE_EWRITES:
            if (call->s->relay != NULL && asked == SL_TX_COMMIT)
                say_etcd_limit(call, a->status);
            else say_limit(call, asked, a->status);
            break;
        case SLUICE_ELOCKS:
        case SLUICE_ETRANSACTIONS:
        case SLUICE_EAGE: say_limit(call, asked, a->status); break;
        default: sl_say_status(call, a->status); break;
    }
}

/* --- Replies -------------------------------------------------------------------------------- */

#define ROW_BYTES 48u /* What the protocol adds to a key and a value, at most. */

/* A reply that does not fit is an error of its own: half of one would end the connection. */
static void put_rows(struct call *call, const struct sl_tx_answer *a)
{
    const struct sl_resp_writer *w = call->out;
    size_t bytes = w->n + ROW_BYTES;
    for (uint32_t i = 0; i < a->row_count; i++)
        bytes += a->rows[i].key.n + a->rows[i].value.n + ROW_BYTES;
#ifndef MUT_TXROWS
    if (bytes > w->bytes_max) {
        sl_say(call, "TOOBIG",
               "the table is larger than a reply may be (output-bytes-max)");
        return;
    }
#endif
    sl_call_cost(call, a->row_count / 16);
    sl_server_spend(call->s, bytes);
    sl_resp_map(call->out, a->row_count);
    for (uint32_t i = 0; i < a->row_count; i++) {
        sl_resp_bulk(call->out, a->rows[i].key);
        sl_resp_bulk(call->out, a->rows[i].value);
    }
}

void sl_keep_reply(struct call *call, enum sl_tx_verb asked,
                   const struct sl_tx_answer *a)
{
    struct sl_resp_writer *w = call->out;
    if (a->status == SLUICE_EFULL) { /* TX.LOCK: the timeout has expired. */
        sl_resp_null(w);
        return;
    }
    if (a->status != SLUICE_OK) {
        say_why(call, asked, a);
        return;
    }
    switch (asked) {
        case SL_TX_BEGIN:
            sl_resp_array(w, 2);
            sl_resp_integer(w, (int64_t)a->term);
            sl_resp_integer(w, (int64_t)a->id);
            break;
        case SL_TX_GET:
            if (a->found) sl_resp_bulk(w, a->value);
            else sl_resp_null(w);
            break;
        case SL_TX_SCAN: put_rows(call, a); break;
        case SL_TX_COMMIT: sl_resp_integer(w, (int64_t)a->revision); break;
        case SL_TX_OUTCOME:
            if (call->c->settling && !a->found)
                sl_resp_problem(w, word_of(SLUICE_ESTALE), SL_LOST_TX);
            else if (a->found) sl_resp_integer(w, (int64_t)a->revision);
            else sl_resp_null(w);
            break;
        case SL_TX_LOCK:
        case SL_TX_PUT:
        case SL_TX_DEL:
        case SL_TX_ABORT: sl_resp_simple(w, "OK"); break;
    }
}

/* --- EXPLAIN TX ------------------------------------------------------------------------------ */

#define WORDS_MAX 20u /* Sentences; */
#define WAITS_MAX 10u /* so many of them about who waits for whom. */

struct item {
    const struct sl_tx_manager *keeper;
    sl_ms now;
    struct sl_tx_item_view view;
    uint64_t shown[2 * SL_SHOWN_MAX]; /* Transactions that were. */
    uint32_t shown_count;
    char words[WORDS_MAX][SL_CYCLE_TEXT + 120];
    uint32_t word_count;
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
    sl_look_address(call->s, v->session, address, sizeof address);
    sl_resp_map(w, 7);
    sl_put_number(w, "transaction", (int64_t)v->id);
    sl_put_number(w, "client", (int64_t)v->session);
    sl_put_text(w, "address", address);
    sl_put_text(w, "has", sl_tx_mode_name(v->mode));
    sl_put_text(w, "wants", sl_tx_mode_name(v->wanted));
    sl_put_number(w, "waits_for", (int64_t)v->waits_for);
    sl_put_number(w, "age_ms", v->since_ms);
    it->shown[it->shown_count++] = v->id;
    if (v->wanted == SL_TX_MODE_NONE || it->word_count >= WAITS_MAX) return;
    snprintf(it->words[it->word_count++], sizeof it->words[0],
             "transaction %" PRIu64 " waits for transaction %" PRIu64, v->id,
             v->waits_for);
}

/* Those from `first` on, at most so many. */
static void put_some(struct call *call, struct item *it, const char *name,
                     uint32_t first, uint32_t count)
{
    struct sl_tx_view v;
    uint32_t n = count < SL_SHOWN_MAX ? count : SL_SHOWN_MAX;
    sl_resp_text(call->out, name);
    sl_resp_array(call->out, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!sl_tx_manager_holder(it->keeper, it->now, it->view.table, it->view.key,
                                  first + i, &v))
            v = (struct sl_tx_view){0};
        put_one(call, it, &v);
    }
}

/* How many wait and have nothing of it yet: those who want more stand among the holders. */
static uint32_t count_outside(const struct item *it)
{
    struct sl_tx_view v;
    uint32_t low = it->view.holders, high = it->view.holders + it->view.waiters;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sl_tx_manager_holder(it->keeper, it->now, it->view.table, it->view.key,
                                 middle, &v))
            low = middle + 1;
        else high = middle;
    }
    return low - it->view.holders;
}

static void first_words(struct item *it)
{
    const struct sl_tx_item_view *v = &it->view;
    size_t n = sizeof it->words[0];
    if (v->holders == 0) snprintf(it->words[it->word_count++], n, "nobody has it");
    else
        snprintf(it->words[it->word_count++], n, "%" PRIu32 " %s it", v->holders,
                 v->holders == 1 ? "transaction has" : "transactions have");
    if (v->waiters > 0)
        snprintf(it->words[it->word_count++], n, "%" PRIu32 " %s for it", v->waiters,
                 v->waiters == 1 ? "waits" : "wait");
}

static bool in_cycle(const struct item *it, const struct sl_cycle *c)
{
    uint32_t n = c->count < SL_CYCLE_SHOWN ? c->count : SL_CYCLE_SHOWN;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < it->shown_count; j++)
            if (c->of[i] == it->shown[j]) return true;
    return false;
}

/* Cycles that were broken of late, in which one of those was. */
static void cycle_words(const struct server *s, struct item *it)
{
    const struct sl_cycle *c;
    char text[SL_CYCLE_TEXT];
    for (uint32_t i = 0; (c = sl_keep_cycle(s, i)) != NULL; i++) {
        if (!in_cycle(it, c) || it->word_count >= WORDS_MAX) continue;
        sl_cycle_text(c->of, c->count, text);
        snprintf(it->words[it->word_count++], sizeof it->words[0],
                 "a cycle was broken %" PRId64 " ms ago: %s; %" PRIu64
                 " lost its locks, and may begin again",
                 it->now - c->at_ms, text, c->loser);
    }
}

static void explain(struct call *call, struct item *it)
{
    struct sl_resp_writer *w = call->out;
    uint32_t outside = count_outside(it);
    sl_call_cost(call, 100 + it->view.holders / 4);
    first_words(it);
    sl_resp_map(w, 7);
    sl_put_bytes(w, "table", it->view.table);
    put_key(w, it->view.key);
    sl_put_number(w, "holders_count", it->view.holders);
    sl_put_number(w, "waiters_count", it->view.waiters);
    put_some(call, it, "holders", 0, it->view.holders);
    put_some(call, it, "waiters", it->view.holders, outside);
    cycle_words(call->s, it);
    sl_resp_text(w, "words");
    sl_resp_array(w, it->word_count);
    for (uint32_t i = 0; i < it->word_count; i++) sl_resp_text(w, it->words[i]);
}

void sl_keep_explain(struct call *call)
{
    const struct sl_bytes *key = call->n > 3 ? &call->at[3] : NULL;
    struct item it = {.keeper = sl_keep_keeper(call->s), .now = call->s->now.ms};
    if (!sl_word_is(call->at[1], "TX")) {
        sl_say_syntax(call, "a key alone, or TX and a table");
        return;
    }
    if (!good_names(call, call->at[2], key)) return;
    if (it.keeper == NULL) {
        sl_say(call, word_of(SLUICE_ENOKEEPER), sl_keep_why_not(call->s));
        return;
    }
    const struct sl_bytes none = {NULL, 0};
    it.view = (struct sl_tx_item_view){.table = call->at[2],
                                       .key = key != NULL ? *key : none};
    sl_tx_manager_item(it.keeper, it.view.table, it.view.key, &it.view);
    explain(call, &it);
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

void sl_keep_locks(struct call *call, const struct sl_page *page)
{
    const struct sl_tx_manager *k = sl_keep_keeper(call->s);
    struct sl_tx_item_view found[SL_COUNT_MAX];
    uint64_t at = page->cursor;
    size_t seen = 0, shown = 0, steps = 0;
    char cursor[24];
    if (k == NULL) {
        sl_say(call, word_of(SLUICE_ENOKEEPER), sl_keep_why_not(call->s));
        return;
    }
    do {
        struct sl_tx_item_view *to = found + shown;
        size_t n = sl_tx_manager_scan(k, &at, to, (size_t)page->count - seen);
        seen += n;
        for (size_t i = 0; i < n; i++) {
            steps += 16 + sl_glob_words(page->match.n) * to[i].table.n;
            if (is_shown(&to[i], page->glob)) found[shown++] = to[i];
        }
    } while (at != 0 && seen < (size_t)page->count && steps < SL_LOOK_STEPS_MAX);
    sl_call_cost(call, seen);
    sl_server_spend(call->s, steps);
    snprintf(cursor, sizeof cursor, "%" PRIu64, at);
    sl_resp_array(call->out, 2);
    sl_resp_text(call->out, cursor);
    sl_resp_array(call->out, shown);
    for (size_t i = 0; i < shown; i++) put_item(call->out, &found[i]);
}
