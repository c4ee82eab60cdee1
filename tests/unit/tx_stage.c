/* tx_stage.c - see tx_stage.h. */
#include "tx_stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool stage_in_manager;

const struct sl_tx_manager_limits stage_limits = {.transactions_max = 100,
                                                  .locks_max = 1000,
                                                  .writes_max = 20,
                                                  .bytes_max = 1000,
                                                  .age_ms_max = SL_NEVER,
                                                  .name_bytes_max = 12,
                                                  .value_bytes_max = 20,
                                                  .request_bytes_max = 12,
                                                  .rows_max = 20};

void say(struct stage *s, const char *format, ...)
{
    size_t n = strlen(s->said);
    va_list args;
    if (s->silent) return;
    va_start(args, format);
    vsnprintf(s->said + n, sizeof s->said - n, format, args);
    va_end(args);
    assert_true(strlen(s->said) < sizeof s->said - 1);
}

static struct sl_bytes bytes(const char *text)
{
    return (struct sl_bytes){text, strlen(text)};
}

static void copy(char *to, size_t size, struct sl_bytes from)
{
    assert_true(from.n < size);
    if (from.n > 0) memcpy(to, from.at, from.n);
    to[from.n] = '\0';
}

/* --- The store ---------------------------------------------------------------- */

static struct stored *row_of(struct store *d, const char *table, const char *key)
{
    for (uint32_t i = 0; i < d->rows; i++)
        if (strcmp(d->row[i].table, table) == 0 && strcmp(d->row[i].key, key) == 0)
            return &d->row[i];
    return NULL;
}

const char *stored_at(const struct store *d, const char *table, const char *key)
{
    const struct stored *r = row_of((struct store *)(uintptr_t)d, table, key);
    return r == NULL ? "" : r->value;
}

bool is_barred(const struct store *d, uint64_t term, uint64_t id)
{
    for (uint32_t i = 0; i < d->bars; i++)
        if (d->barred[i].term == term && d->barred[i].id == id) return true;
    return false;
}

static const uint64_t *revision_of(const struct store *d, const char *request)
{
    for (uint32_t i = 0; i < d->requests && *request != '\0'; i++)
        if (strcmp(d->request[i].name, request) == 0) return &d->request[i].revision;
    return NULL;
}

static void write_row(struct store *d, const struct stored *w, bool deleted)
{
    struct stored *r = row_of(d, w->table, w->key);
    if (deleted && r != NULL) *r = d->row[--d->rows];
    if (deleted) return;
    if (r == NULL) {
        assert_true(d->rows < STORE_ROWS);
        r = &d->row[d->rows++];
    }
    *r = *w;
}

/* In the order of storage.h. */
static void apply_commit(struct store *d, struct ordered *o)
{
    const uint64_t *before = revision_of(d, o->request);
    o->done.revision = before == NULL ? 0 : *before;
    if (before != NULL) return;
    o->done.status = o->term != d->term             ? SLUICE_ESTALE
                     : is_barred(d, o->term, o->id) ? SLUICE_EBARRED
                                                    : SLUICE_OK;
    o->done.term = d->term;
    if (o->done.status != SLUICE_OK) return;
    for (uint32_t i = 0; i < o->writes; i++) write_row(d, &o->write[i], o->deleted[i]);
    if (o->writes > 0) d->revision++;
    d->commits++;
    o->done.revision = d->revision;
    if (o->request[0] == '\0') return;
    assert_true(d->requests < STORE_REQUESTS);
    strcpy(d->request[d->requests].name, o->request);
    d->request[d->requests++].revision = d->revision;
}

static void apply_bar(struct store *d, struct ordered *o)
{
    o->done.term = d->term;
    o->done.status = o->term != d->term ? SLUICE_ESTALE : SLUICE_OK;
    if (o->done.status != SLUICE_OK || is_barred(d, o->term, o->id)) return;
    assert_true(d->bars < STORE_REQUESTS);
    d->barred[d->bars].term = o->term;
    d->barred[d->bars++].id = o->id;
}

