/* transactions.c - what clients ask of a transaction. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

/* --- Sessions ---------------------------------------------------------------------- */

static uint64_t hash_session(const void *item, const struct sl_index *x)
{
    const struct sl_tx *t = item;
    return sl_hash(x->key, &t->session, sizeof t->session);
}

static bool same_session(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_tx *)item)->session, key.at, key.n) == 0;
}

const struct sl_index_kind sl_sessions_kind = {.hash = hash_session,
                                               .same = same_session};

static struct sl_tx *find(const struct sl_tx_manager *k, uint64_t session)
{
    return sl_index_find(&k->by_session,
                         (struct sl_bytes){(const char *)&session, sizeof session},
                         sl_hash(k->by_session.key, &session, sizeof session));
}

bool sl_tx_manager_waits(const struct sl_tx_manager *k, uint64_t session)
{
    const struct sl_tx *t = find(k, session);
    return t != NULL && t->waits != NULL;
}

/* --- Writes so far ------------------------------------------------------------------ */

struct write_name {
    const struct sl_tx *tx;
    struct sl_bytes table, key;
};

static uint64_t hash_names(const struct write_name *w, struct sl_hash_key key)
{
    key.a ^= sl_hash(key, &w->tx, sizeof w->tx);
    key.a ^= sl_hash(key, w->table.at, w->table.n);
    return sl_hash(key, w->key.at, w->key.n);
}

static struct write_name name_of(const struct sl_tx_written *w)
{
    return (struct write_name){
        w->tx, {w->name, w->table_n}, {w->name + w->table_n, w->key_n}};
}

static uint64_t hash_written(const void *item, const struct sl_index *x)
{
    const struct write_name n = name_of(item);
    return hash_names(&n, x->key);
}

static bool same_written(const void *item, struct sl_bytes key)
{
    const struct write_name a = name_of(item), *b = (const void *)key.at;
    return a.tx == b->tx && a.table.n == b->table.n && a.key.n == b->key.n &&
           memcmp(a.table.at, b->table.at, a.table.n) == 0 &&
           memcmp(a.key.at, b->key.at, a.key.n) == 0;
}

const struct sl_index_kind sl_writes_kind = {.hash = hash_written,
                                             .same = same_written};

static struct sl_tx_written *find_written(const struct sl_tx_manager *k,
                                          const struct sl_tx *t, struct sl_bytes table,
                                          struct sl_bytes key)
{
    const struct write_name n = {t, table, key};
    return sl_index_find(&k->writes, (struct sl_bytes){(const char *)&n, sizeof n},
                         hash_names(&n, k->writes.key));
}

static void count_bytes(struct sl_tx_manager *k, struct sl_tx *t, size_t more,
                        size_t less)
{
    t->write_bytes += more;
    t->write_bytes -= less;
    k->write_bytes += more;
    k->write_bytes -= less;
}

static void forget(struct sl_tx_manager *k, struct sl_tx_written *w)
{
    sl_index_remove(&k->writes, w, hash_written(w, &k->writes));
    sl_list_remove(&w->in_tx);
    w->tx->write_count--;
    count_bytes(k, w->tx, 0, w->table_n + w->key_n + w->value_n);
    free(w->value);
    free(w);
}

void sl_tx_forget_writes(struct sl_tx_manager *k, struct sl_tx *t)
{
    while (!sl_list_empty(&t->writes))
        forget(k, sl_container_of(t->writes.next, struct sl_tx_written, in_tx));
}

static struct sl_tx_written *make_written(struct sl_tx_manager *k, struct sl_tx *t,
                                          struct sl_bytes table, struct sl_bytes key)
{
    if (sl_index_reserve(&k->writes) != SLUICE_OK) return NULL;
    struct sl_tx_written *w = calloc(1, sizeof *w + table.n + key.n);
    if (w == NULL) return NULL;
    w->tx = t;
    w->table_n = (uint32_t)table.n;
    w->key_n = (uint32_t)key.n;
    memcpy(w->name, table.at, table.n);
    if (key.n > 0) memcpy(w->name + table.n, key.at, key.n);
    sl_list_append(&t->writes, &w->in_tx);
    t->write_count++;
    count_bytes(k, t, table.n + key.n, 0);
    sl_index_put(&k->writes, w, hash_written(w, &k->writes));
    return w;
}

