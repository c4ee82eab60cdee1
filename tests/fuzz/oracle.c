#include "oracle.h"

#include <string.h>

#include "fuzz.h"

static const char *const keys[KEYS] = {"a", "b", "c"};

/* Each pattern and the keys that it matches, written down by hand. */
static const struct {
    const char *text;
    bool matches[KEYS];
} patterns[PATTERNS] = {{"a", {true, false, false}},
                        {"[ab]", {true, true, false}},
                        {"*", {true, true, true}},
                        {"?x", {false, false, false}}};

struct sl_bytes oracle_key(int key)
{
    return (struct sl_bytes){keys[key], strlen(keys[key])};
}

struct sl_bytes oracle_pattern(int pattern)
{
    return (struct sl_bytes){patterns[pattern].text, strlen(patterns[pattern].text)};
}

static int key_of(struct sl_bytes key)
{
    for (int k = 0; k < KEYS; k++)
        if (key.n == strlen(keys[k]) && memcmp(key.at, keys[k], key.n) == 0) return k;
    must(false); /* A key that nobody named. */
    return -1;
}

/* --- Questions ------------------------------------------------------------- */

static bool lives(const struct oracle *o, const struct grant *g)
{
    return g->fence != 0 && g->end_ms > o->now.ms;
}

static bool is_drained(const struct oracle *o, int key)
{
    for (int p = 0; p < PATTERNS; p++)
        if (o->drains[p] && patterns[p].matches[key]) return true;
    return false;
}

static uint64_t units_on(const struct oracle *o, int key)
{
    uint64_t units = 0;
    for (int i = 0; i < GRANTS; i++) {
        const struct grant *g = &o->grants[i];
        if (lives(o, g) && g->key == key && !g->shared) units += g->units;
    }
    return units;
}

static uint32_t shared_on(const struct oracle *o, int key)
{
    uint32_t n = 0;
    for (int i = 0; i < GRANTS; i++)
        n += lives(o, &o->grants[i]) && o->grants[i].key == key && o->grants[i].shared;
    return n;
}

static bool is_held(const struct oracle *o, int key)
{
    return units_on(o, key) > 0 || shared_on(o, key) > 0;
}

static bool fits(const struct oracle *o, int key, bool shared, uint64_t capacity,
                 uint32_t units)
{
    if (shared) return units_on(o, key) == 0;
    return shared_on(o, key) == 0 && units_on(o, key) + units <= capacity;
}

/* Rule 2: whether waiter `i` holds back one that came after `arrival`. */
static bool holds_back(const struct oracle *o, int i, int key, bool shared,
                       uint64_t capacity, int32_t priority, uint64_t arrival)
{
    const struct wait *w = &o->waits[i];
    if (w->what != IN_LINE || w->key != key) return false;
    if (w->priority != priority) return w->priority > priority;
    if (w->arrival >= arrival) return false;
    return w->shared || shared || capacity <= w->capacity;
}

/* Whether any waiter does. Waiters of ended sessions may have left: `unsure` counts them. */
static bool is_held_back(const struct oracle *o, int key, bool shared,
                         uint64_t capacity, int32_t priority, uint64_t arrival,
                         bool unsure)
{
    for (int i = 0; i < SESSIONS; i++)
        if ((unsure || !o->ended[i]) &&
            holds_back(o, i, key, shared, capacity, priority, arrival))
            return true;
    return false;
}

static bool is_unsure(const struct oracle *o)
{
    for (int i = 0; i < SESSIONS; i++)
        if (o->ended[i] && o->waits[i].what != AT_NOTHING) return true;
    return false;
}

/* Rule 3: the session holds all that is held there, without a lease. */
static bool holds_it_alone(const struct oracle *o, int session, int key)
{
    for (int i = 0; i < GRANTS; i++) {
        const struct grant *g = &o->grants[i];
        if (lives(o, g) && g->key == key && g->session != session) return false;
    }
    return is_held(o, key);
}

