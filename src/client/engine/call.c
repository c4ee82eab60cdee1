/* call.c - commands to the server, and what their replies mean. */
#include <assert.h>
#include <stdlib.h>

#include "client/engine/internal.h"

/* --- Creating and freeing --------------------------------------------------------- */

struct sl_call *sl_call_new(struct sl_engine *e, enum sl_call_type type, unsigned link,
                            struct sl_bytes key, sl_fence fence)
{
    struct sl_call *c = calloc(1, sizeof *c + key.n + 1);
    if (c == NULL) return NULL;
    if (sl_engine_add_object(e) != SLUICE_OK) {
        free(c);
        return NULL;
    }
    c->type = type;
    c->link = (uint8_t)link;
    c->fence = fence;
    c->give_up_ms = SL_NEVER;
    c->key_bytes = key.n;
    memcpy(c->key, key.at, key.n);
    sl_timer_init(&c->timer, SL_TIMER_CALL);
    sl_list_init(&c->node);
    return c;
}

void sl_call_free(struct sl_engine *e, struct sl_call *c)
{
    sl_engine_remove_object(e, &c->timer);
    free(c);
}

sl_ms sl_call_reply_ms(const struct sl_call *c)
{
    if (c->type != SL_CALL_EXTEND || c->hold == NULL) return SL_ENGINE_REPLY_MS;
    sl_ms ms = c->lease_ms / 6;
    if (ms < SL_ENGINE_EXTEND_MS_MIN) return SL_ENGINE_EXTEND_MS_MIN;
    return ms < SL_ENGINE_EXTEND_MS_MAX ? ms : SL_ENGINE_EXTEND_MS_MAX;
}

static void set_timer(struct sl_engine *e, struct sl_call *c, sl_ms from_ms)
{
    sl_ms until_ms = sl_ms_after(from_ms, sl_call_reply_ms(c));
    sl_timer_set(e, &c->timer, c->give_up_ms < until_ms ? c->give_up_ms : until_ms);
}

void sl_call_submit(struct sl_engine *e, struct sl_call *c)
{
    struct sl_list *queue = &e->links[c->link].unsent;
    c->state = SL_CALL_UNSENT;
    /* Extensions are urgent, and must not wait behind thousands of requests. */
    sl_list_append(c->hold != NULL ? queue->next : queue, &c->node);
    set_timer(e, c, e->now_ms);
    sl_link_needed(e, c->link);
}

void sl_call_sent(struct sl_engine *e, struct sl_call *c)
{
    c->state = SL_CALL_SENT;
    set_timer(e, c, c->sent_ms);
}

void sl_call_finish(struct sl_engine *e, struct sl_call *c, int status)
{
    sl_ticket_finish(e, c->ticket, status);
    c->ticket = NULL;
}

void sl_call_orphan(struct sl_engine *e, struct sl_call *c)
{
    assert(c->ticket == NULL);
    c->acquisition = NULL;
    c->hold = NULL;
    if (c->state == SL_CALL_SENT) return;
    sl_list_remove(&c->node);
    sl_call_free(e, c);
}

/* Returns whether the call still has a purpose. When a client closes, its RELEASE has no
 * ticket, but a time at which it gives up. */
static bool is_needed(const struct sl_call *c)
{
    return c->ticket != NULL || c->acquisition != NULL || c->hold != NULL ||
           (c->type == SL_CALL_RELEASE && c->give_up_ms != SL_NEVER);
}

void sl_call_interrupted(struct sl_engine *e, struct sl_call *c)
{
    if (!is_needed(c)) {
        sl_call_free(e, c);
        return;
    }
    if (c->hold != NULL) c->hold->unreachable = true;
    if (c->type == SL_CALL_ACQUIRE) sl_acquisition_interrupted(e, c->acquisition);
    c->repeated = true;
    sl_call_submit(e, c);
}

/* --- Writing ------------------------------------------------------------------------- */

/* A command is written argument by argument. */
struct sl_command {
    struct sl_engine_link *link;
    int status;
};

static size_t digits_of(uint64_t n, char out[20])
{
    char reversed[20];
    size_t count = 0;
    do reversed[count++] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    for (size_t i = 0; i < count; i++) out[i] = reversed[count - 1 - i];
    return count;
}

static void write_bytes(struct sl_command *k, const char *bytes, size_t n)
{
    if (k->status == SLUICE_OK) k->status = sl_link_write(k->link, bytes, n);
}

