/* election.c - decides when this node claims the next term, and until when it may
 * grant as keeper. */
#include "failover/election.h"

#include <assert.h>
#include <stdlib.h>

/* A node's report about the keeper is valid for DOUBT_VALID_MS; the node repeats it
 * earlier. */
#define DOUBT_VALID_MS 2000
#define DOUBT_REPEAT_MS 500

#define RETRY_MS 250 /* Delay before a failed read, claim or renewal is retried. */

/* If the storage has not answered anything for PROBE_HEARTBEATS heartbeats, read the
 * term to see whether it answers. If it answers after more than GAP_HEARTBEATS
 * heartbeats, it was unavailable. */
#define PROBE_HEARTBEATS 2
#define GAP_HEARTBEATS 4

/* An election is due at least every AWAKE_MS. If a call is late by SLEPT_MS, the node was suspended. Together, they
 * are shorter than the time after which other nodes close the connection to a silent node. */
#define AWAKE_MS 200
#define SLEPT_MS 250
#define ORDERS_MAX 16u

const struct sl_election_settings sl_election_settings_default = {
    .authority_ms = 2000, .heartbeat_ms = 500, .silence_ms = 3000};

struct election_peer {
    bool member;
    enum sl_peer_state sight; /* The state of our connection to the node. */
    sl_ms since_ms;           /* Since when the node has been in this state. */
    uint64_t doubt_term;      /* The term of the node's last report on the keeper. */
    enum sl_peer_state doubt; /* The state of its connection to the keeper. */
    sl_ms doubt_at_ms;        /* When that report arrived. */
};

struct sl_election {
    struct sl_election_settings settings;
    enum sl_election_state state;
    struct sl_storage_term current; /* The last known term. */
    bool known;                     /* Whether the storage has confirmed `current`. */
    uint64_t term_min;              /* Lower terms have ended. */
    uint32_t announced_node;        /* The node in the last KEEPER order. */
    uint64_t announced_term;        /* The term in the last KEEPER order. */
    sl_ms heartbeat_seen_ms;        /* When the current heartbeat was first seen. */
    bool storage_answers;           /* Whether the storage answered the last request. */
    /* When the newest answered request was sent; after a gap, and for a report of the watch: when it arrived. */
    sl_ms answered_ms;
    sl_ms answers_since_ms; /* Since when it has answered without a gap. */
    sl_ms known_at_ms;      /* When the last answered READ_TERM was requested. */

    bool reading, claiming, renewing; /* An order is outstanding. */
    sl_ms read_ms, renew_ms;          /* When to order the next one, or SL_NEVER. */
    sl_ms claim_ms;                   /* Do not claim before this time; 0: no limit. */
    sl_ms doubt_ms;                   /* When to repeat our report about the keeper. */
    sl_ms called_ms;                  /* The time of the last call. */
    sl_ms woke_ms;          /* When this node was last found to have been suspended. */
    uint64_t claimed_term;  /* The term in the last claim. */
    uint64_t resigned_term; /* The last term in which this process resigned; 0: none. */
    bool renew_now;
    sl_ms authority_end_ms;
    struct election_peer at[SL_ELECTION_NODES_MAX]; /* By node id. */
    size_t member_count;
    uint64_t claims, refused;

    struct sl_election_order orders[ORDERS_MAX]; /* A ring buffer. */
    size_t first, count;
};

/* --- Orders ------------------------------------------------------------------------- */

static struct sl_election_order *order_at(struct sl_election *e, size_t i)
{
    return &e->orders[(e->first + i) % ORDERS_MAX];
}

/* Remove all unfetched orders of a type. The ring never overflows: at most one
 * READ_TERM, CLAIM and RENEW is outstanding, LEAD and STOP alternate, and a new
 * DOUBT or KEEPER replaces one that has not been fetched. */
static void drop_orders(struct sl_election *e, enum sl_election_order_type type)
{
    size_t kept = 0;
    for (size_t i = 0; i < e->count; i++)
        if (order_at(e, i)->type != type) *order_at(e, kept++) = *order_at(e, i);
    e->count = kept;
}

static void order(struct sl_election *e, struct sl_election_order x)
{
    if (x.type == SL_ELECTION_ORDER_DOUBT || x.type == SL_ELECTION_ORDER_KEEPER)
        drop_orders(e, x.type);
    assert(e->count < ORDERS_MAX);
    *order_at(e, e->count++) = x;
}