static const struct grant *find(const struct oracle *o, int key, sl_fence fence)
{
    for (int i = 0; i < GRANTS; i++)
        if (fence != 0 && o->grants[i].fence == fence && o->grants[i].key == key)
            return &o->grants[i];
    return NULL;
}

static struct grant *find_living(struct oracle *o, int key, sl_fence fence)
{
    struct grant *g = (struct grant *)find(o, key, fence);
    return g != NULL && lives(o, g) ? g : NULL;
}

/* A grant may be used by the session that acquired it; with a lease, by all of its user. */
static struct grant *find_usable(struct oracle *o, int session, int key, sl_fence fence)
{
    struct grant *g = find_living(o, key, fence);
    if (g == NULL) return NULL;
    bool own = g->lease_ms > 0 ? g->user == o->session[session].user
                               : g->session == session;
    return own ? g : NULL;
}

static struct grant *find_newest(struct oracle *o, int session, int key)
{
    struct grant *newest = NULL;
    for (int i = 0; i < GRANTS; i++) {
        struct grant *g = &o->grants[i];
        if (lives(o, g) && g->key == key && g->session_id == o->session[session].id &&
            (newest == NULL || g->fence > newest->fence))
            newest = g;
    }
    return newest;
}

bool oracle_has_place(const struct oracle *o)
{
    int waiting = 0, free = 0;
    for (int i = 0; i < SESSIONS; i++) waiting += o->waits[i].what == IN_LINE;
    for (int i = 0; i < GRANTS; i++) free += o->grants[i].fence == 0;
    return free > waiting;
}

/* The table's clock may be late: all lasts that much longer, and less is said of it. */
static sl_ms end_after(const struct oracle *o, sl_ms ms)
{
    return sl_ms_after(sl_ms_after(o->now.ms, ms), o->grain_ms);
}

static sl_ms lease_left(const struct oracle *o, sl_ms end_ms)
{
    if (end_ms == SL_NEVER) return SL_NEVER;
    sl_ms left = end_ms - o->now.ms - o->grain_ms;
    return left > 0 ? left : 0;
}

/* --- Grants ------------------------------------------------ */

static void add_grant(struct oracle *o, int session, const struct wait *w,
                      const struct sl_grant *told)
{
    must(!o->ended[session]);
    must(!is_drained(o, w->key));
    must(fits(o, w->key, w->shared, w->capacity, w->units));
    must(told->fence > o->fence && told->fence < 1ull << 53);
    must(told->overlapping == (o->marked_until[w->key] > o->now.ms));
    must(told->lease_ms == w->lease_ms);
    sl_ms waited_ms = o->now.ms - w->asked_ms - o->grain_ms;
    must(told->waited_ms == (waited_ms > 0 ? waited_ms : 0));
    o->fence = told->fence;
    o->marked_until[w->key] = 0;
    int i = 0;
    while (o->grants[i].fence != 0) i++;
    o->grants[i] = (struct grant){.fence = told->fence,
                                  .key = w->key,
                                  .session_id = o->session[session].id,
                                  .session = w->lease_ms > 0 ? -1 : session,
                                  .user = o->session[session].user,
                                  .units = w->units,
                                  .shared = w->shared,
                                  .granted_ms = o->now.ms,
                                  .lease_ms = w->lease_ms,
                                  .end_ms = w->lease_ms > 0 ? end_after(o, w->lease_ms)
                                                            : SL_NEVER};
    must(told->held == (w->shared ? shared_on(o, w->key) : units_on(o, w->key)));
}

static void remove_grant(struct grant *g, const struct sl_ended *past)
{
    must(past->fence == g->fence && past->session_id == g->session_id);
    g->fence = 0;
}

/* --- Operations ----------------------------------------------------- */

static struct wait as_wait(struct oracle *o, int key, const struct sl_want *w)
{
    return (struct wait){.what = IN_LINE,
                         .key = key,
                         .shared = w->shared,
                         .capacity = (uint64_t)w->per * w->buckets,
                         .units = w->units,
                         .priority = w->priority,
                         .arrival = ++o->arrivals,
                         .asked_ms = o->now.ms,
                         .lease_ms = w->lease_ms,
                         .end_ms = end_after(o, w->wait_ms)};
}

