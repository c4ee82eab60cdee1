/* do.c - `sluice do`: one command to a server, and what it replies.
 *
 * The words are the server's, and it judges them. No signal is caught: Ctrl-C ends this
 * process and with it the connection, and so what it waits for, listens to, or holds
 * without a lease. */
#include "cli/do.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/exits.h"
#include "cli/parse.h"
#include "cli/reply.h"
#include "cli/say.h"
#include "sluice.h"

#define WHY_SIZE 512
#define PASSWORD_SIZE 4096

struct wish {
    const char *server;
    const char *password_file;
    bool json, quiet, resp2;
    char **words;
    size_t count;
};

/* --- What is asked for ---------------------------------------------------- */

static int take(void *into, int id, const char *value)
{
    struct wish *w = into;
    switch (id) {
        case OPT_SERVER: w->server = value; return 0;
        case OPT_PASSWORD_FILE: w->password_file = value; return 0;
        case OPT_JSON: w->json = true; return 0;
        case 'q': w->quiet = true; return 0;
        case '2': w->resp2 = true; return 0;
        default: return cli_usage("that is not an option here");
    }
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The first line of the file that is named, or what the environment says. 0, or an exit
 * status. */
static int find_password(const struct wish *w, char line[PASSWORD_SIZE],
                         const char **out)
{
    char shown[CLI_SHOWN_SIZE];
    *out = variable("SLUICE_PASSWORD");
    if (w->password_file == NULL) return 0;
    FILE *file = fopen(w->password_file, "re");
    bool found = file != NULL && fgets(line, PASSWORD_SIZE, file) != NULL;
    int error = errno;
    bool failed = file == NULL || ferror(file);
    if (file != NULL) fclose(file);
    cli_shown(w->password_file, shown, sizeof shown);
    if (failed) {
        cli_say("%s: %s", shown, strerror(error));
        return error == EACCES ? EXIT_NO_PERMISSION : EXIT_NO_INPUT;
    }
    if (found) line[strcspn(line, "\r\n")] = '\0';
    if (!found || line[0] == '\0') {
        cli_say("%s: its first line should be a password", shown);
        return EXIT_NO_INPUT;
    }
    *out = line;
    return 0;
}

/* Is the command one of these? */
static bool is_one_of(const struct wish *w, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcasecmp(w->words[0], *names) == 0) return true;
    return false;
}

static bool is(const struct wish *w, size_t nth, const char *word)
{
    return nth < w->count && strcasecmp(w->words[nth], word) == 0;
}

/* Its reply is a text of several lines. */
static bool has_lines(const struct wish *w)
{
    return is(w, 0, "INFO") ||
           (is(w, 0, "CLIENT") && (is(w, 1, "LIST") || is(w, 1, "INFO")));
}

/* --- What comes ----------------------------------------------------------- */

static void print(FILE *out, const struct wish *w, const struct sluice_reply *r)
{
    if (w->json) cli_reply_json(out, r);
    else if (w->quiet) cli_reply_values(out, r, has_lines(w));
    else cli_reply_text(out, r, has_lines(w));
    fflush(out);
}

/* The exit status for an error of the server, by its word. */
static int exit_of_error(const char *text)
{
    static const struct {
        const char *word;
        int status;
    } words[] = {
        {"LOST", EXIT_LOST},
        {"ASKED", EXIT_TAKEN},
        {"NOAUTH", EXIT_NO_PERMISSION},
        {"WRONGPASS", EXIT_NO_PERMISSION},
        {"NOPERM", EXIT_NO_PERMISSION},
        {"DRAINED", EXIT_UNAVAILABLE},
        {"RECOVERING", EXIT_UNAVAILABLE},
        {"NOFENCES", EXIT_UNAVAILABLE},
        {"NOQUORUM", EXIT_UNAVAILABLE},
        {"IO", EXIT_UNAVAILABLE},
        {"SHUTDOWN", EXIT_UNAVAILABLE},
        {"LIMIT", EXIT_UNAVAILABLE},
        {"NOKEYS", EXIT_UNAVAILABLE},
        {"WAITERS", EXIT_UNAVAILABLE},
        {"NOMEM", EXIT_UNAVAILABLE},
    };
    size_t n = strcspn(text, " ");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == n && strncmp(text, words[i].word, n) == 0)
            return words[i].status;
    return EXIT_USAGE;
}

static int tell_error(const struct wish *w, const struct sluice_reply *r)
{
    char shown[CLI_SHOWN_SIZE];
    if (w->json) print(stdout, w, r);
    else cli_say("%s", cli_shown(r->text, shown, sizeof shown));
    return exit_of_error(r->text);
}

/* What surprises everybody once. */
static void warn_of_end(const struct wish *w, const struct sluice_reply *r)
{
    if (w->json || w->quiet || !is(w, 0, "ACQUIRE")) return;
    if (r->type != SLUICE_REPLY_LIST || r->count < 3 || r->items[2].number != -1)
        return;
    cli_say("it is given back now: without LEASE a grant ends with its connection");
}

