/* script.h - `sluice acquire`, `extend`, `release` and `hold`: locks on a server for scripts that
 * cannot wrap a command in `sluice run`. */
#ifndef SL_CLI_SCRIPT_H
#define SL_CLI_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/server.h"
#include "cli/table.h"

struct cli_script {
    enum cli_id id;
    struct cli_server server;
    struct sluice_request want;
    const char *key;
    uint64_t fence;
    uint64_t per; /* 0: not given. */
    bool nonblock, quiet, shell, json;
    bool kill;        /* If the lock is lost, send SIGTERM to the process `pid`. */
    pid_t pid;        /* The process that hold follows; 0: the parent process. */
    int64_t until_ms; /* When the lease expires, as the environment says; 0: unknown. */
    pid_t holder;     /* The process that extends the lease, as the environment says; 0:
                       * unknown. */

    int out;         /* Where the results go. */
    bool printed;    /* The result of a success has been printed. */
    bool unwritable; /* A message has said that the output cannot be written. */
    bool forget;     /* The lock is not held: the script must forget it. */
    int sig;         /* The signal that this process ends with; 0: none. */
};

int cli_script(const struct cli_command *command, int argc, char **argv);

/* Print the result of a success: a line, JSON or assignments. Returns 0; or prints a message and
 * returns an exit status. */
struct cli_shell_lock;
int cli_script_print(struct cli_script *o, const struct cli_shell_lock *lock);

#endif /* SL_CLI_SCRIPT_H */
