#include "cli/terminal.h"

#include <fcntl.h>
#include <unistd.h>

struct cli_terminal cli_terminal_open(void)
{
    struct cli_terminal t = {.own = getpgrp()};
    t.fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    /* tcgetpgrp() fails for a terminal that is not our controlling terminal. */
    t.wanted = t.fd >= 0 && t.own == getpid() && tcgetpgrp(STDIN_FILENO) == t.own &&
               tcgetpgrp(STDOUT_FILENO) == t.own;
    return t;
}

bool cli_terminal_ours(const struct cli_terminal *t)
{
    return t->fd >= 0 && tcgetpgrp(t->fd) == t->own;
}

bool cli_terminal_give(const struct cli_terminal *t, pid_t group)
{
    if (!cli_terminal_ours(t)) return false;
    return tcsetpgrp(t->fd, group) == 0;
}

bool cli_terminal_take(const struct cli_terminal *t, pid_t group)
{
    if (t->fd < 0 || tcgetpgrp(t->fd) != group) return false;
    tcsetpgrp(t->fd, t->own);
    return true;
}
