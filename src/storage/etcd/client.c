/* etcd_client.c - what becomes of a request: which member is asked, with which token, and what
 * is known of it in the end. etcd_inside.h has the whole picture. */
#include "storage/etcd/client.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/etcd/client_internal.h"

#define AUTH_PATH "/v3/auth/authenticate"
#define TOKEN_BYTES_MAX 8192
#define WRONG_USER "wrong user or password"

void sl_etcd_words(char *out, size_t bytes, const char *text, size_t n)
{
    size_t used = 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
    for (size_t i = 0; i < n && used + 1 < bytes; i++)
        out[used++] = (unsigned char)text[i] < 32 || text[i] == 127 ? ' ' : text[i];
    out[used] = '\0';
}

/* --- Members ------------------------------------------------------------------- */

void sl_etcd_member_failed(struct sl_etcd *c, size_t member)
{
    c->members[member].passed_until_ms = sl_etcd_now() + SL_ETCD_PASS_OVER_MS;
}

static void member_answered(struct sl_etcd *c, const struct sl_etcd_slot *s)
{
    c->members[s->member].passed_until_ms = 0;
    if (!s->pinned) c->current = s->member;
}

/* The next to be tried: from the one that answered last on; who has failed lately comes at
 * the end. False: all were. */
static bool choose_member(struct sl_etcd_slot *s)
{
    const struct sl_etcd *c = s->c;
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

/* {"error": "words", "code": 5, "message": "words"}; in a stream {"error": {"grpc_code": 5,
 * "message": "words"}}. */
bool sl_etcd_read_error(struct sl_etcd_slot *s, const char *text, size_t n)
{
    json_t *all = json_loadb(text, n, 0, NULL);
    const json_t *error = json_object_get(all, "error"), *at = all, *code, *words;
    if (json_is_object(error)) at = error;
    code = json_object_get(at, "code");
    if (code == NULL) code = json_object_get(at, "grpc_code");
    words = json_object_get(at, "message");
    if (words == NULL) words = error;
    bool is_error = json_is_integer(code) && json_is_string(words);
    if (is_error) {
        s->code = (int)json_integer_value(code);
        sl_etcd_words(s->words, sizeof s->words, json_string_value(words),
                      json_string_length(words));
    }
    json_decref(all);
    return is_error;
}

/* All the ways of etcd 3.4 to say that it wants another token. None of them has done
 * anything. */
bool sl_etcd_token_refused(const struct sl_etcd_slot *s)
{
    static const char *const ways[] = {
        "invalid auth token",
        "user name is empty",
        "revision in header is old",
        "revision of auth store is old",
    };
    if (s->code == SL_ETCD_GRPC_UNAUTHENTICATED) return true;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (s->code != 0 && strstr(s->words, ways[i]) != NULL) return true;
    return false;
}

/* With these numbers etcd does not say that a request was not done: "request timed out",
 * "leader changed", whatever it has no other number for. Somebody in between who is not etcd
 * does not, either. */
static bool says_nothing(const struct sl_etcd_slot *s, bool is_error)
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

static void say_trouble(struct sl_etcd *c, const struct sl_etcd_slot *s)
{
    const char *url = c->members[s->member].url;
    bool all = s->tried + 1ull == 1ull << c->member_count;
    if (s->fate == SL_ETCD_ANSWERED && !s->too_big && s->code != 0 &&
        (sl_etcd_token_refused(s) || s->code == SL_ETCD_GRPC_DENIED))
        snprintf(c->trouble, sizeof c->trouble, "etcd: %s", s->words);
    else if (s->fate == SL_ETCD_ANSWERED) c->trouble[0] = '\0';
    else if (s->tried == 0)
        snprintf(c->trouble, sizeof c->trouble, "etcd: %s", s->words);
    else if (all && s->code == 0)
        snprintf(c->trouble, sizeof c->trouble, "etcd: no member answers (%.90s: %s)",
                 url, s->words);
    else snprintf(c->trouble, sizeof c->trouble, "etcd: %.90s: %s", url, s->words);
}

static void end_slot(struct sl_etcd_slot *s, enum sl_etcd_fate fate)
{
    struct sl_etcd *c = s->c;
    s->state = SL_ETCD_SLOT_ENDED;
    s->fate = fate;
    if (s != &c->watch.probe) say_trouble(c, s);
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
    snprintf(s->words, sizeof s->words, "%s", "out of memory");
}

/* At one member after the other, until one takes it. */
static void attempt(struct sl_etcd_slot *s)
{
    s->state = SL_ETCD_SLOT_RUNS;
    s->tried |= 1u << s->member;
    if (sl_etcd_http_begin(s)) return;
    no_memory(s);
    end_slot(s, s->was_sent ? SL_ETCD_LOST : SL_ETCD_UNSENT);
}

/* This one has failed. */
static void attempt_failed(struct sl_etcd_slot *s, bool sent)
{
    sl_etcd_member_failed(s->c, s->member);
    s->was_sent = s->was_sent || sent;
#ifdef MUT_ESENTAGAIN
    sent = false;
#endif
    if ((!sent || s->repeatable) && choose_member(s)) attempt(s);
    else end_slot(s, s->was_sent ? SL_ETCD_LOST : SL_ETCD_UNSENT);
}

static void attempt_refused(struct sl_etcd_slot *s)
{
    bool is_error = sl_etcd_read_error(s, s->answer, s->answer_bytes);
    if (!is_error) {
        char text[64];
        sl_etcd_words(text, sizeof text, s->answer_bytes > 0 ? s->answer : "",
                      s->answer_bytes);
        snprintf(s->words, sizeof s->words, "HTTP %d %s", s->http_status, text);
        s->code = SL_ETCD_GRPC_UNKNOWN;
    }
    if (sl_etcd_token_refused(s) && sl_etcd_token_again(s)) return;
    if (says_nothing(s, is_error)) {
        attempt_failed(s, true);
        return;
    }
    member_answered(s->c, s);
    end_slot(s, SL_ETCD_ANSWERED);
}

/* An object: who answers at all may not be etcd, and may not say how long an answer is. */
static bool is_whole(const struct sl_etcd_slot *s)
{
    size_t n = s->answer_bytes;
    while (n > 0 && strchr(" \r\n", s->answer[n - 1]) != NULL) n--;
    return n >= 2 && s->answer[0] == '{' && s->answer[n - 1] == '}';
}

static void attempt_over(struct sl_etcd_slot *s, CURLcode rc)
{
    struct sl_etcd *c = s->c;
    if (s == &c->watch.slot) {
        sl_etcd_watch_attempt_over(c, rc);
        return;
    }
    s->http_status = sl_etcd_http_status(s);
    s->code = 0;
    bool sent = sl_etcd_http_end(s);
    sl_etcd_http_words(s, rc);
    if (rc == CURLE_OK && s->http_status != 200) {
        attempt_refused(s);
    } else if (s->http_status == 200 &&
               (s->too_big || (rc == CURLE_OK && is_whole(s)))) {
        s->words[0] = '\0';
        member_answered(c, s);
        end_slot(s, SL_ETCD_ANSWERED);
    } else if (s->no_memory || rc == CURLE_OUT_OF_MEMORY) {
        no_memory(s);
        end_slot(s, s->was_sent || sent ? SL_ETCD_LOST : SL_ETCD_UNSENT);
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

bool sl_etcd_slot_silent(const struct sl_etcd_slot *s, sl_ms now)
{
    return sl_etcd_slot_due(s) <= now;
}

static void look_at(struct sl_etcd_slot *s, sl_ms now)
{
    if (!sl_etcd_slot_silent(s, now)) return;
    s->http_status = 0;
    s->code = 0;
    snprintf(s->words, sizeof s->words, "no answer within %lld ms",
             (long long)s->c->answer_ms);
    attempt_failed(s, sl_etcd_http_end(s));
}

static void look_at_all(struct sl_etcd *c)
{
    sl_ms now = sl_etcd_now();
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++) look_at(&c->slots[i], now);
    look_at(&c->auth, now);
    look_at(&c->watch.probe, now);
}

/* --- The token ----------------------------------------------------------------- */

static void set_token(struct sl_etcd *c, char *token)
{
    if (c->token != NULL) explicit_bzero(c->token, strlen(c->token));
    free(c->token);
    c->token = token;
    c->token_number++;
}

/* It becomes a header of HTTP: it must not be more than one. */
static bool is_token(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~') return false;
    return n > 0 && n <= TOKEN_BYTES_MAX;
}

static char *read_token(const struct sl_etcd_slot *s)
{
    json_t *all = json_loadb(s->answer, s->answer_bytes, 0, NULL);
    const char *text = json_string_value(json_object_get(all, "token"));
    char *token = text != NULL && is_token(text) ? strdup(text) : NULL;
    json_decref(all);
    return token;
}

static void end_without_token(struct sl_etcd_slot *s, const struct sl_etcd_slot *auth)
{
    if (s->state != SL_ETCD_SLOT_WAITS) return;
    s->http_status = auth->http_status;
    s->code = auth->code;
    memcpy(s->words, auth->words, sizeof s->words);
    s->member = auth->member;
    s->tried = auth->tried;
    s->too_big = false;
    s->answer_bytes = 0;
    end_slot(s, auth->fate);
}

static void go_on(struct sl_etcd_slot *s)
{
    if (s->state == SL_ETCD_SLOT_WAITS) sl_etcd_slot_start(s);
}

/* It came, or none will: those who wait for it are told. */
static void auth_over(struct sl_etcd_slot *auth)
{
    struct sl_etcd *c = auth->c;
    bool ok = auth->fate == SL_ETCD_ANSWERED;
    if (ok && auth->code == SL_ETCD_GRPC_PRECONDITION) {
        c->no_auth = true; /* "authentication is not enabled" */
    } else if (ok && auth->code == 0) {
        char *token = auth->too_big ? NULL : read_token(auth);
        ok = token != NULL;
        if (ok) set_token(c, token);
        if (!ok) snprintf(auth->words, sizeof auth->words, "%s", "no token was given");
    } else if (ok) {
        ok = false;
        if (auth->code == SL_ETCD_GRPC_INVALID ||
            auth->code == SL_ETCD_GRPC_UNAUTHENTICATED) {
            auth->code = SL_ETCD_GRPC_UNAUTHENTICATED;
            snprintf(auth->words, sizeof auth->words, WRONG_USER);
            c->refused_until_ms = sl_etcd_now() + SL_ETCD_REFUSED_MS;
        }
    }
    if (auth->answer != NULL) explicit_bzero(auth->answer, auth->answer_room);
    /* What waits was not sent, whatever became of this. */
    if (!ok && auth->code == 0) auth->fate = SL_ETCD_UNSENT;
    if (auth->fate == SL_ETCD_LOST) auth->fate = SL_ETCD_UNSENT;
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++)
        if (ok) go_on(&c->slots[i]);
        else end_without_token(&c->slots[i], auth);
    if (ok) go_on(&c->watch.probe), go_on(&c->watch.slot);
    else
        end_without_token(&c->watch.probe, auth),
            end_without_token(&c->watch.slot, auth);
}

static void ask_for_token(struct sl_etcd *c)
{
    struct sl_etcd_slot *s = &c->auth;
    if (s->state != SL_ETCD_SLOT_FREE) return;
    s->path = AUTH_PATH;
    s->body = (struct sl_bytes){c->auth_body, strlen(c->auth_body)};
    s->repeatable = s->without_token = true;
    s->was_sent = false;
    s->bytes_max = SL_ETCD_ANSWER_BYTES_MAX;
    s->over = auth_over;
    sl_etcd_slot_start(s);
}

/* This slot's token is not taken any more. Others may have found that out before. */
bool sl_etcd_token_again(struct sl_etcd_slot *s)
{
    struct sl_etcd *c = s->c;
    if (c->auth_body == NULL || s->without_token || s->asked_again) return false;
    s->asked_again = true;
    c->no_auth = false;
    if (s->headers_of == c->token_number) set_token(c, NULL);
    sl_etcd_slot_start(s);
    return true;
}

/* --- Slots --------------------------------------------------------------------- */

static bool needs_token(const struct sl_etcd_slot *s)
{
    const struct sl_etcd *c = s->c;
    return !s->without_token && c->auth_body != NULL && !c->no_auth && c->token == NULL;
}

void sl_etcd_slot_start(struct sl_etcd_slot *s)
{
    struct sl_etcd *c = s->c;
    s->tried = 0;
    s->code = s->http_status = 0;
    s->words[0] = '\0';
    if (!needs_token(s)) {
        choose_member(s);
        attempt(s);
        return;
    }
    s->state = SL_ETCD_SLOT_WAITS;
    if (c->refused_until_ms <= sl_etcd_now()) {
        ask_for_token(c);
        return;
    }
    s->http_status = 401;
    s->code = SL_ETCD_GRPC_UNAUTHENTICATED;
    s->too_big = false;
    snprintf(s->words, sizeof s->words, WRONG_USER);
    end_slot(s, SL_ETCD_ANSWERED);
}

void sl_etcd_slot_stop(struct sl_etcd_slot *s)
{
    if (s->state == SL_ETCD_SLOT_RUNS) sl_etcd_http_end(s);
    s->state = SL_ETCD_SLOT_FREE;
}

static void take_call(struct sl_etcd_slot *s, struct sl_etcd_call *call)
{
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

static void fill_slots(struct sl_etcd *c)
{
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX && !sl_list_empty(&c->line); i++) {
        struct sl_etcd_slot *s = &c->slots[i];
        if (s->state != SL_ETCD_SLOT_FREE) continue;
        struct sl_etcd_call *call = sl_container_of(c->line.next, struct sl_etcd_call,
                                                    place);
        sl_list_remove(&call->place);
        take_call(s, call);
    }
}

static void deliver(struct sl_etcd_slot *s)
{
    struct sl_etcd_call *call = s->call;
    call->fate = s->fate;
    call->too_big = s->fate == SL_ETCD_ANSWERED && s->too_big;
    call->http_status = s->http_status;
    call->code = s->code;
    if (s->words[0] != '\0')
        call->answer = (struct sl_bytes){s->words, strlen(s->words)};
    else if (!s->too_big && s->answer_bytes > 0)
        call->answer = (struct sl_bytes){s->answer, s->answer_bytes};
    call->done(call);
    sl_etcd_http_free_answer(s);
    s->call = NULL;
    s->state = SL_ETCD_SLOT_FREE;
}

static void deliver_some(struct sl_etcd *c, size_t most)
{
    for (; most > 0 && !sl_list_empty(&c->ended); most--) {
        struct sl_etcd_slot *s = sl_container_of(c->ended.next, struct sl_etcd_slot,
                                                 place);
        sl_list_remove(&s->place);
        deliver(s);
    }
}

/* --- What the caller does ------------------------------------------------------- */

static sl_ms earlier(sl_ms a, sl_ms b)
{
    return a < b ? a : b;
}

static void arm(struct sl_etcd *c)
{
    sl_ms due = earlier(c->curl_due_ms, c->wake_ms);
    if (!sl_list_empty(&c->ended)) due = 0;
    due = earlier(due, sl_etcd_watch_due(c));
    due = earlier(
        due, earlier(sl_etcd_slot_due(&c->auth), sl_etcd_slot_due(&c->watch.probe)));
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++)
        due = earlier(due, sl_etcd_slot_due(&c->slots[i]));
    sl_etcd_http_arm(c, due);
}

