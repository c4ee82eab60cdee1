#include "server/observe/inspection.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/glob.h"
#include "majority/node.h"
#include "server/arbiter/arbiter.h"
#include "server/command/dispatch.h"

/* --- Filling in an inspection ----------------------------------------------- */

struct sl_inspection *sl_inspection_new(struct server *s, enum sl_inspect of)
{
    static struct sl_inspection one;
    memset(&one, 0, offsetof(struct sl_inspection, holders));
    one.s = s;
    one.of = of;
    return &one;
}

char *sl_inspection_sentence(struct sl_inspection *i)
{
    assert(i->sentence_count < SL_SENTENCES_MAX);
    return i->sentences[i->sentence_count++];
}

const char *sl_age_text(sl_ms ms, char out[SL_AGE_BYTES])
{
    static const struct {
        sl_ms below, unit; /* Use this unit for durations below this time. */
        const char *name;
    } units[] = {{1000, 1, "ms"},
                 {120000, 1000, "s"},
                 {7200000, 60000, "min"},
                 {172800000, 3600000, "h"},
                 {SL_NEVER, 86400000, "days"}};
    size_t u = 0;
    while (ms >= units[u].below && units[u].below != SL_NEVER) u++;
    snprintf(out, SL_AGE_BYTES, "%" PRId64 " %s", ms / units[u].unit, units[u].name);
    return out;
}

void sl_client_text(uint64_t id, struct sl_bytes name, struct sl_bytes address,
                    char out[SL_CLIENT_TEXT_BYTES])
{
    int n = 0;
    if (name.n > 0)
        n = snprintf(out, SL_CLIENT_TEXT_BYTES, "%.*s", (int)name.n, name.at);
    else if (id != 0) n = snprintf(out, SL_CLIENT_TEXT_BYTES, "client %" PRIu64, id);
    else
        n = snprintf(out, SL_CLIENT_TEXT_BYTES,
                     address.n > 0 ? "a client" : "an unknown client");
    if (address.n > 0)
        snprintf(out + n, SL_CLIENT_TEXT_BYTES - (size_t)n, " (%.*s)", (int)address.n,
                 address.at);
}

/* The client of a grant or wait, as the reply shows it: as described when the grant or wait began,
 * or else as its connection is now. */
struct client_view {
    struct sl_bytes name, address;
    int connected; /* 1: yes; 0: no; -1: unknown. */
    char text[SL_WHERE_BYTES];
};

static void view_client(const struct server *s, const struct sl_grant_view *v,
                        struct client_view *out)
{
    struct sl_bytes name;
    bool open = sl_session_client(s, v->session_id, &name, out->text);
    out->connected = v->session_id == 0 ? -1 : open;
    out->name = v->name;
    out->address = v->address;
    if (v->address.n > 0 || !open) return;
    out->name = name;
    out->address = (struct sl_bytes){out->text, strlen(out->text)};
}

static void write_client(const struct server *s, const struct sl_grant_view *v,
                         char out[SL_CLIENT_TEXT_BYTES])
{
    struct client_view c;
    view_client(s, v, &c);
    sl_client_text(v->session_id, c.name, c.address, out);
}

static void write_holder(const struct sl_inspection *i, char *out, size_t n)
{
    const struct sl_lock_view *l = &i->lock;
    char client[SL_CLIENT_TEXT_BYTES], time[SL_AGE_BYTES];
    if (l->holders == 0 || i->holder_count == 0) {
        snprintf(out, n,
                 l->waiters > 0 ? "no client holds it"
                                : "free: no client holds it or waits for it");
        return;
    }
    write_client(i->s, &i->holders[0], client);
    sl_age_text(i->holders[0].since_ms, time);
    if (l->holders == 1)
        snprintf(out, n, "%s has held it for %s, fence %" PRIu64, client, time,
                 i->holders[0].fence);
    else if (l->shared)
        snprintf(out, n,
                 "%" PRIu32 " holders share it; the oldest: %s for %s, fence "
                 "%" PRIu64,
                 l->holders, client, time, i->holders[0].fence);
    else
        snprintf(out, n,
                 "%" PRIu32 " grants hold %" PRIu64
                 " units; the oldest: %s for %s, fence %" PRIu64,
                 l->holders, l->held, client, time, i->holders[0].fence);
}

