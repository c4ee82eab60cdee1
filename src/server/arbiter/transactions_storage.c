/* transactions_storage.c - opens and closes the storage of transactions, turns orders of the
 * manager into operations, and reports their results to the manager. */
#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/state.h"
#include "server/arbiter/transactions_internal.h"
#include "server/forward/forward.h"
#include "server/observe/log.h"

/* Maximum scans in the storage at a time. More scans would read rows faster than the server can
 * send them. */
#define SCANS_AT_ONCE 2u

_Static_assert(SL_STORAGE_NAME_BYTES_MAX == 509, "settings.def: tx-name-bytes-max");
_Static_assert(SL_STORAGE_REQUEST_BYTES_MAX == 511,
               "settings.def: tx-request-bytes-max");

/* --- Operations -------------------------------------------------------------------------- */

/* An operation in the storage, with copies of the bytes that it refers to. */
struct work {
    struct sl_storage_op op;
    struct sl_list waiting; /* Link in scans_waiting. */
    uint64_t of_term;       /* In a cluster: the term of the manager that ordered it. */
    uint64_t number;
    struct sl_storage_write writes[];
};

static void log_claimed(const struct sl_storage_result *r)
{
    char term[24];
    snprintf(term, sizeof term, "%" PRIu64, r->term);
    sl_log(SL_LOG_INFO, "transactions: ready", "term", term, NULL);
}

/* Log results that concern the operator, such as a failing disk, but not a rejected commit. */
static void log_result(struct server *s, const struct sl_storage_op *op)
{
    static struct sl_log_kind kind;
    struct sl_transactions *t = s->transactions;
    const struct sl_storage_result *r = &op->result;
    bool wrote = op->type == SL_STORAGE_CLAIM || op->type == SL_STORAGE_BAR ||
                 (op->type == SL_STORAGE_COMMIT && op->write_count > 0);
    bool bad = r->status == SLUICE_ENOSPC || r->status == SLUICE_EIO ||
               r->status == SLUICE_ENOMEM;
    if (op->type == SL_STORAGE_CLAIM && r->status == SLUICE_OK) log_claimed(r);
    if (bad)
        sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                     op->type == SL_STORAGE_CLAIM
                         ? "transactions: cannot write to the store, so transactions "
                           "are rejected; the server keeps retrying"
                         : "transactions: the store failed",
                     "error", sluice_status_word(r->status), NULL);
    else if (wrote && t->failed != 0)
        sl_log(SL_LOG_INFO, "transactions: the store can be written again", NULL);
    if (bad) t->failed = r->status;
    else if (wrote) t->failed = 0;
}

/* Report a result to a deposed manager. Free the manager after its last result. */
static void done_of_deposed(struct server *s, const struct work *w)
{
    struct sl_transactions *t = s->transactions;
    for (size_t i = 0; i < TERMS_KEPT; i++) {
        struct sl_deposed *o = &t->deposed[i];
        if (o->manager == NULL || o->term != w->of_term) continue;
        sl_tx_manager_done(o->manager, s->now.ms, w->number, &w->op.result);
        sl_transactions_answer_all(s, o->manager);
        assert(o->ordered > 0);
        if (--o->ordered > 0) return;
        sl_tx_manager_free(o->manager);
        o->manager = NULL;
        return;
    }
}

/* Submit an operation. A scan waits while the storage has SCANS_AT_ONCE others, because its rows
 * stay in memory until the reply is sent. */
static void submit(struct server *s, struct work *w)
{
    struct sl_transactions *t = s->transactions;
    bool waits = w->op.type == SL_STORAGE_SCAN && t->scans >= SCANS_AT_ONCE;
    if (waits) {
        sl_list_append(&t->scans_waiting, &w->waiting);
        return;
    }
    if (w->op.type == SL_STORAGE_SCAN) t->scans++;
    sl_transactions_submit_op(s, &w->op);
}

/* Submit the next scan, after the storage has finished one. */
static void scan_done(struct server *s)
{
    struct sl_transactions *t = s->transactions;
    assert(t->scans > 0);
    t->scans--;
    if (t->closing || sl_list_empty(&t->scans_waiting)) return;
    struct work *next = sl_container_of(t->scans_waiting.next, struct work, waiting);
    sl_list_remove(&next->waiting);
    submit(s, next);
}