static void check_refusal(const struct oracle *o, int session, const struct wait *w,
                          bool waits, int status)
{
    bool sure = is_held_back(o, w->key, w->shared, w->capacity, w->priority, w->arrival,
                             false);
    bool maybe = is_held_back(o, w->key, w->shared, w->capacity, w->priority,
                              w->arrival, true);
    bool fit = fits(o, w->key, w->shared, w->capacity, w->units);
    if (status == SLUICE_OK) must(fit && !sure);
    else must(!fit || maybe);
    if (status == SLUICE_EFULL) must(!waits);
    if (status == SLUICE_EDEADLOCK) must(waits && holds_it_alone(o, session, w->key));
    if (status == SL_WAITS) must(waits && !holds_it_alone(o, session, w->key));
}

void oracle_acquired(struct oracle *o, int session, int key, const struct sl_want *want,
                     int status, const struct sl_grant *g)
{
    struct wait w = as_wait(o, key, want);
    if (!w.shared && w.capacity == 0) must(status == SLUICE_EFULL);
    else if (!w.shared && w.units > w.capacity) must(status == SLUICE_ETOOBIG);
    else if (is_drained(o, key)) must(status == SLUICE_EDRAINED);
    else if (status == SLUICE_EKEYS)
        must(!is_held(o, key)); /* A key is in use already. */
    else if (status == SLUICE_EWAITERS) must(want->wait_ms > 0);
    else {
        must(status == SLUICE_OK || status == SL_WAITS || status == SLUICE_EFULL ||
             status == SLUICE_EDEADLOCK);
        check_refusal(o, session, &w, want->wait_ms > 0, status);
    }
    if (status == SLUICE_OK) add_grant(o, session, &w, g);
    if (status == SL_WAITS) o->waits[session] = w;
}

void oracle_awaited(struct oracle *o, int session, int key, bool want_free,
                    sl_ms wait_ms, int status)
{
    bool so = is_held(o, key) != want_free;
    if (so) must(status == SLUICE_OK);
    else if (wait_ms == 0) must(status == SLUICE_EFULL);
    else
        must(status == SL_WAITS || status == SLUICE_EKEYS || status == SLUICE_EWAITERS);
    if (status != SL_WAITS) return;
    o->waits[session] = (struct wait){.what = WATCHES,
                                      .key = key,
                                      .want_free = want_free,
                                      .asked_ms = o->now.ms,
                                      .end_ms = end_after(o, wait_ms)};
}

void oracle_released(struct oracle *o, int session, int key, sl_fence fence, int answer,
                     const struct sl_ended *past)
{
    struct grant *g = fence != 0 ? find_usable(o, session, key, fence)
                                 : find_newest(o, session, key);
    must(answer == (g != NULL));
    if (g != NULL) remove_grant(g, past);
}

void oracle_extended(struct oracle *o, int session, int key, sl_fence fence, sl_ms ms,
                     int status, sl_ms lease_ms)
{
    struct grant *g = find_usable(o, session, key, fence);
    if (ms <= 0) must(status == SLUICE_EINVAL);
    else if (g == NULL) must(status == SLUICE_ELOST);
    else if (g->lease_ms == 0) must(status == SLUICE_ENOLEASE);
    else if (g->broken) must(status == SLUICE_ELOST);
    else must(status == SLUICE_OK);
    if (status != SLUICE_OK) return;
    sl_ms end_ms = end_after(o, ms);
    if (end_ms > g->end_ms) g->end_ms = end_ms;
    must(lease_ms == lease_left(o, g->end_ms));
}

