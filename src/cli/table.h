/* table.h - every command of the command line and every option, once.
 *
 * From this table come what is parsed, what --help says, the option lists of the man
 * pages and the completions of bash and zsh (pages.c, at build time). To add an option,
 * add a row in table.c and a case where the command takes its options; the tests see to
 * the rest (tests/cli/test_pages.py). The options of `serve` are the server's settings, and
 * their rows stand in settings.def. */
#ifndef SL_CLI_TABLE_H
#define SL_CLI_TABLE_H

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
    CLI_STORE_CHECK,
    CLI_STORE_DUMP,
    CLI_STORE_LOAD,
    CLI_DO,
    CLI_HELP,
    CLI_VERSION,
    CLI_COMMANDS,
};

/* What an option is known by inside: its first letter, or one of these. */
enum {
    OPT_BUCKETS = 256,
    OPT_VERBOSE,
    OPT_LOCAL,
    OPT_SEGMENT,
    OPT_MODE,
    OPT_GRACE,
    OPT_JSON,
    OPT_INTERVAL,
    OPT_COUNT,
    OPT_KEYS,
    OPT_SLOTS,
    OPT_RECORDS,
    OPT_FORCE,
    OPT_CHECK,
    OPT_SERVER,
    OPT_PASSWORD_FILE,
    OPT_SETTINGS = 512, /* And the setting's place in cli_settings. */
};

/* What a word on the command line is, for completion. */
enum cli_word {
    WORD_NONE,
    WORD_TEXT,    /* Nothing that could be guessed. */
    WORD_KEY,     /* A key of the segment. */
    WORD_SEGMENT, /* A segment, or a path. */
    WORD_COMMAND, /* A program and what follows it. */
    WORD_TOPIC,   /* A command of ours. */
    WORD_FILE,    /* A file or a folder. */
    WORD_CHOICE,  /* One of those that `arg` has, as in "text|json". */
};

struct cli_option {
    int id;
    const char *letters; /* Each means the same; "" for none. */
    const char *names;   /* Long names, with blanks between; the first is shown. */
    const char *arg;     /* What follows it; NULL: nothing. */
    enum cli_word word;  /* What that is. */
    const char *help;    /* In a few words, for --help and completion. */
    const char *more;    /* What the man page says, in mdoc; NULL: help again. */
};

/* A setting of the server, as settings.def has it. */
struct cli_setting {
    const char *name;
    const char *kind;  /* "NUMBER", "TIME" ... */
    const char *given; /* The default; "": none. */
    long long min, max;
    const char *arg;
    const char *help;
};

struct cli_command {
    enum cli_id id;
    const char *name;     /* "canal ls". */
    const char *synopsis; /* What follows the name; one form a line. */
    const char *summary;
    const struct cli_option *options; /* Ends with id 0. */
    enum cli_word words[3];           /* What its arguments are, in order. */
};

/* An exit status, and when. */
struct cli_exit {
    int status;
    const char *when;
};

/* A variable, and what it says. */
struct cli_variable {
    const char *name;
    const char *what;
};

extern const struct cli_command cli_commands[CLI_COMMANDS];
extern const struct cli_setting cli_settings[]; /* Ends with name NULL. */
extern const struct cli_exit cli_exits[];       /* Ends with when NULL. */
extern const struct cli_variable cli_reads[];   /* What we read; ends with NULL. */
extern const struct cli_variable cli_given[];   /* What a command under a lock sees. */

/* The setting that an option is; NULL if it is none. */
const struct cli_setting *cli_setting_of(const struct cli_option *option);

#endif /* SL_CLI_TABLE_H */
