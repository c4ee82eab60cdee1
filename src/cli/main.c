/* main.c - finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/bench.h"
#include "cli/canal.h"
#include "cli/do.h"
#include "cli/exits.h"
#include "cli/explain.h"
#include "cli/find.h"
#include "cli/help.h"
#include "cli/ls.h"
#include "cli/message.h"
#include "cli/nodes.h"
#include "cli/offline.h"
#include "cli/parse.h"
#include "cli/revoke.h"
#include "cli/run.h"
#include "cli/script.h"
#include "cli/serve.h"
#include "cli/streams.h"
#include "cli/text.h"
#include "cli/top.h"
#include "cli/watch.h"
#include "sluice.h"

static int print_version(void)
{
    printf("sluice %s\n", SLUICE_VERSION);
    return cli_flush_output(0);
}

static int no_option(void *into, int id, const char *value)
{
    (void)into, (void)id, (void)value;
    return cli_usage_error("unknown option");
}

/* Run `help` or `version`, which have no options. */
static int plain_command(const struct cli_command *c, int argc, char **argv)
{
    int rest;
    int status = cli_parse(c, argc, argv, true, no_option, NULL, &rest);
    if (status >= 0) return status;
    if (c->id == CLI_HELP) return cli_help_on(argc - rest, argv + rest);
    return print_version();
}

static int dispatch(const struct cli_command *c, int argc, char **argv)
{
    switch (c->id) {
        case CLI_RUN: return cli_run(c, argc, argv);
        case CLI_CANAL_LS:
        case CLI_CANAL_SHOW:
        case CLI_CANAL_WATCH:
        case CLI_CANAL_REAP:
        case CLI_CANAL_MAKE:
        case CLI_CANAL_RM: return cli_canal(c, argc, argv);
        case CLI_SERVE: return cli_serve(c, argc, argv);
        case CLI_LS: return cli_ls(c, argc, argv);
        case CLI_EXPLAIN: return cli_explain(c, argc, argv);
        case CLI_WATCH: return cli_watch(c, argc, argv);
        case CLI_BREAK: return cli_break(c, argc, argv);
        case CLI_DRAIN: return cli_drain(c, argc, argv);
        case CLI_NODES: return cli_nodes(c, argc, argv);
        case CLI_READY: return cli_ready(c, argc, argv);
        case CLI_STORE_CHECK:
        case CLI_STORE_DUMP:
        case CLI_STORE_LOAD:
        case CLI_JOURNAL_SHOW:
        case CLI_JOURNAL_CHECK:
        case CLI_JOURNAL_FORGET: return cli_offline(c, argc, argv);
        case CLI_DO: return cli_do(c, argc, argv);
        case CLI_ACQUIRE:
        case CLI_EXTEND:
        case CLI_RELEASE:
        case CLI_HOLD: return cli_script(c, argc, argv);
        case CLI_TOP: return cli_top(c, argc, argv);
        case CLI_BENCH: return cli_bench(c, argc, argv);
        case CLI_HELP:
        case CLI_VERSION: return plain_command(c, argc, argv);
        case CLI_COMMANDS: break;
    }
    return CLI_EXIT_USAGE;
}

static int unknown_option(const char *argument)
{
    static const char *const names[] = {"--help", "--version"};
    char shown[CLI_SAFE_SIZE];
    const char *best = sl_suggest((struct sl_bytes){argument, strlen(argument)}, names,
                                  sizeof names / sizeof *names);
    cli_safe_text(argument, shown, sizeof shown);
    if (best == NULL) return cli_usage_error("unknown option \"%s\"", shown);
    return cli_usage_error("unknown option \"%s\"; did you mean \"%s\"?", shown, best);
}

int main(int argc, char **argv)
{
    char prefix[64];
    int words;
    if (!cli_streams_open()) return CLI_EXIT_SYSTEM;
    if (argc < 2) {
        cli_help_all();
        return cli_flush_output(CLI_EXIT_USAGE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cli_help_on(0, NULL);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return print_version();
    if (argv[1][0] == '-') return unknown_option(argv[1]);
    const struct cli_command *c = cli_find_command(argc - 1, argv + 1, &words);
    if (c == NULL && cli_is_group(argv[1]) && argc == 3 &&
        (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))
        return cli_help_on(1, argv + 1);
    if (c == NULL) return cli_unknown_command(argc - 1, argv + 1);
    snprintf(prefix, sizeof prefix, "sluice %s", c->name);
    cli_message_prefix(prefix);
    return dispatch(c, argc - words, argv + words);
}
