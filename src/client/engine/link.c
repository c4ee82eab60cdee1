/* link.c - the connections of a client: when to open and close them, and what to send. */
#include <assert.h>
#include <stdlib.h>

#include "client/engine/internal.h"

#define OUT_BYTES_MIN 4096u
#define OUT_BYTES_MAX 65536u /* Write no further commands while this many bytes wait. */
#define MOVE_MS 500          /* The shortest time between two changes of the node. */

static unsigned number_of(const struct sl_engine *e, const struct sl_engine_link *l)
{
    return (unsigned)(l - e->links);
}

void sl_link_init(struct sl_engine_link *l)
{
    *l = (struct sl_engine_link){
        .state = SL_LINK_DOWN, .connect_ms = INT64_MIN, .moved_ms = -MOVE_MS};
    sl_timer_init(&l->timer, SL_TIMER_LINK);
    sl_list_init(&l->unsent);
}

static struct sl_call *take_sent(struct sl_engine_link *l)
{
    struct sl_call *c = l->sent[l->sent_from];
    l->sent_from = (l->sent_from + 1) & (l->sent_size - 1);
    l->sent_count--;
    return c;
}

void sl_link_free(struct sl_engine *e, struct sl_engine_link *l)
{
    while (l->sent_count > 0) {
        struct sl_call *c = take_sent(l);
        if (c->acquisition != NULL) c->acquisition->call = NULL;
        if (c->hold != NULL) c->hold->call = NULL;
        sl_call_free(e, c);
    }
    while (!sl_list_empty(&l->unsent)) {
        struct sl_call *c = sl_container_of(l->unsent.next, struct sl_call, node);
        sl_list_remove(&c->node);
        if (c->acquisition != NULL) c->acquisition->call = NULL;
        if (c->hold != NULL) c->hold->call = NULL;
        sl_call_free(e, c);
    }
    free(l->sent);
    free(l->out);
}

/* --- Opening and closing --------------------------------------------------------- */

static void set_state(struct sl_engine *e, struct sl_engine_link *l,
                      enum sl_link_state state, sl_ms timer_ms)
{
    l->state = state;
    sl_timer_set(e, &l->timer, timer_ms);
}

void sl_link_needed(struct sl_engine *e, unsigned link)
{
    struct sl_engine_link *l = &e->links[link];
    if (l->state != SL_LINK_DOWN) return;
    if (e->now_ms < l->connect_ms) {
        sl_timer_set(e, &l->timer, l->connect_ms);
        return;
    }
    l->connect = true;
    set_state(e, l, SL_LINK_CONNECTS, sl_ms_after(e->now_ms, e->options.connect_ms));
}

/* Ask again for everything that waits at the server. */
static void interrupt_queued(struct sl_engine *e, unsigned link)
{
    for (struct sl_list *n = e->acquisitions.next, *next; n != &e->acquisitions;
         n = next) {
        struct sl_client_acquisition *a = sl_container_of(
            n, struct sl_client_acquisition, node);
        next = n->next;
        if (a->link == link && a->state == SL_ACQUISITION_QUEUED)
            sl_acquisition_interrupted(e, a);
    }
}

static void lose_sessions(struct sl_engine *e)
{
    for (struct sl_list *n = e->holds.next, *next; n != &e->holds; n = next) {
        struct sl_hold *h = sl_container_of(n, struct sl_hold, node);
        next = n->next;
        if (h->lease_ms == 0) sl_hold_lose(e, h, SLUICE_EVENT_UNREACHABLE);
    }
}

static sl_ms pause_ms(struct sl_engine *e, const struct sl_engine_link *l)
{
    if (l->failures == 0) return 0;
    if (l->failures < e->options.addresses) /* Try each address once, quickly. */
        return sl_random_between(&e->random, 0, SL_ENGINE_BACKOFF_MS_MIN);
    return sl_engine_backoff(e, l->failures - e->options.addresses + 1);
}

/* The connection is lost. Send everything that waited for it again on the next one. */
static void lost(struct sl_engine *e, struct sl_engine_link *l, bool failed)
{
    unsigned link = number_of(e, l);
    struct sl_list again;
    sl_list_init(&again);
    if (l->served) l->failures = 0;
    if (failed) l->failures++;
    l->served = false;
    l->at = (l->at + 1) % e->options.addresses;
    l->connect = false;
    l->connect_ms = sl_ms_after(e->now_ms, pause_ms(e, l));
    l->out_from = l->out_used = 0;
    set_state(e, l, SL_LINK_DOWN, SL_NEVER);
    if (link == SL_ENGINE_SESSIONS) lose_sessions(e);
    /* First the requests that were queued, then the calls that were sent, then the others. */
    while (!sl_list_empty(&l->unsent)) {
        struct sl_list *n = l->unsent.next;
        sl_list_remove(n);
        sl_list_append(&again, n);
    }
    interrupt_queued(e, link);
    while (l->sent_count > 0) sl_call_interrupted(e, take_sent(l));
    while (!sl_list_empty(&again)) {
        struct sl_list *n = again.next;
        sl_list_remove(n);
        sl_list_append(&l->unsent, n);
    }
    if (!sl_list_empty(&l->unsent)) sl_link_needed(e, link);
}

