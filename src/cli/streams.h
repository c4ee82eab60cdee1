/* streams.h - the standard streams: file descriptors 0, 1 and 2. */
#ifndef SL_CLI_STREAMS_H
#define SL_CLI_STREAMS_H

#include <stdbool.h>

/* Open a close-on-exec placeholder for each standard stream that is closed. Otherwise
 * the next file that this process opens would get the number of a standard stream.
 * Returns false on failure. */
bool cli_streams_open(void);

#endif /* SL_CLI_STREAMS_H */
