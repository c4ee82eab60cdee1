#include "failover/election.h"

#include <assert.h>
#include <stdlib.h>

/* What one node says of the keeper is good for so long: it is said again before. */
#define DOUBT_GOOD_MS 2000
#define DOUBT_AGAIN_MS 500
#define AGAIN_MS 250 /* What failed is tried again after that. */
/* An engine that has said nothing for so many beats is asked whether it is there; and was
 * away, if it answers so much later. */
#define PROBE_BEATS 2
#define GAP_BEATS 4
#define SLEPT_MS 1000
#define ORDERS_MAX 16u

const struct sl_election_settings sl_election_settings_default = {
    .authority_ms = 2000, .beat_ms = 500, .silence_ms = 3000};

struct other {
    bool member;
    enum sl_peer_state sight; /* Of our connection with it, */
    sl_ms since_ms;           /* since then. */
    uint64_t doubts_term;     /* It does not see the keeper of this term, */
    enum sl_peer_state doubt; /* that is, like this; */
    sl_ms doubts_ms;          /* it said so then. */
};

struct sl_election {
    struct sl_election_settings settings;
    enum sl_election_state state;
    struct sl_storage_term reign;
    uint64_t term_min;      /* Older ones are over. */
    bool known;             /* The engine has said who the keeper is. */
    uint32_t told;          /* What was last ordered with KEEPER, */
    uint64_t told_term;     /* and its term. */
    sl_ms beat_seen_ms;     /* When its beat was first seen. */
    bool engine_answers;    /* The last time it was asked, */
    sl_ms answered_ms;      /* which was then; */
    sl_ms looked_ms;        /* The last LOOK that was answered was asked then. */
    sl_ms answers_since_ms; /* and so it did since then, without a gap. */

    bool looking, claiming, renewing;
    sl_ms look_ms, renew_ms; /* When to ask next; SL_NEVER. */
    sl_ms claim_ms;          /* Not before that; 0: at any time. */
    sl_ms doubt_ms;          /* When to say again what we see. */
    uint64_t claims_term;    /* What the claim under way compares. */
    bool hurry;
    sl_ms leads_since_ms;
    sl_ms authority_end_ms;
    struct other at[SL_ELECTION_NODES_MAX];
    size_t member_count;
    uint64_t claims, refused;

    struct sl_election_order orders[ORDERS_MAX];
    size_t first, count;
};

/* --- Orders ------------------------------------------------------------------------- */

static struct sl_election_order *order_at(struct sl_election *o, size_t i)
{
    return &o->orders[(o->first + i) % ORDERS_MAX];
}

/* The last of these says all: that nobody has fetched the ones before does not add up. Of
 * the others there is none before the last was answered, or, LEAD and STOP, as follows. */
static void forget_order(struct sl_election *o, enum sl_election_order_type type)
{
    size_t kept = 0;
    for (size_t i = 0; i < o->count; i++)
        if (order_at(o, i)->type != type) *order_at(o, kept++) = *order_at(o, i);
    o->count = kept;
}

static void order(struct sl_election *o, struct sl_election_order x)
{
    if (x.type == SL_ELECTION_ORDER_DOUBT || x.type == SL_ELECTION_ORDER_KEEPER)
        forget_order(o, x.type);
    if (o->count == ORDERS_MAX) abort();
    *order_at(o, o->count++) = x;
}

bool sl_election_next(struct sl_election *o, struct sl_election_order *out)
{
    if (o->count == 0) return false;
    *out = o->orders[o->first];
    o->first = (o->first + 1) % ORDERS_MAX;
    o->count--;
    return true;
}

static void look(struct sl_election *o)
{
    o->look_ms = SL_NEVER;
    if (o->looking) return;
    o->looking = true;
    order(o, (struct sl_election_order){.type = SL_ELECTION_ORDER_READ_TERM});
}

