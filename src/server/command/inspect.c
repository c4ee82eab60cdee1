/* commands_look.c - EXPLAIN and LOCKS: who holds, who waits, and why, in words. */
#include <inttypes.h>
#include <string.h>

#include "base/glob.h"
#include "server/arbiter/cluster.h"
#include "server/arbiter/tx.h"
#include "server/command/dispatch.h"
#include "server/forward/forward.h"
#include "server/observe/inspect.h"

#define SHOWN_MAX SL_SHOWN_MAX
#define COUNT_GIVEN 10
#define STEPS_A_SCAN 1024u /* A node looks at many keys that nobody holds any more. */

void sl_put_number(struct sl_resp_writer *w, const char *name, int64_t n)
{
    sl_resp_text(w, name);
    sl_resp_integer(w, n);
}

void sl_put_bytes(struct sl_resp_writer *w, const char *name, struct sl_bytes b)
{
    sl_resp_text(w, name);
    sl_resp_bulk(w, b);
}

void sl_put_text(struct sl_resp_writer *w, const char *name, const char *text)
{
    sl_resp_text(w, name);
    sl_resp_text(w, text);
}

/* --- Why somebody waits --------------------------------------------------- */

struct why {
    struct sl_lock_view lock;
    struct sl_grant_view first; /* The first in line, once it has been seen. */
    bool has_first;
    sl_ms quiet_ms;  /* How long the server grants nothing: */
    bool new_keeper; /* because the keeper is new, not because of a crash. */
    bool has_thief;  /* One of those who were looked at steals. */
};

static uint64_t room_of(const struct sl_grant_view *v)
{
    return (uint64_t)v->per * v->buckets;
}

/* The rules of src/locks/README.md, turned into the sentence that fits. */
static void why_waits(const struct why *why, const struct sl_grant_view *v, char *out,
                      size_t n)
{
    const struct sl_lock_view *l = &why->lock;
    const char *are = l->held == 1 ? "unit is" : "units are";
    uint64_t room = room_of(v);
    if (why->quiet_ms > 0)
        snprintf(out, n,
                 why->new_keeper
                     ? "the keeper is new and waits for leases that the previous one "
                       "granted: it grants nothing for %" PRId64 " ms"
                     : "the server recovers from a crash: it grants nothing for "
                       "%" PRId64 " ms",
                 why->quiet_ms);
    else if (v->shared && l->held > 0)
        snprintf(out, n, "it is shared, and %" PRIu64 " %s held by others", l->held,
                 are);
    else if (!v->shared && l->shared)
        snprintf(out, n, "the lock is shared by %" PRIu32 " now", l->holders);
    else if (!v->shared && l->held + v->units > room)
        snprintf(out, n,
                 "%" PRIu64 " %s held; with its %" PRIu32
                 " that is more than the room of %" PRIu64 " it declares",
                 l->held, are, v->units, room);
    else if (why->has_first && why->first.priority > v->priority)
        snprintf(out, n, "one with priority %" PRId32 " is before it",
                 why->first.priority);
    else if (why->has_first)
        snprintf(out, n,
                 "one that came earlier is before it, and declares no less room");
    else snprintf(out, n, "it is next");
}

void sl_look_address(const struct server *s, uint64_t id, char *out, size_t n)
{
    const struct session *session = sl_server_session(s, id);
    if (session != NULL && session->conn != NULL)
        sl_conn_address(session->conn, out, n);
    else snprintf(out, n, session != NULL ? "cut off, lingers" : "gone");
}

/* --- EXPLAIN -------------------------------------------------------------- */

static void put_room(struct sl_resp_writer *w, const struct sl_grant_view *v)
{
    sl_put_number(w, "units", v->units);
    sl_put_number(w, "shared", v->shared);
    sl_put_number(w, "per", v->shared ? 0 : v->per);
    sl_put_number(w, "buckets", v->shared ? 0 : v->buckets);
    sl_put_number(w, "priority", v->priority);
}