/* Remember a write, or a deletion. */
static int put(struct sl_tx_manager *k, struct sl_tx *t, struct sl_bytes table,
               struct sl_bytes key, struct sl_bytes value, bool deleted)
{
    struct sl_tx_written *w = find_written(k, t, table, key);
    size_t more = value.n + (w == NULL ? table.n + key.n : 0);
    size_t less = w == NULL ? 0 : w->value_n;
    if (w == NULL && t->write_count >= k->limits.writes_max) return SLUICE_EWRITES;
    if (t->write_bytes - less + more > k->limits.bytes_max) return SLUICE_EWRITES;
#ifndef MUT_NOTOTAL
    if (k->limits.total_bytes_max > 0 && more > less &&
        k->write_bytes - less + more > k->limits.total_bytes_max)
        return SLUICE_ETRANSACTIONS;
#endif
    char *copy = malloc(value.n + 1);
    if (copy == NULL) return SLUICE_ENOMEM;
    if (w == NULL) w = make_written(k, t, table, key);
    if (w == NULL) {
        free(copy);
        return SLUICE_ENOMEM;
    }
    if (value.n > 0) memcpy(copy, value.at, value.n);
    count_bytes(k, t, value.n, w->value_n);
    free(w->value);
    w->value = copy;
    w->value_n = (uint32_t)value.n;
    w->deleted = deleted;
    return SLUICE_OK;
}

/* --- Answers ----------------------------------------------------------------------- */

static void end_wait(struct sl_tx_manager *k, struct sl_tx *t)
{
    if (t->wait_due != SL_HEAP_NONE) sl_heap_remove(&k->waits, t->wait_due);
}

static void forget_words(struct sl_tx_manager *k, struct sl_tx *t)
{
    if (t->words == NULL) return;
    k->name_bytes -= (size_t)t->table_n + t->key_n + t->value_n;
    free(t->words);
    t->words = NULL;
}

static void answer(struct sl_tx_manager *k, struct sl_tx *t, int status)
{
    struct sl_tx_reply *r = t->reply;
    forget_words(k, t);
    end_wait(k, t);
    if (r == NULL) return; /* Nobody is there to hear it. */
    t->reply = NULL;
    sl_tx_reply_status(k, r, status);
}

/* With bytes of its own; or that there is no memory for them. */
static void answer_value(struct sl_tx_manager *k, struct sl_tx *t, bool found,
                         struct sl_bytes value)
{
    struct sl_tx_reply *r = t->reply;
    if (r == NULL) return;
    char *bytes = sl_tx_reply_bytes(k, r, value.n);
    if (bytes == NULL) {
        answer(k, t, SLUICE_ENOMEM);
        return;
    }
    if (value.n > 0) memcpy(bytes, value.at, value.n);
    r->answer.found = found;
    if (found) r->answer.value = (struct sl_bytes){bytes, value.n};
    answer(k, t, SLUICE_OK);
}

/* --- Beginning and ending ------------------------------------------------------------ */

void sl_tx_end(struct sl_tx_manager *k, struct sl_tx *t)
{
    sl_tx_forget_writes(k, t);
    if (t->op != NULL) sl_order_drop(k, t->op);
    t->op = NULL;
    sl_list_remove(&t->going_on);
    sl_tx_lock_free_all(k, t);
    if (t->due != SL_HEAP_NONE) sl_heap_remove(&k->ages, t->due);
    end_wait(k, t);
    if (!t->gone) sl_index_remove(&k->by_session, t, hash_session(t, &k->by_session));
    sl_list_remove(&t->all);
    k->transaction_count--;
    sl_tx_reply_free(k, t->reply);
    forget_words(k, t);
    free(t->request);
    free(t);
}