bool sl_election_next(struct sl_election *e, struct sl_election_order *out)
{
    if (e->count == 0) return false;
    *out = e->orders[e->first];
    e->first = (e->first + 1) % ORDERS_MAX;
    e->count--;
    return true;
}

static void read_term(struct sl_election *e)
{
    e->read_ms = SL_NEVER;
    if (e->reading) return;
    e->reading = true;
    order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_READ_TERM});
}

static void claim(struct sl_election *e, uint64_t heartbeat)
{
    if (e->claiming) return;
    e->claiming = true;
    e->claims++;
    e->state = SL_ELECTION_CLAIMING;
    e->claimed_term = e->current.term;
    order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_CLAIM,
                                        .term = e->current.term,
                                        .heartbeat = heartbeat});
}

static void renew(struct sl_election *e)
{
    e->renew_ms = SL_NEVER;
    e->renew_now = false;
    e->renewing = true;
    order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_RENEW,
                                        .term = e->current.term});
}

/* Order KEEPER, unless this keeper was announced last. */
static void announce_keeper(struct sl_election *e)
{
    bool ours = e->current.node == e->settings.self && e->state != SL_ELECTION_LEADING;
    uint32_t node = ours ? 0 : e->current.node;
    if (node == e->announced_node && e->current.term == e->announced_term) return;
    e->announced_node = node;
    e->announced_term = e->current.term;
    order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_KEEPER,
                                        .node = node,
                                        .term = e->current.term});
}

static void stop(struct sl_election *e)
{
    if (e->state != SL_ELECTION_LEADING) return;
    e->state = SL_ELECTION_WATCHING;
    e->authority_end_ms = 0;
    e->renew_ms = SL_NEVER;
    order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_STOP,
                                        .term = e->announced_term});
}

/* --- Doubts about the keeper ---------------------------------------------------------- */

static bool is_member(const struct sl_election *e)
{
    return e->at[e->settings.self].member;
}

static enum sl_peer_state sight_of_keeper(const struct sl_election *e)
{
    uint32_t node = e->current.node;
    if (node == e->settings.self) return SL_PEER_UP;
    return node < SL_ELECTION_NODES_MAX ? e->at[node].sight : SL_PEER_CLOSED;
}

static sl_ms silence_end_ms(const struct sl_election *e)
{
    const struct election_peer *k = &e->at[e->current.node % SL_ELECTION_NODES_MAX];
    return k->since_ms + e->settings.silence_ms;
}

/* Returns the state of the keeper to report. A short silence is not reported: a node
 * that has just started has not heard from any node, and would form a majority with
 * one node that cannot reach the keeper. */
static enum sl_peer_state doubt_of_keeper(const struct sl_election *e, sl_ms now)
{
    enum sl_peer_state sight = sight_of_keeper(e);
    if (sight == SL_PEER_SILENT && now < silence_end_ms(e)) return SL_PEER_UP;
    return sight;
}

/* Report our view of the keeper to all nodes. Repeat a doubt, because messages may
 * be lost. */
static void send_doubt(struct sl_election *e, sl_ms now)
{
    enum sl_peer_state sight = doubt_of_keeper(e, now);
    if (e->current.term == 0 || e->current.node == e->settings.self) {
        e->doubt_ms = SL_NEVER;
        return;
    }
    e->doubt_ms = sight != SL_PEER_UP                    ? now + DOUBT_REPEAT_MS
                  : sight_of_keeper(e) == SL_PEER_SILENT ? silence_end_ms(e)
                                                         : SL_NEVER;
    order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_DOUBT,
                                        .term = e->current.term,
                                        .sight = sight});
}

/* Count the nodes, including this one, that do not see the keeper. If `closed` is
 * set, count only those whose connection to the keeper is closed. */
static uint32_t count_doubts(const struct sl_election *e, sl_ms now, bool closed)
{
    enum sl_peer_state own = sight_of_keeper(e);
    uint32_t n = own == SL_PEER_CLOSED || (!closed && own == SL_PEER_SILENT) ? 1 : 0;
    for (uint32_t i = 0; i < SL_ELECTION_NODES_MAX; i++) {
        const struct election_peer *x = &e->at[i];
        if (!x->member || i == e->settings.self || i == e->current.node) continue;
        if (x->doubt_term != e->current.term || now - x->doubt_at_ms > DOUBT_VALID_MS)
            continue;
        /* The report may have been sent while this node was suspended. If it is still true, it is repeated. */
        if (x->doubt_at_ms - e->woke_ms < DOUBT_REPEAT_MS) continue;
        if (x->doubt == SL_PEER_CLOSED || (!closed && x->doubt == SL_PEER_SILENT)) n++;
    }
    return n;
}