void sl_put_holder(struct sl_resp_writer *w, const struct sl_grant_view *v,
                   const char *address)
{
    sl_resp_map(w, 15);
    sl_put_number(w, "fence", (int64_t)v->fence);
    sl_put_number(w, "client", (int64_t)v->session_id);
    sl_put_text(w, "address", address);
    put_room(w, v);
    sl_put_number(w, "lease_ms", v->leased ? v->left_ms : -1);
    sl_put_number(w, "held_ms", v->since_ms);
    sl_put_number(w, "broken", v->broken);
    sl_put_number(w, "asked", v->asked);
    sl_put_number(w, "overlapping", v->overlapping);
    sl_put_bytes(w, "value", v->value);
    sl_put_bytes(w, "note", v->note);
}

void sl_put_waiter(const struct server *s, struct sl_resp_writer *w,
                   const struct sl_grant_view *v, const char *why)
{
    char address[128];
    sl_look_address(s, v->session_id, address, sizeof address);
    sl_resp_map(w, 12);
    sl_put_number(w, "client", (int64_t)v->session_id);
    sl_put_text(w, "address", address);
    put_room(w, v);
    sl_put_number(w, "steals", v->steals);
    sl_put_number(w, "waited_ms", v->since_ms);
    sl_put_number(w, "left_ms", v->left_ms == SL_NEVER ? -1 : v->left_ms);
    sl_put_bytes(w, "note", v->note);
    sl_put_text(w, "why", why);
}

static void put_holders(struct call *call, uint32_t count)
{
    struct sl_grant_view v;
    char address[128];
    uint64_t cursor = 0;
    uint32_t n = count < SHOWN_MAX ? count : SHOWN_MAX;
    sl_resp_text(call->out, "holders");
    sl_resp_array(call->out, n);
    while (n-- > 0 &&
           sl_table_each(call->s->table, call->s->now, call->at[1], &cursor, &v)) {
        sl_look_address(call->s, v.session_id, address, sizeof address);
        sl_put_holder(call->out, &v, address);
    }
}

static void put_waiters(struct call *call, struct why *why)
{
    struct sl_grant_view v;
    char text[160];
    uint64_t cursor = SL_EACH_WAITER;
    uint32_t n = why->lock.waiters < SHOWN_MAX ? why->lock.waiters : SHOWN_MAX;
    sl_resp_text(call->out, "waiters");
    sl_resp_array(call->out, n);
    while (n-- > 0 &&
           sl_table_each(call->s->table, call->s->now, call->at[1], &cursor, &v)) {
        why_waits(why, &v, text, sizeof text);
        sl_put_waiter(call->s, call->out, &v, text);
        if (!why->has_first) why->first = v;
        why->has_first = true;
        if (v.steals) why->has_thief = true;
    }
}

/* What one would say if asked. Returns how many sentences; writes them, if out is there. */
static size_t sentences(const struct why *why, struct sl_resp_writer *out)
{
    const struct sl_lock_view *l = &why->lock;
    char text[7][160];
    size_t n = 0;
    if (why->quiet_ms > 0)
        snprintf(text[n++], 160,
                 why->new_keeper
                     ? "the keeper is new and may not know all holders yet: it grants "
                       "nothing for %" PRId64 " ms"
                     : "the server recovers from a crash and does not know the "
                       "holders: it grants nothing for %" PRId64 " ms",
                 why->quiet_ms);
    else if (l->holders == 0) snprintf(text[n++], 160, "nobody holds it");
    else if (l->shared)
        snprintf(text[n++], 160, "%" PRIu32 " hold it, and share it", l->holders);
    else
        snprintf(text[n++], 160, "%" PRIu32 " %s it: %" PRIu64 " %s", l->holders,
                 l->holders == 1 ? "holds" : "hold", l->held,
                 l->held == 1 ? "unit" : "units");
    if (l->waiters > 0)
        snprintf(text[n++], 160, "%" PRIu32 " %s for it", l->waiters,
                 l->waiters == 1 ? "waits" : "wait");
    if (l->watchers > 0)
        snprintf(text[n++], 160, "%" PRIu32 " %s it with AWAIT", l->watchers,
                 l->watchers == 1 ? "watches" : "watch");
    if (l->reserved)
        snprintf(text[n++], 160,
                 "a thief with priority %" PRId32 " has reserved it: %" PRIu32 " asked",
                 l->reserved_priority, l->asked);
    else if (why->has_thief)
        snprintf(text[n++], 160,
                 "a thief waits and asks nobody: one before it does not steal, or not "
                 "all in "
                 "its way have less priority");
    if (l->drained) snprintf(text[n++], 160, "it is drained: nothing is granted");
    if (l->next_overlaps)
        snprintf(text[n++], 160,
                 "a grant was broken: the next one is marked as overlapping");
    for (size_t i = 0; out != NULL && i < n; i++) sl_resp_text(out, text[i]);
    return n;
}