static void claim(struct sl_election *o, uint64_t beat)
{
    if (o->claiming) return;
    o->claiming = true;
    o->claims++;
    o->state = SL_ELECTION_CLAIMING;
    o->claims_term = o->reign.term;
    order(o, (struct sl_election_order){
                 .type = SL_ELECTION_ORDER_CLAIM, .term = o->reign.term, .beat = beat});
}

static void renew(struct sl_election *o)
{
    o->renew_ms = SL_NEVER;
    o->hurry = false;
    o->renewing = true;
    order(o, (struct sl_election_order){.type = SL_ELECTION_ORDER_RENEW,
                                        .term = o->reign.term});
}

/* Whoever is the keeper, if that is another than was told. */
static void tell_keeper(struct sl_election *o)
{
    bool ours = o->reign.node == o->settings.self && o->state != SL_ELECTION_LEADING;
    uint32_t node = ours ? 0 : o->reign.node;
    if (node == o->told && o->reign.term == o->told_term) return;
    o->told = node;
    o->told_term = o->reign.term;
    order(o, (struct sl_election_order){.type = SL_ELECTION_ORDER_KEEPER,
                                        .node = node,
                                        .term = o->reign.term});
}

static void stop(struct sl_election *o)
{
    if (o->state != SL_ELECTION_LEADING) return;
    o->state = SL_ELECTION_WATCHING;
    o->authority_end_ms = 0;
    o->renew_ms = SL_NEVER;
    order(o, (struct sl_election_order){.type = SL_ELECTION_ORDER_STOP,
                                        .term = o->told_term});
}

/* --- What is seen of the keeper ------------------------------------------------------- */

static bool is_member(const struct sl_election *o)
{
    return o->at[o->settings.self].member;
}

static enum sl_peer_state sight_of_keeper(const struct sl_election *o)
{
    uint32_t node = o->reign.node;
    if (node == o->settings.self) return SL_PEER_UP;
    return node < SL_ELECTION_NODES_MAX ? o->at[node].sight : SL_PEER_CLOSED;
}

static sl_ms silent_enough_ms(const struct sl_election *o)
{
    const struct other *k = &o->at[o->reign.node % SL_ELECTION_NODES_MAX];
    return k->since_ms + o->settings.silence_ms;
}

/* Silence that is short is no doubt: a node that has just started has heard of nobody, and
 * would be the majority of one that cannot reach the keeper. */
static enum sl_peer_state doubt_of_keeper(const struct sl_election *o, sl_ms now)
{
    enum sl_peer_state sight = sight_of_keeper(o);
#ifndef MUT_OFFICEHASTY
    if (sight == SL_PEER_SILENT && now < silent_enough_ms(o)) return SL_PEER_UP;
#endif
    return sight;
}

/* Said when it changes, and again while there is a doubt, since words may be lost. */
static void say_doubt(struct sl_election *o, sl_ms now)
{
    enum sl_peer_state sight = doubt_of_keeper(o, now);
    if (o->reign.term == 0 || o->reign.node == o->settings.self) {
        o->doubt_ms = SL_NEVER;
        return;
    }
    o->doubt_ms = sight != SL_PEER_UP                    ? now + DOUBT_AGAIN_MS
                  : sight_of_keeper(o) == SL_PEER_SILENT ? silent_enough_ms(o)
                                                         : SL_NEVER;
    order(o, (struct sl_election_order){.type = SL_ELECTION_ORDER_DOUBT,
                                        .term = o->reign.term,
                                        .sight = sight});
}

/* How many nodes, this one too, do not see the keeper; `closed`: find it closed. */
static uint32_t doubts(const struct sl_election *o, sl_ms now, bool closed)
{
    enum sl_peer_state own = sight_of_keeper(o);
    uint32_t n = own == SL_PEER_CLOSED || (!closed && own == SL_PEER_SILENT) ? 1 : 0;
    for (uint32_t i = 0; i < SL_ELECTION_NODES_MAX; i++) {
        const struct other *x = &o->at[i];
        if (!x->member || i == o->settings.self || i == o->reign.node) continue;
#ifndef MUT_OFFICEOLD
        if (x->doubts_term != o->reign.term || now - x->doubts_ms > DOUBT_GOOD_MS)
            continue;
#endif
        if (x->doubt == SL_PEER_CLOSED || (!closed && x->doubt == SL_PEER_SILENT)) n++;
    }
    return n;
}

