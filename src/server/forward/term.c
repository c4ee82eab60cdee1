/* term.c - who is the keeper: the election, with its clock, its storage and its links; and what
 * a node does that becomes the keeper, or stops being it. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "majority/membership.h"
#include "server/arbiter/local.h"
#include "server/arbiter/majority.h"
#include "server/arbiter/remote.h"
#include "server/arbiter/router.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward_internal.h"
#include "server/observe/log.h"

#define GRANTS_A_LOOK 64
#define REPORTS_MS \
    1000 /* So long a new keeper lets others come before it says "not held". */

/* --- The engine --------------------------------------------------------------------------- */

static void say_trouble(struct server *s, int status)
{
    static struct sl_log_kind kind;
    if (status != SLUICE_EIO && status != SLUICE_ENOSPC) return;
    sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                 "keeper: the engine does not answer; it is asked again and again",
                 "error", sl_transactions_trouble(s), NULL);
}

static void term_read(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    struct duty *d = &s->forward->read_term;
    d->busy = false;
    say_trouble(s, op->result.status);
    sl_election_term_read(s->forward->election, s->now.ms, d->asked_ms, &op->result);
}

static void claimed(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    struct duty *d = &s->forward->claim;
    d->busy = false;
    /* What is waited for is counted from now: this process may have been stopped since this
     * callback began, and the claim been done only then. */
    sl_server_read_clock(s);
    say_trouble(s, op->result.status);
    sl_election_claimed(s->forward->election, s->now.ms, d->asked_ms, &op->result);
}

static void renewed(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    struct sl_forward *r = s->forward;
    struct sl_election_view v;
    bool ok = op->result.status == SLUICE_OK;
    r->renew.busy = false;
    say_trouble(s, op->result.status);
    sl_election_renewed(r->election, s->now.ms, r->renew.asked_ms, &op->result);
    sl_election_view(r->election, &v);
    if (!r->leads) return;
#ifdef MUT_REIGNAUTHORITY
    v.authority_end_ms = SL_NEVER;
#endif
    sl_table_set_authority(s->table, v.authority_end_ms);
    if (r->renew.has_state && op->term == r->term) sl_state_written(s, ok);
}

static void ask(struct server *s, struct duty *d, enum sl_storage_op_type type,
                const struct sl_election_order *o,
                void (*done)(struct sl_storage_op *op))
{
    assert(!d->busy); /* The office asks one after the other. */
    d->asked_ms = s->now.ms;
    d->op = (struct sl_storage_op){.type = type,
                                   .term = o->term,
                                   .heartbeat = o->beat,
                                   .node = (uint32_t)s->settings->node,
                                   .fence_limit = s->forward->fence_limit,
                                   .longest_ms = s->forward->longest_ms,
                                   .owner = s,
                                   .done = done};
    d->busy = sl_transactions_submit_op(s, &d->op);
}

bool sl_forward_write_state(struct server *s, sl_fence fence_limit, sl_ms longest_ms)
{
    struct sl_forward *r = s->forward;
    if (r == NULL || !r->leads) return false;
    r->fence_limit = fence_limit;
    r->longest_ms = longest_ms;
    r->state_wanted = true;
    sl_election_hurries(r->election, s->now.ms);
    return true;
}

static void renew(struct server *s, const struct sl_election_order *o)
{
    struct sl_forward *r = s->forward;
    r->renew.has_state = r->state_wanted;
    r->state_wanted = false;
    ask(s, &r->renew, SL_STORAGE_RENEW, o, renewed);
}

static void told(void *owner, const struct sl_storage_term *reign)
{
    struct server *s = owner;
    sl_election_term_changed(s->forward->election, s->now.ms, reign);
}

void sl_forward_term_rejected(struct server *s, uint64_t term)
{
    if (s->forward != NULL) sl_election_refused(s->forward->election, s->now.ms, term);
}

/* --- A reign begins and ends ------------------------------------------------------------------ */