static void wake(struct sl_etcd *c)
{
    if (c->wake_ms > sl_etcd_now()) return;
    c->wake_ms = SL_NEVER;
    c->woken(c->wake_owner);
}

bool sl_etcd_work(struct sl_etcd *c, size_t most)
{
    sl_etcd_http_turn(c, attempt_over);
    look_at_all(c);
    sl_etcd_watch_work(c);
    wake(c);
    deliver_some(c, most);
    fill_slots(c);
    arm(c);
    return !sl_list_empty(&c->ended);
}

void sl_etcd_send(struct sl_etcd *c, struct sl_etcd_call *call)
{
    call->fate = SL_ETCD_UNSENT;
    call->too_big = false;
    call->http_status = call->code = 0;
    call->answer = (struct sl_bytes){"", 0};
    call->inside = NULL;
    sl_list_append(&c->line, &call->place);
    if (c->closing) return;
    fill_slots(c);
    arm(c);
}

void sl_etcd_wake_at(struct sl_etcd *c, sl_ms at_ms, void (*woken)(void *owner),
                     void *owner)
{
    c->wake_ms = at_ms;
    c->woken = woken;
    c->wake_owner = owner;
    sl_etcd_http_arm(c, at_ms);
}

int sl_etcd_fd(const struct sl_etcd *c)
{
    return c->epoll;
}