static bool is_majority(const struct sl_election *o, uint32_t n)
{
#ifdef MUT_OFFICEONE
    return n > 0;
#endif
    return n > o->member_count / 2;
}

/* --- Reasons -------------------------------------------------------------------------- */

/* Since when the keeper has not renewed though we would have seen it; or SL_NEVER. */
static sl_ms silent_since(const struct sl_election *o)
{
#ifdef MUT_OFFICEAWAY
    return o->beat_seen_ms;
#endif
    if (!o->engine_answers) return SL_NEVER;
    return o->beat_seen_ms > o->answers_since_ms ? o->beat_seen_ms
                                                 : o->answers_since_ms;
}

static bool should_claim_term(const struct sl_election *o, sl_ms now)
{
    if (o->reign.term == 0 || o->reign.node == o->settings.self) return true;
    if (sight_of_keeper(o) == SL_PEER_UP) return false;
    if (is_majority(o, doubts(o, now, true))) return true;
    return now >= silent_enough_ms(o) && is_majority(o, doubts(o, now, false));
}

/* When to look: its silence is worth it, or nothing else would say that the engine is
 * there, without which silence means nothing. */
static sl_ms silence_due(const struct sl_election *o)
{
    if (o->state != SL_ELECTION_WATCHING || !o->known || o->looking || !is_member(o) ||
        silent_since(o) == SL_NEVER)
        return SL_NEVER;
    sl_ms silence = silent_since(o) + o->settings.silence_ms;
    sl_ms probe = o->answered_ms + PROBE_BEATS * o->settings.beat_ms;
    return probe < silence ? probe : silence;
}

/* Look at everything once more: is there a reason to ask for something? */
static void consider(struct sl_election *o, sl_ms now)
{
    if (o->state != SL_ELECTION_WATCHING || !is_member(o)) return;
    if (!o->known) return; /* A look is under way, or due. */
    if (now < o->claim_ms) return;
    if (should_claim_term(o, now)) claim(o, 0);
    else if (silence_due(o) <= now) look(o); /* Its answer decides. */
}

static void earlier(sl_ms *due, sl_ms other)
{
    if (other < *due) *due = other;
}

static sl_ms next_due(const struct sl_election *o)
{
    sl_ms due = SL_NEVER;
    if (!o->looking) earlier(&due, o->look_ms);
    if (o->state == SL_ELECTION_LEADING && !o->renewing) earlier(&due, o->renew_ms);
    if (o->state != SL_ELECTION_LEADING) earlier(&due, o->doubt_ms);
    if (o->state == SL_ELECTION_WATCHING) {
        if (o->claim_ms > 0) earlier(&due, o->claim_ms);
        else earlier(&due, silence_due(o));
    }
    return due;
}

/* Called much later than was due this node was asleep: that it has heard of nobody says
 * nothing of anybody. */
static void wake(struct sl_election *o, sl_ms now)
{
    sl_ms due = next_due(o);
#ifdef MUT_OFFICESLEEP
    return;
#endif
    if (due > now || now - due < SLEPT_MS) return;
    for (size_t i = 0; i < SL_ELECTION_NODES_MAX; i++)
        if (o->at[i].sight != SL_PEER_UP) o->at[i].since_ms = now;
}

