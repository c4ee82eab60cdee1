/* ready.c - whether this server can grant locks now, and why not. */
#include <inttypes.h>
#include <string.h>

#include "server/arbiter/local.h"
#include "server/arbiter/majority.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward.h"
#include "server/observe/info.h"
#include "server/recorder.h"

/* Whether a drained pattern matches every key. */
static bool all_is_drained(const struct server *s)
{
    struct sl_bytes glob;
    for (uint32_t i = 0; sl_table_drains(s->table, i, &glob); i++) {
        size_t stars = 0;
        while (stars < glob.n && glob.at[stars] == '*') stars++;
        if (stars == glob.n) return true;
    }
    return false;
}

static bool disk_is_ready(const struct server *s, char *out, size_t size)
{
    if (s->recorder == NULL) return true;
    sl_ms slow_ms = sl_recorder_slow_ms(s);
    if (sl_journal_failed(sl_recorder_journal(s->recorder)))
        sl_recorder_explain(s, out, size);
    else if (slow_ms > 0)
        snprintf(out, size,
                 "disk: a sync of the journal has been running for %" PRId64 " s",
                 slow_ms / 1000);
    else return true;
    return false;
}

/* The lock table of this server decides. */
static bool table_is_ready(const struct server *s, char *out, size_t size)
{
    sl_ms quiet_ms = sl_state_quiet_ms(s);
    if (quiet_ms > 0) {
        snprintf(out, size, "recovering: new grants wait another %" PRId64 " ms",
                 quiet_ms);
        return false;
    }
    if (!disk_is_ready(s, out, size)) return false;
    if (!all_is_drained(s)) return true;
    snprintf(out, size, "draining: every key is drained");
    return false;
}

static bool file_of_node_is_ready(const struct server *s, char *out, size_t size)
{
    struct sl_majority_view view;
    sl_majority_inspect_file(s, &view);
    if (view.failed == 0) return true;
    sl_directory_explain(&s->directory, "node", strerror(view.failed),
                         sl_directory_remedy(view.failed), out, size);
    return false;
}

static bool node_is_ready(const struct server *s, char *out, size_t size)
{
    struct sl_node_answer quorum;
    struct sl_node_stats node;
    sl_node_stats(sl_majority_node(s), s->now, &node);
    int status = sl_node_quorum(sl_majority_node(s), s->now, &quorum);
    if (!sl_majority_is_member(s)) {
        snprintf(out, size, "no quorum: this node is not a member of a cluster");
        return false;
    }
    if (status == SLUICE_ERECOVERING) {
        size_t n = (size_t)snprintf(out, size, "recovering: ");
        sl_majority_write_recovering(&quorum, out + n, size - n);
        return false;
    }
    if (node.silent_ms > 0) {
        snprintf(out, size,
                 "recovering: this node does not vote for another %" PRId64 " ms",
                 node.silent_ms);
        return false;
    }
    if (!disk_is_ready(s, out, size) || !file_of_node_is_ready(s, out, size))
        return false;
    if (status == SLUICE_OK) return true;
    snprintf(out, size, "no quorum: %" PRIu32 " of %" PRIu32 " nodes are reachable",
             quorum.can_vote + quorum.silent, quorum.members);
    return false;
}

/* Write what the keeper of a cluster waits for before it grants. */
static void write_quiet(const struct sl_forward_view *v, char *out, size_t size)
{
    int n = snprintf(
        out, size,
        "recovering: node %u is the keeper; new grants wait another %" PRId64
        " ms, until earlier leases are reported or have expired",
        v->keeper, v->quiet_ms);
    if (v->quiet_node != 0)
        snprintf(out + n, size - (size_t)n, "; node %u has not reported yet",
                 v->quiet_node);
}

bool sl_server_is_ready(const struct server *s, char *out, size_t size)
{
    struct sl_forward_view forward;
    if (s->stopping) {
        snprintf(out, size, "the server stops");
        return false;
    }
    if (s->forward == NULL)
        return s->majority != NULL ? node_is_ready(s, out, size)
                                   : table_is_ready(s, out, size);
    sl_forward_view(s, &forward);
    if (forward.reads_journal) {
        snprintf(out, size, "recovering: %s", sl_forward_why_not(s));
        return false;
    }
    bool confirmed = forward.leads ? forward.authority_ms > 0 : forward.open;
    if (confirmed && forward.quiet_ms > 0) {
        write_quiet(&forward, out, size);
        return false;
    }
    if (forward.leads && confirmed) return table_is_ready(s, out, size);
    const char *trouble = sl_transactions_trouble(s);
    if (!forward.leads && forward.open) {
        /* The keeper may not reach etcd either, and then it grants nothing. */
        snprintf(out, size, "no keeper is certain: %s", trouble);
        return *trouble == '\0';
    }
    snprintf(out, size, "no keeper: %s", sl_forward_why_not(s));
    return false;
}
