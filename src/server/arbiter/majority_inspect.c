/* majority_inspect.c - EXPLAIN and LOCKS for keys that a majority decides. */
#include <inttypes.h>
#include <string.h>

#include "server/arbiter/majority_internal.h"
#include "server/observe/inspection.h"

/* The cost of a scan, which visits many keys that are no longer held. */
#define STEPS_A_SCAN 1024u

/* A summary of the votes of all nodes about one key. */
struct votes {
    const struct sl_node_answer *a;
    uint32_t needed;
    uint32_t answered; /* Number of nodes that have reported their copy. */
    const struct sl_node_copy
        *copy;     /* A copy of the lease that a majority has; NULL: none. */
    sl_ms left_ms; /* The remaining time for which a majority has the lease. */
    bool reserved;
    uint32_t waiters;
};

/* Return the remaining time for which at least `needed` nodes have the lease with this fence. Of
 * the remaining times of all copies, this is the `needed`-th longest; -1 if fewer nodes have the
 * lease. */
static sl_ms held_ms(const struct sl_node_answer *a, sl_fence fence, uint32_t needed)
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

static void count_votes(struct votes *t, const struct sl_node_answer *a)
{
    t->a = a;
    t->needed = a->copy_count / 2 + 1;
    for (uint32_t i = 0; i < a->copy_count; i++) {
        const struct sl_node_copy *copy = &a->copies[i];
        if (copy->verdict == SL_VERDICT_YES) t->answered++;
        if (copy->reserved) t->reserved = true;
        sl_ms left = copy->held ? held_ms(a, copy->fence, t->needed) : -1;
        if (left < 0 || t->copy != NULL) continue;
        t->copy = copy;
        t->left_ms = left;
    }
}

static void write_node(const struct sl_node_copy *copy, char *out)
{
    if (copy->verdict == SL_VERDICT_NONE)
        snprintf(out, SL_SENTENCE_BYTES, "node %" PRIu32 " did not answer", copy->node);
    else if (copy->verdict == SL_VERDICT_SILENT)
        snprintf(out, SL_SENTENCE_BYTES,
                 "node %" PRIu32 " restarted and does not vote for another %" PRId64
                 " ms, because earlier leases may still be valid",
                 copy->node, copy->left_ms);
    else if (copy->verdict != SL_VERDICT_YES)
        snprintf(out, SL_SENTENCE_BYTES, "node %" PRIu32 " uses another membership",
                 copy->node);
    else if (!copy->held)
        snprintf(out, SL_SENTENCE_BYTES, "node %" PRIu32 " has no lease for this key",
                 copy->node);
    else
        snprintf(out, SL_SENTENCE_BYTES,
                 "node %" PRIu32 " has a lease with fence %" PRIu64
                 " for another %" PRId64 " ms%s",
                 copy->node, copy->fence, copy->left_ms,
                 copy->agreed ? ""
                              : "; it may belong to an ACQUIRE that was not granted");
}

/* Describe the state of the lock in sentences. */
static void add_sentences(const struct votes *t, struct sl_inspection *i)
{
    bool known = t->copy != NULL || t->answered >= t->needed;
    if (!known)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "the holder is not known: %" PRIu32 " of %" PRIu32
                 " nodes answered, %" PRIu32 " needed",
                 t->answered, t->a->copy_count, t->needed);
    if (known || t->waiters > 0) sl_inspection_summarize(i, " at this node");
    if (t->reserved)
        snprintf(sl_inspection_sentence(i), SL_SENTENCE_BYTES,
                 "reserved for a waiter with STEAL: the nodes have asked the holder to "
                 "release");
    for (uint32_t n = 0; n < t->a->copy_count; n++)
        write_node(&t->a->copies[n], sl_inspection_sentence(i));
}

/* Return the age of a grant. Its fence is approximately the wall clock time of the grant. */
static sl_ms age_ms(const struct server *s, sl_fence fence)
{
    return s->now.wall_us > fence ? (sl_ms)((s->now.wall_us - fence) / 1000) : 0;
}

static void write_wait_reason(const struct votes *t, char *out)
{
    size_t n = SL_REASON_BYTES;
    if (t->copy != NULL)
        snprintf(out, n,
                 "held: the lease expires in %" PRId64 " ms unless it is extended",
                 t->left_ms);
    else if (t->answered < t->needed)
        snprintf(out, n,
                 "no quorum: %" PRIu32 " of %" PRIu32 " nodes answered, %" PRIu32
                 " needed",
                 t->answered, t->a->copy_count, t->needed);
    else snprintf(out, n, "not held: the first waiter retries within a second");
}

