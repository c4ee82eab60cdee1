/* majority_start.c - starts and stops a node, and writes its file in the data directory. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "majority/membership.h"
#include "server/arbiter/majority_internal.h"
#include "server/data/node_file.h"
#include "server/data/state_file.h"
#include "server/net/links.h"
#include "server/net/membership_text.h"
#include "server/observe/log.h"
#include "server/recorder.h"

static int fail(const struct sl_majority *m, const char *what, const char *why)
{
    return sl_directory_fail(&m->directory, what, why);
}

/* --- The file ----------------------------------------------------------------------- */

static void in_worker(uv_work_t *work)
{
    struct sl_majority *m = ((struct server *)work->data)->majority;
    m->result = sl_node_file_write(m->writer, m->directory.fd, &m->next);
}

static void written(struct server *s)
{
    static struct sl_log_kind kind;
    struct sl_majority *m = s->majority;
    if (m->result == 0) {
        if (m->failed != 0)
            sl_log(SL_LOG_INFO, "the node file can be written again", NULL);
        m->writes++;
        if (m->writes == 1) sl_directory_mark(&m->directory, SL_DIRECTORY_OF_NODE);
    } else {
        m->errors++;
        sl_log_often(
            &kind, s->now.ms, SL_LOG_ERROR,
            "cannot write the node file; until this succeeds, this node casts no "
            "vote that must be stored on disk; it retries every second",
            "directory", m->directory.path, "error", strerror(m->result), NULL);
    }
    m->failed = m->result;
    sl_node_written(m->node, s->now, m->result == 0);
}

static void after_work(uv_work_t *work, int status)
{
    struct server *s = work->data;
    sl_server_read_clock(s);
    s->majority->writing = false;
    if (status != 0) s->majority->result = ECANCELED;
    written(s);
    sl_server_settle(s);
}

void sl_majority_write(struct server *s, const struct sl_node_durable *d)
{
    struct sl_majority *m = s->majority;
    m->next = *d;
    m->work.data = s;
    m->writing = !m->starting &&
                 uv_queue_work(s->loop, &m->work, in_worker, after_work) == 0;
    if (m->writing) return;
    in_worker(&m->work);
    written(s);
}

/* --- Start: the file of the last run -------------------------------------------------------- */

#define AS_IF_LOST                                                              \
    "send NODES REMOVE to another node, empty the directory, start this node, " \
    "and send NODES ADD (docs/commands/nodes.md)"
#define AS_IF_LOST_STATE                                                               \
    "when the longest lease that you use has expired, remove the files \"state\" and " \
    "\"lock\", and start the server again (docs/restart.md)"

/* Convert a directory that a single server has used. The node votes only for fences above the last
 * fence of that server, and does not vote until the leases of that server have expired. */
static int convert_directory(struct sl_majority *m, enum sl_directory_use use,
                             struct sl_node_start *start)
{
    struct sl_state_reading r;
    enum sl_found found = sl_state_read(&r, m->directory.fd);
    if (found == SL_FOUND_NOTHING) {
        m->was_server = use == SL_DIRECTORY_OF_SERVER;
        return 0; /* The journal has the rest. */
    }
    if (found != SL_FOUND)
        return sl_directory_refuse(&m->directory, "state", found, AS_IF_LOST_STATE);
    start->floor = r.kept.fence_limit;
    start->silence_ms = r.kept.lease_longest_ms > r.kept.quiet_ms
                            ? r.kept.lease_longest_ms
                            : r.kept.quiet_ms;
    sl_state_read_end(&r);
    return 0;
}

static int read_directory(struct sl_majority *m, struct sl_node_start *start)
{
    enum sl_directory_use use = sl_directory_use(&m->directory);
    enum sl_found found = sl_node_file_read(m->directory.fd, &start->kept,
                                            &m->has_journal);
    if (found == SL_FOUND_NOTHING && use != SL_DIRECTORY_OF_NODE)
        return convert_directory(m, use, start);
    if (found != SL_FOUND)
        return sl_directory_refuse(&m->directory, "node", found, AS_IF_LOST);
    if (start->kept.id == start->id) return 0;
    char id[24];
    snprintf(id, sizeof id, "%" PRIu32, start->kept.id);
    return fail(m,
                "data: this directory belongs to another node; start the server with "
                "the --node of that node, or choose another --data",
                id);
}

