/* offline.h - declarations that the commands of sluice-offline share.
 *
 * sluice-offline works on the files of a server. Commands that only read may run while
 * a server uses the files; commands that write create new files only. The command line
 * is NOUN VERB DIRECTORY. main.c contains the table of commands. Each noun has its own
 * file (store.c), and its commands are declared here. */
#ifndef SL_OFFLINE_OFFLINE_H
#define SL_OFFLINE_OFFLINE_H

struct offline_command {
    const char *noun, *verb;
    const char *summary; /* For --help. */

    /* Run the command. Returns the exit status. */
    int (*run)(const char *directory);
};

/* Write a message to standard error. It begins with "sluice NOUN VERB: ", as the user
 * typed it: `sluice store check` executes this program. */
void offline_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Convert a status of sluice.h to an exit status of sysexits.h. */
int offline_exit_status(int status);

int offline_store_check(const char *directory);
int offline_store_dump(const char *directory);
int offline_store_load(const char *directory);

#endif /* SL_OFFLINE_OFFLINE_H */
