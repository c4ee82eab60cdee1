/* client.c - requests to etcd: chooses the member for each request, and determines its outcome.
 * client_internal.h describes the parts of the client. */
#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/etcd/client_internal.h"

void sl_etcd_one_line(char *out, size_t bytes, const char *text, size_t n)
{
    size_t used = 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
    for (size_t i = 0; i < n && used + 1 < bytes; i++)
        out[used++] = (unsigned char)text[i] < 32 || text[i] == 127 ? ' ' : text[i];
    out[used] = '\0';
}

/* --- Members ------------------------------------------------------------------- */

void sl_etcd_member_failed(struct sl_etcd_client *c, size_t member)
{
    c->members[member].passed_until_ms = sl_etcd_now() + SL_ETCD_PASS_OVER_MS;
}

static void member_answered(struct sl_etcd_client *c, const struct sl_etcd_slot *s)
{
    if (s->aside) return;
    c->members[s->member].passed_until_ms = 0;
    /* An answer that comes late from another member does not replace the leader. */
    bool current_failed = c->members[c->current].passed_until_ms > sl_etcd_now();
    if (!s->pinned && current_failed) c->current = s->member;
}

/* Choose the member to try next, starting with the current one. Members that have failed
 * recently come last. Returns false if all members were tried. */
static bool choose_member(struct sl_etcd_slot *s)
{
    const struct sl_etcd_client *c = s->c;
    sl_ms now = sl_etcd_now();
    bool found = false;
    if (s->pinned) return s->tried == 0;
    for (size_t i = 0; i < c->member_count; i++) {
        size_t m = (c->current + i) % c->member_count;
        if (s->tried >> m & 1) continue;
        bool good = c->members[m].passed_until_ms <= now;
        if (found && !good) continue;
        s->member = m;
        found = true;
        if (good) break;
    }
    return found;
}

/* --- Errors of etcd ------------------------------------------------------------ */

/* An error is {"error": "text", "code": 5, "message": "text"} or, in a stream,
 * {"error": {"grpc_code": 5, "message": "text"}}. */
bool sl_etcd_read_error(struct sl_etcd_slot *s, const char *text, size_t n)
{
    json_t *all = json_loadb(text, n, 0, NULL);
    const json_t *error = json_object_get(all, "error"), *at = all, *code, *message;
    if (json_is_object(error)) at = error;
    code = json_object_get(at, "code");
    if (code == NULL) code = json_object_get(at, "grpc_code");
    message = json_object_get(at, "message");
    if (message == NULL) message = error;
    bool is_error = json_is_integer(code) && json_is_string(message);
    if (is_error) {
        s->code = (int)json_integer_value(code);
        sl_etcd_one_line(s->message, sizeof s->message, json_string_value(message),
                         json_string_length(message));
    }
    json_decref(all);
    return is_error;
}

/* Return whether etcd may have executed the request despite this error. This is so for
 * "request timed out", "leader changed" and errors without a code of their own. It is
 * also so for an HTTP error 5xx from a proxy between the client and etcd. */
static bool may_be_done(const struct sl_etcd_slot *s, bool is_error)
{
    if (!is_error) return s->http_status >= 500;
    switch (s->code) {
        case SL_ETCD_GRPC_CANCELED:
        case SL_ETCD_GRPC_UNKNOWN:
        case SL_ETCD_GRPC_DEADLINE:
        case SL_ETCD_GRPC_INTERNAL:
        case SL_ETCD_GRPC_UNAVAILABLE: return true;
        default: return false;
    }
}

/* --- The end of a request ------------------------------------------------------ */

static void note_trouble(struct sl_etcd_client *c, const struct sl_etcd_slot *s)
{
    const char *url = c->members[s->member].url;
    bool all = s->tried + 1ull == 1ull << c->member_count;
    if (s->fate == SL_ETCD_ANSWERED && !s->too_big && s->code != 0 &&
        (sl_etcd_token_refused(s) || s->code == SL_ETCD_GRPC_DENIED))
        snprintf(c->trouble, sizeof c->trouble, "etcd: %s", s->message);
    else if (s->fate == SL_ETCD_ANSWERED) c->trouble[0] = '\0';
    else if (s->tried == 0)
        snprintf(c->trouble, sizeof c->trouble, "etcd: %s", s->message);
    else if (all && s->code == 0)
        snprintf(c->trouble, sizeof c->trouble, "etcd: no member answers (%.90s: %s)",
                 url, s->message);
    else snprintf(c->trouble, sizeof c->trouble, "etcd: %.90s: %s", url, s->message);
}

