/* info.c - the sections of INFO about locks, data, nodes and transactions, and the memory that
 * they use. Every deployment has all lines; a line that does not apply is zero or empty. */
#include "server/observe/info.h"

#include <inttypes.h>

#include "server/arbiter/majority.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward.h"
#include "server/net/links.h"
#include "server/observe/memory.h"
#include "server/recorder.h"

/* Returns all zeros if this server is not a node of a cluster. */
static struct sl_node_stats node_stats(const struct server *s)
{
    struct sl_node_stats stats = {0};
    if (s->majority != NULL) sl_node_stats(sl_majority_node(s), s->now, &stats);
    return stats;
}

void sl_info_put_locks(const struct server *s, struct sl_info *t)
{
    struct sl_table_stats table;
    sl_table_stats(s->table, &table);
    /* In a majority cluster, the node counts the locks; otherwise the lock table does. */
    if (s->majority != NULL && s->forward == NULL) {
        struct sl_node_stats node = node_stats(s);
        table.keys = node.keys;
        table.entries = node.leases + node.requests;
        table.waiters = node.requests;
        table.requests = node.ended;
        table.fence_last = node.fence_last;
    }
    sl_info_put(t, "keys:%zu", table.keys);
    sl_info_put(t, "entries:%zu", table.entries);
    sl_info_put(t, "waiters:%zu", table.waiters);
    sl_info_put(t, "drains:%zu", table.drains);
    sl_info_put(t, "request_ids:%zu", table.requests);
    sl_info_put(t, "fence_last:%" PRIu64, table.fence_last);
}

static void inspect_node(const struct server *s, struct sl_state_view *v)
{
    struct sl_majority_view c;
    struct sl_node_stats stats = node_stats(s);
    sl_majority_inspect_file(s, &c);
    *v = (struct sl_state_view){.directory = c.directory,
                                .recovering_ms = stats.silent_ms,
                                .fence_limit = stats.fence_limit,
                                .lease_longest_ms = stats.lease_longest_ms,
                                .writes = c.writes,
                                .errors = c.errors};
}

static void put_journal(const struct server *s, struct sl_info *t)
{
    struct sl_recorder_view j;
    sl_recorder_inspect(s, &j);
    sl_info_put(t, "journal_bytes:%" PRIu64, j.bytes);
    sl_info_put(t, "journal_live_bytes:%" PRIu64, j.live_bytes);
    sl_info_put(t, "journal_position:%" PRIu64, j.position);
    sl_info_put(t, "journal_durable:%" PRIu64, j.durable);
    sl_info_put(t, "journal_volatile_ms:%" PRId64, j.volatile_ms);
    sl_info_put(t, "journal_syncs:%" PRIu64, j.syncs);
    sl_info_put(t, "journal_copies:%" PRIu64, j.copies);
    sl_info_put(t, "journal_copying:%d", j.copying);
    sl_info_put(t, "journal_errors:%" PRIu64, j.errors);
    sl_info_put(t, "journal_failed:%s", j.failed != NULL ? j.failed : "");
}

void sl_info_put_persistence(const struct server *s, struct sl_info *t)
{
    struct sl_state_view v;
    sl_state_inspect(s, &v);
    if (s->majority != NULL && s->forward == NULL) inspect_node(s, &v);
    else if (s->majority != NULL) {
        struct sl_majority_view c;
        sl_majority_inspect_file(s, &c);
        v.directory = c.directory;
    }
    sl_info_put(t, "loading:0");
    sl_info_put(t, "data:%s", v.directory);
    sl_info_put(t, "recovering_ms:%" PRId64, v.recovering_ms);
    sl_info_put(t, "fence_limit:%" PRIu64, v.fence_limit);
    sl_info_put(t, "lease_longest_ms:%" PRId64, v.lease_longest_ms);
    sl_info_put(t, "restored_grants:%" PRIu64, v.restored);
    sl_info_put(t, "state_writes:%" PRIu64, v.writes);
    sl_info_put(t, "state_errors:%" PRIu64, v.errors);
    sl_info_put(t, "deferred_commands:%zu", v.deferred);
    put_journal(s, t);
}