static void log_term(enum sl_log_level level, const char *what, uint64_t term,
                     const char *name, int64_t number)
{
    char t[24], n[24];
    snprintf(t, sizeof t, "%" PRIu64, term);
    snprintf(n, sizeof n, "%" PRId64, number);
    sl_log(level, what, "term", t, name, n, NULL);
}

static void export(struct server *s, struct sl_bytes key, const struct sl_grant_view *v)
{
    const struct session *n = sl_server_session(s, v->session_id);
    struct conn *c = n == NULL || n->proxy_node != 0 ? NULL : n->conn;
    if (v->broken || (!v->leased && c == NULL)) return;
    sl_ms end_ms = v->leased ? sl_ms_after(s->now.ms, v->left_ms) : SL_NEVER;
    const struct sl_record x = sl_record_of(key, v, c != NULL ? v->session_id : 0,
                                            end_ms);
    struct sl_forward_session *f = c == NULL ? NULL : sl_forward_session_make(c);
    sl_ledger_put(&s->forward->ledger, &x, f != NULL ? &f->held : NULL);
}

/* What the table has is written down for the next keeper, as much as this turn allows. True:
 * all of it is, and the table is empty. */
static bool export_more(struct server *s)
{
    struct sl_forward *r = s->forward;
    struct sl_lock_view at[GRANTS_A_LOOK];
    do {
        if (s->effects_left < GRANTS_A_LOOK) return false;
        size_t n = sl_table_scan(s->table, s->now, &r->export_cursor, at,
                                 GRANTS_A_LOOK);
        s->effects_left -= GRANTS_A_LOOK;
        for (size_t i = 0; i < n; i++) {
            struct sl_grant_view v;
            uint64_t each = 0;
            while (sl_table_each(s->table, s->now, at[i].key, &each, &v) && !v.waits)
                export(s, at[i].key, &v);
        }
    } while (r->export_cursor != 0);
    r->exporting = false;
    sl_table_reset(s->table);
    s->drain_words = 0;
    return true;
}

static void stop(struct server *s, uint64_t term)
{
    struct sl_forward *r = s->forward;
    struct sl_table_stats table;
    if (!r->leads) return;
#ifdef MUT_REIGNSTOP
    return;
#endif
    sl_table_stats(s->table, &table);
    log_term(SL_LOG_WARN, "this node is the keeper no more", term, "keys",
             (int64_t)table.keys);
    r->leads = false;
    r->reports_until_ms = 0;
    r->keeper = 0;
    r->exporting = true;
    r->export_cursor = 0;
    sl_witness_forget(s);
    sl_proxy_close_all(s, 0);
    sl_forward_step_down(s);
    sl_table_set_authority(s->table, 0);
    sl_transactions_depose(s, term);
    sl_state_end_term(s);
    sl_server_go_on(s);
}

static void lead(struct server *s, const struct sl_election_order *o)
{
    struct sl_forward *r = s->forward;
    struct sl_election_view v;
    log_term(SL_LOG_INFO, "this node is the keeper", o->term, "locks_wait_ms",
             o->quiet_ms);
    uint32_t left = s->effects_left;
    s->effects_left = UINT32_MAX; /* Its table is needed now. */
    if (r->exporting) export_more(s);
    s->effects_left = left;
    sl_forward_end_route(s); /* To the keeper before. */
    r->leads = true;
    r->term = o->term;
    r->keeper = (sl_node_id)s->settings->node;
    r->keeper_term = o->term;
    r->fence_limit = o->before.fence_limit;
    r->longest_ms = o->before.longest_ms;
    sl_election_view(r->election, &v);
    sl_table_set_authority(s->table, v.authority_end_ms);
#ifndef MUT_REIGNQUIET
    if (o->quiet_ms > 0) sl_table_recover(s->table, s->now.ms + o->quiet_ms);
#endif
#ifdef MUT_REIGNFLOOR
    sl_state_begin_term(s, 0, o->before.longest_ms);
#else
    sl_state_begin_term(s, o->before.fence_limit, o->before.longest_ms);
#endif
    r->reports_until_ms = o->quiet_ms == 0        ? 0
                          : sl_proxy_all_ready(s) ? s->now.ms
                                                  : s->now.ms + REPORTS_MS;
    sl_transactions_lead(s, o->term);
    sl_forward_take_over(s);
}

