#include "cli/run.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/exits.h"
#include "cli/hold.h"
#include "cli/leased.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/shell.h"
#include "cli/text.h"

#define GRACE_MS_DEFAULT 5000
#define LEASE_MS_DEFAULT 30000
#define LEASE_MS_MIN 1000

/* SIGKILL comes this part of the lease before it expires, within limits. SIGTERM comes earlier, by
 * the grace period, which is at most a quarter of the lease. */
#define KILLS_PER_LEASE 10
#define KILL_MS_MIN 100
#define KILL_MS_MAX 2000
#define GRACES_PER_LEASE 4

struct run_options {
    struct cli_request request;
    uint64_t per, buckets; /* 0: not given. */
    bool shared, exclusive;
    bool nonblock;
    bool close, no_fork;
    bool verbose;
    int conflict;
    const char *string; /* The argument of -c, for the shell. */
    int64_t grace_ms;
    char **argv;

    /* Keys; with locks on a server also several. */
    const char *keys[SLUICE_KEYS_AT_ONCE_MAX];
    size_t count;

    /* For locks on a server. */
    struct cli_server server;
    struct sluice_request want;
    bool local;
    const char *on_lost, *on_asked;
    const char *only_local;  /* The last option for local locks only; NULL: none. */
    const char *only_server; /* The same for locks on a server. */
};

/* --- Options -------------------------------------------------------------- */

static int add_key(struct run_options *o, const char *key)
{
    char shown[CLI_SAFE_SIZE];
    size_t n = strlen(key);
    if (n == 0) return cli_usage_error("KEY must not be empty");
    if (n > SLUICE_KEY_BYTES_MAX)
        return cli_usage_error("KEY is too long: %zu bytes (maximum %u)", n,
                               SLUICE_KEY_BYTES_MAX);
    for (size_t i = 0; i < o->count; i++)
        if (strcmp(o->keys[i], key) == 0)
            return cli_usage_error("-k: duplicate key \"%s\"",
                                   cli_safe_text(key, shown, sizeof shown));
    if (o->count == SLUICE_KEYS_AT_ONCE_MAX)
        return cli_usage_error("too many keys (maximum %u)", SLUICE_KEYS_AT_ONCE_MAX);
    o->keys[o->count++] = key;
    return 0;
}

/* With several keys, SLUICE_LOCK_KEY has one key on each line. */
static int reject_line_feed(const char *key)
{
    char shown[CLI_SAFE_SIZE];
    return cli_usage_error("-k: with several keys, a key must not contain a line feed "
                           "(got \"%s\")",
                           cli_safe_text(key, shown, sizeof shown));
}

static int take_option(void *into, int id, const char *value)
{
    struct run_options *o = into;
    uint64_t n;
    switch (id) {
        case 'j': return cli_per(value, &o->per);
        case CLI_OPT_BUCKETS:
            if (!cli_number(value, 1, SLUICE_CAPACITY_MAX, &o->buckets))
                return cli_bad_value("--buckets", value, "a number of at least 1");
            return 0;
        case 's': o->shared = true, o->exclusive = false; return 0;
        case 'x': o->exclusive = true, o->shared = false; return 0;
        case 'n': o->nonblock = true; return 0;
        case 'w': return cli_duration("-w", value, 0, &o->request.wait_ms);
        case 'E':
            if (!cli_number(value, 0, 255, &n))
                return cli_bad_value("-E", value, "a number from 0 to 255");
            o->conflict = (int)n;
            return 0;
        case 'c': o->string = value; return 0;
        case 'o': o->close = true; return 0;
        case 'F':
            o->no_fork = true;
            o->only_local = "-F";
            return 0;
        case 'q': o->request.quiet = true; return 0;
        case CLI_OPT_VERBOSE: o->verbose = true; return 0;
        case CLI_OPT_LOCAL: o->local = true; return 0;
        case 'k': return add_key(o, value);
        case CLI_OPT_SERVER:
        case CLI_OPT_PASSWORD_FILE: cli_server_option(&o->server, id, value); return 0;
        case CLI_OPT_LEASE:
            o->only_server = "--lease";
            return cli_duration("--lease", value, LEASE_MS_MIN, &o->want.lease_ms);
        case CLI_OPT_MAX_HOLD:
            o->only_server = "--max-hold";
            return cli_duration("--max-hold", value, LEASE_MS_MIN,
                                &o->want.max_hold_ms);
        case 'p':
            o->only_server = "--priority";
            return cli_priority(value, &o->want.priority);
        case CLI_OPT_STEAL:
            o->only_server = "--steal";
            o->want.steal = 1;
            return 0;
        case CLI_OPT_VALUE:
            o->only_server = "--value";
            return cli_short_text("--value", value, &o->want.value);
        case CLI_OPT_NOTE:
            o->only_server = "--note";
            return cli_short_text("--note", value, &o->want.note);
        case CLI_OPT_ON_LOST:
            o->only_server = "--on-lost";
            o->on_lost = value;
            return 0;
        case CLI_OPT_ON_ASKED:
            o->only_server = "--on-asked";
            o->on_asked = value;
            return 0;
        case CLI_OPT_SEGMENT:
            o->only_local = "--segment";
            if (value[0] == '\0')
                return cli_usage_error("--segment: the name must not be empty");
            o->request.segment = value;
            return 0;
        case CLI_OPT_MODE:
            o->only_local = "--mode";
            if (!cli_mode(value, &o->request.mode))
                return cli_bad_value("--mode", value, "permissions such as 0660");
            return 0;
        case CLI_OPT_GRACE: return cli_duration("--grace", value, 0, &o->grace_ms);
        default: abort(); /* The parser knows the options of each command. */
    }
}