void sl_link_drop(struct sl_engine *e, unsigned link, int status, const char *why)
{
    struct sl_engine_link *l = &e->links[link];
    if (l->state == SL_LINK_DOWN) return;
    e->link_status = status;
    sl_engine_note(e, why);
    l->close = true;
    lost(e, l, true);
}

void sl_link_leave(struct sl_engine *e, unsigned link, const char *why)
{
    struct sl_engine_link *l = &e->links[link];
    if (e->options.addresses == 1 || l->holds > 0 || l->state != SL_LINK_UP) return;
    if (e->now_ms - l->moved_ms < MOVE_MS) return;
    l->moved_ms = e->now_ms;
    sl_engine_note(e, why);
    l->close = true;
    lost(e, l, false);
}

/* The requests of the program fail if the password is wrong or missing, or if no address is that of
 * a Sluice server. */
static void deny(struct sl_engine *e, unsigned link, int status)
{
    struct sl_engine_link *l = &e->links[link];
    bool denied = status == SLUICE_EDENIED;
    bool foreign = status == SLUICE_EPROTOCOL && l->failures >= e->options.addresses;
    if (!denied && !foreign) return;
    for (struct sl_list *n = l->unsent.next, *next; n != &l->unsent; n = next) {
        struct sl_call *c = sl_container_of(n, struct sl_call, node);
        next = n->next;
        if (c->acquisition != NULL && c->acquisition->ticket != NULL) {
            sl_acquisition_abandon(e, c->acquisition, status);
            next = l->unsent.next; /* The list has changed. */
        } else if (c->ticket != NULL) {
            sl_call_finish(e, c, status);
            sl_call_orphan(e, c);
            next = l->unsent.next;
        }
    }
}

/* The first command without a reply has an invalid or oversized one. It would have it again, so do not
 * repeat the command. */
static void reject_reply(struct sl_engine *e, struct sl_engine_link *l)
{
    if (l->sent_count == 0) return;
    struct sl_call *c = l->sent[l->sent_from];
    struct sl_client_acquisition *a = c->acquisition;
    if (a != NULL && a->ticket != NULL) sl_acquisition_abandon(e, a, SLUICE_EPROTOCOL);
    else sl_call_finish(e, c, SLUICE_EPROTOCOL);
}

void sl_engine_disconnected(struct sl_engine *e, sl_ms now, unsigned link, int status,
                            const char *message)
{
    struct sl_engine_link *l = &e->links[link];
    e->now_ms = now;
    if (l->state == SL_LINK_DOWN) return;
    bool greets = l->state == SL_LINK_GREETS;
    e->link_status = status;
    sl_engine_note(e, message);
    if (status == SLUICE_EPROTOCOL) reject_reply(e, l);
    lost(e, l, true);
    if (greets) deny(e, link, status);
}

int sl_link_status(const struct sl_engine *e, unsigned link)
{
    return e->links[link].state != SL_LINK_UP ? e->link_status : SLUICE_EUNREACHABLE;
}

bool sl_engine_wants_close(struct sl_engine *e, unsigned link)
{
    bool close = e->links[link].close;
    e->links[link].close = false;
    return close;
}

bool sl_engine_wants_connect(struct sl_engine *e, unsigned link, uint32_t *at)
{
    bool connect = e->links[link].connect;
    e->links[link].connect = false;
    *at = e->links[link].at;
    return connect;
}

/* --- Sending --------------------------------------------------------------------------- */

int sl_link_write(struct sl_engine_link *l, const char *bytes, size_t n)
{
    if (l->out_from == l->out_used) l->out_from = l->out_used = 0;
    if (l->out_size - l->out_used < n) {
        size_t size = l->out_size > 0 ? l->out_size : OUT_BYTES_MIN;
        while (size - l->out_used < n) size *= 2;
        char *out = realloc(l->out, size);
        if (out == NULL) return SLUICE_ENOMEM;
        l->out = out;
        l->out_size = size;
    }
    memcpy(l->out + l->out_used, bytes, n);
    l->out_used += n;
    return SLUICE_OK;
}

