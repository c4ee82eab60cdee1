/* membership_change.c - membership changes. The current members decide the next
 * membership by Paxos. Majorities of both memberships store it. Then it is in force.
 * README.md explains why each step is needed.
 *
 *     REACH -> PREPARE -> ACCEPT -> STORE -> FORCE
 *                 ^----- PAUSE <--+  another change was faster, or it is too soon
 *
 * A node answers only when its promise or vote is on disk. Until then it defers the
 * message. */
#include <assert.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

#define GIVE_UP_MS \
    10000 /* Give up after this time without progress; also the longest wait after
           * SOON. */
#define REACH_MS 3000   /* How long to wait for the node to be added. */
#define PAUSE_MS 200    /* The longest random pause after a larger ballot. */
#define FINISH_MS 2000  /* After this time other nodes complete it. */
#define WRITTEN_MS 1000 /* How long to wait for the disk before asking again. */
#define TRIES_MAX 20
/* A version or ballot that is further ahead than this is not plausible; accepting it
 * would use up the numbers. */
#define VERSIONS_AHEAD 1000
#define BALLOTS_AHEAD (1u << 20)

/* --- Messages --------------------------------------------------------------------- */

static void send_one(struct sl_node *n, struct sl_now now, sl_node_id to,
                     enum sl_message_type type, const struct sl_message *with)
{
    struct sl_message m = *with;
    m.type = type;
    sl_node_send(n, now, to, &m);
}

static void broadcast(struct sl_node *n, struct sl_now now, enum sl_message_type type,
                      const struct sl_message *with)
{
    struct sl_message m = *with;
    m.type = type;
    sl_node_broadcast(n, now, &m);
}

/* Send a message to the members of both memberships, and to this node last. */
static void send_to_both(struct sl_node *n, struct sl_now now,
                         enum sl_message_type type, const struct sl_message *with,
                         const struct sl_membership *next)
{
    const struct sl_membership old = n->kept.force;
    const struct sl_membership list = *next;
    for (uint32_t i = 0; i < old.count; i++)
        if (old.at[i].id != n->id) send_one(n, now, old.at[i].id, type, with);
    for (uint32_t i = 0; i < list.count; i++)
        if (list.at[i].id != n->id && sl_membership_find(&old, list.at[i].id) < 0)
            send_one(n, now, list.at[i].id, type, with);
    send_one(n, now, n->id, type, with);
}

void sl_membership_change_tell(struct sl_node *n, struct sl_now now, sl_node_id to)
{
    struct sl_message m = {.list = n->kept.force,
                           .ceiling = n->kept.fence_limit,
                           .lease_ms = sl_acceptor_longest_lease(n, now),
                           .digest = sl_node_drain_digest(n)};
    send_one(n, now, to, SL_MESSAGE_FORCE, &m);
}

/* --- The end of a change ---------------------------------------------------------- */

static void end_change(struct sl_node *n)
{
    n->change = (struct sl_membership_change){.phase = SL_CHANGE_NONE};
    if (n->joining.id != 0) {
        n->joining = (struct sl_member){0};
        n->links_due = true;
    }
}

static void fail(struct sl_node *n, struct sl_now now, const char *why)
{
    struct sl_proposer_request *r = n->change.request;
    end_change(n);
    if (r == NULL) return;
    sl_proposer_finish_because(n, now, r, SLUICE_ENODES, why);
}

/* Handle a membership that has come into force during this change. It may be the
 * wanted one or another. */
static void conclude(struct sl_node *n, struct sl_now now)
{
    struct sl_proposer_request *r = n->change.request;
    bool ours = sl_membership_equal(&n->change.want, &n->kept.force);
    if (!ours) {
        fail(n, now,
             "another membership change was made first; check NODES, and retry if the "
             "change is still needed");
        return;
    }
    end_change(n);
    if (r == NULL) return;
    r->answer.number = (int64_t)n->kept.force.version;
    sl_proposer_finish(n, now, r, SLUICE_OK);
}

