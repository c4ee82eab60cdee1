#include "cli/revoke.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/exits.h"
#include "cli/message.h"
#include "cli/ops.h"
#include "cli/parse.h"
#include "cli/reply.h"
#include "cli/text.h"

/* --- break ---------------------------------------------------------------- */

/* Find the holder with a fence; 0: the only holder. Returns NULL if there is none. */
static const struct sluice_reply *find_holder(const struct sluice_reply *lock,
                                              uint64_t fence)
{
    const struct sluice_reply *holders = cli_field_list(lock, "holders");
    if (fence == 0) return holders->count == 1 ? &holders->items[0] : NULL;
    for (size_t i = 0; i < holders->count; i++)
        if ((uint64_t)cli_field_number(&holders->items[i], "fence", 0) == fence)
            return &holders->items[i];
    return NULL;
}

/* Report that several clients hold the lock. Returns CLI_EXIT_USAGE. */
static int which_holder(const char *key, const struct sluice_reply *lock)
{
    const struct sluice_reply *holders = cli_field_list(lock, "holders");
    char shown[CLI_SAFE_SIZE];
    for (size_t i = 0; i < holders->count; i++) {
        fprintf(stderr, "  --fence %" PRId64 "  ",
                cli_field_number(&holders->items[i], "fence", 0));
        cli_put_client(stderr, &holders->items[i]);
        fputc('\n', stderr);
    }
    return cli_usage_error("%" PRId64
                           " clients hold %s; choose one of them with --fence",
                           cli_field_number(lock, "holders_count", 0),
                           cli_safe_text(key, shown, sizeof shown));
}

/* Describe what the command will do. */
static void print_plan(const struct cli_ops *o, const char *key, uint64_t fence,
                       const struct sluice_reply *holder)
{
    int64_t lease_ms = cli_field_number(holder, "lease_ms", -1);
    fputs("This revokes the grant of ", stderr);
    cli_put_line(stderr, key, strlen(key));
    if (holder != NULL) {
        fputs(" that ", stderr);
        cli_put_client(stderr, holder);
        fputs(" has held for ", stderr);
        cli_put_ms(stderr, cli_field_number(holder, "held_ms", 0));
    }
    fprintf(stderr, ", fence %" PRIu64 ".\n", fence);
    if (lease_ms >= 0 && !o->now) {
        fputs("The client keeps the lock until its lease expires in ", stderr);
        cli_put_ms(stderr, lease_ms);
        fputs(", and cannot extend the lease.\n", stderr);
    } else
        fputs(
            "The lock is free at once. If the client is still using the resource, two "
            "clients can use it at the same time.\n",
            stderr);
}

/* Ask for confirmation. Returns 0; or prints a message and returns an exit status. */
static int confirm(const struct cli_ops *o, const char *key, uint64_t fence,
                   const struct sluice_reply *holder)
{
    char answer[16] = "";
    if (o->yes) return 0;
    print_plan(o, key, fence, holder);
    if (!isatty(STDIN_FILENO))
        return cli_usage_error("standard input is not a terminal; use --yes to "
                               "confirm. Nothing was changed");
    fputs("Type yes to continue: ", stderr);
    if (fgets(answer, sizeof answer, stdin) != NULL && strcmp(answer, "yes\n") == 0)
        return 0;
    cli_message("not confirmed; nothing was changed");
    return CLI_EXIT_TAKEN;
}

/* Find out which grant to revoke, and let the user confirm it. Returns 0; or prints a message and
 * returns an exit status. */
static int choose(struct cli_ops *o, const char *key, uint64_t *fence)
{
    const char *const args[] = {"EXPLAIN", key};
    char shown[CLI_SAFE_SIZE];
    struct sluice_reply *lock;
    int status = cli_ops_call(o, args, 2, &lock);
    if (status != 0) return status;
    cli_ops_no_deadline(); /* The user may need some time. */
    const struct sluice_reply *holder = find_holder(lock, o->fence);
    *fence = o->fence > 0 ? o->fence : (uint64_t)cli_field_number(holder, "fence", 0);
    if (cli_field(lock, "holders") == NULL) status = cli_ops_unexpected(o, "EXPLAIN");
    else if (*fence == 0 && cli_field_number(lock, "holders_count", 0) > 1)
        status = which_holder(key, lock);
    else if (*fence == 0) {
        cli_message("no client holds %s", cli_safe_text(key, shown, sizeof shown));
        status = CLI_EXIT_TAKEN;
    } else status = confirm(o, key, *fence, holder);
    sluice_reply_free(lock);
    return status;
}

