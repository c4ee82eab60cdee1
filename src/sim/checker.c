#include "sim/checker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *p)
{
    if (!p) abort();
    return p;
}

void sim_checker_clear(struct sim_checker *b)
{
    for (int k = 0; k < SIM_KEYS; k++) {
        struct sim_key_record *key = &b->keys[k];
        key->count = 0;
        key->forced = key->broken = false;
        key->highest = key->overlapped_below = 0;
    }
    memset(b->beliefs, 0, sizeof b->beliefs);
    memset(b->newest_version, 0, sizeof b->newest_version);
    b->request_count = b->membership_count = 0;
    b->acquisition_count = b->starts = 0;
    memset(b->patterns, 0, sizeof b->patterns);
    b->wrong[0] = '\0';
    b->is_stuck = false;
}

void sim_checker_free(struct sim_checker *b)
{
    for (int k = 0; k < SIM_KEYS; k++) free(b->keys[k].grants);
    free(b->requests);
    free(b->memberships);
    free(b->acquisitions);
    memset(b, 0, sizeof *b);
}

static void say(struct sim_checker *b, bool stuck, const char *format, va_list args)
{
    if (b->wrong[0] != '\0') return;
    vsnprintf(b->wrong, sizeof b->wrong, format, args);
    b->is_stuck = stuck;
}

void sim_checker_wrong(struct sim_checker *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(b, false, format, args);
    va_end(args);
}

void sim_checker_stuck(struct sim_checker *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(b, true, format, args);
    va_end(args);
}

/* ---- drained patterns ---- */

/* Nobody knows the result of commands that are executed at the same time, or whose answer is lost.
 * So a pattern counts as drained only if no other command about it was under way since. */
static void asks_drain(struct sim_checker *b, const struct sim_request_record *r)
{
    struct sim_pattern_record *p = &b->patterns[r->pattern];
    if (p->pending++ > 0) p->mixed = true;
    if (!r->on) p->on_us = 0;
    if (r->on) p->may_be_on = true;
}

static void drained(struct sim_checker *b, const struct sim_request_record *r,
                    int64_t now_us)
{
    struct sim_pattern_record *p = &b->patterns[r->pattern];
    if (--p->pending > 0) return;
    if (p->mixed) {
        p->mixed = false;
        p->on_us = 0;
        p->may_be_on = true;
        return;
    }
    if (r->on) p->on_us = now_us;
    else {
        p->may_be_on = false;
        p->off_us = now_us;
    }
}

struct sl_bytes sim_pattern_bytes(uint32_t pattern)
{
    static const char *const texts[SIM_PATTERNS] = {"k0", "k1", "k[23]", "?0"};
    const char *text = texts[pattern];
    return (struct sl_bytes){text, strlen(text)};
}

bool sim_pattern_matches(uint32_t pattern, uint32_t key)
{
    return pattern == 2 ? key >= 2 : pattern == 3 ? key == 0 : key == pattern;
}

/* Check a grant, or the answer that a key is drained. */
static void check_drain(struct sim_checker *b, const struct sim_request_record *r,
                        const struct sl_node_answer *a)
{
    bool ok = a->status == SLUICE_OK;
    bool may_be = false;
    for (uint32_t i = 0; i < SIM_PATTERNS; i++) {
        const struct sim_pattern_record *p = &b->patterns[i];
        if (!sim_pattern_matches(i, r->key)) continue;
        if (p->may_be_on || p->pending > 0 || r->arrived_us <= p->off_us) may_be = true;
        if (ok && !a->grant.replay && p->on_us != 0 && p->pending == 0 &&
            r->arrived_us + a->grant.waited_ms * 998 > p->on_us)
            sim_checker_wrong(b, "k%u was granted under fence %llu, but is drained",
                              r->key, (unsigned long long)a->grant.fence);
    }
    if (a->status == SLUICE_EDRAINED && !may_be)
        sim_checker_wrong(b, "c%u receives that k%u is drained, but it is not",
                          r->client + 1, r->key);
}

/* ---- requests ---- */

uint64_t sim_checker_request(struct sim_checker *b,
                             const struct sim_request_record *row)
{
    if (b->request_count == b->request_size) {
        b->request_size = b->request_size ? b->request_size * 2 : 256;
        b->requests = need(realloc(b->requests, b->request_size * sizeof *b->requests));
    }
    b->requests[b->request_count] = *row;
    if (row->type == SL_NODE_DRAIN) asks_drain(b, row);
    if (row->force) b->keys[row->key].forced = true;
    b->requests[b->request_count].state = SIM_REQUEST_SENT;
    return ++b->request_count; /* 0 means no request. */
}

