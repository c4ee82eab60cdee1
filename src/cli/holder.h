/* holder.h - acquires the lock of `sluice acquire` and `sluice hold`. For `hold`, it also extends the
 * lease until the script ends. */
#ifndef SL_CLI_HOLDER_H
#define SL_CLI_HOLDER_H

#include <stdint.h>

#include "cli/script.h"

/* Return the name of the process that extends a lease, as /proc and ps(1) show it. */
#define CLI_HOLDER_NAME_SIZE 16
const char *cli_holder_name(uint64_t fence, char out[CLI_HOLDER_NAME_SIZE]);

/* Acquire the lock and print the result. acquire leaves it held; hold extends its lease until the
 * script ends, and releases it. Returns an exit status. */
int cli_holder(struct cli_script *o);

#endif /* SL_CLI_HOLDER_H */