/* Print the result of BREAK: 2, 1 or 0. Returns the exit status. */
static int print_result(const struct cli_ops *o, const char *key, uint64_t fence,
                        int64_t result)
{
    static const char *const words[] = {"none", "last-lease", "revoked"};
    char shown[CLI_SAFE_SIZE];
    if (result < 0 || result > 2) return cli_ops_unexpected(o, "BREAK");
    cli_safe_text(key, shown, sizeof shown);
    if (o->json) {
        fputs("{\"key\":", stdout);
        cli_json_string(stdout, key);
        printf(",\"fence\":%" PRIu64 ",\"result\":\"%s\"}\n", fence, words[result]);
    } else if (result == 2)
        printf("the grant of %s with fence %" PRIu64 " is revoked\n", shown, fence);
    else if (result == 1)
        printf("the client with fence %" PRIu64
               " keeps %s until its lease expires, and cannot "
               "extend it; --now revokes the grant at once\n",
               fence, shown);
    else cli_message("no client holds %s with fence %" PRIu64, shown, fence);
    return cli_flush_output(result == 0 ? CLI_EXIT_TAKEN : 0);
}

static int break_grant(struct cli_ops *o, const char *key)
{
    uint64_t fence;
    char number[24];
    struct sluice_reply *r;
    int status = choose(o, key, &fence);
    if (status != 0) return status;
    snprintf(number, sizeof number, "%" PRIu64, fence);
    const char *const args[] = {"BREAK", key, number, "NOW"};
    cli_ops_extend(o);
    status = cli_ops_call(o, args, o->now ? 4 : 3, &r);
    if (status != 0) return status;
    status = print_result(o, key, fence,
                          r->type == SLUICE_REPLY_NUMBER ? r->number : -1);
    sluice_reply_free(r);
    return status;
}

int cli_break(const struct cli_command *command, int argc, char **argv)
{
    struct cli_ops o;
    int rest;
    int status = cli_ops_parse(command, argc, argv, 1, 1, &o, &rest);
    if (status >= 0) return status;
    status = cli_ops_connect(&o);
    if (status != 0) return status;
    status = break_grant(&o, argv[rest]);
    sluice_wire_close(o.wire);
    return status;
}

/* --- drain ---------------------------------------------------------------- */

static int list_drains(struct cli_ops *o)
{
    static const char *const args[] = {"DRAIN"};
    struct sluice_reply *r;
    int status = cli_ops_call(o, args, 1, &r);
    if (status != 0) return status;
    if (r->type != SLUICE_REPLY_LIST) status = cli_ops_unexpected(o, "DRAIN");
    else if (o->json) {
        fputs("{\"patterns\":", stdout);
        cli_reply_json_value(stdout, r);
        puts("}");
    } else {
        for (size_t i = 0; i < r->count; i++) {
            cli_put_line(stdout, r->items[i].text, r->items[i].text_bytes);
            putchar('\n');
        }
        if (r->count == 0 && !o->quiet && isatty(STDOUT_FILENO))
            puts("no keys are drained");
    }
    sluice_reply_free(r);
    return cli_flush_output(status);
}

static int set_drain(struct cli_ops *o, const char *pattern, bool on)
{
    static const char *const words[2][2] = {{"was not drained", "is no longer drained"},
                                            {"is already drained", "is now drained"}};
    const char *const args[] = {"DRAIN", pattern, on ? "ON" : "OFF"};
    char shown[CLI_SAFE_SIZE];
    struct sluice_reply *r;
    int status = cli_ops_call(o, args, 3, &r);
    if (status != 0) return status;
    bool changed = r->number == 1;
    if (r->type != SLUICE_REPLY_NUMBER) status = cli_ops_unexpected(o, "DRAIN");
    else if (o->json) {
        fputs("{\"pattern\":", stdout);
        cli_json_string(stdout, pattern);
        printf(",\"on\":%s,\"changed\":%s}\n", on ? "true" : "false",
               changed ? "true" : "false");
    } else if (!o->quiet)
        printf("%s %s\n", cli_safe_text(pattern, shown, sizeof shown),
               words[on][changed]);
    sluice_reply_free(r);
    return cli_flush_output(status);
}

int cli_drain(const struct cli_command *command, int argc, char **argv)
{
    struct cli_ops o;
    int rest;
    int status = cli_ops_parse(command, argc, argv, 0, 2, &o, &rest);
    if (status >= 0) return status;
    if (argc - rest == 1) return cli_usage_error("missing argument: on or off");
    bool on = argc > rest && strcasecmp(argv[rest + 1], "on") == 0;
    if (argc > rest && !on && strcasecmp(argv[rest + 1], "off") != 0)
        return cli_bad_value("the second argument", argv[rest + 1], "on or off");
    status = cli_ops_connect(&o);
    if (status != 0) return status;
    status = argc > rest ? set_drain(&o, argv[rest], on) : list_drains(&o);
    sluice_wire_close(o.wire);
    return status;
}
