/* conn_input.c - the input of a connection: reads bytes and runs the commands in them. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "server/command/dispatch.h"
#include "server/forward/proxy.h"
#include "server/net/conn_internal.h"
#include "server/observe/log.h"
#include "server/recorder.h"
#include "server/request.h"

#define OUT_BYTES_HIGH 65536u /* Send output before it grows beyond this size. */
#define READ_BYTES 16384u     /* The size of one read. */
#define EARLY_READ_BYTES 512u /* The size of one read before AUTH. */

/* Maximum commands of one connection that the server runs at a time. */
#define SHARE 64u        /* While other connections wait for their share. */
#define SHARE_ALONE 256u /* While no other connection waits. */
#define PROMPT_MIN 16u   /* Minimum for a connection that sends little. */

/* --- Limits ---------------------------------------------------------------- */

static size_t smaller(int64_t a, int64_t b)
{
    return (size_t)(a < b ? a : b);
}

void sl_conn_setup(struct server *s)
{
    const struct sl_settings *set = s->settings;
    s->limits = (struct sl_resp_limits){
        .args_max = (size_t)set->args_max,
        .bulk_bytes_max = (size_t)set->argument_bytes_max,
        .command_bytes_max = (size_t)set->command_bytes_max,
        .inline_bytes_max = (size_t)set->command_bytes_max,
    };
    s->early_limits = (struct sl_resp_limits){
        .args_max = smaller(set->auth_args_max, set->args_max),
        .bulk_bytes_max = smaller(set->auth_bytes_max, set->argument_bytes_max),
        .command_bytes_max = smaller(set->auth_bytes_max, set->command_bytes_max),
        .inline_bytes_max = smaller(set->auth_bytes_max, set->command_bytes_max),
        .room_bytes = EARLY_READ_BYTES,
        .before_auth = true,
    };
}

static const struct sl_resp_limits *limits_of(const struct conn *c)
{
    return c->authed ? &c->server->limits : &c->server->early_limits;
}

/* Give the connection a reader. A client that has not authenticated gets a small one of its own,
 * because the spare reader may be large. */
static struct sl_resp_reader *get_reader(struct conn *c)
{
    struct server *s = c->server;
    struct sl_resp_reader *r = s->spare_reader;
    if (r == NULL || !c->authed) return sl_resp_reader_new(limits_of(c));
    s->spare_reader = NULL;
    return r;
}

void sl_conn_authed(struct conn *c, bool yes)
{
    /* RESET does not extend the time that an unauthenticated client has for AUTH. */
    if (c->authed && !yes) c->unauthed_ms = c->server->now.ms;
    c->authed = yes;
    if (yes) sl_list_remove(&c->unauthed);
    else if (sl_list_empty(&c->unauthed))
        sl_list_append(&c->server->unauthed, &c->unauthed);
    if (c->reader != NULL) sl_resp_reader_limit(c->reader, limits_of(c));
}

/* Find space for input. Returns its size; 0: out of memory. */
static size_t find_space(struct conn *c, char **at)
{
    if (c->reader == NULL) c->reader = get_reader(c);
    return c->reader == NULL ? 0 : sl_resp_room(c->reader, at);
}

bool sl_conn_feed(struct conn *c, struct sl_bytes b)
{
    c->server->inputs++;
    while (b.n > 0) {
        char *at;
        size_t space = find_space(c, &at);
        if (space == 0) return false;
        size_t n = b.n < space ? b.n : space;
        memcpy(at, b.at, n);
        sl_resp_filled(c->reader, n);
        b = (struct sl_bytes){b.at + n, b.n - n};
    }
    return true;
}

/* Return an empty reader to the server. */
static void give_reader_back(struct conn *c)
{
    struct server *s = c->server;
    if (c->reader == NULL || sl_resp_unread(c->reader) > 0) return;
    /* A reader with an error cannot be reused. */
    bool good = sl_resp_error(c->reader) == NULL;
    if (good && c->authed && s->spare_reader == NULL &&
        sl_resp_reader_bytes(c->reader) <= 2 * SL_SPARE_BYTES_MAX)
        s->spare_reader = c->reader;
    else sl_resp_reader_free(c->reader);
    c->reader = NULL;
}

static void broken(struct conn *c, int status)
{
    static struct sl_log_kind kind;
    char address[80];
    const char *error = status == SLUICE_ENOMEM ? "out of memory"
                                                : sl_resp_error(c->reader);
    sl_conn_address(c, address, sizeof address);
    sl_log_often(&kind, c->server->now.ms, SL_LOG_WARN,
                 "closed a connection: protocol error", "address", address, "error",
                 error, NULL);
    sl_resp_problem(sl_conn_out(c), status == SLUICE_ETOOBIG ? "TOOBIG" : "ERR", error);
    sl_conn_hang_up(c, SL_WAS_CUT);
}

void sl_conn_work_later(struct conn *c)
{
    if (sl_list_empty(&c->ready)) sl_list_append(&c->server->ready, &c->ready);
    sl_server_go_on(c->server);
}