void sl_etcd_slot_end(struct sl_etcd_slot *s, enum sl_etcd_fate fate)
{
    struct sl_etcd_client *c = s->c;
    assert(s->state == SL_ETCD_SLOT_RUNS || s->state == SL_ETCD_SLOT_WAITS);
    s->state = SL_ETCD_SLOT_ENDED;
    s->fate = fate;
    if (s != &c->watch.probe && !s->aside) note_trouble(c, s);
    if (s->call != NULL) {
        sl_list_append(&c->ended, &s->place);
        return;
    }
    s->state = SL_ETCD_SLOT_FREE;
    s->over(s);
}

static void no_memory(struct sl_etcd_slot *s)
{
    s->code = 0;
    snprintf(s->message, sizeof s->message, "%s", "out of memory");
}

static void attempt(struct sl_etcd_slot *s)
{
    assert(s->member < s->c->member_count);
    s->state = SL_ETCD_SLOT_RUNS;
    s->tried |= 1u << s->member;
    if (sl_etcd_http_begin(s)) return;
    no_memory(s);
    sl_etcd_slot_end(s, s->was_sent ? SL_ETCD_LOST : SL_ETCD_UNSENT);
}

/* Try the next member, if that is safe. */
static void attempt_failed(struct sl_etcd_slot *s, bool sent)
{
    if (!s->aside) sl_etcd_member_failed(s->c, s->member);
    s->was_sent = s->was_sent || sent;
    if ((!sent || s->repeatable) && choose_member(s)) attempt(s);
    else sl_etcd_slot_end(s, s->was_sent ? SL_ETCD_LOST : SL_ETCD_UNSENT);
}

static void attempt_refused(struct sl_etcd_slot *s)
{
    bool is_error = sl_etcd_read_error(s, s->answer, s->answer_bytes);
    if (!is_error) {
        char text[64];
        sl_etcd_one_line(text, sizeof text, s->answer_bytes > 0 ? s->answer : "",
                         s->answer_bytes);
        snprintf(s->message, sizeof s->message, "HTTP %d %s", s->http_status, text);
        s->code = SL_ETCD_GRPC_UNKNOWN;
    }
    if (sl_etcd_token_refused(s) && sl_etcd_token_again(s)) return;
    if (may_be_done(s, is_error)) {
        attempt_failed(s, true);
        return;
    }
    member_answered(s->c, s);
    sl_etcd_slot_end(s, SL_ETCD_ANSWERED);
}

/* Return whether the answer is a complete JSON object. The server that answers may not
 * be etcd, or may not send the length of its answer. */
static bool is_complete(const struct sl_etcd_slot *s)
{
    size_t n = s->answer_bytes;
    while (n > 0 && strchr(" \r\n", s->answer[n - 1]) != NULL) n--;
    return n >= 2 && s->answer[0] == '{' && s->answer[n - 1] == '}';
}

static void attempt_over(struct sl_etcd_slot *s, CURLcode rc)
{
    struct sl_etcd_client *c = s->c;
    if (s == &c->watch.slot) {
        sl_etcd_stream_attempt_over(c, rc);
        return;
    }
    s->http_status = sl_etcd_http_status(s);
    s->code = 0;
    bool sent = sl_etcd_http_end(s);
    sl_etcd_http_message(s, rc);
    if (rc == CURLE_OK && s->http_status != 200) {
        attempt_refused(s);
    } else if (s->http_status == 200 &&
               (s->too_big || (rc == CURLE_OK && is_complete(s)))) {
        s->message[0] = '\0';
        member_answered(c, s);
        sl_etcd_slot_end(s, SL_ETCD_ANSWERED);
    } else if (s->no_memory || rc == CURLE_OUT_OF_MEMORY) {
        no_memory(s);
        sl_etcd_slot_end(s, s->was_sent || sent ? SL_ETCD_LOST : SL_ETCD_UNSENT);
    } else {
        attempt_failed(s, sent);
    }
}

/* --- Silence ------------------------------------------------------------------- */

sl_ms sl_etcd_slot_due(const struct sl_etcd_slot *s)
{
    sl_ms answer_ms = s->c->answer_ms;
    if (s->state != SL_ETCD_SLOT_RUNS) return SL_NEVER;
    sl_ms heard = sl_ms_after(s->heard_ms, answer_ms);
    sl_ms whole = sl_ms_after(s->begun_ms, SL_ETCD_WHOLE_TIMES * answer_ms);
    return heard < whole ? heard : whole;
}