/* --- Start: the membership ------------------------------------------------------------------- */

static int read_peers(const struct server *s, struct sl_membership *out)
{
    const char *text = s->settings->peers;
    struct sl_bytes where;
    const char *wrong = NULL;
    *out = (struct sl_membership){0};
    if (*text != '\0')
        wrong = sl_membership_read(out, (struct sl_bytes){text, strlen(text)}, &where);
    return wrong == NULL ? 0 : fail(s->majority, "peers: the list is invalid", wrong);
}

/* Log the membership in use, and how it differs from the settings. */
static void log_membership(const struct server *s, const struct sl_membership *kept,
                           const struct sl_membership *peers)
{
    char ours[SL_MEMBERS_TEXT], version[24];
    struct sl_membership given = *peers;
    given.version = kept->version;
    given.added = kept->added;
    given.cluster = kept->cluster;
    for (uint32_t i = 0; i < given.count && i < kept->count; i++)
        given.at[i].birth = kept->at[i].birth; /* The settings do not contain births. */
    sl_membership_write(kept, ours);
    snprintf(version, sizeof version, "%" PRIu64, kept->version);
    if (s->settings->bootstrap)
        sl_log(SL_LOG_INFO,
               "bootstrap: ignored, because this node already belongs to a cluster",
               NULL);
    if (peers->count > 0 && !sl_membership_equal(kept, &given))
        sl_log(SL_LOG_WARN,
               "peers: ignored, because the cluster has agreed on another membership",
               "nodes", ours, "version", version, NULL);
    else sl_log(SL_LOG_INFO, "membership", "nodes", ours, "version", version, NULL);
}

static void log_how_to_add(const struct server *s, const struct sl_membership *peers,
                           const char *what)
{
    char text[200];
    sl_node_id id = (sl_node_id)s->settings->node;
    int at = sl_membership_find(peers, id);
    snprintf(text, sizeof text,
             "%s; to add it, send NODES ADD %" PRIu32 " %s to a member", what, id,
             at >= 0 ? peers->at[at].address : "<host:node-port>");
    sl_log(SL_LOG_WARN, text, NULL);
}

static int choose_membership(const struct server *s, const struct sl_membership *peers,
                             struct sl_node_start *start)
{
    const struct sl_membership *kept = &start->kept.force;
    if (kept->version > 0) {
        log_membership(s, kept, peers);
        if (sl_membership_find(kept, start->id) < 0)
            log_how_to_add(s, peers, "this node is no longer a member of its cluster");
        return 0;
    }
    if (!s->settings->bootstrap) {
        log_how_to_add(s, peers, "this node is not a member of a cluster yet");
        return 0;
    }
    if (sl_membership_find(peers, start->id) < 0)
        return fail(
            s->majority,
            "bootstrap: peers must list all nodes of the cluster, including this one",
            s->settings->peers);
    start->bootstrap = *peers;
    start->bootstrap.version = 1;
    return 0;
}

/* --- Start ---------------------------------------------------------------------------------- */

static int draw_number(uint64_t *out)
{
    *out = 0;
    while (*out == 0)
        if (getrandom(out, sizeof *out, 0) != sizeof *out) return -1;
    return 0;
}

static struct sl_node_limits limits_of(const struct sl_settings *set)
{
    struct sl_node_limits l = sl_node_limits_default;
    l.keys_max = (uint32_t)set->keys_max;
    l.waiters_max = (uint32_t)set->waiters_max;
    l.key_bytes_max = (uint32_t)set->key_bytes_max;
    l.value_bytes_max = (uint32_t)set->value_bytes_max;
    l.lease_min_ms = set->lease_ms_min;
    l.lease_max_ms = set->lease_ms_max;
    l.requests_max = (uint32_t)set->requests_max;
    l.request_keep_ms = set->request_keep_ms;
    l.linger_ms = set->linger_ms;
    l.drains_max = (uint32_t)set->drains_max;
    return l;
}