static bool may_act(const struct conn *c)
{
    return !c->closing && c->hang_up == SL_STAYS && c->leaves == SL_STAYS &&
           sl_list_empty(&c->requests) && c->sending == NULL &&
           (c->proxy == NULL || sl_proxy_may_run(c));
}

/* Charge the budget of this loop iteration for reads and writes as well. */
static void charge(struct server *s, size_t bytes)
{
    if (bytes >= SL_STEPS_A_COMMAND) sl_server_spend(s, bytes);
}

/* Return how many commands a connection may run at a time: fewer while other connections wait for
 * their share. */
static uint32_t share_of_commands(const struct server *s)
{
    uint32_t share = sl_list_empty(&s->ready) ? SHARE_ALONE : SHARE;
    return share < s->commands_left ? share : s->commands_left;
}

void sl_conn_work(struct conn *c)
{
    struct sl_args args;
    uint32_t stop = c->server->commands_left - share_of_commands(c->server);
    while (c->reader != NULL && may_act(c)) {
        if (c->proxy == NULL && c->server->commands_left <= stop) {
            if (sl_resp_unread(c->reader) > 0) sl_conn_work_later(c);
            break;
        }
        size_t written = c->out.n;
        int status = sl_resp_next(c->reader, &args);
        if (status == 0) break;
        if (c->server->commands_left > 0 && --c->server->commands_left % 32 == 0 &&
            sl_server_turn_is_long(c->server))
            /* This is the last command of this loop iteration. */
            c->server->commands_left = 0;
        if (c->proxy != NULL) sl_proxy_begins(c);
        if (status < 0) broken(c, status);
        else sl_dispatch(c, &args);
        if (c->out.n > written) charge(c->server, c->out.n - written);
        if (c->proxy != NULL) sl_proxy_ran(c);
        if (c->out.n > OUT_BYTES_HIGH) {
            sl_recorder_flush(c->server);
            sl_conn_flush(c);
        }
    }
    if (c->closing) return;
    if (c->ended && sl_list_empty(&c->ready) && !sl_request_all_brief(c))
        sl_conn_hang_up(c, SL_SAID_BYE);
    give_reader_back(c);
    sl_conn_count_buffers(c);
    sl_conn_watch(c, c->hang_up == SL_STAYS && c->leaves == SL_STAYS &&
                         c->sending == NULL && !c->ended &&
                         (c->input.watched || sl_list_empty(&c->ready)) &&
                         (c->reader == NULL || sl_resp_unread(c->reader) <=
                                                   limits_of(c)->command_bytes_max));
}

bool sl_conn_has_more(const struct conn *c)
{
    return !sl_list_empty(&c->ready) || sl_request_all_brief(c);
}

static void end_of_stream(struct conn *c, bool proper)
{
    if (proper && sl_conn_has_more(c)) {
        c->ended = true; /* First run the commands that the client sent. */
        sl_conn_watch(c, false);
    } else sl_conn_close_in_turn(c, proper ? SL_SAID_BYE : SL_WAS_CUT);
}

static void read_some(struct conn *c)
{
    struct server *s = c->server;
    char *at;
    size_t space = find_space(c, &at);
    ssize_t n = space == 0
                    ? -1
                    : recv(c->fd, at, space < READ_BYTES ? space : READ_BYTES, 0);
    s->stats.reads++;
    s->inputs++;
    if (n > 0) {
        c->heard_ms = s->now.ms;
        sl_resp_filled(c->reader, (size_t)n);
        charge(s, (size_t)n);
        sl_conn_work(c);
    } else if (n == 0) end_of_stream(c, true);
    else if (space > 0 && (errno == EAGAIN || errno == EINTR)) give_reader_back(c);
    else end_of_stream(c, false);
}

/* Update the class of a connection. It is slow if it leaves unprocessed input after each read. */
static void classify(struct conn *c)
{
    bool was_busy = c->input.busy;
    c->input.busy = c->reader != NULL;
    if (c->input.busy == was_busy &&
        c->input.class != (c->input.busy ? SL_SLOW : SL_PROMPT) &&
        !sl_input_move(c, c->input.busy ? SL_SLOW : SL_PROMPT))
        sl_conn_close(c, SL_WAS_CUT);
}

void sl_conn_has_input(struct conn *c, bool ended)
{
    struct server *s = c->server;
    sl_server_read_clock(s);
    if (!sl_list_empty(&c->ready)) {
        sl_conn_watch(c, false); /* First run the commands that the client sent. */
        return;
    }
    if (ended && s->closes_left == 0 && c->input.class == SL_PROMPT) {
        if (!sl_input_move(c, SL_SLOW)) sl_conn_close(c, SL_WAS_CUT);
        /* Thousands of connections may close at once, so serve other clients first. */
        return;
    }
    if (c->input.class == SL_PROMPT && s->commands_left < PROMPT_MIN)
        s->commands_left = PROMPT_MIN;
    read_some(c);
    if (!c->closing) classify(c);
}

void sl_conn_unblock(struct conn *c)
{
    c->heard_ms = c->server->now.ms;
    if (c->reader != NULL || c->ended) sl_conn_work_later(c);
}