const char *sl_etcd_trouble(const struct sl_etcd *c)
{
    return c->trouble;
}

/* --- Life ---------------------------------------------------------------------- */

static bool says(char *why, size_t why_bytes, const char *words, const char *of)
{
    snprintf(why, why_bytes, "%s%s%s", of, of[0] != '\0' ? ": " : "", words);
    return false;
}

/* What is wrong with a member's URL; NULL: nothing. With a user in it, it must not be
 * repeated: who reads the words does not know the password. */
static const char *wrong_with(CURLU *u, const char *url, bool *secret)
{
    char *part = NULL;
    CURLUcode rc = curl_url_set(u, CURLUPART_URL, url, 0);
    *secret = strchr(url, '@') != NULL;
    if (*secret) return "a URL of etcd has no user in it: there are settings for that";
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return "a URL of etcd begins with http:// or https://";
    if (rc == CURLUE_OUT_OF_MEMORY) return "out of memory";
    if (rc != CURLUE_OK) return "this is not a URL";
    rc = curl_url_get(u, CURLUPART_PATH, &part, 0);
    bool bare = rc == CURLUE_OK && strcmp(part, "/") == 0;
    curl_free(part);
    if (!bare || strpbrk(url, "?#") != NULL)
        return "a URL of etcd has nothing behind the host and its port";
    return NULL;
}

