/* commands_cluster.c - NODES; and the commands about locks where a majority of nodes decides.
 *
 * The same words as on one server, and the same replies; what a majority cannot do is
 * refused, with what to do instead. */
#include <inttypes.h>
#include <string.h>

#include "majority/membership.h"
#include "server/arbiter/cluster.h"
#include "server/net/membership_text.h"
#include "server/observe/inspect.h"

/* --- What a majority cannot do ------------------------------------------------------- */

static void say_majority(struct call *call, const char *text)
{
    call->s->stats.refusals++;
    sl_say(call, sluice_status_word(SLUICE_EMAJORITY), text);
}

/* NULL: it can. */
static const char *not_for_a_majority(const struct sl_want *w)
{
    if (w->shared)
        return "a majority of nodes grants to one holder alone: without SHARED, or on "
               "one server";
    if (w->units != 1 || (uint64_t)w->per * w->buckets != 1)
        return "a majority of nodes cannot count: without PER, BUCKETS and UNITS, or "
               "on "
               "one server";
    if (w->lease_ms == 0)
        return "a majority of nodes grants for a time only: add LEASE ms, and EXTEND "
               "it";
    return NULL;
}

void sl_cluster_refuse(struct call *call)
{
    say_majority(call,
                 sl_word_is(call->at[0], "BREAK")
                     ? "no node decides alone: RELEASE key fence gives a grant back, "
                       "from any connection"
                     : "no node decides alone: tell those who ask, or stop a majority "
                       "of the nodes");
}

/* --- Asking ---------------------------------------------------------------------------- */

void sl_cluster_acquire(struct call *call, const struct sl_want *want)
{
    const char *why = not_for_a_majority(want);
    if (why != NULL) {
        say_majority(call, why);
        return;
    }
    sl_cluster_ask(call, &(struct sl_node_request){.type = SL_NODE_ACQUIRE,
                                                   .session = sl_conn_id(call->c),
                                                   .key = want->key,
                                                   .lease_ms = want->lease_ms,
                                                   .wait_ms = want->wait_ms,
                                                   .priority = want->priority,
                                                   .steal = want->steal,
                                                   .force_ms = want->force_ms,
                                                   .value = want->value,
                                                   .note = want->note});
}

/* What is asked about the key of a command. */
static struct sl_node_request about_key(const struct call *call, enum sl_node_verb type)
{
    return (struct sl_node_request){
        .type = type, .session = sl_conn_id(call->c), .key = call->at[1]};
}

void sl_cluster_release(struct call *call, sl_fence fence)
{
    struct sl_node_request ask = about_key(call, SL_NODE_RELEASE);
    ask.fence = fence;
    sl_cluster_ask(call, &ask);
}

void sl_cluster_extend(struct call *call, sl_fence fence, sl_ms lease_ms,
                       struct sl_bytes value)
{
    struct sl_node_request ask = about_key(call, SL_NODE_EXTEND);
    ask.fence = fence;
    ask.lease_ms = lease_ms;
    ask.value = value;
    sl_cluster_ask(call, &ask);
}

void sl_cluster_check(struct call *call, sl_fence fence)
{
    struct sl_node_request ask = about_key(call, SL_NODE_CHECK);
    ask.fence = fence;
    sl_cluster_ask(call, &ask);
}

void sl_cluster_await(struct call *call, bool want_free, sl_ms wait_ms)
{
    struct sl_node_request ask = about_key(call, SL_NODE_AWAIT);
    ask.want_free = want_free;
    ask.wait_ms = wait_ms;
    sl_cluster_ask(call, &ask);
}

void sl_cluster_explain(struct call *call)
{
    struct sl_node_request ask = about_key(call, SL_NODE_VOTES);
    sl_cluster_ask(call, &ask);
}

/* --- READ -------------------------------------------------------------------------------- */

static void put_read(struct sl_resp_writer *w, const struct sl_node_copy *copy)
{
    if (copy == NULL || !copy->held) {
        sl_resp_null_array(w);
        return;
    }
    sl_resp_array(w, 3);
    sl_resp_bulk(w, copy->value);
    sl_resp_integer(w, (int64_t)copy->fence);
    sl_resp_integer(w, copy->left_ms);
}