/* What the engine has now. */
static void take(struct sl_election *o, sl_ms now, const struct sl_storage_term *r)
{
    bool newer = !o->known || r->term > o->reign.term;
    if (r->term < o->term_min)
        return; /* Overtaken by a newer answer, as is the next. */
    if (!newer && r->heartbeat < o->reign.heartbeat) return;
    o->term_min = r->term;
    if (newer || r->heartbeat != o->reign.heartbeat) o->beat_seen_ms = now;
    o->reign = *r;
    o->known = true;
    if (!newer) return;
    stop(o); /* Where this node leads, what is newer is another's. */
    if (o->state == SL_ELECTION_CLAIMING && !o->claiming)
        o->state = SL_ELECTION_WATCHING;
    tell_keeper(o);
    say_doubt(o, now);
}

/* All that was known is over: this term is current, or a later one. */
static void forget(struct sl_election *o, uint64_t term)
{
    o->known = false;
    o->term_min = term;
    look(o);
}

/* --- What the engine says --------------------------------------------------------------- */

static bool answers(struct sl_election *o, sl_ms now, int status)
{
    bool yes = status == SLUICE_OK || status == SLUICE_ESTALE;
    if (!yes) {
        o->engine_answers = false;
        if (o->state != SL_ELECTION_LEADING && !o->looking) o->look_ms = now + AGAIN_MS;
        return false;
    }
    /* Else it was away, or this node was: then the keeper may have tried as well. */
    if (!o->engine_answers || now - o->answered_ms > GAP_BEATS * o->settings.beat_ms)
        o->answers_since_ms = now;
    o->engine_answers = true;
    o->answered_ms = now;
    return true;
}

void sl_election_term_read(struct sl_election *o, sl_ms now, sl_ms asked_ms,
                           const struct sl_storage_result *d)
{
    wake(o, now);
    o->looking = false;
    if (!answers(o, now, d->status)) return;
    o->looked_ms = asked_ms;
    take(o, now, &d->term_record);
    if (!o->known) o->look_ms = now + AGAIN_MS;
    if (o->state == SL_ELECTION_LEADING || !o->known) return;
    sl_ms since = silent_since(o);
    if (is_member(o) && o->state == SL_ELECTION_WATCHING && o->reign.term != 0 &&
        asked_ms - since >= o->settings.silence_ms && now >= o->claim_ms)
#ifdef MUT_OFFICEBEAT
        claim(o, 0);
#else
        claim(o, o->reign.heartbeat);
#endif
    else consider(o, now);
}

static sl_ms shortened(sl_ms ms)
{
#ifdef MUT_OFFICESHORT
    return ms;
#endif
    return ms - ms / 500 - 1;
}

static sl_ms lengthened(sl_ms ms)
{
#ifdef MUT_OFFICELONG
    return ms;
#endif
    return sl_ms_after(ms, ms / 499 + 2);
}

static sl_ms quiet_after(const struct sl_election *o,
                         const struct sl_storage_term *before)
{
#ifdef MUT_OFFICEQUIET
    return 0;
#endif
    return lengthened(sl_ms_after(o->settings.authority_ms, before->longest_ms));
}

static void lead(struct sl_election *o, sl_ms now, sl_ms asked_ms,
                 const struct sl_storage_result *d)
{
    struct sl_storage_term before = d->term_record;
    bool first = o->claims_term == 0;
    before.term = o->claims_term;
    o->state = SL_ELECTION_LEADING;
    o->leads_since_ms = now;
    o->hurry =
        false; /* A renewal of an old reign may still be under way: one at a time. */
    o->reign = d->term_record;
    o->reign.term = o->term_min = d->term;
    o->reign.node = o->settings.self;
    o->known = true;
    o->beat_seen_ms = now;
    o->authority_end_ms = asked_ms + shortened(o->settings.authority_ms);
    o->renew_ms = asked_ms + o->settings.beat_ms;
    o->doubt_ms = SL_NEVER;
    order(o,
          (struct sl_election_order){.type = SL_ELECTION_ORDER_LEAD,
                                     .term = d->term,
                                     .before = before,
                                     .quiet_ms = first ? 0 : quiet_after(o, &before)});
    tell_keeper(o);
    /* Others look when they hear of a term that they do not know. */
    order(o, (struct sl_election_order){.type = SL_ELECTION_ORDER_DOUBT,
                                        .term = d->term,
                                        .sight = SL_PEER_UP});
}

