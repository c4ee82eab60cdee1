/* A connection to a server, against a false one: a thread that sends what a test says. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sluice.h"
#include "test.h"

#define HELLO "%1\r\n+proto\r\n:3\r\n"
#define NEWS(n) ">2\r\n+lock\r\n:" #n "\r\n"

/* For each command that comes it sends the next text; after the last it waits until the
 * other side is gone. */
struct server {
    int listener;
    pthread_t thread;
    char address[128], path[100];
    const char *const *answers;
    char got[4096];
    size_t got_bytes;
};

/* Send push messages without a pause, until the other side is gone. */
static void flood(int fd)
{
    static char news[1 << 16];
    const char *one = NEWS(1);
    size_t n = 0;
    for (; n + strlen(one) <= sizeof news; n += strlen(one))
        memcpy(news + n, one, strlen(one));
    size_t at = 0;
    ssize_t sent;
    while ((sent = send(fd, news + at, n - at, MSG_NOSIGNAL)) > 0)
        at = (at + (size_t)sent) % n;
}

static void *serve(void *arg)
{
    struct server *s = arg;
    int fd = accept(s->listener, NULL, NULL);
    const char *const *next = s->answers;
    ssize_t n;
    while ((n = read(fd, s->got + s->got_bytes, sizeof s->got - s->got_bytes)) > 0) {
        s->got_bytes += (size_t)n;
        if (*next == NULL) continue;
        if (strcmp(*next, "hang up") == 0) break;
        if (strcmp(*next, "flood") == 0) {
            flood(fd);
            break;
        }
        assert_int_equal(write(fd, *next, strlen(*next)), strlen(*next));
        next++;
    }
    close(fd);
    return NULL;
}

static struct server *begin(const char *const *answers)
{
    struct server *s = calloc(1, sizeof *s);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    static int count;
    s->answers = answers;
    snprintf(s->path, sizeof s->path, "/tmp/sluice-test-wire.%d.%d", (int)getpid(),
             count++);
    snprintf(s->address, sizeof s->address, "unix:%s", s->path);
    strcpy(a.sun_path, s->path);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    return s;
}

/* What it was sent is compared, up to its first NUL, if something is wanted. */
static void end(struct server *s, struct sluice_wire *w, const char *wanted)
{
    sluice_wire_close(w);
    pthread_join(s->thread, NULL);
    if (wanted != NULL) assert_string_equal(s->got, wanted);
    close(s->listener);
    unlink(s->path);
    free(s);
}

static struct sluice_wire *open_to(struct server *s, int64_t reply_ms)
{
    struct sluice_wire *w;
    struct sluice_wire_options options = {.reply_ms = reply_ms, .resp = 2};
    assert_int_equal(sluice_wire_open(s->address, &options, &w), SLUICE_OK);
    return w;
}

static void check_number(struct sluice_reply *r, enum sluice_reply_type type,
                         int64_t number)
{
    assert_int_equal(r->type, type);
    assert_true((type == SLUICE_REPLY_PUSH ? r->items[1].number : r->number) == number);
    sluice_reply_free(r);
}

static const char *const ping[] = {"PING"};

UNIT_TEST(a_call_gets_its_reply_and_pushes_stay_in_order)
{
    static const char *const answers[] = {NEWS(1) NEWS(2) ":7\r\n", NEWS(3) ":8\r\n",
                                          NULL};
    struct server *s = begin(answers);
    struct sluice_wire *w = open_to(s, 0);
    struct sluice_reply *r;
    for (int64_t n = 7; n <= 8; n++) {
        assert_int_equal(sluice_wire_call(w, ping, NULL, 1, &r), SLUICE_OK);
        check_number(r, SLUICE_REPLY_NUMBER, n);
    }
    for (int64_t n = 1; n <= 3; n++) {
        assert_int_equal(sluice_wire_next(w, &r), SLUICE_OK);
        check_number(r, SLUICE_REPLY_PUSH, n);
    }
    assert_string_equal(sluice_wire_error(w), "");
    end(s, w, "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n");
}