void sl_cluster_read(struct call *call, bool majority)
{
    struct sl_node_request ask = about_key(call, SL_NODE_READ);
    struct sl_node_copy copy;
    if (majority) sl_cluster_ask(call, &ask);
    else {
        bool held = sl_node_copy(sl_cluster_node(call->s), call->s->now, call->at[1],
                                 &copy);
        put_read(call->out, held ? &copy : NULL);
    }
}

/* --- EXPLAIN ----------------------------------------------------------------------------- */

#define WORDS_MAX (SL_NODES_MAX + 4)
#define WORD_BYTES 160

struct sight {
    const struct sl_node_answer *a;
    uint32_t needed;
    uint32_t answered; /* Nodes that said what they have. */
    const struct sl_node_copy
        *of;       /* One of those that a majority has; NULL: there is none. */
    sl_ms left_ms; /* So long a majority has it. */
    bool reserved;
    uint32_t waiters;
};

/* How long so many nodes have the lease of this fence: the least of the longest. */
static sl_ms held_by(const struct sl_node_answer *a, sl_fence fence, uint32_t needed)
{
    sl_ms least = -1;
    for (uint32_t i = 0; i < a->copy_count; i++) {
        uint32_t longer = 0;
        if (!a->copies[i].held || a->copies[i].fence != fence) continue;
        for (uint32_t j = 0; j < a->copy_count; j++)
            if (a->copies[j].held && a->copies[j].fence == fence &&
                a->copies[j].left_ms >= a->copies[i].left_ms)
                longer++;
        if (longer >= needed && a->copies[i].left_ms > least)
            least = a->copies[i].left_ms;
    }
    return least;
}

static void look_at(struct sight *t, const struct sl_node_answer *a)
{
    t->a = a;
    t->needed = a->copy_count / 2 + 1;
    for (uint32_t i = 0; i < a->copy_count; i++) {
        const struct sl_node_copy *copy = &a->copies[i];
        if (copy->verdict == SL_VERDICT_YES) t->answered++;
        if (copy->reserved) t->reserved = true;
        sl_ms left = copy->held ? held_by(a, copy->fence, t->needed) : -1;
        if (left < 0 || t->of != NULL) continue;
        t->of = copy;
        t->left_ms = left;
    }
}

static const char *said(const struct sl_node_copy *copy)
{
    if (copy->verdict == SL_VERDICT_NONE) return "no answer";
    if (copy->verdict == SL_VERDICT_SILENT) return "silent";
    if (copy->verdict != SL_VERDICT_YES) return "another list";
    return copy->held ? "held" : "free";
}

static void put_node(struct sl_resp_writer *w, const struct sl_node_copy *copy)
{
    bool timed = copy->held || copy->verdict == SL_VERDICT_SILENT;
    sl_resp_map(w, 7);
    sl_put_number(w, "node", copy->node);
    sl_put_text(w, "says", said(copy));
    sl_put_number(w, "fence", copy->held ? (int64_t)copy->fence : 0);
    sl_put_number(w, "left_ms", timed ? copy->left_ms : -1);
    sl_put_number(w, "agreed", copy->held && copy->agreed);
    sl_put_number(w, "reserved", copy->reserved);
    sl_put_number(w, "wanted", copy->reserved ? copy->wanted : 0);
}

static void node_in_words(const struct sl_node_copy *copy, char *out)
{
    if (copy->verdict == SL_VERDICT_NONE)
        snprintf(out, WORD_BYTES, "node %" PRIu32 " does not answer", copy->node);
    else if (copy->verdict == SL_VERDICT_SILENT)
        snprintf(out, WORD_BYTES,
                 "node %" PRIu32 " has started and does not vote for %" PRId64
                 " ms: old leases may run",
                 copy->node, copy->left_ms);
    else if (copy->verdict != SL_VERDICT_YES)
        snprintf(out, WORD_BYTES, "node %" PRIu32 " goes by another list of nodes",
                 copy->node);
    else if (!copy->held)
        snprintf(out, WORD_BYTES, "node %" PRIu32 " knows of no holder", copy->node);
    else
        snprintf(out, WORD_BYTES,
                 "node %" PRIu32 " has fence %" PRIu64 " for %" PRId64 " ms%s",
                 copy->node, copy->fence, copy->left_ms,
                 copy->agreed ? "" : ", perhaps of one who only tried");
}

