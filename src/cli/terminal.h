/* terminal.h - which process group has the terminal: ours or the command's.
 *
 * The command runs in its own process group, so that we can signal all of it and
 * nothing else. Only the terminal's foreground group can read from the terminal. The
 * command's group becomes the foreground group at once if the user has typed our
 * command: we lead the foreground group, and standard input and output are the
 * terminal. In a script, in a pipeline or with a redirection, other processes of our
 * group want to read or to receive Ctrl-C (`sluice run ... | less`, `make -j2`).
 * Then the command's group gets the terminal when it first tries to read and is
 * stopped for it. */
#ifndef SL_CLI_TERMINAL_H
#define SL_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct cli_terminal {
    int fd;      /* -1: there is none. */
    pid_t own;   /* Our process group. */
    bool wanted; /* The command gets the terminal whenever we have it. */
};

struct cli_terminal cli_terminal_open(void);

/* Whether our group has it now. */
bool cli_terminal_ours(const struct cli_terminal *t);

/* Give the terminal to the command's group, if our group has it. Returns whether it
 * had. SIGTTOU must be blocked, here and below. */
bool cli_terminal_give(const struct cli_terminal *t, pid_t group);

/* Take the terminal back from the command's group. Returns whether that had it. */
bool cli_terminal_take(const struct cli_terminal *t, pid_t group);

#endif /* SL_CLI_TERMINAL_H */
