/* client_watch.c - a watch: one endless HTTP response, with a JSON object on each line.
 *
 * The stream is silent while nothing changes. It is also silent if the member is
 * paused, or partitioned from the other members. So after a silence of answer_ms, the
 * client requests a linearizable read from the same member. If the read fails, the
 * client ends the watch. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/etcd/client_internal.h"

#define WATCH_PATH "/v3/watch"
#define PROBE_PATH "/v3/kv/range"

/* --- The end of a watch -------------------------------------------------------- */

/* End the watch. sl_etcd_stream_work() calls `on_end` later, outside of curl's
 * callbacks. */
static void end_watch(struct sl_etcd_client *c, const char *why)
{
    struct sl_etcd_stream *w = &c->watch;
    char message[SL_ETCD_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", why); /* `why` may point into the slot. */
    sl_etcd_slot_stop(&w->slot);
    sl_etcd_slot_stop(&w->probe);
    memcpy(w->slot.message, message, sizeof message);
    w->over = true;
    w->not_before_ms = sl_etcd_now() + SL_ETCD_WATCH_PAUSE_MS;
}

static void watch_refused(struct sl_etcd_client *c)
{
    struct sl_etcd_slot *s = &c->watch.slot;
    if (sl_etcd_token_refused(s) && sl_etcd_token_again(s)) return;
    end_watch(c, s->message);
}

void sl_etcd_stream_attempt_over(struct sl_etcd_client *c, CURLcode rc)
{
    struct sl_etcd_slot *s = &c->watch.slot;
    int status = sl_etcd_http_status(s);
    sl_etcd_http_end(s);
    s->state = SL_ETCD_SLOT_FREE;
    if (rc == CURLE_OK && status != 200) {
        s->code = 0;
        if (!sl_etcd_read_error(s, s->answer, s->answer_bytes))
            snprintf(s->message, sizeof s->message, "HTTP %d", status);
        watch_refused(c);
        return;
    }
    sl_etcd_member_failed(c, s->member);
    if (s->too_big) end_watch(c, "an event of a watch is too large");
    else if (s->no_memory) end_watch(c, "out of memory");
    else if (rc != CURLE_OK) sl_etcd_http_message(s, rc), end_watch(c, s->message);
    else end_watch(c, "");
}

/* Called if the watch cannot start: out of memory, or no token. The slot's message says
 * which. */
static void slot_over(struct sl_etcd_slot *s)
{
    end_watch(s->c, s->message);
}

static void probe_over(struct sl_etcd_slot *s)
{
    struct sl_etcd_client *c = s->c;
    c->watch.probe_ms = sl_etcd_now() + c->answer_ms;
    if (s->fate == SL_ETCD_ANSWERED || c->watch.slot.state != SL_ETCD_SLOT_RUNS) return;
    sl_etcd_member_failed(c, c->watch.slot.member);
    end_watch(c, s->message);
}

/* --- The lines of a watch ------------------------------------------------------ */

/* Return whether this line ends the watch. Keys and values are base64, so they cannot
 * contain these texts. An expired token looks like a missing permission; set *again if
 * the line says so. */
static bool is_end(struct sl_etcd_client *c, const char *line, size_t n, bool *again)
{
    struct sl_etcd_slot *s = &c->watch.slot;
    static const char reason[] = "\"cancel_reason\":\"";
    *again = false;
    if (strncmp(line, "{\"error\"", 8) == 0) {
        s->code = 0;
        if (!sl_etcd_read_error(s, line, n))
            sl_etcd_one_line(s->message, sizeof s->message, line, n);
        *again = s->code != 0 && sl_etcd_token_refused(s) && !s->asked_again;
        return true;
    }
    if (strstr(line, "\"canceled\":true") == NULL) return false;
    const char *why = strstr(line, reason);
    size_t length = why != NULL ? strcspn(why + sizeof reason - 1, "\"") : 0;
    sl_etcd_one_line(s->message, sizeof s->message,
                     why != NULL ? why + sizeof reason - 1 : "canceled",
                     why != NULL ? length : strlen("canceled"));
    *again = strstr(s->message, "ermission") != NULL ||
             strstr(s->message, "auth") != NULL;
    *again = *again && c->auth_body != NULL && !s->asked_again;
    return true;
}

/* Report a line. Returns false if this watch has ended; the caller may have started a
 * new one. */
static bool report(struct sl_etcd_client *c, char *line, size_t n)
{
    struct sl_etcd_stream *w = &c->watch;
    uint64_t number = w->number;
    bool again, end = is_end(c, line, n, &again);
    if (end && again) {
        sl_etcd_http_end(&w->slot);
        if (!sl_etcd_token_again(&w->slot)) end_watch(c, w->slot.message);
        return false;
    }
    /* etcd has executed a write, so an earlier failure has ended. A node that only follows the
     * watch sends no other request that would show this. */
    if (!end && strstr(line, "\"events\":[") != NULL) c->trouble[0] = '\0';
    if (n > 0) w->is.on_object(w->is.owner, (struct sl_bytes){line, n});
    if (w->number != number || !w->on) return false;
    if (end) end_watch(c, w->slot.message);
    return !end;
}

static void report_lines(struct sl_etcd_client *c)
{
    struct sl_etcd_slot *s = &c->watch.slot;
    char *line = s->answer, *end;
    size_t left = s->answer_bytes;
    if (s->state != SL_ETCD_SLOT_RUNS || left == 0 || sl_etcd_http_status(s) != 200)
        return;
    while ((end = memchr(line, '\n', left)) != NULL) {
        size_t n = (size_t)(end - line);
        *end = '\0';
        if (!report(c, line, n)) return;
        line += n + 1;
        left -= n + 1;
    }
    memmove(s->answer, line, left);
    s->answer_bytes = left;
}

/* --- Silence ------------------------------------------------------------------- */

static void probe(struct sl_etcd_client *c)
{
    struct sl_etcd_stream *w = &c->watch;
    struct sl_etcd_slot *s = &w->probe;
    if (s->state != SL_ETCD_SLOT_FREE) return;
    s->path = PROBE_PATH;
    s->body = (struct sl_bytes){w->probe_body, strlen(w->probe_body)};
    s->bytes_max = SL_ETCD_ANSWER_BYTES_MAX;
    s->repeatable = s->pinned = true;
    s->member = w->slot.member;
    s->was_sent = s->asked_again = false;
    s->over = probe_over;
    sl_etcd_slot_start(s);
}

static void check_stream_silence(struct sl_etcd_client *c)
{
    struct sl_etcd_stream *w = &c->watch;
    sl_ms now = sl_etcd_now(), due = sl_etcd_stream_due(c);
    if (w->slot.state != SL_ETCD_SLOT_RUNS || due > now) return;
    if (w->slot.heard) {
        probe(c);
        return;
    }
    char message[64];
    snprintf(message, sizeof message, "no answer within %lld ms",
             (long long)c->answer_ms);
    sl_etcd_member_failed(c, w->slot.member);
    end_watch(c, message);
}

sl_ms sl_etcd_stream_due(const struct sl_etcd_client *c)
{
    const struct sl_etcd_stream *w = &c->watch;
    if (!w->on) return SL_NEVER;
    if (w->over) return 0;
    if (w->slot.state == SL_ETCD_SLOT_FREE) return w->not_before_ms;
    if (w->slot.state != SL_ETCD_SLOT_RUNS || w->probe.state != SL_ETCD_SLOT_FREE)
        return SL_NEVER;
    sl_ms due = sl_ms_after(w->slot.heard_ms, c->answer_ms);
    return due > w->probe_ms ? due : w->probe_ms;
}

/* --- Starting and ending ------------------------------------------------------- */

static void begin(struct sl_etcd_client *c)
{
    struct sl_etcd_slot *s = &c->watch.slot;
    if (s->state != SL_ETCD_SLOT_FREE || c->watch.not_before_ms > sl_etcd_now()) return;
    s->path = WATCH_PATH;
    s->body = (struct sl_bytes){c->watch.body, strlen(c->watch.body)};
    s->bytes_max = SL_ETCD_OBJECT_BYTES_MAX;
    s->repeatable = true;
    s->was_sent = s->asked_again = false;
    s->over = slot_over;
    sl_etcd_slot_start(s);
}

void sl_etcd_stream_work(struct sl_etcd_client *c)
{
    struct sl_etcd_stream *w = &c->watch;
    if (!w->on) return;
    if (!w->over) report_lines(c);
    if (w->on && !w->over) begin(c);
    if (w->on && !w->over) check_stream_silence(c);
    if (!w->on || !w->over) return;
    char why[SL_ETCD_MESSAGE_BYTES];
    memcpy(why, w->slot.message, sizeof why);
    w->on = w->over = false;
    w->is.on_end(w->is.owner, why);
}

static char *base64_of(struct sl_bytes b)
{
    char *out = malloc(sl_etcd_base64_bytes(b.n));
    if (out != NULL) sl_etcd_base64_write(out, b);
    return out;
}

static char *body_of(const struct sl_etcd_watch *w)
{
    char *body = NULL, *key = base64_of(w->key), *end = base64_of(w->end);
    if (key == NULL || end == NULL ||
        asprintf(&body,
                 "{\"create_request\":{\"key\":\"%s\",\"range_end\":\"%s\","
                 "\"start_revision\":\"%llu\"}}",
                 key, end, (unsigned long long)w->from) < 0)
        body = NULL;
    free(key);
    free(end);
    return body;
}

static char *probe_body_of(const struct sl_etcd_watch *w)
{
    char *body = NULL, *key = base64_of(w->key);
    if (key == NULL || asprintf(&body, "{\"key\":\"%s\",\"count_only\":true}", key) < 0)
        body = NULL;
    free(key);
    return body;
}

int sl_etcd_client_watch(struct sl_etcd_client *c, const struct sl_etcd_watch *w)
{
    assert(w->on_object != NULL && w->on_end != NULL);
    char *body = body_of(w), *probe_body = probe_body_of(w);
    if (body == NULL || probe_body == NULL) {
        free(body);
        free(probe_body);
        return SLUICE_ENOMEM;
    }
    sl_etcd_client_unwatch(c);
    free(c->watch.body);
    free(c->watch.probe_body);
    c->watch.body = body;
    c->watch.probe_body = probe_body;
    c->watch.is = *w;
    c->watch.on = true;
    c->watch.probe_ms = 0;
    sl_etcd_http_arm(c, sl_etcd_stream_due(c));
    return SLUICE_OK;
}

/* This does not free the buffer: on_object() may call this while it reads a line
 * there. */
void sl_etcd_client_unwatch(struct sl_etcd_client *c)
{
    struct sl_etcd_stream *w = &c->watch;
    w->number++;
    w->on = w->over = false;
    sl_etcd_slot_stop(&w->slot);
    sl_etcd_slot_stop(&w->probe);
    w->slot.answer_bytes = 0;
}

void sl_etcd_stream_close(struct sl_etcd_client *c)
{
    sl_etcd_client_unwatch(c);
    sl_etcd_http_close_slot(&c->watch.slot);
    sl_etcd_http_close_slot(&c->watch.probe);
    free(c->watch.body);
    free(c->watch.probe_body);
}