static bool add_member(struct sl_etcd *c, const char *text, size_t n, char *why,
                       size_t why_bytes)
{
    bool secret = false;
    if (c->member_count == SL_ETCD_MEMBERS_MAX)
        return says(why, why_bytes, "too many members of etcd", "");
    while (n > 0 && *text == ' ') text++, n--;
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '/')) n--;
    if (n == 0) return says(why, why_bytes, "a URL of etcd is missing", "");
    char *url = strndup(text, n);
    CURLU *u = curl_url();
    const char *wrong = "out of memory";
    if (url != NULL && u != NULL) wrong = wrong_with(u, url, &secret);
    curl_url_cleanup(u);
    if (wrong == NULL) {
        c->members[c->member_count++].url = url;
        return true;
    }
    says(why, why_bytes, wrong, secret || url == NULL ? "" : url);
    free(url);
    return false;
}

static bool add_members(struct sl_etcd *c, const char *text, char *why,
                        size_t why_bytes)
{
    for (;;) {
        size_t n = strcspn(text, ",");
        if (!add_member(c, text, n, why, why_bytes)) return false;
        if (text[n] == '\0') return true;
        text += n + 1;
    }
}

static bool copy_file(char **out, const char *path, char *why, size_t why_bytes)
{
    if (path == NULL || path[0] == '\0') return true;
    if (access(path, R_OK) != 0) return says(why, why_bytes, strerror(errno), path);
    *out = strdup(path);
    return *out != NULL || says(why, why_bytes, "out of memory", "");
}

