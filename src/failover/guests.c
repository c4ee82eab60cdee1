/* guests.c - the other nodes and their clients, as the keeper sees them. */
#include "failover/guests.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- Indexes ------------------------------------------------------------------------------ */

struct guest_key {
    uint64_t node, id;
};

static uint64_t hash_key(struct guest_key k, uint64_t seed)
{
    return sl_hash_u64(k.id * 31 + k.node, seed);
}

static struct guest_key key_of(const struct sl_guest *n)
{
    return (struct guest_key){n->node, n->id};
}

static uint64_t hash_client(const void *item, const struct sl_index *x)
{
    return hash_key(key_of(item), x->seed);
}

static bool same_client(const void *item, struct sl_bytes key)
{
    const struct guest_key k = key_of(item);
    return memcmp(&k, key.at, key.n) == 0;
}

static uint64_t hash_session(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_guest *)item)->session->id, x->seed);
}

static bool same_session(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_guest *)item)->session->id, key.at, key.n) == 0;
}

static const struct sl_index_kind by_client = {.hash = hash_client,
                                               .same = same_client};
static const struct sl_index_kind by_session = {.hash = hash_session,
                                                .same = same_session};

struct sl_guest *sl_guests_find(const struct sl_guests *g, uint32_t node, uint64_t id)
{
    const struct guest_key k = {node, id};
    const struct sl_index *x = &g->by_client;
    return sl_index_find(x, (struct sl_bytes){(const char *)&k, sizeof k},
                         hash_key(k, x->seed));
}

static const struct sl_guest *find_session(const struct sl_guests *g, uint64_t id)
{
    const struct sl_index *x = &g->by_session;
    return sl_index_find(x, (struct sl_bytes){(const char *)&id, sizeof id},
                         sl_hash_u64(id, x->seed));
}

/* --- Grants that have ended ---------------------------------------------------------------- */

/* How a grant has ended. A stolen or broken grant ends when its lease expires: it may be reported with a
 * later expiry. A later value replaces STOLEN or BROKEN; RELEASED and REVOKED are final. */
enum end { STOLEN, BROKEN, RELEASED, REVOKED };

struct ended {
    struct sl_list all;
    sl_fence fence;
    enum end how;
};

static uint64_t hash_ended(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct ended *)item)->fence, x->seed);
}

static bool same_ended(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct ended *)item)->fence, key.at, key.n) == 0;
}

static const struct sl_index_kind ended_kind = {.hash = hash_ended, .same = same_ended};

static struct ended *find_ended(const struct sl_guests *g, sl_fence fence)
{
    const struct sl_bytes key = {(const char *)&fence, sizeof fence};
    return g->ended.count == 0
               ? NULL
               : sl_index_find(&g->ended, key, sl_hash_u64(fence, g->ended.seed));
}

static bool has_ended(const struct sl_guests *g, sl_fence fence, enum end how)
{
    const struct ended *x = find_ended(g, fence);
    return x != NULL && x->how == how;
}

/* Remember a grant that has ended during the wait. If there is no memory for that, and a node reports
 * the grant, or the journal has it, the grant is held again. */
static void remember_ended(struct sl_guests *g, sl_fence fence, enum end how)
{
    struct ended *x = find_ended(g, fence);
    if (x != NULL && x->how <= BROKEN && how > x->how) x->how = how;
    if (x != NULL || g->ended.count >= SL_ENDED_MAX) return;
    x = malloc(sizeof *x);
    if (x == NULL || sl_index_reserve(&g->ended) != SLUICE_OK) {
        free(x);
        return;
    }
    x->fence = fence;
    x->how = how;
    sl_list_append(&g->ended_all, &x->all);
    sl_index_put(&g->ended, x, hash_ended(x, &g->ended));
}

static void forget_ended(struct sl_guests *g)
{
    while (!sl_list_empty(&g->ended_all)) {
        struct ended *x = sl_container_of(g->ended_all.next, struct ended, all);
        sl_index_remove(&g->ended, x, hash_ended(x, &g->ended));
        sl_list_remove(&x->all);
        free(x);
    }
}

/* --- Guests -------------------------------------------------------------------------------- */

static bool accepts(const struct sl_guests *g, uint32_t from)
{
    return g->leads && g->nodes[from].open && !g->stopping;
}