static void check_slot_silence(struct sl_etcd_slot *s, sl_ms now)
{
    if (sl_etcd_slot_due(s) > now) return;
    s->http_status = 0;
    s->code = 0;
    snprintf(s->message, sizeof s->message, "no answer within %lld ms",
             (long long)s->c->answer_ms);
    attempt_failed(s, sl_etcd_http_end(s));
}

static void check_silence(struct sl_etcd_client *c)
{
    sl_ms now = sl_etcd_now();
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++)
        check_slot_silence(&c->slots[i], now);
    check_slot_silence(&c->auth, now);
    check_slot_silence(&c->watch.probe, now);
    check_slot_silence(&c->leader.slot, now);
}

/* --- Slots --------------------------------------------------------------------- */

void sl_etcd_slot_start(struct sl_etcd_slot *s)
{
    s->tried = 0;
    s->code = s->http_status = 0;
    s->message[0] = '\0';
    if (sl_etcd_token_needed(s)) {
        sl_etcd_token_await(s);
        return;
    }
    choose_member(s);
    attempt(s);
}

void sl_etcd_slot_stop(struct sl_etcd_slot *s)
{
    if (s->state == SL_ETCD_SLOT_RUNS) sl_etcd_http_end(s);
    s->state = SL_ETCD_SLOT_FREE;
}

static void take_call(struct sl_etcd_slot *s, struct sl_etcd_call *call)
{
    assert(s->state == SL_ETCD_SLOT_FREE);
    s->call = call;
    s->path = call->path;
    s->body = call->body;
    s->repeatable = call->repeatable;
    s->bytes_max = call->answer_bytes_max != 0 ? call->answer_bytes_max
                                               : SL_ETCD_ANSWER_BYTES_MAX;
    s->was_sent = s->asked_again = s->too_big = false;
    s->answer_bytes = 0;
    call->inside = s;
    sl_etcd_slot_start(s);
}

static void fill_slots(struct sl_etcd_client *c)
{
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX && !sl_list_empty(&c->waiting); i++) {
        struct sl_etcd_slot *s = &c->slots[i];
        if (s->state != SL_ETCD_SLOT_FREE) continue;
        struct sl_etcd_call *call = sl_container_of(c->waiting.next,
                                                    struct sl_etcd_call, place);
        sl_list_remove(&call->place);
        take_call(s, call);
    }
}

static void deliver(struct sl_etcd_slot *s)
{
    struct sl_etcd_call *call = s->call;
    assert(s->state == SL_ETCD_SLOT_ENDED && call != NULL && call->inside == s);
    call->fate = s->fate;
    call->too_big = s->fate == SL_ETCD_ANSWERED && s->too_big;
    call->http_status = s->http_status;
    call->code = s->code;
    if (s->message[0] != '\0')
        call->answer = (struct sl_bytes){s->message, strlen(s->message)};
    else if (!s->too_big && s->answer_bytes > 0)
        call->answer = (struct sl_bytes){s->answer, s->answer_bytes};
    call->done(call);
    sl_etcd_http_free_answer(s);
    s->call = NULL;
    s->state = SL_ETCD_SLOT_FREE;
}

static void deliver_some(struct sl_etcd_client *c, size_t most)
{
    for (; most > 0 && !sl_list_empty(&c->ended); most--) {
        struct sl_etcd_slot *s = sl_container_of(c->ended.next, struct sl_etcd_slot,
                                                 place);
        sl_list_remove(&s->place);
        deliver(s);
    }
}

/* --- For callers ------------------------------------------------------------- */

static sl_ms earlier(sl_ms a, sl_ms b)
{
    return a < b ? a : b;
}

static void arm(struct sl_etcd_client *c)
{
    sl_ms due = earlier(c->curl_due_ms, c->wake_ms);
    if (!sl_list_empty(&c->ended)) due = 0;
    due = earlier(due, earlier(sl_etcd_stream_due(c), sl_etcd_leader_due(c)));
    due = earlier(
        due, earlier(sl_etcd_slot_due(&c->auth), sl_etcd_slot_due(&c->watch.probe)));
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++)
        due = earlier(due, sl_etcd_slot_due(&c->slots[i]));
    sl_etcd_http_arm(c, due);
}

