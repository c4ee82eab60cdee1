/* node_disk.c - the file of a node, and the messages that wait until it is on disk. */
#include <assert.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

#define WRITE_AGAIN_MS 1000 /* Delay after a failed write. */

void sl_node_want_write(struct sl_node *n)
{
    n->write_due = true;
}

bool sl_node_order_write(struct sl_node *n, struct sl_node_order *out)
{
    if (!n->write_due || n->is_writing || n->write_again_ms != 0) return false;
    n->write_due = false;
    n->is_writing = true;
    n->writing = n->next;
    *out = (struct sl_node_order){.type = SL_NODE_ORDER_WRITE, .durable = &n->writing};
    return true;
}

static void raise_limit(struct sl_node *n, struct sl_now now, sl_fence fence)
{
    if (!sl_fence_limit_is_low(n->next.fence_limit, fence)) return;
    n->next.fence_limit = sl_fence_limit_above(fence, now.wall_us);
    sl_node_want_write(n);
}

bool sl_node_may_vote(struct sl_node *n, struct sl_now now, sl_fence fence)
{
    raise_limit(n, now, fence);
    return fence <= n->kept.fence_limit;
}

/* For a while after a vote, the fence limit follows the clock, so that the next vote
 * need not wait for the disk. When the silence has ended, so have the leases that the
 * journal does not contain. */
void sl_node_follow_limits(struct sl_node *n, struct sl_now now)
{
    if (n->is_writing || n->write_due || n->kept.force.version == 0) return;
    if (n->voted_ms != 0 && sl_fence_limit_follows(now, n->voted_ms) &&
        sl_node_knows_time(n))
        raise_limit(n, now, now.wall_us);
    if (now.ms < n->silent_ms || n->next.lease_longest_ms == 0) return;
    n->next.lease_longest_ms = 0;
    sl_node_want_write(n);
}

/* --- Messages that wait for the disk ---------------------------------------------- */

void sl_node_defer(struct sl_node *n, sl_node_id from, const struct sl_message *m)
{
    if (n->deferred_count >= n->limits.waiting_messages_max) return;
    struct sl_node_deferred *s = sl_node_block_new(n, sl_node_deferred_bytes(m));
    if (s == NULL) return;
    s->from = from;
    s->m = *m;
    sl_node_put_message((char *)(s + 1), &s->m);
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (k != NULL) k->deferred_count++;
    sl_list_append(&n->deferred, &s->link);
    n->deferred_count++;
}

static struct sl_node_deferred *first_deferred(const struct sl_node *n)
{
    return sl_container_of(n->deferred.next, struct sl_node_deferred, link);
}

static void free_deferred(struct sl_node *n, struct sl_node_deferred *s)
{
    sl_node_block_free(n, s, sl_node_deferred_bytes(&s->m));
}

/* Reset the count of deferred messages of all keys, before the messages are handled
 * or dropped. */
static void uncount_deferred(struct sl_node *n)
{
    for (struct sl_list *i = n->deferred.next; i != &n->deferred; i = i->next) {
        const struct sl_node_deferred *s = sl_container_of(i, struct sl_node_deferred,
                                                           link);
        struct sl_node_key *k = sl_node_key_find(n, s->m.key);
        if (k == NULL) continue;
        k->deferred_count = 0;
        sl_node_key_schedule(n, k);
    }
}

void sl_node_drop_deferred(struct sl_node *n)
{
    uncount_deferred(n);
    for (; n->deferred_count > 0; n->deferred_count--) {
        struct sl_node_deferred *s = first_deferred(n);
        sl_list_remove(&s->link);
        free_deferred(n, s);
    }
}

/* Handle the deferred messages in order of arrival. A message may be deferred again;
 * then all later messages about its key are deferred after it. */
static void handle_deferred(struct sl_node *n, struct sl_now now)
{
    uncount_deferred(n);
    for (uint32_t count = n->deferred_count; count > 0; count--) {
        struct sl_node_deferred *s = first_deferred(n);
        sl_list_remove(&s->link);
        n->deferred_count--;
        sl_node_dispatch(n, now, s->from, &s->m);
        free_deferred(n, s);
    }
}

/* --- After a write
 * --------------------------------------------------------------------- */

/* Handle a membership that has come into force on this node. */
static void change_membership(struct sl_node *n, struct sl_now now, bool was_member)
{
    const struct sl_membership *list = &n->kept.force;
    sl_ms longest = sl_node_max_ms(sl_acceptor_longest_lease(n, now),
                                   n->kept.lease_longest_ms);
    n->soon_ms = sl_ms_after(now.ms, sl_node_stretch_ms(longest));
    n->self_due = true; /* It is in the journal. */
    if (!was_member && n->soon_ms > n->silent_ms)
        sl_node_be_silent_until(n, now, n->soon_ms);
    if (n->joining.id != 0 && sl_membership_find(list, n->joining.id) >= 0)
        n->joining = (struct sl_member){0};
    n->links_due = true;
    sl_proposer_membership_changed(n, now);
}

void sl_node_written(struct sl_node *n, struct sl_now now, bool ok)
{
    uint64_t version = n->kept.force.version;
    bool was_member = sl_node_is_member(n);
    assert(n->is_writing);
    now = sl_node_median_time(n, now);
    n->is_writing = false;
    if (!ok) {
        n->write_due = true;
        n->write_again_ms = now.ms + WRITE_AGAIN_MS;
        sl_node_drop_deferred(n);
        return;
    }
    if (n->kept.birth == 0) n->links_due = true;
    n->kept = n->writing;
    if (n->kept.force.version != version) change_membership(n, now, was_member);
    sl_node_link_known(n, now);
    handle_deferred(n, now);
    sl_membership_change_tick(n, now);
}