static void done(struct sl_storage_op *op)
{
    struct work *w = sl_container_of(op, struct work, op);
    struct server *s = op->owner;
    struct sl_transactions *t = s->transactions;
    assert(op->type != SL_STORAGE_COMMIT || t->commits > 0);
    if (op->type == SL_STORAGE_COMMIT) t->commits--;
    if (op->type == SL_STORAGE_SCAN) scan_done(s);
    log_result(s, op);
    if (t->manager == NULL || w->of_term != t->term) done_of_deposed(s, w);
    else {
        assert(t->ordered > 0);
        t->ordered--;
        sl_tx_manager_done(t->manager, s->now.ms, w->number, &op->result);
        if (op->result.status == SLUICE_ESTALE)
            sl_forward_term_rejected(s, op->result.term);
    }
    free(w);
}

static struct sl_bytes copy(char **at, struct sl_bytes b)
{
    const struct sl_bytes out = {b.at == NULL ? NULL : *at, b.n};
    if (b.n > 0) memcpy(*at, b.at, b.n);
    *at += b.n;
    return out;
}

/* Copy an order and its bytes, which the manager keeps only until the next order is fetched.
 * Returns NULL if out of memory. */
static struct work *copy_order(const struct sl_tx_order *o)
{
    size_t bytes = o->request.n + o->table.n + o->key.n;
    for (uint32_t i = 0; i < o->write_count; i++)
        bytes += o->writes[i].table.n + o->writes[i].key.n + o->writes[i].value.n;
    struct work *w = malloc(sizeof *w + o->write_count * sizeof *w->writes + bytes);
    if (w == NULL) return NULL;
    char *at = (char *)(w->writes + o->write_count);
    *w = (struct work){.number = o->op,
                       .op = {.term = o->term,
                              .id = o->id,
                              .writes = w->writes,
                              .write_count = o->write_count}};
    w->op.request = copy(&at, o->request);
    w->op.table = copy(&at, o->table);
    w->op.key = copy(&at, o->key);
    for (uint32_t i = 0; i < o->write_count; i++) {
        const struct sl_storage_write *from = &o->writes[i];
        w->writes[i].table = copy(&at, from->table);
        w->writes[i].key = copy(&at, from->key);
        w->writes[i].value = copy(&at, from->value);
    }
    return w;
}

static enum sl_storage_op_type type_of(enum sl_tx_order_type type)
{
    switch (type) {
        case SL_TX_ORDER_CLAIM: return SL_STORAGE_CLAIM;
        case SL_TX_ORDER_COMMIT: return SL_STORAGE_COMMIT;
        case SL_TX_ORDER_BAR: return SL_STORAGE_BAR;
        case SL_TX_ORDER_READ: return SL_STORAGE_READ;
        case SL_TX_ORDER_SCAN: return SL_STORAGE_SCAN;
        case SL_TX_ORDER_OUTCOME:
        case SL_TX_ORDER_ANSWER: break;
    }
    return SL_STORAGE_OUTCOME;
}

void sl_transactions_order(struct server *s, const struct sl_tx_order *o)
{
    struct sl_transactions *t = s->transactions;
    struct work *w;
    if (t->closing) return; /* The server is stopping and drops the remaining scans. */
    if (o->type == SL_TX_ORDER_CLAIM &&
        s->forward != NULL) { /* The election has claimed the term. */
        const struct sl_storage_result mine = {.term = t->term};
        sl_tx_manager_done(t->manager, s->now.ms, o->op, &mine);
        return;
    }
    w = copy_order(o);
    if (w == NULL) {
        const struct sl_storage_result none = {.status = SLUICE_ENOMEM};
        sl_tx_manager_done(t->manager, s->now.ms, o->op, &none);
        return;
    }
    w->of_term = t->term;
    w->op.type = type_of(o->type);
    w->op.rows_max = (uint32_t)s->settings->tx_rows_max;
    w->op.bytes_max = (size_t)s->settings->output_bytes_max;
    w->op.owner = s;
    w->op.done = done;
    t->ordered++;
    if (o->type == SL_TX_ORDER_COMMIT) t->commits++;
    submit(s, w);
}

static void on_storage(uv_poll_t *handle, int status, int events)
{
    struct server *s = handle->data;
    (void)status;
    (void)events;
    sl_server_read_clock(s);
    /* Process at least one result per loop iteration, even if other work uses up the budget. The
     * descriptor stays readable while there are more results. */
    while (sl_storage_work(s->transactions->storage, 1) && !sl_server_turn_is_long(s)) {
    }
    sl_server_settle(s);
}

/* --- Start and stop --------------------------------------------------------------------------- */

