/* node.c - the entry points of a node: messages and time, start and end. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fnv.h"
#include "majority/acceptor.h"
#include "majority/proposer.h"

#define SECOND_MS 1000

const struct sl_node_limits sl_node_limits_default = {
    .keys_max = 20000000,
    .waiters_max = 131072,
    .key_bytes_max = 1024,
    .value_bytes_max = 4096,
    .lease_min_ms = 50,
    .lease_max_ms = 24 * 3600 * 1000,
    .heartbeat_ms = 150,
    .answer_ms = 250,
    .answer_min_ms = 50,
    .answer_max_ms = 10000,
    .forget_ms = 10000,
    .waiting_messages_max = 10000,
    .requests_max = 1000000,
    .drains_max = 100,
    .request_keep_ms = 120000,
    .linger_ms = 5000,
};

/* --- Messages and time ------------------------------------------------------------ */

void sl_node_dispatch(struct sl_node *n, struct sl_now now, sl_node_id from,
                      const struct sl_message *m)
{
    switch (m->type) {
        case SL_MESSAGE_BEAT:
        case SL_MESSAGE_NONE:
        case SL_MESSAGE_COUNT: break;
        case SL_MESSAGE_VOTE: sl_proposer_receive_vote(n, now, from, m); break;
        case SL_MESSAGE_DRAIN: sl_node_receive_drain(n, now, from, m); break;
        case SL_MESSAGE_TAUGHT: sl_acceptor_receive_taught(n, now, from, m); break;
        case SL_MESSAGE_ACQUIRE:
        case SL_MESSAGE_RENEW:
        case SL_MESSAGE_RELEASE:
        case SL_MESSAGE_CANCEL:
        case SL_MESSAGE_TEACH:
        case SL_MESSAGE_ADOPT:
        case SL_MESSAGE_END:
        case SL_MESSAGE_BREAK:
        case SL_MESSAGE_LOOK: sl_acceptor_receive(n, now, from, m); break;
        default: sl_membership_change_receive(n, now, from, m); break;
    }
}

/* Whether a message is from another cluster. Clusters that began with different
 * memberships ignore each other. */
static bool is_foreign(struct sl_node *n, sl_node_id from, const struct sl_message *m)
{
    uint64_t ours = n->kept.force.cluster;
    static const char head[] = "node ";
    static const char tail[] = " belongs to another cluster; this node ignores its "
                               "messages; check the setting peers on both nodes";
    char line[sizeof head + 2 + sizeof tail];
    size_t length = sizeof head - 1;
    if (ours == 0 || m->cluster == 0 || m->cluster == ours) return false;
    if (n->logged_foreign) return true;
    memcpy(line, head, length);
    if (from >= 10) line[length++] = '1';
    line[length++] = (char)('0' + from % 10);
    memcpy(line + length, tail, sizeof tail);
    sl_node_log(n, line);
    n->logged_foreign = true;
    return true;
}

void sl_node_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    const struct sl_now own = now;
    assert(m->type < SL_MESSAGE_COUNT && m->list.count <= SL_NODES_MAX);
    if (from == n->id || from == 0 || from > SL_NODE_ID_MAX) return;
    now = sl_node_median_time(n, own);
    if (is_foreign(n, from, m)) return;
    sl_node_hear(n, now, from, m);
    /* Compute the time again, because this message contains a newer reading of the
     * sender's clock. */
    now = sl_node_median_time(n, own);
    sl_node_dispatch(n, now, from, m);
}

void sl_node_tick(struct sl_node *n, struct sl_now now)
{
    now = sl_node_median_time(n, now);
    if (n->write_again_ms != 0 && now.ms >= n->write_again_ms) n->write_again_ms = 0;
    if (now.ms >= n->heartbeat_due_ms) {
        n->heartbeat_due_ms = now.ms + n->limits.heartbeat_ms;
        /* Other nodes teach this node after its silence has ended, so tell them
         * immediately. */
        if (now.ms < n->silent_ms && n->silent_ms < n->heartbeat_due_ms)
            n->heartbeat_due_ms = n->silent_ms;
        sl_node_send_heartbeat(n);
    }
    if (now.ms >= n->limits_due_ms) {
        n->limits_due_ms = now.ms + SECOND_MS;
        sl_node_follow_limits(n, now);
    }
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++)
        if (n->peers[i].id != 0 && n->peers[i].teach_ms <= now.ms)
            sl_proposer_teach_peer(n, now, &n->peers[i]);
    sl_index_step(&n->keys);
    sl_node_acquisitions_tick(n, now);
    sl_acceptor_tick(n, now);
    sl_proposer_tick(n, now);
    sl_membership_change_tick(n, now);
}

void sl_node_synced(struct sl_node *n, struct sl_now now)
{
    sl_node_median_time(n, now);
}

