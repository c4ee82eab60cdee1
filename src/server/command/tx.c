/* tx.c - the commands of transactions, TX.BEGIN to TX.OUTCOME: parses the arguments into requests,
 * and writes the replies. */
#include <inttypes.h>
#include <string.h>

#include "server/command/reply.h"

static const char *code_of(int status)
{
    return sluice_status_word(status);
}

/* --- Arguments --------------------------------------------------------------------------- */

/* Whether the names of a table and, unless NULL, of a key are valid. Returns false after replying
 * with an error. */
static bool good_names(struct call *call, struct sl_bytes table,
                       const struct sl_bytes *key)
{
    size_t n = table.n + (key != NULL ? key->n : 0);
    int64_t most = call->s->settings->tx_name_bytes_max;
    if (table.n == 0 || (key != NULL && key->n == 0)) {
        sl_say_format(call, "ERR", "the %s is empty; it must have at least one byte",
                      table.n == 0 ? "table" : "key");
        return false;
    }
    if (n <= (size_t)most) return true;
    sl_say_format(
        call, "TOOBIG", "%s %zu bytes; the limit is %" PRId64 " (tx-name-bytes-max)",
        key != NULL ? "table and key together have" : "the table name has", n, most);
    return false;
}

static bool good_request(struct call *call, struct sl_bytes request)
{
    int64_t most = call->s->settings->tx_request_bytes_max;
    if (request.n == 0) {
        sl_say(call, "ERR", "the request id is empty; it must have at least one byte");
        return false;
    }
    if (request.n <= (size_t)most) return true;
    sl_say_format(call, "TOOBIG",
                  "the request id has %zu bytes; the limit is %" PRId64
                  " (tx-request-bytes-max)",
                  request.n, most);
    return false;
}

static bool good_value(struct call *call, struct sl_bytes value)
{
    int64_t most = call->s->settings->tx_value_bytes_max;
    if (value.n <= (size_t)most) return true;
    sl_say_format(call, "TOOBIG",
                  "the value has %zu bytes; the limit is %" PRId64
                  " (tx-value-bytes-max)",
                  value.n, most);
    return false;
}

/* --- Commands ------------------------------------------------------------------------------- */

static void submit(struct call *call, struct sl_tx_request a)
{
    struct request r;
    sl_request_init(&r, call, SL_VERB_TX);
    r.tx = a;
    sl_request_submit(&r);
}

void sl_do_tx_begin(struct call *call)
{
    struct sl_tx_request a = {.type = SL_TX_BEGIN};
    if (call->n > 1 && !sl_word_is(call->at[1], "REQUEST")) {
        sl_say_unknown(call, "option", call->at[1], SL_NAMES("REQUEST"));
        return;
    }
    if (call->n == 2) {
        sl_say_usage(call, "REQUEST needs an id");
        return;
    }
    if (call->n == 3) {
        if (!good_request(call, call->at[2])) return;
        a.request = call->at[2];
    }
    submit(call, a);
}

/* Parse WAIT time, which may be the last two arguments. Adds one millisecond, because the clock is
 * rounded down and a timeout must not expire early. */
static bool read_wait(struct call *call, struct sl_tx_request *a)
{
    int64_t ms;
    if (call->n < 5) return true;
    struct sl_bytes name = call->at[call->n - 2];
    if (!sl_word_is(name, "WAIT")) {
        if (call->n == 6) sl_say_unknown(call, "option", name, SL_NAMES("WAIT"));
        else sl_say_usage(call, "only WAIT time can follow the table and the key");
        return false;
    }
    if (!sl_duration_at(call, call->n - 1, "WAIT", &ms)) return false;
    a->bounded = true;
    a->wait_ms = ms > 0 ? ms + 1 : 0;
    return true;
}

