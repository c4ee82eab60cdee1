/* transactions_inspect.c - EXPLAIN TX and LOCKS TX: the locks of transactions. */
#include <inttypes.h>
#include <string.h>

#include "base/glob.h"
#include "server/arbiter/transactions.h"
#include "server/observe/inspection.h"

/* --- EXPLAIN TX ------------------------------------------------------------------------------ */

#define SENTENCES_MAX 20u
#define WAITS_MAX 10u /* Maximum sentences about what transactions wait for. */

/* A transaction in the reply, and its client. */
struct part {
    struct sl_tx_view view;
    struct sl_bytes name;
    char address[SL_WHERE_BYTES];
};

struct item {
    const struct sl_tx_manager *manager;
    sl_ms now;
    struct sl_tx_item_view view;
    struct part parts[2 * SL_SHOWN_MAX]; /* First the holders, then the waiters. */
    uint32_t part_count, holder_count;
    char sentences[SENTENCES_MAX][SL_DEADLOCK_TEXT_BYTES + 2 * SL_CLIENT_TEXT_BYTES];
    uint32_t sentence_count;
};

static void put_key(struct sl_resp_writer *w, struct sl_bytes key)
{
    sl_resp_text(w, "key");
    if (key.at != NULL) sl_resp_bulk(w, key);
    else sl_resp_null(w);
}

static void put_part(struct sl_resp_writer *w, const struct part *p)
{
    const struct sl_tx_view *v = &p->view;
    sl_resp_map(w, 8);
    sl_put_number(w, "transaction", (int64_t)v->id);
    sl_put_number(w, "client", (int64_t)v->session);
    sl_put_bytes(w, "name", p->name);
    sl_put_text(w, "address", p->address);
    sl_put_text(w, "has", sl_tx_mode_name(v->mode));
    sl_put_text(w, "wants", sl_tx_mode_name(v->wanted));
    sl_put_number(w, "waits_for", (int64_t)v->waits_for);
    sl_put_number(w, "age_ms", v->since_ms);
}

static void put_parts(struct sl_resp_writer *w, const struct item *it, const char *name,
                      uint32_t first, uint32_t end)
{
    sl_resp_text(w, name);
    sl_resp_array(w, end - first);
    for (uint32_t i = first; i < end; i++) put_part(w, &it->parts[i]);
}

/* Add at most SL_SHOWN_MAX transactions, starting with `first`. */
static void add_parts(const struct server *s, struct item *it, uint32_t first,
                      uint32_t count)
{
    uint32_t n = count < SL_SHOWN_MAX ? count : SL_SHOWN_MAX;
    for (uint32_t i = 0; i < n; i++) {
        struct part *p = &it->parts[it->part_count++];
        p->name = (struct sl_bytes){NULL, 0};
        p->address[0] = '\0';
        if (!sl_tx_manager_holder(it->manager, it->now, it->view.table, it->view.key,
                                  first + i, &p->view))
            p->view = (struct sl_tx_view){0};
        sl_session_client(s, p->view.session, &p->name, p->address);
    }
}

/* Return the number of waiters that do not already hold the lock in another mode. The other waiters
 * are listed as holders. */
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

static void write_part(const struct part *p, char out[SL_CLIENT_TEXT_BYTES + 40])
{
    char client[SL_CLIENT_TEXT_BYTES];
    const struct sl_bytes address = {p->address, strlen(p->address)};
    sl_client_text(p->view.session, p->name, address, client);
    snprintf(out, SL_CLIENT_TEXT_BYTES + 40, "transaction %" PRIu64 " of %s",
             p->view.id, client);
}

/* Return the first transaction that waits, or NULL. */
static const struct part *first_waiter(const struct item *it)
{
    for (uint32_t i = it->holder_count; i < it->part_count; i++)
        if (it->parts[i].view.wanted != SL_TX_MODE_NONE) return &it->parts[i];
    for (uint32_t i = 0; i < it->holder_count; i++)
        if (it->parts[i].view.wanted != SL_TX_MODE_NONE) return &it->parts[i];
    return NULL;
}

