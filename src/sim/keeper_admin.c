/* keeper_admin.c - BREAK and DRAIN at the keeper, and what they promise (docs/cluster.md). Follows
 * src/server/arbiter/local.c.
 *
 * The checks know which requests keepers have executed. An operator whose reply was lost repeats its
 * command, so an earlier copy may be executed later. A promise begins when an operator receives the
 * reply, if no keeper has executed another command about the same pattern or grant since. It concerns
 * the keeper that replied and its successors: an earlier keeper that does not know of them may still
 * grant and extend, until its authority ends. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/keeper.h"

/* The first half belongs to the first operator. */
static const char *const patterns[KSIM_PATTERNS] = {"k0",    "k[12]", "k*",
                                                    "k[01]", "k3",    "?2"};

struct sl_bytes ksim_pattern(uint32_t pattern)
{
    return (struct sl_bytes){patterns[pattern], strlen(patterns[pattern])};
}

/* The checks share no code with the nodes, so they do not use sl_glob. */
static bool matches(uint32_t pattern, uint32_t key)
{
    static const uint32_t keys[KSIM_PATTERNS] = {1, 6, 15, 3, 8, 4};
    return (keys[pattern] >> key & 1) != 0;
}

void ksim_admin_init(struct ksim_world *w)
{
    for (uint32_t p = 0; p < KSIM_PATTERNS; p++) w->admin.drains[p].is_off = true;
}

/* ---- at the keeper ---- */

/* Return what must be durable before a change that was made now is acknowledged: everything. The key
 * is that of the change; NULL: it concerns all keys. */
static uint64_t need_all(struct ksim_node *n, const struct sl_bytes *key)
{
    struct sl_journal *j = n->f.journal.rules;
    if (j == NULL) return 0;
    uint64_t position = sl_journal_last(j);
    if (position <= sl_journal_durable(j)) return 0;
    if (key != NULL) return sl_journal_await_key(j, *key, position);
    n->limits.all_position = position;
    sl_journal_await(j, position);
    return position;
}

static void acknowledge(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                        uint64_t need, int number)
{
    char text[64];
    snprintf(text, sizeof text, ":%d\r\n %" PRIu64 " %" PRIu64, number,
             q->command.number, w->nodes[i].f.guests.term);
    ksim_serve_acknowledge(w, i, q, need, text);
}

/* Whether a command that this keeper executes can have a lasting effect. */
static bool is_current(const struct ksim_world *w, uint32_t i)
{
    return w->nodes[i].f.guests.term == w->etcd.term.term;
}

static struct ksim_broken *broken_of(struct ksim_world *w, sl_fence fence)
{
    return &w->admin.broken[ksim_slot(fence, KSIM_BROKEN)];
}

static void report_end(struct ksim_world *w, uint32_t i, sl_fence fence)
{
    sl_guests_gone(&w->nodes[i].f.guests, ksim_node_now(w, i).ms, fence, true);
    ksim_rules_urgent(w, i, fence);
}

/* BREAK NOW has ended a grant: tell the nodes when that is durable. */
static void end_later(struct ksim_world *w, uint32_t i, sl_fence fence, uint64_t need)
{
    struct ksim_node *n = &w->nodes[i];
    if (need == 0) {
        report_end(w, i, fence);
        return;
    }
    if (n->later_term != n->f.guests.term) n->later_count = 0;
    n->later_term = n->f.guests.term;
    if (n->later_count == KSIM_LATER)
        return; /* The ledgers keep the lease until it expires. */
    n->later[n->later_count].fence = fence;
    n->later[n->later_count++].position = need;
}

void ksim_admin_durable(struct ksim_world *w, uint32_t i, uint64_t durable)
{
    struct ksim_node *n = &w->nodes[i];
    uint32_t kept = 0;
    if (n->later_term != n->f.guests.term) return;
    for (uint32_t k = 0; k < n->later_count; k++)
        if (n->later[k].position <= durable) report_end(w, i, n->later[k].fence);
        else n->later[kept++] = n->later[k];
    n->later_count = kept;
}

void ksim_admin_break(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &q->command;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_bytes key = ksim_key(m->key);
    struct ksim_broken *b = broken_of(w, m->fence);
    struct sl_ended past;
    sl_keeper_journal_change(&n->f.journal, now.ms);
    int number = sl_table_break(n->table, now, key, m->fence, m->yes != 0, &past);
    if (number == 0) {
        ksim_rules_not_held(w, i);
        if (!ksim_serve_waits_for_others(w, i, q)) acknowledge(w, i, q, 0, 0);
        return;
    }
    KSIM_TRACE(w, "n%u breaks fence %" PRIu64 ": %d", i + 1, m->fence, number);
    if (b->fence == m->fence) {
        b->life = n->life;
        b->in_term = n->f.guests.term;
    }
    if (number == 2 && b->fence == m->fence && is_current(w, i)) {
        b->last = m->number;
        b->at_count = w->admin.granted[m->key];
        b->ended_life = n->life;
        b->ended_term = n->f.guests.term;
    }
    sl_guests_broke(&n->f.guests, now.ms, m->fence, number == 2);
    uint64_t need = need_all(n, &key);
    if (number == 2) end_later(w, i, m->fence, need);
    acknowledge(w, i, q, need, number);
}