/* Run the command in the user's shell. */
static int use_shell(struct run_options *o)
{
    static char *argv[4];
    char *shell = getenv("SHELL");
    argv[0] = shell != NULL && shell[0] != '\0' ? shell : (char *)"/bin/sh";
    argv[1] = (char *)"-c";
    argv[2] = (char *)o->string;
    o->argv = argv;
    return 0;
}

/* Read the arguments after the options: KEY, unless -k was given, and the command. */
static int take_arguments(struct run_options *o, int argc, char **argv)
{
    if (o->count == 0) {
        if (argc == 0) return cli_usage_error("missing KEY");
        int status = add_key(o, argv[0]);
        if (status != 0) return status;
        argc--, argv++;
    }
    for (size_t i = 0; i < o->count && o->count > 1; i++)
        if (strchr(o->keys[i], '\n') != NULL) return reject_line_feed(o->keys[i]);
    o->request.key = o->keys[0];
    bool behind = argc > 0 && o->string == NULL &&
                  (strcmp(argv[0], "-c") == 0 || strcmp(argv[0], "--command") == 0);
    if (behind) {
        if (argc != 2)
            return cli_usage_error("%s takes exactly one argument, the shell command",
                                   argv[0]);
        o->string = argv[1];
        return use_shell(o);
    }
    if (o->string != NULL)
        return argc == 0 ? use_shell(o)
                         : cli_usage_error("use either -c or COMMAND, not both");
    if (argc > 0 && strcmp(argv[0], "--") == 0) argc--, argv++;
    else if (argc > 0 && argv[0][0] == '-' && argv[0][1] != '\0')
        return cli_usage_error(
            "%s: options go before KEY; write -- before a command that begins with -",
            argv[0]);
    if (argc == 0) return cli_usage_error("missing COMMAND");
    o->argv = argv;
    return 0;
}

