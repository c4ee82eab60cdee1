/* serve.c - `sluice serve`: executes sluice-server, a program of its own, so that
 * `sluice run` starts fast and needs none of the server's libraries. The server
 * validates the arguments. Only --help is answered here, from the table. */
#include "cli/serve.h"

#include <stdbool.h>
#include <string.h>

#include "cli/help.h"
#include "cli/message.h"
#include "cli/program.h"

/* Whether the next argument is the value of this one: that of "--port", but not of
 * "--port=1". */
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
