#include "majority_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct sl_node_limits stage_limits = {.keys_max = 1000,
                                            .waiters_max = 64,
                                            .key_bytes_max = STAGE_BYTES,
                                            .value_bytes_max = STAGE_BYTES,
                                            .lease_min_ms = 50,
                                            .lease_max_ms = 60000,
                                            .heartbeat_ms = 100,
                                            .answer_ms = 250,
                                            .answer_min_ms = 10,
                                            .answer_max_ms = 2000,
                                            .forget_ms = 5000,
                                            .waiting_messages_max = 1000,
                                            .requests_max = 1000,
                                            .drains_max = 3,
                                            .request_keep_ms = 30000,
                                            .linger_ms = 2000};

bool stage_in_node;

/* Around every call of a node that may change it. */
#define CALL(...)              \
    do {                       \
        stage_in_node = true;  \
        __VA_ARGS__;           \
        stage_in_node = false; \
    } while (0)

/* --- Clocks ------------------------------------------------------------------ */

struct sl_now clock_of(const struct stage *s, sl_node_id id)
{
    const struct actor *a = &s->actor[id];
    int64_t us = s->now_us + s->now_us * a->ppm / 1000000 + a->offset_us;
    int64_t wall = s->now_us + a->wall_offset_us;
    return (struct sl_now){.ms = us / 1000, .wall_us = wall > 0 ? (uint64_t)wall : 0};
}

sl_ms now_ms(const struct stage *s)
{
    return s->now_us / 1000;
}

/* --- The bag ------------------------------------------------------------------- */

static struct sl_bytes moved(char **to, struct sl_bytes b)
{
    if (b.at == NULL) return b;
    if (b.n > 0) memcpy(*to, b.at, b.n);
    struct sl_bytes out = {*to, b.n};
    *to += b.n;
    return out;
}

static struct parcel packed(sl_node_id from, sl_node_id to, const struct sl_message *m)
{
    struct parcel p = {.from = from, .to = to, .m = *m};
    p.bytes = malloc(m->key.n + m->value.n + m->note.n + m->client.n + m->request.n +
                     1);
    char *at = p.bytes;
    p.m.key = moved(&at, m->key);
    p.m.value = moved(&at, m->value);
    p.m.note = moved(&at, m->note);
    p.m.client = moved(&at, m->client);
    p.m.request = moved(&at, m->request);
    return p;
}

static void append(struct parcel **all, size_t *count, size_t *size, struct parcel p)
{
    if (*count == *size) {
        *size = *size == 0 ? 64 : 2 * *size;
        *all = realloc(*all, *size * sizeof **all);
    }
    (*all)[(*count)++] = p;
}

static void put(struct stage *s, sl_node_id from, sl_node_id to,
                const struct sl_message *m)
{
    append(&s->bag, &s->bag_count, &s->bag_size, packed(from, to, m));
    if (s->remembers)
        append(&s->sent, &s->sent_count, &s->sent_size, packed(from, to, m));
}

static struct parcel taken(struct stage *s, size_t i)
{
    struct parcel p = s->bag[i];
    memmove(&s->bag[i], &s->bag[i + 1], (--s->bag_count - i) * sizeof *s->bag);
    return p;
}

static bool fits(const struct parcel *p, sl_node_id from, sl_node_id to,
                 enum sl_message_type type)
{
    return (from == 0 || p->from == from) && (to == 0 || p->to == to) &&
           (type == SL_MESSAGE_NONE || p->m.type == type);
}

static const struct rule *rule_of(const struct stage *s, const struct parcel *p)
{
    for (uint32_t i = 0; i < s->rules; i++) {
        const struct rule *r = &s->rule[i];
        if (fits(p, r->from, r->to, r->type)) return r;
    }
    return NULL;
}

/* --- What clients believe -------------------------------------------------------- */

static int64_t counted(const struct request *r, int64_t from_us, sl_ms ms)
{
    double us = 0.998 * 1000.0 * (double)ms;
    return from_us + (int64_t)(us / (1.0 + r->client_ppm / 1e6));
}

static bool same_key(const struct request *a, const struct request *b)
{
    return strcmp(a->key, b->key) == 0;
}

static bool is_grant(const struct request *r)
{
    return r->ask.type == SL_NODE_ACQUIRE && r->answered && !r->withdrawn &&
           r->answer.status == SLUICE_OK;
}

bool believes(const struct stage *s, uint64_t request)
{
    const struct request *r = &s->request[request];
    return is_grant(r) && r->end_us > s->now_us;
}

