/* terminal.h - who has the terminal: our process group, or the command's.
 *
 * The command runs in a group of its own, so that signals can be sent to all of it and
 * to nothing else. A group that is to read from the terminal must be the terminal's
 * foreground group. It becomes that at once if we are what a user has just typed: we lead
 * the foreground group, and standard input and output are the terminal. In a script, a
 * pipeline or behind a redirection there are others in our group who want to read, or to
 * be told of Ctrl-C (`sluice run ... | less`, `make -j2`), so there it does when it first
 * asks, that is when it is stopped for having read. */
#ifndef SL_CLI_TERMINAL_H
#define SL_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct cli_terminal {
    int fd;      /* -1: there is none. */
    pid_t own;   /* Our group. */
    bool wanted; /* The command is to have it whenever we could have it. */
};

struct cli_terminal cli_terminal_open(void);

/* Whether our group has it now. */
bool cli_terminal_ours(const struct cli_terminal *t);

/* Give it to the command's group, if it is ours to give. Whether it was. SIGTTOU must be
 * blocked, here and below. */
bool cli_terminal_give(const struct cli_terminal *t, pid_t group);

/* Take it back from the command's group. Whether that had it. */
bool cli_terminal_take(const struct cli_terminal *t, pid_t group);

#endif /* SL_CLI_TERMINAL_H */