static struct sim_request_record *row_of(struct sim_checker *b, uint64_t request)
{
    return request == 0 || request > b->request_count ? NULL
                                                      : &b->requests[request - 1];
}

void sim_checker_arrived(struct sim_checker *b, uint64_t request, uint32_t node,
                         uint64_t life, int64_t now_us)
{
    struct sim_request_record *r = row_of(b, request);
    if (r == NULL) return;
    r->state = SIM_REQUEST_ARRIVED;
    r->node = node;
    r->life = life;
    r->arrived_us = now_us;
    r->version = b->newest_version[node];
}

bool sim_checker_withdraw(struct sim_checker *b, uint64_t request)
{
    struct sim_request_record *r = row_of(b, request);
    if (r == NULL || r->state != SIM_REQUEST_ARRIVED) return false;
    r->state = SIM_REQUEST_DONE;
    return true;
}

uint64_t sim_checker_open(const struct sim_checker *b, const uint64_t lives[SIM_NODES])
{
    for (uint64_t i = 0; i < b->request_count; i++) {
        const struct sim_request_record *r = &b->requests[i];
        if (r->state == SIM_REQUEST_ARRIVED && lives[r->node] == r->life) return i + 1;
    }
    return 0;
}

/* ---- grants ---- */

static void add_grant(struct sim_key_record *k, const struct sim_grant_record *row)
{
    if (k->count == k->size) {
        k->size = k->size ? k->size * 2 : 64;
        k->grants = need(realloc(k->grants, k->size * sizeof *k->grants));
    }
    k->grants[k->count++] = *row;
    if (row->fence > k->highest) k->highest = row->fence;
    if (row->overlapping && row->fence > k->overlapped_below)
        k->overlapped_below = row->fence;
}

/* Return whether a grant may follow another one. Fences rise, with one exception: if a
 * grant was requested before an overlapping grant, its answer may arrive later, with a
 * lower fence. */
static bool may_follow(const struct sim_grant_record *next,
                       const struct sim_grant_record *before)
{
    if (next->fence > before->fence) return true;
    return next->fence < before->fence && before->overlapping &&
           next->asked_us <= before->granted_us;
}

static void grant(struct sim_checker *b, uint32_t key, const struct sl_grant *given,
                  int64_t asked_us, int64_t now_us)
{
    struct sim_key_record *k = &b->keys[key];
    struct sim_grant_record row = {.fence = given->fence,
                                   .asked_us = asked_us,
                                   .granted_us = now_us,
                                   .overlapping = given->overlapping};
    for (uint32_t i = k->count; given->fence <= k->highest && i > 0; i--) {
        const struct sim_grant_record *before = &k->grants[i - 1];
        if (may_follow(&row, before)) continue;
        sim_checker_wrong(b, "k%u was granted under fence %llu, and then under %llu",
                          key, (unsigned long long)before->fence,
                          (unsigned long long)row.fence);
        return;
    }
    if (row.overlapping && !k->forced && !k->broken)
        sim_checker_wrong(b, "k%u was granted with an overlap that nobody allowed",
                          key);
    add_grant(k, &row);
}

static struct sim_grant_record *grant_of(struct sim_key_record *k, sl_fence fence)
{
    for (uint32_t i = k->count; i > 0; i--) {
        if (k->grants[i - 1].fence == fence) return &k->grants[i - 1];
    }
    return NULL;
}

struct sim_grant_record *sim_checker_grant(struct sim_checker *b, uint32_t key,
                                           sl_fence fence)
{
    return grant_of(&b->keys[key], fence);
}

static void extend(struct sim_checker *b, const struct sim_request_record *r)
{
    uint32_t key = r->key;
    sl_fence fence = r->fence;
    struct sim_key_record *k = &b->keys[key];
    const struct sim_grant_record *row = grant_of(k, fence);
    if (row != NULL && row->broken_us != 0 && r->arrived_us > row->broken_us &&
        row->broken_memberships == b->membership_count)
        sim_checker_wrong(b, "k%u was extended under fence %llu, which was broken", key,
                          (unsigned long long)fence);
    if (row == NULL)
        sim_checker_wrong(b,
                          "k%u was extended under fence %llu, which was never granted",
                          key, (unsigned long long)fence);
    else if (k->highest > fence && fence >= k->overlapped_below && !row->released)
        sim_checker_wrong(
            b, "k%u was extended under fence %llu, though %llu was granted", key,
            (unsigned long long)fence, (unsigned long long)k->highest);
}

