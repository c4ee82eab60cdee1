/* store.c - `sluice store`: executes sluice-offline, which has the required
 * libraries. */
#include "cli/store.h"

#include <string.h>

#include "cli/message.h"
#include "cli/parse.h"
#include "cli/program.h"

static int no_option(void *into, int id, const char *value)
{
    (void)into, (void)id, (void)value;
    return cli_usage_error("unknown option");
}

int cli_store(const struct cli_command *command, int argc, char **argv)
{
    int rest;
    int status = cli_parse(command, argc, argv, false, no_option, NULL, &rest);
    if (status >= 0) return status;
    if (argc - rest != 1 || argv[rest][0] == '\0')
        return cli_usage_error(
            "usage: sluice %s DIRECTORY, the data directory of a server",
            command->name);
    char *verb = strrchr(command->name, ' ') + 1; /* "check" from "store check". */
    char *words[] = {NULL, "store", verb, argv[rest], NULL};
    return cli_exec_program("sluice-offline", "offline", words);
}
