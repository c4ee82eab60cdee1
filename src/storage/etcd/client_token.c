/* client_token.c - gets a token from etcd for a user and a password. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/etcd/client_internal.h"

#define AUTH_PATH "/v3/auth/authenticate"
#define TOKEN_BYTES_MAX 8192
#define WRONG_USER "wrong user or password"

/* Recognize all errors with which etcd 3.4 rejects a token. After any of them,
 * etcd has not executed the request. */
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
        if (s->code != 0 && strstr(s->message, ways[i]) != NULL) return true;
    return false;
}

static void set_token(struct sl_etcd_client *c, char *token)
{
    if (c->token != NULL) explicit_bzero(c->token, strlen(c->token));
    free(c->token);
    c->token = token;
    c->token_number++;
}

/* Return whether the text is a valid token. The client puts the token into an HTTP
 * header, so the token must not contain a line break. */
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
    memcpy(s->message, auth->message, sizeof s->message);
    s->member = auth->member;
    s->tried = auth->tried;
    s->too_big = false;
    s->answer_bytes = 0;
    sl_etcd_slot_end(s, auth->fate);
}

static void start_waiting(struct sl_etcd_slot *s)
{
    if (s->state == SL_ETCD_SLOT_WAITS) sl_etcd_slot_start(s);
}

/* The request for a token has ended, with or without a token: continue the slots that
 * wait for it. */
static void auth_over(struct sl_etcd_slot *auth)
{
    struct sl_etcd_client *c = auth->c;
    bool ok = auth->fate == SL_ETCD_ANSWERED;
    if (ok && auth->code == SL_ETCD_GRPC_PRECONDITION) {
        c->no_auth = true; /* "authentication is not enabled" */
    } else if (ok && auth->code == 0) {
        char *token = auth->too_big ? NULL : read_token(auth);
        ok = token != NULL;
        if (ok) set_token(c, token);
        if (!ok)
            snprintf(auth->message, sizeof auth->message, "%s",
                     "etcd returned no token");
    } else if (ok) {
        ok = false;
        if (auth->code == SL_ETCD_GRPC_INVALID ||
            auth->code == SL_ETCD_GRPC_UNAUTHENTICATED) {
            auth->code = SL_ETCD_GRPC_UNAUTHENTICATED;
            snprintf(auth->message, sizeof auth->message, WRONG_USER);
            c->refused_until_ms = sl_etcd_now() + SL_ETCD_REFUSED_MS;
        }
    }
    if (auth->answer != NULL) explicit_bzero(auth->answer, auth->answer_capacity);
    /* The waiting requests were not sent, whatever the outcome of this one is. */
    if (!ok && auth->code == 0) auth->fate = SL_ETCD_UNSENT;
    if (auth->fate == SL_ETCD_LOST) auth->fate = SL_ETCD_UNSENT;
    for (size_t i = 0; i < SL_ETCD_CALLS_MAX; i++)
        if (ok) start_waiting(&c->slots[i]);
        else end_without_token(&c->slots[i], auth);
    if (ok) start_waiting(&c->watch.probe), start_waiting(&c->watch.slot);
    else
        end_without_token(&c->watch.probe, auth),
            end_without_token(&c->watch.slot, auth);
}

static void request_token(struct sl_etcd_client *c)
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

/* Drop the token only if this slot used the newest one: another slot may already have
 * requested a new token. */
bool sl_etcd_token_again(struct sl_etcd_slot *s)
{
    struct sl_etcd_client *c = s->c;
    if (c->auth_body == NULL || s->without_token || s->asked_again) return false;
    s->asked_again = true;
    c->no_auth = false;
    if (s->headers_of == c->token_number) set_token(c, NULL);
    sl_etcd_slot_start(s);
    return true;
}

bool sl_etcd_token_needed(const struct sl_etcd_slot *s)
{
    const struct sl_etcd_client *c = s->c;
    return !s->without_token && c->auth_body != NULL && !c->no_auth && c->token == NULL;
}

void sl_etcd_token_await(struct sl_etcd_slot *s)
{
    struct sl_etcd_client *c = s->c;
    s->state = SL_ETCD_SLOT_WAITS;
    if (c->refused_until_ms <= sl_etcd_now()) {
        request_token(c);
        return;
    }
    s->http_status = 401;
    s->code = SL_ETCD_GRPC_UNAUTHENTICATED;
    s->too_big = false;
    snprintf(s->message, sizeof s->message, WRONG_USER);
    sl_etcd_slot_end(s, SL_ETCD_ANSWERED);
}