static void judge_grant(struct stage *s, struct request *r)
{
    for (uint64_t t = 1; t <= s->requests; t++) {
        const struct request *o = &s->request[t];
        if (o == r || !is_grant(o) || !same_key(o, r)) continue;
        if (r->answer.grant.fence <= o->answer.grant.fence)
            fail_msg("fence %llu of '%s' follows %llu",
                     (unsigned long long)r->answer.grant.fence, r->key,
                     (unsigned long long)o->answer.grant.fence);
        if (o->end_us > s->now_us && r->end_us > s->now_us &&
            !r->answer.grant.overlapping && !s->may_overlap)
            fail_msg("two hold '%s': one of node %u for %d ms more, and one of node %u",
                     r->key, o->at, (int)((o->end_us - s->now_us) / 1000), r->at);
    }
}

static void hear_grant(struct stage *s, struct request *r)
{
    const struct sl_grant *g = &r->answer.grant;
    r->granted_us = s->now_us;
    r->end_us = counted(r, r->sent_us, g->waited_ms + g->lease_ms);
    if (!g->replay) judge_grant(s, r); /* Else it is the grant of another attempt. */
}

/* Its hold goes on, so nobody can have come after it. */
static void hear_extend(struct stage *s, struct request *r)
{
    for (uint64_t t = 1; t <= s->requests; t++) {
        struct request *o = &s->request[t];
        if (!is_grant(o) || !same_key(o, r)) continue;
        if (o->answer.grant.fence > r->ask.fence && !o->answer.grant.overlapping &&
            !s->may_overlap)
            fail_msg("'%s' was extended, though another had it since", r->key);
        if (o->answer.grant.fence != r->ask.fence) continue;
        int64_t end_us = counted(r, r->sent_us, r->answer.number);
        if (end_us > o->end_us) o->end_us = end_us;
    }
}

/* A client that requests its release no longer acts. */
static void end_belief(struct stage *s, const struct request *r)
{
    for (uint64_t t = 1; t <= s->requests; t++) {
        struct request *o = &s->request[t];
        if (is_grant(o) && same_key(o, r) && o->answer.grant.fence == r->ask.fence)
            o->end_us = s->now_us;
    }
}

/* --- Orders ------------------------------------------------------------------------ */

static struct sl_bytes written_to(char to[STAGE_BYTES], struct sl_bytes b)
{
    if (b.at == NULL) return b;
    assert_true(b.n <= STAGE_BYTES);
    memcpy(to, b.at, b.n);
    return (struct sl_bytes){to, b.n};
}

static void hear_answer(struct stage *s, sl_node_id at, uint64_t ticket,
                        const struct sl_node_answer *a)
{
    assert_true(ticket >= 1 && ticket <= s->requests);
    struct request *r = &s->request[ticket];
    assert_int_equal(r->at, at);
    assert_false(r->answered); /* Exactly one. */
    assert_false(r->withdrawn);
    r->answered = true;
    r->answer = *a;
    assert_true(a->copy_count <= STAGE_NODES);
    for (uint32_t i = 0; i < a->copy_count; i++) {
        r->copies[i] = a->copies[i];
        r->copies[i].value = written_to(r->bytes[i][0], a->copies[i].value);
        r->copies[i].note = written_to(r->bytes[i][1], a->copies[i].note);
        r->copies[i].client = written_to(r->bytes[i][2], a->copies[i].client);
    }
    r->answer.copies = r->copies;
    if (a->status != SLUICE_OK) return;
    if (r->ask.type == SL_NODE_ACQUIRE) hear_grant(s, r);
    if (r->ask.type == SL_NODE_EXTEND) hear_extend(s, r);
}

static void hear_event(struct stage *s, sl_node_id at, const struct sl_node_event *e)
{
    assert_true(s->events < STAGE_EVENTS);
    struct seen *seen = &s->seen[s->events++];
    *seen = (struct seen){.at = at, .type = e->type, .event = *e};
    assert_true(e->key.n < STAGE_BYTES);
    memcpy(seen->key, e->key.at, e->key.n);
    seen->event.key = seen->event.note = (struct sl_bytes){0};
}

static void hear_write(struct actor *a, const struct sl_node_durable *d)
{
    assert_false(a->writes); /* No other comes before it was written. */
    a->written = *d;
    a->writes = true;
    a->wrote++;
}

static void hear(struct stage *s, sl_node_id id, const struct sl_node_order *o)
{
    struct actor *a = &s->actor[id];
    bool shows = o->type == SL_NODE_ORDER_SEND || o->type == SL_NODE_ORDER_ANSWER ||
                 o->type == SL_NODE_ORDER_EVENT;
    if (a->is_cut && shows) return;
    switch (o->type) {
        case SL_NODE_ORDER_SEND:
            assert_true(o->to >= 1 && o->to <= STAGE_NODES && o->to != id);
            put(s, id, o->to, o->message);
            break;
        case SL_NODE_ORDER_ANSWER: hear_answer(s, id, o->ticket, o->answer); break;
        case SL_NODE_ORDER_EVENT: hear_event(s, id, o->event); break;
        case SL_NODE_ORDER_WRITE: hear_write(a, o->durable); break;
        case SL_NODE_ORDER_RECORD:
            if (a->write_fails) a->is_cut = true;
            else sim_disk_write(&a->journal, clock_of(s, id));
            break;
        case SL_NODE_ORDER_LINKS: s->relinks++; break;
        case SL_NODE_ORDER_LOG: snprintf(a->log, sizeof a->log, "%s", o->text); break;
    }
}

