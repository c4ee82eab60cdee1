#include "cli/beside.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/exits.h"
#include "cli/say.h"

/* Where all are installed to. meson says it; this is where `make install` puts them. */
#ifndef SLUICE_BIN_FOLDER
#define SLUICE_BIN_FOLDER "/usr/local/bin"
#endif

/* Execute it if it is there. Returns only if not: true if there was nothing. */
static bool is_missing(const char *path, char **argv)
{
    argv[0] = (char *)path; /* execv() changes nothing. */
    execv(path, argv);
    return errno == ENOENT || errno == ENOTDIR;
}

/* The same for a path relative to the folder of this program. */
static bool is_missing_beside(const char *own, const char *folder, const char *program,
                              char **argv)
{
    char path[PATH_MAX + 64];
    const char *slash = strrchr(own, '/');
    if (slash == NULL) return true;
    snprintf(path, sizeof path, "%.*s/%s%s%s%s", (int)(slash - own), own,
             *folder != '\0' ? "../" : "", folder, *folder != '\0' ? "/" : "", program);
    return is_missing(path, argv);
}

/* Look at each place in turn. Returns only if it is in none, or cannot be executed where
 * it was found: then errno says why. */
static void look_around(const char *program, const char *folder, char **argv)
{
    char own[PATH_MAX], installed[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    if (n > 0) {
        own[n] = '\0';
        if (!is_missing_beside(own, "", program, argv)) return;
        /* As it was built: src/cli/sluice and src/server/sluice-server. */
        if (!is_missing_beside(own, folder, program, argv)) return;
    }
    snprintf(installed, sizeof installed, "%s/%s", SLUICE_BIN_FOLDER, program);
    if (!is_missing(installed, argv)) return;
    argv[0] = (char *)program;
    execvp(program, argv);
    if (errno == EACCES)
        errno = ENOENT; /* A folder of PATH that is not ours to search. */
}

int cli_become_program(const char *program, const char *folder, char **argv)
{
    look_around(program, folder, argv);
    if (errno != ENOENT && errno != ENOTDIR) {
        cli_say("cannot execute %s: %s", program, strerror(errno));
        return EXIT_CANNOT_EXECUTE;
    }
    cli_say("the program %s is not here; the package sluice-server has it", program);
    return EXIT_UNAVAILABLE;
}