UNIT_TEST(unread_pushes_are_kept_up_to_a_limit)
{
    enum { SENT = 1500, KEPT = 1024 };
    char *text = calloc(SENT + 2, 32), *at = text;
    for (int i = 0; i < SENT; i++) at += sprintf(at, ">2\r\n+lock\r\n:%d\r\n", i);
    strcpy(at, "+OK\r\n");
    const char *const answers[] = {text, "+LAST\r\n", NULL};
    struct server *s = begin(answers);
    struct sluice_wire *w = open_to(s, 0);
    struct sluice_reply *r;
    assert_int_equal(sluice_wire_call(w, ping, NULL, 1, &r), SLUICE_OK);
    sluice_reply_free(r);
    for (int64_t n = 0; n < KEPT; n++) {
        assert_int_equal(sluice_wire_next(w, &r), SLUICE_OK);
        check_number(r, SLUICE_REPLY_PUSH, n);
    }
    assert_int_equal(sluice_wire_send(w, ping, NULL, 1), SLUICE_OK);
    assert_int_equal(sluice_wire_next(w, &r), SLUICE_OK);
    assert_string_equal(r->text, "LAST");
    sluice_reply_free(r);
    end(s, w, NULL);
    free(text);
}

UNIT_TEST(when_time_is_over_the_wire_is_of_no_more_use)
{
    static const char *const answers[] = {NULL};
    struct server *s = begin(answers);
    struct sluice_wire *w = open_to(s, 50);
    struct sluice_reply *r;
    assert_int_equal(sluice_wire_call(w, ping, NULL, 1, &r), SLUICE_ECLOSED);
    assert_string_equal(sluice_wire_error(w), "the server did not answer in time");
    assert_int_equal(sluice_wire_call(w, ping, NULL, 1, &r), SLUICE_ECLOSED);
    assert_int_equal(sluice_wire_send(w, ping, NULL, 1), SLUICE_ECLOSED);
    assert_int_equal(sluice_wire_next(w, &r), SLUICE_ECLOSED);
    end(s, w, "*1\r\n$4\r\nPING\r\n");
}

UNIT_TEST(a_server_that_sends_without_a_pause_does_not_extend_the_timeout)
{
    static const char *const answers[] = {"flood", NULL};
    struct server *s = begin(answers);
    struct sluice_wire *w = open_to(s, 50);
    struct sluice_reply *r;
    assert_int_equal(sluice_wire_call(w, ping, NULL, 1, &r), SLUICE_ECLOSED);
    assert_string_equal(sluice_wire_error(w), "the server did not answer in time");
    end(s, w, NULL);
}

UNIT_TEST(what_is_not_a_reply_is_the_end_too)
{
    static const char *const answers[] = {"nonsense\r\n", NULL};
    struct server *s = begin(answers);
    struct sluice_wire *w = open_to(s, 0);
    struct sluice_reply *r;
    assert_int_equal(sluice_wire_call(w, ping, NULL, 1, &r), SLUICE_EPROTOCOL);
    assert_int_equal(sluice_wire_call(w, ping, NULL, 1, &r), SLUICE_EPROTOCOL);
    end(s, w, NULL);
}

UNIT_TEST(arguments_with_lengths_may_have_any_bytes)
{
    static const char *const answers[] = {"+OK\r\n", NULL};
    static const char *const words[] = {"ECHO", "a\0b", ""};
    static const size_t lengths[] = {4, 3, 0};
    static const char wanted[] = "*3\r\n$4\r\nECHO\r\n$3\r\na\0b\r\n$0\r\n\r\n";
    struct server *s = begin(answers);
    struct sluice_wire *w = open_to(s, 0);
    struct sluice_reply *r;
    assert_int_equal(sluice_wire_call(w, words, lengths, 3, &r), SLUICE_OK);
    sluice_reply_free(r);
    assert_int_equal(s->got_bytes, sizeof wanted - 1);
    assert_memory_equal(s->got, wanted, sizeof wanted - 1);
    end(s, w, NULL);
}