static bool is_majority(const struct sl_election *e, uint32_t n)
{
    return n > e->member_count / 2;
}

/* --- Reasons to claim ----------------------------------------------------------------- */

/* Returns the start of the time in which we would have seen a heartbeat of the keeper but
 * saw none, or SL_NEVER. */
static sl_ms heartbeat_missing_since(const struct sl_election *e)
{
    if (!e->storage_answers) return SL_NEVER;
    return e->heartbeat_seen_ms > e->answers_since_ms ? e->heartbeat_seen_ms
                                                      : e->answers_since_ms;
}

static bool should_claim_term(const struct sl_election *e, sl_ms now)
{
    if (e->current.term == 0) return true;
    if (e->current.node == e->settings.self) return e->current.term != e->resigned_term;
    if (e->current.resigned) return true;
    if (sight_of_keeper(e) == SL_PEER_UP) return false;
    if (is_majority(e, count_doubts(e, now, true))) return true;
    return now >= silence_end_ms(e) && is_majority(e, count_doubts(e, now, false));
}

/* Returns the time at which to read the term. By then the keeper has been silent long
 * enough, or we must find out whether the storage answers. If the storage does not answer, the
 * keeper's silence means nothing. */
static sl_ms silence_due(const struct sl_election *e)
{
    if (e->state != SL_ELECTION_WATCHING || !e->known || e->reading || !is_member(e) ||
        heartbeat_missing_since(e) == SL_NEVER)
        return SL_NEVER;
    sl_ms silence = heartbeat_missing_since(e) + e->settings.silence_ms;
    sl_ms probe = e->answered_ms + PROBE_HEARTBEATS * e->settings.heartbeat_ms;
    return probe < silence ? probe : silence;
}

/* Order a claim or a read of the term if there is a reason. */
static void consider(struct sl_election *e, sl_ms now)
{
    if (e->state != SL_ELECTION_WATCHING || !is_member(e)) return;
    if (!e->known) return; /* A read is outstanding or due. */
    if (now < e->claim_ms) return;
    if (should_claim_term(e, now)) claim(e, 0);
    else if (silence_due(e) <= now) read_term(e); /* The answer decides. */
}

static void bring_forward(sl_ms *due, sl_ms candidate)
{
    if (candidate < *due) *due = candidate;
}

static sl_ms next_due(const struct sl_election *e)
{
    sl_ms due = e->called_ms + AWAKE_MS;
    if (!e->reading) bring_forward(&due, e->read_ms);
    if (e->state == SL_ELECTION_LEADING && !e->renewing)
        bring_forward(&due, e->renew_ms);
    if (e->state != SL_ELECTION_LEADING) bring_forward(&due, e->doubt_ms);
    if (e->state == SL_ELECTION_WATCHING) {
        if (e->claim_ms > 0) bring_forward(&due, e->claim_ms);
        else bring_forward(&due, silence_due(e));
    }
    return due;
}

/* If this call is much later than it was due, this node was suspended. It heard from
 * no node meanwhile, and must not count that time as silence of other nodes. A node that had closed its
 * connection before may have been started again. */
static void note_sleep(struct sl_election *e, sl_ms now)
{
    sl_ms due = next_due(e);
    e->called_ms = now;
    if (due > now || now - due < SLEPT_MS) return;
    e->woke_ms = now;
    for (size_t i = 0; i < SL_ELECTION_NODES_MAX; i++)
        if (e->at[i].sight != SL_PEER_UP) {
            e->at[i].sight = SL_PEER_SILENT;
            e->at[i].since_ms = now;
        }
}

/* Handle a term that the storage or its watch has reported. */
static void learn(struct sl_election *e, sl_ms now, const struct sl_storage_term *r)
{
    bool newer = !e->known || r->term > e->current.term;
    if (r->term < e->term_min) return; /* A newer answer came first. */
    if (!newer && r->heartbeat < e->current.heartbeat) return;
    e->term_min = r->term;
    if (newer || r->heartbeat != e->current.heartbeat) e->heartbeat_seen_ms = now;
    e->current = *r;
    e->known = true;
    if (!newer) return;
    stop(e); /* If this node leads, the newer term belongs to another node. */
    if (e->state == SL_ELECTION_CLAIMING && !e->claiming)
        e->state = SL_ELECTION_WATCHING;
    announce_keeper(e);
    send_doubt(e, now);
}

