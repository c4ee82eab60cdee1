#include "server/arbiter/cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "majority/membership.h"
#include "server/data/directory.h"
#include "server/data/node_file.h"
#include "server/data/state_file.h"
#include "server/forward/forward.h"
#include "server/net/links.h"
#include "server/net/membership_text.h"
#include "server/observe/log.h"

struct sl_cluster {
    struct sl_node *node;
    struct sl_directory folder;
    struct sl_textfile_writer *writer;
    struct sl_node_durable next; /* What is being written. */
    bool starting;               /* What is to be written is written at once. */
    bool writing;                /* Then `result` and `writer` are the worker's. */
    int result;
    int failed; /* Why the last write failed; 0: it did not. */
    uint64_t writes, errors;
    uv_work_t work;
};

static int fail(const struct sl_cluster *c, const char *what, const char *why)
{
    return sl_directory_fail(&c->folder, what, why);
}

struct sl_node *sl_cluster_node(const struct server *s)
{
    return s->cluster == NULL ? NULL : s->cluster->node;
}

/* --- The file ----------------------------------------------------------------------- */

static void in_worker(uv_work_t *work)
{
    struct sl_cluster *c = ((struct server *)work->data)->cluster;
    c->result = sl_node_file_write(c->writer, c->folder.fd, &c->next);
}

static void written(struct server *s)
{
    static struct sl_log_kind kind;
    struct sl_cluster *c = s->cluster;
    if (c->result == 0) {
        if (c->failed != 0)
            sl_log(SL_LOG_INFO, "the node's file is written again", NULL);
        c->writes++;
        if (c->writes == 1) sl_directory_mark(&c->folder, SL_DIRECTORY_OF_NODE);
    } else {
        c->errors++;
        sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                     "the node's file cannot be written: it votes for nothing that is "
                     "not in it; it is tried again every second",
                     "folder", c->folder.path, "error", strerror(c->result), NULL);
    }
    c->failed = c->result;
    sl_node_written(c->node, s->now, c->result == 0);
}

static void after_work(uv_work_t *work, int status)
{
    struct server *s = work->data;
    sl_server_look_at_clock(s);
    s->cluster->writing = false;
    if (status != 0) s->cluster->result = ECANCELED;
    written(s);
    sl_server_settle(s);
}

static void write_down(struct server *s, const struct sl_node_durable *d)
{
    struct sl_cluster *c = s->cluster;
    c->next = *d;
    c->work.data = s;
    c->writing = !c->starting &&
                 uv_queue_work(s->loop, &c->work, in_worker, after_work) == 0;
    if (c->writing) return;
    in_worker(&c->work);
    written(s);
}

/* --- Requests ------------------------------------------------------------------------- */

void sl_cluster_ask(struct call *call, const struct sl_node_request *ask)
{
    struct sl_asking *q = malloc(sizeof *q + ask->key.n);
    int status = q == NULL ? SLUICE_ENOMEM
                           : sl_node_submit(call->s->cluster->node, call->s->now,
                                            sl_conn_id(call->c), ask);
    if (status != SLUICE_OK) {
        free(q);
        sl_say_status(call, status);
        return;
    }
    char *key = (char *)(q + 1);
    if (ask->key.n > 0) memcpy(key, ask->key.at, ask->key.n);
    *q = (struct sl_asking){
        .type = ask->type, .wait_ms = ask->wait_ms, .key = {key, ask->key.n}};
    call->c->request = q;
    call->c->blocked = SL_IN_CLUSTER;
    call->s->blocked_count++;
}

void sl_cluster_leave(struct conn *c)
{
    struct server *s = c->server;
    if (c->request == NULL) return;
#ifndef MUT_NODELEAVE
    if (c->request->type != SL_NODE_RELEASE)
        sl_node_withdraw(s->cluster->node, s->now, sl_conn_id(c));
#endif
    free(c->request);
    c->request = NULL;
}

