#include "server/arbiter/tx.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/state.h"
#include "server/forward/forward.h"
#include "server/observe/log.h"

#define CYCLES_KEPT 8u
#define REIGNS_KEPT 8u
#define SCANS_AT_ONCE \
    2u /* Rows of more are not read ahead of what the loop can send. */

_Static_assert(SL_STORAGE_NAME_BYTES_MAX == 509, "settings.def: tx-name-bytes-max");
_Static_assert(SL_STORAGE_REQUEST_BYTES_MAX == 511,
               "settings.def: tx-request-bytes-max");

/* In a cluster there is a keeper for each term in which this node is one. One that is
 * deposed stays until the engine has answered what it ordered. */
struct sl_keep {
    struct sl_tx_manager *keeper;      /* NULL: another node is it. */
    uint64_t term;                     /* In a cluster: of this reign. */
    struct sl_storage *engine;         /* NULL: it is closed. */
    bool closing;                      /* The engine takes no more orders. */
    char damage[SL_STORAGE_WHY_BYTES]; /* Why the store is not used; "": it is. */
    uv_poll_t poll;
    size_t ordered;               /* Of the engine, and not done; */
    size_t commits;               /* those of them that are commits, */
    size_t scans;                 /* and scans that the engine has. */
    struct sl_list scans_waiting; /* Scans that it does not have yet. */
    struct old {
        struct sl_tx_manager
            *keeper; /* Deposed, and waiting for the engine; or NULL. */
        uint64_t term;
        size_t ordered;
    } old[REIGNS_KEPT];
    struct conn *asker; /* Whose command is being dispatched; NULL: nobody's. */
    int failed;         /* Why the last claim or commit failed; 0: it did not. */
    struct sl_cycle cycles[CYCLES_KEPT];
    uint64_t
        cycle_count; /* Of all that were; the last is at (this - 1) % CYCLES_KEPT. */
};

/* --- What the engine does ---------------------------------------------------------------- */

/* An order on its way, with all that it points to. */
struct work {
    struct sl_storage_op op;
    struct sl_list waiting; /* In scans_waiting. */
    uint64_t reign;         /* In a cluster: of which term's keeper. */
    uint64_t number;
    struct sl_storage_write writes[];
};

static void say_claimed(const struct sl_storage_result *r)
{
    char term[24];
    snprintf(term, sizeof term, "%" PRIu64, r->term);
    sl_log(SL_LOG_INFO, "transactions: this keeper is current", "term", term, NULL);
}

/* What an operator has to know. A commit that is refused is the client's affair; a disk that
 * refuses is not. */
static void say_done(struct server *s, const struct sl_storage_op *op)
{
    static struct sl_log_kind kind;
    struct sl_keep *k = s->keep;
    const struct sl_storage_result *r = &op->result;
    bool wrote = op->type == SL_STORAGE_CLAIM || op->type == SL_STORAGE_BAR ||
                 (op->type == SL_STORAGE_COMMIT && op->write_count > 0);
    bool bad = r->status == SLUICE_ENOSPC || r->status == SLUICE_EIO ||
               r->status == SLUICE_ENOMEM;
    if (op->type == SL_STORAGE_CLAIM && r->status == SLUICE_OK) say_claimed(r);
    if (bad)
        sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                     op->type == SL_STORAGE_CLAIM
                         ? "transactions: the store takes no new term, so all are "
                           "refused; it is tried again"
                         : "transactions: the store refuses",
                     "error", sluice_status_word(r->status), NULL);
    else if (wrote && k->failed != 0)
        sl_log(SL_LOG_INFO, "transactions: the store is written again", NULL);
    if (bad) k->failed = r->status;
    else if (wrote) k->failed = 0;
}

static void tell_all_of(struct server *s, struct sl_tx_manager *of);