void sim_checker_released(struct sim_checker *b, uint32_t key, sl_fence fence)
{
    struct sim_grant_record *row = grant_of(&b->keys[key], fence);
    if (row != NULL) row->released = true;
}

/* ---- acquisitions with a REQUEST id ---- */

uint64_t sim_checker_acquisition(struct sim_checker *b)
{
    if (b->acquisition_count == b->acquisition_size) {
        b->acquisition_size = b->acquisition_size ? b->acquisition_size * 2 : 64;
        b->acquisitions = need(
            realloc(b->acquisitions, b->acquisition_size * sizeof *b->acquisitions));
    }
    b->acquisitions[b->acquisition_count] = (struct sim_acquisition_record){0};
    return ++b->acquisition_count; /* 0 means no id. */
}

void sim_checker_cancels(struct sim_checker *b, uint32_t key, uint64_t id)
{
    struct sim_acquisition_record *a = &b->acquisitions[id - 1];
    a->cancels = true;
    if (a->fence != 0) sim_checker_released(b, key, a->fence);
}

void sim_checker_received(struct sim_checker *b, uint64_t id, sl_fence fence)
{
    if (id != 0 && b->acquisitions[id - 1].fence == fence)
        b->acquisitions[id - 1].received = true;
}

/* Return a number that changes when a node may have forgotten an acquisition that has ended:
 * nodes do not remember them over a restart, and new nodes do not know them. */
static uint64_t past_of(const struct sim_checker *b)
{
    return b->starts + b->membership_count;
}

/* Return whether the client of an acquisition relies on its lease. */
static bool relies(const struct sim_checker *b, uint32_t key,
                   const struct sim_acquisition_record *a, int64_t now_us)
{
    const struct sim_key_record *k = &b->keys[key];
    for (uint32_t i = k->count; i > 0; i--) {
        const struct sim_grant_record *g = &k->grants[i - 1];
        if (g->fence == a->fence)
            return a->received && !k->forced && !g->released && g->clock != NULL &&
                   sim_clock_us(g->clock, now_us) < g->until_us;
    }
    return false;
}

/* Check a grant to an acquisition. Returns whether it is the first one. */
static bool check_acquisition(struct sim_checker *b, const struct sim_request_record *r,
                              const struct sl_grant *g, int64_t now_us)
{
    struct sim_acquisition_record *a = &b->acquisitions[r->id - 1];
    /* The votes of a round that began before may still arrive. */
    int64_t round_us = r->arrived_us + g->waited_ms * 998;
    bool first = a->fence == 0;
    if (a->ended_us != 0 && a->ended_past == past_of(b) && round_us > a->ended_us)
        sim_checker_wrong(b,
                          "k%u is granted under fence %llu to acquisition %llu, which "
                          "has ended",
                          r->key, (unsigned long long)g->fence,
                          (unsigned long long)r->id);
    if (!first && g->fence != a->fence &&
        (a->granted_past == past_of(b) || relies(b, r->key, a, now_us)))
        sim_checker_wrong(b,
                          "k%u is granted under fence %llu to acquisition %llu, which "
                          "has fence %llu",
                          r->key, (unsigned long long)g->fence,
                          (unsigned long long)r->id, (unsigned long long)a->fence);
    if (!first && g->fence == a->fence && r->digest != a->digest)
        sim_checker_wrong(b, "acquisition %llu of k%u is granted with other options",
                          (unsigned long long)r->id, r->key);
    if (!first && g->fence == a->fence) return false;
    a->fence = g->fence;
    a->digest = r->digest;
    a->granted_past = past_of(b);
    a->received = false;
    return !a->cancels;
}

/* Record that an acquisition has been released or cancelled. */
static void end_acquisition(struct sim_checker *b, uint64_t id, int64_t now_us)
{
    struct sim_acquisition_record *a = &b->acquisitions[id - 1];
    if (a->ended_us != 0) return;
    a->ended_us = now_us;
    a->ended_past = past_of(b);
}

void sim_checker_breaks(struct sim_checker *b, uint32_t key, sl_fence fence,
                        bool at_once)
{
    struct sim_grant_record *row = grant_of(&b->keys[key], fence);
    if (at_once) b->keys[key].broken = true;
    if (row == NULL) return;
    row->breaks = true;
    if (at_once) row->released = true;
}