void sl_do_explain(struct call *call)
{
    struct sl_resp_writer *w = call->out;
    struct why why = {0};
    if (call->n > 2) {
        sl_keep_explain(call);
        return;
    }
    if (call->at[1].n == 0 ||
        call->at[1].n > (size_t)call->s->settings->key_bytes_max) {
        sl_say(call, "TOOBIG", "this is no key: see key-bytes-max");
        return;
    }
    if (sl_by_majority(call->s, call->at[1])) {
        sl_cluster_explain(call);
        return;
    }
    sl_server_spend(call->s, call->s->drain_words * call->at[1].n);
    if (!sl_table_inspect(call->s->table, call->s->now, call->at[1], &why.lock))
        why.lock = (struct sl_lock_view){
            .drained = sl_table_drained(call->s->table, call->at[1])};
    const struct sl_lock_view *l = &why.lock;
    struct sl_table_stats table;
    sl_table_stats(call->s->table, &table);
    if (table.recovering_until_ms > call->s->now.ms)
        why.quiet_ms = table.recovering_until_ms - call->s->now.ms;
    why.new_keeper = call->s->relay != NULL;
    sl_call_cost(call, 50 + l->holders / 16);
    sl_resp_map(w, 9);
    sl_put_bytes(w, "key", call->at[1]);
    sl_put_number(w, "held", (int64_t)l->held);
    sl_put_number(w, "shared", l->shared);
    sl_put_number(w, "drained", l->drained);
    sl_put_number(w, "holders_count", l->holders);
    sl_put_number(w, "waiters_count", l->waiters);
    put_holders(call, l->holders);
    put_waiters(call, &why);
    sl_resp_text(w, "words");
    sl_resp_array(w, sentences(&why, NULL));
    sentences(&why, w);
}

/* --- LOCKS ---------------------------------------------------------------- */

/* From word `first` on. */
static bool read_page(struct call *call, size_t first, struct sl_page *p)
{
    int64_t n;
    for (size_t i = first; i < call->n; i += 2) {
        struct sl_bytes name = call->at[i];
        bool has = i + 1 < call->n;
        if (has && sl_word_is(name, "MATCH")) p->match = call->at[i + 1];
        else if (has && sl_word_is(name, "CURSOR") &&
                 sl_parse_u64(call->at[i + 1], UINT64_MAX, &p->cursor))
            continue;
        else if (has && sl_word_is(name, "COUNT") &&
                 sl_parse_number(call->at[i + 1], 1, SL_COUNT_MAX, &n))
            p->count = n;
        else {
            sl_say_syntax(call, "MATCH glob, CURSOR c, COUNT 1 to 1000");
            return false;
        }
    }
    if (p->match.n > (size_t)call->s->settings->pattern_bytes_max) {
        sl_say(call, "TOOBIG",
               "this pattern is longer than allowed (pattern-bytes-max)");
        return false;
    }
    if (p->match.at == NULL) return true;
    sl_server_spend(call->s, SL_GLOB_COMPILE_STEPS * p->match.n);
    p->glob = sl_glob_new(p->match);
    if (p->glob == NULL) sl_say_status(call, SLUICE_ENOMEM);
    return p->glob != NULL;
}