bool sl_guests_lacks(const struct sl_guests *g, uint32_t from,
                     const struct sl_failover_message *m)
{
    /* A node sends ORIGIN before all other messages of a session. If the session has no guest, and another
     * message arrives, then the keeper has closed the guest, and the node does not know it yet. */
    return m->type == SL_FAILOVER_ORIGIN && accepts(g, from) && m->session != 0 &&
           sl_guests_find(g, from, m->session) == NULL;
}

int sl_guests_open(struct sl_guests *g, struct sl_guest *n, uint32_t node, uint64_t id,
                   struct sl_session *session)
{
    assert(g->leads && node != 0 && node < SL_ELECTION_NODES_MAX && id != 0);
    if (g->nodes[node].count >= SL_GUESTS_MAX) return SLUICE_EFULL;
    if (sl_index_reserve(&g->by_client) != SLUICE_OK ||
        sl_index_reserve(&g->by_session) != SLUICE_OK)
        return SLUICE_ENOMEM;
    *n = (struct sl_guest){.node = node, .id = id, .session = session, .open = true};
    sl_list_init(&n->due);
    sl_list_append(&g->all, &n->all);
    sl_index_put(&g->by_client, n, hash_client(n, &g->by_client));
    sl_index_put(&g->by_session, n, hash_session(n, &g->by_session));
    g->nodes[node].count++;
    return SLUICE_OK;
}

bool sl_guests_closed(struct sl_guests *g, struct sl_guest *n,
                      struct sl_failover_message *out)
{
    if (!n->open) return false;
    assert(g->nodes[n->node].count > 0);
    sl_index_remove(&g->by_client, n, hash_client(n, &g->by_client));
    sl_list_remove(&n->due);
    g->nodes[n->node].count--;
    n->open = false;
    *out = (struct sl_failover_message){.type = SL_FAILOVER_CUT, .session = n->id};
    return !n->gone;
}

void sl_guests_over(struct sl_guests *g, struct sl_guest *n)
{
    assert(!n->open);
    sl_index_remove(&g->by_session, n, hash_session(n, &g->by_session));
    sl_list_remove(&n->all);
    sl_list_remove(&n->due);
}

sl_ms sl_guest_linger_ms(const struct sl_guest *n, sl_ms ms)
{
    return n->adrift && ms < SL_ADRIFT_MS ? SL_ADRIFT_MS : ms;
}

static void is_due(struct sl_guests *g, struct sl_guest *n)
{
    if (sl_list_empty(&n->due)) sl_list_append(&g->due, &n->due);
}

/* Forget what a node (0: all nodes) has reported, and close its guests. */
static void lose(struct sl_guests *g, sl_ms now_ms, uint32_t node)
{
    /* For how long the node may have a lease, or a client that holds a lock without a lease. */
    sl_ms known_ms = g->volatile_ms > SL_ADRIFT_MS ? g->volatile_ms : SL_ADRIFT_MS;
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++) {
        struct sl_guest_node *x = &g->nodes[i];
        if (node != 0 && node != i) continue;
        sl_ms until_ms = x->open ? sl_ms_after(now_ms, known_ms) : 0;
        if (x->until_ms > until_ms) until_ms = x->until_ms;
        *x = (struct sl_guest_node){.count = x->count, .until_ms = until_ms};
        sl_witness_lost(&g->witness, i);
    }
    for (struct sl_list *i = g->all.next; i != &g->all; i = i->next) {
        struct sl_guest *n = sl_container_of(i, struct sl_guest, all);
        if (!n->open || (node != 0 && n->node != node)) continue;
        n->gone = n->adrift = true;
        is_due(g, n);
    }
}

static void order(struct sl_guests *g, struct sl_guests_order o)
{
    assert(!g->has_order); /* The caller fetches all orders after each message. */
    g->order = o;
    g->has_order = true;
}

void sl_guests_unlinked(struct sl_guests *g, sl_ms now_ms, uint32_t node)
{
    lose(g, now_ms, node);
    g->listen_due = true;
}

/* --- This node becomes the keeper, or steps down ---------------------------------------- */

static bool all_ready(const struct sl_guests *g, uint32_t linked)
{
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++)
        if ((linked >> i & 1) != 0 && !g->nodes[i].ready) return false;
    return true;
}