static void write_next(const struct sl_inspection *i, const char *where, char *out,
                       size_t n)
{
    const struct sl_lock_view *l = &i->lock;
    char client[SL_CLIENT_TEXT_BYTES], time[SL_AGE_BYTES];
    if (l->waiters == 0 || i->waiter_count == 0) {
        out[0] = '\0';
        if (l->holders > 0) snprintf(out, n, "; no client waits%s", where);
        return;
    }
    write_client(i->s, &i->waiters[0], client);
    sl_age_text(i->waiters[0].since_ms, time);
    int used = snprintf(out, n, "; next%s: %s, waiting for %s", where, client, time);
    if (l->waiters > 1)
        snprintf(out + used, n - (size_t)used, "; %" PRIu32 " more %s", l->waiters - 1,
                 l->waiters == 2 ? "waits" : "wait");
}

void sl_inspection_summarize(struct sl_inspection *i, const char *where)
{
    char *out = sl_inspection_sentence(i);
    write_holder(i, out, SL_SENTENCE_BYTES);
    size_t n = strlen(out);
    write_next(i, where, out + n, SL_SENTENCE_BYTES - n);
}

/* Whether LOCKS shows a lock. A lock without holders and waiters is still in the table until its
 * last events are published. */
static bool is_shown(const struct sl_lock_view *l, const struct sl_glob *glob)
{
    if (l->holders + l->waiters == 0) return false;
    return glob == NULL || sl_glob_matches(glob, l->key);
}

#define STEPS_A_CLIENT 16

/* Whether a client holds a lock, or waits for it. */
static bool uses(struct sl_inspection *i, const struct sl_lock_view *l, uint64_t client)
{
    struct sl_grant_view v;
    uint64_t cursor = 0;
    if (i->node != NULL) {
        i->steps += STEPS_A_CLIENT * (1 + l->waiters);
        return sl_node_uses(i->node, l->key, client);
    }
    while (sl_table_each(i->s->table, i->s->now, l->key, &cursor, &v)) {
        i->steps += STEPS_A_CLIENT;
        if (v.session_id == client) return true;
    }
    return false;
}

void sl_inspection_list(struct request *r)
{
    struct server *s = r->s;
    const struct sl_page *p = &r->page;
    struct sl_inspection *i = sl_inspection_new(s, SL_INSPECT_LOCKS);
    size_t seen = 0, shown = 0;
    /* Visit only a few locks at a time, so that matching long keys stays within the limit. */
    size_t compared = sl_glob_words(p->match.n) + s->drain_words;
    size_t each = 16 + compared * (size_t)s->settings->key_bytes_max;
    size_t chunk = 1 + SL_INSPECT_STEPS_MAX / each;
    i->cursor = p->cursor;
    i->waited = p->waited;
    do {
        size_t left = (size_t)p->count - seen;
        i->found_max = left < chunk ? left : chunk;
        i->found_count = shown;
        r->arbiter->kind->inspect(r->arbiter, i);
        seen += i->found_count - shown;
        for (size_t n = shown; n < i->found_count; n++) {
            i->steps += 16 + compared * i->found[n].key.n;
            if (is_shown(&i->found[n], p->glob) &&
                (p->client == 0 || uses(i, &i->found[n], p->client)))
                i->found[shown++] = i->found[n];
        }
    } while (i->cursor != 0 && seen < (size_t)p->count &&
             i->steps < SL_INSPECT_STEPS_MAX);
    i->found_count = shown;
    struct call call = sl_request_call(r);
    sl_call_cost(&call, seen);
    sl_server_spend(s, i->steps);
    const struct answer a = {.status = SLUICE_OK, .inspection = i};
    sl_request_answer(r, &a);
}

/* --- Writing ------------------------------------------------------------------ */

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

bool sl_session_client(const struct server *s, uint64_t id, struct sl_bytes *name,
                       char address[SL_WHERE_BYTES])
{
    const struct session *session = id == 0 ? NULL : sl_server_session(s, id);
    if (session == NULL || session->conn == NULL) return false;
    const char *text = session->conn->name;
    *name = (struct sl_bytes){text, strlen(text)};
    sl_conn_where(session->conn, address);
    return true;
}

static void put_client(const struct server *s, struct sl_resp_writer *w,
                       const struct sl_grant_view *v)
{
    struct client_view c;
    view_client(s, v, &c);
    sl_put_number(w, "client", (int64_t)v->session_id);
    sl_put_bytes(w, "name", c.name);
    sl_put_bytes(w, "address", c.address);
    sl_put_number(w, "connected", c.connected);
}

