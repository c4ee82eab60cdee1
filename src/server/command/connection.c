/* connection.c - the commands about connections: AUTH, HELLO, PING, RESET, SUBSCRIBE, CLIENT. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "server/command/dispatch.h"
#include "server/forward/proxy.h"
#include "server/net/auth.h"
#include "server/observe/log.h"
#include "server/request.h"

#define CLIENTS_SHOWN_MAX 1000 /* Maximum number of clients in one CLIENT LIST. */
#define AUTH_FAILURES_MAX 10   /* Close a connection after this many wrong passwords. */

/* --- AUTH and names --------------------------------------------------------- */

/* Compare a password in constant time, so that timing does not reveal it. */
static bool same_password(const char *password, struct sl_bytes given)
{
    size_t n = strlen(password);
    volatile unsigned char differ = given.n != n;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(password[i] ^ (i < given.n ? given.at[i] : 0));
    return differ == 0;
}

static bool authenticate(struct call *call, const struct sl_bytes *user,
                         struct sl_bytes password)
{
    static struct sl_log_kind kind;
    const char *set = call->s->settings->password;
    struct conn *c = call->c;
    char address[128];
    bool good = *set != '\0' && same_password(set, password);
    if (user != NULL && !sl_word_is(*user, "DEFAULT")) good = false;
    if (good) {
        sl_conn_authed(c, true);
        return true;
    }
    call->s->stats.auth_failures++;
    sl_auth_failed(c);
    sl_conn_address(c, address, sizeof address);
    sl_log_often(&kind, call->s->now.ms, SL_LOG_WARN, "wrong password", "address",
                 address, NULL);
    sl_say(call, "WRONGPASS", "invalid username-password pair");
    if (++c->auth_failures >= AUTH_FAILURES_MAX) sl_conn_hang_up(c, SL_WAS_CUT);
    return false;
}

void sl_do_auth(struct call *call)
{
    bool named = call->n == 3;
    if (*call->s->settings->password == '\0') {
        sl_say(
            call, "ERR",
            "this server has no password, so AUTH is not needed; set password-file to "
            "require one");
        return;
    }
    if (sl_auth_must_wait(call)) return;
    if (authenticate(call, named ? &call->at[1] : NULL, call->at[named ? 2 : 1]))
        sl_resp_simple(call->out, "OK");
}

static bool is_name(struct call *call, struct sl_bytes name)
{
    for (size_t i = 0; i < name.n; i++)
        if (name.at[i] <= ' ' || name.at[i] > '~') {
            sl_say(call, "ERR",
                   "a client name must consist of printable ASCII characters without "
                   "spaces");
            return false;
        }
    if (name.n >= sizeof call->c->name) {
        sl_say_format(call, "TOOBIG", "the client name has %zu bytes; the limit is %zu",
                      name.n, sizeof call->c->name - 1);
        return false;
    }
    return true;
}

static void set_name(struct conn *c, struct sl_bytes name)
{
    memcpy(c->name, name.at, name.n);
    c->name[name.n] = '\0';
    /* If this runs out of memory, later grants keep the old name. */
    if (c->session->s.client != NULL) sl_conn_describe(c);
    sl_forward_renamed(c);
}

/* --- HELLO ---------------------------------------------------------------- */

static void greet(struct call *call)
{
    struct sl_resp_writer *w = call->out;
    sl_resp_map(w, 7);
    sl_resp_text(w, "server");
    sl_resp_text(w, "sluice");
    sl_resp_text(w, "version");
    sl_resp_text(w, SLUICE_VERSION);
    sl_resp_text(w, "proto");
    sl_resp_integer(w, w->resp3 ? 3 : 2);
    sl_resp_text(w, "id");
    sl_resp_integer(w, (int64_t)sl_conn_id(call->c));
    sl_resp_text(w, "mode");
    sl_resp_text(w, "standalone");
    sl_resp_text(w, "role");
    sl_resp_text(w, "master");
    sl_resp_text(w, "modules");
    sl_resp_array(w, 0);
}

