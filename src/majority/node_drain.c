/* node_drain.c - drained patterns: the acceptor does not vote for leases on keys that match one
 * of them.
 *
 * The node remembers the last DRAIN of each pattern, ON or OFF, with its stamp. The highest stamp
 * is the newest. Nodes with different patterns send them to each other. Only nodes that know the
 * same patterns use a new membership (README.md). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fnv.h"
#include "base/glob.h"
#include "majority/acceptor.h"
#include "majority/proposer.h"

struct sl_node_drain {
    struct sl_list link;
    uint64_t stamp;
    bool on;
    bool changed;         /* The DRAIN with this stamp has changed the pattern here. */
    bool recorded;        /* The journal has it. */
    struct sl_glob *glob; /* NULL: off. */
    uint32_t n;
    char text[];
};

static struct sl_node_drain *drain_at(const struct sl_list *i)
{
    return sl_container_of(i, struct sl_node_drain, link);
}

static struct sl_bytes pattern_of(const struct sl_node_drain *d)
{
    return (struct sl_bytes){d->text, d->n};
}

static struct sl_node_drain *find(const struct sl_node *n, struct sl_bytes pattern)
{
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next)
        if (sl_bytes_equal(pattern_of(drain_at(i)), pattern)) return drain_at(i);
    return NULL;
}

static uint32_t count_of(const struct sl_node *n, bool on)
{
    uint32_t count = 0;
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next)
        if (drain_at(i)->on == on) count++;
    return count;
}

bool sl_node_is_drained(const struct sl_node *n, struct sl_bytes key)
{
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next)
        if (drain_at(i)->on && sl_glob_matches(drain_at(i)->glob, key)) return true;
    return false;
}

uint64_t sl_node_drain_digest(const struct sl_node *n)
{
    uint64_t digest = 0;
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next) {
        const struct sl_node_drain *d = drain_at(i);
        uint64_t h = sl_fnv_add_bytes(SL_FNV_START, d->text, d->n);
        digest ^= sl_fnv_add(sl_fnv_add(h, d->stamp), d->on);
    }
    return digest;
}

/* --- Changes -------------------------------------------------------------------- */

static void forget(struct sl_node *n, struct sl_node_drain *d)
{
    sl_list_remove(&d->link);
    sl_glob_free(d->glob);
    if (d->recorded)
        sl_journal_end(n->journal,
                       (struct sl_now){.ms = n->now_ms, .wall_us = n->own_wall_us},
                       SL_ITEM_DRAIN, pattern_of(d), 0, false);
    if (d->recorded) n->record_due = true;
    sl_node_block_free(n, d, sizeof *d + d->n);
}

/* Of the patterns that are off, keep only the newest ones. */
static void prune(struct sl_node *n)
{
    while (count_of(n, false) > n->limits.drains_max) {
        struct sl_node_drain *oldest = NULL;
        for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next) {
            struct sl_node_drain *d = drain_at(i);
            if (!d->on && (oldest == NULL || d->stamp < oldest->stamp)) oldest = d;
        }
        forget(n, oldest);
    }
}

/* Remember the state of a pattern. Returns false when out of memory; then nothing has changed. */
static bool set(struct sl_node *n, struct sl_bytes pattern, uint64_t stamp, bool on)
{
    struct sl_node_drain *d = find(n, pattern);
    bool was = d != NULL && d->on;
    struct sl_glob *glob = on ? sl_glob_new(pattern) : NULL;
    if (on && glob == NULL) return false;
    if (d == NULL) {
        d = sl_node_block_new(n, sizeof *d + pattern.n);
        if (d == NULL) {
            sl_glob_free(glob);
            return false;
        }
        d->n = (uint32_t)pattern.n;
        memcpy(d->text, pattern.at, pattern.n);
        sl_list_append(&n->drains, &d->link);
    }
    sl_glob_free(d->glob);
    d->glob = glob;
    d->stamp = stamp;
    d->on = on;
    d->changed = was != on;
    d->recorded = false;
    prune(n);
    return true;
}

