/* do.c - `sluice do`: sends one command to a server and prints the reply.
 *
 * The server validates the command. This program catches no signals. Ctrl-C ends the
 * process and closes its connection. The server then ends the connection's waits and
 * subscriptions, and releases its grants without a lease. */
#include "cli/do.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/exits.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/reply.h"
#include "cli/server.h"
#include "cli/text.h"
#include "sluice.h"

struct do_command {
    struct cli_server server;
    bool json, quiet, resp2, session_lock;
    char **args;
    size_t count;
};

/* --- Options -------------------------------------------------------------- */

static int take(void *into, int id, const char *value)
{
    struct do_command *w = into;
    switch (id) {
        case CLI_OPT_SESSION_LOCK: w->session_lock = true; return 0;
        case CLI_OPT_JSON: w->json = true; return 0;
        case 'q': w->quiet = true; return 0;
        case '2': w->resp2 = true; return 0;
        default: cli_server_option(&w->server, id, value); return 0;
    }
}

/* Return whether the command is one of these. */
static bool is_one_of(const struct do_command *w, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcasecmp(w->args[0], *names) == 0) return true;
    return false;
}

static bool is(const struct do_command *w, size_t nth, const char *word)
{
    return nth < w->count && strcasecmp(w->args[nth], word) == 0;
}

/* Return whether the reply is a text of several lines. */
static bool has_lines(const struct do_command *w)
{
    return is(w, 0, "INFO") ||
           (is(w, 0, "CLIENT") && (is(w, 1, "LIST") || is(w, 1, "INFO")));
}

/* Return whether an option of ACQUIRE has a value. If so, a lower-case word follows the
 * option in the syntax. */
static bool has_value(const char *option)
{
    const struct cli_server_command *c = cli_server_commands;
    size_t n = strlen(option);
    while (c->name != NULL && strcmp(c->name, "ACQUIRE") != 0) c++;
    for (const char *p = c->syntax; p != NULL && *p != '\0'; p += strcspn(p, " [")) {
        p += strspn(p, " [");
        if (strncasecmp(p, option, n) == 0 && p[n] == ' ')
            return islower((unsigned char)p[n + 1]);
    }
    return false;
}

/* Return whether the command is an ACQUIRE without LEASE. */
static bool acquires_without_lease(const struct do_command *w)
{
    if (!is(w, 0, "ACQUIRE") || w->count < 2) return false;
    for (size_t i = 2; i < w->count; i++) {
        if (is(w, i, "LEASE")) return false;
        if (has_value(w->args[i])) i++; /* In "VALUE LEASE", LEASE is a value. */
    }
    return true;
}

/* --- Replies -------------------------------------------------------------- */

static void print(FILE *out, const struct do_command *w, const struct sluice_reply *r)
{
    if (w->json) cli_reply_json(out, r);
    else if (w->quiet) cli_reply_values(out, r, has_lines(w));
    else cli_reply_text(out, r, has_lines(w));
    fflush(out);
}

static int tell_error(const struct do_command *w, const struct sluice_reply *r)
{
    char shown[CLI_SAFE_SIZE];
    if (w->json) print(stdout, w, r);
    else cli_message("%s", cli_safe_text(r->text, shown, sizeof shown));
    return cli_server_exit_of(r->text);
}

static int print_reply(const struct do_command *w, const struct sluice_reply *r)
{
    if (r->type == SLUICE_REPLY_ERROR) return tell_error(w, r);
    print(stdout, w, r);
    if (r->type == SLUICE_REPLY_NIL) return CLI_EXIT_TAKEN;
    /* A script that runs "sluice do AWAIT key FREE 10s && job" expects a free lock. */
    static const char *const questions[] = {"AWAIT", "CHECK", NULL};
    bool no = r->type == SLUICE_REPLY_NUMBER && r->number == 0;
    return no && is_one_of(w, questions) ? CLI_EXIT_TAKEN : 0;
}

/* Return the number of push messages that answer the command: (size_t)-1 if they do not
 * end, or 0 if the command has one ordinary reply. */