void sl_do_tx_lock(struct call *call)
{
    struct sl_tx_request a = {.type = SL_TX_LOCK, .table = call->at[2]};
    a.write = sl_word_is(call->at[1], "WRITE");
    if (!a.write && !sl_word_is(call->at[1], "READ")) {
        sl_say_unknown(call, "mode", call->at[1], SL_NAMES("READ", "WRITE"));
        return;
    }
    if (!read_wait(call, &a)) return;
    bool has_key = call->n == 4 || call->n == 6;
    if (!good_names(call, call->at[2], has_key ? &call->at[3] : NULL)) return;
    if (has_key) a.key = call->at[3];
    submit(call, a);
}

/* Submit a command about a table and a key. */
static void submit_key(struct call *call, enum sl_tx_verb type, struct sl_bytes value)
{
    if (!good_names(call, call->at[1], &call->at[2])) return;
    submit(call,
           (struct sl_tx_request){
               .type = type, .table = call->at[1], .key = call->at[2], .value = value});
}

void sl_do_tx_get(struct call *call)
{
    submit_key(call, SL_TX_GET, (struct sl_bytes){NULL, 0});
}

void sl_do_tx_put(struct call *call)
{
    if (good_value(call, call->at[3])) submit_key(call, SL_TX_PUT, call->at[3]);
}

void sl_do_tx_del(struct call *call)
{
    submit_key(call, SL_TX_DEL, (struct sl_bytes){NULL, 0});
}

void sl_do_tx_scan(struct call *call)
{
    if (!good_names(call, call->at[1], NULL)) return;
    submit(call, (struct sl_tx_request){.type = SL_TX_SCAN, .table = call->at[1]});
}

void sl_do_tx_commit(struct call *call)
{
    submit(call, (struct sl_tx_request){.type = SL_TX_COMMIT});
}

void sl_do_tx_abort(struct call *call)
{
    submit(call, (struct sl_tx_request){.type = SL_TX_ABORT});
}

void sl_do_tx_outcome(struct call *call)
{
    if (!good_request(call, call->at[1])) return;
    submit(call, (struct sl_tx_request){.type = SL_TX_OUTCOME, .request = call->at[1]});
}

/* --- Errors -------------------------------------------------------------------------------- */

static void reply_no_transaction(struct call *call, enum sl_tx_verb verb, uint64_t id)
{
    if (verb == SL_TX_BEGIN)
        sl_say_format(
            call, code_of(SLUICE_ENOTX),
            "transaction %" PRIu64
            " is already active on this connection; send TX.COMMIT or TX.ABORT "
            "first",
            id);
    else
        sl_say(call, code_of(SLUICE_ENOTX),
               "no transaction is active on this connection; send TX.BEGIN first");
}

/* Reply that a limit is exceeded. The error names the setting. */
static void reply_limit(struct call *call, enum sl_tx_verb verb, int status)
{
    const struct sl_settings *set = call->s->settings;
    const char *code = code_of(status);
    switch (status) {
        case SLUICE_ETOOBIG:
            sl_say_format(call, code,
                          "the table has more than %" PRId64
                          " rows (tx-rows-max) or does not fit into a reply of %" PRId64
                          " bytes (output-bytes-max)",
                          set->tx_rows_max, set->output_bytes_max);
            break;
        case SLUICE_ELOCKS:
            sl_say_format(call, code,
                          "the transaction has reached its limit of %" PRId64
                          " locks (tx-locks-max)",
                          set->tx_locks_max);
            break;
        case SLUICE_EWRITES:
            sl_say_format(call, code,
                          "the transaction exceeds its limit of %" PRId64
                          " keys (tx-writes-max) or %" PRId64 " bytes (tx-bytes-max)",
                          set->tx_writes_max, set->tx_bytes_max);
            break;
        case SLUICE_ETRANSACTIONS:
            if (verb == SL_TX_BEGIN)
                sl_say_format(call, code,
                              "the server has reached its limit of %" PRId64
                              " transactions (tx-max); retry later",
                              set->tx_max);
            else
                sl_say_format(call, code,
                              "all transactions together have reached the limit of "
                              "%" PRId64 " bytes (tx-total-bytes-max) or %" PRId64
                              " locks (tx-total-locks-max); retry later",
                              set->tx_total_bytes_max, set->tx_total_locks_max);
            break;
        default:
            sl_say_format(call, code,
                          "the transaction did not commit within %" PRId64
                          " ms (tx-age) and was aborted; retry from TX.BEGIN",
                          set->tx_age_ms);
            break;
    }
}