bool sl_cluster_is_brief(const struct conn *c)
{
#ifdef MUT_NODEBRIEF
    return false;
#endif
    return c->request != NULL &&
           (c->request->wait_ms == 0 ||
            (c->request->type != SL_NODE_ACQUIRE && c->request->type != SL_NODE_AWAIT));
}

/* Granted to one who has hung up, though the loop has not come to read it: it will never
 * know, so the next one has it. (Without memory for that, when its lease has ended.) */
static void take_back(struct server *s, const struct sl_asking *q, sl_fence fence)
{
    const struct sl_node_request ask = {
        .type = SL_NODE_RELEASE, .key = q->key, .fence = fence};
    sl_node_submit(s->cluster->node, s->now, 0, &ask);
}

static void answer(struct server *s, uint64_t id, const struct sl_node_answer *a)
{
    const struct session *n = sl_server_session(s, id);
    struct conn *c = n != NULL ? n->conn : NULL;
    if (c == NULL || c->request == NULL) return; /* It has left. */
    struct sl_asking *q = c->request;
    struct call call = {.c = c, .s = s};
    enum sl_parting how = SL_STAYS;
    c->request = NULL;
    sl_conn_unblock(c);
#ifndef MUT_NODEGONE
    if (q->type == SL_NODE_ACQUIRE && a->status == SLUICE_OK) how = sl_conn_hung_up(c);
#endif
    if (how == SL_STAYS) {
        call.out = sl_conn_out(c);
        sl_cluster_reply(&call, q, a);
        if (c->ended) sl_conn_work(c);
    } else {
        take_back(s, q, a->grant.fence);
        sl_conn_close(c, how);
    }
    free(q);
}

/* --- Events ----------------------------------------------------------------------------- */

/* Of a grant that was taken here it is counted here, of all others where that was. */
static void count(struct server *s, const struct sl_node_event *e)
{
    struct sl_stats *st = &s->stats;
    if (e->session == 0) return;
    if (e->type == SL_NODE_EVENT_EXPIRED) st->expiries++;
    else if (e->type == SL_NODE_EVENT_ASKED) st->asks++;
    else if (e->type == SL_NODE_EVENT_WITHDRAWN) st->withdrawals++;
    else if (e->type == SL_NODE_EVENT_STOLEN) st->steals++;
    if (e->type == SL_NODE_EVENT_STOLEN && e->overlapping) st->overlaps++;
}

static void tell_event(struct server *s, const struct sl_node_event *e)
{
    const struct sl_grant grant = {.fence = e->fence,
                                   .held = 1,
                                   .lease_ms = e->lease_ms,
                                   .waited_ms = e->waited_ms,
                                   .overlapping = e->overlapping};
    char more[40];
    switch (e->type) {
        case SL_NODE_EVENT_GRANTED: sl_event_granted(s, e->key, &grant); break;
        case SL_NODE_EVENT_EXTENDED:
            snprintf(more, sizeof more, " lease_ms=%" PRId64, e->lease_ms);
            sl_event(s, e->key, "extended", e->fence, more);
            break;
        case SL_NODE_EVENT_RELEASED:
            sl_event(s, e->key, "released", e->fence, "");
            break;
        case SL_NODE_EVENT_EXPIRED:
            sl_event(s, e->key, "expired", e->fence, "");
            sl_event_to_holder(s, e->session, e->key, "expired", e->fence);
            break;
        case SL_NODE_EVENT_ASKED:
            sl_event_asked(s, e->session, e->key, e->fence, e->priority, e->left_ms);
            break;
        case SL_NODE_EVENT_WITHDRAWN:
            sl_event(s, e->key, "withdrawn", e->fence, "");
            sl_event_to_holder(s, e->session, e->key, "withdrawn", e->fence);
            break;
        case SL_NODE_EVENT_STOLEN:
            sl_event(s, e->key, "stolen", e->fence,
                     e->overlapping ? " overlapping=1" : "");
            if (e->overlapping)
                sl_event_to_holder(s, e->session, e->key, "stolen", e->fence);
            break;
        case SL_NODE_EVENT_WAITS:
            sl_event_waits(s, e->session, e->key, e->fence, e->left_ms, e->note);
            break;
    }
}

