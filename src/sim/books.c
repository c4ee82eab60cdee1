#include "sim/books.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *p)
{
    if (!p) abort();
    return p;
}

void sl_books_clear(struct books *b)
{
    for (int k = 0; k < SL_SIM_KEYS; k++) {
        struct key_book *key = &b->keys[k];
        key->count = 0;
        key->forced = false;
        key->highest = key->robbed_below = 0;
    }
    memset(b->beliefs, 0, sizeof b->beliefs);
    memset(b->version_seen, 0, sizeof b->version_seen);
    b->request_count = b->list_count = 0;
    b->wrong[0] = '\0';
    b->is_stuck = false;
}

void sl_books_free(struct books *b)
{
    for (int k = 0; k < SL_SIM_KEYS; k++) free(b->keys[k].grants);
    free(b->requests);
    free(b->lists);
    memset(b, 0, sizeof *b);
}

static void say(struct books *b, bool stuck, const char *format, va_list args)
{
    if (b->wrong[0] != '\0') return;
    vsnprintf(b->wrong, sizeof b->wrong, format, args);
    b->is_stuck = stuck;
}

void sl_books_wrong(struct books *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(b, false, format, args);
    va_end(args);
}

void sl_books_stuck(struct books *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(b, true, format, args);
    va_end(args);
}

/* ---- requests ---- */

uint64_t sl_books_request(struct books *b, const struct request_row *row)
{
    if (b->request_count == b->request_size) {
        b->request_size = b->request_size ? b->request_size * 2 : 256;
        b->requests = need(realloc(b->requests, b->request_size * sizeof *b->requests));
    }
    b->requests[b->request_count] = *row;
    if (row->force) b->keys[row->key].forced = true;
    b->requests[b->request_count].state = REQUEST_SENT;
    return ++b->request_count; /* 0 is nobody's. */
}

static struct request_row *row_of(struct books *b, uint64_t request)
{
    return request == 0 || request > b->request_count ? NULL
                                                      : &b->requests[request - 1];
}

void sl_books_asked(struct books *b, uint64_t request, uint32_t node, uint64_t life,
                    int64_t now_us)
{
    struct request_row *r = row_of(b, request);
    if (r == NULL) return;
    r->state = REQUEST_ASKED;
    r->node = node;
    r->life = life;
    r->asked_us = now_us;
}

bool sl_books_withdraw(struct books *b, uint64_t request)
{
    struct request_row *r = row_of(b, request);
    if (r == NULL || r->state != REQUEST_ASKED) return false;
    r->state = REQUEST_DONE;
    return true;
}

uint64_t sl_books_open(const struct books *b, const uint64_t lives[SL_SIM_NODES])
{
    for (uint64_t i = 0; i < b->request_count; i++) {
        const struct request_row *r = &b->requests[i];
        if (r->state == REQUEST_ASKED && lives[r->node] == r->life) return i + 1;
    }
    return 0;
}

/* ---- grants ---- */

static void add_grant(struct key_book *k, const struct grant_row *row)
{
    if (k->count == k->size) {
        k->size = k->size ? k->size * 2 : 64;
        k->grants = need(realloc(k->grants, k->size * sizeof *k->grants));
    }
    k->grants[k->count++] = *row;
    if (row->fence > k->highest) k->highest = row->fence;
    if (row->overlapping && row->fence > k->robbed_below) k->robbed_below = row->fence;
}

/* A grant that was asked for before another entered by force may come after it, below it.
 * In all other cases fences rise. */
static bool may_follow(const struct grant_row *next, const struct grant_row *before)
{
    if (next->fence > before->fence) return true;
    return next->fence < before->fence && before->overlapping &&
           next->asked_us <= before->granted_us;
}

static void grant(struct books *b, uint32_t key, const struct sl_grant *given,
                  int64_t asked_us, int64_t now_us)
{
    struct key_book *k = &b->keys[key];
    struct grant_row row = {.fence = given->fence,
                            .asked_us = asked_us,
                            .granted_us = now_us,
                            .overlapping = given->overlapping};
    for (uint32_t i = k->count; given->fence <= k->highest && i > 0; i--) {
        const struct grant_row *before = &k->grants[i - 1];
        if (may_follow(&row, before)) continue;
        sl_books_wrong(b, "k%u was granted under fence %llu, and then under %llu", key,
                       (unsigned long long)before->fence,
                       (unsigned long long)row.fence);
        return;
    }
    if (row.overlapping && !k->forced)
        sl_books_wrong(b, "k%u was granted beside another, which nobody asked for",
                       key);
    add_grant(k, &row);
}

