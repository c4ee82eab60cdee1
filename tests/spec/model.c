/* model.c - the rules of the lock table a second time, for the specs. */
#include "model.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void model_wrong(struct model *m, const char *format, ...)
{
    if (m->wrong[0] != '\0') return;
    va_list args;
    va_start(args, format);
    vsnprintf(m->wrong, sizeof m->wrong, format, args);
    va_end(args);
}

/* --- Holders -------------------------------------------------------- */

static bool lives(const struct held *h, sl_ms now)
{
    return !h->over && h->end_ms > now;
}

static int count(const struct model *m, sl_ms now, int key, bool shared)
{
    int n = 0;
    for (int i = 0; i < m->grants; i++) {
        const struct held *h = &m->held[i];
        n += lives(h, now) && (key < 0 || h->key == key) && h->shared == shared;
    }
    return n;
}

int model_holders(const struct model *m, sl_ms now, int key)
{
    return count(m, now, key, true) + count(m, now, key, false);
}

uint64_t model_units(const struct model *m, sl_ms now, int key)
{
    uint64_t units = 0;
    for (int i = 0; i < m->grants; i++) {
        const struct held *h = &m->held[i];
        if (lives(h, now) && h->key == key && !h->shared) units += h->units;
    }
    return units;
}

int model_name(const struct model *m, sl_fence fence)
{
    for (int i = 0; i < m->grants; i++)
        if (m->held[i].fence == fence) return i + 1;
    return 0;
}

bool model_broken(const struct model *m, sl_fence fence)
{
    int i = model_name(m, fence) - 1;
    return i >= 0 && m->held[i].broken;
}

/* A grant that has not ended, by its key and fence; -1: there is none. */
static int find(const struct model *m, sl_ms now, int key, sl_fence fence)
{
    int i = model_name(m, fence) - 1;
    return i >= 0 && m->held[i].key == key && lives(&m->held[i], now) ? i : -1;
}

/* --- Acquisitions with an id ----------------------------------------- */

/* NULL: the step has none. */
static struct named *named_of(struct model *m, const struct step *step)
{
    return step->id < 0 ? NULL : &m->named[step->key][step->id];
}

/* Whether two steps are attempts of one acquisition. */
static bool same_named(const struct step *a, const struct step *b)
{
    return a->id >= 0 && a->id == b->id && a->key == b->key;
}

/* A grant is over: so is the acquisition that it belongs to. */
static void end_grant(struct model *m, int grant)
{
    m->held[grant].over = true;
    for (int k = 0; k < KEYS_MAX; k++)
        for (int i = 0; i < IDS_MAX; i++) {
            struct named *n = &m->named[k][i];
            if (n->state == NAMED_HELD && n->grant == grant) n->state = NAMED_ENDED;
        }
}

/* Whether a session other than this one waits for the same acquisition. */
static bool is_joined(const struct model *m, const struct step *step)
{
    for (int i = 0; i < m->spec->sessions; i++) {
        const struct asker *a = &m->asker[i];
        if (i != step->session && a->step != NULL && same_named(a->step, step))
            return true;
    }
    return false;
}

/* --- Waiters -------------------------------------------------------- */

static bool is_queued(const struct asker *a, int key)
{
    return a->step != NULL && a->step->deed == ACQUIRE && a->step->key == key;
}

static bool drained(const struct model *m, int key)
{
    for (int i = 0; i < m->drains; i++)
        if (fnmatch(m->drain[i], m->spec->key[key], 0) == 0) return true;
    return false;
}

static uint64_t capacity(const struct sl_want *w)
{
    return (uint64_t)w->per * w->buckets;
}

static bool fits(const struct model *m, sl_ms now, const struct step *step)
{
    uint64_t units = model_units(m, now, step->key);
    if (step->want.shared) return count(m, now, step->key, false) == 0;
    if (count(m, now, step->key, true) > 0) return false;
    return units + step->want.units <= capacity(&step->want);
}

/* Whether a waiter holds back a request. With `able`, only waiters count that could still be
 * granted: one that is gone or late may still be in the queue. */
static bool held_back(const struct model *m, sl_ms now, const struct step *step,
                      uint64_t arrival, bool able)
{
    const struct sl_want *mine = &step->want;
    for (int i = 0; i < m->spec->sessions; i++) {
        const struct asker *a = &m->asker[i];
        if (!is_queued(a, step->key) || a->step == step) continue;
        if (same_named(a->step, step)) continue;
        if (able && (m->gone[i] || a->end_ms <= now)) continue;
        const struct sl_want *other = &a->step->want;
        if (other->priority > mine->priority) return true;
        if (other->priority < mine->priority || a->arrival > arrival) continue;
        if (mine->shared || other->shared || capacity(mine) <= capacity(other))
            return true;
    }
    return false;
}