void disk_done(struct stage *s, sl_node_id id, bool ok)
{
    struct actor *a = &s->actor[id];
    assert_true(a->writes);
    a->writes = false;
    if (ok) a->disk = a->written;
    CALL(sl_node_written(a->node, clock_of(s, id), ok));
}

/* Sync its journal if that is due, or mend it. Returns false if there is nothing to do. */
static bool sync_journal(struct stage *s, sl_node_id id)
{
    struct actor *a = &s->actor[id];
    struct sl_now now = clock_of(s, id);
    if (a->disk_stopped) return false;
    if (sl_journal_failed(a->journal.journal)) {
        if (a->disk_fails) return false;
        sim_disk_mend(&a->journal, now, a->node);
    } else if (sl_journal_sync_due(a->journal.journal) <= now.ms) {
        sim_disk_sync_begin(&a->journal);
        sim_disk_sync_end(&a->journal, !a->disk_fails);
    } else return false;
    CALL(sl_node_synced(a->node, now));
    return true;
}

/* A server writes the journal after the last order, and before it sends anything. */
static void fail_write(struct stage *s, sl_node_id id)
{
    struct actor *a = &s->actor[id];
    a->is_cut = a->write_fails = false;
    sim_disk_write_fails(&a->journal, clock_of(s, id), &s->random);
}

/* All that it has to say; and what it writes is written, if the disk is quick. */
static void drain(struct stage *s, sl_node_id id)
{
    struct actor *a = &s->actor[id];
    for (unsigned i = 0;; i++) {
        struct sl_node_order o;
        bool more;
        assert_true(i < 100000); /* Else it has something to say forever. */
        memset(&o, 0, sizeof o);
        CALL(more = sl_node_next(a->node, &o));
        if (more) hear(s, id, &o);
        else if (a->is_cut) fail_write(s, id);
        else if (a->writes && !a->disk_stopped) disk_done(s, id, !a->disk_fails);
        else if (!sync_journal(s, id)) break;
    }
    sl_node_check(a->node);
    sl_journal_check(a->journal.journal);
}

/* Drains it, and lets the others know of new connections; messages stay in the bag. */
static void follow(struct stage *s, sl_node_id id)
{
    drain(s, id);
    while (s->relinks > 0) {
        s->relinks = 0;
        relink(s);
    }
}

static bool is_up(const struct stage *s, sl_node_id id)
{
    return s->actor[id].node != NULL;
}

static bool acts(const struct stage *s, sl_node_id id)
{
    return is_up(s, id) && !s->actor[id].paused;
}

/* --- Connections ---------------------------------------------------------------------- */

static bool wants(const struct stage *s, sl_node_id a, sl_node_id b)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(s->actor[a].node, peers);
    assert_true(n <= 2 * SL_NODES_MAX);
    for (uint32_t i = 0; i < n; i++)
        if (peers[i].id == b) return true;
    return false;
}

/* `a` hears that `b` is there, or not any more. */
static bool tell_link(struct stage *s, sl_node_id a, sl_node_id b, bool up)
{
    const char *why = NULL;
    bool good;
    const struct sl_node_identity *states = up ? sl_node_identity(s->actor[b].node)
                                               : NULL;
    CALL(good = sl_node_link(s->actor[a].node, clock_of(s, a), b, up, states, &why));
    if (up && !good) assert_non_null(why);
    drain(s, a);
    return good;
}

static void take_down(struct stage *s, sl_node_id a, sl_node_id b)
{
    if (!s->linked[a][b]) return;
    s->linked[a][b] = s->linked[b][a] = false;
    if (is_up(s, a)) tell_link(s, a, b, false);
    if (is_up(s, b)) tell_link(s, b, a, false);
}

static void meet(struct stage *s, sl_node_id a, sl_node_id b)
{
    if (s->barred[a][b] || s->linked[a][b] || (!wants(s, a, b) && !wants(s, b, a)))
        return;
    if (!tell_link(s, a, b, true)) return;
    if (!tell_link(s, b, a, true)) tell_link(s, a, b, false);
    else s->linked[a][b] = s->linked[b][a] = true;
}