void sl_tx_restart(struct sl_tx_manager *k, struct sl_tx *t, int why)
{
    t->state = SL_TX_RESTARTING;
    t->why = why;
    k->stats.restarted++;
#ifndef MUT_WRITESKEPT
    sl_tx_forget_writes(k, t);
#endif
#ifndef MUT_LATEREAD
    if (t->op != NULL) sl_order_drop(k, t->op);
#endif
    t->op = NULL;
    sl_list_remove(&t->going_on);
    if (t->reply != NULL) answer(k, t, why);
#ifndef MUT_RESTARTKEEPS
#ifndef MUT_AGAINAGED
    if (why == SLUICE_EAGE) sl_tx_lock_free_all(k, t);
    else
#endif
        sl_tx_lock_lose_all(k, t);
#else
    sl_tx_lock_leave_line(k, t);
#endif
}

static struct sl_tx *make_tx(struct sl_tx_manager *k, sl_ms now, uint64_t session)
{
    uint32_t out = k->transaction_count - k->ages.count;
    if (sl_index_reserve(&k->by_session) != SLUICE_OK ||
        sl_heap_reserve(&k->ages, out + 1) != SLUICE_OK)
        return NULL;
    struct sl_tx *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    sl_list_init(&t->locks);
    sl_list_init(&t->again);
    sl_list_init(&t->writes);
    sl_list_init(&t->going_on);
    t->id = ++k->last_id;
    t->session = session;
    t->begun_ms = now;
    t->due = t->wait_due = SL_HEAP_NONE;
    t->wait_until = SL_NEVER;
    sl_list_append(&k->transactions, &t->all);
    k->transaction_count++;
    sl_index_put(&k->by_session, t, hash_session(t, &k->by_session));
    return t;
}

static void set_age(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t)
{
    sl_ms end = sl_ms_after(now, k->limits.age_ms_max);
    if (end == SL_NEVER) return;
    if (t->due == SL_HEAP_NONE) sl_heap_put(&k->ages, end, t);
    else sl_heap_move(&k->ages, t->due, end);
}

static bool set_request(struct sl_tx *t, struct sl_bytes request)
{
    char *copy = NULL;
    if (request.n > 0) {
        copy = malloc(request.n);
        if (copy == NULL) return false;
        memcpy(copy, request.at, request.n);
    }
    free(t->request);
    t->request = copy;
    t->request_n = (uint32_t)request.n;
    return true;
}

/* A new one; or the one that was told to restart, with its number and so its age. */
static void begin(struct sl_tx_manager *k, sl_ms now, struct sl_tx_reply *r,
                  const struct sl_tx_request *ask)
{
    struct sl_tx *t = find(k, ask->session);
    int status = SLUICE_OK;
    bool fresh = t == NULL;
    if (t != NULL && t->state != SL_TX_RESTARTING) status = SLUICE_ENOTX;
    else if (t == NULL && k->transaction_count >= k->limits.transactions_max)
        status = SLUICE_ETRANSACTIONS;
    else if (t == NULL) t = make_tx(k, now, ask->session);
    if (status == SLUICE_OK && (t == NULL || !set_request(t, ask->request))) {
        if (t != NULL && fresh) sl_tx_end(k, t);
        status = SLUICE_ENOMEM;
    }
    if (status == SLUICE_OK) {
        t->state = SL_TX_RUNNING;
        sl_tx_lock_sort_again(k, t);
#ifdef MUT_NEWNUMBER
        if (!fresh) t->id = ++k->last_id;
#endif
        set_age(k, now, t);
        k->stats.begun++;
        r->answer.term = k->term;
        r->answer.id = t->id;
    }
    sl_tx_reply_status(k, r, status);
}

/* --- Locks of an ask ------------------------------------------------------------------ */

static struct sl_bytes word_table(const struct sl_tx *t)
{
    return (struct sl_bytes){t->words, t->table_n};
}

static struct sl_bytes word_key(const struct sl_tx *t)
{
    if (t->whole) return (struct sl_bytes){NULL, 0};
    return (struct sl_bytes){t->words + t->table_n, t->key_n};
}

