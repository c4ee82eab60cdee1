/* test_etcd_client.c - the client of etcd against a server that misbehaves: what it says of a
 * request is what is known of it, and a request that may have been done is not sent twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "etcd_client_stage.h"
#include "odd_server.h"
#include "test.h"

#define OK "{\"header\":{\"revision\":\"7\"}}"
#define LATER_MS 10000 /* An answer that is not late on a slow machine. */
#define SOON_MS 300    /* For calls that are never answered. */

/* The fixture: one or two servers, a client of them, its call and its watch. */
static struct odd_server one, two;
static char both[200];
static struct sl_etcd_client *c;
static struct asked a;
static struct watched w;

/* Replaces the client. */
static void use_client(struct sl_etcd_client *next)
{
    sl_etcd_client_free(c);
    c = next;
}

static int tidy(void **state)
{
    (void)state;
    use_client(NULL);
    odd_end(&one);
    odd_end(&two);
    memset(&a, 0, sizeof a);
    memset(&w, 0, sizeof w);
    unsetenv("http_proxy");
    return 0;
}

static void begin_one(void (*serve)(struct odd_server *s, int fd), sl_ms answer_ms)
{
    odd_begin(&one, serve);
    use_client(client_of(one.url, answer_ms));
}

static void begin_both(void (*first)(struct odd_server *s, int fd),
                       void (*second)(struct odd_server *s, int fd), sl_ms answer_ms)
{
    odd_begin(&one, first);
    odd_begin(&two, second);
    snprintf(both, sizeof both, "%s,%s", one.url, two.url);
    use_client(client_of(both, answer_ms));
}

/* A call that must not be repeated, and one that may be. */
static void send_txn(void)
{
    call(c, &a, "/v3/kv/txn", "{}", false);
}

static void send_range(void)
{
    call(c, &a, "/v3/kv/range", "{}", true);
}

static void watch(uint64_t from)
{
    assert_int_equal(watch_from(c, &w, "k", from), SLUICE_OK);
}

static void expect(const struct asked *of, enum sl_etcd_fate fate, int status, int code,
                   const char *answer)
{
    static const char *const fates[] = {"ANSWERED", "LOST", "UNSENT"};
    assert_string_equal(fates[of->call.fate], fates[fate]);
    assert_int_equal(of->call.http_status, status);
    assert_int_equal(of->call.code, code);
    if (answer != NULL) assert_string_equal(of->answer, answer);
}

static void expect_ok(void)
{
    expect(&a, SL_ETCD_ANSWERED, 200, 0, OK);
}

/* --- Base64 and ranges --------------------------------------------------------- */

UNIT_TEST(base64_is_read_as_it_was_written)
{
    unsigned char bytes[300];
    char text[500], back[500];
    for (size_t n = 0; n <= sizeof bytes; n++) {
        size_t m = 0;
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(i * 37 + n);
        sl_etcd_base64_write(text, (struct sl_bytes){(char *)bytes, n});
        assert_int_equal(strlen(text) + 1, sl_etcd_base64_bytes(n));
        assert_true(sl_etcd_base64_read(text, back, &m));
        assert_int_equal(m, n);
        assert_memory_equal(back, bytes, n);
        assert_true(sl_etcd_base64_read(text, text, &m));
        assert_memory_equal(text, bytes, n);
    }
    sl_etcd_base64_write(text, (struct sl_bytes){"any carnal pleasure", 19});
    assert_string_equal(text, "YW55IGNhcm5hbCBwbGVhc3VyZQ==");
}

UNIT_TEST(invalid_base64_is_rejected)
{
    static const char *const bad[] = {"A",    "AA",   "AAA",      "A===",     "====",
                                      "AA=A", "AB==", "AAB=",     "AA==AAAA", "AA*A",
                                      "A A=", "AA-_", "AAAAAA==A"};
    char out[20];
    size_t n;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sl_etcd_base64_read(bad[i], out, &n)) fail_msg("%s was read", bad[i]);
}