static void write_head(struct sl_command *k, char type, size_t n)
{
    char text[24] = {type};
    size_t length = 1 + digits_of(n, text + 1);
    text[length++] = '\r';
    text[length++] = '\n';
    write_bytes(k, text, length);
}

static void write_argument(struct sl_command *k, const char *bytes, size_t n)
{
    write_head(k, '$', n);
    write_bytes(k, bytes, n);
    write_bytes(k, "\r\n", 2);
}

static void write_text(struct sl_command *k, const char *text)
{
    write_argument(k, text, strlen(text));
}

static void write_number(struct sl_command *k, int64_t n)
{
    char text[21] = {'-'};
    size_t sign = n < 0;
    uint64_t magnitude = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    size_t length = digits_of(magnitude, text + sign);
    write_argument(k, text, sign + length);
}

static void write_option(struct sl_command *k, const char *name, int64_t n)
{
    write_text(k, name);
    write_number(k, n);
}

/* A fraction from 0 to 1, with six digits. */
static void write_fraction(struct sl_command *k, double f)
{
    char text[9] = "0.";
    uint64_t millionths = (uint64_t)(f * 1e6 + 0.5);
    if (millionths >= 1000000) {
        write_text(k, "1");
        return;
    }
    for (size_t i = 7; i >= 2; i--, millionths /= 10)
        text[i] = (char)('0' + millionths % 10);
    write_argument(k, text, 8);
}

static void write_hello(struct sl_command *k, const struct sl_engine_options *o)
{
    write_head(k, '*',
               2u + (o->password != NULL ? 3u : 0u) + (o->name != NULL ? 2u : 0u));
    write_text(k, "HELLO");
    write_text(k, "3");
    if (o->password != NULL) {
        write_text(k, "AUTH");
        write_text(k, "default");
        write_text(k, o->password);
    }
    if (o->name != NULL) {
        write_text(k, "SETNAME");
        write_text(k, o->name);
    }
}

static void write_steal(struct sl_command *k, double early)
{
    write_text(k, "STEAL");
    if (early == SLUICE_STEAL_AUTO) write_text(k, "AUTO");
    else if (early > 0) write_fraction(k, 1 - early);
}

static void write_capacity(struct sl_command *k, const struct sluice_request *r)
{
    if (r->per != 0) write_option(k, "PER", r->per);
    if (r->buckets != 0) write_option(k, "BUCKETS", r->buckets);
    if (r->units != 0) write_option(k, "UNITS", r->units);
}

/* Returns how long the request can still wait; 0: it must not wait. */
static int64_t wait_left(const struct sl_client_acquisition *a)
{
    if (a->request.wait_ms == 0 || a->wait_end_ms <= a->sent_ms) return 0;
    if (a->wait_end_ms == SL_NEVER) return SL_ENGINE_WAIT_MS_MAX;
    return a->wait_end_ms - a->sent_ms;
}

static size_t count_acquire(const struct sl_client_acquisition *a)
{
    const struct sluice_request *r = &a->request;
    size_t options = (size_t)(r->per != 0) + (r->buckets != 0) + (r->units != 0) +
                     (r->lease_ms != 0) + (r->priority != 0) + (wait_left(a) != 0) +
                     (r->value != NULL) + (r->note != NULL) + 1; /* REQUEST id. */
    size_t words = 2 * options + (r->shared != 0) + 1;           /* NOTIFY. */
    if (r->steal != 0) words += r->steal_early != 0 ? 2 : 1;
    return 2 + words;
}

static void write_acquire(struct sl_command *k, const struct sl_client_acquisition *a)
{
    const struct sluice_request *r = &a->request;
    write_head(k, '*', count_acquire(a));
    write_text(k, "ACQUIRE");
    write_argument(k, a->key.at, a->key.n);
    if (r->shared != 0) write_text(k, "SHARED");
    write_capacity(k, r);
    if (wait_left(a) != 0) write_option(k, "WAIT", wait_left(a));
    if (r->lease_ms != 0) write_option(k, "LEASE", r->lease_ms);
    if (r->priority != 0) write_option(k, "PRIORITY", r->priority);
    if (r->steal != 0) write_steal(k, r->steal_early);
    if (r->value != NULL) {
        write_text(k, "VALUE");
        write_text(k, r->value);
    }
    if (r->note != NULL) {
        write_text(k, "NOTE");
        write_text(k, r->note);
    }
    write_text(k, "REQUEST");
    write_argument(k, a->id, SL_ENGINE_ID_BYTES);
    write_text(k, "NOTIFY");
}