static int reserve_sent(struct sl_engine_link *l)
{
    if (l->sent_count < l->sent_size) return SLUICE_OK;
    size_t size = l->sent_size > 0 ? 2 * l->sent_size : 16;
    struct sl_call **sent = calloc(size, sizeof *sent);
    if (sent == NULL) return SLUICE_ENOMEM;
    for (size_t i = 0; i < l->sent_count; i++)
        sent[i] = l->sent[(l->sent_from + i) & (l->sent_size - 1)];
    free(l->sent);
    l->sent = sent;
    l->sent_size = size;
    l->sent_from = 0;
    return SLUICE_OK;
}

/* Write a call that is in no queue. Without memory, it stays unsent. */
static bool write_call(struct sl_engine *e, struct sl_engine_link *l, struct sl_call *c)
{
    size_t before = l->out_used;
    c->sent_ms = e->now_ms;
    if (reserve_sent(l) != SLUICE_OK) return false;
    if (sl_call_write(e, c) != SLUICE_OK) {
        l->out_used = before;
        return false;
    }
    l->sent[(l->sent_from + l->sent_count++) & (l->sent_size - 1)] = c;
    sl_call_sent(e, c);
    return true;
}

static bool send_own(struct sl_engine *e, unsigned link, enum sl_call_type type)
{
    struct sl_engine_link *l = &e->links[link];
    struct sl_call *c = sl_call_new(e, type, link, (struct sl_bytes){"", 0}, 0);
    if (c == NULL) return false;
    if (write_call(e, l, c)) return true;
    sl_call_free(e, c);
    return false;
}

void sl_engine_connected(struct sl_engine *e, sl_ms now, unsigned link)
{
    struct sl_engine_link *l = &e->links[link];
    e->now_ms = now;
    assert(l->state == SL_LINK_CONNECTS);
    set_state(e, l, SL_LINK_GREETS, sl_ms_after(now, e->options.connect_ms));
    l->heard_ms = now;
    if (!send_own(e, link, SL_CALL_HELLO))
        sl_link_drop(e, link, SLUICE_ENOMEM, "out of memory");
}

struct sl_bytes sl_engine_output(struct sl_engine *e, sl_ms now, unsigned link)
{
    struct sl_engine_link *l = &e->links[link];
    e->now_ms = now;
    /* Commands need not wait for the reply to HELLO. If HELLO fails, they are sent again. */
    while (l->state >= SL_LINK_GREETS && !sl_list_empty(&l->unsent) &&
           l->out_used - l->out_from < OUT_BYTES_MAX) {
        struct sl_call *c = sl_container_of(l->unsent.next, struct sl_call, node);
        sl_list_remove(&c->node);
        if (write_call(e, l, c)) continue;
        sl_list_append(l->unsent.next, &c->node); /* At the front. */
        sl_engine_note(e, "out of memory");
        break;
    }
    return (struct sl_bytes){l->out + l->out_from, l->out_used - l->out_from};
}

void sl_engine_sent(struct sl_engine *e, unsigned link, size_t n)
{
    struct sl_engine_link *l = &e->links[link];
    assert(n <= l->out_used - l->out_from);
    l->out_from += n;
}

/* --- Receiving --------------------------------------------------------------------------- */

static bool is_text(const struct sluice_reply *r, const char *text)
{
    return (r->type == SLUICE_REPLY_TEXT || r->type == SLUICE_REPLY_STATUS) &&
           strcmp(r->text, text) == 0;
}

static struct sl_client_acquisition *acquisition_of(const struct sl_engine *e,
                                                    const struct sluice_reply *id)
{
    return sl_index_find(&e->by_id, (struct sl_bytes){id->text, id->text_bytes},
                         sl_hash(e->by_id.key, id->text, id->text_bytes));
}

static void on_event(struct sl_engine *e, struct sl_hold *h,
                     const struct sluice_reply *what)
{
    if (is_text(what, "asked")) sl_hold_ask(e, h, true);
    else if (is_text(what, "withdrawn")) sl_hold_ask(e, h, false);
    else if (is_text(what, "stolen")) sl_hold_lose(e, h, SLUICE_EVENT_STOLEN);
    else if (is_text(what, "broken")) sl_hold_lose(e, h, SLUICE_EVENT_BROKEN);
    else if (is_text(what, "expired")) sl_hold_lose(e, h, SLUICE_EVENT_EXPIRED);
}