static struct sl_tx_manager_limits limits_of(const struct sl_settings *set)
{
    sl_ms age_ms = set->tx_age_ms == 0 ? SL_NEVER : set->tx_age_ms;
    return (struct sl_tx_manager_limits){
        .transactions_max = (uint32_t)set->tx_max,
        .locks_max = (uint32_t)set->tx_locks_max,
        .total_locks_max = (size_t)set->tx_total_locks_max,
        .writes_max = (uint32_t)set->tx_writes_max,
        .bytes_max = (size_t)set->tx_bytes_max,
        .total_bytes_max = (size_t)set->tx_total_bytes_max,
        .age_ms_max = age_ms,
        .name_bytes_max = (size_t)set->tx_name_bytes_max,
        .value_bytes_max = (size_t)set->tx_value_bytes_max,
        .request_bytes_max = (size_t)set->tx_request_bytes_max,
        .rows_max = (uint32_t)set->tx_rows_max,
        .scan_bytes_max = (size_t)set->output_bytes_max};
}

static int fail(const char *what, const char *directory, const char *why)
{
    sl_log(SL_LOG_ERROR, what, "directory", directory, "error", why, NULL);
    return -1;
}

/* Claim the term and wait for the result, so that transactions work when the log says "ready". If
 * the claim fails, for example because the disk is full, the server serves locks, and the manager
 * retries the claim later. */
static void claim(struct server *s)
{
    struct sl_transactions *t = s->transactions;
    s->effects_left = UINT32_MAX;
    sl_transactions_pump(s);
    while (t->ordered > 0) {
        struct pollfd p = {.fd = sl_storage_fd(t->storage), .events = POLLIN};
        poll(&p, 1, -1);
        sl_server_read_clock(s);
        sl_storage_work(t->storage, SIZE_MAX);
    }
}

/* Start without the storage, because locks do not need it. */
static int serve_without(struct server *s, const char *directory, const char *why)
{
    snprintf(s->transactions->damage, sizeof s->transactions->damage, "%s", why);
    sl_log(SL_LOG_ERROR,
           "the store is damaged, so transactions are disabled; check it with \"sluice "
           "store check\", then load a dump into an empty directory",
           "directory", directory, "error", why, NULL);
    return 0;
}

static int open_store(struct server *s, const char *directory)
{
    const struct sl_settings *set = s->settings;
    const struct sl_tx_manager_limits limits = limits_of(set);
    struct sl_transactions *t = s->transactions;
    char why[400] = "";
    const struct sl_storage_settings store = {.directory = directory,
                                              .bytes_max = (size_t)set->store_bytes_max,
                                              .dedup_keep_ms = set->dedup_keep_ms,
                                              .group_max = (uint32_t)set->tx_group_max};
    int status = sl_storage_try_lmdb(directory, set->store_check_ms, why, sizeof why);
    if (status == SLUICE_ETRUNCATED) return serve_without(s, directory, why);
    if (status == SLUICE_OK || status == SLUICE_ENOENT)
        t->storage = sl_storage_open_lmdb(&store, why, sizeof why);
    if (t->storage == NULL)
        return fail("engine: cannot open the transaction store", directory, why);
    t->manager = sl_tx_manager_new(&limits, s->hash_key);
    if (t->manager == NULL ||
        uv_poll_init(s->loop, &t->poll, sl_storage_fd(t->storage)))
        return fail("cannot start", directory, "out of memory");
    t->poll.data = s;
    uv_poll_start(&t->poll, UV_READABLE, on_storage);
    claim(s);
    return 0;
}

/* --- In a cluster on etcd --------------------------------------------------------------------- */

void sl_transactions_watch(struct server *s,
                           void (*changed)(void *owner,
                                           const struct sl_storage_term *term))
{
    sl_storage_watch(s->transactions->storage, changed, s);
}

bool sl_transactions_submit_op(struct server *s, struct sl_storage_op *op)
{
    if (s->transactions->closing) return false;
    sl_storage_submit(s->transactions->storage, op);
    return true;
}

void sl_transactions_record_limits(const struct server *s,
                                   struct sl_storage_record_limits *out)
{
    sl_storage_record_limits(s->transactions->storage, out);
}

const char *sl_transactions_trouble(const struct server *s)
{
    if (s->transactions == NULL) return "";
    if (*s->transactions->damage != '\0') return s->transactions->damage;
    if (s->transactions->storage == NULL) return "";
    return sl_storage_trouble(s->transactions->storage);
}

void sl_transactions_lead(struct server *s, uint64_t term)
{
    const struct sl_tx_manager_limits limits = limits_of(s->settings);
    struct sl_transactions *t = s->transactions;
    t->term = term;
    t->ordered = 0;
    t->manager = sl_tx_manager_new(&limits, s->hash_key);
    struct sl_tx_order o;
    if (t->manager == NULL) {
        sl_log(SL_LOG_ERROR, "transactions: out of memory", NULL);
        return;
    }
    /* The order is the claim of the term. Requests that waited for a keeper run next, and need
     * it. */
    sl_tx_manager_tick(t->manager, s->now.ms);
    if (sl_tx_manager_next(t->manager, &o)) sl_transactions_order(s, &o);
}

