#include "cli/program.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/exits.h"
#include "cli/message.h"

/* The installation directory; meson sets it. */
#ifndef SLUICE_BIN_DIRECTORY
#define SLUICE_BIN_DIRECTORY "/usr/local/bin"
#endif

/* Execute a file. Returns only on failure: true if there is no such file. */
static bool is_missing(const char *path, char **argv)
{
    argv[0] = (char *)path; /* execv() does not write to the string. */
    execv(path, argv);
    return errno == ENOENT || errno == ENOTDIR;
}

/* Execute a file whose path is relative to the directory of this program. Returns as
 * is_missing() does. */
static bool is_missing_near(const char *own, const char *directory, const char *program,
                            char **argv)
{
    char path[PATH_MAX + 64];
    const char *slash = strrchr(own, '/');
    if (slash == NULL) return true;
    snprintf(path, sizeof path, "%.*s/%s%s%s%s", (int)(slash - own), own,
             *directory != '\0' ? "../" : "", directory, *directory != '\0' ? "/" : "",
             program);
    return is_missing(path, argv);
}

/* Search all directories and execute the program. Returns only on failure, with errno
 * set. */
static void search_and_exec(const char *program, const char *directory, char **argv)
{
    char own[PATH_MAX], installed[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    if (n > 0) {
        own[n] = '\0';
        if (!is_missing_near(own, "", program, argv)) return;
        /* In the build tree: src/cli/sluice and src/server/sluice-server. */
        if (!is_missing_near(own, directory, program, argv)) return;
    }
    snprintf(installed, sizeof installed, "%s/%s", SLUICE_BIN_DIRECTORY, program);
    if (!is_missing(installed, argv)) return;
    argv[0] = (char *)program;
    execvp(program, argv);
    if (errno == EACCES) errno = ENOENT; /* We may not search some directory of PATH. */
}

int cli_exec_program(const char *program, const char *directory, char **argv)
{
    search_and_exec(program, directory, argv);
    if (errno != ENOENT && errno != ENOTDIR) {
        cli_message("cannot execute %s: %s", program, strerror(errno));
        return CLI_EXIT_CANNOT_EXECUTE;
    }
    cli_message("the program %s is not installed; install the package sluice-server",
                program);
    return CLI_EXIT_UNAVAILABLE;
}
