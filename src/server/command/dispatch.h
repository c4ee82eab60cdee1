/* dispatch.h - finds and calls the function of a command. Also declares helpers that all commands
 * use. */
#ifndef SL_SERVER_COMMAND_DISPATCH_H
#define SL_SERVER_COMMAND_DISPATCH_H

#include "base/duration.h"
#include "base/number.h"
#include "server/net/conn.h"

/* Flags of commands.def. */
enum {
    SL_READ = 1,
    SL_WRITE = 2,
    SL_BLOCK = 4,
    SL_ADMIN = 8,
    SL_EARLY = 16,
    SL_LISTEN = 32,
    SL_GROW = 64,
    SL_REQUEST = 128,
    SL_RETRY = 256,
    SL_COMPLETE = 512,
    SL_TX = 1024,
    SL_BEGINS = 2048,
    SL_COMMITS = 4096,
    SL_ABORTS = 8192,
    SL_LATE = 16384,
};

struct request;

/* A running command: its connection, its arguments, and where its reply goes. */
struct call {
    struct conn *c;
    struct server *s;
    struct sl_resp_writer *out;
    const struct command *command;
    const struct sl_bytes *at; /* The arguments, starting with the command name. */
    size_t n;
    const char *tx; /* The command's name if it is part of a transaction; else NULL. */
    /* The request that runs again; NULL: a new request. */
    const struct request *resumed;
    /* The request was answered with QUEUED, so its reply is a push message; NULL: it was not. */
    const struct request *queued;
    bool begun; /* The header of this push message has been written. */
};

struct command {
    const char *name;
    void (*run)(struct call *call);
    size_t min, max; /* Number of arguments, including the name; max 0: no limit. */
    unsigned flags;
    size_t key;
    const char *group, *syntax, *summary;
};

extern const struct command sl_commands[];
extern const size_t sl_command_count;

void sl_dispatch_setup(void);

/* Run one command, or reply with an error. */
void sl_dispatch(struct conn *c, const struct sl_args *args);

/* Run a kept request again. */
void sl_dispatch_again(struct conn *c, const struct request *r);

/* Find a command by name. Returns NULL if there is none. */
const struct command *sl_command_find(struct sl_bytes name);

#define COMMAND(name, function, min, max, flags, key, group, syntax, summary) \
    void sl_do_##function(struct call *call);
#include "commands.def"
#undef COMMAND

/* --- Arguments ------------------------------------------------------------- */

/* Whether an argument equals this word, ignoring case. */
bool sl_word_matches(struct sl_bytes b, const char *word);

/* The same as sl_word_matches(), but compares the first byte inline, because most names and options
 * differ there. */
static inline bool sl_word_is(struct sl_bytes b, const char *word)
{
    return b.n > 0 && ((b.at[0] ^ word[0]) & 0x5f) == 0 && sl_word_matches(b, word);
}

/* --- Replies --------------------------------------------------------------- */

/* Begin the reply. If the command was answered with QUEUED, the reply is the last element of a push
 * message, and this function writes the elements before it. */
void sl_call_begin(struct call *call);

/* --- Errors ---------------------------------------------------------------- */

void sl_say(struct call *call, const char *code, const char *text);
void sl_say_format(struct call *call, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define SL_SHUTDOWN_TEXT "the server is shutting down; reconnect and retry"

/* The arguments of "%.*s%s" that show b in an error: at most SL_SHOWN_BYTES_MAX bytes, followed by
 * "..." if b is longer. */
#define SL_SHOWN_BYTES_MAX 40
#define SL_SHOWN(b)                                                         \
    (int)((b).n < SL_SHOWN_BYTES_MAX ? (b).n : SL_SHOWN_BYTES_MAX), (b).at, \
        (b).n > SL_SHOWN_BYTES_MAX ? "..." : ""

/* Reply ERR with this text and the usage of the command. */
void sl_say_usage(struct call *call, const char *text);

/* Reply ERR: the value of this option is missing. */
void sl_say_missing(struct call *call, const char *name);

/* Reply ERR: this option or subcommand is not one of these names. The error suggests the closest
 * name, or shows the usage of the command. */
void sl_say_unknown(struct call *call, const char *kind, struct sl_bytes word,
                    const char *const *names, size_t n);
#define SL_NAMES(...)                     \
    ((const char *const[]){__VA_ARGS__}), \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

/* The range of durations that an argument accepts. */
struct sl_duration_range {
    const char *name; /* The name of the argument in errors. */
    sl_ms min, max;
    /* " (NAME)", with the setting that limits the duration; or "". */
    const char *setting;
};

/* Reply with an error about argument i, which is missing, invalid or out of range. */
void sl_say_duration(struct call *call, size_t i, const struct sl_duration_range *range,
                     const char *code);

/* Parse argument i as a timeout. Returns false after replying with an error. */
#define SL_WAIT_MS_MAX ((sl_ms)1 << 52)
bool sl_duration_at(struct call *call, size_t i, const char *name, sl_ms *out);

/* Reply with the error for a status. If the status is about a setting, the text names the
 * setting. */
void sl_say_status(struct call *call, int status);

/* Charge the budget of this loop iteration for this call, which costs as much as this many simple
 * commands. */
void sl_call_cost(struct call *call, size_t commands);

#endif /* SL_SERVER_COMMAND_DISPATCH_H */