static struct sl_bytes word_value(const struct sl_tx *t)
{
    return (struct sl_bytes){t->words + t->table_n + t->key_n, t->value_n};
}

/* All that it needs: on the table first, then on the key. */
static int take_locks(struct sl_tx_manager *k, struct sl_tx *t)
{
    const struct sl_bytes none = {NULL, 0};
    enum sl_tx_mode below = t->write ? SL_TX_MODE_W : SL_TX_MODE_R;
    if (t->whole) return sl_tx_lock_take(k, t, word_table(t), none, below);
    enum sl_tx_mode intends = t->write ? SL_TX_MODE_IW : SL_TX_MODE_IR;
#ifdef MUT_NOINTENT
    intends = SL_TX_MODE_IR;
#endif
    int status = sl_tx_lock_take(k, t, word_table(t), none, intends);
    if (status != SLUICE_OK) return status;
    return sl_tx_lock_take(k, t, word_table(t), word_key(t), below);
}

/* --- What is asked, with its locks ---------------------------------------------------- */

static void ask_engine(struct sl_tx_manager *k, struct sl_tx *t,
                       enum sl_tx_order_type type)
{
    const struct sl_bytes none = {NULL, 0};
    struct sl_bytes request = {t->request, t->request_n};
    bool names = type == SL_TX_ORDER_READ || type == SL_TX_ORDER_SCAN;
    t->op = sl_order(k, type, t, type == SL_TX_ORDER_COMMIT ? request : none,
                     names ? word_table(t) : none,
                     type == SL_TX_ORDER_READ ? word_key(t) : none);
    if (t->op == NULL) answer(k, t, SLUICE_ENOMEM);
}

static void get(struct sl_tx_manager *k, struct sl_tx *t)
{
    const struct sl_tx_written *w = find_written(k, t, word_table(t), word_key(t));
#ifdef MUT_DIRTY
    for (struct sl_list *i = k->transactions.next; i != &k->transactions; i = i->next)
        if (w == NULL)
            w = find_written(k, sl_container_of(i, struct sl_tx, all), word_table(t),
                             word_key(t));
#endif
    if (w == NULL) ask_engine(k, t, SL_TX_ORDER_READ);
    else answer_value(k, t, !w->deleted, (struct sl_bytes){w->value, w->value_n});
}

/* Whether there was one, it knows itself or the engine does. */
static void del_known(struct sl_tx_manager *k, struct sl_tx *t, bool found)
{
    int status = put(k, t, word_table(t), word_key(t), (struct sl_bytes){"", 0}, true);
    t->reply->answer.found = found && status == SLUICE_OK;
    answer(k, t, status);
}

static void del(struct sl_tx_manager *k, struct sl_tx *t)
{
    const struct sl_tx_written *w = find_written(k, t, word_table(t), word_key(t));
    if (w == NULL) ask_engine(k, t, SL_TX_ORDER_READ);
    else del_known(k, t, !w->deleted);
}

/* Whatever it is told, but RESTART and AGE, is the end of it. */
static void commit(struct sl_tx_manager *k, struct sl_tx *t)
{
#ifdef MUT_READONLY
    if (t->write_count == 0) {
        answer(k, t, SLUICE_OK);
        sl_tx_end(k, t);
        return;
    }
#endif
    if (!sl_order_reserve(k, t->write_count)) answer(k, t, SLUICE_ENOMEM);
    else ask_engine(k, t, SL_TX_ORDER_COMMIT);
    if (t->op == NULL) {
        k->stats.aborted++;
        sl_tx_end(k, t);
        return;
    }
    t->state = SL_TX_COMMITTING;
    sl_tx_lock_forget(k, t);
    if (t->due != SL_HEAP_NONE) sl_heap_remove(&k->ages, t->due);
#ifdef MUT_EARLYFREE
    sl_tx_lock_free_all(k, t);
#endif
}

/* It has its locks. */
static void with_locks(struct sl_tx_manager *k, struct sl_tx *t)
{
    switch (t->asked) {
        case SL_TX_GET: get(k, t); break;
        case SL_TX_SCAN: ask_engine(k, t, SL_TX_ORDER_SCAN); break;
        case SL_TX_PUT:
            answer(k, t, put(k, t, word_table(t), word_key(t), word_value(t), false));
            break;
        case SL_TX_DEL: del(k, t); break;
        default: answer(k, t, SLUICE_OK); break;
    }
}