static void apply_read(struct store *d, struct ordered *o)
{
    const struct stored *r = row_of(d, o->table, o->key);
    o->done.found = r != NULL;
    if (r == NULL) return;
    strcpy(o->value, r->value);
    o->done.value = bytes(o->value);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct stored *)a)->key, ((const struct stored *)b)->key);
}

static void apply_scan(struct store *d, struct ordered *o)
{
    o->rows = malloc(sizeof d->row);
    for (uint32_t i = 0; i < d->rows; i++)
        if (strcmp(d->row[i].table, o->table) == 0)
            o->rows[o->done.row_count++] = d->row[i];
    qsort(o->rows, o->done.row_count, sizeof *o->rows, by_key);
}

static void apply_outcome(struct store *d, struct ordered *o)
{
    const uint64_t *revision = revision_of(d, o->request);
    o->done.found = revision != NULL;
    if (revision != NULL) o->done.revision = *revision;
}

void applies(struct stage *s, struct ordered *o)
{
    struct store *d = s->store;
    assert_false(o->applied);
    o->applied = true;
    o->done = (struct sl_storage_result){.status = SLUICE_OK};
    switch (o->type) {
        case SL_TX_ORDER_CLAIM: o->done.term = ++d->term; break;
        case SL_TX_ORDER_COMMIT: apply_commit(d, o); break;
        case SL_TX_ORDER_BAR: apply_bar(d, o); break;
        case SL_TX_ORDER_READ: apply_read(d, o); break;
        case SL_TX_ORDER_SCAN: apply_scan(d, o); break;
        case SL_TX_ORDER_OUTCOME: apply_outcome(d, o); break;
        case SL_TX_ORDER_ANSWER: fail(); break;
    }
    if (s->applied != NULL) s->applied(s, o);
}

/* --- The storage ------------------------------------------------------------- */

static void say_order(struct stage *s, const struct ordered *o)
{
    switch (o->type) {
        case SL_TX_ORDER_CLAIM: say(s, "> claim"); break;
        case SL_TX_ORDER_COMMIT: say(s, "> commit %" PRIu64, o->id); break;
        case SL_TX_ORDER_BAR: say(s, "> bar %" PRIu64, o->id); break;
        case SL_TX_ORDER_READ: say(s, "> read %s/%s", o->table, o->key); break;
        case SL_TX_ORDER_SCAN: say(s, "> scan %s", o->table); break;
        case SL_TX_ORDER_OUTCOME: say(s, "> outcome %s", o->request); break;
        case SL_TX_ORDER_ANSWER: break;
    }
    for (uint32_t i = 0; i < o->writes; i++)
        say(s, " %s/%s=%s", o->write[i].table, o->write[i].key,
            o->deleted[i] ? "-" : o->write[i].value);
    if (o->type == SL_TX_ORDER_COMMIT && o->request[0] != '\0')
        say(s, " as %s", o->request);
    say(s, "\n");
}

static struct ordered *keep_order(struct stage *s, const struct sl_tx_order *k)
{
    struct ordered *o = s->order;
    while (o < s->order + STAGE_ORDERS && o->used) o++;
    assert_true(o < s->order + STAGE_ORDERS);
    *o = (struct ordered){.used = true,
                          .type = k->type,
                          .op = k->op,
                          .term = k->term,
                          .id = k->id,
                          .turn = ++s->turns};
    copy(o->request, sizeof o->request, k->request);
    copy(o->table, sizeof o->table, k->table);
    copy(o->key, sizeof o->key, k->key);
    assert_true(k->write_count <= STAGE_WRITES);
    for (o->writes = 0; o->writes < k->write_count; o->writes++) {
        const struct sl_storage_write *w = &k->writes[o->writes];
        struct stored *to = &o->write[o->writes];
        copy(to->table, sizeof to->table, w->table);
        copy(to->key, sizeof to->key, w->key);
        copy(to->value, sizeof to->value, w->value);
        o->deleted[o->writes] = w->value.at == NULL;
    }
    return o;
}