/* Add a sentence that names the holder, how long it has held the lock, and the next waiter. */
static void add_summary(struct item *it)
{
    const struct sl_tx_item_view *v = &it->view;
    const struct part *next = first_waiter(it);
    char who[SL_CLIENT_TEXT_BYTES + 40], time[SL_AGE_BYTES];
    char *out = it->sentences[it->sentence_count++];
    size_t size = sizeof it->sentences[0];
    int n;
    if (v->holders == 0 || it->holder_count == 0)
        n = snprintf(out, size, "free: no transaction holds it");
    else {
        write_part(&it->parts[0], who);
        sl_age_text(it->parts[0].view.since_ms, time);
        n = snprintf(out, size, "%s holds it (%s) and began %s ago", who,
                     sl_tx_mode_name(it->parts[0].view.mode), time);
    }
    if (v->holders > 1)
        n += snprintf(out + n, size - (size_t)n, ", and %" PRIu32 " more %s it",
                      v->holders - 1, v->holders == 2 ? "holds" : "hold");
    if (next == NULL) return;
    write_part(next, who);
    n += snprintf(out + n, size - (size_t)n, "; next: %s", who);
    if (v->waiters > 1)
        snprintf(out + n, size - (size_t)n, "; %" PRIu32 " more %s", v->waiters - 1,
                 v->waiters == 2 ? "waits" : "wait");
}

static void add_waits(struct item *it)
{
    for (uint32_t i = 0; i < it->part_count && it->sentence_count < WAITS_MAX; i++) {
        const struct sl_tx_view *v = &it->parts[i].view;
        if (v->wanted == SL_TX_MODE_NONE) continue;
        snprintf(it->sentences[it->sentence_count++], sizeof it->sentences[0],
                 "transaction %" PRIu64 " waits for transaction %" PRIu64, v->id,
                 v->waits_for);
    }
}

static bool in_deadlock(const struct item *it, const struct sl_deadlock *c)
{
    uint32_t n = c->count < SL_DEADLOCK_SHOWN ? c->count : SL_DEADLOCK_SHOWN;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < it->part_count; j++)
            if (c->of[i] == it->parts[j].view.id) return true;
    return false;
}

/* Add the last deadlocks that involved one of the shown transactions. */
static void add_deadlocks(const struct server *s, struct item *it)
{
    const struct sl_deadlock *c;
    char text[SL_DEADLOCK_TEXT_BYTES];
    for (uint32_t i = 0; (c = sl_transactions_deadlock(s, i)) != NULL; i++) {
        if (!in_deadlock(it, c) || it->sentence_count >= SENTENCES_MAX) continue;
        sl_deadlock_text(c->of, c->count, text);
        snprintf(it->sentences[it->sentence_count++], sizeof it->sentences[0],
                 "a deadlock was broken %" PRId64 " ms ago: %s; transaction %" PRIu64
                 " lost its locks and can restart",
                 it->now - c->at_ms, text, c->victim);
    }
}

static void put_explanation(struct call *call, struct item *it)
{
    struct sl_resp_writer *w = call->out;
    sl_call_cost(call, 100 + it->view.holders / 4);
    add_parts(call->s, it, 0, it->view.holders);
    it->holder_count = it->part_count;
    add_parts(call->s, it, it->view.holders, count_outside(it));
    add_summary(it);
    add_waits(it);
    add_deadlocks(call->s, it);
    sl_resp_map(w, 7);
    /* The summary comes first, because people read it first. */
    sl_resp_text(w, "summary");
    sl_resp_array(w, it->sentence_count);
    for (uint32_t i = 0; i < it->sentence_count; i++) sl_resp_text(w, it->sentences[i]);
    sl_put_bytes(w, "table", it->view.table);
    put_key(w, it->view.key);
    sl_put_number(w, "holders_count", it->view.holders);
    sl_put_number(w, "waiters_count", it->view.waiters);
    put_parts(w, it, "holders", 0, it->holder_count);
    put_parts(w, it, "waiters", it->holder_count, it->part_count);
}

static void explain(struct call *call, const struct request *r,
                    const struct sl_tx_manager *tx)
{
    const struct sl_bytes none = {NULL, 0};
    static struct item it; /* Static, because it is large. */
    it.manager = tx;
    it.now = call->s->now.ms;
    it.part_count = it.holder_count = it.sentence_count = 0;
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
