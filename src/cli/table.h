/* table.h - the table of all commands and options of the command line.
 *
 * The parser, --help, the option lists of the man pages and the completions of bash and
 * zsh (pages.c, at build time) all use this table. To add an option, add a row in
 * table.c and a case where the command handles its options; tests/cli/test_pages.py
 * checks that everything else follows. The options of `serve` are the server's
 * settings; their rows are in settings.def. The commands of the server are in
 * commands.def. */
#ifndef SL_CLI_TABLE_H
#define SL_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum cli_id {
    CLI_RUN,
    CLI_CANAL_LS,
    CLI_CANAL_SHOW,
    CLI_CANAL_WATCH,
    CLI_CANAL_REAP,
    CLI_CANAL_MAKE,
    CLI_CANAL_RM,
    CLI_SERVE,
    CLI_LS,
    CLI_EXPLAIN,
    CLI_WATCH,
    CLI_BREAK,
    CLI_DRAIN,
    CLI_NODES,
    CLI_READY,
    CLI_STORE_CHECK,
    CLI_STORE_DUMP,
    CLI_STORE_LOAD,
    CLI_JOURNAL_SHOW,
    CLI_JOURNAL_CHECK,
    CLI_JOURNAL_FORGET,
    CLI_DO,
    CLI_ACQUIRE,
    CLI_EXTEND,
    CLI_RELEASE,
    CLI_HOLD,
    CLI_TOP,
    CLI_BENCH,
    CLI_HELP,
    CLI_VERSION,
    CLI_COMMANDS,
};

/* The id of an option: its first short-option letter, or one of these. */
enum {
    CLI_OPT_BUCKETS = 256,
    CLI_OPT_VERBOSE,
    CLI_OPT_LOCAL,
    CLI_OPT_SEGMENT,
    CLI_OPT_MODE,
    CLI_OPT_GRACE,
    CLI_OPT_JSON,
    CLI_OPT_INTERVAL,
    CLI_OPT_COUNT,
    CLI_OPT_KEYS,
    CLI_OPT_SLOTS,
    CLI_OPT_RECORDS,
    CLI_OPT_FORCE,
    CLI_OPT_YES,
    CLI_OPT_CHECK,
    CLI_OPT_SERVER,
    CLI_OPT_PASSWORD_FILE,
    CLI_OPT_TIMEOUT,
    CLI_OPT_MAJORITY,
    CLI_OPT_FENCE,
    CLI_OPT_NOW,
    CLI_OPT_HOST,
    CLI_OPT_PORT,
    CLI_OPT_SESSION_LOCK,
    CLI_OPT_LEASE,
    CLI_OPT_MAX_HOLD,
    CLI_OPT_STEAL,
    CLI_OPT_VALUE,
    CLI_OPT_NOTE,
    CLI_OPT_ON_LOST,
    CLI_OPT_ON_ASKED,
    CLI_OPT_SHELL,
    CLI_OPT_PID,
    CLI_OPT_KILL,
    CLI_OPT_CLIENTS,
    CLI_OPT_DURATION,
    CLI_OPT_PIPELINE,
    CLI_OPT_PREFIX,
    CLI_OPT_ONCE,
    CLI_OPT_HELP,
    CLI_OPT_SETTINGS = 512, /* Add the index of the setting in cli_settings. */
};

/* The kind of an argument, for completion. */
enum cli_arg_kind {
    CLI_ARG_NONE,
    CLI_ARG_TEXT,    /* Free text. */
    CLI_ARG_KEY,     /* A key of the segment or of the server. */
    CLI_ARG_PATTERN, /* A drained pattern. */
    CLI_ARG_STATE,   /* on or off. */
    CLI_ARG_SEGMENT, /* A segment, or a path. */
    CLI_ARG_COMMAND, /* A program and its arguments. */
    CLI_ARG_TOPIC,   /* A command of sluice. */
    CLI_ARG_SERVER,  /* A command of the server and its arguments. */
    CLI_ARG_FILE,    /* A file or a directory. */
    CLI_ARG_CHOICE,  /* One of the alternatives in `arg`, such as "text|json". */
};

struct cli_option {
    int id;
    const char *letters; /* Short names; "" for none. */
    const char *names;   /* Long names, separated by spaces; --help prints the first. */
    const char *arg;     /* The name of its value; NULL: no value. */
    enum cli_arg_kind arg_kind; /* The kind of its value. */
    const char *help;           /* Short description, for --help and completion. */
    const char *more; /* Description for the man page, in mdoc; NULL: use help. */
};

/* A setting of the server, from settings.def. */
struct cli_setting {
    const char *name;
    const char *kind;  /* "NUMBER", "TIME" ... */
    const char *given; /* The default; "": none. */
    long long min, max;
    const char *arg;
    const char *help;
};

/* A command of the server, from commands.def. */
struct cli_server_command {
    const char *name;
    const char *syntax;
    const char *summary;
};

struct cli_command {
    enum cli_id id;
    const char *name;     /* "canal ls". */
    const char *synopsis; /* The text after the name; one form per line. */
    const char *summary;
    const struct cli_option *options; /* Ends with id 0. */
    enum cli_arg_kind args[3];        /* The kinds of its arguments, in order. */
};

/* An exit status and its meaning for some commands. */
struct cli_exit {
    int status;
    const char *commands; /* The first words of their names, separated by spaces. */
    const char *when;
    /* For `do`: the server's error codes that lead to this status, separated by spaces;
     * NULL: none. */
    const char *errors;
};

/* An environment variable and its meaning. */
struct cli_variable {
    const char *name;
    const char *what;
};

extern const struct cli_command cli_commands[CLI_COMMANDS];
extern const struct cli_setting cli_settings[];               /* Ends with name NULL. */
extern const struct cli_server_command cli_server_commands[]; /* Ends with name NULL. */
extern const struct cli_exit cli_exits[]; /* By status; ends with when NULL. */
extern const struct cli_variable
    cli_reads[]; /* The variables that sluice reads; ends with NULL. */
extern const struct cli_variable
    cli_given[]; /* The variables that `sluice run` sets for its command. */

/* Return whether a command, such as "canal ls", can exit with this status. */
bool cli_exit_is_of(const struct cli_exit *e, const char *command);

/* Return whether a list of words, separated by spaces, contains the n bytes at `word`.
 * NULL is an empty list. */
bool cli_list_has(const char *list, const char *word, size_t n);

/* Return the setting that belongs to an option, or NULL. */
const struct cli_setting *cli_setting_of(const struct cli_option *option);

#endif /* SL_CLI_TABLE_H */
