#include "cli/table.h"

#include <string.h>

#include "cli/exits.h"

/* clang-format off */

#define HELP_OPTION {CLI_OPT_HELP, "h", "help", NULL, CLI_ARG_NONE, "show this help", "Show help and exit."}
#define JSON_OPTION {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON", "Print one JSON document."}
#define MODE_OPTION {CLI_OPT_MODE, "", "mode", "OCTAL", CLI_ARG_TEXT, "permissions of a segment that is made (0600)", \
    "Permissions of a segment that is made, 0600 by default.\n" \
    "With bits for the group or others, segments of other users are accepted too:\n" \
    "set them only if you trust everyone who can write to the segment."}
#define END_OPTION {0, NULL, NULL, NULL, CLI_ARG_NONE, NULL, NULL}

static const struct cli_option run_options[] = {
    {'j', "j", "per jobs", "PER", CLI_ARG_TEXT, "at most PER at once: N, N% of the cores, +N, -N cores",
        "Let at most\n.Ar PER\nrun at once:\na number, a percentage of the processor cores\n"
        ".Pq Cm 50% ,\nor so many more or fewer than there are cores\n.Pq Cm +1 , Cm \\-1 .\n"
        "Each caller declares this for itself, and it may differ from call to call."},
    {CLI_OPT_BUCKETS, "", "buckets", "N", CLI_ARG_TEXT, "room for PER times N",
        "Room for\n.Ar PER\ntimes\n.Ar N .\nWithout\n.Fl j\nthat is\n.Ar N ."},
    {'s', "s", "shared", NULL, CLI_ARG_NONE, "share with others that say -s, not with -x",
        "Run beside any number of others that say\n.Fl s ,\nand not beside one that says\n.Fl x ."},
    {'x', "xe", "exclusive", NULL, CLI_ARG_NONE, "run alone; the default without -j and --buckets",
        "Run alone.\nThis is the default where neither\n.Fl j\nnor\n.Fl Fl buckets\nis given."},
    {'n', "n", "nonblock nb nonblocking", NULL, CLI_ARG_NONE, "do not wait; exit 1 if it is taken",
        "Do not wait.\nIf the lock is taken, exit with 1, or what\n.Fl E\nsays."},
    {'w', "w", "wait timeout", "TIME", CLI_ARG_TEXT, "wait at most TIME: 5, 0.5, 500ms, 30s, 2m, 1h",
        "Wait at most\n.Ar TIME :\nseconds, with a fraction if you like, or a number with\n"
        ".Cm ms , s , m\nor\n.Cm h .\nThe default is to wait without end; 0 is\n.Fl n ."},
    {'E', "E", "conflict-exit-code", "N", CLI_ARG_TEXT, "exit status if the lock was not granted (1)",
        "The exit status if the lock was not granted, 1 by default.\n75 is a good choice: no program "
        "uses it by accident, and mail systems and\n.Xr systemd 1\nunits know it as\n.Dq try again ."},
    {'c', "c", "command", "STRING", CLI_ARG_TEXT, "run STRING by the shell",
        "Run\n.Ar STRING\nby the shell,\n.Ev SHELL\nor\n.Pa /bin/sh .\nMay stand behind\n.Ar KEY\nas well, as with\n.Xr flock 1 ."},
    {'o', "o", "close", NULL, CLI_ARG_NONE, "the command gets no claim on the lock",
        "Give the command and what it starts no claim on the lock: it is the wrapper's alone."},
    {'F', "F", "no-fork", NULL, CLI_ARG_NONE, "become the command instead of waiting for it",
        "Execute the command in place of the wrapper.\nThe lock is then the command's own, "
        "until it and what it started are gone."},
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "no notes on standard error, only errors", NULL},
    {CLI_OPT_VERBOSE, "", "verbose", NULL, CLI_ARG_NONE, "say how long it took to get the lock", 
        "Say on standard error how long it took to get the lock, and what is executed."},
    {CLI_OPT_LOCAL, "", "local", NULL, CLI_ARG_NONE, "use a lock of this machine (the default)",
        "Use a lock of this machine.\nThis is the default and, in this version, the only choice: "
        "\n.Cm run\ndoes not use servers and ignores\n.Ev SLUICE_SERVER ."},
    {CLI_OPT_SEGMENT, "", "segment", "NAME", CLI_ARG_SEGMENT, "the segment that the lock is in; a name or a path",
        "The segment of shared memory that the lock is in:\n.Ar NAME\nstands for\n.Pa /dev/shm/sluice. Ns Ar NAME ,\n"
        "and what has a slash in it is a path.\nThe default is\n.Ev SLUICE_SEGMENT ,\nor else\n"
        ".Pa /dev/shm/sluice. Ns Ar uid ,\nwhich is never a file of another user.\nImplies\n.Fl Fl local ."},
    MODE_OPTION,
    {CLI_OPT_GRACE, "", "grace", "TIME", CLI_ARG_TEXT, "if the lock is lost: from SIGTERM to SIGKILL (5s)",
        "If the lock is lost, the time between SIGTERM and SIGKILL to the command; 5 seconds by default."},
    HELP_OPTION, END_OPTION};

