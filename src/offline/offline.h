/* offline.h - what the commands of sluice-offline share.
 *
 * sluice-offline works on the files of a server that is stopped, or only reads them. Its
 * command line is NOUN VERB DIRECTORY. main.c has the table of commands; each noun has a file
 * of its own (store.c), which declares its commands here. */
#ifndef SL_OFFLINE_OFFLINE_H
#define SL_OFFLINE_OFFLINE_H

struct offline_command {
    const char *noun, *verb;
    const char *summary; /* For --help. */

    /* Does the work and returns the exit status. */
    int (*run)(const char *directory);
};

/* Write a message to standard error. It begins with "sluice NOUN VERB: ", which is what the
 * user has typed: `sluice store check` executes this program. */
void offline_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The exit status (sysexits.h) for a status of sluice.h. */
int offline_exit_status(int status);

int offline_store_check(const char *directory);
int offline_store_dump(const char *directory);
int offline_store_load(const char *directory);

#endif /* SL_OFFLINE_OFFLINE_H */
