/* lock.c - the commands about locks: parses their arguments into requests (server/request.h). */
#include <inttypes.h>
#include <string.h>

#include "base/fnv.h"
#include "base/glob.h"
#include "base/number.h"
#include "locks/requests.h"
#include "server/command/dispatch.h"
#include "server/observe/inspection.h"
#include "server/observe/memory.h"
#include "server/request.h"

/* --- Arguments ------------------------------------------------------------ */

#define FENCE_MAX ((int64_t)SL_FENCE_MAX)

static void reply_too_long(struct call *call, const char *what, size_t bytes,
                           int64_t most, const char *setting)
{
    sl_say_format(call, "TOOBIG", "the %s has %zu bytes; the limit is %" PRId64 " (%s)",
                  what, bytes, most, setting);
}

static bool reject_key(struct call *call)
{
    size_t n = call->at[1].n;
    int64_t most = call->s->settings->key_bytes_max;
    if (n == 0) sl_say(call, "ERR", "the key is empty; it must have at least one byte");
    else reply_too_long(call, "key", n, most, "key-bytes-max");
    return false;
}

static void reject_pattern(struct call *call, struct sl_bytes pattern)
{
    reply_too_long(call, "pattern", pattern.n, call->s->settings->pattern_bytes_max,
                   "pattern-bytes-max");
}

/* Whether the first argument is a valid key. If not, reply with an error. */
static inline bool good_key(struct call *call)
{
    size_t n = call->at[1].n;
    return (n > 0 && n <= (size_t)call->s->settings->key_bytes_max) || reject_key(call);
}

static bool good_value(struct call *call, const char *name, struct sl_bytes v)
{
    const struct sl_settings *set = call->s->settings;
    if (v.n <= (size_t)set->value_bytes_max) return true;
    reply_too_long(call, name, v.n, set->value_bytes_max, "value-bytes-max");
    return false;
}

static bool reply_missing(struct call *call, const char *name)
{
    sl_say_missing(call, name);
    return false;
}

/* Parse argument i as a number. Returns false after replying with an error. */
static bool number_at(struct call *call, size_t i, const char *name, int64_t min,
                      int64_t max, int64_t *out)
{
    if (i >= call->n) return reply_missing(call, name);
    if (sl_parse_number(call->at[i], min, max, out)) return true;
    sl_say_format(call, "ERR",
                  "%s must be an integer from %" PRId64 " to %" PRId64
                  " (got \"%.*s%s\")",
                  name, min, max, SL_SHOWN(call->at[i]));
    return false;
}

/* Parse argument i as a lease. A lease that is too long has its own error code. */
static bool lease_at(struct call *call, size_t i, const char *name, int64_t *out)
{
    struct sl_duration_range range = {name, 1, call->s->settings->lease_ms_max,
                                      " (lease-max)"};
    if (i < call->n && sl_parse_duration(call->at[i], 1, 1, FENCE_MAX, out)) {
        if (*out <= range.max) return true;
        sl_say_duration(call, i, &range, "TOOBIG");
    } else sl_say_duration(call, i, &range, "ERR");
    return false;
}

static bool fence_at(struct call *call, size_t i, sl_fence *out)
{
    int64_t n;
    if (!number_at(call, i, "the fence", 1, FENCE_MAX, &n)) return false;
    *out = (sl_fence)n;
    return true;
}

/* --- ACQUIRE -------------------------------------------------------------- */

/* The options of ACQUIRE, as bits, to detect duplicates. */
enum {
    OPTION_SHARED = 1,
    OPTION_PER = 2,
    OPTION_BUCKETS = 4,
    OPTION_UNITS = 8,
    OPTION_WAIT = 16,
    OPTION_LEASE = 32,
    OPTION_PRIORITY = 64,
    OPTION_VALUE = 128,
    OPTION_NOTE = 256,
    OPTION_STEAL = 512,
    OPTION_REQUEST = 1024,
    OPTION_NOTIFY = 2048
};