/* --- Orders ------------------------------------------------------------------------------- */

static void set_links(struct server *s)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(s->cluster->node, peers);
    sl_links_set(s, peers, n);
    sl_forward_members(s);
}

static void obey(struct server *s, const struct sl_node_order *o)
{
    switch (o->type) {
        case SL_NODE_ORDER_SEND: sl_links_send(s, o->to, o->message); break;
        case SL_NODE_ORDER_ANSWER: answer(s, o->ticket, o->answer); break;
        case SL_NODE_ORDER_EVENT:
            count(s, o->event);
            if (o->event->type == SL_NODE_EVENT_RELEASED && o->event->asked_ms >= 0)
                sl_answers_add(&s->stats.answers, o->event->asked_ms);
            tell_event(s, o->event);
            break;
        case SL_NODE_ORDER_WRITE: write_down(s, o->durable); break;
        case SL_NODE_ORDER_LINKS: set_links(s); break;
        case SL_NODE_ORDER_LOG: sl_log(SL_LOG_INFO, o->text, NULL); break;
    }
}

sl_ms sl_cluster_due(const struct server *s)
{
    return s->cluster == NULL ? SL_NEVER : sl_node_due(s->cluster->node);
}

bool sl_cluster_tell(struct server *s)
{
    struct sl_node_order o;
    if (s->cluster == NULL) return true;
    struct sl_node *n = s->cluster->node;
    if (sl_node_due(n) <= s->now.ms) sl_node_tick(n, s->now);
    while (s->effects_left > 0) {
        if (!sl_node_next(n, &o)) return sl_node_due(n) > s->now.ms;
        if (--s->effects_left % 4 == 0 && sl_server_turn_is_long(s))
            s->effects_left = 0; /* After this one. */
        obey(s, &o);
    }
    return false;
}

/* --- What links tell ------------------------------------------------------------------------ */

bool sl_cluster_linked(struct server *s, sl_node_id id, uint64_t birth,
                       const char **why)
{
    if (!sl_node_link(s->cluster->node, s->now, id, true, birth, why)) return false;
    sl_forward_linked(s, id);
    return true;
}

void sl_cluster_unlinked(struct server *s, sl_node_id id, enum sl_link_end how)
{
    const char *why;
    sl_node_link(s->cluster->node, s->now, id, false, 0, &why);
    sl_forward_unlinked(s, id, how);
}

void sl_cluster_unreached(struct server *s, sl_node_id id, enum sl_link_end how)
{
    sl_forward_unreached(s, id, how);
}

void sl_cluster_received(struct server *s, sl_node_id from, const struct sl_message *m)
{
    sl_node_receive(s->cluster->node, s->now, from, m);
}

uint64_t sl_cluster_birth(const struct server *s)
{
    return sl_node_birth(s->cluster->node);
}

/* What one node lets in another has to take. */
void sl_cluster_settings(const struct server *s, char *out, size_t n)
{
    const struct sl_settings *set = s->settings;
    snprintf(out, n,
             "lease-min=%" PRId64 "ms\nlease-max=%" PRId64 "ms\nkey-bytes-max=%" PRId64
             "\nvalue-bytes-max=%" PRId64 "\nkeys-max=%" PRId64
             "\nengine=%s\netcd-prefix=%s\nmajority-keys=%s\n",
             set->lease_ms_min, set->lease_ms_max, set->key_bytes_max,
             set->value_bytes_max, set->keys_max,
             set->engine == SL_ENGINE_ETCD ? "etcd" : "none",
             set->engine == SL_ENGINE_ETCD ? set->etcd_prefix : "", set->majority_keys);
}

/* --- Start: where the node has been --------------------------------------------------------- */

#define AS_IF_LOST                                                                   \
    "NODES REMOVE it on another node, empty the folder, start it, and NODES ADD it " \
    "(docs/commands/nodes.md)"
