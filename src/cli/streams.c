#include "cli/streams.h"

#include <fcntl.h>
#include <unistd.h>

bool cli_streams_open(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        /* open() returns the lowest free number, which is fd. The placeholder is
         * read-only, so that printing to it fails, as with a closed stream. */
        int got = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (got != fd) return false;
    }
    return true;
}
