/* do.c - `sluice do`: sends one command to a server and prints the reply.
 *
 * The server validates the command. This program catches no signals. Ctrl-C ends the
 * process and closes its connection. The server then ends the connection's waits and
 * subscriptions, and releases its grants without a lease. */
#include "cli/do.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/address.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/parse.h"
#include "cli/reply.h"
#include "cli/text.h"
#include "sluice.h"

#define ERROR_SIZE 512

struct do_command {
    const char *server, *host, *port;
    const char *password_file;
    bool json, quiet, resp2, session_lock;
    char **args;
    size_t count;
};

/* --- Options -------------------------------------------------------------- */

static int take(void *into, int id, const char *value)
{
    struct do_command *w = into;
    switch (id) {
        case CLI_OPT_SERVER: w->server = value; return 0;
        case CLI_OPT_HOST: w->host = value; return 0;
        case CLI_OPT_PORT: w->port = value; return 0;
        case CLI_OPT_SESSION_LOCK: w->session_lock = true; return 0;
        case CLI_OPT_PASSWORD_FILE: w->password_file = value; return 0;
        case CLI_OPT_JSON: w->json = true; return 0;
        case 'q': w->quiet = true; return 0;
        case '2': w->resp2 = true; return 0;
        default: return cli_usage_error("unknown option");
    }
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Find the address of the server: from --server, or -h and -p, or the environment, or
 * else the default. */
static int find_server(const struct do_command *w, struct cli_address *out)
{
    if (w->host != NULL || w->port != NULL) {
        if (w->server != NULL)
            return cli_usage_error("--server excludes -h and -p; use one or the other");
        return cli_address_of_host(w->host, w->port, out);
    }
    const char *text = w->server != NULL ? w->server : variable("SLUICE_SERVER");
    return cli_address_of_text(text != NULL ? text : SLUICE_SERVER_DEFAULT, out);
}

/* Find the password: the first line of the password file; or else the password in the
 * address; or else SLUICE_PASSWORD. Returns 0 or an exit status. */
static int find_password(const struct do_command *w, struct cli_address *out,
                         const char **password)
{
    char shown[CLI_SAFE_SIZE];
    *password = out->has_password ? out->password : variable("SLUICE_PASSWORD");
    if (w->password_file == NULL) return 0;
    FILE *file = fopen(w->password_file, "re");
    bool found = file != NULL &&
                 fgets(out->password, sizeof out->password, file) != NULL;
    int error = errno;
    bool failed = file == NULL || ferror(file);
    if (file != NULL) fclose(file);
    cli_safe_text(w->password_file, shown, sizeof shown);
    if (failed) {
        cli_message("cannot read the password file %s: %s", shown, strerror(error));
        return error == EACCES ? CLI_EXIT_NO_PERMISSION : CLI_EXIT_NO_INPUT;
    }
    if (found) out->password[strcspn(out->password, "\r\n")] = '\0';
    if (!found || out->password[0] == '\0') {
        cli_message("the first line of the password file %s is empty", shown);
        return CLI_EXIT_NO_INPUT;
    }
    *password = out->password;
    return 0;
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

/* Return the exit status for an error reply. The first word of the reply is the error
 * code. */
static int exit_of_error(const char *text)
{
    size_t n = strcspn(text, " ");
    for (const struct cli_exit *e = cli_exits; e->when != NULL; e++)
        if (cli_list_has(e->errors, text, n)) return e->status;
    return CLI_EXIT_USAGE;
}

static int tell_error(const struct do_command *w, const struct sluice_reply *r)
{
    char shown[CLI_SAFE_SIZE];
    if (w->json) print(stdout, w, r);
    else cli_message("%s", cli_safe_text(r->text, shown, sizeof shown));
    return exit_of_error(r->text);
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

/* Return whether the error means that no server runs at the address. */
static bool is_absent(const char *error)
{
    return strcmp(error, strerror(ECONNREFUSED)) == 0 ||
           strcmp(error, strerror(ENOENT)) == 0;
}

static int fail_to_connect(const char *address, int status, const char *error)
{
    char shown[CLI_SAFE_SIZE], reason[ERROR_SIZE];
    cli_safe_text(address, shown, sizeof shown);
    cli_safe_text(error, reason, sizeof reason);
    switch (status) {
        case SLUICE_EINVAL: return cli_address_invalid(address);
        case SLUICE_ENOMEM: return cli_status_error(address, status);
        case SLUICE_EDENIED:
            cli_message("%s: %s; set the password with SLUICE_PASSWORD or "
                        "--password-file",
                        shown, reason);
            return CLI_EXIT_NO_PERMISSION;
        default:
            cli_message("cannot connect to %s: %s%s", shown, reason,
                        is_absent(error) ? "; start a server with \"sluice serve\", or "
                                           "set SLUICE_SERVER to the address of one"
                                         : "");
            return CLI_EXIT_UNAVAILABLE;
    }
}

static int talk(const struct do_command *w, const char *address, const char *password)
{
    char error[ERROR_SIZE];
    struct sluice_wire *wire;
    struct sluice_wire_options options = {.password = password,
                                          .resp = w->resp2 ? 2 : 3,
                                          .error = error,
                                          .error_size = sizeof error};
    int status = sluice_wire_open(address, &options, &wire);
    if (status != SLUICE_OK) return fail_to_connect(address, status, error);
    status = sluice_wire_send(wire, (const char *const *)w->args, NULL, w->count);
    int status_of_reply = status == SLUICE_ENOMEM
                              ? cli_status_error("the command", status)
                              : listen_to(wire, w);
    sluice_wire_close(wire);
    return cli_flush_output(status_of_reply);
}

int cli_do(const struct cli_command *command, int argc, char **argv)
{
    struct do_command w = {0};
    struct cli_address server;
    const char *password;
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
    status = find_server(&w, &server);
    if (status == 0) status = find_password(&w, &server, &password);
    return status != 0 ? status : talk(&w, server.text, password);
}