static void set_keeper(struct server *s, const struct sl_election_order *o)
{
    struct sl_forward *r = s->forward;
    if (r->leads) return;
    r->keeper = (sl_node_id)o->node;
    r->keeper_term = o->term;
    if (o->node != 0)
        log_term(SL_LOG_INFO, "the keeper is another node", o->term, "node", o->node);
    sl_forward_change_route(s);
}

static void tell_doubt(struct server *s, const struct sl_election_order *o)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(sl_majority_node(s), peers);
    for (uint32_t i = 0; i < n; i++) {
        if (peers[i].id == (sl_node_id)s->settings->node) continue;
        struct sl_resp_writer *w = sl_frame(s, peers[i].id, "R.DOUBT", 2);
        if (w == NULL) continue;
        sl_frame_number(w, o->term);
        sl_frame_number(w, o->sight);
    }
}

static void obey(struct server *s, const struct sl_election_order *o)
{
    struct sl_forward *r = s->forward;
    switch (o->type) {
        case SL_ELECTION_ORDER_READ_TERM:
            ask(s, &r->read_term, SL_STORAGE_READ_TERM, o, term_read);
            break;
        case SL_ELECTION_ORDER_CLAIM:
            ask(s, &r->claim, SL_STORAGE_CLAIM, o, claimed);
            break;
        case SL_ELECTION_ORDER_RENEW: renew(s, o); break;
        case SL_ELECTION_ORDER_DOUBT: tell_doubt(s, o); break;
        case SL_ELECTION_ORDER_LEAD: lead(s, o); break;
        case SL_ELECTION_ORDER_STOP: stop(s, o->term); break;
        case SL_ELECTION_ORDER_KEEPER: set_keeper(s, o); break;
    }
}

/* What is done some at a time. True: there is no more. */
static bool go_on(struct server *s)
{
    struct sl_forward *r = s->forward;
    if (r->exporting) {
        if (!export_more(s)) return false;
        sl_forward_begin_route(s);
    }
    if (r->leads && !sl_forward_reclaim_own(s)) return false;
    if (r->handing && !sl_forward_hand_over(s)) return false;
    if (r->leads && r->reports_until_ms != 0 && r->reports_until_ms <= s->now.ms) {
        r->reports_until_ms = 0;
        sl_forward_reports_complete(s);
    }
    return true;
}

bool sl_forward_pump(struct arbiter *a)
{
    struct server *s = a->s;
    struct sl_forward *r = s->forward;
    struct sl_election_order o;
    if (sl_election_due(r->election) <= s->now.ms)
        sl_election_tick(r->election, s->now.ms);
    if (r->again_ms <= s->now.ms) sl_forward_begin_route(s);
    sl_forward_cut_off(s);
    sl_witness_tell(s);
    while (sl_election_next(r->election, &o)) obey(s, &o);
    return go_on(s);
}

sl_ms sl_forward_due(const struct arbiter *a)
{
    const struct server *s = a->s;
    sl_ms due = sl_election_due(s->forward->election);
    if (s->forward->again_ms < due) due = s->forward->again_ms;
    if (sl_forward_cut_due(s) < due) due = sl_forward_cut_due(s);
    if (s->forward->witness.due_ms < due) due = s->forward->witness.due_ms;
    sl_ms gather = s->forward->reports_until_ms == 0 ? SL_NEVER
                                                     : s->forward->reports_until_ms;
    return gather < due ? gather : due;
}