void sl_guests_lead(struct sl_guests *g, sl_ms now_ms, uint64_t term, bool quiet,
                    sl_ms longest_ms, uint32_t linked)
{
    assert(!g->leads);
    g->leads = true;
    g->term = term;
    g->reads_journal = true;
    g->reported = g->barred = 0;
    g->longest_ms = longest_ms;
    g->complete_ms = 0;
    g->reports_until_ms = !quiet || all_ready(g, linked) ? now_ms
                                                         : now_ms + SL_REPORTS_MS;
}

void sl_guests_stop(struct sl_guests *g)
{
    assert(g->leads);
    g->leads = g->reads_journal = false;
    g->reports_until_ms = 0;
    sl_witness_forget(&g->witness);
    sl_withdrawn_clear(&g->withdrawn);
    forget_ended(g);
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++)
        if (g->nodes[i].open) g->not_due |= 1u << i;
    lose(g, 0, 0);
    for (uint32_t i = 0; i < SL_ELECTION_NODES_MAX; i++) g->nodes[i].until_ms = 0;
    g->listen_due = true;
}

void sl_guests_journal_read(struct sl_guests *g)
{
    g->reads_journal = false;
}

/* Return when the wait for reports ends; SL_NEVER: it has ended, or the journal is still being read. */
static sl_ms reports_due(const struct sl_guests *g)
{
    return g->reports_until_ms == 0 || g->reads_journal ? SL_NEVER
                                                        : g->reports_until_ms;
}

bool sl_guests_reports_end(struct sl_guests *g, sl_ms now_ms)
{
    if (reports_due(g) > now_ms) return false;
    g->reports_until_ms = 0;
    return true;
}

void sl_guests_is_complete(struct sl_guests *g, sl_ms now_ms, sl_ms age_ms)
{
    sl_ms longest_ms = sl_ms_after(g->longest_ms, g->longest_ms / 499 + 2);
    age_ms -= age_ms / 500;
    if (age_ms >= longest_ms) return;
    sl_ms until_ms = sl_ms_after(now_ms, longest_ms - age_ms);
    if (until_ms > g->complete_ms) g->complete_ms = until_ms;
}

uint32_t sl_guests_ledgers(const struct sl_guests *g, sl_ms now_ms, uint32_t members)
{
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++)
        if (g->nodes[i].open || g->nodes[i].until_ms > now_ms) members |= 1u << i;
    return members;
}

/* --- The lock table --------------------------------------------------------------------------- */

size_t sl_guests_held(struct sl_guests *g, struct sl_now now, const struct sl_guest *n,
                      sl_ms came_ms, struct sl_bytes key, sl_fence fence, bool fresh,
                      struct sl_failover_message out[2])
{
    struct sl_grant_view v;
    size_t count = 0;
    if (!sl_table_inspect_grant(g->table, now, key, fence, &v)) return 0;
    /* The grant may have been taken by another client, so name that client. */
    if (!fresh && v.name.n + v.address.n > 0)
        out[count++] = (struct sl_failover_message){
            .type = SL_FAILOVER_CLIENT, .name = v.name, .address = v.address};
    out[count++] = (struct sl_failover_message){.type = SL_FAILOVER_HELD,
                                                .session = n->id,
                                                .yes = fresh,
                                                .ms = now.ms - came_ms,
                                                .key = key,
                                                .grant = v};
    return count;
}

/* Whether the keeper still waits for the leases of earlier keepers to expire. During this wait it
 * grants nothing, so a reported grant cannot overlap a new one. */
static bool is_quiet(const struct sl_guests *g, sl_ms now_ms)
{
    struct sl_table_stats stats;
    sl_table_stats(g->table, &stats);
    return stats.recovering_until_ms > now_ms;
}

void sl_guests_gone(struct sl_guests *g, sl_ms now_ms, sl_fence fence, bool at_once)
{
    if (!g->leads) return;
    if (is_quiet(g, now_ms)) remember_ended(g, fence, RELEASED);
    sl_witness_gone(&g->witness, now_ms, fence, at_once);
}

void sl_guests_broke(struct sl_guests *g, sl_ms now_ms, sl_fence fence, bool ended)
{
    if (g->leads && is_quiet(g, now_ms))
        remember_ended(g, fence, ended ? REVOKED : BROKEN);
}

void sl_guests_stole(struct sl_guests *g, sl_ms now_ms, sl_fence fence)
{
    if (g->leads && is_quiet(g, now_ms)) remember_ended(g, fence, STOLEN);
}