#define AS_IF_LOST_STATE                                                             \
    "When the longest lease that was used has ended, remove \"state\" and \"lock\" " \
    "there "                                                                         \
    "and start again (docs/restart.md)"

/* The folder was one server's until now: fences go on above its last, and nothing is voted
 * for until its leases have ended. */
static int move_in(struct sl_cluster *c, enum sl_directory_use use,
                   struct sl_node_start *start)
{
    struct sl_state_reading r;
    enum sl_found found = sl_state_read(&r, c->folder.fd);
    if (found == SL_FOUND_NOTHING && use == SL_DIRECTORY_IS_NEW) {
        sl_log(SL_LOG_INFO, "data: a first start", "folder", c->folder.path, NULL);
        return 0;
    }
    if (found != SL_FOUND)
        return sl_directory_refuse(&c->folder, "state", found, AS_IF_LOST_STATE);
#ifndef MUT_NODEFLOOR
    start->floor = r.kept.fence_limit;
#endif
    start->silence_ms = r.kept.lease_longest_ms > r.kept.quiet_ms
                            ? r.kept.lease_longest_ms
                            : r.kept.quiet_ms;
    sl_state_read_end(&r);
    char ms[24];
    snprintf(ms, sizeof ms, "%" PRId64, start->silence_ms);
    sl_log(SL_LOG_INFO,
           "data: this folder was one server's, and is a node's from now on; it votes "
           "for nothing until the longest lease given has ended",
           "folder", c->folder.path, "ms", ms, NULL);
    return 0;
}

static int read_folder(struct sl_cluster *c, struct sl_node_start *start)
{
    enum sl_directory_use use = sl_directory_use(&c->folder);
    enum sl_found found = sl_node_file_read(c->folder.fd, &start->kept);
    if (found == SL_FOUND_NOTHING && use != SL_DIRECTORY_OF_NODE)
        return move_in(c, use, start);
    if (found != SL_FOUND)
        return sl_directory_refuse(&c->folder, "node", found, AS_IF_LOST);
    if (start->kept.id == start->id) return 0;
    char id[24];
    snprintf(id, sizeof id, "%" PRIu32, start->kept.id);
    return fail(c, "data: this folder is another node's; start it with its --node", id);
}

/* --- Start: which nodes there are ------------------------------------------------------------ */

static int read_peers(const struct server *s, struct sl_membership *out)
{
    const char *text = s->settings->peers;
    struct sl_bytes where;
    const char *wrong = NULL;
    *out = (struct sl_membership){0};
    if (*text != '\0')
        wrong = sl_membership_read(out, (struct sl_bytes){text, strlen(text)}, &where);
    return wrong == NULL ? 0
                         : fail(s->cluster, "peers: this is no list of nodes", wrong);
}

/* What an operator has to know about the list that is gone by. */
static void say_list(const struct server *s, const struct sl_membership *kept,
                     const struct sl_membership *peers)
{
    char ours[SL_MEMBERS_TEXT], version[24];
    struct sl_membership told = *peers;
    told.version = kept->version;
    told.added = kept->added;
    told.cluster = kept->cluster;
    for (uint32_t i = 0; i < told.count && i < kept->count; i++)
        told.at[i].birth = kept->at[i].birth; /* Which the settings do not say. */
    sl_membership_write(kept, ours);
    snprintf(version, sizeof version, "%" PRIu64, kept->version);
    if (s->settings->bootstrap)
        sl_log(SL_LOG_INFO,
               "bootstrap is for a first start: this folder knows its cluster already",
               NULL);
    if (peers->count > 0 && !sl_membership_equal(kept, &told))
        sl_log(SL_LOG_WARN,
               "peers: the list that the nodes have agreed on is another, and counts",
               "nodes", ours, "version", version, NULL);
    else
        sl_log(SL_LOG_INFO, "the list of nodes", "nodes", ours, "version", version,
               NULL);
}