static void put_capacity(struct sl_resp_writer *w, const struct sl_grant_view *v)
{
    sl_put_number(w, "units", v->units);
    sl_put_number(w, "shared", v->shared);
    sl_put_number(w, "per", v->shared ? 0 : v->per);
    sl_put_number(w, "buckets", v->shared ? 0 : v->buckets);
    sl_put_number(w, "priority", v->priority);
}

static void put_holder(const struct server *s, struct sl_resp_writer *w,
                       const struct sl_grant_view *v)
{
    sl_resp_map(w, 17);
    sl_put_number(w, "fence", (int64_t)v->fence);
    put_client(s, w, v);
    put_capacity(w, v);
    sl_put_number(w, "lease_ms", v->leased ? v->left_ms : -1);
    sl_put_number(w, "held_ms", v->since_ms);
    sl_put_number(w, "broken", v->broken);
    sl_put_number(w, "asked", v->asked);
    sl_put_number(w, "overlapping", v->overlapping);
    sl_put_bytes(w, "value", v->value);
    sl_put_bytes(w, "note", v->note);
}

static void put_waiter(const struct server *s, struct sl_resp_writer *w,
                       const struct sl_grant_view *v, const char *reason)
{
    sl_resp_map(w, 14);
    put_client(s, w, v);
    put_capacity(w, v);
    sl_put_number(w, "steals", v->steals);
    sl_put_number(w, "waited_ms", v->since_ms);
    sl_put_number(w, "left_ms", v->left_ms == SL_NEVER ? -1 : v->left_ms);
    sl_put_bytes(w, "note", v->note);
    sl_put_text(w, "reason", reason);
}

static const char *vote_text(const struct sl_node_copy *copy)
{
    if (copy->verdict == SL_VERDICT_NONE) return "no answer";
    if (copy->verdict == SL_VERDICT_SILENT) return "silent";
    if (copy->verdict != SL_VERDICT_YES) return "other membership";
    return copy->held ? "held" : "free";
}

static void put_vote(struct sl_resp_writer *w, const struct sl_node_copy *copy)
{
    bool timed = copy->held || copy->verdict == SL_VERDICT_SILENT;
    sl_resp_map(w, 7);
    sl_put_number(w, "node", copy->node);
    sl_put_text(w, "says", vote_text(copy));
    sl_put_number(w, "fence", copy->held ? (int64_t)copy->fence : 0);
    sl_put_number(w, "left_ms", timed ? copy->left_ms : -1);
    sl_put_number(w, "agreed", copy->held && copy->agreed);
    sl_put_number(w, "reserved", copy->reserved);
    sl_put_number(w, "wanted", copy->reserved ? copy->wanted : 0);
}

static void put_votes(struct sl_resp_writer *w, const struct sl_node_answer *a)
{
    sl_resp_text(w, "nodes");
    sl_resp_array(w, a->copy_count);
    for (uint32_t i = 0; i < a->copy_count; i++) put_vote(w, &a->copies[i]);
}

static void put_lock(struct call *call, const struct sl_inspection *i)
{
    struct sl_resp_writer *w = call->out;
    const struct sl_lock_view *l = &i->lock;
    sl_resp_map(w, i->votes != NULL ? 10 : 9);
    /* The summary comes first, because people read it first. */
    sl_resp_text(w, "summary");
    sl_resp_array(w, i->sentence_count);
    for (size_t n = 0; n < i->sentence_count; n++) sl_resp_text(w, i->sentences[n]);
    sl_put_bytes(w, "key", i->key);
    sl_put_number(w, "held", (int64_t)l->held);
    sl_put_number(w, "shared", l->shared);
    sl_put_number(w, "drained", l->drained);
    sl_put_number(w, "holders_count", l->holders);
    sl_put_number(w, "waiters_count", l->waiters);
    sl_resp_text(w, "holders");
    sl_resp_array(w, i->holder_count);
    for (size_t n = 0; n < i->holder_count; n++) put_holder(call->s, w, &i->holders[n]);
    sl_resp_text(w, "waiters");
    sl_resp_array(w, i->waiter_count);
    for (size_t n = 0; n < i->waiter_count; n++)
        put_waiter(call->s, w, &i->waiters[n], i->reasons[n]);
    if (i->votes != NULL) put_votes(w, i->votes);
}

