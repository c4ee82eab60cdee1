/* acquisition.c - requests for locks: from the call of the program to the grant, or to the
 * certainty that the server has forgotten the request. */
#include <assert.h>
#include <stdlib.h>

#include "client/engine/internal.h"

/* The engine tries to cancel an abandoned request for its lease plus this time. Then no server
 * can have a grant of it. */
#define CANCEL_MS 60000

/* --- The index by id ---------------------------------------------------------------- */

static uint64_t hash_of(const void *item, const struct sl_index *x)
{
    return sl_hash(x->key, ((const struct sl_client_acquisition *)item)->id,
                   SL_ENGINE_ID_BYTES);
}

static bool is_same(const void *item, struct sl_bytes id)
{
    return sl_bytes_equal(
        id, (struct sl_bytes){((const struct sl_client_acquisition *)item)->id,
                              SL_ENGINE_ID_BYTES});
}

const struct sl_index_kind sl_acquisition_index_kind = {hash_of, is_same};

/* An id that no other acquisition has: 32 random digits and a counter. */
static void draw_id(struct sl_engine *e, struct sl_client_acquisition *a)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t n = ++e->ids;
    memcpy(a->id, e->options.id_prefix, 32);
    for (size_t i = SL_ENGINE_ID_BYTES; i-- > 32; n >>= 4) a->id[i] = digits[n & 15];
    a->id[SL_ENGINE_ID_BYTES] = '\0';
    sl_index_put(&e->by_id, a, hash_of(a, &e->by_id));
}

/* Use another id. Returns SLUICE_OK, or SLUICE_ENOMEM without a change. */
static int redraw_id(struct sl_engine *e, struct sl_client_acquisition *a)
{
    if (sl_index_reserve(&e->by_id) != SLUICE_OK) return SLUICE_ENOMEM;
    sl_index_remove(&e->by_id, a, hash_of(a, &e->by_id));
    draw_id(e, a);
    a->uncertain = false;
    return SLUICE_OK;
}

/* --- Creating and freeing --------------------------------------------------------------- */

static char *copy_text(char **to, const char *text)
{
    if (text == NULL) return NULL;
    size_t n = strlen(text) + 1;
    char *copy = memcpy(*to, text, n);
    *to += n;
    return copy;
}