static void write_key_command(struct sl_command *k, const char *name,
                              const struct sl_call *c, size_t more)
{
    write_head(k, '*', 2 + more);
    write_text(k, name);
    write_argument(k, c->key, c->key_bytes);
}

int sl_call_write(struct sl_engine *e, struct sl_call *c)
{
    struct sl_command k = {.link = &e->links[c->link], .status = SLUICE_OK};
    switch (c->type) {
        case SL_CALL_HELLO: write_hello(&k, &e->options); break;
        case SL_CALL_PING:
            write_head(&k, '*', 1);
            write_text(&k, "PING");
            break;
        case SL_CALL_ACQUIRE:
            c->acquisition->sent_ms = c->sent_ms;
            write_acquire(&k, c->acquisition);
            break;
        case SL_CALL_CANCEL:
            write_key_command(&k, "CANCEL", c, 1);
            write_argument(&k, c->acquisition->id, SL_ENGINE_ID_BYTES);
            break;
        case SL_CALL_RELEASE:
            write_key_command(&k, "RELEASE", c, 1);
            write_number(&k, (int64_t)c->fence);
            break;
        case SL_CALL_EXTEND:
            write_key_command(&k, "EXTEND", c, 2);
            write_number(&k, (int64_t)c->fence);
            write_number(&k, c->lease_ms);
            break;
        case SL_CALL_CHECK:
            write_key_command(&k, "CHECK", c, 1);
            write_number(&k, (int64_t)c->fence);
            break;
        case SL_CALL_BREAK:
            write_key_command(&k, "BREAK", c, c->at_once ? 2 : 1);
            write_number(&k, (int64_t)c->fence);
            if (c->at_once) write_text(&k, "NOW");
            break;
        case SL_CALL_INSPECT: write_key_command(&k, "EXPLAIN", c, 0); break;
    }
    return k.status;
}

/* --- What a reply means ------------------------------------------------------------------ */

static bool begins(const struct sluice_reply *r, const char *word)
{
    size_t n = strlen(word);
    return strncmp(r->text, word, n) == 0 && (r->text[n] == ' ' || r->text[n] == '\0');
}

int sl_call_status(const struct sluice_reply *r)
{
    static const struct {
        const char *word;
        int status;
    } others[] = {
        {"NOAUTH", SLUICE_EDENIED},          {"WRONGPASS", SLUICE_EDENIED},
        {"NOPERM", SLUICE_EDENIED},          {"SHUTDOWN", SLUICE_EUNREACHABLE},
        {"NOTREADY", SLUICE_EUNREACHABLE},   {"LIMIT", SLUICE_EREQUESTS},
        {"MAXCLIENTS", SLUICE_EUNREACHABLE}, {"ERR", SLUICE_EINVAL}};
    if (r->type != SLUICE_REPLY_ERROR) return SLUICE_EPROTOCOL;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (begins(r, others[i].word)) return others[i].status;
#define SL_STATUS(name, number, word, text) \
    if (begins(r, word)) return number;
    SLUICE_STATUS_MAP(SL_STATUS)
#undef SL_STATUS
    return SLUICE_EPROTOCOL;
}

bool sl_call_is_transient(int status)
{
    return status == SLUICE_ERECOVERING || status == SLUICE_ENOKEEPER ||
           status == SLUICE_ENOQUORUM || status == SLUICE_EUNREACHABLE ||
           status == SLUICE_EIO || status == SLUICE_EFENCES;
}

/* Another node may be able to do what this one cannot. */
static bool should_leave(int status)
{
    return status == SLUICE_ENOKEEPER || status == SLUICE_ENOQUORUM ||
           status == SLUICE_EUNREACHABLE;
}

/* --- Replies ---------------------------------------------------------------------------------- */

/* Send the call again after a pause. */
static void pause_call(struct sl_engine *e, struct sl_call *c)
{
    c->failures++;
    c->repeated = true;
    c->state = SL_CALL_PAUSES;
    sl_list_append(&e->paused, &c->node);
    sl_ms at = sl_ms_after(e->now_ms, sl_engine_backoff(e, c->failures));
    sl_timer_set(e, &c->timer, at < c->give_up_ms ? at : c->give_up_ms);
}

