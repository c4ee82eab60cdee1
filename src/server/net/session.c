#include "server/net/session.h"

#include <stdlib.h>
#include <string.h>

#include "locks/client.h"
#include "server/arbiter/arbiter.h"
#include "server/forward/proxy.h"
#include "server/net/conn.h"

/* --- Sessions by number --------------------------------------------------- */

static uint64_t hash_session(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct session *)item)->s.id, x->seed);
}

static bool same_session(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct session *)item)->s.id, key.at, key.n) == 0;
}

static const struct sl_index_kind sessions = {.hash = hash_session,
                                              .same = same_session};

void sl_conn_setup_sessions(struct server *s)
{
    sl_index_init(&s->by_id, &sessions, s->hash_key);
    sl_list_init(&s->lingering);
}

struct session *sl_server_session(const struct server *s, uint64_t id)
{
    const struct sl_bytes key = {(const char *)&id, sizeof id};
    return sl_index_find(&s->by_id, key, sl_hash_u64(id, s->by_id.seed));
}

/* --- Beginning and ending a session --------------------------------------- */

int sl_conn_begin_session(struct conn *c, struct session **old)
{
    struct server *s = c->server;
    struct session *n = calloc(1, sizeof *n);
    if (n == NULL || sl_index_reserve(&s->by_id) != SLUICE_OK) {
        free(n);
        return SLUICE_ENOMEM;
    }
    sl_session_begin(&n->s, ++s->last_id, 0);
    sl_list_init(&n->lingering);
    sl_index_put(&s->by_id, n, s->by_id.kind->hash(n, &s->by_id));
    n->conn = c;
    *old = c->session;
    if (c->session != NULL) {
        sl_request_withdraw_all(c);
        sl_arbiters_leave(c, SL_SAID_BYE);
        c->session->conn = NULL;
        sl_table_session_end(s->table, &c->session->s);
    }
    c->session = n;
    return SLUICE_OK;
}

void sl_conn_where(const struct conn *c, char out[SL_WHERE_BYTES])
{
    const struct sl_bytes known = sl_client_address(c->session->s.client);
    sl_conn_address(c, out, SL_WHERE_BYTES);
    size_t n = strlen(out);
    if (c->proxy != NULL && known.n > 0)
        snprintf(out, SL_WHERE_BYTES, "%.*s", (int)known.n, known.at);
    else if (c->proxy == NULL && c->server->settings->node != 0)
        snprintf(out + n, SL_WHERE_BYTES - n, " via node %d",
                 (int)c->server->settings->node);
}

int sl_conn_describe(struct conn *c)
{
    char where[SL_WHERE_BYTES];
    sl_conn_where(c, where);
    return sl_table_describe(c->server->table, &c->session->s,
                             (struct sl_bytes){c->name, strlen(c->name)},
                             (struct sl_bytes){where, strlen(where)});
}

static sl_ms linger_of(const struct conn *c)
{
    sl_ms ms = c->server->settings->linger_ms;
    return c->session->guest == NULL ? ms : sl_guest_linger_ms(c->session->guest, ms);
}

/* Add a session to the lingering sessions, which are ordered by when they end. */
static void linger(struct server *s, struct session *n)
{
    struct sl_list *at = s->lingering.prev;
    while (at != &s->lingering &&
           sl_container_of(at, struct session, lingering)->linger_end_ms >
               n->linger_end_ms)
        at = at->prev;
    sl_list_append(at->next, &n->lingering);
}

void sl_conn_end_session(struct conn *c, enum sl_parting how)
{
    struct server *s = c->server;
    struct session *old = c->session;
    sl_request_withdraw_all(c);
    sl_arbiters_leave(c, how);
    old->conn = NULL;
    sl_ms linger_ms = linger_of(c);
    if (how == SL_SAID_BYE || linger_ms == 0 || !sl_session_holds(&old->s)) {
        sl_table_session_end(s->table, &old->s);
        return;
    }
    /* Add 1 ms, so that rounding does not end the session early. */
    old->linger_end_ms = s->now.ms + linger_ms + 1;
    linger(s, old);
}

/* --- Lingering ------------------------------------------------------------ */

static struct session *first_lingering(const struct server *s)
{
    return sl_container_of(s->lingering.next, struct session, lingering);
}

sl_ms sl_conn_linger_due(const struct server *s)
{
    return sl_list_empty(&s->lingering) ? SL_NEVER : first_lingering(s)->linger_end_ms;
}

void sl_conn_end_lingering(struct server *s)
{
    while (sl_conn_linger_due(s) <= s->now.ms) {
        struct session *n = first_lingering(s);
        sl_list_remove(&n->lingering);
        sl_table_session_end(s->table, &n->s);
        s->all_stay = UINT64_MAX;
    }
}