static size_t text_size(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

static struct sl_client_acquisition *new_acquisition(struct sl_engine *e,
                                                     const char *key,
                                                     const struct sluice_request *r)
{
    struct sl_client_acquisition *a = calloc(
        1, sizeof *a + text_size(key) + text_size(r->value) + text_size(r->note));
    if (a == NULL) return NULL;
    if (sl_engine_add_object(e) != SLUICE_OK) {
        free(a);
        return NULL;
    }
    char *at = a->text;
    a->request = *r;
    a->key = (struct sl_bytes){copy_text(&at, key), strlen(key)};
    a->request.value = copy_text(&at, r->value);
    a->request.note = copy_text(&at, r->note);
    sl_timer_init(&a->timer, SL_TIMER_ACQUISITION);
    return a;
}

static void delete_acquisition(struct sl_engine *e, struct sl_client_acquisition *a)
{
    sl_engine_remove_object(e, &a->timer);
    free(a);
}

void sl_acquisition_free(struct sl_engine *e, struct sl_client_acquisition *a)
{
    if (a->call != NULL) {
        a->call->acquisition = NULL;
        sl_call_orphan(e, a->call);
    }
    if (a->hold != NULL) sl_hold_free(e, a->hold);
    sl_index_remove(&e->by_id, a, hash_of(a, &e->by_id));
    sl_list_remove(&a->node);
    delete_acquisition(e, a);
}

/* --- Asking ------------------------------------------------------------------------------- */

/* Send a command of this acquisition. Without memory, try again later. */
static void send_command(struct sl_engine *e, struct sl_client_acquisition *a,
                         enum sl_call_type type)
{
    assert(a->call == NULL);
    a->call = sl_call_new(e, type, a->link, a->key, 0);
    if (a->call == NULL) {
        if (type == SL_CALL_ACQUIRE) a->state = SL_ACQUISITION_PAUSES;
        a->retry_ms = sl_ms_after(e->now_ms, SL_ENGINE_BACKOFF_MS_MAX);
        sl_timer_set(e, &a->timer, a->retry_ms);
        return;
    }
    a->call->acquisition = a;
    if (type == SL_CALL_ACQUIRE) a->state = SL_ACQUISITION_ASKS;
    sl_timer_set(e, &a->timer, a->give_up_ms);
    sl_call_submit(e, a->call);
}

static void pause_until(struct sl_engine *e, struct sl_client_acquisition *a,
                        sl_ms retry_ms)
{
    a->state = SL_ACQUISITION_PAUSES;
    a->retry_ms = retry_ms;
    sl_timer_set(e, &a->timer, retry_ms < a->give_up_ms ? retry_ms : a->give_up_ms);
}

int sl_engine_acquire(struct sl_engine *e, sl_ms now, const char *key,
                      const struct sluice_request *r, sl_ms delay_ms, int32_t tid,
                      struct sl_ticket *t)
{
    struct sl_client_acquisition *a = new_acquisition(e, key, r);
    e->now_ms = now;
    if (a == NULL) return SLUICE_ENOMEM;
    a->link = r->lease_ms == 0 ? SL_ENGINE_SESSIONS : SL_ENGINE_LEASES;
    a->hold = sl_hold_new(e, a->key, r, tid);
    if (a->hold == NULL || sl_index_reserve(&e->by_id) != SLUICE_OK) {
        if (a->hold != NULL) sl_hold_free(e, a->hold);
        delete_acquisition(e, a);
        return SLUICE_ENOMEM;
    }
    a->sent_ms = -1;
    a->ticket = t;
    a->cancel = r->cancel;
    a->wait_end_ms = r->wait_ms == SLUICE_FOREVER ? SL_NEVER
                                                  : sl_ms_after(now, r->wait_ms);
    a->give_up_ms = sl_ms_after(a->wait_end_ms, e->options.retry_ms);
    a->last_status = SLUICE_EUNREACHABLE;
    draw_id(e, a);
    sl_list_append(&e->acquisitions, &a->node);
    if (delay_ms > 0) pause_until(e, a, sl_ms_after(now, delay_ms));
    else send_command(e, a, SL_CALL_ACQUIRE);
    return SLUICE_OK;
}

void sl_acquisition_interrupted(struct sl_engine *e, struct sl_client_acquisition *a)
{
    a->uncertain = true;
    if (a->state == SL_ACQUISITION_QUEUED) send_command(e, a, SL_CALL_ACQUIRE);
}

/* --- The outcome ---------------------------------------------------------------------------- */

/* The request has ended without a grant. A delayed copy of an earlier attempt could still be granted
 * on another node, so the engine cancels the request if an attempt had no certain outcome. */
static void fail(struct sl_engine *e, struct sl_client_acquisition *a, int status)
{
    if (a->uncertain) {
        sl_acquisition_abandon(e, a, status);
        return;
    }
    sl_ticket_finish(e, a->ticket, status);
    a->ticket = NULL;
    sl_acquisition_free(e, a);
}

/* The grant is certain. */
static void succeed(struct sl_engine *e, struct sl_client_acquisition *a)
{
    a->ticket->watch = a->hold->watch;
    if (a->hold->watch != NULL) a->hold->watch->ticket = a->ticket;
    a->hold->acquisition = NULL;
    a->hold = NULL;
    sl_ticket_finish(e, a->ticket, SLUICE_OK);
    a->ticket = NULL;
    sl_acquisition_free(e, a);
}

static void granted(struct sl_engine *e, struct sl_client_acquisition *a,
                    const struct sluice_reply *r)
{
    struct sl_hold *h = a->hold;
    int64_t lease_ms = r->items[2].number, waited_ms = r->items[3].number;
    sl_ms end_ms = SL_NEVER;
    if (waited_ms < 0) waited_ms = 0;
    if (a->request.lease_ms != 0)
        end_ms = sl_hold_end(a->sent_ms, sl_ms_after(waited_ms, lease_ms));
    a->ticket->grant = (struct sluice_grant){.fence = (uint64_t)r->items[0].number,
                                             .held = (uint64_t)r->items[1].number,
                                             .lease_ms = a->request.lease_ms,
                                             .waited_ms = waited_ms,
                                             .overlapping = r->items[4].number != 0};
    if (sl_index_reserve(&e->by_fence) != SLUICE_OK) {
        sl_acquisition_abandon(e, a, SLUICE_ENOMEM);
        return;
    }
    /* Two clocks may differ by 1/500. After a long wait that is a large part of the lease. The
     * message may also have been late. So extend the lease before the program relies on it. */
    bool certain = end_ms == SL_NEVER || end_ms - e->now_ms > a->request.lease_ms / 2;
    if (!certain) h->acquisition = a;
    sl_hold_begin(e, h, (sl_fence)r->items[0].number, end_ms);
    if (certain) {
        succeed(e, a);
        return;
    }
    a->state = SL_ACQUISITION_CONFIRMS;
    sl_timer_set(e, &a->timer, sl_ms_after(e->now_ms, e->options.retry_ms));
    sl_hold_renew(e, h);
}

void sl_acquisition_confirmed(struct sl_engine *e, struct sl_client_acquisition *a)
{
    succeed(e, a);
}

/* The request failed for now: send it again after a pause. */
static void pause_request(struct sl_engine *e, struct sl_client_acquisition *a)
{
    pause_until(e, a, sl_ms_after(e->now_ms, sl_engine_backoff(e, ++a->failures)));
}

/* Ask for the lock again, with a new id: the server has ended the old one. */
static void begin_again(struct sl_engine *e, struct sl_client_acquisition *a)
{
    if (redraw_id(e, a) == SLUICE_OK) pause_request(e, a);
    else fail(e, a, SLUICE_ENOMEM);
}

/* Release a grant that the program does not know of. Without memory, its lease expires. */
static void release_unconfirmed(struct sl_engine *e, const struct sl_hold *h)
{
    struct sl_call *c = sl_call_new(e, SL_CALL_RELEASE, SL_ENGINE_LEASES,
                                    (struct sl_bytes){h->key, h->key_bytes}, h->fence);
    if (c == NULL) return;
    c->give_up_ms = sl_ms_after(e->now_ms, h->lease_ms);
    sl_call_submit(e, c);
}

void sl_acquisition_unconfirmed(struct sl_engine *e, struct sl_client_acquisition *a)
{
    assert(a->state == SL_ACQUISITION_CONFIRMS);
    struct sl_hold *h = sl_hold_new(e, a->key, &a->request, a->hold->tid);
    release_unconfirmed(e, a->hold);
    sl_hold_free(e, a->hold);
    a->hold = h;
    if (h == NULL) fail(e, a, SLUICE_ENOMEM);
    else begin_again(e, a);
}

static void rejected(struct sl_engine *e, struct sl_client_acquisition *a, int status,
                     const char *message)
{
    sl_engine_note(e, message);
    a->last_status = status;
    /* After these two errors, the request may hold the lock. */
    if (status == SLUICE_ENOKEEPER || status == SLUICE_ENOQUORUM) a->uncertain = true;
    if (status == SLUICE_EENDED) {
        a->last_status = SLUICE_EFULL;
        begin_again(e, a);
    } else if (sl_call_is_transient(status) || status == SLUICE_EREQUESTS)
        pause_request(e, a);
    else fail(e, a, status);
}

static bool is_grant(const struct sluice_reply *r)
{
    if (r->type != SLUICE_REPLY_LIST || r->count < 5) return false;
    for (size_t i = 0; i < 5; i++)
        if (r->items[i].type != SLUICE_REPLY_NUMBER) return false;
    return r->items[0].number > 0;
}

void sl_acquisition_outcome(struct sl_engine *e, struct sl_client_acquisition *a,
                            const struct sluice_reply *r)
{
    assert(a->state == SL_ACQUISITION_ASKS || a->state == SL_ACQUISITION_QUEUED);
    if (is_grant(r)) granted(e, a, r);
    else if (r->type == SLUICE_REPLY_NIL) fail(e, a, SLUICE_EFULL);
    else if (r->type == SLUICE_REPLY_ERROR) rejected(e, a, sl_call_status(r), r->text);
    else if (r->type == SLUICE_REPLY_STATUS && strcmp(r->text, "QUEUED") == 0) {
        a->state = SL_ACQUISITION_QUEUED;
        a->failures = 0;
        sl_timer_set(e, &a->timer, a->give_up_ms);
    } else sl_acquisition_abandon(e, a, SLUICE_EPROTOCOL);
}

/* --- Giving up ----------------------------------------------------------------------------------- */

void sl_acquisition_abandon(struct sl_engine *e, struct sl_client_acquisition *a,
                            int status)
{
    assert(a->state != SL_ACQUISITION_CANCELS);
    sl_ticket_finish(e, a->ticket, status);
    a->ticket = NULL;
    if (a->call != NULL) {
        a->call->acquisition = NULL;
        sl_call_orphan(e, a->call);
        a->call = NULL;
    }
    if (a->hold != NULL) sl_hold_free(e, a->hold);
    a->hold = NULL;
    if (a->sent_ms < 0) { /* No server knows of it. */
        sl_acquisition_free(e, a);
        return;
    }
    a->state = SL_ACQUISITION_CANCELS;
    a->failures = 0;
    a->give_up_ms = sl_ms_after(e->now_ms, sl_ms_after(a->request.lease_ms, CANCEL_MS));
    send_command(e, a, SL_CALL_CANCEL);
}

void sl_acquisition_cancelled(struct sl_engine *e, struct sl_client_acquisition *a,
                              const struct sluice_reply *r)
{
    assert(a->state == SL_ACQUISITION_CANCELS);
    if (r->type == SLUICE_REPLY_ERROR) { /* The server has not executed the command. */
        a->retry_ms = sl_ms_after(e->now_ms, sl_engine_backoff(e, ++a->failures));
        sl_timer_set(e, &a->timer,
                     a->retry_ms < a->give_up_ms ? a->retry_ms : a->give_up_ms);
    } else sl_acquisition_free(e, a);
}

void sl_engine_cancel(struct sl_engine *e, sl_ms now, const struct sluice_cancel *token)
{
    e->now_ms = now;
    for (struct sl_list *n = e->acquisitions.next, *next; n != &e->acquisitions;
         n = next) {
        struct sl_client_acquisition *a = sl_container_of(
            n, struct sl_client_acquisition, node);
        next = n->next;
        if (a->cancel == token && a->state != SL_ACQUISITION_CANCELS)
            sl_acquisition_abandon(e, a, SLUICE_ECANCELLED);
    }
}

/* --- Time ------------------------------------------------------------------------------------------ */

void sl_acquisition_due(struct sl_engine *e, struct sl_client_acquisition *a)
{
    bool given_up = e->now_ms >= a->give_up_ms || a->state == SL_ACQUISITION_CONFIRMS;
    if (a->state == SL_ACQUISITION_CANCELS) {
        if (given_up) sl_acquisition_free(e, a);
        else if (a->call == NULL) send_command(e, a, SL_CALL_CANCEL);
    } else if (given_up) {
        bool asked = a->state == SL_ACQUISITION_PAUSES && a->failures > 0;
        sl_acquisition_abandon(e, a,
                               asked ? a->last_status : sl_link_status(e, a->link));
    } else {
        assert(a->state == SL_ACQUISITION_PAUSES);
        send_command(e, a, SL_CALL_ACQUIRE);
    }
}
