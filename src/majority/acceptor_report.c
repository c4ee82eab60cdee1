/* acceptor_report.c - publishes events about grants, each event once. */
#include "majority/acceptor.h"

void sl_acceptor_publish(struct sl_node *n, struct sl_now now,
                         const struct sl_node_key *k, enum sl_node_event_type type)
{
    const struct sl_node_lease *l = &k->lease;
    struct sl_node_event e = {.type = type,
                              .key = sl_node_key_bytes(k),
                              .fence = l->fence,
                              .session = l->session,
                              .lease_ms = l->lease_ms,
                              .left_ms = sl_node_lease_left_ms(l, now),
                              .asked_ms = l->asked_ms < 0 ? -1 : now.ms - l->asked_ms,
                              .priority = k->reserved.priority,
                              .overlapping = l->overlapping};
    sl_node_publish(n, &e);
}

static struct sl_acceptor_report *report_of(struct sl_node_key *k, sl_fence fence)
{
    for (size_t i = 0; i < SL_ACCEPTOR_REPORTS; i++)
        if (k->reports[i].fence == fence) return &k->reports[i];
    struct sl_acceptor_report *t = &k->reports[k->report_next++ % SL_ACCEPTOR_REPORTS];
    *t = (struct sl_acceptor_report){.fence = fence};
    return t;
}

bool sl_acceptor_is_over(const struct sl_node_key *k, sl_fence fence)
{
    for (size_t i = 0; i < SL_ACCEPTOR_REPORTS; i++)
        if (k->reports[i].fence == fence) return k->reports[i].over;
    return false;
}

/* Only a release counts. A lease that expired here may still be agreed, if it was
 * extended elsewhere. */
bool sl_acceptor_is_released(const struct sl_node_key *k, sl_fence fence)
{
    if (fence <= k->released_fence) return true;
    for (size_t i = 0; i < SL_ACCEPTOR_REPORTS; i++)
        if (k->reports[i].fence == fence)
            return k->reports[i].over && k->reports[i].how == SL_NODE_EVENT_RELEASED;
    return false;
}

static struct sl_node_event event_of(const struct sl_node_key *k, sl_fence fence,
                                     enum sl_node_event_type type)
{
    struct sl_node_event e = {
        .type = type, .key = sl_node_key_bytes(k), .fence = fence, .asked_ms = -1};
    if (k->lease.live && k->lease.fence == fence) e.session = k->lease.session;
    else if (k->taken_fence == fence) e.session = k->taken_session;
    return e;
}

/* Publish a grant. If its end was reported first, publish both now. */
static void publish_granted(struct sl_node *n, struct sl_node_key *k,
                            const struct sl_message *m)
{
    struct sl_acceptor_report *t = report_of(k, m->fence);
    struct sl_node_event e = event_of(k, m->fence, SL_NODE_EVENT_GRANTED);
    if (t->granted) return;
    t->granted = true;
    e.lease_ms = m->lease_ms;
    e.waited_ms = m->waited_ms;
    e.overlapping = (m->flags & SL_FLAG_OVERLAPPING) != 0;
    sl_node_publish(n, &e);
    e.type = t->how;
    if (t->over) sl_node_publish(n, &e);
}

void sl_acceptor_publish_taught(struct sl_node *n, struct sl_node_key *k,
                                const struct sl_message *m)
{
    publish_granted(n, k, m);
    if ((m->flags & SL_FLAG_EXTENDED) == 0 || report_of(k, m->fence)->over) return;
    struct sl_node_event e = event_of(k, m->fence, SL_NODE_EVENT_EXTENDED);
    e.lease_ms = m->lease_ms;
    sl_node_publish(n, &e);
}

void sl_acceptor_publish_end(struct sl_node *n, struct sl_now now,
                             struct sl_node_key *k, sl_fence fence,
                             enum sl_node_event_type how)
{
    struct sl_acceptor_report *t = report_of(k, fence);
    struct sl_node_event e = event_of(k, fence, how);
    const struct sl_node_lease *l = &k->lease;
    if (t->over) return;
    t->over = true;
    t->how = how;
    if (l->live && l->fence == fence && l->asked_ms >= 0)
        e.asked_ms = now.ms - l->asked_ms;
    if (t->granted) sl_node_publish(n, &e);
}

void sl_acceptor_publish_broken(struct sl_node *n, struct sl_now now,
                                struct sl_node_key *k, sl_fence fence, bool at_once,
                                bool again)
{
    struct sl_acceptor_report *t = report_of(k, fence);
    struct sl_node_event e = event_of(
        k, fence, again ? SL_NODE_EVENT_RELEASED : SL_NODE_EVENT_BROKEN);
    if (t->over) return;
    e.at_once = at_once;
    if (k->lease.live && k->lease.fence == fence) {
        e.left_ms = sl_node_lease_left_ms(&k->lease, now);
        if (k->lease.asked_ms >= 0) e.asked_ms = now.ms - k->lease.asked_ms;
    }
    if (at_once) t->over = true;
    if (at_once) t->how = SL_NODE_EVENT_RELEASED;
    if (t->granted) sl_node_publish(n, &e);
}

void sl_acceptor_publish_lapse(struct sl_node *n, struct sl_now now,
                               struct sl_node_key *k)
{
    if (k->lapsed_fence != 0)
        sl_acceptor_publish_end(n, now, k, k->lapsed_fence, SL_NODE_EVENT_EXPIRED);
    k->lapsed_fence = 0;
}

void sl_acceptor_publish_stolen(struct sl_node *n, const struct sl_node_key *k)
{
    struct sl_node_lease *l = k->overlapped;
    struct sl_node_event e = {.type = SL_NODE_EVENT_STOLEN,
                              .key = sl_node_key_bytes(k),
                              .fence = l->fence,
                              .session = l->session,
                              .asked_ms = -1,
                              .overlapping = true};
    if (l->agreed && !l->stolen) sl_node_publish(n, &e);
    l->stolen = true;
}