static struct grant_row *grant_of(struct key_book *k, sl_fence fence)
{
    for (uint32_t i = k->count; i > 0; i--) {
        if (k->grants[i - 1].fence == fence) return &k->grants[i - 1];
    }
    return NULL;
}

static void extend(struct books *b, uint32_t key, sl_fence fence)
{
    struct key_book *k = &b->keys[key];
    const struct grant_row *row = grant_of(k, fence);
    if (row == NULL)
        sl_books_wrong(b, "k%u was extended under fence %llu, which was never granted",
                       key, (unsigned long long)fence);
    else if (k->highest > fence && fence >= k->robbed_below && !row->released)
        sl_books_wrong(b, "k%u was extended under fence %llu, though %llu was granted",
                       key, (unsigned long long)fence, (unsigned long long)k->highest);
}

void sl_books_released(struct books *b, uint32_t key, sl_fence fence)
{
    struct grant_row *row = grant_of(&b->keys[key], fence);
    if (row != NULL) row->released = true;
}

/* Whether the client has held what it asks about, ever since it asked. */
static bool holds_throughout(const struct books *b, const struct request_row *r,
                             int64_t now_us)
{
    if (r->client >= SL_SIM_CLIENTS) return false;
    const struct belief *x = &b->beliefs[r->client];
    return x->key == r->key && x->fence == r->fence && x->since_us <= r->sent_us &&
           !b->keys[r->key].forced && /* Else it may be about to be robbed. */
           sl_books_believes(b, r->client, now_us);
}

static void look_for_lies(struct books *b, const struct request_row *r,
                          const struct sl_node_answer *a, int64_t now_us)
{
    const struct key_book *k = &b->keys[r->key];
    bool check = r->type == SL_NODE_CHECK && a->status == SLUICE_OK;
    bool lost = r->type == SL_NODE_EXTEND && a->status == SLUICE_ELOST;
    if (((check && a->number == 0) || lost) && holds_throughout(b, r, now_us))
        sl_books_wrong(b, "c%u is told that it does not hold k%u under fence %llu",
                       r->client + 1, r->key, (unsigned long long)r->fence);
    if (!check || a->number == 0 || r->fence < k->robbed_below) return;
    for (uint32_t i = k->count; i > 0; i--) {
        const struct grant_row *later = &k->grants[i - 1];
        if (later->fence <= r->fence || later->granted_us >= r->sent_us) continue;
        sl_books_wrong(b,
                       "k%u is said to be held under fence %llu, after it was granted "
                       "under %llu",
                       r->key, (unsigned long long)r->fence,
                       (unsigned long long)later->fence);
        return;
    }
}

const struct request_row *sl_books_answered(struct books *b, uint64_t request,
                                            uint32_t node, uint64_t life,
                                            const struct sl_node_answer *a,
                                            int64_t now_us)
{
    struct request_row *r = row_of(b, request);
    const char *why = NULL;
    if (r == NULL) why = "never made";
    else if (r->state == REQUEST_SENT) why = "not there yet";
    else if (r->state == REQUEST_DONE) why = "answered before, or withdrawn";
    else if (r->node != node || r->life != life) why = "of another node, or life";
    if (why != NULL) {
        sl_books_wrong(b, "n%u answers request %llu, which was %s", node + 1,
                       (unsigned long long)request, why);
        return NULL;
    }
    r->state = REQUEST_DONE;
    look_for_lies(b, r, a, now_us);
    if (a->status != SLUICE_OK) return r;
    if (r->type == SL_NODE_ACQUIRE) grant(b, r->key, &a->grant, r->sent_us, now_us);
    if (r->type == SL_NODE_EXTEND) extend(b, r->key, r->fence);
    return r;
}

/* ---- beliefs ---- */

bool sl_books_believes(const struct books *b, uint32_t client, int64_t now_us)
{
    const struct belief *x = &b->beliefs[client];
    return x->is && sl_clock_us(x->clock, now_us) < x->until_us;
}