void relink(struct stage *s)
{
    for (sl_node_id a = 1; a <= STAGE_NODES; a++)
        for (sl_node_id b = a + 1; b <= STAGE_NODES; b++)
            if (!is_up(s, a) || !is_up(s, b)) take_down(s, a, b);
            else if (s->linked[a][b] && !wants(s, a, b) && !wants(s, b, a))
                take_down(s, a, b);
            else meet(s, a, b);
}

void unlink_nodes(struct stage *s, sl_node_id a, sl_node_id b)
{
    s->barred[a][b] = s->barred[b][a] = true;
    take_down(s, a, b);
    settle(s);
}

void link_nodes(struct stage *s, sl_node_id a, sl_node_id b)
{
    s->barred[a][b] = s->barred[b][a] = false;
    relink(s);
    settle(s);
}

/* --- Messages ---------------------------------------------------------------------------- */

static void rule_add(struct stage *s, struct rule r)
{
    assert_true(s->rules < STAGE_RULES);
    s->rule[s->rules++] = r;
}

void hold(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type)
{
    rule_add(s, (struct rule){from, to, type, false});
}

void cut(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type)
{
    rule_add(s, (struct rule){from, to, type, true});
}

void isolate(struct stage *s, sl_node_id id)
{
    cut(s, id, 0, SL_MESSAGE_NONE);
    cut(s, 0, id, SL_MESSAGE_NONE);
}

void open_all(struct stage *s)
{
    s->rules = 0;
}

void flow(struct stage *s)
{
    open_all(s);
    settle(s);
}

/* With STAGE_TRACE in the environment all that is delivered is told. */
static void trace(const struct stage *s, const struct parcel *p)
{
    static int wanted = -1;
    if (wanted < 0) wanted = getenv("STAGE_TRACE") != NULL;
    if (!wanted || p->m.type == SL_MESSAGE_BEAT) return;
    fprintf(stderr, "%8.3f %u->%u %s", (double)s->now_us / 1e6 - 1000, p->from, p->to,
            sl_message_name(p->m.type));
    if (p->m.type == SL_MESSAGE_VOTE || p->m.verdict != SL_VERDICT_NONE)
        fprintf(stderr, " %s", sl_vote_verdict_name(p->m.verdict));
    fprintf(stderr, " fence %llu owner %llu.%llu lease %d left %d flags %x v%u\n",
            (unsigned long long)p->m.fence, (unsigned long long)p->m.owner.epoch,
            (unsigned long long)p->m.owner.number, (int)p->m.lease_ms,
            (int)p->m.left_ms, p->m.flags, (unsigned)p->m.version);
}

static void receive(struct stage *s, const struct parcel *p)
{
    trace(s, p);
    if (!is_up(s, p->to) || !s->linked[p->from][p->to]) return;
    CALL(sl_node_receive(s->actor[p->to].node, clock_of(s, p->to), p->from, &p->m));
    follow(s, p->to);
}

void shuffle(struct stage *s, uint64_t seed)
{
    s->shuffled = true;
    sl_random_seed(&s->random, seed);
}

bool settle_one(struct stage *s)
{
    size_t first = s->shuffled ? sl_random_below(&s->random, (uint32_t)s->bag_count)
                               : 0;
    for (size_t n = 0; n < s->bag_count; n++) {
        size_t i = (first + n) % s->bag_count;
        if (s->last_first) i = s->bag_count - 1 - n;
        const struct rule *r = rule_of(s, &s->bag[i]);
        if (r != NULL && !r->lose) continue;
        if (s->actor[s->bag[i].to].paused) continue;
        struct parcel p = taken(s, i);
        if (r == NULL) receive(s, &p);
        if (r == NULL && s->doubled) receive(s, &p);
        free(p.bytes);
        return true;
    }
    return false;
}

void settle(struct stage *s)
{
    for (unsigned i = 0; settle_one(s); i++)
        assert_true(i < 100000); /* Else they talk forever. */
}

static size_t find(const struct stage *s, sl_node_id from, sl_node_id to,
                   enum sl_message_type type)
{
    size_t i = 0;
    while (i < s->bag_count && !fits(&s->bag[i], from, to, type)) i++;
    return i;
}

static size_t find_newest(const struct stage *s, sl_node_id from, sl_node_id to,
                          enum sl_message_type type)
{
    size_t i = s->bag_count;
    while (i > 0 && !fits(&s->bag[i - 1], from, to, type)) i--;
    return i == 0 ? s->bag_count : i - 1;
}

static void deliver_at(struct stage *s, size_t i, const char *name)
{
    if (i == s->bag_count) fail_msg("no %s is in the bag", name == NULL ? "" : name);
    struct parcel p = taken(s, i);
    receive(s, &p);
    free(p.bytes);
    settle(s);
}

void deliver(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type)
{
    deliver_at(s, find(s, from, to, type), sl_message_name(type));
}