void sl_guests_reported(struct sl_guests *g, struct sl_now now,
                        const struct sl_grant_view *v, struct sl_bytes key)
{
    if (v->leased && is_quiet(g, now.ms) && has_ended(g, v->fence, REVOKED))
        sl_table_restore_mark(g->table, now, key, sl_ms_after(now.ms, v->left_ms + 1),
                              false);
}

/* Handle a reported grant that is already in the table. If it has no lease, its holder must be the
 * reported session, or the guest of the same client that has lingered since the link broke. */
static bool reclaim_held(struct sl_guests *g, struct sl_now now,
                         struct sl_session *session, const struct sl_guest *guest,
                         const struct sl_grant_view *held,
                         const struct sl_grant_view *v, struct sl_bytes key)
{
    /* One node may know of an extension that another does not know of. */
    if (held->leased) {
        if (is_quiet(g, now.ms) && v->leased)
            sl_table_reclaim(g->table, now, NULL, v, key);
        return true;
    }
    if (session == NULL) return false;
    if (held->session_id == session->id) return true;
    const struct sl_guest *old = find_session(g, held->session_id);
    if (old == NULL || guest == NULL || old->node != guest->node ||
        old->id != guest->id)
        return false;
    assert(!old->open); /* A client has one open guest, which is `guest`. */
    return sl_table_rebind(g->table, now, session, key, held->fence) == SLUICE_OK;
}

bool sl_guests_withdrew(const struct sl_guests *g, struct sl_bytes key,
                        const struct sl_grant_view *v)
{
    return has_ended(g, v->fence, RELEASED) || has_ended(g, v->fence, REVOKED) ||
           sl_withdrawn_has(&g->withdrawn, key, v) ||
           (g->own != NULL && sl_withdrawn_has(g->own, key, v));
}

bool sl_guests_reclaim(struct sl_guests *g, struct sl_now now,
                       struct sl_session *session, const struct sl_guest *guest,
                       const struct sl_grant_view *v, struct sl_bytes key, bool *added)
{
    struct sl_grant_view held, reported = *v;
    bool good;
    *added = false;
    if (has_ended(g, v->fence, BROKEN)) reported.broken = true;
    if (has_ended(g, v->fence, STOLEN)) reported.asked = reported.stolen = true;
    if (sl_table_inspect_grant(g->table, now, key, v->fence, &held)) {
        good = reclaim_held(g, now, session, guest, &held, &reported, key);
        *added = held.leased && is_quiet(g, now.ms);
    } else
        good = *added = is_quiet(g, now.ms) && (v->leased || session != NULL) &&
                        sl_table_reclaim(g->table, now, session, &reported, key) ==
                            SLUICE_OK;
    if (good) g->reclaimed++;
    else g->refused++;
    return good;
}

/* --- Messages ------------------------------------------------------------------------------- */

static void receive_come(struct sl_guests *g, sl_ms now_ms, uint32_t from,
                         uint64_t term)
{
    bool yes = g->leads && term == g->term && !g->stopping &&
               (g->barred >> from & 1) == 0;
    order(g, (struct sl_guests_order){
                 .type = SL_GUESTS_ORDER_SEND,
                 .to = from,
                 .message = {.type = yes ? SL_FAILOVER_HERE : SL_FAILOVER_NOT,
                             .term = term}});
    if (!yes) return;
    lose(g, now_ms, from); /* The node begins a new route. */
    g->nodes[from].open = true;
    g->nodes[from].here_ms = now_ms;
}

/* A node sends its requests in the order of their arrival. The keeper does not know how long a
 * message was on its way. So it may compute that a request arrived before an earlier one of the same
 * node: then it counts from the arrival of that one. */
static void receive_do(struct sl_guests *g, sl_ms now_ms, struct sl_guest *n,
                       const struct sl_failover_message *m)
{
    if (!n->partial) {
        struct sl_guest_node *from = &g->nodes[n->node];
        n->came_ms = now_ms;
        n->arrived_ms = now_ms - m->ms;
        if (from->asked && n->arrived_ms < from->arrived_ms)
            n->arrived_ms = from->arrived_ms;
        from->asked = true;
        from->arrived_ms = n->arrived_ms;
    }
    n->partial = !m->last;
    if (m->last) g->served++;
    order(g, (struct sl_guests_order){
                 .type = SL_GUESTS_ORDER_RUN, .guest = n, .message = *m});
}