/* Forget the current term, which has ended. The current term is now this one or a
 * later one. */
static void forget_term(struct sl_election *e, uint64_t term)
{
    e->known = false;
    e->term_min = term;
    read_term(e);
}

/* --- Storage results -------------------------------------------------------------- */

/* Record whether the storage answered. Returns true if it did. Except after a gap, an answer counts at the time
 * of its request: a late answer does not show that the storage still answers. */
static bool note_answer(struct sl_election *e, sl_ms now, sl_ms asked_ms, int status)
{
    bool yes = status == SLUICE_OK || status == SLUICE_ESTALE;
    if (!yes) {
        e->storage_answers = false;
        if (e->state != SL_ELECTION_LEADING && !e->reading) e->read_ms = now + RETRY_MS;
        return false;
    }
    /* After a gap, the storage was unavailable or this node was suspended. The
     * keeper may also have been unable to reach the storage, so count its silence
     * from now on. */
    if (!e->storage_answers ||
        now - e->answered_ms > GAP_HEARTBEATS * e->settings.heartbeat_ms)
        e->answers_since_ms = e->answered_ms = now;
    else if (asked_ms > e->answered_ms) e->answered_ms = asked_ms;
    e->storage_answers = true;
    return true;
}

void sl_election_term_read(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                           const struct sl_storage_result *d)
{
    note_sleep(e, now);
    e->reading = false;
    if (!note_answer(e, now, asked_ms, d->status)) return;
    e->known_at_ms = asked_ms;
    learn(e, now, &d->term_record);
    if (!e->known) e->read_ms = now + RETRY_MS;
    if (e->state == SL_ELECTION_LEADING || !e->known) return;
    sl_ms since = heartbeat_missing_since(e);
    if (is_member(e) && e->state == SL_ELECTION_WATCHING && e->current.term != 0 &&
        asked_ms - since >= e->settings.silence_ms && now >= e->claim_ms)
        claim(e, e->current.heartbeat);
    else consider(e, now);
}

static sl_ms shortened(sl_ms ms)
{
    return ms - ms / 500 - 1;
}

static sl_ms lengthened(sl_ms ms)
{
    return sl_ms_after(ms, ms / 499 + 2);
}

/* A keeper that has resigned has recorded all its leases, so only grants without a lease matter:
 * a node that has not reported them closes the connections of its clients meanwhile. */
static sl_ms quiet_after(const struct sl_election *e,
                         const struct sl_storage_term *before)
{
    if (before->resigned) return lengthened(e->settings.authority_ms);
    return lengthened(sl_ms_after(e->settings.authority_ms, before->longest_ms));
}

/* Return for how long the previous keeper may still grant. It sent its last confirmed heartbeat before
 * this node first saw it, and no other one was confirmed before the claim. */
static sl_ms authority_left(const struct sl_election *e, sl_ms now,
                            const struct sl_storage_term *before)
{
    sl_ms left = lengthened(e->settings.authority_ms);
    bool seen = e->known && e->current.term == e->claimed_term &&
                e->current.heartbeat == before->heartbeat;
    if (seen) left -= now - e->heartbeat_seen_ms;
    return left > 0 ? left : 0;
}

static void lead(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                 const struct sl_storage_result *d)
{
    struct sl_storage_term before = d->term_record;
    bool first = e->claimed_term == 0;
    sl_ms authority_ms = authority_left(e, now, &before);
    before.term = e->claimed_term;
    e->state = SL_ELECTION_LEADING;
    /* A renewal of an older term may still be outstanding; only one is sent at a
     * time. */
    e->renew_now = false;
    e->current = d->term_record;
    e->current.term = e->term_min = d->term;
    e->current.node = e->settings.self;
    e->current.resigned = false;
    e->known = true;
    e->heartbeat_seen_ms = now;
    e->authority_end_ms = asked_ms + shortened(e->settings.authority_ms);
    e->renew_ms = asked_ms + e->settings.heartbeat_ms;
    e->doubt_ms = SL_NEVER;
    order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_LEAD,
                                        .term = d->term,
                                        .before = before,
                                        .quiet_ms = first ? 0 : quiet_after(e, &before),
                                        .authority_ms = authority_ms});
    announce_keeper(e);
    /* Nodes that hear of an unknown term read it. */
    order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_DOUBT,
                                        .term = d->term,
                                        .sight = SL_PEER_UP});
}

/* Whether the term that we claimed is still the last one. The watch may have
 * reported a newer one. */
