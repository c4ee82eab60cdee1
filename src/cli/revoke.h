/* revoke.h - `sluice break` and `sluice drain`: revoke a grant; stop granting locks. */
#ifndef SL_CLI_REVOKE_H
#define SL_CLI_REVOKE_H

#include "cli/table.h"

/* Run the command. Returns an exit status. */
int cli_break(const struct cli_command *command, int argc, char **argv);
int cli_drain(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_REVOKE_H */