sl_ms sl_node_due(const struct sl_node *n)
{
    sl_ms due = sl_node_min_ms(n->heartbeat_due_ms, n->limits_due_ms);
    if (n->key_timers.count > 0) due = sl_node_min_ms(due, n->key_timers.items[0].at);
    if (n->request_timers.count > 0)
        due = sl_node_min_ms(due, n->request_timers.items[0].at);
    if (n->write_again_ms != 0) due = sl_node_min_ms(due, n->write_again_ms);
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++)
        if (n->peers[i].id != 0) due = sl_node_min_ms(due, n->peers[i].teach_ms);
    return sl_node_min_ms(due, sl_membership_change_due(n));
}

/* --- Start and end ---------------------------------------------------------------- */

/* Returns the hash of the first membership, which identifies the cluster. */
static uint64_t name_cluster(const struct sl_membership *list)
{
    uint64_t h = SL_FNV_START;
    for (uint32_t i = 0; i < list->count; i++) {
        const char *address = list->at[i].address;
        h = sl_fnv_add(h, list->at[i].id);
        h = sl_fnv_add_bytes(h, address, strlen(address));
    }
    return h | 1;
}

/* Initialize the durable state at the first start with this data directory. */
static void be_born(struct sl_node *n, const struct sl_node_start *start)
{
    n->next.birth = start->birth;
    n->next.id = start->id;
    if (start->bootstrap.count > 0) {
        n->next.force = start->bootstrap;
        n->next.force.cluster = name_cluster(&start->bootstrap);
    }
    sl_node_want_write(n);
}

/* Do not vote until all leases that the node voted for before this start, or granted
 * as a single server, and that are not in its journal, have expired. Write their length
 * to disk again, in case the node restarts before that. */
static void be_silent(struct sl_node *n, const struct sl_node_start *start,
                      struct sl_now now)
{
    sl_ms most = start->silence_ms;
    if (start->floor > n->next.fence_limit || most > n->next.lease_longest_ms) {
        if (start->floor > n->next.fence_limit) n->next.fence_limit = start->floor;
        if (most > n->next.lease_longest_ms) n->next.lease_longest_ms = most;
        sl_node_want_write(n);
    }
    if (n->kept.force.version > 0 && n->kept.lease_longest_ms > most)
        most = n->kept.lease_longest_ms;
    n->soon_ms = most > 0 ? sl_ms_after(now.ms, sl_node_stretch_ms(most)) : now.ms;
    /* The journal does not count the drift of clocks. */
    if (start->wait_until_ms > 0)
        n->soon_ms = sl_node_max_ms(
            n->soon_ms,
            sl_ms_after(start->wait_until_ms,
                        sl_node_stretch_ms(start->wait_ms) - start->wait_ms));
    sl_node_be_silent_until(n, now, n->soon_ms);
}

struct sl_node *sl_node_new(const struct sl_node_start *start, struct sl_now now)
{
    assert(start->id >= 1 && start->id <= SL_NODE_ID_MAX && start->epoch != 0);
    assert(start->kept.birth == 0 || start->kept.id == start->id);
    assert(start->limits.key_bytes_max > 0 && start->limits.lease_min_ms > 0 &&
           start->limits.lease_min_ms <= start->limits.lease_max_ms);
    assert(start->bootstrap.count <= SL_NODES_MAX &&
           start->kept.force.count <= SL_NODES_MAX);
    struct sl_node *n = calloc(1, sizeof *n);
    if (n == NULL) return NULL;
    n->id = start->id;
    n->epoch = start->epoch;
    sl_random_seed(&n->random, start->seed);
    n->limits = start->limits;
    n->kept = n->next = start->kept;
    n->journal = start->journal;
    n->same_life = start->same_life;
    n->key_position = sl_journal_position(n->journal);
    n->now_ms = n->heartbeat_due_ms = n->limits_due_ms = now.ms;
    n->own_wall_us = now.wall_us;
    n->finish_ms = SL_NEVER;
    /* A vote from a round before the restart must not count in a round after it. */
    n->last_round = sl_hash_u64(start->epoch, 0) >> 2;
    n->floor = n->kept.fence_limit;
    if (start->floor > n->floor) n->floor = start->floor;
    n->fence_last = n->floor;
    sl_list_init(&n->deferred);
    sl_list_init(&n->orders);
    sl_list_init(&n->held);
    sl_list_init(&n->changed);
    sl_list_init(&n->drains);
    sl_node_keys_init(n, start->hash_key);
    sl_node_acquisitions_init(n, start->hash_key);
    sl_proposer_init(n, start->hash_key);
    be_silent(n, start, now);
    if (n->kept.birth == 0) be_born(n, start);
    else n->links_due = true;
    return n;
}

void sl_node_free(struct sl_node *n)
{
    if (n == NULL) return;
    sl_node_free_orders(n);
    sl_proposer_free(n);
    sl_node_drop_deferred(n);
    sl_node_keys_free(n);
    sl_node_acquisitions_free(n);
    sl_node_drains_free(n);
    free(n->record);
    free(n);
}
