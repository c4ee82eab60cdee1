#include "cli/ops.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/hold.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/reply.h"
#include "cli/text.h"

/* The deadline is later than the timeouts of the library, whose messages say more. It also covers
 * the resolution of host names, which has no timeout. */
#define DEADLINE_EXTRA_MS 500
#define TIMEOUT_MIN_MS 10

/* --- Options -------------------------------------------------------------- */

static int take_number(const char *option, const char *value, uint64_t most,
                       uint64_t *out)
{
    char wanted[64];
    if (cli_number(value, 1, most, out)) return 0;
    snprintf(wanted, sizeof wanted, "a number from 1 to %" PRIu64, most);
    return cli_bad_value(option, value, wanted);
}

static int take(void *into, int id, const char *value)
{
    struct cli_ops *o = into;
    switch (id) {
        case CLI_OPT_JSON: o->json = true; return 0;
        case 'q': o->quiet = true; return 0;
        case CLI_OPT_LOCAL: o->local = true; return 0;
        case CLI_OPT_MAJORITY: o->majority = true; return 0;
        case CLI_OPT_NOW: o->now = true; return 0;
        case CLI_OPT_YES: o->yes = true; return 0;
        case CLI_OPT_SEGMENT:
            if (value[0] == '\0')
                return cli_usage_error("--segment: the name must not be empty");
            o->segment = value;
            return 0;
        case CLI_OPT_TIMEOUT:
            return cli_duration("--timeout", value, TIMEOUT_MIN_MS, &o->timeout_ms);
        case CLI_OPT_COUNT: return take_number("--count", value, INT64_MAX, &o->count);
        case CLI_OPT_FENCE: return take_number("--fence", value, INT64_MAX, &o->fence);
        default: cli_server_option(&o->server, id, value); return 0;
    }
}

int cli_ops_parse(const struct cli_command *command, int argc, char **argv, int least,
                  int most, struct cli_ops *o, int *rest)
{
    *o = (struct cli_ops){.timeout_ms = CLI_OPS_TIMEOUT_MS};
    int status = cli_parse(command, argc, argv, false, take, o, rest);
    if (status >= 0) return status;
    int given = argc - *rest;
    if (given < least)
        return cli_usage_error("missing argument; usage: sluice %s %s", command->name,
                               command->synopsis);
    if (given > most)
        return cli_usage_error("too many arguments; usage: sluice %s %s", command->name,
                               command->synopsis);
    if (o->json && o->quiet)
        return cli_usage_error("--json excludes -q; use one or the other");
    if (o->segment != NULL && !o->local)
        return cli_usage_error("--segment needs --local: a server has no segments");
    if (o->local && o->server.address != NULL)
        return cli_usage_error("--local excludes --server; use one or the other");
    return -1;
}

/* --- The deadline --------------------------------------------------------- */

static char late_line[256];

static void on_late(int signal)
{
    (void)signal;
    ssize_t written = write(STDERR_FILENO, late_line, strlen(late_line));
    (void)written;
    _exit(CLI_EXIT_UNAVAILABLE);
}