/* --- Start: the journal ---------------------------------------------------------------------- */

/* A few items are copied in each loop iteration. */
#define ITEMS_A_COPY 100

static int copy_items(struct server *s, bool first)
{
    struct sl_majority *m = s->majority;
    struct sl_item item;
    if (first) m->copy_cursor = 0;
    for (int i = 0; i < ITEMS_A_COPY; i++) {
        if (!sl_node_item(m->node, &m->copy_cursor, &item)) return 0;
        sl_recorder_copy(s, &item);
    }
    return 1;
}

static void became_durable(struct server *s)
{
    sl_node_synced(s->majority->node, s->now);
}

/* The node keeps back what depends on the journal, and does not vote, until the journal works
 * again. */
static void journal_failed(struct server *s)
{
    (void)s;
}

static const struct sl_recorder_owner recorder_owner = {
    .durable = became_durable, .failed = journal_failed, .copy = copy_items};

/* The journal of a single server: wait until its leases have expired, and use fences above its
 * limit. */
static void convert_journal(const struct server *s, struct sl_node_start *start)
{
    const struct sl_recovery *r = sl_recorder_recovery(s->recorder);
    sl_ms until_ms = r->wait_until_ms;
    struct sl_item item;
    uint64_t cursor = 0;
    while (sl_recovery_next(r, &cursor, &item))
        if (item.kind == SL_ITEM_GRANT && item.bound_ms > until_ms)
            until_ms = item.bound_ms;
    if (until_ms - s->now.ms > start->silence_ms)
        start->silence_ms = until_ms - s->now.ms;
    if (r->fence_limit > start->floor) start->floor = r->fence_limit;
}

/* Log what the node found in its directory, other than its own journal. */
static void log_origin(const struct sl_majority *m, const struct sl_node_start *start)
{
    char ms[24];
    snprintf(ms, sizeof ms, "%" PRId64, start->silence_ms);
    if (start->floor > 0)
        sl_log(SL_LOG_INFO,
               "data: the directory of a single server is now the directory of this "
               "node; the node does not vote until the leases of the server have "
               "expired",
               "directory", m->directory.path, "ms", ms, NULL);
    else if (start->kept.birth == 0)
        sl_log(SL_LOG_INFO, "data: the directory contains no earlier state",
               "directory", m->directory.path, NULL);
}

static int open_journal(struct server *s, struct sl_node_start *start)
{
    const struct sl_majority *m = s->majority;
    if (sl_recorder_open(s, SL_JOURNAL_OF_NODE, &recorder_owner) != 0) return -1;
    const struct sl_recovery *r = sl_recorder_recovery(s->recorder);
    bool found = sl_recorder_found(s->recorder);
    if (m->has_journal && !found && !sl_recorder_converts(s->recorder))
        return fail(m,
                    "data: the file \"journal\" of this node is missing; " AS_IF_LOST,
                    "no such file");
    if (sl_recorder_converts(s->recorder)) convert_journal(s, start);
    else if (m->was_server && !found)
        return fail(
            m,
            "data: the journal of the single server that used this directory is "
            "missing; " AS_IF_LOST_STATE,
            "no such file");
    if (!found) log_origin(m, start);
    start->journal = sl_recorder_journal(s->recorder);
    start->same_life = found && r->same_life;
    start->wait_until_ms = found ? r->wait_until_ms : 0;
    start->wait_ms = r->volatile_ms;
    return 0;
}

static int restore(struct server *s)
{
    const struct sl_recovery *r = sl_recorder_recovery(s->recorder);
    struct sl_majority *m = s->majority;
    struct sl_item item;
    uint64_t cursor = 0;
    char items[24];
    while (sl_recorder_next(s, &cursor, &item)) {
        int status = sl_node_restore(m->node, s->now, &item, r->shift_ms);
        if (status != SLUICE_OK)
            return fail(m, "data: cannot restore the journal of this node",
                        sluice_status_word(status));
    }
    sl_node_restored(m->node);
    snprintf(items, sizeof items, "%zu", r->items);
    if (sl_recorder_found(s->recorder))
        sl_log(SL_LOG_INFO, "data: the votes of the last run are restored", "items",
               items, "life", r->same_life ? "the same" : r->why_other, NULL);
    return 0;
}

