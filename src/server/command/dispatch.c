#include "server/command/dispatch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/suggest.h"
#include "server/forward/proxy.h"
#include "server/observe/log.h"
#include "server/observe/memory.h"
#include "server/request.h"

enum {
    READ = SL_READ,
    WRITE = SL_WRITE,
    BLOCK = SL_BLOCK,
    ADMIN = SL_ADMIN,
    EARLY = SL_EARLY,
    LISTEN = SL_LISTEN,
    GROW = SL_GROW,
    REQUEST = SL_REQUEST,
    RETRY = SL_RETRY,
    COMPLETE = SL_COMPLETE,
    TX = SL_TX,
    BEGINS = SL_BEGINS,
    COMMITS = SL_COMMITS,
    ABORTS = SL_ABORTS,
    LATE = SL_LATE,
};

const struct command sl_commands[] = {
#define COMMAND(name, function, min, max, flags, key, group, syntax, summary) \
    {#name, sl_do_##function, min, max, flags, key, group, syntax, summary},
#include "commands.def"
#undef COMMAND
};
#define COMMANDS (sizeof sl_commands / sizeof *sl_commands)
const size_t sl_command_count = COMMANDS;

/* --- Finding a command ---------------------------------------------------- */

#define PLACES 256u
/* Hash table: the index of a command plus 1; 0: empty. */
static uint8_t places[PLACES];
static uint8_t name_bytes[PLACES]; /* The length of each command's name. */

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
}

static unsigned hash_name(const char *name, size_t n)
{
    if (n == 0) return 0;
    unsigned first = (unsigned char)upper(name[0]);
    unsigned last = (unsigned char)upper(name[n - 1]);
    return (first * 61 + last * 7 + (unsigned)n) % PLACES;
}

void sl_dispatch_setup(void)
{
    for (size_t i = 0; i < sl_command_count; i++) {
        name_bytes[i] = (uint8_t)strlen(sl_commands[i].name);
        unsigned at = hash_name(sl_commands[i].name, name_bytes[i]);
        while (places[at] != 0) at = (at + 1) % PLACES;
        places[at] = (uint8_t)(i + 1);
    }
}

bool sl_word_matches(struct sl_bytes b, const char *word)
{
    for (size_t i = 0; i < b.n; i++) {
        if (b.at[i] == word[i] && word[i] != '\0')
            continue; /* Most clients send upper case. */
        if (word[i] == '\0' || upper(b.at[i]) != word[i]) return false;
    }
    return word[b.n] == '\0';
}

const struct command *sl_command_find(struct sl_bytes name)
{
    if (name.n > 32) return NULL;
    for (unsigned at = hash_name(name.at, name.n); places[at] != 0;
         at = (at + 1) % PLACES) {
        const struct command *c = &sl_commands[places[at] - 1];
        if (name_bytes[places[at] - 1] != name.n) continue;
        /* Most clients send upper case. */
        if (memcmp(name.at, c->name, name.n) == 0 || sl_word_is(name, c->name))
            return c;
    }
    return NULL;
}

/* --- Running a command ---------------------------------------------------- */