/* --- The node that proposes a membership ------------------------------------------ */

static void enter(struct sl_node *n, struct sl_now now,
                  enum sl_membership_change_phase phase)
{
    n->change.phase = phase;
    n->change.yes_count = n->change.soon_count = 0;
    n->change.left_ms = 0;
    n->change.resend_ms = now.ms;
}

static void prepare(struct sl_node *n, struct sl_now now)
{
    struct sl_membership_change *c = &n->change;
    uint64_t highest = n->next.promised.number;
    if (c->ballot.number > highest) highest = c->ballot.number;
    if (c->best.number > highest) highest = c->best.number;
    c->ballot = (struct sl_ballot){highest + 1, n->id};
    c->best = (struct sl_ballot){0};
    c->list = c->want;
    enter(n, now, SL_CHANGE_PREPARE);
}

static void pause_for(struct sl_node *n, struct sl_now now, sl_ms ms)
{
    n->change.phase = SL_CHANGE_PAUSE;
    n->change.resume_ms = now.ms + ms;
}

/* Whether the ballot is on disk. It must be on disk before another node receives it,
 * so that this node never uses it again after a restart. */
static bool is_ballot_written(struct sl_node *n, struct sl_now now)
{
    struct sl_membership_change *c = &n->change;
    c->waits_for_disk = false;
    if (sl_ballot_compare(n->kept.promised, c->ballot) == 0) return true;
    if (sl_ballot_compare(n->next.promised, c->ballot) > 0) prepare(n, now);
    if (sl_ballot_compare(n->next.promised, c->ballot) != 0) {
        n->next.promised = c->ballot;
        sl_node_want_write(n);
    }
    c->resend_ms = now.ms + WRITTEN_MS; /* Or as soon as it is written. */
    c->waits_for_disk = true;
    return false;
}

/* Send the message of this phase, or send it again because it may have been lost. */
static void resend(struct sl_node *n, struct sl_now now)
{
    struct sl_membership_change *c = &n->change;
    if (c->phase == SL_CHANGE_PREPARE && !is_ballot_written(n, now)) return;
    struct sl_message m = {.ballot = c->ballot, .list = c->list};
    c->resend_ms = now.ms + sl_node_answer_ms(n);
    switch (c->phase) {
        case SL_CHANGE_PREPARE: broadcast(n, now, SL_MESSAGE_PREPARE, &m); break;
        case SL_CHANGE_ACCEPT: broadcast(n, now, SL_MESSAGE_ACCEPT, &m); break;
        case SL_CHANGE_STORE:
            send_to_both(n, now, SL_MESSAGE_STORE, &m, &c->list);
            break;
        default: break;
    }
}

static void add_id(sl_node_id ids[SL_NODE_PEERS_MAX], uint32_t *n, sl_node_id id)
{
    for (uint32_t i = 0; i < *n; i++)
        if (ids[i] == id) return;
    if (*n < SL_NODE_PEERS_MAX) ids[(*n)++] = id;
}

static void count_yes(struct sl_membership_change *c, sl_node_id id)
{
    add_id(c->yes, &c->yes_count, id);
}

/* Count a SOON answer. Returns true if the nodes that have not answered SOON are no
 * longer a majority. */
static bool is_too_soon(struct sl_node *n, sl_node_id from, const struct sl_message *m)
{
    struct sl_membership_change *c = &n->change;
    const struct sl_membership *list = &n->kept.force;
    add_id(c->soon, &c->soon_count, from);
    if (m->left_ms > c->left_ms) c->left_ms = m->left_ms;
    return list->count - c->soon_count < sl_membership_majority(list);
}

static bool have_majority(const struct sl_membership_change *c,
                          const struct sl_membership *list)
{
    uint32_t yes = 0;
    for (uint32_t i = 0; i < c->yes_count; i++)
        if (sl_membership_find(list, c->yes[i]) >= 0) yes++;
    return yes >= sl_membership_majority(list);
}