/* Write the oldest holder of a lock in LOCKS. */
static void put_oldest_holder(const struct server *s, struct sl_resp_writer *w,
                              const struct sl_lock_view *l)
{
    sl_resp_text(w, "holder");
    if (l->holders == 0) {
        sl_resp_null(w);
        return;
    }
    const struct sl_grant_view *v = &l->holder;
    sl_resp_map(w, 9);
    sl_put_number(w, "fence", (int64_t)v->fence);
    put_client(s, w, v);
    sl_put_number(w, "held_ms", v->since_ms);
    sl_put_number(w, "per", v->shared ? 0 : v->per);
    sl_put_number(w, "buckets", v->shared ? 0 : v->buckets);
    sl_put_number(w, "lease_ms", v->leased ? v->left_ms : -1);
}

static void put_locks(struct call *call, const struct sl_inspection *i)
{
    struct sl_resp_writer *w = call->out;
    char cursor[24];
    snprintf(cursor, sizeof cursor, "%" PRIu64, i->cursor);
    sl_resp_array(w, 2);
    sl_resp_text(w, cursor);
    sl_resp_array(w, i->found_count);
    for (size_t n = 0; n < i->found_count; n++) {
        const struct sl_lock_view *l = &i->found[n];
        sl_resp_map(w, 8);
        sl_put_bytes(w, "key", l->key);
        sl_put_number(w, "held", (int64_t)l->held);
        sl_put_number(w, "holders", l->holders);
        sl_put_number(w, "waiters", l->waiters);
        sl_put_number(w, "waited_ms", l->waited_ms);
        sl_put_number(w, "shared", l->shared);
        sl_put_number(w, "drained", l->drained);
        put_oldest_holder(call->s, w, l);
    }
}

/* List the patterns of a node of a majority cluster. */
static void put_drains_of(struct call *call, const struct sl_node *node)
{
    struct sl_bytes glob;
    uint32_t count = 0;
    while (sl_node_drains(node, count, &glob)) count++;
    sl_resp_array(call->out, count);
    for (uint32_t i = 0; sl_node_drains(node, i, &glob); i++)
        sl_resp_bulk(call->out, glob);
}

static void put_drains(struct call *call)
{
    struct sl_table_stats stats;
    struct sl_bytes glob;
    sl_table_stats(call->s->table, &stats);
    sl_resp_array(call->out, stats.drains);
    for (uint32_t i = 0; sl_table_drains(call->s->table, i, &glob); i++)
        sl_resp_bulk(call->out, glob);
}

static void put_nodes(struct call *call, struct sl_node *node)
{
    const struct sl_membership *list = sl_node_membership(node);
    struct sl_node_stats stats;
    struct sl_peer_view peer;
    struct sl_resp_writer *w = call->out;
    sl_node_stats(node, call->s->now, &stats);
    sl_resp_map(w, 4);
    sl_put_number(w, "node", call->s->settings->node);
    sl_put_number(w, "version", (int64_t)list->version);
    sl_put_number(w, "changing", stats.changing);
    sl_resp_text(w, "nodes");
    sl_resp_array(w, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct sl_member *m = &list->at[i];
        bool self = m->id == (sl_node_id)call->s->settings->node;
        sl_node_peer(node, m->id, &peer);
        sl_resp_map(w, 5);
        sl_put_number(w, "id", m->id);
        sl_put_text(w, "address", m->address);
        sl_put_text(w, "state", self ? "self" : peer.linked ? "up" : "down");
        sl_put_number(w, "rtt_ms", self ? 0 : peer.rtt_ms);
        sl_put_number(w, "version", (int64_t)(self ? list->version : peer.version));
    }
}

void sl_inspection_write(struct call *call, const struct request *r,
                         const struct sl_inspection *i)
{
    switch (i->of) {
        case SL_INSPECT_LOCK: put_lock(call, i); break;
        case SL_INSPECT_LOCKS: put_locks(call, i); break;
        case SL_INSPECT_DRAINS:
            if (i->node != NULL) put_drains_of(call, i->node);
            else put_drains(call);
            break;
        case SL_INSPECT_NODES: put_nodes(call, i->node); break;
        case SL_INSPECT_TX: sl_inspection_write_tx(call, r, i); break;
    }
}