uint32_t orders(const struct stage *s)
{
    uint32_t n = 0;
    for (int i = 0; i < STAGE_ORDERS; i++) n += s->order[i].used;
    return n;
}

struct ordered *oldest(struct stage *s)
{
    struct ordered *first = NULL;
    for (struct ordered *o = s->order; o < s->order + STAGE_ORDERS; o++)
        if (o->used && (first == NULL || o->turn < first->turn)) first = o;
    return first;
}

static void answer_order(struct stage *s, struct ordered *o,
                         const struct sl_storage_result *done)
{
    uint64_t op = o->op;
    stage_in_manager = true;
    sl_tx_manager_done(s->manager, s->now, op, done);
    stage_in_manager = false;
    sl_tx_manager_check(s->manager);
    free(o->rows);
    *o = (struct ordered){0};
}

static void tell_one(struct stage *s, struct ordered *o)
{
    struct sl_storage_row rows[STORE_ROWS];
    for (uint32_t i = 0; i < o->done.row_count; i++)
        rows[i] = (struct sl_storage_row){bytes(o->rows[i].key),
                                          bytes(o->rows[i].value)};
    o->done.rows = rows;
    answer_order(s, o, &o->done);
}

void tells(struct stage *s, struct ordered *o)
{
    tell_one(s, o);
    settle(s);
}

void does(struct stage *s)
{
    struct ordered *o = oldest(s);
    assert_non_null(o);
    applies(s, o);
    tells(s, o);
}

void refuses_one(struct stage *s, struct ordered *o, int status)
{
    const struct sl_storage_result done = {.status = status, .term = s->store->term};
    answer_order(s, o, &done);
    settle(s);
}

void refuses(struct stage *s, int status)
{
    assert_true(orders(s) > 0);
    refuses_one(s, oldest(s), status);
}

void by_hand(struct stage *s)
{
    s->by_hand = true;
}

void at_once(struct stage *s)
{
    s->by_hand = false;
    for (struct ordered *o; (o = oldest(s)) != NULL;) {
        if (!o->applied) applies(s, o);
        tells(s, o);
    }
    settle(s);
}

/* --- Answers ------------------------------------------------------------- */

static void keep_answer(struct asked *a, const struct sl_tx_answer *from)
{
    a->status = from->status;
    a->term = from->term;
    a->id = from->id;
    a->revision = from->revision;
    a->found = from->found;
    if (from->found) copy(a->value, sizeof a->value, from->value);
    for (uint32_t i = 0; i < from->row_count; i++) {
        const struct sl_storage_row *r = &from->rows[i];
        size_t n = strlen(a->rows);
        assert_true(n + r->key.n + r->value.n + 3 < sizeof a->rows);
        snprintf(a->rows + n, sizeof a->rows - n, "%s%.*s=%.*s", i > 0 ? " " : "",
                 (int)r->key.n, r->key.at, (int)r->value.n, r->value.at);
    }
    a->cycle_count = from->cycle_count;
    assert_true(a->cycle_count <= STAGE_CYCLE);
    if (a->cycle_count > 0)
        memcpy(a->cycle, from->cycle, a->cycle_count * sizeof *a->cycle);
}

static void say_result(struct stage *s, const struct asked *a)
{
    switch (a->type) {
        case SL_TX_BEGIN: say(s, "began %" PRIu64, a->id); break;
        case SL_TX_LOCK: say(s, "locked"); break;
        case SL_TX_GET: say(s, "got %s", a->found ? a->value : "nothing"); break;
        case SL_TX_PUT: say(s, "put"); break;
        case SL_TX_DEL: say(s, "deleted%s", a->found ? "" : " nothing"); break;
        case SL_TX_SCAN: say(s, "saw %s", a->rows[0] ? a->rows : "nothing"); break;
        case SL_TX_COMMIT: say(s, "committed %" PRIu64, a->revision); break;
        case SL_TX_ABORT: say(s, "aborted"); break;
        case SL_TX_OUTCOME:
            if (a->found) say(s, "outcome %" PRIu64, a->revision);
            else say(s, "outcome none");
            break;
    }
}