static int release_result(const struct sl_call *c, int64_t n)
{
    if (n == 1) return SLUICE_OK;
    /* If the reply to an earlier attempt was lost, that attempt has released the grant. */
    return c->repeated && c->was_held ? SLUICE_OK : SLUICE_ELOST;
}

static void finish_call(struct sl_engine *e, struct sl_call *c, struct sluice_reply **r)
{
    int64_t n = (*r)->number;
    struct sl_ticket *t = c->ticket;
    int status = SLUICE_OK;
    if ((*r)->type == SLUICE_REPLY_ERROR) {
        status = sl_call_status(*r);
        if (c->type == SL_CALL_CHECK && status == SLUICE_EASKED) status = SLUICE_OK;
        sl_engine_note(e, (*r)->text);
    } else if (c->type == SL_CALL_INSPECT) {
        if (t != NULL) {
            t->reply = *r;
            *r = NULL;
        }
    } else if ((*r)->type != SLUICE_REPLY_NUMBER) status = SLUICE_EPROTOCOL;
    else if (c->type == SL_CALL_RELEASE) status = release_result(c, n);
    else if (c->type == SL_CALL_CHECK) status = n == 1 ? SLUICE_OK : SLUICE_ELOST;
    else if (c->type == SL_CALL_BREAK) status = n > 0 ? (int)n : SLUICE_ELOST;
    else if (c->type == SL_CALL_EXTEND && t != NULL) t->number = n;
    sl_call_finish(e, c, status);
}

static void extended(struct sl_engine *e, struct sl_call *c,
                     const struct sluice_reply *r)
{
    struct sl_hold *h = c->hold != NULL
                            ? c->hold
                            : sl_hold_find(e, (struct sl_bytes){c->key, c->key_bytes},
                                           c->fence);
    int status = r->type == SLUICE_REPLY_NUMBER ? SLUICE_OK : sl_call_status(r);
    c->hold = NULL;
    if (h == NULL) return;
    if (h->call == c) h->call = NULL;
    sl_hold_answered(e, h, c->sent_ms, status, r->number);
}

void sl_call_answered(struct sl_engine *e, struct sl_call *c,
                      struct sluice_reply **reply)
{
    struct sl_client_acquisition *a = c->acquisition;
    int status = (*reply)->type == SLUICE_REPLY_ERROR ? sl_call_status(*reply)
                                                      : SLUICE_OK;
    unsigned link = c->link;
    if (a != NULL) {
        assert(a->call == c);
        a->call = NULL;
        c->acquisition = NULL;
        if (c->type == SL_CALL_ACQUIRE) sl_acquisition_outcome(e, a, *reply);
        else sl_acquisition_cancelled(e, a, *reply);
        sl_call_free(e, c);
    } else if (sl_call_is_transient(status) && is_needed(c) && c->hold == NULL) {
        sl_engine_note(e, (*reply)->text);
        c->last_status = status;
        pause_call(e, c);
    } else {
        if (c->ticket != NULL) finish_call(e, c, reply);
        if (c->type == SL_CALL_EXTEND && *reply != NULL) extended(e, c, *reply);
        sl_call_free(e, c);
    }
    if (should_leave(status)) sl_link_leave(e, link, sluice_status_text(status));
}

/* --- Time --------------------------------------------------------------------------------------- */

/* The program no longer waits for the call. */
static void give_up(struct sl_engine *e, struct sl_call *c)
{
    sl_call_finish(e, c, c->failures > 0 ? c->last_status : sl_link_status(e, c->link));
    c->give_up_ms = SL_NEVER;
    if (c->state == SL_CALL_SENT) {
        set_timer(e, c, c->sent_ms);
        return;
    }
    assert(c->acquisition == NULL);
    if (c->hold != NULL) c->hold->call = NULL;
    sl_list_remove(&c->node);
    sl_call_free(e, c);
}

void sl_call_due(struct sl_engine *e, struct sl_call *c)
{
    if (e->now_ms >= c->give_up_ms) give_up(e, c);
    else if (c->state == SL_CALL_PAUSES) {
        sl_list_remove(&c->node);
        sl_call_submit(e, c);
    } else if (e->links[c->link].state < SL_LINK_GREETS)
        set_timer(e, c, e->now_ms); /* The connection has a time limit of its own. */
    else
        sl_link_drop(e, c->link, SLUICE_EUNREACHABLE,
                     "the server did not reply within the time limit");
}