/* Combine the options into a request. */
static int settle(struct run_options *o)
{
    bool counts = o->per != 0 || o->buckets != 0;
    struct cli_request *w = &o->request;
    if (counts && (o->shared || o->exclusive))
        return cli_usage_error("-s and -x cannot be combined with -j or --buckets");
    if (o->close && o->no_fork)
        return cli_usage_error(
            "-o cannot be combined with -F: no process would hold the lock");
    if (counts) {
        uint64_t per = o->per != 0 ? o->per : 1;
        uint64_t buckets = o->buckets != 0 ? o->buckets : 1;
        /* With a larger capacity, a counting run could start during an exclusive
         * run. */
        if (per > CLI_WHOLE_CAPACITY / buckets)
            return cli_usage_error(
                "the capacity (--per times --buckets) must not exceed %u",
                (unsigned)CLI_WHOLE_CAPACITY);
        w->capacity = (struct sluice_capacity){(uint32_t)per, (uint32_t)buckets};
        w->units = 1;
    } else {
        w->capacity = (struct sluice_capacity){CLI_WHOLE_CAPACITY, 1};
        w->units = o->shared ? 1 : CLI_WHOLE_CAPACITY;
    }
    uint64_t capacity = (uint64_t)w->capacity.per * w->capacity.buckets;
    w->numbered = !o->shared && (!counts || capacity <= CLI_SLOTS_MAX);
    if (o->nonblock) w->wait_ms = 0;
    const char *slash = strrchr(o->argv[0], '/');
    w->program = slash != NULL && slash[1] != '\0' ? slash + 1 : o->argv[0];
    return 0;
}

/* --- Locks on a server ----------------------------------------------------- */

/* Whether the locks are on a server, as --server, --local and SLUICE_SERVER say. Returns 0; or
 * prints a message and returns an exit status. */
static int choose_place(const struct run_options *o, bool *server)
{
    if (o->local && o->server.address != NULL)
        return cli_usage_error("use either --server or --local, not both");
    *server = !o->local && cli_server_named(&o->server);
    if (*server && o->only_local != NULL)
        return cli_usage_error("%s is for local locks only; use --local, or remove it",
                               o->only_local);
    if (!*server && o->only_server != NULL)
        return cli_usage_error("%s is for locks on a server; name the server with "
                               "--server or SLUICE_SERVER",
                               o->only_server);
    if (!*server && o->count > 1)
        return cli_usage_error("several keys are for locks on a server; name the "
                               "server with --server or SLUICE_SERVER");
    return 0;
}

static int run_leased(struct run_options *o)
{
    bool counts = o->per != 0 || o->buckets != 0;
    struct sluice_request *w = &o->want;
    int64_t lease = w->lease_ms, kill = lease / KILLS_PER_LEASE;
    int64_t grace = o->grace_ms < lease / GRACES_PER_LEASE ? o->grace_ms
                                                           : lease / GRACES_PER_LEASE;
    int status = cli_server_find(&o->server);
    if (status != 0) return status;
    if (w->max_hold_ms > 0 && w->max_hold_ms < lease)
        return cli_usage_error("--max-hold must not be shorter than --lease");
    if (counts)
        w->per = o->request.capacity.per, w->buckets = o->request.capacity.buckets;
    else if (o->shared) w->shared = 1;
    else w->per = w->units = SLUICE_UNITS_MAX;
    w->wait_ms = o->request.wait_ms;
    w->keep_alive = 1;
    kill = kill < KILL_MS_MIN ? KILL_MS_MIN : kill > KILL_MS_MAX ? KILL_MS_MAX : kill;
    w->margin_ms = grace + kill;
    const struct cli_leased leased = {
        .lease = {.server = &o->server,
                  .keys = o->keys,
                  .count = o->count,
                  .request = *w,
                  .kill_margin_ms = kill,
                  .quiet = o->request.quiet,
                  .whole = !counts && !o->shared,
                  .numbered = counts && o->request.numbered && o->count == 1,
                  .conflict = o->conflict,
                  .program = o->request.program},
        .argv = o->argv,
        .grace_ms = grace,
        .close = o->close,
        .verbose = o->verbose,
        .on_lost = o->on_lost,
        .on_asked = o->on_asked};
    return cli_leased(&leased);
}

/* --- Locks of this machine -------------------------------------------------- */

/* Choose the segment: --segment, then SLUICE_SEGMENT, then the default segment. */
static void choose_segment(struct run_options *o)
{
    const char *segment = getenv("SLUICE_SEGMENT");
    if (o->request.segment == NULL && segment != NULL && segment[0] != '\0')
        o->request.segment = segment;
}

/* --- The command's environment -------------------------------------------- */

static void set_number(const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    setenv(name, text, 1);
}

