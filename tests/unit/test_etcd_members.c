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
static struct sl_etcd_client *c;
static struct asked a;
static struct watched w;

/* Replaces the client. */
static void use_client(struct sl_etcd_client *next)
{
    sl_etcd_client_free(c);
    c = next;
}

static void begin(int count, sl_ms answer_ms)
{
    if (!etcd_begin(&etcd, count)) skip();
    use_client(client_of(etcd.members, answer_ms));
}

static int tidy(void **state)
{
    (void)state;
    use_client(NULL);
    etcd_end(&etcd);
    memset(&a, 0, sizeof a);
    memset(&w, 0, sizeof w);
    return 0;
}

static void restart_member(int member)
{
    etcd_kill(&etcd, member);
    etcd_start(&etcd, member);
    etcd_await(&etcd);
}

static void answered(const char *text)
{
    if (a.call.fate != SL_ETCD_ANSWERED || a.call.http_status != 200 ||
        strstr(a.answer, text) == NULL)
        fail_msg("fate %d, HTTP %d, code %d: %s", a.call.fate, a.call.http_status,
                 a.call.code, a.answer);
}

/* A put, whatever becomes of it; and one that succeeds. */
static void try_to_put(const char *json)
{
    call(c, &a, "/v3/kv/put", json, false);
}

static void put(const char *json)
{
    try_to_put(json);
    answered("revision");
}

static void watch(uint64_t from)
{
    assert_int_equal(watch_from(c, &w, "k", from), SLUICE_OK);
}

UNIT_TEST(etcd_answers)
{
    begin(1, LATER_MS);
    put(PUT_V);
    call(c, &a, "/v3/kv/range", GET, true);
    answered("\"value\":\"dg==\"");
    call(c, &a, "/v3/kv/txn",
         "{\"compare\":[{\"key\":\"aw==\",\"target\":\"VALUE\",\"value\":\"dg==\"}],"
         "\"success\":[{\"request_put\":" PUT_W "}]}",
         false);
    answered("\"succeeded\":true");
    try_to_put("{}");
    assert_int_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_int_equal(a.call.http_status, 400);
    assert_int_equal(a.call.code, 3);
    assert_string_equal(a.answer, "etcdserver: key is not provided");
    try_to_put("{not JSON");
    assert_int_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_int_not_equal(a.call.code, 0);
    call(c, &a, "/no/such/path", "{}", false);
    assert_int_equal(a.call.http_status, 404);
}

UNIT_TEST(a_watch_tells_what_changes)
{
    begin(1, SOON_MS);
    try_to_put(PUT_V);
    watch(2);
    await_told(c, &w, "\"value\":\"dg==\"");
    sl_ms end = now_ms() + 2 * SOON_MS + 500; /* It says nothing for a while. */
    while (now_ms() < end) turn(c, 100);
    try_to_put(PUT_W);
    await_told(c, &w, "\"value\":\"dw==\"");
    assert_int_equal(w.ended, 0);
    /* What was compacted is not there to be told. */
    call(c, &a, "/v3/kv/compaction", "{\"revision\":\"3\"}", false);
    watch(1);
    await_end(c, &w);
    assert_non_null(strstr(w.all, "\"compact_revision\":\"3\""));
}

UNIT_TEST(a_watch_ends_with_its_member)
{
    begin(1, SOON_MS);
    watch(0);
    await_told(c, &w, "created");
    etcd_kill(&etcd, 0);
    await_end(c, &w);
    try_to_put(PUT_V);
    assert_int_equal(a.call.fate, SL_ETCD_UNSENT);
    assert_non_null(strstr(sl_etcd_client_trouble(c), "Connection refused"));
    watch(0);
    await_end(c, &w);
    assert_string_equal(w.why, "Connection refused");
    etcd_start(&etcd, 0);
    etcd_await(&etcd);
    put(PUT_V);
    assert_string_equal(sl_etcd_client_trouble(c), "");
    watch(1);
    await_told(c, &w, "dg==");
}

/* --- Users --------------------------------------------------------------------- */

static void tell_etcd(const char *path, const char *json)
{
    int status = 0;
    char *answer = etcd_ask(&etcd, 0, path, json, &status);
    if (status != 200) fail_msg("%s: HTTP %d: %s", path, status, answer);
    free(answer);
}

