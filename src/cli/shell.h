/* shell.h - text that a POSIX shell evaluates: eval "$(sluice acquire --shell KEY)".
 *
 * Each text is one group, `{ ...; }`. A shell parses the whole group before it executes any part of
 * it, so a text that was cut off fails, and sets nothing. */
#ifndef SL_CLI_SHELL_H
#define SL_CLI_SHELL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A grant, as the variables of a script describe it. */
struct cli_shell_lock {
    const char *key;
    uint64_t fence;
    const char *servers;
    int64_t lease_ms;
    int64_t until_ms; /* When the lease expires, by cli_boot_ms(); 0: it is extended. */
    pid_t holder;     /* The process that extends the lease; 0: none. */
};

/* Return a text that sets and exports the variables; the caller frees it. Returns NULL if out of
 * memory. */
char *cli_shell_set(const struct cli_shell_lock *lock);

/* Return a text that sets $? to this status. With `forget` it also unsets the variables. The caller
 * frees it; NULL: out of memory. */
char *cli_shell_end(int status, bool forget);

/* Remove all variables of a lock from the environment of this process: those of sluice run as well. */
void cli_shell_forget(void);

#endif /* SL_CLI_SHELL_H */