/* Tell a node that the grant in its ledger has ended. */
static void send_gone(struct sl_guests *g, uint32_t to, sl_fence fence)
{
    g->gone = fence;
    order(g, (struct sl_guests_order){.type = SL_GUESTS_ORDER_SEND,
                                      .to = to,
                                      .message = {.type = SL_FAILOVER_GONE,
                                                  .gone = &g->gone,
                                                  .gone_count = 1}});
}

/* Convert the times of a reported lease to our clock. It has certainly expired when the time left has
 * passed since the arrival of the message. It is certainly valid for the time left since HERE was sent,
 * because the node has counted that time since HERE arrived. */
static void convert_times(struct sl_grant_view *v, sl_ms now_ms, sl_ms here_ms,
                          sl_ms age_ms)
{
    if (!v->leased) return;
    sl_ms sure_ms = sl_ms_after(age_ms, v->left_ms - v->unsure_ms);
    bool never = v->unsure_ms >= v->left_ms;
    v->left_ms = sl_ms_after(v->left_ms, v->left_ms / 499 + 2);
    v->unsure_ms = now_ms + v->left_ms - (here_ms + sure_ms - sure_ms / 500 - 1);
    if (never || v->unsure_ms > v->left_ms) v->unsure_ms = v->left_ms;
}

static void receive_reclaim(struct sl_guests *g, struct sl_now now, uint32_t from,
                            struct sl_guest *n, const struct sl_failover_message *m)
{
    struct sl_grant_view v = m->grant;
    convert_times(&v, now.ms, g->nodes[from].here_ms, m->ms);
    struct sl_grant_view held;
    bool added;
    if (m->session == 0) sl_noted_client_take(&g->nodes[from].noted, &v);
    /* The journal has all leases of a keeper that has resigned. After it was read, those that the
     * table does not have were released. */
    bool known = sl_table_inspect_grant(g->table, now, m->key, v.fence, &held);
    bool over = from == g->resigner && !g->reads_journal && !known;
    sl_guests_reported(g, now, &v, m->key);
    if (over || sl_guests_withdrew(g, m->key, &v)) send_gone(g, from, v.fence);
    else if (!sl_guests_reclaim(g, now, n == NULL ? NULL : n->session, n, &v, m->key,
                                &added))
        order(g, (struct sl_guests_order){.type = SL_GUESTS_ORDER_SEND,
                                          .to = from,
                                          .message = {.type = SL_FAILOVER_LOST,
                                                      .session = m->session,
                                                      .fence = v.fence}});
    else if (added && v.leased)
        order(g,
              (struct sl_guests_order){.type = SL_GUESTS_ORDER_GIVEN, .ms = v.left_ms});
}

sl_ms sl_guests_quiet_ms(const struct sl_guests *g, sl_ms now_ms, uint32_t linked,
                         uint32_t *node)
{
    struct sl_table_stats stats;
    *node = 0;
    sl_table_stats(g->table, &stats);
    if (!g->leads || stats.recovering_until_ms <= now_ms) return 0;
    for (uint32_t i = SL_ELECTION_NODES_MAX; g->reports_until_ms > now_ms && i-- > 1;)
        if ((linked >> i & 1) != 0 && !g->nodes[i].ready) *node = i;
    for (uint32_t i = SL_ELECTION_NODES_MAX; *node == 0 && i-- > 1;)
        if (((g->needed & ~g->reported) >> i & 1) != 0) *node = i;
    return stats.recovering_until_ms == SL_NEVER ? SL_REPORTS_MS
                                                 : stats.recovering_until_ms - now_ms;
}

/* Record the clock of a node. If the keeper grants nothing at present, tell the node. */
static void receive_clock(struct sl_guests *g, sl_ms now_ms, uint32_t from, sl_ms ms,
                          uint32_t linked)
{
    uint32_t node;
    g->nodes[from].clock_ms = ms;
    g->nodes[from].clock_at_ms = now_ms;
    sl_ms quiet_ms = sl_guests_quiet_ms(g, now_ms, linked, &node);
    if (quiet_ms > 0)
        order(g, (struct sl_guests_order){.type = SL_GUESTS_ORDER_SEND,
                                          .to = from,
                                          .message = {.type = SL_FAILOVER_QUIET,
                                                      .ms = quiet_ms,
                                                      .what = node}});
}