struct acquire_options {
    struct sl_want *want;
    unsigned seen;            /* Bits of the options found so far. */
    int64_t steal_millionths; /* The argument of STEAL: a fraction of the wait. */
    bool steal_auto;          /* STEAL AUTO. */
};

static bool read_number(struct call *call, size_t i, unsigned option,
                        struct acquire_options *w)
{
    struct sl_want *want = w->want;
    int64_t n;
    switch (option) {
        case OPTION_PER:
            if (!number_at(call, i, "PER", 0, UINT32_MAX, &n)) return false;
            want->per = (uint32_t)n;
            return true;
        case OPTION_BUCKETS:
            if (!number_at(call, i, "BUCKETS", 0, UINT32_MAX, &n)) return false;
            want->buckets = (uint32_t)n;
            return true;
        case OPTION_UNITS:
            if (!number_at(call, i, "UNITS", 1, SLUICE_UNITS_MAX, &n)) return false;
            want->units = (uint32_t)n;
            return true;
        case OPTION_WAIT: return sl_duration_at(call, i, "WAIT", &want->wait_ms);
        case OPTION_LEASE: return lease_at(call, i, "LEASE", &want->lease_ms);
        default:
            if (!number_at(call, i, "PRIORITY", INT32_MIN, INT32_MAX, &n)) return false;
            want->priority = (int32_t)n;
            return true;
    }
}

static bool read_text(struct call *call, size_t i, unsigned option,
                      struct acquire_options *w)
{
    const char *name = option == OPTION_VALUE ? "VALUE" : "NOTE";
    if (i >= call->n) return reply_missing(call, name);
    if (!good_value(call, name, call->at[i])) return false;
    if (option == OPTION_VALUE) w->want->value = call->at[i];
    else w->want->note = call->at[i];
    return true;
}

/* Whether argument i is a valid REQUEST id. If not, reply with an error. */
static bool good_id(struct call *call, size_t i)
{
    if (i >= call->n) return reply_missing(call, "REQUEST");
    size_t n = call->at[i].n;
    if (n >= SL_REQUEST_ID_MIN && n <= SL_REQUEST_ID_MAX) return true;
    sl_say_format(
        call, "ERR",
        "the REQUEST id must have %u to %u bytes (got %zu); draw a random id for "
        "each acquisition",
        SL_REQUEST_ID_MIN, SL_REQUEST_ID_MAX, n);
    return false;
}

static bool read_request(struct call *call, size_t i, struct acquire_options *w)
{
    if (!good_id(call, i)) return false;
    w->want->request = call->at[i];
    return true;
}