static void reply_stale(struct call *call, const struct sl_tx_answer *a)
{
    sl_say_format(call, code_of(a->status),
                  "nothing was committed: a keeper of the later term %" PRIu64
                  " has taken over; retry from TX.BEGIN there",
                  a->term);
}

static void reply_error(struct call *call, enum sl_tx_verb verb,
                        const struct answer *reply)
{
    const struct sl_tx_answer *a = reply->tx;
    switch (a->status) {
        case SLUICE_ESTALE: reply_stale(call, a); break;
        case SLUICE_EBARRED:
            sl_say(
                call, code_of(a->status),
                "nothing was committed: the keeper has aborted this transaction; retry "
                "from TX.BEGIN");
            break;
        case SLUICE_ENOTX:
            reply_no_transaction(call, verb, (uint64_t)reply->number);
            break;
        case SLUICE_ETOOBIG:
        case SLUICE_EWRITES:
        case SLUICE_ELOCKS:
        case SLUICE_ETRANSACTIONS:
        case SLUICE_EAGE: reply_limit(call, verb, a->status); break;
        default: sl_say_status(call, a->status); break;
    }
}

/* --- Replies -------------------------------------------------------------------------------- */

/* The maximum bytes that the protocol adds to a key and a value. */
#define ROW_BYTES 48u

/* Write rows, or an error if they exceed output-bytes-max: such a reply would close the
 * connection. */
static void put_rows(struct call *call, const struct sl_tx_answer *a)
{
    const struct sl_resp_writer *w = call->out;
    size_t bytes = w->n + ROW_BYTES;
    for (uint32_t i = 0; i < a->row_count; i++)
        bytes += a->rows[i].key.n + a->rows[i].value.n + ROW_BYTES;
    if (bytes > w->bytes_max) {
        sl_say_format(call, "TOOBIG",
                      "the table does not fit into a reply of %zu bytes "
                      "(output-bytes-max)",
                      w->bytes_max);
        return;
    }
    sl_call_cost(call, a->row_count / 16);
    sl_server_spend(call->s, bytes);
    sl_resp_map(call->out, a->row_count);
    for (uint32_t i = 0; i < a->row_count; i++) {
        sl_resp_bulk(call->out, a->rows[i].key);
        sl_resp_bulk(call->out, a->rows[i].value);
    }
}

void sl_reply_tx(struct call *call, const struct request *r, const struct answer *reply)
{
    struct sl_resp_writer *w = call->out;
    const struct sl_tx_answer *a = reply->tx;
    if (a->status == SLUICE_EFULL) { /* The timeout of TX.LOCK has expired. */
        sl_resp_null(w);
        return;
    }
    if (a->status != SLUICE_OK) {
        if (reply->text != NULL) sl_say(call, code_of(a->status), reply->text);
        else reply_error(call, r->tx.type, reply);
        return;
    }
    switch (r->tx.type) {
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
            if (a->found) sl_resp_integer(w, (int64_t)a->revision);
            else sl_resp_null(w);
            break;
        case SL_TX_LOCK:
        case SL_TX_PUT:
        case SL_TX_DEL:
        case SL_TX_ABORT: sl_resp_simple(w, "OK"); break;
    }
}

/* --- EXPLAIN TX --------------------------------------------------------------------------- */

bool sl_tx_parse_explain(struct call *call, struct request *r)
{
    const struct sl_bytes *key = call->n > 3 ? &call->at[3] : NULL;
    if (!sl_word_is(call->at[1], "TX")) {
        sl_say_usage(
            call, "EXPLAIN takes a key; EXPLAIN TX takes a table and optionally a key");
        return false;
    }
    r->verb = SL_VERB_TX_EXPLAIN;
    r->table = call->at[2];
    r->item = key;
    return good_names(call, call->at[2], key);
}