static void receive_client(struct sl_guests *g, uint32_t from, struct sl_guest *n,
                           const struct sl_failover_message *m)
{
    if (m->session == 0) sl_noted_client_keep(&g->nodes[from].noted, m);
    if (n == NULL || m->name.n > SL_CLIENT_NAME_MAX) return;
    /* If this runs out of memory, the client is shown with the address of its node. */
    sl_table_describe(g->table, n->session, m->name, m->address);
    order(g, (struct sl_guests_order){
                 .type = SL_GUESTS_ORDER_NAME, .guest = n, .message = *m});
}

static void release(struct sl_guests *g, struct sl_bytes key, sl_fence fence)
{
    order(g, (struct sl_guests_order){.type = SL_GUESTS_ORDER_RELEASE,
                                      .message = {.key = key, .fence = fence}});
}

/* Handle WITHDRAW: release the grant, if it is in the table; sl_guests_gone() then remembers its fence. If
 * it is not, another node may still report it, so remember the withdrawal until reports are no longer
 * accepted. */
static void receive_withdraw(struct sl_guests *g, struct sl_now now,
                             const struct sl_failover_message *m)
{
    struct sl_grant_view v;
    uint64_t cursor = 0;
    while (sl_table_each(g->table, now, m->key, &cursor, &v) && !v.waits)
        if (sl_withdrawal_matches(m->origin, m->fence, &v)) {
            release(g, m->key, v.fence);
            return;
        }
    if (is_quiet(g, now.ms))
        sl_withdrawn_add(&g->withdrawn, m->origin, m->key, m->fence, SL_NEVER);
}

/* Handle READY, and end the sessions of the node's guests that still linger. Their clients left
 * while the link was down: the node has reported the grants of all other clients. */
static void receive_ready(struct sl_guests *g, sl_ms now_ms, uint32_t from,
                          sl_ms age_ms, uint32_t linked)
{
    g->nodes[from].ready = true;
    g->reported |= 1u << from;
    sl_guests_is_complete(g, now_ms, age_ms);
    g->nodes[from].lacks = age_ms < sl_ms_after(g->volatile_ms, g->volatile_ms / 100);
    g->nodes[from].filled = 0;
    for (struct sl_list *i = g->all.next; i != &g->all; i = i->next) {
        struct sl_guest *n = sl_container_of(i, struct sl_guest, all);
        if (n->node == from && !n->open && !n->session->ended) is_due(g, n);
    }
    if (g->reports_until_ms != 0 && all_ready(g, linked)) g->reports_until_ms = now_ms;
    order(g, (struct sl_guests_order){
                 .type = SL_GUESTS_ORDER_SEND,
                 .to = from,
                 .message = {.type = SL_FAILOVER_HERE, .term = g->term}});
}

static void receive_of_guest(struct sl_guests *g, struct sl_now now, struct sl_guest *n,
                             const struct sl_failover_message *m)
{
    switch (m->type) {
        case SL_FAILOVER_DO: receive_do(g, now.ms, n, m); break;
        case SL_FAILOVER_END:
            n->gone = true;
            order(g, (struct sl_guests_order){
                         .type = SL_GUESTS_ORDER_CLOSE, .guest = n, .cut = m->yes});
            break;
        case SL_FAILOVER_FAIL:
            order(g, (struct sl_guests_order){
                         .type = SL_GUESTS_ORDER_FAIL, .guest = n, .message = *m});
            break;
        default: break; /* Only a keeper sends the other messages. */
    }
}

void sl_guests_receive(struct sl_guests *g, struct sl_now now, uint32_t from,
                       const struct sl_failover_message *m, uint32_t linked)
{
    assert(from != 0 && from < SL_ELECTION_NODES_MAX);
    if (m->type == SL_FAILOVER_COME) {
        receive_come(g, now.ms, from, m->term);
        return;
    }
    if (!accepts(g, from)) {
        /* The node does not know that its route has ended. */
        if (m->type == SL_FAILOVER_DO || m->type == SL_FAILOVER_CLOCK)
            g->not_due |= 1u << from;
        return;
    }
    struct sl_guest *n = sl_guests_find(g, from, m->session);
    switch (m->type) {
        case SL_FAILOVER_RECLAIM: receive_reclaim(g, now, from, n, m); break;
        case SL_FAILOVER_CLIENT: receive_client(g, from, n, m); break;
        case SL_FAILOVER_ORIGIN:
            if (n != NULL) n->session->origin = m->origin;
            break;
        case SL_FAILOVER_WITHDRAW: receive_withdraw(g, now, m); break;
        case SL_FAILOVER_READY: receive_ready(g, now.ms, from, m->ms, linked); break;
        case SL_FAILOVER_NOTED: sl_witness_noted(&g->witness, m->fence); break;
        case SL_FAILOVER_CLOCK: receive_clock(g, now.ms, from, m->ms, linked); break;
        case SL_FAILOVER_LISTEN:
            g->nodes[from].listens = m->yes;
            g->listen_due = true;
            break;
        default:
            if (n != NULL) receive_of_guest(g, now, n, m);
    }
}