static void wake(struct sl_etcd_client *c)
{
    if (c->wake_ms > sl_etcd_now()) return;
    c->wake_ms = SL_NEVER;
    c->woken(c->wake_owner);
}

bool sl_etcd_client_work(struct sl_etcd_client *c, size_t most)
{
    sl_etcd_http_turn(c, attempt_over);
    check_silence(c);
    sl_etcd_stream_work(c);
    sl_etcd_leader_work(c);
    wake(c);
    deliver_some(c, most);
    fill_slots(c);
    arm(c);
    return !sl_list_empty(&c->ended);
}

void sl_etcd_client_send(struct sl_etcd_client *c, struct sl_etcd_call *call)
{
    assert(call->path != NULL && call->done != NULL);
    call->fate = SL_ETCD_UNSENT;
    call->too_big = false;
    call->http_status = call->code = 0;
    call->answer = (struct sl_bytes){"", 0};
    call->inside = NULL;
    sl_list_append(&c->waiting, &call->place);
    if (c->closing) return;
    fill_slots(c);
    arm(c);
}

void sl_etcd_client_wake_at(struct sl_etcd_client *c, sl_ms at_ms,
                            void (*woken)(void *owner), void *owner)
{
    c->wake_ms = at_ms;
    c->woken = woken;
    c->wake_owner = owner;
    sl_etcd_http_arm(c, at_ms);
}

int sl_etcd_client_fd(const struct sl_etcd_client *c)
{
    return c->epoll;
}

const char *sl_etcd_client_trouble(const struct sl_etcd_client *c)
{
    return c->trouble;
}

/* --- Creating and freeing ------------------------------------------------------ */

static void init(struct sl_etcd_client *c)
{
    c->epoll = c->timer = -1;
    c->wake_ms = SL_NEVER;
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++) c->slots[i].c = c;
    c->auth.c = c->watch.slot.c = c->watch.probe.c = c;
    sl_etcd_leader_init(c);
    sl_list_init(&c->waiting);
    sl_list_init(&c->ended);
}

struct sl_etcd_client *sl_etcd_client_new(const struct sl_etcd_settings *s, char *why,
                                          size_t why_bytes)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        snprintf(why, why_bytes, "etcd: cannot initialize curl");
        return NULL;
    }
    struct sl_etcd_client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        snprintf(why, why_bytes, "etcd: out of memory");
        curl_global_cleanup();
        return NULL;
    }
    init(c);
    if (sl_etcd_client_take_settings(c, s, why, why_bytes)) {
        if (sl_etcd_http_open(c)) return c;
        snprintf(why, why_bytes, "etcd: %s", strerror(errno));
    }
    sl_etcd_client_free(c);
    return NULL;
}

/* End all calls. Calls that wait for a token or for a slot are UNSENT. */
static void end_calls(struct sl_etcd_client *c)
{
    sl_etcd_slot_stop(&c->auth);
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++) {
        struct sl_etcd_slot *s = &c->slots[i];
        if (s->state == SL_ETCD_SLOT_RUNS && sl_etcd_http_end(s)) s->was_sent = true;
        if (s->state != SL_ETCD_SLOT_RUNS && s->state != SL_ETCD_SLOT_WAITS) continue;
        snprintf(s->message, sizeof s->message, "%s", "the client is closed");
        sl_etcd_slot_end(s, s->was_sent ? SL_ETCD_LOST : SL_ETCD_UNSENT);
    }
    deliver_some(c, SIZE_MAX);
    while (!sl_list_empty(&c->waiting)) {
        struct sl_etcd_call *call = sl_container_of(c->waiting.next,
                                                    struct sl_etcd_call, place);
        sl_list_remove(&call->place);
        call->done(call);
    }
}

static void free_secret(char *text)
{
    if (text != NULL) explicit_bzero(text, strlen(text));
    free(text);
}

void sl_etcd_client_free(struct sl_etcd_client *c)
{
    if (c == NULL) return;
    c->closing = true;
    sl_etcd_stream_close(c);
    sl_etcd_leader_close(c);
    end_calls(c);
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++)
        sl_etcd_http_close_slot(&c->slots[i]);
    sl_etcd_http_close_slot(&c->auth);
    sl_etcd_http_close(c);
    for (size_t i = 0; i < c->member_count; i++) free(c->members[i].url);
    free(c->ca);
    free(c->cert);
    free(c->key);
    free_secret(c->auth_body);
    free_secret(c->token);
    free(c);
    curl_global_cleanup();
}