/* Keep a deposed manager until the storage has answered its orders. If there are already TERMS_KEPT
 * of them, drop the oldest. */
static void keep_deposed(struct sl_transactions *t, struct sl_tx_manager *old)
{
    size_t at = 0;
    for (size_t i = 0; i < TERMS_KEPT && t->deposed[at].manager != NULL; i++)
        if (t->deposed[i].manager == NULL || t->deposed[i].term < t->deposed[at].term)
            at = i;
    sl_tx_manager_free(t->deposed[at].manager);
    t->deposed[at] = (struct sl_deposed){
        .manager = old, .term = t->term, .ordered = t->ordered};
}

void sl_transactions_depose(struct server *s, uint64_t term)
{
    struct sl_transactions *t = s->transactions;
    struct sl_tx_manager *old = t->manager;
    if (old == NULL) return;
    sl_tx_manager_stop(old, s->now.ms, term + 1);
    sl_transactions_answer_all(s, old);
    t->manager = NULL;
    if (t->ordered == 0) sl_tx_manager_free(old);
    else keep_deposed(t, old);
    t->ordered = 0;
}

static int open_etcd(struct server *s)
{
    const struct sl_settings *set = s->settings;
    struct sl_transactions *t = s->transactions;
    char why[400] = "";
    const struct sl_etcd_settings etcd = {
        .members = set->etcd,
        .prefix = set->etcd_prefix,
        .user = set->etcd_user,
        .password = set->etcd_password,
        .ca = set->etcd_ca,
        .cert = set->etcd_cert,
        .key = set->etcd_key,
        .answer_ms = set->etcd_answer_ms,
        .ops_max = (uint32_t)set->etcd_ops_max,
        .request_bytes_max = (size_t)set->etcd_request_bytes_max,
        .dedup_keep_ms = set->dedup_keep_ms,
        .group_max = (uint32_t)set->tx_group_max};
    t->etcd = true;
    t->storage = sl_storage_open_etcd(&etcd, why, sizeof why);
    /* Do not log the settings, because a URL may contain a password. */
    if (t->storage == NULL) {
        sl_log(SL_LOG_ERROR, "engine: cannot use this etcd", "error", why, NULL);
        return -1;
    }
    if (uv_poll_init(s->loop, &t->poll, sl_storage_fd(t->storage)) != 0)
        return fail("cannot start", "", "out of memory");
    t->poll.data = s;
    uv_poll_start(&t->poll, UV_READABLE, on_storage);
    return 0;
}

static bool allocate(struct server *s)
{
    s->transactions = calloc(1, sizeof *s->transactions);
    if (s->transactions != NULL) sl_list_init(&s->transactions->scans_waiting);
    return s->transactions != NULL;
}

static int start_etcd(struct server *s)
{
    if (s->settings->engine != SL_ENGINE_ETCD) return 0;
    if (!allocate(s)) return fail("cannot start", "", "out of memory");
    return open_etcd(s);
}

int sl_transactions_start(struct server *s)
{
    struct sl_state_view v;
    bool wanted = s->settings->engine == SL_ENGINE_LMDB;
    sl_state_inspect(s, &v);
    if (s->majority != NULL) return start_etcd(s);
    if (s->settings->engine == SL_ENGINE_NONE) return 0;
    if (*v.directory == '\0')
        return wanted
                   ? fail("engine: lmdb needs a data directory; set --data DIRECTORY",
                          "", "no directory")
                   : 0;
    if (!allocate(s)) return fail("cannot start", v.directory, "out of memory");
    return open_store(s, v.directory);
}

void sl_transactions_hurry(struct server *s)
{
    if (s->transactions != NULL && s->transactions->storage != NULL)
        sl_storage_hurry(s->transactions->storage);
}

void sl_transactions_stop(struct server *s)
{
    struct sl_transactions *t = s->transactions;
    if (t == NULL || t->storage == NULL) return;
    struct sl_storage *storage = t->storage;
    uv_poll_stop(&t->poll);
    t->closing = true;
    sl_storage_close(storage); /* This calls done() for each pending operation. */
    t->storage = NULL;
    while (!sl_list_empty(&t->scans_waiting)) {
        struct work *w = sl_container_of(t->scans_waiting.next, struct work, waiting);
        sl_list_remove(&w->waiting);
        free(w);
    }
}