static void say_answer(struct stage *s, const struct asked *a)
{
    say(s, "%" PRIu64 " ", a->session);
    if (a->status == SLUICE_OK) say_result(s, a);
    else say(s, "%s", sluice_status_word(a->status));
    for (uint32_t i = 0; i < a->cycle_count; i++) say(s, " %" PRIu64, a->cycle[i]);
    if (a->status == SLUICE_ESTALE) say(s, " %" PRIu64, a->term);
    say(s, "\n");
}

static void hear(struct stage *s, uint64_t ticket, const struct sl_tx_answer *answer)
{
    assert_true(ticket > 0 && ticket <= s->tickets);
    struct asked *a = &s->asked[ticket];
    assert_false(a->answered);
    assert_false(a->left);
    assert_int_equal(a->refused, SLUICE_OK);
    a->answered = true;
    keep_answer(a, answer);
    say_answer(s, a);
    if (s->told != NULL) s->told(s, ticket);
}

static bool fetch(struct stage *s, struct sl_tx_order *out)
{
    stage_in_manager = true;
    bool there = sl_tx_manager_next(s->manager, out);
    stage_in_manager = false;
    return there;
}

void settle(struct stage *s)
{
    struct sl_tx_order order;
    sl_tx_manager_check(s->manager);
    while (fetch(s, &order)) {
        if (order.type == SL_TX_ORDER_ANSWER) {
            hear(s, order.ticket, order.answer);
            continue;
        }
        struct ordered *o = keep_order(s, &order);
        if (s->by_hand) {
            say_order(s, o);
            continue;
        }
        applies(s, o);
        tell_one(s, o);
    }
    sl_tx_manager_check(s->manager);
}

/* --- Clients -------------------------------------------------------------------- */

uint64_t stage_ask(struct stage *s, struct sl_tx_request ask)
{
    uint64_t ticket = ++s->tickets;
    assert_true(ticket < STAGE_TICKETS && ask.session < STAGE_SESSIONS);
    struct asked *a = &s->asked[ticket];
    *a = (struct asked){.session = ask.session, .type = ask.type};
    stage_in_manager = true;
    a->refused = sl_tx_manager_submit(s->manager, s->now, ticket, &ask);
    stage_in_manager = false;
    if (a->refused != SLUICE_OK) {
        assert_int_equal(a->refused, SLUICE_ENOMEM);
        say(s, "%" PRIu64 " NOMEM\n", ask.session);
    }
    settle(s);
    if (a->refused == SLUICE_OK && !a->answered &&
        sl_tx_manager_waits(s->manager, ask.session))
        say(s, "%" PRIu64 " waits\n", ask.session);
    return ticket;
}

static void split(const char *item, struct sl_bytes *table, struct sl_bytes *key)
{
    const char *slash = strchr(item, '/');
    *table = slash == NULL ? bytes("t")
                           : (struct sl_bytes){item, (size_t)(slash - item)};
    *key = bytes(slash == NULL ? item : slash + 1);
    if (strcmp(key->at, "*") == 0) *key = (struct sl_bytes){NULL, 0};
}

uint64_t stage_item(struct stage *s, enum sl_tx_verb type, uint64_t session,
                    const char *item, const char *value, bool write)
{
    struct sl_tx_request ask = {
        .type = type, .session = session, .write = write, .value = bytes(value)};
    split(item, &ask.table, &ask.key);
    return stage_ask(s, ask);
}

uint64_t stage_within(struct stage *s, uint64_t session, const char *item, bool write,
                      sl_ms wait_ms)
{
    struct sl_tx_request ask = {.type = SL_TX_LOCK,
                                .session = session,
                                .write = write,
                                .bounded = true,
                                .wait_ms = wait_ms};
    split(item, &ask.table, &ask.key);
    return stage_ask(s, ask);
}