/* Let the requests that wait for a drained key try now, so that the acceptors reject them. */
static void wake_drained(struct sl_node *n, struct sl_now now)
{
    for (struct sl_list *i = n->requests.next; i != &n->requests; i = i->next) {
        struct sl_proposer_request *r = sl_container_of(i, struct sl_proposer_request,
                                                        all);
        if (r->type != SL_NODE_ACQUIRE || !r->waits || r->in_round || r->key == NULL ||
            !sl_proposer_queue_is_first(r) ||
            !sl_node_is_drained(n, sl_node_key_bytes(r->key)))
            continue;
        r->try_ms = now.ms;
        sl_proposer_schedule(n, r);
    }
}

/* --- Messages ------------------------------------------------------------------- */

/* Whether this node must not vote, because the proposer uses another membership, or may soon:
 * the nodes that use the next one must know all patterns. */
static bool is_stranger(const struct sl_node *n, sl_node_id from,
                        const struct sl_message *m)
{
    return !sl_node_is_member(n) || sl_membership_find(&n->kept.force, from) < 0 ||
           m->version != n->kept.force.version || n->next.stored.version != 0 ||
           n->next.force.version != n->kept.force.version;
}

static enum sl_vote_verdict judge(struct sl_node *n, struct sl_now now, sl_node_id from,
                                  const struct sl_message *m, struct sl_message *v)
{
    bool on = (m->flags & SL_FLAG_ON) != 0;
    struct sl_node_drain *d = find(n, m->value);
    if (is_stranger(n, from, m)) return SL_VERDICT_STRANGER;
    if (!sl_node_is_plausible(n, now, m->stamp)) return SL_VERDICT_CLOCK;
    if (d != NULL && m->stamp < d->stamp) {
        v->ceiling = d->stamp;
        return SL_VERDICT_FENCE;
    }
    bool is_new = d == NULL || m->stamp > d->stamp;
    if (is_new && on && (d == NULL || !d->on) &&
        count_of(n, true) >= n->limits.drains_max)
        return SL_VERDICT_FULL;
    if (is_new && !set(n, m->value, m->stamp, on)) return SL_VERDICT_NONE;
    d = find(n, m->value);
    if (d != NULL && d->changed) v->flags = SL_FLAG_CHANGED;
    return SL_VERDICT_YES;
}

void sl_node_receive_drain(struct sl_node *n, struct sl_now now, sl_node_id from,
                           const struct sl_message *m)
{
    struct sl_message v = {.type = SL_MESSAGE_VOTE, .round = m->round};
    if (m->value.n == 0 || m->value.n > n->limits.key_bytes_max || m->stamp == 0)
        return;
    const struct sl_node_drain *d = find(n, m->value);
    if (m->round == 0) { /* From the copy of another node. */
        if (d == NULL || m->stamp > d->stamp)
            set(n, m->value, m->stamp, (m->flags & SL_FLAG_ON) != 0);
        wake_drained(n, now);
        return;
    }
    if (sl_node_cannot_record(n)) return; /* The proposer treats the message as lost. */
    v.verdict = judge(n, now, from, m, &v);
    if (v.verdict == SL_VERDICT_YES) wake_drained(n, now);
    if (v.verdict != SL_VERDICT_NONE) sl_node_send(n, now, from, &v);
}

void sl_node_tell_drains(struct sl_node *n, struct sl_now now, sl_node_id to)
{
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next) {
        const struct sl_node_drain *d = drain_at(i);
        struct sl_message m = {.type = SL_MESSAGE_DRAIN,
                               .value = pattern_of(d),
                               .stamp = d->stamp,
                               .flags = d->on ? SL_FLAG_ON : 0};
        sl_node_send(n, now, to, &m);
    }
}

