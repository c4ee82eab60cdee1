/* offline.c - `sluice store` and `sluice journal`: execute sluice-offline, which has the
 * required libraries. */
#include "cli/offline.h"

#include <string.h>

#include "cli/message.h"
#include "cli/parse.h"
#include "cli/program.h"

struct offline_options {
    bool json, yes;
};

static int take_option(void *into, int id, const char *value)
{
    struct offline_options *o = into;
    (void)value;
    if (id == CLI_OPT_JSON) o->json = true;
    else if (id == CLI_OPT_YES) o->yes = true;
    else return cli_usage_error("unknown option");
    return 0;
}

int cli_offline(const struct cli_command *command, int argc, char **argv)
{
    int rest, most = command->args[1] != CLI_ARG_NONE ? 2 : 1;
    struct offline_options o = {0};
    int status = cli_parse(command, argc, argv, false, take_option, &o, &rest);
    if (status >= 0) return status;
    if (argc - rest < 1 || argc - rest > most || argv[rest][0] == '\0')
        return cli_usage_error(
            "usage: sluice %s %s; DIRECTORY is the data directory of a server",
            command->name, command->synopsis);
    /* "journal" and "show" from "journal show". */
    char noun[16], *words[9] = {NULL, noun};
    size_t n = strcspn(command->name, " ");
    memcpy(noun, command->name, n);
    noun[n] = '\0';
    int count = 2;
    words[count++] = (char *)command->name + n + 1;
    if (o.json) words[count++] = "--json";
    if (o.yes) words[count++] = "--yes";
    words[count++] = "--";
    while (rest < argc) words[count++] = argv[rest++];
    return cli_exec_program("sluice-offline", "offline", words);
}