void leave(struct stage *s, uint64_t session)
{
    for (uint64_t i = 1; i <= s->tickets; i++)
        if (s->asked[i].session == session && !s->asked[i].answered)
            s->asked[i].left = true;
    stage_in_manager = true;
    sl_tx_manager_leave(s->manager, s->now, session);
    stage_in_manager = false;
    settle(s);
}

void pass(struct stage *s, sl_ms ms)
{
    s->now += ms;
    stage_in_manager = true;
    sl_tx_manager_tick(s->manager, s->now);
    stage_in_manager = false;
    settle(s);
}

void stop(struct stage *s, uint64_t term)
{
    stage_in_manager = true;
    sl_tx_manager_stop(s->manager, s->now, term);
    stage_in_manager = false;
    settle(s);
}

/* --- Questions -------------------------------------------------------------------- */

const char *holders(struct stage *s, const char *item)
{
    static const char *const letters[] = {"-", "IR", "IW", "R", "RIW", "W"};
    static char text[512];
    struct sl_tx_view v;
    struct sl_bytes table, key;
    size_t n = 0;
    split(item, &table, &key);
    text[0] = '\0';
    for (uint32_t i = 0; sl_tx_manager_holder(s->manager, s->now, table, key, i, &v);
         i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRIu64 " %s",
                              i > 0 ? ", " : "", v.session, letters[v.mode]);
        if (v.wanted != SL_TX_MODE_NONE)
            n += (size_t)snprintf(text + n, sizeof text - n, ">%s for %" PRIu64,
                                  letters[v.wanted], v.waits_for);
        assert_true(n < sizeof text);
    }
    return text;
}

struct sl_tx_manager_stats stats_of(const struct stage *s)
{
    struct sl_tx_manager_stats stats;
    sl_tx_manager_stats(s->manager, &stats);
    return stats;
}

/* --- Life ----------------------------------------------------------------------- */

struct stage *stage_candidate(const struct sl_tx_manager_limits *limits,
                              struct store *store)
{
    struct stage *s = calloc(1, sizeof *s);
    s->asked = calloc(STAGE_TICKETS, sizeof *s->asked);
    s->store = store != NULL ? store : calloc(1, sizeof *store);
    s->store->users++;
    s->now = 1000;
    stage_in_manager = true;
    s->manager = sl_tx_manager_new(limits, (struct sl_hash_key){42, 0});
    stage_in_manager = false;
    if (s->manager != NULL) return s;
    stage_crash(s);
    return NULL;
}

static struct stage *lead(struct stage *s)
{
    pass(s, 0);
    assert_int_equal(stats_of(s).state, SL_TX_MANAGER_CURRENT);
    return s;
}

struct stage *stage_with(const struct sl_tx_manager_limits *limits)
{
    return lead(stage_candidate(limits, NULL));
}

struct stage *stage_new(void)
{
    return stage_with(&stage_limits);
}

struct stage *stage_beside(struct stage *other)
{
    return lead(stage_candidate(&stage_limits, other->store));
}

void stage_crash(struct stage *s)
{
    sl_tx_manager_free(s->manager);
    for (int i = 0; i < STAGE_ORDERS; i++) free(s->order[i].rows);
    if (--s->store->users == 0) free(s->store);
    free(s->asked);
    free(s);
}

void stage_end(struct stage *s)
{
    struct sl_tx_item_view item;
    uint64_t cursor = 0;
    s->silent = true;
    at_once(s);
    for (uint64_t i = 0; i < STAGE_SESSIONS; i++) leave(s, i);
    for (int i = 0; i < 100 && stats_of(s).transactions > 0; i++) pass(s, 100);
    for (uint64_t i = 1; i <= s->tickets; i++)
        assert_true(s->asked[i].answered || s->asked[i].left || s->asked[i].refused);
    assert_int_equal(stats_of(s).transactions, 0);
    assert_int_equal(stats_of(s).locks, 0);
    assert_int_equal(stats_of(s).remembered, 0);
    assert_int_equal(sl_tx_manager_scan(s->manager, &cursor, &item, 1), 0);
    stage_crash(s);
}

void stage_leave(struct stage **s)
{
    stage_end(*s);
}