void oracle_broke(struct oracle *o, int key, sl_fence fence, bool at_once, int answer,
                  const struct sl_ended *past)
{
    struct grant *g = find_living(o, key, fence);
    if (g == NULL) {
        must(answer == 0);
        return;
    }
    if (g->lease_ms > 0 && !at_once) {
        must(answer == 1);
        g->broken = true;
        return;
    }
    must(answer == 2);
    sl_ms end_ms = g->end_ms != SL_NEVER ? g->end_ms : end_after(o, SL_MARK_MS);
    if (end_ms > o->marked_until[key]) o->marked_until[key] = end_ms;
    remove_grant(g, past);
}

void oracle_drained(struct oracle *o, int pattern, bool on, int status)
{
    if (o->drains[pattern] == on) must(status == SLUICE_ENOENT);
    else must(status == SLUICE_OK || (on && status == SLUICE_EFULL));
    if (status == SLUICE_OK) o->drains[pattern] = on;
}

void oracle_withdrew(struct oracle *o, int session)
{
    o->waits[session].what = AT_NOTHING;
}

void oracle_ended(struct oracle *o, int session)
{
    o->ended[session] = true;
}

/* --- Effects ----------------------------------------------------- */

/* Whether a waiter could have been granted instead of another. */
static bool is_next(const struct oracle *o, int i, const struct wait *other)
{
    const struct wait *w = &o->waits[i];
    return w->what == IN_LINE && !o->ended[i] && w->key == other->key &&
           w->priority == other->priority &&
           fits(o, w->key, w->shared, w->capacity, w->units) &&
           !is_held_back(o, w->key, w->shared, w->capacity, w->priority, w->arrival,
                         true);
}

static void told_granted(struct oracle *o, const struct sl_effect *e, int session)
{
    struct wait w = o->waits[session];
    must(w.what == IN_LINE && w.key == key_of(e->key));
    must(w.end_ms > o->now.ms); /* Rule 5. */
    o->waits[session].what = AT_NOTHING;
    must(!is_held_back(o, w.key, w.shared, w.capacity, w.priority, w.arrival, false));
    for (int i = 0; i < SESSIONS; i++)
        must(o->waits[i].arrival > w.arrival || !is_next(o, i, &w));
    add_grant(o, session, &w, &e->grant);
}

static void told_waited(struct oracle *o, const struct sl_effect *e, int session)
{
    struct wait *w = &o->waits[session];
    must(!o->ended[session] && w->key == key_of(e->key));
    if (e->type == SL_EFFECT_TIMED_OUT)
        must(w->what != AT_NOTHING && w->end_ms <= o->now.ms);
    if (e->type == SL_EFFECT_REFUSED) must(w->what == IN_LINE && is_drained(o, w->key));
    if (e->type == SL_EFFECT_SEEN)
        must(w->what == WATCHES && is_held(o, w->key) != w->want_free);
    w->what = AT_NOTHING;
}

static void told_past(struct oracle *o, const struct sl_effect *e)
{
    struct grant *g = (struct grant *)find(o, key_of(e->key), e->past.fence);
    must(g != NULL && e->session == NULL);
    if (e->type == SL_EFFECT_EXPIRED) must(g->lease_ms > 0 && g->end_ms <= o->now.ms);
    else must(g->lease_ms == 0 && o->ended[g->session]);
    remove_grant(g, &e->past);
}

static void told_over(struct oracle *o, int session)
{
    must(o->ended[session]);
    for (int i = 0; i < GRANTS; i++)
        must(o->grants[i].fence == 0 || o->grants[i].session != session);
    o->ended[session] = false;
    o->waits[session].what = AT_NOTHING;
}

void oracle_told(struct oracle *o, const struct sl_effect *e)
{
    int session = e->session == NULL ? -1 : (int)(e->session - o->session);
    switch (e->type) {
        case SL_EFFECT_GRANTED: told_granted(o, e, session); break;
        case SL_EFFECT_TIMED_OUT:
        case SL_EFFECT_REFUSED:
        case SL_EFFECT_SEEN: told_waited(o, e, session); break;
        case SL_EFFECT_EXPIRED:
        case SL_EFFECT_ENDED: told_past(o, e); break;
        case SL_EFFECT_SESSION_OVER: told_over(o, session); break;
        default: must(false);
    }
}