static unsigned option_of(struct sl_bytes b)
{
    static const struct {
        const char *text;
        unsigned option;
    } options[] = {{"LEASE", OPTION_LEASE},     {"WAIT", OPTION_WAIT},
                   {"VALUE", OPTION_VALUE},     {"PER", OPTION_PER},
                   {"BUCKETS", OPTION_BUCKETS}, {"UNITS", OPTION_UNITS},
                   {"SHARED", OPTION_SHARED},   {"PRIORITY", OPTION_PRIORITY},
                   {"NOTE", OPTION_NOTE},       {"STEAL", OPTION_STEAL},
                   {"REQUEST", OPTION_REQUEST}, {"NOTIFY", OPTION_NOTIFY}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (sl_word_is(b, options[i].text)) return options[i].option;
    return 0;
}

#define WHOLE 1000000 /* The fraction 1, in millionths. */

/* Parse a decimal fraction from 0 to 1. */
static bool parse_fraction(struct sl_bytes b, int64_t *millionths)
{
    int64_t n = 0, unit = WHOLE;
    bool digits = false, point = false;
    for (size_t i = 0; i < b.n; i++) {
        if (b.at[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (b.at[i] < '0' || b.at[i] > '9' || (!point && n > WHOLE)) return false;
        digits = true;
        if (point) unit /= 10;
        n = point ? n + (b.at[i] - '0') * unit : n * 10 + (b.at[i] - '0') * WHOLE;
    }
    *millionths = n;
    return digits && n <= WHOLE;
}

/* Parse the argument of STEAL: a fraction, or AUTO. Returns false if b is the next option
 * instead. */
static bool read_steal(struct sl_bytes b, struct acquire_options *w)
{
    w->steal_auto = sl_word_is(b, "AUTO");
    return w->steal_auto || parse_fraction(b, &w->steal_millionths);
}

/* Set how long a thief waits for the holder before it takes the lock anyway. */
static void set_force(const struct server *s, struct acquire_options *w)
{
    sl_ms wait_ms = w->want->wait_ms;
    w->want->steal = (w->seen & OPTION_STEAL) != 0;
    w->want->force_ms = SL_NEVER;
    if (w->steal_auto) w->want->force_ms = sl_answers_force_ms(&s->stats.answers);
    else if (w->steal_millionths == 0) w->want->force_ms = 0;
    else if (w->steal_millionths < WHOLE &&
             wait_ms > 0) /* Round up, so that only 0 means "at once". */
        w->want->force_ms = 1 + (sl_ms)((double)wait_ms * (double)w->steal_millionths /
                                        WHOLE);
}

/* An option of ACQUIRE. */
struct option {
    unsigned option; /* 0: unknown option. */
    /* The index of its argument, which may be missing; 0: takes no argument. */
    size_t argument;
};

/* Get the option at *i, and move *i past the option and its argument. Returns false if there are no
 * more. */
static bool next_option(const struct call *call, size_t *i, struct option *o)
{
    struct acquire_options unused;
    if (*i >= call->n) return false;
    o->option = option_of(call->at[(*i)++]);
    bool has = o->option != 0 && (o->option & (OPTION_SHARED | OPTION_NOTIFY)) == 0;
    if (o->option == OPTION_STEAL)
        has = *i < call->n && read_steal(call->at[*i], &unused);
    o->argument = has ? (*i)++ : 0;
    return true;
}

static bool looks_like_number(struct sl_bytes b)
{
    return b.n > 0 && ((b.at[0] >= '0' && b.at[0] <= '9') || b.at[0] == '.' ||
                       b.at[0] == '-' || b.at[0] == '+');
}

/* Reply that argument i is not an option. After STEAL, it may be meant as the argument of STEAL. */
static bool reject_option(struct call *call, size_t i)
{
    struct sl_bytes b = call->at[i];
    if (sl_word_is(call->at[i - 1], "STEAL") && looks_like_number(b))
        sl_say_format(call, "ERR",
                      "STEAL must be AUTO or a number from 0 to 1 (got \"%.*s%s\")",
                      SL_SHOWN(b));
    else
        sl_say_unknown(call, "option", b,
                       SL_NAMES("SHARED", "PER", "BUCKETS", "UNITS", "WAIT", "LEASE",
                                "PRIORITY", "STEAL", "AUTO", "VALUE", "NOTE", "REQUEST",
                                "NOTIFY"));
    return false;
}

static bool read_options(struct call *call, struct acquire_options *w)
{
    struct option o;
    for (size_t i = 2, at = i; next_option(call, &i, &o); at = i) {
        if (o.option == 0) return reject_option(call, at);
        if ((w->seen & o.option) != 0) {
            sl_say_format(call, "ERR", "duplicate option \"%.*s%s\" for ACQUIRE",
                          SL_SHOWN(call->at[at]));
            return false;
        }
        w->seen |= o.option;
        if (o.option == OPTION_SHARED) w->want->shared = true;
        else if (o.option == OPTION_NOTIFY) w->want->notify = true;
        else if (o.option == OPTION_STEAL) {
            if (o.argument != 0) read_steal(call->at[o.argument], w);
        } else if (o.option == OPTION_REQUEST) {
            if (!read_request(call, o.argument, w)) return false;
        } else if (!((o.option & (OPTION_VALUE | OPTION_NOTE)) != 0
                         ? read_text(call, o.argument, o.option, w)
                         : read_number(call, o.argument, o.option, w)))
            return false;
    }
    if (w->want->shared &&
        (w->seen & (OPTION_PER | OPTION_BUCKETS | OPTION_UNITS)) != 0) {
        sl_say_usage(call, "SHARED cannot be combined with PER, BUCKETS or UNITS");
        return false;
    }
    if ((w->seen & OPTION_BUCKETS) != 0 && (w->seen & OPTION_PER) == 0) {
        sl_say_usage(call, "BUCKETS needs PER");
        return false;
    }
    return true;
}

static uint64_t add_text(uint64_t hash, struct sl_bytes b)
{
    return sl_fnv_add_bytes(sl_fnv_add(hash, b.n), b.at, b.n);
}

/* Returns a digest of the options that all attempts with the same REQUEST id must have: all but WAIT and
 * NOTIFY. The digest is in the journal, and other nodes compare it. */
static uint64_t digest_of(const struct acquire_options *w)
{
    const struct sl_want *want = w->want;
    const uint64_t numbers[] = {
        want->shared,
        want->per,
        want->buckets,
        want->units,
        (uint64_t)want->lease_ms,
        (uint64_t)want->priority,
        (w->seen & OPTION_STEAL) != 0,
        w->steal_auto,
        (uint64_t)w->steal_millionths,
    };
    uint64_t hash = SL_FNV_START;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hash = sl_fnv_add(hash, numbers[i]);
    return add_text(add_text(hash, want->value), want->note) & SL_FENCE_MAX;
}

/* Whether the connection may use NOTIFY for this request. If not, reply with an error. */
static bool may_notify(struct call *call, const struct request *r)
{
    int64_t max = call->s->settings->notify_max;
    if (r->id.n == 0) sl_say_usage(call, "NOTIFY needs REQUEST");
    else if (!call->out->resp3)
        sl_say(call, "ERR", "NOTIFY needs version 3 of the protocol; send HELLO 3");
    else if (call->c->notify_count >= (uint64_t)max)
        sl_say_format(call, "LIMIT",
                      "the connection has reached its limit of %" PRId64
                      " requests with NOTIFY (notify-max); CANCEL one, or use another "
                      "connection",
                      max);
    else return true;
    return false;
}

/* Whether the connection already waits for this acquisition. If so, reply with an error. */
static bool waits_already(struct call *call, const struct request *r)
{
    if (sl_request_find_notify(call->c, r->key, r->id) == NULL) return false;
    sl_say(call, "ERR",
           "this connection already waits for this key with this REQUEST id; wait "
           "for the outcome, or send CANCEL");
    return true;
}

void sl_do_acquire(struct call *call)
{
    struct request r;
    struct acquire_options w = {.want = &r.want, .steal_millionths = WHOLE};
    sl_request_init(&r, call, SL_VERB_ACQUIRE);
    r.key = call->at[1];
    r.want = (struct sl_want){.key = r.key, .per = 1, .buckets = 1, .units = 1};
    if (!good_key(call) || !read_options(call, &w)) return;
    set_force(call->s, &w);
    r.id = r.want.request;
    if (r.id.n > 0) r.want.digest = digest_of(&w);
    if (r.want.notify && call->queued == NULL && !may_notify(call, &r)) return;
    /* The messages of a keeper about a grant name its id, and not the attempt. */
    if (r.id.n > 0 && waits_already(call, &r)) return;
    r.notify = r.want.notify;
    r.waits = r.want.wait_ms > 0;
    sl_request_submit(&r);
}

/* --- RELEASE, EXTEND, CHECK, READ, AWAIT ---------------------------------- */

/* Initialize a request about a key, without options. */
static void about_key(struct request *r, struct call *call, enum sl_verb verb)
{
    sl_request_init(r, call, verb);
    r->key = call->at[1];
    r->fence = 0;
    r->ms = 0;
    r->value = (struct sl_bytes){NULL, 0};
    r->yes = false;
}

void sl_do_release(struct call *call)
{
    struct request r;
    about_key(&r, call, SL_VERB_RELEASE);
    if (!good_key(call)) return;
    if (call->n > 2 && !fence_at(call, 2, &r.fence)) return;
    sl_request_submit(&r);
}

void sl_do_cancel(struct call *call)
{
    struct request r;
    about_key(&r, call, SL_VERB_CANCEL);
    if (!good_key(call) || !good_id(call, 2)) return;
    r.id = call->at[2];
    sl_request_submit(&r);
}

void sl_do_extend(struct call *call)
{
    struct request r;
    about_key(&r, call, SL_VERB_EXTEND);
    if (!good_key(call) || !fence_at(call, 2, &r.fence) ||
        !lease_at(call, 3, "the lease", &r.ms))
        return;
    if (call->n > 4) {
        if (!sl_word_is(call->at[4], "VALUE")) {
            sl_say_unknown(call, "option", call->at[4], SL_NAMES("VALUE"));
            return;
        }
        if (call->n != 6) {
            reply_missing(call, "VALUE");
            return;
        }
        if (!good_value(call, "VALUE", call->at[5]) || sl_memory_rejects(call)) return;
        r.value = call->at[5];
    }
    sl_request_submit(&r);
}

void sl_do_check(struct call *call)
{
    struct request r;
    about_key(&r, call, SL_VERB_CHECK);
    if (good_key(call) && fence_at(call, 2, &r.fence)) sl_request_submit(&r);
}

void sl_do_read(struct call *call)
{
    struct request r;
    about_key(&r, call, SL_VERB_READ);
    if (!good_key(call)) return;
    r.yes = call->n > 2; /* A single server counts as a majority of one node. */
    if (r.yes && !sl_word_is(call->at[2], "MAJORITY"))
        sl_say_unknown(call, "option", call->at[2], SL_NAMES("MAJORITY"));
    else sl_request_submit(&r);
}

void sl_do_await(struct call *call)
{
    struct request r;
    about_key(&r, call, SL_VERB_AWAIT);
    r.yes = sl_word_is(call->at[2], "FREE");
    if (!good_key(call)) return;
    if (!r.yes && !sl_word_is(call->at[2], "HELD")) {
        sl_say_unknown(call, "state", call->at[2], SL_NAMES("HELD", "FREE"));
        return;
    }
    if (!sl_duration_at(call, 3, "the timeout", &r.ms)) return;
    r.waits = r.ms > 0;
    sl_request_submit(&r);
}

/* --- BREAK, DRAIN --------------------------------------------------------- */

void sl_do_break(struct call *call)
{
    struct request r;
    about_key(&r, call, SL_VERB_BREAK);
    if (!good_key(call) || !fence_at(call, 2, &r.fence)) return;
    r.yes = call->n > 3;
    if (r.yes && !sl_word_is(call->at[3], "NOW"))
        sl_say_unknown(call, "option", call->at[3], SL_NAMES("NOW"));
    else sl_request_submit(&r);
}

void sl_do_drain(struct call *call)
{
    const struct sl_settings *set = call->s->settings;
    struct request r;
    sl_request_init(&r, call, SL_VERB_DRAIN);
    r.yes = call->n == 3 && sl_word_is(call->at[2], "ON");
    if (call->n > 1) {
        if (call->n != 3) {
            sl_say_usage(call, "DRAIN needs ON or OFF after the pattern");
            return;
        }
        if (!r.yes && !sl_word_is(call->at[2], "OFF")) {
            sl_say_unknown(call, "option", call->at[2], SL_NAMES("ON", "OFF"));
            return;
        }
        if (call->at[1].n > (size_t)set->pattern_bytes_max) {
            reject_pattern(call, call->at[1]);
            return;
        }
        if (!good_key(call)) return;
        r.key = call->at[1];
    }
    sl_request_submit(&r);
}

/* --- EXPLAIN, LOCKS ------------------------------------------------------- */

void sl_do_explain(struct call *call)
{
    struct request r;
    sl_request_init(&r, call, SL_VERB_EXPLAIN);
    if (call->n > 2) {
        if (sl_tx_parse_explain(call, &r)) sl_request_submit(&r);
        return;
    }
    r.key = call->at[1];
    if (good_key(call)) sl_request_submit(&r);
}

#define COUNT_DEFAULT 10

static bool reject_cursor(struct call *call, struct sl_bytes cursor)
{
    sl_say_format(call, "ERR",
                  "CURSOR must be 0 or the cursor of the last reply (got \"%.*s%s\")",
                  SL_SHOWN(cursor));
    return false;
}

/* Parse the options of LOCKS, starting at argument `first`. */
static bool read_page(struct call *call, size_t first, struct sl_page *p)
{
    int64_t n;
    for (size_t i = first; i < call->n; i += 2) {
        struct sl_bytes name = call->at[i];
        bool has = i + 1 < call->n;
        if (sl_word_is(name, "WAITED")) {
            p->waited = true;
            i--; /* WAITED has no argument. */
        } else if (sl_word_is(name, "CLIENT")) {
            if (!number_at(call, i + 1, "CLIENT", 1, INT64_MAX, &n)) return false;
            p->client = (uint64_t)n;
        } else if (sl_word_is(name, "MATCH")) {
            if (!has) return reply_missing(call, "MATCH");
            p->match = call->at[i + 1];
        } else if (sl_word_is(name, "CURSOR")) {
            if (!has) return reply_missing(call, "CURSOR");
            if (!sl_parse_u64(call->at[i + 1], UINT64_MAX, &p->cursor))
                return reject_cursor(call, call->at[i + 1]);
        } else if (sl_word_is(name, "COUNT")) {
            if (!number_at(call, i + 1, "COUNT", 1, SL_COUNT_MAX, &n)) return false;
            p->count = n;
        } else {
            sl_say_unknown(call, "option", name,
                           SL_NAMES("WAITED", "CLIENT", "MATCH", "CURSOR", "COUNT",
                                    "TX", "MAJORITY"));
            return false;
        }
    }
    if (p->match.n > (size_t)call->s->settings->pattern_bytes_max) {
        reject_pattern(call, p->match);
        return false;
    }
    if (p->match.at == NULL) return true;
    sl_server_spend(call->s, SL_GLOB_COMPILE_STEPS * p->match.n);
    p->glob = sl_glob_new(p->match);
    if (p->glob == NULL) sl_say_status(call, SLUICE_ENOMEM);
    return p->glob != NULL;
}

void sl_do_locks(struct call *call)
{
    bool tx = call->n > 1 && sl_word_is(call->at[1], "TX");
    bool majority = call->n > 1 && sl_word_is(call->at[1], "MAJORITY");
    struct request r;
    sl_request_init(&r, call, tx ? SL_VERB_TX_LOCKS : SL_VERB_LOCKS);
    r.page = (struct sl_page){.count = COUNT_DEFAULT, .majority = majority};
    if (!read_page(call, tx || majority ? 2 : 1, &r.page)) return;
    struct sl_glob *glob = r.page.glob;
    if (r.page.client != 0 && (tx || majority)) {
        sl_say_usage(call, "CLIENT cannot be combined with TX or MAJORITY");
        sl_glob_free(glob);
        return;
    }
    if (tx && r.page.waited) {
        sl_say(call, "ERR",
               "WAITED lists the locks of ACQUIRE; EXPLAIN TX table [key] shows the "
               "waiters "
               "of a transaction lock");
        sl_glob_free(glob);
        return;
    }
    sl_request_submit(&r);
    /* The request has been answered, or will run again from its arguments. */
    sl_glob_free(glob);
}