/* Handle a node's rejection of the proposal. */
static void step_back(struct sl_node *n, struct sl_now now, sl_node_id from,
                      const struct sl_message *m)
{
    struct sl_membership_change *c = &n->change;
    if (m->verdict == SL_VERDICT_SOON && !is_too_soon(n, from, m)) return;
    if (m->verdict == SL_VERDICT_SOON && c->left_ms <= GIVE_UP_MS) {
        c->give_up_ms = now.ms + c->left_ms + GIVE_UP_MS;
        pause_for(n, now, c->left_ms + 5);
    } else if (m->verdict == SL_VERDICT_SOON) {
        if (c->request != NULL) c->request->answer.left_ms = c->left_ms;
        fail(n, now,
             "the membership was changed recently, and leases from before the change "
             "may still be held");
    } else if (m->verdict == SL_VERDICT_BAD)
        fail(
            n, now,
            "the other nodes rejected the new membership; check NODES on each of them");
    else if (m->verdict == SL_VERDICT_LATER) {
        if (sl_ballot_compare(m->ballot2, c->best) > 0) c->best = m->ballot2;
        if (++c->tries >= TRIES_MAX)
            fail(n, now,
                 "another membership change is in progress; check NODES, and retry");
        else pause_for(n, now, 20 + sl_random_below(&n->random, PAUSE_MS));
    }
}

static void on_promise(struct sl_node *n, struct sl_now now, sl_node_id from,
                       const struct sl_message *m)
{
    struct sl_membership_change *c = &n->change;
    /* Ballots restart with every membership. */
    if (m->version != n->kept.force.version) return;
    if (c->phase != SL_CHANGE_PREPARE || sl_ballot_compare(m->ballot, c->ballot) != 0)
        return;
    if (m->verdict != SL_VERDICT_YES) {
        step_back(n, now, from, m);
        return;
    }
    if (m->list.version == n->kept.force.version + 1 &&
        sl_ballot_compare(m->ballot2, c->best) > 0) {
        c->best = m->ballot2;
        c->list = m->list;
    }
    count_yes(c, from);
    if (!have_majority(c, &n->kept.force)) return;
    if (c->list.version == 0) end_change(n); /* There was nothing to complete. */
    else enter(n, now, SL_CHANGE_ACCEPT);
}

static void on_accepted(struct sl_node *n, struct sl_now now, sl_node_id from,
                        const struct sl_message *m)
{
    struct sl_membership_change *c = &n->change;
    if (c->phase != SL_CHANGE_ACCEPT || m->version != n->kept.force.version ||
        sl_ballot_compare(m->ballot, c->ballot) != 0)
        return;
    if (m->verdict != SL_VERDICT_YES) {
        step_back(n, now, from, m);
        return;
    }
    count_yes(c, from);
    if (!have_majority(c, &n->kept.force)) return;
    c->limit = 0;
    c->longest_ms = 0;
    enter(n, now, SL_CHANGE_STORE);
}

static void on_stored(struct sl_node *n, struct sl_now now, sl_node_id from,
                      const struct sl_message *m)
{
    struct sl_membership_change *c = &n->change;
    if (c->phase != SL_CHANGE_STORE || m->which != c->list.version) return;
    if (!sl_node_is_plausible(n, now, m->ceiling)) {
        sl_node_log(
            n, "the fences of a node are days ahead because its clock was "
               "wrong, so its vote does not count in this membership change; "
               "remove that node with NODES REMOVE, and add it again with NODES ADD");
        return;
    }
    /* This node does not know all drained patterns yet, or that node does not. */
    if (m->digest != sl_node_drain_digest(n)) return;
    count_yes(c, from);
    if (m->ceiling > c->limit) c->limit = m->ceiling;
    if (m->lease_ms > c->longest_ms) c->longest_ms = m->lease_ms;
    if (!have_majority(c, &n->kept.force) || !have_majority(c, &c->list)) return;
    struct sl_message f = {.list = c->list,
                           .ceiling = c->limit,
                           .lease_ms = c->longest_ms,
                           .digest = sl_node_drain_digest(n)};
    c->phase = SL_CHANGE_FORCE;
    send_to_both(n, now, SL_MESSAGE_FORCE, &f, &c->list);
}