/* Whether this term of ours is the last that is known: the watch may have been faster. */
static bool is_current(const struct sl_election *o, uint64_t term)
{
#ifdef MUT_OFFICECURRENT
    return true;
#endif
    if (term < o->term_min) return false;
    return term > o->reign.term ||
           (term == o->reign.term && o->reign.node == o->settings.self);
}

void sl_election_claimed(struct sl_election *o, sl_ms now, sl_ms asked_ms,
                         const struct sl_storage_result *d)
{
    wake(o, now);
    o->claiming = false;
    if (o->state == SL_ELECTION_CLAIMING) o->state = SL_ELECTION_WATCHING;
    answers(o, now, d->status);
    if (d->status == SLUICE_OK && is_current(o, d->term)) {
        lead(o, now, asked_ms, d);
        return;
    }
    if (d->status == SLUICE_ESTALE) {
        o->refused++;
        take(o, now, &d->term_record);
    }
    /* Not at once again: others may be about to become it; and an engine that failed is not
     * to be asked without a pause. */
    o->claim_ms = now + AGAIN_MS;
    consider(o, now);
}

void sl_election_renewed(struct sl_election *o, sl_ms now, sl_ms asked_ms,
                         const struct sl_storage_result *d)
{
    bool known = answers(o, now, d->status);
    o->renewing = false;
    if (o->state != SL_ELECTION_LEADING) return;
#ifndef MUT_OFFICELATE
    if (asked_ms < o->leads_since_ms) { /* Of an old reign. */
        if (o->hurry) o->renew_ms = now;
        return;
    }
#endif
    if (d->status == SLUICE_ESTALE) {
        take(o, now, &d->term_record);
        if (o->state != SL_ELECTION_LEADING) return;
        stop(o); /* It says less than it knows. */
        forget(o, o->reign.term + 1);
        return;
    }
    if (known) {
#ifdef MUT_OFFICEANSWER
        asked_ms = now;
#endif
        sl_ms end = asked_ms + shortened(o->settings.authority_ms);
        if (end > o->authority_end_ms) o->authority_end_ms = end;
    }
    o->renew_ms = known && !o->hurry ? asked_ms + o->settings.beat_ms
                  : known            ? now
                                     : now + AGAIN_MS;
}

void sl_election_term_changed(struct sl_election *o, sl_ms now,
                              const struct sl_storage_term *r)
{
    wake(o, now);
    answers(o, now, SLUICE_OK);
    take(o, now, r);
    consider(o, now);
}

void sl_election_refused(struct sl_election *o, sl_ms now, uint64_t term)
{
    (void)now;
    if (term <= o->reign.term) return;
    stop(o);
    forget(o, term);
}

/* --- What is seen and heard --------------------------------------------------------------- */

void sl_election_members(struct sl_election *o, sl_ms now, const uint32_t *ids,
                         size_t n)
{
    for (uint32_t i = 0; i < SL_ELECTION_NODES_MAX; i++) o->at[i].member = false;
    o->member_count = n;
    for (size_t i = 0; i < n; i++) o->at[ids[i] % SL_ELECTION_NODES_MAX].member = true;
    consider(o, now);
}

void sl_election_peer_changed(struct sl_election *o, sl_ms now, uint32_t node,
                              enum sl_peer_state sight)
{
    wake(o, now);
    if (node >= SL_ELECTION_NODES_MAX) return;
    struct other *x = &o->at[node];
    if (x->sight == sight) return;
    if (sight == SL_PEER_UP || x->sight == SL_PEER_UP) x->since_ms = now;
    x->sight = sight;
    if (o->known && node == o->reign.node) say_doubt(o, now);
    consider(o, now);
}