/* Write the file of the node if it must be written. */
static void write_file(struct server *s)
{
    struct sl_node_order o;
    struct sl_majority *m = s->majority;
    if (sl_node_order_file(m->node, &o)) sl_majority_write(s, o.durable);
}

/* Create the node, and write its files before it serves any client. The journal of a single server
 * is replaced only when the file of the node contains what must be remembered of it. In all other
 * cases the journal is written first, because the file of the node says that there is one. */
static int begin(struct server *s, struct sl_node_start *start)
{
    struct sl_majority *m = s->majority;
    m->starting = true;
    if (open_journal(s, start) != 0) return -1;
    m->node = sl_node_new(start, s->now);
    if (m->node == NULL) return fail(m, "cannot start", "out of memory");
    if (restore(s) != 0) return -1;
    if (sl_recorder_converts(s->recorder)) write_file(s);
    if (m->failed != 0) return sl_directory_fail_disk(&m->directory, m->failed);
    if (sl_recorder_begin(s, 0, start->wait_until_ms) != 0) return -1;
    if (!m->has_journal) sl_node_rewrite(m->node);
    if (sl_links_start(s, &sl_majority_links) != 0) return -1;
    sl_majority_set_links(s);
    do {
        s->effects_left = UINT32_MAX;
    } while (!m->arbiter.kind->pump(&m->arbiter));
    m->starting = false;
    return m->failed == 0 ? 0 : sl_directory_fail_disk(&m->directory, m->failed);
}

int sl_majority_start(struct server *s)
{
    struct sl_majority *m = calloc(1, sizeof *m);
    struct sl_node_start start = {.id = (sl_node_id)s->settings->node,
                                  .seed = s->seed,
                                  .hash_key = s->hash_key,
                                  .limits = limits_of(s->settings)};
    struct sl_membership peers;
    s->majority = m;
    if (m != NULL) sl_majority_init(m, s);
    if (m == NULL || (m->writer = sl_textfile_writer_new()) == NULL) {
        sl_log(SL_LOG_ERROR, "cannot start", "error", "out of memory", NULL);
        return -1;
    }
    m->directory = s->directory;
    if (!s->has_directory)
        return fail(m, "data: a node needs a data directory; set --data DIRECTORY",
                    "no directory");
    if (read_peers(s, &peers) != 0 || read_directory(m, &start) != 0 ||
        choose_membership(s, &peers, &start) != 0)
        return -1;
    if (draw_number(&start.epoch) != 0 || draw_number(&start.birth) != 0)
        return fail(m, "cannot read random numbers", strerror(errno));
    sl_server_read_clock(s);
    return begin(s, &start);
}

int sl_majority_stop(struct server *s)
{
    sl_links_stop(s);
    while (s->majority->writing) uv_run(s->loop, UV_RUN_ONCE);
    return sl_recorder_stop(s, true);
}

/* --- Inspection ------------------------------------------------------------------------------- */

bool sl_majority_is_member(const struct server *s)
{
    const struct sl_membership *list = sl_node_membership(s->majority->node);
    return sl_membership_find(list, (sl_node_id)s->settings->node) >= 0;
}

void sl_majority_inspect_file(const struct server *s, struct sl_majority_view *out)
{
    const struct sl_majority *m = s->majority;
    const struct sl_membership *list = sl_node_membership(m->node);
    *out = (struct sl_majority_view){.directory = m->directory.path,
                                     .writes = m->writes,
                                     .errors = m->errors,
                                     .failed = m->failed};
    for (uint32_t i = 0; i < list->count; i++) {
        struct sl_peer_view peer;
        sl_node_peer(m->node, list->at[i].id, &peer);
        if (list->at[i].id != (sl_node_id)s->settings->node && peer.linked)
            out->nodes_up++;
    }
}

size_t sl_majority_bytes(const struct server *s)
{
    return s->majority == NULL ? 0 : sl_node_bytes(sl_majority_node(s));
}