/* --- The nodes that vote on a membership ------------------------------------------ */

static void vote_no(struct sl_node *n, struct sl_now now, sl_node_id to,
                    enum sl_message_type type, const struct sl_message *m,
                    enum sl_vote_verdict verdict)
{
    struct sl_message v = {.ballot = m->ballot,
                           .verdict = verdict,
                           .ballot2 = n->next.promised,
                           .left_ms = n->soon_ms > now.ms ? n->soon_ms - now.ms : 0};
    send_one(n, now, to, type, &v);
}

/* Whether a message is about the membership that follows ours, and comes from one of
 * our members. No proposer uses a ballot with the number 0: such a message is forged. */
static bool is_about_next(const struct sl_node *n, sl_node_id from,
                          const struct sl_message *m)
{
    return sl_node_is_member(n) && m->version == n->kept.force.version &&
           m->ballot.number > 0 && sl_membership_find(&n->kept.force, from) >= 0;
}

static void on_prepare(struct sl_node *n, struct sl_now now, sl_node_id from,
                       const struct sl_message *m)
{
    if (!is_about_next(n, from, m)) return;
    if (now.ms < n->soon_ms) {
        vote_no(n, now, from, SL_MESSAGE_PROMISE, m, SL_VERDICT_SOON);
        return;
    }
    int order = sl_ballot_compare(m->ballot, n->next.promised);
    if (m->ballot.number > n->next.promised.number + BALLOTS_AHEAD) return;
    if (order < 0) {
        vote_no(n, now, from, SL_MESSAGE_PROMISE, m, SL_VERDICT_LATER);
        return;
    }
    if (sl_ballot_compare(m->ballot, n->kept.promised) != 0) {
        n->next.promised = m->ballot;
        sl_node_want_write(n);
        sl_node_defer(n, from, m);
        return;
    }
    struct sl_message v = {.ballot = m->ballot,
                           .verdict = SL_VERDICT_YES,
                           .ballot2 = n->kept.accepted,
                           .list = n->kept.vote};
    send_one(n, now, from, SL_MESSAGE_PROMISE, &v);
}

static void on_accept(struct sl_node *n, struct sl_now now, sl_node_id from,
                      const struct sl_message *m)
{
    if (!is_about_next(n, from, m)) return;
    if (!sl_membership_follow(&n->kept.force, &m->list)) {
        vote_no(n, now, from, SL_MESSAGE_ACCEPTED, m, SL_VERDICT_BAD);
        return;
    }
    if (sl_ballot_compare(m->ballot, n->next.promised) < 0) {
        vote_no(n, now, from, SL_MESSAGE_ACCEPTED, m, SL_VERDICT_LATER);
        return;
    }
    if (sl_ballot_compare(m->ballot, n->kept.accepted) != 0) {
        n->next.promised = n->next.accepted = m->ballot;
        n->next.vote = m->list;
        sl_node_want_write(n);
        sl_node_defer(n, from, m);
        return;
    }
    if (!sl_membership_equal(&n->kept.vote, &m->list))
        return; /* Two memberships under one ballot: a bug, or a forged message. */
    struct sl_message v = {.ballot = m->ballot, .verdict = SL_VERDICT_YES};
    send_one(n, now, from, SL_MESSAGE_ACCEPTED, &v);
}

/* Whether the membership contains this node with its current data directory. If this
 * node had no membership before, it has never voted. */
static bool admits(const struct sl_node *n, const struct sl_membership *list)
{
    int at = sl_membership_find(list, n->id);
    return at >= 0 && list->at[at].birth == n->kept.birth;
}