void cli_ops_extend(const struct cli_ops *o)
{
    int64_t ms = o->timeout_ms + DEADLINE_EXTRA_MS;
    const struct itimerval timer = {
        .it_value = {.tv_sec = (time_t)(ms / 1000),
                     .tv_usec = (suseconds_t)(ms % 1000) * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

void cli_ops_no_deadline(void)
{
    const struct itimerval none = {0};
    setitimer(ITIMER_REAL, &none, NULL);
}

static void begin_deadline(const struct cli_ops *o)
{
    const struct sigaction late = {.sa_handler = on_late};
    sigset_t alarms;
    if (!o->quiet)
        snprintf(late_line, sizeof late_line,
                 "sluice: the server did not reply within %" PRId64
                 " ms; --timeout sets a longer time\n",
                 o->timeout_ms);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigaction(SIGALRM, &late, NULL);
    sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    cli_ops_extend(o);
}

/* --- The server ----------------------------------------------------------- */

int cli_ops_connect(struct cli_ops *o)
{
    int failed = cli_server_find(&o->server);
    if (failed != 0) return failed;
    begin_deadline(o);
    size_t addresses = 1;
    for (const char *p = o->server.addresses; *p != '\0'; p++) addresses += *p == ',';
    int64_t connect_ms = o->timeout_ms / (int64_t)addresses;
    const struct sluice_wire_options options = {
        .connect_ms = connect_ms > 0 ? connect_ms : 1, .reply_ms = o->timeout_ms};
    int status = cli_server_try(&o->server, options, &o->wire, o->address,
                                sizeof o->address, o->error, sizeof o->error);
    if (status == SLUICE_OK) return 0;
    if (!o->quiet || status == SLUICE_EINVAL)
        return cli_server_failed(o->address, status, o->error);
    return status == SLUICE_EDENIED ? CLI_EXIT_NO_PERMISSION : CLI_EXIT_UNAVAILABLE;
}

int cli_ops_lost(const struct cli_ops *o)
{
    char shown[CLI_SAFE_SIZE], reason[CLI_SAFE_SIZE];
    if (!o->quiet)
        cli_message("%s: connection lost: %s",
                    cli_safe_text(o->address, shown, sizeof shown),
                    cli_safe_text(sluice_wire_error(o->wire), reason, sizeof reason));
    return CLI_EXIT_UNAVAILABLE;
}

int cli_ops_error(const struct cli_ops *o, const struct sluice_reply *r)
{
    char shown[CLI_SAFE_SIZE];
    if (o->json) cli_reply_json(stdout, r);
    else if (!o->quiet) cli_message("%s", cli_safe_text(r->text, shown, sizeof shown));
    return cli_flush_output(cli_server_exit_of(r->text));
}

int cli_ops_unexpected(const struct cli_ops *o, const char *command)
{
    char shown[CLI_SAFE_SIZE];
    if (!o->quiet)
        cli_message(
            "%s: the reply to %s is not that of a Sluice server; check the address",
            cli_safe_text(o->address, shown, sizeof shown), command);
    return CLI_EXIT_UNAVAILABLE;
}

int cli_ops_call(struct cli_ops *o, const char *const *args, size_t n,
                 struct sluice_reply **out)
{
    int status = sluice_wire_call(o->wire, args, NULL, n, out);
    if (status == SLUICE_ENOMEM) return cli_status_error(args[0], status);
    if (status != SLUICE_OK) return cli_ops_lost(o);
    if ((*out)->type != SLUICE_REPLY_ERROR) return 0;
    int failed = cli_ops_error(o, *out);
    sluice_reply_free(*out);
    *out = NULL;
    return failed;
}

/* --- Fields of a reply ---------------------------------------------------- */

static const struct sluice_reply nothing = {.type = SLUICE_REPLY_NIL, .text = ""};

const struct sluice_reply *cli_field(const struct sluice_reply *map, const char *name)
{
    if (map == NULL || map->type != SLUICE_REPLY_MAP) return NULL;
    for (size_t i = 0; i + 1 < map->count; i += 2)
        if (strcmp(map->items[i].text, name) == 0) return &map->items[i + 1];
    return NULL;
}

int64_t cli_field_number(const struct sluice_reply *map, const char *name,
                         int64_t other)
{
    const struct sluice_reply *r = cli_field(map, name);
    return r != NULL && r->type == SLUICE_REPLY_NUMBER ? r->number : other;
}

const char *cli_field_text(const struct sluice_reply *map, const char *name, size_t *n)
{
    const struct sluice_reply *r = cli_field(map, name);
    bool found = r != NULL &&
                 (r->type == SLUICE_REPLY_TEXT || r->type == SLUICE_REPLY_STATUS);
    *n = found ? r->text_bytes : 0;
    return found ? r->text : "";
}

const struct sluice_reply *cli_field_list(const struct sluice_reply *map,
                                          const char *name)
{
    const struct sluice_reply *r = cli_field(map, name);
    return r != NULL && r->type == SLUICE_REPLY_LIST ? r : &nothing;
}

/* --- Clients -------------------------------------------------------------- */

void cli_put_client(FILE *out, const struct sluice_reply *map)
{
    size_t name_bytes, address_bytes;
    const char *name = cli_field_text(map, "name", &name_bytes);
    const char *address = cli_field_text(map, "address", &address_bytes);
    int64_t client = cli_field_number(map, "client", 0);
    if (name_bytes > 0) cli_put_line(out, name, name_bytes);
    else if (client > 0) fprintf(out, "client %" PRId64, client);
    else fputs("a client", out);
    if (address_bytes == 0) return;
    fputs(" (", out);
    cli_put_line(out, address, address_bytes);
    fputc(')', out);
}

void cli_put_ms(FILE *out, int64_t ms)
{
    char text[32];
    if (ms < 0 || ms > CLI_NO_LIMIT_MS) fputc('-', out);
    else if (ms < 1000) fprintf(out, "%" PRId64 " ms", ms);
    else fputs(cli_format_duration(ms, text, sizeof text), out);
}

/* Print units, and the capacity if it is known. `sluice run` implements exclusive and shared locks
 * with one very large capacity. */
static void put_units_of(FILE *out, int64_t units, const struct sluice_reply *client)
{
    int64_t per = cli_field_number(client, "per", 0);
    int64_t buckets = cli_field_number(client, "buckets", 0);
    bool known = per > 0 && buckets > 0 && per <= INT32_MAX && buckets <= INT32_MAX;
    bool whole = known && per * buckets == CLI_WHOLE_CAPACITY;
    if (whole && units >= CLI_WHOLE_CAPACITY) fputs("exclusive", out);
    else if (whole) fprintf(out, "%" PRId64 " shared", units);
    else if (known) fprintf(out, "%" PRId64 "/%" PRId64, units, per * buckets);
    else fprintf(out, "%" PRId64, units);
}

void cli_put_held(FILE *out, const struct sluice_reply *lock,
                  const struct sluice_reply *holder)
{
    int64_t holders = cli_field_number(lock, "holders_count", -1);
    if (holders < 0) holders = cli_field_number(lock, "holders", 0);
    if (cli_field_number(lock, "shared", 0) != 0)
        fprintf(out, "%" PRId64 " shared", holders);
    else put_units_of(out, cli_field_number(lock, "held", 0), holder);
}

void cli_put_units(FILE *out, const struct sluice_reply *client)
{
    if (cli_field_number(client, "shared", 0) != 0) fputs("shared", out);
    else put_units_of(out, cli_field_number(client, "units", 0), client);
}