/* The timeout has expired. The transaction keeps the locks that it had before the request. It can
 * give up a new intention on the table, since it has read and written nothing under it. */
static void wait_is_over(struct sl_tx_manager *k, struct sl_tx *t)
{
    const struct sl_bytes none = {NULL, 0};
    sl_tx_lock_leave_line(k, t);
#ifndef MUT_WAITKEEPS
    if (t->table_is_known && !t->whole) {
        const struct sl_tx_item *i = sl_tx_item_find(k, word_table(t), none);
        struct sl_tx_lock *l = i == NULL ? NULL : sl_tx_lock_find(k, t, i);
        if (l != NULL) sl_tx_lock_weaken(k, l, t->table_mode);
    }
#endif
    answer(k, t, SLUICE_EFULL);
}

static void note_table(struct sl_tx_manager *k, struct sl_tx *t)
{
    const struct sl_bytes none = {NULL, 0};
    const struct sl_tx_item *i = sl_tx_item_find(k, word_table(t), none);
    const struct sl_tx_lock *l = i == NULL ? NULL : sl_tx_lock_find(k, t, i);
    t->table_mode = l == NULL ? SL_TX_MODE_NONE : l->mode;
    t->table_is_known = true;
}

static void run(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t)
{
    int status = sl_tx_lock_take_again(k, t);
    if (status == SLUICE_OK && t->wait_until != SL_NEVER && !t->table_is_known)
        note_table(k, t);
    if (status == SLUICE_OK) status = take_locks(k, t);
#ifdef MUT_DIRTY
    if (status == SL_TX_WAITS && t->asked == SL_TX_GET) {
        sl_tx_lock_leave_line(k, t);
        status = SLUICE_OK;
    }
#endif
    if (status == SLUICE_OK) with_locks(k, t);
#ifndef MUT_WAITZERO
    else if (status == SL_TX_WAITS && t->wait_until <= now) wait_is_over(k, t);
#endif
    else if (status == SL_TX_WAITS) sl_tx_deadlock_break(k, t);
    else answer(k, t, status);
}

/* Thousands may have their turn at once, and each may have to look for cycles. */
void sl_tx_go_on(struct sl_tx_manager *k, sl_ms now)
{
    uint64_t end = k->stats.steps + SL_STEPS_MAX;
#ifdef MUT_GOONALL
    end = UINT64_MAX;
#endif
    while (!sl_list_empty(&k->going_on) && k->stats.steps < end) {
        struct sl_tx *t = sl_container_of(k->going_on.next, struct sl_tx, going_on);
        sl_list_remove(&t->going_on);
        k->stats.steps++;
        run(k, now, t);
    }
    k->going_on_ms = sl_list_empty(&k->going_on) ? SL_NEVER : now;
}

void sl_tx_wait_ended(struct sl_tx_manager *k, struct sl_tx *t)
{
    end_wait(k, t);
    if (t->waits != NULL) wait_is_over(k, t); /* Else it goes on, and waits no more. */
}

/* --- What the engine did ---------------------------------------------------------------- */

/* Rows of the engine and of this transaction, by key: what it wrote itself counts. */
static int compare_keys(struct sl_bytes a, struct sl_bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n == 0 ? 0 : memcmp(a.at, b.at, n);
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static struct sl_bytes key_of(const struct sl_tx_written *w)
{
    return (struct sl_bytes){w->name + w->table_n, w->key_n};
}

static void sink(const struct sl_tx_written **of, uint32_t at, uint32_t n)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && compare_keys(key_of(of[child]), key_of(of[child + 1])) < 0)
            child++;
        if (compare_keys(key_of(of[at]), key_of(of[child])) >= 0) return;
        const struct sl_tx_written *w = of[at];
        of[at] = of[child];
        of[child] = w;
    }
}