/* A push message: ["lock", key, "outcome", id, reply], or ["lock", key, event, fence]. */
static void on_push(struct sl_engine *e, unsigned link, const struct sluice_reply *r)
{
    if (r->count < 4 || !is_text(&r->items[0], "lock")) return;
    const struct sluice_reply *key = &r->items[1], *what = &r->items[2];
    if (is_text(what, "outcome") && r->count >= 5) {
        struct sl_client_acquisition *a = acquisition_of(e, &r->items[3]);
        if (a != NULL && a->link == link && a->state == SL_ACQUISITION_QUEUED)
            sl_acquisition_outcome(e, a, &r->items[4]);
        return;
    }
    struct sl_hold *h = sl_hold_find(e, (struct sl_bytes){key->text, key->text_bytes},
                                     (sl_fence)r->items[3].number);
    if (h != NULL) on_event(e, h, what);
}

static void greeted(struct sl_engine *e, unsigned link, const struct sluice_reply *r)
{
    struct sl_engine_link *l = &e->links[link];
    if (r->type == SLUICE_REPLY_MAP) {
        set_state(e, l, SL_LINK_UP, sl_ms_after(e->now_ms, SL_ENGINE_PING_MS));
        return;
    }
    int status = r->type == SLUICE_REPLY_ERROR ? sl_call_status(r) : SLUICE_EPROTOCOL;
    const char *why =
        r->type == SLUICE_REPLY_ERROR
            ? r->text
            : "the server does not support version 3 of the Redis protocol";
    if (status == SLUICE_EINVAL)
        status = SLUICE_EPROTOCOL; /* HELLO is unknown there. */
    sl_link_drop(e, link, status, why);
    deny(e, link, status);
}

void sl_engine_received(struct sl_engine *e, sl_ms now, unsigned link,
                        struct sluice_reply *reply)
{
    struct sl_engine_link *l = &e->links[link];
    e->now_ms = now;
    l->heard_ms = now;
    if (reply->type == SLUICE_REPLY_PUSH) on_push(e, link, reply);
    else if (l->sent_count == 0)
        sl_link_drop(e, link, SLUICE_EPROTOCOL,
                     "the server sent a reply that belongs to no command");
    else {
        struct sl_call *c = take_sent(l);
        sl_timer_set(e, &c->timer, SL_NEVER);
        if (c->type == SL_CALL_HELLO) {
            sl_call_free(e, c);
            greeted(e, link, reply);
        } else {
            l->served = true;
            sl_call_answered(e, c, &reply);
        }
    }
    sluice_reply_free(reply);
}

/* --- Time ----------------------------------------------------------------------------------- */

/* Returns whether the client relies on this connection although it waits for no reply. */
static bool is_used(const struct sl_engine *e, unsigned link)
{
    if (e->links[link].holds > 0) return true;
    for (const struct sl_list *n = e->acquisitions.next; n != &e->acquisitions;
         n = n->next) {
        const struct sl_client_acquisition *a = sl_container_of(
            n, struct sl_client_acquisition, node);
        if (a->link == link && a->state == SL_ACQUISITION_QUEUED) return true;
    }
    return false;
}

void sl_link_due(struct sl_engine *e, struct sl_engine_link *l)
{
    unsigned link = number_of(e, l);
    switch (l->state) {
        case SL_LINK_DOWN:
            if (!sl_list_empty(&l->unsent)) sl_link_needed(e, link);
            break;
        case SL_LINK_CONNECTS:
            sl_link_drop(e, link, SLUICE_EUNREACHABLE,
                         "the server did not accept the connection within connect_ms");
            break;
        case SL_LINK_GREETS:
            sl_link_drop(e, link, SLUICE_EUNREACHABLE,
                         "the server did not reply to HELLO within connect_ms");
            break;
        case SL_LINK_UP:
            if (l->sent_count == 0 && e->now_ms - l->heard_ms >= SL_ENGINE_PING_MS &&
                is_used(e, link))
                (void)send_own(e, link, SL_CALL_PING); /* Without memory, later. */
            sl_timer_set(e, &l->timer, sl_ms_after(e->now_ms, SL_ENGINE_PING_MS));
            break;
    }
}

void sl_link_close_calls(struct sl_engine *e, struct sl_engine_link *l)
{
    for (size_t i = 0; i < l->sent_count; i++)
        sl_call_finish(e, l->sent[(l->sent_from + i) & (l->sent_size - 1)],
                       SLUICE_ECLOSED);
    for (struct sl_list *n = l->unsent.next; n != &l->unsent; n = n->next)
        sl_call_finish(e, sl_container_of(n, struct sl_call, node), SLUICE_ECLOSED);
}