void deliver_newest(struct stage *s, sl_node_id from, sl_node_id to,
                    enum sl_message_type type)
{
    deliver_at(s, find_newest(s, from, to, type), sl_message_name(type));
}

void again(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type)
{
    size_t i = find(s, from, to, type);
    if (i == s->bag_count) fail_msg("no %s is in the bag", sl_message_name(type));
    struct parcel p = packed(s->bag[i].from, s->bag[i].to, &s->bag[i].m);
    receive(s, &p);
    free(p.bytes);
    settle(s);
}

void deliver_all(struct stage *s, sl_node_id from, sl_node_id to,
                 enum sl_message_type type)
{
    for (uint32_t n = kept(s, from, to, type); n > 0; n--) deliver(s, from, to, type);
}

void lose(struct stage *s, sl_node_id from, sl_node_id to, enum sl_message_type type)
{
    for (;;) {
        size_t i = find(s, from, to, type);
        if (i == s->bag_count) return;
        free(taken(s, i).bytes);
    }
}

uint32_t kept(const struct stage *s, sl_node_id from, sl_node_id to,
              enum sl_message_type type)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s->bag_count; i++) n += fits(&s->bag[i], from, to, type);
    return n;
}

void replay(struct stage *s)
{
    s->remembers = false;
    for (size_t i = 0; i < s->sent_count; i++) {
        receive(s, &s->sent[i]);
        settle(s);
    }
}

const struct sl_message *newest(const struct stage *s, sl_node_id from, sl_node_id to,
                                enum sl_message_type type)
{
    size_t i = find_newest(s, from, to, type);
    if (i == s->bag_count) fail_msg("no %s is in the bag", sl_message_name(type));
    return &s->bag[i].m;
}

struct sl_message forged(const struct stage *s, sl_node_id from, sl_node_id to,
                         enum sl_message_type type)
{
    const struct actor *a = &s->actor[from], *b = &s->actor[to];
    struct sl_message m = {.type = type,
                           .epoch = a->epoch,
                           .sent_ms = clock_of(s, from).ms,
                           .heard_epoch = b->epoch,
                           .heard_ms = clock_of(s, to).ms,
                           .round = 1000000 + s->drawn,
                           .key = {"k", 1},
                           .lease_ms = 1000};
    m.version = sl_node_membership((is_up(s, from) ? a : b)->node)->version;
    m.owner = (struct sl_attempt_id){a->epoch, 1000000};
    m.fence = (sl_fence)s->now_us;
    return m;
}

void give(struct stage *s, sl_node_id from, sl_node_id to, const struct sl_message *m)
{
    struct parcel p = packed(from, to, m);
    receive(s, &p);
    free(p.bytes);
}

struct sl_message probe(struct stage *s, sl_node_id from, sl_node_id to,
                        const struct sl_message *m)
{
    static char bytes[5 * STAGE_BYTES];
    struct sl_message out = {.type = SL_MESSAGE_NONE};
    give(s, from, to, m);
    for (size_t i = 0; i < s->bag_count; i++) {
        const struct sl_message *v = &s->bag[i].m;
        if (!fits(&s->bag[i], to, from, SL_MESSAGE_VOTE) || v->round != m->round)
            continue;
        struct parcel p = taken(s, i);
        char *at = bytes;
        out = p.m;
        out.key = moved(&at, p.m.key);
        out.value = moved(&at, p.m.value);
        out.note = moved(&at, p.m.note);
        out.client = moved(&at, p.m.client);
        out.request = moved(&at, p.m.request);
        free(p.bytes);
        break;
    }
    settle(s);
    return out;
}

sl_fence acceptor_has(struct stage *s, sl_node_id at)
{
    sl_node_id from = 1;
    while (from == at || !is_up(s, from) || !s->linked[from][at]) from++;
    assert_true(from <= STAGE_NODES);
    s->drawn++;
    struct sl_message look = forged(s, from, at, SL_MESSAGE_LOOK);
    struct sl_message v = probe(s, from, at, &look);
    return v.type == SL_MESSAGE_VOTE && v.verdict == SL_VERDICT_YES && v.left_ms > 0
               ? v.fence
               : 0;
}

/* --- Life ---------------------------------------------------------------------------------- */

/* Without a lease-volatile of its own, no lease of the stage is long, and a node that lost power
 * waits as long as the longest one. */
static void open_journal(struct stage *s, sl_node_id id, struct sl_recovery *r,
                         struct sl_node_start *start)
{
    struct actor *a = &s->actor[id];
    struct sl_now now = clock_of(s, id);
    bool own = s->volatile_ms > 0;
    sim_disk_open(&a->journal, now, own ? s->volatile_ms : s->limits.lease_max_ms, r);
    assert_int_equal(r->result, SL_RECOVERY_OK);
    if (!own && !r->same_life) {
        r->volatile_ms = s->longest_ms;
        r->wait_until_ms = s->longest_ms > 0 && r->items > 0 ? now.ms + s->longest_ms
                                                             : 0;
    }
    sim_disk_start(&a->journal, r, start);
}