/* Whether the session holds all that is held there, without a lease. */
static bool waits_for_itself(const struct model *m, sl_ms now, const struct step *step)
{
    int own = 0;
    for (int i = 0; i < m->grants; i++) {
        const struct held *h = &m->held[i];
        own += lives(h, now) && h->key == step->key && !h->leased &&
               h->session == step->session;
    }
    return own > 0 && own == model_holders(m, now, step->key);
}

/* --- Expected answers ------------------------------------------ */

static int decide(const struct model *m, sl_ms now, const struct step *step)
{
    const struct sl_want *w = &step->want;
    if (!w->shared && capacity(w) == 0) return SLUICE_EFULL;
    if (!w->shared && w->units > capacity(w)) return SLUICE_ETOOBIG;
    if (drained(m, step->key)) return SLUICE_EDRAINED;
    if (fits(m, now, step) && !held_back(m, now, step, UINT64_MAX, false))
        return SLUICE_OK;
    if (w->wait_ms == 0) return SLUICE_EFULL;
    return waits_for_itself(m, now, step) ? SLUICE_EDEADLOCK : SL_WAITS;
}

int model_acquire(struct model *m, sl_ms now, const struct step *step, bool *replay)
{
    struct named *n = named_of(m, step);
    *replay = false;
    if (n == NULL) return decide(m, now, step);
    if (n->state == NAMED_HELD && !lives(&m->held[n->grant], now))
        n->state = NAMED_ENDED;
    if (n->state == NAMED_ENDED) return SLUICE_EENDED;
    if (n->state != NAMED_NEW && n->digest != step->want.digest)
        return SLUICE_EMISMATCH;
    if (n->state == NAMED_HELD) {
        struct held *h = &m->held[n->grant];
        if (!h->leased) h->session = step->session;
        *replay = true;
        return SLUICE_OK;
    }
    if (n->state == NAMED_WAITS)
        return step->want.wait_ms == 0 ? SLUICE_EFULL : SL_WAITS;
    int status = decide(m, now, step);
    if (status == SLUICE_EFULL) n->state = NAMED_ENDED;
    return status;
}

static bool is_so(const struct model *m, sl_ms now, const struct step *step)
{
    return (model_holders(m, now, step->key) == 0) == step->yes;
}

int model_await(const struct model *m, sl_ms now, const struct step *step)
{
    if (is_so(m, now, step)) return SLUICE_OK;
    return step->ms == 0 ? SLUICE_EFULL : SL_WAITS;
}

static bool may_use(const struct held *h, int session)
{
    return h->leased || h->session == session; /* All are of one user. */
}

int model_release(struct model *m, sl_ms now, const struct step *step, sl_fence fence)
{
    int found = -1;
    if (fence != 0) found = find(m, now, step->key, fence);
    for (int i = 0; i < m->grants && fence == 0; i++) {
        const struct held *h = &m->held[i];
        if (lives(h, now) && h->key == step->key && h->session == step->session)
            found = i;
    }
    if (found < 0 || !may_use(&m->held[found], step->session)) return 0;
    end_grant(m, found);
    return 1;
}

int model_extend(struct model *m, sl_ms now, const struct step *step, sl_fence fence,
                 sl_ms *lease_ms)
{
    int found = find(m, now, step->key, fence);
    if (found < 0 || !may_use(&m->held[found], step->session)) return SLUICE_ELOST;
    struct held *h = &m->held[found];
    if (!h->leased) return SLUICE_ENOLEASE;
    if (h->broken) return SLUICE_ELOST;
    if (now + step->ms > h->end_ms) h->end_ms = now + step->ms;
    *lease_ms = h->end_ms - now;
    return SLUICE_OK;
}

int model_check(const struct model *m, sl_ms now, const struct step *step,
                sl_fence fence)
{
    return find(m, now, step->key, fence) >= 0;
}

int model_break(struct model *m, sl_ms now, const struct step *step, sl_fence fence)
{
    int found = find(m, now, step->key, fence);
    if (found < 0) return 0;
    struct held *h = &m->held[found];
    if (h->leased && !step->yes) {
        h->broken = true;
        return 1;
    }
    end_grant(m, found);
    m->next_overlaps[step->key] = true;
    return 2;
}