static bool add_files(struct sl_etcd *c, const struct sl_etcd_settings *s, char *why,
                      size_t why_bytes)
{
    if (!copy_file(&c->ca, s->ca, why, why_bytes)) return false;
    if (!copy_file(&c->cert, s->cert, why, why_bytes)) return false;
    if (!copy_file(&c->key, s->key, why, why_bytes)) return false;
    if ((c->cert == NULL) == (c->key == NULL)) return true;
    return says(why, why_bytes, "a certificate for etcd and its key belong together",
                "");
}

static bool add_user(struct sl_etcd *c, const struct sl_etcd_settings *s, char *why,
                     size_t why_bytes)
{
    if (s->user == NULL || s->user[0] == '\0') return true;
    const char *password = s->password != NULL ? s->password : "";
    json_t *user = json_string(s->user), *secret = json_string(password);
    if (user == NULL || secret == NULL) {
        json_decref(user);
        json_decref(secret);
        return says(why, why_bytes, "user and password of etcd must be UTF-8", "");
    }
    json_t *body = json_pack("{s:o, s:o}", "name", user, "password", secret);
    c->auth_body = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return c->auth_body != NULL || says(why, why_bytes, "out of memory", "");
}

static void init_slots(struct sl_etcd *c)
{
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++) c->slots[i].c = c;
    c->auth.c = c->watch.slot.c = c->watch.probe.c = c;
    sl_list_init(&c->line);
    sl_list_init(&c->ended);
}