static void begin(struct stage *s, sl_node_id id, bool bootstrap)
{
    struct actor *a = &s->actor[id];
    struct sl_recovery r;
    struct sl_node_start start = {.id = id,
                                  .epoch = ++s->drawn * 1000 + id,
                                  .birth = ++s->drawn * 1000 + id,
                                  .seed = ++s->drawn,
                                  .kept = a->disk,
                                  .limits = s->limits};
    if (bootstrap) start.bootstrap = s->first;
    a->epoch = start.epoch;
    a->paused = a->writes = false;
    open_journal(s, id, &r, &start);
    for (int i = 0; a->node == NULL; i++) { /* A test may have taken its memory. */
        assert_true(i < 100);
        CALL(a->node = sl_node_new(&start, clock_of(s, id)));
    }
    assert_int_equal(sim_disk_restore(&a->journal, clock_of(s, id), &r, a->node),
                     SLUICE_OK);
    sim_disk_begin(&a->journal, clock_of(s, id), &r, a->node);
    sl_recovery_end(&r);
    follow(s, id);
}

static sl_ms first_volatile_ms; /* Of the next stage. */

struct stage *stage_cold(uint32_t n, const struct sl_node_limits *limits)
{
    struct stage *s = calloc(1, sizeof *s);
    s->volatile_ms = first_volatile_ms;
    s->limits = *limits;
    s->now_us = 1000000000;
    s->first = (struct sl_membership){.version = 1, .count = n};
    for (sl_node_id id = 1; id <= STAGE_NODES; id++)
        s->actor[id].offset_us = (int64_t)id * 7777777; /* Their clocks do not agree. */
    for (uint32_t i = 0; i < n; i++) {
        s->first.at[i].id = i + 1;
        snprintf(s->first.at[i].address, SL_ADDRESS_BYTES, "node%u:5627", i + 1);
    }
    for (sl_node_id id = 1; id <= n; id++) begin(s, id, true);
    relink(s);
    settle(s);
    pass(s, 300); /* They have heard of each other. */
    return s;
}

void warm_up(struct stage *s, sl_node_id id)
{
    uint64_t t = ASK(id, .key = {"warm", 4}, .lease_ms = 50);
    granted(s, t);
    uint64_t r = REQUEST(RELEASE, id, .key = {"warm", 4},
                         .fence = answer_to(s, t)->grant.fence);
    outcome(s, r);
    s->request[t] = s->request[r] = (struct request){.ask.type = SL_NODE_READ};
}

struct stage *stage_with(uint32_t n, const struct sl_node_limits *limits)
{
    struct stage *s = stage_cold(n, limits);
    for (sl_node_id id = 1; id <= n; id++) warm_up(s, id);
    pass(s, 100);
    s->requests = 0;
    s->longest_ms = 0;
    forget_events(s);
    return s;
}

struct stage *stage_durable(uint32_t n, sl_ms volatile_ms)
{
    first_volatile_ms = volatile_ms;
    struct stage *s = stage_new(n);
    first_volatile_ms = 0;
    return s;
}

struct stage *stage_new(uint32_t n)
{
    return stage_with(n, &stage_limits);
}

void stage_end(struct stage *s)
{
    for (sl_node_id id = 1; id <= STAGE_NODES; id++) {
        sl_node_free(s->actor[id].node);
        sim_disk_kill(&s->actor[id].journal);
        sim_disk_erase(&s->actor[id].journal);
    }
    for (size_t i = 0; i < s->bag_count; i++) free(s->bag[i].bytes);
    for (size_t i = 0; i < s->sent_count; i++) free(s->sent[i].bytes);
    free(s->bag);
    free(s->sent);
    free(s);
}

void start(struct stage *s, sl_node_id id)
{
    assert_false(is_up(s, id));
    begin(s, id, false);
    relink(s);
    settle(s);
}

static void end(struct stage *s, sl_node_id id, bool written, bool power)
{
    struct actor *a = &s->actor[id];
    if (written && a->writes) a->disk = a->written;
    sl_node_free(a->node);
    a->node = NULL;
    sim_disk_kill(&a->journal);
    if (power) sim_disk_lose_power(&a->journal, NULL, clock_of(s, id).ms);
    a->writes = a->paused = a->disk_stopped = a->disk_fails = false;
    a->write_fails = a->is_cut = false;
    relink(s);
    settle(s);
}

void crash(struct stage *s, sl_node_id id)
{
    end(s, id, false, true);
}

void crash_written(struct stage *s, sl_node_id id)
{
    end(s, id, true, true);
}

void kill_node(struct stage *s, sl_node_id id)
{
    end(s, id, true, false);
}

