/* message.h - prints messages to the user on standard error, and checks that all output
 * was written. */
#ifndef SL_CLI_MESSAGE_H
#define SL_CLI_MESSAGE_H

#include <stdint.h>

/* Set the prefix of each message, such as "sluice run". Borrows the name until exit. */
void cli_message_prefix(const char *name);

/* Print one line on standard error: "sluice run: ...". */
__attribute__((format(printf, 1, 2))) void cli_message(const char *format, ...);

/* From now on, lose a message if the user's terminal or pipe cannot take it at once. For processes that
 * extend leases or stop the command: a terminal that is paused (Ctrl-S) must not delay them. */
void cli_message_never_waits(void);

/* Report an invalid command line, and point to the help. Returns CLI_EXIT_USAGE. */
__attribute__((format(printf, 1, 2))) int cli_usage_error(const char *format, ...);

/* Print a message about `what` and a status of the library. Returns the exit status for
 * it. */
int cli_status_error(const char *what, int64_t status);

/* From now on, if the segment is truncated while this process uses it, the process exits
 * with CLI_EXIT_DATA and a message instead of dying of SIGBUS. */
void cli_catch_truncation(void);

/* Flush standard output. Returns `status`, or CLI_EXIT_SYSTEM and a message if some output
 * could not be written. */
int cli_flush_output(int status);

#endif /* SL_CLI_MESSAGE_H */