/* By a heap: the keeper has no library to sort with. */
static void sort_writes(const struct sl_tx_written **of, uint32_t n)
{
    for (uint32_t i = n / 2; i > 0; i--) sink(of, i - 1, n);
    for (uint32_t i = n; i > 1; i--) {
        const struct sl_tx_written *w = of[0];
        of[0] = of[i - 1];
        of[i - 1] = w;
        sink(of, 0, i - 1);
    }
}

/* The engine's rows, which are in order, and its own writes of that table, sorted, as one. */
struct merge {
    const struct sl_storage_row *row, *rows_end;
    const struct sl_tx_written **own, **own_end;
};

static bool next_row(struct merge *m, struct sl_storage_row *out)
{
    for (;;) {
        int c = m->row == m->rows_end  ? 1
                : m->own == m->own_end ? -1
                                       : compare_keys(m->row->key, key_of(*m->own));
        if (c > 0 && m->own == m->own_end) return false;
        if (c < 0) {
            *out = *m->row++;
            return true;
        }
        const struct sl_tx_written *w = *m->own++;
        if (c == 0) m->row++;
        if (w->deleted) continue;
        *out = (struct sl_storage_row){key_of(w), {w->value, w->value_n}};
        return true;
    }
}

/* Its writes of the table that was asked for; how many. */
static uint32_t own_writes(const struct sl_tx *t, const struct sl_tx_written **out)
{
    struct sl_bytes table = word_table(t);
    uint32_t n = 0;
    for (const struct sl_list *i = t->writes.next; i != &t->writes; i = i->next) {
        const struct sl_tx_written *w = sl_container_of(i, struct sl_tx_written, in_tx);
        if (w->table_n == table.n && memcmp(w->name, table.at, table.n) == 0)
            out[n++] = w;
    }
    sort_writes(out, n);
    return n;
}

static char *copy_bytes(char *at, struct sl_bytes *b)
{
    if (b->n > 0) memcpy(at, b->at, b->n);
    b->at = at;
    return at + b->n;
}

/* Counted first, and then copied, if it is not too much. */
static int answer_rows(struct sl_tx_manager *k, struct sl_tx_reply *r,
                       const struct merge *merged)
{
    const struct sl_tx_manager_limits *l = &k->limits;
    struct merge m = *merged;
    struct sl_storage_row row;
    size_t n = 0, bytes = 0;
    while (next_row(&m, &row)) {
        n++;
        bytes += row.key.n + row.value.n;
    }
    if (n > l->rows_max || (l->scan_bytes_max > 0 && bytes > l->scan_bytes_max))
        return SLUICE_ETOOBIG;
    struct sl_storage_row *rows = sl_tx_reply_bytes(k, r, n * sizeof *rows + bytes);
    if (rows == NULL) return SLUICE_ENOMEM;
    char *at = (char *)(rows + n);
    m = *merged;
    for (struct sl_storage_row *to = rows; next_row(&m, to); to++)
        at = copy_bytes(copy_bytes(at, &to->key), &to->value);
    r->answer.rows = rows;
    r->answer.row_count = (uint32_t)n;
    return SLUICE_OK;
}

static void scanned(struct sl_tx_manager *k, struct sl_tx *t,
                    const struct sl_storage_result *done)
{
    if (t->reply == NULL) return;
    const struct sl_tx_written **own = malloc((t->write_count + 1) * sizeof *own);
    if (own == NULL) {
        answer(k, t, SLUICE_ENOMEM);
        return;
    }
    uint32_t n = own_writes(t, own);
    const struct merge m = {done->rows, done->rows + done->row_count, own, own + n};
    int status = answer_rows(k, t->reply, &m);
    free(own);
    answer(k, t, status);
}

/* Whatever came of it, the transaction is over; its locks go last. */
static void committed(struct sl_tx_manager *k, struct sl_tx *t,
                      const struct sl_storage_result *done)
{
    if (done->status == SLUICE_OK) k->stats.committed++;
    else k->stats.aborted++;
    if (t->reply != NULL) {
        t->reply->answer.revision = done->revision;
        t->reply->answer.term = done->term;
    }
    answer(k, t, done->status);
    sl_tx_end(k, t);
}