static bool set_up(struct sl_etcd *c, const struct sl_etcd_settings *s, char *why,
                   size_t why_bytes)
{
    init_slots(c);
    c->epoll = c->timer = -1;
    c->wake_ms = SL_NEVER;
    c->answer_ms = s->answer_ms;
    if (!add_members(c, s->members, why, why_bytes)) return false;
    if (!add_files(c, s, why, why_bytes)) return false;
    if (!add_user(c, s, why, why_bytes)) return false;
    return sl_etcd_http_open(c) || says(why, why_bytes, strerror(errno), "etcd");
}

struct sl_etcd *sl_etcd_new(const struct sl_etcd_settings *s, char *why,
                            size_t why_bytes)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        says(why, why_bytes, "curl cannot begin", "etcd");
        return NULL;
    }
    struct sl_etcd *c = calloc(1, sizeof *c);
    if (c == NULL) {
        says(why, why_bytes, "out of memory", "etcd");
        curl_global_cleanup();
        return NULL;
    }
    if (set_up(c, s, why, why_bytes)) return c;
    sl_etcd_free(c);
    return NULL;
}

/* All end now. Who has waited for a token, or in the line, was not sent. */
static void end_calls(struct sl_etcd *c)
{
    sl_etcd_slot_stop(&c->auth);
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++) {
        struct sl_etcd_slot *s = &c->slots[i];
        if (s->state == SL_ETCD_SLOT_RUNS && sl_etcd_http_end(s)) s->was_sent = true;
        if (s->state != SL_ETCD_SLOT_RUNS && s->state != SL_ETCD_SLOT_WAITS) continue;
        snprintf(s->words, sizeof s->words, "%s", "the client is closed");
        end_slot(s, s->was_sent ? SL_ETCD_LOST : SL_ETCD_UNSENT);
    }
    deliver_some(c, SIZE_MAX);
    while (!sl_list_empty(&c->line)) {
        struct sl_etcd_call *call = sl_container_of(c->line.next, struct sl_etcd_call,
                                                    place);
        sl_list_remove(&call->place);
        call->done(call);
    }
}

static void free_secret(char *text)
{
    if (text != NULL) explicit_bzero(text, strlen(text));
    free(text);
}

void sl_etcd_free(struct sl_etcd *c)
{
    if (c == NULL) return;
    c->closing = true;
    sl_etcd_watch_close(c);
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
