/* test_etcd_members.c - the client of etcd and real members: what they answer, users, https,
 * members that are killed, paused, or left without a majority. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "etcd_client_stage.h"
#include "etcd_stage.h"
#include "test.h"

#define LATER_MS 20000
#define SOON_MS 1000

/* "k", "v" and "w" as base64. */
#define PUT_V "{\"key\":\"aw==\",\"value\":\"dg==\"}"
#define PUT_W "{\"key\":\"aw==\",\"value\":\"dw==\"}"
#define GET "{\"key\":\"aw==\"}"

static struct etcd_stage etcd;

static void begin(int count)
{
    if (!etcd_begin(&etcd, count)) skip();
}

static int tidy(void **state)
{
    (void)state;
    etcd_end(&etcd);
    return 0;
}

static void answered(const struct asked *a, const char *words)
{
    if (a->call.fate != SL_ETCD_ANSWERED || a->call.http_status != 200 ||
        strstr(a->answer, words) == NULL)
        fail_msg("fate %d, HTTP %d, code %d: %s", a->call.fate, a->call.http_status,
                 a->call.code, a->answer);
}

static void etcd_answers(void **state)
{
    (void)state;
    struct asked a = {0};
    begin(1);
    struct sl_etcd_client *c = client_of(etcd.members, LATER_MS);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    call(c, &a, "/v3/kv/range", GET, true);
    answered(&a, "\"value\":\"dg==\"");
    call(c, &a, "/v3/kv/txn",
         "{\"compare\":[{\"key\":\"aw==\",\"target\":\"VALUE\",\"value\":\"dg==\"}],"
         "\"success\":[{\"request_put\":" PUT_W "}]}",
         false);
    answered(&a, "\"succeeded\":true");
    call(c, &a, "/v3/kv/put", "{}", false);
    assert_int_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_int_equal(a.call.http_status, 400);
    assert_int_equal(a.call.code, 3);
    assert_string_equal(a.answer, "etcdserver: key is not provided");
    call(c, &a, "/v3/kv/put", "{this is no JSON", false);
    assert_int_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_int_not_equal(a.call.code, 0);
    call(c, &a, "/no/such/path", "{}", false);
    assert_int_equal(a.call.http_status, 404);
    sl_etcd_client_free(c);
}

static void a_watch_tells_what_changes(void **state)
{
    (void)state;
    struct asked a = {0};
    struct watched w = {0};
    begin(1);
    struct sl_etcd_client *c = client_of(etcd.members, SOON_MS);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    assert_int_equal(watch_from(c, &w, "k", 2), SLUICE_OK);
    await_told(c, &w, "\"value\":\"dg==\"");
    sl_ms end = now_ms() + 2 * SOON_MS + 500; /* It says nothing for a while. */
    while (now_ms() < end) turn(c, 100);
    call(c, &a, "/v3/kv/put", PUT_W, false);
    await_told(c, &w, "\"value\":\"dw==\"");
    assert_int_equal(w.ended, 0);
    /* What was compacted is not there to be told. */
    call(c, &a, "/v3/kv/compaction", "{\"revision\":\"3\"}", false);
    assert_int_equal(watch_from(c, &w, "k", 1), SLUICE_OK);
    await_end(c, &w);
    assert_non_null(strstr(w.all, "\"compact_revision\":\"3\""));
    sl_etcd_client_free(c);
}

static void a_watch_ends_with_its_member(void **state)
{
    (void)state;
    struct asked a = {0};
    struct watched w = {0};
    begin(1);
    struct sl_etcd_client *c = client_of(etcd.members, SOON_MS);
    assert_int_equal(watch_from(c, &w, "k", 0), SLUICE_OK);
    await_told(c, &w, "created");
    etcd_kill(&etcd, 0);
    await_end(c, &w);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    assert_int_equal(a.call.fate, SL_ETCD_UNSENT);
    assert_non_null(strstr(sl_etcd_client_trouble(c), "Connection refused"));
    assert_int_equal(watch_from(c, &w, "k", 0), SLUICE_OK);
    await_end(c, &w);
    assert_string_equal(w.why, "Connection refused");
    etcd_start(&etcd, 0);
    etcd_await(&etcd);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    assert_string_equal(sl_etcd_client_trouble(c), "");
    assert_int_equal(watch_from(c, &w, "k", 1), SLUICE_OK);
    await_told(c, &w, "dg==");
    sl_etcd_client_free(c);
}