/* Whether this node may store a decided membership: it follows ours, or it admits
 * this node. */
static bool may_store(const struct sl_node *n, const struct sl_membership *list)
{
    if (list->version <= n->kept.force.version) return false;
    if (sl_node_is_member(n)) return sl_membership_follow(&n->kept.force, list);
    return admits(n, list);
}

static void on_store(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    if (!may_store(n, &m->list)) return;
    if (sl_membership_find(&n->kept.force, from) < 0 &&
        sl_membership_find(&m->list, from) < 0)
        return;
    if (n->next.stored.version == m->list.version &&
        !sl_membership_equal(&n->next.stored, &m->list))
        return; /* A version stands for only one membership. */
    if (!sl_membership_equal(&n->kept.stored, &m->list)) {
        n->next.stored = m->list;
        sl_node_want_write(n);
        sl_node_defer(n, from, m);
        return;
    }
    if (sl_node_drain_position(n) != 0) return; /* The proposer asks again. */
    struct sl_message v = {.which = m->list.version,
                           .digest = sl_node_drain_digest(n),
                           .ceiling = n->next.fence_limit,
                           .lease_ms = sl_acceptor_longest_lease(n, now)};
    send_one(n, now, from, SL_MESSAGE_STORED, &v);
}

/* --- Putting a membership into force ---------------------------------------------- */

static void forget_births(struct sl_node_durable *d)
{
    for (size_t i = 0; i < SL_NODES_MAX; i++)
        if (sl_membership_find(&d->force, d->births[i].id) < 0)
            d->births[i] = (struct sl_node_birth){0};
}

/* Whether this node may adopt a membership. If this node has no membership yet, it may
 * have lost its data directory, and with it its promises. So the membership must admit
 * it with its current birth. */
static bool may_adopt(struct sl_node *n, const struct sl_membership *list)
{
    if (n->kept.force.version > 0) return true;
    if (sl_membership_find(list, n->id) < 0) return false;
    if (admits(n, list)) return true;
    if (!n->logged_emptied)
        sl_node_log(n, "this node is a member, but its data directory is empty; "
                       "connect to another node, and remove and add this node there "
                       "with NODES REMOVE and NODES ADD");
    n->logged_emptied = true;
    return false;
}

/* Whether a membership may be a later one of our cluster: the sender is a member of
 * that membership or of ours, and the version is not implausibly far ahead. */
static bool is_of_cluster(struct sl_node *n, struct sl_now now, sl_node_id from,
                          const struct sl_membership *list, sl_fence ceiling)
{
    const struct sl_membership *ours = &n->next.force;
    if (ours->version == 0) return sl_membership_find(list, from) >= 0;
    if (!sl_node_is_plausible(n, now, ceiling)) return false;
    bool good = list->cluster == ours->cluster &&
                list->version - ours->version <= VERSIONS_AHEAD &&
                (from == n->id || sl_membership_find(list, from) >= 0 ||
                 sl_membership_find(ours, from) >= 0);
    if (list->cluster != ours->cluster && !n->logged_foreign)
        sl_node_log(n, "ignored the membership of another cluster; check that no two "
                       "clusters have the same secret");
    if (list->cluster != ours->cluster) n->logged_foreign = true;
    return good;
}

static void on_force(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    const struct sl_membership *list = &m->list;
    if (list->version <= n->next.force.version || list->count == 0 ||
        m->ceiling > SL_FENCE_MAX || m->lease_ms < 0 ||
        m->lease_ms > n->limits.lease_max_ms ||
        !is_of_cluster(n, now, from, list, m->ceiling) || !may_adopt(n, list))
        return;
    /* Do not use the membership before this node knows all drained patterns. */
    if (m->digest != sl_node_drain_digest(n) || sl_node_drain_position(n) != 0) return;
    bool joins = !sl_node_is_member(n) && sl_membership_find(list, n->id) >= 0;
    n->next.force = *list;
    n->next.promised = n->next.accepted = (struct sl_ballot){0};
    n->next.vote = n->next.stored = (struct sl_membership){0};
    forget_births(&n->next);
    if (m->ceiling > n->next.fence_limit) n->next.fence_limit = m->ceiling;
    if (m->ceiling > n->floor) n->floor = m->ceiling;
    if (joins && m->lease_ms > n->next.lease_longest_ms)
        n->next.lease_longest_ms = m->lease_ms;
    sl_node_want_write(n);
}