/* --- Comparisons ----------------------------------- */

static sl_ms first_end(const struct oracle *o)
{
    sl_ms first = SL_NEVER;
    for (int i = 0; i < GRANTS; i++)
        if (o->grants[i].fence != 0 && o->grants[i].end_ms < first)
            first = o->grants[i].end_ms;
    for (int i = 0; i < SESSIONS; i++)
        if (o->waits[i].what != AT_NOTHING && o->waits[i].end_ms < first)
            first = o->waits[i].end_ms;
    for (int i = 0; i < KEYS; i++)
        if (o->marked_until[i] > o->now.ms && o->marked_until[i] < first)
            first = o->marked_until[i];
    return first;
}

/* A mark that has ended may not have been removed yet; no effect reports that. */
static bool is_old_mark(const struct oracle *o, sl_ms at)
{
    for (int i = 0; i < KEYS; i++)
        if (o->marked_until[i] == at && at <= o->now.ms && at > 0) return true;
    return false;
}

static void compare_key(const struct oracle *o, struct sl_table *t, int key)
{
    struct sl_lock_view lock = {0};
    struct sl_grant_view v;
    uint64_t cursor = 0;
    uint32_t holders = 0;
    sl_fence last = 0;
    for (int i = 0; i < GRANTS; i++) {
        const struct grant *g = &o->grants[i];
        if (g->fence == 0 || g->key != key) continue;
        must(sl_table_holds(t, o->now, oracle_key(key), g->fence) == lives(o, g));
        holders += lives(o, g);
    }
    sl_table_inspect(t, o->now, oracle_key(key), &lock);
    must(lock.held == units_on(o, key) && lock.holders == holders);
    must(lock.shared == (shared_on(o, key) > 0));
    must(lock.next_overlaps == (o->marked_until[key] > o->now.ms));
    while (sl_table_each(t, o->now, oracle_key(key), &cursor, &v)) {
        if (v.waits) continue;
        const struct grant *g = find(o, key, v.fence);
        must(g != NULL && lives(o, g) && v.fence > last);
        must(v.broken == g->broken && v.shared == g->shared && v.user == g->user);
        must(g->shared || v.units == g->units);
        must(v.left_ms == lease_left(o, g->end_ms));
        last = v.fence;
        holders--;
    }
    must(holders == 0);
}

void oracle_compare(const struct oracle *o, struct sl_table *t)
{
    struct sl_table_stats stats;
    size_t waiting = 0, drains = 0;
    for (int key = 0; key < KEYS; key++) compare_key(o, t, key);
    for (int i = 0; i < SESSIONS; i++) waiting += o->waits[i].what == IN_LINE;
    for (int p = 0; p < PATTERNS; p++) drains += o->drains[p];
    sl_table_stats(t, &stats);
    must(stats.fence_last == o->fence && stats.drains == drains);
    if (is_unsure(o)) return;
    must(stats.waiters == waiting);
    sl_ms due = sl_table_due(t);
    must(due == first_end(o) || is_old_mark(o, due));
}

void oracle_settled(const struct oracle *o)
{
    for (int i = 0; i < GRANTS; i++)
        must(o->grants[i].fence == 0 || lives(o, &o->grants[i]));
    for (int i = 0; i < SESSIONS; i++) {
        const struct wait *w = &o->waits[i];
        must(!o->ended[i]);
        if (w->what == AT_NOTHING) continue;
        must(w->end_ms > o->now.ms);
        if (w->what == WATCHES) {
            must(is_held(o, w->key) == w->want_free);
            continue;
        }
        must(!is_drained(o, w->key));
        must(!fits(o, w->key, w->shared, w->capacity, w->units) ||
             is_held_back(o, w->key, w->shared, w->capacity, w->priority, w->arrival,
                          true));
    }
}