static void say_how_to_add(const struct server *s, const struct sl_membership *peers,
                           const char *what)
{
    char text[200];
    sl_node_id id = (sl_node_id)s->settings->node;
    int at = sl_membership_find(peers, id);
    snprintf(text, sizeof text, "%s: NODES ADD %" PRIu32 " %s on a member", what, id,
             at >= 0 ? peers->at[at].address : "<host:node-port>");
    sl_log(SL_LOG_WARN, text, NULL);
}

static int choose_list(const struct server *s, const struct sl_membership *peers,
                       struct sl_node_start *start)
{
    const struct sl_membership *kept = &start->kept.force;
    if (kept->version > 0) {
        say_list(s, kept, peers);
        if (sl_membership_find(kept, start->id) < 0)
            say_how_to_add(s, peers, "this node is not on the list any more");
        return 0;
    }
    if (!s->settings->bootstrap) {
        say_how_to_add(s, peers, "not on any list yet");
        return 0;
    }
    if (sl_membership_find(peers, start->id) < 0)
        return fail(s->cluster,
                    "bootstrap: peers has to name all nodes of the cluster, "
                    "this one too",
                    s->settings->peers);
    start->bootstrap = *peers;
    start->bootstrap.version = 1;
    return 0;
}

/* --- Start ---------------------------------------------------------------------------------- */

static int draw(uint64_t *out)
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
    return l;
}

/* Everything is read: be a node. What it has to write first is written here and now. */
static int begin(struct server *s, const struct sl_node_start *start)
{
    struct sl_cluster *c = s->cluster;
    c->starting = true;
    c->node = sl_node_new(start, s->now);
    if (c->node == NULL) return fail(c, "cannot start", "out of memory");
    if (sl_links_start(s) != 0) return -1;
    set_links(s);
    do {
        s->effects_left = UINT32_MAX;
    } while (!sl_cluster_tell(s));
    c->starting = false;
    return c->failed == 0 ? 0 : sl_directory_fail_disk(&c->folder, c->failed);
}

int sl_cluster_start(struct server *s)
{
    struct sl_cluster *c = calloc(1, sizeof *c);
    struct sl_node_start start = {.id = (sl_node_id)s->settings->node,
                                  .seed = s->seed,
                                  .hash_key = s->hash_key,
                                  .limits = limits_of(s->settings)};
    struct sl_membership peers;
    s->cluster = c;
    if (c == NULL || (c->writer = sl_textfile_writer_new()) == NULL) {
        sl_log(SL_LOG_ERROR, "cannot start", "error", "out of memory", NULL);
        return -1;
    }
    c->folder = s->folder;
    if (!s->has_folder)
        return fail(c, "a node needs a folder to keep its promises in: --data FOLDER",
                    "there is none");
    if (read_peers(s, &peers) != 0 || read_folder(c, &start) != 0 ||
        choose_list(s, &peers, &start) != 0)
        return -1;
    if (draw(&start.epoch) != 0 || draw(&start.birth) != 0)
        return fail(c, "no random numbers", strerror(errno));
    sl_server_look_at_clock(s);
    return begin(s, &start);
}

void sl_cluster_stop(struct server *s)
{
    sl_links_stop(s);
    while (s->cluster->writing) uv_run(s->loop, UV_RUN_ONCE);
}

/* --- Ask -------------------------------------------------------------------------------------- */

void sl_cluster_look(const struct server *s, struct sl_cluster_view *out)
{
    const struct sl_cluster *c = s->cluster;
    const struct sl_membership *list = sl_node_membership(c->node);
    *out = (struct sl_cluster_view){
        .folder = c->folder.path, .writes = c->writes, .errors = c->errors};
    for (uint32_t i = 0; i < list->count; i++) {
        struct sl_peer_view peer;
        sl_node_peer(c->node, list->at[i].id, &peer);
        if (list->at[i].id != (sl_node_id)s->settings->node && peer.linked)
            out->nodes_up++;
    }
}

size_t sl_cluster_bytes(const struct server *s)
{
    return s->cluster == NULL ? 0 : sl_node_bytes(sl_cluster_node(s));
}