void sl_info_put_cluster(const struct server *s, struct sl_info *t)
{
    static const struct sl_membership none;
    struct sl_majority_view c = {0};
    struct sl_node_stats n = node_stats(s);
    struct sl_links_view links;
    const struct sl_membership *list = &none;
    sl_links_view(s, &links);
    if (s->majority != NULL) {
        sl_majority_inspect_file(s, &c);
        list = sl_node_membership(sl_majority_node(s));
    }
    sl_info_put(t, "node:%" PRId64, s->settings->node);
    sl_info_put(t, "nodes:%" PRIu32, list->count);
    sl_info_put(t, "nodes_up:%" PRIu32, c.nodes_up);
    sl_info_put(t, "links_reconnected:%" PRIu64, links.reconnects);
    sl_info_put(t, "links_rejected:%" PRIu64, links.refused);
    sl_info_put(t, "links_invalid:%" PRIu64, links.unread);
    sl_info_put(t, "membership_version:%" PRIu64, list->version);
    sl_info_put(t, "membership_changing:%d", n.changing);
    /* Operators wait until this is 0 before they restart the next node. */
    sl_info_put(t, "silent_ms:%" PRId64, n.silent_ms > 0 ? n.silent_ms : n.learning_ms);
    sl_info_put(t, "answer_ms:%" PRId64, n.answer_ms);
    sl_info_put(t, "leases:%zu", n.leases);
    sl_info_put(t, "requests:%zu", n.requests);
    sl_info_put(t, "attempts:%" PRIu64, n.attempts);
    sl_info_put(t, "agreed:%" PRIu64, n.grants);
    sl_info_put(t, "splits:%" PRIu64, n.splits);
    sl_info_put(t, "timeouts:%" PRIu64, n.timeouts);
    sl_info_put(t, "leases_learned:%" PRIu64, n.taught);
}

void sl_info_put_keeper(const struct server *s, struct sl_info *t)
{
    struct sl_transactions_view v;
    char cycle[SL_DEADLOCK_TEXT_BYTES] = "";
    const struct sl_deadlock *last = sl_transactions_deadlock(s, 0);
    struct sl_forward_view r;
    const char *trouble = sl_transactions_trouble(s);
    sl_transactions_inspect(s, &v);
    sl_forward_view(s, &r);
    const struct sl_tx_manager_stats *k = &v.manager;
    const struct sl_storage_stats *e = &v.storage_stats;
    if (last != NULL) sl_deadlock_text(last->of, last->count, cycle);
    sl_info_put(t, "engine:%s", v.storage);
    sl_info_put(t, "keeper:%s", v.state);
    sl_info_put(t, "term:%" PRIu64, s->forward != NULL ? r.term : k->term);
    sl_info_put(t, "keeper_node:%u", r.keeper);
    sl_info_put(t, "keeper_reachable:%d", r.leads || r.open);
    sl_info_put(t, "authority_ms:%" PRId64, r.authority_ms);
    sl_info_put(t, "claims:%" PRIu64, r.claims);
    sl_info_put(t, "keeper_changes:%" PRIu64, r.routes);
    sl_info_put(t, "forwarded:%" PRIu64, r.forwarded);
    sl_info_put(t, "forwarded_waiting:%zu", r.queued + r.sent);
    sl_info_put(t, "forwarded_here:%" PRIu64, r.served);
    sl_info_put(t, "forwarding_connections:%zu", r.proxies);
    sl_info_put(t, "handover_grants:%zu", r.records);
    sl_info_put(t, "handover_complete:%d", r.known);
    sl_info_put(t, "reclaimed:%" PRIu64, r.reclaimed);
    sl_info_put(t, "reclaims_rejected:%" PRIu64, r.refused);
    sl_info_put(t, "engine_trouble:%s", trouble);
    sl_info_put(t, "transactions:%zu", k->transactions);
    sl_info_put(t, "transactions_waiting:%zu", k->waiting);
    sl_info_put(t, "transaction_locks:%zu", k->locks);
    sl_info_put(t, "transaction_locks_remembered:%zu", k->remembered);
    sl_info_put(t, "transactions_begun:%" PRIu64, k->begun);
    sl_info_put(t, "commits:%" PRIu64, k->committed);
    sl_info_put(t, "aborts:%" PRIu64, k->aborted);
    sl_info_put(t, "restarts:%" PRIu64, k->restarted);
    sl_info_put(t, "barred:%" PRIu64, k->barred);
    sl_info_put(t, "deadlocks:%" PRIu64, k->cycles);
    sl_info_put(t, "last_deadlock:%s", cycle);
    sl_info_put(t, "revision:%" PRIu64, e->revision);
    sl_info_put(t, "duplicates:%" PRIu64, e->duplicates);
    sl_info_put(t, "commit_groups:%" PRIu64, e->groups);
    sl_info_put(t, "store_errors:%" PRIu64, e->errors);
    sl_info_put(t, "store_keys:%" PRIu64, e->keys);
    sl_info_put(t, "store_bytes:%" PRIu64, e->bytes_used);
    sl_info_put(t, "store_bytes_max:%" PRIu64, e->bytes_max);
    sl_info_put(t, "store_waiting:%zu", e->waiting);
}

size_t sl_arbiters_bytes(const struct server *s)
{
    return sl_transactions_bytes(s) + sl_majority_bytes(s) + sl_forward_bytes(s);
}