static void put_lock(struct sl_resp_writer *w, const struct sl_lock_view *l)
{
    sl_resp_map(w, 6);
    sl_put_bytes(w, "key", l->key);
    sl_put_number(w, "held", (int64_t)l->held);
    sl_put_number(w, "holders", l->holders);
    sl_put_number(w, "waiters", l->waiters);
    sl_put_number(w, "shared", l->shared);
    sl_put_number(w, "drained", l->drained);
}

/* One that nobody holds or waits for any more, but for what has to be told still. */
static bool is_shown(const struct sl_lock_view *l, const struct sl_glob *glob)
{
    if (l->holders + l->waiters == 0) return false;
    return glob == NULL || sl_glob_matches(glob, l->key);
}

/* What this node has of each, as one server would say it. */
static size_t scan_node(const struct server *s, uint64_t *cursor,
                        struct sl_lock_view *out, size_t max)
{
    struct sl_lease_view found[SL_COUNT_MAX];
    size_t n = sl_node_scan(sl_cluster_node(s), s->now, cursor, found, max);
    for (size_t i = 0; i < n; i++)
        out[i] = (struct sl_lock_view){.key = found[i].key,
                                       .held = found[i].copy.held,
                                       .holders = found[i].copy.held,
                                       .waiters = found[i].waiters};
    return n;
}

static size_t scan(const struct server *s, bool majority, uint64_t *cursor,
                   struct sl_lock_view *out, size_t max)
{
    if (majority) return scan_node(s, cursor, out, max);
    return sl_table_scan(s->table, s->now, cursor, out, max);
}

void sl_do_locks(struct call *call)
{
    struct sl_page p = {.count = COUNT_GIVEN};
    struct sl_lock_view found[SL_COUNT_MAX];
    size_t seen = 0, shown = 0, steps = 0;
    char cursor[24];
    bool tx = call->n > 1 && sl_word_is(call->at[1], "TX");
    bool word = call->n > 1 && sl_word_is(call->at[1], "MAJORITY");
    bool majority = call->s->cluster != NULL && (word || call->s->relay == NULL);
    if (!read_page(call, tx || word ? 2 : 1, &p)) return;
    if (tx) {
        sl_keep_locks(call, &p);
        sl_glob_free(p.glob);
        return;
    }
    /* As many at a time as may be compared, if their keys are long. */
    size_t compared = sl_glob_words(p.match.n) + call->s->drain_words;
    size_t each = 16 + compared * (size_t)call->s->settings->key_bytes_max;
    size_t chunk = 1 + SL_LOOK_STEPS_MAX / each;
    do {
        struct sl_lock_view *at = found + shown;
        size_t most = (size_t)p.count - seen < chunk ? (size_t)p.count - seen : chunk;
        size_t n = scan(call->s, majority, &p.cursor, at, most);
        seen += n;
        if (majority) steps += STEPS_A_SCAN;
        for (size_t i = 0; i < n; i++) {
            steps += 16 + compared * at[i].key.n;
            if (is_shown(&at[i], p.glob)) found[shown++] = at[i];
        }
    } while (p.cursor != 0 && seen < (size_t)p.count && steps < SL_LOOK_STEPS_MAX);
    sl_glob_free(p.glob);
    sl_call_cost(call, seen);
    sl_server_spend(call->s, steps);
    snprintf(cursor, sizeof cursor, "%" PRIu64, p.cursor);
    sl_resp_array(call->out, 2);
    sl_resp_text(call->out, cursor);
    sl_resp_array(call->out, shown);
    for (size_t i = 0; i < shown; i++) put_lock(call->out, &found[i]);
}