static void add_users(void)
{
    tell_etcd("/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"geheim\"}");
    tell_etcd("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    tell_etcd("/v3/auth/user/add", "{\"name\":\"guest\",\"password\":\"gast\"}");
    tell_etcd("/v3/auth/enable", "{}");
}

static void begin_with_users(void)
{
    begin(1, LATER_MS);
    add_users();
}

static struct sl_etcd_client *client_as(const char *user, const char *password)
{
    struct sl_etcd_settings s = settings_of(etcd.members, LATER_MS);
    s.user = user;
    s.password = password;
    return client_with(&s);
}

UNIT_TEST(a_user_has_a_token_and_another_after_a_restart)
{
    begin_with_users();
    use_client(client_as("root", "geheim"));
    put(PUT_V);
    restart_member(0); /* It forgets its tokens. */
    put(PUT_W);
    restart_member(0);
    watch(1);
    await_told(c, &w, "dw==");
    assert_int_equal(w.ended, 0);
    /* Users that change make tokens of etcd 3.4 old. */
    call(c, &a, "/v3/auth/user/add", "{\"name\":\"b\",\"password\":\"c\"}", false);
    answered("revision");
    put(PUT_V);
}

UNIT_TEST(an_unknown_user_gets_an_error)
{
    begin_with_users();
    use_client(client_as("root", "falsch"));
    try_to_put(PUT_V);
    assert_int_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_int_equal(a.call.code, 16);
    assert_string_equal(sl_etcd_client_trouble(c), "etcd: wrong user or password");
    use_client(client_of(etcd.members, LATER_MS));
    try_to_put(PUT_V);
    assert_int_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_string_equal(sl_etcd_client_trouble(c),
                        "etcd: etcdserver: user name is empty");
    use_client(client_as("guest", "gast"));
    try_to_put(PUT_V);
    assert_int_equal(a.call.code, 7);
    assert_string_equal(sl_etcd_client_trouble(c),
                        "etcd: etcdserver: permission denied");
    watch(0);
    await_end(c, &w);
    assert_non_null(strstr(w.why, "ermission"));
}

UNIT_TEST(users_that_etcd_wants_later_are_given)
{
    begin(1, LATER_MS);
    use_client(client_as("root", "geheim"));
    put(PUT_V);
    add_users();
    put(PUT_V);
}

/* --- https --------------------------------------------------------------------- */

UNIT_TEST(https_with_certificates_on_both_sides)
{
    char ca[200], cert[200], key[200], other[200];
    if (!etcd_begin_tls(&etcd)) skip();
    struct sl_etcd_settings s = settings_of(etcd.members, LATER_MS);
    snprintf(ca, sizeof ca, "%s/ca.pem", etcd.directory);
    snprintf(cert, sizeof cert, "%s/cert.pem", etcd.directory);
    snprintf(key, sizeof key, "%s/key.pem", etcd.directory);
    snprintf(other, sizeof other, "%s/other.pem", etcd.directory);
    s.ca = ca;
    s.cert = cert;
    s.key = key;
    use_client(client_with(&s));
    put(PUT_V);
    s.ca = other; /* It is somebody else. */
    use_client(client_with(&s));
    try_to_put(PUT_V);
    assert_int_equal(a.call.fate, SL_ETCD_UNSENT);
    assert_non_null(strstr(sl_etcd_client_trouble(c), "certificate"));
    s.ca = ca; /* We are nobody. */
    s.cert = s.key = "";
    use_client(client_with(&s));
    try_to_put(PUT_V);
    assert_int_not_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_string_not_equal(sl_etcd_client_trouble(c), "");
}

/* --- Several ------------------------------------------------------------------- */

UNIT_TEST(members_may_be_killed_one_at_a_time)
{
    begin(3, LATER_MS);
    for (int i = 0; i < 3; i++) {
        put(PUT_V);
        etcd_kill(&etcd, i);
        etcd_await(&etcd);
        call(c, &a, "/v3/kv/range", GET, true);
        answered("dg==");
        etcd_start(&etcd, i);
        etcd_await(&etcd);
    }
}

/* Sets `out` to the id of a member, as its answers have it: "member_id":"123". */
static void id_of(int member, char *out, size_t bytes)
{
    char *status = etcd_ask(&etcd, member, "/v3/maintenance/status", "{}", NULL);
    const char *at = status == NULL ? NULL : strstr(status, "\"member_id\":\"");
    assert_non_null(at);
    snprintf(out, bytes, "%.*s", (int)strcspn(at, ","), at);
    free(status);
}

/* Puts until this member answers. */
static void await_answer_of(int member)
{
    char id[64];
    sl_ms end = now_ms() + 10000;
    id_of(member, id, sizeof id);
    do {
        turn(c, 20);
        try_to_put(PUT_V);
        if (now_ms() > end) fail_msg("the client does not use the leader");
    } while (strstr(a.answer, id) == NULL);
}

UNIT_TEST(requests_go_to_the_leader)
{
    char members[sizeof etcd.members];
    begin(3, SOON_MS);
    int leader = etcd_leader(&etcd), other = (leader + 1) % 3;
    snprintf(members, sizeof members, "%s,%s", etcd.is[other].url, etcd.is[leader].url);
    use_client(client_of(members, SOON_MS));
    await_answer_of(leader);
    etcd_kill(&etcd, leader);
    await_answer_of(other);
}

UNIT_TEST(a_paused_member_loses_a_request_and_ends_a_watch)
{
    begin(3, SOON_MS);
    int leader = etcd_leader(&etcd);
    await_answer_of(leader);
    watch(0);
    await_told(c, &w, "created");
    etcd_pause(&etcd, leader);
    try_to_put(PUT_W);
    assert_int_equal(a.call.fate, SL_ETCD_LOST);
    etcd_await(&etcd);
    put(PUT_W);
    await_end(c, &w);
    watch(1);
    await_told(c, &w, "dw=="); /* By another. */
    etcd_resume(&etcd, leader);
}

UNIT_TEST(without_a_majority_a_watch_ends)
{
    begin(3, SOON_MS);
    put(PUT_V);
    watch(0);
    await_told(c, &w, "created");
    etcd_kill(&etcd, 1);
    etcd_kill(&etcd, 2);
    await_end(c, &w);
    try_to_put(PUT_W);
    assert_int_not_equal(a.call.fate, SL_ETCD_ANSWERED);
    assert_string_not_equal(sl_etcd_client_trouble(c), "");
    etcd_start(&etcd, 1);
    etcd_await(&etcd);
    put(PUT_W);
}

int main(void)
{
    return run_unit_tests_with("etcd_members", NULL, tidy);
}