void sl_do_hello(struct call *call)
{
    int64_t version = call->out->resp3 ? 3 : 2;
    const struct sl_bytes *name = NULL, *user = NULL;
    if (call->n > 1 && !sl_parse_number(call->at[1], 2, 3, &version)) {
        sl_say(call, "NOPROTO", "the protocol version must be 2 or 3");
        return;
    }
    for (size_t i = 2; i < call->n; i++) {
        if (sl_word_is(call->at[i], "AUTH") && i + 2 < call->n) {
            user = &call->at[i + 1];
            i += 2;
        } else if (sl_word_is(call->at[i], "SETNAME") && i + 1 < call->n)
            name = &call->at[++i];
        else {
            /* Do not show arguments in the error: one may be a password. */
            sl_say_usage(call, "unknown or incomplete option for HELLO");
            return;
        }
    }
    /* As in Redis, a server without a password accepts any password. */
    bool asked = *call->s->settings->password != '\0';
    if (name != NULL && !is_name(call, *name)) return;
    if (user != NULL && asked &&
        (sl_auth_must_wait(call) || !authenticate(call, user, user[1])))
        return;
    if (!call->c->authed) {
        sl_say(call, "NOAUTH",
               "authentication required; send HELLO version AUTH default password");
        return;
    }
    if (version == 2 && call->c->notify_count > 0) {
        sl_say(call, "ERR",
               "this connection waits with NOTIFY, which needs version 3 of the "
               "protocol; CANCEL first");
        return;
    }
    if (name != NULL) set_name(call->c, *name);
    call->out->resp3 = version == 3;
    greet(call);
}

/* --- PING, ECHO, SELECT, QUIT, RESET ----------------------------------------- */

void sl_do_ping(struct call *call)
{
    const struct conn *c = call->c;
    struct sl_resp_writer *w = call->out;
    if (!w->resp3 && sl_subscriber_listens(&c->subscriber)) {
        const struct sl_bytes none = {"", 0};
        sl_resp_array(w, 2);
        sl_resp_text(w, "pong");
        sl_resp_bulk(w, call->n > 1 ? call->at[1] : none);
    } else if (call->n > 1) sl_resp_bulk(w, call->at[1]);
    else sl_resp_simple(w, "PONG");
}

void sl_do_echo(struct call *call)
{
    sl_resp_bulk(call->out, call->at[1]);
}

void sl_do_select(struct call *call)
{
    int64_t n;
    if (sl_parse_number(call->at[1], 0, 0, &n)) sl_resp_simple(call->out, "OK");
    else
        sl_say_format(call, "ERR", "SELECT accepts only database 0 (got \"%.*s%s\")",
                      SL_SHOWN(call->at[1]));
}

void sl_do_quit(struct call *call)
{
    sl_resp_simple(call->out, "OK");
    sl_conn_hang_up(call->c, SL_SAID_BYE);
}

static void forget_reset(struct request *r)
{
    r->resets->resets = NULL;
}

void sl_do_reset(struct call *call)
{
    struct conn *c = call->c;
    struct request r, *k;
    struct session *old;
    sl_request_init(&r, call, SL_VERB_NONE);
    if (!sl_request_reserve(&r)) return;
    if (sl_conn_begin_session(c, &old) != SLUICE_OK) {
        sl_say_status(call, SLUICE_ENOMEM);
        return;
    }
    sl_pubsub_drop_all(&call->s->pubsub, c);
    c->name[0] = '\0';
    c->out.resp3 = false;
    sl_conn_authed(c, *call->s->settings->password == '\0');
    c->since_ms = call->s->now.ms;
    /* Answer RESET only when all locks are released, so that the client finds them free. */
    k = sl_request_keep(&r);
    k->resets = old;
    k->dropped = forget_reset;
    old->resets = k;
}

/* --- SUBSCRIBE and PUBSUB ---------------------------------------------------- */

static void confirm(struct conn *c, const char *what, const struct sl_bytes *name)
{
    struct sl_resp_writer *w = sl_conn_out(c);
    sl_resp_push(w, 3);
    sl_resp_text(w, what);
    if (name != NULL) sl_resp_bulk(w, *name);
    else sl_resp_null(w);
    sl_resp_integer(
        w, (int64_t)(c->subscriber.channel_count + c->subscriber.pattern_count));
}

#define CHANNEL_PREFIX_BYTES 5 /* A channel consists of "lock:" and a key. */