/* Split the client of a lease into its name and its address. */
static void set_client(struct sl_grant_view *v, struct sl_bytes client)
{
    const char *end = client.n == 0 ? NULL : memchr(client.at, '\0', client.n);
    if (end == NULL) return;
    v->name = (struct sl_bytes){client.at, (size_t)(end - client.at)};
    v->address = (struct sl_bytes){end + 1, client.n - v->name.n - 1};
}

static struct sl_grant_view view_holder(const struct server *s,
                                        const struct sl_node_copy *copy)
{
    struct sl_grant_view v = {.leased = true,
                              .broken = copy->broken,
                              .session_id = copy->session,
                              .fence = copy->fence,
                              .units = 1,
                              .per = 1,
                              .buckets = 1,
                              .priority = copy->priority,
                              .left_ms = copy->left_ms,
                              .since_ms = age_ms(s, copy->fence),
                              .value = copy->value,
                              .note = copy->note};
    set_client(&v, copy->client);
    return v;
}

static void add_holder(const struct server *s, const struct votes *t,
                       struct sl_inspection *i)
{
    if (t->copy == NULL) return;
    struct sl_grant_view v = view_holder(s, t->copy);
    v.left_ms = t->left_ms;
    v.asked = t->reserved;
    i->holders[i->holder_count++] = v;
}

static void add_waiters(const struct server *s, const struct votes *t,
                        struct sl_inspection *i)
{
    struct sl_waiter_view found;
    for (; i->waiter_count < t->waiters && i->waiter_count < SL_SHOWN_MAX;
         i->waiter_count++) {
        sl_node_waiter(s->majority->node, s->now, i->key, (uint32_t)i->waiter_count,
                       &found);
        write_wait_reason(t, i->reasons[i->waiter_count]);
        i->waiters[i->waiter_count] = (struct sl_grant_view){
            .waits = true,
            .steals = found.steals,
            .session_id = found.session,
            .units = 1,
            .per = 1,
            .buckets = 1,
            .priority = found.priority,
            .left_ms = found.left_ms,
            .since_ms = found.since_ms,
            .note = found.note};
    }
}

void sl_majority_explain(struct request *r, const struct sl_node_answer *a)
{
    struct server *s = r->s;
    struct sl_inspection *i = sl_inspection_new(s, SL_INSPECT_LOCK);
    struct votes t = {.waiters = sl_node_waiters(s->majority->node, r->key)};
    const struct answer reply = {.status = SLUICE_OK, .inspection = i};
    struct call call = sl_request_call(r);
    count_votes(&t, a);
    i->key = r->key;
    i->votes = a;
    i->lock = (struct sl_lock_view){
        .held = t.copy != NULL,
        .drained = sl_node_is_drained(s->majority->node, r->key),
        .holders = t.copy != NULL,
        .waiters = t.waiters};
    add_holder(s, &t, i);
    add_waiters(s, &t, i);
    add_sentences(&t, i);
    sl_call_cost(&call, 50 + t.waiters / 16);
    sl_request_answer(r, &reply);
}

/* Fill in LOCKS from this node's copies, in the form that the lock table of a single server
 * uses. */
void sl_majority_inspect(const struct arbiter *a, struct sl_inspection *i)
{
    struct sl_lease_view found[SL_COUNT_MAX];
    if (i->of != SL_INSPECT_LOCKS) return;
    i->node = a->s->majority->node;
    size_t n = (i->waited ? sl_node_scan_waited : sl_node_scan)(
        a->s->majority->node, a->s->now, &i->cursor, found, i->found_max);
    i->steps += STEPS_A_SCAN;
    for (size_t j = 0; j < n; j++) {
        struct sl_lock_view *l = &i->found[i->found_count++];
        *l = (struct sl_lock_view){.key = found[j].key,
                                   .held = found[j].copy.held,
                                   .drained = sl_node_is_drained(i->node, found[j].key),
                                   .holders = found[j].copy.held,
                                   .waiters = found[j].waiters,
                                   .waited_ms = found[j].waited_ms};
        if (found[j].copy.held) l->holder = view_holder(a->s, &found[j].copy);
    }
}