/* --- Users --------------------------------------------------------------------- */

static void tell_etcd(const char *path, const char *json)
{
    int status = 0;
    char *answer = etcd_ask(&etcd, 0, path, json, &status);
    if (status != 200) fail_msg("%s: HTTP %d: %s", path, status, answer);
    free(answer);
}

static void begin_with_users(void)
{
    begin(1);
    tell_etcd("/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"geheim\"}");
    tell_etcd("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    tell_etcd("/v3/auth/user/add", "{\"name\":\"guest\",\"password\":\"gast\"}");
    tell_etcd("/v3/auth/enable", "{}");
}

static struct sl_etcd_client *client_as(const char *user, const char *password)
{
    struct sl_etcd_settings s = settings_of(etcd.members, LATER_MS);
    s.user = user;
    s.password = password;
    return client_with(&s);
}

static void a_user_has_a_token_and_another_after_a_restart(void **state)
{
    (void)state;
    struct asked a = {0};
    struct watched w = {0};
    begin_with_users();
    struct sl_etcd_client *c = client_as("root", "geheim");
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    etcd_kill(&etcd, 0); /* It forgets its tokens. */
    etcd_start(&etcd, 0);
    etcd_await(&etcd);
    call(c, &a, "/v3/kv/put", PUT_W, false);
    answered(&a, "revision");
    etcd_kill(&etcd, 0);
    etcd_start(&etcd, 0);
    etcd_await(&etcd);
    assert_int_equal(watch_from(c, &w, "k", 1), SLUICE_OK);
    await_told(c, &w, "dw==");
    assert_int_equal(w.ended, 0);
    /* Users that change make tokens of etcd 3.4 old. */
    call(c, &a, "/v3/auth/user/add", "{\"name\":\"b\",\"password\":\"c\"}", false);
    answered(&a, "revision");
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    sl_etcd_client_free(c);
}

static void who_is_not_a_user_is_told_so(void **state)
{
    (void)state;
    struct asked a = {0};
    struct watched w = {0};
    begin_with_users();
    struct sl_etcd_client *c = client_as("root", "falsch");
    call(c, &a, "/v3/kv/put", PUT_V, false);
    assert_int_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_int_equal(a.call.code, 16);
    assert_string_equal(sl_etcd_client_trouble(c), "etcd: wrong user or password");
    sl_etcd_client_free(c);
    c = client_of(etcd.members, LATER_MS);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    assert_int_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_string_equal(sl_etcd_client_trouble(c),
                        "etcd: etcdserver: user name is empty");
    sl_etcd_client_free(c);
    c = client_as("guest", "gast");
    call(c, &a, "/v3/kv/put", PUT_V, false);
    assert_int_equal(a.call.code, 7);
    assert_string_equal(sl_etcd_client_trouble(c),
                        "etcd: etcdserver: permission denied");
    assert_int_equal(watch_from(c, &w, "k", 0), SLUICE_OK);
    await_end(c, &w);
    assert_non_null(strstr(w.why, "ermission"));
    sl_etcd_client_free(c);
}

static void users_that_etcd_wants_later_are_given(void **state)
{
    (void)state;
    struct asked a = {0};
    begin(1);
    struct sl_etcd_client *c = client_as("root", "geheim");
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    tell_etcd("/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"geheim\"}");
    tell_etcd("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    tell_etcd("/v3/auth/enable", "{}");
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    sl_etcd_client_free(c);
}

/* --- https --------------------------------------------------------------------- */

static void https_with_certificates_on_both_sides(void **state)
{
    (void)state;
    struct asked a = {0};
    char ca[200], cert[200], key[200], other[200];
    if (!etcd_begin_tls(&etcd)) skip();
    struct sl_etcd_settings s = settings_of(etcd.members, LATER_MS);
    snprintf(ca, sizeof ca, "%s/ca.pem", etcd.folder);
    snprintf(cert, sizeof cert, "%s/cert.pem", etcd.folder);
    snprintf(key, sizeof key, "%s/key.pem", etcd.folder);
    snprintf(other, sizeof other, "%s/other.pem", etcd.folder);
    s.ca = ca;
    s.cert = cert;
    s.key = key;
    struct sl_etcd_client *c = client_with(&s);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    sl_etcd_client_free(c);
    s.ca = other; /* It is somebody else. */
    c = client_with(&s);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    assert_int_equal(a.call.fate, SL_ETCD_UNSENT);
    assert_non_null(strstr(sl_etcd_client_trouble(c), "certificate"));
    sl_etcd_client_free(c);
    s.ca = ca; /* We are nobody. */
    s.cert = s.key = "";
    c = client_with(&s);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    assert_int_not_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_string_not_equal(sl_etcd_client_trouble(c), "");
    sl_etcd_client_free(c);
}

/* --- Several ------------------------------------------------------------------- */

static void members_may_be_killed_one_at_a_time(void **state)
{
    (void)state;
    struct asked a = {0};
    begin(3);
    struct sl_etcd_client *c = client_of(etcd.members, LATER_MS);
    for (int i = 0; i < 3; i++) {
        call(c, &a, "/v3/kv/put", PUT_V, false);
        answered(&a, "revision");
        etcd_kill(&etcd, i); /* The one that was asked last. */
        etcd_await(&etcd);
        call(c, &a, "/v3/kv/range", GET, true);
        answered(&a, "dg==");
        etcd_start(&etcd, i);
        etcd_await(&etcd);
    }
    sl_etcd_client_free(c);
}

static void a_paused_member_loses_a_request_and_ends_a_watch(void **state)
{
    (void)state;
    struct asked a = {0};
    struct watched w = {0};
    begin(3);
    struct sl_etcd_client *c = client_of(etcd.members, SOON_MS);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    assert_int_equal(watch_from(c, &w, "k", 0), SLUICE_OK);
    await_told(c, &w, "created");
    etcd_pause(&etcd, 0);
    call(c, &a, "/v3/kv/put", PUT_W, false);
    assert_int_equal(a.call.fate, SL_ETCD_LOST);
    etcd_await(&etcd);
    call(c, &a, "/v3/kv/put", PUT_W, false);
    answered(&a, "revision");
    await_end(c, &w);
    assert_int_equal(watch_from(c, &w, "k", 1), SLUICE_OK);
    await_told(c, &w, "dw=="); /* By another. */
    etcd_resume(&etcd, 0);
    sl_etcd_client_free(c);
}

static void without_a_majority_nothing_is_known_and_a_watch_ends(void **state)
{
    (void)state;
    struct asked a = {0};
    struct watched w = {0};
    begin(3);
    struct sl_etcd_client *c = client_of(etcd.members, SOON_MS);
    call(c, &a, "/v3/kv/put", PUT_V, false);
    answered(&a, "revision");
    assert_int_equal(watch_from(c, &w, "k", 0), SLUICE_OK);
    await_told(c, &w, "created");
    etcd_kill(&etcd, 1);
    etcd_kill(&etcd, 2);
    await_end(c, &w);
    call(c, &a, "/v3/kv/put", PUT_W, false);
    assert_int_not_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_string_not_equal(sl_etcd_client_trouble(c), "");
    etcd_start(&etcd, 1);
    etcd_await(&etcd);
    call(c, &a, "/v3/kv/put", PUT_W, false);
    answered(&a, "revision");
    sl_etcd_client_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(etcd_answers, tidy),
        cmocka_unit_test_teardown(a_watch_tells_what_changes, tidy),
        cmocka_unit_test_teardown(a_watch_ends_with_its_member, tidy),
        cmocka_unit_test_teardown(a_user_has_a_token_and_another_after_a_restart, tidy),
        cmocka_unit_test_teardown(who_is_not_a_user_is_told_so, tidy),
        cmocka_unit_test_teardown(users_that_etcd_wants_later_are_given, tidy),
        cmocka_unit_test_teardown(https_with_certificates_on_both_sides, tidy),
        cmocka_unit_test_teardown(members_may_be_killed_one_at_a_time, tidy),
        cmocka_unit_test_teardown(a_paused_member_loses_a_request_and_ends_a_watch,
                                  tidy),
        cmocka_unit_test_teardown(without_a_majority_nothing_is_known_and_a_watch_ends,
                                  tidy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