static int tell_reply(const struct wish *w, const struct sluice_reply *r)
{
    if (r->type == SLUICE_REPLY_ERROR) return tell_error(w, r);
    print(stdout, w, r);
    warn_of_end(w, r);
    return r->type == SLUICE_REPLY_NIL ? EXIT_TAKEN : 0;
}

/* How many messages are the reply: (size_t)-1 for those without an end, 0 for a command
 * that has one reply. */
static size_t messages_of(const struct wish *w)
{
    static const char *const listen[] = {"SUBSCRIBE", "PSUBSCRIBE", NULL};
    static const char *const leave[] = {"UNSUBSCRIBE", "PUNSUBSCRIBE", NULL};
    if (is_one_of(w, listen)) return (size_t)-1;
    if (!is_one_of(w, leave)) return 0;
    return w->count > 1 ? w->count - 1 : 1;
}

/* A message on a line of its own: channel and text. What else comes is an answer to the
 * command, and is not said to who wants values alone. */
static void tell_message(const struct wish *w, const struct sluice_reply *r)
{
    const struct sluice_reply *items = r->items;
    char shown[CLI_SHOWN_SIZE];
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
        cli_say("%s %s", strstr(items[0].text, "uns") ? "left" : "listening to",
                cli_shown(items[1].text, shown, sizeof shown));
    fflush(stdout); /* Others may read it while we wait for more. */
}

/* News that come before the reply of another command are said beside it. */
static int listen_to(struct sluice_wire *wire, const struct wish *w)
{
    size_t messages = messages_of(w), seen = 0;
    for (;;) {
        struct sluice_reply *r;
        int status = sluice_wire_next(wire, &r);
        if (status == SLUICE_ECLOSED && is(w, 0, "SHUTDOWN")) return 0;
        if (status != SLUICE_OK) {
            char shown[CLI_SHOWN_SIZE];
            cli_say("the connection is lost: %s",
                    cli_shown(sluice_wire_error(wire), shown, sizeof shown));
            return EXIT_UNAVAILABLE;
        }
        bool is_reply = messages > 0 ? r->type == SLUICE_REPLY_ERROR
                                     : r->type != SLUICE_REPLY_PUSH;
        int told = 0;
        if (is_reply) told = tell_reply(w, r);
        else if (messages > 0) tell_message(w, r);
        else print(stderr, w, r);
        sluice_reply_free(r);
        if (is_reply || ++seen == messages) return told;
        if (ferror(stdout)) return 0; /* cli_finish() says it. */
    }
}

/* --- One command ---------------------------------------------------------- */

static int fail_to_connect(const char *address, int status, const char *why)
{
    char shown[CLI_SHOWN_SIZE], reason[WHY_SIZE];
    cli_shown(address, shown, sizeof shown);
    cli_shown(why, reason, sizeof reason);
    switch (status) {
        case SLUICE_EINVAL:
            return cli_usage("\"%s\" is no address: host, host:port, [::1]:port or "
                             "unix:/path",
                             shown);
        case SLUICE_ENOMEM: return cli_fail(address, status);
        case SLUICE_EDENIED:
            cli_say("%s: %s (SLUICE_PASSWORD or --password-file says the password)",
                    shown, reason);
            return EXIT_NO_PERMISSION;
        default:
            cli_say("cannot reach the server at %s: %s", shown, reason);
            return EXIT_UNAVAILABLE;
    }
}

static int talk(const struct wish *w, const char *password)
{
    char why[WHY_SIZE];
    struct sluice_wire *wire;
    struct sluice_wire_options options = {.password = password,
                                          .resp = w->resp2 ? 2 : 3,
                                          .error = why,
                                          .error_size = sizeof why};
    int status = sluice_wire_open(w->server, &options, &wire);
    if (status != SLUICE_OK) return fail_to_connect(w->server, status, why);
    status = sluice_wire_send(wire, (const char *const *)w->words, NULL, w->count);
    int told = status == SLUICE_ENOMEM ? cli_fail("the command", status)
                                       : listen_to(wire, w);
    sluice_wire_close(wire);
    return cli_finish(told);
}

int cli_do(const struct cli_command *command, int argc, char **argv)
{
    struct wish w = {0};
    char line[PASSWORD_SIZE];
    const char *password;
    int rest;
    int status = cli_parse(command, argc, argv, true, take, &w, &rest);
    if (status >= 0) return status;
    if (rest == argc) return cli_usage("which command? PING, for instance");
    if (w.json && w.quiet) return cli_usage("--json and -q: one of them, please");
    setvbuf(stderr, NULL, _IOFBF, BUFSIZ); /* print() flushes: news in one piece. */
    w.words = argv + rest;
    w.count = (size_t)(argc - rest);
    if (w.server == NULL) w.server = variable("SLUICE_SERVER");
    if (w.server == NULL) w.server = SLUICE_SERVER_DEFAULT;
    status = find_password(&w, line, &password);
    return status != 0 ? status : talk(&w, password);
}