UNIT_TEST(the_end_of_a_range_is_the_next_that_begins_otherwise)
{
    char out[8];
    size_t n;
    assert_true(sl_etcd_prefix_end((struct sl_bytes){"a/", 2}, out, &n));
    assert_int_equal(n, 2);
    assert_memory_equal(out, "a0", 2);
    assert_true(sl_etcd_prefix_end((struct sl_bytes){"a\xff\xff", 3}, out, &n));
    assert_int_equal(n, 1);
    assert_memory_equal(out, "b", 1);
    assert_false(sl_etcd_prefix_end((struct sl_bytes){"\xff\xff", 2}, out, &n));
    assert_false(sl_etcd_prefix_end((struct sl_bytes){"", 0}, out, &n));
}

/* --- Settings ------------------------------------------------------------------ */

static const char *refusal(const struct sl_etcd_settings *s)
{
    static char why[300];
    why[0] = '\0';
    assert_null(sl_etcd_client_new(s, why, sizeof why));
    return why;
}

static const char *refusal_of(const char *members)
{
    struct sl_etcd_settings s = settings_of(members, 1000);
    return refusal(&s);
}

UNIT_TEST(invalid_settings_are_rejected_with_a_message)
{
    assert_non_null(strstr(refusal_of(""), "missing"));
    assert_non_null(strstr(refusal_of("http://a:1,"), "missing"));
    assert_non_null(
        strstr(refusal_of("a:2379"), "must start with http:// or https://"));
    assert_non_null(strstr(refusal_of("ftp://a:2379"), "must start with"));
    assert_non_null(strstr(refusal_of("http://a:99999"), "invalid etcd URL"));
    assert_non_null(strstr(refusal_of("http://"), "must start with"));
    assert_non_null(strstr(refusal_of("http://a:1/v3"), "must end after"));
    assert_non_null(strstr(refusal_of("http://a:1?x"), "must end after"));
    struct sl_etcd_settings s = settings_of("https://a:1", 1000);
    s.ca = "/no/such/file";
    assert_string_equal(refusal(&s), "/no/such/file: No such file or directory");
    s.ca = "";
    s.cert = "/dev/null";
    assert_non_null(strstr(refusal(&s), "belong together"));
    s.cert = "";
    s.user = "user";
    s.password = "\xff\xfe";
    assert_non_null(strstr(refusal(&s), "UTF-8"));
}

UNIT_TEST(a_password_in_a_url_is_rejected_and_not_repeated)
{
    const char *why = refusal_of("http://root:geheim@a:2379");
    assert_non_null(strstr(why, "cannot contain a user"));
    assert_null(strstr(why, "geheim"));
}

/* --- Answers ------------------------------------------------------------------- */

static void serve_well(struct odd_server *s, int fd)
{
    struct odd_request r;
    while (odd_read(s, fd, &r)) odd_answer(fd, 200, OK);
}

UNIT_TEST(an_answer_is_an_answer_and_a_connection_is_used_again)
{
    begin_one(serve_well, LATER_MS);
    for (int i = 0; i < 20; i++) {
        call(c, &a, "/v3/kv/txn", "{}", i % 2 == 0);
        expect_ok();
    }
    assert_int_equal(one.connections, 1);
    assert_int_equal(one.requests, 20);
    assert_string_equal(sl_etcd_client_trouble(c), "");
}

UNIT_TEST(a_member_may_have_a_name)
{
    char url[64];
    odd_begin(&one, serve_well);
    snprintf(url, sizeof url, " http://localhost:%d/ ", one.port);
    use_client(client_of(url, LATER_MS));
    send_txn();
    expect_ok();
    use_client(client_of("http://no-such-host.invalid:1", LATER_MS));
    send_txn();
    expect(&a, SL_ETCD_UNSENT, 0, 0, NULL);
    begin_call(c, &a, "/v3/kv/txn", "{}", false);
    turn(c, 10);
    use_client(NULL); /* It does not wait for the answer of a name server. */
    assert_int_equal(a.times, 1);
}

UNIT_TEST(a_proxy_of_the_environment_is_not_asked)
{
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    begin_one(serve_well, LATER_MS);
    send_txn();
    expect_ok();
}