static int subscribe_one(struct call *call, struct sl_bytes name, bool pattern)
{
    const struct sl_settings *set = call->s->settings;
    if (pattern && name.n > (size_t)set->pattern_bytes_max) return SLUICE_ETOOBIG;
    if (name.n > (size_t)set->key_bytes_max + CHANNEL_PREFIX_BYTES)
        return SLUICE_ETOOBIG;
    if (pattern) sl_server_spend(call->s, SL_GLOB_COMPILE_STEPS * name.n);
    return sl_pubsub_subscribe(&call->s->pubsub, call->c, name, pattern,
                               (size_t)set->subscriptions_max,
                               (size_t)set->patterns_max);
}

/* Reply that a channel or pattern is too long. key-bytes-max limits a channel; both settings limit
 * a pattern. */
static void say_too_long(struct call *call, struct sl_bytes name, bool pattern)
{
    const struct sl_settings *set = call->s->settings;
    int64_t most = set->key_bytes_max + CHANNEL_PREFIX_BYTES;
    bool by_pattern = pattern && set->pattern_bytes_max < most;
    sl_say_format(call, "TOOBIG", "the %s has %zu bytes; the limit is %" PRId64 " (%s)",
                  pattern ? "pattern" : "channel", name.n,
                  by_pattern ? set->pattern_bytes_max : most,
                  by_pattern ? "pattern-bytes-max" : "key-bytes-max");
}

static void say_why_not(struct call *call, int status, struct sl_bytes name,
                        bool pattern)
{
    const struct sl_settings *set = call->s->settings;
    if (status == SLUICE_ETOOBIG) say_too_long(call, name, pattern);
    else if (status == SLUICE_EFULL)
        sl_say_format(call, "LIMIT",
                      "the connection has reached its limit of %" PRId64
                      " subscriptions (subscriptions-max)",
                      set->subscriptions_max);
    else if (status == SLUICE_EKEYS)
        sl_say_format(
            call, "LIMIT",
            "the server has reached its limit of %" PRId64
            " subscribed patterns (patterns-max); use SUBSCRIBE, or raise the "
            "setting",
            set->patterns_max);
    else sl_say_status(call, status);
}

static void subscribe(struct call *call, bool pattern)
{
    for (size_t i = 1; i < call->n; i++) {
        int status = subscribe_one(call, call->at[i], pattern);
        if (status != SLUICE_OK) {
            say_why_not(call, status, call->at[i], pattern);
            return;
        }
        confirm(call->c, pattern ? "psubscribe" : "subscribe", &call->at[i]);
    }
}

void sl_do_subscribe(struct call *call)
{
    subscribe(call, false);
}

void sl_do_psubscribe(struct call *call)
{
    subscribe(call, true);
}

static void told_channel(struct conn *c, struct sl_bytes name)
{
    confirm(c, "unsubscribe", &name);
}

static void told_pattern(struct conn *c, struct sl_bytes name)
{
    confirm(c, "punsubscribe", &name);
}

static void unsubscribe(struct call *call, bool pattern)
{
    struct sl_pubsub *p = &call->s->pubsub;
    struct conn *c = call->c;
    const char *what = pattern ? "punsubscribe" : "unsubscribe";
    for (size_t i = 1; i < call->n; i++) {
        sl_pubsub_unsubscribe(p, c, call->at[i], pattern);
        confirm(c, what, &call->at[i]);
    }
    if (call->n > 1) return;
    if ((pattern ? c->subscriber.pattern_count : c->subscriber.channel_count) == 0)
        confirm(c, what, NULL);
    while (sl_pubsub_drop_one(p, c, pattern, pattern ? told_pattern : told_channel)) {}
}

void sl_do_unsubscribe(struct call *call)
{
    unsubscribe(call, false);
}

void sl_do_punsubscribe(struct call *call)
{
    unsubscribe(call, true);
}

static void list_channels(struct call *call, struct sl_bytes glob)
{
    size_t steps = 0;
    if (glob.n > (size_t)call->s->settings->pattern_bytes_max) {
        sl_say_format(call, "TOOBIG",
                      "the pattern has %zu bytes; the limit is %" PRId64
                      " (pattern-bytes-max)",
                      glob.n, call->s->settings->pattern_bytes_max);
        return;
    }
    int status = sl_pubsub_list(&call->s->pubsub, glob, call->out, &steps);
    if (status == SLUICE_ENOMEM) sl_say_status(call, status);
    else if (status != SLUICE_OK)
        sl_say(call, "LIMIT",
               "there are too many channels to list in one command; use PUBSUB NUMSUB "
               "channel for a single channel");
    sl_server_spend(call->s, 2 * steps);
}