/* What one would say if asked. Returns how many sentences; writes them, if out is there. */
static size_t sentences(const struct sight *t, struct sl_resp_writer *out)
{
    char text[WORDS_MAX][WORD_BYTES];
    size_t n = 0;
    if (t->of != NULL)
        snprintf(text[n++], WORD_BYTES,
                 "1 holds it: a majority of %" PRIu32 " nodes has it",
                 t->a->copy_count);
    else if (t->answered < t->needed)
        snprintf(text[n++], WORD_BYTES,
                 "who holds it is not known: %" PRIu32 " of %" PRIu32
                 " nodes told what they have, and %" PRIu32 " are needed",
                 t->answered, t->a->copy_count, t->needed);
    else snprintf(text[n++], WORD_BYTES, "nobody holds it");
    if (t->waiters > 0)
        snprintf(text[n++], WORD_BYTES, "%" PRIu32 " %s for it at this node",
                 t->waiters, t->waiters == 1 ? "waits" : "wait");
    if (t->reserved)
        snprintf(text[n++], WORD_BYTES, "a thief has reserved it: its holder is asked");
    for (uint32_t i = 0; i < t->a->copy_count; i++)
        node_in_words(&t->a->copies[i], text[n++]);
    for (size_t i = 0; out != NULL && i < n; i++) sl_resp_text(out, text[i]);
    return n;
}

/* A fence is the wall clock's, or near it. */
static sl_ms since(const struct server *s, sl_fence fence)
{
    return s->now.wall_us > fence ? (sl_ms)((s->now.wall_us - fence) / 1000) : 0;
}

static void put_holders(struct call *call, const struct sight *t)
{
    sl_resp_text(call->out, "holders");
    sl_resp_array(call->out, t->of != NULL ? 1 : 0);
    if (t->of == NULL) return;
    const struct sl_grant_view v = {.leased = true,
                                    .fence = t->of->fence,
                                    .units = 1,
                                    .per = 1,
                                    .buckets = 1,
                                    .priority = t->of->priority,
                                    .left_ms = t->left_ms,
                                    .since_ms = since(call->s, t->of->fence),
                                    .asked = t->reserved,
                                    .value = t->of->value,
                                    .note = t->of->note};
    sl_put_holder(call->out, &v, "by majority");
}

static void why_waits(const struct sight *t, char *out, size_t n)
{
    if (t->of != NULL)
        snprintf(out, n, "it is held, for %" PRId64 " ms if it is not extended",
                 t->left_ms);
    else if (t->answered < t->needed) snprintf(out, n, "too few nodes vote");
    else snprintf(out, n, "it is next, or asks again soon");
}

static void put_waiters(struct call *call, const struct sight *t, struct sl_bytes key)
{
    struct sl_waiter_view found;
    char text[WORD_BYTES];
    uint32_t n = t->waiters < SL_SHOWN_MAX ? t->waiters : SL_SHOWN_MAX;
    why_waits(t, text, sizeof text);
    sl_resp_text(call->out, "waiters");
    sl_resp_array(call->out, n);
    for (uint32_t i = 0; i < n; i++) {
        sl_node_waiter(sl_cluster_node(call->s), call->s->now, key, i, &found);
        const struct sl_grant_view v = {.waits = true,
                                        .steals = found.steals,
                                        .session_id = found.session,
                                        .units = 1,
                                        .per = 1,
                                        .buckets = 1,
                                        .priority = found.priority,
                                        .left_ms = found.left_ms,
                                        .since_ms = found.since_ms,
                                        .note = found.note};
        sl_put_waiter(call->s, call->out, &v, text);
    }
}

