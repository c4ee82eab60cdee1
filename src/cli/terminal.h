/* terminal.h - passes the terminal between our process group and the command's.
 *
 * The command runs in its own process group, so that we can signal all its processes
 * and no others. Only the terminal's foreground group can read from the terminal. If
 * the user has typed our command at a shell prompt, we make the command's group the
 * foreground group at once. We recognize this case because we lead the foreground
 * group, and standard input and output are the terminal. In a script, in a pipeline or
 * with a redirection, other processes of our group may want to read or to receive
 * Ctrl-C (`sluice run ... | less`, `make -j2`). In these cases we give the terminal to
 * the command's group only when the kernel stops the command because it tries to
 * read. */
#ifndef SL_CLI_TERMINAL_H
#define SL_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct cli_terminal {
    int fd;      /* -1: no terminal. */
    pid_t own;   /* Our process group. */
    bool wanted; /* The command gets the terminal whenever we have it. */
};

struct cli_terminal cli_terminal_open(void);

/* Return whether our group has the terminal now. */
bool cli_terminal_ours(const struct cli_terminal *t);

/* Give the terminal to the command's group, if our group has it. Returns whether our
 * group had it. SIGTTOU must be blocked for this function and the next one. */
bool cli_terminal_give(const struct cli_terminal *t, pid_t group);

/* Take the terminal back from the command's group. Returns whether that group had
 * it. */
bool cli_terminal_take(const struct cli_terminal *t, pid_t group);

#endif /* SL_CLI_TERMINAL_H */