void sl_membership_change_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                                  const struct sl_message *m)
{
    if (!sl_membership_is_valid(&m->list)) return; /* A bug in the sender. */
    switch (m->type) {
        case SL_MESSAGE_PREPARE: on_prepare(n, now, from, m); break;
        case SL_MESSAGE_PROMISE: on_promise(n, now, from, m); break;
        case SL_MESSAGE_ACCEPT: on_accept(n, now, from, m); break;
        case SL_MESSAGE_ACCEPTED: on_accepted(n, now, from, m); break;
        case SL_MESSAGE_STORE: on_store(n, now, from, m); break;
        case SL_MESSAGE_STORED: on_stored(n, now, from, m); break;
        case SL_MESSAGE_FORCE: on_force(n, now, from, m); break;
        default: break;
    }
}

/* --- Requests of an operator ------------------------------------------------------ */

static void start(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r)
{
    struct sl_membership *want = &n->change.want;
    n->change.request = r;
    if (want->added != 0)
        want->at[sl_membership_find(want, want->added)].birth =
            sl_node_find_peer(n, want->added)->birth;
    n->change.give_up_ms = now.ms + GIVE_UP_MS;
    prepare(n, now);
}

/* Whether the node is linked and has sent a message. Messages of another cluster are
 * dropped, so they do not count. */
static bool is_met(const struct sl_node *n, sl_node_id id)
{
    const struct sl_node_peer *p = sl_node_find_peer(n, id);
    return p != NULL && p->linked && p->wall_ms != 0;
}

static void reach(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r,
                  sl_node_id id)
{
    struct sl_membership_change *c = &n->change;
    n->joining = c->want.at[sl_membership_find(&c->want, id)];
    n->links_due = true;
    if (is_met(n, id)) {
        start(n, now, r);
        return;
    }
    c->request = r;
    c->phase = SL_CHANGE_REACH;
    c->give_up_ms = now.ms + REACH_MS;
}

void sl_membership_change_begin(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r,
                                const struct sl_node_request *ask)
{
    struct sl_membership want;
    const char *why = NULL;
    bool good;
    if (!sl_node_is_member(n))
        why = "this node is not a member of a cluster; send the command to a member";
    else if (n->change.phase != SL_CHANGE_NONE)
        why = "another membership change is in progress at this node; retry later";
    else if (sl_node_knows_time(n) &&
             n->kept.fence_limit > now.wall_us + 2 * SL_NODE_FENCE_DAY)
        why = "the fences of this node are days ahead because its clock was wrong; "
              "send the command to another node";
    if (why == NULL) {
        good = ask->type == SL_NODE_ADD
                   ? sl_membership_add(&n->kept.force, ask->node, ask->address, &want,
                                       &why)
                   : sl_membership_remove(&n->kept.force, ask->node, &want, &why);
        if (good) why = NULL;
    }
    if (why != NULL) {
        sl_proposer_finish_because(n, now, r, SLUICE_ENODES, why);
        return;
    }
    assert(sl_membership_follow(&n->kept.force, &want));
    n->change = (struct sl_membership_change){.want = want};
    if (ask->type == SL_NODE_ADD) reach(n, now, r, ask->node);
    else start(n, now, r);
    sl_membership_change_tick(n, now);
}