/* One that is deposed is answered, and is gone with its last order. */
static void done_of_old(struct server *s, const struct work *w)
{
    struct sl_keep *k = s->keep;
    for (size_t i = 0; i < REIGNS_KEPT; i++) {
        struct old *o = &k->old[i];
        if (o->keeper == NULL || o->term != w->reign) continue;
        sl_tx_manager_done(o->keeper, s->now.ms, w->number, &w->op.result);
        tell_all_of(s, o->keeper);
        if (--o->ordered > 0) return;
        sl_tx_manager_free(o->keeper);
        o->keeper = NULL;
        return;
    }
}

/* The rows of a scan are in memory from when the engine has read them until their reply is
 * sent. The engine reads faster than clients do, so it gets only a few scans at a time. */
static void submit(struct server *s, struct work *w)
{
    struct sl_keep *k = s->keep;
    bool waits = w->op.type == SL_STORAGE_SCAN && k->scans >= SCANS_AT_ONCE;
#ifdef MUT_SCANSATONCE
    waits = false;
#endif
    if (waits) {
        sl_list_append(&k->scans_waiting, &w->waiting);
        return;
    }
    if (w->op.type == SL_STORAGE_SCAN) k->scans++;
    sl_keep_submit(s, &w->op);
}

/* The engine has finished a scan: submit the next one. */
static void scan_done(struct server *s)
{
    struct sl_keep *k = s->keep;
    k->scans--;
    if (k->closing || sl_list_empty(&k->scans_waiting)) return;
    struct work *next = sl_container_of(k->scans_waiting.next, struct work, waiting);
    sl_list_remove(&next->waiting);
    submit(s, next);
}

