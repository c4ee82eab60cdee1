/* offline.h - declarations that the commands of sluice-offline share.
 *
 * sluice-offline works on the files of a server. Commands that only read may run while
 * a server uses the files; commands that write create new files only. The command line
 * is NOUN VERB [OPTIONS] DIRECTORY. main.c contains the table of commands. Each noun has its own
 * files (store.c, journal.h), and its commands are declared here. */
#ifndef SL_OFFLINE_OFFLINE_H
#define SL_OFFLINE_OFFLINE_H

#include <stdbool.h>

struct offline_arguments {
    const char *directory;
    const char *key; /* NULL: not given. */
    bool json, yes;  /* --json, --yes */
};

struct offline_command {
    const char *noun, *verb;
    const char *summary; /* For --help. */

    /* Run the command. Returns the exit status. */
    int (*run)(const struct offline_arguments *a);

    bool has_key; /* It accepts a key after the directory. */
    bool has_json, has_yes;
};

/* Write a message to standard error. It begins with "sluice NOUN VERB: ", as the user
 * typed it: `sluice store check` executes this program. */
void offline_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Write everything to standard output. Returns an exit status, after a message if it fails. */
int offline_flush(void);

/* Convert a status of sluice.h, or an errno, to an exit status of sysexits.h. */
int offline_exit_status(int status);
int offline_exit_status_of_errno(int error);

int offline_store_check(const struct offline_arguments *a);
int offline_store_dump(const struct offline_arguments *a);
int offline_store_load(const struct offline_arguments *a);

int offline_journal_show(const struct offline_arguments *a);
int offline_journal_check(const struct offline_arguments *a);
int offline_journal_forget(const struct offline_arguments *a);

#endif /* SL_OFFLINE_OFFLINE_H */