void sl_election_peer_doubts(struct sl_election *o, sl_ms now, uint32_t from,
                             uint64_t term, enum sl_peer_state sight)
{
    wake(o, now);
    if (from >= SL_ELECTION_NODES_MAX) return;
    struct other *x = &o->at[from];
    if (term < x->doubts_term) return;
    x->doubts_term = term;
    x->doubt = sight;
    x->doubts_ms = now;
    if (o->known && term > o->reign.term) look(o); /* It knows more than we do. */
    consider(o, now);
}

void sl_election_read_soon(struct sl_election *o, sl_ms now)
{
    wake(o, now);
    if (o->state == SL_ELECTION_LEADING) return;
    if (o->look_ms == SL_NEVER && !o->looking) o->look_ms = now + AGAIN_MS;
    consider(o, now);
}

void sl_election_hurries(struct sl_election *o, sl_ms now)
{
    if (o->state != SL_ELECTION_LEADING) return;
    o->hurry = true;
    if (!o->renewing) o->renew_ms = now;
}

/* --- Time ----------------------------------------------------------------------------- */

sl_ms sl_election_due(const struct sl_election *o)
{
    return o->count > 0 ? 0 : next_due(o);
}

void sl_election_tick(struct sl_election *o, sl_ms now)
{
    wake(o, now);
    if (o->state == SL_ELECTION_LEADING && !o->renewing && o->renew_ms <= now) renew(o);
    if (o->state != SL_ELECTION_LEADING && o->doubt_ms <= now) say_doubt(o, now);
    if (o->claim_ms <= now) o->claim_ms = 0;
    if (o->look_ms <= now) look(o);
    consider(o, now);
}

/* --- Life ------------------------------------------------------------------------------- */

struct sl_election *sl_election_new(const struct sl_election_settings *s, sl_ms now)
{
    struct sl_election *o = calloc(1, sizeof *o);
    if (o == NULL || s->self == 0 || s->self >= SL_ELECTION_NODES_MAX) {
        free(o);
        return NULL;
    }
    o->settings = *s;
    o->renew_ms = o->doubt_ms = SL_NEVER;
    o->look_ms = now;
    for (size_t i = 0; i < SL_ELECTION_NODES_MAX; i++) {
        o->at[i].sight = SL_PEER_SILENT;
        o->at[i].since_ms = now;
    }
    return o;
}

void sl_election_free(struct sl_election *o)
{
    free(o);
}

/* --- Ask --------------------------------------------------------------------------------- */

void sl_election_view(const struct sl_election *o, struct sl_election_view *out)
{
    *out = (struct sl_election_view){.state = o->state,
                                     .reign = o->reign,
                                     .authority_end_ms = o->authority_end_ms,
                                     .looked_ms = o->looked_ms,
                                     .claims = o->claims,
                                     .refused = o->refused};
    for (uint32_t i = 0; i < SL_ELECTION_NODES_MAX; i++)
        if (o->at[i].member && i != o->settings.self &&
            o->at[i].doubts_term == o->reign.term && o->at[i].doubt != SL_PEER_UP)
            out->doubts++;
    if (o->known && sight_of_keeper(o) != SL_PEER_UP) out->doubts++;
}

#define must(so, what) assert((so) && what)

void sl_election_check(const struct sl_election *o)
{
    must((o->state == SL_ELECTION_CLAIMING) <= o->claiming,
         "who claims has asked the engine");
    must(o->state != SL_ELECTION_LEADING || o->reign.node == o->settings.self,
         "who leads is the keeper");
    must(o->state != SL_ELECTION_LEADING || o->renewing || o->renew_ms != SL_NEVER,
         "who leads renews");
    must(o->state == SL_ELECTION_LEADING || o->authority_end_ms == 0,
         "who does not lead has no authority");
    bool looks = o->looking || o->look_ms != SL_NEVER;
    must(o->known || looks || o->claiming, "who does not know the keeper looks");
    must(o->state == SL_ELECTION_LEADING || !o->known || o->engine_answers || looks ||
             o->claiming,
         "an engine that does not answer is asked again");
}