void sl_do_pubsub(struct call *call)
{
    const struct sl_pubsub *p = &call->s->pubsub;
    struct sl_resp_writer *w = call->out;
    const struct sl_bytes all = {0};
    if (sl_word_is(call->at[1], "CHANNELS") && call->n <= 3)
        list_channels(call, call->n > 2 ? call->at[2] : all);
    else if (sl_word_is(call->at[1], "NUMPAT") && call->n == 2)
        sl_resp_integer(w, (int64_t)p->pattern_count);
    else if (sl_word_is(call->at[1], "NUMSUB")) {
        /* A flat array even in RESP3, as in Redis. */
        sl_resp_array(w, 2 * (call->n - 2));
        for (size_t i = 2; i < call->n; i++) {
            sl_resp_bulk(w, call->at[i]);
            sl_resp_integer(w, (int64_t)sl_pubsub_count(p, call->at[i]));
        }
    } else if (sl_word_is(call->at[1], "CHANNELS") || sl_word_is(call->at[1], "NUMPAT"))
        sl_say_usage(call, "too many arguments");
    else
        sl_say_unknown(call, "subcommand", call->at[1],
                       SL_NAMES("CHANNELS", "NUMSUB", "NUMPAT"));
}

/* --- CLIENT --------------------------------------------------------------- */

static int describe(const struct conn *c, char *out, size_t n)
{
    char address[128];
    sl_conn_address(c, address, sizeof address);
    sl_ms now = c->server->now.ms;
    return snprintf(out, n,
                    "id=%" PRIu64 " addr=%s name=%s age=%" PRId64 " idle=%" PRId64
                    " flags=%s sub=%zu psub=%zu omem=%zu resp=%d tx=%" PRIu64 "\n",
                    sl_conn_id(c), address, c->name, (now - c->since_ms) / 1000,
                    (now - c->heard_ms) / 1000,
                    !sl_list_empty(&c->requests)            ? "b"
                    : sl_subscriber_listens(&c->subscriber) ? "P"
                                                            : "N",
                    c->subscriber.channel_count, c->subscriber.pattern_count,
                    c->out.n + c->sending_bytes, c->out.resp3 ? 3 : 2,
                    c->tx == NULL ? 0 : c->tx->id);
}

static void list_clients(struct call *call)
{
    const struct sl_list *all = &call->s->conns;
    size_t count = 0, n = 0, shown = 0;
    for (const struct sl_list *i = all->next; i != all && count < CLIENTS_SHOWN_MAX;
         i = i->next)
        count++;
    size_t size = count * 512 + 1;
    char *text = malloc(size);
    if (text == NULL) {
        sl_say_status(call, SLUICE_ENOMEM);
        return;
    }
    for (const struct sl_list *i = all->next;
         i != all && shown++ < CLIENTS_SHOWN_MAX && n + 512 < size; i = i->next)
        n += (size_t)describe(sl_container_of(i, struct conn, all), text + n, 512);
    sl_call_cost(call, count);
    sl_resp_bulk(call->out, (struct sl_bytes){text, n});
    free(text);
}

static void end_client(struct call *call, struct conn *c)
{
    if (c == call->c) sl_conn_hang_up(c, SL_WAS_CUT);
    else sl_conn_close(c, SL_WAS_CUT);
}

/* Parse an address as CLIENT LIST shows it. */
static bool parse_address(struct sl_bytes b, struct sockaddr_in6 *out)
{
    char text[80], *colon;
    int64_t port;
    if (b.n >= sizeof text) return false;
    memcpy(text, b.at, b.n);
    text[b.n] = '\0';
    colon = strrchr(text, ':');
    if (colon == NULL) return false;
    *colon = '\0';
    const struct sl_bytes digits = {colon + 1, strlen(colon + 1)};
    if (!sl_parse_number(digits, 1, UINT16_MAX, &port)) return false;
    if (*text != '[')
        return uv_ip4_addr(text, (int)port, (struct sockaddr_in *)out) == 0;
    if (colon == text || colon[-1] != ']') return false;
    colon[-1] = '\0';
    return uv_ip6_addr(text + 1, (int)port, out) == 0;
}

static bool same_peer(const struct sockaddr_in6 *a, const struct sockaddr_in6 *b)
{
    if (a->sin6_family != b->sin6_family || a->sin6_port != b->sin6_port) return false;
    if (a->sin6_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr) == 0;
}