void restart_killed(struct stage *s, sl_node_id id)
{
    if (is_up(s, id)) kill_node(s, id);
    start(s, id);
}

void restart(struct stage *s, sl_node_id id)
{
    if (is_up(s, id)) crash(s, id);
    start(s, id);
}

void restart_empty(struct stage *s, sl_node_id id)
{
    if (is_up(s, id)) crash(s, id);
    s->actor[id].disk = (struct sl_node_durable){0};
    sim_disk_erase(&s->actor[id].journal);
    start(s, id);
}

void stop(struct stage *s, sl_node_id id)
{
    s->actor[id].paused = true;
}

void go(struct stage *s, sl_node_id id)
{
    s->actor[id].paused = false;
    settle(s);
}

void disk_stop(struct stage *s, sl_node_id id)
{
    s->actor[id].disk_stopped = true;
}

void disk_go(struct stage *s, sl_node_id id)
{
    s->actor[id].disk_stopped = false;
    follow(s, id);
    settle(s);
}

/* --- Time ---------------------------------------------------------------------------------- */

static void tick(struct stage *s, sl_node_id id, bool always)
{
    struct sl_now now = clock_of(s, id);
    if (!acts(s, id)) return;
    if (!always && sl_node_due(s->actor[id].node) > now.ms) return;
    CALL(sl_node_tick(s->actor[id].node, now));
    follow(s, id);
}

static void tick_all(struct stage *s, bool always)
{
    for (sl_node_id id = 1; id <= STAGE_NODES; id++) tick(s, id, always);
    settle(s);
}

void pass(struct stage *s, sl_ms ms)
{
    for (; ms > 0; ms--) {
        s->now_us += 1000;
        tick_all(s, false);
    }
}

void pass_us(struct stage *s, int64_t us)
{
    s->now_us += us;
    tick_all(s, false);
}

void run_at(struct stage *s, sl_node_id id, int ppm)
{
    struct actor *a = &s->actor[id];
    a->offset_us += s->now_us * a->ppm / 1000000 - s->now_us * ppm / 1000000;
    a->ppm = ppm;
}

void jump(struct stage *s, sl_ms ms)
{
    s->now_us += ms * 1000;
    tick_all(s, true);
}

/* --- Requests -------------------------------------------------------------------------------- */

uint64_t stage_ask(struct stage *s, sl_node_id at, struct sl_node_request ask)
{
    assert_true(s->requests + 1 < STAGE_REQUESTS);
    assert_true(acts(s, at));
    uint64_t ticket = ++s->requests;
    struct request *r = &s->request[ticket];
    if (ask.key.at == NULL && ask.type < SL_NODE_ADD)
        ask.key = (struct sl_bytes){"k", 1};
    if (ask.lease_ms == 0) ask.lease_ms = 1000;
    bool leased = ask.type == SL_NODE_ACQUIRE || ask.type == SL_NODE_EXTEND;
    if (leased && ask.lease_ms > s->longest_ms) s->longest_ms = ask.lease_ms;
    *r = (struct request){
        .at = at, .ask = ask, .sent_us = s->now_us, .client_ppm = s->client_ppm};
    if (ask.key.n > 0 && ask.key.n < STAGE_BYTES) memcpy(r->key, ask.key.at, ask.key.n);
    if (ask.type == SL_NODE_RELEASE) end_belief(s, r);
    CALL(r->asked = sl_node_submit(s->actor[at].node, clock_of(s, at), ticket, &ask));
    if (r->asked != SLUICE_OK) { /* There will be no other answer. */
        r->answered = true;
        r->answer.status = r->asked;
    }
    follow(s, at);
    settle(s);
    return ticket;
}

void withdraw(struct stage *s, uint64_t request)
{
    struct request *r = &s->request[request];
    r->withdrawn = true;
    CALL(sl_node_withdraw(s->actor[r->at].node, clock_of(s, r->at), request));
    follow(s, r->at);
    settle(s);
}

bool answered(const struct stage *s, uint64_t request)
{
    return s->request[request].answered;
}

const struct sl_node_answer *answer_to(struct stage *s, uint64_t request)
{
    assert_true(answered(s, request));
    return &s->request[request].answer;
}

int outcome(struct stage *s, uint64_t request)
{
    for (int i = 0; !answered(s, request); i++) {
        assert_true(i < 60000);
        pass(s, 1);
    }
    return answer_to(s, request)->status;
}

static void is_status(struct stage *s, uint64_t request, int status)
{
    int got = outcome(s, request);
    if (got != status)
        fail_msg("the answer is %s (%s), not %s", sluice_status_word(got),
                 answer_to(s, request)->reason, sluice_status_word(status));
}

sl_fence granted(struct stage *s, uint64_t request)
{
    is_status(s, request, SLUICE_OK);
    return answer_to(s, request)->grant.fence;
}