static void serve_a_redirect(struct odd_server *s, int fd)
{
    struct odd_request r;
    char text[300];
    snprintf(text, sizeof text,
             "HTTP/1.1 307 Away\r\nLocation: %s/v3/kv/txn\r\nContent-Length: 0\r\n\r\n",
             two.url);
    while (odd_read(s, fd, &r)) odd_send(fd, text);
}

UNIT_TEST(redirects_are_not_followed)
{
    begin_both(serve_a_redirect, serve_well, LATER_MS);
    use_client(client_of(one.url, LATER_MS));
    send_txn();
    expect(&a, SL_ETCD_ANSWERED, 307, 2, NULL);
    assert_int_equal(two.requests, 0);
}

static void serve_huge(struct odd_server *s, int fd)
{
    struct odd_request r;
    static char some[65536];
    memset(some, 'x', sizeof some - 1);
    while (odd_read(s, fd, &r)) {
        odd_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n{");
        for (int i = 0; i < 200; i++) odd_send(fd, some);
        odd_wait(fd);
    }
}

UNIT_TEST(an_answer_that_is_too_big_is_reported_to_be)
{
    begin_one(serve_huge, LATER_MS);
    a.call.answer_bytes_max = 100000;
    send_range();
    expect(&a, SL_ETCD_ANSWERED, 200, 0, "");
    assert_true(a.call.too_big);
}

/* --- Members that fail --------------------------------------------------------- */

UNIT_TEST(a_request_without_a_server_is_unsent)
{
    char words[200];
    begin_one(serve_well, LATER_MS);
    odd_end(&one); /* Nobody listens on its port now. */
    for (int i = 0; i < 3; i++) {
        call(c, &a, "/v3/kv/txn", "{}", i == 1);
        expect(&a, SL_ETCD_UNSENT, 0, 0, "Connection refused");
    }
    snprintf(words, sizeof words, "etcd: no member answers (%s: Connection refused)",
             one.url);
    assert_string_equal(sl_etcd_client_trouble(c), words);
}

UNIT_TEST(the_next_member_is_asked_when_one_is_not_there)
{
    begin_both(serve_well, serve_well, LATER_MS);
    odd_end(&one);
    for (int i = 0; i < 4; i++) {
        send_txn();
        expect_ok();
    }
    assert_int_equal(two.requests, 4);
    assert_string_equal(sl_etcd_client_trouble(c), "");
}

static void serve_nothing_but_read(struct odd_server *s, int fd)
{
    struct odd_request r;
    odd_read(s, fd, &r);
}

UNIT_TEST(a_request_that_was_read_and_not_answered_is_lost)
{
    begin_both(serve_nothing_but_read, serve_well, LATER_MS);
    send_txn();
    expect(&a, SL_ETCD_LOST, 0, 0, NULL);
    assert_int_equal(one.requests + two.requests, 1);
    assert_non_null(strstr(sl_etcd_client_trouble(c), one.url));
    send_txn(); /* That member is passed over. */
    expect_ok();
    assert_int_equal(one.requests, 1);
}

UNIT_TEST(a_request_that_only_reads_goes_to_the_next_member)
{
    begin_both(serve_nothing_but_read, serve_well, LATER_MS);
    send_range();
    expect_ok();
    assert_int_equal(one.requests, 1);
    assert_int_equal(two.requests, 1);
}

/* It answers the first request of a connection; the second it reads. */
static void serve_once(struct odd_server *s, int fd)
{
    struct odd_request r;
    if (!odd_read(s, fd, &r)) return;
    odd_answer(fd, 200, OK);
    odd_read(s, fd, &r);
}

UNIT_TEST(a_request_on_an_old_connection_is_not_sent_again_by_curl)
{
    begin_one(serve_once, LATER_MS);
    send_txn();
    expect_ok();
    send_txn();
    expect(&a, SL_ETCD_LOST, 0, 0, NULL);
    assert_int_equal(one.requests, 2);
}

/* It answers the first request of a connection and closes it. */
static void serve_and_close(struct odd_server *s, int fd)
{
    struct odd_request r;
    if (odd_read(s, fd, &r)) odd_answer(fd, 200, OK);
}

UNIT_TEST(a_connection_that_was_closed_is_made_anew)
{
    begin_one(serve_and_close, LATER_MS);
    for (int i = 0; i < 5; i++) {
        send_txn();
        expect_ok();
        while (one.open_now > 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    assert_int_equal(one.connections, 5);
}

static void serve_a_hangup(struct odd_server *s, int fd)
{
    (void)s, (void)fd;
}

UNIT_TEST(a_member_that_hangs_up_at_once_does_nothing)
{
    begin_one(serve_a_hangup, LATER_MS);
    send_txn();
    assert_int_not_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_int_equal(one.requests, 0);
}

static const char *halves[] = {
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"header\":",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n",
    "HTTP/1.1 200 OK\r\n\r\n{\"header\":",
    "HTTP/1.1 200 OK\r\nContent-Le",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 400 No\r\nContent-Length: 100\r\n\r\n{\"code\":3",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "SSH-2.0-OpenSSH_9.2\r\n",
    "\r\n\r\n\r\n",
    "",
};
static int half;

static void serve_a_half(struct odd_server *s, int fd)
{
    struct odd_request r;
    if (odd_read(s, fd, &r)) odd_send(fd, halves[half]);
}

UNIT_TEST(half_an_answer_and_nonsense_are_lost)
{
    begin_both(serve_a_half, serve_well, LATER_MS);
    for (half = 0; half < (int)(sizeof halves / sizeof *halves); half++) {
        use_client(client_of(both, LATER_MS));
        send_txn();
        if (a.call.fate != SL_ETCD_LOST) fail_msg("%d: %s", a.call.fate, halves[half]);
        assert_int_equal(two.requests, half);
        use_client(client_of(both, LATER_MS));
        send_range();
        expect_ok();
    }
}

static void serve_silence(struct odd_server *s, int fd)
{
    struct odd_request r;
    odd_read(s, fd, &r);
    odd_wait(fd);
}

UNIT_TEST(a_silent_member_is_given_up)
{
    begin_both(serve_silence, serve_well, SOON_MS);
    sl_ms begun = now_ms();
    send_txn();
    expect(&a, SL_ETCD_LOST, 0, 0, "no answer within 300 ms");
    assert_true(now_ms() - begun >= SOON_MS);
    send_txn();
    expect_ok();
}

static void serve_drops(struct odd_server *s, int fd)
{
    struct odd_request r;
    if (!odd_read(s, fd, &r)) return;
    odd_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{");
    while (!s->stops) {
        odd_send(fd, " ");
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
}

UNIT_TEST(an_answer_that_drips_is_given_up_in_the_end)
{
    begin_one(serve_drops, 200);
    sl_ms begun = now_ms();
    call(c, &a, "/v3/kv/range", "{}", false);
    expect(&a, SL_ETCD_LOST, 0, 0, NULL);
    assert_true(now_ms() - begun >= 400); /* It was not silent. */
}

/* --- Errors -------------------------------------------------------------------- */

static int error_status;
static const char *error_text;

static void serve_an_error(struct odd_server *s, int fd)
{
    struct odd_request r;
    while (odd_read(s, fd, &r)) odd_answer(fd, error_status, error_text);
}

UNIT_TEST(an_error_of_etcd_has_a_code_and_a_message)
{
    begin_both(serve_an_error, serve_well, LATER_MS);
    error_status = 400;
    error_text = "{\"error\":\"etcdserver: key is not provided\",\"code\":3,"
                 "\"message\":\"etcdserver: key is not provided\"}";
    send_txn();
    expect(&a, SL_ETCD_ANSWERED, 400, 3, "etcdserver: key is not provided");
    call(c, &a, "/v3/kv/txn", "{}", true);
    expect(&a, SL_ETCD_ANSWERED, 400, 3, "etcdserver: key is not provided");
    assert_string_equal(sl_etcd_client_trouble(c), "");
    error_status = 404;
    error_text = "404 page not found\n";
    send_txn();
    expect(&a, SL_ETCD_ANSWERED, 404, 2, "HTTP 404 404 page not found");
    error_status = 429;
    error_text = "{\"error\":\"x\",\"code\":8,\"message\":\"database space exceeded\"}";
    send_txn();
    expect(&a, SL_ETCD_ANSWERED, 429, 8, "database space exceeded");
    assert_int_equal(two.requests, 0);
}

UNIT_TEST(an_error_that_does_not_say_what_was_done_is_lost)
{
    static const int codes[] = {1, 2, 4, 13, 14};
    char text[200];
    begin_both(serve_an_error, serve_well, LATER_MS);
    for (int i = 0; i < 5; i++) {
        use_client(client_of(both, LATER_MS));
        snprintf(text, sizeof text, "{\"error\":\"etcdserver: no leader\",\"code\":%d}",
                 codes[i]);
        error_status = 503;
        error_text = text;
        send_txn();
        expect(&a, SL_ETCD_LOST, 503, codes[i], "etcdserver: no leader");
        assert_non_null(strstr(sl_etcd_client_trouble(c), "no leader"));
        assert_int_equal(two.requests, i);
        use_client(client_of(both, LATER_MS));
        send_range();
        expect_ok();
    }
}

/* --- User and password --------------------------------------------------------- */

#define SECRET "ganz\"geheim"
static atomic_int tokens, good_token; /* Given; taken. */

static void serve_with_tokens(struct odd_server *s, int fd)
{
    struct odd_request r;
    char wanted[64], text[64];
    while (odd_read(s, fd, &r)) {
        snprintf(wanted, sizeof wanted, "Authorization: token.%d\r\n", good_token);
        if (odd_asks_for(&r, "/v3/auth/authenticate")) {
            bool right = strstr(r.body, "\"password\":\"ganz\\\"geheim\"") != NULL;
            snprintf(text, sizeof text, "{\"token\":\"token.%d\"}", ++tokens);
            if (right) odd_answer(fd, 200, text);
            else
                odd_answer(
                    fd, 400,
                    "{\"error\":\"etcdserver: authentication failed, invalid user "
                    "ID or password\",\"code\":3}");
        } else if (strstr(r.head, wanted) != NULL) {
            odd_answer(fd, 200, OK);
        } else {
            odd_answer(fd, error_status, error_text);
        }
    }
}

static struct sl_etcd_client *client_with_user(const char *password)
{
    struct sl_etcd_settings s = settings_of(one.url, LATER_MS);
    s.user = "root";
    s.password = password;
    error_status = 401;
    error_text = "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}";
    tokens = 0;
    good_token = 1;
    return client_with(&s);
}

UNIT_TEST(a_token_is_requested_once_and_again_after_a_rejection)
{
    static const char *const refusals[] = {
        "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}",
        "{\"error\":\"etcdserver: user name is empty\",\"code\":3}",
        "{\"error\":\"auth: revision in header is old\",\"code\":2}",
        "{\"error\":\"etcdserver: revision of auth store is old\",\"code\":3}"};
    struct asked calls[5] = {0};
    odd_begin(&one, serve_with_tokens);
    use_client(client_with_user(SECRET));
    for (int round = 0; round < 4; round++) {
        error_text = refusals[round];
        good_token = round + 1;
        for (int i = 0; i < 5; i++) begin_call(c, &calls[i], "/v3/kv/txn", "{}", false);
        for (int i = 0; i < 5; i++) {
            await_call(c, &calls[i]);
            expect(&calls[i], SL_ETCD_ANSWERED, 200, 0, OK);
        }
        assert_int_equal(tokens, round + 1);
    }
    assert_string_equal(sl_etcd_client_trouble(c), "");
}

UNIT_TEST(a_token_that_is_always_rejected_is_an_error)
{
    odd_begin(&one, serve_with_tokens);
    use_client(client_with_user(SECRET));
    good_token = -1;
    send_txn();
    expect(&a, SL_ETCD_ANSWERED, 401, 16, "etcdserver: invalid auth token");
    assert_int_equal(tokens, 2);
    assert_string_equal(sl_etcd_client_trouble(c),
                        "etcd: etcdserver: invalid auth token");
}

UNIT_TEST(a_wrong_password_is_reported_and_not_tried_all_the_time)
{
    odd_begin(&one, serve_with_tokens);
    use_client(client_with_user("falsch"));
    for (int i = 0; i < 10; i++) {
        send_txn();
        expect(&a, SL_ETCD_ANSWERED, i == 0 ? 400 : a.call.http_status, 16,
               "wrong user or password");
        assert_string_equal(sl_etcd_client_trouble(c), "etcd: wrong user or password");
    }
    assert_true(tokens < 10);
    watch(0);
    await_end(c, &w);
    assert_string_equal(w.why, "wrong user or password");
}

UNIT_TEST(without_a_member_for_a_token_calls_are_unsent)
{
    odd_begin(&one, serve_nothing_but_read);
    use_client(client_with_user(SECRET));
    send_txn();
    expect(&a, SL_ETCD_UNSENT, 0, 0, NULL);
    assert_null(strstr(sl_etcd_client_trouble(c), "geheim"));
}

static void serve_without_auth(struct odd_server *s, int fd)
{
    struct odd_request r;
    while (odd_read(s, fd, &r)) {
        if (odd_asks_for(&r, "/v3/auth/authenticate"))
            odd_answer(fd, 400,
                       "{\"error\":\"etcdserver: authentication is not enabled\","
                       "\"code\":9}");
        else odd_answer(fd, 200, strstr(r.head, "Authorization") == NULL ? OK : "{}");
    }
}

UNIT_TEST(an_etcd_without_users_is_asked_without_one)
{
    odd_begin(&one, serve_without_auth);
    use_client(client_with_user(SECRET));
    for (int i = 0; i < 3; i++) {
        send_txn();
        expect_ok();
    }
    assert_int_equal(one.requests, 4);
}

static void serve_a_bad_token(struct odd_server *s, int fd)
{
    struct odd_request r;
    while (odd_read(s, fd, &r)) odd_answer(fd, 200, "{\"token\":\"a\\r\\nX-Evil: 1\"}");
}

UNIT_TEST(a_token_is_one_word)
{
    odd_begin(&one, serve_a_bad_token);
    use_client(client_with_user(SECRET));
    send_txn();
    expect(&a, SL_ETCD_UNSENT, 200, 0, "etcd returned no token");
    assert_int_equal(one.requests, 1);
}

/* --- Many, time, the end ------------------------------------------------------- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void serve_behind_a_gate(struct odd_server *s, int fd)
{
    struct odd_request r;
    while (odd_read(s, fd, &r)) {
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
        odd_answer(fd, 200, OK);
    }
}

#define MANY 200
static struct asked many[MANY];

UNIT_TEST(connections_are_bounded_and_all_calls_are_answered)
{
    begin_one(serve_behind_a_gate, LATER_MS);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < MANY; i++) begin_call(c, &many[i], "/v3/kv/txn", "{}", false);
    while (one.requests < 20) turn(c, 10);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < MANY; i++) {
        await_call(c, &many[i]);
        expect(&many[i], SL_ETCD_ANSWERED, 200, 0, OK);
    }
    assert_true(one.open_most <= 32);
    assert_int_equal(one.requests, MANY);
}

UNIT_TEST(work_calls_done_at_most_as_often_as_allowed)
{
    struct asked calls[10] = {0};
    begin_one(serve_well, LATER_MS);
    odd_end(&one);
    int all = 0;
    for (int i = 0; i < 10; i++) begin_call(c, &calls[i], "/v3/kv/txn", "{}", false);
    while (all < 10) {
        int before = all;
        sl_etcd_client_work(c, 2);
        all = 0;
        for (int i = 0; i < 10; i++) all += calls[i].times;
        assert_true(all - before <= 2);
    }
}

static int woken_times;
static void woken(void *owner)
{
    woken_times++;
    *(sl_ms *)owner = now_ms();
}

UNIT_TEST(it_wakes_up_at_a_time)
{
    sl_ms at = 0, begun = now_ms();
    use_client(client_of("http://127.0.0.1:1", LATER_MS));
    woken_times = 0;
    sl_etcd_client_wake_at(c, begun + 50, woken, &at);
    while (woken_times == 0 && now_ms() < begun + 20000) turn(c, 20000);
    assert_true(at >= begun + 50);
    sl_etcd_client_wake_at(c, now_ms() - 5, woken, &at);
    while (woken_times == 1 && now_ms() < begun + 20000) turn(c, 20000);
    sl_etcd_client_wake_at(c, now_ms() + 20, woken, &at);
    sl_etcd_client_wake_at(c, SL_NEVER, woken, &at);
    for (int i = 0; i < 5; i++) turn(c, 20);
    assert_int_equal(woken_times, 2);
}

UNIT_TEST(at_the_end_each_call_is_lost_or_unsent)
{
    int fates[3] = {0};
    begin_one(serve_silence, LATER_MS);
    for (int i = 0; i < MANY; i++) begin_call(c, &many[i], "/v3/kv/txn", "{}", i % 2);
    while (one.requests < 20) turn(c, 10);
    use_client(NULL);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(many[i].times, 1);
        fates[many[i].call.fate]++;
    }
    assert_int_equal(fates[SL_ETCD_ANSWERED], 0);
    assert_true(fates[SL_ETCD_LOST] >= one.requests);
    assert_true(fates[SL_ETCD_UNSENT] >= MANY - 32);
}

static void ask_again(struct sl_etcd_call *done)
{
    (void)done;
    begin_call(c, &a, "/v3/kv/txn", "{}", false);
}

UNIT_TEST(a_call_may_be_sent_from_the_end_of_another)
{
    struct sl_etcd_call first = {
        .path = "/v3/kv/txn", .body = {"{}", 2}, .done = ask_again};
    begin_one(serve_well, LATER_MS);
    sl_etcd_client_send(c, &first);
    await_call(c, &a);
    expect_ok();
}

/* --- Watches ------------------------------------------------------------------- */

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
#define CREATED "{\"result\":{\"created\":true}}\n"
static atomic_int watch_part; /* How far the test has come. */

static void serve_a_watch(struct odd_server *s, int fd)
{
    struct odd_request r;
    if (!odd_read(s, fd, &r)) return;
    if (!odd_asks_for(&r, "/v3/watch") || strstr(r.body, "\"key\":\"aw==\"") == NULL ||
        strstr(r.body, "\"start_revision\":\"5\"") == NULL) {
        odd_answer(fd, 400, "{\"error\":\"wrong\",\"code\":3}");
        return;
    }
    odd_send(fd, STREAM CREATED "{\"result\":{\"ev");
    while (watch_part == 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
    odd_send(fd, "ents\":1}}\n\n{\"result\":2}\n{\"half");
    while (watch_part == 1) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

UNIT_TEST(a_watch_delivers_whole_objects_and_ends_once)
{
    begin_one(serve_a_watch, LATER_MS);
    watch_part = 0;
    watch(5);
    await_told(c, &w, "created");
    assert_int_equal(w.told, 1);
    watch_part = 1;
    await_told(c, &w, "2}");
    assert_string_equal(w.all, CREATED "{\"result\":{\"events\":1}}\n{\"result\":2}\n");
    watch_part = 2;
    await_end(c, &w);
    assert_string_equal(w.why, "");
    for (int i = 0; i < 10; i++) turn(c, 10);
    assert_int_equal(w.ended, 1);
    assert_int_equal(w.told, 3);
}

static void serve_only_a_watch(struct odd_server *s, int fd)
{
    struct odd_request r;
    if (!odd_read(s, fd, &r) || !odd_asks_for(&r, "/v3/watch")) return;
    odd_send(fd, STREAM CREATED);
    while (watch_part == 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
    odd_send(fd, "{\"result\":{\"events\":[{}]}}\n");
    odd_wait(fd);
}

UNIT_TEST(an_event_of_a_watch_ends_the_trouble_of_an_earlier_request)
{
    begin_one(serve_only_a_watch, LATER_MS);
    watch_part = 0;
    watch(0);
    await_told(c, &w, "created");
    send_txn();
    expect(&a, SL_ETCD_LOST, 0, 0, NULL);
    assert_string_not_equal(sl_etcd_client_trouble(c), "");
    watch_part = 1;
    await_told(c, &w, "events");
    assert_string_equal(sl_etcd_client_trouble(c), "");
}

UNIT_TEST(a_watch_that_is_ended_inside_says_no_more)
{
    begin_one(serve_a_watch, LATER_MS);
    watch_part = 1;
    w.stop_at_once = true;
    watch(5);
    while (w.told == 0) turn(c, 20000);
    watch_part = 2;
    for (int i = 0; i < 10; i++) turn(c, 10);
    assert_int_equal(w.told, 1);
    assert_int_equal(w.ended, 0);
}

static const char *watch_line;

static void serve_a_line(struct odd_server *s, int fd)
{
    struct odd_request r;
    if (!odd_read(s, fd, &r)) return;
    if (!odd_asks_for(&r, "/v3/watch")) {
        odd_wait(fd); /* The probe. */
        return;
    }
    odd_send(fd, watch_line);
    if (strstr(watch_line, " 200 ") != NULL || watch_line[0] == '\0') odd_wait(fd);
}

UNIT_TEST(a_watch_that_etcd_closed_has_ended)
{
    static const char *const lines[][2] = {
        {STREAM "{\"result\":{\"canceled\":true,\"cancel_reason\":\"old news\"}}\n",
         "old news"},
        {STREAM "{\"error\":{\"grpc_code\":14,\"message\":\"closing\"}}\n", "closing"},
        {"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\nNo", "HTTP 400"},
        {"HTTP/1.1 400 No\r\nContent-Length: 29\r\n\r\n{\"code\":3,\"message\":\"not "
         "so\"}",
         "not so"},
    };
    begin_one(serve_a_line, LATER_MS);
    for (int i = 0; i < 4; i++) {
        watch_line = lines[i][0];
        watch(5);
        await_end(c, &w);
        assert_string_equal(w.why, lines[i][1]);
    }
}

UNIT_TEST(a_silent_watch_is_over_if_its_member_is_silent_too)
{
    static const char *const lines[] = {"", STREAM, STREAM CREATED};
    begin_one(serve_a_line, SOON_MS);
    for (int i = 0; i < 3; i++) {
        watch_line = lines[i];
        watch(5);
        await_end(c, &w);
        assert_string_equal(w.why, "no answer within 300 ms");
        assert_int_equal(w.told, i == 2);
    }
}

static void serve_a_quiet_watch(struct odd_server *s, int fd)
{
    struct odd_request r;
    while (odd_read(s, fd, &r)) {
        if (odd_asks_for(&r, "/v3/watch")) odd_send(fd, STREAM CREATED);
        else odd_answer(fd, 200, OK);
    }
}

UNIT_TEST(a_silent_watch_continues_while_its_member_answers)
{
    begin_one(serve_a_quiet_watch, 500);
    watch(0);
    sl_ms end = now_ms() + 20000;
    while (one.requests < 4 && now_ms() < end) turn(c, 1000);
    assert_true(one.requests >= 4); /* Three probes. */
    assert_int_equal(w.told, 1);
    assert_int_equal(w.ended, 0);
}

static void serve_an_endless_object(struct odd_server *s, int fd)
{
    struct odd_request r;
    static char some[65536];
    memset(some, 'x', sizeof some - 1);
    if (!odd_read(s, fd, &r)) return;
    odd_send(fd, STREAM);
    for (int i = 0; i < 400 && !s->stops; i++) odd_send(fd, some);
}

UNIT_TEST(an_object_without_an_end_is_too_big)
{
    begin_one(serve_an_endless_object, LATER_MS);
    watch(0);
    await_end(c, &w);
    assert_string_equal(w.why, "an event of a watch is too large");
}

int main(void)
{
    return run_unit_tests_with("etcd_client", NULL, tidy);
}