/* Now its locks are free; or it is tried again, and they are kept until then. */
static void barred(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t,
                   const struct sl_storage_result *done)
{
#ifdef MUT_BARSESSION
    struct sl_tx *other = find(k, t->session);
    if (other != NULL) sl_tx_lock_free_all(k, other);
#endif
#ifndef MUT_BARONCE
    if (done->status != SLUICE_OK) {
        sl_ms again = sl_ms_after(now, SL_TRY_AGAIN_MS);
        if (again < k->bar_ms) k->bar_ms = again;
        return;
    }
#endif
    (void)done;
    sl_tx_end(k, t);
}

void sl_tx_engine_did(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t,
                      const struct sl_storage_result *done)
{
    t->op = NULL;
    if (t->state == SL_TX_COMMITTING) committed(k, t, done);
    else if (t->state == SL_TX_BARRED) barred(k, now, t, done);
    else if (done->status != SLUICE_OK) answer(k, t, done->status);
    else if (t->asked == SL_TX_SCAN) scanned(k, t, done);
    else if (t->asked == SL_TX_DEL) del_known(k, t, done->found);
    else answer_value(k, t, done->found, done->value);
}

/* --- Asking ---------------------------------------------------------------------------- */

static int check(const struct sl_tx_manager *k, const struct sl_tx_request *a)
{
    const struct sl_tx_manager_limits *l = &k->limits;
    bool names = a->type >= SL_TX_LOCK && a->type <= SL_TX_SCAN;
#ifndef MUT_ANYSTATE
    if (k->state != SL_TX_MANAGER_CURRENT) return SLUICE_ENOKEEPER;
#endif
    if (a->request.n > l->request_bytes_max) return SLUICE_ETOOBIG;
    if (a->type == SL_TX_OUTCOME && a->request.n == 0) return SLUICE_EINVAL;
    if (!names) return SLUICE_OK;
    if (a->table.n == 0) return SLUICE_EINVAL;
    bool key = a->type != SL_TX_SCAN && !(a->type == SL_TX_LOCK && a->key.at == NULL);
    if (key && a->key.n == 0) return SLUICE_EINVAL;
    if (a->table.n + a->key.n > l->name_bytes_max) return SLUICE_ETOOBIG;
    return a->value.n > l->value_bytes_max ? SLUICE_ETOOBIG : SLUICE_OK;
}

/* Keep the arguments and the deadline: the request may have to wait. */
static bool keep(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t,
                 const struct sl_tx_request *a)
{
    if (a->bounded && sl_heap_reserve(&k->waits, 1) != SLUICE_OK) return false;
    char *words = malloc(a->table.n + a->key.n + a->value.n + 1);
    if (words == NULL) return false;
    t->wait_until = a->bounded ? sl_ms_after(now, a->wait_ms) : SL_NEVER;
    t->table_is_known = false;
    if (a->bounded && a->wait_ms > 0 && t->wait_until != SL_NEVER)
        sl_heap_put(&k->waits, t->wait_until, t);
    memcpy(words, a->table.at, a->table.n);
    if (a->key.n > 0) memcpy(words + a->table.n, a->key.at, a->key.n);
    if (a->value.n > 0) memcpy(words + a->table.n + a->key.n, a->value.at, a->value.n);
    forget_words(k, t);
    t->words = words;
    t->table_n = (uint32_t)a->table.n;
    t->key_n = (uint32_t)a->key.n;
    t->value_n = (uint32_t)a->value.n;
    k->name_bytes += a->table.n + a->key.n + a->value.n;
    t->whole = a->type == SL_TX_SCAN || (a->type == SL_TX_LOCK && a->key.at == NULL);
    t->write = a->type == SL_TX_PUT || a->type == SL_TX_DEL ||
               (a->type == SL_TX_LOCK && a->write);
    return true;
}