static void broken(struct sim_checker *b, const struct sim_request_record *r,
                   int64_t number, int64_t now_us)
{
    struct sim_grant_record *row = grant_of(&b->keys[r->key], r->fence);
    if (row == NULL || number == 0 || row->broken_us != 0) return;
    row->broken_us = now_us;
    row->broken_memberships = b->membership_count;
}

/* Return whether the client has held the lease ever since it sent the request. */
static bool holds_throughout(const struct sim_checker *b,
                             const struct sim_request_record *r, int64_t now_us)
{
    if (r->client >= SIM_CLIENTS) return false;
    const struct sim_belief *x = &b->beliefs[r->client];
    const struct sim_key_record *k = &b->keys[r->key];
    for (uint32_t i = k->count; i > 0; i--)
        if (k->grants[i - 1].fence == r->fence && k->grants[i - 1].breaks) return false;
    return x->key == r->key && x->fence == r->fence && x->since_us <= r->sent_us &&
           !b->keys[r->key].forced && /* Otherwise another grant may overlap. */
           sim_checker_believes(b, r->client, now_us);
}

static void check_answer(struct sim_checker *b, const struct sim_request_record *r,
                         const struct sl_node_answer *a, int64_t now_us)
{
    const struct sim_key_record *k = &b->keys[r->key];
    bool check = r->type == SL_NODE_CHECK && a->status == SLUICE_OK;
    bool lost = r->type == SL_NODE_EXTEND && a->status == SLUICE_ELOST;
    if (((check && a->number == 0) || lost) && holds_throughout(b, r, now_us))
        sim_checker_wrong(b, "c%u receives that it does not hold k%u under fence %llu",
                          r->client + 1, r->key, (unsigned long long)r->fence);
    if (!check || a->number == 0 || r->fence < k->overlapped_below) return;
    for (uint32_t i = k->count; i > 0; i--) {
        const struct sim_grant_record *later = &k->grants[i - 1];
        if (later->fence <= r->fence || later->granted_us >= r->sent_us) continue;
        sim_checker_wrong(
            b,
            "k%u is said to be held under fence %llu, after it was granted "
            "under %llu",
            r->key, (unsigned long long)r->fence, (unsigned long long)later->fence);
        return;
    }
}

const struct sim_request_record *sim_checker_answered(struct sim_checker *b,
                                                      uint64_t request, uint32_t node,
                                                      uint64_t life,
                                                      const struct sl_node_answer *a,
                                                      int64_t now_us)
{
    struct sim_request_record *r = row_of(b, request);
    const char *why = NULL;
    if (r == NULL) why = "never made";
    else if (r->state == SIM_REQUEST_SENT) why = "not there yet";
    else if (r->state == SIM_REQUEST_DONE) why = "answered before, or withdrawn";
    else if (r->node != node || r->life != life) why = "of another node, or life";
    if (why != NULL) {
        sim_checker_wrong(b, "n%u answers request %llu, which was %s", node + 1,
                          (unsigned long long)request, why);
        return NULL;
    }
    r->state = SIM_REQUEST_DONE;
    check_answer(b, r, a, now_us);
    if (r->type == SL_NODE_ACQUIRE) check_drain(b, r, a);
    if (r->type == SL_NODE_DRAIN && a->status == SLUICE_OK) drained(b, r, now_us);
    if (a->status != SLUICE_OK) return r;
    bool is_new = r->type == SL_NODE_ACQUIRE &&
                  (r->id == 0 || check_acquisition(b, r, &a->grant, now_us));
    if (is_new) grant(b, r->key, &a->grant, r->sent_us, now_us);
    if (r->type == SL_NODE_BREAK) broken(b, r, a->number, now_us);
    /* Without a fence, RELEASE may not know the lease. */
    bool released = r->type == SL_NODE_RELEASE && (r->fence != 0 || a->number == 1);
    if (r->id != 0 && (released || r->type == SL_NODE_CANCEL))
        end_acquisition(b, r->id, now_us);
    if (r->type == SL_NODE_EXTEND) extend(b, r);
    return r;
}

/* ---- beliefs ---- */

bool sim_checker_believes(const struct sim_checker *b, uint32_t client, int64_t now_us)
{
    const struct sim_belief *x = &b->beliefs[client];
    return x->is && sim_clock_us(x->clock, now_us) < x->until_us;
}