UNIT_TEST(wrong_arguments_change_nothing)
{
    static const char *const answers[] = {"+OK\r\n", NULL};
    struct server *s = begin(answers);
    struct sluice_wire *w = open_to(s, 0);
    struct sluice_reply *r;
    struct sluice_wire *other;
    const struct sluice_wire_options odd = {.resp = 4};
    assert_int_equal(sluice_wire_call(w, ping, NULL, 0, &r), SLUICE_EINVAL);
    assert_int_equal(sluice_wire_call(w, NULL, NULL, 1, &r), SLUICE_EINVAL);
    assert_int_equal(sluice_wire_call(w, ping, NULL, 1, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_wire_call(NULL, ping, NULL, 1, &r), SLUICE_EINVAL);
    assert_int_equal(sluice_wire_send(NULL, ping, NULL, 1), SLUICE_EINVAL);
    assert_int_equal(sluice_wire_next(w, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_wire_open("a:b", NULL, &other), SLUICE_EINVAL);
    assert_int_equal(sluice_wire_open(s->address, &odd, &other), SLUICE_EINVAL);
    assert_int_equal(sluice_wire_open(s->address, NULL, NULL), SLUICE_EINVAL);
    assert_string_equal(sluice_wire_error(NULL), "");
    sluice_wire_close(NULL);
    sluice_reply_free(NULL);
    assert_int_equal(sluice_wire_call(w, ping, NULL, 1, &r), SLUICE_OK);
    sluice_reply_free(r);
    end(s, w, NULL);
}

/* What open returns and says to this answer; 3: RESP3. */
static void check_greeting(const char *answer, const char *password, int resp,
                           int status, const char *why, const char *sent)
{
    const char *const answers[] = {answer, NULL};
    char reason[64] = "x";
    struct server *s = begin(answers);
    struct sluice_wire *w = NULL;
    struct sluice_wire_options options = {.password = password,
                                          .resp = resp,
                                          .error = reason,
                                          .error_size = sizeof reason};
    assert_int_equal(sluice_wire_open(s->address, &options, &w), status);
    assert_string_equal(reason, why);
    end(s, w, sent);
}

UNIT_TEST(it_greets_with_the_password)
{
    check_greeting(HELLO, NULL, 0, SLUICE_OK, "", "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
    check_greeting(HELLO, "pw", 3, SLUICE_OK, "",
                   "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n"
                   "$2\r\npw\r\n");
    check_greeting("+OK\r\n", "pw", 2, SLUICE_OK, "",
                   "*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n");
}

UNIT_TEST(a_rejected_connection_gets_the_reason)
{
    check_greeting("-NOAUTH say it\r\n", NULL, 3, SLUICE_EDENIED, "NOAUTH say it",
                   NULL);
    check_greeting("-WRONGPASS no\r\n", "pw", 2, SLUICE_EDENIED, "WRONGPASS no", NULL);
    check_greeting("-LIMIT full\r\n", NULL, 3, SLUICE_EUNREACHABLE, "LIMIT full", NULL);
    check_greeting("-NOAUTHS\r\n", NULL, 3, SLUICE_EUNREACHABLE, "NOAUTHS", NULL);
    check_greeting("hang up", NULL, 3, SLUICE_EUNREACHABLE,
                   "the server closed the connection", NULL);
    check_greeting("SSH-2.0-x\r\n", NULL, 3, SLUICE_EPROTOCOL,
                   "the reply is not valid Redis protocol", NULL);
    check_greeting("+OK\r\n", NULL, 3, SLUICE_EPROTOCOL,
                   "the server does not support version 3 of the Redis protocol", NULL);
}

UNIT_TEST(a_short_place_for_the_reason_is_not_overrun)
{
    char why[8] = "xxxxxxx";
    struct sluice_wire *w;
    struct sluice_wire_options options = {.error = why, .error_size = 4};
    assert_int_equal(sluice_wire_open("unix:/nonexistent/socket", &options, &w),
                     SLUICE_EUNREACHABLE);
    assert_memory_equal(why, "No \0xxx", 8);
}

int main(void)
{
    return run_unit_tests("wire");
}