static void set_environment(const struct run_options *o, const struct cli_hold *h)
{
    bool whole = o->request.units == CLI_WHOLE_CAPACITY;
    cli_shell_forget(); /* Variables of an outer lock. */
    setenv("SLUICE_LOCK_KEY", o->request.key, 1);
    setenv("SLUICE_LOCK_HELD", "1", 1);
    setenv("SLUICE_LOCK_WHERE", "local", 1);
    setenv("SLUICE_LOCK_SEGMENT", sluice_canal_path(h->canal), 1);
    set_number("SLUICE_LOCK_SESSION", getpid());
    set_number("SLUICE_LOCK_NTH", whole ? 1 : h->nth);
    if (h->slot != 0) set_number("SLUICE_LOCK_SLOT", h->slot);
    if (!o->close) set_number("SLUICE_LOCK_FD", h->tether);
}

/* --- Running -------------------------------------------------------------- */

struct running {
    const struct run_options *options;
    struct cli_hold hold;
};

static bool is_lost(void *context)
{
    struct running *r = context;
    return cli_hold_lost(&r->hold);
}

/* Return whether the segment's file is still at its path. If it is, but the lock is
 * lost, the file was truncated. */
static bool is_there(const struct cli_hold *h)
{
    struct stat a, b;
    return fstat(h->tether, &a) == 0 && stat(sluice_canal_path(h->canal), &b) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void report_lost(void *context, bool ended)
{
    struct running *r = context;
    char key[CLI_SAFE_SIZE], path[CLI_SAFE_SIZE];
    cli_message("lost the lock \"%s\": its segment %s was %s; %s",
                cli_safe_text(r->options->request.key, key, sizeof key),
                cli_safe_text(sluice_canal_path(r->hold.canal), path, sizeof path),
                is_there(&r->hold) ? "truncated" : "removed",
                ended ? "the command has already ended" : "stopping the command");
}

static void end_hold(void *context)
{
    struct running *r = context;
    cli_hold_end(&r->hold);
}

static int report_taken(const struct run_options *o)
{
    char shown[CLI_SAFE_SIZE];
    cli_safe_text(o->request.key, shown, sizeof shown);
    if (!o->request.quiet && o->request.wait_ms == 0)
        cli_message("\"%s\" is taken", shown);
    else if (!o->request.quiet)
        cli_message("timed out after %g s: \"%s\" is still taken",
                    (double)o->request.wait_ms / 1000, shown);
    return o->conflict;
}

static int run(const struct run_options *o)
{
    struct running r = {.options = o};
    struct timespec a, b;
    bool full;
    cli_catch_truncation();
    clock_gettime(CLOCK_MONOTONIC, &a);
    int status = cli_hold(&o->request, &r.hold, &full);
    if (full) return report_taken(o);
    if (status != 0) return status;
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (o->verbose) {
        char shown[CLI_SAFE_SIZE];
        cli_message("acquiring the lock took %.6f seconds",
                    (double)(b.tv_sec - a.tv_sec) +
                        (double)(b.tv_nsec - a.tv_nsec) / 1e9);
        cli_message("executing %s", cli_safe_text(o->argv[0], shown, sizeof shown));
    }
    set_environment(o, &r.hold);
    if (o->close) fcntl(r.hold.tether, F_SETFD, FD_CLOEXEC);
    if (o->no_fork) return cli_exec(o->argv);
    const struct cli_job job = {.argv = o->argv,
                                .grace_ms = o->grace_ms,
                                .lost = is_lost,
                                .report_lost = report_lost,
                                .context = &r};
    return cli_child(&job, end_hold);
}

int cli_run(const struct cli_command *command, int argc, char **argv)
{
    struct run_options o = {.request = {.wait_ms = SLUICE_FOREVER},
                            .conflict = CLI_EXIT_TAKEN,
                            .grace_ms = GRACE_MS_DEFAULT,
                            .want.lease_ms = LEASE_MS_DEFAULT};
    bool server = false;
    int rest;
    int status = cli_parse(command, argc, argv, true, take_option, &o, &rest);
    if (status >= 0) return status;
    status = take_arguments(&o, argc - rest, argv + rest);
    if (status == 0) status = settle(&o);
    if (status == 0) status = choose_place(&o, &server);
    if (status != 0) return status;
    if (server) return run_leased(&o);
    choose_segment(&o);
    return run(&o);
}
