#include "cli/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/canal.h"
#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/grid.h"
#include "cli/message.h"
#include "cli/ops.h"
#include "cli/text.h"

#define CHANNEL "lock:"   /* The channel of a key is this prefix and the key. */
#define PAUSE_MS_MIN 100  /* Between two attempts to connect again: from this time */
#define PAUSE_MS_MAX 5000 /* to this one. */
#define KEEPER_CHANGED "keeper-changed"
#define WORD_SIZE 256  /* Longer words of an event are not shown in JSON. */
#define EVENT_WIDTH 14 /* The longest event is "keeper-changed". */

struct watch {
    struct cli_ops *o;
    char *channel;    /* The argument of the subscription. */
    bool is_pattern;  /* It can match several keys. */
    uint64_t seen;    /* The number of events. */
    int64_t pause_ms; /* Until the next attempt to connect again. */
};

/* --- Printing ------------------------------------------------------------- */

static enum cli_colour colour_of(const char *event)
{
    static const struct {
        const char *events;
        enum cli_colour colour;
    } colours[] = {
        {"granted reconnected", CLI_GREEN},
        {"expired broken stolen disconnected", CLI_RED},
        {"asked withdrawn", CLI_YELLOW},
        {KEEPER_CHANGED, CLI_MAGENTA},
    };
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        if (cli_list_has(colours[i].events, event, strlen(event)))
            return colours[i].colour;
    return CLI_PLAIN;
}

/* Print the time: "14:03:07.250". */
static void put_time(int64_t now_ms)
{
    time_t now = (time_t)(now_ms / 1000);
    struct tm t;
    char text[16] = "?";
    if (localtime_r(&now, &t) != NULL) strftime(text, sizeof text, "%H:%M:%S", &t);
    printf("%s.%03d", text, (int)(now_ms % 1000));
}

/* An event of a lock, as the server published it: "granted 179... held=1 lease_ms=-1". */
struct event {
    const char *key; /* NULL: it concerns no key. */
    size_t key_bytes;
    char name[32], shown[CLI_SAFE_SIZE]; /* The name, and how it is printed. */
    const char *rest;                    /* What follows the name. */
    size_t rest_bytes;
};

static void print_text(const struct event *e)
{
    put_time(cli_wall_ms());
    fputs("  ", stdout);
    enum cli_colour colour = colour_of(e->name);
    if (colour != CLI_PLAIN) cli_put_colour(colour);
    printf("%-*s", EVENT_WIDTH, e->shown);
    if (colour != CLI_PLAIN) cli_put_colour(CLI_PLAIN);
    if (e->key != NULL) {
        fputs("  ", stdout);
        cli_put_line(stdout, e->key, e->key_bytes);
    }
    if (e->rest_bytes > 0) {
        fputs("  ", stdout);
        cli_put_line(stdout, e->rest, e->rest_bytes);
    }
    putchar('\n');
}

static bool is_number(const char *s, size_t n)
{
    size_t sign = n > 0 && s[0] == '-';
    return n > sign && n < 19 && strspn(s + sign, "0123456789") >= n - sign &&
           (s[sign] != '0' || n - sign == 1);
}

/* Print one word of an event as a member: the first one is the fence (or the term), the others are
 * name=value. */
static void put_member(const struct event *e, const char *word, bool first)
{
    size_t name = strcspn(word, "="), n = strlen(word);
    bool term = strcmp(e->name, KEEPER_CHANGED) == 0;
    if (first && is_number(word, n))
        printf(",\"%s\":%s", term ? "term" : "fence", word);
    if (word[name] == '\0') return;
    char *value = strchr(word, '=') + 1, label[WORD_SIZE];
    snprintf(label, sizeof label, "%.*s", (int)name, word);
    putchar(',');
    cli_json_string(stdout, label);
    putchar(':');
    if (is_number(value, strlen(value))) fputs(value, stdout);
    else cli_json_string(stdout, value);
}

static void put_members(const struct event *e)
{
    const char *p = e->rest, *end = e->rest + e->rest_bytes;
    char word[WORD_SIZE];
    for (bool first = true; p < end; first = false) {
        size_t n = strcspn(p, " ");
        if (n < sizeof word) {
            snprintf(word, sizeof word, "%.*s", (int)n, p);
            put_member(e, word, first);
        }
        p += n;
        p += strspn(p, " ");
        if (n == 0 && p < end && *p == '\0') break; /* No event contains a NUL. */
    }
}

static void print_json(const struct event *e, bool ours)
{
    printf("{\"at_ms\":%" PRId64 ",\"event\":", cli_wall_ms());
    cli_json_string(stdout, e->name);
    if (e->key != NULL) {
        fputs(",\"key\":", stdout);
        cli_json_bytes(stdout, e->key, e->key_bytes);
    }
    if (ours) {
        fputs(",\"reason\":", stdout);
        cli_json_bytes(stdout, e->rest, e->rest_bytes);
    } else put_members(e);
    puts("}");
}

/* Print an event. `ours`: it is about our connection, and `rest` is a text for people. */
static void print_event(const struct watch *w, const struct event *e, bool ours)
{
    if (w->o->json) print_json(e, ours);
    else print_text(e);
    fflush(stdout); /* A process that reads from a pipe needs each event at once. */
}

static void print_ours(const struct watch *w, const char *name, const char *rest)
{
    struct event e = {.rest = rest, .rest_bytes = strlen(rest)};
    snprintf(e.name, sizeof e.name, "%s", name);
    snprintf(e.shown, sizeof e.shown, "%s", name);
    print_event(w, &e, true);
}

/* Take a message of the subscription apart, and print it. Returns false if it is something
 * else. */