static void ask_outcome(struct sl_tx_manager *k, struct sl_tx_reply *r,
                        const struct sl_tx_request *a)
{
    const struct sl_bytes none = {NULL, 0};
    struct sl_tx_op *op = sl_order(k, SL_TX_ORDER_OUTCOME, NULL, a->request, none,
                                   none);
    if (op == NULL) {
        sl_tx_reply_status(k, r, SLUICE_ENOMEM);
        return;
    }
    op->reply = r;
    r->ordered = true;
}

static void abort_it(struct sl_tx_manager *k, struct sl_tx *t, struct sl_tx_reply *r)
{
    k->stats.aborted++;
    sl_tx_end(k, t);
    sl_tx_reply_status(k, r, SLUICE_OK);
}

static void ask_transaction(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t,
                            struct sl_tx_reply *r, const struct sl_tx_request *a)
{
    if (a->type == SL_TX_ABORT) {
        abort_it(k, t, r);
        return;
    }
#ifndef MUT_RUNSON
    if (t->state == SL_TX_RESTARTING) {
        sl_tx_reply_status(k, r, t->why);
        return;
    }
#endif
    t->reply = r;
    t->asked = a->type;
    if (a->type == SL_TX_COMMIT) commit(k, t);
    else if (!keep(k, now, t, a)) answer(k, t, SLUICE_ENOMEM);
    else run(k, now, t);
}

int sl_tx_manager_submit(struct sl_tx_manager *k, sl_ms now, uint64_t ticket,
                         const struct sl_tx_request *ask)
{
    struct sl_tx_reply *r = sl_tx_reply_new(k, ticket, ask->session);
    if (r == NULL) return SLUICE_ENOMEM;
    int status = check(k, ask);
    struct sl_tx *t = find(k, ask->session);
    if (status != SLUICE_OK) sl_tx_reply_status(k, r, status);
    else if (ask->type == SL_TX_BEGIN) begin(k, now, r, ask);
    else if (ask->type == SL_TX_OUTCOME) ask_outcome(k, r, ask);
    else if (t == NULL || t->reply != NULL) sl_tx_reply_status(k, r, SLUICE_ENOTX);
    else ask_transaction(k, now, t, r, ask);
    sl_tx_go_on(k, now);
    return SLUICE_OK;
}

/* --- A connection ends -------------------------------------------------------------------- */

void sl_tx_bar(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t)
{
    const struct sl_bytes none = {NULL, 0};
    sl_ms again = sl_ms_after(now, SL_TRY_AGAIN_MS);
    t->op = sl_order(k, SL_TX_ORDER_BAR, t, none, none, none);
    if (t->op == NULL && again < k->bar_ms) k->bar_ms = again;
}

/* It may have a commit on its way, or locks that others wait for: first the engine is told
 * that it commits no more. */
static void leave(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t)
{
    t->reply = NULL; /* It was forgotten. */
    sl_index_remove(&k->by_session, t, hash_session(t, &k->by_session));
    t->gone = true;
    if (t->state == SL_TX_COMMITTING) return; /* It ends with that. */
    k->stats.aborted++;
    sl_tx_lock_leave_line(k, t);
    sl_tx_lock_forget(k, t);
    end_wait(k, t);
    sl_list_remove(&t->going_on);
    if (t->op != NULL) sl_order_drop(k, t->op);
    t->op = NULL;
#ifndef MUT_FREEFIRST
    if (t->lock_count > 0 && k->state == SL_TX_MANAGER_CURRENT) {
        t->state = SL_TX_BARRED;
        if (t->due != SL_HEAP_NONE) sl_heap_remove(&k->ages, t->due);
        k->stats.barred++;
        sl_tx_bar(k, now, t);
        return;
    }
#endif
    sl_tx_end(k, t);
}

void sl_tx_manager_leave(struct sl_tx_manager *k, sl_ms now, uint64_t session)
{
    struct sl_tx *t = find(k, session);
#ifndef MUT_TELLGONE
    sl_tx_reply_forget(k, session);
#else
    if (t != NULL) sl_tx_reply_free(k, t->reply);
#endif
    if (t == NULL) return;
    leave(k, now, t);
    sl_tx_go_on(k, now);
}
