/* test_etcd_memory.c - the client of etcd without memory: every allocation fails once, those of
 * jansson included, and every function of curl that says so when it has none. (What curl does
 * inside is left alone: 7.88 divides by zero when a socket finds no room in its hash.) Each call
 * is done exactly once, none is said to be UNSENT that the server has read, nothing is corrupt
 * (the sanitizer looks), and with memory all goes on. */
#include <curl/curl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "etcd_client_stage.h"
#include "failing_alloc.h"
#include "odd_server.h"
#include "test.h"

#define ANSWER_MS 200
#define CALLS 4

/* --- What needs memory besides --------------------------------------------------- */

char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_asprintf(char **out, const char *format, ...);

char *__wrap_strdup(const char *s)
{
    return memory_fails_now() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return memory_fails_now() ? NULL : __real_strndup(s, n);
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list list;
    if (memory_fails_now()) return -1;
    va_start(list, format);
    int n = vasprintf(out, format, list);
    va_end(list);
    return n;
}

CURL *__real_curl_easy_init(void);
CURLM *__real_curl_multi_init(void);
CURLU *__real_curl_url(void);
struct curl_slist *__real_curl_slist_append(struct curl_slist *l, const char *s);
CURLMcode __real_curl_multi_add_handle(CURLM *m, CURL *e);
CURL *__wrap_curl_easy_init(void);
CURLM *__wrap_curl_multi_init(void);
CURLU *__wrap_curl_url(void);
struct curl_slist *__wrap_curl_slist_append(struct curl_slist *l, const char *s);
CURLMcode __wrap_curl_multi_add_handle(CURLM *m, CURL *e);

CURL *__wrap_curl_easy_init(void)
{
    return memory_fails_now() ? NULL : __real_curl_easy_init();
}

CURLM *__wrap_curl_multi_init(void)
{
    return memory_fails_now() ? NULL : __real_curl_multi_init();
}

CURLU *__wrap_curl_url(void)
{
    return memory_fails_now() ? NULL : __real_curl_url();
}

struct curl_slist *__wrap_curl_slist_append(struct curl_slist *l, const char *s)
{
    return memory_fails_now() ? NULL : __real_curl_slist_append(l, s);
}

CURLMcode __wrap_curl_multi_add_handle(CURLM *m, CURL *e)
{
    return memory_fails_now() ? CURLM_OUT_OF_MEMORY
                              : __real_curl_multi_add_handle(m, e);
}

/* --- The server ---------------------------------------------------------------- */

#define BODY "{\"number\":%d}"
static atomic_int seen[CALLS + 1]; /* Whether it has read the call. */

static void serve(struct odd_server *s, int fd)
{
    struct odd_request r;
    int number;
    while (odd_read(s, fd, &r)) {
        if (odd_asks_for(&r, "/v3/auth/authenticate")) {
            odd_answer(fd, 200, "{\"token\":\"one\"}");
        } else if (odd_asks_for(&r, "/v3/watch")) {
            odd_send(fd, "HTTP/1.1 200 OK\r\n\r\n{\"created\":true}\n");
            odd_wait(fd);
        } else if (strstr(r.head, "Authorization: one\r\n") == NULL) {
            odd_answer(fd, 401, "{\"error\":\"invalid auth token\",\"code\":16}");
        } else if (sscanf(r.body, BODY, &number) != 1) {
            odd_answer(fd, 200, "{}"); /* A probe. */
        } else {
            atomic_fetch_add(&seen[number], 1);
            if (number == 1) odd_answer(fd, 400, "{\"error\":\"no\",\"code\":3}");
            else odd_answer(fd, 200, "{}");
        }
    }
}

/* --- The test ------------------------------------------------------------------ */

static struct odd_server server;
static struct asked asked[CALLS + 1];
static struct watched watched;

static void check(int i)
{
    const struct asked *a = &asked[i];
    if (a->call.fate == SL_ETCD_UNSENT && atomic_load(&seen[i]) != 0)
        fail_msg("call %d was said to be UNSENT, and was read", i);
    if (!a->call.repeatable && atomic_load(&seen[i]) > 1)
        fail_msg("call %d was sent %d times", i, atomic_load(&seen[i]));
}

static void send_numbered(struct sl_etcd_client *c, int i)
{
    static char bodies[CALLS + 1][32];
    snprintf(bodies[i], sizeof bodies[i], BODY, i);
    begin_call(c, &asked[i], "/v3/kv/txn", bodies[i], i == 2);
}

static void run(struct sl_etcd_client *c)
{
    int status = watch_from(c, &watched, "k", 0);
    for (int i = 0; i < CALLS; i++) send_numbered(c, i);
    for (int i = 0; i < CALLS; i++) await_call(c, &asked[i]);
    sl_ms end = now_ms() + 10000;
    while (status == SLUICE_OK && watched.told + watched.ended == 0 && now_ms() < end)
        turn(c, 10000);
    assert_true(status == SLUICE_ENOMEM || watched.told + watched.ended > 0);
    /* Memory is back. */
    memory_is_back();
    send_numbered(c, CALLS);
    await_call(c, &asked[CALLS]);
    if (asked[CALLS].call.fate != SL_ETCD_ANSWERED)
        fail_msg("with memory: %s", asked[CALLS].answer);
    for (int i = 0; i <= CALLS; i++) {
        assert_int_equal(asked[i].times, 1);
        check(i);
    }
}

/* False: there were not so many allocations. */
static bool try_without(long n)
{
    char why[300] = "";
    struct sl_etcd_settings s = settings_of(server.url, ANSWER_MS);
    s.user = "root";
    s.password = "geheim";
    memset(asked, 0, sizeof asked);
    memset(seen, 0, sizeof seen);
    memory_fails_after(n);
    struct sl_etcd_client *c = sl_etcd_client_new(&s, why, sizeof why);
    if (c != NULL) run(c);
    else assert_string_not_equal(why, "");
    sl_etcd_client_free(c);
    memory_is_back();
    return memory_failures() > 0;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    json_set_alloc_funcs(malloc, free); /* Which is the failing one. */
    long n = 0;
    do {
        odd_begin(&server, serve); /* Again: it serves this many connections only. */
        for (int i = 0; i < 20 && try_without(n); i++) n++;
        odd_end(&server);
    } while (memory_failures() > 0);
    print_message("# %ld allocations\n", n);
    assert_true(n > 50);
    curl_global_cleanup();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