void ksim_admin_drain(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_node *n = &w->nodes[i];
    const struct ksim_command *m = &q->command;
    struct ksim_drain *d = &w->admin.drains[m->pattern];
    sl_keeper_journal_change(&n->f.journal, ksim_node_now(w, i).ms);
    int status = sl_table_drain(n->table, ksim_pattern(m->pattern), m->yes != 0);
    if (status != SLUICE_OK && status != SLUICE_ENOENT)
        KSIM_WRONG(w, "n%u rejects DRAIN, status %d", i + 1, status);
    KSIM_TRACE(w, "n%u executes DRAIN %s %s: %d", i + 1, patterns[m->pattern],
               m->yes ? "ON" : "OFF", status == SLUICE_OK);
    if (is_current(w, i)) {
        d->last = m->number;
        if (m->yes != 0) d->is_off = false;
        else d->is_on = false;
    }
    acknowledge(w, i, q, need_all(n, NULL), status == SLUICE_OK);
}

/* ---- what operators know ---- */

void ksim_admin_asked(struct ksim_world *w, const struct ksim_command *m)
{
    struct ksim_grant *g = ksim_checker_find(&w->checker, m->fence);
    struct ksim_broken *b = broken_of(w, m->fence);
    if (b->fence != m->fence)
        *b = (struct ksim_broken){.fence = m->fence, .key = m->key};
    if (m->yes != 0) b->now = true;
    if (g == NULL) return;
    g->touched = true;
    if (m->yes != 0 || !g->leased) g->revoked = true;
}

static void acked_break(struct ksim_world *w, const struct ksim_command *m, int number,
                        uint64_t term)
{
    const struct ksim_grant *g = ksim_checker_find(&w->checker, m->fence);
    struct ksim_broken *b = broken_of(w, m->fence);
    if (b->fence != m->fence || g == NULL || number == 0) return;
    w->counts.breaks++;
    if (number == 1) b->term = term;
    if (number == 2 && b->last == m->number && b->at_count == w->admin.granted[m->key])
        w->admin.marks[m->key] = (struct ksim_mark){.fence = m->fence, .term = term};
}

static void acked_drain(struct ksim_world *w, const struct ksim_command *m,
                        uint64_t term)
{
    struct ksim_drain *d = &w->admin.drains[m->pattern];
    w->counts.drains++;
    if (d->last != m->number) return;
    d->is_on = m->yes != 0;
    d->is_off = m->yes == 0;
    d->term = term;
    d->acked_us = w->now_us;
}

void ksim_admin_acked(struct ksim_world *w, const struct ksim_command *m, int number,
                      uint64_t term)
{
    if (m->verb == KSIM_BREAK) acked_break(w, m, number, term);
    else acked_drain(w, m, term);
}

/* ---- checks ---- */

/* Whether BREAK of this grant was acknowledged, and must hold. A known gap: after BREAK ... NOW, a node
 * that has not received GONE may report the grant to the next keeper, or to this one during its wait.
 * Then the grant is held again, and is not broken. */
static bool is_broken(const struct ksim_broken *b)
{
    return b->term != 0 && !b->now;
}

/* After BREAK that ended a grant, the next grant of the key is marked as overlapping, as long as the
 * former holder relies on its grant. A known gap: see is_broken(). If the grant is held again, a grant that fits does
 * not overlap it. */
static void check_mark(struct ksim_world *w, uint32_t i, uint32_t key,
                       const struct sl_grant *g)
{
    struct ksim_mark *k = &w->admin.marks[key];
    const struct ksim_grant *past = ksim_checker_find(&w->checker, k->fence);
    bool again = sl_table_holds(w->nodes[i].table, ksim_node_now(w, i), ksim_key(key),
                                k->fence);
    bool is_due = k->fence != 0 && !again && w->nodes[i].f.guests.term >= k->term;
    if (is_due && past != NULL && ksim_checker_holds(past, w->now_us) &&
        !g->overlapping && !w->checker.without_clocks)
        KSIM_WRONG(w,
                   "k%u: n%u grants fence %" PRIu64 " without saying that it overlaps "
                   "fence %" PRIu64 ", which was broken",
                   key, i + 1, g->fence, k->fence);
    k->fence = 0;
}