/* As on one server, and what each node says. */
static void put_votes(struct call *call, struct sl_bytes key,
                      const struct sl_node_answer *a)
{
    struct sl_resp_writer *w = call->out;
    struct sight t = {.waiters = sl_node_waiters(sl_cluster_node(call->s), key)};
    look_at(&t, a);
    sl_call_cost(call, 50 + t.waiters / 16);
    sl_resp_map(w, 10);
    sl_put_bytes(w, "key", key);
    sl_put_number(w, "held", t.of != NULL);
    sl_put_number(w, "shared", 0);
    sl_put_number(w, "drained", 0);
    sl_put_number(w, "holders_count", t.of != NULL);
    sl_put_number(w, "waiters_count", t.waiters);
    put_holders(call, &t);
    put_waiters(call, &t, key);
    sl_resp_text(w, "nodes");
    sl_resp_array(w, a->copy_count);
    for (uint32_t i = 0; i < a->copy_count; i++) put_node(w, &a->copies[i]);
    sl_resp_text(w, "words");
    sl_resp_array(w, sentences(&t, NULL));
    sentences(&t, w);
}

/* --- Replies ------------------------------------------------------------------------------- */

static void say_no_quorum(struct call *call, enum sl_node_verb type,
                          const struct sl_node_answer *a)
{
    bool held = type == SL_NODE_EXTEND || type == SL_NODE_CHECK;
    char text[240];
    if (a->members == 0)
        snprintf(text, sizeof text,
                 "this node is on no list of nodes: NODES ADD it on a member, or start "
                 "a new cluster with --bootstrap");
    else if (held && a->answered >= a->needed)
        snprintf(text, sizeof text,
                 "of %" PRIu32 " nodes %" PRIu32 " have this lease and %" PRIu32
                 " do not; %" PRIu32 " are needed, and too few others answered in "
                 "time; ask again, or another node",
                 a->members, a->have, a->lack, a->needed);
    else
        snprintf(text, sizeof text,
                 "%" PRIu32 " of %" PRIu32 " nodes answered in time, and %" PRIu32
                 " are needed; ask again, or another node",
                 a->answered, a->members, a->needed);
    sl_say(call, sluice_status_word(SLUICE_ENOQUORUM), text);
}

static void say_reason(struct call *call, const struct sl_node_answer *a)
{
    char text[sizeof a->reason + 40];
    int n = snprintf(text, sizeof text, "%s", a->reason);
    if (a->left_ms > 0)
        snprintf(text + n, sizeof text - (size_t)n, ", in %" PRId64 " ms", a->left_ms);
    sl_say(call, sluice_status_word(SLUICE_ENODES), text);
}

static void say_problem(struct call *call, enum sl_node_verb type,
                        const struct sl_node_answer *a)
{
    char text[160];
    if (a->status == SLUICE_ENOQUORUM) say_no_quorum(call, type, a);
    else if (a->status == SLUICE_ENODES) say_reason(call, a);
    else if (*a->reason != '\0') sl_say(call, sluice_status_word(a->status), a->reason);
    else if (a->status == SLUICE_ERECOVERING) {
        snprintf(text, sizeof text,
                 "too many nodes have just started, and old leases may run for %" PRId64
                 " ms; ask again then, or WAIT",
                 a->left_ms);
        sl_say(call, sluice_status_word(SLUICE_ERECOVERING), text);
    } else sl_say_status(call, a->status);
}

static void count_acquire(struct sl_stats *st, const struct sl_asking *q,
                          const struct sl_node_answer *a)
{
    bool granted = a->status == SLUICE_OK;
    bool timed_out = a->status == SLUICE_EFULL && q->wait_ms > 0;
    bool waited = timed_out || (granted && a->grant.waited_ms > 0);
    if (granted) st->grants++;
    else if (!timed_out) st->refusals++;
    if (waited) st->waits++;
    if (timed_out) st->waits_timed_out++;
    if (!granted || !waited) return;
    st->grants_after_wait++;
    sl_histogram_add(&st->wait_ms, a->grant.waited_ms);
}