static size_t messages_of(const struct do_command *w)
{
    static const char *const listen[] = {"SUBSCRIBE", "PSUBSCRIBE", NULL};
    static const char *const leave[] = {"UNSUBSCRIBE", "PUNSUBSCRIBE", NULL};
    if (is_one_of(w, listen)) return (size_t)-1;
    if (!is_one_of(w, leave)) return 0;
    return w->count > 1 ? w->count - 1 : 1;
}

/* Print a published message on one line, as channel and text. With -q, do not print
 * confirmations of (UN)SUBSCRIBE. */
static void print_push(const struct do_command *w, const struct sluice_reply *r)
{
    const struct sluice_reply *items = r->items;
    char shown[CLI_SAFE_SIZE];
    size_t text = 0;
    if (r->count == 3 && strcmp(items[0].text, "message") == 0) text = 2;
    if (r->count == 4 && strcmp(items[0].text, "pmessage") == 0) text = 3;
    if (w->json) cli_reply_json(stdout, r);
    else if (text > 0) {
        cli_put_line(stdout, items[text - 1].text, items[text - 1].text_bytes);
        fputc(' ', stdout);
        cli_put_line(stdout, items[text].text, items[text].text_bytes);
        fputc('\n', stdout);
    } else if (!w->quiet && r->count == 3)
        cli_message("%s %s",
                    strstr(items[0].text, "uns") ? "unsubscribed from"
                                                 : "subscribed to",
                    cli_safe_text(items[1].text, shown, sizeof shown));
    fflush(stdout); /* A process that reads from a pipe needs each message at once. */
}

/* Print the reply. Push messages that arrive before it go to standard error. */
static int listen_to(struct sluice_wire *wire, const struct do_command *w)
{
    size_t messages = messages_of(w), seen = 0;
    for (;;) {
        struct sluice_reply *r;
        int status = sluice_wire_next(wire, &r);
        if (status == SLUICE_ECLOSED && is(w, 0, "SHUTDOWN")) return 0;
        if (status != SLUICE_OK) {
            char shown[CLI_SAFE_SIZE];
            cli_message("connection lost: %s",
                        cli_safe_text(sluice_wire_error(wire), shown, sizeof shown));
            return CLI_EXIT_UNAVAILABLE;
        }
        bool is_reply = messages > 0 ? r->type == SLUICE_REPLY_ERROR
                                     : r->type != SLUICE_REPLY_PUSH;
        int status_of_reply = 0;
        if (is_reply) status_of_reply = print_reply(w, r);
        else if (messages > 0) print_push(w, r);
        else print(stderr, w, r);
        sluice_reply_free(r);
        if (is_reply || ++seen == messages) return status_of_reply;
        if (ferror(stdout)) return 0; /* cli_flush_output() reports the error. */
    }
}

/* --- The command ---------------------------------------------------------- */

static int talk(const struct do_command *w)
{
    struct sluice_wire *wire;
    const struct sluice_wire_options options = {.resp = w->resp2 ? 2 : 3};
    int failed = cli_server_connect(&w->server, options, &wire);
    if (failed != 0) return failed;
    int status = sluice_wire_send(wire, (const char *const *)w->args, NULL, w->count);
    int status_of_reply = status == SLUICE_ENOMEM
                              ? cli_status_error("the command", status)
                              : listen_to(wire, w);
    sluice_wire_close(wire);
    return cli_flush_output(status_of_reply);
}

int cli_do(const struct cli_command *command, int argc, char **argv)
{
    struct do_command w = {0};
    int rest;
    int status = cli_parse(command, argc, argv, true, take, &w, &rest);
    if (status >= 0) return status;
    if (rest == argc)
        return cli_usage_error("a command of the server is missing, such as PING");
    if (w.json && w.quiet)
        return cli_usage_error("--json excludes -q; use one or the other");
    w.args = argv + rest;
    w.count = (size_t)(argc - rest);
    if (!w.session_lock && acquires_without_lease(&w))
        return cli_usage_error(
            "ACQUIRE needs LEASE here: without it, the server releases the lock when "
            "sluice do exits; add LEASE and a time, such as LEASE 30s, or use "
            "--session-lock");
    setvbuf(stderr, NULL, _IOFBF,
            /* Buffer fully, and flush after each message, so that each message is
             * written in one piece. */
            BUFSIZ);
    status = cli_server_find(&w.server);
    return status != 0 ? status : talk(&w);
}