/* --- Life ------------------------------------------------------------------------------------ */

void sl_forward_members(struct server *s)
{
    uint32_t ids[SL_NODES_MAX];
    if (s->forward == NULL) return;
    const struct sl_membership *list = sl_node_membership(sl_majority_node(s));
    for (uint32_t i = 0; i < list->count; i++) ids[i] = list->at[i].id;
    sl_election_members(s->forward->election, s->now.ms, ids, list->count);
}

static const struct sl_local_observer observer = {.held = sl_forward_held,
                                                  .gone = sl_forward_gone};

struct arbiter *sl_forward_start(struct server *s)
{
    struct arbiter *a = sl_remote_new(s);
    struct sl_election_settings set = sl_election_settings_default;
    struct sl_forward *r;
    set.self = (uint32_t)s->settings->node;
    r = s->forward = calloc(1, sizeof *r);
    if (a == NULL || r == NULL ||
        (r->election = sl_election_new(&set, s->now.ms)) == NULL ||
        sl_router_read_keys(s) != SLUICE_OK) {
        sl_log(SL_LOG_ERROR, "cannot start", "error", "out of memory", NULL);
        return NULL;
    }
    r->without_since_ms = s->now.ms;
    r->again_ms = SL_NEVER;
    sl_list_init(&r->queued);
    sl_list_init(&r->sent);
    sl_ledger_init(&r->ledger, s->hash_key);
    sl_proxy_init(s);
    sl_witness_init(&r->witness);
    sl_transactions_watch(s, told);
    sl_forward_members(s);
    sl_local_of(s)->observer = &observer;
    sl_local_of(s)->reclaims = true;
    return a;
}

void sl_forward_stop(struct server *s)
{
    struct sl_forward *r = s->forward;
    if (r == NULL) return;
    sl_election_free(r->election);
    r->election = NULL;
}

/* --- Ask ----------------------------------------------------------------------------------------- */

const char *sl_forward_why_not(const struct server *s)
{
    static char text[400];
    const struct sl_forward *r = s->forward;
    const char *trouble = sl_transactions_trouble(s);
    if (r->leads)
        snprintf(text, sizeof text,
                 "node %" PRId64 " is the keeper, but etcd has not confirmed that "
                 "lately (%s): nothing is granted; ask again",
                 s->settings->node, *trouble != '\0' ? trouble : "it answers late");
    else if (r->keeper != 0)
        snprintf(text, sizeof text,
                 "the keeper is node %u, and there is no way to it; ask again",
                 r->keeper);
    else if (*trouble != '\0')
        snprintf(text, sizeof text, "there is no keeper: %s; ask again", trouble);
    else snprintf(text, sizeof text, "there is no keeper yet; ask again");
    return text;
}

size_t sl_forward_bytes(const struct server *s)
{
    return s->forward == NULL ? 0 : s->forward->ledger.bytes;
}

void sl_forward_view(const struct server *s, struct sl_forward_view *out)
{
    const struct sl_forward *r = s->forward;
    struct sl_election_view v;
    *out = (struct sl_forward_view){0};
    if (r == NULL) return;
    sl_election_view(r->election, &v);
    *out = (struct sl_forward_view){.keeper = r->keeper,
                                    .term = r->leads ? r->term : r->keeper_term,
                                    .leads = r->leads,
                                    .open = r->open,
                                    .authority_ms = v.authority_end_ms > s->now.ms
                                                        ? v.authority_end_ms - s->now.ms
                                                        : 0,
                                    .queued = r->queued_count,
                                    .sent = r->sent_count,
                                    .far = r->proxies.count,
                                    .records = r->ledger.by_fence.count,
                                    .forwarded = r->counts.forwarded,
                                    .served = r->counts.served,
                                    .reclaimed = r->counts.reclaimed,
                                    .refused = r->counts.refused,
                                    .claims = v.claims,
                                    .ways = r->route};
}
