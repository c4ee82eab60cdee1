/* router.c - chooses the arbiter for a request, and calls functions of all arbiters. */
#include "server/arbiter/router.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "server/forward/forward.h"

int sl_router_read_keys(struct server *s)
{
    struct arbiters *a = &s->arbiters;
    const char *text = s->settings->majority_keys;
    size_t max = 1;
    assert(a->majority_keys == NULL && a->majority_key_count == 0);
    for (const char *at = text; *at != '\0'; at++) max += *at == ',';
    a->majority_keys = calloc(max, sizeof *a->majority_keys);
    if (a->majority_keys == NULL) return SLUICE_ENOMEM;
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, ",");
        struct sl_glob *g = sl_glob_new((struct sl_bytes){at, n});
        if (g == NULL) return SLUICE_ENOMEM;
        a->majority_keys[a->majority_key_count++] = g;
        at += at[n] == ',' ? n + 1 : n;
    }
    return SLUICE_OK;
}

static bool is_majority_key(const struct arbiters *a, struct sl_bytes key)
{
    for (size_t i = 0; i < a->majority_key_count; i++)
        if (sl_glob_matches(a->majority_keys[i], key)) return true;
    return false;
}

/* Whether a majority decides the request, in a cluster on etcd where the keeper decides most
 * requests. */
static bool is_for_majority(const struct arbiters *a, const struct request *r)
{
    if (r->verb == SL_VERB_NODES) return true;
    if (r->verb == SL_VERB_LOCKS) return r->page.majority;
    return r->verb != SL_VERB_DRAIN && r->key.n > 0 && is_majority_key(a, r->key);
}

struct arbiter *sl_router_choose_of_many(const struct request *r)
{
    const struct arbiters *a = &r->s->arbiters;
    assert(a->local != NULL && a->majority != NULL);
    if (a->remote != NULL)
        return is_for_majority(a, r)       ? a->majority
               : sl_forward_must_decide(r) ? a->remote
                                           : a->local;
    return r->verb < SL_VERB_TX ? a->majority : a->local;
}

/* --- All arbiters -------------------------------------------------------------- */

bool sl_arbiters_pump(struct server *s)
{
    bool empty = true;
    for (size_t i = 0; i < s->arbiters.n; i++) {
        struct arbiter *a = s->arbiters.at[i];
        if (!a->kind->pump(a)) empty = false;
    }
    return empty;
}

void sl_request_pump_due(struct server *s)
{
    s->pumped_ms = s->now.ms;
    for (size_t i = 0; i < s->arbiters.n; i++) {
        struct arbiter *a = s->arbiters.at[i];
        if (a->kind->due(a) <= s->now.ms) a->kind->pump(a);
    }
}

sl_ms sl_arbiters_due(const struct server *s)
{
    sl_ms due = SL_NEVER;
    for (size_t i = 0; i < s->arbiters.n; i++) {
        sl_ms one = s->arbiters.at[i]->kind->due(s->arbiters.at[i]);
        if (one < due) due = one;
    }
    return due;
}

void sl_arbiters_leave(struct conn *c, enum sl_parting how)
{
    const struct arbiters *all = &c->server->arbiters;
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i]->kind->leave != NULL)
            all->at[i]->kind->leave(all->at[i], c, how);
}

void sl_request_tx_failed(struct conn *c, const char *name, const char *code)
{
    const struct arbiters *all = &c->server->arbiters;
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i]->kind->tx_failed != NULL)
            all->at[i]->kind->tx_failed(all->at[i], c, name, code);
}

void sl_arbiters_second(struct server *s)
{
    for (size_t i = 0; i < s->arbiters.n; i++)
        if (s->arbiters.at[i]->kind->second != NULL)
            s->arbiters.at[i]->kind->second(s->arbiters.at[i]);
    sl_request_check(s);
}
