#include "cli/std.h"

#include <fcntl.h>
#include <unistd.h>

bool cli_std_open(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        /* The lowest number that is free is this one. Not for writing: what is printed
         * there is to fail, as it would have. */
        int got = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (got != fd) return false;
    }
    return true;
}