void refused(struct stage *s, uint64_t request, int status)
{
    is_status(s, request, status);
}

void not_granted(struct stage *s, uint64_t request)
{
    assert_int_not_equal(outcome(s, request), SLUICE_OK);
}

void waits(struct stage *s, uint64_t request)
{
    if (answered(s, request))
        fail_msg("it was answered: %s",
                 sluice_status_word(answer_to(s, request)->status));
}

sl_fence take(struct stage *s, sl_node_id at, sl_ms lease_ms)
{
    uint64_t t = ASK(at, .lease_ms = lease_ms);
    outcome(s, t);
    return granted(s, t);
}

int extend(struct stage *s, sl_node_id at, sl_fence fence, sl_ms lease_ms)
{
    return outcome(s, REQUEST(EXTEND, at, .fence = fence, .lease_ms = lease_ms));
}

static int number_of(struct stage *s, uint64_t request)
{
    int status = outcome(s, request);
    return status == SLUICE_OK ? (int)answer_to(s, request)->number : status;
}

int release(struct stage *s, sl_node_id at, sl_fence fence)
{
    return number_of(s, REQUEST(RELEASE, at, .fence = fence));
}

int check(struct stage *s, sl_node_id at, sl_fence fence)
{
    return number_of(s, REQUEST(CHECK, at, .fence = fence));
}

sl_fence read_key(struct stage *s, sl_node_id at)
{
    uint64_t t = REQUEST(READ, at);
    outcome(s, t);
    is_status(s, t, SLUICE_OK);
    const struct sl_node_answer *a = answer_to(s, t);
    return a->copy_count > 0 && a->copies[0].held ? a->copies[0].fence : 0;
}

sl_fence copy_at(struct stage *s, sl_node_id at)
{
    struct sl_node_copy c;
    bool there;
    CALL(there = sl_node_copy(s->actor[at].node, clock_of(s, at),
                              (struct sl_bytes){"k", 1}, &c));
    return there && c.held ? c.fence : 0;
}

sl_ms silence_of(const struct stage *s, sl_node_id at)
{
    struct sl_node_stats stats;
    sl_node_stats(s->actor[at].node, clock_of(s, at), &stats);
    return stats.silent_ms;
}

void end_silence(struct stage *s)
{
    for (sl_node_id id = 1; id <= STAGE_NODES; id++)
        while (is_up(s, id) && silence_of(s, id) > 0) pass(s, 1);
}

/* --- Lists of nodes --------------------------------------------------------------------------- */

uint64_t add_node(struct stage *s, sl_node_id at, sl_node_id node)
{
    char address[SL_ADDRESS_BYTES];
    snprintf(address, sizeof address, "node%u:5627", node);
    return REQUEST(ADD, at, .node = node, .address = address);
}

uint64_t remove_node(struct stage *s, sl_node_id at, sl_node_id node)
{
    return REQUEST(REMOVE, at, .node = node);
}

static void same_list(const struct sl_membership *a, const struct sl_membership *b)
{
    if (a->version == 0 || a->version != b->version) return;
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) assert_int_equal(a->at[i].id, b->at[i].id);
}

void one_list(const struct stage *s)
{
    for (sl_node_id a = 1; a <= STAGE_NODES; a++)
        for (sl_node_id b = 1; b < a; b++) {
            const struct sl_node_durable *x = &s->actor[a].disk, *y = &s->actor[b].disk;
            same_list(&x->force, &y->force);
            same_list(&x->stored, &y->stored);
            same_list(&x->force, &y->stored);
            same_list(&x->stored, &y->force);
        }
}

const char *list_at(const struct stage *s, sl_node_id at)
{
    static char text[128];
    const struct sl_membership *m = sl_node_membership(s->actor[at].node);
    int n = snprintf(text, sizeof text, "%u:", (unsigned)m->version);
    for (uint32_t i = 0; i < m->count; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %u", m->at[i].id);
    return text;
}

/* --- Events ----------------------------------------------------------------------------------- */

uint32_t events(const struct stage *s, sl_node_id at, enum sl_node_event_type type,
                sl_fence fence)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->events; i++) {
        const struct seen *e = &s->seen[i];
        n += (at == 0 || e->at == at) && e->type == type &&
             (fence == 0 || e->event.fence == fence);
    }
    return n;
}

const struct sl_node_event *last_event(const struct stage *s, sl_node_id at,
                                       enum sl_node_event_type type)
{
    for (uint32_t i = s->events; i > 0; i--)
        if (s->seen[i - 1].type == type && (at == 0 || s->seen[i - 1].at == at))
            return &s->seen[i - 1].event;
    fail_msg("there was no such event");
    return NULL;
}

void forget_events(struct stage *s)
{
    s->events = 0;
}
