/* std.h - descriptors 0, 1 and 2. */
#ifndef SL_CLI_STD_H
#define SL_CLI_STD_H

#include <stdbool.h>

/* Where one of the three is closed, put a stand-in that a command which we execute does
 * not get: else the next file that we open would be taken for the terminal. False if
 * the system refuses. */
bool cli_std_open(void);

#endif /* SL_CLI_STD_H */