static void done(struct sl_storage_op *op)
{
    struct work *w = sl_container_of(op, struct work, op);
    struct server *s = op->owner;
    struct sl_keep *k = s->keep;
    if (op->type == SL_STORAGE_COMMIT) k->commits--;
    if (op->type == SL_STORAGE_SCAN) scan_done(s);
    say_done(s, op);
    if (k->keeper == NULL || w->reign != k->term) done_of_old(s, w);
    else {
        k->ordered--;
        sl_tx_manager_done(k->keeper, s->now.ms, w->number, &op->result);
        if (op->result.status == SLUICE_ESTALE) sl_forward_refused(s, op->result.term);
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

/* All of an order in one piece: it is the keeper's only until the next is fetched. NULL when
 * out of memory. */
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
#ifndef MUT_TXREQUEST
    w->op.request = copy(&at, o->request);
#endif
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

static void order(struct server *s, const struct sl_tx_order *o)
{
    struct sl_keep *k = s->keep;
    struct work *w;
    if (k->closing) return; /* The remaining scans are dropped. */
    if (o->type == SL_TX_ORDER_CLAIM &&
        s->relay != NULL) { /* The office has done that. */
        const struct sl_storage_result mine = {.term = k->term};
        sl_tx_manager_done(k->keeper, s->now.ms, o->op, &mine);
        return;
    }
    w = copy_order(o);
    if (w == NULL) {
        const struct sl_storage_result none = {.status = SLUICE_ENOMEM};
        sl_tx_manager_done(k->keeper, s->now.ms, o->op, &none);
        return;
    }
    w->reign = k->term;
    w->op.type = type_of(o->type);
    w->op.rows_max = (uint32_t)s->settings->tx_rows_max;
    w->op.bytes_max = (size_t)s->settings->output_bytes_max;
    w->op.owner = s;
    w->op.done = done;
    k->ordered++;
    if (o->type == SL_TX_ORDER_COMMIT) k->commits++;
    submit(s, w);
}

static void on_engine(uv_poll_t *handle, int status, int events)
{
    struct server *s = handle->data;
    (void)status;
    (void)events;
    sl_server_look_at_clock(s);
    /* One at least: others may use up every turn. What is left is readable still. */
    while (sl_storage_work(s->keep->engine, 1) && !sl_server_turn_is_long(s)) {}
    sl_server_settle(s);
}

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

static const char *const part_names[] = {
    [SL_TX_BEGIN] = "TX.BEGIN",   [SL_TX_LOCK] = "TX.LOCK",   [SL_TX_GET] = "TX.GET",
    [SL_TX_PUT] = "TX.PUT",       [SL_TX_DEL] = "TX.DEL",     [SL_TX_SCAN] = "TX.SCAN",
    [SL_TX_COMMIT] = "TX.COMMIT", [SL_TX_ABORT] = "TX.ABORT", [SL_TX_OUTCOME] = NULL};

const char *sl_keep_part(struct sl_bytes name)
{
    const size_t n = sizeof part_names / sizeof *part_names;
    if (name.n < 3 || !sl_word_is((struct sl_bytes){name.at, 3}, "TX.")) return NULL;
    for (size_t i = 0; i < n; i++)
        if (part_names[i] != NULL && sl_word_is(name, part_names[i]))
            return part_names[i];
    return sl_word_is(name, "TX.OUTCOME") ? NULL : "an unknown command";
}

/* After RESTART and AGE the keeper itself lets nothing be done, until BEGIN. */
static bool is_over(const char *word)
{
    return strcmp(word, sluice_status_word(SLUICE_ERESTART)) == 0 ||
           strcmp(word, sluice_status_word(SLUICE_EAGE)) == 0;
}

void sl_keep_failed(struct call *call, const char *word)
{
    struct conn *c = call->c;
    if (c->begun != NULL) sl_forward_failed(c, call->tx);
    if (c->tx == 0 || (c->tx_error != NULL && !is_over(word))) return;
    c->tx_failed = call->tx;
    c->tx_error = word;
}

static bool has_failed(const struct conn *c)
{
#ifdef MUT_TXHALF
    return false;
#endif
    return c->tx_error != NULL && !is_over(c->tx_error);
}

#define STEP_COST 8u /* Of a lock that is looked at: somewhere in memory. */

/* A search for cycles may look at thousands of locks: then a turn has fewer commands. */
static uint64_t steps_of(const struct sl_keep *k)
{
    struct sl_tx_manager_stats stats;
    sl_tx_manager_stats(k->keeper, &stats);
    return stats.steps;
}

void sl_keep_ask(struct call *call, const struct sl_tx_request *asked)
{
    struct sl_tx_request ask = *asked;
    struct server *s = call->s;
    struct sl_keep *k = s->keep;
    if (k == NULL || k->keeper == NULL) {
        call->c->settling = false;
        sl_say(call, sluice_status_word(SLUICE_ENOKEEPER), sl_keep_why_not(s));
        return;
    }
    if (ask.type == SL_TX_COMMIT && has_failed(call->c)) ask.type = SL_TX_ABORT;
    uint64_t before = steps_of(k);
    int status = sl_tx_manager_submit(k->keeper, s->now.ms, sl_conn_id(call->c), &ask);
    sl_server_spend(s, STEP_COST * (steps_of(k) - before));
    if (status != SLUICE_OK) {
        sl_say_status(call, status);
        return;
    }
    call->c->blocked = SL_IN_TX;
    call->c->tx_asked = (uint8_t)asked->type;
    s->blocked_count++;
    k->asker = call->c; /* It goes on by itself if it is answered here. */
    sl_keep_tell(s);
    k->asker = NULL;
}

void sl_keep_leave(struct conn *c)
{
    struct server *s = c->server;
    c->tx = 0;
    c->tx_error = NULL;
    if (s->keep == NULL || s->keep->keeper == NULL) return;
    sl_tx_manager_leave(s->keep->keeper, s->now.ms, sl_conn_id(c));
}

bool sl_keep_is_brief(const struct conn *c)
{
    if (c->blocked != SL_IN_TX) return false;
#ifdef MUT_TXBRIEF
    return false;
#endif
    return c->server->keep->keeper == NULL ||
           !sl_tx_manager_waits(c->server->keep->keeper, sl_conn_id(c));
}

bool sl_keep_commits(const struct conn *c)
{
    return c->blocked == SL_IN_TX && c->tx_asked == SL_TX_COMMIT;
}

bool sl_keep_is_busy(const struct server *s)
{
#ifdef MUT_TXSTOP
    return false;
#endif
    return s->keep != NULL && s->keep->commits > 0;
}

/* Which transaction it has after that. */
static uint64_t transaction_of(const struct conn *c, enum sl_tx_verb asked,
                               const struct sl_tx_answer *a)
{
    bool restarts = a->status == SLUICE_ERESTART || a->status == SLUICE_EAGE;
    if (asked == SL_TX_BEGIN) return a->status == SLUICE_OK ? a->id : c->tx;
    if (asked == SL_TX_OUTCOME) return c->tx;
    if (asked == SL_TX_COMMIT && !restarts) return 0;
    if (asked == SL_TX_ABORT && a->status == SLUICE_OK) return 0;
    return a->status == SLUICE_ESTALE ? 0 : c->tx;
}

static void unblock(struct server *s, struct conn *c)
{
    if (c != s->keep->asker) {
        sl_conn_unblock(c);
        return;
    }
    c->blocked = SL_NOT_BLOCKED;
    s->blocked_count--;
}

/* Of a commit that was none. */
static void say_failed(struct call *call)
{
    const struct conn *c = call->c;
    char text[120];
    snprintf(text, sizeof text,
             "%s failed before (%s): nothing was committed; TX.BEGIN again",
             c->tx_failed, c->tx_error);
    sl_say(call, c->tx_error, text);
}

static void answer(struct server *s, uint64_t id, const struct sl_tx_answer *a)
{
    const struct session *n = sl_server_session(s, id);
    struct conn *c = n != NULL ? n->conn : NULL;
    if (c == NULL || c->blocked != SL_IN_TX) return; /* It has left. */
    enum sl_tx_verb asked = (enum sl_tx_verb)c->tx_asked;
    struct call call = {.c = c, .s = s, .out = sl_conn_out(c), .tx = part_names[asked]};
    unblock(s, c);
    if (a->status == SLUICE_ERESTART && a->cycle_count > 0) remember_cycle(s, c->tx, a);
    if (asked == SL_TX_COMMIT && a->status == SLUICE_OK && has_failed(c))
        say_failed(&call);
    else sl_keep_reply(&call, asked, a);
    c->settling = false;
    c->tx = transaction_of(c, asked, a);
    if (c->tx == 0 || (asked == SL_TX_BEGIN && a->status == SLUICE_OK))
        c->tx_error = NULL;
}

sl_ms sl_keep_due(const struct server *s)
{
    return s->keep == NULL || s->keep->keeper == NULL
               ? SL_NEVER
               : sl_tx_manager_due(s->keep->keeper);
}

bool sl_keep_tell(struct server *s)
{
    struct sl_tx_order o;
    if (s->keep == NULL || s->keep->keeper == NULL) return true;
    struct sl_tx_manager *k = s->keep->keeper;
    if (sl_tx_manager_due(k) <= s->now.ms) sl_tx_manager_tick(k, s->now.ms);
    while (s->effects_left > 0) {
        if (!sl_tx_manager_next(k, &o)) return sl_tx_manager_due(k) > s->now.ms;
        if (--s->effects_left % 4 == 0 && sl_server_turn_is_long(s))
            s->effects_left = 0; /* After this one. */
        if (o.type == SL_TX_ORDER_ANSWER) answer(s, o.ticket, o.answer);
        else order(s, &o);
    }
    return false;
}

/* A deposed one orders nothing more; what it answers is answered at once. */
static void tell_all_of(struct server *s, struct sl_tx_manager *of)
{
    struct sl_tx_order o;
    while (sl_tx_manager_next(of, &o))
        if (o.type == SL_TX_ORDER_ANSWER) answer(s, o.ticket, o.answer);
}

/* --- Start and stop ---------------------------------------------------------------------------- */

static struct sl_tx_manager_limits limits_of(const struct sl_settings *set)
{
    sl_ms age_ms = set->tx_age_ms == 0 ? SL_NEVER : set->tx_age_ms;
#ifdef MUT_TXAGE
    age_ms = SL_NEVER;
#endif
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

static int fail(const char *what, const char *folder, const char *why)
{
    sl_log(SL_LOG_ERROR, what, "folder", folder, "error", why, NULL);
    return -1;
}

/* The first claim is waited for: when the log says "ready", transactions are. If the disk is
 * full, say, locks are served all the same, and it is tried again. */
static void claim(struct server *s)
{
    struct sl_keep *k = s->keep;
    s->effects_left = UINT32_MAX;
    sl_keep_tell(s);
    while (k->ordered > 0) {
        struct pollfd p = {.fd = sl_storage_fd(k->engine), .events = POLLIN};
        poll(&p, 1, -1);
        sl_server_look_at_clock(s);
        sl_storage_work(k->engine, SIZE_MAX);
    }
}

/* Locks do not need the store, so the server starts without it. */
static int serve_without(struct server *s, const char *folder, const char *why)
{
    snprintf(s->keep->damage, sizeof s->keep->damage, "%s", why);
    sl_log(SL_LOG_ERROR,
           "the store is damaged; the server serves locks without transactions",
           "folder", folder, "error", why, NULL);
    return 0;
}

static int open_store(struct server *s, const char *folder)
{
    const struct sl_settings *set = s->settings;
    const struct sl_tx_manager_limits limits = limits_of(set);
    struct sl_keep *k = s->keep;
    char why[400] = "";
    const struct sl_storage_settings store = {.folder = folder,
                                              .bytes_max = (size_t)set->store_bytes_max,
                                              .dedup_keep_ms = set->dedup_keep_ms,
                                              .group_max = (uint32_t)set->tx_group_max};
    int status = sl_storage_try_lmdb(folder, set->store_check_ms, why, sizeof why);
#ifndef MUT_KEEPDAMAGE
    if (status == SLUICE_ETRUNCATED) return serve_without(s, folder, why);
#endif
    if (status == SLUICE_OK || status == SLUICE_ENOENT)
        k->engine = sl_storage_open_lmdb(&store, why, sizeof why);
    if (k->engine == NULL)
        return fail("engine: cannot open the store of transactions", folder, why);
    k->keeper = sl_tx_manager_new(&limits, s->hash_key);
    if (k->keeper == NULL || uv_poll_init(s->loop, &k->poll, sl_storage_fd(k->engine)))
        return fail("cannot start", folder, "out of memory");
    k->poll.data = s;
    uv_poll_start(&k->poll, UV_READABLE, on_engine);
    claim(s);
    return 0;
}

/* --- In a cluster ------------------------------------------------------------------------------ */

void sl_keep_watch(struct server *s,
                   void (*told)(void *owner, const struct sl_storage_term *reign))
{
    sl_storage_watch(s->keep->engine, told, s);
}

bool sl_keep_submit(struct server *s, struct sl_storage_op *op)
{
    if (s->keep->closing) return false;
    sl_storage_submit(s->keep->engine, op);
    return true;
}

const char *sl_keep_trouble(const struct server *s)
{
    if (s->keep == NULL) return "";
    if (*s->keep->damage != '\0') return s->keep->damage;
#ifndef MUT_KEEPCLOSE
    if (s->keep->engine == NULL) return "";
#endif
    return sl_storage_trouble(s->keep->engine);
}

void sl_keep_lead(struct server *s, uint64_t term)
{
    const struct sl_tx_manager_limits limits = limits_of(s->settings);
    struct sl_keep *k = s->keep;
    k->term = term;
    k->ordered = 0;
    k->keeper = sl_tx_manager_new(&limits, s->hash_key);
    struct sl_tx_order o;
    if (k->keeper == NULL)
        sl_log(SL_LOG_ERROR, "transactions: there is no memory for a keeper", NULL);
    else if (sl_tx_manager_next(k->keeper, &o)) order(s, &o); /* Its claim. */
}

/* One of those that are deposed is forgotten only when the engine owes it nothing; with more
 * of them than there are places the oldest is waited for no longer. */
static void keep_old(struct sl_keep *k, struct sl_tx_manager *old)
{
    size_t at = 0;
    for (size_t i = 0; i < REIGNS_KEPT && k->old[at].keeper != NULL; i++)
        if (k->old[i].keeper == NULL || k->old[i].term < k->old[at].term) at = i;
    sl_tx_manager_free(k->old[at].keeper);
    k->old[at] = (struct old){.keeper = old, .term = k->term, .ordered = k->ordered};
}

void sl_keep_depose(struct server *s, uint64_t term)
{
    struct sl_keep *k = s->keep;
    struct sl_tx_manager *old = k->keeper;
    if (old == NULL) return;
    sl_tx_manager_stop(old, s->now.ms, term + 1);
    tell_all_of(s, old);
    k->keeper = NULL;
    if (k->ordered == 0) sl_tx_manager_free(old);
    else keep_old(k, old);
    k->ordered = 0;
}

static int open_etcd(struct server *s)
{
    const struct sl_settings *set = s->settings;
    struct sl_keep *k = s->keep;
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
    k->engine = sl_storage_open_etcd(&etcd, why, sizeof why);
    if (k->engine == NULL) { /* What was set may have a password in it. */
        sl_log(SL_LOG_ERROR, "engine: this etcd cannot be used", "error", why, NULL);
        return -1;
    }
    if (uv_poll_init(s->loop, &k->poll, sl_storage_fd(k->engine)) != 0)
        return fail("cannot start", "", "out of memory");
    k->poll.data = s;
    uv_poll_start(&k->poll, UV_READABLE, on_engine);
    return 0;
}

static bool make_keep(struct server *s)
{
    s->keep = calloc(1, sizeof *s->keep);
    if (s->keep != NULL) sl_list_init(&s->keep->scans_waiting);
    return s->keep != NULL;
}

static int start_etcd(struct server *s)
{
    if (s->settings->engine != SL_ENGINE_ETCD) return 0;
    if (!make_keep(s)) return fail("cannot start", "", "out of memory");
    return open_etcd(s);
}

int sl_keep_start(struct server *s)
{
    struct sl_state_view v;
    bool wanted = s->settings->engine == SL_ENGINE_LMDB;
    sl_state_look(s, &v);
    if (s->cluster != NULL) return start_etcd(s);
    if (s->settings->engine == SL_ENGINE_NONE) return 0;
    if (*v.folder == '\0')
        return wanted ? fail("engine: lmdb needs a folder for data: --data FOLDER", "",
                             "there is none")
                      : 0;
    if (!make_keep(s)) return fail("cannot start", v.folder, "out of memory");
    return open_store(s, v.folder);
}

void sl_keep_hurry(struct server *s)
{
#ifdef MUT_TXHURRY
    return;
#endif
    if (s->keep != NULL && s->keep->engine != NULL) sl_storage_hurry(s->keep->engine);
}

void sl_keep_stop(struct server *s)
{
    struct sl_keep *k = s->keep;
    if (k == NULL || k->engine == NULL) return;
    struct sl_storage *engine = k->engine;
    uv_poll_stop(&k->poll);
    k->closing = true;
#ifdef MUT_KEEPCLOSE
    k->engine = NULL;
#endif
    sl_storage_close(engine); /* It calls `done` of what it was asked before. */
    k->engine = NULL;
    while (!sl_list_empty(&k->scans_waiting)) {
        struct work *w = sl_container_of(k->scans_waiting.next, struct work, waiting);
        sl_list_remove(&w->waiting);
        free(w);
    }
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