/* --- Orders ---------------------------------------------------------------------------------- */

sl_ms sl_guests_due(const struct sl_guests *g)
{
    sl_ms reports = reports_due(g);
    return g->witness.due_ms < reports ? g->witness.due_ms : reports;
}

bool sl_guests_next(struct sl_guests *g, struct sl_now now, uint32_t linked,
                    struct sl_guests_order *out)
{
    if (g->has_order) {
        g->has_order = false;
        *out = g->order;
        return true;
    }
    if (g->not_due != 0) {
        uint32_t to = (uint32_t)__builtin_ctz(g->not_due);
        g->not_due &= g->not_due - 1;
        *out = (struct sl_guests_order){
            .type = SL_GUESTS_ORDER_SEND,
            .to = to,
            .message = {.type = SL_FAILOVER_NOT, .term = g->term}};
        return true;
    }
    if (g->listen_due) {
        g->listen_due = false;
        *out = (struct sl_guests_order){.type = SL_GUESTS_ORDER_LISTEN};
        return true;
    }
    if (!sl_list_empty(&g->due)) {
        struct sl_guest *n = sl_container_of(g->due.next, struct sl_guest, due);
        sl_list_remove(&n->due);
        *out = (struct sl_guests_order){.type = n->open ? SL_GUESTS_ORDER_CLOSE
                                                        : SL_GUESTS_ORDER_END,
                                        .guest = n,
                                        .cut = true};
        return true;
    }
    *out = (struct sl_guests_order){.type = SL_GUESTS_ORDER_SEND};
    return sl_witness_next(&g->witness, now, g->table, g->nodes, linked, &out->to,
                           &out->message);
}

/* --- Life ------------------------------------------------------------------------------------ */

void sl_guests_init(struct sl_guests *g, struct sl_table *table, struct sl_hash_key key)
{
    *g = (struct sl_guests){.table = table};
    sl_index_init(&g->by_client, &by_client, key);
    sl_index_init(&g->by_session, &by_session, key);
    sl_index_init(&g->ended, &ended_kind, key);
    sl_list_init(&g->ended_all);
    sl_list_init(&g->all);
    sl_list_init(&g->due);
    sl_witness_init(&g->witness);
    sl_withdrawn_init(&g->withdrawn, key);
}

void sl_guests_free(struct sl_guests *g)
{
    sl_witness_free(&g->witness);
    sl_withdrawn_free(&g->withdrawn);
    forget_ended(g);
    sl_index_free(&g->ended);
    sl_index_free(&g->by_client);
    sl_index_free(&g->by_session);
}

#define must(so, what) assert((so) && what)

void sl_guests_check(const struct sl_guests *g)
{
    size_t count = 0, open[SL_ELECTION_NODES_MAX] = {0};
    for (const struct sl_list *i = g->all.next; i != &g->all; i = i->next) {
        const struct sl_guest *n = sl_container_of(i, const struct sl_guest, all);
        count++;
        must(n->node != 0 && n->node < SL_ELECTION_NODES_MAX, "a guest has a node");
        must(find_session(g, n->session->id) == n, "a guest is found by its session");
        must(!n->open || sl_guests_find(g, n->node, n->id) == n,
             "an open guest is found by its client");
        must(!n->open || g->leads || !sl_list_empty(&n->due),
             "only a keeper has open guests");
        if (n->open) open[n->node]++;
    }
    must(count == g->by_session.count, "guests are counted");
    for (uint32_t i = 1; i < SL_ELECTION_NODES_MAX; i++) {
        must(open[i] == g->nodes[i].count, "the open guests of a node are counted");
        must(!g->nodes[i].ready || g->nodes[i].open, "a node is ready on its route");
    }
    must(g->reports_until_ms == 0 || g->leads, "only a keeper waits for reports");
}