void sim_checker_believe(struct sim_checker *b, uint32_t client,
                         const struct sim_belief *belief, int64_t now_us)
{
    const struct sim_belief was = b->beliefs[client];
    bool goes_on = was.key == belief->key && was.fence == belief->fence &&
                   sim_checker_believes(b, client, now_us);
    b->beliefs[client] = *belief;
    b->beliefs[client].since_us = goes_on ? was.since_us : now_us;
    if (!sim_checker_believes(b, client, now_us)) return;
    for (uint32_t c = 0; c < SIM_CLIENTS; c++) {
        const struct sim_belief *x = &b->beliefs[c];
        if (c == client || x->key != belief->key || !sim_checker_believes(b, c, now_us))
            continue;
        /* Allowed: the later holder was notified that its grant overlaps another. */
        if (x->fence < belief->fence ? belief->overlapping : x->overlapping) continue;
        sim_checker_wrong(
            b,
            "k%u is held by c%u (fence %llu, %lld us left) and by c%u "
            "(fence %llu, %lld us left)",
            belief->key, c + 1, (unsigned long long)x->fence,
            (long long)(x->until_us - sim_clock_us(x->clock, now_us)), client + 1,
            (unsigned long long)belief->fence,
            (long long)(belief->until_us - sim_clock_us(belief->clock, now_us)));
        return;
    }
}

void sim_checker_doubt(struct sim_checker *b, uint32_t client)
{
    b->beliefs[client].is = false;
}

/* ---- events ---- */

void sim_checker_started(struct sim_checker *b, uint32_t node)
{
    b->report_count[node] = 0;
    b->starts++;
}

void sim_checker_published(struct sim_checker *b, uint32_t node,
                           const struct sim_report_record *row)
{
    uint32_t count = b->report_count[node]++;
    for (uint32_t i = 0; i < count && i < SIM_REPORTS; i++) {
        const struct sim_report_record *t = &b->reports[node][i];
        if (t->type == row->type && t->key == row->key && t->fence == row->fence)
            sim_checker_wrong(b,
                              "n%u publishes an event twice, of k%u under fence %llu",
                              node + 1, row->key, (unsigned long long)row->fence);
    }
    b->reports[node][count % SIM_REPORTS] = *row;
}

/* ---- memberships ---- */

static uint32_t bits_of(const struct sl_membership *m)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < m->count; i++) bits |= 1u << m->at[i].id;
    return bits;
}

static void compare_memberships(struct sim_checker *b,
                                const struct sim_membership_record *a,
                                const struct sim_membership_record *row)
{
    if (a->version == row->version && a->members != row->members)
        sim_checker_wrong(b, "version %llu is two memberships: nodes %#x and %#x",
                          (unsigned long long)a->version, a->members >> 1,
                          row->members >> 1);
    bool next = a->version + 1 == row->version || row->version + 1 == a->version;
    if (next && __builtin_popcount(a->members ^ row->members) != 1)
        sim_checker_wrong(
            b, "memberships %llu and %llu differ by more than a node: %#x and %#x",
            (unsigned long long)a->version, (unsigned long long)row->version,
            a->members >> 1, row->members >> 1);
}

void sim_checker_membership(struct sim_checker *b, uint32_t node,
                            const struct sl_membership *m)
{
    uint64_t *seen = &b->newest_version[node];
    if (m->version == *seen) return;
    if (m->version < *seen) {
        sim_checker_wrong(b, "n%u goes back from membership %llu to %llu", node + 1,
                          (unsigned long long)*seen, (unsigned long long)m->version);
        return;
    }
    *seen = m->version;
    struct sim_membership_record row = {.version = m->version, .members = bits_of(m)};
    for (uint32_t i = b->membership_count; i > 0; i--) {
        compare_memberships(b, &b->memberships[i - 1], &row);
        if (b->memberships[i - 1].version == row.version) return;
    }
    if (b->membership_count == b->membership_size) {
        b->membership_size = b->membership_size ? b->membership_size * 2 : 16;
        b->memberships = need(
            realloc(b->memberships, b->membership_size * sizeof *b->memberships));
    }
    b->memberships[b->membership_count++] = row;
}

const struct sim_membership_record *sim_checker_newest(const struct sim_checker *b)
{
    const struct sim_membership_record *best = NULL;
    for (uint32_t i = 0; i < b->membership_count; i++) {
        if (best == NULL || b->memberships[i].version > best->version)
            best = &b->memberships[i];
    }
    return best;
}

uint32_t sim_checker_newest_members(const struct sim_checker *b)
{
    const struct sim_membership_record *best = sim_checker_newest(b);
    return best == NULL ? 0 : best->members;
}