static bool is_current(const struct sl_election *e, uint64_t term)
{
    if (term < e->term_min) return false;
    return term > e->current.term ||
           (term == e->current.term && e->current.node == e->settings.self);
}

void sl_election_claimed(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                         const struct sl_storage_result *d)
{
    note_sleep(e, now);
    e->claiming = false;
    if (e->state == SL_ELECTION_CLAIMING) e->state = SL_ELECTION_WATCHING;
    note_answer(e, now, asked_ms, d->status);
    if (d->status == SLUICE_OK && is_current(e, d->term)) {
        lead(e, now, asked_ms, d);
        return;
    }
    if (d->status == SLUICE_ESTALE) {
        e->refused++;
        learn(e, now, &d->term_record);
    }
    /* Pause, because another node may be about to become the keeper, and a storage
     * that failed needs time. */
    e->claim_ms = now + RETRY_MS;
    consider(e, now);
}

void sl_election_renewed(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                         uint64_t term, const struct sl_storage_result *d)
{
    note_sleep(e, now);
    bool known = note_answer(e, now, asked_ms, d->status);
    e->renewing = false;
    if (e->state != SL_ELECTION_LEADING) return;
    if (term != e->current.term) { /* This renewal was for an older term. */
        if (e->renew_now) e->renew_ms = now;
        return;
    }
    if (d->status == SLUICE_ESTALE) {
        learn(e, now, &d->term_record);
        if (e->state != SL_ELECTION_LEADING) return;
        stop(e); /* The answer does not name the current term. */
        forget_term(e, e->current.term + 1);
        return;
    }
    if (known) {
        sl_ms end = asked_ms + shortened(e->settings.authority_ms);
        if (end > e->authority_end_ms) e->authority_end_ms = end;
    }
    e->renew_ms = known && !e->renew_now ? asked_ms + e->settings.heartbeat_ms
                  : known                ? now
                                         : now + RETRY_MS;
}

void sl_election_term_changed(struct sl_election *e, sl_ms now,
                              const struct sl_storage_term *r)
{
    note_sleep(e, now);
    note_answer(e, now, now, SLUICE_OK);
    learn(e, now, r);
    consider(e, now);
}

void sl_election_refused(struct sl_election *e, sl_ms now, uint64_t term)
{
    (void)now;
    if (term <= e->current.term) return;
    stop(e);
    forget_term(e, term);
}

/* --- Other nodes ----------------------------------------------------------------------- */

void sl_election_members(struct sl_election *e, sl_ms now, const uint32_t *ids,
                         size_t n)
{
    assert(n <= SL_ELECTION_NODES_MAX);
    for (uint32_t i = 0; i < SL_ELECTION_NODES_MAX; i++) e->at[i].member = false;
    e->member_count = n;
    for (size_t i = 0; i < n; i++) e->at[ids[i] % SL_ELECTION_NODES_MAX].member = true;
    consider(e, now);
}

void sl_election_peer_changed(struct sl_election *e, sl_ms now, uint32_t node,
                              enum sl_peer_state sight)
{
    note_sleep(e, now);
    if (node >= SL_ELECTION_NODES_MAX) return;
    struct election_peer *x = &e->at[node];
    /* The other node may have closed the connection because this one was suspended and so silent. If it
     * does not run any more, the next attempt to connect fails, too. */
    if (sight == SL_PEER_CLOSED && now - e->woke_ms < DOUBT_REPEAT_MS)
        sight = SL_PEER_SILENT;
    if (x->sight == sight) return;
    if (sight == SL_PEER_UP || x->sight == SL_PEER_UP) x->since_ms = now;
    x->sight = sight;
    if (e->known && node == e->current.node) send_doubt(e, now);
    consider(e, now);
}

void sl_election_peer_doubts(struct sl_election *e, sl_ms now, uint32_t from,
                             uint64_t term, enum sl_peer_state sight)
{
    note_sleep(e, now);
    if (from >= SL_ELECTION_NODES_MAX) return;
    struct election_peer *x = &e->at[from];
    if (term < x->doubt_term) return;
    x->doubt_term = term;
    x->doubt = sight;
    x->doubt_at_ms = now;
    if (e->known && term > e->current.term) read_term(e); /* It is newer than ours. */
    consider(e, now);
}

void sl_election_read_soon(struct sl_election *e, sl_ms now)
{
    note_sleep(e, now);
    if (e->state == SL_ELECTION_LEADING) return;
    if (e->read_ms == SL_NEVER && !e->reading) e->read_ms = now + RETRY_MS;
    consider(e, now);
}

