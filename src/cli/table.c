#include "cli/table.h"

#include <string.h>

#include "cli/exits.h"

/* clang-format off */

#define HELP_OPTION {CLI_OPT_HELP, "h", "help", NULL, CLI_ARG_NONE, "show this help", "Show help and exit."}
#define JSON_OPTION {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON", "Print one JSON document."}
#define MODE_OPTION {CLI_OPT_MODE, "", "mode", "OCTAL", CLI_ARG_TEXT, "permissions of a new segment (0600)", \
    "Permissions of the segment if this command creates it; the default is 0600.\n" \
    "If the mode has group or other permission bits, the command also accepts a segment that belongs to another user.\n" \
    "Use such a mode only if you trust everyone who can write to the segment."}
#define END_OPTION {0, NULL, NULL, NULL, CLI_ARG_NONE, NULL, NULL}

static const struct cli_option run_options[] = {
    {'j', "j", "per jobs", "PER", CLI_ARG_TEXT, "run at most PER commands at once: N, N% of the cores, or +N or -N (cores plus or minus N)",
        "Run at most\n.Ar PER\ncommands at once:\na number, a percentage of the processor cores\n"
        ".Pq Cm 50% ,\nor the number of cores plus or minus a number\n.Pq Cm +1 , Cm \\-1 .\n"
        "Each run declares its own number."},
    {CLI_OPT_BUCKETS, "", "buckets", "N", CLI_ARG_TEXT, "multiply the capacity by N",
        "Set the capacity to\n.Ar PER\ntimes\n.Ar N .\nWithout\n.Fl j\nthe capacity is\n.Ar N ."},
    {'s', "s", "shared", NULL, CLI_ARG_NONE, "run together with other -s runs, but not with -x runs",
        "Acquire a shared lock: run together with other runs with\n.Fl s ,\nbut not together with a run with\n.Fl x ."},
    {'x', "xe", "exclusive", NULL, CLI_ARG_NONE, "run alone; the default without -j and --buckets",
        "Acquire an exclusive lock: run alone.\nThis is the default without\n.Fl j\nand\n.Fl Fl buckets ."},
    {'n', "n", "nonblock nb nonblocking", NULL, CLI_ARG_NONE, "do not wait; exit 1 if the lock is taken",
        "Do not wait.\nIf the lock is taken, exit with status 1, or the status that\n.Fl E\nsets."},
    {'w', "w", "wait timeout", "TIME", CLI_ARG_TEXT, "wait at most TIME: 500ms, 30s, 5m, 1h; a plain number is in seconds",
        "Wait at most\n.Ar TIME :\n.Cm 500ms , 30s , 5m\nor\n.Cm 1h .\nA plain number is in seconds.\n"
        "Seconds, minutes and hours can have a fraction:\n.Cm 0.5 .\nThe default is to wait without a timeout; 0 is the same as\n.Fl n ."},
    {'E', "E", "conflict-exit-code", "N", CLI_ARG_TEXT, "exit status if the lock is not granted (1)",
        "The exit status if the lock is not granted; the default is 1.\nUse 75 to distinguish this case from a failed command: "
        "few commands exit with 75, and mail systems and\n.Xr systemd 1\nunits interpret it as\n.Dq try again ."},
    {'c', "c", "command", "STRING", CLI_ARG_TEXT, "run STRING in a shell",
        "Run\n.Ar STRING\nwith the shell that\n.Ev SHELL\nnames, or with\n.Pa /bin/sh .\nThis option may follow\n.Ar KEY ,\nas with\n.Xr flock 1 ."},
    {'o', "o", "close", NULL, CLI_ARG_NONE, "only sluice run holds the lock; the command and its children do not inherit it",
        "Only the wrapper holds the lock; the command and its children do not inherit it."},
    {'F', "F", "no-fork", NULL, CLI_ARG_NONE, "replace sluice run with the command, without a fork",
        "Replace the wrapper with the command: no separate process is started.\nThe command and the processes that it starts hold the lock."},
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print only errors", 
        "Print only errors.\nPrint no message while waiting, and none if the lock is taken."},
    {CLI_OPT_VERBOSE, "", "verbose", NULL, CLI_ARG_NONE, "print how long it took to acquire the lock", 
        "Print how long it took to acquire the lock, and print the command."},
    {CLI_OPT_LOCAL, "", "local", NULL, CLI_ARG_NONE, "use a lock in shared memory on this machine, even if SLUICE_SERVER is set",
        "Use a lock in shared memory on this machine.\nThis is the default if neither\n.Fl Fl server\nnor\n.Ev SLUICE_SERVER\nnames a server."},
    {'k', "k", "key", "KEY", CLI_ARG_KEY, "acquire KEY; repeat this option to acquire several keys on a server, all or none",
        "Acquire\n.Ar KEY ;\nthen there is no\n.Ar KEY\nbefore the command.\n"
        "Repeat this option to acquire several keys on a server: all of them or none.\nEach run acquires its keys in the same order, so such runs cannot deadlock with each other."},
    {CLI_OPT_SERVER, "", "server", "ADDRESS", CLI_ARG_TEXT, "use a lock on a server: host, host:port, unix:/path or redis://host:port",
        "Use a lock on the server with this address, instead of a lock on this machine:\n.Ar host ,\n.Ar host : Ns Ar port ,\n.Ar [::1] : Ns Ar port ,\n"
        ".Cm unix : Ns Ar /path\nor\n.Cm redis:// Ns Oo : Ns Ar password Ns @ Oc Ns Ar host : Ns Ar port .\n"
        "For a cluster, name several nodes, with commas between them.\nThe default is\n.Ev SLUICE_SERVER .\nSee\n.Sx LOCKS ON A SERVER ."},
    {CLI_OPT_PASSWORD_FILE, "", "password-file", "FILE", CLI_ARG_FILE, "read the server's password from the first line of FILE",
        "Read the password of the server from the first line of\n.Ar FILE .\nThe default is\n.Ev SLUICE_PASSWORD ."},
    {CLI_OPT_LEASE, "", "lease", "TIME", CLI_ARG_TEXT, "on a server: the lease, extended while the command runs (30s)",
        "On a server: the time after which the lock is free if the server no longer hears from this run; at least 1 second.\nThe default is 30 seconds.\n"
        "The lease is extended each time a third of it has passed."},
    {CLI_OPT_MAX_HOLD, "", "max-hold", "TIME", CLI_ARG_TEXT, "on a server: stop the command after TIME",
        "On a server: do not extend the lease beyond this time after the grant.\nIf the command still runs,\n.Cm run\nstops it, and the exit status is 79."},
    {'p', "p", "priority", "N", CLI_ARG_TEXT, "on a server: the priority; waiters with a higher one are granted the lock first (0)",
        "On a server: the priority of the request.\nWaiters with a higher priority are granted the lock first.\nThe default is 0."},
    {CLI_OPT_STEAL, "", "steal", NULL, CLI_ARG_NONE, "on a server: ask holders with a lower priority to release",
        "On a server: while this run waits, ask holders with a lower priority to release the lock.\nTheir leases are then not extended."},
    {CLI_OPT_VALUE, "", "value", "TEXT", CLI_ARG_TEXT, "on a server: store TEXT with the grant; READ returns it", NULL},
    {CLI_OPT_NOTE, "", "note", "TEXT", CLI_ARG_TEXT, "on a server: a note that waiters and operators can read", NULL},
    {CLI_OPT_ON_LOST, "", "on-lost", "COMMAND", CLI_ARG_TEXT, "on a server: run COMMAND in a shell if the lock is lost",
        "On a server: run\n.Ar COMMAND\nwith\n.Pa /bin/sh\nif the lock is lost.\n.Cm run\ndoes not wait for\n.Ar COMMAND ."},
    {CLI_OPT_ON_ASKED, "", "on-asked", "COMMAND", CLI_ARG_TEXT, "on a server: run COMMAND in a shell if a client with a higher priority needs the lock",
        "On a server: run\n.Ar COMMAND\nwith\n.Pa /bin/sh\nif a client with a higher priority needs the lock.\nThe lease is then no longer extended:\n"
        ".Cm run\nstops the command before the lease expires.\n.Cm run\ndoes not wait for\n.Ar COMMAND ."},
    {CLI_OPT_SEGMENT, "", "segment", "NAME", CLI_ARG_SEGMENT, "use the locks of this segment: a name or a path",
        "Use the locks of this shared-memory segment.\nA\n.Ar NAME\nwithout a slash means the file\n.Pa /dev/shm/sluice. Ns Ar NAME ;\n"
        "a name with a slash is a path.\nThe default is\n.Ev SLUICE_SEGMENT ,\nor else the user's default segment; see\n.Sx FILES ."},
    MODE_OPTION,
    {CLI_OPT_GRACE, "", "grace", "TIME", CLI_ARG_TEXT, "if the lock is lost: time from SIGTERM to SIGKILL (5s); a plain number is in seconds",
        "If the lock is lost, the time between the SIGTERM and the SIGKILL that the wrapper sends to the command; the default is 5 seconds.\nA plain number is in seconds, as for\n.Fl w ."},
    HELP_OPTION, END_OPTION};