void sl_books_believe(struct books *b, uint32_t client, const struct belief *belief,
                      int64_t now_us)
{
    const struct belief was = b->beliefs[client];
    bool goes_on = was.key == belief->key && was.fence == belief->fence &&
                   sl_books_believes(b, client, now_us);
    b->beliefs[client] = *belief;
    b->beliefs[client].since_us = goes_on ? was.since_us : now_us;
    if (!sl_books_believes(b, client, now_us)) return;
    for (uint32_t c = 0; c < SL_SIM_CLIENTS; c++) {
        const struct belief *x = &b->beliefs[c];
        if (c == client || x->key != belief->key || !sl_books_believes(b, c, now_us))
            continue;
        /* The later one was told that it is beside another. */
        if (x->fence < belief->fence ? belief->overlapping : x->overlapping) continue;
        sl_books_wrong(
            b,
            "k%u is held by c%u (fence %llu, %lld us left) and by c%u "
            "(fence %llu, %lld us left)",
            belief->key, c + 1, (unsigned long long)x->fence,
            (long long)(x->until_us - sl_clock_us(x->clock, now_us)), client + 1,
            (unsigned long long)belief->fence,
            (long long)(belief->until_us - sl_clock_us(belief->clock, now_us)));
        return;
    }
}

void sl_books_doubt(struct books *b, uint32_t client)
{
    b->beliefs[client].is = false;
}

/* ---- events ---- */

void sl_books_started(struct books *b, uint32_t node)
{
    b->told_count[node] = 0;
}

void sl_books_told(struct books *b, uint32_t node, const struct told_row *row)
{
    uint32_t count = b->told_count[node]++;
    for (uint32_t i = 0; i < count && i < SL_TOLD_ROWS; i++) {
        const struct told_row *t = &b->told[node][i];
        if (t->type == row->type && t->key == row->key && t->fence == row->fence)
            sl_books_wrong(b, "n%u tells twice what became of k%u under fence %llu",
                           node + 1, row->key, (unsigned long long)row->fence);
    }
    b->told[node][count % SL_TOLD_ROWS] = *row;
}

/* ---- lists ---- */

static uint32_t bits_of(const struct sl_membership *m)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < m->count; i++) bits |= 1u << m->at[i].id;
    return bits;
}

static void compare_lists(struct books *b, const struct list_row *a,
                          const struct list_row *row)
{
    if (a->version == row->version && a->members != row->members)
        sl_books_wrong(b, "version %llu is two lists: nodes %#x and %#x",
                       (unsigned long long)a->version, a->members >> 1,
                       row->members >> 1);
    bool next = a->version + 1 == row->version || row->version + 1 == a->version;
    if (next && __builtin_popcount(a->members ^ row->members) != 1)
        sl_books_wrong(b, "lists %llu and %llu differ by more than a node: %#x and %#x",
                       (unsigned long long)a->version, (unsigned long long)row->version,
                       a->members >> 1, row->members >> 1);
}

void sl_books_list(struct books *b, uint32_t node, const struct sl_membership *m)
{
    uint64_t *seen = &b->version_seen[node];
    if (m->version == *seen) return;
    if (m->version < *seen) {
        sl_books_wrong(b, "n%u goes back from list %llu to %llu", node + 1,
                       (unsigned long long)*seen, (unsigned long long)m->version);
        return;
    }
    *seen = m->version;
    struct list_row row = {.version = m->version, .members = bits_of(m)};
    for (uint32_t i = b->list_count; i > 0; i--) {
        compare_lists(b, &b->lists[i - 1], &row);
        if (b->lists[i - 1].version == row.version) return;
    }
    if (b->list_count == b->list_size) {
        b->list_size = b->list_size ? b->list_size * 2 : 16;
        b->lists = need(realloc(b->lists, b->list_size * sizeof *b->lists));
    }
    b->lists[b->list_count++] = row;
}

uint32_t sl_books_newest(const struct books *b)
{
    const struct list_row *best = NULL;
    for (uint32_t i = 0; i < b->list_count; i++) {
        if (best == NULL || b->lists[i].version > best->version) best = &b->lists[i];
    }
    return best == NULL ? 0 : best->members;
}