static const struct cli_option ls_options[] = {
    JSON_OPTION,
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "names alone, one a line", NULL},
    HELP_OPTION, END_OPTION};

static const struct cli_option show_options[] = {
    JSON_OPTION,
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print only keys, one per line",
        "Print only keys, one per line; with\n.Ar KEY ,\nonly the process ids of its holders."},
    {CLI_OPT_SEGMENT, "", "segment", "NAME", CLI_ARG_SEGMENT, "the segment: a name or a path",
        "The segment.\nThe default is\n.Ev SLUICE_SEGMENT ,\nor else the default segment."},
    HELP_OPTION, END_OPTION};

static const struct cli_option watch_options[] = {
    {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON, one document a line", NULL},
    {CLI_OPT_INTERVAL, "", "interval", "TIME", CLI_ARG_TEXT, "time between two looks (1s)", NULL},
    {CLI_OPT_COUNT, "", "count", "N", CLI_ARG_TEXT, "end after N looks", NULL},
    HELP_OPTION, END_OPTION};

static const struct cli_option reap_options[] = {
    JSON_OPTION, HELP_OPTION, END_OPTION};

static const struct cli_option make_options[] = {
    {CLI_OPT_KEYS, "", "keys", "N", CLI_ARG_TEXT, "keys in use at one time (4096)", NULL},
    {CLI_OPT_SLOTS, "", "slots", "N", CLI_ARG_TEXT, "threads at one time (1024)",
        "Threads at one time, 1024 by default.\nA\n.Xr sluice-run 1\nthat runs or waits is one."},
    {CLI_OPT_RECORDS, "", "records", "N", CLI_ARG_TEXT, "pairs of thread and key at one time (16384)", NULL},
    MODE_OPTION, HELP_OPTION, END_OPTION};

static const struct cli_option rm_options[] = {
    {CLI_OPT_FORCE, "", "force", NULL, CLI_ARG_NONE, "also if it is in use",
        "Remove it also if it is in use.\nWhat runs under its locks then runs without: a\n"
        ".Xr sluice-run 1\nsees that and stops its command."},
    HELP_OPTION, END_OPTION};

/* How completion treats the value of a setting, by kind. */
enum {
    CLI_ARG_OF_NUMBER = CLI_ARG_TEXT, CLI_ARG_OF_TIME = CLI_ARG_TEXT, CLI_ARG_OF_SIZE = CLI_ARG_TEXT, CLI_ARG_OF_MEMORY = CLI_ARG_TEXT,
    CLI_ARG_OF_PORT = CLI_ARG_TEXT, CLI_ARG_OF_OCTAL = CLI_ARG_TEXT, CLI_ARG_OF_TEXT = CLI_ARG_TEXT,
    CLI_ARG_OF_PATH = CLI_ARG_FILE, CLI_ARG_OF_INPUT = CLI_ARG_FILE, CLI_ARG_OF_FORMAT = CLI_ARG_CHOICE, CLI_ARG_OF_LEVEL = CLI_ARG_CHOICE,
    CLI_ARG_OF_ENGINE = CLI_ARG_CHOICE, CLI_ARG_OF_FLAG = CLI_ARG_NONE,
};

#define SETTING(name, kind, field, given, min, max, arg, help) SETTING_##field,
enum {
#include "settings.def"
    SETTINGS
};
#undef SETTING

#define SETTING(name, kind, field, given, min, max, arg, help) \
    {name, #kind, given, min, max, arg, help},
const struct cli_setting cli_settings[] = {
#include "settings.def"
    {NULL, NULL, NULL, 0, 0, NULL, NULL}};
#undef SETTING

#define SETTING(name, kind, field, given, min, max, arg, help) \
    {CLI_OPT_SETTINGS + (int)SETTING_##field, "", name, (int)CLI_ARG_OF_##kind == (int)CLI_ARG_NONE ? NULL : arg, (enum cli_arg_kind)CLI_ARG_OF_##kind, help, NULL},
static const struct cli_option serve_options[] = {
#include "settings.def"
    {CLI_OPT_CHECK, "", "check", NULL, CLI_ARG_NONE, "check the settings, print errors, and exit", NULL},
    {'V', "V", "version", NULL, CLI_ARG_NONE, "print the version of the server", NULL},
    HELP_OPTION, END_OPTION};
#undef SETTING

#define COMMAND(name, function, min, max, flags, key, group, syntax, summary) {#name, syntax, summary},
const struct cli_server_command cli_server_commands[] = {
#include "commands.def"
    {NULL, NULL, NULL}};
#undef COMMAND

static const struct cli_option do_options[] = {
    {CLI_OPT_SERVER, "", "server", "ADDRESS", CLI_ARG_TEXT, "host, host:port, unix:/path or redis://host:port (127.0.0.1:5625)",
        "The address of the server:\n.Ar host ,\n.Ar host : Ns Ar port ,\n.Ar [::1] : Ns Ar port ,\n.Cm unix : Ns Ar /path\n"
        "or\n.Cm redis:// Ns Oo : Ns Ar password Ns @ Oc Ns Ar host : Ns Ar port .\nThe default is\n.Ev SLUICE_SERVER ,\n"
        "or 127.0.0.1:5625 if that is not set.\nThe default port is 5625 in all forms."},
    {CLI_OPT_HOST, "h", "host", "HOST", CLI_ARG_TEXT, "host of the server, as in redis-cli (127.0.0.1); -h alone shows this help",
        "The host of the server, as in\n.Xr redis-cli 1 .\nWithout\n.Ar HOST ,\n.Fl h\nshows help."},
    {CLI_OPT_PORT, "p", "port", "PORT", CLI_ARG_TEXT, "port of the server, as in redis-cli (5625)", NULL},
    {CLI_OPT_PASSWORD_FILE, "", "password-file", "FILE", CLI_ARG_FILE, "read the password from the first line of FILE",
        "Read the password from the first line of\n.Ar FILE .\nThe default is\n.Ev SLUICE_PASSWORD ."},
    {CLI_OPT_SESSION_LOCK, "", "session-lock", NULL, CLI_ARG_NONE, "allow ACQUIRE without LEASE; the lock is released when sluice do exits",
        "Allow\n.Cm ACQUIRE\nwithout\n.Cm LEASE .\nSuch a lock belongs to the connection, so the server releases it as soon as\n"
        ".Nm sluice do\nexits.\nThis is useful to test whether a lock can be acquired, and to wait until it can."},
    {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON, one document per line", NULL},
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print values only, one per line, for shell scripts", NULL},
    {'2', "2", "resp2", NULL, CLI_ARG_NONE, "use RESP2, the older version of the Redis protocol, instead of RESP3",
        "Use RESP2, the older version of the Redis protocol, instead of RESP3.\nIn RESP2 a map is a list."},
    {CLI_OPT_HELP, "", "help", NULL, CLI_ARG_NONE, "show this help", "Show help and exit."}, END_OPTION};

static const struct cli_option plain_options[] = {HELP_OPTION, END_OPTION};

const struct cli_command cli_commands[CLI_COMMANDS] = {
    [CLI_RUN] = {CLI_RUN, "run",
        "[options] KEY [--] COMMAND [ARG...]\n[options] KEY -c 'SHELL COMMAND'",
        "run a command under a lock", run_options, {CLI_ARG_KEY, CLI_ARG_COMMAND, CLI_ARG_NONE}},
    [CLI_CANAL_LS] = {CLI_CANAL_LS, "canal ls", "[--json] [-q]",
        "list the segments of this machine", ls_options, {CLI_ARG_NONE}},
    [CLI_CANAL_SHOW] = {CLI_CANAL_SHOW, "canal show", "[--json] [-q] [--segment NAME] [KEY]",
        "show all locks, or the holders and waiters of one lock", show_options,
        {CLI_ARG_KEY, CLI_ARG_NONE}},
    [CLI_CANAL_WATCH] = {CLI_CANAL_WATCH, "canal watch", "[options] [NAME]",
        "show a segment again and again", watch_options, {CLI_ARG_SEGMENT, CLI_ARG_NONE}},
    [CLI_CANAL_REAP] = {CLI_CANAL_REAP, "canal reap", "[--json] [NAME]",
        "give back what the dead held", reap_options, {CLI_ARG_SEGMENT, CLI_ARG_NONE}},
    [CLI_CANAL_MAKE] = {CLI_CANAL_MAKE, "canal make", "[options] NAME",
        "make a segment of another size than usual", make_options, {CLI_ARG_SEGMENT, CLI_ARG_NONE}},
    [CLI_CANAL_RM] = {CLI_CANAL_RM, "canal rm", "[--force] NAME...",
        "remove segments that nobody uses", rm_options, {CLI_ARG_SEGMENT, CLI_ARG_SEGMENT, CLI_ARG_NONE}},
    [CLI_SERVE] = {CLI_SERVE, "serve", "[options]", "start the server", serve_options, {CLI_ARG_NONE}},
    [CLI_STORE_CHECK] = {CLI_STORE_CHECK, "store check", "DIRECTORY",
        "check the transaction store of a server", plain_options, {CLI_ARG_FILE, CLI_ARG_NONE}},
    [CLI_STORE_DUMP] = {CLI_STORE_DUMP, "store dump", "DIRECTORY",
        "print the transaction store of a server as text", plain_options, {CLI_ARG_FILE, CLI_ARG_NONE}},
    [CLI_STORE_LOAD] = {CLI_STORE_LOAD, "store load", "DIRECTORY",
        "create a transaction store from the output of dump", plain_options, {CLI_ARG_FILE, CLI_ARG_NONE}},
    [CLI_DO] = {CLI_DO, "do", "[options] COMMAND [ARG...]", "send one command to a server and print the reply", do_options,
        {CLI_ARG_SERVER, CLI_ARG_NONE}},
    [CLI_HELP] = {CLI_HELP, "help", "[COMMAND]", "show the help of a command", plain_options,
        {CLI_ARG_TOPIC, CLI_ARG_NONE}},
    [CLI_VERSION] = {CLI_VERSION, "version", "", "print the version", plain_options, {CLI_ARG_NONE}},
};

const struct cli_exit cli_exits[] = {
    {CLI_EXIT_TAKEN, "run", "the lock was not granted; -E sets another status", NULL},
    {CLI_EXIT_TAKEN, "canal", "rm: a process uses the segment", NULL},
    {CLI_EXIT_TAKEN, "do", "the reply is nil: another client holds the lock, or there is nothing to return", "ASKED"},
    {CLI_EXIT_USAGE, "run canal store", "the command line is invalid", NULL},
    {CLI_EXIT_USAGE, "do", "the command line is invalid, or the server replied with an error that is not listed here", NULL},
    {CLI_EXIT_DATA, "run canal", "the segment is damaged, was created by another version of Sluice, or is not a segment", NULL},
    {CLI_EXIT_DATA, "store", "the store is damaged, was created by another version of Sluice, or is not a store; the input of load is not a complete dump", NULL},
    {CLI_EXIT_NO_INPUT, "run canal", "the segment or the key does not exist", NULL},
    {CLI_EXIT_NO_INPUT, "store", "the directory contains no store", NULL},
    {CLI_EXIT_NO_INPUT, "do", "the password file does not exist or is empty", NULL},
    {CLI_EXIT_UNAVAILABLE, "run canal", "a table of the segment is full", NULL},
    {CLI_EXIT_UNAVAILABLE, "serve", "the program sluice-server is not installed", NULL},
    {CLI_EXIT_UNAVAILABLE, "store", "the program sluice-offline is not installed", NULL},
    {CLI_EXIT_UNAVAILABLE, "do", "the server cannot be reached, the connection was lost, or the server cannot serve the command now",
        "NOKEEPER NOQUORUM RECOVERING STALE CLOSED SHUTDOWN DRAINED NOFENCES IO NOSPACE LIMIT NOKEYS WAITERS TRANSACTIONS NOMEM"},
    {CLI_EXIT_SYSTEM, "run canal store do", "the operating system reported an error: no memory, no space, or output that cannot be written", NULL},
    {CLI_EXIT_EXISTS, "store", "load: the directory already contains a store", NULL},
    {CLI_EXIT_EXISTS, "store", "dump: the temporary file cannot be created", NULL},
    {CLI_EXIT_NO_PERMISSION, "run canal", "no permission to open the segment", NULL},
    {CLI_EXIT_NO_PERMISSION, "store", "no permission to read the store or to create one", NULL},
    {CLI_EXIT_NO_PERMISSION, "do", "the server requires a password or rejected it, or the password file cannot be read",
        "NOAUTH WRONGPASS NOPERM"},
    {CLI_EXIT_LOST, "run", "the lock was lost while the command ran, and sluice run stopped the command", NULL},
    {CLI_EXIT_LOST, "do", "the client does not hold the lock under this fence, or no longer", "LOST"},
    {CLI_EXIT_CANNOT_EXECUTE, "run", "the command was found but cannot be executed", NULL},
    {CLI_EXIT_CANNOT_EXECUTE, "serve store", "the program that the command starts was found but cannot be executed", NULL},
    {CLI_EXIT_NOT_FOUND, "run", "the command was not found", NULL},
    {CLI_EXIT_SIGNALLED, "run", "plus n: signal n ended the command", NULL},
    {0, NULL, NULL, NULL}};

const struct cli_variable cli_reads[] = {
    {"SLUICE_SEGMENT", "the segment, where --segment does not say"},
    {"SLUICE_SERVER", "the server that do uses; run ignores it"},
    {"SLUICE_PASSWORD", "the password for the server; used by do"},
    {"SHELL", "the shell for -c"},
    {NULL, NULL}};

const struct cli_variable cli_given[] = {
    {"SLUICE_LOCK_KEY", "the key"},
    {"SLUICE_LOCK_HELD", "1"},
    {"SLUICE_LOCK_WHERE", "local: the lock is one of this machine"},
    {"SLUICE_LOCK_SEGMENT", "the path of the segment"},
    {"SLUICE_LOCK_SESSION", "the pid of the wrapper"},
    {"SLUICE_LOCK_NTH", "the how-manieth holder this one was when it was granted"},
    {"SLUICE_LOCK_SLOT", "a number from 1 to the room that no other run holding the key has now, if all declare the same room: for a port, a directory, a GPU. Not set with -s, nor for a room above 4096"},
    {"SLUICE_LOCK_FD", "the descriptor by which the command and what it starts hold the lock; not set with -o"},
    {NULL, NULL}};

bool cli_list_has(const char *list, const char *word, size_t n)
{
    for (const char *p = list; p != NULL && *p != '\0'; p += strspn(p, " ")) {
        size_t length = strcspn(p, " ");
        if (length == n && strncmp(p, word, n) == 0) return true;
        p += length;
    }
    return false;
}

bool cli_exit_is_of(const struct cli_exit *e, const char *command)
{
    return cli_list_has(e->commands, command, strcspn(command, " "));
}

const struct cli_setting *cli_setting_of(const struct cli_option *option)
{
    int n = option->id - CLI_OPT_SETTINGS;
    return n >= 0 && n < (int)SETTINGS ? &cli_settings[n] : NULL;
}