void sl_membership_change_withdraw(struct sl_node *n, struct sl_proposer_request *r)
{
    if (n->change.request != r) return;
    n->change.request = NULL;
    if (n->change.phase == SL_CHANGE_REACH) end_change(n);
}

void sl_membership_change_linked(struct sl_node *n, struct sl_now now, sl_node_id id)
{
    struct sl_membership_change *c = &n->change;
    if (c->phase != SL_CHANGE_REACH || n->joining.id != id || !is_met(n, id)) return;
    start(n, now, c->request);
    sl_membership_change_tick(n, now);
}

/* --- Time ------------------------------------------------------------------------- */

/* Whether this node has voted for or stored a membership that is not in force yet. */
static bool is_pending(const struct sl_node *n)
{
    uint64_t next = n->kept.force.version + 1;
    return sl_node_is_member(n) &&
           (n->kept.vote.version == next || n->kept.stored.version == next);
}

/* Complete a change that has stalled, whichever node started it. */
static void complete_stalled(struct sl_node *n, struct sl_now now)
{
    if (!is_pending(n) || n->change.phase != SL_CHANGE_NONE) {
        n->finish_ms = SL_NEVER;
        return;
    }
    if (n->finish_ms == SL_NEVER)
        n->finish_ms = now.ms + FINISH_MS + sl_random_below(&n->random, FINISH_MS);
    if (now.ms < n->finish_ms) return;
    n->finish_ms = SL_NEVER;
    n->change = (struct sl_membership_change){.phase = SL_CHANGE_NONE};
    start(n, now, NULL);
}

static void give_up(struct sl_node *n, struct sl_now now)
{
    if (n->change.phase == SL_CHANGE_REACH)
        fail(n, now,
             "the node does not answer at this address, or belongs to another cluster; "
             "start it first, with the same secret and an empty data directory, and "
             "wait until it logs that it can be added");
    else if (n->change.phase == SL_CHANGE_STORE || n->change.phase == SL_CHANGE_FORCE)
        fail(n, now,
             "the change is decided but not in force yet, because too few nodes "
             "answer; it takes effect when they do");
    else
        fail(n, now,
             "too few nodes answer; the change may still take effect, check NODES "
             "later");
}

void sl_membership_change_tick(struct sl_node *n, struct sl_now now)
{
    struct sl_membership_change *c = &n->change;
    if (c->phase != SL_CHANGE_NONE && c->want.version != 0 &&
        n->kept.force.version >= c->want.version)
        conclude(n, now);
    else if (c->phase != SL_CHANGE_NONE && c->want.version == 0 && !is_pending(n))
        end_change(n);
    complete_stalled(n, now);
    if (c->phase == SL_CHANGE_NONE) return;
    if (c->phase == SL_CHANGE_PREPARE && c->yes_count == 0 && c->waits_for_disk &&
        sl_ballot_compare(n->kept.promised, c->ballot) == 0)
        c->resend_ms = now.ms;
    if (now.ms >= c->give_up_ms) give_up(n, now);
    else if (c->phase == SL_CHANGE_PAUSE && now.ms >= c->resume_ms) prepare(n, now);
    /* A message to this node itself may start the next phase immediately. */
    while (c->phase >= SL_CHANGE_PREPARE && c->phase <= SL_CHANGE_STORE &&
           now.ms >= c->resend_ms)
        resend(n, now);
}

sl_ms sl_membership_change_due(const struct sl_node *n)
{
    const struct sl_membership_change *c = &n->change;
    sl_ms due = n->finish_ms;
    if (c->phase == SL_CHANGE_NONE) return due;
    if (c->give_up_ms < due) due = c->give_up_ms;
    if (c->phase == SL_CHANGE_PAUSE) return c->resume_ms < due ? c->resume_ms : due;
    bool resends = c->phase >= SL_CHANGE_PREPARE && c->phase <= SL_CHANGE_STORE;
    if (resends && c->resend_ms < due) due = c->resend_ms;
    return due;
}
