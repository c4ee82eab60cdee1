#include "etcd_client_stage.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test.h"

#define AWAIT_MS 30000

sl_ms now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct sl_etcd_settings settings_of(const char *members, sl_ms answer_ms)
{
    return (struct sl_etcd_settings){.members = members,
                                     .prefix = "",
                                     .user = "",
                                     .password = "",
                                     .ca = "",
                                     .cert = "",
                                     .key = "",
                                     .answer_ms = answer_ms};
}

struct sl_etcd_client *client_with(const struct sl_etcd_settings *s)
{
    char why[300] = "";
    struct sl_etcd_client *c = sl_etcd_client_new(s, why, sizeof why);
    if (c == NULL) fail_msg("%s", why);
    return c;
}

struct sl_etcd_client *client_of(const char *members, sl_ms answer_ms)
{
    struct sl_etcd_settings s = settings_of(members, answer_ms);
    return client_with(&s);
}

void turn(struct sl_etcd_client *c, int most_ms)
{
    struct pollfd p = {.fd = sl_etcd_client_fd(c), .events = POLLIN};
    if (poll(&p, 1, most_ms) > 0)
        while (sl_etcd_client_work(c, 3)) {}
}

static void done(struct sl_etcd_call *call_done)
{
    struct asked *a = call_done->owner;
    size_t n = call_done->answer.n;
    a->times++;
    if (n >= sizeof a->answer) n = sizeof a->answer - 1;
    memcpy(a->answer, call_done->answer.at, n);
    a->answer[n] = '\0';
}

void begin_call(struct sl_etcd_client *c, struct asked *a, const char *path,
                const char *body, bool repeatable)
{
    a->times = 0;
    a->call.path = path;
    a->call.body = (struct sl_bytes){body, strlen(body)};
    a->call.repeatable = repeatable;
    a->call.done = done;
    a->call.owner = a;
    sl_etcd_client_send(c, &a->call);
    assert_int_equal(a->times, 0);
}

void await_call(struct sl_etcd_client *c, struct asked *a)
{
    sl_ms end = now_ms() + AWAIT_MS;
    while (a->times == 0 && now_ms() < end) turn(c, AWAIT_MS);
    assert_int_equal(a->times, 1);
}

void call(struct sl_etcd_client *c, struct asked *a, const char *path, const char *body,
          bool repeatable)
{
    begin_call(c, a, path, body, repeatable);
    await_call(c, a);
}

static void told(void *owner, struct sl_bytes json)
{
    struct watched *w = owner;
    size_t used = strlen(w->all);
    w->told++;
    assert_int_equal(w->ended, 0);
    if (used + json.n + 2 < sizeof w->all) {
        memcpy(w->all + used, json.at, json.n);
        memcpy(w->all + used + json.n, "\n", 2);
    }
    if (w->stop_at_once) sl_etcd_client_unwatch(w->client);
}

static void ended(void *owner, const char *why)
{
    struct watched *w = owner;
    w->ended++;
    snprintf(w->why, sizeof w->why, "%s", why);
}

int watch_from(struct sl_etcd_client *c, struct watched *w, const char *key,
               uint64_t from)
{
    struct sl_etcd_watch is = {.key = {key, strlen(key)},
                               .end = {"", 0},
                               .from = from,
                               .on_object = told,
                               .on_end = ended,
                               .owner = w};
    w->client = c;
    w->told = w->ended = 0;
    w->all[0] = w->why[0] = '\0';
    return sl_etcd_client_watch(c, &is);
}

void await_told(struct sl_etcd_client *c, struct watched *w, const char *words)
{
    sl_ms end = now_ms() + AWAIT_MS;
    while (strstr(w->all, words) == NULL && w->ended == 0 && now_ms() < end)
        turn(c, AWAIT_MS);
    if (strstr(w->all, words) == NULL)
        fail_msg("\"%s\" was not told; ended %d times: %s; told: %s", words, w->ended,
                 w->why, w->all);
}

void await_end(struct sl_etcd_client *c, struct watched *w)
{
    sl_ms end = now_ms() + AWAIT_MS;
    while (w->ended == 0 && now_ms() < end) turn(c, AWAIT_MS);
    assert_int_equal(w->ended, 1);
}