static void check_drained(struct ksim_world *w, uint32_t i, uint32_t key,
                          sl_fence fence)
{
    for (uint32_t p = 0; p < KSIM_PATTERNS; p++) {
        const struct ksim_drain *d = &w->admin.drains[p];
        /* A keeper that was deposed may have executed DRAIN OFF, which nobody has acknowledged. */
        if (d->is_on && matches(p, key) && w->nodes[i].f.guests.term >= d->term &&
            is_current(w, i))
            KSIM_WRONG(w,
                       "k%u: n%u grants fence %" PRIu64 " although %s is drained since "
                       "%" PRId64 " ms",
                       key, i + 1, fence, patterns[p],
                       (w->now_us - d->acked_us) / 1000);
    }
}

void ksim_admin_granted(struct ksim_world *w, uint32_t i, uint32_t key, sl_fence fence,
                        const struct sl_grant *g)
{
    const struct ksim_broken *b = broken_of(w, fence);
    const struct ksim_grant *known = ksim_checker_find(&w->checker, fence);
    /* A node that does not know that a broken lease was released may hand it over. */
    bool released = known != NULL && known->given_up;
    if (g != NULL) {
        check_drained(w, i, key, fence);
        check_mark(w, i, key, g);
        w->admin.granted[key]++;
    } else if (b->fence == fence && is_broken(b) && !released &&
               w->nodes[i].f.guests.term >= b->term)
        KSIM_WRONG(w, "k%u: n%u extends fence %" PRIu64 ", which was broken", key,
                   i + 1, fence);
}

void ksim_admin_refused(struct ksim_world *w, const struct ksim_command *m,
                        uint64_t term)
{
    int64_t arrived_us = w->arrived_us[m->number % KSIM_REQUESTS];
    for (uint32_t p = 0; p < KSIM_PATTERNS; p++) {
        const struct ksim_drain *d = &w->admin.drains[p];
        bool off = d->is_off && arrived_us > d->acked_us && term >= d->term;
        if (matches(p, m->key) && !off) return;
    }
    KSIM_WRONG(w, "k%u: request %" PRIu64 " is rejected, but the key is not drained",
               m->key, m->number);
}

/* No client waits for a drained key. */
void ksim_admin_second(struct ksim_world *w, uint32_t i)
{
    struct sl_grant_view v;
    const struct sl_guests *guests = &w->nodes[i].f.guests;
    if (!guests->leads || guests->reads_journal || !is_current(w, i)) return;
    for (uint32_t p = 0; p < KSIM_PATTERNS; p++) {
        const struct ksim_drain *d = &w->admin.drains[p];
        if (!d->is_on || w->nodes[i].f.guests.term < d->term) continue;
        for (uint32_t k = 0; k < w->key_count; k++) {
            uint64_t cursor = 0;
            while (matches(p, k) &&
                   sl_table_each(w->nodes[i].table, ksim_node_now(w, i), ksim_key(k),
                                 &cursor, &v))
                if (v.waits)
                    KSIM_WRONG(w, "k%u: a client waits, although %s is drained", k,
                               patterns[p]);
        }
    }
}

/* When a keeper has read the journal, it knows which leases were broken. (A node that does not know that a
 * broken lease was released, or has expired, may hand it over.) */
void ksim_admin_reported(struct ksim_world *w, uint32_t i)
{
    struct sl_grant_view v;
    if (w->nodes[i].f.guests.reads_journal) return;
    for (uint32_t k = 0; k < KSIM_BROKEN; k++) {
        const struct ksim_broken *b = &w->admin.broken[k];
        const struct ksim_grant *g = ksim_checker_find(&w->checker, b->fence);
        if (is_broken(b) && w->nodes[i].f.guests.term >= b->term && g != NULL &&
            ksim_checker_holds(g, w->now_us) &&
            sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                   ksim_key(b->key), b->fence, &v) &&
            !v.broken)
            KSIM_WRONG(w, "k%u: n%u does not know that fence %" PRIu64 " was broken",
                       b->key, i + 1, b->fence);
    }
}

/* A lease that a client has tried to break, but not to revoke, is held until it expires. */
void ksim_admin_wait_ended(struct ksim_world *w, uint32_t i)
{
    struct sl_grant_view v;
    for (uint32_t k = 0; k < KSIM_BROKEN; k++) {
        const struct ksim_broken *b = &w->admin.broken[k];
        if (b->fence == 0 || b->now) continue;
        const struct ksim_grant *g = ksim_checker_find(&w->checker, b->fence);
        bool relies = g != NULL && g->leased && !g->revoked &&
                      ksim_checker_holds(g, w->now_us) &&
                      ksim_checker_left(g, w->now_us) > g->lease_ms / 100 + 50;
        if (relies && !sl_table_inspect_grant(w->nodes[i].table, ksim_node_now(w, i),
                                              ksim_key(b->key), b->fence, &v))
            KSIM_WRONG(w,
                       "k%u: the new keeper n%u does not know fence %" PRIu64
                       ", which may be broken but has not expired",
                       b->key, i + 1, b->fence);
    }
}