int model_cancel(struct model *m, sl_ms now, const struct step *step)
{
    struct named *n = named_of(m, step);
    enum named_state was = n->state;
    n->state = NAMED_ENDED;
    if (was == NAMED_WAITS || was == NAMED_ABSENT) return 1;
    if (was != NAMED_HELD || !lives(&m->held[n->grant], now)) return 0;
    m->held[n->grant].over = true;
    return 2;
}

int model_drain(struct model *m, const struct step *step)
{
    for (int i = 0; i < m->drains; i++) {
        if (strcmp(m->drain[i], step->pattern) != 0) continue;
        if (step->yes) return 0;
        m->drain[i] = m->drain[--m->drains];
        return 1;
    }
    if (!step->yes) return 0;
    if (m->drains == DRAINS_MAX) spec_wrong(m->spec, 0, "too many patterns");
    m->drain[m->drains++] = step->pattern;
    return 1;
}

void model_hang_up(struct model *m, int session)
{
    const struct step *step = m->asker[session].step;
    struct named *n = step == NULL ? NULL : named_of(m, step);
    m->gone[session] = true; /* It stays in the queue until the effects are fetched. */
    if (n == NULL) return;
    /* A request with an id leaves at once. Its position is kept for the next attempt. */
    if (n->state == NAMED_WAITS && !is_joined(m, step)) n->state = NAMED_ABSENT;
    m->asker[session].step = NULL;
}

/* --- Effects --------------------------------------------- */

void model_waits(struct model *m, sl_ms now, const struct step *step)
{
    sl_ms wait_ms = step->deed == AWAIT ? step->ms : step->want.wait_ms;
    struct named *n = named_of(m, step);
    uint64_t arrival = ++m->arrivals;
    if (n != NULL && n->state == NAMED_NEW)
        *n = (struct named){.digest = step->want.digest, .arrival = arrival};
    if (n != NULL) {
        n->state = NAMED_WAITS;
        arrival = n->arrival;
    }
    m->asker[step->session] = (struct asker){
        .step = step, .arrival = arrival, .end_ms = now + wait_ms};
}

/* A waiter has its answer. False: it had not waited. */
static bool answered(struct model *m, int session, struct asker *out)
{
    *out = m->asker[session];
    m->asker[session].step = NULL;
    if (out->step == NULL)
        model_wrong(m, "%s is answered, and does not wait", m->spec->session[session]);
    return out->step != NULL;
}

static void judge_grant(struct model *m, sl_ms now, const struct step *step,
                        const struct sl_grant *g)
{
    const char *who = step->name;
    struct asker a = m->asker[step->session];
    bool waited = a.step == step;
    if (m->grants > 0 && g->fence <= m->held[m->grants - 1].fence)
        model_wrong(m, "%s: its fence is not above the last", who);
    if (m->gone[step->session]) model_wrong(m, "%s: granted to one that is gone", who);
    if (waited && a.end_ms <= now) model_wrong(m, "%s: granted after its time", who);
    if (drained(m, step->key)) model_wrong(m, "%s: granted on a drained key", who);
    if (!fits(m, now, step)) model_wrong(m, "%s: granted beyond its capacity", who);
    if (held_back(m, now, step, waited ? a.arrival : UINT64_MAX, true))
        model_wrong(m, "%s: granted before another's turn", who);
    if (g->overlapping != m->next_overlaps[step->key])
        model_wrong(m, "%s: overlapping is not as it should be", who);
    if (g->lease_ms != step->want.lease_ms)
        model_wrong(m, "%s: not the lease that was asked for", who);
}

void model_granted(struct model *m, sl_ms now, const struct step *step,
                   const struct sl_grant *g)
{
    const struct sl_want *w = &step->want;
    judge_grant(m, now, step, g);
    if (m->grants == GRANTS_MAX) spec_wrong(m->spec, 0, "too many grants");
    m->held[m->grants++] = (struct held){.fence = g->fence,
                                         .key = step->key,
                                         .session = step->session,
                                         .shared = w->shared,
                                         .leased = w->lease_ms > 0,
                                         .units = w->units,
                                         .end_ms = w->lease_ms > 0 ? now + w->lease_ms
                                                                   : SL_NEVER};
    m->next_overlaps[step->key] = false;
    m->asker[step->session].step = NULL;
    struct named *n = named_of(m, step);
    if (n != NULL)
        *n = (struct named){
            .state = NAMED_HELD, .digest = w->digest, .grant = m->grants - 1};
    uint64_t held = w->shared ? (uint64_t)count(m, now, step->key, true)
                              : model_units(m, now, step->key);
    if (g->held != held) model_wrong(m, "%s: held is not counted right", step->name);
}

