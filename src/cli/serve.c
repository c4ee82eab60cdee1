/* serve.c - `sluice serve`: the server is a program of its own, so that `sluice run`
 * starts fast and needs none of its libraries. All words are the server's, and it judges
 * them; only help is given here, as it comes from our table. */
#include "cli/serve.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/exits.h"
#include "cli/help.h"
#include "cli/say.h"

#define SERVER "sluice-server"

/* Where both are installed to. meson says it; this is where `make install` puts them. */
#ifndef SLUICE_BIN_FOLDER
#define SLUICE_BIN_FOLDER "/usr/local/bin"
#endif

/* Does the next word belong to this one? "--port" has a value, "--port=1" had it. */
static bool takes_next(const struct cli_command *c, const char *word)
{
    if (strncmp(word, "--", 2) != 0) return false;
    for (const struct cli_option *o = c->options; o->id != 0; o++)
        if (o->arg != NULL && strcmp(o->names, word + 2) == 0) return true;
    return false;
}

static bool asks_for_help(const struct cli_command *c, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
        if (takes_next(c, argv[i])) i++;
    }
    return false;
}

/* Execute it if it is there. Returns only if not: true if there was nothing. */
static bool is_missing(const char *path, char **argv)
{
    argv[0] = (char *)path; /* execv() changes nothing. */
    execv(path, argv);
    return errno == ENOENT || errno == ENOTDIR;
}

/* The same for FOLDER/NAME, relative to the folder of this program. */
static bool is_missing_beside(const char *own, const char *name, char **argv)
{
    char path[PATH_MAX + 64];
    const char *slash = strrchr(own, '/');
    if (slash == NULL) return true;
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - own), own, name);
    return is_missing(path, argv);
}

/* Look at each place in turn. Returns only if it is in none, or cannot be executed where
 * it was found: then errno says why. */
static void become_server(char **argv)
{
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    if (n > 0) {
        own[n] = '\0';
        if (!is_missing_beside(own, SERVER, argv)) return;
        /* As it was built: src/cli/sluice and src/server/sluice-server. */
        if (!is_missing_beside(own, "../server/" SERVER, argv)) return;
    }
    if (!is_missing(SLUICE_BIN_FOLDER "/" SERVER, argv)) return;
    argv[0] = (char *)SERVER;
    execvp(SERVER, argv);
    if (errno == EACCES)
        errno = ENOENT; /* A folder of PATH that is not ours to search. */
}

int cli_serve(const struct cli_command *command, int argc, char **argv)
{
    if (asks_for_help(command, argc, argv)) {
        cli_help(command);
        return cli_finish(0);
    }
    become_server(argv);
    if (errno != ENOENT && errno != ENOTDIR) {
        cli_say("cannot execute " SERVER ": %s", strerror(errno));
        return EXIT_CANNOT_EXECUTE;
    }
    cli_say("the program " SERVER " is not here; the package sluice-server has it");
    return EXIT_UNAVAILABLE;
}