static const struct cli_option ls_options[] = {
    JSON_OPTION,
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print only names, one per line", NULL},
    HELP_OPTION, END_OPTION};

static const struct cli_option show_options[] = {
    JSON_OPTION,
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print only keys, one per line; with KEY, only the process ids of its holders",
        "Print only keys, one per line.\nWith\n.Ar KEY ,\nprint only the process ids of its holders."},
    {CLI_OPT_SEGMENT, "", "segment", "NAME", CLI_ARG_SEGMENT, "inspect this segment: a name or a path",
        "Inspect this segment."},
    HELP_OPTION, END_OPTION};

static const struct cli_option watch_options[] = {
    {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON, one document per line", NULL},
    {CLI_OPT_INTERVAL, "", "interval", "TIME", CLI_ARG_TEXT, "time between two updates (1s); a plain number is in seconds", NULL},
    {CLI_OPT_COUNT, "", "count", "N", CLI_ARG_TEXT, "exit after N updates", NULL},
    HELP_OPTION, END_OPTION};

static const struct cli_option reap_options[] = {
    JSON_OPTION, HELP_OPTION, END_OPTION};

static const struct cli_option make_options[] = {
    {CLI_OPT_KEYS, "", "keys", "N", CLI_ARG_TEXT, "maximum number of keys in use at the same time (4096)", NULL},
    {CLI_OPT_SLOTS, "", "slots", "N", CLI_ARG_TEXT, "maximum number of threads (1024)",
        "Maximum number of threads that use the segment at the same time; the default is 1024.\nEach\n.Xr sluice-run 1\nthat runs or waits counts as one thread."},
    {CLI_OPT_RECORDS, "", "records", "N", CLI_ARG_TEXT, "maximum number of records (16384); a thread uses one for each of its keys", NULL},
    MODE_OPTION, HELP_OPTION, END_OPTION};

static const struct cli_option rm_options[] = {
    {CLI_OPT_FORCE, "", "force", NULL, CLI_ARG_NONE, "remove the segment even if it is in use",
        "Remove the segment even if it is in use.\nIts holders lose their locks: each\n"
        ".Xr sluice-run 1\nthen stops its command."},
    HELP_OPTION, END_OPTION};

static const struct cli_option journal_show_options[] = {
    JSON_OPTION, HELP_OPTION, END_OPTION};

static const struct cli_option journal_forget_options[] = {
    {CLI_OPT_YES, "", "yes", NULL, CLI_ARG_NONE, "do not ask for confirmation",
        "Do not ask for confirmation.\nWithout this option, the command needs a terminal."},
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
    {CLI_OPT_CHECK, "", "check", NULL, CLI_ARG_NONE, "check the settings, print any errors, and exit", NULL},
    {'V', "V", "version", NULL, CLI_ARG_NONE, "print the version of the server", NULL},
    HELP_OPTION, END_OPTION};
#undef SETTING

/* The options of each command for operators. */
#define OPERATOR_OPTIONS \
    {CLI_OPT_SERVER, "", "server", "ADDRESS", CLI_ARG_TEXT, "host, host:port, unix:/path or redis://host:port (127.0.0.1:5625)", \
        "The address of the server, in one of the forms that\n.Xr sluice-do 1\ndescribes.\nFor a cluster, name several nodes, with commas between them:\n" \
        "the command uses the first one that answers.\nThe default is\n.Ev SLUICE_SERVER ,\nor 127.0.0.1:5625 if that is not set."}, \
    {CLI_OPT_PASSWORD_FILE, "", "password-file", "FILE", CLI_ARG_FILE, "read the password from the first line of FILE", \
        "Read the password from the first line of\n.Ar FILE .\nThe default is\n.Ev SLUICE_PASSWORD ."}, \
    {CLI_OPT_TIMEOUT, "", "timeout", "TIME", CLI_ARG_TEXT, "give up if the server does not reply within TIME (10s)", \
        "Give up, with status 69, if the server does not reply within\n.Ar TIME :\n.Cm 500ms , 2s\nor\n.Cm 1m .\nA plain number is in seconds.\nThe default is 10 seconds."}
#define LOCAL_OPTIONS \
    {CLI_OPT_LOCAL, "", "local", NULL, CLI_ARG_NONE, "use the locks in shared memory on this machine, not a server", \
        "Use the locks in shared memory on this machine, not a server.\nThe output is that of\n.Xr sluice-canal 1 ."}, \
    {CLI_OPT_SEGMENT, "", "segment", "NAME", CLI_ARG_SEGMENT, "with --local: use this segment, a name or a path", \
        "With\n.Fl Fl local :\nuse this segment, a name or a path.\nThe default is\n.Ev SLUICE_SEGMENT ,\nor else the user's default segment."}

static const struct cli_option list_options[] = {
    OPERATOR_OPTIONS, JSON_OPTION,
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print only keys, one per line", "Print only keys, one per line, in no particular order."},
    {CLI_OPT_MAJORITY, "", "majority", NULL, CLI_ARG_NONE, "in a cluster on etcd: list the locks on keys that match majority-keys",
        "In a cluster on etcd: list the locks on keys that match the setting\n.Cm majority-keys ,\nas the node knows them."},
    LOCAL_OPTIONS, HELP_OPTION, END_OPTION};

static const struct cli_option explain_options[] = {
    OPERATOR_OPTIONS, JSON_OPTION, LOCAL_OPTIONS, HELP_OPTION, END_OPTION};

static const struct cli_option events_options[] = {
    OPERATOR_OPTIONS,
    {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON, one document per line", NULL},
    {CLI_OPT_COUNT, "", "count", "N", CLI_ARG_TEXT, "exit after N events", "Exit after\n.Ar N\nevents; with\n.Fl Fl local ,\nafter\n.Ar N\nupdates."},
    LOCAL_OPTIONS, HELP_OPTION, END_OPTION};

static const struct cli_option break_options[] = {
    {CLI_OPT_FENCE, "", "fence", "N", CLI_ARG_TEXT, "revoke the grant with this fence; needed if several clients hold the lock",
        "Revoke the grant with this fence.\nThis option is needed if several clients hold the lock."},
    {CLI_OPT_NOW, "", "now", NULL, CLI_ARG_NONE, "revoke the grant at once, even if its lease has not expired",
        "Revoke the grant at once, even if its lease has not expired.\nWithout this option, the client keeps the lock until its lease expires, and cannot extend the lease."},
    {CLI_OPT_YES, "", "yes", NULL, CLI_ARG_NONE, "do not ask for confirmation",
        "Do not ask for confirmation.\nWithout this option, the command needs a terminal."},
    OPERATOR_OPTIONS, JSON_OPTION, HELP_OPTION, END_OPTION};

static const struct cli_option drain_options[] = {
    OPERATOR_OPTIONS, JSON_OPTION,
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print only the patterns, or nothing", NULL},
    HELP_OPTION, END_OPTION};

static const struct cli_option nodes_options[] = {
    OPERATOR_OPTIONS, JSON_OPTION, HELP_OPTION, END_OPTION};

static const struct cli_option ready_options[] = {
    OPERATOR_OPTIONS, JSON_OPTION,
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print nothing; the exit status is the result", NULL},
    HELP_OPTION, END_OPTION};

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
        ".Nm sluice do\nexits.\nUse this option to test whether a lock can be acquired, or to wait until it can be acquired."},
    {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON, one document per line", NULL},
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print only values, one per line, for shell scripts", NULL},
    {'2', "2", "resp2", NULL, CLI_ARG_NONE, "use RESP2, the older version of the Redis protocol, instead of RESP3",
        "Use RESP2, the older version of the Redis protocol, instead of RESP3.\nIn RESP2 a map is a list."},
    {CLI_OPT_HELP, "", "help", NULL, CLI_ARG_NONE, "show this help", "Show help and exit."}, END_OPTION};

/* Options of the commands for scripts. */
#define SERVER_OPTIONS \
    {CLI_OPT_SERVER, "", "server", "ADDRESS", CLI_ARG_TEXT, "host, host:port, unix:/path or redis://host:port (127.0.0.1:5625)", \
        "The address of the server:\n.Ar host ,\n.Ar host : Ns Ar port ,\n.Ar [::1] : Ns Ar port ,\n.Cm unix : Ns Ar /path\n" \
        "or\n.Cm redis:// Ns Oo : Ns Ar password Ns @ Oc Ns Ar host : Ns Ar port .\n" \
        "For a cluster, name several nodes, with commas between them.\nThe default is\n.Ev SLUICE_SERVER ,\n" \
        "or 127.0.0.1:5625 if that is not set."}, \
    {CLI_OPT_PASSWORD_FILE, "", "password-file", "FILE", CLI_ARG_FILE, "read the server's password from the first line of FILE", \
        "Read the password of the server from the first line of\n.Ar FILE .\nThe default is\n.Ev SLUICE_PASSWORD ."}
#define REQUEST_OPTIONS \
    {'n', "n", "nonblock nb nonblocking", NULL, CLI_ARG_NONE, "do not wait; exit 1 if the lock is taken", NULL}, \
    {'w', "w", "wait timeout", "TIME", CLI_ARG_TEXT, "wait at most TIME: 500ms, 30s, 5m, 1h; a plain number is in seconds", \
        "Wait at most\n.Ar TIME :\n.Cm 500ms , 30s , 5m\nor\n.Cm 1h .\nA plain number is in seconds.\n" \
        "The default is to wait without a timeout; 0 is the same as\n.Fl n ."}, \
    {'s', "s", "shared", NULL, CLI_ARG_NONE, "share the lock with other shared holders", NULL}, \
    {'j', "j", "per jobs", "PER", CLI_ARG_TEXT, "acquire one of PER units: N, N% of the cores, or +N or -N (cores plus or minus N)", \
        "Acquire one of\n.Ar PER\nunits: a number, a percentage of the processor cores\n" \
        ".Pq Cm 50% ,\nor the number of cores plus or minus a number\n.Pq Cm +1 , Cm \\-1 .\nWithout this option and\n.Fl s ,\nthe lock is exclusive."}, \
    {'p', "p", "priority", "N", CLI_ARG_TEXT, "the priority; waiters with a higher one are granted the lock first (0)", NULL}, \
    {CLI_OPT_STEAL, "", "steal", NULL, CLI_ARG_NONE, "ask holders with a lower priority to release", NULL}, \
    {CLI_OPT_VALUE, "", "value", "TEXT", CLI_ARG_TEXT, "store TEXT with the grant; READ returns it", NULL}, \
    {CLI_OPT_NOTE, "", "note", "TEXT", CLI_ARG_TEXT, "a note that waiters and operators can read", NULL}, \
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "print only errors", "Print only errors.\nPrint no message while waiting, and none if the lock is taken."}, \
    {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON", "Print one JSON document."}, \
    SERVER_OPTIONS

static const struct cli_option acquire_options[] = {
    {CLI_OPT_SHELL, "", "shell", NULL, CLI_ARG_NONE, "print variables for a shell to evaluate", 
        "Print assignments of variables for a POSIX shell to evaluate; after a failure, print a command that fails with the exit status."},
    {CLI_OPT_LEASE, "", "lease", "TIME", CLI_ARG_TEXT, "the time after which the lock is free if nothing extends it (30s)",
        "The time after which the lock is free if\n.Nm sluice extend\ndoes not extend it; at least 1 second.\nThe default is 30 seconds."},
    REQUEST_OPTIONS, HELP_OPTION, END_OPTION};

static const struct cli_option hold_options[] = {
    {CLI_OPT_SHELL, "", "shell", NULL, CLI_ARG_NONE, "print variables for a shell to evaluate, and hold the lock in the background; needs --pid",
        "Print the same as\n.Nm sluice acquire Fl Fl shell ,\nand hold the lock in a background process.\nThis option needs\n.Fl Fl pid ."},
    {CLI_OPT_PID, "", "pid", "PID", CLI_ARG_TEXT, "hold the lock until this process ends: --pid $$ is the script; default: the parent process",
        "Hold the lock until this process ends.\nIn a script, write\n.Cm \\-\\-pid $$ .\nThe default is the parent process."},
    {CLI_OPT_KILL, "", "kill", NULL, CLI_ARG_NONE, "if the lock is lost, send SIGTERM to the process that --pid names",
        "If the lock is lost, send SIGTERM to the process that\n.Fl Fl pid\nnames.\nIts children do not receive the signal."},
    {CLI_OPT_LEASE, "", "lease", "TIME", CLI_ARG_TEXT, "the time after which the lock is free if the holder fails (30s)",
        "The time after which the lock is free if the server no longer hears from\n.Nm sluice hold ;\nat least 1 second.\n"
        "The default is 30 seconds.\nThe lease is extended each time a third of it has passed."},
    REQUEST_OPTIONS, HELP_OPTION, END_OPTION};

static const struct cli_option extend_options[] = {
    {CLI_OPT_SHELL, "", "shell", NULL, CLI_ARG_NONE, "print variables for a shell to evaluate", NULL},
    {CLI_OPT_LEASE, "", "lease", "TIME", CLI_ARG_TEXT, "extend the lease to TIME from now (SLUICE_LOCK_LEASE, or 30s)",
        "Extend the lease, so that it expires this time from now; at least 1 second.\nThe command never makes the lease shorter.\nThe default is\n.Ev SLUICE_LOCK_LEASE ,\n"
        "or 30 seconds if\n.Ar KEY\nis given."},
    SERVER_OPTIONS, HELP_OPTION, END_OPTION};

static const struct cli_option release_options[] = {
    {CLI_OPT_SHELL, "", "shell", NULL, CLI_ARG_NONE, "print a command that unsets the variables, for a shell to evaluate", NULL},
    SERVER_OPTIONS, HELP_OPTION, END_OPTION};
static const struct cli_option top_options[] = {
    SERVER_OPTIONS,
    {CLI_OPT_LOCAL, "", "local", NULL, CLI_ARG_NONE, "show the locks of this machine, in shared memory",
        "Show the locks of a segment of this machine:\n.Ev SLUICE_SEGMENT ,\nor the user's default segment."},
    {CLI_OPT_SEGMENT, "", "segment", "NAME", CLI_ARG_SEGMENT, "show the locks of this segment: a name or a path",
        "Show the locks of this segment of this machine: a name or a path."},
    {CLI_OPT_INTERVAL, "", "interval", "TIME", CLI_ARG_TEXT, "time between two updates (1s); a plain number is in seconds", NULL},
    {CLI_OPT_COUNT, "", "count", "N", CLI_ARG_TEXT, "exit after N updates", NULL},
    {CLI_OPT_ONCE, "", "once", NULL, CLI_ARG_NONE, "print one update as plain text, and exit",
        "Print one update as plain text, and exit, even if the output is a terminal."},
    {CLI_OPT_JSON, "", "json", NULL, CLI_ARG_NONE, "print JSON, one document per line", NULL},
    HELP_OPTION, END_OPTION};

static const struct cli_option bench_options[] = {
    SERVER_OPTIONS,
    {CLI_OPT_CLIENTS, "", "clients", "N", CLI_ARG_TEXT, "number of clients, each with its own connection (50)", NULL},
    {CLI_OPT_KEYS, "", "keys", "N", CLI_ARG_TEXT, "number of keys; each request uses a random one (10000)", NULL},
    {CLI_OPT_DURATION, "", "duration", "TIME", CLI_ARG_TEXT, "how long to run (10s); a plain number is in seconds", NULL},
    {CLI_OPT_LEASE, "", "lease", "TIME", CLI_ARG_TEXT, "lease of each lock (10s); 0: the lock belongs to the connection",
        "The lease of each lock; the default is 10 seconds.\nWith 0, the locks have no lease and belong to their connections."},
    {'w', "w", "wait", "TIME", CLI_ARG_TEXT, "wait at most TIME for a lock that is taken (0)",
        "Wait at most this long for a lock that is taken.\nThe default is 0: do not wait."},
    {CLI_OPT_PIPELINE, "", "pipeline", "N", CLI_ARG_TEXT, "commands that each client has in flight (1)",
        "The number of commands that each client sends before it waits for the first reply; the default is 1.\n"
        "This option excludes\n.Fl w ,\nbecause a request that waits blocks the requests behind it."},
    {'j', "j", "per", "N", CLI_ARG_TEXT, "capacity of each lock (1)", "The capacity of each lock; the default is 1."},
    {'s', "s", "shared", NULL, CLI_ARG_NONE, "acquire shared locks", NULL},
    {CLI_OPT_PREFIX, "", "prefix", "TEXT", CLI_ARG_TEXT, "prefix of the keys (sluice-bench:PID:)",
        "The prefix of the keys, which end in a number.\nThe default is\n.Cm sluice-bench: Ns Ar pid Ns Cm \\&: ."},
    JSON_OPTION,
    {'q', "q", "quiet", NULL, CLI_ARG_NONE, "do not show the progress", NULL},
    HELP_OPTION, END_OPTION};

static const struct cli_option plain_options[] = {HELP_OPTION, END_OPTION};

const struct cli_command cli_commands[CLI_COMMANDS] = {
    [CLI_RUN] = {CLI_RUN, "run",
        "[options] KEY [--] COMMAND [ARG...]\n[options] KEY -c 'SHELL COMMAND'\n[options] -k KEY [-k KEY...] [--] COMMAND [ARG...]",
        "run a command under a lock", run_options, {CLI_ARG_KEY, CLI_ARG_COMMAND, CLI_ARG_NONE}},
    [CLI_CANAL_LS] = {CLI_CANAL_LS, "canal ls", "[--json] [-q]",
        "list the segments of this machine", ls_options, {CLI_ARG_NONE}},
    [CLI_CANAL_SHOW] = {CLI_CANAL_SHOW, "canal show", "[--json] [-q] [--segment NAME] [KEY]",
        "show all locks, or the holders and waiters of one lock", show_options,
        {CLI_ARG_KEY, CLI_ARG_NONE}},
    [CLI_CANAL_WATCH] = {CLI_CANAL_WATCH, "canal watch", "[options] [NAME]",
        "show the locks of a segment repeatedly", watch_options, {CLI_ARG_SEGMENT, CLI_ARG_NONE}},
    [CLI_CANAL_REAP] = {CLI_CANAL_REAP, "canal reap", "[--json] [NAME]",
        "release the units of dead holders", reap_options, {CLI_ARG_SEGMENT, CLI_ARG_NONE}},
    [CLI_CANAL_MAKE] = {CLI_CANAL_MAKE, "canal make", "[options] NAME",
        "create a segment, with the sizes that you choose", make_options, {CLI_ARG_SEGMENT, CLI_ARG_NONE}},
    [CLI_CANAL_RM] = {CLI_CANAL_RM, "canal rm", "[--force] NAME...",
        "remove segments", rm_options, {CLI_ARG_SEGMENT, CLI_ARG_SEGMENT, CLI_ARG_NONE}},
    [CLI_SERVE] = {CLI_SERVE, "serve", "[options]", "start the server", serve_options, {CLI_ARG_NONE}},
    [CLI_LS] = {CLI_LS, "ls", "[options] [PATTERN]", "list the locks of a server, those with waiters first", list_options, {CLI_ARG_TEXT, CLI_ARG_NONE}},
    [CLI_EXPLAIN] = {CLI_EXPLAIN, "explain", "[options] KEY", "show the holders and waiters of a lock, and why they wait", explain_options,
        {CLI_ARG_KEY, CLI_ARG_NONE}},
    [CLI_WATCH] = {CLI_WATCH, "watch", "[options] [PATTERN]", "print the events of locks", events_options, {CLI_ARG_TEXT, CLI_ARG_NONE}},
    [CLI_BREAK] = {CLI_BREAK, "break", "[options] KEY", "revoke the grant of a lock", break_options, {CLI_ARG_KEY, CLI_ARG_NONE}},
    [CLI_DRAIN] = {CLI_DRAIN, "drain", "[options] [PATTERN on|off]", "stop granting locks on some keys, or list the drained patterns", drain_options,
        {CLI_ARG_PATTERN, CLI_ARG_STATE, CLI_ARG_NONE}},
    [CLI_NODES] = {CLI_NODES, "nodes", "[options] [resign]", "show the nodes of a cluster, or make another node the keeper", nodes_options,
        {CLI_ARG_TEXT, CLI_ARG_NONE}},
    [CLI_READY] = {CLI_READY, "ready", "[options]", "test whether a server grants locks, for health checks", ready_options, {CLI_ARG_NONE}},
    [CLI_STORE_CHECK] = {CLI_STORE_CHECK, "store check", "DIRECTORY",
        "check the transaction store of a server", plain_options, {CLI_ARG_FILE, CLI_ARG_NONE}},
    [CLI_STORE_DUMP] = {CLI_STORE_DUMP, "store dump", "DIRECTORY",
        "print the transaction store of a server as text", plain_options, {CLI_ARG_FILE, CLI_ARG_NONE}},
    [CLI_STORE_LOAD] = {CLI_STORE_LOAD, "store load", "DIRECTORY",
        "create a transaction store from the output of store dump", plain_options, {CLI_ARG_FILE, CLI_ARG_NONE}},
    [CLI_JOURNAL_SHOW] = {CLI_JOURNAL_SHOW, "journal show", "[--json] DIRECTORY",
        "show the leases and limits in the journal of a server", journal_show_options, {CLI_ARG_FILE, CLI_ARG_NONE}},
    [CLI_JOURNAL_CHECK] = {CLI_JOURNAL_CHECK, "journal check", "DIRECTORY",
        "check the journal of a server", plain_options, {CLI_ARG_FILE, CLI_ARG_NONE}},
    [CLI_JOURNAL_FORGET] = {CLI_JOURNAL_FORGET, "journal forget", "[--yes] DIRECTORY [KEY]",
        "end all leases in the journal of a stopped server, or those of KEY", journal_forget_options, {CLI_ARG_FILE, CLI_ARG_TEXT, CLI_ARG_NONE}},
    [CLI_DO] = {CLI_DO, "do", "[options] COMMAND [ARG...]", "send one command to a server and print the reply", do_options,
        {CLI_ARG_SERVER, CLI_ARG_NONE}},
    [CLI_ACQUIRE] = {CLI_ACQUIRE, "acquire", "[options] KEY", "acquire a lock on a server for a script", acquire_options,
        {CLI_ARG_KEY, CLI_ARG_NONE}},
    [CLI_EXTEND] = {CLI_EXTEND, "extend", "[options] [KEY FENCE]", "extend the lease of a lock", extend_options,
        {CLI_ARG_KEY, CLI_ARG_TEXT, CLI_ARG_NONE}},
    [CLI_RELEASE] = {CLI_RELEASE, "release", "[options] [KEY FENCE]", "release a lock", release_options,
        {CLI_ARG_KEY, CLI_ARG_TEXT, CLI_ARG_NONE}},
    [CLI_HOLD] = {CLI_HOLD, "hold", "[options] KEY", "hold a lock on a server until a script ends", hold_options,
        {CLI_ARG_KEY, CLI_ARG_NONE}},
    [CLI_TOP] = {CLI_TOP, "top", "[options]", "show the locks of a server as they change", top_options, {CLI_ARG_NONE}},
    [CLI_BENCH] = {CLI_BENCH, "bench", "[options]", "put load on a server, and measure it", bench_options, {CLI_ARG_NONE}},
    [CLI_HELP] = {CLI_HELP, "help", "[COMMAND]", "show the help of a command", plain_options,
        {CLI_ARG_TOPIC, CLI_ARG_NONE}},
    [CLI_VERSION] = {CLI_VERSION, "version", "", "print the version", plain_options, {CLI_ARG_NONE}},
};

const struct cli_exit cli_exits[] = {
    {CLI_EXIT_TAKEN, "run", "the lock was not granted; -E sets a different status", NULL},
    {CLI_EXIT_TAKEN, "canal", "the segment is in use (only canal rm)", NULL},
    {CLI_EXIT_TAKEN, "do", "the reply is nil (another client holds the lock, or the command has no value to return), or AWAIT or CHECK returned 0", "ASKED"},
    {CLI_EXIT_TAKEN, "bench", "no lock was granted", NULL},
    {CLI_EXIT_TAKEN, "journal", "the key has no lease, or you did not confirm (only journal forget)", NULL},
    {CLI_EXIT_TAKEN, "break", "no client holds the lock, or none with this fence, or you did not confirm", NULL},
    {CLI_EXIT_TAKEN, "acquire hold", "the lock was not granted: it is taken, or the script ended while hold waited", NULL},
    {CLI_EXIT_TAKEN, "extend", "a client with a higher priority needs the lock: it is still held, but its lease was not extended", NULL},
    {CLI_EXIT_USAGE, "run canal store acquire extend release hold top bench", "the command line is invalid", NULL},
    {CLI_EXIT_USAGE, "journal", "the command line is invalid, or journal forget needs --yes because there is no terminal", NULL},
    {CLI_EXIT_USAGE, "do", "the command line is invalid, or the server replied with an error that is not listed here", NULL},
    {CLI_EXIT_USAGE, "ls explain watch break drain nodes ready", "the command line is invalid, or the server replied with an error that is not listed here", NULL},
    {CLI_EXIT_USAGE, "break", "several clients hold the lock and --fence is missing, or --yes is missing and there is no terminal", NULL},
    {CLI_EXIT_DATA, "run canal top", "the segment is damaged, was created by another version of Sluice, or is not a segment", NULL},
    {CLI_EXIT_DATA, "store", "the store is damaged, was created by another version of Sluice, or is not a store; or the input of store load is not a complete dump", NULL},
    {CLI_EXIT_DATA, "journal", "the journal is damaged, was written by another version of Sluice, or is not a journal; or it belongs to a node of a majority cluster (only journal forget)", NULL},
    {CLI_EXIT_DATA, "ls explain watch", "with --local: the segment is damaged, was created by another version of Sluice, or is not a segment", NULL},
    {CLI_EXIT_NO_INPUT, "run", "the directory of the segment does not exist", NULL},
    {CLI_EXIT_NO_INPUT, "canal", "the segment or the key does not exist", NULL},
    {CLI_EXIT_NO_INPUT, "store", "the directory contains no store", NULL},
    {CLI_EXIT_NO_INPUT, "journal", "the directory does not exist or contains no journal", NULL},
    {CLI_EXIT_NO_INPUT, "run do acquire extend release hold top bench", "the password file does not exist or is empty", NULL},
    {CLI_EXIT_NO_INPUT, "ls explain watch break drain nodes ready", "the password file does not exist or is empty", NULL},
    {CLI_EXIT_NO_INPUT, "top", "with --local: the segment does not exist or was removed", NULL},
    {CLI_EXIT_NO_INPUT, "ls explain watch", "with --local: the segment or the key does not exist", NULL},
    {CLI_EXIT_UNAVAILABLE, "run canal", "a table of the segment is full, or a process was suspended (SIGSTOP) while it was changing the segment", NULL},
    {CLI_EXIT_UNAVAILABLE, "run", "the server cannot be reached, or cannot grant the lock now", NULL},
    {CLI_EXIT_UNAVAILABLE, "canal", "the segment exists and is smaller than requested (only canal make)", NULL},
    {CLI_EXIT_UNAVAILABLE, "serve", "the program sluice-server is not installed", NULL},
    {CLI_EXIT_UNAVAILABLE, "store journal", "the program sluice-offline is not installed", NULL},
    {CLI_EXIT_UNAVAILABLE, "journal", "a server uses the directory (only journal forget)", NULL},
    {CLI_EXIT_UNAVAILABLE, "do", "the server cannot be reached, the connection was lost, or the server cannot serve the command now",
        "NOTREADY NOKEEPER NOQUORUM RECOVERING STALE CLOSED SHUTDOWN DRAINED NOFENCES IO NOSPACE LIMIT NOKEYS WAITERS TRANSACTIONS NOMEM"},
    {CLI_EXIT_UNAVAILABLE, "ls explain watch break drain nodes", "the server cannot be reached, did not reply in time, or cannot serve the command now", NULL},
    {CLI_EXIT_UNAVAILABLE, "ready", "the server is not ready, cannot be reached, or did not reply in time", NULL},
    {CLI_EXIT_SYSTEM, "ls explain watch break drain nodes ready", "the operating system reported an error, such as a lack of memory, or the output cannot be written", NULL},
    {CLI_EXIT_UNAVAILABLE, "acquire", "the server cannot be reached, or cannot grant the lock now; the script does not hold the lock", NULL},
    {CLI_EXIT_UNAVAILABLE, "extend", "the server cannot be reached, or cannot extend the lease now; do not rely on the lock after the time in SLUICE_LOCK_UNTIL", NULL},
    {CLI_EXIT_UNAVAILABLE, "release", "the server cannot be reached; the lock may remain held until its lease expires", NULL},
    {CLI_EXIT_UNAVAILABLE, "hold", "the server cannot be reached, or cannot grant or release the lock now", NULL},
    {CLI_EXIT_SYSTEM, "run canal store journal do acquire extend release hold top bench", "the operating system reported an error, such as a lack of memory or disk space, or the output cannot be written", NULL},
    {CLI_EXIT_UNAVAILABLE, "top", "the server could not be reached at the start or for the last update, or replied with an error", NULL},
    {CLI_EXIT_UNAVAILABLE, "bench", "the server cannot be reached, a connection was lost, or the server replied with errors", NULL},
    {CLI_EXIT_EXISTS, "store", "the directory already contains a store (only store load)", NULL},
    {CLI_EXIT_EXISTS, "store", "the temporary file cannot be created (only store dump)", NULL},
    {CLI_EXIT_NO_PERMISSION, "run canal", "no permission to open the segment", NULL},
    {CLI_EXIT_NO_PERMISSION, "store", "no permission to read the store or to create a store", NULL},
    {CLI_EXIT_NO_PERMISSION, "journal", "no permission to read the journal or to replace it", NULL},
    {CLI_EXIT_NO_PERMISSION, "run acquire extend release hold top bench", "the server requires a password or rejected it, or the password file cannot be read", NULL},
    {CLI_EXIT_NO_PERMISSION, "do", "the server requires a password or rejected it, or the password file cannot be read",
        "NOAUTH WRONGPASS NOPERM"},
    {CLI_EXIT_NO_PERMISSION, "ls explain watch break drain nodes ready", "the server requires a password or rejected it, or the password file cannot be read", NULL},
    {CLI_EXIT_NO_PERMISSION, "ls explain watch top", "with --local: no permission to open the segment", NULL},
    {CLI_EXIT_LOST, "run", "the lock was lost while the command ran, and sluice run stopped the command", NULL},
    {CLI_EXIT_LOST, "do", "the client does not hold (or no longer holds) the lock under this fence", "LOST"},
    {CLI_EXIT_LOST, "extend release", "the lock is no longer held", NULL},
    {CLI_EXIT_LOST, "acquire hold", "the lock was granted and then lost", NULL},
    {CLI_EXIT_CANNOT_EXECUTE, "run", "the command was found but cannot be executed", NULL},
    {CLI_EXIT_CANNOT_EXECUTE, "serve", "sluice-server was found but cannot be executed", NULL},
    {CLI_EXIT_CANNOT_EXECUTE, "store journal", "sluice-offline was found but cannot be executed", NULL},
    {CLI_EXIT_NOT_FOUND, "run", "the command was not found", NULL},
    {CLI_EXIT_SIGNALLED, "acquire hold", "plus n: signal n ended the command before it printed the result", NULL},
    {CLI_EXIT_SIGNALLED, "run", "plus n: signal n ended the command", NULL},
    {0, NULL, NULL, NULL}};

const struct cli_variable cli_reads[] = {
    {"SLUICE_SEGMENT", "the segment to use if --segment is not given"},
    {"SLUICE_SERVER", "the address of the server if --server is not given; for a cluster, several addresses with commas between them. If neither is given, sluice run uses a local lock"},
    {"SLUICE_PASSWORD", "the password of the server if --password-file is not given"},
    {"NO_COLOR", "if it is not empty, commands print no colours"},
    {"SHELL", "the shell that executes the argument of -c"},
    {NULL, NULL}};

const struct cli_variable cli_given[] = {
    {"SLUICE_LOCK_KEY", "the key; with several keys, one on each line"},
    {"SLUICE_LOCK_HELD", "always 1"},
    {"SLUICE_LOCK_WHERE", "local if the lock is in shared memory on this machine, or server"},
    {"SLUICE_LOCK_SERVER", "the addresses of the server; not set for local locks"},
    {"SLUICE_LOCK_FENCE", "the fence of the grant, for the resource to check; with several keys, one on each line. Not set for local locks"},
    {"SLUICE_LOCK_SEGMENT", "the path of the segment; not set for locks on a server"},
    {"SLUICE_LOCK_SESSION", "the process id of the wrapper"},
    {"SLUICE_LOCK_NTH", "the number of units of the key that were held when the lock was granted, including this one; 1 for an exclusive lock. Not set for locks on a server"},
    {"SLUICE_LOCK_SLOT", "a number from 1 to the capacity. No other holder of the key has the same number if all holders declare the same capacity. Use it to choose a port, a directory or a GPU. Not set with -s, with several keys, if the capacity is above 4096, or if a message says that no number is available on the server"},
    {"SLUICE_LOCK_FD", "the file descriptor through which the command and its children hold the lock; not set with -o, or for locks on a server"},
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
