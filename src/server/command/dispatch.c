#include "server/command/dispatch.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

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
};

const struct command sl_commands[] = {
#define COMMAND(name, function, min, max, flags, key, group, syntax, summary) \
    {#name, sl_do_##function, min, max, flags, key, group, syntax, summary},
#include "commands.def"
#undef COMMAND
};
const size_t sl_command_count = sizeof sl_commands / sizeof *sl_commands;

/* --- Finding a command ---------------------------------------------------- */

#define PLACES 256u
static uint8_t places[PLACES];     /* The number of a command, plus 1; 0: none. */
static uint8_t name_bytes[PLACES]; /* Of each command. */

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

/* --- Running it ----------------------------------------------------------- */

static void say_unknown(struct call *call)
{
    char text[160];
    snprintf(text, sizeof text,
             "unknown command '%.*s'; COMMAND LIST lists those there are",
             (int)(call->at[0].n < 64 ? call->at[0].n : 64), call->at[0].at);
    sl_say(call, "ERR", text);
}

static void say_arity(struct call *call, const struct command *command)
{
    char text[320];
    snprintf(text, sizeof text, "wrong number of arguments for '%s'; it is: %s",
             command->name, command->syntax);
    sl_say(call, "ERR", text);
}

/* A web page may let a browser send requests to this port. */
static bool is_web(struct sl_bytes name)
{
    return sl_word_is(name, "POST") || sl_word_is(name, "HOST:");
}

static void hang_up_on_web(struct call *call)
{
    static struct sl_log_kind kind;
    sl_log_often(&kind, call->s->now.ms, SL_LOG_WARN,
                 "hung up: somebody speaks HTTP to this port", NULL);
    sl_say(call, "ERR", "this is not a web server");
    sl_conn_hang_up(call->c, SL_WAS_CUT);
}

static bool listens(const struct conn *c)
{
    return !c->out.resp3 && sl_subscriber_listens(&c->subscriber);
}

/* The connection above connections-max is for an administrator and must not create state. */
static bool is_reserved(const struct call *call)
{
    return call->c == call->s->reserved &&
           call->s->conn_count > (size_t)call->s->settings->connections_max;
}

/* Whether the command may create state now; if not, the reply says why. */
static bool may_grow(struct call *call)
{
    if (call->s->memory_full && sl_memory_rejects(call)) return false;
    if (!is_reserved(call)) return true;
    sl_say(call, "LIMIT",
           "connections-max is reached, and this connection is reserved for "
           "administration; "
           "retry when another connection has closed");
    return false;
}

/* Whether the command may run now; if not, the reply says why. */
static inline bool may_ask(struct call *call, const struct command *command)
{
    if (!call->c->authed && (command->flags & SL_EARLY) == 0)
        sl_say(call, "NOAUTH", "Authentication required: AUTH password");
    else if (listens(call->c) && (command->flags & SL_LISTEN) == 0)
        sl_say(call, "ERR",
               "this connection listens: only (P)SUBSCRIBE, (P)UNSUBSCRIBE, PING, QUIT "
               "and RESET, or HELLO 3 for both at once");
    else if (call->c->requests_only != NULL && (command->flags & SL_REQUEST) == 0)
        sl_say(call, "ERR", call->c->requests_only);
    else if (call->s->stopping) sl_say(call, "SHUTDOWN", "the server stops");
    else return (command->flags & SL_GROW) == 0 || may_grow(call);
    return false;
}

/* The server has no MULTI. A client sends the commands of a MULTI right after it, and expects that
 * all or none of them run: so all of them are rejected. */
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
    if (end)
        sl_say(call, "EXECABORT", "nothing was done: MULTI is not in this version");
    else
        sl_say(call, "ERR",
               multi
                   ? "MULTI is not in this version, and what follows up to EXEC is not "
                     "done; for a plain pipeline of redis-py: "
                     "pipeline(transaction=False)"
                   : "not done: it belongs to a MULTI, which is not in this version");
    return true;
}

/* What has become due is published first: that a lease has expired before that its key is
 * granted again. (When more is due than fits into a turn, the order may differ.) */
static inline void run(struct call *call)
{
    const struct command *command = call->command;
    bool enough = call->n >= command->min &&
                  (command->max == 0 || call->n <= command->max);
    if (call->s->pumped_ms != call->s->now.ms) sl_request_pump_due(call->s);
    if (enough) command->run(call);
    else say_arity(call, command);
}

/* A transaction fails with any of its commands, also with one that does not exist. */
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
    else if (!call->c->authed)
        sl_say(call, "NOAUTH", "Authentication required: AUTH password");
    else say_unknown(call);
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
    assert(call.c == c);
    dispatch(&call);
}

void sl_call_cost(struct call *call, size_t commands)
{
    uint32_t *left = &call->s->commands_left;
    *left = *left > commands ? *left - (uint32_t)commands : 0;
}

/* --- Errors ---------------------------------------------------------------- */

void sl_say(struct call *call, const char *word, const char *text)
{
    call->s->stats.errors++;
    if (call->tx != NULL) sl_request_tx_failed(call->c, call->tx, word);
    sl_resp_problem(call->out, word, text);
}

void sl_say_syntax(struct call *call, const char *what)
{
    char text[400];
    snprintf(text, sizeof text, "syntax error: %s; it is: %s", what,
             call->command->syntax);
    sl_say(call, "ERR", text);
}

void sl_say_duration(struct call *call, size_t i, const struct sl_duration_range *range,
                     const char *code)
{
    char text[300], min[SL_DURATION_BYTES], max[SL_DURATION_BYTES];
    struct sl_bytes got = i < call->n ? call->at[i] : (struct sl_bytes){"", 0};
    snprintf(text, sizeof text,
             "%s must be a duration from %s to %s%s: " SL_DURATION_FORMS
             ", or a number of milliseconds (got \"%.*s\"%s)",
             range->name, sl_duration_text(range->min, min),
             sl_duration_text(range->max, max), range->setting,
             (int)(got.n < 40 ? got.n : 40), got.at, got.n > 40 ? "..." : "");
    sl_say(call, code, text);
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
    char text[200];
    const char *word = sluice_status_word(status);
    switch (status) {
        case SLUICE_EKEYS:
            snprintf(text, sizeof text, "there are %" PRId64 " keys already (keys-max)",
                     set->keys_max);
            break;
        case SLUICE_EWAITERS:
            snprintf(text, sizeof text,
                     "%" PRId64 " requests wait for this key already (waiters-max)",
                     set->waiters_max);
            break;
        case SLUICE_EDRAINED:
            snprintf(text, sizeof text,
                     "nothing is granted on this key: DRAIN lists the patterns");
            break;
        case SLUICE_EDEADLOCK:
            snprintf(text, sizeof text,
                     "it would wait for what this connection alone holds; RELEASE it, "
                     "or declare more room");
            break;
        case SLUICE_ELOST:
            snprintf(text, sizeof text,
                     "this grant is not held any more, or was taken away: stop, and "
                     "ACQUIRE again");
            break;
        case SLUICE_EASKED:
            snprintf(
                text, sizeof text,
                "a higher priority waits for this grant, or has entered beside it: "
                "release it, or it ends with its lease");
            break;
        case SLUICE_ENOLEASE:
            snprintf(text, sizeof text,
                     "this grant has no lease: it lasts as long as its connection");
            break;
        default: snprintf(text, sizeof text, "%s", sluice_status_text(status)); break;
    }
    sl_say(call, word, text);
}