/* --- The journal ---------------------------------------------------------------- */

static struct sl_item item_of(const struct sl_node_drain *d, char value[16])
{
    for (int i = 0; i < 8; i++) value[i] = (char)(d->stamp >> 8 * i);
    memset(value + 8, 0, 8);
    value[8] = d->on ? 1 : 0;
    return (struct sl_item){.kind = SL_ITEM_DRAIN,
                            .key = pattern_of(d),
                            .expiry_ms = SL_NEVER,
                            .bound_ms = SL_NEVER,
                            .is_long = true,
                            .value = {value, 16}};
}

void sl_node_record_drains(struct sl_node *n)
{
    const struct sl_now now = {.ms = n->now_ms, .wall_us = n->own_wall_us};
    if (sl_node_cannot_record(n)) return;
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next) {
        struct sl_node_drain *d = drain_at(i);
        char value[16];
        if (d->recorded) continue;
        struct sl_item item = item_of(d, value);
        uint64_t position = sl_journal_put(n->journal, now, &item,
                                           (struct sl_item_before){0});
        if (position == SL_JOURNAL_FAILED) return;
        d->recorded = true;
        if (position > n->drain_position) n->drain_position = position;
        if (position > n->shown_after) n->shown_after = position;
        n->drains_recorded_at = sl_journal_last(n->journal);
        n->record_due = true;
    }
}

uint64_t sl_node_drain_position(struct sl_node *n)
{
    sl_node_record_drains(n);
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next)
        if (!drain_at(i)->recorded) return SL_JOURNAL_FAILED;
    if (sl_journal_failed(n->journal) &&
        n->drains_recorded_at > sl_journal_written(n->journal))
        return SL_JOURNAL_FAILED;
    return n->drain_position > sl_journal_durable(n->journal) ? n->drain_position : 0;
}

bool sl_node_next_drain(struct sl_node *n, uint64_t *stamp, char value[16],
                        struct sl_item *out)
{
    struct sl_node_drain *next = NULL;
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next) {
        struct sl_node_drain *d = drain_at(i);
        if (d->stamp > *stamp && (next == NULL || d->stamp < next->stamp)) next = d;
    }
    if (next == NULL) return false;
    *stamp = next->stamp;
    *out = item_of(next, value);
    next->recorded = true;
    sl_journal_bound(n->journal, out);
    return true;
}

int sl_node_restore_drain(struct sl_node *n, const struct sl_item *item)
{
    uint64_t stamp = 0;
    if (item->key.n == 0 || item->value.n != 16) return SLUICE_EINVAL;
    for (int i = 0; i < 8; i++) stamp |= (uint64_t)(uint8_t)item->value.at[i] << 8 * i;
    if (!set(n, item->key, stamp, item->value.at[8] != 0)) return SLUICE_ENOMEM;
    struct sl_node_drain *d = find(n, item->key);
    if (d != NULL) d->recorded = true;
    return SLUICE_OK;
}

bool sl_node_drains(const struct sl_node *n, uint32_t i, struct sl_bytes *pattern)
{
    for (const struct sl_list *at = n->drains.next; at != &n->drains; at = at->next) {
        if (!drain_at(at)->on || i-- > 0) continue;
        *pattern = pattern_of(drain_at(at));
        return true;
    }
    return false;
}

size_t sl_node_drains_bytes(const struct sl_node *n)
{
    size_t bytes = 0;
    for (const struct sl_list *i = n->drains.next; i != &n->drains; i = i->next)
        bytes += sizeof(struct sl_node_drain) + drain_at(i)->n + SL_MALLOC_BYTES;
    return bytes;
}

void sl_node_drains_free(struct sl_node *n)
{
    while (!sl_list_empty(&n->drains)) {
        struct sl_node_drain *d = drain_at(n->drains.next);
        sl_list_remove(&d->link);
        sl_glob_free(d->glob);
        free(d);
    }
}