static bool print_message(struct watch *w, const struct sluice_reply *r)
{
    const struct sluice_reply *items = r->items;
    size_t at = 0;
    if (r->count == 3 && strcmp(items[0].text, "message") == 0) at = 1;
    if (r->count == 4 && strcmp(items[0].text, "pmessage") == 0) at = 2;
    if (r->type != SLUICE_REPLY_PUSH || at == 0) return false;
    const struct sluice_reply *channel = &items[at], *text = &items[at + 1];
    size_t prefix = strlen(CHANNEL), n = strcspn(text->text, " ");
    struct event e = {.rest = text->text + n};
    if (strncmp(channel->text, CHANNEL, prefix) == 0 && channel->text_bytes > prefix) {
        e.key = channel->text + prefix;
        e.key_bytes = channel->text_bytes - prefix;
    }
    snprintf(e.name, sizeof e.name, "%.*s", (int)n, text->text);
    cli_safe_text(e.name, e.shown, sizeof e.shown);
    e.rest += strspn(e.rest, " ");
    e.rest_bytes = text->text_bytes - (size_t)(e.rest - text->text);
    print_event(w, &e, false);
    w->seen++;
    return true;
}

/* --- The connection ------------------------------------------------------- */

static const char *command_of(const struct watch *w)
{
    return w->is_pattern ? "PSUBSCRIBE" : "SUBSCRIBE";
}

/* Subscribe. Returns 0, or -1 if the connection is lost; or prints a message and returns an exit
 * status. */
static int subscribe(const struct watch *w)
{
    const char *const args[] = {command_of(w), w->channel};
    int status = sluice_wire_send(w->o->wire, args, NULL, 2);
    if (status == SLUICE_ENOMEM) return cli_status_error(args[0], status);
    return status == SLUICE_OK ? 0 : -1;
}

/* Print events until the connection is lost. Returns -1 if it is lost; otherwise an exit status. */
static int listen_to(struct watch *w)
{
    for (;;) {
        struct sluice_reply *r;
        int status = sluice_wire_next(w->o->wire, &r);
        if (status == SLUICE_ENOMEM) return cli_status_error("watch", status);
        if (status != SLUICE_OK) return -1;
        w->pause_ms = PAUSE_MS_MIN; /* The server serves this connection. */
        int failed = 0;
        /* A server that stops says so, and closes the connection. */
        bool stops = cli_list_has("SHUTDOWN CLOSED", r->text, strcspn(r->text, " "));
        if (r->type == SLUICE_REPLY_ERROR && !stops) failed = cli_ops_error(w->o, r);
        else if (r->type == SLUICE_REPLY_ERROR || r->type == SLUICE_REPLY_PUSH)
            print_message(w, r);
        else failed = cli_ops_unexpected(w->o, command_of(w));
        sluice_reply_free(r);
        if (failed != 0) return failed;
        if (w->o->count > 0 && w->seen >= w->o->count) return cli_flush_output(0);
        if (ferror(stdout)) return cli_flush_output(0);
    }
}

/* Connect again, as often as necessary. Returns 0; or prints a message and returns an exit
 * status. */
static int reconnect(struct watch *w)
{
    struct cli_ops *o = w->o;
    char error[CLI_SAFE_SIZE];
    const struct sluice_wire_options options = {.connect_ms = o->timeout_ms};
    print_ours(w, "disconnected", sluice_wire_error(o->wire));
    sluice_wire_close(o->wire);
    o->wire = NULL;
    for (;;) {
        const struct timespec pause = {.tv_sec = (time_t)(w->pause_ms / 1000),
                                       .tv_nsec = (long)(w->pause_ms % 1000) * 1000000};
        w->pause_ms = w->pause_ms * 2 < PAUSE_MS_MAX ? w->pause_ms * 2 : PAUSE_MS_MAX;
        nanosleep(&pause, NULL);
        int status = cli_server_try(&o->server, options, &o->wire, o->address,
                                    sizeof o->address, error, sizeof error);
        if (status == SLUICE_OK) break;
        if (status == SLUICE_EDENIED || status == SLUICE_EINVAL ||
            status == SLUICE_ENOMEM)
            return cli_server_failed(o->address, status, error);
    }
    print_ours(w, "reconnected", "events since the connection was lost are missing");
    return 0;
}

static int watch(struct watch *w)
{
    struct cli_ops *o = w->o;
    const struct sluice_wire_options options = {.connect_ms = o->timeout_ms};
    int status = cli_server_find(&o->server);
    if (status != 0) return status;
    int connected = cli_server_try(&o->server, options, &o->wire, o->address,
                                   sizeof o->address, o->error, sizeof o->error);
    if (connected != SLUICE_OK)
        status = cli_server_failed(o->address, connected, o->error);
    while (status == 0) {
        status = subscribe(w);
        if (status == 0) status = listen_to(w);
        if (status != -1) break;
        status = reconnect(w);
    }
    sluice_wire_close(o->wire);
    return status;
}

/* --- The command ---------------------------------------------------------- */

int cli_watch(const struct cli_command *command, int argc, char **argv)
{
    struct cli_ops o;
    int rest;
    int status = cli_ops_parse(command, argc, argv, 0, 1, &o, &rest);
    if (status >= 0) return status;
    const char *pattern = rest < argc ? argv[rest] : NULL;
    if (o.local) return cli_canal_watch(o.segment, pattern, o.json, o.count);
    const char *keys = pattern != NULL ? pattern : "*";
    struct watch w = {.o = &o,
                      .pause_ms = PAUSE_MS_MIN,
                      .is_pattern = strpbrk(keys, "*?[\\") != NULL};
    if (asprintf(&w.channel, CHANNEL "%s", keys) < 0)
        return cli_status_error("watch", SLUICE_ENOMEM);
    status = watch(&w);
    free(w.channel);
    return status;
}