static void reply_acquire(struct call *call, const struct sl_asking *q,
                          const struct sl_node_answer *a)
{
    count_acquire(&call->s->stats, q, a);
    if (a->status == SLUICE_OK) sl_put_grant(call->out, &a->grant);
    else if (a->status == SLUICE_EFULL) sl_resp_null_array(call->out);
    else say_problem(call, q->type, a);
}

static void count_other(struct sl_stats *st, const struct sl_asking *q,
                        const struct sl_node_answer *a)
{
    if (q->type == SL_NODE_EXTEND) st->extends++;
    else if (q->type == SL_NODE_RELEASE && a->number == 1) st->releases++;
}

void sl_cluster_reply(struct call *call, const struct sl_asking *q,
                      const struct sl_node_answer *a)
{
    if (q->type == SL_NODE_ACQUIRE) reply_acquire(call, q, a);
    else if (a->status != SLUICE_OK) say_problem(call, q->type, a);
    else if (q->type == SL_NODE_READ)
        put_read(call->out, a->copy_count > 0 ? a->copies : NULL);
    else if (q->type == SL_NODE_VOTES) put_votes(call, q->key, a);
    else {
        count_other(&call->s->stats, q, a);
        sl_resp_integer(call->out, a->number);
    }
}

/* --- NODES ---------------------------------------------------------------------------------- */

static void put_nodes(struct call *call)
{
    struct sl_node *node = sl_cluster_node(call->s);
    const struct sl_membership *list = sl_node_membership(node);
    struct sl_node_stats stats;
    struct sl_peer_view peer;
    struct sl_resp_writer *w = call->out;
    sl_node_stats(node, call->s->now, &stats);
    sl_resp_map(w, 4);
    sl_put_number(w, "node", call->s->settings->node);
    sl_put_number(w, "version", (int64_t)list->version);
    sl_put_number(w, "changing", stats.changing);
    sl_resp_text(w, "nodes");
    sl_resp_array(w, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct sl_member *m = &list->at[i];
        bool self = m->id == (sl_node_id)call->s->settings->node;
        sl_node_peer(node, m->id, &peer);
        sl_resp_map(w, 5);
        sl_put_number(w, "id", m->id);
        sl_put_text(w, "address", m->address);
        sl_put_text(w, "state", self ? "self" : peer.linked ? "up" : "down");
        sl_put_number(w, "rtt_ms", self ? 0 : peer.rtt_ms);
        sl_put_number(w, "version", (int64_t)(self ? list->version : peer.version));
    }
}

static void add_node(struct call *call, sl_node_id id)
{
    char address[SL_ADDRESS_BYTES];
    const char *wrong = sl_address_wrong(call->at[3]);
    if (wrong != NULL) {
        sl_say(call, sluice_status_word(SLUICE_ENODES), wrong);
        return;
    }
    memcpy(address, call->at[3].at, call->at[3].n);
    address[call->at[3].n] = '\0';
    sl_cluster_ask(call, &(struct sl_node_request){.type = SL_NODE_ADD,
                                                   .session = sl_conn_id(call->c),
                                                   .node = id,
                                                   .address = address});
}

void sl_do_nodes(struct call *call)
{
    int64_t id = 0;
    if (call->s->cluster == NULL) {
        sl_say(call, sluice_status_word(SLUICE_ENODES),
               "this server is alone, not a node of a cluster: see --node and --peers");
        return;
    }
    bool add = call->n == 4 && sl_word_is(call->at[1], "ADD");
    bool remove = call->n == 3 && sl_word_is(call->at[1], "REMOVE");
    if ((add || remove) && !sl_parse_number(call->at[2], 1, SL_NODE_ID_MAX, &id))
        sl_say_syntax(call, "a node is a number from 1 to 15");
    else if (add) add_node(call, (sl_node_id)id);
    else if (remove)
        sl_cluster_ask(call, &(struct sl_node_request){.type = SL_NODE_REMOVE,
                                                       .session = sl_conn_id(call->c),
                                                       .node = (sl_node_id)id});
    else if (call->n == 1) put_nodes(call);
    else sl_say_syntax(call, "ADD id address, or REMOVE id");
}