static struct conn *find_client(struct call *call, struct sl_bytes address)
{
    const struct sl_list *all = &call->s->conns;
    struct sockaddr_in6 peer = {0};
    if (!parse_address(address, &peer)) return NULL;
    sl_call_cost(call, call->s->conn_count / 16);
    for (const struct sl_list *i = all->next; i != all; i = i->next) {
        struct conn *c = sl_container_of(i, struct conn, all);
        if (same_peer(&c->peer, &peer)) return c;
    }
    return NULL;
}

/* Handle CLIENT KILL. With ID or ADDR it returns a count; the old form returns OK or an error. */
static void kill_client(struct call *call)
{
    struct conn *c = NULL;
    int64_t id;
    if (call->n == 4 && sl_word_is(call->at[2], "ID")) {
        if (!sl_parse_number(call->at[3], 1, INT64_MAX, &id)) {
            sl_say_format(call, "ERR",
                          "the client id must be a positive integer (got \"%.*s%s\")",
                          SL_SHOWN(call->at[3]));
            return;
        }
        const struct session *n = sl_server_session(call->s, (uint64_t)id);
        if (n != NULL) c = n->conn;
    } else if (call->n == 4 && sl_word_is(call->at[2], "ADDR"))
        c = find_client(call, call->at[3]);
    else if (call->n == 3) c = find_client(call, call->at[2]);
    else {
        sl_say(call, "ERR",
               "CLIENT KILL needs a client; usage: CLIENT KILL ID n, CLIENT KILL ADDR "
               "address, or CLIENT KILL address");
        return;
    }
    if (call->n == 4) sl_resp_integer(call->out, c != NULL ? 1 : 0);
    else if (c != NULL) sl_resp_simple(call->out, "OK");
    else
        sl_say_format(
            call, "ERR",
            "no client has the address \"%.*s%s\"; CLIENT LIST lists the clients",
            SL_SHOWN(call->at[2]));
    if (c != NULL) end_client(call, c);
}

static void client_name(struct call *call)
{
    if (call->c->name[0] != '\0') sl_resp_text(call->out, call->c->name);
    else sl_resp_null(call->out);
}

/* Whether this is a command that Redis clients send automatically and that has no effect here. */
static bool is_polite(const struct call *call)
{
    struct sl_bytes what = call->at[1];
    if (call->n == 4 && sl_word_is(what, "SETINFO"))
        return sl_word_is(call->at[2], "LIB-NAME") ||
               sl_word_is(call->at[2], "LIB-VER");
    if (call->n != 3 ||
        (!sl_word_is(what, "NO-EVICT") && !sl_word_is(what, "NO-TOUCH")))
        return false;
    return sl_word_is(call->at[2], "ON") || sl_word_is(call->at[2], "OFF");
}

static void say_wrong_form(struct call *call)
{
    static const char *const names[] = {"ID",      "GETNAME",  "SETNAME",
                                        "SETINFO", "INFO",     "LIST",
                                        "KILL",    "NO-EVICT", "NO-TOUCH"};
    const size_t n = sizeof names / sizeof *names;
    for (size_t i = 0; i < n; i++)
        if (sl_word_is(call->at[1], names[i])) {
            sl_say_usage(call, "wrong arguments for this subcommand of CLIENT");
            return;
        }
    sl_say_unknown(call, "subcommand", call->at[1], names, n);
}

void sl_do_client(struct call *call)
{
    struct sl_bytes what = call->at[1];
    char text[512];
    size_t n = call->n;
    if (n == 2 && sl_word_is(what, "ID"))
        sl_resp_integer(call->out, (int64_t)sl_conn_id(call->c));
    else if (n == 2 && sl_word_is(what, "GETNAME")) client_name(call);
    else if (n == 3 && sl_word_is(what, "SETNAME")) {
        if (!is_name(call, call->at[2])) return;
        set_name(call->c, call->at[2]);
        sl_resp_simple(call->out, "OK");
    } else if (n == 2 && sl_word_is(what, "INFO")) {
        describe(call->c, text, sizeof text);
        sl_resp_text(call->out, text);
    } else if (sl_word_is(what, "LIST")) list_clients(call);
    else if (sl_word_is(what, "KILL")) kill_client(call);
    else if (is_polite(call)) sl_resp_simple(call->out, "OK");
    else say_wrong_form(call);
}
