/* serve.c - `sluice serve`: executes sluice-server. The server is a separate program,
 * so that `sluice run` starts fast and does not need the server's libraries. The server
 * validates the arguments. This file handles only --help, from the table. */
#include "cli/serve.h"

#include <stdbool.h>
#include <string.h>

#include "cli/help.h"
#include "cli/message.h"
#include "cli/program.h"

/* Return whether the next argument is the value of this option. This is so for
 * "--port", but not for "--port=1". */
static bool takes_next(const struct cli_command *c, const char *word)
{
    if (strncmp(word, "--", 2) != 0) return false;
    for (const struct cli_option *o = c->options; o->id != 0; o++)
        if (o->arg != NULL && strcmp(o->names, word + 2) == 0) return true;
    return false;
}

static bool asks_for_help(const struct cli_command *c, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
        if (takes_next(c, argv[i])) i++;
    }
    return false;
}

int cli_serve(const struct cli_command *command, int argc, char **argv)
{
    if (asks_for_help(command, argc, argv)) {
        cli_help(command);
        return cli_flush_output(0);
    }
    return cli_exec_program("sluice-server", "server", argv);
}