void sl_election_hurries(struct sl_election *e, sl_ms now)
{
    if (e->state != SL_ELECTION_LEADING) return;
    e->renew_now = true;
    if (!e->renewing) e->renew_ms = now;
}

void sl_election_resign(struct sl_election *e, sl_ms now, bool mark)
{
    if (e->state != SL_ELECTION_LEADING) return;
    e->resigned_term = e->current.term;
    e->heartbeat_seen_ms = now; /* Let other nodes claim first. */
    if (mark)
        order(e, (struct sl_election_order){.type = SL_ELECTION_ORDER_RESIGN,
                                            .term = e->current.term});
    stop(e);
    announce_keeper(e);
    if (!e->storage_answers && !e->reading) e->read_ms = now + RETRY_MS;
}

/* --- Time ----------------------------------------------------------------------------- */

sl_ms sl_election_due(const struct sl_election *e)
{
    return e->count > 0 ? 0 : next_due(e);
}

void sl_election_tick(struct sl_election *e, sl_ms now)
{
    note_sleep(e, now);
    if (e->state == SL_ELECTION_LEADING && !e->renewing && e->renew_ms <= now) renew(e);
    if (e->state != SL_ELECTION_LEADING && e->doubt_ms <= now) send_doubt(e, now);
    if (e->claim_ms <= now) e->claim_ms = 0;
    if (e->read_ms <= now) read_term(e);
    consider(e, now);
}

/* --- Creation and destruction ----------------------------------------------------- */

struct sl_election *sl_election_new(const struct sl_election_settings *s, sl_ms now)
{
    struct sl_election *e = calloc(1, sizeof *e);
    assert(s->authority_ms > 0 && s->heartbeat_ms > 0 && s->silence_ms > 0);
    if (e == NULL || s->self == 0 || s->self >= SL_ELECTION_NODES_MAX) {
        free(e);
        return NULL;
    }
    e->settings = *s;
    e->renew_ms = e->doubt_ms = SL_NEVER;
    e->read_ms = e->called_ms = now;
    e->woke_ms = now - DOUBT_REPEAT_MS; /* It was not suspended. */
    for (size_t i = 0; i < SL_ELECTION_NODES_MAX; i++) {
        e->at[i].sight = SL_PEER_SILENT;
        e->at[i].since_ms = now;
    }
    return e;
}

void sl_election_free(struct sl_election *e)
{
    free(e);
}

/* --- Queries and invariants ------------------------------------------------------- */

void sl_election_view(const struct sl_election *e, struct sl_election_view *out)
{
    *out = (struct sl_election_view){.state = e->state,
                                     .current = e->current,
                                     .authority_end_ms = e->authority_end_ms,
                                     .known_ms = e->known_at_ms,
                                     .claims = e->claims,
                                     .refused = e->refused};
}

bool sl_election_has_member(const struct sl_election *e, uint32_t node)
{
    return node < SL_ELECTION_NODES_MAX && e->at[node].member;
}

#define must(so, what) assert((so) && what)

void sl_election_check(const struct sl_election *e)
{
    must(e->state != SL_ELECTION_CLAIMING || e->claiming,
         "a claiming node has an outstanding claim");
    must(e->state != SL_ELECTION_LEADING || e->current.node == e->settings.self,
         "a leading node is the keeper of the current term");
    must(e->state != SL_ELECTION_LEADING || e->known, "a leading node knows its term");
    must(!e->known || e->current.term >= e->term_min, "the known term is not over");
    must(e->count <= ORDERS_MAX && e->first < ORDERS_MAX, "orders fit into their ring");
    must(!e->storage_answers || e->answers_since_ms <= e->answered_ms,
         "the storage answers since a time that has passed");
    must(e->announced_term <= e->current.term || !e->known,
         "only a known term is announced");
    must(e->state != SL_ELECTION_LEADING || e->renewing || e->renew_ms != SL_NEVER,
         "a leading node renews its term");
    must(e->state == SL_ELECTION_LEADING || e->authority_end_ms == 0,
         "a node that does not lead has no authority");
    must(e->state != SL_ELECTION_LEADING || e->current.term != e->resigned_term,
         "a node that has resigned does not lead in that term again");
    bool reads = e->reading || e->read_ms != SL_NEVER;
    must(e->known || reads || e->claiming,
         "a node that does not know the term reads it");
    must(e->state == SL_ELECTION_LEADING || !e->known || e->storage_answers || reads ||
             e->claiming,
         "a storage that does not answer is asked again");
}