/* Whether this is a Redis command that stores data or takes a lock. */
static bool is_data_command(struct sl_bytes name)
{
    static const char *const names[] = {
        "SET",     "GET",    "EVAL",    "EVALSHA", "DEL",    "SETNX",  "SETEX",
        "PSETEX",  "GETSET", "GETDEL",  "GETEX",   "MSET",   "MGET",   "APPEND",
        "INCR",    "DECR",   "INCRBY",  "DECRBY",  "EXISTS", "EXPIRE", "PEXPIRE",
        "PERSIST", "TTL",    "PTTL",    "UNLINK",  "TYPE",   "STRLEN", "HSET",
        "HGET",    "HDEL",   "HGETALL", "LPUSH",   "RPUSH",  "LPOP",   "RPOP",
        "BLPOP",   "BRPOP",  "LRANGE",  "SADD",    "SREM",   "ZADD",   "ZRANGE",
        "ZREM",    "XADD",   "XREAD",   "FCALL",   "SCRIPT", "PUBLISH"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (sl_word_is(name, names[i])) return true;
    return false;
}

/* Return the command that other systems call by this name, or NULL. */
static const char *usual_name(struct sl_bytes name)
{
    static const char *const names[][2] = {
        {"LOCK", "ACQUIRE"},   {"TRYLOCK", "ACQUIRE"},   {"UNLOCK", "RELEASE"},
        {"RENEW", "EXTEND"},   {"BEGIN", "TX.BEGIN"},    {"COMMIT", "TX.COMMIT"},
        {"ABORT", "TX.ABORT"}, {"ROLLBACK", "TX.ABORT"}, {"KEYS", "LOCKS"},
        {"SCAN", "LOCKS"},     {"STATUS", "INFO"},       {"WAIT", "AWAIT"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (sl_word_is(name, names[i][0])) return names[i][1];
    return NULL;
}

static const char *suggest_command(struct sl_bytes name)
{
    const char *names[COMMANDS];
    const char *usual = usual_name(name);
    for (size_t i = 0; i < COMMANDS; i++) names[i] = sl_commands[i].name;
    return usual != NULL ? usual : sl_suggest(name, names, COMMANDS);
}

static void say_unknown_command(struct call *call)
{
    struct sl_bytes name = call->at[0];
    const char *suggestion = suggest_command(name);
    sl_call_cost(call, 5);
    if (is_data_command(name))
        sl_say_format(
            call, "ERR",
            "unknown command \"%.*s%s\": Sluice is a lock service, not a data store; "
            "use "
            "ACQUIRE key LEASE time to take a lock, and RELEASE key fence to release "
            "it",
            SL_SHOWN(name));
    else if (suggestion != NULL)
        sl_say_format(call, "ERR", "unknown command \"%.*s%s\"; did you mean %s?",
                      SL_SHOWN(name), suggestion);
    else
        sl_say_format(call, "ERR",
                      "unknown command \"%.*s%s\"; COMMAND LIST lists all commands",
                      SL_SHOWN(name));
}

/* Whether this is HTTP: a web page can make a browser send requests to this port. */
static bool is_web(struct sl_bytes name)
{
    return sl_word_is(name, "POST") || sl_word_is(name, "HOST:");
}

static void hang_up_on_web(struct call *call)
{
    static struct sl_log_kind kind;
    sl_log_often(&kind, call->s->now.ms, SL_LOG_WARN,
                 "closed a connection: the client speaks HTTP", NULL);
    sl_say(call, "ERR", "this port speaks the Redis protocol, not HTTP");
    sl_conn_hang_up(call->c, SL_WAS_CUT);
}

static bool listens(const struct conn *c)
{
    return !c->out.resp3 && sl_subscriber_listens(&c->subscriber);
}

/* Whether the connection is the extra one above connections-max, which is for an administrator and
 * must not create state. */
static bool is_reserved(const struct call *call)
{
    return call->c == call->s->reserved &&
           call->s->conn_count > (size_t)call->s->settings->connections_max;
}

/* Whether the command may create state now. If not, reply with the reason. */
static bool may_grow(struct call *call)
{
    if (call->s->memory_full && sl_memory_rejects(call)) return false;
    if (!is_reserved(call)) return true;
    sl_say(call, "LIMIT",
           "all connections are in use (connections-max), and this one is reserved for "
           "administration; retry when another connection has closed");
    return false;
}

#define NOAUTH_TEXT "authentication required; send AUTH password"

/* Whether the command may run now. If not, reply with the reason. */
static inline bool may_ask(struct call *call, const struct command *command)
{
    if (!call->c->authed && (command->flags & SL_EARLY) == 0)
        sl_say(call, "NOAUTH", NOAUTH_TEXT);
    else if (listens(call->c) && (command->flags & SL_LISTEN) == 0)
        sl_say(
            call, "ERR",
            "this connection has subscriptions, so only (P)SUBSCRIBE, "
            "(P)UNSUBSCRIBE, PING, HELLO, QUIT and RESET are allowed; send HELLO 3 to "
            "use other commands at the same time");
    else if (call->c->requests_only != NULL && (command->flags & SL_REQUEST) == 0)
        sl_say(call, "ERR", call->c->requests_only);
    else if (call->s->stopping && (command->flags & SL_LATE) == 0)
        sl_say(call, "SHUTDOWN", SL_SHUTDOWN_TEXT);
    else return (command->flags & SL_GROW) == 0 || may_grow(call);
    return false;
}

/* Reject MULTI, which the server does not support, and all commands up to EXEC. The client sends
 * these commands right after MULTI, and expects that either all or none of them run. */
static bool refuses(struct call *call)
{
    struct sl_bytes name = call->at[0];
    bool multi = sl_word_is(name, "MULTI");
    if (!call->c->authed || (!multi && !call->c->in_multi)) return false;
    bool end = sl_word_is(name, "EXEC") || sl_word_is(name, "DISCARD");
    if (sl_word_is(name, "RESET") || sl_word_is(name, "QUIT"))
        call->c->in_multi = false;
    if (!multi && !call->c->in_multi) return false;
    call->c->in_multi = !end;
    if (end) sl_say(call, "EXECABORT", "no command was run: MULTI is not supported");
    else
        sl_say(call, "ERR",
               multi ? "MULTI is not supported, so the commands up to EXEC are not "
                       "run; with "
                       "redis-py, use pipeline(transaction=False)"
                     : "command not run: it follows a MULTI, which is not supported");
    return true;
}

/* Run a command. First process due work: for example, publish that a lease has expired before its
 * key is granted again. (If more work is due than fits into one loop iteration, the order may
 * differ.) */
static inline void run(struct call *call)
{
    const struct command *command = call->command;
    bool enough = call->n >= command->min &&
                  (command->max == 0 || call->n <= command->max);
    if (call->s->pumped_ms != call->s->now.ms) sl_request_pump_due(call->s);
    if (enough) command->run(call);
    else
        sl_say_format(call, "ERR", "wrong number of arguments for %s; usage: %s",
                      command->name, command->syntax);
}

/* Return the name of a command that belongs to a transaction, or NULL. A command that fails makes
 * the transaction fail; this includes unknown commands that begin with "TX.". */
static const char *tx_name(const struct command *command, struct sl_bytes name)
{
    if (command != NULL) return (command->flags & SL_TX) != 0 ? command->name : NULL;
    bool tx = name.n >= 3 && sl_word_is((struct sl_bytes){name.at, 3}, "TX.");
    return tx ? "an unknown command" : NULL;
}

static inline void dispatch(struct call *call)
{
    const struct command *command = call->command;
    /* MULTI is not in the command table. */
    if ((command == NULL || call->c->in_multi) && refuses(call)) return;
    if (command != NULL) {
        if (may_ask(call, command)) run(call);
    } else if (is_web(call->at[0])) hang_up_on_web(call);
    else if (!call->c->authed) sl_say(call, "NOAUTH", NOAUTH_TEXT);
    else say_unknown_command(call);
}

void sl_dispatch(struct conn *c, const struct sl_args *args)
{
    const struct command *command = sl_command_find(args->at[0]);
    struct call call = {.c = c,
                        .s = c->server,
                        .out = sl_conn_out(c),
                        .command = command,
                        .at = args->at,
                        .n = args->n,
                        .tx = tx_name(command, args->at[0])};
    c->server->stats.commands++;
    dispatch(&call);
}

void sl_dispatch_again(struct conn *c, const struct request *r)
{
    struct call call = sl_request_call(r);
    call.resumed = r;
    call.begun = false;
    assert(call.c == c);
    dispatch(&call);
    if (call.begun && c->proxy != NULL) sl_proxy_outcome(r);
}

void sl_call_cost(struct call *call, size_t commands)
{
    uint32_t *left = &call->s->commands_left;
    *left = *left > commands ? *left - (uint32_t)commands : 0;
}

/* --- Replies --------------------------------------------------------------- */

void sl_call_begin(struct call *call)
{
    if (call->queued == NULL) return;
    if (call->c->proxy != NULL) { /* Its node writes the push message. */
        call->c->proxy->outcome = call->out->n;
        call->begun = true;
        return;
    }
    if (call->begun) return;
    call->begun = true;
    sl_resp_push(call->out, 5);
    sl_resp_text(call->out, "lock");
    sl_resp_bulk(call->out, call->queued->key);
    sl_resp_text(call->out, "outcome");
    sl_resp_bulk(call->out, call->queued->id);
}

/* --- Errors ---------------------------------------------------------------- */

void sl_say(struct call *call, const char *code, const char *text)
{
    call->s->stats.errors++;
    if (call->tx != NULL) sl_request_tx_failed(call->c, call->tx, code);
    sl_call_begin(call);
    sl_resp_problem(call->out, code, text);
}

void sl_say_format(struct call *call, const char *code, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sl_say(call, code, text);
}

void sl_say_usage(struct call *call, const char *text)
{
    sl_say_format(call, "ERR", "%s; usage: %s", text, call->command->syntax);
}

void sl_say_missing(struct call *call, const char *name)
{
    sl_say_format(call, "ERR", "%s needs a value; usage: %s", name,
                  call->command->syntax);
}

void sl_say_unknown(struct call *call, const char *kind, struct sl_bytes word,
                    const char *const *names, size_t n)
{
    const char *suggestion = sl_suggest(word, names, n);
    /* An option of this command, but not at this place. */
    if (suggestion != NULL && sl_word_is(word, suggestion))
        sl_say_format(call, "ERR",
                      "%s \"%s\" cannot follow the options before it; usage: %s", kind,
                      suggestion, call->command->syntax);
    else if (suggestion != NULL)
        sl_say_format(call, "ERR", "unknown %s \"%.*s%s\" for %s; did you mean %s?",
                      kind, SL_SHOWN(word), call->command->name, suggestion);
    else
        sl_say_format(call, "ERR", "unknown %s \"%.*s%s\" for %s; usage: %s", kind,
                      SL_SHOWN(word), call->command->name, call->command->syntax);
}

void sl_say_duration(struct call *call, size_t i, const struct sl_duration_range *range,
                     const char *code)
{
    char min[SL_DURATION_BYTES], max[SL_DURATION_BYTES];
    if (i >= call->n) sl_say_missing(call, range->name);
    else
        sl_say_format(
            call, code,
            "%s must be a duration from %s to %s%s, such as " SL_DURATION_FORMS
            ", or a number of milliseconds (got \"%.*s%s\")",
            range->name, sl_duration_text(range->min, min),
            sl_duration_text(range->max, max), range->setting, SL_SHOWN(call->at[i]));
}

bool sl_duration_at(struct call *call, size_t i, const char *name, sl_ms *out)
{
    struct sl_duration_range range = {name, 0, SL_WAIT_MS_MAX, ""};
    if (i < call->n && sl_parse_duration(call->at[i], 1, 0, SL_WAIT_MS_MAX, out))
        return true;
    sl_say_duration(call, i, &range, "ERR");
    return false;
}

void sl_say_status(struct call *call, int status)
{
    const struct sl_settings *set = call->s->settings;
    const char *code = sluice_status_word(status);
    switch (status) {
        case SLUICE_EKEYS:
            sl_say_format(call, code,
                          "the server has reached its limit of %" PRId64
                          " keys (keys-max); release locks, or raise the setting",
                          set->keys_max);
            break;
        case SLUICE_EWAITERS:
            sl_say_format(call, code,
                          "the key has reached its limit of %" PRId64
                          " waiters (waiters-max); retry later",
                          set->waiters_max);
            break;
        case SLUICE_EDRAINED:
            sl_say(call, code,
                   "the key matches a DRAIN pattern, so it is not granted; retry after "
                   "DRAIN pattern OFF (DRAIN lists the patterns)");
            break;
        case SLUICE_EDEADLOCK:
            sl_say(call, code,
                   "the request would wait for units that only this connection holds; "
                   "RELEASE them first, or declare a larger capacity with PER and "
                   "BUCKETS");
            break;
        case SLUICE_ELOST:
            sl_say(call, code,
                   "the grant is no longer held under this fence; stop using the "
                   "resource, and ACQUIRE again");
            break;
        case SLUICE_EASKED:
            sl_say(call, code,
                   "a higher-priority client waits for this lock with STEAL, or was "
                   "granted it early; RELEASE it before its lease expires");
            break;
        case SLUICE_ENOLEASE:
            sl_say(call, code,
                   "the grant has no lease: it is held until its connection closes");
            break;
        default: sl_say(call, code, sluice_status_text(status)); break;
    }
}
