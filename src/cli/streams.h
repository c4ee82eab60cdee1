/* streams.h - the standard streams: file descriptors 0, 1 and 2. */
#ifndef SL_CLI_STREAMS_H
#define SL_CLI_STREAMS_H

#include <stdbool.h>

/* Fill those of the three that are closed with a close-on-exec placeholder. Otherwise the
 * next file that this process opens would get the number of a standard stream. Returns
 * false if the system rejects this. */
bool cli_streams_open(void);

#endif /* SL_CLI_STREAMS_H */