void model_replayed(struct model *m, sl_ms now, const struct step *step,
                    const struct sl_grant *g)
{
    const struct named *n = named_of(m, step);
    int i = model_name(m, g->fence) - 1;
    m->asker[step->session].step = NULL;
    if (n == NULL || n->state != NAMED_HELD || n->grant != i)
        model_wrong(m, "%s: this is not the grant of its id", step->name);
    else if (!lives(&m->held[i], now) ||
             g->lease_ms != (m->held[i].leased ? m->held[i].end_ms - now : 0))
        model_wrong(m, "%s: not what is left of the lease", step->name);
}

void model_cancelled(struct model *m, int session)
{
    struct asker a;
    if (answered(m, session, &a) &&
        (a.step->id < 0 || named_of(m, a.step)->state != NAMED_ENDED))
        model_wrong(m, "%s: its acquisition has not ended", a.step->name);
}

/* A wait has ended: if it was the last one of its acquisition, that is in this state now. */
static void leave_named(struct model *m, const struct step *step, enum named_state next)
{
    struct named *n = named_of(m, step);
    if (n != NULL && n->state == NAMED_WAITS && !is_joined(m, step)) n->state = next;
}

void model_timed_out(struct model *m, sl_ms now, int session)
{
    struct asker a;
    if (!answered(m, session, &a)) return;
    if (a.end_ms > now) model_wrong(m, "%s: its time is not over", a.step->name);
    leave_named(m, a.step, NAMED_ENDED);
}

void model_refused(struct model *m, int session)
{
    struct asker a;
    if (!answered(m, session, &a)) return;
    if (!drained(m, a.step->key))
        model_wrong(m, "%s: refused, and its key is not drained", a.step->name);
    leave_named(m, a.step, NAMED_NEW);
}

void model_seen(struct model *m, sl_ms now, int session)
{
    struct asker a;
    if (answered(m, session, &a) && !is_so(m, now, a.step))
        model_wrong(m, "%s: it sees what is not so", a.step->name);
}

void model_expired(struct model *m, sl_ms now, int key, sl_fence fence)
{
    int i = model_name(m, fence) - 1;
    if (i < 0 || m->held[i].key != key || m->held[i].over || m->held[i].end_ms > now)
        model_wrong(m, "f%d expired before its time, or twice", i + 1);
    else end_grant(m, i);
}

void model_ended(struct model *m, int key, sl_fence fence)
{
    int i = model_name(m, fence) - 1;
    const struct held *h = i < 0 ? NULL : &m->held[i];
    if (h == NULL || h->key != key || h->over || h->leased || !m->gone[h->session])
        model_wrong(m, "f%d ended with a session that is there", i + 1);
    else end_grant(m, i);
}

/* --- After all effects ------------------------------------------------- */

static void quiet_asker(struct model *m, sl_ms now, const struct asker *a)
{
    const char *who = a->step->name;
    if (a->end_ms <= now) model_wrong(m, "%s waits, and its time is over", who);
    if (a->step->deed == AWAIT) {
        if (is_so(m, now, a->step)) model_wrong(m, "%s waits for what is so", who);
        return;
    }
    if (drained(m, a->step->key)) model_wrong(m, "%s waits on a drained key", who);
    if (fits(m, now, a->step) && !held_back(m, now, a->step, a->arrival, true))
        model_wrong(m, "%s waits, and nobody is before it", who);
}

void model_quiet(struct model *m, sl_ms now)
{
    for (int i = 0; i < m->spec->sessions; i++) {
        if (m->gone[i]) m->asker[i].step = NULL;
        if (m->asker[i].step != NULL) quiet_asker(m, now, &m->asker[i]);
    }
    for (int i = 0; i < m->grants; i++) {
        const struct held *h = &m->held[i];
        if (h->over) continue;
        if (h->end_ms <= now) model_wrong(m, "f%d is over, and nobody is told", i + 1);
        if (!h->leased && m->gone[h->session])
            model_wrong(m, "f%d is held by one that is gone", i + 1);
    }
}
